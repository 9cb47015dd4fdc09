//! Transaction blocks: BEGIN to COMMIT, savepoints, and what they do to settings and cursors.
//!
//! | state | BEGIN | COMMIT | ROLLBACK | error | ROLLBACK TO |
//! |---|---|---|---|---|---|
//! | idle | open | idle, warning 25P01 | idle, warning 25P01 | idle | 25P01 |
//! | open | open, warning 25001 | idle | idle | failed | open |
//! | failed | 25P02 | idle, as ROLLBACK | idle | failed | open |
//!
//! A block that was idle for too long has failed when its client returns: every statement but ROLLBACK fails with 25P03.

use crate::cache::PlanCache;
use crate::connection::{CommandTag, Connection, Outcome, TransactionStatus};
use crate::copy::Home;
use crate::errors::timed_out;
use crate::place::{Loss, Place};
use crate::rest::{self, Resting};
use firn_base::sync::Arc;
use firn_base::{Error, Result, SqlState, clock};
use firn_sql::services::TransactionMark;
use firn_sql::settings::{Level, Running, Settings};
use firn_sql::standby::{self, Token};
use firn_sql::statement::TransactionModes;
use firn_sql::tree;
use firn_txn::{Isolation, Savepoint, Transaction};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A connection's transaction block.
pub(crate) enum Block {
    Idle,
    Open(Box<Open>),
    Failed(Box<Open>),
}

/// A block that has begun and not ended.
pub(crate) struct Open {
    place: Place,
    savepoints: Vec<NamedSavepoint>,
    read_only: bool,
    isolation: Isolation,
    /// What the session wanted to read when the transaction took its snapshot.
    read_after: Option<Token>,
    /// Whether anything but SET TRANSACTION has been run.
    used: bool,
    /// Whether DDL has been run.
    pub changed_catalog: bool,
    /// Plans of objects that only this block sees as it does: it has changed them, or others have since it began. No other transaction
    /// can use these plans. They rest with the transaction and are dropped with it.
    own_plans: PlanCache,
    /// The settings that ROLLBACK restores.
    settings: Settings,
    /// The error that failed the block, if one has.
    failure: Option<Error>,
}

struct NamedSavepoint {
    name: String,
    savepoint: Savepoint,
    settings: Settings,
    /// The state of the transaction's advisory locks and notifications at the savepoint.
    mark: TransactionMark,
}

impl Open {
    /// Whether a COPY from the client has failed, or the block was idle for too long.
    pub fn has_failed_meanwhile(&self) -> bool {
        self.place.has_failed_meanwhile()
    }

    /// Whether it was idle for too long.
    fn has_timed_out(&self) -> bool {
        self.place.loss() == Some(Loss::TimedOut)
    }

    /// The error that failed the block, if one has.
    fn why_failed(&self) -> Option<Error> {
        if self.has_timed_out() { Some(rest::ended()) } else { self.failure.clone() }
    }
}

impl Block {
    fn open(&mut self) -> Option<&mut Open> {
        match self {
            Block::Idle => None,
            Block::Open(open) | Block::Failed(open) => Some(open),
        }
    }

    /// Ends the block because its client has left. Returns whether that rolls back a change of the catalog.
    pub fn abandon(&mut self) -> bool {
        let changed_catalog = self.open().is_some_and(|open| open.changed_catalog);
        *self = Block::Idle;
        changed_catalog
    }

    /// Of a block that has not ended: its isolation, and the error that failed it, if one has.
    pub fn left_open(&self) -> Option<(Isolation, Option<Error>)> {
        match self {
            Block::Idle => None,
            Block::Open(open) | Block::Failed(open) => Some((open.isolation, open.why_failed())),
        }
    }

    /// Takes the transaction out for a statement to work in.
    pub fn take_transaction(&mut self) -> Option<Box<Transaction>> {
        self.open()?.place.take()
    }

