//! Foreign keys: what a row points at must be there, what is pointed at must not just go.
//!
//! A statement first makes all its changes; then [`finish`] works through what they left pending.
//! Actions come first (cascade, set null, set default), each perhaps leaving more pending, so that
//! cycles and self-references end when no row is left to change; tests come last, when everything
//! is in its final place. RESTRICT refuses as soon as its turn comes and does not look whether
//! another row has taken the key's place; NO ACTION does.
//!
//! Tests of a deferred key are the transaction's: [`crate::deferred`] makes them.
//!
//! Against concurrent transactions: a new pointing row and the deletion of its target meet in
//! [`firn_txn::Transaction::reference_target_exists`] and `referencing_row_exists`. The latter
//! needs an index of the child that begins with the key's columns, which DDL sees to. Without one, as in a catalog of
//! before it did, the child is scanned as this transaction sees it, and only the pointing side can notice the other.

use crate::deferred;
use crate::dml::target::{LateKey, Reference, Referrer, changes_child};
use crate::dml::writer::{Cells, Writer, describe_named_key};
use crate::types;
use firn_base::{Cell, ColumnId, Error, Result, RowId, SqlState, SqlType, TimeZoneSetting, Value, coerce};
use firn_storage::{KeyBuffer, Table};
use firn_txn::catalog::{ReferentialAction, TableDef};
use firn_txn::{Guard, Transaction, pin};
use smallvec::SmallVec;
use std::collections::HashMap;
use std::collections::VecDeque;

/// What the end of a statement has to look at.
#[derive(Debug)]
pub(crate) enum Pending {
    /// A row of `target` was written that points somewhere.
    Reference { target: usize, reference: usize, row: RowId },
    /// A row of `target` was written that shared a deferrable key with another.
    SharedKey { target: usize, key: usize, row: RowId },
    /// A key of `target` that others may point at went, or turned into `new`.
    Gone { target: usize, referrer: usize, old: Vec<Value>, new: Option<Vec<Value>> },
}

/// A key that went, and what took its place.
pub(crate) struct GoneKey {
    pub old: Vec<Value>,
    pub new: Option<Vec<Value>>,
}

/// Tests that the row is there at which one of `table` points whose columns of the foreign key are `cells`,
/// none of them NULL.
pub(crate) fn check_reference(
    transaction: &Transaction,
    table: &TableDef,
    reference: &Reference,
    cells: &[Cell<'_>],
    guard: &Guard,
) -> Result<()> {
    let mut key = KeyBuffer::new();
    let same_types = reference
        .key
        .iter()
        .all(|(position, ty)| table.columns[reference.columns[*position].index()].ty == (*ty).into());
    let fits = if same_types {
        let parts: Cells<'_> = reference.key.iter().map(|(position, _)| cells[*position]).collect();
        reference.index.encode(&parts, &mut key);
        true
    } else {
        let values: Option<Vec<Value>> = reference
            .key
            .iter()
            .map(|(position, ty)| {
                let own_type = table.columns[reference.columns[*position].index()].ty.stored;
                assign(cells[*position].to_value(own_type), *ty).ok()
            })
            .collect();
        // A value that the parent's type cannot hold is not there either.
        values.is_some_and(|values| {
            let parts: Cells<'_> =
                values.iter().zip(&reference.key).map(|(value, (_, ty))| value.as_cell(*ty)).collect();
            reference.index.encode(&parts, &mut key);
            true
        })
    };
    if fits && transaction.reference_target_exists(&reference.parent, &reference.index, &key, guard)? {
        return Ok(());
    }
    let values: Vec<Value> = reference
        .columns
        .iter()
        .zip(cells)
        .map(|(column, cell)| cell.to_value(table.columns[column.index()].ty.stored))
        .collect();
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
        describe_named_key(&column_names(table, &reference.columns), &values),
        reference.parent_name
    )))
}

