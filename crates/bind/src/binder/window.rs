//! Window functions: calls, windows with names, and the operators that compute them.

use super::aggregate::SortSpec;
use super::call::Overload;
use super::states::WINDOWING_ERROR;
use super::{Binder, Clause, Operand};
use crate::resolve::can_coerce_one;
use firn_base::{Result, SqlState, Type, TypeId};
use firn_plan::function::FunctionKind;
use firn_plan::operator::{Bound, Exclude, Frame, FrameUnit, SortKey, Window, WindowCall};
use firn_plan::{Column, ColumnInfo, Function, NodeId, Operator, Scalar};
use firn_syntax::tree::{self, Call, FrameBound, FrameExclusion, Over, WindowDefinition, WindowSpec};
use firn_vector::registry::CastContext;
use std::rc::Rc;

/// A window of a query.
#[derive(Clone, Debug)]
pub(crate) struct BoundWindow {
    name: Option<Rc<str>>,
    partition: Vec<(Scalar, Type)>,
    order: Vec<SortSpec>,
    /// Only a frame that is written.
    frame: Option<Frame>,
}

/// A call of a window function.
#[derive(Clone, Debug)]
pub(crate) struct WindowCallPlace {
    /// The column that stands for it.
    pub output: Column,
    pub function: Function,
    pub arguments: Vec<Scalar>,
    pub filter: Option<Scalar>,
    pub window: usize,
    pub at: u32,
}

