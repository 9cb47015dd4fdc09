//! COLLATION FOR: which collation an expression has, by the rules of PostgreSQL's manual (chapter "Collation Support").

use super::attach::Pending;
use super::{Binder, Operand};
use firn_base::{Collation, Error, Result, SqlState, Type, TypeId, Value};
use firn_plan::Scalar;

/// The collation of an expression, and where it is from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Derived {
    /// Its type has none.
    None,
    /// From columns and types.
    Implicit(Collation),
    /// From COLLATE.
    Explicit(Collation),
    /// From several that differ.
    Conflict,
}

impl Derived {
    /// The collation of what is made of two expressions.
    fn with(self, other: Derived) -> Derived {
        use Derived::{Conflict, Explicit, Implicit, None};
        match (self, other) {
            (None, one) | (one, None) => one,
            (Explicit(one), Explicit(other)) if one == other => self,
            (Explicit(_), Explicit(_)) => Conflict,
            (Explicit(_), _) => self,
            (_, Explicit(_)) => other,
            (Conflict, _) | (_, Conflict) => Conflict,
            (Implicit(one), Implicit(other)) if one == other => self,
            (Implicit(Collation::DEFAULT), _) => other,
            (_, Implicit(Collation::DEFAULT)) => self,
            (Implicit(_), Implicit(_)) => Conflict,
        }
    }
}

impl Binder<'_> {
    /// The name of the collation of an operand. 42804 if its type has none.
    pub(super) fn collation_for(&self, operand: &Operand, at: u32) -> Result<Operand> {
        let ty = Type::new(TypeId::TEXT);
        let name = match operand.ty.id {
            TypeId::UNKNOWN => None,
            id if operand.ty.collation == Collation::NONE => {
                // PostgreSQL finds it when the statement runs: without a position.
                let message = format!("collations are not supported by type {}", crate::resolve::name(id));
                return Err(Error::new(SqlState::DATATYPE_MISMATCH, message));
            }
            _ => match self.derived(&operand.scalar) {
                Derived::Implicit(collation) | Derived::Explicit(collation) => name(collation),
                Derived::None | Derived::Conflict => None,
            },
        };
        let value = name.map_or(Value::Null, |name| Value::Text(name.to_owned()));
        Ok(Operand { scalar: Scalar::Constant(ty, value), ty, at })
    }

    fn derived(&self, scalar: &Scalar) -> Derived {
        let own = scalar.ty(&self.plan.columns);
        if own.collation == Collation::NONE {
            return Derived::None;
        }
        let of_parts = match scalar {
            Scalar::Column(column) => match self.pending.get(column) {
                Some(Pending::Value(value)) => self.derived(value),
                _ => {
                    let aggregates = self.levels.iter().flat_map(|level| &level.aggregates);
                    let found = aggregates.into_iter().find(|call| call.output == *column);
                    found.map_or(Derived::None, |call| self.derived_of_all(&call.arguments))
                }
            },
            Scalar::Cast(cast) => {
                let from = cast.argument.ty(&self.plan.columns);
                let is_collate =
                    cast.function.is_none() && (from.id, from.modifier) == (own.id, own.modifier);
                match is_collate {
                    true => Derived::Explicit(own.collation),
                    false => self.derived(&cast.argument),
                }
            }
            Scalar::Case(case) => {
                let results = case.arms.iter().map(|(_, result)| self.derived(result));
                results.fold(self.derived(&case.otherwise), Derived::with)
            }
            other => {
                let mut all = Derived::None;
                other.for_each_child(|child| all = all.with(self.derived(child)));
                all
            }
        };
        match of_parts {
            Derived::None => Derived::Implicit(own.collation),
            known => known,
        }
    }

    fn derived_of_all(&self, scalars: &[Scalar]) -> Derived {
        scalars.iter().map(|scalar| self.derived(scalar)).fold(Derived::None, Derived::with)
    }
}

/// The name of a collation, quoted.
fn name(collation: Collation) -> Option<&'static str> {
    Some(match collation {
        Collation::DEFAULT => "\"default\"",
        Collation::C => "\"C\"",
        Collation::POSIX => "\"POSIX\"",
        _ => return None,
    })
}
