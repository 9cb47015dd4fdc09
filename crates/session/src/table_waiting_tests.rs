//! Statements that wait for tables, or to change the catalog: which transactions they wait for, where that is shown, and deadlocks.

use crate::Database;
use crate::server::ServerConnection as _;
use crate::tests::texts;
use crate::waiting_tests::{ADD_ONE, ADD_TEN, database, rows, run, state};
use firn_base::sync::{Arc, AtomicBool, Ordering};
use firn_base::{Error, Result, SqlState, clock, thread};
use std::time::Duration;

/// Waits until something is so, for a minute at most.
pub(crate) fn until(condition: impl Fn() -> bool) {
    let begun = clock::now();
    while !condition() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it never comes");
        clock::sleep(Duration::from_micros(100));
    }
}

/// Until everything unreachable is freed: no thread holds a guard from before.
pub(crate) fn until_earlier_guards_are_dropped() {
    let freed = Arc::new(AtomicBool::new(false));
    let tell = freed.clone();
    firn_txn::pin().defer(move || tell.store(true, Ordering::SeqCst));
    until(|| {
        firn_txn::pin().flush();
        freed.load(Ordering::SeqCst)
    });
}

/// Two transactions that have each run their first statement run the other's. Returns the results.
fn crosswise(database: &Database, first: [&str; 2], second: [&str; 2]) -> [Result<()>; 2] {
    let mut connections = [first, second].map(|[has, wants]| {
        let mut connection = database.connect();
        run(&mut connection, &["BEGIN", has]).unwrap();
        (connection, wants)
    });
    thread::scope(|scope| {
        let threads = connections.each_mut().map(|(connection, wants)| {
            thread::spawn_scoped(scope, "wanting", move || {
                let outcome = run(connection, &[wants]);
                // A failed transaction no longer blocks any other.
                until(|| outcome.is_ok() || connection.status() == crate::TransactionStatus::Failed);
                outcome.and_then(|()| run(connection, &["COMMIT"]))
            })
        });
        threads.map(|thread| thread.join().unwrap())
    })
}

#[test]
fn of_deadlocks_through_tables_one_transaction_fails() {
    const CHILD: &str = "INSERT INTO child VALUES (9, NULL)";
    const ROW: &str = "UPDATE t SET b = 7 WHERE a = 2";
    let rings: &[[[&str; 2]; 2]] = &[
        // Two tables, each in either mode.
        [["LOCK TABLE t", "LOCK TABLE child"], ["LOCK TABLE child", "LOCK TABLE t"]],
        [["LOCK TABLE t IN SHARE MODE", CHILD], ["LOCK TABLE child IN EXCLUSIVE MODE", ROW]],
        [[ROW, "LOCK TABLE child"], [CHILD, "LOCK TABLE t"]],
        [[ROW, CHILD], ["LOCK TABLE child", "LOCK TABLE t"]],
        // One table that both share.
        [["LOCK TABLE t IN SHARE MODE", ROW], ["LOCK TABLE t IN SHARE MODE", ADD_ONE]],
        [["LOCK TABLE t IN SHARE MODE", ROW], ["LOCK TABLE t IN SHARE MODE", "LOCK TABLE t"]],
        [["SELECT * FROM t FOR UPDATE", "LOCK TABLE child"], [CHILD, "LOCK TABLE t"]],
        [["LOCK TABLE t IN SHARE MODE", "LOCK TABLE t"], ["SELECT * FROM t FOR UPDATE", ROW]],
        [
            [
                "LOCK TABLE t IN SHARE UPDATE EXCLUSIVE MODE",
                "LOCK TABLE child IN SHARE UPDATE EXCLUSIVE MODE",
            ],
            [
                "LOCK TABLE child IN SHARE UPDATE EXCLUSIVE MODE",
                "LOCK TABLE t IN SHARE UPDATE EXCLUSIVE MODE",
            ],
        ],
        [[ROW, "TRUNCATE child"], [CHILD, "ALTER TABLE t ADD COLUMN c integer"]],
        // A row and a table.
        [[ROW, CHILD], ["LOCK TABLE child", ROW]],
        [[ROW, "LOCK TABLE child"], [CHILD, ROW]],
        // The catalog and a table.
        [
            ["CREATE TABLE one (a integer)", "ALTER TABLE t ADD COLUMN c integer"],
            [ROW, "CREATE TABLE two (a integer)"],
        ],
    ];
    for ring in rings {
        for level in ["read committed", "repeatable read", "serializable"] {
            for turned in [false, true] {
                let database = database();
                database.set_default("default_transaction_isolation", level).unwrap();
                let [first, second] = *ring;
                let outcomes = match turned {
                    false => crosswise(&database, first, second),
                    true => crosswise(&database, second, first),
                };
                let errors: Vec<Error> = outcomes.into_iter().filter_map(Result::err).collect();
                assert_eq!(errors.len(), 1, "{ring:?} at {level}: {errors:?}");
                assert_eq!(errors[0].state(), SqlState::DEADLOCK_DETECTED, "{ring:?} at {level}: {errors:?}");
                assert_eq!(
                    errors[0].detail(),
                    Some("The transaction that it would wait for waits for it."),
                    "{ring:?}"
                );
                assert_eq!(database.engine().statistics().deadlocks.get(), 1);
                run(&mut database.connect(), &[ADD_ONE, "INSERT INTO child VALUES (10, 1)"]).unwrap();
            }
        }
    }
}

