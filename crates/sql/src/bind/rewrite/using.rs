//! Columns that joins merge, by USING and NATURAL.
//!
//! DataFusion takes the left table's column for the merged one, which is NULL in rows that only the right table has, and knows
//! it in few places; and it leaves merged columns where the left table has them, which PostgreSQL puts first. So such joins are told as joins
//! ON what they compare, by the columns of the relations in FROM, and names as the columns that they stand for:
//!
//! | written | becomes |
//! |---|---|
//! | `SELECT id FROM a RIGHT JOIN b USING (id)` | `SELECT b.id FROM a RIGHT JOIN b ON a.id = b.id` |
//! | `SELECT id FROM a NATURAL FULL JOIN b` | `SELECT coalesce(a.id, b.id) AS id FROM a FULL JOIN b ON a.id = b.id` |
//! | `SELECT * FROM a JOIN b USING (id) WHERE id > 1` | `SELECT a.id, a.x, b.y FROM a JOIN b ON a.id = b.id WHERE a.id > 1` |
//! | `FROM (a JOIN b USING (id)) AS j` | `FROM (SELECT * FROM a JOIN b USING (id)) AS j` |
//! | `FROM a AS q (n)` | `FROM a AS q (n, x)` |
//!
//! A name that stands for more than one column remains as it is, and is ambiguous. So does a whole FROM with a relation whose columns nobody knows
//! before it is planned.

use super::{binary, call, parsed};
use crate::output_name::output_name;
use crate::statement::fold;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Distinct, Expr, Ident, JoinConstraint, JoinOperator, ObjectName, ObjectNamePart,
    OrderByKind, Query, Select, SelectItem, SelectItemQualifiedWildcardKind, SetExpr, Statement, TableAlias,
    TableAliasColumnDef, TableFactor, TableFunctionArgs, TableWithJoins, Value, VisitMut, VisitorMut, With,
};
use std::collections::HashSet;
use std::ops::ControlFlow;

/// Tells what a relation in FROM is called without an alias, and its columns, if anybody knows.
pub type Relations<'a> = &'a dyn Fn(&ObjectName, Option<&TableFunctionArgs>) -> Option<(String, Vec<String>)>;

/// Rewrites all such joins.
pub fn merge(part: &mut impl VisitMut, relations: Relations<'_>) {
    let _: ControlFlow<()> = part.visit(&mut Merge { relations, queries: Vec::new() });
}

/// The name that columns of a table are qualified by.
pub(super) fn known_as(factor: &TableFactor) -> Option<Ident> {
    match factor {
        TableFactor::Table { alias: Some(alias), .. }
        | TableFactor::Derived { alias: Some(alias), .. }
        | TableFactor::Function { alias: Some(alias), .. } => Some(alias.name.clone()),
        TableFactor::Table { name, .. } => last(name).cloned(),
        _ => None,
    }
}

fn last(name: &ObjectName) -> Option<&Ident> {
    name.0.last().and_then(ObjectNamePart::as_ident)
}

fn quoted(name: &str) -> Ident {
    Ident::with_quote('"', name)
}

/// A column that a name without a table's stands for.
#[derive(Clone)]
struct Column {
    name: String,
    value: Expr,
    is_merged: bool,
}

impl Column {
    fn output(&self) -> SelectItem {
        let expr = self.value.clone();
        match expr {
            Expr::CompoundIdentifier(_) => SelectItem::UnnamedExpr(expr),
            _ => SelectItem::ExprWithAlias { expr, alias: quoted(&self.name) },
        }
    }
}

/// The only column of that name.
fn only<'c>(columns: &'c [Column], name: &str) -> Option<&'c Column> {
    let mut found = columns.iter().filter(|column| column.name == name);
    found.next().filter(|_| found.next().is_none())
}

/// Those that are merged, and the only ones of their names.
fn merged_of(columns: &[Column]) -> Vec<Column> {
    let is_told = |column: &&Column| column.is_merged && only(columns, &column.name).is_some();
    columns.iter().filter(is_told).cloned().collect()
}

/// The relations of a FROM by their names, with their columns.
type Named = Vec<(String, Vec<String>)>;

