//! Commands that begin with a backslash.

use std::fs::{File, Metadata};
use std::io::{self, BufWriter, Read, Write};

use firn_base::clock;

use super::progress::Watch;
use super::table::Expanded;
use super::{Shell, Stop, say, with_position};
use crate::client::{Client, Report};

const HELP: &str = r"\?                       this list
\q                       ends the shell
\d [NAME]                tables, views and sequences, or the columns and indexes of NAME
\dt \di \dv \ds [NAME]   tables, indexes, views, sequences
\dn                      schemas
\temperature [NAME]      the parts of each table that are hot, cooling, frozen or compact
\l                       databases
\copy TABLE|(QUERY) FROM|TO FILE [OPTIONS]
                         copies between a table and a file of the client
\i FILE                  runs a file
\timing [on|off]         shows the time of statements, or not
\x [on|off|auto]         one line per column instead of per row
\pset null TEXT          the text for NULL in results
\echo TEXT               prints a text
\conninfo                the database, user and server of the connection
\restrict \unrestrict KEY
                         disables commands, as in dumps of PostgreSQL, and enables them
\r \p                    clears or shows the statement that is being entered
NAME may contain * and ?. Statements end with a semicolon, with \g, or with \gx for one line per
column.";

/// The states of blocks, and the sign of each in a bar.
const TEMPERATURES: [(&str, char); 5] =
    [("hot", '█'), ("cooling", '▓'), ("freezing", '▒'), ("frozen", '░'), ("compact", '·')];

/// The length of a bar.
const BAR: usize = 40;

/// A bar of parts in proportion to the counts; a part that is not empty is visible.
fn bar(counts: &[usize]) -> String {
    let all: usize = counts.iter().sum::<usize>().max(1);
    let mut lengths: Vec<usize> =
        counts.iter().map(|count| (count * BAR / all).max(usize::from(*count > 0))).collect();
    // The longest part compensates rounding, and the least length of small parts.
    let sum: usize = lengths.iter().sum();
    if let Some(longest) = lengths.iter_mut().max() {
        *longest = (*longest + BAR).saturating_sub(sum);
    }
    (lengths.iter().zip(TEMPERATURES))
        .flat_map(|(length, (_, sign))| std::iter::repeat_n(sign, *length))
        .collect()
}

/// Whether the shell continues after a command.
pub enum After {
    GoOn,
    Quit,
}

