//! Common sub-expressions: what an operator's scalars compute more than once is computed once, in a map below it.
//!
//! Only what cannot fail and is not volatile is shared, since it is then evaluated for rows that a CASE, AND or FILTER would not
//! have let reach it; and only if one of its places is evaluated for every row. The beginning of a chain of operators counts as
//! an expression: `a * b` is common to `a * b * c` and `a * b * d`.

use crate::column::{Column, ColumnInfo};
use crate::operator::Operator;
use crate::plan::{NodeId, Plan};
use crate::properties;
use crate::scalar::{Call, Scalar};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Expressions of one operator that are shared at most.
const MOST_SHARED: usize = 16;
/// The operands of a chain whose beginnings are looked at.
const MOST_OPERANDS: usize = 8;

/// Shares the common sub-expressions of all operators that compute values for each row.
pub fn share_expressions(plan: &mut Plan) {
    for node in plan.post_order() {
        let mut at = node;
        // What is shared may have common parts itself.
        for _ in 0..MOST_SHARED {
            match share(plan, at) {
                Some(below) => at = below,
                None => break,
            }
        }
    }
}

/// Shares the expressions of one operator in a map below it, which is returned.
fn share(plan: &mut Plan, node: NodeId) -> Option<NodeId> {
    let input = match &plan[node] {
        Operator::Map { input, .. } => *input,
        Operator::Group(group) => group.input,
        _ => return None,
    };
    let mut shared: Vec<(Column, Scalar)> = Vec::new();
    while shared.len() < MOST_SHARED {
        let Some(common) = largest_common(&plan[node]) else { break };
        // The map's outputs use its input alone.
        if common.uses(|column| shared.iter().any(|(own, _)| *own == column)) {
            break;
        }
        let info = ColumnInfo::new(common.ty(&plan.columns), true);
        let column = plan.columns.add(info);
        let mut operator = plan.take(node);
        operator.for_each_scalar_mut(|scalar| replace(scalar, &common, column));
        plan[node] = operator;
        shared.push((column, common));
    }
    if shared.is_empty() {
        return None;
    }
    let scope = properties::scope(plan, input);
    for (column, scalar) in &shared {
        plan.columns[*column].nullable = scalar.nullable(&|used| scope.nullable(used));
    }
    let map = plan.add(Operator::Map { input, outputs: shared });
    match &mut plan[node] {
        Operator::Map { input, .. } => *input = map,
        Operator::Group(group) => group.input = map,
        _ => unreachable!("it is one of these"),
    }
    Some(map)
}

/// A place of an expression.
struct Place<'a> {
    expression: Expression<'a>,
    digest: u64,
    size: usize,
    is_conditional: bool,
}

/// An expression, or the first operands of a chain.
#[derive(Clone, Copy)]
enum Expression<'a> {
    Whole(&'a Scalar),
    Beginning(&'a Call, usize),
}

impl Expression<'_> {
    fn to_scalar(self) -> Scalar {
        match self {
            Expression::Whole(scalar) => scalar.clone(),
            Expression::Beginning(call, count) => {
                let arguments = call.arguments[..count].to_vec();
                Scalar::Call(Box::new(Call { arguments, ..call.clone() }))
            }
        }
    }

    fn is(self, other: Expression<'_>) -> bool {
        let call = |expression: Expression<'_>| match expression {
            Expression::Whole(Scalar::Call(call)) => Some((call.function.oid, call.arguments.len())),
            Expression::Whole(_) => None,
            Expression::Beginning(call, count) => Some((call.function.oid, count)),
        };
        match (self, other) {
            (Expression::Whole(one), Expression::Whole(other)) => one == other,
            _ => call(self) == call(other) && self.to_scalar() == other.to_scalar(),
        }
    }
}

/// The largest expression with two places.
fn largest_common(operator: &Operator) -> Option<Scalar> {
    let mut places = Vec::new();
    match operator {
        Operator::Group(group) => {
            for aggregate in &group.aggregates {
                let is_filtered = aggregate.filter.is_some();
                for argument in &aggregate.arguments {
                    collect(argument, is_filtered, &mut places);
                }
                aggregate.filter.iter().for_each(|filter| _ = collect(filter, false, &mut places));
            }
        }
        other => other.for_each_scalar(|scalar| _ = collect(scalar, false, &mut places)),
    }
    let mut by_digest: HashMap<u64, Vec<&Place<'_>>> = HashMap::new();
    for place in &places {
        by_digest.entry(place.digest).or_default().push(place);
    }
    let mut best: Option<&Place<'_>> = None;
    // In the order of the text, so that equal plans are planned alike.
    for place in places.iter().filter(|place| !place.is_conditional) {
        if best.is_some_and(|best| best.size >= place.size) {
            continue;
        }
        let same = by_digest[&place.digest].iter().filter(|other| other.expression.is(place.expression));
        if same.count() > 1 {
            best = Some(place);
        }
    }
    best.map(|place| place.expression.to_scalar())
}

