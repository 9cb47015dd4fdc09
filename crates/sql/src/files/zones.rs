//! Zone maps of files of rows: statements that read a CSV or JSON file leave them to later statements.
//!
//! A file is read in chunks. For each chunk the zone map has its extent, its number of rows, and for the columns that were
//! read, the number of NULLs and the range of the other values. So a later statement skips chunks in which no row
//! can satisfy its condition: they are neither read nor searched for the ends of records.
//!
//! Invariants: a file has zones once it has been read to its end, for the version that it had during the whole reading and for
//! the format in which it was read. Later statements only add columns to chunks. A column of a chunk is known only if all its
//! values could be read.

use super::condition::{Bounds, Test};
use super::version::FileVersion;
use arrow::array::types::{
    Date32Type, Float64Type, Int64Type, Time64MicrosecondType, TimestampMicrosecondType,
};
use arrow::array::{Array, ArrayRef, ArrowNumericType, AsArray, StringViewArray};
use arrow::compute;
use arrow::datatypes::{DataType, TimeUnit};
use firn_base::sync::{Arc, AtomicU64, AtomicUsize, Mutex, Ordering};
use firn_base::{TextStyle, Type, Value};
use firn_load::{CopyOptions, Extent};
use firn_vector::pattern::successor;
use std::collections::{BTreeMap, HashMap};
use std::fmt::{self, Debug};

/// The most memory of zone maps.
const MOST_BYTES: usize = 64 << 20;

/// The most memory in which a statement gathers zones; of a file that would take more only the extents of chunks are kept.
pub(super) const MOST_GATHERED_BYTES: usize = MOST_BYTES / 4;

/// The most files with a zone map.
const MOST_FILES: usize = 4096;

/// The most bytes of a string that are kept as a bound.
const MOST_TEXT_BYTES: usize = 32;

/// The zone maps that the sessions of a database share. The least recently used ones are dropped when there are too many.
#[derive(Clone, Default)]
pub struct ZoneMaps(Arc<Shared>);

#[derive(Default)]
struct Shared {
    kept: Mutex<Kept>,
    /// The approximate length of a chunk; 0 for the default.
    chunk_bytes: AtomicUsize,
    rows: AtomicU64,
    rows_passed_over: AtomicU64,
    bytes_read: AtomicU64,
}

/// Statistics of reading files of rows.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Totals {
    /// Rows that were returned.
    pub rows: u64,
    /// Rows that do not or cannot satisfy the condition of their statement.
    pub rows_passed_over: u64,
    /// Bytes of files that were read for that.
    pub bytes_read: u64,
}

#[derive(Default)]
struct Kept {
    files: HashMap<Key, Entry>,
    /// The memory of all entries.
    bytes: usize,
    /// The number of uses so far, as a clock for entries.
    uses: u64,
}

struct Entry {
    zones: Arc<Zones>,
    bytes: usize,
    last_use: u64,
}

impl Debug for ZoneMaps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ZoneMaps")
    }
}

/// Equal if they are the same object.
impl PartialEq for ZoneMaps {
    fn eq(&self, other: &ZoneMaps) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// The key of a zone map.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Key {
    pub file: FileVersion,
    pub reading: Arc<Reading>,
}

/// Everything that determines which values the bytes of a file are, and where it is cut.
#[derive(PartialEq, Eq, Hash, Debug)]
pub(super) struct Reading {
    /// The format of the file.
    pub options: CopyOptions,
    /// Its columns.
    pub columns: Vec<(String, Type)>,
    /// Whether the columns of all files of a pattern are matched by position, whatever their headers.
    pub is_by_place: bool,
    /// The text style of values.
    pub style: TextStyle,
    /// The approximate length of a chunk, if it is not the reader's default.
    pub chunk_bytes: Option<usize>,
}

impl Key {
    fn bytes(&self) -> usize {
        let names = self.reading.columns.iter().map(|(name, _)| name.len() + size_of::<(String, Type)>());
        size_of::<Key>() + size_of::<Reading>() + self.file.path.as_os_str().len() + names.sum::<usize>()
    }
}

