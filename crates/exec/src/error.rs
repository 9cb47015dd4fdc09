//! From DataFusion's errors to ours: SQLSTATE, a clean message, a position where one is known.
//!
//! DataFusion tells most mistakes apart by their wording only, so this file reads messages. What it
//! does not recognise keeps its wording under a general code.

mod patterns;

use crate::memory::NOTHING_LEFT;
use datafusion::arrow::error::ArrowError;
use datafusion::common::{DataFusionError, SchemaError};
use firn_base::{Error, SqlState};

pub use patterns::check as check_pattern;

/// The error to show a user. Our own errors that travelled through DataFusion come out as they
/// went in.
pub fn from_datafusion(error: DataFusionError) -> Error {
    match error {
        DataFusionError::External(inner) => from_external(inner),
        DataFusionError::Context(_, inner) => from_datafusion(*inner),
        DataFusionError::Diagnostic(_, inner) => from_datafusion(*inner),
        DataFusionError::Collection(mut errors) if !errors.is_empty() => {
            from_datafusion(errors.swap_remove(0))
        }
        DataFusionError::Shared(inner) => from_shared(&inner),
        DataFusionError::ArrowError(inner, _) => from_arrow(*inner),
        DataFusionError::SchemaError(inner, _) => from_schema_error(&inner),
        DataFusionError::SQL(inner, _) => Error::new(SqlState::SYNTAX_ERROR, clean(&inner.to_string())),
        // Such columns are looked up nowhere but in conditions.
        DataFusionError::NotImplemented(message) if message.contains("expression OuterReferenceColumn(") => {
            Error::unsupported("a sub-query that computes with columns of the rows outside of it")
                .with_hint("Join it, or compute outside of it.")
        }
        DataFusionError::NotImplemented(message) => {
            Error::new(SqlState::FEATURE_NOT_SUPPORTED, first_line(&message))
        }
        DataFusionError::ResourcesExhausted(message) => out_of_memory(&message),
        DataFusionError::Plan(message)
        | DataFusionError::Execution(message)
        | DataFusionError::Configuration(message) => from_message(&message),
        DataFusionError::IoError(inner) => Error::new(SqlState::IO_ERROR, inner.to_string()),
        other => {
            let message = other.strip_backtrace();
            from_message(&message)
        }
    }
}

/// Our error on its way through DataFusion.
pub fn to_datafusion(error: Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

fn from_external(inner: Box<dyn std::error::Error + Send + Sync>) -> Error {
    let inner = match inner.downcast::<Error>() {
        Ok(ours) => return *ours,
        Err(inner) => inner,
    };
    match inner.downcast::<DataFusionError>() {
        Ok(nested) => from_datafusion(*nested),
        Err(inner) => from_message(&inner.to_string()),
    }
}

/// A shared error cannot be taken apart, only looked at.
fn from_shared(error: &DataFusionError) -> Error {
    match error {
        DataFusionError::External(inner) => match inner.downcast_ref::<Error>() {
            Some(ours) => ours.clone(),
            None => from_message(&inner.to_string()),
        },
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => from_shared(inner),
        DataFusionError::Shared(inner) => from_shared(inner),
        DataFusionError::ArrowError(inner, _) => match inner.as_ref() {
            ArrowError::ExternalError(inner) => match inner.downcast_ref::<Error>() {
                Some(ours) => ours.clone(),
                None => from_message(&inner.to_string()),
            },
            ArrowError::DivideByZero => division_by_zero(),
            other => from_message(&other.to_string()),
        },
        DataFusionError::ResourcesExhausted(message) => out_of_memory(message),
        other => from_message(&other.strip_backtrace()),
    }
}

/// Of a plan that may hold no more: its share is used up, or the process's.
fn out_of_memory(message: &str) -> Error {
    let hint = match message.contains(NOTHING_LEFT) {
        true => {
            "Let the query keep fewer rows at a time, delete rows, or give the process more memory; a lower memory_limit \
             leaves more of it to queries."
        }
        false => {
            "Raise query_memory (firn serve --query-memory), or let the query keep fewer rows at a time."
        }
    };
    Error::new(SqlState::OUT_OF_MEMORY, "the query needs more memory than it may use")
        .with_detail(first_line(message))
        .with_hint(hint)
}

fn division_by_zero() -> Error {
    Error::new(SqlState::DIVISION_BY_ZERO, "division by zero")
}

fn from_arrow(error: ArrowError) -> Error {
    match error {
        ArrowError::DivideByZero => division_by_zero(),
        ArrowError::ExternalError(inner) => from_external(inner),
        ArrowError::ArithmeticOverflow(message) => {
            Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "value out of range")
                .with_detail(sentence(&message))
        }
        ArrowError::CastError(message) => {
            Error::new(SqlState::INVALID_TEXT_REPRESENTATION, first_line(&message))
        }
        other => from_message(&other.to_string()),
    }
}

