//! The catalog calls: schemas, tables, keys, in the form of Flight SQL.
//!
//! The answers are read from `pg_catalog`, so they agree with what PostgreSQL's clients see. Key columns are found by
//! their numbers. The rows of a call are few, so they are filtered and sorted here.

use std::collections::HashMap;

use arrow_array::builder::{Int32Builder, StringBuilder, UInt8Builder};
use arrow_array::{ArrayRef, RecordBatch};
use arrow_flight::error::FlightError;
use arrow_flight::sql::{
    Command, CommandGetCatalogs, CommandGetCrossReference, CommandGetDbSchemas, CommandGetExportedKeys,
    CommandGetImportedKeys, CommandGetPrimaryKeys, CommandGetTableTypes, CommandGetTables,
};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use firn_base::sync::{Arc, OnceLock};
use firn_base::{Error, Result, SqlState, Value};
use firn_session::Connection;

use super::FlightConfig;
use super::auth::Strings;
use super::batches::{internal, schema_of};
use super::info;
use super::ingest::quoted;
use super::state::CATALOG;

/// The schema of the rows of a catalog call; `None` for other commands.
pub(super) fn schema(command: &Command) -> Option<SchemaRef> {
    Some(match command {
        Command::CommandGetCatalogs(call) => call.into_builder().schema(),
        Command::CommandGetDbSchemas(call) => call.clone().into_builder().schema(),
        Command::CommandGetTables(call) => call.clone().into_builder().schema(),
        Command::CommandGetTableTypes(call) => call.into_builder().schema(),
        Command::CommandGetPrimaryKeys(_) => primary_keys_schema(),
        Command::CommandGetExportedKeys(_)
        | Command::CommandGetImportedKeys(_)
        | Command::CommandGetCrossReference(_) => foreign_keys_schema(),
        Command::CommandGetSqlInfo(call) => call.clone().into_builder(info::sql_info()).schema(),
        Command::CommandGetXdbcTypeInfo(call) => call.into_builder(info::types()).schema(),
        _ => return None,
    })
}

/// The rows of a catalog call.
pub(super) fn answer(
    connection: &mut Connection,
    command: Command,
    config: &FlightConfig,
) -> Result<RecordBatch> {
    let batch = match command {
        Command::CommandGetCatalogs(call) => catalogs(call),
        Command::CommandGetDbSchemas(call) => schemas(connection, call)?,
        Command::CommandGetTables(call) => tables(connection, call)?,
        Command::CommandGetTableTypes(call) => table_types(call),
        Command::CommandGetPrimaryKeys(call) => return primary_keys(connection, &call),
        Command::CommandGetExportedKeys(call) => return exported_keys(connection, &call),
        Command::CommandGetImportedKeys(call) => return imported_keys(connection, &call),
        Command::CommandGetCrossReference(call) => return cross_reference(connection, &call),
        Command::CommandGetSqlInfo(call) => call.into_builder(&info::sql_info_of(config)).build(),
        Command::CommandGetXdbcTypeInfo(call) => call.into_builder(info::types()).build(),
        other => return Err(Error::unsupported(format!("the Flight SQL command {}", other.type_url()))),
    };
    batch.map_err(flight)
}

fn flight(error: FlightError) -> Error {
    match error {
        FlightError::Arrow(error) => internal(error),
        other => Error::new(SqlState::INTERNAL_ERROR, format!("internal error: {other}")),
    }
}

type Built = std::result::Result<RecordBatch, FlightError>;

fn catalogs(call: CommandGetCatalogs) -> Built {
    let mut builder = call.into_builder();
    builder.append(CATALOG);
    builder.build()
}

fn table_types(call: CommandGetTableTypes) -> Built {
    let mut builder = call.into_builder();
    for kind in ["SYSTEM TABLE", "SYSTEM VIEW", "TABLE", "VIEW"] {
        builder.append(kind);
    }
    builder.build()
}

fn schemas(connection: &mut Connection, call: CommandGetDbSchemas) -> Result<Built> {
    let mut builder = call.into_builder();
    for row in texts(connection, "SELECT nspname FROM pg_catalog.pg_namespace ORDER BY nspname")? {
        builder.append(CATALOG, &row[0]);
    }
    Ok(builder.build())
}

