//! Patterns → trees. Three syntaxes: advanced (the default), extended (POSIX's), and literal text.

use super::Invalid;
use super::set::{Class, Set};
use std::rc::Rc;

type Result<T> = std::result::Result<T, Invalid>;

/// How often a quantifier may count.
const MOST_REPEATS: u32 = 255;

/// How many groups there may be.
const MOST_GROUPS: usize = 10_000;

/// How deep groups nest at most: what recurses along them has room for that.
const MOST_DEPTH: usize = 1000;

/// How a pattern is read and matches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Which syntax.
    pub syntax: Syntax,
    /// Whether case does not matter.
    pub ignores_case: bool,
    /// Whether blanks and comments in the pattern are left out.
    pub is_expanded: bool,
    /// Whether `.` and `[^…]` stop before a newline.
    pub newline_stops: bool,
    /// Whether `^` and `$` match at newlines.
    pub newline_anchors: bool,
}

/// Syntaxes of patterns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Syntax {
    /// "Advanced".
    Advanced,
    /// "Extended": a backslash only makes the next character an ordinary one.
    Extended,
    /// No character means anything but itself.
    Literal,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            syntax: Syntax::Advanced,
            ignores_case: false,
            is_expanded: false,
            newline_stops: false,
            newline_anchors: false,
        }
    }
}

impl Options {
    /// Applies the letter of an option. `false` if there is none.
    pub fn apply(&mut self, letter: char) -> bool {
        match letter {
            'c' => self.ignores_case = false,
            'e' => self.syntax = Syntax::Extended,
            'i' => self.ignores_case = true,
            'm' | 'n' => (self.newline_stops, self.newline_anchors) = (true, true),
            'p' => (self.newline_stops, self.newline_anchors) = (true, false),
            'q' => self.syntax = Syntax::Literal,
            's' => (self.newline_stops, self.newline_anchors) = (false, false),
            't' => self.is_expanded = false,
            'w' => (self.newline_stops, self.newline_anchors) = (false, true),
            'x' => self.is_expanded = true,
            _ => return false,
        }
        true
    }
}

/// Which of several matches a part prefers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Preference {
    /// The longest one.
    Long,
    /// The shortest one.
    Short,
}

/// What is known of a part with all that it has inside.
#[derive(Clone, Copy, Default, Debug)]
pub struct Facts {
    /// That of its first quantifier that has one.
    pub prefers: Option<Preference>,
    /// Whether parts inside have different ones.
    pub is_mixed: bool,
    /// Whether it has groups that capture.
    pub captures: bool,
    /// Whether it refers back to groups.
    pub refers: bool,
}

impl Facts {
    /// Of two parts in a row.
    pub fn combine(self, next: Facts) -> Facts {
        let differ = matches!((self.prefers, next.prefers), (Some(one), Some(other)) if one != other);
        Facts {
            prefers: self.prefers.or(next.prefers),
            is_mixed: self.is_mixed || next.is_mixed || differ,
            captures: self.captures || next.captures,
            refers: self.refers || next.refers,
        }
    }

    /// Whether the ends of a match do not say all of what matched where.
    pub fn is_divided(self) -> bool {
        self.is_mixed || self.captures || self.refers
    }
}

/// A part of a pattern.
#[derive(Debug)]
pub struct Node {
    pub kind: Kind,
    pub facts: Facts,
}

/// Kinds of parts.
#[derive(Debug)]
pub enum Kind {
    /// Nothing.
    Empty,
    /// One character.
    Set(Set),
    /// A condition on a place.
    Assert(Assertion),
    /// A condition on what lies before or behind a place.
    Look(Look),
    /// One after another.
    Concat(Vec<Rc<Node>>),
    /// One of several.
    Alternation(Vec<Rc<Node>>),
    /// So many of one; no limit is `None`.
    Repeat { node: Rc<Node>, min: u32, max: Option<u32>, prefers: Option<Preference> },
    /// A group, by its number from 1.
    Capture(usize, Rc<Node>),
    /// What a group matched, so many times.
    Reference { number: usize, group: Rc<Node>, min: u32, max: Option<u32> },
}

