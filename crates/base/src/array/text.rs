//! Arrays as text.
//!
//! ```text
//! {1,NULL,"a b"}   {{1,2},{3,4}}   [0:1]={1,2}
//! ```

use super::{
    ArrayValue, Dimension, MAX_DIMENSIONS, are_in_bounds, bound_is_too_large, count, too_many_dimensions,
};
use crate::data_type::Type;
use crate::error::{Error, Result, SqlState};
use crate::text;
use crate::text_style::TextStyle;
use crate::types::SqlType;
use crate::value::Value;
use std::fmt::Write;
use std::iter::Peekable;
use std::str::Chars;

/// Reads an array of `element`; 22P02 if it is not valid.
pub fn parse_any(text: &str, element: Type, style: &TextStyle) -> Result<ArrayValue> {
    let ArrayText { dimensions, elements } = ArrayText::read(text)?;
    let elements = elements.into_iter().map(|element_text| match element_text {
        Some(element_text) => text::parse_any(&element_text, element, style),
        None => Ok(Value::Null),
    });
    Ok(ArrayValue::new(dimensions, elements.collect::<Result<_>>()?))
}

/// An array's text, split into its parts.
#[derive(PartialEq, Debug)]
pub struct ArrayText {
    /// Length and lower bound of each dimension.
    pub dimensions: Vec<Dimension>,
    /// The elements as text, without quotes; `None` for NULL.
    pub elements: Vec<Option<String>>,
}

impl ArrayText {
    /// Splits text; 22P02 if it is not an array, 2202E and 54000 for invalid bounds.
    pub fn read(text: &str) -> Result<ArrayText> {
        let mut reader = Reader {
            text,
            rest: text.chars().peekable(),
            lengths: Vec::new(),
            depth: None,
            elements: Vec::new(),
        };
        let bounds = reader.bounds()?;
        reader.skip_blanks();
        if reader.rest.next() != Some('{') {
            let detail = match bounds.is_empty() {
                true => "Array value must start with \"{\" or dimension information.",
                false => "Array contents must start with \"{\".",
            };
            return Err(malformed(text, detail));
        }
        reader.items(1)?;
        reader.skip_blanks();
        if reader.rest.next().is_some() {
            return Err(malformed(text, "Junk after closing right brace."));
        }
        let found = |(length, place): (&Option<u32>, usize)| Dimension {
            length: length.expect("each level has ended"),
            lower: bounds.get(place).map_or(1, |bound| bound.lower),
        };
        let dimensions: Vec<Dimension> = reader.lengths.iter().zip(0..).map(found).collect();
        if !bounds.is_empty() && bounds != dimensions {
            return Err(malformed(text, "Specified array dimensions do not match array contents."));
        }
        debug_assert_eq!(count(&dimensions), Some(reader.elements.len()));
        Ok(ArrayText { dimensions, elements: reader.elements })
    }
}

struct Reader<'a> {
    text: &'a str,
    rest: Peekable<Chars<'a>>,
    /// The length of each level of braces that has ended once.
    lengths: Vec<Option<u32>>,
    /// The level of the elements, once one was found.
    depth: Option<usize>,
    elements: Vec<Option<String>>,
}

