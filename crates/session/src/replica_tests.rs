//! What a session promises in a replica: it reads, what it cannot do fails before it has an effect, and it reads after a position of
//! the log if it is to.
//!
//! The replicas are directories of databases that were closed, and that follow a server which does not exist.

use crate::server::{
    ArchiverCounts, ReceiverFacts, ReplicationFacts, SenderFacts, ServerConnection as _, ServerDatabase as _,
    SynchronousCommit, VoterFacts,
};
use crate::{Connection, Database, Error, SqlState, TransactionStatus, Value};
use firn_base::disk::RealDisk;
use firn_base::sync::{Arc, AtomicBool, Mutex, Ordering};
use firn_base::{Lsn, Result};
use firn_txn::{ClusterId, DirectoryRole, Engine};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const UPSTREAM: &str = "postgres://ada:secret@db.example:5432/library";
const HINT: &str = "Write to the server that it follows: db.example:5432.";

/// What a server would say.
#[derive(Default)]
struct Fake {
    receiver: Option<ReceiverFacts>,
    senders: Vec<SenderFacts>,
    voters: Vec<VoterFacts>,
    waits: Mutex<Vec<(Lsn, SynchronousCommit)>>,
    waits_for_ever: AtomicBool,
    is_paused: AtomicBool,
    engine: Mutex<Option<Arc<Engine>>>,
    promotions: Mutex<Vec<(bool, Option<Duration>)>>,
}

impl ReplicationFacts for Fake {
    fn archiver(&self) -> Option<ArchiverCounts> {
        None
    }

    fn receiver(&self) -> Option<ReceiverFacts> {
        self.receiver.clone()
    }

    fn senders(&self) -> Vec<SenderFacts> {
        self.senders.clone()
    }

    fn wait_for_standbys(
        &self,
        lsn: Lsn,
        mode: SynchronousCommit,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        self.waits.lock().push((lsn, mode));
        while self.waits_for_ever.load(Ordering::Relaxed) {
            check()?;
            std::thread::yield_now();
        }
        Ok(())
    }

    fn set_standby_names(&self, names: &str) -> Result<()> {
        match names {
            "-" => Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, "no name")),
            _ => Ok(()),
        }
    }

    fn pause_replay(&self, pause: bool) {
        self.is_paused.store(pause, Ordering::Relaxed);
    }

    fn is_replay_paused(&self) -> bool {
        self.is_paused.load(Ordering::Relaxed)
    }

    fn promote(
        &self,
        is_forced: bool,
        longest: Option<Duration>,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<bool> {
        check()?;
        self.promotions.lock().push((is_forced, longest));
        if !is_forced {
            return Ok(false);
        }
        let mut replayer = self.engine.lock().clone().expect("it was set").replayer()?;
        while replayer.replay_next()?.is_some() {}
        replayer.promote(Some(ClusterId::random())).map(|_| true)
    }

    fn become_voter(&self, check: &dyn Fn() -> Result<()>) -> Result<bool> {
        check()?;
        Ok(self.voters.is_empty())
    }

    fn remove_voter(&self, which: &str, check: &dyn Fn() -> Result<()>) -> Result<()> {
        check()?;
        match self.voters.iter().any(|voter| voter.name == which) {
            true => Ok(()),
            false => Err(Error::new(SqlState::UNDEFINED_OBJECT, "there is none")),
        }
    }

    fn voters(&self) -> Vec<VoterFacts> {
        self.voters.clone()
    }
}

#[test]
fn sessions_go_on_when_the_server_becomes_a_primary() {
    let (_folder, database) = replica();
    let mut connection = database.connect();
    for sql in ["SELECT pg_promote()", "SELECT firn_switchover()"] {
        assert_eq!(state(&mut connection, sql), "55000", "it is in no server");
    }
    let facts = Arc::new(Fake::default());
    *facts.engine.lock() = Some(database.engine().clone());
    database.set_replication_facts(facts.clone());
    assert_eq!(state(&mut connection, "SELECT pg_promote(true, 0)"), "22003");
    assert_eq!(state(&mut connection, "SELECT firn_switchover(-1)"), "22003");
    // The fake does not hand over.
    assert_eq!(text(&mut connection, "SELECT firn_switchover(7)"), "f");
    let notices = connection.take_notices();
    assert_eq!(notices[0].message(), "server did not promote within 7 seconds");
    let mut reader = database.connect();
    reader.execute("BEGIN; DECLARE c CURSOR FOR SELECT a FROM t ORDER BY a; FETCH c").unwrap();
    let version = reader.settings_version();

    assert_eq!(text(&mut connection, "SELECT pg_promote()"), "t");
    let (second, minute) = (Duration::from_secs(7), Duration::from_secs(60));
    assert_eq!(*facts.promotions.lock(), [(false, Some(second)), (true, Some(minute))]);
    let role = "SELECT current_setting('in_hot_standby'), current_setting('transaction_read_only'), pg_is_in_recovery()";
    assert_eq!(text(&mut connection, role), "off|off|f");
    assert_eq!(text(&mut database.connect(), role), "off|off|f");
    assert_eq!(state(&mut connection, "SELECT pg_promote()"), "55000");
    connection
        .execute("INSERT INTO t VALUES (3, 'three'); SELECT nextval('s'); CREATE TABLE u (a integer)")
        .unwrap();
    // What the former primary has written in its epoch, and this server has not received, is lost.
    let lost = error(&mut connection, "SET firn.read_after = '1:7F/0'; SELECT 1");
    assert_eq!(lost.state(), SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE);
    assert!(lost.message().contains("is lost") && lost.hint().is_some(), "{lost:?}");
    connection.execute("RESET firn.read_after").unwrap();
    // The transaction that has begun before sees what it saw, and does not write.
    assert_eq!(text(&mut reader, "FETCH c"), "2");
    assert_eq!(text(&mut reader, "SELECT count(*) FROM t"), "2");
    for sql in ["DELETE FROM t", "SELECT * FROM t FOR UPDATE", "DROP TABLE t", "LOCK TABLE t"] {
        reader.execute("SAVEPOINT s").unwrap();
        assert_eq!(state(&mut reader, sql), "25006", "{sql}");
        reader.execute("ROLLBACK TO s").unwrap();
    }
    reader.execute("COMMIT").unwrap();
    assert_ne!(reader.settings_version(), version, "a client is told");
    reader.execute("DELETE FROM t WHERE a = 1").unwrap();
    assert_eq!(text(&mut connection, "SELECT count(*) FROM t"), "2");
}

