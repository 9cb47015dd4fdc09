//! How sessions interact beside rows: advisory locks and notifications; and settings that functions change.

use crate::server::ServerConnection as _;
use crate::{Connection, Database};
use firn_base::thread;
use firn_base::{SqlState, Value};

fn text(connection: &mut Connection, sql: &str) -> String {
    let rows = connection.prepare(sql).and_then(|statement| connection.query_values(&statement, &[]));
    let rows = rows.unwrap_or_else(|error| panic!("{sql}: {error}"));
    let value = |value: &Value| match value {
        Value::Text(text) => text.clone(),
        Value::Boolean(value) => if *value { "t" } else { "f" }.to_owned(),
        Value::BigInt(number) => number.to_string(),
        Value::Integer(number) => number.to_string(),
        other => format!("{other:?}"),
    };
    let row = |row: &Vec<Value>| row.iter().map(value).collect::<Vec<_>>().join("|");
    rows.iter().map(row).collect::<Vec<_>>().join(" ")
}

const LOCKS: &str = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'";

#[test]
fn advisory_locks_last_as_long_as_their_session_or_transaction() {
    let database = Database::memory().unwrap();
    let (mut a, mut b) = (database.connect(), database.connect());
    let taken =
        "SELECT pg_advisory_lock(2) IS NULL, pg_try_advisory_lock(3, 4), pg_try_advisory_lock_shared(7)";
    assert_eq!(text(&mut a, taken), "f|t|t");
    let tried = "SELECT pg_try_advisory_lock(2), pg_try_advisory_lock_shared(7), pg_try_advisory_lock(7)";
    assert_eq!(text(&mut b, tried), "f|t|f");
    let listed = "SELECT classid, objid, objsubid, mode, granted FROM pg_locks WHERE pid = pg_backend_pid() \
                  AND locktype = 'advisory'";
    assert_eq!(text(&mut b, &listed.replace("classid, objid, objsubid", "objsubid::int")), "1|ShareLock|t");
    assert_eq!(text(&mut a, "SELECT pg_advisory_unlock(2), pg_advisory_unlock(99)"), "t|f");
    a.execute("DISCARD ALL").unwrap();
    assert_eq!(text(&mut a, LOCKS), "1");
    drop(b);
    assert_eq!(text(&mut a, LOCKS), "0");

    a.execute("SELECT pg_advisory_xact_lock(1)").unwrap();
    assert_eq!(text(&mut a, LOCKS), "0", "its transaction has ended");
    a.execute(
        "BEGIN; SELECT pg_advisory_xact_lock(1); SAVEPOINT s; SELECT pg_try_advisory_xact_lock_shared(2)",
    )
    .unwrap();
    assert_eq!(text(&mut a, LOCKS), "2");
    a.execute("ROLLBACK TO s").unwrap();
    assert_eq!(text(&mut a, LOCKS), "1");
    a.execute("SELECT 1 / 0").unwrap_err();
    let mut b = database.connect();
    assert_eq!(text(&mut b, "SELECT pg_try_advisory_lock(1)"), "f", "the block can go on from its savepoint");
    a.execute("ROLLBACK").unwrap();
    assert_eq!(text(&mut b, "SELECT pg_try_advisory_lock(1)"), "t");
}

#[test]
fn advisory_locks_and_row_locks_in_a_ring_are_a_deadlock() {
    let database = Database::memory().unwrap();
    let (mut a, mut b) = (database.connect(), database.connect());
    a.execute("CREATE TABLE t (x integer PRIMARY KEY, n integer); INSERT INTO t VALUES (1, 0)").unwrap();
    a.execute("SELECT pg_advisory_lock(1)").unwrap();
    b.execute("BEGIN; UPDATE t SET n = 1").unwrap();
    let waits = thread::spawn("waits for the row", move || {
        let updated = a.execute("UPDATE t SET n = 2");
        (a, updated)
    });
    b.execute("SET lock_timeout = '60s'").unwrap();
    let error = b.execute("SELECT pg_advisory_lock(1)").unwrap_err();
    assert_eq!(error.state(), SqlState::DEADLOCK_DETECTED);
    b.execute("ROLLBACK").unwrap();
    let (a, updated) = waits.join().unwrap();
    assert_eq!(updated.unwrap(), 1);
    b.execute("SET lock_timeout = '1ms'").unwrap();
    let error = b.execute("SELECT pg_advisory_lock(1)").unwrap_err();
    assert_eq!(error.state(), SqlState::LOCK_NOT_AVAILABLE);
    drop(a);
}

