//! `firn dump` and `firn restore`: all of a database as a folder of files, and back.
//!
//! The folder holds `schema.sql` (the definitions before the data), `data/` (a file of Arrow or Parquet for each table, which
//! any reader of them can open), `constraints.sql` (the definitions over the data) and `dump.json`. That names the files with their
//! checksums, has one of its own, and is written last: a folder without it is no dump. Dumps are of one snapshot, and restored in
//! one transaction. A restore leaves out only views of files that no longer exist.

// Errors here are shown to a person, so their size in memory does not matter.
#![allow(clippy::result_large_err)]

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use firn_base::clock::{self, Instant};
use firn_base::{Representation, Type, TypeId};
use firn_bench::{short_bytes, short_duration};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use crate::Failure;
use crate::checksum::{Checksum, Summed};
use crate::client::{Client, Report};
use crate::output::say;
use crate::shell::splitter::Splitter;
use crate::target::{self, Host, plain};

/// The file that makes a folder a dump.
const MANIFEST: &str = "dump.json";

const SCHEMA: &str = "schema.sql";
const CONSTRAINTS: &str = "constraints.sql";

/// The text before the checksum in the manifest; the checksum covers everything before it.
const OF_MANIFEST: &str = ",\n  \"checksum\": \"";

/// The version of the layout above.
const VERSION: u64 = 1;

/// How many pieces of data may wait between this process's own database and a server.
const PIECES: usize = 64;

/// The number of rows without columns that are inserted at once.
const ROWS_TOGETHER: u64 = 1000;

/// The errors of a statement that reads a damaged file: it is not of that kind, incomplete, or has other columns than were written.
const DAMAGED: [&str; 3] = ["22P04", "22021", "42703"];

/// Arguments of `firn dump`.
#[derive(clap::Args, Debug)]
pub struct DumpOptions {
    /// A database directory, or a server as postgres://user@host:port/database.
    target: String,
    /// Folder for the dump, which must be empty or not exist.
    folder: PathBuf,
    /// The format of the rows.
    #[arg(long, default_value = "arrow")]
    format: Format,
    /// The compression of files: none, lz4 or zstd for Arrow; none, snappy, gzip, lz4 or zstd for Parquet.
    #[arg(long, value_name = "NAME")]
    compression: Option<String>,
    /// Only the definitions, no rows.
    #[arg(long)]
    schema_only: bool,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum Format {
    Arrow,
    Parquet,
}

impl Format {
    fn name(self) -> &'static str {
        match self {
            Format::Arrow => "arrow",
            Format::Parquet => "parquet",
        }
    }
}

/// Arguments of `firn restore`.
#[derive(clap::Args, Debug)]
pub struct RestoreOptions {
    /// A folder that `firn dump` has written.
    folder: PathBuf,
    /// A database directory, or a server as postgres://user@host:port/database. No object of the dump may exist there.
    target: String,
}

/// Writes a whole database to a folder.
pub fn dump(options: DumpOptions) -> Result<(), Failure> {
    if target::is_new_directory(&options.target) && !options.target.contains("://") {
        return Err(Failure::usage(format!("there is no database in \"{}\"", options.target)));
    }
    let began = clock::now();
    let data = options.folder.join("data");
    if options.folder.read_dir().is_ok_and(|mut files| files.next().is_some()) {
        return Err(Failure::usage(format!("\"{}\" is not empty", options.folder.display())));
    }
    let (client, host) = target::connect(Some(&options.target))?;
    fs::create_dir_all(&data).map_err(|error| cannot(&data, "make", &error))?;
    // The server may run in another directory.
    let folder = options.folder.canonicalize().map_err(|error| cannot(&options.folder, "find", &error))?;
    let counts = Dump { client, is_here: host.is_some(), folder, options: &options }.run()?;
    host.map_or(Ok(()), Host::close_at_end)?;
    counts.say("dumped", &options.folder, began);
    Ok(())
}

/// The totals of a dump or restore.
#[derive(Default)]
struct Counts {
    tables: usize,
    rows: u64,
    bytes: u64,
}

