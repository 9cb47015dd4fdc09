//! Select lists: stars, values, and their names.

use super::output::column_name;
use super::{Binder, Clause, Operand, Output};
use firn_base::Result;
use firn_syntax::Span;
use firn_syntax::tree::{Accessor, ExprKind, StepKind, Target};

/// A column of a select list.
#[derive(Clone, Debug)]
pub(super) struct BoundTarget {
    pub name: std::rc::Rc<str>,
    pub operand: Operand,
    /// Where its expression stands.
    pub span: Span,
}

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
                        self.note_star(value.span, Some(name));
                        let columns = self.qualified_star(name)?;
                        bound.extend(
                            columns.into_iter().map(|(name, operand)| star(name, operand, value.span)),
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
