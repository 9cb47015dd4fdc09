//! Files as tables: `FROM 'orders.parquet'` and `FROM read_csv('orders*.csv', delimiter => ';')`, of all readers also lists
//! of files, and the name of each row's file ([`names`]).
//!
//! A file is looked at when a statement is bound, which tells its columns and their types, and read when the statement
//! runs, only the columns that the statement asks for: CSV and JSON by the code of COPY ([`lines`]), Parquet and Arrow by
//! the crates of the Arrow project ([`columns`]). Of CSV and JSON what statements find out is kept for later ones ([`zones`]). So a plan knows what its files looked like, and is
//! made anew when one has changed since. The files are the server's, as those of COPY are.

pub(crate) mod columns;
mod condition;
mod headers;
pub(crate) mod ipc;
mod line_scan;
mod lines;
mod names;
mod parquet;
mod patterns;
mod version;
mod zones;

pub use zones::ZoneMaps;

use async_trait::async_trait;
use condition::Condition;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::TableReference;
use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion::logical_expr::{Expr, LogicalPlanBuilder, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::stream::RecordBatchReceiverStreamBuilder;
use datafusion::physical_plan::streaming::StreamingTableExec;
use datafusion::physical_plan::{ExecutionPlan, SendableRecordBatchStream};
use datafusion::sql::sqlparser::ast;
use firn_base::binary::utf8;
use firn_base::sync::{Arc, Mutex};
use firn_base::{Error, Result, SqlState, SqlType, TimeZoneSetting};
use firn_exec::error::to_datafusion;
use firn_load::NO_QUOTE;
use firn_load::sniff::Known;
use firn_load::source::is_damage;
use line_scan::LineScan;
use lines::Lines;
use names::Names;
use patterns::matching;
use std::fmt::{self, Debug, Display};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use version::FileVersion;
use zones::Reading;

/// Batches that may wait for who reads them.
const WAITING_BATCHES: usize = 4;

/// Files have as many columns as tables, as in PostgreSQL.
const MOST_COLUMNS: usize = 1600;

/// The function that reads CSV files.
const READ_CSV: &str = "read_csv";

/// How it is called.
const CSV_USAGE: &str = "read_csv('file.csv', delimiter => ';', quote => '\"', escape => '\"', null => 'NA', header => true, skip => 2, \
     types => 'day date', columns => 'id bigint, day date', all_varchar => true, encoding => 'latin1', ignore_errors => true, \
     filename => true)";

/// A function that reads files, how it is called, and what its files are.
struct Reader {
    name: &'static str,
    usage: &'static str,
    kind: Kind,
}

const READERS: [Reader; 4] = [
    Reader { name: READ_CSV, usage: CSV_USAGE, kind: Kind::Csv },
    Reader {
        name: "read_parquet",
        usage: "read_parquet(ARRAY['file.parquet', 'more-*.parquet'], filename => true)",
        kind: Kind::Parquet,
    },
    Reader {
        name: "read_arrow",
        usage: "read_arrow(ARRAY['file.arrow', 'more-*.arrow'], filename => true)",
        kind: Kind::Arrow,
    },
    Reader {
        name: "read_json",
        usage: "read_json(ARRAY['file.json', 'more-*.json'], types => 'price numeric', columns => 'id bigint, day date', ignore_errors => true, \
                filename => true)",
        kind: Kind::Json,
    },
];

/// What the column is called that tells the file of each row, unless it was given another name.
const FILE_NAME: &str = "filename";

/// Files that a statement reads, as they were when it was bound.
#[derive(Clone, Default, Debug)]
pub struct Files(Arc<Mutex<Vec<Arc<FileTable>>>>);

impl Files {
    /// What tells whether they are still what they were.
    pub fn versions(&self) -> Box<[FileVersions]> {
        self.0.lock().iter().map(|table| table.versions.clone()).collect()
    }

    /// The table that files make. A statement is bound more than once, and they are looked at once.
    fn open(&self, asked: Asked, zone: TimeZoneSetting, zones: &ZoneMaps) -> Result<Arc<FileTable>> {
        let mut opened = self.0.lock();
        if let Some(table) = opened.iter().find(|table| table.asked == asked) {
            return Ok(table.clone());
        }
        let table = Arc::new(FileTable::open(asked, zone, zones)?);
        opened.push(table.clone());
        Ok(table)
    }
}

/// The files that patterns named at some time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileVersions {
    /// How they were asked for.
    patterns: Vec<String>,
    files: Vec<FileVersion>,
}