    /// The transaction, for a statement that only reads in it.
    pub fn transaction(&self) -> Option<&Transaction> {
        match self {
            Block::Idle => None,
            Block::Open(open) | Block::Failed(open) => open.place.transaction(),
        }
    }

    /// Where plans are kept that only this block can use.
    pub fn own_plans(&self) -> Option<&PlanCache> {
        match self {
            Block::Open(open) => Some(&open.own_plans),
            Block::Idle | Block::Failed(_) => None,
        }
    }

    /// A statement other than SET TRANSACTION works in the transaction.
    fn note_use(&mut self) {
        if let Some(open) = self.open() {
            open.used = true;
        }
    }

    /// Whether nothing but SET TRANSACTION has worked in the transaction.
    pub fn is_unused(&mut self) -> bool {
        self.open().is_some_and(|open| !open.used)
    }

    /// The statements so far do not count: the isolation may still be set.
    pub fn forget_use(&mut self) {
        if let Some(open) = self.open() {
            open.used = false;
        }
    }

    /// The transaction, if its next statement is to read the newest state.
    fn transaction_to_refresh(&mut self) -> Option<&mut Transaction> {
        let transaction = self.open()?.place.transaction_mut()?;
        (transaction.isolation() == Isolation::ReadCommitted).then_some(transaction)
    }

    /// Puts it back.
    pub fn put_transaction(&mut self, transaction: Box<Transaction>) {
        match self.open() {
            Some(open) => open.place.put(transaction),
            None => transaction.rollback(),
        }
    }

    /// Records the COPY to which the transaction is lent. Returns the savepoint to which ROLLBACK TO could return, if any.
    pub fn lend(&mut self, home: Arc<Home>) -> Option<Savepoint> {
        let open = self.open()?;
        open.place.lend(home);
        open.savepoints.last().map(|last| last.savepoint)
    }

    /// A panic has unwound the statement that worked in the transaction, which ends.
    pub fn lose_transaction(&mut self) {
        self.lose_transaction_to(Loss::Panicked);
    }

    fn lose_transaction_to(&mut self, loss: Loss) {
        if let Some(open) = self.open() {
            open.place.lose(loss);
        }
    }
}

impl Connection {
    /// A statement begins that reads or writes; under READ COMMITTED it reads the newest state. Errors as of
    /// [`Connection::wait_to_read`].
    pub(crate) fn begin_statement(&mut self) -> Result<()> {
        if let Some(token) = self.read_after {
            self.wait_in_block(token)?;
        }
        self.block.note_use();
        if self.block.transaction_to_refresh().is_some() {
            self.refresh();
        }
        Ok(())
    }

    /// A statement is about to be analysed: under READ COMMITTED with the newest catalog. Errors as of
    /// [`Connection::wait_to_read`].
    pub(crate) fn refresh_catalog(&mut self) -> Result<()> {
        if let Some(token) = self.read_after {
            self.wait_in_block(token)?;
        }
        if self.block.transaction_to_refresh().is_some_and(|transaction| transaction.has_stale_catalog()) {
            self.refresh();
        }
        Ok(())
    }

    /// Waits for what the session wants to read, if the next statement of the block takes a snapshot: under READ COMMITTED, and if
    /// nothing has been read yet and the setting has changed since the block began.
    #[cold]
    fn wait_in_block(&mut self, token: Token) -> Result<()> {
        let Block::Open(open) = &self.block else { return Ok(()) };
        let is_first = !open.used && open.read_after != Some(token);
        let (isolation, read_only) = (open.isolation, open.read_only);
        if self.block.transaction_to_refresh().is_some() {
            if self.has_reached(token)? {
                return Ok(());
            }
            self.streams.read_ahead();
            // No versions are kept for it while it waits.
            self.block.transaction_to_refresh().expect("it has not moved").release_snapshot();
            let waited = self.wait_for(token);
            self.block.transaction_to_refresh().expect("it has not moved").refresh();
            return waited;
        }
        if !is_first {
            return Ok(());
        }
        let Some(unused) = self.block.take_transaction() else { return Ok(()) };
        unused.rollback();
        let waited = self.wait_for(token);
        match self.begin_transaction_now(effective(isolation, read_only)) {
            Ok(transaction) => {
                transaction.report_isolation(isolation);
                self.block.put_transaction(Box::new(transaction));
            }
            Err(error) => {
                self.block.lose_transaction_to(Loss::RolledBack);
                self.fail_open_block();
                return Err(error);
            }
        }
        if let (Ok(()), Some(open)) = (&waited, self.block.open()) {
            open.read_after = Some(token);
        }
        waited
    }

