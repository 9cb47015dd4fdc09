//! Encoded columns compared with the values that they were made from, and the merge with sorting everything.

use super::merge::{ColumnToMerge, DeltaDictionary, merge_columns};
use super::*;
use crate::arrow::{array_value, data_type};
use arrow_array::cast::AsArray;
use arrow_array::types::{Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type};
use arrow_array::{Array, RunArray};
use arrow_schema::DataType;
use firn_base::random::Random;
use firn_base::{ArrayValue, Numeric, Value};
use std::cell::OnceCell;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::ops::Bound;

const TYPES: [Representation; 20] = [
    Representation::Boolean,
    Representation::Int16,
    Representation::Int32,
    Representation::Int64,
    Representation::Float32,
    Representation::Float64,
    Representation::Decimal { precision: 12, scale: 2 },
    Representation::Decimal { precision: 38, scale: 16 },
    Representation::Text,
    Representation::PaddedText,
    Representation::Bytes,
    Representation::Date,
    Representation::Time,
    Representation::Timestamp,
    Representation::TimestampTz,
    Representation::Interval,
    Representation::Uuid,
    Representation::Oid,
    Representation::Numeric,
    Representation::List(&Representation::Int32),
];

/// A column before it is encoded.
struct Model {
    representation: Representation,
    values: Given,
    nulls: Option<NullBuffer>,
}

enum Given {
    Bits(BooleanBuffer),
    Two(Vec<i16>),
    Four(Vec<i32>),
    Eight(Vec<i64>),
    Sixteen(Vec<i128>),
    Strings(Vec<Vec<u8>>),
}

/// The properties of a random column.
#[derive(Clone, Copy, Debug)]
struct Shape {
    slots: usize,
    /// The approximate number of different values.
    distinct: i64,
    longest_run: i64,
    /// The percentage of NULLs.
    nulls: i64,
}

impl Shape {
    fn random(random: &mut Random, most_slots: i64) -> Shape {
        let one_of = |random: &mut Random, of: &[i64]| of[random.uniform(0, of.len() as i64 - 1) as usize];
        Shape {
            slots: random.uniform(0, most_slots) as usize,
            distinct: one_of(random, &[1, 2, 10, 255, 256, 257, 70_000]),
            longest_run: one_of(random, &[1, 1, 4, 100, 10_000]),
            nulls: one_of(random, &[0, 0, 5, 50, 100]),
        }
    }
}

impl Model {
    fn random(random: &mut Random, representation: Representation, shape: Shape) -> Model {
        // All values around one of a few centres, so that offsets have every width.
        let centre = [0, i64::MIN, i64::MAX, random.next_u64() as i64][random.uniform(0, 3) as usize];
        let spread = [1, 1, 1 << 7, 1 << 13, 0x9e37_79b9_7f4a_7c15_u64 as i64][random.uniform(0, 4) as usize];
        let mut numbers = Vec::new();
        let mut valid = Vec::new();
        while numbers.len() < shape.slots {
            let number = centre.wrapping_add(random.uniform(0, shape.distinct - 1).wrapping_mul(spread));
            let is_null = random.uniform(1, 100) <= shape.nulls;
            for _ in 0..random.uniform(1, shape.longest_run).min((shape.slots - numbers.len()) as i64) {
                // The value of a NULL is anything.
                numbers.push(if is_null { random.next_u64() as i64 } else { number });
                valid.push(!is_null);
            }
        }
        let values = match representation.width() {
            Width::Bit => Given::Bits(numbers.iter().map(|number| number & 1 == 1).collect()),
            Width::Fixed(2) => Given::Two(numbers.iter().map(|number| *number as i16).collect()),
            Width::Fixed(4) if representation == Representation::Float32 => Given::Four(
                numbers
                    .iter()
                    .map(|number| special(*number) as f32)
                    .map(f32::to_bits)
                    .map(|bits| bits as i32)
                    .collect(),
            ),
            Width::Fixed(4) => Given::Four(numbers.iter().map(|number| *number as i32).collect()),
            Width::Fixed(8) if representation == Representation::Float64 => {
                Given::Eight(numbers.iter().map(|number| special(*number).to_bits() as i64).collect())
            }
            Width::Fixed(8) => Given::Eight(numbers),
            Width::Fixed(_) => {
                let far = random.uniform(0, 1) == 1;
                let wide = |number: &i64| {
                    let number = i128::from(*number);
                    if far { number.wrapping_mul(0x1_0000_0001_0000_0001) } else { number }
                };
                Given::Sixteen(numbers.iter().map(wide).collect())
            }
            Width::View if representation == Representation::Numeric => {
                // Groups of three numbers have one value, with different numbers of decimals.
                let image = |number: &i64| {
                    let zeros = number.rem_euclid(3) as u16;
                    let unscaled = i128::from(number.div_euclid(3)) * 10i128.pow(zeros.into());
                    Numeric::from_parts(unscaled, zeros + 2).image().bytes().to_vec()
                };
                Given::Strings(numbers.iter().map(image).collect())
            }
            Width::View if representation.is_image() => {
                let image = |number: &i64| {
                    let element = |at: i64| match number.wrapping_add(at).rem_euclid(7) {
                        0 => Value::Null,
                        _ => Value::Integer(*number as i32),
                    };
                    let array: ArrayValue = (0..number.rem_euclid(4)).map(element).collect();
                    array.image(Representation::Int32)
                };
                Given::Strings(numbers.iter().map(image).collect())
            }
            Width::View => {
                let string = |number: &i64| match number.rem_euclid(5) {
                    0 => format!("{}", number % 1000).into_bytes(),
                    1 => Vec::new(),
                    _ => format!("a longer string that ends in {number}").into_bytes(),
                };
                Given::Strings(numbers.iter().map(string).collect())
            }
        };
        let nulls = (shape.nulls > 0 || random.uniform(0, 3) == 0).then(|| NullBuffer::from(valid));
        Model { representation, values, nulls }
    }

