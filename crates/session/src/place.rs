//! Where the transaction of a block is.
//!
//! | place | `take` | `put` | `lend` | `rest` | `wake` | `recall` | `lose` |
//! |---|---|---|---|---|---|---|---|
//! | here | in use | - | - | resting | - | - | gone |
//! | in use | - | here | lent | - | - | - | gone |
//! | lent | - | - | - | - | - | here, gone | - |
//! | resting | - | - | - | - | here, gone | - | - |
//! | gone | - | - | - | - | - | - | - |
//!
//! A dash leaves the place as it is. A transaction that is put where nothing is in use is rolled back.

use crate::cache::PlanCache;
use crate::copy::{Home, Recalled};
use crate::rest::{self, AtRest, Resting};
use firn_base::sync::Arc;
use firn_base::{Error, SqlState};
use firn_txn::Transaction;

/// See the module.
pub(crate) enum Place {
    /// Here, between two statements. Boxed, since each statement that writes takes it out and puts it back.
    Here(Box<Transaction>),
    /// A statement of the connection works in it.
    InUse,
    /// A COPY from the client works in it while the connection is idle.
    Lent(Arc<Home>),
    /// The connection is idle, and a timer may end the transaction.
    Resting(Resting),
    /// It has ended before its block.
    Gone(Loss),
}

/// Why a transaction has ended before its block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Loss {
    /// A statement has failed and there was no savepoint to return to.
    RolledBack,
    /// The connection was idle for too long.
    TimedOut,
    /// A panic has unwound the statement that worked in it.
    Panicked,
    /// The connection ran another statement while a COPY had it.
    CopyGivenUp,
}

impl Loss {
    /// The error of ROLLBACK TO.
    pub fn error(self) -> Error {
        let message = match self {
            Loss::TimedOut => return rest::ended(),
            Loss::RolledBack => "the transaction has been rolled back",
            Loss::Panicked => "the transaction has been rolled back after an internal error",
            Loss::CopyGivenUp => "the transaction has been rolled back because its COPY was not finished",
        };
        Error::new(SqlState::IN_FAILED_SQL_TRANSACTION, message).with_hint("Use ROLLBACK.")
    }
}

impl Place {
    /// The transaction, if it is here.
    pub fn transaction(&self) -> Option<&Transaction> {
        match self {
            Place::Here(transaction) => Some(transaction),
            _ => None,
        }
    }

    /// As [`Place::transaction`].
    pub fn transaction_mut(&mut self) -> Option<&mut Transaction> {
        match self {
            Place::Here(transaction) => Some(transaction),
            _ => None,
        }
    }

    /// Why it is gone, if it is gone.
    pub fn loss(&self) -> Option<Loss> {
        match self {
            Place::Gone(loss) => Some(*loss),
            _ => None,
        }
    }

    /// Whether it has ended or failed while the connection was idle, which the connection has not seen yet.
    pub fn has_failed_meanwhile(&self) -> bool {
        match self {
            Place::Lent(home) => home.has_failed(),
            Place::Resting(resting) => resting.has_ended(),
            Place::Here(_) | Place::InUse | Place::Gone(_) => false,
        }
    }

    /// Takes the transaction out for a statement to work in; `None` if it is not here.
    pub fn take(&mut self) -> Option<Box<Transaction>> {
        match std::mem::replace(self, Place::InUse) {
            Place::Here(transaction) => Some(transaction),
            elsewhere => {
                *self = elsewhere;
                None
            }
        }
    }

    /// Puts back what a statement has worked in.
    pub fn put(&mut self, transaction: Box<Transaction>) {
        match self {
            Place::InUse => *self = Place::Here(transaction),
            _ => transaction.rollback(),
        }
    }

    /// Records the COPY that has the transaction which a statement took out.
    pub fn lend(&mut self, home: Arc<Home>) {
        if let Place::InUse = self {
            *self = Place::Lent(home);
        }
    }

    /// Lays the transaction to rest, with the plans that belong to it, if it is here.
    pub fn rest(&mut self, own_plans: &mut PlanCache, lay: impl FnOnce(AtRest) -> Resting) {
        // Until it rests no other thread reads this.
        if let Some(transaction) = self.take() {
            let own_plans = std::mem::take(own_plans);
            *self = Place::Resting(lay(AtRest { transaction, own_plans }));
        }
    }

