//! Rows in temporary files, split by the hash of a key: what an operator puts off for which there is no memory.
//!
//! Rows with equal keys are in one part, so each part can be worked at by itself. A part that is still too large is split again, by
//! other bits of the hash: its level counts how often.
//!
//! A block of each part is kept in memory until it is full. These 16 blocks of 32 kB are not charged to the budget: they are
//! what makes it possible to use less of it.

use crate::columns::{Collection, Table};
use crate::keys::Keys;
use crate::spill::{SpillArea, SpillFile, read_rows, write_rows};
use firn_base::sync::Arc;
use firn_base::{Representation, Result};
use firn_vector::selection::Rows;
use firn_vector::{Chunk, Vector};

/// How many parts there are.
pub const PARTS: usize = 16;

/// How often rows can be split.
pub const MOST_LEVELS: u32 = 8;

const BLOCK_BYTES: usize = 32 << 10;
const BLOCK_ROWS: usize = 4096;

/// In which part a row with this hash is, when rows are split for the time `level`.
pub fn part_of(hash: u64, level: u32) -> usize {
    (hash >> (4 * level)) as usize % PARTS
}

/// Rows that are being split.
pub struct Partitions {
    level: u32,
    representations: Vec<Representation>,
    /// No keys, of the layout of those that are kept beside the rows, if they are.
    keys: Option<Keys>,
    block_rows: usize,
    file: Arc<SpillFile>,
    parts: Vec<Part>,
}

struct Part {
    rows: Collection,
    keys: Option<Keys>,
    /// How many rows have been written.
    written: u64,
    blocks: Vec<(u64, usize)>,
}

impl Partitions {
    /// No rows of columns with these representations.
    pub fn new(
        area: &Arc<SpillArea>,
        representations: Vec<Representation>,
        level: u32,
    ) -> Result<Partitions> {
        Partitions::with_keys(area, representations, None, level, BLOCK_ROWS)
    }

    /// As [`Partitions::new`], for rows with keys of the layout that `keys` has, and with blocks of at most so many rows.
    pub fn with_keys(
        area: &Arc<SpillArea>,
        representations: Vec<Representation>,
        keys: Option<Keys>,
        level: u32,
        block_rows: usize,
    ) -> Result<Partitions> {
        assert!(level < MOST_LEVELS);
        let part = |_| Part {
            rows: Collection::new(representations.iter().copied()),
            keys: keys.clone(),
            written: 0,
            blocks: Vec::new(),
        };
        let parts = (0..PARTS).map(part).collect();
        let block_rows = block_rows.clamp(1, BLOCK_ROWS);
        Ok(Partitions { level, file: Arc::new(area.create()?), parts, representations, keys, block_rows })
    }

    /// Adds rows of vectors of one length, each with the hash of its key.
    pub fn add(
        &mut self,
        vectors: &[Vector],
        length: usize,
        positions: &[u16],
        hashes: &[u64],
    ) -> Result<()> {
        self.add_with_keys(vectors, length, positions, hashes, None)
    }

    /// As [`Partitions::add`], with the key of each row if keys are kept.
    pub fn add_with_keys(
        &mut self,
        vectors: &[Vector],
        length: usize,
        positions: &[u16],
        hashes: &[u64],
        keys: Option<&Keys>,
    ) -> Result<()> {
        assert_eq!(positions.len(), hashes.len());
        let mut of_parts: [(Vec<u16>, Vec<u32>); PARTS] = Default::default();
        for (number, (position, hash)) in positions.iter().zip(hashes).enumerate() {
            let (positions, numbers) = &mut of_parts[part_of(*hash, self.level)];
            positions.push(*position);
            if keys.is_some() {
                numbers.push(number as u32);
            }
        }
        for (number, (positions, of_keys)) in of_parts.iter().enumerate() {
            if positions.is_empty() {
                continue;
            }
            let part = &mut self.parts[number];
            part.rows.append(vectors, Rows::at(positions, length));
            if let (Some(own), Some(keys)) = (&mut part.keys, keys) {
                own.push_all(keys, of_keys);
            }
            if part.rows.rows() >= self.block_rows || part.rows.memory() >= BLOCK_BYTES {
                self.write(number)?;
            }
        }
        Ok(())
    }

    fn write(&mut self, number: usize) -> Result<()> {
        let empty = Collection::new(self.representations.iter().copied());
        let part = &mut self.parts[number];
        let table: Table = std::mem::replace(&mut part.rows, empty).finish();
        let keys = std::mem::replace(&mut part.keys, self.keys.clone());
        part.written += table.rows() as u64;
        let mut image = Vec::new();
        for from in (0..table.rows()).step_by(self.block_rows) {
            let rows = self.block_rows.min(table.rows() - from);
            image.clear();
            write_rows(&table.slice(0..table.vectors().len(), from, rows), rows, &mut image);
            if let Some(keys) = &keys {
                let numbers: Vec<u32> = (from..from + rows).map(|number| number as u32).collect();
                keys.write(&numbers, &mut image);
            }
            part.blocks.push(self.file.write(&image)?);
        }
        Ok(())
    }

