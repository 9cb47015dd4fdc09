//! Files of rows, CSV and JSON lines, as tables: read by the code of COPY, and of each row the columns that are used.
//!
//! A condition reduces reading in two ways. Chunks that cannot have rows which satisfy it, according to the zone maps of
//! earlier statements ([`super::zones`]), are not read at all. Of the others its columns are read first, and the other columns
//! only for rows that satisfy it.

use super::condition::{Condition, Test};
use super::headers::FileColumns;
use super::names::{self, Names};
use super::version::FileVersion;
use super::zones::{ChunkZones, Key, MOST_GATHERED_BYTES, Reading, Totals, ZoneMaps, Zones, bounds_of};
use super::{AskedCsv, Kind, changed, file_error, no_columns};
use arrow::array::{ArrayRef, BooleanArray};
use arrow::compute::filter;
use firn_base::pipe;
use firn_base::sync::Arc;
use firn_base::{Error, Representation, Result, SqlState, SqlType, Type};
use firn_executor::arrays::vector_of;
use firn_load::encoding::{Decoded, Encoding};
use firn_load::sniff::{self, SAMPLE_BYTES, Sniffed, sniff};
use firn_load::source::MARK;
use firn_load::{
    Batch, CopyHeader, CopyOptions, CopyReader, Extent, Feed, OnError, RowFormat, WIDTH_ROUTINE, json, source,
};
use firn_vector::Chunk;
use firn_vector::selection::MOST_ROWS;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// The usual limit on the lines of a title.
const MOST_TITLE_LINES: u64 = 10;

/// Examines the beginnings of files. The columns are those of the first file that has any; if that has only a
/// header, the types and the format are inferred from the first file that has rows.
pub(super) fn look<'p>(
    paths: impl Iterator<Item = &'p Path>,
    asked: &AskedCsv,
    kind: Kind,
) -> Result<Looked<'p>> {
    let mut named: Option<(&Path, Sniffed)> = None;
    let mut blank: Option<(&Path, Sniffed)> = None;
    let mut empty: Option<Error> = None;
    for path in paths {
        match look_at(path, asked, kind)? {
            Look::Nothing(why) => empty = empty.or(Some(no_columns(path, why))),
            Look::Blank(sniffed) => blank = blank.or(Some((path, sniffed))),
            Look::Header(sniffed) => named = named.or(Some((path, sniffed))),
            Look::Rows(sniffed) => {
                let (path, sniffed) = match named {
                    Some((first, named)) => (first, typed(named, sniffed)),
                    None => (path, sniffed),
                };
                return as_asked(path, sniffed, asked);
            }
        }
    }
    match (named.or(blank), empty) {
        (Some((path, sniffed)), _) => as_asked(path, sniffed, asked),
        (None, empty) => Err(empty.expect("a pattern matches some file")),
    }
}

/// The inferred format of several files.
pub(super) struct Looked<'p> {
    /// The file that has the columns.
    pub path: &'p Path,
    /// Their format.
    pub options: CopyOptions,
    /// Their columns.
    pub columns: Vec<(String, Type)>,
}

