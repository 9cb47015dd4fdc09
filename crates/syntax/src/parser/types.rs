//! Names of types.

use super::Parser;
use crate::keyword::Keyword;
use crate::token::TokenKind;
use crate::tree::{BaseType, Expr, IntervalFields, TypeName};
use firn_base::{Result, SqlState};

impl Parser<'_> {
    /// A type, with SETOF and as an array or not (PostgreSQL's Typename).
    pub(crate) fn type_name(&mut self) -> Result<TypeName> {
        let start = self.start();
        let is_set = self.accept_keyword(Keyword::Setof);
        let base = self.base_type()?;
        let mut bounds = Vec::new();
        if self.accept_keyword(Keyword::Array) {
            let mut bound = None;
            if self.accept_symbol(b'[') {
                bound = Some(self.integer()?);
                self.expect_symbol(b']')?;
            }
            bounds.push(bound);
        } else {
            while self.accept_symbol(b'[') {
                let bound = if self.at_symbol(b']') { None } else { Some(self.integer()?) };
                self.expect_symbol(b']')?;
                bounds.push(bound);
            }
        }
        Ok(TypeName { span: self.span_from(start), is_set, base, bounds })
    }

    /// A type that is no array (PostgreSQL's SimpleTypename).
    pub(crate) fn simple_type_name(&mut self) -> Result<TypeName> {
        let start = self.start();
        let base = self.base_type()?;
        Ok(TypeName { span: self.span_from(start), is_set: false, base, bounds: Vec::new() })
    }

    fn base_type(&mut self) -> Result<BaseType> {
        if self.at_keyword(Keyword::Interval) {
            self.advance();
            if self.at_symbol(b'(') {
                let precision = Some(self.parenthesised_integer()?);
                return Ok(BaseType::Interval { fields: None, precision });
            }
            let (fields, precision) = self.optional_interval_fields()?;
            return Ok(BaseType::Interval { fields, precision });
        }
        if let Some(base) = self.optional_system_type()? {
            return Ok(base);
        }
        let first = self.type_or_function_name()?;
        let name = self.with_attributes(first)?;
        Ok(BaseType::Named { name, modifiers: self.optional_modifiers()? })
    }

    /// `(modifiers)` or nothing.
    fn optional_modifiers(&mut self) -> Result<Vec<Expr>> {
        if self.at_symbol(b'(') { self.parenthesised_list(Self::expr) } else { Ok(Vec::new()) }
    }

    fn parenthesised_integer(&mut self) -> Result<i32> {
        self.expect_symbol(b'(')?;
        let value = self.integer()?;
        self.expect_symbol(b')')?;
        Ok(value)
    }

    pub(super) fn optional_parenthesised_integer(&mut self) -> Result<Option<i32>> {
        if self.at_symbol(b'(') { Ok(Some(self.parenthesised_integer()?)) } else { Ok(None) }
    }

    /// A type with a name of its own in the grammar, but `interval` (PostgreSQL's ConstTypename).
    pub(super) fn optional_system_type(&mut self) -> Result<Option<BaseType>> {
        let Some(keyword) = self.keyword() else { return Ok(None) };
        let base = match keyword {
            Keyword::Int | Keyword::Integer => BaseType::Integer,
            Keyword::Smallint => BaseType::SmallInt,
            Keyword::Bigint => BaseType::BigInt,
            Keyword::Real => BaseType::Real,
            Keyword::Boolean => BaseType::Boolean,
            Keyword::Double => {
                // The only one of them that is no reserved word of any kind.
                if !self.next_is(Keyword::Precision) {
                    return Ok(None);
                }
                self.advance();
                BaseType::DoublePrecision
            }
            Keyword::Float => return Ok(Some(self.float()?)),
            Keyword::Decimal | Keyword::Dec | Keyword::Numeric => {
                self.advance();
                return Ok(Some(BaseType::Numeric(self.optional_modifiers()?)));
            }
            Keyword::Bit => {
                self.advance();
                let is_varying = self.accept_keyword(Keyword::Varying);
                return Ok(Some(BaseType::Bit { is_varying, modifiers: self.optional_modifiers()? }));
            }
            Keyword::Character | Keyword::Char | Keyword::Varchar | Keyword::National | Keyword::Nchar => {
                return Ok(Some(self.character(keyword)?));
            }
            Keyword::Timestamp | Keyword::Time => {
                self.advance();
                let precision = self.optional_parenthesised_integer()?;
                let with_zone = self.optional_time_zone()?;
                return Ok(Some(if keyword == Keyword::Time {
                    BaseType::Time { with_zone, precision }
                } else {
                    BaseType::Timestamp { with_zone, precision }
                }));
            }
            _ => return Ok(None),
        };
        self.advance();
        Ok(Some(base))
    }

    fn float(&mut self) -> Result<BaseType> {
        self.advance();
        if !self.at_symbol(b'(') {
            return Ok(BaseType::DoublePrecision);
        }
        self.advance();
        let at = self.start();
        let bits = self.integer()?;
        self.expect_symbol(b')')?;
        match bits {
            ..1 => self.error(
                SqlState::INVALID_PARAMETER_VALUE,
                "precision for type float must be at least 1 bit",
                at,
            ),
            1..25 => Ok(BaseType::Real),
            25..54 => Ok(BaseType::DoublePrecision),
            54.. => self.error(
                SqlState::INVALID_PARAMETER_VALUE,
                "precision for type float must be less than 54 bits",
                at,
            ),
        }
    }

    fn character(&mut self, keyword: Keyword) -> Result<BaseType> {
        self.advance();
        let is_varying = match keyword {
            Keyword::Varchar => true,
            Keyword::National => {
                if !self.accept_keyword(Keyword::Character) {
                    self.expect_keyword(Keyword::Char)?;
                }
                self.accept_keyword(Keyword::Varying)
            }
            _ => self.accept_keyword(Keyword::Varying),
        };
        Ok(BaseType::Character { is_varying, length: self.optional_parenthesised_integer()? })
    }

    fn optional_time_zone(&mut self) -> Result<bool> {
        if self.accept_keyword(Keyword::Without) {
            self.expect_keywords(&[Keyword::Time, Keyword::Zone])?;
            return Ok(false);
        }
        if self.at_keyword(Keyword::With) && self.next_is(Keyword::Time) {
            self.advance();
            self.expect_keywords(&[Keyword::Time, Keyword::Zone])?;
            return Ok(true);
        }
        Ok(false)
    }

    /// `YEAR TO MONTH` and its relatives, and the digits of SECOND.
    pub(crate) fn optional_interval_fields(&mut self) -> Result<(Option<IntervalFields>, Option<i32>)> {
        use IntervalFields::*;
        let Some(first) = self.keyword() else { return Ok((None, None)) };
        if !is_interval_field(first) {
            return Ok((None, None));
        }
        if first == Keyword::Second {
            self.advance();
            return Ok((Some(Second), self.optional_parenthesised_integer()?));
        }
        self.advance();
        if !self.at_keyword(Keyword::To) {
            return Ok((Some(single_field(first)), None));
        }
        self.advance();
        let fields = match (first, self.keyword()) {
            (Keyword::Year, Some(Keyword::Month)) => YearToMonth,
            (Keyword::Day, Some(Keyword::Hour)) => DayToHour,
            (Keyword::Day, Some(Keyword::Minute)) => DayToMinute,
            (Keyword::Day, Some(Keyword::Second)) => DayToSecond,
            (Keyword::Hour, Some(Keyword::Minute)) => HourToMinute,
            (Keyword::Hour, Some(Keyword::Second)) => HourToSecond,
            (Keyword::Minute, Some(Keyword::Second)) => MinuteToSecond,
            _ => return self.unexpected(),
        };
        let is_second = self.at_keyword(Keyword::Second);
        self.advance();
        let precision = if is_second { self.optional_parenthesised_integer()? } else { None };
        Ok((Some(fields), precision))
    }

    /// Whether a token may begin a typed literal that no name begins.
    pub(super) fn begins_system_type(kind: TokenKind) -> bool {
        matches!(
            kind,
            TokenKind::Keyword(
                Keyword::Int
                    | Keyword::Integer
                    | Keyword::Smallint
                    | Keyword::Bigint
                    | Keyword::Real
                    | Keyword::Boolean
                    | Keyword::Float
                    | Keyword::Decimal
                    | Keyword::Dec
                    | Keyword::Numeric
                    | Keyword::Bit
                    | Keyword::Character
                    | Keyword::Char
                    | Keyword::Varchar
                    | Keyword::National
                    | Keyword::Nchar
                    | Keyword::Timestamp
                    | Keyword::Time
                    | Keyword::Interval
            )
        )
    }
}

fn is_interval_field(keyword: Keyword) -> bool {
    matches!(
        keyword,
        Keyword::Year | Keyword::Month | Keyword::Day | Keyword::Hour | Keyword::Minute | Keyword::Second
    )
}

fn single_field(keyword: Keyword) -> IntervalFields {
    match keyword {
        Keyword::Year => IntervalFields::Year,
        Keyword::Month => IntervalFields::Month,
        Keyword::Day => IntervalFields::Day,
        Keyword::Hour => IntervalFields::Hour,
        Keyword::Minute => IntervalFields::Minute,
        _ => IntervalFields::Second,
    }
}

/// The name of a field for EXTRACT that is a keyword.
pub(super) fn is_extract_field(keyword: Keyword) -> bool {
    is_interval_field(keyword)
}
