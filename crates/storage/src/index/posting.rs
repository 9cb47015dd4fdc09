//! Postings: the rows under one key of a unique index, nearly always one.
//!
//! A posting is one atomic word beside its key in the tree:
//!
//! ```text
//! 0 │ generation: 11 │ row id: 52      one row
//! 1 │ number of a list: 63             several rows, in `Lists`
//! SUFFIXED                             the row id is the end of the key (keys that hold a NULL)
//! TOMB                                 no row; the entry is on its way out of the tree
//! ```
//!
//! Whoever changes a posting replaces the whole word by compare-and-swap. A claim judges the rows
//! that are listed and then swaps in a word that lists one more; this is sound because **no word
//! ever returns to an entry**: a row alone carries the entry's generation, which rises whenever a
//! single row takes the place of something else, and numbers of lists are used once. So an
//! unchanged word means that nobody claimed or left meanwhile. When the generations of an entry
//! are used up, it keeps to lists.
//!
//! TOMB is final. Who meets it helps to unlink that very entry and looks the key up again:
//!
//! ```text
//! remove(k, r)                          claim(k, s)
//!   word r -> TOMB
//!                                         finds the entry, reads TOMB
//!   unlink the entry (or find it gone)    unlink the entry (or find it gone)
//!                                         insert a new entry k -> s
//! ```

use super::Verdict;
use firn_base::RowId;
use firn_base::sync::{AtomicU64, Mutex, Ordering};
use smallvec::SmallVec;
use std::collections::HashMap;

const LISTED: u64 = 1 << 63;
const TOMB: u64 = u64::MAX;
/// The row id stands at the end of the key, which holds a NULL and so conflicts with no other.
pub(super) const SUFFIXED: u64 = u64::MAX - 1;

const ROW_BITS: u32 = 52;
const LAST_GENERATION: u64 = (1 << (63 - ROW_BITS)) - 1;

/// The rows of one posting.
pub(super) type Rows = SmallVec<[RowId; 4]>;

/// What a word says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Posting {
    One(RowId),
    Listed(u64),
    Suffixed,
    Tomb,
}

impl Posting {
    /// Reads a word.
    #[inline]
    pub(super) fn of(word: u64) -> Posting {
        match word {
            _ if word & LISTED == 0 => Posting::One(RowId::from_bits(word & ((1 << ROW_BITS) - 1))),
            TOMB => Posting::Tomb,
            SUFFIXED => Posting::Suffixed,
            _ => Posting::Listed(word & !LISTED),
        }
    }
}

fn single(row: RowId, generation: u64) -> u64 {
    // 32 bits of block numbers are 4 PiB of one table in blocks of 1 MiB.
    assert!(row.to_bits() >> ROW_BITS == 0, "row id {row:?} does not fit an index");
    generation << ROW_BITS | row.to_bits()
}

pub(super) struct List {
    rows: Rows,
    /// That of the last single row of the entry.
    generation: u64,
}

/// Lists by number.
pub(super) type Shard = HashMap<u64, List>;

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

/// The side table of postings with several rows. A list never changes; a changed posting is a new
/// list with a new number. A list is dropped after its word has been replaced, so whoever misses
/// the list of a word that it read finds, by the order of the shard's lock, another word there.
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

    /// The word of a new list.
    fn add(&self, list: List) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.with_shard(number, |shard| shard.insert(number, list));
        LISTED | number
    }

    /// Forgets the list of a word that no entry holds any more, if it is one.
    fn drop_word(&self, word: u64) {
        if let Posting::Listed(number) = Posting::of(word) {
            self.with_shard(number, |shard| shard.remove(&number)).expect("a list is dropped once");
        }
    }

    /// The rows and generation of a posting's word; `None` if the word has been replaced meanwhile.
    fn read(&self, word: u64) -> Option<(Rows, u64)> {
        match Posting::of(word) {
            Posting::One(row) => Some((SmallVec::from_slice(&[row]), word >> ROW_BITS)),
            Posting::Listed(number) => {
                let copy = |list: &List| (list.rows.clone(), list.generation);
                self.with_shard(number, |shard| shard.get(&number).map(copy))
            }
            Posting::Tomb => Some((Rows::new(), LAST_GENERATION)),
            Posting::Suffixed => unreachable!("keys that hold a NULL are not shared"),
        }
    }

    /// How many more rows there are than entries with a list.
    pub(super) fn surplus(&self) -> usize {
        let surplus = |shard: &mut Shard| shard.values().map(|list| list.rows.len() - 1).sum::<usize>();
        self.shards.iter().map(|shard| shard.with(surplus)).sum()
    }

    /// How many lists there are.
    pub(super) fn count(&self) -> usize {
        self.shards.iter().map(|shard| shard.with(|lists| lists.len())).sum()
    }
}

