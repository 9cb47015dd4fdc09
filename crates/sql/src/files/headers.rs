//! Where the columns of a pattern's first CSV file stand in the others: where their headers name them, as in files of columns.
//!
//! Everything else, conditions and zones too, knows columns by where the table has them, which is where the first file has
//! them; only who reads the fields of a file asks where they are in it. So zones that are kept for a file
//! need not know: which columns those are follows from the table's columns and from the file.

use super::lines::open_text;
use super::zones::Reading;
use super::{file_error, no_columns};
use firn_base::{Error, Result, SqlState, SqlType};
use firn_load::sniff::{self, SAMPLE_BYTES};
use firn_load::{CopyHeader, RowFormat};
use std::io::Read;
use std::path::Path;

/// As much of a file is read for its header, if that is not longer.
const HEADER_BYTES: usize = 4 << 10;

/// As many names an error tells.
const TOLD_NAMES: usize = 10;

/// The columns of one file.
pub(super) struct FileColumns {
    /// All that it has, in its order.
    pub columns: Vec<(String, SqlType)>,
    /// For each column of the table, where it is among them; a file may lack those that nobody asks for.
    places: Vec<Option<usize>>,
}

impl FileColumns {
    /// Those of the first file, and of files in which columns go by their positions, or lines say what they hold.
    pub fn of_first(reading: &Reading) -> FileColumns {
        let columns = reading.sniffed.columns.clone();
        FileColumns { places: (0..columns.len()).map(Some).collect(), columns }
    }

    /// Those of another file of the pattern, which must have the `wanted` ones.
    pub fn of_other(path: &Path, reading: &Reading, wanted: &[usize]) -> Result<FileColumns> {
        let options = &reading.sniffed.options;
        if options.format != RowFormat::Csv || options.header == CopyHeader::No {
            return Ok(FileColumns::of_first(reading));
        }
        // A file without a record has no rows either, and of a quote that is not closed its reader tells.
        let Some(names) = header(path, reading)? else { return Ok(FileColumns::of_first(reading)) };
        let first = &reading.sniffed.columns;
        let place = |(name, _): &(String, SqlType)| names.iter().position(|found| found == name);
        let places: Vec<Option<usize>> = first.iter().map(place).collect();
        // Where nothing is as it should be, the first record is likely to be a row: nobody is to lose it, whatever he asks for.
        let is_other = places.iter().all(Option::is_none);
        let missing =
            if is_other { Some(&0) } else { wanted.iter().find(|column| places[**column].is_none()) };
        if let Some(column) = missing {
            return Err(lacks(path, &first[*column].0, &names));
        }
        let mut columns: Vec<(String, SqlType)> =
            names.into_iter().map(|name| (name, SqlType::Text)).collect();
        for ((_, ty), place) in first.iter().zip(&places) {
            if let Some(place) = place {
                columns[*place].1 = *ty;
            }
        }
        Ok(FileColumns { columns, places })
    }

    /// Where columns of the table are, all of which the file has.
    pub fn places(&self, columns: &[usize]) -> Vec<usize> {
        let place = |column: &usize| self.places[*column].expect("the file has what is asked for");
        columns.iter().map(place).collect()
    }
}

/// The names in the first record of a file, if it has one that ends.
fn header(path: &Path, reading: &Reading) -> Result<Option<Vec<String>>> {
    let failed = |error| file_error(path, &error);
    let mut file = open_text(path).map_err(failed)?;
    let mut sample = Vec::new();
    loop {
        let wanted = sample.len().max(HEADER_BYTES);
        let has_ended = (&mut file).take(wanted as u64).read_to_end(&mut sample).map_err(failed)? < wanted;
        if has_ended && !sample.is_empty() {
            // The last line may lack its end.
            sample.push(b'\n');
        }
        let names = sniff::header(&sample, &reading.sniffed.options);
        if names.is_some() || has_ended {
            return Ok(names);
        }
        if sample.len() >= SAMPLE_BYTES {
            return Err(no_columns(path, "no record ends in its first megabyte"));
        }
    }
}

/// The error for a file without a column.
#[cold]
fn lacks(path: &Path, column: &str, names: &[String]) -> Error {
    let told: Vec<String> = names.iter().take(TOLD_NAMES).map(|name| format!("\"{name}\"")).collect();
    let more = if names.len() > TOLD_NAMES { ", …" } else { "" };
    let message = format!("file \"{}\" has no column \"{column}\"", path.display());
    Error::new(SqlState::UNDEFINED_COLUMN, message)
        .with_detail(format!(
            "Its first record is its header, as in the first file, and names {}{more}.",
            told.join(", ")
        ))
        .with_hint("The files of a pattern have the columns of the first.")
}
