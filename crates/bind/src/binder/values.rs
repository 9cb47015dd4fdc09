//! VALUES: rows of expressions, and the types of their columns.

use super::{Binder, Clause, Operand, Output, Rows};
use firn_base::{Result, SqlState, Type, TypeId};
use firn_plan::{ColumnInfo, NodeId, Operator, Scalar};
use firn_syntax::tree::Expr;

impl Binder<'_> {
    /// VALUES. Columns of which all values are literals stay open unless `resolve`.
    pub(super) fn values(&mut self, rows: &[Vec<Expr>], resolve: bool) -> Result<Rows> {
        let mut bound: Vec<Vec<Operand>> = Vec::with_capacity(rows.len());
        for row in rows {
            let operands = self.within(Clause::Values, |binder| binder.expressions(row))?;
            if bound.first().is_some_and(|first| first.len() != operands.len()) {
                let at = row.first().map_or(0, |value| value.span.start);
                return Err(self.error(
                    SqlState::SYNTAX_ERROR,
                    "VALUES lists must all be the same length",
                    at,
                ));
            }
            bound.push(operands);
        }
        let width = bound.first().map_or(0, Vec::len);
        // One row of literals gets its types from its reader.
        if !resolve && bound.len() == 1 {
            let row = bound.pop().expect("there is one");
            return self.single_row(row);
        }
        let mut types = Vec::with_capacity(width);
        for column in 0..width {
            let operands: Vec<Operand> = bound.iter().map(|row| row[column].clone()).collect();
            types.push(self.common_type(&operands, "VALUES")?);
        }
        let mut typed: Vec<Vec<Scalar>> = Vec::with_capacity(bound.len());
        let starts: Vec<u32> =
            bound.first().map_or(Vec::new(), |row| row.iter().map(|value| value.at).collect());
        for row in bound {
            let mut scalars = Vec::with_capacity(width);
            for (operand, ty) in row.into_iter().zip(&types) {
                scalars.push(self.coerce_common(operand, *ty, "VALUES")?.scalar);
            }
            typed.push(scalars);
        }
        Ok(self.listed(typed, &types, &starts))
    }

    fn single_row(&mut self, row: Vec<Operand>) -> Result<Rows> {
        let mut node = self.plan.add(Operator::Values { columns: Vec::new(), rows: vec![Vec::new()] });
        let mut outputs = Vec::new();
        let mut columns = Vec::with_capacity(row.len());
        for (place, operand) in row.into_iter().enumerate() {
            let name: std::rc::Rc<str> = format!("column{}", place + 1).into();
            let Operand { mut scalar, ty, at } = operand;
            if ty.id != TypeId::UNKNOWN {
                node = self.attach(node, [&scalar]);
                let column = self.column_for(&scalar, ty, Some(&name));
                outputs.push((column, std::mem::replace(&mut scalar, Scalar::Column(column))));
            }
            columns.push(Output { name, value: scalar, ty, at });
        }
        let node = self.map(node, outputs);
        Ok(Rows { node, columns })
    }

    /// Rows of scalars of some types.
    pub(super) fn listed(&mut self, rows: Vec<Vec<Scalar>>, types: &[Type], starts: &[u32]) -> Rows {
        let mut produced = Vec::with_capacity(types.len());
        let mut columns = Vec::with_capacity(types.len());
        for (place, ty) in types.iter().enumerate() {
            let name: std::rc::Rc<str> = format!("column{}", place + 1).into();
            let nullable = rows.iter().any(|row| self.nullable(&row[place]));
            let info = ColumnInfo::new(*ty, nullable).named(&*name);
            let column = self.new_column(info);
            produced.push(column);
            columns.push(Output { name, value: Scalar::Column(column), ty: *ty, at: starts[place] });
        }
        let has_queries = rows.iter().flatten().any(|scalar| self.has_pending(scalar));
        let node = if has_queries {
            // Each row is evaluated above its own sub-queries.
            let mut inputs: Vec<(NodeId, Vec<firn_plan::Column>)> = Vec::with_capacity(rows.len());
            for row in rows {
                let node = self.plan.add(Operator::Values { columns: Vec::new(), rows: vec![Vec::new()] });
                let node = self.attach(node, &row);
                let mut outputs = Vec::with_capacity(row.len());
                for (scalar, ty) in row.into_iter().zip(types) {
                    outputs.push((self.column_for(&scalar, *ty, None), scalar));
                }
                let own = outputs.iter().map(|(column, _)| *column).collect();
                inputs.push((self.map(node, outputs), own));
            }
            self.plan.add(Operator::UnionAll { columns: produced, inputs })
        } else {
            self.plan.add(Operator::Values { columns: produced, rows })
        };
        Rows { node, columns }
    }
}
