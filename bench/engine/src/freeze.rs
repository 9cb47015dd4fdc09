//! How fast blocks become canonical Arrow: a table of 8-byte integers and strings of 12 to 24 bytes, of which
//! some rows have been deleted at random, frozen by one thread. For comparison two other ways to the same
//! result: copying a snapshot, and a transaction per block that writes every row again. See Li, "Supporting
//! Hybrid Workloads for In-Memory Database Management Systems via a Universal Columnar Storage Format", CMU
//! 2019, section 7.2.1 and figure 7.3.

use crate::schema::tables;
use arrow_array::{ArrayRef, Int64Array, StringViewArray};
use firn_base::clock::{now, sleep};
use firn_base::random::Random;
use firn_base::sync::Arc;
use firn_base::{ColumnId, Result, RowId, SqlState};
use firn_storage::{BlockState, BlockUsage, Table};
use firn_txn::{Config, Engine, Progress, Str, TableAccess, pin};
use std::time::Duration;

tables! {
    /// What becomes cold.
    measurements {
        columns {
            number: BigInt;
            name: Text;
        }
        primary key ();
    }
}

/// Bytes that a block's rows take.
const BLOCK_BYTES: usize = 1 << 20;

/// What one thread does with some blocks, in bytes of their rows a second, the empty ones counted.
#[derive(Clone, Copy, Debug)]
pub struct Speeds {
    /// Hundredths of the slots that were empty.
    pub empty: u8,
    /// Blocks at the beginning, and those that had rows in the end.
    pub blocks: [usize; 2],
    /// Freezing as the engine does it. Strings lie as they were inserted.
    pub freeze: f64,
    /// The same with strings that have all been changed since, so that they are gathered.
    pub gather: f64,
    /// Copying a snapshot.
    pub snapshot: f64,
    /// Writing every row of a block anew by a transaction, and freezing what came of it.
    pub in_place: f64,
}

/// Measures it with so many blocks.
pub fn run(blocks: usize, empty: u8) -> Result<Speeds> {
    let as_inserted = Bench::load(blocks, empty)?;
    let speed = |time: Duration| (blocks * BLOCK_BYTES) as f64 / time.as_secs_f64();
    let snapshot = speed(as_inserted.copy());
    let freeze = speed(as_inserted.freeze());
    let left = as_inserted.blocks_with_rows();

    let changed = Bench::load(blocks, empty)?;
    changed.rewrite()?;
    changed.wait_for_collector();
    let gather = speed(changed.freeze());
    drop(changed);

    let in_place = Bench::load(blocks, empty)?;
    let start = now();
    in_place.rewrite()?;
    let rewritten = start.elapsed();
    in_place.wait_for_collector();
    let in_place = speed(rewritten + in_place.freeze());
    Ok(Speeds { empty, blocks: [blocks, left], freeze, gather, snapshot, in_place })
}

struct Bench {
    engine: Arc<Engine>,
    table: TableAccess,
}

