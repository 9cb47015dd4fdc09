//! Functions of regular expressions: `~`, SIMILAR TO, `regexp_replace` and its relatives.
//!
//! A call site keeps the patterns that it has compiled last.

use crate::Datum;
use crate::builder::Builder;
use crate::context::Context;
use crate::kernel::{Any, Call, Local, Set, SetKernel, Text};
use crate::lists::List;
use crate::regex::{Options, Range, Regex};
use crate::registry::RegistryBuilder;
use firn_base::sync::Arc;
use firn_base::{Error, Representation, Result, SqlState};

/// How many compiled patterns a call site keeps.
const KEPT: usize = 16;

/// Adds the family.
pub fn register(builder: &mut RegistryBuilder) {
    matching(builder);
    similar(builder);
    replacing(builder);
    searching(builder);
    builder.set("regexp_matches(text,text) regexp_matches(text,text,text)", Matches);
    builder.set("regexp_split_to_table(text,text) regexp_split_to_table(text,text,text)", Parts);
}

/// The patterns that a call site has compiled, the one used last in front.
#[derive(Default)]
struct Compiled(Vec<(String, Options, Regex)>);

fn compiled<'l>(local: &'l mut Local, pattern: &str, options: Options) -> Result<&'l mut Regex> {
    let Compiled(kept) = local.get(Compiled::default);
    let known = kept.iter().position(|(text, with, _)| text == pattern && *with == options);
    match known {
        Some(place) => kept[..=place].rotate_right(1),
        None => {
            kept.insert(0, (pattern.to_owned(), options, Regex::new(pattern, options)?));
            kept.truncate(KEPT);
        }
    }
    Ok(&mut kept[0].2)
}

/// The options of a string of flags, and whether it asks for all matches.
fn flags(flags: &str) -> Result<(Options, bool)> {
    let (mut options, mut is_global) = (Options::default(), false);
    for letter in flags.chars() {
        match letter {
            'g' => is_global = true,
            'b' => return Err(Error::unsupported("basic regular expressions")),
            letter if options.apply(letter) => {}
            letter => return Err(invalid(format!("invalid regular expression option: \"{letter}\""))),
        }
    }
    Ok((options, is_global))
}

/// The options of a function that returns what is of one match.
fn flags_of_one(text: &str, function: &str) -> Result<Options> {
    let (options, is_global) = flags(text)?;
    match is_global {
        true => Err(not_global(function)),
        false => Ok(options),
    }
}

#[cold]
fn not_global(function: &str) -> Error {
    invalid(format!("{function}() does not support the \"global\" option"))
}

#[cold]
fn invalid(message: String) -> Error {
    Error::new(SqlState::INVALID_PARAMETER_VALUE, message)
}

/// The place of the character that a position from 1 means; the end for any behind it.
fn place(text: &str, position: i32) -> Option<usize> {
    let skipped = position as usize - 1;
    match text.char_indices().nth(skipped) {
        Some((place, _)) => Some(place),
        None => (text.chars().count() == skipped).then_some(text.len()),
    }
}

/// 22023 if a number is smaller than allowed.
fn check_parameter(name: &str, value: i32, least: i32) -> Result<()> {
    match value < least {
        true => Err(invalid(format!("invalid value for parameter \"{name}\": {value}"))),
        false => Ok(()),
    }
}

/// Where the search behind a match begins: an empty one is left by a character. `None` behind the end.
fn behind(text: &str, (start, end): Range) -> Option<usize> {
    match start == end {
        true => text[end..].chars().next().map(|character| end + character.len_utf8()),
        false => Some(end),
    }
}