    fn slots(&self) -> usize {
        match &self.values {
            Given::Bits(bits) => bits.len(),
            Given::Two(words) => words.len(),
            Given::Four(words) => words.len(),
            Given::Eight(words) => words.len(),
            Given::Sixteen(words) => words.len(),
            Given::Strings(strings) => strings.len(),
        }
    }

    fn with_piece<R>(&self, work: impl FnOnce(Piece<'_>) -> R) -> R {
        let strings: Vec<&[u8]>;
        let values = match &self.values {
            Given::Bits(bits) => Source::Bits(bits),
            Given::Two(words) => Source::Two(words),
            Given::Four(words) => Source::Four(words),
            Given::Eight(words) => Source::Eight(words),
            Given::Sixteen(words) => Source::Sixteen(words),
            Given::Strings(given) => {
                strings = given.iter().map(|string| &string[..]).collect();
                Source::Strings(&strings)
            }
        };
        work(Piece { values, nulls: self.nulls.as_ref() })
    }

    fn cell(&self, slot: usize) -> Cell<'_> {
        if self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(slot)) {
            return Cell::Null;
        }
        match &self.values {
            Given::Bits(bits) => Cell::boolean(bits.value(slot)),
            Given::Two(words) => Cell::i16(words[slot]),
            Given::Four(words) => Cell::i32(words[slot]),
            Given::Eight(words) => Cell::i64(words[slot]),
            Given::Sixteen(words) => Cell::i128(words[slot]),
            Given::Strings(strings) => Cell::Bytes(&strings[slot]),
        }
    }

    fn value(&self, slot: usize) -> Value {
        self.cell(slot).to_value(self.representation)
    }

    fn encode(&self, encoding: Encoding) -> Option<EncodedColumn> {
        self.with_piece(|piece| EncodedColumn::encode(self.representation, piece, encoding))
    }

    /// Encodes in every way that the values allow; with codes for a dictionary of its own.
    fn encode_in_all_ways(&self) -> Vec<EncodedColumn> {
        let mut ways = Vec::new();
        for runs in [false, true] {
            ways.extend(self.encode(Encoding { runs, values: Kept::Plain }));
            let fixed = matches!(self.representation.width(), Width::Fixed(_));
            if fixed && Order::of(self.representation) == Order::Signed {
                ways.extend(self.encode(Encoding { runs, values: Kept::Offsets }));
            }
            // Symbols have a test of their own under Miri, which is slow enough.
            if let Some(mut column) = self.encode(Encoding { runs, values: Kept::Plain })
                && !cfg!(miri)
                && let Values::Strings(StringValues::Plain { strings, .. }) = &column.values
            {
                column.values = Values::Strings(StringValues::Symbols(SymbolStrings::encode(strings)));
                assert_eq!(column.encoding(), Encoding { runs, values: Kept::Symbols });
                ways.push(column);
            }
            if self.representation != Representation::Boolean {
                ways.push(self.merge(None).delta(0, runs));
            }
        }
        ways
    }

    fn merge(&self, main: Option<&Dictionary>) -> Merge {
        self.with_piece(|piece| {
            DeltaDictionary::build(self.representation, &[piece], 1).unwrap().merge(main, 1).unwrap()
        })
    }

    /// Checks every slot of a range, in every way of reading.
    fn check(&self, column: &EncodedColumn, random: &mut Random) {
        column.verify();
        assert_eq!(column.slots(), self.slots());
        for slot in 0..self.slots() {
            let (kept, given) = (OnceCell::new(), self.cell(slot));
            let cell = column.cell(slot, |decoded| kept.get_or_init(|| decoded));
            assert!(cell.is_same(&given), "slot {slot}: {cell:?}, expected {given:?}");
            assert_eq!(column.is_null(slot), given.is_null());
        }
        for _ in 0..4 {
            let start = random.uniform(0, self.slots() as i64) as usize;
            let end = random.uniform(start as i64, self.slots() as i64) as usize;
            self.check_range(column, start..end);
        }
        self.check_range(column, 0..self.slots());
    }

    fn check_range(&self, column: &EncodedColumn, slots: Range<usize>) {
        fn words<T: Sealed>(column: &EncodedColumn, given: &[T], slots: Range<usize>) {
            let mut decoded = vec![T::default()];
            column.decode_words(slots.clone(), &mut decoded);
            assert_eq!(decoded.len(), slots.len() + 1);
            for (slot, word) in slots.zip(&decoded[1..]).filter(|(slot, _)| !column.is_null(*slot)) {
                assert_eq!(*word, given[slot]);
                assert_eq!(column.word::<T>(slot), given[slot]);
            }
        }
        match &self.values {
            Given::Bits(bits) => {
                let decoded = column.decode_bits(slots.clone());
                for slot in slots.clone().filter(|slot| !column.is_null(*slot)) {
                    assert_eq!(decoded.value(slot - slots.start), bits.value(slot));
                }
            }
            Given::Two(given) => words(column, given, slots.clone()),
            Given::Four(given) => words(column, given, slots.clone()),
            Given::Eight(given) => words(column, given, slots.clone()),
            Given::Sixteen(given) => words(column, given, slots.clone()),
            Given::Strings(given) => {
                let mut decoded = Vec::new();
                column.each_string(slots.clone(), |string, times| {
                    decoded.extend(std::iter::repeat_n(string.to_vec(), times));
                });
                assert_eq!(decoded.len(), slots.len());
                for (slot, string) in slots.clone().zip(decoded).filter(|(slot, _)| !column.is_null(*slot)) {
                    assert_eq!(string, given[slot]);
                }
            }
        }
        for form in [Form::Plain, Form::Encoded] {
            let array = column.to_array(slots.clone(), form);
            array.to_data().validate_full().unwrap();
            assert_eq!(array.len(), slots.len());
            if form == Form::Plain {
                assert_eq!(*array.data_type(), data_type(self.representation));
            }
            for slot in slots.clone() {
                let (shown, given) =
                    (shown(array.as_ref(), slot - slots.start, self.representation), self.value(slot));
                assert!(same(&shown, &given), "slot {slot} of {form:?}: {shown:?}, expected {given:?}");
            }
        }
    }

    /// Checks random conditions against comparisons of values.
    fn check_conditions(&self, column: &EncodedColumn, random: &mut Random) {
        let any = |random: &mut Random| {
            let slot = random.uniform(0, self.slots() as i64 - 1) as usize;
            (!self.cell(slot).is_null()).then(|| self.cell(slot))
        };
        if self.slots() == 0 {
            return;
        }
        for _ in 0..12 {
            let bound = |random: &mut Random| match (any(random), random.uniform(0, 3)) {
                (Some(cell), 0) => Bound::Excluded(cell),
                (Some(cell), 1 | 2) => Bound::Included(cell),
                _ => Bound::Unbounded,
            };
            let condition = match (random.uniform(0, 3), any(random)) {
                (0, _) | (_, None) => Condition::range(bound(random), bound(random)),
                (1, Some(cell)) => Condition::equal(cell),
                (2, _) => Condition::In((0..random.uniform(0, 20)).filter_map(|_| any(random)).collect()),
                (_, Some(cell)) if self.representation.width() == Width::View => {
                    let Cell::Bytes(string) = cell else { unreachable!("the model's strings") };
                    Condition::Prefix(&string[..random.uniform(0, string.len() as i64) as usize])
                }
                (_, Some(cell)) => Condition::range(Bound::Included(cell), bound(random)),
            };
            let start = random.uniform(0, self.slots() as i64 / 2) as usize;
            let slots = start..random.uniform(start as i64, self.slots() as i64) as usize;
            let Some(selected) = column.select(slots.clone(), &condition) else {
                assert!(!condition.is_decidable(self.representation));
                continue;
            };
            assert_eq!(selected.len(), slots.len());
            for slot in slots.clone() {
                let taken = self.takes(&condition, slot);
                assert_eq!(
                    selected.value(slot - slots.start),
                    taken,
                    "slot {slot}, {:?}, {condition:?}",
                    self.value(slot)
                );
            }
        }
    }

    fn takes(&self, condition: &Condition<'_>, slot: usize) -> bool {
        let value = self.value(slot);
        let compare =
            |cell: &Cell<'_>| value.compare(&cell.to_value(self.representation)).expect("values of one type");
        if value == Value::Null {
            return false;
        }
        match condition {
            Condition::Ranges(ranges) => ranges.iter().any(|(low, high)| {
                let above = match low {
                    Bound::Included(low) => compare(low) != Ordering::Less,
                    Bound::Excluded(low) => compare(low) == Ordering::Greater,
                    Bound::Unbounded => true,
                };
                let below = match high {
                    Bound::Included(high) => compare(high) != Ordering::Greater,
                    Bound::Excluded(high) => compare(high) == Ordering::Less,
                    Bound::Unbounded => true,
                };
                above && below
            }),
            Condition::In(cells) => cells.iter().any(|cell| compare(cell) == Ordering::Equal),
            Condition::Prefix(prefix) => self.cell(slot).bytes().starts_with(prefix),
        }
    }
}