/// Conditions on a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Assertion {
    /// The beginning of the text.
    Start,
    /// The end of the text.
    End,
    /// The beginning of a line.
    LineStart,
    /// The end of a line.
    LineEnd,
    /// The beginning of a word.
    WordStart,
    /// The end of a word.
    WordEnd,
    /// Either.
    WordBoundary,
    /// Neither.
    NoWordBoundary,
}

/// `(?=…)` and its relatives.
#[derive(Debug)]
pub struct Look {
    pub node: Rc<Node>,
    pub is_ahead: bool,
    pub is_negative: bool,
}

/// A parsed pattern.
#[derive(Debug)]
pub struct Parsed {
    pub root: Rc<Node>,
    pub groups: usize,
    pub ignores_case: bool,
    /// Whether it has `(?=…)` or a relative.
    pub looks: bool,
    /// How deep its groups nest.
    pub depth: usize,
}

/// Reads a pattern.
pub fn parse(pattern: &str, mut options: Options) -> Result<Parsed> {
    let characters: Vec<char> = pattern.chars().collect();
    let mut at = 0;
    if options.syntax == Syntax::Advanced {
        if characters.starts_with(&['*', '*', '*', '=']) {
            options.syntax = Syntax::Literal;
            options.is_expanded = false;
            options.newline_stops = false;
            options.newline_anchors = false;
            at = 4;
        } else if characters.starts_with(&['*', '*', '*', ':']) {
            at = 4;
        } else if characters.starts_with(&['*', '*', '*']) {
            return Err(Invalid::Quantifier);
        }
        let rest = &characters[at..];
        if options.syntax == Syntax::Advanced
            && rest.len() > 2
            && rest[..2] == ['(', '?']
            && rest[2].is_ascii_alphabetic()
        {
            let letters = rest[2..].iter().take_while(|letter| letter.is_ascii_alphabetic());
            let count = letters.clone().count();
            for letter in letters {
                if !options.apply(*letter) {
                    return Err(Invalid::Option);
                }
            }
            if rest.get(2 + count) != Some(&')') {
                return Err(Invalid::Option);
            }
            at += count + 3;
        }
    }
    let mut parser =
        Parser { characters, at, options, groups: Vec::new(), looks: false, depth: 0, deepest: 0 };
    let root = match options.syntax {
        Syntax::Literal => parser.literal(),
        _ => parser.alternatives(false, false)?,
    };
    assert!(parser.at == parser.characters.len());
    Ok(Parsed {
        root,
        groups: parser.groups.len(),
        ignores_case: options.ignores_case,
        looks: parser.looks,
        depth: parser.deepest,
    })
}

struct Parser {
    characters: Vec<char>,
    at: usize,
    options: Options,
    /// The groups that are closed.
    groups: Vec<Option<Rc<Node>>>,
    looks: bool,
    depth: usize,
    deepest: usize,
}

fn plain(kind: Kind) -> Rc<Node> {
    Rc::new(Node { kind, facts: Facts::default() })
}

fn prefers(preference: Option<Preference>) -> Facts {
    Facts { prefers: preference, ..Facts::default() }
}

/// The least and the greatest number of repetitions, and which match is preferred.
type Quantifier = (u32, Option<u32>, Option<Preference>);

/// What an escape means.
enum Escape {
    Char(char),
    Class(Class, bool),
    Assert(Assertion),
    Reference(usize),
}

/// What stands before a quantifier.
enum Atom {
    Node(Rc<Node>),
    Reference(usize),
    /// A condition, which takes no quantifier.
    Condition(Rc<Node>),
}

impl Parser {
    fn peek(&self) -> Option<char> {
        self.characters.get(self.at).copied()
    }

    fn next_is(&self, offset: usize, wanted: char) -> bool {
        self.characters.get(self.at + offset) == Some(&wanted)
    }

    fn eat(&mut self, wanted: char) -> bool {
        let is_it = self.peek() == Some(wanted);
        self.at += usize::from(is_it);
        is_it
    }

    fn is_advanced(&self) -> bool {
        self.options.syntax == Syntax::Advanced
    }

