//! An execution as its pipelines see it: what fills slots, the scans that have been opened, parameters. It runs a pipeline when its slot is
//! needed, on the calling thread and, if it takes longer, with helpers.

use crate::keys::KeyLayout;
use crate::options::Options;
use crate::pipeline::{OpenFragment, Pipeline, Sink, SlotId, Step, Stream, Work};
use crate::source::{Lookup, Scan};
use firn_base::sync::{Arc, AtomicBool, AtomicU64, Mutex, Ordering, RwLock};
use firn_base::thread::Behind;
use firn_base::{Result, clock, stack, thread};
use firn_plan::operator::SourceId;
use firn_storage::Table;
use firn_vector::Vector;
use std::any::Any;
use std::collections::HashMap;
use std::time::Duration;

/// How long each pipeline runs there at least.
const FIRST_STEPS: Duration = Duration::from_micros(100);

/// How long a worker waits for others before it looks again.
const TURN: Duration = Duration::from_millis(1);

type Filled = Arc<dyn Any + Send + Sync>;

/// What the pipelines of one execution share.
pub struct Run {
    pipelines: Arc<[Option<Pipeline>]>,
    slots: Vec<RwLock<Option<Filled>>>,
    /// Held by the worker that fills a slot.
    gates: Vec<Mutex<()>>,
    scans: Vec<Arc<dyn Scan>>,
    /// For each scan the joins that have no use for some of its rows.
    filters: Vec<Arc<[JoinFilter]>>,
    /// The tables whose rows it locks.
    locked: HashMap<SourceId, Arc<Table>>,
    lookups: Vec<Arc<dyn Lookup>>,
    /// A constant vector of one row for each parameter.
    pub parameters: Vec<Vector>,
    /// How it is run.
    pub options: Options,
    /// For how many nanoseconds pipelines have run on the calling thread alone.
    alone: AtomicU64,
}

/// A scan that has been opened, and the joins that have no use for some of its rows.
pub(crate) type OpenedScan = (Arc<dyn Scan>, Arc<[JoinFilter]>);

/// A join above a scan which has no use for rows without a partner.
#[derive(Clone)]
pub struct JoinFilter {
    /// Where its build side is kept.
    pub slot: SlotId,
    /// The columns of the scan that are the key, by their places.
    pub columns: Vec<usize>,
    /// How keys are made.
    pub layout: KeyLayout,
}

impl Run {
    /// An execution of pipelines which has its scans and look-ups; the parameters are constant vectors of one row.
    pub(crate) fn new(
        pipelines: Arc<[Option<Pipeline>]>,
        scans: Vec<OpenedScan>,
        lookups: Vec<Arc<dyn Lookup>>,
        parameters: Vec<Vector>,
        options: Options,
    ) -> Run {
        let (scans, filters) = scans.into_iter().unzip();
        Run {
            slots: pipelines.iter().map(|_| RwLock::new(None)).collect(),
            gates: pipelines.iter().map(|_| Mutex::new(())).collect(),
            pipelines,
            scans,
            filters,
            locked: HashMap::new(),
            lookups,
            parameters,
            options,
            alone: AtomicU64::new(0),
        }
    }

    /// The scans, before anything is run.
    pub(crate) fn scans_mut(&mut self) -> &mut [Arc<dyn Scan>] {
        &mut self.scans
    }

    /// Says which tables it locks rows of.
    pub(crate) fn set_locked(&mut self, locked: HashMap<SourceId, Arc<Table>>) {
        self.locked = locked;
    }

    /// How much longer pipelines run on the calling thread alone.
    pub(crate) fn alone_left(&self) -> Duration {
        self.options.alone.saturating_sub(Duration::from_nanos(self.alone.load(Ordering::Relaxed)))
    }

    /// Notes that a pipeline has run alone for so long.
    pub(crate) fn note_alone(&self, worked: Duration) {
        self.alone.fetch_add(worked.as_nanos() as u64, Ordering::Relaxed);
    }

