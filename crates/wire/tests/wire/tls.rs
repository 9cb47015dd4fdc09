//! Encrypted connections: how they begin, what they know of each other, and that they are used like others.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use firn_base::SqlState;
use firn_wire::{Auth, Server, Tls, Users, Verifier, WireConfig};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair,
    SerialNumber,
};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion,
};

use crate::raw::{Raw, cells, field, message, query, serve, serve_plainly, startup, summary};

const SSL_REQUEST: u32 = 1234 << 16 | 5679;

/// An authority and what it has signed.
struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, PEM.
struct Signed {
    certificate: String,
    key: String,
}

impl Authority {
    fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "Trust, \"us\"");
        params.distinguished_name.push(DnType::CommonName, "root");
        Authority(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn pem(&self) -> String {
        self.0.pem()
    }

    /// Signs a certificate for this name, with a serial number.
    fn sign(&self, name: &str, serial: u64) -> Signed {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CountryName, "DE");
        params.distinguished_name.push(DnType::CommonName, name);
        params.serial_number = Some(SerialNumber::from(serial));
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Signed { certificate: certificate.pem(), key: key.serialize_pem() }
    }
}

/// A server with a certificate for localhost, and who vouches for it.
fn serve_encrypted(change: impl FnOnce(&mut WireConfig, &Authority)) -> (Server, Authority) {
    let authority = Authority::new();
    let own = authority.sign("localhost", 1);
    let server = serve(|config| {
        config.tls = Some(Tls::new(&own.certificate, &own.key, None).unwrap());
        change(config, &authority);
    });
    (server, authority)
}

type Encrypted = Raw<StreamOwned<ClientConnection, TcpStream>>;

/// Begins TLS on a stream.
fn shake_hands(
    stream: TcpStream,
    authority: &Authority,
    own: Option<&Signed>,
    version: &'static SupportedProtocolVersion,
) -> std::io::Result<Encrypted> {
    shake_hands_as(stream, configured(authority, own, version))
}

fn configured(
    authority: &Authority,
    own: Option<&Signed>,
    version: &'static SupportedProtocolVersion,
) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.pem().as_bytes()).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match own {
        None => config.with_no_client_auth(),
        Some(own) => {
            let chain = CertificateDer::pem_slice_iter(own.certificate.as_bytes());
            let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).unwrap();
            config.with_client_auth_cert(chain.collect::<Result<_, _>>().unwrap(), key).unwrap()
        }
    };
    config.alpn_protocols.push(b"postgresql".to_vec());
    config
}

fn shake_hands_as(stream: TcpStream, config: ClientConfig) -> std::io::Result<Encrypted> {
    let name = ServerName::try_from("localhost").unwrap();
    let mut tls = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = stream;
    while tls.is_handshaking() {
        tls.complete_io(&mut stream)?;
    }
    Ok(Raw { stream: StreamOwned::new(tls, stream) })
}

/// Asks for TLS as clients do.
fn ask(server: &Server) -> TcpStream {
    let mut raw = Raw::silent(server);
    raw.send(&startup(SSL_REQUEST, b""));
    let mut answer = [0];
    raw.stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, *b"S");
    raw.stream
}

fn encrypted(server: &Server, authority: &Authority) -> Encrypted {
    shake_hands(ask(server), authority, None, &TLS13).unwrap()
}

fn connect(server: &Server, authority: &Authority) -> Encrypted {
    let mut raw = encrypted(server, authority);
    raw.send(&startup(3 << 16, b"user\0ada\0\0"));
    raw.until('Z');
    raw
}

/// The first row of a query, as text.
fn row<S: Read + Write>(raw: &mut Raw<S>, sql: &str) -> Vec<Option<String>> {
    raw.send(&query(sql));
    let received = raw.until('Z');
    let (_, row) = received.iter().find(|(tag, _)| *tag == 'D').unwrap_or_else(|| panic!("{received:?}"));
    cells(row).into_iter().map(|cell| cell.map(|cell| String::from_utf8(cell).unwrap())).collect()
}

const HOW: &str = "SELECT ssl, version, cipher, bits, client_dn, client_serial, issuer_dn FROM pg_stat_ssl \
                   WHERE pid = pg_backend_pid()";

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

