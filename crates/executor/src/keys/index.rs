//! Rows by their keys: what the build side of a join is searched with.
//!
//! ```text
//! finder   the first row with each key: a [bitmap with ranks](super::dense) of words that lie close together,
//!          else a hash table beside the key of each row
//! starts   4 bytes a row, and rows, likewise: the rows with the key of a row that is the first with it;
//!          only if there is a key that two rows have
//! ```
//!
//! So where keys are unique a search ends with the row. Where they are not, the rows with one key lie side by side, in the order in
//! which they came, and no chain is walked. The table is filled by several threads, each of which has a part of it and looks at the hashes
//! of all rows.

use super::dense::{DenseWords, WordSet};
use super::list::{KeyList, with_lists};
use super::slots::{BATCH, NONE, Part, Slots};
use super::{KeyLayout, Keys};
use firn_base::sync::Mutex;
use firn_base::{Result, thread};

/// Rows by their keys.
pub struct KeyIndex {
    finder: Finder,
    many: Option<Many>,
}

/// What leads from a key to the first row with it.
enum Finder {
    Dense(DenseWords),
    Hashed(Slots, Keys),
}

/// The rows with each key.
struct Many {
    /// For the first row with a key where its rows begin, and for the row behind where they end.
    starts: Vec<u32>,
    rows: Vec<u32>,
}

/// How many rows are entered before a cancel is noticed.
const STRETCH: usize = 1 << 16;

impl KeyIndex {
    /// Enters all rows but some, which rise, on so many threads.
    pub fn new(
        keys: Keys,
        left_out: &[u32],
        threads: usize,
        check: &(dyn Fn() -> Result<()> + Sync),
    ) -> Result<KeyIndex> {
        assert!(keys.len() < NONE as usize, "numbers of rows have 32 bits");
        if let Keys::Words(words) = &keys {
            let is_left_out = left_out_rows(keys.len(), left_out);
            let is_entered = |row: usize| !is_left_out.get(row).copied().unwrap_or(false);
            if let Some((dense, repeated)) = DenseWords::new(words, is_entered, check)? {
                let many = (!repeated.is_empty()).then(|| Many::new(words.len(), &[repeated], &is_left_out));
                return Ok(KeyIndex { finder: Finder::Dense(dense), many });
            }
        }
        let hashes = keys.hashes();
        KeyIndex::with_hashes(keys, &hashes, left_out, threads, check)
    }

    /// As [`KeyIndex::new`], by a hash table, with the hash of each key.
    fn with_hashes(
        keys: Keys,
        hashes: &[u64],
        left_out: &[u32],
        threads: usize,
        check: &(dyn Fn() -> Result<()> + Sync),
    ) -> Result<KeyIndex> {
        let is_left_out = left_out_rows(keys.len(), left_out);
        let mut parts = threads.max(1).next_power_of_two();
        let (slots, repeated) = loop {
            let mut slots = Slots::with_room(keys.len(), parts);
            let enter = |part: &Mutex<Option<(usize, Part<'_>)>>| {
                let (number, part) = part.lock().take().expect("a part is filled once");
                let of_part = |row: &u32| {
                    let hash = hashes[*row as usize];
                    (parts == 1 || Slots::part_of(hash, parts) == number)
                        && !is_left_out.get(*row as usize).copied().unwrap_or(false)
                };
                with_lists!(&keys, &keys, |own, _same| enter_rows(own, hashes, part, of_part, check))
            };
            let items: Vec<_> = slots.parts().enumerate().map(|part| Mutex::new(Some(part))).collect();
            let entered = thread::for_each("query", threads, &items, enter)?;
            drop(items);
            match entered.into_iter().collect::<Option<Vec<_>>>() {
                Some(repeated) => break (slots, repeated),
                // A part is too small for the hashes that there are: all rows share one.
                None => parts = 1,
            }
        };
        let many =
            (!repeated.iter().all(Vec::is_empty)).then(|| Many::new(keys.len(), &repeated, &is_left_out));
        Ok(KeyIndex { finder: Finder::Hashed(slots, keys), many })
    }

    /// Whether no key is that of two rows.
    pub fn is_unique(&self) -> bool {
        self.many.is_none()
    }

