//! A client's socket and the bytes read from it.
//!
//! Reading blocks: a thread per connection sleeps in the kernel while its client is idle, and a round
//! trip is one `read` and one `write` (docs/decisions/0005).

use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, TcpStream};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionread};

use crate::decode::{Frame, MAX_STARTUP_BYTES, Malformed, frame_message, frame_startup};

/// Room for the messages of a usual round trip.
const USUAL_BYTES: usize = 8 * 1024;

/// The most room that an idle connection keeps for its replies.
const MOST_KEPT_BYTES: usize = 256 * 1024;

/// A stream to a client. Its thread owns it; the server may end it from another thread (see `Shared`).
pub(crate) enum Socket {
    /// Over TCP.
    Tcp(TcpStream),
    /// Over a Unix domain socket.
    Unix(UnixStream),
}

impl Socket {
    /// Ends one or both directions, which wakes a thread blocked in it. A client that has gone
    /// already is no error.
    pub(crate) fn shutdown(&self, how: Shutdown) {
        let _ = match self {
            Socket::Tcp(stream) => stream.shutdown(how),
            Socket::Unix(stream) => stream.shutdown(how),
        };
    }

    /// The client's address and port, unless it is connected by a Unix domain socket.
    pub(crate) fn peer(&self) -> Option<(IpAddr, u16)> {
        match self {
            Socket::Tcp(stream) => stream.peer_addr().ok().map(|peer| (peer.ip(), peer.port())),
            Socket::Unix(_) => None,
        }
    }

    /// The server's address and port of this connection.
    pub(crate) fn local(&self) -> Option<(IpAddr, u16)> {
        match self {
            Socket::Tcp(stream) => stream.local_addr().ok().map(|local| (local.ip(), local.port())),
            Socket::Unix(_) => None,
        }
    }

    /// Whether the client has closed its side and sent nothing after that but a `Terminate`: replies would not be read.
    pub(crate) fn is_left(&self) -> bool {
        /// The length of a `Terminate`.
        const TERMINATE_BYTES: u64 = 5;
        let socket = self.as_fd();
        let mut asked = [PollFd::from_borrowed_fd(socket, PollFlags::RDHUP)];
        let answered = poll(&mut asked, Some(&Timespec::default())).is_ok_and(|answered| answered > 0);
        answered && ioctl_fionread(socket).is_ok_and(|unread| unread <= TERMINATE_BYTES)
    }

    /// Limits how long reads wait.
    pub(crate) fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Socket::Tcp(stream) => stream.set_read_timeout(timeout),
            Socket::Unix(stream) => stream.set_read_timeout(timeout),
        }
    }

    /// Sends all of `output`, and empties it. The memory of an unusually long reply is released.
    pub(crate) fn flush(&self, output: &mut Vec<u8>) -> io::Result<()> {
        let sent = match self {
            Socket::Tcp(stream) => (&mut &*stream).write_all(output),
            Socket::Unix(stream) => (&mut &*stream).write_all(output),
        };
        output.clear();
        output.shrink_to(MOST_KEPT_BYTES);
        sent
    }

    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = match self {
                Socket::Tcp(stream) => (&mut &*stream).read(buffer),
                Socket::Unix(stream) => (&mut &*stream).read(buffer),
            };
            match read {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => return other,
            }
        }
    }

    /// Ends a connection whose last message is sent. Closing a socket with unread input resets it,
    /// and a reset can overtake that message: so the input is read and discarded, for a short time.
    pub(crate) fn linger(&self) {
        self.shutdown(Shutdown::Write);
        if self.set_read_timeout(Some(Duration::from_millis(100))).is_err() {
            return;
        }
        let mut sink = [0; 4096];
        for _ in 0..256 {
            if !matches!(self.read(&mut sink), Ok(1..)) {
                return;
            }
        }
    }
}

/// Wakes a thread that waits for its client, because a notification has arrived that must be sent to its client.
pub(crate) struct Arrivals {
    reader: UnixStream,
    writer: UnixStream,
}

/// What has ended a wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Arrived {
    /// The client has sent a message, or has disconnected.
    Message,
    /// A notification for the client.
    Notification,
    /// Neither, within the time limit.
    TimedOut,
}

impl Arrivals {
    pub(crate) fn new() -> io::Result<Arrivals> {
        let (reader, writer) = UnixStream::pair()?;
        reader.set_nonblocking(true)?;
        writer.set_nonblocking(true)?;
        Ok(Arrivals { reader, writer })
    }

    /// Wakes the thread. If the socket is full, enough wake-ups are pending already.
    pub(crate) fn wake(&self) {
        let _ = (&self.writer).write(&[0]);
    }

