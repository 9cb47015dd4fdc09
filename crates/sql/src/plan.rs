//! Plans: statements bound to one version of the catalog, ready to run any number of times.
//!
//! A query has two ways to run: a short program over indexes, if it has one, and an analysed plan
//! for everything else. A row change has its own plan. All other statements have none.

use crate::bind::{Binder, columns_of};
use crate::dml;
use crate::files::FileVersions;
use crate::parse::locks::asked;
use crate::query::Prepared;
use crate::session_facts::{QueryEngine, SessionFacts};
use crate::statement::{Parsed, Statement};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, Field, SchemaRef};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::sqlparser::ast;
use firn_base::stack::{self, Deep};
use firn_base::sync::Arc;
use firn_base::{Error, ParameterType, Representation, Result, SqlState, SqlType, Type, TypeId, Value};
use firn_exec::dml::{DmlOutcome, DmlPlan};
use firn_exec::locking::{LockedRows, LockingQuery, clause};
use firn_exec::short::{Completion, ShortProgram};
use firn_exec::{BatchStream, RunOptions};
use firn_plan::Origin;
use firn_query::{ResultChunk, ResultColumn, Stream};
use firn_txn::Transaction;
use std::collections::VecDeque;

/// A column of a result.
#[derive(Clone, PartialEq, Debug)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its type.
    pub ty: SqlType,
    /// If it holds arrays: what their elements are. Its type is then text, which is what arrays are
    /// wherever values and not Arrow batches are looked at.
    pub element: Option<SqlType>,
    /// If it holds arrays: of how many dimensions; else 0.
    pub dimensions: u8,
    /// Whether its texts are JSON, which clients then take apart: the catalogs have some.
    pub is_json: bool,
    /// Its type as PostgreSQL describes it.
    pub declared: Type,
    /// The column of a relation that its values are.
    pub origin: Option<Origin>,
}

impl Column {
    /// A column of single values.
    pub fn new(name: impl Into<String>, ty: SqlType) -> Column {
        Column {
            name: name.into(),
            ty,
            element: None,
            dimensions: 0,
            is_json: false,
            declared: ty.into(),
            origin: None,
        }
    }

    /// A column of a result of the new engine.
    fn described(column: &ResultColumn) -> Column {
        let single = |ty: Type| match ty.representation() {
            Some(Representation::Oid) => SqlType::BigInt,
            Some(Representation::Numeric) => SqlType::NUMERIC,
            _ => SqlType::try_from(ty).unwrap_or(SqlType::Text),
        };
        let is_array = matches!(column.ty.representation(), Some(Representation::List(_)));
        let element = column.ty.element().filter(|_| is_array).map(single);
        Column {
            name: column.name.clone(),
            ty: if is_array { SqlType::Text } else { single(column.ty) },
            element,
            dimensions: u8::from(is_array),
            is_json: false,
            declared: column.ty,
            origin: column.origin,
        }
    }
}

/// PostgreSQL's type for JSON, which travels as its text in both formats.
const JSON: TypeId = TypeId(114);

impl Column {
    /// A column of a result of the old engine.
    fn of_field(name: String, ty: SqlType, field: &Field) -> Column {
        let element = element(field);
        let is_json = field.name().ends_with(crate::pg_catalog::JSON_MARK);
        let declared = match element {
            Some(element) => Type::new(TypeId(element.array_oid())).with_modifier(element.typmod()),
            None if is_json => Type::new(JSON),
            None => ty.into(),
        };
        Column { name, ty, element, dimensions: dimensions(field), is_json, declared, origin: None }
    }
}

/// The element type of a field that holds arrays, of however many dimensions.
fn element(field: &Field) -> Option<SqlType> {
    let DataType::List(inner) = field.data_type() else { return None };
    element(inner).or_else(|| firn_exec::types::sql_type(inner))
}

/// Of how many dimensions the arrays of a field are; 0 if it holds none.
fn dimensions(field: &Field) -> u8 {
    match field.data_type() {
        DataType::List(inner) => 1 + dimensions(inner),
        _ => 0,
    }
}

