//! Decodes what clients send. Pure: no socket, no state, and no input makes it panic.
//!
//! ```text
//! start-up   length:i32 (itself included)  code:i32  body        no tag: the first packets only
//! message    tag:u8  length:i32 (itself included)    body        everything after
//! ```
//!
//! A decoded message borrows the input buffer. All lengths and counts inside it have been checked,
//! so that iterating over its parameters later cannot fail. Text is still bytes here: invalid UTF-8
//! is an error of the statement (22021), not of the protocol.

use firn_base::{Error, SqlState};

/// Bytes that are no message of this protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed(pub &'static str);

impl From<Malformed> for Error {
    fn from(malformed: Malformed) -> Error {
        Error::new(SqlState::PROTOCOL_VIOLATION, malformed.0)
    }
}

type Decoded<T> = std::result::Result<T, Malformed>;

/// The longest start-up packet; those of real clients are much shorter.
pub const MAX_STARTUP_BYTES: usize = 10_000;

/// How much of a packet has arrived at the front of the input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Frame {
    /// It has not arrived as a whole: this number of bytes is needed before the next attempt.
    Incomplete(usize),
    /// It has arrived as a whole, and has this length.
    Complete(usize),
}

/// Finds the end of a start-up packet.
pub fn frame_startup(input: &[u8]) -> Decoded<Frame> {
    frame(input, 0, 8, MAX_STARTUP_BYTES)
}

/// Finds the end of a message of at most `max_bytes`.
pub fn frame_message(input: &[u8], max_bytes: usize) -> Decoded<Frame> {
    frame(input, 1, 4, max_bytes)
}

fn frame(input: &[u8], tag_bytes: usize, min_length: usize, max_bytes: usize) -> Decoded<Frame> {
    let header = tag_bytes + 4;
    let Some(length) = input.get(tag_bytes..header) else {
        return Ok(Frame::Incomplete(header));
    };
    let length = i32::from_be_bytes(length.try_into().expect("4 bytes"));
    let length = usize::try_from(length).map_err(|_| Malformed("invalid message length"))?;
    if length < min_length {
        return Err(Malformed("invalid message length"));
    }
    let total = tag_bytes + length;
    if total > max_bytes {
        return Err(Malformed("message is too large"));
    }
    Ok(if input.len() < total { Frame::Incomplete(total) } else { Frame::Complete(total) })
}

/// A packet that may open a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Startup<'a> {
    /// Asks for TLS.
    SslRequest,
    /// Asks for GSSAPI encryption.
    GssRequest,
    /// Asks to cancel the statement of another connection.
    Cancel {
        /// That connection's number.
        process: u32,
        /// The secret of that connection.
        key: &'a [u8],
    },
    /// Opens a session of protocol 3.
    Session {
        /// The requested minor version.
        minor: u16,
        /// Name and value of each parameter.
        parameters: Vec<(&'a [u8], &'a [u8])>,
    },
}

/// Decodes a whole start-up packet.
pub fn decode_startup(packet: &[u8]) -> Decoded<Startup<'_>> {
    let mut cursor = Cursor(packet);
    cursor.take(4)?;
    let code = cursor.u32()?;
    match (code >> 16, code & 0xffff) {
        (1234, 5678) => {
            let process = cursor.u32()?;
            let key = cursor.0;
            if key.len() < 4 || key.len() > 256 {
                return Err(Malformed("invalid length of a cancel key"));
            }
            Ok(Startup::Cancel { process, key })
        }
        (1234, 5679) => cursor.end(Startup::SslRequest),
        (1234, 5680) => cursor.end(Startup::GssRequest),
        (3, minor) => {
            let mut parameters = Vec::new();
            loop {
                let name = cursor.text()?;
                if name.is_empty() {
                    break;
                }
                parameters.push((name, cursor.text()?));
            }
            cursor.end(Startup::Session { minor: minor as u16, parameters })
        }
        _ => Err(Malformed("unsupported frontend protocol: the server speaks 3.0")),
    }
}

