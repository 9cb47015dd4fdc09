//! The messages between a server and one that copies its database or follows its log: their bytes.
//!
//! ```text
//! message   kind:u8  fields            numbers are little-endian; a string is its length:u32 and its bytes
//!
//! to the server
//!   H Hello      protocol:u32  directory version:u32  voter:u64  holder:string
//!   C Copy       has point:u8 [point]  count:u32 { file }
//!   F Follow     point
//!   S Status     received:u64  flushed:u64  replayed:u64  beat:u64
//!   X Handover   server:string
//!   ? Has        point
//!   K Control    bytes
//! from the server
//!   I Identity   protocol:u32  directory version:u32  database:16  cluster:16  is primary:u8  epoch:u64  program:string
//!   M Manifest   bytes
//!   L Log        point
//!   F File       file: its content follows
//!   D Data       some bytes of the file; none at its end
//!   S Segment    the header of a segment of the log, which groups after it need
//!   G Groups     committed:u64  whole groups of the log
//!   E End        point  complete until:i64
//!   P Position   durable:u64  committed:u64  sent at:i64  beat:u64
//!   X HandedOver point
//!   ? Has        answer:u8
//!   K Control    bytes
//!
//! point     lsn:u64  checksum:u32  epoch:u64  wall time:i64
//! file      folder:u8  name:string  has content:u8 [length:u64  crc:u32]
//! ```
//!
//! The transport separates messages, and reports errors of the server in its own way. Decoding is pure, and no input makes it
//! panic.

use firn_base::{Epoch, Error, Lsn, NodeId, Result, SqlState};
use firn_log::format::SEGMENT_HEADER_LEN;
use firn_log::{DatabaseId, LogPoint};
use firn_txn::{ClusterId, DatabaseFile, Folder};

/// The version of this protocol.
pub const PROTOCOL: u32 = 5;

/// The most files that a message may list: more than a database has.
const MOST_FILES: u32 = 1 << 22;

/// What one that copies or follows asks for.
#[derive(Clone, PartialEq, Debug)]
pub enum Request {
    /// The first message.
    Hello {
        /// The version of its protocol.
        protocol: u32,
        /// The version of the directories that it can store.
        directory_version: u32,
        /// Which voter it is, if it is one.
        voter: Option<NodeId>,
        /// Its name, to be shown to people.
        holder: String,
    },
    /// Asks for a checkpoint and the log up to now.
    Copy {
        /// Where the log ends that it has, if it has one.
        from: Option<LogPoint>,
        /// Files that it has.
        held: Vec<DatabaseFile>,
    },
    /// Asks for the log from a point on, as it grows, until the connection ends. The answer begins with `Log`.
    Follow {
        /// Where the log ends that it has.
        from: LogPoint,
    },
    /// How far it has come with the log that it follows.
    Status {
        /// How far.
        reached: FollowerStatus,
        /// The beat of the last position that was received and has one; 0 if none was since the last answer.
        beat: u64,
    },
    /// Asks the server to hand over the database to the one that follows its log, and to follow that one.
    Handover {
        /// Where the server reaches it: `HOST:PORT`, or a URL.
        server: String,
    },
    /// Asks whether a point is of the history of the server's log.
    Has(LogPoint),
    /// A message between voters about who is the primary: see [`crate::control`].
    Control(Vec<u8>),
}

/// Whether a point is of the history of a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Presence {
    /// It is, and is on disk.
    There,
    /// It is not.
    Nowhere,
    /// The log there is not retained any more.
    Unknown,
}

/// How far one that follows a log has come. Each position is at most the one before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FollowerStatus {
    /// It has received the log up to here, …
    pub received: Lsn,
    /// … has it on disk up to here, with the files that it names, …
    pub flushed: Lsn,
    /// … and readers see what is before this position.
    pub replayed: Lsn,
}

