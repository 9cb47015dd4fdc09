//! TPC-H's queries on FirnDB and on DataFusion over batches in memory of the same rows, alternating
//! query by query. The difference is what our storage, snapshots and SQL cost, or save.

use crate::Outcome;
use datafusion::datasource::MemTable;
use datafusion::prelude::{SessionConfig, SessionContext};
use firn_bench::tpcc::load::LoadProgress;
use firn_bench::{geometric_mean, median, queries, short_duration, tpch};
use firn_session::Database;
use std::sync::Arc;
use std::time::Instant;

/// Arguments of `tpch`.
#[derive(clap::Args)]
pub struct Options {
    /// Scale factor.
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Runs of each query on each engine; the median is reported.
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Threads of DataFusion. Ours takes the cores that the process may use.
    #[arg(long, default_value_t = 2)]
    threads: usize,
}

/// Compares.
pub fn run(options: Options) -> Outcome {
    let database = Database::memory()?;
    tpch::load(database.engine(), options.scale, options.threads, &LoadProgress::default())?;
    let mut connection = database.connect();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(options.threads).enable_all().build()?;
    let context = datafusion_tables(&options)?;

    println!("{:>5}{:>12}{:>12}{:>8}{:>10}", "query", "FirnDB", "DataFusion", "ratio", "rows");
    let mut ratios = Vec::new();
    for (number, sql) in (1..).zip(queries::TPCH) {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        let mut rows = 0;
        // The first run of each warms up and does not count.
        for run in 0..=options.runs {
            let start = Instant::now();
            let batches = connection.query(sql).map_err(|error| format!("query {number}: {error}"))?;
            let our_time = start.elapsed();
            let start = Instant::now();
            let others = runtime.block_on(async { context.sql(sql).await?.collect().await })?;
            let their_time = start.elapsed();
            if run > 0 {
                ours.push(our_time);
                theirs.push(their_time);
            }
            rows = batches.iter().map(|batch| batch.num_rows()).sum::<usize>();
            let other_rows = others.iter().map(|batch| batch.num_rows()).sum::<usize>();
            assert_eq!(rows, other_rows, "query {number}: both engines answer alike");
        }
        let (ours, theirs) = (median(&mut ours), median(&mut theirs));
        let ratio = ours.as_secs_f64() / theirs.as_secs_f64();
        ratios.push(ratio);
        println!(
            "{number:>5}{:>12}{:>12}{ratio:>8.2}{rows:>10}",
            short_duration(ours),
            short_duration(theirs)
        );
    }
    println!("geometric mean of the ratios: {:.2}", geometric_mean(&ratios));
    Ok(())
}

/// DataFusion's tables: one partition a thread, in the batches of the generator.
fn datafusion_tables(options: &Options) -> Result<SessionContext, datafusion::error::DataFusionError> {
    let config = SessionConfig::new().with_target_partitions(options.threads);
    let context = SessionContext::new_with_config(config);
    for table in tpch::TABLES {
        let mut schema = None;
        let mut partitions = Vec::new();
        let parts = if table.columns.len() > 4 { options.threads as i32 } else { 1 };
        for part in 1..=parts {
            let batches: Vec<_> = tpch::batches(table, options.scale, part, parts).collect();
            schema = schema.or_else(|| batches.first().map(|batch| batch.schema()));
            partitions.push(batches);
        }
        let schema = schema.expect("no table is empty");
        context.register_table(table.name, Arc::new(MemTable::try_new(schema, partitions)?))?;
    }
    Ok(context)
}
