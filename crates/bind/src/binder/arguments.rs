//! The arguments of EXECUTE, and types that statements name by themselves.

use super::{Binder, Bound, Clause, Operand, OutputColumn};
use crate::catalog::Catalog;
use crate::resolve::name;
use firn_base::{Result, SqlState, Type};
use firn_plan::Operator;
use firn_syntax::tree::{Expr, TypeName};
use firn_vector::registry::CastContext;

/// One row with the values of expressions, each assigned to one of `types`. Positions of errors are positions in `text`.
pub fn bind_arguments(
    text: &str,
    arguments: &[Expr],
    types: &[Type],
    catalog: &dyn Catalog,
) -> Result<Bound> {
    debug_assert_eq!(arguments.len(), types.len());
    let mut binder = Binder::new(text, &[], catalog);
    binder.open();
    let mut scalars = Vec::with_capacity(arguments.len());
    for (place, (argument, ty)) in arguments.iter().zip(types).enumerate() {
        let operand = binder.within(Clause::Execute, |binder| binder.expression(argument))?;
        scalars.push(binder.argument(operand, *ty, place + 1)?.scalar);
    }
    binder.close();
    let node = binder.plan.add(Operator::Values { columns: Vec::new(), rows: vec![Vec::new()] });
    let node = binder.attach(node, &scalars);
    let mut outputs = Vec::with_capacity(scalars.len());
    for (scalar, ty) in scalars.into_iter().zip(types) {
        outputs.push((binder.column_for(&scalar, *ty, None), scalar));
    }
    binder.plan.output = outputs.iter().map(|(column, _)| *column).collect();
    binder.plan.root = binder.map(node, outputs);
    let parameters = binder.parameter_types(binder.plan.root)?;
    let column = |ty: &Type| OutputColumn { name: String::new(), ty: *ty, origin: None };
    let columns = types.iter().map(column).collect();
    firn_plan::verify::debug_verify(&binder.plan, "binding");
    Ok(Bound { plan: binder.plan, columns, parameters, depth: binder.deepest })
}

/// The type that a name in `text` means.
pub fn bind_type_name(text: &str, type_name: &TypeName, catalog: &dyn Catalog) -> Result<Type> {
    Binder::new(text, &[], catalog).type_named(type_name, false)
}

impl Binder<'_> {
    /// An argument as a value of the type of its parameter.
    fn argument(&mut self, operand: Operand, ty: Type, number: usize) -> Result<Operand> {
        let (from, at) = (operand.ty.id, operand.at);
        match self.coerce_to(operand, ty, CastContext::Assignment)? {
            Some(operand) => Ok(self.conformed(operand, ty)),
            None => {
                let message = format!(
                    "parameter ${number} of type {} cannot be coerced to the expected type {}",
                    name(from),
                    name(ty.id)
                );
                let error = self.error(SqlState::DATATYPE_MISMATCH, message, at);
                Err(error.with_hint("You will need to rewrite or cast the expression."))
            }
        }
    }
}
