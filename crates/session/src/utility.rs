//! Statements that are neither queries nor row changes: settings, SQL's own prepared statements
//! and cursors, EXPLAIN, DDL, and the rest.

use crate::Column;
use crate::block::Block;
use crate::connection::{CommandTag, Connection, Outcome, with_table_of_constraint};
use crate::patience::Patience;
use crate::rows::{RowChunk, Rows};
use crate::statement::Statement;
use firn_base::stack::{self, Deep};
use firn_base::sync::Arc;
use firn_base::{Error, ParameterType, Result, SqlState, SqlType, Value};
use firn_sql::names::Names;
use firn_sql::plan::arguments;
use firn_sql::settings::Settings;
use firn_sql::sources::Sources;
use firn_sql::statement::{
    Ddl, Parsed, QualifiedName, SettingStatement, Statement as Parse, TableLock, TransactionControl,
    TransactionModes,
};
use firn_sql::{ddl, deferred as deferred_checks, settings};
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
    names.iter().map(|name| Column::new(*name, SqlType::Text)).collect()
}

/// A statement within another, to be prepared by itself.
fn deep(parsed: Parsed) -> Option<Deep<Parsed>> {
    Some(Deep::new(parsed.depth, parsed))
}

fn done(verb: &'static str) -> Result<Outcome> {
    Ok(Outcome::Done(CommandTag { verb, rows: None }))
}