fn tables(connection: &mut Connection, call: CommandGetTables) -> Result<Built> {
    let with_schema = call.include_schema;
    // Tables that the call excludes are not described: describing them is the expensive part.
    let is_wanted = |schema: &str, table: &str, kind: &str| {
        let matches =
            |pattern: &Option<String>, name: &str| pattern.as_ref().is_none_or(|pattern| like(pattern, name));
        call.catalog.as_deref().is_none_or(|catalog| catalog == CATALOG)
            && matches(&call.db_schema_filter_pattern, schema)
            && matches(&call.table_name_filter_pattern, table)
            && (call.table_types.is_empty() || call.table_types.iter().any(|wanted| wanted == kind))
    };
    let found = texts(
        connection,
        "SELECT n.nspname, c.relname, c.relkind::text FROM pg_catalog.pg_class c \
         JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
         WHERE c.relkind IN ('r', 'v') ORDER BY n.nspname, c.relname",
    )?;
    let mut required: HashMap<(String, String), Vec<String>> = HashMap::new();
    if with_schema {
        for row in texts(
            connection,
            "SELECT n.nspname, c.relname, a.attname FROM pg_catalog.pg_attribute a \
             JOIN pg_catalog.pg_class c ON c.oid = a.attrelid \
             JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
             WHERE a.attnotnull AND a.attnum > 0 AND c.relkind = 'r'",
        )? {
            let [schema, table, column] = <[String; 3]>::try_from(row).expect("three columns were asked for");
            required.entry((schema, table)).or_default().push(column);
        }
    }
    let mut builder = call.clone().into_builder();
    for row in found {
        let [schema, table, kind] = <[String; 3]>::try_from(row).expect("three columns were asked for");
        let is_ours = matches!(schema.as_str(), "pg_catalog" | "information_schema");
        let kind = match (kind.as_str(), is_ours) {
            ("v", true) => "SYSTEM VIEW",
            ("v", false) => "VIEW",
            (_, true) => "SYSTEM TABLE",
            (_, false) => "TABLE",
        };
        if !is_wanted(&schema, &table, kind) {
            continue;
        }
        let described = match with_schema {
            true => table_schema(connection, &schema, &table, &required)?,
            false => Schema::empty(),
        };
        builder.append(CATALOG, &schema, &table, kind, &described).map_err(flight)?;
    }
    Ok(builder.build())
}

/// The schema of a table's rows, as a query of all its columns would have it.
fn table_schema(
    connection: &mut Connection,
    schema: &str,
    table: &str,
    required: &HashMap<(String, String), Vec<String>>,
) -> Result<Schema> {
    let statement = connection.prepare(&format!("SELECT * FROM {}.{}", quoted(schema), quoted(table)))?;
    let columns = statement.columns().expect("a query has columns");
    let described = schema_of(columns, Strings::Plain);
    let required = required.get(&(schema.to_owned(), table.to_owned()));
    let fields = described.fields().iter().map(|field| {
        let is_required = required.is_some_and(|names| names.contains(field.name()));
        Field::clone(field).with_nullable(!is_required)
    });
    Ok(Schema::new(fields.collect::<Vec<_>>()))
}

// Keys.

/// A constraint that is a key, with the names of its columns.
struct Key {
    name: String,
    table: i32,
    columns: Vec<i16>,
    /// For a foreign key: the table and columns that it references, and its actions.
    target: Option<Target>,
}

struct Target {
    table: i32,
    columns: Vec<i16>,
    update: u8,
    delete: u8,
}

/// Tables and columns by number.
struct Names {
    tables: HashMap<i32, (String, String)>,
    columns: HashMap<(i32, i16), String>,
}

impl Names {
    fn column(&self, table: i32, column: i16) -> &str {
        self.columns.get(&(table, column)).map_or("", String::as_str)
    }
}

fn keys(connection: &mut Connection, kind: &str) -> Result<(Vec<Key>, Names)> {
    let mut names = Names { tables: HashMap::new(), columns: HashMap::new() };
    for row in connection.rows_of(
        "SELECT c.oid::integer, n.nspname, c.relname FROM pg_catalog.pg_class c \
         JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind = 'r'",
    )? {
        names.tables.insert(integer(&row[0]), (text(&row[1]), text(&row[2])));
    }
    for row in connection.rows_of(
        "SELECT attrelid::integer, attnum::smallint, attname FROM pg_catalog.pg_attribute WHERE attnum > 0",
    )? {
        names.columns.insert((integer(&row[0]), integer(&row[1]) as i16), text(&row[2]));
    }
    let keys = connection.rows_of(&format!(
        "SELECT conname, conrelid::integer, conkey, confrelid::integer, confkey, \
         confupdtype::text, confdeltype::text FROM pg_catalog.pg_constraint WHERE contype = '{kind}'",
    ))?;
    let keys = keys.iter().map(|row| Key {
        name: text(&row[0]),
        table: integer(&row[1]),
        columns: numbers(&row[2]),
        target: (kind == "f").then(|| Target {
            table: integer(&row[3]),
            columns: numbers(&row[4]),
            update: rule(&text(&row[5])),
            delete: rule(&text(&row[6])),
        }),
    });
    Ok((keys.collect(), names))
}

/// Flight SQL's number for the action of a foreign key.
fn rule(letter: &str) -> u8 {
    match letter {
        "c" => 0,
        "r" => 1,
        "n" => 2,
        "d" => 4,
        _ => 3, // no action
    }
}