/// The tables of the WITH of a query that is being visited, and the merged columns of its SELECT.
#[derive(Default)]
struct Around {
    /// Those whose queries have not been visited, the next one last.
    ahead: Vec<TableAlias>,
    /// They know themselves.
    recursive: bool,
    tables: Vec<(String, Option<Vec<String>>)>,
    merged: Vec<Column>,
    /// What the SELECT's outputs are called.
    outputs: Vec<String>,
}

struct Merge<'r> {
    relations: Relations<'r>,
    /// The queries around the place that is visited, outermost first.
    queries: Vec<Around>,
}

impl VisitorMut for Merge<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        if let Some(outer) = self.queries.last()
            && outer.recursive
            && let Some(alias) = outer.ahead.last().cloned()
        {
            self.add_table(query, &alias);
        }
        let mut around = Around::default();
        if let Some(with) = &query.with {
            around.ahead = with.cte_tables.iter().rev().map(|table| table.alias.clone()).collect();
            around.recursive = with.recursive;
        }
        self.queries.push(around);
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        if select.from.iter().any(merges) {
            self.select(select);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        self.name_the_rest(factor);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        let around = self.queries.last_mut().expect("it was pushed before");
        let (merged, outputs) = (std::mem::take(&mut around.merged), std::mem::take(&mut around.outputs));
        if let (SetExpr::Select(_), Some(order_by)) = (&*query.body, &mut query.order_by)
            && let OrderByKind::Expressions(expressions) = &mut order_by.kind
        {
            for item in expressions {
                self.replace_in_order(&mut item.expr, &merged, &outputs);
            }
        }
        self.queries.pop();
        // WITH is visited before all else of a query.
        if let Some(outer) = self.queries.last_mut()
            && let Some(alias) = outer.ahead.pop()
            && !outer.recursive
        {
            self.add_table(query, &alias);
        }
        ControlFlow::Continue(())
    }
}

/// Whether a join in an item of FROM merges columns.
fn merges(item: &TableWithJoins) -> bool {
    let is_nested = |factor: &TableFactor| match factor {
        TableFactor::NestedJoin { table_with_joins, .. } => merges(table_with_joins),
        _ => false,
    };
    let merges_here = |operator: &JoinOperator| match operator {
        JoinOperator::Join(constraint)
        | JoinOperator::Inner(constraint)
        | JoinOperator::Left(constraint)
        | JoinOperator::LeftOuter(constraint)
        | JoinOperator::Right(constraint)
        | JoinOperator::RightOuter(constraint)
        | JoinOperator::FullOuter(constraint) => {
            matches!(constraint, JoinConstraint::Using(_) | JoinConstraint::Natural)
        }
        _ => false,
    };
    is_nested(&item.relation)
        || item.joins.iter().any(|join| merges_here(&join.join_operator) || is_nested(&join.relation))
}

