//! Grouping and windows.

use super::{Compile, Needed, Part, with_uses};
use crate::expression::{Conditions, Layout, representation_of};
use crate::inputs::BufferedPlan;
use crate::keys::{KeyColumn, KeyLayout};
use crate::sinks::{
    AggregatePlan, BoundPlan, FramePlan, GroupPlan, OrderPlan, SetPlan, WindowCallPlan, WindowFunctionPlan,
    WindowPlan, has_distances,
};
use crate::template::Template;
use firn_base::sync::Arc;
use firn_base::{Error, Representation, Result, SqlState, Type};
use firn_plan::operator::{Aggregate, Bound, Frame, FrameUnit, Group, SortKey, Window, WindowCall};
use firn_plan::properties::scope_above;
use firn_plan::{Column, NodeId, Scalar};
use firn_vector::FunctionId;
use firn_vector::kernel::Signature;
use firn_vector::registry::{Body, Function};

impl Compile<'_> {
    pub(super) fn group(&mut self, node: NodeId, group: &Group) -> Result<Part> {
        let mut needed: Needed = group.keys.iter().copied().collect();
        for aggregate in &group.aggregates {
            needed = with_uses(&needed, aggregate.arguments.iter().chain(&aggregate.filter));
            needed.extend(aggregate.order.iter().map(|key| key.column));
        }
        let mut part = self.node(group.input, &needed)?;
        let representations: Vec<Representation> =
            group.keys.iter().map(|key| part.layout.representation(*key)).collect();
        let all: Vec<u32> = (0..group.keys.len() as u32).collect();
        let sets = match &group.sets {
            Some(sets) => &sets.sets[..],
            None => std::slice::from_ref(&all),
        };
        let set = |set: &Vec<u32>| {
            // A key may be named twice.
            let mut keys: Vec<usize> = set.iter().map(|key| *key as usize).collect();
            keys.sort_unstable();
            keys.dedup();
            let column =
                |key: &usize| KeyColumn::equal(representations[*key], part.scope.nullable(group.keys[*key]));
            let is_determined = |key: &usize| group.determined.contains(&group.keys[*key]);
            let (determined, mut keys): (Vec<usize>, Vec<usize>) = keys.into_iter().partition(is_determined);
            let layout = KeyLayout::for_equality(keys.iter().map(column).collect());
            keys.extend(determined);
            SetPlan { keys, layout }
        };
        let sets: Vec<SetPlan> = sets.iter().map(set).collect();
        let mut aggregates = Vec::with_capacity(group.aggregates.len());
        for aggregate in &group.aggregates {
            let compiled = self.aggregate(aggregate, &part)?;
            let scalars = || aggregate.arguments.iter().chain(&aggregate.filter);
            part.is_serial |= compiled.distinct.is_some()
                || compiled.order.is_some()
                || aggregate.function.is_volatile()
                || scalars().any(Scalar::is_volatile);
            aggregates.push(compiled);
        }
        let mut layout = Layout::new();
        let mut own: Vec<(Column, Representation)> = Vec::new();
        let keys = group.sets.as_ref().map_or(&group.keys, |sets| &sets.columns);
        own.extend(keys.iter().copied().zip(representations.iter().copied()));
        let number = group.sets.as_ref().and_then(|sets| sets.number);
        own.extend(number.map(|column| (column, Representation::Int32)));
        let results = group.aggregates.iter().zip(&aggregates);
        own.extend(results.map(|(aggregate, plan)| (aggregate.output, plan.signature.representation)));
        // The table has a column for each; a key that is named twice is read once.
        own.iter().for_each(|(column, representation)| layout.push(*column, *representation));
        let place = |key: &Column| part.layout.position(*key).expect("the input has the keys");
        let plan = GroupPlan {
            keys: group.keys.iter().map(place).collect(),
            representations,
            sets,
            with_number: number.is_some(),
            input: part.layout.representations().collect(),
            can_spill: !group.aggregates.iter().any(|aggregate| {
                aggregate.arguments.iter().chain(&aggregate.filter).any(Scalar::is_volatile)
            }),
            aggregates: Template::new(aggregates),
        };
        let scope = scope_above(self.plan, node, vec![part.scope.clone()]);
        let depends = part.depends.clone();
        let slot = self.pipeline(part, plan);
        let mut groups = Part::new(BufferedPlan(slot), layout);
        (groups.scope, groups.depends) = (scope, depends);
        Ok(groups)
    }

    fn function(&self, oid: u32) -> Result<&Arc<Function>> {
        self.scalars.registry.function(FunctionId(oid)).ok_or_else(|| {
            let message = format!("function with OID {oid} does not exist");
            Error::new(SqlState::UNDEFINED_FUNCTION, message)
        })
    }

    fn aggregate(&self, aggregate: &Aggregate, part: &Part) -> Result<AggregatePlan> {
        let function = self.function(aggregate.function.oid)?;
        let Body::Aggregate(body) = &function.body else { panic!("{function:?} is an aggregate") };
        let arguments = self.scalars.scalars(&aggregate.arguments, &part.layout)?;
        let representations: Vec<Representation> =
            arguments.iter().map(|argument| argument.representation()).collect();
        let signature =
            self.signature(&aggregate.arguments, &representations, self.plan.columns[aggregate.output].ty);
        assert!(
            body.kernel.accepts(&representations, signature.representation),
            "{function:?} takes no {representations:?}"
        );
        let distinct = aggregate.distinct.then(|| {
            let of_arguments = representations.iter().map(|it| KeyColumn::equal(*it, true));
            KeyLayout::for_equality(std::iter::once(GroupPlan::group_key()).chain(of_arguments).collect())
        });
        let order = (!aggregate.order.is_empty()).then(|| {
            let (columns, keys) = self.order(&aggregate.order, &part.layout, &part.scope);
            let keys = std::iter::once(GroupPlan::group_key()).chain(keys).collect();
            let all: Vec<Representation> = part.layout.representations().collect();
            let representations = columns.iter().map(|place| all[*place]).collect();
            OrderPlan { columns, representations, layout: KeyLayout::new(keys) }
        });
        Ok(AggregatePlan {
            kernel: body.kernel.clone(),
            signature: Arc::new(signature),
            arguments,
            filter: self.chosen(&aggregate.filter, &part.layout)?,
            distinct,
            order,
        })
    }

    fn chosen(&self, filter: &Option<Scalar>, layout: &Layout) -> Result<Conditions> {
        Ok(Conditions::new(self.scalars.scalars(filter.as_slice(), layout)?))
    }

    fn signature(&self, arguments: &[Scalar], representations: &[Representation], result: Type) -> Signature {
        Signature {
            arguments: arguments.iter().map(|argument| argument.ty(&self.plan.columns)).collect(),
            representations: representations.into(),
            result,
            representation: representation_of(result),
            has_variadic_array: false,
        }
    }

    pub(super) fn window(&mut self, node: NodeId, window: &Window, needed: &Needed) -> Result<Part> {
        let mut below = needed.clone();
        for call in &window.calls {
            below = with_uses(&below, call.arguments.iter().chain(&call.filter));
        }
        below.extend(window.partition.iter().copied().chain(window.order.iter().map(|key| key.column)));
        let mut part = self.node(window.input, &below)?;
        let partition = window.partition.iter().map(|column| SortKey::ascending(*column));
        let keys: Vec<SortKey> = partition.chain(window.order.iter().copied()).collect();
        let (columns, order) = self.order(&keys, &part.layout, &part.scope);
        let mut calls = Vec::with_capacity(window.calls.len());
        let mut is_volatile = false;
        for call in &window.calls {
            calls.push(self.window_call(call, &part, &order[window.partition.len()..])?);
            is_volatile |= call.function.is_volatile()
                || call.arguments.iter().chain(&call.filter).any(Scalar::is_volatile);
        }
        part.is_serial |= is_volatile;
        let none = Layout::new();
        let first = window.first.as_ref().map(|first| self.scalars.general(first, &none)).transpose()?;
        let mut layout = part.layout.clone();
        let representations = layout.representations().collect();
        for (call, compiled) in window.calls.iter().zip(&calls) {
            layout.push(call.output, compiled.signature.representation);
        }
        let plan = WindowPlan {
            representations,
            columns,
            partition: window.partition.len(),
            layout: order,
            first: first.map(Template::new),
            calls: Template::new(calls),
            is_repeatable: !is_volatile,
        };
        let scope = scope_above(self.plan, node, vec![part.scope.clone()]);
        let depends = part.depends.clone();
        let slot = self.pipeline(part, plan);
        let mut rows = Part::new(BufferedPlan(slot), layout);
        (rows.scope, rows.depends) = (scope, depends);
        Ok(rows)
    }

    fn window_call(&self, call: &WindowCall, part: &Part, order: &[KeyColumn]) -> Result<WindowCallPlan> {
        let function = self.function(call.function.oid)?;
        let arguments = self.scalars.scalars(&call.arguments, &part.layout)?;
        let representations: Vec<Representation> =
            arguments.iter().map(|argument| argument.representation()).collect();
        let signature = self.signature(&call.arguments, &representations, self.plan.columns[call.output].ty);
        let body = match &function.body {
            Body::Window(kernel) => WindowFunctionPlan::Window(kernel.clone()),
            Body::Aggregate(body) => {
                assert!(body.kernel.accepts(&representations, signature.representation), "{function:?}");
                WindowFunctionPlan::Aggregate(body.kernel.clone())
            }
            _ => panic!("{function:?} is no window function"),
        };
        Ok(WindowCallPlan {
            function: body,
            signature: Arc::new(signature),
            arguments,
            filter: self.chosen(&call.filter, &part.layout)?,
            frame: self.frame(&call.frame, order)?,
        })
    }

    fn frame(&self, frame: &Frame, order: &[KeyColumn]) -> Result<FramePlan> {
        let none = Layout::new();
        let bound = |bound: &Bound| -> Result<BoundPlan> {
            let counted = |scalar: &Scalar| {
                if frame.unit == FrameUnit::Range && !has_distances(order[0].class) {
                    return Err(Error::unsupported("RANGE with a distance of a type that is no number"));
                }
                self.scalars.general(scalar, &none)
            };
            Ok(match bound {
                Bound::UnboundedPreceding | Bound::UnboundedFollowing => BoundPlan::Unbounded,
                Bound::CurrentRow => BoundPlan::Current,
                Bound::Preceding(scalar) => BoundPlan::Preceding(counted(scalar)?),
                Bound::Following(scalar) => BoundPlan::Following(counted(scalar)?),
            })
        };
        Ok(FramePlan {
            unit: frame.unit,
            start: bound(&frame.start)?,
            end: bound(&frame.end)?,
            exclude: frame.exclude,
        })
    }
}
