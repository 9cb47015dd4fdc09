//! The text of a number for a template: with so many decimals, and no more digits before the point than the template has.

use super::super::powers::power;
use super::Template;
use firn_base::numeric::Numeric;
use firn_base::{Error, Result, SqlState};

/// A number as a template writes it.
pub struct Digits {
    /// Without a sign; `#` where the template has too few digits.
    pub text: String,
    /// Whether a minus belongs to it.
    pub is_negative: bool,
    /// How many of the template's digits stand before the number's first one.
    pub leading: usize,
}

impl Digits {
    /// A text that is written as it is.
    fn whole(text: String) -> Digits {
        Digits { text, is_negative: false, leading: 0 }
    }
}

// The text of a number for a template.
impl Template {
    /// The text of a value.
    pub fn of_int4(&mut self, value: i32) -> Result<Digits> {
        if self.has_roman {
            return Ok(Digits::whole(roman(value)));
        }
        if self.has_exponent {
            return Ok(Digits::whole(scientific(f64::from(value), self.behind)));
        }
        if !self.has_shift {
            return Ok(self.of_integer(value.into()));
        }
        // Too large a product wraps, and too large a power of ten is the smallest integer, in PostgreSQL.
        let factor = 10f64.powi(self.shifted as i32);
        let factor = if factor > f64::from(i32::MAX) { i32::MIN } else { factor as i32 };
        self.before += self.shifted;
        Ok(self.of_integer(value.wrapping_mul(factor).into()))
    }

    /// The text of a value.
    pub fn of_int8(&mut self, value: i64) -> Result<Digits> {
        if self.has_roman {
            let narrow = i32::try_from(value);
            let narrow = narrow
                .map_err(|_| Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "integer out of range"))?;
            return Ok(Digits::whole(roman(narrow)));
        }
        if self.has_exponent {
            return Ok(Digits::whole(signed_scientific(Numeric::from(value), self.behind)));
        }
        if !self.has_shift {
            return Ok(self.of_integer(value));
        }
        let factor = u32::try_from(self.shifted).ok().and_then(|digits| 10i64.checked_pow(digits));
        let shifted = factor.and_then(|factor| value.checked_mul(factor));
        let shifted =
            shifted.ok_or_else(|| Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "bigint out of range"))?;
        self.before += self.shifted;
        Ok(self.of_integer(shifted))
    }

    fn of_integer(&self, value: i64) -> Digits {
        let mut text = value.to_string();
        if self.behind > 0 {
            text.push('.');
            text.extend(std::iter::repeat_n('0', self.behind));
        }
        self.fitted(text)
    }

    /// The text of a value.
    pub fn of_float4(&mut self, value: f32) -> Digits {
        if !self.has_shift || self.has_roman || self.has_exponent {
            return self.of_float(value.into(), 6);
        }
        let shifted = value * 10f64.powi(self.shifted as i32) as f32;
        self.before += self.shifted;
        self.of_float(shifted.into(), 6)
    }

    /// The text of a value.
    pub fn of_float8(&mut self, value: f64) -> Digits {
        if !self.has_shift || self.has_roman || self.has_exponent {
            return self.of_float(value, 15);
        }
        let shifted = value * 10f64.powi(self.shifted as i32);
        self.before += self.shifted;
        self.of_float(shifted, 15)
    }

    /// A float of which so many digits are sure.
    fn of_float(&mut self, value: f64, sure: usize) -> Digits {
        if self.has_roman {
            return Digits::whole(roman(value.round_ties_even() as i32));
        }
        if self.has_exponent {
            return Digits::whole(match value.is_finite() {
                true => scientific(value, self.behind),
                false => self.no_exponent(),
            });
        }
        let whole = plain(value.abs(), 0).len();
        self.behind = self.behind.min(sure.saturating_sub(whole));
        self.fitted(plain(value, self.behind))
    }

    /// The text of a value.
    pub fn of_numeric(&mut self, value: Numeric) -> Result<Digits> {
        if self.has_roman {
            return Ok(Digits::whole(roman(value.round(0)?.to_i32()?)));
        }
        if self.has_exponent {
            return Ok(Digits::whole(match value.is_finite() {
                true => signed_scientific(value, self.behind),
                false => self.no_exponent(),
            }));
        }
        let mut value = value;
        if self.has_shift {
            let factor = power(Numeric::from(10i64), Numeric::from(self.shifted as i64))?;
            value = value.checked_mul(factor.normalized())?;
            self.before += self.shifted;
        }
        let rounded = value.round(self.behind as i32)?;
        let mut text = rounded.to_string();
        // The zeros that 38 digits have no room for.
        if let Some((_, scale)) = rounded.number()
            && usize::from(scale) < self.behind
        {
            if scale == 0 {
                text.push('.');
            }
            text.extend(std::iter::repeat_n('0', self.behind - usize::from(scale)));
        }
        Ok(self.fitted(text))
    }

    /// What `EEEE` writes for NaN and infinities.
    fn no_exponent(&self) -> String {
        let mut text = vec![b'#'; self.before + self.behind + 6];
        text[0] = b' ';
        text[self.before + 1] = b'.';
        String::from_utf8(text).expect("it is ASCII")
    }

    /// The text of a number without its sign; `#` in all places if the template has too few digits before the point.
    fn fitted(&self, text: String) -> Digits {
        let (is_negative, text) = match text.strip_prefix('-') {
            Some(digits) => (true, digits.to_owned()),
            None => (false, text),
        };
        let whole = text.find('.').unwrap_or(text.len());
        match self.before.checked_sub(whole) {
            Some(leading) => Digits { text, is_negative, leading },
            None => {
                let mut text = "#".repeat(self.before);
                text.push('.');
                text.extend(std::iter::repeat_n('#', self.behind));
                Digits { text, is_negative, leading: 0 }
            }
        }
    }
}