fn matching(builder: &mut RegistryBuilder) {
    let sensitive = Options::default();
    let insensitive = Options { ignores_case: true, ..sensitive };
    let operators = [
        ("textregexeq(text,text) nameregexeq(name,text) bpcharregexeq(bpchar,text)", sensitive, true),
        ("textregexne(text,text) nameregexne(name,text) bpcharregexne(bpchar,text)", sensitive, false),
        ("texticregexeq(text,text) nameicregexeq(name,text) bpcharicregexeq(bpchar,text)", insensitive, true),
        (
            "texticregexne(text,text) nameicregexne(name,text) bpcharicregexne(bpchar,text)",
            insensitive,
            false,
        ),
    ];
    for (signatures, options, wanted) in operators {
        builder.scalar::<(&str, &str), _>(signatures, move |call, (text, pattern)| {
            let context = call.context;
            Ok::<_, Error>(compiled(call.local, pattern, options)?.is_match(text, context)? == wanted)
        });
    }
    builder.scalar::<(&str, &str), _>("regexp_like(text,text)", |call, (text, pattern)| {
        let context = call.context;
        compiled(call.local, pattern, Options::default())?.is_match(text, context)
    });
    builder.scalar::<(&str, &str, &str), _>("regexp_like(text,text,text)", |call, (text, pattern, with)| {
        let options = flags_of_one(with, "regexp_like")?;
        let context = call.context;
        compiled(call.local, pattern, options)?.is_match(text, context)
    });
}

fn similar(builder: &mut RegistryBuilder) {
    builder.scalar::<(&str,), _>("similar_to_escape(text)", |call, (pattern,)| {
        similar_to(pattern, "\\", &mut call.text)?;
        Ok::<_, Error>(Text)
    });
    builder.scalar::<(&str, &str), _>("similar_to_escape(text,text)", |call, (pattern, escape)| {
        similar_to(pattern, escape, &mut call.text)?;
        Ok::<_, Error>(Text)
    });
    builder.scalar::<(Option<&str>, Option<&str>), _>(
        "similar_escape(text,text)",
        |call, (pattern, escape)| {
            let Some(pattern) = pattern else { return Ok(None) };
            similar_to(pattern, escape.unwrap_or("\\"), &mut call.text)?;
            Ok::<_, Error>(Some(Text))
        },
    );
    builder.scalar::<(&str, &str), _>("substring(text,text)", |call, (text, pattern)| {
        substring(call, text, pattern)
    });
    builder.scalar::<(&str, &str, &str), _>("substring(text,text,text)", |call, (text, pattern, escape)| {
        let mut regex = String::new();
        similar_to(pattern, escape, &mut regex)?;
        substring(call, text, &regex)
    });
}

/// Appends what the first group matches, or the whole pattern if it has none.
fn substring(call: &mut Call<'_>, text: &str, pattern: &str) -> Result<Option<Text>> {
    let regex = compiled(call.local, pattern, Options::default())?;
    let mut groups = Vec::new();
    let found = regex.find(text, 0, call.context, Some(&mut groups))?;
    let part = found.and_then(|range| if regex.groups() > 0 { groups[0] } else { Some(range) });
    Ok(part.map(|(start, end)| {
        call.text.push_str(&text[start..end]);
        Text
    }))
}

/// Appends a pattern of SIMILAR TO as a regular expression. Two escaped quotes make a group of what lies between them.
fn similar_to(pattern: &str, escape: &str, out: &mut String) -> Result<()> {
    let mut characters = escape.chars();
    let escape = characters.next();
    if characters.next().is_some() {
        return Err(Error::new(SqlState::new("22025"), "invalid escape string")
            .with_hint("Escape string must be empty or one character."));
    }
    let (mut is_escaped, mut is_in_brackets, mut quotes) = (false, false, 0);
    out.push_str("^(?:");
    for character in pattern.chars() {
        if is_escaped {
            is_escaped = false;
            if character != '"' || is_in_brackets {
                out.extend(['\\', character]);
                continue;
            }
            out.push_str(match quotes {
                0 => "){1,1}?(",
                1 => "){1,1}(?:",
                _ => {
                    return Err(Error::new(
                        SqlState::new("2200C"),
                        "SQL regular expression may not contain more than two escape-double-quote separators",
                    ));
                }
            });
            quotes += 1;
            continue;
        }
        match character {
            _ if Some(character) == escape => is_escaped = true,
            _ if is_in_brackets => {
                if character == '\\' {
                    out.push('\\');
                }
                out.push(character);
                is_in_brackets = character != ']';
            }
            '[' => {
                out.push('[');
                is_in_brackets = true;
            }
            '%' => out.push_str(".*"),
            '_' => out.push('.'),
            '(' => out.push_str("(?:"),
            '\\' | '.' | '^' | '$' => out.extend(['\\', character]),
            other => out.push(other),
        }
    }
    out.push_str(")$");
    Ok(())
}