/// A directory with a table and a sequence, and the token of what its primary has committed.
fn primary() -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::open(folder.path()).unwrap();
    let mut connection = database.connect();
    connection
        .execute(
            "CREATE TABLE t (a integer PRIMARY KEY, b text); INSERT INTO t VALUES (1, 'one'), (2, 'two'); \
             CREATE SEQUENCE s; SELECT nextval('s'); CREATE VIEW v AS SELECT a FROM t",
        )
        .unwrap();
    let token = text(&mut connection, "SELECT firn_commit_token()");
    drop(connection);
    database.close().unwrap();
    (folder, token)
}

/// A replica, in its directory.
fn replica() -> (TempDir, Database) {
    let (folder, _) = primary();
    let database = open_as_replica(&folder);
    (folder, database)
}

fn open_as_replica(folder: &TempDir) -> Database {
    set_upstream(folder, Some(UPSTREAM));
    Database::open(folder.path()).unwrap()
}

fn set_upstream(folder: &TempDir, upstream: Option<&str>) {
    let role = DirectoryRole::read(&RealDisk, folder.path()).unwrap().expect("there is a database");
    let role = DirectoryRole { upstream: upstream.map(str::to_owned), ..role };
    role.write(&RealDisk, folder.path()).unwrap();
}

fn rows(connection: &mut Connection, sql: &str) -> Vec<Vec<Value>> {
    connection.query_values(sql, ()).unwrap_or_else(|error| panic!("{sql}: {error}"))
}

/// The values of the rows as texts: fields are separated by `|`, rows by blanks.
fn text(connection: &mut Connection, sql: &str) -> String {
    let field = |value: &Value| match value {
        Value::Null => "-".to_owned(),
        Value::Text(text) => text.clone(),
        other => connection_text(other),
    };
    let row = |row: &Vec<Value>| row.iter().map(field).collect::<Vec<_>>().join("|");
    rows(connection, sql).iter().map(row).collect::<Vec<_>>().join(" ")
}

fn connection_text(value: &Value) -> String {
    match value {
        Value::Boolean(value) => if *value { "t" } else { "f" }.to_owned(),
        Value::Integer(value) => value.to_string(),
        Value::BigInt(value) => value.to_string(),
        Value::Oid(value) => value.to_string(),
        other => format!("{other:?}"),
    }
}

fn error(connection: &mut Connection, sql: &str) -> Error {
    connection.execute(sql).expect_err(sql)
}

fn state(connection: &mut Connection, sql: &str) -> String {
    error(connection, sql).state().as_str().to_owned()
}

#[test]
fn what_a_replica_refuses_fails_as_in_postgresql_with_the_address_of_its_primary() {
    let (_folder, database) = replica();
    let mut connection = database.connect();
    let sequence = text(&mut connection, "SELECT last_value, is_called FROM s");
    let read_only = "in a read-only transaction";
    let recovery = "during recovery";
    for (sql, command, why) in [
        ("INSERT INTO t VALUES (3)", "INSERT", read_only),
        ("INSERT INTO t SELECT a + 10 FROM t RETURNING a", "INSERT", read_only),
        ("INSERT INTO t VALUES (1) ON CONFLICT (a) DO UPDATE SET b = 'x'", "INSERT", read_only),
        ("UPDATE t SET b = 'x'", "UPDATE", read_only),
        ("DELETE FROM t WHERE false", "DELETE", read_only),
        ("WITH d AS (DELETE FROM t RETURNING a) SELECT * FROM d", "SELECT", read_only),
        ("TRUNCATE t", "TRUNCATE TABLE", read_only),
        ("CREATE TABLE u (a integer)", "CREATE TABLE", read_only),
        ("CREATE TABLE u AS SELECT 1", "CREATE TABLE AS", read_only),
        ("SELECT 1 AS a INTO u", "SELECT INTO", read_only),
        ("CREATE INDEX ON t (b)", "CREATE INDEX", read_only),
        ("CREATE VIEW w AS SELECT 1", "CREATE VIEW", read_only),
        ("CREATE SCHEMA x", "CREATE SCHEMA", read_only),
        ("CREATE SEQUENCE q", "CREATE SEQUENCE", read_only),
        ("ALTER TABLE t ADD COLUMN c integer", "ALTER TABLE", read_only),
        ("ALTER SEQUENCE s RESTART", "ALTER SEQUENCE", read_only),
        ("DROP TABLE t", "DROP TABLE", read_only),
        ("DROP TABLE IF EXISTS nothing", "DROP TABLE", read_only),
        ("COMMENT ON TABLE t IS 'x'", "COMMENT", read_only),
        ("SELECT * FROM t FOR UPDATE", "SELECT FOR UPDATE", read_only),
        ("SELECT * FROM t WHERE a = 1 FOR SHARE", "SELECT FOR SHARE", read_only),
        ("SELECT * FROM t FOR KEY SHARE SKIP LOCKED", "SELECT FOR KEY SHARE", read_only),
        ("SELECT nextval('s')", "nextval()", read_only),
        ("SELECT setval('s', 7)", "setval()", read_only),
        ("SELECT setval('s', 7, false) FROM t", "setval()", read_only),
        ("EXPLAIN ANALYZE INSERT INTO t VALUES (3)", "INSERT", read_only),
        ("EXPLAIN ANALYZE CREATE TABLE u AS SELECT 1", "CREATE TABLE AS", read_only),
        ("PREPARE p AS UPDATE t SET b = 'x'; EXECUTE p", "UPDATE", read_only),
        ("COPY t FROM '/nothing'", "COPY", recovery),
        ("VACUUM", "VACUUM", recovery),
        ("VACUUM (ANALYZE) t", "VACUUM", recovery),
        ("ANALYZE t", "ANALYZE", recovery),
        ("CLUSTER", "CLUSTER", recovery),
        ("REINDEX TABLE t", "REINDEX", recovery),
        ("LOCK TABLE t", "LOCK TABLE", recovery),
        ("LOCK TABLE t IN SHARE MODE", "LOCK TABLE", recovery),
        ("PREPARE TRANSACTION 'x'", "PREPARE TRANSACTION", recovery),
        ("COMMIT PREPARED 'x'", "COMMIT PREPARED", recovery),
        ("SELECT txid_current()", "pg_current_xact_id()", recovery),
        ("SELECT pg_current_xact_id()", "pg_current_xact_id()", recovery),
    ] {
        let message = format!("cannot execute {command} {why}");
        for block in
            ["", "BEGIN", "BEGIN ISOLATION LEVEL SERIALIZABLE", "BEGIN ISOLATION LEVEL READ COMMITTED"]
        {
            connection.execute("DEALLOCATE ALL").unwrap();
            connection.execute(block).unwrap();
            let error = error(&mut connection, sql);
            let facts = (error.state(), error.message(), error.hint());
            assert_eq!(
                facts,
                (SqlState::READ_ONLY_SQL_TRANSACTION, message.as_str(), Some(HINT)),
                "{block} {sql}"
            );
            assert_eq!(connection.status() == TransactionStatus::Failed, !block.is_empty(), "{block} {sql}");
            connection.execute("ROLLBACK").unwrap();
        }
    }
    connection.take_notices();
    assert_eq!(text(&mut connection, "SELECT * FROM t ORDER BY a"), "1|one 2|two");
    assert_eq!(text(&mut connection, "SELECT last_value, is_called FROM s"), sequence);
    assert_eq!(text(&mut connection, "SELECT count(*) FROM pg_class WHERE relname IN ('u', 'w', 'q')"), "0");
    assert_eq!(text(&mut connection, "SELECT count(*) FROM pg_locks"), "0");
    drop(connection);
    database.close().unwrap();
}

