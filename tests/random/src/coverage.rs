//! The coverage of a run: cells of (position of a sub-query, operator above it, kind of join of the query that contains it).

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

/// Place, operator, join.
pub type Cell = (Place, OperatorKind, JoinKind);

/// How many statements with rows cover each cell.
#[derive(Default)]
pub struct Coverage {
    counts: BTreeMap<Cell, usize>,
}

impl Coverage {
    /// Counts a statement that returned rows.
    pub fn add(&mut self, cells: &BTreeSet<Cell>) {
        cells.iter().for_each(|cell| *self.counts.entry(*cell).or_default() += 1);
    }

    /// How many cells there are, and how often the rarest and the median of them were covered.
    pub fn summary(&self) -> String {
        let mut counts: Vec<usize> = self.counts.values().copied().collect();
        counts.sort_unstable();
        let (Some(least), median) = (counts.first(), counts.get(counts.len() / 2)) else {
            return "no cell covered".to_owned();
        };
        let median = median.expect("there is one in the middle");
        format!("{} cells covered; the rarest {least} times, the median {median} times", counts.len())
    }

    /// A table of all cells.
    pub fn table(&self) -> String {
        let mut out = String::new();
        for ((place, operator, join), count) in &self.counts {
            writeln!(out, "{count:>6}  {place:?} / {operator:?} / {join:?}").expect("strings take all");
        }
        out
    }
}