    /// What fills a slot, if something does.
    pub fn filled<T: Send + Sync + 'static>(&self, slot: SlotId) -> Option<Arc<T>> {
        let filled = self.slots[slot.0].read().clone()?;
        Some(filled.downcast().unwrap_or_else(|_| panic!("{slot:?} holds what its pipeline made")))
    }

    /// Fills a slot, or replaces what fills it.
    pub fn fill(&self, slot: SlotId, with: Filled) {
        *self.slots[slot.0].write() = Some(with);
    }

    /// Empties slots: what fills them belongs to the round of a recursion that is over.
    pub fn empty(&self, slots: &[SlotId]) {
        slots.iter().for_each(|slot| *self.slots[slot.0].write() = None);
    }

    /// What fills a slot; `make` fills it if nothing does.
    pub fn filled_or<T: Send + Sync + 'static>(
        &self,
        slot: SlotId,
        make: impl FnOnce() -> Result<Arc<T>>,
    ) -> Result<Arc<T>> {
        let _gate = self.gates[slot.0].lock();
        if let Some(filled) = self.filled(slot) {
            return Ok(filled);
        }
        let made = make()?;
        self.fill(slot, made.clone());
        Ok(made)
    }

    /// A scan of the program.
    pub fn scan(&self, number: usize) -> &Arc<dyn Scan> {
        &self.scans[number]
    }

    /// The joins that have no use for some rows of a scan.
    pub(crate) fn join_filters(&self, number: usize) -> &[JoinFilter] {
        &self.filters[number]
    }

    /// A table whose rows it locks.
    pub(crate) fn locked(&self, source: SourceId) -> &Arc<Table> {
        &self.locked[&source]
    }

    /// A look-up of the program.
    pub fn lookup(&self, number: usize) -> &Arc<dyn Lookup> {
        &self.lookups[number]
    }

    /// Runs the pipeline of a slot, unless the slot is filled.
    pub fn complete(&self, slot: SlotId, work: Work<'_>) -> Result<()> {
        // Pipelines that wait for one another nest as deeply as the plan, and their rows may be read on a small stack.
        stack::with_room_for_tree(|| self.run_pipeline(slot, work))
    }

    fn run_pipeline(&self, slot: SlotId, work: Work<'_>) -> Result<()> {
        let _gate = self.gates[slot.0].lock();
        if self.slots[slot.0].read().is_some() {
            return Ok(());
        }
        let pipeline = self.pipelines[slot.0].as_ref().unwrap_or_else(|| panic!("{slot:?} has a pipeline"));
        let open = pipeline.fragment.open(work)?;
        let (mut stream, mut sink) = (open.stream(work)?, pipeline.sink.start(work)?);
        // A recursion runs a pipeline many times, and each has little to do.
        let least = FIRST_STEPS.min(self.options.alone);
        let (begin, left) = (clock::now(), self.alone_left().max(least));
        let mut is_done = false;
        while !is_done && begin.elapsed() < left {
            is_done = !advance(work, &mut stream, &mut *sink)?;
        }
        self.note_alone(begin.elapsed());
        let result = match is_done {
            true => pipeline.sink.finish(work, vec![sink])?,
            false => behind(work, || {
                let may_split = self.options.workers > 1 && !pipeline.fragment.is_serial;
                let mut sinks = vec![sink];
                match may_split {
                    true => self.help(work, &open, &|| pipeline.sink.start(work), stream, &mut sinks)?,
                    false => while advance(work, &mut stream, &mut *sinks[0])? {},
                }
                pipeline.sink.finish(work, sinks)
            })?,
        };
        self.fill(slot, result);
        Ok(())
    }

    /// Runs the rest of a pipeline with helpers. The first error of any worker ends all.
    fn help(
        &self,
        work: Work<'_>,
        open: &OpenFragment,
        start: &(dyn Fn() -> Result<Box<dyn Sink>> + Sync),
        stream: Stream,
        sinks: &mut Vec<Box<dyn Sink>>,
    ) -> Result<()> {
        let failed = AtomicBool::new(false);
        let finish = |mut stream: Stream, mut sink: Box<dyn Sink>| -> Result<Box<dyn Sink>> {
            while !failed.load(Ordering::Relaxed) {
                match advance(work, &mut stream, &mut *sink) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(error) => {
                        failed.store(true, Ordering::Relaxed);
                        return Err(error);
                    }
                }
            }
            Ok(sink)
        };
        let own = sinks.pop().expect("the calling thread has one");
        let results = thread::scope(|scope| {
            let helper = || finish(open.stream(work)?, start()?);
            // A helper that the operating system refuses is done without.
            let helpers: Vec<_> = (1..self.options.workers)
                .map_while(|_| thread::start_scoped(scope, "query", helper).ok())
                .collect();
            let mut results = vec![finish(stream, own)];
            for helper in helpers {
                // A panic goes on in the caller.
                results.push(helper.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            }
            results
        });
        for result in results {
            sinks.push(result?);
        }
        Ok(())
    }
}

/// Runs the rest of a pipeline where it leaves contended cores to transactions, unless it is a part of one itself.
pub(crate) fn behind<T: Send>(work: Work<'_>, body: impl FnOnce() -> T + Send) -> T {
    match work.effects {
        None => {
            let look = || {
                let _ = work.context.cancel.is_cancelled();
            };
            thread::run_behind("query", Behind::Transactions, &look, body)
        }
        Some(_) => body(),
    }
}

/// One step of a stream into a sink. Whether there may be more.
fn advance(work: Work<'_>, stream: &mut Stream, sink: &mut dyn Sink) -> Result<bool> {
    match stream.step(work)? {
        Step::More => Ok(true),
        Step::Idle => {
            clock::sleep(TURN);
            Ok(true)
        }
        Step::Full(chunk) => sink.consume(work, chunk),
        Step::Blocked(slot) => {
            work.run.complete(slot, work)?;
            Ok(true)
        }
        Step::Done => Ok(false),
    }
}
