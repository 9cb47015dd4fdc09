//! The choices that make a statement.
//!
//! A generator gets each choice from here. The choices are recorded, so that a statement can be made again from a changed
//! record. That is how a failing statement is shrunk, without knowing its grammar (MacIver and Donaldson, "Test-Case
//! Reduction via Test-Case Generation", ECOOP 2020). Invariant: a choice of 0 is the simplest alternative, and choices
//! beyond the end of a record are 0.

use firn_base::random::Random;

/// The number of choices after which all further ones are the simplest.
const MOST: usize = 900;

/// A source of choices and their record.
pub struct Choices {
    random: Option<Random>,
    given: Vec<u32>,
    made: Vec<u32>,
    spans: Vec<Span>,
}

/// The choices of one rule of the grammar.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// Equal for rules whose results can replace each other.
    pub rule: u32,
    /// The first choice.
    pub start: usize,
    /// The one after the last choice.
    pub end: usize,
}

impl Choices {
    /// New choices.
    pub fn random(seed: u64) -> Choices {
        Choices { random: Some(Random::seeded(seed)), given: Vec::new(), made: Vec::new(), spans: Vec::new() }
    }

    /// These choices.
    pub fn given(choices: Vec<u32>) -> Choices {
        Choices { random: None, given: choices, made: Vec::new(), spans: Vec::new() }
    }

    /// A number below a bound.
    pub fn below(&mut self, bound: usize) -> usize {
        let bound = bound as u32;
        let place = self.made.len();
        let choice = match (self.given.get(place), &mut self.random) {
            _ if place >= MOST => 0,
            (Some(given), _) => given % bound,
            (None, Some(random)) => random.uniform(0, i64::from(bound) - 1) as u32,
            (None, None) => 0,
        };
        self.made.push(choice);
        choice as usize
    }

    /// True with this probability in percent.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) >= 100 - percent
    }

    /// One of several.
    pub fn pick<'t, T: ?Sized>(&mut self, from: &[&'t T]) -> &'t T {
        from[self.below(from.len())]
    }

    /// The position of one of several with these weights.
    pub fn weighted(&mut self, weights: &[usize]) -> usize {
        let mut rest = self.below(weights.iter().sum());
        for (place, weight) in weights.iter().enumerate() {
            match rest.checked_sub(*weight) {
                None => return place,
                Some(less) => rest = less,
            }
        }
        unreachable!("the weights sum to the bound")
    }

    /// Begins a rule; the result is for [`Choices::close`].
    pub fn open(&mut self, rule: u32) -> usize {
        let start = self.made.len();
        self.spans.push(Span { rule, start, end: start });
        self.spans.len() - 1
    }

    /// Ends a rule.
    pub fn close(&mut self, opened: usize) {
        self.spans[opened].end = self.made.len();
    }

    /// The record.
    pub fn into_record(self) -> (Vec<u32>, Vec<Span>) {
        (self.made, self.spans)
    }
}