#[test]
fn connections_are_encrypted_by_either_version_and_others_see_how() {
    let (server, authority) = serve_encrypted(|_, _| ());
    for (version, name, cipher) in
        [(&TLS12, "TLSv1.2", "ECDHE-ECDSA-AES256-GCM-SHA384"), (&TLS13, "TLSv1.3", "TLS_AES_256_GCM_SHA384")]
    {
        let mut raw = shake_hands(ask(&server), &authority, None, version).unwrap();
        raw.send(&startup(3 << 16, b"user\0ada\0\0"));
        assert_eq!(summary(&raw.until('Z')).split(' ').next(), Some("R"));
        let how = row(&mut raw, HOW);
        assert_eq!(how, [some("t"), some(name), some(cipher), some("256"), None, None, None]);
        let function = row(
            &mut raw,
            "SELECT ssl, sslversion, sslcipher, sslbits FROM pg_stat_get_activity(pg_backend_pid())",
        );
        assert_eq!(function, how[..4]);
    }
    // In the clear, on this machine.
    let mut raw = Raw::connect(&server);
    assert_eq!(row(&mut raw, HOW), [some("f"), None, None, None, None, None, None]);
    let plain = serve_plainly();
    let mut other = Raw::connect(&plain);
    assert_eq!(row(&mut other, "SELECT count(*) FROM pg_stat_ssl WHERE ssl"), [some("0")]);
}

#[test]
fn a_client_that_begins_with_tls_saves_a_round_trip() {
    let (server, authority) = serve_encrypted(|_, _| ());
    let mut raw = shake_hands(Raw::silent(&server).stream, &authority, None, &TLS13).unwrap();
    raw.send(&startup(3 << 16, b"user\0ada\0\0"));
    raw.until('Z');
    assert_eq!(raw.answers(&query("SELECT 1")), "T D C ZI");
    // One that names no protocol may mean another.
    let mut config = configured(&authority, None, &TLS13);
    config.alpn_protocols.clear();
    let mut raw = shake_hands_as(Raw::silent(&server).stream, config).unwrap();
    let (tag, body) = raw.receive().unwrap();
    assert_eq!((tag, field(&body, b'C').as_deref()), ('E', Some("08P01")));
    // Where there is no TLS, that is no message.
    let plain = serve_plainly();
    assert!(shake_hands(Raw::silent(&plain).stream, &authority, None, &TLS13).is_err());
}

#[test]
fn what_comes_in_the_clear_after_a_request_for_tls_is_refused() {
    let (server, authority) = serve_encrypted(|_, _| ());
    let mut raw = Raw::silent(&server);
    raw.send(&[startup(SSL_REQUEST, b""), startup(3 << 16, b"user\0mallory\0\0")].concat());
    let (tag, body) = raw.receive().unwrap();
    assert_eq!((tag, field(&body, b'C').as_deref()), ('E', Some("08P01")));
    assert_eq!(field(&body, b'M').as_deref(), Some("received unencrypted data after SSL request"));
    // Within TLS it is not asked for again.
    let mut raw = encrypted(&server, &authority);
    raw.send(&startup(SSL_REQUEST, b""));
    let (tag, body) = raw.receive().unwrap();
    assert_eq!((tag, field(&body, b'C').as_deref()), ('E', Some("08P01")));
    // Nor is a client heard that shakes hands wrongly.
    let mut stream = ask(&server);
    stream.write_all(&startup(3 << 16, b"user\0mallory\0\0")).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(answer.first().is_none_or(|first| *first == 0x15), "no more than an alert: {answer:?}");
    assert!(connect(&server, &authority).answers(&query("SELECT 1")).starts_with("T D C"));
}

