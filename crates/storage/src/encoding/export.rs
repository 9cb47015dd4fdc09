//! Encoded columns as Arrow arrays.
//!
//! | encoding | encoded form | plain form |
//! |---|---|---|
//! | codes | `Dictionary(UInt8 … UInt32, values)`, nothing copied | looked up |
//! | runs | `RunEndEncoded(Int32, values)`, nothing copied | repeated |
//! | offsets | as plain: Arrow has no such layout | added up |
//! | plain words | – | nothing copied, except for narrow decimals, which Arrow widens |
//! | plain strings | `Utf8` or `Binary`, nothing copied | views are made, the bytes are not copied |
//! | symbols | as plain: Arrow has no such layout | decoded |
//!
//! The first array in the encoded form of plain texts checks that they are UTF-8.

use super::codes::{Code, Codes, each_codes};
use super::symbols::ROOM;
use super::word::Word;
use super::{EncodedColumn, Sealed, StringDictionary, StringValues, Words, each_values};
use crate::arrow::data_type;
use crate::spare::{self, Spare};
use arrow_array::builder::make_view;
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowDictionaryKeyType, ArrowPrimitiveType, BinaryViewType, ByteViewType, Date32Type, Decimal128Type,
    Float32Type, Float64Type, Int16Type, Int32Type, Int64Type, IntervalMonthDayNanoType, StringViewType,
    Time64MicrosecondType, TimestampMicrosecondType, UInt8Type, UInt16Type, UInt32Type,
};
use arrow_array::{
    Array, ArrayRef, BooleanArray, DictionaryArray, FixedSizeBinaryArray, GenericByteViewArray,
    PrimitiveArray, RunArray,
};
use arrow_buffer::{ArrowNativeType, BooleanBuffer, Buffer, NullBuffer, RunEndBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field};
use firn_base::Representation;
use firn_base::sync::Arc;
use std::ops::Range;

/// The form of an array.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// The type that [`data_type`] returns.
    Plain,
    /// The cheapest equivalent type.
    Encoded,
}

impl EncodedColumn {
    /// A range of slots as an Arrow array.
    pub fn to_array(&self, slots: Range<usize>, form: Form) -> ArrayRef {
        assert!(slots.start <= slots.end && slots.end <= self.slots);
        if form == Form::Encoded {
            return match &self.runs {
                None => self.encoded_values(slots),
                Some(_) if slots.is_empty() => self.encoded_values(0..0),
                Some(runs) => {
                    let values = self.encoded_values(0..runs.len());
                    let ends = RunEndBuffer::new(runs.ends().clone(), slots.start, slots.len());
                    let representation = DataType::RunEndEncoded(
                        Arc::new(Field::new("run_ends", DataType::Int32, false)),
                        Arc::new(Field::new("values", values.data_type().clone(), true)),
                    );
                    // SAFETY: the type is that of the parts; ends rise, and there are as many as values.
                    Arc::new(unsafe { RunArray::<Int32Type>::new_unchecked(representation, ends, values) })
                }
            };
        }
        fn words<T: Sealed>(column: &EncodedColumn, words: &Words<T>, slots: Range<usize>) -> ArrayRef {
            let nulls = column.validity(slots.clone());
            if is_widened::<T>(column.representation) {
                let mut wide = spare::take(slots.len());
                column.decode(slots, &mut wide, |places, wide| words.decode_wide(places, wide));
                return words_to_array(column.representation, lent(wide), nulls);
            }
            if let (Words::Plain(words), None) = (words, &column.runs) {
                return words_to_array(column.representation, words.slice(slots.start, slots.len()), nulls);
            }
            let mut decoded = spare::take(slots.len());
            column.decode(slots, &mut decoded, |places, out| words.decode(places, out, |word| word));
            words_to_array(column.representation, lent(decoded), nulls)
        }
        each_values!(
            &self.values,
            _bits => {
                let nulls = self.validity(slots.clone());
                Arc::new(BooleanArray::new(self.decode_bits(slots), nulls))
            },
            values => words(self, values, slots),
            strings => self.string_views(strings, slots)
        )
    }

    /// Some slots, in ascending order, as an Arrow array of the plain form.
    pub fn take(&self, slots: &[u32]) -> ArrayRef {
        let places = self.places(slots);
        let valid = |nulls: &NullBuffer| -> BooleanBuffer {
            places.iter().map(|place| nulls.is_valid(*place as usize)).collect()
        };
        let nulls = self
            .nulls
            .as_ref()
            .map(|nulls| NullBuffer::new(valid(nulls)))
            .filter(|nulls| nulls.null_count() > 0);
        each_values!(
            &self.values,
            bits => {
                let values = places.iter().map(|place| bits.value(*place as usize)).collect();
                Arc::new(BooleanArray::new(values, nulls))
            },
            words => words_to_array(self.representation, words.take(&places).into(), nulls),
            strings => {
                let places = places.iter().map(|place| *place as usize);
                self.gather(strings, places, nulls)
            }
        )
    }