/// The information in the beginning of a file.
enum Look {
    /// Not even columns, and why.
    Nothing(&'static str),
    /// No format. It still has columns if they are given, or if blank lines are its rows.
    Blank(Sniffed),
    /// A header that names columns, and no rows.
    Header(Sniffed),
    Rows(Sniffed),
}

fn look_at(path: &Path, asked: &AskedCsv, kind: Kind) -> Result<Look> {
    let known = &asked.known;
    let failed = |error| file_error(path, &error);
    let mut sample = Vec::new();
    let file = pipe::open(path).map_err(failed)?;
    let mut source = Decoded::new(text(&file).map_err(failed)?, known.encoding).take(SAMPLE_BYTES as u64);
    source.read_to_end(&mut sample).map_err(failed)?;
    let sniffed = match kind {
        Kind::Json => {
            let columns = match &known.columns {
                Some(columns) => columns.clone(),
                None if asked.ignores_errors => json::sniff(&place(path), &sample, OnError::Ignore)?,
                None => json::sniff(&place(path), &sample, OnError::Stop)?,
            };
            let options =
                CopyOptions { other_keys: true, ends_at_marker: false, ..CopyOptions::new(RowFormat::Json) };
            Sniffed { options, columns }
        }
        _ => sniff(&sample, known),
    };
    sniffed.options.check()?;
    if sniffed.options.header == CopyHeader::Yes && known.columns.is_none() {
        sniff::check_header(&place(path), &sample, &sniffed.options)?;
    }
    let has_rows = match kind {
        Kind::Json => !sample.trim_ascii().is_empty(),
        _ => sniff::has_rows(&sample, &sniffed.options),
    };
    let names_columns = || {
        // The last line may lack its end.
        let lines = [&sample[..], b"\n"].concat();
        sniffed.options.header == CopyHeader::Yes
            && sniff::header(&lines, &sniffed.options).is_some_and(|header| header.is_named.contains(&true))
    };
    match sniffed.columns.is_empty() {
        true if sample.is_empty() => Ok(Look::Nothing("it is empty")),
        true if sample.len() < SAMPLE_BYTES => Ok(Look::Nothing("no row has any")),
        true => {
            let read = if kind == Kind::Json { "read_json('file.json'" } else { "read_csv('file.csv'" };
            Err(no_columns(path, "no record ends in its first megabyte")
                .with_hint(format!("Give its columns: {read}, columns => 'id bigint, name text').")))
        }
        false if has_rows => Ok(Look::Rows(sniffed)),
        false if names_columns() => Ok(Look::Header(sniffed)),
        false => Ok(Look::Blank(sniffed)),
    }
}

/// The columns that a header names, with types from another file whose header names them too.
fn typed(named: Sniffed, other: Sniffed) -> Sniffed {
    let column =
        |(name, _): &(String, SqlType)| other.columns.iter().find(|(found, _)| found == name).cloned();
    match named.columns.iter().map(column).collect::<Option<Vec<_>>>() {
        Some(columns) if named.options.header == other.options.header => {
            Sniffed { options: other.options, columns }
        }
        _ => named,
    }
}

/// The line that an error in a file names.
fn line_of(path: &Path, context: &str) -> Option<u64> {
    let line = context.strip_prefix(&place(path))?.strip_prefix(", line ")?;
    line.split(|character: char| !character.is_ascii_digit()).next()?.parse().ok()
}

/// The inferred format, with the given types and the treatment of errors.
fn as_asked<'p>(path: &'p Path, sniffed: Sniffed, asked: &AskedCsv) -> Result<Looked<'p>> {
    let mut options = sniffed.options;
    if asked.ignores_errors {
        options.on_error = OnError::Ignore;
    }
    let columns = match &asked.columns {
        Some(columns) => columns.clone(),
        None => sniffed.columns.into_iter().map(|(name, ty)| (name, Type::from(ty))).collect(),
    };
    let mut looked = Looked { path, options, columns };
    for (name, ty) in &asked.types {
        let Some((_, found)) = looked.columns.iter_mut().find(|(column, _)| column == name) else {
            let message = format!("file \"{}\" has no column \"{name}\"", path.display());
            let known: Vec<&str> = looked.columns.iter().map(|(column, _)| column.as_str()).collect();
            return Err(Error::new(SqlState::UNDEFINED_COLUMN, message)
                .with_hint(format!("Its columns are {}.", known.join(", "))));
        };
        *found = *ty;
    }
    Ok(looked)
}

/// The bytes of a file from its beginning, whatever its position, decompressed and without the byte order mark.
pub(super) fn text(file: &File) -> std::io::Result<source::Source> {
    let mut file = file.try_clone()?;
    file.rewind()?;
    let mut text = source::watched(file, |_| (), || false)?;
    let mut begin = Vec::with_capacity(MARK.len());
    (&mut text).take(MARK.len() as u64).read_to_end(&mut begin)?;
    Ok(match begin == MARK {
        true => text,
        false => Box::new(std::io::Cursor::new(begin).chain(text)),
    })
}

/// The offset of the text of a file that is not compressed. The file is positioned there afterwards.
fn text_begins(file: &mut File) -> std::io::Result<u64> {
    let mut begin = Vec::with_capacity(MARK.len());
    file.take(MARK.len() as u64).read_to_end(&mut begin)?;
    file.seek(SeekFrom::Start(if begin == MARK { MARK.len() as u64 } else { 0 }))
}

fn place(path: &Path) -> String {
    format!("file \"{}\"", path.display())
}

/// The rows of files, one after another.
pub(super) struct Lines {
    /// The file from which the columns were inferred.
    pub first: PathBuf,
    /// The files to read.
    pub paths: Vec<PathBuf>,
    pub reading: Arc<Reading>,
    /// The columns whose types were given and not inferred.
    pub given: Vec<String>,
    pub zones: ZoneMaps,
    /// The number of columns of the table: those of the first file.
    pub width: usize,
    /// The columns to read, and their representations.
    pub wanted: Vec<(usize, Representation)>,
    /// Whether the names of files are requested in addition.
    pub names: Option<Names>,
    /// The condition on rows, as far as it uses their columns alone.
    pub condition: Option<Condition>,
    /// The conditions on single columns.
    pub test: Option<Test>,
}

