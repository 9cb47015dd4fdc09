//! The end of a statement: foreign keys, and deferrable keys that rows may have shared.
//!
//! A statement first makes all its changes; then [`finish`] works through what they left pending. Actions come first (CASCADE,
//! SET NULL, SET DEFAULT), each perhaps leaving more pending, so that cycles and self-references end when no row is left to change;
//! tests come last, when all rows are as the statement leaves them. RESTRICT refuses as soon as its turn comes and does not look
//! whether another row has the key by now; NO ACTION does.
//!
//! Against concurrent transactions: a new referencing row and the deletion of its target meet in
//! [`firn_txn::Transaction::reference_target_exists`] and `referencing_row_exists`. The latter needs an index of the child that begins
//! with the key's columns, which DDL makes. Without one, as in a catalog of before it did, the child is scanned as this
//! transaction sees it, and only the referencing side can notice the other.

use super::deferred;
use super::messages::described_key;
use super::rows::Cells;
use super::target::{LateKey, Reference, Referrer, changes_child, encoded};
use super::writer::Writer;
use firn_base::{Cell, ColumnId, Error, Numeric, Representation, Result, RowId, SqlState, TextStyle, Value};
use firn_base::{coerce, numeric};
use firn_storage::{KeyBuffer, Table};
use firn_txn::catalog::{ColumnType, ReferentialAction, TableDef};
use firn_txn::{Guard, Transaction, pin};
use firn_vector::Context;
use smallvec::SmallVec;
use std::collections::{HashMap, VecDeque};

/// What the end of a statement has to look at.
#[derive(Debug)]
pub(super) enum Pending {
    /// A row of `target` was written that references another.
    Reference { target: usize, reference: usize, row: RowId },
    /// A row of `target` was written that shared a deferrable key with another.
    SharedKey { target: usize, key: usize, row: RowId },
    /// A key of `target` that others may reference was removed, or became `new`.
    Gone { target: usize, referrer: usize, old: Vec<Value>, new: Option<Vec<Value>> },
}

/// A key that was removed, and what took its place.
pub(super) struct GoneKey {
    pub old: Vec<Value>,
    pub new: Option<Vec<Value>>,
}

/// Tests that the row exists that one of `table` references whose columns of the foreign key have these values, none of them NULL.
pub(super) fn check_reference(
    transaction: &Transaction,
    table: &TableDef,
    reference: &Reference,
    values: &[Value],
    guard: &Guard,
) -> Result<()> {
    let own_type = |position: usize| table.columns[reference.columns[position].index()].ty;
    let parts: Option<Vec<Value>> = reference
        .key
        .iter()
        .map(|(position, ty)| refitted(&values[*position], own_type(*position), *ty))
        .collect();
    // A value that the parent's type cannot hold is not there either.
    if let Some(parts) = parts {
        let types = reference.key.iter().map(|(_, ty)| *ty);
        let key = encoded(&reference.index, parts.iter().zip(types));
        if transaction.reference_target_exists(&reference.parent, &reference.index, &key, guard)? {
            return Ok(());
        }
    }
    Err(Error::new(
        SqlState::FOREIGN_KEY_VIOLATION,
        format!(
            "insert or update on table \"{}\" violates foreign key constraint \"{}\"",
            table.name, reference.name
        ),
    )
    .with_constraint(reference.name.clone())
    .with_detail(format!(
        "Key {} is not present in table \"{}\".",
        described_key(&column_names(table, &reference.columns), values),
        reference.parent_name
    )))
}

/// Works through everything that a statement's changes left pending.
pub(super) fn finish(mut writer: Writer<'_>, context: &Context<'_>) -> Result<()> {
    let mut references = Vec::new();
    let mut unreferenced = Vec::new();
    let mut shared_keys = Vec::new();
    while let Some(pending) = writer.pending.pop_front() {
        context.check_cancel()?;
        match pending {
            Pending::Reference { target, reference, row } => references.push((target, reference, row)),
            Pending::SharedKey { target, key, row } => shared_keys.push((target, key, row)),
            Pending::Gone { target, referrer, old, new } => {
                let mut keys = vec![GoneKey { old, new }];
                if writer.set.target(target).referrers[referrer].child_index.is_none() {
                    // Each search of this child is a scan, so one scan serves all its keys.
                    take_alike(&mut writer.pending, target, referrer, &mut keys);
                }
                lock_child(&mut writer, target, referrer, &keys)?;
                if let Some(later) = act(&mut writer, target, referrer, keys, &mut unreferenced, context)? {
                    let key = &writer.set.target(target).referrers[referrer];
                    match writer.transaction.defers(key.constraint, key.deferral) {
                        true => deferred::defer(writer.transaction, key, later)?,
                        false => unreferenced.push((target, referrer, later)),
                    }
                }
            }
        }
    }
    for (target, key, row) in shared_keys {
        let table = writer.set.target(target);
        let key = &table.late_keys[key];
        check_unique(writer.transaction, &table.definition, &table.table, key, row)?;
    }
    for (target, referrer, keys) in unreferenced {
        let table = writer.set.target(target);
        let keys: Vec<&[Value]> = keys.iter().map(|key| key.old.as_slice()).collect();
        let referrer = &table.referrers[referrer];
        refuse_if_referenced(writer.transaction, &table.definition, referrer, &keys, true)?;
    }
    for (target, reference, row) in references {
        context.check_cancel()?;
        let table = writer.set.target(target);
        check_row(writer.transaction, &table.definition, &table.table, &table.references[reference], row)?;
    }
    Ok(())
}