impl Shell {
    /// Runs a command.
    pub(super) fn run_command(&mut self, line: &str) -> Result<After, Stop> {
        let (name, rest) = match line.find(char::is_whitespace) {
            Some(end) => (&line[..end], line[end..].trim()),
            None => (line, ""),
        };
        // A semicolon after a command is ignored.
        let argument = rest.trim_end_matches(';').trim_end();
        if let Some(key) = &self.restricted
            && (name != r"\unrestrict" || key != argument)
        {
            eprintln!(
                "\\{}: only \\unrestrict with the right key is allowed here",
                name.trim_start_matches('\\')
            );
            return Err(Stop);
        }
        match name {
            r"\restrict" if !argument.is_empty() => self.restricted = Some(argument.to_owned()),
            r"\restrict" => return self.misused(r"\restrict KEY"),
            r"\unrestrict" if self.restricted.is_some() => self.restricted = None,
            r"\unrestrict" => return self.misused(r"\unrestrict after \restrict KEY"),
            r"\q" | r"\quit" => return Ok(After::Quit),
            r"\?" | r"\h" | r"\help" => say(HELP)?,
            r"\echo" => say(unquote(rest))?,
            r"\timing" => {
                self.timing = self.switch(argument, self.timing)?;
                say(format_args!("Timing is {}.", if self.timing { "on" } else { "off" }))?;
            }
            r"\x" => {
                self.style.expanded = match argument {
                    "auto" => Expanded::Auto,
                    _ if self.switch(argument, self.style.expanded != Expanded::Off)? => Expanded::On,
                    _ => Expanded::Off,
                };
                say(match self.style.expanded {
                    Expanded::Off => "Expanded display is off.",
                    Expanded::On => "Expanded display is on.",
                    Expanded::Auto => "Expanded display is used automatically.",
                })?;
            }
            r"\pset" => match argument.split_once(char::is_whitespace) {
                Some(("null", text)) => self.style.null = unquote(text.trim()).to_owned(),
                _ => return self.misused(r"\pset null TEXT"),
            },
            r"\conninfo" => self.show_connection()?,
            r"\i" | r"\include" if !argument.is_empty() => self.include(unquote(argument))?,
            r"\r" | r"\p" => say("Query buffer is empty.")?,
            r"\i" | r"\include" => return self.misused(r"\i FILE"),
            r"\copy" => {
                let began = clock::now();
                let (sql, outcome) = self.copy(argument)?;
                self.after_statement(&sql, outcome, began)?;
            }
            r"\d" | r"\d+" if !argument.is_empty() => self.describe(argument)?,
            r"\d" | r"\d+" => self.list("'r', 'v', 'S'", argument)?,
            r"\dt" | r"\dt+" => self.list("'r'", argument)?,
            r"\dv" | r"\dv+" => self.list("'v'", argument)?,
            r"\ds" | r"\ds+" => self.list("'S'", argument)?,
            r"\di" | r"\di+" => self.list("'i'", argument)?,
            r"\temperature" => self.show_temperature(argument)?,
            r"\dn" | r"\dn+" => self.show(
                "SELECT nspname AS \"Name\" FROM pg_catalog.pg_namespace \
                 WHERE nspname NOT LIKE 'pg\\_%' AND nspname <> 'information_schema' ORDER BY 1",
            )?,
            r"\l" | r"\l+" => {
                self.show("SELECT datname AS \"Name\" FROM pg_catalog.pg_database ORDER BY 1")?;
            }
            _ => {
                eprintln!("invalid command {name}");
                eprintln!("Try \\? for help.");
                return Err(Stop);
            }
        }
        Ok(After::GoOn)
    }

    /// A bar per table, of its blocks by state.
    fn show_temperature(&mut self, pattern: &str) -> Result<(), Stop> {
        let filter = match pattern {
            "" => String::new(),
            pattern => name_filter(pattern),
        };
        let states = TEMPERATURES.map(|(state, _)| format!("count(*) FILTER (WHERE b.state = '{state}')"));
        let sql = format!(
            "SELECT b.schemaname, b.relname, {}, sum(b.rows), sum(b.bytes) FROM pg_catalog.firn_blocks b \
             JOIN pg_catalog.pg_class c ON c.oid = b.relid \
             JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
             WHERE b.bytes > 0 {filter} GROUP BY 1, 2 ORDER BY 1, 2",
            states.join(", ")
        );
        let table = match self.rows(&sql) {
            Ok(table) => table,
            Err(report) => return self.complain(&report),
        };
        if table.rows.is_empty() {
            return say("Did not find any tables with rows.");
        }
        let mut rows: Vec<Vec<String>> = table
            .rows
            .into_iter()
            .map(|row| row.into_iter().map(Option::unwrap_or_default).collect())
            .collect();
        for row in rows.iter_mut().filter(|row| row[0] != "public") {
            row[1] = format!("{}.{}", row[0], row[1]);
        }
        let longest = rows.iter().map(|row| row[1].chars().count()).max().unwrap_or(0);
        for row in rows {
            let count = |at: usize| row[at].parse::<usize>().unwrap_or(0);
            let blocks: Vec<usize> = (2..2 + TEMPERATURES.len()).map(count).collect();
            let shares: Vec<String> = (TEMPERATURES.iter().zip(&blocks))
                .filter(|(_, count)| **count > 0)
                .map(|((state, _), count)| format!("{count} {state}"))
                .collect();
            let (name, rows) = (&row[1], &row[2 + TEMPERATURES.len()]);
            say(format_args!("{name:longest$} {} {rows} rows: {}", bar(&blocks), shares.join(", ")))?;
        }
        let legend = TEMPERATURES.map(|(state, sign)| format!("{sign} {state}"));
        say(legend.join("  "))
    }

