//! Measures the cost of the socket alone: a server that answers every message of PostgreSQL's protocol with
//! the same row and does not decode it.
//!
//! ```text
//! cargo run --release -p firn-wire --example echo -- 127.0.0.1:5433
//! pgbench -h 127.0.0.1 -p 5433 -n -M prepared -f one_select.sql -T 5
//! ```

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use firn_wire::decode::{Frame, Startup, decode_startup, frame_message, frame_startup};

/// One column of type integer called `abalance`, one row with 0 in it.
const ROW_DESCRIPTION: &[u8] = b"T\0\0\0\x21\0\x01abalance\0\0\0\0\0\0\0\0\0\0\x17\0\x04\xff\xff\xff\xff\0\0";
const ROW: &[u8] = b"D\0\0\0\x0b\0\x01\0\0\0\x010C\0\0\0\x0dSELECT 1\0";
const READY: &[u8] = b"Z\0\0\0\x05I";

fn main() -> std::io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:0".to_owned());
    let listener = TcpListener::bind(address)?;
    println!("listening on {}", listener.local_addr()?);
    for stream in listener.incoming() {
        let stream = stream?;
        std::thread::spawn(move || serve(stream));
    }
    Ok(())
}

fn serve(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut input = vec![0; 64 * 1024];
    let (mut start, mut end) = (0, 0);
    let mut output = Vec::new();
    let mut started = false;
    loop {
        loop {
            let pending = &input[start..end];
            let frame = if started { frame_message(pending, input.len()) } else { frame_startup(pending) };
            let Ok(Frame::Complete(length)) = frame else { break };
            let packet = &pending[..length];
            if started {
                match packet[0] {
                    b'P' => output.extend_from_slice(b"1\0\0\0\x04"),
                    b'B' => output.extend_from_slice(b"2\0\0\0\x04"),
                    b'C' => output.extend_from_slice(b"3\0\0\0\x04"),
                    b'D' => output.extend_from_slice(ROW_DESCRIPTION),
                    b'E' => output.extend_from_slice(ROW),
                    b'Q' => output.extend_from_slice(&[ROW_DESCRIPTION, ROW, READY].concat()),
                    b'S' => output.extend_from_slice(READY),
                    _ => return Ok(()),
                }
            } else if let Ok(Startup::Session { .. }) = decode_startup(packet) {
                started = true;
                output.extend_from_slice(b"R\0\0\0\x08\0\0\0\0");
                output.extend_from_slice(b"S\0\0\0\x18server_version\x0015.0\0");
                output.extend_from_slice(READY);
            } else {
                output.push(b'N');
            }
            start += length;
        }
        stream.write_all(&output)?;
        output.clear();
        input.copy_within(start..end, 0);
        (start, end) = (0, end - start);
        match stream.read(&mut input[end..])? {
            0 => return Ok(()),
            read => end += read,
        }
    }
}
