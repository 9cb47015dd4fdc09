//! Arrays of string views: conversion to and from consecutive strings, and removal of bytes that no view
//! refers to.
//!
//! The strings of all columns of a block are in the same few buffers, and every array of them has all of
//! those buffers. A program that writes such an array somewhere, with its buffers, would also write the
//! strings of other columns and rows. Freezing has gathered the strings column by column, so those of one
//! array are mostly consecutive. Then parts of the buffers are enough, with views relative to the parts.

use arrow_array::cast::AsArray;
use arrow_array::types::{ByteArrayType, ByteViewType};
use arrow_array::{Array, ArrayRef, GenericByteArray, GenericByteViewArray};
use arrow_buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::DataType;
use firn_base::sync::Arc;
use std::hint::select_unpredictable;
use std::mem::MaybeUninit;
use std::ops::Range;

use crate::heap::INLINE_BYTES;

/// The buffers may have this many times the bytes that views refer to.
const SLACK: usize = 2;

/// Bytes that are loaded at once: more than fit in a view.
const LOADED_BYTES: usize = 16;

const VIEW_BYTES: usize = size_of::<u128>();

/// Bytes that are copied at once: the first if no string is longer.
const SHORT_STEP: usize = 32;
const LONGEST_STEP: usize = 64;

/// Views of consecutive strings, in the buffer of the strings. Arrow's own cast does the same, value by
/// value, with an unpredictable branch for each length.
pub fn views_of<T, V>(strings: &GenericByteArray<T>) -> GenericByteViewArray<V>
where
    T: ByteArrayType<Offset = i32>,
    V: ByteViewType<Native = T::Native> + ?Sized,
{
    let bytes = strings.values();
    let view = |range: &[i32]| {
        let (start, end) = (range[0] as usize, range[1] as usize);
        let word = match bytes.get(start..start + LOADED_BYTES) {
            Some(word) => u128::from_le_bytes(word.try_into().expect("so many")),
            None => {
                let mut word = [0; LOADED_BYTES];
                let there = bytes.len().min(start + LOADED_BYTES) - start;
                word[..there].copy_from_slice(&bytes[start..start + there]);
                u128::from_le_bytes(word)
            }
        };
        let length = end - start;
        let is_long = length > INLINE_BYTES;
        let kept = if is_long { u128::from(u32::MAX) } else { (1 << (8 * length)) - 1 };
        let place = if is_long { (start as u128) << 96 } else { 0 };
        place | (word & kept) << 32 | length as u128
    };
    let views: Vec<u128> = strings.value_offsets().windows(2).map(view).collect();
    // SAFETY: the array's offsets rise and stay within its bytes. A short view holds its string, followed by
    // zeros; a long one has buffer 0, its offset there, and its first four bytes. What was valid there is
    // valid here.
    unsafe {
        GenericByteViewArray::new_unchecked(views.into(), vec![bytes.clone()], strings.nulls().cloned())
    }
}

/// The strings of views, one after another; `None` if they have more than `most` bytes together. There are
/// two passes, the first of which computes where each string begins. So no copy waits for the one before, and
/// there is no branch on the length, which is unpredictable.
pub fn strings_of<V, T>(array: &GenericByteViewArray<V>, most: i32) -> Option<GenericByteArray<T>>
where
    V: ByteViewType + ?Sized,
    T: ByteArrayType<Offset = i32, Native = V::Native>,
{
    let views = match array.nulls().filter(|nulls| nulls.null_count() > 0) {
        None => array.views().clone(),
        // The view of a NULL must not be followed.
        Some(nulls) => {
            let view = |(view, is_valid): (&u128, bool)| if is_valid { *view } else { 0 };
            array.views().iter().zip(nulls).map(view).collect()
        }
    };
    // Flags and codes of one letter are common, and then there is nothing to add up.
    let are_letters = views.iter().fold(true, |all, view| all & (*view as u32 == 1));
    let (offsets, bytes) = if are_letters && views.len() <= most as usize {
        let letters = views.iter().map(|view| (view >> 32) as u8).collect();
        ((0..=views.len() as i32).collect(), letters)
    } else {
        side_by_side(array, &views, most)?
    };
    let offsets = OffsetBuffer::new(offsets.into());
    // SAFETY: there is one more offset than views; they rise, from zero to the end of the bytes. Between two
    // are the bytes of a view, of an array whose strings are valid, or none.
    Some(unsafe { GenericByteArray::new_unchecked(offsets, bytes.into(), array.nulls().cloned()) })
}

