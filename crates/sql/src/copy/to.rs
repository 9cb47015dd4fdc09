//! COPY TO: the rows of a table or of a query to a file or to a client.

use super::columns_out::{self, ColumnWriter};
use super::from::copy_of;
use super::options::{self, Compression, CopyFormat};
use super::rows_out::{Piece, RowsOut};
use super::{CopiedColumn, Progress, channel, columns};
use crate::names::{Names, Relation};
use crate::parse::Parsed;
use crate::query::Prepared;
use crate::run::RunOptions;
use crate::session_facts::SessionFacts;
use crate::statement::{QualifiedName, quote_ident};
use firn_base::sync::Arc;
use firn_base::{ColumnId, Error, Representation, Result, SqlState, TextStyle};
use firn_load::CopyWriter;
use firn_load::source::Packing;
use firn_query::{KeptBytes, ResultColumn, Stream};
use firn_syntax::tree::{CopySource, CopyTarget, Name, ObjectName, Statement};
use firn_txn::Transaction;
use firn_txn::catalog::TableDef;

/// COPY … TO in progress.
pub struct CopyTo {
    rows: Stream,
    columns: usize,
    writer: Writer,
    format: CopyFormat,
    progress: Arc<Progress>,
}

/// The writer of a format.
enum Writer {
    Rows(RowsOut),
    /// `None` after the end.
    Columns(Option<Box<ColumnWriter>>),
}

impl CopyTo {
    /// Starts the query whose rows are written.
    pub fn new(
        transaction: &Transaction,
        facts: &Arc<SessionFacts>,
        parsed: &Parsed,
        options: &RunOptions,
        style: TextStyle,
    ) -> Result<CopyTo> {
        let prepared = Outgoing::prepare(transaction, facts, parsed, options, style)?;
        if prepared.statement.has_effects() {
            let error = Error::unsupported("COPY of rows that a sub-query locks");
            return Err(error.with_hint("Lock the rows in a separate statement, and copy them afterwards."));
        }
        let rows = prepared.statement.start(transaction, facts, &[], options)?;
        Ok(prepared.with(rows))
    }

    /// Runs a statement that changes or locks rows to its end, and writes its rows: those of RETURNING, or of the query.
    pub fn changed(
        transaction: &mut Transaction,
        facts: &Arc<SessionFacts>,
        parsed: &Parsed,
        options: &RunOptions,
        style: TextStyle,
    ) -> Result<CopyTo> {
        let prepared = Outgoing::prepare(transaction, facts, parsed, options, style)?;
        let rows = prepared.statement.execute(transaction, facts, &[], options)?.rows;
        Ok(prepared.with(rows))
    }

    /// Whether the copied statement changes or locks rows.
    pub fn has_effects(
        transaction: &Transaction,
        facts: &Arc<SessionFacts>,
        parsed: &Parsed,
        options: &RunOptions,
    ) -> Result<bool> {
        match &copy_of(parsed).source {
            CopySource::Table { .. } => Ok(false),
            CopySource::Query(statement) => match &**statement {
                Statement::Query(query) if query.with.is_none() && query.locking.is_empty() => Ok(false),
                Statement::Query(_) => {
                    let query = parsed.inner((**statement).clone());
                    Ok(Prepared::new(&query, &[], transaction, facts, &options.cancel)?.has_effects())
                }
                _ => Ok(true),
            },
        }
    }

    /// Its progress, for other sessions.
    pub fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }

    /// How many columns the data has.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// The format of the data.
    pub fn format(&self) -> CopyFormat {
        self.format
    }

    /// Whether pieces consist of whole rows: those of compressed files and of files of columns do not.
    pub fn has_whole_rows(&self) -> bool {
        matches!(&self.writer, Writer::Rows(rows) if rows.has_whole_rows())
    }

    /// How many rows have been written.
    pub fn rows(&self) -> u64 {
        self.progress.rows()
    }

    /// A place for pieces, on the account of the statement.
    pub fn kept(&self) -> KeptBytes {
        self.rows.kept_bytes()
    }

    /// The next bytes; `None` at the end.
    pub fn next_piece(&mut self) -> Result<Option<Vec<u8>>> {
        loop {
            let piece = match &mut self.writer {
                Writer::Rows(rows) => rows.next(&mut self.rows)?,
                Writer::Columns(writer) => columns_out::next_piece(writer, &mut self.rows)?,
            };
            let Some(Piece { bytes, rows, .. }) = piece else { return Ok(None) };
            self.progress.add_rows(rows as u64);
            if !bytes.is_empty() {
                self.progress.add_bytes(bytes.len() as u64);
                return Ok(Some(bytes));
            }
        }
    }
}

/// A COPY TO before it has its rows.
struct Outgoing {
    statement: Prepared,
    columns: usize,
    writer: Writer,
    format: CopyFormat,
    progress: Arc<Progress>,
}

