//! The rows of a scan: morsels that are cut into vectors.
//!
//! A join drops rows without a partner. Once the build side of such a join is complete, the scan gets the set of its keys as a filter. It
//! can then pass over rows before it has read more of them than the key (M. Shrinivas, R. Bodagala, R. Varadarajan and others,
//! "Materialization Strategies in the Vertica Analytic Database", ICDE 2013, section IV, call that sideways information passing).

use crate::keys::{Keys, WordSet};
use crate::pipeline::{Input, InputPlan, OpenInput, Step, Work};
use crate::run::{JoinFilter, Run};
use crate::sinks::Build;
use crate::source::{Morsels, RowFilter};
use firn_base::Result;
use firn_base::sync::{Arc, AtomicBool, Mutex, Ordering};
use firn_vector::selection::Rows;
use firn_vector::{Chunk, Selection, Vector};

/// A scan by its number in the program.
pub struct ScanPlan(pub usize);

impl InputPlan for ScanPlan {
    fn open(&self, work: Work<'_>) -> Result<Arc<dyn OpenInput>> {
        let scan = work.run.scan(self.0);
        let filters = work.run.join_filters(self.0);
        let shared = Shared {
            morsels: scan.morsels(),
            has_filters: AtomicBool::new(!filters.is_empty()),
            filters: Mutex::new(filters.to_vec()),
        };
        Ok(Arc::new(OpenScan { shared: Arc::new(shared), is_ordered: scan.is_ordered() }))
    }
}

struct OpenScan {
    shared: Arc<Shared>,
    is_ordered: bool,
}

/// What the workers share.
struct Shared {
    morsels: Arc<dyn Morsels>,
    /// The joins that have not yet given the scan a filter, and whether there are any.
    filters: Mutex<Vec<JoinFilter>>,
    has_filters: AtomicBool,
}

impl Shared {
    /// Adds the filters of the joins whose build side has been completed since.
    fn add_filters(&self, run: &Run) {
        if !self.has_filters.load(Ordering::Relaxed) {
            return;
        }
        let Some(mut filters) = self.filters.try_lock() else { return };
        filters.retain(|filter| {
            let Some(build) = run.filled::<Build>(filter.slot) else { return true };
            for (column, passes) in filters_by(filter, &build) {
                self.morsels.filter(&[column], passes);
            }
            false
        });
        self.has_filters.store(!filters.is_empty(), Ordering::Relaxed);
    }
}

/// What is known of rows that have a partner on a build side: for some columns of the scan, by their places, which values that
/// has. Nothing if not all of it is in memory.
fn filters_by(join: &JoinFilter, build: &Build) -> Vec<(usize, RowFilter)> {
    let Some(index) = build.index.as_ref().filter(|_| build.spilled.is_none()) else { return Vec::new() };
    let of_column = |(place, words): (usize, WordSet)| {
        let layout = join.layout.of_column(place);
        let passes = move |vectors: &[Vector], rows: usize| match layout.keys(vectors, Rows::all(rows)) {
            Keys::Words(keys) => words.has_all(&keys),
            _ => panic!("the column alone makes a word"),
        };
        (join.columns[place], Arc::new(passes) as RowFilter)
    };
    index.words(&join.layout).into_iter().map(of_column).collect()
}

impl OpenInput for OpenScan {
    fn worker(&self, run: &Run) -> Box<dyn Input> {
        Box::new(ScanInput { shared: self.shared.clone(), cut: Cut::new(run.options.vector_rows) })
    }

    fn is_ordered(&self) -> bool {
        self.is_ordered
    }
}

struct ScanInput {
    shared: Arc<Shared>,
    cut: Cut,
}

impl Input for ScanInput {
    fn step(&mut self, work: Work<'_>) -> Result<Step> {
        if let Some(chunk) = self.cut.next() {
            return Ok(Step::Full(chunk));
        }
        self.shared.add_filters(work.run);
        match self.shared.morsels.next()? {
            Some(chunk) => {
                self.cut.set(chunk);
                Ok(Step::More)
            }
            None => Ok(Step::Done),
        }
    }
}

/// Cuts a chunk into vectors of the usual length; buffers are shared.
pub(super) struct Cut {
    most: usize,
    chunk: Option<Chunk>,
    from: usize,
}

impl Cut {
    pub fn new(most: usize) -> Cut {
        Cut { most, chunk: None, from: 0 }
    }

    pub fn set(&mut self, chunk: Chunk) {
        (self.chunk, self.from) = (Some(chunk), 0);
    }

    pub fn next(&mut self) -> Option<Chunk> {
        let chunk = self.chunk.as_ref()?;
        let (from, length) = (self.from, self.most.min(chunk.length() - self.from));
        if length == 0 {
            self.chunk = None;
            return None;
        }
        self.from += length;
        if length == chunk.length() {
            return self.chunk.take();
        }
        let vectors: Vec<Vector> = chunk.vectors().iter().map(|vector| vector.slice(from, length)).collect();
        let selection = chunk.selection().map(|selection| {
            let positions = selection.positions();
            let start = positions.partition_point(|position| usize::from(*position) < from);
            let end = positions.partition_point(|position| usize::from(*position) < from + length);
            Selection::new(
                positions[start..end].iter().map(|position| position - from as u16).collect::<Vec<_>>(),
            )
        });
        Some(Chunk::new(length, vectors).with_selection(selection))
    }
}
