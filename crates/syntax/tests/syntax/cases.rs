//! Cases as text: an input, `=> ` and what it parses to, printed as canonical text, or its error.
//!
//! Printed texts have only the parentheses that the tree needs, so they show how operators were grouped. The answers of
//! errors are PostgreSQL 15's: SQLSTATE, position in characters, message. `WRITE=1` writes the answers anew.
//! A file whose name begins with `postgres` is read without our additions.

use firn_syntax::{Options, parse, print};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// The folder of the cases.
pub fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/syntax/cases");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 5);
    files
}

/// The inputs of a file with what is written behind them.
pub fn cases(file: &Path) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(file).unwrap();
    let mut cases = Vec::new();
    let (mut input, mut answer) = (String::new(), None::<String>);
    for line in text.lines().chain([""]) {
        if let Some(answer) = &mut answer
            && !line.is_empty()
        {
            write!(answer, "\n{line}").unwrap();
        } else if let Some(answer) = answer.take() {
            cases.push((std::mem::take(&mut input), answer));
        } else if let Some(first) = line.strip_prefix("=> ") {
            answer = Some(first.to_owned());
        } else if !line.is_empty() || !input.is_empty() {
            if !input.is_empty() {
                input.push('\n');
            }
            input.push_str(line);
        }
    }
    assert!(input.is_empty(), "{}: no answer for {input}", file.display());
    cases
}

/// The options that a file is read with.
pub fn options(file: &Path) -> Options {
    let is_plain = file.file_name().unwrap().to_str().unwrap().starts_with("postgres");
    Options { additions: !is_plain, ..Options::default() }
}

fn answer(input: &str, options: Options) -> String {
    match parse(input, options) {
        Ok(statements) => {
            let texts: Vec<String> =
                statements.iter().map(|node| print::statement(&node.statement)).collect();
            for (text, node) in texts.iter().zip(&statements) {
                let again = parse(text, options).unwrap_or_else(|error| panic!("{error:?}: printed {text}"));
                assert_eq!(again.len(), 1, "{text}");
                assert_eq!(again[0], *node, "{text}");
            }
            if texts.is_empty() { "nothing".to_owned() } else { texts.join(";\n") }
        }
        Err(error) => {
            let mut text = error.state().to_string();
            if let Some(position) = error.position() {
                write!(text, " at {position}").unwrap();
            }
            write!(text, ": {}", error.message()).unwrap();
            if let Some(hint) = error.hint() {
                write!(text, "\nHINT: {hint}").unwrap();
            }
            text
        }
    }
}

#[test]
fn cases_parse_to_what_is_written() {
    let mut count = 0;
    let mut wrong = Vec::new();
    for file in files() {
        let mut written = String::new();
        for (input, wanted) in cases(&file) {
            let found = answer(&input, options(&file));
            if found != wanted {
                wrong.push(format!("{}: {input}\nwanted {wanted}\nfound  {found}", file.display()));
            }
            write!(written, "{input}\n=> {found}\n\n").unwrap();
            count += 1;
        }
        if std::env::var_os("WRITE").is_some() {
            std::fs::write(&file, written.trim_end().to_owned() + "\n").unwrap();
        }
    }
    assert!(count > 300, "{count} cases");
    if std::env::var_os("WRITE").is_none() {
        assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    }
}
