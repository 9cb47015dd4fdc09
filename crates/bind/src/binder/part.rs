//! Assignments to parts of array columns: `SET a[1] = …`, `SET a[1:2] = …`, `INSERT INTO t (a[1]) …`.
//!
//! The column gets what it is, or what assignments before have made of it, with the part replaced: a call of `array_set_element` or
//! `array_set_slice`.

use super::{Binder, Clause, Operand};
use crate::catalog::{Attribute, Relation};
use crate::resolve::name as type_name;
use firn_base::{Error, Result, SqlState, Type, TypeId, Value};
use firn_plan::Scalar;
use firn_syntax::tree::{Accessor, TargetColumn};
use firn_vector::registry::CastContext;

/// A column that a statement gives a value, or a part of one.
#[derive(Clone, Copy)]
pub(super) struct TargetPlace<'t> {
    /// The place of the column in its relation.
    pub place: usize,
    /// Where it stands.
    pub at: u32,
    /// The subscripts behind its name.
    pub path: &'t [Accessor],
}

impl Binder<'_> {
    /// The column of a relation that a statement names, with subscripts of arrays alone.
    pub(super) fn target_column<'t>(
        &self,
        relation: &Relation,
        column: &'t TargetColumn,
    ) -> Result<TargetPlace<'t>> {
        let at = column.name.span.start;
        let Some((place, attribute)) = relation.column(&column.name.text) else {
            let message =
                format!("column \"{}\" of relation \"{}\" does not exist", column.name.text, relation.name);
            return Err(self.error(SqlState::UNDEFINED_COLUMN, message, at));
        };
        for (number, accessor) in column.path.iter().enumerate() {
            let is_array = attribute.ty.element().is_some() && attribute.ty.id != TypeId::NAME;
            match accessor {
                Accessor::Field(field) => {
                    let ty = match attribute.ty.element() {
                        Some(element) if number > 0 => element,
                        _ => attribute.ty,
                    };
                    let message = format!(
                        "cannot assign to field \"{}\" of column \"{}\" because its type {} is not a composite type",
                        field.text,
                        attribute.name,
                        type_name(ty.id)
                    );
                    return Err(self.error(SqlState::DATATYPE_MISMATCH, message, at));
                }
                Accessor::AllFields => {
                    let message = "row expansion via \"*\" is not supported here";
                    return Err(self.error(SqlState::SYNTAX_ERROR, message, at));
                }
                Accessor::Subscript(_) | Accessor::Slice(_) if is_array => {}
                Accessor::Subscript(_) | Accessor::Slice(_) => {
                    // PostgreSQL reports it without a position.
                    let message = format!(
                        "cannot subscript type {} because it does not support subscripting",
                        type_name(attribute.ty.id)
                    );
                    return Err(Error::new(SqlState::DATATYPE_MISMATCH, message));
                }
            }
        }
        Ok(TargetPlace { place, at, path: &column.path })
    }

    /// The type of what is assigned.
    pub(super) fn target_type(&self, attribute: &Attribute, target: TargetPlace<'_>) -> Type {
        let is_element =
            !target.path.is_empty() && target.path.iter().all(|part| matches!(part, Accessor::Subscript(_)));
        match attribute.ty.element() {
            Some(element) if is_element => element,
            _ => attribute.ty,
        }
    }

    /// A value as one of a column or of a part of it.
    pub(super) fn assigned_to(
        &mut self,
        operand: Operand,
        attribute: &Attribute,
        target: TargetPlace<'_>,
    ) -> Result<Operand> {
        if target.path.is_empty() {
            return self.assigned(operand, attribute);
        }
        let ty = self.target_type(attribute, target);
        let (from, at) = (operand.ty.id, operand.at);
        match self.coerce_to(operand, ty, CastContext::Assignment)? {
            Some(operand) => Ok(operand),
            None => {
                let message = format!(
                    "subscripted assignment to \"{}\" requires type {} but expression is of type {}",
                    attribute.name,
                    type_name(ty.id),
                    type_name(from)
                );
                let error = self.error(SqlState::DATATYPE_MISMATCH, message, at);
                Err(error.with_hint("You will need to rewrite or cast the expression."))
            }
        }
    }

    /// DEFAULT of a part.
    pub(super) fn check_default(&self, target: TargetPlace<'_>) -> Result<()> {
        match target.path.is_empty() {
            true => Ok(()),
            false => Err(self.unsupported_as("cannot set an array element to DEFAULT", target.at)),
        }
    }

    /// Adds a value to those of a row: one of a column of its own, or a part of what `values` has of the column, else of `base`.
    pub(super) fn add_target(
        &mut self,
        values: &mut Vec<(i16, Scalar)>,
        attribute: &Attribute,
        target: TargetPlace<'_>,
        base: Option<Scalar>,
        value: Scalar,
        clause: Clause,
    ) -> Result<()> {
        if target.path.is_empty() {
            values.push((attribute.number, value));
            return Ok(());
        }
        let before = values.iter().position(|(number, _)| *number == attribute.number);
        let array = match before {
            Some(place) => values.remove(place).1,
            None => base.unwrap_or(Scalar::Constant(attribute.ty, Value::Null)),
        };
        let operand = |scalar: Scalar, ty: Type| Operand { scalar, ty, at: target.at };
        let ty = self.target_type(attribute, target);
        let mut arguments = vec![operand(array, attribute.ty), operand(value, ty)];
        let accessors: Vec<&Accessor> = target.path.iter().collect();
        self.check_subscripts(&accessors)?;
        let is_slice = accessors.iter().any(|accessor| matches!(accessor, Accessor::Slice(_)));
        let function = match is_slice {
            true => "array_set_slice",
            false => "array_set_element",
        };
        let bounds = self.within(clause, |binder| match is_slice {
            true => binder.bounds(&accessors, target.at),
            false => binder.element_subscripts(&accessors),
        })?;
        arguments.extend(bounds);
        let call = self.call_named(function, arguments, target.at)?;
        let array = self.conformed(Operand { ty: attribute.ty, ..call }, attribute.ty);
        values.push((attribute.number, array.scalar));
        Ok(())
    }
}
