//! The bytes of a file, unpacked if it is packed.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

/// Where bytes of a file come from.
pub type Source = Box<dyn Read + Send>;

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Opens a file. Whether it is packed, by gzip or zstd, its first bytes tell; one made of several packed ones is unpacked
/// as a whole.
pub fn open(path: &Path) -> io::Result<Source> {
    let mut file = File::open(path)?;
    if !file.metadata()?.is_file() {
        // A pipe cannot be read twice.
        return Ok(Box::new(file));
    }
    let mut first = Vec::with_capacity(ZSTD.len());
    (&mut file).take(ZSTD.len() as u64).read_to_end(&mut first)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(if first.starts_with(&GZIP) {
        Box::new(flate2::read::MultiGzDecoder::new(file))
    } else if first == ZSTD {
        Box::new(zstd::Decoder::new(file)?)
    } else {
        Box::new(file)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

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
        ] {
            std::fs::write(&path, &file).unwrap();
            let mut read = Vec::new();
            open(&path).unwrap().read_to_end(&mut read).unwrap();
            assert!(read == plain);
        }
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
