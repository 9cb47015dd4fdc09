//! Native TPC-C, for profiling without the server around it:
//! `tpcc [warehouses] [threads] [seconds] [directory]`.

use firn_bench::driver::{self, Live, Options};
use firn_bench::tpcc::input::Terminal;
use firn_bench::tpcc::native::{Tpcc, Worker};
use firn_bench::tpcc::{Scale, consistency, load};
use firn_txn::{Config, Engine};
use std::time::{Duration, Instant};

fn main() -> firn_base::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default| arguments.next().map_or(default, |text| text.parse().expect("a number"));
    let (warehouses, clients, seconds) = (number(5), number(1), number(10));
    let directory = std::env::args().nth(4).map(Into::into);

    let engine = Engine::open(Config { directory, ..Config::default() })?;
    let scale = Scale::warehouses(warehouses as i32);
    let start = Instant::now();
    load::load(&engine, scale, 1, 2, &Default::default())?;
    println!("loaded in {:.1} s", start.elapsed().as_secs_f64());

    let tpcc = Tpcc::open(&engine)?;
    let duration = Duration::from_secs(seconds);
    let options = Options { clients: clients as usize, duration, core: None, rate: None };
    let client = |number| Ok(Worker::new(&tpcc, Terminal::new(scale, 1, number, clients as usize)));
    println!("{}", driver::run(&client, Some(&engine), options, &Live::default())?);

    let violations = consistency::violations(&engine, scale)?;
    println!("{} violations of the consistency conditions", violations.len());
    for violation in violations {
        println!("{violation}");
    }
    engine.close()
}
