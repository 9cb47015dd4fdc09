//! Operators that pass rows on, and those that sort them.

use super::{Compile, Needed, Part, PlannedJudge, PlannedScan, with_uses};
use crate::expression::{Conditions, Layout, representation_of};
use crate::inputs::{ScanPlan, SortedPlan, UnionInput, UnionPlan, ValuesPlan};
use crate::keys::{Class, KeyColumn, KeyLayout};
use crate::sinks::{Keep, SortPlan};
use crate::source;
use crate::stages::{Callee, FilterPlan, FlatMapPlan, LimitBounds, LimitPlan, MapPlan, SetCallPlan};
use crate::template::Template;
use firn_base::sync::Arc;
use firn_base::{Representation, Result, Type, TypeId};
use firn_plan::operator::{Limit, Scan, SetCall, SetCalls, SortKey};
use firn_plan::properties::{Scope, scope_above};
use firn_plan::{Column, NodeId, Operator, Scalar};
use firn_vector::FunctionId;
use firn_vector::kernel::Signature;
use firn_vector::registry::Body;

impl Compile<'_> {
    /// As [`Compile::node`], not measured.
    pub(super) fn operator(&mut self, node: NodeId, needed: &Needed) -> Result<Part> {
        let plan = self.plan;
        match &plan[node] {
            Operator::Scan(scan) => self.scan(node, scan, needed),
            Operator::Values { columns, rows } => self.values(node, columns, rows),
            Operator::TableFunction(calls) => {
                let one = Part::new(ValuesPlan::one_row(), Layout::new());
                self.set_calls(node, one, calls, needed)
            }
            Operator::FlatMap { input, calls } => {
                let arguments = calls.calls.iter().flat_map(|call| &call.arguments);
                let part = self.node(*input, &with_uses(needed, arguments))?;
                self.set_calls(node, part, calls, needed)
            }
            Operator::Filter { input, conditions } => {
                let mut part = self.node(*input, &with_uses(needed, conditions))?;
                self.filter(&mut part, conditions)?;
                Ok(self.passed_on(node, part))
            }
            Operator::Map { input, outputs } => self.map(node, *input, outputs, needed),
            Operator::Join(join) if !join.method.by_index().is_empty() => self.index_join(node, join, needed),
            Operator::Join(join) => self.join(node, join, needed),
            Operator::Group(group) => self.group(node, group),
            Operator::Window(window) => self.window(node, window, needed),
            Operator::Sort { input, keys } => self.sort(node, *input, keys, needed, Keep::All),
            Operator::Limit(limit) => self.limit(node, limit, needed),
            Operator::DistinctOn { input, keys, order } => {
                self.distinct_on(node, *input, keys, order, needed)
            }
            Operator::UnionAll { columns, inputs } => self.union_all(columns, inputs, needed),
            Operator::Iterate(iterate) => self.iterate(iterate),
            Operator::IterateRead { iterate, columns } => Ok(self.iterate_read(node, *iterate, columns)),
            Operator::Shared { id, definition, body } => self.share(*id, *definition, *body, needed),
            Operator::SharedRead { id, columns } => Ok(self.shared_read(node, *id, columns, needed)),
            Operator::Sample { input, by_block, percent, seed } => {
                self.sample(node, *input, *by_block, (percent, seed.as_ref()), needed)
            }
            Operator::Lock { input, targets } => {
                let limit = self.limit_above.take();
                self.lock(node, *input, targets, needed, limit)
            }
            Operator::Insert(insert) => self.insert(insert, needed),
            Operator::Update(update) => self.update(update, needed),
            Operator::Delete { input, target, row, images } => {
                self.delete(*input, *target, *row, images, needed)
            }
            Operator::Merge(merge) => self.merge(merge, needed),
        }
    }

    /// A part that gives what an operator gives, whose one input it was.
    pub(super) fn passed_on(&self, node: NodeId, mut part: Part) -> Part {
        part.scope = scope_above(self.plan, node, vec![std::mem::take(&mut part.scope)]);
        part
    }

    /// A part that is an operator without inputs.
    pub(super) fn leaf(&self, node: NodeId, mut part: Part) -> Part {
        part.scope = scope_above(self.plan, node, Vec::new());
        part
    }

    pub(super) fn scan(&mut self, node: NodeId, scan: &Scan, needed: &Needed) -> Result<Part> {
        let (planned, layout) = self.planned_scan(node, scan, needed);
        self.scans.push(planned);
        let number = self.scans.len() - 1;
        let mut part = Part::new(ScanPlan(number), layout);
        part.scan = Some(number);
        self.filter(&mut part, &scan.conditions)?;
        Ok(self.leaf(node, part))
    }

    /// What a scan asks of its source, and the vectors that it gives.
    pub(super) fn planned_scan(&self, node: NodeId, scan: &Scan, needed: &Needed) -> (PlannedScan, Layout) {
        let all = with_uses(needed, &scan.conditions);
        let mut columns: Vec<(Column, i16)> =
            scan.columns.iter().filter(|(column, _)| all.contains(column)).copied().collect();
        columns.sort_by_key(|(column, _)| !needed.contains(column));
        let used = columns.iter().filter(|(column, _)| needed.contains(column)).count();
        let layout = columns
            .iter()
            .map(|(column, _)| (*column, source::representation(&self.columns, *column)))
            .collect();
        let conditions = scan.conditions.clone();
        let judge = |condition| PlannedJudge::of(condition, &columns, &self.scalars);
        let judges = conditions.iter().filter_map(judge).collect();
        let planned = PlannedScan {
            node,
            source: scan.source,
            columns,
            used,
            conditions,
            judges,
            filters: Vec::new(),
            feeds_first_change: false,
            is_logged: true,
        };
        (planned, layout)
    }

    /// Adds a filter.
    pub(super) fn filter(&mut self, part: &mut Part, conditions: &[Scalar]) -> Result<()> {
        if conditions.is_empty() {
            return Ok(());
        }
        let compiled = self.scalars.scalars(conditions, &part.layout)?;
        part.is_serial |= conditions.iter().any(Scalar::is_volatile);
        part.push_rowwise(FilterPlan(Template::new(Conditions::new(compiled))));
        Ok(())
    }

    fn values(&mut self, node: NodeId, columns: &[Column], rows: &[Vec<Scalar>]) -> Result<Part> {
        let layout: Layout = columns
            .iter()
            .map(|column| (*column, source::representation(&self.plan.columns, *column)))
            .collect();
        let none = Layout::new();
        let row = |row: &Vec<Scalar>| row.iter().map(|scalar| self.scalars.general(scalar, &none)).collect();
        let compiled = rows.iter().map(row).collect::<Result<_>>()?;
        let representations = layout.representations().collect();
        let mut part = Part::new(ValuesPlan::new(compiled, representations), layout);
        // Workers do not share how far they have come.
        part.is_serial = true;
        Ok(self.leaf(node, part))
    }

    fn map(
        &mut self,
        node: NodeId,
        input: NodeId,
        outputs: &[(Column, Scalar)],
        needed: &Needed,
    ) -> Result<Part> {
        let used: Vec<&(Column, Scalar)> = outputs
            .iter()
            .filter(|(column, scalar)| needed.contains(column) || scalar.is_volatile())
            .collect();
        let mut part = self.node(input, &with_uses(needed, used.iter().map(|(_, scalar)| scalar)))?;
        if !used.is_empty() {
            let mut compiled = Vec::with_capacity(used.len());
            for (_, scalar) in &used {
                compiled.push(self.scalars.scalar(scalar, &part.layout)?);
                part.is_serial |= scalar.is_volatile();
            }
            for ((column, _), expression) in used.iter().zip(&compiled) {
                part.layout.push(*column, expression.representation());
            }
            part.push_rowwise(MapPlan(Template::new(compiled)));
        }
        Ok(self.passed_on(node, part))
    }

    fn set_calls(&mut self, node: NodeId, mut part: Part, calls: &SetCalls, needed: &Needed) -> Result<Part> {
        let mut compiled = Vec::with_capacity(calls.calls.len());
        for call in &calls.calls {
            compiled.push(self.set_call(call, &part.layout)?);
            part.is_serial |= call.function.is_volatile() || call.arguments.iter().any(Scalar::is_volatile);
        }
        let kept: Vec<(usize, Column)> =
            part.layout.columns().enumerate().filter(|(_, column)| needed.contains(column)).collect();
        let mut layout: Layout =
            kept.iter().map(|(_, column)| (*column, part.layout.representation(*column))).collect();
        for (call, compiled) in calls.calls.iter().zip(&compiled) {
            for (column, representation) in call.columns.iter().zip(&compiled.representations) {
                layout.push(*column, *representation);
            }
        }
        if let Some(ordinality) = calls.ordinality {
            layout.push(ordinality, Representation::Int64);
        }
        part.push(FlatMapPlan {
            calls: Template::new(compiled),
            columns: kept.into_iter().map(|(place, _)| place).collect(),
            with_ordinality: calls.ordinality.is_some(),
        });
        part.layout = layout;
        Ok(match self.plan[node].inputs().is_empty() {
            true => {
                part.is_serial = true;
                self.leaf(node, part)
            }
            false => self.passed_on(node, part),
        })
    }

    fn set_call(&mut self, call: &SetCall, layout: &Layout) -> Result<SetCallPlan> {
        let registry = self.scalars.registry;
        let types: Vec<Type> = call.columns.iter().map(|column| self.plan.columns[*column].ty).collect();
        let representations: Vec<Representation> = types.iter().map(|ty| representation_of(*ty)).collect();
        if let Some(function) = registry.function(FunctionId(call.function.oid))
            && let Body::Set(kernel) = &function.body
        {
            let arguments = self.scalars.scalars(&call.arguments, layout)?;
            let signature = Signature {
                arguments: call.arguments.iter().map(|argument| argument.ty(&self.plan.columns)).collect(),
                representations: arguments.iter().map(|argument| argument.representation()).collect(),
                result: types[0],
                representation: representations[0],
                has_variadic_array: false,
            };
            let callee = Callee::Set(kernel.clone(), Arc::new(signature), arguments);
            return Ok(SetCallPlan { callee, representations });
        }
        // Several columns are the fields of a record.
        let ty = if types.len() == 1 { types[0] } else { Type::new(TypeId::RECORD) };
        let scalar = Scalar::Call(Box::new(firn_plan::scalar::Call {
            function: call.function.clone(),
            as_operator: false,
            arguments: call.arguments.clone(),
            ty,
        }));
        Ok(SetCallPlan { callee: Callee::Scalar(self.scalars.general(&scalar, layout)?), representations })
    }

    /// The positions and keys of an order.
    pub(super) fn order(
        &self,
        keys: &[SortKey],
        layout: &Layout,
        scope: &Scope,
    ) -> (Vec<usize>, Vec<KeyColumn>) {
        let place = |key: &SortKey| layout.position(key.column).expect("the input has the order's columns");
        let column = |key: &SortKey| KeyColumn {
            class: Class::Same(layout.representation(key.column)),
            nullable: scope.nullable(key.column),
            descending: key.descending,
            nulls_first: key.nulls_first,
        };
        (keys.iter().map(place).collect(), keys.iter().map(column).collect())
    }

    fn sort(
        &mut self,
        node: NodeId,
        input: NodeId,
        keys: &[SortKey],
        needed: &Needed,
        keep: Keep,
    ) -> Result<Part> {
        let mut below = needed.clone();
        below.extend(keys.iter().map(|key| key.column));
        let part = self.node(input, &below)?;
        let (columns, order) = self.order(keys, &part.layout, &part.scope);
        Ok(self.sorted(node, part, columns, order, keep))
    }

    fn sorted(
        &mut self,
        node: NodeId,
        part: Part,
        columns: Vec<usize>,
        order: Vec<KeyColumn>,
        keep: Keep,
    ) -> Part {
        let (layout, scope, depends) = (part.layout.clone(), part.scope.clone(), part.depends.clone());
        let sink = SortPlan {
            representations: layout.representations().collect(),
            columns,
            layout: KeyLayout::new(order),
            keep,
        };
        let slot = self.pipeline(part, sink);
        let mut sorted = Part::new(SortedPlan { slot, columns: (0..layout.len()).collect() }, layout);
        (sorted.scope, sorted.depends, sorted.is_serial) = (scope, depends, true);
        self.passed_on(node, sorted)
    }

    fn limit(&mut self, node: NodeId, limit: &Limit, needed: &Needed) -> Result<Part> {
        let none = Layout::new();
        let bound = |scalar: &Option<Scalar>| {
            scalar.as_ref().map(|scalar| self.scalars.general(scalar, &none)).transpose()
        };
        let bounds = LimitBounds { count: bound(&limit.count)?, offset: bound(&limit.offset)? };
        let mut below = needed.clone();
        below.extend(limit.ties.iter().flatten().map(|key| key.column));
        let is_above_locks = self.locks_below(limit.input);
        self.limit_above = is_above_locks.then(|| bounds.clone());
        let mut part = match &self.plan[limit.input] {
            Operator::Sort { input, keys } if limit.ties.is_none() && limit.count.is_some() => {
                let keep = Keep::First(Box::new(Template::new(bounds.clone())));
                self.sort(limit.input, *input, keys, &below, keep)?
            }
            _ => self.node(limit.input, &below)?,
        };
        let ties = limit.ties.as_ref().map(|keys| {
            let (columns, order) = self.order(keys, &part.layout, &part.scope);
            (columns, KeyLayout::new(order))
        });
        part.push(LimitPlan { bounds: Template::new(bounds), ties, is_above_locks });
        part.is_serial = true;
        Ok(self.passed_on(node, part))
    }

    fn distinct_on(
        &mut self,
        node: NodeId,
        input: NodeId,
        keys: &[Column],
        order: &[SortKey],
        needed: &Needed,
    ) -> Result<Part> {
        let mut below = needed.clone();
        below.extend(keys.iter().copied().chain(order.iter().map(|key| key.column)));
        let part = self.node(input, &below)?;
        let groups: Vec<SortKey> = keys.iter().map(|key| SortKey::ascending(*key)).collect();
        let (group_columns, group_order) = self.order(&groups, &part.layout, &part.scope);
        let rest: Vec<SortKey> = order.iter().filter(|key| !keys.contains(&key.column)).copied().collect();
        let (columns, order) = self.order(&rest, &part.layout, &part.scope);
        let keep = Keep::FirstOfEach(group_columns.clone(), KeyLayout::for_equality(group_order.clone()));
        let columns = [group_columns, columns].concat();
        Ok(self.sorted(node, part, columns, [group_order, order].concat(), keep))
    }

    fn union_all(
        &mut self,
        columns: &[Column],
        inputs: &[(NodeId, Vec<Column>)],
        needed: &Needed,
    ) -> Result<Part> {
        let used: Vec<usize> = (0..columns.len()).filter(|place| needed.contains(&columns[*place])).collect();
        let layout: Layout = used
            .iter()
            .map(|place| (columns[*place], source::representation(&self.plan.columns, columns[*place])))
            .collect();
        let mut parts = Vec::with_capacity(inputs.len());
        let (mut is_serial, mut depends) = (false, std::collections::BTreeSet::new());
        for (input, given) in inputs {
            let own: Vec<Column> = used.iter().map(|place| given[*place]).collect();
            let part = self.node(*input, &own.iter().copied().collect())?;
            is_serial |= part.is_serial;
            depends.extend(part.depends.iter().copied());
            let place = |column: &Column| part.layout.position(*column).expect("the input gives it");
            let columns = own.iter().map(place).collect();
            parts.push(UnionInput { fragment: self.fragment(part), columns });
        }
        let representations = layout.representations().collect();
        let mut part =
            Part::new(UnionPlan { inputs: Arc::new(parts), representations, in_turn: false }, layout);
        (part.is_serial, part.depends) = (is_serial, depends);
        part.scope = Scope::default();
        for column in columns {
            part.scope.set(*column, self.plan.columns[*column].nullable);
        }
        Ok(part)
    }
}
