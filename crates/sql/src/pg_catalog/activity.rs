//! The relations about running statements and their costs: those of PostgreSQL that apply here, and
//! ours (`firn_stat_…`).

use super::rows::{PG_CLASS, row};
use super::{Cell, DATABASE, OWNER, Row, Source};
use crate::activity::{Activity, DatabaseCounts, Resets, State};
use crate::advisory;
use crate::copy::{Channel, Progress};
use crate::named::{NamedCursor, NamedStatement};
use crate::pg_catalog::definitions::number;
use crate::query::query_memory_used;
use crate::services::Services;
use crate::settings::isolation_name;
use firn_base::SqlState;
use firn_base::sync::Arc;
use firn_txn::{Abort, BlockUsage, Held, Running, TableLock, TableLockMode};
use std::collections::HashMap;

/// A timestamp, or none for 0.
fn nonzero(micros: i64) -> Option<i64> {
    (micros != 0).then_some(micros)
}

/// A transaction's number where PostgreSQL has one of 32 bits.
fn short(id: u64) -> i64 {
    (id & 0x7fff_ffff) as i64
}

/// The session of a transaction, if it belongs to one.
fn session_of<'s>(sessions: &'s [Arc<Activity>], transaction: &Running) -> Option<&'s Activity> {
    sessions.iter().find(|session| session.id() == transaction.session).map(Arc::as_ref)
}

pub(super) fn pg_stat_activity(source: &Source) -> Vec<Row> {
    let Some(asking) = source.session() else { return Vec::new() };
    let running = asking.engine().running();
    let row = |session: &Arc<Activity>| {
        let client = session.client();
        let (state, changed) = session.state();
        let mut own = running.iter().filter(|transaction| transaction.session == session.id());
        let waits = own.find_map(|transaction| match (transaction.wants, &*transaction.waits_for) {
            (Some(_), _) => Some("relation"),
            (None, [_, ..]) => Some("transactionid"),
            (None, []) => None,
        });
        row! {
            "datid": DATABASE,
            "datname": client.database,
            "pid": i64::from(session.id()),
            "usesysid": OWNER,
            "usename": client.user,
            "application_name": client.application,
            "client_addr": client.address.map(|(address, _)| address.to_string()),
            "client_port": client.address.map_or(-1, |(_, port)| i64::from(port)),
            "backend_start": session.begun(),
            "xact_start": nonzero(session.transaction_begun()),
            "query_start": nonzero(session.query_begun()),
            "state_change": changed,
            "wait_event_type": match (waits, state) {
                (Some(_), _) => Some("Lock"),
                (None, State::Active) => None,
                _ => Some("Client"),
            },
            "wait_event": match (waits, state) {
                (Some(event), _) => Some(event),
                (None, State::Active) => None,
                _ => Some("ClientRead"),
            },
            "state": state.name(),
            "backend_xid": Cell::Null,
            "backend_xmin": Cell::Null,
            "query": session.query(),
            "backend_type": "client backend",
        }
    };
    asking.sessions().list().iter().map(row).collect()
}

/// The COPYs that run, each with its session.
fn copies(source: &Source) -> Vec<(Arc<Activity>, Arc<Progress>)> {
    let Some(asking) = source.session() else { return Vec::new() };
    let copy = |session: Arc<Activity>| session.copy().map(|copy| (session, copy));
    asking.sessions().list().into_iter().filter_map(copy).collect()
}

fn channel_name(copy: &Progress) -> &'static str {
    match copy.channel {
        Channel::File => "FILE",
        Channel::Pipe => "PIPE",
    }
}

pub(super) fn pg_stat_progress_copy(source: &Source) -> Vec<Row> {
    let row = |(session, copy): (Arc<Activity>, Arc<Progress>)| {
        row! {
            "pid": i64::from(session.id()),
            "datid": DATABASE,
            "datname": source.facts.database.as_str(),
            "relid": copy.table.map_or(0, number),
            "command": copy.command,
            "type": channel_name(&copy),
            "bytes_processed": copy.bytes() as i64,
            "bytes_total": copy.bytes_in_all() as i64,
            "tuples_processed": copy.rows() as i64,
            "tuples_excluded": copy.excluded() as i64,
        }
    };
    copies(source).into_iter().map(row).collect()
}

