//! Windows and joins of which only the first rows are used: `row_number() OVER (PARTITION BY … ORDER BY …) <= n`, `LATERAL (… ORDER BY k
//! LIMIT n)`, and the least or the greatest value of a dependent sub-query. A window need not keep the other rows of a partition, and an index
//! that has the rows of a left row in that order need not find them.
//!
//! Unnesting has made a row number of LIMIT, and of the aggregate one for each value of the domain:
//!
//! ```text
//! Filter [row_number <= n]                        Group by [key] aggregates [max(k)]
//!   Window partition [key] order [k] row_number     Join inner on [key = …]
//!     Join inner on [key = …]                         …
//!       …                                             Scan
//!       Scan
//! ```
//!
//! All remain above the join: of the rows of a partition the filter keeps those that it would keep anyway. They are among those that are found,
//! since all rows of one left row are in one partition, and each row that is not found comes behind n others of its left row. Several
//! left rows may share a partition.

use crate::column::{Column, Columns};
use crate::keys::Keys;
use crate::operator::{FirstRows, Join, JoinKind, Operator, Scan, SortKey, WindowCall};
use crate::plan::{NodeId, Plan};
use crate::properties::{Producers, is_volatile};
use crate::rewrite::join_methods::index_key;
use crate::row_numbers::limit_of;
use crate::scalar::Scalar;
use crate::statistics::{Index, Statistics};
use std::collections::HashMap;

/// Finds the windows of which only the first rows of each partition are used.
pub fn limit_windows(plan: &mut Plan) {
    for node in plan.post_order() {
        let Operator::Filter { input, conditions } = &plan[node] else { continue };
        let (input, Operator::Window(window)) = (*input, &plan[*input]) else { continue };
        let count = conditions.iter().find_map(|condition| limit_of(condition, window));
        if !window.calls.iter().all(WindowCall::counts_before) {
            continue;
        }
        let Operator::Window(window) = &mut plan[input] else { unreachable!("it is a window") };
        window.first = count;
    }
}

/// Windows keep all rows where each partition has one: there are no others to be found.
pub fn settle_windows(plan: &mut Plan, statistics: &dyn Statistics) {
    let is_limited = |node: &NodeId| match &plan[*node] {
        Operator::Window(window) => window.first.is_some() && !window.partition.is_empty(),
        _ => false,
    };
    let limited: Vec<NodeId> = plan.post_order().into_iter().filter(is_limited).collect();
    if limited.is_empty() {
        return;
    }
    let keys = Keys::of(plan, statistics);
    for node in limited {
        let Operator::Window(window) = &mut plan[node] else { unreachable!("it is a window") };
        if keys.tell_apart(window.input, &window.partition) {
            window.first = None;
        }
    }
}

/// What is used of a join's rows.
pub(super) struct Used {
    first: FirstRows,
    /// The first rows of each of these are.
    partition: Vec<Column>,
}

/// The joins of which not all rows are used.
pub(super) fn joins(plan: &Plan) -> HashMap<NodeId, Used> {
    plan.post_order().into_iter().filter_map(|node| of(plan, node)).collect()
}

fn of(plan: &Plan, node: NodeId) -> Option<(NodeId, Used)> {
    let (mut below, used) = match &plan[node] {
        Operator::Window(window) => {
            let first = FirstRows { order: window.order.clone(), count: window.first.clone()? };
            (window.input, Used { first, partition: window.partition.clone() })
        }
        Operator::Group(group) if group.sets.is_none() => {
            let [aggregate] = &group.aggregates[..] else { return None };
            let descending = match &*aggregate.function.name {
                "min" => false,
                "max" => true,
                _ => return None,
            };
            let [Scalar::Column(column)] = aggregate.arguments[..] else { return None };
            aggregate.filter.is_none().then_some(())?;
            // NULL is the result only if there is no other value.
            let order = vec![SortKey { column, descending, nulls_first: false }];
            let first = FirstRows { order, count: Scalar::int8(1) };
            (group.input, Used { first, partition: group.keys.clone() })
        }
        _ => return None,
    };
    // What is computed of rows that are not used need not be computed.
    while let Operator::Map { input, .. } = &plan[below]
        && !is_volatile(plan, below)
    {
        below = *input;
    }
    matches!(plan[below], Operator::Join(_)).then_some((below, used))
}

