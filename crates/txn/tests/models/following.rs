//! A follower of the log beside committers, who lead in turn, and checkpoints, which recycle segments.
//!
//! It sees every group once and in order, and sleeps over none: a wait that is not ended is a deadlock, which the checker reports.

use crate::schedule::explore;
use firn_base::disk::SimulatedDisk;
use firn_base::sync::{Arc, Mutex};
use firn_base::{Lsn, Time, thread};
use firn_log::{DatabaseId, Log, LogOptions, LogPoint, Waited};
use std::any::Any;
use std::panic::resume_unwind;
use std::path::Path;
use std::time::Duration;

const COMMITTERS: u64 = 2;
const COMMITS_EACH: u64 = 3;
/// No wait ends by itself: see `Condvar::wait_for`.
const FOREVER: Duration = Duration::from_secs(3600);

/// So long that a segment has room for few commits.
const REDO: [u8; 150] = [7; 150];

fn append(log: &Log, next: &Mutex<u64>) -> Lsn {
    loop {
        let mut next = next.lock();
        if let Some(lsn) = log.append(Time(*next + 1), &REDO).unwrap() {
            *next += 1;
            return lsn;
        }
        drop(next);
        log.make_room(REDO.len()).unwrap();
    }
}

/// A thread has failed, and the model with it.
fn end<T>(panic: Box<dyn Any + Send>) -> T {
    resume_unwind(panic)
}

fn model() {
    let options = LogOptions {
        segment_bytes: 4096 + 512,
        chunk_bytes: 512,
        flush_interval: FOREVER,
        wall_clock: || 5,
        ..LogOptions::default()
    };
    let (disk, database) = (SimulatedDisk::new(), DatabaseId([1; 16]));
    let log = Log::open(disk, Path::new("/log"), database, LogPoint::START, options).unwrap();
    let (log, next) = (Arc::new(log), Arc::new(Mutex::new(0)));
    let mut follower = log.follow("follower", LogPoint::START).unwrap();
    let following = thread::spawn("follower", move || {
        let mut times = Vec::new();
        while follower.wait(Lsn(u64::MAX), FOREVER).unwrap() == Waited::Group {
            let group = follower.next_group(Lsn(u64::MAX)).unwrap().expect("it has been woken for one");
            times.extend(group.entries().map(|entry| entry.time.0).filter(|time| *time > 0));
            follower.pin().advance(group.end.lsn).unwrap();
        }
        (times, follower.point())
    });
    let committers: Vec<_> = (0..COMMITTERS)
        .map(|_| {
            let (log, next) = (log.clone(), next.clone());
            thread::spawn("committer", move || {
                for _ in 0..COMMITS_EACH {
                    log.wait_durable(append(&log, &next)).unwrap();
                }
            })
        })
        .collect();
    let checkpoints = thread::spawn("checkpoints", {
        let log = log.clone();
        move || {
            for _ in 0..2 {
                let position = log.point().unwrap().lsn;
                log.truncate_before(position, |_, _| 0).unwrap();
            }
        }
    });
    committers.into_iter().for_each(|committer| committer.join().unwrap_or_else(end));
    checkpoints.join().unwrap_or_else(end);
    let last = log.point().unwrap();
    Arc::into_inner(log).expect("all others have ended").close().unwrap();
    let (times, point) = following.join().unwrap_or_else(end);
    assert_eq!(times, (1..=COMMITTERS * COMMITS_EACH).collect::<Vec<u64>>());
    assert_eq!(point, last);
}

#[test]
fn a_follower_sees_every_group_and_sleeps_over_none() {
    explore(model);
}