    fn show_connection(&mut self) -> Result<(), Stop> {
        match self.rows("SELECT current_user, current_database()") {
            Ok(table) => {
                let cell =
                    |index: usize| table.rows.first().and_then(|row| row[index].clone()).unwrap_or_default();
                say(format_args!(
                    "You are connected to database \"{}\" as user \"{}\" {}, {}server {}.",
                    cell(1),
                    cell(0),
                    self.place,
                    if self.client.is_encrypted() { "encrypted, " } else { "" },
                    self.client.server_version()
                ))
            }
            Err(report) => self.complain(&report),
        }
    }

    fn switch(&self, argument: &str, now: bool) -> Result<bool, Stop> {
        match argument {
            "" => Ok(!now),
            "on" | "true" | "1" => Ok(true),
            "off" | "false" | "0" => Ok(false),
            other => {
                eprintln!("\"{other}\" is neither on nor off");
                Err(Stop)
            }
        }
    }

    fn misused(&self, usage: &str) -> Result<After, Stop> {
        eprintln!("usage: {usage}");
        Err(Stop)
    }

    fn show(&mut self, sql: &str) -> Result<(), Stop> {
        match self.rows(sql) {
            Ok(table) => write!(io::stdout(), "{}", table.render(&self.style)).map_err(|_| Stop),
            Err(report) => self.complain(&report),
        }
    }

    fn complain(&self, report: &Report) -> Result<(), Stop> {
        eprint!("{}", with_position(report, ""));
        Err(Stop)
    }

    /// Lists relations of some kinds (`pg_class.relkind`) whose name matches a pattern.
    fn list(&mut self, kinds: &str, pattern: &str) -> Result<(), Stop> {
        let filter = match pattern {
            "" => "AND n.nspname NOT IN ('pg_catalog', 'information_schema')".to_owned(),
            pattern => name_filter(pattern),
        };
        let indexes = kinds == "'i'";
        let (on, join) = if indexes {
            (
                ", t.relname AS \"Table\"",
                "JOIN pg_catalog.pg_index i ON i.indexrelid = c.oid \
                 JOIN pg_catalog.pg_class t ON t.oid = i.indrelid",
            )
        } else {
            ("", "")
        };
        let sql = format!(
            "SELECT n.nspname AS \"Schema\", c.relname AS \"Name\", CASE c.relkind WHEN 'r' THEN 'table' \
             WHEN 'v' THEN 'view' WHEN 'i' THEN 'index' WHEN 'S' THEN 'sequence' END AS \"Type\"{on} \
             FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace {join} \
             WHERE c.relkind IN ({kinds}) {filter} ORDER BY 1, 2"
        );
        match self.rows(&sql) {
            Ok(table) if table.rows.is_empty() && pattern.is_empty() => say("Did not find any relations."),
            Ok(table) if table.rows.is_empty() => {
                say(format_args!("Did not find any relation named \"{pattern}\"."))
            }
            Ok(table) => write!(io::stdout(), "{}", table.render(&self.style)).map_err(|_| Stop),
            Err(report) => self.complain(&report),
        }
    }

    /// Shows the columns of each relation that matches, and its indexes and constraints.
    fn describe(&mut self, pattern: &str) -> Result<(), Stop> {
        let filter = name_filter(pattern);
        let found = self.rows(&format!(
            "SELECT c.oid, n.nspname, c.relname, c.relkind FROM pg_catalog.pg_class c \
             JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
             WHERE c.relkind IN ('r', 'v', 'i', 'S') {filter} ORDER BY 2, 3"
        ));
        let found = match found {
            Ok(found) => found,
            Err(report) => return self.complain(&report),
        };
        if found.rows.is_empty() {
            eprintln!("Did not find any relation named \"{pattern}\".");
            return Err(Stop);
        }
        for row in found.rows {
            let cell = |index: usize| row[index].clone().unwrap_or_default();
            let (oid, schema, name, kind) = (cell(0), cell(1), cell(2), cell(3));
            let kind = match kind.as_str() {
                "r" => "Table",
                "v" => "View",
                "i" => "Index",
                _ => "Sequence",
            };
            say(format_args!("{kind} \"{schema}.{name}\""))?;
            self.show(&format!(
                "SELECT a.attname AS \"Column\", pg_catalog.format_type(a.atttypid, a.atttypmod) AS \"Type\", \
                 CASE WHEN a.attnotnull THEN 'not null' ELSE '' END AS \"Nullable\", \
                 coalesce(pg_catalog.pg_get_expr(d.adbin, d.adrelid), '') AS \"Default\" \
                 FROM pg_catalog.pg_attribute a LEFT JOIN pg_catalog.pg_attrdef d \
                 ON d.adrelid = a.attrelid AND d.adnum = a.attnum \
                 WHERE a.attrelid = {oid} AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"
            ))?;
            if kind == "Table" {
                self.footer(
                    "Indexes",
                    &format!(
                        "SELECT pg_catalog.pg_get_indexdef(indexrelid) FROM pg_catalog.pg_index \
                         WHERE indrelid = {oid} ORDER BY 1"
                    ),
                )?;
                self.footer(
                    "Constraints",
                    &format!(
                        "SELECT conname, pg_catalog.pg_get_constraintdef(oid) FROM pg_catalog.pg_constraint \
                         WHERE conrelid = {oid} AND contype IN ('c', 'f') ORDER BY 1"
                    ),
                )?;
            }
            say("")?;
        }
        Ok(())
    }

