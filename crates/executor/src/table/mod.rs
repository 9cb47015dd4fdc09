//! Tables as sources of rows.
//!
//! A scan reads what its snapshot sees, its own transaction's changes among it; deleted rows do not come. Its morsels are
//! storage's batches, at most 8,192 rows of one block: rows of frozen and compact blocks share the block's buffers, those of hot ones
//! are copies. Blocks of which zones prove that no row meets the conditions are passed over. If few rows are under the keys that the
//! conditions ask for, they are found by an [index](path) when the scan is opened.
//!
//! What is logged for validation: the table, the restrictions that conditions make with the values of parameters, and the columns that
//! are used for more than such a restriction. A condition that is exactly a restriction of one column makes no difference beyond it.
//!
//! Invariant: a guard lives within one call of [`Morsels::next`], never across two.

mod lookup;
mod path;
mod restrictions;
mod sample;

use crate::arrays::vector_of;
use crate::expression::{converted, datum_of_cell, representation_of};
use crate::source::{
    CandidateIndex, Lookup, Morsels, Reader, Request, RowFilter, Scan, Source, SourceColumn,
    SourceStatistics, representation,
};
use crate::values::push;
use arrow_array::{Array, ArrayRef};
use firn_base::sync::{Arc, AtomicU64, Ordering};
use firn_base::{Cell, ColumnId, ColumnSet, Error, Representation, Result, RowId, Snapshot};
use firn_plan::operator::ROW_ID;
use firn_plan::rewrite::first_rows::AttributeOrder;
use firn_plan::statistics::Reference;
use firn_storage::{Index, Judge, Restriction, ScanBatch, Table, TableScan, pin};
use firn_txn::Transaction;
use firn_txn::catalog::{ConstraintDef, ConstraintKind, Deferral, TableDef};
use firn_vector::builder::Builder;
use firn_vector::selection::Rows;
use firn_vector::{Chunk, Data, Datum, Vector};
use lookup::{KeyLog, TableLookup};
use restrictions::Restrictions;
use std::any::Any;

pub(crate) use lookup::as_stored;

/// A table of the catalog.
pub struct TableSource {
    definition: Arc<TableDef>,
    table: Arc<Table>,
}

impl TableSource {
    /// A table as the catalog of a transaction has it.
    pub fn new(definition: Arc<TableDef>, table: Arc<Table>) -> TableSource {
        TableSource { definition, table }
    }

    /// What the catalog says of it.
    pub(crate) fn definition(&self) -> &Arc<TableDef> {
        &self.definition
    }

    /// Its rows.
    pub(crate) fn rows(&self) -> &Arc<Table> {
        &self.table
    }

    /// The indexes that the catalog has.
    pub(crate) fn known_indexes(&self) -> Vec<Arc<Index>> {
        path::known_indexes(&self.definition, &self.table).collect()
    }
}

/// The storage's column of an attribute.
fn column_id(attribute: i16) -> ColumnId {
    ColumnId(u16::try_from(attribute - 1).expect("attributes of columns are positive"))
}

impl Source for TableSource {
    fn columns(&self) -> Vec<SourceColumn> {
        let column = |(id, column): (ColumnId, &firn_txn::catalog::ColumnDef)| SourceColumn {
            attribute: id.0 as i16 + 1,
            ty: column.ty.declared,
            nullable: !column.not_null,
        };
        self.definition.visible_columns().map(column).collect()
    }

    fn statistics(&self) -> SourceStatistics {
        SourceStatistics { rows: self.table.approximate_rows() }
    }

    fn indexes(&self) -> Vec<CandidateIndex> {
        let index = |index: &firn_txn::catalog::IndexDef| CandidateIndex {
            oid: index.oid.0,
            attributes: index.columns.iter().map(|column| column.column as i16 + 1).collect(),
            descending: index.columns.iter().map(|column| column.descending).collect(),
            nulls_first: index.columns.iter().map(|column| column.nulls_first).collect(),
            unique: index.is_always_unique(),
        };
        self.definition.indexes.iter().map(index).collect()
    }

    fn index_for(&self, request: &Request<'_>) -> Option<u32> {
        let restrictions = restrictions::of(request, &self.definition);
        let path = path::choose(&self.definition, &self.table, &restrictions.comparisons)?;
        Some(path.index().spec().id.0)
    }

