//! A set of keys, each with a number from 0 in the order in which they came.
//!
//! What it keeps: each key once, and a [hash table](super::slots).

use super::list::{KeyList, with_lists};
use super::slots::{BATCH, Slots};
use super::{Key, KeyLayout, Keys};

/// A set of keys.
pub struct KeySet {
    slots: Slots,
    keys: Keys,
    /// Of the keys that are being inserted.
    hashes: Vec<u64>,
    /// Where runs of equal keys begin among them, the first key of each, and these keys' numbers.
    starts: Vec<u32>,
    firsts: Keys,
    found: Vec<u32>,
}

/// Keys that are looked for once if so many lie side by side, on average: tables are often in the order of what they are grouped by.
const LEAST_RUN: usize = 2;

impl KeySet {
    /// An empty set of keys of a layout.
    pub fn new(layout: &KeyLayout) -> KeySet {
        KeySet::with_room(layout, 0)
    }

    /// An empty set with room for so many keys.
    pub fn with_room(layout: &KeyLayout, keys: usize) -> KeySet {
        KeySet {
            slots: Slots::with_room(keys, 1),
            keys: layout.none(),
            hashes: Vec::new(),
            starts: Vec::new(),
            firsts: layout.none(),
            found: Vec::new(),
        }
    }

    /// How many keys it has.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The keys, by their numbers.
    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// The keys, by their numbers, without the table.
    pub fn into_keys(self) -> Keys {
        self.keys
    }

    /// Removes all keys; the table stays as large as it is.
    pub fn clear(&mut self) {
        self.slots.clear();
        self.keys.clear();
    }

    /// Adds keys that are not there. `numbers` gets the number of each; a key that is new has that of the set's length before.
    pub fn insert(&mut self, keys: &Keys, numbers: &mut Vec<u32>) {
        let (mut hashes, mut starts) = (std::mem::take(&mut self.hashes), std::mem::take(&mut self.starts));
        match keys.runs(keys.len() / LEAST_RUN, &mut starts) {
            false => {
                keys.hashes_into(&mut hashes);
                self.insert_hashed(keys, &hashes, numbers);
            }
            true => {
                let mut firsts = std::mem::replace(&mut self.firsts, Keys::Words(Vec::new()));
                let mut found = std::mem::take(&mut self.found);
                firsts.clear();
                firsts.push_all(keys, &starts);
                firsts.hashes_into(&mut hashes);
                found.clear();
                self.insert_hashed(&firsts, &hashes, &mut found);
                let ends = starts.iter().skip(1).copied().chain([keys.len() as u32]);
                for ((number, start), end) in found.iter().zip(&starts).zip(ends) {
                    numbers.extend(std::iter::repeat_n(*number, (end - start) as usize));
                }
                (self.firsts, self.found) = (firsts, found);
            }
        }
        (self.hashes, self.starts) = (hashes, starts);
    }

    /// As [`KeySet::insert`], with the hash of each key.
    pub fn insert_hashed(&mut self, keys: &Keys, hashes: &[u64], numbers: &mut Vec<u32>) {
        assert_eq!(keys.len(), hashes.len());
        numbers.reserve(hashes.len());
        with_lists!(&mut self.keys, keys, |own, keys| insert_all(
            &mut self.slots,
            own,
            keys,
            hashes,
            numbers
        ));
    }

    /// Looks for keys, each with its hash. `numbers` gets the number of each, or [`NONE`](super::NONE).
    pub fn find_all(&self, keys: &Keys, hashes: &[u64], numbers: &mut Vec<u32>) {
        assert_eq!(keys.len(), hashes.len());
        with_lists!(&self.keys, keys, |own, keys| self.slots.find_all(own, keys, hashes, numbers));
    }

    /// The number of a key, if it is there.
    pub fn find(&self, key: Key<'_>, hash: u64) -> Option<u32> {
        self.slots.find(hash, |number| self.keys.get(number) == key)
    }

    /// Bytes of memory that it takes.
    pub fn memory(&self) -> usize {
        self.slots.memory() + self.keys.memory()
    }
}

