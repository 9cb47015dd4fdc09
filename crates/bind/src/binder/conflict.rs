//! ON CONFLICT: which unique indexes are meant, and what happens with the row that is there.

use super::{Binder, Clause, ItemColumn, Table};
use crate::catalog::{Key, Relation};
use firn_base::{Error, Result, SqlState};
use firn_plan::operator::{Assignment, ConflictArm, ConflictUpdate};
use firn_plan::{Column, ColumnInfo, Scalar};
use firn_syntax::tree::{ConflictTarget, ExprKind, Name, OnConflict};
use std::sync::Arc;

impl Binder<'_> {
    pub(super) fn conflict_arm(
        &mut self,
        conflict: &OnConflict,
        relation: &Arc<Relation>,
        alias: Option<&Name>,
    ) -> Result<ConflictArm> {
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
                for element in elements {
                    let ExprKind::Column(name) = &element.value.kind else {
                        return Err(self.unsupported("ON CONFLICT by an expression", element.span.start));
                    };
                    let Some((_, attribute)) = relation.column(&name.name.text) else {
                        let message = format!("column \"{}\" does not exist", name.name.text);
                        return Err(self.error(SqlState::UNDEFINED_COLUMN, message, name.span().start));
                    };
                    if !numbers.contains(&attribute.number) {
                        numbers.push(attribute.number);
                    }
                }
                let fits = |key: &&Key| {
                    let same = key.columns.len() == numbers.len()
                        && key.columns.iter().all(|number| numbers.contains(number));
                    same && (key.condition.is_none() || condition.is_some())
                };
                let found: Vec<Key> = relation.keys.iter().filter(fits).cloned().collect();
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
        let existing = self.local_table(relation, alias);
        let excluded = self.local_table(relation, Some("excluded"));
        let set = self.assignments(&update.assignments, relation, Clause::UpdateTargets)?;
        let conditions = match &update.condition {
            None => Vec::new(),
            Some(condition) => {
                match self.within(Clause::Where, |binder| binder.condition(condition, "WHERE"))? {
                    Scalar::And(list) => list,
                    other => vec![other],
                }
            }
        };
        let scalars = set.iter().map(|(_, scalar)| scalar).chain(&conditions);
        if scalars.into_iter().any(|scalar| self.has_pending(scalar)) {
            return Err(self.unsupported("a sub-query in ON CONFLICT", at));
        }
        let set = set.into_iter().map(|(attribute, value)| Assignment { attribute, value }).collect();
        Ok(ConflictArm { indexes, update: Some(ConflictUpdate { existing, excluded, set, conditions }) })
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
