//! Zone maps of files of rows: what statements that read a CSV or JSON file leave to later ones.
//!
//! A file is read in chunks. Of each is kept where it is, how many rows it has, and for the columns that somebody has read, how many
//! of them are NULL and between which values the others lie. So a later statement passes over chunks in which no row
//! can meet its condition: they are neither read nor searched for the ends of records.
//!
//! Invariants: a file is known from when it has been read to its end, by the version that it had all the while and the way in
//! which it was read; what comes later only adds columns to chunks. A column of a chunk is known only if all its values could be read.

use super::version::FileVersion;
use datafusion::arrow::array::types::{
    ArrowPrimitiveType, Date32Type, Float64Type, Int64Type, Time64MicrosecondType, TimestampMicrosecondType,
};
use datafusion::arrow::array::{
    Array, ArrayRef, ArrowNumericType, AsArray, BooleanArray, StringViewArray, UInt64Array,
};
use datafusion::arrow::compute;
use datafusion::arrow::datatypes::{DataType, SchemaRef, TimeUnit};
use datafusion::common::pruning::PruningStatistics;
use datafusion::common::{Column, Result};
use datafusion::physical_optimizer::pruning::PruningPredicate;
use datafusion::scalar::ScalarValue;
use firn_base::sync::{Arc, AtomicUsize, Mutex, Ordering};
use firn_base::{SqlType, TimeZoneSetting};
use firn_load::Extent;
use firn_load::sniff::Sniffed;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::{self, Debug};

/// Memory that zone maps take at most.
const MOST_BYTES: usize = 64 << 20;

/// Memory that a statement gathers zones in at most; of a file that would take more only the places of chunks are kept.
pub(super) const MOST_GATHERED_BYTES: usize = MOST_BYTES / 4;

/// Files that have one at most.
const MOST_FILES: usize = 4096;

/// As much of a string is kept as a bound.
const MOST_TEXT_BYTES: usize = 32;

/// The zone maps that the sessions of a database share. Those that nobody has used for longest go when there are too many.
#[derive(Clone, Default)]
pub struct ZoneMaps(Arc<Shared>);

#[derive(Default)]
struct Shared {
    kept: Mutex<Kept>,
    /// What a chunk has about; 0 if nobody has said.
    chunk_bytes: AtomicUsize,
}

#[derive(Default)]
struct Kept {
    files: HashMap<Key, Entry>,
    /// All together.
    bytes: usize,
    /// How often any has been asked for: what time is to entries.
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

/// Whether they are the same ones.
impl PartialEq for ZoneMaps {
    fn eq(&self, other: &ZoneMaps) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// What a zone map is of.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Key {
    pub file: FileVersion,
    pub reading: Arc<Reading>,
}

/// All that decides which values the bytes of a file are, and where it is cut.
#[derive(PartialEq, Eq, Hash, Debug)]
pub(super) struct Reading {
    pub sniffed: Sniffed,
    /// Whether the columns of all files of a pattern go by where they stand, whatever headers call them.
    pub is_by_place: bool,
    /// What moments are in that name no zone.
    pub zone: TimeZoneSetting,
    /// What a chunk has about, if that is not the reader's to say.
    pub chunk_bytes: Option<usize>,
}

impl Key {
    fn bytes(&self) -> usize {
        let names =
            self.reading.sniffed.columns.iter().map(|(name, _)| name.len() + size_of::<(String, SqlType)>());
        size_of::<Key>() + size_of::<Reading>() + self.file.path.as_os_str().len() + names.sum::<usize>()
    }
}

impl ZoneMaps {
    /// Has files cut into chunks of about so many bytes from now on, which tests like to be few.
    pub fn set_chunk_bytes(&self, bytes: usize) {
        self.0.chunk_bytes.store(bytes, Ordering::Relaxed);
    }

    /// What was said last.
    pub(super) fn chunk_bytes(&self) -> Option<usize> {
        Some(self.0.chunk_bytes.load(Ordering::Relaxed)).filter(|bytes| *bytes > 0)
    }

    /// How many files have one.
    pub fn len(&self) -> usize {
        self.0.kept.lock().files.len()
    }

    /// Whether none has one.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The zone map of a file.
    pub(super) fn get(&self, key: &Key) -> Option<Arc<Zones>> {
        self.0.kept.lock().touch(key)
    }

