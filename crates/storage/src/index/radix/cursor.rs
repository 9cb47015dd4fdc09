//! Walks over a range of the tree in order, with concurrent writers.
//!
//! The walk keeps a stack of nodes with their versions, and visits the children of a node in batches: a batch
//! is copied, then validated, then visited. When a node has changed since, everything before its next byte is
//! done. So the walk restarts at the root with the path to that byte as its bound. It never moves backwards,
//! so it visits no key twice.

use super::node::{Child, Contended, Kind, Node, Version};
use crate::Guard;
use crate::index::ordered::Span;
use crate::index::{KeyBuffer, key};
use smallvec::SmallVec;
use std::ops::Range;

/// Calls `visit` with keys and values of a span until it returns false, and `ahead` with values that will be
/// visited soon.
#[inline]
pub(super) fn scan<'g>(
    root: Node<'g>,
    span: Span<'_>,
    reverse: bool,
    _guard: &'g Guard,
    ahead: &mut impl FnMut(u64),
    visit: &mut impl FnMut(&[u8], u64) -> bool,
) {
    let bounds = Bounds { low: Path::from_slice(span.low), high: span.high.map(Path::from_slice) };
    let (frames, path) = (SmallVec::new(), Path::new());
    let mut cursor = Cursor { root, frames, path, reverse, bounds };
    cursor.begin();
    let mut batch = [(0, Child::NOTHING); BATCH];
    while let Some(frame) = cursor.frames.last() {
        let (depth, edges) = (frame.depth, frame.edges);
        let Ok((count, is_last)) = cursor.copy(&mut batch) else {
            cursor.begin_again();
            continue;
        };
        if is_last {
            // The node is not read again.
            cursor.frames.pop();
            if count == 0 {
                continue;
            }
        }
        let mut leaves = false;
        for (_, child) in &batch[..count] {
            match child.as_value() {
                Some(value) => ahead(value),
                None if child.is_node() => {}
                None => {
                    child.prefetch(0);
                    leaves = true;
                }
            }
        }
        if leaves {
            for (_, child) in &batch[..count] {
                // SAFETY: copied under the guard.
                if let Kind::Leaf(leaf) = unsafe { child.kind::<'g>() } {
                    ahead(leaf.value());
                }
            }
        }
        cursor.path.truncate(depth);
        cursor.path.push(0);
        let mut rest = &batch[..count];
        if !edges.low && !edges.high {
            // Nearly all entries are off the paths to the bounds, and have their values here.
            let path = &mut cursor.path[..];
            let mut last = None;
            while let [(byte, child), following @ ..] = rest
                && let Some(value) = child.as_value()
            {
                path[depth] = *byte;
                if !visit(path, value) {
                    return;
                }
                (last, rest) = (Some(*byte), following);
            }
            last.filter(|_| !is_last).iter().for_each(|byte| cursor.pass(*byte));
        }
        for &(byte, child) in rest {
            cursor.path[depth] = byte;
            let edges = edges.below(&cursor.bounds, depth, byte);
            // SAFETY: copied under the guard.
            match unsafe { child.kind::<'g>() } {
                Kind::Value(value) => {
                    if !is_last {
                        cursor.pass(byte);
                    }
                    if edges.admit(&cursor.bounds, &cursor.path) && !visit(&cursor.path, value) {
                        return;
                    }
                }
                Kind::Leaf(leaf) => {
                    if !is_last {
                        cursor.pass(byte);
                    }
                    if edges.admit(&cursor.bounds, leaf.key()) && !visit(leaf.key(), leaf.value()) {
                        return;
                    }
                }
                // The last one of its batch.
                Kind::Node(node) => match cursor.enter(node, edges, byte) {
                    Ok(()) => break,
                    Err(Contended) => cursor.begin_again(),
                },
                Kind::Nothing => unreachable!("only children are copied"),
            }
        }
    }
}

/// Children that are copied at once.
const BATCH: usize = 16;

/// Nodes that are prefetched before the walk reaches them.
const SOON: usize = 3;

/// Keys from `low` on and below `high`.
struct Bounds {
    low: Path,
    high: Option<Path>,
}

type Path = KeyBuffer;

/// Which paths to the bounds contain a node or an entry. If neither does, it is certainly within the bounds.
#[derive(Clone, Copy)]
struct Edges {
    low: bool,
    high: bool,
}

impl Edges {
    /// The edges of the child of `byte`.
    #[inline]
    fn below(self, bounds: &Bounds, depth: usize, byte: u8) -> Edges {
        Edges {
            low: self.low && bounds.low.get(depth) == Some(&byte),
            high: self.high && bounds.high.as_ref().is_some_and(|high| high.get(depth) == Some(&byte)),
        }
    }