pub(super) fn firn_stat_progress_copy(source: &Source) -> Vec<Row> {
    let row = |(session, copy): (Arc<Activity>, Arc<Progress>)| {
        let table = copy.table.and_then(|table| source.catalog.tables.get(&table));
        let (bytes, seconds) = (copy.bytes(), copy.age().as_secs_f64());
        let in_all = Some(copy.bytes_in_all()).filter(|bytes| *bytes > 0);
        row! {
            "pid": i64::from(session.id()),
            "relid": table.map_or(Cell::Null, |table| number(table.oid).into()),
            "schemaname": table.map_or(Cell::Null, |table| source.schema_name(table.schema).into()),
            "relname": table.map_or(Cell::Null, |table| table.name.as_str().into()),
            "command": copy.command,
            "type": channel_name(&copy),
            "elapsed_ms": copy.age().as_millis() as i64,
            "bytes": bytes as i64,
            "bytes_in_all": in_all.map(|bytes| bytes as i64),
            "bytes_per_second": (bytes as f64 / seconds.max(1e-3)) as i64,
            "rows": copy.rows() as i64,
            "rows_excluded": copy.excluded() as i64,
            "rows_skipped": copy.skipped() as i64,
        }
    };
    copies(source).into_iter().map(row).collect()
}

/// The locks that transactions hold, which are on their own end and on tables, and those that they wait for: on the end of others and
/// on tables. The right to change the catalog is shown as a lock of the table that represents it.
pub(super) fn pg_locks(source: &Source) -> Vec<Row> {
    let Some(asking) = source.session() else { return Vec::new() };
    let lock = |kind: &str, (session, id): (u32, u64), of: Option<i64>, mode: &str, granted: bool| {
        let is_relation = kind == "relation";
        row! {
            "locktype": kind,
            "database": if is_relation { DATABASE.into() } else { Cell::Null },
            "relation": of.filter(|_| is_relation),
            "page": Cell::Null,
            "tuple": Cell::Null,
            "transactionid": of.filter(|_| !is_relation),
            "classid": Cell::Null,
            "objid": Cell::Null,
            "objsubid": Cell::Null,
            "virtualtransaction": format!("{session}/{}", short(id)),
            "pid": i64::from(session),
            "mode": mode,
            "granted": granted,
        }
    };
    let mut rows = Vec::new();
    for transaction in asking.engine().running() {
        let holder = (transaction.session, transaction.id);
        if transaction.writes {
            rows.push(lock("transactionid", holder, Some(short(transaction.id)), "ExclusiveLock", true));
        }
        // A transaction that waits for a table waits for those that hold it, which are listed with it.
        if let (None, Some(other)) = (transaction.wants, transaction.waits_for.first()) {
            rows.push(lock("transactionid", holder, Some(short(*other)), "ShareLock", false));
        }
    }
    let tables: HashMap<_, _> =
        source.catalog.tables.values().map(|table| (table.storage(), number(table.oid))).collect();
    let relation = |lock: &TableLock| match lock.table {
        None => Some(PG_CLASS),
        // Unless the table is not visible to the asking transaction, or not any more.
        Some(table) => tables.get(&table).copied(),
    };
    rows.extend(asking.engine().table_locks().iter().map(|held| {
        let mode = match held.mode {
            TableLockMode::LockingRows => "RowShareLock",
            TableLockMode::Writing => "RowExclusiveLock",
            TableLockMode::Maintaining => "ShareUpdateExclusiveLock",
            TableLockMode::Sharing => "ShareLock",
            TableLockMode::WritingAlone => "ShareRowExclusiveLock",
            TableLockMode::Alone => "ExclusiveLock",
        };
        lock("relation", (held.session, held.transaction), relation(held), mode, held.is_granted)
    }));
    let mut advisory = asking.sessions().advisory().list();
    advisory.sort_by_key(|listed| (listed.session, listed.key, listed.mode));
    rows.extend(advisory.iter().map(advisory_lock));
    rows
}

fn advisory_lock(lock: &advisory::Listed) -> Row {
    row! {
        "locktype": "advisory",
        "database": DATABASE,
        "classid": i64::from(lock.key.class),
        "objid": i64::from(lock.key.object),
        "objsubid": if lock.key.is_pair { 2 } else { 1 },
        "relation": Cell::Null,
        "page": Cell::Null,
        "tuple": Cell::Null,
        "transactionid": Cell::Null,
        "virtualtransaction": format!("{}/0", lock.session),
        "pid": i64::from(lock.session),
        "mode": lock.mode.name(),
        "granted": lock.is_granted,
    }
}