    fn index_by(&self, attributes: &[i16], order: &[AttributeOrder]) -> Option<u32> {
        let (index, _) = lookup::index_of(&self.definition, &self.table, attributes, order)?;
        Some(index.spec().id.0)
    }

    fn relation(&self) -> Option<u32> {
        Some(self.definition.oid.0)
    }

    fn references(&self) -> Vec<Reference> {
        let attributes = |columns: &[u16]| columns.iter().map(|column| *column as i16 + 1).collect();
        let reference = |constraint: &ConstraintDef| match &constraint.kind {
            ConstraintKind::ForeignKey {
                columns, parent, parent_columns, deferral: Deferral::Never, ..
            } if constraint.valid => Some(Reference {
                attributes: attributes(columns),
                relation: parent.0,
                referenced: attributes(parent_columns),
            }),
            _ => None,
        };
        self.definition.constraints.iter().filter_map(reference).collect()
    }

    fn table(&self) -> Option<Arc<Table>> {
        Some(self.table.clone())
    }

    fn sample(&self, attributes: &[i16], snapshot: Snapshot) -> Option<Chunk> {
        let sample = sample::Sample::of(&self.table, snapshot)?;
        Some(Chunk::new(sample.len(), self.sampled(&sample, attributes, snapshot)))
    }

    fn distinct(&self, attributes: &[i16], snapshot: Snapshot) -> Option<f64> {
        let sample = sample::Sample::of(&self.table, snapshot)?;
        Some(sample.distinct(attributes, || self.sampled(&sample, attributes, snapshot)))
    }

    fn short_source(&self) -> Option<&dyn Any> {
        Some(self)
    }

    fn open(&self, request: &Request<'_>, reader: Reader<'_>) -> Result<Arc<dyn Scan>> {
        let restrictions = restrictions::of(request, &self.definition);
        let read = read_columns(request, &restrictions);
        let found = match path::choose(&self.definition, &self.table, &restrictions.comparisons) {
            // What is true of no row depends on none.
            _ if restrictions.is_never_met => Some(Vec::new()),
            Some(path) => {
                let noted = path::Noted {
                    transaction: reader.transaction,
                    restrictions: &restrictions.restrictions,
                    columns: read,
                };
                Some(path.rows(&self.table, reader.snapshot, &noted))
            }
            None => {
                if let Some(transaction) = reader.transaction {
                    transaction.note_scan(&self.table, &restrictions.restrictions, read);
                }
                None
            }
        };
        let open = self.open_table(request, reader.snapshot);
        let found = found.map(Arc::from);
        let judges = request.judges.iter().map(|(attribute, judge)| (column_id(*attribute), judge.clone()));
        let judges = judges.collect();
        Ok(Arc::new(OpenTable { restrictions: restrictions.restrictions, judges, found, ..open }))
    }

    fn open_lookup(
        &self,
        request: &Request<'_>,
        attributes: &[i16],
        first: Option<(&[AttributeOrder], usize)>,
        reader: Reader<'_>,
    ) -> Result<Arc<dyn Lookup>> {
        let restrictions = restrictions::of(request, &self.definition);
        let read = read_columns(request, &restrictions);
        let (order, count) = first.unwrap_or((&[], usize::MAX));
        let find = |order| lookup::index_of(&self.definition, &self.table, attributes, order);
        // Others may have dropped the index since the plan was made. Without the order, all rows of a key are found.
        let found = find(order).map(|(index, direction)| (index, direction, count));
        let found = found.or_else(|| find(&[]).map(|(index, direction)| (index, direction, usize::MAX)));
        let (index, direction, most_of_key) =
            found.ok_or_else(|| Error::write_conflict(&self.table.name()))?;
        let notes = reader.transaction.and_then(Transaction::read_notes);
        Ok(Arc::new(TableLookup {
            open: self.open_table(request, reader.snapshot),
            index,
            direction,
            most_of_key,
            parts: attributes.len(),
            is_never_met: restrictions.is_never_met,
            log: notes.map(|notes| KeyLog::new(notes, restrictions.restrictions, read)),
        }))
    }
}

