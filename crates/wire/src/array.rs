//! Arrays on their way out, in PostgreSQL's two formats.
//!
//! ```text
//! text     {1,NULL,"a b"}   {{1,2},{3,4}}
//! binary   dimensions:i32  has_nulls:i32  element type:u32
//!          then per dimension  length:i32  first index:i32
//!          then per element    length:i32 (-1 for NULL)  bytes
//! ```
//!
//! An array of arrays is one array of two dimensions; the inner ones must be equally long.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;
use firn_base::{Error, Result, SqlState, SqlType};

use crate::decode::Format;
use crate::encode::{self, Output};
use crate::rows::{CellWriter, NULL, Reader};

/// The arrays of a column, taken apart before the first byte is sent: one that PostgreSQL's formats
/// cannot show is an error, which a message that has begun has no place for.
pub(crate) struct Arrays {
    element: SqlType,
    /// `None` for NULL.
    cells: Vec<Option<Cell>>,
}

struct Cell {
    /// The length of each dimension, outermost first; none if there are no elements.
    lengths: Vec<usize>,
    /// The elements, innermost dimension fastest.
    elements: Reader,
}

impl Arrays {
    /// Takes the cells in some rows of a column of lists apart.
    pub(crate) fn new(column: &ArrayRef, element: SqlType, rows: std::ops::Range<usize>) -> Result<Arrays> {
        let lists = column.as_list_opt::<i32>().ok_or_else(|| {
            Error::new(SqlState::INTERNAL_ERROR, format!("an array came as {}", column.data_type()))
        })?;
        // Rows before the first one that is wanted have been sent already.
        let skipped = (0..rows.start).map(|_| Ok(None));
        let wanted = rows.map(|row| match lists.is_null(row) {
            true => Ok(None),
            false => Cell::new(lists.value(row), element).map(Some),
        });
        Ok(Arrays { element, cells: skipped.chain(wanted).collect::<Result<_>>()? })
    }

    pub(crate) fn write(&self, row: usize, format: Format, writer: &mut CellWriter, output: &mut Output) {
        match (&self.cells[row], format) {
            (None, _) => output.extend_from_slice(&NULL),
            (Some(cell), Format::Text) => encode::length_prefixed(output, 0, |output| {
                cell.write_text(writer, output);
            }),
            (Some(cell), Format::Binary) => encode::length_prefixed(output, 0, |output| {
                cell.write_binary(self.element, writer, output);
            }),
        }
    }
}

impl Cell {
    fn new(list: ArrayRef, element: SqlType) -> Result<Cell> {
        let mut lengths = vec![list.len()];
        let mut elements = list;
        while let DataType::List(_) = elements.data_type() {
            let lists = elements.as_list::<i32>();
            let offsets = lists.value_offsets();
            let length = offsets.windows(2).next().map_or(0, |window| window[1] - window[0]);
            let even = offsets.windows(2).all(|window| window[1] - window[0] == length);
            if !even || lists.null_count() > 0 {
                return Err(Error::new(
                    SqlState::new("2202E"),
                    "multidimensional arrays must have sub-arrays with matching dimensions",
                )
                .with_hint("Use array_to_string on the inner arrays."));
            }
            lengths.push(length as usize);
            let (first, last) = (offsets[0] as usize, offsets[offsets.len() - 1] as usize);
            elements = lists.values().slice(first, last - first);
        }
        if elements.is_empty() {
            lengths.clear();
        }
        Ok(Cell { lengths, elements: Reader::new(&elements, element)? })
    }

    fn write_binary(&self, element: SqlType, writer: &mut CellWriter, output: &mut Output) {
        let mut word = |word: i32| output.extend_from_slice(&word.to_be_bytes());
        word(self.lengths.len() as i32);
        word(i32::from(self.elements.has_nulls()));
        word(element.oid() as i32);
        for length in &self.lengths {
            word(*length as i32);
            word(1);
        }
        for index in 0..self.elements.len() {
            self.elements.write(index, Format::Binary, writer, output);
        }
    }

    fn write_text(&self, writer: &mut CellWriter, output: &mut Output) {
        if self.lengths.is_empty() {
            output.extend_from_slice(b"{}");
            return;
        }
        // How many elements a brace of each dimension encloses.
        let mut enclosed = self.lengths.clone();
        for dimension in (1..enclosed.len()).rev() {
            enclosed[dimension - 1] *= enclosed[dimension];
        }
        let braces =
            |index: usize| enclosed.iter().filter(move |count| index.is_multiple_of(**count)).count();
        let mut shown = Output::new();
        for index in 0..self.elements.len() {
            if index > 0 {
                output.push(b',');
            }
            output.extend(std::iter::repeat_n(b'{', braces(index)));
            shown.clear();
            self.elements.write(index, Format::Text, writer, &mut shown);
            match shown.split_first_chunk::<4>() {
                Some((length, _)) if *length == NULL => output.extend_from_slice(b"NULL"),
                Some((_, text)) => write_element(text, output),
                None => unreachable!("a cell begins with its length"),
            }
            output.extend(std::iter::repeat_n(b'}', braces(index + 1)));
        }
    }
}

