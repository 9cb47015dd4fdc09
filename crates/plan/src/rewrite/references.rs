//! Joins that a foreign key answers: a referencing row without NULLs has exactly one partner.
//!
//! Where nothing uses the referenced rows but the join's own conditions, and these equate a foreign key with the key that it
//! refers to, an inner or semi join keeps the rows whose foreign key has no NULL, and an anti join the others. The keys are those
//! that [`Statistics::references`] lists: they hold for all rows that a snapshot sees.

use crate::column::Column;
use crate::operator::{Join, JoinKind, Operator, Scan};
use crate::plan::{NodeId, Plan};
use crate::properties;
use crate::scalar::Scalar;
use crate::statistics::Statistics;
use std::collections::HashMap;

/// Replaces joins by filters where a foreign key determines the result.
pub fn remove_joins(plan: &mut Plan, statistics: &dyn Statistics) {
    let order = plan.post_order();
    let mut scans: HashMap<Column, (NodeId, i16)> = HashMap::new();
    for node in &order {
        if let Operator::Scan(scan) = &plan[*node]
            && !statistics.references(scan.source).is_empty()
        {
            scans.extend(scan.columns.iter().map(|(column, attribute)| (*column, (*node, *attribute))));
        }
    }
    if scans.is_empty() {
        return;
    }
    let mut uses: HashMap<Column, u32> = HashMap::new();
    plan.output.iter().for_each(|column| *uses.entry(*column).or_default() += 1);
    for node in &order {
        count_uses(&plan[*node], &mut uses);
    }
    let mut replaced: HashMap<NodeId, NodeId> = HashMap::new();
    for node in order {
        let Operator::Join(join) = &plan[node] else { continue };
        let kind = join.kind;
        if join.dependent || !matches!(kind, JoinKind::Inner | JoinKind::Semi | JoinKind::Anti) {
            continue;
        }
        let sides = [(join.left, join.right), (join.right, join.left)];
        let sides = &sides[..if kind == JoinKind::Inner { 2 } else { 1 }];
        let found = sides.iter().find_map(|(left, right)| {
            let Operator::Scan(referenced) = &plan[*right] else { return None };
            let key = referencing(plan, join, referenced, &scans, &uses, statistics)?;
            Some((*left, key))
        });
        let Some((input, key)) = found else { continue };
        let scope = properties::scope(plan, input);
        let nullable: Vec<Column> = key.into_iter().filter(|column| scope.nullable(*column)).collect();
        let is_null =
            |column: &Column| Scalar::IsNull(Box::new(Scalar::Column(*column)), kind != JoinKind::Anti);
        let mut conditions: Vec<Scalar> = nullable.iter().map(is_null).collect();
        if kind == JoinKind::Anti {
            conditions = vec![match conditions.len() {
                0 => Scalar::boolean(false),
                1 => conditions.remove(0),
                _ => Scalar::Or(conditions),
            }];
        }
        match conditions.is_empty() {
            true => _ = replaced.insert(node, input),
            false => plan[node] = Operator::Filter { input, conditions },
        }
    }
    let resolve = |node: NodeId| {
        let mut node = node;
        while let Some(next) = replaced.get(&node) {
            node = *next;
        }
        node
    };
    plan.root = resolve(plan.root);
    let mut stack = vec![plan.root];
    while let Some(node) = stack.pop() {
        plan[node].for_each_input_mut(|input| *input = resolve(*input));
        stack.extend(plan[node].inputs());
    }
    properties::widen_nullability(plan);
}

/// Counts the places where an operator uses columns.
fn count_uses(operator: &Operator, uses: &mut HashMap<Column, u32>) {
    operator.for_each_scalar(|scalar| {
        scalar.for_each_column(&mut |column| *uses.entry(column).or_default() += 1);
    });
    operator.for_each_named_column(|column| *uses.entry(column).or_default() += 1);
    if let Operator::SharedRead { columns, .. } = operator {
        columns.iter().for_each(|(_, of)| *uses.entry(*of).or_default() += 1);
    }
}

/// The columns of a foreign key that a join's conditions equate with all of the referenced key, if they ask nothing else.
fn referencing(
    plan: &Plan,
    join: &Join,
    referenced: &Scan,
    scans: &HashMap<Column, (NodeId, i16)>,
    uses: &HashMap<Column, u32>,
    statistics: &dyn Statistics,
) -> Option<Vec<Column>> {
    let relation = statistics.relation(referenced.source)?;
    if !referenced.conditions.is_empty() || join.conditions.is_empty() {
        return None;
    }
    let attribute_of = |column: Column| {
        referenced.columns.iter().find(|(own, _)| *own == column).map(|(_, attribute)| *attribute)
    };
    // Pairs of a referencing column and a referenced attribute.
    let mut pairs: Vec<(Column, i16)> = Vec::new();
    for condition in &join.conditions {
        let Scalar::Call(call) = condition else { return None };
        let [Scalar::Column(one), Scalar::Column(other)] = call.arguments[..] else { return None };
        if !call.function.is_equality() {
            return None;
        }
        pairs.push(match (attribute_of(one), attribute_of(other)) {
            (None, Some(attribute)) => (one, attribute),
            (Some(attribute), None) => (other, attribute),
            _ => return None,
        });
    }
    // Each referenced column is used by these conditions and by nothing else.
    let own_uses = |attribute: i16| pairs.iter().filter(|(_, other)| *other == attribute).count() as u32;
    let is_unused =
        |(column, attribute): &(Column, i16)| uses.get(column).copied().unwrap_or(0) == own_uses(*attribute);
    if !referenced.columns.iter().all(is_unused) {
        return None;
    }
    let (scan, _) = *scans.get(&pairs[0].0)?;
    let Operator::Scan(referencing) = &plan[scan] else { return None };
    let mut given: Vec<(i16, i16)> = Vec::new();
    for (column, attribute) in &pairs {
        let (of, own) = *scans.get(column)?;
        (of == scan).then_some(())?;
        given.push((own, *attribute));
    }
    let is_answered = |reference: &crate::statistics::Reference| {
        let mut wanted: Vec<(i16, i16)> =
            reference.attributes.iter().copied().zip(reference.referenced.iter().copied()).collect();
        wanted.sort_unstable();
        let mut given = given.clone();
        given.sort_unstable();
        given.dedup();
        reference.relation == relation && wanted == given
    };
    let references = statistics.references(referencing.source);
    references.iter().any(is_answered).then(|| pairs.into_iter().map(|(column, _)| column).collect())
}