/// One of the files, while it is read.
struct OneFile<'p> {
    path: &'p Path,
    columns: FileColumns,
    /// Its version before it was read, if a change would be visible in it.
    version: Option<FileVersion>,
    /// Whether the columns were inferred from it.
    is_first: bool,
}

/// The result of the thread that has read a chunk of a file.
struct Digested {
    chunks: Vec<Chunk>,
    totals: Totals,
    zones: Option<ChunkZones>,
}

/// A function that takes rows.
pub(super) type Sink<'s> = &'s mut dyn FnMut(Chunk) -> Result<()>;

impl Lines {
    /// Reads the files on this number of threads.
    pub fn read(&self, threads: usize, sink: Sink<'_>) -> Result<()> {
        for path in &self.paths {
            let failed = |error| file_error(path, &error);
            // Header and rows are those of one file, which is opened once: another file may replace it at any time.
            let mut file = pipe::open(path).map_err(failed)?;
            let version = FileVersion::of_file(path, &file).map_err(failed)?;
            let version = Some(version).filter(FileVersion::is_settled);
            let is_first = *path == self.first;
            let columns = match is_first {
                true => FileColumns::of_first(&self.reading),
                false => FileColumns::of_other(path, &file, &self.reading, &self.order())?,
            };
            let one = OneFile { path, columns, version, is_first };
            file.rewind().map_err(failed)?;
            let is_text_itself = self.reading.options.encoding == Encoding::Utf8;
            match source::packing(&mut file).map_err(failed)? {
                None if is_text_itself => self.read_plain(&one, file, threads, sink)?,
                _ => {
                    // It cannot be read at given offsets.
                    let mut text = text(&file).map_err(failed)?;
                    self.read_chunks(&one, Feed::Whole(&mut *text), threads, None, sink)?;
                }
            }
        }
        Ok(())
    }

    /// Reads the needed chunks of a file that is not compressed, and keeps the zone maps that it gathers.
    fn read_plain(&self, one: &OneFile<'_>, mut file: File, threads: usize, sink: Sink<'_>) -> Result<()> {
        let path = one.path;
        let failed = |error| file_error(path, &error);
        let begin = text_begins(&mut file).map_err(failed)?;
        let end = file.metadata().map_err(failed)?.len();
        let mut rest = &file;
        let mut feed = match end {
            // Files that the system generates have this length.
            0 => Feed::Whole(&mut rest),
            _ => Feed::Stretch { file: &file, stretch: begin..end, watch: &|_| () },
        };
        let Some(version) = &one.version else {
            return self.read_chunks(one, feed, threads, None, sink);
        };
        let key = Key { file: version.clone(), reading: self.reading.clone() };
        let known = self.zones.get(&key);
        let extents;
        if let Some(known) = &known {
            if self.wanted.is_empty() && self.condition.is_none() && self.test.is_none() {
                return self.count(path, known, sink);
            }
            extents = self.candidates(known);
            feed = Feed::Extents { file: &file, begin, extents: &extents };
        }
        let mut gathered = Gathered { known, chunks: Vec::new(), bytes: 0 };
        let read = self.read_chunks(one, feed, threads, Some(&mut gathered), sink);
        let is_same = FileVersion::of_file(path, &file).is_ok_and(|now| now == key.file);
        match read {
            // Known extents are those of another version.
            _ if gathered.known.is_some() && !is_same => Err(changed(path)),
            read if is_same && gathered.has_news() => {
                let is_whole = gathered.known.is_none() && read.is_ok();
                self.zones.add(&key, gathered.chunks, is_whole);
                read
            }
            read => read,
        }
    }

    /// Returns as many rows without columns as a file has.
    fn count(&self, path: &Path, known: &Zones, sink: Sink<'_>) -> Result<()> {
        for chunk in 0..known.extents().len() {
            let rows = known.rows(chunk);
            self.zones.count(Totals { rows: rows as u64, ..Totals::default() });
            self.chunks(&[], rows, path).into_iter().try_for_each(&mut *sink)?;
        }
        Ok(())
    }

