//! What DataFusion's planner asks while it binds: tables, views, functions, types.

use super::operators::Operators;
use super::{Binder, alike, keys, names, series};
use crate::bind::analysis;
use crate::files::FilePlanner;
use crate::functions;
use crate::names::Relation;
use crate::pg_catalog;
use crate::statement::{QualifiedName, quote_ident, quote_literal};
use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef};
use datafusion::catalog::cte_worktable::CteWorkTable;
use datafusion::catalog::view::ViewTable;
use datafusion::catalog::{TableFunctionArgs, TableProvider};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{DFSchema, Result, ScalarValue, TableReference, plan_err};
use datafusion::datasource::provider_as_source;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::planner::{
    ContextProvider, ExprPlanner, PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
    TypePlanner,
};
use datafusion::logical_expr::{
    AggregateUDF, Expr, HigherOrderUDF, LogicalPlanBuilder, ScalarUDF, TableSource, Volatility, WindowUDF,
    lit,
};
use datafusion::sql::planner::{NullOrdering, ParserOptions};
use datafusion::sql::sqlparser::ast;
use firn_base::sync::Arc;
use firn_base::{Error, ParameterType, SqlState, SqlType, Value};
use firn_exec::RunOptions;
use firn_exec::error::to_datafusion;
use firn_exec::lower::operate::operation_of;
use firn_exec::query::physical_expression;
use firn_exec::runtime::planning_state;
use firn_txn::catalog::{SequenceDef, ViewDef};
use std::cell::RefCell;

/// How identifiers, numbers and strings are read.
pub fn parser_options() -> ParserOptions {
    ParserOptions::new()
        .with_parse_float_as_decimal(true)
        .with_enable_ident_normalization(true)
        .with_support_varchar_with_length(true)
        .with_map_string_types_to_utf8view(true)
        .with_collect_spans(true)
        .with_default_null_ordering(NullOrdering::NullsMax)
}

/// Marks the table of a FROM clause whose scan is to yield row ids: the last part of its name ends
/// so. No name that a user writes can hold the character.
pub const WITH_ROW_ID: char = '\u{1}';

/// Marks the name in a FROM clause that stands for the rows of a change, likewise.
pub const CHANGED_ROWS: char = '\u{2}';

/// A [`Binder`] as DataFusion's planner sees it.
pub struct Context<'b> {
    binder: &'b Binder<'b>,
    state: &'static SessionState,
    expression_planners: Vec<Arc<dyn ExprPlanner>>,
    type_planner: Arc<dyn TypePlanner>,
    relation_planners: Vec<Arc<dyn RelationPlanner>>,
    /// Tables found so far: DataFusion asks once for every mention.
    found: RefCell<Vec<(TableReference, Arc<dyn TableSource>)>>,
}

