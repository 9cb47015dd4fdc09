//! Matches the columns of a pattern's first CSV file with those of the others: by the names in their headers, as with files of columns.
//!
//! All other code, conditions and zones too, identifies columns by their positions in the table, which are those of the first
//! file. Only the code that reads the fields of a file uses their positions in it. So the zones of a file
//! need not store them: they follow from the table's columns and from the file.

use super::lines::text;
use super::zones::Reading;
use super::{file_error, no_columns};
use firn_base::{Error, Result, SqlState, Type, TypeId};
use firn_load::encoding::Decoded;
use firn_load::sniff::{self, Header, SAMPLE_BYTES};
use firn_load::{CopyHeader, RowFormat};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The number of bytes of a file that are read for its header, if that is not longer.
const HEADER_BYTES: usize = 4 << 10;

/// The most names that an error shows.
const SHOWN_NAMES: usize = 10;

/// The columns of one file.
pub(super) struct FileColumns {
    /// All columns of the file, in its order.
    pub columns: Vec<(String, Type)>,
    /// For each column of the table, its position among them; a file may lack columns that are not read.
    places: Vec<Option<usize>>,
}

impl FileColumns {
    /// The columns of the first file, and of files whose columns are matched by position, or whose lines name their values.
    pub fn of_first(reading: &Reading) -> FileColumns {
        let columns = reading.columns.clone();
        FileColumns { places: (0..columns.len()).map(Some).collect(), columns }
    }

    /// The columns of another file of the pattern, which must have the `wanted` ones. They are read from the open file, whose rows are
    /// read afterwards: another file may be at its path by now. Changes the file's position.
    pub fn of_other(path: &Path, file: &File, reading: &Reading, wanted: &[usize]) -> Result<FileColumns> {
        let options = &reading.options;
        if options.format != RowFormat::Csv || options.header == CopyHeader::No || reading.is_by_place {
            return Ok(FileColumns::of_first(reading));
        }
        // A file without a record has no rows either, and the reader reports a quote that is not closed.
        let Some(header) = header(path, file, reading)? else { return Ok(FileColumns::of_first(reading)) };
        let first = &reading.columns;
        let place = |(name, _): &(String, Type)| header.names.iter().position(|found| found == name);
        let places: Vec<Option<usize>> = first.iter().map(place).collect();
        // If no column matches, the first record is probably a row, which must not be lost, whichever columns are read. Names that were
        // generated are the same in every file and do not count.
        let is_named = |place: &Option<usize>| place.is_some_and(|place| header.is_named[place]);
        let is_other = !places.iter().any(is_named);
        let missing = match is_other {
            true => Some(places.iter().position(Option::is_none).unwrap_or(0)),
            false => wanted.iter().copied().find(|column| places[*column].is_none()),
        };
        if let Some(column) = missing {
            return Err(lacks(path, &first[column].0, &header));
        }
        let mut columns: Vec<(String, Type)> =
            header.names.into_iter().map(|name| (name, Type::new(TypeId::TEXT))).collect();
        for ((_, ty), place) in first.iter().zip(&places) {
            if let Some(place) = place {
                columns[*place].1 = *ty;
            }
        }
        Ok(FileColumns { columns, places })
    }

    /// Whether the file has a column of the table.
    pub fn has(&self, column: usize) -> bool {
        self.places[column].is_some()
    }

    /// The positions of columns of the table, all of which the file has.
    pub fn places(&self, columns: &[usize]) -> Vec<usize> {
        let place = |column: &usize| self.places[*column].expect("the file has what is asked for");
        columns.iter().map(place).collect()
    }
}

/// The first record of a file, if it has one that ends.
fn header(path: &Path, file: &File, reading: &Reading) -> Result<Option<Header>> {
    let failed = |error| file_error(path, &error);
    let text = text(file).map_err(failed)?;
    let mut text = Decoded::new(text, reading.options.encoding);
    let mut sample = Vec::new();
    loop {
        let wanted = sample.len().max(HEADER_BYTES);
        let has_ended = (&mut text).take(wanted as u64).read_to_end(&mut sample).map_err(failed)? < wanted;
        // Blank lines are no rows of several columns, and contain no names.
        let is_blank = || sample.iter().all(|byte| b"\r\n".contains(byte));
        if has_ended && is_blank() {
            return Ok(None);
        }
        if has_ended && !sample.is_empty() {
            // The last line may lack its end.
            sample.push(b'\n');
        }
        let header = sniff::header(&sample, &reading.options);
        if header.is_some() || has_ended {
            return Ok(header);
        }
        if sample.len() >= SAMPLE_BYTES {
            return Err(no_columns(path, "no record ends in its first megabyte"));
        }
    }
}

/// The error for a file without a column.
#[cold]
fn lacks(path: &Path, column: &str, header: &Header) -> Error {
    let named = header.names.iter().zip(&header.is_named).filter(|(_, is_named)| **is_named);
    let mut shown: Vec<String> = named.take(SHOWN_NAMES + 1).map(|(name, _)| format!("\"{name}\"")).collect();
    let more = if shown.len() > SHOWN_NAMES { ", …" } else { "" };
    shown.truncate(SHOWN_NAMES);
    let shown = if shown.is_empty() { "none".to_owned() } else { shown.join(", ") };
    let message = format!("file \"{}\" has no column \"{column}\"", path.display());
    Error::new(SqlState::UNDEFINED_COLUMN, message)
        .with_detail(format!(
            "Its first record is its header, as in the first file, and names {shown}{more}."
        ))
        .with_hint("The files of a pattern have the columns of the first.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_base::TextStyle;
    use firn_load::sniff::{Known, sniff};

    /// The columns `a` and `b` are found in the file that was opened, while one with another header replaces it.
    #[test]
    fn columns_are_found_in_the_open_file() {
        let sniffed = sniff(b"a,b\n1,2\n", &Known::default());
        let columns = sniffed.columns.into_iter().map(|(name, ty)| (name, Type::from(ty))).collect();
        let (options, style) = (sniffed.options, TextStyle::DEFAULT);
        let reading = Reading { options, columns, is_by_place: false, style, chunk_bytes: None };
        let folder = std::env::temp_dir().join(format!("firn-headers-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("t-2.csv");
        std::fs::write(&path, "c,b,a\n0,2,1\n").unwrap();
        let file = File::open(&path).unwrap();
        std::fs::write(folder.join("new"), "a,b\n1,2\n").unwrap();
        std::fs::rename(folder.join("new"), &path).unwrap();
        for _ in 0..2 {
            // Whatever its position.
            let columns = FileColumns::of_other(&path, &file, &reading, &[0, 1]).unwrap();
            assert_eq!(columns.places(&[0, 1]), [2, 1]);
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
