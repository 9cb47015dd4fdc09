//! Sinks of pipelines: operators that collect rows.

mod build;
mod change;
mod drained;
mod first_of_each;
mod group;
mod groups;
mod runs;
mod sort;
mod tournament;
mod window;

pub use build::{
    Build, BuildFacts, BuildPlan, BuildRows, BuildShape, LEAST_BYTES, SideWriter, SpilledBuild, is_readable,
    stored_nulls,
};
pub use change::{
    ArmPlan, Assignments, Change, ChangeKind, ChangePlan, Changed, ConflictUpdatePlan, ImageOf, ImagePlan,
    InsertPlan, MergeActionPlan, MergeArmPlan, MergePlan, UpdatePlan,
};
pub use drained::{DrainPlan, Drained};
pub use group::{AggregatePlan, GroupPlan, OrderPlan, SetPlan};
pub use groups::GroupShape;
pub use runs::{Merge, SortedRun};
pub use sort::{Keep, SortPlan, Sorted};
pub(crate) use window::has_distances;
pub use window::{BoundPlan, FramePlan, WindowCallPlan, WindowFunctionPlan, WindowPlan};

use crate::pipeline::Sink;

/// The sinks that a plan has started.
fn own<S: 'static>(sinks: Vec<Box<dyn Sink>>) -> impl Iterator<Item = S> {
    sinks.into_iter().map(|sink| *sink.into_any().downcast::<S>().expect("the plan has started it"))
}
