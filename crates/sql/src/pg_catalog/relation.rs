//! Relations that are computed: their shape from a table of texts, their rows from a function.

use super::{Source, rows};
use firn_base::{Type, TypeId, type_table};
use std::sync::LazyLock;

/// What a column holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Boolean,
    SmallInt,
    /// Also oids
    Integer,
    BigInt,
    Real,
    Double,
    /// Also names and single characters
    Text,
    TimestampTz,
    Interval,
    Bytea,
    SmallIntList,
    IntegerList,
    RealList,
    TextList,
}

impl Kind {
    /// What the old engine has for a type of PostgreSQL.
    fn of(ty: Type) -> Kind {
        match ty.id {
            TypeId::BOOL => Kind::Boolean,
            TypeId::INT2 => Kind::SmallInt,
            TypeId::INT4 | TypeId::OID | TypeId::XID | TypeId::REGPROC | TypeId::REGTYPE => Kind::Integer,
            TypeId::INT8 => Kind::BigInt,
            TypeId::FLOAT4 => Kind::Real,
            TypeId::FLOAT8 => Kind::Double,
            TypeId::TIMESTAMPTZ => Kind::TimestampTz,
            TypeId::INTERVAL => Kind::Interval,
            TypeId::BYTEA => Kind::Bytea,
            TypeId::INT2_ARRAY | TypeId::INT2VECTOR => Kind::SmallIntList,
            TypeId::OIDVECTOR => Kind::IntegerList,
            TypeId::FLOAT4_ARRAY => Kind::RealList,
            _ => match ty.element().filter(|_| ty.info().is_some_and(|info| info.is_array())) {
                Some(Type { id: TypeId::INT4 | TypeId::OID | TypeId::REGTYPE, .. }) => Kind::IntegerList,
                Some(_) => Kind::TextList,
                None => Kind::Text,
            },
        }
    }

    /// What a column holds that a row does not set: as in PostgreSQL, flags and numbers are never
    /// NULL, texts and lists are where nothing is known.
    pub(crate) fn default(self) -> Cell {
        match self {
            Kind::Boolean => Cell::Boolean(false),
            Kind::SmallInt | Kind::Integer => Cell::Integer(0),
            _ => Cell::Null,
        }
    }
}

/// One value of a computed row.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Cell {
    Null,
    Boolean(bool),
    /// Of any width.
    Integer(i64),
    Float(f64),
    Text(String),
    Integers(Vec<i64>),
    Texts(Vec<String>),
}

impl From<bool> for Cell {
    fn from(value: bool) -> Cell {
        Cell::Boolean(value)
    }
}

impl From<i64> for Cell {
    fn from(value: i64) -> Cell {
        Cell::Integer(value)
    }
}

impl From<f64> for Cell {
    fn from(value: f64) -> Cell {
        Cell::Float(value)
    }
}

impl From<&str> for Cell {
    fn from(value: &str) -> Cell {
        Cell::Text(value.to_owned())
    }
}

impl From<String> for Cell {
    fn from(value: String) -> Cell {
        Cell::Text(value)
    }
}

impl From<Vec<i64>> for Cell {
    fn from(value: Vec<i64>) -> Cell {
        Cell::Integers(value)
    }
}

impl From<Vec<String>> for Cell {
    fn from(value: Vec<String>) -> Cell {
        Cell::Texts(value)
    }
}

impl<T: Into<Cell>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Cell {
        value.map_or(Cell::Null, T::into)
    }
}

/// A row by column names; columns that it does not name hold [`Kind::default`].
pub(crate) type Row = Vec<(&'static str, Cell)>;

/// A column of a relation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    pub(crate) name: &'static str,
    pub(crate) ty: Type,
    /// What the old engine has for the type.
    pub(crate) kind: Kind,
}

impl Column {
    /// `name:type`, or `name:type(modifier)`.
    fn parse(text: &'static str) -> Column {
        let (name, ty) = text.split_once(':').expect("name and type");
        let (ty, modifier) = match ty.split_once('(') {
            Some((ty, modifier)) => {
                (ty, modifier.trim_end_matches(')').parse().expect("a modifier is a number"))
            }
            None => (ty, -1),
        };
        let array = ty
            .strip_prefix('_')
            .map(|element| type_table::by_name(element).and_then(|element| element.array).map(Type::new));
        let named = || type_table::by_name(ty).map(|info| Type::new(info.id));
        let found = array.unwrap_or_else(named);
        let ty = found.unwrap_or_else(|| panic!("no type is called {ty}")).with_modifier(modifier);
        Column { name, ty, kind: Kind::of(ty) }
    }
}

/// The shape of a relation.
#[derive(Debug)]
pub(crate) struct Relation {
    pub(crate) oid: i64,
    /// `r` or `v`.
    pub(crate) relkind: &'static str,
    pub(crate) name: &'static str,
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: Option<RowsOf>,
}

impl Relation {
    /// How many rows it has, and the cells of each column.
    pub(crate) fn cells(&self, source: &Source) -> (usize, Vec<Vec<Cell>>) {
        let rows = self.rows.map_or_else(Vec::new, |rows| rows(source));
        let mut columns: Vec<Vec<Cell>> =
            self.columns.iter().map(|column| vec![column.kind.default(); rows.len()]).collect();
        let count = rows.len();
        for (position, row) in rows.into_iter().enumerate() {
            for (name, cell) in row {
                let column = self.columns.iter().position(|column| column.name == name);
                let column = column.unwrap_or_else(|| panic!("{} has no column {name}", self.name));
                columns[column][position] = cell;
            }
        }
        (count, columns)
    }
}

/// What makes the rows of a relation.
type RowsOf = fn(&Source) -> Vec<Row>;

/// Reads shapes, one per line: oid, relkind, name, columns as `name:type`.
pub(crate) fn parse_relations(text: &'static str, rows: fn(&str) -> Option<RowsOf>) -> Vec<Relation> {
    let relation = |line: &'static str| {
        let mut fields = line.split('\t');
        let mut field = || fields.next().expect("four fields per line");
        let (oid, relkind, name, columns) = (field(), field(), field(), field());
        Relation {
            oid: oid.parse().expect("a number"),
            relkind,
            name,
            columns: columns.split(' ').map(Column::parse).collect(),
            rows: rows(name),
        }
    };
    text.lines().map(relation).collect()
}

static RELATIONS: LazyLock<Vec<Relation>> =
    LazyLock::new(|| parse_relations(include_str!("relations.tsv"), rows::of));

/// The relations of `pg_catalog`, by name.
pub(crate) fn all() -> &'static [Relation] {
    &RELATIONS
}

/// The relation of that name in `pg_catalog`.
pub(crate) fn find(name: &str) -> Option<&'static Relation> {
    RELATIONS.iter().find(|relation| relation.name == name)
}
