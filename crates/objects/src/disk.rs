//! An object store as a file system.
//!
//! A directory is what the names of objects begin with; it need not be created, and has no content of its own. See [`pieces`] for the
//! files.

use crate::file::ObjectFile;
use crate::lease::{self, Lease};
use crate::pieces;
use crate::reading::ReadFile;
use crate::store::{LONGEST, Sizes, Store, version_of};
use firn_base::disk::{Disk, DiskFile, DiskLock, Medium};
use firn_base::sync::Arc;
use firn_base::{Error, Result, SqlState};
use object_store::path::Path as Key;
use object_store::{ListResult, ObjectStore, ObjectStoreExt};
use std::path::Path;
use std::time::Duration;

/// The files in an object store. Paths are as they are shown: they begin with the root of the store, such as `s3://bucket`.
#[derive(Clone, Debug)]
pub struct ObjectDisk {
    store: Arc<Store>,
    lease: Duration,
}

impl ObjectDisk {
    /// The files of a store that is shown as `root`.
    pub fn new(root: &str, objects: Arc<dyn ObjectStore>) -> Result<ObjectDisk> {
        ObjectDisk::with(root, objects, Sizes::USUAL, lease::DURATION)
    }

    /// One for tests: what goes into one object or request is small, and locks expire after this time.
    pub fn small(root: &str, objects: Arc<dyn ObjectStore>, lease: Duration) -> Result<ObjectDisk> {
        ObjectDisk::with(root, objects, Sizes::SMALL, lease)
    }

    fn with(root: &str, objects: Arc<dyn ObjectStore>, sizes: Sizes, lease: Duration) -> Result<ObjectDisk> {
        Ok(ObjectDisk { store: Arc::new(Store::new(root, objects, sizes)?), lease })
    }

    fn key(&self, path: &Path) -> Result<Key> {
        let root = self.store.root.as_str();
        let inner = path.to_str().and_then(|path| path.strip_prefix(root));
        let key = inner.and_then(|inner| Key::parse(inner).ok());
        key.ok_or_else(|| {
            let message = format!("\"{}\" is no name for an object in \"{root}\"", path.display());
            Error::new(SqlState::INVALID_PARAMETER_VALUE, message)
        })
    }

    /// The names directly in a directory, and whether the further pieces of files without a first one are there.
    fn names_in(&self, directory: &Key) -> Result<(Vec<String>, bool)> {
        let listed = self.store.objects.list_with_delimiter(Some(directory));
        Ok(names_of(&self.store.run("list", directory, LONGEST, listed)?, directory))
    }

    #[cold]
    fn missing(&self, operation: &str, key: &Key) -> Error {
        let message = format!("could not {operation} \"{}\": there is no such file", self.store.shown(key));
        Error::new(SqlState::UNDEFINED_FILE, message)
    }

    #[cold]
    fn unsupported(&self, what: &str, path: &Path) -> Error {
        let message = format!("an object store has no {what}: \"{}\"", path.display());
        Error::new(SqlState::FEATURE_NOT_SUPPORTED, message).with_hint("Use a directory on a disk.")
    }
}

/// See [`ObjectDisk::names_in`].
fn names_of(listed: &ListResult, directory: &Key) -> (Vec<String>, bool) {
    let keys = listed.objects.iter().map(|object| &object.location).chain(&listed.common_prefixes);
    let names = keys.filter(|key| *key != directory).filter_map(|key| key.filename());
    let (pieces, names): (Vec<&str>, Vec<&str>) = names.partition(|name| pieces::is_of_pieces(name));
    let mut names: Vec<String> = names.into_iter().map(str::to_owned).collect();
    names.sort();
    (names, !pieces.is_empty())
}

impl Disk for ObjectDisk {
    fn medium(&self) -> Medium {
        Medium::Objects
    }

    fn create_directory(&self, path: &Path) -> Result<()> {
        self.key(path).map(drop)
    }

    fn create(&self, path: &Path) -> Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(ObjectFile::create(self.store.clone(), self.key(path)?)))
    }

    fn create_temporary(&self, directory: &Path) -> Result<Arc<dyn DiskFile>> {
        Err(self.unsupported("temporary files", directory))
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn DiskFile>> {
        let key = self.key(path)?;
        let first = self.store.head(&key)?.ok_or_else(|| self.missing("open file", &key))?;
        let further = self.store.list_all(&pieces::prefix(&key))?;
        let pieces = pieces::all(&self.store.shown(&key), first.size, &further)?;
        Ok(Arc::new(ObjectFile::open(self.store.clone(), key, pieces, version_of(&first))?))
    }

    fn open_to_read(&self, path: &Path) -> Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(ReadFile::open(self.store.clone(), self.key(path)?)?))
    }

    fn open_write_through(&self, path: &Path) -> Result<Arc<dyn DiskFile>> {
        Err(self.unsupported("files that are written through", path))
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        let key = self.key(path)?;
        let objects = &self.store.objects;
        let requests = async {
            let (object, listed) = tokio::join!(objects.head(&key), objects.list_with_delimiter(Some(&key)));
            match object {
                Err(error) if !matches!(error, object_store::Error::NotFound { .. }) => Err(error),
                object => Ok((object.is_ok(), listed?)),
            }
        };
        let (is_file, listed) = self.store.run("look for", &key, LONGEST, requests)?;
        Ok(is_file || !names_of(&listed, &key).0.is_empty())
    }

    fn remove(&self, path: &Path) -> Result<()> {
        let key = self.key(path)?;
        self.store.head(&key)?.ok_or_else(|| self.missing("remove file", &key))?;
        for piece in pieces::further(&self.store.list_all(&pieces::prefix(&key))?).iter().rev() {
            self.store.delete(&pieces::key(&key, piece.begin))?;
        }
        self.store.delete(&key)
    }

    /// Objects have one name. Nothing that writes backups renames files here: see [`Disk::medium`].
    fn rename(&self, from: &Path, _: &Path) -> Result<()> {
        Err(self.unsupported("other names for files", from))
    }

    fn remove_directory(&self, path: &Path) -> Result<()> {
        let key = self.key(path)?;
        let (names, has_pieces) = self.names_in(&key)?;
        if let Some(name) = names.first() {
            let shown = self.store.shown(&key);
            let message = format!("could not remove directory \"{shown}\": it holds \"{name}\"");
            return Err(Error::new(SqlState::IO_ERROR, message));
        }
        if has_pieces {
            for piece in self.store.list_all(&key)?.iter().rev() {
                self.store.delete(&piece.location)?;
            }
        }
        Ok(())
    }

    fn list(&self, directory: &Path) -> Result<Vec<String>> {
        Ok(self.names_in(&self.key(directory)?)?.0)
    }

    fn sync_directory(&self, _: &Path) -> Result<()> {
        Ok(())
    }

    fn free_bytes(&self, _: &Path) -> Result<u64> {
        Ok(u64::MAX)
    }

    fn lock(&self, path: &Path) -> Result<DiskLock> {
        Ok(DiskLock::new(Lease::take(&self.store, &self.key(path)?, self.lease)?))
    }
}
