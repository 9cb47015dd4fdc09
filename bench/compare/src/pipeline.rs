//! Reads by primary key over a socket in pipelines, from clients that do little work. Their messages are
//! made beforehand. Of the replies they read tags, lengths and values only. So the server is the limit,
//! which it is not under pgbench.
//!
//! The table is pgbench's. Each pipeline is as many Bind and Execute as it has reads and one Sync. A
//! client has two pipelines in flight, so that the server finds the next one when it has answered one.

use crate::Outcome;
use bytes::BytesMut;
use clap::Args;
use firn_base::random::Random;
use firn_base::thread::spawn;
use postgres_protocol::IsNull;
use postgres_protocol::message::frontend;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Arguments of `pipeline`.
#[derive(Args, Clone)]
pub struct Options {
    /// The address of the server, which must not require a password.
    #[arg(long)]
    address: String,
    /// The user to connect as.
    #[arg(long, default_value = "firn")]
    user: String,
    /// The database to connect to.
    #[arg(long, default_value = "firn")]
    database: String,
    /// pgbench's scale factor of the tables.
    #[arg(long, default_value_t = 1)]
    scale: i64,
    /// Reads of a pipeline.
    #[arg(long, default_value_t = 100)]
    reads: usize,
    /// Clients at a time.
    #[arg(long, default_value_t = 1)]
    clients: u64,
    /// For how long.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
}

/// Pipelines that a client makes and sends in turn.
const PIPELINES: usize = 256;
/// Rows of pgbench's accounts at scale 1.
const ACCOUNTS: i64 = 100_000;
/// Binary, in Bind.
const BINARY: [i16; 1] = [1];

/// Measures.
pub fn run(options: Options) -> Outcome {
    let threads: Vec<_> = (0..options.clients)
        .map(|seed| {
            let options = options.clone();
            spawn("client", move || Client::connect(&options)?.run(&options, seed))
        })
        .collect();
    let (mut reads, mut sum, mut rate) = (0, 0, 0.0);
    for thread in threads {
        let ran = thread.join().expect("clients do not panic")?;
        reads += ran.reads;
        sum += ran.sum;
        rate += ran.reads as f64 / ran.elapsed.as_secs_f64();
    }
    println!("number of reads actually processed: {reads}");
    println!("reads a second = {rate:.0}, sum of the balances read = {sum}");
    Ok(())
}

struct Ran {
    reads: u64,
    sum: i64,
    elapsed: Duration,
}

struct Client {
    stream: TcpStream,
    /// Only `start..end` holds bytes that have arrived and were not read.
    received: Vec<u8>,
    start: usize,
    end: usize,
}

impl Client {
    fn connect(options: &Options) -> io::Result<Client> {
        let stream = TcpStream::connect(&options.address)?;
        stream.set_nodelay(true)?;
        let mut client = Client { stream, received: vec![0; 64 * 1024], start: 0, end: 0 };
        let mut out = BytesMut::new();
        let parameters = [("user", options.user.as_str()), ("database", options.database.as_str())];
        frontend::startup_message(parameters, &mut out)?;
        client.stream.write_all(&out)?;
        client.answers()?;
        Ok(client)
    }

    fn run(&mut self, options: &Options, seed: u64) -> io::Result<Ran> {
        let mut out = BytesMut::new();
        frontend::parse("read", "SELECT abalance FROM pgbench_accounts WHERE aid = $1", [], &mut out)?;
        frontend::sync(&mut out);
        self.stream.write_all(&out)?;
        self.answers()?;
        let mut random = Random::seeded(seed);
        let pipelines = (0..PIPELINES)
            .map(|_| pipeline(options.reads, || random.uniform(1, ACCOUNTS * options.scale)))
            .collect::<io::Result<Vec<_>>>()?;
        let mut ran = Ran { reads: 0, sum: 0, elapsed: Duration::ZERO };
        let (start, length) = (Instant::now(), Duration::from_secs(options.seconds));
        let mut under_way = 0;
        for pipeline in pipelines.iter().cycle() {
            self.stream.write_all(pipeline)?;
            under_way += 1;
            let ends = start.elapsed() >= length;
            while under_way > if ends { 0 } else { 1 } {
                let (rows, sum) = self.answers()?;
                assert_eq!(rows, options.reads as u64, "every key is that of one row");
                ran.reads += rows;
                ran.sum += sum;
                under_way -= 1;
            }
            if ends {
                break;
            }
        }
        ran.elapsed = start.elapsed();
        Ok(ran)
    }

    /// Reads replies up to a ReadyForQuery. Returns how many rows arrived, and the sum of their only column.
    fn answers(&mut self) -> io::Result<(u64, i64)> {
        let (mut rows, mut sum) = (0, 0);
        loop {
            let pending = &self.received[self.start..self.end];
            let Some((header, rest)) = pending.split_first_chunk::<5>() else {
                self.receive()?;
                continue;
            };
            let length = u32::from_be_bytes([header[1], header[2], header[3], header[4]]) as usize;
            let Some(body) = rest.get(..length - 4) else {
                self.receive()?;
                continue;
            };
            let tag = header[0];
            match tag {
                // columns:i16 length:i32 value:i32
                b'D' => {
                    rows += 1;
                    sum += i64::from(i32::from_be_bytes(body[6..10].try_into().expect("4 bytes")));
                }
                b'E' => return Err(io::Error::other(String::from_utf8_lossy(body).into_owned())),
                _ => {}
            }
            self.start += 1 + length;
            if tag == b'Z' {
                return Ok((rows, sum));
            }
        }
    }

    fn receive(&mut self) -> io::Result<()> {
        self.received.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        assert!(self.end < self.received.len(), "answers are small");
        match self.stream.read(&mut self.received[self.end..])? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            read => {
                self.end += read;
                Ok(())
            }
        }
    }
}

/// The messages of a pipeline.
fn pipeline(reads: usize, mut key: impl FnMut() -> i64) -> io::Result<BytesMut> {
    let mut out = BytesMut::new();
    for _ in 0..reads {
        let key = key() as i32;
        let encode = |key: i32, out: &mut BytesMut| {
            out.extend_from_slice(&key.to_be_bytes());
            Ok(IsNull::No)
        };
        frontend::bind("", "read", BINARY, [key], encode, BINARY, &mut out)
            .map_err(|_| io::Error::other("a key does not fit its message"))?;
        frontend::execute("", 0, &mut out)?;
    }
    frontend::sync(&mut out);
    Ok(out)
}
