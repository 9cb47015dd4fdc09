//! Prepared statements, how they are planned, and the plans that they keep.
//!
//! A plan holds the tables that it reads, all their rows among it, and whoever has prepared a statement may be idle for days.
//! So a database lists its statements, and when DDL has ended, plans of other catalogs are taken from them as they are from
//! the [cache](crate::cache): tables that were dropped or truncated give up their memory though nobody runs the statements
//! again. A statement keeps its plan under a lock:
//!
//! ```text
//! statement ── lock ──> plan ──> tables       whoever runs the statement shares the lock
//!     ↑ weak                                  whoever takes the plan away, or puts one there, tries to have it alone
//! one of the lists
//! ```
//! Nobody waits for such a lock. What is run just when DDL ends keeps its plan until it is run again, or other DDL ends.
//! Plans of the older catalog that a block reads are the block's own, and go with it.
//!
//! To share the lock is to write to its line of memory, which sessions that run one statement at once would take from each
//! other. So once others run it than the session that has prepared it, it has several such places, and each session goes by one.
//!
//! Only statements that keep a plan are listed, so that DDL has nothing to do with thousands that were prepared and left.
//!
//! Invariant: what a statement comes to keep is of no catalog older than its list knows of, and under the lock of the list. So
//! no plan of an older catalog is kept after DDL: what was kept before the list was told is listed, and was looked at
//! then, and of what comes later the list knows that it is too old. That a plan is taken away needs no lock of the list.
//!
//! Invariant: a statement that keeps a plan is listed.

use crate::Column;
use crate::connection::Connection;
use crate::positioned::{self, Positioned};
use firn_base::stack::Tree;
use firn_base::sync::{Arc, AtomicBool, Mutex, OnceLock, Ordering, RwLock, RwLockReadGuard, Spread, Weak};
use firn_base::{Error, Result, SqlState, TextStyle, Type, TypeId};
use firn_sql::activity::QueryText;
use firn_sql::parse::{self, Parsed};
use firn_sql::session_facts::SessionFacts;
use firn_sql::statement::{change_tag, is_query, without_into};
use firn_sql::tree::TableSource;
use firn_sql::{Plan, QueryEffect, tree};
use firn_txn::Transaction;
use std::ops::Deref;

/// Statements that a list has at least before it is looked which of them are gone.
const FEW: usize = 64;

/// A prepared statement, cheap to clone, of use to every connection of its database. It stays
/// valid when the catalog changes: it is planned anew when run, and fails with 0A000 if its result
/// columns came out different.
#[derive(Clone)]
pub struct Statement {
    pub(crate) prepared: Arc<Prepared>,
}

/// The text of a statement apart from it: others are shown it for as long as its session runs no other one, and
/// a plan would hold its tables all the while.
pub(crate) struct Text(pub String);

/// How a statement runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// As a query, by its plan.
    Query,
    /// As a change of rows with this command tag, by its plan.
    Change(&'static str),
    /// By itself.
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
    facts: Arc<SessionFacts>,
    /// The types that the parameters have.
    pub parameters: Vec<Type>,
    /// The columns that it yields: those of its plan, or of SHOW, EXPLAIN, FETCH and EXECUTE, which have none.
    pub columns: Option<Arc<[Column]>>,
    /// If it is a query that does more than read: what.
    pub effect: Option<QueryEffect>,
    /// The query or the change in DECLARE, EXPLAIN or CREATE TABLE AS, whose parameters are its own.
    pub inner: Option<Statement>,
    /// The session that has prepared it, by which its list is found.
    session: u32,
    /// What a query or a change was planned as, for the session that has prepared it, as long as no other one runs it.
    place: Place,
    /// The same for all sessions, once others have run it.
    places: OnceLock<Box<Spread<Place>>>,
    /// Whether it is listed. Under the lock of its list, so that the order does not matter.
    is_listed: AtomicBool,
}

