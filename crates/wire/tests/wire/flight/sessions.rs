//! Authentication, and what a session keeps; encryption.

use arrow_flight::Action;
use firn_wire::{Auth, FlightConfig, FlightServer, Tls, Users, Verifier};
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

use super::*;

fn with_users(config: &mut FlightConfig) {
    let users = Users::new([("ada".to_owned(), Verifier::from_password("love:lace, снег"))]);
    config.auth = Auth::Scram(users);
}

#[test]
fn only_clients_with_a_password_are_accepted() {
    let fixture = serve_with(with_users);
    fixture.run(async {
        let mut client = fixture.client().await;
        assert_eq!(state(query(&mut client, "SELECT 1", None).await), "28000");
        for (user, password) in [("ada", "wrong"), ("nobody", "love:lace, снег"), ("ada", "")] {
            assert_eq!(state(client.handshake(user, password).await), "28P01", "{user}");
        }
        assert!(client.handshake("", "").await.is_err());
        client.set_token("AAAAAAAAAAAAAAAAAAAAAA".into());
        assert_eq!(state(query(&mut client, "SELECT 1", None).await), "28000");
        client.clear_token();
        client.handshake("ada", "love:lace, снег").await.unwrap();
        let rows = query(&mut client, "SELECT current_user::text", None).await.unwrap();
        assert_eq!(rows[0].column(0).as_string::<i32>().value(0), "ada");

        // Every call may carry the password, too.
        let mut client = fixture.client().await;
        client.set_header("authorization", "Basic YWRhOmxvdmU6bGFjZSwg0YHQvdC10LM=");
        number(&mut client, "SELECT 1::bigint", None).await.unwrap();
        client.set_header("authorization", "Basic YWRhOnF1YXRzY2g=");
        assert_eq!(state(query(&mut client, "SELECT 1", None).await), "28P01");
        client.set_header("authorization", "Digest x");
        assert_eq!(state(query(&mut client, "SELECT 1", None).await), "28000");
    });
}

/// A message that is too long would be refused for its length, if it were read.
#[test]
fn an_unknown_client_is_refused_before_its_message_is_read() {
    let fixture = serve_with(|config| {
        with_users(config);
        config.max_message_bytes = 1000;
    });
    fixture.run(async {
        let mut client = fixture.client().await;
        let long = "x".repeat(1 << 20);
        assert_eq!(state(query(&mut client, &long, None).await), "28000");
        let action = client.do_action(Action::new("CloseSession", long.clone())).await;
        assert_eq!(state(action), "28000");
        let handshake = arrow_flight::HandshakeRequest { protocol_version: 0, payload: long.clone().into() };
        let refused = client.inner_mut().handshake(futures::stream::iter([handshake])).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::OutOfRange, "{refused}");
        client.handshake("ada", "love:lace, снег").await.unwrap();
        let refused = query(&mut client, &long, None).await.unwrap_err().to_string();
        assert!(refused.contains("decoded message length too large"), "{refused}");
    });
}

#[test]
fn settings_last_as_long_as_the_session_that_they_were_made_in() {
    let fixture = serve();
    fixture.execute("CREATE SCHEMA a; CREATE TABLE a.t (x bigint); INSERT INTO a.t VALUES (7)");
    fixture.run(async {
        let mut client = fixture.client().await;
        client.handshake("ada", "").await.unwrap();
        client.execute_update("SET search_path = a".into(), None).await.unwrap();
        assert_eq!(number(&mut client, "SELECT x FROM t", None).await.unwrap(), 7);
        let mut other = fixture.client().await;
        other.handshake("ada", "").await.unwrap();
        assert_eq!(state(query(&mut other, "SELECT x FROM t", None).await), "42P01");
        // In a transaction, if it commits.
        use arrow_flight::sql::EndTransaction;
        for (end, works) in [(EndTransaction::Rollback, false), (EndTransaction::Commit, true)] {
            let transaction = other.begin_transaction().await.unwrap();
            let set = "SET search_path = a".to_owned();
            other.execute_update(set, Some(transaction.clone())).await.unwrap();
            assert_eq!(number(&mut other, "SELECT x FROM t", Some(&transaction)).await.unwrap(), 7);
            other.end_transaction(transaction, end).await.unwrap();
            assert_eq!(query(&mut other, "SELECT x FROM t", None).await.is_ok(), works);
        }
        // After the session was closed, its token is invalid.
        other.do_action(Action::new("CloseSession", "")).await.unwrap().message().await.unwrap().unwrap();
        assert_eq!(state(query(&mut other, "SELECT 1", None).await), "28000");
        assert_eq!(number(&mut client, "SELECT x FROM t", None).await.unwrap(), 7);
    });
}

/// The request's bytes as Flight.proto has them: `{"schema": "a"}`.
#[test]
fn session_options_are_settings() {
    let fixture = serve();
    fixture.execute("CREATE SCHEMA a; CREATE TABLE a.t (x bigint); INSERT INTO a.t VALUES (7)");
    fixture.run(async {
        let mut client = fixture.client().await;
        let set = || Action::new("SetSessionOptions", &b"\x0a\x0d\x0a\x06schema\x12\x03\x0a\x01a"[..]);
        assert_eq!(state(client.do_action(set()).await), "0A000");
        client.handshake("ada", "").await.unwrap();
        let answer = client.do_action(set()).await.unwrap().message().await.unwrap().unwrap();
        assert!(answer.body.is_empty(), "no option was refused");
        assert_eq!(number(&mut client, "SELECT x FROM t", None).await.unwrap(), 7);
        let reply = client.do_action(Action::new("GetSessionOptions", "")).await.unwrap();
        let reply = { reply }.message().await.unwrap().unwrap().body;
        assert!(reply.windows(6).any(|bytes| bytes == b"schema"));
    });
}

