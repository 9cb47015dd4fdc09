//! The analytical queries of TPC-H and CH-benCHmark on hot, frozen and compact rows. The expected results of TPC-H are PostgreSQL 15's
//! over the same rows (`tpch.answers`); those of CH-benCHmark are the results from the hot rows.

use crate::database::Database;
use firn_bench::temperature::{Temperature, cool};
use firn_bench::tpcc::load::LoadProgress;
use firn_bench::{ch, queries, tpcc, tpch};

/// The scale of `tpch.answers`.
const SCALE: f64 = 0.01;

/// The rows of a result, in any order: ORDER BY may leave the order of some open.
fn answer(database: &Database, query: &str) -> Vec<String> {
    let mut rows = database.run(query).rows;
    rows.sort_unstable();
    rows
}

#[test]
fn the_22_answers_of_tpch_are_postgresqls() {
    let database = Database::new();
    tpch::load(&database.engine, SCALE, 2, &LoadProgress::default()).unwrap();
    let expected: Vec<Vec<&str>> = include_str!("tpch.answers")
        .trim_start_matches("-- ")
        .trim_end_matches('\n')
        .split("\n-- ")
        .map(|answer| {
            // A row of one NULL is an empty line.
            let row = |line: &'static str| if line.is_empty() { "null" } else { line };
            let mut rows: Vec<&str> = answer.split('\n').skip(1).map(row).collect();
            rows.sort_unstable();
            rows
        })
        .collect();
    assert_eq!(expected.len(), queries::TPCH.len());
    for temperature in Temperature::ALL {
        cool(&database.engine, temperature);
        for (number, (query, expected)) in queries::TPCH.iter().zip(&expected).enumerate() {
            assert_eq!(answer(&database, query), *expected, "query {} on {temperature} rows", number + 1);
        }
    }
}

#[test]
fn the_22_answers_of_ch_are_the_same_on_all_blocks() {
    let database = Database::new();
    let scale = tpcc::Scale { warehouses: 2, items: 1_000, customers: 100 };
    tpcc::load::load(&database.engine, scale, 7, 2, &LoadProgress::default()).unwrap();
    ch::load(&database.engine, 7).unwrap();
    let hot: Vec<Vec<String>> = queries::CH.iter().map(|query| answer(&database, query)).collect();
    assert!(hot.iter().filter(|rows| !rows.is_empty()).count() > 15, "most queries have rows");
    for temperature in [Temperature::Frozen, Temperature::Compact] {
        cool(&database.engine, temperature);
        for (number, (query, hot)) in queries::CH.iter().zip(&hot).enumerate() {
            assert_eq!(answer(&database, query), *hot, "query {} on {temperature} rows", number + 1);
        }
    }
}
