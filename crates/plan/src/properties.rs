//! Properties of sub-plans: which columns they give and may be NULL, how many rows, whether they
//! can fail or are volatile, and which columns of outer queries they use.
//!
//! They are computed on demand, bottom-up and without recursion, for all operators of a sub-plan at
//! once; a rewrite that needs them computes them once.

use crate::column::{Column, Columns};
use crate::function::Function;
use crate::operator::{Group, IterateId, JoinKind, Operator, SharedId};
use crate::plan::{NodeId, Plan};
use crate::scalar::{Scalar, Values};
use firn_base::Value;
use std::collections::{HashMap, HashSet};

/// The columns that an operator gives, and whether each may be NULL.
#[derive(Clone, Default, Debug)]
pub struct Scope(HashMap<Column, bool>);

impl Scope {
    /// Whether a column is given.
    pub fn has(&self, column: Column) -> bool {
        self.0.contains_key(&column)
    }

    /// Whether a column may be NULL here. One that is not given, an outer one, may be.
    pub fn nullable(&self, column: Column) -> bool {
        self.0.get(&column).copied().unwrap_or(true)
    }

    /// The columns, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (Column, bool)> + '_ {
        self.0.iter().map(|(column, nullable)| (*column, *nullable))
    }

    /// Adds a column, or changes what is known of it.
    pub fn set(&mut self, column: Column, nullable: bool) {
        self.0.insert(column, nullable);
    }

    /// Removes a column.
    pub fn remove(&mut self, column: Column) {
        self.0.remove(&column);
    }

    /// Adds the columns of another one.
    pub fn merge(self, other: Scope) -> Scope {
        let (mut large, small) = if self.0.len() < other.0.len() { (other, self) } else { (self, other) };
        large.0.extend(small.0);
        large
    }

    fn padded(mut self) -> Scope {
        self.0.values_mut().for_each(|nullable| *nullable = true);
        self
    }

    fn without_null(mut self, conditions: &[Scalar]) -> Scope {
        for column in conditions.iter().flat_map(rejects_null) {
            if let Some(nullable) = self.0.get_mut(&column) {
                *nullable = false;
            }
        }
        self
    }
}

/// What an operator gives, from what its inputs give.
pub fn scope_above(plan: &Plan, node: NodeId, mut inputs: Vec<Scope>) -> Scope {
    let operator = &plan[node];
    let mut scope = match operator {
        Operator::Scan(_)
        | Operator::Values { .. }
        | Operator::TableFunction(_)
        | Operator::IterateRead { .. }
        | Operator::SharedRead { .. }
        | Operator::UnionAll { .. }
        | Operator::Iterate(_)
        | Operator::Insert(_) => Scope::default(),
        Operator::Group(group) => {
            let below = inputs.pop().expect("it has an input");
            let keys = group.keys.iter().filter(|_| group.sets.is_none());
            Scope(keys.map(|key| (*key, below.nullable(*key))).collect())
        }
        Operator::Filter { conditions, .. } => {
            inputs.pop().expect("it has an input").without_null(conditions)
        }
        Operator::Join(join) => {
            let right = inputs.pop().expect("it has two inputs");
            let left = inputs.pop().expect("it has two inputs");
            match join.kind {
                JoinKind::Inner => left.merge(right).without_null(&join.conditions),
                JoinKind::Left | JoinKind::Single => left.merge(right.padded()),
                JoinKind::Full => left.merge(right).padded(),
                JoinKind::Semi => left.without_null(&join.conditions),
                JoinKind::Anti | JoinKind::Mark => left,
            }
        }
        Operator::Shared { .. } => inputs.pop().expect("it has a body"),
        Operator::FlatMap { .. }
        | Operator::Map { .. }
        | Operator::Window(_)
        | Operator::Sort { .. }
        | Operator::Limit(_)
        | Operator::DistinctOn { .. }
        | Operator::Sample { .. }
        | Operator::Lock { .. }
        | Operator::Update(_)
        | Operator::Delete { .. }
        | Operator::Merge(_) => inputs.pop().expect("it has an input"),
    };
    for column in operator.produced() {
        scope.set(column, plan.columns[column].nullable);
    }
    match operator {
        Operator::Scan(scan) => scope.without_null(&scan.conditions),
        _ => scope,
    }
}

