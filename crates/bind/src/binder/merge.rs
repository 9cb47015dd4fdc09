//! MERGE: a source joined with the table, and what is done with each row.

use super::change::is_identity;
use super::{Binder, Clause, ItemColumn, Rows};
use firn_base::{Error, Result, SqlState};
use firn_plan::operator::{Assignment, JoinKind, Merge, MergeAction, MergeArm};
use firn_plan::{Operator, Scalar};
use firn_syntax::tree;

impl Binder<'_> {
    pub(super) fn merge(&mut self, merge: &tree::Merge) -> Result<Rows> {
        // Before anything is looked up, as PostgreSQL does.
        let mut is_closed = [false; 2];
        for arm in &merge.arms {
            let is_closed = &mut is_closed[usize::from(arm.is_matched)];
            if std::mem::replace(is_closed, arm.condition.is_none()) {
                let message = "unreachable WHEN clause specified after unconditional WHEN clause";
                return Err(Error::new(SqlState::SYNTAX_ERROR, message));
            }
        }
        let (relation, target) = self.changed_table(&merge.table.name, "merge into")?;
        let at = merge.table.name.span().start;
        let alias = merge.alias.as_ref().map(|name| tree::Alias { name: name.clone(), columns: Vec::new() });
        let source = self
            .within(Clause::From, |binder| binder.joined_items(None, std::slice::from_ref(&merge.source)))?;
        let source = source.expect("there is a source");
        let (scan, item) = self.scan(relation.clone(), alias.as_ref(), at)?;
        let condition = self.within(Clause::On, |binder| binder.condition(&merge.condition, "MERGE ON"))?;
        let old: Vec<ItemColumn> = self.level().items[item].columns.to_vec();
        let row = self.row_id(item).expect("tables have row ids");
        let mut node = if self.has_pending(&condition) {
            let right = self.filtered(scan, condition);
            self.join(JoinKind::Left, true, source, right, Vec::new())
        } else {
            let conditions = match condition {
                Scalar::And(list) => list,
                other => vec![other],
            };
            self.join(JoinKind::Left, false, source, scan, conditions)
        };
        for column in &old {
            column.value.for_each_column(&mut |column| {
                self.padded.insert(column);
            });
        }
        self.padded.insert(row);
        let mut arms = Vec::with_capacity(merge.arms.len());
        for arm in &merge.arms {
            // Without a match there is no row of the table.
            let hidden = !arm.is_matched;
            self.level().items[item].has_name = !hidden;
            self.level().items[item].has_columns = !hidden;
            let conditions = match &arm.condition {
                None => Vec::new(),
                Some(condition) => {
                    match self.within(Clause::MergeWhen, |binder| binder.condition(condition, "WHEN"))? {
                        Scalar::And(list) => list,
                        other => vec![other],
                    }
                }
            };
            node = self.attach(node, &conditions);
            let action = match &arm.action {
                tree::MergeAction::Nothing => MergeAction::Nothing,
                tree::MergeAction::Delete => MergeAction::Delete,
                tree::MergeAction::Update(assignments) => {
                    let set = self.assignments(assignments, &relation, item, Clause::UpdateTargets)?;
                    let scalars: Vec<Scalar> = set.iter().map(|(_, scalar)| scalar.clone()).collect();
                    node = self.attach(node, &scalars);
                    MergeAction::Update(assigned(set))
                }
                tree::MergeAction::Insert { columns, overriding, values } => {
                    let places = self.target_columns(&relation, columns)?;
                    let mut set: Vec<(i16, Scalar)> = Vec::new();
                    let values = values.as_deref().unwrap_or_default();
                    if values.len() > places.len() {
                        let message = "INSERT has more expressions than target columns";
                        return Err(self.error(
                            SqlState::SYNTAX_ERROR,
                            message,
                            values[places.len()].span.start,
                        ));
                    }
                    if !columns.is_empty() && values.len() < places.len() {
                        let message = "INSERT has more target columns than expressions";
                        return Err(self.error(SqlState::SYNTAX_ERROR, message, places[values.len()].at));
                    }
                    for (value, target) in values.iter().zip(&places) {
                        let attribute = &relation.columns[target.place];
                        let scalar = if matches!(value.kind, tree::ExprKind::Default)
                            || *overriding == Some(tree::Overriding::User) && is_identity(attribute)
                        {
                            self.check_default(*target)?;
                            self.default_of(attribute)?
                        } else {
                            self.check_given(attribute, *overriding == Some(tree::Overriding::System))?;
                            let operand =
                                self.within(Clause::InsertTargets, |binder| binder.expression(value))?;
                            self.assigned_to(operand, attribute, *target)?.scalar
                        };
                        self.add_target(&mut set, attribute, *target, None, scalar, Clause::InsertTargets)?;
                    }
                    let scalars: Vec<Scalar> = set.iter().map(|(_, scalar)| scalar.clone()).collect();
                    node = self.attach(node, &scalars);
                    self.fill_row(&relation, &mut set)?;
                    MergeAction::Insert(assigned(set))
                }
            };
            arms.push(MergeArm { matched: arm.is_matched, conditions, action });
        }
        // RETURNING sees the source, then images of the target.
        self.level().items.remove(item);
        let alias = merge.alias.as_ref().map(|alias| &*alias.text);
        let mut images = self.image_table(&relation, alias, false, None, false);
        images.push(self.id_image());
        let node = self.plan.add(Operator::Merge(Merge { input: node, target, row, arms, images }));
        self.returning(node, &merge.returning)
    }
}

fn assigned(set: Vec<(i16, Scalar)>) -> Vec<Assignment> {
    set.into_iter().map(|(attribute, value)| Assignment { attribute, value }).collect()
}
