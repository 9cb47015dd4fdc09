//! Which index finds the rows of a scan, and by which conditions.
//!
//! An index fits as far as conditions equate its first columns with values that do not depend on the row; one of them may list
//! values. Behind them one column may have bounds. A condition that the key wholly decides is not asked again, nor is one that is a bound
//! of a column without NULLs, which come behind all values. The best index is that with all of a unique key, then that with the longest
//! key; an order that it keeps decides between equals.

use crate::table::TableSource;
use firn_base::sync::Arc;
use firn_base::{ColumnId, Representation, Type};
use firn_plan::function::Strategy;
use firn_plan::operator::{JoinKind, ROW_ID, Scan, SortKey};
use firn_plan::rewrite::join_methods::is_one_key;
use firn_plan::scalar::Values;
use firn_plan::{Column, Columns, Scalar};
use firn_storage::{Index, Table};
use firn_txn::catalog::TableDef;

/// A look-up: of the rows under a key, or of a part of an index.
pub(super) struct Lookup {
    pub definition: Arc<TableDef>,
    pub table: Arc<Table>,
    pub index: Arc<Index>,
    /// The columns that are read, and where their cells begin.
    pub columns: Vec<ColumnId>,
    pub first_cell: usize,
    /// Where the row's id is put, if it is used.
    pub row_cell: Option<usize>,
    /// What the first columns of the index must equal.
    pub key: Vec<KeyPart>,
    /// Bounds of the column behind the key.
    pub bounds: Vec<KeyBound>,
    /// Whether the key is all of a unique one.
    pub is_point: bool,
    /// Whether the key decides every condition.
    pub is_decided: bool,
    pub reverse: bool,
    /// What else must hold of the rows, by number.
    pub conditions: usize,
    /// The same, with the conditions that bounds decide.
    pub with_bounds: usize,
    /// What is done with the row that is at hand.
    pub kind: JoinKind,
    pub noted: Noted,
}

/// A column of the key.
pub(super) struct KeyPart {
    pub representation: Representation,
    pub value: KeyValue,
}

/// What it must equal: expressions by their numbers.
pub(super) enum KeyValue {
    One(usize),
    /// Any of these.
    OneOf(Vec<usize>),
    /// Any element of this array.
    Element(usize),
}

/// A bound of the column behind the key.
pub(super) struct KeyBound {
    pub representation: Representation,
    pub value: usize,
    /// Whether it is the lower one, in the order of the index.
    pub is_low: bool,
    pub is_included: bool,
}

/// How what has been read is logged.
pub(super) struct Noted {
    /// Whether it is.
    pub is_noted: bool,
    /// As in a request of the scan: the columns, those first that are used for more than the conditions.
    pub columns: Vec<(Column, i16)>,
    pub used: usize,
    /// The scan's own conditions, without those that the key decides.
    pub conditions: Vec<Scalar>,
    pub all: Arc<Columns>,
    /// Whether the rows that come depend on the order of the index, as reading ends when there are enough.
    pub keeps_order: bool,
}

/// A condition that equates or bounds a column of the scan.
struct Candidate<'p> {
    /// Its number among the conditions.
    condition: usize,
    attribute: i16,
    strategy: Strategy,
    value: Wanted<'p>,
}

/// What a column is compared with.
#[derive(Clone, Copy)]
pub(super) enum Wanted<'p> {
    One(&'p Scalar),
    OneOf(&'p [Scalar]),
    Element(&'p Scalar),
}

/// A bound of a column.
#[derive(Clone, Copy)]
pub(super) struct WantedBound<'p> {
    pub value: &'p Scalar,
    /// Whether it is the lower one, in the order of the index.
    pub is_low: bool,
    pub is_included: bool,
}

/// A way to the rows.
pub(super) struct Access<'p> {
    pub index: Arc<Index>,
    pub key: Vec<Wanted<'p>>,
    /// Bounds of the column behind the key.
    pub bounds: Vec<WantedBound<'p>>,
    pub is_unique: bool,
    /// The conditions that the key decides.
    pub decided: Vec<usize>,
    /// The conditions that the bounds decide, if a key can be made of each bound.
    pub bounded: Vec<usize>,
    /// Whether rows come in the order that was asked for, and whether that is against the order of the index.
    pub order: Option<bool>,
}

/// The best way to the rows of a scan that meet conditions; `None` if no index helps. `order` is the order that is wanted;
/// `takes_first`: only the first rows in that order are wanted.
pub(super) fn choose<'p>(
    source: &TableSource,
    scan: &Scan,
    conditions: &[&'p Scalar],
    columns: &Columns,
    order: &[SortKey],
    takes_first: bool,
) -> Option<Access<'p>> {
    let candidates = candidates(scan, conditions, columns);
    let known = source.known_indexes();
    let ways =
        known.into_iter().filter_map(|index| way(source, scan, index, &candidates, order, takes_first));
    let length = |access: &Access<'_>| access.key.len();
    let is_list = |access: &Access<'_>| access.key.iter().any(|part| !matches!(part, Wanted::One(_)));
    let is_point =
        |access: &Access<'_>| access.is_unique && length(access) == access.index.spec().columns.len();
    ways.max_by_key(|access| {
        let bounds = access.bounds.len();
        (is_point(access), length(access), !is_list(access), bounds, access.order.is_some())
    })
}

