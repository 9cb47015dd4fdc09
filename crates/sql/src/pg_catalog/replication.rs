//! Replication as SQL shows it: the positions of the log in a primary and in a replica, the control of replay, the connections between
//! the two, and `firn_replication`.
//!
//! The timelines of PostgreSQL's views are epochs here.

use super::functions::no_session;
use super::rows::row;
use super::{Cell, OWNER, Row, Source};
use crate::activity::{ReceiverFacts, ReplicationFacts, SenderFacts, VoterFacts, not_in_a_server};
use crate::services::Services;
use crate::standby::Token;
use firn_base::sync::Arc;
use firn_base::{Error, Lsn, Numeric, Result, SqlState, TypeId};
use firn_txn::Engine;
use firn_txn::address_of;
use firn_vector::kernel::scalar::scalar;
use firn_vector::kernel::{Call, Kernel, Text};
use firn_vector::registry::{
    Body, Function, FunctionId, Kernels, Mode, Parallel, Parameter, RegistryBuilder, Volatility,
};
use std::fmt::Write;
use std::time::Duration;

/// Registers what PostgreSQL does not have, and what waits.
pub(crate) fn register(builder: &mut RegistryBuilder) {
    builder.scalar::<(bool, i32), _>("pg_promote(bool,int4)", |call, (waits, seconds)| {
        promote(call, true, waits, seconds)
    });
    let kernel = scalar::<(i32,), _>(|call: &mut Call<'_>, (seconds,)| promote(call, false, true, seconds));
    let wait = Parameter {
        ty: TypeId::INT4,
        name: Some("wait_seconds".into()),
        mode: Mode::In,
        default: Some("60".into()),
    };
    builder.add(changes_server(9_991, "firn_switchover", Box::new([wait]), Arc::new(kernel)));
    let kernel = scalar::<(), _>(|call: &mut Call<'_>, ()| {
        let facts = facts_of(call)?;
        facts.become_voter(&|| call.context.check_cancel())
    });
    builder.add(changes_server(9_989, "firn_become_voter", Box::default(), Arc::new(kernel)));
    let voter = Parameter { ty: TypeId::TEXT, name: Some("voter".into()), mode: Mode::In, default: None };
    let kernel = scalar::<(&str,), _>(|call: &mut Call<'_>, (voter,)| {
        let facts = facts_of(call)?;
        facts.remove_voter(voter, &|| call.context.check_cancel()).map(|()| true)
    });
    builder.add(changes_server(9_988, "firn_remove_voter", Box::new([voter]), Arc::new(kernel)));
    let names = Parameter { ty: TypeId::TEXT, name: Some("names".into()), mode: Mode::In, default: None };
    let kernel = scalar::<(&str,), _>(|call: &mut Call<'_>, (names,)| {
        let source: Option<&Source> = call.context.session.as_any().downcast_ref();
        let session = source.and_then(Source::session).ok_or_else(no_session)?;
        session.sessions().set_standby_names(names).map(|()| true)
    });
    builder.add(changes_server(
        9_987,
        "firn_set_synchronous_standby_names",
        Box::new([names]),
        Arc::new(kernel),
    ));
    let kernel = scalar::<(), _>(|call: &mut Call<'_>, ()| {
        let source: Option<&Source> = call.context.session.as_any().downcast_ref();
        let session = source.and_then(Source::session).ok_or_else(no_session)?;
        write!(call.text, "{}", Token::of_visible(session.engine())?).expect("strings take everything");
        Ok::<_, Error>(Text)
    });
    builder.add(Function {
        // PostgreSQL leaves the numbers from 8000 to 9999 to its developers, and releases none.
        id: FunctionId(9_990),
        schema: None,
        name: "firn_commit_token".into(),
        parameters: Box::default(),
        result: TypeId::TEXT,
        volatility: Volatility::Volatile,
        is_strict: true,
        parallel: Parallel::Restricted,
        may_be_null: false,
        can_fail: true,
        cannot_fail: None,
        body: Body::Scalar(Kernels { general: Arc::new(kernel), special: Vec::new() }),
    });
}

