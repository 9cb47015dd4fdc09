//! Prepared statements, how they are planned, and the plans that they keep.
//!
//! A plan pins the tables that it reads, with all their rows, and the client of a prepared statement may be idle for days.
//! So a database lists its statements. At the end of DDL, plans that do not hold in the newest catalog are removed from them, as from the
//! [cache](crate::cache). So tables that were dropped or truncated release their memory although no client runs the
//! statements again. A statement keeps its plan under a lock:
//!
//! ```text
//! statement ── lock ──> plan ──> tables       running the statement takes the lock shared
//!     ↑ weak                                  removing or replacing the plan tries to take it exclusively
//! one of the lists
//! ```
//! No thread waits for such a lock. A statement that runs just when DDL ends keeps its plan until it is run again, or
//! other DDL ends. Plans of the older catalog that a block reads belong to the block, and are dropped with it. A statement may keep a
//! plan of a catalog that its transaction has changed: the end of that DDL looks at it.
//!
//! Taking the lock shared writes to its cache line, for which sessions that run one statement at once would compete.
//! So once other sessions run a statement than the one that has prepared it, it has several such places, and each session uses one.
//!
//! Only statements that keep a plan are listed, so DDL does not examine thousands that were prepared and not used again.
//!
//! Invariant: a plan that a statement begins to keep is found to hold in the newest catalog, and is stored, under the lock of the list.
//! DDL whose catalog was not the newest yet locks the list later, and looks at the plan. Removing a plan needs no lock of
//! the list.
//!
//! Invariant: a statement that keeps a plan is listed.

use crate::Column;
use crate::connection::Connection;
use crate::database::Shared;
use crate::parameters::coerced;
use crate::positioned::{self, Positioned};
use firn_base::stack::Tree;
use firn_base::sync::{Arc, AtomicBool, Mutex, OnceLock, Ordering, RwLock, RwLockReadGuard, Spread, Weak};
use firn_base::{Error, Result, SqlState, TextStyle, Type, TypeId, Value};
use firn_sql::activity::QueryText;
use firn_sql::literals::SharedForm;
use firn_sql::parse::{self, Parsed};
use firn_sql::session_facts::SessionFacts;
use firn_sql::statement::{change_tag, is_query, without_into};
use firn_sql::tree::TableSource;
use firn_sql::{Plan, QueryEffect, tree};
use firn_txn::dependencies::CatalogLookup;
use firn_txn::{Engine, Transaction};
use std::ops::Deref;

/// The least number of statements at which a list is searched for dropped ones.
const FEW: usize = 64;

/// A prepared statement, cheap to clone, usable by every connection of its database. It remains
/// valid when the catalog changes: it is planned again when run, and fails with 0A000 if its result
/// columns have changed.
#[derive(Clone)]
pub struct Statement {
    pub(crate) prepared: Arc<Prepared>,
}

/// The text of a statement apart from it: other sessions see it until its session runs another one. A plan held for so
/// long would pin its tables.
pub(crate) struct Text(pub String);

/// How a statement is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// As a query, by its plan.
    Query,
    /// As a change of rows with this command tag, by its plan.
    Change(&'static str),
    /// As a utility statement.
    Utility,
}

impl Kind {
    fn of(statement: &tree::Statement) -> Kind {
        match change_tag(statement) {
            Some(_) if Positioned::of(statement).is_some() => Kind::Utility,
            Some(tag) => Kind::Change(tag),
            None if is_query(statement) => Kind::Query,
            None => Kind::Utility,
        }
    }
}

