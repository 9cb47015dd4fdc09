//! Binding of locking clauses: from a bound query to one that yields the ids of the rows to be locked.
//!
//! The query is bound as if it had no such clause, for what it means does not depend on it. Then the scans of
//! the tables that a clause speaks of are replaced by scans with row ids, which all nodes above pass on, to
//! the end of each row; and LIMIT is taken off, for rows are locked first and counted then. What does not
//! pass rows on one by one, such as grouping, is refused, with PostgreSQL's words.

use super::Binder;
use crate::names::Relation;
use crate::parse::locks::{Asked, asked};
use crate::pg_catalog;
use crate::statement::{fold, qualified_name};
use datafusion::common::{Column, DFSchema};
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::logical_expr::{Expr, JoinType, LogicalPlan, LogicalPlanBuilder, Projection};
use datafusion::sql::sqlparser::ast::{self, SetExpr, TableFactor, TableWithJoins};
use firn_base::sync::Arc;
use firn_base::{Error, Result, SqlState, SqlType};
use firn_exec::expression::RowExpression;
use firn_exec::locking::{LockedTable, LockingQuery, Wait, clause};
use firn_exec::{FirnTable, ROW_ID_COLUMN};
use firn_txn::RowLock;
use std::collections::HashMap;

impl Binder<'_> {
    /// A query that locks the rows it yields, and its plan without the row ids. `None` if there is nothing
    /// that its clauses speak of.
    pub fn locking_query(&self, query: &ast::Query) -> Result<(LogicalPlan, Option<LockingParts>)> {
        let clauses: Vec<Asked> = query.locks.iter().map(asked).collect();
        refuse_forms(query, &clauses)?;
        let items = self.items(query)?;
        let mut without = query.clone();
        without.locks.clear();
        let bound = self.query(&without)?;
        let (plan, limit) = without_limit(bound.clone());
        let mut locking = Locking { clauses: &clauses, items: &items, found: Vec::new(), tables: Vec::new() };
        let plan = locking.level(plan, Level::Query { nullable: false }).map_err(|error| match error {
            Failure::Ours(error) => error,
            Failure::Theirs(error) => self.error(error),
        })?;
        locking.check_found()?;
        if locking.tables.is_empty() {
            return Ok((bound, None));
        }
        let plan = row_ids_last(plan, locking.tables.len()).map_err(|error| self.error(error))?;
        let count = |count: Option<Box<Expr>>| match count {
            None => Ok(None),
            Some(count) => {
                let count = RowExpression::compile_or_delegate(&count, &DFSchema::empty(), &|_| None)?;
                match count.ty() {
                    None | Some(SqlType::SmallInt | SqlType::Integer | SqlType::BigInt) => Ok(Some(count)),
                    Some(ty) => Err(Error::unsupported(format!(
                        "LIMIT or OFFSET of type {ty} beside a locking clause"
                    ))),
                }
            }
        };
        let (skip, fetch) = limit.unwrap_or_default();
        let parts = LockingParts { plan, tables: locking.tables, skip: count(skip)?, fetch: count(fetch)? };
        Ok((bound, Some(parts)))
    }

    /// What the items of FROM are that are no tables or views, by the names they go by.
    fn items(&self, query: &ast::Query) -> Result<HashMap<String, Item>> {
        let with: Vec<String> =
            query.with.iter().flat_map(|with| &with.cte_tables).map(|cte| fold(&cte.alias.name)).collect();
        let mut items = HashMap::new();
        if let SetExpr::Select(select) = query.body.as_ref() {
            select.from.iter().try_for_each(|from| self.add_items(from, &with, &mut items))?;
        }
        Ok(items)
    }

    fn add_items(
        &self,
        TableWithJoins { relation, joins }: &TableWithJoins,
        with: &[String],
        items: &mut HashMap<String, Item>,
    ) -> Result<()> {
        for factor in std::iter::once(relation).chain(joins.iter().map(|join| &join.relation)) {
            let (name, item) = match factor {
                TableFactor::NestedJoin { table_with_joins, .. } => {
                    self.add_items(table_with_joins, with, items)?;
                    continue;
                }
                TableFactor::Table { name, alias, args: None, .. } => {
                    let name = qualified_name(name)?;
                    let called = alias.as_ref().map_or_else(|| name.name.clone(), |alias| fold(&alias.name));
                    let schema = name.schema.as_deref().unwrap_or("pg_catalog");
                    if name.schema.is_none() && with.contains(&name.name) {
                        (called, Item::With)
                    } else if self.facts.sources.find(name.schema.as_deref(), &name.name).is_some() {
                        continue;
                    } else if pg_catalog::provider(schema, &name.name, self.catalog, self.facts).is_some() {
                        (called, Item::System)
                    } else if let Ok(Relation::Sequence(_)) = self.names().relation(&name) {
                        (called, Item::Sequence)
                    } else {
                        continue;
                    }
                }
                TableFactor::Derived { subquery, alias: Some(alias), .. } => match subquery.body.as_ref() {
                    SetExpr::Values(_) => (fold(&alias.name), Item::Values),
                    _ => continue,
                },
                TableFactor::Table { name, alias, .. } | TableFactor::Function { name, alias, .. } => {
                    let own = || name.0.last().and_then(ast::ObjectNamePart::as_ident).map(fold);
                    let called = alias.as_ref().map(|alias| fold(&alias.name)).or_else(own);
                    (called.unwrap_or_default(), Item::Function)
                }
                TableFactor::UNNEST { alias, .. } => {
                    let called = alias.as_ref().map(|alias| fold(&alias.name));
                    (called.unwrap_or_else(|| "unnest".to_owned()), Item::Function)
                }
                _ => continue,
            };
            items.insert(name, item);
        }
        Ok(())
    }
}

