//! Index joins: what keys are made of, and what is read of the rows that they find.

use super::{Compile, Needed, Part, PlannedLookup, with_uses};
use crate::expression::{Conditions, Layout};
use crate::stages::IndexJoinPlan;
use crate::template::Template;
use firn_base::Result;
use firn_base::sync::Arc;
use firn_plan::operator::{Join, JoinMethod};
use firn_plan::properties::scope_above;
use firn_plan::rewrite::first_rows::order_of;
use firn_plan::rewrite::join_methods::index_key;
use firn_plan::{Column, NodeId, Operator, Scalar};

impl Compile<'_> {
    pub(super) fn index_join(&mut self, node: NodeId, join: &Join, needed: &Needed) -> Result<Part> {
        let plan = self.plan;
        let Operator::Scan(scan) = &plan[join.right] else { panic!("the verifier wants a scan") };
        let all = with_uses(needed, &join.conditions);
        let mut part = self.node(join.left, &with_uses(&all, &scan.conditions))?;

        let goes_on = |column: &Column| join.kind.gives_right() && needed.contains(column);
        let key = |attribute: &i16| {
            let (_, key) =
                index_key(join, scan, *attribute, &plan.columns).expect("the verifier wants a key");
            self.scalars.scalar(key, &part.layout)
        };
        let keys = join.method.by_index().iter().map(key).collect::<Result<Vec<_>>>()?;
        let (planned, found) =
            self.planned_scan(join.right, scan, &with_uses(&right_only(needed, join), &join.conditions));
        let JoinMethod::Index(index) = &join.method else { panic!("it is an index join") };
        let first = index.first.as_ref().map(|first| {
            let order =
                order_of(scan, &first.order, &plan.columns).expect("the verifier wants columns of the scan");
            (order, first.count.clone())
        });
        self.lookups.push(PlannedLookup { scan: planned, attributes: index.attributes.clone(), first });

        // Conditions of the scan come first, since they remove rows before the join.
        let conditions: Vec<Scalar> = scan.conditions.iter().chain(&join.conditions).cloned().collect();
        let asked = with_uses(&Needed::new(), &conditions);
        let place = |layout: &Layout, column: &Column| layout.position(*column).expect("it is there");
        let used: Vec<Column> = part.layout.columns().filter(|column| asked.contains(column)).collect();
        let pairs: Layout = used
            .iter()
            .map(|column| (*column, part.layout.representation(*column)))
            .chain(found.columns().zip(found.representations()))
            .collect();
        let compiled = Conditions::new(self.scalars.scalars(&conditions, &pairs)?);

        let own: Vec<Column> = part.layout.columns().filter(|column| needed.contains(column)).collect();
        let on: Vec<Column> = found.columns().filter(goes_on).collect();
        let output: Layout = own
            .iter()
            .map(|column| (*column, part.layout.representation(*column)))
            .chain(on.iter().map(|column| (*column, found.representation(*column))))
            .collect();
        let stage = IndexJoinPlan {
            kind: join.kind,
            lookup: self.lookups.len() - 1,
            keys: Template::new(keys),
            conditions: Template::new(compiled),
            used: used.iter().map(|column| place(&part.layout, column)).collect(),
            columns: own.iter().map(|column| place(&part.layout, column)).collect(),
            right_columns: on
                .iter()
                .map(|column| (place(&found, column), found.representation(*column)))
                .collect(),
        };
        part.is_serial |= conditions.iter().any(Scalar::is_volatile);
        part.push_rowwise(Arc::new(stage));
        part.layout = output;
        let right = scope_above(plan, join.right, Vec::new());
        part.scope = scope_above(plan, node, vec![std::mem::take(&mut part.scope), right]);
        Ok(part)
    }
}

/// The columns of a join's right side that are used above it.
fn right_only(needed: &Needed, join: &Join) -> Needed {
    if join.kind.gives_right() { needed.clone() } else { Needed::new() }
}
