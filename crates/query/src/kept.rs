//! Rows of a result that are kept in the order in which they came, to be read again: those that a cursor has passed.

use crate::prepared::ResultColumn;
use crate::stream::{ResultChunk, depends_on_session};
use firn_base::{Representation, Result};
use firn_executor::Options;
use firn_executor::buffer::RowBuffer;
use firn_vector::Chunk;

/// Rows of a result by their numbers, from 0 on.
pub struct KeptRows {
    buffer: RowBuffer,
    /// The columns whose texts only the session knows. Their vectors follow those of the values.
    texts: Vec<usize>,
    columns: usize,
    /// The number of the first row of each chunk.
    starts: Vec<u64>,
    rows: u64,
    bytes: usize,
}

impl KeptRows {
    /// No rows of such columns.
    pub fn new(columns: &[ResultColumn], options: &Options) -> KeptRows {
        let texts: Vec<usize> =
            (0..columns.len()).filter(|place| depends_on_session(columns[*place].ty)).collect();
        let values = columns.iter().map(|column| column.ty.representation().unwrap_or(Representation::Text));
        let representations = values.chain(texts.iter().map(|_| Representation::Text)).collect();
        let buffer = RowBuffer::new(representations, options);
        KeptRows { buffer, texts, columns: columns.len(), starts: Vec::new(), rows: 0, bytes: 0 }
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
        let texts =
            self.texts.iter().map(|place| chunk.text(*place).unwrap_or(&chunk.values.vectors()[*place]));
        let vectors = chunk.values.vectors().iter().chain(texts).cloned().collect();
        let chunk = Chunk::new(rows, vectors);
        let (start, bytes) = (self.rows, chunk.memory());
        self.buffer.push(chunk)?;
        self.starts.push(start);
        self.rows += rows as u64;
        self.bytes += bytes;
        Ok(())
    }

    /// The rows from one up to before another, in chunks.
    pub fn slice(&self, from: u64, to: u64) -> Result<Vec<ResultChunk>> {
        let mut chunks = Vec::new();
        let mut number = self.starts.partition_point(|start| *start <= from).saturating_sub(1);
        while number < self.starts.len() && self.starts[number] < to {
            let start = self.starts[number];
            let chunk = self.result_chunk(self.buffer.get(number)?);
            let first = from.saturating_sub(start) as usize;
            let last = chunk.rows().min((to - start) as usize);
            if first < last {
                chunks.push(chunk.slice(first, last - first));
            }
            number += 1;
        }
        Ok(chunks)
    }

    fn result_chunk(&self, chunk: Chunk) -> ResultChunk {
        let rows = chunk.length();
        let mut vectors = chunk.vectors().to_vec();
        let texts = vectors.split_off(self.columns);
        ResultChunk::with_texts(Chunk::new(rows, vectors), self.texts.iter().copied().zip(texts).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_base::{Type, TypeId};
    use firn_executor::Budget;
    use firn_vector::{Data, Datum, Vector};

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
        for (from, to) in [(0, 11), (2, 4), (3, 3), (10, 11), (4, 9), (0, 1)] {
            let mut found = Vec::new();
            for chunk in kept.slice(from, to).unwrap() {
                found.extend((0..chunk.rows()).map(|row| match chunk.values.vectors()[0].datum(row) {
                    Datum::Int32(value) => value as u64,
                    other => panic!("{other:?}"),
                }));
            }
            assert_eq!(found, (from..to).collect::<Vec<_>>());
        }
    }
}