impl Reader<'_> {
    /// `[lower:upper]` or `[upper]` for each dimension, and `=`; nothing if there is none.
    fn bounds(&mut self) -> Result<Vec<Dimension>> {
        let mut bounds = Vec::new();
        loop {
            self.skip_blanks();
            if self.rest.next_if_eq(&'[').is_none() {
                break;
            }
            if bounds.len() == MAX_DIMENSIONS {
                return Err(too_many_dimensions(MAX_DIMENSIONS + 1));
            }
            let first = self.bound("\"[\" must introduce explicitly-specified array dimensions.")?;
            let (lower, upper) = match self.rest.next_if_eq(&':') {
                Some(_) => (first, self.bound("Missing array dimension value.")?),
                None => (1, first),
            };
            if self.rest.next() != Some(']') {
                return Err(malformed(self.text, "Missing \"]\" after array dimensions."));
            }
            let length =
                u32::try_from(i64::from(upper) - i64::from(lower) + 1).ok().filter(|length| *length > 0);
            let Some(length) = length else {
                return Err(Error::new(
                    SqlState::ARRAY_SUBSCRIPT_ERROR,
                    "upper bound cannot be less than lower bound",
                ));
            };
            bounds.push(Dimension { length, lower });
            if !are_in_bounds(&bounds) {
                return Err(bound_is_too_large(lower));
            }
        }
        if !bounds.is_empty() && self.rest.next() != Some('=') {
            return Err(malformed(self.text, "Missing \"=\" after array dimensions."));
        }
        Ok(bounds)
    }

    fn bound(&mut self, missing: &str) -> Result<i32> {
        let mut digits = String::new();
        digits.extend(self.rest.next_if(|c| matches!(c, '+' | '-')));
        while let Some(digit) = self.rest.next_if(char::is_ascii_digit) {
            digits.push(digit);
        }
        if !digits.ends_with(|c: char| c.is_ascii_digit()) {
            return Err(malformed(self.text, missing));
        }
        digits.parse().map_err(|_| {
            Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "array bound is out of integer range")
        })
    }

    /// The text between two braces, and the closing one.
    fn items(&mut self, level: usize) -> Result<()> {
        if level > MAX_DIMENSIONS {
            return Err(too_many_dimensions(level));
        }
        if self.lengths.len() < level {
            self.lengths.push(None);
        }
        let mut count = 0;
        loop {
            self.skip_blanks();
            match self.peek()? {
                '{' if self.depth.is_some_and(|depth| depth <= level) => return Err(self.unexpected('{')),
                '{' => {
                    self.rest.next();
                    self.items(level + 1)?;
                }
                '}' if count == 0 && level == 1 => {
                    self.rest.next();
                    self.lengths.clear();
                    return Ok(());
                }
                character @ ('}' | ',') => return Err(self.unexpected(character)),
                _ => {
                    let element = self.element()?;
                    if *self.depth.get_or_insert(level) != level {
                        return Err(malformed(self.text, "Unexpected array element."));
                    }
                    self.elements.push(element);
                }
            }
            count += 1;
            self.skip_blanks();
            match self.character()? {
                ',' => {}
                '}' => break,
                '{' => return Err(self.unexpected('{')),
                _ => return Err(malformed(self.text, "Unexpected array element.")),
            }
        }
        match self.lengths[level - 1] {
            Some(length) if length != count => Err(malformed(
                self.text,
                "Multidimensional arrays must have sub-arrays with matching dimensions.",
            )),
            _ => {
                self.lengths[level - 1] = Some(count);
                Ok(())
            }
        }
    }

    /// An element; `None` for NULL.
    fn element(&mut self) -> Result<Option<String>> {
        let mut element = String::new();
        if self.rest.next_if_eq(&'"').is_some() {
            loop {
                match self.character()? {
                    '"' => return Ok(Some(element)),
                    '\\' => element.push(self.character()?),
                    other => element.push(other),
                }
            }
        }
        // Trailing blanks are removed, except after a backslash.
        let (mut kept, mut escaped) = (0, false);
        loop {
            match self.peek()? {
                ',' | '}' => break,
                '{' => return Err(self.unexpected('{')),
                '"' => return Err(malformed(self.text, "Unexpected array element.")),
                '\\' => {
                    self.rest.next();
                    escaped = true;
                    element.push(self.character()?);
                    kept = element.len();
                }
                other => {
                    self.rest.next();
                    element.push(other);
                    if !is_blank(other) {
                        kept = element.len();
                    }
                }
            }
        }
        element.truncate(kept);
        Ok(if !escaped && element.eq_ignore_ascii_case("null") { None } else { Some(element) })
    }

    fn skip_blanks(&mut self) {
        while self.rest.next_if(|character| is_blank(*character)).is_some() {}
    }

    fn character(&mut self) -> Result<char> {
        self.rest.next().ok_or_else(|| malformed(self.text, "Unexpected end of input."))
    }

    fn peek(&mut self) -> Result<char> {
        self.rest.peek().copied().ok_or_else(|| malformed(self.text, "Unexpected end of input."))
    }

    #[cold]
    fn unexpected(&self, character: char) -> Error {
        malformed(self.text, &format!("Unexpected \"{character}\" character."))
    }
}

/// The spaces of C; Rust does not include the vertical tab.
fn is_blank(character: char) -> bool {
    character.is_ascii_whitespace() || character == '\u{b}'
}

#[cold]
fn malformed(text: &str, detail: &str) -> Error {
    Error::new(SqlState::INVALID_TEXT_REPRESENTATION, format!("malformed array literal: \"{text}\""))
        .with_detail(detail)
}

/// Appends an array as text.
pub fn write(array: &ArrayValue, element: SqlType, style: &TextStyle, out: &mut String) {
    write_with(array, out, |value, out| text::write(value, element, style, out));
}

/// Appends an array of `element` as text.
pub fn write_any(array: &ArrayValue, element: Type, style: &TextStyle, out: &mut String) {
    write_with(array, out, |value, out| text::write_any(value, element, style, out));
}

fn write_with(array: &ArrayValue, out: &mut String, write: impl Fn(&Value, &mut String)) {
    let dimensions = array.dimensions();
    if dimensions.is_empty() {
        out.push_str("{}");
        return;
    }
    if dimensions.iter().any(|dimension| dimension.lower != 1) {
        for dimension in dimensions {
            write!(out, "[{}:{}]", dimension.lower, dimension.upper()).expect("a write to a string succeeds");
        }
        out.push('=');
    }
    let mut written = String::new();
    for (position, value) in array.elements().iter().enumerate() {
        // A brace for each level that begins or ends here.
        let mut size = 1;
        let edges = dimensions.iter().rev().filter(|dimension| {
            size *= dimension.length as usize;
            position % size == 0
        });
        let begins = edges.count();
        if position > 0 {
            out.extend(std::iter::repeat_n('}', begins));
            out.push(',');
        }
        out.extend(std::iter::repeat_n('{', begins));
        if value.is_null() {
            out.push_str("NULL");
            continue;
        }
        written.clear();
        write(value, &mut written);
        write_element(&written, out);
    }
    out.extend(std::iter::repeat_n('}', dimensions.len()));
}