impl TableSource {
    fn sampled(&self, sample: &sample::Sample, attributes: &[i16], snapshot: Snapshot) -> Vec<Vector> {
        let column = |attribute: &i16| {
            let ty = self.definition.columns[column_id(*attribute).index()].ty.declared;
            sample.column(&self.table, *attribute, representation_of(ty), snapshot)
        };
        attributes.iter().map(column).collect()
    }

    fn open_table(&self, request: &Request<'_>, snapshot: Snapshot) -> OpenTable {
        let attributes = request.columns.iter().map(|(_, attribute)| *attribute);
        OpenTable {
            table: self.table.clone(),
            snapshot,
            columns: attributes.clone().filter(|attribute| *attribute != ROW_ID).map(column_id).collect(),
            stored: attributes
                .filter(|attribute| *attribute != ROW_ID)
                .map(|attribute| self.table.columns()[column_id(attribute).index()].representation)
                .collect(),
            wanted: request
                .columns
                .iter()
                .map(|(column, attribute)| (*attribute == ROW_ID, representation(request.all, *column)))
                .collect(),
            restrictions: Vec::new(),
            judges: Vec::new(),
            found: None,
        }
    }
}

/// What a look-up logs beside its keys: the restrictions of a request, and the columns that count as read.
pub(crate) fn noted(request: &Request<'_>, definition: &TableDef) -> (Vec<Restriction>, ColumnSet) {
    let restrictions = restrictions::of(request, definition);
    let read = read_columns(request, &restrictions);
    (restrictions.restrictions, read)
}

/// The columns that count as read of rows that meet the restrictions.
fn read_columns(request: &Request<'_>, restrictions: &Restrictions) -> ColumnSet {
    let used = request.columns[..request.used].iter().map(|(_, attribute)| *attribute);
    used.filter(|attribute| *attribute != ROW_ID)
        .map(column_id)
        .chain(restrictions.other_columns.iter().copied())
        .collect()
}

#[derive(Clone)]
struct OpenTable {
    table: Arc<Table>,
    snapshot: Snapshot,
    /// The storage's columns that are read, and how they lie there.
    columns: Vec<ColumnId>,
    stored: Vec<Representation>,
    /// For each column of the request whether it is the row's id, and how its values shall lie.
    wanted: Vec<(bool, Representation)>,
    restrictions: Vec<Restriction>,
    judges: Vec<(ColumnId, Judge)>,
    /// The rows, if an index has found them.
    found: Option<Arc<[RowId]>>,
}

impl Scan for OpenTable {
    fn morsels(&self) -> Arc<dyn Morsels> {
        if let Some(rows) = &self.found {
            return Arc::new(FoundMorsels {
                rows: rows.clone(),
                next: AtomicU64::new(0),
                open: self.clone(),
            });
        }
        let row_ids = self.wanted.iter().any(|(is_row_id, _)| *is_row_id);
        let scan = self.table.scan(self.snapshot, &self.columns, row_ids);
        let scan = scan.under(&self.restrictions).judging(self.judges.iter().cloned());
        Arc::new(TableMorsels { scan, open: self.clone() })
    }
}

struct TableMorsels {
    scan: TableScan,
    open: OpenTable,
}

impl Morsels for TableMorsels {
    fn next(&self) -> Result<Option<Chunk>> {
        Ok(self.scan.next_batch(&pin()).map(|batch| self.open.chunk(batch)))
    }

    fn filter(&self, columns: &[usize], passes: RowFilter) {
        // The columns that are stored come in the order of the request, without that of row ids.
        let is_stored = |place: &usize| !self.open.wanted[*place].0;
        if !columns.iter().all(is_stored) {
            return;
        }
        let of_storage = |place: &usize| (0..*place).filter(is_stored).count();
        let columns: Vec<(usize, Representation)> =
            columns.iter().map(|place| (of_storage(place), self.open.wanted[*place].1)).collect();
        let ids: Vec<ColumnId> = columns.iter().map(|(column, _)| self.open.columns[*column]).collect();
        let forms: Vec<(Representation, Representation)> =
            columns.iter().map(|(column, wanted)| (self.open.stored[*column], *wanted)).collect();
        let of_arrays = move |arrays: &[ArrayRef]| {
            let rows = arrays[0].len();
            let vector = |(array, (stored, wanted)): (&ArrayRef, &(Representation, Representation))| {
                as_wanted(&vector_of(array, *stored), *wanted, Rows::all(rows))
            };
            passes(&arrays.iter().zip(&forms).map(vector).collect::<Vec<_>>(), rows)
        };
        self.scan.filter(&ids, Arc::new(of_arrays));
    }
}