impl FileVersions {
    fn of(patterns: &[String]) -> Result<FileVersions> {
        let version =
            |path: PathBuf| FileVersion::of(path.clone()).map_err(|error| file_error(&path, &error));
        let mut files = Vec::new();
        for pattern in patterns {
            files.extend(matching(pattern)?.into_iter().map(version).collect::<Result<Vec<_>>>()?);
        }
        Ok(FileVersions { patterns: patterns.to_vec(), files })
    }

    /// Whether they name the same, and those are as they were.
    pub fn is_current(&self) -> bool {
        FileVersions::of(&self.patterns).is_ok_and(|now| now == *self)
    }
}

/// How files are asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Asked {
    /// Their names, or patterns of these; at least one.
    patterns: Vec<String>,
    /// What they are said to be.
    kind: Option<Kind>,
    /// What is known of them if they are CSV; of JSON columns, types and what becomes of mistakes alone.
    csv: AskedCsv,
    /// What the column is to be called that tells the file of each row.
    file_name: Option<String>,
}

impl Asked {
    fn new(patterns: Vec<String>, kind: Option<Kind>) -> Asked {
        Asked { patterns, kind, csv: AskedCsv::default(), file_name: None }
    }
}

/// What is known of CSV files.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
struct AskedCsv {
    known: Known,
    /// Types of some columns, by their names; those of the others are told from the file.
    types: Vec<(String, SqlType)>,
    /// Whether rows that cannot be read are left out.
    ignores_errors: bool,
}

/// What files are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// CSV.
    Csv,
    /// JSON lines.
    Json,
    /// Parquet.
    Parquet,
    /// Arrow's IPC format: files, or streams that were kept.
    Arrow,
}

impl Kind {
    /// What a file is: by its first bytes, or else by the end of its name.
    fn of(path: &Path) -> std::io::Result<Kind> {
        const ENDS: [&str; 3] = ["json", "jsonl", "ndjson"];
        const PACKED: [&str; 3] = ["gz", "zst", "zstd"];
        let mut first = Vec::with_capacity(8);
        File::open(path)?.take(8).read_to_end(&mut first)?;
        if let Some(kind) = Kind::by_bytes(&first) {
            return Ok(kind);
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        let mut ends = name.rsplit('.');
        let mut end = ends.next();
        if end.is_some_and(|end| PACKED.contains(&end)) {
            end = ends.next();
        }
        Ok(if end.is_some_and(|end| ENDS.contains(&end)) { Kind::Json } else { Kind::Csv })
    }

    /// Its name in an error.
    fn article(self) -> &'static str {
        match self {
            Kind::Csv => "a CSV file",
            Kind::Json => "a JSON file",
            Kind::Parquet => "a Parquet file",
            Kind::Arrow => "an Arrow file",
        }
    }

    /// What a file is that begins so, if it is none of text.
    pub fn by_bytes(first: &[u8]) -> Option<Kind> {
        match first {
            // What follows is binary: so no text begins.
            [b'P', b'A', b'R', b'1', next, ..] if next.is_ascii_control() => Some(Kind::Parquet),
            [b'A', b'R', b'R', b'O', b'W', b'1', 0, ..] | [0xff, 0xff, 0xff, 0xff, ..] => Some(Kind::Arrow),
            _ => None,
        }
    }
}

/// Files of one kind, as a table.
pub struct FileTable {
    versions: FileVersions,
    asked: Asked,
    content: Content,
    /// The file that they are told from.
    first: PathBuf,
    /// The columns of the files.
    found: SchemaRef,
    /// Those of the table: one more, at the end, if it tells the file of each row.
    schema: SchemaRef,
    zones: ZoneMaps,
}

/// What is in files, as the first of them that tells it does.
enum Content {
    /// Rows, one after another.
    Lines(Arc<Reading>),
    /// Columns.
    Columns(Kind),
}

impl Debug for FileTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileTable({:?})", self.versions.patterns)
    }
}