impl<'b> Context<'b> {
    /// The context of one planning round.
    pub fn new(binder: &'b Binder<'_>) -> Context<'b> {
        let state = planning_state();
        let operators = Operators::new(binder.parameters.clone(), binder.zone().unwrap_or_default());
        let files = FilePlanner {
            files: binder.files.clone(),
            zone: binder.zone().unwrap_or_default(),
            zones: binder.facts.zones.clone(),
        };
        let mut expression_planners: Vec<Arc<dyn ExprPlanner>> = vec![Arc::new(operators)];
        expression_planners.extend(state.expr_planners().iter().cloned());
        Context {
            binder,
            state,
            expression_planners,
            type_planner: Arc::new(Types),
            relation_planners: vec![Arc::new(keys::Items::default()), Arc::new(Marked), Arc::new(files)],
            found: RefCell::new(Vec::new()),
        }
    }

    fn table(&self, reference: &TableReference) -> Result<Arc<dyn TableSource>> {
        if let (Some(changed), true) = (&self.binder.changed, reference.table().ends_with(CHANGED_ROWS)) {
            return Ok(provider_as_source(changed.clone()));
        }
        let (with_row_id, name) = match reference.table().strip_suffix(WITH_ROW_ID) {
            Some(name) => (true, name),
            None => (false, reference.table()),
        };
        if let Some(source) = self.binder.facts.sources.find(reference.schema(), name) {
            return Ok(provider_as_source(source.clone()));
        }
        let name = QualifiedName { schema: reference.schema().map(str::to_owned), name: name.to_owned() };
        if let Some(provider) = self.system_table(&name) {
            return Ok(provider_as_source(provider));
        }
        let names = self.binder.names();
        let relation =
            names.relation(&name).map_err(|error| to_datafusion(names::hinted(error, &names, &name)))?;
        let provider: Arc<dyn TableProvider> = match relation {
            Relation::Table(table) => {
                let provider = self.binder.provider(&table);
                Arc::new(if with_row_id { provider.with_row_id() } else { provider })
            }
            Relation::View(view) => Arc::new(self.view(&view)?),
            Relation::Sequence(sequence) => Arc::new(self.sequence(&sequence)?),
            Relation::Index(_, index) => {
                let message = format!("cannot open relation \"{}\": it is an index", index.name);
                return Err(to_datafusion(Error::new(SqlState::WRONG_OBJECT_TYPE, message)));
            }
        };
        Ok(provider_as_source(provider))
    }

    /// A table of `pg_catalog` or `information_schema`. Names without a schema are looked up in
    /// `pg_catalog` before the search path, as in PostgreSQL.
    fn system_table(&self, name: &QualifiedName) -> Option<Arc<dyn TableProvider>> {
        let schema = name.schema.as_deref().unwrap_or("pg_catalog");
        pg_catalog::provider(schema, &name.name, self.binder.catalog, self.binder.facts)
    }

    /// A view, bound anew from its text.
    fn view(&self, view: &ViewDef) -> Result<ViewTable> {
        if self.binder.views.contains(&view.oid) {
            let message = format!("infinite recursion detected in the definition of view \"{}\"", view.name);
            return Err(to_datafusion(Error::new(SqlState::INVALID_OBJECT_DEFINITION, message)));
        }
        let mut views = self.binder.views.clone();
        views.push(view.oid);
        let names = view.columns.iter().map(|column| column.name.as_str());
        self.named_query(&view.query, names, views)
    }

    /// A sequence as a relation of one row, which is looked up when the plan runs.
    fn sequence(&self, sequence: &SequenceDef) -> Result<ViewTable> {
        let schema = &self.binder.catalog.schemas[&sequence.schema].name;
        let name = format!("{}.{}", quote_ident(schema), quote_ident(&sequence.name));
        let [last_value, is_called] = functions::SEQUENCE_FUNCTIONS;
        let name = quote_literal(&name);
        let query = format!("SELECT \"{last_value}\"({name}), 0::bigint, \"{is_called}\"({name})");
        let columns = ["last_value", "log_cnt", "is_called"];
        self.named_query(&query, columns.into_iter(), self.binder.views.clone())
    }

    /// The literal that an argument comes to, if it is made of nothing but constants.
    fn evaluated(&self, argument: Expr) -> Result<Expr> {
        let zone = self.binder.zone().unwrap_or_default();
        let argument = analysis::fold(argument, zone)?;
        let is_literal = matches!(argument, Expr::Literal(..));
        if is_literal || argument.exists(|part| Ok(!is_constant(part)))? {
            return Ok(argument);
        }
        let schema = DFSchema::empty();
        let analysed = analysis::expression(argument, &schema, None, &self.binder.parameters, zone)?;
        let options = RunOptions { time_zone: self.binder.facts.time_zone.clone(), ..RunOptions::default() };
        let computed = physical_expression(analysed, &schema, &[], &options).map_err(to_datafusion)?;
        let one_row = RecordBatchOptions::new().with_row_count(Some(1));
        let row = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), Vec::new(), &one_row)?;
        let value = computed.evaluate(&row)?.into_array(1)?;
        Ok(Expr::Literal(ScalarValue::try_from_array(&value, 0)?, None))
    }

    /// A query under names for its columns; `views` are those that it is part of.
    fn named_query<'n>(
        &self,
        text: &str,
        names: impl Iterator<Item = &'n str>,
        views: Vec<firn_txn::catalog::Oid>,
    ) -> Result<ViewTable> {
        let (query, depth) = crate::parse::parse_measured_query(text).map_err(to_datafusion)?;
        let depth = self.binder.depth + depth;
        if depth > crate::parse::LIMIT {
            return Err(to_datafusion(crate::parse::exceeded()));
        }
        self.binder.note_depth(depth);
        let inner = Binder {
            catalog: self.binder.catalog,
            tables: self.binder.tables,
            facts: self.binder.facts,
            text: "",
            parameters: Default::default(),
            views,
            changed: None,
            files: self.binder.files.clone(),
            depth,
            deepest: self.binder.deepest.clone(),
        };
        let plan = inner.query(&query).map_err(to_datafusion)?;
        let columns = plan.schema().columns();
        let renamed = columns.into_iter().zip(names).map(|(column, name)| Expr::Column(column).alias(name));
        let plan = LogicalPlanBuilder::from(plan.clone()).project(renamed)?.build()?;
        Ok(ViewTable::new(plan, Some(text.to_owned())))
    }
}

