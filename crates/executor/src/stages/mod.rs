//! Stages of pipelines: operators that pass rows on without collecting them.

mod filter;
mod flat_map;
mod index_join;
mod join;
mod limit;
mod lock;
mod sample;

pub use filter::{FilterPlan, MapPlan};
pub use flat_map::{Callee, FlatMapPlan, SetCallPlan};
pub use index_join::IndexJoinPlan;
pub(crate) use join::more_than_one_row;
pub use join::{JoinPlan, MarkPlan};
pub use limit::{LimitBounds, LimitPlan};
pub(crate) use lock::lock_row_of;
pub use lock::{LockPlan, LockedRows};
pub use sample::SamplePlan;