fn replacing(builder: &mut RegistryBuilder) {
    builder
        .scalar::<(&str, &str, &str), _>("regexp_replace(text,text,text)", |call, (text, pattern, with)| {
            replace(call, text, pattern, with, Options::default(), 1, 1)
        });
    builder.scalar::<(&str, &str, &str, &str), _>(
        "regexp_replace(text,text,text,text)",
        |call, (text, pattern, with, letters)| {
            let parsed = flags(letters).map_err(|error| match letters.starts_with(|c: char| c.is_ascii_digit()) {
                true => error.with_hint(
                    "If you meant to use regexp_replace() with a start parameter, cast the fourth argument to integer explicitly.",
                ),
                false => error,
            });
            let (options, is_global) = parsed?;
            replace(call, text, pattern, with, options, 1, i32::from(!is_global))
        },
    );
    builder.scalar::<(&str, &str, &str, i32), _>(
        "regexp_replace(text,text,text,int4)",
        |call, (text, pattern, with, start)| replace(call, text, pattern, with, Options::default(), start, 1),
    );
    builder.scalar::<(&str, &str, &str, i32, i32), _>(
        "regexp_replace(text,text,text,int4,int4)",
        |call, (text, pattern, with, start, number)| {
            replace(call, text, pattern, with, Options::default(), start, number)
        },
    );
    builder.scalar::<(&str, &str, &str, i32, i32, &str), _>(
        "regexp_replace(text,text,text,int4,int4,text)",
        |call, (text, pattern, with, start, number, letters)| {
            check_parameter("start", start, 1)?;
            check_parameter("n", number, 0)?;
            let (options, _) = flags(letters)?;
            replace(call, text, pattern, with, options, start, number)
        },
    );
}

/// Appends a text with one match replaced, by its number from 1, or all if it is 0.
fn replace(
    call: &mut Call<'_>,
    text: &str,
    pattern: &str,
    with: &str,
    options: Options,
    start: i32,
    number: i32,
) -> Result<Text> {
    check_parameter("start", start, 1)?;
    check_parameter("n", number, 0)?;
    let regex = compiled(call.local, pattern, options)?;
    let mut groups = Vec::new();
    let mut wants_groups = with.contains('\\');
    wants_groups &= regex.groups() > 0;
    let (mut from, mut copied, mut found) = (place(text, start), 0, 0);
    while let Some(at) = from {
        let into = if wants_groups { Some(&mut groups) } else { None };
        let Some(range) = regex.find(text, at, call.context, into)? else { break };
        found += 1;
        from = behind(text, range);
        if number > 0 && found != number {
            continue;
        }
        call.text.push_str(&text[copied..range.0]);
        push_replacement(text, with, range, &groups, &mut call.text);
        copied = range.1;
        if number > 0 {
            break;
        }
    }
    call.text.push_str(&text[copied..]);
    Ok(Text)
}

/// Appends what a match is replaced with: `\1` to `\9` are groups, `\&` is the match.
fn push_replacement(text: &str, with: &str, whole: Range, groups: &[Option<Range>], out: &mut String) {
    let mut rest = with;
    while let Some(place) = rest.find('\\') {
        out.push_str(&rest[..place]);
        rest = &rest[place + 1..];
        let Some(next) = rest.chars().next() else {
            out.push('\\');
            break;
        };
        let part = match next {
            '1'..='9' => groups.get(next as usize - '1' as usize).copied().flatten(),
            '&' => Some(whole),
            _ => {
                out.push('\\');
                if next == '\\' {
                    rest = &rest[1..];
                }
                continue;
            }
        };
        rest = &rest[1..];
        if let Some((start, end)) = part {
            out.push_str(&text[start..end]);
        }
    }
    out.push_str(rest);
}

/// What is asked of the matches of a pattern.
struct Search<'t> {
    text: &'t str,
    pattern: &'t str,
    options: Options,
    /// A position from 1.
    start: i32,
    is_global: bool,
    /// Whether empty matches at the ends and directly behind other matches are left out.
    skips_degenerate: bool,
}

