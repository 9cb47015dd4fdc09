//! Files of rows, CSV and JSON lines, as tables: read by the code of COPY, of each row the columns that are asked for.
//!
//! A condition spares reading in two ways. Chunks that cannot have rows which meet it, by what statements before have
//! found out ([`super::zones`]), are not read at all; of the others its columns are read first, and of the rest only the rows
//! that meet it.

use super::columns::Sink;
use super::condition::Condition;
use super::headers::FileColumns;
use super::names::{self, Names};
use super::version::FileVersion;
use super::zones::{ChunkZones, Key, MOST_GATHERED_BYTES, Reading, Zone, ZoneMaps, Zones};
use super::{AskedCsv, Kind, changed, file_error, no_columns};
use datafusion::arrow::array::{ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions};
use datafusion::arrow::compute::filter;
use datafusion::arrow::datatypes::SchemaRef;
use firn_base::pipe;
use firn_base::sync::Arc;
use firn_base::{Error, Result, SqlState, SqlType};
use firn_exec::error::from_datafusion;
use firn_load::encoding::{Decoded, Encoding};
use firn_load::sniff::{self, SAMPLE_BYTES, Sniffed, sniff};
use firn_load::source::MARK;
use firn_load::{
    Batch, CopyHeader, CopyOptions, CopyReader, EXTRA_DATA, Extent, Feed, MISSING_DATA, OnError, RowFormat,
    json, source,
};
use std::fmt::{self, Debug};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// So many lines a title has, mostly.
const MOST_TITLE_LINES: u64 = 10;

/// What the beginnings of files tell, and the file that has the columns. They are those of the first that has any; if that has nothing but a
/// header, their types, and how the files are written, are told from the first one that has rows.
pub(super) fn look<'p>(
    paths: impl Iterator<Item = &'p Path>,
    asked: &AskedCsv,
    kind: Kind,
) -> Result<(&'p Path, Sniffed)> {
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
                return Ok((path, as_asked(path, sniffed, asked)?));
            }
        }
    }
    match (named.or(blank), empty) {
        (Some((path, sniffed)), _) => Ok((path, as_asked(path, sniffed, asked)?)),
        (None, empty) => Err(empty.expect("a pattern matches some file")),
    }
}

/// What the beginning of a file tells.
enum Look {
    /// Not even columns, and why.
    Nothing(&'static str),
    /// Nothing of how files are written. It has columns for all that if they are known, or if lines without anything are its rows.
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
                .with_hint(format!("Say what its columns are: {read}, columns => 'id bigint, name text').")))
        }
        false if has_rows => Ok(Look::Rows(sniffed)),
        false if names_columns() => Ok(Look::Header(sniffed)),
        false => Ok(Look::Blank(sniffed)),
    }
}

/// The columns that a header names, as another file has them whose header names them too.
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

/// What was told, with types of some columns that are known, and what becomes of mistakes.
fn as_asked(path: &Path, mut sniffed: Sniffed, asked: &AskedCsv) -> Result<Sniffed> {
    if asked.ignores_errors {
        sniffed.options.on_error = OnError::Ignore;
    }
    for (name, ty) in &asked.types {
        let Some((_, found)) = sniffed.columns.iter_mut().find(|(column, _)| column == name) else {
            let message = format!("file \"{}\" has no column \"{name}\"", path.display());
            let known: Vec<&str> = sniffed.columns.iter().map(|(column, _)| column.as_str()).collect();
            return Err(Error::new(SqlState::UNDEFINED_COLUMN, message)
                .with_hint(format!("Its columns are {}.", known.join(", "))));
        };
        *found = *ty;
    }
    Ok(sniffed)
}

/// The bytes of a file from its beginning, wherever it stands, unpacked and without the mark.
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

