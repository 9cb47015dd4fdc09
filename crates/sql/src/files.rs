//! Files as tables: `FROM 'orders.csv'` and `FROM read_csv('orders*.csv', delimiter => ';')`.
//!
//! A file is looked at when a statement is bound, which tells its columns and their types, and read when the statement
//! runs, of each record only the columns that the statement asks for. So a plan knows what its files looked like, and is
//! made anew when one has changed since. The files are the server's, as those of COPY are.

use async_trait::async_trait;
use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::TableReference;
use datafusion::datasource::provider_as_source;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion::logical_expr::{Expr, LogicalPlanBuilder, TableType};
use datafusion::physical_plan::stream::RecordBatchReceiverStreamBuilder;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use datafusion::physical_plan::{ExecutionPlan, SendableRecordBatchStream};
use datafusion::sql::sqlparser::ast;
use firn_base::sync::{Arc, Mutex};
use firn_base::{Error, Result, SqlState, TimeZoneSetting};
use firn_exec::error::to_datafusion;
use firn_load::sniff::{Known, SAMPLE_BYTES, Sniffed, sniff};
use firn_load::{CopyReader, source};
use std::fmt::{self, Debug};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Batches that may wait for who reads them.
const WAITING_BATCHES: usize = 4;

/// Files have as many columns as tables, as in PostgreSQL.
const MOST_COLUMNS: usize = 1600;

/// The function that reads files.
const READ_CSV: &str = "read_csv";

/// Files that a statement reads, as they were when it was bound.
#[derive(Clone, Default, Debug)]
pub struct Files(Arc<Mutex<Vec<Arc<FileTable>>>>);

impl Files {
    /// What tells whether they are still what they were.
    pub fn versions(&self) -> Box<[FileVersions]> {
        self.0.lock().iter().map(|table| table.versions.clone()).collect()
    }

    /// The table that files make. A statement is bound more than once, and they are looked at once.
    fn open(&self, pattern: &str, known: &Known, zone: TimeZoneSetting) -> Result<Arc<FileTable>> {
        let mut opened = self.0.lock();
        if let Some(table) =
            opened.iter().find(|table| table.versions.pattern == pattern && table.known == *known)
        {
            return Ok(table.clone());
        }
        let table = Arc::new(FileTable::open(pattern, known, zone)?);
        opened.push(table.clone());
        Ok(table)
    }
}

/// The files that a pattern named at some time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileVersions {
    /// How they were asked for.
    pattern: String,
    files: Vec<FileVersion>,
}

impl FileVersions {
    fn of(pattern: &str) -> Result<FileVersions> {
        let version =
            |path: PathBuf| FileVersion::of(path.clone()).map_err(|error| file_error(&path, &error));
        let files = matching(pattern)?.into_iter().map(version).collect::<Result<_>>()?;
        Ok(FileVersions { pattern: pattern.to_owned(), files })
    }

    /// Whether it names the same, and they are as they were.
    pub fn is_current(&self) -> bool {
        FileVersions::of(&self.pattern).is_ok_and(|now| now == *self)
    }
}

/// A file as it was at some time.
#[derive(Clone, PartialEq, Eq, Debug)]
struct FileVersion {
    path: PathBuf,
    bytes: u64,
    modified: Option<SystemTime>,
}

impl FileVersion {
    fn of(path: PathBuf) -> std::io::Result<FileVersion> {
        let metadata = std::fs::metadata(&path)?;
        if !metadata.is_file() {
            // What is read from a pipe to look at it is gone.
            return Err(std::io::Error::new(std::io::ErrorKind::IsADirectory, "it is no regular file"));
        }
        Ok(FileVersion { path, bytes: metadata.len(), modified: metadata.modified().ok() })
    }
}

/// CSV files of one kind, as a table.
pub struct FileTable {
    versions: FileVersions,
    known: Known,
    sniffed: Sniffed,
    schema: SchemaRef,
    zone: TimeZoneSetting,
}