/// The word of a posting: an atomic, or a model of one.
pub(super) trait Word {
    fn load(&self) -> u64;
    /// Whether the word was `old` and is now `new`.
    fn replace(&self, old: u64, new: u64) -> bool;
}

impl Word for AtomicU64 {
    #[inline]
    fn load(&self) -> u64 {
        // Pairs with the release in `replace` and with the publication of the entry: what a
        // claimant wrote to its row before it claimed is seen by whoever finds the row here.
        AtomicU64::load(self, Ordering::Acquire)
    }

    #[inline]
    fn replace(&self, old: u64, new: u64) -> bool {
        self.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

/// What the protocol asks of the tree from keys to words.
pub(super) trait Entries {
    type Word: Word;
    /// One entry of the tree, readable even when it has been unlinked.
    type Entry<'a>: std::ops::Deref<Target = Self::Word>
    where
        Self: 'a;

    /// The entry of a key.
    fn find(&self, key: &[u8]) -> Option<Self::Entry<'_>>;
    /// The entry of a key, inserted with `word` if there is none. False only if there was one
    /// before; true says nothing when another inserts the key at the same time.
    fn find_or_insert(&self, key: &[u8], word: u64) -> (Self::Entry<'_>, bool);
    /// Unlinks just this entry, unless it has been.
    fn unlink(&self, entry: &Self::Entry<'_>);
}

/// The rows under an entry, or none if it is a tomb.
pub(super) fn rows(word: &impl Word, lists: &Lists<impl Lock>) -> Rows {
    current(word, lists).1
}

/// The word of an entry with its rows and generation.
fn current(word: &impl Word, lists: &Lists<impl Lock>) -> (u64, Rows, u64) {
    loop {
        let seen = word.load();
        if let Some((rows, generation)) = lists.read(seen) {
            return (seen, rows, generation);
        }
    }
}

/// Lists `row` under `key` after `judge` has let pass every other row that is listed there.
///
/// A row that is listed already (an older version of it had this key) is listed anew, so that a
/// removal that was decided on before fails.
pub(super) fn claim<E>(
    entries: &impl Entries,
    lists: &Lists<impl Lock>,
    key: &[u8],
    row: RowId,
    mut judge: impl FnMut(RowId) -> Result<Verdict, E>,
) -> Result<(), E> {
    loop {
        let fresh = single(row, 0);
        let (entry, absent) = entries.find_or_insert(key, fresh);
        if absent && entry.load() == fresh {
            // Nobody else lists this row: the entry is the one that this call inserted.
            return Ok(());
        }
        loop {
            let (word, mut rows, generation) = current(&*entry, lists);
            if word == TOMB {
                entries.unlink(&entry);
                break;
            }
            let listed = rows.contains(&row);
            if listed && absent {
                // Nobody but this call lists this row, so the entry is the one it inserted, and
                // whoever came after has judged the row.
                return Ok(());
            }
            for &other in rows.iter().filter(|&&other| other != row) {
                let Verdict::Dead = judge(other)?;
            }
            if !listed {
                rows.push(row);
            }
            if replace(&*entry, lists, word, rows, generation) {
                return Ok(());
            }
        }
    }
}

/// Takes `row` off `key` if `dead` agrees; if the posting changes after `dead` was asked, it is
/// asked again. Nothing happens if the row is not there.
pub(super) fn remove(
    entries: &impl Entries,
    lists: &Lists<impl Lock>,
    key: &[u8],
    row: RowId,
    mut dead: impl FnMut() -> bool,
) {
    let Some(entry) = entries.find(key) else { return };
    loop {
        let (word, mut rows, generation) = current(&*entry, lists);
        let Some(position) = rows.iter().position(|&listed| listed == row) else { return };
        if !dead() {
            return;
        }
        rows.remove(position);
        let last = rows.is_empty();
        if replace(&*entry, lists, word, rows, generation) {
            if last {
                entries.unlink(&entry);
            }
            return;
        }
    }
}

/// Puts a word for `rows` in the place of `old`, unless another was quicker.
fn replace(entry: &impl Word, lists: &Lists<impl Lock>, old: u64, rows: Rows, generation: u64) -> bool {
    let new = match rows[..] {
        [] => TOMB,
        [row] if generation < LAST_GENERATION => single(row, generation + 1),
        _ => lists.add(List { rows, generation }),
    };
    let replaced = entry.replace(old, new);
    lists.drop_word(if replaced { old } else { new });
    replaced
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_base::{BlockNumber, Slot};
    use std::sync::Arc;

    fn row(slot: u32) -> RowId {
        RowId::new(BlockNumber(3), Slot(slot))
    }

    #[test]
    fn a_word_is_read_as_it_was_written() {
        let largest = RowId::from_bits((1 << ROW_BITS) - 1);
        for row in [row(0), row(7), largest] {
            for generation in [0, 1, LAST_GENERATION] {
                assert_eq!(Posting::of(single(row, generation)), Posting::One(row));
            }
        }
        assert_eq!(Posting::of(LISTED | 5), Posting::Listed(5));
        assert_eq!(Posting::of(TOMB), Posting::Tomb);
        assert_eq!(Posting::of(SUFFIXED), Posting::Suffixed);
    }

    impl Word for loom::sync::atomic::AtomicU64 {
        fn load(&self) -> u64 {
            self.load(loom::sync::atomic::Ordering::Acquire)
        }

        fn replace(&self, old: u64, new: u64) -> bool {
            use loom::sync::atomic::Ordering::{AcqRel, Relaxed};
            self.compare_exchange(old, new, AcqRel, Relaxed).is_ok()
        }
    }

    /// A tree of one key, whose operations are atomic, as those of the radix tree are.
    struct OneKey(loom::sync::Mutex<Option<Arc<loom::sync::atomic::AtomicU64>>>);

    impl Entries for OneKey {
        type Word = loom::sync::atomic::AtomicU64;
        type Entry<'a> = Arc<Self::Word>;

        fn find(&self, _: &[u8]) -> Option<Arc<Self::Word>> {
            self.0.lock().unwrap().clone()
        }

        fn find_or_insert(&self, _: &[u8], word: u64) -> (Arc<Self::Word>, bool) {
            // Two steps, like the radix tree: the look is only a hint.
            if let Some(entry) = self.0.lock().unwrap().clone() {
                return (entry, false);
            }
            let mut entry = self.0.lock().unwrap();
            (entry.get_or_insert_with(|| Arc::new(Self::Word::new(word))).clone(), true)
        }

        fn unlink(&self, entry: &Arc<Self::Word>) {
            let mut linked = self.0.lock().unwrap();
            if linked.as_ref().is_some_and(|linked| Arc::ptr_eq(linked, entry)) {
                *linked = None;
            }
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
        /// Whether each row holds the key alive: what storage's version chains know.
        alive: [loom::sync::atomic::AtomicBool; 4],
    }

    impl Model {
        fn new() -> Model {
            Model {
                entries: OneKey(loom::sync::Mutex::new(None)),
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

        /// As storage does it: write the row first, then claim its key; take both back on conflict.
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
            self.entries.find(b"").map_or_else(Rows::new, |entry| rows(&*entry, &self.lists))
        }

        /// Every live row is listed, no list is left over.
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

    /// Two rows want the key that the collector is just taking a dead row off.
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

    /// A row takes its old key again while the collector removes it for its dead version, and
    /// another row wants the key, too.
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
