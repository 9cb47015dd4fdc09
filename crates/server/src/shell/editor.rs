//! The sources of the shell's lines: a person at a terminal, with history and completion, or a
//! file or pipe.

use std::cell::RefCell;
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::rc::Rc;

use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::history::DefaultHistory;
use rustyline::{CompletionType, Config, Context, Editor, Helper, Highlighter, Hinter, Validator};

use super::query_rows;
use crate::client::{Client, Report};

/// The result of reading a line.
pub enum Line {
    /// A line without its end.
    Text(String),
    /// Ctrl-C at the prompt: the statement is dropped.
    Interrupted,
    /// There are no more.
    End,
}

/// A source of lines.
pub enum Lines {
    /// A person.
    Editor(Box<Prompt>),
    /// A file or pipe.
    Reader(Box<dyn BufRead>),
}

/// The line editor and its state.
pub struct Prompt {
    editor: Editor<Completion, DefaultHistory>,
    history: Option<PathBuf>,
    /// Lines that will be one entry of the history.
    entry: Vec<String>,
    names: Names,
    names_are_stale: bool,
}

impl Lines {
    /// Lines of a file or pipe.
    pub fn reader(reader: Box<dyn BufRead>) -> Lines {
        Lines::Reader(reader)
    }

    /// Lines of a person at the terminal.
    pub fn editor() -> Result<Lines, String> {
        let config = Config::builder()
            .auto_add_history(false)
            .completion_type(CompletionType::List)
            .max_history_size(10_000)
            .map_err(|error| error.to_string())?
            .build();
        let names = Names::default();
        let mut editor = Editor::with_config(config).map_err(|error| error.to_string())?;
        editor.set_helper(Some(Completion { names: names.clone() }));
        let history = history_path();
        if let Some(path) = &history {
            let _ = editor.load_history(path); // There is none yet the first time.
        }
        Ok(Lines::Editor(Box::new(Prompt {
            editor,
            history,
            entry: Vec::new(),
            names,
            names_are_stale: true,
        })))
    }

    /// The next line.
    pub fn next(&mut self, prompt: &str) -> Line {
        match self {
            Lines::Reader(reader) => {
                let mut bytes = Vec::new();
                match reader.read_until(b'\n', &mut bytes) {
                    Ok(0) | Err(_) => Line::End,
                    Ok(_) => {
                        let line = String::from_utf8_lossy(&bytes);
                        let line = line.strip_suffix('\n').unwrap_or(&line);
                        Line::Text(line.strip_suffix('\r').unwrap_or(line).to_owned())
                    }
                }
            }
            Lines::Editor(person) => match person.editor.readline(prompt) {
                Ok(line) => {
                    person.entry.push(line.clone());
                    Line::Text(line)
                }
                Err(ReadlineError::Interrupted) => Line::Interrupted,
                Err(_) => Line::End,
            },
        }
    }

    /// The lines since the last call become one entry of the history, so that a statement is recalled as
    /// a whole.
    pub fn end_history_entry(&mut self) {
        if let Lines::Editor(person) = self {
            let entry = std::mem::take(&mut person.entry).join("\n");
            person.remember(entry.trim());
        }
    }

    /// Columns of the terminal.
    pub fn width(&mut self) -> Option<usize> {
        match self {
            Lines::Editor(person) => person.editor.dimensions().map(|(columns, _)| columns),
            Lines::Reader(_) => None,
        }
    }

    /// Sends the following lines, up to `\.`, to a COPY … FROM STDIN.
    pub fn feed_copy(&mut self, client: &mut Client) -> Result<(), Report> {
        if let Lines::Editor(_) = self {
            println!("Enter data to be copied followed by a newline.");
            println!("End with a backslash and a period on a line by itself, or Ctrl-D.");
        }
        self.end_history_entry();
        loop {
            let line = self.next(">> ");
            if let Lines::Editor(person) = self {
                person.entry.clear(); // Data is no statement.
            }
            match line {
                Line::Text(line) if line == "\\." => break,
                Line::Text(line) => {
                    client.copy_data(line.as_bytes())?;
                    client.copy_data(b"\n")?;
                }
                Line::Interrupted => return Ok(client.copy_end(Some("canceled by user"))?),
                Line::End => break,
            }
        }
        Ok(client.copy_end(None)?)
    }

    /// Records that a statement has run, after which tables may have other names.
    pub fn note_statement(&mut self, sql: &str) {
        if let Lines::Editor(person) = self {
            let word = sql.split_ascii_whitespace().next().unwrap_or("");
            let changes = ["create", "alter", "drop", "rollback"];
            person.names_are_stale |= changes.iter().any(|change| word.eq_ignore_ascii_case(change));
        }
    }

