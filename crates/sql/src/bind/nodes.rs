//! Analysis of plan nodes as a whole: what PostgreSQL means by a join, by ORDER BY and by an aggregation where the
//! expressions alone do not tell. Set operations: see [`super::sets`].

use super::context::USERS_CAST;
use super::operators::{Operand, adopt, as_text, cast, compared, length, operand, united};
use super::parameters::Parameters;
use super::sets::{is_set, output_type};
use super::{analysis, floats};
use datafusion::arrow::datatypes::{DataType, FieldRef, TimeUnit};
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result, TableReference};
use datafusion::logical_expr::expr::Cast;
use datafusion::logical_expr::type_coercion::binary::type_union_resolution;
use datafusion::logical_expr::{
    Aggregate, Expr, ExprSchemable, Join, LogicalPlan, LogicalPlanBuilder, Projection, Values,
};
use firn_base::sync::Arc;
use firn_base::{SqlType, TimeZoneSetting};
use firn_exec::types;

/// The pass over nodes whose expressions have their types.
pub struct Nodes<'a> {
    /// What is known of parameters.
    pub parameters: &'a Parameters,
    /// The session's time zone.
    pub zone: TimeZoneSetting,
}

impl Nodes<'_> {
    /// Spans of time are sorted by their lengths.
    pub fn sorts(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let sorted = plan.transform_up_with_subqueries(|node| {
            firn_exec::interrupt::check()?;
            let LogicalPlan::Sort(mut sort) = node else { return Ok(Transformed::no(node)) };
            let mut changed = false;
            for key in &mut sort.expr {
                if operand(&key.expr, sort.input.schema(), self.parameters)
                    == Operand::Known(SqlType::Interval)
                {
                    key.expr = length(std::mem::take(&mut key.expr));
                    changed = true;
                }
            }
            Ok(if changed { Transformed::yes } else { Transformed::no }(LogicalPlan::Sort(sort)))
        })?;
        Ok(sorted.data)
    }

    /// The types of the columns that a node puts together from several: of a set operation, of a list of
    /// VALUES, of the pairs that a join compares.
    pub fn columns(&self, node: LogicalPlan) -> Result<LogicalPlan> {
        match node {
            LogicalPlan::Union(union) => self.union(union),
            LogicalPlan::Values(values) => self.values(values),
            LogicalPlan::Join(join) if join.on.is_empty() => Ok(LogicalPlan::Join(join)),
            LogicalPlan::Join(join) if is_set(&join) => self.set(join),
            LogicalPlan::Join(join) => self.join(join),
            other => Ok(other),
        }
    }

    /// Floats among other numbers, of which the planner has made decimals, and dates among timestamps.
    fn values(&self, values: Values) -> Result<LogicalPlan> {
        let Values { schema, values: mut rows } = values;
        let mut fields: Vec<FieldRef> = schema.fields().iter().cloned().collect();
        let nothing = DFSchema::empty();
        for (column, field) in fields.iter_mut().enumerate() {
            // Nanoseconds are what the planner makes of dates and timestamps, and nobody else.
            let is_of_planner = matches!(
                field.data_type(),
                DataType::Decimal128(..) | DataType::Timestamp(TimeUnit::Nanosecond, _)
            );
            if !is_of_planner {
                continue;
            }
            // The planner's own cast, if it has made one, stands outermost.
            let is_its_cast =
                |cast: &Cast| cast.field.data_type() == field.data_type() && cast.field.name() != USERS_CAST;
            let own = |row: &Vec<Expr>| match &row[column] {
                Expr::Cast(cast) if is_its_cast(cast) => cast.expr.as_ref().clone(),
                other => other.clone(),
            };
            let own: Vec<Expr> = rows.iter().map(own).collect();
            let operand = |expression: &Expr| operand(expression, &nothing, self.parameters);
            let operands: Vec<Operand> = own.iter().map(operand).collect();
            let known: Vec<SqlType> = operands.iter().filter_map(|operand| operand.known()).collect();
            let Some(common) = united(&known).filter(|_| !operands.contains(&Operand::Foreign)) else {
                continue;
            };
            let data_type = types::data_type(common);
            for ((row, expression), operand) in rows.iter_mut().zip(own).zip(operands) {
                row[column] = match operand.known() {
                    // Of a NULL the planner has made one of nanoseconds.
                    Some(from) if from == common && expression.get_type(&nothing)? != data_type => {
                        analysis::fold(cast(expression, common), self.zone)?
                    }
                    Some(from) => floats::convert(expression, from, common, self.zone)?,
                    None => adopt(expression, common, self.parameters, self.zone)?,
                };
            }
            *field = Arc::new(field.as_ref().clone().with_data_type(data_type));
        }
        let schema = with_fields(&schema, fields)?;
        Ok(LogicalPlan::Values(Values { schema: Arc::new(schema), values: rows }))
    }

    /// A list of VALUES whose expressions have their types. Casts to plain numeric have kept the digits of what is cast,
    /// which the planner did not know: numerics of different digits get those that hold all.
    pub fn digits(&self, node: LogicalPlan) -> Result<LogicalPlan> {
        let LogicalPlan::Values(Values { schema, values: mut rows }) = node else { return Ok(node) };
        let mut fields: Vec<FieldRef> = schema.fields().iter().cloned().collect();
        let nothing = DFSchema::empty();
        for (column, field) in fields.iter_mut().enumerate() {
            let types: Vec<DataType> =
                rows.iter().map(|row| row[column].get_type(&nothing)).collect::<Result<_>>()?;
            let are_numerics =
                types.iter().chain([field.data_type()]).all(|ty| matches!(ty, DataType::Decimal128(..)));
            if !are_numerics || types.iter().all(|ty| ty == field.data_type()) {
                continue;
            }
            let is_null =
                |row: &Vec<Expr>| matches!(&row[column], Expr::Literal(value, _) if value.is_null());
            let known: Vec<DataType> =
                rows.iter().zip(types).filter(|(row, _)| !is_null(row)).map(|(_, ty)| ty).collect();
            let Some(common) = union_of(&known) else { continue };
            for row in &mut rows {
                let value = std::mem::take(&mut row[column]);
                row[column] = match value {
                    // Folding a cast to plain numeric would take the digits off again.
                    Expr::Literal(value, metadata) => Expr::Literal(value.cast_to(&common)?, metadata),
                    other => other.cast_to(&common, &nothing)?,
                };
            }
            *field = Arc::new(field.as_ref().clone().with_data_type(common));
        }
        let schema = with_fields(&schema, fields)?;
        Ok(LogicalPlan::Values(Values { schema: Arc::new(schema), values: rows }))
    }

    /// What USING compares.
    fn join(&self, join: Join) -> Result<LogicalPlan> {
        let known = |side: &LogicalPlan, key: &Expr| operand(key, side.schema(), self.parameters).known();
        let types: Vec<Option<(SqlType, SqlType)>> = join
            .on
            .iter()
            .map(|(left, right)| known(&join.left, left).zip(known(&join.right, right)))
            .collect();
        let is_mixed =
            |pair: &Option<(SqlType, SqlType)>| pair.is_some_and(|(a, b)| compared(a, b).is_some());
        if !types.iter().any(is_mixed) {
            return Ok(LogicalPlan::Join(join));
        }
        let mut on = Vec::with_capacity(join.on.len());
        for ((left, right), types) in join.on.into_iter().zip(types) {
            on.push(match types.and_then(|(a, b)| Some((a, b, compared(a, b)?))) {
                Some((a, b, common)) => (
                    floats::convert(left, a, common, self.zone)?,
                    floats::convert(right, b, common, self.zone)?,
                ),
                None => (left, right),
            });
        }
        Ok(LogicalPlan::Join(Join { on, ..join }))
    }
}

