//! Rows of a result that are kept in the order in which they came: those that a cursor has passed, to be read again, and those of a
//! portal that were read ahead. They are charged, and lie in a temporary file once there is no memory for them.

use crate::layout::Layout;
use crate::prepared::ResultColumn;
use crate::stream::ResultChunk;
use firn_base::{Representation, Result};
use firn_executor::Options;
use firn_executor::buffer::RowBuffer;
use firn_vector::strings::StringBuilder;
use firn_vector::{Chunk, Data, Datum, Vector};

/// Rows of a result by their numbers, from 0 on.
pub struct KeptRows {
    buffer: RowBuffer,
    layout: Layout,
    /// The number of the first row of each chunk.
    starts: Vec<u64>,
    rows: u64,
    bytes: usize,
    /// How many chunks have been taken out, from the first on.
    taken: usize,
}

/// Pieces of bytes in the order in which they came, to be taken out: the data of a COPY that was read ahead.
pub struct KeptBytes {
    buffer: RowBuffer,
    taken: usize,
}

impl KeptBytes {
    pub(crate) fn new(options: &Options) -> KeptBytes {
        KeptBytes { buffer: RowBuffer::new(vec![Representation::Bytes], options), taken: 0 }
    }

    /// Appends a piece. 53200 if there is no memory for it.
    pub fn push(&mut self, piece: Vec<u8>) -> Result<()> {
        let (mut strings, mut piece) = (StringBuilder::new(0), piece);
        strings.push(&mut piece, 0);
        let data = Data::Strings(strings.finish(piece));
        self.buffer.push(Chunk::new(1, vec![Vector::flat(Representation::Bytes, data, None)]))
    }

    /// Takes out the first piece that is left.
    pub fn take(&mut self) -> Result<Option<Vec<u8>>> {
        if self.taken == self.buffer.len() {
            return Ok(None);
        }
        let chunk = self.buffer.take(self.taken)?;
        self.taken += 1;
        match chunk.vectors()[0].datum(0) {
            Datum::Bytes(bytes) => Ok(Some(bytes.to_vec())),
            other => panic!("{other:?} is no piece of bytes"),
        }
    }
}

impl KeptRows {
    /// No rows of such columns.
    pub fn new(columns: &[ResultColumn], options: &Options) -> KeptRows {
        let layout = Layout::of(columns);
        let buffer = RowBuffer::new(layout.representations().to_vec(), options);
        KeptRows { buffer, layout, starts: Vec::new(), rows: 0, bytes: 0, taken: 0 }
    }

    /// How many rows there are.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// How many bytes of memory they take, or would take if they were not in a file.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Appends the rows of a chunk. 53200 if there is no memory for them; then it is as it was.
    pub fn push(&mut self, chunk: ResultChunk) -> Result<()> {
        let rows = chunk.rows();
        if rows == 0 {
            return Ok(());
        }
        let chunk = self.layout.joined(&chunk);
        let (start, bytes) = (self.rows, chunk.memory());
        self.buffer.push(chunk)?;
        self.starts.push(start);
        self.rows += rows as u64;
        self.bytes += bytes;
        Ok(())
    }

    /// Of the rows from one up to before another the first ones: those that lie in one chunk. `None` if there are none.
    pub fn first_of(&self, from: u64, to: u64) -> Result<Option<ResultChunk>> {
        if from >= to.min(self.rows) {
            return Ok(None);
        }
        let number = self.starts.partition_point(|start| *start <= from) - 1;
        self.part(number, from, to).map(Some)
    }

    /// Of the rows from one up to before another the last ones: those that lie in one chunk. `None` if there are none.
    pub fn last_of(&self, from: u64, to: u64) -> Result<Option<ResultChunk>> {
        let to = to.min(self.rows);
        if from >= to {
            return Ok(None);
        }
        let number = self.starts.partition_point(|start| *start < to) - 1;
        self.part(number, from, to).map(Some)
    }

    /// The rows of a chunk that lie between two.
    fn part(&self, number: usize, from: u64, to: u64) -> Result<ResultChunk> {
        let start = self.starts[number];
        let chunk = self.layout.parted(self.buffer.get(number)?);
        let first = from.saturating_sub(start) as usize;
        let last = chunk.rows().min((to - start) as usize);
        Ok(chunk.slice(first, last - first))
    }

    /// Takes out the first chunk that is left.
    pub fn take(&mut self) -> Result<Option<ResultChunk>> {
        if self.taken == self.buffer.len() {
            return Ok(None);
        }
        let chunk = self.buffer.take(self.taken)?;
        self.taken += 1;
        Ok(Some(self.layout.parted(chunk)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_base::{Type, TypeId};
    use firn_executor::Budget;

    #[test]
    fn pieces_of_bytes_are_taken_out_as_they_came() {
        let budget = Budget::new(1 << 20);
        let mut kept = KeptBytes::new(&Options::new(budget.clone()));
        let pieces = [b"short".to_vec(), Vec::new(), vec![7; 100_000]];
        for piece in &pieces {
            kept.push(piece.clone()).unwrap();
        }
        assert!(budget.used() > 100_000);
        for piece in &pieces {
            assert_eq!(kept.take().unwrap().as_ref(), Some(piece));
        }
        assert_eq!((kept.take().unwrap(), budget.used()), (None, 0));
    }

    #[test]
    fn rows_are_found_by_their_numbers_across_chunks() {
        let column = ResultColumn { name: "n".to_owned(), ty: Type::new(TypeId::INT4), origin: None };
        let mut kept = KeptRows::new(&[column], &Options::new(Budget::new(1 << 20)));
        for (from, to) in [(0, 3), (3, 3), (3, 10), (10, 11)] {
            let values: Vec<i32> = (from..to).collect();
            let vector = Vector::flat(Representation::Int32, Data::Int32(values.into()), None);
            kept.push(ResultChunk::from(Chunk::new((to - from) as usize, vec![vector]))).unwrap();
        }
        assert_eq!(kept.rows(), 11);
        let values = |chunk: ResultChunk| -> Vec<u64> {
            let value = |row| match chunk.values.vectors()[0].datum(row) {
                Datum::Int32(value) => value as u64,
                other => panic!("{other:?}"),
            };
            (0..chunk.rows()).map(value).collect()
        };
        for (from, to) in [(0, 11), (2, 4), (3, 3), (10, 11), (4, 9), (0, 1)] {
            let expected: Vec<u64> = (from..to).collect();
            let mut found = Vec::new();
            while let Some(chunk) = kept.first_of(from + found.len() as u64, to).unwrap() {
                found.extend(values(chunk));
            }
            assert_eq!(found, expected);
            found.clear();
            while let Some(chunk) = kept.last_of(from, to - found.len() as u64).unwrap() {
                found.extend(values(chunk.reversed()));
            }
            found.reverse();
            assert_eq!(found, expected);
        }
        let mut taken = Vec::new();
        while let Some(chunk) = kept.take().unwrap() {
            taken.extend(values(chunk));
        }
        assert_eq!(taken, (0..11).collect::<Vec<_>>());
    }
}