impl Connection {
    /// The columns of statements that yield rows without a plan.
    pub(crate) fn columns_of(&mut self, parsed: &Parsed) -> Result<Option<Arc<[Column]>>> {
        Ok(match &parsed.statement {
            Parse::Setting(SettingStatement::Show(Some(name))) => {
                let shown = Settings::reported_name(name).unwrap_or(name);
                Some(columns(&[shown]))
            }
            Parse::Setting(SettingStatement::Show(None)) => {
                Some(columns(&["name", "setting", "description"]))
            }
            Parse::Explain { .. } => Some(columns(&["QUERY PLAN"])),
            Parse::Execute { name, .. } => self.prepared_statement(name)?.columns().cloned(),
            Parse::Fetch { cursor, discard: false, .. } => Some(self.cursor(cursor)?.rows.columns().clone()),
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
        match &parsed.statement {
            Parse::Query(_) | Parse::Change(_) => unreachable!("queries and changes have plans"),
            Parse::Transaction(control) => self.control(control),
            Parse::Setting(setting) => self.run_setting(statement, setting),
            Parse::Prepare { name, types, statement } => {
                if self.prepared.contains_key(name) {
                    return Err(Error::new(
                        SqlState::DUPLICATE_PREPARED_STATEMENT,
                        format!("prepared statement \"{name}\" already exists"),
                    ));
                }
                let types: Vec<Option<ParameterType>> = types.iter().copied().map(Some).collect();
                let prepared = self.prepare_parsed(deep(Parsed::clone(statement)), &types)?;
                self.prepared.insert(name.clone(), prepared);
                done("PREPARE")
            }
            Parse::Execute { name, arguments: expressions } => {
                let prepared = self.prepared_statement(name)?.clone();
                let values = self.with_reader(|connection, transaction| {
                    arguments(
                        transaction,
                        &connection.facts,
                        &connection.options,
                        name,
                        expressions,
                        prepared.parameters(),
                    )
                })?;
                self.run_prepared(&prepared, &values)
            }
            Parse::Deallocate(None) => {
                self.prepared.clear();
                done("DEALLOCATE ALL")
            }
            Parse::Deallocate(Some(name)) => {
                self.prepared_statement(name)?;
                self.prepared.remove(name);
                done("DEALLOCATE")
            }
            Parse::Declare { name, hold, query } => self.declare(name, *hold, query),
            Parse::Fetch { cursor, count, discard } => self.fetch(cursor, *count, *discard),
            Parse::CloseCursor(None) => {
                self.cursors.clear();
                done("CLOSE CURSOR ALL")
            }
            Parse::CloseCursor(Some(name)) => {
                self.cursor(name)?;
                self.cursors.remove(name);
                done("CLOSE CURSOR")
            }
            Parse::Discard(all) => self.discard(*all),
            Parse::Explain { analyze, statement: inner } => self.explain(statement, *analyze, inner),
            Parse::Copy(copy) => stack::with_room(|| self.copy(copy)),
            Parse::Ddl(ddl) => stack::with_room(|| self.run_ddl(ddl, parsed.depth)),
            Parse::Lock { tables, mode, nowait } => self.lock(tables, *mode, *nowait),
            Parse::SetConstraints { names, deferred } => self.set_constraints(names.as_deref(), *deferred),
            Parse::Checkpoint => {
                self.shared.engine.checkpoint()?;
                done("CHECKPOINT")
            }
            Parse::Housekeeping(tag, name) => {
                if let Some(name) = name {
                    self.with_reader(|connection, transaction| {
                        let names = Names::new(transaction.catalog(), &connection.facts);
                        names.relation(name).map(|_| ())
                    })?;
                }
                done(tag)
            }
        }
    }

    /// Runs a statement inside another.
    fn run_prepared(&mut self, statement: &Statement, parameters: &[Value]) -> Result<Outcome> {
        let parsed = statement.prepared.parsed.as_ref().expect("PREPARE takes a statement");
        match &parsed.statement {
            Parse::Query(_) => {
                let mut values = Vec::new();
                let ran = self.run_query(&statement.prepared, parameters, &mut values)?;
                Ok(ran.into_outcome(statement, values))
            }
            Parse::Change(change) => self.run_change(&statement.prepared, parameters, change.verb()),
            _ => unreachable!("the parser lets nothing else in"),
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

    fn run_setting(&mut self, statement: &Statement, setting: &SettingStatement) -> Result<Outcome> {
        match setting {
            SettingStatement::Show(None) => {
                let values = self.services.with_settings(|settings| {
                    settings
                        .all()
                        .flat_map(|(name, value, about)| [name.to_owned(), value, about.to_owned()])
                        .map(Value::Text)
                        .collect()
                });
                let columns = statement.columns().expect("SHOW has columns").clone();
                Ok(Outcome::Rows(Rows::ready(columns, "SHOW", values)))
            }
            SettingStatement::Show(Some(name)) => {
                let value = self.setting(name)?;
                let columns = statement.columns().expect("SHOW has columns").clone();
                Ok(Outcome::Rows(Rows::ready(columns, "SHOW", vec![Value::Text(value)])))
            }
            SettingStatement::Set { name, value, local } => {
                self.set_setting(name, value.as_deref(), *local)?;
                done("SET")
            }
            SettingStatement::Reset(Some(name)) => {
                self.set_setting(name, None, false)?;
                done("RESET")
            }
            SettingStatement::Reset(None) => {
                self.services.with_settings(Settings::reset_all);
                self.heed_settings();
                done("RESET")
            }
        }
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
                    return self.control(&TransactionControl::Set(modes)).map(drop);
                }
            }
            "transaction_read_only" => {
                let read_only = value.and_then(settings::boolean);
                let modes = TransactionModes { read_only, isolation: None };
                return self.control(&TransactionControl::Set(modes)).map(drop);
            }
            _ => {}
        }
        self.services.with_settings(|settings| settings.set(name, value, local))?;
        self.heed_settings();
        Ok(())
    }

    fn discard(&mut self, all: bool) -> Result<Outcome> {
        if !all {
            self.services.forget_sequences();
            return done("DISCARD");
        }
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
        done("DISCARD ALL")
    }

    // Cursors.

    fn cursor(&mut self, name: &str) -> Result<&mut Cursor> {
        self.cursors.get_mut(name).ok_or_else(|| {
            Error::new(SqlState::INVALID_CURSOR_NAME, format!("cursor \"{name}\" does not exist"))
        })
    }

    fn declare(&mut self, name: &str, hold: bool, query: &Parsed) -> Result<Outcome> {
        if !hold && !self.in_block() {
            return Err(Error::new(
                SqlState::NO_ACTIVE_SQL_TRANSACTION,
                "DECLARE CURSOR can only be used in transaction blocks",
            ));
        }
        if self.cursors.contains_key(name) {
            return Err(Error::new(SqlState::DUPLICATE_CURSOR, format!("cursor \"{name}\" already exists")));
        }
        let statement = self.prepare_parsed(deep(query.clone()), &[])?;
        if hold && let Some(clause) = statement.prepared.locks {
            return Err(Error::unsupported(format!("DECLARE CURSOR WITH HOLD ... {clause}"))
                .with_detail("Holdable cursors must be READ ONLY."));
        }
        let Outcome::Rows(rows) = self.run_prepared(&statement, &[])? else {
            unreachable!("the parser lets only queries in")
        };
        let kept = !self.in_block();
        self.cursors.insert(name.to_owned(), Cursor { rows, pending: VecDeque::new(), hold, kept });
        done("DECLARE CURSOR")
    }

    fn fetch(&mut self, name: &str, count: Option<u64>, discard: bool) -> Result<Outcome> {
        let cursor = self.cursor(name)?;
        let columns = cursor.rows.columns().clone();
        let (chunks, rows) = cursor.take(count)?;
        match discard {
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

    fn explain(&mut self, statement: &Statement, analyze: bool, inner: &Parsed) -> Result<Outcome> {
        let (prepared, values) = match &inner.statement {
            Parse::Execute { name, arguments: expressions } => {
                let prepared = self.prepared_statement(name)?.clone();
                let values = self.with_reader(|connection, transaction| {
                    arguments(
                        transaction,
                        &connection.facts,
                        &connection.options,
                        name,
                        expressions,
                        prepared.parameters(),
                    )
                })?;
                (prepared, values)
            }
            Parse::Declare { query, .. } => {
                (self.prepare_parsed(deep(Parsed::clone(query)), &[])?, Vec::new())
            }
            Parse::Ddl(ddl) => match &**ddl {
                Ddl::CreateTableAs { query, .. } => {
                    let parsed = Parsed { statement: Parse::Query(query.clone()), ..inner.clone() };
                    (self.prepare_parsed(deep(parsed), &[])?, Vec::new())
                }
                _ => unreachable!("the parser lets no other DDL in"),
            },
            _ => (self.prepare_parsed(deep(inner.clone()), &[])?, Vec::new()),
        };
        let writes = prepared.prepared.is_change() || prepared.prepared.locks.is_some();
        let lines = if analyze && writes {
            if let Some(verb) = inner.statement.writes() {
                self.refuse_read_only(verb)?;
            }
            let started = firn_base::clock::now();
            let outcome = self.run_prepared(&prepared, &values)?;
            let rows = match outcome {
                Outcome::Done(tag) => tag.rows,
                Outcome::Rows(mut rows) => {
                    while rows.next_chunk()?.is_some() {}
                    rows.tag().rows
                }
                _ => None,
            };
            let ms = started.elapsed().as_secs_f64() * 1e3;
            let mut lines = self.explain_lines(&prepared, &values, false)?;
            lines.push(format!("Rows: {}", rows.unwrap_or(0)));
            lines.push(format!("Execution Time: {ms:.3} ms"));
            lines
        } else {
            self.explain_lines(&prepared, &values, analyze)?
        };
        let columns = statement.columns().expect("EXPLAIN has a column").clone();
        let values = lines.into_iter().map(Value::Text).collect();
        Ok(Outcome::Rows(Rows::ready(columns, "EXPLAIN", values)))
    }

    fn explain_lines(
        &mut self,
        prepared: &Statement,
        values: &[Value],
        analyze: bool,
    ) -> Result<Vec<String>> {
        self.with_reader(|connection, transaction| {
            let plan = connection.current_plan(&prepared.prepared, transaction)?;
            plan.explain(transaction, values, &connection.options, analyze)
        })
    }

    fn run_ddl(&mut self, ddl: &Ddl, depth: u32) -> Result<Outcome> {
        self.refuse_read_only(ddl.tag())?;
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
                depth,
            };
            let rows = ddl::execute(&mut context, ddl)?;
            connection.note_ddl(transaction);
            connection.notices.append(&mut notices);
            Ok(rows)
        })?;
        match rows {
            // As PostgreSQL tells CREATE TABLE AS with data.
            Some(rows) => Ok(Outcome::Done(CommandTag { verb: "SELECT", rows: Some(rows) })),
            None => done(ddl.tag()),
        }
    }