impl Merge<'_> {
    fn select(&mut self, select: &mut Select) {
        // What has been rewritten when a relation turns out to be unknown is given up.
        let mut items = select.from.clone();
        let Some((columns, _)) = self.items(&mut items) else { return };
        select.from = items;
        let merged = merged_of(&columns);
        let mut projection = Vec::new();
        for item in std::mem::take(&mut select.projection) {
            match item {
                SelectItem::Wildcard(_) => projection.extend(columns.iter().map(Column::output)),
                SelectItem::UnnamedExpr(mut expr) => {
                    let name = output_name(&expr);
                    self.replace(&mut expr, &merged);
                    projection.push(match output_name(&expr) == name {
                        true => SelectItem::UnnamedExpr(expr),
                        false => SelectItem::ExprWithAlias { expr, alias: quoted(&name) },
                    });
                }
                mut other => {
                    self.replace(&mut other, &merged);
                    projection.push(other);
                }
            }
        }
        let outputs: Vec<String> = projection.iter().filter_map(output_of).collect();
        select.projection = projection;
        if let Some(Distinct::On(expressions)) = &mut select.distinct {
            for expression in expressions {
                self.replace_in_order(expression, &merged, &outputs);
            }
        }
        self.replace(&mut select.selection, &merged);
        self.replace(&mut select.group_by, &merged);
        self.replace(&mut select.having, &merged);
        self.replace(&mut select.named_window, &merged);
        if let Some(around) = self.queries.last_mut() {
            around.merged = merged;
            around.outputs = outputs;
        }
    }

    fn replace(&mut self, part: &mut impl VisitMut, merged: &[Column]) {
        if !merged.is_empty() {
            let _: ControlFlow<()> =
                part.visit(&mut Replace { merge: self, merged, queries: 0, within: Vec::new() });
        }
    }

    /// An expression that, as a mere name, is that of an output before it is that of a column.
    fn replace_in_order(&mut self, expression: &mut Expr, merged: &[Column], outputs: &[String]) {
        if !matches!(expression, Expr::Identifier(name) if outputs.contains(&fold(name))) {
            self.replace(expression, merged);
        }
    }

    /// The columns that names stand for over all items of a FROM, and its relations. Its joins no longer merge then.
    fn items(&mut self, items: &mut [TableWithJoins]) -> Option<(Vec<Column>, Named)> {
        let (mut columns, mut named) = (Vec::new(), Named::new());
        for item in items {
            columns.extend(self.item(item, &mut named)?);
        }
        Some((columns, named))
    }

    fn item(&mut self, item: &mut TableWithJoins, named: &mut Named) -> Option<Vec<Column>> {
        let mut columns = self.factor(&mut item.relation, named)?;
        for join in &mut item.joins {
            let right = self.factor(&mut join.relation, named)?;
            columns = self.joined(columns, right, &mut join.join_operator)?;
        }
        Some(columns)
    }

    fn joined(
        &mut self,
        left: Vec<Column>,
        right: Vec<Column>,
        operator: &mut JoinOperator,
    ) -> Option<Vec<Column>> {
        let (has_left, has_right, constraint) = match operator {
            JoinOperator::Join(constraint)
            | JoinOperator::Inner(constraint)
            | JoinOperator::Left(constraint)
            | JoinOperator::LeftOuter(constraint) => (true, false, constraint),
            JoinOperator::Right(constraint) | JoinOperator::RightOuter(constraint) => {
                (false, true, constraint)
            }
            JoinOperator::FullOuter(constraint) => (true, true, constraint),
            JoinOperator::CrossJoin(constraint @ JoinConstraint::None) => (true, true, constraint),
            _ => return None,
        };
        let names: Vec<String> = match constraint {
            JoinConstraint::Using(columns) => {
                columns.iter().map(|column| last(column).map(fold)).collect::<Option<_>>()?
            }
            JoinConstraint::Natural => {
                let is_common = |column: &&Column| right.iter().any(|other| other.name == column.name);
                left.iter().filter(is_common).map(|column| column.name.clone()).collect()
            }
            JoinConstraint::On(_) | JoinConstraint::None => {
                let both: Vec<Column> = left.into_iter().chain(right).collect();
                if let JoinConstraint::On(condition) = constraint {
                    self.replace(condition, &merged_of(&both));
                }
                return Some(both);
            }
        };
        let mut columns = Vec::new();
        let mut condition = None;
        for name in &names {
            let (left, right) = (&only(&left, name)?.value, &only(&right, name)?.value);
            let equal = binary(left.clone(), BinaryOperator::Eq, right.clone());
            condition = Some(match condition {
                Some(others) => binary(others, BinaryOperator::And, equal),
                None => equal,
            });
            let value = match (has_left, has_right) {
                (true, true) => call("coalesce", vec![left.clone(), right.clone()]),
                (true, false) => left.clone(),
                _ => right.clone(),
            };
            columns.push(Column { name: name.clone(), value, is_merged: true });
        }
        let others = left.into_iter().chain(right).filter(|column| !names.contains(&column.name));
        columns.extend(others);
        let always = || Expr::Value(Value::Boolean(true).with_empty_span());
        *constraint = JoinConstraint::On(condition.unwrap_or_else(always));
        Some(columns)
    }

    fn factor(&mut self, factor: &mut TableFactor, named: &mut Named) -> Option<Vec<Column>> {
        if let TableFactor::NestedJoin { table_with_joins, alias } = factor {
            let Some(alias) = alias.take() else { return self.item(table_with_joins, named) };
            let subquery = Box::new(all_of((**table_with_joins).clone()));
            *factor = TableFactor::Derived { lateral: false, subquery, alias: Some(alias), sample: None };
        }
        let (name, columns) = match factor {
            TableFactor::Table { name, args, alias, with_ordinality, .. } => {
                let function = last(name).map(fold)?;
                let arguments = args.as_ref().map(|arguments| arguments.args.len());
                let alias = alias.as_ref();
                match arguments.and_then(|count| function_columns(&function, count, *with_ordinality, alias))
                {
                    Some(columns) => (function, columns),
                    None => self.relation(name, args.as_ref())?,
                }
            }
            TableFactor::Function { name, args, alias, with_ordinality, .. } => {
                let function = last(name).map(fold)?;
                let columns = function_columns(&function, args.len(), *with_ordinality, alias.as_ref())?;
                (function, columns)
            }
            TableFactor::UNNEST { alias, array_exprs, with_ordinality, .. } => {
                let function = "unnest".to_owned();
                let columns =
                    function_columns(&function, array_exprs.len(), *with_ordinality, alias.as_ref())?;
                (function, columns)
            }
            TableFactor::Derived { subquery, .. } => (String::new(), self.columns_of_query(subquery)?),
            _ => return None,
        };
        let alias = match factor {
            TableFactor::Table { alias, .. }
            | TableFactor::Function { alias, .. }
            | TableFactor::UNNEST { alias, .. }
            | TableFactor::Derived { alias, .. } => alias.as_ref(),
            _ => None,
        };
        let name = alias.map_or(name, |alias| fold(&alias.name));
        let columns = renamed(columns, alias)?;
        // The planner must know what is meant by each of them.
        if name.is_empty() || !are_different(&columns) || named.iter().any(|(known, _)| *known == name) {
            return None;
        }
        let column = |column: &String| {
            let value = Expr::CompoundIdentifier(vec![quoted(&name), quoted(column)]);
            Column { name: column.clone(), value, is_merged: false }
        };
        let all = columns.iter().map(column).collect();
        named.push((name, columns));
        Some(all)
    }

    /// An alias may name the first columns alone; DataFusion wants all named.
    fn name_the_rest(&mut self, factor: &mut TableFactor) {
        let names_some = |alias: &Option<TableAlias>| alias.as_ref().is_some_and(|it| !it.columns.is_empty());
        let (TableFactor::Table { alias, .. } | TableFactor::Derived { alias, .. }) = &*factor else {
            return;
        };
        // The rows of `ARRAY(SELECT …)` are of no more columns than that names.
        let is_of_array = |alias: &TableAlias| alias.columns[0].name.value == "array element";
        if !names_some(alias) || alias.as_ref().is_some_and(is_of_array) {
            return;
        }
        let Some(columns) = self.factor(&mut factor.clone(), &mut Named::new()) else { return };
        if let TableFactor::Table { alias: Some(alias), .. }
        | TableFactor::Derived { alias: Some(alias), .. } = factor
        {
            let rest = columns.into_iter().skip(alias.columns.len());
            let names =
                rest.map(|column| TableAliasColumnDef { name: quoted(&column.name), data_type: None });
            alias.columns.extend(names);
        }
    }

    /// A table of a WITH, or what others know.
    fn relation(
        &self,
        name: &ObjectName,
        arguments: Option<&TableFunctionArgs>,
    ) -> Option<(String, Vec<String>)> {
        if let ([ObjectNamePart::Identifier(name)], None) = (name.0.as_slice(), arguments)
            && name.quote_style != Some('\'')
        {
            let name = fold(name);
            let mut tables = self.queries.iter().rev().flat_map(|around| around.tables.iter().rev());
            if let Some((_, columns)) = tables.find(|(table, _)| *table == name) {
                return Some((name, columns.clone()?));
            }
        }
        (self.relations)(name, arguments)
    }

    /// Adds a table to those of the WITH that is visited.
    fn add_table(&mut self, query: &Query, alias: &TableAlias) {
        let columns = self.columns_of_query(query).and_then(|columns| renamed(columns, Some(alias)));
        if let Some(around) = self.queries.last_mut() {
            around.tables.push((fold(&alias.name), columns));
        }
    }

    /// Begins a query that is looked at, and not visited.
    fn begin(&mut self, with: Option<&With>) {
        self.queries.push(Around::default());
        for table in with.iter().flat_map(|with| &with.cte_tables) {
            self.add_table(&table.query, &table.alias);
        }
    }

    fn columns_of_query(&mut self, query: &Query) -> Option<Vec<String>> {
        self.begin(query.with.as_ref());
        let columns = self.columns_of_body(&query.body);
        self.queries.pop();
        columns
    }

    fn columns_of_body(&mut self, body: &SetExpr) -> Option<Vec<String>> {
        let select = match body {
            SetExpr::Select(select) => select,
            SetExpr::Query(query) => return self.columns_of_query(query),
            SetExpr::SetOperation { left, .. } => return self.columns_of_body(left),
            SetExpr::Values(values) => {
                let count = values.rows.first()?.content.len();
                return Some((1..=count).map(|number| format!("column{number}")).collect());
            }
            _ => return None,
        };
        let mut names = Vec::new();
        for item in &select.projection {
            match item {
                SelectItem::Wildcard(_) => {
                    let (columns, _) = self.items(&mut select.from.clone())?;
                    names.extend(columns.into_iter().map(|column| column.name));
                }
                SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
                    let name = last(name).map(fold)?;
                    let (_, named) = self.items(&mut select.from.clone())?;
                    names.extend(named.into_iter().find(|(known, _)| *known == name)?.1);
                }
                other => names.push(output_of(other)?),
            }
        }
        Some(names)
    }
}