    /// The chunks that may have rows which satisfy the condition. A chunk is skipped only if all columns that would be read of
    /// it could be read before. So an error is found whether or not the file was read before.
    fn candidates(&self, known: &Zones) -> Vec<Extent> {
        let Some(test) = &self.test else { return known.extents().to_vec() };
        let candidates = match self.condition.as_ref().filter(|_| self.has_sieve()) {
            Some(condition) => known.candidates(test, &condition.columns),
            None => known.candidates(test, &self.order()),
        };
        let passed_over = (0..candidates.len()).filter(|chunk| !candidates[*chunk]);
        let rows_passed_over = passed_over.map(|chunk| known.rows(chunk) as u64).sum();
        self.zones.count(Totals { rows_passed_over, ..Totals::default() });
        let kept = known.extents().iter().zip(&candidates).filter(|(_, kept)| **kept);
        kept.map(|(extent, _)| *extent).collect()
    }

    /// Whether of rows outside the condition only its columns are read. Lines of JSON are read as a whole.
    fn has_sieve(&self) -> bool {
        self.condition.is_some() && self.reading.options.format == RowFormat::Csv && !self.leaves_rows_out()
    }

    /// Whether rows that cannot be read are left out. Then all columns of a file are read: the set of rows must not depend on
    /// which columns a statement uses.
    fn leaves_rows_out(&self) -> bool {
        self.reading.options.on_error == OnError::Ignore
    }

    /// The columns of the table in the order in which they are read: those of the condition first.
    fn order(&self) -> Vec<usize> {
        let mut order = self.condition.as_ref().map_or(Vec::new(), |condition| condition.columns.clone());
        let others = self.wanted.iter().map(|(column, _)| *column).filter(|column| !order.contains(column));
        let others: Vec<usize> = others.collect();
        order.extend(others);
        order
    }

    /// Reads chunks of a file, and gathers their zones if these can be kept.
    fn read_chunks(
        &self,
        one: &OneFile<'_>,
        feed: Feed<'_>,
        threads: usize,
        mut gathered: Option<&mut Gathered>,
        sink: Sink<'_>,
    ) -> Result<()> {
        let Reading { options, style, chunk_bytes, .. } = &*self.reading;
        let OneFile { path, columns, is_first, .. } = one;
        let mut reader = CopyReader::new(&place(path), columns.columns.clone(), options.clone(), *style)?;
        let mut order = self.order();
        if self.leaves_rows_out() {
            let others = (0..self.width).filter(|column| !order.contains(column));
            let others: Vec<usize> = others.filter(|column| columns.has(*column)).collect();
            order.extend(others);
        }
        reader.project(columns.places(&order));
        if let Some(condition) = self.condition.as_ref().filter(|_| self.has_sieve()) {
            reader.set_sieve(condition.sieve());
        }
        if let Some(bytes) = chunk_bytes {
            reader.set_chunk_bytes(*bytes);
        }
        let gathers = gathered.is_some();
        let known = gathered.as_ref().and_then(|gathered| gathered.known.clone());
        let digest = |extent: Extent, batch: Batch| {
            self.digest(path, extent, batch, &order, gathers, known.as_deref())
        };
        let failed = |error: &std::io::Error| file_error(path, error);
        let read = reader.read_chunks(feed, &failed, threads, &digest, &mut |digested| {
            let Digested { chunks, totals, zones } = digested?;
            if let Some(gathered) = &mut gathered {
                gathered.add(zones);
            }
            self.zones.count(totals);
            // Also if there are no rows, so that the sink can end the scan.
            chunks.into_iter().try_for_each(&mut *sink)
        });
        read.map_err(|error| self.explained(error, path, *is_first))
    }

    /// Digests a chunk whose columns have been read in that order.
    fn digest(
        &self,
        path: &Path,
        extent: Extent,
        read: Batch,
        order: &[usize],
        gathers: bool,
        known: Option<&Zones>,
    ) -> Result<Digested> {
        let Batch { mut columns, rows: in_all, kept, .. } = read;
        // Of columns after those of the sieve not all values have been read.
        let whole = match (&kept, &self.condition) {
            (Some(_), Some(condition)) => condition.columns.len(),
            _ => columns.len(),
        };
        let zones = gathers.then(|| {
            let unknown = order.iter().zip(&columns[..whole]);
            let unknown =
                unknown.filter(|(column, _)| !known.is_some_and(|known| known.knows(extent, **column)));
            let zones = unknown.filter_map(|(column, values)| Some((*column, bounds_of(values)?)));
            ChunkZones { extent, rows: in_all, columns: zones.collect() }
        });
        let mut rows = in_all;
        if let Some(kept) = kept {
            rows = kept.count_set_bits();
            let kept = BooleanArray::from(kept);
            for column in &mut columns[..whole] {
                *column = filter(column, &kept).map_err(|error| Error::internal(&error.to_string()))?;
            }
        }
        let column = |(wanted, representation): &(usize, Representation)| {
            let place = order.iter().position(|column| column == wanted).expect("what is wanted is read");
            (columns[place].clone(), *representation)
        };
        let columns: Vec<(ArrayRef, Representation)> = self.wanted.iter().map(column).collect();
        let totals =
            Totals { rows: rows as u64, rows_passed_over: (in_all - rows) as u64, bytes_read: extent.bytes };
        Ok(Digested { chunks: self.chunks(&columns, rows, path), totals, zones })
    }

