//! The options of EXPLAIN, VACUUM and their relatives, and the names and values of SET.

use firn_base::text_style::IntervalStyle;
use firn_base::{Error, Result, SqlState, TypeId, interval};
use firn_syntax::character_position;
use firn_syntax::print::quote_name;
use firn_syntax::tree::{Name, ObjectName, SettingValue, UtilityOption, UtilityValue};

/// The options of EXPLAIN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExplainOptions {
    /// Run the statement.
    pub analyze: bool,
    /// Print the expected numbers of rows.
    pub costs: bool,
    /// Print times. It needs `analyze`.
    pub timing: bool,
    /// Print the totals.
    pub summary: bool,
    /// The format of the output.
    pub format: ExplainFormat,
}

/// The output formats of EXPLAIN.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ExplainFormat {
    /// Lines.
    #[default]
    Text,
    /// JSON
    Json,
    /// YAML
    Yaml,
    /// XML
    Xml,
}

impl ExplainFormat {
    /// The type of the column that EXPLAIN yields.
    pub fn type_id(self) -> TypeId {
        match self {
            ExplainFormat::Json => TypeId::JSON,
            // There is no type for XML.
            ExplainFormat::Text | ExplainFormat::Yaml | ExplainFormat::Xml => TypeId::TEXT,
        }
    }
}

impl Default for ExplainOptions {
    fn default() -> ExplainOptions {
        let format = ExplainFormat::Text;
        ExplainOptions { analyze: false, costs: true, timing: false, summary: false, format }
    }
}

impl ExplainOptions {
    /// Options as written in `text`. 42601 for those that PostgreSQL does not have.
    pub fn of(options: &[UtilityOption], text: &str) -> Result<ExplainOptions> {
        let (mut read, mut timing, mut summary, mut wal) = (ExplainOptions::default(), None, None, false);
        for option in options {
            match &*option.name.text {
                "analyze" => read.analyze = boolean(option)?,
                "timing" => timing = Some(boolean(option)?),
                "summary" => summary = Some(boolean(option)?),
                "wal" => wal = boolean(option)?,
                "costs" => read.costs = boolean(option)?,
                "verbose" | "settings" | "buffers" => drop(boolean(option)?),
                "format" => read.format = format(option)?,
                _ => return Err(unrecognized("EXPLAIN", &option.name, text)),
            }
        }
        let needs_analyze = |name: &str| {
            let message = format!("EXPLAIN option {name} requires ANALYZE");
            Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message))
        };
        match read.analyze {
            false if wal => return needs_analyze("WAL"),
            false if timing == Some(true) => return needs_analyze("TIMING"),
            _ => {}
        }
        read.timing = timing.unwrap_or(read.analyze);
        read.summary = summary.unwrap_or(read.analyze);
        Ok(read)
    }
}

fn format(option: &UtilityOption) -> Result<ExplainFormat> {
    let format = match &option.value {
        Some(UtilityValue::Word(word) | UtilityValue::Number(word)) => word,
        None => {
            let message = format!("{} requires a parameter", option.name.text);
            return Err(Error::new(SqlState::SYNTAX_ERROR, message));
        }
    };
    match &**format {
        "text" => Ok(ExplainFormat::Text),
        "json" => Ok(ExplainFormat::Json),
        "yaml" => Ok(ExplainFormat::Yaml),
        "xml" => Ok(ExplainFormat::Xml),
        _ => Err(Error::new(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("unrecognized value for EXPLAIN option \"{}\": \"{format}\"", option.name.text),
        )),
    }
}

/// Checks the options of a statement for work that the engine does automatically. 42601 for those that it does not have.
pub fn check_options(command: &str, known: &[&str], options: &[UtilityOption], text: &str) -> Result<()> {
    match options.iter().find(|option| !known.contains(&&*option.name.text)) {
        Some(option) => Err(unrecognized(command, &option.name, text)),
        None => Ok(()),
    }
}

fn unrecognized(command: &str, name: &Name, text: &str) -> Error {
    Error::new(SqlState::SYNTAX_ERROR, format!("unrecognized {command} option \"{}\"", name.text))
        .with_position(character_position(text, name.span.start))
}

