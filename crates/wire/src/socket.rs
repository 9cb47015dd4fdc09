//! A client's socket and the bytes read from it.
//!
//! Reading blocks: a thread per connection sleeps in the kernel while its client is idle, and a round
//! trip is one `read` and one `write` (docs/decisions/0005).

use std::io::{self, IoSlice, Read, Write};
use std::net::{IpAddr, Shutdown, TcpStream};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use firn_base::clock;
use firn_base::sync::{Arc, Mutex, OnceLock};
use firn_session::server::Encryption;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionread};
use tokio_rustls::rustls::{CipherSuite, ProtocolVersion, ServerConfig, ServerConnection};

use crate::certificate;
use crate::decode::{Frame, MAX_STARTUP_BYTES, Malformed, frame_message, frame_startup};

/// Room for the messages of a usual round trip.
const USUAL_BYTES: usize = 8 * 1024;

/// The most room that an idle connection keeps for its replies.
const MOST_KEPT_BYTES: usize = 256 * 1024;

/// A connection to a client, encrypted or not. Its thread alone reads and writes; others may end it (see `Shared`) or ask
/// whether the client has gone.
pub(crate) struct Socket {
    stream: Stream,
    /// The state of TLS, once it has begun. Only the client's thread locks it, also while it waits for the client.
    tls: OnceLock<Mutex<Box<ServerConnection>>>,
    /// Until when reads wait, while the connection starts. Only the client's thread locks it.
    deadline: Mutex<Option<clock::Instant>>,
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Read for &Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = match self {
                Stream::Tcp(stream) => (&mut &*stream).read(buffer),
                Stream::Unix(stream) => (&mut &*stream).read(buffer),
            };
            match read {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => return other,
            }
        }
    }
}

