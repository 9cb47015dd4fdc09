//! WITH RECURSIVE: which common tables read themselves, and the two terms of one that does.

use super::coerce::common_modifier;
use super::search::Added;
use super::with::{CommonState, CommonTableEntry};
use super::{Binder, Output, Rows};
use crate::resolve::name as type_name;
use firn_base::{Error, Result, SqlState, Type, TypeId};
use firn_plan::operator::Iterate;
use firn_plan::{Column, ColumnInfo, NodeId, Operator};
use firn_syntax::tree::{CommonTable, Query, QueryBody, SetOperator, SetStep, Statement, With};
use std::cell::RefCell;
use std::rc::Rc;

impl Binder<'_> {
    /// Whether a name stands in the text of a common table. What only looks like a read is found later not to be one.
    pub(super) fn mentions(&self, table: &CommonTable, name: &str) -> bool {
        let Statement::Query(query) = &table.statement else { return true };
        !self.has_positions || mentions(query.span.of(self.text), name)
    }

    /// The common tables in an order in which each comes after those that it mentions.
    pub(super) fn dependency_order(&self, with: &With) -> Result<Vec<usize>> {
        let count = with.tables.len();
        let mut order: Vec<usize> = Vec::with_capacity(count);
        while order.len() < count {
            let is_ready = |place: &usize| {
                (0..count).all(|other| {
                    other == *place
                        || order.contains(&other)
                        || !self.mentions(&with.tables[*place], &with.tables[other].name.text)
                })
            };
            let next = (0..count).filter(|place| !order.contains(place)).find(is_ready);
            // What mentions each other is taken as it stands: one that reads a later one is an error of its own.
            order.push(
                next.unwrap_or_else(|| (0..count).find(|place| !order.contains(place)).expect("one is left")),
            );
        }
        Ok(order)
    }

    /// 42P19 if a plan, whose rows an outer join may make NULL, reads a common table of whose recursive term it is a part.
    pub(super) fn refuse_recursion_under_outer_join(&self, node: NodeId) -> Result<()> {
        for entry in self.levels.iter().flat_map(|level| &level.common) {
            let entry = entry.borrow();
            let CommonState::Recursive { iterate, reads: 1.., at, .. } = &entry.state else { continue };
            let is_read = |node: &NodeId| matches!(&self.plan[*node], Operator::IterateRead { iterate: read, .. } if read == iterate);
            if self.plan.post_order_of(node).iter().any(is_read) {
                let message = format!(
                    "recursive reference to query \"{}\" must not appear within an outer join",
                    entry.name
                );
                return Err(self.error(super::states::INVALID_RECURSION, message, *at));
            }
        }
        Ok(())
    }

    /// A common table that mentions its own name.
    pub(super) fn recursive_table(
        &mut self,
        table: &CommonTable,
        entry: &Rc<RefCell<CommonTableEntry>>,
    ) -> Result<Rows> {
        let Statement::Query(query) = &table.statement else { panic!("changes are not recursive") };
        let at = table.name.span.start;
        let Some((body, last)) = terms(query) else {
            // It reads itself only if it fails here.
            entry.borrow_mut().state = CommonState::Forbidden("here");
            let rows = self.query(query, true);
            let is_form = matches!(&rows, Err(error) if error.state() == super::states::INVALID_RECURSION);
            if is_form {
                let message = format!(
                    "recursive query \"{}\" does not have the form non-recursive-term UNION [ALL] recursive-term",
                    table.name.text
                );
                return Err(self.error(super::states::INVALID_RECURSION, message, at));
            }
            let rows = rows?;
            self.refuse_additions(table)?;
            return self.projected(rows);
        };
        self.open();
        let definitions = match &query.with {
            Some(with) => self.with_clause(with)?,
            None => Vec::new(),
        };
        entry.borrow_mut().state = CommonState::Forbidden("within its non-recursive term");
        let mut initial = match body {
            [] => self.set_operand(first(query))?,
            steps => {
                let mut left = self.set_operand(first(query))?;
                for step in steps {
                    let right = self.set_operand(&step.right)?;
                    left = self.combine(left, right, step.operator, step.is_all)?;
                }
                left
            }
        };
        let named = self.named_columns(table, initial.columns.clone())?;
        let known = |ty: Type| match ty.id {
            TypeId::UNKNOWN => Type::new(TypeId::TEXT),
            _ => self.without_fields(ty),
        };
        let mut columns: Vec<(Rc<str>, Type)> =
            named.iter().map(|(name, output)| (name.clone(), known(output.ty))).collect();
        let whole = if body.is_empty() { first(query) } else { &query.body };
        let added = self.added_columns(table, &columns, last, whole)?;
        if let Some(added) = &added {
            initial = self.with_added_columns(initial, added, true)?;
            let more = initial.columns[columns.len()..].iter();
            columns.extend(more.map(|output| (output.name.clone(), self.without_fields(output.ty))));
        }
        let iterate = self.new_iterate();
        let unexpanded = added.as_ref().map_or(0, Added::count);
        entry.borrow_mut().state =
            CommonState::Recursive { iterate, columns: columns.clone(), unexpanded, reads: 0, at };
        let step = match &added {
            None => self.set_operand(&last.right)?,
            Some(added) => match Self::with_columns_before(table, added, &last.right) {
                Some(term) => {
                    let rows = self.set_operand(&term)?;
                    self.with_added_columns(rows, added, false)?
                }
                None => {
                    self.set_operand(&last.right)?;
                    if matches!(entry.borrow().state, CommonState::Recursive { reads: 1.., .. }) {
                        let message = format!(
                            "with a SEARCH or CYCLE clause, the recursive reference to WITH query \"{}\" must be at the top level of its right-hand SELECT",
                            table.name.text
                        );
                        return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message));
                    }
                    return Err(self.not_recursive(table));
                }
            },
        };
        let reads = match &entry.borrow().state {
            CommonState::Recursive { reads, .. } => *reads,
            _ => unreachable!("it was set"),
        };
        if reads == 0 {
            self.refuse_additions(table)?;
            let rows = self.combine(initial, step, last.operator, last.is_all)?;
            self.level().locking.extend(query.locking.iter().cloned());
            let rows = self.with_clauses(query, rows)?;
            let node = self.with_definitions(definitions, rows.node);
            self.close();
            return self.projected(Rows { node, ..rows });
        }
        if !query.order_by.is_empty()
            || query.limit.is_some()
            || query.offset.is_some()
            || !query.locking.is_empty()
        {
            let (what, place) = if let Some(item) = query.order_by.first() {
                ("ORDER BY", item.value.span.start)
            } else if let Some(offset) = &query.offset {
                ("OFFSET", offset.span.start)
            } else if let Some(limit) = &query.limit {
                ("LIMIT", limit.count.as_ref().map_or(limit.span.start, |count| count.span.start))
            } else {
                ("FOR UPDATE/SHARE", query.locking[0].span.start)
            };
            let message = format!("{what} in a recursive query is not implemented");
            return Err(self.unsupported_as(&message, place));
        }
        if step.columns.len() != columns.len() {
            let message = "each UNION query must have the same number of columns";
            return Err(self.error(
                SqlState::SYNTAX_ERROR,
                message,
                step.columns.first().map_or(at, |column| column.at),
            ));
        }
        // The types of both terms together must be those of the first.
        for (place, ((_, ty), output)) in columns.iter().zip(&step.columns).enumerate() {
            let overall =
                crate::resolve::pick_common(self.registry, &[ty.id, output.ty.id]).map_err(|_| {
                    let message = format!(
                        "UNION types {} and {} cannot be matched",
                        type_name(ty.id),
                        type_name(output.ty.id)
                    );
                    self.error(SqlState::DATATYPE_MISMATCH, message, output.at)
                })?;
            let overall = common_modifier([*ty, self.without_fields(output.ty)].into_iter(), overall);
            if (overall.id, overall.modifier) != (ty.id, ty.modifier) {
                let message = format!(
                    "recursive query \"{}\" column {} has type {ty} in non-recursive term but type {overall} overall",
                    table.name.text,
                    place + 1,
                );
                let error = self.error(SqlState::DATATYPE_MISMATCH, message, initial.columns[place].at);
                return Err(error.with_hint("Cast the output of the non-recursive term to the correct type."));
            }
        }
        let types: Vec<Type> = columns.iter().map(|(_, ty)| *ty).collect();
        let initial_at: Vec<u32> = initial.columns.iter().map(|column| column.at).collect();
        let (initial_node, initial_columns) = self.typed(initial, &types, "UNION")?;
        let (step_node, step_columns) = self.typed(step, &types, "UNION")?;
        if !last.is_all {
            for (ty, at) in types.iter().zip(&initial_at) {
                self.check_equality(*ty, *at)?;
            }
        }
        let mut produced: Vec<Column> = Vec::with_capacity(types.len());
        let mut outputs = Vec::with_capacity(types.len());
        for ((name, ty), at) in columns.iter().zip(initial_at) {
            let column = self.new_column(ColumnInfo::new(*ty, true).named(&**name));
            produced.push(column);
            let value = firn_plan::Scalar::Column(column);
            outputs.push(Output { name: name.clone(), value, ty: *ty, at });
        }
        let node: NodeId = self.plan.add(Operator::Iterate(Iterate {
            id: iterate,
            columns: produced,
            distinct: !last.is_all,
            initial: initial_node,
            initial_columns,
            step: step_node,
            step_columns,
        }));
        let node = self.with_definitions(definitions, node);
        self.close();
        outputs.truncate(outputs.len() - added.as_ref().map_or(0, Added::hidden));
        Ok(Rows { node, columns: outputs })
    }

    /// SEARCH and CYCLE of a common table that does not read itself.
    pub(super) fn refuse_additions(&self, table: &CommonTable) -> Result<()> {
        match table.search.is_some() || table.cycle.is_some() {
            true => Err(self.not_recursive(table)),
            false => Ok(()),
        }
    }

    fn not_recursive(&self, table: &CommonTable) -> Error {
        self.error(SqlState::SYNTAX_ERROR, "WITH query is not recursive", table.name.span.start)
    }
}

/// The steps of a union before its last one, and the last one, if the query has that form.
fn terms(query: &Query) -> Option<(&[SetStep], &SetStep)> {
    let QueryBody::SetOperation(operation) = &query.body else { return None };
    let (last, before) = operation.steps.split_last()?;
    (last.operator == SetOperator::Union).then_some((before, last))
}

fn first(query: &Query) -> &QueryBody {
    let QueryBody::SetOperation(operation) = &query.body else { panic!("it has two terms") };
    &operation.first
}

/// Whether an identifier stands in a text.
fn mentions(text: &str, name: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
    let lower = text.to_lowercase();
    let wanted = name.to_lowercase().replace('"', "\"\"");
    lower.match_indices(&wanted).any(|(place, _)| {
        let before = lower[..place].chars().next_back();
        let after = lower[place + wanted.len()..].chars().next();
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
    })
}