/// What a server sends.
#[derive(Clone, PartialEq, Debug)]
pub enum Reply<'a> {
    /// The answer to `Hello`.
    Identity {
        /// The version of its protocol.
        protocol: u32,
        /// The version of its directory.
        directory_version: u32,
        /// Its database.
        database: DatabaseId,
        /// Its cluster.
        cluster: ClusterId,
        /// Whether it is a primary.
        is_primary: bool,
        /// The epoch in which it writes its log; 0 if it receives it.
        epoch: Epoch,
        /// The version of the program.
        program: &'a str,
    },
    /// The manifest of the checkpoint.
    Manifest(&'a [u8]),
    /// Where the log begins that is sent: where it was asked for, or at the checkpoint if the server has no log from there on.
    Log(LogPoint),
    /// A file, whose content follows.
    File(DatabaseFile),
    /// The next bytes of that file; none at its end.
    Data(&'a [u8]),
    /// The header of a segment.
    Segment(&'a [u8; SEGMENT_HEADER_LEN]),
    /// Whole groups.
    Groups {
        /// Up to where the log is committed.
        committed: Lsn,
        /// Their bytes.
        groups: &'a [u8],
    },
    /// The copy is complete.
    End {
        /// Where its log ends.
        point: LogPoint,
        /// Every commit that was acknowledged before this time is in that log. In microseconds since 1970 UTC.
        complete_until: i64,
    },
    /// To one that follows the log, while it has everything.
    Position {
        /// Up to where the log is on disk.
        durable: Lsn,
        /// Up to where it is committed.
        committed: Lsn,
        /// The time of the server. In microseconds since 1970 UTC.
        sent_at: i64,
        /// Not 0 if an answer is to contain the same number: the time of the server by a clock that is never set.
        beat: u64,
    },
    /// The log ends here, and the server follows the one that has asked for that. All of the log has been sent.
    HandedOver(LogPoint),
    /// The answer to `Has`.
    Has(Presence),
    /// The answer to `Control`.
    Control(&'a [u8]),
}

impl Request {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Request::Hello { protocol, directory_version, voter, holder } => {
                out.push(b'H');
                out.extend(protocol.to_le_bytes());
                out.extend(directory_version.to_le_bytes());
                out.extend(voter.map_or(0, |node| node.0).to_le_bytes());
                put_bytes(&mut out, holder.as_bytes());
            }
            Request::Copy { from, held } => {
                out.push(b'C');
                out.push(u8::from(from.is_some()));
                from.iter().for_each(|point| put_point(&mut out, point));
                out.extend((held.len() as u32).to_le_bytes());
                held.iter().for_each(|file| put_file(&mut out, file));
            }
            Request::Follow { from } => {
                out.push(b'F');
                put_point(&mut out, from);
            }
            Request::Status { reached: FollowerStatus { received, flushed, replayed }, beat } => {
                out.push(b'S');
                [received.0, flushed.0, replayed.0, *beat]
                    .iter()
                    .for_each(|number| out.extend(number.to_le_bytes()));
            }
            Request::Handover { server } => {
                out.push(b'X');
                put_bytes(&mut out, server.as_bytes());
            }
            Request::Has(point) => {
                out.push(b'?');
                put_point(&mut out, point);
            }
            Request::Control(bytes) => {
                out.push(b'K');
                out.extend(bytes);
            }
        }
        out
    }

    /// Reads its bytes. Error: 08P01.
    pub fn decode(bytes: &[u8]) -> Result<Request> {
        let mut input = Input(bytes);
        let request = match input.byte()? {
            b'H' => Request::Hello {
                protocol: input.u32()?,
                directory_version: input.u32()?,
                voter: Some(NodeId(input.u64()?)).filter(|node| node.0 != 0),
                holder: input.string()?.to_owned(),
            },
            b'C' => {
                let from = if input.flag()? { Some(input.point()?) } else { None };
                let count = input.u32()?;
                if count > MOST_FILES {
                    return Err(malformed());
                }
                let held = (0..count).map(|_| input.file()).collect::<Result<_>>()?;
                Request::Copy { from, held }
            }
            b'F' => Request::Follow { from: input.point()? },
            b'X' => Request::Handover { server: input.string()?.to_owned() },
            b'?' => Request::Has(input.point()?),
            b'S' => Request::Status {
                reached: FollowerStatus {
                    received: Lsn(input.u64()?),
                    flushed: Lsn(input.u64()?),
                    replayed: Lsn(input.u64()?),
                },
                beat: input.u64()?,
            },
            b'K' => Request::Control(input.rest().to_vec()),
            _ => return Err(malformed()),
        };
        input.end()?;
        Ok(request)
    }
}

impl<'a> Reply<'a> {
    /// Its bytes, in two parts of which the second is not copied.
    pub fn encode(&self) -> (Vec<u8>, &'a [u8]) {
        let mut out = Vec::new();
        let mut body: &[u8] = &[];
        match self {
            Reply::Identity {
                protocol,
                directory_version,
                database,
                cluster,
                is_primary,
                epoch,
                program,
            } => {
                out.push(b'I');
                out.extend(protocol.to_le_bytes());
                out.extend(directory_version.to_le_bytes());
                out.extend(database.0);
                out.extend(cluster.0);
                out.push(u8::from(*is_primary));
                out.extend(epoch.0.to_le_bytes());
                put_bytes(&mut out, program.as_bytes());
            }
            Reply::Manifest(bytes) => (out, body) = (vec![b'M'], bytes),
            Reply::Log(point) => {
                out.push(b'L');
                put_point(&mut out, point);
            }
            Reply::File(file) => {
                out.push(b'F');
                put_file(&mut out, file);
            }
            Reply::Data(bytes) => (out, body) = (vec![b'D'], bytes),
            Reply::Segment(header) => (out, body) = (vec![b'S'], &header[..]),
            Reply::Groups { committed, groups } => {
                out.push(b'G');
                out.extend(committed.0.to_le_bytes());
                body = groups;
            }
            Reply::End { point, complete_until } => {
                out.push(b'E');
                put_point(&mut out, point);
                out.extend(complete_until.to_le_bytes());
            }
            Reply::Position { durable, committed, sent_at, beat } => {
                out.push(b'P');
                out.extend(durable.0.to_le_bytes());
                out.extend(committed.0.to_le_bytes());
                out.extend(sent_at.to_le_bytes());
                out.extend(beat.to_le_bytes());
            }
            Reply::HandedOver(point) => {
                out.push(b'X');
                put_point(&mut out, point);
            }
            Reply::Has(presence) => out.extend([b'?', *presence as u8]),
            Reply::Control(bytes) => (out, body) = (vec![b'K'], bytes),
        }
        (out, body)
    }

    /// Reads its bytes. Error: 08P01.
    pub fn decode(bytes: &'a [u8]) -> Result<Reply<'a>> {
        let mut input = Input(bytes);
        let reply = match input.byte()? {
            b'I' => Reply::Identity {
                protocol: input.u32()?,
                directory_version: input.u32()?,
                database: DatabaseId(*input.array()?),
                cluster: ClusterId(*input.array()?),
                is_primary: input.flag()?,
                epoch: Epoch(input.u64()?),
                program: input.string()?,
            },
            b'M' => Reply::Manifest(input.rest()),
            b'L' => Reply::Log(input.point()?),
            b'F' => Reply::File(input.file()?),
            b'D' => Reply::Data(input.rest()),
            b'S' => Reply::Segment(input.array()?),
            b'G' => Reply::Groups { committed: Lsn(input.u64()?), groups: input.rest() },
            b'K' => Reply::Control(input.rest()),
            b'E' => Reply::End { point: input.point()?, complete_until: input.i64()? },
            b'P' => Reply::Position {
                durable: Lsn(input.u64()?),
                committed: Lsn(input.u64()?),
                sent_at: input.i64()?,
                beat: input.u64()?,
            },
            b'X' => Reply::HandedOver(input.point()?),
            b'?' => {
                let presences = [Presence::There, Presence::Nowhere, Presence::Unknown];
                let byte = input.byte()?;
                Reply::Has(*presences.get(usize::from(byte)).ok_or_else(malformed)?)
            }
            _ => return Err(malformed()),
        };
        input.end()?;
        Ok(reply)
    }
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as u32).to_le_bytes());
    out.extend(bytes);
}

