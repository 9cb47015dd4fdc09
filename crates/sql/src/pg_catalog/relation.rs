//! Computed relations: their shape from a table of texts, their rows from a function.

use super::{Source, rows};
use firn_base::array::{ArrayValue, Dimension};
use firn_base::{Interval, Numeric, Representation, Type, TypeId, Value, type_table};
use std::sync::LazyLock;

/// One value of a computed row.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Cell {
    Null,
    Boolean(bool),
    /// Of any width.
    Integer(i64),
    Float(f64),
    /// In microseconds.
    Interval(i64),
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

impl Cell {
    /// The value of a column that a row does not set: as in PostgreSQL's tables, flags and small numbers are never
    /// NULL, but texts and arrays are where nothing is known.
    fn unset(ty: Type) -> Cell {
        match ty.representation() {
            Some(Representation::Boolean) => Cell::Boolean(false),
            Some(Representation::Int16 | Representation::Int32 | Representation::Oid) => Cell::Integer(0),
            _ => Cell::Null,
        }
    }

    /// Converts the cell to a value of a type; `None` for NULL. Panics if it is of another kind.
    pub(crate) fn into_value(self, ty: Type) -> Option<Value> {
        let representation = ty.representation();
        Some(match self {
            Cell::Null => return None,
            Cell::Boolean(value) => Value::Boolean(value),
            Cell::Integer(value) => integer(value, representation),
            Cell::Float(value) => match representation {
                Some(Representation::Float32) => Value::Real(value as f32),
                _ => Value::Double(value),
            },
            Cell::Interval(micros) => {
                Value::Interval(Interval { nanoseconds: micros * 1000, ..Interval::default() })
            }
            Cell::Text(text) => match representation {
                Some(Representation::Numeric) => {
                    Value::Number(Numeric::parse(&text).expect("rows have numbers"))
                }
                _ => Value::Text(text),
            },
            Cell::Integers(values) => {
                let element = ty.element().and_then(Type::representation);
                array(ty, values.into_iter().map(|value| integer(value, element)).collect())
            }
            Cell::Texts(texts) => array(ty, texts.into_iter().map(Value::Text).collect()),
        })
    }
}

fn integer(value: i64, representation: Option<Representation>) -> Value {
    match representation {
        Some(Representation::Int16) => Value::SmallInt(value as i16),
        Some(Representation::Int32) => Value::Integer(value as i32),
        Some(Representation::Int64) => Value::BigInt(value),
        Some(Representation::Oid) => Value::Oid(value as u32),
        Some(Representation::TimestampTz) => Value::TimestampTz(value),
        Some(Representation::Text) => Value::Text(value.to_string()),
        other => panic!("an integer is no {other:?}"),
    }
}

/// An array with indexes from 1 on; those of `int2vector` and `oidvector` begin at 0.
fn array(ty: Type, elements: Vec<Value>) -> Value {
    if !matches!(ty.id, TypeId::INT2VECTOR | TypeId::OIDVECTOR) || elements.is_empty() {
        return Value::Array(elements.into());
    }
    let dimension = Dimension { length: elements.len() as u32, lower: 0 };
    Value::Array(ArrayValue::new(vec![dimension], elements))
}

/// A row by column names.
pub(crate) type Row = Vec<(&'static str, Cell)>;

/// A column of a relation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    pub(crate) name: &'static str,
    pub(crate) ty: Type,
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
        Column { name, ty }
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
    /// Whether columns that a row does not set are NULL whatever their type.
    unset_is_null: bool,
}

impl Relation {
    /// Whether it never has rows.
    pub(crate) fn is_always_empty(&self) -> bool {
        self.rows.is_none()
    }

    /// How many rows it has, and the cells of each column.
    pub(crate) fn cells(&self, source: &Source) -> (usize, Vec<Vec<Cell>>) {
        let rows = self.rows.map_or_else(Vec::new, |rows| rows(source));
        let unset = |column: &Column| match self.unset_is_null {
            true => Cell::Null,
            false => Cell::unset(column.ty),
        };
        let mut columns: Vec<Vec<Cell>> =
            self.columns.iter().map(|column| vec![unset(column); rows.len()]).collect();
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

/// The function that makes the rows of a relation.
pub(crate) type RowsOf = fn(&Source) -> Vec<Row>;

/// Reads shapes, one per line: oid, relkind, name, columns as `name:type`.
pub(crate) fn parse_relations(
    text: &'static str,
    unset_is_null: bool,
    rows: fn(&str) -> Option<RowsOf>,
) -> Vec<Relation> {
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
            unset_is_null,
        }
    };
    text.lines().map(relation).collect()
}

/// PostgreSQL's relations, and those that only FirnDB has (`firn_…`).
static RELATIONS: LazyLock<Vec<Relation>> = LazyLock::new(|| {
    let mut relations = parse_relations(include_str!("firn_relations.tsv"), false, rows::of);
    relations.extend(parse_relations(include_str!("relations.tsv"), false, rows::of));
    relations
});

/// The relations of `pg_catalog`, by name.
pub(crate) fn all() -> &'static [Relation] {
    &RELATIONS
}

/// The relation with that name in `pg_catalog`.
pub(crate) fn find(name: &str) -> Option<&'static Relation> {
    RELATIONS.iter().find(|relation| relation.name == name)
}