pub(super) fn pg_stat_database(source: &Source) -> Vec<Row> {
    let Some(asking) = source.session() else { return Vec::new() };
    let reset = asking.sessions().with_resets(|resets| resets.database);
    let counts =
        DatabaseCounts::of(asking.engine()).since(reset.map_or_else(Default::default, |(_, counts)| counts));
    vec![row! {
        "datid": DATABASE,
        "datname": source.facts.database.as_str(),
        "numbackends": asking.sessions().list().len() as i64,
        "xact_commit": counts.commits as i64,
        "xact_rollback": counts.rollbacks as i64,
        "conflicts": counts.conflicts as i64,
        "deadlocks": counts.deadlocks as i64,
        "stats_reset": reset.map(|(at, _)| at),
    }]
}

/// What the archiver has done since its counts were reset.
pub(super) fn pg_stat_archiver(source: &Source) -> Vec<Row> {
    let Some(asking) = source.session() else { return Vec::new() };
    let counts = asking.sessions().archiver();
    let counts = asking.sessions().with_resets(|resets| match &resets.archiver {
        Some((at, earlier)) => counts.since(*at, earlier),
        None => counts,
    });
    let (archived, failed) = (counts.last_archived, counts.last_failed);
    let mut row = row! {
        "archived_count": counts.archived as i64,
        "last_archived_wal": archived.as_ref().map(|(segment, _)| segment.clone()),
        "last_archived_time": archived.map(|(_, at)| at),
        "failed_count": counts.failed as i64,
        "last_failed_wal": failed.as_ref().map(|(segment, _)| segment.clone()).filter(|segment| !segment.is_empty()),
        "last_failed_time": failed.map(|(_, at)| at),
    };
    row.push(("stats_reset", reset(source, |resets| resets.archiver.as_ref().map(|(at, _)| *at))));
    vec![row]
}

/// No process of its own writes blocks; what PostgreSQL counts of that is 0.
pub(super) fn pg_stat_bgwriter(source: &Source) -> Vec<Row> {
    const COUNTS: [&str; 8] = [
        "checkpoints_timed",
        "checkpoints_req",
        "buffers_checkpoint",
        "buffers_clean",
        "maxwritten_clean",
        "buffers_backend",
        "buffers_backend_fsync",
        "buffers_alloc",
    ];
    let mut row: Row = COUNTS.iter().map(|name| (*name, Cell::Integer(0))).collect();
    row.extend(row! { "checkpoint_write_time": 0.0, "checkpoint_sync_time": 0.0 });
    row.push(("stats_reset", reset(source, |resets| resets.writer)));
    vec![row]
}

pub(super) fn pg_stat_database_conflicts(source: &Source) -> Vec<Row> {
    const COUNTS: [&str; 5] =
        ["confl_tablespace", "confl_lock", "confl_snapshot", "confl_bufferpin", "confl_deadlock"];
    let mut row: Row = COUNTS.iter().map(|name| (*name, Cell::Integer(0))).collect();
    row.extend(row! { "datid": DATABASE, "datname": source.facts.database.as_str() });
    vec![row]
}

/// What the log has grown by since the database was opened, or since it was reset.
pub(super) fn pg_stat_wal(source: &Source) -> Vec<Row> {
    let Some(asking) = source.session() else { return Vec::new() };
    let before = asking.sessions().with_resets(|resets| resets.log.map_or(0, |(_, bytes)| bytes));
    const COUNTS: [&str; 5] = ["wal_records", "wal_fpi", "wal_buffers_full", "wal_write", "wal_sync"];
    let mut row: Row = COUNTS.iter().map(|name| (*name, Cell::Integer(0))).collect();
    row.extend(row! {
        "wal_bytes": asking.engine().log_bytes().0.saturating_sub(before).to_string(),
        "wal_write_time": 0.0,
        "wal_sync_time": 0.0,
    });
    row.push(("stats_reset", reset(source, |resets| resets.log.map(|(at, _)| at))));
    vec![row]
}

