//! What a call of a function may ask of the statement that makes it.

use firn_base::random::Random;
use firn_base::sync::Mutex;
use firn_base::{Cancel, Result, TextStyle, TimeZoneSetting, TypeId};
use std::any::Any;
use std::sync::LazyLock;

/// The surroundings of all calls of one statement. Several threads share it.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// When the statement began: microseconds since 1970-01-01 UTC.
    pub statement_time: i64,
    /// When the transaction began: what `now()` is.
    pub transaction_time: i64,
    /// How the session reads and writes values as text, with its time zone.
    pub style: &'a TextStyle,
    /// The session's settings, by name.
    pub settings: &'a dyn Settings,
    /// The names of the objects that values of `regclass` and its like are.
    pub objects: &'a dyn Objects,
    /// The session, for functions that were added to the registry from outside this crate.
    pub session: &'a dyn Session,
    /// Where memory is charged that states and big values take.
    pub memory: &'a dyn Memory,
    /// Ends the statement. Every loop checks it at least each 10 ms.
    pub cancel: &'a Cancel,
}

/// Settings of the session.
pub trait Settings: Sync {
    /// The value of a setting as `SHOW` prints it, if there is one of that name.
    fn get(&self, name: &str) -> Option<String>;

    /// Where a session keeps the generator of random numbers that it has seeded; `None` outside of sessions.
    fn seeded_random(&self) -> Option<&Mutex<Option<Random>>> {
        None
    }
}

/// The objects of the catalog, as the text forms of `regclass` and its like name them.
pub trait Objects: Sync {
    /// How the object of that oid is written as a value of the type; `None` if there is none.
    fn name(&self, ty: TypeId, oid: u32) -> Option<String>;

    /// The object that a text names as a value of the type; `None` if there is none. The error of a name that cannot be
    /// read, or that several objects have.
    fn oid(&self, ty: TypeId, name: &str) -> Result<Option<u32>>;
}

/// The session that runs the statement.
pub trait Session: Sync {
    /// What functions from outside this crate use of it. They know its type.
    fn as_any(&self) -> &dyn Any;
}

/// An account of the budget for queries.
pub trait Memory: Sync {
    /// Charges so many bytes: 53200 if the budget does not have them.
    fn grow(&self, bytes: usize) -> Result<()>;
    /// Gives so many bytes back.
    fn shrink(&self, bytes: usize);
}

impl<'a> Context<'a> {
    /// The session's time zone.
    #[inline]
    pub fn zone(&self) -> &'a TimeZoneSetting {
        &self.style.zone
    }

    /// 57014 if the statement shall end.
    #[inline]
    pub fn check_cancel(&self) -> Result<()> {
        self.cancel.check()
    }
}

/// No settings.
pub struct NoSettings;

impl Settings for NoSettings {
    fn get(&self, _: &str) -> Option<String> {
        None
    }
}

/// No objects.
pub struct NoObjects;

impl Objects for NoObjects {
    fn name(&self, _: TypeId, _: u32) -> Option<String> {
        None
    }
    fn oid(&self, _: TypeId, _: &str) -> Result<Option<u32>> {
        Ok(None)
    }
}

/// No session.
pub struct NoSession;

impl Session for NoSession {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Memory that is not counted.
pub struct Unlimited;

impl Memory for Unlimited {
    fn grow(&self, _: usize) -> Result<()> {
        Ok(())
    }
    fn shrink(&self, _: usize) {}
}

/// For constants that are folded where there is no statement, and for tests: in UTC at the beginning of 1970.
pub fn detached() -> Context<'static> {
    static NOT_CANCELED: LazyLock<Cancel> = LazyLock::new(Cancel::new);
    Context {
        statement_time: 0,
        transaction_time: 0,
        style: &TextStyle::DEFAULT,
        settings: &NoSettings,
        objects: &NoObjects,
        session: &NoSession,
        memory: &Unlimited,
        cancel: &NOT_CANCELED,
    }
}
