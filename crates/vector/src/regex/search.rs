//! Runs the automaton of a pattern over a text: which parts of the text a part of the pattern matches, where the first
//! match lies, and how it is divided among groups.
//!
//! Places in here count characters, since divisions move by one character; ranges that callers see count bytes.

use super::program::{Piece, Program, State, StateId, Stretch, Tree};
use super::set::is_same_folded;
use super::{Range, set::Class};
use crate::context::Context;
use crate::regex::parser::Assertion;
use firn_base::Result;

/// How many steps are taken between two looks at whether the statement is canceled.
const STEPS: u32 = 1 << 16;

/// A text, and what searches in it need again and again.
#[derive(Default)]
pub struct Searcher {
    characters: Vec<char>,
    /// Where each character begins, and where the text ends.
    places: Vec<u32>,
    spare: Vec<Threads>,
    groups: Vec<Option<(usize, usize)>>,
    steps: u32,
}

/// States at a place, each once.
#[derive(Default)]
struct Threads {
    list: Vec<StateId>,
    /// The round in which a state was added last.
    rounds: Vec<u32>,
    round: u32,
    pending: Vec<StateId>,
}

impl Threads {
    fn clear(&mut self, states: usize) {
        self.list.clear();
        self.rounds.resize(states, 0);
        self.round = match self.round.checked_add(1) {
            Some(round) => round,
            None => {
                self.rounds.fill(0);
                1
            }
        };
    }

    fn add(&mut self, state: StateId) -> bool {
        let known = &mut self.rounds[state as usize];
        let is_new = *known != self.round;
        *known = self.round;
        is_new
    }
}

/// Which accepted ends of a part are wanted.
#[derive(Clone, Copy)]
enum Wanted {
    /// The last one up to a place.
    Last(usize),
    /// The first one from a place on, up to another.
    First(usize, usize),
}

impl Searcher {
    /// Takes over a text.
    pub fn prepare(&mut self, text: &str) {
        self.characters.clear();
        self.places.clear();
        for (place, character) in text.char_indices() {
            self.characters.push(character);
            self.places.push(place as u32);
        }
        self.places.push(text.len() as u32);
    }

    fn place(&self, byte: usize) -> usize {
        self.places.partition_point(|place| (*place as usize) < byte)
    }

    fn range(&self, (start, end): (usize, usize)) -> Range {
        (self.places[start] as usize, self.places[end] as usize)
    }

    /// The first match from a place of bytes on.
    pub fn find(
        &mut self,
        program: &Program,
        from: usize,
        context: &Context<'_>,
        groups: Option<&mut Vec<Option<Range>>>,
    ) -> Result<Option<Range>> {
        let from = self.place(from);
        let found =
            firn_base::stack::with_room_for(program.depth as u32, || self.first(program, from, context))?;
        let Some(found) = found else { return Ok(None) };
        if let Some(groups) = groups {
            self.report(groups);
        }
        Ok(Some(self.range(found)))
    }

    /// Divides a match that has been found.
    pub fn divide(
        &mut self,
        program: &Program,
        range: Range,
        context: &Context<'_>,
        groups: &mut Vec<Option<Range>>,
    ) -> Result<()> {
        let (start, end) = (self.place(range.0), self.place(range.1));
        self.groups.clear();
        self.groups.resize(program.groups, None);
        let divided = firn_base::stack::with_room_for(program.depth as u32, || {
            self.divided(program, &program.tree, start, end, context)
        })?;
        assert!(divided, "a match without references can be divided");
        self.report(groups);
        Ok(())
    }

    fn report(&self, groups: &mut Vec<Option<Range>>) {
        groups.clear();
        groups.extend(self.groups.iter().map(|group| group.map(|group| self.range(group))));
    }

    fn first(
        &mut self,
        program: &Program,
        from: usize,
        context: &Context<'_>,
    ) -> Result<Option<(usize, usize)>> {
        let length = self.characters.len();
        // Where the first match ends, no matter where it begins: the leftmost one begins no later. With references
        // there may be none there.
        let Some(close) = self.search(program, program.whole, from, context)? else { return Ok(None) };
        let last = if program.refers { length } else { close };
        for start in from..=last {
            let (mut least, mut most) = (start, length);
            loop {
                let wanted = match program.prefers_short {
                    true => Wanted::First(least, most),
                    false => Wanted::Last(most),
                };
                let Some(end) = self.run(program, program.whole, start, wanted, context)? else { break };
                self.groups.clear();
                self.groups.resize(program.groups, None);
                if self.divided(program, &program.tree, start, end, context)? {
                    return Ok(Some((start, end)));
                }
                // The references did not hold: the next shorter or longer match.
                if program.prefers_short {
                    if end == most {
                        break;
                    }
                    least = end + 1;
                } else {
                    if end == start {
                        break;
                    }
                    most = end - 1;
                }
            }
        }
        Ok(None)
    }

