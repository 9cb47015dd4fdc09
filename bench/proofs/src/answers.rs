//! TPC-H's tables and our results as CSV files with a header: `DIR/schema.sql`,
//! `DIR/data/<table>.csv` and `DIR/answers/q<number>.csv`. `tests/tpch/compare.py` runs the queries in DuckDB
//! over the same data.

use crate::Outcome;
use arrow::array::RecordBatch;
use arrow::csv::Writer;
use firn_bench::tpcc::load::LoadProgress;
use firn_bench::{queries, tpch};
use firn_session::Database;
use std::fs::{File, create_dir_all};
use std::io::BufWriter;
use std::path::{Path, PathBuf};

/// Arguments of `answers`.
#[derive(clap::Args)]
pub struct Options {
    /// Scale factor.
    #[arg(long, default_value_t = 0.1)]
    scale: f64,
    /// Where to write.
    directory: PathBuf,
}

/// Writes tables and results.
pub fn run(options: Options) -> Outcome {
    let data = options.directory.join("data");
    let answers = options.directory.join("answers");
    create_dir_all(&data)?;
    create_dir_all(&answers)?;
    let mut schema = String::new();
    for table in tpch::TABLES {
        schema.push_str(&table.create_table_sql());
        schema.push_str(";\n");
        let batches = tpch::batches(table, options.scale, 1, 1);
        write(&data.join(format!("{}.csv", table.name)), batches)?;
    }
    std::fs::write(options.directory.join("schema.sql"), schema)?;
    let database = Database::memory()?;
    tpch::load(database.engine(), options.scale, 2, &LoadProgress::default())?;
    let mut connection = database.connect();
    for (number, sql) in (1..).zip(queries::TPCH) {
        let batches = connection.query(sql).map_err(|error| format!("query {number}: {error}"))?;
        write(&answers.join(format!("q{number:02}.csv")), batches)?;
    }
    Ok(())
}

fn write(path: &Path, batches: impl IntoIterator<Item = RecordBatch>) -> Outcome {
    let mut writer = Writer::new(BufWriter::new(File::create(path)?));
    for batch in batches {
        writer.write(&batch)?;
    }
    Ok(())
}
