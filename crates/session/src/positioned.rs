//! `WHERE CURRENT OF`: changes of the current row of a cursor.
//!
//! A cursor over one table yields the table's `ctid` beside the columns of its query, which FETCH leaves out. A statement with
//! `WHERE CURRENT OF` is prepared as one with the condition `ctid = $n` instead, where `$n` follows its own
//! parameters. It is run with the `ctid` of the cursor's current row.

use crate::connection::{Connection, Outcome};
use crate::statement::Statement;
use firn_base::{Error, Result, SqlState, Value};
use firn_sql::names::Names;
use firn_sql::parse::{self, Parsed};
use firn_sql::statement::{QualifiedName, quote_ident};
use firn_sql::tree::{self, ChangeCondition, Name, ObjectName, TableKind, Target};
use firn_txn::catalog::Oid;

/// SQLSTATE of a cursor without a current row in the table.
const INVALID_CURSOR_STATE: SqlState = SqlState::new("24000");

/// A change of the current row of a cursor.
pub(crate) struct Positioned<'s> {
    cursor: &'s Name,
    table: &'s ObjectName,
    alias: Option<&'s Name>,
}

impl Positioned<'_> {
    /// The statement as such a change, if it is one.
    pub fn of(statement: &tree::Statement) -> Option<Positioned<'_>> {
        let (table, alias, condition) = match statement {
            tree::Statement::Update(update) => (&update.table, &update.alias, &update.condition),
            tree::Statement::Delete(delete) => (&delete.table, &delete.alias, &delete.condition),
            _ => return None,
        };
        match condition {
            Some(ChangeCondition::CurrentOf(cursor)) => {
                Some(Positioned { cursor, table: &table.name, alias: alias.as_ref() })
            }
            _ => None,
        }
    }
}

/// The statement with a condition on `ctid` in place of WHERE CURRENT OF, if it has that.
pub(crate) fn by_row(parsed: &Parsed) -> Result<Option<tree::Statement>> {
    let Some(positioned) = Positioned::of(&parsed.statement) else { return Ok(None) };
    let name = &positioned.alias.unwrap_or(&positioned.table.name).text;
    let number = parse::parameters(parsed.text())? + 1;
    let condition = parse::parse_expression(&format!("{}.ctid = ${number}", quote_ident(name)))?;
    let mut statement = parsed.statement.clone();
    let place = match &mut statement {
        tree::Statement::Update(update) => &mut update.condition,
        tree::Statement::Delete(delete) => &mut delete.condition,
        _ => unreachable!("it is a change"),
    };
    *place = Some(ChangeCondition::Expr(condition));
    Ok(Some(statement))
}

/// The text of a query over one table with the `ctid` of its rows as the last column, and the table; `None` if rows of the result
/// may not be rows of a table.
pub(crate) fn with_row_ids(query: &tree::Query) -> Option<(String, QualifiedName)> {
    if query.with.is_some() {
        return None;
    }
    let mut query = query.clone();
    let tree::QueryBody::Select(select) = &mut query.body else { return None };
    let is_plain = select.distinct.is_none()
        && select.group_by.is_empty()
        && select.having.is_none()
        && select.into.is_none()
        && select.windows.is_empty();
    let [item] = &select.from[..] else { return None };
    let TableKind::Relation { relation, sample: None } = &item.first.kind else { return None };
    if !is_plain || !item.joins.is_empty() {
        return None;
    }
    let table = QualifiedName::from(&relation.name);
    let name = item.first.alias.as_ref().map_or(&relation.name.name, |alias| &alias.name);
    let value = parse::parse_expression(&format!("{}.ctid", quote_ident(&name.text))).ok()?;
    select.targets.push(Target::Value { value, alias: None });
    Some((firn_sql::statement::print_query(&query), table))
}

impl Connection {
    /// The query of a cursor with the `ctid` of its rows as the last column, and the table; `None` if that is impossible.
    pub(crate) fn query_with_row_ids(
        &mut self,
        query: &tree::Query,
        plain: &Statement,
    ) -> Option<(Statement, Oid)> {
        let (text, name) = with_row_ids(query)?;
        let table = self
            .with_planner(|connection, transaction| {
                Names::new(transaction.catalog(), &connection.facts).table(&name).map(|table| table.oid)
            })
            .ok()?;
        let types: Vec<_> = plain.parameters().iter().map(|ty| Some(ty.id)).collect();
        let parsed = parse::parse_one(&text).ok()??;
        // The query may have aggregates.
        let statement = self.make_statement(Some(parsed), &types, false).ok()?;
        let columns = |statement: &Statement| statement.columns().map_or(0, |columns| columns.len());
        (columns(&statement) == columns(plain) + 1).then_some((statement, table))
    }

    /// Runs a change of the current row of a cursor. 34000 without the cursor, 24000 if it has no current row or is not over
    /// the table.
    pub(crate) fn run_positioned(
        &mut self,
        statement: &Statement,
        positioned: &Positioned<'_>,
        parameters: &[Value],
    ) -> Result<Outcome> {
        let table = self.with_planner(|connection, transaction| {
            let known = Names::new(transaction.catalog(), &connection.facts);
            known.table(&QualifiedName::from(positioned.table)).map(|table| table.oid)
        })?;
        let name = &positioned.cursor.text;
        let cursor = self.cursor(name)?;
        let row = match cursor.table() {
            Some(of) if of == table => cursor.row_id()?,
            _ => {
                let table = &positioned.table.name.text;
                let message =
                    format!("cursor \"{name}\" is not a simply updatable scan of table \"{table}\"");
                return Err(Error::new(INVALID_CURSOR_STATE, message));
            }
        };
        let Some(row) = row else {
            let message = format!("cursor \"{name}\" is not positioned on a row");
            return Err(Error::new(INVALID_CURSOR_STATE, message));
        };
        let change = statement.prepared.inner.as_ref().expect("the change has been prepared").clone();
        let parameters: Vec<Value> = parameters.iter().cloned().chain([row]).collect();
        self.run_prepared(&change, &parameters)
    }
}
