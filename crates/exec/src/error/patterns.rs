//! What is wrong with a regular expression, in PostgreSQL's words.
//!
//! DataFusion and Arrow tell it in the words of the crate `regex`, over several lines; two functions tell nothing but the expression,
//! which is compiled once more then to hear why.

use datafusion::arrow::array::StringArray;
use datafusion::arrow::compute::regexp_is_match_scalar;
use firn_base::{Error, Result, SqlState};

/// What the crate says, and PostgreSQL.
const WORDINGS: &[(&str, &str)] = &[
    ("unclosed group", "parentheses () not balanced"),
    ("unopened group", "parentheses () not balanced"),
    ("unclosed character class", "brackets [] not balanced"),
    ("unclosed counted repetition", "braces {} not balanced"),
    ("repetition operator missing expression", "quantifier operand invalid"),
    ("invalid repetition count range", "invalid repetition count(s)"),
    ("repetition quantifier expects a valid decimal", "invalid repetition count(s)"),
    ("invalid character class range", "invalid character range"),
    ("invalid range boundary", "invalid character range"),
    ("incomplete escape sequence", "invalid escape \\ sequence"),
    ("unrecognized escape sequence", "invalid escape \\ sequence"),
    ("invalid escape sequence", "invalid escape \\ sequence"),
    ("invalid hexadecimal digit", "invalid escape \\ sequence"),
    ("hexadecimal literal", "invalid escape \\ sequence"),
];

/// The error of a message about a regular expression; `None` of other messages.
pub(super) fn of_message(message: &str) -> Option<Error> {
    const NO_REASON: &str = "Regular expression did not compile: ";
    if message.contains("did not compile: CompiledTooBig")
        || message.contains("Compiled regex exceeds size limit")
    {
        return Some(invalid("regular expression is too complex"));
    }
    if message.lines().any(|line| line.ends_with("regex parse error:")) {
        let (_, reason) = message.rsplit_once("error: ")?;
        return Some(of_reason(reason.lines().next().unwrap_or_default()));
    }
    let (_, pattern) = message.split_once(NO_REASON)?;
    Some(check(pattern).err().unwrap_or_else(|| invalid("it does not compile")))
}

/// Whether a text is a regular expression; if it is none, why.
pub fn check(pattern: &str) -> Result<()> {
    match regexp_is_match_scalar(&StringArray::from(vec![""]), pattern, None) {
        Ok(_) => Ok(()),
        // The kernel tells the reason, so this asks for no third try.
        Err(error) => Err(super::from_arrow(error)),
    }
}

fn of_reason(reason: &str) -> Error {
    if reason.starts_with("backreferences") {
        return Error::unsupported("a regular expression with back references");
    }
    if reason.starts_with("look-around") {
        return Error::unsupported("a regular expression that looks ahead or behind");
    }
    match WORDINGS.iter().find(|(theirs, _)| reason.starts_with(theirs)) {
        Some((_, ours)) => invalid(ours),
        None => invalid(reason),
    }
}

fn invalid(reason: &str) -> Error {
    Error::new(SqlState::INVALID_REGULAR_EXPRESSION, format!("invalid regular expression: {reason}"))
}
