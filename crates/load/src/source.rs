//! The bytes of a file, decompressed if it is compressed.

use firn_base::pipe::Pipe;
use flate2::bufread::GzDecoder;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};

/// A source of the bytes of a file.
pub type Source = Box<dyn Read + Send>;

/// U+FEFF, which some programs put before UTF-8.
pub const MARK: &[u8] = b"\xef\xbb\xbf";

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// The bytes after the first byte, one of sixteen, of a frame that zstd skips. pzstd begins its files with one.
const ZSTD_SKIPPABLE: [u8; 3] = [0x2a, 0x4d, 0x18];

/// The decompressed bytes of a file that [`pipe::open`](firn_base::pipe::open) has opened, from its beginning. Its first bytes
/// show whether it is compressed by gzip or zstd; a file of several compressed ones is decompressed as a whole. `watch` is called
/// with the number of compressed bytes after each read. A read that waits for a pipe calls `stops` to find out whether it
/// should stop waiting; if so, it fails. While a pipe is silent, reads fail with [`io::ErrorKind::WouldBlock`] from time to
/// time, and can be repeated.
pub fn watched(
    mut file: File,
    watch: impl Fn(u64) + Send + 'static,
    stops: impl Fn() -> bool + Send + 'static,
) -> io::Result<Source> {
    if !file.metadata()?.is_file() {
        // A pipe cannot be read twice.
        return Ok(Box::new(Watched { file: Pipe::new(file, stops).telling_silence(), watch }));
    }
    let packing = packing(&mut file)?;
    let file = Watched { file, watch };
    Ok(match packing {
        Some(Packing::Gzip) => Box::new(Members::of(file)),
        Some(Packing::Zstd) => Box::new(zstd::Decoder::new(file)?),
        None => Box::new(file),
    })
}

/// Whether reading failed because of the content of the file: it cannot be decompressed, as when it is cut off. An error of the system has a number.
pub fn is_damage(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidData, InvalidInput, Other, UnexpectedEof};
    error.raw_os_error().is_none()
        && matches!(error.kind(), InvalidData | InvalidInput | Other | UnexpectedEof)
}

/// The length of a file that can be read at any offset. `None` for one that is compressed, is a pipe, or seems empty, like
/// files that the system generates when they are read. It is at its beginning.
pub fn plain_bytes(file: &mut File) -> io::Result<Option<u64>> {
    let metadata = file.metadata()?;
    let is_plain = metadata.is_file() && metadata.len() > 0 && packing(file)?.is_none();
    Ok(is_plain.then_some(metadata.len()))
}

/// The compression of a file, if any. It is at its beginning again.
pub fn packing(file: &mut File) -> io::Result<Option<Packing>> {
    let mut first = Vec::with_capacity(ZSTD.len());
    file.take(ZSTD.len() as u64).read_to_end(&mut first)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(if first.starts_with(&GZIP) {
        Some(Packing::Gzip)
    } else if first == ZSTD || matches!(first[..], [0x50..=0x5f, ref rest @ ..] if *rest == ZSTD_SKIPPABLE) {
        Some(Packing::Zstd)
    } else {
        None
    })
}

/// The members of a gzip file, one after another. Zeros after the last, which fill up blocks of tapes, are skipped as gzip does.
struct Members<R> {
    /// The current member; `None` after the last.
    member: Option<GzDecoder<BufReader<R>>>,
}

impl<R: Read> Members<R> {
    fn of(file: R) -> Members<R> {
        Members { member: Some(GzDecoder::new(BufReader::new(file))) }
    }
}

impl<R: Read> Read for Members<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let Some(member) = &mut self.member else { return Ok(0) };
            let read = member.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            let has_more = passes_over_zeros(member.get_mut())?;
            let member = self.member.take().filter(|_| has_more);
            self.member = member.map(|member| GzDecoder::new(member.into_inner()));
        }
    }
}

/// Skips zeros. Returns whether anything follows them.
fn passes_over_zeros(rest: &mut impl BufRead) -> io::Result<bool> {
    loop {
        let bytes = rest.fill_buf()?;
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        if zeros < bytes.len() || bytes.is_empty() {
            let has_more = !bytes.is_empty();
            rest.consume(zeros);
            return Ok(has_more);
        }
        rest.consume(zeros);
    }
}

