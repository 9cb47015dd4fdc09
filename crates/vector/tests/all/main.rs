//! Functions and aggregates against what PostgreSQL 15 answered: the files in `tests/cases`, which `make.py` wrote.
//!
//! ```text
//! @ oid name types of the arguments -> type of the result
//! argument <tab> argument <tab> … <tab> answer
//! ```
//!
//! `\N` is NULL, `!22003` an error; within a field `\\`, `\t` and `\n` are as in COPY's text format.

mod aggregates;
mod batches;
mod facts;
mod functions;
mod sets;

use firn_base::{TextStyle, TimeZoneSetting, Type, Value, text, type_table};
use std::path::Path;

/// A block of a file of cases: one function, and what it was called with.
struct Block {
    place: String,
    oid: u32,
    arguments: Vec<Type>,
    result: Type,
    /// The fields of each line; the last is the answer.
    lines: Vec<Vec<Option<String>>>,
}

/// All blocks of files whose names begin like this.
fn blocks(prefix: &str) -> Vec<Block> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .expect("there are cases")
        .map(|file| file.expect("it can be listed").path())
        .collect();
    files.sort();
    let name = |path: &Path| path.file_name().expect("files have names").to_string_lossy().into_owned();
    let wanted = files.iter().filter(|path| name(path).starts_with(prefix) && name(path).ends_with(".txt"));
    let blocks: Vec<Block> = wanted
        .flat_map(|path| parse(&name(path), &std::fs::read_to_string(path).expect("it can be read")))
        .collect();
    assert!(!blocks.is_empty());
    blocks
}

fn parse(file: &str, text: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if let Some(header) = line.strip_prefix("@ ") {
            let (call, result) = header.split_once(" -> ").expect("headers have a result");
            let mut words = call.split(' ');
            let oid = words.next().expect("headers have an oid").parse().expect("it is a number");
            let name = words.next().expect("headers have a name");
            blocks.push(Block {
                place: format!("{file}:{}: {name}", number + 1),
                oid,
                arguments: words.map(type_named).collect(),
                result: type_named(result),
                lines: Vec::new(),
            });
        } else {
            let block = blocks.last_mut().expect("a header comes first");
            block.lines.push(line.split('\t').map(field).collect());
        }
    }
    blocks
}

/// A type by its name in `pg_type`, and its modifier after a colon.
fn type_named(word: &str) -> Type {
    let (name, modifier) = word.split_once(':').unwrap_or((word, "-1"));
    let info = type_table::by_name(name).unwrap_or_else(|| panic!("there is no type {name}"));
    Type::new(info.id).with_modifier(modifier.parse().expect("modifiers are numbers"))
}

fn field(text: &str) -> Option<String> {
    if text == "\\N" {
        return None;
    }
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(next) = chars.next() {
        out.push(match next {
            '\\' => match chars.next().expect("something is escaped") {
                't' => '\t',
                'n' => '\n',
                'r' => '\r',
                other => other,
            },
            other => other,
        });
    }
    Some(out)
}

/// The time zone that the cases were made in.
fn style() -> TextStyle {
    TextStyle::in_zone(TimeZoneSetting::parse("Europe/Berlin").expect("it is a zone"))
}

fn value(text: Option<&str>, ty: Type, place: &str) -> Value {
    let Some(text) = text else { return Value::Null };
    if ty.representation() == Some(firn_base::Representation::Text) {
        return Value::Text(text.to_owned());
    }
    text::parse_any(text, ty, &style()).unwrap_or_else(|error| panic!("{place}: {text:?} of {ty}: {error:?}"))
}

fn shown(value: &Value, ty: Type) -> Option<String> {
    if value.is_null() {
        return None;
    }
    let mut out = String::new();
    text::write_any(value, ty, &style(), &mut out);
    Some(out)
}

/// Whether an answer is PostgreSQL's: a float may differ in its last digits, since libraries compute elementary functions differently.
fn agree(ours: &Option<String>, theirs: &Option<String>, result: Type) -> bool {
    if ours == theirs {
        return true;
    }
    let is_float = matches!(result.to_string().as_str(), "double precision" | "real");
    let number = |text: &Option<String>| text.as_ref().and_then(|text| text.parse::<f64>().ok());
    let (Some(ours), Some(theirs)) = (number(ours), number(theirs)) else { return false };
    is_float && (ours - theirs).abs() <= theirs.abs() * 1e-12
}