/// What an output that is one column is called.
fn output_of(item: &SelectItem) -> Option<String> {
    match item {
        SelectItem::UnnamedExpr(expression) => Some(output_name(expression)),
        SelectItem::ExprWithAlias { alias, .. } => Some(fold(alias)),
        _ => None,
    }
}

fn are_different(names: &[String]) -> bool {
    let mut told = HashSet::new();
    names.iter().all(|name| told.insert(name.as_str()))
}

/// Columns by the names that an alias gives them.
fn renamed(mut columns: Vec<String>, alias: Option<&TableAlias>) -> Option<Vec<String>> {
    let names = alias.map_or(&[][..], |alias| alias.columns.as_slice());
    for (place, name) in names.iter().enumerate() {
        *columns.get_mut(place)? = fold(&name.name);
    }
    Some(columns)
}

/// The columns of a function in FROM that yields as many as it has arguments, or one.
fn function_columns(
    name: &str,
    arguments: usize,
    is_numbered: bool,
    alias: Option<&TableAlias>,
) -> Option<Vec<String>> {
    let mut columns = match (name, arguments) {
        ("generate_series", _) | ("unnest", 1) => {
            vec![alias.map_or_else(|| name.to_owned(), |alias| fold(&alias.name))]
        }
        ("unnest", _) => vec![name.to_owned(); arguments],
        _ => return None,
    };
    if is_numbered {
        columns.push("ordinality".to_owned());
    }
    Some(columns)
}

