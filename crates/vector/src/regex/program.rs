//! Trees → one non-deterministic automaton for all parts, and the tree of the parts into which a match is divided.
//!
//! Each part that is matched alone is a stretch of the automaton, from an entry to an exit. Running a stretch stops
//! at its exit, so stretches share states with what is around them: the rest of a concatenation is the stretch from
//! one of its parts to its end.
//!
//! ```text
//! concatenation  [entry]─part 0─[entry 1]─part 1─[entry 2]─part 2─[exit]
//! ```
//!
//! Parts without groups and references are not divided. `x{m,n}` with groups and without references is divided into
//! `x{m-1,n-1}` and the last `x`, since a group reports its last repetition alone. With references, each repetition counts.

use super::Invalid;
use super::parser::{Assertion, Facts, Kind, Node, Parsed, Preference};
use super::set::Set;
use std::rc::Rc;

type Result<T> = std::result::Result<T, Invalid>;

/// How many states an automaton may have, and how many steps it may take to write it.
const MOST_STATES: usize = 200_000;

/// A state of the automaton, by its place.
pub type StateId = u32;

/// A state of the automaton.
#[derive(Clone, Copy, Debug)]
pub enum State {
    /// Takes a character of a set.
    Take(u32, StateId),
    /// Goes to both.
    Split(StateId, StateId),
    /// Goes on.
    Jump(StateId),
    /// Goes on where a condition holds.
    Assert(Assertion, StateId),
    /// Goes on where what lies before or behind matches.
    Look(u32, StateId),
    /// Goes nowhere.
    Stop,
}

/// A part of the automaton: what it accepts leads from the entry to the exit.
#[derive(Clone, Copy, Debug)]
pub struct Stretch {
    pub entry: StateId,
    pub exit: StateId,
}

/// A condition on what lies before or behind a place.
#[derive(Debug)]
pub struct Look {
    pub stretch: Stretch,
    pub is_ahead: bool,
    pub is_negative: bool,
}

/// How a match of a part is divided.
#[derive(Debug)]
pub enum Tree {
    /// Not at all.
    Plain,
    /// It is what a group matched, so many times.
    Reference { number: usize, min: usize, max: usize },
    /// Into parts in a row.
    Concat(Vec<Piece>, StateId),
    /// It is one of several.
    Alternation(Vec<(Stretch, Tree)>),
    /// Into repetitions.
    Iterate { part: Box<Piece>, min: usize, max: usize },
    /// It is what a group matches.
    Capture(usize, Box<Tree>),
}

/// A part of a concatenation or a repetition.
#[derive(Debug)]
pub struct Piece {
    pub stretch: Stretch,
    pub prefers_short: bool,
    pub tree: Tree,
}

/// A compiled pattern.
#[derive(Debug)]
pub struct Program {
    pub states: Vec<State>,
    pub sets: Vec<Set>,
    pub looks: Vec<Look>,
    pub whole: Stretch,
    pub tree: Tree,
    pub prefers_short: bool,
    /// Whether a match of the automaton may be none, because it refers to groups.
    pub refers: bool,
    pub groups: usize,
    pub ignores_case: bool,
    pub depth: usize,
}

/// Compiles a tree.
pub fn compile(parsed: &Parsed) -> Result<Program> {
    let mut writer = Writer { states: Vec::new(), sets: Vec::new(), looks: Vec::new(), steps: 0 };
    let (whole, tree) = writer.part(&parsed.root, None)?;
    Ok(Program {
        states: writer.states,
        sets: writer.sets,
        looks: writer.looks,
        whole,
        tree,
        prefers_short: is_short(parsed.root.facts),
        refers: parsed.root.facts.refers,
        groups: parsed.groups,
        ignores_case: parsed.ignores_case,
        depth: parsed.depth,
    })
}

fn is_short(facts: Facts) -> bool {
    facts.prefers == Some(Preference::Short)
}

/// A number of repetitions without a limit.
fn most(max: Option<u32>) -> usize {
    max.map_or(usize::MAX, |max| max as usize)
}

struct Writer {
    states: Vec<State>,
    sets: Vec<Set>,
    looks: Vec<Look>,
    steps: usize,
}

impl Writer {
    fn step(&mut self) -> Result<()> {
        self.steps += 1;
        match self.steps > MOST_STATES {
            true => Err(Invalid::TooComplex),
            false => Ok(()),
        }
    }

