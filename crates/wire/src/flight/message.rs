//! Messages with rows, as they are sent: large buffers of a batch are sent in place, small ones together.
//!
//! gRPC's usual way copies a batch twice, into the message and from there into the frames of HTTP, and the socket
//! copies it again. A message here is a list of pieces: the bytes before the data together with the small buffers, which
//! are copied, and each of the batch's large buffers, which pin the blocks that they are parts of. HTTP sends them in place,
//! many at once.

use std::collections::VecDeque;
use std::io::IoSlice;

use arrow_buffer::Buffer;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use firn_base::{Error, Result, SqlState};
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};

/// FlightData's fields.
const DATA_HEADER: u32 = 2;
const DATA_BODY: u32 = 1000;

/// The prefix of a gRPC message: whether it is compressed, and its length.
const PREFIX_BYTES: usize = 5;

/// A shorter buffer is copied together with others: a system call takes a few tens of pieces.
const SMALL_BYTES: usize = 8 << 10;
/// Copied buffers are collected up to this size.
const PIECE_BYTES: usize = 64 << 10;

/// The most bytes of a message that are passed on at once, unless a piece has more: HTTP/2 takes less than 2 GiB.
const CHUNK_BYTES: usize = if cfg!(test) { 1 << 20 } else { 64 << 20 };

/// A message, or a part of one, in pieces.
#[derive(Default)]
pub(super) struct Message {
    pieces: VecDeque<Bytes>,
    /// The number of their bytes.
    left: usize,
}

impl Message {
    /// A message of FlightData with a header and the parts of a body.
    ///
    /// Errors: 54000 if it is longer than gRPC's length field allows, 4 GiB.
    pub fn new(header: &[u8], body: Vec<Buffer>) -> Result<Message> {
        let header_bytes = header.len() as u64;
        let body_bytes = body.iter().map(Buffer::len).sum::<usize>() as u64;
        let mut all = field_bytes(DATA_HEADER, header_bytes);
        if body_bytes > 0 {
            all += field_bytes(DATA_BODY, body_bytes);
        }
        let mut pieces = Pieces::default();
        pieces.small.put_u8(0);
        pieces.small.put_u32(u32::try_from(all).map_err(|_| too_long())?);
        pieces.field(DATA_HEADER, header_bytes);
        pieces.small.put_slice(header);
        if body_bytes > 0 {
            pieces.field(DATA_BODY, body_bytes);
            let mut left = body_bytes as usize;
            for buffer in body {
                let length = buffer.len();
                pieces.buffer(buffer, left);
                left -= length;
            }
        }
        pieces.end_small();
        let left = pieces.done.iter().map(Bytes::len).sum();
        debug_assert_eq!(left as u64, all + PREFIX_BYTES as u64);
        Ok(Message { pieces: pieces.done, left })
    }

    /// Takes off the next part that may be passed on at once; none if all have been.
    pub fn next_chunk(&mut self) -> Option<Message> {
        let mut chunk = Message::default();
        while let Some(piece) = self.pieces.front()
            && (chunk.left == 0 || chunk.left + piece.len() <= CHUNK_BYTES)
        {
            chunk.left += piece.len();
            chunk.pieces.extend(self.pieces.pop_front());
        }
        self.left -= chunk.left;
        (chunk.left > 0).then_some(chunk)
    }
}

impl From<Bytes> for Message {
    /// A part of another reply of gRPC.
    fn from(bytes: Bytes) -> Message {
        Message { left: bytes.len(), pieces: VecDeque::from([bytes]) }
    }
}

impl Buf for Message {
    fn remaining(&self) -> usize {
        self.left
    }

    fn chunk(&self) -> &[u8] {
        self.pieces.front().map_or(&[], |piece| piece)
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let filled = self.pieces.iter().zip(slices);
        filled.map(|(piece, slice)| *slice = IoSlice::new(piece)).count()
    }

    fn advance(&mut self, mut bytes: usize) {
        assert!(bytes <= self.left, "{bytes} of {} bytes", self.left);
        self.left -= bytes;
        while let Some(piece) = self.pieces.front_mut() {
            if bytes < piece.len() {
                return piece.advance(bytes);
            }
            bytes -= piece.len();
            self.pieces.pop_front();
        }
    }
}

#[cold]
fn too_long() -> Error {
    Error::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "a row is too long for a message of gRPC, 4 GiB")
        .with_hint("Fetch its columns one by one.")
}

/// The bytes of a field with its key and its length.
fn field_bytes(number: u32, length: u64) -> u64 {
    (key_len(number) + encoded_len_varint(length)) as u64 + length
}

#[derive(Default)]
struct Pieces {
    done: VecDeque<Bytes>,
    /// The beginning of the next piece.
    small: BytesMut,
}

