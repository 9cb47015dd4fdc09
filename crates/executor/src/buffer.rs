//! Rows that are kept in the order in which they came, to be read any number of times: of a source that is drained before a table
//! changes, of RETURNING, of cursors and portals, and of sub-plans that are read more than once.
//!
//! Chunks stay in memory while the budget has room for them. Then all of them go to a temporary file, and later ones follow.

use crate::budget::Account;
use crate::options::Options;
use crate::spill::{SpillArea, SpillFile, read_rows, write_rows_as};
use firn_base::sync::Arc;
use firn_base::{Representation, Result};
use firn_vector::Chunk;

/// Rows in chunks.
pub struct RowBuffer {
    representations: Vec<Representation>,
    parts: Vec<Part>,
    rows: u64,
    account: Account,
    area: Option<Arc<SpillArea>>,
    file: Option<SpillFile>,
}

enum Part {
    Memory(Chunk),
    /// Where it lies in the file.
    File((u64, usize)),
    /// It has been taken out.
    Taken,
}

/// What a chunk is charged. Those of few rows cost more than their values.
fn charge(chunk: &Chunk) -> usize {
    chunk.memory() + size_of_val(chunk.vectors()) + size_of::<Part>()
}

impl RowBuffer {
    /// No rows of columns with these representations.
    pub fn new(representations: Vec<Representation>, options: &Options) -> RowBuffer {
        RowBuffer {
            representations,
            parts: Vec::new(),
            rows: 0,
            account: Account::new(&options.budget),
            area: options.spill.clone(),
            file: None,
        }
    }

    /// As [`RowBuffer::new`], but all rows go to a temporary file if there may be one: the memory is left to what makes them.
    pub fn in_file(representations: Vec<Representation>, options: &Options) -> Result<RowBuffer> {
        let mut buffer = RowBuffer::new(representations, options);
        buffer.file = options.spill.as_ref().map(SpillArea::create).transpose()?;
        Ok(buffer)
    }

    /// How many chunks there are.
    pub fn len(&self) -> usize {
        self.parts.len()
    }

    /// Whether there are no chunks.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// How many rows there are.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Appends the selected rows of a chunk.
    pub fn push(&mut self, chunk: Chunk) -> Result<()> {
        let chunk = chunk.compact();
        if chunk.length() == 0 {
            return Ok(());
        }
        self.rows += chunk.length() as u64;
        if self.file.is_none() {
            match (self.account.add(charge(&chunk)), &self.area) {
                (Ok(()), _) => {
                    self.parts.push(Part::Memory(chunk));
                    return Ok(());
                }
                (Err(error), None) => return Err(error),
                (Err(_), Some(area)) => self.file = Some(area.create()?),
            }
        }
        let file = self.file.as_ref().expect("it has been made");
        let mut image = Vec::new();
        let mut write = |chunk: &Chunk| {
            image.clear();
            write_rows_as(&self.representations, chunk.vectors(), chunk.length(), &mut image);
            file.write(&image).map(Part::File)
        };
        for part in &mut self.parts {
            if let Part::Memory(chunk) = part {
                *part = write(chunk)?;
            }
        }
        self.parts.push(write(&chunk)?);
        self.account.set(0)
    }

    /// As [`RowBuffer::get`], for the last time.
    pub fn take(&mut self, number: usize) -> Result<Chunk> {
        let chunk = self.get(number)?;
        if let Part::Memory(chunk) = std::mem::replace(&mut self.parts[number], Part::Taken) {
            self.account.give_back(charge(&chunk));
        }
        Ok(chunk)
    }

