//! Semi and anti joins: a mark that does nothing but choose rows is not computed.
//!
//! A filter above a mark join that keeps the rows whose mark is TRUE makes it a semi join. One that keeps the rows whose mark is
//! FALSE makes it an anti join, if the mark is never NULL: `NOT IN` over values that may be NULL stays as it is.

use crate::column::Column;
use crate::operator::{JoinKind, Operator};
use crate::plan::{NodeId, Plan};
use crate::scalar::Scalar;
use std::collections::HashMap;

/// Makes semi and anti joins of mark joins.
pub fn use_marks(plan: &mut Plan) {
    let order = plan.post_order();
    let mut uses: HashMap<Column, usize> = HashMap::new();
    for &node in &order {
        if let Operator::Join(join) = &plan[node] {
            uses.extend(join.mark.map(|mark| (mark, 0)));
        }
    }
    if uses.is_empty() {
        return;
    }
    let mut count = |column: Column| {
        if let Some(count) = uses.get_mut(&column) {
            *count += 1;
        }
    };
    plan.output.iter().copied().for_each(&mut count);
    for &node in &order {
        plan[node].for_each_named_column(&mut count);
        plan[node].for_each_scalar(|scalar| scalar.for_each_column(&mut count));
        if let Operator::SharedRead { columns, .. } = &plan[node] {
            columns.iter().for_each(|(_, of)| count(*of));
        }
    }
    for node in order {
        let Operator::Filter { input, conditions } = &plan[node] else { continue };
        let input = *input;
        let Some((place, mark, kind)) = choice(plan, input, conditions) else { continue };
        if uses[&mark] > 1 {
            continue;
        }
        let Operator::Filter { conditions, .. } = &mut plan[node] else { unreachable!("it is a filter") };
        conditions.remove(place);
        let is_empty = conditions.is_empty();
        let Operator::Join(join) = &mut plan[input] else { unreachable!("it is a join") };
        (join.kind, join.mark) = (kind, None);
        if is_empty {
            plan[node] = plan.take(input);
        }
    }
}

/// The condition that chooses rows by the mark of a mark join, the mark, and what the join becomes.
fn choice(plan: &Plan, input: NodeId, conditions: &[Scalar]) -> Option<(usize, Column, JoinKind)> {
    let Operator::Join(join) = &plan[input] else { return None };
    let mark = join.mark?;
    let is_mark = |scalar: &Scalar| scalar.as_column() == Some(mark);
    conditions.iter().enumerate().find_map(|(place, condition)| match condition {
        scalar if is_mark(scalar) => Some((place, mark, JoinKind::Semi)),
        Scalar::Not(operand) if is_mark(operand) && !plan.columns[mark].nullable => {
            Some((place, mark, JoinKind::Anti))
        }
        _ => None,
    })
}
