//! Writing COPY's formats, so that [`crate::CopyReader`] and PostgreSQL can read
//! the output.

use crate::kind::{Kind, kinds};
use crate::options::{CopyHeader, CopyOptions, RowFormat};
use crate::text_rows::{self, TextRows};
use crate::{binary, binary_rows};
use arrow_array::ArrayRef;
use firn_base::{Result, TextStyle, Type};

/// Turns columns into the bytes of rows. Several threads may do so at once, each with rows of its own.
pub struct CopyWriter {
    columns: Vec<(String, Kind)>,
    options: CopyOptions,
    rows: Rows,
}

/// What writes rows.
enum Rows {
    Text(Box<TextRows>),
    /// The columns' kinds.
    Binary(Vec<Kind>),
}

impl CopyWriter {
    /// A writer of rows with these columns.
    pub fn new<T: Into<Type>>(
        columns: Vec<(String, T)>,
        options: CopyOptions,
        style: TextStyle,
    ) -> Result<CopyWriter> {
        options.check()?;
        let columns = kinds(columns);
        let rows = match options.format {
            RowFormat::Binary => Rows::Binary(columns.iter().map(|(_, kind)| *kind).collect()),
            _ => Rows::Text(Box::new(TextRows::new(&columns, &options, style))),
        };
        Ok(CopyWriter { columns, options, rows })
    }

    /// Appends the header, if there is one. It comes first.
    pub fn write_header(&self, out: &mut Vec<u8>) {
        let mut header = String::new();
        match self.options.format {
            RowFormat::Binary => return binary::write_header(out),
            RowFormat::Json => return,
            _ if self.options.header == CopyHeader::No => return,
            RowFormat::Text | RowFormat::Csv => {}
        }
        for (position, (name, _)) in self.columns.iter().enumerate() {
            if position > 0 {
                header.push(char::from(self.options.delimiter));
            }
            match self.options.format {
                RowFormat::Csv => {
                    let is_only_column = self.columns.len() == 1;
                    text_rows::write_quoted(name, &self.options, false, is_only_column, &mut header);
                }
                _ => text_rows::write_escaped(name, self.options.delimiter, &mut header),
            }
        }
        header.push('\n');
        out.extend_from_slice(header.as_bytes());
    }

    /// Appends `rows` rows of columns that have the Arrow types in which tables store values of their types. Decimals may have
    /// any scale, and in text formats a column may have the Arrow type of another SQL type, whose texts are then written. Panics if
    /// a column has no such type.
    pub fn write_rows(&self, columns: &[ArrayRef], rows: usize, out: &mut Vec<u8>) {
        match &self.rows {
            Rows::Binary(kinds) => binary_rows::write(columns, kinds, rows, out),
            Rows::Text(writer) => {
                let mut text = String::new();
                writer.write(columns, rows, &mut text);
                out.append(&mut text.into_bytes());
            }
        }
    }

    /// Appends the trailer, if its format has one. It comes last.
    pub fn write_trailer(&self, out: &mut Vec<u8>) {
        if self.options.format == RowFormat::Binary {
            binary::write_trailer(out);
        }
    }
}