/// A flag; an option without a value is on.
fn boolean(option: &UtilityOption) -> Result<bool> {
    let word = match &option.value {
        None => return Ok(true),
        Some(UtilityValue::Word(word) | UtilityValue::Number(word)) => word,
    };
    match &*word.to_ascii_lowercase() {
        "true" | "on" | "1" => Ok(true),
        "false" | "off" | "0" => Ok(false),
        _ => {
            let message = format!("{} requires a Boolean value", option.name.text);
            Err(Error::new(SqlState::SYNTAX_ERROR, message))
        }
    }
}

/// Settings whose values are lists of names, which are stored in quotes where they need them.
const LISTS_OF_NAMES: [&str; 1] = ["search_path"];

/// The name of a setting, in lower case.
pub fn setting_name(name: &ObjectName) -> String {
    let parts: Vec<String> = name.parts().map(|part| part.text.to_lowercase()).collect();
    parts.join(".")
}

/// The values of SET as one text.
pub fn setting_value(name: &str, values: &[SettingValue]) -> String {
    let is_list_of_names = LISTS_OF_NAMES.contains(&name);
    let value = |value: &SettingValue| match value {
        SettingValue::Value(UtilityValue::Word(word)) if is_list_of_names => quote_name(word).to_string(),
        SettingValue::Value(UtilityValue::Word(word) | UtilityValue::Number(word)) => word.to_string(),
        // An offset is stored as a number of hours; an invalid one is refused with its text.
        SettingValue::Interval { value, .. } => match interval::parse(value, IntervalStyle::Postgres) {
            Ok(span) if span.months == 0 && span.days == 0 => {
                (span.microseconds() as f64 / 3_600_000_000.0).to_string()
            }
            _ => value.to_string(),
        },
    };
    let values: Vec<String> = values.iter().map(value).collect();
    values.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::parse_one;
    use firn_syntax::tree::{Setting, Statement};

    fn set(text: &str) -> (String, String) {
        let Statement::Set(set) = parse_one(text).unwrap().unwrap().statement else { panic!("{text}") };
        let Setting::Values { name, values } = &set.setting else { panic!("{text}") };
        let name = setting_name(name);
        let value = setting_value(&name, values);
        (name, value)
    }

    #[test]
    fn settings_take_words_strings_numbers_and_lists() {
        let both = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(set("set DateStyle to ISO, MDY"), both("datestyle", "iso, mdy"));
        assert_eq!(set("SET search_path = 'A', b"), both("search_path", "\"A\", b"));
        assert_eq!(set("SET SCHEMA 'a b'"), both("search_path", "\"a b\""));
        assert_eq!(set("set extra_float_digits = -1"), both("extra_float_digits", "-1"));
        assert_eq!(set("set time zone 'UTC'"), both("timezone", "UTC"));
        assert_eq!(set("set names 'UTF8'"), both("client_encoding", "UTF8"));
        assert_eq!(set("set X.y to 'B'"), both("x.y", "B"));
    }

    #[test]
    fn options_of_explain_are_those_of_postgres() {
        let of = |text: &str| {
            let Statement::Explain(explain) = parse_one(text).unwrap().unwrap().statement else { panic!() };
            ExplainOptions::of(&explain.options, text)
                .map_err(|error| (error.state().as_str().to_owned(), error.position()))
        };
        let all = ExplainOptions { analyze: true, timing: true, summary: true, ..Default::default() };
        assert_eq!(of("explain analyze verbose select 1"), Ok(all));
        let quiet = ExplainOptions { timing: false, ..all };
        assert_eq!(of("explain (analyze, buffers off, timing off) select 1"), Ok(quiet));
        let without_costs = ExplainOptions { costs: false, ..Default::default() };
        assert_eq!(of("explain (costs off, format text) select 1"), Ok(without_costs));
        let error = |state: &str, position: Option<u32>| Err((state.to_owned(), position));
        assert_eq!(of("explain (analyze, color) select 1"), error("42601", Some(19)));
        assert_eq!(of("explain (analyze maybe) select 1"), error("42601", None));
        assert_eq!(of("explain (timing) select 1"), error("22023", None));
        let json = ExplainOptions { format: ExplainFormat::Json, ..Default::default() };
        assert_eq!(of("explain (format 'json') select 1"), Ok(json));
        assert_eq!(of("explain (format csv) select 1"), error("22023", None));
    }
}
