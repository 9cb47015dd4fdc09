//! Parquet files, by the `parquet` crate: their parts are row groups, which are passed over where the statistics that the
//! file keeps of them say that no row meets the statement's condition.

use super::columns::{ColumnFile, Place, Sink, guarded};
use bytes::Bytes;
use datafusion::arrow::array::{Array, ArrayRef, BooleanArray};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef, TimeUnit};
use datafusion::common::Column;
use datafusion::common::pruning::PruningStatistics;
use datafusion::physical_optimizer::pruning::PruningPredicate;
use datafusion::scalar::ScalarValue;
use firn_base::sync::Arc;
use firn_base::{Error, Result};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::statistics::StatisticsConverter;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use parquet::basic::{ConvertedType, Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::reader::{ChunkReader, Length};
use parquet::schema::types::SchemaDescriptor;
use std::collections::HashSet;
use std::fs::File;
use std::io::BufReader;

/// The key under which writers of Arrow keep its schema.
const ARROW_SCHEMA: &str = "ARROW:schema";

/// A Parquet file.
pub(super) struct ParquetFile {
    place: Place,
    metadata: ArrowReaderMetadata,
    /// Columns of intervals whose months would be lost.
    intervals: Vec<usize>,
}

/// The bytes of a file. What it says of itself may be wrong, so that no more memory is taken than it has bytes.
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
            _ => Err(ParquetError::EOF("it ends before its data does".to_owned())),
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

/// The types to read columns as: strings as views, which need no copy later, and old timestamps so that all years fit.
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

    fn read(&self, columns: &[usize], parts: &[usize], batch_rows: usize, sink: Sink<'_>) -> Result<()> {
        if parts.is_empty() {
            return Ok(());
        }
        let path = &self.place.path;
        let source = Source::open(&self.place)?;
        let mut reader = guarded(path, || {
            let mask = ProjectionMask::roots(self.metadata.parquet_schema(), columns.iter().copied());
            ParquetRecordBatchReaderBuilder::new_with_metadata(source, self.metadata.clone())
                .with_projection(mask)
                .with_row_groups(parts.to_vec())
                .with_batch_size(batch_rows)
                .build()
        })?;
        while let Some(batch) = guarded(path, || reader.next().transpose())? {
            sink(batch)?;
        }
        Ok(())
    }

    fn candidates(&self, predicate: &PruningPredicate, schema: &SchemaRef) -> Vec<usize> {
        let all = 0..self.parts();
        let kept = guarded(&self.place.path, || predicate.prune(&Statistics { file: self, schema }));
        match kept {
            Ok(kept) if kept.len() == self.parts() => all.filter(|part| kept[*part]).collect(),
            // What cannot be judged is read.
            _ => all.collect(),
        }
    }
}

/// What the file keeps of its row groups, in the types that the table has.
struct Statistics<'f> {
    file: &'f ParquetFile,
    schema: &'f SchemaRef,
}

impl Statistics<'_> {
    fn converter(&self, column: &Column) -> Option<StatisticsConverter<'_>> {
        let metadata = &self.file.metadata;
        let converter =
            StatisticsConverter::try_new(&column.name, metadata.schema(), metadata.parquet_schema()).ok()?;
        Some(converter.with_missing_null_counts_as_zero(false))
    }

    /// Bounds of a column, the lower or the upper ones.
    fn bounds(&self, column: &Column, upper: bool) -> Option<ArrayRef> {
        let wanted = self.schema.field_with_name(&column.name).ok()?.data_type();
        if matches!(wanted, DataType::Float32 | DataType::Float64) && upper {
            // NaN is larger than all numbers, and kept out of bounds.
            return None;
        }
        let converter = self.converter(column)?;
        let leaf = converter.parquet_column_index()?;
        let is_odd = |group: &RowGroupMetaData| {
            // Old writers did not say in which order bounds are bounds.
            group.column(leaf).statistics().is_some_and(|statistics| statistics.is_min_max_deprecated())
        };
        if self.file.groups().iter().any(is_odd) {
            return None;
        }
        let groups = self.file.groups();
        let bounds = if upper { converter.row_group_maxes(groups) } else { converter.row_group_mins(groups) };
        crate::arrow::converted(&bounds.ok()?, wanted).ok()
    }
}

impl PruningStatistics for Statistics<'_> {
    fn min_values(&self, column: &Column) -> Option<ArrayRef> {
        self.bounds(column, false)
    }

    fn max_values(&self, column: &Column) -> Option<ArrayRef> {
        self.bounds(column, true)
    }

    fn num_containers(&self) -> usize {
        self.file.parts()
    }

    fn null_counts(&self, column: &Column) -> Option<ArrayRef> {
        let counts = self.converter(column)?.row_group_null_counts(self.file.groups()).ok()?;
        Some(Arc::new(counts) as Arc<dyn Array>)
    }

    fn row_counts(&self) -> Option<ArrayRef> {
        let rows = |group: &RowGroupMetaData| u64::try_from(group.num_rows()).ok();
        let counts: datafusion::arrow::array::UInt64Array = self.file.groups().iter().map(rows).collect();
        Some(Arc::new(counts))
    }

    fn contained(&self, _: &Column, _: &HashSet<ScalarValue>) -> Option<BooleanArray> {
        None
    }
}