    /// A chunk by its number. It has not been taken out.
    pub fn get(&self, number: usize) -> Result<Chunk> {
        match &self.parts[number] {
            Part::Taken => panic!("chunk {number} has been taken out"),
            Part::Memory(chunk) => Ok(chunk.clone()),
            Part::File(place) => {
                let image = self.file.as_ref().expect("it has been written").read(*place)?;
                let (vectors, rows) = read_rows(&self.representations, &mut &image[..]);
                Ok(Chunk::new(rows, vectors))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Budget;
    use firn_base::disk::SimulatedDisk;
    use firn_vector::{Data, Datum, Selection, Vector};

    #[test]
    fn numbers_of_one_scale_are_read_from_a_file_as_numbers_of_any() {
        let area = SpillArea::new(SimulatedDisk::new(), "/".into(), 1 << 20);
        let options = Options { spill: Some(area), ..Options::new(Budget::new(1 << 20)) };
        let mut buffer = RowBuffer::in_file(vec![Representation::Numeric; 2], &options).unwrap();
        let scaled = Representation::Decimal { precision: 12, scale: 2 };
        let vectors = [None, Some(vec![true, false, true].into())]
            .map(|validity| Vector::flat(scaled, Data::Int64(vec![150, -25, 0].into()), validity));
        buffer.push(Chunk::new(3, vectors.to_vec())).unwrap();
        let read = buffer.get(0).unwrap();
        for (before, after) in vectors.iter().zip(read.vectors()) {
            assert_eq!(after.representation(), Representation::Numeric);
            let texts = |vector: &Vector| [0, 1, 2].map(|row| format!("{:?}", vector.datum(row)));
            assert_eq!(texts(after), texts(before));
        }
    }

    /// Reads back what was pushed, with and without room for it.
    #[test]
    fn rows_are_read_as_they_came_whether_memory_suffices_or_not() {
        for (limit, spills) in [(1 << 20, false), (5_000, true)] {
            let area = SpillArea::new(SimulatedDisk::new(), "/".into(), 1 << 20);
            let budget = Budget::new(limit);
            let options = Options { spill: Some(area.clone()), ..Options::new(budget.clone()) };
            let mut buffer = RowBuffer::new(vec![Representation::Int32], &options);
            for number in 0..40 {
                let values: Vec<i32> = (0..100).map(|row| number * 100 + row).collect();
                let vector = Vector::flat(Representation::Int32, Data::Int32(values.into()), None);
                let odd = Selection::filter(100, |row| row % 2 == 1);
                buffer.push(Chunk::new(100, vec![vector]).with_selection(Some(odd))).unwrap();
            }
            assert_eq!((buffer.len(), buffer.rows()), (40, 2000));
            for number in 0..40 {
                let chunk = buffer.get(number).unwrap();
                assert_eq!(chunk.length(), 50);
                let expected = number as i32 * 100 + 99;
                assert!(matches!(chunk.vectors()[0].datum(49), Datum::Int32(value) if value == expected));
            }
            assert_eq!(area.written() > 0, spills);
            assert!(budget.used() <= limit && (budget.used() == 0) == spills);
            drop(buffer);
            assert_eq!((budget.used(), area.used()), (0, 0));
        }
    }

    /// Half of the chunks are taken out before there is no more room, the others afterwards.
    #[test]
    fn what_is_taken_out_takes_no_memory() {
        let area = SpillArea::new(SimulatedDisk::new(), "/".into(), 1 << 20);
        let budget = Budget::new(5_000);
        let options = Options { spill: Some(area.clone()), ..Options::new(budget.clone()) };
        let mut buffer = RowBuffer::new(vec![Representation::Int32], &options);
        let chunk = |number: i32| {
            let data = Data::Int32((0..100).map(|row| number * 100 + row).collect());
            Chunk::new(100, vec![Vector::flat(Representation::Int32, data, None)])
        };
        let first = |chunk: Chunk| match chunk.vectors()[0].datum(0) {
            Datum::Int32(value) => value,
            other => panic!("{other:?}"),
        };
        for number in 0..100 {
            buffer.push(chunk(number)).unwrap();
            assert_eq!(first(buffer.take(number as usize).unwrap()), number * 100);
        }
        assert_eq!((budget.used(), area.written()), (0, 0));
        (100..120).for_each(|number| buffer.push(chunk(number)).unwrap());
        assert!(area.written() > 0 && budget.used() == 0);
        for number in 100..120 {
            assert_eq!(first(buffer.take(number).unwrap()), number as i32 * 100);
        }
    }
}
