//! Deferred constraints: the checks that wait for the end of the transaction.
//!
//! The transaction lists rows and keys; they are checked here as they are now and as the catalog has their constraints now. A row
//! that is gone, references another row or is alone under its key, a key that exists again, and a constraint that has been dropped
//! are no violations.
//!
//! Two transactions of which one adds a referencing row and the other deletes its target, or that give one key to two rows, cannot
//! both pass: each makes its change before it asks, and asks as statements do. They may meet another one's change here (40001 with
//! the blocker), so the caller waits and tries again as it does for statements.

use super::foreign_key::{self, GoneKey};
use super::target::{LateKey, Reference, Referrer};
use firn_base::sync::Arc;
use firn_base::{Result, RowId, Value};
use firn_txn::catalog::{ConstraintDef, ConstraintKind, Oid, TableDef};
use firn_txn::{Catalog, Check, Transaction};
use firn_vector::Context;

/// Defers the check that nothing references these keys. 53200 if there is no memory for more checks.
pub(super) fn defer(transaction: &mut Transaction, referrer: &Referrer, keys: Vec<GoneKey>) -> Result<()> {
    for key in keys {
        let encoded = referrer.encode_own(&key.old);
        let key = Arc::new(firn_txn::GoneKey { encoded, values: key.old.into() });
        transaction.defer(Check::Key { constraint: referrer.constraint, key })?;
    }
    Ok(())
}

/// Makes all deferred checks, before a transaction commits. 23503 or 23505 if one fails.
pub fn check_all(transaction: &mut Transaction, context: &Context<'_>) -> Result<()> {
    check(transaction, context, |_, _| true)
}

/// Makes the checks that are no longer deferred, after SET CONSTRAINTS. Errors likewise.
pub fn check_immediate(transaction: &mut Transaction, context: &Context<'_>) -> Result<()> {
    let due = |transaction: &Transaction, constraint: Oid| {
        let found = find(transaction.catalog(), constraint);
        found.is_none_or(|(table, found)| !transaction.defers(constraint, table.deferral(found)))
    };
    check(transaction, context, due)
}

/// What is checked for a key, or for one side of a foreign key.
enum Subjects {
    Rows(Vec<RowId>),
    Keys(Vec<Arc<firn_txn::GoneKey>>),
}

fn check(
    transaction: &mut Transaction,
    context: &Context<'_>,
    is_due: impl Fn(&Transaction, Oid) -> bool,
) -> Result<()> {
    if !transaction.has_deferred_checks() {
        return Ok(());
    }
    let mut groups: Vec<(Oid, Subjects)> = Vec::new();
    let mut not_due = Vec::new();
    for check in transaction.deferred_checks() {
        let constraint = check.constraint();
        let group = groups.iter_mut().find_map(|(known, subjects)| match (subjects, check) {
            (Subjects::Rows(rows), Check::Row { row, .. }) if *known == constraint => {
                rows.push(*row);
                Some(())
            }
            (Subjects::Keys(keys), Check::Key { key, .. }) if *known == constraint => {
                keys.push(key.clone());
                Some(())
            }
            _ => None,
        });
        if group.is_some() || not_due.contains(&constraint) {
            continue;
        }
        if !is_due(transaction, constraint) {
            not_due.push(constraint);
            continue;
        }
        let subjects = match check {
            Check::Row { row, .. } => Subjects::Rows(vec![*row]),
            Check::Key { key, .. } => Subjects::Keys(vec![key.clone()]),
        };
        groups.push((constraint, subjects));
    }
    for (constraint, subjects) in &groups {
        check_group(transaction, context, *constraint, subjects)?;
    }
    transaction.checks_made(|constraint| !not_due.contains(&constraint));
    Ok(())
}

fn check_group(
    transaction: &Transaction,
    context: &Context<'_>,
    constraint: Oid,
    subjects: &Subjects,
) -> Result<()> {
    let catalog = transaction.catalog();
    let tables = |id| transaction.table(id);
    let Some((table, constraint)) = find(catalog, constraint) else { return Ok(()) };
    let storage = transaction.table(table.storage());
    match (&constraint.kind, subjects) {
        (ConstraintKind::PrimaryKey { .. } | ConstraintKind::Unique { .. }, Subjects::Rows(rows)) => {
            let key = LateKey::compile(table, constraint, &tables)?.expect("a key that was deferred can be");
            for row in rows {
                context.check_cancel()?;
                foreign_key::check_unique(transaction, table, &storage, &key, *row)?;
            }
        }
        (ConstraintKind::ForeignKey { .. }, Subjects::Rows(rows)) => {
            let reference = Reference::compile(catalog, table, constraint, &tables)?;
            for row in rows {
                context.check_cancel()?;
                foreign_key::check_row(transaction, table, &storage, &reference, *row)?;
            }
        }
        (ConstraintKind::ForeignKey { parent, .. }, Subjects::Keys(keys)) => {
            let parent = &catalog.tables[parent];
            let referrer = Referrer::compile(parent, table, constraint, None, &tables)?;
            // Without an index each search of the child is a scan, so one serves all keys.
            let at_once = if referrer.child_index.is_some() { 1 } else { keys.len() };
            for keys in keys.chunks(at_once) {
                context.check_cancel()?;
                let keys: Vec<&[Value]> = keys.iter().map(|key| &*key.values).collect();
                foreign_key::refuse_if_referenced(transaction, parent, &referrer, &keys, true)?;
            }
        }
        (kind, _) => unreachable!("{kind:?} is not deferred this way"),
    }
    Ok(())
}

fn find(catalog: &Catalog, constraint: Oid) -> Option<(&Arc<TableDef>, &ConstraintDef)> {
    catalog.tables.values().find_map(|table| {
        let found = table.constraints.iter().find(|candidate| candidate.oid == constraint)?;
        Some((table, found))
    })
}