    fn footer(&mut self, title: &str, sql: &str) -> Result<(), Stop> {
        match self.rows(sql) {
            Ok(table) if table.rows.is_empty() => Ok(()),
            Ok(table) => {
                say(format_args!("{title}:"))?;
                for row in table.rows {
                    say(format_args!("    {}", row.into_iter().flatten().collect::<Vec<_>>().join(" ")))?;
                }
                Ok(())
            }
            Err(report) => self.complain(&report),
        }
    }

    /// `\copy`: the statement with STDIN or STDOUT in place of the file, and its result.
    fn copy(&mut self, argument: &str) -> Result<(String, Result<(), super::Trouble>), Stop> {
        let Some((what, direction, path, options)) = parse_copy(argument) else {
            self.misused(r"\copy TABLE|(QUERY) FROM|TO FILE [OPTIONS]")?;
            return Err(Stop);
        };
        let failed = |error: io::Error| {
            eprintln!("{path}: {error}");
            Stop
        };
        let mut no_feed = |_: &mut Client| Ok(());
        if direction == "FROM" {
            let mut file = File::open(path).map_err(failed)?;
            let sql = format!("COPY {what} FROM STDIN {options}");
            let metadata = file.metadata().ok().filter(Metadata::is_file);
            let bytes_in_all = metadata.map(|metadata| metadata.len());
            let mut feed = |client: &mut Client| feed_file(&mut file, client);
            let watch = Watch::start(&self.client, bytes_in_all);
            let outcome = self.run_script(&sql, &mut feed, &mut io::stdout());
            drop(watch);
            Ok((sql, outcome))
        } else {
            let mut file = BufWriter::new(File::create(path).map_err(failed)?);
            let sql = format!("COPY {what} TO STDOUT {options}");
            // The command tag must be printed on the terminal, not after the data.
            let mut out = DataOnly { file: &mut file, tag: None };
            let watch = Watch::start(&self.client, None);
            let outcome = self.run_script(&sql, &mut no_feed, &mut out);
            drop(watch);
            if let Some(tag) = out.tag {
                say(tag)?;
            }
            Ok((sql, outcome))
        }
    }
}

fn feed_file(file: &mut File, client: &mut Client) -> Result<(), Report> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(client.copy_end(None)?),
            Ok(read) => client.copy_data(&buffer[..read])?,
            Err(error) => return Ok(client.copy_end(Some(&error.to_string()))?),
        }
    }
}

/// Passes data on to a file and keeps the command tag that follows it.
struct DataOnly<'a> {
    file: &'a mut BufWriter<File>,
    tag: Option<String>,
}

