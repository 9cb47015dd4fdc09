//! Analysis: types for what DataFusion's planner left open, then DataFusion's own coercion.
//!
//! The planner hands operators to [`super::operators`] while it builds expressions; lists, ranges,
//! patterns, branches and function arguments it builds alone. This pass visits them, from the
//! leaves up.

use super::ROUNDING;
use super::alike;
use super::context::USERS_CAST;
use super::correlated;
use super::days;
use super::dependent;
use super::floats;
use super::keys;
use super::nodes::{self, Nodes};
use super::operators::{
    Operand, adopt, adopt_array, as_text, cast, check_cast, common_type, compared, element, is_float,
    is_number, length, no_operator, of_numerics, operand, plain_name, united,
};
use super::parameters::Parameters;
use crate::functions::{LENGTH_OF_SPAN, extreme_of_spans};
use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::{
    Between, Case, Cast, Exists, InList, InSubquery, Like, Placeholder, ScalarFunction, WindowFunctionParams,
};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    AggregateUDF, BinaryExpr, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Operator, Subquery,
    WindowFrame, WindowFrameBound, WindowFrameUnits, WindowFunctionDefinition, binary_expr, lit,
};
use datafusion::optimizer::Analyzer;
use datafusion::optimizer::analyzer::resolve_grouping_function::ResolveGroupingFunction;
use datafusion::optimizer::analyzer::type_coercion::TypeCoercion;
use firn_base::sync::Arc;
use firn_base::{Error, ParameterType, SqlState, SqlType, TimeZoneSetting, Value, coerce, interval, numeric};
use firn_exec::error::to_datafusion;
use firn_exec::interrupt::{self, analyzer_rules};
use firn_exec::lower::operate::{Operation, operate, operation_of};
use firn_exec::lower::quantified::{Comparison, Quantifier, quantifier_of};
use firn_exec::lower::under_its_name;
use firn_exec::types;

/// Analyses a plan.
pub fn plan(plan: LogicalPlan, parameters: &Parameters, zone: TimeZoneSetting) -> Result<LogicalPlan> {
    let pass = Pass { parameters, zone };
    let plan = rewrite(plan, &|expression, _| correlated::aggregate_rows(expression))?;
    let plan = nodes::real_sums(plan)?;
    let nodes = Nodes { parameters, zone };
    // Nodes before what reads them: their columns have their types when expressions over them are looked at.
    let typed = plan.transform_up_with_subqueries(|node| {
        let node = nodes.columns(node)?;
        let node = rewrite_node(node, &|expression, schema| pass.expression(expression, schema))?;
        node.map_data(|node| nodes.digits(node))
    })?;
    let typed = limits(typed.data, parameters)?;
    let typed = dependent::compute(nodes.sorts(typed)?)?;
    let rules: Vec<Arc<dyn datafusion::optimizer::AnalyzerRule + Send + Sync>> =
        vec![Arc::new(ResolveGroupingFunction::new()), Arc::new(TypeCoercion::new())];
    let coerced = Analyzer::with_rules(analyzer_rules(rules)).execute_and_check(
        typed,
        &ConfigOptions::default(),
        |_, _| {},
    )?;
    rewrite(coerced, &|expression, _| fold_constants(expression, zone))
}

/// Analyses an expression over the columns of `schema`; with a column to be assigned to, casts it to
/// the column's type.
pub fn expression(
    expression: Expr,
    schema: &DFSchema,
    assigned: Option<(&str, SqlType)>,
    parameters: &Parameters,
    zone: TimeZoneSetting,
) -> Result<Expr> {
    let pass = Pass { parameters, zone };
    let typed = pass.expression(expression, schema)?.data;
    let typed = match assigned {
        Some((column, ty)) => assign(typed, schema, column, ty, parameters, zone)?,
        None => typed,
    };
    let coerced = firn_exec::runtime::coerce(typed, schema)?;
    Ok(fold_constants(coerced, zone)?.data)
}

/// An expression as a value for a column: of the column's kind, but not yet fitted to its length,
/// which is for whoever writes the row. 42804 if assignment does not cast between the types.
pub fn assign(
    expression: Expr,
    schema: &DFSchema,
    column: &str,
    ty: SqlType,
    parameters: &Parameters,
    zone: TimeZoneSetting,
) -> Result<Expr> {
    // A cast to a shorter string would cut without complaint; assignment must not.
    let wanted = if ty.is_string() { SqlType::Text } else { ty };
    let mismatch = |from: &str| {
        let message = format!("column \"{column}\" is of type {ty} but expression is of type {from}");
        let error = Error::new(SqlState::DATATYPE_MISMATCH, message)
            .with_hint("You will need to rewrite or cast the expression.");
        Err(to_datafusion(error))
    };
    match operand(&expression, schema, parameters) {
        Operand::Unknown => adopt(expression, wanted, parameters, zone),
        Operand::Known(from) if from == ty || from.is_string() && ty.is_string() => Ok(expression),
        Operand::Known(from) if coerce::can_assign(from, ty) => Ok(cast(expression, wanted)),
        Operand::Known(from) => mismatch(&from.to_string()),
        Operand::Foreign => mismatch("array"),
    }
}

/// Gives the output columns of a query the Arrow types that their SQL types have, so that whoever
/// reads the batches meets no other.
pub fn conform(plan: LogicalPlan) -> Result<LogicalPlan> {
    let wanted = |field: &datafusion::arrow::datatypes::Field| {
        if field.data_type().is_nested() {
            // Arrays are shown as text by whoever reads the batches.
            return None;
        }
        let ty = types::sql_type(field)?;
        let data_type = types::data_type(ty);
        (data_type != *field.data_type()).then_some((ty, data_type))
    };
    if plan.schema().fields().iter().all(|field| wanted(field).is_none()) {
        return Ok(plan);
    }
    let columns = plan.schema().iter().map(|(qualifier, field)| {
        let column = Expr::from((qualifier, field));
        match wanted(field) {
            Some((_, data_type)) => {
                let cast = Expr::Cast(Cast::new(Box::new(column), data_type));
                cast.alias_qualified(qualifier.cloned(), field.name().clone())
            }
            None => column,
        }
    });
    let columns: Vec<Expr> = columns.collect();
    LogicalPlanBuilder::from(plan).project(columns)?.build()
}