/// A float with so many decimals.
fn plain(value: f64, decimals: usize) -> String {
    match value.is_infinite() {
        true if value < 0.0 => "-Infinity".to_owned(),
        true => "Infinity".to_owned(),
        false => format!("{value:.decimals$}"),
    }
}

/// A float in scientific notation, with a blank in the place of a plus sign.
fn scientific(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$e}");
    let (mantissa, exponent) = text.split_once('e').expect("it has an exponent");
    let exponent: i32 = exponent.parse().expect("it is a number");
    with_exponent(mantissa, exponent)
}

/// A numeric in scientific notation, with a blank in the place of a plus sign. Its exponent is that before rounding.
fn signed_scientific(value: Numeric, decimals: usize) -> String {
    let (unscaled, scale) = value.number().expect("it is a number");
    let digits = unscaled.unsigned_abs().checked_ilog10();
    let exponent = digits.map_or(0, |digits| digits as i32 - i32::from(scale));
    let mantissa = Numeric::new(unscaled, digits.unwrap_or(0) as u16).expect("it has as many digits");
    let rounded = mantissa.round(decimals.min(2000) as i32).expect("it is below 10");
    let mut text = rounded.to_string();
    let shown = rounded.number().map_or(0, |(_, scale)| usize::from(scale));
    if shown == 0 && decimals > 0 {
        text.push('.');
    }
    text.extend(std::iter::repeat_n('0', decimals - shown));
    with_exponent(&text, exponent)
}

fn with_exponent(mantissa: &str, exponent: i32) -> String {
    let blank = if mantissa.starts_with('-') { "" } else { " " };
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{blank}{mantissa}e{sign}{:02}", exponent.unsigned_abs())
}

/// A number from 1 to 3999 in Roman numerals; `#` for all others.
fn roman(number: i32) -> String {
    const VALUES: [(i32, &str); 13] = [
        (1000, "M"),
        (900, "CM"),
        (500, "D"),
        (400, "CD"),
        (100, "C"),
        (90, "XC"),
        (50, "L"),
        (40, "XL"),
        (10, "X"),
        (9, "IX"),
        (5, "V"),
        (4, "IV"),
        (1, "I"),
    ];
    if !(1..4000).contains(&number) {
        return "#".repeat(15);
    }
    let (mut rest, mut text) = (number, String::new());
    for (value, letters) in VALUES {
        while rest >= value {
            text.push_str(letters);
            rest -= value;
        }
    }
    text
}
