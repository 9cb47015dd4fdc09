//! Walking over a range of the tree in order, beside writers.
//!
//! The walk keeps a stack of nodes with their versions. When one has changed, everything before the
//! next byte of that node is done, so the walk begins again at the root with the path to that byte as
//! its bound. It never goes back, hence visits no key twice.

use super::node::{Child, Contended, Kind, Node, Version};
use crate::Guard;
use crate::index::{Span, key};
use smallvec::SmallVec;

/// A node that the walk is in.
struct Frame<'g> {
    node: Node<'g>,
    version: Version,
    /// Length of the path to its children.
    depth: usize,
    /// Forward: children from this byte on are still to come; backward: those below it.
    next: usize,
}

/// Bytes on the stack for a path; longer ones lie on the heap.
type Path = SmallVec<[u8; 64]>;

struct Cursor<'g> {
    root: Node<'g>,
    frames: SmallVec<[Frame<'g>; 16]>,
    /// The bytes that lead to where the walk is.
    path: Path,
    reverse: bool,
    /// Where the walk began or begins again: forward not below it, backward below it (`None`: at the
    /// very end).
    bound: Option<Path>,
    /// Whether the last frame is on the path to the bound, so that not all of it is to be visited.
    edge: bool,
}

/// Calls `visit` with keys and values of a span until it returns false.
#[inline]
pub(super) fn scan<'g>(
    root: Node<'g>,
    span: Span<'_>,
    reverse: bool,
    _guard: &'g Guard,
    visit: &mut impl FnMut(&[u8], u64) -> bool,
) {
    let bound = if reverse { span.high.map(Path::from_slice) } else { Some(Path::from_slice(span.low)) };
    let (frames, path) = (SmallVec::new(), Path::new());
    let mut cursor = Cursor { root, frames, path, reverse, bound, edge: false };
    let is_past = |key: &[u8]| match reverse {
        true => key < span.low,
        false => span.high.is_some_and(|high| key >= high),
    };
    cursor.begin();
    loop {
        match cursor.next() {
            Ok(None) => return,
            Ok(Some(Kind::Value(value))) => {
                if is_past(&cursor.path) || !visit(&cursor.path, value) {
                    return;
                }
            }
            Ok(Some(Kind::Leaf(leaf))) => {
                if is_past(leaf.key()) || !visit(leaf.key(), leaf.value()) {
                    return;
                }
            }
            Ok(Some(_)) => {}
            Err(Contended) => cursor.begin_again(),
        }
    }
}

impl<'g> Cursor<'g> {
    /// Stands at the root, before the bound.
    fn begin(&mut self) {
        loop {
            self.frames.clear();
            self.path.clear();
            self.edge = self.bound.is_some();
            if self.enter(self.root).is_ok() {
                return;
            }
        }
    }

    /// Begins again with what the last frame has not done yet.
    #[cold]
    fn begin_again(&mut self) {
        let Some(frame) = self.frames.last() else { return self.begin() };
        let mut path = Path::from_slice(&self.path[..frame.depth]);
        let bound = match u8::try_from(frame.next) {
            Ok(next) => {
                path.push(next);
                Some(path)
            }
            // Only backward, before anything of the node was visited: below all that begins so.
            Err(_) => key::after(&path).map(|after| Path::from_slice(&after)),
        };
        // The bound from before goes on to hold; on its edge it is the closer one.
        if let Some(bound) = bound
            && (self.bound.as_ref()).is_none_or(|old| if self.reverse { bound < *old } else { bound > *old })
        {
            self.bound = Some(bound);
        }
        self.begin();
    }

    /// The next entry; or something else, if the walk has only come nearer to it.
    #[inline]
    fn next(&mut self) -> Result<Option<Kind<'g>>, Contended> {
        let Some(frame) = self.frames.last_mut() else { return Ok(None) };
        self.path.truncate(frame.depth);
        let is_done = frame.next == if self.reverse { 0 } else { 256 };
        let child = match self.reverse {
            _ if is_done => None,
            false => frame.node.child_from(frame.next),
            true => frame.node.child_before(frame.next),
        };
        // What is done stays done, whatever has changed.
        if !is_done {
            frame.node.header().validate(frame.version)?;
        }
        let Some((byte, child)) = child else {
            self.frames.pop();
            self.edge = false;
            return Ok(Some(Kind::Nothing));
        };
        // On the edge, only the child that the bound leads to is on it, too.
        self.edge =
            self.edge && self.bound.as_ref().is_some_and(|bound| bound.get(frame.depth) == Some(&byte));
        self.path.push(byte);
        let (index, next) = (self.frames.len() - 1, usize::from(byte) + usize::from(!self.reverse));
        let entry = self.follow(child)?;
        self.frames[index].next = next;
        Ok(Some(entry))
    }

    /// Enters a node; gives anything else, if it is not beyond the bound.
    #[inline]
    fn follow(&mut self, child: Child) -> Result<Kind<'g>, Contended> {
        // SAFETY: just read under the guard.
        let kind = unsafe { child.kind::<'g>() };
        let within = match kind {
            Kind::Node(node) => {
                self.enter(node)?;
                return Ok(Kind::Nothing);
            }
            _ if !self.edge => true,
            Kind::Value(_) => self.is_within(&self.path),
            Kind::Leaf(leaf) => self.is_within(leaf.key()),
            Kind::Nothing => true,
        };
        self.edge = false;
        Ok(if within { kind } else { Kind::Nothing })
    }

    fn is_within(&self, key: &[u8]) -> bool {
        match &self.bound {
            None => true,
            Some(bound) if self.reverse => key < &bound[..],
            Some(bound) => key >= &bound[..],
        }
    }

    /// Enters a node, unless it lies wholly beyond the bound.
    fn enter(&mut self, node: Node<'g>) -> Result<(), Contended> {
        let version = node.header().version()?;
        let prefix = node.header().prefix();
        self.path.extend_from_slice(&prefix.to_bytes()[..prefix.len()]);
        let depth = self.path.len();
        let mut next = if self.reverse { 256 } else { 0 };
        if self.edge {
            let bound = self.bound.as_ref().expect("only a bound has an edge");
            if bound.len() > depth && bound[..depth] == self.path[..] {
                next = usize::from(bound[depth]) + usize::from(self.reverse);
            } else {
                self.edge = false;
                if !self.is_within(&self.path) {
                    return Ok(());
                }
            }
        }
        self.frames.push(Frame { node, version, depth, next });
        Ok(())
    }
}