/// A value of a column that has no symbols.
fn as_it_lies(column: &EncodedColumn, slot: usize) -> Cell<'_> {
    column.cell(slot, |_| panic!("no string has to be decoded"))
}

/// Numbers, and sometimes NaN or an infinity.
fn special(number: i64) -> f64 {
    const SPECIAL: [f64; 6] = [0.0, -0.0, f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
    match number.rem_euclid(9) {
        0 => SPECIAL[(number / 9).rem_euclid(6) as usize],
        _ => number as f64 / 3.0,
    }
}

/// The value in a row of an array, with or without runs.
fn shown(array: &dyn Array, row: usize, representation: Representation) -> Value {
    match array.as_any().downcast_ref::<RunArray<Int32Type>>() {
        Some(runs) => shown(runs.values().as_ref(), runs.get_physical_index(row), representation),
        None => array_value(array, row, representation),
    }
}

/// Equal, NaNs included.
fn same(a: &Value, b: &Value) -> bool {
    a == b
        || matches!((a, b), (Value::Real(_), Value::Real(_)) | (Value::Double(_), Value::Double(_)))
            && a.compare(b) == Some(Ordering::Equal)
}

fn seed() -> u64 {
    let seed = std::env::var("FIRN_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| Random::from_entropy().next_u64());
    println!("FIRN_SEED={seed}");
    seed
}

/// The number of random columns of each type; Miri is slow.
const ROUNDS: usize = if cfg!(miri) { 1 } else { 8 };
const MOST_SLOTS: i64 = if cfg!(miri) { 20 } else { 3000 };

#[test]
fn every_encoding_of_every_type_reads_as_it_was_given() {
    let random = &mut Random::seeded(seed());
    for representation in TYPES {
        for _ in 0..ROUNDS {
            let shape = Shape::random(random, MOST_SLOTS);
            let model = Model::random(random, representation, shape);
            for column in model.encode_in_all_ways() {
                println!("{representation} {shape:?} {:?}", column.encoding());
                model.check(&column, random);
            }
        }
    }
}

#[test]
fn conditions_on_every_encoding_take_what_sql_takes() {
    let random = &mut Random::seeded(seed());
    for representation in TYPES {
        for _ in 0..ROUNDS {
            let shape = Shape::random(random, MOST_SLOTS);
            let model = Model::random(random, representation, shape);
            for column in model.encode_in_all_ways() {
                println!("{representation} {shape:?} {:?}", column.encoding());
                model.check_conditions(&column, random);
            }
        }
    }
}

#[test]
fn the_size_of_a_chosen_encoding_is_what_was_reckoned() {
    let random = &mut Random::seeded(seed());
    for representation in TYPES {
        for _ in 0..ROUNDS {
            let shape = Shape::random(random, MOST_SLOTS);
            let model = Model::random(random, representation, shape);
            let statistics = model.with_piece(|piece| Statistics::gather(representation, piece));
            for column in model.encode_in_all_ways() {
                let dictionary = column.codes().map(|(_, dictionary)| dictionary);
                let offer = dictionary.as_ref().map(|dictionary| Offer {
                    values: dictionary.len() as u64,
                    dictionary_bytes: 0,
                    slots: 1,
                });
                let encoding = column.encoding();
                if encoding.values == Kept::Symbols {
                    // This can only be found out by trying.
                    continue;
                }
                let Some(reckoned) = choose::encoded_bytes(&statistics, encoding, offer.as_ref()) else {
                    // Not narrower than the words.
                    assert_eq!(encoding.values, Kept::Offsets);
                    continue;
                };
                // The estimate counts strings of runs that NULLs interrupt once, and guides as every eighth
                // run.
                let slack = if encoding.runs { statistics.runs + 16 } else { 0 };
                let strings = if encoding.runs { statistics.string_bytes.0 } else { 0 };
                assert!(
                    column.bytes() <= reckoned + slack + strings && reckoned <= column.bytes() + slack,
                    "{representation} {shape:?} {encoding:?}: {} bytes were estimated as {reckoned}",
                    column.bytes()
                );
            }
        }
    }
}

/// The expected result of a merge of columns: the sorted values of main and delta, without duplicates.
#[test]
fn a_merged_column_has_every_value_once_and_reads_as_before() {
    let random = &mut Random::seeded(seed());
    for representation in
        TYPES.into_iter().filter(|representation| *representation != Representation::Boolean)
    {
        for threads in [1, 2, 3] {
            let mut dictionary: Option<Dictionary> = None;
            let mut main: Vec<(Model, EncodedColumn)> = Vec::new();
            let mut values: BTreeSet<Vec<u8>> = BTreeSet::new();
            // One merge after another, so that widths overflow and some deltas add nothing new, or nothing at
            // all.
            for _ in 0..if cfg!(miri) { 2 } else { 6 } {
                let shape = Shape::random(random, MOST_SLOTS);
                let models: Vec<Model> =
                    (0..random.uniform(0, 4)).map(|_| Model::random(random, representation, shape)).collect();
                let runs: Vec<bool> = models.iter().map(|_| random.uniform(0, 1) == 1).collect();
                let strings: Vec<Vec<&[u8]>> = models.iter().map(strings_of).collect();
                let delta: Vec<(Piece<'_>, bool)> = models
                    .iter()
                    .zip(&strings)
                    .zip(&runs)
                    .map(|((model, strings), runs)| (model.piece_with(strings), *runs))
                    .collect();
                let blocks: Vec<EncodedColumn> = main.iter().map(|(_, column)| column.clone()).collect();
                let job = ColumnToMerge {
                    representation,
                    dictionary: dictionary.clone(),
                    main: &blocks,
                    delta: &delta,
                };
                let merged = merge_columns(&[job], threads).pop().unwrap().unwrap();
                for model in &models {
                    values.extend((0..model.slots()).filter_map(|slot| bits_of(&model.cell(slot))));
                }
                merged.dictionary.verify();
                assert_eq!(merged.dictionary.len(), values.len(), "{representation} {shape:?}");
                if let Some(before) = dictionary.filter(|before| before.len() == values.len()) {
                    assert!(before.is(&merged.dictionary), "without new values the dictionary is the same");
                }
                dictionary = Some(merged.dictionary);
                let models_before = main.into_iter().map(|(model, _)| model);
                main = models_before.zip(merged.main).chain(models.into_iter().zip(merged.delta)).collect();
                for (model, column) in &main {
                    let all_null = (0..model.slots()).all(|slot| model.cell(slot).is_null());
                    assert!(column.codes().is_some() || all_null);
                    model.check(column, random);
                }
                // Blocks of NULLs only that joined without a dictionary have no codes to be merged later.
                main.retain(|(_, column)| column.codes().is_some());
                // In SQL's order, if the type has one.
                let dictionary = dictionary.as_ref().unwrap();
                if Order::of_any(representation) != Order::Foreign {
                    let ordered: Vec<Value> =
                        (0..dictionary.len()).map(|code| value_of(dictionary, code)).collect();
                    assert!(ordered.is_sorted_by(|a, b| a.compare(b) != Some(Ordering::Greater)));
                }
            }
        }
    }
}

fn strings_of(model: &Model) -> Vec<&[u8]> {
    match &model.values {
        Given::Strings(strings) => strings.iter().map(|string| &string[..]).collect(),
        _ => Vec::new(),
    }
}

/// The bits of a value that is not NULL.
fn bits_of(cell: &Cell<'_>) -> Option<Vec<u8>> {
    match cell {
        Cell::Null => None,
        Cell::Word(word) => Some(word.to_le_bytes().to_vec()),
        Cell::Wide([low, high]) => Some([low.to_le_bytes(), high.to_le_bytes()].concat()),
        string => Some(string.bytes().to_vec()),
    }
}

fn value_of(dictionary: &Dictionary, code: usize) -> Value {
    dictionary::each_dictionary!(
        dictionary,
        words => words.word(code).to_cell().to_value(words.representation),
        strings => Cell::Bytes(strings.get(code)).to_value(strings.representation)
    )
}

impl Order {
    /// As [`Order::of`]; strings are ordered by bytes, images are not.
    fn of_any(representation: Representation) -> Order {
        match representation.width() {
            _ if representation.is_image() => Order::Foreign,
            Width::View => Order::Bytes,
            _ => Order::of(representation),
        }
    }
}

impl Model {
    fn piece_with<'a>(&'a self, strings: &'a [&'a [u8]]) -> Piece<'a> {
        let values = match &self.values {
            Given::Bits(bits) => Source::Bits(bits),
            Given::Two(words) => Source::Two(words),
            Given::Four(words) => Source::Four(words),
            Given::Eight(words) => Source::Eight(words),
            Given::Sixteen(words) => Source::Sixteen(words),
            Given::Strings(_) => Source::Strings(strings),
        };
        Piece { values, nulls: self.nulls.as_ref() }
    }

    fn words(words: Vec<i64>) -> Model {
        Model { representation: Representation::Int64, values: Given::Eight(words), nulls: None }
    }
}

