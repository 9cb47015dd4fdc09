//! Select lists: stars, values, and their names.

use super::output::column_name;
use super::{Binder, Clause, Operand, Output};
use firn_base::{Result, SqlState, Type};
use firn_syntax::Span;
use firn_syntax::tree::{Accessor, Expr, ExprKind, StepKind, Target};
use std::rc::Rc;

/// A column of a select list.
#[derive(Clone, Debug)]
pub(super) struct BoundTarget {
    pub name: std::rc::Rc<str>,
    pub operand: Operand,
    /// Where its expression stands.
    pub span: Span,
}

/// The fields of a row by their names.
type Fields = Vec<(Rc<str>, Operand)>;

impl Binder<'_> {
    /// The columns of a select list, or of RETURNING.
    pub(super) fn targets(&mut self, targets: &[Target], clause: Clause) -> Result<Vec<BoundTarget>> {
        let mut bound = Vec::with_capacity(targets.len());
        for target in targets {
            match target {
                Target::All(span) => {
                    self.note_star(*span, None);
                    let columns = self.all_columns(span.start)?;
                    bound.extend(columns.into_iter().map(|(name, operand)| star(name, operand, *span)));
                }
                Target::Value { value, alias } => match &value.kind {
                    ExprKind::AllColumns(name) => {
                        self.note_star(value.span, Some(name));
                        let columns = self.qualified_star(name)?;
                        bound.extend(
                            columns.into_iter().map(|(name, operand)| star(name, operand, value.span)),
                        );
                    }
                    ExprKind::Chain(chain)
                        if matches!(
                            (&chain.first.kind, &chain.steps[..]),
                            (ExprKind::Column(_), [step])
                                if matches!(step.kind, StepKind::Access(Accessor::AllFields))
                        ) =>
                    {
                        let ExprKind::Column(name) = &chain.first.kind else { unreachable!("it was seen") };
                        let columns = match self.qualified_star(name) {
                            // It may be a column whose values are rows.
                            Err(error) => self
                                .within(clause, |binder| binder.row_fields(&chain.first))
                                .ok()
                                .flatten()
                                .ok_or(error)?,
                            Ok(columns) => {
                                self.note_star(value.span, Some(name));
                                columns
                            }
                        };
                        bound.extend(
                            columns.into_iter().map(|(name, operand)| star(name, operand, value.span)),
                        );
                    }
                    ExprKind::Chain(chain) if matches!(&chain.steps[..], [step] if matches!(step.kind, StepKind::Access(Accessor::AllFields))) =>
                    {
                        let fields = self.within(clause, |binder| binder.row_fields(&chain.first))?;
                        let fields = fields.ok_or_else(|| {
                            let message = "row expansion via \"*\" is not supported here";
                            self.error(SqlState::SYNTAX_ERROR, message, value.span.start)
                        })?;
                        bound.extend(
                            fields.into_iter().map(|(name, operand)| star(name, operand, value.span)),
                        );
                    }
                    _ => {
                        let operand = self.within(clause, |binder| binder.expression(value))?;
                        let name = match alias {
                            Some(alias) => (&*alias.text).into(),
                            None => column_name(value).into(),
                        };
                        bound.push(BoundTarget { name, operand, span: value.span });
                    }
                },
            }
        }
        Ok(bound)
    }

    /// The fields of an expression that is a row whose type is known.
    fn row_fields(&mut self, expression: &Expr) -> Result<Option<Fields>> {
        let row = self.expression(expression)?;
        let Some(fields) = self.row_type(&row.scalar) else { return Ok(None) };
        let field =
            |(place, (name, ty)): (usize, &(Rc<str>, Type))| (name.clone(), self.row_field(&row, place, *ty));
        Ok(Some(fields.iter().enumerate().map(field).collect()))
    }
}

fn star(name: std::rc::Rc<str>, operand: Operand, span: Span) -> BoundTarget {
    BoundTarget { name, operand, span }
}

impl BoundTarget {
    pub(super) fn output(&self) -> Output {
        let Operand { scalar, ty, at } = self.operand.clone();
        Output { name: self.name.clone(), value: scalar, ty, at }
    }
}