impl Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => (&mut &*stream).write(bytes),
            Stream::Unix(stream) => (&mut &*stream).write(bytes),
        }
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => (&mut &*stream).write_vectored(parts),
            Stream::Unix(stream) => (&mut &*stream).write_vectored(parts),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Socket {
    fn new(stream: Stream) -> Socket {
        Socket { stream, tls: OnceLock::new(), deadline: Mutex::new(None) }
    }

    /// Over TCP.
    pub(crate) fn tcp(stream: TcpStream) -> Socket {
        Socket::new(Stream::Tcp(stream))
    }

    /// Over a Unix domain socket.
    pub(crate) fn unix(stream: UnixStream) -> Socket {
        Socket::new(Stream::Unix(stream))
    }

    /// Ends one or both directions, which wakes a thread blocked in it. A client that has gone
    /// already is no error.
    pub(crate) fn shutdown(&self, how: Shutdown) {
        let _ = match &self.stream {
            Stream::Tcp(stream) => stream.shutdown(how),
            Stream::Unix(stream) => stream.shutdown(how),
        };
    }

    /// The client's address and port, unless it is connected by a Unix domain socket.
    pub(crate) fn peer(&self) -> Option<(IpAddr, u16)> {
        match &self.stream {
            Stream::Tcp(stream) => stream.peer_addr().ok().map(|peer| (peer.ip(), peer.port())),
            Stream::Unix(_) => None,
        }
    }

    /// The server's address and port of this connection.
    pub(crate) fn local(&self) -> Option<(IpAddr, u16)> {
        match &self.stream {
            Stream::Tcp(stream) => stream.local_addr().ok().map(|local| (local.ip(), local.port())),
            Stream::Unix(_) => None,
        }
    }

    /// Whether it is over TCP, and so may be readable by others.
    pub(crate) fn is_tcp(&self) -> bool {
        matches!(self.stream, Stream::Tcp(_))
    }

    /// Whether the client has closed its side and sent nothing after that but a `Terminate`: replies would not be read.
    pub(crate) fn is_left(&self) -> bool {
        /// The length of a `Terminate`.
        const TERMINATE_BYTES: u64 = 5;
        /// Of the records with a `Terminate` and with the end of TLS.
        const LAST_RECORDS: u64 = 70;
        let socket = self.as_fd();
        let mut asked = [PollFd::from_borrowed_fd(socket, PollFlags::RDHUP)];
        let answered = poll(&mut asked, Some(&Timespec::default())).is_ok_and(|answered| answered > 0);
        let last = if self.is_encrypted() { LAST_RECORDS } else { TERMINATE_BYTES };
        answered && ioctl_fionread(socket).is_ok_and(|unread| unread <= last)
    }

    /// Waits until something has come, or the client has gone; false if so long nothing has.
    pub(crate) fn wait_readable(&self, longest: Duration) -> io::Result<bool> {
        if self.has_decrypted() {
            return Ok(true);
        }
        let limit = Timespec {
            tv_sec: longest.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: longest.subsec_nanos().into(),
        };
        match poll(&mut [PollFd::new(self, PollFlags::IN)], Some(&limit)) {
            Ok(answered) => Ok(answered > 0),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Limits how long reads wait.
    pub(crate) fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match &self.stream {
            Stream::Tcp(stream) => stream.set_read_timeout(timeout),
            Stream::Unix(stream) => stream.set_read_timeout(timeout),
        }
    }

    /// Limits how long writes wait for a client that does not read.
    pub(crate) fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match &self.stream {
            Stream::Tcp(stream) => stream.set_write_timeout(timeout),
            Stream::Unix(stream) => stream.set_write_timeout(timeout),
        }
    }

    /// Reads fail with `TimedOut` from then on, also for a client that sends a byte now and then. `None` ends that.
    pub(crate) fn set_deadline(&self, deadline: Option<clock::Instant>) -> io::Result<()> {
        *self.deadline.lock() = deadline;
        if deadline.is_none() { self.set_read_timeout(None) } else { Ok(()) }
    }

    /// Limits the next wait to what is left until the deadline.
    fn limit_wait(&self) -> io::Result<()> {
        let Some(deadline) = *self.deadline.lock() else { return Ok(()) };
        let left = deadline.saturating_duration_since(clock::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { self.set_read_timeout(Some(left)) }
    }

    /// Shakes hands: what follows is encrypted. `received` has come of it already.
    pub(crate) fn begin_tls(&self, config: Arc<ServerConfig>, mut received: &[u8]) -> io::Result<()> {
        let mut tls = ServerConnection::new(config).map_err(io::Error::other)?;
        while tls.is_handshaking() || !received.is_empty() {
            if received.is_empty() {
                self.send_records(&mut tls)?;
                self.limit_wait()?;
                self.receive_records(&mut tls, &mut &self.stream)?;
            } else {
                self.receive_records(&mut tls, &mut received)?;
            }
        }
        self.send_records(&mut tls)?;
        assert!(self.tls.set(Mutex::new(Box::new(tls))).is_ok(), "the client's thread shakes hands once");
        Ok(())
    }

    /// Whether TLS has begun.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.tls.get().is_some()
    }

    /// Whether the client has named PostgreSQL's protocol in its handshake (ALPN).
    pub(crate) fn has_named_protocol(&self) -> bool {
        self.tls.get().is_some_and(|tls| tls.lock().alpn_protocol().is_some())
    }

    /// How it is encrypted; `None` if it is not.
    pub(crate) fn encryption(&self) -> Option<Encryption> {
        let tls = self.tls.get()?.lock();
        let suite = tls.negotiated_cipher_suite().expect("the handshake is over").suite();
        let (cipher, bits) = suite_name(suite);
        let version = match tls.protocol_version() {
            Some(ProtocolVersion::TLSv1_2) => "TLSv1.2",
            _ => "TLSv1.3",
        };
        let client = tls.peer_certificates().and_then(|chain| certificate::describe(chain.first()?));
        Some(Encryption { version, cipher, bits, client })
    }

    /// Whether bytes have come that are not in the system's buffer any more.
    fn has_decrypted(&self) -> bool {
        self.tls.get().is_some_and(|tls| {
            let mut tls = tls.lock();
            // Nothing to decrypt is no error here: it only asks.
            tls.process_new_packets().is_ok_and(|state| state.plaintext_bytes_to_read() > 0)
        })
    }

    /// Sends all of `output`, and empties it. The memory of an unusually long reply is released.
    pub(crate) fn flush(&self, output: &mut Vec<u8>) -> io::Result<()> {
        let sent = match self.tls.get() {
            None => (&self.stream).write_all(output),
            Some(tls) => self.encrypt(&mut tls.lock(), output),
        };
        output.clear();
        output.shrink_to(MOST_KEPT_BYTES);
        sent
    }

    fn encrypt(&self, tls: &mut ServerConnection, mut output: &[u8]) -> io::Result<()> {
        while !output.is_empty() {
            // It takes as much as it likes to keep.
            let taken = tls.writer().write(output)?;
            output = &output[taken..];
            self.send_records(tls)?;
        }
        Ok(())
    }

    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = self.tls.get() else {
            self.limit_wait()?;
            return (&self.stream).read(buffer);
        };
        let mut tls = tls.lock();
        loop {
            match tls.reader().read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // A client that goes without ending TLS has gone as well; messages say themselves how long they are.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                other => return other,
            }
            // An answer to what it has asked of TLS itself.
            self.send_records(&mut tls)?;
            self.limit_wait()?;
            if let Err(error) = self.receive_records(&mut tls, &mut &self.stream) {
                return if error.kind() == io::ErrorKind::UnexpectedEof { Ok(0) } else { Err(error) };
            }
        }
    }

    fn send_records(&self, tls: &mut ServerConnection) -> io::Result<()> {
        while tls.wants_write() {
            match tls.write_tls(&mut &self.stream) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                sent => drop(sent?),
            }
        }
        Ok(())
    }

    /// Takes what has come, and waits if nothing has.
    fn receive_records(&self, tls: &mut ServerConnection, from: &mut dyn Read) -> io::Result<()> {
        if tls.read_tls(from)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        tls.process_new_packets().map(drop).map_err(|error| {
            // The client is told why.
            let _ = self.send_records(tls);
            io::Error::new(io::ErrorKind::InvalidData, error)
        })
    }

    /// Ends a connection whose last message is sent. Closing a socket with unread input resets it,
    /// and a reset can overtake that message: so the input is read and discarded, for a short time.
    pub(crate) fn linger(&self) {
        self.shutdown(Shutdown::Write);
        *self.deadline.lock() = None;
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
        if socket.has_decrypted() {
            return Ok(Arrived::Message);
        }
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
        match &self.stream {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
        }
    }
}

