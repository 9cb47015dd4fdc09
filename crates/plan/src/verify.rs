//! What every plan must be. Tests and debug builds check it after every rewrite.
//!
//! - From the root each operator is reached once, and each column is produced once.
//! - An operator uses only columns that its inputs give; in scalars also those of the left inputs of
//!   the dependent joins around it.
//! - Types agree, with the signatures of functions as well.
//! - A column that is declared not to be NULL is not.
//! - Shared sub-plans are defined once, around their readers; so are recursions.

use crate::column::{Column, ColumnInfo};
use crate::function::{Function, FunctionKind, is_polymorphic};
use crate::operator::{
    Assignment, Bound, FirstRows, Frame, Image, IterateId, JoinKind, JoinMethod, MergeAction, Operator,
    SetCalls, SharedId, SortKey, WindowCall,
};
use crate::plan::{NodeId, Plan};
use crate::properties::{Scope, same_form, scope_above};
use crate::rewrite::first_rows::order_of;
use crate::rewrite::join_methods::has_keys;
use crate::scalar::{Scalar, Values};
use firn_base::{Type, TypeId, Value};
use std::collections::{HashMap, HashSet};

/// Says what is wrong with a plan.
pub fn verify(plan: &Plan) -> Result<(), String> {
    let mut verifier = Verifier {
        plan,
        reached: HashSet::new(),
        produced: HashSet::new(),
        outer: Scope::default(),
        shared: HashMap::new(),
        ids: HashSet::new(),
        iterations: HashMap::new(),
    };
    let scope = verifier.operator(plan.root)?;
    for column in &plan.output {
        ensure(scope.has(*column), || format!("the output {column:?} is not given"))?;
    }
    Ok(())
}

/// Panics if a plan is not what it must be, in debug builds.
pub fn debug_verify(plan: &Plan, after: &str) {
    if cfg!(debug_assertions)
        && let Err(problem) = verify(plan)
    {
        panic!("after {after}: {problem}");
    }
}

type Check = Result<(), String>;

fn ensure(holds: bool, problem: impl FnOnce() -> String) -> Check {
    if holds { Ok(()) } else { Err(problem()) }
}

struct Verifier<'a> {
    plan: &'a Plan,
    reached: HashSet<NodeId>,
    produced: HashSet<Column>,
    /// The columns of the left inputs of the dependent joins around.
    outer: Scope,
    /// The shared sub-plans around, and what they give.
    shared: HashMap<SharedId, Scope>,
    ids: HashSet<SharedId>,
    /// The recursions around, and what they give.
    iterations: HashMap<IterateId, Vec<Column>>,
}

/// What a scalar may use.
struct Seen<'a> {
    outer: &'a Scope,
    inner: &'a [&'a Scope],
}

impl Seen<'_> {
    fn has(&self, column: Column) -> bool {
        self.outer.has(column) || self.inner.iter().any(|scope| scope.has(column))
    }

    fn nullable(&self, column: Column) -> bool {
        match self.inner.iter().find(|scope| scope.has(column)) {
            Some(scope) => scope.nullable(column),
            None => self.outer.nullable(column),
        }
    }
}