impl Debug for FileTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileTable({:?})", self.versions.pattern)
    }
}

impl FileTable {
    fn open(pattern: &str, known: &Known, zone: TimeZoneSetting) -> Result<FileTable> {
        // Before they are looked at: what changes from now on is found to have changed.
        let versions = FileVersions::of(pattern)?;
        let first = &versions.files.first().expect("a pattern matches some file").path;
        let failed = |error| file_error(first, &error);
        let mut sample = Vec::new();
        let mut source = open_text(first).map_err(failed)?.take(SAMPLE_BYTES as u64);
        source.read_to_end(&mut sample).map_err(failed)?;
        let sniffed = sniff(&sample, known);
        sniffed.options.check()?;
        let wrong = |message: &str| {
            let message = format!("file \"{}\" tells no columns: {message}", first.display());
            Err(Error::new(SqlState::BAD_COPY_FILE_FORMAT, message))
        };
        match sniffed.columns.len() {
            0 if sample.is_empty() => return wrong("it is empty"),
            0 => return wrong("no record ends in its first megabyte"),
            1..=MOST_COLUMNS => {}
            columns => {
                return wrong(&format!("it seems to have {columns}, and tables have at most {MOST_COLUMNS}"));
            }
        }
        let fields = sniffed.columns.iter().map(|(name, ty)| firn_exec::types::field(name, *ty));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        Ok(FileTable { versions, known: known.clone(), sniffed, schema, zone })
    }
}

/// The files that a pattern names, in the order of their names; 58P01 if there are none.
fn matching(pattern: &str) -> Result<Vec<PathBuf>> {
    if !pattern.contains(['*', '?', '[']) || Path::new(pattern).exists() {
        return Ok(vec![pattern.into()]);
    }
    let paths = glob::glob(pattern).map_err(|error| {
        Error::new(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("\"{pattern}\" is no pattern of files: {error}"),
        )
    })?;
    let mut files: Vec<PathBuf> =
        paths.filter_map(std::result::Result::ok).filter(|path| path.is_file()).collect();
    files.sort();
    match files.is_empty() {
        true => Err(Error::new(SqlState::UNDEFINED_FILE, format!("no files match \"{pattern}\""))),
        false => Ok(files),
    }
}

/// The bytes of a file, without the mark that some programs put before UTF-8.
fn open_text(path: &Path) -> std::io::Result<source::Source> {
    const MARK: &[u8] = b"\xef\xbb\xbf";
    let mut file = source::open(path)?;
    let mut begin = Vec::with_capacity(MARK.len());
    (&mut file).take(MARK.len() as u64).read_to_end(&mut begin)?;
    Ok(match begin == MARK {
        true => file,
        false => Box::new(std::io::Cursor::new(begin).chain(file)),
    })
}

fn file_error(path: &Path, error: &std::io::Error) -> Error {
    let state = match error.kind() {
        std::io::ErrorKind::NotFound => SqlState::UNDEFINED_FILE,
        std::io::ErrorKind::PermissionDenied => SqlState::INSUFFICIENT_PRIVILEGE,
        std::io::ErrorKind::IsADirectory => SqlState::WRONG_OBJECT_TYPE,
        _ => SqlState::IO_ERROR,
    };
    Error::new(state, format!("could not read file \"{}\": {error}", path.display()))
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

    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        limit: Option<usize>,
    ) -> datafusion::common::Result<Arc<dyn ExecutionPlan>> {
        let wanted = projection.cloned().unwrap_or_else(|| (0..self.schema.fields().len()).collect());
        let schema = Arc::new(self.schema.project(&wanted)?);
        let stream = FileStream {
            paths: self.versions.files.iter().map(|file| file.path.clone()).collect(),
            sniffed: self.sniffed.clone(),
            wanted,
            schema: schema.clone(),
            zone: self.zone,
        };
        let exec = StreamingTableExec::try_new(schema, vec![Arc::new(stream)], None, [], false, limit)?;
        Ok(Arc::new(exec))
    }
}

