//! Inputs of pipelines.

mod buffered;
mod collected;
mod iterate;
mod scan;
mod shared;
mod union;
mod values;

pub use buffered::{BufferedPlan, ChangedPlan};
pub use collected::{MatchedPlan, SortedPlan};
pub use iterate::{IteratePlan, RoundPlan};
pub use scan::ScanPlan;
pub use shared::{SharedPlan, SharedReadPlan};
pub use union::{UnionInput, UnionPlan};
pub use values::ValuesPlan;
