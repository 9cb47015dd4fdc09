//! What the functions of a statement are called with: the session, its settings and the names of objects, the budget, the time.
//!
//! Rows that are computed while they are read outlive the call that starts them, so their statement owns [`Surroundings`]. A short
//! statement ends within one call, in about a microsecond. It borrows a [`LentSession`], which makes what functions use only when one
//! uses it.

use super::registry;
use crate::pg_catalog::Source;
use crate::run::{RunOptions, SessionServices};
use crate::session_facts::SessionFacts;
use firn_base::random::Random;
use firn_base::sync::{Arc, Mutex, OnceLock};
use firn_base::{Result, TypeId, clock};
use firn_executor::Budget;
use firn_query::Surroundings;
use firn_txn::Catalog;
use firn_txn::Transaction;
use firn_vector::Context;
use firn_vector::context::{Objects, Session, Settings};
use std::any::Any;
use std::sync::LazyLock;

/// The memory budget that all queries of the process share.
pub(super) static BUDGET: LazyLock<Arc<Budget>> = LazyLock::new(Budget::of_process);

/// What a statement runs in whose rows may be read after this call.
pub(crate) fn surroundings(
    transaction: &Transaction,
    facts: &Arc<SessionFacts>,
    options: &RunOptions,
) -> Surroundings {
    let services = &options.services;
    let session = Arc::new(Source::of_session(transaction.catalog(), facts, services, registry()));
    Surroundings {
        statement_time: options.given_time.unwrap_or_else(clock::wall_clock_micros),
        transaction_time: options.now,
        style: options.style,
        settings: Arc::new(SessionSettings(services.clone())),
        objects: session.clone(),
        session,
        budget: BUDGET.clone(),
        cancel: options.cancel.clone(),
    }
}

/// A session that is lent to a statement for one call.
pub(super) struct LentSession<'s> {
    catalog: &'s Arc<Catalog>,
    facts: &'s Arc<SessionFacts>,
    options: &'s RunOptions,
    /// Made for the first function that uses it.
    source: OnceLock<Source>,
}

impl<'s> LentSession<'s> {
    pub fn new(
        catalog: &'s Arc<Catalog>,
        facts: &'s Arc<SessionFacts>,
        options: &'s RunOptions,
    ) -> LentSession<'s> {
        LentSession { catalog, facts, options, source: OnceLock::new() }
    }

    /// The context of a statement that begins now.
    pub fn context(&self) -> Context<'_> {
        Context {
            statement_time: self.options.given_time.unwrap_or_else(clock::wall_clock_micros),
            transaction_time: self.options.now,
            style: &self.options.style,
            settings: self,
            objects: self,
            session: self,
            memory: &**BUDGET,
            cancel: &self.options.cancel,
        }
    }

    fn source(&self) -> &Source {
        let make = || Source::of_session(self.catalog, self.facts, &self.options.services, registry());
        self.source.get_or_init(make)
    }
}

impl Settings for LentSession<'_> {
    fn get(&self, name: &str) -> Option<String> {
        self.options.services.setting(name)
    }

    fn seeded_random(&self) -> Option<&Mutex<Option<Random>>> {
        self.options.services.seeded_random()
    }
}

impl Objects for LentSession<'_> {
    fn name(&self, ty: TypeId, oid: u32) -> Option<String> {
        self.source().name(ty, oid)
    }

    fn oid(&self, ty: TypeId, name: &str) -> Result<Option<u32>> {
        self.source().oid(ty, name)
    }
}

impl Session for LentSession<'_> {
    fn as_any(&self) -> &dyn Any {
        self.source()
    }
}

/// The settings of a session, for functions.
struct SessionSettings(Arc<dyn SessionServices>);

impl Settings for SessionSettings {
    fn get(&self, name: &str) -> Option<String> {
        self.0.setting(name)
    }

    fn seeded_random(&self) -> Option<&Mutex<Option<Random>>> {
        self.0.seeded_random()
    }
}
