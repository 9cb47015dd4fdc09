//! No file makes COPY's reader panic, and a file read in pieces is the file read at once.
#![no_main]

use arrow_array::ArrayRef;
use firn_base::{SqlType, TimeZoneSetting};
use firn_load::{CopyFormat, CopyHeader, CopyOptions, CopyReader};
use libfuzzer_sys::fuzz_target;

/// All rows, or the message of the error.
fn read(
    options: &CopyOptions,
    pieces: &mut dyn Iterator<Item = &[u8]>,
) -> Result<Vec<Vec<ArrayRef>>, String> {
    let columns = [("a", SqlType::Integer), ("b", SqlType::Text), ("c", SqlType::Varchar(Some(3)))];
    let columns = columns.map(|(name, ty)| (name.to_owned(), ty)).to_vec();
    let message = |error| format!("{error:?}");
    let mut reader =
        CopyReader::new("t", columns, options.clone(), TimeZoneSetting::default()).map_err(message)?;
    for piece in pieces {
        reader.push(piece).map_err(message)?;
    }
    reader.finish().map_err(message)?;
    Ok(std::iter::from_fn(|| reader.next_batch()).collect())
}

fuzz_target!(|bytes: &[u8]| {
    let Some(([choice, delimiter, quote, escape, piece], file)) = bytes.split_first_chunk() else { return };
    let formats = [CopyFormat::Text, CopyFormat::Csv, CopyFormat::Text, CopyFormat::Csv, CopyFormat::Binary];
    let format = formats[usize::from(choice >> 4) % formats.len()];
    let mut options = CopyOptions::new(format);
    if choice & 2 != 0 {
        (options.delimiter, options.quote, options.escape) = (*delimiter, *quote, *escape);
    }
    options.header = [CopyHeader::No, CopyHeader::Yes, CopyHeader::Match][usize::from(choice >> 2) % 3];
    let whole = read(&options, &mut std::iter::once(file));
    let pieces = read(&options, &mut file.chunks(usize::from(*piece).max(1)));
    assert_eq!(whole, pieces, "{options:?}");
});