/// Appends an element, in quotes if it would otherwise be read differently.
fn write_element(text: &str, out: &mut String) {
    let is_special = |c: char| is_blank(c) || matches!(c, '{' | '}' | ',' | '"' | '\\');
    if !text.is_empty() && !text.contains(is_special) && !text.eq_ignore_ascii_case("null") {
        out.push_str(text);
        return;
    }
    out.push('"');
    for character in text.chars() {
        if matches!(character, '"' | '\\') {
            out.push('\\');
        }
        out.push(character);
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data_type::TypeId;

    fn shown(text: &str) -> Result<String> {
        let array = parse_any(text, Type::new(TypeId::TEXT), &TextStyle::DEFAULT)?;
        let mut out = String::new();
        write_any(&array, Type::new(TypeId::TEXT), &TextStyle::DEFAULT, &mut out);
        Ok(out)
    }

    #[test]
    fn arrays_are_read_from_text_as_postgres_reads_them() {
        for (text, expected) in [
            ("{1, 2,3}", "{1,2,3}"),
            ("{a,\"b, \\\"c\",NULL, \"NULL\"}", "{a,\"b, \\\"c\",NULL,\"NULL\"}"),
            (" { } ", "{}"),
            ("{\"\"}", "{\"\"}"),
            ("{ a b , c }", "{\"a b\",c}"),
            ("{N\\ULL,null}", "{\"NULL\",NULL}"),
            ("{a\\ ,\\\\}", "{\"a \",\"\\\\\"}"),
            ("{снег}", "{снег}"),
            ("{{1},{2}}", "{{1},{2}}"),
            ("{ {1, 2} , {3,NULL} }", "{{1,2},{3,NULL}}"),
            ("{{{{{{1}}}}}}", "{{{{{{1}}}}}}"),
            ("{{{1,2},{3,4}},{{5,6},{7,8}}}", "{{{1,2},{3,4}},{{5,6},{7,8}}}"),
            ("[0:1]={1,2}", "[0:1]={1,2}"),
            ("[-1:0] [2]= {{1,2},{3,4}}", "[-1:0][1:2]={{1,2},{3,4}}"),
            ("[+1:2]={1,2}", "{1,2}"),
            ("[2]={1,2}", "{1,2}"),
        ] {
            assert_eq!(
                shown(text).unwrap_or_else(|error| panic!("{text}: {}", error.message())),
                expected,
                "{text}"
            );
        }
    }

    /// The details are those of PostgreSQL 15.
    #[test]
    fn text_that_is_no_array_is_refused_as_postgres_refuses_it() {
        for (text, detail) in [
            ("", "Array value must start with \"{\" or dimension information."),
            ("1,2", "Array value must start with \"{\" or dimension information."),
            ("{1", "Unexpected end of input."),
            ("{a\\", "Unexpected end of input."),
            ("{\"a", "Unexpected end of input."),
            ("{1,}", "Unexpected \"}\" character."),
            ("{,1}", "Unexpected \",\" character."),
            ("{1}2}", "Junk after closing right brace."),
            ("{\"a\"b}", "Unexpected array element."),
            ("{a\"b\"}", "Unexpected array element."),
            ("{{},{}}", "Unexpected \"}\" character."),
            ("{{1,2},{3}}", "Multidimensional arrays must have sub-arrays with matching dimensions."),
            ("{{1},2}", "Unexpected array element."),
            ("{{1,2},NULL}", "Unexpected array element."),
            ("{1,{2}}", "Unexpected \"{\" character."),
            ("{{1}{2}}", "Unexpected \"{\" character."),
            ("{{1},}", "Unexpected \"}\" character."),
            ("[0:2]={1,2}", "Specified array dimensions do not match array contents."),
            ("[1:2]={}", "Specified array dimensions do not match array contents."),
            ("[1:2]{1,2}", "Missing \"=\" after array dimensions."),
            ("[1:2={1,2}", "Missing \"]\" after array dimensions."),
            ("[a:2]={1,2}", "\"[\" must introduce explicitly-specified array dimensions."),
            ("[", "\"[\" must introduce explicitly-specified array dimensions."),
        ] {
            let error = ArrayText::read(text).expect_err(text);
            assert_eq!(error.state(), SqlState::INVALID_TEXT_REPRESENTATION, "{text}");
            assert_eq!(error.detail(), Some(detail), "{text}");
        }
        let state = |text: &str| ArrayText::read(text).expect_err(text).state();
        assert_eq!(state("{{{{{{{1}}}}}}}"), SqlState::PROGRAM_LIMIT_EXCEEDED);
        assert_eq!(state("[2147483647:2147483647]={1}"), SqlState::PROGRAM_LIMIT_EXCEEDED);
        assert_eq!(state("[1:0]={}"), SqlState::ARRAY_SUBSCRIPT_ERROR);
    }
}