fn candidates<'p>(scan: &Scan, conditions: &[&'p Scalar], columns: &Columns) -> Vec<Candidate<'p>> {
    let attribute = |scalar: &Scalar| {
        let column = scalar.as_kept_column(|column| columns[column].ty)?;
        let (_, attribute) = scan.columns.iter().find(|(own, _)| *own == column)?;
        (*attribute != ROW_ID).then_some((column, *attribute))
    };
    let is_own = |used: Column| scan.columns.iter().any(|(own, _)| *own == used);
    // A key is made before it is known whether there is a row that a failing condition would be asked of.
    let fits = |column: Column, ty: Type, value: &Scalar| {
        is_one_key(columns[column].ty, ty) && !value.uses(is_own) && !value.can_fail()
    };
    let mut found = Vec::new();
    for (number, condition) in conditions.iter().enumerate() {
        match condition {
            Scalar::Call(call) => {
                let (Some(strategy), [left, right]) = (call.function.strategy, &call.arguments[..]) else {
                    continue;
                };
                for (own, value, strategy) in [(left, right, strategy), (right, left, strategy.commuted())] {
                    if let Some((column, attribute)) = attribute(own)
                        && fits(column, value.ty(columns), value)
                        && strategy != Strategy::NotEqual
                    {
                        let value = Wanted::One(value);
                        found.push(Candidate { condition: number, attribute, strategy, value });
                        break;
                    }
                }
            }
            Scalar::Quantified(quantified) if !quantified.all && quantified.function.is_equality() => {
                let Some((column, attribute)) = attribute(&quantified.argument) else { continue };
                let value = match &quantified.values {
                    Values::List(list) if list.iter().all(|value| fits(column, value.ty(columns), value)) => {
                        Wanted::OneOf(list)
                    }
                    Values::Array(array) => match array.ty(columns).element() {
                        Some(element) if fits(column, element, array) => Wanted::Element(array),
                        _ => continue,
                    },
                    Values::List(_) => continue,
                };
                let strategy = Strategy::Equal;
                found.push(Candidate { condition: number, attribute, strategy, value });
            }
            _ => {}
        }
    }
    found
}

/// The way by one index, if it leads anywhere.
fn way<'p>(
    source: &TableSource,
    scan: &Scan,
    index: Arc<Index>,
    candidates: &[Candidate<'p>],
    order: &[SortKey],
    takes_first: bool,
) -> Option<Access<'p>> {
    let parts = &index.spec().columns;
    let of = |column: ColumnId| {
        candidates.iter().filter(move |candidate| candidate.attribute == column.0 as i16 + 1)
    };
    let (mut key, mut decided, mut has_list) = (Vec::new(), Vec::new(), false);
    for part in parts {
        let mut equal = of(part.column).filter(|candidate| candidate.strategy == Strategy::Equal);
        let one = equal.clone().find(|candidate| matches!(candidate.value, Wanted::One(_)));
        let Some(candidate) = one.or_else(|| equal.find(|_| !has_list)) else { break };
        has_list |= !matches!(candidate.value, Wanted::One(_));
        key.push(candidate.value);
        decided.push(candidate.condition);
    }
    let (mut bounds, mut bounded) = (Vec::<WantedBound<'_>>::new(), Vec::new());
    if let Some(part) = parts.get(key.len()).filter(|_| !has_list) {
        for candidate in of(part.column) {
            let Wanted::One(value) = candidate.value else { continue };
            let is_above = matches!(candidate.strategy, Strategy::Greater | Strategy::GreaterOrEqual);
            let is_low = is_above != part.descending;
            // One on either side.
            if bounds.iter().all(|other| other.is_low != is_low) {
                let is_included =
                    matches!(candidate.strategy, Strategy::GreaterOrEqual | Strategy::LessOrEqual);
                bounds.push(WantedBound { value, is_low, is_included });
                if source.definition().columns[part.column.index()].not_null {
                    bounded.push(candidate.condition);
                }
            }
        }
    }
    let order = if has_list { None } else { kept_order(source, scan, &index, key.len(), order) };
    let leads = !key.is_empty() || !bounds.is_empty() || takes_first && order.is_some();
    let is_unique = index.spec().unique;
    leads.then_some(Access { is_unique, key, bounds, decided, bounded, order, index })
}

/// Whether an index has rows under a key of so many columns in an order, and whether against its own.
fn kept_order(
    source: &TableSource,
    scan: &Scan,
    index: &Index,
    fixed: usize,
    order: &[SortKey],
) -> Option<bool> {
    (!order.is_empty()).then_some(())?;
    let parts = &index.spec().columns;
    let (mut next, mut reverse) = (fixed, None);
    for key in order {
        let (_, attribute) = scan.columns.iter().find(|(own, _)| *own == key.column)?;
        let is_of = |column: ColumnId| column.0 as i16 + 1 == *attribute;
        if parts[..fixed].iter().any(|part| is_of(part.column)) {
            continue;
        }
        let part = parts.get(next).filter(|part| is_of(part.column))?;
        let against = part.descending != key.descending;
        let nullable = !source.definition().columns[part.column.index()].not_null;
        let nulls_fit = !nullable || (part.nulls_first != against) == key.nulls_first;
        if !nulls_fit || reverse.is_some_and(|reverse| reverse != against) {
            return None;
        }
        (reverse, next) = (Some(against), next + 1);
    }
    Some(reverse.unwrap_or(false))
}
