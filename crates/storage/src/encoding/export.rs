//! Encoded columns as Arrow arrays.
//!
//! | encoding | encoded form | plain form |
//! |---|---|---|
//! | codes | `Dictionary(UInt8 … UInt32, values)`, nothing copied | looked up |
//! | runs | `RunEndEncoded(Int32, values)`, nothing copied | repeated |
//! | offsets | as plain: Arrow has no such layout | added up |
//! | plain words | – | nothing copied, but for narrow decimals, which Arrow widens |
//! | plain strings | `Utf8` or `Binary`, nothing copied | views are made, the bytes are not copied |
//!
//! Arrays of texts are looked through once for what is no UTF-8, when the first array is made of them.

use super::codes::Codes;
use super::strings::as_views;
use super::word::Word;
use super::{EncodedColumn, Sealed, StringValues, Words, each_values};
use crate::arrow::data_type;
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
use arrow_buffer::{ArrowNativeType, NullBuffer, RunEndBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field};
use firn_base::SqlType;
use firn_base::sync::Arc;
use std::ops::Range;

/// What an array is to be like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// Of the type that [`data_type`] names.
    Plain,
    /// Of the cheapest type that can stand for it.
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
                    let ty = DataType::RunEndEncoded(
                        Arc::new(Field::new("run_ends", DataType::Int32, false)),
                        Arc::new(Field::new("values", values.data_type().clone(), true)),
                    );
                    // SAFETY: the type is that of the parts; ends rise, and there are as many as values.
                    Arc::new(unsafe { RunArray::<Int32Type>::new_unchecked(ty, ends, values) })
                }
            };
        }
        fn words<T: Sealed>(column: &EncodedColumn, words: &Words<T>, slots: Range<usize>) -> ArrayRef {
            let nulls = column.validity(slots.clone());
            if let (Words::Plain(words), None) = (words, &column.runs) {
                return words_to_array(column.ty, words.slice(slots.start, slots.len()), nulls);
            }
            let mut decoded = Vec::with_capacity(slots.len());
            column.decode_words::<T>(slots, &mut decoded);
            words_to_array(column.ty, decoded.into(), nulls)
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
            ty: SqlType,
            words: &Words<T>,
            places: Range<usize>,
            nulls: Option<NullBuffer>,
        ) -> ArrayRef {
            if let Words::Plain(words) = words {
                return words_to_array(ty, words.slice(places.start, places.len()), nulls);
            }
            let mut decoded = Vec::with_capacity(places.len());
            words.decode(places, &mut decoded);
            words_to_array(ty, decoded.into(), nulls)
        }
        each_values!(
            &self.values,
            bits => Arc::new(BooleanArray::new(bits.slice(start, length), nulls)),
            values => words(self.ty, values, places, nulls),
            strings => {
                let StringValues::Plain { strings, array } = strings else { unreachable!("codes are above") };
                array.get_or_init(|| strings.to_array(self.ty, self.nulls.clone())).slice(start, length)
            }
        )
    }

    fn string_views(&self, strings: &StringValues, slots: Range<usize>) -> ArrayRef {
        let views = match strings {
            StringValues::Plain { strings, array } => {
                let array = array.get_or_init(|| strings.to_array(self.ty, self.nulls.clone()));
                match &self.runs {
                    None => return as_views(array, slots),
                    Some(_) => as_views(array, 0..strings.len()),
                }
            }
            StringValues::Codes { dictionary, .. } => dictionary.views().clone(),
        };
        let nulls = self.validity(slots.clone());
        match self.ty {
            SqlType::Bytea => self.gather(views.as_byte_view::<BinaryViewType>(), strings, slots, nulls),
            _ => self.gather(views.as_byte_view::<StringViewType>(), strings, slots, nulls),
        }
    }

    /// The views of slots, of views for all values or for all of a dictionary.
    fn gather<V: ByteViewType>(
        &self,
        views: &GenericByteViewArray<V>,
        strings: &StringValues,
        slots: Range<usize>,
        nulls: Option<NullBuffer>,
    ) -> ArrayRef {
        let of_values = views.views();
        let view = |place: usize| match strings {
            StringValues::Plain { .. } => of_values[place],
            StringValues::Codes { codes, .. } => of_values[codes.get(place)],
        };
        let gathered: Vec<u128> = match &self.runs {
            None => slots.map(view).collect(),
            Some(runs) => {
                let lengths = runs.overlapping(&slots).zip(runs.lengths(slots));
                lengths.flat_map(|(run, length)| std::iter::repeat_n(view(run), length)).collect()
            }
        };
        // SAFETY: every view is one of the array's, whose buffers these are.
        let array = unsafe {
            GenericByteViewArray::<V>::new_unchecked(gathered.into(), views.data_buffers().to_vec(), nulls)
        };
        Arc::new(array)
    }
}

