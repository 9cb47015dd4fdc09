//! How joins find partners: by a hash table of the right input, by one of the left input, or by an index of the right one.
//!
//! A join whose right side is a scan may look its rows up, key by key, instead of reading all of them: an *index join*. It names the
//! attributes of the right scan that begin an index of its source and that conditions equate with scalars of the left side, constants or
//! parameters. The choice is by cost, from estimates: a hash join reads the right side once and keeps it, an index join pays for each
//! left row. A left, semi or anti join whose left side is much smaller keeps that one. Of a semi join whose left side is the scan, the
//! keys of the right side, each once, may look up the rows.
//!
//! Where only the first rows of each left row are used ([`first_rows`]), an index finds no others.
//!
//! A look-up happens while the statement runs, so a table that the statement changes is not looked up, unless all of it
//! happens below the statement's only change, which collects its rows before it begins.
//!
//! Only types are used whose equal values have one key in an index, and only values of one type, or integers.

use crate::column::{Column, Columns};
use crate::function::Strategy;
use crate::operator::{ByIndex, Group, Join, JoinKind, JoinMethod, Operator, Scan, SourceId};
use crate::plan::{NodeId, Plan};
use crate::properties::Producers;
use crate::rewrite::first_rows;
use crate::row_numbers;
use crate::scalar::Scalar;
use crate::statistics::{Estimates, Index, Statistics};
use firn_base::{Type, TypeId};

/// What a look-up costs, in units of a row that is kept in a hash table.
const LOOK_UP: f64 = 3.0;
/// What a row costs that an index finds.
const FOUND_ROW: f64 = 1.5;
/// What a row of a source costs that is scanned.
const SCANNED_ROW: f64 = 0.1;
/// What probing a hash table costs.
const PROBE: f64 = 0.3;
/// How many times as many rows the right side must have to be read along a table of the left one.
const SMALLER: f64 = 2.0;
/// Rows under the beginning of a unique key, at most.
const MOST_UNDER_PREFIX: f64 = 100.0;

/// Chooses how each join finds partners.
pub fn choose_methods(plan: &mut Plan, statistics: &dyn Statistics) {
    let order = plan.post_order();
    let is_candidate = |node: &NodeId| match &plan[*node] {
        Operator::Join(join) => {
            let is_open = !join.dependent && join.method == JoinMethod::BuildRight;
            is_open && (may_build_left(join) || may_use_index(plan, join) || semi_join_of_scan(plan, join))
        }
        _ => false,
    };
    let joins: Vec<NodeId> = order.into_iter().filter(is_candidate).collect();
    if joins.is_empty() {
        return;
    }
    let (changed, used) = (Changed::of(plan), first_rows::joins(plan));
    let (estimates, producers) = (Estimates::of(plan, statistics), Producers::of(plan));
    for node in joins {
        let Operator::Join(join) = &plan[node] else { unreachable!("it is a join") };
        let read = |node: NodeId| match &plan[node] {
            Operator::Scan(scan) => {
                let whole = statistics.rows(scan.source) * SCANNED_ROW;
                match is_found(plan, scan, statistics) {
                    true => whole.min(LOOK_UP + estimates.rows(node).max(1.0) * FOUND_ROW),
                    false => whole,
                }
            }
            _ => 0.0,
        };
        let hash = |build: NodeId, probe: NodeId| estimates.rows(build) + estimates.rows(probe) * PROBE;
        let builds_left =
            may_build_left(join) && estimates.rows(join.left) * SMALLER < estimates.rows(join.right);
        let mut best = builds_left.then(|| {
            let cost = hash(join.left, join.right) + read(join.right);
            (cost, Join { method: JoinMethod::BuildLeft, ..join.clone() })
        });
        let by_index = |turned: &Join, scan: &Scan| {
            let ways = statistics.indexes(scan.source).into_iter().filter_map(|index| {
                let length = fitting(plan, turned, scan, &index, &producers)?;
                let rows = statistics.rows(scan.source);
                let mut found = match statistics.distinct(scan.source, &index.attributes[..length]) {
                    Some(keys) => rows / keys.max(1.0),
                    None => rows_under_key(rows, &index, length),
                };
                let used = used.get(&node);
                let first = used.and_then(|used| used.by(plan, turned, scan, &index, length, &producers));
                if let Some(first) = &first {
                    found = found.min(row_numbers::expected(&first.count));
                }
                let cost = estimates.rows(turned.left) * (LOOK_UP + found * FOUND_ROW);
                let attributes = index.attributes[..length].to_vec();
                Some((cost, JoinMethod::Index(ByIndex { attributes, first })))
            });
            ways.min_by(|(one, _), (other, _)| one.total_cmp(other))
        };
        // An index may spare reading the larger side of an inner join, which a hash join would probe with.
        let sides = [(join.left, join.right), (join.right, join.left)];
        let sides = &sides[..match join.kind {
            _ if !may_use_index(plan, join) => 0,
            JoinKind::Inner => 2,
            _ => 1,
        }];
        for (left, right) in sides.iter().copied() {
            let Operator::Scan(scan) = &plan[right] else { continue };
            if changed.forbids(node, scan.source) {
                continue;
            }
            let reads_left = if join.left == right { read(join.left) } else { 0.0 };
            let without = hash(join.right, join.left) + read(join.right) + reads_left;
            let turned = Join { left, right, ..join.clone() };
            if let Some((cost, method)) = by_index(&turned, scan)
                && cost < without
                && best.as_ref().is_none_or(|(known, _)| cost < *known)
            {
                best = Some((cost, Join { method, ..turned }));
            }
        }
        if let (Operator::Scan(scan), Some(keys)) = (&plan[join.left], keys_of_right(plan, join, &producers))
            && !changed.forbids(node, scan.source)
        {
            let turned = Join { kind: JoinKind::Inner, left: join.right, right: join.left, ..join.clone() };
            let without = best.as_ref().map(|(cost, _)| *cost);
            let without = without.unwrap_or_else(|| hash(join.right, join.left)) + read(join.left);
            if let Some((cost, method)) = by_index(&turned, scan)
                && cost + estimates.rows(join.right) < without
            {
                let grouped = Group {
                    input: turned.left,
                    keys,
                    determined: Vec::new(),
                    sets: None,
                    aggregates: Vec::new(),
                };
                let left = plan.add(Operator::Group(grouped));
                plan[node] = Operator::Join(Join { left, method, ..turned });
                continue;
            }
        }
        if let Some((_, join)) = best {
            plan[node] = Operator::Join(join);
        }
    }
}