#[test]
fn codes_widen_when_the_dictionary_outgrows_them_and_stay_where_nothing_moves() {
    // Main has the even numbers.
    for (main_values, new, width, wider) in [
        (256, 0, CodeWidth::One, CodeWidth::One),
        (255, 1, CodeWidth::One, CodeWidth::One),
        (256, 1, CodeWidth::One, CodeWidth::Two),
        (65_536, 0, CodeWidth::Two, CodeWidth::Two),
        (65_535, 1, CodeWidth::Two, CodeWidth::Two),
        (65_536, 1, CodeWidth::Two, CodeWidth::Four),
        (65_537, 100, CodeWidth::Four, CodeWidth::Four),
        (1, 65_536, CodeWidth::One, CodeWidth::Four),
    ] {
        if cfg!(miri) && main_values + new > 1000 {
            continue;
        }
        let main = Model::words((0..main_values).map(|number| 2 * number).collect());
        let first = main.merge(None);
        let block = first.delta(0, false);
        assert_eq!(block.codes().unwrap().0.width(), width);
        // New values before all others, or after them.
        for (front, shift) in [(true, -2 * new - 1), (false, 2 * main_values + 1)] {
            let delta = Model::words(
                (0..new.max(1)).map(|number| if new == 0 { 0 } else { 2 * number + shift }).collect(),
            );
            let merge = delta.merge(Some(first.dictionary()));
            assert_eq!(merge.dictionary().len() as i64, main_values + new);
            let again = merge.main(&block);
            again.verify();
            let (codes, before) = (again.codes().unwrap().0.clone(), block.codes().unwrap().0.clone());
            assert_eq!(codes.width(), wider);
            assert_eq!(codes.shares(&before), width == wider && (new == 0 || !front));
            assert!((0..main_values as usize).all(|slot| again.word::<i64>(slot) == 2 * slot as i64));
            let own = merge.delta(0, false);
            own.verify();
            assert!((0..delta.slots()).all(|slot| as_it_lies(&own, slot).is_same(&delta.cell(slot))));
        }
    }
}

