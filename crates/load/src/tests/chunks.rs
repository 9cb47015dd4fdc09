//! Files of which only some chunks are read, or only some rows of chunks: the result is the same as that part of a whole reading.

use super::{CSV, reader, rows_of};
use crate::{Batch, CopyOptions, CopyReader, Extent, Feed, RowFormat, Sieve};
use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{Array, ArrayRef};
use arrow_buffer::BooleanBuffer;
use firn_base::random::Random;
use firn_base::{Error, Result, SqlState, SqlType};
use std::io::{ErrorKind, Read};

type Rows = Vec<(Option<i32>, Option<String>)>;

fn failed(error: &std::io::Error) -> Error {
    Error::new(SqlState::IO_ERROR, error.to_string())
}

/// The chunks of a feed: for each its place and rows. A sieve leaves out text where the number is odd or missing.
fn read_chunks(reader: CopyReader, feed: Feed<'_>, threads: usize) -> Result<Vec<(Extent, Rows)>> {
    let mut read = Vec::new();
    let digest = |extent: Extent, batch: Batch| match batch.kept {
        None => (extent, rows_of(&batch.columns)),
        Some(kept) => {
            let numbers = batch.columns[0].as_primitive::<Int32Type>();
            assert_eq!((numbers.len(), kept.len()), (batch.rows, batch.rows));
            let numbers = kept.set_indices().map(|row| numbers.iter().nth(row).unwrap());
            let texts = batch.columns[1].as_string_view();
            (extent, numbers.zip(texts.iter().map(|text| text.map(str::to_owned))).collect())
        }
    };
    reader.read_chunks(feed, &failed, threads, &digest, &mut |chunk| {
        read.push(chunk);
        Ok(())
    })?;
    Ok(read)
}

fn is_even(number: Option<i32>) -> bool {
    number.is_some_and(|number| number % 2 == 0)
}

fn even_numbers() -> Sieve {
    let keeps = |columns: &[ArrayRef], rows| {
        let numbers = columns[0].as_primitive::<Int32Type>();
        let number = |row| numbers.is_valid(row).then(|| numbers.value(row));
        Some(BooleanBuffer::collect_bool(rows, |row| is_even(number(row))))
    };
    Sieve { columns: 1, keeps: Box::new(keeps) }
}

/// A file with quotes around anything, and perhaps without an end of its last line.
fn random_file(random: &mut Random, format: RowFormat) -> String {
    let mut file = String::new();
    for row in 0..random.uniform(1, 60) {
        let number = match random.uniform(0, 4) {
            0 => None,
            _ => Some(row),
        };
        let letters = ["a", "ü", ",", "\"\"", "\n", "\r\n", "long enough for a view"];
        let text: String =
            (0..random.uniform(0, 4)).map(|_| letters[random.uniform(0, 6) as usize]).collect();
        let line = match (format, number) {
            (CSV, Some(number)) => format!("{number},\"{text}\"\n"),
            (CSV, None) => format!(",\"{text}\"\r\n"),
            (_, Some(number)) => format!("{{\"a\": {number}, \"b\": \"{number}\"}}\n"),
            (_, None) => "{\"b\": \"x\"}\n\n".to_owned(),
        };
        file.push_str(&line);
    }
    if random.uniform(0, 1) == 0 {
        file.truncate(file.trim_end_matches(['\r', '\n']).len());
    }
    file
}

#[test]
fn chunks_are_read_again_where_they_were() {
    let mut random = Random::seeded(35);
    for round in 0..if cfg!(miri) { 5 } else { 400 } {
        let format = if round % 4 == 0 { RowFormat::Json } else { CSV };
        let file = random_file(&mut random, format);
        let chunk_bytes = random.uniform(1, 150) as usize;
        let threads = random.uniform(1, 3) as usize;
        let start = || {
            let mut reader = reader(CopyOptions::new(format));
            reader.set_chunk_bytes(chunk_bytes);
            reader
        };
        let whole = read_chunks(start(), Feed::Whole(&mut file.as_bytes()), threads).unwrap();
        let some: Vec<_> = whole.iter().filter(|_| random.uniform(0, 2) > 0).cloned().collect();
        let extents: Vec<Extent> = some.iter().map(|(extent, _)| *extent).collect();
        // The bytes before the beginning are ignored.
        let shifted = [b"\xef\xbb\xbf", file.as_bytes()].concat();
        let feed = Feed::Extents { file: &&shifted[..], begin: 3, extents: &extents };
        assert_eq!(read_chunks(start(), feed, threads).unwrap(), some, "{file:?} by {chunk_bytes}");
    }
}

