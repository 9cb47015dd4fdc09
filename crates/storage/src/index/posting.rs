//! Postings: the rows under one key of a unique index, nearly always one.
//!
//! A posting is the value of its key in the tree, 61 bits:
//!
//! ```text
//! 0 │ row id: 52              one row
//! 1 │ number of a list: 60    several rows, in `Lists`
//! SUFFIXED                    the row id is the end of the key (keys that contain a NULL)
//! ```
//!
//! A posting is changed in steps: read it, check its rows, replace it. The tree replaces it only if nothing
//! has changed since it was read, not even by a removal and a new insert of the same row
//! ([`super::radix::Sighting`]). So a row that was found dead cannot be alive again when another takes its
//! place. Numbers of lists are not reused.

use super::ordered::Verdict;
use super::radix::VALUE_BITS;
use firn_base::RowId;
use firn_base::sync::{AtomicU64, Mutex, Ordering};
use hashbrown::HashMap;
use smallvec::SmallVec;

const LISTED: u64 = 1 << (VALUE_BITS - 1);
/// The row id is the end of the key, which contains a NULL and so conflicts with no other.
pub(super) const SUFFIXED: u64 = LISTED | (LISTED - 1);

const ROW_BITS: u32 = 52;

/// The rows of one posting.
pub(super) type Rows = SmallVec<[RowId; 4]>;

/// The meaning of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Posting {
    One(RowId),
    Listed(u64),
    Suffixed,
}

impl Posting {
    /// Decodes a value.
    #[inline]
    pub(super) fn of(value: u64) -> Posting {
        match value {
            _ if value & LISTED == 0 => Posting::One(RowId::from_bits(value)),
            SUFFIXED => Posting::Suffixed,
            _ => Posting::Listed(value & !LISTED),
        }
    }
}

/// The value for one row.
pub(super) fn single(row: RowId) -> u64 {
    // 32 bits of block numbers are 4 PiB of one table in blocks of 1 MiB.
    assert!(row.to_bits() >> ROW_BITS == 0, "row id {row:?} does not fit an index");
    row.to_bits()
}

/// Lists by number.
pub(super) type Shard = HashMap<u64, Rows>;

/// A lock around a shard: a mutex, or a model of one.
pub(super) trait Lock: Default {
    fn with<R>(&self, body: impl FnOnce(&mut Shard) -> R) -> R;
}

impl Lock for Mutex<Shard> {
    fn with<R>(&self, body: impl FnOnce(&mut Shard) -> R) -> R {
        body(&mut self.lock())
    }
}

const SHARDS: usize = 16;

/// The side table of postings with several rows. A list never changes; a changed posting is a new list with a
/// new number. A list is dropped after its posting has been replaced. So a thread that does not find the list
/// of a posting that it has read will find, by the order of the shard's lock, another posting.
pub(super) struct Lists<L = Mutex<Shard>> {
    shards: [L; SHARDS],
    next: AtomicU64,
}

impl<L: Lock> Lists<L> {
    pub(super) fn new() -> Lists<L> {
        Lists { shards: std::array::from_fn(|_| L::default()), next: AtomicU64::new(0) }
    }

    fn with_shard<R>(&self, number: u64, body: impl FnOnce(&mut Shard) -> R) -> R {
        self.shards[number as usize % SHARDS].with(body)
    }

    /// The value for these rows; a new list, if there are several.
    fn value_of(&self, rows: Rows) -> Option<u64> {
        match rows[..] {
            [] => None,
            [row] => Some(single(row)),
            _ => {
                let number = self.next.fetch_add(1, Ordering::Relaxed);
                self.with_shard(number, |shard| shard.insert(number, rows));
                Some(LISTED | number)
            }
        }
    }

    /// Drops the list of a value that no key has any more, if it is a list.
    fn forget(&self, value: u64) {
        if let Posting::Listed(number) = Posting::of(value) {
            self.with_shard(number, |shard| shard.remove(&number)).expect("a list is dropped once");
        }
    }

    /// The rows of a value; `None` if the posting has been replaced meanwhile.
    pub(super) fn rows(&self, value: u64) -> Option<Rows> {
        match Posting::of(value) {
            Posting::One(row) => Some(SmallVec::from_slice(&[row])),
            Posting::Listed(number) => self.with_shard(number, |shard| shard.get(&number).cloned()),
            Posting::Suffixed => unreachable!("keys that hold a NULL are not shared"),
        }
    }

    /// How many more rows there are than keys with a list.
    pub(super) fn surplus(&self) -> usize {
        let surplus = |shard: &mut Shard| shard.values().map(|rows| rows.len() - 1).sum::<usize>();
        self.shards.iter().map(|shard| shard.with(surplus)).sum()
    }

