//! Where in the text an error is: characters from 1, as clients are told.

use datafusion::common::{DataFusionError, Location};
use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::ast::Spanned;

/// The position of an error of DataFusion's that carries a span.
pub fn of_error(text: &str, error: &DataFusionError) -> Option<u32> {
    match error {
        DataFusionError::Diagnostic(diagnostic, inner) => diagnostic
            .span
            .and_then(|span| of_location(text, span.start.line, span.start.column))
            .or_else(|| of_error(text, inner)),
        DataFusionError::Context(_, inner) => of_error(text, inner),
        DataFusionError::Collection(errors) => errors.first().and_then(|error| of_error(text, error)),
        DataFusionError::SchemaError(inner, _) => {
            let datafusion::common::SchemaError::FieldNotFound { field, .. } = inner.as_ref() else {
                return None;
            };
            let Location { line, column } = field.spans.first()?.start;
            of_location(text, line, column)
        }
        _ => None,
    }
}

/// The position of a name.
pub fn of_name(text: &str, name: &ast::ObjectName) -> Option<u32> {
    let start = name.span().start;
    of_location(text, start.line, start.column)
}

/// From line and column, both from 1, to characters from 1. Nothing if the text has no such place:
/// then the tree came from elsewhere.
fn of_location(text: &str, line: u64, column: u64) -> Option<u32> {
    if line == 0 || column == 0 {
        return None;
    }
    let mut before = 0;
    let mut lines = text.split('\n');
    for _ in 1..line {
        before += lines.next()?.chars().count() as u64 + 1;
    }
    let length = lines.next()?.chars().count() as u64;
    if column > length + 1 { None } else { u32::try_from(before + column).ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_characters_across_lines() {
        let text = "SELECT ä,\n  b";
        assert_eq!(of_location(text, 1, 8), Some(8));
        assert_eq!(of_location(text, 2, 3), Some(13));
        assert_eq!(of_location(text, 3, 1), None);
        assert_eq!(of_location(text, 0, 0), None);
    }
}
