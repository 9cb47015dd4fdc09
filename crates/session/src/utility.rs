//! Statements that are neither queries nor row changes: settings, SQL's own prepared statements
//! and cursors, EXPLAIN, DDL, and the rest.

use crate::Column;
use crate::block::Block;
use crate::connection::{CommandTag, Connection, Outcome};
use crate::cursor::Cursor;
use crate::errors::with_table_of_constraint;
use crate::parameters::coerced;
use crate::patience::Patience;
use crate::positioned::Positioned;
use crate::rows::Rows;
use crate::statement::{Kind, Statement};
use firn_base::sync::Arc;
use firn_base::{Error, Result, SqlState, Type, TypeId, Value, clock};
use firn_sql::explain::Run;
use firn_sql::named::NamedStatement;
use firn_sql::names::{Names, Relation};
use firn_sql::notifications::Listening;
use firn_sql::options::{ExplainOptions, check_options, setting_name, setting_value};
use firn_sql::parse::Parsed;
use firn_sql::plan::arguments;
use firn_sql::query::{check_no_longer_deferred, type_named};
use firn_sql::settings::{Level, Settings};
use firn_sql::sources::Sources;
use firn_sql::standby;
use firn_sql::statement::{QualifiedName, TableLock, TransactionModes, makes_table as makes_table_of};
use firn_sql::tree::{self, Discard, ObjectName, ReindexTarget, Setting, TableSource};
use firn_sql::{ddl, settings};
use std::borrow::Cow;

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
            tree::Statement::Explain(explain) => {
                let options = ExplainOptions::of(&explain.options, &parsed.script)?;
                let ty = Type::new(options.format.type_id());
                Some([Column { name: "QUERY PLAN".to_owned(), ty, origin: None }].into())
            }
            tree::Statement::Execute(execute) => {
                self.prepared_statement(&execute.name.text)?.columns().cloned()
            }
            tree::Statement::Fetch(fetch) if !fetch.is_move => {
                Some(self.cursor(&fetch.cursor.text)?.columns().clone())
            }
            _ => None,
        })
    }

    /// The columns of a cursor that DECLARE made, which a protocol can describe like a portal.
    pub fn cursor_columns(&self, name: &str) -> Option<&Arc<[Column]>> {
        self.cursors.get(name).map(|cursor| cursor.columns())
    }

    /// Runs a statement that is neither a query nor a row change.
    pub(crate) fn run_utility(
        &mut self,
        statement: &Statement,
        parsed: &Parsed,
        parameters: &[Value],
    ) -> Result<Outcome> {
        let wanted = statement.parameters().len();
        if parameters.len() != wanted {
            return Err(Error::new(
                SqlState::PROTOCOL_VIOLATION,
                format!(
                    "bind message supplies {} parameters, but prepared statement requires {wanted}",
                    parameters.len()
                ),
            ));
        }
        if let Some(error) = self.refused_in_replica(&parsed.statement) {
            return Err(error);
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
                    self.forget_statements();
                    done("DEALLOCATE ALL")
                }
                Some(name) => {
                    self.prepared_statement(&name.text)?;
                    self.forget_statement(&name.text);
                    done("DEALLOCATE")
                }
            },
            Tree::DeclareCursor(cursor) => self.declare(statement, parsed, cursor, parameters),
            Tree::Fetch(fetch) => self.fetch(fetch),
            Tree::CloseCursor(close) => match &close.name {
                None => {
                    self.cursors.clear();
                    self.list_cursors();
                    done("CLOSE CURSOR ALL")
                }
                Some(name) => {
                    self.cursor(&name.text)?;
                    self.cursors.remove(&*name.text);
                    self.list_cursors();
                    done("CLOSE CURSOR")
                }
            },
            Tree::Listen(channel) => {
                self.services.listen(Listening::Begin(channel.text.to_string()));
                done("LISTEN")
            }
            Tree::Unlisten(unlisten) => {
                self.services.listen(match &unlisten.channel {
                    Some(channel) => Listening::End(channel.text.to_string()),
                    None => Listening::EndAll,
                });
                done("UNLISTEN")
            }
            Tree::Notify(notify) => {
                self.services.notify(&notify.channel.text, notify.payload.as_deref().unwrap_or_default())?;
                done("NOTIFY")
            }
            Tree::Discard(discard) => self.discard(*discard),
            Tree::Explain(explain) => self.explain(statement, parsed, explain, parameters),
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
                self.reindex(&reindex.target)
            }
            change @ (Tree::Update(_) | Tree::Delete(_)) => {
                let positioned = Positioned::of(change).expect("others have plans");
                self.run_positioned(statement, &positioned, parameters)
            }
            other => match ddl::tag(other) {
                Some(tag) => self.make_objects(statement, parsed, tag, parameters),
                None => Err(Error::unsupported("this statement").with_hint("See docs/dialect.md.")),
            },
        }
    }

    /// The error of a statement that changes no row, but that a replica refuses as PostgreSQL does.
    #[inline]
    pub(crate) fn refused_in_replica(&self, statement: &tree::Statement) -> Option<Error> {
        let engine = &self.shared.engine;
        if !engine.is_replica() {
            return None;
        }
        use tree::Statement as Tree;
        let command = match statement {
            Tree::Vacuum(vacuum) if vacuum.is_vacuum => "VACUUM",
            Tree::Vacuum(_) => "ANALYZE",
            Tree::Cluster(_) => "CLUSTER",
            Tree::Reindex(_) => "REINDEX",
            Tree::Copy(copy) if copy.is_from => "COPY",
            Tree::Lock(lock) => match TableLock::from(lock.mode) {
                TableLock::Reading | TableLock::LockingRows | TableLock::Writing => return None,
                _ => "LOCK TABLE",
            },
            Tree::Transaction(tree::Transaction::Prepare(_)) => "PREPARE TRANSACTION",
            Tree::Transaction(tree::Transaction::CommitPrepared(_)) => "COMMIT PREPARED",
            Tree::Transaction(tree::Transaction::RollbackPrepared(_)) => "ROLLBACK PREPARED",
            _ => return None,
        };
        Some(standby::during_recovery(command, engine))
    }

    /// REINDEX, which the engine does by itself: what it names must exist, and have an index.
    fn reindex(&mut self, target: &ReindexTarget) -> Result<Outcome> {
        let (name, is_index) = match target {
            ReindexTarget::Index(name) => (QualifiedName::from(name), true),
            ReindexTarget::Table(name) => (QualifiedName::from(name), false),
            ReindexTarget::Schema(_) | ReindexTarget::System(_) | ReindexTarget::Database(_) => {
                return done("REINDEX");
            }
        };
        let wrong = |what: &str| {
            let message = format!("\"{}\" is not {what}", name.name);
            Error::new(SqlState::WRONG_OBJECT_TYPE, message)
        };
        let has_index = self.with_reader(|connection, transaction| {
            match Names::new(transaction.catalog(), &connection.facts).relation(&name)? {
                Relation::Index(..) if is_index => Ok(true),
                _ if is_index => Err(wrong("an index")),
                Relation::Table(table) => Ok(table.visible_indexes().next().is_some()),
                _ => Err(wrong("a table or materialized view")),
            }
        })?;
        if !has_index {
            let message = format!("table \"{}\" has no indexes to reindex", name.name);
            self.notices.push(Error::new(SqlState::SUCCESSFUL_COMPLETION, message));
        }
        done("REINDEX")
    }

    /// A statement for work that the engine does automatically: the relations that it names must exist.
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
        self.refuse_taken_name(name)?;
        let types = self.with_planner(|connection, transaction| {
            let named = prepare.types.iter().map(|ty| type_named(parsed, ty, transaction, &connection.facts));
            named.map(|ty| ty.map(|ty| Some(ty.id))).collect::<Result<Vec<_>>>()
        })?;
        let prepared = self.make_statement(Some(parsed.inner(prepare.statement.clone())), &types, false)?;
        self.name_statement(name, prepared, parsed.script.clone(), true)?;
        done("PREPARE")
    }

    fn refuse_taken_name(&self, name: &str) -> Result<()> {
        match self.prepared.contains_key(name) {
            false => Ok(()),
            true => Err(Error::new(
                SqlState::DUPLICATE_PREPARED_STATEMENT,
                format!("prepared statement \"{name}\" already exists"),
            )),
        }
    }

    pub(crate) fn name_statement(
        &mut self,
        name: &str,
        statement: Statement,
        text: Arc<str>,
        from_sql: bool,
    ) -> Result<()> {
        self.refuse_taken_name(name)?;
        let listed = NamedStatement::new(text, statement.parameters(), from_sql);
        self.services.with_named(|named| named.statements.insert(name.to_owned(), listed));
        self.prepared.insert(name.to_owned(), statement);
        Ok(())
    }

    /// Gives a name to a statement that a protocol has prepared. SQL and protocols share the names: EXECUTE runs it, and DEALLOCATE
    /// removes it. 42P05 if the name is taken.
    pub fn keep_statement(&mut self, name: &str, statement: &Statement) -> Result<()> {
        let text = statement.prepared.text.0.as_str().into();
        self.name_statement(name, statement.clone(), text, false)
    }

    /// The prepared statement of that name, whether SQL or a protocol has prepared it.
    pub fn kept_statement(&self, name: &str) -> Option<&Statement> {
        self.prepared.get(name)
    }

    /// Removes the prepared statement of that name, if there is one.
    pub fn forget_statement(&mut self, name: &str) {
        if self.prepared.remove(name).is_some() {
            self.services.with_named(|named| named.statements.remove(name));
            self.forgotten_statements += 1;
        }
    }

    fn forget_statements(&mut self) {
        self.prepared.clear();
        self.services.with_named(|named| named.statements.clear());
        self.forgotten_statements += 1;
    }

    /// A number that changes when a prepared statement is removed: for protocols that cache statements.
    #[inline]
    pub fn forgotten_statements(&self) -> u64 {
        self.forgotten_statements
    }

    /// The statement that EXECUTE runs, and its values.
    fn executed(&mut self, parsed: &Parsed, execute: &tree::Execute) -> Result<(Statement, Vec<Value>)> {
        let prepared = self.prepared_statement(&execute.name.text)?.clone();
        let values = self.with_reader(|connection, transaction| {
            let types = prepared.parameters();
            arguments(transaction, &connection.facts, &connection.options, parsed, execute, types)
        })?;
        Ok((prepared, values))
    }

    /// Runs a query or a change inside another statement.
    pub(crate) fn run_prepared(&mut self, statement: &Statement, parameters: &[Value]) -> Result<Outcome> {
        match statement.prepared.kind {
            Kind::Query => {
                let mut values = Vec::new();
                let ran = self.run_query(&statement.prepared, parameters, &mut values)?;
                Ok(ran.into_outcome(statement, values))
            }
            Kind::Change(verb) => self.run_change(&statement.prepared, parameters, verb),
            // A change of the current row of a cursor.
            Kind::Utility => {
                let parsed = statement.prepared.parsed.as_ref().expect("it has a text");
                self.run_utility(statement, parsed, parameters)
            }
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
                let name = setting_name(name);
                self.set_setting(&name, Some(&setting_value(&name, values)), set.is_local)?;
            }
            Setting::Default(name) => self.set_setting(&setting_name(name), None, set.is_local)?,
            Setting::FromCurrent(name) => {
                let name = setting_name(name);
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
            Some(name) => self.set_setting(&setting_name(name), None, false)?,
            None => {
                self.services.with_settings(Settings::reset_all);
                self.apply_settings();
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
            // The value must be one all the same.
            return self.services.with_settings(|settings| settings.clone().set(name, value, true));
        }
        // These belong to the transaction. An invalid value falls through, and the setting refuses it.
        let modes = match name {
            "transaction_isolation" => value
                .and_then(Level::named)
                .map(|level| TransactionModes { level: Some(level), ..TransactionModes::default() }),
            "transaction_read_only" => value.and_then(settings::boolean).map(|read_only| TransactionModes {
                read_only: Some(read_only),
                ..TransactionModes::default()
            }),
            "transaction_deferrable" => value.and_then(settings::boolean).map(|deferrable| {
                TransactionModes { deferrable: Some(deferrable), ..TransactionModes::default() }
            }),
            _ => None,
        };
        if let Some(modes) = modes {
            return self.set_modes(modes);
        }
        self.services.with_settings(|settings| settings.set(name, value, local))?;
        self.apply_settings();
        Ok(())
    }

    fn discard(&mut self, discard: Discard) -> Result<Outcome> {
        let tag = match discard {
            Discard::All => "DISCARD ALL",
            // There are no temporary tables, and plans of an older catalog are dropped automatically.
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
        self.forget_statements();
        self.cursors.clear();
        self.list_cursors();
        self.services.listen(Listening::EndAll);
        self.services.unlock_all();
        self.services.forget_sequences();
        self.services.with_settings(Settings::reset_all);
        self.set_sources(Sources::default());
        done(tag)
    }

    // Cursors.

    pub(crate) fn cursor(&mut self, name: &str) -> Result<&mut Cursor> {
        self.cursors.get_mut(name).ok_or_else(|| {
            Error::new(SqlState::INVALID_CURSOR_NAME, format!("cursor \"{name}\" does not exist"))
        })
    }

    fn declare(
        &mut self,
        statement: &Statement,
        parsed: &Parsed,
        cursor: &tree::DeclareCursor,
        parameters: &[Value],
    ) -> Result<Outcome> {
        self.note_read_of_tables();
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
        let query = statement.prepared.inner.as_ref().expect("its query has been prepared");
        if let Some(effect) = query.prepared.effect {
            let unsupported = |options: &str, clause: &str, detail: &str| {
                let message = format!("DECLARE {options}... {clause} is not supported");
                Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message).with_detail(detail))
            };
            match effect.clause() {
                None => {
                    let message = "DECLARE CURSOR must not contain data-modifying statements in WITH";
                    return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message));
                }
                Some(clause) if hold => {
                    return unsupported("CURSOR WITH HOLD ", clause, "Holdable cursors must be READ ONLY.");
                }
                Some(clause) if cursor.scroll => {
                    return unsupported("SCROLL CURSOR ", clause, "Scrollable cursors must be READ ONLY.");
                }
                Some(clause) if cursor.is_insensitive => {
                    let detail = "Insensitive cursors must be READ ONLY.";
                    return unsupported("INSENSITIVE CURSOR ", clause, detail);
                }
                Some(_) => {}
            }
        }
        let may_scroll = query.prepared.effect.is_none();
        // A cursor that outlives its transaction has no current row that could be changed.
        let with_row_ids = match hold {
            true => None,
            false => self.query_with_row_ids(&cursor.query, query),
        };
        let (query, table) = match with_row_ids {
            Some((query, table)) => (query, Some(table)),
            None => (query.clone(), None),
        };
        let Outcome::Rows(rows) = self.run_prepared(&query, parameters)? else {
            unreachable!("a cursor is of a query")
        };
        let text = parsed.script.clone();
        let mut opened = Cursor::new(cursor, text, rows, table, may_scroll, &self.options);
        opened.kept = !self.in_block();
        self.cursors.insert(name.to_string(), opened);
        self.list_cursors();
        done("DECLARE CURSOR")
    }

    fn fetch(&mut self, fetch: &tree::Fetch) -> Result<Outcome> {
        let cursor = self.cursor(&fetch.cursor.text)?;
        if fetch.is_move {
            let rows = cursor.move_by(fetch.direction)?;
            return Ok(Outcome::Done(CommandTag { verb: "MOVE", rows: Some(rows) }));
        }
        let (columns, is_binary) = (cursor.columns().clone(), cursor.is_binary());
        let fetched = cursor.fetch(fetch.direction)?;
        Ok(Outcome::Rows(Rows::fetched(columns, fetched).in_binary(is_binary)))
    }

    /// Publishes the list of cursors to functions.
    fn list_cursors(&self) {
        let listed = self.cursors.iter().map(|(name, cursor)| (name.clone(), cursor.listed().clone()));
        self.services.with_named(|named| named.cursors = listed.collect());
    }

    /// At the end of a block its cursors are closed; if it commits, except for those that were declared WITH HOLD.
    pub(crate) fn close_cursors(&mut self, commit: bool) {
        if !self.cursors.is_empty() && !matches!(self.block, Block::Idle) {
            self.cursors.retain(|_, cursor| cursor.kept || commit && cursor.hold);
            self.list_cursors();
        }
    }

    /// The error of a cursor that was declared WITH HOLD, which occurred when it was read ahead at the end of its block.
    pub(crate) fn failure_of_cursors(&self) -> Option<Error> {
        self.cursors.values().filter(|cursor| !cursor.kept).find_map(Cursor::failed_ahead)
    }

    /// Updates the cursors that are left after the commit of their block has succeeded or failed.
    pub(crate) fn keep_cursors(&mut self, committed: bool) {
        let before = self.cursors.len();
        self.cursors.retain(|_, cursor| {
            cursor.kept |= committed;
            cursor.kept
        });
        if self.cursors.len() < before {
            self.list_cursors();
        }
    }

    // The rest.

    fn explain(
        &mut self,
        statement: &Statement,
        parsed: &Parsed,
        explain: &tree::Explain,
        parameters: &[Value],
    ) -> Result<Outcome> {
        let options = ExplainOptions::of(&explain.options, &parsed.script)?;
        let makes_table = match &explain.statement {
            tree::Statement::CreateTableAs(_) => true,
            tree::Statement::Query(source) => makes_table_of(source),
            _ => false,
        };
        let (prepared, values) = match (&statement.prepared.inner, &explain.statement) {
            (Some(inner), _) => (inner.clone(), Cow::Borrowed(parameters)),
            (None, tree::Statement::Execute(execute)) => {
                let (prepared, values) = self.executed(parsed, execute)?;
                (prepared, Cow::Owned(values))
            }
            (None, tree::Statement::CreateTableAs(create)) => match &create.source {
                TableSource::Execute(execute) => {
                    let (prepared, values) = self.executed(parsed, execute)?;
                    (prepared, Cow::Owned(values))
                }
                TableSource::Query(_) => unreachable!("its query has been prepared"),
            },
            (None, other) => panic!("{other:?} has been prepared"),
        };
        let planned = clock::now();
        let explained = self.with_reader(|connection, transaction| {
            let plan = connection.explained_plan(&prepared.prepared, transaction)?;
            // A statement that touches few rows does not run by the operators of its plan.
            let is_measured = options.analyze && !makes_table && !plan.is_short();
            connection.options.measures = is_measured.then(|| plan.measures());
            let values = coerced(&plan.parameters, &values, &connection.options.style)?;
            plan.explain(transaction, &options, &values, &connection.options)
        });
        if explained.is_err() {
            self.options.measures = None;
        }
        let mut explained = explained?;
        let planning = planned.elapsed();
        if options.analyze {
            let (begun, written) = (clock::now(), self.options.spill.written());
            let outcome = match makes_table {
                true => {
                    let made = parsed.inner(explain.statement.clone());
                    self.make_table(&made, "CREATE TABLE AS", &prepared, &values)
                }
                false => self.run_prepared(&prepared, &values),
            };
            self.options.measures = None;
            let rows = match outcome? {
                Outcome::Rows(mut rows) => {
                    while rows.next_chunk()?.is_some() {}
                    rows.tag().rows
                }
                Outcome::Done(tag) => tag.rows,
                _ => unreachable!("queries and changes yield rows or a tag"),
            };
            let temporary = self.options.spill.written() - written;
            explained.note_run(Run { rows: rows.unwrap_or(0), time: begun.elapsed(), temporary });
        }
        if options.summary {
            explained.note_planning(planning);
        }
        let columns = statement.columns().expect("EXPLAIN has a column").clone();
        let values = explained.into_rows().into_iter().map(Value::Text).collect();
        Ok(Outcome::Rows(Rows::ready(columns, "EXPLAIN", values)))
    }

    /// DDL. The query of CREATE TABLE AS may have been prepared.
    fn make_objects(
        &mut self,
        statement: &Statement,
        parsed: &Parsed,
        tag: &'static str,
        parameters: &[Value],
    ) -> Result<Outcome> {
        if let Some(inner) = &statement.prepared.inner {
            return self.make_table(parsed, tag, inner, parameters);
        }
        match &parsed.statement {
            tree::Statement::CreateTableAs(create) => match &create.source {
                TableSource::Execute(execute) => {
                    let (prepared, values) = self.executed(parsed, execute)?;
                    self.make_table(parsed, tag, &prepared, &values)
                }
                TableSource::Query(_) => self.run_ddl(parsed, tag),
            },
            _ => self.run_ddl(parsed, tag),
        }
    }

    /// CREATE TABLE AS or SELECT INTO with the rows of a query that has been prepared.
    fn make_table(
        &mut self,
        parsed: &Parsed,
        tag: &'static str,
        prepared: &Statement,
        parameters: &[Value],
    ) -> Result<Outcome> {
        let of = prepared.prepared.parsed.as_deref();
        let (Some(of), Some(columns)) = (of, prepared.columns()) else { return Err(no_select()) };
        let tree::Statement::Query(query) = &of.statement else { return Err(no_select()) };
        let values = coerced(prepared.parameters(), parameters, &self.options.style)?;
        let types = prepared.parameters();
        let filling = ddl::Filling { parsed: of, query, columns, types, values: &values };
        self.run_ddl_with(tag, |context| ddl::execute_filled(context, parsed, &filling))
    }

    fn run_ddl(&mut self, parsed: &Parsed, tag: &'static str) -> Result<Outcome> {
        self.run_ddl_with(tag, |context| ddl::execute(context, parsed))
    }

    fn run_ddl_with(
        &mut self,
        tag: &'static str,
        mut execute: impl FnMut(&mut ddl::Context<'_>) -> Result<Option<u64>>,
    ) -> Result<Outcome> {
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
            let rows = execute(&mut context)?;
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
            let mut tables = Vec::with_capacity(names.len());
            for name in &names {
                tables.extend(ddl::locked_by(&Names::new(transaction.catalog(), &connection.facts), name)?);
            }
            for table in tables {
                let storage = transaction.table(table.storage());
                let for_ddl = transaction.has_ddl();
                let mut patience = |waited| match nowait {
                    true => Err(Patience::nowait(&table.name)),
                    false => connection.patience.go_on(&table.name, for_ddl, waited),
                };
                match mode {
                    TableLock::Reading => {}
                    // No transaction of a replica takes a lock that conflicts with it, and replay does not wait for readers.
                    _ if connection.shared.engine.is_replica() => {}
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
                // It reads what the transactions have committed for which it has waited.
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

fn no_select() -> Error {
    Error::new(SqlState::WRONG_OBJECT_TYPE, "prepared statement is not a SELECT")
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
