//! `firn sql`: a shell for people and scripts.
//!
//! It uses the protocol even for a database in its own process, through a socket in a directory
//! that only this user can enter. So there is one path through the code, and the shell shows what
//! any client gets.

// Errors here are shown to a person, so their size in memory does not matter.
#![allow(clippy::result_large_err)]

mod commands;
mod editor;
mod progress;
pub(crate) mod splitter;
pub(crate) mod table;

use std::fs::File;
use std::io::{self, BufReader, IsTerminal, Write};

use firn_base::clock::{self, Instant};
use firn_base::sync::{Arc, Mutex};

use editor::{Line, Lines};
use progress::{Watch, is_copy_of_file};
use splitter::{Splitter, Statement};
use table::{Expanded, Style, Table};

use crate::Failure;
use crate::client::{Address, Answer, Canceller, Client, Report, Target};
use crate::target::{connect, is_new_directory};

/// Arguments of `firn sql`.
#[derive(clap::Args, Debug)]
pub struct Options {
    /// A database directory, or a server as postgres://user@host:port/database. A database in memory
    /// by default.
    target: Option<String>,
    /// Run this and exit; may be given more than once.
    #[arg(short, long = "command", value_name = "SQL")]
    command: Vec<String>,
}

/// Runs the shell to its end.
pub fn run(options: Options) -> Result<(), Failure> {
    let is_new = options.target.as_deref().is_some_and(is_new_directory);
    let (client, host) = connect(options.target.as_deref())?;
    let interactive = options.command.is_empty() && io::stdin().is_terminal() && io::stdout().is_terminal();
    let mut shell = Shell {
        client,
        place: place(options.target.as_deref()),
        interactive,
        timing: false,
        style: Style { expanded: Expanded::Off, null: String::new(), width: None },
        running: Arc::new(Mutex::new(None)),
        depth: 0,
        restricted: None,
    };
    shell.stop_statements_on_interrupt();
    let outcome = if !options.command.is_empty() {
        options.command.iter().try_for_each(|command| {
            let lines = BufReader::new(io::Cursor::new(command.clone().into_bytes()));
            shell.run_lines(&mut Lines::reader(Box::new(lines)))
        })
    } else if interactive {
        println!("firn {} · server {}", env!("CARGO_PKG_VERSION"), shell.client.server_version());
        match options.target.as_deref() {
            None => println!("The database is in memory only; firn sql DIR keeps one."),
            Some(directory) if is_new => println!("Created a database in {directory}."),
            Some(_) => {}
        }
        println!("Type \\? for help, \\q to leave.");
        shell.run_lines(&mut Lines::editor().map_err(Failure::new)?)
    } else {
        shell.run_lines(&mut Lines::reader(Box::new(BufReader::new(io::stdin()))))
    };
    drop(shell);
    if let Some(host) = host {
        host.close_at_end()?;
    }
    // A statement's error has already been printed.
    outcome.map_err(|Stop| Failure::silent())
}

fn place(target: Option<&str>) -> String {
    match target.map(|target| (target, Target::parse(target))) {
        None => "in memory".to_owned(),
        Some((_, Ok(Target { address: Address::Tcp(host, port), .. }))) => {
            format!("on host \"{host}\" at port {port}")
        }
        Some((_, Ok(Target { address: Address::Unix(path), .. }))) => format!("via {}", path.display()),
        Some((directory, Err(_))) => format!("in {directory}"),
    }
}

/// An error was printed, and the input is not a terminal.
struct Stop;

struct Shell {
    client: Client,
    /// The location of the database, for people.
    place: String,
    /// The input is a terminal: errors do not end the shell.
    interactive: bool,
    timing: bool,
    style: Style,
    /// The handle to cancel the running statement.
    running: Arc<Mutex<Option<Canceller>>>,
    /// The depth of nested includes.
    depth: usize,
    /// The key with which a dump of PostgreSQL has locked the commands, so that its data cannot run any.
    restricted: Option<String>,
}

impl Shell {
    /// Runs everything that `lines` yields.
    fn run_lines(&mut self, lines: &mut Lines) -> Result<(), Stop> {
        let mut splitter = Splitter::default();
        loop {
            lines.refresh_names(&mut self.client);
            self.style.width = lines.width();
            match lines.next(&self.prompt(&splitter)) {
                Line::Text(line) => {
                    if let commands::After::Quit = self.take_line(&line, &mut splitter, lines)? {
                        return Ok(());
                    }
                    if splitter.is_empty() {
                        lines.end_history_entry();
                    }
                }
                Line::Interrupted => {
                    splitter.clear();
                    lines.end_history_entry();
                }
                Line::End => {
                    return match splitter.finish() {
                        Some(statement) => self.run_statement(&statement, lines),
                        None => Ok(()),
                    };
                }
            }
        }
    }

