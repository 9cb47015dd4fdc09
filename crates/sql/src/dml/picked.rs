//! Sub-queries of a change that lock rows: `UPDATE … WHERE id IN (SELECT id … FOR UPDATE SKIP LOCKED LIMIT 1)`.
//!
//! Such a sub-query is a statement of its own that is run first, once, and what it yields are parameters of
//! the change, behind those of the user:
//!
//! | written | becomes |
//! |---|---|
//! | `x IN (SELECT a … FOR UPDATE)` | `x = ANY ($n)` |
//! | `(SELECT a … FOR UPDATE)` as a value | `$n` |
//! | `SELECT a, b … FOR UPDATE` behind FROM, WITH or INSERT | `SELECT c0 AS a, c1 AS b FROM unnest($n, $m) AS picked (c0, c1)` |
//!
//! So the first two find their rows through an index if there is one.

use crate::bind::Binder;
use crate::statement::quote_ident;
use datafusion::sql::sqlparser::ast::{
    self, BinaryOperator, Expr, Query, Value, Visit, VisitMut, VisitorMut,
};
use firn_base::{Error, ParameterType, Result, SqlState, SqlType};
use firn_exec::locking::{LockingQuery, Picked, Yields};
use firn_exec::types;
use std::ops::ControlFlow;

/// Takes the locking sub-queries out of a change and the WITH before it.
pub(super) fn take(
    binder: &Binder<'_>,
    change: &mut ast::Statement,
    with: &mut Option<ast::With>,
) -> Result<Vec<Picked>> {
    let mut numbers = Numbers { greatest: 0, locking: 0 };
    let _never_breaks = Visit::visit(change, &mut numbers);
    let _never_breaks = Visit::visit(with, &mut numbers);
    if numbers.locking == 0 {
        return Ok(Vec::new());
    }
    let next = binder.parameter_count().max(numbers.greatest) + 1;
    let mut taker = Taker { binder, next, taken: Vec::new() };
    let taken = match VisitMut::visit(with, &mut taker) {
        ControlFlow::Continue(()) => VisitMut::visit(change, &mut taker),
        failed => failed,
    };
    match taken {
        ControlFlow::Continue(()) => Ok(taker.taken),
        ControlFlow::Break(error) => Err(error),
    }
}

/// What a statement mentions.
struct Numbers {
    /// The greatest number of a parameter.
    greatest: usize,
    /// How many queries lock rows.
    locking: usize,
}

impl ast::Visitor for Numbers {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        self.locking += usize::from(!query.locks.is_empty());
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<()> {
        if let Expr::Value(ast::ValueWithSpan { value: Value::Placeholder(name), .. }) = expression
            && let Some(number) = name.strip_prefix('$').and_then(|number| number.parse().ok())
        {
            self.greatest = self.greatest.max(number);
        }
        ControlFlow::Continue(())
    }
}

struct Taker<'b> {
    binder: &'b Binder<'b>,
    /// The number of the next parameter.
    next: usize,
    taken: Vec<Picked>,
}

impl VisitorMut for Taker<'_> {
    type Break = Error;

    fn pre_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<Error> {
        let replaced = match expression {
            Expr::InSubquery { expr, subquery, negated: false } if !subquery.locks.is_empty() => {
                let picked = self.pick_one(subquery, Yields::Columns(1));
                picked.map(|right| Expr::AnyOp {
                    left: expr.clone(),
                    compare_op: BinaryOperator::Eq,
                    right: Box::new(right),
                    is_some: false,
                })
            }
            Expr::Subquery(subquery) if !subquery.locks.is_empty() => self.pick_one(subquery, Yields::Value),
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

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        if query.locks.is_empty() {
            return ControlFlow::Continue(());
        }
        match self.pick_rows(query) {
            Ok(rows) => {
                *query = rows;
                ControlFlow::Continue(())
            }
            Err(error) => ControlFlow::Break(error),
        }
    }
}

impl Taker<'_> {
    /// The parameter that stands for what a sub-query of one column yields.
    fn pick_one(&mut self, query: &Query, yields: Yields) -> Result<Expr> {
        let (locking, columns) = self.bind(query)?;
        let [(_, ty)] = columns.as_slice() else {
            return Err(Error::new(SqlState::SYNTAX_ERROR, "subquery must return only one column"));
        };
        let name = self.add(match yields {
            Yields::Value => ParameterType::Single(*ty),
            Yields::Columns(_) => ParameterType::array_of(*ty),
        });
        self.taken.push(Picked { query: locking, yields });
        Ok(Expr::Value(Value::Placeholder(name).with_empty_span()))
    }

    /// The query that stands for the rows of a sub-query.
    fn pick_rows(&mut self, query: &Query) -> Result<Query> {
        let (locking, columns) = self.bind(query)?;
        let arrays: Vec<String> =
            columns.iter().map(|(_, ty)| self.add(ParameterType::array_of(*ty))).collect();
        self.taken.push(Picked { query: locking, yields: Yields::Columns(columns.len()) });
        // Two columns may have one name, behind which something tells them apart.
        let shown = |name: &str| quote_ident(types::visible_name(name));
        let numbered = |at: usize| format!("c{at}");
        let outputs = columns.iter().enumerate().map(|(at, (name, _))| format!("c{at} AS {}", shown(name)));
        let rows = format!(
            "SELECT {} FROM unnest({}) AS picked ({})",
            outputs.collect::<Vec<_>>().join(", "),
            arrays.join(", "),
            (0..columns.len()).map(numbered).collect::<Vec<_>>().join(", ")
        );
        crate::parse::parse_query(&rows).map(|rows| *rows)
    }

    /// A locking query with its columns.
    fn bind(&self, query: &Query) -> Result<(LockingQuery, Vec<(String, SqlType)>)> {
        let (plan, locking) = self.binder.locking_query(query)?;
        let column = |field: &datafusion::arrow::datatypes::FieldRef| {
            types::sql_type(field).map(|ty| (field.name().clone(), ty))
        };
        let columns: Option<Vec<_>> = plan.schema().fields().iter().map(column).collect();
        match (locking, columns) {
            (Some(locking), Some(columns)) => Ok((locking.into_query(true), columns)),
            _ => Err(Error::unsupported("a sub-query that locks nothing, or yields arrays")),
        }
    }

    /// The name of a new parameter.
    fn add(&mut self, ty: ParameterType) -> String {
        let name = format!("${}", self.next);
        self.next += 1;
        self.binder.add_parameter(&name, ty);
        name
    }
}
