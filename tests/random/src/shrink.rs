//! Makes a failing statement small.
//!
//! It changes the record of choices and makes the statement again: rules become their simplest form, a rule replaces
//! an equal one around it, choices are removed or become smaller. A change is kept if the statement is simpler and
//! fails in the same way.

use crate::choices::Choices;
use crate::generate::{Generated, Kinds, generate};

/// How many changes are tried.
const ATTEMPTS: usize = 1200;

/// The smallest statement found for which `fails` holds, as it does for the one of `record`.
pub fn shrink(record: Vec<u32>, kinds: Kinds, fails: &mut dyn FnMut(&Generated) -> bool) -> Generated {
    let mut shrinking =
        Shrinking { best: generate(Choices::given(record), kinds), kinds, attempts: 0, fails };
    loop {
        let before = measure(&shrinking.best);
        shrinking.simplify_rules();
        shrinking.hoist_rules();
        for length in [8, 4, 2, 1] {
            shrinking.remove_choices(length);
        }
        shrinking.lower_choices();
        if measure(&shrinking.best) == before || shrinking.attempts >= ATTEMPTS {
            return shrinking.best;
        }
    }
}

struct Shrinking<'f> {
    best: Generated,
    kinds: Kinds,
    attempts: usize,
    fails: &'f mut dyn FnMut(&Generated) -> bool,
}

fn measure(generated: &Generated) -> (usize, usize, Vec<u32>) {
    (generated.statement.text.len(), generated.record.len(), generated.record.clone())
}

impl Shrinking<'_> {
    /// Keeps the statement of these choices if it is simpler and fails.
    fn attempt(&mut self, record: Vec<u32>) -> bool {
        if self.attempts >= ATTEMPTS {
            return false;
        }
        let candidate = generate(Choices::given(record), self.kinds);
        if measure(&candidate) >= measure(&self.best) {
            return false;
        }
        self.attempts += 1;
        let fails = (self.fails)(&candidate);
        if fails {
            self.best = candidate;
        }
        fails
    }

    fn replaced(&self, start: usize, end: usize, with: &[u32]) -> Vec<u32> {
        let record = &self.best.record;
        [&record[..start.min(record.len())], with, &record[end.min(record.len())..]].concat()
    }

    fn simplify_rules(&mut self) {
        let mut place = 0;
        while let Some(span) = self.best.spans.get(place).copied() {
            let shorter = [&[0][..], &[0, 0], &[0, 0, 0], &[0; 4]];
            let simplified = shorter.into_iter().any(|with| {
                with.len() <= span.end - span.start && self.attempt(self.replaced(span.start, span.end, with))
            });
            if !simplified {
                place += 1;
            }
        }
    }

    fn hoist_rules(&mut self) {
        let mut place = 0;
        while let Some(outer) = self.best.spans.get(place).copied() {
            let inner: Vec<_> = self.best.spans[place + 1..]
                .iter()
                .take_while(|inner| inner.start < outer.end)
                .filter(|inner| inner.rule == outer.rule && inner.end <= outer.end)
                .copied()
                .collect();
            let hoisted = inner.into_iter().any(|inner| {
                let with = self.best.record[inner.start..inner.end].to_vec();
                self.attempt(self.replaced(outer.start, outer.end, &with))
            });
            if !hoisted {
                place += 1;
            }
        }
    }

    fn remove_choices(&mut self, length: usize) {
        let mut place = 0;
        while place < self.best.record.len() {
            if !self.attempt(self.replaced(place, place + length, &[])) {
                place += 1;
            }
        }
    }

    fn lower_choices(&mut self) {
        let mut place = 0;
        while place < self.best.record.len() {
            let choice = self.best.record[place];
            for lower in [0, choice / 2, choice.saturating_sub(1)] {
                if lower < choice && self.attempt(self.replaced(place, place + 1, &[lower])) {
                    break;
                }
            }
            place += 1;
        }
    }
}