pub(super) fn pg_stat_ssl(source: &Source) -> Vec<Row> {
    /// As long as PostgreSQL shows a name.
    const NAME_BYTES: usize = 63;
    let Some(asking) = source.session() else { return Vec::new() };
    let row = |session: &Arc<Activity>| {
        let encryption = session.client().encryption;
        let encryption = encryption.as_ref();
        let certificate = encryption.and_then(|encryption| encryption.client.as_ref());
        let name = |name: &str| name[..name.floor_char_boundary(NAME_BYTES)].to_owned();
        row! {
            "pid": i64::from(session.id()),
            "ssl": encryption.is_some(),
            "version": encryption.map(|encryption| encryption.version),
            "cipher": encryption.map(|encryption| encryption.cipher),
            "bits": encryption.map(|encryption| i64::from(encryption.bits)),
            "client_dn": certificate.map(|certificate| name(&certificate.subject)),
            "client_serial": certificate.map(|certificate| certificate.serial.clone()),
            "issuer_dn": certificate.map(|certificate| name(&certificate.issuer)),
        }
    };
    asking.sessions().list().iter().map(row).collect()
}

/// Counts begin when the database is opened, or when they are reset.
fn reset(source: &Source, at: impl FnOnce(&Resets) -> Option<i64>) -> Cell {
    let sessions = source.session().map(|asking| asking.sessions());
    sessions
        .map(|sessions| sessions.with_resets(|resets| at(resets)).unwrap_or_else(|| sessions.begun()))
        .into()
}

pub(super) fn pg_stat_user_tables(source: &Source) -> Vec<Row> {
    let Some(asking) = source.session() else { return Vec::new() };
    let row = |table: &Arc<firn_txn::catalog::TableDef>| {
        let stored = asking.engine().find_table(table.storage())?;
        Some(row! {
            "relid": number(table.oid),
            "schemaname": source.schema_name(table.schema),
            "relname": table.name.as_str(),
            "n_live_tup": stored.approximate_rows() as i64,
            "n_dead_tup": stored.usage().free_slots as i64,
        })
    };
    source.catalog.tables.values().filter_map(row).collect()
}

pub(super) fn firn_stat_tables(source: &Source) -> Vec<Row> {
    let Some(asking) = source.session() else { return Vec::new() };
    let row = |table: &Arc<firn_txn::catalog::TableDef>| {
        let stored = asking.engine().find_table(table.storage())?;
        let usage = stored.usage();
        Some(row! {
            "relid": number(table.oid),
            "schemaname": source.schema_name(table.schema),
            "relname": table.name.as_str(),
            "rows": stored.approximate_rows() as i64,
            "free_slots": usage.free_slots as i64,
            "versioned_slots": usage.versioned_slots as i64,
            "blocks": usage.blocks as i64,
            "row_bytes": usage.row_bytes as i64,
            "string_bytes": usage.string_bytes as i64,
            "version_bytes": usage.head_bytes as i64,
            "index_bytes": usage.index_bytes as i64,
            "total_bytes": (usage.bytes() + usage.index_bytes) as i64,
        })
    };
    source.catalog.tables.values().filter_map(row).collect()
}

pub(super) fn firn_blocks(source: &Source) -> Vec<Row> {
    let Some(asking) = source.session() else { return Vec::new() };
    let mut rows = Vec::new();
    for table in source.catalog.tables.values() {
        let Some(stored) = asking.engine().find_table(table.storage()) else { continue };
        let encodings = |block: &BlockUsage| {
            let Some(encodings) = &block.encodings else { return Cell::Null };
            let visible = table.visible_columns().map(|(column, _)| encodings[column.index()].to_string());
            Cell::Texts(visible.collect())
        };
        rows.extend(stored.block_usage().map(|block| {
            row! {
                "relid": number(table.oid),
                "schemaname": source.schema_name(table.schema),
                "relname": table.name.as_str(),
                "block": block.number.0 as i64,
                "state": block.state.name(),
                "rows": i64::from(block.rows),
                "free_slots": i64::from(block.free),
                "bytes": block.bytes as i64,
                "raw_bytes": block.raw_bytes as i64,
                "encodings": encodings(&block),
            }
        }));
    }
    rows
}

pub(super) fn firn_stat_transactions(source: &Source) -> Vec<Row> {
    let Some(asking) = source.session() else { return Vec::new() };
    let sessions = asking.sessions().list();
    let row = |transaction: &Running| {
        let session = session_of(&sessions, transaction);
        row! {
            "id": transaction.id as i64,
            "pid": session.map_or(Cell::Null, |session| i64::from(session.id()).into()),
            "isolation": isolation_name(transaction.isolation),
            "age_ms": transaction.age.as_millis() as i64,
            "read_time": transaction.read_time.0 as i64,
            "commits_behind": transaction.commits_behind as i64,
            "writes": transaction.writes,
            "records": transaction.records as i64,
            "waits_for": transaction.waits_for.first().map(|id| *id as i64),
            "query": session.map(Activity::query),
        }
    };
    asking.engine().running().iter().map(row).collect()
}