/// The type that the planner gives a column of VALUES whose rows have these.
fn union_of(types: &[DataType]) -> Option<DataType> {
    let mut known = types.iter().filter(|ty| !ty.is_null());
    let first = known.next()?.clone();
    known.try_fold(first, |common, ty| type_union_resolution(&[common, ty.clone()]))
}

/// A schema whose fields are others, under the same qualifiers.
fn with_fields(schema: &DFSchema, fields: Vec<FieldRef>) -> Result<DFSchema> {
    let fields =
        fields.into_iter().zip(schema.iter()).map(|(field, (qualifier, _))| (qualifier.cloned(), field));
    DFSchema::new_with_metadata(fields.collect(), schema.metadata().clone())
}

/// A plan with its first columns cast to the types that are given.
pub fn with_types(plan: LogicalPlan, types: &[Option<SqlType>]) -> Result<LogicalPlan> {
    let wanted = |position: usize| {
        types.get(position).copied().flatten().filter(|ty| output_type(&plan, position) != Some(*ty))
    };
    if (0..types.len()).all(|position| wanted(position).is_none()) {
        return Ok(plan);
    }
    let columns = plan.schema().iter().enumerate().map(|(position, (qualifier, field))| {
        let column = Expr::from((qualifier, field));
        match wanted(position) {
            Some(SqlType::Text) => as_text(column).alias_qualified(qualifier.cloned(), field.name()),
            Some(ty) => cast(column, ty).alias_qualified(qualifier.cloned(), field.name()),
            None => column,
        }
    });
    let columns: Vec<Expr> = columns.collect();
    Projection::try_new(columns, Arc::new(plan)).map(LogicalPlan::Projection)
}

