//! Reading and writing together: most cases do both.

mod chunks;
mod general;
mod sniffed;
mod spectrum;
mod values;
mod written;

use crate::chunk::CHUNK_BYTES;
use crate::{
    BATCH_ROWS, Batch, CopyHeader, CopyOptions, CopyReader, CopyWriter, Extent, Feed, OnError, Places,
    QuotesOpen, RowFormat, Waits, end_of_first_row,
};
use arrow_array::cast::AsArray;
use arrow_array::types::{Date32Type, Decimal128Type, Int32Type, Int64Type};
use arrow_array::{Array, ArrayRef};
use firn_base::random::Random;
use firn_base::sync::{Arc, AtomicBool, AtomicU64, Ordering};
use firn_base::{Error, Result, SqlState, SqlType, TextStyle, Value};
use std::io::Read;
use written::file_of;

const TEXT: RowFormat = RowFormat::Text;
const CSV: RowFormat = RowFormat::Csv;
const BINARY: RowFormat = RowFormat::Binary;
const JSON: RowFormat = RowFormat::Json;

fn columns() -> Vec<(String, SqlType)> {
    vec![("a".to_owned(), SqlType::Integer), ("b".to_owned(), SqlType::Text)]
}

fn reader(options: CopyOptions) -> CopyReader {
    CopyReader::new("COPY t", columns(), options, TextStyle::DEFAULT).unwrap()
}

/// All rows of a file that arrives in pieces of `piece` bytes. They are the same if several threads read it in such pieces.
fn read(options: &CopyOptions, file: &[u8], piece: usize) -> Result<Vec<(Option<i32>, Option<String>)>> {
    let pushed = read_pushed(options, file, piece);
    for threads in [1, 3] {
        // The bytes before the range are ignored.
        let shifted = [b"\"x\\", file].concat();
        let feed = Feed::Stretch { file: &&shifted[..], stretch: 3..shifted.len() as u64, watch: &|_| () };
        let mut reader = reader(options.clone());
        reader.set_chunk_bytes(piece);
        let failed = |error: &std::io::Error| Error::new(SqlState::IO_ERROR, error.to_string());
        let mut rows = Vec::new();
        let read = reader.read_file(feed, &failed, threads, &mut |batch| {
            rows.extend(rows_of(&batch.columns));
            Ok(())
        });
        match (&pushed, read.map(|()| rows)) {
            (Ok(pushed), Ok(rows)) => assert_eq!(*pushed, rows),
            (Err(pushed), Err(error)) => assert_eq!(
                (pushed.state(), pushed.message(), pushed.context()),
                (error.state(), error.message(), error.context())
            ),
            (pushed, read) => panic!("{pushed:?} and {read:?}"),
        }
    }
    pushed
}

fn read_pushed(
    options: &CopyOptions,
    file: &[u8],
    piece: usize,
) -> Result<Vec<(Option<i32>, Option<String>)>> {
    let mut reader = reader(options.clone());
    reader.set_chunk_bytes(piece);
    for bytes in file.chunks(piece) {
        reader.push(bytes)?;
    }
    reader.finish()?;
    let mut rows = Vec::new();
    while let Some(batch) = reader.next_batch() {
        rows.extend(rows_of(&batch.columns));
    }
    Ok(rows)
}

fn rows_of(batch: &[ArrayRef]) -> Vec<(Option<i32>, Option<String>)> {
    let numbers = batch[0].as_primitive::<Int32Type>();
    let texts = batch[1].as_string_view();
    numbers.iter().zip(texts.iter()).map(|(number, text)| (number, text.map(str::to_owned))).collect()
}

/// The same rows however the file is cut; `-` stands for NULL.
fn check(options: &CopyOptions, file: &str, expected: &[(&str, &str)]) {
    let expected: Vec<_> = expected
        .iter()
        .map(|(number, text)| (number.parse().ok(), (*text != "-").then(|| (*text).to_owned())))
        .collect();
    for piece in [1, 2, 3, 7, 1000] {
        assert_eq!(read(options, file.as_bytes(), piece).unwrap(), expected, "{file:?} in pieces of {piece}");
    }
}

/// SQLSTATE, message and context of the error with which a file ends.
fn failure(options: &CopyOptions, file: &str) -> String {
    let error = read(options, file.as_bytes(), 5).unwrap_err();
    format!("{} {} | {}", error.state(), error.message(), error.context().unwrap_or_default())
}

#[test]
fn text_files_are_read_with_escapes_nulls_and_any_line_end() {
    let options = CopyOptions::new(TEXT);
    check(&options, "1\tone\n2\ttwo", &[("1", "one"), ("2", "two")]);
    check(&options, "1\tone\r\n2\ttwo\r\n", &[("1", "one"), ("2", "two")]);
    check(&options, "\\N\t\\N\n", &[("-", "-")]);
    check(&options, "1\t\n", &[("1", "")]);
    check(&options, "1\ta\\tb\\nc\\\\d\\x41\\101\\q\n", &[("1", "a\tb\nc\\dAAq")]);
    check(&options, "1\ta\\\nb\n", &[("1", "a\nb")]);
    check(&options, "1\t\\\\N\n", &[("1", "\\N")]);
    check(&options, "1\tone\n\\.\nrubbish", &[("1", "one")]);
    check(&options, "1\tgrün\n", &[("1", "grün")]);
    check(&options, "", &[]);
    let pipe = CopyOptions { delimiter: b'|', null: "NULL".to_owned(), ..options };
    check(&pipe, "1|a\\|b\n2|NULL\n", &[("1", "a|b"), ("2", "-")]);
}

#[test]
fn csv_files_are_read_with_quotes_and_line_breaks_inside_them() {
    let options = CopyOptions::new(CSV);
    check(&options, "1,one\n2,\"two\"\n", &[("1", "one"), ("2", "two")]);
    check(&options, "1,\n2,\"\"\n,x", &[("1", "-"), ("2", ""), ("-", "x")]);
    check(&options, "1,\"a\r\nb\"\r\n2,\"\"\"q\"\"\"\r\n", &[("1", "a\r\nb"), ("2", "\"q\"")]);
    check(&options, "1,a\"b,c\"d\n", &[("1", "ab,cd")]);
    check(&options, "1, x \n\\.\n", &[("1", " x ")]);
    let escape = CopyOptions { escape: b'\\', ..options.clone() };
    check(&escape, "1,\"a\\\"b\\\\\"\n2,\"x\\y\"\n", &[("1", "a\"b\\"), ("2", "x\\y")]);
    let forced = CopyOptions { force_not_null: vec![false, true], ..options.clone() };
    check(&forced, "1,\n", &[("1", "")]);
    let forced = CopyOptions { force_null: vec![false, true], ..options.clone() };
    check(&forced, "1,\"\"\n", &[("1", "-")]);
    let header = CopyOptions { header: CopyHeader::Yes, ..options.clone() };
    check(&header, "x,y\n1,one\n", &[("1", "one")]);
    check(&header, "x,y\n", &[]);
    let header = CopyOptions { header: CopyHeader::Match, ..options };
    check(&header, "a,\"b\"\n1,one\n", &[("1", "one")]);
}

