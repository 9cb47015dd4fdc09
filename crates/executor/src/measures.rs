//! What an execution comes to, operator by operator: for EXPLAIN ANALYZE.
//!
//! Times are those of all workers together, without those of the operators below. Memory is what the accounts of an operator have stated
//! at once, at most: an account belongs to the operator for which the thread works that opens it.

use firn_base::clock;
use firn_base::sync::{Arc, AtomicBool, AtomicI64, AtomicU64, Ordering};
use firn_plan::{NodeId, Plan};
use std::cell::{Cell, RefCell};
use std::time::Duration;

/// What the operators of a plan have come to.
#[derive(Debug)]
pub struct Measures(Box<[Measure]>);

#[derive(Default, Debug)]
struct Measure {
    is_alone: AtomicBool,
    was_run: AtomicBool,
    rows: AtomicU64,
    nanoseconds: AtomicU64,
    memory: AtomicI64,
    most_memory: AtomicI64,
    spilled: AtomicU64,
}

/// What an operator has come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Measured {
    /// It is a part of the operator above it: the table of an index join.
    Within,
    /// It was never asked for rows.
    NotRun,
    /// It was run.
    Run {
        /// How many rows it has given.
        rows: u64,
        /// How long threads have worked for it, all together.
        time: Duration,
        /// How many bytes it has kept in memory, at most.
        memory: u64,
        /// How many bytes it has written to temporary files.
        spilled: u64,
    },
}

impl Measures {
    /// Of a plan that has not been run.
    pub fn of(plan: &Plan) -> Measures {
        Measures((0..plan.size()).map(|_| Measure::default()).collect())
    }

    /// Whether they are of a plan with so many operators: one that has been made anew since may have others.
    pub fn fit(&self, plan: &Plan) -> bool {
        self.0.len() == plan.size()
    }

    /// Forgets what a run has come to that is begun again.
    pub(crate) fn clear(&self) {
        for measure in &self.0 {
            measure.was_run.store(false, Ordering::Relaxed);
            measure.rows.store(0, Ordering::Relaxed);
            measure.nanoseconds.store(0, Ordering::Relaxed);
            // What is kept now is given back later.
            measure.most_memory.store(0, Ordering::Relaxed);
            measure.spilled.store(0, Ordering::Relaxed);
        }
    }

    /// What an operator has come to.
    pub fn get(&self, node: NodeId) -> Measured {
        let measure = &self.0[node.index()];
        match (measure.is_alone.load(Ordering::Relaxed), measure.was_run.load(Ordering::Relaxed)) {
            (false, _) => Measured::Within,
            (true, false) => Measured::NotRun,
            (true, true) => Measured::Run {
                rows: measure.rows.load(Ordering::Relaxed),
                time: Duration::from_nanos(measure.nanoseconds.load(Ordering::Relaxed)),
                memory: measure.most_memory.load(Ordering::Relaxed) as u64,
                spilled: measure.spilled.load(Ordering::Relaxed),
            },
        }
    }
}

/// Where an operator is measured.
#[derive(Clone, Debug)]
pub(crate) struct Gauge {
    measures: Arc<Measures>,
    node: NodeId,
}

thread_local! {
    /// The operator for which the thread works.
    static CURRENT: RefCell<Option<Gauge>> = const { RefCell::new(None) };
    /// How long clocks have run on this thread within the one that runs.
    static WITHIN: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

impl Gauge {
    /// That of an operator which is run by itself.
    pub fn new(measures: Arc<Measures>, node: NodeId) -> Gauge {
        measures.0[node.index()].is_alone.store(true, Ordering::Relaxed);
        Gauge { measures, node }
    }

    /// That of the operator for which the thread works, if it is measured.
    pub fn current() -> Option<Gauge> {
        CURRENT.with_borrow(Clone::clone)
    }

    fn measure(&self) -> &Measure {
        &self.measures.0[self.node.index()]
    }

    /// Adds rows that it has given.
    pub fn add_rows(&self, rows: usize) {
        self.measure().was_run.store(true, Ordering::Relaxed);
        self.measure().rows.fetch_add(rows as u64, Ordering::Relaxed);
    }

    /// Makes what works for the operator, which may never be asked for rows.
    pub fn make<T>(&self, body: impl FnOnce() -> T) -> T {
        let others = CURRENT.replace(Some(self.clone()));
        let result = body();
        CURRENT.set(others);
        result
    }

    /// Works for the operator. Some run those below them, whose time is not theirs.
    pub fn time<T>(&self, body: impl FnOnce() -> T) -> T {
        let others = CURRENT.replace(Some(self.clone()));
        let before = WITHIN.replace(Duration::ZERO);
        let begin = clock::now();
        let result = body();
        let all = begin.elapsed();
        let own = all.saturating_sub(WITHIN.get());
        self.measure().was_run.store(true, Ordering::Relaxed);
        self.measure().nanoseconds.fetch_add(own.as_nanos() as u64, Ordering::Relaxed);
        WITHIN.set(before + all);
        CURRENT.set(others);
        result
    }

    /// Adds bytes that it keeps in memory, or takes away those that it keeps no longer.
    pub fn add_memory(&self, bytes: i64) {
        let now = self.measure().memory.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.measure().most_memory.fetch_max(now, Ordering::Relaxed);
    }

    /// Adds bytes that it has written to temporary files.
    pub fn add_spilled(&self, bytes: u64) {
        self.measure().spilled.fetch_add(bytes, Ordering::Relaxed);
    }
}