/// The lengths of the spans of time that are the only column of a plan.
pub fn by_length(plan: LogicalPlan) -> Result<LogicalPlan> {
    let lengths = plan.schema().iter().map(|(qualifier, field)| {
        length(Expr::from((qualifier, field))).alias_qualified(qualifier.cloned(), field.name())
    });
    let lengths: Vec<Expr> = lengths.collect();
    Projection::try_new(lengths, Arc::new(plan)).map(LogicalPlan::Projection)
}

/// `sum(real)` is a real, of which DataFusion makes a double.
pub fn real_sums(plan: LogicalPlan) -> Result<LogicalPlan> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        firn_exec::interrupt::check()?;
        found |= matches!(node, LogicalPlan::Aggregate(aggregate) if !real_sums_of(aggregate).is_empty());
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    if !found {
        return Ok(plan);
    }
    let narrowed = plan.transform_up_with_subqueries(|node| {
        firn_exec::interrupt::check()?;
        let LogicalPlan::Aggregate(aggregate) = &node else {
            return node.recompute_schema().map(Transformed::no);
        };
        let reals = real_sums_of(aggregate);
        if reals.is_empty() {
            return node.recompute_schema().map(Transformed::no);
        }
        let column = |(position, (qualifier, field)): (usize, (Option<&TableReference>, &FieldRef))| {
            let column = Expr::from((qualifier, field));
            match reals.contains(&position) {
                true => cast(column, SqlType::Real).alias_qualified(qualifier.cloned(), field.name()),
                false => column,
            }
        };
        let columns: Vec<Expr> = aggregate.schema.iter().enumerate().map(column).collect();
        LogicalPlanBuilder::from(node).project(columns)?.build().map(Transformed::yes)
    })?;
    Ok(narrowed.data)
}

/// The columns of an aggregation that are sums of reals.
fn real_sums_of(aggregate: &Aggregate) -> Vec<usize> {
    let is_real_sum = |expression: &Expr| match expression {
        Expr::AggregateFunction(call) if call.func.name() == "sum" => {
            let argument = call.params.args.first();
            let ty = argument.and_then(|argument| argument.get_type(aggregate.input.schema()).ok());
            ty == Some(DataType::Float32)
        }
        _ => false,
    };
    let grouped = aggregate.schema.fields().len() - aggregate.aggr_expr.len();
    (grouped..aggregate.schema.fields().len())
        .filter(|position| is_real_sum(&aggregate.aggr_expr[position - grouped]))
        .collect()
}
