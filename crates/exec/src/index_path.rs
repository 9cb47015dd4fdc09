//! Reading a table through an index, where predicates fix the beginning of its key.
//!
//! When a scan is planned its predicates are known, parameters included: for each index the longest
//! run of leading columns that predicates compare with values, and a range on the column behind.
//! The entries under that prefix are counted, up to a limit; only if they are few is the index
//! better than reading the table from end to end. The predicates themselves stay above the scan.

use crate::types;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};
use firn_base::sync::Arc;
use firn_base::{RowId, Snapshot, SqlType, Value};
use firn_storage::{Guard, Index, IndexColumn, KeyBuffer, Table};
use firn_txn::catalog::TableDef;
use std::ops::Bound;

/// Entries that are always worth the index.
const FEW: usize = 256;

/// An index is read instead of a table only for less than this part of its rows: reading a row by
/// its id costs several times what a scan pays for it.
const SHARE: u64 = 32;

/// A stretch of an index.
#[derive(Clone, Debug)]
pub struct IndexPath {
    index: IndexHandle,
    low: Bound<KeyBuffer>,
    high: Bound<KeyBuffer>,
    /// How many entries it had when it was planned, dead ones included.
    pub entries: usize,
}

/// An index that can be printed.
#[derive(Clone)]
struct IndexHandle(Arc<Index>);

impl std::fmt::Debug for IndexHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.spec().name)
    }
}

/// A comparison of a column with a value.
struct Comparison {
    column: u16,
    operator: Operator,
    value: Value,
}

/// Whether a predicate may help to choose an index.
pub fn may_help(definition: &TableDef, predicate: &Expr) -> bool {
    split_conjunction(predicate).into_iter().filter_map(|part| comparison(definition, part)).any(|found| {
        definition
            .indexes
            .iter()
            .any(|index| index.columns.iter().any(|column| column.column == found.column))
    })
}

/// The best index for some predicates; `None` if the table itself is better.
pub fn choose(definition: &TableDef, table: &Table, predicates: &[Expr]) -> Option<IndexPath> {
    let comparisons: Vec<Comparison> = predicates
        .iter()
        .flat_map(split_conjunction)
        .filter_map(|part| comparison(definition, part))
        .collect();
    if comparisons.is_empty() {
        return None;
    }
    let limit = FEW.max((table.approximate_rows() / SHARE) as usize);
    let guard = firn_storage::pin();
    // One that somebody has made since lacks rows that only older snapshots see.
    let is_known = |index: &&Arc<Index>| definition.indexes.iter().any(|known| known.id() == index.spec().id);
    let indexes = table.indexes();
    let paths: Vec<_> =
        indexes.iter().filter(is_known).filter_map(|index| path(index, &comparisons)).collect();
    let counted = paths.into_iter().filter_map(|mut path| {
        path.entries = path.count(limit, &guard)?;
        Some(path)
    });
    counted.min_by_key(|path| path.entries)
}

/// `column op literal` or `literal op column`.
fn comparison(definition: &TableDef, predicate: &Expr) -> Option<Comparison> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = predicate else { return None };
    let (column, operator, scalar) = match (left.as_ref(), right.as_ref()) {
        (Expr::Column(column), Expr::Literal(scalar, _)) => (column, *op, scalar),
        (Expr::Literal(scalar, _), Expr::Column(column)) => (column, op.swap()?, scalar),
        _ => return None,
    };
    let known = [Operator::Eq, Operator::Lt, Operator::LtEq, Operator::Gt, Operator::GtEq];
    if !known.contains(&operator) {
        return None;
    }
    let (id, definition) = definition.column(&column.name)?;
    Some(Comparison { column: id.0, operator, value: fitting(scalar, definition.ty.sql_type())? })
}

/// The scalar as a value of exactly this type, if it is one.
fn fitting(scalar: &ScalarValue, ty: SqlType) -> Option<Value> {
    if scalar.is_null() || scalar.data_type() != types::data_type(ty) {
        return None;
    }
    types::value(scalar).ok()
}

/// The stretch of an index that comparisons leave.
fn path(index: &Arc<Index>, comparisons: &[Comparison]) -> Option<IndexPath> {
    let columns = &index.spec().columns;
    let on = |column: u16| comparisons.iter().filter(move |comparison| comparison.column == column);
    let equals =
        |column: &IndexColumn| on(column.column.0).find(|comparison| comparison.operator == Operator::Eq);
    let fixed: Vec<&Value> = columns.iter().map_while(equals).map(|comparison| &comparison.value).collect();
    let prefix: Vec<_> =
        fixed.iter().zip(columns).map(|(value, column)| value.as_cell(column.representation)).collect();
    let key = |cells: &[firn_base::Cell<'_>]| {
        let mut key = KeyBuffer::new();
        index.encode(cells, &mut key);
        key
    };
    let whole = || if fixed.is_empty() { Bound::Unbounded } else { Bound::Included(key(&prefix)) };
    let (mut low, mut high) = (whole(), whole());
    let mut narrowed = !fixed.is_empty();
    // NULLs stand at an end of the index and satisfy no comparison; a column without them needs no care.
    if let Some(next) = columns.get(fixed.len())
        && !next.descending
        && !next.nullable
    {
        for comparison in on(next.column.0) {
            let mut cells = prefix.clone();
            cells.push(comparison.value.as_cell(next.representation));
            let key = key(&cells);
            narrowed = true;
            match comparison.operator {
                Operator::Gt => low = Bound::Excluded(key),
                Operator::GtEq => low = Bound::Included(key),
                Operator::Lt => high = Bound::Excluded(key),
                Operator::LtEq => high = Bound::Included(key),
                _ => {}
            }
        }
    }
    narrowed.then(|| IndexPath { index: IndexHandle(Arc::clone(index)), low, high, entries: 0 })
}

impl IndexPath {
    /// The index's name.
    pub fn name(&self) -> &str {
        &self.index.0.spec().name
    }

    /// How many entries the stretch has; `None` beyond the limit.
    fn count(&self, limit: usize, guard: &Guard) -> Option<usize> {
        let mut entries = 0;
        self.visit(guard, &mut |_, _| {
            entries += 1;
            entries <= limit
        });
        (entries <= limit).then_some(entries)
    }

    /// The rows under the stretch that a snapshot sees, in the index's order.
    pub fn rows(&self, table: &Table, snapshot: Snapshot, guard: &Guard) -> Vec<RowId> {
        let mut rows = Vec::with_capacity(self.entries);
        self.visit(guard, &mut |key, row| {
            if table.sees(&self.index.0, key, row, snapshot, guard) {
                rows.push(row);
            }
            true
        });
        rows
    }

    fn visit(&self, guard: &Guard, visit: &mut dyn FnMut(&[u8], RowId) -> bool) {
        let low = self.low.as_ref().map(|key| key.as_slice());
        let high = self.high.as_ref().map(|key| key.as_slice());
        self.index.0.range(low, high, false, guard, visit);
    }
}
