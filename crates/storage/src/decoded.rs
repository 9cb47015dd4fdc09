//! Strings decoded for readers of single rows. They remain at least as long as the reader's guard.
//!
//! Each thread has a chunk to which it appends them. A full chunk is freed once every guard of that time is
//! released, so no string in it is freed earlier than its reader's guard. Epochs collect a bounded number of
//! objects at a time, so chunks are deferred and not strings, and each time some garbage is collected as
//! well.

use firn_base::Cell;
use std::cell::RefCell;

/// Strings of more than a quarter of this are deferred by themselves.
const CHUNK_BYTES: usize = 64 << 10;
const ALONE_BYTES: usize = CHUNK_BYTES / 4;

/// The chunk of a thread. Its memory does not move: it is never filled beyond its capacity.
#[derive(Default)]
struct Chunk(Vec<u8>);

thread_local! {
    static CHUNK: RefCell<Chunk> = RefCell::default();
}

impl Drop for Chunk {
    fn drop(&mut self) {
        // The thread ends, unless the chunk has been taken out.
        hand_over(std::mem::take(&mut self.0));
    }
}

/// Drops bytes once every guard that is held now is released.
fn hand_over(bytes: Vec<u8>) {
    if bytes.capacity() > 0 {
        let guard = crate::pin();
        guard.defer(move || drop(bytes));
        guard.flush();
    }
}

/// Keeps a string and returns it.
///
/// # Safety
/// The caller holds a guard for as long as it uses the returned string.
pub(crate) unsafe fn keep<'g>(decoded: Vec<u8>) -> &'g [u8] {
    if decoded.len() > ALONE_BYTES {
        // SAFETY: the bytes do not move with the vector, and nothing changes it. It is dropped once every
        // guard of now is released.
        let kept = unsafe { std::slice::from_raw_parts(decoded.as_ptr(), decoded.len()) };
        hand_over(decoded);
        return kept;
    }
    let (kept, full) = CHUNK.with_borrow_mut(|Chunk(chunk)| {
        let has_room = chunk.capacity() - chunk.len() >= decoded.len();
        let full = (!has_room).then(|| std::mem::replace(chunk, Vec::with_capacity(CHUNK_BYTES)));
        let start = chunk.len();
        chunk.extend_from_slice(&decoded);
        // SAFETY: these bytes were just written. They do not move and do not change. They are dropped once
        // every guard is released that is held when the chunk is full, which is later.
        let kept = unsafe { std::slice::from_raw_parts(chunk.as_ptr().add(start), decoded.len()) };
        (kept, full)
    });
    // The collection may run any code, so the chunk is not borrowed any more.
    full.into_iter().for_each(hand_over);
    kept
}

/// Buffers for the decoded strings of one row, by column, for as long as the row is used.
#[derive(Default)]
pub(crate) struct Scratch(Vec<Vec<u8>>);

impl Scratch {
    /// Calls `work` with a function that decodes the row's cells: `cell`, with the buffer that keeps the
    /// column's string.
    pub fn row<'s, C>(
        &'s mut self,
        columns: usize,
        mut cell: impl FnMut(C, &mut dyn FnMut(Vec<u8>) -> &'s [u8]) -> Cell<'s>,
    ) -> impl FnMut(C) -> Cell<'s> {
        self.0.resize_with(columns, Vec::new);
        let mut places = self.0.iter_mut();
        move |column| {
            cell(column, &mut |decoded| {
                let place = places.next().expect("every column has a buffer");
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
            // Other guards come and go, and collect garbage.
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
