//! An object store whose requests block the caller.
//!
//! Async code ends here: a small runtime runs the requests. Each ends after a bounded time: the library repeats one that fails for a
//! while, and what takes longer than [`LONGEST`], or [`LONGEST_TRANSFER`], is given up. Few send data at once, so that they
//! share a slow network among few.

use crate::error::{failed, slow};
use crate::lease::Leases;
use bytes::Bytes;
use firn_base::sync::Arc;
use firn_base::{Error, Result, SqlState};
use futures::StreamExt;
use object_store::client::{HttpError, HttpErrorKind};
use object_store::path::Path as Key;
use object_store::{
    GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutPayload, UpdateVersion,
};
use std::fmt;
use std::ops::Range;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tokio::time::error::Elapsed;

/// The longest time that a request may take, with all repetitions, that transfers little. After some of them others see something else: a
/// [lease](crate::lease) outlives these.
pub(crate) const LONGEST: Duration = Duration::from_secs(35);
/// The same for a request that transfers data, or lists many objects.
pub(crate) const LONGEST_TRANSFER: Duration = Duration::from_secs(600);
/// How many requests send data at once.
const TRANSFERS_AT_ONCE: usize = 4;

/// How much goes into one object and one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// A piece of at least so many bytes is complete after a sync: see [`file`](crate::file).
    pub piece: u64,
    /// More than this is uploaded in parts, since an object has to be written within [`LONGEST`].
    pub single: u64,
    /// The length of the first parts of an upload, and how many there are. Stores limit the number of parts (10 000) …
    pub part: u64,
    pub small_parts: usize,
    /// … so those after them are longer: a file may have up to 560 GiB.
    pub large_part: u64,
    /// So much of what was written last can still be cut off or written over. The last page of a file is.
    pub kept: u64,
    /// How much is read with the opening of a file: see [`reading`](crate::reading).
    pub first: u64,
    /// How much of that is kept if the file has more: many files are opened for their headers.
    pub header: u64,
    /// The most that one request reads.
    pub chunk: u64,
    /// How much is requested ahead after the beginning or another place, and at most.
    pub least_ahead: u64,
    pub most_ahead: u64,
}

impl Sizes {
    pub const USUAL: Sizes = Sizes {
        piece: 512 << 10,
        single: 2 << 20,
        part: 8 << 20,
        small_parts: 1000,
        large_part: 64 << 20,
        kept: 64 << 10,
        first: 256 << 10,
        header: 4 << 10,
        chunk: 4 << 20,
        least_ahead: 1 << 20,
        most_ahead: 16 << 20,
    };
    /// For tests, so that files have many pieces, parts and requests.
    pub const SMALL: Sizes = Sizes {
        piece: 1000,
        single: 16_000,
        part: 16_000,
        small_parts: 3,
        large_part: 24_000,
        kept: 8192,
        first: 500,
        header: 100,
        chunk: 5000,
        least_ahead: 2000,
        most_ahead: 20_000,
    };
}

/// A bucket, or a part of one.
pub(crate) struct Store {
    /// How the bucket is shown, such as `s3://bucket`.
    pub root: String,
    pub objects: Arc<dyn ObjectStore>,
    pub sizes: Sizes,
    pub leases: Leases,
    /// What a request holds that sends data.
    sending: Arc<Semaphore>,
    /// `None` once it is dropped.
    runtime: Option<Runtime>,
}

impl Drop for Store {
    fn drop(&mut self) {
        // What it still waits for, such as the name of a host, nobody needs.
        self.runtime.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Store").field(&self.root).finish()
    }
}