/// A rewriting of one expression over the columns of a schema.
type Rewrite<'a> = &'a dyn Fn(Expr, &DFSchema) -> Result<Transformed<Expr>>;

/// Rewrites every expression of a plan and of the subqueries in it, keeping output names.
fn rewrite(plan: LogicalPlan, rewrite: Rewrite<'_>) -> Result<LogicalPlan> {
    let rewritten = plan.transform_up_with_subqueries(|node| rewrite_node(node, rewrite))?;
    Ok(rewritten.data)
}

/// Rewrites the expressions of one node.
fn rewrite_node(node: LogicalPlan, rewrite: Rewrite<'_>) -> Result<Transformed<LogicalPlan>> {
    interrupt::check()?;
    let mut schema = merge_schema(&node.inputs());
    if let LogicalPlan::TableScan(scan) = &node {
        schema.merge(&DFSchema::try_from_qualified_schema(scan.table_name.clone(), &scan.source.schema())?);
    }
    let names = NamePreserver::new(&node);
    node.map_expressions(|original| {
        under_its_name(&names, original, &mut |original| rewrite(original, &schema))
    })?
    .map_data(|node| node.recompute_schema())
}

/// Parameters of LIMIT and OFFSET count rows.
fn limits(plan: LogicalPlan, parameters: &Parameters) -> Result<LogicalPlan> {
    let typed = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Limit(mut limit) => {
            for expression in limit.fetch.iter_mut().chain(limit.skip.iter_mut()) {
                if let Expr::Cast(inner) = expression.as_ref()
                    && let Expr::Placeholder(placeholder) = inner.expr.as_ref()
                {
                    parameters.learn(&placeholder.id, Some(SqlType::BigInt.into()));
                }
            }
            Ok(Transformed::no(LogicalPlan::Limit(limit)))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(typed.data)
}

struct Pass<'a> {
    parameters: &'a Parameters,
    zone: TimeZoneSetting,
}

