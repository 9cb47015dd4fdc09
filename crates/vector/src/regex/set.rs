//! Sets of characters: ranges that rise and do not touch, and a bitmap of the first 128.

use std::sync::LazyLock;

/// A set of characters.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Set {
    ranges: Vec<(char, char)>,
    ascii: u128,
}

/// Classes that have a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Class {
    Alnum,
    Alpha,
    Ascii,
    Blank,
    Cntrl,
    Digit,
    Graph,
    Lower,
    Print,
    Punct,
    Space,
    Upper,
    Xdigit,
    Word,
}

impl Class {
    /// The class of a name between `[:` and `:]`.
    pub fn named(name: &str) -> Option<Class> {
        Some(match name {
            "alnum" => Class::Alnum,
            "alpha" => Class::Alpha,
            "ascii" => Class::Ascii,
            "blank" => Class::Blank,
            "cntrl" => Class::Cntrl,
            "digit" => Class::Digit,
            "graph" => Class::Graph,
            "lower" => Class::Lower,
            "print" => Class::Print,
            "punct" => Class::Punct,
            "space" => Class::Space,
            "upper" => Class::Upper,
            "xdigit" => Class::Xdigit,
            "word" => Class::Word,
            _ => return None,
        })
    }

    /// Whether a character is of the class.
    pub fn has(self, character: char) -> bool {
        match self {
            Class::Alnum => character.is_alphanumeric(),
            Class::Alpha => character.is_alphabetic(),
            Class::Ascii => character.is_ascii(),
            Class::Blank => matches!(character, ' ' | '\t'),
            Class::Cntrl => character.is_control(),
            Class::Digit => character.is_ascii_digit(),
            Class::Graph => !character.is_control() && !character.is_whitespace(),
            Class::Lower => character.is_lowercase(),
            Class::Print => !character.is_control(),
            Class::Punct => Class::Graph.has(character) && !character.is_alphanumeric(),
            Class::Space => character.is_whitespace(),
            Class::Upper => character.is_uppercase(),
            Class::Xdigit => character.is_ascii_hexdigit(),
            Class::Word => character.is_alphanumeric() || character == '_',
        }
    }

    /// Its characters. Walking all of Unicode takes milliseconds, so it is done once for each class.
    pub fn set(self) -> &'static Set {
        static SETS: [LazyLock<Set>; 14] = {
            macro_rules! sets {
                ($($class:ident),*) => { [$(LazyLock::new(|| walked(Class::$class))),*] };
            }
            sets!(
                Alnum, Alpha, Ascii, Blank, Cntrl, Digit, Graph, Lower, Print, Punct, Space, Upper, Xdigit,
                Word
            )
        };
        &SETS[self as usize]
    }
}

fn walked(class: Class) -> Set {
    let mut ranges: Vec<(char, char)> = Vec::new();
    for character in ('\0'..=char::MAX).filter(|character| class.has(*character)) {
        match ranges.last_mut() {
            Some((_, last)) if after(*last) == Some(character) => *last = character,
            _ => ranges.push((character, character)),
        }
    }
    Set::of(ranges)
}

/// The next character.
fn after(character: char) -> Option<char> {
    match character {
        '\u{d7ff}' => Some('\u{e000}'),
        _ => char::from_u32(u32::from(character) + 1),
    }
}

/// The character before.
fn before(character: char) -> Option<char> {
    match character {
        '\u{e000}' => Some('\u{d7ff}'),
        _ => char::from_u32(u32::from(character).checked_sub(1)?),
    }
}

/// A character in the other case, if it has one of one character.
pub fn folded(character: char) -> impl Iterator<Item = char> {
    let mut lower = character.to_lowercase();
    let lower = lower.next().filter(|_| lower.next().is_none());
    let mut upper = character.to_uppercase();
    let upper = upper.next().filter(|_| upper.next().is_none());
    lower.into_iter().chain(upper)
}

/// Whether two characters are the same but for case.
pub fn is_same_folded(left: char, right: char) -> bool {
    left == right || folded(left).any(|other| other == right) || folded(right).any(|other| other == left)
}

impl Set {
    /// Of ranges, in any order.
    pub fn of(mut ranges: Vec<(char, char)>) -> Set {
        ranges.sort_unstable();
        let mut merged: Vec<(char, char)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match merged.last_mut() {
                Some((_, end)) if first <= *end || after(*end) == Some(first) => *end = last.max(*end),
                _ => merged.push((first, last)),
            }
        }
        let mut set = Set { ranges: merged, ascii: 0 };
        set.ascii =
            (0..128u8).filter(|byte| set.search(char::from(*byte))).fold(0, |bits, byte| bits | 1 << byte);
        set
    }

    /// Of one character, and the same in the other case.
    pub fn of_char(character: char, ignores_case: bool) -> Set {
        let mut ranges = vec![(character, character)];
        if ignores_case {
            ranges.extend(folded(character).map(|other| (other, other)));
        }
        Set::of(ranges)
    }

    /// Of all characters.
    pub fn all() -> Set {
        Set::of(vec![('\0', char::MAX)])
    }

    /// Its ranges.
    pub fn ranges(&self) -> &[(char, char)] {
        &self.ranges
    }

    /// All other characters.
    pub fn complement(&self) -> Set {
        let mut ranges = Vec::with_capacity(self.ranges.len() + 1);
        let mut next = Some('\0');
        for (first, last) in &self.ranges {
            if let (Some(start), Some(end)) = (next, before(*first))
                && start <= end
            {
                ranges.push((start, end));
            }
            next = if *last == char::MAX { None } else { after(*last) };
        }
        if let Some(start) = next {
            ranges.push((start, char::MAX));
        }
        Set::of(ranges)
    }

    /// Without one character.
    pub fn without(&self, character: char) -> Set {
        let mut others = self.complement().ranges;
        others.push((character, character));
        Set::of(others).complement()
    }

    /// Whether a character is in it.
    #[inline]
    pub fn has(&self, character: char) -> bool {
        match character.is_ascii() {
            true => self.ascii >> (character as u32) & 1 == 1,
            false => self.search(character),
        }
    }

    fn search(&self, character: char) -> bool {
        let place = self.ranges.partition_point(|(_, last)| *last < character);
        self.ranges.get(place).is_some_and(|(first, _)| *first <= character)
    }
}
