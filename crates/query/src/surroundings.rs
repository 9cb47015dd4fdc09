//! What a statement runs in, as values that outlive the call that starts it: its rows may be drawn from any thread.

use firn_base::sync::Arc;
use firn_base::{Cancel, TextStyle};
use firn_executor::Budget;
use firn_vector::Context;
use firn_vector::context::{Objects, Session, Settings};

/// What the calls of one statement may ask of it.
#[derive(Clone)]
pub struct Surroundings {
    /// When the statement began: microseconds since 1970-01-01 UTC.
    pub statement_time: i64,
    /// When the transaction began.
    pub transaction_time: i64,
    /// How the session reads and writes values as text, with its time zone.
    pub style: TextStyle,
    /// The session's settings.
    pub settings: Arc<dyn Settings + Send + Sync>,
    /// The names of objects.
    pub objects: Arc<dyn Objects + Send + Sync>,
    /// The session.
    pub session: Arc<dyn Session + Send + Sync>,
    /// Where memory is charged.
    pub budget: Arc<Budget>,
    /// Ends the statement.
    pub cancel: Cancel,
}

impl Surroundings {
    /// As calls of functions get it.
    pub fn context(&self) -> Context<'_> {
        Context {
            statement_time: self.statement_time,
            transaction_time: self.transaction_time,
            style: &self.style,
            settings: &*self.settings,
            objects: &*self.objects,
            session: &*self.session,
            memory: &*self.budget,
            cancel: &self.cancel,
        }
    }
}