fn put_point(out: &mut Vec<u8>, point: &LogPoint) {
    out.extend(point.lsn.0.to_le_bytes());
    out.extend(point.checksum.to_le_bytes());
    out.extend(point.epoch.0.to_le_bytes());
    out.extend(point.wall_time.to_le_bytes());
}

fn put_file(out: &mut Vec<u8>, file: &DatabaseFile) {
    out.push(match file.folder {
        Folder::Checkpoint => b'c',
        Folder::Log => b'l',
    });
    put_bytes(out, file.name.as_bytes());
    out.push(u8::from(file.content.is_some()));
    if let Some((length, crc)) = file.content {
        out.extend(length.to_le_bytes());
        out.extend(crc.to_le_bytes());
    }
}

/// The rest of a message.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or_else(malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const LENGTH: usize>(&mut self) -> Result<&'a [u8; LENGTH]> {
        let (taken, rest) = self.0.split_first_chunk().ok_or_else(malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8> {
        self.array::<1>().map(|byte| byte[0])
    }

    fn flag(&mut self) -> Result<bool> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(malformed()),
        }
    }

    fn u32(&mut self) -> Result<u32> {
        self.array().map(|bytes| u32::from_le_bytes(*bytes))
    }

    fn u64(&mut self) -> Result<u64> {
        self.array().map(|bytes| u64::from_le_bytes(*bytes))
    }

    fn i64(&mut self) -> Result<i64> {
        self.array().map(|bytes| i64::from_le_bytes(*bytes))
    }

    fn string(&mut self) -> Result<&'a str> {
        let length = self.u32()?;
        std::str::from_utf8(self.take(length as usize)?).map_err(|_| malformed())
    }

    fn point(&mut self) -> Result<LogPoint> {
        let (lsn, checksum) = (Lsn(self.u64()?), self.u32()?);
        Ok(LogPoint { lsn, checksum, epoch: Epoch(self.u64()?), wall_time: self.i64()? })
    }

    fn file(&mut self) -> Result<DatabaseFile> {
        let folder = match self.byte()? {
            b'c' => Folder::Checkpoint,
            b'l' => Folder::Log,
            _ => return Err(malformed()),
        };
        let name = self.string()?;
        // It becomes part of a path.
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
        if name.is_empty() || name.starts_with('.') || !name.bytes().all(is_name) {
            return Err(malformed());
        }
        let content = if self.flag()? { Some((self.u64()?, self.u32()?)) } else { None };
        Ok(DatabaseFile { folder, name: name.to_owned(), content })
    }

    fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    fn end(self) -> Result<()> {
        if self.0.is_empty() { Ok(()) } else { Err(malformed()) }
    }
}