impl Bench {
    /// Full blocks, of whose rows some are gone, and whose other rows have no versions.
    fn load(blocks: usize, empty: u8) -> Result<Bench> {
        let engine = Engine::open(Config { freeze_after: None, ..Config::default() })?;
        measurements::SCHEMA.create(&engine)?;
        let table = TableAccess::open(&engine, measurements::SCHEMA.name)?;
        let bench = Bench { engine, table };
        let mut random = Random::seeded(1);
        const BATCH: i64 = 8192;
        let mut first = 0;
        // The last block is begun and hardly filled.
        while bench.table.table().block_usage().count() <= blocks {
            let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(first..first + BATCH));
            let name = |_| {
                let length = random.uniform(12, 24) as usize;
                format!("{:024x}", random.next_u64())[..length].to_owned()
            };
            let names: ArrayRef = Arc::new(StringViewArray::from_iter_values((0..BATCH).map(name)));
            let mut tx = bench.engine.begin();
            tx.insert_batch(bench.table.table(), &[numbers, names], &pin())?;
            let _in_memory = tx.commit()?;
            first += BATCH;
        }
        bench.wait_for_collector();
        for rows in bench.rows().chunks(BATCH as usize) {
            let mut tx = bench.engine.begin();
            for row in rows {
                if random.uniform(0, 99) < i64::from(empty) {
                    tx.delete(bench.table.table(), *row, &pin())?;
                }
            }
            let _in_memory = tx.commit()?;
        }
        bench.wait_for_collector();
        Ok(bench)
    }

    fn table(&self) -> &Arc<Table> {
        self.table.table()
    }

    /// All rows, block by block.
    fn rows(&self) -> Vec<RowId> {
        let reader = self.engine.begin_read_only();
        let scan = self.table().scan(reader.snapshot(), &[], true);
        let mut rows = Vec::new();
        while let Some(batch) = scan.next_batch(&pin()) {
            let ids = batch.row_ids.expect("asked for");
            rows.extend(ids.values().iter().map(|id| RowId::from_bits(*id)));
        }
        rows
    }

    /// Waits until no row has versions, and scans know it.
    fn wait_for_collector(&self) {
        while self.engine.garbage_backlog() > 0 {
            sleep(Duration::from_millis(5));
        }
        for _ in 0..3 {
            self.copy();
            sleep(Duration::from_millis(20));
        }
    }

    /// How long it takes to copy all rows into Arrow arrays.
    fn copy(&self) -> Duration {
        let start = now();
        let reader = self.engine.begin_read_only();
        let scan = self.table().scan(reader.snapshot(), &[ColumnId(0), ColumnId(1)], false);
        let mut kept = Vec::new();
        while let Some(batch) = scan.next_batch(&pin()) {
            kept.push(batch);
        }
        start.elapsed()
    }

    /// How long it takes until all full blocks are frozen and all others empty, but for the last ones.
    fn freeze(&self) -> Duration {
        let hot = || {
            let is_hot = |block: &BlockUsage| block.state != BlockState::Frozen;
            self.table().block_usage().filter(is_hot).count()
        };
        let mut time = Duration::ZERO;
        let (mut least, mut rounds_since) = (hot(), 0);
        // A round moves rows, and the next one freezes where they came to.
        while rounds_since < 3 {
            loop {
                let start = now();
                let progress = self.engine.freeze(Duration::ZERO);
                // Blocks that have begun to cool wait until whoever still had a guard lets go.
                if progress == Progress::Waiting {
                    pin().flush();
                    continue;
                }
                time += start.elapsed();
                if progress == Progress::Done {
                    break;
                }
            }
            self.wait_for_collector();
            rounds_since += 1;
            if hot() < least {
                (least, rounds_since) = (hot(), 0);
            }
        }
        time
    }

    fn blocks_with_rows(&self) -> usize {
        self.table().block_usage().filter(|block| block.rows > 0).count()
    }

    /// Writes every string anew, by a transaction per block.
    fn rewrite(&self) -> Result<()> {
        let name = self.table.columns::<(Str,)>(&["name"])?;
        let rows = self.rows();
        for rows in rows.chunk_by(|one, other| one.block() == other.block()) {
            let mut tx = self.engine.begin();
            for row in rows {
                let guard = pin();
                let read = self.table().read_as(tx.snapshot(), *row, name.projection(), &guard);
                let (text,) = read.ok_or_else(|| {
                    firn_base::Error::new(SqlState::INTERNAL_ERROR, "a row is gone that nobody deletes")
                })?;
                tx.update_as(&name, *row, &(text,), &guard)?;
            }
            let _in_memory = tx.commit()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_ends_with_frozen_blocks() {
        for empty in [0, 50] {
            let speeds = run(3, empty).unwrap();
            assert!(
                [speeds.freeze, speeds.gather, speeds.snapshot, speeds.in_place]
                    .iter()
                    .all(|speed| *speed > 0.0)
            );
            assert!(
                if empty == 0 { speeds.blocks[1] == 4 } else { (2..4).contains(&speeds.blocks[1]) },
                "{speeds:?}"
            );
        }
    }
}
