//! Files as tables: `FROM 'orders.parquet'` and `FROM read_csv('orders*.csv', delimiter => ';')`. All readers also accept lists
//! of files, and return the name of each row's file ([`names`]).
//!
//! A file is examined when a statement is bound, which determines its columns and their types. It is read when the statement
//! runs, and only the columns that the statement uses. CSV and JSON are read by the code of COPY ([`lines`]), Parquet and
//! Arrow by the crates of the Arrow project ([`columns`]). Zone maps of CSV and JSON files are kept for later statements
//! ([`zones`]). A plan records the versions of its files, and is made again when one has changed. The files are the server's,
//! as for COPY.

mod arguments;
mod column_scan;
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

pub use zones::{Totals, ZoneMaps};

use crate::arrow::types::type_of;
use arrow::datatypes::SchemaRef;
use column_scan::ColumnScan;
use columns::Fitted;
use condition::{Condition, Test};
use firn_base::binary::utf8;
use firn_base::sync::{Arc, Mutex};
use firn_base::{Error, Representation, Result, SqlState, TextStyle, Type, TypeId};
use firn_bind::{Attribute, FileArgument, Generated, Relation, RelationKind};
use firn_executor::source::{Request, Scan, SourceColumn, SourceStatistics};
use firn_executor::{Reader, Source};
use firn_load::sniff::Known;
use firn_load::source::is_damage;
use firn_plan::operator::SourceId;
use firn_query::Found;
use firn_vector::Registry;
use line_scan::LineScan;
use lines::Lines;
use names::Names;
use patterns::matching;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use version::FileVersion;
use zones::Reading;

/// The most columns of a file, as of a table of PostgreSQL.
const MOST_COLUMNS: usize = 1600;

/// The estimated bytes of a file for each value.
const VALUE_BYTES: u64 = 8;

/// Whether a function in FROM reads files.
pub(crate) fn is_reader(function: &str) -> bool {
    arguments::reader(function).is_some()
}

/// The context in which files are opened.
pub(crate) struct Opening<'a> {
    /// The functions that conditions call.
    pub registry: &'static Registry,
    /// The text style of values.
    pub style: TextStyle,
    /// The zone maps of files that have been read before.
    pub zones: &'a ZoneMaps,
}

/// Files that a statement reads, as of its binding.
#[derive(Clone, Default)]
pub struct Files(Arc<Mutex<Vec<Arc<FileTable>>>>);

impl Files {
    /// Their versions, by which changes are detected.
    pub fn versions(&self) -> Box<[FileVersions]> {
        self.0.lock().iter().map(|table| table.versions.clone()).collect()
    }

    /// The files that a name in FROM refers to.
    pub(crate) fn named(&self, pattern: &str, opening: &Opening<'_>) -> Result<Found> {
        self.open(Asked::new(vec![pattern.to_owned()], None), opening)
    }

    /// The files that a function in FROM reads, which must be a [reader](is_reader).
    pub(crate) fn read_by(
        &self,
        function: &str,
        arguments: &[FileArgument<'_>],
        opening: &Opening<'_>,
    ) -> Result<Found> {
        let reader = arguments::reader(function).expect("the function reads files");
        self.open(reader.asked(arguments, opening.registry)?, opening)
    }

    /// The table of some files. A statement may name them more than once, but they are examined once.
    fn open(&self, asked: Asked, opening: &Opening<'_>) -> Result<Found> {
        let mut opened = self.0.lock();
        let table = match opened.iter().find(|table| table.asked == asked) {
            Some(table) => table.clone(),
            None => {
                let table = Arc::new(FileTable::open(asked, opening)?);
                opened.push(table.clone());
                table
            }
        };
        Ok(Found { relation: Arc::new(table.relation()), source: Some(table) })
    }
}

/// The files that patterns named at a certain time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileVersions {
    /// The patterns.
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

    /// Whether the patterns still name the same files, and these are unchanged.
    pub fn is_current(&self) -> bool {
        FileVersions::of(&self.patterns).is_ok_and(|now| now == *self)
    }
}

/// The request for files in a statement.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Asked {
    /// Their names, or patterns of these; at least one.
    patterns: Vec<String>,
    /// Their kind, if given.
    kind: Option<Kind>,
    /// The given properties if they are CSV; for JSON only columns, types and the treatment of errors.
    csv: AskedCsv,
    /// The name of the column with the file of each row.
    file_name: Option<String>,
}

impl Asked {
    fn new(patterns: Vec<String>, kind: Option<Kind>) -> Asked {
        Asked { patterns, kind, csv: AskedCsv::default(), file_name: None }
    }
}

/// The given properties of CSV files.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
struct AskedCsv {
    known: Known,
    /// All columns, if they are given.
    columns: Option<Vec<(String, Type)>>,
    /// Types of some columns, by their names; the types of the others are inferred.
    types: Vec<(String, Type)>,
    /// Whether rows that cannot be read are left out.
    ignores_errors: bool,
}

