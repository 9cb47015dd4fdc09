//! ON CONFLICT: which unique indexes are meant, and what happens with the row that is there.

use super::attach::Pending;
use super::{Binder, Clause, ItemColumn, Operand, Table};
use crate::catalog::{Attribute, Generated, Key, Relation};
use firn_base::{Error, Result, SqlState, Type, TypeId};
use firn_plan::RegistryEvaluator;
use firn_plan::operator::{Assignment, ConflictArm, ConflictUpdate, JoinKind, ROW_ID, Scan, SourceId};
use firn_plan::rewrite::computed::{all_implied, forget_casts};
use firn_plan::rewrite::fold::fold_alone;
use firn_plan::{Column, ColumnInfo, NodeId, Operator, Scalar};
use firn_syntax::tree::{self, ConflictTarget, Expr, ExprKind, Name, OnConflict};
use firn_vector::context::detached;
use std::sync::Arc;

/// Columns, and which attribute each is.
type Attributes<'a> = &'a [(Column, i16)];

/// The row to insert.
pub(super) struct ConflictingRow<'a> {
    /// The table.
    pub relation: &'a Arc<Relation>,
    /// Its rows.
    pub source: SourceId,
    /// The input of the INSERT.
    pub node: &'a mut NodeId,
    /// Each attribute and its value.
    pub values: &'a mut [(i16, Scalar)],
}

