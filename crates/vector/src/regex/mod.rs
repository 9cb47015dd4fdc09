//! Regular expressions as PostgreSQL has them: Henry Spencer's "advanced regular expressions".
//!
//! | module | what it does |
//! |---|---|
//! | [`parser`] | pattern → tree of nodes, each with its preference for long or short matches |
//! | [`set`] | sets of characters |
//! | [`program`] | tree → one non-deterministic automaton, and the tree of parts that groups make necessary |
//! | [`search`] | runs the automaton, finds matches, and divides a match among groups |
//! | [`lazy`] | lazily built deterministic automata of the same tree, which find matches at the speed of a scan |
//!
//! What is particular: the match begins as far left as possible, and then is the longest or the shortest one, as the first
//! quantifier with a preference says for the whole. Only when its ends are known is it divided: each part in turn takes as much
//! or as little as it prefers, as long as the rest can match. Engines that try alternatives in their order do not do this,
//! so groups and back references have the matcher of [`search`], which tries divisions in that order.
//!
//! Letters, digits and case are Unicode's, as for `lower` and `upper`.

mod lazy;
mod parser;
mod program;
mod search;
mod set;
#[cfg(test)]
mod tests;

use crate::context::Context;
use firn_base::{Error, Result, SqlState};

pub use parser::Options;

/// A part of a text, by places of bytes.
pub type Range = (usize, usize);

/// A compiled pattern, with the automata that its searches have built so far.
pub struct Regex {
    program: program::Program,
    lazy: Option<lazy::Lazy>,
    searcher: search::Searcher,
}

impl Regex {
    /// Compiles a pattern; 2201B if it is none.
    pub fn new(pattern: &str, options: Options) -> Result<Regex> {
        // Patterns nest: the recursion of the parser and of all that walks its tree has room.
        let compile = || {
            let parsed = parser::parse(pattern, options)?;
            let program = program::compile(&parsed)?;
            let lazy = lazy::Lazy::new(&parsed);
            Ok((program, lazy))
        };
        let (program, lazy) = firn_base::stack::with_room(compile).map_err(Invalid::error)?;
        Ok(Regex { program, lazy, searcher: search::Searcher::default() })
    }

    /// How many groups it captures.
    pub fn groups(&self) -> usize {
        self.program.groups
    }

    /// Whether it matches somewhere.
    pub fn is_match(&mut self, text: &str, context: &Context<'_>) -> Result<bool> {
        if let Some(lazy) = &mut self.lazy
            && let Some(is_match) = lazy.is_match(text, context)?
        {
            return Ok(is_match);
        }
        self.searcher.prepare(text);
        Ok(self.searcher.find(&self.program, 0, context, None)?.is_some())
    }

    /// The first match that begins at or behind a place of the text: its range, and into `groups` that of each group.
    pub fn find(
        &mut self,
        text: &str,
        from: usize,
        context: &Context<'_>,
        groups: Option<&mut Vec<Option<Range>>>,
    ) -> Result<Option<Range>> {
        let wants_groups = groups.is_some() && self.program.groups > 0;
        if let Some(lazy) = &mut self.lazy
            && let Some(found) = lazy.find(text, from, self.program.prefers_short, context)?
        {
            if let (Some(range), true) = (found, wants_groups) {
                self.searcher.prepare(text);
                let groups = groups.expect("they are wanted");
                self.searcher.divide(&self.program, range, context, groups)?;
            } else if let Some(groups) = groups {
                groups.clear();
            }
            return Ok(found);
        }
        self.searcher.prepare(text);
        self.searcher.find(&self.program, from, context, groups)
    }

    /// As [`Regex::find`], without the deterministic automata. Tests compare the two.
    #[cfg(test)]
    fn find_slowly(
        &mut self,
        text: &str,
        from: usize,
        groups: &mut Vec<Option<Range>>,
    ) -> Result<Option<Range>> {
        self.searcher.prepare(text);
        self.searcher.find(&self.program, from, &crate::context::detached(), Some(groups))
    }
}

/// Whether a text is a pattern. Options of flags make no pattern of what is none, but for those that choose another syntax.
pub fn is_pattern(text: &str) -> bool {
    Regex::new(text, Options::default()).is_ok()
}

/// What is wrong with a pattern.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Invalid {
    /// `[[.x.]]`
    CollatingElement,
    /// `[[:x:]]`
    Class,
    /// `\x`
    Escape,
    /// `\1` without a group.
    Reference,
    /// `[`
    Brackets,
    /// `(`
    Parentheses,
    /// `{1`
    Braces,
    /// `{2,1}`
    Counts,
    /// `[b-a]`
    Order,
    /// `**`
    Quantifier,
    /// `(?q)`
    Option,
    /// More states than a limit.
    TooComplex,
}

impl Invalid {
    #[cold]
    fn error(self) -> Error {
        let what = match self {
            Invalid::CollatingElement => "invalid collating element",
            Invalid::Class => "invalid character class",
            Invalid::Escape => "invalid escape \\ sequence",
            Invalid::Reference => "invalid backreference number",
            Invalid::Brackets => "brackets [] not balanced",
            Invalid::Parentheses => "parentheses () not balanced",
            Invalid::Braces => "braces {} not balanced",
            Invalid::Counts => "invalid repetition count(s)",
            Invalid::Order => "invalid character range",
            Invalid::Quantifier => "quantifier operand invalid",
            Invalid::Option => "invalid embedded option",
            Invalid::TooComplex => "regular expression is too complex",
        };
        Error::new(SqlState::new("2201B"), format!("invalid regular expression: {what}"))
    }
}