impl Used {
    /// What an index may find of a join's right side by its first attributes: the first rows, if it has them in their order, and the
    /// join asks nothing else of them.
    pub fn by(
        &self,
        plan: &Plan,
        join: &Join,
        scan: &Scan,
        index: &Index,
        length: usize,
        producers: &Producers,
    ) -> Option<FirstRows> {
        (join.kind == JoinKind::Inner).then_some(())?;
        let keys: Vec<(Column, &Scalar)> = index.attributes[..length]
            .iter()
            .map(|attribute| index_key(join, scan, *attribute, &plan.columns))
            .collect::<Option<_>>()?;
        let is_key = |column: Column| keys.iter().any(|(key, _)| *key == column);
        // A row whose key has been found meets these.
        let is_decided = |condition: &Scalar| match condition {
            Scalar::Call(call) => {
                call.arguments.iter().any(|argument| keys.iter().any(|(_, key)| std::ptr::eq(*key, argument)))
            }
            Scalar::IsNull(inner, true) => inner.as_column().is_some_and(is_key),
            _ => false,
        };
        let is_one_for_a_left_row =
            |column: &Column| is_key(*column) || producers.is_below(*column, join.left);
        let fits = join.conditions.iter().chain(&scan.conditions).all(is_decided)
            && self.partition.iter().all(is_one_for_a_left_row);
        fits.then_some(())?;
        let order = order_of(scan, &self.first.order, &plan.columns)?;
        let parts = index.attributes.iter().zip(&index.descending).zip(&index.nulls_first);
        let parts =
            parts.map(|((attribute, descending), nulls_first)| (*attribute, *descending, *nulls_first));
        direction(parts, length, &order)?;
        Some(self.first.clone())
    }
}

/// A part of an order among the attributes of a source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AttributeOrder {
    /// The attribute.
    pub attribute: i16,
    /// DESC
    pub descending: bool,
    /// Where NULLs are; `None` if there are none.
    pub nulls_first: Option<bool>,
}

/// An order by columns of a scan.
pub fn order_of(scan: &Scan, order: &[SortKey], columns: &Columns) -> Option<Vec<AttributeOrder>> {
    let part = |key: &SortKey| {
        let (_, attribute) = scan.columns.iter().find(|(column, _)| *column == key.column)?;
        let nulls_first = columns[key.column].nullable.then_some(key.nulls_first);
        Some(AttributeOrder { attribute: *attribute, descending: key.descending, nulls_first })
    };
    order.iter().map(part).collect()
}

/// How an index has rows in an order.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Direction {
    /// Whether against its own order.
    pub is_reverse: bool,
    /// If it has the NULLs of the first part that is not fixed at the other end: whether they come first in the order.
    pub nulls_apart: Option<bool>,
}

