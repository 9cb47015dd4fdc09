//! LISTEN and NOTIFY: messages from sessions to sessions (PostgreSQL 15, NOTIFY).
//!
//! The notifications of a transaction, and its changes of channels, take effect when it commits. A session that listens to a
//! channel gets the notifications of transactions that commit after that, in the order of their commits, its own among them.

use firn_base::sync::{Arc, Mutex, MutexGuard};
use firn_base::{Error, Result, SqlState};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

/// The longest payload, in bytes, as in PostgreSQL.
const LONGEST_PAYLOAD: usize = 7999;
/// The longest name of a channel, in bytes.
const LONGEST_CHANNEL: usize = 63;

/// A message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Notification {
    /// The session that has sent it.
    pub session: u32,
    /// The channel.
    pub channel: String,
    /// The payload, empty if there is none.
    pub payload: String,
}

/// The effects of a transaction on channels when it commits.
#[derive(Default, Debug)]
pub struct Pending {
    sent: Vec<(String, String)>,
    listening: Vec<Listening>,
}

/// A change of the channels to which a session listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Listening {
    /// LISTEN
    Begin(String),
    /// UNLISTEN
    End(String),
    /// UNLISTEN *
    EndAll,
}

/// A position in the effects of a transaction, to which ROLLBACK TO returns.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Mark {
    sent: usize,
    listening: usize,
}

impl Pending {
    /// Whether it has no effects.
    pub fn is_empty(&self) -> bool {
        self.sent.is_empty() && self.listening.is_empty()
    }

    /// NOTIFY. A notification that a transaction sends twice arrives once. 22023 if the channel has no name, or the name or the payload
    /// is too long.
    pub fn send(&mut self, channel: &str, payload: &str) -> Result<()> {
        let invalid = |message: &str| Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message));
        if channel.is_empty() {
            return invalid("channel name cannot be empty");
        }
        if channel.len() > LONGEST_CHANNEL {
            return invalid("channel name too long");
        }
        if payload.len() > LONGEST_PAYLOAD {
            return invalid("payload string too long");
        }
        if !self.sent.iter().any(|(sent, with)| sent == channel && with == payload) {
            self.sent.push((channel.to_owned(), payload.to_owned()));
        }
        Ok(())
    }

    /// LISTEN or UNLISTEN.
    pub fn listen(&mut self, change: Listening) {
        self.listening.push(change);
    }

    /// The current position.
    pub fn mark(&self) -> Mark {
        Mark { sent: self.sent.len(), listening: self.listening.len() }
    }

    /// Returns to a position.
    pub fn undo_to(&mut self, mark: Mark) {
        self.sent.truncate(mark.sent);
        self.listening.truncate(mark.listening);
    }
}

/// The sessions of a database that listen.
#[derive(Default, Debug)]
pub struct Notifications {
    /// Held while a transaction with notifications commits, so that they arrive in the order of the commits.
    commits: Mutex<()>,
    listeners: Mutex<BTreeMap<u32, Listener>>,
}

#[derive(Default)]
struct Listener {
    channels: BTreeSet<String>,
    arrived: VecDeque<Arc<Notification>>,
    wake: Option<Arc<dyn Fn() + Send + Sync>>,
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").field("channels", &self.channels).finish_non_exhaustive()
    }
}

/// The right to commit a transaction with notifications.
pub struct Committing<'n> {
    _commits: MutexGuard<'n, ()>,
}

impl Notifications {
    /// Waits until other transactions with notifications have committed.
    pub fn begin_commit(&self) -> Committing<'_> {
        Committing { _commits: self.commits.lock() }
    }

    /// The transaction has committed: applies its effects on channels.
    pub fn commit(&self, session: u32, pending: Pending, committing: Committing<'_>) {
        let mut listeners = self.listeners.lock();
        if !pending.listening.is_empty() {
            let listener = listeners.entry(session).or_default();
            for change in pending.listening {
                match change {
                    Listening::Begin(channel) => drop(listener.channels.insert(channel)),
                    Listening::End(channel) => drop(listener.channels.remove(&channel)),
                    Listening::EndAll => listener.channels.clear(),
                }
            }
        }
        let mut wakes = Vec::new();
        for (channel, payload) in pending.sent {
            let notification = Arc::new(Notification { session, channel, payload });
            for listener in listeners.values_mut() {
                if listener.channels.contains(&notification.channel) {
                    if listener.arrived.is_empty() {
                        wakes.extend(listener.wake.clone());
                    }
                    listener.arrived.push_back(notification.clone());
                }
            }
        }
        drop(listeners);
        drop(committing);
        wakes.iter().for_each(|wake| wake());
    }

    /// The channels to which a session listens.
    pub fn channels(&self, session: u32) -> Vec<String> {
        let listeners = self.listeners.lock();
        listeners.get(&session).into_iter().flat_map(|listener| listener.channels.iter().cloned()).collect()
    }

    /// The notifications that have arrived for a session since the last call.
    pub fn take(&self, session: u32) -> Vec<Arc<Notification>> {
        let mut listeners = self.listeners.lock();
        listeners.get_mut(&session).map_or_else(Vec::new, |listener| listener.arrived.drain(..).collect())
    }

    /// Sets the hook that is called when a notification arrives at a session that had taken all earlier ones.
    pub fn wake_by(&self, session: u32, wake: impl Fn() + Send + Sync + 'static) {
        self.listeners.lock().entry(session).or_default().wake = Some(Arc::new(wake));
    }

    /// The session has ended.
    pub fn forget(&self, session: u32) {
        self.listeners.lock().remove(&session);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_once_at_listeners_at_commit() {
        let all = Notifications::default();
        let commit = |session: u32, work: &dyn Fn(&mut Pending)| {
            let mut pending = Pending::default();
            work(&mut pending);
            all.commit(session, pending, all.begin_commit());
        };
        let arrived = |session: u32| -> Vec<(u32, String, String)> {
            let taken = all.take(session).into_iter();
            taken.map(|one| (one.session, one.channel.clone(), one.payload.clone())).collect()
        };
        commit(1, &|pending| pending.listen(Listening::Begin("a".to_owned())));
        commit(2, &|pending| {
            pending.send("a", "1").unwrap();
            let mark = pending.mark();
            pending.send("a", "2").unwrap();
            pending.undo_to(mark);
            pending.send("a", "1").unwrap();
            pending.send("b", "").unwrap();
        });
        commit(1, &|pending| pending.send("a", "").unwrap());
        let message = |session: u32, payload: &str| (session, "a".to_owned(), payload.to_owned());
        assert_eq!(arrived(1), [message(2, "1"), message(1, "")]);
        assert_eq!((arrived(1), arrived(2), all.channels(1)), (vec![], vec![], vec!["a".to_owned()]));
        commit(1, &|pending| pending.listen(Listening::EndAll));
        commit(2, &|pending| pending.send("a", "3").unwrap());
        assert_eq!((arrived(1), all.channels(1)), (vec![], vec![]));
        let mut pending = Pending::default();
        for (channel, payload) in [("", 0), (&*"c".repeat(64), 0), ("c", 8000)] {
            let error = pending.send(channel, &"p".repeat(payload)).unwrap_err();
            assert_eq!(error.state(), SqlState::INVALID_PARAMETER_VALUE);
        }
    }
}