    fn state(&mut self, state: State) -> Result<StateId> {
        self.step()?;
        self.states.push(state);
        Ok(self.states.len() as StateId - 1)
    }

    /// A state that leads on, as the exit of a part.
    fn exit(&mut self, next: Option<StateId>) -> Result<StateId> {
        self.state(next.map_or(State::Stop, State::Jump))
    }

    /// Writes a part with an exit of its own, which leads on if `next` is given, and says how it is divided.
    fn part(&mut self, node: &Rc<Node>, next: Option<StateId>) -> Result<(Stretch, Tree)> {
        if !(node.facts.captures || node.facts.refers) {
            let exit = self.exit(next)?;
            let entry = self.plain(node, exit, true)?;
            return Ok((Stretch { entry, exit }, Tree::Plain));
        }
        match &node.kind {
            Kind::Capture(number, inner) => {
                let (stretch, tree) = self.part(inner, next)?;
                Ok((stretch, Tree::Capture(*number, Box::new(tree))))
            }
            Kind::Alternation(branches) => {
                let exit = self.exit(next)?;
                let mut parts = Vec::with_capacity(branches.len());
                for branch in branches {
                    parts.push(self.part(branch, Some(exit))?);
                }
                let entry = self.any_of(parts.iter().map(|(stretch, _)| stretch.entry).collect())?;
                Ok((Stretch { entry, exit }, Tree::Alternation(parts)))
            }
            Kind::Concat(nodes) => self.concat(nodes, next),
            Kind::Repeat { node: inner, min, max, prefers } => {
                self.repetition(inner, *min, *max, *prefers, next)
            }
            Kind::Reference { number, min, max, .. } => {
                let exit = self.exit(next)?;
                let entry = self.plain(node, exit, true)?;
                let tree = Tree::Reference { number: *number, min: *min as usize, max: most(*max) };
                Ok((Stretch { entry, exit }, tree))
            }
            Kind::Empty | Kind::Set(_) | Kind::Assert(_) | Kind::Look(_) => {
                unreachable!("these have no groups and no references")
            }
        }
    }

    /// Parts in a row: those that are not divided, and whose preferences do not differ, are one piece.
    fn concat(&mut self, nodes: &[Rc<Node>], next: Option<StateId>) -> Result<(Stretch, Tree)> {
        let mut runs: Vec<(Vec<Rc<Node>>, Facts)> = Vec::new();
        let mut is_open = false;
        for node in nodes {
            if is_open {
                let (run, facts) = runs.last_mut().expect("one is open");
                let together = facts.combine(node.facts);
                if !together.is_divided() {
                    run.push(node.clone());
                    *facts = together;
                    continue;
                }
            }
            is_open = !node.facts.is_divided();
            runs.push((vec![node.clone()], node.facts));
        }
        let exit = self.exit(next)?;
        let mut pieces: Vec<Piece> = Vec::with_capacity(runs.len());
        let mut behind = exit;
        for (run, facts) in runs.into_iter().rev() {
            let (stretch, tree) = match &run[..] {
                [only] => self.part(only, Some(behind))?,
                _ => {
                    let exit = self.exit(Some(behind))?;
                    let mut entry = exit;
                    for node in run.iter().rev() {
                        entry = self.plain(node, entry, true)?;
                    }
                    (Stretch { entry, exit }, Tree::Plain)
                }
            };
            // A quantifier that repeats nothing does not change what its operand prefers for itself.
            let own = match &run[..] {
                [only] => match &only.kind {
                    Kind::Repeat { node, min: 1, max: Some(1), prefers } if is_vacuous(node, *prefers) => {
                        node.facts
                    }
                    _ => facts,
                },
                _ => facts,
            };
            behind = stretch.entry;
            pieces.push(Piece { stretch, prefers_short: is_short(own), tree });
        }
        pieces.reverse();
        let stretch = Stretch { entry: behind, exit };
        if pieces.len() == 1 {
            let piece = pieces.pop().expect("there is one");
            return Ok((piece.stretch, piece.tree));
        }
        Ok((stretch, Tree::Concat(pieces, exit)))
    }

