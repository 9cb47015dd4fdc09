//! How a file is stored: as an object of its name, and further ones for what was added after the first sync.
//!
//! ```text
//! backups/…/000000000000.log                             bytes 0 .. 70000 of the file
//! backups/…/000000000000.log@/00000000000000070000       bytes 70000 .. 1300000
//! backups/…/000000000000.log@/00000000000001300000       …
//! ```
//!
//! Nearly all files are one object. The name of a piece is where it begins in the file. Only the last one is ever written again,
//! with what it had at its front.
//!
//! Invariant: a piece begins where the one before it ends. Pieces are added in order and removed last first, so after a crash there is
//! always a prefix of the file. Pieces without the first object are no file; they are removed when a file of their name is created.

use firn_base::{Error, Result, SqlState};
use object_store::ObjectMeta;
use object_store::path::Path as Key;

/// The suffix of the name below which the further pieces of a file are. No name of ours ends with it.
const SUFFIX: char = '@';

/// An object with part of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Piece {
    pub begin: u64,
    pub length: u64,
}

impl Piece {
    pub fn end(&self) -> u64 {
        self.begin + self.length
    }
}

/// What the names of a file's further pieces begin with.
pub(crate) fn prefix(file: &Key) -> Key {
    Key::parse(format!("{file}{SUFFIX}")).expect("the name of a file is one with a suffix, too")
}

/// The name of the piece of a file that begins there.
pub(crate) fn key(file: &Key, begin: u64) -> Key {
    if begin == 0 { file.clone() } else { prefix(file).join(format!("{begin:020}")) }
}

/// Whether a name in a directory is that of pieces.
pub(crate) fn is_of_pieces(name: &str) -> bool {
    name.ends_with(SUFFIX)
}

/// The further pieces of a file among the objects below their prefix, in order. Other objects there are passed over.
pub(crate) fn further(listed: &[ObjectMeta]) -> Vec<Piece> {
    let begin = |object: &ObjectMeta| object.location.filename().and_then(|name| name.parse().ok());
    let mut pieces: Vec<Piece> = listed
        .iter()
        .filter_map(|object| Some(Piece { begin: begin(object)?, length: object.size }))
        .collect();
    pieces.sort_by_key(|piece| piece.begin);
    pieces
}

/// All pieces of a file whose first object has this length. Error: XX001 if one is missing.
pub(crate) fn all(shown: &str, first: u64, listed: &[ObjectMeta]) -> Result<Vec<Piece>> {
    let mut pieces = vec![Piece { begin: 0, length: first }];
    pieces.extend(further(listed));
    match pieces.is_sorted_by(|one, next| one.end() == next.begin) {
        true => Ok(pieces),
        false => Err(Error::new(SqlState::DATA_CORRUPTED, format!("the file \"{shown}\" lacks a part"))
            .with_detail(format!("Its parts are \"{shown}\" and the objects in \"{shown}{SUFFIX}/\"."))
            .with_hint("Use another backup.")),
    }
}