/// The kinds of files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// CSV.
    Csv,
    /// JSON lines.
    Json,
    /// Parquet.
    Parquet,
    /// Arrow's IPC format: files, or streams that were stored.
    Arrow,
}

impl Kind {
    /// The kind of a file: by its first bytes, or else by the suffix of its name.
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

    /// The kind of a file that begins with these bytes, unless it is text.
    pub fn by_bytes(first: &[u8]) -> Option<Kind> {
        match first {
            // A binary byte follows: no text begins so.
            [b'P', b'A', b'R', b'1', next, ..] if next.is_ascii_control() => Some(Kind::Parquet),
            [b'A', b'R', b'R', b'O', b'W', b'1', 0, ..] | [0xff, 0xff, 0xff, 0xff, ..] => Some(Kind::Arrow),
            _ => None,
        }
    }
}

/// Files of one kind, as a table.
struct FileTable {
    versions: FileVersions,
    asked: Asked,
    content: Content,
    /// The file from which they are inferred.
    first: PathBuf,
    /// The columns of the files. The table has one more, at the end, if it returns the file of each row.
    found: Vec<(String, Type)>,
    zones: ZoneMaps,
    registry: &'static Registry,
}

/// The content of files, inferred from the first of them that shows it.
enum Content {
    /// Rows, one after another.
    Lines(Arc<Reading>),
    /// Columns, with the plain Arrow types of their values.
    Columns(Kind, SchemaRef),
}

impl FileTable {
    fn open(asked: Asked, opening: &Opening<'_>) -> Result<FileTable> {
        let Opening { registry, style, zones } = *opening;
        // Before the files are examined: every later change is detected.
        let versions = FileVersions::of(&asked.patterns)?;
        let mut first = &*versions.files.first().expect("a pattern matches some file").path;
        let kind = match asked.kind {
            None => Kind::of(first).map_err(|error| file_error(first, &error))?,
            Some(kind) => kind,
        };
        let (content, found) = match kind {
            Kind::Csv | Kind::Json => {
                let paths = versions.files.iter().map(|file| &*file.path);
                let looked = lines::look(paths, &asked.csv, kind)?;
                first = looked.path;
                let found = looked.columns.clone();
                let reading = Reading {
                    options: looked.options,
                    columns: looked.columns,
                    is_by_place: asked.csv.columns.is_some(),
                    style,
                    chunk_bytes: zones.chunk_bytes(),
                };
                (Content::Lines(Arc::new(reading)), found)
            }
            Kind::Parquet | Kind::Arrow => {
                let file = columns::open(first, kind)?;
                let schema = columns::schema(&*file);
                let ty = |plain| type_of(plain).expect("the types of a file's columns are plain");
                let found = schema.fields().iter().map(|field| (field.name().clone(), ty(field.data_type())));
                let found = found.collect();
                (Content::Columns(kind, schema), found)
            }
        };
        if found.is_empty() {
            return Err(no_columns(first, "it has none"));
        }
        for (name, _) in &found {
            utf8(name.as_bytes()).map_err(|error| {
                error.with_context(format!("file \"{}\", name of a column", first.display()))
            })?;
        }
        if let Some(name) = &asked.file_name
            && found.iter().any(|(column, _)| column == name)
        {
            return Err(named_twice(first, name));
        }
        let columns = found.len() + usize::from(asked.file_name.is_some());
        if columns > MOST_COLUMNS {
            let message =
                format!("it seems to have {columns} columns, and tables have at most {MOST_COLUMNS}");
            return Err(no_columns(first, &message));
        }
        let first = first.to_owned();
        Ok(FileTable { versions, asked, content, first, found, zones: zones.clone(), registry })
    }

    /// All columns of the table.
    fn all(&self) -> impl Iterator<Item = (&str, Type)> {
        let found = self.found.iter().map(|(name, ty)| (name.as_str(), *ty));
        found.chain(self.asked.file_name.iter().map(|name| (name.as_str(), Type::new(TypeId::TEXT))))
    }

    /// The table for the binder.
    fn relation(&self) -> Relation {
        let attribute = |(number, (name, ty)): (i16, (&str, Type))| Attribute {
            number,
            name: name.into(),
            ty,
            not_null: false,
            default: None,
            generated: Generated::No,
        };
        Relation {
            oid: 0,
            schema: "".into(),
            name: table_name(&self.versions.patterns[0]).into(),
            kind: RelationKind::Source(SourceId(0)),
            columns: (1..).zip(self.all()).map(attribute).collect(),
            keys: Vec::new(),
            has_system_columns: false,
        }
    }

