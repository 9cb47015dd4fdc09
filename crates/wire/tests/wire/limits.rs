//! Start-up, authentication, cancelling, limits, and the end.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use firn_wire::{Auth, Users, Verifier};

use crate::raw::*;

/// Opens a session as `ada` and returns it, or the SQLSTATE with which it is refused.
fn open(server: &firn_wire::Server) -> Result<Raw, String> {
    let mut raw = Raw::silent(server);
    raw.send(&startup(3 << 16, b"user\0ada\0\0"));
    match raw.receive().unwrap() {
        ('R', _) => {
            raw.until('Z');
            Ok(raw)
        }
        (_, error) => Err(field(&error, b'C').unwrap()),
    }
}

#[test]
fn encryption_is_declined_and_the_session_continues_without() {
    let server = serve_plainly();
    for request in [5679, 5680] {
        let mut raw = Raw::silent(&server);
        raw.send(&startup(1234 << 16 | request, b""));
        let mut answer = [0];
        raw.stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer, *b"N");
        assert!(raw.answers(&startup(3 << 16, b"user\0tester\0\0")).ends_with("ZI"));
    }
}

#[test]
fn a_newer_minor_version_is_negotiated_down() {
    let server = serve_plainly();
    let mut raw = Raw::silent(&server);
    let answers = raw.answers(&startup(3 << 16 | 2, b"user\0tester\0_pq_.novelty\0on\0\0"));
    assert!(answers.starts_with("v R S"), "{answers}");
}

/// Other properties of SCRAM are tested in its module and, with real drivers, in `tests/clients`.
#[test]
fn scram_cannot_be_skipped() {
    let users = Users::new([("ada".to_owned(), Verifier::from_password("lovelace"))]);
    let server = serve(|config| config.auth = Auth::Scram(users));
    for (user, words, state) in [
        ("ada", query("SELECT 1"), "08P01"),
        ("nobody", query("SELECT 1"), "08P01"),
        ("ada", message(b'p', b"MD5\0\0\0\0\0"), "08P01"),
        ("ada", message(b'p', b"SCRAM-SHA-256\0\0\0\0\x05n,,r="), "08P01"),
        ("ada", sync(), "08P01"),
    ] {
        let mut raw = Raw::silent(&server);
        raw.send(&startup(3 << 16, format!("user\0{user}\0\0").as_bytes()));
        assert_eq!(raw.receive().unwrap(), ('R', b"\0\0\0\x0aSCRAM-SHA-256\0\0".to_vec()));
        raw.send(&words);
        assert_eq!(raw.last_error().as_deref(), Some(state), "{words:?}");
    }
    // An authentication that ends with an invalid proof, for a user that exists and one that does not.
    for user in ["ada", "nobody"] {
        let mut raw = Raw::silent(&server);
        raw.send(&startup(3 << 16, format!("user\0{user}\0\0").as_bytes()));
        raw.until('R');
        raw.send(&message(b'p', b"SCRAM-SHA-256\0\0\0\0\x09n,,n=,r=x"));
        let (_, answer) = raw.receive().unwrap();
        let server_first = String::from_utf8(answer[4..].to_vec()).unwrap();
        let nonce = server_first.split(',').next().unwrap();
        let proof = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
        raw.send(&message(b'p', format!("c=biws,{nonce},p={proof}").as_bytes()));
        assert_eq!(raw.last_error().as_deref(), Some("28P01"));
    }
}

#[test]
fn one_client_too_many_gets_53300_until_another_leaves() {
    let server = serve(|config| config.max_connections = 2);
    let first = open(&server).unwrap();
    let _second = open(&server).unwrap();
    assert_eq!(open(&server).err().as_deref(), Some("53300"));
    drop(first);
    let deadline = Instant::now() + Duration::from_secs(5);
    while open(&server).is_err() {
        assert!(Instant::now() < deadline);
    }
}

#[test]
fn a_client_that_does_not_authenticate_in_time_is_dropped() {
    let server = serve(|config| config.startup_timeout = Duration::from_millis(50));
    let mut raw = Raw::silent(&server);
    assert_eq!(raw.receive(), None);
}

const ENDLESS: &str = "SELECT count(*) FROM generate_series(1, 100000000) a, generate_series(1, 100000000) b";

