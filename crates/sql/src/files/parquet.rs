//! Parquet files, by the `parquet` crate. Their parts are row groups, which are skipped if the statistics in the
//! file show that no row satisfies the statement's condition.

use super::columns::{Batches, ColumnFile, Place, guarded};
use super::condition::{Bounds, Test};
use crate::arrow::types::value_at;
use arrow::array::{Array, ArrayRef, RecordBatch, UInt64Array};
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef, TimeUnit};
use bytes::Bytes;
use firn_base::sync::Arc;
use firn_base::{Error, Result, Value};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::statistics::StatisticsConverter;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use parquet::basic::{ConvertedType, Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::reader::{ChunkReader, Length};
use parquet::schema::types::SchemaDescriptor;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

/// The key under which writers of Arrow keep its schema.
const ARROW_SCHEMA: &str = "ARROW:schema";

/// A Parquet file.
pub(super) struct ParquetFile {
    place: Place,
    metadata: ArrowReaderMetadata,
    /// Columns of intervals whose months would be lost.
    intervals: Vec<usize>,
}

/// The bytes of a file. Its lengths may be wrong, so no more memory is allocated than the file has bytes.
#[derive(Clone)]
struct Source {
    file: Arc<File>,
    bytes: u64,
}

impl Length for Source {
    fn len(&self) -> u64 {
        self.bytes
    }
}

impl ChunkReader for Source {
    type T = BufReader<File>;

    fn get_read(&self, start: u64) -> parquet::errors::Result<BufReader<File>> {
        self.file.get_read(start)
    }

    fn get_bytes(&self, start: u64, length: usize) -> parquet::errors::Result<Bytes> {
        match start.checked_add(length as u64) {
            Some(end) if end <= self.bytes => self.file.get_bytes(start, length),
            _ => Err(ParquetError::EOF("it ends before the end of its data".to_owned())),
        }
    }
}

impl Source {
    fn open(place: &Place) -> Result<Source> {
        Ok(Source { file: Arc::new(place.open()?), bytes: place.bytes() })
    }
}

impl ParquetFile {
    pub fn open(place: Place) -> Result<ParquetFile> {
        let path = &place.path;
        let source = Source::open(&place)?;
        let metadata = guarded(path, || {
            let found = ArrowReaderMetadata::load(&source, ArrowReaderOptions::new())?;
            let options = ArrowReaderOptions::new().with_schema(wanted_schema(&found));
            ArrowReaderMetadata::try_new(found.metadata().clone(), options).or(Ok::<_, ParquetError>(found))
        })?;
        let has_arrow_schema = (metadata.metadata().file_metadata().key_value_metadata())
            .is_some_and(|pairs| pairs.iter().any(|pair| pair.key == ARROW_SCHEMA));
        let is_interval = |column: &usize| {
            let root = &metadata.parquet_schema().root_schema().get_fields()[*column];
            root.get_basic_info().converted_type() == ConvertedType::INTERVAL
        };
        let columns = 0..metadata.schema().fields().len();
        let intervals = if has_arrow_schema { Vec::new() } else { columns.filter(is_interval).collect() };
        Ok(ParquetFile { place, metadata, intervals })
    }

    fn groups(&self) -> &[RowGroupMetaData] {
        self.metadata.metadata().row_groups()
    }
}

/// The types as which columns are read: strings as views, which need no copy later, and old timestamps so that all years fit.
fn wanted_schema(metadata: &ArrowReaderMetadata) -> SchemaRef {
    let plain = |ty: &DataType| match ty {
        DataType::Utf8 | DataType::LargeUtf8 => Some(DataType::Utf8View),
        DataType::Binary | DataType::LargeBinary => Some(DataType::BinaryView),
        _ => None,
    };
    let old: HashSet<usize> = leaves(metadata.parquet_schema(), Type::INT96);
    let field = |(column, field): (usize, &FieldRef)| {
        let ty = match field.data_type() {
            DataType::Dictionary(_, values) => plain(values),
            DataType::Timestamp(TimeUnit::Nanosecond, zone) if old.contains(&column) => {
                Some(DataType::Timestamp(TimeUnit::Microsecond, zone.clone()))
            }
            ty => plain(ty),
        };
        match ty {
            Some(ty) => Arc::new(Field::clone(field).with_data_type(ty)),
            None => field.clone(),
        }
    };
    let schema = metadata.schema();
    let fields: Vec<FieldRef> = schema.fields().iter().enumerate().map(field).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

/// The columns that are stored as that type.
fn leaves(schema: &SchemaDescriptor, ty: Type) -> HashSet<usize> {
    let of_type = |leaf: &usize| schema.column(*leaf).physical_type() == ty;
    (0..schema.num_columns()).filter(of_type).map(|leaf| schema.get_column_root_idx(leaf)).collect()
}

impl ColumnFile for ParquetFile {
    fn schema(&self) -> &SchemaRef {
        self.metadata.schema()
    }

    fn parts(&self) -> usize {
        self.groups().len()
    }

    fn check(&self, column: usize) -> Result<()> {
        match self.intervals.contains(&column) {
            true => Err(Error::unsupported("a Parquet column of type INTERVAL")),
            false => Ok(()),
        }
    }

    fn read(&self, columns: &[usize], parts: &[usize], batch_rows: usize) -> Result<Box<dyn Batches>> {
        let path = &self.place.path;
        let source = Source::open(&self.place)?;
        let reader = guarded(path, || {
            let mask = ProjectionMask::roots(self.metadata.parquet_schema(), columns.iter().copied());
            ParquetRecordBatchReaderBuilder::new_with_metadata(source, self.metadata.clone())
                .with_projection(mask)
                .with_row_groups(parts.to_vec())
                .with_batch_size(batch_rows)
                .build()
        })?;
        Ok(Box::new(ParquetBatches { path: path.clone(), reader }))
    }

    fn candidates(&self, test: &Test, columns: &[(usize, String, DataType)]) -> Vec<usize> {
        let known = columns.iter().map(|(column, name, plain)| (*column, self.bounds(name, plain)));
        let known: HashMap<usize, Vec<Option<Bounds>>> = known.collect();
        let may_hold = |part: &usize| {
            test.may_hold(&|column| known.get(&column).and_then(|bounds| bounds.get(*part)?.as_ref()))
        };
        (0..self.parts()).filter(may_hold).collect()
    }
}

/// The batches of row groups of a file, of some columns.
struct ParquetBatches {
    path: PathBuf,
    reader: ParquetRecordBatchReader,
}

impl Batches for ParquetBatches {
    fn next(&mut self) -> Result<Option<RecordBatch>> {
        guarded(&self.path, || self.reader.next().transpose())
    }
}

impl ParquetFile {
    /// The statistics of a column in the row groups, for values of the type of the table; `None` for a row group, or for all,
    /// if they are not reliable.
    fn bounds(&self, name: &str, plain: &DataType) -> Vec<Option<Bounds>> {
        guarded(&self.place.path, || Ok::<_, Error>(self.kept_bounds(name, plain).unwrap_or_default()))
            .unwrap_or_default()
    }

    fn kept_bounds(&self, name: &str, plain: &DataType) -> Option<Vec<Option<Bounds>>> {
        let groups = self.groups();
        let converter =
            StatisticsConverter::try_new(name, self.metadata.schema(), self.metadata.parquet_schema())
                .ok()?;
        let converter = converter.with_missing_null_counts_as_zero(false);
        let leaf = converter.parquet_column_index()?;
        // Old writers did not record the order of bounds.
        let is_odd = |group: &RowGroupMetaData| {
            group.column(leaf).statistics().is_some_and(|statistics| statistics.is_min_max_deprecated())
        };
        let has_bounds = !plain.is_nested() && !groups.iter().any(is_odd);
        let converted = |bounds: parquet::errors::Result<ArrayRef>| -> Option<ArrayRef> {
            crate::arrow::converted(&bounds.ok()?, plain).ok()
        };
        let lower = if has_bounds { converted(converter.row_group_mins(groups)) } else { None };
        // NaN is larger than all numbers, and is left out of bounds.
        let is_float = matches!(plain, DataType::Float32 | DataType::Float64);
        let upper = if has_bounds && !is_float { converted(converter.row_group_maxes(groups)) } else { None };
        let nulls: Option<UInt64Array> = converter.row_group_null_counts(groups).ok();
        let bound = |bounds: &Option<ArrayRef>, group: usize| match value_at(bounds.as_ref()?, group) {
            Ok(Value::Null) | Err(_) => None,
            Ok(value) => Some(value),
        };
        let of_group = |group: usize| {
            let nulls = nulls.as_ref().filter(|nulls| nulls.is_valid(group)).map(|nulls| nulls.value(group));
            let rows = u64::try_from(groups[group].num_rows()).ok();
            Some(Bounds {
                lower: bound(&lower, group),
                upper: bound(&upper, group),
                may_be_null: nulls != Some(0),
                are_null: nulls.is_some() && nulls == rows,
            })
        };
        Some((0..groups.len()).map(of_group).collect())
    }
}