/// A function that changes the server, and returns whether it has.
fn changes_server(id: u32, name: &str, parameters: Box<[Parameter]>, kernel: Arc<dyn Kernel>) -> Function {
    Function {
        // PostgreSQL leaves the numbers from 8000 to 9999 to its developers, and releases none.
        id: FunctionId(id),
        schema: None,
        name: name.into(),
        parameters,
        result: TypeId::BOOL,
        volatility: Volatility::Volatile,
        is_strict: true,
        parallel: Parallel::Unsafe,
        may_be_null: false,
        can_fail: true,
        cannot_fail: None,
        body: Body::Scalar(Kernels { general: kernel, special: Vec::new() }),
    }
}

// Functions.

/// What the server of the session does of replication.
fn facts_of<'c>(call: &'c Call<'_>) -> Result<&'c dyn ReplicationFacts> {
    let source: Option<&Source> = call.context.session.as_any().downcast_ref();
    let session = source.and_then(Source::session).ok_or_else(no_session)?;
    session.sessions().replication().ok_or_else(not_in_a_server)
}

/// Makes the server a primary.
fn promote(call: &mut Call<'_>, is_forced: bool, waits: bool, seconds: i32) -> Result<bool> {
    let source: Option<&Source> = call.context.session.as_any().downcast_ref();
    let session = replica(source.ok_or_else(no_session)?)?;
    if seconds <= 0 {
        let message = "\"wait_seconds\" must not be negative or zero";
        return Err(Error::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message));
    }
    let facts = session.sessions().replication().ok_or_else(not_in_a_server)?;
    let longest = waits.then(|| Duration::from_secs(u64::from(seconds.unsigned_abs())));
    let is_promoted = facts.promote(is_forced, longest, &|| call.context.check_cancel())?;
    if waits && !is_promoted {
        let plural = if seconds == 1 { "" } else { "s" };
        session.warn(format!("server did not promote within {seconds} second{plural}"));
        if let Some(error) = receiver(session).and_then(|receiver| receiver.last_error) {
            session.warn(format!("the last error of receiving or replay: {error}"));
        }
    }
    Ok(is_promoted || !waits)
}

fn engine(source: &Source) -> Result<&Engine> {
    Ok(source.session().ok_or_else(no_session)?.engine())
}

fn position(lsn: Lsn) -> Cell {
    Cell::Integer(lsn.0 as i64)
}

pub(super) fn is_in_recovery(source: &Source, _: &[Cell]) -> Result<Cell> {
    Ok(source.session().is_some_and(|asking| asking.engine().is_replica()).into())
}

/// The engine, if it is that of a primary.
fn primary(source: &Source) -> Result<&Engine> {
    let engine = engine(source)?;
    if engine.is_replica() {
        let message = "recovery is in progress";
        return Err(Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
            .with_hint("WAL control functions cannot be executed during recovery."));
    }
    Ok(engine)
}

/// The end of what has been written to the log.
pub(super) fn written(source: &Source, _: &[Cell]) -> Result<Cell> {
    Ok((primary(source)?.log_bytes().0 as i64).into())
}

/// The end of what is on disk.
pub(super) fn flushed(source: &Source, _: &[Cell]) -> Result<Cell> {
    Ok((primary(source)?.log_bytes().1 as i64).into())
}

pub(super) fn create_restore_point(source: &Source, arguments: &[Cell]) -> Result<Cell> {
    const LONGEST: usize = 63;
    let engine = primary(source)?;
    let Cell::Text(name) = &arguments[0] else { return Ok(Cell::Null) };
    if name.len() > LONGEST {
        let message = format!("value too long for restore point (maximum {LONGEST} characters)");
        return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, message));
    }
    Ok(position(engine.create_restore_point(name)?))
}

