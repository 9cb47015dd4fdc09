//! Reading files of any format: the reader that the options require.

use crate::binary::BinaryReader;
use crate::chunk::{Chunk, Cutter, Extent};
use crate::columns::ColumnBuilder;
use crate::encoding::{Decoded, Encoding};
use crate::feed::{Feed, InOrder, Way};
use crate::json::JsonReader;
use crate::kind::{Kind, kinds};
use crate::options::{CopyOptions, RowFormat};
use crate::parallel::{self, Named, Waits};
use crate::records::{Batch, RecordReader, Scratch, Sieve};
use firn_base::{Error, Result, TextStyle, Type};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read};
use std::ops::ControlFlow;

/// Rows in a batch of a binary file; of others a batch is some half a megabyte of the file.
pub const BATCH_ROWS: usize = 8_192;

/// Bytes of a binary file that are read at once.
const PIECE_BYTES: usize = 256 << 10;

/// A push parser: bytes in, batches of columns out.
pub struct CopyReader {
    reader: Reader,
    encoding: Encoding,
    /// The last bytes, as UTF-8.
    text: Vec<u8>,
}

enum Reader {
    Chunks(Box<Chunks>),
    Binary(Box<BinaryReader>),
}

/// The columns and the name of what is read.
pub(crate) struct Target {
    /// The name in errors, of the source and the target.
    pub(crate) place: String,
    pub(crate) columns: Vec<(String, Kind)>,
}

impl Target {
    /// An empty column for each.
    pub(crate) fn builders(&self, style: TextStyle) -> Vec<ColumnBuilder> {
        self.columns.iter().map(|(_, kind)| ColumnBuilder::new(*kind, style)).collect()
    }
}

impl CopyReader {
    /// A reader of rows for columns; `place` is the name of the file in errors.
    pub fn new<T: Into<Type>>(
        place: &str,
        columns: Vec<(String, T)>,
        options: CopyOptions,
        style: TextStyle,
    ) -> Result<CopyReader> {
        options.check()?;
        let target = Target { place: place.to_owned(), columns: kinds(columns) };
        let encoding = options.encoding;
        let reader = match options.format {
            RowFormat::Text | RowFormat::Csv => Reader::Chunks(Box::new(Chunks::new(ChunkReader::Records(
                RecordReader::new(target, options, style),
            )))),
            RowFormat::Json => Reader::Chunks(Box::new(Chunks::new(ChunkReader::Json(JsonReader::new(
                target,
                &options,
                TextStyle::in_zone(style.zone),
            ))))),
            RowFormat::Binary => Reader::Binary(Box::new(BinaryReader::new(target, style))),
        };
        Ok(CopyReader { reader, encoding, text: Vec::new() })
    }

    /// Reads only some columns, by position, unless the format is binary; batches have them in that order. Fields of the others
    /// are not parsed.
    pub fn project(&mut self, columns: Vec<usize>) {
        if let Reader::Chunks(chunks) = &mut self.reader {
            chunks.reader.project(columns);
        }
    }

    /// For text and CSV files, reads the columns after those of the sieve, which come first, only of rows that it keeps. Other files
    /// are read completely.
    pub fn set_sieve(&mut self, sieve: Sieve) {
        if let Reader::Chunks(chunks) = &mut self.reader
            && let ChunkReader::Records(reader) = &mut chunks.reader
        {
            reader.set_sieve(sieve);
        }
    }

    /// Sets the approximate length of the chunks of files that are not binary, half a megabyte by default. Before
    /// anything is read.
    pub fn set_chunk_bytes(&mut self, bytes: usize) {
        if let Reader::Chunks(chunks) = &mut self.reader {
            chunks.reader.set_chunk_bytes(bytes);
            chunks.cutter = chunks.reader.cutter();
        }
    }

    /// For a file that is read whole and may be silent: what happens meanwhile. The caller itself reads binary files, and does so itself.
    pub fn set_waits(&mut self, waits: Waits) {
        if let Reader::Chunks(chunks) = &mut self.reader {
            chunks.waits = Some(waits);
        }
    }

