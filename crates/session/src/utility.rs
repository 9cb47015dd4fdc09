//! Statements that are neither queries nor row changes: settings, SQL's own prepared statements
//! and cursors, EXPLAIN, DDL, and the rest.

use crate::Column;
use crate::block::Block;
use crate::connection::{CommandTag, Connection, Outcome, with_table_of_constraint};
use crate::patience::Patience;
use crate::rows::{RowChunk, Rows};
use crate::statement::{Kind, Statement};
use firn_base::sync::Arc;
use firn_base::{Error, Result, SqlState, Type, TypeId, Value, clock};
use firn_sql::names::Names;
use firn_sql::options::{ExplainOptions, check_options, setting_name, setting_value};
use firn_sql::parse::Parsed;
use firn_sql::plan::arguments;
use firn_sql::query::{check_no_longer_deferred, type_named};
use firn_sql::settings::Settings;
use firn_sql::sources::Sources;
use firn_sql::statement::{
    QualifiedName, TableLock, TransactionModes, makes_table as makes_table_of, without_into,
};
use firn_sql::tree::{self, Discard, FetchDirection, ObjectName, ReindexTarget, Setting, TableSource};
use firn_sql::{ddl, settings};
use std::collections::VecDeque;

/// A cursor of DECLARE.
pub(crate) struct Cursor {
    rows: Rows,
    /// Rows that were drawn but not fetched.
    pending: VecDeque<RowChunk>,
    /// WITH HOLD
    hold: bool,
    /// Whether it outlives the block that it was declared in: that has committed, or there was none.
    kept: bool,
}

fn columns(names: &[&str]) -> Arc<[Column]> {
    let column = |name: &&str| Column { name: (*name).to_owned(), ty: Type::new(TypeId::TEXT), origin: None };
    names.iter().map(column).collect()
}

fn done(verb: &'static str) -> Result<Outcome> {
    Ok(Outcome::Done(CommandTag { verb, rows: None }))
}

impl Connection {
    /// The columns of statements that yield rows without a plan.
    pub(crate) fn columns_of(&mut self, parsed: &Parsed) -> Result<Option<Arc<[Column]>>> {
        Ok(match &parsed.statement {
            tree::Statement::Show(show) => Some(match &show.name {
                Some(name) => {
                    let name = setting_name(name);
                    columns(&[Settings::reported_name(&name).unwrap_or(&name)])
                }
                None => columns(&["name", "setting", "description"]),
            }),
            tree::Statement::Explain(_) => Some(columns(&["QUERY PLAN"])),
            tree::Statement::Execute(execute) => {
                self.prepared_statement(&execute.name.text)?.columns().cloned()
            }
            tree::Statement::Fetch(fetch) if !fetch.is_move => {
                Some(self.cursor(&fetch.cursor.text)?.rows.columns().clone())
            }
            _ => None,
        })
    }

    /// The columns of a cursor that DECLARE made, which a protocol can ask about like a portal.
    pub fn cursor_columns(&self, name: &str) -> Option<&Arc<[Column]>> {
        self.cursors.get(name).map(|cursor| cursor.rows.columns())
    }

