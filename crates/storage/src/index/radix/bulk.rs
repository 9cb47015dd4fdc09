//! Many keys at once: what has no neighbours in the tree is put together from the bottom up, before anybody sees it.
//!
//! Ascending keys go down the tree together, parted by their bytes at each node. Where a part of them comes to a place without a
//! child, a subtree is made of it, whose nodes have the size that they need at once, without a lock and without a look at
//! what is above; then it is linked, with its neighbours in the same node, under one lock. A table that is filled in the order of
//! its key, as files mostly are, so has nearly all of its nodes made once.
//!
//! Whoever holds a node that is not obsolete holds the node of its path ([`super::node`]), so that no way is gone twice. Where
//! others have changed a node meanwhile, and where a key is to be told from another one (a leaf, a longer prefix, the last node of a
//! path), the keys are left to be inserted by themselves.

use super::node::{Child, Contended, Fresh, Kind, Leaf, Node, PREFIX_BYTES, Prefix};
use super::{Place, Tree};
use crate::Guard;
use crate::index::Packed;
use smallvec::SmallVec;
use std::ops::Range;

/// Places of keys that are left to be inserted by themselves.
pub(in super::super) type Left = SmallVec<[Range<usize>; 8]>;

/// The keys of a batch, which ascend, and their values.
struct Batch<'k, V> {
    keys: &'k [Packed],
    /// Bytes of a key.
    width: usize,
    value: V,
    left: Left,
}

impl Tree {
    /// Inserts keys that ascend, numbers of `width` bytes, with the values of their places, but for those that are left.
    pub(in super::super) fn insert_ascending(
        &self,
        keys: &[Packed],
        width: usize,
        value: impl Fn(usize) -> u64,
        guard: &Guard,
    ) -> Left {
        debug_assert!(keys.is_sorted_by(|a, b| a < b) && (1..=size_of::<Packed>()).contains(&width));
        let mut batch = Batch { keys, width, value, left: Left::new() };
        if !keys.is_empty() {
            batch.enter(None, self.root(), 0, 0..keys.len(), guard);
        }
        batch.left
    }
}

impl<'k, V: Fn(usize) -> u64> Batch<'k, V> {
    /// A key, its first byte at the top.
    #[inline(always)]
    fn aligned(&self, at: usize) -> Packed {
        self.keys[at] << (8 * (size_of::<Packed>() - self.width))
    }

    /// The byte at `depth` of a key.
    #[inline(always)]
    fn byte(&self, at: usize, depth: usize) -> u8 {
        (self.keys[at] >> (8 * (self.width - 1 - depth))) as u8
    }

    /// Bytes of a key from `depth` on.
    fn prefix(&self, at: usize, bytes: Range<usize>) -> Prefix {
        Prefix::new(&self.aligned(at).to_be_bytes()[bytes])
    }

    /// Parts keys that are the same above `depth` by their bytes there.
    #[inline]
    fn parts(
        &self,
        range: Range<usize>,
        depth: usize,
    ) -> impl Iterator<Item = (u8, Range<usize>)> + use<'k, V> {
        let (keys, shift) = (self.keys, 8 * (self.width - 1 - depth));
        let mut start = range.start;
        std::iter::from_fn(move || {
            let rest = &keys[start..range.end];
            let first = rest.first()? >> shift;
            let length = rest.iter().position(|key| key >> shift != first).unwrap_or(rest.len());
            let part = start..start + length;
            start = part.end;
            Some((first as u8, part))
        })
    }

    /// Inserts keys that are the same on the way to a node, of which `depth` is the length; it is the child of the byte in the node
    /// above it.
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
        // Where the first and the last key begin so, all do. In the last node of a path other keys may be the same.
        let begins = |at: usize| {
            let word = (self.aligned(at) << (8 * depth) >> u64::BITS) as u64;
            prefix.len() == 0 || prefix.begins(word)
        };
        if below + 1 >= self.width || !begins(range.start) || !begins(range.end - 1) {
            self.left.push(range);
            return;
        }
        // Where there is no child as yet: the byte, the keys, and what has been made of them.
        let mut made: SmallVec<[(u8, Range<usize>, Child); 16]> = SmallVec::new();
        for (byte, part) in self.parts(range, below) {
            match child_of(node, byte, guard) {
                Ok(Kind::Node(next)) => self.enter(Some((node, byte)), next, below + 1, part, guard),
                Ok(Kind::Nothing) => made.push((byte, part.clone(), self.make(part, below + 1))),
                Ok(Kind::Leaf(_) | Kind::Value(_)) | Err(Contended) => self.left.push(part),
            }
        }
        if !made.is_empty()
            && let Err(Contended) = link(above, node, &made, guard)
        {
            for (_, part, child) in made {
                // SAFETY: nobody else has seen it.
                unsafe { child.discard(guard) };
                self.left.push(part);
            }
        }
    }

    /// The child that holds keys which are the same above `depth`.
    fn make(&self, range: Range<usize>, depth: usize) -> Child {
        let (first, last) = (range.start, range.end - 1);
        if range.len() == 1 {
            let value = (self.value)(first);
            return match depth == self.width {
                true => Child::value(value),
                false => Leaf::create(&self.aligned(first).to_be_bytes()[..self.width], value),
            };
        }
        let differ = ((self.aligned(first) ^ self.aligned(last)).leading_zeros() / 8) as usize;
        // A prefix that is too long takes a node for every 9 bytes, from above.
        if differ - depth > PREFIX_BYTES {
            let end = depth + PREFIX_BYTES;
            let link = Fresh::new(1, self.prefix(first, depth..end));
            link.add(self.byte(first, end), self.make(range, end + 1));
            return link.into_child();
        }
        let prefix = self.prefix(first, depth..differ);
        let made = if differ + 1 == self.width {
            let values = range.clone().map(|at| (self.keys[at] as u8, Child::value((self.value)(at))));
            Fresh::of(prefix, range.len(), values)
        } else {
            let count = self.parts(range.clone(), differ).count();
            let parts = self.parts(range, differ);
            Fresh::of(prefix, count, parts.map(|(byte, part)| (byte, self.make(part, differ + 1))))
        };
        made.into_child()
    }
}

/// What the child of a byte is.
fn child_of<'g>(node: Node<'g>, byte: u8, _guard: &'g Guard) -> Result<Kind<'g>, Contended> {
    let version = node.header().version()?;
    let child = node.child(byte);
    node.header().validate(version)?;
    // SAFETY: just read under the guard.
    Ok(unsafe { child.kind() })
}

/// Links new children of a node, all or none, unless somebody has changed what matters.
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
    // Neither is obsolete, so that one still stands below the other.
    Place { node: parent, version: parent_version, byte }.replace(larger.into_child(), guard);
    lock.make_obsolete();
    Ok(())
}