impl Verifier<'_> {
    fn operator(&mut self, node: NodeId) -> Result<Scope, String> {
        let plan = self.plan;
        ensure(self.reached.insert(node), || format!("operator {} is reached twice", node.index()))?;
        let operator = &plan[node];
        let inputs = match operator {
            Operator::Join(join) if join.dependent => {
                ensure(join.kind != JoinKind::Full, || "a full join is dependent".to_owned())?;
                let left = self.operator(join.left)?;
                let before = self.outer.clone();
                self.outer = std::mem::take(&mut self.outer).merge(left.clone());
                let right = self.operator(join.right)?;
                self.outer = before;
                vec![left, right]
            }
            Operator::Shared { id, definition, body } => {
                ensure(self.ids.insert(*id), || format!("{id:?} is defined twice"))?;
                let given = self.operator(*definition)?;
                self.shared.insert(*id, given);
                let body = self.operator(*body)?;
                self.shared.remove(id);
                vec![Scope::default(), body]
            }
            Operator::Iterate(iterate) => {
                let initial = self.operator(iterate.initial)?;
                let replaced = self.iterations.insert(iterate.id, iterate.columns.clone());
                ensure(replaced.is_none(), || format!("{:?} is defined twice", iterate.id))?;
                let step = self.operator(iterate.step)?;
                self.iterations.remove(&iterate.id);
                vec![initial, step]
            }
            _ => operator.inputs().into_iter().map(|input| self.operator(input)).collect::<Result<_, _>>()?,
        };
        for column in operator.produced() {
            ensure(self.plan.columns.get(column).is_some(), || format!("{column:?} is not described"))?;
            ensure(self.produced.insert(column), || format!("{column:?} is produced twice"))?;
        }
        self.check(operator, &inputs).map_err(|problem| format!("{problem} (in {})", name(operator)))?;
        Ok(scope_above(plan, node, inputs))
    }

    fn check(&self, operator: &Operator, inputs: &[Scope]) -> Check {
        let none = Seen { outer: &self.outer, inner: &[] };
        let both: Vec<&Scope> = inputs.iter().collect();
        let rows = Seen { outer: &self.outer, inner: &both };
        let given = |column: Column, scope: &Scope| {
            ensure(scope.has(column), || format!("{column:?} is not given by the input"))
        };
        let order = |keys: &[SortKey]| keys.iter().try_for_each(|key| given(key.column, &inputs[0]));
        match operator {
            Operator::Scan(scan) => {
                let scope: Scope = self.declared(scan.columns.iter().map(|(column, _)| *column));
                self.conditions(&scan.conditions, &Seen { outer: &self.outer, inner: &[&scope] })
            }
            Operator::Values { columns, rows } => {
                for row in rows {
                    ensure(row.len() == columns.len(), || "a row has another number of values".to_owned())?;
                    for (column, scalar) in columns.iter().zip(row) {
                        self.define(*column, scalar, &none)?;
                    }
                }
                Ok(())
            }
            Operator::TableFunction(calls) => self.set_calls(calls, &none),
            Operator::FlatMap { calls, .. } => self.set_calls(calls, &rows),
            Operator::Filter { conditions, .. } => self.conditions(conditions, &rows),
            Operator::Map { outputs, .. } => {
                outputs.iter().try_for_each(|(column, scalar)| self.define(*column, scalar, &rows))
            }
            Operator::Join(join) => {
                ensure(join.mark.is_some() == (join.kind == JoinKind::Mark), || {
                    "a mark join has a mark, others have none".to_owned()
                })?;
                match join.method {
                    JoinMethod::BuildRight => {}
                    JoinMethod::BuildLeft => {
                        let kind = matches!(join.kind, JoinKind::Left | JoinKind::Semi | JoinKind::Anti);
                        ensure(kind && !join.dependent, || {
                            format!("a {:?} join cannot build on its left side", join.kind)
                        })?;
                    }
                    JoinMethod::Index(ref index) => {
                        let kind = !matches!(join.kind, JoinKind::Full | JoinKind::Mark);
                        let has_keys = match &self.plan[join.right] {
                            Operator::Scan(scan) => has_keys(join, scan, &self.plan.columns),
                            _ => false,
                        };
                        ensure(kind && !join.dependent && has_keys, || {
                            "a join has no key for its index".to_owned()
                        })?;
                        let is_known = |first: &FirstRows| {
                            let is_of_scan = match &self.plan[join.right] {
                                Operator::Scan(scan) => {
                                    order_of(scan, &first.order, &self.plan.columns).is_some()
                                }
                                _ => false,
                            };
                            join.kind == JoinKind::Inner && is_count(&first.count) && is_of_scan
                        };
                        ensure(index.first.as_ref().is_none_or(is_known), || {
                            "an index finds the first rows in an order of a scan, for an inner join"
                                .to_owned()
                        })?;
                    }
                }
                self.conditions(&join.conditions, &rows)?;
                if let Some(mark) = join.mark {
                    let nullable = |scalar: &Scalar| scalar.nullable(&|column| rows.nullable(column));
                    let may_be_null = join.conditions.iter().any(nullable);
                    self.defined(mark, Type::new(TypeId::BOOL), may_be_null)?;
                }
                Ok(())
            }
            Operator::Group(group) => {
                group.keys.iter().try_for_each(|key| given(*key, &inputs[0]))?;
                let are_keys = group.determined.iter().all(|key| group.keys.contains(key));
                let may_be = group.determined.is_empty()
                    || group.sets.is_none() && group.determined.len() < group.keys.len();
                ensure(are_keys && may_be, || "other keys determine those that are determined".to_owned())?;
                if let Some(sets) = &group.sets {
                    let count = group.keys.len();
                    ensure(sets.columns.len() == count, || "each key has a column".to_owned())?;
                    let known = sets.sets.iter().flatten().all(|key| (*key as usize) < count);
                    ensure(known, || "a grouping set names no key".to_owned())?;
                    for (index, (key, column)) in group.keys.iter().zip(&sets.columns).enumerate() {
                        let in_all = sets.sets.iter().all(|set| set.contains(&(index as u32)));
                        let nullable = !in_all || inputs[0].nullable(*key);
                        self.defined(*column, self.plan.columns[*key].ty, nullable)?;
                    }
                    if let Some(number) = sets.number {
                        self.defined(number, Type::new(TypeId::INT4), false)?;
                    }
                }
                for aggregate in &group.aggregates {
                    order(&aggregate.order)?;
                    let is_aggregate = aggregate.function.kind == FunctionKind::Aggregate;
                    ensure(is_aggregate, || format!("{:?} is no aggregate", aggregate.function))?;
                    self.call(&aggregate.function, &aggregate.arguments, &rows)?;
                    self.conditions(aggregate.filter.as_slice(), &rows)?;
                    self.result(aggregate.output, &aggregate.function)?;
                }
                Ok(())
            }
            Operator::Window(window) => {
                window.partition.iter().try_for_each(|key| given(*key, &inputs[0]))?;
                order(&window.order)?;
                let mut partition = Scope::default();
                for key in &window.partition {
                    partition.set(*key, inputs[0].nullable(*key));
                }
                for call in &window.calls {
                    let kind = call.function.kind;
                    let fits = matches!(kind, FunctionKind::Aggregate | FunctionKind::Window);
                    ensure(fits, || format!("{:?} is no window function", call.function))?;
                    self.call(&call.function, &call.arguments, &rows)?;
                    self.conditions(call.filter.as_slice(), &rows)?;
                    self.frame(&call.frame, &Seen { outer: &self.outer, inner: &[&partition] })?;
                    self.result(call.output, &call.function)?;
                }
                let may_be_limited = || window.calls.iter().all(WindowCall::counts_before);
                ensure(window.first.as_ref().is_none_or(|first| is_count(first) && may_be_limited()), || {
                    "of a window that counts rows the first ones may be used alone".to_owned()
                })
            }
            Operator::Sort { keys, .. } => order(keys),
            Operator::Limit(limit) => {
                for scalar in limit.count.iter().chain(&limit.offset) {
                    self.typed(scalar, TypeId::INT8, &none)?;
                }
                order(limit.ties.as_deref().unwrap_or_default())
            }
            Operator::DistinctOn { keys, order: first, .. } => {
                keys.iter().try_for_each(|key| given(*key, &inputs[0]))?;
                order(first)
            }
            Operator::Sample { percent, seed, .. } => {
                self.typed(percent, TypeId::FLOAT8, &rows)?;
                seed.iter().try_for_each(|seed| self.typed(seed, TypeId::FLOAT8, &rows))
            }
            Operator::UnionAll { columns, inputs: lists } => {
                for ((_, list), scope) in lists.iter().zip(inputs) {
                    self.columns(columns, list, scope)?;
                }
                Ok(())
            }
            Operator::Iterate(iterate) => {
                self.columns(&iterate.columns, &iterate.initial_columns, &inputs[0])?;
                self.columns(&iterate.columns, &iterate.step_columns, &inputs[1])
            }
            Operator::IterateRead { iterate, columns } => {
                let Some(given) = self.iterations.get(iterate) else {
                    return Err(format!("{iterate:?} is read outside of its step"));
                };
                self.columns(columns, given, &self.declared(given.iter().copied()))
            }
            Operator::Shared { .. } => Ok(()),
            Operator::SharedRead { id, columns } => {
                let Some(scope) = self.shared.get(id) else {
                    return Err(format!("{id:?} is read outside of its body"));
                };
                columns.iter().try_for_each(|(own, of)| self.columns(&[*own], &[*of], scope))
            }
            Operator::Lock { targets, .. } => {
                targets.iter().try_for_each(|target| given(target.row, &inputs[0]))
            }
            Operator::Insert(insert) => {
                self.assignments(&insert.values, &rows)?;
                for update in insert.conflicts.iter().filter_map(|arm| arm.update.as_ref()) {
                    let local = update.existing.iter().chain(&update.excluded);
                    let scope = self.declared(local.map(|(column, _)| *column));
                    let seen = Seen { outer: &self.outer, inner: &[&inputs[0], &scope] };
                    self.assignments(&update.set, &seen)?;
                    self.conditions(&update.conditions, &seen)?;
                }
                self.images(&insert.images)
            }
            Operator::Update(update) => {
                given(update.row, &inputs[0])?;
                self.assignments(&update.set, &rows)?;
                self.images(&update.images)
            }
            Operator::Delete { row, images, .. } => {
                given(*row, &inputs[0])?;
                self.images(images)
            }
            Operator::Merge(merge) => {
                given(merge.row, &inputs[0])?;
                for arm in &merge.arms {
                    self.conditions(&arm.conditions, &rows)?;
                    if let MergeAction::Update(set) | MergeAction::Insert(set) = &arm.action {
                        self.assignments(set, &rows)?;
                    }
                }
                self.images(&merge.images)
            }
        }
    }

    fn declared(&self, columns: impl Iterator<Item = Column>) -> Scope {
        let mut scope = Scope::default();
        for column in columns {
            scope.set(column, self.plan.columns.get(column).is_none_or(|info| info.nullable));
        }
        scope
    }

    fn info(&self, column: Column) -> &ColumnInfo {
        &self.plan.columns[column]
    }

    /// Checks what a column is declared to be.
    fn defined(&self, column: Column, ty: Type, nullable: bool) -> Check {
        let info = self.info(column);
        ensure(same_form(info.ty, ty), || format!("{column:?} is {} and gets {ty}", info.ty))?;
        ensure(info.nullable || !nullable, || format!("{column:?} may be NULL and is declared not to be"))
    }

    fn define(&self, column: Column, scalar: &Scalar, seen: &Seen<'_>) -> Check {
        let ty = self.scalar(scalar, seen, None)?;
        self.defined(column, ty, scalar.nullable(&|column| seen.nullable(column)))
    }

    fn columns(&self, columns: &[Column], from: &[Column], scope: &Scope) -> Check {
        ensure(columns.len() == from.len(), || "the numbers of columns differ".to_owned())?;
        for (column, from) in columns.iter().zip(from) {
            ensure(scope.has(*from), || format!("{from:?} is not given by the input"))?;
            self.defined(*column, self.info(*from).ty, scope.nullable(*from))?;
        }
        Ok(())
    }

    fn conditions(&self, conditions: &[Scalar], seen: &Seen<'_>) -> Check {
        conditions.iter().try_for_each(|condition| self.typed(condition, TypeId::BOOL, seen))
    }

    fn typed(&self, scalar: &Scalar, id: TypeId, seen: &Seen<'_>) -> Check {
        let ty = self.scalar(scalar, seen, None)?;
        ensure(ty.id == id, || format!("{ty} where {} is needed", Type::new(id)))
    }

    fn assignments(&self, assignments: &[Assignment], seen: &Seen<'_>) -> Check {
        assignments.iter().try_for_each(|assignment| self.scalar(&assignment.value, seen, None).map(|_| ()))
    }

    fn images(&self, images: &[Image]) -> Check {
        let mut outputs = HashSet::new();
        ensure(images.iter().all(|image| outputs.insert(image.output)), || "an image comes twice".to_owned())
    }

    fn set_calls(&self, calls: &SetCalls, seen: &Seen<'_>) -> Check {
        for call in &calls.calls {
            let fits = matches!(call.function.kind, FunctionKind::Set | FunctionKind::Scalar);
            ensure(fits, || format!("{:?} gives no rows", call.function))?;
            self.call(&call.function, &call.arguments, seen)?;
        }
        if let Some(ordinality) = calls.ordinality {
            let padded = calls.calls.len() > 1;
            ensure(
                !padded
                    || calls
                        .calls
                        .iter()
                        .flat_map(|call| &call.columns)
                        .all(|column| self.info(*column).nullable),
                || "columns of functions side by side may be NULL".to_owned(),
            )?;
            self.defined(ordinality, Type::new(TypeId::INT8), false)?;
        }
        Ok(())
    }

    fn frame(&self, frame: &Frame, seen: &Seen<'_>) -> Check {
        for bound in [&frame.start, &frame.end] {
            if let Bound::Preceding(scalar) | Bound::Following(scalar) = bound {
                self.scalar(scalar, seen, None)?;
            }
        }
        Ok(())
    }

    fn result(&self, output: Column, function: &Function) -> Check {
        let info = self.info(output);
        let fits = is_polymorphic(function.result) || info.ty.id == function.result;
        ensure(fits, || format!("{output:?} is {} and {function:?} gives another type", info.ty))?;
        ensure(info.nullable || !function.may_be_null, || {
            format!("{output:?} may be NULL and is declared not to be")
        })
    }

    fn call(&self, function: &Function, arguments: &[Scalar], seen: &Seen<'_>) -> Check {
        ensure(function.takes(arguments.len()), || {
            format!("{function:?} does not take {} arguments", arguments.len())
        })?;
        for (index, argument) in arguments.iter().enumerate() {
            let ty = self.scalar(argument, seen, None)?;
            let index = if function.is_chain(arguments.len()) { index.min(1) } else { index };
            let declared = function.argument(index).expect("it takes so many");
            let fits = is_polymorphic(declared) || declared == ty.id;
            ensure(fits, || {
                format!("{function:?} takes {} as argument {}, not {ty}", Type::new(declared), index + 1)
            })?;
        }
        Ok(())
    }

    /// The type of a scalar. `operand` is the type of the operand of the CASE around it.
    fn scalar(&self, scalar: &Scalar, seen: &Seen<'_>, operand: Option<Type>) -> Result<Type, String> {
        let boolean = |argument: &Scalar| {
            let ty = self.scalar(argument, seen, operand)?;
            ensure(ty.id == TypeId::BOOL, || format!("{ty} where boolean is needed"))
        };
        let alike = |list: &mut dyn Iterator<Item = &Scalar>| -> Result<(), String> {
            let mut first: Option<Type> = None;
            for scalar in list {
                let ty = self.scalar(scalar, seen, operand)?;
                let other = *first.get_or_insert(ty);
                ensure(ty.id == other.id, || format!("{ty} and {other} where one type is needed"))?;
            }
            Ok(())
        };
        match scalar {
            Scalar::Column(column) => {
                ensure(seen.has(*column), || format!("{column:?} is not given where it is used"))?;
            }
            Scalar::Constant(ty, value) => {
                ensure(fits(value, *ty), || format!("a constant of {ty} has another kind of value"))?;
            }
            Scalar::Parameter(..) => {}
            Scalar::CaseValue(ty) => ensure(operand == Some(*ty), || "no CASE has this operand".to_owned())?,
            Scalar::Call(call) => {
                ensure(call.function.is_scalar(), || format!("{:?} is no scalar function", call.function))?;
                // Operands of CASE may be used within arguments.
                for argument in &call.arguments {
                    self.scalar(argument, seen, operand)?;
                }
                self.signature(&call.function, &call.arguments, call.ty)?;
            }
            Scalar::Cast(cast) => {
                let ty = self.scalar(&cast.argument, seen, operand)?;
                if let Some(function) = &cast.function {
                    let fits = function.argument(0).is_some_and(|id| is_polymorphic(id) || id == ty.id);
                    ensure(fits, || format!("{function:?} does not cast {ty}"))?;
                }
            }
            Scalar::And(list) | Scalar::Or(list) => list.iter().try_for_each(boolean)?,
            Scalar::Not(argument) | Scalar::Test(argument, ..) => boolean(argument)?,
            Scalar::IsNull(argument, _) | Scalar::Field(argument, ..) => {
                self.scalar(argument, seen, operand)?;
            }
            Scalar::Case(case) => {
                let within = match &case.operand {
                    Some(scalar) => Some(self.scalar(scalar, seen, operand)?),
                    None => operand,
                };
                for (condition, _) in &case.arms {
                    let ty = self.scalar(condition, seen, within)?;
                    ensure(ty.id == TypeId::BOOL, || format!("{ty} where boolean is needed"))?;
                }
                let results = case.arms.iter().map(|(_, result)| result);
                alike(&mut results.chain(std::iter::once(&case.otherwise)))?;
            }
            Scalar::Coalesce(list) => {
                ensure(!list.is_empty(), || "COALESCE of nothing".to_owned())?;
                alike(&mut list.iter())?;
            }
            Scalar::Distinct(pair, _) => alike(&mut [&pair.0, &pair.1].into_iter())?,
            Scalar::Quantified(quantified) => {
                let left = self.scalar(&quantified.argument, seen, operand)?;
                let function = &quantified.function;
                let takes = |index, ty: Type| {
                    let declared = function.argument(index);
                    let fits = declared.is_some_and(|id| is_polymorphic(id) || id == ty.id);
                    ensure(fits, || format!("{function:?} does not compare {ty}"))
                };
                takes(0, left)?;
                match &quantified.values {
                    Values::List(list) => {
                        for value in list {
                            takes(1, self.scalar(value, seen, operand)?)?;
                        }
                    }
                    Values::Array(array) => {
                        let ty = self.scalar(array, seen, operand)?;
                        takes(1, ty.element().ok_or_else(|| format!("{ty} is no array"))?)?;
                    }
                }
            }
            Scalar::Array(ty, list) => {
                ensure(ty.element().is_some(), || format!("{ty} is no array"))?;
                alike(&mut list.iter())?;
            }
            Scalar::Row(list) => {
                list.iter().try_for_each(|field| self.scalar(field, seen, operand).map(|_| ()))?;
            }
        }
        Ok(scalar.ty(&self.plan.columns))
    }

    /// Checks types that are known to be those of valid scalars against a signature.
    fn signature(&self, function: &Function, arguments: &[Scalar], result: Type) -> Check {
        ensure(function.takes(arguments.len()), || {
            format!("{function:?} does not take {} arguments", arguments.len())
        })?;
        for (index, argument) in arguments.iter().enumerate() {
            let ty = argument.ty(&self.plan.columns);
            let index = if function.is_chain(arguments.len()) { index.min(1) } else { index };
            let declared = function.argument(index).expect("it takes so many");
            let fits = is_polymorphic(declared) || declared == ty.id;
            ensure(fits, || {
                format!("{function:?} takes {} as argument {}, not {ty}", Type::new(declared), index + 1)
            })?;
        }
        let fits = is_polymorphic(function.result) || function.result == result.id;
        ensure(fits, || format!("{function:?} does not give {result}"))
    }
}

