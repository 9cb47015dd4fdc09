//! `to_char` of numbers and `to_number`: templates of numbers, taken apart, filled in and read with.
//!
//! A template is a list of patterns and literal characters. What its patterns say of the whole number (how many digits it
//! has before and behind the point, where a sign stands) is collected first; then the patterns are gone through once more, with
//! the digits of the number. The names of the C locale are used: `.` and `,`, no sign of a currency.

mod digits;
mod read;
mod write;

use crate::kernel::{Call, Text};
use crate::registry::RegistryBuilder;
use digits::Digits;
use firn_base::numeric::Numeric;
use firn_base::{Error, Result, SqlState};

/// Adds the family.
pub fn register(builder: &mut RegistryBuilder) {
    builder.scalar::<(i32, &str), _>("to_char(int4,text)", |call, (value, template)| {
        fill(call, template, |template| template.of_int4(value))
    });
    builder.scalar::<(i64, &str), _>("to_char(int8,text)", |call, (value, template)| {
        fill(call, template, |template| template.of_int8(value))
    });
    builder.scalar::<(f32, &str), _>("to_char(float4,text)", |call, (value, template)| {
        fill(call, template, |template| Ok(template.of_float4(value)))
    });
    builder.scalar::<(f64, &str), _>("to_char(float8,text)", |call, (value, template)| {
        fill(call, template, |template| Ok(template.of_float8(value)))
    });
    builder.scalar::<(Numeric, &str), _>("to_char(numeric,text)", |call, (value, template)| {
        fill(call, template, |template| template.of_numeric(value))
    });
    builder.scalar::<(&str, &str), _>("to_number(text,text)", |call, (text, template)| {
        if template.is_empty() {
            return Ok(None);
        }
        kept(call, template)?.read(text).map(Some)
    });
}

/// Appends a number in the form of a template; `digits` makes the text of the number for it.
fn fill(
    call: &mut Call<'_>,
    template: &str,
    digits: impl FnOnce(&mut Template) -> Result<Digits>,
) -> Result<Text> {
    if template.is_empty() {
        return Ok(Text);
    }
    let mut template = kept(call, template)?.clone();
    let digits = digits(&mut template)?;
    call.text.push_str(&template.write(digits)?);
    Ok(Text)
}

/// The template, which is taken apart only if it differs from that of the call before.
fn kept<'a>(call: &'a mut Call<'_>, text: &str) -> Result<&'a Template> {
    let kept = call.local.get::<Option<(String, Template)>>(|| None);
    if kept.as_ref().is_none_or(|(of, _)| of != text) {
        *kept = Some((text.to_owned(), Template::parse(text)?));
    }
    Ok(&kept.as_ref().expect("it has just been put there").1)
}

/// A pattern.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pattern {
    Comma,
    Point,
    Zero,
    Nine,
    Blank,
    LocalePoint,
    Exponent,
    FillMode,
    Group,
    Currency,
    Minus,
    Plus,
    Brackets,
    Roman,
    SmallRoman,
    Sign,
    Spelled,
    LocaleSign,
    Ordinal,
    SmallOrdinal,
    Shift,
}

/// The patterns by their names, longer ones before those that they begin with.
const NAMES: &[(&str, Pattern)] = &[
    (",", Pattern::Comma),
    (".", Pattern::Point),
    ("0", Pattern::Zero),
    ("9", Pattern::Nine),
    ("B", Pattern::Blank),
    ("D", Pattern::LocalePoint),
    ("EEEE", Pattern::Exponent),
    ("FM", Pattern::FillMode),
    ("G", Pattern::Group),
    ("L", Pattern::Currency),
    ("MI", Pattern::Minus),
    ("PL", Pattern::Plus),
    ("PR", Pattern::Brackets),
    ("RN", Pattern::Roman),
    ("SG", Pattern::Sign),
    ("SP", Pattern::Spelled),
    ("S", Pattern::LocaleSign),
    ("TH", Pattern::Ordinal),
    ("V", Pattern::Shift),
    ("rn", Pattern::SmallRoman),
    ("th", Pattern::SmallOrdinal),
];

/// The pattern at the beginning of a template. Names may be written in small letters as a whole.
fn pattern(template: &str) -> Option<(Pattern, &str)> {
    NAMES.iter().find_map(|(name, pattern)| {
        let start = template.get(..name.len())?;
        let is_named = start == *name || start == name.to_ascii_lowercase() && !matches!(*name, "RN" | "TH");
        is_named.then(|| (*pattern, &template[name.len()..]))
    })
}

#[derive(Clone, Debug)]
enum Node {
    Pattern(Pattern),
    Literal(char),
}

/// Where `S` stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SignPlace {
    Before,
    Behind,
}

/// A template, taken apart.
#[derive(Clone, Default, Debug)]
struct Template {
    nodes: Vec<Node>,
    /// Digits before the point.
    before: usize,
    /// Digits behind the point.
    behind: usize,
    /// Where `S` stands, and how many digits before it.
    sign_place: Option<SignPlace>,
    digits_before_sign: usize,
    /// Digits behind `V`.
    shifted: usize,
    /// The number of the first `0`, from 1, and of the last.
    first_zero: usize,
    last_zero: usize,
    has_point: bool,
    has_zero: bool,
    has_blank: bool,
    has_fill_mode: bool,
    has_locale_sign: bool,
    has_brackets: bool,
    has_minus: bool,
    has_plus: bool,
    has_roman: bool,
    has_shift: bool,
    has_exponent: bool,
}

