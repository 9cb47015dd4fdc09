//! Statements with mistakes: whatever the text, the parser answers, and what it accepts prints and parses again.

use crate::cases::{cases, files, options};
use crate::random::Random;
use firn_syntax::{Options, parse, parse_expression, parse_type_name, print};

const PIECES: &[&str] = &[
    "'",
    "\"",
    "$$",
    "$a$",
    "/*",
    "*/",
    "--",
    "\n",
    "\\",
    "U&'",
    "E'",
    "B'",
    "X'",
    "(",
    ")",
    "[",
    "]",
    ",",
    ";",
    ".",
    "..",
    "::",
    ":=",
    "=>",
    "*",
    "-",
    "+",
    "<",
    "=",
    "@",
    "1",
    "1.5",
    "1e",
    "$1",
    "é",
    "\u{1F600}",
    "\0",
    "a",
    "\"B\"",
    "'x'",
    " select ",
    " from ",
    " where ",
    " not ",
    " in ",
    " is ",
    " null ",
    " and ",
    " between ",
    " like ",
    " escape ",
    " any ",
    " all ",
    " case ",
    " when ",
    " then ",
    " end ",
    " as ",
    " on ",
    " join ",
    " left ",
    " natural ",
    " using ",
    " union ",
    " with ",
    " values ",
    " table ",
    " order by ",
    " limit ",
    " offset ",
    " fetch first ",
    " rows ",
    " for update ",
    " over ",
    " filter ",
    " within group ",
    " array ",
    " row ",
    " interval ",
    " at time zone ",
    " collate ",
    " operator ",
    " nulls first ",
    " lateral ",
    " only ",
    " default ",
    " returning ",
    " set ",
    " distinct ",
    " group by ",
    " uescape ",
    " partition by ",
    " preceding ",
    " similar to ",
    " overlaps ",
    " grouping sets ",
    " exists ",
    " insert into t ",
    " merge ",
    " double precision ",
    " create ",
    " alter ",
    " drop ",
    " if exists ",
    " if not exists ",
    " cascade ",
    " constraint ",
    " references t ",
    " primary key ",
    " generated always as ",
    " deferrable ",
    " not valid ",
    " options ",
    " for values ",
    " rename ",
    " to ",
    " owner to ",
    " schema ",
    " column ",
    " type ",
    " function ",
    " begin atomic ",
    " copy ",
    " grant ",
    " session ",
    " time zone ",
];

/// A text with some changes of its characters and words.
fn mutant(text: &str, random: &mut Random) -> String {
    let mut text = text.to_owned();
    for _ in 0..=random.below(3) {
        let boundaries: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
        let from = boundaries[random.below(boundaries.len())];
        let to = boundaries[random.below(boundaries.len())];
        let (from, to) = (from.min(to), from.max(to));
        match random.below(5) {
            0 => text.insert_str(from, random.pick(PIECES)),
            1 => text.truncate(from),
            2 if to - from < 20 => text.replace_range(from..to, ""),
            3 if to - from < 20 => text.replace_range(from..to, random.pick(PIECES)),
            _ => {
                let end = to.min(from + 40);
                if text.is_char_boundary(end) {
                    let part = text[from..end].to_owned();
                    text.insert_str(to, &part);
                }
            }
        }
    }
    text
}

fn check(text: &str, options: Options) {
    match parse(text, options) {
        Ok(statements) => {
            for node in statements {
                assert!(node.span.start < node.span.end && node.span.end as usize <= text.len());
                let printed = print::statement(&node.statement);
                let again =
                    parse(&printed, options).unwrap_or_else(|error| panic!("{error:?}: {text}\n{printed}"));
                assert!(again.len() == 1 && again[0] == node, "{text}\n{printed}");
            }
        }
        Err(error) => {
            assert!(!error.message().is_empty());
            if let Some(position) = error.position() {
                assert!(position as usize <= text.chars().count() + 1, "{text}: {error:?}");
            }
        }
    }
    let _ = parse_expression(text, options);
    let _ = parse_type_name(text, options);
}

#[test]
fn mistakes_never_panic_and_what_parses_prints() {
    let seed = std::env::var("FIRN_SEED").ok().map_or(1, |seed| seed.parse().expect("a number"));
    println!("FIRN_SEED={seed}");
    let mut random = Random::new(seed);
    for file in files() {
        for (input, _) in cases(&file) {
            for _ in 0..40 {
                let text = mutant(&input, &mut random);
                check(&text, options(&file));
                check(
                    &text,
                    Options { standard_conforming_strings: false, additions: true, ..Options::default() },
                );
            }
        }
    }
}

#[test]
fn every_prefix_of_a_statement_is_answered() {
    for file in files() {
        for (input, _) in cases(&file) {
            for (at, _) in input.char_indices() {
                check(&input[..at], options(&file));
            }
        }
    }
}