impl Pieces {
    fn field(&mut self, number: u32, length: u64) {
        encode_key(number, WireType::LengthDelimited, &mut self.small);
        encode_varint(length, &mut self.small);
    }

    /// Appends a buffer of the body, of which `left` bytes remain.
    fn buffer(&mut self, buffer: Buffer, left: usize) {
        if buffer.len() < SMALL_BYTES {
            if self.small.len() + buffer.len() > PIECE_BYTES {
                self.end_small();
            }
            if self.small.capacity() - self.small.len() < buffer.len() {
                self.small.reserve(left.min(PIECE_BYTES));
            }
            return self.small.put_slice(&buffer);
        }
        self.end_small();
        self.done.push_back(Bytes::from_owner(Lent(buffer)));
    }

    fn end_small(&mut self) {
        if !self.small.is_empty() {
            self.done.push_back(self.small.split().freeze());
        }
    }
}

/// A buffer that is sent in place.
struct Lent(Buffer);

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_flight::FlightData;
    use prost::Message as _;

    impl Message {
        fn bytes(self) -> Vec<u8> {
            self.pieces.into_iter().flatten().collect()
        }

        /// As its client receives it.
        pub fn read(self) -> FlightData {
            FlightData::decode(&self.bytes()[PREFIX_BYTES..]).unwrap()
        }
    }

    #[test]
    fn a_message_is_flight_data_of_grpc() {
        let large = Buffer::from_vec(vec![7_u8; 2 * SMALL_BYTES]);
        for body in [
            vec![],
            vec![Buffer::from(&[1_u8, 2][..]), large.clone(), Buffer::from(&[3_u8][..]), large.clone()],
            (1..40).map(|at| Buffer::from_vec(vec![at as u8; at * PIECE_BYTES / 50])).collect(),
        ] {
            let bytes = Message::new(b"header", body.clone()).unwrap().bytes();
            let (prefix, message) = bytes.split_at(PREFIX_BYTES);
            assert_eq!(prefix[0], 0);
            assert_eq!(u32::from_be_bytes(prefix[1..].try_into().unwrap()) as usize, message.len());
            let read = FlightData::decode(message).unwrap();
            let data_body = body.iter().flat_map(|buffer| buffer.iter().copied()).collect::<Vec<u8>>();
            let expected = FlightData {
                data_header: "header".into(),
                data_body: data_body.into(),
                ..Default::default()
            };
            assert_eq!(read, expected);
            assert_eq!(message, expected.encode_to_vec());
        }
    }

    #[test]
    fn large_buffers_are_not_copied() {
        let large = Buffer::from_vec(vec![7_u8; SMALL_BYTES]);
        let address = large.as_ptr();
        let message = Message::new(b"header", vec![large]).unwrap();
        assert_eq!(message.pieces[1].as_ptr(), address);
    }

    #[test]
    fn a_message_is_given_away_in_chunks() {
        let body: Vec<Buffer> =
            [1, CHUNK_BYTES, 5, CHUNK_BYTES / 2, CHUNK_BYTES / 3, 2 * CHUNK_BYTES, SMALL_BYTES]
                .map(|bytes| Buffer::from_vec(vec![7_u8; bytes]))
                .into();
        let whole = Message::new(b"header", body.clone()).unwrap().bytes();
        let mut message = Message::new(b"header", body).unwrap();
        let chunks: Vec<Message> = std::iter::from_fn(|| message.next_chunk()).collect();
        assert!(!message.has_remaining() && chunks.len() == 5);
        assert!(chunks.iter().all(|chunk| chunk.pieces.len() == 1 || chunk.remaining() <= CHUNK_BYTES));
        assert!(chunks.into_iter().flat_map(Message::bytes).eq(whole));
    }

    #[test]
    fn a_message_is_taken_in_steps_of_any_length() {
        let buffer = |at: u8| Buffer::from_vec(vec![at; SMALL_BYTES * usize::from(at % 3) + 3]);
        let body: Vec<Buffer> = (0..9).map(buffer).collect();
        let whole = Message::new(b"header", body.clone()).unwrap().bytes();
        for step in [1, 7, SMALL_BYTES, SMALL_BYTES + 3, 2 * SMALL_BYTES + 11, whole.len()] {
            let mut message = Message::new(b"header", body.clone()).unwrap();
            let mut taken = Vec::new();
            while message.has_remaining() {
                assert_eq!(message.remaining(), whole.len() - taken.len());
                let mut slices = [IoSlice::new(&[]); 3];
                let count = message.chunks_vectored(&mut slices);
                assert_eq!(&*slices[0], message.chunk());
                let there: Vec<u8> = slices[..count].iter().flat_map(|slice| slice.iter().copied()).collect();
                let step = step.min(there.len());
                taken.extend_from_slice(&there[..step]);
                message.advance(step);
            }
            assert_eq!(taken, whole);
        }
    }
}