    /// Queries the names of tables and columns again if they may have changed. Not inside a
    /// transaction block: a failing query would fail the block.
    pub fn refresh_names(&mut self, client: &mut Client) {
        const NAMES: &str = "SELECT table_name FROM information_schema.tables \
                             UNION SELECT column_name FROM information_schema.columns \
                             WHERE table_schema NOT IN ('pg_catalog', 'information_schema')";
        if let Lines::Editor(person) = self
            && person.names_are_stale
            && client.status() == b'I'
            && let Ok(table) = query_rows(client, NAMES)
        {
            let names = table.rows.into_iter().filter_map(|row| row.into_iter().next().flatten());
            *person.names.borrow_mut() = names.collect();
            person.names_are_stale = false;
        }
        let _ = std::io::stdout().flush();
    }
}

impl Prompt {
    fn remember(&mut self, entry: &str) {
        if entry.is_empty() {
            return;
        }
        let _ = self.editor.add_history_entry(entry);
        if let Some(path) = &self.history {
            let _ = self.editor.append_history(path); // A shell without history is still a shell.
        }
    }
}

/// `firndb/history` in the user's data directory, which is created if it is missing.
fn history_path() -> Option<PathBuf> {
    let data = match std::env::var_os("XDG_DATA_HOME").filter(|path| !path.is_empty()) {
        Some(path) => PathBuf::from(path),
        None => PathBuf::from(std::env::var_os("HOME")?).join(".local/share"),
    };
    let directory = data.join("firndb");
    std::fs::create_dir_all(&directory).ok()?;
    Some(directory.join("history"))
}

/// Names of tables and columns, shared with the completer inside the editor.
type Names = Rc<RefCell<Vec<String>>>;

#[derive(Helper, Highlighter, Hinter, Validator)]
struct Completion {
    names: Names,
}

impl Completer for Completion {
    type Candidate = String;

    fn complete(&self, line: &str, end: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        let start = line[..end]
            .rfind(|character: char| !is_word(character))
            .map_or(0, |at| at + line[at..].chars().next().map_or(0, char::len_utf8));
        Ok((start, completions(&line[start..end], &self.names.borrow())))
    }
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// Names and keywords that begin with `word`; keywords in the case in which it is typed.
fn completions(word: &str, names: &[String]) -> Vec<String> {
    if word.is_empty() {
        return Vec::new();
    }
    let begins = |candidate: &str| {
        candidate.get(..word.len()).is_some_and(|beginning| beginning.eq_ignore_ascii_case(word))
    };
    let lower = word.chars().all(|character| !character.is_uppercase());
    let keywords = KEYWORDS
        .split_ascii_whitespace()
        .filter(|keyword| begins(keyword))
        .map(|keyword| if lower { keyword.to_lowercase() } else { keyword.to_owned() });
    let mut found: Vec<String> = names.iter().filter(|name| begins(name)).cloned().chain(keywords).collect();
    found.sort();
    found.dedup();
    found
}

const KEYWORDS: &str = "ABORT ADD ALL ALTER ANALYZE AND AS ASC BEGIN BETWEEN BIGINT BOOLEAN BY BYTEA CASCADE CASE \
    CAST CHAR CHECK COALESCE COLUMN COMMIT CONFLICT CONSTRAINT COPY COUNT CREATE CROSS CSV CURRENT_DATE \
    CURRENT_TIMESTAMP DATE DEALLOCATE DEFAULT DELETE DESC DISTINCT DO DOUBLE DROP ELSE END EXCEPT EXECUTE \
    EXISTS EXPLAIN EXTRACT FALSE FOREIGN FROM FULL GENERATED GROUP HAVING HEADER IDENTITY IF ILIKE IN INDEX \
    INNER INSERT INTEGER INTERSECT INTERVAL INTO IS ISOLATION JOIN KEY LEFT LEVEL LIKE LIMIT NOT NOTHING NULL \
    NUMERIC OFFSET ON OR ORDER OUTER OVER PARTITION PRECISION PREPARE PRIMARY REAL REFERENCES RELEASE RENAME \
    RESET RESTRICT RETURNING RIGHT ROLLBACK SAVEPOINT SCHEMA SELECT SEQUENCE SET SHOW SMALLINT START STDIN \
    STDOUT SUM TABLE TEXT THEN TIME TIMESTAMP TIMESTAMPTZ TO TRANSACTION TRUE TRUNCATE UNION UNIQUE UPDATE \
    USING UUID VALUES VARCHAR VIEW WHEN WHERE WITH";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_complete_to_names_and_to_keywords_in_the_case_they_are_typed_in() {
        let names = ["orders".to_owned(), "Order Line".to_owned()];
        assert_eq!(completions("ord", &names), ["Order Line", "order", "orders"]);
        assert_eq!(completions("SEL", &names), ["SELECT"]);
        assert!(completions("", &names).is_empty());
        assert!(completions("é", &names).is_empty());
    }
}
