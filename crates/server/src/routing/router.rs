//! The primary's side: which replicas wait for queries, and what they answer.
//!
//! Each connection of a replica has a thread here. It waits until a session hands it a query, sends that, and passes the answer to the
//! session through a short queue, so that a client that reads slowly holds back the replica.

use super::{Answer, LONGEST_SILENCE, Offer, PROGRAM, SOON, out_of_turn};
use firn_base::clock::Instant;
use firn_base::sync::{Arc, AtomicBool, Condvar, Mutex, Ordering};
use firn_base::{Error, Lsn, Result, SqlState, Time, clock};
use firn_replica::{Channel, Received};
use firn_session::server::{QueryRouter, RoutedAnswer, RoutedPiece, RoutedQuery};
use firn_txn::Engine;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// How many pieces of an answer wait for a client.
const MOST_WAITING: usize = 4;

/// How often a thread that waits looks at the rest of the world.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Hands queries to the replicas that offer to run them.
#[derive(Debug, Default)]
pub struct Router {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    replicas: BTreeMap<u64, Replica>,
    /// Connections on which no query runs, by their replicas.
    waiting: Vec<(u64, Arc<Place>)>,
}

/// What is known of a replica, as long as it has connections.
#[derive(Debug, Default)]
struct Replica {
    connections: usize,
    /// How many statements run there, as it has said last.
    running: u32,
    /// How many queries have been handed to it since.
    handed: u32,
    /// It is not asked before it has replayed the log up to here, since it was too far behind for a query.
    asked_from: Option<Lsn>,
    replayed: Option<Lsn>,
    /// When it has said so.
    heard: Option<Instant>,
}

impl Replica {
    fn is_ready(&self) -> bool {
        self.replayed >= self.asked_from && self.heard.is_some_and(|heard| heard.elapsed() < SOON)
    }
}

/// Where a connection that waits gets its query.
#[derive(Debug, Default)]
struct Place {
    task: Mutex<Option<Task>>,
    called: Condvar,
}

/// A query to be run.
#[derive(Debug)]
struct Task {
    query: Vec<u8>,
    position: Lsn,
    answer: Arc<Queue>,
}

/// What a replica has answered, and the client has not read yet.
#[derive(Debug, Default)]
struct Queue {
    pieces: Mutex<VecDeque<Result<Piece>>>,
    changed: Condvar,
    /// Whether nobody reads it any more.
    is_abandoned: AtomicBool,
}

#[derive(Debug)]
enum Piece {
    Begun(Time),
    Rows(Vec<u8>),
    End,
}

impl Queue {
    fn is_abandoned(&self) -> bool {
        // Relaxed: it protects nothing.
        self.is_abandoned.load(Ordering::Relaxed)
    }

    /// Appends a piece, once there is room.
    fn push(&self, piece: Result<Piece>) {
        let mut pieces = self.pieces.lock();
        while pieces.len() >= MOST_WAITING && !self.is_abandoned() {
            self.changed.wait_for(&mut pieces, LOOK_EVERY);
        }
        pieces.push_back(piece);
        self.changed.notify_all();
    }
}

/// The end of a session.
struct Reading(Arc<Queue>);

impl RoutedAnswer for Reading {
    fn next(&mut self, longest: Duration) -> Result<RoutedPiece> {
        let mut pieces = self.0.pieces.lock();
        if pieces.is_empty() {
            self.0.changed.wait_for(&mut pieces, longest);
        }
        let piece = pieces.pop_front();
        self.0.changed.notify_all();
        match piece {
            None => Ok(RoutedPiece::Nothing),
            Some(Ok(Piece::Begun(time))) => Ok(RoutedPiece::Begun(time)),
            Some(Ok(Piece::Rows(image))) => Ok(RoutedPiece::Rows(image)),
            Some(Ok(Piece::End)) => Ok(RoutedPiece::End),
            Some(Err(error)) => Err(error),
        }
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.0.is_abandoned.store(true, Ordering::Relaxed);
        self.0.changed.notify_all();
    }
}

impl QueryRouter for Router {
    fn is_ready(&self) -> bool {
        let known = self.known.lock();
        known.waiting.iter().any(|(replica, _)| known.replicas[replica].is_ready())
    }

    fn hand_out(&self, query: &RoutedQuery) -> Option<Box<dyn RoutedAnswer>> {
        let mut known = self.known.lock();
        let Known { replicas, waiting } = &mut *known;
        let ready = (0..waiting.len()).filter(|number| replicas[&waiting[*number].0].is_ready());
        let load = |number: &usize| {
            let replica = &replicas[&waiting[*number].0];
            replica.running.saturating_add(replica.handed)
        };
        let (replica, place) = waiting.remove(ready.min_by_key(load)?);
        replicas.get_mut(&replica).expect("it has connections").handed += 1;
        let answer = Arc::new(Queue::default());
        // A connection that ends looks for it after it has been locked out.
        *place.task.lock() =
            Some(Task { query: query.encode(), position: query.position(), answer: answer.clone() });
        place.called.notify_all();
        Some(Box::new(Reading(answer)))
    }
}

impl Router {
    /// Serves a connection of a replica that offers to run queries, until it ends.
    pub fn serve(&self, engine: &Engine, channel: &mut dyn Channel) -> Result<()> {
        let mut message = Vec::new();
        if channel.receive_within(&mut message, LONGEST_SILENCE)? != Received::Message {
            return Ok(());
        }
        let Answer::Offer(offer) = Answer::decode(&message)? else { return Err(out_of_turn()) };
        check(&offer, engine)?;
        let connection = Connection::new(self, offer.replica);
        connection.serve(channel, &mut message)
    }
}