impl ContextProvider for Context<'_> {
    fn get_table_source(&self, name: TableReference) -> Result<Arc<dyn TableSource>> {
        if let Some((_, source)) = self.found.borrow().iter().find(|(known, _)| *known == name) {
            return Ok(Arc::clone(source));
        }
        let source = self.table(&name)?;
        self.found.borrow_mut().push((name, Arc::clone(&source)));
        Ok(source)
    }

    fn get_table_function_source(&self, name: &str, arguments: Vec<Expr>) -> Result<Arc<dyn TableSource>> {
        // It comes as it was written, in quotes or not.
        let name = name.strip_prefix('"').and_then(|name| name.strip_suffix('"')).unwrap_or(name);
        let Some(function) = self.state.table_functions().get(&name.to_lowercase()) else {
            return Err(to_datafusion(functions::unknown(name)));
        };
        let arguments: Vec<Expr> =
            arguments.into_iter().map(|argument| self.evaluated(argument)).collect::<Result<_>>()?;
        let (unit, arguments) = series::unit(arguments)?;
        let arguments: Vec<Expr> = arguments.into_iter().map(for_table_function).collect();
        let arguments = TableFunctionArgs::new(&arguments, self.state);
        let counted = function.create_table_provider_with_args(arguments)?;
        Ok(provider_as_source(series::of(counted, unit)))
    }

    fn create_cte_work_table(&self, name: &str, schema: SchemaRef) -> Result<Arc<dyn TableSource>> {
        Ok(provider_as_source(Arc::new(CteWorkTable::new(name, schema))))
    }

    fn get_expr_planners(&self) -> &[Arc<dyn ExprPlanner>] {
        &self.expression_planners
    }

    fn get_relation_planners(&self) -> &[Arc<dyn RelationPlanner>] {
        &self.relation_planners
    }

    fn get_type_planner(&self) -> Option<Arc<dyn TypePlanner>> {
        Some(Arc::clone(&self.type_planner))
    }

    fn get_function_meta(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        functions::scalar(name, self.binder.facts)
            .or_else(|| (name == keys::AS_CAST).then(keys::as_cast))
            .or_else(|| pg_catalog::function(name, self.binder.catalog, self.binder.facts))
            .or_else(|| self.state.scalar_functions().get(name).map(firn_exec::lengthening::bounded))
            .map(alike::planned)
    }

    fn get_higher_order_meta(&self, name: &str) -> Option<Arc<HigherOrderUDF>> {
        self.state.higher_order_functions().get(name).cloned()
    }

    fn get_aggregate_meta(&self, name: &str) -> Option<Arc<AggregateUDF>> {
        functions::aggregate(name).or_else(|| self.state.aggregate_functions().get(name).cloned())
    }

    fn get_window_meta(&self, name: &str) -> Option<Arc<WindowUDF>> {
        self.state.window_functions().get(name).cloned()
    }

    fn get_variable_type(&self, _names: &[String]) -> Option<DataType> {
        None
    }

    fn options(&self) -> &ConfigOptions {
        self.state.config_options()
    }

    fn udf_names(&self) -> Vec<String> {
        self.state.scalar_functions().keys().cloned().collect()
    }

    fn higher_order_function_names(&self) -> Vec<String> {
        self.state.higher_order_functions().keys().cloned().collect()
    }

    fn udaf_names(&self) -> Vec<String> {
        self.state.aggregate_functions().keys().cloned().collect()
    }

    fn udwf_names(&self) -> Vec<String> {
        self.state.window_functions().keys().cloned().collect()
    }
}