impl<'t> Search<'t> {
    fn all(text: &'t str, pattern: &'t str, options: Options) -> Search<'t> {
        Search { text, pattern, options, start: 1, is_global: true, skips_degenerate: false }
    }

    /// Calls a closure with each match and its groups, as long as it returns true.
    fn each(
        &self,
        local: &mut Local,
        context: &Context<'_>,
        mut visit: impl FnMut(Range, &[Option<Range>]) -> bool,
    ) -> Result<()> {
        let regex = compiled(local, self.pattern, self.options)?;
        let mut groups = Vec::new();
        let (mut from, mut last_end) = (place(self.text, self.start), 0);
        while let Some(at) = from {
            let Some(range) = regex.find(self.text, at, context, Some(&mut groups))? else { break };
            let is_degenerate = range.0 >= self.text.len() || range.1 <= last_end;
            let is_skipped = self.skips_degenerate && is_degenerate;
            if !is_skipped && !visit(range, &groups) {
                break;
            }
            last_end = range.1;
            from = behind(self.text, range).filter(|_| self.is_global);
        }
        Ok(())
    }

    /// The parts of the text between matches.
    fn parts(&self, local: &mut Local, context: &Context<'_>) -> Result<Vec<Range>> {
        let (mut parts, mut start) = (Vec::new(), 0);
        self.each(local, context, |range, _| {
            parts.push((start, range.0));
            start = range.1;
            true
        })?;
        parts.push((start, self.text.len()));
        Ok(parts)
    }
}

/// A vector of parts of a text.
fn texts(text: &str, parts: impl IntoIterator<Item = Option<Range>>) -> crate::Vector {
    let mut elements = Builder::new(Representation::Text);
    for part in parts {
        match part {
            Some((start, end)) => elements.push(Datum::Text(&text[start..end])),
            None => elements.push_null(),
        }
    }
    elements.finish()
}

/// What a match returns as an array: its groups, or the whole if there are none.
fn of_match(text: &str, range: Range, groups: &[Option<Range>]) -> crate::Vector {
    match groups {
        [] => texts(text, [Some(range)]),
        groups => texts(text, groups.iter().copied()),
    }
}

