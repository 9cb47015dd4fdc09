//! Writing COPY's formats, so that [`crate::CopyReader`] and PostgreSQL read back what
//! was written.

use crate::binary;
use crate::json;
use crate::options::{CopyHeader, CopyOptions, RowFormat, forced};
use firn_base::{Result, SqlType, TimeZoneSetting, Value, text};

/// Turns rows into bytes.
pub struct CopyWriter {
    columns: Vec<(String, SqlType)>,
    options: CopyOptions,
    zone: TimeZoneSetting,
    /// One field before quoting and escaping.
    field: String,
}

impl CopyWriter {
    /// A writer of rows with these columns; moments are shown in `zone`.
    pub fn new(
        columns: Vec<(String, SqlType)>,
        options: CopyOptions,
        zone: TimeZoneSetting,
    ) -> Result<CopyWriter> {
        options.check()?;
        Ok(CopyWriter { columns, options, zone, field: String::new() })
    }

    /// Appends the header, if there is to be one. Call it first.
    pub fn write_header(&mut self, out: &mut Vec<u8>) {
        if self.options.format == RowFormat::Binary {
            return binary::write_header(out);
        }
        if self.options.header == CopyHeader::No || self.options.format == RowFormat::Json {
            return;
        }
        for (position, (name, _)) in self.columns.iter().enumerate() {
            if position > 0 {
                out.push(self.options.delimiter);
            }
            match self.options.format {
                RowFormat::Text => write_escaped(name, self.options.delimiter, out),
                RowFormat::Binary | RowFormat::Json => unreachable!("no header names its columns"),
                RowFormat::Csv => write_quoted(name, &self.options, false, self.columns.len() == 1, out),
            }
        }
        out.push(b'\n');
    }

    /// Appends one row, a value per column. Those of the binary format are [written](crate::write_binary_rows)
    /// from columns.
    pub fn write_row(&mut self, row: &[Value], out: &mut Vec<u8>) {
        assert_eq!(row.len(), self.columns.len());
        if self.options.format == RowFormat::Json {
            return json::write_row(&self.columns, row, &self.zone, &mut self.field, out);
        }
        for (position, (value, (_, ty))) in row.iter().zip(&self.columns).enumerate() {
            if position > 0 {
                out.push(self.options.delimiter);
            }
            if value.is_null() {
                out.extend_from_slice(self.options.null.as_bytes());
                continue;
            }
            let field = match value {
                Value::Text(text) => text,
                value => {
                    self.field.clear();
                    text::write(value, *ty, &self.zone, &mut self.field);
                    &self.field
                }
            };
            match self.options.format {
                RowFormat::Binary | RowFormat::Json => unreachable!("its rows are written elsewhere"),
                RowFormat::Text => write_escaped(field, self.options.delimiter, out),
                RowFormat::Csv => {
                    let quote = forced(&self.options.force_quote, position);
                    write_quoted(field, &self.options, quote, self.columns.len() == 1, out);
                }
            }
        }
        out.push(b'\n');
    }
}

impl CopyWriter {
    /// Appends what ends a file, if its format has such a thing. Call it last.
    pub fn write_trailer(&mut self, out: &mut Vec<u8>) {
        if self.options.format == RowFormat::Binary {
            binary::write_trailer(out);
        }
    }
}

/// Appends a field of the text format.
fn write_escaped(field: &str, delimiter: u8, out: &mut Vec<u8>) {
    for &byte in field.as_bytes() {
        let escape = match byte {
            8 => b'b',
            12 => b'f',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            11 => b'v',
            b'\\' => b'\\',
            byte if byte == delimiter => byte,
            byte => {
                out.push(byte);
                continue;
            }
        };
        out.extend_from_slice(&[b'\\', escape]);
    }
}

/// Appends a field of the CSV format, in quotes where it needs them.
fn write_quoted(field: &str, options: &CopyOptions, forced: bool, only_column: bool, out: &mut Vec<u8>) {
    let special =
        |byte: &u8| *byte == options.delimiter || *byte == options.quote || matches!(byte, b'\n' | b'\r');
    // A lone `\.` would end the file.
    let quoted = forced
        || field == options.null
        || only_column && field == "\\."
        || field.as_bytes().iter().any(special);
    if !quoted {
        out.extend_from_slice(field.as_bytes());
        return;
    }
    out.push(options.quote);
    for &byte in field.as_bytes() {
        if byte == options.quote || byte == options.escape {
            out.push(options.escape);
        }
        out.push(byte);
    }
    out.push(options.quote);
}
