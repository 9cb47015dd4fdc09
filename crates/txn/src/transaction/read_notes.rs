//! Reads that are noted for a transaction by threads that do not own it.
//!
//! A query reads on several threads, and continues between two calls in which the session has the
//! transaction. Most of what it reads is known when it begins; the keys that it looks up are known only while
//! it runs. They are collected here, and the transaction takes them over before it uses its reads, in
//! particular before it validates.

use super::Transaction;
use firn_base::ColumnSet;
use firn_base::sync::{Arc, Mutex};
use firn_storage::{Index, KeyBuffer, Restriction, Table};
use std::ops::Bound;

/// Where a transaction's reads are noted.
#[derive(Clone, Default)]
pub struct ReadNotes(Arc<Mutex<Vec<Note>>>);

struct Note {
    table: Arc<Table>,
    /// A range of an index; without it the whole table was read.
    range: Option<(Arc<Index>, Bound<KeyBuffer>, Bound<KeyBuffer>)>,
    restrictions: Arc<[Restriction]>,
    columns: ColumnSet,
}

impl ReadNotes {
    /// All rows under a range of keys that meet the restrictions, `columns` of each; see [`Transaction::range_under`].
    pub fn range(
        &self,
        table: &Arc<Table>,
        index: &Arc<Index>,
        (low, high): (Bound<KeyBuffer>, Bound<KeyBuffer>),
        restrictions: &Arc<[Restriction]>,
        columns: ColumnSet,
    ) {
        let range = Some((index.clone(), low, high));
        self.add(Note { table: table.clone(), range, restrictions: restrictions.clone(), columns });
    }

    /// All rows that meet the restrictions; see [`Transaction::note_scan`].
    pub fn scan(&self, table: &Arc<Table>, restrictions: &Arc<[Restriction]>, columns: ColumnSet) {
        self.add(Note { table: table.clone(), range: None, restrictions: restrictions.clone(), columns });
    }

    fn add(&self, note: Note) {
        self.0.lock().push(note);
    }
}

impl std::fmt::Debug for ReadNotes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ReadNotes({})", self.0.lock().len())
    }
}

impl Transaction {
    /// A handle with which other threads note what they read with its snapshot; `None` if its reads are not
    /// noted.
    pub fn read_notes(&self) -> Option<ReadNotes> {
        self.notes_reads().then(|| self.notes.get_or_init(ReadNotes::default).clone())
    }

    /// Takes over what other threads have noted.
    pub(super) fn take_notes(&self) {
        let Some(ReadNotes(notes)) = self.notes.get() else { return };
        let notes = std::mem::take(&mut *notes.lock());
        if notes.is_empty() {
            return;
        }
        let mut reads = self.reads.borrow_mut();
        for Note { table, range, restrictions, columns } in notes {
            match &range {
                Some((index, low, high)) => {
                    let bounds = (slice(low), slice(high));
                    reads.range(&table, index, bounds, &restrictions, columns);
                }
                None => reads.scan(&table, &restrictions, columns),
            }
        }
    }
}

fn slice(bound: &Bound<KeyBuffer>) -> Bound<&[u8]> {
    bound.as_ref().map(KeyBuffer::as_slice)
}
