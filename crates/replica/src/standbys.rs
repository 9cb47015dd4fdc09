//! Which of those that follow the log a commit waits for: `synchronous_standby_names`, as in PostgreSQL.
//!
//! Voters decide which commits are lost in a failover ([`crate::quorum`]). What is here decides only when a commit is acknowledged, with
//! or without voters.

use crate::message::FollowerStatus;
use crate::senders::{SenderStatus, Senders};
use firn_base::sync::{Arc, AtomicBool, AtomicU64, Condvar, Mutex, Ordering};
use firn_base::{Error, Lsn, Result, SqlState};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// How often a wait looks whether it is cancelled.
const CHECK_EVERY: Duration = Duration::from_millis(100);

/// The value of `synchronous_standby_names`: which standbys a commit waits for, and for how many of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StandbyNames {
    method: Method,
    count: usize,
    /// Names in lower case, as far as they are ASCII; `*` stands for all.
    names: Vec<String>,
}

/// How standbys are chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Method {
    /// Those whose names come first in the list, of those that are connected.
    First,
    /// Whichever are the quickest.
    Any,
}

/// What a commit waits for on its standbys. Each includes those before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StandbyLevel {
    /// They have received it.
    Received,
    /// They have it on disk.
    Flushed,
    /// Their readers see it.
    Replayed,
}

/// What a standby is to commits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SyncState {
    /// None waits for it.
    Async,
    /// They will wait for it when another one is lost.
    Potential,
    /// They wait for it.
    Sync,
    /// They wait for some of several, of which it is one.
    Quorum,
}

impl StandbyNames {
    /// Reads a value; `None` if it names no standby.
    ///
    /// Error: 22023 if it is not `[FIRST | ANY] [COUNT] (NAME, …)` or `NAME, …`.
    pub fn parse(text: &str) -> Result<Option<StandbyNames>> {
        if text.is_empty() { Ok(None) } else { text.parse().map(Some) }
    }

    /// The place of a name in the list, from 1; 0 if it is not there.
    fn priority(&self, name: &str) -> u32 {
        let is_meant = |listed: &String| listed == "*" || listed.eq_ignore_ascii_case(name);
        self.names.iter().position(is_meant).map_or(0, |position| position as u32 + 1)
    }

    /// Those of a list that a commit may wait for, with their priorities: in the order in which they are chosen.
    fn candidates<'s>(&self, list: &'s [SenderStatus]) -> Vec<(u32, &'s SenderStatus)> {
        let priority = |status: &'s SenderStatus| (self.priority(&status.peer.name), status);
        let mut candidates: Vec<_> = list
            .iter()
            .map(priority)
            .filter(|(priority, status)| {
                *priority > 0 && !status.is_catching_up && status.reply_time.is_some()
            })
            .collect();
        // Stable: of equal ones, who is connected for longer comes first.
        candidates.sort_by_key(|(priority, _)| *priority);
        candidates
    }

    /// How far enough of them have come; `None` if there are too few.
    fn agreed(&self, list: &[SenderStatus]) -> Option<FollowerStatus> {
        let candidates = self.candidates(list);
        if candidates.len() < self.count {
            return None;
        }
        let chosen = match self.method {
            Method::First => &candidates[..self.count],
            Method::Any => &candidates[..],
        };
        let of = |field: fn(&FollowerStatus) -> Lsn| {
            let mut positions: Vec<Lsn> = chosen.iter().map(|(_, status)| field(&status.reached)).collect();
            positions.sort_unstable_by(|a, b| b.cmp(a));
            positions[self.count - 1]
        };
        Some(FollowerStatus {
            received: of(|reached| reached.received),
            flushed: of(|reached| reached.flushed),
            replayed: of(|reached| reached.replayed),
        })
    }

    /// The priority and the state of each in a list.
    fn states(&self, list: &[SenderStatus]) -> Vec<(u32, SyncState)> {
        let candidates = self.candidates(list);
        let (chosen, chosen_state) = match self.method {
            Method::First => (&candidates[..self.count.min(candidates.len())], SyncState::Sync),
            Method::Any => (&candidates[..], SyncState::Quorum),
        };
        let of = |status: &SenderStatus| {
            let is_chosen = chosen.iter().any(|(_, other)| std::ptr::eq(*other, status));
            match (self.priority(&status.peer.name), self.method) {
                (0, _) => (0, SyncState::Async),
                // All in the list are equal.
                (_, Method::Any) => (1, if is_chosen { chosen_state } else { SyncState::Potential }),
                (priority, Method::First) => {
                    (priority, if is_chosen { chosen_state } else { SyncState::Potential })
                }
            }
        };
        list.iter().map(of).collect()
    }
}

