//! Rows of bound plans beside those of PostgreSQL: the reference interpreter of the algebra runs them, as they are
//! bound and with their dependent joins removed.

use crate::cases::{bound, statements};
use crate::catalog::CATALOG;
use firn_base::Value;
use firn_bind::{Catalog, RelationKind};
use firn_plan::operator::SourceId;
use firn_plan::reference::{Tables, run};

/// The rows of the tables that INSERT lists in the schema. Values of other types than integers and strings are NULL.
fn tables() -> Tables {
    let mut tables = Tables::new();
    for relation in CATALOG.relations() {
        let RelationKind::Table(source) = relation.kind else { continue };
        tables.insert(source, rows_of(&relation.name));
    }
    tables
}

fn rows_of(table: &str) -> Vec<Vec<Value>> {
    let schema = include_str!("../cases/schema.sql");
    let prefix = format!("INSERT INTO {table} VALUES ");
    let Some(text) = schema.lines().find_map(|line| line.strip_prefix(&prefix)) else { return Vec::new() };
    let relation = CATALOG.relations().find(|relation| &*relation.name == table).expect("it is there");
    let value = |(place, word): (usize, &str)| match word {
        "NULL" => Value::Null,
        _ if word.starts_with('\'') => Value::Text(word.trim_matches('\'').to_owned()),
        _ => match relation.columns[place].ty.id.0 {
            20 => Value::BigInt(word.parse().expect("it is a number")),
            23 => Value::Integer(word.parse().expect("it is a number")),
            _ => Value::Null,
        },
    };
    let rows = text.trim_end_matches(';').split("), (");
    let rows = rows.map(|row| row.trim_matches(|c| c == '(' || c == ')'));
    rows.map(|row| row.split(", ").enumerate().map(value).collect()).collect()
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "NULL".to_owned(),
        Value::Boolean(value) => if *value { "t" } else { "f" }.to_owned(),
        Value::Integer(value) => value.to_string(),
        Value::BigInt(value) => value.to_string(),
        Value::Text(value) => value.clone(),
        Value::Array(array) => {
            let elements: Vec<String> = array.elements().iter().map(shown).collect();
            format!("{{{}}}", elements.join(","))
        }
        other => format!("{other:?}"),
    }
}

#[test]
fn bound_plans_give_the_rows_of_postgresql() {
    let sql = include_str!("../cases/rows-queries.sql");
    let expected = include_str!("../cases/rows-queries.expected");
    let mut answers: Vec<Vec<&str>> = Vec::new();
    for line in expected.lines() {
        match line.strip_prefix("  ") {
            Some(row) => answers.last_mut().expect("a statement comes first").push(row),
            None => answers.push(Vec::new()),
        }
    }
    let statements = statements(sql);
    assert_eq!(statements.len(), answers.len());
    let tables: Tables = tables();
    assert!(tables[&source("a")].len() == 5, "the tables are read");
    let mut differing = Vec::new();
    for (statement, answer) in statements.iter().zip(&answers) {
        let attempt = |unnested: bool| {
            std::panic::catch_unwind(|| {
                let mut bound = bound(statement).map_err(|error| error.message().to_owned())?;
                if unnested {
                    firn_plan::unnest::unnest(&mut bound.plan, CATALOG.registry());
                    firn_plan::verify::verify(&bound.plan)?;
                }
                let rows = run(&bound.plan, &tables, &[]).map_err(|error| error.message().to_owned())?;
                let line = |row: Vec<Value>| row.iter().map(shown).collect::<Vec<_>>().join("|");
                Ok::<Vec<String>, String>(rows.into_iter().map(line).collect())
            })
            .unwrap_or_else(|_| Err("panic".to_owned()))
        };
        for unnested in [false, true] {
            let mut found = attempt(unnested).unwrap_or_else(|problem| vec![problem]);
            let mut wanted: Vec<String> = answer.iter().map(|row| (*row).to_owned()).collect();
            if !statement.contains("ORDER BY") || statement.contains("(ORDER BY") || unnested {
                found.sort();
                wanted.sort();
            }
            if found != wanted {
                let how = if unnested { " (unnested)" } else { "" };
                differing.push(format!("{statement}{how}\n  expected {wanted:?}\n  found    {found:?}"));
            }
        }
    }
    assert!(
        differing.is_empty(),
        "{} of {} differ\n{}",
        differing.len(),
        2 * answers.len(),
        differing.join("\n")
    );
}

fn source(table: &str) -> SourceId {
    let relation = CATALOG.relations().find(|relation| &*relation.name == table).expect("it is there");
    relation.source().expect("it is a table")
}
