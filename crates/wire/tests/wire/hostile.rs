//! Bytes that no correct client sends. Each connection may fail; the server and the others may not.

use firn_base::random::Random;
use std::io::Write;
use std::net::Shutdown;

use crate::raw::*;

fn still_serves(server: &firn_wire::Server) {
    assert_eq!(Raw::connect(server).answers(&query("SELECT 1")), "T D C ZI");
}

#[test]
fn malformed_start_up_packets_end_their_connection_with_08p01() {
    let server = serve_plainly();
    let bad: [&[u8]; 6] = [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\0\0\0\x04",
        b"\0\0\0\x09\0\x03\0\0x",
        b"\xff\xff\xff\xff\0\x03\0\0",
        b"\0\0\0\x08\0\x02\0\0",
        b"\0\0\0\x0d\0\x03\0\0user\0",
    ];
    for bytes in bad {
        let mut raw = Raw::silent(&server);
        raw.send(bytes);
        assert_eq!(raw.last_error().as_deref(), Some("08P01"), "{bytes:?}");
    }
    still_serves(&server);
}

#[test]
fn malformed_messages_end_their_connection_with_08p01() {
    let server = serve_plainly();
    let mut bystander = Raw::connect(&server);
    let bad = [
        message(b'?', b""),
        b"Q\0\0\0\x03".to_vec(),
        b"Q\x7f\xff\xff\xff".to_vec(),
        b"Q\xff\xff\xff\xff".to_vec(),
        message(b'Q', b"no end"),
        message(b'S', b"surplus"),
        message(b'B', b"\0\0\0\x02\0\0\0\0\0\0\0\0"),
        message(b'B', b"\0\0\0\x01\0\x07\0\0\0\0"),
        message(b'D', b"X\0"),
        message(b'E', b"p\0\0"),
        message(b'P', b"\0SELECT 1\0\0\x05"),
    ];
    for bytes in bad {
        let mut raw = Raw::connect(&server);
        raw.send(&bytes);
        assert_eq!(raw.last_error().as_deref(), Some("08P01"), "{bytes:?}");
    }
    assert_eq!(bystander.answers(&query("SELECT 1")), "T D C ZI");
}

/// Sends every prefix of a correct conversation and disconnects.
#[test]
fn a_conversation_that_is_cut_anywhere_affects_no_others() {
    let server = serve(|config| config.max_connections = 10_000);
    let conversation = [
        startup(3 << 16, b"user\0tester\0application_name\0x\0\0"),
        query("SELECT 1"),
        parse("s", "SELECT $1::int"),
        bind("p", "s", &["1"]),
        describe('P', "p"),
        execute("p", 1),
        sync(),
        message(b'X', b""),
    ]
    .concat();
    for cut in 0..=conversation.len() {
        let mut raw = Raw::silent(&server);
        raw.send(&conversation[..cut]);
        raw.stream.shutdown(Shutdown::Write).unwrap();
        while raw.receive().is_some() {}
    }
    still_serves(&server);
}

#[test]
fn random_bytes_neither_block_nor_damage_the_server() {
    let server = serve(|config| config.max_connections = 10_000);
    let seed = 0xf1a4;
    let mut random = Random::seeded(seed);
    for round in 0..300 {
        let mut raw = if round % 3 == 0 { Raw::silent(&server) } else { Raw::connect(&server) };
        let mut bytes = Vec::new();
        for _ in 0..random.uniform(1, 20) {
            // Half of them look like messages, so that their frames are accepted.
            if random.next_u64().is_multiple_of(2) {
                let tags = b"BCDEHPSQFdcfp";
                let tag = tags[random.uniform(0, tags.len() as i64 - 1) as usize];
                let body: Vec<u8> = (0..random.uniform(0, 30)).map(|_| random.next_u64() as u8 & 3).collect();
                bytes.extend(message(tag, &body));
            } else {
                bytes.extend((0..random.uniform(0, 10)).map(|_| random.next_u64() as u8));
            }
        }
        // The server may have disconnected already.
        let _ = raw.stream.write_all(&bytes);
        let _ = raw.stream.shutdown(Shutdown::Write);
        while raw.receive().is_some() {}
    }
    still_serves(&server);
}

#[test]
fn text_that_is_no_utf8_fails_only_its_statement() {
    let server = serve_plainly();
    let mut raw = Raw::connect(&server);
    assert_eq!(raw.answers(&message(b'Q', b"SELECT '\xff'\0")), "E22021 ZI");
    let series = [message(b'P', b"\0SELECT '\xff'\0\0\0"), sync()].concat();
    assert_eq!(raw.answers(&series), "E22021 ZI");
    assert_eq!(raw.answers(&query("SELECT 1")), "T D C ZI");
}

#[test]
fn a_message_that_is_announced_but_does_not_come_costs_no_memory_and_no_other_client() {
    let server = serve_plainly();
    let mut waiting: Vec<_> = (0..20).map(|_| Raw::connect(&server)).collect();
    for raw in &mut waiting {
        raw.send(b"Q\x0f\xff\xff\xff"); // Just below the limit of 256 MiB.
    }
    still_serves(&server);
}