/// A file that returns a few bytes at a time, and is silent in between.
struct Silent<'f> {
    rest: &'f [u8],
    pieces: Random,
    speaks: bool,
}

impl Read for Silent<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.speaks = !self.speaks;
        if self.speaks {
            return Err(ErrorKind::WouldBlock.into());
        }
        let length = (self.pieces.uniform(1, 20) as usize).min(self.rest.len()).min(buffer.len());
        let (piece, rest) = self.rest.split_at(length);
        buffer[..length].copy_from_slice(piece);
        self.rest = rest;
        Ok(length)
    }
}

#[test]
fn records_that_have_arrived_are_read_while_a_pipe_is_silent() {
    let mut random = Random::seeded(37);
    for round in 0..if cfg!(miri) { 5 } else { 400 } {
        let format = if round % 4 == 0 { RowFormat::Json } else { CSV };
        let file = random_file(&mut random, format);
        let threads = random.uniform(1, 3) as usize;
        let rows = |feed| {
            let chunks = read_chunks(reader(CopyOptions::new(format)), feed, threads).unwrap();
            (chunks.len(), chunks.into_iter().flat_map(|(_, rows)| rows).collect::<Rows>())
        };
        let mut silent = Silent { rest: file.as_bytes(), pieces: Random::seeded(round), speaks: false };
        let (chunks, read) = rows(Feed::Whole(&mut silent));
        assert_eq!(read, rows(Feed::Whole(&mut file.as_bytes())).1);
        // As soon as the bytes that have arrived contain a whole record.
        assert!(chunks > 1 || file.len() < 80, "{file:?}");
    }
}

#[test]
fn a_sieve_skips_values_of_rows_that_are_not_needed() {
    let mut random = Random::seeded(36);
    for _ in 0..if cfg!(miri) { 5 } else { 400 } {
        let file = random_file(&mut random, CSV);
        let chunk_bytes = random.uniform(1, 1000) as usize;
        let start = || {
            let mut reader = reader(CopyOptions::new(CSV));
            reader.set_chunk_bytes(chunk_bytes);
            reader
        };
        let mut whole = read_chunks(start(), Feed::Whole(&mut file.as_bytes()), 2).unwrap();
        for (_, rows) in &mut whole {
            rows.retain(|(number, _)| is_even(*number));
        }
        let mut sifting = start();
        sifting.set_sieve(even_numbers());
        let sifted = read_chunks(sifting, Feed::Whole(&mut file.as_bytes()), 2).unwrap();
        assert_eq!(sifted, whole, "{file:?} by {chunk_bytes}");
    }
}

#[test]
fn errors_after_a_sieve_are_reported_for_rows_that_pass() {
    let columns = ["a", "b"].map(|name| (name.to_owned(), SqlType::Integer)).to_vec();
    let read = |file: &str| {
        let options = CopyOptions::new(CSV);
        let mut reader = CopyReader::new("f", columns.clone(), options, Default::default()).unwrap();
        reader.set_sieve(even_numbers());
        let mut rows = 0;
        let count = |_, batch: Batch| batch.columns[1].len();
        let feed = Feed::Whole(&mut file.as_bytes());
        reader.read_chunks(feed, &failed, 1, &count, &mut |more| {
            rows += more;
            Ok(())
        })?;
        Ok::<usize, Error>(rows)
    };
    assert_eq!(read("1,\"x\ny\"\n2,2\n3,\"z\"\n4,4\n").unwrap(), 2);
    let context = |file| read(file).unwrap_err().context().unwrap().to_owned();
    assert_eq!(context("1,\"x\ny\"\n2,2\n3,\"z\"\n4,\"q\"\r\n6,6\n"), "f, line 5, column b: \"q\"");
    // The sieve is not called for a chunk with an error in its own columns, of which the first row's is returned.
    assert_eq!(context("1,x\ny,2\n"), "f, line 1, column b: \"x\"");
}