/// Works through everything that a statement's changes left pending.
pub(crate) fn finish(mut writer: Writer<'_>) -> Result<()> {
    let mut references = Vec::new();
    let mut unreferenced = Vec::new();
    let mut shared_keys = Vec::new();
    while let Some(pending) = writer.pending.pop_front() {
        match pending {
            Pending::Reference { target, reference, row } => references.push((target, reference, row)),
            Pending::SharedKey { target, key, row } => shared_keys.push((target, key, row)),
            Pending::Gone { target, referrer, old, new } => {
                let mut keys = vec![GoneKey { old, new }];
                if writer.set.target(target).referrers[referrer].child_index.is_none() {
                    // Every look at this child is a scan, so let one scan serve all its keys.
                    take_alike(&mut writer.pending, target, referrer, &mut keys);
                }
                keep_child(&mut writer, target, referrer, &keys)?;
                if let Some(later) = act(&mut writer, target, referrer, keys, &mut unreferenced)? {
                    let key = &writer.set.target(target).referrers[referrer];
                    match writer.transaction.defers(key.constraint, key.deferral) {
                        true => deferred::put_off(writer.transaction, key, later),
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
        let table = writer.set.target(target);
        check_row(writer.transaction, &table.definition, &table.table, &table.references[reference], row)?;
    }
    Ok(())
}

/// Keeps others from putting rows that point at what goes into the place of the pointing table (TRUNCATE), where nobody would find them.
/// Who shares a lock on it keeps them from that already.
fn keep_child(writer: &mut Writer<'_>, target: usize, referrer: usize, keys: &[GoneKey]) -> Result<()> {
    let set = writer.set;
    let Referrer { child, on_delete, on_update, .. } = &set.target(target).referrers[referrer];
    let action = |key: &GoneKey| if key.new.is_none() { *on_delete } else { *on_update };
    if !writer.transaction.has_locked(child) {
        match keys.iter().any(|key| changes_child(action(key))) {
            // Before it holds a guard, since it may have to wait for the table.
            true => writer.transaction.lock_row_exclusive(child)?,
            false => writer.transaction.lock_row_share(child)?,
        };
    }
    Ok(())
}

/// [`check_reference`] of a row as it is now, if it still is there and points anywhere.
pub(crate) fn check_row(
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
        check_reference(transaction, definition, reference, &cells, &guard)?;
    }
    Ok(())
}

/// Tests that no other row has the key of a row as it is now, if it still is there.
pub(crate) fn check_unique(
    transaction: &Transaction,
    definition: &TableDef,
    table: &Table,
    key: &LateKey,
    row: RowId,
) -> Result<()> {
    let guard = pin();
    let mut cells: Cells<'_> = SmallVec::from_elem(Cell::Null, key.columns.len());
    // A row that the transaction has written: nobody else can change what stands there.
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
        cells.iter().zip(&key.column_types).map(|(cell, ty)| cell.to_value(*ty)).collect();
    let described = describe_named_key(&column_names(definition, &key.columns), &values);
    Err(Error::new(
        SqlState::UNIQUE_VIOLATION,
        format!("duplicate key value violates unique constraint \"{}\"", key.name),
    )
    .with_constraint(key.name.clone())
    .with_detail(format!("Key {described} already exists.")))
}

/// Moves the other keys that went from the same foreign key's view to `keys`.
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

/// Keys of a target that one of its referrers must no longer point at.
type Unreferenced = (usize, usize, Vec<GoneKey>);

/// Does to the pointing rows what their foreign key says; what it says only to test comes back.
fn act(
    writer: &mut Writer<'_>,
    target: usize,
    position: usize,
    keys: Vec<GoneKey>,
    unreferenced: &mut Vec<Unreferenced>,
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
        let child = referrer.child_target.expect("a set holds every table that its actions change");
        let child_target = set.target(child);
        let old: Vec<&[Value]> = keys.iter().map(|key| key.old.as_slice()).collect();
        let rows = pointing_rows(writer.transaction, referrer, &old)?;
        for (row, key) in rows {
            let guard = pin();
            // Another action of the same statement may have come to the row first.
            if !writer.transaction.read(&referrer.child, row, &[], &mut [], &guard) {
                continue;
            }
            let values: Vec<Value> = match (action, &keys[key].new) {
                (ReferentialAction::Cascade, None) => {
                    writer.delete(child, row, &guard)?;
                    continue;
                }
                (ReferentialAction::Cascade, Some(new)) => new
                    .iter()
                    .zip(&referrer.child_types)
                    .map(|(value, ty)| assign(value.clone(), *ty))
                    .collect::<Result<_>>()?,
                (ReferentialAction::SetNull, _) => vec![Value::Null; referrer.child_columns.len()],
                _ => referrer
                    .child_columns
                    .iter()
                    .map(|column| child_target.default_value(*column, &writer.environment))
                    .collect::<Result<_>>()?,
            };
            writer.update(child, row, &referrer.child_columns, &values, true, &guard)?;
        }
        if action == ReferentialAction::SetDefault {
            // The default may be the very key that went; deferred or not, actions end with the statement.
            unreferenced.push((target, position, keys));
        }
    }
    Ok((!later.is_empty()).then_some(later))
}

/// Fails if a row still points at one of the keys of `table`. With `unless_back` a key that is there
/// again may be pointed at.
pub(crate) fn refuse_if_referenced(
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
        None => pointing_rows(transaction, referrer, keys)?
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
        describe_named_key(&column_names(table, &referrer.columns), keys[found]),
        referrer.child_name
    )))
}

