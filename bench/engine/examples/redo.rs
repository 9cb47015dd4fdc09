//! What a redo log of procedures and their parameters would save, and what it would cost, beside ours, which has the changes (Mühlbauer,
//! dissertation, TU München 2016, §4.2.1 and figure 4.4); and what compression would save.
//!
//! `redo [warehouses] [transactions]`. One thread runs TPC-C on a database with a log. A replica stores that log, and replays it
//! afterwards. Then the log of procedures is run on a copy of the database in memory, without a log.
//!
//! A log of procedures cannot be the product's: it would need stored procedures that read no clock, and rows would get other ids than
//! on the primary, since these depend on when the collector frees slots.

use firn_base::disk::{Disk, RealDisk};
use firn_base::{Error, Result, SqlState};
use firn_bench::driver::Client;
use firn_bench::tpcc::input::{Input, Terminal};
use firn_bench::tpcc::native::{Tpcc, Worker};
use firn_bench::tpcc::{Scale, consistency, load};
use firn_replica::{Channel, Peer, Received, Receiver, Senders, Taken, join, serve};
use firn_txn::{Config, Engine};
use std::sync::mpsc::{Receiver as Queue, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default| arguments.next().map_or(default, |text| text.parse().expect("a number"));
    let (warehouses, transactions) = (number(5), number(300_000));
    let scale = Scale::warehouses(warehouses);
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (primary, replica) = (directory.path().join("primary"), directory.path().join("replica"));

    let engine = Engine::open(Config { directory: Some(primary), ..Config::default() })?;
    load::load(&engine, scale, 1, 2, &Default::default())?;
    engine.checkpoint()?;
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    join::join(&disk, &replica, &mut connect(&engine, &Arc::default()), "127.0.0.1:1", "redo")?;
    let follower = Engine::open(Config { directory: Some(replica), ..Config::default() })?;

    // The run.
    let tpcc = Tpcc::open(&engine)?;
    let mut worker = Worker::new(&tpcc, Terminal::new(scale, 1, 0, 1));
    let (mut procedures, mut changes) = (Vec::new(), 0);
    let (bytes, begun) = (engine.log_bytes().0, Instant::now());
    for _ in 0..transactions {
        worker.next_input();
        if worker.run()?.committed {
            let length = procedures.len();
            worker.input().encode(&mut procedures);
            changes += u64::from(procedures.len() > length);
        }
    }
    engine.flush_log()?;
    let (took, bytes) = (begun.elapsed(), engine.log_bytes().0 - bytes);
    println!("{transactions} transactions in {}, {changes} of which change rows", seconds(took));
    println!(
        "log: {} bytes for each of these; of procedures {}",
        bytes / changes,
        procedures.len() as u64 / changes
    );

    // The replica.
    let messages = Arc::default();
    receive(&follower, &mut connect(&engine, &messages), engine.log_point()?.lsn.0)?;
    let begun = Instant::now();
    let mut replayer = follower.replayer()?;
    while replayer.replay_next()?.is_some() {}
    let physical = begun.elapsed();
    check(&follower, scale)?;

    // The procedures.
    let copy = Engine::open(Config::default())?;
    load::load(&copy, scale, 1, 2, &Default::default())?;
    let tpcc = Tpcc::open(&copy)?;
    let mut worker = Worker::new(&tpcc, Terminal::new(scale, 1, 0, 1));
    let (mut rest, begun) = (&procedures[..], Instant::now());
    while let Some(input) = Input::decode(&mut rest) {
        worker.enter(input);
        assert!(worker.run()?.committed, "it has committed before");
    }
    let logical = begun.elapsed();
    check(&copy, scale)?;
    for (what, time) in [("of the log", physical), ("of procedures", logical)] {
        let (ratio, saved) = (took.div_duration_f64(time), 100.0 * (1.0 - time.div_duration_f64(took)));
        println!(
            "replay {what}: {}, {ratio:.2} times as fast as the run, {saved:.0} % less time",
            seconds(time)
        );
    }

    // The stream.
    let messages = messages.lock().expect("no thread has panicked");
    let lz4 = (lz4_flex::compress as fn(&[u8]) -> Vec<u8>, lz4_decompress as fn(&[u8], usize) -> Vec<u8>);
    let zstd = (zstd_compress as fn(&[u8]) -> Vec<u8>, zstd_decompress as fn(&[u8], usize) -> Vec<u8>);
    for length in [4 << 10, 64 << 10, 1 << 20] {
        for (name, (compress, decompress)) in [("lz4", lz4), ("zstd -1", zstd)] {
            measure(
                name,
                length,
                messages.iter().flat_map(|message| message.chunks(length)),
                compress,
                decompress,
            );
        }
    }
    Ok(())
}