impl Binder<'_> {
    /// WINDOW
    pub(super) fn window_clause(&mut self, definitions: &[WindowDefinition]) -> Result<()> {
        for definition in definitions {
            let name: Rc<str> = (&*definition.name.text).into();
            if self.named_window(&name).is_some() {
                let message = format!("window \"{name}\" is already defined");
                return Err(self.error(WINDOWING_ERROR, message, definition.name.span.start));
            }
            let mut window = self.window_spec(&definition.window, false)?;
            window.name = Some(name);
            self.level().windows.push(window);
        }
        Ok(())
    }

    fn named_window(&self, name: &str) -> Option<usize> {
        let windows = &self.levels.last().expect("a query is being bound").windows;
        windows.iter().position(|window| window.name.as_deref() == Some(name))
    }

    fn window_spec(&mut self, spec: &WindowSpec, is_over: bool) -> Result<BoundWindow> {
        let at = spec.span.start;
        let mut base = None;
        if let Some(name) = &spec.base {
            let Some(found) = self.named_window(&name.text) else {
                let message = format!("window \"{}\" does not exist", name.text);
                return Err(self.error(SqlState::UNDEFINED_OBJECT, message, name.span.start));
            };
            base = Some(self.level().windows[found].clone());
        }
        let mut partition = Vec::with_capacity(spec.partition_by.len());
        for value in &spec.partition_by {
            let operand = self.within(Clause::WindowPartition, |binder| binder.expression(value))?;
            let operand = self.known(operand)?;
            self.check_equality(operand.ty, operand.at)?;
            partition.push((operand.scalar, operand.ty));
        }
        let mut order = Vec::with_capacity(spec.order_by.len());
        for item in &spec.order_by {
            let operand = self.within(Clause::WindowOrder, |binder| binder.expression(&item.value))?;
            order.push(self.sort_spec(operand, item)?);
        }
        if let (Some(base), Some(name)) = (base, &spec.base) {
            let name = &name.text;
            let refused = if !partition.is_empty() {
                Some(format!("cannot override PARTITION BY clause of window \"{name}\""))
            } else if !order.is_empty() && !base.order.is_empty() {
                Some(format!("cannot override ORDER BY clause of window \"{name}\""))
            } else if base.frame.is_some() {
                Some(format!("cannot copy window \"{name}\" because it has a frame clause"))
            } else {
                None
            };
            if let Some(message) = refused {
                let is_bare =
                    base.frame.is_some() && is_over && spec.order_by.is_empty() && spec.frame.is_none();
                let error = self.error(WINDOWING_ERROR, message, at);
                return Err(if is_bare {
                    error.with_hint("Omit the parentheses in this OVER clause.")
                } else {
                    error
                });
            }
            partition = base.partition;
            if order.is_empty() {
                order = base.order;
            }
        }
        let frame = match &spec.frame {
            Some(frame) => Some(self.frame(frame, &order, at)?),
            None => None,
        };
        Ok(BoundWindow { name: None, partition, order, frame })
    }

    fn frame(&mut self, frame: &tree::Frame, order: &[SortSpec], at: u32) -> Result<Frame> {
        let has_offset =
            |bound: &FrameBound| matches!(bound, FrameBound::Preceding(_) | FrameBound::Following(_));
        let uses_offset = has_offset(&frame.start) || frame.end.as_ref().is_some_and(has_offset);
        let unit = match frame.unit {
            tree::FrameUnit::Rows => FrameUnit::Rows,
            tree::FrameUnit::Range => FrameUnit::Range,
            tree::FrameUnit::Groups => FrameUnit::Groups,
        };
        if unit == FrameUnit::Groups && order.is_empty() {
            return Err(self.error(WINDOWING_ERROR, "GROUPS mode requires an ORDER BY clause", at));
        }
        if unit == FrameUnit::Range && uses_offset && order.len() != 1 {
            let message = "RANGE with offset PRECEDING/FOLLOWING requires exactly one ORDER BY column";
            return Err(self.error(WINDOWING_ERROR, message, at));
        }
        let start = self.frame_bound(&frame.start, unit, order)?;
        let end = match &frame.end {
            Some(end) => self.frame_bound(end, unit, order)?,
            None => Bound::CurrentRow,
        };
        let exclude = match frame.exclusion {
            FrameExclusion::NoOthers => Exclude::NoOthers,
            FrameExclusion::CurrentRow => Exclude::CurrentRow,
            FrameExclusion::Group => Exclude::Group,
            FrameExclusion::Ties => Exclude::Ties,
        };
        Ok(Frame { unit, start, end, exclude })
    }

    fn frame_bound(&mut self, bound: &FrameBound, unit: FrameUnit, order: &[SortSpec]) -> Result<Bound> {
        let (value, is_preceding) = match bound {
            FrameBound::UnboundedPreceding => return Ok(Bound::UnboundedPreceding),
            FrameBound::UnboundedFollowing => return Ok(Bound::UnboundedFollowing),
            FrameBound::CurrentRow => return Ok(Bound::CurrentRow),
            FrameBound::Preceding(value) => (value, true),
            FrameBound::Following(value) => (value, false),
        };
        let (clause, construct) = match unit {
            FrameUnit::Rows => (Clause::FrameRows, "ROWS"),
            FrameUnit::Range => (Clause::FrameRange, "RANGE"),
            FrameUnit::Groups => (Clause::FrameGroups, "GROUPS"),
        };
        let operand = self.within(clause, |binder| binder.expression(value))?;
        let operand = match unit {
            FrameUnit::Rows | FrameUnit::Groups => self.specific(operand, TypeId::INT8, construct)?,
            FrameUnit::Range => self.range_offset(operand, order[0].ty.id)?,
        };
        let columns = self.columns_behind(&[&operand.scalar]);
        let current = self.levels.len() - 1;
        if columns.iter().any(|column| self.level_of(*column) == Some(current)) {
            let message = format!("argument of {construct} must not contain variables");
            return Err(self.error(SqlState::INVALID_COLUMN_REFERENCE, message, operand.at));
        }
        Ok(if is_preceding { Bound::Preceding(operand.scalar) } else { Bound::Following(operand.scalar) })
    }

    /// The offset of RANGE: of the type that can be added to values of the order.
    fn range_offset(&mut self, operand: Operand, key: TypeId) -> Result<Operand> {
        let offsets: &[TypeId] = match key {
            TypeId::INT2 | TypeId::INT4 => &[TypeId::INT8, TypeId::INT4, TypeId::INT2],
            TypeId::INT8 => &[TypeId::INT8],
            TypeId::FLOAT4 | TypeId::FLOAT8 => &[TypeId::FLOAT8],
            TypeId::NUMERIC => &[TypeId::NUMERIC],
            TypeId::DATE | TypeId::TIME | TypeId::TIMESTAMP | TypeId::TIMESTAMPTZ | TypeId::INTERVAL => {
                &[TypeId::INTERVAL]
            }
            _ => {
                let message = format!(
                    "RANGE with offset PRECEDING/FOLLOWING is not supported for column type {}",
                    crate::resolve::name(key)
                );
                return Err(self.error(SqlState::FEATURE_NOT_SUPPORTED, message, operand.at));
            }
        };
        let given = operand.ty.id;
        let exact = offsets.contains(&given).then_some(given);
        let of_key = (given == TypeId::UNKNOWN && offsets.contains(&key)).then_some(key);
        let by_cast = || {
            offsets
                .iter()
                .copied()
                .find(|ty| can_coerce_one(self.registry, given, *ty, CastContext::Implicit))
        };
        let Some(target) = exact.or(of_key).or_else(by_cast) else {
            let message = format!(
                "RANGE with offset PRECEDING/FOLLOWING is not supported for column type {} and offset type {}",
                crate::resolve::name(key),
                crate::resolve::name(given)
            );
            let error = self.error(SqlState::FEATURE_NOT_SUPPORTED, message, operand.at);
            return Err(error.with_hint("Cast the offset value to an appropriate type."));
        };
        self.coerce(operand, target, false)
    }

    /// A call with OVER, with its arguments bound.
    pub(super) fn window_call(
        &mut self,
        call: &Call,
        over: &Over,
        overload: Overload,
        at: u32,
    ) -> Result<Operand> {
        let name = overload.handle.name.clone();
        let is_aggregate = overload.handle.kind == FunctionKind::Aggregate;
        if call.is_distinct {
            return Err(self.unsupported_as("DISTINCT is not implemented for window functions", at));
        }
        if !call.order_by.is_empty() {
            return Err(self.unsupported_as("aggregate ORDER BY is not implemented for window functions", at));
        }
        if !call.within_group.is_empty() {
            let message = format!("OVER is not supported for ordered-set aggregate {name}");
            return Err(self.unsupported_as(&message, at));
        }
        if call.filter.is_some() && !is_aggregate {
            return Err(
                self.unsupported_as("FILTER is not implemented for non-aggregate window functions", at)
            );
        }
        if is_aggregate && call.arguments.is_empty() && !call.is_star {
            let message = format!("{name}(*) must be used to call a parameterless aggregate function");
            return Err(self.error(SqlState::WRONG_OBJECT_TYPE, message, at));
        }
        let filter = match &call.filter {
            Some(filter) => Some(self.filter(filter)?),
            None => None,
        };
        let arguments: Vec<Scalar> = overload.arguments.into_iter().map(|argument| argument.scalar).collect();
        let mut used: Vec<&Scalar> = arguments.iter().collect();
        used.extend(&filter);
        let columns = self.columns_behind(&used);
        if let Some(nested) = self.level().window_calls.iter().find(|other| columns.contains(&other.output)) {
            let at = nested.at;
            return Err(self.error(WINDOWING_ERROR, "window function calls cannot be nested", at));
        }
        if let Some(set) =
            self.level().sets.iter().find(|set| set.outputs.iter().any(|output| columns.contains(output)))
        {
            let at = set.at;
            let message = "window function calls cannot contain set-returning function calls";
            let error = self.error(SqlState::FEATURE_NOT_SUPPORTED, message, at);
            return Err(error.with_hint(super::aggregate::MOVE_SET));
        }
        self.check_window_place(at)?;
        let window = match over {
            Over::Named(name) => match self.named_window(&name.text) {
                Some(window) => window,
                None => {
                    let message = format!("window \"{}\" does not exist", name.text);
                    return Err(self.error(SqlState::UNDEFINED_OBJECT, message, name.span.start));
                }
            },
            Over::Window(spec) => {
                let window = self.window_spec(spec, true)?;
                let windows = &self.levels.last().expect("a query is being bound").windows;
                match windows.iter().position(|other| self.is_same_window(other, &window)) {
                    Some(same) => same,
                    None => {
                        let windows = &mut self.level().windows;
                        windows.push(window);
                        windows.len() - 1
                    }
                }
            }
        };
        let ty = overload.result;
        // Two equal calls are one, as clauses repeat those of the select list.
        let is_stable = !overload.handle.is_volatile() && !used.iter().any(|scalar| scalar.is_volatile());
        let calls = &self.levels.last().expect("a query is being bound").window_calls;
        let same = calls.iter().filter(|_| is_stable).find(|other| {
            other.window == window
                && other.function == overload.handle
                && self.are_same(&other.arguments, &arguments)
                && self.are_same(other.filter.as_slice(), filter.as_slice())
        });
        if let Some(same) = same {
            return Ok(Operand { scalar: Scalar::Column(same.output), ty, at });
        }
        let nullable = overload.handle.may_be_null;
        let output = self.new_column(ColumnInfo::new(ty, nullable).named(name.as_ref()));
        let function = overload.handle;
        self.level().window_calls.push(WindowCallPlace { output, function, arguments, filter, window, at });
        Ok(Operand { scalar: Scalar::Column(output), ty, at })
    }

    fn is_same_window(&self, left: &BoundWindow, right: &BoundWindow) -> bool {
        left.frame == right.frame
            && left.partition.iter().map(|(_, ty)| ty).eq(right.partition.iter().map(|(_, ty)| ty))
            && self.are_same(
                left.partition.iter().map(|(scalar, _)| scalar),
                right.partition.iter().map(|(scalar, _)| scalar),
            )
            && self.is_same_order(&left.order, &right.order)
    }

    fn check_window_place(&mut self, at: u32) -> Result<()> {
        let place = match self.level().clause {
            Clause::None | Clause::Targets | Clause::OrderBy | Clause::DistinctOn => return Ok(()),
            other => other.name(),
        };
        Err(self.error(WINDOWING_ERROR, format!("window functions are not allowed in {place}"), at))
    }

    pub(super) fn unsupported_as(&self, message: &str, at: u32) -> firn_base::Error {
        self.error(SqlState::FEATURE_NOT_SUPPORTED, message, at)
    }

    /// The operators that compute the window functions of a query.
    pub(super) fn windowed(
        &mut self,
        mut node: NodeId,
        windows: Vec<BoundWindow>,
        calls: Vec<WindowCallPlace>,
    ) -> NodeId {
        for (place, window) in windows.into_iter().enumerate() {
            let own: Vec<&WindowCallPlace> = calls.iter().filter(|call| call.window == place).collect();
            if own.is_empty() {
                continue;
            }
            let mut outputs = Vec::new();
            let partition = window
                .partition
                .iter()
                .map(|(scalar, ty)| self.as_column(&mut node, scalar, *ty, &mut outputs))
                .collect();
            let order = self.sort_keys(&mut node, &window.order, &mut outputs);
            let frame = window.frame.unwrap_or_default();
            for bound in [&frame.start, &frame.end] {
                if let Bound::Preceding(scalar) | Bound::Following(scalar) = bound {
                    node = self.attach(node, [scalar]);
                }
            }
            for call in &own {
                node = self.attach(node, call.arguments.iter().chain(&call.filter));
            }
            node = self.map(node, outputs);
            let call = |call: &WindowCallPlace| WindowCall {
                output: call.output,
                function: call.function.clone(),
                arguments: call.arguments.clone(),
                filter: call.filter.clone(),
                frame: frame.clone(),
            };
            let calls = own.into_iter().map(call).collect();
            node =
                self.plan.add(Operator::Window(Window { input: node, partition, order, first: None, calls }));
        }
        node
    }

    /// An order by columns, which `outputs` adds.
    pub(super) fn sort_keys(
        &mut self,
        node: &mut NodeId,
        order: &[SortSpec],
        outputs: &mut Vec<(Column, Scalar)>,
    ) -> Vec<SortKey> {
        let mut keys: Vec<SortKey> = Vec::with_capacity(order.len());
        for item in order {
            let column = self.as_column(node, &item.value, item.ty, outputs);
            if keys.iter().all(|key| key.column != column) {
                keys.push(SortKey { column, descending: item.descending, nulls_first: item.nulls_first });
            }
        }
        keys
    }
}

impl BoundWindow {
    /// The scalars that it uses.
    pub(super) fn scalars_mut(&mut self) -> impl Iterator<Item = &mut Scalar> {
        let partition = self.partition.iter_mut().map(|(scalar, _)| scalar);
        partition.chain(self.order.iter_mut().map(|item| &mut item.value))
    }
}