    /// Takes what a statement has gathered of a file with these columns; `whole` if it has read all of it.
    pub(super) fn add(&self, key: &Key, schema: &SchemaRef, gathered: Vec<ChunkZones>, whole: bool) {
        let zones = match self.get(key) {
            Some(known) => known.with(schema, gathered),
            None if whole => Zones::new(&gathered).with(schema, gathered),
            // Nobody knows where the chunks behind these begin.
            None => return,
        };
        // What others have added in the meantime is lost, and gathered again.
        if let Ok(zones) = zones {
            self.0.kept.lock().put(key, zones, MOST_FILES, MOST_BYTES);
        }
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
            // Nobody else's are given up for one that is so large.
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

/// What is known of the chunks of one file.
pub(super) struct Zones {
    extents: Vec<Extent>,
    rows: UInt64Array,
    /// By the positions of columns in the table, which are those in the first file of a pattern.
    columns: BTreeMap<usize, ColumnZones>,
}

/// What is known of one column, by chunk.
#[derive(Clone)]
struct ColumnZones {
    /// No value is less; NULL where none is known.
    lower: ArrayRef,
    /// No value is larger; NULL where none is known.
    upper: ArrayRef,
    /// NULL where the column has not been read.
    nulls: UInt64Array,
}

/// What a statement has found out about a chunk.
pub(super) struct ChunkZones {
    pub extent: Extent,
    pub rows: usize,
    pub columns: Vec<(usize, Zone)>,
}

impl ChunkZones {
    /// About what it takes.
    pub fn bytes(&self) -> usize {
        let column =
            |(_, zone): &(usize, Zone)| size_of::<(usize, Zone)>() + zone.lower.size() + zone.upper.size();
        size_of::<ChunkZones>() + self.columns.iter().map(column).sum::<usize>()
    }
}

impl Zones {
    /// Chunks of which no column is known, all that a file has.
    fn new(chunks: &[ChunkZones]) -> Zones {
        // Lines that are skipped are before the first.
        let mut end = chunks.first().map_or(0, |first| first.extent.offset);
        for ChunkZones { extent, .. } in chunks {
            assert_eq!(extent.offset, end, "the chunks of a file follow each other");
            end += extent.bytes;
        }
        Zones {
            extents: chunks.iter().map(|chunk| chunk.extent).collect(),
            rows: chunks.iter().map(|chunk| Some(chunk.rows as u64)).collect(),
            columns: BTreeMap::new(),
        }
    }

    /// The same with what has been gathered since.
    fn with(&self, schema: &SchemaRef, gathered: Vec<ChunkZones>) -> Result<Zones> {
        let mut news: BTreeMap<usize, Vec<(usize, Zone)>> = BTreeMap::new();
        for chunk in gathered {
            // Whoever cuts a file otherwise has read another one.
            let Some(place) = self.place(chunk.extent) else { continue };
            for (column, zone) in chunk.columns {
                news.entry(column).or_default().push((place, zone));
            }
        }
        let mut columns = self.columns.clone();
        for (column, news) in news {
            let known = match columns.remove(&column) {
                Some(known) => known,
                None => ColumnZones::unknown(schema.field(column).data_type(), self.extents.len())?,
            };
            columns.insert(column, known.with(news)?);
        }
        Ok(Zones { extents: self.extents.clone(), rows: self.rows.clone(), columns })
    }

    /// Where the chunks are.
    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// How many rows a chunk has.
    pub fn rows(&self, chunk: usize) -> usize {
        self.rows.value(chunk) as usize
    }

    /// Which chunk that is.
    fn place(&self, extent: Extent) -> Option<usize> {
        let place = self.extents.binary_search_by_key(&extent.offset, |known| known.offset).ok()?;
        (self.extents[place] == extent).then_some(place)
    }

    /// Whether a column of a chunk is known.
    pub fn knows(&self, extent: Extent, column: usize) -> bool {
        let known = self.columns.get(&column).zip(self.place(extent));
        known.is_some_and(|(known, place)| known.nulls.is_valid(place))
    }

    /// For each chunk, whether it may have rows that meet a condition, or columns among these which nobody has read.
    pub fn candidates(&self, condition: &PruningPredicate, columns: &[usize]) -> Vec<bool> {
        let chunks = self.extents.len();
        let Ok(mut candidates) = condition.prune(&Statistics { zones: self, schema: condition.schema() })
        else {
            return vec![true; chunks];
        };
        for column in columns {
            match self.columns.get(column) {
                None => return vec![true; chunks],
                Some(known) => {
                    let unread = (0..chunks).filter(|chunk| known.nulls.is_null(*chunk));
                    unread.for_each(|chunk| candidates[chunk] = true);
                }
            }
        }
        candidates
    }

    fn bytes(&self) -> usize {
        let columns = self.columns.values().map(ColumnZones::bytes).sum::<usize>();
        self.extents.len() * size_of::<Extent>() + self.rows.get_array_memory_size() + columns
    }
}

impl ColumnZones {
    fn unknown(ty: &DataType, chunks: usize) -> Result<ColumnZones> {
        let bound = ScalarValue::try_from(ty)?.to_array_of_size(chunks)?;
        Ok(ColumnZones { lower: bound.clone(), upper: bound, nulls: UInt64Array::new_null(chunks) })
    }

    fn with(&self, news: Vec<(usize, Zone)>) -> Result<ColumnZones> {
        let values = |array: &ArrayRef| {
            (0..array.len())
                .map(|place| ScalarValue::try_from_array(array, place))
                .collect::<Result<Vec<_>>>()
        };
        let (mut lower, mut upper) = (values(&self.lower)?, values(&self.upper)?);
        let mut nulls: Vec<Option<u64>> = self.nulls.iter().collect();
        for (place, zone) in news {
            (lower[place], upper[place]) = (zone.lower, zone.upper);
            nulls[place] = Some(zone.nulls as u64);
        }
        Ok(ColumnZones {
            lower: ScalarValue::iter_to_array(lower)?,
            upper: ScalarValue::iter_to_array(upper)?,
            nulls: nulls.into(),
        })
    }

    fn bytes(&self) -> usize {
        let arrays: [&dyn Array; 3] = [&self.lower, &self.upper, &self.nulls];
        arrays.map(Array::get_array_memory_size).iter().sum()
    }
}

/// Zones as conditions are judged by them.
struct Statistics<'z> {
    zones: &'z Zones,
    schema: &'z SchemaRef,
}

impl Statistics<'_> {
    fn column(&self, column: &Column) -> Option<&ColumnZones> {
        self.zones.columns.get(&self.schema.index_of(&column.name).ok()?)
    }
}

impl PruningStatistics for Statistics<'_> {
    fn min_values(&self, column: &Column) -> Option<ArrayRef> {
        Some(self.column(column)?.lower.clone())
    }