    /// Runs a statement that is neither a query nor a row change.
    pub(crate) fn run_utility(
        &mut self,
        statement: &Statement,
        parsed: &Parsed,
        parameters: &[Value],
    ) -> Result<Outcome> {
        if !parameters.is_empty() {
            return Err(Error::new(
                SqlState::PROTOCOL_VIOLATION,
                format!(
                    "bind message supplies {} parameters, but prepared statement requires 0",
                    parameters.len()
                ),
            ));
        }
        use tree::Statement as Tree;
        match &parsed.statement {
            Tree::Transaction(control) => self.control(control),
            Tree::Set(set) => self.run_set(set),
            Tree::Reset(reset) => self.run_reset(reset),
            Tree::Show(show) => self.run_show(statement, show),
            Tree::Prepare(prepare) => self.run_prepare(parsed, prepare),
            Tree::Execute(execute) => {
                let (prepared, values) = self.executed(parsed, execute)?;
                self.run_prepared(&prepared, &values)
            }
            Tree::Deallocate(deallocate) => match &deallocate.name {
                None => {
                    self.prepared.clear();
                    done("DEALLOCATE ALL")
                }
                Some(name) => {
                    self.prepared_statement(&name.text)?;
                    self.prepared.remove(&*name.text);
                    done("DEALLOCATE")
                }
            },
            Tree::DeclareCursor(cursor) => self.declare(parsed, cursor),
            Tree::Fetch(fetch) => self.fetch(fetch),
            Tree::CloseCursor(close) => match &close.name {
                None => {
                    self.cursors.clear();
                    done("CLOSE CURSOR ALL")
                }
                Some(name) => {
                    self.cursor(&name.text)?;
                    self.cursors.remove(&*name.text);
                    done("CLOSE CURSOR")
                }
            },
            Tree::Discard(discard) => self.discard(*discard),
            Tree::Explain(explain) => self.explain(statement, parsed, explain),
            Tree::Copy(copy) => self.copy(parsed, copy),
            Tree::Lock(lock) => self.lock(lock),
            Tree::SetConstraints(set) => self.set_constraints(set),
            Tree::Checkpoint => {
                self.shared.engine.checkpoint()?;
                done("CHECKPOINT")
            }
            Tree::Vacuum(vacuum) => {
                let (tag, options): (_, &[&str]) = match vacuum.is_vacuum {
                    true => ("VACUUM", &VACUUM_OPTIONS),
                    false => ("ANALYZE", &["verbose", "skip_locked"]),
                };
                check_options(tag, options, &vacuum.options, &parsed.script)?;
                self.done_already(tag, vacuum.tables.iter().map(|table| &table.name))
            }
            Tree::Cluster(cluster) => {
                check_options("CLUSTER", &["verbose"], &cluster.options, &parsed.script)?;
                self.done_already("CLUSTER", cluster.table.iter())
            }
            Tree::Reindex(reindex) => {
                let known = ["verbose", "concurrently", "tablespace"];
                check_options("REINDEX", &known, &reindex.options, &parsed.script)?;
                let name = match &reindex.target {
                    ReindexTarget::Index(name) | ReindexTarget::Table(name) => Some(name),
                    ReindexTarget::Schema(_) | ReindexTarget::System(_) | ReindexTarget::Database(_) => None,
                };
                self.done_already("REINDEX", name.into_iter())
            }
            other => match ddl::tag(other) {
                Some(tag) => self.run_ddl(parsed, tag),
                None => Err(Error::unsupported("this statement").with_hint("See docs/dialect.md.")),
            },
        }
    }

