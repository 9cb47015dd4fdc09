//! FROM: relations, sub-queries and joins, and what each can see of the others.

use super::states::DUPLICATE_ALIAS;
use super::{Binder, Clause, Item, ItemColumn, Operand, Output, Rows, Table};
use crate::catalog::{Relation, RelationKind};
use firn_base::{Error, Result, SqlState, TypeId};
use firn_plan::operator::{JoinKind, Scan};
use firn_plan::{Column, ColumnInfo, NodeId, Operator, Origin, Scalar};
use firn_syntax::tree::{self, Alias, FromItem, JoinConstraint, QueryBody, Sample, Statement, TableKind};
use std::collections::HashSet;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

impl Binder<'_> {
    /// FROM. Without items it gives one row.
    pub(super) fn clause_from(&mut self, from: &[FromItem]) -> Result<NodeId> {
        let node = self.within(Clause::From, |binder| binder.joined_items(None, from))?;
        Ok(node.unwrap_or_else(|| {
            self.plan.add(Operator::Values { columns: Vec::new(), rows: vec![Vec::new()] })
        }))
    }

    /// Items of FROM beside what is there already, such as the target of UPDATE.
    pub(super) fn joined_items(
        &mut self,
        first: Option<NodeId>,
        from: &[FromItem],
    ) -> Result<Option<NodeId>> {
        let mut node = first;
        for item in from {
            let before = self.level().items.len();
            let start = self.references.len();
            self.set_lateral(0..before, true, true);
            let right = self.joined_item(item)?;
            let end = self.level().items.len();
            self.check_conflicts(0..before, before..end)?;
            node = Some(match node {
                None => right,
                Some(left) => {
                    let dependent = self.uses_items(start, 0..before);
                    self.join(JoinKind::Inner, dependent, left, right, Vec::new())
                }
            });
        }
        let all = 0..self.level().items.len();
        self.set_lateral(all, false, true);
        Ok(node)
    }

    fn set_lateral(&mut self, items: Range<usize>, only: bool, ok: bool) {
        for item in &mut self.level().items[items] {
            (item.lateral_only, item.lateral_ok) = (only, ok);
        }
    }

    /// Whether references since `start` use columns of items.
    fn uses_items(&mut self, start: usize, items: Range<usize>) -> bool {
        let used: HashSet<Column> =
            self.references[start..].iter().map(|reference| reference.column).collect();
        if used.is_empty() {
            return false;
        }
        let level = self.level();
        level.items[items].iter().any(|item| {
            let mut found = false;
            for column in item.columns.iter() {
                column.value.for_each_column(&mut |column| found |= used.contains(&column));
            }
            found || level.tables[item.table].system.values().any(|column| used.contains(column))
        })
    }

    /// Names of relations are unique among the items of a query.
    fn check_conflicts(&mut self, left: Range<usize>, right: Range<usize>) -> Result<()> {
        let level = self.level();
        for a in level.items[left].iter().filter(|item| item.has_name) {
            for b in level.items[right.clone()].iter().filter(|item| item.has_name) {
                let (a, b) = (&level.tables[a.table], &level.tables[b.table]);
                let is_other_relation = !a.has_alias
                    && !b.has_alias
                    && a.relation.is_some()
                    && b.relation.is_some()
                    && a.relation.as_ref().map(|one| one.oid) != b.relation.as_ref().map(|one| one.oid);
                if a.alias == b.alias && !is_other_relation {
                    let message = format!("table name \"{}\" specified more than once", a.alias);
                    return Err(Error::new(DUPLICATE_ALIAS, message));
                }
            }
        }
        Ok(())
    }

    fn joined_item(&mut self, item: &FromItem) -> Result<NodeId> {
        self.deeper(|binder| {
            let start = binder.level().items.len();
            let mut node = binder.table_item(&item.first)?;
            for join in &item.joins {
                node = binder.join_item(node, start, join)?;
            }
            Ok(node)
        })
    }

    fn table_item(&mut self, table: &tree::Table) -> Result<NodeId> {
        let at = table.span.start;
        match &table.kind {
            TableKind::Relation { relation, sample } => {
                self.relation(relation, table.alias.as_ref(), sample.as_deref())
            }
            TableKind::Query { is_lateral, query } => {
                let Some(alias) = &table.alias else {
                    let (what, example) = match &query.body {
                        QueryBody::Values(_) => ("VALUES", "VALUES ..."),
                        _ => ("subquery", "SELECT ..."),
                    };
                    let error =
                        self.error(SqlState::SYNTAX_ERROR, format!("{what} in FROM must have an alias"), at);
                    return Err(error.with_hint(format!("For example, FROM ({example}) [AS] foo.")));
                };
                self.level().lateral_active = *is_lateral;
                self.pushed_locks = self.locks_of(&alias.name.text);
                let rows = self.query(query, true).and_then(|rows| self.projected(rows));
                self.level().lateral_active = false;
                let Rows { node, columns } = rows?;
                let columns = columns.into_iter().map(item_column).collect();
                self.add_derived(&alias.name.text, columns, Some(alias))?;
                Ok(node)
            }
            TableKind::Function(function) => match self.file_function(function)? {
                Some(relation) => Ok(self.scan(relation, table.alias.as_ref(), at)?.0),
                None => self.table_function(function, table.alias.as_ref()),
            },
            TableKind::Join(inner) => {
                let start = self.level().items.len();
                let node = self.joined_item(inner)?;
                let Some(alias) = &table.alias else { return Ok(node) };
                // The alias hides what is joined.
                let last = self.level().items.pop().expect("a join is an item");
                self.level().items.truncate(start);
                let columns: Vec<ItemColumn> = last.columns.to_vec();
                let columns = self.renamed(columns, alias, &alias.name.text)?;
                let mut table = Table::derived(&alias.name.text, columns);
                table.is_join = true;
                self.add_item(table);
                Ok(node)
            }
            TableKind::Xml(_) => Err(self.unsupported("XMLTABLE", at)),
            TableKind::File(pattern) => match self.catalog.file(pattern)? {
                Some(relation) => Ok(self.scan(relation, table.alias.as_ref(), at)?.0),
                None => {
                    let message = format!("file \"{pattern}\" does not exist");
                    Err(self.error(SqlState::UNDEFINED_FILE, message, at))
                }
            },
        }
    }

    /// A common table, a table or a view.
    pub(super) fn relation(
        &mut self,
        relation: &tree::Relation,
        alias: Option<&Alias>,
        sample: Option<&Sample>,
    ) -> Result<NodeId> {
        let name = &relation.name;
        let at = name.span().start;
        if name.qualifiers.is_empty()
            && let Some(node) = self.common_table(&name.name.text, alias, at)?
        {
            if sample.is_some() {
                let message = "TABLESAMPLE clause can only be applied to tables and materialized views";
                return Err(self.error(SqlState::FEATURE_NOT_SUPPORTED, message, at));
            }
            return Ok(node);
        }
        let found = self.find_relation(name)?;
        self.note_relation(name.span(), &found);
        if let RelationKind::View(text) = &found.kind {
            if self.plan.size() > MOST_OPERATORS {
                return Err(too_complex());
            }
            self.pushed_locks = self.locks_of(alias.map_or(&*found.name, |alias| &*alias.name.text));
            let rows = self.view(&text.clone())?;
            let mut outputs = Vec::with_capacity(found.columns.len());
            let mut columns = Vec::with_capacity(found.columns.len());
            for (attribute, output) in found.columns.iter().zip(rows.columns) {
                let info = ColumnInfo {
                    ty: output.ty,
                    nullable: self.nullable(&output.value),
                    name: Some(attribute.name.clone()),
                    origin: Some(Origin { relation: found.oid, attribute: attribute.number }),
                };
                let column = self.new_column(info);
                outputs.push((column, output.value));
                let name = (&*attribute.name).into();
                columns.push(ItemColumn { name, value: Scalar::Column(column), ty: output.ty });
            }
            let node = self.map(rows.node, outputs);
            let known_as = alias.map_or(&*found.name, |alias| &*alias.name.text);
            let columns = match alias {
                Some(alias) => self.renamed(columns, alias, known_as)?,
                None => columns,
            };
            let alias = alias.map(|alias| &*alias.name.text);
            self.add_item(Table::of_relation(found.clone(), alias, columns, None));
            return Ok(node);
        }
        let (mut node, _) = self.scan(found, alias, at)?;
        if let Some(sample) = sample {
            node = self.sampled(node, sample)?;
        }
        Ok(node)
    }

    /// The relation of that name.
    pub(super) fn find_relation(&self, name: &tree::ObjectName) -> Result<Arc<Relation>> {
        let at = name.span().start;
        let schema = match &name.qualifiers[..] {
            [] => None,
            [schema] => Some(&*schema.text),
            [catalog, schema] => {
                let shown = format!("\"{}.{}.{}\"", catalog.text, schema.text, name.name.text);
                self.check_database(catalog, &shown, at)?;
                Some(&*schema.text)
            }
            _ => return Err(self.error(SqlState::SYNTAX_ERROR, "improper relation name", at)),
        };
        if let Some(found) = self.catalog.relation(schema, &name.name.text)? {
            return Ok(found);
        }
        let message = match schema {
            Some(schema) => format!("relation \"{schema}.{}\" does not exist", name.name.text),
            None => format!("relation \"{}\" does not exist", name.name.text),
        };
        let error = self.error(SqlState::UNDEFINED_TABLE, message, at);
        if schema.is_none() && self.is_later_common_table(&name.name.text) {
            return Err(error
                .with_detail(format!(
                    "There is a WITH item named \"{}\", but it cannot be referenced from this part of the query.",
                    name.name.text
                ))
                .with_hint("Use WITH RECURSIVE, or re-order the WITH items to remove forward references."));
        }
        Err(match schema {
            Some(_) => error,
            None => error.with_missing_relation(&*name.name.text),
        })
    }

    /// The rows of a source. Returns the place of its item as well.
    pub(super) fn scan(
        &mut self,
        relation: Arc<Relation>,
        alias: Option<&Alias>,
        at: u32,
    ) -> Result<(NodeId, usize)> {
        let Some(source) = relation.source() else {
            let message = format!("cannot read \"{}\" by a scan", relation.name);
            return Err(self.error(SqlState::WRONG_OBJECT_TYPE, message, at));
        };
        let mut columns = Vec::with_capacity(relation.columns.len());
        let mut produced = Vec::with_capacity(relation.columns.len());
        for attribute in &relation.columns {
            let info = ColumnInfo {
                ty: attribute.ty,
                nullable: !attribute.not_null,
                name: Some(attribute.name.clone()),
                // What is in no catalog has no oid.
                origin: (relation.oid != 0)
                    .then_some(Origin { relation: relation.oid, attribute: attribute.number }),
            };
            let column = self.new_column(info);
            produced.push((column, attribute.number));
            let name = (&*attribute.name).into();
            columns.push(ItemColumn { name, value: Scalar::Column(column), ty: attribute.ty });
        }
        let name = Some(relation.name.clone());
        let scan = Scan { source, name, columns: produced, conditions: Vec::new() };
        let node = self.plan.add(Operator::Scan(scan));
        let known_as: Rc<str> = alias.map_or(&*relation.name, |alias| &*alias.name.text).into();
        if let Some(alias) = alias {
            columns = self.renamed(columns, alias, &known_as)?;
        }
        let table = Table::of_relation(relation, alias.map(|alias| &*alias.name.text), columns, Some(node));
        let item = self.add_item(table);
        Ok((node, item))
    }

    /// The rows of a view: its text is a query of its own.
    fn view(&mut self, text: &str) -> Result<Rows> {
        let mut statements = firn_syntax::parse(text, firn_syntax::Options::default())?;
        let Some(Statement::Query(query)) = statements.pop().map(|node| node.statement) else {
            return Err(Error::internal("a view is not a query"));
        };
        let levels = std::mem::take(&mut self.levels);
        let guards = std::mem::take(&mut self.guards);
        let rows = self.kept(|binder| binder.query(&query, true).and_then(|rows| binder.projected(rows)));
        (self.levels, self.guards) = (levels, guards);
        rows
    }

    /// Adds a sub-query or its like.
    pub(super) fn add_derived(
        &mut self,
        name: &str,
        columns: Vec<ItemColumn>,
        alias: Option<&Alias>,
    ) -> Result<usize> {
        let columns = match alias {
            Some(alias) => self.renamed(columns, alias, name)?,
            None => columns,
        };
        Ok(self.add_item(Table::derived(name, columns)))
    }

    /// Columns with the names that an alias gives them.
    pub(super) fn renamed(
        &self,
        mut columns: Vec<ItemColumn>,
        alias: &Alias,
        table: &str,
    ) -> Result<Vec<ItemColumn>> {
        if alias.columns.len() > columns.len() {
            let message = format!(
                "table \"{table}\" has {} columns available but {} columns specified",
                columns.len(),
                alias.columns.len()
            );
            return Err(Error::new(SqlState::INVALID_COLUMN_REFERENCE, message));
        }
        for (column, name) in columns.iter_mut().zip(&alias.columns) {
            column.name = (&*name.text).into();
        }
        Ok(columns)
    }

    fn sampled(&mut self, node: NodeId, sample: &Sample) -> Result<NodeId> {
        let at = sample.span.start;
        let by_block = match &*sample.method.name.text {
            "system" => true,
            "bernoulli" => false,
            other => {
                let message = format!("tablesample method {other} does not exist");
                return Err(self.error(SqlState::UNDEFINED_OBJECT, message, sample.method.span().start));
            }
        };
        if sample.arguments.len() != 1 {
            let message = format!(
                "tablesample method {} requires 1 argument, not {}",
                sample.method.name.text,
                sample.arguments.len()
            );
            return Err(self.error(SqlState::new("2202H"), message, at));
        }
        let percent = self.within(Clause::FromFunction, |binder| binder.expression(&sample.arguments[0]))?;
        let percent = self.specific(percent, TypeId::FLOAT4, "TABLESAMPLE")?;
        let percent = self.coerce(percent, TypeId::FLOAT8, false)?.scalar;
        let seed = match &sample.seed {
            Some(seed) => {
                let seed = self.within(Clause::FromFunction, |binder| binder.expression(seed))?;
                Some(self.specific(seed, TypeId::FLOAT8, "REPEATABLE")?.scalar)
            }
            None => None,
        };
        Ok(self.plan.add(Operator::Sample { input: node, by_block, percent, seed }))
    }

    /// A join of what stands on its left, whose items begin at `start`, with its right side.
    fn join_item(&mut self, left: NodeId, start: usize, join: &tree::Join) -> Result<NodeId> {
        let middle = self.level().items.len();
        let references = self.references.len();
        let sees_left = matches!(join.kind, tree::JoinKind::Inner | tree::JoinKind::Left);
        self.set_lateral(start..middle, true, sees_left);
        let right = self.joined_item(&join.right)?;
        let dependent = self.uses_items(references, start..middle);
        let end = self.level().items.len();
        self.check_conflicts(start..middle, middle..end)?;

        let left_columns = self.shown_columns(start..middle);
        let right_columns = self.shown_columns(middle..end);
        let using: Vec<&str> = match &join.constraint {
            JoinConstraint::Using { columns, .. } => columns.iter().map(|name| &*name.text).collect(),
            JoinConstraint::Natural => {
                let in_right =
                    |column: &&ItemColumn| right_columns.iter().any(|other| other.name == column.name);
                left_columns.iter().filter(in_right).map(|column| &*column.name).collect()
            }
            _ => Vec::new(),
        };
        self.note_join(join, &using, &left_columns, &right_columns);
        let (conditions, merged) = self.merged(join.kind, &using, &left_columns, &right_columns)?;
        let node = match &join.constraint {
            JoinConstraint::On(condition) => {
                self.set_lateral(start..middle, false, true);
                self.set_lateral(middle..end, false, true);
                // ON sees only what is joined.
                let others: Vec<Item> = self.level().items.drain(..start).collect();
                let condition = self.within(Clause::On, |binder| binder.condition(condition, "JOIN/ON"));
                self.level().items.splice(0..0, others);
                let conditions = match condition? {
                    Scalar::And(list) => list,
                    other => vec![other],
                };
                self.joined(join, left, right, dependent, conditions)?
            }
            _ => self.joined(join, left, right, dependent, conditions)?,
        };
        self.pad(join.kind, start..middle, middle..end);
        if matches!(join.kind, tree::JoinKind::Left | tree::JoinKind::Full) {
            self.refuse_recursion_under_outer_join(right)?;
        }
        if matches!(join.kind, tree::JoinKind::Right | tree::JoinKind::Full) {
            self.refuse_recursion_under_outer_join(left)?;
        }

        let is_merged = |column: &&ItemColumn| !using.contains(&&*column.name);
        let mut columns = merged.clone();
        columns.extend(left_columns.iter().filter(is_merged).cloned());
        columns.extend(right_columns.iter().filter(is_merged).cloned());
        for item in &mut self.level().items[start..] {
            item.has_columns = false;
        }
        if let JoinConstraint::Using { alias: Some(alias), .. } = &join.constraint {
            let mut table = Table::derived(&alias.text, merged);
            table.is_join = true;
            let item = self.add_item(table);
            self.level().items[item].has_columns = false;
        }
        let mut table = Table::derived("unnamed_join", columns);
        table.is_join = true;
        let item = self.add_item(table);
        self.level().items[item].has_name = false;
        Ok(node)
    }

    /// The columns that items show to unqualified names.
    fn shown_columns(&mut self, items: Range<usize>) -> Vec<ItemColumn> {
        let shown = self.level().items[items].iter().filter(|item| item.has_columns);
        shown.flat_map(|item| item.columns.iter().cloned()).collect()
    }

    /// What USING compares, and the columns that it merges.
    fn merged(
        &mut self,
        kind: tree::JoinKind,
        using: &[&str],
        left: &[ItemColumn],
        right: &[ItemColumn],
    ) -> Result<(Vec<Scalar>, Vec<ItemColumn>)> {
        let (mut conditions, mut merged) = (Vec::new(), Vec::new());
        let has_positions = std::mem::replace(&mut self.has_positions, false);
        for (place, name) in using.iter().enumerate() {
            if using[..place].contains(name) {
                let message = format!("column name \"{name}\" appears more than once in USING clause");
                return Err(Error::new(SqlState::DUPLICATE_COLUMN, message));
            }
            let find = |columns: &[ItemColumn], side: &str| -> Result<Operand> {
                let mut found = columns.iter().filter(|column| &*column.name == *name);
                let Some(column) = found.next() else {
                    let message =
                        format!("column \"{name}\" specified in USING clause does not exist in {side} table");
                    return Err(Error::new(SqlState::UNDEFINED_COLUMN, message));
                };
                if found.next().is_some() {
                    let message =
                        format!("common column name \"{name}\" appears more than once in {side} table");
                    return Err(Error::new(SqlState::AMBIGUOUS_COLUMN, message));
                }
                Ok(Operand { scalar: column.value.clone(), ty: column.ty, at: 0 })
            };
            let (a, b) = (find(left, "left")?, find(right, "right")?);
            let own = self.level().id;
            for operand in [&a, &b] {
                operand.scalar.for_each_column(&mut |column| {
                    self.owners.insert(column, own);
                });
            }
            let compared = self.apply_operator(&tree::Operator::Equal, Some(a.clone()), b.clone(), 0)?;
            conditions.push(self.boolean(compared, "JOIN/USING")?.scalar);
            let common = self.common_type(&[a.clone(), b.clone()], "JOIN/USING")?;
            let a = self.coerce_common(a, common, "JOIN/USING")?;
            let b = self.coerce_common(b, common, "JOIN/USING")?;
            let a = self.fit_modifier(a, common, false)?.scalar;
            let b = self.fit_modifier(b, common, false)?.scalar;
            let value = match kind {
                tree::JoinKind::Inner if a.as_column().is_none() && b.as_column().is_some() => b,
                tree::JoinKind::Inner | tree::JoinKind::Left => a,
                tree::JoinKind::Right => b,
                tree::JoinKind::Full => Scalar::Coalesce(vec![a, b]),
            };
            merged.push(ItemColumn { name: (*name).into(), value, ty: common });
        }
        self.has_positions = has_positions;
        Ok((conditions, merged))
    }

    /// The operators of a join.
    fn joined(
        &mut self,
        join: &tree::Join,
        left: NodeId,
        right: NodeId,
        dependent: bool,
        conditions: Vec<Scalar>,
    ) -> Result<NodeId> {
        let has_queries = conditions.iter().any(|condition| self.has_pending(condition));
        Ok(match join.kind {
            tree::JoinKind::Inner if has_queries => {
                let node = self.join(JoinKind::Inner, dependent, left, right, Vec::new());
                self.filtered(node, Scalar::And(conditions))
            }
            tree::JoinKind::Inner => self.join(JoinKind::Inner, dependent, left, right, conditions),
            // The condition is evaluated with the rows of the right side, for each row of the left one.
            tree::JoinKind::Left if has_queries => {
                let right = self.filtered(right, Scalar::And(conditions));
                self.join(JoinKind::Left, true, left, right, Vec::new())
            }
            tree::JoinKind::Left => self.join(JoinKind::Left, dependent, left, right, conditions),
            tree::JoinKind::Right if has_queries => {
                let left = self.filtered(left, Scalar::And(conditions));
                self.join(JoinKind::Left, true, right, left, Vec::new())
            }
            tree::JoinKind::Right => self.join(JoinKind::Left, false, right, left, conditions),
            // Each is computed for the rows of the one side that it uses.
            tree::JoinKind::Full if has_queries => {
                let (mut left, mut right) = (left, right);
                let pending: Vec<_> =
                    conditions.iter().flat_map(|condition| self.pending_of(condition)).collect();
                for column in pending {
                    let mut used = Vec::new();
                    self.used_by_pending(column, &mut used);
                    let has_any = |node| {
                        let scope = firn_plan::properties::scope(&self.plan, node);
                        used.iter().any(|column| scope.has(*column))
                    };
                    match (has_any(left), has_any(right)) {
                        (true, true) => {
                            return Err(self.unsupported_as(
                                "FULL JOIN is only supported with merge-joinable or hash-joinable join conditions",
                                join.span.start,
                            ));
                        }
                        (false, true) => right = self.attach(right, [&Scalar::Column(column)]),
                        _ => left = self.attach(left, [&Scalar::Column(column)]),
                    }
                }
                self.join(JoinKind::Full, false, left, right, conditions)
            }
            tree::JoinKind::Full => self.join(JoinKind::Full, false, left, right, conditions),
        })
    }

    /// Columns of the side that an outer join fills with NULLs may be NULL.
    fn pad(&mut self, kind: tree::JoinKind, left: Range<usize>, right: Range<usize>) {
        let sides: &[Range<usize>] = match kind {
            tree::JoinKind::Inner => &[],
            tree::JoinKind::Left => std::slice::from_ref(&right),
            tree::JoinKind::Right => std::slice::from_ref(&left),
            tree::JoinKind::Full => &[left.clone(), right.clone()],
        };
        for side in sides {
            let level = self.levels.last_mut().expect("a query is being bound");
            for item in &level.items[side.clone()] {
                for column in item.columns.iter() {
                    column.value.for_each_column(&mut |column| {
                        self.padded.insert(column);
                    });
                }
                level.tables[item.table].is_padded = true;
                self.padded.extend(level.tables[item.table].system.values());
            }
        }
    }
}

/// A column of a sub-query as a name finds it.
pub(super) fn item_column(output: Output) -> ItemColumn {
    ItemColumn { name: output.name, value: output.value, ty: output.ty }
}

/// How many operators a plan may have when another view is added to it. A view that is named twice is bound twice, and so is
/// what it names: the plan may have exponentially more operators than the text has characters.
const MOST_OPERATORS: usize = 20_000;

#[cold]
fn too_complex() -> Error {
    Error::new(SqlState::new("54001"), "statement is too complex")
        .with_detail(format!("Its plan has more than {MOST_OPERATORS} operators."))
        .with_hint("Views are planned as often as they are named: keep the rows of one in a table.")
}