/// An array of numbers of columns.
fn numbers(array: &Value) -> Vec<i16> {
    let Value::Array(array) = array else { return Vec::new() };
    array.elements().iter().map(|number| integer(number) as i16).collect()
}

/// Whether a table is the one of a call: without a schema, any schema matches.
fn is_table(
    found: &(String, String),
    catalog: &Option<String>,
    schema: &Option<String>,
    table: &str,
) -> bool {
    catalog.as_deref().is_none_or(|catalog| catalog.is_empty() || catalog == CATALOG)
        && schema.as_ref().is_none_or(|schema| *schema == found.0)
        && table == found.1
}

fn primary_keys_schema() -> SchemaRef {
    static SCHEMA: OnceLock<SchemaRef> = OnceLock::new();
    let make = || {
        Arc::new(Schema::new(vec![
            Field::new("catalog_name", DataType::Utf8, true),
            Field::new("db_schema_name", DataType::Utf8, true),
            Field::new("table_name", DataType::Utf8, false),
            Field::new("column_name", DataType::Utf8, false),
            Field::new("key_name", DataType::Utf8, true),
            Field::new("key_sequence", DataType::Int32, false),
        ]))
    };
    SCHEMA.get_or_init(make).clone()
}

fn primary_keys(connection: &mut Connection, call: &CommandGetPrimaryKeys) -> Result<RecordBatch> {
    let (keys, names) = keys(connection, "p")?;
    let mut texts: [StringBuilder; 5] = std::array::from_fn(|_| StringBuilder::new());
    let mut sequence = Int32Builder::new();
    for key in &keys {
        let Some(table) = names.tables.get(&key.table) else { continue };
        if !is_table(table, &call.catalog, &call.db_schema, &call.table) {
            continue;
        }
        for (position, column) in key.columns.iter().enumerate() {
            let row = [CATALOG, &table.0, &table.1, names.column(key.table, *column), &key.name];
            texts.iter_mut().zip(row).for_each(|(builder, value)| builder.append_value(value));
            sequence.append_value(position as i32 + 1);
        }
    }
    let mut columns: Vec<ArrayRef> =
        texts.iter_mut().map(|builder| Arc::new(builder.finish()) as ArrayRef).collect();
    columns.push(Arc::new(sequence.finish()));
    RecordBatch::try_new(primary_keys_schema(), columns).map_err(internal)
}

fn foreign_keys_schema() -> SchemaRef {
    static SCHEMA: OnceLock<SchemaRef> = OnceLock::new();
    let make = || {
        Arc::new(Schema::new(vec![
            Field::new("pk_catalog_name", DataType::Utf8, true),
            Field::new("pk_db_schema_name", DataType::Utf8, true),
            Field::new("pk_table_name", DataType::Utf8, false),
            Field::new("pk_column_name", DataType::Utf8, false),
            Field::new("fk_catalog_name", DataType::Utf8, true),
            Field::new("fk_db_schema_name", DataType::Utf8, true),
            Field::new("fk_table_name", DataType::Utf8, false),
            Field::new("fk_column_name", DataType::Utf8, false),
            Field::new("key_sequence", DataType::Int32, false),
            Field::new("fk_key_name", DataType::Utf8, true),
            Field::new("pk_key_name", DataType::Utf8, true),
            Field::new("update_rule", DataType::UInt8, false),
            Field::new("delete_rule", DataType::UInt8, false),
        ]))
    };
    SCHEMA.get_or_init(make).clone()
}

fn exported_keys(connection: &mut Connection, call: &CommandGetExportedKeys) -> Result<RecordBatch> {
    foreign_keys(connection, |referred, _| is_table(referred, &call.catalog, &call.db_schema, &call.table))
}

fn imported_keys(connection: &mut Connection, call: &CommandGetImportedKeys) -> Result<RecordBatch> {
    foreign_keys(connection, |_, referring| is_table(referring, &call.catalog, &call.db_schema, &call.table))
}

fn cross_reference(connection: &mut Connection, call: &CommandGetCrossReference) -> Result<RecordBatch> {
    foreign_keys(connection, |referred, referring| {
        is_table(referred, &call.pk_catalog, &call.pk_db_schema, &call.pk_table)
            && is_table(referring, &call.fk_catalog, &call.fk_db_schema, &call.fk_table)
    })
}