impl FileTable {
    fn open(asked: Asked, zone: TimeZoneSetting, zones: &ZoneMaps) -> Result<FileTable> {
        // Before they are looked at: what changes from now on is found to have changed.
        let versions = FileVersions::of(&asked.patterns)?;
        let mut first = &*versions.files.first().expect("a pattern matches some file").path;
        let kind = match asked.kind {
            None => Kind::of(first).map_err(|error| file_error(first, &error))?,
            Some(kind) => kind,
        };
        let (content, found) = match kind {
            Kind::Csv | Kind::Json => {
                let paths = versions.files.iter().map(|file| &*file.path);
                let (path, sniffed) = lines::look(paths, &asked.csv, kind)?;
                first = path;
                let fields = sniffed.columns.iter().map(|(name, ty)| firn_exec::types::field(name, *ty));
                let schema = Schema::new(fields.collect::<Vec<_>>());
                let is_by_place = asked.csv.known.columns.is_some();
                let reading = Reading { sniffed, is_by_place, zone, chunk_bytes: zones.chunk_bytes() };
                (Content::Lines(Arc::new(reading)), Arc::new(schema))
            }
            Kind::Parquet | Kind::Arrow => {
                let file = columns::open(first, kind)?;
                (Content::Columns(kind), columns::schema(&*file))
            }
        };
        if found.fields().is_empty() {
            return Err(no_columns(first, "it has none"));
        }
        for field in found.fields() {
            utf8(field.name().as_bytes()).map_err(|error| {
                error.with_context(format!("file \"{}\", name of a column", first.display()))
            })?;
        }
        let schema = match &asked.file_name {
            Some(name) if found.column_with_name(name).is_some() => return Err(named_twice(first, name)),
            Some(name) => names::with_name(&found, found.fields().len(), name),
            None => found.clone(),
        };
        match schema.fields().len() {
            ..=MOST_COLUMNS => {
                let first = first.to_owned();
                Ok(FileTable { versions, asked, content, first, found, schema, zones: zones.clone() })
            }
            columns => {
                let message = format!("it seems to have {columns}, and tables have at most {MOST_COLUMNS}");
                Err(no_columns(first, &message))
            }
        }
    }
}

impl FileTable {
    /// The columns whose types were not told from the files.
    fn given(&self) -> Vec<String> {
        let AskedCsv { known, types, .. } = &self.asked.csv;
        let given = known.columns.as_ref().unwrap_or(types);
        given.iter().map(|(name, _)| name.clone()).collect()
    }
}

fn no_columns(path: &Path, why: &str) -> Error {
    let message = format!("file \"{}\" tells no columns: {why}", path.display());
    Error::new(SqlState::BAD_COPY_FILE_FORMAT, message)
}

/// The error for files that have a column of the name which that of their own names is to have.
fn named_twice(path: &Path, name: &str) -> Error {
    let message = format!("file \"{}\" has a column \"{name}\" of its own", path.display());
    Error::new(SqlState::DUPLICATE_COLUMN, message)
        .with_hint("Call the column for the names of files otherwise: filename => 'file'.")
}

fn file_error(path: &Path, error: &std::io::Error) -> Error {
    read_error("file", path, error)
}

/// The error for what cannot be read.
fn read_error(what: &str, path: &Path, error: &std::io::Error) -> Error {
    let message = format!("could not read {what} \"{}\": {error}", path.display());
    let state = match error.kind() {
        std::io::ErrorKind::NotFound => SqlState::UNDEFINED_FILE,
        std::io::ErrorKind::PermissionDenied => SqlState::INSUFFICIENT_PRIVILEGE,
        std::io::ErrorKind::IsADirectory => SqlState::WRONG_OBJECT_TYPE,
        _ if is_damage(error) => {
            return Error::new(SqlState::BAD_COPY_FILE_FORMAT, message)
                .with_hint("The file may be damaged, or its writer may not have finished.");
        }
        _ => SqlState::IO_ERROR,
    };
    Error::new(state, message)
        .with_hint("Files in queries are files of the server; a relative path begins where it was started.")
}