impl ZoneMaps {
    /// Sets the approximate length of chunks from now on, which tests make small.
    pub fn set_chunk_bytes(&self, bytes: usize) {
        self.0.chunk_bytes.store(bytes, Ordering::Relaxed);
    }

    /// The length that was set.
    pub(super) fn chunk_bytes(&self) -> Option<usize> {
        Some(self.0.chunk_bytes.load(Ordering::Relaxed)).filter(|bytes| *bytes > 0)
    }

    /// How many files have a zone map.
    pub fn len(&self) -> usize {
        self.0.kept.lock().files.len()
    }

    /// Whether no file has one.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The totals of all statements for CSV and JSON files.
    pub fn totals(&self) -> Totals {
        // Relaxed: statistics that are read while statements change them.
        Totals {
            rows: self.0.rows.load(Ordering::Relaxed),
            rows_passed_over: self.0.rows_passed_over.load(Ordering::Relaxed),
            bytes_read: self.0.bytes_read.load(Ordering::Relaxed),
        }
    }

    /// Adds what a statement has read.
    pub(super) fn count(&self, totals: Totals) {
        self.0.rows.fetch_add(totals.rows, Ordering::Relaxed);
        self.0.rows_passed_over.fetch_add(totals.rows_passed_over, Ordering::Relaxed);
        self.0.bytes_read.fetch_add(totals.bytes_read, Ordering::Relaxed);
    }

    /// The zone map of a file.
    pub(super) fn get(&self, key: &Key) -> Option<Arc<Zones>> {
        self.0.kept.lock().touch(key)
    }

    /// Adds the zones that a statement has gathered of a file; `whole` if it has read all of it.
    pub(super) fn add(&self, key: &Key, gathered: Vec<ChunkZones>, whole: bool) {
        let zones = match self.get(key) {
            Some(known) => known.with(gathered),
            None if whole => Zones::new(&gathered).with(gathered),
            // The extents of the remaining chunks are unknown.
            None => return,
        };
        // Zones that others have added in the meantime are lost, and gathered again.
        self.0.kept.lock().put(key, zones, MOST_FILES, MOST_BYTES);
    }
}

impl Kept {
    fn touch(&mut self, key: &Key) -> Option<Arc<Zones>> {
        self.uses += 1;
        let entry = self.files.get_mut(key)?;
        entry.last_use = self.uses;
        Some(entry.zones.clone())
    }

    fn put(&mut self, key: &Key, zones: Zones, most_files: usize, most_bytes: usize) {
        self.uses += 1;
        let bytes = zones.bytes() + key.bytes() + size_of::<Entry>();
        if bytes > most_bytes / 2 {
            // No other entries are evicted for one that is so large.
            return;
        }
        self.bytes += bytes;
        let entry = Entry { zones: Arc::new(zones), bytes, last_use: self.uses };
        if let Some(before) = self.files.insert(key.clone(), entry) {
            self.bytes -= before.bytes;
        }
        while self.files.len() > most_files || self.bytes > most_bytes {
            let oldest = self.files.iter().min_by_key(|(_, entry)| entry.last_use);
            let oldest = oldest.map(|(key, _)| key.clone()).expect("too much is not nothing");
            self.bytes -= self.files.remove(&oldest).map_or(0, |entry| entry.bytes);
        }
    }
}

/// The zone map of one file.
pub(super) struct Zones {
    extents: Vec<Extent>,
    rows: Vec<usize>,
    /// By the positions of columns in the table, which are those in the first file of a pattern, the bounds for each chunk; `None`
    /// where the column has not been read.
    columns: BTreeMap<usize, Vec<Option<Bounds>>>,
}

/// The zones that a statement has gathered of a chunk.
pub(super) struct ChunkZones {
    pub extent: Extent,
    pub rows: usize,
    pub columns: Vec<(usize, Bounds)>,
}

