//! No file makes COPY's reader panic, and a file read in pieces and chunks is the file read at once.
#![no_main]

use arrow_array::ArrayRef;
use firn_base::{SqlType, TextStyle};
use firn_load::{CopyHeader, CopyOptions, CopyReader, OnError, RowFormat};
use libfuzzer_sys::fuzz_target;

/// All rows, a value of one row for each column, or the message of the error.
fn read(
    options: &CopyOptions,
    pieces: &mut dyn Iterator<Item = &[u8]>,
    chunk_bytes: usize,
) -> Result<Vec<Vec<ArrayRef>>, String> {
    let columns = [("a", SqlType::Integer), ("b", SqlType::Text), ("c", SqlType::Varchar(Some(3)))];
    let columns = columns.map(|(name, ty)| (name.to_owned(), ty)).to_vec();
    let message = |error| format!("{error:?}");
    let mut reader =
        CopyReader::new("COPY t", columns, options.clone(), TextStyle::default()).map_err(message)?;
    reader.set_chunk_bytes(chunk_bytes);
    for piece in pieces {
        reader.push(piece).map_err(message)?;
    }
    reader.finish().map_err(message)?;
    let batches = std::iter::from_fn(|| reader.next_batch());
    let row = |columns: &[ArrayRef], row| columns.iter().map(|column| column.slice(row, 1)).collect();
    Ok(batches.flat_map(|batch| (0..batch.rows).map(move |at| row(&batch.columns, at))).collect())
}

fuzz_target!(|bytes: &[u8]| {
    let Some(([choice, delimiter, quote, escape, piece], file)) = bytes.split_first_chunk() else { return };
    let formats = [RowFormat::Text, RowFormat::Csv, RowFormat::Json, RowFormat::Csv, RowFormat::Binary];
    let format = formats[usize::from(choice >> 4) % formats.len()];
    let mut options = CopyOptions::new(format);
    if choice & 2 != 0 {
        (options.delimiter, options.quote, options.escape) = (*delimiter, *quote, *escape);
    }
    options.header = [CopyHeader::No, CopyHeader::Yes, CopyHeader::Match][usize::from(choice >> 2) % 3];
    options.on_error = if choice & 1 == 0 { OnError::Stop } else { OnError::Ignore };
    let piece = usize::from(*piece).max(1);
    let whole = read(&options, &mut std::iter::once(file), file.len() + 1);
    let pieces = read(&options, &mut file.chunks(piece), piece);
    assert_eq!(whole, pieces, "{options:?}");
});