impl Counts {
    fn say(&self, done: &str, folder: &Path, began: Instant) {
        let Counts { tables, rows, bytes } = self;
        let (bytes, time) = (short_bytes(*bytes), short_duration(began.elapsed()));
        // The command has succeeded, whether or not this can be printed.
        let _ = say!("{done} {tables} tables, {rows} rows, {bytes} in {time}: {}", folder.display());
    }
}

struct Dump<'o> {
    client: Client,
    /// Whether the database is in this process, which writes files itself.
    is_here: bool,
    folder: PathBuf,
    options: &'o DumpOptions,
}

/// A statement of the script that creates the database.
struct Step {
    section: String,
    kind: String,
    name: String,
    statement: String,
}

impl Dump<'_> {
    fn run(mut self) -> Result<Counts, Failure> {
        self.client.rows("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").map_err(reported)?;
        let (_, rows) = self
            .client
            .rows(
                "SELECT section, kind, schemaname || '.' || relname, statement FROM pg_catalog.firn_dump ORDER BY position",
            )
            .map_err(reported)?;
        let steps: Vec<Step> = rows
            .into_iter()
            .map(|row| {
                let mut cells = row.into_iter().map(Option::unwrap_or_default);
                let mut next = || cells.next().unwrap_or_default();
                Step { section: next(), kind: next(), name: next(), statement: next() }
            })
            .collect();
        let section = |name: &str| steps.iter().filter(move |step| step.section == name).collect::<Vec<_>>();
        let (schema, constraints) = (section("pre-data"), section("post-data"));
        let (tables, sequences): (Vec<_>, Vec<_>) =
            section("data").into_iter().partition(|step| step.kind == "table");
        let schema = self.write_script(SCHEMA, &schema)?;
        // Sequences are set to their values once the rows are there.
        let constraints = self.write_script(CONSTRAINTS, &[sequences, constraints].concat())?;
        let mut counts = Counts { tables: tables.len(), ..Counts::default() };
        let mut files = Vec::new();
        if !self.options.schema_only {
            let bar = bar(tables.len());
            for (number, step) in tables.iter().enumerate() {
                bar.set_message(step.name.clone());
                let table =
                    step.statement.strip_prefix("COPY ").and_then(|rest| rest.strip_suffix(" FROM STDIN"));
                let table = table.ok_or_else(|| {
                    Failure::new("the server's description of its data has an unknown form")
                })?;
                if !table.ends_with(')') {
                    // It has no columns, which a file of rows must have.
                    let rows = self.count(table)?;
                    counts.rows += rows;
                    files.push(json!({ "table": step.name, "copy": table, "rows": rows }));
                    bar.inc(1);
                    continue;
                }
                let file = format!("data/{}.{}", number + 1, self.options.format.name());
                let path = self.folder.join(&file);
                let (rows, checksum) = self.write_table(table, &path)?;
                counts.rows += rows;
                counts.bytes += checksum.bytes();
                let is = checksum.to_json();
                files.push(
                    json!({ "table": step.name, "copy": table, "file": file, "rows": rows, "checksum": is }),
                );
                bar.inc(1);
            }
            bar.finish_and_clear();
        }
        self.client.rows("COMMIT").map_err(reported)?;
        let manifest = json!({
            "version": VERSION,
            "firn": env!("CARGO_PKG_VERSION"),
            "format": self.options.format.name(),
            "scripts": { SCHEMA: schema.to_json(), CONSTRAINTS: constraints.to_json() },
            "tables": files,
        });
        let text = serde_json::to_string_pretty(&manifest).map_err(Failure::new)?;
        let text = text.strip_suffix("\n}").expect("an object that is not empty ends so");
        let checksum = Checksum::of(text.as_bytes()).digits();
        let text = format!("{text}{OF_MANIFEST}{checksum}\"\n}}\n");
        self.write_file(&self.folder.join(MANIFEST), |file| file.write_all(text.as_bytes()))?;
        drop(self.client);
        Ok(counts)
    }

    fn write_script(&self, name: &str, steps: &[&Step]) -> Result<Checksum, Failure> {
        let script: String = steps.iter().map(|step| format!("{};\n", step.statement)).collect();
        self.write_file(&self.folder.join(name), |file| file.write_all(script.as_bytes()))?;
        Ok(Checksum::of(script.as_bytes()))
    }

    /// Writes a file durably, and its directory entry.
    fn write_file(
        &self,
        path: &Path,
        write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
    ) -> Result<(), Failure> {
        let written = || {
            let mut file = BufWriter::new(File::create_new(path)?);
            write(&mut file)?;
            file.into_inner()?.sync_all()?;
            File::open(&self.folder)?.sync_all()
        };
        written().map_err(|error| cannot(path, "write", &error))
    }

    /// How many rows a table has.
    fn count(&mut self, table: &str) -> Result<u64, Failure> {
        let (_, rows) = self.client.rows(&format!("SELECT count(*) FROM {table}")).map_err(reported)?;
        let count = rows.first().and_then(|row| row.first()?.as_ref()?.parse().ok());
        count.ok_or_else(|| Failure::new(format!("the server does not count the rows of {table}")))
    }

    /// The source for COPY that changes no value of a table, which is named as in COPY. Arrow has no type for numerics of any
    /// scale and for arrays of any dimensions, so these are written as their texts.
    fn exact(&mut self, table: &str) -> Result<String, Failure> {
        let name = &table[..name_length(table)];
        let sql = format!(
            "SELECT pg_catalog.quote_ident(attname), atttypid::int8, atttypmod FROM pg_catalog.pg_attribute \
             WHERE attrelid = {}::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum",
            literal(name)
        );
        let (_, rows) = self.client.rows(&sql).map_err(reported)?;
        let mut has_texts = false;
        let mut columns = Vec::with_capacity(rows.len());
        for row in rows {
            let [Some(column), Some(oid), Some(modifier)] = &row[..] else {
                return Err(Failure::new(format!("the server does not describe the columns of {name}")));
            };
            let number =
                |text: &str| Failure::new(format!("the server describes a column of {name} by {text}"));
            let oid = oid.parse().map_err(|_| number(oid))?;
            let modifier = modifier.parse().map_err(|_| number(modifier))?;
            let ty = Type::new(TypeId(oid)).with_modifier(modifier);
            let is_text =
                matches!(ty.representation(), Some(Representation::Numeric | Representation::List(_)));
            has_texts |= is_text;
            columns.push(if is_text { format!("{column}::text AS {column}") } else { column.clone() });
        }
        Ok(match has_texts {
            true => format!("(SELECT {} FROM {name})", columns.join(", ")),
            false => table.to_owned(),
        })
    }

    /// Writes the rows of a table, which is named as in COPY. Returns how many there are, and the checksum of the file.
    fn write_table(&mut self, table: &str, path: &Path) -> Result<(u64, Checksum), Failure> {
        let compression = self.options.compression.as_ref();
        let compression =
            compression.map(|name| format!(", COMPRESSION {}", literal(name))).unwrap_or_default();
        let options = format!("(FORMAT {}{compression})", self.options.format.name());
        let table = &self.exact(table)?;
        if self.is_here {
            let place = literal(text_of(path)?);
            let copy = format!("COPY {table} TO {place} {options}");
            let rows = self.client.copy_in(&copy, &mut || Ok(None)).map_err(reported)?;
            // It has just been written, so most of it is still in the page cache.
            let checksum = Checksum::of_file(path).map_err(|error| cannot(path, "read", &error))?;
            return Ok((rows, checksum));
        }
        let mut rows = Ok(0);
        let client = &mut self.client;
        let sql = format!("COPY {table} TO STDOUT {options}");
        let mut written = || {
            let mut file = Summed::new(BufWriter::with_capacity(1 << 20, File::create_new(path)?));
            rows = client.copy_out(&sql, &mut |data| file.write_all(data));
            let checksum = file.checksum;
            file.into_inner().into_inner()?.sync_all()?;
            Ok(checksum)
        };
        let checksum = written().map_err(|error: io::Error| cannot(path, "write", &error))?;
        Ok((rows.map_err(reported)?, checksum))
    }
}