pub(crate) struct Prepared {
    pub text: Arc<Text>,
    /// `None` for an empty text.
    pub parsed: Option<Tree<Parsed>>,
    /// What it is.
    pub kind: Kind,
    /// The parameter types that were declared.
    declared: Box<[Option<TypeId>]>,
    /// What the session knew when it was prepared: its literals are read so ever after.
    pub facts: Arc<SessionFacts>,
    /// The types that the parameters have.
    pub parameters: Vec<Type>,
    /// Values of literals of its text. A plan that other statements may share has them as parameters.
    literals: Box<[Value]>,
    /// The columns that it yields: those of its plan, or of SHOW, EXPLAIN, FETCH and EXECUTE, which have none.
    pub columns: Option<Arc<[Column]>>,
    /// If it is a query that does more than read: what.
    pub effect: Option<QueryEffect>,
    /// The query or the change in DECLARE, EXPLAIN or CREATE TABLE AS, whose parameters are its own.
    pub inner: Option<Statement>,
    /// Whether its text is that of this statement alone, and not that of one that it is a part of.
    pub is_whole_text: bool,
    /// The session that has prepared it, which determines its list.
    session: u32,
    /// The plan of a query or a change, for the session that has prepared it, as long as no other one runs it.
    place: Place,
    /// The same for all sessions, once other sessions have run it.
    places: OnceLock<Box<Spread<Place>>>,
    /// Whether it is listed. Relaxed: it is read and written under the lock of its list.
    is_listed: AtomicBool,
}

/// Where a plan is kept, unless there is none, or it was removed.
type Place = RwLock<Option<Arc<Plan>>>;

/// A plan of statements that differ in literals, with the values of these in one of them.
type SharedPlan = (Arc<Plan>, Box<[Value]>);

/// A plan while its statement runs.
pub(crate) enum PlanInUse<'p> {
    /// The one that the statement keeps.
    Kept(RwLockReadGuard<'p, Option<Arc<Plan>>>),
    /// Another one.
    Other(Arc<Plan>),
}

/// The statements of a database that keep plans: those that a connection has prepared are in one of several lists.
#[derive(Default)]
pub(crate) struct Statements(Spread<Mutex<Listed>>);

#[derive(Default)]
struct Listed {
    all: Vec<Weak<Prepared>>,
    /// At this length the list drops the entries of dropped statements.
    most: usize,
}

impl Deref for PlanInUse<'_> {
    type Target = Plan;

    #[inline]
    fn deref(&self) -> &Plan {
        match self {
            PlanInUse::Kept(kept) => kept.as_ref().expect("it has been looked at"),
            PlanInUse::Other(plan) => plan,
        }
    }
}

impl Prepared {
    /// The values of a plan's parameters: those that are given, or those of literals.
    #[inline]
    pub fn values_of<'v>(&'v self, plan: &Plan, given: &'v [Value]) -> &'v [Value] {
        match plan.parameters.len() == given.len() {
            true => given,
            false => &self.literals,
        }
    }

    /// Where a session looks for its plan.
    #[inline]
    fn place_for(&self, session: u32) -> &Place {
        match self.places.get() {
            Some(places) => places.of(u64::from(session)),
            None if session == self.session => &self.place,
            None => self.make_places().of(u64::from(session)),
        }
    }

    /// Another session runs it for the first time. A plan in the first place remains there until DDL ends, or the statement is dropped.
    #[cold]
    fn make_places(&self) -> &Spread<Place> {
        self.places.get_or_init(Box::default)
    }

    fn all_places(&self) -> impl Iterator<Item = &Place> {
        let more = self.places.get().into_iter().flat_map(|places| places.iter());
        std::iter::once(&self.place).chain(more)
    }

    /// Removes the plans that meet a condition, unless a statement uses them now. Returns whether some may be left.
    fn take_plans_if(&self, is_so: impl Fn(&Plan) -> bool, taken: &mut Vec<Arc<Plan>>) -> bool {
        let mut are_left = false;
        for place in self.all_places() {
            match place.try_write() {
                Some(mut kept) => {
                    taken.extend(kept.take_if(|plan| is_so(plan)));
                    are_left |= kept.is_some();
                }
                None => are_left = true,
            }
        }
        are_left
    }
}

impl Statements {
    fn list_of(&self, statement: &Prepared) -> &Mutex<Listed> {
        self.0.of(u64::from(statement.session))
    }

