//! What a statement is to have: cells of the coverage that are drawn before it is made.

use super::{Generator, Kinds, generate_by};
use crate::choices::Choices;
use crate::coverage::{Cell, JoinKind, OperatorKind, Place, all_cells, impossible};
use crate::schema::Ty;
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// What a query is to have.
#[derive(Clone, Default)]
pub(super) struct Wanted {
    /// Where it has sub-queries; nowhere, if it is [`Place::None`] alone.
    pub places: Vec<Place>,
    /// What it does.
    pub operators: Vec<OperatorKind>,
    /// How it joins.
    pub joins: Vec<JoinKind>,
    /// The clause of a row change that has CASE with a sub-query.
    pub case_in: Option<Place>,
}

impl Wanted {
    /// Whether anything is wanted.
    pub fn is_empty(&self) -> bool {
        self.operators.is_empty() && self.joins.is_empty() && self.places.is_empty()
    }

    /// Whether a sub-query is to stand there.
    pub fn has(&self, place: Place) -> bool {
        self.places.contains(&place)
    }

    /// Whether it is to do that.
    pub fn does(&self, operator: OperatorKind) -> bool {
        self.operators.contains(&operator)
    }

    /// Whether it is to have no sub-query.
    pub fn is_flat(&self) -> bool {
        self.places == [Place::None]
    }

    /// What an operand or a first term of it is to have.
    pub fn of_operand(&self) -> Wanted {
        let mut wanted = self.clone();
        let is_own = |operator: &OperatorKind| {
            !matches!(
                operator,
                OperatorKind::SetOperation
                    | OperatorKind::Recursion
                    | OperatorKind::Sort
                    | OperatorKind::Limit
            )
        };
        wanted.operators.retain(is_own);
        wanted.places.retain(|place| *place != Place::With);
        wanted
    }
}

/// How often a cell is drawn.
pub type Weights = Vec<(Cell, usize)>;

/// How many statements show how often each cell is covered by chance, from how often on it has the smallest weight, and the largest one.
const PILOT: u64 = 4000;
const ENOUGH: usize = 240;
const MOST: usize = 60;

/// Weights by which cells are drawn the more often, the more seldom statements have them that were made to have others. They are the
/// same in each run.
pub(super) fn weights() -> &'static Weights {
    static WEIGHTS: OnceLock<Weights> = OnceLock::new();
    WEIGHTS.get_or_init(|| {
        let cells = all_cells().filter(|cell| impossible(*cell).is_none());
        let equal: Weights = cells.map(|cell| (cell, 1)).collect();
        let mut counts: BTreeMap<Cell, usize> = BTreeMap::new();
        for seed in 0..PILOT {
            for cell in generate_by(Choices::random(seed), Kinds::All, &equal).cells {
                *counts.entry(cell).or_default() += 1;
            }
        }
        let weight = |(cell, _): &(Cell, usize)| {
            let count = counts.get(cell).copied().unwrap_or(0).max(1);
            // What has no sub-query covers few cells at once, and what joins equal names has rows more seldom.
            let more = match *cell {
                (Place::None, ..) => 4,
                (Place::With, ..) | (_, _, JoinKind::Natural) => 3,
                _ => 2,
            };
            (*cell, more * (ENOUGH / count).clamp(1, MOST))
        };
        equal.iter().map(weight).collect()
    })
}

