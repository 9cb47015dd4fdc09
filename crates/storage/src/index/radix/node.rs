//! Nodes of the radix tree: five sizes, one protocol.
//!
//! ```text
//! header   version 8 │ prefix 8 │ count 2 │ prefix length 1 │ 1 │ key bytes of a Node4 4
//! Node4    header │ 4 children                          one cache line
//! Node11   header │ 16 key bytes │ 11 children          two; key bytes sorted, as in Node4
//! Node16   header │ 16 key bytes │ 16 children          three
//! Node64   header │ places in use 8 │ place + 1 for each of 256 bytes │ 64 children
//! Node256  header │ 256 children
//! ```
//! The small sizes fill cache lines, since most nodes are small: for example that of an order with its lines.
//! TPC-H's order keys are eight of every 32 numbers, so 64 of them differ only in their last byte.
//!
//! A child is one word, whose lowest bits are its kind ([`Child`]). If a key ends with the byte of the child,
//! its value is in the word itself; a leaf has a value with its whole key.
//!
//! Writers lock a node by its version. Readers read without a lock and load the version again afterwards (a
//! sequence lock). So everything that changes is atomic, and what a reader has read is valid only after
//! [`Header::is_current`]:
//!
//! ```text
//! writer                                  reader
//! version: free → locked (acquire)        load the version until it is free (acquire)
//! fence(Release)                          read
//! write                                   fence(Acquire)
//! version: free + 1, or obsolete          load the version again: changed? → what was read is void
//! ```
//! Invariant: a node's place never changes, that is, its prefix and the path above it. A change of these
//! replaces the node, and the old one becomes obsolete. So a thread that has a node which is not obsolete has
//! the node of that path, however it has reached it.