/// Restores a dump into a database.
pub fn restore(options: RestoreOptions) -> Result<(), Failure> {
    let began = clock::now();
    let folder = options.folder.canonicalize().map_err(|error| cannot(&options.folder, "find", &error))?;
    let manifest = Manifest::read(&folder)?;
    let script = |name: &str| {
        let path = folder.join(name);
        let script = fs::read(&path).map_err(|error| not_there(&path, &error))?;
        if let Some((_, written)) = manifest.scripts.iter().find(|(script, _)| script == name) {
            is_whole(name, Checksum::of(&script), *written)?;
        }
        String::from_utf8(script).map_err(|_| Failure::data(format!("{name} is damaged: it is not UTF-8")))
    };
    // Before the database is created.
    let (schema, constraints) = (script(SCHEMA)?, script(CONSTRAINTS)?);
    let (client, host) = target::connect(Some(&options.target))?;
    let restore = Restore { client, is_here: host.is_some(), folder };
    let (counts, left_out) = restore.run(&schema, &manifest, &constraints)?;
    host.map_or(Ok(()), Host::close_at_end)?;
    counts.say("restored", &options.folder, began);
    if left_out.is_empty() {
        return Ok(());
    }
    let mut message = "everything was restored except these views, which could not be created:".to_owned();
    for LeftOut { statement, why } in left_out {
        message.push_str(&format!("\n\n{statement};\n{why}"));
    }
    Err(Failure::new(message))
}

