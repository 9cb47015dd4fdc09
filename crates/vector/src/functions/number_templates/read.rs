//! `to_number`: goes through a template with a text, and collects the digits that stand there.

use super::super::powers::power;
use super::{Node, Pattern, SignPlace, Template};
use firn_base::numeric::Numeric;
use firn_base::{Error, Result};

/// A text that is read with a template.
struct Reader<'a> {
    template: &'a Template,
    text: &'a [u8],
    at: usize,
    /// `+`, `-`, or a blank as long as there is none.
    sign: u8,
    digits: Vec<u8>,
    before: usize,
    behind: usize,
    has_read_point: bool,
}

impl Template {
    /// The number in a text of this form.
    pub fn read(&self, text: &str) -> Result<Numeric> {
        if self.has_exponent {
            return Err(Error::unsupported("\"EEEE\" for input"));
        }
        if self.has_roman {
            return Err(Error::unsupported("\"RN\" for input"));
        }
        let mut reader = Reader {
            template: self,
            text: text.as_bytes(),
            at: 0,
            sign: b' ',
            digits: Vec::new(),
            before: 0,
            behind: 0,
            has_read_point: false,
        };
        for node in &self.nodes {
            if reader.at >= reader.text.len() {
                break;
            }
            match node {
                // A literal stands for any character.
                Node::Literal(_) => reader.skip(),
                Node::Pattern(pattern) => reader.pattern(*pattern),
            }
        }
        if reader.digits.last() == Some(&b'.') {
            reader.digits.pop();
        }
        let mut number = String::from(char::from(reader.sign));
        number.push_str(std::str::from_utf8(&reader.digits).expect("they are digits"));
        let scale = reader.behind;
        let precision = self.before + self.shifted + scale;
        let number = Numeric::parse(&number)?.fit(precision as u16, scale as i16)?;
        if !self.has_shift {
            return Ok(number);
        }
        number.checked_mul(power(Numeric::from(10i64), Numeric::from(-(self.shifted as i64)))?)
    }
}

impl Reader<'_> {
    fn byte(&self) -> u8 {
        self.text.get(self.at).copied().unwrap_or(0)
    }

    fn is_at_end(&self) -> bool {
        self.at >= self.text.len()
    }

    /// Goes on by one character.
    fn skip(&mut self) {
        self.at += match self.byte() {
            0xf0.. => 4,
            0xe0.. => 3,
            0xc0.. => 2,
            _ => 1,
        };
    }

    /// Goes on by so many characters, but not by any that numbers have.
    fn skip_other(&mut self, count: usize) {
        for _ in 0..count {
            if self.is_at_end() || b"0123456789.,+-".contains(&self.byte()) {
                break;
            }
            self.skip();
        }
    }

    fn pattern(&mut self, pattern: Pattern) {
        match pattern {
            Pattern::Nine | Pattern::Zero | Pattern::Point | Pattern::LocalePoint => {
                self.digit(pattern);
                self.at += 1;
            }
            Pattern::Comma | Pattern::Group if !self.template.has_fill_mode && self.byte() == b',' => {
                self.at += 1
            }
            Pattern::Currency => self.skip_other(1),
            Pattern::Ordinal | Pattern::SmallOrdinal if !self.template.has_point => {
                self.skip_other(2);
            }
            Pattern::Minus if self.byte() == b'-' => self.take_sign(),
            Pattern::Plus if self.byte() == b'+' => self.take_sign(),
            Pattern::Sign if matches!(self.byte(), b'+' | b'-') => self.take_sign(),
            Pattern::Minus | Pattern::Plus | Pattern::Sign => self.skip_other(1),
            _ => {}
        }
    }

    fn take_sign(&mut self) {
        self.sign = self.byte();
        self.at += 1;
    }

    /// A digit or the point of the template, with a sign beside it. Stays on the last byte that belongs to it.
    fn digit(&mut self, pattern: Pattern) {
        let template = self.template;
        if self.byte() == b' ' {
            self.at += 1;
        }
        if self.is_at_end() {
            return;
        }
        let is_digit = matches!(pattern, Pattern::Nine | Pattern::Zero);
        if self.sign == b' ' && is_digit && self.before + self.behind == 0 {
            if template.has_locale_sign && template.sign_place == Some(SignPlace::Before) {
                if matches!(self.byte(), b'+' | b'-') {
                    self.take_sign();
                }
            } else {
                match self.byte() {
                    b'+' | b'-' => self.take_sign(),
                    b'<' if template.has_brackets => {
                        self.sign = b'-';
                        self.at += 1;
                    }
                    _ => {}
                }
            }
        }
        if self.is_at_end() {
            return;
        }
        let mut is_read = false;
        if self.byte().is_ascii_digit() {
            if self.has_read_point && self.behind == template.behind {
                return;
            }
            self.digits.push(self.byte());
            match self.has_read_point {
                true => self.behind += 1,
                false => self.before += 1,
            }
            is_read = true;
        } else if template.has_point && !self.has_read_point && self.byte() == b'.' {
            self.digits.push(b'.');
            self.has_read_point = true;
            is_read = true;
        }
        if self.sign != b' ' || self.before + self.behind == 0 {
            return;
        }
        // A sign behind the last digit: where that is shows only in the text.
        if template.has_locale_sign && is_read {
            if let Some(sign @ (b'+' | b'-')) = self.text.get(self.at + 1) {
                self.sign = *sign;
                self.at += 1;
            }
        } else if !is_read
            && !template.has_locale_sign
            && (template.has_plus || template.has_minus)
            && matches!(self.byte(), b'+' | b'-')
        {
            self.sign = self.byte();
        }
    }
}