/// Some blocks are removed. The rest reads as before, and the dictionary has its values and no others.
#[test]
fn a_dictionary_forgets_what_no_block_has_if_that_is_most() {
    let random = &mut Random::seeded(seed());
    let mut forgot = [0, 0];
    for representation in
        TYPES.into_iter().filter(|representation| *representation != Representation::Boolean)
    {
        for _ in 0..if cfg!(miri) { 1 } else { 12 } {
            let mut dictionary: Option<Dictionary> = None;
            let mut main: Vec<(Model, EncodedColumn)> = Vec::new();
            for _ in 0..3 {
                let shape = Shape::random(random, MOST_SLOTS);
                let model = Model::random(random, representation, shape);
                let merge = model.merge(dictionary.as_ref());
                main.iter_mut()
                    .filter(|(_, column)| merge.concerns(column))
                    .for_each(|(_, column)| *column = merge.main(column));
                let column = merge.delta(0, random.uniform(0, 1) == 1);
                dictionary = Some(merge.dictionary().clone());
                main.push((model, column));
            }
            main.drain(..random.uniform(0, 3) as usize);
            let dictionary = dictionary.unwrap();
            // The code of a NULL is that of some value, too.
            let used: BTreeSet<usize> = main
                .iter()
                .filter_map(|(_, column)| column.codes())
                .flat_map(|(codes, _)| (0..codes.len()).map(|at| codes.get(at)).collect::<Vec<_>>())
                .collect();
            let most = used.len() * 2 > dictionary.len();
            forgot[usize::from(most)] += 1;
            let merge = Merge::forgetting(&dictionary, main.iter().map(|(_, column)| column));
            assert_eq!(merge.is_none(), most, "{representation}");
            let Some(merge) = merge else { continue };
            merge.dictionary().verify();
            let values = |dictionary: &Dictionary, codes: &mut dyn Iterator<Item = usize>| {
                codes.map(|code| value_of(dictionary, code)).collect::<Vec<Value>>()
            };
            let left = values(merge.dictionary(), &mut (0..merge.dictionary().len()));
            let expected = values(&dictionary, &mut used.iter().copied());
            assert!(left.len() == expected.len() && left.iter().zip(&expected).all(|(a, b)| same(a, b)));
            for (model, column) in main.iter().filter(|(_, column)| column.codes().is_some()) {
                model.check(&merge.main(column), random);
            }
            let estimate = merge.dictionary().distinct().estimate() as f64;
            assert!(
                (estimate - left.len() as f64).abs() <= left.len() as f64 * 0.1,
                "{representation}: {estimate}"
            );
        }
    }
    assert!(cfg!(miri) || forgot.iter().all(|times| *times > 10), "{forgot:?}");
}