    /// Appends the first row with each key, or [`NONE`]. `hashes` is a buffer.
    pub fn find_all(&self, keys: &Keys, hashes: &mut Vec<u64>, rows: &mut Vec<u32>) {
        match (&self.finder, keys) {
            (Finder::Dense(dense), Keys::Words(words)) => dense.find_all(words, rows),
            (Finder::Dense(_), _) => panic!("keys of one layout are compared"),
            (Finder::Hashed(slots, own), keys) => {
                keys.hashes_into(hashes);
                with_lists!(own, keys, |own, keys| slots.find_all(own, keys, hashes, rows));
            }
        }
    }

    /// For some columns of the key, by their places, the set of words that its rows have there, if these lie close together. A
    /// search for another word finds nothing. Words are those of keys of that column alone.
    pub fn words(&self, layout: &KeyLayout) -> Vec<(usize, WordSet)> {
        if let (Finder::Dense(dense), 1) = (&self.finder, layout.len()) {
            return vec![(0, dense.words())];
        }
        let of_column = |place: usize| {
            let bits = layout.bits_of(place)?;
            let set = match &self.finder {
                // A word is all of the key.
                Finder::Dense(dense) => {
                    WordSet::new(dense.each_word().map(|word| bits.of_word(word)), dense.count())
                }
                Finder::Hashed(_, Keys::Words(words)) => {
                    WordSet::new(words.iter().map(|word| bits.of_word(*word)), words.len())
                }
                Finder::Hashed(_, Keys::Wide(words)) => {
                    WordSet::new(words.iter().map(|word| bits.of_wide(*word)), words.len())
                }
                Finder::Hashed(_, Keys::Double(_) | Keys::Records(_) | Keys::Bytes(_)) => None,
            };
            Some((place, set?))
        };
        (0..layout.len()).filter_map(of_column).collect()
    }

    /// All rows with the key of one that is the first with it.
    #[inline]
    pub fn rows<'a>(&'a self, first: &'a u32) -> &'a [u32] {
        match &self.many {
            None => std::slice::from_ref(first),
            Some(many) => {
                let first = *first as usize;
                &many.rows[many.starts[first] as usize..many.starts[first + 1] as usize]
            }
        }
    }

    /// Bytes of memory that it takes.
    pub fn memory(&self) -> usize {
        let many = self.many.as_ref().map_or(0, |many| many.starts.len() * 4 + many.rows.len() * 4);
        let finder = match &self.finder {
            Finder::Dense(dense) => dense.memory(),
            Finder::Hashed(slots, keys) => slots.memory() + keys.memory(),
        };
        finder + many
    }

    /// About how many bytes an index of so many rows takes beside their keys.
    pub fn estimate(rows: usize) -> usize {
        // Slots, hashes while it is made, and rows by their keys.
        (rows * 2).next_power_of_two() * 8 + rows * 16
    }
}

/// For each of so many rows whether it is left out; empty if none is.
fn left_out_rows(count: usize, left_out: &[u32]) -> Vec<bool> {
    let mut is_left_out = vec![false; if left_out.is_empty() { 0 } else { count }];
    left_out.iter().for_each(|row| is_left_out[*row as usize] = true);
    is_left_out
}

/// Enters the rows of a part. Those that repeat the key of an earlier one are returned, each with that one. `None` if the part is too small.
fn enter_rows<L: KeyList>(
    keys: &L,
    hashes: &[u64],
    mut part: Part<'_>,
    of_part: impl Fn(&u32) -> bool,
    check: &(dyn Fn() -> Result<()> + Sync),
) -> Result<Option<Vec<(u32, u32)>>> {
    let (mut entered, mut repeated) = (0, Vec::new());
    let most = part.len() / 4 * 3;
    let mut batch = Vec::with_capacity(BATCH);
    let rows = hashes.len() as u32;
    for from in (0..rows).step_by(STRETCH) {
        check()?;
        let mut stretch = (from..rows.min(from + STRETCH as u32)).filter(&of_part);
        loop {
            batch.clear();
            batch.extend(stretch.by_ref().take(BATCH));
            if batch.is_empty() {
                break;
            }
            if entered + batch.len() > most {
                return Ok(None);
            }
            part.insert(
                &mut entered,
                batch.iter().map(|row| hashes[*row as usize]),
                |_, place, row| keys.equals(row, keys, batch[place] as usize),
                |entered, place| {
                    *entered += 1;
                    batch[place]
                },
                |_, place, row| {
                    if row != batch[place] {
                        repeated.push((batch[place], row));
                    }
                },
            );
        }
    }
    Ok(Some(repeated))
}