/// What a sub-plan gives.
pub fn scope(plan: &Plan, root: NodeId) -> Scope {
    let mut scopes: HashMap<NodeId, Scope> = HashMap::new();
    for node in plan.post_order_of(root) {
        let inputs = plan[node].inputs();
        let below = inputs.iter().map(|input| scopes.remove(input).expect("inputs come first")).collect();
        scopes.insert(node, scope_above(plan, node, below));
    }
    scopes.remove(&root).expect("the root comes last")
}

/// Declares columns as nullable that are no longer known not to be NULL. A rewrite that moves conditions calls it:
/// a column is then as it was, but what shows it may be gone.
pub fn widen_nullability(plan: &mut Plan) {
    let order = plan.post_order();
    let computes = |node: &NodeId| match &plan[*node] {
        Operator::Map { .. }
        | Operator::UnionAll { .. }
        | Operator::Iterate(_)
        | Operator::IterateRead { .. }
        | Operator::SharedRead { .. } => true,
        Operator::Values { columns, .. } => !columns.is_empty(),
        Operator::Group(group) => group.sets.is_some(),
        Operator::Join(join) => join.mark.is_some(),
        _ => false,
    };
    if !order.iter().any(computes) {
        return;
    }
    loop {
        let mut changed = false;
        let mut scopes: HashMap<NodeId, Scope> = HashMap::new();
        let mut iterations: HashMap<IterateId, Vec<Column>> = HashMap::new();
        let mut shared: HashMap<SharedId, Scope> = HashMap::new();
        for &node in &order {
            if let Operator::Iterate(iterate) = &plan[node] {
                iterations.insert(iterate.id, iterate.columns.clone());
            }
        }
        for &node in &order {
            let inputs = plan[node].inputs();
            let below: Vec<Scope> =
                inputs.iter().map(|input| scopes.remove(input).expect("inputs come first")).collect();
            // What may be NULL of what is produced. Outer columns count as such.
            let nullable = |column: Column| match below.iter().find(|scope| scope.has(column)) {
                Some(scope) => scope.nullable(column),
                None => true,
            };
            let mut found = Vec::new();
            let mut copies = |to: &[Column], from: &[Column], nullable: &dyn Fn(Column) -> bool| {
                found.extend(to.iter().zip(from).filter(|(_, from)| nullable(**from)).map(|(to, _)| *to));
            };
            match &plan[node] {
                Operator::Map { outputs, .. } => {
                    let computed = outputs.iter().filter(|(_, scalar)| scalar.nullable(&nullable));
                    found.extend(computed.map(|(column, _)| *column));
                }
                Operator::Values { columns, rows } => {
                    for row in rows {
                        let computed = columns.iter().zip(row);
                        let computed = computed.filter(|(_, scalar)| scalar.nullable(&|_| true));
                        found.extend(computed.map(|(column, _)| *column));
                    }
                }
                Operator::Group(group) => {
                    if let Some(sets) = &group.sets {
                        copies(&sets.columns, &group.keys, &nullable);
                    }
                }
                Operator::Join(join) => {
                    let may_be_null = join.conditions.iter().any(|scalar| scalar.nullable(&nullable));
                    found.extend(join.mark.filter(|_| may_be_null));
                }
                Operator::UnionAll { columns, inputs } => {
                    // Each list is of its own input; to look for its columns in all of them would take the square of their number.
                    for ((_, list), scope) in inputs.iter().zip(&below) {
                        copies(columns, list, &|column| scope.nullable(column));
                    }
                }
                Operator::Iterate(iterate) => {
                    copies(&iterate.columns, &iterate.initial_columns, &nullable);
                    copies(&iterate.columns, &iterate.step_columns, &nullable);
                }
                Operator::IterateRead { iterate, columns } => {
                    let declared = |column: Column| plan.columns[column].nullable;
                    copies(columns, &iterations[iterate], &declared);
                }
                _ => {}
            }
            for column in found {
                changed |= !std::mem::replace(&mut plan.columns[column].nullable, true);
            }
            let mut below = below;
            if let Operator::Shared { id, .. } = &plan[node] {
                shared.insert(*id, std::mem::take(&mut below[0]));
            }
            scopes.insert(node, scope_above(plan, node, below));
        }
        // Readers come before what they read is known. If that widens some, all is asked once more.
        for &node in &order {
            if let Operator::SharedRead { id, columns } = &plan[node] {
                let scope = &shared[id];
                let wider = columns.iter().filter(|(_, of)| scope.nullable(*of));
                let wider: Vec<Column> = wider.map(|(own, _)| *own).collect();
                for column in wider {
                    changed |= !std::mem::replace(&mut plan.columns[column].nullable, true);
                }
            }
        }
        if !changed {
            return;
        }
    }
}

