//! The rows of a result as vectors alone: those of the values, and after them the texts that only the session knows. And their images
//! in bytes, by which another server of the same version gets them.

use crate::prepared::ResultColumn;
use crate::stream::{ResultChunk, depends_on_session};
use firn_base::{Representation, Result};
use firn_executor::foreign::check_rows;
use firn_executor::spill::{read_rows, write_rows_as};
use firn_vector::Chunk;

/// How the vectors of a result lie one after another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    representations: Vec<Representation>,
    /// The columns whose texts only the session knows. Their vectors follow those of the values.
    texts: Vec<usize>,
    columns: usize,
}

impl Layout {
    /// That of such columns.
    pub fn of(columns: &[ResultColumn]) -> Layout {
        let texts: Vec<usize> =
            (0..columns.len()).filter(|place| depends_on_session(columns[*place].ty)).collect();
        let values = columns.iter().map(|column| column.ty.representation().unwrap_or(Representation::Text));
        let representations = values.chain(texts.iter().map(|_| Representation::Text)).collect();
        Layout { representations, texts, columns: columns.len() }
    }

    /// The representation of each vector.
    pub fn representations(&self) -> &[Representation] {
        &self.representations
    }

    /// The vectors of a chunk.
    pub fn joined(&self, chunk: &ResultChunk) -> Chunk {
        let texts =
            self.texts.iter().map(|place| chunk.text(*place).unwrap_or(&chunk.values.vectors()[*place]));
        let vectors = chunk.values.vectors().iter().chain(texts).cloned().collect();
        Chunk::new(chunk.rows(), vectors)
    }

    /// The chunk with these vectors.
    pub fn parted(&self, chunk: Chunk) -> ResultChunk {
        let rows = chunk.length();
        let mut vectors = chunk.vectors().to_vec();
        let texts = vectors.split_off(self.columns);
        ResultChunk::with_texts(Chunk::new(rows, vectors), self.texts.iter().copied().zip(texts).collect())
    }

    /// Appends the image of a chunk.
    pub fn write(&self, chunk: &ResultChunk, image: &mut Vec<u8>) {
        let joined = self.joined(chunk).compact();
        write_rows_as(&self.representations, joined.vectors(), joined.length(), image);
    }

    /// The chunk of an image, which [`Layout::write`] of another server has made. 08P01 if it has not.
    pub fn read(&self, image: &[u8]) -> Result<ResultChunk> {
        check_rows(&self.representations, image)?;
        let (vectors, rows) = read_rows(&self.representations, &mut &image[..]);
        Ok(self.parted(Chunk::new(rows, vectors)))
    }
}