/// The second waits for the first and the third for the second, whose waiting request blocks later ones.
#[test]
fn queues_for_tables_are_no_deadlocks() {
    let database = database();
    let mut writer = database.connect();
    run(&mut writer, &["BEGIN", ADD_ONE]).unwrap();
    let waits = &database.engine().statistics().waits;
    thread::scope(|scope| {
        let queue = ["LOCK TABLE t", "LOCK TABLE t IN SHARE MODE", ADD_TEN].map(|wants| {
            let before = waits.get();
            let mut connection = database.connect();
            let waiting = thread::spawn_scoped(scope, "waiting", move || {
                run(&mut connection, &["BEGIN", wants, "COMMIT"])
            });
            until(|| waits.get() > before);
            waiting
        });
        run(&mut writer, &["COMMIT"]).unwrap();
        queue.into_iter().for_each(|waiting| waiting.join().unwrap().unwrap());
    });
    assert_eq!(rows(&database)[0], (1, 11));
    assert_eq!(database.engine().statistics().deadlocks.get(), 0);
}

#[test]
fn waiters_for_tables_and_their_blockers_are_shown() {
    let database = database();
    let mut looking = database.connect();
    let mut writer = database.connect();
    let mut holder = database.connect();
    writer.identify("writer", "firn");
    holder.identify("holder", "firn");
    run(&mut writer, &["BEGIN", ADD_ONE, "CREATE TABLE mine (a integer)", "INSERT INTO mine VALUES (1)"])
        .unwrap();
    run(&mut holder, &["BEGIN", "LOCK TABLE child"]).unwrap();
    let waits = [
        ("locks", "BEGIN; LOCK TABLE t IN SHARE MODE"),
        ("writes", "UPDATE t SET b = 2 WHERE a = 3"),
        ("inserts", "INSERT INTO child VALUES (1, 2)"),
        ("creates", "CREATE TABLE other (a integer)"),
    ];
    let locks = "SELECT usename, relation::regclass, mode, granted FROM pg_locks JOIN pg_stat_activity USING (pid) \
                 WHERE locktype = 'relation' AND database = (SELECT oid FROM pg_database) ORDER BY granted DESC, 1, 2";
    let had = [
        "holder|child|ExclusiveLock|true",
        "writer|pg_class|ExclusiveLock|true",
        "writer|t|RowExclusiveLock|true",
    ];
    assert_eq!(texts(&mut looking, locks), had);
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for (name, sql) in waits {
            let mut connection = database.connect();
            connection.identify(name, "firn");
            let cancel = connection.cancel_handle();
            let thread = thread::spawn_scoped(scope, "waiting", move || connection.execute(sql).map(drop));
            threads.push((thread, cancel));
            // The next one queues behind it.
            let event =
                format!("SELECT wait_event_type, wait_event FROM pg_stat_activity WHERE usename = '{name}'");
            let begun = clock::now();
            while texts(&mut looking, &event) != ["Lock|relation"] {
                assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", texts(&mut looking, &event));
            }
        }
        let waiting = [
            "creates|pg_class|ExclusiveLock|false",
            "inserts|child|RowExclusiveLock|false",
            "locks|t|ShareLock|false",
            "writes|t|RowExclusiveLock|false",
        ];
        assert_eq!(texts(&mut looking, locks), [&had[..], &waiting].concat());
        let blocking = "SELECT w.usename, b.usename FROM pg_stat_activity w JOIN pg_stat_activity b \
                        ON b.pid = ANY (pg_blocking_pids(w.pid)) ORDER BY 1";
        let waits_for =
            ["creates|writer", "inserts|holder", "locks|writer", "writes|locks"].map(str::to_owned);
        // The holders are looked up for each waiter, while others begin and end.
        let begun = clock::now();
        while texts(&mut looking, blocking) != waits_for {
            assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", texts(&mut looking, blocking));
        }
        // They wait for the holder of the table, not for the end of a transaction by that id.
        let ends = "SELECT * FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted";
        assert_eq!(texts(&mut looking, ends), [""; 0]);
        // The last first, so that none continues whose turn would come.
        for (thread, cancel) in threads.into_iter().rev() {
            cancel.cancel();
            assert_eq!(state(thread.join().unwrap()), SqlState::QUERY_CANCELED);
        }
    });
    assert_eq!(texts(&mut looking, locks), had);
    run(&mut writer, &["COMMIT"]).unwrap();
    run(&mut holder, &["COMMIT"]).unwrap();
    assert_eq!(texts(&mut looking, locks), [""; 0]);
}