#[test]
fn copy_from_the_client_is_refused_before_its_data() {
    let (_folder, database) = replica();
    let mut connection = database.connect();
    let statement = connection.prepare("COPY t FROM STDIN").unwrap();
    let Err(error) = connection.run(&statement, &[]) else { panic!("it is refused") };
    assert_eq!(error.message(), "cannot execute COPY during recovery");
    let copied = connection.copy_to("COPY t TO STDOUT", std::io::sink()).unwrap();
    assert_eq!(copied, 2);
    let error =
        connection.copy_to("COPY (DELETE FROM t RETURNING a) TO STDOUT", std::io::sink()).unwrap_err();
    assert_eq!(error.state(), SqlState::READ_ONLY_SQL_TRANSACTION);
}

#[test]
fn transactions_of_a_replica_only_read_whatever_their_modes() {
    let (_folder, database) = replica();
    let mut connection = database.connect();
    let shown = "SELECT current_setting('transaction_read_only'), current_setting('default_transaction_read_only'), \
                 current_setting('in_hot_standby'), current_setting('hot_standby'), pg_is_in_recovery()";
    assert_eq!(text(&mut connection, shown), "on|off|on|on|t");
    assert_eq!(text(&mut connection, "SHOW transaction_read_only"), "on");
    for sql in [
        "BEGIN READ WRITE",
        "START TRANSACTION READ WRITE, ISOLATION LEVEL SERIALIZABLE",
        "BEGIN; SET TRANSACTION READ WRITE",
        "BEGIN; SET transaction_read_only = off",
        "BEGIN; SELECT 1; SELECT set_config('transaction_read_only', 'off', true)",
        "SET transaction_read_only TO false",
        "SET TRANSACTION READ WRITE",
    ] {
        let error = error(&mut connection, sql);
        let facts = (error.state(), error.message());
        assert_eq!(
            facts,
            (SqlState::FEATURE_NOT_SUPPORTED, "cannot set transaction read-write mode during recovery"),
            "{sql}"
        );
        connection.execute("ROLLBACK").unwrap();
    }
    assert_eq!(state(&mut connection, "BEGIN; SELECT 1; SET TRANSACTION READ WRITE"), "25001");
    connection.execute("ROLLBACK").unwrap();
    assert_eq!(state(&mut connection, "SET in_hot_standby = off"), "55P02");
    connection.execute("SET in_hot_standby = on; RESET in_hot_standby").unwrap();
    connection.execute("SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE").unwrap();
    for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        connection.execute(&format!("BEGIN ISOLATION LEVEL {level}; SAVEPOINT x; SELECT * FROM t")).unwrap();
        assert_eq!(text(&mut connection, shown), "on|off|on|on|t");
        assert_eq!(state(&mut connection, "INSERT INTO t VALUES (5)"), "25006");
        connection.execute("ROLLBACK TO x; SELECT * FROM t; COMMIT AND CHAIN; SELECT 1; COMMIT").unwrap();
    }
    connection.execute("SET default_transaction_read_only = on").unwrap();
    assert_eq!(text(&mut connection, shown), "on|on|on|on|t");
    let mut ordinary = Database::memory().unwrap().connect();
    assert_eq!(text(&mut ordinary, shown), "off|off|off|on|f");
    ordinary.execute("SET default_transaction_read_only = on").unwrap();
    assert_eq!(text(&mut ordinary, shown), "on|on|off|on|f");
    ordinary.execute("BEGIN READ WRITE").unwrap();
    assert_eq!(text(&mut ordinary, shown), "off|on|off|on|f");
    ordinary.execute("ROLLBACK; BEGIN").unwrap();
    assert_eq!(text(&mut ordinary, shown), "on|on|off|on|f");
    assert_eq!(error(&mut ordinary, "CREATE TABLE u ()").hint(), None);
}

