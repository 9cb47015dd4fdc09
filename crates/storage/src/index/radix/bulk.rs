//! Bulk insertion: keys without neighbours in the tree are combined bottom-up, before any other thread can
//! see them.
//!
//! Ascending keys descend the tree together, partitioned by their bytes at each node. If a part of them
//! reaches a place without a child, a subtree is made of it. Its nodes have their final size at once, and
//! need no lock and no access to what is above. Then it is linked, with its neighbours in the same node,
//! under one lock. If there is one other key in the place, as a leaf, the subtree includes it. So a table
//! that is filled in the order of its key, as files mostly are, has nearly all of its nodes made once. Keys
//! in any order, sorted in large batches, visit each node once.
//!
//! A thread that has a node which is not obsolete has the node of its path ([`super::node`]), so no path is
//! descended twice. Keys are left to be inserted one by one if another thread has changed a node meanwhile,
//! if a key exists already, or if keys differ from a longer prefix.

use super::node::{Child, Contended, Fresh, Kind, Leaf, Node, PREFIX_BYTES, Prefix};
use super::{Place, Tree};
use crate::Guard;
use crate::index::Packed;
use smallvec::SmallVec;
use std::cell::Cell;
use std::cmp;
use std::ops::Range;

/// The number of a node's children that are prefetched.
const AHEAD: usize = 12;

/// Ranges of keys that are left to be inserted one by one.
pub(in super::super) type Left = SmallVec<[Range<usize>; 8]>;

/// Ascending keys, none of them a prefix of another, and their values. They descend by recursion with up to
/// one call for each of their bytes, so keys longer than some hundred bytes should be inserted one by one.
pub(in super::super) trait Ascending {
    /// How many.
    fn len(&self) -> usize;
    /// The number of bytes of a key.
    fn key_len(&self, at: usize) -> usize;
    /// One of its bytes.
    fn byte(&self, at: usize, depth: usize) -> u8;
    /// Eight of its bytes, the first one highest, and anything behind its end.
    fn word(&self, at: usize, depth: usize) -> u64;
    /// The length of the common prefix of two keys, which are the same up to `depth`.
    fn common(&self, first: usize, last: usize, depth: usize) -> usize;
    /// Calls `with` with a whole key.
    fn with_key<R>(&self, at: usize, with: impl FnOnce(&[u8]) -> R) -> R;
    /// Its value.
    fn value(&self, at: usize) -> u64;
}

/// Keys that are numbers, and a function from their positions to values.
pub(in super::super) struct Numbers<'k, V> {
    pub keys: &'k [Packed],
    /// Bytes of a key.
    pub width: usize,
    /// Bits below it that do not belong to it.
    pub below: u32,
    pub value: V,
}

impl<V> Numbers<'_, V> {
    /// A key, its first byte at the top, before the bits that do not belong to it.
    #[inline(always)]
    fn aligned(&self, at: usize) -> Packed {
        self.keys[at] << (8 * (size_of::<Packed>() - self.width) as u32 - self.below)
    }
}

impl<V: Fn(usize) -> u64> Ascending for Numbers<'_, V> {
    fn len(&self) -> usize {
        self.keys.len()
    }

    #[inline(always)]
    fn key_len(&self, _at: usize) -> usize {
        self.width
    }

    #[inline(always)]
    fn byte(&self, at: usize, depth: usize) -> u8 {
        (self.keys[at] >> (8 * (self.width - 1 - depth) as u32 + self.below)) as u8
    }

    #[inline(always)]
    fn word(&self, at: usize, depth: usize) -> u64 {
        (self.aligned(at) << (8 * depth) >> u64::BITS) as u64
    }

    #[inline(always)]
    fn common(&self, first: usize, last: usize, _depth: usize) -> usize {
        ((self.aligned(first) ^ self.aligned(last)).leading_zeros() / 8) as usize
    }

    #[inline(always)]
    fn with_key<R>(&self, at: usize, with: impl FnOnce(&[u8]) -> R) -> R {
        with(&self.aligned(at).to_be_bytes()[..self.width])
    }

    #[inline(always)]
    fn value(&self, at: usize) -> u64 {
        (self.value)(at)
    }
}

/// Keys that descend a tree.
struct Batch<'k, K> {
    keys: &'k K,
    left: Left,
}

impl Tree {
    /// Inserts keys. Returns those that are left.
    pub(in super::super) fn insert_ascending<K: Ascending>(&self, keys: &K, guard: &Guard) -> Left {
        let mut batch = Batch { keys, left: Left::new() };
        if keys.len() > 0 {
            batch.enter(None, self.root(), 0, 0..keys.len(), guard);
        }
        batch.left
    }
}

