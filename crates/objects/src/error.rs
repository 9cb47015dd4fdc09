//! Errors of object stores, as errors with SQLSTATE.

use firn_base::{Error, SqlState};
use object_store::client::{HttpError, HttpErrorKind};
use std::error::Error as StdError;

/// The longest part of a store's own words that is shown.
const LONGEST_CAUSE: usize = 400;

/// The error of a failed operation on an object.
#[cold]
pub(crate) fn failed(operation: &str, name: &str, error: &object_store::Error) -> Error {
    use object_store::Error as E;
    let cannot = |state, why: &str| Error::new(state, format!("could not {operation} \"{name}\": {why}"));
    if is_bucket_missing(error) {
        return cannot(SqlState::UNDEFINED_FILE, "the bucket does not exist")
            .with_hint("Create the bucket, or correct its name and the store's endpoint and region.");
    }
    let shown = match error {
        E::NotFound { .. } => return cannot(SqlState::UNDEFINED_FILE, "there is no such object"),
        E::PermissionDenied { .. } | E::Unauthenticated { .. } => {
            cannot(SqlState::INSUFFICIENT_PRIVILEGE, "the object store refuses it")
                .with_hint("Check the credentials in the environment, and the rights that they give.")
        }
        E::NotSupported { .. } | E::NotImplemented { .. } => {
            cannot(SqlState::FEATURE_NOT_SUPPORTED, "the object store does not support it")
        }
        E::InvalidPath { .. } => cannot(SqlState::INVALID_PARAMETER_VALUE, "the name is not valid"),
        _ => match http_kind(error) {
            Some(HttpErrorKind::Connect) => {
                cannot(SqlState::UNABLE_TO_CONNECT, "the object store cannot be reached").with_hint(
                    "Check the endpoint in the environment, such as AWS_ENDPOINT_URL, and the network.",
                )
            }
            Some(HttpErrorKind::Timeout) => slow(operation, name),
            _ => cannot(SqlState::IO_ERROR, "the object store reports an error"),
        },
    };
    shown.with_detail(cause(error))
}

/// The error of an operation that takes too long.
#[cold]
pub(crate) fn slow(operation: &str, name: &str) -> Error {
    let message = format!("could not {operation} \"{name}\": the object store does not answer in time");
    Error::new(SqlState::IO_ERROR, message).with_hint("Try again; check the network.")
}

/// What the store has said, on one line, and what has caused it, such as an invalid certificate.
pub(crate) fn cause(error: &object_store::Error) -> String {
    let mut text = on_a_line(error);
    let mut deepest: &(dyn StdError + 'static) = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    let deepest = on_a_line(deepest);
    if !text.contains(&deepest) {
        text = format!("{text}: {deepest}");
    }
    text
}

fn on_a_line(error: &dyn StdError) -> String {
    let words = error.to_string();
    let mut text = words.split_whitespace().map(without_secrets).collect::<Vec<_>>().join(" ");
    if let Some((end, _)) = text.char_indices().nth(LONGEST_CAUSE) {
        text.truncate(end);
        text.push('…');
    }
    text
}

/// A word; of a URL only the scheme, the host and the path. An endpoint may have a password, and a request a signature.
fn without_secrets(word: &str) -> String {
    let Some((scheme, rest)) = word.split_once("://") else { return word.to_owned() };
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}{path}")
}

/// Of which kind the failure of a request is, if one has failed.
fn http_kind(error: &object_store::Error) -> Option<HttpErrorKind> {
    let mut cause: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<HttpError>() {
            return Some(error.kind());
        }
        cause = error.source();
    }
    None
}

/// Whether it is the bucket that does not exist: the code of S3 and Google's stores, and that of Azure's.
pub(crate) fn is_bucket_missing(error: &object_store::Error) -> bool {
    let text = error.to_string();
    ["NoSuchBucket", "ContainerNotFound", "bucket does not exist"].iter().any(|code| text.contains(code))
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::Error as StoreError;

    fn state(error: StoreError) -> (SqlState, bool) {
        let shown = failed("read", "s3://bucket/x", &error);
        assert!(shown.message().contains("read \"s3://bucket/x\""), "{shown:?}");
        (shown.state(), shown.hint().is_some())
    }

    #[test]
    fn an_error_says_what_it_means_and_what_to_do() {
        let path = || "x".to_owned();
        let http = |kind| {
            let source = Box::new(HttpError::new(kind, std::io::Error::other("no route")));
            StoreError::Generic { store: "S3", source }
        };
        for (error, expected) in [
            (StoreError::NotFound { path: path(), source: "404".into() }, (SqlState::UNDEFINED_FILE, false)),
            (
                StoreError::NotFound { path: path(), source: "<Code>NoSuchBucket</Code>".into() },
                (SqlState::UNDEFINED_FILE, true),
            ),
            (
                StoreError::PermissionDenied { path: path(), source: "403".into() },
                (SqlState::INSUFFICIENT_PRIVILEGE, true),
            ),
            (
                StoreError::Unauthenticated { path: path(), source: "401".into() },
                (SqlState::INSUFFICIENT_PRIVILEGE, true),
            ),
            (http(HttpErrorKind::Connect), (SqlState::UNABLE_TO_CONNECT, true)),
            (http(HttpErrorKind::Timeout), (SqlState::IO_ERROR, true)),
            (StoreError::Generic { store: "S3", source: "500".into() }, (SqlState::IO_ERROR, false)),
            (StoreError::NotSupported { source: "none".into() }, (SqlState::FEATURE_NOT_SUPPORTED, false)),
        ] {
            assert_eq!(state(error), expected);
        }
    }

    #[test]
    fn a_cause_shows_no_secrets_of_urls() {
        let said = "PUT http://key:secret@host:9000/a/b?sig=secret in 3s, (https://secret@host#secret)";
        let shown = cause(&StoreError::Generic { store: "S3", source: said.into() });
        assert!(!shown.contains("secret") && shown.contains("http://host:9000/a/b in 3s"), "{shown}");
    }

    #[test]
    fn a_cause_is_one_short_line_with_what_is_behind_it() {
        let source =
            Box::new(HttpError::new(HttpErrorKind::Connect, std::io::Error::other("bad\ncertificate")));
        let shown = cause(&StoreError::Generic { store: "S3", source });
        assert!(shown.contains("bad certificate") && !shown.contains('\n'), "{shown}");
        let long = cause(&StoreError::Generic { store: "S3", source: "é".repeat(5000).into() });
        assert!(long.chars().count() < 2 * LONGEST_CAUSE + 10, "{long}");
    }
}