/// Columns that cannot be NULL where a condition is TRUE.
pub fn rejects_null(condition: &Scalar) -> HashSet<Column> {
    match condition {
        Scalar::And(list) => list.iter().flat_map(rejects_null).collect(),
        Scalar::Or(list) => {
            let mut each = list.iter().map(rejects_null);
            let first = each.next().unwrap_or_default();
            each.fold(first, |all, next| all.intersection(&next).copied().collect())
        }
        Scalar::IsNull(argument, true) => {
            let mut columns = HashSet::new();
            strict_columns(argument, &mut columns);
            columns
        }
        Scalar::Test(argument, Some(true), false) => rejects_null(argument),
        Scalar::Test(argument, Some(false), false) | Scalar::Test(argument, None, true) => {
            let mut columns = HashSet::new();
            strict_columns(argument, &mut columns);
            columns
        }
        other => {
            let mut columns = HashSet::new();
            strict_columns(other, &mut columns);
            columns
        }
    }
}

/// Columns that make a scalar NULL if they are NULL.
fn strict_columns(scalar: &Scalar, columns: &mut HashSet<Column>) {
    match scalar {
        Scalar::Column(column) => {
            columns.insert(*column);
        }
        Scalar::Call(call) if call.function.strict => {
            call.arguments.iter().for_each(|argument| strict_columns(argument, columns));
        }
        Scalar::Cast(cast) if cast.function.as_ref().is_none_or(|function| function.strict) => {
            strict_columns(&cast.argument, columns);
        }
        Scalar::Not(argument) | Scalar::Field(argument, ..) => strict_columns(argument, columns),
        Scalar::Quantified(quantified) if quantified.function.strict => {
            // Over no values it is not NULL.
            if matches!(&quantified.values, Values::List(list) if !list.is_empty()) {
                strict_columns(&quantified.argument, columns);
            }
        }
        _ => {}
    }
}

/// Whether a sub-plan gives at most one row for each row of the outer query.
pub fn gives_at_most_one_row(plan: &Plan, node: NodeId) -> bool {
    let mut node = node;
    loop {
        node = match &plan[node] {
            Operator::Values { rows, .. } => return rows.len() <= 1,
            Operator::Group(Group { keys, sets: None, .. }) if keys.is_empty() => return true,
            Operator::Limit(limit) => {
                let one = |scalar: &Scalar| matches!(scalar, Scalar::Constant(_, Value::BigInt(0 | 1)));
                if limit.ties.is_none() && limit.count.as_ref().is_some_and(one) {
                    return true;
                }
                limit.input
            }
            Operator::Filter { input, .. }
            | Operator::Map { input, .. }
            | Operator::Window(crate::operator::Window { input, .. })
            | Operator::Sort { input, .. }
            | Operator::DistinctOn { input, .. }
            | Operator::Sample { input, .. }
            | Operator::Lock { input, .. } => *input,
            Operator::Shared { body, .. } => *body,
            Operator::Join(join) if !join.kind.gives_right() => join.left,
            _ => return false,
        }
    }
}

/// Whether evaluating an operator's own scalars and functions may raise an error, or has an effect on others.
pub fn can_fail(plan: &Plan, node: NodeId) -> bool {
    let operator = &plan[node];
    let mut found = false;
    operator.for_each_scalar(|scalar| found = found || scalar.can_fail());
    found
        || match operator {
            Operator::Join(join) => join.kind == JoinKind::Single && !gives_at_most_one_row(plan, join.right),
            Operator::Group(group) => group.aggregates.iter().any(|aggregate| aggregate.function.can_fail),
            Operator::Window(window) => window.calls.iter().any(|call| call.function.can_fail),
            Operator::TableFunction(calls) | Operator::FlatMap { calls, .. } => {
                calls.calls.iter().any(|call| call.function.can_fail)
            }
            Operator::Lock { .. }
            | Operator::Insert(_)
            | Operator::Update(_)
            | Operator::Delete { .. }
            | Operator::Merge(_) => true,
            _ => false,
        }
}

/// Whether evaluating an operator twice may give two results, or has effects twice.
pub fn is_volatile(plan: &Plan, node: NodeId) -> bool {
    match &plan[node] {
        Operator::Sample { seed: None, .. } | Operator::Lock { .. } => true,
        _ => calls(plan, node, &mut Function::is_volatile),
    }
}