/// Keeps other transactions from replacing all rows of the referencing table (TRUNCATE), where no conflict would be noticed. A
/// transaction that shares a lock on the table does so already.
fn lock_child(writer: &mut Writer<'_>, target: usize, referrer: usize, keys: &[GoneKey]) -> Result<()> {
    let set = writer.set;
    let Referrer { child, on_delete, on_update, .. } = &set.target(target).referrers[referrer];
    let action = |key: &GoneKey| if key.new.is_none() { *on_delete } else { *on_update };
    if !writer.transaction.has_locked(child) {
        match keys.iter().any(|key| changes_child(action(key))) {
            // Before a guard is held, since it may have to wait for the table.
            true => writer.transaction.lock_row_exclusive(child)?,
            false => writer.transaction.lock_row_share(child)?,
        };
    }
    Ok(())
}

/// [`check_reference`] of a row as it is now, if it still exists and references anything.
pub(super) fn check_row(
    transaction: &Transaction,
    definition: &TableDef,
    table: &Table,
    reference: &Reference,
    row: RowId,
) -> Result<()> {
    let guard = pin();
    let mut cells: Cells<'_> = SmallVec::from_elem(Cell::Null, reference.columns.len());
    if transaction.read(table, row, &reference.columns, &mut cells, &guard)
        && !cells.iter().any(Cell::is_null)
    {
        let stored = |column: &ColumnId| definition.columns[column.index()].ty.stored;
        let values = cells.iter().zip(&reference.columns).map(|(cell, column)| cell.to_value(stored(column)));
        let values: Vec<Value> = values.collect();
        check_reference(transaction, definition, reference, &values, &guard)?;
    }
    Ok(())
}

/// Tests that no other row has the key of a row as it is now, if it still exists.
pub(super) fn check_unique(
    transaction: &Transaction,
    definition: &TableDef,
    table: &Table,
    key: &LateKey,
    row: RowId,
) -> Result<()> {
    let guard = pin();
    let mut cells: Cells<'_> = SmallVec::from_elem(Cell::Null, key.columns.len());
    // A row that the transaction has written: no other one can change it.
    let is_there = table.read(transaction.snapshot(), row, &key.columns, &mut cells, &guard);
    if !is_there || cells.iter().any(Cell::is_null) {
        return Ok(());
    }
    let mut encoded = KeyBuffer::new();
    key.index.encode(&cells, &mut encoded);
    if !transaction.is_duplicate(table, &key.index, &encoded, row, &guard)? {
        return Ok(());
    }
    let values: Vec<Value> =
        cells.iter().zip(&key.types).map(|(cell, ty)| cell.to_value(ty.stored)).collect();
    let described = described_key(&column_names(definition, &key.columns), &values);
    Err(Error::new(
        SqlState::UNIQUE_VIOLATION,
        format!("duplicate key value violates unique constraint \"{}\"", key.name),
    )
    .with_constraint(key.name.clone())
    .with_detail(format!("Key {described} already exists.")))
}

/// Moves the other removed keys that the same foreign key references to `keys`.
fn take_alike(pending: &mut VecDeque<Pending>, target: usize, referrer: usize, keys: &mut Vec<GoneKey>) {
    let mut rest = VecDeque::with_capacity(pending.len());
    for one in pending.drain(..) {
        match one {
            Pending::Gone { target: of, referrer: by, old, new } if (of, by) == (target, referrer) => {
                keys.push(GoneKey { old, new });
            }
            other => rest.push_back(other),
        }
    }
    *pending = rest;
}

/// Keys of a target that one of its referrers must no longer reference.
type Unreferenced = (usize, usize, Vec<GoneKey>);

