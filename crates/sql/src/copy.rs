//! COPY: the bridge between files' bytes and tables.
//!
//! Rows come in as batches and go through the same door as INSERT, so that defaults, constraints
//! and foreign keys hold. Rows go out from a query's batches, value by value but for the binary format.

use crate::bind::{Binder, SessionFacts, columns_of};
use crate::names::{Names, Relation, missing_column};
use crate::statement::{Copy, CopyOption, CopySubject, QualifiedName, quote_ident};
use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::catalog::MemTable;
use datafusion::common::ScalarValue;
use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::{ExprSchemable, LogicalPlan, LogicalPlanBuilder};
use datafusion::sql::sqlparser::ast;
use firn_base::sync::Arc;
use firn_base::{ColumnId, Error, Result, SqlState, SqlType, TimeZoneSetting, Value};
use firn_exec::dml::{Change, DmlPlan, Insert, InsertSource, TargetSet};
use firn_exec::{BatchStream, RunOptions};
pub use firn_load::source::open as open_file;
pub use firn_load::{CopyFormat, end_of_first_row};
use firn_load::{CopyHeader, CopyOptions, CopyReader, CopyWriter, OnError, RowLines, write_binary_rows};
use firn_txn::catalog::TableDef;
use firn_txn::{Savepoint, Transaction};
use std::io::Read;

/// So many rows that were left out are told one by one.
const MOST_NOTICES: usize = 1000;

/// Bytes of a piece of COPY TO.
const PIECE_BYTES: usize = 64 << 10;

/// COPY … FROM in progress. It holds no transaction: every step is given the one to work in.
pub struct CopyFrom {
    reader: CopyReader,
    format: CopyFormat,
    store: Store,
}

/// Where rows go.
struct Store {
    table: Arc<TableDef>,
    columns: Vec<(ColumnId, String, SqlType)>,
    /// The columns as batches of files have them.
    schema: SchemaRef,
    set: Arc<TargetSet>,
    filter: Option<ast::Expr>,
    facts: Arc<SessionFacts>,
    /// How many have been stored.
    rows: u64,
    /// What the transaction had done before.
    begun: Savepoint,
    /// How many rows there were before each batch of a file, and where its own are.
    batches: Vec<(u64, RowLines)>,
    rejects: Rejects,
}

/// What COPY … FROM came to.
#[derive(Debug)]
pub struct Copied {
    /// How many rows were stored.
    pub rows: u64,
    /// What its user is told of those that were left out.
    pub notices: Vec<Error>,
}

/// Rows that could not be read.
#[derive(Default)]
struct Rejects {
    /// REJECT_LIMIT
    limit: Option<u64>,
    verbosity: Verbosity,
    rows: u64,
    notices: Vec<Error>,
}

/// LOG_VERBOSITY
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Verbosity {
    /// Not a word.
    Silent,
    /// How many rows have been left out.
    #[default]
    Default,
    /// Which, and why.
    Verbose,
}

impl Rejects {
    /// Counts rows that have been left out; an error if that makes too many.
    fn add(&mut self, rejected: Vec<Error>) -> Result<()> {
        for error in rejected {
            self.rows += 1;
            if self.limit.is_some_and(|limit| self.rows > limit) {
                let limit = self.limit.unwrap_or_default();
                let message = format!(
                    "skipped more than REJECT_LIMIT ({limit}) rows, the last for: {}",
                    error.message()
                );
                return Err(retold(&error, error.state(), message));
            }
            if self.verbosity == Verbosity::Verbose && self.notices.len() < MOST_NOTICES {
                let message = format!("skipping row: {}", error.message());
                self.notices.push(retold(&error, SqlState::SUCCESSFUL_COMPLETION, message));
            }
        }
        Ok(())
    }

    /// What the user is told in the end.
    fn into_notices(mut self) -> Vec<Error> {
        if self.rows > 0 && self.verbosity != Verbosity::Silent {
            let were = if self.rows == 1 { "row was" } else { "rows were" };
            let message = format!("{} {were} skipped because they could not be read", self.rows);
            self.notices.push(Error::new(SqlState::SUCCESSFUL_COMPLETION, message));
        }
        self.notices
    }
}

