//! What an execution comes to, operator by operator: for EXPLAIN ANALYZE.
//!
//! Times are those of all workers together, without those of the operators below.

use firn_base::sync::{AtomicBool, AtomicU64, Ordering};
use firn_plan::{NodeId, Plan};
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

    /// Says that an operator is run by itself.
    pub(crate) fn begin(&self, node: NodeId) {
        self.0[node.index()].is_alone.store(true, Ordering::Relaxed);
    }

    /// Adds rows that an operator has given.
    pub(crate) fn add_rows(&self, node: NodeId, rows: usize) {
        self.0[node.index()].was_run.store(true, Ordering::Relaxed);
        self.0[node.index()].rows.fetch_add(rows as u64, Ordering::Relaxed);
    }

    /// Adds time that a thread has worked for an operator.
    pub(crate) fn add_time(&self, node: NodeId, time: Duration) {
        self.0[node.index()].was_run.store(true, Ordering::Relaxed);
        self.0[node.index()].nanoseconds.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Forgets what a run has come to that is begun again.
    pub(crate) fn clear(&self) {
        for measure in &self.0 {
            measure.was_run.store(false, Ordering::Relaxed);
            measure.rows.store(0, Ordering::Relaxed);
            measure.nanoseconds.store(0, Ordering::Relaxed);
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
            },
        }
    }
}
