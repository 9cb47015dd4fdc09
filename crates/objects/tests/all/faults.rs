//! An object store in memory that counts its requests, and fails those that a test chooses.

use async_trait::async_trait;
use firn_base::sync::{Arc, AtomicBool, AtomicU64, Mutex, Ordering};
use firn_objects::ObjectDisk;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};
use std::time::Duration;

/// How long locks last that are not renewed, in tests of other things.
const LEASE: Duration = Duration::from_secs(60);

/// The store. A clone shares it.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    pub inner: Arc<InMemory>,
    plan: Arc<Plan>,
}

type Hook = Box<dyn FnOnce() + Send>;

struct Plan {
    /// The requests so far, those of them that read, and those that write.
    requests: AtomicU64,
    reads: AtomicU64,
    writes: AtomicU64,
    /// The first request that fails, and the first one after it that does not.
    fails_from: AtomicU64,
    fails_to: AtomicU64,
    /// Whether conditions of writes are passed over.
    is_unconditional: AtomicBool,
    /// Whether tags of objects are made of their content, as by S3.
    has_content_tags: AtomicBool,
    /// How many writes are done and reported as failed.
    lost_replies: AtomicU64,
    /// How many writes are reported as failed and are done later, and these.
    held_back: AtomicU64,
    late: Mutex<Vec<(Path, PutPayload, PutOptions)>>,
    /// How many parts are being sent, and the most that were at once.
    sending: AtomicU64,
    most_sending: AtomicU64,
    /// What happens before the request of this number.
    hook: Mutex<Option<(u64, Hook)>>,
}

impl std::fmt::Debug for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Plan")
    }
}

impl Default for Plan {
    fn default() -> Plan {
        let (requests, reads, writes) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        let (fails_from, fails_to) = (AtomicU64::new(u64::MAX), AtomicU64::new(u64::MAX));
        Plan {
            requests,
            reads,
            writes,
            fails_from,
            fails_to,
            is_unconditional: AtomicBool::new(false),
            has_content_tags: AtomicBool::new(false),
            lost_replies: AtomicU64::new(0),
            held_back: AtomicU64::new(0),
            late: Mutex::default(),
            sending: AtomicU64::new(0),
            most_sending: AtomicU64::new(0),
            hook: Mutex::new(None),
        }
    }
}

impl Plan {
    fn request(&self, is_write: bool) -> Result<()> {
        let counter = if is_write { &self.writes } else { &self.reads };
        counter.fetch_add(1, Ordering::SeqCst);
        let number = self.requests.fetch_add(1, Ordering::SeqCst);
        let hook = self.hook.lock().take_if(|(at, _)| *at <= number);
        if let Some((_, hook)) = hook {
            hook();
        }
        let fails = self.fails_from.load(Ordering::SeqCst)..self.fails_to.load(Ordering::SeqCst);
        if fails.contains(&number) {
            return Err(planned());
        }
        Ok(())
    }

    /// What the client gets for a write that has succeeded.
    fn reply<T>(&self, written: T) -> Result<T> {
        let lost =
            self.lost_replies.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        if lost.is_ok() { Err(planned()) } else { Ok(written) }
    }
}

fn planned() -> Error {
    Error::Generic { store: "test", source: "the plan says so".into() }
}

/// A tag that is the same for the same content.
fn tag_of(content: &[u8]) -> String {
    format!(
        "{:x}",
        content
            .iter()
            .fold(14695981039346656037_u64, |tag, byte| (tag ^ u64::from(*byte)).wrapping_mul(1099511628211))
    )
}

impl Faults {
    /// A disk of it, as a process that has just started has it.
    pub fn disk(&self) -> Arc<ObjectDisk> {
        self.disk_with(LEASE)
    }

    pub fn disk_with(&self, lease: Duration) -> Arc<ObjectDisk> {
        Arc::new(ObjectDisk::small("", Arc::new(self.clone()), lease).unwrap())
    }

    /// Another way to the same objects, with faults of its own.
    pub fn beside(&self) -> Faults {
        Faults { inner: self.inner.clone(), plan: Arc::default() }
    }

    /// Lets so many requests succeed and the next `count` fail.
    pub fn fail(&self, after: u64, count: u64) {
        let from = self.plan.requests.load(Ordering::SeqCst) + after;
        self.plan.fails_from.store(from, Ordering::SeqCst);
        self.plan.fails_to.store(from.saturating_add(count), Ordering::SeqCst);
    }

    pub fn heal(&self) {
        self.fail(0, 0);
    }

    /// Passes over conditions, as a store does that does not know them.
    pub fn forget_conditions(&self) {
        self.plan.is_unconditional.store(true, Ordering::SeqCst);
    }

    /// Makes tags of objects of their content.
    pub fn use_content_tags(&self) {
        self.plan.has_content_tags.store(true, Ordering::SeqCst);
    }

    /// Does the next `count` writes, and reports them as failed.
    pub fn lose_replies(&self, count: u64) {
        self.plan.lost_replies.store(count, Ordering::SeqCst);
    }

