//! SEARCH and CYCLE of WITH RECURSIVE: columns that both terms compute beside their own.
//!
//! As PostgreSQL rewrites them (rewriteSearchCycle.c): each term becomes a sub-query, over which the columns are computed. The
//! recursive term reads those of the row before, for which they are added to its select list.
//!
//! ```text
//! depth first     ARRAY[ROW(columns)]     then   sequence || ARRAY[ROW(columns)]
//! breadth first   ROW(0, columns)         then   ROW(depth + 1, columns)
//! cycle           default, ARRAY[ROW(columns)]   then   whether ROW(columns) stands in the path, path || ARRAY[ROW(columns)]
//! ```
//!
//! Rows at which a cycle was found are not followed further. The depth is a column of its own that nobody sees.

use super::{Binder, Clause, ItemColumn, Operand, Output, Rows, Table};
use firn_base::{Error, Result, SqlState, Type};
use firn_plan::scalar::Case;
use firn_plan::{NodeId, Scalar};
use firn_syntax::Options;
use firn_syntax::tree::{
    CommonTable, Cycle, Expr, ExprKind, FromItem, Name, ObjectName, Operator, QueryBody, Select, SetStep,
    TableKind, Target,
};
use std::rc::Rc;

/// The names of the added columns while the terms are bound: those that are asked for may be names of others.
const SEQUENCE: &str = "*sequence*";
const MARK: &str = "*mark*";
const PATH: &str = "*path*";
const DEPTH: &str = "*depth*";

/// What SEARCH and CYCLE of a common table add to its columns.
pub(super) struct Added {
    /// How many columns the terms have themselves.
    own: usize,
    search: Option<Search>,
    cycle: Option<Following>,
}

struct Search {
    is_breadth_first: bool,
    /// `ROW(…)` of the columns, without the closing parenthesis.
    row: String,
    name: Rc<str>,
}

struct Following {
    row: String,
    mark: Rc<str>,
    path: Rc<str>,
    /// The value of a row that repeats another, and that of others.
    values: [Expr; 2],
}

impl Added {
    /// The columns that are added, in their order: the name that they are given, and the one while the terms are bound.
    fn columns(&self) -> Vec<(Rc<str>, &'static str)> {
        let mut columns = Vec::new();
        if let Some(search) = &self.search {
            columns.push((search.name.clone(), SEQUENCE));
        }
        if let Some(cycle) = &self.cycle {
            columns.extend([(cycle.mark.clone(), MARK), (cycle.path.clone(), PATH)]);
        }
        if self.hidden() > 0 {
            columns.push((DEPTH.into(), DEPTH));
        }
        columns
    }

    /// How many of the added columns are seen by nobody.
    pub fn hidden(&self) -> usize {
        self.search.iter().filter(|search| search.is_breadth_first).count()
    }

    /// How many columns are added.
    pub fn count(&self) -> usize {
        self.columns().len()
    }
}