/// As long as a thread holds a guard, nothing is freed that was reachable when it pinned it.
#[test]
fn a_wait_for_a_table_keeps_no_memory_of_others() {
    let database = database();
    let mut holder = database.connect();
    let waits = &database.engine().statistics().waits;
    let statements = [
        "INSERT INTO t VALUES (9, 9)",
        "INSERT INTO t SELECT a + 10, b FROM t",
        ADD_ONE,
        "DELETE FROM t WHERE a = 1",
        "SELECT * FROM t WHERE a = 1 FOR UPDATE",
        "LOCK TABLE t",
        "ALTER TABLE t ADD COLUMN c integer",
    ];
    for sql in statements {
        run(&mut holder, &["BEGIN", "LOCK TABLE t"]).unwrap();
        let before = waits.get();
        thread::scope(|scope| {
            let mut connection = database.connect();
            let waiting = thread::spawn_scoped(scope, "waiting", move || {
                run(&mut connection, &["BEGIN", sql, "ROLLBACK"])
            });
            until(|| waits.get() > before);
            until_earlier_guards_are_dropped();
            assert!(!waiting.is_finished(), "{sql} waits");
            run(&mut holder, &["COMMIT"]).unwrap();
            waiting.join().unwrap().unwrap();
        });
    }
}

/// A transaction that had locked a table has released it, and waits for one that has not seen that yet.
#[test]
fn a_transaction_that_has_released_a_table_is_in_no_deadlock() {
    let database = database();
    database.set_default("default_transaction_isolation", "read committed").unwrap();
    let (mut writer, mut other, mut gives_back) =
        (database.connect(), database.connect(), database.connect());
    run(&mut writer, &["BEGIN", "INSERT INTO child VALUES (8, NULL)"]).unwrap();
    run(&mut other, &["BEGIN", "UPDATE t SET b = 7 WHERE a = 2"]).unwrap();
    run(&mut gives_back, &["BEGIN", "SAVEPOINT s", "SET lock_timeout = '300ms'"]).unwrap();
    let waits = &database.engine().statistics().waits;
    thread::scope(|scope| {
        let before = waits.get();
        let locking = thread::spawn_scoped(scope, "locking", move || {
            let error = run(&mut gives_back, &["LOCK TABLE child"]).unwrap_err();
            run(&mut gives_back, &["ROLLBACK TO s", "UPDATE t SET b = 8 WHERE a = 2", "COMMIT"])
                .map(|()| error.state())
        });
        until(|| waits.get() > before);
        run(&mut other, &["INSERT INTO child VALUES (9, NULL)", "COMMIT"]).unwrap();
        assert_eq!(locking.join().unwrap().unwrap(), SqlState::LOCK_NOT_AVAILABLE);
    });
    run(&mut writer, &["COMMIT"]).unwrap();
    assert_eq!(database.engine().statistics().deadlocks.get(), 0);
    assert_eq!(texts(&mut writer, "SELECT count(*), (SELECT b FROM t WHERE a = 2) FROM child"), ["2|8"]);
}

/// It reads what is committed when it gets the table, as in PostgreSQL.
#[test]
fn a_read_committed_statement_sees_what_it_has_waited_for() {
    let database = database();
    database.set_default("default_transaction_isolation", "read committed").unwrap();
    let mut holder = database.connect();
    let waits = &database.engine().statistics().waits;
    let waiting = [
        ("INSERT INTO child SELECT max(id) + 10, NULL FROM child", "11|2"),
        ("DELETE FROM child WHERE id = 1", "-|0"),
        ("UPDATE child SET id = id + 5", "6|1"),
        ("SELECT * FROM child WHERE id = 1 FOR UPDATE; DELETE FROM child", "-|0"),
    ];
    for (sql, expected) in waiting {
        for block in [false, true] {
            run(&mut holder, &["DELETE FROM child", "BEGIN", "LOCK TABLE child"]).unwrap();
            run(&mut holder, &["INSERT INTO child VALUES (1, NULL)"]).unwrap();
            let before = waits.get();
            thread::scope(|scope| {
                let mut connection = database.connect();
                let waiter = thread::spawn_scoped(scope, "waiting", move || {
                    let sql: Vec<&str> = sql.split("; ").collect();
                    match block {
                        true => run(&mut connection, &[&["BEGIN"][..], &sql, &["COMMIT"]].concat()),
                        false => run(&mut connection, &sql),
                    }
                });
                until(|| waits.get() > before);
                run(&mut holder, &["COMMIT"]).unwrap();
                waiter.join().unwrap().unwrap();
            });
            let found = texts(&mut holder, "SELECT max(id), count(*) FROM child");
            assert_eq!(found, [expected], "{sql}");
        }
    }
}