    fn literal(&mut self) -> Rc<Node> {
        let ignores_case = self.options.ignores_case;
        let set = |character: &char| plain(Kind::Set(Set::of_char(*character, ignores_case)));
        let list: Vec<Rc<Node>> = self.characters[self.at..].iter().map(set).collect();
        self.at = self.characters.len();
        plain(Kind::Concat(list))
    }

    /// Leaves out blanks and comments where they mean nothing.
    fn skip(&mut self) {
        loop {
            let start = self.at;
            if self.options.is_expanded {
                while self.peek().is_some_and(char::is_whitespace) {
                    self.at += 1;
                }
                if self.peek() == Some('#') {
                    while self.peek().is_some_and(|character| character != '\n') {
                        self.at += 1;
                    }
                }
            }
            if self.is_advanced() && self.next_is(0, '(') && self.next_is(1, '?') && self.next_is(2, '#') {
                while self.peek().is_some_and(|character| character != ')') {
                    self.at += 1;
                }
                self.at += usize::from(self.peek().is_some());
            }
            if self.at == start {
                return;
            }
        }
    }

    /// `a|b`, up to the end or a closing parenthesis.
    fn alternatives(&mut self, is_group: bool, in_look: bool) -> Result<Rc<Node>> {
        let mut branches = vec![self.branch(is_group, in_look)?];
        while self.eat('|') {
            branches.push(self.branch(is_group, in_look)?);
        }
        if is_group && self.peek().is_none() {
            return Err(Invalid::Parentheses);
        }
        if branches.len() == 1 {
            return Ok(branches.pop().expect("there is one"));
        }
        let facts =
            branches.iter().fold(prefers(Some(Preference::Long)), |facts, one| facts.combine(one.facts));
        Ok(Rc::new(Node { kind: Kind::Alternation(branches), facts }))
    }

    fn branch(&mut self, is_group: bool, in_look: bool) -> Result<Rc<Node>> {
        let mut parts: Vec<Rc<Node>> = Vec::new();
        loop {
            self.skip();
            match self.peek() {
                None | Some('|') => break,
                Some(')') if is_group => break,
                _ => parts.extend(self.quantified(in_look)?),
            }
        }
        Ok(match parts.len() {
            0 => plain(Kind::Empty),
            1 => parts.pop().expect("there is one"),
            _ => {
                let facts = parts.iter().fold(Facts::default(), |facts, one| facts.combine(one.facts));
                Rc::new(Node { kind: Kind::Concat(parts), facts })
            }
        })
    }

    /// An atom with its quantifier; `None` if it is `{0}`.
    fn quantified(&mut self, in_look: bool) -> Result<Option<Rc<Node>>> {
        let atom = self.atom(in_look)?;
        if let Atom::Condition(node) = atom {
            return Ok(Some(node));
        }
        self.skip();
        let (min, max, preference) = match self.quantifier()? {
            Some(quantifier) => quantifier,
            None => (1, Some(1), None),
        };
        if max == Some(0) {
            // Its groups match nothing, so that a reference to one does not either.
            return Ok(None);
        }
        Ok(Some(match atom {
            Atom::Reference(number) => {
                let group = self.groups.get(number - 1).cloned().flatten().ok_or(Invalid::Reference)?;
                let own = Facts { refers: true, ..prefers(preference) };
                let kind = Kind::Reference { number, group, min, max };
                Rc::new(Node { kind, facts: own })
            }
            Atom::Node(node) if (min, max, preference) == (1, Some(1), None) => node,
            Atom::Node(node) => {
                let facts = prefers(preference).combine(node.facts);
                Rc::new(Node { kind: Kind::Repeat { node, min, max, prefers: preference }, facts })
            }
            Atom::Condition(_) => unreachable!("it has been returned"),
        }))
    }

    fn quantifier(&mut self) -> Result<Option<Quantifier>> {
        let (min, max) = match self.peek() {
            Some('*') => (0, None),
            Some('+') => (1, None),
            Some('?') => (0, Some(1)),
            Some('{') => return self.counts(),
            _ => return Ok(None),
        };
        self.at += 1;
        Ok(Some((min, max, self.preference())))
    }