#[test]
fn quotes_within_fields_are_characters_where_quotes_open_at_the_beginning() {
    let options = CopyOptions { quotes_open: QuotesOpen::AtBeginning, ..CopyOptions::new(CSV) };
    check(&options, "1,5\" a\n2,7\" b\n3,\"\"\n", &[("1", "5\" a"), ("2", "7\" b"), ("3", "")]);
    check(&options, "1,5\"\r\n\"2\",\"7\"\" b\"\r\n", &[("1", "5\""), ("2", "7\" b")]);
    check(&options, "1,\"a, \nb\"\n2,a \"b\" \"\n", &[("1", "a, \nb"), ("2", "a \"b\" \"")]);
    // Text after quotes that have closed, and quotes that open again directly.
    check(&options, "1,\"a\"b\"c\n2,\"\"\"\"\n3,\"\"a\"\n", &[("1", "ab\"c"), ("2", "\""), ("3", "a\"")]);
    check(&options, "1, \"a\"\n", &[("1", " \"a\"")]);
    let escaped = CopyOptions { escape: b'\\', ..options.clone() };
    check(&escaped, "1,5\" \\\"\n2,\"a\\\", b\"\n", &[("1", "5\" \\\""), ("2", "a\", b")]);
    assert!(failure(&options, "1,a\n2,\"b\n").starts_with("22P04 unterminated CSV quoted field"));
}

/// Where fields are read eight at a time, words that hold their ends may reach back to where the chunk begins.
#[test]
fn csv_files_may_begin_with_numbers_of_any_length() {
    for length in 1..=18 {
        for (quote, end) in [("", "\n"), ("", "\r\n"), ("\"", "\n"), ("\"", "\r\n")] {
            let numbers: Vec<i64> = (0..20).map(|row| 10_i64.pow(length - 1) + row % 9).collect();
            let file: String = numbers.iter().map(|number| format!("{quote}{number}{quote}{end}")).collect();
            for ty in [SqlType::BigInt, SqlType::Numeric { precision: 20, scale: 0 }, SqlType::Text] {
                let columns = vec![("a".to_owned(), ty)];
                let mut reader =
                    CopyReader::new("COPY t", columns, CopyOptions::new(CSV), TextStyle::DEFAULT).unwrap();
                reader.push(file.as_bytes()).unwrap();
                reader.finish().unwrap();
                let batch = reader.next_batch().unwrap();
                let read: Vec<i64> = match ty {
                    SqlType::BigInt => batch.columns[0].as_primitive::<Int64Type>().values().to_vec(),
                    SqlType::Text => {
                        let texts = batch.columns[0].as_string_view();
                        texts.iter().map(|text| text.unwrap().parse().unwrap()).collect()
                    }
                    _ => {
                        let decimals = batch.columns[0].as_primitive::<Decimal128Type>();
                        decimals.values().iter().map(|value| *value as i64).collect()
                    }
                };
                assert_eq!(read, numbers, "{ty:?} of {length} digits, {quote:?}, {end:?}");
            }
        }
    }
}

#[test]
fn errors_name_line_column_and_data() {
    let (text, csv) = (CopyOptions::new(TEXT), CopyOptions::new(CSV));
    let cases = [
        (
            &text,
            "1\tone\nx\ttwo\n",
            "22P02 invalid input syntax for type integer: \"x\" | COPY t, line 2, column a: \"x\"",
        ),
        (&text, "1\n", "22P04 missing data for column \"b\" | COPY t, line 1: \"1\""),
        (&text, "1\ta\tb\n", "22P04 extra data after last expected column | COPY t, line 1: \"1\ta\tb\""),
        (&text, "1\ta\rb\n", "22P04 literal carriage return found in data | COPY t, line 1: \"1\ta\rb\""),
        (
            &text,
            "1\t\\xff\n",
            "22021 invalid byte sequence for encoding \"UTF8\": 0xff | COPY t, line 1, column b: \"\u{fffd}\"",
        ),
        (
            &csv,
            "1,\"a\nb\"\ny,z\n",
            "22P02 invalid input syntax for type integer: \"y\" | COPY t, line 3, column a: \"y\"",
        ),
        (&csv, "1,\"abc\n", "22P04 unterminated CSV quoted field | COPY t, line 1: \"1,\"abc\n\""),
        (&csv, "1,a\rb\n", "22P04 unquoted carriage return found in data | COPY t, line 1: \"1,a\rb\""),
    ];
    for (options, file, expected) in cases {
        assert_eq!(failure(options, file), expected);
    }
    let header = CopyOptions { header: CopyHeader::Match, ..csv };
    assert_eq!(
        failure(&header, "a,c\n"),
        "22P04 column name mismatch in header line field 2: got \"c\", expected \"b\" | COPY t, line 1: \"a,c\""
    );
    let error = read(&CopyOptions::new(TEXT), b"1\t\xff\n", 9).unwrap_err();
    assert_eq!(error.state(), SqlState::CHARACTER_NOT_IN_REPERTOIRE);
}

#[test]
fn batches_are_whole_chunks() {
    let mut reader = reader(CopyOptions::new(CSV));
    let rows = if cfg!(miri) { 10 } else { 200_000 };
    let file: String = (0..rows).map(|row| format!("{row},x\n")).collect();
    for bytes in file.as_bytes().chunks(1000) {
        reader.push(bytes).unwrap();
    }
    reader.finish().unwrap();
    let batches: Vec<_> = std::iter::from_fn(|| reader.next_batch()).collect();
    let together: Vec<_> = batches.iter().flat_map(|batch| rows_of(&batch.columns)).collect();
    assert!(together.iter().eq(&(0..rows).map(|row| (Some(row), Some("x".to_owned()))).collect::<Vec<_>>()));
    assert_eq!(batches.len(), 1 + file.len() / CHUNK_BYTES);
}