/// `SELECT * FROM item`
fn all_of(item: TableWithJoins) -> Query {
    let Statement::Query(mut query) = parsed("SELECT * FROM item") else { unreachable!("it is a query") };
    let SetExpr::Select(select) = query.body.as_mut() else { unreachable!("it is a SELECT") };
    select.from = vec![item];
    *query
}

/// Puts columns for names that stand for merged ones, also in sub-queries that have no columns of that name.
struct Replace<'a, 'r> {
    merge: &'a mut Merge<'r>,
    merged: &'a [Column],
    /// How many queries deep the visit is.
    queries: usize,
    /// The names of columns of the SELECTs that it is in; of one that nobody knows, `None`.
    within: Vec<Option<HashSet<String>>>,
}

impl VisitorMut for Replace<'_, '_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        self.queries += 1;
        self.merge.begin(query.with.as_ref());
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &mut Query) -> ControlFlow<()> {
        self.queries -= 1;
        self.merge.queries.pop();
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        let columns = self.merge.items(&mut select.from.clone());
        let names = columns.map(|(columns, _)| columns.into_iter().map(|column| column.name).collect());
        self.within.push(names);
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, _select: &mut Select) -> ControlFlow<()> {
        self.within.pop();
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        // ORDER BY and LIMIT of a sub-query stand outside of its SELECT, and may name its outputs.
        if let (Expr::Identifier(name), true) = (&*expression, self.queries == self.within.len()) {
            let name = fold(name);
            let is_outer =
                |names: &Option<HashSet<String>>| names.as_ref().is_some_and(|names| !names.contains(&name));
            if let Some(column) = self.merged.iter().find(|column| column.name == name)
                && self.within.iter().all(is_outer)
            {
                *expression = column.value.clone();
            }
        }
        ControlFlow::Continue(())
    }
}