    /// How many lists there are.
    pub(super) fn count(&self) -> usize {
        self.shards.iter().map(|shard| shard.with(|lists| lists.len())).sum()
    }
}

/// The operations of the tree that the protocol needs.
pub(super) trait Entries {
    /// The value under a key, with the evidence that shows later changes.
    type Sighting: Copy;

    /// Inserts a key that is not there. Returns false if it is.
    fn insert(&self, key: &[u8], value: u64) -> bool;
    /// Reads the value under a key.
    fn look(&self, key: &[u8]) -> (Option<u64>, Self::Sighting);
    /// Sets or removes the value of a key, unless anything has happened to it since it was read.
    fn replace(&self, key: &[u8], seen: Self::Sighting, new: Option<u64>) -> bool;
}

/// The rows under a key.
pub(super) fn rows(entries: &impl Entries, lists: &Lists<impl Lock>, key: &[u8]) -> Rows {
    sight(entries, lists, key).map_or_else(Rows::new, |(_, rows, _)| rows)
}

/// The value under a key, with its rows.
fn sight<E: Entries>(entries: &E, lists: &Lists<impl Lock>, key: &[u8]) -> Option<(u64, Rows, E::Sighting)> {
    loop {
        let (value, seen) = entries.look(key);
        let value = value?;
        if let Some(rows) = lists.rows(value) {
            return Some((value, rows, seen));
        }
    }
}

/// Lists `row` under `key` after `judge` has accepted every other row that is listed there.
///
/// A row that is listed already (an older version of it had this key) is listed again, so that a removal that
/// was decided before fails.
#[inline]
pub(super) fn claim<E>(
    entries: &impl Entries,
    lists: &Lists<impl Lock>,
    key: &[u8],
    row: RowId,
    judge: impl FnMut(RowId) -> Result<Verdict, E>,
) -> Result<(), E> {
    if entries.insert(key, single(row)) { Ok(()) } else { claim_again(entries, lists, key, row, judge) }
}

#[cold]
fn claim_again<E>(
    entries: &impl Entries,
    lists: &Lists<impl Lock>,
    key: &[u8],
    row: RowId,
    mut judge: impl FnMut(RowId) -> Result<Verdict, E>,
) -> Result<(), E> {
    loop {
        let Some((old, mut rows, seen)) = sight(entries, lists, key) else {
            if entries.insert(key, single(row)) {
                return Ok(());
            }
            continue;
        };
        for &other in rows.iter().filter(|&&other| other != row) {
            let Verdict::Dead = judge(other)?;
        }
        if !rows.contains(&row) {
            rows.push(row);
        }
        if replace(entries, lists, key, (old, seen), rows) {
            return Ok(());
        }
    }
}

/// Removes `row` from `key` if `dead` returns true. If anything happens to the key after the call of `dead`,
/// it is called again. Does nothing if the row is not listed.
pub(super) fn remove(
    entries: &impl Entries,
    lists: &Lists<impl Lock>,
    key: &[u8],
    row: RowId,
    mut dead: impl FnMut() -> bool,
) {
    while let Some((old, mut rows, seen)) = sight(entries, lists, key) {
        let Some(position) = rows.iter().position(|&listed| listed == row) else { return };
        if !dead() {
            return;
        }
        rows.remove(position);
        if replace(entries, lists, key, (old, seen), rows) {
            return;
        }
    }
}

