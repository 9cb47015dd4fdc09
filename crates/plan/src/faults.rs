//! Planted faults: random plans and random statements must find each. `cargo xtask faults` runs them.
//!
//! Only a build with the feature `faults` contains them. The environment variable FIRN_FAULT names the one that it makes, so that
//! one build serves for all.

/// A fault, by what it does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Filters that use columns of an outer join's padded side make it an inner one, whether NULL fails them or not.
    OuterToInner,
    /// Filters move below LIMIT.
    LimitBelowFilter,
    /// Volatile conditions move.
    VolatileMoved,
    /// Unnesting loses equal rows of the left side.
    DuplicatesLost,
    /// A join keeps the keys of a side whose rows may have several partners.
    WrongKey,
    /// Windows of different orders become one.
    CollapsedWindowOrder,
    /// Integer parameters are taken for 1.
    ParameterFolded,
    /// Rows whose key is NULL have partners in an anti join.
    NullInAntiJoin,
    /// Each reader evaluates a shared sub-plan.
    SharedTwice,
    /// A spilled sort loses a run.
    RunLost,
    /// A spilled join loses a part.
    JoinPartLost,
    /// A spilled grouping loses a part.
    GroupPartLost,
}

impl Fault {
    /// What FIRN_FAULT calls it.
    pub fn name(self) -> &'static str {
        match self {
            Fault::OuterToInner => "outer-to-inner",
            Fault::LimitBelowFilter => "limit-below-filter",
            Fault::VolatileMoved => "volatile-moved",
            Fault::DuplicatesLost => "duplicates-lost",
            Fault::WrongKey => "wrong-key",
            Fault::CollapsedWindowOrder => "collapsed-window-order",
            Fault::ParameterFolded => "parameter-folded",
            Fault::NullInAntiJoin => "null-in-anti-join",
            Fault::SharedTwice => "shared-twice",
            Fault::RunLost => "run-lost",
            Fault::JoinPartLost => "join-part-lost",
            Fault::GroupPartLost => "group-part-lost",
        }
    }

    /// Whether it is made.
    #[cfg(feature = "faults")]
    pub fn is_made(self) -> bool {
        static CHOSEN: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
        let chosen = CHOSEN.get_or_init(|| std::env::var("FIRN_FAULT").ok());
        chosen.as_deref() == Some(self.name())
    }

    /// Whether it is made.
    #[cfg(not(feature = "faults"))]
    pub fn is_made(self) -> bool {
        false
    }
}
