//! Strings that were decoded for who reads single rows: they stay at least as long as his guard.
//!
//! Each thread has a chunk that it puts them in, one behind the other. A full one is let go of once every guard of that
//! time has gone, which no string in it outlives. Epochs collect a bounded number of things at a time, so chunks are
//! handed over, not strings, and each time something is collected as well.

use firn_base::Cell;
use std::cell::RefCell;

/// Strings of more bytes than a quarter of this are handed over by themselves.
const CHUNK_BYTES: usize = 64 << 10;
const ALONE_BYTES: usize = CHUNK_BYTES / 4;

/// The chunk of a thread. Its memory does not move: it is never filled beyond what it was made with.
#[derive(Default)]
struct Chunk(Vec<u8>);

thread_local! {
    static CHUNK: RefCell<Chunk> = RefCell::default();
}

impl Drop for Chunk {
    fn drop(&mut self) {
        // The thread ends, if the chunk has not been taken out.
        hand_over(std::mem::take(&mut self.0));
    }
}

/// Drops bytes once every guard of now has gone.
fn hand_over(bytes: Vec<u8>) {
    if bytes.capacity() > 0 {
        let guard = crate::pin();
        guard.defer(move || drop(bytes));
        guard.flush();
    }
}

/// Keeps a string, and says where.
///
/// # Safety
/// The caller holds a guard, longer than what is returned is looked at.
pub(crate) unsafe fn keep<'g>(decoded: Vec<u8>) -> &'g [u8] {
    if decoded.len() > ALONE_BYTES {
        // SAFETY: the bytes do not move with the vector, which nobody changes. It is dropped once every guard of now has gone.
        let kept = unsafe { std::slice::from_raw_parts(decoded.as_ptr(), decoded.len()) };
        hand_over(decoded);
        return kept;
    }
    let (kept, full) = CHUNK.with_borrow_mut(|Chunk(chunk)| {
        let has_room = chunk.capacity() - chunk.len() >= decoded.len();
        let full = (!has_room).then(|| std::mem::replace(chunk, Vec::with_capacity(CHUNK_BYTES)));
        let start = chunk.len();
        chunk.extend_from_slice(&decoded);
        // SAFETY: so many bytes were just put there. They do not move, nobody changes them, and they are dropped once every
        // guard has gone of the time when the chunk is full, which is later.
        let kept = unsafe { std::slice::from_raw_parts(chunk.as_ptr().add(start), decoded.len()) };
        (kept, full)
    });
    // What is collected meanwhile may be anything, so the chunk is not borrowed any more.
    full.into_iter().for_each(hand_over);
    kept
}

/// Where the strings of the columns of one row are decoded to, as long as it is looked at.
#[derive(Default)]
pub(crate) struct Scratch(Vec<Vec<u8>>);

impl Scratch {
    /// Calls `work` with what decodes a row's cells: `cell`, and for each column what keeps its string here.
    pub fn row<'s, C>(
        &'s mut self,
        columns: usize,
        mut cell: impl FnMut(C, &mut dyn FnMut(Vec<u8>) -> &'s [u8]) -> Cell<'s>,
    ) -> impl FnMut(C) -> Cell<'s> {
        self.0.resize_with(columns, Vec::new);
        let mut places = self.0.iter_mut();
        move |column| {
            cell(column, &mut |decoded| {
                let place = places.next().expect("one for every column");
                *place = decoded;
                place
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pin;

    #[test]
    fn strings_stay_as_long_as_the_guard() {
        let guard = pin();
        let string = |number: usize| {
            vec![number as u8; if number.is_multiple_of(50) { ALONE_BYTES + 1 } else { number }]
        };
        // SAFETY: the guard is held to the end.
        let kept: Vec<&[u8]> = (0..400).map(|number| unsafe { keep(string(number)) }).collect();
        for (number, kept) in kept.iter().enumerate() {
            // Others come and go, and collect what they can.
            pin().flush();
            assert_eq!(*kept, string(number));
        }
        drop(guard);
    }

    #[test]
    fn a_chunk_of_a_thread_that_ends_is_handed_over() {
        let thread = std::thread::spawn(|| {
            let guard = pin();
            // SAFETY: the guard is held until then.
            let kept = unsafe { keep(b"a string".to_vec()) };
            assert_eq!(kept, b"a string");
            drop(guard);
        });
        thread.join().unwrap();
    }
}