/// The begin and end of the strings of views, and their bytes.
fn side_by_side<V: ByteViewType + ?Sized>(
    array: &GenericByteViewArray<V>,
    views: &ScalarBuffer<u128>,
    most: i32,
) -> Option<(Vec<i32>, Vec<u8>)> {
    let (mut end, mut longest) = (0, 0);
    let mut offsets = Vec::with_capacity(views.len() + 1);
    offsets.push(0);
    offsets.extend(views.iter().map(|view| {
        let length = *view as u32;
        longest = longest.max(length);
        end += u64::from(length);
        end as i32
    }));
    if end > most as u64 {
        return None;
    }
    let (end, longest) = (end as usize, longest as usize);
    let mut bytes: Vec<u8> = Vec::with_capacity(end + LONGEST_STEP);
    // What is copied beyond the end of a string is overwritten by the next one.
    let places = &mut bytes.spare_capacity_mut()[..end + LONGEST_STEP];
    if longest <= INLINE_BYTES {
        for (view, offset) in views.iter().zip(&offsets) {
            places[*offset as usize..][..VIEW_BYTES].write_copy_of_slice(&(view >> 32).to_le_bytes());
        }
    } else {
        let sources: Vec<&[u8]> =
            array.data_buffers().iter().map(|buffer| &**buffer).chain([&**views.inner()]).collect();
        match longest {
            ..=SHORT_STEP => copy_to::<SHORT_STEP>(&offsets, views, &sources, places),
            _ => copy_to::<LONGEST_STEP>(&offsets, views, &sources, places),
        }
    }
    // SAFETY: each string has been written from its offset to that of the next, and the last one ends at `end`.
    unsafe { bytes.set_len(end) };
    Some((offsets, bytes))
}

/// Copies the strings of views to their places, mostly in one step each. The last source buffer is the views
/// themselves.
fn copy_to<const STEP: usize>(
    places: &[i32],
    views: &[u128],
    sources: &[&[u8]],
    bytes: &mut [MaybeUninit<u8>],
) {
    let in_views = sources.len() - 1;
    for (at, (view, place)) in views.iter().zip(places).enumerate() {
        let ((length, buffer, offset), place) = (parts(*view), *place as usize);
        let (length, is_long) = (length as usize, length > INLINE_BYTES as u64);
        let buffer = select_unpredictable(is_long, buffer, in_views);
        let offset = select_unpredictable(is_long, offset as usize, at * VIEW_BYTES + size_of::<u32>());
        let source = &sources[buffer][offset..];
        match source.first_chunk::<STEP>() {
            Some(step) if length <= STEP => bytes[place..][..STEP].write_copy_of_slice(step),
            _ => bytes[place..][..length].write_copy_of_slice(&source[..length]),
        };
    }
}

/// The same strings, if it is an array of views, with buffers that have hardly anything else. They are copied
/// only if they are far apart.
pub fn tightened(array: &ArrayRef) -> ArrayRef {
    match array.data_type() {
        DataType::Utf8View => Arc::new(tight(array.as_string_view())),
        DataType::BinaryView => Arc::new(tight(array.as_binary_view())),
        _ => array.clone(),
    }
}

fn tight<T: ByteViewType + ?Sized>(array: &GenericByteViewArray<T>) -> GenericByteViewArray<T> {
    let (views, there) = (array.views(), array.data_buffers());
    if there.is_empty() {
        return array.clone();
    }
    let long = |view: &u128| if *view as u32 as usize > INLINE_BYTES { *view as u32 as usize } else { 0 };
    let led_to = views.iter().map(long).sum::<usize>();
    let holds_little_else = led_to > 0 && there.iter().map(Buffer::len).sum::<usize>() <= SLACK * led_to;
    // The view of a NULL is checked below: it must not be returned if it refers to nothing.
    if holds_little_else && array.null_count() == 0 {
        return array.clone();
    }
    let (views, buffers) = if led_to == 0 {
        (views.clone(), Vec::new())
    } else {
        let Some(stretches) = Stretches::of(views, there) else { return copied(array) };
        if holds_little_else {
            return array.clone();
        }
        if stretches.each.iter().map(Range::len).sum::<usize>() > SLACK * led_to {
            return copied(array);
        }
        (stretches.views(views), stretches.buffers(there))
    };
    // SAFETY: only views of long strings have changed. Each of them referred to a string of its length within
    // the range of its buffer, and refers to the same bytes in the part of the buffer now.
    unsafe { GenericByteViewArray::new_unchecked(views, buffers, array.nulls().cloned()) }
}