    /// Stores this plan in the statement for a session in place of an older one. It does not if a statement uses that
    /// one now, or if the plan does not hold in the newest catalog. One `with_ddl` may be of a transaction that runs DDL.
    fn keep(
        &self,
        statement: &Arc<Prepared>,
        session: u32,
        plan: &Arc<Plan>,
        engine: &Engine,
        with_ddl: bool,
    ) {
        let mut listed = self.list_of(statement).lock();
        if !with_ddl && !plan.holds_in_newest(&CatalogLookup::of_few(&engine.catalog())) {
            return;
        }
        let Some(mut kept) = statement.place_for(session).try_write() else { return };
        let before = kept.replace(plan.clone());
        drop(kept);
        if !statement.is_listed.swap(true, Ordering::Relaxed) {
            listed.push(statement);
        }
        // The tables may be freed with it, which takes time.
        drop(listed);
        drop(before);
    }

    /// DDL has ended: removes the plans that do not hold in the newest catalog, as from the cache.
    pub fn discard_outdated(&self, newest: &CatalogLookup<'_>) {
        for list in self.0.iter() {
            let mut gone = Vec::new();
            let mut listed = list.lock();
            listed.all.retain(|statement| {
                let Some(statement) = statement.upgrade() else { return false };
                let is_listed = statement.take_plans_if(|plan| !plan.holds_in_newest(newest), &mut gone);
                statement.is_listed.store(is_listed, Ordering::Relaxed);
                is_listed
            });
            listed.fit();
            drop(listed);
            drop(gone);
        }
    }

    /// How many are listed.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.0.iter().map(|list| list.lock().all.len()).sum()
    }

    /// Whether a statement is listed, and once.
    #[cfg(test)]
    pub fn lists(&self, statement: &Statement) -> bool {
        let listed = self.list_of(&statement.prepared).lock();
        let is_it = |other: &&Weak<Prepared>| other.as_ptr() == Arc::as_ptr(&statement.prepared);
        listed.all.iter().filter(is_it).count() == 1
    }
}

impl Listed {
    fn push(&mut self, statement: &Arc<Prepared>) {
        if self.all.len() >= self.most {
            self.all.retain(|statement| statement.strong_count() > 0);
            self.fit();
        }
        self.all.push(Arc::downgrade(statement));
    }

    /// Adapts the list to its new length after some were dropped.
    fn fit(&mut self) {
        self.most = FEW.max(2 * self.all.len());
        self.all.shrink_to(self.most);
    }
}

impl Connection {
    /// Prepares a statement. One that is all of its text may share its plan, with literals of the text as parameters.
    pub(crate) fn make_statement(
        &mut self,
        parsed: Option<Parsed>,
        types: &[Option<TypeId>],
        is_whole_text: bool,
    ) -> Result<Statement> {
        let kind = parsed.as_ref().map_or(Kind::Utility, |parsed| Kind::of(&parsed.statement));
        let inner = match &parsed {
            Some(parsed) if kind == Kind::Utility => inner_of(parsed)?
                .map(|inner| self.make_statement(Some(parsed.inner(inner)), types, false))
                .transpose()?,
            _ => None,
        };
        let is_positioned = parsed.as_ref().is_some_and(|parsed| Positioned::of(&parsed.statement).is_some());
        let mut literals = Box::default();
        let (plan, columns) = match &parsed {
            Some(_) if is_positioned => (None, inner.as_ref().and_then(|inner| inner.columns().cloned())),
            Some(parsed) if kind != Kind::Utility => {
                let (plan, has_ddl) = self.with_planner(|connection, transaction| {
                    let shared = match is_whole_text && types.is_empty() {
                        true => connection.shared_plan(parsed, transaction)?,
                        false => None,
                    };
                    let plan = match shared {
                        Some((plan, values)) => {
                            literals = values;
                            plan
                        }
                        None => connection.plan(parsed, types, transaction, None)?,
                    };
                    Ok((plan, transaction.has_ddl()))
                })?;
                let columns = plan.columns.clone();
                (Some((plan, has_ddl)), columns)
            }
            Some(parsed) => (None, self.columns_of(parsed)?),
            None => (None, None),
        };
        let text = parsed.as_ref().map_or_else(String::new, |parsed| parsed.text().to_owned());
        let prepared = Arc::new(Prepared {
            text: Arc::new(Text(text)),
            parsed: parsed.map(Tree::new),
            kind,
            declared: Box::from(types),
            facts: self.facts.clone(),
            parameters: match (&plan, &inner) {
                (Some(_), _) if !literals.is_empty() => Vec::new(),
                (Some((plan, _)), _) => plan.parameters.clone(),
                (None, Some(inner)) => {
                    // The last parameter is the row of the cursor.
                    let own = inner.parameters().len() - usize::from(is_positioned);
                    inner.parameters()[..own].to_vec()
                }
                (None, None) => Vec::new(),
            },
            literals,
            inner,
            columns,
            effect: plan.as_ref().and_then(|(plan, _)| plan.effect()),
            is_whole_text,
            session: self.activity.id(),
            place: RwLock::default(),
            places: OnceLock::new(),
            is_listed: AtomicBool::new(false),
        });
        if let Some((plan, has_ddl)) = plan {
            let Shared { statements, engine, .. } = &*self.shared;
            statements.keep(&prepared, prepared.session, &plan, engine, has_ddl);
        }
        Ok(Statement { prepared })
    }

