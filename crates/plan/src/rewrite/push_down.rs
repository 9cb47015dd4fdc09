//! Push-down: conditions go to where their columns come from.
//!
//! A filter's conditions go below other operators as far as they remove the same rows there, into
//! the conditions of inner joins, and into scans. Conditions of a join that use one side go into that side.
//!
//! What is compared with a constant on one side of an equality of a join is compared on the other side as well.
//!
//! Errors are lazy: a condition that can fail stays where it is, above all that can remove its
//! rows, while others pass it by. A volatile condition stays as well. All conditions right above locks of rows go below them.

use crate::column::Column;
use crate::faults::Fault;
use crate::operator::{Join, JoinKind, Operator};
use crate::plan::{NodeId, Plan};
use crate::properties::{Producers, widen_nullability};
use crate::scalar::Scalar;
use std::collections::HashMap;

/// A scalar with more parts than this is not computed a second time to let a condition pass.
const SMALL: usize = 8;

/// Pushes all conditions down.
pub fn push_down(plan: &mut Plan) {
    let mut pusher = Pusher { producers: Producers::of(plan), plan };
    let root = pusher.push(pusher.plan.root, Vec::new());
    pusher.plan.root = root;
    widen_nullability(plan);
}

struct Pusher<'a> {
    producers: Producers,
    plan: &'a mut Plan,
}

fn may_move(condition: &Scalar) -> bool {
    !condition.can_fail() && (Fault::VolatileMoved.is_made() || !condition.is_volatile())
}