    /// A statement that asks for what the engine does by itself: the relations that it names must exist.
    fn done_already<'n>(
        &mut self,
        tag: &'static str,
        names: impl Iterator<Item = &'n ObjectName>,
    ) -> Result<Outcome> {
        let names: Vec<QualifiedName> = names.map(QualifiedName::from).collect();
        if !names.is_empty() {
            self.with_reader(|connection, transaction| {
                let known = Names::new(transaction.catalog(), &connection.facts);
                names.iter().try_for_each(|name| known.relation(name).map(drop))
            })?;
        }
        done(tag)
    }

    // Prepared statements.

    fn run_prepare(&mut self, parsed: &Parsed, prepare: &tree::Prepare) -> Result<Outcome> {
        let name = &prepare.name.text;
        if self.prepared.contains_key(&**name) {
            return Err(Error::new(
                SqlState::DUPLICATE_PREPARED_STATEMENT,
                format!("prepared statement \"{name}\" already exists"),
            ));
        }
        let types = self.with_planner(|connection, transaction| {
            let named = prepare.types.iter().map(|ty| type_named(parsed, ty, transaction, &connection.facts));
            named.map(|ty| ty.map(|ty| Some(ty.id))).collect::<Result<Vec<_>>>()
        })?;
        let prepared = self.make_statement(Some(parsed.inner(prepare.statement.clone())), &types)?;
        self.prepared.insert(name.to_string(), prepared);
        done("PREPARE")
    }

    /// What EXECUTE runs, and with which values.
    fn executed(&mut self, parsed: &Parsed, execute: &tree::Execute) -> Result<(Statement, Vec<Value>)> {
        let prepared = self.prepared_statement(&execute.name.text)?.clone();
        let values = self.with_reader(|connection, transaction| {
            let types = prepared.parameters();
            arguments(transaction, &connection.facts, &connection.options, parsed, execute, types)
        })?;
        Ok((prepared, values))
    }

    /// Runs a query or a change inside another statement.
    fn run_prepared(&mut self, statement: &Statement, parameters: &[Value]) -> Result<Outcome> {
        match statement.prepared.kind {
            Kind::Query => {
                let mut values = Vec::new();
                let ran = self.run_query(&statement.prepared, parameters, &mut values)?;
                Ok(ran.into_outcome(statement, values))
            }
            Kind::Change(verb) => self.run_change(&statement.prepared, parameters, verb),
            Kind::Utility => unreachable!("only queries and changes are prepared in other statements"),
        }
    }

    fn prepared_statement(&self, name: &str) -> Result<&Statement> {
        self.prepared.get(name).ok_or_else(|| {
            Error::new(
                SqlState::INVALID_SQL_STATEMENT_NAME,
                format!("prepared statement \"{name}\" does not exist"),
            )
        })
    }

    // Settings.

    fn run_show(&mut self, statement: &Statement, show: &tree::Show) -> Result<Outcome> {
        let values = match &show.name {
            Some(name) => vec![Value::Text(self.setting(&setting_name(name))?)],
            None => self.services.with_settings(|settings| {
                let all = settings.all();
                let all = all.flat_map(|(name, value, about)| [name.to_owned(), value, about.to_owned()]);
                all.map(Value::Text).collect()
            }),
        };
        let columns = statement.columns().expect("SHOW has columns").clone();
        Ok(Outcome::Rows(Rows::ready(columns, "SHOW", values)))
    }

    fn run_set(&mut self, set: &tree::Set) -> Result<Outcome> {
        match &set.setting {
            Setting::Values { name, values } => {
                let name = set_name(name);
                self.set_setting(&name, Some(&setting_value(&name, values)), set.is_local)?;
            }
            Setting::Default(name) => self.set_setting(&set_name(name), None, set.is_local)?,
            Setting::FromCurrent(name) => {
                let name = set_name(name);
                let value = self.setting(&name)?;
                self.set_setting(&name, Some(&value), set.is_local)?;
            }
            Setting::Transaction(modes) => self.set_modes(TransactionModes::of(modes))?,
            Setting::SessionCharacteristics(modes) => self.set_default_modes(TransactionModes::of(modes))?,
            Setting::Snapshot(_) => unreachable!("it was refused when it was prepared"),
        }
        done("SET")
    }

    fn run_reset(&mut self, reset: &tree::Reset) -> Result<Outcome> {
        match &reset.name {
            Some(name) => self.set_setting(&set_name(name), None, false)?,
            None => {
                self.services.with_settings(Settings::reset_all);
                self.heed_settings();
            }
        }
        done("RESET")
    }

    fn set_setting(&mut self, name: &str, value: Option<&str>, local: bool) -> Result<()> {
        if local && !self.in_block() {
            self.notices.push(Error::new(
                SqlState::NO_ACTIVE_SQL_TRANSACTION,
                "SET LOCAL can only be used in transaction blocks",
            ));
            return Ok(());
        }
        match name {
            // These are the transaction's.
            "transaction_isolation" => {
                // An unknown level falls through, to be refused by its setting.
                if let Some(isolation) = value.and_then(settings::isolation) {
                    let modes = TransactionModes { read_only: None, isolation: Some(isolation) };
                    return self.set_modes(modes);
                }
            }
            "transaction_read_only" => {
                let read_only = value.and_then(settings::boolean);
                let modes = TransactionModes { read_only, isolation: None };
                return self.set_modes(modes);
            }
            _ => {}
        }
        self.services.with_settings(|settings| settings.set(name, value, local))?;
        self.heed_settings();
        Ok(())
    }

    fn discard(&mut self, discard: Discard) -> Result<Outcome> {
        let tag = match discard {
            Discard::All => "DISCARD ALL",
            // There are no temporary tables, and plans of an older catalog go by themselves.
            Discard::Temporary => return done("DISCARD TEMP"),
            Discard::Plans => return done("DISCARD PLANS"),
            Discard::Sequences => {
                self.services.forget_sequences();
                return done("DISCARD SEQUENCES");
            }
        };
        if self.in_block() {
            return Err(Error::new(
                SqlState::ACTIVE_SQL_TRANSACTION,
                "DISCARD ALL cannot run inside a transaction block",
            ));
        }
        self.prepared.clear();
        self.cursors.clear();
        self.services.forget_sequences();
        self.services.with_settings(Settings::reset_all);
        self.set_sources(Sources::default());
        done(tag)
    }

    // Cursors.

    fn cursor(&mut self, name: &str) -> Result<&mut Cursor> {
        self.cursors.get_mut(name).ok_or_else(|| {
            Error::new(SqlState::INVALID_CURSOR_NAME, format!("cursor \"{name}\" does not exist"))
        })
    }

    fn declare(&mut self, parsed: &Parsed, cursor: &tree::DeclareCursor) -> Result<Outcome> {
        let (name, hold) = (&cursor.name.text, cursor.with_hold);
        if !hold && !self.in_block() {
            return Err(Error::new(
                SqlState::NO_ACTIVE_SQL_TRANSACTION,
                "DECLARE CURSOR can only be used in transaction blocks",
            ));
        }
        if self.cursors.contains_key(&**name) {
            return Err(Error::new(SqlState::DUPLICATE_CURSOR, format!("cursor \"{name}\" already exists")));
        }
        let query = tree::Statement::Query(cursor.query.clone());
        let statement = self.make_statement(Some(parsed.inner(query)), &[])?;
        if let Some(effect) = statement.prepared.effect {
            match effect.clause() {
                None => {
                    let message = "DECLARE CURSOR must not contain data-modifying statements in WITH";
                    return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message));
                }
                Some(clause) if hold => {
                    let message = format!("DECLARE CURSOR WITH HOLD ... {clause} is not supported");
                    return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                        .with_detail("Holdable cursors must be READ ONLY."));
                }
                Some(_) => {}
            }
        }
        let Outcome::Rows(rows) = self.run_prepared(&statement, &[])? else {
            unreachable!("a cursor is of a query")
        };
        let kept = !self.in_block();
        self.cursors.insert(name.to_string(), Cursor { rows, pending: VecDeque::new(), hold, kept });
        done("DECLARE CURSOR")
    }

    fn fetch(&mut self, fetch: &tree::Fetch) -> Result<Outcome> {
        let cursor = self.cursor(&fetch.cursor.text)?;
        let columns = cursor.rows.columns().clone();
        let count = match fetch.direction {
            FetchDirection::Forward(count @ 0..) => Some(count as u64),
            FetchDirection::ForwardAll => None,
            _ => unreachable!("it was refused when it was prepared"),
        };
        let (chunks, rows) = cursor.take(count)?;
        match fetch.is_move {
            true => Ok(Outcome::Done(CommandTag { verb: "MOVE", rows: Some(rows) })),
            false => Ok(Outcome::Rows(Rows::chunks(columns, "FETCH", chunks))),
        }
    }

    /// At the end of a block its cursors go; if it commits, but for those that were declared WITH HOLD.
    pub(crate) fn close_cursors(&mut self, commit: bool) {
        if !self.cursors.is_empty() && !matches!(self.block, Block::Idle) {
            self.cursors.retain(|_, cursor| cursor.kept || commit && cursor.hold);
        }
    }

    /// What a cursor failed of that was declared WITH HOLD, when it was read ahead at the end of its block.
    pub(crate) fn failure_of_cursors(&self) -> Option<Error> {
        self.cursors.values().filter(|cursor| !cursor.kept).find_map(|cursor| cursor.rows.failed_ahead())
    }

    /// What becomes of the cursors that are left when their block has committed, or could not.
    pub(crate) fn keep_cursors(&mut self, committed: bool) {
        self.cursors.retain(|_, cursor| {
            cursor.kept |= committed;
            cursor.kept
        });
    }

    // The rest.

    fn explain(
        &mut self,
        statement: &Statement,
        parsed: &Parsed,
        explain: &tree::Explain,
    ) -> Result<Outcome> {
        let options = ExplainOptions::of(&explain.options, &parsed.script)?;
        let query = |query: &tree::Query| {
            Some(parsed.inner(tree::Statement::Query(Box::new(without_into(query.clone())))))
        };
        let mut makes_table = false;
        let (prepared, values) = match &explain.statement {
            tree::Statement::Execute(execute) => self.executed(parsed, execute)?,
            tree::Statement::DeclareCursor(cursor) => {
                (self.make_statement(query(&cursor.query), &[])?, Vec::new())
            }
            tree::Statement::CreateTableAs(create) => {
                makes_table = true;
                match &create.source {
                    TableSource::Query(source) => (self.make_statement(query(source), &[])?, Vec::new()),
                    TableSource::Execute(execute) => self.executed(parsed, execute)?,
                }
            }
            tree::Statement::Query(source) => {
                makes_table = makes_table_of(source);
                (self.make_statement(query(source), &[])?, Vec::new())
            }
            other => (self.make_statement(Some(parsed.inner(other.clone())), &[])?, Vec::new()),
        };
        let mut lines = self.with_reader(|connection, transaction| {
            Ok(connection.current_plan(&prepared.prepared, transaction)?.explain())
        })?;
        if options.analyze {
            let begun = clock::now();
            let outcome = match makes_table {
                true => {
                    let made = parsed.inner(explain.statement.clone());
                    self.run_ddl(&made, "CREATE TABLE AS")?
                }
                false => self.run_prepared(&prepared, &values)?,
            };
            let rows = match outcome {
                Outcome::Rows(mut rows) => {
                    while rows.next_chunk()?.is_some() {}
                    rows.tag().rows
                }
                Outcome::Done(tag) => tag.rows,
                _ => unreachable!("queries and changes yield rows or a tag"),
            };
            lines.push(format!("Rows: {}", rows.unwrap_or(0)));
            if options.summary {
                lines.push(format!("Execution Time: {:.3} ms", begun.elapsed().as_secs_f64() * 1e3));
            }
        }
        let columns = statement.columns().expect("EXPLAIN has a column").clone();
        let values = lines.into_iter().map(Value::Text).collect();
        Ok(Outcome::Rows(Rows::ready(columns, "EXPLAIN", values)))
    }

    fn run_ddl(&mut self, parsed: &Parsed, tag: &'static str) -> Result<Outcome> {
        self.refuse_read_only(tag)?;
        let rows = self.in_transaction(|connection, transaction| {
            if !connection.in_block() {
                transaction.allow_snapshot_advance();
            }
            let mut notices = Vec::new();
            let mut context = ddl::Context {
                engine: &connection.shared.engine,
                transaction,
                facts: &connection.facts,
                options: &connection.options,
                notices: &mut notices,
            };
            let rows = ddl::execute(&mut context, parsed)?;
            connection.note_ddl(transaction);
            connection.notices.append(&mut notices);
            Ok(rows)
        })?;
        match rows {
            // As PostgreSQL reports CREATE TABLE AS with data.
            Some(rows) => Ok(Outcome::Done(CommandTag { verb: "SELECT", rows: Some(rows) })),
            None => done(tag),
        }
    }

    /// SET CONSTRAINTS: those that become immediate are tested at once.
    fn set_constraints(&mut self, set: &tree::SetConstraints) -> Result<Outcome> {
        let deferred = set.deferred;
        let names: Vec<QualifiedName> = set.constraints.iter().map(QualifiedName::from).collect();
        if !self.in_block() {
            self.notices.push(Error::new(
                SqlState::NO_ACTIVE_SQL_TRANSACTION,
                "SET CONSTRAINTS can only be used in transaction blocks",
            ));
        }
        let is_first = self.block.is_unused();
        self.in_transaction(|connection, transaction| {
            let known = Names::new(transaction.catalog(), &connection.facts);
            let constraints = match names.is_empty() {
                true => None,
                false => Some(known.constraints_to_set(&names, deferred)?),
            };
            transaction.set_constraints(constraints.as_deref(), deferred);
            match deferred {
                true => Ok(()),
                false => check_no_longer_deferred(transaction, &connection.facts, &connection.options)
                    .map_err(|error| with_table_of_constraint(error, transaction.catalog())),
            }
        })?;
        if is_first {
            // SET TRANSACTION may follow: nothing has been read.
            self.block.forget_use();
        }
        done("SET CONSTRAINTS")
    }

    fn lock(&mut self, lock: &tree::LockTable) -> Result<Outcome> {
        let (mode, nowait) = (TableLock::from(lock.mode), lock.nowait);
        let names: Vec<QualifiedName> =
            lock.tables.iter().map(|table| QualifiedName::from(&table.name)).collect();
        if !self.in_block() {
            return Err(Error::new(
                SqlState::NO_ACTIVE_SQL_TRANSACTION,
                "LOCK TABLE can only be used in transaction blocks",
            ));
        }
        let is_first = self.block.is_unused();
        self.in_transaction(|connection, transaction| {
            for name in &names {
                let table = Names::new(transaction.catalog(), &connection.facts).table(name)?;
                let storage = transaction.table(table.storage());
                let for_ddl = transaction.has_ddl();
                let mut patience = |waited| match nowait {
                    true => Err(Patience::nowait(&name.name)),
                    false => connection.patience.go_on(&name.name, for_ddl, waited),
                };
                match mode {
                    TableLock::Reading => {}
                    TableLock::LockingRows => {
                        transaction.join_lockers(&storage, &mut patience)?;
                    }
                    TableLock::Writing => {
                        transaction.join_writers(&storage, &mut patience)?;
                    }
                    TableLock::Maintaining => {
                        transaction.lock_share_update_exclusive(&storage, &mut patience)?
                    }
                    TableLock::Sharing => transaction.lock_share(&storage, &mut patience)?,
                    TableLock::WritingAlone => {
                        transaction.lock_share_row_exclusive(&storage, &mut patience)?
                    }
                    TableLock::Alone => transaction.lock_table(&storage, &mut patience)?,
                }
            }
            if is_first {
                // It reads what those have committed for whom it has waited.
                transaction.renew_snapshot();
            }
            Ok(())
        })?;
        if is_first {
            self.block.forget_use();
        }
        done("LOCK TABLE")
    }
}

