//! Statements with mistakes: what PostgreSQL's raw parser accepts we accept, and what it refuses we refuse at the same place.
//!
//! A mutant is made of the tokens of one of the parser's cases: some are dropped, doubled, exchanged, or replaced by those of
//! another case. PostgreSQL parses all statements of a query before it runs the first, and the first one fails. So nothing is
//! ever run, and its error says whether the others were parsed.

use crate::server::Server;
use firn_base::SqlState;
use firn_base::random::Random;
use firn_syntax::{Options, parse, tokens};
use std::collections::BTreeMap;
use std::io;

/// The inputs of the parser's tests, without those of our additions.
const CASES: [&str; 7] = [
    include_str!("../../../crates/syntax/tests/syntax/cases/postgres-changes.txt"),
    include_str!("../../../crates/syntax/tests/syntax/cases/postgres-expressions.txt"),
    include_str!("../../../crates/syntax/tests/syntax/cases/postgres-queries.txt"),
    include_str!("../../../crates/syntax/tests/syntax/cases/postgres-session.txt"),
    include_str!("../../../crates/syntax/tests/syntax/cases/postgres-tables.txt"),
    include_str!("../../../crates/syntax/tests/syntax/cases/postgres-tokens.txt"),
    include_str!("../../../crates/syntax/tests/syntax/cases/postgres-utility.txt"),
];

/// What stands before a mutant, and the error that it ends with.
const FIRST: &str = "SELECT 1/0;\n";
const FIRST_FAILS: &str = "22012";

/// In so many of 100 the position of an error is that of PostgreSQL.
const SAME_POSITION_AT_LEAST: u64 = 99;

/// How many differences are printed.
const MOST_SHOWN: usize = 40;

/// What a parser says of a text.
#[derive(PartialEq, Eq, Debug)]
enum Verdict {
    Accepted,
    Refused { state: SqlState, position: Option<u32>, message: String },
}

/// The tokens of an input, each with the blanks behind it.
fn pieces(input: &str) -> Vec<String> {
    // What is no token is taken apart at blanks.
    let Ok(tokens) = tokens(input, Options { additions: false, ..Options::default() }) else {
        return input.split_inclusive(' ').map(str::to_owned).collect();
    };
    let starts: Vec<usize> = tokens.iter().map(|token| token.span.start as usize).collect();
    let ends = starts.iter().skip(1).copied().chain([input.len()]);
    let pieces = starts.iter().zip(ends).map(|(start, end)| input[*start..end].to_owned());
    pieces.filter(|piece| !piece.is_empty()).collect()
}

fn seeds() -> Vec<Vec<String>> {
    let mut seeds = Vec::new();
    for text in CASES {
        for case in text.split("\n\n") {
            let input = case.split_once("\n=> ").map_or(case, |(input, _)| input);
            seeds.push(pieces(input));
        }
    }
    seeds.retain(|seed| !seed.is_empty());
    seeds
}

fn below(random: &mut Random, bound: usize) -> usize {
    random.uniform(0, bound as i64 - 1) as usize
}

fn mutant(seeds: &[Vec<String>], random: &mut Random) -> String {
    let mut pieces = seeds[below(random, seeds.len())].clone();
    for _ in 0..below(random, 4) {
        if pieces.is_empty() {
            break;
        }
        let at = below(random, pieces.len());
        let other = &seeds[below(random, seeds.len())];
        let other = other[below(random, other.len())].clone();
        match below(random, 6) {
            0 => drop(pieces.remove(at)),
            1 => pieces.insert(at, pieces[at].clone()),
            2 => {
                let with = below(random, pieces.len());
                pieces.swap(at, with);
            }
            3 => pieces[at] = other,
            4 => pieces.insert(at, other),
            _ => pieces.truncate(at + 1),
        }
    }
    let mut text = String::new();
    for piece in pieces {
        let joins = |c: char| c.is_alphanumeric() || c == '_' || c == '$' || c == '\'' || c == '"';
        if text.ends_with(joins) && piece.starts_with(joins) {
            text.push(' ');
        }
        text.push_str(&piece);
    }
    text
}

fn ours(text: &str) -> Verdict {
    match parse(text, Options { additions: false, ..Options::default() }) {
        Ok(_) => Verdict::Accepted,
        Err(error) => Verdict::Refused {
            state: error.state(),
            position: error.position(),
            message: error.message().to_owned(),
        },
    }
}

fn theirs(oracle: &mut Server, text: &str) -> io::Result<Verdict> {
    let Some(refusal) = oracle.refusal(&format!("{FIRST}{text}"))? else {
        return Err(io::Error::other("a division by zero has succeeded"));
    };
    if refusal.state.as_str() == FIRST_FAILS {
        return Ok(Verdict::Accepted);
    }
    let before = FIRST.chars().count() as u32;
    // Some errors are about the beginning of the whole text.
    let position = refusal.position.map(|position| position.checked_sub(before).unwrap_or(1));
    Ok(Verdict::Refused { state: refusal.state, position, message: refusal.message })
}

/// Compares so many mutants; whether both parsers say the same of all, and the same positions of nearly all that they refuse.
pub fn run(oracle: &mut Server, seed: u64, count: u64) -> io::Result<bool> {
    let (seeds, mut random) = (seeds(), Random::seeded(seed));
    let (mut accepted, mut refused, mut same_state, mut same_position, mut same_message) = (0, 0, 0, 0, 0);
    let (mut verdicts, mut shown) = (0, BTreeMap::<String, usize>::new());
    for _ in 0..count {
        let text = mutant(&seeds, &mut random);
        let (ours, theirs) = (ours(&text), theirs(oracle, &text)?);
        let kind = match (&ours, &theirs) {
            (Verdict::Accepted, Verdict::Accepted) => {
                accepted += 1;
                continue;
            }
            (
                Verdict::Refused { state, position, message },
                Verdict::Refused { state: of_state, position: of_position, message: of_message },
            ) => {
                refused += 1;
                same_state += u64::from(state == of_state);
                same_position += u64::from(position == of_position);
                same_message += u64::from(message == of_message);
                if state == of_state && position == of_position && message == of_message {
                    continue;
                }
                format!("{ours:?}\n  {theirs:?}")
            }
            _ => {
                verdicts += 1;
                println!("{text}\n  ONE ONLY {ours:?}\n  {theirs:?}\n");
                continue;
            }
        };
        if shown.len() < MOST_SHOWN && shown.insert(kind.clone(), 1).is_none() {
            println!("{text}\n  {kind}\n");
        }
    }
    let same = same_position * 100 >= refused * SAME_POSITION_AT_LEAST;
    println!(
        "seed {seed}: {count} texts, {accepted} accepted and {refused} refused by both, {verdicts} by one only; of those \
         refused {same_state} with the same SQLSTATE, {same_position} at the same position, {same_message} with the same message"
    );
    if accepted * 10 < count || refused * 10 < count {
        println!("too few texts are accepted, or refused, to prove anything");
        return Ok(count < 1000);
    }
    Ok(verdicts == 0 && same)
}