impl Binder<'_> {
    /// What SEARCH and CYCLE of a common table say, if it has them. Its columns are those of its first term.
    pub(super) fn added_columns(
        &self,
        table: &CommonTable,
        columns: &[(Rc<str>, Type)],
        last: &SetStep,
        first: &QueryBody,
    ) -> Result<Option<Added>> {
        if table.search.is_none() && table.cycle.is_none() {
            return Ok(None);
        }
        let syntax = |message: String, at: u32| self.error(SqlState::SYNTAX_ERROR, message, at);
        let is_column = |name: &Name| columns.iter().any(|(column, _)| **column == *name.text);
        // As in PostgreSQL without a position.
        let sides = [
            ("left", first, SqlState::FEATURE_NOT_SUPPORTED),
            ("right", &last.right, SqlState::SYNTAX_ERROR),
        ];
        for (side, body, state) in sides {
            if !matches!(body, QueryBody::Select(_) | QueryBody::Values(_)) {
                let message =
                    format!("with a SEARCH or CYCLE clause, the {side} side of the UNION must be a SELECT");
                return Err(Error::new(state, message));
            }
        }
        let row = |what: &str, names: &[Name], at: u32| -> Result<String> {
            let mut places = Vec::with_capacity(names.len());
            for (number, name) in names.iter().enumerate() {
                let Some(place) = columns.iter().position(|(column, _)| **column == *name.text) else {
                    let message = format!("{what} column \"{}\" not in WITH query column list", name.text);
                    return Err(syntax(message, at));
                };
                if names[..number].iter().any(|other| other.text == name.text) {
                    let message = format!("{what} column \"{}\" specified more than once", name.text);
                    return Err(self.error(SqlState::DUPLICATE_COLUMN, message, at));
                }
                places.push(format!("\"*{place}*\""));
            }
            Ok(places.join(", "))
        };
        let taken = |what: &str, name: &Name, at: u32| match is_column(name) {
            true => Err(syntax(
                format!("{what} column name \"{}\" already used in WITH query column list", name.text),
                at,
            )),
            false => Ok(()),
        };
        let mut added = Added { own: columns.len(), search: None, cycle: None };
        if let Some(search) = &table.search {
            let at = search.span.start;
            let row = row("search", &search.columns, at)?;
            taken("search sequence", &search.sequence, at)?;
            let name = (&*search.sequence.text).into();
            added.search = Some(Search { is_breadth_first: search.is_breadth_first, row, name });
        }
        if let Some(cycle) = &table.cycle {
            let at = cycle.span.start;
            let row = row("cycle", &cycle.columns, at)?;
            taken("cycle mark", &cycle.mark, at)?;
            taken("cycle path", &cycle.path, at)?;
            if cycle.mark.text == cycle.path.text {
                let message = "cycle mark column name and cycle path column name are the same";
                return Err(syntax(message.to_owned(), at));
            }
            added.cycle = Some(Following {
                row,
                mark: (&*cycle.mark.text).into(),
                path: (&*cycle.path.text).into(),
                values: values_of(cycle),
            });
        }
        if let (Some(search), Some(cycle)) = (&table.search, &table.cycle) {
            for (name, what) in [(&cycle.mark, "mark"), (&cycle.path, "path")] {
                if search.sequence.text == name.text {
                    let message =
                        format!("search sequence column name and cycle {what} column name are the same");
                    return Err(syntax(message, search.span.start));
                }
            }
        }
        Ok(Some(added))
    }

    /// The recursive term with the columns of the row before in its select list; `None` if it does not name the common table
    /// in FROM.
    pub(super) fn with_columns_before(
        table: &CommonTable,
        added: &Added,
        term: &QueryBody,
    ) -> Option<QueryBody> {
        let QueryBody::Select(select) = term else { return None };
        let read = select.from.iter().find_map(|item| name_of_read(item, &table.name.text))?;
        let mut select: Box<Select> = select.clone();
        for (name, _) in added.columns() {
            let name = ObjectName { qualifiers: vec![Name::new(&*read)], name: Name::new(&*name) };
            let span = select.span;
            let value = Expr { kind: ExprKind::Column(Box::new(name)), span };
            select.targets.push(Target::Value { value, alias: None });
        }
        Some(QueryBody::Select(select))
    }

    /// A term with the added columns behind its own. Those of the row before stand there, unless it is the first term.
    pub(super) fn with_added_columns(&mut self, rows: Rows, added: &Added, is_first: bool) -> Result<Rows> {
        let Rows { mut node, mut columns } = self.projected(rows)?;
        self.open();
        let internal = added.columns();
        let item = |(place, output): (usize, &Output)| ItemColumn {
            name: match place.checked_sub(added.own) {
                None => format!("*{place}*").into(),
                Some(place) => internal[place].1.into(),
            },
            value: output.value.clone(),
            ty: output.ty,
        };
        let items = columns.iter().enumerate().map(item).collect();
        self.add_item(Table::derived("*TERM*", items));
        let computed =
            self.within(Clause::Targets, |binder| binder.added_values(added, is_first, &mut node))?;
        let mut outputs = Vec::with_capacity(computed.len());
        columns.truncate(added.own);
        for (operand, (name, _)) in computed.into_iter().zip(internal) {
            let column = self.column_for(&operand.scalar, operand.ty, Some(&name));
            outputs.push((column, operand.scalar));
            columns.push(Output { name, value: Scalar::Column(column), ty: operand.ty, at: operand.at });
        }
        node = self.map(node, outputs);
        self.close();
        Ok(Rows { node, columns })
    }

    /// The values of the added columns. Rows that repeat one before are left out first.
    fn added_values(&mut self, added: &Added, is_first: bool, node: &mut NodeId) -> Result<Vec<Operand>> {
        let mut values = Vec::with_capacity(added.count());
        let mut depth = None;
        if let Some(Search { is_breadth_first, row, .. }) = &added.search {
            if *is_breadth_first {
                let number = if is_first { "0::bigint" } else { "\"*depth*\" + 1" };
                values.push(self.computed(&format!("ROW({number}, {row})"))?);
                depth = Some(self.computed(number)?);
            } else {
                let before = if is_first { "" } else { "\"*sequence*\" || " };
                values.push(self.computed(&format!("{before}ARRAY[ROW({row})]"))?);
            }
        }
        if let Some(Following { row, values: marks, .. }) = &added.cycle {
            let mut operands = Vec::with_capacity(2);
            for mark in marks {
                operands.push(self.expression(mark)?);
            }
            let (mut operands, ty) = self.as_common(operands, "CYCLE")?;
            let (default, found) =
                (operands.pop().expect("there are two"), operands.pop().expect("there are two"));
            self.check_equality(ty, found.at)?;
            if is_first {
                values.push(default);
                values.push(self.computed(&format!("ARRAY[ROW({row})]"))?);
            } else {
                let is_followed = {
                    let before = self.computed("\"*mark*\"")?;
                    let at = found.at;
                    self.apply_operator(&Operator::NotEqual, Some(before), found.clone(), at)?
                };
                *node = self.filtered(*node, is_followed.scalar);
                let is_found = self.computed(&format!("ROW({row}) = ANY (\"*path*\")"))?;
                let case = Case {
                    operand: None,
                    arms: vec![(is_found.scalar, found.scalar)],
                    otherwise: default.scalar,
                };
                values.push(Operand { scalar: Scalar::Case(Box::new(case)), ty, at: found.at });
                values.push(self.computed(&format!("\"*path*\" || ARRAY[ROW({row})]"))?);
            }
        }
        values.extend(depth);
        Ok(values)
    }

    /// The value of an expression that does not stand in the statement.
    fn computed(&mut self, text: &str) -> Result<Operand> {
        let expression = firn_syntax::parse_expression(text, Options::default())?;
        let has_positions = std::mem::replace(&mut self.has_positions, false);
        let operand = self.expression(&expression);
        self.has_positions = has_positions;
        Ok(Operand { at: 0, ..operand? })
    }
}

/// TO and DEFAULT.
fn values_of(cycle: &Cycle) -> [Expr; 2] {
    let boolean = |value: bool| Expr { kind: ExprKind::Boolean(value), span: cycle.span };
    cycle.values.clone().unwrap_or_else(|| [boolean(true), boolean(false)])
}

/// The name by which an item of FROM reads a common table.
fn name_of_read(item: &FromItem, name: &str) -> Option<Box<str>> {
    let of_table = |table: &firn_syntax::tree::Table| match &table.kind {
        TableKind::Relation { relation, .. }
            if relation.name.qualifiers.is_empty() && *relation.name.name.text == *name =>
        {
            let alias = table.alias.as_ref().map_or(&relation.name.name, |alias| &alias.name);
            Some(alias.text.clone())
        }
        TableKind::Join(inner) if table.alias.is_none() => name_of_read(inner, name),
        _ => None,
    };
    of_table(&item.first).or_else(|| item.joins.iter().find_map(|join| name_of_read(&join.right, name)))
}