fn from_schema_error(error: &SchemaError) -> Error {
    match error {
        SchemaError::FieldNotFound { field, valid_fields } => {
            if let Some(relation) = &field.relation
                && !valid_fields
                    .iter()
                    .any(|valid| valid.relation.as_ref().is_some_and(|r| r.table() == relation.table()))
            {
                let message = format!("missing FROM-clause entry for table \"{}\"", relation.table());
                return Error::new(SqlState::UNDEFINED_TABLE, message);
            }
            let name = match &field.relation {
                Some(relation) => format!("{}.{}", relation.table(), field.name),
                None => format!("\"{}\"", field.name),
            };
            let mut error = Error::new(SqlState::UNDEFINED_COLUMN, format!("column {name} does not exist"));
            let candidates = valid_fields.iter().map(|column| column.name.as_str());
            if let Some(similar) = most_similar(&field.name, candidates) {
                let full =
                    valid_fields.iter().find(|column| column.name == similar).expect("it was among them");
                let full = match &full.relation {
                    Some(relation) => format!("{}.{}", relation.table(), full.name),
                    None => full.name.clone(),
                };
                error = error.with_hint(format!("Perhaps you meant to reference the column \"{full}\"."));
            }
            error
        }
        SchemaError::AmbiguousReference { field } => Error::new(
            SqlState::AMBIGUOUS_COLUMN,
            format!("column reference \"{}\" is ambiguous", field.name),
        ),
        SchemaError::DuplicateQualifiedField { qualifier, .. } => Error::new(
            SqlState::new("42712"),
            format!("table name \"{}\" specified more than once", qualifier.table()),
        ),
        SchemaError::DuplicateUnqualifiedField { name } => {
            Error::new(SqlState::AMBIGUOUS_COLUMN, format!("column name \"{name}\" is ambiguous"))
        }
    }
}

/// What DataFusion's wordings mean: a part of the message, the code, and our wording if we have one.
const WORDINGS: &[(&str, SqlState, Option<&str>)] = &[
    ("Divide by zero", SqlState::DIVISION_BY_ZERO, Some("division by zero")),
    ("Division by zero", SqlState::DIVISION_BY_ZERO, Some("division by zero")),
    ("Scalar subquery returned more than one row", SqlState::CARDINALITY_VIOLATION, Some(MORE_THAN_ONE_ROW)),
    ("more than one row returned", SqlState::CARDINALITY_VIOLATION, Some(MORE_THAN_ONE_ROW)),
    ("returned more than one row", SqlState::CARDINALITY_VIOLATION, Some(MORE_THAN_ONE_ROW)),
    ("verflow", SqlState::NUMERIC_VALUE_OUT_OF_RANGE, None),
    ("out of range", SqlState::NUMERIC_VALUE_OUT_OF_RANGE, None),
    ("too large to store in a", SqlState::NUMERIC_VALUE_OUT_OF_RANGE, Some("numeric field overflow")),
    (
        "allowed in the WHERE clause",
        SqlState::GROUPING_ERROR,
        Some("aggregate functions are not allowed in WHERE"),
    ),
    ("should only return one column", SqlState::SYNTAX_ERROR, Some("subquery must return only one column")),
    (
        "UNION queries have different number of columns",
        SqlState::SYNTAX_ERROR,
        Some("each UNION query must have the same number of columns"),
    ),
    (
        "For SELECT DISTINCT, ORDER BY expressions",
        SqlState::INVALID_COLUMN_REFERENCE,
        Some("for SELECT DISTINCT, ORDER BY expressions must appear in select list"),
    ),
    ("LIMIT must be >= 0", SqlState::new("2201W"), Some("LIMIT must not be negative")),
    ("OFFSET must be >=0", SqlState::new("2201X"), Some("OFFSET must not be negative")),
    ("must be in GROUP BY", SqlState::GROUPING_ERROR, None),
    ("must appear in the GROUP BY", SqlState::GROUPING_ERROR, None),
    ("in the select list must", SqlState::GROUPING_ERROR, None),
    ("Invalid function", SqlState::UNDEFINED_FUNCTION, None),
    ("Function", SqlState::UNDEFINED_FUNCTION, None),
    ("candidate functions", SqlState::UNDEFINED_FUNCTION, None),
    ("No function matches", SqlState::UNDEFINED_FUNCTION, None),
    ("Cannot coerce", SqlState::UNDEFINED_FUNCTION, None),
    ("Cannot infer common argument type", SqlState::UNDEFINED_FUNCTION, None),
    ("not unique", SqlState::AMBIGUOUS_COLUMN, None),
    ("Cannot cast", SqlState::INVALID_TEXT_REPRESENTATION, None),
    ("Error parsing", SqlState::INVALID_DATETIME_FORMAT, None),
    ("No value found for placeholder", SqlState::UNDEFINED_PARAMETER, None),
];