impl fmt::Display for StandbyNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let method = match self.method {
            Method::First => "FIRST",
            Method::Any => "ANY",
        };
        write!(f, "{method} {} (", self.count)?;
        for (position, name) in self.names.iter().enumerate() {
            let comma = if position == 0 { "" } else { ", " };
            match name == "*" {
                true => write!(f, "{comma}*")?,
                false => write!(f, "{comma}\"{}\"", name.replace('"', "\"\""))?,
            }
        }
        f.write_str(")")
    }
}

/// A part of the text of a value.
#[derive(PartialEq, Eq, Debug)]
enum Token {
    First,
    Any,
    Number(String),
    Name(String),
    Punctuation(char),
}

/// The grammar is that of PostgreSQL's `syncrep_gram.y` and `syncrep_scanner.l`.
impl FromStr for StandbyNames {
    type Err = Error;

    fn from_str(text: &str) -> Result<StandbyNames> {
        let tokens = tokens(text)?;
        let (method, count, list) = match &tokens[..] {
            [Token::First, Token::Number(count), rest @ ..] => (Method::First, Some(count), rest),
            [Token::Any, Token::Number(count), rest @ ..] => (Method::Any, Some(count), rest),
            [Token::Number(count), Token::Punctuation('('), ..] => (Method::First, Some(count), &tokens[1..]),
            all => (Method::First, None, all),
        };
        let (count, list) = match (count, list) {
            (None, list) => (1, list),
            (Some(count), [Token::Punctuation('('), list @ .., Token::Punctuation(')')]) => {
                let count = count.parse().ok().filter(|count: &usize| *count > 0);
                (count.ok_or_else(|| wrong(text, "The number of standbys must be greater than zero."))?, list)
            }
            _ => return Err(wrong(text, SYNTAX)),
        };
        let mut names = Vec::new();
        for (position, token) in list.iter().enumerate() {
            match token {
                Token::Name(name) | Token::Number(name) if position % 2 == 0 => names.push(name.clone()),
                Token::Punctuation(',') if position % 2 == 1 => {}
                _ => return Err(wrong(text, SYNTAX)),
            }
        }
        // A comma at the end needs another name, as an empty list does.
        if list.len() % 2 == 0 {
            return Err(wrong(text, SYNTAX));
        }
        Ok(StandbyNames { method, count, names })
    }
}

const SYNTAX: &str = "Write FIRST 1 (NAME, …), ANY 2 (NAME, …) or NAME, …; * stands for all names.";

fn tokens(text: &str) -> Result<Vec<Token>> {
    let is_start = |c: char| c.is_ascii_alphabetic() || c == '_' || !c.is_ascii();
    let mut tokens = Vec::new();
    let mut rest = text.trim_ascii_start();
    while let Some(first) = rest.chars().next() {
        let (token, length) = match first {
            '(' | ')' | ',' => (Token::Punctuation(first), 1),
            '*' => (Token::Name("*".to_owned()), 1),
            '"' => {
                let (name, length) =
                    quoted(rest).ok_or_else(|| wrong(text, "A quoted name does not end."))?;
                (Token::Name(name), length)
            }
            c if c.is_ascii_digit() => {
                let length = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
                (Token::Number(rest[..length].to_owned()), length)
            }
            c if is_start(c) => {
                let continues = |c: char| is_start(c) || c.is_ascii_digit() || c == '$';
                let length = rest.find(|c: char| !continues(c)).unwrap_or(rest.len());
                let word = rest[..length].to_ascii_lowercase();
                let token = match &*word {
                    "first" => Token::First,
                    "any" => Token::Any,
                    _ => Token::Name(word),
                };
                (token, length)
            }
            c => {
                let message = format!("Write names with the character \"{c}\" in double quotes.");
                return Err(wrong(text, &message));
            }
        };
        tokens.push(token);
        rest = rest[length..].trim_ascii_start();
    }
    Ok(tokens)
}

/// The name in quotes at the beginning of a text, and the length of both.
fn quoted(text: &str) -> Option<(String, usize)> {
    let mut name = String::new();
    let mut characters = text.char_indices().skip(1).peekable();
    while let Some((position, c)) = characters.next() {
        match (c, characters.peek()) {
            ('"', Some((_, '"'))) => {
                characters.next();
                name.push('"');
            }
            ('"', _) => return Some((name.to_ascii_lowercase(), position + 1)),
            _ => name.push(c),
        }
    }
    None
}