    /// Where the first match of a part ends that begins at or behind a place.
    fn search(
        &mut self,
        program: &Program,
        part: Stretch,
        from: usize,
        context: &Context<'_>,
    ) -> Result<Option<usize>> {
        self.with_threads(|searcher, now, next| {
            now.clear(program.states.len());
            for at in from..=searcher.characters.len() {
                searcher.add(program, part, now, part.entry, at, context)?;
                if now.list.contains(&part.exit) {
                    return Ok(Some(at));
                }
                searcher.advance(program, part, now, next, at, context)?;
                std::mem::swap(now, next);
            }
            Ok(None)
        })
    }

    /// Where a part of the pattern ends that begins at a place.
    fn run(
        &mut self,
        program: &Program,
        part: Stretch,
        start: usize,
        wanted: Wanted,
        context: &Context<'_>,
    ) -> Result<Option<usize>> {
        let (least, most, is_first) = match wanted {
            Wanted::Last(most) => (start, most, false),
            Wanted::First(least, most) => (least, most, true),
        };
        self.with_threads(|searcher, now, next| {
            let mut found = None;
            now.clear(program.states.len());
            searcher.add(program, part, now, part.entry, start, context)?;
            for at in start..=most {
                if now.list.is_empty() {
                    break;
                }
                if at >= least && now.list.contains(&part.exit) {
                    found = Some(at);
                    if is_first {
                        break;
                    }
                }
                if at < most {
                    searcher.advance(program, part, now, next, at, context)?;
                    std::mem::swap(now, next);
                }
            }
            Ok(found)
        })
    }

    fn matches(
        &mut self,
        program: &Program,
        part: Stretch,
        start: usize,
        end: usize,
        context: &Context<'_>,
    ) -> Result<bool> {
        Ok(self.run(program, part, start, Wanted::First(end, end), context)?.is_some())
    }

    fn with_threads<T>(
        &mut self,
        work: impl FnOnce(&mut Searcher, &mut Threads, &mut Threads) -> Result<T>,
    ) -> Result<T> {
        let mut now = self.spare.pop().unwrap_or_default();
        let mut next = self.spare.pop().unwrap_or_default();
        let result = work(self, &mut now, &mut next);
        self.spare.extend([now, next]);
        result
    }

    /// Takes the character at a place.
    fn advance(
        &mut self,
        program: &Program,
        part: Stretch,
        now: &mut Threads,
        next: &mut Threads,
        at: usize,
        context: &Context<'_>,
    ) -> Result<()> {
        next.clear(program.states.len());
        let Some(character) = self.characters.get(at).copied() else { return Ok(()) };
        for state in &now.list {
            if let State::Take(set, to) = program.states[*state as usize]
                && program.sets[set as usize].has(character)
            {
                self.add(program, part, next, to, at + 1, context)?;
            }
        }
        Ok(())
    }

    /// Adds a state and all that it leads to without a character. Nothing leads on from the exit.
    fn add(
        &mut self,
        program: &Program,
        part: Stretch,
        threads: &mut Threads,
        state: StateId,
        at: usize,
        context: &Context<'_>,
    ) -> Result<()> {
        debug_assert!(threads.pending.is_empty());
        threads.pending.push(state);
        while let Some(state) = threads.pending.pop() {
            if !threads.add(state) {
                continue;
            }
            self.steps += 1;
            if self.steps == STEPS {
                self.steps = 0;
                context.check_cancel()?;
            }
            if state == part.exit {
                threads.list.push(state);
                continue;
            }
            match program.states[state as usize] {
                State::Take(..) => threads.list.push(state),
                State::Split(one, other) => threads.pending.extend([other, one]),
                State::Jump(next) => threads.pending.push(next),
                State::Assert(assertion, next) if self.holds(assertion, at) => threads.pending.push(next),
                State::Look(number, next) if self.sees(program, number, at, context)? => {
                    threads.pending.push(next);
                }
                State::Assert(..) | State::Look(..) | State::Stop => {}
            }
        }
        Ok(())
    }