impl Outgoing {
    fn prepare(
        transaction: &Transaction,
        facts: &Arc<SessionFacts>,
        parsed: &Parsed,
        options: &RunOptions,
        style: TextStyle,
    ) -> Result<Outgoing> {
        let copy = copy_of(parsed);
        let channel = channel(copy)?;
        let mut table = None;
        let query = match &copy.source {
            CopySource::Query(statement) => {
                refuse_without_rows(statement)?;
                parsed.inner((**statement).clone())
            }
            CopySource::Table { name, columns } => {
                let found = Names::new(transaction.catalog(), facts).find(&QualifiedName::from(name));
                if let Some(Relation::Table(found)) = found {
                    table = Some(found);
                }
                table_query(transaction, facts, name, columns)?
            }
        };
        let statement = Prepared::new(&query, &[], transaction, facts, &options.cancel)?;
        let columns = statement.columns().clone();
        let named =
            (0..).zip(&*columns).map(|(place, column)| (ColumnId(place), column.name.clone(), column.ty));
        let named: Vec<CopiedColumn> = named.collect();
        let copy_options = options::options(&copy.options, &named, table.as_deref(), false)?;
        let format = copy_options.format;
        match format {
            CopyFormat::Text | CopyFormat::Csv => {}
            CopyFormat::Binary => refuse_records(&columns)?,
            CopyFormat::Json | CopyFormat::Parquet | CopyFormat::Arrow => refuse_equal_names(&columns)?,
        }
        let writer = match format {
            CopyFormat::Parquet | CopyFormat::Arrow => {
                let is_file = copy.target != CopyTarget::Standard;
                let writer =
                    ColumnWriter::new(&copy_options, &columns, style.zone, is_file, options.threads)?;
                Writer::Columns(Some(Box::new(writer)))
            }
            CopyFormat::Text | CopyFormat::Csv | CopyFormat::Binary | CopyFormat::Json => {
                let packing = match copy_options.compression {
                    Some(Compression::Gzip) => Some(Packing::Gzip),
                    Some(Compression::Zstd) => Some(Packing::Zstd),
                    _ => None,
                };
                let is_binary = format == CopyFormat::Binary;
                let named = columns.iter().map(|column| (column.name.clone(), column.ty)).collect();
                let writer = CopyWriter::new(named, copy_options.rows, style)?;
                Writer::Rows(RowsOut::new(writer, is_binary, packing, options.threads))
            }
        };
        let progress = Arc::new(Progress::new("COPY TO", channel, table.map(|table| table.oid)));
        Ok(Outgoing { statement, columns: columns.len(), writer, format, progress })
    }

    fn with(self, rows: Stream) -> CopyTo {
        let Outgoing { columns, writer, format, progress, .. } = self;
        CopyTo { rows, columns, writer, format, progress }
    }
}

/// 0A000 for a change without RETURNING.
fn refuse_without_rows(statement: &Statement) -> Result<()> {
    let returning = match statement {
        Statement::Insert(insert) => &insert.returning,
        Statement::Update(update) => &update.returning,
        Statement::Delete(delete) => &delete.returning,
        Statement::Merge(merge) => &merge.returning,
        _ => return Ok(()),
    };
    match returning.is_empty() {
        false => Ok(()),
        true => Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, "COPY query must have a RETURNING clause")),
    }
}

/// Files that identify columns by their names need distinct ones.
fn refuse_equal_names(columns: &[ResultColumn]) -> Result<()> {
    let mut seen = std::collections::HashSet::new();
    match columns.iter().find(|column| !seen.insert(&column.name)) {
        None => Ok(()),
        Some(column) => {
            let message = format!("column name \"{}\" appears twice", column.name);
            let error = Error::new(SqlState::DUPLICATE_COLUMN, message);
            Err(error.with_hint("Columns of such a file are identified by their names: rename them with AS."))
        }
    }
}

/// Records have no binary format here.
fn refuse_records(columns: &[ResultColumn]) -> Result<()> {
    fn has_record(representation: Representation) -> bool {
        match representation {
            Representation::Record => true,
            Representation::List(element) => has_record(*element),
            _ => false,
        }
    }
    match columns.iter().find(|column| column.ty.representation().is_none_or(has_record)) {
        None => Ok(()),
        Some(column) => {
            let error =
                Error::unsupported(format!("COPY of rows (column \"{}\") in binary format", column.name));
            Err(error.with_hint("Cast the column to text, or use text or CSV."))
        }
    }
}

/// The query behind COPY table TO.
fn table_query(
    transaction: &Transaction,
    facts: &SessionFacts,
    name: &ObjectName,
    names: &[Name],
) -> Result<Parsed> {
    let found = Names::new(transaction.catalog(), facts).relation(&QualifiedName::from(name))?;
    let table: Arc<TableDef> = match found {
        Relation::Table(table) => table,
        other => {
            let kind = other.kind().word();
            let message = format!("cannot copy from {kind} \"{}\"", name.name.text);
            let error = Error::new(SqlState::WRONG_OBJECT_TYPE, message);
            return Err(error.with_hint("Try the COPY (SELECT ...) TO variant."));
        }
    };
    let list: Vec<String> =
        columns(&table, names)?.iter().map(|(_, name, _)| quote_ident(name).to_string()).collect();
    let schema = &transaction.catalog().schemas[&table.schema].name;
    let text =
        format!("SELECT {} FROM {}.{}", list.join(", "), quote_ident(schema), quote_ident(&table.name));
    Ok(crate::parse::parse_one(&text)?.expect("it is a statement"))
}