#[async_trait]
impl TableProvider for FileTable {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Temporary
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> datafusion::common::Result<Vec<TableProviderFilterPushDown>> {
        // What cannot meet them is passed over, and they are asked again.
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> datafusion::common::Result<Arc<dyn ExecutionPlan>> {
        let mut wanted = projection.cloned().unwrap_or_else(|| (0..self.schema.fields().len()).collect());
        let mut paths: Vec<PathBuf> = self.versions.files.iter().map(|file| file.path.clone()).collect();
        let mut filters = filters.to_vec();
        let names = match &self.asked.file_name {
            Some(name) => {
                names::choose(session, name, &mut filters, &mut paths);
                Names::among(&mut wanted, self.found.fields().len(), name)
            }
            None => None,
        };
        let schema = Arc::new(self.found.project(&wanted)?);
        match &self.content {
            Content::Lines(reading) => Ok(Arc::new(LineScan::new(Lines {
                pattern: self.versions.patterns.join(", "),
                first: self.first.clone(),
                paths,
                reading: reading.clone(),
                given: self.given(),
                zones: self.zones.clone(),
                condition: Condition::new(session, &filters, &self.found),
                columns: self.found.clone(),
                wanted,
                schema,
                names,
            }))),
            Content::Columns(kind) => {
                let predicate = columns::predicate(session, &filters, &self.found);
                let partitions = session.config().target_partitions();
                let streams =
                    columns::streams(&paths, *kind, &schema, &names, predicate.as_ref(), partitions)
                        .map_err(to_datafusion)?;
                let schema = names::schema(&names, &schema);
                Ok(Arc::new(StreamingTableExec::try_new(schema, streams, None, [], false, limit)?))
            }
        }
    }
}

/// The error for a file that somebody has written to.
fn changed(path: &Path) -> Error {
    let message = format!("file \"{}\" has changed while it was read", path.display());
    Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message).with_hint("Run the statement again.")
}

/// Has another thread read rows and send them.
fn spawn(
    schema: SchemaRef,
    read: impl FnOnce(&mut dyn FnMut(RecordBatch) -> Result<()>) -> Result<()> + Send + 'static,
) -> SendableRecordBatchStream {
    let mut builder = RecordBatchReceiverStreamBuilder::new(schema, WAITING_BATCHES);
    let rows = builder.tx();
    builder.spawn_blocking(move || {
        let gone = || Error::new(SqlState::QUERY_CANCELED, "nobody wants the rows any more");
        match read(&mut |batch| rows.blocking_send(Ok(batch)).map_err(|_| gone())) {
            // Whoever has gone does not hear of it either.
            Err(error) if !rows.is_closed() => Err(to_datafusion(error)),
            _ => Ok(()),
        }
    });
    builder.build()
}

/// Plans files in FROM.
#[derive(Debug)]
pub struct FilePlanner {
    /// Where the files that are found gather.
    pub files: Files,
    /// What moments are in that name no zone.
    pub zone: TimeZoneSetting,
    /// What is known of files that have been read before.
    pub zones: ZoneMaps,
}

impl RelationPlanner for FilePlanner {
    fn plan_relation(
        &self,
        relation: ast::TableFactor,
        _: &mut dyn RelationPlannerContext,
    ) -> datafusion::common::Result<RelationPlanning> {
        let ast::TableFactor::Table { name, args, alias, .. } = &relation else {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        };
        let Some(asked) = asked(name, args.as_ref()).map_err(to_datafusion)? else {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        };
        let called = scan_name(&asked.patterns[0]);
        let table = self.files.open(asked, self.zone, &self.zones).map_err(to_datafusion)?;
        let plan = LogicalPlanBuilder::scan(called, provider_as_source(table), None)?.build()?;
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, alias.clone()))))
    }
}

/// The files that a relation in FROM stands for, if it stands for files.
fn asked(name: &ast::ObjectName, arguments: Option<&ast::TableFunctionArgs>) -> Result<Option<Asked>> {
    let [ast::ObjectNamePart::Identifier(name)] = name.0.as_slice() else { return Ok(None) };
    match arguments {
        None if is_file(name) => Ok(Some(Asked::new(vec![name.value.clone()], None))),
        None => Ok(None),
        Some(arguments) => {
            let reader = READERS.iter().find(|reader| name.value.eq_ignore_ascii_case(reader.name));
            reader.map(|reader| reader.asked(&arguments.args)).transpose()
        }
    }
}

