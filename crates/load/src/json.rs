//! JSON lines: an object on every line, whose keys are the names of columns.
//!
//! The `serde_json` crate finds the ends of values and unescapes strings. Values keep their text from the
//! file and are read as literals of their columns' types. So no digit of a number is lost, and errors
//! name line, column and value. Arrays and objects within a row are text as in the file.

use crate::chunk::{Chunk, Cutter};
use crate::columns::ColumnBuilder;
use crate::fault::{Fault, record_context};
use crate::options::{CopyOptions, OnError};
use crate::reader::Target;
use crate::records::{self, Batch, END_MARKER, RowLines};
use crate::sniff::SAMPLE_BYTES;
use crate::source::MARK;
use crate::structure::{Dialect, Quoting};
use firn_base::binary::utf8;
use firn_base::{Error, Result, SqlState, SqlType, TextStyle, text};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::collections::HashMap;
use std::fmt;
use std::ops::Range;

/// Reads chunks of lines.
pub(crate) struct JsonReader {
    target: Target,
    style: TextStyle,
    on_error: OnError,
    /// Whether keys that name no column are skipped.
    other_keys: bool,
    /// Whether a line `\.` ends the data.
    ends_at_marker: bool,
    /// The columns to read.
    wanted: Vec<usize>,
    /// The positions of keys in `wanted`; `None` for columns that are not read.
    places: HashMap<String, Option<usize>>,
    chunk_bytes: usize,
}

impl JsonReader {
    pub fn new(target: Target, options: &CopyOptions, style: TextStyle) -> JsonReader {
        let chunk_bytes = records::chunk_bytes(&target);
        let wanted = (0..target.columns.len()).collect();
        let CopyOptions { on_error, other_keys, ends_at_marker, .. } = *options;
        let places = HashMap::new();
        let mut reader =
            JsonReader { target, style, on_error, other_keys, ends_at_marker, wanted, places, chunk_bytes };
        reader.place_keys();
        reader
    }

    /// Reads these columns only.
    pub fn project(&mut self, columns: Vec<usize>) {
        self.wanted = columns;
        self.place_keys();
    }

    fn place_keys(&mut self) {
        let place = |column: usize| self.wanted.iter().position(|wanted| *wanted == column);
        let columns = self.target.columns.iter().enumerate();
        self.places = columns.map(|(column, (name, _))| (name.clone(), place(column))).collect();
    }

    pub fn chunk_bytes(&self) -> usize {
        self.chunk_bytes
    }

    pub fn set_chunk_bytes(&mut self, bytes: usize) {
        self.chunk_bytes = bytes.max(1);
    }

    /// The cutter of its files.
    pub fn cutter(&self) -> Cutter {
        // There is no delimiter; line feeds within strings are written as escapes.
        Cutter::new(Dialect { delimiter: b'\n', quoting: Quoting::Never }, self.chunk_bytes)
    }

    /// The name of the source in errors.
    pub fn place(&self) -> &str {
        &self.target.place
    }

    fn builders(&self) -> Vec<ColumnBuilder> {
        self.wanted
            .iter()
            .map(|column| ColumnBuilder::new(self.target.columns[*column].1, self.style))
            .collect()
    }

    /// Reads a chunk. The first error ends it, or the lines with errors are left out.
    pub fn read(&self, chunk: &Chunk) -> Result<Batch> {
        let mut builders = self.builders();
        // No value can be removed from a column again, so a line that may fail is first appended to a trial column.
        let mut trial = (self.on_error == OnError::Ignore).then(|| self.builders());
        let mut fields = vec![None; self.wanted.len()];
        let mut rows = 0;
        let mut placed = RowLines::from(chunk.lines_before + 1);
        let mut rejected = Vec::new();
        let mut ended = false;
        for (number, mut record) in lines(chunk.text()) {
            if chunk.is_first && record.start == 0 && chunk.text().starts_with(MARK) {
                record.start = MARK.len();
            }
            let line = &chunk.text()[record.clone()];
            if self.ends_at_marker && is_end(line) {
                ended = true;
                break;
            }
            let read = self.fields(line, &mut fields).map_err(|error| (error, None)).and_then(|()| {
                if let Some(trial) = &mut trial {
                    self.append(&fields, trial)?;
                }
                self.append(&fields, &mut builders)
            });
            match read {
                Ok(()) => {
                    placed.note(rows, chunk.lines_before + number);
                    rows += 1;
                }
                Err((error, field)) => {
                    let fault = Fault { record, field, error, is_of_header: false };
                    let (place, line) = (self.place(), chunk.lines_before + number);
                    match self.on_error {
                        OnError::Stop => return Err(fault.into_error(place, line, chunk.text())),
                        OnError::Ignore => rejected.push(fault.into_rejected(place, line, chunk.text())),
                    }
                }
            }
        }
        let columns = builders.iter_mut().map(ColumnBuilder::finish).collect();
        Ok(Batch { columns, rows, kept: None, lines: placed, rejected, ended })
    }

