//! A file that gets its name when it is complete: until then it is a temporary one beside it, which is removed if anything fails.

use firn_base::pipe::{self, Pipe};
use firn_base::sync::{AtomicU64, Ordering};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A file that is being written.
pub(crate) enum NewFile {
    /// It gets its name at the end.
    Named(Named),
    /// A target that cannot be replaced, such as a pipe, is written to.
    Other(Pipe<Stops>),
}

/// While a thread waits for a pipe, it calls this to find out whether it should stop waiting.
pub(crate) type Stops = Box<dyn Fn() -> bool>;

pub(crate) struct Named {
    file: File,
    /// The temporary path and the final path, until the file has its final name.
    names: Option<(PathBuf, PathBuf)>,
}

impl NewFile {
    /// Begins a file. An existing one is unchanged until [`NewFile::finish`].
    pub fn create(path: &Path, stops: Stops) -> io::Result<NewFile> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let existing = match fs::metadata(path) {
            Ok(metadata) => {
                if !metadata.is_file() {
                    return Ok(NewFile::Other(pipe::open_to_write(path, stops)?));
                }
                // A user who may not write to the file may not replace it either.
                OpenOptions::new().write(true).open(path)?;
                Some(metadata.permissions())
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        // Of a symbolic link, the target is replaced.
        let path = if existing.is_some() { path.canonicalize()? } else { path.to_owned() };
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let temporary = path.with_file_name(format!(".firn-copy-{}-{number}", std::process::id()));
        let file = OpenOptions::new().write(true).create_new(true).open(&temporary)?;
        let new = Named { file, names: Some((temporary, path)) };
        if let Some(permissions) = existing {
            new.file.set_permissions(permissions)?;
        }
        Ok(NewFile::Named(new))
    }

    /// Takes the next bytes.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            NewFile::Named(named) => named.file.write_all(bytes),
            NewFile::Other(pipe) => pipe.write_all(bytes),
        }
    }

    /// Gives the file its final name.
    pub fn finish(self) -> io::Result<()> {
        match self {
            NewFile::Named(named) => named.finish(),
            NewFile::Other(_) => Ok(()),
        }
    }
}

impl Named {
    fn finish(mut self) -> io::Result<()> {
        let Some((temporary, path)) = &self.names else { return Ok(()) };
        self.file.sync_all()?;
        fs::rename(temporary, path)?;
        let folder = path.parent().map(Path::to_owned);
        self.names = None;
        // The name must be as durable as the file.
        folder.map_or(Ok(()), |folder| File::open(folder)?.sync_all())
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        if let Some((temporary, _)) = &self.names {
            // An error has no remedy here.
            let _ = fs::remove_file(temporary);
        }
    }
}