impl<'k, K: Ascending> Batch<'k, K> {
    /// The bytes of a key from `depth` on, as a prefix.
    fn prefix(&self, at: usize, bytes: Range<usize>) -> Prefix {
        Prefix::of_word(self.keys.word(at, bytes.start), bytes.len())
    }

    /// Partitions keys that are the same above `depth` by their bytes there.
    #[inline]
    fn parts(
        &self,
        range: Range<usize>,
        depth: usize,
    ) -> impl Iterator<Item = (u8, Range<usize>)> + use<'k, K> {
        let keys = self.keys;
        let mut start = range.start;
        std::iter::from_fn(move || {
            if start == range.end {
                return None;
            }
            let byte = keys.byte(start, depth);
            let end = match keys.byte(range.end - 1, depth) == byte {
                true => range.end,
                false => {
                    (start + 1..range.end).find(|at| keys.byte(*at, depth) != byte).expect("the last one")
                }
            };
            let part = start..end;
            start = end;
            Some((byte, part))
        })
    }

    /// Inserts keys that are the same up to a node at `depth`; it is the child of a byte of the node above
    /// it.
    fn enter<'g>(
        &mut self,
        above: Option<(Node<'g>, u8)>,
        node: Node<'g>,
        depth: usize,
        range: Range<usize>,
        guard: &'g Guard,
    ) {
        let prefix = node.header().prefix();
        let below = depth + prefix.len();
        // If the first and the last key begin so, all do.
        let begins = |at: usize| {
            prefix.len() == 0 || (prefix.begins(self.keys.word(at, depth)) && below < self.keys.key_len(at))
        };
        if !begins(range.start) || !begins(range.end - 1) {
            self.left.push(range);
            return;
        }
        // Places without a child: the byte, the keys, and the subtree made of them.
        let mut made: SmallVec<[(u8, Range<usize>, Child); 16]> = SmallVec::new();
        let parts: SmallVec<[(u8, Range<usize>); 16]> = self.parts(range, below).collect();
        let fetch = |(byte, part): &(u8, Range<usize>)| {
            let is_longer = below + 1 < self.keys.key_len(part.start);
            node.child(*byte).prefetch(if is_longer { self.keys.byte(part.start, below + 1) } else { 0 });
        };
        // Without prefetching each would be waited for: large trees are not in the cache.
        parts.iter().take(AHEAD).for_each(fetch);
        let mut ahead = parts.iter().skip(AHEAD);
        for (byte, part) in parts.iter().cloned() {
            ahead.next().into_iter().for_each(fetch);
            match child_of(node, byte, guard) {
                Ok((_, Kind::Node(next))) => self.enter(Some((node, byte)), next, below + 1, part, guard),
                Ok((_, Kind::Nothing)) => made.push((byte, part.clone(), self.make(part, below + 1))),
                Ok((old, Kind::Leaf(leaf))) => {
                    let taken_in = self.take_in((leaf, old), (node, byte), below + 1, part.clone(), guard);
                    if taken_in.is_err() {
                        self.left.push(part);
                    }
                }
                Ok((_, Kind::Value(_))) | Err(Contended) => self.left.push(part),
            }
        }
        if !made.is_empty()
            && let Err(Contended) = link(above, node, &made, guard)
        {
            for (_, part, child) in made {
                // SAFETY: no other thread has seen it.
                unsafe { child.discard(guard) };
                self.left.push(part);
            }
        }
    }

    /// The child for keys that are the same above `depth`.
    fn make(&self, range: Range<usize>, depth: usize) -> Child {
        let (first, last) = (range.start, range.end - 1);
        if range.len() == 1 {
            let value = self.keys.value(first);
            return match depth == self.keys.key_len(first) {
                true => Child::value(value),
                false => self.keys.with_key(first, |key| Leaf::create(key, value)),
            };
        }
        let differ = self.keys.common(first, last, depth);
        let count = self.parts(range.clone(), differ).count();
        let parts = self.parts(range, differ);
        self.node(first, depth, differ, count, parts.map(|(byte, part)| (byte, self.make(part, differ + 1))))
    }

    /// The child for these children, which share the bytes of a key from `depth` to `differ`. Every 9 bytes
    /// that are too long for a prefix take a node above it.
    fn node(
        &self,
        at: usize,
        depth: usize,
        differ: usize,
        count: usize,
        children: impl Iterator<Item = (u8, Child)>,
    ) -> Child {
        const LINK: usize = PREFIX_BYTES + 1;
        let links = (differ - depth).saturating_sub(PREFIX_BYTES).div_ceil(LINK);
        let bottom = depth + links * LINK;
        let mut top = Fresh::of(self.prefix(at, bottom..differ), count, children).into_child();
        for start in (depth..bottom).step_by(LINK).rev() {
            let end = start + PREFIX_BYTES;
            let link = Fresh::new(1, self.prefix(at, start..end));
            link.add(self.keys.byte(at, end), top);
            top = link.into_child();
        }
        top
    }

    /// Replaces a leaf by a subtree of keys that are the same above `depth`, and includes the leaf.
    fn take_in<'g>(
        &self,
        (leaf, old): (Leaf<'g>, Child),
        (node, byte): (Node<'g>, u8),
        depth: usize,
        range: Range<usize>,
        guard: &'g Guard,
    ) -> Result<(), Contended> {
        let compare = |at| self.keys.with_key(at, |key| key.cmp(leaf.key()));
        let (mut low, mut high) = (range.start, range.end);
        while low < high {
            let middle = low.midpoint(high);
            match compare(middle) {
                cmp::Ordering::Less => low = middle + 1,
                cmp::Ordering::Greater => high = middle,
                // The insertion of single keys deals with the row that has it.
                cmp::Ordering::Equal => return Err(Contended),
            }
        }
        let version = node.header().version()?;
        let _lock = node.header().lock(version)?;
        if node.child(byte) != old {
            return Err(Contended);
        }
        let is_dissolved = Cell::new(false);
        node.set(byte, self.beside((leaf, old), &is_dissolved, low, depth, range));
        if is_dissolved.get() {
            // SAFETY: it was just unlinked.
            unsafe { old.retire(guard) };
        }
        Ok(())
    }

    /// [`Batch::make`] with a leaf, which sorts before the key at `at`. Sets `is_dissolved` if the leaf is
    /// not part of the result and only its value is. The node above is locked.
    fn beside(
        &self,
        (leaf, old): (Leaf<'_>, Child),
        is_dissolved: &Cell<bool>,
        at: usize,
        depth: usize,
        range: Range<usize>,
    ) -> Child {
        let (first, last) = (range.start, range.end - 1);
        let with_leaf = |at| {
            let common = |key: &[u8]| {
                key[depth..].iter().zip(&leaf.key()[depth..]).take_while(|(a, b)| a == b).count()
            };
            depth + self.keys.with_key(at, common)
        };
        let differ = match at {
            _ if at == range.start => with_leaf(last),
            _ if at == range.end => with_leaf(first),
            _ => self.keys.common(first, last, depth),
        };
        let its_byte = leaf.key()[differ];
        let mut children: SmallVec<[(u8, Child); 16]> = SmallVec::new();
        let mut waits = true;
        let alone = || {
            if differ + 1 < leaf.key().len() {
                return old;
            }
            is_dissolved.set(true);
            Child::value(leaf.value())
        };
        for (byte, part) in self.parts(range, differ) {
            if byte > its_byte && std::mem::take(&mut waits) {
                children.push((its_byte, alone()));
            }
            if byte == its_byte {
                waits = false;
                children.push((byte, self.beside((leaf, old), is_dissolved, at, differ + 1, part)));
            } else {
                children.push((byte, self.make(part, differ + 1)));
            }
        }
        if waits {
            children.push((its_byte, alone()));
        }
        let count = children.len();
        self.node(first, depth, differ, count, children.into_iter())
    }
}

/// The child of a byte, and its kind.
fn child_of<'g>(node: Node<'g>, byte: u8, _guard: &'g Guard) -> Result<(Child, Kind<'g>), Contended> {
    let version = node.header().version()?;
    let child = node.child(byte);
    node.header().validate(version)?;
    // SAFETY: just read under the guard.
    Ok((child, unsafe { child.kind() }))
}