/// Other words at the same place.
fn retold(error: &Error, state: SqlState, message: String) -> Error {
    Error::new(state, message).with_context(error.context().unwrap_or_default())
}

impl CopyFrom {
    /// Checks the statement and gets ready for the data.
    pub fn new(
        transaction: &Transaction,
        facts: &Arc<SessionFacts>,
        copy: &Copy,
        zone: TimeZoneSetting,
    ) -> Result<CopyFrom> {
        let CopySubject::Into(name, names) = &copy.subject else { panic!("COPY FROM fills a table") };
        let catalog_names = Names::new(transaction.catalog(), facts);
        let table = match catalog_names.relation(name)? {
            Relation::Table(table) => table,
            other => {
                return Err(Error::new(
                    SqlState::WRONG_OBJECT_TYPE,
                    format!("cannot copy to {} \"{}\"", other.kind().word(), name.name),
                ));
            }
        };
        let columns = columns(&table, names.as_deref())?;
        let options = options(&copy.options, &columns)?;
        let rejects = rejects(&copy.options, &options)?;
        let tables = |id| transaction.table(id);
        let binder = Binder::new(transaction.catalog(), &tables, facts);
        let set = crate::dml::target_set(&binder, transaction.catalog(), &table)?;
        let format = options.format;
        let reader_columns = columns.iter().map(|(_, name, ty)| (name.clone(), *ty)).collect();
        let reader = CopyReader::new(&format!("COPY {}", table.name), reader_columns, options, zone)?;
        let fields: Vec<_> = columns.iter().map(|(_, name, ty)| firn_exec::types::field(name, *ty)).collect();
        let store = Store {
            table,
            columns,
            schema: Arc::new(Schema::new(fields)),
            set,
            filter: copy.filter.clone(),
            facts: facts.clone(),
            rows: 0,
            begun: transaction.savepoint(),
            batches: Vec::new(),
            rejects,
        };
        Ok(CopyFrom { reader, format, store })
    }

    /// How many columns the data has.
    pub fn columns(&self) -> usize {
        self.store.columns.len()
    }

    /// How the data is written.
    pub fn format(&self) -> CopyFormat {
        self.format
    }

    /// Takes the next bytes, cut anywhere.
    pub fn write(&mut self, transaction: &mut Transaction, options: &RunOptions, data: &[u8]) -> Result<()> {
        self.reader.push(data)?;
        self.store_read(transaction, options)
    }

    /// Ends the data.
    pub fn finish(mut self, transaction: &mut Transaction, options: &RunOptions) -> Result<Copied> {
        self.reader.finish()?;
        self.store_read(transaction, options)?;
        Ok(self.store.copied())
    }

    fn store_read(&mut self, transaction: &mut Transaction, options: &RunOptions) -> Result<()> {
        while let Some(batch) = self.reader.next_batch() {
            self.store.add(transaction, options, batch)?;
        }
        Ok(())
    }

    /// Takes all of a file, which several threads read. `failed` says what a failure to read is to the user.
    pub fn read_file(
        self,
        transaction: &mut Transaction,
        options: &RunOptions,
        file: &mut (dyn Read + Send),
        failed: &(dyn Fn(&std::io::Error) -> Error + Sync),
    ) -> Result<Copied> {
        let CopyFrom { reader, mut store, .. } = self;
        reader
            .read_file(file, failed, options.threads, &mut |batch| store.add(transaction, options, batch))?;
        Ok(store.copied())
    }

    /// Stores the rows of an Arrow batch, whose columns are those of the COPY in their order. They are
    /// assigned as those of `INSERT … SELECT` would be: 42804 where that does not cast.
    pub fn write_batch(
        &mut self,
        transaction: &mut Transaction,
        options: &RunOptions,
        batch: &RecordBatch,
    ) -> Result<()> {
        self.store.assign(transaction, options, batch)
    }
}