    fn preference(&mut self) -> Option<Preference> {
        match self.is_advanced() && self.eat('?') {
            true => Some(Preference::Short),
            false => Some(Preference::Long),
        }
    }

    /// `{m}`, `{m,}` or `{m,n}`; a brace that no digit follows is a character.
    fn counts(&mut self) -> Result<Option<Quantifier>> {
        let start = self.at;
        self.at += 1;
        self.skip();
        if !self.peek().is_some_and(|character| character.is_ascii_digit()) {
            self.at = start;
            return Ok(None);
        }
        let min = self.count()?;
        self.skip();
        let mut max = Some(min);
        let is_range = self.eat(',');
        if is_range {
            self.skip();
            max = match self.peek() {
                Some(digit) if digit.is_ascii_digit() => Some(self.count()?),
                _ => None,
            };
            self.skip();
            if max.is_some_and(|max| min > max) {
                return Err(Invalid::Counts);
            }
        }
        match self.peek() {
            None => Err(Invalid::Braces),
            Some('}') => {
                self.at += 1;
                let preference = self.preference();
                Ok(Some((min, max, preference.filter(|_| is_range))))
            }
            Some(_) => Err(Invalid::Counts),
        }
    }

    fn count(&mut self) -> Result<u32> {
        let mut count = 0;
        while let Some(digit) = self.peek().and_then(|character| character.to_digit(10)) {
            self.at += 1;
            count = count * 10 + digit;
            if count > MOST_REPEATS {
                return Err(Invalid::Counts);
            }
        }
        Ok(count)
    }

    fn set_node(&self, set: Set) -> Atom {
        Atom::Node(plain(Kind::Set(set)))
    }

    fn char_node(&self, character: char) -> Atom {
        self.set_node(Set::of_char(character, self.options.ignores_case))
    }

    fn atom(&mut self, in_look: bool) -> Result<Atom> {
        let assert = |assertion| Ok(Atom::Condition(plain(Kind::Assert(assertion))));
        let first = self.peek().expect("there is a character");
        match first {
            '(' => return self.group(in_look),
            '[' => return self.brackets(),
            '\\' => return self.escaped(in_look),
            _ => {}
        }
        self.at += 1;
        let anchors = self.options.newline_anchors;
        match first {
            '*' | '+' | '?' => Err(Invalid::Quantifier),
            '{' => {
                // A brace with a digit behind it is a quantifier without an operand.
                self.skip();
                match self.peek().is_some_and(|character| character.is_ascii_digit()) {
                    true => Err(Invalid::Quantifier),
                    false => Ok(self.char_node('{')),
                }
            }
            '^' => assert(if anchors { Assertion::LineStart } else { Assertion::Start }),
            '$' => assert(if anchors { Assertion::LineEnd } else { Assertion::End }),
            '.' => {
                let all = Set::all();
                Ok(self.set_node(if self.options.newline_stops { all.without('\n') } else { all }))
            }
            ')' if self.is_advanced() => Err(Invalid::Parentheses),
            other => Ok(self.char_node(other)),
        }
    }

    fn group(&mut self, in_look: bool) -> Result<Atom> {
        self.at += 1;
        let mut captures = !in_look;
        if self.is_advanced() && self.eat('?') {
            let kind = self.peek();
            self.at += 1;
            let look = |is_ahead, is_negative| Some((is_ahead, is_negative));
            let look = match kind {
                Some(':') => None,
                Some('=') => look(true, false),
                Some('!') => look(true, true),
                Some('<') => {
                    self.at += 1;
                    match self.characters.get(self.at - 1) {
                        Some('=') => look(false, false),
                        Some('!') => look(false, true),
                        _ => return Err(Invalid::Quantifier),
                    }
                }
                _ => return Err(Invalid::Quantifier),
            };
            if let Some((is_ahead, is_negative)) = look {
                self.looks = true;
                let node = self.inside(true)?;
                return Ok(Atom::Condition(plain(Kind::Look(Look { node, is_ahead, is_negative }))));
            }
            captures = false;
        }
        if !captures {
            return Ok(Atom::Node(self.inside(in_look)?));
        }
        self.groups.push(None);
        let number = self.groups.len();
        if number > MOST_GROUPS {
            return Err(Invalid::TooComplex);
        }
        let node = self.inside(false)?;
        let facts = Facts { captures: true, ..node.facts };
        let node = Rc::new(Node { kind: Kind::Capture(number, node), facts });
        self.groups[number - 1] = Some(node.clone());
        Ok(Atom::Node(node))
    }

