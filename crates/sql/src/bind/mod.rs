//! Binding: from syntax trees to analysed plans and expressions.
//!
//! ```text
//! syntax tree ──rewrite──> syntax tree ──DataFusion's SQL planner──> plan ──analysis──> analysed plan
//!                                          │ names: context               │ untyped literals and
//!                                          │ operators: operators         │ parameters, casts
//! ```
//!
//! An analysed plan means what PostgreSQL would mean by the statement: its integer arithmetic is
//! checked, its casts are PostgreSQL's, its parameters are typed placeholders. `firn_exec::lower`
//! makes DataFusion compute that; the short path reads it as it is.
//!
//! Parameter types are found by binding until nothing new is learnt: each use of `$n` beside
//! something typed records a type, and the next round starts from it.

mod alike;
mod analysis;
mod context;
mod correlated;
mod days;
mod dependent;
mod floats;
pub(crate) mod insert;
mod keys;
mod lateral;
mod locking;
mod names;
mod nodes;
mod operators;
mod outer_aggregates;
mod parameters;
mod position;
mod rewrite;
mod series;
mod sets;
mod size;

pub(crate) use keys::{AS_CAST, AS_IS};

pub use self::locking::LockingParts;
pub use firn_exec::types::columns_of;

use self::context::Context;
use self::parameters::Parameters;
use crate::files::Files;
use crate::names::{Names, Relation};
use crate::pg_catalog;
use crate::session_facts::SessionFacts;
use crate::statement::qualified_name;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::TableProvider;
use datafusion::common::{DFSchema, DataFusionError};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use datafusion::sql::planner::{PlannerContext, SqlToRel};
use datafusion::sql::sqlparser::ast;
use firn_base::sync::Arc;
use firn_base::{Error, ParameterType, Result, SqlType, TableId};
use firn_exec::dml::ChangedRows;
use firn_exec::error::from_datafusion;
use firn_exec::interrupt;
use firn_exec::{FirnTable, Table};
use firn_txn::Catalog;
use firn_txn::catalog::TableDef;
use std::cell::Cell;
use std::rc::Rc;

/// Finds the physical table of an id, as [`firn_txn::Transaction::table`] does.
pub type TableResolver<'a> = &'a dyn Fn(TableId) -> Arc<Table>;

/// Binds the parts of one statement. Parameter types gather in it as parts are bound.
pub struct Binder<'a> {
    catalog: &'a Arc<Catalog>,
    tables: TableResolver<'a>,
    facts: &'a SessionFacts,
    /// The text that the tree was parsed from, for positions in errors.
    text: &'a str,
    parameters: Parameters,
    /// The views being expanded, outermost first.
    views: Vec<firn_txn::catalog::Oid>,
    /// What [`context::CHANGED_ROWS`] stands for.
    changed: Option<Arc<ChangedRows>>,
    /// Files that are read as tables.
    files: Files,
    /// How deep the statement is, and the views being expanded.
    depth: u32,
    /// The deepest views that have been expanded, with the statement.
    deepest: Rc<Cell<u32>>,
}

/// The name of the field of a cast that stands for a function which rounds.
pub(crate) const ROUNDING: &str = "round";

/// How many rounds parameter types may take to settle; each fixes at least one.
const ROUNDS: usize = 8;

impl<'a> Binder<'a> {
    /// A binder over a version of the catalog.
    pub fn new(catalog: &'a Arc<Catalog>, tables: TableResolver<'a>, facts: &'a SessionFacts) -> Binder<'a> {
        Binder {
            catalog,
            tables,
            facts,
            text: "",
            parameters: Parameters::default(),
            views: Vec::new(),
            changed: None,
            files: Files::default(),
            depth: 0,
            deepest: Rc::default(),
        }
    }

    /// Of a statement that is so deep by itself.
    pub fn with_depth(self, depth: u32) -> Binder<'a> {
        self.deepest.set(self.deepest.get().max(depth));
        Binder { depth, ..self }
    }

    /// How deep the parts are that have been bound, with the views in them.
    pub fn deepest(&self) -> u32 {
        self.deepest.get()
    }

    /// A definition from the catalog is bound that is so deep by itself.
    pub fn note_depth(&self, depth: u32) {
        self.deepest.set(self.deepest.get().max(depth));
    }

    /// The files that are read as tables, as far as parts have been bound.
    pub fn files(&self) -> &Files {
        &self.files
    }