#[test]
fn a_cancel_request_stops_the_statement_and_keeps_the_session() {
    let server = serve_plainly();
    let mut raw = Raw::silent(&server);
    raw.send(&startup(3 << 16, b"user\0ada\0\0"));
    let received = raw.until('Z');
    let (_, process_and_key) = received.iter().find(|(tag, _)| *tag == 'K').unwrap();
    raw.send(&query(ENDLESS));
    std::thread::sleep(Duration::from_millis(200));
    let mut canceller = Raw::silent(&server);
    canceller.send(&startup(1234 << 16 | 5678, process_and_key));
    assert_eq!(canceller.receive(), None);
    let answers = summary(&raw.until('Z'));
    assert!(answers.ends_with("E57014 ZI"), "{answers}");
    assert_eq!(raw.answers(&query("SELECT 1")), "T D C ZI");
}

/// The number in cancel requests is the one that other sessions see.
#[test]
fn sessions_are_known_by_the_number_that_cancels_them() {
    let server = serve_plainly();
    let mut raw = Raw::silent(&server);
    raw.send(&startup(3 << 16, b"user\0ada\0application_name\0desk\0\0"));
    let received = raw.until('Z');
    let (_, process_and_key) = received.iter().find(|(tag, _)| *tag == 'K').unwrap();
    let process = u32::from_be_bytes(process_and_key[..4].try_into().unwrap());
    raw.answers(&query("BEGIN; SELECT 7"));
    let mut other = Raw::connect(&server);
    let port = raw.stream.local_addr().unwrap().port();
    let look = format!(
        "SELECT 1 / count(*) FROM pg_stat_activity WHERE pid = {process} AND pid <> pg_backend_pid() AND usename = 'ada' \
         AND application_name = 'desk' AND client_addr = '127.0.0.1' AND client_port = {port} \
         AND state = 'idle in transaction' AND query = 'SELECT 7' AND xact_start IS NOT NULL"
    );
    assert_eq!(other.answers(&query(&look)), "T D C ZI");
    drop(raw);
    let begun = Instant::now();
    while other.answers(&query(&look)) != "T E22012 ZI" {
        assert!(begun.elapsed() < Duration::from_secs(10), "a session that has gone is still listed");
    }
}

/// By SQL, one session cancels the statement of another, or ends the session: idle in a block, whose rows are released, or busy.
#[test]
fn sessions_stop_and_end_each_other() {
    let server = serve_plainly();
    let mut looking = Raw::connect(&server);
    let asked = |looking: &mut Raw, function: &str, of: &str| {
        let sql = format!(
            "SELECT 1 / (CASE WHEN {function}(pid) THEN 1 ELSE 0 END) FROM pg_stat_activity WHERE {of}"
        );
        let begun = Instant::now();
        while looking.answers(&query(&sql)) != "T D C ZI" {
            assert!(begun.elapsed() < Duration::from_secs(10), "{of}");
        }
    };
    looking.answers(&query("CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (1)"));
    let running = "query LIKE 'SELECT count(*) FROM generate_series%'";
    let mut busy = Raw::connect(&server);
    busy.send(&query(ENDLESS));
    asked(&mut looking, "pg_cancel_backend", running);
    assert!(summary(&busy.until('Z')).ends_with("E57014 ZI"));
    busy.send(&query(ENDLESS));
    asked(&mut looking, "pg_terminate_backend", &format!("{running} AND state = 'active'"));
    assert_eq!(busy.last_error().as_deref(), Some("57P01"));

    let mut idle = Raw::connect(&server);
    idle.answers(&query("BEGIN; DELETE FROM t"));
    asked(&mut looking, "pg_terminate_backend", "query = 'DELETE FROM t'");
    assert_eq!(idle.last_error().as_deref(), Some("57P01"));
    assert_eq!(looking.answers(&query("UPDATE t SET a = 2")), "C ZI");
    let mut own = Raw::connect(&server);
    own.send(&query("SELECT pg_terminate_backend(pg_backend_pid())"));
    let received = own.until('E');
    assert_eq!(summary(&received), "E57P01", "it gets nothing else");
    assert_eq!(own.last_error(), None);
    let unknown =
        "SELECT 1 / (CASE WHEN pg_terminate_backend(2000000) OR pg_cancel_backend(-1) THEN 0 ELSE 1 END)";
    // A warning for each number that is no session's.
    assert_eq!(looking.answers(&query(unknown)), "T D N N C ZI");
}

#[test]
fn a_cancel_request_with_a_wrong_key_does_nothing() {
    let server = serve_plainly();
    let mut raw = Raw::connect(&server);
    let mut canceller = Raw::silent(&server);
    canceller.send(&startup(1234 << 16 | 5678, b"\0\0\0\x01\0\0\0\0"));
    assert_eq!(canceller.receive(), None);
    assert_eq!(raw.answers(&query("SELECT 1")), "T D C ZI");
}