#[test]
fn what_changes_no_row_works_in_a_replica() {
    let (folder, database) = replica();
    let (mut connection, mut other) = (database.connect(), database.connect());
    for sql in [
        "CHECKPOINT",
        "LISTEN news; NOTIFY news, 'x'",
        "SELECT pg_advisory_lock(1), pg_try_advisory_xact_lock(2)",
        "DECLARE c CURSOR WITH HOLD FOR SELECT * FROM t; FETCH c; CLOSE c",
        "BEGIN; DECLARE c SCROLL CURSOR FOR SELECT * FROM t; FETCH ALL c; MOVE BACKWARD 1 IN c; COMMIT",
        "PREPARE p (integer) AS SELECT * FROM t WHERE a = $1; EXECUTE p (1)",
        "EXPLAIN ANALYZE SELECT * FROM t",
        "EXPLAIN INSERT INTO t VALUES (3)",
        "BEGIN; LOCK TABLE t IN ROW EXCLUSIVE MODE; LOCK TABLE v IN ACCESS SHARE MODE; COMMIT",
        "BEGIN; LOCK TABLE t IN ROW SHARE MODE NOWAIT; SELECT * FROM t; COMMIT",
        "BEGIN; SET CONSTRAINTS ALL DEFERRED; SET CONSTRAINTS ALL IMMEDIATE; COMMIT",
        "SET CONSTRAINTS ALL DEFERRED",
        "SELECT txid_current_if_assigned(), pg_current_snapshot(), pg_stat_reset()",
        "SELECT a, sum(a) OVER (ORDER BY a) FROM v ORDER BY a DESC",
        "TABLE firn_dump",
        "SELECT * FROM pg_stat_activity, pg_locks",
        "DISCARD ALL",
    ] {
        connection.execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        assert_eq!(connection.status(), TransactionStatus::Idle, "{sql}");
    }
    other.execute("LISTEN news").unwrap();
    connection.execute("BEGIN; SELECT * FROM t; NOTIFY news, 'committed'; COMMIT").unwrap();
    assert_eq!(other.take_notifications().len(), 1);
    connection.execute("BEGIN; DECLARE c CURSOR FOR SELECT * FROM t; FETCH c").unwrap();
    assert_eq!(state(&mut connection, "UPDATE t SET b = 'x' WHERE CURRENT OF c"), "25006");
    connection.execute("ROLLBACK").unwrap();
    // Its rows are as they were, also after it was closed and is a primary again.
    drop((connection, other));
    database.close().unwrap();
    set_upstream(&folder, None);
    let database = Database::open(folder.path()).unwrap();
    let mut connection = database.connect();
    assert_eq!(text(&mut connection, "SELECT * FROM t ORDER BY a"), "1|one 2|two");
    connection.execute("INSERT INTO t VALUES (3, 'three')").unwrap();
}

#[test]
fn statements_that_threads_run_in_a_replica_leave_nothing_behind() {
    let (_folder, database) = replica();
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let mut connection = database.connect();
            scope.spawn(move || {
                for round in 0..50 {
                    let begin = ["", "BEGIN", "BEGIN ISOLATION LEVEL READ COMMITTED"][(thread + round) % 3];
                    connection.execute(begin).unwrap();
                    let sql = [
                        "UPDATE t SET b = b",
                        "SELECT * FROM t FOR UPDATE",
                        "LOCK TABLE t",
                        "ALTER TABLE t RENAME TO u",
                        "SELECT nextval('s')",
                    ][round % 5];
                    assert_eq!(state(&mut connection, sql), "25006");
                    connection.execute("ROLLBACK").unwrap();
                    assert_eq!(text(&mut connection, "SELECT count(*) FROM t"), "2");
                }
            });
        }
    });
    let engine = database.engine();
    assert_eq!((engine.running().len(), engine.table_locks().len()), (0, 0));
    database.close().unwrap();
}

#[test]
fn functions_of_the_log_know_whether_they_are_called_in_a_replica() {
    let (_folder, database) = replica();
    let mut connection = database.connect();
    for function in [
        "pg_current_wal_lsn()",
        "pg_current_wal_insert_lsn()",
        "pg_current_wal_flush_lsn()",
        "pg_switch_wal()",
        "pg_create_restore_point('x')",
    ] {
        let error = error(&mut connection, &format!("SELECT {function}"));
        let facts = (error.state(), error.message(), error.hint());
        let hint = "WAL control functions cannot be executed during recovery.";
        assert_eq!(
            facts,
            (SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, "recovery is in progress", Some(hint)),
            "{function}"
        );
    }
    let replayed = "SELECT pg_last_wal_replay_lsn() = pg_last_wal_receive_lsn(), \
                    pg_wal_lsn_diff(pg_last_wal_replay_lsn(), '0/0') > 0, pg_last_xact_replay_timestamp() IS NULL";
    assert_eq!(text(&mut connection, replayed), "t|t|t");
    let facts = Arc::new(Fake { receiver: Some(received()), ..Fake::default() });
    database.set_replication_facts(facts);
    let state = "SELECT pg_is_wal_replay_paused(), pg_get_wal_replay_pause_state(), \
                 pg_last_xact_replay_timestamp() = '1970-01-01 00:00:07+0'";
    assert_eq!(text(&mut connection, state), "f|not paused|t");
    connection.execute("SELECT pg_wal_replay_pause()").unwrap();
    assert_eq!(text(&mut connection, state), "t|paused|t");
    connection.execute("SELECT pg_wal_replay_resume()").unwrap();
    assert_eq!(text(&mut connection, state), "f|not paused|t");

    let mut primary = Database::memory().unwrap().connect();
    for function in [
        "pg_wal_replay_pause()",
        "pg_wal_replay_resume()",
        "pg_is_wal_replay_paused()",
        "pg_get_wal_replay_pause_state()",
    ] {
        let error = error(&mut primary, &format!("SELECT {function}"));
        let facts = (error.state(), error.message(), error.hint());
        let hint = "Recovery control functions can only be executed during recovery.";
        assert_eq!(
            facts,
            (SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, "recovery is not in progress", Some(hint)),
            "{function}"
        );
    }
    let none = "SELECT pg_last_wal_replay_lsn(), pg_last_wal_receive_lsn(), pg_last_xact_replay_timestamp()";
    assert_eq!(text(&mut primary, none), "-|-|-");
    let difference =
        "SELECT pg_wal_lsn_diff('1/0', '0/1')::text, ('0/1'::pg_lsn - 'FFFFFFFF/FFFFFFFF')::text";
    assert_eq!(text(&mut primary, difference), "4294967295|-18446744073709551614");
}

fn received() -> ReceiverFacts {
    ReceiverFacts {
        server: ("db.example".to_owned(), 5432),
        is_connected: true,
        is_of_primary: true,
        epoch: 3,
        begun: Lsn(0x10),
        received: Lsn(0x30),
        flushed: Lsn(0x20),
        available: Lsn(0x40),
        last_message: Some((2_000_000, 1_000_000)),
        replayed_time: Some(7_000_000),
        last_error: Some("it was away".to_owned()),
    }
}