    /// SET CONSTRAINTS: those that become immediate are tested at once.
    fn set_constraints(&mut self, names: Option<&[QualifiedName]>, deferred: bool) -> Result<Outcome> {
        if !self.in_block() {
            self.notices.push(Error::new(
                SqlState::NO_ACTIVE_SQL_TRANSACTION,
                "SET CONSTRAINTS can only be used in transaction blocks",
            ));
        }
        let is_first = self.block.is_unused();
        self.in_transaction(|connection, transaction| {
            let known = Names::new(transaction.catalog(), &connection.facts);
            let constraints = names.map(|names| known.constraints_to_set(names, deferred)).transpose()?;
            transaction.set_constraints(constraints.as_deref(), deferred);
            match deferred {
                true => Ok(()),
                false => deferred_checks::check_immediate(transaction, &connection.options)
                    .map_err(|error| with_table_of_constraint(error, transaction.catalog())),
            }
        })?;
        if is_first {
            // SET TRANSACTION may follow: nothing has been read.
            self.block.forget_use();
        }
        done("SET CONSTRAINTS")
    }

    fn lock(&mut self, names: &[QualifiedName], mode: TableLock, nowait: bool) -> Result<Outcome> {
        if !self.in_block() {
            return Err(Error::new(
                SqlState::NO_ACTIVE_SQL_TRANSACTION,
                "LOCK TABLE can only be used in transaction blocks",
            ));
        }
        let is_first = self.block.is_unused();
        self.in_transaction(|connection, transaction| {
            for name in names {
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