/// Whether a name in FROM is that of a file.
pub fn is_file(name: &ast::Ident) -> bool {
    name.quote_style == Some('\'')
}

/// What a relation in FROM that stands for files is called without an alias, and the names of its columns.
pub fn columns_of(
    name: &ast::ObjectName,
    arguments: Option<&ast::TableFunctionArgs>,
) -> Result<Option<(String, Vec<String>)>> {
    let Some(asked) = asked(name, arguments)? else { return Ok(None) };
    let called = scan_name(&asked.patterns[0]);
    let table = FileTable::open(asked, TimeZoneSetting::default(), &ZoneMaps::default())?;
    let names = table.schema.fields().iter().map(|field| field.name().clone()).collect();
    Ok(Some((called.table().to_owned(), names)))
}

/// What a table without an alias is called: as its file, up to the first point.
fn scan_name(pattern: &str) -> TableReference {
    let name = Path::new(pattern).file_name().map_or(pattern.into(), |name| name.to_string_lossy());
    let stem = name.split('.').next().filter(|stem| !stem.is_empty()).unwrap_or(&name);
    TableReference::bare(stem)
}

impl Reader {
    /// What its arguments ask for: files, and by name what is known of them.
    fn asked(&self, arguments: &[ast::FunctionArg]) -> Result<Asked> {
        let mut asked = Asked::new(Vec::new(), Some(self.kind));
        let mut seen = Vec::new();
        let mut once = |given: &str| {
            let name = plain_name(given.to_lowercase());
            match seen.contains(&name) {
                false => {
                    seen.push(name.clone());
                    Ok(name)
                }
                true => {
                    let message = format!("{}: {name} is given more than once", self.name);
                    Err(Error::new(SqlState::SYNTAX_ERROR, message).with_hint(self.usage))
                }
            }
        };
        for argument in arguments {
            match argument {
                ast::FunctionArg::Unnamed(files) if asked.patterns.is_empty() => {
                    asked.patterns = self.files(files)?;
                }
                ast::FunctionArg::Named { name, arg, .. } => {
                    self.set(&mut asked, &once(&name.value)?, arg)?;
                }
                // The name is an expression to the parser: `null` is one.
                ast::FunctionArg::ExprNamed { name, arg, .. } => {
                    self.set(&mut asked, &once(&name.to_string())?, arg)?;
                }
                _ => {
                    let message = "several files are a list, and options have names: \
                         ARRAY['one.csv', 'two.csv'], filename => true";
                    return Err(self.wrong(message));
                }
            }
        }
        if asked.patterns.is_empty() {
            return Err(self.wrong("the name of a file is missing"));
        }
        let AskedCsv { known, types, .. } = &asked.csv;
        if known.columns.is_some() && (known.all_text || !types.is_empty()) {
            return Err(self.wrong("columns says all of their types"));
        }
        Ok(asked)
    }

    fn wrong(&self, message: impl Display) -> Error {
        Error::new(SqlState::INVALID_PARAMETER_VALUE, format!("{}: {message}", self.name))
            .with_hint(self.usage)
    }

    /// The names of files: one, or an array of them.
    fn files(&self, value: &ast::FunctionArgExpr) -> Result<Vec<String>> {
        match value {
            ast::FunctionArgExpr::Expr(ast::Expr::Array(list)) if !list.elem.is_empty() => {
                list.elem.iter().map(|file| self.literal("file", file)).collect()
            }
            value => Ok(vec![self.text("file", value)?]),
        }
    }

    /// Takes an option.
    fn set(&self, asked: &mut Asked, name: &str, value: &ast::FunctionArgExpr) -> Result<()> {
        if name == FILE_NAME {
            let given = self.text(name, value)?;
            // Other words for true and false may be names.
            asked.file_name = match &given[..] {
                "true" => Some(FILE_NAME.to_owned()),
                "false" => None,
                "" => return Err(self.wrong("filename is true, false, or what the column is called")),
                _ => Some(given),
            };
            return Ok(());
        }
        match self.kind {
            Kind::Csv => self.set_known(&mut asked.csv, name, value),
            Kind::Json if ["columns", "types", "ignore_errors"].contains(&name) => {
                self.set_known(&mut asked.csv, name, value)
            }
            _ => Err(self.wrong(format!("there is no option \"{name}\""))),
        }
    }