    /// Waits for the client or for a wake-up.
    pub(crate) fn wait(&self, socket: &Socket, longest: Option<Duration>) -> io::Result<Arrived> {
        let limit = longest.map(|longest| Timespec {
            tv_sec: longest.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: longest.subsec_nanos().into(),
        });
        let mut asked = [PollFd::new(socket, PollFlags::IN), PollFd::new(&self.reader, PollFlags::IN)];
        match poll(&mut asked, limit.as_ref()) {
            Ok(0) => return Ok(Arrived::TimedOut),
            Ok(_) => {}
            // It waits again.
            Err(Errno::INTR) => return Ok(Arrived::Notification),
            Err(error) => return Err(error.into()),
        }
        if !asked[0].revents().is_empty() {
            return Ok(Arrived::Message);
        }
        while matches!((&self.reader).read(&mut [0; 64]), Ok(1..)) {}
        Ok(Arrived::Notification)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Tcp(stream) => stream.as_fd(),
            Socket::Unix(stream) => stream.as_fd(),
        }
    }
}

/// Why no message can be read any more.
pub(crate) enum End {
    /// The client closed the connection, or it broke.
    Gone,
    /// Nothing arrived within the read timeout.
    TimedOut,
    /// The client sent bytes that are no message.
    Malformed(Malformed),
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> End {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => End::TimedOut,
            _ => End::Gone,
        }
    }
}

impl From<Malformed> for End {
    fn from(malformed: Malformed) -> End {
        End::Malformed(malformed)
    }
}

/// Bytes that have arrived, of which some have been taken.
pub(crate) struct Input {
    /// Only `start..end` holds bytes; the rest is room.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    max_message_bytes: usize,
}

impl Input {
    pub(crate) fn new(max_message_bytes: usize) -> Input {
        Input { buffer: vec![0; USUAL_BYTES], start: 0, end: 0, max_message_bytes }
    }

    /// Allows longer messages from now on.
    pub(crate) fn set_max_message_bytes(&mut self, max_message_bytes: usize) {
        self.max_message_bytes = max_message_bytes;
    }

    /// Takes the next message if it has arrived as a whole: its place until the next [`Input::fill`].
    #[inline]
    pub(crate) fn take(&mut self) -> Result<Option<Range<usize>>, Malformed> {
        match frame_message(&self.buffer[self.start..self.end], self.max_message_bytes)? {
            Frame::Incomplete(_) => Ok(None),
            Frame::Complete(length) => {
                let start = self.start;
                self.start += length;
                Ok(Some(start..start + length))
            }
        }
    }

    /// The bytes of a message taken.
    #[inline]
    pub(crate) fn packet(&self, range: Range<usize>) -> &[u8] {
        &self.buffer[range]
    }

    /// The tag of the message after those taken, if it has arrived.
    #[inline]
    pub(crate) fn next_tag(&self) -> Option<u8> {
        self.buffer[self.start..self.end].first().copied()
    }

    /// Whether another whole message, or a malformed one, has arrived.
    #[inline]
    pub(crate) fn has_message(&self) -> bool {
        let pending = &self.buffer[self.start..self.end];
        !matches!(frame_message(pending, self.max_message_bytes), Ok(Frame::Incomplete(_)))
    }

    /// Waits for more bytes of a message.
    pub(crate) fn fill(&mut self, socket: &Socket) -> Result<(), End> {
        let needed = match frame_message(&self.buffer[self.start..self.end], self.max_message_bytes)? {
            Frame::Incomplete(needed) => needed,
            Frame::Complete(_) => return Ok(()),
        };
        self.fill_up_to(socket, needed)
    }

    /// Waits until a whole start-up packet has arrived, and takes it.
    pub(crate) fn take_startup(&mut self, socket: &Socket) -> Result<&[u8], End> {
        loop {
            match frame_startup(&self.buffer[self.start..self.end])? {
                Frame::Complete(length) => {
                    let start = self.start;
                    self.start += length;
                    return Ok(&self.buffer[start..start + length]);
                }
                Frame::Incomplete(_) => self.fill_up_to(socket, MAX_STARTUP_BYTES)?,
            }
        }
    }

    /// Makes room towards `needed` pending bytes and reads once. The buffer doubles as bytes arrive,
    /// so five bytes that announce a large message do not allocate its memory.
    fn fill_up_to(&mut self, socket: &Socket, needed: usize) -> Result<(), End> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.buffer.len() {
            let larger = (2 * self.buffer.len()).min(needed.max(USUAL_BYTES)).max(self.end + 1);
            self.buffer.resize(larger, 0);
        } else if self.end == 0 && self.buffer.len() > 16 * USUAL_BYTES {
            self.buffer.truncate(USUAL_BYTES);
            self.buffer.shrink_to_fit();
        }
        match socket.read(&mut self.buffer[self.end..])? {
            0 => Err(End::Gone),
            read => {
                self.end += read;
                Ok(())
            }
        }
    }
}