/// The records of a CSV file, or `None` if one has an error: a byte at a time.
fn plainly(file: &str, columns: usize, quotes_open: QuotesOpen) -> Option<Vec<Vec<Option<String>>>> {
    let (mut rows, mut row) = (Vec::new(), Vec::new());
    let (mut field, mut quotes, mut in_quotes) = (String::new(), 0, false);
    let mut rest = file.strip_suffix('\n').unwrap_or(file).chars().chain(['\n']).peekable();
    while let Some(next) = rest.next() {
        match next {
            '"' if !in_quotes && (quotes, &*field) != (0, "") && quotes_open == QuotesOpen::AtBeginning => {
                field.push('"');
            }
            '"' => {
                quotes += 1;
                if in_quotes && rest.next_if_eq(&'"').is_some() {
                    field.push('"');
                } else {
                    in_quotes = !in_quotes;
                }
            }
            ',' | '\n' if !in_quotes => {
                row.push((quotes > 0 || !field.is_empty()).then(|| std::mem::take(&mut field)));
                quotes = 0;
                if next == '\n' {
                    let row = std::mem::take(&mut row);
                    if row.len() != columns {
                        return None;
                    }
                    rows.push(row);
                }
            }
            '\r' if !in_quotes => {
                if rest.peek() != Some(&'\n') {
                    return None;
                }
            }
            _ => field.push(next),
        }
    }
    (!in_quotes).then_some(rows)
}

#[test]
fn random_files_are_read_as_a_plain_loop_reads_them() {
    let mut random = Random::seeded(11);
    let mut right = 0;
    for round in 0..if cfg!(miri) { 30 } else { 30_000 } {
        let width = 1 + round % 3;
        let quotes_open = [QuotesOpen::Anywhere, QuotesOpen::AtBeginning][round % 2];
        let columns: Vec<_> = (0..width).map(|column| (format!("c{column}"), SqlType::Text)).collect();
        // Mostly valid files: only quoted text has special characters.
        let mut file = String::new();
        let strange = round % 5 == 0;
        let line_end = if round % 7 == 0 { "\r\n" } else { "\n" };
        for _ in 0..random.uniform(1, 8) {
            for column in 0..width {
                let length = if random.uniform(0, 9) == 0 { 80 } else { 6 };
                let letters = ['a', 'b', 'ü', ' ', '"', ',', '\n', '\r'];
                let most = if strange { 5 } else { 3 };
                let mut letter = |most| letters[random.uniform(0, most) as usize];
                let plain: String = (0..letter(3) as usize % length).map(|_| letter(most)).collect();
                match letter(7) {
                    'a' | 'b' => {
                        let inner: String = (0..letter(3) as usize % length).map(|_| letter(7)).collect();
                        file.push_str(&format!("\"{}\"", inner.replace('"', "\"\"")));
                        if letter(7) == 'a' {
                            file.push_str(&plain);
                        }
                    }
                    _ => file.push_str(&plain),
                }
                file.push_str(if column + 1 < width { "," } else { line_end });
            }
        }
        let options = CopyOptions { quotes_open, ..CopyOptions::new(CSV) };
        let mut reader = CopyReader::new("COPY t", columns, options, TextStyle::DEFAULT).unwrap();
        reader.set_chunk_bytes(random.uniform(1, 200) as usize);
        let outcome = reader.push(file.as_bytes()).and_then(|()| reader.finish());
        let read = outcome.ok().map(|()| {
            let batches = std::iter::from_fn(|| reader.next_batch());
            let rows = batches.flat_map(|batch| {
                let text = |row: usize, column: &ArrayRef| {
                    let column = column.as_string_view();
                    column.is_valid(row).then(|| column.value(row).to_owned())
                };
                (0..batch.rows)
                    .map(move |row| batch.columns.iter().map(|column| text(row, column)).collect())
                    .collect::<Vec<Vec<_>>>()
            });
            rows.collect::<Vec<_>>()
        });
        right += usize::from(read.is_some());
        assert_eq!(read, plainly(&file, width, quotes_open), "{quotes_open:?} {file:?}");
    }
    assert!(right > if cfg!(miri) { 5 } else { 15_000 }, "only {right} files were right");
}

#[test]
fn rows_that_cannot_be_read_are_left_out_where_that_is_wanted() {
    let mut random = Random::seeded(12);
    for round in 0..if cfg!(miri) { 20 } else { 3_000 } {
        let (mut file, mut line) = ("a,b\n".to_owned(), 2);
        let (mut expected, mut wrong) = (Vec::new(), Vec::new());
        let line_end = if round % 3 == 0 { "\r\n" } else { "\n" };
        // The frequency of errors.
        let most = [5, 9, 60, 5][round % 4];
        for row in 0..random.uniform(0, 40) as i32 {
            let (record, lines, problem) = match random.uniform(0, most) {
                0 => (format!("{row},"), 1, None),
                1 => (format!("{row},\"x\ny\""), 2, None),
                2 => (format!("{row}"), 1, Some("missing data for column \"b\"")),
                3 => (format!("{row},x,\"y\nz\""), 2, Some("extra data after last expected column")),
                4 => (format!("\"x\n{row}\",y"), 2, Some("invalid input syntax for type integer")),
                5 => (
                    "99999999999,y".to_owned(),
                    1,
                    Some("value \"99999999999\" is out of range for type integer"),
                ),
                6 => (format!("{row},a\rb"), 1, Some("unquoted carriage return found in data")),
                _ => (format!("{row},plain"), 1, None),
            };
            file += &record;
            file += line_end;
            line += lines;
            match problem {
                Some(problem) => wrong.push((format!("line {}", line - 1), problem)),
                None => {
                    let text = record.split_once(',').unwrap().1.trim_matches('"').to_owned();
                    expected.push((Some(row), (!text.is_empty()).then_some(text)));
                }
            }
        }
        let options =
            CopyOptions { on_error: OnError::Ignore, header: CopyHeader::Match, ..CopyOptions::new(CSV) };
        let mut reader = reader(options);
        reader.set_chunk_bytes(random.uniform(1, 400) as usize);
        reader.push(file.as_bytes()).unwrap();
        reader.finish().unwrap();
        let batches: Vec<_> = std::iter::from_fn(|| reader.next_batch()).collect();
        let rows: Vec<_> = batches.iter().flat_map(|batch| rows_of(&batch.columns)).collect();
        assert_eq!(rows, expected, "{file:?}");
        let rejected: Vec<_> = batches.iter().flat_map(|batch| &batch.rejected).collect();
        assert_eq!(rejected.len(), wrong.len(), "{file:?}");
        for (rejected, (line, problem)) in rejected.iter().zip(&wrong) {
            let error = &rejected.error;
            assert_eq!(*line, format!("line {}", rejected.line), "{file:?}");
            assert!(file.contains(&rejected.record), "{rejected:?} of {file:?}");
            let context = error.context().unwrap();
            assert!(
                context.split([',', ':']).any(|part| part.trim() == line),
                "{context} is of {line}: {file:?}"
            );
            assert!(error.message().contains(problem), "{error:?} is {problem}: {file:?}");
        }
    }
    let mut reader =
        reader(CopyOptions { on_error: OnError::Ignore, header: CopyHeader::Match, ..CopyOptions::new(CSV) });
    reader.push(b"a,c\n1,x\n").unwrap();
    assert!(reader.finish().unwrap_err().message().starts_with("column name mismatch"));
}