    fn set_known(&self, asked: &mut AskedCsv, name: &str, value: &ast::FunctionArgExpr) -> Result<()> {
        let known = &mut asked.known;
        let truth = || {
            let given = crate::settings::boolean(&self.text(name, value)?);
            given.ok_or_else(|| self.wrong(format!("{name} is true or false")))
        };
        let byte = || match self.text(name, value)?.as_bytes() {
            [byte] if byte.is_ascii() && !matches!(byte, b'\n' | b'\r') => Ok(Some(*byte)),
            _ => Err(self.wrong(format!("{name} is a single ASCII character"))),
        };
        match name {
            "delimiter" => known.delimiter = byte()?,
            "quote" if self.text(name, value)?.is_empty() => known.quote = Some(NO_QUOTE),
            "quote" => known.quote = byte()?,
            "escape" => known.escape = byte()?,
            "null" => known.null = Some(self.text(name, value)?),
            "header" => known.header = Some(truth()?),
            "skip" => {
                known.skip = whole_number(value).ok_or_else(|| self.wrong("skip is a number of lines"))?;
            }
            "all_varchar" => known.all_text = truth()?,
            "ignore_errors" => asked.ignores_errors = truth()?,
            "columns" => known.columns = Some(self.declarations(name, value)?),
            "types" => asked.types = self.declarations(name, value)?,
            "encoding" => known.encoding = crate::copy::encoding(&self.text(name, value)?)?,
            _ => return Err(self.wrong(format!("there is no option \"{name}\""))),
        }
        Ok(())
    }

    /// Columns as `CREATE TABLE` declares them: names with their types.
    fn declarations(&self, name: &str, value: &ast::FunctionArgExpr) -> Result<Vec<(String, SqlType)>> {
        let list = crate::parse::parse_declarations(&self.text(name, value)?).map_err(|error| {
            let why = error.message();
            self.wrong(format!("{name} are names with types, as in CREATE TABLE: {why}"))
        })?;
        let mut found: Vec<(String, SqlType)> = Vec::new();
        for (column, ty) in list {
            let column = crate::statement::fold(&column);
            if found.iter().any(|(known, _)| *known == column) {
                return Err(self.wrong(format!("{name} names \"{column}\" twice")));
            }
            found.push((column, crate::data_type::sql_type(&ty)?));
        }
        Ok(found)
    }

    /// A literal as text.
    fn text(&self, name: &str, value: &ast::FunctionArgExpr) -> Result<String> {
        match value {
            ast::FunctionArgExpr::Expr(expression) => self.literal(name, expression),
            _ => Err(self.wrong(format!("{name} is given as a literal"))),
        }
    }

    fn literal(&self, name: &str, expression: &ast::Expr) -> Result<String> {
        let literal = match expression {
            ast::Expr::Value(literal) => match &literal.value {
                ast::Value::SingleQuotedString(text) | ast::Value::EscapedStringLiteral(text) => {
                    Some(text.clone())
                }
                ast::Value::Boolean(value) => Some(value.to_string()),
                _ => None,
            },
            _ => None,
        };
        literal.ok_or_else(|| self.wrong(format!("{name} is given as a literal")))
    }
}

/// The one of an option's names that errors call it by.
fn plain_name(name: String) -> String {
    let plain = match &name[..] {
        "delim" | "sep" => "delimiter",
        "nullstr" => "null",
        "dtypes" | "column_types" => "types",
        _ => return name,
    };
    plain.to_owned()
}

/// A literal that is a number, and not negative.
fn whole_number(value: &ast::FunctionArgExpr) -> Option<u64> {
    let ast::FunctionArgExpr::Expr(mut expression) = value.clone() else { return None };
    // By then an integer has been given its type.
    while let ast::Expr::Cast { expr, .. } = expression {
        expression = *expr;
    }
    let ast::Expr::Value(literal) = expression else { return None };
    let ast::Value::Number(number, _) = literal.value else { return None };
    number.parse().ok()
}
