//! Arrow's IPC format, by the `arrow` crate: files, whose parts are record batches, and streams of messages.
//!
//! Lengths in the file are compared with its size before memory is allocated for them.

use super::columns::{Batches, ColumnFile, Place, damaged, guarded};
use super::file_error;
use arrow::array::RecordBatch;
use arrow::buffer::Buffer;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::ipc::convert::fb_to_schema;
use arrow::ipc::reader::{FileDecoder, StreamDecoder, read_footer_length};
use arrow::ipc::{Block, Message, MetadataVersion, root_as_footer, root_as_message};
use firn_base::Result;
use firn_base::sync::Arc;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// The length of the footer's length and the magic bytes at the end of a file.
const TRAILER_BYTES: usize = 10;

/// The marker that may precede the length of a message.
const CONTINUATION: [u8; 4] = [0xff; 4];

/// The largest ratio of any compression.
const MOST_UNPACKED: u64 = 1 << 16;

/// The most bytes of a buffer, decompressed.
const MOST_BUFFER_BYTES: u64 = 4 << 30;

/// The most bytes of the body of a message of a stream: all of them are kept until it is complete.
const MOST_MESSAGE_BYTES: usize = 2 << 30;

/// Bytes of a stream that are read at once.
const PIECE_BYTES: usize = 1 << 20;

fn wrong(message: &str) -> ArrowError {
    ArrowError::IpcError(message.to_owned())
}

/// A file in Arrow's file format.
pub(super) struct ArrowFile {
    place: Arc<Place>,
    schema: SchemaRef,
    version: MetadataVersion,
    dictionaries: Vec<Block>,
    batches: Vec<Block>,
}

impl ArrowFile {
    pub fn open(place: Place) -> Result<ArrowFile> {
        let path = &place.path;
        let failed = |error| file_error(path, &error);
        let file = place.open()?;
        let bytes = place.bytes();
        let mut trailer = [0; TRAILER_BYTES];
        let Some(end) = bytes.checked_sub(TRAILER_BYTES as u64) else {
            return Err(damaged(path, &"it is too short"));
        };
        file.read_exact_at(&mut trailer, end).map_err(failed)?;
        let length = guarded(path, || read_footer_length(trailer))?;
        let Some(start) = end.checked_sub(length as u64) else {
            return Err(damaged(path, &"its footer is longer than the file"));
        };
        let mut footer = vec![0; length];
        file.read_exact_at(&mut footer, start).map_err(failed)?;
        let (schema, version, dictionaries, batches) = guarded(path, || {
            let footer = root_as_footer(&footer).map_err(|error| wrong(&error.to_string()))?;
            let schema = footer.schema().ok_or_else(|| wrong("it has no schema"))?;
            if !schema.endianness().equals_to_target_endianness() {
                return Err(wrong("its numbers are big-endian"));
            }
            let dictionaries = footer.dictionaries().into_iter().flatten().copied().collect();
            let batches = footer.recordBatches().into_iter().flatten().copied().collect();
            Ok((Arc::new(fb_to_schema(schema)), footer.version(), dictionaries, batches))
        })?;
        Ok(ArrowFile { place: Arc::new(place), schema, version, dictionaries, batches })
    }
}