impl Pusher<'_> {
    /// Whether a condition uses columns of a sub-plan, and no others that are produced within `around`.
    fn is_of(&self, condition: &Scalar, node: NodeId, around: NodeId) -> bool {
        !condition
            .uses(|column| self.producers.is_below(column, around) && !self.producers.is_below(column, node))
    }

    fn uses_below(&self, condition: &Scalar, node: NodeId) -> bool {
        condition.uses(|column| self.producers.is_below(column, node))
    }

    fn filter(&mut self, input: NodeId, conditions: Vec<Scalar>) -> NodeId {
        if conditions.is_empty() {
            return input;
        }
        self.plan.add(Operator::Filter { input, conditions })
    }

    /// A sub-plan with conditions above it pushed into it. All conditions may move.
    fn push(&mut self, node: NodeId, mut conditions: Vec<Scalar>) -> NodeId {
        match self.plan.take(node) {
            Operator::Filter { input, conditions: own } => {
                let (moving, staying): (Vec<_>, Vec<_>) = own.into_iter().partition(may_move);
                conditions.splice(0..0, moving);
                let input = self.push(input, conditions);
                let staying = self.below_locks(input, staying);
                if staying.is_empty() {
                    return input;
                }
                self.plan[node] = Operator::Filter { input, conditions: staying };
                node
            }
            // Rows that are left out are not locked.
            Operator::Lock { input, targets } => {
                let input = self.push(input, conditions);
                self.plan[node] = Operator::Lock { input, targets };
                node
            }
            Operator::Scan(mut scan) => {
                // The source asks them in its order; what can fail comes last.
                let at = scan.conditions.iter().position(|condition| !may_move(condition));
                let at = at.unwrap_or(scan.conditions.len());
                let new = conditions.into_iter().filter(|condition| !scan.conditions.contains(condition));
                let new: Vec<Scalar> = new.collect();
                scan.conditions.splice(at..at, new);
                self.plan[node] = Operator::Scan(scan);
                node
            }
            Operator::Map { input, outputs } => {
                let (mut below, mut above) = (Vec::new(), Vec::new());
                let made: HashMap<Column, &Scalar> =
                    outputs.iter().map(|(column, scalar)| (*column, scalar)).collect();
                for condition in conditions {
                    match inlined(&condition, &made) {
                        Some(condition) => below.push(condition),
                        None => above.push(condition),
                    }
                }
                let input = self.push(input, below);
                self.plan[node] = Operator::Map { input, outputs };
                self.filter(node, above)
            }
            Operator::Join(join) => self.join(node, join, conditions),
            Operator::Group(mut group) => {
                // An empty set gives a row of no rows as well.
                let any = group.sets.is_none() && !group.keys.is_empty();
                let (below, above) = self.split(conditions, node, |column| group.keys.contains(&column), any);
                group.input = self.push(group.input, below);
                self.plan[node] = Operator::Group(group);
                self.filter(node, above)
            }
            Operator::Window(mut window) => {
                let partition = window.partition.clone();
                let passes = |column| partition.contains(&column);
                let (below, above) = self.split(conditions, node, passes, true);
                window.input = self.push(window.input, below);
                self.plan[node] = Operator::Window(window);
                self.filter(node, above)
            }
            Operator::DistinctOn { input, keys, order } => {
                let (below, above) = self.split(conditions, node, |column| keys.contains(&column), true);
                let input = self.push(input, below);
                self.plan[node] = Operator::DistinctOn { input, keys, order };
                self.filter(node, above)
            }
            Operator::FlatMap { input, calls } => {
                let (below, above): (Vec<_>, Vec<_>) =
                    conditions.into_iter().partition(|condition| self.is_of(condition, input, node));
                let input = self.push(input, below);
                self.plan[node] = Operator::FlatMap { input, calls };
                self.filter(node, above)
            }
            Operator::Sort { input, keys } => {
                let input = self.push(input, conditions);
                self.plan[node] = Operator::Sort { input, keys };
                node
            }
            Operator::UnionAll { columns, mut inputs } => {
                for (input, list) in &mut inputs {
                    let own = conditions.iter().map(|condition| {
                        let mut condition = condition.clone();
                        condition.rename(&mut |column| {
                            let index = columns.iter().position(|other| *other == column);
                            index.map_or(column, |index| list[index])
                        });
                        condition
                    });
                    let own = own.collect();
                    *input = self.push(*input, own);
                }
                self.plan[node] = Operator::UnionAll { columns, inputs };
                node
            }
            Operator::Shared { id, definition, body } => {
                let definition = self.push(definition, Vec::new());
                let body = self.push(body, conditions);
                self.plan[node] = Operator::Shared { id, definition, body };
                node
            }
            Operator::Limit(mut limit) if Fault::LimitBelowFilter.is_made() => {
                limit.input = self.push(limit.input, conditions);
                self.plan[node] = Operator::Limit(limit);
                node
            }
            mut other => {
                let mut inputs = Vec::new();
                other.for_each_input_mut(|input| inputs.push(*input));
                let pushed: Vec<NodeId> =
                    inputs.into_iter().map(|input| self.push(input, Vec::new())).collect();
                let mut pushed = pushed.into_iter();
                other.for_each_input_mut(|input| *input = pushed.next().expect("one for each"));
                self.plan[node] = other;
                self.filter(node, conditions)
            }
        }
    }

    /// Puts conditions that stay where they are below locks that they are right above. The others are returned.
    fn below_locks(&mut self, node: NodeId, conditions: Vec<Scalar>) -> Vec<Scalar> {
        if conditions.is_empty() {
            return conditions;
        }
        match self.plan.take(node) {
            Operator::Lock { input, targets } => {
                let input = self.filter(input, conditions);
                self.plan[node] = Operator::Lock { input, targets };
                Vec::new()
            }
            Operator::Map { input, outputs } => {
                let made: HashMap<Column, &Scalar> =
                    outputs.iter().map(|(column, scalar)| (*column, scalar)).collect();
                let inlined: Option<Vec<Scalar>> =
                    conditions.iter().map(|condition| inlined(condition, &made)).collect();
                let left = match inlined {
                    Some(inlined) => match self.below_locks(input, inlined).is_empty() {
                        true => Vec::new(),
                        false => conditions,
                    },
                    None => conditions,
                };
                self.plan[node] = Operator::Map { input, outputs };
                left
            }
            other => {
                self.plan[node] = other;
                conditions
            }
        }
    }

    /// Conditions that use, of what is produced below, only columns that pass, and the others.
    fn split(
        &self,
        conditions: Vec<Scalar>,
        node: NodeId,
        passes: impl Fn(Column) -> bool,
        any: bool,
    ) -> (Vec<Scalar>, Vec<Scalar>) {
        conditions.into_iter().partition(|condition| {
            any && !condition.uses(|column| self.producers.is_below(column, node) && !passes(column))
        })
    }

    fn join(&mut self, node: NodeId, mut join: Join, conditions: Vec<Scalar>) -> NodeId {
        let (mut to_left, mut to_right, mut above) = (Vec::new(), Vec::new(), Vec::new());
        for condition in conditions {
            let of_left = self.is_of(&condition, join.left, node);
            let of_right = self.is_of(&condition, join.right, node);
            match join.kind {
                JoinKind::Inner if of_left => to_left.push(condition),
                JoinKind::Inner if of_right => to_right.push(condition),
                JoinKind::Inner => join.conditions.push(condition),
                JoinKind::Full => above.push(condition),
                _ if of_left => to_left.push(condition),
                _ => above.push(condition),
            }
        }
        let own = std::mem::take(&mut join.conditions);
        for condition in own {
            // One that uses neither side says the same of all pairs.
            let uses_left = self.uses_below(&condition, join.left);
            let uses_right = self.uses_below(&condition, join.right);
            let moves = may_move(&condition) && uses_left != uses_right;
            match join.kind {
                JoinKind::Inner | JoinKind::Semi if moves && uses_left => to_left.push(condition),
                JoinKind::Inner | JoinKind::Semi | JoinKind::Left | JoinKind::Single | JoinKind::Anti
                    if moves && uses_right =>
                {
                    to_right.push(condition);
                }
                _ => join.conditions.push(condition),
            }
        }
        // An equality of two columns of one side says nothing about the other side.
        let of_side = |conditions: Vec<Scalar>, side: NodeId| -> Vec<Scalar> {
            let is_of = |condition: &Scalar| self.is_of(condition, side, node);
            conditions.into_iter().filter(is_of).collect()
        };
        let of_left = of_side(derived(&join, &to_left), join.right);
        let of_right = of_side(derived(&join, &to_right), join.left);
        match join.kind {
            JoinKind::Inner | JoinKind::Semi => {
                add_new(&mut to_right, of_left);
                add_new(&mut to_left, of_right);
            }
            // Right rows that no left row of these can match are left out.
            JoinKind::Left | JoinKind::Single | JoinKind::Anti => add_new(&mut to_right, of_left),
            JoinKind::Full | JoinKind::Mark => {}
        }
        join.left = self.push(join.left, to_left);
        join.right = self.push(join.right, to_right);
        self.plan[node] = Operator::Join(join);
        self.filter(node, above)
    }
}

