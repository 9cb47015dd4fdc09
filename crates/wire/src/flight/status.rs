//! Errors in the form of gRPC: a code for programs, and a text with all details for people.
//!
//! The SQLSTATE is in the text and, for programs, in the header `sqlstate`. A hint is in `sqlhint`
//! beside it. ADBC shows the headers as the details of its errors.

use firn_base::{Error, SqlState};
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Status};

/// Headers have little room, 8 KiB in total with some clients, and the text of an error is sent in one: so
/// many bytes of it, in their encoded form.
const MOST_TEXT_BYTES: usize = 5000;

/// The hint is in the text as well.
const MOST_HINT_BYTES: usize = 1000;

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
    cut(&mut text);
    let mut headers = MetadataMap::new();
    if let Ok(state) = MetadataValue::try_from(error.state().as_str()) {
        headers.insert("sqlstate", state);
    }
    // A header takes ASCII only; the text has the hint in any case.
    if let Some(hint) = error.hint()
        && hint.len() <= MOST_HINT_BYTES
        && let Ok(hint) = MetadataValue::try_from(hint)
    {
        headers.insert("sqlhint", hint);
    }
    Status::with_metadata(code(error.state()), text, headers)
}

/// Cuts a text that is too long for a header. Each byte that is no letter or digit of ASCII is sent there as three
/// characters, or as one.
fn cut(text: &mut String) {
    let mut sent = 0;
    let end = text.char_indices().find(|(_, character)| {
        sent += if character.is_ascii_alphanumeric() { 1 } else { 3 * character.len_utf8() };
        sent > MOST_TEXT_BYTES
    });
    if let Some((end, _)) = end {
        text.truncate(end);
        text.push('…');
    }
}

/// The code of a SQLSTATE, which says what a client can do about it.
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
    fn an_error_has_all_its_fields_and_a_fitting_status() {
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
    fn a_long_text_is_cut_between_characters_to_what_fits_a_header() {
        for part in ["снег", "a b\n", "letters", "{}"] {
            let error =
                Error::new(SqlState::INTERNAL_ERROR, part.repeat(10_000)).with_hint(part.repeat(10_000));
            let status = status(error);
            assert!(status.message().ends_with('…') && status.message().len() > 1000, "{part}");
            let headers = status.into_http::<()>().into_parts().0.headers;
            let sent: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
            assert!(sent < 8000, "{sent} bytes of {part}");
        }
        let whole = status(Error::new(SqlState::INTERNAL_ERROR, "short"));
        assert_eq!(whole.message(), "short (SQLSTATE XX000)");
    }
}