    /// Takes the transaction back from its rest, with its plans; false if the timer has ended it.
    pub fn wake(&mut self, own_plans: &mut PlanCache) -> bool {
        let Place::Resting(resting) = self else { return true };
        match resting.wake() {
            Some(at_rest) => {
                *own_plans = at_rest.own_plans;
                *self = Place::Here(at_rest.transaction);
                true
            }
            None => {
                *self = Place::Gone(Loss::TimedOut);
                false
            }
        }
    }

    /// Takes the transaction back from a COPY. Returns whether the COPY has failed; `None` if it was not lent. A COPY that is
    /// still under way counts as failed: its transaction cannot continue.
    pub fn recall(&mut self) -> Option<bool> {
        let Place::Lent(home) = self else { return None };
        let (place, has_failed) = match home.recall() {
            Recalled::Done(transaction) => (Place::Here(transaction), false),
            Recalled::Failed(Some(transaction)) => (Place::Here(transaction), true),
            Recalled::Failed(None) => (Place::Gone(Loss::RolledBack), true),
            Recalled::UnderWay => (Place::Gone(Loss::CopyGivenUp), true),
        };
        *self = place;
        Some(has_failed)
    }

    /// Ends the transaction before its block, where the connection has it.
    pub fn lose(&mut self, loss: Loss) {
        match self {
            Place::Here(_) => {
                let transaction = self.take().expect("it is here");
                *self = Place::Gone(loss);
                transaction.rollback();
            }
            Place::InUse => *self = Place::Gone(loss),
            Place::Lent(_) | Place::Resting(_) | Place::Gone(_) => {}
        }
    }

    /// The transaction, for the end of its block.
    pub fn into_transaction(self) -> Option<Box<Transaction>> {
        match self {
            Place::Here(transaction) => Some(transaction),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Database;
    use firn_txn::Isolation;
    use std::time::Duration;

    /// What can happen to a place.
    type Event = (&'static str, fn(&mut Place, &Database));

    fn begin(database: &Database) -> Box<Transaction> {
        Box::new(database.engine().try_begin(Isolation::Snapshot).unwrap())
    }

    fn lay(at_rest: AtRest, database: &Database) -> Resting {
        Resting::new(at_rest, Vec::new(), &database.shared, false, Duration::from_secs(3600))
    }

    fn name(place: &Place) -> String {
        match place {
            Place::Here(_) => "here".into(),
            Place::InUse => "in use".into(),
            Place::Lent(_) => "lent".into(),
            Place::Resting(_) => "resting".into(),
            Place::Gone(loss) => format!("gone: {loss:?}"),
        }
    }

    /// Goes through the module's table: every event at every place, with a database that has no transaction left at the end.
    #[test]
    fn every_event_leads_from_every_place_as_in_the_table() {
        let database = Database::memory().unwrap();
        let places: [fn(&Database) -> Place; 5] = [
            |database| Place::Here(begin(database)),
            |_| Place::InUse,
            |_| Place::Lent(Arc::default()),
            |database| {
                let mut place = Place::Here(begin(database));
                place.rest(&mut PlanCache::default(), |at_rest| lay(at_rest, database));
                place
            },
            |_| Place::Gone(Loss::TimedOut),
        ];
        let events: [Event; 7] = [
            ("take", |place, _| drop(place.take())),
            ("put", |place, database| place.put(begin(database))),
            ("lend", |place, _| place.lend(Arc::default())),
            ("rest", |place, database| {
                place.rest(&mut PlanCache::default(), |at_rest| lay(at_rest, database));
            }),
            ("wake", |place, _| assert!(place.wake(&mut PlanCache::default()))),
            ("recall", |place, _| _ = place.recall()),
            ("lose", |place, _| place.lose(Loss::Panicked)),
        ];
        let table = [
            ["in use", "here", "here", "resting", "here", "here", "gone: Panicked"],
            ["in use", "here", "lent", "in use", "in use", "in use", "gone: Panicked"],
            ["lent", "lent", "lent", "lent", "lent", "gone: CopyGivenUp", "lent"],
            ["resting", "resting", "resting", "resting", "here", "resting", "resting"],
            ["gone: TimedOut"; 7],
        ];
        for (make, row) in places.iter().zip(table) {
            for ((event, happen), expected) in events.iter().zip(row) {
                let mut place = make(&database);
                let before = name(&place);
                happen(&mut place, &database);
                assert_eq!(name(&place), expected, "{event} at: {before}");
            }
        }
        assert_eq!(database.engine().running().len(), 0);
    }
}
