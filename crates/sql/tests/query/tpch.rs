//! TPC-H's 22 queries, against DataFusion over the same rows in memory.

use crate::database::Database;
use datafusion::arrow::array::{Array, RecordBatch};
use datafusion::arrow::compute::concat_batches;
use datafusion::datasource::MemTable;
use datafusion::prelude::SessionContext;
use firn_base::sync::Arc;
use firn_base::{Value, numeric};
use firn_bench::tpcc::load::LoadProgress;
use firn_bench::{queries, tpch};

const SCALE: f64 = 0.01;

/// What DataFusion answers over the generated batches.
fn oracle(query: &str) -> Vec<Vec<Value>> {
    let runtime = firn_exec::runtime::workers();
    let context = SessionContext::new();
    for table in tpch::TABLES {
        let batches: Vec<RecordBatch> = tpch::batches(table, SCALE, 1, 1).collect();
        let provider = MemTable::try_new(batches[0].schema(), vec![batches]).unwrap();
        context.register_table(table.name, Arc::new(provider)).unwrap();
    }
    let batches = runtime.block_on(async { context.sql(query).await.unwrap().collect().await.unwrap() });
    rows(&batches)
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

#[test]
fn all_22_answers_are_datafusions() {
    let database = Database::new();
    tpch::load(&database.engine, SCALE, 2, &LoadProgress::default()).unwrap();
    for (number, query) in queries::TPCH.iter().enumerate() {
        let number = number + 1;
        let (_, batches) =
            database.batches(query, &[]).unwrap_or_else(|error| panic!("query {number}: {error:?}"));
        let ours = rows(&batches);
        let theirs = oracle(query);
        assert_eq!(ours.len(), theirs.len(), "rows of query {number}");
        for (position, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
            let same = ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(a, b)| alike(a, b));
            assert!(same, "query {number}, row {position}: {ours:?} but DataFusion says {theirs:?}");
        }
        let all = batches.first().map(|first| concat_batches(&first.schema(), &batches).unwrap());
        assert_eq!(all.map_or(0, |all| all.num_rows()), ours.len());
    }
}
