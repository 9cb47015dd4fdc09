//! A [`Numeric`] in PostgreSQL's binary format: digits of base 10,000, most significant first.
//!
//! ```text
//! count:i16  weight:i16  sign:u16  decimals:u16  then digits:i16 × count, the first worth 10,000^weight
//! ```
//!
//! The sign is 0x0000 or 0x4000 of numbers, 0xC000 of NaN, 0xD000 of Infinity and 0xF000 of -Infinity.

use super::value::Kind;
use super::{Literal, MAX_SCALE, Numeric};
use crate::error::{Error, Result, SqlState};

const POSITIVE: u16 = 0x0000;
const NEGATIVE: u16 = 0x4000;
const NAN: u16 = 0xC000;
const INFINITY: u16 = 0xD000;
const NEGATIVE_INFINITY: u16 = 0xF000;
/// What PostgreSQL sends as the decimals of an infinity.
const INFINITY_DECIMALS: u16 = 0x20;

impl Numeric {
    /// Appends the value in PostgreSQL's binary format.
    pub fn encode(self, out: &mut Vec<u8>) {
        let mut special = |sign, decimals| put(out, &[], 0, sign, decimals);
        let (unscaled, scale) = match self.kind() {
            Kind::NaN => return special(NAN, 0),
            Kind::Infinity => return special(INFINITY, INFINITY_DECIMALS),
            Kind::NegativeInfinity => return special(NEGATIVE_INFINITY, INFINITY_DECIMALS),
            Kind::Number(unscaled, scale) => (unscaled, scale),
        };
        // Decimal digits, from the last one on, padded with zeros to whole digits of base 10,000.
        let mut decimals = [0u8; 44];
        let missing = usize::from((4 - scale % 4) % 4);
        let mut rest = unscaled.unsigned_abs();
        let mut length = missing;
        while rest > 0 {
            decimals[length] = (rest % 10) as u8;
            rest /= 10;
            length += 1;
        }
        let mut digits: Vec<u16> = decimals[..length.next_multiple_of(4)]
            .chunks_exact(4)
            .map(|four| four.iter().rev().fold(0, |digit, decimal| digit * 10 + u16::from(*decimal)))
            .collect();
        let lowest = -i32::from(scale.div_ceil(4));
        let zeros = digits.iter().take_while(|digit| **digit == 0).count();
        while digits.last() == Some(&0) {
            digits.pop();
        }
        let weight = if digits.is_empty() { 0 } else { lowest + digits.len() as i32 - 1 };
        digits.drain(..zeros.min(digits.len()));
        digits.reverse();
        put(out, &digits, weight as i16, if unscaled < 0 { NEGATIVE } else { POSITIVE }, scale);
    }

    /// Reads a value from PostgreSQL's binary format; 22P03 if the bytes are not valid. Digits after the
    /// decimals to show are truncated.
    pub fn decode(bytes: &[u8]) -> Result<Numeric> {
        let Some((header, digits)) = bytes.split_first_chunk::<8>() else {
            return Err(malformed("insufficient data left in message"));
        };
        let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let (count, weight, sign, shown) = (word(0), word(2) as i16, word(4), word(6));
        if digits.len() != usize::from(count) * 2 {
            return Err(malformed("incorrect binary data format for type numeric"));
        }
        match sign {
            POSITIVE | NEGATIVE => {}
            NAN => return Ok(Numeric::NAN),
            INFINITY => return Ok(Numeric::INFINITY),
            NEGATIVE_INFINITY => return Ok(Numeric::NEGATIVE_INFINITY),
            _ => return Err(malformed("invalid sign in external \"numeric\" value")),
        }
        if shown > MAX_SCALE {
            return Err(malformed("invalid scale in external \"numeric\" value"));
        }
        let mut text = Vec::with_capacity(digits.len() * 2);
        for pair in digits.chunks_exact(2) {
            let mut digit = u16::from_be_bytes([pair[0], pair[1]]);
            if digit > 9_999 {
                return Err(malformed("invalid digit in external \"numeric\" value"));
            }
            for power in [1_000, 100, 10, 1] {
                text.push(b'0' + (digit / power) as u8);
                digit %= power;
            }
        }
        let exponent = (i64::from(weight) - i64::from(count) + 1) * 4;
        // Decimals that are not shown are dropped.
        let hidden = (-exponent - i64::from(shown)).clamp(0, text.len() as i64);
        text.truncate(text.len() - hidden as usize);
        let literal =
            Literal { negative: sign == NEGATIVE, whole: &text, fraction: &[], exponent: exponent + hidden };
        literal.with_decimals(shown.into())
    }
}

fn put(out: &mut Vec<u8>, digits: &[u16], weight: i16, sign: u16, decimals: u16) {
    out.extend((digits.len() as i16).to_be_bytes());
    out.extend(weight.to_be_bytes());
    out.extend(sign.to_be_bytes());
    out.extend(decimals.to_be_bytes());
    for digit in digits {
        out.extend(digit.to_be_bytes());
    }
}

#[cold]
fn malformed(message: &str) -> Error {
    Error::new(SqlState::INVALID_BINARY_REPRESENTATION, message)
}
