//! `kill -9` for real: a child process commits and says so, is killed at a random moment, and what it
//! said must be there. The child is this test binary, running the ignored test below.

use crate::durable::config;
use crate::transfers;
use firn_base::random::Random;
use firn_base::sync::{Arc, Mutex};
use firn_base::{clock, thread};
use firn_log::LogOptions;
use firn_txn::{Config, Engine};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

const DIRECTORY: &str = "FIRN_TEST_DIRECTORY";
const ROUNDS: u32 = 15;

/// Checkpoints and freezes all the time, in segments that are soon full.
fn real_config(directory: PathBuf) -> Config {
    let log = LogOptions { segment_bytes: 64 << 10, ..LogOptions::default() };
    Config {
        directory: Some(directory),
        checkpoint_after_bytes: 100_000,
        log,
        freeze_after: Some(Duration::ZERO),
        ..config()
    }
}

#[test]
fn a_killed_process_has_lost_nothing_that_it_acknowledged() {
    let root = std::env::temp_dir().join(format!("firn-killed-{}", std::process::id()));
    let engine = Engine::open(real_config(root.clone())).unwrap();
    transfers::create_accounts(&engine, transfers::FEW);
    engine.close().unwrap();
    drop(engine);
    let mut random = Random::from_entropy();
    let mut acknowledged = vec![0; transfers::THREADS as usize];
    for round in 0..ROUNDS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["killed::child", "--exact", "--ignored", "--nocapture"])
            .env(DIRECTORY, &root)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let listener = thread::spawn("listener", move || {
            // "acknowledged <thread> <count>"; the last line may be cut off.
            let mut newest = vec![0; transfers::THREADS as usize];
            for line in output.lines().map_while(Result::ok) {
                let words: Vec<&str> = line.split(' ').collect();
                if let ["acknowledged", thread, count, "."] = words[..] {
                    newest[thread.parse::<usize>().unwrap()] = count.parse().unwrap();
                }
            }
            newest
        });
        clock::sleep(Duration::from_millis(random.uniform(30, 300) as u64));
        child.kill().unwrap();
        child.wait().unwrap();
        for (known, newest) in acknowledged.iter_mut().zip(listener.join().unwrap()) {
            *known = newest.max(*known);
        }
        let engine = Engine::open(real_config(root.clone())).unwrap();
        transfers::check(&engine, &acknowledged);
        if round % 2 == 0 {
            engine.close().unwrap();
        }
    }
    assert!(acknowledged.iter().all(|count| *count > 10), "{acknowledged:?}");
    std::fs::remove_dir_all(&root).unwrap();
}

#[test]
#[ignore = "the test above runs it in a process of its own"]
fn child() {
    let Some(root) = std::env::var_os(DIRECTORY) else { return };
    let engine = Engine::open(real_config(root.into())).unwrap();
    let stdout = Arc::new(Mutex::new(()));
    let threads: Vec<_> = (0..transfers::THREADS)
        .map(|number| {
            let (engine, stdout) = (engine.clone(), stdout.clone());
            thread::spawn("transfers", move || {
                transfers::run(&engine, transfers::FEW, number, |count| {
                    let _whole_lines = stdout.lock();
                    println!("acknowledged {number} {count} .");
                    true
                });
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}