    /// The values of a range of places, not of slots.
    fn encoded_values(&self, places: Range<usize>) -> ArrayRef {
        let (start, length) = (places.start, places.len());
        let nulls = self
            .nulls
            .as_ref()
            .map(|nulls| nulls.slice(start, length))
            .filter(|nulls| nulls.null_count() > 0);
        if let Some((codes, dictionary)) = self.codes() {
            return dictionary_array(codes.slice(places), nulls, dictionary.array().clone());
        }
        fn words<T: Word>(
            representation: Representation,
            words: &Words<T>,
            places: Range<usize>,
            nulls: Option<NullBuffer>,
        ) -> ArrayRef {
            if let Words::Plain(words) = words {
                return words_to_array(representation, words.slice(places.start, places.len()), nulls);
            }
            let mut decoded = Vec::with_capacity(places.len());
            words.decode(places, &mut decoded, |word| word);
            words_to_array(representation, decoded.into(), nulls)
        }
        each_values!(
            &self.values,
            bits => Arc::new(BooleanArray::new(bits.slice(start, length), nulls)),
            values => words(self.representation, values, places, nulls),
            strings => {
                let all = match strings {
                    StringValues::Plain { strings, array } => {
                        array.get_or_init(|| strings.to_array(self.representation, self.nulls.clone())).clone()
                    }
                    StringValues::Symbols(strings) => strings.strings().to_array(self.representation, self.nulls.clone()),
                    StringValues::Codes { .. } => unreachable!("codes are above"),
                };
                all.slice(start, length)
            }
        )
    }

    fn string_views(&self, strings: &StringValues, slots: Range<usize>) -> ArrayRef {
        let nulls = self.validity(slots.clone());
        match (&self.runs, strings) {
            (None, StringValues::Codes { codes, dictionary }) => {
                let add = |all: &[u128], views: &mut Vec<u128>| add_coded(codes, slots.clone(), all, views);
                self.dictionary_views(dictionary, slots.len(), add, nulls)
            }
            (None, StringValues::Symbols(strings)) => {
                let mut bytes = spare::take(strings.decoded_bytes(slots.clone()) + ROOM);
                let mut views = spare::take(slots.len());
                let view = |string: &[u8], start| views.push(make_view(string, 0, start as u32));
                strings.decode_range(slots, &mut bytes, view);
                self.views_array(views, spare::into_buffer(bytes), nulls)
            }
            (None, StringValues::Plain { .. }) => self.gather(strings, slots, nulls),
            (Some(runs), _) => {
                let lengths = runs.overlapping(&slots).zip(runs.lengths(slots));
                let places = lengths.flat_map(|(run, length)| std::iter::repeat_n(run, length));
                self.gather(strings, places, nulls)
            }
        }
    }

    /// The views of some places.
    fn gather(
        &self,
        strings: &StringValues,
        places: impl Iterator<Item = usize>,
        nulls: Option<NullBuffer>,
    ) -> ArrayRef {
        let count = places.size_hint().0;
        match strings {
            StringValues::Plain { strings, .. } => {
                let view = |place| make_view(strings.get(place), 0, strings.offsets()[place] as u32);
                let mut views = spare::take(count);
                views.extend(places.map(view));
                self.views_array(views, strings.buffer().clone(), nulls)
            }
            StringValues::Symbols(strings) => {
                let mut bytes = Vec::new();
                let mut last = None;
                let view = |place| {
                    // The string of a run is decoded once.
                    if let Some((before, view)) = last
                        && before == place
                    {
                        return view;
                    }
                    let start = bytes.len();
                    strings.decode(place, &mut bytes);
                    let view = make_view(&bytes[start..], 0, start as u32);
                    last = Some((place, view));
                    view
                };
                let mut views = spare::take(count);
                views.extend(places.map(view));
                self.views_array(views, bytes.into(), nulls)
            }
            StringValues::Codes { codes, dictionary } => {
                let add = |all: &[u128], views: &mut Vec<u128>| {
                    each_codes!(codes, codes => {
                        views.extend(places.map(|place| all[codes[place].number() as usize]));
                    });
                };
                self.dictionary_views(dictionary, count, add, nulls)
            }
        }
    }

    /// Views of strings in a buffer.
    fn views_array(&self, views: Vec<u128>, bytes: Buffer, nulls: Option<NullBuffer>) -> ArrayRef {
        match self.representation {
            representation if representation.is_string() => {
                views_array::<StringViewType>(views, vec![bytes], nulls)
            }
            _ => views_array::<BinaryViewType>(views, vec![bytes], nulls),
        }
    }

    /// The views that `add` appends, given the views of all values of a dictionary.
    fn dictionary_views(
        &self,
        dictionary: &StringDictionary,
        count: usize,
        add: impl FnOnce(&[u128], &mut Vec<u128>),
        nulls: Option<NullBuffer>,
    ) -> ArrayRef {
        fn of<V: ByteViewType>(
            all: &GenericByteViewArray<V>,
            count: usize,
            add: impl FnOnce(&[u128], &mut Vec<u128>),
            nulls: Option<NullBuffer>,
        ) -> ArrayRef {
            let mut views = spare::take(count);
            add(all.views(), &mut views);
            views_array::<V>(views, all.data_buffers().to_vec(), nulls)
        }
        match self.representation {
            representation if representation.is_string() => {
                of(dictionary.views().as_byte_view::<StringViewType>(), count, add, nulls)
            }
            _ => of(dictionary.views().as_byte_view::<BinaryViewType>(), count, add, nulls),
        }
    }
}