/// What a [`LockingQuery`] is made of.
pub struct LockingParts {
    plan: LogicalPlan,
    tables: Vec<LockedTable>,
    skip: Option<RowExpression>,
    fetch: Option<RowExpression>,
}

impl LockingParts {
    /// The query.
    pub fn into_query(self, may_be_short: bool) -> LockingQuery {
        LockingQuery::new(self.plan, self.tables, self.skip, self.fetch, may_be_short)
    }
}

/// An item of FROM whose rows have no place where they could be locked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Item {
    With,
    Values,
    Function,
    Sequence,
    System,
}

/// Refuses a query that does not yield rows of its tables one by one, as far as its text tells.
fn refuse_forms(query: &ast::Query, clauses: &[Asked]) -> Result<()> {
    let first = clause(clauses[0].lock);
    let refuse = |what: &str| {
        Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, format!("{first} is not allowed with {what}")))
    };
    let select = match query.body.as_ref() {
        SetExpr::Select(select) => select,
        SetExpr::SetOperation { .. } => return refuse("UNION/INTERSECT/EXCEPT"),
        SetExpr::Values(_) => {
            return Err(Error::new(
                SqlState::FEATURE_NOT_SUPPORTED,
                format!("{first} cannot be applied to VALUES"),
            ));
        }
        SetExpr::Table(_) => return Ok(()),
        _ => return Err(Error::unsupported(format!("{first} behind a query in parentheses"))),
    };
    let is_grouped = match &select.group_by {
        ast::GroupByExpr::All(_) => true,
        ast::GroupByExpr::Expressions(expressions, _) => !expressions.is_empty(),
    };
    match () {
        () if select.distinct.is_some() => refuse("DISTINCT clause"),
        () if is_grouped => refuse("GROUP BY clause"),
        () if select.having.is_some() => refuse("HAVING clause"),
        () => Ok(()),
    }
}

/// LIMIT's and OFFSET's counts.
type Limit = (Option<Box<Expr>>, Option<Box<Expr>>);

