//! Casts: implicit ones, assignments, and those that the statement asks for.

use super::{Binder, Operand};
use crate::resolve::{can_coerce_one, name, pick_common};
use crate::types::{Path, path};
use firn_base::{Result, SqlState, Type, TypeId, Value, interval};
use firn_plan::Scalar;
use firn_plan::scalar::Cast;
use firn_vector::registry::{CastContext, CastMethod};

impl Binder<'_> {
    /// An operand as a value of a type that it can be cast to, without the type's modifier. `written` says that the statement
    /// asks for the cast.
    pub(super) fn coerce(&mut self, operand: Operand, target: TypeId, written: bool) -> Result<Operand> {
        let at = operand.at;
        let from = operand.ty;
        if from.id == target || target == TypeId::ANY {
            return Ok(operand);
        }
        let ty = Type::new(target);
        let scalar = match operand.scalar {
            Scalar::Constant(Type { id: TypeId::UNKNOWN, .. }, Value::Text(text)) => {
                self.read_literal(&text, ty, at)?
            }
            Scalar::Constant(_, Value::Null) => Scalar::Constant(ty, Value::Null),
            Scalar::Parameter(number, Type { id: TypeId::UNKNOWN, .. }) => {
                self.determine_parameter(number, target, at)?;
                Scalar::Parameter(number, ty)
            }
            Scalar::Cast(cast) if is_wide_number(&cast) && is_floating(target) => {
                let Scalar::Constant(_, Value::Text(digits)) = &cast.argument else {
                    unreachable!("a wide number is a constant")
                };
                self.read_literal(digits, ty, at)?
            }
            argument => {
                let (function, can_fail) = match path(self.registry, from.id, target, CastContext::Explicit) {
                    Some(Path::Cast(method)) => self.cast_method(&method),
                    Some(Path::Relabel) => (None, false),
                    None => (None, true),
                };
                Scalar::Cast(Box::new(Cast { argument, ty, function, implicit: !written, can_fail }))
            }
        };
        Ok(Operand { scalar, ty, at })
    }

    /// An operand of a comparison. A number beyond the range of numeric becomes a double precision one: it compares with
    /// every number that there is as it does with the nearest double.
    pub(super) fn compared(&mut self, operand: Operand) -> Result<Operand> {
        match &operand.scalar {
            Scalar::Cast(cast) if is_wide_number(cast) => self.coerce(operand, TypeId::FLOAT8, false),
            _ => Ok(operand),
        }
    }

    fn cast_method(&mut self, method: &CastMethod) -> (Option<firn_plan::Function>, bool) {
        match method {
            CastMethod::Function(id) => {
                let function = self.registry.function(*id).expect("casts name functions of the registry");
                let function = self.handles.of(self.registry, function);
                let can_fail = function.can_fail;
                (Some(function), can_fail)
            }
            CastMethod::Relabel => (None, false),
            CastMethod::InputOutput { input, .. } => {
                let input = self.registry.function(*input).expect("casts name functions of the registry");
                (None, input.can_fail)
            }
            CastMethod::Elements(method) => (None, self.cast_method(method).1),
        }
    }

    /// An operand with the modifier of a type that it has already.
    pub(super) fn fit_modifier(&mut self, operand: Operand, target: Type, written: bool) -> Result<Operand> {
        if target.modifier < 0 && operand.ty.modifier >= 0 && written {
            // The same value of the type without a modifier.
            let cast = Cast {
                argument: operand.scalar,
                ty: target,
                function: None,
                implicit: false,
                can_fail: false,
            };
            return Ok(Operand { scalar: Scalar::Cast(Box::new(cast)), ty: target, at: operand.at });
        }
        if target.modifier < 0 || operand.ty.modifier == target.modifier {
            let ty =
                if target.modifier < 0 { Type { modifier: operand.ty.modifier, ..target } } else { target };
            return Ok(Operand { ty, ..operand });
        }
        if let Scalar::Constant(_, Value::Null) = operand.scalar {
            return Ok(Operand { scalar: Scalar::Constant(target, Value::Null), ty: target, at: operand.at });
        }
        let function = self.registry.modifier_cast(target.id);
        let function = function.and_then(|id| self.registry.function(id)).cloned();
        let function = function.map(|function| self.handles.of(self.registry, &function));
        // An assignment of a string that is too long fails, and of a number that does not fit.
        let can_fail = function.as_ref().is_none_or(|function| function.can_fail)
            || !written && matches!(target.id, TypeId::VARCHAR | TypeId::BPCHAR);
        let cast = Cast { argument: operand.scalar, ty: target, function, implicit: !written, can_fail };
        Ok(Operand { scalar: Scalar::Cast(Box::new(cast)), ty: target, at: operand.at })
    }

    /// An operand as a value of a type with its modifier; `None` if there is no cast in this context.
    pub(super) fn coerce_to(
        &mut self,
        operand: Operand,
        target: Type,
        context: CastContext,
    ) -> Result<Option<Operand>> {
        if !can_coerce_one(self.registry, operand.ty.id, target.id, context) {
            return Ok(None);
        }
        let written = context == CastContext::Explicit;
        if let Scalar::Constant(Type { id: TypeId::UNKNOWN, .. }, Value::Text(text)) = &operand.scalar
            && target.id == TypeId::INTERVAL
        {
            // The modifier says what a number without a unit counts.
            let span = interval::parse_within(text, target.modifier, self.style().intervals);
            let span = span.map_err(|error| self.placed(error, operand.at))?;
            let ty = Type::new(TypeId::INTERVAL);
            let value = Value::Interval(span);
            self.note_literal(text, ty, &value, operand.at);
            let scalar = Scalar::Constant(ty, value);
            return self.fit_modifier(Operand { scalar, ty, at: operand.at }, target, written).map(Some);
        }
        let plain = self.coerce(operand, target.id, written)?;
        self.fit_modifier(plain, target, written).map(Some)
    }

    /// `operand::target`. The cast stands at `at`.
    pub(super) fn cast(&mut self, operand: Operand, target: Type, at: u32) -> Result<Operand> {
        let (from, start) = (operand.ty, operand.at);
        let before = operand.scalar.clone();
        match self.coerce_to(operand, target, CastContext::Explicit)? {
            // A cast that changes nothing is kept as a type: `1::int`.
            Some(cast) if cast.scalar == before => Ok(Operand { ty: target_of(cast.ty, target), ..cast }),
            Some(cast) => Ok(Operand { at: start, ..cast }),
            None => Err(self.error(
                SqlState::CANNOT_COERCE,
                format!("cannot cast type {} to {}", self.type_name(from), name(target.id)),
                at,
            )),
        }
    }

    /// A condition. `construct` names where it stands.
    pub(super) fn boolean(&mut self, operand: Operand, construct: &str) -> Result<Operand> {
        self.specific(operand, TypeId::BOOL, construct)
    }

    /// An operand as a value of the type that a construct needs.
    pub(super) fn specific(&mut self, operand: Operand, target: TypeId, construct: &str) -> Result<Operand> {
        let (from, at) = (operand.ty, operand.at);
        match self.coerce_to(operand, Type::new(target), CastContext::Assignment)? {
            Some(operand) => Ok(operand),
            None => Err(self.error(
                SqlState::DATATYPE_MISMATCH,
                format!("argument of {construct} must be type {}, not type {}", name(target), name(from.id)),
                at,
            )),
        }
    }

    /// The type that several operands have in common, with its modifier. `construct` names what needs one.
    pub(super) fn common_type(&self, operands: &[Operand], construct: &str) -> Result<Type> {
        let types: Vec<TypeId> = operands.iter().map(|operand| operand.ty.id).collect();
        match pick_common(self.registry, &types) {
            Ok(id) => Ok(common_modifier(operands.iter().map(|operand| operand.ty), id)),
            Err((place, picked)) => Err(self.error(
                SqlState::DATATYPE_MISMATCH,
                format!("{construct} types {} and {} cannot be matched", name(picked), name(types[place])),
                operands[place].at,
            )),
        }
    }

    /// Operands as values of their common type.
    pub(super) fn as_common(
        &mut self,
        operands: Vec<Operand>,
        construct: &str,
    ) -> Result<(Vec<Operand>, Type)> {
        let ty = self.common_type(&operands, construct)?;
        let list = operands.into_iter().map(|operand| self.coerce_common(operand, ty, construct));
        Ok((list.collect::<Result<_>>()?, ty))
    }

    /// An operand as a value of a type that was picked as the common one.
    pub(super) fn coerce_common(
        &mut self,
        operand: Operand,
        target: Type,
        construct: &str,
    ) -> Result<Operand> {
        if !can_coerce_one(self.registry, operand.ty.id, target.id, CastContext::Implicit) {
            return Err(self.error(
                SqlState::CANNOT_COERCE,
                format!("{construct} could not convert type {} to {}", name(operand.ty.id), name(target.id)),
                operand.at,
            ));
        }
        let operand = self.coerce(operand, target.id, false)?;
        Ok(self.conformed(operand, target))
    }

    /// An operand whose values lie as those of a type with another modifier do.
    pub(super) fn conformed(&self, operand: Operand, target: Type) -> Operand {
        let own = operand.scalar.ty(&self.plan.columns);
        if own.representation() == target.representation() {
            return operand;
        }
        let cast =
            Cast { argument: operand.scalar, ty: target, function: None, implicit: true, can_fail: false };
        Operand { scalar: Scalar::Cast(Box::new(cast)), ty: target, at: operand.at }
    }
}

fn target_of(ty: Type, target: Type) -> Type {
    Type { collation: target.collation, ..ty }
}

/// A type with the modifier that all of these have, if they are of that type.
pub(super) fn common_modifier(types: impl Iterator<Item = Type>, id: TypeId) -> Type {
    let none = Type::new(id);
    // What NULL is beside rows of a table is another of them.
    let mut types = types.filter(|ty| id != TypeId::RECORD || ty.id != TypeId::UNKNOWN);
    let Some(first) = types.next().filter(|first| first.id == id) else { return none };
    if types.all(|ty| ty.id == id && ty.modifier == first.modifier) {
        none.with_modifier(first.modifier)
    } else {
        none
    }
}

/// Whether a cast stands for a numeric constant with more digits than a value can have.
fn is_wide_number(cast: &Cast) -> bool {
    let is_text =
        matches!(&cast.argument, Scalar::Constant(Type { id: TypeId::UNKNOWN, .. }, Value::Text(_)));
    is_text && cast.implicit && cast.ty.id == TypeId::NUMERIC
}

fn is_floating(ty: TypeId) -> bool {
    matches!(ty, TypeId::FLOAT4 | TypeId::FLOAT8)
}