/// Appends the values of the codes of a range of slots.
fn add_coded(codes: &Codes, slots: Range<usize>, all: &[u128], out: &mut Vec<u128>) {
    match codes {
        Codes::One(codes) => {
            // A table of all possible codes needs no bounds check.
            let mut table = [0; 256];
            table[..all.len()].copy_from_slice(all);
            out.extend(codes[slots].iter().map(|code| table[usize::from(*code)]));
        }
        codes => each_codes!(codes, codes => {
            out.extend(codes[slots].iter().map(|code| all[code.number() as usize]));
        }),
    }
}

/// Views of strings in some buffers.
fn views_array<V: ByteViewType>(
    views: Vec<u128>,
    buffers: Vec<Buffer>,
    nulls: Option<NullBuffer>,
) -> ArrayRef {
    // SAFETY: every view refers to one of the buffers, from which callers made it. Text is checked to be
    // UTF-8 wherever it enters.
    Arc::new(unsafe { GenericByteViewArray::<V>::new_unchecked(lent(views), buffers, nulls) })
}

/// Whether Arrow's values of the type have 16 bytes and ours have fewer.
fn is_widened<T: Word>(representation: Representation) -> bool {
    matches!(representation, Representation::Decimal { .. }) && T::BYTES < 16
}

/// Words whose memory is reused when the last reference is dropped.
fn lent<T: Spare + ArrowNativeType>(words: Vec<T>) -> ScalarBuffer<T> {
    let length = words.len();
    ScalarBuffer::new(spare::into_buffer(words), 0, length)
}

fn dictionary_array(codes: Codes, nulls: Option<NullBuffer>, values: ArrayRef) -> ArrayRef {
    fn of<K: ArrowDictionaryKeyType>(
        codes: ScalarBuffer<K::Native>,
        nulls: Option<NullBuffer>,
        values: ArrayRef,
    ) -> ArrayRef {
        let keys = PrimitiveArray::<K>::new(codes, nulls);
        debug_assert!(keys.iter().flatten().all(|key| key.as_usize() < values.len()));
        // SAFETY: keys are codes of the dictionary that they were made for, which `verify` checks.
        Arc::new(unsafe { DictionaryArray::<K>::new_unchecked(keys, values) })
    }
    match codes {
        Codes::One(codes) => of::<UInt8Type>(codes, nulls, values),
        Codes::Two(codes) => of::<UInt16Type>(codes, nulls, values),
        Codes::Four(codes) => of::<UInt32Type>(codes, nulls, values),
        Codes::Eight(_) => unreachable!("no dictionary has so many values"),
    }
}

/// An array of the type that [`data_type`] returns. Shares the words' memory, except for narrow decimals.
pub(super) fn words_to_array<T: Word>(
    representation: Representation,
    words: ScalarBuffer<T>,
    nulls: Option<NullBuffer>,
) -> ArrayRef {
    fn primitive<A: ArrowPrimitiveType>(
        representation: Representation,
        words: ScalarBuffer<impl Word>,
        nulls: Option<NullBuffer>,
    ) -> ArrayRef {
        let length = words.len();
        let natives = ScalarBuffer::<A::Native>::new(words.into_inner(), 0, length);
        Arc::new(PrimitiveArray::<A>::new(natives, nulls).with_data_type(data_type(representation)))
    }
    match representation {
        Representation::Int16 => primitive::<Int16Type>(representation, words, nulls),
        Representation::Int32 => primitive::<Int32Type>(representation, words, nulls),
        Representation::Oid => primitive::<UInt32Type>(representation, words, nulls),
        Representation::Int64 => primitive::<Int64Type>(representation, words, nulls),
        Representation::Float32 => primitive::<Float32Type>(representation, words, nulls),
        Representation::Float64 => primitive::<Float64Type>(representation, words, nulls),
        Representation::Date => primitive::<Date32Type>(representation, words, nulls),
        Representation::Time => primitive::<Time64MicrosecondType>(representation, words, nulls),
        Representation::Timestamp | Representation::TimestampTz => {
            primitive::<TimestampMicrosecondType>(representation, words, nulls)
        }
        Representation::Interval => primitive::<IntervalMonthDayNanoType>(representation, words, nulls),
        Representation::Decimal { .. } if T::BYTES == 16 => {
            primitive::<Decimal128Type>(representation, words, nulls)
        }
        Representation::Decimal { .. } => {
            let wide: ScalarBuffer<i128> = words.iter().map(|word| word.to_i128()).collect();
            primitive::<Decimal128Type>(representation, wide, nulls)
        }
        Representation::Uuid => Arc::new(FixedSizeBinaryArray::new(16, words.into_inner(), nulls)),
        _ => {
            panic!("{representation} is not of fixed width")
        }
    }
}
