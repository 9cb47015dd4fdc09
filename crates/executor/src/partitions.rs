//! Rows in temporary files, split by the hash of a key: what an operator puts off for which there is no memory.
//!
//! Rows with equal keys are in one part, so each part can be worked at by itself. A part that is still too large is split again, by
//! other bits of the hash: its level counts how often.
//!
//! A block of each part is kept in memory until it is full. These 16 blocks of 32 kB are not charged to the budget: they are
//! what makes it possible to use less of it.

use crate::columns::{Collection, Table};
use crate::spill::{SpillArea, SpillFile, read_rows, write_rows};
use firn_base::sync::Arc;
use firn_base::{Representation, Result};
use firn_vector::selection::Rows;
use firn_vector::{Chunk, Vector};

/// How many parts there are.
const PARTS: usize = 16;

/// How often rows can be split.
pub const MOST_LEVELS: u32 = 8;

const BLOCK_BYTES: usize = 32 << 10;
const BLOCK_ROWS: usize = 4096;

/// Rows that are being split.
pub struct Partitions {
    level: u32,
    representations: Vec<Representation>,
    file: SpillFile,
    parts: Vec<Part>,
}

struct Part {
    rows: Collection,
    blocks: Vec<(u64, usize)>,
}

impl Partitions {
    /// No rows of columns with these representations.
    pub fn new(
        area: &Arc<SpillArea>,
        representations: Vec<Representation>,
        level: u32,
    ) -> Result<Partitions> {
        assert!(level < MOST_LEVELS);
        let part = |_| Part { rows: Collection::new(representations.iter().copied()), blocks: Vec::new() };
        let parts = (0..PARTS).map(part).collect();
        Ok(Partitions { level, file: area.create()?, parts, representations })
    }

    /// Adds rows of vectors of one length, each with the hash of its key.
    pub fn add(
        &mut self,
        vectors: &[Vector],
        length: usize,
        positions: &[u16],
        hashes: &[u64],
    ) -> Result<()> {
        let mut of_parts: [Vec<u16>; PARTS] = Default::default();
        for (position, hash) in positions.iter().zip(hashes) {
            of_parts[(hash >> (4 * self.level)) as usize % PARTS].push(*position);
        }
        for (number, positions) in of_parts.iter().enumerate().filter(|(_, positions)| !positions.is_empty())
        {
            let part = &mut self.parts[number];
            part.rows.append(vectors, Rows::at(positions, length));
            if part.rows.rows() >= BLOCK_ROWS || part.rows.memory() >= BLOCK_BYTES {
                self.write(number)?;
            }
        }
        Ok(())
    }

    fn write(&mut self, number: usize) -> Result<()> {
        let empty = Collection::new(self.representations.iter().copied());
        let part = &mut self.parts[number];
        let table: Table = std::mem::replace(&mut part.rows, empty).finish();
        let mut image = Vec::new();
        write_rows(table.vectors(), table.rows(), &mut image);
        part.blocks.push(self.file.write(&image)?);
        Ok(())
    }

    /// The parts that have rows, when all have been added.
    pub fn finish(mut self) -> Result<Vec<PartRows>> {
        for number in 0..PARTS {
            if self.parts[number].rows.rows() > 0 {
                self.write(number)?;
            }
        }
        let (file, representations) = (Arc::new(self.file), Arc::from(self.representations));
        let parts = self.parts.into_iter().filter(|part| !part.blocks.is_empty());
        let rows = |part: Part| PartRows {
            file: file.clone(),
            representations: Arc::clone(&representations),
            blocks: part.blocks,
        };
        Ok(parts.map(rows).collect())
    }
}

/// The rows of one part.
pub struct PartRows {
    file: Arc<SpillFile>,
    representations: Arc<[Representation]>,
    blocks: Vec<(u64, usize)>,
}

impl PartRows {
    /// Its rows, in chunks.
    pub fn chunks(&self) -> impl Iterator<Item = Result<Chunk>> + '_ {
        self.blocks.iter().map(|place| {
            let image = self.file.read(*place)?;
            let (vectors, rows) = read_rows(&self.representations, &mut &image[..]);
            Ok(Chunk::new(rows, vectors))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_base::disk::SimulatedDisk;
    use firn_base::random::Random;
    use firn_vector::{Data, Datum};
    use std::collections::HashMap;

    /// Each row comes back once, and rows with one hash in one part.
    #[test]
    fn rows_with_one_hash_are_in_one_part() {
        let area = SpillArea::new(SimulatedDisk::new(), "/".into(), 1 << 24);
        for level in [0, 3, MOST_LEVELS - 1] {
            let mut partitions = Partitions::new(&area, vec![Representation::Int64], level).unwrap();
            let mut random = Random::seeded(u64::from(level));
            let hash = |value: i64| (value as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            for _ in 0..100 {
                let values: Vec<i64> = (0..300).map(|_| random.uniform(0, 200)).collect();
                let positions: Vec<u16> = (0..300).step_by(3).collect();
                let hashes: Vec<u64> = positions.iter().map(|row| hash(values[usize::from(*row)])).collect();
                let vector = Vector::flat(Representation::Int64, Data::Int64(values.into()), None);
                partitions.add(&[vector], 300, &positions, &hashes).unwrap();
            }
            let (mut count, mut parts) = (0, HashMap::new());
            for (number, part) in partitions.finish().unwrap().iter().enumerate() {
                for chunk in part.chunks() {
                    let chunk = chunk.unwrap();
                    count += chunk.length();
                    for row in 0..chunk.length() {
                        let Datum::Int64(value) = chunk.vectors()[0].datum(row) else {
                            panic!("it is an integer")
                        };
                        assert_eq!(*parts.entry(value).or_insert(number), number, "level {level}");
                    }
                }
            }
            assert_eq!(count, 10_000);
        }
        assert_eq!(area.used(), 0);
    }
}