/// The rows of files, one after another.
#[derive(Clone)]
struct FileStream {
    paths: Vec<PathBuf>,
    sniffed: Sniffed,
    /// The columns to read.
    wanted: Vec<usize>,
    schema: SchemaRef,
    zone: TimeZoneSetting,
}

impl Debug for FileStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileStream({:?})", self.paths)
    }
}

impl PartitionStream for FileStream {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let mut builder = RecordBatchReceiverStreamBuilder::new(self.schema.clone(), WAITING_BATCHES);
        let (stream, rows) = (self.clone(), builder.tx());
        let threads = context.session_config().target_partitions();
        builder.spawn_blocking(move || {
            let gone = || Error::new(SqlState::QUERY_CANCELED, "nobody wants the rows any more");
            let mut send = |batch| rows.blocking_send(Ok(batch)).map_err(|_| gone());
            match stream.read(threads, &mut send) {
                // Whoever has gone does not hear of it either.
                Err(error) if !rows.is_closed() => Err(to_datafusion(error)),
                _ => Ok(()),
            }
        });
        builder.build()
    }
}

impl FileStream {
    fn read(&self, threads: usize, sink: &mut dyn FnMut(RecordBatch) -> Result<()>) -> Result<()> {
        for path in &self.paths {
            let failed = |error: &std::io::Error| file_error(path, error);
            let place = format!("file \"{}\"", path.display());
            let Sniffed { options, columns } = self.sniffed.clone();
            let mut reader = CopyReader::new(&place, columns, options, self.zone)?;
            reader.project(self.wanted.clone());
            let mut file = open_text(path).map_err(|error| failed(&error))?;
            let read = reader.read_file(&mut *file, &failed, threads, &mut |read| {
                if read.rows == 0 {
                    return Ok(());
                }
                let options = RecordBatchOptions::new().with_row_count(Some(read.rows));
                let batch = RecordBatch::try_new_with_options(self.schema.clone(), read.columns, &options);
                sink(batch.map_err(|error| firn_exec::error::from_datafusion(error.into()))?)
            });
            read.map_err(|error| self.explained(error))?;
        }
        Ok(())
    }

    /// An error in a file, of which only the beginning was looked at.
    fn explained(&self, error: Error) -> Error {
        match error.state() {
            SqlState::INVALID_TEXT_REPRESENTATION
            | SqlState::NUMERIC_VALUE_OUT_OF_RANGE
            | SqlState::INVALID_DATETIME_FORMAT
            | SqlState::DATETIME_FIELD_OVERFLOW
                if error.hint().is_none() => error.with_hint(
                "The types of columns are told from the file's first megabyte. Where they do not hold for all of it, create \
                 a table and COPY the file into it.",
            ),
            _ => error,
        }
    }
}

/// Plans files in FROM.
#[derive(Debug)]
pub struct FilePlanner {
    /// Where the files that are found gather.
    pub files: Files,
    /// What moments are in that name no zone.
    pub zone: TimeZoneSetting,
}

impl RelationPlanner for FilePlanner {
    fn plan_relation(
        &self,
        relation: ast::TableFactor,
        _: &mut dyn RelationPlannerContext,
    ) -> datafusion::common::Result<RelationPlanning> {
        let ast::TableFactor::Table { name, args, alias, sample, with_ordinality, .. } = &relation else {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        };
        let Some((pattern, known)) = asked(name, args.as_ref()).map_err(to_datafusion)? else {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        };
        if sample.is_some() || *with_ordinality {
            return Err(to_datafusion(Error::unsupported("TABLESAMPLE or WITH ORDINALITY of a file")));
        }
        let table = self.files.open(&pattern, &known, self.zone).map_err(to_datafusion)?;
        let plan = LogicalPlanBuilder::scan(scan_name(&pattern), provider_as_source(table), None)?.build()?;
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, alias.clone()))))
    }
}

