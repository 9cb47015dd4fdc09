//! The reference index: a B-tree under one lock, too simple to be wrong. Tests compare the radix trees with
//! it and can run whole tables on it.

use super::ordered::{OrderedIndex, Span, Verdict};
use crate::Guard;
use firn_base::RowId;
use firn_base::sync::RwLock;
use std::collections::BTreeMap;
use std::ops::Bound;

/// Keys, each with its rows in order and the number of the last change to them.
#[derive(Default)]
struct Entries {
    keys: BTreeMap<Vec<u8>, (Vec<RowId>, u64)>,
    changes: u64,
}

/// A unique or non-unique index.
#[derive(Default)]
pub(super) struct LockedIndex(RwLock<Entries>);

impl LockedIndex {
    pub(super) fn claim<E>(
        &self,
        key: &[u8],
        row: RowId,
        mut judge: impl FnMut(RowId) -> Result<Verdict, E>,
    ) -> Result<(), E> {
        loop {
            // The judge reads other rows, so it runs without the lock. Its verdict holds if the rows are
            // still the same.
            let seen = self.0.read().keys.get(key).cloned();
            for &other in seen.iter().flat_map(|(rows, _)| rows).filter(|&&other| other != row) {
                let Verdict::Dead = judge(other)?;
            }
            let mut entries = self.0.write();
            if entries.keys.get(key).map(|(_, change)| *change) == seen.map(|(_, change)| change) {
                entries.add(key, row);
                return Ok(());
            }
        }
    }

    /// The first key above or below the bounds with its rows.
    fn step(&self, low: Bound<&[u8]>, high: Bound<&[u8]>, reverse: bool) -> Option<(Vec<u8>, Vec<RowId>)> {
        let entries = self.0.read();
        let mut range = entries.keys.range::<[u8], _>((low, high));
        let (key, (rows, _)) = if reverse { range.next_back() } else { range.next() }?;
        Some((key.clone(), rows.clone()))
    }
}

impl Entries {
    fn add(&mut self, key: &[u8], row: RowId) {
        self.changes += 1;
        let (rows, change) = self.keys.entry(key.to_vec()).or_default();
        if let Err(position) = rows.binary_search(&row) {
            rows.insert(position, row);
        }
        *change = self.changes;
    }
}

impl OrderedIndex for LockedIndex {
    fn insert(&self, key: &[u8], row: RowId, _guard: &Guard) {
        self.0.write().add(key, row);
    }

    fn remove(&self, key: &[u8], row: RowId, _guard: &Guard, mut dead: impl FnMut() -> bool) {
        loop {
            let Some((_, change)) = self.0.read().keys.get(key).cloned() else { return };
            if !dead() {
                return;
            }
            let mut entries = self.0.write();
            let changes = entries.changes + 1;
            match entries.keys.get_mut(key) {
                Some((rows, last_change)) if *last_change == change => {
                    if let Ok(position) = rows.binary_search(&row) {
                        rows.remove(position);
                    }
                    *last_change = changes;
                    if rows.is_empty() {
                        entries.keys.remove(key);
                    }
                    entries.changes = changes;
                    return;
                }
                _ => {}
            }
        }
    }

    fn range(
        &self,
        span: Span<'_>,
        reverse: bool,
        _guard: &Guard,
        _ahead: &mut impl FnMut(RowId),
        visit: &mut impl FnMut(&[u8], RowId) -> bool,
    ) {
        // One key at a time, so that `visit` runs without the lock.
        let mut last: Option<Vec<u8>> = None;
        loop {
            let (mut low, mut high) =
                (Bound::Included(span.low), span.high.map_or(Bound::Unbounded, Bound::Excluded));
            if let Some(last) = &last {
                *(if reverse { &mut high } else { &mut low }) = Bound::Excluded(&last[..]);
            }
            let Some((key, mut rows)) = self.step(low, high, reverse) else { return };
            if reverse {
                rows.reverse();
            }
            if !rows.into_iter().all(|row| visit(&key, row)) {
                return;
            }
            last = Some(key);
        }
    }

    fn len(&self, _guard: &Guard) -> usize {
        self.0.read().keys.values().map(|(rows, _)| rows.len()).sum()
    }

    fn memory_bytes(&self, _guard: &Guard) -> usize {
        let bytes = |(key, (rows, _)): (&Vec<u8>, &(Vec<RowId>, u64))| key.len() + rows.len() * 8 + 64;
        self.0.read().keys.iter().map(bytes).sum()
    }

    fn verify(&self, _guard: &Guard) {
        for (key, (rows, _)) in &self.0.read().keys {
            assert!(rows.is_sorted_by(|a, b| a < b) && !rows.is_empty(), "{key:02x?}: {rows:?}");
        }
    }
}