impl Store {
    pub fn new(root: &str, objects: Arc<dyn ObjectStore>, sizes: Sizes) -> Result<Store> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("firn-objects")
            .enable_all()
            .build()
            .map_err(|error| Error::new(SqlState::INTERNAL_ERROR, format!("no thread: {error}")))?;
        let (root, sending) = (root.to_owned(), Arc::new(Semaphore::new(TRANSFERS_AT_ONCE)));
        Ok(Store { root, objects, sizes, leases: Leases::default(), sending, runtime: Some(runtime) })
    }

    fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("it is open")
    }

    /// An object as it is shown.
    pub fn shown(&self, key: &Key) -> String {
        format!("{}/{key}", self.root)
    }

    /// Runs a request, for so long at most.
    pub fn run<T>(
        &self,
        operation: &str,
        key: &Key,
        longest: Duration,
        request: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T> {
        match self.try_run(longest, request) {
            Some(outcome) => outcome.map_err(|error| failed(operation, &self.shown(key), &error)),
            None => Err(slow(operation, &self.shown(key))),
        }
    }

    /// The same, with the library's error; `None` if it takes too long.
    pub fn try_run<T>(
        &self,
        longest: Duration,
        request: impl Future<Output = object_store::Result<T>>,
    ) -> Option<object_store::Result<T>> {
        self.runtime().block_on(async { tokio::time::timeout(longest, request).await }).ok()
    }

    /// Runs a request beside the caller.
    pub fn spawn<T: Send + 'static>(
        &self,
        request: impl Future<Output = T> + Send + 'static,
    ) -> tokio::task::JoinHandle<T> {
        self.runtime().spawn(request)
    }

    /// Sends part of an upload beside the caller, once few do.
    pub fn send(
        &self,
        part: impl Future<Output = object_store::Result<()>> + Send + 'static,
    ) -> tokio::task::JoinHandle<object_store::Result<()>> {
        let sending = self.sending.clone();
        self.spawn(async move {
            let _permit = sending.acquire().await.expect("it is not closed");
            tokio::time::timeout(LONGEST_TRANSFER, part)
                .await
                .unwrap_or_else(|elapsed| Err(timed_out(elapsed)))
        })
    }

    /// Waits for something.
    pub fn wait<T>(&self, what: impl Future<Output = T>) -> T {
        self.runtime().block_on(what)
    }

    /// What is known of an object; `None` if there is none.
    pub fn head(&self, key: &Key) -> Result<Option<ObjectMeta>> {
        missing_is_none(self.try_run(LONGEST, self.objects.head(key)))
            .map_err(|error| self.failed("look for", key, error))
    }

    /// All objects below a prefix, by name.
    pub fn list_all(&self, prefix: &Key) -> Result<Vec<ObjectMeta>> {
        let mut found = self.run("list", prefix, LONGEST_TRANSFER, list_all(&*self.objects, prefix))?;
        found.sort_by(|one, other| one.location.cmp(&other.location));
        Ok(found)
    }

    /// Part of an object, which is not empty, and the object's version.
    pub fn get(&self, key: &Key, range: Range<u64>) -> Result<(Bytes, UpdateVersion)> {
        let options = GetOptions::new().with_range(Some(GetRange::Bounded(range)));
        let request = async {
            let found = self.objects.get_opts(key, options).await?;
            let version = version_of(&found.meta);
            Ok((found.bytes().await?, version))
        };
        self.run("read", key, LONGEST_TRANSFER, request)
    }

    /// Writes an object on a condition. Returns its version. Error: 58030 if the condition is not met.
    pub fn put(&self, key: &Key, bytes: Bytes, mode: PutMode) -> Result<UpdateVersion> {
        use object_store::Error as E;
        let _permit = self.wait(self.sending.acquire()).expect("it is not closed");
        self.leases.check(key)?;
        let put = self.objects.put_opts(key, PutPayload::from_bytes(bytes.clone()), mode.into());
        match self.try_run(LONGEST, put) {
            Some(Ok(put)) => Ok(put.into()),
            Some(Err(E::AlreadyExists { .. } | E::Precondition { .. } | E::NotModified { .. })) => {
                let whole = 0..(bytes.len() as u64).max(1);
                let (found, version) = self.get(key, whole)?;
                // This very request has written it, which the library has repeated then.
                if found == bytes { Ok(version) } else { Err(replaced(&self.shown(key))) }
            }
            Some(Err(error)) => Err(self.failed("write", key, Some(error))),
            None => Err(self.failed("write", key, None)),
        }
    }

    /// Removes an object, if it is there.
    pub fn delete(&self, key: &Key) -> Result<()> {
        self.leases.check(key)?;
        missing_is_none(self.try_run(LONGEST, self.objects.delete(key)))
            .map(drop)
            .map_err(|error| self.failed("remove", key, error))
    }

    /// The error of a request that has failed, or has taken too long.
    fn failed(&self, operation: &str, key: &Key, error: Option<object_store::Error>) -> Error {
        match error {
            Some(error) => failed(operation, &self.shown(key), &error),
            None => slow(operation, &self.shown(key)),
        }
    }
}

/// The version of an object, for a condition.
pub(crate) fn version_of(meta: &ObjectMeta) -> UpdateVersion {
    UpdateVersion { e_tag: meta.e_tag.clone(), version: meta.version.clone() }
}

#[cold]
fn replaced(shown: &str) -> Error {
    let message = format!("could not write \"{shown}\": it has changed meanwhile");
    Error::new(SqlState::IO_ERROR, message)
        .with_detail(
            "A request that was given up has arrived later, or another process has written the object.",
        )
        .with_hint("Try again.")
}

/// The library's error of a request that takes too long.
fn timed_out(elapsed: Elapsed) -> object_store::Error {
    let source = Box::new(HttpError::new(HttpErrorKind::Timeout, elapsed));
    object_store::Error::Generic { store: "object store", source }
}

/// Takes a missing object as none, but a missing bucket as an error.
fn missing_is_none<T>(
    outcome: Option<object_store::Result<T>>,
) -> std::result::Result<Option<T>, Option<object_store::Error>> {
    match outcome {
        Some(Ok(found)) => Ok(Some(found)),
        Some(Err(error @ object_store::Error::NotFound { .. }))
            if !crate::error::is_bucket_missing(&error) =>
        {
            Ok(None)
        }
        Some(Err(error)) => Err(Some(error)),
        None => Err(None),
    }
}

/// All objects below a prefix.
pub(crate) async fn list_all(
    objects: &dyn ObjectStore,
    prefix: &Key,
) -> object_store::Result<Vec<ObjectMeta>> {
    let mut listed = objects.list(Some(prefix));
    let mut found = Vec::new();
    while let Some(object) = listed.next().await {
        found.push(object?);
    }
    Ok(found)
}