/// A view that a restore has left out.
struct LeftOut {
    /// The statement that would have created it.
    statement: String,
    why: String,
}

struct Manifest {
    format: String,
    /// The checksums of the scripts; none in older dumps.
    scripts: Vec<(String, Checksum)>,
    tables: Vec<TableFile>,
}

struct TableFile {
    name: String,
    /// The table and its columns, in the syntax of COPY.
    table: String,
    /// `None` for a table without columns.
    file: Option<String>,
    /// The checksum of the file; `None` in older dumps.
    checksum: Option<Checksum>,
    rows: u64,
}

impl Manifest {
    fn read(folder: &Path) -> Result<Manifest, Failure> {
        let path = folder.join(MANIFEST);
        let text = fs::read(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                let what = format!("\"{}\" is not a dump, or was not finished", folder.display());
                Failure::data(format!("{what}: it has no {MANIFEST}"))
            }
            _ => cannot(&path, "read", &error),
        })?;
        let wrong = |what: &str| Failure::data(format!("{}: {what}", path.display()));
        let value: Value = serde_json::from_slice(&text).map_err(|error| wrong(&error.to_string()))?;
        match value["version"].as_u64() {
            Some(VERSION) => {}
            Some(other) => {
                return Err(wrong(&format!("it has version {other}, this program reads {VERSION}")));
            }
            None => return Err(wrong("it has no version")),
        }
        // Older dumps have no checksums at all.
        if value.get("checksum").is_some() {
            let place = text.windows(OF_MANIFEST.len()).rposition(|bytes| bytes == OF_MANIFEST.as_bytes());
            let is = place.map(|place| Checksum::of(&text[..place]).digits());
            if is.as_deref() != value["checksum"].as_str() {
                return Err(wrong("it is damaged: its checksum differs from the one that was written"));
            }
        } else if value.get("scripts").is_some() {
            return Err(wrong("it is damaged: it has checksums of other files, but not its own"));
        }
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let checksum = |value: Option<&Value>| match value {
            Some(value) => Checksum::from_json(value).map(Some),
            None => Some(None),
        };
        let table = |table: &Value| {
            let (name, file) = (text(&table["table"])?, table.get("file").map(text));
            let file = match file {
                Some(file) => Some(file?),
                None => None,
            };
            let (table, rows, checksum) =
                (&table["copy"], table["rows"].as_u64()?, checksum(table.get("checksum"))?);
            Some(TableFile { name, table: text(table)?, file, checksum, rows })
        };
        let script = |(name, value): (&String, &Value)| Some((name.clone(), Checksum::from_json(value)?));
        let all = || {
            let tables = value["tables"].as_array()?.iter().map(table).collect::<Option<Vec<_>>>()?;
            let scripts = match value.get("scripts") {
                Some(scripts) => scripts.as_object()?.iter().map(script).collect::<Option<Vec<_>>>()?,
                None => Vec::new(),
            };
            Some(Manifest { format: text(&value["format"])?, scripts, tables })
        };
        all().ok_or_else(|| wrong("a field is missing, or has the wrong type"))
    }
}