/// Does to the referencing rows what their foreign key says. Returns the keys that it only has to test.
fn act(
    writer: &mut Writer<'_>,
    target: usize,
    position: usize,
    keys: Vec<GoneKey>,
    unreferenced: &mut Vec<Unreferenced>,
    context: &Context<'_>,
) -> Result<Option<Vec<GoneKey>>> {
    let set = writer.set;
    let referrer = &set.target(target).referrers[position];
    let (deleted, updated): (Vec<_>, Vec<_>) = keys.into_iter().partition(|key| key.new.is_none());
    let mut later = Vec::new();
    for (keys, action) in [(deleted, referrer.on_delete), (updated, referrer.on_update)] {
        if keys.is_empty() {
            continue;
        }
        match action {
            ReferentialAction::NoAction => {
                later.extend(keys);
                continue;
            }
            ReferentialAction::Restrict => {
                let keys: Vec<&[Value]> = keys.iter().map(|key| key.old.as_slice()).collect();
                let definition = &set.target(target).definition;
                refuse_if_referenced(writer.transaction, definition, referrer, &keys, false)?;
                continue;
            }
            ReferentialAction::Cascade | ReferentialAction::SetNull | ReferentialAction::SetDefault => {}
        }
        let child = referrer.child_target.expect("a set has every table that its actions change");
        let child_target = set.target(child);
        let old: Vec<&[Value]> = keys.iter().map(|key| key.old.as_slice()).collect();
        let rows = referencing_rows(writer.transaction, referrer, &old)?;
        for (row, key) in rows {
            context.check_cancel()?;
            let guard = pin();
            // Another action of the same statement may have changed the row first.
            if !writer.transaction.read(&referrer.child, row, &[], &mut [], &guard) {
                continue;
            }
            let values: Vec<Value> = match (action, &keys[key].new) {
                (ReferentialAction::Cascade, None) => {
                    let needed = writer.set.target(child).columns_to_delete();
                    let (old, _) = writer.read(child, &needed, 1, std::iter::once((0, row)));
                    writer.delete(child, row, &old.row(0), &guard)?;
                    continue;
                }
                (ReferentialAction::Cascade, Some(new)) => {
                    let parts = new.iter().zip(&referrer.types).zip(&referrer.child_types);
                    parts
                        .map(|((value, from), to)| refitted(value, *from, *to).ok_or_else(numeric::overflow))
                        .collect::<Result<_>>()?
                }
                (ReferentialAction::SetNull, _) => vec![Value::Null; referrer.child_columns.len()],
                _ => {
                    let default = |column: &ColumnId| {
                        let column = &child_target.columns[column.index()];
                        let default =
                            column.default.as_ref().expect("columns that are set to defaults have one");
                        default.value(context)
                    };
                    referrer.child_columns.iter().map(default).collect::<Result<_>>()?
                }
            };
            writer.update_to_values(child, row, &referrer.child_columns, &values, context, &guard)?;
        }
        if action == ReferentialAction::SetDefault {
            // The default may be the very key that was removed; deferred or not, actions end with the statement.
            unreferenced.push((target, position, keys));
        }
    }
    Ok((!later.is_empty()).then_some(later))
}

/// Fails if a row still references one of the keys of `table`. With `unless_back` a key that exists again may be referenced.
pub(super) fn refuse_if_referenced(
    transaction: &Transaction,
    table: &TableDef,
    referrer: &Referrer,
    keys: &[&[Value]],
    unless_back: bool,
) -> Result<()> {
    let guard = pin();
    let is_back = |key: &[Value]| {
        let (table, index) = (&referrer.own_table, &referrer.own_index);
        unless_back && transaction.get(table, index, &referrer.encode_own(key), &guard).is_some()
    };
    let found = match &referrer.child_index {
        Some((index, order)) => {
            let mut found = None;
            for (position, key) in keys.iter().enumerate() {
                let Some(prefix) = child_prefix(referrer, index, order, key) else { continue };
                if !is_back(key)
                    && transaction.referencing_row_exists(&referrer.child, index, &prefix, &guard)?
                {
                    found = Some(position);
                    break;
                }
            }
            found
        }
        None => referencing_rows(transaction, referrer, keys)?
            .into_iter()
            .map(|(_, key)| key)
            .find(|key| !is_back(keys[*key])),
    };
    let Some(found) = found else { return Ok(()) };
    Err(Error::new(
        SqlState::FOREIGN_KEY_VIOLATION,
        format!(
            "update or delete on table \"{}\" violates foreign key constraint \"{}\" on table \"{}\"",
            table.name, referrer.name, referrer.child_name
        ),
    )
    .with_constraint(referrer.name.clone())
    .with_detail(format!(
        "Key {} is still referenced from table \"{}\".",
        described_key(&column_names(table, &referrer.columns), keys[found]),
        referrer.child_name
    )))
}