/// Comparisons of one column with a constant, for the columns that conditions of a join equate with that one.
fn derived(join: &Join, conditions: &[Scalar]) -> Vec<Scalar> {
    let mut list = Vec::new();
    for condition in conditions {
        let Scalar::Call(call) = condition else { continue };
        let compared = match &call.arguments[..] {
            [Scalar::Column(column), Scalar::Constant(..) | Scalar::Parameter(..)]
            | [Scalar::Constant(..) | Scalar::Parameter(..), Scalar::Column(column)] => *column,
            _ => continue,
        };
        if call.function.strategy.is_none() {
            continue;
        }
        for equality in &join.conditions {
            let Scalar::Call(equality) = equality else { continue };
            let [Scalar::Column(left), Scalar::Column(right)] = equality.arguments[..] else { continue };
            // An equality of one type; others may hold for values that differ in their own.
            let one_type = equality.function.argument(0) == equality.function.argument(1);
            if !equality.function.is_equality() || !one_type || (left != compared && right != compared) {
                continue;
            }
            let other = if left == compared { right } else { left };
            let mut condition = condition.clone();
            condition.rename(&mut |column| if column == compared { other } else { column });
            list.push(condition);
        }
    }
    list
}

fn add_new(list: &mut Vec<Scalar>, conditions: Vec<Scalar>) {
    for condition in conditions {
        if !list.contains(&condition) {
            list.push(condition);
        }
    }
}

/// A condition over a map's input: columns that the map makes are replaced by their scalars, if these are small
/// and may be evaluated elsewhere.
fn inlined(condition: &Scalar, made: &HashMap<Column, &Scalar>) -> Option<Scalar> {
    if !condition.uses(|column| made.contains_key(&column)) {
        return Some(condition.clone());
    }
    let mut ok = true;
    condition.for_each_column(&mut |column| {
        if let Some(scalar) = made.get(&column) {
            let mut parts = 0;
            scalar.any(&mut |_| {
                parts += 1;
                false
            });
            ok &= may_move(scalar) && parts <= SMALL;
        }
    });
    if !ok {
        return None;
    }
    let mut condition = condition.clone();
    replace(&mut condition, made);
    Some(condition)
}

fn replace(scalar: &mut Scalar, made: &HashMap<Column, &Scalar>) {
    match scalar {
        Scalar::Column(column) => {
            if let Some(found) = made.get(column) {
                *scalar = (*found).clone();
            }
        }
        _ => scalar.for_each_child_mut(|child| replace(child, made)),
    }
}
