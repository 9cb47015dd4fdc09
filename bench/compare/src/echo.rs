//! Round trips over TCP to a thread that echoes its input: the part of every time over a
//! socket that no server can avoid.

use crate::Outcome;
use firn_base::clock::thread_cpu_time;
use firn_base::thread::{pin_to_core, spawn};
use firn_bench::short_duration;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Arguments of `echo`.
#[derive(clap::Args)]
pub struct Options {
    /// For how long.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Bytes of a request and of its reply: about those of a prepared point select.
    #[arg(long, default_value_t = 60)]
    bytes: usize,
    /// Puts client and server on one core, so that neither waits for the other core to wake.
    #[arg(long)]
    one_core: bool,
}

/// Measures.
pub fn run(options: Options) -> Outcome {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let (bytes, one_core) = (options.bytes, options.one_core);
    let server = spawn("echo", move || -> std::io::Result<Duration> {
        pin_to_core(if one_core { 0 } else { 1 });
        let (mut client, _) = listener.accept()?;
        client.set_nodelay(true)?;
        let mut buffer = vec![0; bytes];
        let start = thread_cpu_time();
        while client.read_exact(&mut buffer).is_ok() {
            client.write_all(&buffer)?;
        }
        Ok(thread_cpu_time() - start)
    });
    pin_to_core(0);
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; options.bytes];
    let mut round_trips = 0u32;
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(options.seconds) {
        stream.write_all(&buffer)?;
        stream.read_exact(&mut buffer)?;
        round_trips += 1;
    }
    let elapsed = start.elapsed();
    drop(stream);
    let server_time = server.join().expect("the server does not panic")?;
    println!(
        "echo: {:.0} round trips/s, {} of processor time a round trip in the server",
        f64::from(round_trips) / elapsed.as_secs_f64(),
        short_duration(server_time / round_trips)
    );
    Ok(())
}