    fn refresh(&mut self) {
        // The rows of earlier statements that are not read yet are read at their own snapshot.
        self.streams.read_ahead();
        self.block.transaction_to_refresh().expect("it has not moved").refresh();
    }

    /// The connection is idle from now on: inside a block it may be ended for that.
    pub(crate) fn rest(&mut self) {
        if let (Some(timeout), true) = (self.idle_in_transaction_timeout, self.ends_itself_when_idle)
            && let Some(open) = self.block.open()
        {
            let (shared, changed_catalog) = (&self.shared, open.changed_catalog);
            let lay = |at_rest| Resting::new(at_rest, self.streams.list(), shared, changed_catalog, timeout);
            open.place.rest(&mut open.own_plans, lay);
        }
    }

    /// The connection is no longer idle.
    pub(crate) fn wake(&mut self) {
        if self.block.open().is_some_and(|open| !open.place.wake(&mut open.own_plans)) {
            self.streams.abandon();
            self.block = match std::mem::replace(&mut self.block, Block::Idle) {
                Block::Open(open) => Block::Failed(open),
                other => other,
            };
        }
    }

    /// The error of a statement in a failed block.
    pub(crate) fn why_failed(&self) -> Error {
        match &self.block {
            Block::Failed(open) if open.has_timed_out() => rest::ended(),
            _ => Error::new(
                SqlState::IN_FAILED_SQL_TRANSACTION,
                "current transaction is aborted, commands ignored until end of transaction block",
            ),
        }
    }

    /// The client has gone: its open block ends.
    pub(crate) fn leave_block(&mut self) {
        self.streams.abandon();
        self.wake();
        if let Some((isolation, failure)) = self.block.left_open() {
            self.shared.engine.statistics().note_abort(isolation, failure.as_ref());
        }
        if self.block.abandon() {
            self.shared.note_end_of_ddl();
        }
    }

    /// Takes back a transaction that rested, or was lent to a COPY which has ended.
    pub(crate) fn recall(&mut self) {
        self.wake();
        match self.take_home() {
            Some(true) => self.fail_open_block(),
            Some(false) => {}
            None => {
                if matches!(self.block, Block::Open(_))
                    && let Some(error) = self.stream_failure.lower()
                {
                    self.fail_block_of(&error);
                }
            }
        }
    }

    /// Takes back a transaction that was lent, in whatever state the block is. Returns whether its COPY has failed. A COPY
    /// that is still under way counts as failed: its transaction cannot continue.
    fn take_home(&mut self) -> Option<bool> {
        self.block.open()?.place.recall()
    }

    /// As [`Connection::fail_open_block`], for an error outside of the engine.
    pub(crate) fn fail_block_of(&mut self, error: &Error) {
        let is_open = matches!(self.block, Block::Open(_));
        self.fail_open_block();
        if let Block::Failed(open) = &mut self.block
            && is_open
        {
            open.failure = Some(error.clone());
        }
    }

    /// Fails the open transaction block, if there is one: for mistakes that a protocol finds before a
    /// statement reaches the session. Only ROLLBACK ends the block then.
    pub(crate) fn fail_open_block(&mut self) {
        self.wake();
        // A protocol reports this after a COPY that has failed, which has returned its transaction before.
        self.take_home();
        if !self.in_block() {
            self.services.end_transaction();
        }
        if let Block::Open(_) = self.block
            && let Block::Open(open) = std::mem::replace(&mut self.block, Block::Idle)
        {
            self.streams.abandon();
            self.block = Block::Failed(open);
            self.release_rows();
        }
    }