/// The options of VACUUM, none of which changes what the engine does.
const VACUUM_OPTIONS: [&str; 10] = [
    "verbose",
    "skip_locked",
    "analyze",
    "freeze",
    "full",
    "disable_page_skipping",
    "index_cleanup",
    "process_toast",
    "truncate",
    "parallel",
];

/// The setting that a name in SET or RESET means. There are no roles: SESSION AUTHORIZATION sets the role.
fn set_name(name: &ObjectName) -> String {
    match setting_name(name) {
        name if name == "session_authorization" => "role".to_owned(),
        name => name,
    }
}

impl Cursor {
    /// The next rows, all of them without a count, and how many they are.
    fn take(&mut self, count: Option<u64>) -> Result<(VecDeque<RowChunk>, u64)> {
        let width = self.rows.columns().len().max(1);
        let mut taken = VecDeque::new();
        let mut rows = 0;
        while count.is_none_or(|count| rows < count) {
            let chunk = match self.pending.pop_front() {
                Some(chunk) => chunk,
                None => match self.rows.next_chunk()? {
                    Some(chunk) => chunk,
                    None => break,
                },
            };
            let wanted = count.map_or(usize::MAX, |count| (count - rows) as usize);
            let length = chunk.rows(width);
            let (chunk, length) = match length > wanted {
                true => {
                    let (first, rest) = chunk.split(wanted, width);
                    self.pending.push_front(rest);
                    (first, wanted)
                }
                false => (chunk, length),
            };
            rows += length as u64;
            taken.push_back(chunk);
        }
        Ok((taken, rows))
    }
}
