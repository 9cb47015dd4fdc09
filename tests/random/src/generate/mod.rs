//! The generator: typed statements over the tables of [`crate::schema`], most of them SELECT.
//!
//! Types and scopes are kept while the text is written, so that most statements are valid and return rows. Aliases are
//! from a small set, so that names of an inner query hide those of outer ones. Where SQL leaves a choice to the engine
//! (rows at a LIMIT, ROWS frames over peers, the order of aggregated values) the text orders by enough columns.
//!
//! In reading order: `query` (SELECT, set operations, WITH), `from` (joins), `expression`, `condition`, `call` (aggregates
//! and window functions), `change` (INSERT, UPDATE, DELETE, MERGE).

mod call;
mod change;
mod condition;
mod expression;
mod from;
mod query;

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
const CHANGES: usize = 25;

/// Makes the statement of these choices; one in four changes rows if `changes` is set.
pub fn generate(choices: Choices, changes: bool) -> Generated {
    let mut generator = Generator {
        choices,
        levels: Vec::new(),
        parameters: Vec::new(),
        common: Vec::new(),
        frames: Vec::new(),
        cells: BTreeSet::new(),
        place: Place::None,
        queries: 0,
    };
    let is_change = changes && generator.choices.chance(CHANGES);
    let (text, ordering, changed) = match is_change {
        true => {
            let (text, ordering, table) = generator.change();
            (text, ordering, Some(table))
        }
        false => {
            let (text, ordering) = generator.statement();
            (text, ordering, None)
        }
    };
    let statement = Statement { text, parameters: generator.parameters, changed };
    let (record, spans) = generator.choices.into_record();
    Generated { statement, ordering, cells: generator.cells, record, spans }
}

/// The state while one statement is made.
struct Generator {
    choices: Choices,
    /// The queries around the current position, the innermost last.
    levels: Vec<Level>,
    parameters: Vec<Parameter>,
    /// Common tables that FROM may name.
    common: Vec<Common>,
    /// The coverage of the queries around the current position.
    frames: Vec<Frame>,
    cells: BTreeSet<Cell>,
    /// The current clause.
    place: Place,
    /// How many queries are within the current one, itself included.
    queries: usize,
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
const QUERIES: usize = 9;

impl Generator {
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
    fn inside<T>(&mut self, level: Level, make: impl FnOnce(&mut Self) -> T) -> T {
        self.levels.push(level);
        let made = make(self);
        self.levels.pop();
        made
    }

    fn covers_operator(&mut self, operator: OperatorKind) {
        if let Some(frame) = self.frames.last_mut() {
            frame.operators.insert(operator);
        }
    }

    /// Whether one more sub-query may begin.
    fn may_nest(&self) -> bool {
        self.queries < QUERIES && self.frames.len() < 4
    }
}
