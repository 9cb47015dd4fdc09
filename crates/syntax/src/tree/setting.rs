//! SET, RESET, SHOW, and other small statements about the session.

use super::{Expr, IntervalFields, Name, ObjectName, TransactionMode, UtilityValue};

/// `SET`
#[derive(Clone, Debug, PartialEq)]
pub struct Set {
    /// LOCAL. SESSION is the default.
    pub is_local: bool,
    /// What is set.
    pub setting: Setting,
}

/// What SET sets. TIME ZONE is the setting `timezone`, SCHEMA `search_path`, NAMES `client_encoding`, ROLE `role`,
/// SESSION AUTHORIZATION `session_authorization`, XML OPTION `xmloption`.
#[derive(Clone, Debug, PartialEq)]
pub enum Setting {
    /// `name TO values`
    Values {
        /// The name.
        name: ObjectName,
        /// One or more.
        values: Vec<SettingValue>,
    },
    /// `name TO DEFAULT`
    Default(ObjectName),
    /// `name FROM CURRENT`
    FromCurrent(ObjectName),
    /// TRANSACTION
    Transaction(Vec<TransactionMode>),
    /// SESSION CHARACTERISTICS AS TRANSACTION
    SessionCharacteristics(Vec<TransactionMode>),
    /// TRANSACTION SNAPSHOT
    Snapshot(Box<str>),
}

/// A value of a setting.
#[derive(Clone, Debug, PartialEq)]
pub enum SettingValue {
    /// A word, string or number.
    Value(UtilityValue),
    /// INTERVAL, of TIME ZONE
    Interval {
        /// The string.
        value: Box<str>,
        /// HOUR, MINUTE, HOUR TO MINUTE
        fields: Option<IntervalFields>,
        /// Digits of the second, which stand before the string.
        precision: Option<i32>,
    },
}

/// `RESET name`, `RESET ALL`
#[derive(Clone, Debug, PartialEq)]
pub struct Reset {
    /// None is ALL.
    pub name: Option<ObjectName>,
}

/// `SHOW name`, `SHOW ALL`
#[derive(Clone, Debug, PartialEq)]
pub struct Show {
    /// None is ALL.
    pub name: Option<ObjectName>,
}

/// `SET CONSTRAINTS`
#[derive(Clone, Debug, PartialEq)]
pub struct SetConstraints {
    /// All if there are none.
    pub constraints: Vec<ObjectName>,
    /// DEFERRED and not IMMEDIATE.
    pub deferred: bool,
}

/// What DISCARD discards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discard {
    /// ALL
    All,
    /// TEMPORARY
    Temporary,
    /// PLANS
    Plans,
    /// SEQUENCES
    Sequences,
}

/// `NOTIFY`
#[derive(Clone, Debug, PartialEq)]
pub struct Notify {
    /// The channel.
    pub channel: Name,
    /// The payload.
    pub payload: Option<Box<str>>,
}

/// `UNLISTEN name`, `UNLISTEN *`
#[derive(Clone, Debug, PartialEq)]
pub struct Unlisten {
    /// None is `*`.
    pub channel: Option<Name>,
}

/// `CALL`
#[derive(Clone, Debug, PartialEq)]
pub struct CallProcedure {
    /// A call without FILTER and OVER.
    pub call: Expr,
}