    /// Rolls back the changes of a failed block that ROLLBACK TO cannot need: other transactions may
    /// wait for its rows, and the client may send its ROLLBACK much later.
    fn release_rows(&mut self) {
        let Block::Failed(open) = &mut self.block else { return };
        // They pin tables, which other transactions may have dropped.
        open.own_plans = PlanCache::default();
        match open.savepoints.last() {
            None => {
                open.place.lose(Loss::RolledBack);
                if open.changed_catalog {
                    self.shared.note_end_of_ddl();
                }
                self.services.end_transaction();
            }
            Some(last) => {
                self.services.undo_to(last.mark);
                let savepoint = last.savepoint;
                if let Some(transaction) = open.place.transaction_mut() {
                    transaction.rollback_to(savepoint);
                }
            }
        }
    }

    pub(crate) fn is_read_only(&self) -> bool {
        match &self.block {
            Block::Idle => self.begins_read_only(),
            Block::Open(open) | Block::Failed(open) => open.read_only,
        }
    }

    /// Whether the connection is in a block, failed or not.
    pub(crate) fn in_block(&self) -> bool {
        !matches!(self.block, Block::Idle)
    }

    fn warn(&mut self, state: SqlState, message: &str) {
        self.notices.push(Error::new(state, message));
    }

    /// Runs a statement of transaction control, with all that surrounds a statement except its text.
    pub(crate) fn guarded(&mut self, work: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        self.activity.begin(self.in_block(), None);
        let caught = catch_unwind(AssertUnwindSafe(|| {
            self.recall();
            self.options.cancel.reset();
            work(self)
        }));
        let result = caught.unwrap_or_else(|panic| Err(self.after_panic(&*panic)));
        if let Err(error) = &result {
            self.fail_block_of(error);
        }
        self.note_idle();
        self.rest();
        result
    }

    /// BEGIN and its relatives.
    pub(crate) fn control(&mut self, control: &tree::Transaction) -> Result<Outcome> {
        let verb = match control {
            tree::Transaction::Begin { is_start, modes } => {
                self.begin(TransactionModes::of(modes))?;
                if *is_start { "START TRANSACTION" } else { "BEGIN" }
            }
            tree::Transaction::Commit { and_chain } => self.commit(*and_chain)?,
            tree::Transaction::Rollback { and_chain } => self.roll_back(*and_chain)?,
            tree::Transaction::Savepoint(name) => {
                self.in_open_block("SAVEPOINT")?;
                self.streams.read_ahead();
                let settings = self.services.with_settings(|settings| settings.clone());
                let mark = self.services.mark();
                let open = self.block.open().expect("there is a block");
                open.used = true;
                let transaction = open.place.transaction_mut().expect("the transaction is here");
                let savepoint = transaction.savepoint();
                open.savepoints.push(NamedSavepoint {
                    name: name.text.to_string(),
                    savepoint,
                    settings,
                    mark,
                });
                "SAVEPOINT"
            }
            tree::Transaction::Release(name) => {
                self.in_open_block("RELEASE SAVEPOINT")?;
                let open = self.block.open().expect("there is a block");
                let position = find_savepoint(open, &name.text)?;
                open.savepoints.truncate(position);
                "RELEASE"
            }
            tree::Transaction::RollbackTo(name) => {
                self.in_open_block("ROLLBACK TO SAVEPOINT")?;
                self.roll_back_to(&name.text)?;
                "ROLLBACK"
            }
            tree::Transaction::Prepare(_)
            | tree::Transaction::CommitPrepared(_)
            | tree::Transaction::RollbackPrepared(_) => unreachable!("it was refused when it was prepared"),
        };
        Ok(Outcome::Done(CommandTag { verb, rows: None }))
    }

