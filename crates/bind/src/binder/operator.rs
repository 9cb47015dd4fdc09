//! Operators: which one a symbol means between operands of some types.

use super::states::AMBIGUOUS_FUNCTION;
use super::{Binder, Operand};
use crate::resolve::{can_coerce, name, resolve_polymorphic, select};
use firn_base::{Error, Result, SqlState, Type, TypeId};
use firn_plan::scalar::Call;
use firn_plan::{Function, Scalar};
use firn_syntax::tree;
use firn_vector::registry::{CastContext, Operator};
use std::sync::Arc;

/// An operator, with the types that its operands and its result get.
pub(super) struct Chosen {
    pub operator: Arc<Operator>,
    pub function: Function,
    /// What the operands are cast to.
    pub operands: Vec<TypeId>,
    pub result: TypeId,
}

impl Binder<'_> {
    /// The operator that a symbol means between types. A prefix operator has no left one.
    pub(super) fn choose_operator(
        &mut self,
        operator: &tree::Operator,
        left: Option<TypeId>,
        right: TypeId,
        at: u32,
    ) -> Result<Chosen> {
        let symbol = operator.symbol();
        let is_ours = match operator.qualifiers() {
            [] => true,
            [schema] => &*schema.text == "pg_catalog",
            _ => false,
        };
        let named = if is_ours { self.registry.operators_named(symbol) } else { &[] };
        let inputs: Vec<TypeId> = left.into_iter().chain([right]).collect();
        let found = match self.exact_operator(symbol, is_ours, left, right) {
            Some(found) => found,
            None => {
                let types_of = |operator: &Operator| -> Vec<TypeId> {
                    operator.left.into_iter().chain([operator.right]).collect()
                };
                let candidates: Vec<(usize, Vec<TypeId>)> = named
                    .iter()
                    .enumerate()
                    .filter(|(_, operator)| operator.left.is_some() == left.is_some())
                    .map(|(place, operator)| (place, types_of(operator)))
                    .filter(|(_, types)| can_coerce(self.registry, &inputs, types, CastContext::Implicit))
                    .collect();
                let is_none = candidates.is_empty();
                let selected = match &candidates[..] {
                    [(only, _)] => Some(*only),
                    _ => select(self.registry, &inputs, candidates),
                };
                match selected {
                    Some(place) => named[place].clone(),
                    None => return Err(self.no_operator(operator, left, right, !is_none, at)),
                }
            }
        };
        let declared: Vec<TypeId> = found.left.into_iter().chain([found.right]).collect();
        let resolved = resolve_polymorphic(self.registry, &inputs, &declared, found.result, false);
        let (operands, result) = resolved.map_err(|mismatch| {
            let error = self.error(SqlState::DATATYPE_MISMATCH, mismatch.message, at);
            mismatch.detail.into_iter().fold(error, Error::with_detail)
        })?;
        let function =
            self.registry.function(found.function).expect("operators call functions of the registry");
        let function = self.handles.of(self.registry, function);
        Ok(Chosen { operator: found, function, operands, result })
    }

    /// A literal beside an operand of a known type is of that type if such an operator exists.
    fn exact_operator(
        &self,
        symbol: &str,
        is_ours: bool,
        left: Option<TypeId>,
        right: TypeId,
    ) -> Option<Arc<Operator>> {
        if !is_ours {
            return None;
        }
        let (left, right) = match (left, right) {
            (Some(TypeId::UNKNOWN), right) => (Some(right), right),
            (Some(left), TypeId::UNKNOWN) => (Some(left), left),
            other => other,
        };
        self.registry.operator_of(symbol, left, right).cloned()
    }

    #[cold]
    fn no_operator(
        &self,
        operator: &tree::Operator,
        left: Option<TypeId>,
        right: TypeId,
        is_ambiguous: bool,
        at: u32,
    ) -> Error {
        if let Err(error) = self.check_schema(operator.qualifiers(), at) {
            return error;
        }
        let mut shown = String::new();
        if let Some(left) = left {
            shown.push_str(&name(left));
            shown.push(' ');
        }
        for qualifier in operator.qualifiers() {
            shown.push_str(&qualifier.text);
            shown.push('.');
        }
        shown.push_str(operator.symbol());
        shown.push(' ');
        shown.push_str(&name(right));
        if is_ambiguous {
            self.error(AMBIGUOUS_FUNCTION, format!("operator is not unique: {shown}"), at).with_hint(
                "Could not choose a best candidate operator. You might need to add explicit type casts.",
            )
        } else {
            let hint = if left.is_some() {
                "No operator matches the given name and argument types. You might need to add explicit type casts."
            } else {
                "No operator matches the given name and argument type. You might need to add an explicit type cast."
            };
            self.error(SqlState::UNDEFINED_FUNCTION, format!("operator does not exist: {shown}"), at)
                .with_hint(hint)
        }
    }

    /// `left operator right`, or `operator right`.
    pub(super) fn apply_operator(
        &mut self,
        operator: &tree::Operator,
        left: Option<Operand>,
        right: Operand,
        at: u32,
    ) -> Result<Operand> {
        let (left, right) = match (left, is_comparison(operator)) {
            (Some(left), true) => (Some(self.compared(left)?), self.compared(right)?),
            (left, _) => (left, right),
        };
        let chosen = self.choose_operator(operator, left.as_ref().map(|left| left.ty.id), right.ty.id, at)?;
        let start = left.as_ref().map_or(at, |left| left.at).min(at);
        let operands = left.into_iter().chain([right]).collect();
        let scalar = self.call_operator(&chosen, operands)?;
        let ty = scalar.ty(&self.plan.columns);
        Ok(Operand { scalar, ty, at: start })
    }

    /// A call of a chosen operator. `a + b + c` is one call.
    pub(super) fn call_operator(&mut self, chosen: &Chosen, operands: Vec<Operand>) -> Result<Scalar> {
        let mut arguments = Vec::with_capacity(operands.len());
        for (operand, ty) in operands.into_iter().zip(&chosen.operands) {
            arguments.push(self.coerce(operand, *ty, false)?.scalar);
        }
        let ty = Type::new(chosen.result);
        let continues = chosen.operands.len() == 2 && chosen.operands[0] == chosen.result;
        if continues
            && let Scalar::Call(call) = &mut arguments[0]
            && call.as_operator
            && call.function == chosen.function
            && call.ty == ty
            && call.arguments.len() >= 2
        {
            let right = arguments.pop().expect("there are two");
            let Some(Scalar::Call(mut call)) = arguments.pop() else { unreachable!("it was just seen") };
            call.arguments.push(right);
            return Ok(Scalar::Call(call));
        }
        Ok(Scalar::Call(Box::new(Call {
            function: chosen.function.clone(),
            as_operator: true,
            arguments,
            ty,
        })))
    }

    /// Whether values of a type can be grouped.
    pub(super) fn check_equality(&self, ty: Type, at: u32) -> Result<()> {
        if self.compares(ty.id, firn_vector::registry::Strategy::Equal) {
            return Ok(());
        }
        let message = format!("could not identify an equality operator for type {}", name(ty.id));
        Err(self.error(SqlState::UNDEFINED_FUNCTION, message, at))
    }

    /// Whether values of a type can be ordered.
    pub(super) fn check_order(&self, ty: Type, at: u32) -> Result<()> {
        if self.compares(ty.id, firn_vector::registry::Strategy::Less) {
            return Ok(());
        }
        let message = format!("could not identify an ordering operator for type {}", name(ty.id));
        let error = self.error(SqlState::UNDEFINED_FUNCTION, message, at);
        Err(error.with_hint("Use an explicit ordering operator or modify the query."))
    }

    fn compares(&self, id: TypeId, strategy: firn_vector::registry::Strategy) -> bool {
        let symbol = if strategy == firn_vector::registry::Strategy::Less { "<" } else { "=" };
        if let Some(element) = Type::new(id).element().filter(|_| crate::types::is_array(id)) {
            return self.compares(element.id, strategy);
        }
        self.registry.order(id, id, strategy).is_some()
            || self.registry.operator_of(symbol, Some(id), id).is_some()
            || id == TypeId::RECORD
            || [TypeId::TEXT, TypeId::OID].iter().any(|base| {
                id != *base
                    && crate::types::is_binary_coercible(self.registry, id, *base)
                    && self.registry.operator_of(symbol, Some(*base), *base).is_some()
            })
    }
}

fn is_comparison(operator: &tree::Operator) -> bool {
    use tree::Operator::{Equal, Greater, GreaterEqual, Less, LessEqual, NotEqual};
    matches!(operator, Equal | NotEqual | Less | LessEqual | Greater | GreaterEqual)
}
