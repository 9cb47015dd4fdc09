//! The coverage of a run: cells of (position of a sub-query, operator above it, kind of join of the query that contains it).
//!
//! What the operands of a set operation and the terms of a recursion have counts as the set operation's and the recursion's, too. A cell
//! that no statement can have is listed with the reason; all others must be covered often, and are shown where they are not.

use crate::generate::Kinds;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// The position of a sub-query.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Place {
    /// The query has none.
    None,
    /// Among the targets.
    Target,
    /// In FROM.
    From,
    /// In FROM, after LATERAL.
    Lateral,
    /// In WHERE.
    Where,
    /// In HAVING.
    Having,
    /// In ON.
    On,
    /// In ORDER BY.
    OrderBy,
    /// In GROUP BY.
    GroupBy,
    /// In CASE, anywhere.
    Case,
    /// In the arguments of an aggregate.
    Aggregate,
    /// In FILTER.
    Filter,
    /// In the arguments or the OVER clause of a window function.
    Window,
    /// In WITH.
    With,
    /// In VALUES of INSERT.
    Values,
    /// In SET.
    Set,
    /// In RETURNING.
    Returning,
    /// In DO UPDATE.
    Conflict,
    /// In WHEN … AND.
    When,
}

/// The operator of a query on its rows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum OperatorKind {
    /// None.
    Plain,
    /// Aggregates without GROUP BY.
    Aggregate,
    /// GROUP BY
    Group,
    /// GROUPING SETS, ROLLUP, CUBE
    GroupingSets,
    /// DISTINCT
    Distinct,
    /// DISTINCT ON
    DistinctOn,
    /// Window functions.
    Window,
    /// UNION, INTERSECT, EXCEPT
    SetOperation,
    /// ORDER BY without LIMIT.
    Sort,
    /// LIMIT or OFFSET
    Limit,
    /// WITH RECURSIVE
    Recursion,
    /// INSERT
    Insert,
    /// UPDATE
    Update,
    /// DELETE
    Delete,
    /// MERGE
    Merge,
}

/// How FROM joins.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum JoinKind {
    /// No join.
    Single,
    /// `,`
    Comma,
    /// CROSS JOIN
    Cross,
    /// JOIN … ON
    Inner,
    /// LEFT JOIN … ON
    Left,
    /// RIGHT JOIN … ON
    Right,
    /// FULL JOIN … ON
    Full,
    /// USING
    Using,
    /// NATURAL
    Natural,
    /// LATERAL
    Lateral,
}

impl Place {
    /// All places.
    pub const ALL: [Place; 19] = [
        Place::None,
        Place::Target,
        Place::From,
        Place::Lateral,
        Place::Where,
        Place::Having,
        Place::On,
        Place::OrderBy,
        Place::GroupBy,
        Place::Case,
        Place::Aggregate,
        Place::Filter,
        Place::Window,
        Place::With,
        Place::Values,
        Place::Set,
        Place::Returning,
        Place::Conflict,
        Place::When,
    ];
}

impl OperatorKind {
    /// All operators.
    pub const ALL: [OperatorKind; 15] = [
        OperatorKind::Plain,
        OperatorKind::Aggregate,
        OperatorKind::Group,
        OperatorKind::GroupingSets,
        OperatorKind::Distinct,
        OperatorKind::DistinctOn,
        OperatorKind::Window,
        OperatorKind::SetOperation,
        OperatorKind::Sort,
        OperatorKind::Limit,
        OperatorKind::Recursion,
        OperatorKind::Insert,
        OperatorKind::Update,
        OperatorKind::Delete,
        OperatorKind::Merge,
    ];

    /// Whether it changes rows.
    pub fn is_change(self) -> bool {
        self >= OperatorKind::Insert
    }
}

impl JoinKind {
    /// All kinds.
    pub const ALL: [JoinKind; 10] = [
        JoinKind::Single,
        JoinKind::Comma,
        JoinKind::Cross,
        JoinKind::Inner,
        JoinKind::Left,
        JoinKind::Right,
        JoinKind::Full,
        JoinKind::Using,
        JoinKind::Natural,
        JoinKind::Lateral,
    ];
}

/// Place, operator, join.
pub type Cell = (Place, OperatorKind, JoinKind);

/// All cells, also those that no statement has.
pub fn all_cells() -> impl Iterator<Item = Cell> {
    let of_place = |place| {
        OperatorKind::ALL
            .into_iter()
            .flat_map(move |operator| JoinKind::ALL.into_iter().map(move |join| (place, operator, join)))
    };
    Place::ALL.into_iter().flat_map(of_place)
}

