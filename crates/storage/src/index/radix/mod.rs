//! An adaptive radix tree (Leis, Kemper, Neumann: The Adaptive Radix Tree, ICDE 2013) with optimistic lock
//! coupling (Leis et al.: The ART of Practical Synchronization, DaMoN 2016): readers write no shared memory,
//! writers lock the one or two nodes that they change.
//!
//! Two things differ from the papers. Dense keys, which most are, need no leaf: the value is in the node in
//! which its key ends. And many keys are looked up at once ([`Tree::get_many`]), one level of each in turn,
//! so that the processor waits for their memory together; no existing crate supports that.
//!
//! Keys are byte strings of which none is a prefix of another. Values have [`VALUE_BITS`] bits.

mod bulk;
mod cursor;
mod node;
#[cfg(test)]
mod tests;

use crate::Guard;
use crate::index::ordered::Span;
use firn_base::sync::{AtomicU64, Ordering};
use node::{Child, Contended, Fresh, Kind, Leaf, Lock, Node, PREFIX_BYTES, Prefix, Version};
use smallvec::SmallVec;

pub(super) use bulk::{Ascending, Left, Numbers};
pub(super) use node::VALUE_BITS;
pub(crate) use node::take_growth;

/// How many keys [`Tree::get_many`] looks up at once.
pub(crate) const AT_ONCE: usize = 16;

/// Keys share the counters of changes, which sometimes causes a needless retry.
const CHANGE_COUNTERS: usize = 64;

/// A tree from keys to values.
pub(super) struct Tree {
    /// A [`node::Node256`] that is never replaced, so it needs no parent: it has no prefix and is never full.
    root: Child,
    /// How often values were replaced or removed; see [`Sighting`].
    changes: Box<[AtomicU64; CHANGE_COUNTERS]>,
}

/// The value that was read under a key, and evidence of the time. A change that was decided for this value
/// takes place only if nothing has happened to the key since. Even a removal and a new insert of the same
/// value prevent it.
#[derive(Clone, Copy)]
pub(super) struct Sighting {
    pub(super) value: Option<u64>,
    changes: u64,
}

/// A key with fast access to any 8 bytes.
#[derive(Clone, Copy)]
struct Search<'k> {
    key: &'k [u8],
    /// The last 8 bytes of the key, or all of it, the first one highest.
    tail: u64,
}

impl<'k> Search<'k> {
    #[inline(always)]
    fn new(key: &'k [u8]) -> Search<'k> {
        let tail = match (key.last_chunk::<8>(), key.first_chunk::<4>(), key.last_chunk::<4>()) {
            (Some(tail), ..) => u64::from_be_bytes(*tail),
            (None, Some(first), Some(last)) => {
                // They may overlap.
                let (first, last) = (u32::from_be_bytes(*first), u32::from_be_bytes(*last));
                u64::from(first) << 32 | u64::from(last) << (8 * (8 - key.len()))
            }
            _ => few_bytes(key),
        };
        Search { key, tail }
    }

    /// The 8 bytes from `depth` on, padded with zeros; `depth` is before the end.
    #[inline(always)]
    fn word(&self, depth: usize) -> u64 {
        match self.key.get(depth..depth + 8) {
            Some(bytes) => u64::from_be_bytes(bytes.try_into().expect("the slice has 8 bytes")),
            None => self.tail.wrapping_shl(8 * (depth + 8 - self.key.len().max(8)) as u32),
        }
    }

    /// How many bytes of the prefix equal those of the key at `depth`.
    #[inline]
    fn common(&self, prefix: Prefix, depth: usize) -> usize {
        match self.key.len() - depth {
            0 => 0,
            left => prefix.common(self.word(depth)).min(left),
        }
    }

    /// The byte of the key below a node that is reached at `depth`, and the depth after it; `None` if the
    /// node's prefix is not the key's.
    #[inline]
    fn step(&self, prefix: Prefix, depth: usize) -> Option<(u8, usize)> {
        let length = prefix.len();
        if length > 0 && self.common(prefix, depth) < length {
            return None;
        }
        Some((*self.key.get(depth + length)?, depth + length + 1))
    }
}

/// What is to be inserted.
#[derive(Clone, Copy)]
enum New<'a> {
    /// The value of the key.
    Value(u64),
    /// Values of keys that differ from the key only in their last byte: these bytes, ascending, and the
    /// values.
    Run(&'a [(u8, u64)]),
}

impl New<'_> {
    /// Whether one child can hold it below a path of `depth` bytes of the key.
    fn fits(self, key: &[u8], depth: usize) -> bool {
        match self {
            New::Value(_) => true,
            New::Run(_) => depth < key.len() && key.len() - 1 - depth <= PREFIX_BYTES,
        }
    }

