//! Long queries of a primary that its replicas run (`firn serve --route-queries`).
//!
//! A replica connects to the server that it follows, and offers to run queries: so the primary needs no address of it, and no
//! password. The connection carries these messages, of one kind:u8 each:
//!
//! ```text
//! from the replica
//!   O Offer    replica:u64  database:16  cluster:16  the version of its program
//!   L Load     running:u32  replayed:u64               while it waits for a query, and after each
//!   S Started  time:u64                                after which the snapshot of the query shows no commit
//!   R Rows     the image of some rows
//!   E End      after the last rows
//!   X Error    SQLSTATE:5  has detail:u8  has hint:u8  message, detail, hint, each its length:u32 and its bytes
//!   W Working  while it has nothing else to say
//! from the primary
//!   Q Query    see `RoutedQuery`
//!   A Alive    the answer to Load
//! ```
//!
//! A query is ended by closing its connection. Both programs must have the same version, since the images of rows have none.
//! [`Router`] is the primary's side, [`Offers`] that of a replica.

mod offers;
mod router;

pub use offers::{Offers, Primary};
pub use router::Router;

use firn_base::{Error, Lsn, Result, SqlState, Time};
use firn_log::DatabaseId;
use firn_txn::ClusterId;
use std::time::Duration;

/// The version of this program.
const PROGRAM: &str = env!("CARGO_PKG_VERSION");

/// How often a replica says how busy it is.
const LOAD_EVERY: Duration = Duration::from_millis(200);

/// How often a replica that runs a query shows that it does.
const PULSE_EVERY: Duration = Duration::from_secs(1);

/// A replica, or a primary, that is silent for so long is lost.
const LONGEST_SILENCE: Duration = Duration::from_secs(4);

/// A replica that has said nothing for so long gets no query.
const SOON: Duration = Duration::from_secs(1);

/// Who offers to run queries.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Offer {
    /// A number of the replica, which all of its connections have.
    replica: u64,
    database: DatabaseId,
    cluster: ClusterId,
    program: String,
}

/// A message of a replica.
#[derive(Clone, Debug)]
enum Answer {
    Offer(Offer),
    /// How many statements run there, and up to where it has replayed the log.
    Load {
        running: u32,
        replayed: Lsn,
    },
    Started(Time),
    Rows(Vec<u8>),
    End,
    Error(Error),
    Working,
}

impl Answer {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Answer::Offer(offer) => {
                out.push(b'O');
                out.extend(offer.replica.to_le_bytes());
                out.extend(offer.database.0);
                out.extend(offer.cluster.0);
                out.extend_from_slice(offer.program.as_bytes());
            }
            Answer::Load { running, replayed } => {
                out.push(b'L');
                out.extend(running.to_le_bytes());
                out.extend(replayed.0.to_le_bytes());
            }
            Answer::Started(time) => {
                out.push(b'S');
                out.extend(time.0.to_le_bytes());
            }
            Answer::Rows(image) => {
                out.push(b'R');
                out.extend_from_slice(image);
            }
            Answer::End => out.push(b'E'),
            Answer::Error(error) => {
                out.push(b'X');
                out.extend_from_slice(error.state().as_str().as_bytes());
                out.extend([u8::from(error.detail().is_some()), u8::from(error.hint().is_some())]);
                for text in [Some(error.message()), error.detail(), error.hint()].into_iter().flatten() {
                    out.extend(u32::try_from(text.len()).expect("errors are shorter").to_le_bytes());
                    out.extend_from_slice(text.as_bytes());
                }
            }
            Answer::Working => out.push(b'W'),
        }
        out
    }

    fn decode(message: &[u8]) -> Result<Answer> {
        Answer::try_decode(message).ok_or_else(out_of_turn)
    }

    fn try_decode(message: &[u8]) -> Option<Answer> {
        let (kind, mut rest) = message.split_first()?;
        let rest = &mut rest;
        Some(match kind {
            b'O' => Answer::Offer(Offer {
                replica: u64::from_le_bytes(taken(rest)?),
                database: DatabaseId(taken(rest)?),
                cluster: ClusterId(taken(rest)?),
                program: str::from_utf8(rest).ok()?.to_owned(),
            }),
            b'L' => Answer::Load {
                running: u32::from_le_bytes(taken(rest)?),
                replayed: Lsn(u64::from_le_bytes(taken(rest)?)),
            },
            b'S' => Answer::Started(Time(u64::from_le_bytes(taken(rest)?))),
            b'R' => Answer::Rows(rest.to_vec()),
            b'E' => Answer::End,
            b'X' => {
                let state: [u8; 5] = taken(rest)?;
                if !state.iter().all(u8::is_ascii_alphanumeric) {
                    return None;
                }
                let [has_detail, has_hint] = taken(rest)?;
                let error = Error::new(SqlState::new(str::from_utf8(&state).ok()?), text(rest)?);
                let error = if has_detail == 1 { error.with_detail(text(rest)?) } else { error };
                let error = if has_hint == 1 { error.with_hint(text(rest)?) } else { error };
                Answer::Error(error)
            }
            b'W' => Answer::Working,
            _ => return None,
        })
    }
}

fn taken<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*taken)
}

fn text(bytes: &mut &[u8]) -> Option<String> {
    let length = u32::from_le_bytes(taken(bytes)?) as usize;
    let (text, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    str::from_utf8(text).ok().map(str::to_owned)
}

#[cold]
fn out_of_turn() -> Error {
    Error::new(SqlState::PROTOCOL_VIOLATION, "unexpected message on a connection for queries")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_they_were_written_and_others_are_refused() {
        let error = Error::new(SqlState::DIVISION_BY_ZERO, "division by zero");
        let offer = Offer {
            replica: 7,
            database: DatabaseId([1; 16]),
            cluster: ClusterId([2; 16]),
            program: "firn 0.1".to_owned(),
        };
        for answer in [
            Answer::Offer(offer),
            Answer::Load { running: 3, replayed: Lsn(1 << 40) },
            Answer::Started(Time(9)),
            Answer::Rows(vec![1, 2, 3]),
            Answer::End,
            Answer::Error(error.clone()),
            Answer::Error(error.clone().with_hint("Do not.")),
            Answer::Error(error.with_detail("It is zero.").with_hint("Do not.")),
            Answer::Working,
        ] {
            let bytes = answer.encode();
            let read = Answer::decode(&bytes).unwrap();
            assert_eq!(format!("{read:?}"), format!("{answer:?}"));
            let is_open_ended = matches!(answer, Answer::Offer(_) | Answer::Rows(_));
            for length in 0..bytes.len() {
                assert!(is_open_ended || Answer::decode(&bytes[..length]).is_err(), "{answer:?} {length}");
            }
        }
    }
}