fn searching(builder: &mut RegistryBuilder) {
    builder.scalar::<(&str, &str), _>("regexp_match(text,text)", |call, (text, pattern)| {
        first_match(call, text, pattern, Options::default())
    });
    builder.scalar::<(&str, &str, &str), _>(
        "regexp_match(text,text,text)",
        |call, (text, pattern, letters)| {
            let (options, is_global) = flags(letters)?;
            if is_global {
                return Err(not_global("regexp_match").with_hint("Use the regexp_matches function instead."));
            }
            first_match(call, text, pattern, options)
        },
    );
    builder.scalar::<(&str, &str), _>("regexp_split_to_array(text,text)", |call, (text, pattern)| {
        split(call, text, pattern, Options::default())
    });
    builder.scalar::<(&str, &str, &str), _>(
        "regexp_split_to_array(text,text,text)",
        |call, (text, pattern, letters)| {
            split(call, text, pattern, flags_of_one(letters, "regexp_split_to_array")?)
        },
    );
    builder.scalar::<(&str, &str), _>("regexp_count(text,text)", |call, (text, pattern)| {
        count(call, text, pattern, 1, "")
    });
    builder.scalar::<(&str, &str, i32), _>("regexp_count(text,text,int4)", |call, (text, pattern, start)| {
        count(call, text, pattern, start, "")
    });
    builder.scalar::<(&str, &str, i32, &str), _>(
        "regexp_count(text,text,int4,text)",
        |call, (text, pattern, start, letters)| count(call, text, pattern, start, letters),
    );
    let first = Nth { start: 1, number: 1, letters: "", group: 0 };
    builder.scalar::<(&str, &str), _>("regexp_instr(text,text)", move |call, (text, pattern)| {
        position(call, text, pattern, 0, first)
    });
    builder.scalar::<(&str, &str, i32), _>(
        "regexp_instr(text,text,int4)",
        move |call, (text, pattern, start)| position(call, text, pattern, 0, Nth { start, ..first }),
    );
    builder.scalar::<(&str, &str, i32, i32), _>(
        "regexp_instr(text,text,int4,int4)",
        move |call, (text, pattern, start, number)| {
            position(call, text, pattern, 0, Nth { start, number, ..first })
        },
    );
    builder.scalar::<(&str, &str, i32, i32, i32), _>(
        "regexp_instr(text,text,int4,int4,int4)",
        move |call, (text, pattern, start, number, end)| {
            position(call, text, pattern, end, Nth { start, number, ..first })
        },
    );
    builder.scalar::<(&str, &str, i32, i32, i32, &str), _>(
        "regexp_instr(text,text,int4,int4,int4,text)",
        move |call, (text, pattern, start, number, end, letters)| {
            position(call, text, pattern, end, Nth { start, number, letters, group: 0 })
        },
    );
    builder.scalar::<(&str, &str, i32, i32, i32, &str, i32), _>(
        "regexp_instr(text,text,int4,int4,int4,text,int4)",
        move |call, (text, pattern, start, number, end, letters, group)| {
            position(call, text, pattern, end, Nth { start, number, letters, group })
        },
    );
    builder.scalar::<(&str, &str), _>("regexp_substr(text,text)", move |call, (text, pattern)| {
        part(call, text, pattern, first)
    });
    builder.scalar::<(&str, &str, i32), _>(
        "regexp_substr(text,text,int4)",
        move |call, (text, pattern, start)| part(call, text, pattern, Nth { start, ..first }),
    );
    builder.scalar::<(&str, &str, i32, i32), _>(
        "regexp_substr(text,text,int4,int4)",
        move |call, (text, pattern, start, number)| part(call, text, pattern, Nth { start, number, ..first }),
    );
    builder.scalar::<(&str, &str, i32, i32, &str), _>(
        "regexp_substr(text,text,int4,int4,text)",
        |call, (text, pattern, start, number, letters)| {
            part(call, text, pattern, Nth { start, number, letters, group: 0 })
        },
    );
    builder.scalar::<(&str, &str, i32, i32, &str, i32), _>(
        "regexp_substr(text,text,int4,int4,text,int4)",
        |call, (text, pattern, start, number, letters, group)| {
            part(call, text, pattern, Nth { start, number, letters, group })
        },
    );
}

fn first_match(call: &mut Call<'_>, text: &str, pattern: &str, options: Options) -> Result<Option<Any>> {
    let mut found = None;
    Search::all(text, pattern, options).each(call.local, call.context, |range, groups| {
        found = Some(of_match(text, range, groups));
        false
    })?;
    Ok(found.map(|elements| {
        call.value.set_list(Arc::new(elements), None);
        Any
    }))
}

fn split(call: &mut Call<'_>, text: &str, pattern: &str, options: Options) -> Result<Any> {
    let search = Search { skips_degenerate: true, ..Search::all(text, pattern, options) };
    let parts = search.parts(call.local, call.context)?;
    call.value.set_list(Arc::new(texts(text, parts.into_iter().map(Some))), None);
    Ok(Any)
}

fn count(call: &mut Call<'_>, text: &str, pattern: &str, start: i32, letters: &str) -> Result<i32> {
    check_parameter("start", start, 1)?;
    let options = flags_of_one(letters, "regexp_count")?;
    let mut count = 0;
    let search = Search { start, ..Search::all(text, pattern, options) };
    search.each(call.local, call.context, |_, _| {
        count += 1;
        true
    })?;
    Ok(count)
}

/// One of the matches of a pattern, or a group of it.
#[derive(Clone, Copy)]
struct Nth<'t> {
    /// The position from which matches are looked for.
    start: i32,
    /// Which match, from 1.
    number: i32,
    letters: &'t str,
    /// Which group; the whole match is 0.
    group: i32,
}

impl Nth<'_> {
    fn find(self, call: &mut Call<'_>, text: &str, pattern: &str, function: &str) -> Result<Option<Range>> {
        check_parameter("start", self.start, 1)?;
        check_parameter("n", self.number, 1)?;
        check_parameter("subexpr", self.group, 0)?;
        let options = flags_of_one(self.letters, function)?;
        let (mut number, mut found) = (0, None);
        let search = Search { start: self.start, ..Search::all(text, pattern, options) };
        search.each(call.local, call.context, |range, groups| {
            number += 1;
            if number == self.number {
                found = match (self.group, groups) {
                    (0, _) | (1, []) => Some(range),
                    (group, groups) => groups.get(group as usize - 1).copied().flatten(),
                };
            }
            number < self.number
        })?;
        Ok(found)
    }
}

