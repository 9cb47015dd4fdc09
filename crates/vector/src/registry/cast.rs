//! Casts: how values of one type become values of another, and where that happens unasked.

use super::{FunctionId, Registry};
use firn_base::type_table::{self, TypeKind};
use firn_base::{Type, TypeId};

/// Where a cast is applied.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum CastContext {
    /// Anywhere.
    Implicit,
    /// Where a value is assigned to a column, and where it is asked for.
    Assignment,
    /// Where it is asked for.
    Explicit,
}

/// How a cast is done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CastMethod {
    /// By a function of the value, perhaps of the target's modifier, and perhaps of whether the cast is explicit.
    Function(FunctionId),
    /// The values stay as they are.
    Relabel,
    /// By the text of the value: the output function of its type, then the input function of the other.
    InputOutput {
        /// Writes the text.
        output: FunctionId,
        /// Reads it.
        input: FunctionId,
    },
    /// An array, by a cast of each element.
    Elements(Box<CastMethod>),
}

/// A cast.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cast {
    /// From which type.
    pub source: TypeId,
    /// To which type.
    pub target: TypeId,
    /// Where it is applied.
    pub context: CastContext,
    /// How.
    pub method: CastMethod,
}

impl Registry {
    /// The cast from one type to another: that of `pg_cast`, or of arrays that of their elements, or by the text of values from
    /// and to types of strings. Types that are the same have none but that which applies a modifier.
    pub fn cast(&self, source: TypeId, target: TypeId) -> Option<Cast> {
        if let Some(cast) = self.listed_cast(source, target) {
            return Some(cast.clone());
        }
        if source == target {
            return None;
        }
        let (from, to) = (type_table::info(source)?, type_table::info(target)?);
        let has_text = matches!(source, TypeId::UNKNOWN | TypeId::RECORD | TypeId::RECORD_ARRAY);
        if from.kind == TypeKind::Pseudo && !has_text || to.kind == TypeKind::Pseudo {
            return None;
        }
        // Vectors are arrays whose indexes begin at 0, but nothing becomes one by its elements.
        let is_vector = matches!(source, TypeId::INT2VECTOR | TypeId::OIDVECTOR);
        if is_vector && from.element == to.element && to.is_array() {
            return Some(Cast {
                source,
                target,
                context: CastContext::Implicit,
                method: CastMethod::Relabel,
            });
        }
        if (from.is_array() || is_vector) && to.is_array() {
            let element = self.cast(from.element?, to.element?)?;
            let method = match element.method {
                CastMethod::InputOutput { .. } => self.by_text(source, target)?,
                method => CastMethod::Elements(Box::new(method)),
            };
            return Some(Cast { source, target, context: element.context, method });
        }
        let context = if to.category == b'S' {
            CastContext::Assignment
        } else if from.category == b'S' || source == TypeId::UNKNOWN {
            CastContext::Explicit
        } else {
            return None;
        };
        Some(Cast { source, target, context, method: self.by_text(source, target)? })
    }

    /// The cast that makes values of a type fit a modifier, if the type has modifiers.
    pub fn modifier_cast(&self, ty: TypeId) -> Option<FunctionId> {
        match self.listed_cast(ty, ty)?.method {
            CastMethod::Function(function) => Some(function),
            _ => None,
        }
    }

    /// How values of a type become values of the same type with another modifier. Those of an array fit its elements.
    pub fn refit(&self, source: Type, target: Type) -> CastMethod {
        let element = target.element().filter(|_| target.info().is_some_and(|info| info.is_array()));
        match element.and_then(|element| self.modifier_cast(element.id)) {
            Some(function) if target.modifier >= 0 && source.modifier != target.modifier => {
                CastMethod::Elements(Box::new(CastMethod::Function(function)))
            }
            _ => CastMethod::Relabel,
        }
    }

    pub(super) fn by_text(&self, source: TypeId, target: TypeId) -> Option<CastMethod> {
        Some(CastMethod::InputOutput { output: self.output(source)?, input: self.input(target)? })
    }
}