/// A message of a running session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message<'a> {
    /// Gives parameters to a prepared statement.
    Bind(Bind<'a>),
    /// Drops a statement or portal.
    Close(Target<'a>),
    /// Data of COPY FROM STDIN.
    CopyData(&'a [u8]),
    /// The end of that data.
    CopyDone,
    /// The client aborts that data: its reason.
    CopyFail(&'a [u8]),
    /// Asks for the parameters and columns of a statement or portal.
    Describe(Target<'a>),
    /// Runs a portal.
    Execute {
        /// Its name.
        portal: &'a [u8],
        /// The most rows to return; 0 for all.
        row_limit: u32,
    },
    /// Asks for all replies so far.
    Flush,
    /// Calls a function by its oid, which no client does.
    FunctionCall,
    /// Prepares a statement.
    Parse(Parse<'a>),
    /// A password or a step of SCRAM.
    Password(&'a [u8]),
    /// Runs a script.
    Query(&'a [u8]),
    /// Ends a series of extended messages.
    Sync,
    /// Ends the session.
    Terminate,
}

/// What Close and Describe refer to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target<'a> {
    /// A prepared statement.
    Statement(&'a [u8]),
    /// A portal.
    Portal(&'a [u8]),
}

/// A statement to prepare.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parse<'a> {
    /// Its name; empty for the unnamed one.
    pub name: &'a [u8],
    /// Its text.
    pub sql: &'a [u8],
    types: &'a [u8],
}

impl<'a> Parse<'a> {
    /// Type numbers given for the first parameters; 0 leaves one open.
    pub fn types(&self) -> impl ExactSizeIterator<Item = u32> + 'a {
        self.types.chunks_exact(4).map(|oid| u32::from_be_bytes(oid.try_into().expect("4 bytes")))
    }
}

/// Parameters for a prepared statement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bind<'a> {
    /// The portal to make.
    pub portal: &'a [u8],
    /// The statement to run.
    pub statement: &'a [u8],
    /// How the parameters are written.
    pub parameter_formats: Formats<'a>,
    /// How many parameters there are.
    pub parameter_count: usize,
    parameters: &'a [u8],
    /// The formats of the results.
    pub result_formats: Formats<'a>,
}

impl<'a> Bind<'a> {
    /// The parameters; `None` for NULL.
    pub fn parameters(&self) -> impl Iterator<Item = Option<&'a [u8]>> + 'a {
        let mut cursor = Cursor(self.parameters);
        (0..self.parameter_count).map(move |_| cursor.parameter().expect("checked when decoded"))
    }
}

/// Text or binary.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// As text.
    Text,
    /// As PostgreSQL's binary output functions write it.
    Binary,
}

/// Formats as they are sent: none (all text), one (for all), or one each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Formats<'a>(&'a [u8]);

impl<'a> Formats<'a> {
    /// How many were sent.
    pub fn count(&self) -> usize {
        self.0.len() / 2
    }

    /// Each as sent.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Format> + 'a {
        self.0.chunks_exact(2).map(|code| if code[1] == 0 { Format::Text } else { Format::Binary })
    }
}

/// The format of column `index` under the rule of [`Formats`].
#[inline]
pub fn format_of(formats: &[Format], index: usize) -> Format {
    match formats {
        [] => Format::Text,
        [all] => *all,
        each => each[index],
    }
}

/// Decodes a whole message, tag and length included.
pub fn decode_message(packet: &[u8]) -> Decoded<Message<'_>> {
    let mut cursor = Cursor(packet);
    let tag = cursor.take(1)?[0];
    cursor.take(4)?;
    let message = match tag {
        b'B' => Message::Bind(bind(&mut cursor)?),
        b'C' => Message::Close(target(&mut cursor)?),
        b'd' => Message::CopyData(cursor.rest()),
        b'c' => Message::CopyDone,
        b'f' => Message::CopyFail(cursor.text()?),
        b'D' => Message::Describe(target(&mut cursor)?),
        b'E' => {
            let portal = cursor.text()?;
            // PostgreSQL treats a negative limit as none.
            let row_limit = u32::try_from(cursor.u32()? as i32).unwrap_or(0);
            Message::Execute { portal, row_limit }
        }
        b'H' => Message::Flush,
        b'F' => {
            cursor.rest();
            Message::FunctionCall
        }
        b'P' => {
            let (name, sql) = (cursor.text()?, cursor.text()?);
            let count = cursor.count()?;
            Message::Parse(Parse { name, sql, types: cursor.take(4 * count)? })
        }
        b'p' => Message::Password(cursor.rest()),
        b'Q' => Message::Query(cursor.text()?),
        b'S' => Message::Sync,
        b'X' => {
            cursor.rest();
            Message::Terminate
        }
        _ => return Err(Malformed("invalid frontend message type")),
    };
    cursor.end(message)
}

fn target<'a>(cursor: &mut Cursor<'a>) -> Decoded<Target<'a>> {
    match cursor.take(1)?[0] {
        b'S' => Ok(Target::Statement(cursor.text()?)),
        b'P' => Ok(Target::Portal(cursor.text()?)),
        _ => Err(Malformed("expected a statement or a portal")),
    }
}