#[test]
fn nothing_and_nothing_but_null_merge_with_anything() {
    let empty = Model::words(Vec::new());
    let null = Model { nulls: Some(NullBuffer::new_null(3)), ..Model::words(vec![7; 3]) };
    let one = Model::words(vec![7; 3]);
    for first in [&empty, &null, &one] {
        for second in [&empty, &null, &one] {
            let merge = first.merge(None);
            let block = merge.delta(0, false);
            let next = second.merge(Some(merge.dictionary()));
            let sevens = std::ptr::eq(first, &one) || std::ptr::eq(second, &one);
            assert_eq!(next.dictionary().len(), usize::from(sevens));
            for runs in [false, true] {
                let column = next.delta(0, runs);
                column.verify();
                assert!(
                    (0..second.slots()).all(|slot| as_it_lies(&column, slot).is_same(&second.cell(slot)))
                );
            }
            if block.codes().is_some() {
                let block = next.main(&block);
                block.verify();
                assert!((0..first.slots()).all(|slot| as_it_lies(&block, slot).is_same(&first.cell(slot))));
            }
        }
    }
    let none = DeltaDictionary::build(Representation::Text, &[], 2).unwrap();
    assert!(none.is_empty() && none.merge(None, 2).unwrap().dictionary().is_empty());
    let nulls = EncodedColumn::of_nulls(Representation::Text, 5);
    nulls.verify();
    assert!(nulls.is_null(4) && nulls.to_array(0..5, Form::Encoded).logical_null_count() == 5);
}