#[cold]
fn wrong(text: &str, hint: &str) -> Error {
    let message = format!("invalid value for parameter \"synchronous_standby_names\": \"{text}\"");
    Error::new(SqlState::INVALID_PARAMETER_VALUE, message).with_hint(hint)
}

/// The synchronous standbys of a server. Clones share them.
#[derive(Clone, Default, Debug)]
pub struct Standbys(Arc<Shared>);

#[derive(Default, Debug)]
struct Shared {
    /// Changes with the names.
    version: AtomicU64,
    /// Whether there are names.
    is_set: AtomicBool,
    /// Whether a commit has waited until it was replayed.
    awaits_replay: AtomicBool,
    state: Mutex<State>,
    advanced: Condvar,
}

#[derive(Default, Debug)]
struct State {
    names: Option<StandbyNames>,
    /// Enough of them have come so far. It never decreases.
    agreed: Option<FollowerStatus>,
    /// Why waits end.
    ended: Option<Error>,
}

impl Standbys {
    /// Commits wait for these from now on, also those that wait already.
    pub(crate) fn set(&self, names: Option<StandbyNames>, senders: &Senders) {
        let mut state = self.0.state.lock();
        self.0.is_set.store(names.is_some(), Ordering::SeqCst);
        state.names = names;
        self.0.version.fetch_add(1, Ordering::SeqCst);
        state.advance(senders);
        drop(state);
        self.0.advanced.notify_all();
    }

    /// The priority and the state of each in a list of those that follow the log.
    pub fn states(&self, list: &[SenderStatus]) -> Vec<(u32, SyncState)> {
        match &self.0.state.lock().names {
            Some(names) => names.states(list),
            None => vec![(0, SyncState::Async); list.len()],
        }
    }

    /// Waits until enough standbys have the log up to a position, if there are to be any.
    ///
    /// Errors: those of `check`, which is called now and then, and that with which [waits end](Standbys::end). The commit is on disk here
    /// nevertheless.
    pub fn wait(&self, lsn: Lsn, level: StandbyLevel, check: &dyn Fn() -> Result<()>) -> Result<()> {
        if !self.is_set() {
            return Ok(());
        }
        if level == StandbyLevel::Replayed {
            self.0.awaits_replay.store(true, Ordering::Relaxed);
        }
        let mut state = self.0.state.lock();
        while state.names.is_some() && state.agreed.is_none_or(|agreed| level.of(&agreed) < lsn) {
            if let Some(error) = &state.ended {
                return Err(error.clone());
            }
            check()?;
            self.0.advanced.wait_for(&mut state, CHECK_EVERY);
        }
        Ok(())
    }

    /// Ends all waits, and later ones, by this error.
    pub fn end(&self, error: Error) {
        self.0.state.lock().ended = Some(error);
        self.0.advanced.notify_all();
    }

    /// Notes that one of those that follow the log has come further, or has gone.
    pub(crate) fn note(&self, senders: &Senders) {
        if !self.is_set() {
            return;
        }
        let has_advanced = self.0.state.lock().advance(senders);
        if has_advanced {
            self.0.advanced.notify_all();
        }
    }

    fn is_set(&self) -> bool {
        self.0.is_set.load(Ordering::SeqCst)
    }

    /// Changes whenever [`Standbys::counts`] may.
    pub(crate) fn version(&self) -> u64 {
        self.0.version.load(Ordering::SeqCst)
    }

    /// Whether commits may wait for one with this name.
    pub(crate) fn counts(&self, name: &str) -> bool {
        self.0.state.lock().names.as_ref().is_some_and(|names| names.priority(name) > 0)
    }

    /// Whether commits wait until they are replayed.
    pub(crate) fn awaits_replay(&self) -> bool {
        self.0.awaits_replay.load(Ordering::Relaxed)
    }
}

impl State {
    /// Returns whether enough of them have come further.
    fn advance(&mut self, senders: &Senders) -> bool {
        let Some(now) = self.names.as_ref().and_then(|names| names.agreed(&senders.list())) else {
            return false;
        };
        let before = self.agreed;
        let of =
            |field: fn(&FollowerStatus) -> Lsn| before.map_or(field(&now), |it| field(&it).max(field(&now)));
        self.agreed = Some(FollowerStatus {
            received: of(|reached| reached.received),
            flushed: of(|reached| reached.flushed),
            replayed: of(|reached| reached.replayed),
        });
        self.agreed != before
    }
}

