//! The column with the file of each row: no file contains it, so readers ignore it. Conditions over it
//! alone decide which files are read at all.

use super::condition::Condition;
use firn_base::{Representation, Value};
use firn_executor::source::Request;
use firn_executor::values;
use firn_vector::{Chunk, Registry, Vector};
use std::path::{Path, PathBuf};

/// Files whose names are compared at once.
const FILES_AT_ONCE: usize = 1 << 10;

/// The position of the file names among the requested columns.
#[derive(Clone, Copy)]
pub(super) struct Names {
    at: usize,
}

impl Names {
    /// Removes the column with this number from the requested ones, if it is among them.
    pub fn among(wanted: &mut Vec<usize>, number: usize) -> Option<Names> {
        let at = wanted.iter().position(|column| *column == number)?;
        wanted.remove(at);
        Some(Names { at })
    }
}

/// A chunk of a file's rows with these vectors, and with the file's name if it is requested.
pub(super) fn chunk(names: Option<Names>, mut vectors: Vec<Vector>, rows: usize, path: &Path) -> Chunk {
    if let Some(Names { at }) = names {
        let name = Value::Text(path.to_string_lossy().into_owned());
        vectors.insert(at, values::constant(&name, Representation::Text, rows));
    }
    Chunk::new(rows, vectors)
}

/// Keeps the files whose names satisfy those conditions that use nothing else. `number` is that of the column.
pub(super) fn choose(request: &Request<'_>, registry: &Registry, number: usize, paths: &mut Vec<PathBuf>) {
    let place = |attribute: i16| (attribute as usize == number + 1).then_some(0);
    let Some(condition) = Condition::new(request, registry, place) else { return };
    let mut met = Vec::with_capacity(paths.len());
    for paths in paths.chunks(FILES_AT_ONCE) {
        let mut names = firn_vector::builder::Builder::new(Representation::Text);
        for path in paths {
            values::push(&mut names, &Value::Text(path.to_string_lossy().into_owned()), Representation::Text);
        }
        let Some(kept) = condition.select(Chunk::new(paths.len(), vec![names.finish()])) else { return };
        let first = met.len();
        met.resize(first + paths.len(), false);
        kept.rows().each(|row| met[first + row] = true);
    }
    let mut met = met.into_iter();
    paths.retain(|_| met.next().unwrap_or(true));
}
