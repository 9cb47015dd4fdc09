//! Parameters: their types are given, or the first use that needs a type determines it.

use super::states::AMBIGUOUS_PARAMETER;
use super::{Binder, Operand};
use crate::resolve::name;
use firn_base::{Result, SqlState, Type, TypeId};
use firn_plan::{NodeId, Scalar};

/// The types of a statement's parameters.
pub(crate) struct Parameters {
    types: Vec<Option<TypeId>>,
}

/// PostgreSQL's limit of parameters in a message.
const MOST: u32 = 65_535;

impl Parameters {
    pub fn new(given: &[Option<TypeId>]) -> Parameters {
        let known = |ty: &Option<TypeId>| ty.filter(|ty| *ty != TypeId::UNKNOWN && ty.0 != 0);
        Parameters { types: given.iter().map(known).collect() }
    }
}

impl Binder<'_> {
    /// `$number`
    pub(super) fn parameter(&mut self, number: u32, at: u32) -> Result<Operand> {
        // A definition has none.
        if number == 0 || number > MOST || self.uses.is_some() {
            return Err(self.error(
                SqlState::UNDEFINED_PARAMETER,
                format!("there is no parameter ${number}"),
                at,
            ));
        }
        let place = number as usize - 1;
        if self.parameters.types.len() <= place {
            self.parameters.types.resize(place + 1, None);
        }
        let ty = Type::new(self.parameters.types[place].unwrap_or(TypeId::UNKNOWN));
        Ok(Operand { scalar: Scalar::Parameter(number as u16, ty), ty, at })
    }

    /// Gives a parameter whose type is not known a type.
    pub(super) fn determine_parameter(&mut self, number: u16, ty: TypeId, at: u32) -> Result<()> {
        let place = usize::from(number) - 1;
        match self.parameters.types[place] {
            None => self.parameters.types[place] = Some(ty),
            Some(before) if before != ty => {
                let error = self.error(
                    AMBIGUOUS_PARAMETER,
                    format!("inconsistent types deduced for parameter ${number}"),
                    at,
                );
                return Err(error.with_detail(format!("{} versus {}", name(before), name(ty))));
            }
            Some(_) => {}
        }
        Ok(())
    }

    /// The types of all parameters at the end of a statement: 42P18 if one is not determined.
    pub(super) fn parameter_types(&self, root: NodeId) -> Result<Vec<Type>> {
        // A use without a type whose parameter another use has determined.
        for node in self.plan.post_order_of(root) {
            let mut undetermined = None;
            self.plan[node].for_each_scalar(|scalar| {
                scalar.any(&mut |part| {
                    if let Scalar::Parameter(number, ty) = part
                        && ty.id == TypeId::UNKNOWN
                    {
                        undetermined = Some(*number);
                    }
                    false
                });
            });
            if let Some(number) = undetermined
                && self.parameters.types[usize::from(number) - 1].is_some()
            {
                let message = format!("inconsistent types deduced for parameter ${number}");
                return Err(firn_base::Error::new(AMBIGUOUS_PARAMETER, message));
            }
        }
        let undetermined = |number: usize| {
            let message = format!("could not determine data type of parameter ${}", number + 1);
            firn_base::Error::new(SqlState::INDETERMINATE_DATATYPE, message)
        };
        let typed =
            |(number, ty): (usize, &Option<TypeId>)| ty.map(Type::new).ok_or_else(|| undetermined(number));
        self.parameters.types.iter().enumerate().map(typed).collect()
    }
}