impl Write for DataOnly<'_> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.file.write(data)
    }

    /// Only the tag is formatted; data is written as bytes.
    fn write_fmt(&mut self, text: std::fmt::Arguments<'_>) -> io::Result<()> {
        self.tag = Some(text.to_string().trim_end().to_owned());
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Splits `\copy`'s argument into what, direction, file, options.
fn parse_copy(argument: &str) -> Option<(&str, &'static str, &str, &str)> {
    let what_end = if argument.starts_with('(') {
        closing_parenthesis(argument)? + 1
    } else {
        // A name, optionally with a list of columns.
        let end = argument.find([' ', '\t', '('])?;
        let after = argument[end..].trim_start();
        let skipped = argument.len() - after.len();
        if after.starts_with('(') { skipped + closing_parenthesis(after)? + 1 } else { end }
    };
    let (what, rest) = argument.split_at(what_end);
    let rest = rest.trim_start();
    let (word, rest) = rest.split_once(char::is_whitespace)?;
    let direction = if word.eq_ignore_ascii_case("from") {
        "FROM"
    } else if word.eq_ignore_ascii_case("to") {
        "TO"
    } else {
        return None;
    };
    let rest = rest.trim_start();
    let (path, options) = match rest.strip_prefix('\'') {
        Some(quoted) => quoted.split_once('\'')?,
        None => rest.split_once(char::is_whitespace).unwrap_or((rest, "")),
    };
    (!path.is_empty()).then_some((what, direction, path, options.trim()))
}

/// The position of the closing parenthesis of the one at the beginning of a text.
fn closing_parenthesis(text: &str) -> Option<usize> {
    let mut depth = 0;
    let mut quoted = false;
    for (index, character) in text.char_indices() {
        match character {
            '\'' => quoted = !quoted,
            '(' if !quoted => depth += 1,
            ')' if !quoted => {
                depth -= 1;
                if depth == 0 {
                    return Some(index);
                }
            }
            _ => {}
        }
    }
    None
}

fn unquote(text: &str) -> &str {
    text.strip_prefix('\'').and_then(|text| text.strip_suffix('\'')).unwrap_or(text)
}

/// A condition on `n.nspname` and `c.relname` for a pattern like `sales.o*`.
fn name_filter(pattern: &str) -> String {
    let like = |pattern: &str| {
        let mut like = String::from("'");
        let quoted = pattern.strip_prefix('"').and_then(|pattern| pattern.strip_suffix('"'));
        for character in quoted.unwrap_or(&pattern.to_lowercase()).chars() {
            match character {
                '*' => like.push('%'),
                '?' => like.push('_'),
                '_' | '%' | '\\' => like.extend(['\\', character]),
                '\'' => like.push_str("''"),
                other => like.push(other),
            }
        }
        like + "'"
    };
    match pattern.split_once('.') {
        Some((schema, name)) => {
            format!("AND n.nspname LIKE {} AND c.relname LIKE {}", like(schema), like(name))
        }
        None => format!("AND c.relname LIKE {}", like(pattern)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copy_commands_come_apart() {
        assert_eq!(parse_copy("t from f.csv"), Some(("t", "FROM", "f.csv", "")));
        assert_eq!(
            parse_copy("t (a, b)  FROM 'my file' WITH (FORMAT csv)"),
            Some(("t (a, b)", "FROM", "my file", "WITH (FORMAT csv)"))
        );
        assert_eq!(
            parse_copy("(SELECT ')' FROM t) TO x csv"),
            Some(("(SELECT ')' FROM t)", "TO", "x", "csv"))
        );
        for bad in ["", "t", "t from", "t into f", "(SELECT 1 to f", "t from 'f"] {
            assert_eq!(parse_copy(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_bar_is_always_as_long_and_shows_what_there_is() {
        for counts in [[0, 0, 0, 1, 0], [1, 0, 0, 1_000_000, 1], [3, 3, 3, 3, 3], [7, 11, 0, 500, 2]] {
            let bar = bar(&counts);
            assert_eq!(bar.chars().count(), BAR, "{bar}");
            for (count, (_, sign)) in counts.iter().zip(TEMPERATURES) {
                assert_eq!(bar.contains(sign), *count > 0, "{bar}");
            }
        }
    }

    #[test]
    fn patterns_match_literally_but_for_stars_and_question_marks() {
        assert_eq!(name_filter("Or_d*"), r"AND c.relname LIKE 'or\_d%'");
        assert_eq!(name_filter("s.\"It's?\""), r"AND n.nspname LIKE 's' AND c.relname LIKE 'It''s_'");
    }
}