use crate::Guard;
use crate::layout::PART_ALIGN;
use crate::memory::{Slab, prefetch};
use firn_base::sync::{AtomicPtr, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::{self, NonNull};

/// Values have this many bits: the rest of a child's word.
pub(in super::super) const VALUE_BITS: u32 = 64 - TAG_BITS;

const TAG_BITS: u32 = 3;
const TAG_MASK: usize = (1 << TAG_BITS) - 1;

const VALUE: usize = 1;
const LEAF: usize = 2;
/// This tag and all above are nodes.
const NODE_4: usize = 3;
const NODE_11: usize = 4;
const NODE_16: usize = 5;
const NODE_64: usize = 6;
const NODE_256: usize = 7;

/// A word of a node, read but perhaps not yet validated: nothing, a value, or a pointer with a tag.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Child(*mut u8);

// SAFETY: a word gives no access by itself; following it is unsafe (`kind`), and what it points to is
// shareable.
unsafe impl Send for Child {}
// SAFETY: as above.
unsafe impl Sync for Child {}

/// The kind of a child. References live as long as the guard under which the child was read.
#[derive(Clone, Copy)]
pub(super) enum Kind<'g> {
    Nothing,
    Value(u64),
    Leaf(Leaf<'g>),
    Node(Node<'g>),
}

impl Child {
    pub(super) const NOTHING: Child = Child(ptr::null_mut());

    pub(super) fn value(value: u64) -> Child {
        debug_assert!(value >> VALUE_BITS == 0);
        Child(ptr::without_provenance_mut((value as usize) << TAG_BITS | VALUE))
    }

    fn tagged<T>(pointer: *mut T, tag: usize) -> Child {
        Child(pointer.cast::<u8>().map_addr(|address| address | tag))
    }

    fn pointer<T>(self) -> *mut T {
        self.0.map_addr(|address| address & !TAG_MASK).cast()
    }

    pub(super) fn is_nothing(self) -> bool {
        self.0.is_null()
    }

    /// The value in the word, if it is one.
    #[inline]
    pub(super) fn as_value(self) -> Option<u64> {
        (self.0.addr() & TAG_MASK == VALUE).then_some((self.0.addr() >> TAG_BITS) as u64)
    }

    #[inline]
    pub(super) fn is_node(self) -> bool {
        self.0.addr() & TAG_MASK >= NODE_4
    }

    #[inline]
    pub(super) fn is_leaf(self) -> bool {
        self.0.addr() & TAG_MASK == LEAF
    }

    /// Follows the word.
    ///
    /// # Safety
    /// It was read from a node of the tree while the thread was pinned, and the pin lasts for `'g`; or no
    /// other thread has the tree.
    #[inline]
    pub(super) unsafe fn kind<'g>(self) -> Kind<'g> {
        // SAFETY: by the caller, what the word points to was in the tree under the pin. It is freed only
        // after every guard is released that was held then (`retire`). The tag was set with the pointer.
        unsafe {
            match self.0.addr() & TAG_MASK {
                0 => Kind::Nothing,
                VALUE => Kind::Value((self.0.addr() >> TAG_BITS) as u64),
                LEAF => Kind::Leaf(Leaf(NonNull::new_unchecked(self.pointer()), PhantomData)),
                NODE_4 => Kind::Node(Node::N4(&*self.pointer())),
                NODE_11 => Kind::Node(Node::N11(&*self.pointer())),
                NODE_16 => Kind::Node(Node::N16(&*self.pointer())),
                NODE_64 => Kind::Node(Node::N64(&*self.pointer())),
                _ => Kind::Node(Node::N256(&*self.pointer())),
            }
        }
    }

    /// The header of the node, of any size.
    ///
    /// # Safety
    /// As for [`Child::kind`], and it is a node.
    #[inline(always)]
    pub(super) unsafe fn header<'g>(self) -> &'g Header {
        // SAFETY: by the caller; every node begins with its header.
        unsafe { &*self.pointer() }
    }

    /// The child of a byte of the node.
    ///
    /// # Safety
    /// As for [`Child::header`].
    #[inline(always)]
    pub(super) unsafe fn child(self, byte: u8) -> Child {
        // SAFETY: by the caller.
        match unsafe { self.kind() } {
            Kind::Node(node) => node.child(byte),
            _ => unreachable!("callers have a node"),
        }
    }

    /// Prefetches what a search for `byte` below this child touches first.
    #[inline]
    pub(super) fn prefetch(self, byte: u8) {
        let start = self.pointer::<u8>();
        prefetch(start);
        match self.0.addr() & TAG_MASK {
            // Most nodes on the path to a row have no prefix.
            NODE_256 => {
                prefetch(start.wrapping_add(std::mem::offset_of!(Node256, children) + 8 * usize::from(byte)));
            }
            NODE_11 | NODE_16 => prefetch(start.wrapping_add(PART_ALIGN)),
            _ => {}
        }
    }

    /// Bytes of itself without its children.
    pub(super) fn memory_bytes(self, _guard: &Guard) -> usize {
        // SAFETY: callers have read the child under the guard.
        match unsafe { self.kind() } {
            Kind::Nothing | Kind::Value(_) => 0,
            Kind::Leaf(leaf) => leaf_memory(leaf.size()),
            Kind::Node(Node::N4(_)) => size_of::<Node4>(),
            Kind::Node(Node::N11(_)) => size_of::<Node11>(),
            Kind::Node(Node::N16(_)) => size_of::<Node16>(),
            Kind::Node(Node::N64(_)) => size_of::<Node64>(),
            Kind::Node(Node::N256(_)) => size_of::<Node256>(),
        }
    }

    /// Frees what the word points to, but not what is below it.
    ///
    /// # Safety
    /// No other thread can reach it any more.
    pub(super) unsafe fn free(self) {
        // SAFETY: by the caller; each pointer came from the allocation of its tag.
        unsafe {
            match self.0.addr() & TAG_MASK {
                0 | VALUE => {}
                LEAF => {
                    let leaf = Leaf(NonNull::new_unchecked(self.pointer()), PhantomData);
                    let size = leaf.size();
                    match leaf_slab(size) {
                        Some(slab) => slab.give_back(NonNull::new_unchecked(self.pointer())),
                        None => dealloc(self.pointer(), leaf_layout(size)),
                    }
                }
                // Nodes have nothing that has to be dropped.
                tag => SLABS[tag - NODE_4].give_back(NonNull::new_unchecked(self.pointer())),
            }
        }
    }

    /// Frees what the word points to and everything below it; it has never been linked.
    ///
    /// # Safety
    /// No other thread can reach it.
    pub(super) unsafe fn discard(self, guard: &Guard) {
        // SAFETY: by the caller, as for all below.
        unsafe {
            if let Kind::Node(node) = self.kind() {
                node.for_each(|_, child| child.discard(guard));
            }
            grew(-(self.memory_bytes(guard) as i64));
            self.free();
        }
    }

    /// Frees what the word points to once every guard that is held now is released.
    ///
    /// # Safety
    /// It was just unlinked from the tree.
    pub(super) unsafe fn retire(self, guard: &Guard) {
        if !matches!(self.0.addr() & TAG_MASK, 0 | VALUE) {
            grew(-(self.memory_bytes(guard) as i64));
            // SAFETY: a thread that pins from now on cannot find it; it remains until all other guards are
            // released.
            unsafe { guard.defer_unchecked(move || self.free()) };
        }
    }
}

// ---- leaves ----

#[repr(C)]
struct LeafHeader {
    value: AtomicU64,
    key_length: u32,
}

const LEAF_KEY: usize = std::mem::offset_of!(LeafHeader, key_length) + 4;

/// A value with its key, which follows the header.
#[derive(Clone, Copy)]
pub(super) struct Leaf<'g>(NonNull<LeafHeader>, PhantomData<&'g LeafHeader>);

impl<'g> Leaf<'g> {
    pub(super) fn create(key: &[u8], value: u64) -> Child {
        let key_length = u32::try_from(key.len()).expect("a key is shorter than 4 GiB");
        let size = leaf_size(key.len());
        grew(leaf_memory(size) as i64);
        let start = match leaf_slab(size) {
            Some(slab) => slab.take(),
            None => {
                let layout = leaf_layout(size);
                // SAFETY: the layout is not empty.
                NonNull::new(unsafe { alloc(layout) }).unwrap_or_else(|| handle_alloc_error(layout))
            }
        };
        // SAFETY: header and key are written within the new memory, before any other thread can reach it.
        unsafe {
            start.cast().write(LeafHeader { value: AtomicU64::new(value), key_length });
            start.add(LEAF_KEY).copy_from_nonoverlapping(NonNull::from(key).cast(), key.len());
        }
        Child::tagged(start.as_ptr(), LEAF)
    }

    pub(super) fn key(self) -> &'g [u8] {
        // SAFETY: `key_length` bytes were written behind the header and never change.
        unsafe {
            let length = self.0.as_ref().key_length as usize;
            std::slice::from_raw_parts(self.0.as_ptr().cast::<u8>().add(LEAF_KEY), length)
        }
    }

    pub(super) fn value(self) -> u64 {
        // SAFETY: by `Child::kind` the leaf exists. Acquire: what was written before the value was set is
        // visible.
        unsafe { self.0.as_ref() }.value.load(Ordering::Acquire)
    }

    /// Sets the value. The node above is locked.
    pub(super) fn set_value(self, value: u64) {
        // SAFETY: as above; release pairs with the load.
        unsafe { self.0.as_ref() }.value.store(value, Ordering::Release);
    }

    fn size(self) -> usize {
        leaf_size(self.key().len())
    }
}