    fn inside(&mut self, in_look: bool) -> Result<Rc<Node>> {
        self.depth += 1;
        if self.depth > MOST_DEPTH {
            return Err(Invalid::TooComplex);
        }
        self.deepest = self.deepest.max(self.depth);
        let node = self.alternatives(true, in_look)?;
        self.depth -= 1;
        self.at += 1;
        Ok(node)
    }

    fn escaped(&mut self, in_look: bool) -> Result<Atom> {
        self.at += 1;
        let next = self.peek().ok_or(Invalid::Escape)?;
        if !self.is_advanced() {
            self.at += 1;
            return Ok(self.char_node(next));
        }
        Ok(match self.escape(true)? {
            Escape::Char(character) => self.char_node(character),
            Escape::Class(class, is_negative) => {
                let set = class.set();
                self.set_node(if is_negative { set.complement() } else { set.clone() })
            }
            Escape::Assert(assertion) => Atom::Condition(plain(Kind::Assert(assertion))),
            Escape::Reference(_) if in_look => return Err(Invalid::Reference),
            Escape::Reference(number) => {
                if self.groups.get(number - 1).is_none_or(Option::is_none) {
                    return Err(Invalid::Reference);
                }
                Atom::Reference(number)
            }
        })
    }

    /// What stands behind a backslash.
    fn escape(&mut self, may_refer: bool) -> Result<Escape> {
        let first = self.peek().ok_or(Invalid::Escape)?;
        self.at += 1;
        if !first.is_ascii_alphanumeric() {
            return Ok(Escape::Char(first));
        }
        let char = |character| Ok(Escape::Char(character));
        let class = |class, is_negative| Ok(Escape::Class(class, is_negative));
        let assert = |assertion| Ok(Escape::Assert(assertion));
        match first {
            'a' => char('\x07'),
            'A' => assert(Assertion::Start),
            'b' => char('\x08'),
            'B' => char('\\'),
            'c' => {
                let control = self.peek().ok_or(Invalid::Escape)?;
                self.at += 1;
                char(char::from_u32(u32::from(control) & 0o37).expect("it is below 32"))
            }
            'd' => class(Class::Digit, false),
            'D' => class(Class::Digit, true),
            'e' => char('\x1b'),
            'f' => char('\x0c'),
            'm' => assert(Assertion::WordStart),
            'M' => assert(Assertion::WordEnd),
            'n' => char('\n'),
            'r' => char('\r'),
            's' => class(Class::Space, false),
            'S' => class(Class::Space, true),
            't' => char('\t'),
            'u' => Ok(Escape::Char(self.number(16, 4, 4)?)),
            'U' => Ok(Escape::Char(self.number(16, 8, 8)?)),
            'v' => char('\x0b'),
            'w' => class(Class::Word, false),
            'W' => class(Class::Word, true),
            'x' => Ok(Escape::Char(self.number(16, 1, 255)?)),
            'y' => assert(Assertion::WordBoundary),
            'Y' => assert(Assertion::NoWordBoundary),
            'Z' => assert(Assertion::End),
            '1'..='9' => {
                let start = self.at;
                let mut number = first.to_digit(10).expect("it is a digit") as usize;
                while let Some(digit) = self.peek().and_then(|digit| digit.to_digit(10)) {
                    number = number.saturating_mul(10).saturating_add(digit as usize);
                    self.at += 1;
                }
                // One digit is a reference, and more are if there is such a group; else they are octal.
                if may_refer && (self.at == start || number <= self.groups.len()) {
                    return Ok(Escape::Reference(number));
                }
                if self.at == start {
                    return Err(Invalid::Escape);
                }
                self.at = start;
                self.octal()
            }
            '0' => self.octal(),
            _ => Err(Invalid::Escape),
        }
    }

