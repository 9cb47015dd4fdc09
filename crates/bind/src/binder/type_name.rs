//! Types as text names them.

use super::Binder;
use firn_base::{Result, SqlState, Type, TypeId, type_table};
use firn_syntax::tree::{BaseType, Expr, ExprKind, IntervalFields, PrefixKind, TypeName};

/// What PostgreSQL adds to a length to make a modifier.
const HEADER: i32 = 4;
const MOST_CHARACTERS: i32 = 10 * 1024 * 1024;

impl Binder<'_> {
    /// The type of that name. A literal's `char` has no length.
    pub(super) fn type_named(&self, type_name: &TypeName, in_literal: bool) -> Result<Type> {
        let at = type_name.span.start;
        if type_name.is_set {
            return Err(self.error(SqlState::INVALID_TABLE_DEFINITION, "type cannot be a set", at));
        }
        let ty = self.base_type(&type_name.base, in_literal, at)?;
        if type_name.bounds.is_empty() {
            return Ok(ty);
        }
        ty.array().ok_or_else(|| {
            let message = format!("could not find array type for data type {}", crate::resolve::name(ty.id));
            self.error(SqlState::UNDEFINED_OBJECT, message, at)
        })
    }

    fn base_type(&self, base: &BaseType, in_literal: bool, at: u32) -> Result<Type> {
        let precise = |id: TypeId, precision: Option<i32>| {
            // More digits than there are is a warning in PostgreSQL.
            Type::new(id).with_modifier(precision.map_or(-1, |digits| digits.min(6)))
        };
        Ok(match base {
            BaseType::SmallInt => Type::new(TypeId::INT2),
            BaseType::Integer => Type::new(TypeId::INT4),
            BaseType::BigInt => Type::new(TypeId::INT8),
            BaseType::Real => Type::new(TypeId::FLOAT4),
            BaseType::DoublePrecision => Type::new(TypeId::FLOAT8),
            BaseType::Boolean => Type::new(TypeId::BOOL),
            BaseType::Numeric(modifiers) => self.with_modifiers(TypeId::NUMERIC, modifiers, at)?,
            BaseType::Bit { .. } => return Err(self.unsupported("type bit", at)),
            BaseType::Character { is_varying, length } => {
                let id = if *is_varying { TypeId::VARCHAR } else { TypeId::BPCHAR };
                let default = if *is_varying || in_literal { None } else { Some(1) };
                match length.or(default) {
                    Some(length) => self.limited(id, length, at)?,
                    None => Type::new(id),
                }
            }
            BaseType::Time { with_zone: true, .. } => {
                return Err(self.unsupported("type time with time zone", at));
            }
            BaseType::Time { precision, .. } => precise(TypeId::TIME, *precision),
            BaseType::Timestamp { with_zone, precision } => {
                precise(if *with_zone { TypeId::TIMESTAMPTZ } else { TypeId::TIMESTAMP }, *precision)
            }
            BaseType::Interval { fields, precision } => {
                Type::new(TypeId::INTERVAL).with_modifier(interval_modifier(*fields, *precision))
            }
            BaseType::Named { name, modifiers } => {
                let schema = name.schema().map(|schema| &*schema.text);
                let built_in = match schema {
                    None | Some("pg_catalog") => type_table::by_name(&name.name.text).map(|info| info.id),
                    Some(_) => None,
                };
                let found = built_in.or_else(|| self.catalog.type_named(schema, &name.name.text));
                let Some(id) = found else {
                    self.check_schema(&name.qualifiers, at)?;
                    let name: Vec<&str> = name.parts().map(|part| &*part.text).collect();
                    let message = format!("type \"{}\" does not exist", name.join("."));
                    return Err(self.error(SqlState::UNDEFINED_OBJECT, message, at));
                };
                self.with_modifiers(id, modifiers, at)?
            }
        })
    }

    fn limited(&self, id: TypeId, length: i32, at: u32) -> Result<Type> {
        let name = if id == TypeId::VARCHAR { "varchar" } else { "char" };
        let message = if length < 1 {
            format!("length for type {name} must be at least 1")
        } else if length > MOST_CHARACTERS {
            format!("length for type {name} cannot exceed {MOST_CHARACTERS}")
        } else {
            return Ok(Type::new(id).with_modifier(length + HEADER));
        };
        Err(self.error(SqlState::INVALID_PARAMETER_VALUE, message, at))
    }

    fn with_modifiers(&self, id: TypeId, modifiers: &[Expr], at: u32) -> Result<Type> {
        let ty = Type::new(id);
        if modifiers.is_empty() {
            return Ok(ty);
        }
        let numbers: Vec<i32> = modifiers
            .iter()
            .map(|modifier| {
                whole_number(modifier).ok_or_else(|| {
                    self.error(
                        SqlState::INVALID_PARAMETER_VALUE,
                        "invalid type modifier",
                        modifier.span.start,
                    )
                })
            })
            .collect::<Result<_>>()?;
        let invalid = |message: String| self.error(SqlState::INVALID_PARAMETER_VALUE, message, at);
        match (id, &numbers[..]) {
            (TypeId::NUMERIC, [precision] | [precision, _]) if !(1..=1000).contains(precision) => {
                Err(invalid(format!("NUMERIC precision {precision} must be between 1 and 1000")))
            }
            (TypeId::NUMERIC, [_, scale]) if !(-1000..=1000).contains(scale) => {
                Err(invalid(format!("NUMERIC scale {scale} must be between -1000 and 1000")))
            }
            (TypeId::NUMERIC, [precision]) => Ok(Type::numeric(*precision as u16, 0)),
            (TypeId::NUMERIC, [precision, scale]) => Ok(Type::numeric(*precision as u16, *scale as i16)),
            (TypeId::NUMERIC, _) => Err(invalid("invalid NUMERIC type modifier".to_owned())),
            (TypeId::VARCHAR | TypeId::BPCHAR, [length]) => self.limited(id, *length, at),
            (TypeId::TIME | TypeId::TIMESTAMP | TypeId::TIMESTAMPTZ, [digits]) => {
                Ok(ty.with_modifier((*digits).min(6)))
            }
            (TypeId::INTERVAL, [digits]) => Ok(ty.with_modifier(interval_modifier(None, Some(*digits)))),
            _ => {
                let name = ty.info().map_or("?", |info| info.name);
                Err(self.error(
                    SqlState::SYNTAX_ERROR,
                    format!("type modifier is not allowed for type \"{name}\""),
                    at,
                ))
            }
        }
    }
}