pub(super) fn last_received(source: &Source, _: &[Cell]) -> Result<Cell> {
    let engine = engine(source)?;
    Ok(engine.is_replica().then(|| engine.durable_lsn().0 as i64).into())
}

pub(super) fn last_replayed(source: &Source, _: &[Cell]) -> Result<Cell> {
    let engine = engine(source)?;
    Ok(engine.is_replica().then(|| engine.visible_lsn().0 as i64).into())
}

pub(super) fn last_replayed_time(source: &Source, _: &[Cell]) -> Result<Cell> {
    let receiver = receiver(source.session().ok_or_else(no_session)?);
    Ok(receiver.and_then(|receiver| receiver.replayed_time).into())
}

/// The session, if it is one of a replica.
fn replica(source: &Source) -> Result<&Services> {
    let session = source.session().ok_or_else(no_session)?;
    match session.engine().is_replica() {
        true => Ok(session),
        false => Err(Error::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, "recovery is not in progress")
            .with_hint("Recovery control functions can only be executed during recovery.")),
    }
}

pub(super) fn pause_replay(source: &Source, _: &[Cell]) -> Result<Cell> {
    set_paused(source, true)
}

pub(super) fn resume_replay(source: &Source, _: &[Cell]) -> Result<Cell> {
    set_paused(source, false)
}

fn set_paused(source: &Source, pause: bool) -> Result<Cell> {
    if let Some(facts) = replica(source)?.sessions().replication() {
        facts.pause_replay(pause);
    }
    // `void`
    Ok("".into())
}

pub(super) fn is_replay_paused(source: &Source, _: &[Cell]) -> Result<Cell> {
    Ok(is_paused(source)?.into())
}

pub(super) fn replay_pause_state(source: &Source, _: &[Cell]) -> Result<Cell> {
    Ok(if is_paused(source)? { "paused" } else { "not paused" }.into())
}

fn is_paused(source: &Source) -> Result<bool> {
    Ok(replica(source)?.sessions().replication().is_some_and(|facts| facts.is_replay_paused()))
}

/// How many bytes one position of the log is after another.
pub(super) fn difference(_: &Source, arguments: &[Cell]) -> Result<Cell> {
    match arguments {
        [Cell::Integer(after), Cell::Integer(before)] => {
            let bytes = i128::from(*after as u64) - i128::from(*before as u64);
            debug_assert!(Numeric::parse(&bytes.to_string()).is_ok());
            Ok(bytes.to_string().into())
        }
        _ => Ok(Cell::Null),
    }
}

// Views.

fn receiver(asking: &Services) -> Option<ReceiverFacts> {
    asking.sessions().replication()?.receiver()
}

fn senders(asking: &Services) -> Vec<SenderFacts> {
    asking.sessions().replication().map_or_else(Vec::new, |facts| facts.senders())
}

fn voters(asking: &Services) -> Vec<VoterFacts> {
    asking.sessions().replication().map_or_else(Vec::new, |facts| facts.voters())
}

/// Microseconds as an interval.
fn interval(micros: Option<i64>) -> Cell {
    micros.map_or(Cell::Null, Cell::Interval)
}

pub(super) fn pg_stat_replication(source: &Source) -> Vec<Row> {
    let Some(asking) = source.session() else { return Vec::new() };
    let sessions = asking.sessions().list();
    let row = |sender: &SenderFacts| {
        let session = sessions.iter().find(|session| session.id() == sender.session);
        let [write_lag, flush_lag, replay_lag] = sender.lags;
        row! {
            "pid": i64::from(sender.session),
            "usesysid": OWNER,
            "usename": session.map(|session| session.client().user),
            "application_name": sender.name.as_str(),
            "client_addr": sender.client.map(|(address, _)| address.to_string()),
            "client_hostname": Cell::Null,
            "client_port": sender.client.map_or(-1, |(_, port)| i64::from(port)),
            "backend_start": sender.begun,
            "backend_xmin": Cell::Null,
            "state": if sender.is_catching_up { "catchup" } else { "streaming" },
            "sent_lsn": position(sender.sent),
            "write_lsn": position(sender.written),
            "flush_lsn": position(sender.flushed),
            "replay_lsn": position(sender.replayed),
            "write_lag": interval(write_lag),
            "flush_lag": interval(flush_lag),
            "replay_lag": interval(replay_lag),
            "sync_priority": i64::from(sender.sync_priority),
            "sync_state": sender.sync_state,
            "reply_time": sender.reply_time,
        }
    };
    senders(asking).iter().map(row).collect()
}