fn seconds(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}

fn check(engine: &Arc<Engine>, scale: Scale) -> Result<()> {
    let violations = consistency::violations(engine, scale)?;
    assert!(violations.is_empty(), "{violations:?}");
    Ok(())
}

fn zstd_compress(bytes: &[u8]) -> Vec<u8> {
    zstd::bulk::compress(bytes, 1).expect("it fits into memory")
}

fn zstd_decompress(bytes: &[u8], length: usize) -> Vec<u8> {
    zstd::bulk::decompress(bytes, length).expect("it was just compressed")
}

fn lz4_decompress(bytes: &[u8], length: usize) -> Vec<u8> {
    lz4_flex::decompress(bytes, length).expect("it was just compressed")
}

fn measure<'m>(
    name: &str,
    length: usize,
    pieces: impl Iterator<Item = &'m [u8]>,
    compress: fn(&[u8]) -> Vec<u8>,
    decompress: fn(&[u8], usize) -> Vec<u8>,
) {
    let (mut before, mut after, mut times) = (0, 0, [Duration::ZERO; 2]);
    for piece in pieces {
        let begun = Instant::now();
        let compressed = compress(piece);
        times[0] += begun.elapsed();
        let begun = Instant::now();
        assert!(decompress(&compressed, piece.len()) == piece);
        times[1] += begun.elapsed();
        (before, after) = (before + piece.len(), after + compressed.len());
    }
    let speed = times.map(|time| before as f64 / 1e6 / time.as_secs_f64());
    println!(
        "{name:<8}by {:>4} KiB: {:.2} of the bytes, compressed at {:.0} MB/s, decompressed at {:.0} MB/s",
        length >> 10,
        after as f64 / before as f64,
        speed[0],
        speed[1]
    );
}

/// Receives the log up to a position.
fn receive(engine: &Arc<Engine>, channel: &mut Pipe, end: u64) -> Result<()> {
    let mut receiver = Receiver::begin(engine.clone(), channel, "redo")?;
    let mut message = Vec::new();
    while engine.received()?.lsn.0 < end {
        if channel.receive_within(&mut message, Duration::from_secs(10))? != Received::Message {
            return Err(lost());
        }
        if receiver.take(&message, channel)? == Taken::Groups {
            receiver.answer(channel)?;
        }
    }
    Ok(())
}

/// Messages with parts of the log.
type Messages = Arc<Mutex<Vec<Vec<u8>>>>;

/// One end of a connection in memory.
struct Pipe {
    sender: SyncSender<Vec<u8>>,
    queue: Queue<Vec<u8>>,
    /// What is sent, if it is long.
    messages: Messages,
}

/// Connects to a thread that serves a database, and collects what it sends.
fn connect(engine: &Arc<Engine>, messages: &Messages) -> Pipe {
    let ((to_server, from_client), (to_client, from_server)) = (sync_channel(4), sync_channel(4));
    let (engine, mut end) =
        (engine.clone(), Pipe { sender: to_client, queue: from_client, messages: messages.clone() });
    std::thread::spawn(move || {
        let peer = Peer { name: "redo".to_owned(), voter: None, session: 0, client: None, begun: 0 };
        let no_voter = |_: &[u8]| Err(lost());
        // It ends when the other side is gone.
        let _ = serve(&engine, &mut end, &Senders::default(), peer, &|| {}, &no_voter);
    });
    Pipe { sender: to_server, queue: from_server, messages: Arc::default() }
}

impl Channel for Pipe {
    fn send(&mut self, parts: &[&[u8]]) -> Result<()> {
        let message = parts.concat();
        if message.len() >= 1000 {
            self.messages.lock().expect("no thread has panicked").push(message.clone());
        }
        self.sender.send(message).map_err(|_| lost())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }

    fn receive(&mut self, message: &mut Vec<u8>) -> Result<bool> {
        Ok(self.queue.recv().map(|received| *message = received).is_ok())
    }

    fn receive_within(&mut self, message: &mut Vec<u8>, longest: Duration) -> Result<Received> {
        match self.queue.recv_timeout(longest) {
            Ok(received) => {
                *message = received;
                Ok(Received::Message)
            }
            Err(RecvTimeoutError::Timeout) => Ok(Received::Nothing),
            Err(RecvTimeoutError::Disconnected) => Ok(Received::End),
        }
    }
}

fn lost() -> Error {
    Error::new(SqlState::CONNECTION_FAILURE, "the connection was lost")
}