/// Whether a replica can run queries of this server.
fn check(offer: &Offer, engine: &Engine) -> Result<()> {
    let refused = |message: String| Err(Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message));
    if engine.identity() != Some((offer.database, offer.cluster)) {
        return refused("the replica is one of another cluster".to_owned());
    }
    if offer.program != PROGRAM {
        let theirs = &offer.program;
        return refused(format!(
            "queries of version {PROGRAM} cannot be run by a replica of version {theirs}"
        ));
    }
    Ok(())
}

/// A connection of a replica.
struct Connection<'r> {
    router: &'r Router,
    replica: u64,
    place: Arc<Place>,
}

impl Drop for Connection<'_> {
    fn drop(&mut self) {
        let mut known = self.router.known.lock();
        known.waiting.retain(|(_, place)| !Arc::ptr_eq(place, &self.place));
        // A query that was handed to it in the last moment.
        let task = self.place.task.lock().take();
        let replica = known.replicas.get_mut(&self.replica).expect("it has connections");
        replica.connections -= 1;
        if replica.connections == 0 {
            known.replicas.remove(&self.replica);
        }
        drop(known);
        if let Some(task) = task {
            task.answer.push(Err(lost()));
        }
    }
}

impl<'r> Connection<'r> {
    fn new(router: &'r Router, replica: u64) -> Connection<'r> {
        router.known.lock().replicas.entry(replica).or_default().connections += 1;
        Connection { router, replica, place: Arc::default() }
    }

    fn serve(&self, channel: &mut dyn Channel, message: &mut Vec<u8>) -> Result<()> {
        let mut heard = clock::now();
        let mut is_listed = false;
        loop {
            let longest = if is_listed { Duration::ZERO } else { LOOK_EVERY };
            match channel.receive_within(message, longest)? {
                Received::Message => {
                    let Answer::Load { running, replayed } = Answer::decode(message)? else {
                        return Err(out_of_turn());
                    };
                    heard = clock::now();
                    self.note_load(running, replayed);
                    channel.send(&[b"A"])?;
                    channel.flush()?;
                    if !is_listed {
                        is_listed = true;
                        self.router.known.lock().waiting.push((self.replica, self.place.clone()));
                    }
                    continue;
                }
                Received::End => return Ok(()),
                Received::Nothing if heard.elapsed() >= LONGEST_SILENCE => return Err(lost()),
                Received::Nothing => {}
            }
            let mut place = self.place.task.lock();
            if place.is_none() && is_listed {
                self.place.called.wait_for(&mut place, LOOK_EVERY);
            }
            let task = place.take();
            drop(place);
            if let Some(task) = task {
                is_listed = false;
                if let Err(error) = self.run(&task, channel, message) {
                    task.answer.push(Err(error.clone()));
                    return Err(error);
                }
                heard = clock::now();
            }
        }
    }

    fn note_load(&self, running: u32, replayed: Lsn) {
        let mut known = self.router.known.lock();
        let replica = known.replicas.get_mut(&self.replica).expect("it has connections");
        (replica.running, replica.handed) = (running, 0);
        (replica.replayed, replica.heard) = (Some(replayed), Some(clock::now()));
    }

    /// Lets the replica run a query. After an error the connection is of no use any more.
    fn run(&self, task: &Task, channel: &mut dyn Channel, message: &mut Vec<u8>) -> Result<()> {
        channel.send(&[b"Q", &task.query])?;
        channel.flush()?;
        let (mut heard, mut has_begun) = (clock::now(), false);
        loop {
            if task.answer.is_abandoned() {
                return Err(abandoned());
            }
            match channel.receive_within(message, LOOK_EVERY)? {
                Received::Message => {}
                Received::Nothing if heard.elapsed() < LONGEST_SILENCE => continue,
                Received::End | Received::Nothing => return Err(lost()),
            }
            match Answer::decode(message)? {
                Answer::Started(time) => {
                    has_begun = true;
                    task.answer.push(Ok(Piece::Begun(time)));
                }
                Answer::Rows(image) if has_begun => task.answer.push(Ok(Piece::Rows(image))),
                Answer::Working => {}
                // It was sent before the query had come.
                Answer::Load { running, replayed } if !has_begun => self.note_load(running, replayed),
                Answer::End if has_begun => {
                    task.answer.push(Ok(Piece::End));
                    return Ok(());
                }
                Answer::Error(error) => {
                    if error.state() == SqlState::CANNOT_CONNECT_NOW {
                        let mut known = self.router.known.lock();
                        let replica = known.replicas.get_mut(&self.replica).expect("it has connections");
                        replica.asked_from = Some(task.position);
                    }
                    task.answer.push(Err(error));
                    return Ok(());
                }
                Answer::Offer(_) | Answer::Load { .. } | Answer::Rows(_) | Answer::End => {
                    return Err(out_of_turn());
                }
            }
            // A client may have taken its time.
            heard = clock::now();
        }
    }
}

#[cold]
fn lost() -> Error {
    Error::new(SqlState::CONNECTION_FAILURE, "the connection to the replica was lost")
}

#[cold]
fn abandoned() -> Error {
    Error::new(SqlState::QUERY_CANCELED, "the query has ended")
}