/// The tables that a statement changes.
struct Changed {
    targets: Vec<SourceId>,
    /// What the only change collects before it begins.
    collected: Vec<NodeId>,
}

impl Changed {
    fn of(plan: &Plan) -> Changed {
        let change = |node: NodeId| match &plan[node] {
            Operator::Insert(insert) => Some((insert.target, insert.input)),
            Operator::Update(update) => Some((update.target, update.input)),
            Operator::Delete { target, input, .. } => Some((*target, *input)),
            Operator::Merge(merge) => Some((merge.target, merge.input)),
            _ => None,
        };
        let changes: Vec<(SourceId, NodeId)> = plan.post_order().into_iter().filter_map(change).collect();
        let collected = match changes[..] {
            [(_, input)] => plan.post_order_of(input),
            _ => Vec::new(),
        };
        Changed { targets: changes.into_iter().map(|(target, _)| target).collect(), collected }
    }

    /// Whether a join must not look rows of a source up.
    fn forbids(&self, join: NodeId, source: SourceId) -> bool {
        self.targets.contains(&source) && !self.collected.contains(&join)
    }
}

fn may_use_index(plan: &Plan, join: &Join) -> bool {
    let is_scan = |side: &NodeId| matches!(plan[*side], Operator::Scan(_));
    match join.kind {
        JoinKind::Inner => [join.left, join.right].iter().any(is_scan),
        JoinKind::Left | JoinKind::Semi | JoinKind::Anti | JoinKind::Single => is_scan(&join.right),
        JoinKind::Full | JoinKind::Mark => false,
    }
}

/// Whether conditions of a scan may lead to its rows by an index.
fn is_found(plan: &Plan, scan: &Scan, statistics: &dyn Statistics) -> bool {
    let is_own = |used: Column| scan.columns.iter().any(|(own, _)| *own == used);
    let compared = |condition: &Scalar| {
        let (argument, others): (&Scalar, bool) = match condition {
            Scalar::Call(call) => match (call.function.strategy, &call.arguments[..]) {
                (Some(strategy), [left, right]) if strategy != Strategy::NotEqual => {
                    let own = if left.uses(is_own) { left } else { right };
                    (own, left.uses(is_own) && right.uses(is_own))
                }
                _ => return None,
            },
            Scalar::Quantified(quantified) if !quantified.all && quantified.function.is_equality() => {
                (&quantified.argument, false)
            }
            _ => return None,
        };
        let column = argument.as_kept_column(|column| plan.columns[column].ty).filter(|_| !others)?;
        scan.columns.iter().find(|(own, _)| *own == column).map(|(_, attribute)| *attribute)
    };
    let attributes: Vec<i16> = scan.conditions.iter().filter_map(compared).collect();
    !attributes.is_empty()
        && statistics.indexes(scan.source).iter().any(|index| attributes.contains(&index.attributes[0]))
}

/// Whether a semi join has a scan as its left side.
fn semi_join_of_scan(plan: &Plan, join: &Join) -> bool {
    join.kind == JoinKind::Semi && matches!(plan[join.left], Operator::Scan(_))
}

