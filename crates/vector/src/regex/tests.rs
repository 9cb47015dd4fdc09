//! Patterns of random parts: the deterministic automata find what the other matcher finds.

use super::{Options, Regex};
use crate::context::detached;
use firn_base::random::Random;

fn below(random: &mut Random, count: usize) -> usize {
    random.uniform(0, count as i64 - 1) as usize
}

fn pattern(random: &mut Random, depth: u32, out: &mut String) {
    let atoms = ["a", "b", "ä", ".", "[ab]", "[^a]", "\\w", "\\d", "^", "$", "\\y", "\\m", "\\M", ""];
    for _ in 0..1 + below(random, 3) {
        match below(random, if depth == 0 { 4 } else { 7 }) {
            0..=3 => {
                let atom = atoms[below(random, atoms.len())];
                out.push_str(atom);
                if atom.is_empty() || matches!(atom, "^" | "$" | "\\y" | "\\m" | "\\M") {
                    continue;
                }
            }
            4 => {
                out.push('(');
                pattern(random, depth - 1, out);
                out.push(')');
            }
            5 => {
                out.push_str("(?:");
                pattern(random, depth - 1, out);
                out.push(')');
            }
            _ => {
                out.push('(');
                pattern(random, depth - 1, out);
                out.push('|');
                pattern(random, depth - 1, out);
                out.push(')');
            }
        }
        out.push_str(["", "", "*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}", "{0,2}?"][below(random, 11)]);
    }
}

#[test]
fn both_matchers_find_the_same() {
    let seed = 0x5eed_0007;
    println!("seed {seed:#x}");
    let mut random = Random::seeded(seed);
    let mut found = 0;
    for _ in 0..600 {
        let mut text = String::new();
        pattern(&mut random, 2, &mut text);
        let mut regex =
            Regex::new(&text, Options::default()).unwrap_or_else(|error| panic!("{text}: {error:?}"));
        for _ in 0..6 {
            let letters = ["a", "b", "ä", " ", "1", "ab", "\n"];
            let subject: String =
                (0..below(&mut random, 9)).map(|_| letters[below(&mut random, letters.len())]).collect();
            let boundaries: Vec<usize> =
                (0..=subject.len()).filter(|at| subject.is_char_boundary(*at)).collect();
            let from = boundaries[below(&mut random, boundaries.len())];
            let (mut fast_groups, mut slow_groups) = (Vec::new(), Vec::new());
            let fast =
                regex.find(&subject, from, &detached(), Some(&mut fast_groups)).expect("it is a search");
            let slow = regex.find_slowly(&subject, from, &mut slow_groups).expect("it is a search");
            let case = format!("{text:?} in {subject:?} from {from}");
            assert_eq!(fast, slow, "{case}");
            if fast.is_some() {
                assert_eq!(fast_groups, slow_groups, "{case}");
                found += 1;
            }
            let is_match = regex.is_match(&subject, &detached()).expect("it is a search");
            let from_start = regex.find_slowly(&subject, 0, &mut slow_groups).expect("it is a search");
            assert_eq!(is_match, from_start.is_some(), "{case}");
        }
    }
    assert!(found > 500, "{found} matches");
}

#[test]
fn a_search_that_would_take_forever_can_be_canceled() {
    let canceled = firn_base::Cancel::new();
    canceled.cancel();
    let context = crate::Context { cancel: &canceled, ..detached() };
    let mut regex = Regex::new(r"^(.+)\1$", Options::default()).expect("it is a pattern");
    let text = "a".repeat(1000) + "b";
    assert_eq!(
        regex.is_match(&text, &context).map_err(|error| error.state()),
        Err(firn_base::SqlState::QUERY_CANCELED)
    );
}