/// A statement ready to run.
pub struct Plan {
    /// The types of `$1`, `$2`, …
    pub parameters: Vec<ParameterType>,
    /// The columns that it yields; `None` if it yields no rows.
    pub columns: Option<Arc<[Column]>>,
    /// The version of the catalog that it is bound to.
    pub catalog_version: u64,
    /// What else it is bound to.
    pub facts: Arc<SessionFacts>,
    /// The files that it reads as tables.
    files: Box<[FileVersions]>,
    body: Deep<Body>,
}

enum Body {
    Query {
        plan: Box<LogicalPlan>,
        short: Option<Box<ShortProgram>>,
    },
    Locking {
        query: Box<LockingQuery>,
        /// The clause that it is known by.
        clause: &'static str,
    },
    Change(Box<DmlPlan>),
    /// A statement on the new engine.
    New {
        prepared: Box<Prepared>,
        /// If it is a query that locks rows: the clause that it is known by.
        clause: Option<&'static str>,
    },
}

/// What a query yields.
pub enum QueryOutput {
    /// So many rows, all of them, which have been appended to the caller's values.
    Values(usize),
    /// Rows in the making.
    Stream(RowStream),
}

/// What a statement has done that changes or locks rows.
pub struct Changed {
    /// How many rows the command tag counts; those that are drawn without.
    pub count: Option<u64>,
    /// The rows of RETURNING, or of the query.
    pub rows: VecDeque<RowChunk>,
}

fn drained(mut rows: Stream) -> Result<VecDeque<RowChunk>> {
    let mut chunks = VecDeque::new();
    while let Some(chunk) = rows.next()? {
        chunks.push_back(RowChunk::Vectors(chunk));
    }
    Ok(chunks)
}

/// Some rows of a result.
#[derive(Clone, Debug)]
pub enum RowChunk {
    /// Row-major values: as many per row as there are columns. What the short path yields.
    Values(Vec<Value>),
    /// An Arrow batch. What the old analytical path yields.
    Batch(RecordBatch),
    /// A vector for each column, all rows of them. What the new engine yields.
    Vectors(ResultChunk),
}

impl RowChunk {
    /// How many rows, of so many columns.
    pub fn rows(&self, columns: usize) -> usize {
        match self {
            RowChunk::Values(values) => values.len() / columns.max(1),
            RowChunk::Batch(batch) => batch.num_rows(),
            RowChunk::Vectors(chunk) => chunk.rows(),
        }
    }

    /// Its first rows, so many, which it has, and the others.
    pub fn split(self, first: usize, columns: usize) -> (RowChunk, RowChunk) {
        match self {
            RowChunk::Values(mut values) => {
                let rest = values.split_off(first * columns);
                (RowChunk::Values(values), RowChunk::Values(rest))
            }
            RowChunk::Batch(batch) => {
                let rest = batch.slice(first, batch.num_rows() - first);
                (RowChunk::Batch(batch.slice(0, first)), RowChunk::Batch(rest))
            }
            RowChunk::Vectors(chunk) => {
                let rest = chunk.slice(first, chunk.rows() - first);
                (RowChunk::Vectors(chunk.slice(0, first)), RowChunk::Vectors(rest))
            }
        }
    }
}

/// Rows in the making, of either engine.
pub enum RowStream {
    /// Batches.
    Old(BatchStream),
    /// Vectors.
    New(Stream),
}

impl RowStream {
    /// The next rows, never none; blocks the calling thread. `None` at the end.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<RowChunk>> {
        Ok(match self {
            RowStream::Old(stream) => stream.next()?.map(RowChunk::Batch),
            RowStream::New(stream) => stream.next()?.map(RowChunk::Vectors),
        })
    }

    /// The schema that batches of the rows have by themselves.
    pub fn schema(&self) -> SchemaRef {
        match self {
            RowStream::Old(stream) => stream.schema(),
            RowStream::New(stream) => firn_query::arrow::schema(stream.columns()),
        }
    }
}