fn column_names<'t>(table: &'t TableDef, columns: &[ColumnId]) -> Vec<&'t str> {
    columns.iter().map(|column| table.columns[column.index()].name.as_str()).collect()
}

/// The beginning of the child's index keys that reference `key`; `None` if the child's columns cannot hold it, so that nothing
/// can reference it.
fn child_prefix(
    referrer: &Referrer,
    index: &firn_storage::Index,
    order: &[usize],
    key: &[Value],
) -> Option<KeyBuffer> {
    let values: Vec<Value> = order
        .iter()
        .map(|&part| refitted(&key[part], referrer.types[part], referrer.child_types[part]))
        .collect::<Option<_>>()?;
    Some(encoded(index, values.iter().zip(order.iter().map(|&part| referrer.child_types[part]))))
}

/// The rows that reference one of the keys, each with the position of its key.
fn referencing_rows(
    transaction: &Transaction,
    referrer: &Referrer,
    keys: &[&[Value]],
) -> Result<Vec<(RowId, usize)>> {
    let guard = pin();
    let mut rows = Vec::new();
    if let Some((index, order)) = &referrer.child_index {
        for (position, key) in keys.iter().enumerate() {
            let Some(prefix) = child_prefix(referrer, index, order, key) else { continue };
            transaction.referencing_rows(&referrer.child, index, &prefix, &guard, &mut |row| {
                rows.push((row, position));
                true
            })?;
        }
        return Ok(rows);
    }
    let wanted: HashMap<KeyBuffer, usize> =
        keys.iter().enumerate().map(|(position, key)| (referrer.encode_own(key), position)).collect();
    transaction.note_scan(&referrer.child, &[], referrer.child_columns.iter().copied().collect());
    let scan = referrer.child.scan(transaction.snapshot(), &[], true);
    let mut cells: Cells<'_> = SmallVec::from_elem(Cell::Null, referrer.child_columns.len());
    while let Some(batch) = scan.next_batch(&guard) {
        let ids = batch.row_ids.as_ref().expect("the scan was asked for row ids");
        for slot in 0..batch.rows {
            let row = RowId::from_bits(ids.value(slot));
            if !transaction.peek(&referrer.child, row, &referrer.child_columns, &mut cells, &guard)
                || cells.iter().any(Cell::is_null)
            {
                continue;
            }
            // The parent's encoding of a key is the same for all that is equal, whatever the child's types.
            let parts = cells.iter().zip(&referrer.child_types).zip(&referrer.types);
            let values: Option<Vec<Value>> =
                parts.map(|((cell, from), to)| refitted(&cell.to_value(from.stored), *from, *to)).collect();
            let key = values.map(|values| referrer.encode_own(&values));
            if let Some(position) = key.and_then(|key| wanted.get(&key)) {
                rows.push((row, *position));
            }
        }
    }
    Ok(rows)
}

/// A value of one side of a foreign key as the other side stores it; `None` if that one cannot hold it. DDL lets only types meet
/// that need no time zone for that.
fn refitted(value: &Value, from: ColumnType, to: ColumnType) -> Option<Value> {
    if from == to || value.is_null() {
        return Some(value.clone());
    }
    if let Some(ty) = to.as_sql_type()
        && from.as_sql_type().is_some()
    {
        return coerce::assign(value.clone(), ty, &TextStyle::DEFAULT).ok();
    }
    let number = match value {
        Value::SmallInt(value) => Numeric::from_decimal((*value).into(), 0),
        Value::Integer(value) => Numeric::from_decimal((*value).into(), 0),
        Value::BigInt(value) => Numeric::from_decimal((*value).into(), 0),
        Value::Numeric { unscaled, scale } => Numeric::from_decimal(*unscaled, *scale),
        Value::Number(value) => *value,
        other => return (from.stored == to.stored).then(|| other.clone()),
    };
    match to.stored {
        Representation::Int16 => i16::try_from(number.exactly_at(0)?).ok().map(Value::SmallInt),
        Representation::Int32 => i32::try_from(number.exactly_at(0)?).ok().map(Value::Integer),
        Representation::Int64 => i64::try_from(number.exactly_at(0)?).ok().map(Value::BigInt),
        Representation::Decimal { precision, scale } => {
            let unscaled = number.exactly_at(scale.into())?;
            let most = numeric::power_of_ten(precision.into());
            let fits = most.is_none_or(|most| unscaled.unsigned_abs() < most.unsigned_abs());
            fits.then_some(Value::Numeric { unscaled, scale })
        }
        Representation::Numeric => Some(Value::Number(number)),
        _ => None,
    }
}