#[test]
fn notifications_arrive_when_they_are_committed() {
    let database = Database::memory().unwrap();
    let (mut a, mut b) = (database.connect(), database.connect());
    let arrived = |connection: &mut Connection| {
        let taken = connection.take_notifications();
        let one =
            |one: &firn_base::sync::Arc<crate::Notification>| format!("{}={}", one.channel, one.payload);
        taken.iter().map(one).collect::<Vec<_>>().join(" ")
    };
    a.execute("LISTEN news; BEGIN; LISTEN \"Other\"; ROLLBACK").unwrap();
    assert_eq!(text(&mut a, "SELECT * FROM pg_listening_channels()"), "news");
    b.execute("NOTIFY news, 'one'; SELECT pg_notify('news', NULL); NOTIFY other").unwrap();
    assert_eq!(arrived(&mut a), "news=one news=");
    b.execute("BEGIN; NOTIFY news, 'a'; SAVEPOINT s; NOTIFY news, 'b'; ROLLBACK TO s; NOTIFY news, 'a'")
        .unwrap();
    assert_eq!(arrived(&mut a), "");
    b.execute("COMMIT").unwrap();
    assert_eq!(arrived(&mut a), "news=a");
    b.execute("BEGIN; NOTIFY news; ROLLBACK").unwrap();
    b.execute("SELECT pg_notify('news', 'x'), 1 / 0").unwrap_err();
    b.execute("SELECT pg_notify('news', g::text) FROM generate_series(1, 3) AS g").unwrap();
    a.execute("NOTIFY news, 'own'").unwrap();
    assert_eq!(arrived(&mut a), "news=1 news=2 news=3 news=own");
    let error = b.execute("SELECT pg_notify('', 'x')").unwrap_err();
    assert_eq!(error.state(), SqlState::INVALID_PARAMETER_VALUE);
    a.execute("UNLISTEN *; NOTIFY news").unwrap();
    assert_eq!((arrived(&mut a), a.is_listening()), (String::new(), false));
}

#[test]
fn set_config_takes_effect_as_set_does() {
    let mut a = Database::memory().unwrap().connect();
    let version = a.settings_version();
    a.execute("SELECT set_config('TimeZone', 'Asia/Tokyo', true)").unwrap();
    assert_eq!(text(&mut a, "SHOW TimeZone"), "UTC", "its transaction has ended");
    assert_ne!(a.settings_version(), version);
    a.execute("SELECT set_config('TimeZone', n, false) FROM (VALUES ('Asia/Tokyo')) AS v(n)").unwrap();
    assert_eq!(text(&mut a, "SELECT timestamptz '2000-01-01 00:00+0' = timestamptz '2000-01-01 09:00'"), "t");
    a.execute("BEGIN; SELECT set_config('TimeZone', 'UTC', true)").unwrap();
    assert_eq!(text(&mut a, "SHOW TimeZone"), "UTC");
    a.execute("COMMIT").unwrap();
    assert_eq!(text(&mut a, "SHOW TimeZone"), "Asia/Tokyo");
}

#[test]
fn a_transaction_shows_what_it_was_asked_to_be() {
    let mut a = Database::memory().unwrap().connect();
    let shown = "SELECT current_setting('transaction_isolation'), current_setting('transaction_deferrable'), \
                 current_setting('transaction_read_only')";
    a.execute("BEGIN ISOLATION LEVEL READ UNCOMMITTED").unwrap();
    assert_eq!(text(&mut a, shown), "read uncommitted|off|off");
    a.execute("COMMIT AND CHAIN").unwrap();
    assert_eq!(text(&mut a, shown), "read uncommitted|off|off");
    a.execute("COMMIT; BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY DEFERRABLE").unwrap();
    assert_eq!(text(&mut a, shown), "serializable|on|on");
    let error = a.execute("SET TRANSACTION NOT DEFERRABLE").unwrap_err();
    assert_eq!(error.state(), SqlState::ACTIVE_SQL_TRANSACTION);
    a.execute("ROLLBACK").unwrap();
    a.execute("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ, DEFERRABLE")
        .unwrap();
    assert_eq!(text(&mut a, shown), "repeatable read|on|off");
}

#[test]
fn the_user_is_the_only_role_and_strings_may_have_backslashes() {
    let mut a = Database::memory().unwrap().connect();
    a.identify("joe", "shop");
    a.execute(
        "SET ROLE joe; SET SESSION AUTHORIZATION joe; SET ROLE NONE; SET SESSION AUTHORIZATION DEFAULT",
    )
    .unwrap();
    assert_eq!(text(&mut a, "SHOW session_authorization"), "joe");
    for set in ["SET ROLE jane", "SET SESSION AUTHORIZATION jane"] {
        assert_eq!(a.execute(set).unwrap_err().state(), SqlState::INVALID_PARAMETER_VALUE);
    }
    let strings = r"SELECT 'a\\b', length('\n')";
    assert_eq!(text(&mut a, strings), r"a\\b|2");
    a.execute("SET standard_conforming_strings = off").unwrap();
    assert_eq!(text(&mut a, strings), r"a\b|1");
    a.execute("RESET standard_conforming_strings").unwrap();
    assert_eq!(text(&mut a, strings), r"a\\b|2");
}
