//! Sequence counters. They are independent of transactions: a value is never returned twice, whether
//! or not the transaction that drew it commits.
//!
//! The log runs ahead of the counter by up to [`LOGGED_AHEAD`] values, so that most calls write
//! nothing; after a crash the counter continues after the logged value, as in PostgreSQL.

use crate::catalog::SequenceDef;
use firn_base::{Error, Result, SqlState};

const LOGGED_AHEAD: i64 = 32;

/// The state of a sequence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SequenceState {
    /// The value last returned, or the first one to return.
    pub value: i64,
    /// Whether `value` was returned.
    pub called: bool,
    /// How many values may still be returned before the log must be written.
    pub logged_ahead: i64,
    /// The logged value, if there are such values.
    pub logged: i64,
}

impl SequenceState {
    /// The state of a new sequence.
    pub fn new(definition: &SequenceDef) -> SequenceState {
        SequenceState::recovered(definition.start, false)
    }

    /// The state of a sequence after recovery, from that in the log or in a checkpoint.
    pub fn recovered(value: i64, called: bool) -> SequenceState {
        SequenceState { value, called, logged_ahead: 0, logged: value }
    }

    /// The value, and whether it counts as returned, according to the log: the state after a crash.
    pub fn logged(&self) -> (i64, bool) {
        if self.logged_ahead > 0 { (self.logged, true) } else { (self.value, self.called) }
    }

    /// Advances to the next value. Also returns the value to log if the logged one has been reached: the last value that may be
    /// returned before the log must be written again.
    pub fn advance(&mut self, definition: &SequenceDef) -> Result<(i64, Option<i64>)> {
        let value = if self.called { after(self.value, definition)? } else { self.value };
        self.value = value;
        self.called = true;
        if self.logged_ahead > 0 {
            self.logged_ahead -= 1;
            return Ok((value, None));
        }
        // As far ahead as the bounds allow; a cycle is logged value by value near its end.
        let mut ahead = 0;
        let mut logged = value;
        while ahead < LOGGED_AHEAD {
            match logged.checked_add(definition.increment) {
                Some(next) if (definition.minimum..=definition.maximum).contains(&next) => logged = next,
                _ => break,
            }
            ahead += 1;
        }
        self.logged_ahead = ahead;
        self.logged = logged;
        Ok((value, Some(logged)))
    }
}

fn after(value: i64, definition: &SequenceDef) -> Result<i64> {
    let ascending = definition.increment > 0;
    let (limit, restart, name) = if ascending {
        (definition.maximum, definition.minimum, "maximum")
    } else {
        (definition.minimum, definition.maximum, "minimum")
    };
    match value.checked_add(definition.increment) {
        Some(next) if (definition.minimum..=definition.maximum).contains(&next) => Ok(next),
        _ if definition.cycle => Ok(restart),
        _ => Err(Error::new(
            SqlState::SEQUENCE_GENERATOR_LIMIT_EXCEEDED,
            format!("nextval: reached {name} value of sequence \"{}\" ({limit})", definition.name),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Oid;
    use firn_base::SqlType;

    fn sequence(increment: i64, minimum: i64, maximum: i64, cycle: bool) -> SequenceDef {
        SequenceDef {
            oid: Oid(1),
            schema: Oid::PUBLIC,
            name: "s".into(),
            ty: SqlType::BigInt,
            start: if increment > 0 { minimum } else { maximum },
            increment,
            minimum,
            maximum,
            cycle,
            cache: 1,
            owner: None,
            is_identity: false,
        }
    }

    #[test]
    fn values_go_up_to_the_bound_and_then_fail_or_cycle() {
        for cycle in [false, true] {
            let definition = sequence(2, 1, 5, cycle);
            let mut state = SequenceState::new(&definition);
            let values: Vec<_> =
                (0..4).map(|_| state.advance(&definition).map(|(value, _)| value).ok()).collect();
            assert_eq!(values, [Some(1), Some(3), Some(5), cycle.then_some(1)]);
        }
        let descending = sequence(-1, i64::MIN, -1, false);
        let mut state = SequenceState::new(&descending);
        assert_eq!(state.advance(&descending).unwrap().0, -1);
        assert_eq!(state.advance(&descending).unwrap().0, -2);
    }

    #[test]
    fn no_value_is_given_beyond_what_was_logged() {
        let definition = sequence(1, 1, i64::MAX, false);
        let mut state = SequenceState::new(&definition);
        let mut logged = 0;
        for _ in 0..100 {
            let (value, log) = state.advance(&definition).unwrap();
            logged = log.unwrap_or(logged);
            assert!(value <= logged);
            assert_eq!(state.logged(), (logged, true));
        }
        assert!(logged <= 100 + LOGGED_AHEAD);
    }
}