impl Binder<'_> {
    pub(super) fn conflict_arm(
        &mut self,
        conflict: &OnConflict,
        row: ConflictingRow<'_>,
        alias: Option<&Name>,
    ) -> Result<ConflictArm> {
        let relation = row.relation;
        let at = conflict.span.start;
        let keys: Vec<Key> = match &conflict.target {
            None if conflict.update.is_some() => {
                let message = "ON CONFLICT DO UPDATE requires inference specification or constraint name";
                let error = self.error(SqlState::SYNTAX_ERROR, message, at);
                return Err(error.with_hint("For example, ON CONFLICT (column_name)."));
            }
            None => Vec::new(),
            Some(ConflictTarget::Constraint(name)) => match self.catalog.constraint(relation, &name.text) {
                Some(key) => vec![key],
                None => {
                    let message = format!(
                        "constraint \"{}\" for table \"{}\" does not exist",
                        name.text, relation.name
                    );
                    return Err(Error::new(SqlState::UNDEFINED_OBJECT, message));
                }
            },
            Some(ConflictTarget::Inference { elements, condition, .. }) => {
                let mut numbers: Vec<i16> = Vec::with_capacity(elements.len());
                let mut row = Row::of(self, relation);
                let mut expressions: Vec<Scalar> = Vec::new();
                for element in elements {
                    let ExprKind::Column(name) = &element.value.kind else {
                        expressions.push(row.bind(self, &element.value, Clause::IndexExpression)?);
                        continue;
                    };
                    let Some((_, attribute)) = relation.column(&name.name.text) else {
                        let message = format!("column \"{}\" does not exist", name.name.text);
                        return Err(self.error(SqlState::UNDEFINED_COLUMN, message, name.span().start));
                    };
                    if !numbers.contains(&attribute.number) {
                        numbers.push(attribute.number);
                    }
                }
                let given = match condition {
                    Some(condition) => Some(row.bind(self, condition, Clause::IndexPredicate)?),
                    None => None,
                };
                let mut found: Vec<Key> = Vec::new();
                for key in &relation.keys {
                    let same_columns = key.columns.iter().all(|number| numbers.contains(number))
                        && numbers.iter().all(|number| key.columns.contains(number));
                    if same_columns && row.fits(self, key, &expressions, given.as_ref())? {
                        found.push(key.clone());
                    }
                }
                if found.is_empty() {
                    let message =
                        "there is no unique or exclusion constraint matching the ON CONFLICT specification";
                    return Err(Error::new(SqlState::INVALID_COLUMN_REFERENCE, message));
                }
                found
            }
        };
        let indexes = keys.iter().map(|key| key.index).collect();
        let Some(update) = &conflict.update else { return Ok(ConflictArm { indexes, update: None }) };

        self.level().items.clear();
        let alias = alias.map(|alias| &*alias.text);
        let mut existing = self.local_table(relation, alias);
        let mut excluded = self.local_table(relation, Some("excluded"));
        let mut set = self.assignments(&update.assignments, relation, 0, Clause::UpdateTargets)?;
        let mut conditions = match &update.condition {
            None => Vec::new(),
            Some(condition) => {
                match self.within(Clause::Where, |binder| binder.condition(condition, "WHERE"))? {
                    Scalar::And(list) => list,
                    other => vec![other],
                }
            }
        };
        let scalars: Vec<Scalar> = set.iter().map(|(_, scalar)| scalar).chain(&conditions).cloned().collect();
        if scalars.iter().any(|scalar| self.has_pending(scalar)) {
            self.join_existing(row, &keys, (&existing, &excluded), (&set, &conditions), at)?;
            // In the arm these are the columns of the rows as they are when it is applied.
            let mut renamed: Vec<(Column, Column)> = Vec::new();
            for (column, _) in existing.iter_mut().chain(&mut excluded) {
                let info = self.plan.columns[*column].clone();
                let own = self.new_column(info);
                renamed.push((std::mem::replace(column, own), own));
            }
            for scalar in set.iter_mut().map(|(_, scalar)| scalar).chain(&mut conditions) {
                let own =
                    |column| renamed.iter().find(|(of, _)| *of == column).map_or(column, |(_, own)| *own);
                scalar.rename(&mut { own });
            }
        }
        let set = set.into_iter().map(|(attribute, value)| Assignment { attribute, value }).collect();
        Ok(ConflictArm { indexes, update: Some(ConflictUpdate { existing, excluded, set, conditions }) })
    }

    /// Joins the rows to insert with those that have their keys, and these pairs with the sub-queries of an arm. A row that
    /// comes to have a key only after the snapshot makes the statement start again, so the pairs are those that the arm meets.
    fn join_existing(
        &mut self,
        row: ConflictingRow<'_>,
        keys: &[Key],
        (existing, excluded): (Attributes<'_>, Attributes<'_>),
        (set, conditions): (&[(i16, Scalar)], &[Scalar]),
        at: u32,
    ) -> Result<()> {
        let relation = row.relation;
        let mut outputs = Vec::with_capacity(excluded.len());
        let mut generated = Vec::new();
        for ((column, number), attribute) in excluded.iter().zip(&relation.columns) {
            self.plan.columns[*column].nullable = true;
            if attribute.generated == Generated::Stored {
                // The writer computes them later, of the same values.
                let text = attribute.default.as_deref().expect("a generated column has an expression");
                let value = self.over_row(relation, excluded, text, Clause::Generated)?;
                let mut value = self.assigned(value, attribute)?.scalar;
                self.inline(&mut value);
                generated.push((*column, value));
                continue;
            }
            let value = row.values.iter_mut().find(|(other, _)| other == number);
            let (_, value) = value.expect("a row has all columns");
            outputs.push((*column, std::mem::replace(value, Scalar::Column(*column))));
        }
        let left = self.map(*row.node, outputs);
        let left = self.map(left, generated);
        let name = Some(relation.name.clone());
        // The id says whether there is a row.
        let info = ColumnInfo::new(Type::new(TypeId::TID), false).named("ctid");
        let id = self.new_column(info);
        let mut columns = existing.to_vec();
        columns.push((id, ROW_ID));
        let scan = Scan { source: row.source, name, columns, conditions: Vec::new() };
        let right = self.plan.add(Operator::Scan(scan));
        let same = self.same_key(relation, keys, (existing, excluded), at)?;
        self.padded.extend(existing.iter().map(|(column, _)| *column));
        self.padded.insert(id);
        self.uses_may_be_null = true;
        *row.node = self.join(JoinKind::Left, false, left, right, same);
        // A sub-query is evaluated only for the pairs that it is asked for.
        let mut guards = vec![Scalar::IsNull(Box::new(Scalar::Column(id)), true)];
        for condition in conditions {
            self.guard_queries(condition, &guards);
            *row.node = self.attach(*row.node, [condition]);
        }
        guards.extend_from_slice(conditions);
        for (_, value) in set {
            self.guard_queries(value, &guards);
            *row.node = self.attach(*row.node, [value]);
        }
        Ok(())
    }

    /// When two rows have the same key by one of several unique indexes, which are over the same columns and expressions. Those that
    /// are partial have only the rows of their conditions.
    fn same_key(
        &mut self,
        relation: &Arc<Relation>,
        keys: &[Key],
        (existing, excluded): (Attributes<'_>, Attributes<'_>),
        at: u32,
    ) -> Result<Vec<Scalar>> {
        let key = &keys[0];
        let equal_nulls = keys.iter().any(|key| key.nulls_not_distinct);
        let mut same = Vec::with_capacity(key.columns.len() + key.expressions.len());
        for number in &key.columns {
            let of = |columns: &[(Column, i16)]| {
                let (column, _) =
                    columns.iter().find(|(_, attribute)| attribute == number).expect("it is a column");
                *column
            };
            let (old, new) = (of(existing), of(excluded));
            let ty = self.plan.columns[old].ty;
            let operand = |column| Operand { scalar: Scalar::Column(column), ty, at };
            same.push(self.same_part(operand(new), operand(old), equal_nulls, at)?);
        }
        for text in &key.expressions {
            let new = self.over_row(relation, excluded, text, Clause::IndexExpression)?;
            let old = self.over_row(relation, existing, text, Clause::IndexExpression)?;
            let mut compared = self.same_part(new, old, equal_nulls, at)?;
            self.inline(&mut compared);
            same.push(compared);
        }
        let conditions: Option<Vec<&str>> = keys.iter().map(|key| key.condition.as_deref()).collect();
        let Some(conditions) = conditions else { return Ok(same) };
        let mut any = Vec::with_capacity(conditions.len());
        for text in conditions {
            let mut both = Vec::with_capacity(2);
            for row in [excluded, existing] {
                let mut scalar = self.over_row(relation, row, text, Clause::IndexPredicate)?.scalar;
                self.inline(&mut scalar);
                both.push(scalar);
            }
            any.push(Scalar::And(both));
        }
        match any.len() {
            1 => same.extend(any),
            _ => same.push(Scalar::Or(any)),
        }
        Ok(same)
    }

    /// Whether a part of two keys is the same.
    fn same_part(&mut self, new: Operand, old: Operand, equal_nulls: bool, at: u32) -> Result<Scalar> {
        match equal_nulls {
            true => self.distinct(new, old, true, at),
            false => self.comparison(&tree::Operator::Equal, new, old, at),
        }
    }

    /// An expression that the catalog keeps, over the columns of a row.
    fn over_row(
        &mut self,
        relation: &Arc<Relation>,
        row: Attributes<'_>,
        text: &str,
        clause: Clause,
    ) -> Result<Operand> {
        let expression = firn_syntax::parse_expression(text, firn_syntax::Options::default())?;
        let item = |((column, _), attribute): (&(Column, i16), &Attribute)| ItemColumn {
            name: (&*attribute.name).into(),
            value: Scalar::Column(*column),
            ty: attribute.ty,
        };
        let columns = row.iter().zip(&relation.columns).map(item).collect();
        let operand = self.kept(|binder| binder.over_columns(&expression, relation, columns, clause));
        // They are still columns of the query at hand.
        let id = self.level().id;
        self.owners.extend(row.iter().map(|(column, _)| (*column, id)));
        operand
    }

    /// Has the sub-queries of a scalar evaluated only where conditions hold.
    fn guard_queries(&mut self, scalar: &Scalar, guards: &[Scalar]) {
        for column in self.pending_of(scalar) {
            let column = self.aliases_of_pending.get(&column).copied().unwrap_or(column);
            if let Some(Pending::Query(query)) = self.pending.get_mut(&column) {
                let all = guards.iter().cloned().chain(query.guard.take());
                query.guard = Some(Scalar::And(all.collect()));
            }
        }
    }

    /// An expression over columns that no operator produces.
    fn over_columns(
        &mut self,
        expression: &Expr,
        relation: &Arc<Relation>,
        columns: Vec<ItemColumn>,
        clause: Clause,
    ) -> Result<Operand> {
        let levels = std::mem::take(&mut self.levels);
        let guards = std::mem::take(&mut self.guards);
        self.open();
        self.level().clause = clause;
        self.add_item(Table::of_relation(relation.clone(), None, columns, None));
        let value = self.expression(expression);
        let value = value.and_then(|value| match clause {
            Clause::IndexExpression | Clause::Generated => Ok(value),
            _ => self.boolean(value, "WHERE"),
        });
        (self.levels, self.guards) = (levels, guards);
        value
    }

    /// The columns of a row that is seen in one arm alone.
    fn local_table(&mut self, relation: &Arc<Relation>, alias: Option<&str>) -> Vec<(Column, i16)> {
        let mut produced = Vec::with_capacity(relation.columns.len());
        let mut columns = Vec::with_capacity(relation.columns.len());
        for attribute in &relation.columns {
            let info = ColumnInfo::new(attribute.ty, !attribute.not_null).named(attribute.name.clone());
            let column = self.new_column(info);
            produced.push((column, attribute.number));
            let name = (&*attribute.name).into();
            columns.push(ItemColumn { name, value: Scalar::Column(column), ty: attribute.ty });
        }
        self.add_item(Table::of_relation(relation.clone(), alias, columns, None));
        produced
    }
}