#[test]
fn strings_are_views_on_request_and_cost_about_their_bytes() {
    let fixture = serve();
    fixture.execute("CREATE TABLE t (id bigint PRIMARY KEY, name text)");
    fixture.execute("INSERT INTO t SELECT g, repeat('firn ', 20) || g FROM generate_series(1, 50000) g");
    let data = fixture.number("SELECT sum(octet_length(name))::bigint FROM t") as usize;
    fixture.run(async {
        for (strings, per_string) in [("plain", 5), ("view", 17)] {
            let mut client = fixture.client().await;
            client.set_header("x-firn-strings", strings);
            // All rows, and a part of each block.
            for (sql, rows) in
                [("SELECT name FROM t", 50_000), ("SELECT name FROM t WHERE id % 10 = 0", 5000)]
            {
                let info = client.execute(sql.into(), None).await.unwrap();
                let ticket = info.endpoint[0].ticket.clone().unwrap();
                let mut request = tonic::Request::new(ticket);
                request.metadata_mut().insert("x-firn-strings", strings.parse().unwrap());
                let mut messages = client.inner_mut().do_get(request).await.unwrap().into_inner();
                let mut sent = 0;
                while let Some(message) = messages.message().await.unwrap() {
                    sent += message.data_body.len();
                }
                let most = (data / 50_000 + per_string) * rows * 5 / 4 + 10_000;
                assert!(
                    (data / 50_000 * rows * 9 / 10..most).contains(&sent),
                    "{sent} bytes, {strings}: {sql}"
                );
                let came = fetch(&mut client, info).await.unwrap();
                assert_eq!(came.iter().map(RecordBatch::num_rows).sum::<usize>(), rows);
                let is_view =
                    matches!(came[0].schema().field(0).data_type(), arrow_schema::DataType::Utf8View);
                assert_eq!(is_view, strings == "view");
            }
        }
        let mut client = fixture.client().await;
        client.set_header("x-firn-strings", "purple");
        assert_eq!(state(query(&mut client, "SELECT 1", None).await), "22023");
    });
}

fn certificate() -> (String, String) {
    let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    (certified.cert.pem(), certified.signing_key.serialize_pem())
}

#[test]
fn with_a_certificate_plain_text_is_refused() {
    let (certificate, key) = certificate();
    let fixture = serve_with(|config| {
        with_users(config);
        config.tls = Some(Tls::new(&certificate, &key, None).unwrap());
    });
    fixture.run(async {
        let port = fixture.server.local_addr().port();
        let endpoint = |url: String| Endpoint::from_shared(url).unwrap();
        let tls = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(&certificate))
            .domain_name("localhost");
        let channel =
            endpoint(format!("https://127.0.0.1:{port}")).tls_config(tls).unwrap().connect().await.unwrap();
        let mut client = Client::new(channel);
        client.handshake("ada", "love:lace, снег").await.unwrap();
        assert_eq!(number(&mut client, "SELECT 1::bigint", None).await.unwrap(), 1);
        // Without TLS, and with a certificate that the client does not trust.
        if let Ok(channel) = endpoint(format!("http://127.0.0.1:{port}")).connect().await {
            assert!(Client::new(channel).handshake("ada", "love:lace, снег").await.is_err());
        }
        let (stranger, _) = self::certificate();
        let tls =
            ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&stranger)).domain_name("localhost");
        assert!(
            endpoint(format!("https://127.0.0.1:{port}")).tls_config(tls).unwrap().connect().await.is_err()
        );
    });
}

#[test]
fn clients_show_certificates_where_that_is_asked_for() {
    let (certificate, key) = certificate();
    let (own, own_key) = self::certificate();
    let fixture = serve_with(|config| config.tls = Some(Tls::new(&certificate, &key, Some(&own)).unwrap()));
    fixture.run(async {
        let port = fixture.server.local_addr().port();
        let tls = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(&certificate))
            .domain_name("localhost");
        let connect = async |tls: ClientTlsConfig| {
            let endpoint = Endpoint::from_shared(format!("https://127.0.0.1:{port}")).unwrap();
            let channel = endpoint.tls_config(tls).unwrap().connect().await.map_err(drop)?;
            number(&mut Client::new(channel), "SELECT 1::bigint", None).await.map_err(drop)
        };
        assert_eq!(connect(tls.clone().identity(Identity::from_pem(&own, &own_key))).await, Ok(1));
        assert_eq!(connect(tls.clone()).await, Err(()));
        let (stranger, stranger_key) = self::certificate();
        assert_eq!(connect(tls.identity(Identity::from_pem(&stranger, &stranger_key))).await, Err(()));
    });
}

#[test]
fn a_server_that_would_give_passwords_away_does_not_start() {
    let database = Database::memory().unwrap();
    let start = |listen: &str, change: fn(&mut FlightConfig)| {
        let mut config = FlightConfig { listen: listen.to_owned(), ..FlightConfig::default() };
        change(&mut config);
        FlightServer::start(database.clone(), config).err().map(|error| error.state().as_str().to_owned())
    };
    assert_eq!(start("0.0.0.0:0", with_users).as_deref(), Some("28000"));
    assert_eq!(start("127.0.0.1:0", with_users), None);
    assert_eq!(start("nowhere", |_| {}).as_deref(), Some("22023"));
    let taken = FlightServer::start(
        database.clone(),
        FlightConfig { listen: "127.0.0.1:0".into(), ..FlightConfig::default() },
    );
    let taken = taken.unwrap();
    assert_eq!(start(&taken.local_addr().to_string(), |_| {}).as_deref(), Some("55006"));
}