/// Takes LIMIT and OFFSET off a query.
fn without_limit(plan: LogicalPlan) -> (LogicalPlan, Option<Limit>) {
    match plan {
        LogicalPlan::Limit(limit) => (Arc::unwrap_or_clone(limit.input), Some((limit.skip, limit.fetch))),
        LogicalPlan::Projection(projection) => {
            let (input, limit) = without_limit(Arc::unwrap_or_clone(projection.input));
            let (expressions, schema) = (projection.expr, projection.schema);
            let projection = Projection::try_new_with_schema(expressions, Arc::new(input), schema);
            (LogicalPlan::Projection(projection.expect("there are as many columns as before")), limit)
        }
        other => (other, None),
    }
}

/// The name of the column that holds the ids of the rows of a locked table.
fn row_id_name(table: usize) -> String {
    format!("\u{1}{table}")
}

fn is_row_id(name: &str) -> bool {
    name.starts_with('\u{1}')
}

/// The plan with its row ids, of so many tables, as its last columns.
fn row_ids_last(plan: LogicalPlan, tables: usize) -> datafusion::common::Result<LogicalPlan> {
    let schema = plan.schema().clone();
    let (mut columns, mut ids): (Vec<Expr>, Vec<Expr>) = (Vec::new(), Vec::new());
    for (qualifier, field) in schema.iter() {
        let column = Expr::from((qualifier, field));
        if is_row_id(field.name()) { ids.push(column) } else { columns.push(column) }
    }
    debug_assert_eq!(ids.len(), tables);
    let in_order = |at: usize| schema.iter().any(|(_, field)| *field.name() == row_id_name(at));
    debug_assert!((0..tables).all(in_order));
    // In the order of the tables.
    ids.sort_by_key(|id| match id {
        Expr::Column(column) => column.name[1..].parse::<usize>().expect("it ends in a number"),
        other => unreachable!("{other} is no column"),
    });
    columns.append(&mut ids);
    LogicalPlanBuilder::from(plan).project(columns)?.build()
}

enum Failure {
    Ours(Error),
    Theirs(datafusion::common::DataFusionError),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Ours(error)
    }
}

impl From<datafusion::common::DataFusionError> for Failure {
    fn from(error: datafusion::common::DataFusionError) -> Failure {
        Failure::Theirs(error)
    }
}

/// Whose plan a node is part of.
#[derive(Clone, Copy)]
enum Level {
    /// The query's own, perhaps on the side of an outer join that may be missing: its items are still to be
    /// told apart.
    Query { nullable: bool },
    /// That of an item, all of whose tables are locked.
    Item { lock: RowLock, wait: Wait, nullable: bool },
}

/// Row ids in the making.
struct Locking<'c> {
    clauses: &'c [Asked],
    items: &'c HashMap<String, Item>,
    /// Names behind OF that were found.
    found: Vec<String>,
    tables: Vec<LockedTable>,
}

