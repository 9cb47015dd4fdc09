//! The formats and options of COPY.

use super::CopiedColumn;
use crate::names::missing_column;
use firn_base::{Error, Result, SqlState};
use firn_load::{CopyHeader, CopyOptions, Encoding, NO_QUOTE, OnError, RowFormat};
use firn_syntax::tree::{CopyOption, CopyValue, UtilityValue};
use firn_txn::catalog::TableDef;

/// The rows of a row group of Parquet, by default: few enough that a file has work for several threads, many
/// enough that columns compress well.
const ROW_GROUP_ROWS: usize = 1 << 17;

/// The format of the data of a COPY.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyFormat {
    /// One record per line, backslash escapes.
    Text,
    /// Comma-separated values with quotes.
    Csv,
    /// Values in their wire format, each with its length.
    Binary,
    /// One JSON object per line.
    Json,
    /// Parquet files.
    Parquet,
    /// Arrow's IPC format: files of the server have its file format, clients get and send its streams.
    Arrow,
}

impl CopyFormat {
    /// Its name in SQL.
    pub fn word(self) -> &'static str {
        match self {
            CopyFormat::Text => "text",
            CopyFormat::Csv => "csv",
            CopyFormat::Binary => "binary",
            CopyFormat::Json => "json",
            CopyFormat::Parquet => "parquet",
            CopyFormat::Arrow => "arrow",
        }
    }

    /// Whether its bytes are not text.
    pub fn is_binary(self) -> bool {
        matches!(self, CopyFormat::Binary | CopyFormat::Parquet | CopyFormat::Arrow)
    }

    /// Whether its bytes are characters.
    fn is_text(self) -> bool {
        !self.is_binary()
    }

    /// The format of rows that follow one another, if it is one.
    pub(super) fn of_rows(self) -> Option<RowFormat> {
        match self {
            CopyFormat::Text => Some(RowFormat::Text),
            CopyFormat::Csv => Some(RowFormat::Csv),
            CopyFormat::Binary => Some(RowFormat::Binary),
            CopyFormat::Json => Some(RowFormat::Json),
            CopyFormat::Parquet | CopyFormat::Arrow => None,
        }
    }
}

/// The compression of files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Compression {
    None,
    Gzip,
    Zstd,
    Snappy,
    Lz4,
}

/// The options of one COPY.
pub(super) struct Options {
    pub format: CopyFormat,
    /// The options of formats that store row after row.
    pub rows: CopyOptions,
    /// FREEZE
    pub freeze: bool,
    /// COMPRESSION
    pub compression: Option<Compression>,
    /// ROW_GROUP_SIZE
    pub row_group_rows: usize,
}

/// The value of an option that takes one. A flag without a value is `true`.
pub(super) fn word(option: &CopyOption) -> Result<&str> {
    let (name, syntax) = (&option.name.text, |message| Error::new(SqlState::SYNTAX_ERROR, message));
    match &option.value {
        CopyValue::Value(UtilityValue::Word(word) | UtilityValue::Number(word)) => Ok(word),
        CopyValue::None if matches!(&**name, "header" | "freeze") => Ok("true"),
        CopyValue::None => Err(syntax(format!("{name} requires a parameter"))),
        _ => Err(syntax(format!("COPY {} takes one value", name.to_uppercase()))),
    }
}

