//! The tables of the statements. They have equal column names with different types; there are few values, so that they often match.

use firn_base::Type;
use firn_base::TypeId;

/// A type of the generator.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Ty {
    /// `integer`
    Int,
    /// `bigint`
    Big,
    /// `numeric`
    Num,
    /// `text`
    Text,
    /// `date`
    Date,
    /// `timestamp`
    Stamp,
    /// `boolean`
    Bool,
    /// `double precision`
    Double,
    /// `integer[]`
    Ints,
    /// `text[]`
    Texts,
    /// `interval`
    Span,
    /// `smallint`
    Small,
    /// `real`
    Real,
    /// `numeric(8,2)`
    Fixed,
    /// `varchar(8)`
    Vary,
    /// `char(4)`
    Char,
    /// `time`
    Time,
    /// `timestamptz`
    Zoned,
    /// `bytea`
    Bytes,
    /// `uuid`
    Uuid,
}

impl Ty {
    /// All types.
    pub const ALL: [Ty; 20] = [
        Ty::Int,
        Ty::Text,
        Ty::Big,
        Ty::Num,
        Ty::Date,
        Ty::Bool,
        Ty::Stamp,
        Ty::Double,
        Ty::Ints,
        Ty::Texts,
        Ty::Span,
        Ty::Small,
        Ty::Real,
        Ty::Fixed,
        Ty::Vary,
        Ty::Char,
        Ty::Time,
        Ty::Zoned,
        Ty::Bytes,
        Ty::Uuid,
    ];

    /// How often each of [`Ty::ALL`] is drawn.
    pub const WEIGHTS: [usize; 20] = [30, 16, 12, 12, 8, 6, 6, 6, 3, 2, 3, 4, 3, 4, 4, 4, 3, 4, 3, 3];

    /// Its name in SQL.
    pub fn name(self) -> &'static str {
        match self {
            Ty::Int => "integer",
            Ty::Big => "bigint",
            Ty::Num => "numeric",
            Ty::Text => "text",
            Ty::Date => "date",
            Ty::Stamp => "timestamp",
            Ty::Bool => "boolean",
            Ty::Double => "double precision",
            Ty::Ints => "integer[]",
            Ty::Texts => "text[]",
            Ty::Span => "interval",
            Ty::Small => "smallint",
            Ty::Real => "real",
            Ty::Fixed => "numeric(8,2)",
            Ty::Vary => "varchar(8)",
            Ty::Char => "char(4)",
            Ty::Time => "time",
            Ty::Zoned => "timestamptz",
            Ty::Bytes => "bytea",
            Ty::Uuid => "uuid",
        }
    }

    /// The type of a value that is one of two, which `=` compares.
    pub fn common(self, other: Ty) -> Option<Ty> {
        const CHAINS: [&[Ty]; 3] = [
            &[Ty::Small, Ty::Int, Ty::Big, Ty::Fixed, Ty::Num, Ty::Real, Ty::Double],
            &[Ty::Vary, Ty::Text],
            &[Ty::Date, Ty::Stamp, Ty::Zoned],
        ];
        if self == other {
            return Some(self);
        }
        CHAINS.iter().find_map(|chain| {
            let rank = |ty: Ty| chain.iter().position(|one| *one == ty);
            Some(if rank(self)? > rank(other)? { self } else { other })
        })
    }

    /// Whether it is an integer.
    pub fn is_number(self) -> bool {
        matches!(self, Ty::Small | Ty::Int | Ty::Big)
    }

    /// Whether PostgreSQL 15 has `max` and `min` of it.
    pub fn has_extremum(self) -> bool {
        !matches!(self, Ty::Bool | Ty::Bytes | Ty::Uuid)
    }

    /// Its oid.
    pub fn oid(self) -> u32 {
        self.ty().id.0
    }

    /// The engine's type.
    pub fn ty(self) -> Type {
        let element = |ty: Ty| ty.ty().array().expect("it has arrays");
        Type::new(match self {
            Ty::Int => TypeId::INT4,
            Ty::Big => TypeId::INT8,
            Ty::Num => TypeId::NUMERIC,
            Ty::Text => TypeId::TEXT,
            Ty::Date => TypeId::DATE,
            Ty::Stamp => TypeId::TIMESTAMP,
            Ty::Bool => TypeId::BOOL,
            Ty::Double => TypeId::FLOAT8,
            Ty::Span => TypeId::INTERVAL,
            Ty::Small => TypeId::INT2,
            Ty::Real => TypeId::FLOAT4,
            Ty::Fixed => return Type::numeric(8, 2),
            Ty::Vary => return Type::varchar(8),
            Ty::Char => return Type::character(4),
            Ty::Time => TypeId::TIME,
            Ty::Zoned => TypeId::TIMESTAMPTZ,
            Ty::Bytes => TypeId::BYTEA,
            Ty::Uuid => TypeId::UUID,
            Ty::Ints => return element(Ty::Int),
            Ty::Texts => return element(Ty::Text),
        })
    }
}