impl Plan {
    /// Binds a query or a change. Types of parameters that are not given are inferred. Panics for other statements.
    pub fn new(
        transaction: &Transaction,
        facts: &Arc<SessionFacts>,
        statement: &Parsed,
        types: &[Option<ParameterType>],
    ) -> Result<Plan> {
        stack::with_room(|| Plan::bind(transaction, facts, statement, types))
    }

    fn bind(
        transaction: &Transaction,
        facts: &Arc<SessionFacts>,
        statement: &Parsed,
        types: &[Option<ParameterType>],
    ) -> Result<Plan> {
        if facts.engine == QueryEngine::New {
            return Plan::on_new_engine(transaction, facts, statement, types);
        }
        let tables = |id| transaction.table(id);
        let catalog = transaction.catalog();
        let binder =
            Binder::new(catalog, &tables, facts).with_parameter_types(types).with_text(&statement.text);
        let binder = binder.with_depth(statement.depth);
        let (parameters, columns, body) = match &statement.statement {
            Statement::Query(query) => {
                let (plan, locking) = match query.locks.as_slice() {
                    [] => (binder.query(query)?, None),
                    _ => binder.locking_query(query)?,
                };
                let fields = plan.schema().fields();
                let columns: Vec<Column> = columns_of(plan.schema().as_arrow())?
                    .into_iter()
                    .zip(fields)
                    .map(|((name, ty), field)| Column::of_field(name, ty, field))
                    .collect();
                let has_arrays = columns.iter().any(|column| column.element.is_some());
                let body = match locking {
                    Some(locking) => Body::Locking {
                        query: Box::new(locking.into_query(!has_arrays)),
                        clause: clause(asked(&query.locks[0]).lock),
                    },
                    None => {
                        let short = match has_arrays {
                            true => None,
                            false => ShortProgram::compile(&plan).map(Box::new),
                        };
                        Body::Query { plan: Box::new(plan), short }
                    }
                };
                (binder.parameter_types()?, Some(columns), body)
            }
            Statement::Change(change) => {
                let plan = dml::plan(&binder, catalog, change)?;
                let columns = plan.columns().map(|columns| {
                    columns.iter().map(|(name, ty)| Column::new(name.as_str(), *ty)).collect()
                });
                (plan.parameter_types().to_vec(), columns, Body::Change(Box::new(plan)))
            }
            _ => panic!("only queries and changes are planned"),
        };
        Ok(Plan {
            parameters,
            columns: columns.map(Arc::from),
            catalog_version: catalog.version,
            facts: facts.clone(),
            files: binder.files().versions(),
            body: Deep::new(binder.deepest(), body),
        })
    }

    fn on_new_engine(
        transaction: &Transaction,
        facts: &Arc<SessionFacts>,
        statement: &Parsed,
        types: &[Option<ParameterType>],
    ) -> Result<Plan> {
        let is_query = matches!(statement.statement, Statement::Query(_));
        let given: Vec<Option<TypeId>> = types.iter().map(|ty| ty.map(|ty| TypeId(ty.oid()))).collect();
        let cancel = firn_exec::interrupt::current();
        let prepared = Prepared::new(&statement.text, &given, transaction, facts, &cancel)?;
        let clause = match &statement.statement {
            Statement::Query(query) => {
                let written = query.locks.first().map(|lock| clause(asked(lock).lock));
                // Others are within its sub-queries.
                written.or(prepared.has_effects().then_some("FOR UPDATE"))
            }
            _ => None,
        };
        let parameter = |ty: &Type| match ty.element() {
            Some(element) if ty.info().is_some_and(|info| info.is_array()) => {
                SqlType::try_from(element).map(ParameterType::array_of)
            }
            _ => SqlType::try_from(*ty).map(ParameterType::Single),
        };
        Ok(Plan {
            parameters: prepared.parameters().iter().map(parameter).collect::<Result<_>>()?,
            columns: (is_query || !prepared.columns().is_empty())
                .then(|| prepared.columns().iter().map(Column::described).collect()),
            catalog_version: transaction.catalog_version(),
            facts: facts.clone(),
            files: Box::default(),
            body: Deep::new(statement.depth, Body::New { prepared: Box::new(prepared), clause }),
        })
    }