/// Whether a scalar may say how many of the first rows are used.
fn is_count(scalar: &Scalar) -> bool {
    let is_bigint =
        |ty: &Type, value: &Value| ty.id == TypeId::INT8 && matches!(value, Value::BigInt(_) | Value::Null);
    match scalar {
        Scalar::Constant(ty, value) => is_bigint(ty, value),
        Scalar::Parameter(_, ty) => ty.id == TypeId::INT8,
        _ => false,
    }
}

/// Whether a constant's value is of the kind that values of its type have.
fn fits(value: &Value, ty: Type) -> bool {
    use firn_base::Representation as R;
    match (value, ty.representation()) {
        (Value::Null, _) => true,
        (Value::Boolean(_), Some(R::Boolean))
        | (Value::SmallInt(_), Some(R::Int16))
        | (Value::Integer(_), Some(R::Int32))
        | (Value::BigInt(_), Some(R::Int64 | R::Oid))
        | (Value::Real(_), Some(R::Float32))
        | (Value::Double(_), Some(R::Float64))
        | (Value::Numeric { .. } | Value::Number(_), Some(R::Numeric | R::Decimal { .. }))
        | (Value::Oid(_), Some(R::Oid))
        | (Value::Text(_), Some(R::Text | R::PaddedText))
        | (Value::Bytea(_), Some(R::Bytes))
        | (Value::Date(_), Some(R::Date))
        | (Value::Time(_), Some(R::Time))
        | (Value::Timestamp(_), Some(R::Timestamp))
        | (Value::TimestampTz(_), Some(R::TimestampTz))
        | (Value::Interval(_), Some(R::Interval))
        | (Value::Uuid(_), Some(R::Uuid))
        | (Value::Array(_), Some(R::List(_))) => true,
        // Types that are not built in are the catalog's affair.
        (_, None) => true,
        _ => false,
    }
}

/// An operator's name, as it is printed.
pub fn name(operator: &Operator) -> &'static str {
    match operator {
        Operator::Scan(_) => "Scan",
        Operator::Values { .. } => "Values",
        Operator::TableFunction(_) => "TableFunction",
        Operator::FlatMap { .. } => "FlatMap",
        Operator::Filter { .. } => "Filter",
        Operator::Map { .. } => "Map",
        Operator::Join(_) => "Join",
        Operator::Group(_) => "Group",
        Operator::Window(_) => "Window",
        Operator::Sort { .. } => "Sort",
        Operator::Limit(_) => "Limit",
        Operator::DistinctOn { .. } => "DistinctOn",
        Operator::Sample { .. } => "Sample",
        Operator::UnionAll { .. } => "UnionAll",
        Operator::Iterate(_) => "Iterate",
        Operator::IterateRead { .. } => "IterateRead",
        Operator::Shared { .. } => "Shared",
        Operator::SharedRead { .. } => "SharedRead",
        Operator::Lock { .. } => "Lock",
        Operator::Insert(_) => "Insert",
        Operator::Update(_) => "Update",
        Operator::Delete { .. } => "Delete",
        Operator::Merge(_) => "Merge",
    }
}