/// The options of the data. `table` is the copied table, unless a query is copied.
pub(super) fn options(
    given: &[CopyOption],
    columns: &[CopiedColumn],
    table: Option<&TableDef>,
    is_from: bool,
) -> Result<Options> {
    let syntax = |message: String| Error::new(SqlState::SYNTAX_ERROR, message);
    let mut seen: Vec<&str> = Vec::new();
    for option in given {
        if seen.contains(&&*option.name.text) {
            return Err(syntax("conflicting or redundant options".into()));
        }
        seen.push(&option.name.text);
    }
    let format = match given.iter().find(|option| *option.name.text == *"format") {
        None => CopyFormat::Text,
        Some(option) => match word(option)?.to_lowercase().as_str() {
            "text" => CopyFormat::Text,
            "csv" => CopyFormat::Csv,
            "binary" => CopyFormat::Binary,
            "json" => CopyFormat::Json,
            "parquet" => CopyFormat::Parquet,
            "arrow" => CopyFormat::Arrow,
            other => {
                return Err(Error::new(
                    SqlState::INVALID_PARAMETER_VALUE,
                    format!("COPY format \"{other}\" not recognized"),
                ));
            }
        },
    };
    // For files of columns these options are unused; any other format provides the defaults.
    let mut options = CopyOptions::new(format.of_rows().unwrap_or(RowFormat::Binary));
    let (mut freeze, mut compression) = (false, None);
    let mut row_group_rows = ROW_GROUP_ROWS;
    let csv_only = |name: &str| match format {
        CopyFormat::Csv => Ok(()),
        _ => Err(Error::new(
            SqlState::FEATURE_NOT_SUPPORTED,
            format!("COPY {} available only in CSV mode", name.replace('_', " ")),
        )),
    };
    let not_in = |name: &str| {
        Err(syntax(format!(
            "cannot specify {} in {} mode",
            name.to_uppercase(),
            format.word().to_uppercase()
        )))
    };
    let delimited = |name: &str| match format {
        CopyFormat::Text | CopyFormat::Csv => Ok(()),
        _ => not_in(name),
    };
    let of_lines = |name: &str| match format {
        CopyFormat::Text | CopyFormat::Csv | CopyFormat::Json => Ok(()),
        _ => not_in(name),
    };
    let only_from = |name: &str| match is_from {
        true => Ok(()),
        false => {
            let message = format!("COPY {} cannot be used with COPY TO", name.to_uppercase());
            Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message))
        }
    };
    let only_with = |name: &str, with_from: bool| match is_from == with_from {
        true => Ok(()),
        false => {
            let (option, direction) = (name.replace('_', " "), if with_from { "FROM" } else { "TO" });
            let message = format!("COPY {option} only available using COPY {direction}");
            Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message))
        }
    };
    for option in given {
        let name = &*option.name.text;
        let character = || -> Result<u8> {
            match word(option)?.as_bytes() {
                [byte] => Ok(*byte),
                _ => Err(Error::new(
                    SqlState::FEATURE_NOT_SUPPORTED,
                    format!("COPY {name} must be a single one-byte character"),
                )),
            }
        };
        let by_column = || -> Result<Vec<bool>> {
            match &option.value {
                CopyValue::Star => Ok(vec![true; columns.len()]),
                CopyValue::List(names) => {
                    for (position, wanted) in names.iter().enumerate() {
                        let is_copied = columns.iter().any(|(_, name, _)| **name == **wanted);
                        if !is_copied && table.is_none_or(|table| table.column(wanted).is_none()) {
                            return Err(no_column(table, wanted));
                        }
                        if names[..position].contains(wanted) {
                            return Err(super::named_twice(wanted));
                        }
                        if !is_copied {
                            return Err(Error::new(
                                SqlState::INVALID_COLUMN_REFERENCE,
                                format!("{} column \"{wanted}\" not referenced by COPY", name.to_uppercase()),
                            ));
                        }
                    }
                    Ok(columns
                        .iter()
                        .map(|(_, name, _)| names.iter().any(|wanted| **wanted == **name))
                        .collect())
                }
                _ => Err(syntax(format!("argument to option \"{name}\" must be a list of column names"))),
            }
        };
        match name {
            "format" => {}
            "delimiter" => {
                delimited(name)?;
                options.delimiter = character()?;
            }
            "null" => {
                delimited(name)?;
                options.null = word(option)?.to_owned();
            }
            "header" => {
                delimited(name)?;
                let value = word(option)?;
                options.header = match (crate::settings::boolean(value), value) {
                    (Some(true), _) => CopyHeader::Yes,
                    (Some(false), _) => CopyHeader::No,
                    (None, "match") if is_from => CopyHeader::Match,
                    (None, "match") => {
                        let message = "cannot use \"match\" with HEADER in COPY TO";
                        return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, message));
                    }
                    _ => return Err(syntax("header requires a Boolean value or \"match\"".into())),
                };
            }
            "quote" => {
                csv_only(name)?;
                options.quote = match word(option)? {
                    // Data written so could not be read back.
                    "none" => only_from("quote none").map(|()| NO_QUOTE)?,
                    _ => character()?,
                };
                if !seen.contains(&"escape") {
                    options.escape = options.quote;
                }
            }
            "escape" => {
                csv_only(name)?;
                options.escape = character()?;
            }
            "force_quote" => {
                csv_only(name)?;
                only_with(name, false)?;
                options.force_quote = by_column()?;
            }
            "force_not_null" => {
                csv_only(name)?;
                only_with(name, true)?;
                options.force_not_null = by_column()?;
            }
            "force_null" => {
                csv_only(name)?;
                only_with(name, true)?;
                options.force_null = by_column()?;
            }
            "on_error" => {
                of_lines(name)?;
                only_from(name)?;
                options.on_error = match word(option)?.to_lowercase().as_str() {
                    "stop" => OnError::Stop,
                    "ignore" => OnError::Ignore,
                    other => {
                        return Err(Error::new(
                            SqlState::INVALID_PARAMETER_VALUE,
                            format!("COPY ON_ERROR \"{other}\" not recognized"),
                        ));
                    }
                };
            }
            // They concern the report of rows that are left out, not what is read.
            "log_verbosity" | "reject_limit" => only_from(name)?,
            "rejects_table" => {
                of_lines(name)?;
                only_from(name)?;
            }
            "freeze" => {
                freeze = crate::settings::boolean(word(option)?)
                    .ok_or_else(|| syntax("freeze requires a Boolean value".into()))?;
                if freeze {
                    only_from(name)?;
                }
            }
            "encoding" => {
                let given = word(option)?;
                options.encoding = Encoding::named(given)?;
                if options.encoding != Encoding::Utf8 && !(is_from && format.is_text()) {
                    return Err(Error::unsupported(format!("COPY encoding {given}, except to read text"))
                        .with_hint("Written files, and files of other formats, are UTF-8."));
                }
            }
            "compression" => compression = Some(self::compression(word(option)?, format, is_from)?),
            "row_group_size" => {
                if format != CopyFormat::Parquet || is_from {
                    return Err(syntax("COPY ROW_GROUP_SIZE is for COPY TO in PARQUET mode".into()));
                }
                let given = word(option)?;
                row_group_rows = given.parse().ok().filter(|rows| *rows > 0).ok_or_else(|| {
                    let message = format!("ROW_GROUP_SIZE ({given}) must be greater than zero");
                    Error::new(SqlState::INVALID_PARAMETER_VALUE, message)
                })?;
            }
            _ => return Err(syntax(format!("option \"{name}\" not recognized"))),
        }
    }
    Ok(Options { format, rows: options, freeze, compression, row_group_rows })
}

