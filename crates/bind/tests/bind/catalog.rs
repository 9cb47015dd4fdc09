//! The catalog of tests: the tables of `cases/schema.sql`, read from that file.

use crate::functions;
use firn_base::{Result, Type, TypeId, type_table};
use firn_bind::{Attribute, Catalog, Generated, Key, Relation, RelationKind};
use firn_plan::operator::SourceId;
use firn_vector::Registry;
use std::sync::{Arc, LazyLock};

const SCHEMA: &str = include_str!("../cases/schema.sql");

/// Tables and all functions.
pub struct TestCatalog {
    registry: Registry,
    relations: Vec<Arc<Relation>>,
}

/// The one catalog.
pub static CATALOG: LazyLock<TestCatalog> = LazyLock::new(|| {
    let mut relations: Vec<Arc<Relation>> = Vec::new();
    for statement in SCHEMA.split(";\n").map(str::trim) {
        if let Some(rest) = statement.strip_prefix("CREATE TABLE ") {
            relations.push(Arc::new(table(rest, relations.len() as u32)));
        } else if let Some(rest) = statement.strip_prefix("CREATE VIEW ") {
            let (name, text) = rest.split_once(" AS ").expect("a view has a query");
            let orders = relations.iter().find(|one| &*one.name == "orders").expect("it comes before");
            let column = |number: i16, name: &str, of: &str| {
                let of = orders.column(of).expect("it is a column").1;
                Attribute { number, name: name.into(), not_null: false, default: None, ..of.clone() }
            };
            relations.push(Arc::new(Relation {
                oid: 20_000 + relations.len() as u32,
                schema: "public".into(),
                name: name.into(),
                kind: RelationKind::View(text.into()),
                columns: vec![
                    column(1, "id", "id"),
                    column(2, "customer", "customer"),
                    column(3, "amount", "total"),
                ],
                keys: Vec::new(),
                has_system_columns: false,
            }));
        }
    }
    TestCatalog { registry: functions::registry(), relations }
});

fn table(text: &str, place: u32) -> Relation {
    let (name, rest) = text.split_once(" (").expect("a table has columns");
    let rest = rest.strip_suffix(')').expect("a table ends");
    let oid = 20_000 + place;
    let mut columns: Vec<Attribute> = Vec::new();
    let mut keys = Vec::new();
    let mut parts: Vec<String> = vec![String::new()];
    let mut depth = 0;
    for c in rest.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        parts.last_mut().expect("there is one").push(c);
    }
    let mut key: Vec<i16> = Vec::new();
    for part in parts.iter().map(|part| part.trim()) {
        if let Some(list) = part.strip_prefix("PRIMARY KEY (") {
            for name in list.trim_end_matches(')').split(", ") {
                let column = columns.iter_mut().find(|column| &*column.name == name).expect("it is there");
                column.not_null = true;
                key.push(column.number);
            }
            continue;
        }
        let (name, rest) = part.split_once(' ').expect("a column has a type");
        let number = columns.len() as i16 + 1;
        let is_key = rest.contains("PRIMARY KEY");
        if is_key {
            key.push(number);
        }
        let expression = |before: &str, after: &str| {
            let start = rest.find(before)? + before.len();
            let end = rest[start..].find(after).map_or(rest.len(), |end| start + end);
            Some(rest[start..end].into())
        };
        let generated = match rest {
            _ if rest.contains("STORED") => Generated::Stored,
            _ if rest.contains("AS IDENTITY") => Generated::IdentityAlways,
            _ => Generated::No,
        };
        columns.push(Attribute {
            number,
            name: name.into(),
            ty: ty(rest),
            not_null: is_key || rest.contains("NOT NULL") || rest.contains("IDENTITY"),
            default: match generated {
                Generated::Stored => None,
                Generated::IdentityAlways => Some("0".into()),
                _ => expression("DEFAULT ", " NOT"),
            },
            generated,
        });
    }
    if !key.is_empty() {
        keys.push(Key {
            index: oid + 10_000,
            name: format!("{name}_pkey").into(),
            columns: key,
            is_primary: true,
            is_deferrable: false,
            nulls_not_distinct: false,
            expressions: Vec::new(),
            condition: None,
        });
    }
    let kind = RelationKind::Table(SourceId(place));
    Relation {
        oid,
        schema: "public".into(),
        name: name.into(),
        kind,
        columns,
        keys,
        has_system_columns: false,
    }
}

fn ty(text: &str) -> Type {
    let word = text.split(' ').next().expect("there is one");
    let is_array = word.ends_with("[]");
    let word = word.trim_end_matches("[]");
    let (name, modifiers) = match word.split_once('(') {
        Some((name, rest)) => (name, rest.trim_end_matches(')')),
        None => (word, ""),
    };
    let numbers: Vec<u32> = modifiers.split(',').filter_map(|number| number.parse().ok()).collect();
    let ty = match (name, &numbers[..]) {
        ("integer", _) => Type::new(TypeId::INT4),
        ("bigint", _) => Type::new(TypeId::INT8),
        ("smallint", _) => Type::new(TypeId::INT2),
        ("real", _) => Type::new(TypeId::FLOAT4),
        ("double", _) => Type::new(TypeId::FLOAT8),
        ("boolean", _) => Type::new(TypeId::BOOL),
        ("varchar", [length]) => Type::varchar(*length),
        ("char", [length]) => Type::character(*length),
        ("numeric", [precision, scale]) => Type::numeric(*precision as u16, *scale as i16),
        _ => Type::new(type_table::by_name(name).unwrap_or_else(|| panic!("{name} is a type")).id),
    };
    if is_array { ty.array().expect("it has arrays") } else { ty }
}

impl TestCatalog {
    /// The name of a relation.
    pub fn relation_name(&self, oid: u32) -> &str {
        &self.relations.iter().find(|relation| relation.oid == oid).expect("it is there").name
    }

    /// The tables.
    pub fn relations(&self) -> impl Iterator<Item = &Relation> {
        self.relations.iter().map(|relation| &**relation)
    }
}

impl Catalog for TestCatalog {
    fn registry(&self) -> &Registry {
        &self.registry
    }

    fn relation(&self, schema: Option<&str>, name: &str) -> Result<Option<Arc<Relation>>> {
        let is_visible = schema.is_none_or(|schema| schema == "public");
        let found = self.relations.iter().find(|relation| &*relation.name == name);
        Ok(found.filter(|_| is_visible).cloned())
    }

    fn has_schema(&self, name: &str) -> bool {
        name == "public" || name == "pg_catalog"
    }

    fn database(&self) -> &str {
        "bind_oracle"
    }
}