    /// Finds the values of a line for the columns that are read.
    fn fields<'l>(&self, line: &'l [u8], fields: &mut [Option<&'l RawValue>]) -> Result<()> {
        fields.fill(None);
        let mut unknown = None;
        let sink = |key: &str| match self.places.get(key) {
            Some(place) => *place,
            None => {
                unknown.get_or_insert_with(|| key.to_owned());
                None
            }
        };
        go_through(line, sink, |place, value| fields[place] = Some(value))?;
        match unknown {
            Some(key) if !self.other_keys => Err(Error::new(
                SqlState::UNDEFINED_COLUMN,
                format!("there is no column \"{key}\" to copy to"),
            )
            .with_hint("Name the columns to be read: COPY t (a, b) FROM …")),
            _ => Ok(()),
        }
    }

    /// Appends a row. An error is returned with the column and the value.
    fn append(
        &self,
        fields: &[Option<&RawValue>],
        builders: &mut [ColumnBuilder],
    ) -> std::result::Result<(), (Error, Option<(String, String)>)> {
        for ((field, builder), column) in fields.iter().zip(builders).zip(&self.wanted) {
            let Some(raw) = field.map(RawValue::get) else {
                builder.append_null();
                continue;
            };
            let with_place = |error, value: &str| {
                let name = self.target.columns[*column].0.clone();
                (error, Some((name, value.to_owned())))
            };
            match raw.as_bytes() {
                b"null" => builder.append_null(),
                [b'"', inner @ .., b'"'] if !inner.contains(&b'\\') => {
                    let value = &raw[1..raw.len() - 1];
                    builder.append(value).map_err(|error| with_place(error, value))?;
                }
                [b'"', ..] => {
                    let value = unescaped(raw).map_err(|error| with_place(error, raw))?;
                    builder.append(&value).map_err(|error| with_place(error, &value))?;
                }
                _ => builder.append(raw).map_err(|error| with_place(error, raw))?,
            }
        }
        Ok(())
    }
}

/// Whether a line is the one with which psql ends any data that it sends.
fn is_end(line: &[u8]) -> bool {
    line.strip_suffix(b"\r").unwrap_or(line) == END_MARKER
}

/// The lines of a chunk that are not blank, with their numbers from one, and without their ends.
fn lines(chunk: &[u8]) -> impl Iterator<Item = (u64, Range<usize>)> + '_ {
    let mut start = 0;
    let ends = memchr::memchr_iter(b'\n', chunk);
    (1..).zip(ends).filter_map(move |(number, end)| {
        let line = start..end;
        start = end + 1;
        (!chunk[line.clone()].trim_ascii().is_empty()).then_some((number, line))
    })
}

/// A string of JSON without quotes and escapes.
fn unescaped(raw: &str) -> Result<String> {
    let value: String = serde_json::from_str(raw).map_err(|error| {
        Error::new(SqlState::BAD_COPY_FILE_FORMAT, "a string that is no text").with_detail(sentence(&error))
    })?;
    utf8(value.as_bytes())?;
    Ok(value)
}

fn sentence(error: &serde_json::Error) -> String {
    // The line would always be 1.
    format!(
        "At column {}: {}.",
        error.column(),
        error.to_string().split(" at line ").next().unwrap_or_default()
    )
}

/// Iterates over the object of a line: `place` returns where the value of a key is stored, if it is read.
fn go_through<'l>(
    line: &'l [u8],
    place: impl FnMut(&str) -> Option<usize>,
    take: impl FnMut(usize, &'l RawValue),
) -> Result<()> {
    let line = utf8(line)?;
    let mut deserializer = serde_json::Deserializer::from_str(line);
    let read = deserializer.deserialize_map(Object { place, take }).and_then(|()| deserializer.end());
    read.map_err(|error| {
        let is_array = line.trim_start().starts_with('[');
        let hint = match is_array {
            true => "Write the elements of an array without brackets and commas, each on a line of its own.",
            false => "Every line has to hold one object and nothing else.",
        };
        Error::new(SqlState::BAD_COPY_FILE_FORMAT, "a line is no JSON object")
            .with_detail(sentence(&error))
            .with_hint(hint)
    })
}