pub(super) fn pg_stat_wal_receiver(source: &Source) -> Vec<Row> {
    let Some(receiver) = source.session().and_then(receiver) else { return Vec::new() };
    let (host, port) = &receiver.server;
    let timeline = i64::from(receiver.epoch as i32);
    vec![row! {
        // A thread of the server receives.
        "pid": i64::from(std::process::id() as i32),
        "status": if receiver.is_connected { "streaming" } else { "waiting" },
        "receive_start_lsn": position(receiver.begun),
        "receive_start_tli": timeline,
        "written_lsn": position(receiver.received),
        "flushed_lsn": position(receiver.flushed),
        "received_tli": timeline,
        "last_msg_send_time": receiver.last_message.map(|(_, sent)| sent),
        "last_msg_receipt_time": receiver.last_message.map(|(come, _)| come),
        "latest_end_lsn": position(receiver.available),
        "latest_end_time": receiver.last_message.map(|(come, _)| come),
        "slot_name": Cell::Null,
        "sender_host": host.as_str(),
        "sender_port": i64::from(*port),
        "conninfo": format!("host={host} port={port}"),
    }]
}

/// A row of `firn_replication` in which everything is NULL that is not known.
#[derive(Default)]
struct Member {
    node: Option<u64>,
    name: Option<String>,
    address: Option<String>,
    role: &'static str,
    upstream: Option<String>,
    epoch: Option<u64>,
    state: Option<&'static str>,
    sent: Option<Lsn>,
    written: Option<Lsn>,
    flushed: Option<Lsn>,
    replayed: Option<Lsn>,
    lags: [Option<i64>; 3],
    /// The end of the log that it is to replay.
    end: Option<Lsn>,
    sync_state: Option<&'static str>,
    oldest_snapshot_age: Option<i64>,
    /// From where on the log is retained for it, or by it.
    pinned: Option<Lsn>,
    last_message: Option<i64>,
    last_error: Option<String>,
}

impl Member {
    /// `pinned_to` is the end of the log of this server.
    fn into_row(self, pinned_to: Lsn) -> Row {
        let [write_lag, flush_lag, replay_lag] = self.lags;
        let lsn = |lsn: Option<Lsn>| lsn.map_or(Cell::Null, position);
        let bytes = |from: Lsn, to: Lsn| to.0.saturating_sub(from.0) as i64;
        let lag = self.replayed.zip(self.end).map(|(replayed, end)| bytes(replayed, end));
        row! {
            "node_id": self.node.map(|node| node as i64),
            "name": self.name,
            "address": self.address,
            "role": self.role,
            "upstream": self.upstream,
            "epoch": self.epoch.map(|epoch| epoch as i64),
            "state": self.state,
            "sent_lsn": lsn(self.sent),
            "write_lsn": lsn(self.written),
            "flush_lsn": lsn(self.flushed),
            "replay_lsn": lsn(self.replayed),
            "write_lag": interval(write_lag),
            "flush_lag": interval(flush_lag),
            "replay_lag": interval(replay_lag),
            "lag_bytes": lag,
            "lag_commits": Cell::Null,
            "sync_state": self.sync_state,
            "oldest_snapshot_age": interval(self.oldest_snapshot_age),
            "pinned_bytes": self.pinned.map(|from| bytes(from, pinned_to)),
            "last_message_at": self.last_message,
            "last_error": self.last_error,
        }
    }
}