fn bind<'a>(cursor: &mut Cursor<'a>) -> Decoded<Bind<'a>> {
    let portal = cursor.text()?;
    let statement = cursor.text()?;
    let parameter_formats = cursor.formats()?;
    let parameter_count = cursor.count()?;
    let all = cursor.0;
    for _ in 0..parameter_count {
        cursor.parameter()?;
    }
    let parameters = &all[..all.len() - cursor.0.len()];
    let result_formats = cursor.formats()?;
    if parameter_formats.count() > 1 && parameter_formats.count() != parameter_count {
        return Err(Malformed("bind message has another number of parameter formats than of parameters"));
    }
    Ok(Bind { portal, statement, parameter_formats, parameter_count, parameters, result_formats })
}

/// The rest of a packet.
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, length: usize) -> Decoded<&'a [u8]> {
        let (taken, rest) =
            self.0.split_at_checked(length).ok_or(Malformed("insufficient data left in message"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    fn u32(&mut self) -> Decoded<u32> {
        Ok(u32::from_be_bytes(self.take(4)?.try_into().expect("4 bytes")))
    }

    /// A count in 16 bits. It is signed by the protocol, but counts above 32,767 are in use (65,535 parameters).
    fn count(&mut self) -> Decoded<usize> {
        Ok(usize::from(u16::from_be_bytes(self.take(2)?.try_into().expect("2 bytes"))))
    }

    /// Bytes up to a zero byte, which is skipped.
    fn text(&mut self) -> Decoded<&'a [u8]> {
        let end = self.0.iter().position(|byte| *byte == 0).ok_or(Malformed("invalid string in message"))?;
        let text = &self.0[..end];
        self.0 = &self.0[end + 1..];
        Ok(text)
    }

    fn parameter(&mut self) -> Decoded<Option<&'a [u8]>> {
        match self.u32()? as i32 {
            -1 => Ok(None),
            length => {
                let length = usize::try_from(length).map_err(|_| Malformed("invalid parameter length"))?;
                Ok(Some(self.take(length)?))
            }
        }
    }

    fn formats(&mut self) -> Decoded<Formats<'a>> {
        let count = self.count()?;
        let formats = self.take(2 * count)?;
        if formats.chunks_exact(2).any(|code| code[0] != 0 || code[1] > 1) {
            return Err(Malformed("unsupported format code"));
        }
        Ok(Formats(formats))
    }

    fn end<T>(&self, value: T) -> Decoded<T> {
        if self.0.is_empty() { Ok(value) } else { Err(Malformed("invalid message format")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_base::random::Random;

    fn message(tag: u8, body: &[u8]) -> Vec<u8> {
        let mut packet = vec![tag];
        packet.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
        packet.extend_from_slice(body);
        packet
    }

    fn every_kind() -> Vec<Vec<u8>> {
        vec![
            message(b'B', b"p\0s\0\0\x01\0\x01\0\x02\0\0\0\x01x\xff\xff\xff\xff\0\x02\0\0\0\x01"),
            message(b'C', b"Ss\0"),
            message(b'd', b"data"),
            message(b'c', b""),
            message(b'f', b"why\0"),
            message(b'D', b"Pp\0"),
            message(b'E', b"p\0\0\0\0\x07"),
            message(b'H', b""),
            message(b'P', b"s\0SELECT $1\0\0\x01\0\0\0\x17"),
            message(b'p', b"secret\0"),
            message(b'Q', b"SELECT 1\0"),
            message(b'S', b""),
            message(b'X', b""),
        ]
    }

    #[test]
    fn a_bind_message_yields_its_parameters_and_formats() {
        let packet = &every_kind()[0];
        let Ok(Message::Bind(bind)) = decode_message(packet) else { panic!() };
        assert_eq!((bind.portal, bind.statement), (&b"p"[..], &b"s"[..]));
        assert_eq!(bind.parameter_formats.iter().collect::<Vec<_>>(), [Format::Binary]);
        assert_eq!(bind.parameters().collect::<Vec<_>>(), [Some(&b"x"[..]), None]);
        assert_eq!(bind.result_formats.iter().collect::<Vec<_>>(), [Format::Text, Format::Binary]);
    }

    #[test]
    fn a_parse_message_yields_its_types() {
        let packet = &every_kind()[8];
        let Ok(Message::Parse(parse)) = decode_message(packet) else { panic!() };
        assert_eq!((parse.name, parse.sql), (&b"s"[..], &b"SELECT $1"[..]));
        assert_eq!(parse.types().collect::<Vec<_>>(), [23]);
    }

    /// Cuts every kind of message at every length, once with its header unchanged (the frame is
    /// incomplete) and once with its length corrected (the body is malformed, or still valid).
    #[test]
    fn a_message_cut_anywhere_is_incomplete_or_malformed() {
        for packet in every_kind() {
            assert_eq!(frame_message(&packet, 1000), Ok(Frame::Complete(packet.len())));
            decode_message(&packet).unwrap();
            for cut in 0..packet.len() {
                let Ok(Frame::Incomplete(needed)) = frame_message(&packet[..cut], 1000) else { panic!() };
                assert!(needed > cut);
                if cut >= 5 {
                    let shorter = message(packet[0], &packet[5..cut]);
                    let open_ended = matches!(packet[0], b'd' | b'p' | b'X');
                    assert_eq!(decode_message(&shorter).is_ok(), open_ended, "{shorter:?}");
                }
            }
        }
    }

    #[test]
    fn lengths_that_no_message_has_are_refused_at_once() {
        for length in [0, 3, -1, i32::MIN, 1_000_000] {
            let mut packet = vec![b'Q'];
            packet.extend_from_slice(&length.to_be_bytes());
            assert!(frame_message(&packet, 10_000).is_err());
            assert!(frame_startup(&packet[1..]).is_err());
        }
    }

    #[test]
    fn start_up_packets_are_distinguished() {
        let packet = |code: u32, body: &[u8]| {
            let mut packet = (body.len() as u32 + 8).to_be_bytes().to_vec();
            packet.extend_from_slice(&code.to_be_bytes());
            packet.extend_from_slice(body);
            packet
        };
        assert_eq!(decode_startup(&packet(1234 << 16 | 5679, b"")), Ok(Startup::SslRequest));
        assert_eq!(decode_startup(&packet(1234 << 16 | 5680, b"")), Ok(Startup::GssRequest));
        assert_eq!(
            decode_startup(&packet(1234 << 16 | 5678, b"\0\0\0\x07\x01\x02\x03\x04")),
            Ok(Startup::Cancel { process: 7, key: &[1, 2, 3, 4] })
        );
        assert_eq!(
            decode_startup(&packet(3 << 16 | 2, b"user\0firn\0\0")),
            Ok(Startup::Session { minor: 2, parameters: vec![(b"user", b"firn")] })
        );
        for bad in [packet(2 << 16, b"\0"), packet(3 << 16, b"user\0firn\0"), packet(3 << 16, b"")] {
            assert!(decode_startup(&bad).is_err());
        }
    }

    /// Random bytes, and random damage to real messages.
    #[test]
    fn no_bytes_make_decoding_panic() {
        let mut random = Random::seeded(0x57a7);
        for round in 0..200_000 {
            let mut packet: Vec<u8> = if round % 2 == 0 {
                (0..random.uniform(0, 40)).map(|_| random.next_u64() as u8).collect()
            } else {
                let all = every_kind();
                all[random.uniform(0, all.len() as i64 - 1) as usize].clone()
            };
            for _ in 0..random.uniform(0, 3) {
                if let Some(last) = packet.len().checked_sub(1) {
                    let at = random.uniform(0, last as i64) as usize;
                    packet[at] = random.next_u64() as u8;
                }
            }
            let _ = frame_startup(&packet);
            let _ = decode_startup(&packet);
            let _ = frame_message(&packet, 1000);
            match decode_message(&packet) {
                Ok(Message::Bind(bind)) => assert_eq!(bind.parameters().count(), bind.parameter_count),
                Ok(Message::Parse(parse)) => assert_eq!(parse.types().count(), parse.types().len()),
                _ => {}
            }
        }
    }
}