    fn repetition(
        &mut self,
        inner: &Rc<Node>,
        min: u32,
        max: Option<u32>,
        prefers: Option<Preference>,
        next: Option<StateId>,
    ) -> Result<(Stretch, Tree)> {
        if (min, max) == (1, Some(1)) && is_vacuous(inner, prefers) {
            return self.part(inner, next);
        }
        let facts = Facts { prefers, ..Facts::default() }.combine(inner.facts);
        if min > 0 && !inner.facts.refers {
            let exit = self.exit(next)?;
            let (last, tree) = self.part(inner, Some(exit))?;
            let middle = self.exit(Some(last.entry))?;
            let entry = self.repeated(inner, min - 1, max.map(|max| max - 1), middle, true)?;
            let before = Stretch { entry, exit: middle };
            let pieces = vec![
                Piece { stretch: before, prefers_short: is_short(facts), tree: Tree::Plain },
                Piece { stretch: last, prefers_short: is_short(inner.facts), tree },
            ];
            return Ok((Stretch { entry, exit }, Tree::Concat(pieces, exit)));
        }
        let exit = self.exit(next)?;
        let entry = self.repeated(inner, min, max, exit, true)?;
        let (one, tree) = self.part(inner, None)?;
        let part = Piece { stretch: one, prefers_short: is_short(inner.facts), tree };
        let tree = Tree::Iterate { part: Box::new(part), min: min as usize, max: most(max) };
        Ok((Stretch { entry, exit }, tree))
    }

    /// A state that goes to all of some.
    fn any_of(&mut self, mut entries: Vec<StateId>) -> Result<StateId> {
        let mut entry = entries.pop().expect("there are some");
        while let Some(other) = entries.pop() {
            entry = self.state(State::Split(other, entry))?;
        }
        Ok(entry)
    }

    /// Writes a part without a division, before a state. Where conditions do not hold, they are left out.
    fn plain(&mut self, node: &Rc<Node>, next: StateId, with_conditions: bool) -> Result<StateId> {
        self.step()?;
        match &node.kind {
            Kind::Empty => Ok(next),
            Kind::Set(set) => {
                let number = match self.sets.iter().rposition(|known| known == set) {
                    Some(number) => number,
                    None => {
                        self.sets.push(set.clone());
                        self.sets.len() - 1
                    }
                };
                self.state(State::Take(number as u32, next))
            }
            Kind::Assert(_) | Kind::Look(_) if !with_conditions => Ok(next),
            Kind::Assert(assertion) => self.state(State::Assert(*assertion, next)),
            Kind::Look(look) => {
                let exit = self.state(State::Stop)?;
                let entry = self.plain(&look.node, exit, true)?;
                let stretch = Stretch { entry, exit };
                let (is_ahead, is_negative) = (look.is_ahead, look.is_negative);
                self.looks.push(Look { stretch, is_ahead, is_negative });
                self.state(State::Look(self.looks.len() as u32 - 1, next))
            }
            Kind::Concat(nodes) => {
                let mut entry = next;
                for node in nodes.iter().rev() {
                    entry = self.plain(node, entry, with_conditions)?;
                }
                Ok(entry)
            }
            Kind::Alternation(branches) => {
                let mut entries = Vec::with_capacity(branches.len());
                for branch in branches {
                    entries.push(self.plain(branch, next, with_conditions)?);
                }
                self.any_of(entries)
            }
            Kind::Capture(_, inner) => self.plain(inner, next, with_conditions),
            Kind::Repeat { node: inner, min, max, .. } => {
                self.repeated(inner, *min, *max, next, with_conditions)
            }
            // What the group could match; whether it is what it did match is asked when a match is divided.
            Kind::Reference { group, min, max, .. } => self.repeated(group, *min, *max, next, false),
        }
    }

    fn repeated(
        &mut self,
        node: &Rc<Node>,
        min: u32,
        max: Option<u32>,
        next: StateId,
        with_conditions: bool,
    ) -> Result<StateId> {
        let mut entry = next;
        match max {
            None => {
                let split = self.state(State::Split(next, next))?;
                let body = self.plain(node, split, with_conditions)?;
                self.states[split as usize] = State::Split(body, next);
                entry = split;
            }
            Some(max) => {
                for _ in min..max {
                    let body = self.plain(node, entry, with_conditions)?;
                    entry = self.state(State::Split(body, next))?;
                }
            }
        }
        for _ in 0..min {
            entry = self.plain(node, entry, with_conditions)?;
        }
        Ok(entry)
    }
}

/// Whether a quantifier of one repetition agrees with what its operand prefers.
fn is_vacuous(node: &Node, prefers: Option<Preference>) -> bool {
    prefers.is_none()
        || !node.facts.is_mixed && (node.facts.prefers.is_none() || node.facts.prefers == prefers)
}
