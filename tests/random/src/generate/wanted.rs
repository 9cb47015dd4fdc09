//! What a statement is to have: cells of the coverage that are drawn before it is made.

use super::Generator;
use crate::coverage::{JoinKind, OperatorKind, Place, impossible};
use crate::schema::Ty;

/// What a query is to have.
#[derive(Clone, Default)]
pub(super) struct Wanted {
    /// Where it has sub-queries; nowhere, if it is [`Place::None`] alone.
    pub places: Vec<Place>,
    /// What it does.
    pub operators: Vec<OperatorKind>,
    /// How it joins.
    pub joins: Vec<JoinKind>,
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

impl Generator {
    /// A cell of queries, and a few more alike.
    pub(super) fn draw_wanted(&mut self) -> Wanted {
        // Places of queries come first, and so do operators.
        let places = Place::ALL.into_iter().take_while(|place| *place <= Place::With);
        let operators: Vec<OperatorKind> =
            OperatorKind::ALL.into_iter().filter(|operator| !operator.is_change()).collect();
        let mut cells = Vec::new();
        for place in places.clone() {
            for operator in &operators {
                for join in JoinKind::ALL {
                    let cell = (place, *operator, join);
                    // With these fewer others are covered at once.
                    let weight = if place == Place::None { 3 } else { 1 }
                        * if join == JoinKind::Single { 2 } else { 1 }
                        * if *operator == OperatorKind::Plain { 2 } else { 1 };
                    let count = if impossible(cell).is_none() { weight } else { 0 };
                    cells.extend(std::iter::repeat_n(cell, count));
                }
            }
        }
        let (place, operator, join) = cells[self.choices.below(cells.len())];
        let mut wanted = Wanted { places: vec![place], operators: vec![operator], joins: vec![join] };
        // Only a set operation joins and does not.
        let is_join = matches!(place, Place::On | Place::Lateral);
        if is_join && join == JoinKind::Single && matches!(operator, OperatorKind::Sort | OperatorKind::Limit)
        {
            wanted.operators.push(OperatorKind::SetOperation);
        }
        let places: Vec<Place> = places.collect();
        if place != Place::None {
            for _ in 0..3 + self.choices.below(2) {
                let more = places[self.choices.below(places.len())];
                let goes = |cell| impossible(cell).is_none();
                if more != Place::None && !wanted.has(more) && goes((more, operator, join)) {
                    wanted.places.push(more);
                }
            }
        }
        for _ in 0..2 {
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

    /// Joins of a row change.
    pub(super) fn draw_joins(&mut self) -> Wanted {
        let count = 1 + self.choices.below(3);
        let mut wanted = Wanted::default();
        for _ in 0..count {
            let join = JoinKind::ALL[self.choices.below(JoinKind::ALL.len())];
            if !wanted.joins.contains(&join) {
                wanted.joins.push(join);
            }
        }
        for place in [Place::From, Place::Lateral, Place::On] {
            let is_single = wanted.joins == [JoinKind::Single];
            if self.flat == 0 && self.choices.chance(35) && (place == Place::From || !is_single) {
                wanted.places.push(place);
            }
        }
        wanted
    }
}