fn copied<T: ByteViewType + ?Sized>(array: &GenericByteViewArray<T>) -> GenericByteViewArray<T> {
    match array.null_count() {
        0 => array.gc(),
        // That would follow the view of a NULL, which may refer to anything.
        _ => array.iter().collect(),
    }
}

/// The ranges of the long strings of an array: the part of each buffer that views refer to; empty if none
/// does.
struct Stretches {
    each: Vec<Range<usize>>,
}

impl Stretches {
    /// `None` if a view refers to no buffer, as one of a NULL may.
    fn of(views: &[u128], buffers: &[Buffer]) -> Option<Stretches> {
        // Short strings are counted for a buffer behind the last one, so that there is no branch on the
        // length, which is unpredictable. Views that refer to no buffer are counted for one behind that.
        let (short, none) = (buffers.len(), buffers.len() + 1);
        let mut each = vec![(u64::MAX, 0); none + 1];
        for view in views {
            let (length, buffer, offset) = parts(*view);
            let is_long = length > INLINE_BYTES as u64;
            let at = if buffer < short { buffer } else { none };
            let (start, end) = &mut each[if is_long { at } else { short }];
            *start = offset.min(*start);
            *end = (offset + length).max(*end);
        }
        let fits = |(at, buffer): (usize, &Buffer)| each[at].1 <= buffer.len() as u64;
        if each[none].1 > 0 || !buffers.iter().enumerate().all(fits) {
            return None;
        }
        let range = |(start, end): &(u64, u64)| *start.min(end) as usize..*end as usize;
        Some(Stretches { each: each[..short].iter().map(range).collect() })
    }

    /// Those parts of the buffers.
    fn buffers(&self, buffers: &[Buffer]) -> Vec<Buffer> {
        let used = buffers.iter().zip(&self.each).filter(|(_, stretch)| !stretch.is_empty());
        used.map(|(buffer, stretch)| buffer.slice_with_length(stretch.start, stretch.len())).collect()
    }

    /// The views, referring to the same strings in the parts.
    fn views(&self, views: &[u128]) -> ScalarBuffer<u128> {
        let mut number = 0;
        // What has to be subtracted from a view of each buffer.
        let mut less: Vec<u128> = Vec::with_capacity(self.each.len() + 1);
        for (before, stretch) in self.each.iter().enumerate() {
            less.push((stretch.start as u128) << 96 | ((before - number) as u128) << 64);
            number += usize::from(!stretch.is_empty());
        }
        less.push(0);
        let moved = views.iter().map(|view| {
            let (length, buffer, _) = parts(*view);
            view - less[if length > INLINE_BYTES as u64 { buffer } else { self.each.len() }]
        });
        ScalarBuffer::from(moved.collect::<Vec<u128>>())
    }
}