/// OpenSSL's name of a cipher suite, which PostgreSQL's users know, and how many bits its key has.
fn suite_name(suite: CipherSuite) -> (&'static str, i32) {
    match suite {
        CipherSuite::TLS13_AES_128_GCM_SHA256 => ("TLS_AES_128_GCM_SHA256", 128),
        CipherSuite::TLS13_AES_256_GCM_SHA384 => ("TLS_AES_256_GCM_SHA384", 256),
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => ("TLS_CHACHA20_POLY1305_SHA256", 256),
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 => ("ECDHE-ECDSA-AES128-GCM-SHA256", 128),
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384 => ("ECDHE-ECDSA-AES256-GCM-SHA384", 256),
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256 => ("ECDHE-ECDSA-CHACHA20-POLY1305", 256),
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 => ("ECDHE-RSA-AES128-GCM-SHA256", 128),
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 => ("ECDHE-RSA-AES256-GCM-SHA384", 256),
        CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256 => ("ECDHE-RSA-CHACHA20-POLY1305", 256),
        _ => unreachable!("the provider has no other suites"),
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

    /// Takes everything that has come: what a client has sent before it is known how to read it.
    pub(crate) fn take_all(&mut self) -> Vec<u8> {
        let all = self.buffer[self.start..self.end].to_vec();
        self.start = self.end;
        all
    }

    /// The first byte that a client sends, which is left where it is.
    pub(crate) fn first_byte(&mut self, socket: &Socket) -> Result<u8, End> {
        if self.start == self.end {
            self.fill_up_to(socket, MAX_STARTUP_BYTES)?;
        }
        Ok(self.buffer[self.start])
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
