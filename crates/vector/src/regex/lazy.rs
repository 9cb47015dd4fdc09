//! Deterministic automata of a pattern without references and conditions that look around: built as far as texts need.
//!
//! | automaton | runs | finds |
//! |---|---|---|
//! | forward | from where the search begins | that there is a match, and an end of the leftmost one |
//! | backward | from that end | where the leftmost match begins |
//! | anchored | from there | the longest or the shortest end |
//!
//! Each byte is one step. A search that the automata give up, at a character that is not ASCII beside a word boundary for
//! one, is done by `search.rs`.

use super::Range;
use super::parser::{Assertion, Kind, Node, Parsed};
use crate::context::Context;
use firn_base::Result;
use regex_automata::hybrid::LazyStateID;
use regex_automata::hybrid::dfa::{Cache, Config, DFA};
use regex_automata::nfa::thompson::{Compiler, Config as Thompson, WhichCaptures};
use regex_automata::{Anchored, Input, MatchKind};
use regex_syntax::hir::{Class, ClassUnicode, ClassUnicodeRange, Hir, Look, Repetition};

/// Bytes between two looks at whether the statement is canceled.
const BYTES: usize = 1 << 16;

/// Bytes of an automaton before it is made deterministic.
const MOST_BYTES: usize = 4 << 20;

/// Bytes that the states of one automaton may take; if there are more, they are built anew.
const CACHE_BYTES: usize = 1 << 20;

/// After so many times, and if states last for so few bytes, the automaton gives up.
const CLEARS: usize = 8;
const BYTES_PER_STATE: usize = 10;

/// The automata of a pattern.
pub struct Lazy {
    forward: Automaton,
    backward: Automaton,
    anchored: Automaton,
}

struct Automaton {
    dfa: DFA,
    cache: Cache,
}

/// A search that was given up.
struct GaveUp;

/// What a scan may come to: it is given up without an error, or the statement is canceled.
type Scan<T> = Result<std::result::Result<T, GaveUp>>;

impl Lazy {
    /// The automata, unless the pattern needs more than they can.
    pub fn new(parsed: &Parsed) -> Option<Lazy> {
        if parsed.root.facts.refers || parsed.looks {
            return None;
        }
        let hir = hir(&parsed.root);
        Some(Lazy {
            forward: Automaton::new(&hir, MatchKind::LeftmostFirst, false)?,
            backward: Automaton::new(&hir, MatchKind::All, true)?,
            anchored: Automaton::new(&hir, MatchKind::All, false)?,
        })
    }

    /// Whether there is a match; `None` if the search was given up.
    pub fn is_match(&mut self, text: &str, context: &Context<'_>) -> Result<Option<bool>> {
        let input = Input::new(text);
        Ok(self.forward.forward(&input, Some(0), context)?.ok().map(|end| end.is_some()))
    }

    /// The first match from a place on; `None` if the search was given up.
    pub fn find(
        &mut self,
        text: &str,
        from: usize,
        prefers_short: bool,
        context: &Context<'_>,
    ) -> Result<Option<Option<Range>>> {
        let input = Input::new(text).range(from..);
        let Ok(end) = self.forward.forward(&input, None, context)? else { return Ok(None) };
        let Some(end) = end else { return Ok(Some(None)) };
        let input = Input::new(text).range(from..end).anchored(Anchored::Yes);
        let Ok(Some(start)) = self.backward.backward(&input, context)? else { return Ok(None) };
        let input = Input::new(text).range(start..).anchored(Anchored::Yes);
        let earliest = prefers_short.then_some(start);
        let Ok(Some(end)) = self.anchored.forward(&input, earliest, context)? else { return Ok(None) };
        let is_whole = text.is_char_boundary(start) && text.is_char_boundary(end);
        Ok(is_whole.then_some(Some((start, end))))
    }
}

impl Automaton {
    fn new(hir: &Hir, kind: MatchKind, is_reverse: bool) -> Option<Automaton> {
        let thompson = Thompson::new()
            .reverse(is_reverse)
            .which_captures(WhichCaptures::None)
            .nfa_size_limit(Some(MOST_BYTES));
        let nfa = Compiler::new().configure(thompson).build_from_hir(hir).ok()?;
        let config = Config::new()
            .match_kind(kind)
            .unicode_word_boundary(true)
            .cache_capacity(CACHE_BYTES)
            .skip_cache_capacity_check(true)
            .minimum_cache_clear_count(Some(CLEARS))
            .minimum_bytes_per_state(Some(BYTES_PER_STATE));
        let dfa = DFA::builder().configure(config).build_from_nfa(nfa).ok()?;
        let cache = dfa.create_cache();
        Some(Automaton { dfa, cache })
    }