fn dictionary_array(codes: Codes, nulls: Option<NullBuffer>, values: ArrayRef) -> ArrayRef {
    fn of<K: ArrowDictionaryKeyType>(
        codes: ScalarBuffer<K::Native>,
        nulls: Option<NullBuffer>,
        values: ArrayRef,
    ) -> ArrayRef {
        let keys = PrimitiveArray::<K>::new(codes, nulls);
        debug_assert!(keys.iter().flatten().all(|key| key.as_usize() < values.len()));
        // SAFETY: keys name values of the dictionary that they were made for, which `verify` looks after.
        Arc::new(unsafe { DictionaryArray::<K>::new_unchecked(keys, values) })
    }
    match codes {
        Codes::One(codes) => of::<UInt8Type>(codes, nulls, values),
        Codes::Two(codes) => of::<UInt16Type>(codes, nulls, values),
        Codes::Four(codes) => of::<UInt32Type>(codes, nulls, values),
        Codes::Eight(_) => unreachable!("no dictionary has so many values"),
    }
}

/// An array of the type that [`data_type`] names. Shares the words' memory, but for narrow decimals.
pub(super) fn words_to_array<T: Word>(
    ty: SqlType,
    words: ScalarBuffer<T>,
    nulls: Option<NullBuffer>,
) -> ArrayRef {
    fn primitive<A: ArrowPrimitiveType>(
        ty: SqlType,
        words: ScalarBuffer<impl Word>,
        nulls: Option<NullBuffer>,
    ) -> ArrayRef {
        let length = words.len();
        let natives = ScalarBuffer::<A::Native>::new(words.into_inner(), 0, length);
        Arc::new(PrimitiveArray::<A>::new(natives, nulls).with_data_type(data_type(ty)))
    }
    match ty {
        SqlType::SmallInt => primitive::<Int16Type>(ty, words, nulls),
        SqlType::Integer => primitive::<Int32Type>(ty, words, nulls),
        SqlType::BigInt => primitive::<Int64Type>(ty, words, nulls),
        SqlType::Real => primitive::<Float32Type>(ty, words, nulls),
        SqlType::Double => primitive::<Float64Type>(ty, words, nulls),
        SqlType::Date => primitive::<Date32Type>(ty, words, nulls),
        SqlType::Time => primitive::<Time64MicrosecondType>(ty, words, nulls),
        SqlType::Timestamp | SqlType::TimestampTz => primitive::<TimestampMicrosecondType>(ty, words, nulls),
        SqlType::Interval => primitive::<IntervalMonthDayNanoType>(ty, words, nulls),
        SqlType::Numeric { .. } if T::BYTES == 16 => primitive::<Decimal128Type>(ty, words, nulls),
        SqlType::Numeric { .. } => {
            let wide: ScalarBuffer<i128> = words.iter().map(|word| word.to_i128()).collect();
            primitive::<Decimal128Type>(ty, wide, nulls)
        }
        SqlType::Uuid => Arc::new(FixedSizeBinaryArray::new(16, words.into_inner(), nulls)),
        SqlType::Boolean | SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_) | SqlType::Bytea => {
            panic!("{ty} is not of fixed width")
        }
    }
}
