//! Changes of tables: each is the end of a pipeline, and the rows that it gives are the beginning of another.

use super::{Compile, Needed, Part, ProgramEffects, with_uses};
use crate::expression::{Conditions, Layout, representation_of};
use crate::inputs::ChangedPlan;
use crate::sinks::{
    ArmPlan, Assignments, Change, ChangeKind, ChangePlan, ConflictUpdatePlan, ImageOf, ImagePlan, InsertPlan,
    MergeActionPlan, MergeArmPlan, MergePlan, UpdatePlan,
};
use crate::template::Template;
use crate::write::column_id;
use firn_base::Result;
use firn_base::sync::Arc;
use firn_plan::operator::{
    Assignment, ConflictArm, ConflictUpdate, Image, Insert, JoinKind, Merge, MergeAction, ROW_ID, SourceId,
    Update, XMAX,
};
use firn_plan::{Column, NodeId, Operator, Plan, Scalar};

/// The tables that a plan changes, and those whose rows it locks.
pub(super) fn effects_of(plan: &Plan) -> ProgramEffects {
    let mut effects = ProgramEffects::default();
    for node in plan.post_order() {
        effects.targets.push(match &plan[node] {
            Operator::Insert(insert) => insert.target,
            Operator::Update(update) => update.target,
            Operator::Delete { target, .. } => *target,
            Operator::Merge(merge) => merge.target,
            Operator::Lock { targets, .. } => {
                effects.locked.extend(targets.iter().map(|target| target.source));
                continue;
            }
            _ => continue,
        });
    }
    for list in [&mut effects.targets, &mut effects.locked] {
        list.sort_unstable_by_key(|source| source.0);
        list.dedup();
    }
    effects
}