    /// Runs what a line completes: statements, then possibly a command.
    fn take_line(
        &mut self,
        line: &str,
        splitter: &mut Splitter,
        lines: &mut Lines,
    ) -> Result<commands::After, Stop> {
        let word = line.split_ascii_whitespace().next().unwrap_or("");
        if self.interactive && splitter.is_empty() {
            // Words that users type instead of commands.
            match line.trim().trim_end_matches(';').to_ascii_lowercase().as_str() {
                "quit" | "exit" => return Ok(commands::After::Quit),
                "help" => return self.run_command(r"\?"),
                _ => {}
            }
        }
        // A command may interrupt an incomplete statement, but these two end it.
        let interrupts = word.starts_with('\\') && !matches!(word, r"\g" | r"\gx");
        if interrupts && splitter.takes_commands() && !splitter.is_empty() {
            return match word {
                r"\r" => {
                    splitter.clear();
                    say("Query buffer reset (cleared).")
                }
                r"\p" => say(splitter.pending()),
                _ => return self.try_command(line.trim()),
            }
            .map(|()| commands::After::GoOn);
        }
        splitter.push(line);
        while let Some(statement) = splitter.next_statement() {
            self.run_statement(&statement, lines)?;
        }
        match splitter.next_command() {
            Some(command) => self.try_command(&command),
            None => Ok(commands::After::GoOn),
        }
    }

    /// Runs a command; an error ends a script, but not an interactive shell.
    fn try_command(&mut self, command: &str) -> Result<commands::After, Stop> {
        match self.run_command(command) {
            Err(Stop) if self.interactive => Ok(commands::After::GoOn),
            outcome => outcome,
        }
    }

    /// `firn=>`, with psql's marks for open quotes and for the state of the transaction.
    fn prompt(&self, splitter: &Splitter) -> String {
        let transaction = match self.client.status() {
            b'T' => "*",
            b'E' => "!",
            _ => "",
        };
        format!("firn{}{transaction}> ", splitter.prompt_mark())
    }

    /// Runs a statement; an error ends a script, but not an interactive shell.
    fn run_statement(&mut self, statement: &Statement, lines: &mut Lines) -> Result<(), Stop> {
        let sql = &statement.sql;
        let began = clock::now();
        let expanded = self.style.expanded;
        if statement.expanded {
            self.style.expanded = Expanded::On;
        }
        let watch = if is_copy_of_file(sql) { Watch::start(&self.client, None) } else { None };
        let outcome = self.run_script(sql, &mut |client| lines.feed_copy(client), &mut io::stdout());
        drop(watch);
        self.style.expanded = expanded;
        self.after_statement(sql, outcome, began)?;
        lines.note_statement(sql);
        Ok(())
    }

