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
pub use join::{JoinPlan, MarkPlan};
pub use limit::{LimitBounds, LimitPlan};
pub use lock::{LockPlan, LockedRows};
pub use sample::SamplePlan;
