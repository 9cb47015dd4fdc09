//! A replica as its sessions see it: the errors of what a replica refuses, and tokens, which name a position of the log that is to be
//! read.
//!
//! | statement or function | error in a replica |
//! |---|---|
//! | changes of rows and of the catalog, `nextval`, row locks | 25006 "… in a read-only transaction" |
//! | COPY FROM, VACUUM, ANALYZE, REINDEX, CLUSTER, locks above ROW EXCLUSIVE, transaction numbers | 25006 "… during recovery" |
//! | SET TRANSACTION READ WRITE | 0A000 |
//! | functions that control the log | 55000 "recovery is in progress" |

use firn_base::text::{parse_lsn, write_lsn};
use firn_base::{Epoch, Error, Lsn, Result, SqlState};
use firn_txn::Engine;
use std::fmt;

/// What a commit is acknowledged after: the setting `synchronous_commit`. Each includes those before.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum SynchronousCommit {
    /// Nothing: it may be lost if this server crashes.
    Off,
    /// The flush of this server.
    Local,
    /// Also the receipt by the synchronous standbys.
    RemoteWrite,
    /// Also the flush of a majority of the voters, and of the synchronous standbys.
    On,
    /// Also the replay by the synchronous standbys.
    RemoteApply,
}

impl SynchronousCommit {
    /// The mode with a value of the setting.
    pub fn named(value: &str) -> Option<SynchronousCommit> {
        Some(match value {
            "off" => SynchronousCommit::Off,
            "local" => SynchronousCommit::Local,
            "remote_write" => SynchronousCommit::RemoteWrite,
            "on" => SynchronousCommit::On,
            "remote_apply" => SynchronousCommit::RemoteApply,
            _ => return None,
        })
    }
}

/// What a session wants to read: everything that is in the log up to a position. Its text is `epoch:lsn`, or `lsn` alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Token {
    /// The epoch of the position; `None` for that of the server.
    pub epoch: Option<Epoch>,
    /// The position.
    pub lsn: Lsn,
}

impl Token {
    /// Reads the text of a token.
    pub fn parse(text: &str) -> Option<Token> {
        let text = text.trim();
        let (epoch, lsn) = match text.split_once(':') {
            Some((epoch, lsn)) => {
                let is_number = !epoch.is_empty() && epoch.bytes().all(|byte| byte.is_ascii_digit());
                (Some(Epoch(epoch.parse().ok().filter(|_| is_number)?)), lsn)
            }
            None => (None, text),
        };
        Some(Token { epoch, lsn: Lsn(parse_lsn(lsn).ok()? as u64) })
    }

    /// The token of everything that is visible now. In a primary that is on disk then: another server never receives what is not.
    ///
    /// Errors: those of a log that has failed.
    pub fn of_visible(engine: &Engine) -> Result<Token> {
        let lsn = engine.visible_lsn();
        let mut point = engine.log_point()?;
        if point.lsn < lsn {
            engine.flush_log()?;
            point = engine.log_point()?;
        }
        Ok(Token { epoch: Some(engine.epoch_before(lsn).unwrap_or(point.epoch)), lsn })
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.epoch {
            Some(epoch) => write!(f, "{}:{}", epoch.0, lsn_text(self.lsn)),
            None => f.write_str(&lsn_text(self.lsn)),
        }
    }
}

/// A position as `pg_lsn` prints it.
pub fn lsn_text(lsn: Lsn) -> String {
    let mut text = String::new();
    write_lsn(lsn.0 as i64, &mut text);
    text
}

/// 25006 for a command that changes something, in a transaction that may only read.
#[cold]
pub fn in_read_only(command: &str, engine: &Engine) -> Error {
    let message = format!("cannot execute {command} in a read-only transaction");
    with_primary(Error::new(SqlState::READ_ONLY_SQL_TRANSACTION, message), engine)
}

/// 25006 for a command that a replica refuses, although it changes no row.
#[cold]
pub fn during_recovery(command: &str, engine: &Engine) -> Error {
    let message = format!("cannot execute {command} during recovery");
    with_primary(Error::new(SqlState::READ_ONLY_SQL_TRANSACTION, message), engine)
}

/// 0A000 for a transaction of a replica that is to write.
#[cold]
pub fn no_read_write(engine: &Engine) -> Error {
    let message = "cannot set transaction read-write mode during recovery";
    with_primary(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message), engine)
}

/// In a replica, adds which server accepts what it refuses.
fn with_primary(error: Error, engine: &Engine) -> Error {
    match engine.upstream() {
        Some(server) => error
            .with_hint(format!("Write to the server that it follows: {}.", firn_txn::address_of(&server))),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_as_it_is_printed() {
        for (text, epoch, lsn) in [
            ("7:0/1A2B3C", Some(Epoch(7)), 0x1A_2B3C),
            ("1/0", None, 1 << 32),
            (" 0:0/0 ", Some(Epoch(0)), 0),
        ] {
            let token = Token::parse(text).unwrap();
            assert_eq!(token, Token { epoch, lsn: Lsn(lsn) }, "{text}");
            assert_eq!(token.to_string(), text.trim());
        }
        for wrong in
            ["", "7", "7:", ":0/1", "+7:0/1", "7:0/1/2", "a:0/1", "7:0/G", "99999999999999999999:0/1"]
        {
            assert_eq!(Token::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn an_address_has_no_password() {
        for (server, address) in [
            ("127.0.0.1:5432", "127.0.0.1:5432"),
            ("postgres://ada:secret@db.example:5432/library", "db.example:5432"),
            ("postgres://ada:s@cret@[::1]:5432", "[::1]:5432"),
            ("postgres://db.example/library?user=ada&password=s@cret", "db.example"),
            ("ada:secret@db.example:1", "db.example:1"),
        ] {
            assert_eq!(firn_txn::address_of(server), address, "{server}");
        }
    }
}