    fn after_statement(
        &mut self,
        sql: &str,
        outcome: Result<(), Trouble>,
        began: Instant,
    ) -> Result<(), Stop> {
        let result = match outcome {
            Ok(()) => Ok(()),
            Err(Trouble::Report(report)) => {
                eprint!("{}", with_position(&report, sql));
                // Without its connection the shell cannot continue.
                if report.code == "57P01" || report.code == "08006" || !self.interactive {
                    Err(Stop)
                } else {
                    Ok(())
                }
            }
            // The reader of the output has gone, and would not read this either.
            Err(Trouble::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Err(Stop),
            Err(Trouble::Output(error)) => {
                eprintln!("could not write the result: {error}");
                if self.interactive { Ok(()) } else { Err(Stop) }
            }
        };
        if self.timing {
            say(format_args!("Time: {:.3} ms", began.elapsed().as_secs_f64() * 1000.0))?;
        }
        result
    }

    /// Runs a script and prints its results. `feed` is called for the data of a COPY.
    fn run_script(
        &mut self,
        sql: &str,
        feed: &mut dyn FnMut(&mut Client) -> Result<(), Report>,
        out: &mut dyn Write,
    ) -> Result<(), Trouble> {
        *self.running.lock() = Some(self.client.canceller());
        let outcome = self.try_run_script(sql, feed, out);
        *self.running.lock() = None;
        outcome
    }

    fn try_run_script(
        &mut self,
        sql: &str,
        feed: &mut dyn FnMut(&mut Client) -> Result<(), Report>,
        out: &mut dyn Write,
    ) -> Result<(), Trouble> {
        self.client.query(sql)?;
        let mut table: Option<Table> = None;
        let mut failure = None;
        let mut output = Ok(());
        loop {
            match self.client.next()? {
                Answer::Columns(columns) => table = Some(Table { columns, rows: Vec::new() }),
                Answer::Row(row) => table.as_mut().expect("columns come before rows").rows.push(row),
                Answer::Complete(tag) => match table.take() {
                    Some(table) => {
                        output = output.and_then(|()| write!(out, "{}", table.render(&self.style)))
                    }
                    None => output = output.and_then(|()| writeln!(out, "{tag}")),
                },
                Answer::Notice(report) => eprint!("{}", with_position(&report, sql)),
                Answer::Failed(report) => failure = Some(report),
                Answer::CopyIn => feed(&mut self.client)?,
                Answer::CopyData(data) => output = output.and_then(|()| out.write_all(&data)),
                Answer::Ready => break,
            }
        }
        match failure {
            Some(report) => Err(Trouble::Report(report)),
            None => output.and_then(|()| out.flush()).map_err(Trouble::Output),
        }
    }

    /// Runs an internal query of the shell and returns its rows.
    fn rows(&mut self, sql: &str) -> Result<Table, Report> {
        query_rows(&mut self.client, sql)
    }

    /// Runs a file; errors in it are treated like those of its includer.
    fn include(&mut self, path: &str) -> Result<(), Stop> {
        const DEEPEST: usize = 32;
        if self.depth == DEEPEST {
            eprintln!("{path}: files include each other too deeply");
            return Err(Stop);
        }
        let file = File::open(path).map_err(|error| {
            eprintln!("{path}: {error}");
            Stop
        })?;
        self.depth += 1;
        // In an interactive shell too, an error ends a file: later statements may depend on earlier ones.
        let interactive = std::mem::replace(&mut self.interactive, false);
        let outcome = self.run_lines(&mut Lines::reader(Box::new(BufReader::new(file))));
        self.interactive = interactive;
        self.depth -= 1;
        outcome
    }

    /// Ctrl-C cancels the running statement, or ends a shell that runs none and has no editor.
    fn stop_statements_on_interrupt(&self) {
        let running = self.running.clone();
        // Fails only if a handler is installed already.
        let _ = ctrlc::set_handler(move || match &*running.lock() {
            Some(canceller) => canceller.cancel(),
            None => std::process::exit(130),
        });
    }
}

/// Prints a line. If the reader of the output has gone (as `head` does), the shell ends.
fn say(text: impl std::fmt::Display) -> Result<(), Stop> {
    writeln!(io::stdout(), "{text}").map_err(|_| Stop)
}

/// Why a script did not run to its end.
enum Trouble {
    /// An error of the server.
    Report(Report),
    /// The output cannot be written.
    Output(io::Error),
}

impl From<Report> for Trouble {
    fn from(report: Report) -> Trouble {
        Trouble::Report(report)
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Trouble {
        Trouble::Report(error.into())
    }
}

fn query_rows(client: &mut Client, sql: &str) -> Result<Table, Report> {
    let (columns, rows) = client.rows(sql)?;
    Ok(Table { columns, rows })
}

/// A report as psql prints it: with the line of the error, and a caret under the position.
fn with_position(report: &Report, sql: &str) -> String {
    let mut text = format!("{}:  {}\n", report.severity, report.message);
    if let Some((number, line, column)) = report.position.and_then(|position| locate(sql, position)) {
        use unicode_width::UnicodeWidthStr;
        let before: String = line.chars().take(column).collect();
        // Of a long line the part around the position is shown.
        const AROUND: usize = 60;
        let skipped = column.saturating_sub(AROUND);
        let shown: String = line.chars().skip(skipped).take(2 * AROUND).collect();
        let before: String = before.chars().skip(skipped).collect();
        let label = format!("LINE {number}: ");
        text.push_str(&format!("{label}{shown}\n{}^\n", " ".repeat(label.len() + before.width())));
    }
    for (name, more) in [("DETAIL", &report.detail), ("HINT", &report.hint), ("CONTEXT", &report.context)] {
        if let Some(more) = more {
            text.push_str(&format!("{name}:  {more}\n"));
        }
    }
    text
}

/// The line that contains a position (in characters from 1): its number, itself, and the column.
fn locate(sql: &str, position: usize) -> Option<(usize, &str, usize)> {
    let mut left = position.checked_sub(1)?;
    for (index, line) in sql.split('\n').enumerate() {
        let length = line.chars().count();
        if left <= length {
            return Some((index + 1, line, left));
        }
        left -= length + 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_points_at_its_place() {
        let report = Report {
            severity: "ERROR".into(),
            message: "column \"y\" does not exist".into(),
            hint: Some("Look again.".into()),
            position: Some(15),
            ..Report::default()
        };
        assert_eq!(
            with_position(&report, "SELECT '雪',\n  y"),
            concat!(
                "ERROR:  column \"y\" does not exist\n",
                "LINE 2:   y\n",
                "          ^\n",
                "HINT:  Look again.\n"
            )
        );
        assert_eq!(locate("ab", 9), None);
        assert_eq!(locate("ab\ncd", 3), Some((1, "ab", 2)));
    }
}