impl Pass<'_> {
    fn expression(&self, expression: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
        expression.transform_up(|node| {
            interrupt::check()?;
            self.node(node, schema).map(Transformed::yes)
        })
    }

    fn operand(&self, expression: &Expr, schema: &DFSchema) -> Operand {
        operand(expression, schema, self.parameters)
    }

    fn adopt(&self, expression: Expr, ty: SqlType) -> Result<Expr> {
        adopt(expression, ty, self.parameters, self.zone)
    }

    fn node(&self, node: Expr, schema: &DFSchema) -> Result<Expr> {
        Ok(match node {
            Expr::Placeholder(placeholder) => self.placeholder(placeholder),
            Expr::Cast(cast) => self.cast(cast, schema)?,
            Expr::InList(list) => self.in_list(list, schema)?,
            Expr::Between(between) => self.between(between, schema)?,
            Expr::Like(like) => Expr::Like(self.like(like, schema)?),
            Expr::Case(case) => self.case(case, schema)?,
            Expr::BinaryExpr(binary) if distinct(&binary) => {
                let pair = self.unify(vec![*binary.left, *binary.right], schema)?;
                let mut pair = self.spans(pair, schema);
                let (right, left) = (pair.pop().expect("two"), pair.pop().expect("two"));
                self.compare(BinaryExpr::new(Box::new(left), binary.op, Box::new(right)), schema)?
            }
            Expr::BinaryExpr(binary) if days::is_ordering(binary.op) => self.compare(binary, schema)?,
            Expr::BinaryExpr(binary) if is_arithmetic(binary.op) => self.arithmetic(binary, schema)?,
            Expr::InSubquery(inner) => self.in_subquery(inner, schema)?,
            Expr::Exists(exists) => Expr::Exists(with_output(exists)?),
            Expr::ScalarFunction(function) => self.function(function, schema)?,
            Expr::AggregateFunction(mut aggregate) => {
                widen(&aggregate.func, &mut aggregate.params.args, schema)?;
                if loses_type(&aggregate.func) {
                    let params = &mut aggregate.params;
                    let keys = params.order_by.iter_mut().map(|key| &mut key.expr);
                    self.trim(params.args.iter_mut().chain(keys), schema);
                }
                Expr::AggregateFunction(aggregate)
            }
            Expr::WindowFunction(mut window) => {
                self.frame(&mut window.params, schema)?;
                for key in &mut window.params.order_by {
                    self.by_length(&mut key.expr, schema);
                }
                match &window.fun {
                    WindowFunctionDefinition::AggregateUDF(function) => {
                        widen(function, &mut window.params.args, schema)?;
                        if loses_type(function) {
                            self.trim(window.params.args.iter_mut(), schema);
                        }
                    }
                    WindowFunctionDefinition::WindowUDF(function) => {
                        if let ("lag" | "lead", [value, _, default]) =
                            (function.name(), window.params.args.as_mut_slice())
                        {
                            self.with_default(value, default, schema)?;
                        }
                    }
                }
                Expr::WindowFunction(window)
            }
            Expr::Not(inner) => Expr::Not(Box::new(self.boolean(*inner, schema)?)),
            Expr::IsTrue(inner) => Expr::IsTrue(Box::new(self.boolean(*inner, schema)?)),
            Expr::IsFalse(inner) => Expr::IsFalse(Box::new(self.boolean(*inner, schema)?)),
            Expr::IsUnknown(inner) => Expr::IsUnknown(Box::new(self.boolean(*inner, schema)?)),
            Expr::IsNotTrue(inner) => Expr::IsNotTrue(Box::new(self.boolean(*inner, schema)?)),
            Expr::IsNotFalse(inner) => Expr::IsNotFalse(Box::new(self.boolean(*inner, schema)?)),
            Expr::IsNotUnknown(inner) => Expr::IsNotUnknown(Box::new(self.boolean(*inner, schema)?)),
            other => other,
        })
    }

    /// A parameter exists, wherever it stands. What DataFusion found out about it counts.
    fn placeholder(&self, placeholder: Placeholder) -> Expr {
        let found = placeholder.field.as_ref().and_then(|field| types::parameter_type(field));
        self.parameters.learn(&placeholder.id, found);
        let field = match (self.parameters.get(&placeholder.id), placeholder.field) {
            (Some(ty), _) => Some(types::parameter_field(&placeholder.id, ty)),
            (None, field) => field,
        };
        Expr::Placeholder(Placeholder::new_with_field(placeholder.id, field))
    }

    fn cast(&self, cast: Cast, schema: &DFSchema) -> Result<Expr> {
        let Expr::Cast(mut cast) = narrow(Expr::Cast(cast), schema) else { unreachable!("a cast stays one") };
        if cast.field.name() == USERS_CAST {
            cast.field = Arc::new(Field::clone(&cast.field).with_name(""));
        }
        if let Some(element) = types::element_type(cast.field.data_type()) {
            return self.cast_to_array(cast, element, schema);
        }
        let Some(to) = types::sql_type(&cast.field) else { return Ok(Expr::Cast(cast)) };
        match self.operand(&cast.expr, schema) {
            // `$1::integer` declares the parameter; a literal in quotes is read as the type.
            Operand::Unknown if matches!(cast.expr.as_ref(), Expr::Placeholder(_)) => self
                .adopt(*cast.expr, to)
                .map(|inner| Expr::Cast(Cast { expr: Box::new(inner), field: cast.field })),
            Operand::Known(from) => {
                check_cast(from, to)?;
                // A field without name and metadata would keep what is known of varchar(3) and char(3).
                let field = match to == SqlType::Text && from.is_string() && from != to {
                    true => types::field("text", to),
                    false => cast.field,
                };
                fold(Expr::Cast(Cast { expr: cast.expr, field }), self.zone)
            }
            _ => fold(Expr::Cast(cast), self.zone),
        }
    }

    /// `$1::integer[]` declares the parameter; a literal in quotes is read as an array.
    fn cast_to_array(&self, cast: Cast, element: SqlType, schema: &DFSchema) -> Result<Expr> {
        if self.operand(&cast.expr, schema) != Operand::Unknown {
            return Ok(Expr::Cast(cast));
        }
        let inner = adopt_array(*cast.expr, element, self.parameters, self.zone)?;
        match inner.get_type(schema)? == *cast.field.data_type() {
            true => Ok(inner),
            false => Ok(Expr::Cast(Cast { expr: Box::new(inner), field: cast.field })),
        }
    }

    /// `x = ANY (array)`: the value and the elements take the types of each other.
    fn quantified(
        &self,
        function: ScalarFunction,
        quantifier: Quantifier,
        schema: &DFSchema,
    ) -> Result<Expr> {
        let ScalarFunction { func, args } = function;
        let [value, array] = <[Expr; 2]>::try_from(args).expect("it was made with two");
        let Some(elements) = element(&array, schema, self.parameters) else {
            let message = "op ANY/ALL (array) requires array on right side";
            return Err(to_datafusion(Error::new(SqlState::WRONG_OBJECT_TYPE, message)));
        };
        let known = |operand| match operand {
            Operand::Known(ty) => Some(ty),
            _ => None,
        };
        let (of_value, of_elements) = (known(self.operand(&value, schema)), known(elements));
        let ty = of_value.or(of_elements).unwrap_or(SqlType::Text);
        let value = self.adopt(value, ty)?;
        let array = adopt_array(array, ty, self.parameters, self.zone)?;
        let (Operand::Known(of_value), Some(Operand::Known(of_elements))) =
            (self.operand(&value, schema), element(&array, schema, self.parameters))
        else {
            return Err(to_datafusion(Error::unsupported("comparing arrays with the elements of an array")));
        };
        let symbol = quantifier.comparison.symbol();
        let is_pattern = matches!(quantifier.comparison, Comparison::Like { .. });
        if is_pattern && !(of_value.is_string() && of_elements.is_string()) {
            return Err(to_datafusion(no_operator(&symbol, Some(of_value), Some(of_elements))));
        }
        let Some(common) = common_type(of_value, of_elements) else {
            return Err(to_datafusion(no_operator(&symbol, Some(of_value), Some(of_elements))));
        };
        let value = match of_value {
            // Patterns are matched with all of a char(n).
            SqlType::Char(_) if !is_pattern => as_text(value),
            of_value if types::data_type(of_value) == types::data_type(common) => value,
            _ => cast(value, common),
        };
        let wanted = types::array_type(common);
        let array = match array.get_type(schema)? == wanted {
            true => array,
            false => Expr::Cast(Cast::new(Box::new(array), wanted)),
        };
        Ok(Expr::ScalarFunction(ScalarFunction::new_udf(func, vec![value, array])))
    }

    /// Gives all expressions that know no type the type of the first that does; text if none does.
    fn unify(&self, expressions: Vec<Expr>, schema: &DFSchema) -> Result<Vec<Expr>> {
        let operands: Vec<Operand> =
            expressions.iter().map(|expression| self.operand(expression, schema)).collect();
        if operands.contains(&Operand::Foreign) {
            return Ok(expressions);
        }
        let ty = operands.iter().find_map(|operand| match operand {
            Operand::Known(ty) => Some(*ty),
            _ => None,
        });
        let adopt = |(expression, known)| match (known, ty) {
            (Operand::Unknown, Some(ty)) => self.adopt(expression, ty),
            // A bare NULL among nothing but unknowns stays untyped; DataFusion copes.
            (Operand::Unknown, None) => self.adopt(expression, SqlType::Text),
            _ => Ok(expression),
        };
        expressions.into_iter().zip(operands).map(adopt).collect()
    }

    /// Takes the blanks off whatever is char(n), which is text from there on.
    fn trim<'e>(&self, expressions: impl Iterator<Item = &'e mut Expr>, schema: &DFSchema) {
        for expression in expressions {
            if matches!(self.operand(expression, schema), Operand::Known(SqlType::Char(_))) {
                *expression = as_text(std::mem::take(expression));
            }
        }
    }

    /// Values that are compared with each other: char(n) without its blanks, unless all are of one length.
    fn same_strings(&self, mut expressions: Vec<Expr>, schema: &DFSchema) -> Vec<Expr> {
        let known = |expression| self.operand(expression, schema).known();
        let types: Option<Vec<SqlType>> = expressions.iter().map(known).collect();
        if types.and_then(|types| united(&types)) == Some(SqlType::Text) {
            self.trim(expressions.iter_mut(), schema);
        }
        expressions
    }

    /// 42883 if the first of some expressions does not compare with one of the others.
    fn check_comparable(&self, operator: &str, expressions: &[Expr], schema: &DFSchema) -> Result<()> {
        let [first, others @ ..] = expressions else { return Ok(()) };
        let Operand::Known(ty) = self.operand(first, schema) else { return Ok(()) };
        for other in others {
            if let Operand::Known(other) = self.operand(other, schema)
                && common_type(ty, other).is_none()
            {
                return Err(to_datafusion(no_operator(&operator, Some(ty), Some(other))));
            }
        }
        Ok(())
    }

    fn are_spans(&self, expressions: &[Expr], schema: &DFSchema) -> bool {
        let is_span =
            |expression: &Expr| self.operand(expression, schema) == Operand::Known(SqlType::Interval);
        expressions.iter().all(is_span)
    }

    /// Spans of time as what orders them.
    fn spans(&self, expressions: Vec<Expr>, schema: &DFSchema) -> Vec<Expr> {
        match self.are_spans(&expressions, schema) {
            true => expressions.into_iter().map(length).collect(),
            false => expressions,
        }
    }

    /// Makes the length of a span of time of it.
    fn by_length(&self, expression: &mut Expr, schema: &DFSchema) {
        if self.operand(expression, schema) == Operand::Known(SqlType::Interval) {
            *expression = length(std::mem::take(expression));
        }
    }

    /// Spans of time that bound a frame: read by our own parser, and as their lengths where rows are ordered by spans.
    fn frame(&self, window: &mut WindowFunctionParams, schema: &DFSchema) -> Result<()> {
        use SqlType::{Date, Interval, Timestamp, TimestampTz};
        let ([key], WindowFrameUnits::Range) = (window.order_by.as_slice(), window.window_frame.units) else {
            return Ok(());
        };
        let Operand::Known(ty @ (Date | Timestamp | TimestampTz | Interval)) =
            self.operand(&key.expr, schema)
        else {
            return Ok(());
        };
        let WindowFrame { start_bound, end_bound, .. } = &mut window.window_frame;
        for bound in [start_bound, end_bound] {
            if let WindowFrameBound::Preceding(offset) | WindowFrameBound::Following(offset) = bound
                && let ScalarValue::Utf8(Some(text)) = &*offset
            {
                *offset = frame_offset(text, ty).map_err(to_datafusion)?;
            }
        }
        Ok(())
    }

    fn in_list(&self, list: InList, schema: &DFSchema) -> Result<Expr> {
        let mut all = vec![*list.expr];
        all.extend(list.list);
        let all = self.unify(all, schema)?;
        self.check_comparable("=", &all, schema)?;
        let all = self.same_strings(all, schema);
        if let Some(types) = self.numbers(&all, schema).filter(|types| types.iter().copied().any(is_float)) {
            return self.in_floats(all, types, list.negated, schema);
        }
        if let ([value, candidate], Some(_)) = (all.as_slice(), self.moments_among(&all, schema)) {
            let equal = self.equal(value.clone(), candidate.clone(), schema)?;
            return Ok(if list.negated { Expr::Not(Box::new(equal)) } else { equal });
        }
        let mut all = self.spans(self.moments(all, schema)?, schema);
        let expression = all.remove(0);
        Ok(Expr::InList(InList { expr: Box::new(expression), list: all, negated: list.negated }))
    }

    /// The types of dates and timestamps, if there are both.
    fn moments_among(&self, expressions: &[Expr], schema: &DFSchema) -> Option<Vec<SqlType>> {
        let known = |expression| self.operand(expression, schema).known();
        let types: Option<Vec<SqlType>> = expressions.iter().map(known).collect();
        types.filter(|types| days::united(types).is_some())
    }

    /// Dates among timestamps as timestamps.
    fn moments(&self, expressions: Vec<Expr>, schema: &DFSchema) -> Result<Vec<Expr>> {
        match self.moments_among(&expressions, schema) {
            Some(types) => {
                let common = days::united(&types).expect("there are both");
                self.convert(expressions, &types, common)
            }
            None => Ok(expressions),
        }
    }

    /// The types of numbers of different types, if there is a float among them.
    fn floats_among(&self, expressions: &[Expr], schema: &DFSchema) -> Option<Vec<SqlType>> {
        self.numbers(expressions, schema).filter(|types| floats::united(types).is_some())
    }

    /// A list of numbers with a float among them, the value before the list. Constants of the list, if
    /// there are several, first take one type with the value and each other, as PostgreSQL has it:
    /// `real IN (0.1, 0.2)` compares reals, `real IN (0.1)` doubles.
    fn in_floats(
        &self,
        mut all: Vec<Expr>,
        mut types: Vec<SqlType>,
        negated: bool,
        schema: &DFSchema,
    ) -> Result<Expr> {
        let constants: Vec<usize> =
            (1..all.len()).filter(|position| all[*position].column_refs().is_empty()).collect();
        let with_value: Vec<SqlType> =
            [0].iter().chain(&constants).map(|position| types[*position]).collect();
        if let (true, Some(common)) = (constants.len() > 1, floats::united(&with_value)) {
            for position in constants {
                all[position] =
                    floats::convert(std::mem::take(&mut all[position]), types[position], common, self.zone)?;
                types[position] = common;
            }
        }
        let single = all.len() == 2;
        let is_constant = |expression: &Expr| matches!(expression, Expr::Literal(..) | Expr::Placeholder(_));
        if !single
            && let Some(mut all) = self.compared_with_all(&all, &types)?
            // Of others lowering does not know whether they are zero.
            && all[1..].iter().all(is_constant)
        {
            let expression = all.remove(0);
            return Ok(Expr::InList(InList { expr: Box::new(expression), list: all, negated }));
        }
        let value = all.remove(0);
        let mut any: Option<Expr> = None;
        for candidate in all {
            let equal = self.equal(value.clone(), candidate, schema)?;
            any = Some(match any {
                Some(any) => any.or(equal),
                None => equal,
            });
        }
        let any = any.expect("the parser refuses empty lists");
        Ok(if negated { Expr::Not(Box::new(any)) } else { any })
    }

    fn between(&self, between: Between, schema: &DFSchema) -> Result<Expr> {
        let all = self.unify(vec![*between.expr, *between.low, *between.high], schema)?;
        self.check_comparable(">=", &all, schema)?;
        let all = self.same_strings(all, schema);
        if let Some(types) = self.floats_among(&all, schema) {
            return self.between_floats(all, types, between.negated, schema);
        }
        let all = self.spans(all, schema);
        let [expression, low, high] = <[Expr; 3]>::try_from(all).expect("three went in");
        let between = Between::new(Box::new(expression), between.negated, Box::new(low), Box::new(high));
        days::between(between, schema, self.parameters, self.zone)
    }

    /// BETWEEN over numbers with a float among them: two comparisons, unless one type does for both.
    fn between_floats(
        &self,
        all: Vec<Expr>,
        types: Vec<SqlType>,
        negated: bool,
        schema: &DFSchema,
    ) -> Result<Expr> {
        if types[0] == SqlType::Double || all[0].is_volatile() {
            let all = self.convert(all, &types, SqlType::Double)?;
            let [expression, low, high] = <[Expr; 3]>::try_from(all).expect("three went in");
            return Ok(Expr::Between(Between::new(
                Box::new(expression),
                negated,
                Box::new(low),
                Box::new(high),
            )));
        }
        let [expression, low, high] = <[Expr; 3]>::try_from(all).expect("three went in");
        let low = BinaryExpr::new(Box::new(expression.clone()), Operator::GtEq, Box::new(low));
        let high = BinaryExpr::new(Box::new(expression), Operator::LtEq, Box::new(high));
        let within = self.compare(low, schema)?.and(self.compare(high, schema)?);
        Ok(if negated { Expr::Not(Box::new(within)) } else { within })
    }

    fn compare(&self, comparison: BinaryExpr, schema: &DFSchema) -> Result<Expr> {
        let BinaryExpr { left, op, right } = comparison;
        let pair = self.same_strings(vec![*left, *right], schema);
        let [left, right] = <[Expr; 2]>::try_from(pair).expect("two went in");
        let comparison = BinaryExpr::new(Box::new(left), op, Box::new(right));
        let comparison = floats::compare(comparison, schema, self.parameters, self.zone)?;
        days::compare(comparison, schema, self.parameters, self.zone)
    }

    /// Arithmetic that the planner has built when an operand passed for a number of another type, as `sum(bigint)` does.
    fn arithmetic(&self, binary: BinaryExpr, schema: &DFSchema) -> Result<Expr> {
        let computed = floats::compute(binary, schema, self.parameters, self.zone)?;
        let Expr::BinaryExpr(BinaryExpr { left, op, right }) = computed else { return Ok(computed) };
        let types = self.operand(&left, schema).known().zip(self.operand(&right, schema).known());
        Ok(match types.and_then(|(a, b)| of_numerics(op, a, b)) {
            Some((operation, result)) => operate(operation, result, *left, *right),
            None => binary_expr(*left, op, *right),
        })
    }

    /// The types of expressions that are all numbers of known types.
    fn numbers(&self, expressions: &[Expr], schema: &DFSchema) -> Option<Vec<SqlType>> {
        let number = |expression| match self.operand(expression, schema) {
            Operand::Known(ty) if is_number(ty) => Some(ty),
            _ => None,
        };
        expressions.iter().map(number).collect()
    }

    /// Expressions of known types as ones of one type.
    fn convert(&self, expressions: Vec<Expr>, types: &[SqlType], to: SqlType) -> Result<Vec<Expr>> {
        let pairs = expressions.into_iter().zip(types);
        pairs.map(|(expression, from)| floats::convert(expression, *from, to, self.zone)).collect()
    }

    /// Gives all expressions the one type that they are to have as alternatives of each other. What comes out no longer
    /// says that it is a char(n), so its blanks stay behind.
    fn unite(&self, expressions: Vec<Expr>, schema: &DFSchema) -> Result<Vec<Expr>> {
        let operands: Vec<Operand> =
            expressions.iter().map(|expression| self.operand(expression, schema)).collect();
        let known: Vec<SqlType> = operands.iter().filter_map(|operand| operand.known()).collect();
        let common = united(&known).filter(|_| !operands.contains(&Operand::Foreign));
        let Some(common) = common else {
            let mut expressions = self.unify(expressions, schema)?;
            self.trim(expressions.iter_mut(), schema);
            return Ok(expressions);
        };
        let convert = |(expression, operand): (Expr, Operand)| match operand {
            Operand::Known(from) => floats::convert(expression, from, common, self.zone),
            _ => self.adopt(expression, common),
        };
        expressions.into_iter().zip(operands).map(convert).collect()
    }

    /// A value with what it is compared with one by one, all in the one type in which that is done;
    /// `None` if the comparisons differ in that.
    fn compared_with_all(&self, expressions: &[Expr], types: &[SqlType]) -> Result<Option<Vec<Expr>>> {
        let [first, others @ ..] = types else { return Ok(None) };
        let mut common = others.iter().map(|ty| floats::compared(*first, *ty).unwrap_or(*ty));
        let one = common.next().unwrap_or(*first);
        match common.all(|ty| ty == one) {
            true => self.convert(expressions.to_vec(), types, one).map(Some),
            false => Ok(None),
        }
    }

    fn like(&self, like: Like, schema: &DFSchema) -> Result<Like> {
        let text = |expression: Box<Expr>, is_pattern: bool| -> Result<Box<Expr>> {
            Ok(Box::new(match self.operand(&expression, schema) {
                Operand::Unknown => self.adopt(*expression, SqlType::Text)?,
                Operand::Known(SqlType::Text | SqlType::Varchar(_)) | Operand::Foreign => *expression,
                // All of a char(n) is matched, but a pattern is text.
                Operand::Known(SqlType::Char(_)) if is_pattern => as_text(*expression),
                Operand::Known(SqlType::Char(_)) => *expression,
                Operand::Known(ty) => {
                    let operator = if like.case_insensitive { "~~*" } else { "~~" };
                    let message = format!("operator does not exist: {ty} {operator} text");
                    let error = Error::new(SqlState::UNDEFINED_FUNCTION, message)
                        .with_hint("Cast the operand to text.");
                    return Err(to_datafusion(error));
                }
            }))
        };
        Ok(Like { expr: text(like.expr, false)?, pattern: text(like.pattern, true)?, ..like })
    }

    fn case(&self, case: Case, schema: &DFSchema) -> Result<Expr> {
        let (mut conditions, mut results): (Vec<Expr>, Vec<Expr>) =
            case.when_then_expr.into_iter().map(|(when, then)| (*when, *then)).unzip();
        let operand = match case.expr {
            Some(operand) => {
                conditions.insert(0, *operand);
                conditions = self.unify(conditions, schema)?;
                conditions = self.same_strings(conditions, schema);
                conditions = self.spans(self.moments(conditions, schema)?, schema);
                match self.numbers(&conditions, schema).filter(|types| types.iter().copied().any(is_float)) {
                    Some(types) if conditions[0].is_volatile() => {
                        conditions = self.convert(conditions, &types, SqlType::Double)?;
                        Some(Box::new(conditions.remove(0)))
                    }
                    // Each comparison has a type of its own, and knows that zeros are equal.
                    Some(_) => {
                        let operand = conditions.remove(0);
                        let equal = |when| self.equal(operand.clone(), when, schema);
                        conditions = conditions.into_iter().map(equal).collect::<Result<_>>()?;
                        None
                    }
                    None => Some(Box::new(conditions.remove(0))),
                }
            }
            None => {
                conditions =
                    conditions.into_iter().map(|when| self.boolean(when, schema)).collect::<Result<_>>()?;
                None
            }
        };
        let has_else = case.else_expr.is_some();
        results.extend(case.else_expr.map(|otherwise| *otherwise));
        // DataFusion types NULL branches itself; only literals and parameters need help.
        let helped = results.iter().any(|result| !matches!(result, Expr::Literal(ScalarValue::Null, _)));
        let mut results = if helped { self.unite(results, schema)? } else { results };
        let otherwise = if has_else { results.pop().map(Box::new) } else { None };
        let branches =
            conditions.into_iter().zip(results).map(|(when, then)| (Box::new(when), Box::new(then)));
        Ok(Expr::Case(Case::new(operand, branches.collect(), otherwise)))
    }

    /// NULLIF of values of different types, of which the first is of type `ty`, by the comparison that it is.
    fn null_if(&self, arguments: Vec<Expr>, ty: SqlType, result: SqlType, schema: &DFSchema) -> Result<Expr> {
        let [value, other] = <[Expr; 2]>::try_from(arguments).expect("NULLIF has two arguments");
        let compared = self.spans(vec![value.clone(), other], schema);
        let [left, right] = <[Expr; 2]>::try_from(compared).expect("two went in");
        let equal = self.equal(left, right, schema)?;
        let null = Expr::Literal(types::scalar(&Value::Null, result), None);
        let value = floats::convert(value, ty, result, self.zone)?;
        Ok(Expr::Case(Case::new(None, vec![(Box::new(equal), Box::new(null))], Some(Box::new(value)))))
    }

    /// The value that `lag` or `lead` yields of another row, and the one that it yields where there is none, in one type.
    fn with_default(&self, value: &mut Expr, default: &mut Expr, schema: &DFSchema) -> Result<()> {
        match (self.operand(value, schema), self.operand(default, schema)) {
            (Operand::Known(ty), Operand::Unknown) => *default = self.adopt(std::mem::take(default), ty)?,
            (Operand::Known(a), Operand::Known(b)) if a != b => {
                let Some(common) = united(&[a, b]).or_else(|| common_type(a, b)) else { return Ok(()) };
                *value = floats::convert(std::mem::take(value), a, common, self.zone)?;
                *default = floats::convert(std::mem::take(default), b, common, self.zone)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn equal(&self, left: Expr, right: Expr, schema: &DFSchema) -> Result<Expr> {
        self.compare(BinaryExpr::new(Box::new(left), Operator::Eq, Box::new(right)), schema)
    }

    fn boolean(&self, expression: Expr, schema: &DFSchema) -> Result<Expr> {
        match self.operand(&expression, schema) {
            Operand::Unknown => self.adopt(expression, SqlType::Boolean),
            _ => Ok(expression),
        }
    }

    fn in_subquery(&self, inner: InSubquery, schema: &DFSchema) -> Result<Expr> {
        let column =
            inner.subquery.subquery.schema().fields().first().and_then(|field| types::sql_type(field));
        match (self.operand(&inner.expr, schema), column) {
            (Operand::Known(SqlType::Interval) | Operand::Unknown, Some(SqlType::Interval)) => {
                let InSubquery { expr, subquery, negated } = inner;
                let span = self.adopt(*expr, SqlType::Interval)?;
                let rows = nodes::by_length(Arc::unwrap_or_clone(subquery.subquery))?;
                let subquery = Subquery { subquery: Arc::new(rows), ..subquery };
                Ok(Expr::InSubquery(InSubquery::new(Box::new(length(span)), subquery, negated)))
            }
            (Operand::Unknown, Some(ty)) => {
                let expression = self.adopt(*inner.expr, ty)?;
                Ok(Expr::InSubquery(InSubquery::new(Box::new(expression), inner.subquery, inner.negated)))
            }
            (Operand::Known(ty), Some(column)) if let Some(common) = compared(ty, column) => {
                let InSubquery { expr, subquery, negated } = inner;
                let expression = floats::convert(*expr, ty, common, self.zone)?;
                let rows = nodes::with_types(Arc::unwrap_or_clone(subquery.subquery), &[Some(common)])?;
                let subquery = Subquery { subquery: Arc::new(rows), ..subquery };
                Ok(Expr::InSubquery(InSubquery::new(Box::new(expression), subquery, negated)))
            }
            _ => Ok(Expr::InSubquery(inner)),
        }
    }

    fn function(&self, function: ScalarFunction, schema: &DFSchema) -> Result<Expr> {
        /// Functions that take char(n) with its blanks; all others take it as text.
        const WITH_BLANKS: &[&str] = &["concat", "concat_ws", "octet_length", keys::AS_IS, keys::AS_CAST];
        const ALIKE: &[&str] = &["coalesce", "greatest", "least", "nvl", "ifnull"];
        if let Some(quantifier) = quantifier_of(&function.func) {
            return self.quantified(function, quantifier, schema);
        }
        let ScalarFunction { func, args } = function;
        let func = alike::analysed(func);
        if let Some((operation, _)) = operation_of(&func)
            && let Some(types) = self.floats_among(&args, schema)
        {
            // When the planner chose it, one of the operands passed for a numeric.
            let args = self.convert(args, &types, SqlType::Double)?;
            let [left, right] = <[Expr; 2]>::try_from(args).expect("operators have two operands");
            return Ok(binary_expr(left, operator_of(operation), right));
        }
        if func.name() == "pg_typeof"
            && let [argument] = args.as_slice()
        {
            let name = match self.operand(argument, schema) {
                Operand::Unknown => "unknown".to_owned(),
                Operand::Known(ty) => plain_name(ty),
                Operand::Foreign => match element(argument, schema, self.parameters) {
                    Some(Operand::Known(element)) => format!("{}[]", plain_name(element)),
                    _ => "array".to_owned(),
                },
            };
            return Ok(Expr::Literal(ScalarValue::Utf8View(Some(name)), None));
        }
        if let [value, Expr::Literal(ScalarValue::Int32(Some(decimals)), _)] = args.as_slice()
            && let Some(rounded) = self.rounded(value, *decimals, schema)
        {
            match func.name() {
                "round" => return Ok(rounding(value.clone(), rounded)),
                "trunc" => {
                    let cut = Expr::ScalarFunction(ScalarFunction::new_udf(func, args));
                    return Ok(rounding(cut, rounded));
                }
                _ => {}
            }
        }
        let is_mixed_array = || {
            let is_mixed = || self.floats_among(&args, schema).or_else(|| self.moments_among(&args, schema));
            func.name() == "make_array" && is_mixed().is_some()
        };
        let args = if ALIKE.contains(&func.name()) || is_mixed_array() {
            let args = self.unite(args, schema)?;
            if let Some(extreme) = extreme_of_spans(func.name())
                && self.are_spans(&args, schema)
            {
                return Ok(Expr::ScalarFunction(ScalarFunction::new_udf(extreme, args)));
            }
            args
        } else if func.name() == "nullif" {
            let mut args = self.unify(args, schema)?;
            self.trim(args.iter_mut(), schema);
            match self.numbers(&args, schema).filter(|types| types.iter().copied().any(is_float)) {
                Some(types) if args[0].is_volatile() => self.convert(args, &types, SqlType::Double)?,
                Some(types) => {
                    let result = if is_float(types[0]) { types[0] } else { SqlType::Double };
                    return self.null_if(args, types[0], result, schema);
                }
                None if self.are_spans(&args, schema) && !args[0].is_volatile() => {
                    return self.null_if(args, SqlType::Interval, SqlType::Interval, schema);
                }
                None => match self.moments_among(&args, schema).filter(|_| !args[0].is_volatile()) {
                    Some(types) => return self.null_if(args, types[0], types[0], schema),
                    None => self.moments(args, schema)?,
                },
            }
        } else {
            let mut args = self.arguments(&func, args, schema)?;
            if !WITH_BLANKS.contains(&func.name()) {
                for arg in &mut args {
                    if matches!(self.operand(arg, schema), Operand::Known(SqlType::Char(_))) {
                        *arg = cast(std::mem::take(arg), SqlType::Text);
                    }
                }
            }
            args
        };
        Ok(Expr::ScalarFunction(ScalarFunction::new_udf(func, args)))
    }

    /// The type of `round(numeric, 2)`: two decimals, which only a cast can say.
    fn rounded(&self, value: &Expr, decimals: i32, schema: &DFSchema) -> Option<SqlType> {
        let Operand::Known(SqlType::Numeric { precision, scale }) = self.operand(value, schema) else {
            return None;
        };
        let whole = precision - scale + 1;
        let room = numeric::MAX_PRECISION.saturating_sub(whole).max(scale);
        let decimals = u8::try_from(decimals).ok().filter(|decimals| *decimals <= room)?;
        let precision = (whole + decimals).min(numeric::MAX_PRECISION);
        Some(SqlType::Numeric { precision, scale: decimals })
    }

    /// Parameters among the arguments of a function take the type that its signature would coerce
    /// a NULL to there; text where it does not say.
    fn arguments(
        &self,
        function: &Arc<datafusion::logical_expr::ScalarUDF>,
        arguments: Vec<Expr>,
        schema: &DFSchema,
    ) -> Result<Vec<Expr>> {
        let untyped = |argument: &Expr| {
            matches!(argument, Expr::Placeholder(_)) && self.operand(argument, schema) == Operand::Unknown
        };
        if !arguments.iter().any(untyped) {
            return Ok(arguments);
        }
        let fields: Vec<_> = arguments
            .iter()
            .map(|argument| match argument.to_field(schema) {
                Ok((_, field)) => field,
                Err(_) => Arc::new(datafusion::arrow::datatypes::Field::new("", DataType::Null, true)),
            })
            .collect();
        let coerced =
            datafusion::logical_expr::type_coercion::functions::fields_with_udf(&fields, function.as_ref());
        let wanted: Vec<Option<ParameterType>> = match coerced {
            Ok(fields) => fields.iter().map(|field| types::parameter_type(field)).collect(),
            Err(_) => vec![None; arguments.len()],
        };
        let adopt = |(argument, wanted): (Expr, Option<ParameterType>)| match wanted {
            _ if !untyped(&argument) => Ok(argument),
            Some(ParameterType::Array(element)) => adopt_array(argument, element, self.parameters, self.zone),
            Some(ParameterType::Single(ty)) => self.adopt(argument, ty),
            None => self.adopt(argument, SqlType::Text),
        };
        arguments.into_iter().zip(wanted).map(adopt).collect()
    }
}

/// How far a bound of a frame is from its row, where rows are ordered by values of that type.
fn frame_offset(text: &str, ty: SqlType) -> firn_base::Result<ScalarValue> {
    if text.parse::<f64>().is_ok() {
        let message = format!(
            "RANGE with offset PRECEDING/FOLLOWING is not supported for column type {ty} and offset type integer"
        );
        return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message)
            .with_hint("Cast the offset value to an appropriate type."));
    }
    let span = interval::parse(text)?;
    if span.comparable() < 0 {
        let message = "invalid preceding or following size in window function";
        return Err(Error::new(SqlState::new("22013"), message));
    }
    Ok(match ty {
        SqlType::Interval => {
            let length = Value::Numeric { unscaled: span.comparable(), scale: 0 };
            types::scalar(&length, LENGTH_OF_SPAN)
        }
        _ => types::scalar(&Value::Interval(span), SqlType::Interval),
    })
}

