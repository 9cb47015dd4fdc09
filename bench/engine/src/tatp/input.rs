//! The requests of TATP's clients, drawn from one generator whichever way they are run.

use super::{LOCATIONS, Number};
use firn_base::random::Random;

/// A transaction with its parameters.
#[derive(Clone, Copy, Debug)]
pub(super) enum Input {
    GetSubscriberData { s_id: i32 },
    GetNewDestination { s_id: i32, sf_type: i16, start: i16, end: i16 },
    GetAccessData { s_id: i32, ai_type: i16 },
    UpdateSubscriberData { s_id: i32, sf_type: i16, bit: i16, data: i16 },
    UpdateLocation { number: Number, location: i32 },
    InsertCallForwarding { number: Number, sf_type: i16, start: i16, end: i16, target: Number },
    DeleteCallForwarding { number: Number, sf_type: i16, start: i16 },
}

impl Input {
    /// The names of the seven, in the order of reports.
    pub const NAMES: [&'static str; 7] = [
        "get-subscriber-data",
        "get-new-destination",
        "get-access-data",
        "update-subscriber-data",
        "update-location",
        "insert-call-forwarding",
        "delete-call-forwarding",
    ];

    /// The position of its name.
    pub fn kind(&self) -> usize {
        match self {
            Input::GetSubscriberData { .. } => 0,
            Input::GetNewDestination { .. } => 1,
            Input::GetAccessData { .. } => 2,
            Input::UpdateSubscriberData { .. } => 3,
            Input::UpdateLocation { .. } => 4,
            Input::InsertCallForwarding { .. } => 5,
            Input::DeleteCallForwarding { .. } => 6,
        }
    }
}

/// Draws one client's inputs.
#[derive(Debug)]
pub(super) struct Inputs {
    random: Random,
    subscribers: i64,
    /// The constant of the non-uniform distribution (description, "A").
    spread: i64,
}

impl Inputs {
    /// Those of client `number`.
    pub fn new(subscribers: i32, seed: u64, number: usize) -> Inputs {
        let spread = match subscribers {
            ..=1_000_000 => 65_535,
            1_000_001..=10_000_000 => 1_048_575,
            _ => 2_097_151,
        };
        let random = Random::seeded(seed ^ (number as u64 + 1).wrapping_mul(0x9e37_79b9));
        Inputs { random, subscribers: i64::from(subscribers), spread }
    }

    /// The next one.
    pub fn next(&mut self) -> Input {
        let kind = self.random.uniform(1, 100);
        let mixed = self.random.uniform(0, self.spread) | self.random.uniform(1, self.subscribers);
        let s_id = (mixed % self.subscribers + 1) as i32;
        let number = Number::of(s_id);
        match kind {
            1..=35 => Input::GetSubscriberData { s_id },
            36..=45 => {
                let (sf_type, start) = (self.one_of(1, 4), self.one_of(0, 2) * 8);
                Input::GetNewDestination { s_id, sf_type, start, end: self.one_of(1, 24) }
            }
            46..=80 => Input::GetAccessData { s_id, ai_type: self.one_of(1, 4) },
            81..=82 => {
                let (sf_type, bit, data) = (self.one_of(1, 4), self.one_of(0, 1), self.one_of(0, 255));
                Input::UpdateSubscriberData { s_id, sf_type, bit, data }
            }
            83..=96 => Input::UpdateLocation { number, location: self.random.uniform(1, LOCATIONS) as i32 },
            97..=98 => {
                let (sf_type, start) = (self.one_of(1, 4), self.one_of(0, 2) * 8);
                let end = start + self.one_of(1, 8);
                let target = Number::of(self.random.uniform(1, i64::from(i32::MAX)) as i32);
                Input::InsertCallForwarding { number, sf_type, start, end, target }
            }
            _ => {
                let (sf_type, start) = (self.one_of(1, 4), self.one_of(0, 2) * 8);
                Input::DeleteCallForwarding { number, sf_type, start }
            }
        }
    }

    fn one_of(&mut self, low: i64, high: i64) -> i16 {
        self.random.uniform(low, high) as i16
    }
}