    /// A plan for a statement in a transaction, from the cache if possible.
    fn plan(
        &self,
        parsed: &Parsed,
        types: &[Option<TypeId>],
        transaction: &Transaction,
        literals: Option<&TextStyle>,
    ) -> Result<Arc<Plan>> {
        // No other session could use the plan, and the cache would keep what its sources hold.
        if !self.facts.sources.is_empty() || literals.is_some() {
            return self.new_plan(parsed.text(), parsed, types, transaction, literals).map(Arc::new);
        }
        if let Some(plan) = self.cached_plan(parsed.text(), types, transaction) {
            return Ok(plan);
        }
        let plan = Arc::new(self.new_plan(parsed.text(), parsed, types, transaction, None)?);
        self.cache_plan(parsed.text(), types, &plan);
        Ok(plan)
    }

    fn cached_plan(
        &self,
        text: &str,
        types: &[Option<TypeId>],
        transaction: &Transaction,
    ) -> Option<Arc<Plan>> {
        let usable = |plan: &Plan| plan.is_current(transaction, &self.facts, None);
        let kept = self.shared.plans.get(text, types, usable);
        kept.or_else(|| self.block.own_plans()?.get(text, types, usable))
    }

    /// Keeps a plan for all transactions, or for this block if only it can use the plan.
    fn cache_plan(&self, text: &str, types: &[Option<TypeId>], plan: &Arc<Plan>) {
        let Shared { plans, engine, .. } = &*self.shared;
        if !plans.put(text, types, plan, engine)
            && let Some(own) = self.block.own_plans()
        {
            own.put_own(text, types, plan);
        }
    }

    /// A plan that other statements may share, which differ in literals, with their values; `None` if the statement is to have its own.
    /// The only error is that of a planning that was cancelled.
    fn shared_plan(&self, parsed: &Parsed, transaction: &Transaction) -> Result<Option<SharedPlan>> {
        if !self.facts.sources.is_empty() {
            return Ok(None);
        }
        let Some(form) = SharedForm::of(parsed) else { return Ok(None) };
        let plan = match self.cached_plan(&form.text, &form.types, transaction) {
            Some(plan) => plan,
            None => match self.plan_of_form(parsed, &form, transaction) {
                Ok(plan) => plan,
                Err(error) if error.state() == SqlState::QUERY_CANCELED => return Err(error),
                // It is planned by its own text, and the error has its own position.
                Err(_) => return Ok(None),
            },
        };
        let values = if plan.is_by_keys() { form.values(&plan.parameters) } else { None };
        let values = values.and_then(|values| {
            coerced(&plan.parameters, &values, &self.facts.style).ok().map(|values| values.into_owned())
        });
        Ok(values.map(|values| (plan, values.into())))
    }

    /// The plan of the form of a statement. One that cannot be shared is kept as well: the next statement of the form sees that.
    #[cold]
    fn plan_of_form(
        &self,
        parsed: &Parsed,
        form: &SharedForm,
        transaction: &Transaction,
    ) -> Result<Arc<Plan>> {
        let shared = parse::parse_one_with(&form.text, self.facts.syntax)?;
        let shared = shared.ok_or_else(|| Error::internal("the form of a statement is none"))?;
        let plan = Arc::new(self.new_plan(parsed.text(), &shared, &form.types, transaction, None)?);
        self.cache_plan(&form.text, &form.types, &plan);
        Ok(plan)
    }