/// The cast that rounding is, which declares no digits.
fn rounding(value: Expr, ty: SqlType) -> Expr {
    Expr::Cast(Cast::new_from_field(Box::new(value), types::field(ROUNDING, ty)))
}

/// EXISTS of rows that have a column: DataFusion looks for the first of what it joins with. Where the text alone says that
/// there is none, [`super::rewrite`] has given them one, on both sides of set operations.
fn with_output(exists: Exists) -> Result<Exists> {
    if !exists.subquery.subquery.schema().fields().is_empty() {
        return Ok(exists);
    }
    let Exists { subquery, negated } = exists;
    let rows = LogicalPlanBuilder::from(Arc::unwrap_or_clone(subquery.subquery));
    let rows = rows.project(vec![lit(1_i32).alias("one")])?.build()?;
    Ok(Exists { subquery: Subquery { subquery: Arc::new(rows), ..subquery }, negated })
}

/// Casts the argument of `sum(bigint)` to a numeric, which cannot overflow.
fn widen(function: &AggregateUDF, arguments: &mut [Expr], schema: &DFSchema) -> Result<()> {
    if let ("sum", [argument]) = (function.name(), arguments)
        && argument.get_type(schema)? == DataType::Int64
    {
        *argument = cast(std::mem::take(argument), SqlType::Numeric { precision: 19, scale: 0 });
    }
    Ok(())
}

