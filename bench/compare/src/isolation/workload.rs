//! Random transactions over few keys, after Elle's generators (Kingsbury and Alvaro 2020): short, many
//! of them meeting on the same keys, every value written once, keys retired before their lists grow long.
//!
//! Keys stand in groups of three, so that a query that reads several of them at once, through a
//! secondary index or by scanning, is a read of each: also of those that are not there yet. That is how
//! a checker that knows no predicates sees phantoms.

use adya::Workload;
use firn_base::random::Random;

/// Keys of a group.
const KEYS: i64 = 3;
/// Groups of lists that transactions choose from at a time.
const LISTS: usize = 4;
/// Groups of registers. From every transaction the checker looks for the next ones that know a key: with
/// many keys, or keys that nobody uses any more, it would look far.
const REGISTERS: usize = 2;
/// Writes to a group of lists before another takes its place. Registers do not grow.
const WRITES: u32 = 60;

/// By which way a statement comes to its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The primary key: a short program.
    Key,
    /// The primary key, FOR UPDATE: whoever finds the row changed locks it as it is by now. Of reads.
    Lock,
    /// A range of a secondary index.
    Index,
    /// A condition on a column that no index has: a plan over a scan.
    Scan,
    /// One of so many other queries for a group of keys: by lists of values, prefixes, alternatives, joins.
    Query(usize),
}

/// Queries that [`Way::Query`] chooses from.
pub const QUERIES: usize = 8;

/// One operation of a transaction.
#[derive(Clone, Debug)]
pub enum Step {
    /// Appends the value to the key's list, or sets the key's register to it.
    Write { key: i64, value: i64, way: Way },
    /// Reads all keys from `first` to `last`: one if by key or under a lock, a whole group if by index or by a query.
    Read { first: i64, last: i64, way: Way },
}

/// The group that a key stands in.
pub fn group(key: i64) -> i64 {
    key / KEYS
}

/// Whether the lists of a key's group have a row for every element, and not one for all.
pub fn stands_apart(key: i64) -> bool {
    group(key) % 2 == 1
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

    /// Goes on with other keys.
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
        (0..length).map(|_| self.step()).collect()
    }

    fn step(&mut self) -> Step {
        let place = self.random.uniform(0, self.groups.len() as i64 - 1) as usize;
        let first = self.groups[place].0 * KEYS;
        let key = first + self.random.uniform(0, KEYS - 1);
        match self.random.uniform(0, 99) {
            0..=44 => {
                let value = self.next_value;
                self.next_value += 1;
                self.groups[place].1 += 1;
                if self.groups[place].1 == WRITES && self.workload == Workload::ListAppend {
                    self.groups[place] = self.fresh_group();
                }
                let scans = !(self.workload == Workload::ListAppend && stands_apart(key));
                let way = if scans && self.random.uniform(0, 4) == 0 { Way::Scan } else { Way::Key };
                Step::Write { key, value, way }
            }
            45..=62 => Step::Read { first: key, last: key, way: Way::Key },
            63..=69 => Step::Read { first: key, last: key, way: Way::Lock },
            70..=79 => Step::Read { first, last: first + KEYS - 1, way: Way::Index },
            80..=86 => Step::Read { first, last: key, way: Way::Scan },
            _ => {
                let query = self.random.uniform(0, QUERIES as i64 - 1) as usize;
                Step::Read { first, last: first + KEYS - 1, way: Way::Query(query) }
            }
        }
    }
}