impl Locking<'_> {
    /// Lets a plan yield the row ids of the tables to be locked.
    fn level(&mut self, plan: LogicalPlan, level: Level) -> std::result::Result<LogicalPlan, Failure> {
        match (&plan, level) {
            (LogicalPlan::SubqueryAlias(alias), Level::Query { nullable }) => {
                let name = alias.alias.table().to_owned();
                match self.lock_of(&name, nullable)? {
                    None => Ok(plan),
                    Some((lock, wait)) => self.inside(&plan, &name, Level::Item { lock, wait, nullable }),
                }
            }
            (LogicalPlan::TableScan(scan), Level::Query { nullable }) => {
                let name = scan.table_name.table().to_owned();
                match self.lock_of(&name, nullable)? {
                    None => Ok(plan),
                    Some((lock, wait)) => self.scan(&plan, &name, lock, wait),
                }
            }
            (LogicalPlan::TableScan(scan), Level::Item { lock, wait, .. }) => {
                let name = scan.table_name.table().to_owned();
                self.scan(&plan, &name, lock, wait)
            }
            (LogicalPlan::SubqueryAlias(alias), level) => {
                let name = alias.alias.table().to_owned();
                self.inside(&plan, &name, level)
            }
            (LogicalPlan::Projection(_) | LogicalPlan::Filter(_) | LogicalPlan::Sort(_), _) => {
                let input = plan.inputs()[0].clone();
                let input = self.level(input, level)?;
                rebuilt(&plan, vec![input])
            }
            (LogicalPlan::Join(join), _) => {
                let (left, right) = match join.join_type {
                    JoinType::Inner => (false, false),
                    JoinType::Left => (false, true),
                    JoinType::Right => (true, false),
                    JoinType::Full => (true, true),
                    _ => return Err(self.refuse(level, "UNION/INTERSECT/EXCEPT").into()),
                };
                let side = |missing| match level {
                    Level::Query { nullable } => Level::Query { nullable: nullable || missing },
                    Level::Item { lock, wait, nullable } => {
                        Level::Item { lock, wait, nullable: nullable || missing }
                    }
                };
                if let (Level::Item { lock, .. }, true) = (level, left || right) {
                    return Err(nullable_side(lock).into());
                }
                let left = self.level(join.left.as_ref().clone(), side(left))?;
                let right = self.level(join.right.as_ref().clone(), side(right))?;
                rebuilt(&plan, vec![left, right])
            }
            (LogicalPlan::EmptyRelation(_) | LogicalPlan::Values(_), _) => Ok(plan),
            (LogicalPlan::Distinct(_), _) => Err(self.refuse(level, "DISTINCT clause").into()),
            (LogicalPlan::Aggregate(aggregate), _) => {
                let what =
                    if aggregate.group_expr.is_empty() { "aggregate functions" } else { "GROUP BY clause" };
                Err(self.refuse(level, what).into())
            }
            (LogicalPlan::Window(_), _) => Err(self.refuse(level, "window functions").into()),
            (LogicalPlan::Union(_), _) => Err(self.refuse(level, "UNION/INTERSECT/EXCEPT").into()),
            (LogicalPlan::Unnest(_), _) => {
                Err(self.refuse(level, "set-returning functions in the target list").into())
            }
            (LogicalPlan::Limit(_), _) => Err(self.refuse(level, "LIMIT in a sub-query").into()),
            (other, _) => {
                let clause = clause(self.lock_at(level));
                Err(Error::unsupported(format!("{clause} over {}", other.display())).into())
            }
        }
    }

    /// Lets an item yield its row ids, under the item's name.
    fn inside(
        &mut self,
        plan: &LogicalPlan,
        name: &str,
        level: Level,
    ) -> std::result::Result<LogicalPlan, Failure> {
        let input = plan.inputs()[0].clone();
        let input = match (&input, level) {
            (LogicalPlan::TableScan(_), Level::Item { lock, wait, .. }) => {
                self.scan(&input, name, lock, wait)?
            }
            _ => self.level(input, level)?,
        };
        rebuilt(plan, vec![input])
    }

    /// The scan of a table with its row ids.
    fn scan(
        &mut self,
        plan: &LogicalPlan,
        name: &str,
        lock: RowLock,
        wait: Wait,
    ) -> std::result::Result<LogicalPlan, Failure> {
        let LogicalPlan::TableScan(scan) = plan else { unreachable!("called for scans") };
        let provider = source_as_provider(&scan.source)?;
        let Some(table) = provider.downcast_ref::<FirnTable>() else {
            let error = Error::unsupported(format!("{} of \"{name}\"", clause(lock)));
            return Err(error.with_hint("Name the tables to lock: FOR … OF table.").into());
        };
        let id = row_id_name(self.tables.len());
        self.tables.push(LockedTable { name: name.to_owned(), table: table.table().clone(), lock, wait });
        let source = provider_as_source(Arc::new(table.clone().with_row_id()));
        let scan = LogicalPlanBuilder::scan(scan.table_name.clone(), source, None)?.build()?;
        let columns: Vec<Expr> = scan
            .schema()
            .iter()
            .map(|(qualifier, field)| {
                let column = Expr::from((qualifier, field));
                if field.name() == ROW_ID_COLUMN { column.alias(&id) } else { column }
            })
            .collect();
        Ok(LogicalPlanBuilder::from(scan).project(columns)?.build()?)
    }

    /// How the rows of an item of FROM are to be locked, if at all: as firmly as any clause wants it, and
    /// waiting no more than the most impatient allows.
    fn lock_of(&mut self, name: &str, nullable: bool) -> Result<Option<(RowLock, Wait)>> {
        let item = self.items.get(name).copied();
        let mut locked: Option<(RowLock, Wait)> = None;
        for asked in self.clauses {
            let is_named = asked.of.iter().any(|of| of == name);
            if !is_named && !asked.of.is_empty() {
                continue;
            }
            let clause = clause(asked.lock);
            match item {
                Some(Item::Sequence) => {
                    return Err(Error::new(
                        SqlState::WRONG_OBJECT_TYPE,
                        format!("cannot lock rows in sequence \"{name}\""),
                    ));
                }
                Some(Item::System) => {
                    return Err(Error::unsupported(format!("{clause} of \"{name}\""))
                        .with_hint("Name the tables to lock: FOR … OF table."));
                }
                Some(_) if !is_named => continue,
                Some(item) => {
                    let what = match item {
                        Item::With => "a WITH query",
                        Item::Values => "VALUES",
                        _ => "a function",
                    };
                    let message = format!("{clause} cannot be applied to {what}");
                    return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message));
                }
                None => {}
            }
            if is_named {
                self.found.push(name.to_owned());
            }
            if nullable {
                return Err(nullable_side(asked.lock));
            }
            locked = Some(match locked {
                None => (asked.lock, asked.wait),
                Some((lock, wait)) => (lock.max(asked.lock), wait.max(asked.wait)),
            });
        }
        Ok(locked)
    }

    /// Fails with 42P01 if a clause names what is not there.
    fn check_found(&self) -> Result<()> {
        for asked in self.clauses {
            if let Some(missing) = asked.of.iter().find(|name| !self.found.contains(name)) {
                let clause = clause(asked.lock);
                return Err(Error::new(
                    SqlState::UNDEFINED_TABLE,
                    format!("relation \"{missing}\" in {clause} clause not found in FROM clause"),
                ));
            }
        }
        Ok(())
    }

    fn lock_at(&self, level: Level) -> RowLock {
        match level {
            Level::Query { .. } => self.clauses[0].lock,
            Level::Item { lock, .. } => lock,
        }
    }

    fn refuse(&self, level: Level, what: &str) -> Error {
        let clause = clause(self.lock_at(level));
        Error::new(SqlState::FEATURE_NOT_SUPPORTED, format!("{clause} is not allowed with {what}"))
    }
}

fn nullable_side(lock: RowLock) -> Error {
    let clause = clause(lock);
    Error::new(
        SqlState::FEATURE_NOT_SUPPORTED,
        format!("{clause} cannot be applied to the nullable side of an outer join"),
    )
}

/// The node over other inputs, whose row ids it passes on.
fn rebuilt(node: &LogicalPlan, inputs: Vec<LogicalPlan>) -> std::result::Result<LogicalPlan, Failure> {
    let mut expressions = node.expressions();
    if let LogicalPlan::Projection(_) = node {
        let ids = inputs[0].schema().iter().filter(|(_, field)| is_row_id(field.name()));
        expressions.extend(ids.map(|(qualifier, field)| Expr::Column(Column::from((qualifier, field)))));
    }
    Ok(node.with_new_exprs(expressions, inputs)?)
}