    fn max_values(&self, column: &Column) -> Option<ArrayRef> {
        Some(self.column(column)?.upper.clone())
    }

    fn num_containers(&self) -> usize {
        self.zones.extents.len()
    }

    fn null_counts(&self, column: &Column) -> Option<ArrayRef> {
        Some(Arc::new(self.column(column)?.nulls.clone()))
    }

    fn row_counts(&self) -> Option<ArrayRef> {
        Some(Arc::new(self.zones.rows.clone()))
    }

    fn contained(&self, _: &Column, _: &HashSet<ScalarValue>) -> Option<BooleanArray> {
        None
    }
}

/// Between which values a column of a chunk lies.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Zone {
    lower: ScalarValue,
    upper: ScalarValue,
    nulls: usize,
}

impl Zone {
    /// The zone of values; `None` if theirs is a type without one.
    pub fn of(values: &ArrayRef) -> Option<Zone> {
        let (lower, upper) = match values.data_type() {
            DataType::Boolean => {
                let values = values.as_boolean();
                (compute::min_boolean(values).into(), compute::max_boolean(values).into())
            }
            DataType::Int64 => numbers::<Int64Type>(values),
            DataType::Float64 => doubles(values),
            DataType::Date32 => numbers::<Date32Type>(values),
            DataType::Time64(TimeUnit::Microsecond) => numbers::<Time64MicrosecondType>(values),
            DataType::Timestamp(TimeUnit::Microsecond, _) => numbers::<TimestampMicrosecondType>(values),
            DataType::Utf8View => texts(values.as_string_view()),
            _ => return None,
        };
        Some(Zone { lower, upper, nulls: values.null_count() })
    }
}

fn numbers<T: ArrowNumericType>(values: &ArrayRef) -> (ScalarValue, ScalarValue) {
    let bound = |value| bound::<T>(value, values.data_type());
    let values = values.as_primitive::<T>();
    (bound(compute::min(values)), bound(compute::max(values)))
}

fn bound<T: ArrowPrimitiveType>(value: Option<T::Native>, ty: &DataType) -> ScalarValue {
    ScalarValue::new_primitive::<T>(value, ty).expect("the type is that of the values")
}

/// NaN is larger than all numbers, and no bound of them: where there is one, there is no upper bound, as in Parquet's statistics. Zeros
/// are bounds of zeros whatever their signs.
fn doubles(values: &ArrayRef) -> (ScalarValue, ScalarValue) {
    let values = values.as_primitive::<Float64Type>();
    let lower = compute::min(values).filter(|lower| !lower.is_nan());
    let upper = compute::max(values).filter(|upper| !upper.is_nan());
    let lower = lower.map(|lower| if lower == 0.0 { -0.0 } else { lower });
    let upper = upper.map(|upper| if upper == 0.0 { 0.0 } else { upper });
    (ScalarValue::Float64(lower), ScalarValue::Float64(upper))
}

/// Strings as they compare, by their bytes; of long ones the beginning.
fn texts(values: &StringViewArray) -> (ScalarValue, ScalarValue) {
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
    (ScalarValue::Utf8View(lower), ScalarValue::Utf8View(upper))
}