fn position(call: &mut Call<'_>, text: &str, pattern: &str, end: i32, which: Nth<'_>) -> Result<i32> {
    check_parameter("start", which.start, 1)?;
    check_parameter("n", which.number, 1)?;
    if !(0..=1).contains(&end) {
        return Err(invalid(format!("invalid value for parameter \"endoption\": {end}")));
    }
    let found = which.find(call, text, pattern, "regexp_instr")?;
    Ok(found.map_or(0, |range| {
        let place = if end == 1 { range.1 } else { range.0 };
        text[..place].chars().count() as i32 + 1
    }))
}

fn part(call: &mut Call<'_>, text: &str, pattern: &str, which: Nth<'_>) -> Result<Option<Text>> {
    let found = which.find(call, text, pattern, "regexp_substr")?;
    Ok(found.map(|(start, end)| {
        call.text.push_str(&text[start..end]);
        Text
    }))
}

/// The text, the pattern and the flags of a call; `None` if one is NULL.
fn strings<'a>(arguments: &[Datum<'a>]) -> Option<(&'a str, &'a str, &'a str)> {
    match arguments {
        [Datum::Text(text), Datum::Text(pattern)] => Some((text, pattern, "")),
        [Datum::Text(text), Datum::Text(pattern), Datum::Text(letters)] => Some((text, pattern, letters)),
        _ => None,
    }
}

/// `regexp_matches`: an array for each match.
struct Matches;

impl SetKernel for Matches {
    fn can_fail(&self) -> bool {
        true
    }

    fn begin(&self, call: &mut Call<'_>, arguments: &[Datum<'_>]) -> Result<Option<Box<dyn Set>>> {
        let Some((text, pattern, letters)) = strings(arguments) else { return Ok(None) };
        let (options, is_global) = flags(letters)?;
        let mut arrays = Vec::new();
        let search = Search { is_global, ..Search::all(text, pattern, options) };
        search.each(call.local, call.context, |range, groups| {
            arrays.push(match groups {
                [] => vec![Some(range)],
                groups => groups.to_vec(),
            });
            true
        })?;
        Ok(Some(Box::new(Arrays { text: text.to_owned(), arrays: arrays.into_iter() })))
    }
}

struct Arrays {
    text: String,
    arrays: std::vec::IntoIter<Vec<Option<Range>>>,
}

impl Set for Arrays {
    fn next(&mut self, _: &mut Call<'_>, columns: &mut [Builder], most: usize) -> Result<bool> {
        for array in self.arrays.by_ref().take(most) {
            let elements = texts(&self.text, array);
            columns[0].push(Datum::List(List::of(&elements)));
        }
        Ok(self.arrays.len() > 0)
    }
}

/// `regexp_split_to_table`: a row for each part.
struct Parts;

impl SetKernel for Parts {
    fn can_fail(&self) -> bool {
        true
    }

    fn begin(&self, call: &mut Call<'_>, arguments: &[Datum<'_>]) -> Result<Option<Box<dyn Set>>> {
        let Some((text, pattern, letters)) = strings(arguments) else { return Ok(None) };
        let options = flags_of_one(letters, "regexp_split_to_table")?;
        let search = Search { skips_degenerate: true, ..Search::all(text, pattern, options) };
        let parts = search.parts(call.local, call.context)?;
        Ok(Some(Box::new(Texts { text: text.to_owned(), parts: parts.into_iter() })))
    }
}

struct Texts {
    text: String,
    parts: std::vec::IntoIter<Range>,
}

impl Set for Texts {
    fn next(&mut self, _: &mut Call<'_>, columns: &mut [Builder], most: usize) -> Result<bool> {
        for (start, end) in self.parts.by_ref().take(most) {
            columns[0].push(Datum::Text(&self.text[start..end]));
        }
        Ok(self.parts.len() > 0)
    }
}
