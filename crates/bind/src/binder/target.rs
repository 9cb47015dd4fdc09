//! Select lists: stars, values, and their names.

use super::output::column_name;
use super::{Binder, Clause, Operand, Output};
use firn_base::Result;
use firn_syntax::Span;
use firn_syntax::tree::{Accessor, Chain, ExprKind, StepKind, Target};
use std::rc::Rc;

/// A column of a select list.
#[derive(Clone, Debug)]
pub(super) struct BoundTarget {
    pub name: Rc<str>,
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
                    ExprKind::Chain(chain) if is_expansion(chain) => {
                        if let (ExprKind::Column(name), [_]) = (&chain.first.kind, &chain.steps[..]) {
                            self.note_star(value.span, Some(name));
                        }
                        let fields = self.within(clause, |binder| binder.expanded(value))?;
                        let fields = fields.expect("it ends with a star");
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
}

/// Whether it ends with `.*`.
fn is_expansion(chain: &Chain) -> bool {
    let last = chain.steps.last();
    last.is_some_and(|step| matches!(step.kind, StepKind::Access(Accessor::AllFields)))
}

fn star(name: Rc<str>, operand: Operand, span: Span) -> BoundTarget {
    BoundTarget { name, operand, span }
}

impl BoundTarget {
    pub(super) fn output(&self) -> Output {
        let Operand { scalar, ty, at } = self.operand.clone();
        Output { name: self.name.clone(), value: scalar, ty, at }
    }
}
