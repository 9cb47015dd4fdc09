//! Sub-plans that are read more than once, and recursion.

use super::{Compile, DefinedShared, Needed, Part};
use crate::expression::Layout;
use crate::inputs::{IteratePlan, RoundPlan, SharedPlan, SharedReadPlan};
use crate::keys::{KeyColumn, KeyLayout};
use crate::pipeline::SlotId;
use crate::source;
use firn_base::Result;
use firn_base::sync::Arc;
use firn_plan::operator::{Iterate, IterateId, SharedId};
use firn_plan::{Column, NodeId};
use std::collections::BTreeSet;

impl Compile<'_> {
    pub(super) fn share(
        &mut self,
        id: SharedId,
        definition: NodeId,
        body: NodeId,
        needed: &Needed,
    ) -> Result<Part> {
        let kept = self.shared_columns.get(&id).cloned().unwrap_or_default();
        let part = self.node(definition, &kept)?;
        let columns: Vec<Column> = kept.into_iter().collect();
        let place = |column: &Column| part.layout.position(*column).expect("the definition gives it");
        let (depends, slot) = (part.depends.clone(), self.slot(part.depends.clone()));
        let plan = Arc::new(SharedPlan {
            slot,
            columns: columns.iter().map(place).collect(),
            representations: columns.iter().map(|column| part.layout.representation(*column)).collect(),
            fragment: self.fragment(part),
        });
        self.shared.insert(id, DefinedShared { plan, columns, depends });
        self.node(body, needed)
    }

    pub(super) fn shared_read(
        &mut self,
        node: NodeId,
        id: SharedId,
        columns: &[(Column, Column)],
        needed: &Needed,
    ) -> Part {
        let shared = self.shared.get(&id).expect("the verifier has found the definition").clone();
        let read: Vec<&(Column, Column)> =
            columns.iter().filter(|(column, _)| needed.contains(column)).collect();
        let place = |of: Column| shared.columns.iter().position(|column| *column == of).expect("it is kept");
        let layout: Layout = read
            .iter()
            .map(|(column, _)| (*column, source::representation(&self.plan.columns, *column)))
            .collect();
        let plan = SharedReadPlan {
            columns: read.iter().map(|(_, of)| place(*of)).collect(),
            representations: layout.representations().collect(),
            shared: shared.plan,
        };
        let mut part = Part::new(plan, layout);
        (part.is_serial, part.depends) = (true, shared.depends);
        self.leaf(node, part)
    }

    pub(super) fn iterate(&mut self, iterate: &Iterate) -> Result<Part> {
        let layout: Layout = iterate
            .columns
            .iter()
            .map(|column| (*column, source::representation(&self.plan.columns, *column)))
            .collect();
        let representations: Vec<_> = layout.representations().collect();
        let initial = self.node(iterate.initial, &iterate.initial_columns.iter().copied().collect())?;
        let round = self.slot(BTreeSet::from([iterate.id]));
        let first = self.pipelines.len();
        self.iterates.insert(iterate.id, (round, representations.clone()));
        let step = self.node(iterate.step, &iterate.step_columns.iter().copied().collect())?;
        let emptied = (first..self.pipelines.len())
            .filter(|slot| self.depends[*slot].contains(&iterate.id))
            .map(SlotId)
            .collect();
        let mut depends: BTreeSet<IterateId> = initial.depends.union(&step.depends).copied().collect();
        depends.remove(&iterate.id);
        let places = |part: &Part, columns: &[Column]| -> Vec<usize> {
            let place = |column: &Column| part.layout.position(*column).expect("the input gives it");
            columns.iter().map(place).collect()
        };
        let distinct = iterate.distinct.then(|| {
            KeyLayout::for_equality(representations.iter().map(|it| KeyColumn::equal(*it, true)).collect())
        });
        let plan = IteratePlan {
            initial_columns: places(&initial, &iterate.initial_columns),
            initial: self.fragment(initial),
            step_columns: places(&step, &iterate.step_columns),
            step: self.fragment(step),
            representations,
            distinct,
            round,
            emptied,
        };
        let mut part = Part::new(Arc::new(plan), layout);
        (part.is_serial, part.depends) = (true, depends);
        for column in &iterate.columns {
            part.scope.set(*column, self.plan.columns[*column].nullable);
        }
        Ok(part)
    }

    pub(super) fn iterate_read(&mut self, node: NodeId, id: IterateId, columns: &[Column]) -> Part {
        let (round, representations) = self.iterates.get(&id).expect("the step is within it").clone();
        let layout: Layout = columns.iter().copied().zip(representations).collect();
        let mut part = Part::new(RoundPlan(round), layout);
        (part.is_serial, part.depends) = (true, BTreeSet::from([id]));
        self.leaf(node, part)
    }
}
