//! ORDER BY, GROUP BY and DISTINCT ON: names, positions and expressions of a select list.

use super::aggregate::SortSpec;
use super::target::BoundTarget;
use super::{Binder, Clause, Operand};
use firn_base::{Result, SqlState};
use firn_plan::operator::SortKey;
use firn_plan::{Column, NodeId, Scalar};
use firn_syntax::tree::{Expr, ExprKind, SortItem};

/// An order by columns of a select list.
#[derive(Clone, Debug, Default)]
pub(super) struct SortItems(pub Vec<OrderedTarget>);

/// A part of an order.
#[derive(Clone, Copy, Debug)]
pub(super) struct OrderedTarget {
    pub target: usize,
    pub descending: bool,
    pub nulls_first: bool,
}

impl Binder<'_> {
    /// ORDER BY. Expressions that are not in the select list are added to it.
    pub(super) fn sort_clause(
        &mut self,
        items: &[SortItem],
        targets: &mut Vec<BoundTarget>,
    ) -> Result<SortItems> {
        let mut order = SortItems::default();
        let count = targets.len();
        for item in items {
            let target = self.find_target(&item.value, targets, count, Clause::OrderBy)?;
            let operand = targets[target].operand.clone();
            let SortSpec { value, ty, descending, nulls_first } = self.sort_spec(operand, item)?;
            targets[target].operand.scalar = value;
            targets[target].operand.ty = ty;
            if order.0.iter().all(|other| other.target != target) {
                order.0.push(OrderedTarget { target, descending, nulls_first });
            }
        }
        Ok(order)
    }

    /// The column of a select list that an expression of a clause means; a new one if it means none. The first `count` are
    /// those that have names and positions.
    pub(super) fn find_target(
        &mut self,
        expression: &Expr,
        targets: &mut Vec<BoundTarget>,
        count: usize,
        clause: Clause,
    ) -> Result<usize> {
        let at = expression.span.start;
        match &expression.kind {
            ExprKind::Column(name) if name.qualifiers.is_empty() => {
                let text = &*name.name.text;
                // In GROUP BY a column of FROM counts first.
                let is_hidden = clause == Clause::GroupBy && self.has_own_column(text);
                if !is_hidden {
                    let mut named = (0..count).filter(|place| *targets[*place].name == *text);
                    if let Some(found) = named.next() {
                        let scalar = &targets[found].operand.scalar;
                        if named.any(|other| targets[other].operand.scalar != *scalar) {
                            let message = format!("{} \"{text}\" is ambiguous", clause.name());
                            return Err(self.error(SqlState::AMBIGUOUS_COLUMN, message, at));
                        }
                        return Ok(found);
                    }
                }
            }
            ExprKind::Integer(position) => {
                let place = usize::try_from(*position).ok().and_then(|position| position.checked_sub(1));
                return place.filter(|place| *place < count).ok_or_else(|| {
                    let message = format!("{} position {position} is not in select list", clause.name());
                    self.error(SqlState::INVALID_COLUMN_REFERENCE, message, at)
                });
            }
            ExprKind::Number(_) | ExprKind::String(_) | ExprKind::Boolean(_) | ExprKind::Null => {
                let message = format!("non-integer constant in {}", clause.name());
                return Err(self.error(SqlState::SYNTAX_ERROR, message, at));
            }
            ExprKind::Prefix(prefix)
                if matches!(prefix.operand.kind, ExprKind::Integer(_) | ExprKind::Number(_))
                    && prefix.operators.len() == 1 =>
            {
                if let ExprKind::Integer(position) = prefix.operand.kind {
                    let message = format!("{} position -{position} is not in select list", clause.name());
                    return Err(self.error(SqlState::INVALID_COLUMN_REFERENCE, message, at));
                }
            }
            _ => {}
        }
        let operand = self.within(clause, |binder| binder.expression(expression))?;
        let is_volatile = operand.scalar.is_volatile();
        let same =
            |target: &BoundTarget| !is_volatile && self.is_same(&target.operand.scalar, &operand.scalar);
        if let Some(found) = targets.iter().position(same) {
            return Ok(found);
        }
        targets.push(BoundTarget { name: "?column?".into(), operand, span: expression.span });
        Ok(targets.len() - 1)
    }

    fn has_own_column(&mut self, name: &str) -> bool {
        let level = self.level();
        level
            .items
            .iter()
            .any(|item| item.has_columns && item.columns.iter().any(|column| &*column.name == name))
    }

    /// The keys of an order, as columns over the operator.
    pub(super) fn keys_of(
        &mut self,
        node: &mut NodeId,
        items: &SortItems,
        targets: &[BoundTarget],
        outputs: &mut Vec<(Column, Scalar)>,
    ) -> Vec<SortKey> {
        let mut keys: Vec<SortKey> = Vec::with_capacity(items.0.len());
        for item in &items.0 {
            let Operand { scalar, ty, .. } = &targets[item.target].operand;
            let column = self.as_column(node, scalar, *ty, outputs);
            if keys.iter().all(|key| key.column != column) {
                keys.push(SortKey { column, descending: item.descending, nulls_first: item.nulls_first });
            }
        }
        keys
    }
}