    /// How many more replies will be lost.
    pub fn replies_to_lose(&self) -> u64 {
        self.plan.lost_replies.load(Ordering::SeqCst)
    }

    /// Reports the next `count` writes as failed.
    pub fn hold_back(&self, count: u64) {
        self.plan.held_back.store(count, Ordering::SeqCst);
    }

    /// Does the writes that were held back.
    pub fn write_late(&self) {
        for (location, payload, options) in self.plan.late.lock().drain(..) {
            // Nobody learns how it ends.
            let _ = futures::executor::block_on(self.inner.put_opts(&location, payload, options));
        }
    }

    /// How many parts were sent at once, at most.
    pub fn most_sending(&self) -> u64 {
        self.plan.most_sending.load(Ordering::SeqCst)
    }

    /// Calls `hook` before the request that is made after so many others.
    pub fn at_request(&self, after: u64, hook: impl FnOnce() + Send + 'static) {
        let number = self.plan.requests.load(Ordering::SeqCst) + after;
        *self.plan.hook.lock() = Some((number, Box::new(hook)));
    }

    /// The tag of an object, if tags are made of their content.
    async fn content_tag(&self, location: &Path) -> Result<Option<String>> {
        if !self.plan.has_content_tags.load(Ordering::SeqCst) {
            return Ok(None);
        }
        Ok(Some(tag_of(&self.inner.get(location).await?.bytes().await?)))
    }

    /// Requests that have read and that have written.
    pub fn requests(&self) -> (u64, u64) {
        (self.plan.reads.load(Ordering::SeqCst), self.plan.writes.load(Ordering::SeqCst))
    }

    /// A store with the same objects, and no faults, as after the end of all processes that have locks.
    pub fn copy(&self) -> Faults {
        let copy = Faults::default();
        futures::executor::block_on(async {
            let mut listed = self.inner.list(None);
            while let Some(object) = listed.next().await {
                let location = object.unwrap().location;
                if location.filename() == Some("LOCK") {
                    continue;
                }
                let bytes = self.inner.get(&location).await.unwrap().bytes().await.unwrap();
                copy.inner.put(&location, bytes.into()).await.unwrap();
            }
        });
        copy
    }

    /// The names of all objects.
    pub fn names(&self) -> Vec<String> {
        let listed = futures::executor::block_on(self.inner.list(None).collect::<Vec<_>>());
        listed.into_iter().map(|object| object.unwrap().location.to_string()).collect()
    }
}

impl std::fmt::Display for Faults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Faults")
    }
}

#[async_trait]
impl ObjectStore for Faults {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        mut opts: PutOptions,
    ) -> Result<PutResult> {
        self.plan.request(true)?;
        if self.plan.is_unconditional.load(Ordering::SeqCst) {
            opts.mode = PutMode::Overwrite;
        }
        let count = &self.plan.held_back;
        if count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
            self.plan.late.lock().push((location.clone(), payload, opts));
            return Err(planned());
        }
        // A condition on the content's tag, as one on the present version. Tests have one writer at a time.
        if let PutMode::Update(wanted) = &mut opts.mode
            && let Some(tag) = self.content_tag(location).await?
        {
            if wanted.e_tag != Some(tag) {
                let source = "another tag".into();
                return Err(Error::Precondition { path: location.to_string(), source });
            }
            wanted.e_tag = self.inner.head(location).await?.e_tag;
        }
        let mut put = self.inner.put_opts(location, payload, opts).await?;
        put.e_tag = self.content_tag(location).await?.or(put.e_tag);
        self.plan.reply(put)
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.plan.request(true)?;
        let inner = self.inner.put_multipart_opts(location, opts).await?;
        Ok(Box::new(Upload { inner, plan: self.plan.clone() }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.plan.request(false)?;
        let mut found = self.inner.get_opts(location, options).await?;
        found.meta.e_tag = self.content_tag(location).await?.or(found.meta.e_tag);
        Ok(found)
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        match self.plan.request(true) {
            Ok(()) => self.inner.delete_stream(locations),
            Err(error) => stream::once(async move { Err(error) }).boxed(),
        }
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        match self.plan.request(false) {
            Ok(()) => self.inner.list(prefix),
            Err(error) => stream::once(async move { Err(error) }).boxed(),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.plan.request(false)?;
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.plan.request(true)?;
        self.inner.copy_opts(from, to, options).await
    }
}

#[derive(Debug)]
struct Upload {
    inner: Box<dyn MultipartUpload>,
    plan: Arc<Plan>,
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        match self.plan.request(true) {
            Ok(()) => {
                let (part, plan) = (self.inner.put_part(data), self.plan.clone());
                Box::pin(async move {
                    let sending = plan.sending.fetch_add(1, Ordering::SeqCst) + 1;
                    plan.most_sending.fetch_max(sending, Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    plan.sending.fetch_sub(1, Ordering::SeqCst);
                    part.await
                })
            }
            Err(error) => Box::pin(async move { Err(error) }),
        }
    }

    async fn complete(&mut self) -> Result<PutResult> {
        self.plan.request(true)?;
        self.inner.complete().await
    }

    async fn abort(&mut self) -> Result<()> {
        self.inner.abort().await
    }
}
