//! Lowering: from an analysed plan, which means what PostgreSQL means, to one that makes
//! DataFusion compute just that.
//!
//! | analysed | DataFusion would | lowered to |
//! |---|---|---|
//! | integer `+ - *` | wrap around | [`arithmetic`]'s checked functions |
//! | float `/` | yield infinity | a checked function |
//! | casts between text and anything, to narrower types, to integers | differ in syntax, rounding and errors | [`cast::PgCast`] |
//! | `$1` | – | the parameter as a literal |
//! | `x = ANY ($1)` | – | `x IN (…)` if it can be: see [`quantified`] |
//! | keys of windows, sorts and DISTINCT that are floats | tell 0 from -0 | what equal ones have in common: see [`keys`] |
//! | keys of groups, joins, windows and DISTINCT that are spans of time | tell 1 day from 24 hours | what equal ones have in common: see [`spans`] |
//! | `x IN (0, 1)`, `x = 0 OR x = 1` of floats | find -0 by its bits | both zeros: see [`zeros`] |
//! | `x LIKE p` | take a backslash at the end for itself | an error there: see [`like`] |
//! | `<`, BETWEEN and ORDER BY of char(n) | compare the blanks at its end | the same of strings without them: see [`keys`] |
//! | a cast of a constant array | convert as Arrow does, or not at all | the array that it makes: see [`cast::array`] |
//!
//! Analysed plans stay free of these functions, so that the short path can read them.

pub mod arithmetic;
pub mod cast;
pub(crate) mod keys;
mod like;
pub mod operate;
pub mod quantified;
mod spans;
mod zeros;

use crate::guards;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result, plan_datafusion_err};
use datafusion::logical_expr::expr::Placeholder;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, Operator};
use firn_base::Value;

/// Lowers a plan and the subqueries in it.
pub fn plan(plan: LogicalPlan, parameters: &[Value]) -> Result<LogicalPlan> {
    let lowered = plan.transform_up_with_subqueries(|node| {
        crate::interrupt::check()?;
        let mut schema = merge_schema(&node.inputs());
        if let LogicalPlan::TableScan(scan) = &node {
            schema
                .merge(&DFSchema::try_from_qualified_schema(scan.table_name.clone(), &scan.source.schema())?);
        }
        let names = NamePreserver::new(&node);
        node.map_expressions(|original| {
            under_its_name(&names, original, &mut |original| lower(original, &schema, parameters))
        })?
        .map_data(|node| keys::of_node(node)?.recompute_schema())
    })?;
    Ok(lowered.data)
}

/// Rewrites an expression of a node and leaves it the name that it had; grouping sets are none, so their members keep theirs.
pub fn under_its_name(
    names: &NamePreserver,
    original: Expr,
    rewrite: &mut dyn FnMut(Expr) -> Result<Transformed<Expr>>,
) -> Result<Transformed<Expr>> {
    if matches!(original, Expr::GroupingSet(_)) {
        return original.map_children(|member| under_its_name(names, member, rewrite));
    }
    let name = names.save(&original);
    Ok(rewrite(original)?.update_data(|expression| name.restore(expression)))
}

/// Lowers one expression over the columns of `schema`.
pub fn expression(expression: Expr, schema: &DFSchema, parameters: &[Value]) -> Result<Expr> {
    Ok(lower(expression, schema, parameters)?.data)
}

fn lower(expression: Expr, schema: &DFSchema, parameters: &[Value]) -> Result<Transformed<Expr>> {
    expression.transform_up(|expression| match expression {
        Expr::Placeholder(placeholder) => Ok(Transformed::yes(literal(&placeholder, parameters)?)),
        Expr::BinaryExpr(mut binary) => {
            if matches!(binary.op, Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq) {
                keys::of_comparison([&mut binary.left, &mut binary.right], schema)?;
            }
            if binary.op == Operator::Or {
                let of_or = |operand: Box<Expr>| Box::new(zeros::of_or(*operand));
                (binary.left, binary.right) = (of_or(binary.left), of_or(binary.right));
            }
            let binary = match like::of_operator(binary) {
                Ok(like) => return Ok(Transformed::yes(like::lower(like))),
                Err(binary) => binary,
            };
            let types = (binary.left.get_type(schema)?, binary.right.get_type(schema)?);
            Ok(arithmetic::lower(binary, &types.0, &types.1))
        }
        Expr::Negative(operand) => {
            let ty = operand.get_type(schema)?;
            Ok(arithmetic::lower_negation(operand, &ty))
        }
        Expr::Cast(cast) => {
            if let Some(array) = cast::array(&cast)? {
                return Ok(Transformed::yes(array));
            }
            let (_, from) = cast.expr.to_field(schema)?;
            Ok(cast::lower(cast, &from))
        }
        Expr::ScalarFunction(function) => quantified::lower(function).map(Transformed::yes),
        Expr::InList(list) => Ok(Transformed::yes(Expr::InList(zeros::in_list(list)))),
        Expr::Like(like) => Ok(Transformed::yes(like::lower(like))),
        Expr::Between(mut between) => {
            keys::of_comparison([&mut between.expr, &mut between.low, &mut between.high], schema)?;
            Ok(Transformed::yes(Expr::Between(between)))
        }
        Expr::WindowFunction(mut window) => {
            keys::of_window(&mut window, schema)?;
            Ok(Transformed::yes(Expr::WindowFunction(window)))
        }
        Expr::AggregateFunction(mut aggregate) => {
            keys::of_aggregate(&mut aggregate, schema)?;
            guards::of_aggregate(&mut aggregate);
            Ok(Transformed::yes(Expr::AggregateFunction(aggregate)))
        }
        other => Ok(Transformed::no(other)),
    })
}

/// The parameter that a placeholder stands for.
fn literal(placeholder: &Placeholder, parameters: &[Value]) -> Result<Expr> {
    let value = placeholder
        .id
        .strip_prefix('$')
        .and_then(|number| number.parse::<usize>().ok())
        .and_then(|number| parameters.get(number.checked_sub(1)?))
        .ok_or_else(|| plan_datafusion_err!("No value found for placeholder with id {}", placeholder.id))?;
    let field = placeholder.field.as_ref().expect("analysis gives every parameter a type");
    let ty = crate::types::parameter_type(field).expect("parameters have SQL types");
    Ok(Expr::Literal(crate::types::parameter_scalar(value, ty), None))
}
