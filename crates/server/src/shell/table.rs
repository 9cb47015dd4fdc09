//! Results in psql's layout: aligned columns, or one line per column (`\x`).

use std::fmt::Write;

use firn_base::TypeId;
use unicode_width::UnicodeWidthStr;

use crate::client::Column;

/// How results are printed.
#[derive(Clone, Debug)]
pub struct Style {
    /// One line per column rather than per row.
    pub expanded: Expanded,
    /// The text of NULL.
    pub null: String,
    /// Columns of the terminal, if there is one.
    pub width: Option<usize>,
}

/// When a result is printed with one line per column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expanded {
    /// Never.
    Off,
    /// Always.
    On,
    /// When it would be too wide for the terminal otherwise.
    Auto,
}

/// A whole result.
pub struct Table {
    pub columns: Vec<Column>,
    pub rows: Vec<Vec<Option<String>>>,
}

impl Table {
    /// The table as text, with its row count.
    pub fn render(&self, style: &Style) -> String {
        let aligned = || Aligned::new(self, style);
        match style.expanded {
            Expanded::Off => aligned().render(),
            Expanded::On => self.render_expanded(style),
            Expanded::Auto => {
                let aligned = aligned();
                match style.width {
                    Some(width) if aligned.width() > width => self.render_expanded(style),
                    _ => aligned.render(),
                }
            }
        }
    }

    fn render_expanded(&self, style: &Style) -> String {
        let mut out = String::new();
        if self.rows.is_empty() {
            out.push_str("(0 rows)\n");
            return out;
        }
        let name_width = self.columns.iter().map(|column| column.name.width()).max().unwrap_or(0);
        let cells = || self.rows.iter().flatten();
        let lines = cells().flat_map(|cell| text_of(cell, style).lines());
        let value_width = lines.map(UnicodeWidthStr::width).max().unwrap_or(0);
        for (number, row) in self.rows.iter().enumerate() {
            let mut header = format!("-[ RECORD {} ]", number + 1);
            while header.len() < name_width + value_width + 3 {
                header.push(if header.len() == name_width + 1 { '+' } else { '-' });
            }
            out.push_str(&header);
            out.push('\n');
            for (column, cell) in self.columns.iter().zip(row) {
                let mut name = column.name.as_str();
                for line in lines_of(text_of(cell, style)) {
                    let _ = writeln!(out, "{} | {line}", padded(name, name_width));
                    name = "";
                }
            }
        }
        out
    }
}

fn text_of<'a>(cell: &'a Option<String>, style: &'a Style) -> &'a str {
    cell.as_deref().unwrap_or(&style.null)
}

/// The lines of a cell; unlike `str::lines`, an empty cell has one.
fn lines_of(text: &str) -> std::str::Split<'_, char> {
    text.split('\n')
}

fn padded(text: &str, width: usize) -> String {
    let mut padded = text.to_owned();
    padded.extend(std::iter::repeat_n(' ', width.saturating_sub(text.width())));
    padded
}

/// A table with its columns' widths.
struct Aligned<'a> {
    table: &'a Table,
    style: &'a Style,
    widths: Vec<usize>,
}