impl StandbyLevel {
    fn of(self, reached: &FollowerStatus) -> Lsn {
        match self {
            StandbyLevel::Received => reached.received,
            StandbyLevel::Flushed => reached.flushed,
            StandbyLevel::Replayed => reached.replayed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::senders::Peer;

    fn status(name: &str, flushed: u64, is_catching_up: bool) -> SenderStatus {
        let lsn = Lsn(flushed);
        SenderStatus {
            peer: Peer { name: name.to_owned(), voter: None, session: 1, client: None, begun: 0 },
            is_catching_up,
            sent: lsn,
            reached: FollowerStatus { received: lsn, flushed: lsn, replayed: Lsn(flushed / 2) },
            lags: [None; 3],
            reply_time: Some(1),
        }
    }

    /// Values that PostgreSQL 15 accepts, as it understands them, and values that it refuses.
    #[test]
    fn values_are_read_as_by_postgresql() {
        let cases = [
            ("a", "FIRST 1 (\"a\")"),
            ("a, B , *", "FIRST 1 (\"a\", \"b\", *)"),
            ("2 (a,b)", "FIRST 2 (\"a\", \"b\")"),
            ("first 2(a,b)", "FIRST 2 (\"a\", \"b\")"),
            ("ANY 2 (*)", "ANY 2 (*)"),
            ("Any 1 (\"x-1\", \"any\", \"a\"\"b\")", "ANY 1 (\"x-1\", \"any\", \"a\"\"b\")"),
            ("3", "FIRST 1 (\"3\")"),
            ("1 (2, 3)", "FIRST 1 (\"2\", \"3\")"),
        ];
        for (text, meaning) in cases {
            assert_eq!(text.parse::<StandbyNames>().unwrap().to_string(), meaning, "{text}");
            assert_eq!(meaning.parse::<StandbyNames>().unwrap().to_string(), meaning);
        }
        assert_eq!(StandbyNames::parse("").unwrap(), None);
        let refused = [
            "a b",
            "a,",
            ",",
            "ANY 2",
            "ANY (a)",
            "2 (a",
            "2 ()",
            "0 (a)",
            "x-1",
            "\"a",
            "any",
            "FIRST 2 (a) b",
            "(a)",
            "a;",
        ];
        for text in refused {
            let error = text.parse::<StandbyNames>().expect_err(text);
            assert!(error.state() == SqlState::INVALID_PARAMETER_VALUE && error.hint().is_some(), "{text}");
        }
    }

    #[test]
    fn the_first_ones_count_or_any() {
        let list =
            [status("c", 9, false), status("A", 3, false), status("b", 5, false), status("d", 99, false)];
        let agreed = |names: &str, list: &[SenderStatus]| {
            names
                .parse::<StandbyNames>()
                .unwrap()
                .agreed(list)
                .map(|agreed| (agreed.flushed.0, agreed.replayed.0))
        };
        assert_eq!(agreed("a, b, c", &list), Some((3, 1)));
        assert_eq!(agreed("b, a", &list), Some((5, 2)));
        assert_eq!(agreed("FIRST 2 (b, c, a)", &list), Some((5, 2)));
        assert_eq!(agreed("ANY 2 (a, b, c)", &list), Some((5, 2)));
        assert_eq!(agreed("ANY 1 (a, b, c)", &list), Some((9, 4)));
        assert_eq!(agreed("*", &list), Some((9, 4)), "the one that is connected for the longest time");
        assert_eq!(agreed("ANY 4 (a, b, c)", &list), None);
        assert_eq!(agreed("x", &list), None);
        // One that lacks much is not waited for, as if it was not there.
        let list = [status("a", 3, true), status("b", 5, false)];
        assert_eq!(agreed("a, b", &list), Some((5, 2)));
        assert_eq!(agreed("2 (a, b)", &list), None);
        let mut silent = [status("a", 3, false)];
        silent[0].reply_time = None;
        assert_eq!(agreed("a", &silent), None, "it has not said yet what it has");
    }

    #[test]
    fn each_has_a_state() {
        let list = [status("c", 9, false), status("a", 3, false), status("b", 5, true)];
        let states = |names: &str| names.parse::<StandbyNames>().unwrap().states(&list);
        use SyncState::*;
        assert_eq!(states("a, c"), [(2, Potential), (1, Sync), (0, Async)]);
        assert_eq!(states("2 (b, a, c)"), [(3, Sync), (2, Sync), (1, Potential)]);
        let other = [status("Östlich", 1, false)];
        assert_eq!("Östlich".parse::<StandbyNames>().unwrap().states(&other), [(1, Sync)]);
        assert_eq!(states("ANY 1 (a, b, *)"), [(1, Quorum), (1, Quorum), (1, Potential)], "b lacks much");
    }
}