    /// The child that holds it.
    fn child(self, key: &[u8], depth: usize) -> Child {
        match self {
            New::Value(value) => entry(key, depth, value),
            New::Run(entries) => {
                let node = Fresh::new(entries.len(), Prefix::new(&key[depth..key.len() - 1]));
                entries.iter().for_each(|(byte, value)| node.add(*byte, Child::value(*value)));
                node.into_child()
            }
        }
    }
}

/// The result of an insert.
enum Inserted {
    Done,
    /// The key exists, with this value.
    Exists(u64),
    /// A run has no place of its own; nothing was changed.
    NotAtOnce,
}

/// The position of a descent: a node, and its child in the direction of the key.
#[derive(Clone, Copy)]
struct Place<'g> {
    node: Node<'g>,
    version: Version,
    byte: u8,
}

/// What a change finds under its key.
enum Found<'g> {
    /// The slot is empty.
    Nothing,
    /// The key with its value.
    Value(u64, Option<Leaf<'g>>),
    /// A leaf with another key.
    Other(Leaf<'g>),
    /// A node whose prefix is not the key's.
    Elsewhere(Node<'g>, Version),
}

/// The end of a descent.
struct Descent<'g> {
    /// The node above `place`, unless that is the root or `Elsewhere` was found.
    parent: Option<Place<'g>>,
    place: Place<'g>,
    /// The length of the path to what was found, without its prefix.
    depth: usize,
    found: Found<'g>,
}

impl Tree {
    pub(super) fn new() -> Tree {
        Tree {
            root: Fresh::new(256, Prefix::EMPTY).into_child(),
            changes: Box::new([const { AtomicU64::new(0) }; CHANGE_COUNTERS]),
        }
    }

    fn root(&self) -> Node<'_> {
        // SAFETY: it is freed with the tree.
        let Kind::Node(root) = (unsafe { self.root.kind() }) else { unreachable!("the root is a node") };
        root
    }

    /// The value of a key.
    #[inline]
    pub(super) fn get(&self, key: &[u8], guard: &Guard) -> Option<u64> {
        let mut walk = Walk::begin(self, key);
        while walk.is_at_node() {
            if let Err(Contended) = walk.advance(guard) {
                walk = Walk::begin(self, key);
            }
        }
        walk.value(guard)
    }

    /// The values of up to [`AT_ONCE`] keys, which are looked up together.
    pub(super) fn get_many<K: AsRef<[u8]>>(&self, keys: &[K], values: &mut [Option<u64>], guard: &Guard) {
        assert!(keys.len() == values.len() && keys.len() <= AT_ONCE);
        let mut walks: SmallVec<[Walk<'_>; AT_ONCE]> = SmallVec::new();
        walks.extend(keys.iter().map(|key| Walk::begin(self, key.as_ref())));
        share(&mut walks, guard);
        walk_all(&mut walks, guard, |_| self);
        for (walk, value) in walks.iter().zip(values) {
            *value = walk.value(guard);
        }
    }

    /// Reads the value under a key, to be changed by [`Tree::replace`].
    pub(super) fn look(&self, key: &[u8], guard: &Guard) -> Sighting {
        // Acquire, and first: a change that is not counted here comes after what is read below.
        let changes = self.counter(key).load(Ordering::Acquire);
        Sighting { value: self.get(key, guard), changes }
    }

    fn counter(&self, key: &[u8]) -> &AtomicU64 {
        // The end of a key varies most; pairs end with a row id.
        let hash = Search::new(key).tail.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.changes[(hash >> (64 - CHANGE_COUNTERS.ilog2())) as usize]
    }

    /// Inserts a key that does not exist; otherwise returns its value.
    pub(super) fn insert(&self, key: &[u8], value: u64, guard: &Guard) -> Result<(), u64> {
        let search = Search::new(key);
        loop {
            match self.try_insert(&search, New::Value(value), guard) {
                Ok(Inserted::Done) => return Ok(()),
                Ok(Inserted::Exists(value)) => return Err(value),
                Ok(Inserted::NotAtOnce) => unreachable!("a single key always has a place"),
                Err(Contended) => {}
            }
        }
    }

    /// Inserts keys that differ from `key` only in their last byte, given as that byte, ascending, with their
    /// values: one look-up and one node for all. Returns false without an effect if that is not possible, for
    /// example if one of them exists.
    pub(super) fn insert_run(&self, key: &[u8], entries: &[(u8, u64)], guard: &Guard) -> bool {
        debug_assert!(entries.is_sorted_by(|(a, _), (b, _)| a < b));
        let search = Search::new(key);
        loop {
            if let Ok(outcome) = self.try_insert(&search, New::Run(entries), guard) {
                return matches!(outcome, Inserted::Done);
            }
        }
    }

    /// Sets or removes the value of a key if nothing has happened to it since it was read, and counts that as
    /// a change. Returns false if something has.
    pub(super) fn replace(&self, key: &[u8], seen: Sighting, new: Option<u64>, guard: &Guard) -> bool {
        let search = Search::new(key);
        loop {
            if let Ok(replaced) = self.try_replace(&search, seen, new, guard) {
                return replaced;
            }
        }
    }

    /// Descends to where the key is or would be. The result has been validated.
    fn descend<'g>(&'g self, search: &Search<'_>, _guard: &'g Guard) -> Result<Descent<'g>, Contended> {
        let (mut parent, mut node, mut depth) = (None, self.root(), 0);
        loop {
            let version = node.header().version()?;
            let Some((byte, below)) = search.step(node.header().prefix(), depth) else {
                let found = Found::Elsewhere(node, version);
                let place = parent.expect("the root has no prefix");
                return Ok(Descent { parent: None, place, depth, found });
            };
            let place = Place { node, version, byte };
            let child = node.child(byte);
            node.header().validate(version)?;
            // SAFETY: just read under the guard.
            let found = match unsafe { child.kind::<'g>() } {
                Kind::Node(next) => {
                    (parent, node, depth) = (Some(place), next, below);
                    continue;
                }
                Kind::Nothing => Found::Nothing,
                Kind::Value(value) => {
                    assert!(below == search.key.len(), "no key is a prefix of another");
                    Found::Value(value, None)
                }
                Kind::Leaf(leaf) if leaf.key() == search.key => {
                    let value = leaf.value();
                    node.header().validate(version)?;
                    Found::Value(value, Some(leaf))
                }
                Kind::Leaf(leaf) => Found::Other(leaf),
            };
            return Ok(Descent { parent, place, depth: below, found });
        }
    }

    fn try_insert(&self, search: &Search<'_>, new: New<'_>, guard: &Guard) -> Result<Inserted, Contended> {
        let Descent { parent, place, depth, found } = self.descend(search, guard)?;
        let Place { node, version, byte } = place;
        if let (New::Run(entries), true) = (new, depth == search.key.len()) {
            return add_run(parent, place, entries, guard);
        }
        match found {
            Found::Value(value, _) => return Ok(Inserted::Exists(value)),
            Found::Nothing if !new.fits(search.key, depth) => return Ok(Inserted::NotAtOnce),
            // Without a parent it is the root, which is never full where a byte has no child.
            Found::Nothing if parent.is_none() || node.has_room(1) => {
                let _lock = node.header().lock(version)?;
                node.add(byte, new.child(search.key, depth));
            }
            Found::Nothing => {
                let parent = parent.expect("just looked");
                let _parent_lock = parent.node.header().lock(parent.version)?;
                let lock = node.header().lock(version)?;
                let prefix = node.header().prefix();
                let larger = Fresh::copy(node, node.header().count() + 1, prefix, None);
                larger.add(byte, new.child(search.key, depth));
                parent.replace(larger.into_child(), guard);
                lock.make_obsolete();
            }
            Found::Other(leaf) => {
                let New::Value(value) = new else { return Ok(Inserted::NotAtOnce) };
                let _lock = node.header().lock(version)?;
                let old = node.child(byte);
                let (forked, is_dissolved) = fork(leaf, old, search.key, depth, value);
                node.set(byte, forked);
                if is_dissolved {
                    // SAFETY: it was just unlinked.
                    unsafe { old.retire(guard) };
                }
            }
            Found::Elsewhere(below, below_version) => {
                let end = depth + search.common(below.header().prefix(), depth);
                if !new.fits(search.key, end + 1) {
                    return Ok(Inserted::NotAtOnce);
                }
                let _lock = node.header().lock(version)?;
                let below_lock = below.header().lock(below_version)?;
                place.replace(split(below, search.key, depth, end, new), guard);
                below_lock.make_obsolete();
            }
        }
        Ok(Inserted::Done)
    }

    fn try_replace(
        &self,
        search: &Search<'_>,
        seen: Sighting,
        new: Option<u64>,
        guard: &Guard,
    ) -> Result<bool, Contended> {
        let Descent { parent, place, found, .. } = self.descend(search, guard)?;
        let Place { node, version, byte } = place;
        let Found::Value(value, leaf) = found else { return Ok(false) };
        let shrinking = (new.is_none() && node.shrinks()).then_some(parent).flatten();
        let _parent_lock = shrinking.map(|parent| parent.node.header().lock(parent.version)).transpose()?;
        let lock = node.header().lock(version)?;
        // Under the lock nothing else happens to the key.
        let counter = self.counter(search.key);
        if Some(value) != seen.value || counter.load(Ordering::Acquire) != seen.changes {
            return Ok(false);
        }
        counter.fetch_add(1, Ordering::Release);
        match (new, leaf, shrinking) {
            (Some(new), Some(leaf), _) => leaf.set_value(new),
            (Some(new), None, _) => node.set(byte, Child::value(new)),
            (None, _, shrinking) => {
                let removed = node.child(byte);
                match shrinking {
                    Some(parent) => {
                        let count = node.header().count() - 1;
                        let smaller = Fresh::copy(node, count, node.header().prefix(), Some(byte));
                        parent.replace(smaller.into_child(), guard);
                        lock.make_obsolete();
                    }
                    None => {
                        node.remove(byte);
                        let emptied = node.header().count() == 0;
                        drop(lock);
                        if emptied {
                            self.prune(search, guard);
                        }
                    }
                }
                // SAFETY: it was just unlinked.
                unsafe { removed.retire(guard) };
            }
        }
        Ok(true)
    }

    /// Unlinks the nodes without children on the path to a key.
    fn prune(&self, search: &Search<'_>, guard: &Guard) {
        while let Err(Contended) = self.try_prune(search, guard) {}
    }

    fn try_prune<'g>(&'g self, search: &Search<'_>, guard: &'g Guard) -> Result<(), Contended> {
        let mut path: SmallVec<[Place<'g>; 16]> = SmallVec::new();
        let (mut node, mut depth) = (self.root(), 0);
        loop {
            let version = node.header().version()?;
            if node.header().count() == 0 && !path.is_empty() {
                return unlink_emptied(path, node.header().lock(version)?, guard);
            }
            let Some((byte, below)) = search.step(node.header().prefix(), depth) else { return Ok(()) };
            let child = node.child(byte);
            node.header().validate(version)?;
            // SAFETY: just read under the guard.
            let Kind::Node(next) = (unsafe { child.kind::<'g>() }) else { return Ok(()) };
            path.push(Place { node, version, byte });
            (node, depth) = (next, below);
        }
    }

    /// Calls `visit` with keys and values between the bounds in order, or against it, until it returns false.
    /// See [`super::Index::range`] for the guarantees with concurrent writers. Values that will be visited
    /// soon, and perhaps others, are passed to `ahead` first.
    #[inline]
    pub(super) fn range(
        &self,
        span: Span<'_>,
        reverse: bool,
        guard: &Guard,
        ahead: &mut impl FnMut(u64),
        visit: &mut impl FnMut(&[u8], u64) -> bool,
    ) {
        cursor::scan(self.root(), span, reverse, guard, ahead, visit);
    }

    /// Bytes held; approximate with concurrent writers.
    pub(super) fn memory_bytes(&self, guard: &Guard) -> usize {
        let mut bytes = self.root.memory_bytes(guard) + size_of_val(&*self.changes);
        let mut nodes = vec![self.root()];
        while let Some(node) = nodes.pop() {
            node.for_each(|_, child| {
                bytes += child.memory_bytes(guard);
                // SAFETY: read under the guard.
                if let Kind::Node(node) = unsafe { child.kind() } {
                    nodes.push(node);
                }
            });
        }
        bytes
    }

    /// Asserts the invariants; there must be no concurrent writer.
    pub(super) fn verify(&self) {
        let mut nodes = vec![(self.root(), true)];
        while let Some((node, is_root)) = nodes.pop() {
            assert!(node.header().version().is_ok(), "a node in the tree is locked or obsolete");
            assert!(is_root || node.header().count() > 0, "an empty node was left in the tree");
            let mut count = 0;
            node.for_each(|_, child| {
                count += 1;
                // SAFETY: there is no concurrent writer.
                match unsafe { child.kind() } {
                    Kind::Node(node) => nodes.push((node, false)),
                    Kind::Nothing => panic!("every counted child exists"),
                    Kind::Value(_) | Kind::Leaf(_) => {}
                }
            });
            assert_eq!(count, node.header().count());
        }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let mut children = vec![self.root];
        while let Some(child) = children.pop() {
            // SAFETY: no other thread has the tree; every child has one parent.
            unsafe {
                if let Kind::Node(node) = child.kind() {
                    node.for_each(|_, child| children.push(child));
                }
                child.free();
            }
        }
    }
}

impl Place<'_> {
    /// Replaces the child by a new node. Both are locked.
    fn replace(&self, new: Child, guard: &Guard) {
        let old = self.node.child(self.byte);
        self.node.set(self.byte, new);
        // SAFETY: it was just unlinked.
        unsafe { old.retire(guard) };
    }
}

/// The bytes of a key of fewer than four, the first one highest.
#[cold]
fn few_bytes(key: &[u8]) -> u64 {
    key.iter().rev().fold(0, |word, byte| word >> 8 | u64::from(*byte) << 56)
}

/// A look-up on its way down.
#[derive(Clone, Copy)]
struct Walk<'k> {
    search: Search<'k>,
    /// The length of the path to its position.
    depth: usize,
    /// Its position: a node to continue from, or the end.
    child: Child,
}