fn leaf_size(key_length: usize) -> usize {
    (LEAF_KEY + key_length).max(size_of::<LeafHeader>())
}

/// Memory for leaves of one and of two cache lines; larger ones are few.
static LEAF_SLABS: [Slab; 2] = [Slab::new(PART_ALIGN), Slab::new(2 * PART_ALIGN)];

#[inline]
fn leaf_slab(size: usize) -> Option<&'static Slab> {
    LEAF_SLABS.get((size - 1) / PART_ALIGN)
}

/// Bytes that a leaf of this size takes.
fn leaf_memory(size: usize) -> usize {
    leaf_slab(size).map_or(size, Slab::bytes)
}

fn leaf_layout(size: usize) -> Layout {
    Layout::from_size_align(size, align_of::<LeafHeader>()).expect("a key is shorter than the memory")
}

// ---- prefixes ----

/// The bytes that all keys below a node share after the byte that leads to it: at most 8, the first one
/// highest. Longer ones need a chain of nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Prefix {
    bytes: u64,
    length: u8,
}

pub(super) const PREFIX_BYTES: usize = 8;

impl Prefix {
    pub(super) const EMPTY: Prefix = Prefix { bytes: 0, length: 0 };

    pub(super) fn new(bytes: &[u8]) -> Prefix {
        let mut word = [0; PREFIX_BYTES];
        word[..bytes.len()].copy_from_slice(bytes);
        Prefix { bytes: u64::from_be_bytes(word), length: bytes.len() as u8 }
    }

    /// The first `length` bytes of a word.
    #[inline]
    pub(super) fn of_word(word: u64, length: usize) -> Prefix {
        debug_assert!(length <= PREFIX_BYTES);
        let bytes = if length == 0 { 0 } else { word & u64::MAX << (64 - 8 * length) };
        Prefix { bytes, length: length as u8 }
    }

    #[inline]
    pub(super) fn len(self) -> usize {
        usize::from(self.length)
    }

    pub(super) fn to_bytes(self) -> [u8; PREFIX_BYTES] {
        self.bytes.to_be_bytes()
    }

    /// Whether a key whose next bytes are `word` continues with it; not for an empty prefix.
    #[inline(always)]
    pub(super) fn begins(self, word: u64) -> bool {
        (self.bytes ^ word) >> (64 - 8 * u32::from(self.length)) == 0
    }

    /// How many of its bytes a key continues with, whose next bytes are `word` (zeros after its end).
    #[inline]
    pub(super) fn common(self, word: u64) -> usize {
        ((self.bytes ^ word).leading_zeros() as usize / 8).min(self.len())
    }
}