/// The error for a column that an option names and that does not exist.
fn no_column(table: Option<&TableDef>, name: &str) -> Error {
    match table {
        Some(table) => missing_column(table, name),
        None => Error::new(SqlState::UNDEFINED_COLUMN, format!("column \"{name}\" does not exist")),
    }
}

/// COMPRESSION, if the format supports it.
fn compression(given: &str, format: CopyFormat, is_from: bool) -> Result<Compression> {
    if is_from {
        return Err(Error::new(SqlState::SYNTAX_ERROR, "COPY COMPRESSION cannot be used with COPY FROM")
            .with_hint("The compression of a file is recognised by its first bytes."));
    }
    let found = match given.to_lowercase().as_str() {
        "none" => Some(Compression::None),
        "gzip" => Some(Compression::Gzip),
        "zstd" => Some(Compression::Zstd),
        "snappy" => Some(Compression::Snappy),
        "lz4" => Some(Compression::Lz4),
        _ => None,
    };
    let (known, list): (&[Compression], _) = match format {
        CopyFormat::Parquet => (
            &[Compression::Zstd, Compression::Snappy, Compression::Gzip, Compression::Lz4, Compression::None],
            "zstd, snappy, gzip, lz4, none",
        ),
        CopyFormat::Arrow => (&[Compression::None, Compression::Zstd, Compression::Lz4], "none, zstd, lz4"),
        _ => (&[Compression::None, Compression::Gzip, Compression::Zstd], "none, gzip, zstd"),
    };
    found.filter(|found| known.contains(found)).ok_or_else(|| {
        let message =
            format!("COPY COMPRESSION \"{given}\" not recognized in {} mode", format.word().to_uppercase());
        Error::new(SqlState::INVALID_PARAMETER_VALUE, message).with_hint(format!("There are {list}."))
    })
}