/// Where the text of a file begins that is not packed. The file stands there afterwards.
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
    /// What names the files.
    pub pattern: String,
    /// The file that the columns were told from.
    pub first: PathBuf,
    /// Those to read.
    pub paths: Vec<PathBuf>,
    pub reading: Arc<Reading>,
    /// The columns whose types were not told from the files.
    pub given: Vec<String>,
    pub zones: ZoneMaps,
    /// All columns of the table, which are those of that file.
    pub columns: SchemaRef,
    /// Those to read.
    pub wanted: Vec<usize>,
    /// What they are.
    pub schema: SchemaRef,
    /// Whether the names of files are wanted besides.
    pub names: Option<Names>,
    pub condition: Option<Condition>,
}

/// One of the files, as it is read.
struct OneFile<'p> {
    path: &'p Path,
    columns: FileColumns,
    /// What it was before anything of it was read, if it cannot have changed since without a sign.
    version: Option<FileVersion>,
    /// Whether the columns were told from it.
    is_first: bool,
}

/// What reading some of the rows has come to.
#[derive(Default)]
pub(super) struct Told {
    /// Those that are handed on.
    pub rows: usize,
    /// Those that cannot meet the condition, or do not.
    pub rows_passed_over: usize,
    pub bytes_read: usize,
}

/// What becomes of a chunk on the thread that has read it.
struct Digested {
    batch: RecordBatch,
    told: Told,
    zones: Option<ChunkZones>,
}

impl Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lines({:?})", self.pattern)
    }
}

/// Whom is told how reading goes.
type Tell<'t> = &'t dyn Fn(Told);

impl Lines {
    /// Reads the files on so many threads.
    pub fn read(&self, threads: usize, tell: Tell<'_>, sink: Sink<'_>) -> Result<()> {
        for path in &self.paths {
            let failed = |error| file_error(path, &error);
            // Header and rows are those of one file, which is opened once: another may be moved to where it was at any time.
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
            let is_text_itself = self.reading.sniffed.options.encoding == Encoding::Utf8;
            match source::packing(&mut file).map_err(failed)? {
                None if is_text_itself => self.read_plain(&one, file, threads, tell, sink)?,
                _ => {
                    // Nobody can go to places in it.
                    let mut text = text(&file).map_err(failed)?;
                    self.read_chunks(&one, Feed::Whole(&mut *text), threads, None, tell, sink)?;
                }
            }
        }
        Ok(())
    }

    /// Reads a file that is not packed, but for what is known to be of no use, and remembers what it finds out.
    fn read_plain(
        &self,
        one: &OneFile<'_>,
        mut file: File,
        threads: usize,
        tell: Tell<'_>,
        sink: Sink<'_>,
    ) -> Result<()> {
        let path = one.path;
        let failed = |error| file_error(path, &error);
        let begin = text_begins(&mut file).map_err(failed)?;
        let end = file.metadata().map_err(failed)?.len();
        let mut rest = &file;
        let mut feed = match end {
            // As those look that the system makes up when they are read.
            0 => Feed::Whole(&mut rest),
            _ => Feed::Stretch { file: &file, stretch: begin..end, watch: &|_| () },
        };
        let Some(version) = &one.version else {
            return self.read_chunks(one, feed, threads, None, tell, sink);
        };
        let key = Key { file: version.clone(), reading: self.reading.clone() };
        let known = self.zones.get(&key);
        let extents;
        if let Some(known) = &known {
            if self.wanted.is_empty() && self.condition.is_none() {
                return self.count(path, known, tell, sink);
            }
            extents = self.candidates(known, tell);
            feed = Feed::Extents { file: &file, begin, extents: &extents };
        }
        let mut gathered = Gathered { known, chunks: Vec::new(), bytes: 0 };
        let read = self.read_chunks(one, feed, threads, Some(&mut gathered), tell, sink);
        let is_same = FileVersion::of_file(path, &file).is_ok_and(|now| now == key.file);
        match read {
            // Places that were known are those of another file.
            _ if gathered.known.is_some() && !is_same => Err(changed(path)),
            read if is_same && gathered.has_news() => {
                let is_whole = gathered.known.is_none() && read.is_ok();
                self.zones.add(&key, &self.columns, gathered.chunks, is_whole);
                read
            }
            read => read,
        }
    }