/// Replaces the value `old` by one for `rows`, unless another thread was first.
fn replace<E: Entries>(
    entries: &E,
    lists: &Lists<impl Lock>,
    key: &[u8],
    (old, seen): (u64, E::Sighting),
    rows: Rows,
) -> bool {
    let new = lists.value_of(rows);
    let replaced = entries.replace(key, seen, new);
    if let Some(unused) = if replaced { Some(old) } else { new } {
        lists.forget(unused);
    }
    replaced
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_base::{BlockNumber, Slot};

    fn row(slot: u32) -> RowId {
        RowId::new(BlockNumber(3), Slot(slot))
    }

    #[test]
    fn a_value_is_read_as_it_was_written() {
        let largest = RowId::from_bits((1 << ROW_BITS) - 1);
        for row in [row(0), row(7), largest] {
            assert_eq!(Posting::of(single(row)), Posting::One(row));
        }
        assert_eq!(Posting::of(LISTED | 5), Posting::Listed(5));
        assert_eq!(Posting::of(SUFFIXED), Posting::Suffixed);
    }

    /// A tree of one key with atomic operations, like those of the radix tree: the value, and how often it
    /// was replaced or removed.
    struct OneKey(loom::sync::Mutex<(Option<u64>, u64)>);

    impl Entries for OneKey {
        type Sighting = (Option<u64>, u64);

        fn insert(&self, _: &[u8], value: u64) -> bool {
            let mut entry = self.0.lock().unwrap();
            let absent = entry.0.is_none();
            entry.0.get_or_insert(value);
            absent
        }

        fn look(&self, _: &[u8]) -> (Option<u64>, Self::Sighting) {
            // Two steps, as in the radix tree.
            let changes = self.0.lock().unwrap().1;
            let value = self.0.lock().unwrap().0;
            (value, (value, changes))
        }

        fn replace(&self, _: &[u8], seen: Self::Sighting, new: Option<u64>) -> bool {
            let mut entry = self.0.lock().unwrap();
            let unchanged = *entry == seen;
            if unchanged {
                *entry = (new, entry.1 + 1);
            }
            unchanged
        }
    }

    #[derive(Default)]
    struct ModelLock(loom::sync::Mutex<Shard>);

    impl Lock for ModelLock {
        fn with<R>(&self, body: impl FnOnce(&mut Shard) -> R) -> R {
            body(&mut self.0.lock().unwrap())
        }
    }

    struct Model {
        entries: OneKey,
        lists: Lists<ModelLock>,
        /// Whether each row is alive with the key, as storage's version chains would show.
        alive: [loom::sync::atomic::AtomicBool; 4],
    }

    impl Model {
        fn new() -> Model {
            Model {
                entries: OneKey(loom::sync::Mutex::new((None, 0))),
                lists: Lists::new(),
                alive: std::array::from_fn(|_| loom::sync::atomic::AtomicBool::new(false)),
            }
        }

        fn is_alive(&self, row: RowId) -> bool {
            self.alive[row.slot().index()].load(loom::sync::atomic::Ordering::Acquire)
        }

        fn set_alive(&self, row: RowId, alive: bool) {
            self.alive[row.slot().index()].store(alive, loom::sync::atomic::Ordering::Release);
        }

        /// As in storage: write the row first, then claim its key; undo both at a conflict.
        fn insert(&self, row: RowId) -> bool {
            self.set_alive(row, true);
            let judge = |other| if self.is_alive(other) { Err(()) } else { Ok(Verdict::Dead) };
            let won = claim(&self.entries, &self.lists, b"", row, judge).is_ok();
            if !won {
                self.set_alive(row, false);
            }
            won
        }

        fn collect(&self, row: RowId) {
            remove(&self.entries, &self.lists, b"", row, || !self.is_alive(row));
        }

        fn rows(&self) -> Rows {
            rows(&self.entries, &self.lists, b"")
        }

        /// Every live row is listed, and no list is left over.
        fn verify(&self) {
            let rows = self.rows();
            for slot in 0..4 {
                assert!(!self.is_alive(row(slot)) || rows.contains(&row(slot)), "row {slot} is lost");
            }
            assert!(self.lists.count() <= usize::from(rows.len() > 1));
        }
    }

    fn explore(body: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(body);
    }

    /// Two rows claim the key while the collector is removing a dead row from it.
    #[test]
    #[cfg_attr(miri, ignore = "loom switches stacks")]
    fn one_of_two_claims_wins_while_the_last_dead_row_leaves() {
        explore(|| {
            let model = loom::sync::Arc::new(Model::new());
            assert!(model.insert(row(0)));
            model.set_alive(row(0), false);
            let claims = [1, 2].map(|slot| {
                let model = model.clone();
                loom::thread::spawn(move || model.insert(row(slot)))
            });
            model.collect(row(0));
            let wins = claims.map(|claim| claim.join().unwrap());
            assert!(!(wins[0] && wins[1]), "two rows hold one unique key");
            model.verify();
        });
    }

    /// A row returns to its old key while the collector removes it for its dead version, and another row
    /// claims the key, too.
    #[test]
    #[cfg_attr(miri, ignore = "loom switches stacks")]
    fn a_row_that_comes_back_is_not_collected() {
        explore(|| {
            let model = loom::sync::Arc::new(Model::new());
            assert!(model.insert(row(0)));
            model.set_alive(row(0), false);
            let back = {
                let model = model.clone();
                loom::thread::spawn(move || model.insert(row(0)))
            };
            let other = {
                let model = model.clone();
                loom::thread::spawn(move || model.insert(row(1)))
            };
            model.collect(row(0));
            let wins = [back.join().unwrap(), other.join().unwrap()];
            assert!(!(wins[0] && wins[1]), "two rows hold one unique key");
            model.verify();
        });
    }
}