/// What is known of a sub-expression: a digest, how many calls it has, and whether it may be shared.
#[derive(Clone, Copy)]
struct Known {
    digest: u64,
    size: usize,
    is_free: bool,
    uses_columns: bool,
}

/// Collects the places of expressions that may be shared.
fn collect<'a>(scalar: &'a Scalar, is_conditional: bool, places: &mut Vec<Place<'a>>) -> Known {
    let mut hasher = DefaultHasher::new();
    std::mem::discriminant(scalar).hash(&mut hasher);
    let (mut size, mut is_free) = (0, true);
    let mut uses_columns = matches!(scalar, Scalar::Column(_));
    let mut children: Vec<Known> = Vec::new();
    // Of CASE, COALESCE, AND and OR the first operand alone is evaluated for every row.
    let is_lazy = matches!(
        scalar,
        Scalar::Case(_) | Scalar::Coalesce(_) | Scalar::And(_) | Scalar::Or(_) | Scalar::Quantified(_)
    );
    scalar.for_each_child(|child| {
        let known = collect(child, is_conditional || is_lazy && !children.is_empty(), places);
        known.digest.hash(&mut hasher);
        size += known.size;
        is_free &= known.is_free;
        uses_columns |= known.uses_columns;
        children.push(known);
    });
    match scalar {
        Scalar::Column(column) => column.hash(&mut hasher),
        Scalar::Constant(ty, value) => {
            ty.id.hash(&mut hasher);
            format!("{value:?}").hash(&mut hasher);
        }
        Scalar::Parameter(number, _) => number.hash(&mut hasher),
        Scalar::CaseValue(_) => is_free = false,
        Scalar::Call(call) => {
            // A chain applies its operator between all operands.
            size += call.arguments.len().saturating_sub(1).max(1);
            call.function.oid.hash(&mut hasher);
            let function = &call.function;
            is_free &= !function.can_fail && !function.is_volatile();
            if function.is_chain(call.arguments.len()) && is_free {
                let kind = std::mem::discriminant(scalar);
                add_beginnings(call, kind, &children, is_conditional, places);
            }
        }
        Scalar::Cast(cast) => {
            size += 1;
            cast.ty.id.hash(&mut hasher);
            let is_volatile = cast.function.as_ref().is_some_and(|function| function.is_volatile());
            is_free &= !cast.can_fail && !is_volatile;
        }
        Scalar::Quantified(quantified) => {
            size += 1;
            is_free &= !quantified.function.can_fail && !quantified.function.is_volatile();
        }
        Scalar::Case(_) => size += 1,
        _ => {}
    }
    let digest = hasher.finish();
    let is_call = matches!(scalar, Scalar::Call(_) | Scalar::Cast(_) | Scalar::Case(_));
    if is_call && is_free && uses_columns {
        places.push(Place { expression: Expression::Whole(scalar), digest, size, is_conditional });
    }
    Known { digest, size, is_free, uses_columns }
}

/// Adds the beginnings of a chain, with the digest that a call of these operands alone has.
fn add_beginnings<'a>(
    call: &'a Call,
    kind: std::mem::Discriminant<Scalar>,
    operands: &[Known],
    is_conditional: bool,
    places: &mut Vec<Place<'a>>,
) {
    for count in 2..call.arguments.len().min(MOST_OPERANDS) {
        let mut hasher = DefaultHasher::new();
        kind.hash(&mut hasher);
        operands[..count].iter().for_each(|operand| operand.digest.hash(&mut hasher));
        call.function.oid.hash(&mut hasher);
        let size = count - 1 + operands[..count].iter().map(|operand| operand.size).sum::<usize>();
        if operands[..count].iter().any(|operand| operand.uses_columns) {
            let expression = Expression::Beginning(call, count);
            places.push(Place { expression, digest: hasher.finish(), size, is_conditional });
        }
    }
}

/// Replaces an expression by a column.
fn replace(scalar: &mut Scalar, expression: &Scalar, column: Column) {
    if scalar == expression {
        *scalar = Scalar::Column(column);
        return;
    }
    if let (Scalar::Call(call), Scalar::Call(beginning)) = (&mut *scalar, expression)
        && call.function == beginning.function
        && call.function.is_chain(call.arguments.len())
        && call.arguments.len() > beginning.arguments.len()
        && call.arguments.starts_with(&beginning.arguments)
    {
        call.arguments.splice(..beginning.arguments.len(), [Scalar::Column(column)]);
    }
    scalar.for_each_child_mut(|child| replace(child, expression, column));
}
