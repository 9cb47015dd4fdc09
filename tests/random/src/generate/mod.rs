//! The generator: typed statements over the tables of [`crate::schema`], most of them SELECT.
//!
//! Types and scopes are kept while the text is written, so that most statements are valid and return rows. Aliases are
//! from a small set, so that names of an inner query hide those of outer ones. Where SQL leaves a choice to the engine
//! (rows at a LIMIT, ROWS frames over peers, the order of aggregated values) the text orders by enough columns.
//!
//! Most statements are made to have drawn cells of the coverage ([`Wanted`]): chance alone would seldom put a sub-query into ON below
//! GROUPING SETS over NATURAL JOIN.
//!
//! In reading order: `query` (SELECT, set operations, WITH), `from` (joins), `expression`, `condition`, `call` (aggregates
//! and window functions), `change` (INSERT, UPDATE, DELETE, MERGE), `wanted`, `partition` (ternary logic), `volatile`.

mod call;
mod change;
mod condition;
mod expression;
mod from;
mod partition;
mod query;
mod volatile;
mod wanted;

use partition::Partition;
use wanted::{Wanted, Weights, weights};

use crate::choices::{Choices, Span};
use crate::compare::Ordering;
use crate::coverage::{Cell, JoinKind, OperatorKind, Place};
use crate::engine::{Parameter, Statement};
use crate::schema::Ty;
use std::collections::BTreeSet;

/// A statement, and how its results compare.
pub struct Generated {
    /// The statement.
    pub statement: Statement,
    /// How its rows are ordered.
    pub ordering: Ordering,
    /// Statements that have its rows together, if it has been made with some.
    pub partition: Option<Partition>,
    /// The cells that it covers.
    pub cells: BTreeSet<Cell>,
    /// The choices from which it was made.
    pub record: Vec<u32>,
    /// The rules that made them.
    pub spans: Vec<Span>,
}

impl Generated {
    /// Whether the engine chooses which of several equal values a result shows: 1.0 or 1.00.
    pub fn may_choose(&self) -> bool {
        const WORDS: [&str; 9] =
            ["GROUP BY", "DISTINCT", "UNION", "INTERSECT", "EXCEPT", "min(", "max(", "USING", "NATURAL"];
        WORDS.iter().any(|word| self.statement.text.contains(word))
            || ["LIMIT", "FETCH", "greatest", "least", "first_value", "array_agg"]
                .iter()
                .any(|word| self.statement.text.contains(word))
    }
}

/// How many statements of a hundred change rows, if an engine can run them.
const CHANGES: usize = 40;

/// How many of the others are made with statements that have their rows together.
const PARTITIONS: usize = 8;

/// Which statements are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kinds {
    /// Queries.
    Queries,
    /// Queries and changes of rows.
    All,
    /// Queries with statements that have their rows together.
    Partitions,
}

/// Makes the statement of these choices.
pub fn generate(choices: Choices, kinds: Kinds) -> Generated {
    generate_by(choices, kinds, weights())
}

/// Makes the statement of these choices, of whose cells some are drawn by these weights.
fn generate_by(choices: Choices, kinds: Kinds, weights: &Weights) -> Generated {
    let mut generator = Generator {
        choices,
        weights,
        levels: Vec::new(),
        parameters: Vec::new(),
        may_have_parameters: true,
        common: Vec::new(),
        frames: Vec::new(),
        cells: BTreeSet::new(),
        place: Place::None,
        queries: 0,
        wanted: None,
        flat: 0,
        leads: false,
        begins_with: None,
        used_aliases: Vec::new(),
        needs_alias: false,
        given: None,
    };
    let is_change = kinds == Kinds::All && generator.choices.chance(CHANGES);
    let (mut partition, mut changed) = (None, None);
    let (text, ordering) = match is_change {
        true => {
            let (text, ordering, table) = generator.change();
            changed = Some(table);
            (text, ordering)
        }
        false if kinds == Kinds::Partitions || generator.choices.chance(PARTITIONS) => {
            let (text, parts) = generator.partition();
            partition = Some(parts);
            (text, Ordering::Open)
        }
        false => generator.statement(),
    };
    let statement = Statement { text, parameters: generator.parameters, changed };
    let (record, spans) = generator.choices.into_record();
    Generated { statement, ordering, partition, cells: generator.cells, record, spans }
}

/// The state while one statement is made.
struct Generator<'w> {
    choices: Choices,
    weights: &'w Weights,
    /// The queries around the current position, the innermost last.
    levels: Vec<Level>,
    parameters: Vec<Parameter>,
    /// Whether constants stand where parameters would.
    may_have_parameters: bool,
    /// Common tables that FROM may name.
    common: Vec<Common>,
    /// The coverage of the queries around the current position.
    frames: Vec<Frame>,
    cells: BTreeSet<Cell>,
    /// The current clause.
    place: Place,
    /// How many queries are within the current one, itself included.
    queries: usize,
    /// What the next query is to have.
    wanted: Option<Wanted>,
    /// How many of the queries around the place at hand are to have no sub-query.
    flat: usize,
    /// Whether the next SELECT begins with the number of a round, and casts its other columns.
    leads: bool,
    /// The common table with which the next FROM begins.
    begins_with: Option<usize>,
    /// Names that the next FROM may not give.
    used_aliases: Vec<String>,
    /// Whether a name without a relation could be one of the table that is changed.
    needs_alias: bool,
    /// Where the next query has a sub-query already.
    given: Option<Place>,
}