// ---- nodes ----

const LOCKED: u64 = 1;
const OBSOLETE: u64 = 2;
const VERSION_STEP: u64 = 4;

/// The version of a node when a read of it began.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Version(u64);

/// Another thread changed what was being read: restart at the root.
#[derive(Debug)]
pub(super) struct Contended;

#[repr(C)]
pub(super) struct Header {
    version: AtomicU64,
    prefix: u64,
    count: AtomicU16,
    prefix_length: u8,
    /// The key bytes of a [`Node4`], which so fits into a cache line.
    keys: AtomicU32,
}

impl Header {
    fn new(prefix: Prefix) -> Header {
        Header {
            version: AtomicU64::new(0),
            prefix: prefix.bytes,
            count: AtomicU16::new(0),
            prefix_length: prefix.length,
            keys: AtomicU32::new(0),
        }
    }

    #[inline]
    pub(super) fn prefix(&self) -> Prefix {
        Prefix { bytes: self.prefix, length: self.prefix_length }
    }

    #[inline]
    pub(super) fn count(&self) -> usize {
        usize::from(self.count.load(Ordering::Relaxed))
    }

    fn set_count(&self, count: usize) {
        self.count.store(count as u16, Ordering::Relaxed);
    }

    /// Begins a read.
    #[inline]
    pub(super) fn version(&self) -> Result<Version, Contended> {
        let version = self.version.load(Ordering::Acquire);
        if version & (LOCKED | OBSOLETE) == 0 { Ok(Version(version)) } else { self.await_version() }
    }

    #[cold]
    fn await_version(&self) -> Result<Version, Contended> {
        const SPINS: u32 = 100;
        for _ in 0..SPINS {
            let version = self.version.load(Ordering::Acquire);
            if version & (LOCKED | OBSOLETE) == 0 {
                return Ok(Version(version));
            }
            if version & OBSOLETE != 0 {
                return Err(Contended);
            }
            std::hint::spin_loop();
        }
        // The holder of the lock waits for a core.
        firn_base::thread::yield_now();
        Err(Contended)
    }

    /// Whether what was read since `version` was loaded is consistent.
    #[inline]
    pub(super) fn is_current(&self, version: Version) -> bool {
        // Pairs with the release fence in `lock`.
        fence(Ordering::Acquire);
        self.version.load(Ordering::Relaxed) == version.0
    }

    /// As [`Header::is_current`], for `?`.
    #[inline]
    pub(super) fn validate(&self, version: Version) -> Result<(), Contended> {
        if self.is_current(version) { Ok(()) } else { Err(Contended) }
    }

    /// Locks the node, if it has not changed since `version` was loaded. Never waits.
    #[inline]
    pub(super) fn lock(&self, version: Version) -> Result<Lock<'_>, Contended> {
        self.version
            .compare_exchange(version.0, version.0 | LOCKED, Ordering::Acquire, Ordering::Relaxed)
            .map_err(|_| Contended)?;
        // Pairs with the acquire fence in `is_current`: a reader that sees a write sees the lock.
        fence(Ordering::Release);
        Ok(Lock { header: self, after: version.0.wrapping_add(VERSION_STEP) })
    }
}

/// The lock of a node; dropping it gives the node a new version.
pub(super) struct Lock<'a> {
    header: &'a Header,
    after: u64,
}

impl Lock<'_> {
    /// Marks the node as removed from the tree.
    pub(super) fn make_obsolete(mut self) {
        self.after |= OBSOLETE;
    }
}

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        self.header.version.store(self.after, Ordering::Release);
    }
}

type Slot = AtomicPtr<u8>;

#[inline]
fn load(slot: &Slot) -> Child {
    // Acquire: the target of the pointer, and what was written before a value was set, are visible.
    Child(slot.load(Ordering::Acquire))
}

fn store(slot: &Slot, child: Child) {
    slot.store(child.0, Ordering::Release);
}

fn no_keys() -> [AtomicU64; 2] {
    [const { AtomicU64::new(0) }; 2]
}

fn slots<const N: usize>() -> [Slot; N] {
    [const { AtomicPtr::new(ptr::null_mut()) }; N]
}

#[repr(C, align(64))]
pub(super) struct Node4 {
    header: Header,
    children: [Slot; 4],
}

/// A node whose key bytes follow its header, for up to 16 children.
#[repr(C, align(64))]
pub(super) struct NodeUpTo<const CHILDREN: usize> {
    header: Header,
    keys: [AtomicU64; 2],
    children: [Slot; CHILDREN],
}

type Node11 = NodeUpTo<11>;
type Node16 = NodeUpTo<16>;