#[test]
fn columns_are_merged_beside_each_other_as_one_by_one() {
    let random = &mut Random::seeded(seed());
    let shape = Shape { slots: if cfg!(miri) { 40 } else { 2000 }, distinct: 300, longest_run: 1, nulls: 5 };
    let types = [
        Representation::Int64,
        Representation::Text,
        Representation::Float64,
        Representation::Int32,
        Representation::Uuid,
    ];
    let models: Vec<Model> =
        types.iter().map(|representation| Model::random(random, *representation, shape)).collect();
    let strings: Vec<Vec<&[u8]>> = models.iter().map(strings_of).collect();
    let delta: Vec<[(Piece<'_>, bool); 1]> =
        models.iter().zip(&strings).map(|(model, strings)| [(model.piece_with(strings), false)]).collect();
    let columns: Vec<ColumnToMerge<'_>> = models
        .iter()
        .zip(&delta)
        .map(|(model, delta)| ColumnToMerge {
            representation: model.representation,
            dictionary: None,
            main: &[],
            delta,
        })
        .collect();
    for threads in [1, 2, 4] {
        for (merged, model) in merge_columns(&columns, threads).into_iter().zip(&models) {
            let merged = merged.unwrap();
            merged.dictionary.verify();
            model.check(&merged.delta[0], random);
        }
    }
}

#[test]
fn arrow_arrays_share_the_memory_of_what_they_are_made_of() {
    let words: Vec<i64> = (0..1000).map(|number| number / 3 % 100 * 1_000_000_007).collect();
    let model = Model::words(words);
    let plain = model.encode(Encoding { runs: false, values: Kept::Plain }).unwrap();
    let Values::Eight(Words::Plain(buffer)) = &plain.values else { panic!("plain words") };
    let array = plain.to_array(10..20, Form::Plain);
    assert_eq!(array.as_primitive::<Int64Type>().values().as_ptr(), buffer[10..].as_ptr());

    let merge = model.merge(None);
    let coded = merge.delta(0, false);
    let (Codes::One(codes), Dictionary::Eight(dictionary)) = coded.codes().unwrap() else {
        panic!("100 values")
    };
    let array = coded.to_array(10..20, Form::Encoded);
    let array = array.as_dictionary::<UInt8Type>();
    assert_eq!(array.keys().values().as_ptr(), codes[10..].as_ptr());
    assert_eq!(array.values().as_primitive::<Int64Type>().values().as_ptr(), dictionary.ordinals.as_ptr());

    let runs = merge.delta(0, true);
    let array = runs.to_array(10..20, Form::Encoded);
    let array = array.as_any().downcast_ref::<RunArray<Int32Type>>().unwrap();
    assert_eq!(array.run_ends().values().as_ptr(), runs.runs.as_ref().unwrap().ends().as_ptr());
    assert_eq!(array.values().as_dictionary::<UInt8Type>().len(), 334);

    let texts: Vec<Vec<u8>> =
        (0..1000).map(|number| format!("text number {}", number % 300).into_bytes()).collect();
    let model = Model { representation: Representation::Text, values: Given::Strings(texts), nulls: None };
    let plain = model.encode(Encoding { runs: false, values: Kept::Plain }).unwrap();
    let Values::Strings(StringValues::Plain { strings, .. }) = &plain.values else { panic!("plain strings") };
    let bytes = strings.all_bytes().as_ptr();
    let array = plain.to_array(5..9, Form::Encoded);
    assert_eq!(array.as_string::<i32>().values().as_ptr(), bytes);
    let array = plain.to_array(5..9, Form::Plain);
    assert_eq!(array.as_string_view().data_buffers()[0].as_ptr(), bytes);
    let coded = model.merge(None).delta(0, false);
    let (_, Dictionary::Strings(dictionary)) = coded.codes().unwrap() else { panic!("strings") };
    let bytes = dictionary.strings.all_bytes().as_ptr();
    let array = coded.to_array(5..9, Form::Encoded);
    let values = array.as_dictionary::<UInt16Type>().values().clone();
    assert_eq!((values.as_string::<i32>().values().as_ptr(), values.data_type()), (bytes, &DataType::Utf8));
    let array = coded.to_array(5..9, Form::Plain);
    assert_eq!(array.as_string_view().data_buffers()[0].as_ptr(), bytes);

    let small =
        Model { representation: Representation::Int16, values: Given::Two((0..9).collect()), nulls: None };
    let offsets = small.encode(Encoding { runs: false, values: Kept::Offsets }).unwrap();
    let array = offsets.to_array(2..5, Form::Encoded);
    assert_eq!(array.as_primitive::<Int16Type>().values(), &[2, 3, 4]);
}

#[test]
fn a_set_of_codes_from_any_test_of_strings_selects_like_a_condition() {
    let texts: Vec<Vec<u8>> =
        (0..500).map(|number| format!("number {}", number % 120).into_bytes()).collect();
    let model = Model { representation: Representation::Text, values: Given::Strings(texts), nulls: None };
    let merge = model.merge(None);
    let set = merge.dictionary().codes_of_strings(|string| string.ends_with(b"7"));
    for runs in [false, true] {
        let column = merge.delta(0, runs);
        let selected = column.select_codes(3..500, &set);
        assert!((3..500).all(|slot| selected.value(slot - 3) == (slot % 120 % 10 == 7)));
    }
    let nothing = merge.dictionary().codes_of(&Condition::Prefix(b"numbest")).unwrap();
    assert!(nothing.is_empty() && !set.is_empty());
}

#[test]
fn values_too_far_apart_for_offsets_are_refused() {
    let wide = Model {
        representation: Representation::Decimal { precision: 38, scale: 16 },
        values: Given::Sixteen(vec![0, 1 << 64]),
        nulls: None,
    };
    assert!(wide.encode(Encoding { runs: false, values: Kept::Offsets }).is_none());
    let wide = Model {
        representation: Representation::Decimal { precision: 38, scale: 16 },
        values: Given::Sixteen(vec![0, (1 << 64) - 1]),
        nulls: None,
    };
    let column = wide.encode(Encoding { runs: false, values: Kept::Offsets }).unwrap();
    assert_eq!((column.word::<i128>(1), column.bytes()), ((1 << 64) - 1, 16));
}
