//! `to_char`: goes through a template with the digits of a number.

use super::digits::Digits;
use super::{Node, Pattern, SignPlace, Template};
use firn_base::{Error, Result, SqlState};

/// A number on its way through a template.
struct Writer<'a> {
    template: &'a Template,
    /// The digits.
    number: &'a [u8],
    /// The next of them.
    next: usize,
    sign: u8,
    sign_place: Option<SignPlace>,
    has_brackets: bool,
    is_sign_written: bool,
    /// The digits of the template that stand before the number's first one.
    leading: usize,
    /// The last digit that FM keeps.
    last_relevant: Option<usize>,
    /// The number of the current digit of the template, and of the last.
    current: usize,
    count: i64,
    /// Whether a digit of the number has been written.
    is_in_number: bool,
    out: Vec<u8>,
}

impl Template {
    /// The number in the form of the template.
    pub fn write(&self, digits: Digits) -> Result<String> {
        if self.has_exponent {
            return Ok(digits.text);
        }
        // A Roman number has neither sign nor digits.
        let is_roman = self.has_roman;
        let plain = Template {
            nodes: self.nodes.clone(),
            has_roman: true,
            has_fill_mode: self.has_fill_mode,
            ..Template::default()
        };
        let template = if is_roman { &plain } else { self };
        let sign = match (is_roman, digits.is_negative) {
            (true, _) => 0,
            (false, true) => b'-',
            (false, false) => b'+',
        };
        let mut writer = Writer {
            template,
            number: digits.text.as_bytes(),
            next: 0,
            sign,
            sign_place: template.sign_place,
            has_brackets: template.has_brackets,
            is_sign_written: false,
            leading: digits.leading,
            last_relevant: None,
            current: 0,
            count: (template.behind + template.before) as i64 - 1,
            is_in_number: false,
            out: Vec::new(),
        };
        writer.place_sign();
        if template.has_fill_mode && template.has_point {
            writer.find_last_relevant();
        }
        if !writer.is_sign_written && writer.leading == 0 {
            writer.count += 1;
        }
        for node in &template.nodes {
            match node {
                Node::Literal(character) => {
                    writer.out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                }
                Node::Pattern(pattern) => writer.pattern(*pattern)?,
            }
        }
        // Digits that the number does not have end the text.
        let end = writer.out.iter().position(|byte| *byte == 0).unwrap_or(writer.out.len());
        writer.out.truncate(end);
        Ok(String::from_utf8(writer.out).expect("patterns write ASCII"))
    }
}