impl Store {
    /// Stores the rows of an Arrow batch, as [`CopyFrom::write_batch`] says.
    fn assign(
        &mut self,
        transaction: &mut Transaction,
        options: &RunOptions,
        batch: &RecordBatch,
    ) -> Result<()> {
        if batch.num_columns() != self.columns.len() {
            return Err(Error::new(
                SqlState::SYNTAX_ERROR,
                format!("a batch with {} columns for a COPY of {}", batch.num_columns(), self.columns.len()),
            ));
        }
        let targets: Vec<SqlType> = self.columns.iter().map(|(_, _, ty)| *ty).collect();
        let batch = crate::arrow::normalise(batch, Some(&targets))?;
        let source = {
            let tables = |id| transaction.table(id);
            let binder = Binder::new(transaction.catalog(), &tables, &self.facts);
            let columns: Vec<_> = self.columns.iter().map(|(_, name, ty)| (name.clone(), *ty)).collect();
            let source = crate::bind::insert::assign(self.scan(batch)?, &columns, &binder)?;
            self.filtered(transaction, source)?
        };
        self.insert(transaction, options, InsertSource::Query(Box::new(source)))
    }

    fn copied(self) -> Copied {
        Copied { rows: self.rows, notices: self.rejects.into_notices() }
    }

    /// Stores the rows of a file's batch which the filter lets through.
    fn add(
        &mut self,
        transaction: &mut Transaction,
        options: &RunOptions,
        read: firn_load::Batch,
    ) -> Result<()> {
        self.rejects.add(read.rejected)?;
        if read.rows == 0 {
            return if options.cancel.is_cancelled() { Err(firn_exec::cancelled()) } else { Ok(()) };
        }
        let batch = RecordBatch::try_new(self.schema.clone(), read.columns)
            .map_err(|error| firn_exec::error::from_datafusion(error.into()))?;
        if self.filter.is_some() {
            let source = InsertSource::Query(Box::new(self.filtered(transaction, self.scan(batch)?)?));
            return self.insert(transaction, options, source);
        }
        self.batches.push((self.rows, read.lines));
        let inserted = self.insert(transaction, options, InsertSource::Batch(batch));
        inserted.map_err(|error| self.placed(transaction, error))
    }

    /// Adds to an error of a row of the last batch where that is, and where the row is that has its key if it is of the
    /// same file.
    #[cold]
    fn placed(&self, transaction: &Transaction, error: Error) -> Error {
        let (Some(ordinal), None) = (error.ordinal(), error.context()) else { return error };
        let (before, _) = self.batches.last().expect("of the last batch");
        let line = self.line_of(before + ordinal);
        let table = transaction.table(self.table.storage());
        let other = error.other_row().and_then(|row| transaction.ordinal_since(self.begun, &table, row));
        // Of two rows with a key the later one is at fault, in whatever order the index has met them.
        let other = other.map(|ordinal| self.line_of(ordinal));
        let (line, other) = match other {
            Some(other) if other > line => (other, Some(line)),
            other => (line, other),
        };
        let place = format!("COPY {}, line {line}", self.table.name);
        let error = match (error.detail(), other) {
            (Some(detail), Some(other)) => {
                let detail = format!("{detail} The row on line {other} has it.");
                error.with_detail(detail)
            }
            _ => error,
        };
        error.with_context(place)
    }

    /// The line that a row is on, of all that have been stored.
    fn line_of(&self, ordinal: u64) -> u64 {
        let batch = self.batches.partition_point(|(before, _)| *before <= ordinal) - 1;
        let (before, lines) = &self.batches[batch];
        lines.line_of((ordinal - before) as usize)
    }

    fn insert(
        &mut self,
        transaction: &mut Transaction,
        options: &RunOptions,
        source: InsertSource,
    ) -> Result<()> {
        let plan = DmlPlan {
            picked: Vec::new(),
            set: self.set.clone(),
            change: Change::Insert(Insert {
                columns: self.columns.iter().map(|(id, ..)| *id).collect(),
                source,
                on_conflict: None,
            }),
            returning: None,
            parameters: Vec::new(),
        };
        self.rows += plan.execute(transaction, &[], options)?.count;
        Ok(())
    }

    /// A plan that yields the rows of a batch.
    fn scan(&self, batch: RecordBatch) -> Result<LogicalPlan> {
        let external = firn_exec::error::from_datafusion;
        let table = MemTable::try_new(batch.schema(), vec![vec![batch]]).map_err(external)?;
        let source = provider_as_source(Arc::new(table));
        LogicalPlanBuilder::scan(self.table.name.as_str(), source, None)
            .and_then(LogicalPlanBuilder::build)
            .map_err(external)
    }

