//! Files that may keep silent, named pipes above all: who waits for one looks up now and then, so that he can be told to go.
//!
//! To open a pipe waits for its other end, to read it for bytes and to write to it for room, each for as long as it takes. So they are opened
//! without waiting, and waited for in turns by `poll(2)`. A pipe that nobody has opened for writing yet is one that has not ended: on
//! Linux, `poll` tells the one from the other, `read` does not.

use crate::clock;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

/// How long a turn of waiting is.
const TURN: Duration = Duration::from_millis(50);

/// Opens a file for reading without waiting for who may write to it. What is no regular file is to be read by a [`Pipe`].
pub fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)
}

/// Opens what is there to write to, and is no regular file. Where that is a pipe, waits for who reads it.
pub fn open_to_write<S: Fn() -> bool>(path: &Path, stops: S) -> io::Result<Pipe<S>> {
    loop {
        match OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(path) {
            Err(error) if error.raw_os_error() == Some(libc::ENXIO) && is_pipe(path)? => {
                // Nobody reads it yet, for which one cannot wait but so.
                go_on(&stops)?;
                clock::sleep(TURN);
            }
            opened => return Ok(Pipe::new(opened?, stops)),
        }
    }
}

fn is_pipe(path: &Path) -> io::Result<bool> {
    Ok(path.metadata()?.file_type().is_fifo())
}

/// A file that was opened so.
pub struct Pipe<S> {
    file: File,
    stops: S,
    tells_silence: bool,
}

fn go_on(stops: &impl Fn() -> bool) -> io::Result<()> {
    match stops() {
        // Not as one that was interrupted: who tries again after that would not hear of it.
        true => Err(io::Error::other("nobody waits for it any more")),
        false => Ok(()),
    }
}

impl<S: Fn() -> bool> Pipe<S> {
    /// Whoever waits asks `stops` now and then whether to give up. If so, reading fails.
    pub fn new(file: File, stops: S) -> Pipe<S> {
        Pipe { file, stops, tells_silence: false }
    }

    /// Reading fails as well, with [`io::ErrorKind::WouldBlock`], when nothing has come for a turn: whoever reads may have
    /// something to do before he waits on.
    pub fn telling_silence(self) -> Pipe<S> {
        Pipe { tells_silence: true, ..self }
    }

    /// Waits for bytes or room, the end of the other side included, and then does something to the file.
    fn when<T>(
        &mut self,
        events: libc::c_short,
        mut work: impl FnMut(&mut File) -> io::Result<T>,
    ) -> io::Result<T> {
        loop {
            go_on(&self.stops)?;
            if !self.wait(events)? {
                match self.tells_silence {
                    true => return Err(io::ErrorKind::WouldBlock.into()),
                    false => continue,
                }
            }
            match work(&mut self.file) {
                // Somebody else was quicker.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return done,
            }
        }
    }

    /// Waits until something has happened, or a turn is over.
    fn wait(&self, events: libc::c_short) -> io::Result<bool> {
        let mut asked = libc::pollfd { fd: self.file.as_raw_fd(), events, revents: 0 };
        // SAFETY: the call reads and writes this one element, which outlives it, and the file is open as long as `self` is.
        let ready = unsafe { libc::poll(&raw mut asked, 1, TURN.as_millis() as libc::c_int) };
        match ready {
            0.. => Ok(ready > 0),
            _ => match io::Error::last_os_error() {
                // By a signal.
                error if error.kind() == io::ErrorKind::Interrupted => Ok(false),
                error => Err(error),
            },
        }
    }
}

impl<S: Fn() -> bool> Read for Pipe<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.when(libc::POLLIN, |file| file.read(buffer))
    }
}

impl<S: Fn() -> bool> Write for Pipe<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.when(libc::POLLOUT, |file| file.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::net::Shutdown;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn who_waits_for_a_silent_pipe_can_be_told_to_go() {
        if cfg!(miri) {
            return;
        }
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let turns = Cell::new(0);
        let stops = || {
            turns.set(turns.get() + 1);
            turns.get() > 3
        };
        let mut pipe = Pipe::new(File::from(OwnedFd::from(ours)), stops);
        let mut read = [0; 8];
        theirs.write_all(b"abc").unwrap();
        assert_eq!(pipe.read(&mut read).unwrap(), 3);
        assert_eq!(&read[..3], b"abc");
        let mut rest = Vec::new();
        assert_eq!(pipe.read_to_end(&mut rest).unwrap_err().kind(), io::ErrorKind::Other);
        assert_eq!(turns.get(), 4);
        turns.set(0);
        // Nor is there room for ever.
        turns.set(0);
        assert_eq!(pipe.write_all(&[0; 16 << 20]).unwrap_err().kind(), io::ErrorKind::Other);
        turns.set(0);
        // Who likes is told that nothing has come.
        let mut pipe = pipe.telling_silence();
        assert_eq!(pipe.read(&mut read).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        theirs.write_all(b"d").unwrap();
        assert_eq!(pipe.read(&mut read).unwrap(), 1);
        turns.set(0);
        theirs.shutdown(Shutdown::Write).unwrap();
        assert_eq!(pipe.read(&mut read).unwrap(), 0);
    }
}