/// Whether an operator itself calls a function of which `is` holds, in its scalars or otherwise.
pub fn calls(plan: &Plan, node: NodeId, is: &mut impl FnMut(&Function) -> bool) -> bool {
    let operator = &plan[node];
    let mut found = false;
    operator.for_each_scalar(|scalar| found = found || scalar.calls(is));
    found
        || match operator {
            Operator::Group(group) => group.aggregates.iter().any(|aggregate| is(&aggregate.function)),
            Operator::Window(window) => window.calls.iter().any(|call| is(&call.function)),
            Operator::TableFunction(calls) | Operator::FlatMap { calls, .. } => {
                calls.calls.iter().any(|call| is(&call.function))
            }
            _ => false,
        }
}

/// For each column the operator that produces it, and for each operator which part of the plan lies below it.
pub struct Producers {
    /// Where in the post-order each operator stands, and the first operator of its sub-plan.
    spans: Vec<(u32, u32)>,
    producers: Vec<u32>,
}

impl Producers {
    /// Of all operators that the root reaches.
    pub fn of(plan: &Plan) -> Producers {
        let mut spans = vec![(u32::MAX, u32::MAX); plan.size()];
        let mut producers = vec![u32::MAX; plan.columns.len()];
        for (position, node) in plan.post_order().into_iter().enumerate() {
            let position = position as u32;
            let first = plan[node].inputs().first().map_or(position, |input| spans[input.index()].0);
            spans[node.index()] = (first, position);
            for column in plan[node].produced() {
                producers[column.0 as usize] = position;
            }
        }
        Producers { spans, producers }
    }

    /// Whether a column is produced in the sub-plan of `node`.
    pub fn is_below(&self, column: Column, node: NodeId) -> bool {
        let (first, last) = self.spans[node.index()];
        let producer = self.producers[column.0 as usize];
        first <= producer && producer <= last
    }
}

/// The columns of outer queries that sub-plans use, for each operator, sorted. Reading a shared sub-plan or the
/// round before of a recursion uses what that one uses. `extra` adds columns to those that an operator uses.
pub fn outer_columns(
    plan: &Plan,
    producers: &Producers,
    extra: &HashMap<NodeId, Vec<Column>>,
) -> Vec<Vec<Column>> {
    let mut outer: Vec<Vec<Column>> = vec![Vec::new(); plan.size()];
    let order = plan.post_order();
    let (mut shared, mut iterations) = (HashMap::new(), HashMap::new());
    // What is read is known where it is defined, above its readers: the next round passes it on to them.
    loop {
        let mut changed = false;
        for &node in &order {
            let operator = &plan[node];
            let mut used = extra.get(&node).cloned().unwrap_or_default();
            operator.for_each_scalar(|scalar| scalar.for_each_column(&mut |column| used.push(column)));
            match operator {
                Operator::SharedRead { id, .. } => used.extend(shared.get(id).into_iter().flatten()),
                Operator::IterateRead { iterate, .. } => {
                    used.extend(iterations.get(iterate).into_iter().flatten());
                }
                _ => {}
            }
            for input in operator.inputs() {
                used.extend_from_slice(&outer[input.index()]);
            }
            used.retain(|column| !producers.is_below(*column, node) && !is_local(operator, *column));
            used.sort_unstable();
            used.dedup();
            match operator {
                Operator::Shared { id, definition, .. } => {
                    let known = outer[definition.index()].clone();
                    changed |= shared.insert(*id, known.clone()).unwrap_or_default() != known;
                }
                Operator::Iterate(iterate) => {
                    let before = iterations.insert(iterate.id, used.clone());
                    changed |= before.unwrap_or_default() != used;
                }
                _ => {}
            }
            outer[node.index()] = used;
        }
        if !changed {
            return outer;
        }
    }
}

/// Columns that are seen in one part of an operator only.
fn is_local(operator: &Operator, column: Column) -> bool {
    let Operator::Insert(insert) = operator else { return false };
    insert
        .conflicts
        .iter()
        .filter_map(|arm| arm.update.as_ref())
        .any(|update| update.existing.iter().chain(&update.excluded).any(|(existing, _)| *existing == column))
}

/// Whether two types mean the same and lie in memory alike.
pub fn same_form(left: firn_base::Type, right: firn_base::Type) -> bool {
    left.id == right.id && left.representation() == right.representation()
}

/// Whether no function can distinguish equal values of a column.
pub fn equality_is_identity(columns: &Columns, column: Column) -> bool {
    columns[column].ty.representation().is_some_and(|form| form.equality_is_of_bits())
}