fn column_names<'t>(table: &'t TableDef, columns: &[ColumnId]) -> Vec<&'t str> {
    columns.iter().map(|column| table.columns[column.index()].name.as_str()).collect()
}

/// The beginning of the child's index keys that point at `key`; `None` if the child's columns
/// cannot hold it, so that nothing can point there.
fn child_prefix(
    referrer: &Referrer,
    index: &firn_storage::Index,
    order: &[usize],
    key: &[Value],
) -> Option<KeyBuffer> {
    let values: Vec<Value> = order
        .iter()
        .map(|&part| assign(key[part].clone(), referrer.child_types[part]).ok())
        .collect::<Option<_>>()?;
    let parts: Cells<'_> =
        values.iter().zip(order).map(|(value, &part)| value.as_cell(referrer.child_types[part])).collect();
    let mut prefix = KeyBuffer::new();
    index.encode(&parts, &mut prefix);
    Some(prefix)
}

/// The rows that point at one of the keys, each with the position of its key.
fn pointing_rows(
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
    // The parent's encoding of a key is the same for all that is equal, whatever the child's types.
    let encode = |values: &[Value]| {
        let values: Vec<Value> = values
            .iter()
            .zip(&referrer.column_types)
            .map(|(value, ty)| assign(value.clone(), *ty).ok().filter(|value| !value.is_null()))
            .collect::<Option<_>>()?;
        Some(referrer.encode_own(&values))
    };
    let wanted: HashMap<KeyBuffer, usize> =
        keys.iter().enumerate().filter_map(|(position, key)| Some((encode(key)?, position))).collect();
    transaction.note_scan(&referrer.child, &[], referrer.child_columns.iter().copied().collect());
    let scan = referrer.child.scan(transaction.snapshot(), &referrer.child_columns, true);
    let mut values = vec![Value::Null; referrer.child_columns.len()];
    while let Some(batch) = scan.next_batch(&guard) {
        let ids = batch.row_ids.as_ref().expect("the scan was asked for row ids");
        for slot in 0..batch.rows {
            for (value, column) in values.iter_mut().zip(&batch.columns) {
                *value = types::value_at(column, slot)?;
            }
            if let Some(position) = encode(&values).and_then(|key| wanted.get(&key)) {
                rows.push((RowId::from_bits(ids.value(slot)), *position));
            }
        }
    }
    Ok(rows)
}

/// A value of one side of a foreign key as the other side's type. DDL lets only types meet that
/// need no time zone for that.
fn assign(value: Value, ty: SqlType) -> Result<Value> {
    coerce::assign(value, ty, &TimeZoneSetting::UTC)
}