/// Where a plan is kept, unless there is none, or it was taken away.
type Place = RwLock<Option<Arc<Plan>>>;

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
    /// When there are so many, those go that are gone.
    most: usize,
    /// The newest catalog that was committed, as far as the list has been told. Plans of older ones are not kept.
    catalog_version: u64,
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
    /// Where a session looks for its plan.
    #[inline]
    fn place_for(&self, session: u32) -> &Place {
        match self.places.get() {
            Some(places) => places.of(u64::from(session)),
            None if session == self.session => &self.place,
            None => self.make_places().of(u64::from(session)),
        }
    }

    /// Another session runs it for the first time. What is kept in the first place stays there until DDL ends, or it is gone.
    #[cold]
    fn make_places(&self) -> &Spread<Place> {
        self.places.get_or_init(Box::default)
    }

    fn all_places(&self) -> impl Iterator<Item = &Place> {
        let more = self.places.get().into_iter().flat_map(|places| places.iter());
        std::iter::once(&self.place).chain(more)
    }

    /// Takes those plans away of which it is so, unless somebody uses them just now; whether some may be left.
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

    /// Has a statement keep this plan for a session in the place of another one, unless somebody uses that just now, or
    /// the plan is too old: who still reads an older catalog may be late.
    fn keep(&self, statement: &Arc<Prepared>, session: u32, plan: &Arc<Plan>) {
        let mut listed = self.list_of(statement).lock();
        if plan.catalog_version < listed.catalog_version {
            return;
        }
        let Some(mut kept) = statement.place_for(session).try_write() else { return };
        let before = kept.replace(plan.clone());
        drop(kept);
        if !statement.is_listed.swap(true, Ordering::Relaxed) {
            listed.push(statement);
        }
        // The tables may go with it, which takes its time.
        drop(listed);
        drop(before);
    }

    /// DDL has ended, and this is the version of the catalog now: plans of all others go, as from the cache.
    pub fn keep_only(&self, catalog_version: u64) {
        for list in self.0.iter() {
            let mut gone = Vec::new();
            let mut listed = list.lock();
            // Two who have committed one after the other may come here the other way round.
            if catalog_version < listed.catalog_version {
                continue;
            }
            listed.catalog_version = catalog_version;
            listed.all.retain(|statement| {
                let Some(statement) = statement.upgrade() else { return false };
                let is_of_another = |plan: &Plan| plan.catalog_version != catalog_version;
                let stays = statement.take_plans_if(is_of_another, &mut gone);
                statement.is_listed.store(stays, Ordering::Relaxed);
                stays
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

    /// Some have gone.
    fn fit(&mut self) {
        self.most = FEW.max(2 * self.all.len());
        self.all.shrink_to(self.most);
    }
}

impl Connection {
    pub(crate) fn make_statement(
        &mut self,
        parsed: Option<Parsed>,
        types: &[Option<TypeId>],
    ) -> Result<Statement> {
        let kind = parsed.as_ref().map_or(Kind::Utility, |parsed| Kind::of(&parsed.statement));
        let inner = match &parsed {
            Some(parsed) if kind == Kind::Utility => inner_of(parsed)?
                .map(|inner| self.make_statement(Some(parsed.inner(inner)), types))
                .transpose()?,
            _ => None,
        };
        let is_positioned = parsed.as_ref().is_some_and(|parsed| Positioned::of(&parsed.statement).is_some());
        let (plan, columns) = match &parsed {
            Some(_) if is_positioned => (None, inner.as_ref().and_then(|inner| inner.columns().cloned())),
            Some(parsed) if kind != Kind::Utility => {
                let plan = self.with_planner(|connection, transaction| {
                    connection.plan(parsed, types, transaction, None)
                })?;
                let columns = plan.columns.clone();
                (Some(plan), columns)
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
                (Some(plan), _) => plan.parameters.clone(),
                (None, Some(inner)) => {
                    // The last one is the row on which a cursor stands.
                    let own = inner.parameters().len() - usize::from(is_positioned);
                    inner.parameters()[..own].to_vec()
                }
                (None, None) => Vec::new(),
            },
            inner,
            columns,
            effect: plan.as_ref().and_then(|plan| plan.effect()),
            session: self.activity.id(),
            place: RwLock::default(),
            places: OnceLock::new(),
            is_listed: AtomicBool::new(false),
        });
        if let Some(plan) = plan {
            self.shared.statements.keep(&prepared, prepared.session, &plan);
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
            return self.new_plan(parsed, types, transaction, literals).map(Arc::new);
        }
        let is_old = transaction.catalog_version() < self.shared.engine.catalog_version();
        let cache = self.block.old_plans().filter(|_| is_old).unwrap_or(&self.shared.plans);
        let usable = |plan: &Plan| plan.is_current(transaction, &self.facts, None);
        if let Some(plan) = cache.get(parsed.text(), types, usable) {
            return Ok(plan);
        }
        let plan = Arc::new(self.new_plan(parsed, types, transaction, None)?);
        cache.put(parsed.text(), types, plan.clone());
        Ok(plan)
    }

    /// Plans a statement. Planning can take long: others see it as they see a statement that runs, and it ends once the client has gone.
    #[cold]
    fn new_plan(
        &self,
        parsed: &Parsed,
        types: &[Option<TypeId>],
        transaction: &Transaction,
        literals: Option<&TextStyle>,
    ) -> Result<Plan> {
        let is_told = self.report_planning(|| Arc::new(Text(parsed.text().to_owned())));
        let plan = Plan::new(transaction, &self.facts, parsed, types, &self.options, literals);
        if is_told {
            self.note_idle();
        }
        plan
    }

    /// The statement's plan, made anew if it no longer fits. Only queries and changes have one.
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

    /// How the literals of a statement are read, if the session by now reads those of others in another way.
    #[inline]
    fn literals_of<'p>(&self, prepared: &'p Prepared) -> Option<&'p TextStyle> {
        let is_same = Arc::ptr_eq(&prepared.facts, &self.facts) || prepared.facts.style == self.facts.style;
        (!is_same).then_some(&prepared.facts.style)
    }

    #[cold]
    fn replan(&self, prepared: &Arc<Prepared>, transaction: &Transaction) -> Result<Arc<Plan>> {
        // First, since it may be that it cannot be planned any more.
        let version = transaction.catalog_version();
        let mut gone = Vec::new();
        prepared.take_plans_if(|plan| plan.catalog_version < version, &mut gone);
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
        self.shared.statements.keep(prepared, self.activity.id(), &plan);
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

    /// Whether it begins or ends transactions, or says something about them: such statements do not run in one
    /// that begins for their sake.
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

    /// Whether it is a query: what it does lies in the rows that it yields, so that it may as well be run when
    /// somebody comes to draw them.
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

/// The query or the change in a statement, which is prepared with it. That of CREATE TABLE AS is made anew when the table is
/// filled, so that here it only tells of parameters.
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

/// Whether results have columns of the same names and types. They may be those of another table, which has taken the name of one
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