/// A file that reports how much of it has been read.
struct Watched<F, W> {
    file: F,
    watch: W,
}

impl<F: Read, W: Fn(u64)> Read for Watched<F, W> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        (self.watch)(read as u64);
        Ok(read)
    }
}

/// The compression of output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Packing {
    /// By gzip.
    Gzip,
    /// By zstd.
    Zstd,
}

/// Bytes compressed by themselves. Several such one after another are equivalent to all compressed together.
pub fn packed(packing: Packing, bytes: &[u8]) -> Vec<u8> {
    const TAKES_ALL: &str = "a vector takes everything";
    match packing {
        Packing::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(bytes).expect(TAKES_ALL);
            encoder.finish().expect(TAKES_ALL)
        }
        Packing::Zstd => {
            let mut compressor =
                zstd::bulk::Compressor::new(zstd::DEFAULT_COMPRESSION_LEVEL).expect(TAKES_ALL);
            // Otherwise a changed byte would not be found. gzip always has a checksum.
            compressor.include_checksum(true).expect(TAKES_ALL);
            compressor.compress(bytes).expect(TAKES_ALL)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One bit is changed in pieces as COPY compresses them.
    #[test]
    fn a_byte_that_is_another_is_found_in_what_is_packed() {
        let plain: String = (0..3000).map(|row| format!("{row},{}\n", row * 7919 % 10_007)).collect();
        let path = std::env::temp_dir().join(format!("firn-damaged-{}", std::process::id()));
        for packing in [Packing::Gzip, Packing::Zstd] {
            let (first, second) = plain.as_bytes().split_at(10_000);
            let whole = [packed(packing, first), packed(packing, second)].concat();
            let middle = whole.len() / 2;
            for at in (middle - 500..middle + 500).step_by(7) {
                let mut damaged = whole.clone();
                damaged[at] ^= 1 << (at % 8);
                std::fs::write(&path, &damaged).unwrap();
                let file = File::open(&path).unwrap();
                let read = watched(file, |_| (), || false).unwrap().read_to_end(&mut Vec::new());
                assert!(read.is_err_and(|error| is_damage(&error)), "{packing:?}: byte {at}");
            }
        }
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn packed_files_are_unpacked() {
        let plain = b"1,one\n2,two\n".repeat(1000);
        let (first, second) = plain.split_at(5000);
        let gzip = |bytes: &[u8]| {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        };
        let zstd = |bytes: &[u8]| zstd::encode_all(bytes, 1).unwrap();
        let directory = std::env::temp_dir().join(format!("firn-source-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("rows.csv");
        for file in [
            plain.clone(),
            gzip(&plain),
            zstd(&plain),
            [gzip(first), gzip(second)].concat(),
            [zstd(first), zstd(second)].concat(),
            // Filled up as for a tape, also between concatenated files.
            [gzip(&plain), vec![0; 20_000]].concat(),
            [gzip(first), vec![0; 3], gzip(b""), gzip(second), vec![0]].concat(),
            // The beginning of a pzstd file.
            [&b"\x50\x2a\x4d\x18\x04\0\0\0\x01\x02\x03\x04"[..], &zstd(first), &zstd(second)].concat(),
            [&b"\x5f\x2a\x4d\x18\0\0\0\0"[..], &zstd(&plain)].concat(),
        ] {
            std::fs::write(&path, &file).unwrap();
            let mut read = Vec::new();
            let (sender, pieces) = std::sync::mpsc::channel();
            let watch = move |bytes| sender.send(bytes).unwrap();
            watched(File::open(&path).unwrap(), watch, || false).unwrap().read_to_end(&mut read).unwrap();
            assert!(read == plain);
            assert_eq!(pieces.iter().sum::<u64>(), file.len() as u64);
        }
        for behind in [&b"\0\0x"[..], b"x,y\n"] {
            std::fs::write(&path, [&gzip(&plain), behind].concat()).unwrap();
            let mut read = watched(File::open(&path).unwrap(), |_| (), || false).unwrap();
            assert!(read.read_to_end(&mut Vec::new()).is_err_and(|error| is_damage(&error)));
        }
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
