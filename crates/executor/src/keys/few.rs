//! Vectors in which few different keys come again and again: a query groups by a few flags, names or years.
//!
//! Then one key is made, hashed and looked up for each distinct key of a vector, not for each row. Values are compared by their bits.
//! Values with different bits may still be equal (1.0 and 1.00). Their keys are equal then.
//!
//! ```text
//! column 1   value → code 0, 1, …     ┐
//! column 2   value → code 0, 1, …     ┘ code 1 + code 2 × number of codes 1 → number of the key, its first row
//! ```

use firn_vector::selection::Rows;
use firn_vector::{Data, Vector};

/// Finds the different keys of vectors.
#[derive(Default)]
pub struct FewKeys {
    /// For each selected row the number of its key.
    numbers: Vec<u16>,
    /// The first row with each key.
    firsts: Vec<u16>,
    /// Which number stands for each combination of codes.
    of_combination: Vec<u16>,
    /// Vectors that are not looked at, since those before had many keys, and how many there will be the next time.
    left_out: u32,
    next_left_out: u32,
}

/// So many different values a column may have, and so many combinations all of them.
const MOST_VALUES: usize = 64;
const MOST_COMBINATIONS: usize = 1024;

/// With fewer rows nothing is gained.
const LEAST_ROWS: usize = 128;

/// Vectors with many keys are looked at once in so many, at least.
const MOST_LEFT_OUT: u32 = 64;

const NONE: u16 = u16::MAX;

impl FewKeys {
    /// Looks at the rows of a vector for each column. Whether they have few keys.
    pub fn find(&mut self, columns: &[Vector], rows: Rows<'_>) -> bool {
        if self.left_out > 0 || rows.count() < LEAST_ROWS {
            self.left_out = self.left_out.saturating_sub(1);
            return false;
        }
        let has_few = self.combine(columns, rows);
        self.next_left_out = if has_few { 0 } else { (self.next_left_out * 2).clamp(1, MOST_LEFT_OUT) };
        self.left_out = self.next_left_out;
        has_few
    }

    /// The first row with each key.
    pub fn firsts(&self) -> &[u16] {
        &self.firsts
    }

    /// For each selected row which of these has its key.
    pub fn numbers(&self) -> &[u16] {
        &self.numbers
    }

    fn combine(&mut self, columns: &[Vector], rows: Rows<'_>) -> bool {
        self.numbers.clear();
        self.numbers.resize(rows.count(), 0);
        let mut combinations = 1;
        for column in columns {
            let Some(values) = self.add_codes(&column.plain(rows), rows, combinations as u16) else {
                return false;
            };
            combinations *= values;
            if combinations > MOST_COMBINATIONS {
                return false;
            }
        }
        self.of_combination.clear();
        self.of_combination.resize(combinations, NONE);
        self.firsts.clear();
        let mut place = 0;
        rows.each(|row| {
            let number = &mut self.of_combination[usize::from(self.numbers[place])];
            if *number == NONE {
                *number = self.firsts.len() as u16;
                self.firsts.push(row as u16);
            }
            self.numbers[place] = *number;
            place += 1;
        });
        true
    }

    /// Adds `base` times the code of its value to each row's number. How many codes there are; `None` if there are too many.
    fn add_codes(&mut self, vector: &Vector, rows: Rows<'_>, base: u16) -> Option<usize> {
        if vector.is_constant() {
            return Some(1);
        }
        let numbers = &mut self.numbers[..];
        let narrow = |value: i64| Some(u128::from(value as u64));
        match vector.data().expect("it is plain") {
            Data::Boolean(values) => {
                add_codes_of(vector, rows, base, numbers, |row| Some(u128::from(values.value(row))))
            }
            Data::Int16(values) => {
                add_codes_of(vector, rows, base, numbers, |row| narrow(i64::from(values[row])))
            }
            Data::Int32(values) => {
                add_codes_of(vector, rows, base, numbers, |row| narrow(i64::from(values[row])))
            }
            Data::Int64(values) => add_codes_of(vector, rows, base, numbers, |row| narrow(values[row])),
            Data::Int128(values) => {
                add_codes_of(vector, rows, base, numbers, |row| Some(values[row] as u128))
            }
            Data::UInt32(values) => {
                add_codes_of(vector, rows, base, numbers, |row| narrow(i64::from(values[row])))
            }
            Data::Strings(strings) => {
                add_codes_of(vector, rows, base, numbers, |row| Some(strings.views()[row]))
            }
            Data::Numeric(values) => {
                let (unscaled, scales) = (values.unscaled(), values.scales());
                add_codes_of(vector, rows, base, numbers, |row| {
                    // Beside the scale there is room for 64 bits.
                    let digits = i64::try_from(unscaled[row]).ok()?;
                    Some(u128::from(digits as u64) | u128::from(scales[row]) << 64)
                })
            }
            _ => None,
        }
    }
}

/// How many slots the table of a column's values has.
const SLOTS: usize = 256;