    /// A plan that yields those rows which the filter lets through.
    fn filtered(&self, transaction: &Transaction, plan: LogicalPlan) -> Result<LogicalPlan> {
        let external = firn_exec::error::from_datafusion;
        let mut plan = LogicalPlanBuilder::from(plan);
        if let Some(filter) = &self.filter {
            let tables = |id| transaction.table(id);
            let binder = Binder::new(transaction.catalog(), &tables, &self.facts);
            let condition = binder.expression(filter, plan.schema())?;
            let ty = condition.get_type(plan.schema()).map_err(external)?;
            if !matches!(ty, datafusion::arrow::datatypes::DataType::Boolean) {
                return Err(Error::new(
                    SqlState::DATATYPE_MISMATCH,
                    "argument of COPY FROM WHERE must be type boolean",
                ));
            }
            plan = plan.filter(condition).map_err(external)?;
        }
        plan.build().map_err(external)
    }
}

/// Which part of a file is to be written next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Header,
    Rows,
    Nothing,
}

/// COPY … TO in progress.
pub struct CopyTo {
    batches: BatchStream,
    types: Vec<SqlType>,
    writer: CopyWriter,
    format: CopyFormat,
    part: Part,
    rows: u64,
}

impl CopyTo {
    /// Starts the query whose rows go out.
    pub fn new(
        transaction: &Transaction,
        facts: &SessionFacts,
        copy: &Copy,
        options: &RunOptions,
        zone: TimeZoneSetting,
    ) -> Result<CopyTo> {
        let query = match &copy.subject {
            CopySubject::Into(..) => panic!("COPY TO reads"),
            CopySubject::Query(query) => query.clone(),
            CopySubject::Table(name, names) => table_query(transaction, facts, name, names.as_deref())?,
        };
        let tables = |id| transaction.table(id);
        let plan = Binder::new(transaction.catalog(), &tables, facts).query(&query)?;
        let columns = columns_of(plan.schema().as_arrow())?;
        let named: Vec<(ColumnId, String, SqlType)> = columns
            .iter()
            .enumerate()
            .map(|(position, (name, ty))| (ColumnId(position as u16), name.clone(), *ty))
            .collect();
        let copy_options = self::options(&copy.options, &named)?;
        let format = copy_options.format;
        if format == CopyFormat::Binary {
            refuse_arrays(plan.schema().as_arrow())?;
        }
        let types = columns.iter().map(|(_, ty)| *ty).collect();
        let writer = CopyWriter::new(columns, copy_options, zone)?;
        let batches = firn_exec::run(&plan, &[], transaction, options)?;
        Ok(CopyTo { batches, types, writer, format, part: Part::Header, rows: 0 })
    }

    /// How many columns the data has.
    pub fn columns(&self) -> usize {
        self.types.len()
    }

    /// How the data is written.
    pub fn format(&self) -> CopyFormat {
        self.format
    }

    /// How many rows have gone out.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The next bytes, whole rows; `None` at the end.
    pub fn next_piece(&mut self) -> Result<Option<Vec<u8>>> {
        let mut piece = Vec::new();
        if self.part == Part::Header {
            self.writer.write_header(&mut piece);
            self.part = Part::Rows;
        }
        let mut values = Vec::new();
        while self.part == Part::Rows && piece.len() < PIECE_BYTES {
            let Some(batch) = self.batches.next()? else {
                self.writer.write_trailer(&mut piece);
                self.part = Part::Nothing;
                break;
            };
            if self.format == CopyFormat::Binary {
                let columns = batch.columns().iter().zip(&self.types);
                let columns =
                    columns.map(|(column, ty)| as_declared(column, *ty)).collect::<Result<Vec<_>>>()?;
                write_binary_rows(&columns, &self.types, batch.num_rows(), &mut piece);
            } else {
                values.clear();
                values_of(&batch, &self.types, &mut values)?;
                match self.types.len() {
                    0 => (0..batch.num_rows()).for_each(|_| self.writer.write_row(&[], &mut piece)),
                    width => {
                        values.chunks_exact(width).for_each(|row| self.writer.write_row(row, &mut piece))
                    }
                }
            }
            self.rows += batch.num_rows() as u64;
        }
        Ok((!piece.is_empty()).then_some(piece))
    }
}

