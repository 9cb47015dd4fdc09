//! Taking an analysed plan apart: tables, conditions, outputs, order, limit.
//!
//! Whatever the plan's shape was, in the result every expression is over the columns of the tables
//! themselves, each under a name of its own ([`Flat::schema`]), with projections and aliases
//! substituted away. Plans with anything else in them do not flatten.

use crate::scan::FirnTable;
use datafusion::arrow::datatypes::{Field, Schema};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, JoinType, plan_err};
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::utils::split_conjunction_owned;
use datafusion::logical_expr::{Expr, LogicalPlan, SortExpr};
use firn_base::sync::Arc;
use firn_base::{ColumnId, SqlType};
use firn_storage::Table;
use firn_txn::catalog::TableDef;

/// A plan taken apart.
#[derive(Clone)]
pub(super) struct Flat {
    pub tables: Vec<FlatTable>,
    /// What [`Flat::schema`]'s columns are.
    pub columns: Vec<FlatColumn>,
    pub conditions: Vec<Expr>,
    pub outputs: Vec<Expr>,
    pub order: Vec<SortExpr>,
    pub skip: Option<Expr>,
    pub fetch: Option<Expr>,
    /// Aggregates without groups: their calls, and the schema of their results, which outputs are
    /// over.
    pub aggregate: Option<(Vec<Expr>, DFSchema)>,
}

/// A table of the query.
#[derive(Clone)]
pub(super) struct FlatTable {
    pub definition: Arc<TableDef>,
    pub table: Arc<Table>,
}

/// A column of one of the tables.
#[derive(Clone)]
pub(super) struct FlatColumn {
    pub table: usize,
    /// `None` for the row id.
    pub column: Option<ColumnId>,
    field: Field,
}

/// Takes a plan apart.
pub(super) fn flatten(plan: &LogicalPlan) -> Option<Flat> {
    let mut flat = Flat {
        tables: Vec::new(),
        columns: Vec::new(),
        conditions: Vec::new(),
        outputs: Vec::new(),
        order: Vec::new(),
        skip: None,
        fetch: None,
        aggregate: None,
    };
    flat.outputs = flat.add(plan)?;
    (!flat.tables.is_empty()).then_some(flat)
}

impl Flat {
    /// The columns of the tables, named by their position.
    pub(super) fn schema(&self) -> DFSchema {
        let fields: Vec<Field> = self.columns.iter().map(|column| column.field.clone()).collect();
        DFSchema::try_from(Schema::new(fields)).expect("names differ")
    }

    /// Whether rows can still be filtered and joined: nothing has been aggregated, ordered or cut.
    fn is_open(&self) -> bool {
        self.aggregate.is_none() && self.order.is_empty() && self.skip.is_none() && self.fetch.is_none()
    }