/// Whether an aggregate yields strings that it was given, but not their type.
fn loses_type(function: &AggregateUDF) -> bool {
    matches!(function.name(), "min" | "max" | "string_agg" | "array_agg")
}

fn is_arithmetic(op: Operator) -> bool {
    matches!(op, Operator::Plus | Operator::Minus | Operator::Multiply | Operator::Divide | Operator::Modulo)
}

/// The operator that an operation is written by.
fn operator_of(operation: Operation) -> Operator {
    match operation {
        Operation::Add => Operator::Plus,
        Operation::Subtract => Operator::Minus,
        Operation::Multiply => Operator::Multiply,
        Operation::Divide => Operator::Divide,
    }
}

fn distinct(binary: &BinaryExpr) -> bool {
    matches!(binary.op, Operator::IsDistinctFrom | Operator::IsNotDistinctFrom)
}

/// A cast of a literal as the literal it makes; anything else as it is.
pub fn fold(expression: Expr, zone: TimeZoneSetting) -> Result<Expr> {
    let Expr::Cast(cast) = expression else { return Ok(expression) };
    let inner = fold(*cast.expr, zone)?;
    let to = types::sql_type(&cast.field);
    let inner = match to {
        // A cast to another Arrow type is coercion's, which changes nothing.
        Some(to @ (SqlType::Text | SqlType::Varchar(_)))
            if types::data_type(to) == *cast.field.data_type() && is_char_literal(&inner) =>
        {
            as_text(inner)
        }
        _ => inner,
    };
    match (inner, to) {
        (Expr::Literal(scalar, _), Some(SqlType::NUMERIC)) if !scalar.is_null() => {
            let value = types::value(&scalar).map_err(to_datafusion)?;
            plain_numeric(value, zone).map_err(to_datafusion)
        }
        (Expr::Literal(scalar, _), Some(to)) if types::data_type(to) == *cast.field.data_type() => {
            let value = types::value(&scalar).map_err(to_datafusion)?;
            let folded = coerce::cast(value, to, &zone).map_err(to_datafusion)?;
            let metadata = datafusion::common::metadata::FieldMetadata::from(cast.field.metadata().clone());
            let metadata = (!cast.field.metadata().is_empty()).then_some(metadata);
            Ok(Expr::Literal(types::scalar(&folded, to), metadata))
        }
        (inner, _) => Ok(Expr::Cast(Cast { expr: Box::new(inner), field: cast.field })),
    }
}

