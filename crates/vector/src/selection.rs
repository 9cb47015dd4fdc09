//! Selections: which rows of a chunk are meant.
//!
//! A chunk has a selection only if rows are left out. Its positions are numbers of 16 bits in rising
//! order, without repetition; so a chunk has at most 65,536 rows.

use arrow_buffer::ScalarBuffer;

/// The most rows that positions of 16 bits can name.
pub const MOST_ROWS: usize = 1 << 16;

/// Positions of selected rows, rising, in a counted buffer.
#[derive(Clone, Debug, PartialEq)]
pub struct Selection {
    positions: ScalarBuffer<u16>,
}

impl Selection {
    /// A selection of these positions. In debug builds, panics if they do not rise.
    pub fn new(positions: impl Into<ScalarBuffer<u16>>) -> Selection {
        let positions = positions.into();
        debug_assert!(positions.is_sorted_by(|left, right| left < right), "positions rise");
        Selection { positions }
    }

    /// The positions of the rows, of so many, that a condition accepts.
    pub fn filter(length: usize, accepts: impl Fn(usize) -> bool) -> Selection {
        assert!(length <= MOST_ROWS);
        Selection::new((0..length).filter(|row| accepts(*row)).map(|row| row as u16).collect::<Vec<_>>())
    }

    /// The positions.
    pub fn positions(&self) -> &[u16] {
        &self.positions
    }

    /// How many rows it selects.
    pub fn len(&self) -> usize {
        self.positions.len()
    }

    /// Whether it selects no row.
    pub fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    /// The selected rows among `length`.
    pub fn rows(&self, length: usize) -> Rows<'_> {
        debug_assert!(self.positions.last().is_none_or(|last| usize::from(*last) < length));
        Rows { length, positions: Some(&self.positions) }
    }
}

/// The rows over which a kernel runs: all of a chunk, or those at some positions.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    length: usize,
    positions: Option<&'a [u16]>,
}

impl<'a> Rows<'a> {
    /// All rows of a chunk of `length`.
    pub fn all(length: usize) -> Rows<'a> {
        Rows { length, positions: None }
    }

    /// The rows at these positions, which rise, of a chunk of `length`.
    pub fn at(positions: &'a [u16], length: usize) -> Rows<'a> {
        debug_assert!(positions.is_sorted_by(|left, right| left < right));
        debug_assert!(positions.last().is_none_or(|last| usize::from(*last) < length));
        Rows { length, positions: Some(positions) }
    }

    /// How many rows the chunk has, selected or not: the length of vectors that belong to it.
    pub fn length(&self) -> usize {
        self.length
    }

    /// How many rows are selected.
    pub fn count(&self) -> usize {
        self.positions.map_or(self.length, <[u16]>::len)
    }

    /// The positions; `None` if all rows are selected.
    pub fn positions(&self) -> Option<&'a [u16]> {
        self.positions
    }

    /// Calls a closure with the position of each selected row. The loop exists twice, with and without positions.
    #[inline]
    pub fn each(&self, mut call: impl FnMut(usize)) {
        match self.positions {
            None => (0..self.length).for_each(call),
            Some(positions) => positions.iter().for_each(|position| call(usize::from(*position))),
        }
    }

    /// As [`Rows::each`], until the closure fails.
    #[inline]
    pub fn try_each<E>(&self, mut call: impl FnMut(usize) -> Result<(), E>) -> Result<(), E> {
        match self.positions {
            None => (0..self.length).try_for_each(call),
            Some(positions) => positions.iter().try_for_each(|position| call(usize::from(*position))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_visited_in_order_with_and_without_positions() {
        let mut seen = Vec::new();
        Rows::all(3).each(|row| seen.push(row));
        let selection = Selection::filter(6, |row| row % 2 == 1);
        selection.rows(6).each(|row| seen.push(row));
        assert_eq!(seen, [0, 1, 2, 1, 3, 5]);
        assert_eq!((selection.rows(6).length(), selection.rows(6).count()), (6, 3));
        assert_eq!(selection.rows(6).try_each(|row| if row == 3 { Err(row) } else { Ok(()) }), Err(3));
    }
}