#[repr(C, align(64))]
pub(super) struct Node64 {
    header: Header,
    /// A bit for every place in `children`.
    used: AtomicU64,
    /// For every byte the place of its child plus one, eight bytes in a word.
    places: [AtomicU64; 32],
    children: [Slot; 64],
}

#[repr(C, align(64))]
pub(super) struct Node256 {
    header: Header,
    children: [Slot; 256],
}

const _: () = assert!(size_of::<Header>() == 24 && size_of::<Node4>() == 64);
const _: () = assert!(size_of::<Node11>() == 128 && size_of::<Node16>() == 192);

/// A node with few children: key bytes in order, each with its child at the same position.
trait Sorted {
    fn header(&self) -> &Header;
    /// The key bytes, the first one lowest.
    fn keys(&self) -> u128;
    fn set_keys(&self, keys: u128);
    fn children(&self) -> &[Slot];

    /// The position of the first key byte that is `byte`; may be beyond the last child.
    fn find(&self, byte: u8) -> usize;

    #[inline]
    fn position(&self, byte: u8) -> Option<usize> {
        let position = self.find(byte);
        (position < self.header().count()).then_some(position)
    }

    /// Calls `visit` with the children of the bytes in order, or against it, until it returns false.
    #[inline]
    fn visit(&self, bytes: Range<usize>, reverse: bool, visit: &mut impl FnMut(u8, Child) -> bool) {
        let keys = self.keys().to_le_bytes();
        // During a concurrent change the count may exceed the capacity.
        let children = &self.children()[..self.header().count().min(self.children().len())];
        let last = children.len().wrapping_sub(1);
        for number in 0..children.len() {
            let position = if reverse { last - number } else { number };
            let byte = keys[position];
            if bytes.contains(&usize::from(byte)) && !visit(byte, load(&children[position])) {
                return;
            }
        }
    }

    fn add(&self, byte: u8, child: Child) {
        let count = self.header().count();
        let position = self.keys().to_le_bytes()[..count].iter().take_while(|key| **key < byte).count();
        for to in (position + 1..=count).rev() {
            store(&self.children()[to], load(&self.children()[to - 1]));
        }
        store(&self.children()[position], child);
        let below = (1 << (8 * position)) - 1;
        let keys = self.keys();
        // One byte further up; a byte beyond the last place is shifted out.
        self.set_keys(keys & below | u128::from(byte) << (8 * position) | (keys & !below) << 8);
        self.header().set_count(count + 1);
    }

    /// Adds children with ascending bytes to an empty node.
    #[inline]
    fn fill(&self, children: impl Iterator<Item = (u8, Child)>) {
        let (mut keys, mut count) = (0, 0);
        for ((byte, child), slot) in children.zip(self.children()) {
            store(slot, child);
            keys |= u128::from(byte) << (8 * count);
            count += 1;
        }
        self.set_keys(keys);
        self.header().set_count(count);
    }

    fn remove(&self, byte: u8) {
        let count = self.header().count();
        let position = self.position(byte).expect("only existing children are removed");
        for to in position..count - 1 {
            store(&self.children()[to], load(&self.children()[to + 1]));
        }
        store(&self.children()[count - 1], Child::NOTHING);
        let below = (1 << (8 * position)) - 1;
        let keys = self.keys();
        self.set_keys(keys & below | keys >> 8 & !below);
        self.header().set_count(count - 1);
    }
}

impl Sorted for Node4 {
    #[inline]
    fn header(&self) -> &Header {
        &self.header
    }

    #[inline]
    fn keys(&self) -> u128 {
        u128::from(self.header.keys.load(Ordering::Relaxed))
    }

    #[inline]
    fn find(&self, byte: u8) -> usize {
        const ONES: u32 = u32::MAX / 255;
        let differences = self.header.keys.load(Ordering::Relaxed) ^ (u32::from(byte) * ONES);
        // The high bit of the lowest byte that is zero, and perhaps of some above it.
        let zeros = differences.wrapping_sub(ONES) & !differences & (ONES << 7);
        zeros.trailing_zeros() as usize / 8
    }

    fn set_keys(&self, keys: u128) {
        self.header.keys.store(keys as u32, Ordering::Relaxed);
    }

    #[inline]
    fn children(&self) -> &[Slot] {
        &self.children
    }
}

impl<const CHILDREN: usize> Sorted for NodeUpTo<CHILDREN> {
    #[inline]
    fn header(&self) -> &Header {
        &self.header
    }

    #[inline]
    fn keys(&self) -> u128 {
        let [low, high] = &self.keys;
        u128::from(low.load(Ordering::Relaxed)) | u128::from(high.load(Ordering::Relaxed)) << 64
    }