    /// Whether an entry is within the bounds.
    #[inline]
    fn admit(self, bounds: &Bounds, key: &[u8]) -> bool {
        let is_below = self.low && key < &bounds.low[..];
        let is_past = self.high && bounds.high.as_ref().is_some_and(|high| key >= &high[..]);
        !is_below && !is_past
    }
}

/// A node of the walk's current path.
struct Frame<'g> {
    node: Node<'g>,
    version: Version,
    /// Length of the path to its children.
    depth: usize,
    edges: Edges,
    /// Bytes whose children are still to be visited.
    left: Range<usize>,
}

struct Cursor<'g> {
    root: Node<'g>,
    frames: SmallVec<[Frame<'g>; 16]>,
    /// The path to the current position.
    path: Path,
    reverse: bool,
    /// What is still to be visited.
    bounds: Bounds,
}

impl<'g> Cursor<'g> {
    /// Restarts at the root, before everything within the bounds.
    fn begin(&mut self) {
        loop {
            self.frames.clear();
            self.path.clear();
            let edges = Edges { low: true, high: self.bounds.high.is_some() };
            if self.push(self.root, edges).is_ok() {
                return;
            }
        }
    }

    /// Restarts with what the last frame has not done yet.
    #[cold]
    fn begin_again(&mut self) {
        let Some(frame) = self.frames.last() else { return self.begin() };
        let mut path = Path::from_slice(&self.path[..frame.depth]);
        // The former bounds remain valid; on their edges they are the tighter ones.
        if self.reverse {
            let high = match u8::try_from(frame.left.end) {
                Ok(end) => {
                    path.push(end);
                    Some(path)
                }
                Err(_) => key::after(&path).map(|after| Path::from_slice(&after)),
            };
            if let Some(high) = high
                && self.bounds.high.as_ref().is_none_or(|old| high < *old)
            {
                self.bounds.high = Some(high);
            }
        } else {
            path.push(u8::try_from(frame.left.start).expect("a node that is done is not read"));
            if path > self.bounds.low {
                self.bounds.low = path;
            }
        }
        self.begin();
    }

    /// Copies the next children of the last frame, up to and with the first that is a node. Returns how many
    /// there are, and whether they are the last ones and none is a node.
    #[inline]
    fn copy(&self, batch: &mut [(u8, Child); BATCH]) -> Result<(usize, bool), Contended> {
        let frame = self.frames.last().expect("callers are in a node");
        if frame.left.is_empty() {
            return Ok((0, true));
        }
        let (mut count, mut following) = (0, 0);
        let mut nodes = false;
        frame.node.visit(frame.left.clone(), self.reverse, |byte, child| {
            if nodes {
                // Not yet, but soon.
                child.prefetch(0);
                following += 1;
                return following < SOON;
            }
            batch[count] = (byte, child);
            count += 1;
            nodes = child.is_node();
            count < BATCH
        });
        frame.node.header().validate(frame.version)?;
        Ok((count, count < BATCH && !nodes))
    }

    /// Notes that the child of `byte` is done.
    #[inline]
    fn pass(&mut self, byte: u8) {
        let frame = self.frames.last_mut().expect("callers are in a node");
        if self.reverse {
            frame.left.end = usize::from(byte);
        } else {
            frame.left.start = usize::from(byte) + 1;
        }
    }

    /// Enters the node that is the child of `byte`.
    fn enter(&mut self, node: Node<'g>, edges: Edges, byte: u8) -> Result<(), Contended> {
        let parent = self.frames.len() - 1;
        self.push(node, edges)?;
        let left = &mut self.frames[parent].left;
        if self.reverse {
            left.end = usize::from(byte);
        } else {
            left.start = usize::from(byte) + 1;
        }
        Ok(())
    }

    /// Enters a node, unless it is wholly beyond the bounds.
    fn push(&mut self, node: Node<'g>, edges: Edges) -> Result<(), Contended> {
        let version = node.header().version()?;
        let prefix = node.header().prefix();
        self.path.push_word(prefix.to_bytes(), prefix.len());
        let depth = self.path.len();
        let leads_to = |bound: &Path| bound.len() > depth && bound[..depth] == self.path[..];
        let (mut left, mut on) = (0..256, Edges { low: false, high: false });
        if edges.low {
            let low = &self.bounds.low;
            if leads_to(low) {
                (on.low, left.start) = (true, usize::from(low[depth]));
            } else if self.path < *low {
                return Ok(());
            }
        }
        if let Some(high) = &self.bounds.high
            && edges.high
        {
            if leads_to(high) {
                (on.high, left.end) = (true, usize::from(high[depth]) + 1);
            } else if self.path >= *high {
                return Ok(());
            }
        }
        self.frames.push(Frame { node, version, depth, edges: on, left });
        Ok(())
    }
}