    /// With types of `$1`, `$2`, … that the client has declared; `None` is to be inferred.
    pub fn with_parameter_types(self, types: &[Option<ParameterType>]) -> Binder<'a> {
        self.parameters.declare(types);
        self
    }

    /// With the text that the syntax tree was parsed from, so that errors tell positions in it.
    pub fn with_text(self, text: &'a str) -> Binder<'a> {
        Binder { text, ..self }
    }

    /// An analysed query: names resolved, types coerced, not yet optimised.
    pub fn query(&self, query: &ast::Query) -> Result<LogicalPlan> {
        let plan = self.settle(|| self.plan_query(query.clone()))?;
        analysis::conform(plan).map_err(from_datafusion)
    }

    /// An analysed expression over the columns of `schema`: CHECK, DEFAULT, a SET right-hand side.
    pub fn expression(&self, expression: &ast::Expr, schema: &DFSchema) -> Result<Expr> {
        self.settle(|| self.plan_expression(expression, schema, None))
    }

    /// An expression that is to be stored in column `column` of type `ty`, with the cast that
    /// assignment makes; an untyped parameter takes the column's type. 42804 if there is no cast.
    pub fn assignment(
        &self,
        expression: &ast::Expr,
        schema: &DFSchema,
        column: &str,
        ty: SqlType,
    ) -> Result<Expr> {
        self.settle(|| self.plan_expression(expression, schema, Some((column, ty))))
    }

    /// A query whose columns are to be stored in columns of these names and types, in order, with
    /// the casts that assignment makes; untyped parameters in VALUES or the select list take the
    /// columns' types. 42601 if the query yields more columns; fewer are fine.
    pub fn query_for_insert(&self, query: &ast::Query, columns: &[(String, SqlType)]) -> Result<LogicalPlan> {
        self.settle(|| {
            let query = insert::typed(query, columns)?;
            let plan = self.plan_query(query)?;
            insert::assign(plan, columns, self)
        })
    }

    /// The rows that UPDATE or DELETE changes: `[WITH …] SELECT outputs…, _rowid FROM target, from…
    /// WHERE selection`, analysed. `_rowid` is the last column. Outputs may be wildcards of the target
    /// (`t.*` leaves `_rowid` out).
    pub fn row_source(
        &self,
        with: Option<&ast::With>,
        target: &ast::TableFactor,
        from: &[ast::TableWithJoins],
        selection: Option<&ast::Expr>,
        outputs: &[ast::SelectItem],
    ) -> Result<LogicalPlan> {
        let query = insert::row_source_query(with, target, from, selection, outputs)?;
        self.settle(|| self.plan_query(query.clone()))
    }

    /// Tells columns that joins merge, in a query that is kept as a text, as the columns that they stand for.
    pub fn merge_columns(&self, query: &mut ast::Query) {
        rewrite::merge(query, &|name, arguments| self.columns(name, arguments));
    }

    /// Outputs over such rows, in which columns that joins merge are told as the columns that they stand for.
    pub fn merged_outputs(
        &self,
        target: &ast::TableFactor,
        from: &[ast::TableWithJoins],
        with: Option<&ast::With>,
        outputs: &[ast::SelectItem],
    ) -> Result<Vec<ast::SelectItem>> {
        let mut query = insert::row_source_query(with, target, from, None, outputs)?;
        rewrite::merge(&mut query, &|name, arguments| self.columns(name, arguments));
        let ast::SetExpr::Select(mut select) = *query.body else { unreachable!("it is a SELECT") };
        // The row id.
        select.projection.pop();
        Ok(select.projection)
    }

    /// Outputs over the rows of a change, which go by the name of `relation`: `SELECT outputs… FROM
    /// relation` in the order of the rows, analysed.
    pub fn query_over_changed(
        &self,
        changed: Arc<ChangedRows>,
        relation: &str,
        outputs: &[ast::SelectItem],
    ) -> Result<LogicalPlan> {
        let query = insert::changed_rows_query(relation, outputs)?;
        let over = Binder {
            catalog: self.catalog,
            tables: self.tables,
            facts: self.facts,
            text: self.text,
            parameters: self.parameters.clone(),
            views: self.views.clone(),
            changed: Some(changed),
            files: self.files.clone(),
            depth: self.depth,
            deepest: self.deepest.clone(),
        };
        over.query(&query)
    }

    /// How many parameters are known of.
    pub fn parameter_count(&self) -> usize {
        self.parameters.count()
    }

    /// Adds a parameter that is not the user's.
    pub fn add_parameter(&self, name: &str, ty: ParameterType) {
        self.parameters.learn(name, Some(ty));
    }

    /// The types of `$1`, `$2`, … after binding. 42P18 if one is undetermined.
    pub fn parameter_types(&self) -> Result<Vec<ParameterType>> {
        self.parameters.types()
    }

    /// The table of that name. 42P01 with position and a hint that names a similar table; 42809 if
    /// the name is a view's or sequence's.
    pub fn table(&self, name: &ast::ObjectName) -> Result<Arc<TableDef>> {
        let located = |error: Error| match position::of_name(self.text, name) {
            Some(position) => error.with_position(position),
            None => error,
        };
        let name = qualified_name(name).map_err(located)?;
        self.names().table(&name).map_err(|error| located(names::hinted(error, &self.names(), &name)))
    }

    /// A scan of a table under `alias` (else its name): its visible columns, then `_rowid`.
    pub fn table_scan_with_row_id(&self, table: &Arc<TableDef>, alias: Option<&str>) -> Result<LogicalPlan> {
        let provider = self.provider(table).with_row_id();
        let source = datafusion::datasource::provider_as_source(Arc::new(provider));
        LogicalPlanBuilder::scan(alias.unwrap_or(&table.name), source, None)
            .and_then(LogicalPlanBuilder::build)
            .map_err(from_datafusion)
    }

    /// The physical table of an id.
    pub fn physical_table(&self, id: TableId) -> Arc<Table> {
        (self.tables)(id)
    }

    fn names(&self) -> Names<'_> {
        Names::new(self.catalog, self.facts)
    }

    /// What a relation in FROM is called without an alias, and its columns.
    fn columns(
        &self,
        name: &ast::ObjectName,
        arguments: Option<&ast::TableFunctionArgs>,
    ) -> Option<(String, Vec<String>)> {
        if let Some(file) = crate::files::columns_of(name, arguments).ok()? {
            return Some(file);
        }
        if arguments.is_some() {
            return None;
        }
        let mut name = qualified_name(name).ok()?;
        name.name.truncate(name.name.trim_end_matches(context::WITH_ROW_ID).len());
        let schema = name.schema.as_deref();
        let of_schema = |schema: SchemaRef| -> Vec<String> {
            schema.fields().iter().map(|field| field.name().clone()).collect()
        };
        let columns = if let Some(source) = self.facts.sources.find(schema, &name.name) {
            of_schema(source.schema())
        } else if let Some(table) =
            pg_catalog::provider(schema.unwrap_or("pg_catalog"), &name.name, self.catalog, self.facts)
        {
            of_schema(table.schema())
        } else {
            match self.names().find(&name)? {
                Relation::Table(table) => {
                    table.visible_columns().map(|(_, column)| column.name.clone()).collect()
                }
                Relation::View(view) => view.columns.iter().map(|column| column.name.clone()).collect(),
                _ => return None,
            }
        };
        Some((name.name, columns))
    }

    fn provider(&self, table: &Arc<TableDef>) -> FirnTable {
        FirnTable::new(Arc::clone(table), (self.tables)(table.storage()))
    }

    /// Binds again and again until no round learns a parameter's type.
    fn settle<T>(&self, bind: impl Fn() -> Result<T>) -> Result<T> {
        let mut bound = bind();
        for _ in 0..ROUNDS {
            if !self.parameters.take_news() && (bound.is_err() || !self.parameters.default_to_text()) {
                break;
            }
            bound = bind();
        }
        bound
    }

    fn plan_query(&self, mut query: ast::Query) -> Result<LogicalPlan> {
        interrupt::check().map_err(from_datafusion)?;
        pg_catalog::rewrite_query(&mut query);
        rewrite::query(&mut query, &|name, arguments| self.columns(name, arguments))?;
        let second_try = rewrite::second_try(&query);
        let planned = match (self.plan_tree(query), &second_try) {
            (Err(error), Some(query)) if error.to_string().contains("No field named") => {
                self.plan_tree(query.clone()).map_err(|_| error)
            }
            (planned, _) => planned,
        };
        let plan = planned.map_err(|error| self.error(error))?;
        size::check(&plan)?;
        if let Some(query) = &second_try {
            outer_aggregates::refuse(&plan, query, self.text)?;
        }
        interrupt::check().map_err(from_datafusion)?;
        let plan = lateral::inline(plan).and_then(keys::end);
        let plan = plan.map_err(|error| self.error(error))?;
        analysis::plan(plan, &self.parameters, self.zone()?).map_err(|error| self.error(error))
    }

    fn plan_tree(&self, query: ast::Query) -> datafusion::common::Result<LogicalPlan> {
        let context = Context::new(self);
        let statement = ast::Statement::Query(Box::new(query));
        SqlToRel::new_with_options(&context, context::parser_options())
            .sql_statement_to_plan_with_context(statement, &mut self.planner_context())
    }

    fn plan_expression(
        &self,
        expression: &ast::Expr,
        schema: &DFSchema,
        assigned: Option<(&str, SqlType)>,
    ) -> Result<Expr> {
        let mut expression = expression.clone();
        pg_catalog::rewrite_expression(&mut expression);
        rewrite::expression(&mut expression, &|name, arguments| self.columns(name, arguments))?;
        let context = Context::new(self);
        let planned = SqlToRel::new_with_options(&context, context::parser_options()).sql_to_expr(
            expression,
            schema,
            &mut self.planner_context(),
        );
        let planned = planned.map_err(|error| self.error(error))?;
        analysis::expression(planned, schema, assigned, &self.parameters, self.zone()?)
            .map_err(|error| self.error(error))
    }

    fn planner_context(&self) -> PlannerContext {
        PlannerContext::new().with_prepare_param_data_types(self.parameters.fields())
    }

    fn zone(&self) -> Result<firn_base::TimeZoneSetting> {
        firn_base::TimeZoneSetting::parse(&self.facts.time_zone)
    }

    /// The user's error for one of DataFusion's, with its position if the error knows one.
    fn error(&self, error: DataFusionError) -> Error {
        let position = position::of_error(self.text, &error);
        let error = from_datafusion(error);
        match position {
            Some(position) if error.position().is_none() => error.with_position(position),
            _ => error,
        }
    }
}
