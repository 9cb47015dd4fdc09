//! The option of the server and of the benchmarks for what makes transactions conflict.

use firn_session::{Config, Granularity};

/// How finely the reads of serializable transactions are compared with the writes of others.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct Validation {
    /// Which changes of a row that a serializable transaction has read make it fail.
    #[arg(long, value_enum, default_value = "attribute")]
    granularity: Level,
}

#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Level {
    /// New values of the columns that it has read.
    Attribute,
    /// Any change of the row.
    Record,
}

impl Validation {
    /// The configuration with it.
    pub fn apply(self, config: Config) -> Config {
        let granularity = match self.granularity {
            Level::Attribute => Granularity::Attribute,
            Level::Record => Granularity::Record,
        };
        Config { granularity, ..config }
    }
}