impl<'a> Aligned<'a> {
    fn new(table: &'a Table, style: &'a Style) -> Aligned<'a> {
        let mut widths: Vec<usize> = table.columns.iter().map(|column| column.name.width()).collect();
        for row in &table.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                let widest = lines_of(text_of(cell, style)).map(UnicodeWidthStr::width).max();
                *width = (*width).max(widest.unwrap_or(0));
            }
        }
        Aligned { table, style, widths }
    }

    fn width(&self) -> usize {
        self.widths.iter().map(|width| width + 3).sum::<usize>().saturating_sub(1)
    }

    fn render(&self) -> String {
        let mut out = String::new();
        for (index, (column, width)) in self.table.columns.iter().zip(&self.widths).enumerate() {
            let spare = width - column.name.width();
            let left = spare / 2;
            let separator = if index == 0 { " " } else { "| " };
            let (before, after) = (" ".repeat(left), " ".repeat(spare - left));
            let _ = write!(out, "{separator}{before}{}{after} ", column.name);
        }
        out.push('\n');
        let rules: Vec<String> = self.widths.iter().map(|width| "-".repeat(width + 2)).collect();
        out.push_str(&rules.join("+"));
        out.push('\n');
        for row in &self.table.rows {
            self.render_row(row, &mut out);
        }
        let rows = self.table.rows.len();
        let _ = writeln!(out, "({rows} row{})", if rows == 1 { "" } else { "s" });
        out
    }

    /// A row has as many lines as its tallest cell; `+` marks a cell that continues below.
    fn render_row(&self, row: &[Option<String>], out: &mut String) {
        let cells: Vec<Vec<&str>> =
            row.iter().map(|cell| lines_of(text_of(cell, self.style)).collect()).collect();
        let height = cells.iter().map(Vec::len).max().unwrap_or(1);
        for line in 0..height {
            for (index, (cell, width)) in cells.iter().zip(&self.widths).enumerate() {
                let text = cell.get(line).copied().unwrap_or("");
                let has_more = line + 1 < cell.len();
                let is_last = index + 1 == cells.len();
                out.push_str(if index == 0 { " " } else { "| " });
                if is_right_aligned(self.table.columns[index].type_oid) {
                    out.extend(std::iter::repeat_n(' ', width - text.width()));
                    out.push_str(text);
                } else if is_last && !has_more {
                    out.push_str(text);
                } else {
                    out.push_str(&padded(text, *width));
                }
                if has_more {
                    out.push('+');
                } else if !is_last {
                    out.push(' ');
                }
            }
            out.push('\n');
        }
    }
}

/// Numbers are aligned right; so are oids and transaction numbers, as in psql.
fn is_right_aligned(type_oid: u32) -> bool {
    matches!(
        TypeId(type_oid),
        TypeId::INT2
            | TypeId::INT4
            | TypeId::INT8
            | TypeId::FLOAT4
            | TypeId::FLOAT8
            | TypeId::NUMERIC
            | TypeId::OID
            | TypeId::XID
            | TypeId::CID
            | TypeId::XID8
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(columns: &[(&str, TypeId)], rows: &[&[Option<&str>]]) -> Table {
        let column = |(name, ty): &(&str, TypeId)| Column { name: (*name).to_owned(), type_oid: ty.0 };
        Table {
            columns: columns.iter().map(column).collect(),
            rows: rows.iter().map(|row| row.iter().map(|cell| cell.map(str::to_owned)).collect()).collect(),
        }
    }

    fn style(expanded: Expanded) -> Style {
        Style { expanded, null: String::new(), width: Some(20) }
    }

    fn sample() -> Table {
        table(
            &[("id", TypeId::INT4), ("name", TypeId::TEXT), ("note", TypeId::TEXT)],
            &[&[Some("1"), Some("雪"), Some("two\nlines")], &[Some("-20"), None, Some("x")]],
        )
    }

    #[test]
    fn columns_align_like_psql_with_wide_characters_nulls_and_lines() {
        let expected = concat!(
            " id  | name | note  \n",
            "-----+------+-------\n",
            "   1 | 雪   | two  +\n",
            "     |      | lines\n",
            " -20 |      | x\n",
            "(2 rows)\n",
        );
        assert_eq!(sample().render(&style(Expanded::Off)), expected);
        let empty = table(&[("a", TypeId::TEXT)], &[]);
        assert_eq!(empty.render(&style(Expanded::Off)), " a \n---\n(0 rows)\n");
        let no_columns = table(&[], &[&[]]);
        assert_eq!(no_columns.render(&style(Expanded::Off)), "\n\n\n(1 row)\n");
    }

    #[test]
    fn expanded_results_have_a_line_per_column() {
        let expected = concat!(
            "-[ RECORD 1 ]\n",
            "id   | 1\n",
            "name | 雪\n",
            "note | two\n",
            "     | lines\n",
            "-[ RECORD 2 ]\n",
            "id   | -20\n",
            "name | NULL\n",
            "note | x\n",
        );
        let style = Style { null: "NULL".into(), ..style(Expanded::On) };
        assert_eq!(sample().render(&style), expected);
    }

    #[test]
    fn automatic_style_looks_at_the_terminal() {
        let style = style(Expanded::Auto);
        assert!(sample().render(&style).starts_with(" id "));
        assert!(sample().render(&Style { width: Some(19), ..style }).starts_with("-["));
    }
}