impl ChunkZones {
    /// Its approximate memory.
    pub fn bytes(&self) -> usize {
        let column = |(_, bounds): &(usize, Bounds)| size_of::<(usize, Bounds)>() + bounds.bytes();
        size_of::<ChunkZones>() + self.columns.iter().map(column).sum::<usize>()
    }
}

impl Bounds {
    /// Its approximate memory beside itself.
    fn bytes(&self) -> usize {
        let bytes = |bound: &Option<Value>| match bound {
            Some(Value::Text(text)) => text.len(),
            _ => 0,
        };
        bytes(&self.lower) + bytes(&self.upper)
    }
}

impl Zones {
    /// All chunks of a file, without any known column.
    fn new(chunks: &[ChunkZones]) -> Zones {
        // Skipped lines precede the first chunk.
        let mut end = chunks.first().map_or(0, |first| first.extent.offset);
        for ChunkZones { extent, .. } in chunks {
            assert_eq!(extent.offset, end, "the chunks of a file follow each other");
            end += extent.bytes;
        }
        Zones {
            extents: chunks.iter().map(|chunk| chunk.extent).collect(),
            rows: chunks.iter().map(|chunk| chunk.rows).collect(),
            columns: BTreeMap::new(),
        }
    }

    /// The same with the zones that have been gathered since.
    fn with(&self, gathered: Vec<ChunkZones>) -> Zones {
        let mut columns = self.columns.clone();
        for chunk in gathered {
            // A chunk that is cut otherwise was read from another version.
            let Some(place) = self.place(chunk.extent) else { continue };
            for (column, bounds) in chunk.columns {
                let known = columns.entry(column).or_insert_with(|| vec![None; self.extents.len()]);
                known[place] = Some(bounds);
            }
        }
        Zones { extents: self.extents.clone(), rows: self.rows.clone(), columns }
    }

    /// The extents of the chunks.
    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// How many rows a chunk has.
    pub fn rows(&self, chunk: usize) -> usize {
        self.rows[chunk]
    }

    /// The position of a chunk.
    fn place(&self, extent: Extent) -> Option<usize> {
        let place = self.extents.binary_search_by_key(&extent.offset, |known| known.offset).ok()?;
        (self.extents[place] == extent).then_some(place)
    }

    /// The bounds of a column of a chunk.
    fn bounds(&self, column: usize, chunk: usize) -> Option<&Bounds> {
        self.columns.get(&column)?[chunk].as_ref()
    }

    /// Whether a column of a chunk is known.
    pub fn knows(&self, extent: Extent, column: usize) -> bool {
        self.place(extent).is_some_and(|place| self.bounds(column, place).is_some())
    }

    /// For each chunk, whether it may have rows that satisfy a condition, or has columns among these that were not read.
    pub fn candidates(&self, test: &Test, columns: &[usize]) -> Vec<bool> {
        let is_candidate = |chunk: usize| {
            columns.iter().any(|column| self.bounds(*column, chunk).is_none())
                || test.may_hold(&|column| self.bounds(column, chunk))
        };
        (0..self.extents.len()).map(is_candidate).collect()
    }

    fn bytes(&self) -> usize {
        let bounds =
            |bounds: &Option<Bounds>| size_of::<Option<Bounds>>() + bounds.as_ref().map_or(0, Bounds::bytes);
        let columns = self.columns.values().flatten().map(bounds).sum::<usize>();
        self.extents.len() * (size_of::<Extent>() + size_of::<usize>()) + columns
    }
}