/// How an index has the rows with equal values in its first attributes in an order, if it has. Its parts are the attributes, whether the
/// greatest comes first, and whether NULLs do.
pub fn direction(
    parts: impl Iterator<Item = (i16, bool, bool)>,
    fixed: usize,
    order: &[AttributeOrder],
) -> Option<Direction> {
    let parts: Vec<_> = parts.collect();
    let (fixed, rest) = parts.split_at_checked(fixed)?;
    let (mut rest, mut found) = (rest.iter(), None);
    for key in order {
        if fixed.iter().any(|(attribute, ..)| *attribute == key.attribute) {
            continue;
        }
        let (_, descending, nulls_first) =
            rest.next().filter(|(attribute, ..)| *attribute == key.attribute)?;
        let against = *descending != key.descending;
        let misplaced = key.nulls_first.filter(|first| *first != (*nulls_first != against));
        match found {
            None => found = Some(Direction { is_reverse: against, nulls_apart: misplaced }),
            Some(Direction { is_reverse, .. }) if is_reverse != against || misplaced.is_some() => {
                return None;
            }
            Some(_) => {}
        }
    }
    Some(found.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rewrite::join_methods::choose_methods;
    use crate::rewrite::testing::{Thousand, becomes};

    #[test]
    fn an_index_has_an_order_or_its_reverse() {
        let index = [(5, false, false), (6, false, false), (7, true, true)];
        let key = |attribute, descending, nulls_first| AttributeOrder { attribute, descending, nulls_first };
        let found = |is_reverse, nulls_apart| Some(Direction { is_reverse, nulls_apart });
        for (fixed, order, expected) in [
            (1, vec![], found(false, None)),
            (1, vec![key(6, false, Some(false))], found(false, None)),
            (1, vec![key(6, true, Some(true))], found(true, None)),
            (1, vec![key(6, true, Some(false))], found(true, Some(false))),
            (1, vec![key(6, false, Some(true))], found(false, Some(true))),
            (1, vec![key(6, true, None)], found(true, None)),
            (1, vec![key(5, true, None), key(6, false, None), key(7, true, None)], found(false, None)),
            (1, vec![key(6, true, None), key(7, false, Some(false))], found(true, None)),
            (1, vec![key(6, true, Some(false)), key(7, false, Some(false))], found(true, Some(false))),
            (1, vec![key(6, true, None), key(7, false, Some(true))], None),
            (1, vec![key(6, false, None), key(7, false, None)], None),
            (1, vec![key(7, true, None)], None),
            (2, vec![key(7, false, None)], found(true, None)),
            (2, vec![key(7, true, Some(false))], found(false, Some(false))),
            (3, vec![key(8, false, None)], None),
        ] {
            assert_eq!(direction(index.into_iter(), fixed, &order), expected, "{fixed} {order:?}");
        }
    }

    /// A window is limited by a condition that few rows of each partition meet, if its functions need no others.
    #[test]
    fn windows_keep_only_rows_that_are_used() {
        let case = |conditions: &str, calls: &str, first: &str| {
            let plan = |first: &str| {
                format!(
                    "
        Output [#0, #5]
          Filter [{conditions}]
            Window partition [#1] order [#0 desc]{first} calls [{calls}]
              Scan 1 [#0: int4 = 3, #1: int4 = 2]
        "
                )
            };
            becomes(limit_windows, &plan(""), &plan(first));
        };
        let number = "#5: int8 not null := row_number()";
        let three = " first 3::int8";
        for (condition, first) in [
            ("(#5 <= 3::int8)", three),
            ("(3::int8 >= #5)", three),
            ("(#5 < 4::int8)", three),
            ("(#5 = 3::int8)", three),
            ("(#5 > 1::int8), ((#5 - 1::int8) <= 2::int8)", three),
            ("(#5 >= 2::int8), (#5 <= 3::int8), (#0 = 7::int4)", three),
            ("(#5 <= 0::int8)", " first 0::int8"),
            ("((#5 <= $1::int8) is not false)", " first $1::int8"),
            ("((#5 - 9223372036854775807::int8) <= 2::int8)", " first 9223372036854775807::int8"),
            ("(#5 > 3::int8)", ""),
            ("(#5 <> 3::int8)", ""),
            ("(#5 < $1::int8)", ""),
            ("((#5 - $1::int8) <= 2::int8)", ""),
            ("((#5 - 2::int8) <= $1::int8)", ""),
            ("((#5 <= 3::int8) or (#0 = 7::int4))", ""),
            ("(#0 <= 3::int4)", ""),
        ] {
            case(condition, number, first);
        }
        let with = |other: &str| format!("{number}, #6: {other}");
        case("(#5 <= 3::int8)", &with("int8 not null := rank()"), three);
        case("(#6 <= 3::int8)", &with("int8 not null := rank()"), "");
        case("(#5 <= 3::int8)", &with("int8 := sum(#0)"), "");
    }

    /// The first attribute of the source is a key.
    #[test]
    fn windows_whose_partitions_have_one_row_keep_all() {
        let case = |partition: &str, is_kept: bool| {
            let plan = |first: &str| {
                format!(
                    "
        Output [#0, #5]
          Window{partition} order [#0]{first} calls [#5: int8 not null := row_number()]
            Scan 9 [#0: int4 = 3, #1: int4 = 2, #2: int4 not null = 1]
        "
                )
            };
            let after = if is_kept { " first 2::int8" } else { "" };
            becomes(|plan| settle_windows(plan, &Thousand), &plan(" first 2::int8"), &plan(after));
        };
        case(" partition [#1]", true);
        case(" partition [#2]", false);
        case(" partition [#1, #2]", false);
        case("", true);
    }

    /// Only the first rows are found where the index has their order and nothing else is asked of them.
    #[test]
    fn an_index_finds_only_rows_that_are_used() {
        let case = |operators: &str, scan: &str, method: &str| {
            let plan = |method: &str, sides: [&str; 2]| {
                let [left, right] = sides;
                format!(
                    "
        Output [#0, #3]
          {operators}
            Join inner{method} on [(#1 = #2)]
              {left}
              {right}
        "
                )
            };
            let (few, scan) = (
                "Values [#2: int4, #3: int4] rows [(1::int4, 2::int4)]",
                format!("Scan 1 [#0: int4 = 3, #1: int4 = 2, #9: int4 = 4]{scan}"),
            );
            becomes(
                |plan| choose_methods(plan, &Thousand),
                &plan("", [&scan, few]),
                &plan(method, [few, &scan]),
            );
        };
        let window = |partition: &str, order: &str, first: &str| {
            format!(
                "Window partition [{partition}] order [{order}]{first} calls [#5: int8 not null := row_number()]"
            )
        };
        let (order, three) = ("#0 desc", " first 3::int8");
        let first = " by [2] first 3::int8 order [#0 desc]";
        case(&window("#1", order, three), "", first);
        case(&window("#2, #3", order, three), " where [(#1 is not null)]", first);
        case(&window("#1", "#0", " first $1::int8"), "", " by [2] first $1::int8 order [#0]");
        // Another order, another partition, another condition, all rows.
        let last = " by [2] first 3::int8 order [#0 desc nulls last]";
        case(&window("#1", "#0 desc nulls last", three), "", last);
        case(&window("#1", "#9", three), "", " by [2]");
        case(&window("#9", order, three), "", " by [2]");
        case(&window("#1", order, three), " where [(#9 <> 1::int4)]", " by [2]");
        case(&window("#1", order, ""), "", " by [2]");
    }
}