struct Restore {
    client: Client,
    /// Whether the database is in this process, which reads files itself.
    is_here: bool,
    folder: PathBuf,
}

impl Restore {
    fn run(
        mut self,
        schema: &str,
        manifest: &Manifest,
        constraints: &str,
    ) -> Result<(Counts, Vec<LeftOut>), Failure> {
        let mut counts = Counts { tables: manifest.tables.len(), ..Counts::default() };
        let bar = bar(manifest.tables.len());
        // Notices about what another program's dump left out are not needed, and nothing is visible before the end.
        // Literals of the schema are in the default style.
        let settings = "SET client_min_messages = warning; SET datestyle = 'ISO, MDY'; SET intervalstyle = postgres; SET timezone = 'UTC'";
        self.client.rows(&format!("{settings}; BEGIN")).map_err(reported)?;
        self.client.rows(schema).map_err(|report| in_file(SCHEMA, report))?;
        for table in &manifest.tables {
            bar.set_message(table.name.clone());
            let Some(file) = &table.file else {
                self.add_rows(table)?;
                counts.rows += table.rows;
                bar.inc(1);
                continue;
            };
            let path = self.folder.join(file);
            counts.bytes += fs::metadata(&path).map_err(|error| not_there(&path, &error))?.len();
            // Before the file is read: a changed value may be as valid as the one that was written.
            if let Some(written) = table.checksum {
                let checksum = Checksum::of_file(&path).map_err(|error| cannot(&path, "read", &error))?;
                is_whole(file, checksum, written)?;
            }
            let rows = self.read_table(table, file, &path, &manifest.format)?;
            if rows != table.rows {
                let (name, expected) = (&table.name, table.rows);
                return Err(Failure::data(format!(
                    "{name} has {expected} rows in the dump, but {file} has {rows}"
                )));
            }
            counts.rows += rows;
            bar.inc(1);
        }
        bar.finish_and_clear();
        let left_out = self.put_constraints(constraints)?;
        self.client.rows("COMMIT").map_err(reported)?;
        drop(self.client);
        Ok((counts, left_out))
    }

    /// Runs the statements over the data, except for views of files that cannot be read here, and views of those.
    fn put_constraints(&mut self, constraints: &str) -> Result<Vec<LeftOut>, Failure> {
        let mut left_out: Vec<LeftOut> = Vec::new();
        let mut splitter = Splitter::default();
        for line in constraints.split('\n') {
            splitter.push(line);
            while let Some(statement) = splitter.next_statement().map(|statement| statement.sql) {
                let is_view = statement.starts_with("CREATE VIEW ");
                let script = match is_view {
                    true => format!("SAVEPOINT before_view; {statement}; RELEASE SAVEPOINT before_view"),
                    false => statement.clone(),
                };
                let Err(report) = self.client.rows(&script) else { continue };
                if !is_view {
                    return Err(in_file(CONSTRAINTS, report));
                }
                self.client.rows("ROLLBACK TO SAVEPOINT before_view").map_err(reported)?;
                left_out.push(LeftOut { statement, why: plain(&report) });
            }
        }
        Ok(left_out)
    }