/// An element, in quotes if it would be taken for something else without.
fn write_element(text: &[u8], output: &mut Output) {
    // What C calls a space; Rust leaves the vertical tab out.
    let is_special = |byte: &u8| {
        matches!(byte, b'{' | b'}' | b',' | b'"' | b'\\' | b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
    };
    if !text.is_empty() && !text.iter().any(is_special) && !text.eq_ignore_ascii_case(b"null") {
        output.extend_from_slice(text);
        return;
    }
    output.push(b'"');
    for byte in text {
        if matches!(byte, b'"' | b'\\') {
            output.push(b'\\');
        }
        output.push(*byte);
    }
    output.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::builder::{Int32Builder, ListBuilder, StringBuilder};
    use firn_base::TimeZoneSetting;
    use firn_base::sync::Arc;

    fn written(column: ArrayRef, element: SqlType, format: Format) -> Result<Vec<Vec<u8>>> {
        let arrays = Arrays::new(&column, element, 0..column.len())?;
        let mut writer = CellWriter::new(TimeZoneSetting::UTC);
        let cell = |row| {
            let mut output = Output::new();
            arrays.write(row, format, &mut writer, &mut output);
            output
        };
        Ok((0..column.len()).map(cell).collect())
    }

    /// The text of each cell, without its length.
    fn texts(column: ArrayRef, element: SqlType) -> Vec<String> {
        let cells = written(column, element, Format::Text).unwrap();
        cells.into_iter().map(|cell| String::from_utf8(cell[4..].to_vec()).unwrap()).collect()
    }

    #[test]
    fn elements_that_could_be_mistaken_stand_in_quotes() {
        let mut builder = ListBuilder::new(StringBuilder::new());
        for text in ["plain", "", "a b", "a,b", "{", "\"", "\\", "Null", "nulls", "雪", "\u{b}"] {
            builder.values().append_value(text);
        }
        builder.values().append_null();
        builder.append(true);
        builder.append(true);
        let expected =
            "{plain,\"\",\"a b\",\"a,b\",\"{\",\"\\\"\",\"\\\\\",\"Null\",nulls,雪,\"\u{b}\",NULL}";
        assert_eq!(texts(Arc::new(builder.finish()), SqlType::Text), [expected, "{}"]);
    }

    #[test]
    fn the_binary_format_has_a_header_and_then_cells() {
        let mut builder = ListBuilder::new(Int32Builder::new());
        builder.values().append_value(258);
        builder.values().append_null();
        builder.append(true);
        builder.append(true);
        builder.append_null();
        // Sent as bigint, which the element type may say of an array of integers.
        let cells = written(Arc::new(builder.finish()), SqlType::BigInt, Format::Binary).unwrap();
        let word = |word: i32| word.to_be_bytes();
        let full =
            [word(1), word(1), word(20), word(2), word(1), word(8), word(0), word(258), word(-1)].concat();
        assert_eq!(cells[0], [&word(full.len() as i32)[..], &full].concat());
        assert_eq!(cells[1], [word(12), word(0), word(0), word(20)].concat());
        assert_eq!(cells[2], word(-1));
    }

    fn nested(rows: &[&[&[i32]]]) -> ArrayRef {
        let mut builder = ListBuilder::new(ListBuilder::new(Int32Builder::new()));
        for row in rows {
            for inner in *row {
                builder.values().values().append_slice(inner);
                builder.values().append(true);
            }
            builder.append(true);
        }
        Arc::new(builder.finish())
    }

    #[test]
    fn arrays_of_arrays_are_arrays_of_two_dimensions() {
        let even = nested(&[&[&[1, 2, 3], &[4, 5, 6]], &[&[7]], &[&[], &[]]]);
        assert_eq!(texts(even.clone(), SqlType::Integer), ["{{1,2,3},{4,5,6}}", "{{7}}", "{}"]);
        let binary = written(even, SqlType::Integer, Format::Binary).unwrap();
        let header: Vec<i32> =
            binary[0][4..32].chunks(4).map(|word| i32::from_be_bytes(word.try_into().unwrap())).collect();
        assert_eq!(header, [2, 0, 23, 2, 1, 3, 1]);
        let uneven = nested(&[&[&[1, 2], &[3]]]);
        let error = written(uneven, SqlType::Integer, Format::Text).unwrap_err();
        assert_eq!(error.state().as_str(), "2202E");
    }
}