    /// Plans a statement that a client has sent with this text. Planning can take long: other sessions see it like a running statement,
    /// and it ends once the client has gone.
    #[cold]
    fn new_plan(
        &self,
        text: &str,
        parsed: &Parsed,
        types: &[Option<TypeId>],
        transaction: &Transaction,
        literals: Option<&TextStyle>,
    ) -> Result<Plan> {
        let is_told = self.report_planning(|| Arc::new(Text(text.to_owned())));
        let plan = Plan::new(transaction, &self.facts, parsed, types, &self.options, literals);
        if is_told {
            self.note_idle();
        }
        plan
    }

    /// The statement's plan, made again if it is no longer valid. Only queries and changes have one.
    #[inline]
    pub(crate) fn current_plan<'p>(
        &self,
        prepared: &'p Arc<Prepared>,
        transaction: &Transaction,
    ) -> Result<PlanInUse<'p>> {
        let kept = prepared.place_for(self.activity.id()).read();
        let literals = self.literals_of(prepared);
        if kept.as_ref().is_some_and(|plan| plan.is_current(transaction, &self.facts, literals)) {
            return Ok(PlanInUse::Kept(kept));
        }
        drop(kept);
        self.replan(prepared, transaction).map(PlanInUse::Other)
    }

    /// As [`Connection::current_plan`], but the literals of the text are in the plan, as EXPLAIN shows it.
    pub(crate) fn explained_plan<'p>(
        &self,
        prepared: &'p Arc<Prepared>,
        transaction: &Transaction,
    ) -> Result<PlanInUse<'p>> {
        if prepared.literals.is_empty() {
            return self.current_plan(prepared, transaction);
        }
        let parsed = prepared.parsed.as_ref().expect("only statements with a text have a plan");
        self.plan(parsed, &prepared.declared, transaction, self.literals_of(prepared)).map(PlanInUse::Other)
    }

    /// How the literals of a statement are read, if the session by now reads those of others in another way.
    #[inline]
    pub(crate) fn literals_of<'p>(&self, prepared: &'p Prepared) -> Option<&'p TextStyle> {
        let is_same = Arc::ptr_eq(&prepared.facts, &self.facts) || prepared.facts.style == self.facts.style;
        (!is_same).then_some(&prepared.facts.style)
    }

    #[cold]
    fn replan(&self, prepared: &Arc<Prepared>, transaction: &Transaction) -> Result<Arc<Plan>> {
        // This comes first, since planning may fail now.
        let newest = self.shared.engine.catalog();
        let newest = CatalogLookup::of_few(&newest);
        let mut gone = Vec::new();
        prepared.take_plans_if(|plan| !plan.holds_in_newest(&newest), &mut gone);
        drop(gone);
        let parsed = prepared.parsed.as_ref().expect("only statements with a text have a plan");
        let plan = self.plan(parsed, &prepared.declared, transaction, self.literals_of(prepared))?;
        if !yield_alike(&plan.columns, &prepared.columns) || plan.parameters != prepared.parameters {
            return Err(Error::new(
                SqlState::FEATURE_NOT_SUPPORTED,
                "cached plan must not change result type",
            )
            .with_hint("Prepare the statement again.")
            .with_routine("RevalidateCachedQuery"));
        }
        let Shared { statements, engine, .. } = &*self.shared;
        statements.keep(prepared, self.activity.id(), &plan, engine, transaction.has_ddl());
        Ok(plan)
    }
}

impl QueryText for Text {
    fn text(&self) -> &str {
        &self.0
    }
}

impl Statement {
    /// The types of `$1`, `$2`, …
    pub fn parameters(&self) -> &[Type] {
        &self.prepared.parameters
    }

    /// Whether it begins or ends transactions, or sets their modes: such statements do not run in a transaction
    /// that would begin for them.
    pub fn controls_transactions(&self) -> bool {
        let parsed = self.prepared.parsed.as_ref();
        parsed.is_none_or(|parsed| controls_transactions(&parsed.statement))
    }