    /// As many rows of no columns as a file has.
    fn count(&self, path: &Path, known: &Zones, tell: Tell<'_>, sink: Sink<'_>) -> Result<()> {
        for chunk in 0..known.extents().len() {
            let rows = known.rows(chunk);
            tell(Told { rows, ..Told::default() });
            sink(names::add(&self.names, self.batch(Vec::new(), rows)?, path)?)?;
        }
        Ok(())
    }

    /// The chunks that may have rows which meet the condition. A chunk is passed over only if what would be read of it could be read
    /// before: so a mistake is found whether somebody was here before or not.
    fn candidates(&self, known: &Zones, tell: Tell<'_>) -> Vec<Extent> {
        let Some((condition, pruning)) =
            self.condition.as_ref().and_then(|condition| Some((condition, condition.pruning.as_ref()?)))
        else {
            return known.extents().to_vec();
        };
        let candidates = match self.has_sieve() {
            true => known.candidates(pruning, &condition.columns),
            false => known.candidates(pruning, &self.order()),
        };
        let passed_over = (0..candidates.len()).filter(|chunk| !candidates[*chunk]);
        let rows_passed_over = passed_over.map(|chunk| known.rows(chunk)).sum();
        tell(Told { rows_passed_over, ..Told::default() });
        known
            .extents()
            .iter()
            .zip(&candidates)
            .filter(|(_, kept)| **kept)
            .map(|(extent, _)| *extent)
            .collect()
    }

    /// Whether of rows that do not meet the condition its columns alone are read. Lines of JSON are read whole.
    fn has_sieve(&self) -> bool {
        self.condition.is_some()
            && self.reading.sniffed.options.format == RowFormat::Csv
            && !self.leaves_rows_out()
    }

    /// Whether rows that cannot be read are left out. All that a file has is read then: which rows there are does not depend on
    /// what a statement asks of them.
    fn leaves_rows_out(&self) -> bool {
        self.reading.sniffed.options.on_error == OnError::Ignore
    }

    /// The columns of the table as they are read: those of the condition first.
    fn order(&self) -> Vec<usize> {
        let mut order = self.condition.as_ref().map_or(Vec::new(), |condition| condition.columns.clone());
        let others = self.wanted.iter().filter(|column| !order.contains(column));
        let others: Vec<usize> = others.copied().collect();
        order.extend(others);
        order
    }