/// As [`FewKeys::add_codes`], with the bits of each row's value; `None` if they have no room.
#[inline]
fn add_codes_of(
    vector: &Vector,
    rows: Rows<'_>,
    base: u16,
    numbers: &mut [u16],
    bits: impl Fn(usize) -> Option<u128>,
) -> Option<usize> {
    // Codes from 1 on, by the hash of the value; 0 is a free slot.
    let (mut slots, mut values, mut count) = ([0u8; SLOTS], [0u128; MOST_VALUES], 0);
    let (may_be_null, mut null) = (!vector.has_no_null(), None);
    let mut place = 0;
    let found = rows.try_each(|row| {
        let code = if may_be_null && vector.is_null(row) {
            if null.is_none() && count < MOST_VALUES {
                // No slot leads to it.
                null = Some(count);
                count += 1;
            }
            null
        } else {
            bits(row).and_then(|value| {
                let mut at = slot_of(value);
                loop {
                    let code = usize::from(slots[at]);
                    if code == 0 {
                        break;
                    }
                    if values[code - 1] == value {
                        return Some(code - 1);
                    }
                    at = (at + 1) % SLOTS;
                }
                (count < MOST_VALUES).then(|| {
                    values[count] = value;
                    slots[at] = count as u8 + 1;
                    count += 1;
                    count - 1
                })
            })
        };
        numbers[place] += code.ok_or(())? as u16 * base;
        place += 1;
        Ok::<(), ()>(())
    });
    found.ok().map(|()| count.max(1))
}

#[inline]
fn slot_of(value: u128) -> usize {
    const K: u64 = 0x9e37_79b9_7f4a_7c15;
    let mixed = (value as u64 ^ ((value >> 64) as u64).rotate_left(29)).wrapping_mul(K);
    (mixed >> 56) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::push;
    use firn_base::random::Random;
    use firn_base::{Representation, Value};
    use firn_vector::builder::Builder;

    fn value(random: &mut Random, representation: Representation, different: i64) -> Value {
        let drawn = random.uniform(0, different);
        if drawn == 3 {
            return Value::Null;
        }
        match representation {
            Representation::Boolean => Value::Boolean(drawn % 2 == 0),
            Representation::Int64 => Value::BigInt(drawn - 5),
            Representation::Text => {
                Value::Text(format!("{}{drawn}", "a long string of ".repeat(drawn as usize % 3)))
            }
            Representation::Numeric => {
                let scale = drawn as u16 % 3;
                Value::Numeric { unscaled: i128::from(drawn), scale: scale as u8 }
            }
            _ => panic!("not tested"),
        }
    }

    #[test]
    fn rows_have_one_number_exactly_if_their_values_are_the_same() {
        use Representation::{Boolean, Int64, Numeric as Decimal, Text};
        let (mut few, mut times) = (FewKeys::default(), [0, 0]);
        for seed in 0..200 {
            let mut random = Random::seeded(seed);
            let columns =
                &[Text, Boolean, Int64, Decimal, Text][seed as usize % 3..][..1 + seed as usize % 2];
            let different = [3, 20, 80][seed as usize % 7 % 3];
            let rows: Vec<Vec<Value>> = (0..1000)
                .map(|_| columns.iter().map(|column| value(&mut random, *column, different)).collect())
                .collect();
            let vectors: Vec<Vector> = columns
                .iter()
                .enumerate()
                .map(|(place, representation)| {
                    let mut builder = Builder::new(*representation);
                    rows.iter().for_each(|row| push(&mut builder, &row[place], *representation));
                    builder.finish()
                })
                .collect();
            let odd: Vec<u16> = (0..1000).filter(|row| row % 2 == 1).collect();
            let chosen = if seed % 2 == 0 { Rows::at(&odd, 1000) } else { Rows::all(1000) };
            few.left_out = 0;
            let has_few = few.find(&vectors, chosen);
            times[usize::from(has_few)] += 1;
            // Long strings of one value lie at several places.
            let has_long = columns.contains(&Text);
            if !has_few {
                assert!(different > 20 || has_long, "seed {seed}");
                continue;
            }
            assert_eq!(few.numbers().len(), chosen.count());
            let (mut place, mut seen) = (0, 0);
            chosen.each(|row| {
                let number = usize::from(few.numbers()[place]);
                let first = usize::from(few.firsts()[number]);
                assert_eq!(rows[first], rows[row], "seed {seed}");
                assert!(number <= seen, "they are numbered as they come");
                seen += usize::from(number == seen);
                place += 1;
            });
            assert_eq!(seen, few.firsts().len());
            let values: Vec<&Vec<Value>> = few.firsts().iter().map(|row| &rows[usize::from(*row)]).collect();
            assert!(has_long || values.iter().enumerate().all(|(at, one)| !values[..at].contains(one)));
        }
        assert!(times.iter().all(|times| *times > 10), "{times:?}");
    }

    #[test]
    fn vectors_with_many_keys_are_soon_left_out() {
        let all: Vec<i64> = (0..1000).collect();
        let many = Vector::flat(Representation::Int64, Data::Int64(all.into()), None);
        let few = Vector::flat(Representation::Int64, Data::Int64(vec![7; 1000].into()), None);
        let mut keys = FewKeys::default();
        let mut looked = 0;
        for _ in 0..200 {
            looked += usize::from(keys.left_out == 0);
            assert!(!keys.find(std::slice::from_ref(&many), Rows::all(1000)));
        }
        assert!(looked < 12, "{looked}");
        while keys.left_out > 0 {
            assert!(!keys.find(std::slice::from_ref(&few), Rows::all(1000)));
        }
        assert!((0..2).all(|_| keys.find(std::slice::from_ref(&few), Rows::all(1000))));
    }
}