fn reader() -> SenderFacts {
    SenderFacts {
        session: 77,
        name: "reader".to_owned(),
        voter: None,
        client: Some(("127.0.0.1".parse().unwrap(), 4711)),
        begun: 5_000_000,
        is_catching_up: false,
        sent: Lsn(0x40),
        written: Lsn(0x30),
        flushed: Lsn(0x20),
        replayed: Lsn(0x10),
        sync_priority: 2,
        sync_state: "potential",
        lags: [Some(1500), None, Some(3_000_000)],
        reply_time: Some(6_000_000),
    }
}

/// A primary, and what replication it has.
fn with_standbys() -> (TempDir, Database, Arc<Fake>) {
    let (folder, _) = primary();
    let database = Database::open(folder.path()).unwrap();
    let facts = Arc::new(Fake::default());
    database.set_replication_facts(facts.clone());
    (folder, database, facts)
}

#[test]
fn commits_wait_for_standbys_as_synchronous_commit_says() {
    let (_folder, database, facts) = with_standbys();
    let mut connection = database.connect();
    use SynchronousCommit::{On, RemoteApply, RemoteWrite};
    for (mode, waits) in [
        ("on", Some(On)),
        ("remote_apply", Some(RemoteApply)),
        ("remote_write", Some(RemoteWrite)),
        ("local", None),
        ("off", None),
    ] {
        connection.execute(&format!("SET synchronous_commit = {mode}")).unwrap();
        let mut expected = Vec::new();
        for sql in [
            "INSERT INTO t VALUES (10)",
            "BEGIN; UPDATE t SET b = 'x' WHERE a = 10; COMMIT",
            "DELETE FROM t WHERE a = 10",
        ] {
            connection.execute(sql).unwrap();
            expected.push(text(&mut connection, "SELECT pg_current_wal_lsn()::text"));
        }
        let mut copy = connection.copy_in("COPY t FROM STDIN").unwrap();
        copy.write_data(b"10\tten\n").unwrap();
        copy.finish().unwrap();
        expected.push(text(&mut connection, "SELECT pg_current_wal_lsn()::text"));
        connection.execute("DELETE FROM t WHERE a = 10").unwrap();
        expected.push(text(&mut connection, "SELECT pg_current_wal_lsn()::text"));
        // The mode of a transaction is that of its COMMIT.
        let other = if mode == "remote_apply" { "local" } else { "remote_apply" };
        connection
            .execute(&format!(
                "SET synchronous_commit = {other}; BEGIN; SET LOCAL synchronous_commit = {mode}; \
                 INSERT INTO t VALUES (10); COMMIT"
            ))
            .unwrap();
        expected.push(text(&mut connection, "SELECT pg_current_wal_lsn()::text"));
        connection.execute(&format!("SET synchronous_commit = {mode}; DELETE FROM t WHERE a = 10")).unwrap();
        expected.push(text(&mut connection, "SELECT pg_current_wal_lsn()::text"));
        // What only reads, fails or is rolled back waits for nobody.
        for sql in [
            "SELECT * FROM t",
            "BEGIN; SELECT 1; COMMIT",
            "BEGIN; DELETE FROM t; ROLLBACK",
            "DELETE FROM t WHERE a = 99",
        ] {
            connection.execute(sql).unwrap();
        }
        let waited = std::mem::take(&mut *facts.waits.lock());
        // The log pads the end of a group.
        let is_end = |(waited, end): (&(Lsn, SynchronousCommit), &String)| {
            let end = firn_base::text::parse_lsn(end).unwrap() as u64;
            waited.0.0 <= end && end - waited.0.0 < 8
        };
        assert_eq!(waited.len(), if waits.is_some() { expected.len() } else { 0 }, "{mode}");
        assert!(waited.iter().zip(&expected).all(is_end), "{mode}: {waited:?} {expected:?}");
        assert!(waited.iter().all(|(_, mode)| Some(*mode) == waits), "{mode}");
    }
}

#[test]
fn a_cancelled_wait_for_standbys_is_a_commit_with_a_warning() {
    let (_folder, database, facts) = with_standbys();
    facts.waits_for_ever.store(true, Ordering::Relaxed);
    let mut other = database.connect();
    let work = |sql: &'static str, ends: &str, other: &mut Connection| {
        let number = database.reserve_session();
        let mut connection = database.connect_as(number);
        connection.set_terminate_hook(|| {});
        let thread = std::thread::spawn(move || (connection.execute(sql).map(drop), connection));
        let before = facts.waits.lock().len();
        while facts.waits.lock().len() == before {
            std::thread::yield_now();
        }
        assert_eq!(text(other, &format!("SELECT {ends}({number})")), "t");
        thread.join().unwrap()
    };
    let mut quiet = database.connect();
    quiet.report_no_warnings();
    quiet.execute("SET statement_timeout = 50").unwrap();
    assert_eq!(state(&mut quiet, "BEGIN; INSERT INTO t VALUES (19); COMMIT"), "08007");
    for sql in ["INSERT INTO t VALUES (20)", "BEGIN; INSERT INTO t VALUES (21); COMMIT"] {
        let (result, mut connection) = work(sql, "pg_cancel_backend", &mut other);
        result.unwrap();
        let notices = connection.take_notices();
        assert_eq!(notices.len(), 1);
        assert_eq!(notices[0].state(), SqlState::WARNING);
        assert_eq!(notices[0].message(), "canceling wait for synchronous replication due to user request");
        assert!(notices[0].detail().is_some());
    }
    // Such a commit is not acknowledged.
    let (result, _) = work("INSERT INTO t VALUES (22)", "pg_terminate_backend", &mut other);
    assert_eq!(result.unwrap_err().state(), SqlState::TRANSACTION_RESOLUTION_UNKNOWN);
    assert_eq!(text(&mut other, "SELECT count(*) FROM t WHERE a >= 20"), "3");
}