/// The columns of the right side that a semi join equates with scalars of its left side, if it asks nothing else.
fn keys_of_right(plan: &Plan, join: &Join, producers: &Producers) -> Option<Vec<Column>> {
    semi_join_of_scan(plan, join).then_some(())?;
    let key = |condition: &Scalar| {
        let Scalar::Call(call) = condition else { return None };
        let [one, other] = &call.arguments[..] else { return None };
        let is_of_right =
            |scalar: &Scalar| scalar.as_column().filter(|column| producers.is_below(*column, join.right));
        let is_of_left = |scalar: &Scalar| {
            !scalar.uses(|column| !producers.is_below(column, join.left)) && !scalar.is_volatile()
        };
        let pairs = [(one, other), (other, one)].into_iter();
        let mut keys = pairs.filter(|(left, _)| is_of_left(left)).filter_map(|(_, right)| is_of_right(right));
        keys.next().filter(|_| call.function.is_equality())
    };
    let mut keys = join.conditions.iter().map(key).collect::<Option<Vec<Column>>>()?;
    keys.sort_unstable();
    keys.dedup();
    (!keys.is_empty()).then_some(keys)
}

/// Whether a hash table of the left side serves the join: all pairs are compared otherwise.
fn may_build_left(join: &Join) -> bool {
    let is_equality = |condition: &Scalar| match condition {
        Scalar::Call(call) => call.function.is_equality(),
        Scalar::Distinct(_, negated) => *negated,
        _ => false,
    };
    matches!(join.kind, JoinKind::Left | JoinKind::Semi | JoinKind::Anti)
        && join.conditions.iter().any(is_equality)
}

/// How many of an index's attributes are equated with what a left row gives; none if there is not even one of these.
fn fitting(plan: &Plan, join: &Join, scan: &Scan, index: &Index, producers: &Producers) -> Option<usize> {
    let mut of_left = false;
    let mut length = 0;
    for attribute in &index.attributes {
        let Some((column, key)) = index_key(join, scan, *attribute, &plan.columns) else { break };
        let is_given = !key.uses(|used| !producers.is_below(used, join.left));
        let may_be_asked = !key.is_volatile() && !key.can_fail();
        if !is_given || !may_be_asked || !is_one_key(plan.columns[column].ty, key.ty(&plan.columns)) {
            break;
        }
        of_left |= key.uses(|_| true);
        length += 1;
    }
    of_left.then_some(length)
}

/// Rows that an index has under a beginning of its keys, of whose values nothing is known.
fn rows_under_key(rows: f64, index: &Index, length: usize) -> f64 {
    let total = index.attributes.len();
    match (index.unique, total - length) {
        (true, 0) => 1.0,
        // As if each attribute had equally many values.
        (true, missing) => rows.powf(missing as f64 / total as f64).min(MOST_UNDER_PREFIX),
        (false, missing) => rows.powf((1.0 + missing as f64) / (1.0 + total as f64)).max(1.0),
    }
}

/// The column of a scan that is an attribute, and what conditions of a join or of its right scan equate it with: a scalar that
/// does not use the scan's columns.
pub fn index_key<'p>(
    join: &'p Join,
    scan: &'p Scan,
    attribute: i16,
    columns: &Columns,
) -> Option<(Column, &'p Scalar)> {
    let (column, _) = scan.columns.iter().find(|(_, other)| *other == attribute)?;
    let is_own = |used: Column| scan.columns.iter().any(|(own, _)| *own == used);
    let equated = |condition: &'p Scalar| match condition {
        Scalar::Call(call) if call.function.is_equality() => match &call.arguments[..] {
            [left, right] => [(left, right), (right, left)]
                .into_iter()
                .find(|(own, key)| {
                    own.as_kept_column(|column| columns[column].ty) == Some(*column) && !key.uses(is_own)
                })
                .map(|(_, key)| (*column, key)),
            _ => None,
        },
        _ => None,
    };
    join.conditions.iter().chain(&scan.conditions).find_map(equated)
}

/// Whether values of the first type that are equal to one of the second are found under one key.
pub fn is_one_key(of_index: Type, given: Type) -> bool {
    let is_integer = |ty: Type| matches!(ty.id, TypeId::INT2 | TypeId::INT4 | TypeId::INT8);
    let has_one_key = matches!(
        of_index.id,
        TypeId::BOOL
            | TypeId::NUMERIC
            | TypeId::FLOAT4
            | TypeId::FLOAT8
            | TypeId::TEXT
            | TypeId::VARCHAR
            | TypeId::BPCHAR
            | TypeId::NAME
            | TypeId::BYTEA
            | TypeId::OID
            | TypeId::DATE
            | TypeId::TIME
            | TypeId::TIMESTAMP
            | TypeId::TIMESTAMPTZ
            | TypeId::INTERVAL
            | TypeId::UUID
    );
    let is_text = |ty: Type| matches!(ty.id, TypeId::TEXT | TypeId::VARCHAR);
    let same_collation = of_index.collation == given.collation;
    is_integer(of_index) && is_integer(given)
        || has_one_key && of_index.id == given.id && same_collation
        || is_text(of_index) && is_text(given) && same_collation
}

/// The columns that the scan of an index join must have for its keys.
pub fn has_keys(join: &Join, scan: &Scan, columns: &Columns) -> bool {
    join.method.by_index().iter().all(|attribute| {
        index_key(join, scan, *attribute, columns)
            .is_some_and(|(column, key)| is_one_key(columns[column].ty, key.ty(columns)))
    })
}