/// The scope of expressions of a query.
#[derive(Clone, Default)]
struct Level {
    atoms: Vec<Atom>,
    /// The names of its relations, which hide those of outer queries.
    aliases: Vec<String>,
    /// The columns before grouping, of which aggregates are made; `None` where aggregates are not permitted.
    grouped: Option<Vec<Atom>>,
    /// Whether window functions are permitted here.
    windows: bool,
    /// Columns whose values are unique, if known.
    total: Option<Vec<String>>,
    /// An expression that only may stand as a whole target.
    whole: Option<Atom>,
}

/// An expression that can be used unchanged.
#[derive(Clone, Debug)]
struct Atom {
    text: String,
    ty: Ty,
    /// Its relation. Without one it can only be used in its own query: inner names would hide it.
    alias: Option<String>,
}

/// A common table.
#[derive(Clone)]
struct Common {
    name: String,
    columns: Vec<(String, Ty)>,
    /// How many more times it may be read.
    uses: usize,
}

/// The coverage of a query.
#[derive(Default)]
struct Frame {
    places: BTreeSet<Place>,
    operators: BTreeSet<OperatorKind>,
    joins: BTreeSet<JoinKind>,
}

/// The most queries of a statement.
const QUERIES: usize = 8;

impl Generator<'_> {
    /// Makes a part in another clause.
    fn at<T>(&mut self, place: Place, make: impl FnOnce(&mut Self) -> T) -> T {
        let before = std::mem::replace(&mut self.place, place);
        let made = make(self);
        self.place = before;
        made
    }

    /// Makes a part by a rule of the grammar.
    fn rule<T>(&mut self, rule: u32, make: impl FnOnce(&mut Self) -> T) -> T {
        let opened = self.choices.open(rule);
        let made = make(self);
        self.choices.close(opened);
        made
    }

    /// Makes a part that is optional: one that is not made leaves no parameters.
    fn or_none<T>(&mut self, make: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        let parameters = self.parameters.len();
        let made = make(self);
        if made.is_none() {
            self.parameters.truncate(parameters);
        }
        made
    }

    /// Makes a part for which another query is the innermost one.
    fn inside<T>(&mut self, mut level: Level, make: impl FnOnce(&mut Self) -> T) -> T {
        if self.needs_alias {
            level.atoms.retain(|atom| atom.alias.is_some());
        }
        self.levels.push(level);
        let made = make(self);
        self.levels.pop();
        made
    }

    fn covers_place(&mut self, place: Place) {
        if let Some(frame) = self.frames.last_mut() {
            frame.places.insert(place);
        }
    }

    fn covers_operator(&mut self, operator: OperatorKind) {
        if let Some(frame) = self.frames.last_mut() {
            frame.operators.insert(operator);
        }
    }

    /// Whether one more sub-query may begin.
    fn may_nest(&self) -> bool {
        self.flat == 0 && self.queries < QUERIES && self.frames.len() < 4
    }

    /// The condition, in so many of a hundred cases with an alternative that most rows meet.
    fn mostly_true(&mut self, condition: String, percent: usize) -> String {
        if !self.choices.chance(percent) {
            return condition;
        }
        let column = [Ty::Int, Ty::Text, Ty::Big, Ty::Num].into_iter().find_map(|ty| self.own_column(ty));
        match column {
            Some(column) => format!("({condition} OR {column} IS NOT NULL)"),
            None => format!("({condition} OR true)"),
        }
    }

    /// Begins what is covered by a query or a row change.
    fn open_frame(&mut self) {
        let places = self.given.take().into_iter().collect();
        self.frames.push(Frame { places, ..Frame::default() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coverage::{all_cells, impossible};
    use std::collections::BTreeMap;

    /// Of so many statements each cell must be made by so many: about twice as often as a run of 100,000 must cover it, as some of them
    /// have no rows.
    const MADE: u64 = 10_000;
    const LEAST: usize = 40;

    #[test]
    fn every_cell_is_made_often() {
        let mut counts: BTreeMap<Cell, usize> = BTreeMap::new();
        for seed in 0..MADE {
            for cell in generate(Choices::random(seed), Kinds::All).cells {
                *counts.entry(cell).or_default() += 1;
            }
        }
        let count = |cell: Cell| (counts.get(&cell).copied().unwrap_or(0), cell);
        let mut rare: Vec<(usize, Cell)> = all_cells()
            .filter(|cell| impossible(*cell).is_none())
            .map(count)
            .filter(|(count, _)| *count < LEAST)
            .collect();
        rare.sort_unstable();
        let lines: Vec<String> = rare.iter().map(|(count, cell)| format!("{count} {cell:?}")).collect();
        assert!(rare.is_empty(), "{} cells are rare:\n{}", rare.len(), lines.join("\n"));
    }
}