/// The length of a string, and its buffer and its offset there if it is a long one.
#[inline]
fn parts(view: u128) -> (u64, usize, u64) {
    (u64::from(view as u32), (view >> 64) as u32 as usize, (view >> 96) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::types::Utf8Type;
    use arrow_array::{BinaryArray, BinaryViewArray, StringArray, StringViewArray};
    use firn_base::random::Random;

    fn buffer_bytes(array: &ArrayRef) -> usize {
        array.as_string_view().data_buffers().iter().map(Buffer::len).sum()
    }

    fn strings(count: usize) -> StringViewArray {
        let string = |at: usize| match at % 4 {
            0 => None,
            1 => Some("short".to_owned()),
            _ => Some(format!("a string that does not lie in its view {at}")),
        };
        (0..count).map(string).collect()
    }

    #[test]
    fn strings_side_by_side_are_seen_where_they_are() {
        let mut random = Random::seeded(2);
        for round in 0..if cfg!(miri) { 8 } else { 400 } {
            let string = |random: &mut Random| {
                let length = random.uniform(0, if round % 2 == 0 { 14 } else { 40 }) as usize;
                let string: String = "äb\u{0}cdefgh".chars().cycle().skip(length % 5).take(length).collect();
                (random.uniform(0, 9) > 0).then_some(string)
            };
            let rows = random.uniform(0, 60) as usize;
            let all: StringArray = (0..rows).map(|_| string(&mut random)).collect();
            let from = random.uniform(0, rows as i64) as usize;
            let part = all.slice(from, random.uniform(0, (rows - from) as i64) as usize);
            let views: StringViewArray = views_of(&part);
            views.to_data().validate_full().unwrap();
            assert!(views.iter().eq(part.iter()), "{part:?}");
            let bytes: BinaryArray = part.iter().map(|string| string.map(str::as_bytes)).collect();
            let views: BinaryViewArray = views_of(&bytes);
            views.to_data().validate_full().unwrap();
            assert!(views.iter().eq(bytes.iter()));
        }
    }

    #[test]
    fn strings_come_side_by_side() {
        let mut random = Random::seeded(3);
        for round in 0..if cfg!(miri) { 8 } else { 400 } {
            let most = [1, 12, 13, 32, 33, 64, 65, 200][round % 8];
            let string = |random: &mut Random| {
                let length = random.uniform(0, most) as usize;
                let string: String = "äb\u{0}cdefgh".chars().cycle().skip(length % 5).take(length).collect();
                (random.uniform(0, 9) > 0 || round % 3 == 0).then_some(string)
            };
            let rows = random.uniform(0, 60) as usize;
            let all: StringViewArray = (0..rows).map(|_| string(&mut random)).collect();
            let from = random.uniform(0, rows as i64) as usize;
            let part = all.slice(from, random.uniform(0, (rows - from) as i64) as usize);
            let bytes = part.iter().flatten().map(str::len).sum::<usize>() as i32;
            assert!(bytes == 0 || strings_of::<_, Utf8Type>(&part, bytes - 1).is_none());
            let strings: StringArray = strings_of(&part, bytes).unwrap();
            strings.to_data().validate_full().unwrap();
            assert!(strings.iter().eq(part.iter()), "{part:?}");
        }
    }

    #[test]
    fn slices_lead_to_a_part_of_their_buffer_uncopied() {
        let all: ArrayRef = Arc::new(strings(1000));
        let before = all.as_string_view().data_buffers()[0].as_ptr_range();
        let part = all.slice(400, 100);
        let tight = tightened(&part);
        assert_eq!(*tight, *part);
        assert!(buffer_bytes(&tight) < 3000, "{}", buffer_bytes(&tight));
        assert!(before.contains(&tight.as_string_view().data_buffers()[0].as_ptr()));
        tight.to_data().validate_full().unwrap();
        // An array whose buffers have little else is not changed.
        assert_eq!(
            tightened(&tight).as_string_view().views().as_ptr(),
            tight.as_string_view().views().as_ptr()
        );
    }

    #[test]
    fn short_strings_need_no_buffer() {
        let all: ArrayRef = Arc::new(strings(3));
        let tight = tightened(&all.slice(0, 2));
        assert_eq!((*tight == *all.slice(0, 2), buffer_bytes(&tight)), (true, 0));
    }

    #[test]
    fn any_array_keeps_its_strings() {
        let mut random = Random::seeded(1);
        for _ in 0..if cfg!(miri) { 10 } else { 300 } {
            let buffers: Vec<Buffer> =
                (0..random.uniform(1, 3)).map(|at| Buffer::from_vec(vec![b'a' + at as u8; 5000])).collect();
            let mut view = |_| {
                let length = random.uniform(0, 40) as u32;
                let buffer = random.uniform(0, buffers.len() as i64 - 1) as usize;
                let offset = random.uniform(0, 4960) as u32;
                let bytes = &buffers[buffer][offset as usize..][..length as usize];
                arrow_array::builder::make_view(bytes, buffer as u32, offset)
            };
            let views: Vec<u128> = (0..200).map(&mut view).collect();
            let array = BinaryViewArray::try_new(views.into(), buffers.clone(), None).unwrap();
            let array: ArrayRef = Arc::new(array);
            let part = array.slice(random.uniform(0, 100) as usize, random.uniform(0, 100) as usize);
            let tight = tightened(&part);
            tight.to_data().validate_full().unwrap();
            assert_eq!(*tight, *part);
        }
    }

    #[test]
    fn what_a_null_says_is_not_followed() {
        let nulls = Some(vec![false, true].into());
        let wild = 100_u128 | 7 << 64 | 9 << 96;
        // SAFETY: the view of a NULL is not followed.
        let array = unsafe {
            StringViewArray::new_unchecked(vec![wild, 0].into(), vec![Buffer::from(b"x" as &[u8])], nulls)
        };
        let array: ArrayRef = Arc::new(array);
        let tight = tightened(&array);
        assert_eq!((tight.is_null(0), tight.as_string_view().value(1)), (true, ""));
        let strings: StringArray = strings_of(array.as_string_view(), 100).unwrap();
        assert_eq!((strings.is_null(0), strings.value(1), strings.values().len()), (true, "", 0));
        tight.to_data().validate_full().unwrap();
    }
}