    /// Up to three octal digits, of which one has been read.
    fn octal(&mut self) -> Result<Escape> {
        self.at -= 1;
        let start = self.at;
        let mut code = 0;
        while self.at < start + 3
            && let Some(digit) = self.peek().and_then(|digit| digit.to_digit(8))
        {
            if code * 8 + digit > 0xff {
                break;
            }
            code = code * 8 + digit;
            self.at += 1;
        }
        if self.at == start {
            return Err(Invalid::Escape);
        }
        char::from_u32(code).map(Escape::Char).ok_or(Invalid::Escape)
    }

    fn number(&mut self, radix: u32, least: usize, most: usize) -> Result<char> {
        let mut code: u32 = 0;
        let mut count = 0;
        while count < most
            && let Some(digit) = self.peek().and_then(|digit| digit.to_digit(radix))
        {
            code = code.checked_mul(radix).and_then(|code| code.checked_add(digit)).ok_or(Invalid::Escape)?;
            self.at += 1;
            count += 1;
        }
        if count < least {
            return Err(Invalid::Escape);
        }
        char::from_u32(code).ok_or(Invalid::Escape)
    }

    /// `[…]`
    fn brackets(&mut self) -> Result<Atom> {
        for (text, assertion) in [("[[:<:]]", Assertion::WordStart), ("[[:>:]]", Assertion::WordEnd)] {
            let wanted: Vec<char> = text.chars().collect();
            if self.characters[self.at..].starts_with(&wanted) {
                self.at += wanted.len();
                return Ok(Atom::Condition(plain(Kind::Assert(assertion))));
            }
        }
        self.at += 1;
        let is_negative = self.eat('^');
        let mut ranges: Vec<(char, char)> = Vec::new();
        let mut is_first = true;
        loop {
            let next = self.peek().ok_or(Invalid::Brackets)?;
            match next {
                ']' if !is_first => {
                    self.at += 1;
                    break;
                }
                '-' if !is_first && !self.next_is(1, ']') => return Err(Invalid::Order),
                _ => {}
            }
            is_first = false;
            let start = match self.element()? {
                Element::Char(character) => character,
                Element::Set(set) => {
                    // A class ends no range.
                    if self.next_is(0, '-') && !self.next_is(1, ']') {
                        return Err(Invalid::Order);
                    }
                    ranges.extend_from_slice(set.ranges());
                    continue;
                }
            };
            let mut end = start;
            if self.next_is(0, '-') && !self.next_is(1, ']') {
                self.at += 1;
                end = match self.peek().ok_or(Invalid::Brackets)? {
                    '-' => {
                        self.at += 1;
                        '-'
                    }
                    _ => match self.element()? {
                        Element::Char(character) => character,
                        Element::Set(_) => return Err(Invalid::Order),
                    },
                };
                if start > end {
                    return Err(Invalid::Order);
                }
            }
            ranges.push((start, end));
            if self.options.ignores_case {
                for character in start..=end {
                    ranges.extend(super::set::folded(character).map(|other| (other, other)));
                }
            }
        }
        let set = Set::of(ranges);
        if !is_negative {
            return Ok(self.set_node(set));
        }
        let set = set.complement();
        Ok(self.set_node(if self.options.newline_stops { set.without('\n') } else { set }))
    }