impl Compile<'_> {
    pub(super) fn insert(&mut self, insert: &Insert, needed: &Needed) -> Result<Part> {
        let values = insert.values.iter().map(|assignment| &assignment.value);
        let mut below = with_uses(&Needed::new(), values);
        for update in insert.conflicts.iter().filter_map(|arm| arm.update.as_ref()) {
            below.extend(given_to(update));
        }
        self.change(insert.input, insert.target, &insert.images, needed, &below, |compile, layout| {
            let values = Template::new(compile.assignments(&insert.values, layout)?);
            let arms = insert.conflicts.iter().map(|arm| compile.arm(arm, layout)).collect::<Result<_>>()?;
            Ok(ChangeKind::Insert(InsertPlan { values, arms }))
        })
    }

    pub(super) fn update(&mut self, update: &Update, needed: &Needed) -> Result<Part> {
        let mut below = with_uses(&Needed::new(), update.set.iter().map(|assignment| &assignment.value));
        below.insert(update.row);
        self.change(update.input, update.target, &update.images, needed, &below, |compile, layout| {
            let set = Template::new(compile.assignments(&update.set, layout)?);
            Ok(ChangeKind::Update(UpdatePlan { row: place(layout, update.row), set }))
        })
    }

    pub(super) fn delete(
        &mut self,
        input: NodeId,
        target: SourceId,
        row: Column,
        images: &[Image],
        needed: &Needed,
    ) -> Result<Part> {
        self.change(input, target, images, needed, &Needed::from([row]), |_, layout| {
            Ok(ChangeKind::Delete(place(layout, row)))
        })
    }

    pub(super) fn merge(&mut self, merge: &Merge, needed: &Needed) -> Result<Part> {
        let mut scalars: Vec<&Scalar> = Vec::new();
        for arm in &merge.arms {
            scalars.extend(&arm.conditions);
            if let MergeAction::Update(set) | MergeAction::Insert(set) = &arm.action {
                scalars.extend(set.iter().map(|assignment| &assignment.value));
            }
        }
        let mut below = with_uses(&Needed::new(), scalars);
        below.insert(merge.row);
        self.change(merge.input, merge.target, &merge.images, needed, &below, |compile, layout| {
            let mut arms = Vec::with_capacity(merge.arms.len());
            for arm in &merge.arms {
                let conditions = compile.scalars().scalars(&arm.conditions, layout)?;
                let action = match &arm.action {
                    MergeAction::Update(set) => {
                        MergeActionPlan::Update(Template::new(compile.assignments(set, layout)?))
                    }
                    MergeAction::Insert(set) => {
                        MergeActionPlan::Insert(Template::new(compile.assignments(set, layout)?))
                    }
                    MergeAction::Delete => MergeActionPlan::Delete,
                    MergeAction::Nothing => MergeActionPlan::Nothing,
                };
                let conditions = Template::new(Conditions::new(conditions));
                arms.push(MergeArmPlan { matched: arm.matched, conditions, action });
            }
            Ok(ChangeKind::Merge(MergePlan { row: place(layout, merge.row), arms }))
        })
    }

    /// A change that uses the columns `below` of its input; of its images, and of what it passes on, those in `needed` are kept.
    fn change(
        &mut self,
        input: NodeId,
        target: SourceId,
        images: &[Image],
        needed: &Needed,
        below: &Needed,
        kind: impl FnOnce(&Compile<'_>, &Layout) -> Result<ChangeKind>,
    ) -> Result<Part> {
        let is_first = self.effects.changes.is_empty();
        let first_scan = self.scans.len();
        let all: Needed = below.union(needed).copied().collect();
        let mut part = self.node(input, &all)?;
        let kind = kind(self, &part.layout)?;
        let is_insert = matches!(kind, ChangeKind::Insert(_));
        // The only change of a statement that reads its table nowhere meets none of its rows.
        let (changes, reads_target) = self.changes_and_reads(target);
        let collects = !(is_insert && changes == 1 && !reads_target);
        if is_first && collects {
            self.scans[first_scan..].iter_mut().for_each(|scan| scan.feeds_first_change = true);
        }
        let may_conflict =
            matches!(&kind, ChangeKind::Insert(insert) if insert.arms.iter().any(|arm| arm.update.is_some()));
        let rows_are_distinct = changes == 1
            && !may_conflict
            && !matches!(kind, ChangeKind::Merge(_))
            && (is_insert || self.gives_distinct_rows(input, target));
        let kept: Vec<&Image> = images.iter().filter(|image| needed.contains(&image.output)).collect();
        let image = |image: &&Image| ImagePlan {
            of: match image.attribute {
                XMAX => ImageOf::Holder,
                ROW_ID => ImageOf::Id,
                attribute => ImageOf::Column(column_id(attribute)),
            },
            old: image.old,
            representation: representation_of(self.plan.columns[image.output].ty),
        };
        let images: Vec<ImagePlan> = kept.iter().map(image).collect();
        let given = part.layout.columns().filter(|column| !is_insert && needed.contains(column));
        let passed_on: Vec<Column> = given.collect();
        let layout: Layout = kept
            .iter()
            .zip(&images)
            .map(|(image, plan)| (image.output, plan.representation))
            .chain(passed_on.iter().map(|column| (*column, part.layout.representation(*column))))
            .collect();
        part.is_serial |= !collects;
        let input = part.layout.representations().collect();
        let scope = std::mem::take(&mut part.scope);
        let places = passed_on.iter().map(|column| place(&part.layout, *column)).collect();
        let plan = Change { target, kind, images, passed_on: places, input, collects, rows_are_distinct };
        let slot = self.pipeline(part, ChangePlan(Arc::new(plan)));
        self.effects.changes.push(slot);
        if self.plan.is_change {
            // The last one stays.
            self.effects.own = Some(slot);
        }
        let mut changed = Part::new(ChangedPlan(slot), layout);
        // RETURNING is in the order of the changes.
        changed.is_serial = true;
        for image in &kept {
            changed.scope.set(image.output, self.plan.columns[image.output].nullable);
        }
        for column in passed_on {
            changed.scope.set(column, scope.nullable(column));
        }
        Ok(changed)
    }

    /// How many changes the statement makes, and whether it scans a table.
    fn changes_and_reads(&self, target: SourceId) -> (usize, bool) {
        let (mut changes, mut reads) = (0, false);
        for node in self.plan.post_order() {
            match &self.plan[node] {
                Operator::Insert(_) | Operator::Update(_) | Operator::Delete { .. } | Operator::Merge(_) => {
                    changes += 1
                }
                Operator::Scan(scan) => reads |= scan.source == target,
                _ => {}
            }
        }
        (changes, reads)
    }

    /// Whether a sub-plan gives each row of a table at most once, as far as is easily known.
    fn gives_distinct_rows(&self, mut node: NodeId, target: SourceId) -> bool {
        loop {
            node = match &self.plan[node] {
                Operator::Scan(scan) => return scan.source == target,
                Operator::Filter { input, .. }
                | Operator::Map { input, .. }
                | Operator::Sort { input, .. }
                | Operator::Lock { input, .. } => *input,
                Operator::Limit(limit) => limit.input,
                Operator::Join(join)
                    if matches!(
                        join.kind,
                        JoinKind::Semi | JoinKind::Anti | JoinKind::Mark | JoinKind::Single
                    ) =>
                {
                    join.left
                }
                _ => return false,
            }
        }
    }

    fn assignments(&self, assignments: &[Assignment], layout: &Layout) -> Result<Assignments> {
        let value = |assignment: &Assignment| {
            Ok((column_id(assignment.attribute), self.scalars.general(&assignment.value, layout)?))
        };
        assignments.iter().map(value).collect()
    }

    fn scalars(&self) -> &crate::expression::Compiler<'_> {
        &self.scalars
    }

    fn arm(&self, arm: &ConflictArm, input: &Layout) -> Result<ArmPlan> {
        let Some(update) = &arm.update else {
            return Ok(ArmPlan { indexes: arm.indexes.clone(), update: None });
        };
        let used = with_uses(&Needed::new(), scalars_of(update));
        let columns = |list: &[(Column, i16)]| -> Vec<(Column, i16)> {
            list.iter().filter(|(column, _)| used.contains(column)).copied().collect()
        };
        let (existing, excluded) = (columns(&update.existing), columns(&update.excluded));
        let given: Vec<Column> = given_to(update).into_iter().collect();
        let layout: Layout = existing
            .iter()
            .chain(&excluded)
            .map(|(column, _)| (*column, representation_of(self.plan.columns[*column].ty)))
            .chain(given.iter().map(|column| (*column, input.representation(*column))))
            .collect();
        let set = self.assignments(&update.set, &layout)?;
        let conditions = Conditions::new(self.scalars.scalars(&update.conditions, &layout)?);
        let ids =
            |list: Vec<(Column, i16)>| list.into_iter().map(|(_, attribute)| column_id(attribute)).collect();
        Ok(ArmPlan {
            indexes: arm.indexes.clone(),
            update: Some(ConflictUpdatePlan {
                existing: ids(existing),
                excluded: ids(excluded),
                given: given.into_iter().map(|column| place(input, column)).collect(),
                update: Template::new((set, conditions)),
            }),
        })
    }
}

fn scalars_of(update: &ConflictUpdate) -> impl Iterator<Item = &Scalar> {
    update.set.iter().map(|assignment| &assignment.value).chain(&update.conditions)
}

/// The columns of the input that an arm uses.
fn given_to(update: &ConflictUpdate) -> Needed {
    let mut used = with_uses(&Needed::new(), scalars_of(update));
    for (column, _) in update.existing.iter().chain(&update.excluded) {
        used.remove(column);
    }
    used
}

fn place(layout: &Layout, column: Column) -> usize {
    layout.position(column).expect("the input gives it")
}
