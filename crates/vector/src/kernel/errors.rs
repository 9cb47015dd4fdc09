//! Errors that are kept beside the values of a vector, for rows that may never be asked for.
//!
//! A function may be evaluated once for each value of a dictionary. It must not raise an error for a value that no selected
//! row has.

use crate::selection::Rows;
use firn_base::{Error, Result};

/// Errors by row, in the order of the rows. The vector has NULL in these.
#[derive(Debug, Default)]
pub struct Errors(Vec<(u32, Error)>);

impl Errors {
    /// No errors.
    pub fn new() -> Errors {
        Errors::default()
    }

    /// Keeps an error of a row behind all that have one.
    pub fn keep(&mut self, row: usize, error: Error) {
        debug_assert!(self.0.last().is_none_or(|(last, _)| (*last as usize) < row));
        self.0.push((row as u32, error));
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The error of a row.
    pub fn get(&self, row: usize) -> Option<&Error> {
        let place = self.0.binary_search_by_key(&row, |(row, _)| *row as usize).ok()?;
        Some(&self.0[place].1)
    }

    /// Fails if one of these rows has an error: with that of the first such row, if `place` says where in the vector a row's value is.
    pub fn raise(&self, rows: Rows<'_>, place: impl Fn(usize) -> usize) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        rows.try_each(|row| self.get(place(row)).map_or(Ok(()), |error| Err(error.clone())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_base::SqlState;

    #[test]
    fn an_error_is_raised_only_for_a_row_that_is_selected() {
        let mut errors = Errors::new();
        errors.keep(1, Error::new(SqlState::DIVISION_BY_ZERO, "division by zero"));
        let codes = [0, 0, 1, 2];
        assert!(errors.raise(Rows::at(&[0, 1, 3], 4), |row| codes[row]).is_ok());
        assert!(errors.raise(Rows::all(4), |row| codes[row]).is_err());
    }
}