#[test]
fn files_without_rows_have_none_however_many_columns_there_are() {
    for width in 1..6 {
        let columns: Vec<_> = (0..width).map(|column| (format!("c{column}"), SqlType::Text)).collect();
        let header = "c,".repeat(width).replace(",c,", ",") + "\n";
        for (header, file) in
            [(CopyHeader::Yes, header.as_str()), (CopyHeader::Yes, "\\.\n"), (CopyHeader::No, "")]
        {
            let options = CopyOptions { header, ..CopyOptions::new(CSV) };
            let mut reader = CopyReader::new("COPY t", columns.clone(), options, TextStyle::DEFAULT).unwrap();
            reader.push(file.as_bytes()).unwrap();
            reader.finish().unwrap();
            assert!(std::iter::from_fn(|| reader.next_batch()).all(|batch| batch.rows == 0), "{file:?}");
        }
    }
}

impl Places for &[u8] {
    fn read_at(&self, from: u64, length: usize, bytes: &mut Vec<u8>) -> std::io::Result<()> {
        let from = self.len().min(from as usize);
        bytes.extend_from_slice(&self[from..self.len().min(from + length)]);
        Ok(())
    }
}

fn all_of<'f>(file: &'f &'f [u8]) -> Feed<'f> {
    Feed::Stretch { file, stretch: 0..file.len() as u64, watch: &|_| () }
}

/// Files of records that are short and long, with line feeds between quotes or after escapes, cut into pieces anywhere.
#[test]
fn pieces_are_put_together_wherever_they_begin() {
    let mut random = Random::seeded(5);
    let failed = |error: &std::io::Error| Error::new(SqlState::IO_ERROR, error.to_string());
    for round in 0..if cfg!(miri) { 10 } else { 300 } {
        let (format, mut options) = match round % 3 {
            0 => (RowFormat::Text, CopyOptions::new(RowFormat::Text)),
            1 => (CSV, CopyOptions::new(CSV)),
            _ => (CSV, CopyOptions { escape: b'\\', ..CopyOptions::new(CSV) }),
        };
        if round % 2 == 0 {
            options.quotes_open = QuotesOpen::AtBeginning;
        }
        let longest = [3, 40, 6000][random.uniform(0, 2) as usize];
        let mut file = Vec::new();
        for row in 0..random.uniform(0, 40) {
            let words: String = (0..random.uniform(0, longest))
                .map(|_| match (format, random.uniform(0, 9)) {
                    (RowFormat::Text, 0) => "\\n",
                    (RowFormat::Text, 1) => "\\\\",
                    (RowFormat::Text, 2) => "\\\n",
                    (_, 0) => "\n",
                    (_, 1) if options.escape == b'"' => "\"\"",
                    (_, 1) => "\\\"",
                    _ => "x",
                })
                .collect();
            let delimiter = char::from(options.delimiter);
            let record = match (format, random.uniform(0, 3)) {
                (RowFormat::Text, _) => format!("{row}{delimiter}{words}\n"),
                // All quotes may be characters.
                (_, 0) if options.quotes_open == QuotesOpen::AtBeginning => {
                    format!("{row}{delimiter}{}\"\n", words.replace('\n', "y").trim_start_matches('"'))
                }
                _ => format!("{row}{delimiter}\"{words}\"\n"),
            };
            file.extend_from_slice(record.as_bytes());
        }
        if random.uniform(0, 1) == 0 {
            file.pop();
        }
        let chunk_bytes = random.uniform(1, 300) as usize;
        let threads = random.uniform(1, 4) as usize;
        let mut found = Vec::new();
        let feeds = [Feed::Whole(&mut &file[..]), all_of(&&file[..])].map(|feed| {
            let mut reader = reader(options.clone());
            reader.set_chunk_bytes(chunk_bytes);
            let (mut rows, mut extents) = (Vec::new(), Vec::new());
            let digest = |extent: Extent, batch: Batch| (extent, batch);
            let read = reader.read_chunks(feed, &failed, threads, &digest, &mut |(extent, batch)| {
                rows.extend(rows_of(&batch.columns));
                extents.push(extent);
                Ok(())
            });
            found.push((
                rows,
                read.map_err(|error| (error.message().to_owned(), error.context().map(str::to_owned))),
            ));
            extents
        });
        let [_, pieces] = feeds;
        let [whole, pieced] = &found[..] else { panic!("there are two") };
        assert_eq!(whole, pieced, "{:?}", String::from_utf8_lossy(&file));
        let lines = |bytes: &[u8]| bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
        let mut offset = 0;
        for extent in pieces {
            assert_eq!((extent.offset, extent.lines_before), (offset, lines(&file[..offset as usize])));
            offset += extent.bytes;
        }
        assert!(pieced.1.is_err() || offset == file.len() as u64);
    }
}

#[test]
fn an_error_is_reported_before_a_silent_pipe_continues() {
    /// Sends a few bytes, and then nothing until `over` is raised.
    struct Silent(&'static [u8], Arc<AtomicBool>);
    impl Read for Silent {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let said = std::mem::take(&mut self.0);
            if said.is_empty() && !self.1.load(Ordering::Relaxed) {
                std::thread::sleep(std::time::Duration::from_millis(1));
                return Err(std::io::ErrorKind::WouldBlock.into());
            }
            buffer[..said.len()].copy_from_slice(said);
            Ok(said.len())
        }
    }
    let failed = |error: &std::io::Error| Error::new(SqlState::IO_ERROR, error.to_string());
    for round in 0..if cfg!(miri) { 3 } else { 60 } {
        let over = Arc::new(AtomicBool::new(false));
        let mut reader = reader(CopyOptions::new(CSV));
        reader.set_waits(Waits { look: Box::new(|| ()), over: over.clone() });
        let mut file = Silent(b"1,x\nx,y\n", over);
        let error = reader.read_file(Feed::Whole(&mut file), &failed, 2 + round % 3, &mut |_| Ok(()));
        assert_eq!(error.unwrap_err().context(), Some("COPY t, line 2, column a: \"x\""));
    }
}

