//! Start-up, authentication, cancelling, limits, and the end.

use std::time::{Duration, Instant};

use firn_wire::{Auth, Users, Verifier};
use postgres::{Config, NoTls};

use crate::raw::*;

fn connect(server: &firn_wire::Server, password: &str) -> Result<postgres::Client, postgres::Error> {
    let address = server.local_addr();
    Config::new()
        .host(&address.ip().to_string())
        .port(address.port())
        .user("ada")
        .password(password)
        .connect(NoTls)
}

fn state(error: &postgres::Error) -> &str {
    error.code().map_or("no SQLSTATE", |state| state.code())
}

#[test]
fn encryption_is_declined_and_the_session_goes_on_without() {
    let server = serve_plainly();
    for request in [5679, 5680] {
        let mut raw = Raw::silent(&server);
        raw.send(&startup(1234 << 16 | request, b""));
        let mut answer = [0];
        std::io::Read::read_exact(&mut raw.stream, &mut answer).unwrap();
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

#[test]
fn scram_lets_the_right_password_in_and_no_other() {
    let users = Users::new([("ada".to_owned(), Verifier::from_password("lovelace"))]);
    let server = serve(|config| config.auth = Auth::Scram(users));
    connect(&server, "lovelace").unwrap().simple_query("SELECT 1").unwrap();
    assert_eq!(state(&connect(&server, "babbage").err().unwrap()), "28P01");
    let mut raw = Raw::silent(&server);
    raw.send(&startup(3 << 16, b"user\0nobody\0\0"));
    assert_eq!(raw.receive().unwrap().0, 'R');
    raw.send(&query("SELECT 1"));
    assert_eq!(raw.last_words().as_deref(), Some("08P01"));
}

#[test]
fn one_client_too_many_gets_53300_until_another_leaves() {
    let server = serve(|config| config.max_connections = 2);
    let first = connect(&server, "").unwrap();
    let _second = connect(&server, "").unwrap();
    assert_eq!(state(&connect(&server, "").err().unwrap()), "53300");
    drop(first);
    let deadline = Instant::now() + Duration::from_secs(5);
    while connect(&server, "").is_err() {
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
    let mut client = connect(&server, "").unwrap();
    let cancel = client.cancel_token();
    let canceller = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        cancel.cancel_query(NoTls).unwrap();
    });
    assert_eq!(state(&client.simple_query(ENDLESS).unwrap_err()), "57014");
    canceller.join().unwrap();
    client.simple_query("SELECT 1").unwrap();
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

#[test]
fn shutdown_tells_idle_and_busy_clients_and_joins_their_threads() {
    let server = serve_plainly();
    let mut idle = Raw::connect(&server);
    let mut busy = Raw::connect(&server);
    busy.send(&query(ENDLESS));
    std::thread::sleep(Duration::from_millis(100));
    let address = server.local_addr();
    let began = Instant::now();
    server.shutdown();
    assert!(began.elapsed() < Duration::from_secs(4));
    assert_eq!(idle.last_words().as_deref(), Some("57P01"));
    assert_eq!(busy.last_words().as_deref(), Some("57P01"));
    assert!(std::net::TcpStream::connect(address).is_err());
}

#[test]
fn an_address_in_use_is_said_to_be() {
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
    let mut client = Config::new()
        .host_path(directory.path())
        .port(server.local_addr().port())
        .user("ada")
        .connect(NoTls)
        .unwrap();
    client.simple_query("SELECT 1").unwrap();
    server.shutdown();
    assert!(!path.exists());
    // One that a killed server left behind is taken over.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
}
