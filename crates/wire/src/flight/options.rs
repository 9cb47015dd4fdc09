//! Session options: settings under Flight's actions, whose messages arrow-flight does not support yet.
//!
//! `catalog` and `schema` are Flight SQL's names for the database and for the schema in which names are looked up;
//! every other name is that of a setting. Messages and numbers as in Flight.proto (Arrow format 1.5).

use std::collections::HashMap;

use firn_base::{Error, Result, SqlState};
use firn_session::Connection;
use prost::{Message, Oneof};

use super::state::CATALOG;

/// Sets options of the session.
pub(super) const SET_SESSION_OPTIONS: &str = "SetSessionOptions";
/// Returns the options of the session.
pub(super) const GET_SESSION_OPTIONS: &str = "GetSessionOptions";
/// Ends the session.
pub(super) const CLOSE_SESSION: &str = "CloseSession";

#[derive(Clone, PartialEq, Message)]
pub(super) struct SessionOptionValue {
    #[prost(oneof = "OptionValue", tags = "1, 2, 3, 4, 5")]
    value: Option<OptionValue>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum OptionValue {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(bool, tag = "2")]
    Boolean(bool),
    #[prost(sfixed64, tag = "3")]
    Integer(i64),
    #[prost(double, tag = "4")]
    Double(f64),
    #[prost(message, tag = "5")]
    Texts(StringListValue),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct StringListValue {
    #[prost(string, repeated, tag = "1")]
    values: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SetSessionOptionsRequest {
    #[prost(map = "string, message", tag = "1")]
    session_options: HashMap<String, SessionOptionValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SetSessionOptionsResult {
    #[prost(map = "string, message", tag = "1")]
    errors: HashMap<String, OptionError>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct OptionError {
    #[prost(int32, tag = "1")]
    value: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct GetSessionOptionsResult {
    #[prost(map = "string, message", tag = "1")]
    session_options: HashMap<String, SessionOptionValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct CloseSessionResult {
    #[prost(int32, tag = "1")]
    status: i32,
}

const INVALID_NAME: i32 = 1;
const INVALID_VALUE: i32 = 2;
const CLOSED: i32 = 1;

impl CloseSessionResult {
    pub fn closed() -> CloseSessionResult {
        CloseSessionResult { status: CLOSED }
    }
}

impl OptionValue {
    /// As the text of a setting; a list like that of `search_path`.
    fn text(&self) -> String {
        match self {
            OptionValue::Text(text) => text.clone(),
            OptionValue::Boolean(value) => value.to_string(),
            OptionValue::Integer(value) => value.to_string(),
            OptionValue::Double(value) => value.to_string(),
            OptionValue::Texts(list) => {
                list.values.iter().map(|text| quoted(text)).collect::<Vec<_>>().join(", ")
            }
        }
    }
}

/// Sets the options that are valid; the others are in the result, each with its error.
pub(super) fn set(
    connection: &mut Connection,
    request: &SetSessionOptionsRequest,
) -> SetSessionOptionsResult {
    let mut errors = HashMap::new();
    for (name, option) in &request.session_options {
        let Some(value) = &option.value else { continue };
        if let Err(error) = set_one(connection, name, value) {
            let is_name = error.state() == SqlState::UNDEFINED_OBJECT;
            let value = if is_name { INVALID_NAME } else { INVALID_VALUE };
            errors.insert(name.clone(), OptionError { value });
        }
    }
    SetSessionOptionsResult { errors }
}

fn set_one(connection: &mut Connection, name: &str, value: &OptionValue) -> Result<()> {
    let text = value.text();
    match name {
        "catalog" if text == CATALOG || text.is_empty() => Ok(()),
        "catalog" => {
            Err(Error::new(SqlState::INVALID_CATALOG_NAME, format!("database \"{text}\" does not exist")))
        }
        "schema" => connection.set("search_path", &quoted(&text)),
        name => connection.set(name, &text),
    }
}

/// The settings that differ from their defaults, and those that Flight SQL names.
pub(super) fn get(connection: &mut Connection) -> Result<GetSessionOptionsResult> {
    let mut session_options = HashMap::new();
    let mut tell = |name: &str, value: String| {
        let value = SessionOptionValue { value: Some(OptionValue::Text(value)) };
        session_options.insert(name.to_owned(), value);
    };
    tell("catalog", CATALOG.to_owned());
    let schema = connection.query_row("SELECT coalesce(current_schema(), '')", &[])?;
    if let Some([firn_base::Value::Text(schema)]) = schema.as_deref() {
        tell("schema", schema.clone());
    }
    for name in
        ["search_path", "timezone", "default_transaction_isolation", "statement_timeout", "application_name"]
    {
        tell(name, connection.setting(name)?);
    }
    Ok(GetSessionOptionsResult { session_options })
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_settings_and_each_error_is_reported() {
        let mut connection = firn_session::Database::memory().unwrap().connect();
        let option = |value| SessionOptionValue { value: Some(value) };
        let list = StringListValue { values: vec!["a".into(), "B c".into()] };
        let session_options = HashMap::from([
            ("statement_timeout".to_owned(), option(OptionValue::Integer(1500))),
            ("search_path".to_owned(), option(OptionValue::Texts(list))),
            ("nonsense".to_owned(), option(OptionValue::Boolean(true))),
            ("catalog".to_owned(), option(OptionValue::Text("other".into()))),
        ]);
        // Encoded and decoded again.
        let bytes = SetSessionOptionsRequest { session_options }.encode_to_vec();
        let request = SetSessionOptionsRequest::decode(&bytes[..]).unwrap();
        let result = set(&mut connection, &request);
        let error = |name: &str| result.errors.get(name).map(|error| error.value);
        assert_eq!(connection.setting("search_path").unwrap(), "\"a\", \"B c\"");
        assert_eq!(connection.setting("statement_timeout").unwrap(), "1500ms");
        assert_eq!((error("nonsense"), error("catalog")), (Some(INVALID_NAME), Some(INVALID_VALUE)));
        assert_eq!(result.errors.len(), 2);
        let sent_options = get(&mut connection).unwrap().session_options;
        assert_eq!(sent_options["statement_timeout"].value, Some(OptionValue::Text("1500ms".into())));
    }
}