impl Writer<'_> {
    /// Decides whether the digits carry the sign, and where.
    fn place_sign(&mut self) {
        let template = self.template;
        if template.has_plus || template.has_minus {
            // MI, PL and SG write it; PL alone does not write a minus.
            self.is_sign_written = template.has_minus;
            return;
        }
        if self.sign != b'-' && template.has_fill_mode {
            self.has_brackets = false;
        }
        self.is_sign_written = self.sign == b'+' && template.has_fill_mode && !template.has_locale_sign;
        if self.sign_place == Some(SignPlace::Before) && template.before == template.digits_before_sign {
            self.sign_place = Some(SignPlace::Behind);
        }
    }

    fn find_last_relevant(&mut self) {
        let Some(point) = self.number.iter().position(|byte| *byte == b'.') else { return };
        let behind = &self.number[point + 1..];
        let mut last = behind.iter().rposition(|byte| *byte != b'0').map_or(point, |place| point + 1 + place);
        // Digits of the pattern 0 are kept.
        if self.template.last_zero > self.leading {
            last = last.max((self.template.last_zero - self.leading).min(self.number.len() - 1));
        }
        self.last_relevant = Some(last);
    }

    /// The byte of the number at a place; 0 behind its end.
    fn byte(&self, place: usize) -> u8 {
        self.number.get(place).copied().unwrap_or(0)
    }

    fn is_last_relevant_the_point(&self) -> bool {
        self.last_relevant.is_some_and(|last| self.byte(last) == b'.')
    }

    /// Whether the next digit is the zero before the point that `9.9` leaves out.
    fn is_zero_before_point(&self) -> bool {
        !self.template.has_zero && self.next == 0 && self.byte(0) == b'0' && self.template.behind != 0
    }

    fn pattern(&mut self, pattern: Pattern) -> Result<()> {
        let has_fill_mode = self.template.has_fill_mode;
        match pattern {
            Pattern::Nine | Pattern::Zero | Pattern::Point | Pattern::LocalePoint => self.digit(pattern),
            Pattern::Comma | Pattern::Group => match (self.is_in_number, has_fill_mode) {
                (true, _) => self.out.push(b','),
                (false, true) => {}
                (false, false) => self.out.push(b' '),
            },
            Pattern::Currency => self.out.push(b' '),
            Pattern::Roman | Pattern::SmallRoman => {
                let text = String::from_utf8_lossy(&self.number[self.next..]);
                let text = match pattern {
                    Pattern::Roman => text.into_owned(),
                    _ => text.to_ascii_lowercase(),
                };
                let width = if has_fill_mode { 0 } else { 15 };
                self.out.extend_from_slice(format!("{text:>width$}").as_bytes());
            }
            Pattern::Ordinal | Pattern::SmallOrdinal => {
                let template = self.template;
                if template.has_roman || self.byte(0) == b'#' || self.sign == b'-' || template.has_point {
                    return Ok(());
                }
                let number = String::from_utf8_lossy(self.number);
                if !number.ends_with(|last: char| last.is_ascii_digit()) {
                    let message = format!("\"{number}\" is not a number");
                    return Err(Error::new(SqlState::INVALID_TEXT_REPRESENTATION, message));
                }
                let suffix = super::super::date_templates::ordinal_suffix(&number);
                match pattern {
                    Pattern::Ordinal => self.out.extend_from_slice(suffix.to_uppercase().as_bytes()),
                    _ => self.out.extend_from_slice(suffix.as_bytes()),
                }
            }
            Pattern::Minus if self.sign == b'-' => self.out.push(b'-'),
            Pattern::Plus if self.sign == b'+' => self.out.push(b'+'),
            Pattern::Minus | Pattern::Plus if has_fill_mode => {}
            Pattern::Minus | Pattern::Plus => self.out.push(b' '),
            Pattern::Sign => self.out.push(self.sign),
            _ => {}
        }
        Ok(())
    }

    /// A digit or the point of the template.
    fn digit(&mut self, pattern: Pattern) {
        let template = self.template;
        if template.has_roman {
            return;
        }
        self.is_in_number = false;
        // Digits of the pattern 0 are counted from 0 here.
        let first_zero = template.first_zero.saturating_sub(1);
        let is_reached = self.current >= self.leading;
        if !self.is_sign_written
            && (is_reached || template.has_zero && first_zero == self.current)
            && (!self.is_zero_before_point() || self.is_last_relevant_the_point())
        {
            self.write_sign();
        }
        if !is_reached && (!template.has_zero || first_zero > self.current) {
            if !template.has_fill_mode {
                self.out.push(b' ');
            }
        } else if !is_reached {
            self.out.push(b'0');
            self.is_in_number = true;
        } else {
            self.write_digit(pattern);
            if self.next < self.number.len() {
                self.next += 1;
            }
        }
        let is_padded = i64::from(self.leading > 0);
        let mut end = self.count + is_padded + i64::from(template.has_point);
        if self.last_relevant == Some(self.next) {
            end = self.current as i64;
        }
        if self.current as i64 + 1 == end {
            if self.is_sign_written && self.has_brackets {
                self.out.push(if self.sign == b'+' { b' ' } else { b'>' });
            } else if template.has_locale_sign && self.sign_place == Some(SignPlace::Behind) {
                self.out.push(self.sign);
            }
        }
        self.current += 1;
    }

    fn write_sign(&mut self) {
        let template = self.template;
        if template.has_locale_sign {
            if self.sign_place == Some(SignPlace::Before) {
                self.out.push(self.sign);
                self.is_sign_written = true;
            }
        } else if self.has_brackets {
            self.out.push(if self.sign == b'+' { b' ' } else { b'<' });
            self.is_sign_written = true;
        } else {
            match self.sign {
                b'+' if template.has_fill_mode => {}
                b'+' => self.out.push(b' '),
                sign => self.out.push(sign),
            }
            self.is_sign_written = true;
        }
    }

    /// The next character of the number.
    fn write_digit(&mut self, pattern: Pattern) {
        let next = self.byte(self.next);
        if next == b'.' {
            if self.template.has_fill_mode || !self.is_last_relevant_the_point() {
                self.out.push(b'.');
            }
        } else if self.last_relevant.is_some_and(|last| self.next > last) && pattern != Pattern::Zero {
            // FM leaves out zeros at the end.
        } else if self.is_zero_before_point() {
            if !self.template.has_fill_mode {
                self.out.push(b' ');
            } else if self.is_last_relevant_the_point() {
                self.out.push(b'0');
            }
        } else {
            self.out.push(next);
            self.is_in_number = true;
        }
    }
}