/// The bounds of an array's values; `None` if its type has no bounds.
pub(super) fn bounds_of(values: &ArrayRef) -> Option<Bounds> {
    let (lower, upper) = match values.data_type() {
        DataType::Boolean => {
            let values = values.as_boolean();
            (compute::min_boolean(values), compute::max_boolean(values)).map_both(Value::Boolean)
        }
        DataType::Int64 => numbers::<Int64Type>(values).map_both(Value::BigInt),
        DataType::Float64 => doubles(values).map_both(Value::Double),
        DataType::Date32 => numbers::<Date32Type>(values).map_both(Value::Date),
        DataType::Time64(TimeUnit::Microsecond) => {
            numbers::<Time64MicrosecondType>(values).map_both(Value::Time)
        }
        DataType::Timestamp(TimeUnit::Microsecond, zone) => {
            let bounds = numbers::<TimestampMicrosecondType>(values);
            bounds.map_both(if zone.is_some() { Value::TimestampTz } else { Value::Timestamp })
        }
        DataType::Utf8View => texts(values.as_string_view()).map_both(Value::Text),
        _ => return None,
    };
    let nulls = values.null_count();
    Some(Bounds { lower, upper, may_be_null: nulls > 0, are_null: nulls == values.len() })
}

trait Both<T> {
    fn map_both(self, map: fn(T) -> Value) -> (Option<Value>, Option<Value>);
}

impl<T> Both<T> for (Option<T>, Option<T>) {
    fn map_both(self, map: fn(T) -> Value) -> (Option<Value>, Option<Value>) {
        (self.0.map(map), self.1.map(map))
    }
}

fn numbers<T: ArrowNumericType>(values: &ArrayRef) -> (Option<T::Native>, Option<T::Native>) {
    let values = values.as_primitive::<T>();
    (compute::min(values), compute::max(values))
}

/// NaN is larger than all numbers, and no bound of them: with a NaN there is no upper bound, as in Parquet's statistics. Zeros
/// are bounds of zeros whatever their signs.
fn doubles(values: &ArrayRef) -> (Option<f64>, Option<f64>) {
    let values = values.as_primitive::<Float64Type>();
    let lower = compute::min(values).filter(|lower| !lower.is_nan());
    let upper = compute::max(values).filter(|upper| !upper.is_nan());
    let lower = lower.map(|lower| if lower == 0.0 { -0.0 } else { lower });
    let upper = upper.map(|upper| if upper == 0.0 { 0.0 } else { upper });
    (lower, upper)
}

/// Strings in the order of their bytes; of long ones the beginning.
fn texts(values: &StringViewArray) -> (Option<String>, Option<String>) {
    let mut bounds: Option<(&str, &str)> = None;
    for text in values.iter().flatten() {
        match &mut bounds {
            None => bounds = Some((text, text)),
            Some((lower, _)) if text < *lower => *lower = text,
            Some((_, upper)) if text > *upper => *upper = text,
            Some(_) => {}
        }
    }
    let lower = bounds.map(|(lower, _)| beginning(lower).to_owned());
    let upper = bounds.and_then(|(_, upper)| not_less(upper));
    (lower, upper)
}

fn beginning(text: &str) -> &str {
    &text[..text.floor_char_boundary(MOST_TEXT_BYTES)]
}