/// Links new children of a node, all or none, unless another thread has changed what matters.
fn link<'g>(
    above: Option<(Node<'g>, u8)>,
    node: Node<'g>,
    made: &[(u8, Range<usize>, Child)],
    guard: &'g Guard,
) -> Result<(), Contended> {
    let version = node.header().version()?;
    let is_free = || made.iter().all(|(byte, ..)| node.child(*byte).is_nothing());
    if above.is_none() || node.has_room(made.len()) {
        let _lock = node.header().lock(version)?;
        if !is_free() {
            return Err(Contended);
        }
        made.iter().for_each(|(byte, _, child)| node.add(*byte, *child));
        return Ok(());
    }
    let (parent, byte) = above.expect("just looked");
    let parent_version = parent.header().version()?;
    let _parent_lock = parent.header().lock(parent_version)?;
    let lock = node.header().lock(version)?;
    if !is_free() {
        return Err(Contended);
    }
    let header = node.header();
    let larger = Fresh::copy(node, header.count() + made.len(), header.prefix(), None);
    made.iter().for_each(|(byte, _, child)| larger.add(*byte, *child));
    // Neither is obsolete, so one is still below the other.
    Place { node: parent, version: parent_version, byte }.replace(larger.into_child(), guard);
    lock.make_obsolete();
    Ok(())
}