/// How many rows ahead of the one that is read memory is asked for.
const PREFETCHED: usize = 8;

/// Appends the value of a cell that lies as its column stores it.
fn push_cell(builder: &mut Builder, cell: &Cell<'_>, stored: Representation) {
    match stored {
        Representation::List(_) => push(builder, &cell.to_value(stored), stored),
        _ => builder.push(datum_of_cell(cell, stored, stored)),
    }
}

/// Rows of a morsel that an index has found.
const FOUND_ROWS: usize = 2048;

struct FoundMorsels {
    rows: Arc<[RowId]>,
    next: AtomicU64,
    open: OpenTable,
}

impl Morsels for FoundMorsels {
    fn next(&self) -> Result<Option<Chunk>> {
        let number = self.next.fetch_add(1, Ordering::Relaxed) as usize;
        let Some(rows) = self.rows.chunks(FOUND_ROWS).nth(number) else { return Ok(None) };
        Ok(Some(self.open.read(rows)))
    }
}

impl OpenTable {
    /// Rows by their ids, which the snapshot sees.
    fn read(&self, rows: &[RowId]) -> Chunk {
        let guard = pin();
        let mut builders: Vec<Builder> = self.stored.iter().map(|stored| Builder::new(*stored)).collect();
        let mut cells = vec![Cell::Null; self.columns.len()];
        let mut seen = Vec::with_capacity(rows.len());
        for (number, row) in rows.iter().enumerate() {
            // The rows lie anywhere: several misses at once cost little more than one.
            if let Some(later) = rows.get(number + PREFETCHED) {
                self.table.prefetch(*later, &self.columns);
            }
            if self.table.read(self.snapshot, *row, &self.columns, &mut cells, &guard) {
                seen.push(row.to_bits() as i64);
                for ((builder, cell), stored) in builders.iter_mut().zip(&cells).zip(&self.stored) {
                    push_cell(builder, cell, *stored);
                }
            }
        }
        let length = seen.len();
        let mut columns = builders.into_iter().map(Builder::finish);
        let mut ids = Some(seen);
        let vector = |(is_row_id, wanted): &(bool, Representation)| match is_row_id {
            true => {
                let ids = ids.take().expect("a scan has one column of row ids");
                Vector::flat(Representation::Int64, Data::Int64(ids.into()), None)
            }
            false => {
                let vector = columns.next().expect("there is a vector for each column");
                as_wanted(&vector, *wanted, Rows::all(length))
            }
        };
        Chunk::new(length, self.wanted.iter().map(vector).collect())
    }

    fn chunk(&self, batch: ScanBatch) -> Chunk {
        let all = Rows::all(batch.rows);
        let mut columns = batch.columns.iter().zip(&self.stored);
        let vector = |(is_row_id, wanted): &(bool, Representation)| {
            if *is_row_id {
                let ids = batch.row_ids.as_ref().expect("they were asked for");
                let ids = ids.values().iter().map(|id| *id as i64).collect();
                return Vector::flat(Representation::Int64, Data::Int64(ids), None);
            }
            let (array, stored) = columns.next().expect("there is an array for each column");
            as_wanted(&vector_of(array, *stored), *wanted, all)
        };
        Chunk::new(batch.rows, self.wanted.iter().map(vector).collect())
    }
}

/// The values of a column as its type has them. A plain numeric that is stored with 16 digits after the point has lost
/// which of them were written, and is shown with those that matter.
fn as_wanted(vector: &Vector, wanted: Representation, rows: Rows<'_>) -> Vector {
    match (vector.representation(), wanted) {
        (Representation::Decimal { .. }, Representation::Numeric) => {
            let mut builder = Builder::new(wanted);
            rows.each(|row| {
                builder.push(match vector.datum(row) {
                    Datum::Numeric(value) => Datum::Numeric(value.normalized()),
                    other => other,
                });
            });
            builder.finish()
        }
        _ => converted(vector, wanted, rows),
    }
}