pub(super) fn firn_stat_commit_latency(source: &Source) -> Vec<Row> {
    let Some(asking) = source.session() else { return Vec::new() };
    let latencies = asking.engine().statistics().latencies();
    latencies
        .map(
            |(upto, commits)| row! { "upto_us": upto.map(|micros| micros as i64), "commits": commits as i64 },
        )
        .collect()
}

/// Transactions that were rolled back, by cause.
pub(super) fn firn_stat_aborts(source: &Source) -> Vec<Row> {
    let Some(asking) = source.session() else { return Vec::new() };
    let row = |(abort, count): (Abort, u64)| {
        row! {
            "isolation": isolation_name(abort.isolation),
            "sqlstate": abort.state.map(|state| state.as_str().to_owned()),
            "cause": cause(&abort),
            "transactions": count as i64,
        }
    };
    asking.engine().statistics().aborts().into_iter().map(row).collect()
}

/// The name of an abort's cause.
fn cause(abort: &Abort) -> &'static str {
    let Some(state) = abort.state else { return "rolled back" };
    match state {
        SqlState::SERIALIZATION_FAILURE if abort.is_of_reads => "changed what was read",
        SqlState::SERIALIZATION_FAILURE => "changed what was to be written",
        SqlState::DEADLOCK_DETECTED => "deadlock",
        SqlState::LOCK_NOT_AVAILABLE => "lock not available",
        SqlState::QUERY_CANCELED => "cancelled",
        SqlState::OUT_OF_MEMORY => "out of memory",
        SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT => "idle",
        state if state.as_str().starts_with("23") => "constraint",
        _ => "error",
    }
}

pub(super) fn firn_stat_engine(source: &Source) -> Vec<Row> {
    let Some(asking) = source.session() else { return Vec::new() };
    let row = |(name, value, about): &(&'static str, u64, &'static str)| {
        row! { "name": *name, "value": i64::try_from(*value).unwrap_or(i64::MAX), "description": *about }
    };
    engine_figures(asking).iter().map(row).collect()
}

