//! Names of types.

use super::Printer;
use crate::tree::{BaseType, Expr, IntervalFields, TypeName, TypedLiteral};

impl Printer {
    /// A type.
    pub(crate) fn type_name(&mut self, name: &TypeName) {
        if name.is_set {
            self.put("SETOF ");
        }
        self.base_type(&name.base);
        if let BaseType::Interval { fields: Some(fields), precision } = &name.base {
            self.interval_fields(*fields, *precision);
        }
        for bound in &name.bounds {
            self.put("[");
            if let Some(bound) = bound {
                self.integer(*bound);
            }
            self.put("]");
        }
    }

    /// `type '…'`; the fields of an interval stand behind the string.
    pub(super) fn typed_literal(&mut self, literal: &TypedLiteral) {
        self.base_type(&literal.type_name.base);
        self.put(" ");
        self.string(&literal.value);
        if let BaseType::Interval { fields: Some(fields), precision } = &literal.type_name.base {
            self.interval_fields(*fields, *precision);
        }
    }

    /// A type without the fields of an interval.
    fn base_type(&mut self, base: &BaseType) {
        match base {
            BaseType::Named { name, modifiers } => {
                self.object_name(name);
                self.modifiers(modifiers);
            }
            BaseType::SmallInt => self.put("smallint"),
            BaseType::Integer => self.put("integer"),
            BaseType::BigInt => self.put("bigint"),
            BaseType::Real => self.put("real"),
            BaseType::DoublePrecision => self.put("double precision"),
            BaseType::Boolean => self.put("boolean"),
            BaseType::Numeric(modifiers) => {
                self.put("numeric");
                self.modifiers(modifiers);
            }
            BaseType::Bit { is_varying, modifiers } => {
                self.put(if *is_varying { "bit varying" } else { "bit" });
                self.modifiers(modifiers);
            }
            BaseType::Character { is_varying, length } => {
                self.put(if *is_varying { "character varying" } else { "character" });
                self.precision(*length);
            }
            BaseType::Time { with_zone, precision } => self.time("time", *with_zone, *precision),
            BaseType::Timestamp { with_zone, precision } => self.time("timestamp", *with_zone, *precision),
            BaseType::Interval { fields, precision } => {
                self.put("interval");
                if fields.is_none() {
                    self.precision(*precision);
                }
            }
        }
    }

    fn time(&mut self, name: &str, with_zone: bool, precision: Option<i32>) {
        self.put(name);
        self.precision(precision);
        if with_zone {
            self.put(" with time zone");
        }
    }

    fn modifiers(&mut self, modifiers: &[Expr]) {
        if !modifiers.is_empty() {
            self.parenthesised(modifiers, Self::expr);
        }
    }

    pub(super) fn precision(&mut self, precision: Option<i32>) {
        if let Some(precision) = precision {
            self.put("(");
            self.integer(precision);
            self.put(")");
        }
    }

    /// The fields of an interval.
    pub(crate) fn interval_fields(&mut self, fields: IntervalFields, precision: Option<i32>) {
        self.put(match fields {
            IntervalFields::Year => " year",
            IntervalFields::Month => " month",
            IntervalFields::Day => " day",
            IntervalFields::Hour => " hour",
            IntervalFields::Minute => " minute",
            IntervalFields::Second => " second",
            IntervalFields::YearToMonth => " year to month",
            IntervalFields::DayToHour => " day to hour",
            IntervalFields::DayToMinute => " day to minute",
            IntervalFields::DayToSecond => " day to second",
            IntervalFields::HourToMinute => " hour to minute",
            IntervalFields::HourToSecond => " hour to second",
            IntervalFields::MinuteToSecond => " minute to second",
        });
        self.precision(precision);
    }
}