/// Whether a literal says that it is a char(n).
fn is_char_literal(expression: &Expr) -> bool {
    let Expr::Literal(..) = expression else { return false };
    let field = expression.to_field(&DFSchema::empty());
    field.is_ok_and(|(_, field)| matches!(types::sql_type(&field), Some(SqlType::Char(_))))
}

/// A literal of type `numeric`, which keeps the digits that it was given.
fn plain_numeric(value: Value, zone: TimeZoneSetting) -> firn_base::Result<Expr> {
    let (unscaled, scale) = match value {
        Value::Text(text) => numeric::parse(&text)?,
        Value::SmallInt(value) => (i128::from(value), 0),
        Value::Integer(value) => (i128::from(value), 0),
        Value::BigInt(value) => (i128::from(value), 0),
        Value::Numeric { unscaled, scale } => (unscaled, scale),
        other => match coerce::cast(other, SqlType::NUMERIC, &zone)? {
            Value::Numeric { unscaled, scale } => numeric::without_trailing_zeros(unscaled, scale),
            other => unreachable!("{other:?} was cast to numeric"),
        },
    };
    Ok(super::operators::numeric_literal(unscaled, scale))
}

/// A cast to plain `numeric` of a number that is exact already: it keeps the digits of its type,
/// which leaves more room than 38 digits of which 16 are decimals.
pub fn narrow(expression: Expr, schema: &DFSchema) -> Expr {
    let Expr::Cast(wide) = expression else { return expression };
    if types::sql_type(&wide.field) != Some(SqlType::NUMERIC) {
        return Expr::Cast(wide);
    }
    let from = wide.expr.to_field(schema).ok().and_then(|(_, field)| types::sql_type(&field));
    let own = match from {
        Some(SqlType::SmallInt) => SqlType::Numeric { precision: 5, scale: 0 },
        Some(SqlType::Integer) => SqlType::Numeric { precision: 10, scale: 0 },
        Some(SqlType::BigInt) => SqlType::Numeric { precision: 19, scale: 0 },
        Some(own @ SqlType::Numeric { .. }) => own,
        _ => return Expr::Cast(wide),
    };
    cast(*wide.expr, own)
}

/// Folds the casts of literals that coercion has put in.
fn fold_constants(expression: Expr, zone: TimeZoneSetting) -> Result<Transformed<Expr>> {
    expression.transform_up(|node| match node {
        Expr::Cast(cast) if matches!(cast.expr.as_ref(), Expr::Literal(..)) => {
            fold(Expr::Cast(cast), zone).map(Transformed::yes)
        }
        other => Ok(Transformed::no(other)),
    })
}