fn beginning(text: &str) -> &str {
    &text[..text.floor_char_boundary(MOST_TEXT_BYTES)]
}

/// A short string that is not less, if there is one.
fn not_less(text: &str) -> Option<String> {
    let mut short = beginning(text).to_owned();
    if short.len() == text.len() {
        return Some(short);
    }
    // With its last character replaced by the next one, it is larger than all that begin so.
    while let Some(last) = short.pop() {
        let next = (u32::from(last) + 1..=u32::from(char::MAX)).find_map(char::from_u32);
        if let Some(next) = next {
            short.push(next);
            return Some(short);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::Float64Array;
    use datafusion::arrow::datatypes::{Field, Schema};
    use firn_load::{CopyOptions, RowFormat};
    use std::path::PathBuf;

    fn zone(values: impl Array + 'static) -> (ScalarValue, ScalarValue, usize) {
        let values: ArrayRef = Arc::new(values);
        let Zone { lower, upper, nulls } = Zone::of(&values).unwrap();
        (lower, upper, nulls)
    }

    #[test]
    fn bounds_of_doubles_hold_for_nan_and_both_zeros() {
        let doubles = |values: &[f64]| zone(Float64Array::from(values.to_vec()));
        let bits = |bound: ScalarValue| match bound {
            ScalarValue::Float64(bound) => bound.map(f64::to_bits),
            other => panic!("{other:?}"),
        };
        let (lower, upper, _) = doubles(&[1.0, f64::NAN]);
        assert_eq!((bits(lower), bits(upper)), (Some(1.0_f64.to_bits()), None));
        let (lower, upper, _) = doubles(&[f64::NAN]);
        assert_eq!((bits(lower), bits(upper)), (None, None));
        for zero in [0.0, -0.0] {
            let (lower, upper, _) = doubles(&[zero]);
            assert_eq!((bits(lower), bits(upper)), (Some((-0.0_f64).to_bits()), Some(0)));
        }
        let (lower, upper, nulls) = zone(Float64Array::from(vec![None, None]));
        assert_eq!((bits(lower), bits(upper), nulls), (None, None, 2));
    }

    #[test]
    fn bounds_of_long_strings_are_short() {
        let texts = |texts: &[&str]| {
            let (lower, upper, _) = zone(StringViewArray::from(texts.to_vec()));
            match (lower, upper) {
                (ScalarValue::Utf8View(lower), ScalarValue::Utf8View(upper)) => (lower.unwrap(), upper),
                other => panic!("{other:?}"),
            }
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
        let sniffed = Sniffed { options, columns: Vec::new() };
        let reading = Reading { sniffed, is_by_place: false, zone: TimeZoneSetting::UTC, chunk_bytes: None };
        let file = FileVersion { path: PathBuf::from(name), bytes: 4, modified: None, identity: [0; 4] };
        Key { file, reading: Arc::new(reading) }
    }

    #[test]
    fn what_nobody_has_used_for_longest_goes_first() {
        let mut kept = Kept::default();
        let zones = || Zones::new(&one_chunk());
        for name in ["a", "b", "c"] {
            kept.put(&key(name), zones(), 3, usize::MAX);
        }
        assert!(kept.touch(&key("a")).is_some());
        kept.put(&key("d"), zones(), 3, usize::MAX);
        assert!(kept.touch(&key("b")).is_none());
        // As much memory as three take is room for three.
        let bytes = kept.bytes;
        kept.put(&key("e"), zones(), 100, bytes);
        assert!(kept.touch(&key("c")).is_none());
        assert!(["a", "d", "e"].iter().all(|name| kept.touch(&key(name)).is_some()));
        assert_eq!(kept.bytes, kept.files.values().map(|entry| entry.bytes).sum::<usize>());
        // For one that would take most of it nobody else's is given up.
        kept.put(&key("f"), zones(), 100, bytes / 3);
        assert!(kept.touch(&key("f")).is_none());
        assert_eq!((kept.files.len(), kept.bytes), (3, bytes));
    }

    #[test]
    fn chunks_that_lie_elsewhere_add_nothing() {
        let schema: SchemaRef = Arc::new(Schema::new(vec![Field::new("x", DataType::Float64, true)]));
        let values: ArrayRef = Arc::new(Float64Array::from(vec![1.0]));
        let gathered = |bytes| {
            let extent = Extent { offset: 0, bytes, lines_before: 0 };
            vec![ChunkZones { extent, rows: 1, columns: vec![(0, Zone::of(&values).unwrap())] }]
        };
        let zones = Zones::new(&one_chunk());
        let extent = zones.extents()[0];
        assert!(!zones.with(&schema, gathered(5)).unwrap().knows(extent, 0));
        assert!(zones.with(&schema, gathered(4)).unwrap().knows(extent, 0));
    }
}