    /// Adds as many rows as a table without columns had.
    fn add_rows(&mut self, table: &TableFile) -> Result<(), Failure> {
        let mut rest = table.rows;
        while rest > 0 {
            let together = rest.min(ROWS_TOGETHER);
            let insert = format!("INSERT INTO {} DEFAULT VALUES;", table.table);
            self.client.rows(&insert.repeat(together as usize)).map_err(reported)?;
            rest -= together;
        }
        Ok(())
    }

    fn read_table(
        &mut self,
        table: &TableFile,
        file: &str,
        path: &Path,
        format: &str,
    ) -> Result<u64, Failure> {
        let place = literal(text_of(path)?);
        let in_file = |report: Report| match DAMAGED.contains(&&*report.code) {
            true => Failure::data(described(file, &report)),
            false => in_file(file, report),
        };
        if self.is_here {
            let sql = format!("COPY {} FROM {place} (FORMAT {})", table.table, literal(format));
            return self.client.copy_in(&sql, &mut || Ok(None)).map_err(in_file);
        }
        // A server accepts streams only: a database in this process converts the file to one.
        let (sender, pieces) = std::sync::mpsc::sync_channel(PIECES);
        let read = format!("COPY (SELECT * FROM read_{format}({place})) TO STDOUT (FORMAT arrow)");
        let write = format!("COPY {} FROM STDIN (FORMAT arrow)", table.table);
        std::thread::scope(|scope| {
            let reader = scope.spawn(move || {
                let (mut client, host) = target::connect(None)?;
                let gone = |_| io::Error::from(io::ErrorKind::BrokenPipe);
                let send = |data: &[u8]| sender.send(Ok(data.to_vec())).map_err(gone);
                if let Err(report) = client.copy_out(&read, &mut { send }) {
                    let _ = sender.send(Err(report)); // If this fails, the receiver has its own error.
                }
                drop(client);
                host.map_or(Ok(()), Host::close)
            });
            let mut give = || pieces.recv().map_or(Ok(None), |piece| piece.map(Some));
            let rows = self.client.copy_in(&write, &mut give);
            drop(pieces);
            let read = reader.join().expect("the thread does not panic");
            let rows = rows.map_err(in_file)?;
            read.map(|()| rows)
        })
    }
}

fn bar(tables: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} tables {elapsed} {msg}");
    ProgressBar::new(tables as u64).with_style(style.expect("the template is well formed"))
}

/// The length of the name at the beginning of a text: it ends at a space outside of quotes.
fn name_length(text: &str) -> usize {
    let mut is_quoted = false;
    let end = text.find(|character| {
        is_quoted ^= character == '"';
        character == ' ' && !is_quoted
    });
    end.unwrap_or(text.len())
}

fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn text_of(path: &Path) -> Result<&str, Failure> {
    path.to_str().ok_or_else(|| Failure::usage(format!("\"{}\" is not UTF-8", path.display())))
}

fn cannot(path: &Path, what: &str, error: &io::Error) -> Failure {
    Failure::new(format!("cannot {what} \"{}\": {error}", path.display()))
}

fn reported(report: Report) -> Failure {
    Failure::new(plain(&report))
}

fn in_file(file: &str, report: Report) -> Failure {
    Failure::new(described(file, &report))
}

fn described(file: &str, report: &Report) -> String {
    let context = report.context.as_ref().map(|context| format!("\nCONTEXT:  {context}")).unwrap_or_default();
    format!("{file}: {}{context}", plain(report))
}

/// Checks that a file is as it was written.
fn is_whole(file: &str, is: Checksum, written: Checksum) -> Result<(), Failure> {
    match is.difference(written) {
        None => Ok(()),
        Some(difference) => {
            Err(Failure::data(format!("{file} is damaged: {difference}. Nothing was restored")))
        }
    }
}

/// The error for a dump that lacks a file.
fn not_there(path: &Path, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::NotFound => Failure::data(format!("the dump lacks \"{}\"", path.display())),
        _ => cannot(path, "read", error),
    }
}