    /// The last place at which a match ends, or with `earliest` the first one from there on.
    fn forward(
        &mut self,
        input: &Input<'_>,
        earliest: Option<usize>,
        context: &Context<'_>,
    ) -> Scan<Option<usize>> {
        let Ok(mut state) = self.dfa.start_state_forward(&mut self.cache, input) else {
            return Ok(Err(GaveUp));
        };
        let mut found = None;
        let (bytes, mut at) = (input.haystack(), input.start());
        while at < input.end() {
            context.check_cancel()?;
            for byte in &bytes[at..input.end().min(at + BYTES)] {
                let Ok(next) = self.dfa.next_state(&mut self.cache, state, *byte) else {
                    return Ok(Err(GaveUp));
                };
                state = next;
                // A match is seen one byte late.
                if state.is_tagged() && self.is_end(state, at, earliest, &mut found) {
                    return Ok(if state.is_quit() { Err(GaveUp) } else { Ok(found) });
                }
                at += 1;
            }
        }
        let Ok(state) = self.dfa.next_eoi_state(&mut self.cache, state) else { return Ok(Err(GaveUp)) };
        if state.is_match() {
            found = Some(at);
        }
        Ok(Ok(found))
    }

    fn is_end(
        &self,
        state: LazyStateID,
        at: usize,
        earliest: Option<usize>,
        found: &mut Option<usize>,
    ) -> bool {
        if state.is_match() {
            *found = Some(at);
            return earliest.is_some_and(|earliest| at >= earliest);
        }
        state.is_dead() || state.is_quit()
    }

    /// The first place from which a match leads to the end of the input.
    fn backward(&mut self, input: &Input<'_>, context: &Context<'_>) -> Scan<Option<usize>> {
        let Ok(mut state) = self.dfa.start_state_reverse(&mut self.cache, input) else {
            return Ok(Err(GaveUp));
        };
        let mut found = None;
        let (bytes, mut at) = (input.haystack(), input.end());
        while at > input.start() {
            context.check_cancel()?;
            let from = at.saturating_sub(BYTES).max(input.start());
            for byte in bytes[from..at].iter().rev() {
                let Ok(next) = self.dfa.next_state(&mut self.cache, state, *byte) else {
                    return Ok(Err(GaveUp));
                };
                state = next;
                if state.is_tagged() && self.is_end(state, at, None, &mut found) {
                    return Ok(if state.is_quit() { Err(GaveUp) } else { Ok(found) });
                }
                at -= 1;
            }
        }
        // What stands before the search begins decides conditions there.
        let last = match at.checked_sub(1) {
            Some(before) => self.dfa.next_state(&mut self.cache, state, bytes[before]),
            None => self.dfa.next_eoi_state(&mut self.cache, state),
        };
        let Ok(state) = last else { return Ok(Err(GaveUp)) };
        if state.is_quit() {
            return Ok(Err(GaveUp));
        }
        if state.is_match() {
            found = Some(at);
        }
        Ok(Ok(found))
    }
}

fn hir(node: &Node) -> Hir {
    match &node.kind {
        Kind::Empty => Hir::empty(),
        Kind::Set(set) => {
            let ranges = set.ranges().iter().map(|(first, last)| ClassUnicodeRange::new(*first, *last));
            Hir::class(Class::Unicode(ClassUnicode::new(ranges)))
        }
        Kind::Assert(assertion) => Hir::look(match assertion {
            Assertion::Start => Look::Start,
            Assertion::End => Look::End,
            Assertion::LineStart => Look::StartLF,
            Assertion::LineEnd => Look::EndLF,
            Assertion::WordStart => Look::WordStartUnicode,
            Assertion::WordEnd => Look::WordEndUnicode,
            Assertion::WordBoundary => Look::WordUnicode,
            Assertion::NoWordBoundary => Look::WordUnicodeNegate,
        }),
        Kind::Concat(nodes) => Hir::concat(nodes.iter().map(|node| hir(node)).collect()),
        Kind::Alternation(nodes) => Hir::alternation(nodes.iter().map(|node| hir(node)).collect()),
        Kind::Repeat { node, min, max, .. } => {
            let sub = Box::new(hir(node));
            Hir::repetition(Repetition { min: *min, max: *max, greedy: true, sub })
        }
        Kind::Capture(_, node) => hir(node),
        Kind::Look(_) | Kind::Reference { .. } => {
            unreachable!("such patterns have no deterministic automata")
        }
    }
}
