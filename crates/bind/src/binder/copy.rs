//! Values from outside as those of columns, for COPY. Each stands by itself, outside of any plan.

use super::definition::BoundExpression;
use super::{Binder, Operand};
use crate::catalog::{Attribute, Catalog};
use firn_base::{Representation, Result, Type, TypeId};
use firn_plan::{ColumnInfo, Scalar};

/// Values of some types as values of columns, as an INSERT assigns them. The columns of their row are numbered from 1 on.
///
/// Formats with types of their own have none for every numeric and every array: such values may come as texts.
pub fn bind_assignments(
    values: &[(Type, &Attribute)],
    catalog: &dyn Catalog,
) -> Result<Vec<BoundExpression>> {
    let assigned = |(place, (ty, attribute)): (usize, &(Type, &Attribute))| {
        let mut binder = Binder::new("", &[], catalog);
        // There is no text.
        binder.has_positions = false;
        binder.open();
        let column = binder.new_column(ColumnInfo::new(*ty, true).named(&*attribute.name));
        let mut operand = Operand { scalar: Scalar::Column(column), ty: *ty, at: 0 };
        let representation = attribute.ty.representation();
        if ty.id == TypeId::TEXT
            && matches!(representation, Some(Representation::Numeric | Representation::List(_)))
        {
            operand = binder.cast(operand, attribute.ty, 0)?;
        }
        let Operand { mut scalar, ty, .. } = binder.assigned(operand, attribute)?;
        binder.inline(&mut scalar);
        let inputs = vec![(column, i16::try_from(place + 1).expect("a table has not so many columns"))];
        Ok(BoundExpression { scalar, ty, columns: binder.plan.columns, inputs, literals: Vec::new() })
    };
    values.iter().enumerate().map(assigned).collect()
}