#[test]
fn a_file_that_has_become_shorter_ends_there() {
    /// A file whose middle is missing from the first read on.
    struct Shrunk(Vec<u8>);
    impl Places for Shrunk {
        fn read_at(&self, from: u64, length: usize, bytes: &mut Vec<u8>) -> std::io::Result<()> {
            let end = if from < 200 { 150 } else { self.0.len() };
            (&self.0[..end]).read_at(from, length, bytes)
        }
    }
    let file = Shrunk("123,x\n".repeat(100).into_bytes());
    let failed = |error: &std::io::Error| Error::new(SqlState::IO_ERROR, error.to_string());
    let mut reader = reader(CopyOptions::new(CSV));
    reader.set_chunk_bytes(100);
    let mut rows = 0;
    let feed = Feed::Stretch { file: &file, stretch: 0..600, watch: &|_| () };
    let counted = reader.read_file(feed, &failed, 3, &mut |batch| {
        rows += batch.rows;
        Ok(())
    });
    counted.unwrap();
    assert_eq!(rows, 25);
}

#[test]
fn several_threads_read_what_one_reads() {
    let file: String = (0..500).map(|row| format!("{row},\"text\n{row}\"\n")).collect();
    let whole = read(&CopyOptions::new(CSV), file.as_bytes(), 1 << 20).unwrap();
    let failed = |error: &std::io::Error| Error::new(SqlState::IO_ERROR, error.to_string());
    let start = |chunk_bytes| {
        let mut reader = reader(CopyOptions::new(CSV));
        reader.set_chunk_bytes(chunk_bytes);
        reader
    };
    for (threads, chunk_bytes) in [(1, 50), (2, 1), (3, 100), (8, 7), (4, 100_000)] {
        let mut rows = Vec::new();
        let mut take = |batch: Batch| {
            rows.extend(rows_of(&batch.columns));
            Ok(())
        };
        start(chunk_bytes).read_file(Feed::Whole(&mut file.as_bytes()), &failed, threads, &mut take).unwrap();
        assert_eq!(rows, whole);
        rows.clear();
        let mut take = |batch: Batch| {
            rows.extend(rows_of(&batch.columns));
            Ok(())
        };
        let watched = AtomicU64::new(0);
        let watch = |bytes| {
            watched.fetch_add(bytes, Ordering::Relaxed);
        };
        let feed = Feed::Stretch { file: &file.as_bytes(), stretch: 0..file.len() as u64, watch: &watch };
        start(chunk_bytes).read_file(feed, &failed, threads, &mut take).unwrap();
        assert_eq!(rows, whole);
        assert_eq!(watched.load(Ordering::Relaxed), file.len() as u64);

        // The first error is returned after all rows before it.
        let (mut rows, mistakes) = (0, file.replacen("\n250,", "\nx,", 1).replacen("\n300,", "\ny,", 1));
        let mut count = |batch: Batch| {
            rows += batch.rows;
            Ok(())
        };
        let error = start(chunk_bytes)
            .read_file(all_of(&mistakes.as_bytes()), &failed, threads, &mut count)
            .unwrap_err();
        assert_eq!(error.context(), Some("COPY t, line 502, column a: \"x\""));
        assert!(rows <= 250 && (chunk_bytes > 1 || rows == 250), "{rows} rows before the 250th");

        // A sink that takes no more ends the reading, and so does a file that breaks off.
        let mut refuse = |_| Err(Error::new(SqlState::DISK_FULL, "no more"));
        let error = start(chunk_bytes)
            .read_file(all_of(&file.as_bytes()), &failed, threads, &mut refuse)
            .unwrap_err();
        assert_eq!(error.state(), SqlState::DISK_FULL);
        let mut broken = file.as_bytes().take(3000).chain(Broken);
        let error = start(chunk_bytes)
            .read_file(Feed::Whole(&mut broken), &failed, threads, &mut |_| Ok(()))
            .unwrap_err();
        assert_eq!(error.message(), "the file is gone");
    }
}

#[test]
fn a_file_is_read_by_as_many_threads_as_the_system_gives() {
    let file = "1,x\n".repeat(5_000);
    let failed = |error: &std::io::Error| Error::new(SqlState::IO_ERROR, error.to_string());
    for permitted in 0..4 {
        let mut rows = 0;
        let mut count = |batch: Batch| {
            rows += batch.rows;
            Ok(())
        };
        let mut reader = reader(CopyOptions::new(CSV));
        reader.set_chunk_bytes(100);
        let read = firn_base::thread::with_at_most(permitted, || {
            reader.read_file(all_of(&file.as_bytes()), &failed, 3, &mut count)
        });
        match permitted {
            0 => assert_eq!(read.unwrap_err().state(), SqlState::INSUFFICIENT_RESOURCES),
            _ => read.unwrap(),
        }
        assert_eq!(rows, if permitted == 0 { 0 } else { 5_000 });
    }
}

#[test]
fn a_file_that_breaks_off_is_not_a_file_that_ends() {
    // Some decompressors report damage once, and the end of the file from then on.
    struct Once(bool);
    impl Read for Once {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            match std::mem::replace(&mut self.0, true) {
                false => Err(std::io::Error::other("damaged")),
                true => Ok(0),
            }
        }
    }
    let file = "1,x\n".repeat(1000);
    for threads in [1, 2, 8] {
        for _ in 0..20 {
            let mut reader = reader(CopyOptions::new(CSV));
            reader.set_chunk_bytes(100);
            let failed = |error: &std::io::Error| Error::new(SqlState::IO_ERROR, error.to_string());
            let mut slow = |_| {
                std::thread::yield_now();
                Ok(())
            };
            let error = reader.read_file(
                Feed::Whole(&mut file.as_bytes().chain(Once(false))),
                &failed,
                threads,
                &mut slow,
            );
            assert_eq!(error.unwrap_err().message(), "damaged");
        }
    }
}

#[test]
fn a_panic_of_a_worker_is_a_panic_of_the_caller() {
    struct Mistake;
    impl Read for Mistake {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            panic!("a mistake of ours")
        }
    }
    let file = "1,x\n".repeat(1000);
    for threads in [1, 2, 8] {
        let mut reader = reader(CopyOptions::new(CSV));
        reader.set_chunk_bytes(100);
        let failed = |error: &std::io::Error| Error::new(SqlState::IO_ERROR, error.to_string());
        let read = || {
            reader.read_file(Feed::Whole(&mut file.as_bytes().chain(Mistake)), &failed, threads, &mut |_| {
                Ok(())
            })
        };
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(read)).is_err());
    }
}