#[cold]
fn malformed() -> Error {
    Error::new(SqlState::PROTOCOL_VIOLATION, "a message of the replication protocol is malformed")
}

#[cfg(test)]
mod tests {
    use super::*;

    const POINT: LogPoint =
        LogPoint { lsn: Lsn(4711), checksum: 0x0403_0201, epoch: Epoch(3), wall_time: -1 };

    fn table_file() -> DatabaseFile {
        DatabaseFile { folder: Folder::Checkpoint, name: "4-2-0.arrow".into(), content: Some((99, 7)) }
    }

    fn requests() -> Vec<Request> {
        let spill = DatabaseFile { folder: Folder::Log, name: "0-1.spill".into(), content: None };
        vec![
            Request::Hello { protocol: 1, directory_version: 6, voter: None, holder: "a copy".into() },
            Request::Hello { protocol: 1, directory_version: 6, voter: Some(NodeId(5)), holder: "v".into() },
            Request::Follow { from: POINT },
            Request::Status {
                reached: FollowerStatus { received: Lsn(3), flushed: Lsn(2), replayed: Lsn(1) },
                beat: 9,
            },
            Request::Copy { from: None, held: Vec::new() },
            Request::Copy { from: Some(POINT), held: vec![table_file(), spill] },
            Request::Handover { server: "b.example:5432".into() },
            Request::Has(POINT),
        ]
    }

    fn replies() -> Vec<Reply<'static>> {
        vec![
            Reply::Identity {
                protocol: 1,
                directory_version: 6,
                database: DatabaseId([1; 16]),
                cluster: ClusterId([2; 16]),
                is_primary: true,
                epoch: Epoch(4),
                program: "0.1.0",
            },
            Reply::Manifest(b"FIRNDB"),
            Reply::Log(POINT),
            Reply::File(table_file()),
            Reply::Data(b""),
            Reply::Data(b"ARROW1"),
            Reply::Segment(&[9; SEGMENT_HEADER_LEN]),
            Reply::Groups { committed: Lsn(5), groups: b"groups" },
            Reply::Position { durable: Lsn(7), committed: Lsn(6), sent_at: -7, beat: 9 },
            Reply::HandedOver(POINT),
            Reply::Has(Presence::Unknown),
            Reply::End { point: POINT, complete_until: 12 },
        ]
    }

    fn bytes_of(reply: &Reply<'_>) -> Vec<u8> {
        let (head, body) = reply.encode();
        [&head, body].concat()
    }

    #[test]
    fn a_message_is_read_as_it_was_written_and_no_other_bytes_are_one() {
        for request in requests() {
            let bytes = request.encode();
            assert_eq!(Request::decode(&bytes).unwrap(), request);
            for length in 0..bytes.len() {
                let error = Request::decode(&bytes[..length]).unwrap_err();
                assert_eq!(error.state(), SqlState::PROTOCOL_VIOLATION);
            }
            assert!(Request::decode(&[&bytes[..], b"x"].concat()).is_err());
        }
        for reply in replies() {
            assert_eq!(Reply::decode(&bytes_of(&reply)).unwrap(), reply);
        }
        let exact = [
            &b"E\x67\x12\0\0\0\0\0\0\x01\x02\x03\x04\x03\0\0\0\0\0\0\0"[..],
            &[0xff; 8],
            &[12, 0, 0, 0, 0, 0, 0, 0],
        ];
        assert_eq!(bytes_of(replies().last().unwrap()), exact.concat());
    }

    #[test]
    fn no_bytes_make_decoding_panic() {
        for bytes in requests().iter().map(Request::encode).chain(replies().iter().map(bytes_of)) {
            for at in 0..bytes.len() {
                for value in [0, 1, 0x7f, 0x80, 0xff] {
                    let mut changed = bytes.clone();
                    changed[at] = value;
                    let _ = (Request::decode(&changed), Reply::decode(&changed));
                }
            }
        }
    }

    #[test]
    fn a_name_never_leads_out_of_its_folder() {
        for name in ["", ".", "..", "../MANIFEST", "a/b", "a\\b", "a\0", ".hidden"] {
            let file = DatabaseFile { name: name.into(), ..table_file() };
            let mut bytes = vec![b'F'];
            put_file(&mut bytes, &file);
            assert!(Reply::decode(&bytes).is_err(), "{name:?}");
        }
    }
}