    /// SET SESSION CHARACTERISTICS AS TRANSACTION
    pub(crate) fn set_default_modes(&mut self, modes: TransactionModes) -> Result<()> {
        if let Some(level) = modes.level {
            self.set("default_transaction_isolation", level.name())?;
        }
        if let Some(read_only) = modes.read_only {
            self.set("default_transaction_read_only", if read_only { "on" } else { "off" })?;
        }
        if let Some(deferrable) = modes.deferrable {
            self.set("default_transaction_deferrable", if deferrable { "on" } else { "off" })?;
        }
        Ok(())
    }

    fn in_open_block(&self, what: &str) -> Result<()> {
        match self.in_block() {
            true => Ok(()),
            false => Err(Error::new(
                SqlState::NO_ACTIVE_SQL_TRANSACTION,
                format!("{what} can only be used in transaction blocks"),
            )),
        }
    }

    pub(crate) fn begin(&mut self, modes: TransactionModes) -> Result<()> {
        if self.in_block() {
            self.warn(SqlState::ACTIVE_SQL_TRANSACTION, "there is already a transaction in progress");
            return self.set_modes(modes);
        }
        self.refuse_read_write(modes)?;
        let read_only = modes.read_only.unwrap_or_else(|| self.begins_read_only());
        let isolation = modes.level.map_or(self.default_isolation, Level::isolation);
        let alarm = self.read_after.and_then(|_| self.alarm());
        let transaction = self
            .begin_transaction(effective(isolation, read_only))
            .map_err(|error| timed_out(error, alarm.as_ref()))?;
        transaction.report_isolation(isolation);
        let settings = self.services.with_settings(|settings| {
            let before = settings.clone();
            settings.set_running(Some(running(settings.default_running(), modes)));
            if read_only {
                settings.set("transaction_read_only", Some("on"), true).expect("the setting takes the value");
            }
            before
        });
        self.services.set_read_only(read_only);
        self.options.now = clock::wall_clock_micros();
        self.stream_failure.begin_block();
        self.forget_reads();
        self.block = Block::Open(Box::new(Open {
            place: Place::Here(Box::new(transaction)),
            savepoints: Vec::new(),
            read_only,
            isolation,
            read_after: self.read_after,
            used: false,
            failure: None,
            changed_catalog: false,
            own_plans: PlanCache::default(),
            settings,
        }));
        Ok(())
    }

    /// 0A000 in a replica for a transaction that is to write.
    fn refuse_read_write(&self, modes: TransactionModes) -> Result<()> {
        match modes.read_only == Some(false) && self.shared.engine.is_replica() {
            true => Err(standby::no_read_write(&self.shared.engine)),
            false => Ok(()),
        }
    }

    /// SET TRANSACTION
    pub(crate) fn set_modes(&mut self, modes: TransactionModes) -> Result<()> {
        // As in PostgreSQL, this error comes after that of a transaction which has read.
        let refused = self.refuse_read_write(modes);
        let Some(open) = self.block.open() else {
            refused?;
            self.warn(
                SqlState::NO_ACTIVE_SQL_TRANSACTION,
                "SET TRANSACTION can only be used in transaction blocks",
            );
            return Ok(());
        };
        let isolation = modes.level.map(Level::isolation);
        if isolation.is_some_and(|isolation| open.used && isolation != open.isolation) {
            return Err(Error::new(
                SqlState::ACTIVE_SQL_TRANSACTION,
                "SET TRANSACTION ISOLATION LEVEL must be called before any query",
            ));
        }
        if open.used && open.read_only && modes.read_only == Some(false) {
            return Err(Error::new(
                SqlState::ACTIVE_SQL_TRANSACTION,
                "transaction read-write mode must be set before any query",
            ));
        }
        refused?;
        if open.used && modes.deferrable.is_some() {
            return Err(Error::new(
                SqlState::ACTIVE_SQL_TRANSACTION,
                "SET TRANSACTION [NOT] DEFERRABLE must be called before any query",
            ));
        }
        open.isolation = isolation.unwrap_or(open.isolation);
        open.read_only = modes.read_only.unwrap_or(open.read_only);
        if !open.used
            && let Some(transaction) = open.place.transaction_mut()
        {
            transaction.set_isolation(effective(open.isolation, open.read_only));
            transaction.report_isolation(open.isolation);
        }
        self.services.with_settings(|settings| {
            if let Some(before) = settings.running() {
                settings.set_running(Some(running(before, modes)));
            }
        });
        if let Some(read_only) = modes.read_only {
            self.services.set_read_only(read_only);
            let value = if read_only { "on" } else { "off" };
            self.services
                .with_settings(|settings| settings.set("transaction_read_only", Some(value), true))?;
        }
        Ok(())
    }