/// A column in the Arrow type of its SQL type, but for the scale of numerics.
fn as_declared(column: &ArrayRef, ty: SqlType) -> Result<ArrayRef> {
    match column.data_type() {
        DataType::Decimal128(..) if matches!(ty, SqlType::Numeric { .. }) => Ok(Arc::clone(column)),
        _ => crate::arrow::converted(column, &firn_exec::types::data_type(ty)),
    }
}

/// Arrays go out as text, which has no place among binary values.
fn refuse_arrays(schema: &Schema) -> Result<()> {
    match schema.fields().iter().find(|field| field.data_type().is_nested()) {
        None => Ok(()),
        Some(field) => {
            let name = firn_exec::types::visible_name(field.name());
            let error = Error::unsupported(format!("COPY of arrays (column \"{name}\") in binary format"));
            Err(error.with_hint("Cast the array to text, or use text or CSV."))
        }
    }
}

/// The query behind COPY table TO.
fn table_query(
    transaction: &Transaction,
    facts: &SessionFacts,
    name: &QualifiedName,
    columns: Option<&[String]>,
) -> Result<Box<ast::Query>> {
    let names = Names::new(transaction.catalog(), facts);
    let table = match names.relation(name)? {
        Relation::Table(table) => table,
        other => {
            let kind = other.kind().word();
            let error =
                Error::new(SqlState::WRONG_OBJECT_TYPE, format!("cannot copy from {kind} \"{}\"", name.name));
            return Err(error.with_hint("Try the COPY (SELECT ...) TO variant."));
        }
    };
    let list: Vec<String> =
        self::columns(&table, columns)?.iter().map(|(_, name, _)| quote_ident(name)).collect();
    let schema = &transaction.catalog().schemas[&table.schema].name;
    let table = format!("{}.{}", quote_ident(schema), quote_ident(&table.name));
    crate::parse::parse_query(&format!("SELECT {} FROM {table}", list.join(", ")))
}

/// The columns that were named, or all.
fn columns(table: &TableDef, names: Option<&[String]>) -> Result<Vec<(ColumnId, String, SqlType)>> {
    let Some(names) = names else {
        let all = table.visible_columns().map(|(id, column)| (id, column.name.clone(), column.ty));
        return Ok(all.collect());
    };
    let mut found: Vec<(ColumnId, String, SqlType)> = Vec::with_capacity(names.len());
    for name in names {
        let Some((id, column)) = table.column(name) else { return Err(missing_column(table, name)) };
        if found.iter().any(|(known, ..)| *known == id) {
            return Err(Error::new(
                SqlState::DUPLICATE_COLUMN,
                format!("column \"{name}\" specified more than once"),
            ));
        }
        found.push((id, name.clone(), column.ty));
    }
    Ok(found)
}