    #[inline]
    fn find(&self, byte: u8) -> usize {
        const ONES: u64 = u64::MAX / 255;
        let zeros = |keys: &AtomicU64| {
            let differences = keys.load(Ordering::Relaxed) ^ (u64::from(byte) * ONES);
            differences.wrapping_sub(ONES) & !differences & (ONES << 7)
        };
        let (low, high) = (zeros(&self.keys[0]), zeros(&self.keys[1]));
        let bit = if low != 0 { low.trailing_zeros() } else { 64 + high.trailing_zeros() };
        bit as usize / 8
    }

    fn set_keys(&self, keys: u128) {
        self.keys[0].store(keys as u64, Ordering::Relaxed);
        self.keys[1].store((keys >> 64) as u64, Ordering::Relaxed);
    }

    #[inline]
    fn children(&self) -> &[Slot] {
        &self.children
    }
}

impl Node64 {
    /// The place of a byte's child, if it has one.
    #[inline]
    fn place(&self, byte: u8) -> Option<usize> {
        let word = self.places[usize::from(byte) / 8].load(Ordering::Relaxed);
        usize::from((word >> (byte % 8 * 8)) as u8).checked_sub(1)
    }

    fn set_place(&self, byte: u8, place: Option<usize>) {
        let word = &self.places[usize::from(byte) / 8];
        let shift = byte % 8 * 8;
        let others = word.load(Ordering::Relaxed) & !(0xff << shift);
        word.store(others | (place.map_or(0, |place| place as u64 + 1)) << shift, Ordering::Relaxed);
    }

    fn add(&self, byte: u8, child: Child) {
        let used = self.used.load(Ordering::Relaxed);
        let place = used.trailing_ones() as usize;
        store(&self.children[place], child);
        self.used.store(used | 1 << place, Ordering::Relaxed);
        self.set_place(byte, Some(place));
        self.header.set_count(self.header.count() + 1);
    }

    fn remove(&self, byte: u8) {
        let place = self.place(byte).expect("only existing children are removed");
        self.set_place(byte, None);
        self.used.store(self.used.load(Ordering::Relaxed) & !(1 << place), Ordering::Relaxed);
        store(&self.children[place], Child::NOTHING);
        self.header.set_count(self.header.count() - 1);
    }
}