#[test]
fn quotes_may_be_digits_and_delimiters_what_ends_a_file() {
    let zero = CopyOptions { quote: b'0', escape: b'0', ..CopyOptions::new(CSV) };
    check(&zero, "01000020,x\n", &[("1002", "x")]);
    let point = CopyOptions { delimiter: b'.', ..CopyOptions::new(CSV) };
    check(&point, "1.x\n\\.\n2.y\n", &[("1", "x")]);
}

#[test]
fn long_blanks_are_read_in_small_chunks() {
    let columns = vec![("c".to_owned(), SqlType::Char(8500))];
    let mut reader = CopyReader::new("COPY t", columns, CopyOptions::new(CSV), TextStyle::DEFAULT).unwrap();
    let rows = if cfg!(miri) { 3 } else { 20_000 };
    reader.push(&b"x\n".repeat(rows)).unwrap();
    reader.finish().unwrap();
    let batches: Vec<_> = std::iter::from_fn(|| reader.next_batch()).collect();
    assert_eq!(batches.iter().map(|batch| batch.rows).sum::<usize>(), rows);
    assert!(batches.iter().all(|batch| batch.rows < 10_000));
}

#[test]
fn rows_are_known_by_their_lines() {
    let mut random = Random::seeded(5);
    for round in 0..if cfg!(miri) { 3 } else { 200 } {
        let format = if round % 2 == 0 { CSV } else { TEXT };
        let mut options = CopyOptions::new(format);
        let leaves_out = random.uniform(0, 1) == 1;
        options.on_error = if leaves_out { OnError::Ignore } else { OnError::Stop };
        let mut file = String::new();
        let mut line = 0;
        if random.uniform(0, 1) == 1 {
            options.header = CopyHeader::Yes;
            let header = if format == CSV && random.uniform(0, 1) == 1 { "\"a\nb\",b\n" } else { "a,b\n" };
            line += header.matches('\n').count();
            file += &header.replace(',', &char::from(options.delimiter).to_string());
        }
        let has_breaks = random.uniform(0, 1) == 1;
        for _ in 0..random.uniform(0, 40) {
            let breaks = if has_breaks { random.uniform(0, 2).max(0) as usize } else { 0 };
            let text = match format {
                CSV => format!("\"x{}\"", "\n".repeat(breaks)),
                _ => format!("x{}", "\\\n".repeat(breaks)),
            };
            line += 1 + breaks;
            // The first column is the number of the row's last line.
            let number = match leaves_out && random.uniform(0, 3) == 0 {
                true => "?".to_owned(),
                false => line.to_string(),
            };
            file += &format!("{number}{}{text}\n", char::from(options.delimiter));
        }
        for piece in [1, 9, 1000] {
            let mut reader = reader(options.clone());
            reader.set_chunk_bytes(piece);
            reader.push(file.as_bytes()).unwrap();
            reader.finish().unwrap();
            while let Some(batch) = reader.next_batch() {
                for (row, (number, _)) in rows_of(&batch.columns).into_iter().enumerate() {
                    assert_eq!(Some(batch.lines.line_of(row) as i32), number, "{file:?}");
                }
            }
        }
    }
}

/// A file that cannot be read.
struct Broken;

impl Read for Broken {
    fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
        Err(std::io::Error::other("the file is gone"))
    }
}

#[test]
fn columns_have_the_arrow_types_of_tables() {
    let columns = vec![
        ("n".to_owned(), SqlType::Numeric { precision: 12, scale: 2 }),
        ("d".to_owned(), SqlType::Date),
        ("c".to_owned(), SqlType::Char(3)),
        ("u".to_owned(), SqlType::Uuid),
    ];
    let mut reader = CopyReader::new("COPY t", columns, CopyOptions::new(TEXT), TextStyle::DEFAULT).unwrap();
    reader.push(b"1.5\t1970-01-02\tx\ta0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11\n").unwrap();
    reader.finish().unwrap();
    let batch = reader.next_batch().unwrap().columns;
    assert_eq!(batch[0].as_primitive::<Decimal128Type>().value(0), 150);
    assert_eq!(batch[1].as_primitive::<Date32Type>().value(0), 1);
    assert_eq!(batch[2].as_string_view().value(0), "x  ");
    assert_eq!(batch[3].as_fixed_size_binary().value(0)[0], 0xa0);
}

#[test]
fn strings_have_the_length_of_their_columns() {
    let seed = Random::from_entropy().next_u64();
    println!("seed {seed}");
    let mut random = Random::seeded(seed);
    let types = [1, 3, 12, 13, 20, 32, 33, 60].map(SqlType::Char);
    let types =
        [&types[..], &[SqlType::Varchar(Some(7)), SqlType::Varchar(Some(20)), SqlType::Text]].concat();
    let columns: Vec<_> = types.iter().map(|ty| (ty.to_string(), *ty)).collect();
    for _ in 0..if cfg!(miri) { 1 } else { 200 } {
        let rare = random.uniform(2, 30);
        let (mut file, mut expected) = (String::new(), Vec::new());
        for _ in 0..random.uniform(1, 60) {
            for (at, ty) in types.iter().enumerate() {
                let most = match ty {
                    SqlType::Char(length) | SqlType::Varchar(Some(length)) => i64::from(*length),
                    _ => 50,
                };
                let character = |random: &mut Random| match random.uniform(0, rare) {
                    0 => 'ü',
                    1 => '京',
                    2 => ' ',
                    _ => char::from(b'a' + random.uniform(0, 25) as u8),
                };
                let field: String = (0..random.uniform(0, most)).map(|_| character(&mut random)).collect();
                let is_quoted = random.uniform(0, 2 * rare) == 0;
                file += if at > 0 { "," } else { "" };
                file += &if is_quoted { format!("\"{field}\"") } else { field.clone() };
                expected.push(match ty {
                    _ if field.is_empty() && !is_quoted => None,
                    SqlType::Char(length) => Some(firn_base::text::fit_char(&field, *length).unwrap()),
                    _ => Some(field),
                });
            }
            file.push('\n');
        }
        let mut reader =
            CopyReader::new("COPY t", columns.clone(), CopyOptions::new(CSV), TextStyle::DEFAULT).unwrap();
        reader.set_chunk_bytes(random.uniform(1, 20_000) as usize);
        reader.push(file.as_bytes()).unwrap();
        reader.finish().unwrap();
        let mut read = Vec::new();
        while let Some(batch) = reader.next_batch() {
            for row in 0..batch.rows {
                for column in &batch.columns {
                    let strings = column.as_string_view();
                    read.push(strings.is_valid(row).then(|| strings.value(row).to_owned()));
                }
            }
        }
        assert_eq!(read, expected, "{file:?}");
    }
}