    /// `rows` rows of a file as chunks, at least one.
    fn chunks(&self, columns: &[(ArrayRef, Representation)], rows: usize, path: &Path) -> Vec<Chunk> {
        let part = |from: usize| {
            let length = MOST_ROWS.min(rows - from);
            let part = |(array, representation): &(ArrayRef, Representation)| {
                vector_of(&array.slice(from, length), *representation)
            };
            names::chunk(self.names, columns.iter().map(part).collect(), length, path)
        };
        (0..rows.max(1)).step_by(MOST_ROWS).map(part).collect()
    }

    /// Adds a hint to an error in a file of which only the beginning was examined, or not even that.
    fn explained(&self, error: Error, path: &Path, is_first: bool) -> Error {
        let context = error.context().unwrap_or_default();
        let is_given = |name: &String| context.contains(&format!(", column {name}: "));
        let hint = match error.state() {
            _ if error.hint().is_some() => return error,
            SqlState::INVALID_TEXT_REPRESENTATION
            | SqlState::NUMERIC_VALUE_OUT_OF_RANGE
            | SqlState::INVALID_DATETIME_FORMAT
            | SqlState::DATETIME_FIELD_OVERFLOW
                if !self.given.iter().any(is_given) =>
            {
                let sample_part = match is_first {
                    true => "the file's first megabyte. If they are wrong for the rest of it",
                    false => {
                        "the first megabyte of the pattern's first file with rows. If they are wrong for other rows"
                    }
                };
                let read = match self.reading.options.format {
                    RowFormat::Json => "read_json('file.json'",
                    _ => "read_csv('file.csv'",
                };
                format!("The types of columns are inferred from {sample_part}, give others: {read}, types => 'price numeric').")
            }
            // The record has too few fields, or too many, and is where a title would be.
            SqlState::BAD_COPY_FILE_FORMAT
                if self.reading.options.format == RowFormat::Csv
                    && !self.reading.is_by_place
                    && line_of(path, context).is_some_and(|line| line <= self.title_lines())
                    && error.routine() == Some(WIDTH_ROUTINE) =>
            {
                "Lines before the header, or before the first row, can be skipped: read_csv('file.csv', skip => 2)."
                    .to_owned()
            }
            SqlState::BAD_COPY_FILE_FORMAT if line_of(path, context).is_some() => {
                let advice = match self.reading.options.format {
                    RowFormat::Json => "read_json('file.json', ignore_errors => true)",
                    _ => {
                        "read_csv('file.csv', ignore_errors => true). Delimiter and quotes are inferred from the file's beginning; if \
                         they are wrong, give others: delimiter => ';'"
                    }
                };
                format!("Rows that cannot be read can be skipped: {advice}.")
            }
            _ => return error,
        };
        error.with_hint(hint)
    }

    /// The last line of a file on which a title may be.
    fn title_lines(&self) -> u64 {
        self.reading.options.skip + MOST_TITLE_LINES
    }
}

/// The zones that a statement gathers of a file.
struct Gathered {
    /// The zones that were known before.
    known: Option<Arc<Zones>>,
    chunks: Vec<ChunkZones>,
    /// Their memory.
    bytes: usize,
}

impl Gathered {
    fn add(&mut self, zones: Option<ChunkZones>) {
        let Some(mut zones) = zones else { return };
        self.bytes += zones.bytes();
        if self.bytes > MOST_GATHERED_BYTES {
            // The extents alone are useful as well, and small.
            zones.columns.clear();
            self.chunks.iter_mut().for_each(|chunk| chunk.columns.clear());
        }
        self.chunks.push(zones);
    }

    fn has_news(&self) -> bool {
        self.known.is_none() || self.chunks.iter().any(|chunk| !chunk.columns.is_empty())
    }
}