/// Why no statement has a cell; `None` of the others.
pub fn impossible((place, operator, join): Cell) -> Option<&'static str> {
    use OperatorKind::{
        Aggregate, Delete, Insert, Limit, Merge, Plain, Recursion, SetOperation, Sort, Update,
    };
    // A set operation, which may be sorted, and a recursion have several FROM clauses.
    let has_one_from = !matches!(operator, SetOperation | Sort | Limit | Recursion);
    match (place, operator, join) {
        (Place::Values, Merge, JoinKind::Inner) => Some("WHEN NOT MATCHED needs an outer join"),
        (Place::Values, Insert | Merge, _)
        | (Place::Set, Update | Merge, _)
        | (Place::Returning, Insert | Update | Delete, _)
        | (Place::Conflict, Insert, _)
        | (Place::When, Merge, _) => joins_of_changes(operator, join),
        (Place::Values | Place::Set | Place::Returning | Place::Conflict | Place::When, ..) => {
            Some("the statement does not have the clause")
        }
        (Place::None | Place::With | Place::Case, operator, _) if operator.is_change() => {
            joins_of_changes(operator, join)
        }
        (Place::From | Place::Lateral | Place::On, Update | Delete, JoinKind::Single) => {
            Some("a change without FROM or USING has no such item")
        }
        (Place::Lateral, Merge, _) => Some("the source of MERGE has nothing to its left"),
        (Place::From | Place::On, Merge, _) => joins_of_changes(operator, join),
        (Place::From | Place::Lateral | Place::On | Place::Where, Update | Delete, _) => {
            joins_of_changes(operator, join)
        }
        (_, operator, _) if operator.is_change() => Some("row changes do not have the clause"),
        (Place::OrderBy, Plain, _) => Some("ORDER BY is a sort"),
        (Place::Window, Plain, _) => Some("window functions are an operator"),
        (Place::Having | Place::GroupBy | Place::Aggregate | Place::Filter, Plain, _) => {
            Some("the clause makes groups")
        }
        (Place::GroupBy, Aggregate, _) => Some("the operator is aggregates without GROUP BY"),
        (Place::On, _, JoinKind::Single) if has_one_from => Some("ON belongs to a join"),
        (Place::Lateral, _, JoinKind::Single) if has_one_from => {
            Some("LATERAL joins what stands to its left")
        }
        _ => None,
    }
}

fn joins_of_changes(operator: OperatorKind, join: JoinKind) -> Option<&'static str> {
    match (operator, join) {
        (OperatorKind::Insert, JoinKind::Single) => None,
        (OperatorKind::Insert, _) => Some("INSERT joins nothing; its query is one of its own"),
        (OperatorKind::Merge, JoinKind::Inner | JoinKind::Right) => None,
        (OperatorKind::Merge, _) => Some(
            "MERGE joins its target and its source by itself, by an outer join where NOT MATCHED needs one",
        ),
        _ => None,
    }
}

/// How often each cell must be covered by a run of so many statements.
const LEAST: usize = 200;
const STATEMENTS: usize = 100_000;

/// How many of the rarest cells are shown.
const SHOWN: usize = 20;

/// How many statements with rows cover each cell.
#[derive(Default)]
pub struct Coverage {
    counts: BTreeMap<Cell, usize>,
}

impl Coverage {
    /// Counts a statement that returned rows.
    pub fn add(&mut self, cells: &BTreeSet<Cell>) {
        for cell in cells {
            if let Some(why) = impossible(*cell) {
                panic!("{cell:?} is taken for impossible, because {why}");
            }
            *self.counts.entry(*cell).or_default() += 1;
        }
    }

    /// All cells that can be covered, and how often each was, the rarest first.
    fn cells(&self) -> Vec<(usize, Cell)> {
        let count = |cell| (self.counts.get(&cell).copied().unwrap_or(0), cell);
        let mut cells: Vec<(usize, Cell)> =
            all_cells().filter(|cell| impossible(*cell).is_none()).map(count).collect();
        cells.sort_unstable();
        cells
    }

    /// How many cells there are, how often they were covered, and the rarest of them; and whether a run of so many statements has
    /// covered enough. One of few statements always has. Without row changes their cells do not count; those with parts have few kinds.
    pub fn summary(&self, statements: usize, kinds: Kinds) -> (String, bool) {
        let mut cells = self.cells();
        cells.retain(|(_, (_, operator, _))| kinds == Kinds::All || !operator.is_change());
        let median = cells[cells.len() / 2].0;
        let never = cells.iter().filter(|(count, _)| *count == 0).count();
        let mut out = format!(
            "{} cells; {never} never covered, the rarest {} times, the median {median} times\n",
            cells.len(),
            cells[0].0
        );
        for (count, (place, operator, join)) in cells.iter().take(SHOWN) {
            writeln!(out, "{count:>6}  {place:?} / {operator:?} / {join:?}").expect("strings take all");
        }
        let least = if statements >= STATEMENTS && kinds != Kinds::Partitions { LEAST } else { 0 };
        let few = cells.iter().filter(|(count, _)| *count < least).count();
        if few > 0 {
            writeln!(out, "{few} cells are covered fewer than {least} times").expect("strings take all");
        }
        (out, few == 0)
    }

    /// A table of all cells.
    pub fn table(&self) -> String {
        let mut out = String::new();
        for (count, (place, operator, join)) in self.cells() {
            writeln!(out, "{count:>6}  {place:?} / {operator:?} / {join:?}").expect("strings take all");
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_that_were_never_covered_are_shown() {
        let mut coverage = Coverage::default();
        coverage.add(&BTreeSet::from([(Place::None, OperatorKind::Plain, JoinKind::Single)]));
        let (summary, is_enough) = coverage.summary(1, Kinds::All);
        assert!(is_enough && summary.contains("     0  None / Plain / Comma"), "{summary}");
        assert!(!coverage.summary(STATEMENTS, Kinds::All).1);
        assert!(coverage.table().contains("     1  None / Plain / Single"));
    }
}