    /// Whether it still means what its text means.
    #[inline]
    pub fn is_current(&self, transaction: &Transaction, facts: &Arc<SessionFacts>) -> bool {
        self.catalog_version == transaction.catalog_version()
            && (Arc::ptr_eq(&self.facts, facts) || *self.facts == **facts)
            && self.files.iter().all(FileVersions::is_current)
    }

    /// Whether it is a query that touches few rows, most likely, and nothing but rows of tables.
    #[inline]
    pub fn is_short(&self) -> bool {
        matches!(*self.body, Body::Query { short: Some(_), .. })
    }

    /// If it is a query that locks rows: the clause that says so.
    #[inline]
    pub fn locks(&self) -> Option<&'static str> {
        match *self.body {
            Body::Locking { clause, .. } => Some(clause),
            Body::New { clause, .. } => clause,
            _ => None,
        }
    }

    /// Locks the rows of a query. Panics for other statements.
    pub fn lock(
        &self,
        transaction: &mut Transaction,
        parameters: &[Value],
        options: &RunOptions,
    ) -> Result<Changed> {
        match &*self.body {
            Body::Locking { query, .. } => {
                let run = || query.run(transaction, parameters, options);
                Ok(match stack::with_room_for(self.body.depth(), run)? {
                    LockedRows::Values(values, rows) => {
                        Changed { count: Some(rows), rows: [RowChunk::Values(values)].into() }
                    }
                    LockedRows::Batches(batches) => {
                        Changed { count: None, rows: batches.into_iter().map(RowChunk::Batch).collect() }
                    }
                })
            }
            Body::New { prepared, .. } => {
                let rows = match prepared.has_effects() {
                    true => prepared.execute(transaction, &self.facts, parameters, options)?.rows,
                    false => prepared.start(transaction, &self.facts, parameters, options)?,
                };
                Ok(Changed { count: None, rows: drained(rows)? })
            }
            _ => panic!("only locking queries lock rows"),
        }
    }

    /// Runs a query, which may append its rows to `values`, row-major. Panics for other statements.
    pub fn query(
        &self,
        transaction: &Transaction,
        parameters: &[Value],
        options: &RunOptions,
        values: &mut Vec<Value>,
    ) -> Result<QueryOutput> {
        if let Body::New { prepared, .. } = &*self.body {
            let stream = prepared.start(transaction, &self.facts, parameters, options)?;
            return Ok(QueryOutput::Stream(RowStream::New(stream)));
        }
        let Body::Query { plan, short } = &*self.body else { panic!("only queries are run as queries") };
        if let Some(short) = short {
            let run = || short.run(transaction, parameters, options, values);
            if let Completion::Done { rows } = stack::with_room_for(self.body.depth(), run)? {
                return Ok(QueryOutput::Values(rows));
            }
        }
        let stream = firn_exec::run(plan, parameters, transaction, options)?;
        Ok(QueryOutput::Stream(RowStream::Old(stream)))
    }

    /// Changes rows. Panics for other statements.
    pub fn change(
        &self,
        transaction: &mut Transaction,
        parameters: &[Value],
        options: &RunOptions,
    ) -> Result<Changed> {
        match &*self.body {
            Body::Change(plan) => {
                let run = || plan.execute(transaction, parameters, options);
                let DmlOutcome { count, returning } = stack::with_room_for(self.body.depth(), run)?;
                Ok(Changed {
                    count: Some(count),
                    rows: returning.map(RowChunk::Values).into_iter().collect(),
                })
            }
            Body::New { prepared, .. } => {
                let executed = prepared.execute(transaction, &self.facts, parameters, options)?;
                Ok(Changed { count: executed.count, rows: drained(executed.rows)? })
            }
            _ => panic!("only changes are run as changes"),
        }
    }

    /// The lines of EXPLAIN.
    pub fn explain(
        &self,
        transaction: &Transaction,
        parameters: &[Value],
        options: &RunOptions,
        analyze: bool,
    ) -> Result<Vec<String>> {
        match &*self.body {
            Body::Query { plan, short } => {
                let mut lines = Vec::new();
                if short.is_some() {
                    lines.push("Short path over indexes; beyond its row limit:".to_owned());
                }
                lines.extend(firn_exec::explain(plan, parameters, transaction, options, analyze)?);
                Ok(lines)
            }
            Body::Locking { query, .. } => Ok(query.describe()),
            Body::Change(plan) => Ok(plan.describe()),
            Body::New { prepared, .. } => Ok(prepared.explain()),
        }
    }
}