/// The files that a relation in FROM stands for, if it stands for files.
fn asked(
    name: &ast::ObjectName,
    arguments: Option<&ast::TableFunctionArgs>,
) -> Result<Option<(String, Known)>> {
    let [ast::ObjectNamePart::Identifier(name)] = name.0.as_slice() else { return Ok(None) };
    match arguments {
        None if is_file(name) => Ok(Some((name.value.clone(), Known::default()))),
        Some(arguments) if name.value.eq_ignore_ascii_case(READ_CSV) => read_csv(&arguments.args).map(Some),
        _ => Ok(None),
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
    let Some((pattern, known)) = asked(name, arguments)? else { return Ok(None) };
    let table = FileTable::open(&pattern, &known, TimeZoneSetting::default())?;
    let names = table.sniffed.columns.into_iter().map(|(name, _)| name).collect();
    Ok(Some((scan_name(&pattern).table().to_owned(), names)))
}

/// What a table without an alias is called: as its file, up to the first point.
fn scan_name(pattern: &str) -> TableReference {
    let name = Path::new(pattern).file_name().map_or(pattern.into(), |name| name.to_string_lossy());
    let stem = name.split('.').next().filter(|stem| !stem.is_empty()).unwrap_or(&name);
    TableReference::bare(stem)
}

/// The arguments of `read_csv`: the file, and by name what is known of it.
fn read_csv(arguments: &[ast::FunctionArg]) -> Result<(String, Known)> {
    let mut pattern = None;
    let mut known = Known::default();
    for argument in arguments {
        match argument {
            ast::FunctionArg::Unnamed(value) if pattern.is_none() => pattern = Some(text("file", value)?),
            ast::FunctionArg::Named { name, arg, .. } => {
                set_known(&mut known, &name.value.to_lowercase(), arg)?;
            }
            // The name is an expression to the parser: `null` is one.
            ast::FunctionArg::ExprNamed { name, arg, .. } => {
                set_known(&mut known, &name.to_string().to_lowercase(), arg)?;
            }
            _ => return Err(wrong_argument("one file is read, and options have names: header => true")),
        }
    }
    let pattern = pattern.ok_or_else(|| wrong_argument("the name of a file is missing"))?;
    Ok((pattern, known))
}

fn wrong_argument(message: impl Into<String>) -> Error {
    Error::new(SqlState::INVALID_PARAMETER_VALUE, format!("{READ_CSV}: {}", message.into())).with_hint(
        "read_csv('file.csv', delimiter => ';', quote => '\"', escape => '\"', null => 'NA', header => true)",
    )
}

fn set_known(known: &mut Known, name: &str, value: &ast::FunctionArgExpr) -> Result<()> {
    let byte = || match text(name, value)?.as_bytes() {
        [byte] if byte.is_ascii() && !matches!(byte, b'\n' | b'\r') => Ok(Some(*byte)),
        _ => Err(wrong_argument(format!("{name} is a single ASCII character"))),
    };
    match name {
        "delimiter" | "delim" | "sep" => known.delimiter = byte()?,
        "quote" => known.quote = byte()?,
        "escape" => known.escape = byte()?,
        "null" | "nullstr" => known.null = Some(text(name, value)?),
        "header" => {
            let given = crate::settings::boolean(&text(name, value)?);
            known.header = Some(given.ok_or_else(|| wrong_argument("header is true or false"))?);
        }
        _ => return Err(wrong_argument(format!("there is no option \"{name}\""))),
    }
    Ok(())
}

/// A literal as text.
fn text(name: &str, value: &ast::FunctionArgExpr) -> Result<String> {
    let literal = match value {
        ast::FunctionArgExpr::Expr(ast::Expr::Value(literal)) => match &literal.value {
            ast::Value::SingleQuotedString(text) | ast::Value::EscapedStringLiteral(text) => {
                Some(text.clone())
            }
            ast::Value::Boolean(value) => Some(value.to_string()),
            _ => None,
        },
        _ => None,
    };
    literal.ok_or_else(|| wrong_argument(format!("{name} is given as a literal")))
}