#[test]
fn a_client_that_shakes_hands_slowly_is_not_waited_for() {
    let (server, _) = serve_encrypted(|config, _| config.startup_timeout = Duration::from_millis(300));
    let mut stream = ask(&server);
    let begun = Instant::now();
    // A record of a kilobyte, byte by byte.
    let _ = stream.write_all(&[0x16, 3, 1, 4, 0]);
    while begun.elapsed() < Duration::from_secs(10) && stream.write_all(&[1]).is_ok() {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(begun.elapsed() < Duration::from_secs(5), "it was waited for");
}

#[test]
fn a_client_that_sends_its_first_message_slowly_is_not_waited_for() {
    let (server, authority) =
        serve_encrypted(|config, _| config.startup_timeout = Duration::from_millis(300));
    let begun = Instant::now();
    let mut stream = encrypted(&server, &authority).stream.sock;
    // The start of a record of a kilobyte, byte by byte.
    let _ = stream.write_all(&[0x17, 3, 3, 4, 0]);
    while begun.elapsed() < Duration::from_secs(10) && stream.write_all(&[1]).is_ok() {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(begun.elapsed() < Duration::from_secs(5), "it was waited for");
}

#[test]
fn clients_show_certificates_where_that_is_asked_for() {
    let (server, authority) = serve_encrypted(|config, authority| {
        let own = authority.sign("localhost", 1);
        config.tls = Some(Tls::new(&own.certificate, &own.key, Some(&authority.pem())).unwrap());
    });
    let start = |own: Option<&Signed>, version| {
        let mut raw = shake_hands(ask(&server), &authority, own, version).ok()?;
        raw.stream.write_all(&startup(3 << 16, b"user\0ada\0\0")).ok()?;
        let mut first = [0];
        // With TLS 1.3 only the first answer says that it was refused.
        raw.stream.read_exact(&mut first).ok()?;
        assert_eq!(first, *b"R");
        let mut rest = [0; 8];
        raw.stream.read_exact(&mut rest).ok()?;
        raw.until('Z');
        Some(raw)
    };
    let own = authority.sign("ada", u64::MAX);
    let stranger = Authority::new().sign("mallory", 7);
    for version in [&TLS12, &TLS13] {
        let mut raw = start(Some(&own), version).expect("it is known");
        let how = row(&mut raw, HOW);
        assert_eq!(
            how[4..],
            [some("/C=DE/CN=ada"), some("18446744073709551615"), some("/O=Trust\\, \\\"us\\\"/CN=root")]
        );
        assert!(start(None, version).is_none());
        assert!(start(Some(&stranger), version).is_none());
    }
    let mut raw = Raw::silent(&server);
    raw.send(&startup(3 << 16, b"user\0ada\0\0"));
    assert_eq!(raw.last_error().as_deref(), Some("28000"));
}

#[test]
fn long_messages_go_both_ways() {
    let (server, authority) = serve_encrypted(|_, _| ());
    let mut raw = connect(&server, &authority);
    let sql = format!("SELECT length('{}'), repeat('x', 3000000)", "y".repeat(1_000_000));
    let found = row(&mut raw, &sql);
    assert_eq!(found[0].as_deref(), Some("1000000"));
    assert_eq!(found[1].as_ref().map(String::len), Some(3_000_000));
    // Many small ones in one record, and one in many records.
    let many: Vec<u8> = (0..500).flat_map(|number| query(&format!("SELECT {number}"))).collect();
    raw.send(&many);
    (0..500).for_each(|_| assert_eq!(summary(&raw.until('Z')), "T D C ZI"));
    for byte in query("SELECT 1") {
        raw.send(&[byte]);
    }
    assert_eq!(summary(&raw.until('Z')), "T D C ZI");
}

const ENDLESS: &str = "SELECT count(*) FROM generate_series(1, 100000000) a, generate_series(1, 100000000) b";

#[test]
fn a_statement_is_cancelled_over_either_kind_of_connection() {
    let (server, authority) = serve_encrypted(|_, _| ());
    for is_encrypted in [true, false] {
        let mut raw = encrypted(&server, &authority);
        raw.send(&startup(3 << 16, b"user\0ada\0\0"));
        let received = raw.until('Z');
        let (_, process_and_key) = received.iter().find(|(tag, _)| *tag == 'K').unwrap();
        raw.send(&query(ENDLESS));
        std::thread::sleep(Duration::from_millis(200));
        let request = startup(1234 << 16 | 5678, process_and_key);
        if is_encrypted {
            encrypted(&server, &authority).send(&request);
        } else {
            Raw::silent(&server).send(&request);
        }
        assert!(summary(&raw.until('Z')).ends_with("E57014 ZI"));
        assert_eq!(raw.answers(&query("SELECT 1")), "T D C ZI");
    }
}

#[test]
fn what_runs_for_a_client_that_has_gone_is_cancelled() {
    let (server, authority) = serve_encrypted(|_, _| ());
    let mut looking = Raw::connect(&server);
    let look = format!("SELECT count(*) FROM pg_stat_activity WHERE query = '{ENDLESS}'");
    for says_goodbye in [true, false] {
        let mut raw = connect(&server, &authority);
        raw.answers(&query("SET client_connection_check_interval = 1"));
        raw.send(&query(ENDLESS));
        let begun = Instant::now();
        while row(&mut looking, &look) != [some("1")] {
            assert!(begun.elapsed() < Duration::from_secs(10), "it does not begin");
        }
        if says_goodbye {
            raw.send(&message(b'X', b""));
            raw.stream.conn.send_close_notify();
            raw.stream.flush().unwrap();
        }
        raw.stream.sock.shutdown(Shutdown::Both).unwrap();
        while row(&mut looking, &look) != [some("0")] {
            assert!(begun.elapsed() < Duration::from_secs(10), "it runs on");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn notifications_arrive_and_other_sessions_end_this_one() {
    let (server, authority) = serve_encrypted(|_, _| ());
    let mut raw = connect(&server, &authority);
    let mut other = Raw::connect(&server);
    raw.answers(&query("LISTEN news"));
    for _ in 0..3 {
        other.answers(&query("NOTIFY news, 'hello'"));
        let (tag, body) = raw.receive().unwrap();
        assert_eq!((tag, &body[4..]), ('A', &b"news\0hello\0"[..]));
        // Two in one record: the second must not wait for more to come.
        raw.send(&[query("SELECT 1"), query("SELECT 2")].concat());
        assert_eq!(summary(&raw.until('Z')), "T D C ZI");
        assert_eq!(summary(&raw.until('Z')), "T D C ZI");
    }
    let pid = row(&mut raw, "SELECT pg_backend_pid()")[0].clone().unwrap();
    assert_eq!(other.answers(&query(&format!("SELECT pg_terminate_backend({pid})"))), "T D C ZI");
    let (tag, body) = raw.receive().unwrap();
    assert_eq!((tag, field(&body, b'C').as_deref()), ('E', Some("57P01")));
    let mut last = connect(&server, &authority);
    server.shutdown();
    let (tag, body) = last.receive().unwrap();
    assert_eq!((tag, field(&body, b'C').as_deref()), ('E', Some("57P01")));
}

#[test]
fn channel_binding_is_offered_where_there_is_a_channel() {
    let users = || Users::new([("ada".to_owned(), Verifier::from_password("secret"))]);
    let (server, authority) = serve_encrypted(|config, _| config.auth = Auth::Scram(users()));
    let mechanisms = |body: &[u8]| String::from_utf8(body[4..].to_vec()).unwrap();
    let begin = startup(3 << 16, b"user\0ada\0\0");
    let mut raw = encrypted(&server, &authority);
    raw.send(&begin);
    let (_, body) = raw.receive().unwrap();
    assert_eq!(mechanisms(&body), "SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0");
    // Somebody has hidden the first one from this client.
    let first = b"y,,n=,r=nonce";
    let response = [b"SCRAM-SHA-256\0", &(first.len() as u32).to_be_bytes()[..], first].concat();
    raw.send(&message(b'p', &response));
    let (tag, body) = raw.receive().unwrap();
    assert_eq!((tag, field(&body, b'C').as_deref()), ('E', Some("28000")));
    let mut raw = Raw::silent(&server);
    raw.send(&begin);
    let (_, body) = raw.receive().unwrap();
    assert_eq!(mechanisms(&body), "SCRAM-SHA-256\0\0");
    raw.send(&message(b'p', &[b"SCRAM-SHA-256-PLUS\0", &response[14..]].concat()));
    assert_eq!(raw.last_error().as_deref(), Some("08P01"));
}

#[test]
fn what_is_no_certificate_is_refused() {
    let authority = Authority::new();
    let (one, other) = (authority.sign("localhost", 1), authority.sign("localhost", 2));
    let refused = |certificate: &str, key: &str, authorities: Option<&str>| {
        let error = Tls::new(certificate, key, authorities).unwrap_err();
        assert!(error.hint().is_some());
        assert_eq!(error.state(), SqlState::CONFIG_FILE_ERROR, "{error:?}");
        error.message().to_owned()
    };
    assert!(refused("none", &one.key, None).contains("no certificate"));
    refused(&one.certificate, "none", None);
    refused(&one.certificate, &other.key, None);
    assert!(refused(&one.certificate, &one.key, Some("none")).contains("authorities"));
    Tls::new(&one.certificate, &one.key, Some(&authority.pem())).unwrap();
}