/// Name, value and meaning of every statistic of an engine.
fn engine_figures(asking: &Services) -> Vec<(&'static str, u64, &'static str)> {
    let engine = asking.engine();
    let (statistics, memory) = (engine.statistics(), engine.memory());
    let running = engine.running();
    let (commits, rollbacks) = (statistics.commits.get(), statistics.rollbacks.get());
    let oldest = |writes: bool| {
        let ages =
            running.iter().filter(|transaction| transaction.writes || !writes).map(|running| running.age);
        ages.max().map_or(0, |age| age.as_millis() as u64)
    };
    let (undo_records, undo_bytes) = memory.undo();
    let (log_bytes, durable_bytes) = engine.log_bytes();
    vec![
        ("sessions", asking.sessions().list().len() as u64, "Open sessions."),
        ("transactions_running", running.len() as u64, "Running transactions."),
        (
            "transactions_ended",
            engine.ended_transactions(),
            "Transactions that have ended, with and without writes.",
        ),
        ("commits", commits, "Committed transactions with writes."),
        ("rollbacks", rollbacks, "Rolled back transactions with writes."),
        (
            "write_conflicts",
            statistics.write_conflicts.get(),
            "Changes that conflicted with another transaction's change of the same row.",
        ),
        ("waits", statistics.waits.get(), "Waits for another transaction's end."),
        ("routed_queries", statistics.routed.get(), "Queries whose rows a replica has computed."),
        (
            "routed_queries_returned",
            statistics.routed_back.get(),
            "Queries that were handed to a replica, and run here after all.",
        ),
        ("restarts", statistics.restarts.get(), "Statements that were run again after a conflict."),
        (
            "validation_failures",
            statistics.validation_failures.get(),
            "Serializable transactions whose reads were no longer valid (40001).",
        ),
        (
            "deadlocks",
            statistics.deadlocks.get(),
            "Deadlocks, each resolved by the failure of one transaction (40P01).",
        ),
        (
            "lock_timeouts",
            statistics.lock_timeouts.get(),
            "Statements that waited for longer than lock_timeout (55P03).",
        ),
        ("unique_violations", statistics.unique_violations.get(), "Duplicate keys (23505)."),
        (
            "out_of_memory",
            statistics.out_of_memory.get(),
            "Statements that failed for lack of memory (53200).",
        ),
        ("query_memory_used", query_memory_used(), "Bytes of query_memory that are in use."),
        ("plans", statistics.plans.get(), "Plans that were optimised."),
        (
            "idle_timeouts",
            statistics.idle_timeouts.get(),
            "Clients that were idle for too long (25P03, 57P05).",
        ),
        ("oldest_transaction_ms", oldest(false), "Age of the oldest running transaction."),
        ("oldest_writer_ms", oldest(true), "Age of the oldest running transaction that writes."),
        (
            "oldest_snapshot_commits",
            engine.oldest_snapshot_commits(),
            "Commits since the oldest snapshot: their old versions are kept for it.",
        ),
        ("undo_records", undo_records, "Old versions in memory."),
        ("undo_bytes", undo_bytes, "Their bytes."),
        (
            "unfinished_bytes",
            memory.held(Held::Unfinished),
            "Bytes that large running transactions have written.",
        ),
        ("row_bytes", memory.held(Held::Rows), "Bytes of blocks."),
        ("string_bytes", memory.held(Held::Strings), "Bytes of long strings."),
        ("version_bytes", memory.held(Held::Heads), "Bytes of the heads of version chains."),
        ("index_bytes", memory.held(Held::Indexes), "Bytes of indexes."),
        ("memory_bytes", memory.total(), "The sum of these bytes."),
        ("memory_limit", memory.limit().unwrap_or(0), "The limit of the sum; 0 for no limit."),
        ("log_bytes", log_bytes, "Bytes appended to the log so far."),
        ("log_durable_bytes", durable_bytes, "Bytes of the log that are on disk."),
        ("checkpoints", statistics.checkpoints.get(), "Checkpoints written."),
    ]
}

/// The cursors of the asking session, and the portals of its protocol.
pub(super) fn pg_cursors(source: &Source) -> Vec<Row> {
    let Some(asking) = source.session() else { return Vec::new() };
    let row = |(name, cursor): (&String, &NamedCursor)| {
        row! {
            "name": name.as_str(),
            "statement": &*cursor.text,
            "is_holdable": cursor.is_holdable,
            "is_binary": cursor.is_binary,
            "is_scrollable": cursor.is_scrollable,
            "creation_time": cursor.declared_at,
        }
    };
    asking.with_named(|named| named.cursors.iter().chain(&named.portals).map(row).collect())
}

/// The prepared statements of the asking session.
pub(super) fn pg_prepared_statements(source: &Source) -> Vec<Row> {
    let Some(asking) = source.session() else { return Vec::new() };
    let row = |(name, statement): (&String, &NamedStatement)| {
        let types = statement.parameters.iter().map(|ty| i64::from(ty.id.0));
        row! {
            "name": name.as_str(),
            "statement": &*statement.text,
            "prepare_time": statement.prepared_at,
            "parameter_types": types.collect::<Vec<_>>(),
            "from_sql": statement.from_sql,
            // A statement has one plan for all values of its parameters.
            "generic_plans": 0,
            "custom_plans": 0,
        }
    };
    asking.with_named(|named| named.statements.iter().map(row).collect())
}

/// Every setting of the asking session.
pub(super) fn pg_settings(source: &Source) -> Vec<Row> {
    let Some(asking) = source.session() else { return Vec::new() };
    asking.with_settings(|settings| {
        let row = |setting: crate::settings::Described<'_>| {
            row! {
                "name": setting.name,
                "source": match setting.value == setting.reset {
                    true => "default",
                    false => "session",
                },
                "setting": &*setting.value,
                "unit": setting.unit,
                "short_desc": setting.about,
                "context": if setting.is_fixed { "internal" } else { "user" },
                "vartype": setting.kind,
                "min_val": setting.range.as_ref().map(|(low, _)| low.as_str()),
                "max_val": setting.range.as_ref().map(|(_, high)| high.as_str()),
                "enumvals": setting.choices.map(|choices| choices.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>()),
                "boot_val": &*setting.default,
                "reset_val": &*setting.reset,
            }
        };
        settings.described().map(row).collect()
    })
}