#[test]
fn what_is_written_reads_back() {
    let rows = [
        vec![Value::Integer(1), Value::Text("a\tb\nc\\d\r\"e\",|".to_owned())],
        vec![Value::Null, Value::Null],
        vec![Value::Integer(-1), Value::Text(String::new())],
        vec![Value::Integer(2), Value::Text("\\N".to_owned())],
        vec![Value::Integer(3), Value::Text("\\.".to_owned())],
    ];
    let mut variants = vec![CopyOptions::new(TEXT), CopyOptions::new(CSV)];
    variants.push(CopyOptions { delimiter: b'|', header: CopyHeader::Match, ..CopyOptions::new(TEXT) });
    variants.push(CopyOptions { delimiter: b'|', escape: b'\\', ..CopyOptions::new(CSV) });
    variants.push(CopyOptions { force_quote: vec![true, true], quote: b'\'', ..CopyOptions::new(CSV) });
    for options in variants {
        let file = file_of(&columns(), &options, &rows);
        let back = read(&options, &file, 3).unwrap();
        for (row, (number, text)) in rows.iter().zip(back) {
            assert_eq!(row[0], number.map_or(Value::Null, Value::Integer), "{options:?}");
            assert_eq!(row[1], text.map_or(Value::Null, Value::Text), "{options:?}");
        }
    }
}

#[test]
fn files_look_like_those_of_postgres() {
    let written = |options: CopyOptions, row: &[Value]| {
        String::from_utf8(file_of(&columns(), &options, &[row.to_vec()])).unwrap()
    };
    let row = [Value::Null, Value::Text("a,\"b\"\t".to_owned())];
    assert_eq!(written(CopyOptions::new(TEXT), &row), "\\N\ta,\"b\"\\t\n");
    let header = CopyOptions { header: CopyHeader::Yes, ..CopyOptions::new(CSV) };
    assert_eq!(written(header, &row), "a,b\n,\"a,\"\"b\"\"\t\"\n");
}

#[test]
fn options_that_could_not_be_read_back_are_refused() {
    let state = |options: CopyOptions| options.check().unwrap_err().state();
    let invalid = SqlState::INVALID_PARAMETER_VALUE;
    assert_eq!(state(CopyOptions { delimiter: b'a', ..CopyOptions::new(TEXT) }), invalid);
    assert_eq!(state(CopyOptions { delimiter: b'"', ..CopyOptions::new(CSV) }), invalid);
    let unsupported = SqlState::FEATURE_NOT_SUPPORTED;
    assert_eq!(state(CopyOptions { null: "a,b".to_owned(), ..CopyOptions::new(CSV) }), unsupported);
    assert_eq!(state(CopyOptions { null: "a\"b".to_owned(), ..CopyOptions::new(CSV) }), unsupported);
    assert_eq!(state(CopyOptions { delimiter: b'\n', ..CopyOptions::new(CSV) }), invalid);
}

#[test]
fn a_record_of_nothing_but_delimiters_is_one_with_too_many_fields() {
    if cfg!(miri) {
        return;
    }
    let long = ",".repeat(6 << 20);
    let file = format!("1,x\n{long}\n2,y\r\n");
    let stop = CopyOptions::new(CSV);
    let error = read(&stop, file.as_bytes(), 1 << 20).unwrap_err();
    assert_eq!(error.message(), "extra data after last expected column");
    assert!(error.context().unwrap().starts_with("COPY t, line 2: \",,,"));
    let ignore = CopyOptions { on_error: OnError::Ignore, ..stop };
    let rows = read(&ignore, file.as_bytes(), 1 << 20).unwrap();
    assert_eq!(rows, [(Some(1), Some("x".to_owned())), (Some(2), Some("y".to_owned()))]);
    let matching = CopyOptions { header: CopyHeader::Match, ..ignore };
    let error = read(&matching, format!("{long}\n1,x\n").as_bytes(), 1 << 20).unwrap_err();
    assert_eq!(error.message(), "wrong number of fields in header line: got 6291457, expected 2");
}

/// The header of PostgreSQL's binary format, without flags and extension.
const HEADER: &[u8; 19] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";

fn binary(parts: &[&[u8]]) -> Vec<u8> {
    [&[&HEADER[..]], parts].concat().concat()
}

#[test]
fn binary_files_are_read_however_they_are_cut() {
    let one: &[u8] = b"\0\x02\0\0\0\x04\0\0\0\x07\0\0\0\x05gr\xc3\xbcn";
    let nulls: &[u8] = b"\0\x02\xff\xff\xff\xff\xff\xff\xff\xff";
    let end: &[u8] = b"\xff\xff";
    let rows = [(Some(7), Some("grün".to_owned())), (None, None), (Some(7), Some("grün".to_owned()))];
    let options = CopyOptions::new(BINARY);
    let extended = b"PGCOPY\n\xff\r\n\0\0\0\0\x01\0\0\0\x03abc\xff\xff";
    for piece in [1, 2, 3, 7, 1000] {
        assert_eq!(read(&options, &binary(&[one, nulls, one, end]), piece).unwrap(), rows);
        assert_eq!(read(&options, &binary(&[one, nulls, one]), piece).unwrap(), rows, "no trailer");
        assert_eq!(read(&options, &binary(&[end]), piece).unwrap(), []);
        assert_eq!(read(&options, extended, piece).unwrap(), []);
    }
}