/// The bytes of a message of a file with its body.
fn read_block(place: &Place, mut file: &File, block: &Block) -> Result<Buffer> {
    let length = |length: i64| u64::try_from(length).ok();
    let all = || {
        let (meta, body) = (length(block.metaDataLength().into())?, length(block.bodyLength())?);
        let start = length(block.offset())?;
        let end = start.checked_add(meta)?.checked_add(body)?;
        (meta >= 8 && end <= place.bytes()).then_some((start, meta + body))
    };
    let Some((start, bytes)) = all() else {
        return Err(damaged(&place.path, &"a record batch reaches beyond its end"));
    };
    // Not initialised with zeros, which would be written first.
    let mut buffer = Vec::with_capacity(bytes as usize);
    let mut read = || {
        file.seek(SeekFrom::Start(start))?;
        match file.take(bytes).read_to_end(&mut buffer)? as u64 == bytes {
            true => Ok(()),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    };
    read().map_err(|error| file_error(&place.path, &error))?;
    let (meta, body) = buffer.split_at(block.metaDataLength() as usize);
    guarded(&place.path, || check_message(meta, body))?;
    Ok(Buffer::from_vec(buffer))
}

impl ColumnFile for ArrowFile {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn parts(&self) -> usize {
        self.batches.len()
    }

    fn read(&self, columns: &[usize], parts: &[usize], _: usize) -> Result<Box<dyn Batches>> {
        let file = self.place.open()?;
        let decoder = FileDecoder::new(self.schema.clone(), self.version);
        let mut decoder = decoder.with_projection(columns.to_vec());
        for block in &self.dictionaries {
            let buffer = read_block(&self.place, &file, block)?;
            guarded(&self.place.path, || decoder.read_dictionary(block, &buffer))?;
        }
        let blocks: Vec<Block> = parts.iter().map(|part| self.batches[*part]).collect();
        Ok(Box::new(FileBatches { place: self.place.clone(), file, decoder, blocks: blocks.into_iter() }))
    }
}

/// The batches of parts of a file, of some columns.
struct FileBatches {
    place: Arc<Place>,
    file: File,
    decoder: FileDecoder,
    blocks: std::vec::IntoIter<Block>,
}

impl Batches for FileBatches {
    fn next(&mut self) -> Result<Option<RecordBatch>> {
        for block in self.blocks.by_ref() {
            let buffer = read_block(&self.place, &self.file, &block)?;
            let read = || self.decoder.read_record_batch(&block, &buffer);
            if let Some(batch) = guarded(&self.place.path, read)? {
                return Ok(Some(batch));
            }
        }
        Ok(None)
    }
}

/// Compares the lengths that a message claims with its body.
fn check_message(meta: &[u8], body: &[u8]) -> std::result::Result<(), ArrowError> {
    let start = if meta.starts_with(&CONTINUATION) { 8 } else { 4 };
    let message = meta.get(start..).ok_or_else(|| wrong("a message is too short"))?;
    let message = root_as_message(message).map_err(|error| wrong(&error.to_string()))?;
    check_buffers(&message, body)
}

fn check_buffers(message: &Message<'_>, body: &[u8]) -> std::result::Result<(), ArrowError> {
    let dictionary = message.header_as_dictionary_batch().and_then(|dictionary| dictionary.data());
    let Some(batch) = message.header_as_record_batch().or(dictionary) else { return Ok(()) };
    if batch.length() < 0 {
        return Err(wrong("a record batch has a negative number of rows"));
    }
    for buffer in batch.buffers().into_iter().flatten() {
        let bytes = usize::try_from(buffer.offset()).ok().and_then(|offset| {
            let end = offset.checked_add(usize::try_from(buffer.length()).ok()?)?;
            body.get(offset..end)
        });
        let bytes = bytes.ok_or_else(|| wrong("a buffer reaches beyond its message"))?;
        if batch.compression().is_some()
            && let Some((unpacked, packed)) = bytes.split_first_chunk()
            && let Ok(unpacked) = u64::try_from(i64::from_le_bytes(*unpacked))
            && unpacked > MOST_BUFFER_BYTES.min((packed.len() as u64).saturating_mul(MOST_UNPACKED))
        {
            return Err(wrong("a buffer's uncompressed length is too large"));
        }
    }
    Ok(())
}

/// Takes the bytes of a stream in pieces cut anywhere, and yields its batches.
#[derive(Default)]
pub(crate) struct StreamReader {
    decoder: StreamDecoder,
    /// Bytes of messages that have not arrived as a whole.
    carry: Vec<u8>,
    batches: VecDeque<RecordBatch>,
    /// The schema of the first message. The decoder returns it only after another message, which a stream without rows lacks.
    schema: Option<SchemaRef>,
    has_ended: bool,
}

impl StreamReader {
    /// Takes the next bytes.
    pub fn push(&mut self, bytes: &[u8]) -> std::result::Result<(), ArrowError> {
        if self.has_ended {
            return Ok(());
        }
        self.carry.extend_from_slice(bytes);
        let mut taken = 0;
        while let Some(length) = first_message(&self.carry[taken..])? {
            let mut message = Buffer::from(&self.carry[taken..taken + length]);
            taken += length;
            if length <= 8 {
                self.has_ended = true;
                break;
            }
            if self.schema.is_none() {
                self.schema = schema_of(&message)?;
            }
            while !message.is_empty() {
                self.batches.extend(self.decoder.decode(&mut message)?);
            }
        }
        self.carry.drain(..taken);
        Ok(())
    }

    /// The columns, once they are known.
    pub fn schema(&self) -> Option<SchemaRef> {
        self.schema.clone()
    }

    /// The next batch.
    pub fn next_batch(&mut self) -> Option<RecordBatch> {
        self.batches.pop_front()
    }

    /// Marks the end of the bytes.
    pub fn finish(&self) -> std::result::Result<(), ArrowError> {
        match self.carry.is_empty() && self.schema().is_some() || self.has_ended {
            true => Ok(()),
            false => Err(wrong("it ends in the middle of a message")),
        }
    }
}

/// The schema in a whole message, if it has one.
fn schema_of(message: &[u8]) -> std::result::Result<Option<SchemaRef>, ArrowError> {
    let start = if message.starts_with(&CONTINUATION) { 8 } else { 4 };
    let message = root_as_message(&message[start..]).map_err(|error| wrong(&error.to_string()))?;
    Ok(message.header_as_schema().map(|schema| Arc::new(fb_to_schema(schema))))
}

/// The length of the first message, with its body, if it has arrived as a whole; 8 or fewer for the end of a stream.
fn first_message(bytes: &[u8]) -> std::result::Result<Option<usize>, ArrowError> {
    let start = if bytes.starts_with(&CONTINUATION) { 8 } else { 4 };
    let Some(length) = bytes.get(start - 4..start) else { return Ok(None) };
    let length = i32::from_le_bytes(length.try_into().expect("four bytes"));
    if length == 0 {
        return Ok(Some(start));
    }
    let end = usize::try_from(length).map_err(|_| wrong("a message has a negative length"))? + start;
    let Some(message) = bytes.get(start..end) else { return Ok(None) };
    let message = root_as_message(message).map_err(|error| wrong(&error.to_string()))?;
    let body = usize::try_from(message.bodyLength()).map_err(|_| wrong("a body has a negative length"))?;
    if body > MOST_MESSAGE_BYTES {
        return Err(wrong("a message is longer than 2 GiB"));
    }
    let all = end + body;
    let Some(body) = bytes.get(end..all) else { return Ok(None) };
    check_buffers(&message, body)?;
    Ok(Some(all))
}

/// A file that contains a stream. It is read from its beginning by one thread.
pub(super) struct ArrowStream {
    place: Place,
    schema: SchemaRef,
}

impl ArrowStream {
    pub fn open(place: Place) -> Result<ArrowStream> {
        let mut pieces = Pieces::open(&place)?;
        let schema = loop {
            if let Some(schema) = pieces.reader.schema() {
                break schema;
            }
            if !pieces.advance()? {
                return Err(damaged(&place.path, &"it has no schema"));
            }
        };
        Ok(ArrowStream { place, schema })
    }
}

impl ColumnFile for ArrowStream {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn parts(&self) -> usize {
        1
    }

    fn read(&self, columns: &[usize], _: &[usize], _: usize) -> Result<Box<dyn Batches>> {
        Ok(Box::new(StreamBatches { pieces: Pieces::open(&self.place)?, columns: columns.to_vec() }))
    }
}

/// The batches of a stream, of some columns.
struct StreamBatches {
    pieces: Pieces,
    columns: Vec<usize>,
}

impl Batches for StreamBatches {
    fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(batch) = self.pieces.reader.next_batch() {
                return guarded(&self.pieces.path, || batch.project(&self.columns)).map(Some);
            }
            if !self.pieces.advance()? {
                return Ok(None);
            }
        }
    }
}

/// A stream that is read from a file.
struct Pieces {
    path: PathBuf,
    file: File,
    reader: StreamReader,
    piece: Vec<u8>,
}

impl Pieces {
    fn open(place: &Place) -> Result<Pieces> {
        let file = place.open()?;
        let path = place.path.clone();
        Ok(Pieces { path, file, reader: StreamReader::default(), piece: vec![0; PIECE_BYTES] })
    }

    /// Reads the next bytes. Returns whether there were more.
    fn advance(&mut self) -> Result<bool> {
        let length = loop {
            match self.file.read(&mut self.piece) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read.map_err(|error| file_error(&self.path, &error))?,
            }
        };
        let (reader, piece) = (&mut self.reader, &self.piece[..length]);
        guarded(&self.path, || if length == 0 { reader.finish() } else { reader.push(piece) })?;
        Ok(length > 0)
    }
}