/// A row of a relation, over which the expressions of its keys and those of a statement are bound alike.
struct Row<'r> {
    relation: &'r Arc<Relation>,
    columns: Vec<ItemColumn>,
}

impl<'r> Row<'r> {
    fn of(binder: &mut Binder<'_>, relation: &'r Arc<Relation>) -> Row<'r> {
        let columns = binder.columns_of_row(relation, &mut Vec::new());
        Row { relation, columns }
    }

    /// An expression, with constants evaluated.
    fn bind(&mut self, binder: &mut Binder<'_>, expression: &Expr, clause: Clause) -> Result<Scalar> {
        let Operand { mut scalar, .. } =
            binder.over_columns(expression, self.relation, self.columns.clone(), clause)?;
        binder.inline(&mut scalar);
        let context = detached();
        forget_casts(&mut scalar);
        fold_alone(&mut scalar, &RegistryEvaluator::new(binder.catalog.registry(), &context));
        Ok(scalar)
    }

    /// As [`Row::bind`], of a text that the catalog keeps.
    fn bind_kept(&mut self, binder: &mut Binder<'_>, text: &str, clause: Clause) -> Result<Scalar> {
        let expression = firn_syntax::parse_expression(text, firn_syntax::Options::default())?;
        binder.kept(|binder| self.bind(binder, &expression, clause))
    }

    /// Whether a key is over just these expressions, and its condition is TRUE where that of the statement is.
    fn fits(
        &mut self,
        binder: &mut Binder<'_>,
        key: &Key,
        expressions: &[Scalar],
        given: Option<&Scalar>,
    ) -> Result<bool> {
        let own: Vec<Scalar> = key
            .expressions
            .iter()
            .map(|text| self.bind_kept(binder, text, Clause::IndexExpression))
            .collect::<Result<_>>()?;
        if !own.iter().all(|one| expressions.contains(one))
            || !expressions.iter().all(|one| own.contains(one))
        {
            return Ok(false);
        }
        let Some(condition) = &key.condition else { return Ok(true) };
        let Some(given) = given else { return Ok(false) };
        let wanted = self.bind_kept(binder, condition, Clause::IndexPredicate)?;
        let context = detached();
        let evaluator = RegistryEvaluator::new(binder.catalog.registry(), &context);
        Ok(all_implied(std::slice::from_ref(given), std::slice::from_ref(&wanted), &evaluator))
    }
}