/// A primary among voters that does not hear the others any more.
#[test]
fn queries_of_a_primary_wait_for_its_lease() {
    let (folder, _) = primary();
    let database = Database::open(folder.path()).unwrap();
    let engine = database.engine();
    let mut connection = database.connect();
    engine.set_lease(Some(0));
    // What reads no table is not of the past.
    for sql in [
        "SELECT 1",
        "SELECT count(*) > 0 FROM pg_class",
        "SHOW work_mem",
        "VALUES (1)",
        "BEGIN; SELECT * FROM pg_stat_replication; COMMIT",
        "BEGIN; SET LOCAL firn.stale_reads = on; SELECT * FROM t; COMMIT",
    ] {
        connection.execute(sql).unwrap();
    }
    connection.execute("SET statement_timeout = 50").unwrap();
    for sql in [
        "SELECT * FROM t",
        "SELECT b FROM t WHERE a = 1",
        "SELECT * FROM v",
        "SELECT (SELECT max(a) FROM t)",
        "BEGIN; SELECT * FROM t; COMMIT",
        "SELECT * FROM t FOR SHARE",
        "UPDATE t SET b = 'x' WHERE a = 99",
        "INSERT INTO t VALUES (1, 'one') ON CONFLICT DO NOTHING",
    ] {
        assert_eq!(state(&mut connection, sql), "57014", "{sql}");
    }
    let mut copy = connection.copy_out("COPY t TO STDOUT").unwrap();
    let end = std::iter::from_fn(|| copy.next_chunk().transpose()).find_map(Result::err);
    assert_eq!(end.unwrap().state(), SqlState::QUERY_CANCELED);
    drop(copy);
    // Writing waits for other voters instead.
    connection.execute("INSERT INTO t VALUES (3, 'three')").unwrap();
    connection.execute("SET firn.stale_reads = on").unwrap();
    assert_eq!(text(&mut connection, "SELECT count(*) FROM t"), "3");
    connection.execute("RESET firn.stale_reads; RESET statement_timeout").unwrap();
    connection.execute("BEGIN; SELECT * FROM t").unwrap();
    let waits = std::thread::spawn({
        let database = database.clone();
        move || {
            let mut other = database.connect();
            connection.execute("COMMIT").unwrap();
            (text(&mut other, "SELECT count(*) FROM t"), Instant::now())
        }
    });
    std::thread::sleep(Duration::from_millis(100));
    let heard = Instant::now();
    engine.set_lease(Some(u64::MAX - 1));
    let (rows, ended) = waits.join().unwrap();
    assert!(rows == "3" && ended >= heard);
    engine.set_lease(None);
    assert_eq!(text(&mut database.connect(), "SELECT count(*) FROM t"), "3");
}

#[test]
fn names_of_standbys_are_shown_in_all_sessions() {
    let (folder, _) = primary();
    let database = Database::open(folder.path()).unwrap();
    let (mut first, mut second) = (database.connect(), database.connect());
    let show = "SELECT current_setting('synchronous_standby_names')";
    assert_eq!(text(&mut first, show), "");
    assert_eq!(state(&mut first, "SELECT firn_set_synchronous_standby_names('a')"), "55000");
    database.set_replication_facts(Arc::new(Fake::default()));
    assert_eq!(state(&mut first, "SET synchronous_standby_names = 'a'"), "55P02");
    first.execute("BEGIN; SET work_mem = '8MB'").unwrap();
    assert_eq!(text(&mut first, "SELECT firn_set_synchronous_standby_names('ANY 1 (a, b)')"), "t");
    assert_eq!(text(&mut second, show), "ANY 1 (a, b)");
    // It does not belong to the transaction.
    first.execute("ROLLBACK").unwrap();
    for connection in [&mut first, &mut second, &mut database.connect()] {
        assert_eq!(text(connection, show), "ANY 1 (a, b)");
        let sql = "SELECT setting, reset_val FROM pg_settings WHERE name = 'synchronous_standby_names'";
        assert_eq!(text(connection, sql), "ANY 1 (a, b)|ANY 1 (a, b)");
        assert_eq!(state(connection, "SELECT firn_set_synchronous_standby_names('-')"), "22023");
        assert_eq!(text(connection, show), "ANY 1 (a, b)");
    }
    assert_eq!(text(&mut first, "SELECT firn_set_synchronous_standby_names('')"), "t");
    assert_eq!(text(&mut second, show), "");
}

#[test]
fn voters_are_shown_and_named() {
    let (folder, _) = primary();
    let database = Database::open(folder.path()).unwrap();
    let mut connection = database.connect_as(77);
    let voter = VoterFacts {
        node: 7,
        name: "reader".to_owned(),
        address: "b:5432".to_owned(),
        is_primary: false,
        is_this: false,
        epoch: 4,
        flushed: Some(Lsn(0x20)),
    };
    let own = VoterFacts {
        node: 5,
        name: "writer".to_owned(),
        is_primary: true,
        is_this: true,
        flushed: None,
        ..voter.clone()
    };
    let voting = SenderFacts { voter: Some(7), sync_state: "quorum", ..reader() };
    let facts = Fake { senders: vec![voting], voters: vec![own, voter], ..Fake::default() };
    database.set_replication_facts(Arc::new(facts));
    let sql = "SELECT node_id, role, sync_state FROM firn_replication";
    assert_eq!(text(&mut connection, sql), "5|primary|- 7|replica|quorum");
    let sql = "SELECT node_id, name, address, role, epoch, is_this, flush_lsn > '0/0' FROM firn_voters";
    assert_eq!(text(&mut connection, sql), "5|writer|b:5432|primary|4|t|t 7|reader|b:5432|voter|4|f|t");
    assert_eq!(text(&mut connection, "SELECT firn_become_voter(), firn_remove_voter('reader')"), "f|t");
    assert_eq!(state(&mut connection, "SELECT firn_remove_voter('nobody')"), "42704");
}