/// This server first; then the server that it follows, and those that receive its log.
pub(super) fn firn_replication(source: &Source) -> Vec<Row> {
    let Some(asking) = source.session() else { return Vec::new() };
    let engine = asking.engine();
    let (appended, durable) = engine.log_bytes();
    let pins: Vec<_> = engine.pinned().into_iter().filter(|pin| !pin.is_broken).collect();
    let running = engine.running();
    let own = Member {
        node: voters(asking).into_iter().find(|voter| voter.is_this).map(|voter| voter.node),
        oldest_snapshot_age: running.iter().map(|running| running.age.as_micros() as i64).max(),
        pinned: pins.iter().map(|pin| pin.position).min(),
        flushed: Some(Lsn(durable)),
        replayed: Some(engine.visible_lsn()),
        ..Member::default()
    };
    let mut members = Vec::new();
    match engine.upstream() {
        None => members.push(Member {
            role: "primary",
            epoch: engine.log_point().ok().map(|point| point.epoch.0),
            written: Some(Lsn(appended)),
            ..own
        }),
        Some(server) => {
            let receiver = receiver(asking);
            let receiver = receiver.as_ref();
            let received = engine.received().ok();
            let state = receiver.map(|receiver| match receiver.is_connected {
                false => "gone",
                true if receiver.received < receiver.available => "catching up",
                true => "streaming",
            });
            let last_message = receiver.and_then(|receiver| receiver.last_message).map(|(come, _)| come);
            let last_error = receiver.and_then(|receiver| receiver.last_error.clone());
            let available = receiver.map(|receiver| receiver.available);
            let epoch = received.as_ref().map(|point| point.epoch.0);
            members.push(Member {
                role: "replica",
                upstream: Some(address_of(&server).to_owned()),
                epoch,
                state,
                written: received.map(|point| point.lsn),
                end: available,
                last_message,
                last_error,
                ..own
            });
            members.push(Member {
                role: if receiver.is_none_or(|receiver| receiver.is_of_primary) {
                    "primary"
                } else {
                    "replica"
                },
                address: Some(address_of(&server).to_owned()),
                epoch: receiver.map(|receiver| receiver.epoch),
                flushed: available,
                last_message,
                ..Member::default()
            });
        }
    }
    for sender in senders(asking) {
        let pin = pins.iter().find(|pin| pin.holder == sender.name);
        members.push(Member {
            role: "replica",
            address: sender
                .client
                .map(|(address, port)| std::net::SocketAddr::from((address, port)).to_string()),
            state: Some(if sender.is_catching_up { "catching up" } else { "streaming" }),
            sent: Some(sender.sent),
            written: Some(sender.written),
            flushed: Some(sender.flushed),
            replayed: Some(sender.replayed),
            lags: sender.lags,
            end: Some(Lsn(durable)),
            node: sender.voter,
            sync_state: Some(sender.sync_state),
            pinned: pin.map(|pin| pin.position),
            last_message: sender.reply_time,
            name: Some(sender.name),
            ..Member::default()
        });
    }
    members.into_iter().map(|member| member.into_row(Lsn(appended))).collect()
}

/// The voters of the cluster, as far as this server knows.
pub(super) fn firn_voters(source: &Source) -> Vec<Row> {
    let Some(asking) = source.session() else { return Vec::new() };
    let own = asking.engine().durable_lsn();
    let row = |voter: VoterFacts| {
        let flushed = if voter.is_this { Some(own) } else { voter.flushed };
        row! {
            "node_id": voter.node as i64,
            "name": voter.name,
            "address": voter.address,
            "role": if voter.is_primary { "primary" } else { "voter" },
            "epoch": voter.epoch as i64,
            "is_this": voter.is_this,
            "flush_lsn": flushed.map_or(Cell::Null, position),
        }
    };
    voters(asking).into_iter().map(row).collect()
}
