//! Errors as gRPC has them: a code that tells programs what to do, and a text that tells people everything.
//!
//! The SQLSTATE stands in the text and, for programs, in the header `sqlstate`, with `sqlhint` beside it if
//! there is a hint. ADBC shows the headers as the details of its errors.

use firn_base::{Error, SqlState};
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Status};

/// Headers have little room, and the text of an error travels in one.
const MOST_TEXT_BYTES: usize = 4000;

/// The error as a status.
pub(super) fn status(error: Error) -> Status {
    let mut text = format!("{} (SQLSTATE {})", error.message(), error.state().as_str());
    let parts = [("DETAIL", error.detail()), ("HINT", error.hint()), ("CONTEXT", error.context())];
    for (name, part) in parts {
        if let Some(part) = part {
            text.push_str(&format!("\n{name}: {part}"));
        }
    }
    if let Some(position) = error.position() {
        text.push_str(&format!("\nat character {position}"));
    }
    if text.len() > MOST_TEXT_BYTES {
        text.truncate(text.floor_char_boundary(MOST_TEXT_BYTES));
        text.push('…');
    }
    let mut headers = MetadataMap::new();
    if let Ok(state) = MetadataValue::try_from(error.state().as_str()) {
        headers.insert("sqlstate", state);
    }
    // A header takes ASCII only; the text has the hint in any case.
    if let Some(hint) = error.hint()
        && let Ok(hint) = MetadataValue::try_from(hint)
    {
        headers.insert("sqlhint", hint);
    }
    Status::with_metadata(code(error.state()), text, headers)
}

/// The code for a state: what a client can do about it.
fn code(state: SqlState) -> Code {
    match state {
        SqlState::UNDEFINED_TABLE
        | SqlState::UNDEFINED_OBJECT
        | SqlState::INVALID_SCHEMA_NAME
        | SqlState::INVALID_CATALOG_NAME
        | SqlState::INVALID_SQL_STATEMENT_NAME => Code::NotFound,
        SqlState::DUPLICATE_TABLE
        | SqlState::DUPLICATE_OBJECT
        | SqlState::DUPLICATE_SCHEMA
        | SqlState::UNIQUE_VIOLATION => Code::AlreadyExists,
        SqlState::INSUFFICIENT_PRIVILEGE => Code::PermissionDenied,
        SqlState::QUERY_CANCELED => Code::Cancelled,
        state => match &state.as_str()[..2] {
            "08" | "22" | "42" | "21" | "54" => Code::InvalidArgument,
            "0A" => Code::Unimplemented,
            "23" | "25" | "2B" | "34" | "3B" | "55" => Code::FailedPrecondition,
            "28" => Code::Unauthenticated,
            "40" => Code::Aborted,
            "53" => Code::ResourceExhausted,
            "57" => Code::Unavailable,
            _ => Code::Internal,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_all_it_has_and_its_code_says_what_to_do() {
        let error = Error::new(SqlState::SERIALIZATION_FAILURE, "could not serialize access")
            .with_detail("Another transaction came first.")
            .with_hint("Retry the transaction.");
        let status = status(error);
        assert_eq!(status.code(), Code::Aborted);
        assert_eq!(
            status.message(),
            "could not serialize access (SQLSTATE 40001)\nDETAIL: Another transaction came first.\n\
             HINT: Retry the transaction."
        );
        assert_eq!(status.metadata().get("sqlstate").unwrap(), "40001");
        assert_eq!(status.metadata().get("sqlhint").unwrap(), "Retry the transaction.");
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let status = status(Error::new(SqlState::INTERNAL_ERROR, "снег".repeat(2000)));
        assert!(status.message().len() < MOST_TEXT_BYTES + 10 && status.message().ends_with('…'));
    }
}