    fn holds(&self, assertion: Assertion, at: usize) -> bool {
        let before = at.checked_sub(1).map(|before| self.characters[before]);
        let behind = self.characters.get(at).copied();
        let is_word = |character: Option<char>| character.is_some_and(|character| Class::Word.has(character));
        match assertion {
            Assertion::Start => before.is_none(),
            Assertion::End => behind.is_none(),
            Assertion::LineStart => before.is_none_or(|before| before == '\n'),
            Assertion::LineEnd => behind.is_none_or(|behind| behind == '\n'),
            Assertion::WordStart => !is_word(before) && is_word(behind),
            Assertion::WordEnd => is_word(before) && !is_word(behind),
            Assertion::WordBoundary => is_word(before) != is_word(behind),
            Assertion::NoWordBoundary => is_word(before) == is_word(behind),
        }
    }

    fn sees(&mut self, program: &Program, number: u32, at: usize, context: &Context<'_>) -> Result<bool> {
        let look = &program.looks[number as usize];
        let found = if look.is_ahead {
            let wanted = Wanted::First(at, self.characters.len());
            self.run(program, look.stretch, at, wanted, context)?.is_some()
        } else {
            self.ends_at(program, look.stretch, at, context)?
        };
        Ok(found != look.is_negative)
    }

    /// Whether a part matches from anywhere to a place.
    fn ends_at(
        &mut self,
        program: &Program,
        part: Stretch,
        end: usize,
        context: &Context<'_>,
    ) -> Result<bool> {
        self.with_threads(|searcher, now, next| {
            now.clear(program.states.len());
            for at in 0..=end {
                searcher.add(program, part, now, part.entry, at, context)?;
                if at == end {
                    return Ok(now.list.contains(&part.exit));
                }
                searcher.advance(program, part, now, next, at, context)?;
                std::mem::swap(now, next);
            }
            unreachable!("the loop ends at the place")
        })
    }