impl<'k> Walk<'k> {
    #[inline(always)]
    fn begin(tree: &Tree, key: &'k [u8]) -> Walk<'k> {
        Walk { search: Search::new(key), depth: 0, child: tree.root }
    }

    #[inline(always)]
    fn is_at_node(&self) -> bool {
        self.child.is_node()
    }

    /// Descends one level. After a concurrent change it has to restart.
    #[inline(always)]
    fn advance<'g>(&mut self, _guard: &'g Guard) -> Result<(), Contended> {
        assert!(self.is_at_node(), "walks end at anything but a node");
        // SAFETY: the child was read under the guard, and it is a node.
        let header = unsafe { self.child.header::<'g>() };
        let version = header.version()?;
        let prefix = header.prefix();
        let (mut found, depth) = (Child::NOTHING, self.depth + prefix.len());
        // A byte beyond the key's end does not exist either.
        if let Some(byte) = self.search.key.get(depth)
            && (prefix.len() == 0 || prefix.begins(self.search.word(self.depth)))
        {
            // SAFETY: as above.
            found = unsafe { self.child.child(*byte) };
            header.validate(version)?;
        }
        (self.child, self.depth) = (found, depth + 1);
        Ok(())
    }

    /// The result of a walk that has ended.
    #[inline(always)]
    fn value<'g>(&self, _guard: &'g Guard) -> Option<u64> {
        // SAFETY: the child was read under the guard.
        match unsafe { self.child.kind::<'g>() } {
            Kind::Value(value) => (self.depth == self.search.key.len()).then_some(value),
            // If a value is set meanwhile, this is the new or the old one.
            Kind::Leaf(leaf) => (leaf.key() == self.search.key).then(|| leaf.value()),
            Kind::Nothing => None,
            Kind::Node(_) => unreachable!("the walk has ended"),
        }
    }
}