fn whole_number(modifier: &Expr) -> Option<i32> {
    match &modifier.kind {
        ExprKind::Integer(value) => Some(*value),
        ExprKind::Prefix(prefix) => match (&prefix.operators[..], &prefix.operand.kind) {
            ([operator], ExprKind::Integer(value)) => match &operator.kind {
                PrefixKind::Operator(symbol) if symbol.symbol() == "-" => Some(-value),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    }
}

/// The modifier of an interval that is limited to fields or digits; -1 without.
fn interval_modifier(fields: Option<IntervalFields>, precision: Option<i32>) -> i32 {
    const YEAR: i32 = 1 << 2;
    const MONTH: i32 = 1 << 1;
    const DAY: i32 = 1 << 3;
    const HOUR: i32 = 1 << 10;
    const MINUTE: i32 = 1 << 11;
    const SECOND: i32 = 1 << 12;
    if fields.is_none() && precision.is_none() {
        return -1;
    }
    let fields = fields.map_or(0x7fff, |fields| match fields {
        IntervalFields::Year => YEAR,
        IntervalFields::Month => MONTH,
        IntervalFields::Day => DAY,
        IntervalFields::Hour => HOUR,
        IntervalFields::Minute => MINUTE,
        IntervalFields::Second => SECOND,
        IntervalFields::YearToMonth => YEAR | MONTH,
        IntervalFields::DayToHour => DAY | HOUR,
        IntervalFields::DayToMinute => DAY | HOUR | MINUTE,
        IntervalFields::DayToSecond => DAY | HOUR | MINUTE | SECOND,
        IntervalFields::HourToMinute => HOUR | MINUTE,
        IntervalFields::HourToSecond => HOUR | MINUTE | SECOND,
        IntervalFields::MinuteToSecond => MINUTE | SECOND,
    });
    fields << 16 | precision.map_or(0xffff, |digits| digits.min(6))
}
