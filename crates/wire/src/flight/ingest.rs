//! Bulk ingestion: a stream of Arrow batches becomes rows of a table, all of them or none.
//!
//! The rows are stored by COPY, so that defaults, constraints and foreign keys apply. Columns are matched by
//! name; those that the stream lacks get their defaults. Rows that no column can hold are refused before anything is created.

use arrow_flight::sql::{CommandStatementIngest, TableExistsOption, TableNotExistOption};
use arrow_schema::FieldRef;
use firn_base::{Error, Result, SqlState, Value};
use firn_session::{Connection, Outcome, arrow};
use tokio::sync::mpsc;

use super::incoming::Decoded;
use super::state::CATALOG;
use super::statements::Run;

/// What a client sends, as the statement receives it. A stream that ends without [`Fed::End`] was abandoned.
pub(super) enum Fed {
    /// The schema comes first.
    Next(Decoded),
    End,
}

/// Stores the rows of the stream. Returns how many there were.
pub(super) fn ingest(
    run: &mut Run,
    command: &CommandStatementIngest,
    mut feed: mpsc::Receiver<Fed>,
) -> Result<i64> {
    refuse_what_we_lack(command)?;
    let Some(Fed::Next(Decoded::Schema(schema))) = feed.blocking_recv() else { return Err(given_up()) };
    let table = Table { schema: command.schema.as_deref().unwrap_or(""), name: &command.table };
    let declared = |field: &FieldRef| -> Result<String> {
        Ok(format!("{} {}", quoted(field.name()), arrow::sql_type(field)?))
    };
    let columns: Vec<String> = schema.fields().iter().map(declared).collect::<Result<_>>()?;
    run.atomically(|connection| {
        make_room(connection, &table, command, &columns)?;
        let names: Vec<String> = schema.fields().iter().map(|field| quoted(field.name())).collect();
        let copy = format!("COPY {} ({}) FROM STDIN", table.quoted(), names.join(", "));
        let statement = connection.prepare(&copy)?;
        let Outcome::CopyIn(mut copy) = connection.run(&statement, &[])? else {
            unreachable!("a COPY from the client takes data")
        };
        loop {
            match feed.blocking_recv() {
                Some(Fed::Next(Decoded::Batch(batch))) => copy.write_batch(&batch)?,
                Some(Fed::End) => break,
                Some(Fed::Next(Decoded::Schema(_))) => {
                    return Err(Error::new(SqlState::PROTOCOL_VIOLATION, "a second schema in one stream"));
                }
                None => return Err(given_up()),
            }
        }
        Ok(copy.finish()?.rows.unwrap_or(0) as i64)
    })
}

struct Table<'a> {
    /// Empty if names are to be looked up as usual.
    schema: &'a str,
    name: &'a str,
}

impl Table<'_> {
    fn quoted(&self) -> String {
        match self.schema {
            "" => quoted(self.name),
            schema => format!("{}.{}", quoted(schema), quoted(self.name)),
        }
    }

    fn exists(&self, connection: &mut Connection) -> Result<bool> {
        let found = connection.query_row(
            "SELECT count(*) FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
             WHERE c.relname = $1::text AND c.relkind IN ('r', 'v') \
             AND CASE WHEN $2::text = '' THEN pg_catalog.pg_table_is_visible(c.oid) ELSE n.nspname = $2::text END",
            &[Value::Text(self.name.to_owned()), Value::Text(self.schema.to_owned())],
        )?;
        Ok(found.is_some_and(|row| row != [Value::BigInt(0)]))
    }
}

/// Creates the table, or truncates it, or leaves it, as the client requests.
fn make_room(
    connection: &mut Connection,
    table: &Table<'_>,
    command: &CommandStatementIngest,
    columns: &[String],
) -> Result<()> {
    let (if_not_exist, if_exists) = match &command.table_definition_options {
        Some(options) => (options.if_not_exist(), options.if_exists()),
        None => (TableNotExistOption::Unspecified, TableExistsOption::Unspecified),
    };
    match (table.exists(connection)?, if_exists, if_not_exist) {
        (true, TableExistsOption::Append, _) => Ok(()),
        (true, TableExistsOption::Replace, _) => {
            connection.execute(&format!("DROP TABLE {}", table.quoted()))?;
            create(connection, table, columns)
        }
        (true, TableExistsOption::Fail | TableExistsOption::Unspecified, _) => {
            Err(Error::new(SqlState::DUPLICATE_TABLE, format!("relation \"{}\" already exists", table.name))
                .with_hint("Append to it, or replace it."))
        }
        (false, _, TableNotExistOption::Create) => create(connection, table, columns),
        (false, _, TableNotExistOption::Fail | TableNotExistOption::Unspecified) => {
            Err(Error::new(SqlState::UNDEFINED_TABLE, format!("relation \"{}\" does not exist", table.name))
                .with_hint("Create it, or have it created by the ingestion."))
        }
    }
}

fn create(connection: &mut Connection, table: &Table<'_>, columns: &[String]) -> Result<()> {
    connection.execute(&format!("CREATE TABLE {} ({})", table.quoted(), columns.join(", "))).map(|_| ())
}

fn refuse_what_we_lack(command: &CommandStatementIngest) -> Result<()> {
    if command.temporary {
        return Err(Error::unsupported("ingestion into a temporary table")
            .with_hint("Use a table, and drop it in the end."));
    }
    if let Some(catalog) = command.catalog.as_deref().filter(|catalog| !["", CATALOG].contains(catalog)) {
        return Err(Error::new(
            SqlState::INVALID_CATALOG_NAME,
            format!("database \"{catalog}\" does not exist"),
        ));
    }
    match command.options.keys().next() {
        None => Ok(()),
        Some(option) => Err(Error::unsupported(format!("the ingestion option \"{option}\""))),
    }
}

pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cold]
fn given_up() -> Error {
    Error::new(SqlState::QUERY_CANCELED, "the client cancelled the ingestion")
}