#[test]
fn the_views_show_both_ends_of_a_connection() {
    let (_folder, database) = replica();
    let mut connection = database.connect();
    assert_eq!(text(&mut connection, "SELECT * FROM pg_stat_wal_receiver"), "");
    database.set_replication_facts(Arc::new(Fake { receiver: Some(received()), ..Fake::default() }));
    let sql = "SELECT pid > 0, status, receive_start_lsn::text, receive_start_tli, written_lsn::text, flushed_lsn::text, \
               received_tli, extract(epoch FROM last_msg_send_time)::int, extract(epoch FROM last_msg_receipt_time)::int, \
               latest_end_lsn::text, latest_end_time = last_msg_receipt_time, slot_name, sender_host, sender_port, conninfo \
               FROM pg_stat_wal_receiver";
    assert_eq!(
        text(&mut connection, sql),
        "t|streaming|0/10|3|0/30|0/20|3|1|2|0/40|t|-|db.example|5432|host=db.example port=5432"
    );
    let sql = "SELECT role, address, upstream, state, replay_lsn = pg_last_wal_replay_lsn(), last_error, \
               oldest_snapshot_age < '1 minute' FROM firn_replication";
    assert_eq!(
        text(&mut connection, sql),
        "replica|-|db.example:5432|catching up|t|it was away|t primary|db.example:5432|-|-|-|-|-"
    );

    let (folder, _) = primary();
    let database = Database::open(folder.path()).unwrap();
    let mut connection = database.connect_as(77);
    connection.identify("ada", "library");
    assert_eq!(text(&mut connection, "SELECT * FROM pg_stat_replication"), "");
    let sender = reader();
    let local = SenderFacts { client: None, is_catching_up: true, session: 78, ..sender.clone() };
    database.set_replication_facts(Arc::new(Fake { senders: vec![sender, local], ..Fake::default() }));
    let sql = "SELECT pid, usesysid, usename, application_name, client_addr, client_hostname, client_port, \
               extract(epoch FROM backend_start)::int, backend_xmin::text, state, sent_lsn::text, write_lsn::text, \
               flush_lsn::text, replay_lsn::text, write_lag::text, flush_lag::text, replay_lag::text, sync_priority, \
               sync_state, extract(epoch FROM reply_time)::int FROM pg_stat_replication";
    assert_eq!(
        text(&mut connection, sql),
        "77|10|ada|reader|127.0.0.1|-|4711|5|-|streaming|0/40|0/30|0/20|0/10|00:00:00.0015|-|00:00:03|2|potential|6 \
         78|10|-|reader|-|-|-1|5|-|catchup|0/40|0/30|0/20|0/10|00:00:00.0015|-|00:00:03|2|potential|6"
    );
    let sql = "SELECT role, name, address, state, sync_state, write_lsn = pg_current_wal_lsn(), lag_bytes > 0 \
               FROM firn_replication";
    assert_eq!(
        text(&mut connection, sql),
        "primary|-|-|-|-|t|- replica|reader|127.0.0.1:4711|streaming|potential|f|t replica|reader|-|catching up|potential|f|t"
    );
}

#[test]
fn a_token_of_the_primary_is_reached_by_a_replica_that_has_replayed_as_far() {
    let (folder, token) = primary();
    let database = Database::open(folder.path()).unwrap();
    let mut connection = database.connect();
    let reopened = text(&mut connection, "SELECT firn_commit_token()");
    let (epoch, lsn) = token.split_once(':').unwrap();
    assert!(epoch.parse::<u64>().unwrap() > 0 && lsn.starts_with("0/"), "{token}");
    // It is no earlier, since what was recovered is visible.
    let ordered = format!("SELECT '{}'::pg_lsn >= '{lsn}'", reopened.split_once(':').unwrap().1);
    assert_eq!(text(&mut connection, &ordered), "t");
    drop(connection);
    database.close().unwrap();

    let database = open_as_replica(&folder);
    let mut connection = database.connect();
    connection.execute("SET firn.read_after_timeout = '100ms'").unwrap();
    for token in [token.as_str(), lsn, reopened.as_str()] {
        connection.execute(&format!("SET firn.read_after = '{token}'")).unwrap();
        assert_eq!(text(&mut connection, "SELECT count(*) FROM t"), "2", "{token}");
        assert_eq!(text(&mut connection, "SHOW firn.read_after"), token);
    }
    let own = text(&mut connection, "SELECT firn_commit_token()");
    connection.execute(&format!("SET firn.read_after = '{own}'; SELECT * FROM t")).unwrap();
    assert_eq!(text(&mut connection, "SELECT firn_commit_token()"), own);
}

/// A connection to a replica that is to read what its replica never receives.
fn behind(database: &Database, token: &str, timeout: &str) -> Connection {
    let mut connection = database.connect();
    connection.set("firn.read_after_timeout", timeout).unwrap();
    connection.set("firn.read_after", token).unwrap();
    connection
}

#[test]
fn a_statement_that_reads_after_more_than_is_replayed_fails_after_the_timeout() {
    let (_folder, database) = replica();
    let mut fresh = database.connect();
    let reached = text(&mut fresh, "SELECT pg_last_wal_replay_lsn()::text");
    for token in ["1/0", "1:1/0", "999:0/0"] {
        let mut connection = behind(&database, token, "30ms");
        let detail =
            format!("The log has been replayed up to {reached}, and the statement is to read after {token}.");
        for (before, sql) in [
            ("", "SELECT * FROM t"),
            ("", "SELECT * FROM t WHERE a = 1"),
            ("", "SELECT 1"),
            ("", "BEGIN"),
            ("RESET firn.read_after; PREPARE p AS SELECT 1", "EXECUTE p"),
            ("RESET firn.read_after; BEGIN", "SELECT * FROM t"),
            ("RESET firn.read_after; BEGIN ISOLATION LEVEL SERIALIZABLE", "SELECT * FROM t WHERE a = 1"),
            ("RESET firn.read_after; BEGIN ISOLATION LEVEL READ COMMITTED; SELECT * FROM t", "SELECT 1"),
        ] {
            connection.execute(before).unwrap();
            connection.execute(&format!("SET firn.read_after = '{token}'")).unwrap();
            let begun = Instant::now();
            let error = error(&mut connection, sql);
            assert!(begun.elapsed() >= Duration::from_millis(30), "{before}; {sql}");
            let facts = (error.state(), error.message(), error.detail());
            let message = "canceling statement due to firn.read_after_timeout";
            assert_eq!(facts, (SqlState::QUERY_CANCELED, message, Some(detail.as_str())), "{before}; {sql}");
            assert_eq!(
                connection.status() == TransactionStatus::Failed,
                before.contains("BEGIN"),
                "{before}"
            );
            connection.execute("ROLLBACK").unwrap();
            assert_eq!(database.engine().running().len(), 0, "{before}; {sql}");
        }
        connection.execute(&format!("SET firn.read_after = '{token}'")).unwrap();
        let error = connection.copy_to("COPY t TO STDOUT", std::io::sink()).unwrap_err();
        assert_eq!(error.detail(), Some(detail.as_str()));
        // These read nothing.
        connection
            .execute("SHOW firn.read_after; SET work_mem = '5MB'; RESET firn.read_after; SELECT * FROM t")
            .unwrap();
    }
}