#[test]
fn errors_in_binary_files_name_row_and_column() {
    let options = CopyOptions::new(BINARY);
    let one: &[u8] = b"\0\x02\0\0\0\x04\0\0\0\x07\0\0\0\x01x";
    let failure = |file: &[u8]| {
        let error = read(&options, file, 5).unwrap_err();
        format!("{} {} | {}", error.state(), error.message(), error.context().unwrap_or_default())
    };
    let flags = |flags: &[u8]| failure(&[b"PGCOPY\n\xff\r\n\0", flags, b"\0\0\0\0"].concat());
    assert_eq!(failure(b"1\tone\n2\ttwo\n3\tthree\n"), "22P04 COPY file signature not recognized | ");
    assert_eq!(failure(b""), "22P04 COPY file signature not recognized | ");
    assert_eq!(failure(&HEADER[..15]), "22P04 invalid COPY file header (missing length) | ");
    assert_eq!(flags(b"\0\x01\0\0"), "22P04 invalid COPY file header (WITH OIDS) | ");
    assert_eq!(flags(b"\x80\0\0\0"), "22P04 unrecognized critical flags in COPY file header | ");
    assert_eq!(
        failure(b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\x09ab"),
        "22P04 invalid COPY file header (wrong length) | "
    );
    assert_eq!(
        failure(&binary(&[one, b"\0\x01\0\0\0\x04\0\0\0\x07"])),
        "22P04 row field count is 1, expected 2 | COPY t, line 2"
    );
    assert_eq!(
        failure(&binary(&[one, one, &one[..9]])),
        "22P04 unexpected EOF in COPY data | COPY t, line 3"
    );
    assert_eq!(
        failure(&binary(&[one, b"\0\x02\0\0\0\x04\0\0\0\x07\xff\xff\xff\xfe"])),
        "22P04 invalid field size | COPY t, line 2, column b"
    );
    assert_eq!(
        failure(&binary(&[one, b"\xff\xff", one])),
        "22P04 received copy data after EOF marker | COPY t, line 1"
    );
    assert_eq!(
        failure(&binary(&[b"\0\x02\0\0\0\x02\0\x07\xff\xff\xff\xff"])),
        "22P03 incorrect binary data format for type integer | COPY t, line 1, column a"
    );
    assert_eq!(
        failure(&binary(&[b"\0\x02\xff\xff\xff\xff\0\0\0\x01\xff"])),
        "22021 invalid byte sequence for encoding \"UTF8\": 0xff | COPY t, line 1, column b"
    );
}

#[test]
fn rows_that_say_that_they_are_too_long_are_refused_before_they_come() {
    let one: &[u8] = b"\0\x02\0\0\0\x04\0\0\0\x07\0\0\0\x01x";
    let error_of = |row: &[u8]| {
        let error = read(&CopyOptions::new(BINARY), &binary(&[one, row]), 7).unwrap_err();
        format!("{} {} | {}", error.state(), error.message(), error.context().unwrap_or_default())
    };
    let too_long = "54000 a record is longer than 256 MiB | COPY t, line 2, column";
    assert_eq!(error_of(b"\0\x02\x7f\xff\xff\xff"), format!("{too_long} a"));
    assert_eq!(error_of(b"\0\x02\0\0\0\x04\0\0\0\x07\x10\0\0\0"), format!("{too_long} b"));
    // A row that is just short enough is accepted.
    let fits: &[u8] = b"\0\x02\0\0\0\x04\0\0\0\x07\x0f\xff\xff\xf2";
    assert_eq!(error_of(fits), "22P04 unexpected EOF in COPY data | COPY t, line 2");
}

/// Every type is written as binary, and read back with the result of the text format.
#[test]
fn binary_files_hold_values_of_every_type() {
    let style = TextStyle::DEFAULT;
    let cases = [
        (SqlType::Boolean, "t"),
        (SqlType::SmallInt, "-3"),
        (SqlType::Integer, "7"),
        (SqlType::BigInt, "-9000000000"),
        (SqlType::Real, "0.5"),
        (SqlType::Double, "1e300"),
        (SqlType::Numeric { precision: 12, scale: 2 }, "-12345.67"),
        (SqlType::NUMERIC, "1.5"),
        (SqlType::Text, "снег"),
        (SqlType::Varchar(Some(4)), "firn"),
        (SqlType::Char(3), "x  "),
        (SqlType::Bytea, "\\x00ff"),
        (SqlType::Date, "1999-12-31"),
        (SqlType::Time, "23:59:59.999999"),
        (SqlType::Timestamp, "2024-02-29 12:30:00"),
        (SqlType::TimestampTz, "2024-02-29 12:30:00+00"),
        (SqlType::Interval, "1 mon 2 days 00:00:03"),
        (SqlType::Uuid, "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    ];
    let columns: Vec<_> = cases.iter().map(|(ty, _)| (ty.to_string(), *ty)).collect();
    let types: Vec<SqlType> = cases.iter().map(|(ty, _)| *ty).collect();
    let row: Vec<Value> = cases
        .iter()
        .map(|(ty, text)| firn_base::text::parse_any(text, (*ty).into(), &style).unwrap())
        .collect();
    let nulls = vec![Value::Null; row.len()];
    let batches = |format, file: &[u8]| -> Vec<Vec<ArrayRef>> {
        let mut reader = CopyReader::new("COPY t", columns.clone(), CopyOptions::new(format), style).unwrap();
        reader.push(file).unwrap();
        reader.finish().unwrap();
        std::iter::from_fn(|| reader.next_batch()).map(|batch| batch.columns).collect()
    };
    // Enough for several rounds of the writer, with every other value missing somewhere.
    let mut random = Random::seeded(7);
    let rows: Vec<Vec<Value>> = [row.clone(), nulls]
        .into_iter()
        .chain((0..3000).map(|_| {
            let or_null = |value: &Value| if random.uniform(0, 1) == 0 { Value::Null } else { value.clone() };
            row.iter().map(or_null).collect()
        }))
        .collect();
    let of_text = batches(TEXT, &file_of(&columns, &CopyOptions::new(TEXT), &rows));

    let writer = CopyWriter::new(columns.clone(), CopyOptions::new(BINARY), style).unwrap();
    let mut file = Vec::new();
    writer.write_header(&mut file);
    let header = file.len();
    for batch in &of_text {
        writer.write_rows(batch, batch[0].len(), &mut file);
    }
    let trailer = file.len();
    writer.write_trailer(&mut file);
    let expected: Vec<Vec<u8>> = rows.iter().map(|row| binary_row(row, &types)).collect();
    assert!(file[header..trailer] == expected.concat(), "rows are written as their values are");
    assert_eq!(batches(BINARY, &file), of_text);

    assert_eq!(end_of_first_row(&file), header + expected[0].len());
    assert_eq!(end_of_first_row(&file[header..]), expected[0].len());
    assert_eq!(end_of_first_row(&file[trailer..]), 2);
}

/// A row value by value.
fn binary_row(row: &[Value], types: &[SqlType]) -> Vec<u8> {
    let mut bytes = (row.len() as i16).to_be_bytes().to_vec();
    for (value, ty) in row.iter().zip(types) {
        let mut encoded = Vec::new();
        firn_base::binary::encode(value, *ty, &mut encoded);
        let length = if value.is_null() { -1 } else { encoded.len() as i32 };
        bytes.extend(length.to_be_bytes());
        bytes.extend(encoded);
    }
    bytes
}

#[test]
fn binary_batches_have_a_bounded_size() {
    let mut reader = reader(CopyOptions::new(BINARY));
    reader.push(HEADER).unwrap();
    for _ in 0..BATCH_ROWS + 1 {
        reader.push(b"\0\x02\xff\xff\xff\xff\xff\xff\xff\xff").unwrap();
    }
    reader.finish().unwrap();
    let sizes: Vec<usize> = std::iter::from_fn(|| reader.next_batch()).map(|batch| batch.rows).collect();
    assert_eq!(sizes, [BATCH_ROWS, 1]);
}