/// A table.
pub struct Table {
    /// Its name.
    pub name: &'static str,
    /// Name, type and constraint of each column.
    pub columns: &'static [(&'static str, Ty, Constraint)],
    /// The values' text, separated by `|`; NULL is `-`.
    pub rows: &'static [&'static str],
}

/// The constraint of a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Constraint {
    /// Nothing.
    Free,
    /// NOT NULL
    NotNull,
    /// UNIQUE
    Unique,
    /// PRIMARY KEY
    Key,
}

use Constraint::{Free, Key, NotNull, Unique};

/// The tables.
pub const TABLES: &[Table] = &[
    Table {
        name: "t",
        columns: &[
            ("id", Ty::Int, Key),
            ("a", Ty::Int, Free),
            ("b", Ty::Big, Free),
            ("s", Ty::Text, Free),
            ("n", Ty::Num, Free),
            ("d", Ty::Date, Free),
        ],
        rows: &[
            "1|1|10|a|1.50|2020-01-01",
            "2|2|20|b|2.25|2020-02-29",
            "3|2|-|ab|-|2020-03-15",
            "4|-|1|-|0.00|-",
            "5|5|2|a|-1.00|2021-12-31",
            "6|1|1|B|10.00|2020-01-01",
            "7|3|3||1.50|2019-06-30",
            "8|-|-|-|-|-",
        ],
    },
    Table {
        name: "u",
        columns: &[
            ("id", Ty::Int, Key),
            ("a", Ty::Big, NotNull),
            ("b", Ty::Int, Unique),
            ("s", Ty::Text, NotNull),
            ("f", Ty::Bool, Free),
            ("x", Ty::Double, Free),
        ],
        rows: &[
            "1|1|1|a|t|0.5",
            "2|2|2|b|f|-1.25",
            "3|2|10|c|-|3",
            "5|4|-|ab|t|-",
            "7|1|-|a|f|0.5",
            "9|0|20|Zed|-|100",
        ],
    },
    Table {
        name: "v",
        columns: &[
            ("a", Ty::Int, Unique),
            ("b", Ty::Num, Free),
            ("ts", Ty::Stamp, Free),
            ("r", Ty::Ints, Free),
            ("n", Ty::Int, NotNull),
            ("s", Ty::Text, Free),
        ],
        rows: &[
            "1|1|2020-01-01 00:00:00|{1,2}|1|a",
            "2|2.0|2020-02-29 12:30:00|{}|2|-",
            "3|-|2021-07-04 23:59:59|{3,NULL,1}|2|b",
            "-|10.5|-|-|0|ab",
            "-|3|2020-01-01 00:00:00|{2}|3|a",
        ],
    },
    Table {
        name: "w",
        columns: &[
            ("id", Ty::Big, Key),
            ("a", Ty::Int, Free),
            ("d", Ty::Date, NotNull),
            ("g", Ty::Texts, Free),
            ("f", Ty::Bool, NotNull),
            ("s", Ty::Text, Unique),
            ("x", Ty::Span, Free),
        ],
        rows: &[
            "1|2|2020-01-01|{a,b}|t|a|1 day",
            "2|2|2020-01-01|{}|f|b|1 mon -2 days",
            "3|-|2020-02-29|-|f|-|-",
            "4|1|2022-10-10|{NULL,\"x y\"}|t|c|04:05:06",
        ],
    },
    Table {
        name: "m",
        columns: &[
            ("id", Ty::Small, Key),
            ("a", Ty::Int, Free),
            ("s", Ty::Vary, Free),
            ("c", Ty::Char, NotNull),
            ("n", Ty::Fixed, Free),
            ("ts", Ty::Zoned, Free),
            ("h", Ty::Time, Free),
            ("x", Ty::Real, Free),
            ("y", Ty::Bytes, Free),
            ("u", Ty::Uuid, Unique),
        ],
        rows: &[
            "1|1|a|a   |1.50|2020-01-01 00:00:00+00|12:30:00|0.5|\\x61|00000000-0000-0000-0000-000000000001",
            "2|2|b|ab  |2.25|2020-02-29 12:30:00+00|00:00:00|-1.25|\\x|00000000-0000-0000-0000-000000000002",
            "3|2|-|    |-|-|-|3|\\x00ff|-",
            "4|-|ab|a   |0.00|2021-07-04 21:59:59+00|23:59:59|-|-|-",
            "5|5||Zed |-10.50|2020-01-01 00:00:00+00|04:05:06.789|100|\\x6162|a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
            "7|1|a|b   |1.50|-|12:30:00|0.5|\\x61|00000000-0000-0000-0000-000000000003",
        ],
    },
    Table {
        name: "k",
        columns: &[
            ("id", Ty::Int, Key),
            ("a", Ty::Small, NotNull),
            ("s", Ty::Char, Free),
            ("c", Ty::Vary, Unique),
            ("n", Ty::Real, Free),
            ("ts", Ty::Zoned, NotNull),
            ("h", Ty::Time, Free),
            ("y", Ty::Bytes, Free),
            ("g", Ty::Uuid, Free),
        ],
        rows: &[
            "1|1|a   |a|1.5|2020-01-01 00:00:00+00|12:30:00|\\x61|00000000-0000-0000-0000-000000000001",
            "2|2|ab  |b|-|2020-02-29 12:30:00+00|-|\\x6162|00000000-0000-0000-0000-000000000001",
            "3|2|-|-|0.5|2022-10-10 10:10:10.5+00|00:00:00|-|-",
            "4|0|b   ||-1.25|2020-01-01 00:00:00+00|23:59:59|\\x|00000000-0000-0000-0000-000000000002",
        ],
    },
    Table {
        name: "e",
        columns: &[("id", Ty::Int, Key), ("a", Ty::Int, Free), ("s", Ty::Text, Free)],
        rows: &[],
    },
];

/// The statements that create the tables.
pub fn statements() -> Vec<String> {
    let mut all = Vec::new();
    for table in TABLES {
        all.push(format!("DROP TABLE IF EXISTS {}", table.name));
        let column = |(name, ty, constraint): &(&str, Ty, Constraint)| {
            let constraint = match constraint {
                Free => "",
                NotNull => " NOT NULL",
                Unique => " UNIQUE",
                Key => " PRIMARY KEY",
            };
            format!("{name} {}{constraint}", ty.name())
        };
        let columns: Vec<String> = table.columns.iter().map(column).collect();
        all.push(format!("CREATE TABLE {} ({})", table.name, columns.join(", ")));
        for row in table.rows {
            let values: Vec<String> = row.split('|').map(literal).collect();
            all.push(format!("INSERT INTO {} VALUES ({})", table.name, values.join(", ")));
        }
    }
    all
}

fn literal(text: &str) -> String {
    match text {
        "-" => "NULL".to_owned(),
        _ => format!("'{text}'"),
    }
}