    /// Adds a plan; returns its outputs over the tables' columns.
    fn add(&mut self, plan: &LogicalPlan) -> Option<Vec<Expr>> {
        match plan {
            LogicalPlan::Projection(projection) => {
                let inputs = self.add(&projection.input)?;
                projection
                    .expr
                    .iter()
                    .map(|expression| substitute(expression, projection.input.schema(), &inputs))
                    .collect()
            }
            LogicalPlan::SubqueryAlias(alias) => self.add(&alias.input),
            LogicalPlan::Filter(filter) => {
                let inputs = self.add(&filter.input)?;
                if !self.is_open() {
                    return None;
                }
                self.add_condition(&filter.predicate, filter.input.schema(), &inputs)?;
                Some(inputs)
            }
            LogicalPlan::Sort(sort) => {
                let inputs = self.add(&sort.input)?;
                if !self.order.is_empty()
                    || self.skip.is_some()
                    || self.fetch.is_some()
                    || sort.fetch.is_some()
                {
                    return None;
                }
                if self.aggregate.is_some() {
                    // One row needs no order.
                    return Some(inputs);
                }
                for key in &sort.expr {
                    let expr = substitute(&key.expr, sort.input.schema(), &inputs)?;
                    self.order.push(SortExpr { expr, asc: key.asc, nulls_first: key.nulls_first });
                }
                Some(inputs)
            }
            LogicalPlan::Limit(limit) => {
                let inputs = self.add(&limit.input)?;
                if self.skip.is_some() || self.fetch.is_some() {
                    return None;
                }
                self.skip = limit.skip.as_deref().cloned();
                self.fetch = limit.fetch.as_deref().cloned();
                Some(inputs)
            }
            LogicalPlan::Aggregate(aggregate) => {
                let inputs = self.add(&aggregate.input)?;
                if !self.is_open() || !aggregate.group_expr.is_empty() {
                    return None;
                }
                let calls = aggregate
                    .aggr_expr
                    .iter()
                    .map(|call| substitute(call, aggregate.input.schema(), &inputs))
                    .collect::<Option<_>>()?;
                let fields: Vec<Field> = aggregate
                    .schema
                    .fields()
                    .iter()
                    .enumerate()
                    .map(|(position, field)| field.as_ref().clone().with_name(result_name(position)))
                    .collect();
                let schema = DFSchema::try_from(Schema::new(fields)).expect("names differ");
                self.aggregate = Some((calls, schema));
                Some((0..aggregate.aggr_expr.len()).map(|position| named(result_name(position))).collect())
            }
            LogicalPlan::Join(join) if join.join_type == JoinType::Inner => {
                let mut inputs = self.add(&join.left)?;
                inputs.extend(self.add(&join.right)?);
                if !self.is_open() {
                    return None;
                }
                for (left, right) in &join.on {
                    self.add_condition(&left.clone().eq(right.clone()), &join.schema, &inputs)?;
                }
                if let Some(filter) = &join.filter {
                    self.add_condition(filter, &join.schema, &inputs)?;
                }
                Some(inputs)
            }
            LogicalPlan::TableScan(scan) => {
                let provider = source_as_provider(&scan.source).ok()?;
                let table = provider.downcast_ref::<FirnTable>()?;
                if scan.fetch.is_some() || !scan.filters.is_empty() || !self.is_open() {
                    return None;
                }
                let begin = self.columns.len();
                let position = self.tables.len();
                let schema = scan.source.schema();
                let mut ids = table.definition().visible_columns().map(|(id, _)| id);
                for field in schema.fields() {
                    self.columns.push(FlatColumn {
                        table: position,
                        column: ids.next(),
                        field: field.as_ref().clone().with_name(format!("c{}", self.columns.len())),
                    });
                }
                self.tables
                    .push(FlatTable { definition: table.definition().clone(), table: table.table().clone() });
                let output = |column: usize| named(format!("c{}", begin + column));
                Some(match &scan.projection {
                    Some(projection) => projection.iter().copied().map(output).collect(),
                    None => (0..schema.fields().len()).map(output).collect(),
                })
            }
            _ => None,
        }
    }

    fn add_condition(&mut self, condition: &Expr, schema: &DFSchema, inputs: &[Expr]) -> Option<()> {
        let condition = substitute(condition, schema, inputs)?;
        self.conditions.extend(split_conjunction_owned(condition));
        Some(())
    }

    /// Which column an expression is, if it is one as it stands.
    pub(super) fn column_of(&self, expression: &Expr) -> Option<usize> {
        match expression {
            Expr::Column(column) => column.name.strip_prefix('c')?.parse().ok(),
            Expr::Alias(alias) => self.column_of(&alias.expr),
            _ => None,
        }
    }

    /// The type of a column.
    pub(super) fn column_type(&self, column: usize) -> Option<SqlType> {
        let FlatColumn { table, column, .. } = &self.columns[column];
        Some(self.tables[*table].definition.columns[(*column)?.index()].ty.sql_type())
    }
}

fn result_name(position: usize) -> String {
    format!("a{position}")
}

fn named(name: String) -> Expr {
    Expr::Column(Column::new_unqualified(name))
}

/// The expression with every column replaced by what `inputs` has in its place.
fn substitute(expression: &Expr, schema: &DFSchema, inputs: &[Expr]) -> Option<Expr> {
    expression
        .clone()
        .transform(|node| match &node {
            Expr::Column(column) => match schema.maybe_index_of_column(column) {
                Some(index) => {
                    let replaced = match &inputs[index] {
                        Expr::Alias(alias) => alias.expr.as_ref().clone(),
                        other => other.clone(),
                    };
                    // What is put in is over the tables already: it must not be looked at again.
                    Ok(Transformed::new(
                        replaced,
                        true,
                        datafusion::common::tree_node::TreeNodeRecursion::Jump,
                    ))
                }
                None => plan_err!("no column {column}"),
            },
            _ => Ok(Transformed::no(node)),
        })
        .ok()
        .map(|transformed| transformed.data)
}