    /// The columns whose types were given and not inferred.
    fn given(&self) -> Vec<String> {
        let AskedCsv { columns, types, .. } = &self.asked.csv;
        let given = columns.as_ref().unwrap_or(types);
        given.iter().map(|(name, _)| name.clone()).collect()
    }

    /// The files to read, with the parts of each that may have rows which satisfy a test.
    fn fitted(
        &self,
        kind: Kind,
        schema: &SchemaRef,
        wanted: &[usize],
        paths: &[PathBuf],
        test: Option<&Test>,
    ) -> Result<Vec<(Arc<Fitted>, Vec<usize>)>> {
        let projected = schema.project(wanted).expect("the table has what is wanted of it");
        let projected: SchemaRef = Arc::new(projected);
        let mut tested = Vec::new();
        if let Some(test) = test {
            test.for_each_column(&mut |column| {
                let field = schema.field(column);
                tested.push((column, field.name().clone(), field.data_type().clone()));
            });
            tested.sort_unstable_by_key(|(column, ..)| *column);
            tested.dedup_by_key(|(column, ..)| *column);
        }
        let fitted = |path: &PathBuf| {
            let file = Arc::new(Fitted::open(path, kind, &projected)?);
            let parts = match test {
                Some(test) => file.file().candidates(test, &tested),
                None => file.all(),
            };
            Ok((file, parts))
        };
        paths.iter().map(fitted).collect()
    }
}

impl Source for FileTable {
    fn columns(&self) -> Vec<SourceColumn> {
        let column =
            |(attribute, (_, ty)): (i16, (&str, Type))| SourceColumn { attribute, ty, nullable: true };
        (1..).zip(self.all()).map(column).collect()
    }

    fn statistics(&self) -> SourceStatistics {
        let bytes: u64 = self.versions.files.iter().map(|file| file.bytes).sum();
        SourceStatistics { rows: bytes / VALUE_BYTES / self.found.len() as u64 }
    }

    fn open(&self, request: &Request<'_>, _: Reader<'_>) -> Result<Arc<dyn Scan>> {
        let number = self.found.len();
        let mut wanted: Vec<usize> =
            request.columns.iter().map(|(_, attribute)| *attribute as usize - 1).collect();
        let mut paths: Vec<PathBuf> = self.versions.files.iter().map(|file| file.path.clone()).collect();
        if self.asked.file_name.is_some() {
            names::choose(request, self.registry, number, &mut paths);
        }
        let names = Names::among(&mut wanted, number);
        let place = |attribute: i16| Some(attribute as usize - 1).filter(|column| *column < number);
        let test = Test::new(request, place);
        let representation = |column: &usize| -> Representation {
            self.found[*column].1.representation().expect("columns of files have values")
        };
        let workers = request.workers;
        match &self.content {
            Content::Lines(reading) => {
                let lines = Lines {
                    first: self.first.clone(),
                    paths,
                    reading: reading.clone(),
                    given: self.given(),
                    zones: self.zones.clone(),
                    width: number,
                    wanted: wanted.iter().map(|column| (*column, representation(column))).collect(),
                    names,
                    condition: Condition::new(request, self.registry, place),
                    test,
                };
                Ok(Arc::new(LineScan { lines: Arc::new(lines), workers }))
            }
            Content::Columns(kind, schema) => Ok(Arc::new(ColumnScan {
                files: self.fitted(*kind, schema, &wanted, &paths, test.as_ref())?,
                representations: wanted.iter().map(representation).collect(),
                names,
                workers,
            })),
        }
    }
}

fn no_columns(path: &Path, why: &str) -> Error {
    let message = format!("no columns were found in file \"{}\": {why}", path.display());
    Error::new(SqlState::BAD_COPY_FILE_FORMAT, message)
}

/// The error for a file that has a column with the name of the file name column.
fn named_twice(path: &Path, name: &str) -> Error {
    let message = format!("file \"{}\" already has a column \"{name}\"", path.display());
    Error::new(SqlState::DUPLICATE_COLUMN, message)
        .with_hint("Choose another name for the column of file names: filename => 'file'.")
}

fn file_error(path: &Path, error: &std::io::Error) -> Error {
    read_error("file", path, error)
}

/// The error for a file that cannot be read.
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
        .with_hint("Files in queries are files of the server; a relative path begins in the directory in which it was started.")
}

/// The error for a file that has been written to.
fn changed(path: &Path) -> Error {
    let message = format!("file \"{}\" has changed while it was read", path.display());
    Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message).with_hint("Run the statement again.")
}

/// The name of a table without an alias: that of its file, up to the first point.
fn table_name(pattern: &str) -> String {
    let name = Path::new(pattern).file_name().map_or(pattern.into(), |name| name.to_string_lossy());
    let stem = name.split('.').next().filter(|stem| !stem.is_empty()).unwrap_or(&name);
    stem.to_owned()
}
