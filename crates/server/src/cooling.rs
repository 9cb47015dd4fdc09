//! When rows become cold, as the server and the benchmarks are told.

use firn_session::Config;
use std::time::Duration;

/// After which times blocks are frozen and encoded.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct Cooling {
    /// Freeze blocks of rows that nobody has written to for so many seconds, so that scans and clients get
    /// them without a copy; 0 for never.
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    freeze_after: u64,
    /// Encode blocks that have been frozen for so many seconds, so that they take less memory; 0 for never.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    compact_after: u64,
}

impl Cooling {
    /// The configuration with these times.
    pub fn apply(self, config: Config) -> Config {
        let after = |seconds: u64| (seconds > 0).then(|| Duration::from_secs(seconds));
        Config { freeze_after: after(self.freeze_after), compact_after: after(self.compact_after), ..config }
    }
}