/// Foreign keys, each with the unique key that it references, ordered as Flight SQL requires.
fn foreign_keys(
    connection: &mut Connection,
    is_wanted: impl Fn(&(String, String), &(String, String)) -> bool,
) -> Result<RecordBatch> {
    let (mut foreign, names) = keys(connection, "f")?;
    let (primary, _) = keys(connection, "p")?;
    let (unique, _) = keys(connection, "u")?;
    let nowhere = (String::new(), String::new());
    let table = |id: &i32| names.tables.get(id).unwrap_or(&nowhere);
    foreign.sort_by_cached_key(|key| {
        let referred = key.target.as_ref().map(|target| table(&target.table).clone());
        (referred, table(&key.table).clone(), key.name.clone())
    });
    let mut texts: [StringBuilder; 10] = std::array::from_fn(|_| StringBuilder::new());
    let mut sequence = Int32Builder::new();
    let mut rules: [UInt8Builder; 2] = std::array::from_fn(|_| UInt8Builder::new());
    for key in &foreign {
        let Some(target) = &key.target else { continue };
        let (referred, referring) = (table(&target.table), table(&key.table));
        if !is_wanted(referred, referring) {
            continue;
        }
        let is_its = |unique: &&Key| {
            let mut left = unique.columns.clone();
            let mut right = target.columns.clone();
            left.sort_unstable();
            right.sort_unstable();
            unique.table == target.table && left == right
        };
        let referred_key = primary.iter().chain(&unique).find(is_its).map(|key| key.name.as_str());
        for (position, (to, from)) in target.columns.iter().zip(&key.columns).enumerate() {
            let row = [
                CATALOG,
                &referred.0,
                &referred.1,
                names.column(target.table, *to),
                CATALOG,
                &referring.0,
                &referring.1,
                names.column(key.table, *from),
                &key.name,
            ];
            texts.iter_mut().zip(row).for_each(|(builder, value)| builder.append_value(value));
            texts[9].append_option(referred_key);
            sequence.append_value(position as i32 + 1);
            rules[0].append_value(target.update);
            rules[1].append_value(target.delete);
        }
    }
    let mut columns: Vec<ArrayRef> =
        texts.iter_mut().map(|builder| Arc::new(builder.finish()) as ArrayRef).collect();
    columns.insert(8, Arc::new(sequence.finish()));
    columns.extend(rules.iter_mut().map(|builder| Arc::new(builder.finish()) as ArrayRef));
    RecordBatch::try_new(foreign_keys_schema(), columns).map_err(internal)
}

// Rows of the catalog.

trait CatalogRows {
    fn rows_of(&mut self, query: &str) -> Result<Vec<Vec<Value>>>;
}

impl CatalogRows for Connection {
    fn rows_of(&mut self, query: &str) -> Result<Vec<Vec<Value>>> {
        let statement = self.prepare(query)?;
        self.query_values(&statement, &[])
    }
}

fn texts(connection: &mut Connection, query: &str) -> Result<Vec<Vec<String>>> {
    Ok(connection.rows_of(query)?.iter().map(|row| row.iter().map(text).collect()).collect())
}

fn text(value: &Value) -> String {
    match value {
        Value::Text(text) => text.clone(),
        _ => String::new(),
    }
}

fn integer(value: &Value) -> i32 {
    match value {
        Value::Integer(number) => *number,
        Value::SmallInt(number) => i32::from(*number),
        _ => 0,
    }
}

/// SQL's LIKE, as the filters of Flight SQL define it: `%`, `_`, and `\` as the escape
/// (`SqlSearchStringEscape`). An escape at the end is an ordinary character, as for arrow, which filters again.
fn like(pattern: &str, text: &str) -> bool {
    let text: Vec<char> = text.chars().collect();
    // Which prefixes of the text match the part of the pattern that was read so far.
    let mut matches = vec![false; text.len() + 1];
    matches[0] = true;
    let mut pattern = pattern.chars();
    while let Some(wanted) = pattern.next() {
        if wanted == '%' {
            for end in 1..matches.len() {
                matches[end] |= matches[end - 1];
            }
            continue;
        }
        let is_any = wanted == '_';
        let wanted = if wanted == '\\' { pattern.next().unwrap_or(wanted) } else { wanted };
        for end in (1..matches.len()).rev() {
            matches[end] = matches[end - 1] && (is_any || wanted == text[end - 1]);
        }
        matches[0] = false;
    }
    matches[text.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_sql() {
        for (pattern, text, expected) in [
            ("", "", true),
            ("", "a", false),
            ("%", "", true),
            ("a%", "abc", true),
            ("%c", "abc", true),
            ("a_c", "abc", true),
            ("a_c", "ac", false),
            ("%b%b%", "abcb", true),
            ("%b%b%", "abc", false),
            ("снег", "снег", true),
            (r"a\_c", "a_c", true),
            (r"a\_c", "abc", false),
            (r"a\%", "a%", true),
            (r"a\%", "abc", false),
            (r"a\\_", r"a\b", true),
            (r"\a", "a", true),
            (r"a\", r"a\", true),
            (r"a\", "a", false),
        ] {
            assert_eq!(like(pattern, text), expected, "{pattern:?} {text:?}");
        }
    }
}