/// A node of any size.
#[derive(Clone, Copy)]
pub(super) enum Node<'g> {
    N4(&'g Node4),
    N11(&'g Node11),
    N16(&'g Node16),
    N64(&'g Node64),
    N256(&'g Node256),
}

impl<'g> Node<'g> {
    #[inline]
    pub(super) fn header(self) -> &'g Header {
        match self {
            Node::N4(node) => &node.header,
            Node::N11(node) => &node.header,
            Node::N16(node) => &node.header,
            Node::N64(node) => &node.header,
            Node::N256(node) => &node.header,
        }
    }

    #[inline]
    fn slot(self, byte: u8) -> Option<&'g Slot> {
        match self {
            Node::N4(node) => node.position(byte).and_then(|position| node.children.get(position)),
            Node::N11(node) => node.position(byte).and_then(|position| node.children.get(position)),
            Node::N16(node) => node.position(byte).and_then(|position| node.children.get(position)),
            Node::N64(node) => node.place(byte).and_then(|place| node.children.get(place)),
            Node::N256(node) => Some(&node.children[usize::from(byte)]),
        }
    }

    /// The child of a byte.
    #[inline]
    pub(super) fn child(self, byte: u8) -> Child {
        self.slot(byte).map_or(Child::NOTHING, load)
    }

    /// Calls `visit` with the children of the bytes in order, or against it, until it returns false.
    #[inline]
    pub(super) fn visit(self, bytes: Range<usize>, reverse: bool, mut visit: impl FnMut(u8, Child) -> bool) {
        fn all(mut bytes: Range<usize>, reverse: bool, mut each: impl FnMut(usize) -> bool) {
            let _stopped = if reverse { bytes.rev().all(&mut each) } else { bytes.all(&mut each) };
        }
        match self {
            Node::N4(node) => node.visit(bytes, reverse, &mut visit),
            Node::N11(node) => node.visit(bytes, reverse, &mut visit),
            Node::N16(node) => node.visit(bytes, reverse, &mut visit),
            Node::N64(node) => all(bytes, reverse, |byte| {
                let place = node.place(byte as u8);
                place.is_none_or(|place| visit(byte as u8, load(&node.children[place])))
            }),
            Node::N256(node) => all(bytes, reverse, |byte| {
                let child = load(&node.children[byte]);
                child.is_nothing() || visit(byte as u8, child)
            }),
        }
    }

    /// Calls `visit` with all children in order.
    pub(super) fn for_each(self, mut visit: impl FnMut(u8, Child)) {
        self.visit(0..256, false, |byte, child| {
            visit(byte, child);
            true
        });
    }

    /// Whether there is room for this many more children.
    pub(super) fn has_room(self, more: usize) -> bool {
        let capacity = match self {
            Node::N4(_) => 4,
            Node::N11(_) => 11,
            Node::N16(_) => 16,
            Node::N64(_) => 64,
            Node::N256(_) => 256,
        };
        self.header().count() + more <= capacity
    }

    /// Whether it should be replaced by a smaller one after it has lost a child. The limit is well below the
    /// smaller capacity, so that a node does not change back and forth.
    pub(super) fn shrinks(self) -> bool {
        let count = self.header().count().saturating_sub(1);
        let most = match self {
            Node::N4(_) => 0,
            Node::N11(_) => 3,
            Node::N16(_) => 8,
            Node::N64(_) => 12,
            Node::N256(_) => 48,
        };
        // A node without children is unlinked instead.
        (1..=most).contains(&count)
    }

    // ---- changes, all under the lock ----

    /// Adds a child for a byte that has none.
    pub(super) fn add(self, byte: u8, child: Child) {
        debug_assert!(self.has_room(1) && self.child(byte).is_nothing() && !child.is_nothing());
        match self {
            Node::N4(node) => node.add(byte, child),
            Node::N11(node) => node.add(byte, child),
            Node::N16(node) => node.add(byte, child),
            Node::N64(node) => node.add(byte, child),
            Node::N256(node) => {
                store(&node.children[usize::from(byte)], child);
                node.header.set_count(node.header.count() + 1);
            }
        }
    }

    /// Replaces a child by another.
    pub(super) fn set(self, byte: u8, child: Child) {
        store(self.slot(byte).expect("only existing children are replaced"), child);
    }

    /// Removes a child.
    pub(super) fn remove(self, byte: u8) {
        match self {
            Node::N4(node) => node.remove(byte),
            Node::N11(node) => node.remove(byte),
            Node::N16(node) => node.remove(byte),
            Node::N64(node) => node.remove(byte),
            Node::N256(node) => {
                store(&node.children[usize::from(byte)], Child::NOTHING);
                node.header.set_count(node.header.count() - 1);
            }
        }
    }
}

/// Memory for nodes, in the order of their tags.
static SLABS: [Slab; 5] = [
    Slab::new(size_of::<Node4>()),
    Slab::new(size_of::<Node11>()),
    Slab::new(size_of::<Node16>()),
    Slab::new(size_of::<Node64>()),
    Slab::new(size_of::<Node256>()),
];

thread_local! {
    /// Bytes of nodes and leaves that this thread has made, minus those that it has retired, since the last
    /// call of [`take_growth`].
    static GROWTH: Cell<i64> = const { Cell::new(0) };
}

fn grew(bytes: i64) {
    GROWTH.set(GROWTH.get() + bytes);
}

/// The number of bytes by which the trees that this thread has changed have grown since the last call.
#[inline]
pub(crate) fn take_growth() -> i64 {
    let growth = GROWTH.get();
    // Rare: most changes of an index find room in a node.
    if growth != 0 {
        GROWTH.set(0);
    }
    growth
}

/// A new node that no other thread can reach yet.
pub(super) struct Fresh(Child);

impl Fresh {
    /// A node with room for `count` children.
    pub(super) fn new(count: usize, prefix: Prefix) -> Fresh {
        /// Moves a node into memory of its own.
        fn place<T>(tag: usize, node: T) -> Fresh {
            const { assert!(!std::mem::needs_drop::<T>() && align_of::<T>() == PART_ALIGN) };
            let slab = &SLABS[tag - NODE_4];
            assert!(slab.bytes() == size_of::<T>());
            grew(size_of::<T>() as i64);
            let start = slab.take().cast::<T>();
            // SAFETY: just taken, of this size, and aligned.
            unsafe { start.write(node) };
            Fresh(Child::tagged(start.as_ptr(), tag))
        }
        let header = Header::new(prefix);
        match count {
            ..=4 => place(NODE_4, Node4 { header, children: slots() }),
            5..=11 => place(NODE_11, Node11 { header, keys: no_keys(), children: slots() }),
            12..=16 => place(NODE_16, Node16 { header, keys: no_keys(), children: slots() }),
            17..=64 => {
                let places = [const { AtomicU64::new(0) }; 32];
                let used = AtomicU64::new(0);
                place(NODE_64, Node64 { header, used, places, children: slots() })
            }
            _ => place(NODE_256, Node256 { header, children: slots() }),
        }
    }

    /// A node with these `count` children, whose bytes ascend.
    #[inline]
    pub(super) fn of(prefix: Prefix, count: usize, children: impl Iterator<Item = (u8, Child)>) -> Fresh {
        let fresh = Fresh::new(count, prefix);
        let node = fresh.node();
        match node {
            Node::N4(node) => node.fill(children),
            Node::N11(node) => node.fill(children),
            Node::N16(node) => node.fill(children),
            Node::N64(_) | Node::N256(_) => children.for_each(|(byte, child)| node.add(byte, child)),
        }
        debug_assert_eq!(node.header().count(), count);
        fresh
    }

    /// A copy of a locked node except for one child, with room for `count` children.
    pub(super) fn copy(node: Node<'_>, count: usize, prefix: Prefix, without: Option<u8>) -> Fresh {
        let copy = Fresh::new(count, prefix);
        node.for_each(|byte, child| {
            if Some(byte) != without {
                copy.add(byte, child);
            }
        });
        copy
    }

    /// The node.
    pub(super) fn node(&self) -> Node<'_> {
        // SAFETY: the node was just made and is ours.
        let Kind::Node(node) = (unsafe { self.0.kind() }) else { unreachable!("the child is a node") };
        node
    }

    /// Adds a child.
    pub(super) fn add(&self, byte: u8, child: Child) {
        self.node().add(byte, child);
    }

    /// The node as a child, to be linked.
    pub(super) fn into_child(self) -> Child {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares nodes of all sizes, growing to the maximum and shrinking to nothing, with a sorted map.
    #[test]
    fn a_node_of_any_size_is_a_sorted_map_of_bytes() {
        for capacity in [4, 11, 16, 64, if cfg!(miri) { 80 } else { 256 }] {
            let fresh = Fresh::new(capacity, Prefix::new(b"abc"));
            // SAFETY: the node is ours.
            let Kind::Node(node) = (unsafe { fresh.0.kind() }) else { panic!("the child is a node") };
            let mut model = std::collections::BTreeMap::new();
            let check = |model: &std::collections::BTreeMap<u8, u64>| {
                if cfg!(miri) && model.len() % 16 > 1 {
                    return;
                }
                let mut children = Vec::new();
                node.for_each(|byte, child| children.push((byte, child.0.addr() >> TAG_BITS)));
                let expected: Vec<_> = model.iter().map(|(byte, value)| (*byte, *value as usize)).collect();
                assert_eq!(children, expected);
                assert_eq!(node.has_room(1), model.len() < capacity || capacity == 80);
                for byte in (0..=255u8).step_by(if cfg!(miri) { 51 } else { 1 }) {
                    assert_eq!(node.child(byte).is_nothing(), !model.contains_key(&byte));
                    for (reverse, range) in [(false, byte..=255), (true, 0..=byte)] {
                        let mut nearest = None;
                        let bytes = usize::from(*range.start())..usize::from(*range.end()) + 1;
                        node.visit(bytes, reverse, |byte, _| {
                            nearest = Some(byte);
                            false
                        });
                        let mut known = model.range(range);
                        let known = if reverse { known.next_back() } else { known.next() };
                        assert_eq!(nearest, known.map(|(byte, _)| *byte));
                    }
                }
            };
            // 167 and 256 have no common factor: every byte comes once.
            let bytes: Vec<u8> = (0..capacity).map(|turn| (turn * 167 % 256) as u8).collect();
            for (turn, byte) in bytes.iter().enumerate() {
                node.add(*byte, Child::value(turn as u64));
                model.insert(*byte, turn as u64);
                check(&model);
            }
            node.set(bytes[1], Child::value(999));
            model.insert(bytes[1], 999);
            check(&model);
            for byte in bytes.iter().rev().step_by(2).chain(bytes.iter().rev().skip(1).step_by(2)) {
                node.remove(*byte);
                model.remove(byte);
                check(&model);
            }
            assert_eq!(node.header().prefix(), Prefix::new(b"abc"));
            // SAFETY: as above, and empty.
            unsafe { fresh.0.free() };
        }
    }

    #[test]
    fn a_prefix_knows_how_much_of_it_a_key_shares() {
        let prefix = Prefix::new(b"firndb");
        for (word, common) in
            [(*b"firndb\0\0", 6), (*b"firndbxx", 6), (*b"firn\0\0\0\0", 4), (*b"duck\0\0\0\0", 0)]
        {
            assert_eq!(prefix.common(u64::from_be_bytes(word)), common);
        }
        assert_eq!(Prefix::EMPTY.common(7), 0);
    }
}
