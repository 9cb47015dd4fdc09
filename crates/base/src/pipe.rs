//! Files that may block for any time, above all named pipes: a thread that waits for one checks regularly
//! whether to stop.
//!
//! Opening a pipe waits for its other end, a read waits for bytes and a write for room, each without a limit.
//! So they are opened without blocking, and waited for in turns by `poll(2)`. A pipe that has not been opened
//! for writing yet has not ended: on Linux, `poll` distinguishes the two cases, `read` does not.

use crate::clock;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

/// The length of a turn of waiting.
const TURN: Duration = Duration::from_millis(50);

/// Opens a file for reading without waiting for a writer. A file that is not regular must be read by a
/// [`Pipe`].
pub fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)
}

/// Opens an existing file that is not regular for writing. If it is a pipe, waits for a reader.
pub fn open_to_write<S: Fn() -> bool>(path: &Path, stops: S) -> io::Result<Pipe<S>> {
    loop {
        match OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(path) {
            Err(error) if error.raw_os_error() == Some(libc::ENXIO) && is_pipe(path)? => {
                // There is no reader yet; the only way to wait for one is to try again.
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

/// A file that was opened in this way.
pub struct Pipe<S> {
    file: File,
    stops: S,
    tells_silence: bool,
}

fn go_on(stops: &impl Fn() -> bool) -> io::Result<()> {
    match stops() {
        // Not as an interrupted call: a caller that tries again after that would not see it.
        true => Err(io::Error::other("the wait was cancelled")),
        false => Ok(()),
    }
}

impl<S: Fn() -> bool> Pipe<S> {
    /// A waiting thread calls `stops` regularly to check whether to give up. In that case reading fails.
    pub fn new(file: File, stops: S) -> Pipe<S> {
        Pipe { file, stops, tells_silence: false }
    }

    /// Makes reading fail as well, with [`io::ErrorKind::WouldBlock`], if no bytes have arrived for a turn:
    /// the reader may have other work to do before it continues to wait.
    pub fn telling_silence(self) -> Pipe<S> {
        Pipe { tells_silence: true, ..self }
    }

    /// Waits for bytes or room, or for the end of the other side, and then calls `work` with the file.
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
                // Another thread was first.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return done,
            }
        }
    }

    /// Waits until an event has occurred, or a turn is over.
    fn wait(&self, events: libc::c_short) -> io::Result<bool> {
        let mut asked = libc::pollfd { fd: self.file.as_raw_fd(), events, revents: 0 };
        // SAFETY: the call reads and writes this one element, which outlives it, and the file is open as long
        // as `self` exists.
        let ready = unsafe { libc::poll(&raw mut asked, 1, TURN.as_millis() as libc::c_int) };
        match ready {
            0.. => Ok(ready > 0),
            _ => match io::Error::last_os_error() {
                // Interrupted by a signal.
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
    fn a_wait_for_a_silent_pipe_can_be_cancelled() {
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
        // Nor is there unlimited room.
        turns.set(0);
        assert_eq!(pipe.write_all(&[0; 16 << 20]).unwrap_err().kind(), io::ErrorKind::Other);
        turns.set(0);
        // On request an idle turn is reported.
        let mut pipe = pipe.telling_silence();
        assert_eq!(pipe.read(&mut read).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        theirs.write_all(b"d").unwrap();
        assert_eq!(pipe.read(&mut read).unwrap(), 1);
        turns.set(0);
        theirs.shutdown(Shutdown::Write).unwrap();
        assert_eq!(pipe.read(&mut read).unwrap(), 0);
    }
}