/// Descends the common part of several walks of one tree once for all of them.
#[inline]
fn share(walks: &mut [Walk<'_>], guard: &Guard) {
    let Some((first, others)) = walks.split_first() else { return };
    // The first eight bytes of what they share are enough, and fast to compare.
    let differing = others.iter().fold(0, |bits, other| bits | (other.search.word(0) ^ first.search.word(0)));
    let common = (differing.leading_zeros() / 8) as usize;
    let mut shared = *first;
    loop {
        let mut next = shared;
        if next.advance(guard).is_err() || next.depth > common || !next.is_at_node() {
            break;
        }
        shared = next;
    }
    for walk in walks {
        (walk.child, walk.depth) = (shared.child, shared.depth);
    }
}

/// Advances all walks until every one has ended, one level of each in turn. A walk that meets a change
/// restarts in its tree, which `tree` returns for its number.
#[inline(always)]
fn walk_all<'t>(walks: &mut [Walk<'_>], guard: &Guard, tree: impl Fn(usize) -> &'t Tree) {
    loop {
        let mut continues = false;
        for (number, walk) in walks.iter_mut().enumerate() {
            if walk.is_at_node() {
                if let Err(Contended) = walk.advance(guard) {
                    *walk = Walk { depth: 0, child: tree(number).root, ..*walk };
                }
                if walk.is_at_node() {
                    continues = true;
                    walk.child.prefetch(walk.search.key.get(walk.depth).copied().unwrap_or(0));
                } else if walk.child.is_leaf() {
                    walk.child.prefetch(0);
                }
            }
        }
        if !continues {
            return;
        }
    }
}