const MORE_THAN_ONE_ROW: &str = "more than one row returned by a subquery used as an expression";

fn from_message(message: &str) -> Error {
    if let Some(panic) = panic_of_task(message) {
        return Error::internal(&panic);
    }
    if let Some(error) = patterns::of_message(message) {
        return error;
    }
    let line = first_line(message);
    if let Some(name) = quoted_after(message, "Invalid function '", '\'') {
        let suggested = quoted_after(message, "Did you mean '", '\'');
        return unknown_function(name, suggested.into_iter());
    }
    if let Some(name) = quoted_after(message, "Function '", '\'') {
        let message = format!("function {name} does not take arguments of these types");
        return Error::new(SqlState::UNDEFINED_FUNCTION, message).with_hint(
            "No function matches the given name and argument types. You might need to add explicit type casts.",
        );
    }
    if let Some(table) = line.strip_prefix("invalid qualifier ") {
        let message = format!("missing FROM-clause entry for table \"{table}\"");
        return Error::new(SqlState::UNDEFINED_TABLE, message);
    }
    if let Some(position) = quoted_after(message, "Order by column out of bounds, specified: ", ',') {
        let message = format!("ORDER BY position {position} is not in select list");
        return Error::new(SqlState::INVALID_COLUMN_REFERENCE, message);
    }
    if line.starts_with("cannot create filter with non-boolean predicate")
        && let Some((_, ty)) = line.rsplit_once(" returning ")
    {
        let message = format!("argument of WHERE must be type boolean, not type {}", sql_name(ty));
        return Error::new(SqlState::DATATYPE_MISMATCH, message);
    }
    if message.contains("must appear in the GROUP BY")
        && let Some(column) = quoted_after(message, "column \"", '"')
    {
        let message = format!(
            "column \"{column}\" must appear in the GROUP BY clause or be used in an aggregate function"
        );
        return Error::new(SqlState::GROUPING_ERROR, message);
    }
    if let Some((_, state, wording)) = WORDINGS.iter().find(|(part, _, _)| message.contains(part)) {
        return Error::new(*state, wording.map_or(line, str::to_owned));
    }
    if message.contains("not supported")
        || message.contains("not implemented")
        || message.contains("unsupported")
    {
        return Error::new(SqlState::FEATURE_NOT_SUPPORTED, line);
    }
    Error::new(SqlState::new("42000"), line)
}

/// What a task of tokio's panicked with, if that is what a message tells: whatever it says is no mistake of the user's.
fn panic_of_task(message: &str) -> Option<String> {
    let (_, rest) = message.split_once("task ")?;
    let (number, rest) = rest.split_once(" panicked")?;
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    // It is told as Rust writes strings.
    Some(match rest.strip_prefix(" with message \"") {
        Some(panic) => panic.trim_end_matches('"').replace("\\n", "\n").replace("\\\"", "\""),
        None => "unknown cause".to_owned(),
    })
}

/// The SQL name of an Arrow type that a message names.
fn sql_name(ty: &str) -> &str {
    match ty.split('(').next().unwrap_or_default() {
        "Int16" => "smallint",
        "Int32" => "integer",
        "Int64" | "UInt64" => "bigint",
        "Float32" => "real",
        "Float64" => "double precision",
        "Decimal128" | "Decimal256" => "numeric",
        "Utf8" | "Utf8View" | "LargeUtf8" => "text",
        "Binary" | "BinaryView" => "bytea",
        "Date32" => "date",
        "Time64" => "time without time zone",
        "Timestamp" if ty.contains("UTC") => "timestamp with time zone",
        "Timestamp" => "timestamp without time zone",
        "Interval" => "interval",
        "FixedSizeBinary" => "uuid",
        _ => ty,
    }
}