    /// Reads a file to its end on up to `threads` threads beside this one, and passes its batches to `sink`, in their order.
    /// `failed` makes the error of a failed read. This replaces `push`, `next_batch` and `finish`.
    pub fn read_file(
        self,
        feed: Feed<'_>,
        failed: &(dyn Fn(&std::io::Error) -> Error + Sync),
        threads: usize,
        sink: &mut dyn FnMut(Batch) -> Result<()>,
    ) -> Result<()> {
        let mut binary = match self.reader {
            Reader::Chunks(_) => return self.read_chunks(feed, failed, threads, &|_, batch| batch, sink),
            Reader::Binary(reader) => reader,
        };
        let mut in_order;
        let file: &mut dyn Read = match feed {
            Feed::Whole(file) => file,
            Feed::Stretch { file, stretch, watch } => {
                in_order = InOrder { file, rest: stretch, watch };
                &mut in_order
            }
            Feed::Extents { .. } => panic!("binary files have no chunks"),
        };
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let length = match file.read(&mut piece) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                read => read.map_err(|error| failed(&error))?,
            };
            match length {
                0 => binary.finish()?,
                _ => binary.push(&piece[..length])?,
            }
            while let Some(batch) = binary.next_batch() {
                sink(batch)?;
            }
            if length == 0 {
                return Ok(());
            }
        }
    }

    /// Reads the chunks of a file that is not binary as [`CopyReader::read_file`] does. `digest` makes the argument of `sink` from each
    /// batch, on the thread that has read it.
    pub fn read_chunks<T: Send>(
        self,
        feed: Feed<'_>,
        failed: &(dyn Fn(&std::io::Error) -> Error + Sync),
        threads: usize,
        digest: &(dyn Fn(Extent, Batch) -> T + Sync),
        sink: &mut dyn FnMut(T) -> Result<()>,
    ) -> Result<()> {
        let Reader::Chunks(chunks) = self.reader else { panic!("binary files have no chunks") };
        let (mut in_order, mut decoded);
        let feed = match feed {
            Feed::Whole(file) if self.encoding != Encoding::Utf8 => {
                decoded = Decoded::new(file, self.encoding);
                Feed::Whole(&mut decoded)
            }
            Feed::Stretch { file, stretch, watch } if self.encoding != Encoding::Utf8 => {
                in_order = InOrder { file, rest: stretch, watch };
                decoded = Decoded::new(&mut in_order, self.encoding);
                Feed::Whole(&mut decoded)
            }
            Feed::Extents { .. } if self.encoding != Encoding::Utf8 => {
                panic!("places in a file are not those in its text")
            }
            Feed::Whole(file) => Feed::Whole(file),
            Feed::Stretch { file, stretch, watch } => Feed::Stretch { file, stretch, watch },
            Feed::Extents { file, begin, extents } => Feed::Extents { file, begin, extents },
        };
        let Chunks { reader, waits, .. } = *chunks;
        let work = |chunk: Chunk, scratch: &mut Scratch| {
            let extent = chunk.extent;
            let batch = reader.read(chunk, scratch)?;
            let flow = if batch.ended { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
            Ok((digest(extent, batch), flow))
        };
        let mut sink = |(digested, flow)| sink(digested).map(|()| flow);
        let way = Way::of(feed, reader.cutter());
        let named = Named { place: reader.place(), failed };
        parallel::read(way, named, &work, threads.max(1), waits.as_ref(), &mut sink)
    }

    /// Takes the next piece of the file. After an error the reader cannot be used any more.
    pub fn push(&mut self, bytes: &[u8]) -> Result<()> {
        match &mut self.reader {
            Reader::Chunks(reader) if self.encoding != Encoding::Utf8 => {
                self.text.clear();
                self.encoding.decode(bytes, &mut self.text);
                reader.push(&self.text)
            }
            Reader::Chunks(reader) => reader.push(bytes),
            Reader::Binary(reader) => reader.push(bytes),
        }
    }

    /// The next batch, which may have no rows.
    pub fn next_batch(&mut self) -> Option<Batch> {
        match &mut self.reader {
            Reader::Chunks(reader) => reader.next_batch(),
            Reader::Binary(reader) => reader.next_batch(),
        }
    }

    /// Marks the end of the file. Afterwards [`CopyReader::next_batch`] also yields the last rows.
    pub fn finish(&mut self) -> Result<()> {
        match &mut self.reader {
            Reader::Chunks(reader) => reader.finish(),
            Reader::Binary(reader) => reader.finish(),
        }
    }
}