/// Whether a plan reads more than constants.
fn reads_tables(plan: &LogicalPlan) -> bool {
    let mut reads = false;
    plan.apply_with_subqueries(|node| {
        reads |= matches!(node, LogicalPlan::TableScan(_) | LogicalPlan::Subquery(_));
        Ok(if reads { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })
    .expect("looking at nodes does not fail");
    reads
}

/// The values of EXECUTE's arguments, coerced to the types of the parameters.
pub fn arguments(
    transaction: &Transaction,
    facts: &SessionFacts,
    options: &RunOptions,
    name: &str,
    expressions: &[ast::Expr],
    types: &[ParameterType],
) -> Result<Vec<Value>> {
    stack::with_room(|| arguments_with_room(transaction, facts, options, name, expressions, types))
}

fn arguments_with_room(
    transaction: &Transaction,
    facts: &SessionFacts,
    options: &RunOptions,
    name: &str,
    expressions: &[ast::Expr],
    types: &[ParameterType],
) -> Result<Vec<Value>> {
    if expressions.len() != types.len() {
        return Err(Error::new(
            SqlState::SYNTAX_ERROR,
            format!("wrong number of parameters for prepared statement \"{name}\""),
        )
        .with_detail(format!("Expected {} parameters but got {}.", types.len(), expressions.len())));
    }
    let tables = |id| transaction.table(id);
    let binder = Binder::new(transaction.catalog(), &tables, facts);
    let run = |plan: &LogicalPlan| {
        if reads_tables(plan) {
            return Err(Error::new(
                SqlState::FEATURE_NOT_SUPPORTED,
                "cannot use subquery in EXECUTE parameter",
            ));
        }
        let mut stream = firn_exec::run(plan, &[], transaction, options)?;
        let (first, rest) = (stream.next()?, stream.next()?);
        match (first, rest) {
            (Some(batch), None) if batch.num_rows() == 1 => Ok(batch),
            _ => Err(Error::new(SqlState::CARDINALITY_VIOLATION, "EXECUTE takes one row of arguments")),
        }
    };
    let mut single = Vec::new();
    let singles = || types.iter().enumerate().filter_map(|(index, ty)| Some((index, ty.single()?)));
    let list: Vec<String> = singles().map(|(index, _)| expressions[index].to_string()).collect();
    if !list.is_empty() {
        let query = crate::parse::parse_query(&format!("SELECT {}", list.join(", ")))?;
        let columns: Vec<(String, SqlType)> =
            singles().map(|(index, ty)| (format!("${}", index + 1), ty)).collect();
        let batch = run(&binder.query_for_insert(&query, &columns)?)?;
        let types: Vec<SqlType> = singles().map(|(_, ty)| ty).collect();
        crate::copy::values_of(&batch, &types, &mut single)?;
    }
    let mut single = single.into_iter();
    let value = |(expression, ty): (&ast::Expr, &ParameterType)| match ty {
        ParameterType::Single(_) => Ok(single.next().expect("a value was asked for each")),
        ParameterType::Array(_) => {
            let query = crate::parse::parse_query(&format!("SELECT ({expression})::{ty}"))?;
            let batch = run(&binder.query(&query)?)?;
            let elements = firn_exec::types::elements_at(batch.column(0).as_ref(), 0)?;
            Ok(elements.map_or(Value::Null, |elements| Value::Array(elements.into())))
        }
    };
    expressions.iter().zip(types).map(value).collect()
}