/// Stores the values of an object that are read.
struct Object<P, T> {
    place: P,
    take: T,
}

impl<'l, P: FnMut(&str) -> Option<usize>, T: FnMut(usize, &'l RawValue)> Visitor<'l> for Object<P, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'l>>(mut self, mut map: A) -> std::result::Result<(), A::Error> {
        // If a key is repeated, the last value counts, as in PostgreSQL's jsonb.
        while let Some(place) = map.next_key_seed(Key(&mut self.place))? {
            match place {
                Some(place) => (self.take)(place, map.next_value()?),
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// Looks a key up while it is read.
struct Key<'p, P>(&'p mut P);

impl<'l, P: FnMut(&str) -> Option<usize>> DeserializeSeed<'l> for Key<'_, P> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'l>>(
        self,
        deserializer: D,
    ) -> std::result::Result<Option<usize>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<P: FnMut(&str) -> Option<usize>> Visitor<'_> for Key<'_, P> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> std::result::Result<Option<usize>, E> {
        Ok((self.0)(key))
    }
}

/// Infers the columns of a file from its beginning, up to [`SAMPLE_BYTES`] or the whole file. They are its keys in order of
/// appearance. The type is the first of `bigint`, `double precision` and `boolean` that all values have, else `text`.
pub fn sniff(file: &str, sample: &[u8], on_error: OnError) -> Result<Vec<(String, SqlType)>> {
    let mut sample = sample.to_vec();
    match memchr::memrchr(b'\n', &sample) {
        Some(end) if sample.len() == SAMPLE_BYTES => sample.truncate(end + 1),
        _ if sample.len() == SAMPLE_BYTES => sample.clear(),
        _ => sample.push(b'\n'),
    }
    let mut columns: Vec<(String, Option<SqlType>)> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for (number, line) in lines(&sample) {
        let (mut met, known) = (Vec::new(), columns.len());
        let mut names = Ok(());
        let place = |key: &str| {
            if names.is_ok() {
                names = utf8(key.as_bytes()).map(|_| ());
            }
            Some(places.get(key).copied().unwrap_or_else(|| {
                places.insert(key.to_owned(), columns.len());
                columns.push((key.to_owned(), None));
                columns.len() - 1
            }))
        };
        let line = &sample[line];
        let read = go_through(line, place, |place, value| met.push((place, type_of(value.get())))).and(names);
        match read {
            Ok(()) => {}
            Err(error) if on_error == OnError::Stop => {
                return Err(error.with_context(record_context(file, number, line)));
            }
            // It shows no type: it will be left out, or the key that is no name skipped.
            Err(_) => {
                if columns.len() > known {
                    columns.truncate(known);
                    places.retain(|_, place| *place < known);
                }
                continue;
            }
        }
        for (place, ty) in met {
            let known = &mut columns[place].1;
            *known = match (*known, ty) {
                (None, ty) | (ty, None) => ty,
                (Some(known), Some(ty)) if known == ty => Some(ty),
                (Some(SqlType::BigInt | SqlType::Double), Some(SqlType::BigInt | SqlType::Double)) => {
                    Some(SqlType::Double)
                }
                _ => Some(SqlType::Text),
            };
        }
    }
    Ok(columns.into_iter().map(|(name, ty)| (name, ty.unwrap_or(SqlType::Text))).collect())
}

/// The type that a value looks like; NULL fits any.
fn type_of(raw: &str) -> Option<SqlType> {
    match raw.as_bytes()[0] {
        b'n' => None,
        b't' | b'f' => Some(SqlType::Boolean),
        b'"' | b'{' | b'[' => Some(SqlType::Text),
        _ if text::parse_integer::<i64>(raw, SqlType::BigInt).is_ok() => Some(SqlType::BigInt),
        // The digits of an integer that is too long must not be lost.
        _ if text::parse_double(raw).is_ok() && (raw.len() < 19 || raw.contains(['.', 'e', 'E'])) => {
            Some(SqlType::Double)
        }
        _ => Some(SqlType::Text),
    }
}
