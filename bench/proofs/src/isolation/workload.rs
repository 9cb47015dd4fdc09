//! Random transactions over few keys, after Elle's generators (Kingsbury and Alvaro 2020): short, many
//! of them conflicting on the same keys, every value written once, keys retired before their lists grow long.
//!
//! Keys are in groups of three. A query that reads several keys at once, through a secondary index
//! or by scanning, is a read of each of them, also of those that do not exist yet. So a checker
//! without predicates finds phantoms.

use adya::Workload;
use firn_base::random::Random;

/// Keys of a group.
pub const KEYS: i64 = 3;
/// Groups of lists that transactions choose from at a time.
const LISTS: usize = 4;
/// Groups of registers. From every transaction the checker searches for the next ones that use a key: with
/// many keys, or keys that are not used any more, it would search far.
const REGISTERS: usize = 3;
/// Writes to a group of lists before another replaces it. Registers do not grow.
const WRITES: u32 = 30;

/// The access path of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The primary key: a short program.
    Key,
    /// A range of a secondary index.
    Index,
    /// A condition on a column that no index has: a plan over a scan.
    Scan,
    /// One of [`QUERIES`] other queries for a group of keys: by lists of values, prefixes, alternatives, joins.
    Query(usize),
    /// One of [`LASTS`] queries for the last row of a register that has several, or by the key.
    Last(usize),
    /// One of [`ENDS`] queries for the first or the last key of a group.
    End(usize),
}

/// Queries that [`Way::Query`] chooses from.
pub const QUERIES: usize = 16;
/// Queries that [`Way::End`] chooses from.
pub const ENDS: usize = 4;
/// Queries that [`Way::Last`] chooses from.
pub const LASTS: usize = 3;
/// Ways to write a key, of which the first costs least.
pub const CHANGES: usize = 11;
/// Ways to write a group of keys.
pub const GROUP_CHANGES: usize = 3;

/// Additional effects of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Nothing.
    Plain,
    /// It locks the rows, by one of several clauses: a row that has changed is locked in its current version.
    Locking(usize),
    /// A cursor returns some rows now, and the others after the next step.
    Cursor,
}

/// Clauses that [`Manner::Locking`] chooses from.
pub const LOCKS: usize = 7;

/// One operation of a transaction.
#[derive(Clone, Debug)]
pub enum Step {
    /// Appends the value to the key's list, or sets the key's register to it; of several keys the next ones get the next values.
    Write { first: i64, last: i64, value: i64, change: usize },
    /// Reads all keys from `first` to `last`.
    Read { first: i64, last: i64, way: Way, manner: Manner },
    /// Keeps other transactions from writing to the key's table, by one of three modes.
    LockTable { key: i64, mode: usize },
}

/// The group of a key.
pub fn group(key: i64) -> i64 {
    key / KEYS
}

/// Makes transactions.
pub struct Generator {
    workload: Workload,
    random: Random,
    /// Numbers and writes of the groups in use.
    groups: Vec<(i64, u32)>,
    next_group: i64,
    next_value: i64,
}

impl Generator {
    pub fn new(workload: Workload, seed: u64) -> Generator {
        let random = Random::seeded(seed);
        let mut generator = Generator { workload, random, groups: Vec::new(), next_group: 0, next_value: 1 };
        generator.turn_over(workload);
        generator
    }

    /// Continues with other keys.
    pub fn turn_over(&mut self, workload: Workload) {
        self.workload = workload;
        let groups = if workload == Workload::ListAppend { LISTS } else { REGISTERS };
        self.groups = (0..groups).map(|_| self.fresh_group()).collect();
    }

    fn fresh_group(&mut self) -> (i64, u32) {
        self.next_group += 1;
        (self.next_group, 0)
    }

    /// The next transaction: one to eight operations, or few on a group of keys.
    pub fn transaction(&mut self) -> Vec<Step> {
        let length = self.random.uniform(1, 8);
        let mut steps: Vec<Step> = (0..length).map(|_| self.step()).collect();
        if self.random.uniform(0, 31) == 0 {
            let (_, key) = self.place();
            let mode = self.below(3);
            let before = self.below(steps.len());
            steps.insert(before, Step::LockTable { key, mode });
        }
        steps
    }

    fn step(&mut self) -> Step {
        let (place, key) = self.place();
        let first = group(key) * KEYS;
        let last = first + KEYS - 1;
        match self.random.uniform(0, 99) {
            0..=44 => {
                let value = self.next_value;
                self.next_value += KEYS;
                self.groups[place].1 += 1;
                if self.groups[place].1 == WRITES && self.workload == Workload::ListAppend {
                    self.groups[place] = self.fresh_group();
                }
                if self.random.uniform(0, 9) == 0 {
                    return Step::Write { first, last, value, change: self.below(GROUP_CHANGES) };
                }
                let change = if self.random.uniform(0, 4) < 3 { 0 } else { self.below(CHANGES) };
                Step::Write { first: key, last: key, value, change }
            }
            number => {
                let (first, last, way) = match number {
                    45..=58 => (key, key, Way::Key),
                    59..=72 => (key, key, Way::Last(self.below(LASTS))),
                    73..=80 => (first, last, Way::Index),
                    81..=85 => (first, key, Way::Scan),
                    86..=90 => (first, last, Way::End(self.below(ENDS))),
                    _ => (first, last, Way::Query(self.below(QUERIES))),
                };
                let manner = match self.random.uniform(0, 9) {
                    0..=2 => Manner::Locking(self.below(LOCKS)),
                    3 => Manner::Cursor,
                    _ => Manner::Plain,
                };
                Step::Read { first, last, way, manner }
            }
        }
    }

    /// A group's place and one of its keys.
    fn place(&mut self) -> (usize, i64) {
        let place = self.below(self.groups.len());
        (place, self.groups[place].0 * KEYS + self.random.uniform(0, KEYS - 1))
    }

    fn below(&mut self, end: usize) -> usize {
        self.random.uniform(0, end as i64 - 1) as usize
    }
}