/// Options as `load` wants them.
fn options(given: &[(String, CopyOption)], columns: &[(ColumnId, String, SqlType)]) -> Result<CopyOptions> {
    let syntax = |message: String| Error::new(SqlState::SYNTAX_ERROR, message);
    let text = |name: &str, option: &CopyOption| match option {
        CopyOption::Text(text) => Ok(text.clone()),
        _ => Err(syntax(format!("COPY {} takes one value", name.to_uppercase()))),
    };
    let mut seen: Vec<&str> = Vec::new();
    for (name, _) in given {
        if seen.contains(&name.as_str()) {
            return Err(syntax("conflicting or redundant options".into()));
        }
        seen.push(name);
    }
    let format = match given.iter().find(|(name, _)| name == "format") {
        None => CopyFormat::Text,
        Some((name, option)) => match text(name, option)?.to_lowercase().as_str() {
            "text" => CopyFormat::Text,
            "csv" => CopyFormat::Csv,
            "binary" => CopyFormat::Binary,
            other => {
                return Err(Error::new(
                    SqlState::INVALID_PARAMETER_VALUE,
                    format!("COPY format \"{other}\" not recognized"),
                ));
            }
        },
    };
    let mut options = CopyOptions::new(format);
    let csv_only = |name: &str| match format {
        CopyFormat::Csv => Ok(()),
        CopyFormat::Text | CopyFormat::Binary => Err(Error::new(
            SqlState::FEATURE_NOT_SUPPORTED,
            format!("COPY {} available only in CSV mode", name.replace('_', " ")),
        )),
    };
    let not_binary = |name: &str| match format {
        CopyFormat::Text | CopyFormat::Csv => Ok(()),
        CopyFormat::Binary => Err(syntax(format!("cannot specify {} in BINARY mode", name.to_uppercase()))),
    };
    for (name, option) in given {
        let character = || -> Result<u8> {
            match text(name, option)?.as_bytes() {
                [byte] => Ok(*byte),
                _ => Err(Error::new(
                    SqlState::FEATURE_NOT_SUPPORTED,
                    format!("COPY {name} must be a single one-byte character"),
                )),
            }
        };
        let by_column = || -> Result<Vec<bool>> {
            match option {
                CopyOption::All => Ok(vec![true; columns.len()]),
                CopyOption::Columns(names) => {
                    for wanted in names {
                        if !columns.iter().any(|(_, name, _)| name == wanted) {
                            return Err(Error::new(
                                SqlState::INVALID_COLUMN_REFERENCE,
                                format!("{} column \"{wanted}\" not referenced by COPY", name.to_uppercase()),
                            ));
                        }
                    }
                    Ok(columns.iter().map(|(_, name, _)| names.contains(name)).collect())
                }
                CopyOption::Text(_) => {
                    Err(syntax(format!("argument to option \"{name}\" must be a list of column names")))
                }
            }
        };
        match name.as_str() {
            "format" => {}
            "delimiter" => {
                not_binary(name)?;
                options.delimiter = character()?;
            }
            "null" => {
                not_binary(name)?;
                options.null = text(name, option)?;
            }
            "header" => {
                not_binary(name)?;
                let value = text(name, option)?;
                options.header = match (crate::settings::boolean(&value), value.as_str()) {
                    (Some(true), _) => CopyHeader::Yes,
                    (Some(false), _) => CopyHeader::No,
                    (None, "match") => CopyHeader::Match,
                    _ => return Err(syntax("header requires a Boolean value or \"match\"".into())),
                };
            }
            "quote" => {
                csv_only(name)?;
                options.quote = character()?;
                if !seen.contains(&"escape") {
                    options.escape = options.quote;
                }
            }
            "escape" => {
                csv_only(name)?;
                options.escape = character()?;
            }
            "force_quote" => {
                csv_only(name)?;
                options.force_quote = by_column()?;
            }
            "force_not_null" => {
                csv_only(name)?;
                options.force_not_null = by_column()?;
            }
            "force_null" => {
                csv_only(name)?;
                options.force_null = by_column()?;
            }
            "on_error" => {
                not_binary(name)?;
                options.on_error = match text(name, option)?.to_lowercase().as_str() {
                    "stop" => OnError::Stop,
                    "ignore" => OnError::Ignore,
                    other => {
                        return Err(Error::new(
                            SqlState::INVALID_PARAMETER_VALUE,
                            format!("COPY ON_ERROR \"{other}\" not recognized"),
                        ));
                    }
                };
            }
            // They are of what is told, not of what is read.
            "reject_limit" | "log_verbosity" => {}
            "freeze" => {
                if crate::settings::boolean(&text(name, option)?).is_none() {
                    return Err(syntax("freeze requires a Boolean value".into()));
                }
            }
            "encoding" => {
                let encoding = text(name, option)?;
                if !["utf8", "utf-8", "unicode"].contains(&encoding.to_lowercase().as_str()) {
                    return Err(Error::unsupported(format!("COPY encoding {encoding}"))
                        .with_hint("Convert the file to UTF-8."));
                }
            }
            _ => return Err(syntax(format!("option \"{name}\" not recognized"))),
        }
    }
    Ok(options)
}

