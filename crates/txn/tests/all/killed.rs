//! A real `kill -9`: a child process commits and reports it, is killed at a random time, and what it has
//! reported must be there. The child is this test binary, running the ignored test below. Now and then it
//! pauses, so that its rows become compact, and then changes them.

use crate::durable::{config, table};
use crate::transfers;
use firn_base::random::Random;
use firn_base::sync::{Arc, Mutex};
use firn_base::{clock, thread};
use firn_log::LogOptions;
use firn_storage::{BlockState, BlockUsage};
use firn_txn::{Config, Engine};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

const DIRECTORY: &str = "FIRN_TEST_DIRECTORY";
const ROUNDS: u32 = 15;

/// All threads work for this long, and then all pause.
const PHASE_MS: u128 = 20;

/// Checkpoints, freezes and encodes all the time, with segments that are soon full.
fn real_config(directory: PathBuf) -> Config {
    let log = LogOptions { segment_bytes: 64 << 10, ..LogOptions::default() };
    Config {
        directory: Some(directory),
        checkpoint_after_bytes: 100_000,
        log,
        freeze_after: Some(Duration::ZERO),
        compact_after: Some(Duration::ZERO),
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
    let mut found_compact = 0;
    for round in 0..ROUNDS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["killed::child", "--exact", "--ignored", "--nocapture"])
            .env(DIRECTORY, &root)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let listener = thread::spawn("listener", move || {
            // "acknowledged <thread> <count> ." and "compact ."; the last line may be cut off.
            let mut newest = vec![0; transfers::THREADS as usize];
            let mut pauses = 0;
            for line in output.lines().map_while(Result::ok) {
                match line.split(' ').collect::<Vec<&str>>()[..] {
                    ["acknowledged", thread, count, "."] => {
                        newest[thread.parse::<usize>().unwrap()] = count.parse().unwrap();
                    }
                    ["compact", "."] => pauses += 1,
                    _ => {}
                }
            }
            (newest, pauses)
        });
        clock::sleep(Duration::from_millis(random.uniform(30, 300) as u64));
        child.kill().unwrap();
        child.wait().unwrap();
        let (newest, pauses) = listener.join().unwrap();
        found_compact += pauses;
        for (known, newest) in acknowledged.iter_mut().zip(newest) {
            *known = newest.max(*known);
        }
        let engine = Engine::open(real_config(root.clone())).unwrap();
        transfers::check(&engine, &acknowledged);
        if round % 2 == 0 {
            engine.close().unwrap();
        }
    }
    assert!(acknowledged.iter().all(|count| *count > 10), "{acknowledged:?}");
    assert!(found_compact > 0, "no child has changed rows of compact blocks");
    std::fs::remove_dir_all(&root).unwrap();
}

#[test]
#[ignore = "the test above runs it in a process of its own"]
fn child() {
    let Some(root) = std::env::var_os(DIRECTORY) else { return };
    let engine = Engine::open(real_config(root.into())).unwrap();
    let stdout = Arc::new(Mutex::new(()));
    let begun = clock::now();
    let is_pause = move || begun.elapsed().as_millis() / PHASE_MS % 2 == 1;
    let is_compact = |block: BlockUsage| block.state == BlockState::Compact;
    let accounts = table(&engine.begin(), "accounts");
    let (cold_engine, cold_stdout) = (engine.clone(), stdout.clone());
    // As the background threads do, which may run only once in a pause and too early.
    thread::spawn("cold", move || {
        let mut was_compact = false;
        loop {
            cold_engine.freeze(Duration::ZERO);
            cold_engine.compact(Duration::ZERO);
            let is_compact_now = is_pause() && accounts.block_usage().any(is_compact);
            if is_compact_now && !was_compact {
                let _whole_lines = cold_stdout.lock();
                println!("compact .");
            }
            was_compact = is_compact_now;
            clock::sleep(Duration::from_millis(1));
        }
    });
    let threads: Vec<_> = (0..transfers::THREADS)
        .map(|number| {
            let (engine, stdout) = (engine.clone(), stdout.clone());
            thread::spawn("transfers", move || {
                transfers::run(&engine, transfers::FEW, number, |count| {
                    let whole_lines = stdout.lock();
                    println!("acknowledged {number} {count} .");
                    drop(whole_lines);
                    while is_pause() {
                        clock::sleep(Duration::from_millis(1));
                    }
                    true
                });
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}