#[cold]
fn syntax(message: &str) -> Error {
    Error::new(SqlState::SYNTAX_ERROR, message)
}

impl Template {
    fn parse(text: &str) -> Result<Template> {
        let mut template = Template::default();
        let mut rest = text;
        while !rest.is_empty() {
            if let Some((pattern, after)) = pattern(rest) {
                template.note(pattern)?;
                template.nodes.push(Node::Pattern(pattern));
                rest = after;
                continue;
            }
            if let Some(quoted) = rest.strip_prefix('"') {
                let mut characters = quoted.chars();
                while let Some(character) = characters.next() {
                    match character {
                        '"' => break,
                        '\\' => {
                            let escaped = characters.next().unwrap_or('\\');
                            template.nodes.push(Node::Literal(escaped));
                        }
                        other => template.nodes.push(Node::Literal(other)),
                    }
                }
                rest = characters.as_str();
                continue;
            }
            // Outside quotes a backslash means something before a quote alone.
            let rest_of_literal =
                rest.strip_prefix('\\').filter(|after| after.starts_with('"')).unwrap_or(rest);
            let mut characters = rest_of_literal.chars();
            template.nodes.extend(characters.next().map(Node::Literal));
            rest = characters.as_str();
        }
        Ok(template)
    }

    /// Collects what a pattern says of the whole number.
    fn note(&mut self, pattern: Pattern) -> Result<()> {
        if self.has_exponent && pattern != Pattern::Exponent {
            return Err(syntax("\"EEEE\" must be the last pattern used"));
        }
        match pattern {
            Pattern::Nine => {
                if self.has_brackets {
                    return Err(syntax("\"9\" must be ahead of \"PR\""));
                }
                match (self.has_shift, self.has_point) {
                    (true, _) => self.shifted += 1,
                    (false, true) => self.behind += 1,
                    (false, false) => self.before += 1,
                }
            }
            Pattern::Zero => {
                if self.has_brackets {
                    return Err(syntax("\"0\" must be ahead of \"PR\""));
                }
                if !self.has_zero && !self.has_point {
                    self.has_zero = true;
                    self.first_zero = self.before + 1;
                }
                match self.has_point {
                    true => self.behind += 1,
                    false => self.before += 1,
                }
                self.last_zero = self.before + self.behind;
            }
            Pattern::Blank => {
                if self.before == 0 && self.behind == 0 && !self.has_zero {
                    self.has_blank = true;
                }
            }
            Pattern::LocalePoint | Pattern::Point => {
                if self.has_point {
                    return Err(syntax("multiple decimal points"));
                }
                if self.has_shift {
                    return Err(syntax("cannot use \"V\" and decimal point together"));
                }
                self.has_point = true;
            }
            Pattern::FillMode => self.has_fill_mode = true,
            Pattern::LocaleSign => {
                if self.has_locale_sign {
                    return Err(syntax("cannot use \"S\" twice"));
                }
                if self.has_plus || self.has_minus || self.has_brackets {
                    return Err(syntax("cannot use \"S\" and \"PL\"/\"MI\"/\"SG\"/\"PR\" together"));
                }
                self.has_locale_sign = true;
                self.sign_place = Some(match self.has_point {
                    true => SignPlace::Behind,
                    false => SignPlace::Before,
                });
                if !self.has_point {
                    self.digits_before_sign = self.before;
                }
            }
            Pattern::Minus | Pattern::Plus | Pattern::Sign => {
                if self.has_locale_sign {
                    let name = match pattern {
                        Pattern::Minus => "MI",
                        Pattern::Plus => "PL",
                        _ => "SG",
                    };
                    return Err(syntax(&format!("cannot use \"S\" and \"{name}\" together")));
                }
                self.has_minus |= pattern != Pattern::Plus;
                self.has_plus |= pattern != Pattern::Minus;
            }
            Pattern::Brackets => {
                if self.has_locale_sign || self.has_plus || self.has_minus {
                    return Err(syntax("cannot use \"PR\" and \"S\"/\"PL\"/\"MI\"/\"SG\" together"));
                }
                self.has_brackets = true;
            }
            Pattern::Roman | Pattern::SmallRoman => self.has_roman = true,
            Pattern::Shift => {
                if self.has_point {
                    return Err(syntax("cannot use \"V\" and decimal point together"));
                }
                self.has_shift = true;
            }
            Pattern::Exponent => {
                if self.has_exponent {
                    return Err(syntax("cannot use \"EEEE\" twice"));
                }
                if self.has_blank
                    || self.has_fill_mode
                    || self.has_locale_sign
                    || self.has_brackets
                    || self.has_minus
                    || self.has_plus
                    || self.has_roman
                    || self.has_shift
                {
                    let detail = "\"EEEE\" may only be used together with digit and decimal point patterns.";
                    return Err(syntax("\"EEEE\" is incompatible with other formats").with_detail(detail));
                }
                self.has_exponent = true;
            }
            Pattern::Comma
            | Pattern::Group
            | Pattern::Currency
            | Pattern::Spelled
            | Pattern::Ordinal
            | Pattern::SmallOrdinal => {}
        }
        Ok(())
    }
}
