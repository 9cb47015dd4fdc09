//! Maintenance beside the transactions of a trial, which must not affect them.

use super::history::Recorder;
use super::sql::TABLES;
use firn_base::sync::Arc;
use firn_base::{Result, SqlState, clock};
use firn_bench::sql_client::SqlClient;
use firn_session::{Config, Database};
use firn_storage::{BlockState, BlockUsage};
use firn_txn::Engine;
use std::time::Duration;

/// How long transactions run between two pauses in which blocks become compact, and the longest time of a pause. The first
/// pause lasts until all blocks have become compact, however busy the machine is.
const BETWEEN_PAUSES: Duration = Duration::from_millis(20);
const FIRST_PAUSE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(60);

/// The smallest blocks, which become compact as soon as they have no writers.
pub fn compacting() -> Config {
    Config {
        block_bytes: 1,
        freeze_after: Some(Duration::ZERO),
        compact_after: Some(Duration::ZERO),
        ..Config::default()
    }
}

/// Makes rows compact while transactions run; returns how often all were compact at once. Permanent writers prevent that, so all of
/// them pause from time to time.
pub fn compact(engine: &Arc<Engine>, recorder: &Recorder) -> u64 {
    let (mut times, mut of_readers) = (0, false);
    while recorder.has_transactions() {
        clock::sleep(BETWEEN_PAUSES);
        of_readers = !of_readers;
        // Rows that paused readers may still see do not become compact.
        let until = clock::now() + if times == 0 && !of_readers { FIRST_PAUSE } else { PAUSE };
        recorder.pause(of_readers, || {
            while !has_become_compact(engine) && clock::now() < until {
                engine.collect();
                engine.freeze(Duration::ZERO);
                engine.compact(Duration::ZERO);
                clock::sleep(Duration::from_millis(1));
            }
            times += u64::from(has_become_compact(engine));
        });
    }
    times
}

/// Whether all rows are in compact blocks.
fn has_become_compact(engine: &Engine) -> bool {
    let is_compact = |block: BlockUsage| block.rows == 0 || block.state == BlockState::Compact;
    engine.tables().iter().all(|table| table.block_usage().all(is_compact))
}

/// Changes tables and indexes that transactions use, as often as possible.
pub fn change_tables(database: &Database, recorder: &Recorder) -> Result<()> {
    let mut client = database.connect();
    let mut changed = 0;
    while recorder.has_transactions() {
        for table in TABLES {
            for sql in [
                format!("CREATE INDEX more ON {table} (wide, pos)"),
                format!("ALTER TABLE {table} ADD COLUMN more integer DEFAULT 1"),
                format!("ALTER TABLE {table} ALTER COLUMN wide TYPE bigint USING wide + 0"),
                "DROP INDEX IF EXISTS more".to_owned(),
                format!("ALTER TABLE {table} DROP COLUMN IF EXISTS more"),
            ] {
                match client.run_text(&sql) {
                    Ok(_) => changed += 1,
                    Err(error) if error.is_retryable() => {}
                    Err(error) if error.state() == SqlState::LOCK_NOT_AVAILABLE => {}
                    Err(error) => return Err(error),
                }
                clock::sleep(Duration::from_millis(50));
            }
        }
    }
    println!("{changed} changes of tables");
    Ok(())
}