/// What the options say of rows that cannot be read.
fn rejects(given: &[(String, CopyOption)], options: &CopyOptions) -> Result<Rejects> {
    let mut rejects = Rejects::default();
    let invalid = |message: String| Error::new(SqlState::INVALID_PARAMETER_VALUE, message);
    for (name, option) in given {
        let CopyOption::Text(text) = option else { continue };
        match name.as_str() {
            "reject_limit" => {
                let limit = text.parse().ok().filter(|limit| *limit > 0);
                rejects.limit =
                    Some(limit.ok_or_else(|| {
                        invalid(format!("REJECT_LIMIT ({text}) must be greater than zero"))
                    })?);
                if options.on_error != OnError::Ignore {
                    return Err(invalid(
                        "COPY REJECT_LIMIT requires ON_ERROR to be set to IGNORE".to_owned(),
                    ));
                }
            }
            "log_verbosity" => {
                rejects.verbosity = match text.to_lowercase().as_str() {
                    "silent" => Verbosity::Silent,
                    "default" => Verbosity::Default,
                    "verbose" => Verbosity::Verbose,
                    other => return Err(invalid(format!("COPY LOG_VERBOSITY \"{other}\" not recognized"))),
                };
            }
            _ => {}
        }
    }
    Ok(rejects)
}

/// Appends the values of a batch, row-major.
pub fn values_of(batch: &RecordBatch, types: &[SqlType], values: &mut Vec<Value>) -> Result<()> {
    values.reserve(batch.num_rows() * types.len());
    for row in 0..batch.num_rows() {
        for column in batch.columns() {
            let scalar =
                ScalarValue::try_from_array(column, row).map_err(firn_exec::error::from_datafusion)?;
            values.push(firn_exec::types::value(&scalar)?);
        }
    }
    Ok(())
}

/// The schema of a result as those who get it see it: names without what keeps equal ones apart in plans. Where
/// columns hold arrays, `drawn` is the schema that their batches have by themselves.
pub fn schema_of(columns: &[crate::Column], drawn: Option<&Schema>) -> SchemaRef {
    let field = |(position, column): (usize, &crate::Column)| match (drawn, column.element) {
        (Some(drawn), Some(element)) => {
            Arc::new(Field::new(&column.name, array_type(drawn.field(position).data_type(), element), true))
        }
        _ => firn_exec::types::field(&column.name, column.ty),
    };
    Arc::new(Schema::new(columns.iter().enumerate().map(field).collect::<Vec<_>>()))
}

/// The type of arrays of so many dimensions as another one's, whose elements are of `element`'s own Arrow type.
fn array_type(drawn: &DataType, element: SqlType) -> DataType {
    match drawn {
        DataType::List(inner) => {
            DataType::List(Arc::new(Field::new_list_field(array_type(inner.data_type(), element), true)))
        }
        _ => firn_exec::types::data_type(element),
    }
}

/// A batch under such a schema. Columns are cast only where operators have yielded another type than the plan said:
/// 22003 if a value does not fit.
pub fn with_schema(batch: RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let external = |error: ArrowError| firn_exec::error::from_datafusion(error.into());
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let fit = |(column, field): (&ArrayRef, &FieldRef)| crate::arrow::converted(column, field.data_type());
    let columns = batch.columns().iter().zip(schema.fields()).map(fit).collect::<Result<_>>()?;
    RecordBatch::try_new_with_options(schema.clone(), columns, &options).map_err(external)
}

/// The batch that holds these values, row-major.
pub fn batch_of(columns: &[crate::Column], values: Vec<Value>) -> Result<RecordBatch> {
    let fields: Vec<_> =
        columns.iter().map(|column| firn_exec::types::field(&column.name, column.ty)).collect();
    let mut by_column: Vec<Vec<ScalarValue>> = columns.iter().map(|_| Vec::new()).collect();
    for (position, value) in values.iter().enumerate() {
        let column = position % columns.len();
        by_column[column].push(firn_exec::types::scalar(value, columns[column].ty));
    }
    let external = firn_exec::error::from_datafusion;
    let arrays = by_column
        .into_iter()
        .map(|scalars| ScalarValue::iter_to_array(scalars).map_err(external))
        .collect::<Result<Vec<ArrayRef>>>()?;
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).map_err(|error| external(error.into()))
}