    /// An element of brackets.
    fn element(&mut self) -> Result<Element> {
        let first = self.peek().ok_or(Invalid::Brackets)?;
        let second = self.characters.get(self.at + 1).copied();
        match (first, second) {
            ('[', Some(kind @ ('.' | '=' | ':'))) => {
                self.at += 2;
                let start = self.at;
                while !(self.next_is(0, kind) && self.next_is(1, ']')) {
                    if self.peek().is_none() {
                        return Err(Invalid::Brackets);
                    }
                    self.at += 1;
                }
                let name: String = self.characters[start..self.at].iter().collect();
                self.at += 2;
                let ignores_case = self.options.ignores_case;
                if kind == ':' {
                    let class = Class::named(&name).ok_or(Invalid::Class)?;
                    let class = match class {
                        Class::Lower | Class::Upper if ignores_case => Class::Alpha,
                        class => class,
                    };
                    return Ok(Element::Set(class.set().clone()));
                }
                let character = collating_element(&name).ok_or(Invalid::CollatingElement)?;
                Ok(match kind {
                    '=' => Element::Set(Set::of_char(character, ignores_case)),
                    _ => Element::Char(character),
                })
            }
            ('[', None) => Err(Invalid::Brackets),
            ('\\', _) if self.is_advanced() => {
                self.at += 1;
                match self.escape(false)? {
                    Escape::Char(character) => Ok(Element::Char(character)),
                    Escape::Class(class, false) => Ok(Element::Set(class.set().clone())),
                    Escape::Class(class, true) => Ok(Element::Set(class.set().complement())),
                    Escape::Assert(_) | Escape::Reference(_) => Err(Invalid::Escape),
                }
            }
            _ => {
                self.at += 1;
                Ok(Element::Char(first))
            }
        }
    }
}

enum Element {
    Char(char),
    Set(Set),
}

/// The character that `[.name.]` stands for: itself, or one of POSIX's portable characters by its name.
fn collating_element(name: &str) -> Option<char> {
    let mut characters = name.chars();
    if let (Some(only), None) = (characters.next(), characters.next()) {
        return Some(only);
    }
    const CONTROLS: [&str; 32] = [
        "NUL", "SOH", "STX", "ETX", "EOT", "ENQ", "ACK", "BEL", "BS", "HT", "LF", "VT", "FF", "CR", "SO",
        "SI", "DLE", "DC1", "DC2", "DC3", "DC4", "NAK", "SYN", "ETB", "CAN", "EM", "SUB", "ESC", "IS4",
        "IS3", "IS2", "IS1",
    ];
    const NAMES: &[(&str, char)] = &[
        ("alert", '\x07'),
        ("backspace", '\x08'),
        ("tab", '\t'),
        ("newline", '\n'),
        ("vertical-tab", '\x0b'),
        ("form-feed", '\x0c'),
        ("carriage-return", '\r'),
        ("space", ' '),
        ("exclamation-mark", '!'),
        ("quotation-mark", '"'),
        ("number-sign", '#'),
        ("dollar-sign", '$'),
        ("percent-sign", '%'),
        ("ampersand", '&'),
        ("apostrophe", '\''),
        ("left-parenthesis", '('),
        ("right-parenthesis", ')'),
        ("asterisk", '*'),
        ("plus-sign", '+'),
        ("comma", ','),
        ("hyphen", '-'),
        ("hyphen-minus", '-'),
        ("period", '.'),
        ("full-stop", '.'),
        ("slash", '/'),
        ("solidus", '/'),
        ("zero", '0'),
        ("one", '1'),
        ("two", '2'),
        ("three", '3'),
        ("four", '4'),
        ("five", '5'),
        ("six", '6'),
        ("seven", '7'),
        ("eight", '8'),
        ("nine", '9'),
        ("colon", ':'),
        ("semicolon", ';'),
        ("less-than-sign", '<'),
        ("equals-sign", '='),
        ("greater-than-sign", '>'),
        ("question-mark", '?'),
        ("commercial-at", '@'),
        ("left-square-bracket", '['),
        ("backslash", '\\'),
        ("reverse-solidus", '\\'),
        ("right-square-bracket", ']'),
        ("circumflex", '^'),
        ("circumflex-accent", '^'),
        ("underscore", '_'),
        ("low-line", '_'),
        ("grave-accent", '`'),
        ("left-brace", '{'),
        ("left-curly-bracket", '{'),
        ("vertical-line", '|'),
        ("right-brace", '}'),
        ("right-curly-bracket", '}'),
        ("tilde", '~'),
        ("DEL", '\x7f'),
    ];
    if let Some(code) = CONTROLS.iter().position(|control| *control == name) {
        return char::from_u32(code as u32);
    }
    NAMES.iter().find(|(known, _)| *known == name).map(|(_, character)| *character)
}