fn insert_all<L: KeyList>(slots: &mut Slots, own: &mut L, keys: &L, hashes: &[u64], numbers: &mut Vec<u32>) {
    let mut from = 0;
    for hashes in hashes.chunks(BATCH) {
        slots.reserve(own.count() + hashes.len());
        let mut part = slots.parts().next().expect("it has one part");
        part.insert(
            own,
            hashes.iter().copied(),
            |own, place, number| own.equals(number, keys, from + place),
            |own, place| {
                own.push_from(keys, from + place);
                own.count() as u32 - 1
            },
            |_, _, number| numbers.push(number),
        );
        from += hashes.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::{KeyColumn, NONE};
    use crate::values::push;
    use firn_base::random::Random;
    use firn_base::{Representation, Value};
    use firn_vector::builder::Builder;
    use firn_vector::selection::Rows;
    use firn_vector::{Data, Vector};

    /// Inserts random keys, by their own hashes and by ones of which few differ, and compares with a list.
    fn compare(columns: &[(Representation, bool)], seed: u64) {
        let layout = KeyLayout::for_equality(
            columns
                .iter()
                .map(|(representation, nullable)| KeyColumn::equal(*representation, *nullable))
                .collect(),
        );
        for few_hashes in [false, true] {
            let mut random = Random::seeded(seed);
            let (mut set, mut model) = (KeySet::new(&layout), Vec::<Vec<Value>>::new());
            for round in 0..30 {
                let mut rows: Vec<Vec<Value>> = (0..300)
                    .map(|_| columns.iter().map(|column| random_value(&mut random, *column)).collect())
                    .collect();
                // Equal keys side by side.
                if round % 4 == 1 {
                    (0..300).for_each(|row| rows[row] = rows[row / 5 * 5].clone());
                }
                let vectors: Vec<Vector> = columns
                    .iter()
                    .enumerate()
                    .map(|(place, (representation, _))| {
                        let mut builder = Builder::new(*representation);
                        rows.iter().for_each(|row| push(&mut builder, &row[place], *representation));
                        builder.finish()
                    })
                    .collect();
                let odd: Vec<u16> = (0..300).filter(|row| row % 2 == 1).collect();
                let chosen = if round % 3 == 0 { Rows::at(&odd, 300) } else { Rows::all(300) };
                let keys = layout.keys(&vectors, chosen);
                let mut hashes = keys.hashes();
                if few_hashes {
                    hashes.iter_mut().for_each(|hash| *hash = *hash % 3 * (u64::MAX / 3));
                }
                let (mut before, mut numbers) = (Vec::new(), Vec::new());
                set.find_all(&keys, &hashes, &mut before);
                match few_hashes {
                    true => set.insert_hashed(&keys, &hashes, &mut numbers),
                    false => set.insert(&keys, &mut numbers),
                }
                let (mut place, known) = (0, model.len());
                chosen.each(|row| {
                    let expected = model.iter().position(|other| *other == rows[row]);
                    let expected = expected.unwrap_or_else(|| {
                        model.push(rows[row].clone());
                        model.len() - 1
                    });
                    assert_eq!(numbers[place] as usize, expected, "seed {seed}: {:?}", rows[row]);
                    let was_there = if expected < known { expected as u32 } else { NONE };
                    assert_eq!(before[place], was_there, "seed {seed}");
                    assert_eq!(set.find(keys.get(place), hashes[place]), Some(numbers[place]));
                    place += 1;
                });
                assert_eq!(set.len(), model.len());
            }
            set.clear();
            assert!(set.is_empty());
            assert_eq!(set.find(layout.keys(&nulls(columns), Rows::all(1)).get(0), 0), None);
        }
    }

    fn nulls(columns: &[(Representation, bool)]) -> Vec<Vector> {
        let one = |(representation, nullable): &(Representation, bool)| match nullable {
            true => Vector::null(*representation, 1),
            false => Vector::constant(*representation, Data::zeros(*representation, 1), 1),
        };
        columns.iter().map(one).collect()
    }

    fn random_value(random: &mut Random, (representation, nullable): (Representation, bool)) -> Value {
        if nullable && random.uniform(0, 9) == 0 {
            return Value::Null;
        }
        let small = random.uniform(-40, 40);
        match representation {
            Representation::Boolean => Value::Boolean(small > 0),
            Representation::Int32 => Value::Integer(small as i32),
            Representation::Int64 => Value::BigInt(if small == 3 { i64::MIN } else { small }),
            Representation::Text => Value::Text(match small {
                -40..0 => format!("{small}"),
                // Of one length and beginning, on both sides of what a view holds.
                0..20 => format!("{:012}", small),
                _ => format!("a string of many bytes {small}"),
            }),
            _ => panic!("not tested"),
        }
    }

    #[test]
    fn a_set_numbers_keys_of_each_kind_as_they_come() {
        use Representation::{Boolean, Int32, Int64, Text};
        // Words of 64 bits and fewer, wide words from 65 bits on, and records.
        compare(&[(Int64, false)], 1);
        compare(&[(Int32, false), (Int32, false)], 2);
        compare(&[(Int32, true), (Boolean, false)], 3);
        compare(&[(Int64, true)], 4);
        compare(&[(Int64, false), (Int64, false)], 5);
        compare(&[(Int32, true), (Int64, true)], 6);
        compare(&[(Text, true)], 7);
        compare(&[(Boolean, true), (Text, false), (Boolean, false), (Text, true)], 8);
        // More than 128 bits beside a string are bytes.
        compare(&[(Int64, true), (Int64, true), (Text, true)], 9);
    }
}