#[test]
fn a_block_reads_after_what_is_set_before_its_first_statement_or_each_of_them() {
    let (_folder, database) = replica();
    let mut connection = behind(&database, "", "20ms");
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        connection.execute(&format!("BEGIN ISOLATION LEVEL {level}; SELECT * FROM t")).unwrap();
        // The snapshot has been taken.
        connection
            .execute("SET LOCAL firn.read_after = '1/0'; SELECT * FROM t; COMMIT; SELECT * FROM t")
            .unwrap();
        connection
            .execute(&format!("BEGIN ISOLATION LEVEL {level}; SET LOCAL firn.read_after = '0/1'"))
            .unwrap();
        assert_eq!(text(&mut connection, "SELECT count(*) FROM t"), "2");
        assert_eq!(text(&mut connection, "SHOW transaction_isolation"), level.to_lowercase());
        connection.execute("COMMIT").unwrap();
    }
    connection
        .execute("BEGIN ISOLATION LEVEL READ COMMITTED; DECLARE c CURSOR FOR SELECT a FROM t ORDER BY a")
        .unwrap();
    assert_eq!(text(&mut connection, "FETCH c"), "1");
    connection.execute("SAVEPOINT x; SET LOCAL firn.read_after = '1/0'").unwrap();
    assert_eq!(state(&mut connection, "SELECT * FROM t"), "57014");
    connection.execute("ROLLBACK TO x").unwrap();
    assert_eq!(text(&mut connection, "FETCH c"), "2");
    assert_eq!(text(&mut connection, "SELECT count(*) FROM t"), "2");
    connection.execute("COMMIT").unwrap();
    // An attempt to prepare that fails does not fail the block.
    connection.execute("BEGIN; SET LOCAL firn.read_after = '1/0'").unwrap();
    let Err(error) = connection.try_prepare("SELECT * FROM t", &[]) else { panic!("it waits") };
    assert_eq!(error.state(), SqlState::QUERY_CANCELED);
    connection.execute("RESET firn.read_after; SELECT * FROM t; COMMIT").unwrap();
}

#[test]
fn a_wait_for_replay_can_be_cancelled() {
    let (_folder, database) = replica();
    for begin in ["", "BEGIN", "BEGIN ISOLATION LEVEL READ COMMITTED"] {
        let mut connection = behind(&database, "", "0");
        connection.execute(begin).unwrap();
        connection.execute("SET firn.read_after = '1/0'").unwrap();
        let cancel = connection.cancel_handle();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| connection.execute("SELECT * FROM t"));
            std::thread::sleep(Duration::from_millis(50));
            // It is shown as active, and outside of a block holds no place among the transactions.
            assert_eq!(
                database.engine().running().len(),
                usize::from(begin.ends_with("COMMITTED")),
                "{begin}"
            );
            assert!(!waits.is_finished());
            while !waits.is_finished() {
                // A cancel from before the statement began does not count.
                cancel.cancel();
                std::thread::sleep(Duration::from_millis(5));
            }
            let error = waits.join().unwrap().unwrap_err();
            assert_eq!(error.message(), "canceling statement due to user request", "{begin}");
        });
        connection.execute("ROLLBACK; SET firn.read_after = '1/0'").unwrap();
        for sql in ["SET statement_timeout = '20ms'; SELECT * FROM t", "BEGIN"] {
            let error = error(&mut connection, sql);
            assert_eq!(error.message(), "canceling statement due to statement timeout", "{sql}");
        }
    }
    // The client has gone.
    let mut connection = behind(&database, "1/0", "0");
    connection.set("client_connection_check_interval", "1ms").unwrap();
    connection.set_client_gone_hook(|| true);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| connection.execute("SELECT * FROM t"));
        while !waits.is_finished() {
            database.cancel_for_gone_clients();
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(waits.join().unwrap().unwrap_err().state(), SqlState::QUERY_CANCELED);
    });
}

#[test]
fn a_primary_has_what_its_log_has() {
    let (folder, token) = primary();
    let database = Database::open(folder.path()).unwrap();
    let mut connection = database.connect();
    connection.execute(&format!("SET firn.read_after = '{token}'; INSERT INTO t VALUES (3)")).unwrap();
    let token = text(&mut connection, "SELECT firn_commit_token()");
    connection.execute(&format!("SET firn.read_after = '{token}'; SELECT * FROM t; BEGIN; COMMIT")).unwrap();
    for token in ["1/0", "999:0/0"] {
        connection.execute(&format!("SET firn.read_after = '{token}'")).unwrap();
        let error = error(&mut connection, "SELECT * FROM t");
        let message = format!("the log of this server does not have {token}, after which is to be read");
        assert_eq!((error.state().as_str(), error.message()), ("55000", message.as_str()));
    }
    for wrong in ["nonsense", "1", "0/1/2", ":0/1"] {
        let error = error(&mut connection, &format!("SET firn.read_after = '{wrong}'"));
        assert_eq!(error.state(), SqlState::INVALID_PARAMETER_VALUE, "{wrong}");
    }
    assert_eq!(text(&mut connection, "SHOW firn.read_after_timeout"), "10s");
    // A commit that was not waited for is on disk once there is a token of it.
    connection
        .execute("RESET firn.read_after; SET synchronous_commit = off; INSERT INTO t VALUES (4)")
        .unwrap();
    let later = text(&mut connection, "SELECT firn_commit_token()");
    let (_, lsn) = later.split_once(':').unwrap();
    assert_eq!(text(&mut connection, &format!("SELECT pg_current_wal_flush_lsn() >= '{lsn}'")), "t");
    assert_ne!(later, token);
}