/// A statement whose client has gone ends, whether or not the client has sent Terminate; one whose client is only silent continues.
#[test]
fn statements_of_disconnected_clients_are_cancelled() {
    let server = serve_plainly();
    let mut holder = Raw::connect(&server);
    holder.answers(&query("CREATE TABLE t (a integer); INSERT INTO t VALUES (1)"));
    holder.answers(&query("BEGIN; UPDATE t SET a = 2"));
    let mut looking = Raw::connect(&server);
    let mut running = |count: u32| {
        let look = format!(
            "SELECT 1 / (CASE WHEN count(*) = {count} THEN 1 ELSE 0 END) FROM pg_stat_activity WHERE state = 'active' \
             AND pid <> pg_backend_pid()"
        );
        looking.answers(&query(&look)) == "T D C ZI"
    };
    let start = |interval: &str| {
        let mut raw = Raw::connect(&server);
        raw.answers(&query(&format!("SET client_connection_check_interval = '{interval}'")));
        // Waits for the holder.
        raw.send(&query("UPDATE t SET a = 3"));
        raw
    };
    let [kept, dropped, left, not_looked_for] = ["1ms", "1ms", "1ms", "0"].map(start);
    let wait_for = |count: u32, running: &mut dyn FnMut(u32) -> bool| {
        let begun = Instant::now();
        while !running(count) {
            assert!(begun.elapsed() < Duration::from_secs(10), "there are not {count} statements running");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    wait_for(4, &mut running);
    drop(dropped);
    let mut left = left;
    left.send(&message(b'X', b""));
    drop(left);
    drop(not_looked_for);
    wait_for(2, &mut running);
    // Longer than the interval of the server's checks.
    std::thread::sleep(Duration::from_millis(600));
    assert!(running(2), "one whose client is there, and one of whom it is not looked for");
    drop(kept);
    wait_for(1, &mut running);
}

#[test]
fn shutdown_notifies_idle_and_busy_clients_and_joins_their_threads() {
    let server = serve_plainly();
    let mut idle = Raw::connect(&server);
    let mut busy = Raw::connect(&server);
    busy.send(&query(ENDLESS));
    std::thread::sleep(Duration::from_millis(100));
    let address = server.local_addr();
    let began = Instant::now();
    server.shutdown();
    assert!(began.elapsed() < Duration::from_secs(4));
    assert_eq!(idle.last_error().as_deref(), Some("57P01"));
    assert_eq!(busy.last_error().as_deref(), Some("57P01"));
    assert!(std::net::TcpStream::connect(address).is_err());
}

/// A statement whose planning takes seconds, which others have to look at it.
fn slow_to_plan() -> String {
    let terms: Vec<String> = (0..100_000).map(|i| format!("x = {i}")).collect();
    format!("SELECT count(*) FROM (VALUES (1)) t(x) WHERE {}", terms.join(" OR "))
}

/// Waits until this number of sessions plans or runs a statement.
fn wait_for_active(looking: &mut Raw, count: u32) {
    let look = format!(
        "SELECT 1 / (CASE WHEN count(*) = {count} THEN 1 ELSE 0 END) FROM pg_stat_activity WHERE state = 'active' \
         AND pid <> pg_backend_pid() AND query LIKE '% OR %'"
    );
    let begun = Instant::now();
    while looking.answers(&query(&look)) != "T D C ZI" {
        assert!(begun.elapsed() < Duration::from_secs(60), "{count} sessions are active");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn planning_ends_by_a_cancel_request_and_with_its_client_and_with_the_server() {
    let server = serve_plainly();
    let mut looking = Raw::connect(&server);
    let mut raw = Raw::silent(&server);
    raw.send(&startup(3 << 16, b"user\0ada\0\0"));
    let received = raw.until('Z');
    let (_, process_and_key) = received.iter().find(|(tag, _)| *tag == 'K').unwrap();
    raw.send(&query(&slow_to_plan()));
    wait_for_active(&mut looking, 1);
    let mut canceller = Raw::silent(&server);
    canceller.send(&startup(1234 << 16 | 5678, process_and_key));
    assert_eq!(canceller.receive(), None);
    assert_eq!(summary(&raw.until('Z')), "E57014 ZI");
    raw.answers(&query("SET client_connection_check_interval = '1ms'"));
    raw.send(&query(&slow_to_plan()));
    wait_for_active(&mut looking, 1);
    drop(raw);
    wait_for_active(&mut looking, 0);
    let mut last = Raw::connect(&server);
    last.send(&query(&slow_to_plan()));
    wait_for_active(&mut looking, 1);
    server.shutdown();
    assert_eq!(last.last_error().as_deref(), Some("57P01"));
}

#[test]
fn a_statement_that_is_too_deep_leaves_others_their_connections() {
    let server = serve_plainly();
    let mut other = Raw::connect(&server);
    let mut raw = Raw::connect(&server);
    for (before, after) in [("(", ")"), ("abs(", ")"), ("ARRAY[", "]"), ("(SELECT ", ")"), ("-(", ")")] {
        let text = format!("SELECT {}1{}", before.repeat(30_000), after.repeat(30_000));
        assert_eq!(raw.answers(&query(&text)), "E54001 ZI", "{before}");
        assert_eq!(other.answers(&query("SELECT 7")), "T D C ZI", "{before}");
    }
}

#[test]
fn an_address_in_use_is_reported() {
    let server = serve_plainly();
    let config = firn_wire::WireConfig {
        listen: vec![server.local_addr().to_string()],
        ..firn_wire::WireConfig::default()
    };
    let database = firn_session::Database::memory().unwrap();
    let error = firn_wire::Server::start(database, config).map(drop).unwrap_err();
    assert_eq!(error.state().as_str(), "55006");
}

#[test]
fn a_unix_socket_serves_too_and_is_removed_at_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let server = serve(|config| config.socket_directory = Some(directory.path().to_owned()));
    let path = server.socket_path().unwrap().to_owned();
    let mut stream = std::os::unix::net::UnixStream::connect(&path).unwrap();
    stream.write_all(&startup(3 << 16, b"user\0ada\0\0")).unwrap();
    let mut first = [0];
    stream.read_exact(&mut first).unwrap();
    assert_eq!(first, *b"R");
    server.shutdown();
    assert!(!path.exists());
}

#[test]
fn a_unix_socket_that_a_killed_server_left_behind_is_taken_over() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(".s.PGSQL.5432");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let again = || {
        let config = firn_wire::WireConfig {
            listen: Vec::new(),
            socket_directory: Some(directory.path().to_owned()),
            ..firn_wire::WireConfig::default()
        };
        firn_wire::Server::start(firn_session::Database::memory().unwrap(), config)
    };
    let server = again().unwrap();
    assert_eq!(again().map(drop).unwrap_err().state().as_str(), "55006");
    server.shutdown();
}

#[test]
fn an_idle_block_is_ended_and_its_rows_are_released_at_once() {
    let server = serve_plainly();
    let mut other = Raw::connect(&server);
    other.answers(&query("CREATE TABLE t (a integer PRIMARY KEY); INSERT INTO t VALUES (1)"));
    let idle = "SET idle_in_transaction_session_timeout = '50ms'";
    // A failed block holds no locks, and is ended all the same, as in PostgreSQL.
    for (inside, status) in [("UPDATE t SET a = 2", "C ZT"), ("SELECT 1 / 0", "E22012 ZE")] {
        let mut sleeper = Raw::connect(&server);
        sleeper.answers(&query(idle));
        sleeper.answers(&query("BEGIN"));
        let answers = sleeper.answers(&query(inside));
        assert!(answers.ends_with(status), "{answers}");
        assert_eq!(other.answers(&query("SET lock_timeout = '8s'; UPDATE t SET a = 3")), "C C ZI");
        assert_eq!(sleeper.last_error().as_deref(), Some("25P03"));
    }
}

#[test]
fn only_idle_clients_are_ended_by_idle_timeouts() {
    let server = serve_plainly();
    let mut raw = Raw::connect(&server);
    let settings = "SET idle_in_transaction_session_timeout = '50ms'; SET idle_session_timeout = '300ms'";
    raw.answers(&query(&format!("{settings}; CREATE TABLE t (a integer)")));
    // Outside a block the other timeout applies; COPY waits for its client without limit.
    std::thread::sleep(Duration::from_millis(150));
    raw.answers(&query("BEGIN"));
    raw.send(&query("COPY t FROM STDIN"));
    raw.until('G');
    std::thread::sleep(Duration::from_millis(150));
    assert_eq!(raw.answers(&[message(b'd', b"1\n"), message(b'c', b"")].concat()), "C ZT");
    assert!(raw.answers(&query("COMMIT")).ends_with("ZI"));
    assert_eq!(raw.last_error().as_deref(), Some("57P05"));
}