    /// Reads chunks of a file, and gathers what there is to know of them if somebody wants it.
    fn read_chunks(
        &self,
        one: &OneFile<'_>,
        feed: Feed<'_>,
        threads: usize,
        mut gathered: Option<&mut Gathered>,
        tell: Tell<'_>,
        sink: Sink<'_>,
    ) -> Result<()> {
        let Reading { sniffed: Sniffed { options, .. }, zone, chunk_bytes, .. } = &*self.reading;
        let OneFile { path, columns, is_first, .. } = one;
        let mut reader = CopyReader::new(&place(path), columns.columns.clone(), options.clone(), *zone)?;
        let mut order = self.order();
        if self.leaves_rows_out() {
            let others = (0..self.columns.fields().len()).filter(|column| !order.contains(column));
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
        let digest =
            |extent: Extent, batch: Batch| self.digest(extent, batch, &order, gathers, known.as_deref());
        let failed = |error: &std::io::Error| file_error(path, error);
        let read = reader.read_chunks(feed, &failed, threads, &digest, &mut |digested| {
            let Digested { batch, told, zones } = digested?;
            if let Some(gathered) = &mut gathered {
                gathered.add(zones);
            }
            tell(told);
            // Also without rows, so that whoever wants no more can say so.
            sink(names::add(&self.names, batch, path)?)
        });
        read.map_err(|error| self.explained(error, path, *is_first))
    }

    /// What becomes of a chunk of which columns have been read in that order.
    fn digest(
        &self,
        extent: Extent,
        read: Batch,
        order: &[usize],
        gathers: bool,
        known: Option<&Zones>,
    ) -> Result<Digested> {
        let Batch { mut columns, rows: in_all, kept, .. } = read;
        // Of columns behind the sieve not all values have been read.
        let whole = match (&kept, &self.condition) {
            (Some(_), Some(condition)) => condition.columns.len(),
            _ => columns.len(),
        };
        let zones = gathers.then(|| {
            let unknown = order.iter().zip(&columns[..whole]);
            let unknown =
                unknown.filter(|(column, _)| !known.is_some_and(|known| known.knows(extent, **column)));
            let zones = unknown.filter_map(|(column, values)| Some((*column, Zone::of(values)?)));
            ChunkZones { extent, rows: in_all, columns: zones.collect() }
        });
        let mut rows = in_all;
        if let Some(kept) = kept {
            rows = kept.count_set_bits();
            let kept = BooleanArray::from(kept);
            for column in &mut columns[..whole] {
                *column = filter(column, &kept).map_err(|error| from_datafusion(error.into()))?;
            }
        }
        let column = |wanted: &usize| {
            let place = order.iter().position(|column| column == wanted).expect("what is wanted is read");
            columns[place].clone()
        };
        let batch = self.batch(self.wanted.iter().map(column).collect(), rows)?;
        let told = Told { rows, rows_passed_over: in_all - rows, bytes_read: extent.bytes as usize };
        Ok(Digested { batch, told, zones })
    }

    /// An error in a file, of which only the beginning was looked at, or not even that.
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
                let told = match is_first {
                    true => "the file's first megabyte. Where they do not hold for all of it",
                    false => {
                        "the first megabyte of the pattern's first file that has rows. Where they do not hold for all of its files"
                    }
                };
                let read = match self.reading.sniffed.options.format {
                    RowFormat::Json => "read_json('file.json'",
                    _ => "read_csv('file.csv'",
                };
                format!("The types of columns are told from {told}, say others: {read}, types => 'price numeric').")
            }
            // It has too few fields, or too many, and stands where a title would.
            SqlState::BAD_COPY_FILE_FORMAT
                if self.reading.sniffed.options.format == RowFormat::Csv
                    && !self.reading.is_by_place
                    && line_of(path, context).is_some_and(|line| line <= self.title_lines())
                    && [MISSING_DATA, EXTRA_DATA].iter().any(|begin| error.message().starts_with(begin)) =>
            {
                "Lines before the header, or before the first row, are passed over with skip: read_csv('file.csv', skip => 2)."
                    .to_owned()
            }
            SqlState::BAD_COPY_FILE_FORMAT if line_of(path, context).is_some() => {
                let advice = match self.reading.sniffed.options.format {
                    RowFormat::Json => "read_json('file.json', ignore_errors => true)",
                    _ => {
                        "read_csv('file.csv', ignore_errors => true). Delimiter and quotes are told from the file's beginning; where \
                         others are right, say so: delimiter => ';'"
                    }
                };
                format!("Rows that cannot be read are left out with {advice}.")
            }
            _ => return error,
        };
        error.with_hint(hint)
    }

    /// Up to which line of a file titles stand.
    fn title_lines(&self) -> u64 {
        self.reading.sniffed.options.skip + MOST_TITLE_LINES
    }

    fn batch(&self, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)
            .map_err(|error| from_datafusion(error.into()))
    }
}

/// What a statement finds out about a file.
struct Gathered {
    /// What was known before.
    known: Option<Arc<Zones>>,
    chunks: Vec<ChunkZones>,
    /// What they take.
    bytes: usize,
}

impl Gathered {
    fn add(&mut self, zones: Option<ChunkZones>) {
        let Some(mut zones) = zones else { return };
        self.bytes += zones.bytes();
        if self.bytes > MOST_GATHERED_BYTES {
            // Where chunks are is of use as well, and takes little.
            zones.columns.clear();
            self.chunks.iter_mut().for_each(|chunk| chunk.columns.clear());
        }
        self.chunks.push(zones);
    }

    fn has_news(&self) -> bool {
        self.known.is_none() || self.chunks.iter().any(|chunk| !chunk.columns.is_empty())
    }
}