    pub(crate) fn commit(&mut self, chain: bool) -> Result<&'static str> {
        let modes = self.chained_modes(chain)?;
        if self.status() == TransactionStatus::Failed {
            // The client may not know yet that the block has failed, if it has only been idle.
            let lost =
                matches!(&self.block, Block::Failed(open) if open.has_timed_out()).then(|| self.why_failed());
            self.end(false)?;
            if let Some(error) = lost {
                return Err(error);
            }
            self.chain(modes)?;
            return Ok("ROLLBACK");
        }
        if !self.in_block() {
            self.warn(SqlState::NO_ACTIVE_SQL_TRANSACTION, "there is no transaction in progress");
            return Ok("COMMIT");
        }
        self.end(true)?;
        self.chain(modes)?;
        Ok("COMMIT")
    }

    /// COMMIT for a program, which gets 25P02 if nothing was committed.
    pub(crate) fn commit_block(&mut self) -> Result<()> {
        self.recall();
        self.options.cancel.reset();
        match self.commit(false)? {
            "COMMIT" => Ok(()),
            _ => Err(Error::new(
                SqlState::IN_FAILED_SQL_TRANSACTION,
                "the transaction had failed and has been rolled back",
            )),
        }
    }

    pub(crate) fn roll_back(&mut self, chain: bool) -> Result<&'static str> {
        let modes = self.chained_modes(chain)?;
        if !self.in_block() {
            self.warn(SqlState::NO_ACTIVE_SQL_TRANSACTION, "there is no transaction in progress");
        }
        self.end(false)?;
        self.chain(modes)?;
        Ok("ROLLBACK")
    }

    /// The modes that AND CHAIN carries over.
    fn chained_modes(&self, chain: bool) -> Result<Option<TransactionModes>> {
        match &self.block {
            _ if !chain => Ok(None),
            Block::Idle => Err(Error::new(
                SqlState::NO_ACTIVE_SQL_TRANSACTION,
                "COMMIT AND CHAIN can only be used in transaction blocks",
            )),
            Block::Open(open) | Block::Failed(open) => {
                let running = self.services.with_settings(|settings| settings.running());
                Ok(Some(TransactionModes {
                    read_only: Some(open.read_only),
                    level: running.map(|running| running.level),
                    deferrable: running.map(|running| running.is_deferrable),
                }))
            }
        }
    }

    fn chain(&mut self, modes: Option<TransactionModes>) -> Result<()> {
        match modes {
            Some(modes) => self.begin(modes),
            None => Ok(()),
        }
    }

    /// Ends the block.
    fn end(&mut self, commit: bool) -> Result<()> {
        self.close_cursors(commit);
        match commit {
            true => self.streams.read_ahead(),
            false => self.streams.abandon(),
        }
        // As in PostgreSQL, a block does not commit if its remaining rows cannot be read.
        let raised = self.stream_failure.lower();
        let lost = self.failure_of_cursors().or(raised);
        let open = match std::mem::replace(&mut self.block, Block::Idle) {
            Block::Idle => return Ok(()),
            Block::Open(open) | Block::Failed(open) => *open,
        };
        let failure = open.why_failed();
        // It also ends waits for other servers.
        let alarm = if commit { self.alarm() } else { None };
        // As the transaction has set them: SET LOCAL is undone before the waits.
        let (mode, waits) = (self.synchronous_commit, self.read_waits(self.has_read_tables()));
        let Open { place, settings, changed_catalog, isolation, .. } = open;
        let mut begun = None;
        let result = match place.into_transaction() {
            Some(mut transaction) if commit => {
                let checked = lost.map_or(Ok(()), Err);
                match checked.and_then(|()| self.make_deferred_checks(&mut transaction)) {
                    Ok(()) => {
                        begun = self.time_commit(&transaction);
                        self.services.commit(|| transaction.commit()).map(Some)
                    }
                    Err(error) => {
                        transaction.rollback();
                        Err(timed_out(error, alarm.as_ref()))
                    }
                }
            }
            Some(transaction) => {
                transaction.rollback();
                Ok(None)
            }
            None => Ok(None),
        };
        self.services.end_transaction();
        if !matches!(result, Ok(Some(_))) {
            let why = result.as_ref().err().or(failure.as_ref());
            self.shared.engine.statistics().note_abort(isolation, why);
        }
        if changed_catalog {
            self.services.set_catalog(None);
            self.shared.note_end_of_ddl();
        }
        let committed = matches!(result, Ok(Some(_)));
        self.keep_cursors(committed);
        let changed = self.services.with_settings(|current| {
            current.set_running(None);
            let during = current.clone();
            if !committed {
                current.restore(settings);
            }
            current.end_transaction();
            *current != during
        });
        if changed {
            self.apply_settings();
        }
        match result? {
            Some(ticket) => self
                .finish_commit(ticket, begun, mode, waits)
                .map_err(|error| timed_out(error, alarm.as_ref())),
            None => Ok(()),
        }
    }

    fn roll_back_to(&mut self, name: &str) -> Result<()> {
        self.streams.abandon();
        let has_failed = matches!(self.block, Block::Failed(_));
        let open = self.block.open().expect("there is a block");
        let position = find_savepoint(open, name)?;
        if let Some(loss) = open.place.loss() {
            return Err(loss.error());
        }
        let transaction = open.place.transaction_mut().expect("the transaction is here");
        open.savepoints.truncate(position + 1);
        let saved = &open.savepoints[position];
        transaction.rollback_to(saved.savepoint);
        if has_failed {
            transaction.widen_reads();
        }
        self.services.undo_to(saved.mark);
        let settings = saved.settings.clone();
        if open.changed_catalog {
            self.services.set_catalog(Some(transaction.catalog().clone()));
        }
        self.block = match std::mem::replace(&mut self.block, Block::Idle) {
            Block::Failed(mut open) => {
                open.failure = None;
                Block::Open(open)
            }
            other => other,
        };
        self.services.with_settings(|current| current.restore(settings));
        self.apply_settings();
        self.stream_failure.lower();
        Ok(())
    }

    /// Remembers that the block's transaction has a catalog of its own.
    pub(crate) fn note_ddl(&mut self, transaction: &Transaction) {
        if let Some(open) = self.block.open() {
            open.changed_catalog = true;
            self.services.set_catalog(Some(transaction.catalog().clone()));
        }
    }
}

fn find_savepoint(open: &Open, name: &str) -> Result<usize> {
    open.savepoints.iter().rposition(|savepoint| savepoint.name == name).ok_or_else(|| {
        Error::new(SqlState::INVALID_SAVEPOINT, format!("savepoint \"{name}\" does not exist"))
    })
}

/// The properties that a transaction has after modes were set.
fn running(before: Running, modes: TransactionModes) -> Running {
    Running {
        level: modes.level.unwrap_or(before.level),
        is_deferrable: modes.deferrable.unwrap_or(before.is_deferrable),
    }
}

/// The isolation that a transaction needs: one that only reads is serializable on any snapshot.
fn effective(isolation: Isolation, read_only: bool) -> Isolation {
    if read_only { isolation.min(Isolation::Snapshot) } else { isolation }
}