    /// The rows of a part so far. More may be added to it.
    pub fn part(&mut self, number: usize) -> Result<PartRows> {
        if self.parts[number].rows.rows() > 0 {
            self.write(number)?;
        }
        let part = &self.parts[number];
        Ok(PartRows {
            number,
            rows: part.written,
            representations: Arc::from(&self.representations[..]),
            keys: self.keys.clone(),
            blocks: part.blocks.iter().map(|place| (self.file.clone(), *place)).collect(),
        })
    }

    /// The parts that have rows, when all have been added.
    pub fn finish(mut self) -> Result<Vec<PartRows>> {
        for number in 0..PARTS {
            if self.parts[number].rows.rows() > 0 {
                self.write(number)?;
            }
        }
        let (file, keys) = (self.file, self.keys);
        let representations: Arc<[Representation]> = Arc::from(self.representations);
        let parts = self.parts.into_iter().enumerate().filter(|(_, part)| !part.blocks.is_empty());
        let rows = |(number, part): (usize, Part)| PartRows {
            number,
            rows: part.written,
            representations: Arc::clone(&representations),
            keys: keys.clone(),
            blocks: part.blocks.into_iter().map(|place| (file.clone(), place)).collect(),
        };
        Ok(parts.map(rows).collect())
    }
}

/// The rows of one part.
#[derive(Clone)]
pub struct PartRows {
    number: usize,
    rows: u64,
    representations: Arc<[Representation]>,
    keys: Option<Keys>,
    blocks: Vec<(Arc<SpillFile>, (u64, usize))>,
}

impl PartRows {
    /// Which part it is.
    pub fn number(&self) -> usize {
        self.number
    }

    /// How many rows it has.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// How their columns lie.
    pub fn representations(&self) -> &[Representation] {
        &self.representations
    }

    /// How many bytes their images take.
    pub fn bytes(&self) -> usize {
        self.blocks.iter().map(|(_, (_, length))| length).sum()
    }

    /// How many blocks they are in.
    pub fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Takes over the rows of the same part that another worker has put off.
    pub fn append(&mut self, other: PartRows) {
        assert_eq!(self.number, other.number);
        self.rows += other.rows;
        self.blocks.extend(other.blocks);
    }

    /// The rows of a block, and their keys if they are kept.
    pub fn block(&self, number: usize) -> Result<(Chunk, Option<Keys>)> {
        let (file, place) = &self.blocks[number];
        let image = file.read(*place)?;
        let mut rest = &image[..];
        let (vectors, rows) = read_rows(&self.representations, &mut rest);
        let keys = self.keys.clone().map(|keys| keys.read(rows, &mut rest));
        Ok((Chunk::new(rows, vectors), keys))
    }

    /// Its rows, in chunks.
    pub fn chunks(&self) -> impl Iterator<Item = Result<Chunk>> + '_ {
        (0..self.blocks()).map(|number| Ok(self.block(number)?.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::{KeyColumn, KeyLayout};
    use firn_base::disk::SimulatedDisk;
    use firn_base::random::Random;
    use firn_vector::builder::Builder;
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

    /// Keys lie beside their rows, whatever form they have, and blocks have no more rows than asked for.
    #[test]
    fn keys_are_read_with_their_rows() {
        let area = SpillArea::new(SimulatedDisk::new(), "/".into(), 1 << 24);
        let column = |representation| KeyColumn::equal(representation, true);
        let layouts = [
            KeyLayout::new(vec![column(Representation::Int32)]),
            KeyLayout::new(vec![column(Representation::Int32), column(Representation::Text)]),
            KeyLayout::for_equality(vec![column(Representation::Int32), column(Representation::Text)]),
        ];
        for layout in layouts {
            let representations = vec![Representation::Int32, Representation::Text];
            let none = Some(layout.none());
            let mut partitions = Partitions::with_keys(&area, representations, none, 0, 7).unwrap();
            let mut texts = Builder::new(Representation::Text);
            let text = |row: i32| format!("{row}{}", " a long text".repeat(row as usize % 3));
            (0..100).for_each(|row| match row % 10 {
                0 => texts.push_null(),
                _ => texts.push(Datum::Text(&text(row))),
            });
            let numbers = Data::Int32((0..100).collect::<Vec<i32>>().into());
            let vectors = [Vector::flat(Representation::Int32, numbers, None), texts.finish()];
            let of_key = |vectors: &[Vector]| vectors[..layout.len()].to_vec();
            let positions: Vec<u16> = (0..100).filter(|row| row % 4 != 0).collect();
            let keys = layout.keys(&of_key(&vectors), Rows::at(&positions, 100));
            partitions.add_with_keys(&vectors, 100, &positions, &keys.hashes(), Some(&keys)).unwrap();
            let mut rows = 0;
            for part in partitions.finish().unwrap() {
                for number in 0..part.blocks() {
                    let (chunk, keys) = part.block(number).unwrap();
                    let expected = layout.keys(&of_key(chunk.vectors()), chunk.rows());
                    let keys = keys.unwrap();
                    assert!(chunk.length() <= 7 && keys.len() == chunk.length());
                    (0..keys.len()).for_each(|row| assert!(keys.equals(row, &expected, row)));
                    rows += chunk.length();
                }
            }
            assert_eq!(rows, 75);
        }
    }
}