/// PostgreSQL's error for a function that does not exist, with the name that was probably meant.
pub fn unknown_function<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Error {
    let error = Error::new(SqlState::UNDEFINED_FUNCTION, format!("function {name} does not exist"));
    match most_similar(name, known) {
        Some(similar) => error.with_hint(format!("Perhaps you meant \"{similar}\".")),
        None => error.with_hint("No function matches the given name. Check its spelling."),
    }
}

/// What stands between `before` and the next `end`.
fn quoted_after<'a>(message: &'a str, before: &str, end: char) -> Option<&'a str> {
    let start = message.find(before)? + before.len();
    message[start..].split(end).next()
}

/// The message without DataFusion's prefixes and beyond its first line, begun in lower case as
/// PostgreSQL begins its messages.
fn first_line(message: &str) -> String {
    let line = clean(message.lines().next().unwrap_or_default());
    let line = line.trim_end_matches('.').to_owned();
    let mut characters = line.chars();
    match (characters.next(), characters.next()) {
        (Some(first), Some(second)) if first.is_uppercase() && second.is_lowercase() => {
            format!("{}{}", first.to_lowercase(), &line[first.len_utf8()..])
        }
        _ => line,
    }
}

fn clean(message: &str) -> String {
    const PREFIXES: &[&str] = &[
        "Error during planning: ",
        "Execution error: ",
        "Arrow error: ",
        "Compute error: ",
        "Invalid argument error: ",
        "Cast error: ",
        "Schema error: ",
        "Optimizer rule",
        "External error: ",
        "Internal error: ",
        "SQL error: ",
        "sql parser error: ",
        "type_coercion",
        "caused by",
    ];
    let mut rest = message.trim();
    while let Some(prefix) = PREFIXES.iter().find(|prefix| rest.starts_with(**prefix)) {
        rest = rest[prefix.len()..].trim_start();
    }
    rest.to_owned()
}

fn sentence(message: &str) -> String {
    let mut message = message.trim_end_matches('.').to_owned();
    message.push('.');
    message
}

/// The candidate that is nearest to what was written, if near enough to be a slip of the pen.
pub fn most_similar<'a>(written: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let limit = 1 + written.chars().count() / 3;
    candidates
        .map(|candidate| (edit_distance(written, candidate), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Levenshtein's distance, in characters.
fn edit_distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in right.iter().enumerate() {
            let substituted = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_error_survives_the_way_through_datafusion() {
        let ours =
            Error::new(SqlState::UNIQUE_VIOLATION, "taken").with_hint("Choose another.").with_position(7);
        let wrapped = DataFusionError::ArrowError(
            Box::new(ArrowError::ExternalError(Box::new(to_datafusion(ours).context("here")))),
            None,
        );
        let back = from_datafusion(wrapped);
        assert_eq!(back.state(), SqlState::UNIQUE_VIOLATION);
        assert_eq!(
            (back.message(), back.hint(), back.position()),
            ("taken", Some("Choose another."), Some(7))
        );
    }

    #[test]
    fn a_panic_of_a_task_is_a_mistake_of_ours_whatever_it_says() {
        let failed =
            async { tokio::spawn(async { panic!("a \"division\" by zero\nand more") }).await.unwrap_err() };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let failed = runtime.block_on(failed);
        let text = DataFusionError::Execution(failed.to_string());
        let shared = DataFusionError::External(Box::new(std::sync::Arc::new(failed)));
        for error in [text, shared.context("Join Error")] {
            let error = from_datafusion(error);
            assert_eq!(error.state(), SqlState::INTERNAL_ERROR);
            assert_eq!(error.message(), "internal error: a \"division\" by zero\nand more");
        }
        let error = from_datafusion(DataFusionError::Plan("task list panicked".to_owned()));
        assert_ne!(error.state(), SqlState::INTERNAL_ERROR);
    }

    #[test]
    fn a_slip_of_the_pen_finds_the_name_that_was_meant() {
        let names = ["w_id", "w_name", "w_street"];
        assert_eq!(most_similar("w_nmae", names.into_iter()), Some("w_name"));
        assert_eq!(most_similar("entirely_else", names.into_iter()), None);
    }

    #[test]
    fn messages_lose_the_prefixes_of_the_layers_they_came_through() {
        let error =
            from_datafusion(DataFusionError::Plan("Error during planning: Something odd.\nmore".into()));
        assert_eq!(error.message(), "something odd");
    }
}