impl Generator<'_> {
    /// One of the cells with a property.
    fn draw_cell(&mut self, has: impl Fn(Cell) -> bool) -> Cell {
        let (cells, weights): (Vec<Cell>, Vec<usize>) =
            self.weights.iter().copied().filter(|(cell, _)| has(*cell)).unzip();
        cells[self.choices.weighted(&weights)]
    }

    /// A cell of queries, and a few more alike.
    pub(super) fn draw_wanted(&mut self) -> Wanted {
        let (place, operator, join) = self.draw_cell(|(_, operator, _)| !operator.is_change());
        let mut wanted =
            Wanted { places: vec![place], operators: vec![operator], joins: vec![join], case_in: None };
        // Only a set operation joins and does not.
        let is_join = matches!(place, Place::On | Place::Lateral);
        if is_join && join == JoinKind::Single && matches!(operator, OperatorKind::Sort | OperatorKind::Limit)
        {
            wanted.operators.push(OperatorKind::SetOperation);
        }
        // Places of queries come first, and so do operators.
        let places: Vec<Place> = Place::ALL.into_iter().take_while(|place| *place <= Place::With).collect();
        let operators: Vec<OperatorKind> =
            OperatorKind::ALL.into_iter().filter(|operator| !operator.is_change()).collect();
        if place != Place::None {
            for _ in 0..4 + self.choices.below(2) {
                let more = places[self.choices.below(places.len())];
                let goes = |cell| impossible(cell).is_none();
                if more != Place::None && !wanted.has(more) && goes((more, operator, join)) {
                    wanted.places.push(more);
                }
            }
        }
        for _ in 0..3 {
            let more = operators[self.choices.below(operators.len())];
            use OperatorKind::{Aggregate, Distinct, DistinctOn, Group, GroupingSets, Limit, Plain, Sort};
            let excludes =
                [&[Plain][..], &[Aggregate, Group, GroupingSets], &[Distinct, DistinctOn], &[Sort, Limit]];
            let is_excluded = operator == Plain
                || excludes.iter().any(|kinds| {
                    kinds.contains(&more)
                        && (more == Plain || wanted.operators.iter().any(|other| kinds.contains(other)))
                });
            let goes = wanted.places.iter().all(|place| impossible((*place, more, join)).is_none());
            if !is_excluded && goes && !wanted.does(more) {
                wanted.operators.push(more);
            }
        }
        for _ in 0..1 + self.choices.below(2) {
            let more = JoinKind::ALL[1 + self.choices.below(JoinKind::ALL.len() - 1)];
            if join != JoinKind::Single && !wanted.joins.contains(&more) {
                wanted.joins.push(more);
            }
        }
        wanted
    }

    /// Types for a query that is to have much: the first is one that counts.
    pub(super) fn wanted_types(&mut self) -> Vec<Ty> {
        let mut types = vec![Ty::Big];
        for _ in 0..2 {
            types.push(Ty::ALL[self.choices.weighted(&Ty::WEIGHTS)]);
        }
        types
    }

    /// A cell of row changes, and a few more alike. In WITH a change is no MERGE and has no WITH of its own.
    pub(super) fn draw_change(&mut self, is_in_with: bool) -> Wanted {
        use OperatorKind::{Delete, Insert, Merge, Update};
        let merge = if is_in_with { 0 } else { 12 };
        let operator = [Insert, Update, Delete, Merge][self.choices.weighted(&[13, 38, 37, merge])];
        let goes = |cell: Cell| {
            cell.1 == operator && !(is_in_with && cell.0 == Place::With) && impossible(cell).is_none()
        };
        let (place, _, join) = self.draw_cell(goes);
        let mut wanted =
            Wanted { places: vec![place], operators: vec![operator], joins: vec![join], case_in: None };
        if place != Place::None {
            for _ in 0..7 {
                let more = Place::ALL[self.choices.below(Place::ALL.len())];
                if more != Place::None && !wanted.has(more) && goes((more, operator, join)) {
                    wanted.places.push(more);
                }
            }
        }
        // MERGE joins in one way, and so does a change of one table.
        if join != JoinKind::Single && operator != OperatorKind::Merge {
            for _ in 0..1 + self.choices.below(3) {
                let more = JoinKind::ALL[1 + self.choices.below(JoinKind::ALL.len() - 1)];
                if !wanted.joins.contains(&more) {
                    wanted.joins.push(more);
                }
            }
        }
        if wanted.has(Place::Case) {
            let clauses: &[Place] = match operator {
                OperatorKind::Insert => &[Place::Values, Place::Returning],
                OperatorKind::Update => &[Place::Set, Place::Where, Place::Returning],
                OperatorKind::Delete => &[Place::Where, Place::Returning],
                _ => &[Place::When],
            };
            wanted.case_in = Some(clauses[self.choices.below(clauses.len())]);
        }
        wanted
    }
}
