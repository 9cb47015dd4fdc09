//! Chunks: vectors of one length, side by side, and which of their rows count.

use crate::selection::{MOST_ROWS, Rows, Selection};
use crate::vector::Vector;

/// Rows as vectors. A step of a pipeline passes one on at a time.
#[derive(Clone, Debug)]
pub struct Chunk {
    length: usize,
    vectors: Vec<Vector>,
    selection: Option<Selection>,
}

impl Chunk {
    /// A chunk of so many rows, all selected. It may have no vectors.
    pub fn new(length: usize, vectors: Vec<Vector>) -> Chunk {
        assert!(length <= MOST_ROWS);
        assert!(vectors.iter().all(|vector| vector.len() == length));
        Chunk { length, vectors, selection: None }
    }

    /// The same rows with others selected: none beyond the chunk's length.
    pub fn with_selection(self, selection: Option<Selection>) -> Chunk {
        if let Some(last) = selection.as_ref().and_then(|selection| selection.positions().last()) {
            assert!(usize::from(*last) < self.length);
        }
        Chunk { selection, ..self }
    }

    /// How long its vectors are.
    pub fn length(&self) -> usize {
        self.length
    }

    /// How many rows are selected.
    pub fn count(&self) -> usize {
        self.rows().count()
    }

    /// The selected rows.
    pub fn rows(&self) -> Rows<'_> {
        match &self.selection {
            Some(selection) => selection.rows(self.length),
            None => Rows::all(self.length),
        }
    }

    /// The selection, if rows are left out.
    pub fn selection(&self) -> Option<&Selection> {
        self.selection.as_ref()
    }

    /// The columns.
    pub fn vectors(&self) -> &[Vector] {
        &self.vectors
    }

    /// Adds a column.
    pub fn push(&mut self, vector: Vector) {
        assert_eq!(vector.len(), self.length);
        self.vectors.push(vector);
    }

    /// The columns, given away.
    pub fn into_vectors(self) -> Vec<Vector> {
        self.vectors
    }

    /// The selected rows alone, close together.
    pub fn compact(self) -> Chunk {
        let Some(selection) = &self.selection else { return self };
        let positions = selection.positions().iter().map(|position| usize::from(*position));
        let vectors = self.vectors.iter().map(|vector| vector.take(positions.clone())).collect();
        Chunk { length: selection.len(), vectors, selection: None }
    }

    /// About how many bytes of memory it takes.
    pub fn memory(&self) -> usize {
        self.vectors.iter().map(Vector::memory).sum::<usize>()
            + self.selection.as_ref().map_or(0, |selection| selection.len() * 2)
    }
}