    /// Whether it has a query that is first bound when it runs, so that only then an unknown table is an error: CREATE TABLE AS,
    /// SELECT INTO, and COPY of a query.
    pub fn binds_when_run(&self) -> bool {
        self.prepared.parsed.as_ref().is_some_and(|parsed| match &parsed.statement {
            tree::Statement::CreateTableAs(create) => matches!(create.source, TableSource::Query(_)),
            tree::Statement::Copy(copy) => matches!(copy.source, tree::CopySource::Query(_)),
            tree::Statement::Query(_) => self.prepared.kind == Kind::Utility,
            _ => false,
        })
    }

    /// Whether it is COPY FROM STDIN or COPY TO STDOUT.
    pub(crate) fn copies_with_client(&self) -> bool {
        self.copies_from_client().is_some()
    }

    /// Of a COPY with the client, whether it is FROM STDIN.
    pub(crate) fn copies_from_client(&self) -> Option<bool> {
        match &self.prepared.parsed.as_ref()?.statement {
            tree::Statement::Copy(copy) if matches!(copy.target, tree::CopyTarget::Standard) => {
                Some(copy.is_from)
            }
            _ => None,
        }
    }

    /// Whether it is a query: it has no effect beyond the rows that it yields, so it may be run only when
    /// its rows are read.
    pub fn is_query(&self) -> bool {
        self.prepared.kind == Kind::Query
    }

    /// The columns it yields; `None` if it yields no rows.
    pub fn columns(&self) -> Option<&Arc<[Column]>> {
        self.prepared.columns.as_ref()
    }

    /// Whether it is the same as another one, not only of the same text.
    pub fn is_same(&self, other: &Statement) -> bool {
        Arc::ptr_eq(&self.prepared, &other.prepared)
    }

    /// Whether it keeps a plan.
    #[cfg(test)]
    pub(crate) fn keeps_plan(&self) -> bool {
        self.prepared.all_places().any(|place| place.read().is_some())
    }
}

/// The query or the change in a statement, which is prepared with it. That of CREATE TABLE AS is prepared again when the table is
/// filled; here it only determines parameters.
fn inner_of(parsed: &Parsed) -> Result<Option<tree::Statement>> {
    let query = |query: &tree::Query| Some(tree::Statement::Query(Box::new(without_into(query.clone()))));
    Ok(match &parsed.statement {
        tree::Statement::Update(_) | tree::Statement::Delete(_) => positioned::by_row(parsed)?,
        tree::Statement::DeclareCursor(cursor) => query(&cursor.query),
        tree::Statement::Explain(explain) => match &explain.statement {
            tree::Statement::Query(source) => query(source),
            tree::Statement::DeclareCursor(cursor) => query(&cursor.query),
            tree::Statement::CreateTableAs(create) => match &create.source {
                TableSource::Query(source) => query(source),
                TableSource::Execute(_) => None,
            },
            tree::Statement::Execute(_) => None,
            other => Some(other.clone()),
        },
        tree::Statement::CreateTableAs(create) => match &create.source {
            TableSource::Query(source) if parse::parameters(parsed.text())? > 0 => query(source),
            _ => None,
        },
        tree::Statement::Query(source) if parse::parameters(parsed.text())? > 0 => query(source),
        _ => None,
    })
}

fn controls_transactions(statement: &tree::Statement) -> bool {
    match statement {
        tree::Statement::Transaction(_) => true,
        tree::Statement::Set(set) => {
            matches!(set.setting, tree::Setting::Transaction(_) | tree::Setting::SessionCharacteristics(_))
        }
        _ => false,
    }
}

/// Whether results have columns of the same names and types. They may be those of another table, which now has the name of one
/// that was dropped.
fn yield_alike(columns: &Option<Arc<[Column]>>, others: &Option<Arc<[Column]>>) -> bool {
    match (columns, others) {
        (Some(columns), Some(others)) => columns
            .iter()
            .map(|column| (&column.name, column.ty))
            .eq(others.iter().map(|column| (&column.name, column.ty))),
        (None, None) => true,
        _ => false,
    }
}