/// Descends to up to [`AT_ONCE`] keys of any trees together, so that the nodes on their paths are in the
/// cache when the keys are looked up or inserted.
pub(super) fn approach(ways: &[(&Tree, &[u8])], guard: &Guard) {
    let ways = &ways[..ways.len().min(AT_ONCE)];
    let mut walks: SmallVec<[Walk<'_>; AT_ONCE]> = SmallVec::new();
    walks.extend(ways.iter().map(|(tree, key)| Walk::begin(tree, key)));
    walk_all(&mut walks, guard, |number| ways[number].0);
}

/// The child for a key's value; `depth` bytes of the key are on the path.
fn entry(key: &[u8], depth: usize, value: u64) -> Child {
    assert!(depth <= key.len(), "no key is a prefix of another");
    if depth == key.len() { Child::value(value) } else { Leaf::create(key, value) }
}

/// Unlinks a node without children, whose lock this is, at the end of a path from the root, and above it
/// every node that then has no children.
fn unlink_emptied<'g>(
    mut path: SmallVec<[Place<'g>; 16]>,
    mut lock: Lock<'g>,
    guard: &Guard,
) -> Result<(), Contended> {
    while let Some(above) = path.pop() {
        let above_lock = above.node.header().lock(above.version)?;
        let unlinked = above.node.child(above.byte);
        above.node.remove(above.byte);
        lock.make_obsolete();
        // SAFETY: it was just unlinked.
        unsafe { unlinked.retire(guard) };
        if above.node.header().count() > 0 || path.is_empty() {
            break;
        }
        lock = above_lock;
    }
    Ok(())
}

/// The replacement of a leaf, `old`, when another key is inserted that shares the path of `depth` bytes: both
/// below a node, and above that a node for every 9 further bytes that they share. The node above is locked.
/// Also returns whether the leaf is not part of it, so that it has to be retired once it is unlinked.
fn fork(leaf: Leaf<'_>, old: Child, key: &[u8], depth: usize, value: u64) -> (Child, bool) {
    let common = leaf.key()[depth..].iter().zip(&key[depth..]).take_while(|(a, b)| a == b).count();
    let end = depth + common;
    assert!(end < key.len() && end < leaf.key().len(), "no key is a prefix of another");
    let links = common.saturating_sub(PREFIX_BYTES).div_ceil(PREFIX_BYTES + 1);
    let bottom = depth + links * (PREFIX_BYTES + 1);
    let node = Fresh::new(2, Prefix::new(&key[bottom..end]));
    let is_dissolved = end + 1 == leaf.key().len();
    let known = if is_dissolved { Child::value(leaf.value()) } else { old };
    node.add(leaf.key()[end], known);
    node.add(key[end], entry(key, end + 1, value));
    let mut top = node.into_child();
    for start in (depth..bottom).step_by(PREFIX_BYTES + 1).rev() {
        let link = Fresh::new(1, Prefix::new(&key[start..start + PREFIX_BYTES]));
        link.add(key[start + PREFIX_BYTES], top);
        top = link.into_child();
    }
    (top, is_dissolved)
}

/// The replacement of a node whose prefix begins at `depth` of a new key's path and differs from it at `end`:
/// a node with the common part, above a copy of the old one and the new child. The old node and the one above
/// are locked.
fn split(below: Node<'_>, key: &[u8], depth: usize, end: usize, new: New<'_>) -> Child {
    let prefix = below.header().prefix();
    let bytes = prefix.to_bytes();
    let common = end - depth;
    assert!(end < key.len(), "no key is a prefix of another");
    let node = Fresh::new(2, Prefix::new(&bytes[..common]));
    let rest = Prefix::new(&bytes[common + 1..prefix.len()]);
    node.add(bytes[common], Fresh::copy(below, below.header().count(), rest, None).into_child());
    node.add(key[end], new.child(key, end + 1));
    node.into_child()
}

/// Adds keys that end in the node of `place`, if none of them exists.
fn add_run(
    parent: Option<Place<'_>>,
    place: Place<'_>,
    entries: &[(u8, u64)],
    guard: &Guard,
) -> Result<Inserted, Contended> {
    let Place { node, version, .. } = place;
    if entries.iter().any(|(byte, _)| !node.child(*byte).is_nothing()) {
        // Or it seems so: then they are inserted one by one.
        return Ok(Inserted::NotAtOnce);
    }
    let add = |target: Node<'_>| {
        entries.iter().for_each(|(byte, value)| target.add(*byte, Child::value(*value)));
    };
    match parent {
        Some(parent) if !node.has_room(entries.len()) => {
            let _parent_lock = parent.node.header().lock(parent.version)?;
            let lock = node.header().lock(version)?;
            let header = node.header();
            let larger = Fresh::copy(node, header.count() + entries.len(), header.prefix(), None);
            add(larger.node());
            parent.replace(larger.into_child(), guard);
            lock.make_obsolete();
        }
        // The root has room for every byte; and if `Elsewhere` was found, the run's first byte has a child,
        // so this is not reached.
        _ => {
            let _lock = node.header().lock(version)?;
            add(node);
        }
    }
    Ok(Inserted::Done)
}
