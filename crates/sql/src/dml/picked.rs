//! Sub-queries of a change that lock rows: `UPDATE … WHERE id IN (SELECT id … FOR UPDATE SKIP LOCKED LIMIT 1)`.
//!
//! Such a sub-query is a statement of its own that is run first, once, and what it yields is a parameter of
//! the change, behind those of the user:
//!
//! | written | becomes |
//! |---|---|
//! | `x IN (SELECT … FOR UPDATE)` | `x = ANY ($n)` |
//! | `(SELECT … FOR UPDATE)` as a value | `$n` |
//!
//! So the change finds its rows through an index if there is one.

use crate::bind::Binder;
use datafusion::sql::sqlparser::ast::{self, BinaryOperator, Expr, Query, Value, VisitMut, VisitorMut};
use firn_base::{Error, ParameterType, Result, SqlState};
use firn_exec::locking::Picked;
use firn_exec::types;
use std::ops::ControlFlow;

/// Takes the locking sub-queries out of the condition of an UPDATE or DELETE.
pub(super) fn take(binder: &Binder<'_>, change: &mut ast::Statement) -> Result<Vec<Picked>> {
    let mut taker =
        Taker { binder, first: binder.parameter_count().max(mentioned(change)), taken: Vec::new() };
    let selection = match change {
        ast::Statement::Update(update) => &mut update.selection,
        ast::Statement::Delete(delete) => &mut delete.selection,
        _ => return Ok(Vec::new()),
    };
    match selection.visit(&mut taker) {
        ControlFlow::Continue(()) => Ok(taker.taken),
        ControlFlow::Break(error) => Err(error),
    }
}

/// The greatest number of a parameter in a statement.
fn mentioned(statement: &ast::Statement) -> usize {
    struct Numbers(usize);
    impl ast::Visitor for Numbers {
        type Break = ();

        fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<()> {
            if let Expr::Value(ast::ValueWithSpan { value: Value::Placeholder(name), .. }) = expression
                && let Some(number) = name.strip_prefix('$').and_then(|number| number.parse().ok())
            {
                self.0 = self.0.max(number);
            }
            ControlFlow::Continue(())
        }
    }
    let mut numbers = Numbers(0);
    let _never_breaks = ast::Visit::visit(statement, &mut numbers);
    numbers.0
}

struct Taker<'b> {
    binder: &'b Binder<'b>,
    /// How many parameters there are besides those that are added.
    first: usize,
    taken: Vec<Picked>,
}

impl VisitorMut for Taker<'_> {
    type Break = Error;

    fn pre_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<Error> {
        let replaced = match expression {
            Expr::InSubquery { expr, subquery, negated: false } if !subquery.locks.is_empty() => {
                let picked = self.pick(subquery, false);
                picked.map(|right| Expr::AnyOp {
                    left: expr.clone(),
                    compare_op: BinaryOperator::Eq,
                    right: Box::new(right),
                    is_some: false,
                })
            }
            Expr::Subquery(subquery) if !subquery.locks.is_empty() => self.pick(subquery, true),
            _ => return ControlFlow::Continue(()),
        };
        match replaced {
            Ok(replaced) => {
                *expression = replaced;
                ControlFlow::Continue(())
            }
            Err(error) => ControlFlow::Break(error),
        }
    }
}

impl Taker<'_> {
    /// The parameter that stands for what a sub-query yields.
    fn pick(&mut self, query: &Query, is_one: bool) -> Result<Expr> {
        let (plan, locking) = self.binder.locking_query(query)?;
        let [field] = plan.schema().fields().as_ref() else {
            return Err(Error::new(SqlState::SYNTAX_ERROR, "subquery must return only one column"));
        };
        let (Some(ty), Some(locking)) = (types::sql_type(field), locking) else {
            return Err(Error::unsupported("a sub-query that locks nothing, or yields arrays"));
        };
        let name = format!("${}", self.first + self.taken.len() + 1);
        let parameter = if is_one { ParameterType::Single(ty) } else { ParameterType::array_of(ty) };
        self.binder.add_parameter(&name, parameter);
        self.taken.push(Picked { query: locking.into_query(true), is_one });
        Ok(Expr::Value(Value::Placeholder(name).with_empty_span()))
    }
}