/// Reads chunks of whole records, on several threads at once if requested.
pub(crate) enum ChunkReader {
    /// Text and CSV.
    Records(RecordReader),
    Json(JsonReader),
}

impl ChunkReader {
    /// Reads these columns only.
    fn project(&mut self, columns: Vec<usize>) {
        match self {
            ChunkReader::Records(reader) => reader.project(columns),
            ChunkReader::Json(reader) => reader.project(columns),
        }
    }

    /// The approximate length of a chunk, except of the last.
    fn chunk_bytes(&self) -> usize {
        match self {
            ChunkReader::Records(reader) => reader.chunk_bytes(),
            ChunkReader::Json(reader) => reader.chunk_bytes(),
        }
    }

    /// Sets the length of chunks.
    fn set_chunk_bytes(&mut self, bytes: usize) {
        match self {
            ChunkReader::Records(reader) => reader.set_chunk_bytes(bytes),
            ChunkReader::Json(reader) => reader.set_chunk_bytes(bytes),
        }
    }

    /// The cutter of its files.
    pub fn cutter(&self) -> Cutter {
        match self {
            ChunkReader::Records(reader) => reader.cutter(),
            ChunkReader::Json(reader) => reader.cutter(),
        }
    }

    /// The name of the source in errors.
    pub fn place(&self) -> &str {
        match self {
            ChunkReader::Records(reader) => reader.place(),
            ChunkReader::Json(reader) => reader.place(),
        }
    }

    /// Reads a chunk. Of several errors the first row's is returned; or all rows with errors are left out.
    pub fn read(&self, chunk: Chunk, scratch: &mut Scratch) -> Result<Batch> {
        match self {
            ChunkReader::Records(reader) => reader.read(chunk, scratch),
            ChunkReader::Json(reader) => reader.read(&chunk),
        }
    }
}

/// One chunk after another.
struct Chunks {
    reader: ChunkReader,
    cutter: Cutter,
    scratch: Scratch,
    batches: VecDeque<Batch>,
    /// `\.` was read: the rest is ignored.
    ended: bool,
    waits: Option<Waits>,
}

impl Chunks {
    fn new(reader: ChunkReader) -> Chunks {
        Chunks {
            cutter: reader.cutter(),
            reader,
            scratch: Scratch::default(),
            batches: VecDeque::new(),
            ended: false,
            waits: None,
        }
    }

    fn push(&mut self, bytes: &[u8]) -> Result<()> {
        if self.ended {
            return Ok(());
        }
        // However many bytes arrive at once.
        for piece in bytes.chunks(self.reader.chunk_bytes()) {
            self.cutter.push(piece);
            while let Some(chunk) =
                self.cutter.next().map_err(|uncut| uncut.into_error(self.reader.place()))?
            {
                self.read(chunk)?;
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        while !self.ended
            && let Some(chunk) = self.cutter.last().map_err(|uncut| uncut.into_error(self.reader.place()))?
        {
            self.read(chunk)?;
        }
        Ok(())
    }

    fn read(&mut self, chunk: Chunk) -> Result<()> {
        if self.ended {
            return Ok(());
        }
        let batch = self.reader.read(chunk, &mut self.scratch)?;
        self.ended = batch.ended;
        self.batches.push_back(batch);
        Ok(())
    }

    fn next_batch(&mut self) -> Option<Batch> {
        self.batches.pop_front()
    }
}