/// Whether an expression is a constant if its parts are.
fn is_constant(expression: &Expr) -> bool {
    match expression {
        Expr::Literal(..)
        | Expr::BinaryExpr(_)
        | Expr::Negative(_)
        | Expr::Cast(_)
        | Expr::Case(_)
        | Expr::Alias(_)
        | Expr::InList(_)
        | Expr::Between(_)
        | Expr::Like(_)
        | Expr::Not(_)
        | Expr::IsNull(_)
        | Expr::IsNotNull(_)
        | Expr::IsTrue(_)
        | Expr::IsFalse(_)
        | Expr::IsUnknown(_)
        | Expr::IsNotTrue(_)
        | Expr::IsNotFalse(_)
        | Expr::IsNotUnknown(_) => true,
        // Operators of ours are stable because of the session's time zone, which is known.
        Expr::ScalarFunction(function) => {
            let volatility = function.func.signature().volatility;
            volatility == Volatility::Immutable || operation_of(&function.func).is_some()
        }
        _ => false,
    }
}

/// A literal as DataFusion's table functions take it: integers as bigints, moments in nanoseconds,
/// spans typed.
fn for_table_function(argument: Expr) -> Expr {
    match argument {
        Expr::Literal(ScalarValue::TimestampMicrosecond(Some(micros), zone), _) => {
            Expr::Literal(ScalarValue::TimestampNanosecond(micros.checked_mul(1000), zone), None)
        }
        Expr::Literal(ScalarValue::Utf8(Some(text)), metadata) => match firn_base::interval::parse(&text) {
            Ok(span) => {
                Expr::Literal(firn_exec::types::scalar(&Value::Interval(span), SqlType::Interval), None)
            }
            Err(_) => Expr::Literal(ScalarValue::Utf8(Some(text)), metadata),
        },
        Expr::Literal(ScalarValue::Int16(Some(value)), _) => lit(i64::from(value)),
        Expr::Literal(ScalarValue::Int32(Some(value)), _) => lit(i64::from(value)),
        other => other,
    }
}

/// The name of the field of a cast that the user has written, until it is analysed: the planner's own have none, and keep what is known
/// of a char(n) from before.
pub const USERS_CAST: &str = "cast";

/// Type names as our own types, with their lengths and precisions kept in field metadata.
#[derive(Debug)]
struct Types;

impl TypePlanner for Types {
    fn plan_type_field(&self, data_type: &ast::DataType) -> Result<Option<FieldRef>> {
        if let ast::DataType::Array(element) = data_type {
            let ast::ArrayElemTypeDef::SquareBracket(element, _) = element else { return Ok(None) };
            if matches!(element.as_ref(), ast::DataType::Array(_)) {
                return Ok(None);
            }
            let element = crate::data_type::sql_type(element).map_err(to_datafusion)?;
            return Ok(Some(firn_exec::types::parameter_field("", ParameterType::array_of(element))));
        }
        let ty = match data_type {
            // Names of relations and functions as numbers: enough for the queries of clients.
            ast::DataType::Regclass => SqlType::Text,
            other => crate::data_type::sql_type(other).map_err(to_datafusion)?,
        };
        Ok(Some(firn_exec::types::field(USERS_CAST, ty)))
    }
}

/// Plans tables that are marked by [`WITH_ROW_ID`] or [`CHANGED_ROWS`] under their own name.
#[derive(Debug)]
struct Marked;

impl RelationPlanner for Marked {
    fn plan_relation(
        &self,
        relation: ast::TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        let marked = match &relation {
            ast::TableFactor::Table { name, args: None, .. } => match name.0.last() {
                Some(ast::ObjectNamePart::Identifier(last)) => {
                    last.value.ends_with([WITH_ROW_ID, CHANGED_ROWS])
                }
                _ => false,
            },
            _ => false,
        };
        if !marked {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        }
        let ast::TableFactor::Table { name, alias, .. } = relation else {
            return plan_err!("a table was marked");
        };
        let reference = context.object_name_to_table_reference(name)?;
        let source = context.context_provider().get_table_source(reference.clone())?;
        let plain = reference.table().trim_end_matches([WITH_ROW_ID, CHANGED_ROWS]).to_owned();
        let scan_name = match reference.schema() {
            Some(schema) => TableReference::partial(schema.to_owned(), plain),
            None => TableReference::bare(plain),
        };
        let plan = LogicalPlanBuilder::scan(scan_name, source, None)?.build()?;
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, alias))))
    }
}