/// A short string that is not less, if there is one.
fn not_less(text: &str) -> Option<String> {
    let short = beginning(text).to_owned();
    if short.len() == text.len() {
        return Some(short);
    }
    successor(short)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::Float64Array;
    use firn_load::RowFormat;
    use std::path::PathBuf;

    fn bounds(values: impl Array + 'static) -> Bounds {
        bounds_of(&(Arc::new(values) as ArrayRef)).unwrap()
    }

    #[test]
    fn bounds_of_doubles_hold_for_nan_and_both_zeros() {
        let doubles = |values: &[f64]| {
            let Bounds { lower, upper, .. } = bounds(Float64Array::from(values.to_vec()));
            let bits = |bound| match bound {
                Some(Value::Double(bound)) => Some(bound.to_bits()),
                None => None,
                other => panic!("{other:?}"),
            };
            (bits(lower), bits(upper))
        };
        assert_eq!(doubles(&[1.0, f64::NAN]), (Some(1.0_f64.to_bits()), None));
        assert_eq!(doubles(&[f64::NAN]), (None, None));
        for zero in [0.0, -0.0] {
            assert_eq!(doubles(&[zero]), (Some((-0.0_f64).to_bits()), Some(0)));
        }
        let none = bounds(Float64Array::from(vec![None, None]));
        assert_eq!(none, Bounds { lower: None, upper: None, may_be_null: true, are_null: true });
    }

    #[test]
    fn bounds_of_long_strings_are_short() {
        let texts = |texts: &[&str]| match bounds(StringViewArray::from(texts.to_vec())) {
            Bounds { lower: Some(Value::Text(lower)), upper: Some(Value::Text(upper)), .. } => {
                (lower, Some(upper))
            }
            Bounds { lower: Some(Value::Text(lower)), upper: None, .. } => (lower, None),
            other => panic!("{other:?}"),
        };
        assert_eq!(texts(&["b", "", "a"]), (String::new(), Some("b".to_owned())));
        let (high, mixed) = ("\u{10ffff}".repeat(20), format!("{}é{}", "a".repeat(31), "\u{10ffff}"));
        assert_eq!(texts(&[&high]), ("\u{10ffff}".repeat(8), None));
        assert_eq!(texts(&[&mixed]), ("a".repeat(31), Some(format!("{}b", "a".repeat(30)))));
        for text in [&*mixed, &format!("x{high}"), &"\u{d7ff}".repeat(20)] {
            let (lower, upper) = texts(&[text]);
            assert!(&*lower <= text && text <= &*upper.unwrap());
        }
    }

    /// A zone map of one chunk without columns.
    fn one_chunk() -> Vec<ChunkZones> {
        let extent = Extent { offset: 0, bytes: 4, lines_before: 0 };
        vec![ChunkZones { extent, rows: 1, columns: Vec::new() }]
    }

    fn key(name: &str) -> Key {
        let options = CopyOptions::new(RowFormat::Csv);
        let (columns, style) = (Vec::new(), TextStyle::DEFAULT);
        let reading = Reading { options, columns, is_by_place: false, style, chunk_bytes: None };
        let file = FileVersion { path: PathBuf::from(name), bytes: 4, modified: None, identity: [0; 4] };
        Key { file, reading: Arc::new(reading) }
    }

    #[test]
    fn the_least_recently_used_zones_are_evicted_first() {
        let mut kept = Kept::default();
        let zones = || Zones::new(&one_chunk());
        for name in ["a", "b", "c"] {
            kept.put(&key(name), zones(), 3, usize::MAX);
        }
        assert!(kept.touch(&key("a")).is_some());
        kept.put(&key("d"), zones(), 3, usize::MAX);
        assert!(kept.touch(&key("b")).is_none());
        // The limit is the memory of three.
        let bytes = kept.bytes;
        kept.put(&key("e"), zones(), 100, bytes);
        assert!(kept.touch(&key("c")).is_none());
        assert!(["a", "d", "e"].iter().all(|name| kept.touch(&key(name)).is_some()));
        assert_eq!(kept.bytes, kept.files.values().map(|entry| entry.bytes).sum::<usize>());
        // Other entries are not evicted for one that would take most of the limit.
        kept.put(&key("f"), zones(), 100, bytes / 3);
        assert!(kept.touch(&key("f")).is_none());
        assert_eq!((kept.files.len(), kept.bytes), (3, bytes));
    }

    #[test]
    fn chunks_that_lie_elsewhere_add_nothing() {
        let values: ArrayRef = Arc::new(Float64Array::from(vec![1.0]));
        let gathered = |bytes| {
            let extent = Extent { offset: 0, bytes, lines_before: 0 };
            vec![ChunkZones { extent, rows: 1, columns: vec![(0, bounds_of(&values).unwrap())] }]
        };
        let zones = Zones::new(&one_chunk());
        let extent = zones.extents()[0];
        assert!(!zones.with(gathered(5)).knows(extent, 0));
        assert!(zones.with(gathered(4)).knows(extent, 0));
    }
}