impl Many {
    /// From the rows that repeat the key of an earlier one, rising in each list.
    fn new(count: usize, repeated: &[Vec<(u32, u32)>], is_left_out: &[bool]) -> Many {
        let mut starts = vec![0u32; count + 1];
        let mut first_of: Vec<u32> = (0..count as u32).collect();
        repeated.iter().flatten().for_each(|(row, first)| first_of[*row as usize] = *first);
        let entered = || {
            let rows = first_of.iter().enumerate();
            rows.filter(|(row, _)| !is_left_out.get(*row).copied().unwrap_or(false))
        };
        entered().for_each(|(_, first)| starts[*first as usize] += 1);
        // Where each begins; then the beginnings move to the ends while the rows are put there.
        let mut sum = 0;
        for start in &mut starts {
            sum += std::mem::replace(start, sum);
        }
        let mut rows = vec![0; sum as usize];
        let mut next = starts.clone();
        for (row, first) in entered() {
            let place = &mut next[*first as usize];
            rows[*place as usize] = row as u32;
            *place += 1;
        }
        Many { starts, rows }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::{KeyColumn, KeyLayout};
    use firn_base::random::Random;
    use firn_base::{Error, Representation, SqlState};
    use firn_vector::selection::Rows;
    use firn_vector::{Data, Vector};

    fn keys(values: &[i64]) -> Keys {
        let layout = KeyLayout::for_equality(vec![KeyColumn::equal(Representation::Int64, false)]);
        let vector = Vector::flat(Representation::Int64, Data::Int64(values.to_vec().into()), None);
        layout.keys(&[vector], Rows::all(values.len()))
    }

    /// Looks random keys up, with usual hashes, with few different ones and without, and compares with a search through all rows.
    #[test]
    fn an_index_finds_the_rows_with_a_key_in_their_order() {
        for seed in 0..60 {
            let mut random = Random::seeded(seed);
            let rows = random.uniform(0, 3000) as usize;
            let most = if seed % 3 == 0 { 1 << 40 } else { random.uniform(1, 2000) };
            let values: Vec<i64> = (0..rows).map(|_| random.uniform(0, most)).collect();
            let left_out: Vec<u32> = match seed % 2 {
                0 => Vec::new(),
                _ => (0..rows as u32).filter(|_| random.uniform(0, 4) == 0).collect(),
            };
            // All in one part, or on the last slots of their part, where a search goes on at its beginning.
            let hash = |hash: &mut u64| match seed % 5 {
                0 => *hash %= 7,
                1 => *hash |= 0x3fff_ffff_0000_0000,
                _ => {}
            };
            let hashes = |keys: &Keys| {
                let mut hashes = keys.hashes();
                hashes.iter_mut().for_each(hash);
                hashes
            };
            let own = keys(&values);
            let of_own = hashes(&own);
            let threads = [1, 2, 3][seed as usize % 3];
            let asked: Vec<i64> = values.iter().copied().chain(-70..50).chain([i64::MIN, i64::MAX]).collect();
            let (others, mut found) = (keys(&asked), Vec::new());
            let index = match seed % 7 {
                // Most of these are dense.
                0..3 => {
                    let index = KeyIndex::new(own, &left_out, threads, &|| Ok(())).unwrap();
                    let is_dense = matches!(index.finder, Finder::Dense(_));
                    let rows = values.iter().enumerate();
                    let entered = rows.filter(|(row, _)| left_out.binary_search(&(*row as u32)).is_err());
                    let entered: Vec<i64> = entered.map(|(_, value)| *value).collect();
                    let range =
                        entered.iter().max().zip(entered.iter().min()).map(|(most, least)| most - least);
                    let most = values.len().max((values.len() * 64).min(1 << 18)) + 64;
                    let fits = range.is_some_and(|range| range as usize / 64 <= most);
                    assert_eq!(is_dense, fits, "seed {seed}");
                    index.find_all(&others, &mut Vec::new(), &mut found);
                    if let (Finder::Dense(dense), Keys::Words(words)) = (&index.finder, &others) {
                        let has = dense.words().has_all(words);
                        assert!(has.iter().eq(found.iter().map(|row| *row != NONE)));
                    }
                    index
                }
                _ => {
                    let index = KeyIndex::with_hashes(own, &of_own, &left_out, threads, &|| Ok(())).unwrap();
                    let Finder::Hashed(slots, own) = &index.finder else { panic!("it is hashed") };
                    with_lists!(own, &others, |own, keys| slots.find_all(
                        own,
                        keys,
                        &hashes(&others),
                        &mut found
                    ));
                    index
                }
            };
            for (value, first) in asked.iter().zip(&found) {
                let is_entered = |row: &u32| left_out.binary_search(row).is_err();
                let expected: Vec<u32> = (0..rows as u32)
                    .filter(|row| values[*row as usize] == *value && is_entered(row))
                    .collect();
                let rows = if *first == NONE { &[][..] } else { index.rows(first) };
                assert_eq!(rows, expected, "seed {seed}");
                assert!(expected.len() < 2 || !index.is_unique());
            }
        }
    }

    /// Of two columns only the one whose words are close together has a set.
    #[test]
    fn each_column_of_a_key_has_a_set_of_words() {
        let column = |representation| KeyColumn::equal(representation, false);
        for representation in [Representation::Int64, Representation::Int32] {
            let layout = KeyLayout::for_equality(vec![column(representation); 2]);
            let alone = KeyLayout::for_equality(vec![column(representation)]);
            let of = |values: Vec<i32>| {
                let data = match representation {
                    Representation::Int64 => {
                        Data::Int64(values.iter().map(|value| i64::from(*value)).collect::<Vec<_>>().into())
                    }
                    _ => Data::Int32(values.into()),
                };
                Vector::flat(representation, data, None)
            };
            let (far, close) = (of((0..50).map(|n| n * 40_000_000).collect()), of((-5..45).collect()));
            let keys = layout.keys(&[far, close], Rows::all(50));
            let hashes = keys.hashes();
            let index = KeyIndex::with_hashes(keys, &hashes, &[], 1, &|| Ok(())).unwrap();
            let words = index.words(&layout);
            let [(1, set)] = &words[..] else { panic!("only the second column's are close together") };
            let asked = alone.keys(&[of((-100..100).collect())], Rows::all(200));
            let Keys::Words(asked) = asked else { panic!("it has one word") };
            assert!(set.has_all(&asked).iter().eq((-100..100).map(|value| (-5..45).contains(&value))));
        }
    }

    /// A key of several columns may be one word, and these words close together.
    #[test]
    fn each_column_of_a_dense_key_has_a_set_of_words() {
        let vector = |representation, values: &[i32]| {
            let data = match representation {
                Representation::Int16 => {
                    Data::Int16(values.iter().map(|value| *value as i16).collect::<Vec<_>>().into())
                }
                Representation::Boolean => Data::Boolean(values.iter().map(|value| *value == 1).collect()),
                _ => Data::Int32(values.to_vec().into()),
            };
            Vector::flat(representation, data, None)
        };
        let all: Vec<i32> = (0..100).collect();
        for (first, second) in [
            (Representation::Int32, Representation::Int32),
            (Representation::Int16, Representation::Int16),
            (Representation::Boolean, Representation::Int32),
        ] {
            let columns = [first, second].map(|it| KeyColumn::equal(it, false));
            let layout = KeyLayout::for_equality(columns.to_vec());
            let (ones, values): (Vec<i32>, Vec<i32>) = (10..40).step_by(3).map(|value| (1, value)).unzip();
            let build = [vector(first, &ones), vector(second, &values)];
            let keys = layout.keys(&build, Rows::all(ones.len()));
            let index = KeyIndex::new(keys, &[], 1, &|| Ok(())).unwrap();
            assert!(matches!(index.finder, Finder::Dense(_)));
            let sets = index.words(&layout);
            assert_eq!(sets.len(), 2);
            for (place, set) in sets {
                let (representation, known) = [(first, &ones), (second, &values)][place];
                let asked = layout.of_column(place).keys(&[vector(representation, &all)], Rows::all(100));
                let Keys::Words(asked) = asked else { panic!("it has one word") };
                let is_known = |value: &i32| match representation {
                    Representation::Boolean => *value == 1,
                    _ => known.contains(value),
                };
                assert!(set.has_all(&asked).iter().eq(all.iter().map(is_known)), "{first} {second} {place}");
            }
        }
    }

    #[test]
    fn an_index_that_is_made_can_be_cancelled() {
        let cancelled = || Err(Error::new(SqlState::QUERY_CANCELED, "cancelled"));
        assert!(KeyIndex::new(keys(&[1, 2]), &[], 2, &cancelled).is_err());
    }
}
