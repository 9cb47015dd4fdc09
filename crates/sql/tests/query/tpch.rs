//! The analytical queries of TPC-H and CH-benCHmark, against DataFusion over the same rows in memory: on hot rows, on
//! frozen and on compact ones.

use crate::database::Database;
use datafusion::arrow::array::{Array, RecordBatch};
use datafusion::datasource::MemTable;
use datafusion::prelude::SessionContext;
use firn_base::sync::Arc;
use firn_base::{Value, numeric};
use firn_bench::temperature::{Temperature, cool};
use firn_bench::tpcc::load::LoadProgress;
use firn_bench::{ch, queries, tpcc, tpch};

const SCALE: f64 = 0.01;

/// DataFusion with some tables in memory.
fn oracle(tables: Vec<(&str, Vec<RecordBatch>)>) -> SessionContext {
    let context = SessionContext::new();
    for (name, batches) in tables {
        let provider = MemTable::try_new(batches[0].schema(), vec![batches]).unwrap();
        context.register_table(name, Arc::new(provider)).unwrap();
    }
    context
}

fn answer(oracle: &SessionContext, query: &str) -> Vec<Vec<Value>> {
    let runtime = firn_exec::runtime::workers();
    rows(&runtime.block_on(async { oracle.sql(query).await.unwrap().collect().await.unwrap() }))
}

fn rows(batches: &[RecordBatch]) -> Vec<Vec<Value>> {
    let mut rows = Vec::new();
    for batch in batches {
        for row in 0..batch.num_rows() {
            let value = |column: &Arc<dyn Array>| firn_exec::types::value_at(column.as_ref(), row).unwrap();
            rows.push(batch.columns().iter().map(value).collect());
        }
    }
    rows
}

/// Equal, or both numbers and as near as their decimals allow: averages and quotients carry
/// different numbers of digits.
fn alike(ours: &Value, theirs: &Value) -> bool {
    let number = |value: &Value| match value {
        Value::SmallInt(value) => Some(f64::from(*value)),
        Value::Integer(value) => Some(f64::from(*value)),
        Value::BigInt(value) => Some(*value as f64),
        Value::Double(value) => Some(*value),
        Value::Numeric { unscaled, scale } => Some(numeric::to_f64((*unscaled, *scale))),
        _ => None,
    };
    match (number(ours), number(theirs)) {
        (Some(ours), Some(theirs)) => (ours - theirs).abs() <= 1e-2 + theirs.abs() * 1e-6,
        _ => ours == theirs,
    }
}

/// Asks both and compares, row by row. `theirs` is how DataFusion has to be asked.
fn compare(database: &Database, oracle: &SessionContext, name: &str, query: &str, theirs: &str) {
    let (_, batches) = database.batches(query, &[]).unwrap_or_else(|error| panic!("{name}: {error:?}"));
    let mut ours = rows(&batches);
    let mut theirs = answer(oracle, theirs);
    // Rows that ORDER BY leaves equal may come in any order.
    for rows in [&mut ours, &mut theirs] {
        rows.sort_by_key(|row| {
            row.iter()
                .filter(|value| matches!(value, Value::Text(_)))
                .map(|v| format!("{v:?}"))
                .collect::<String>()
        });
    }
    assert_eq!(ours.len(), theirs.len(), "rows of {name}");
    for (position, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
        let same = ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(a, b)| alike(a, b));
        assert!(same, "{name}, row {position}: {ours:?} but DataFusion says {theirs:?}");
    }
}

#[test]
fn the_22_answers_of_tpch_are_datafusions() {
    let database = Database::new();
    tpch::load(&database.engine, SCALE, 2, &LoadProgress::default()).unwrap();
    let tables = tpch::TABLES.iter().map(|table| (table.name, tpch::batches(table, SCALE, 1, 1).collect()));
    let oracle = oracle(tables.collect());
    for temperature in Temperature::ALL {
        cool(&database.engine, temperature);
        for (number, query) in queries::TPCH.iter().enumerate() {
            compare(&database, &oracle, &format!("query {} on {temperature} rows", number + 1), query, query);
        }
    }
}

#[test]
fn the_22_answers_of_ch_are_datafusions() {
    let database = Database::new();
    let scale = tpcc::Scale { warehouses: 2, items: 1_000, customers: 100 };
    tpcc::load::load(&database.engine, scale, 7, 2, &LoadProgress::default()).unwrap();
    ch::load(&database.engine, 7).unwrap();
    let catalog = database.engine.catalog();
    let names: Vec<&str> = catalog.tables.values().map(|table| table.name.as_str()).collect();
    let all = |name: &&str| database.batches(&format!("SELECT * FROM {name}"), &[]).unwrap().1;
    let oracle = oracle(names.iter().map(|name| (*name, all(name))).collect());
    for temperature in Temperature::ALL {
        cool(&database.engine, temperature);
        for (number, query) in queries::CH.iter().enumerate() {
            // DataFusion has no function of that name.
            let theirs = query
                .replace("mod(s_w_id * s_i_id, 10000)", "((s_w_id * s_i_id) % 10000)")
                .replace("mod(s_i_id * s_w_id, 10000)", "((s_i_id * s_w_id) % 10000)");
            compare(
                &database,
                &oracle,
                &format!("query {} on {temperature} rows", number + 1),
                query,
                &theirs,
            );
        }
    }
}