    /// Divides what a part matches among its groups. `false` only if a reference does not hold.
    fn divided(
        &mut self,
        program: &Program,
        tree: &Tree,
        start: usize,
        end: usize,
        context: &Context<'_>,
    ) -> Result<bool> {
        match tree {
            Tree::Plain => Ok(true),
            Tree::Capture(number, inner) => {
                let is_divided = self.divided(program, inner, start, end, context)?;
                if is_divided {
                    self.groups[number - 1] = Some((start, end));
                }
                Ok(is_divided)
            }
            Tree::Reference { number, min, max } => {
                Ok(self.is_referred(program, *number, *min, *max, start, end))
            }
            Tree::Alternation(branches) => {
                for (part, tree) in branches {
                    if self.matches(program, *part, start, end, context)?
                        && self.divided(program, tree, start, end, context)?
                    {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Tree::Concat(pieces, exit) => self.concat(program, pieces, *exit, start, end, context),
            Tree::Iterate { part, min, max } => {
                self.iterations(program, part, (*min, *max), start, end, context)
            }
        }
    }

    fn is_referred(
        &self,
        program: &Program,
        number: usize,
        min: usize,
        max: usize,
        start: usize,
        end: usize,
    ) -> bool {
        let Some((from, to)) = self.groups[number - 1] else { return false };
        if from == to {
            return start == end;
        }
        if start == end {
            return min == 0;
        }
        let (wanted, found) = (&self.characters[from..to], &self.characters[start..end]);
        let times = found.len() / wanted.len();
        let is_same = |(one, other): (&char, &char)| match program.ignores_case {
            true => is_same_folded(*one, *other),
            false => one == other,
        };
        found.len().is_multiple_of(wanted.len())
            && (min..=max).contains(&times)
            && found.chunks(wanted.len()).all(|chunk| chunk.iter().zip(wanted).all(is_same))
    }

    /// Forgets what the groups of a part matched.
    fn forget(&mut self, tree: &Tree) {
        match tree {
            Tree::Plain | Tree::Reference { .. } => {}
            Tree::Capture(number, inner) => {
                self.groups[number - 1] = None;
                self.forget(inner);
            }
            Tree::Concat(pieces, _) => pieces.iter().for_each(|piece| self.forget(&piece.tree)),
            Tree::Alternation(branches) => branches.iter().for_each(|(_, tree)| self.forget(tree)),
            Tree::Iterate { part, .. } => self.forget(&part.tree),
        }
    }

    /// The ends of a piece in the order that it prefers: the first, or the next one after `last`.
    fn next_end(
        &mut self,
        program: &Program,
        piece: &Piece,
        start: usize,
        end: usize,
        last: Option<usize>,
        context: &Context<'_>,
    ) -> Result<Option<usize>> {
        let wanted = match (piece.prefers_short, last) {
            (true, None) => Wanted::First(start, end),
            (true, Some(last)) if last < end => Wanted::First(last + 1, end),
            (false, None) => Wanted::Last(end),
            (false, Some(last)) if last > start => Wanted::Last(last - 1),
            _ => return Ok(None),
        };
        self.run(program, piece.stretch, start, wanted, context)
    }

    /// Parts in a row: each takes what it prefers of what the rest can do without.
    fn concat(
        &mut self,
        program: &Program,
        pieces: &[Piece],
        exit: StateId,
        start: usize,
        end: usize,
        context: &Context<'_>,
    ) -> Result<bool> {
        // Where the pieces begin that have been placed, and where the one that is being placed was tried last.
        let mut starts = vec![start];
        let mut tried: Option<usize> = None;
        loop {
            let number = starts.len() - 1;
            let (piece, from) = (&pieces[number], starts[number]);
            if number + 1 == pieces.len() {
                if self.divided(program, &piece.tree, from, end, context)? {
                    return Ok(true);
                }
                self.forget(&piece.tree);
            } else if let Some(middle) = self.next_end(program, piece, from, end, tried, context)? {
                let rest = Stretch { entry: pieces[number + 1].stretch.entry, exit };
                if self.matches(program, rest, middle, end, context)? {
                    if self.divided(program, &piece.tree, from, middle, context)? {
                        starts.push(middle);
                        tried = None;
                        continue;
                    }
                    self.forget(&piece.tree);
                }
                tried = Some(middle);
                continue;
            }
            // The piece has no other end: the one before it takes its next one.
            match starts.pop() {
                Some(middle) if !starts.is_empty() => {
                    tried = Some(middle);
                    self.forget(&pieces[starts.len() - 1].tree);
                }
                _ => return Ok(false),
            }
        }
    }

    /// Repetitions: each takes what it prefers, none is empty unless they would be too few.
    fn iterations(
        &mut self,
        program: &Program,
        part: &Piece,
        (min, max): (usize, usize),
        start: usize,
        end: usize,
        context: &Context<'_>,
    ) -> Result<bool> {
        if min == 0 && start == end {
            // Nothing is one empty repetition, in which groups match the empty text, where long ones are preferred.
            let is_one = !part.prefers_short
                && self.matches(program, part.stretch, start, end, context)?
                && self.divided(program, &part.tree, start, end, context)?;
            if !is_one {
                self.forget(&part.tree);
            }
            return Ok(true);
        }
        let min = min.max(1);
        let max = (end - start).min(max).max(min);
        let is_allowed_empty = |count: usize, at: usize| count < min && min - count >= end - at;
        // Where the repetitions end that have been placed; how many of them are known to be divided; where the next was tried last.
        let mut ends = vec![start];
        let mut verified = 0;
        let mut tried: Option<usize> = None;
        loop {
            let from = *ends.last().expect("the start is one");
            let number = ends.len();
            let mut next = self.next_end(program, part, from, end, tried, context)?;
            if let Some(at) = next
                && at == from
                && at != end
                && !is_allowed_empty(number, at)
            {
                next = self.next_end(program, part, from, end, Some(at), context)?;
            }
            if let Some(at) = next {
                verified = verified.min(number - 1);
                if at != end {
                    if number < max {
                        ends.push(at);
                        tried = None;
                        continue;
                    }
                    tried = Some(at);
                    // No more repetitions are allowed: another end of this one does not help unless it is the last place.
                    if part.prefers_short {
                        continue;
                    }
                } else if number >= min {
                    ends.push(at);
                    let mut is_divided = true;
                    for repetition in verified + 1..=number {
                        self.forget(&part.tree);
                        let (from, to) = (ends[repetition - 1], ends[repetition]);
                        if !self.divided(program, &part.tree, from, to, context)? {
                            is_divided = false;
                            break;
                        }
                        verified = repetition;
                    }
                    if is_divided {
                        return Ok(true);
                    }
                    ends.pop();
                    tried = Some(at);
                    continue;
                } else {
                    tried = Some(at);
                    continue;
                }
            }
            match ends.pop() {
                Some(at) if !ends.is_empty() => tried = Some(at),
                _ => return Ok(false),
            }
        }
    }
}
