//! Following a log that is being written, and what pins retain.

use crate::*;
use firn_base::sync::AtomicI64;
use firn_base::{Epoch, thread};
use firn_log::{Follower, Released, Waited};

/// Reads all groups that are there, and checks that each follows the one before it.
fn take(follower: &mut Follower, groups: &mut Vec<Group>) -> Result<()> {
    let mut before = follower.point();
    while let Some(group) = follower.next_group(Lsn(u64::MAX))? {
        assert_eq!((group.begin, follower.point()), (before.lsn, group.end));
        assert!(before.epoch <= group.end.epoch && before.wall_time <= group.end.wall_time);
        before = group.end;
        groups.push(group);
    }
    Ok(())
}

/// The commits in some groups, whose redo is checked.
fn times(groups: &[Group]) -> Vec<u64> {
    let check = |entry: Entry<'_>| {
        assert_eq!(entry.bytes, redo(entry.time.0));
        entry.time.0
    };
    groups.iter().flat_map(commits).map(check).collect()
}

/// Committers append commits of random lengths and sometimes wait for them, a checkpointer truncates the log, and the disk
/// is full from time to time. The follower falls behind and catches up.
#[test]
fn a_follower_sees_exactly_the_groups_of_the_log() {
    for seed in 0..if cfg!(miri) { 1 } else { 6 } {
        let (mut random, disk) = (Random::seeded(seed), SimulatedDisk::new());
        disk.set_sync_time(Duration::from_micros(30));
        let truncates = seed % 2 == 1;
        let commits_each = if cfg!(miri) { 20 } else { 300 };
        let log = Arc::new(open(&disk, LogPoint::START).unwrap());
        let next = Arc::new(Mutex::new(0));
        let committers: Vec<_> = (0..3)
            .map(|number| {
                let (log, next, mut random) = (log.clone(), next.clone(), Random::seeded(10 * seed + number));
                thread::spawn("committer", move || {
                    for _ in 0..commits_each {
                        let lsn = loop {
                            let mut next = next.lock();
                            match log.append(Time(*next + 1), &redo(*next + 1)).unwrap() {
                                Some(lsn) => {
                                    *next += 1;
                                    break lsn;
                                }
                                None => drop(next),
                            }
                            // The disk may be full for a while.
                            if log.make_room(1000).is_err() {
                                clock::sleep(Duration::from_micros(50));
                            }
                        };
                        if random.uniform(0, 3) > 0 {
                            log.wait_durable(lsn).unwrap();
                        }
                    }
                })
            })
            .collect();
        let stop = Arc::new(AtomicBool::new(false));
        let checkpointer = thread::spawn("checkpointer", {
            let (log, disk, stop, mut random) = (log.clone(), disk.clone(), stop.clone(), random.clone());
            move || {
                while !stop.load(Ordering::Relaxed) {
                    clock::sleep(Duration::from_micros(random.uniform(100, 2000) as u64));
                    if truncates {
                        truncate(&log, log.point().unwrap().lsn);
                    }
                    if random.uniform(0, 2) == 0 {
                        disk.leave_room(random.uniform(0, 8000) as u64);
                        clock::sleep(Duration::from_micros(500));
                        disk.heal();
                    }
                    log.recycle().unwrap();
                }
                disk.heal();
            }
        });
        let mut follower = log.follow("a follower", LogPoint::START).unwrap();
        let mut groups = Vec::new();
        let total = 3 * commits_each;
        while groups.iter().flat_map(commits).count() < total {
            assert_eq!(follower.wait(Lsn(u64::MAX), Duration::from_secs(100)).unwrap(), Waited::Group);
            take(&mut follower, &mut groups).unwrap();
            if random.uniform(0, 3) == 0 {
                follower.pin().advance(follower.point().lsn).unwrap();
            }
            if random.uniform(0, 20) == 0 {
                clock::sleep(Duration::from_millis(5));
            }
        }
        committers.into_iter().for_each(|committer| committer.join().unwrap());
        stop.store(true, Ordering::Relaxed);
        checkpointer.join().unwrap();
        assert_eq!(times(&groups), numbers(total as u64), "seed {seed}");
        assert_eq!(follower.point(), log.point().unwrap());
        assert_eq!(follower.wait(Lsn(u64::MAX), Duration::ZERO).unwrap(), Waited::TimedOut);
        if truncates {
            drop(follower);
            truncate(&log, log.point().unwrap().lsn);
            assert!(log_files(&disk).len() < 10, "{:?}", log_files(&disk));
        } else {
            let mut reader = Reader::open(&*disk, directory(), DATABASE, LogPoint::START).unwrap();
            for group in &groups {
                let read = reader.next_group().unwrap().unwrap();
                assert_eq!((read.begin, read.end), (group.begin, group.end));
                assert!(read.bytes() == group.bytes());
            }
        }
    }
}

#[test]
fn a_follower_reads_on_from_an_earlier_epoch_and_not_beyond_its_limit() {
    let disk = written(12);
    let (_, end) = read(&disk).unwrap();
    let log = open(&disk, end).unwrap();
    for number in 13..=20 {
        commit(&log, number).unwrap();
    }
    let mut follower = log.follow("f", LogPoint::START).unwrap();
    let (mut groups, mut limit) = (Vec::new(), Lsn(0));
    loop {
        while let Some(group) = follower.next_group(limit).unwrap() {
            assert!(group.end.lsn <= limit);
            groups.push(group);
        }
        if limit >= log.durable_lsn() {
            break;
        }
        limit.0 += 8;
    }
    assert_eq!(times(&groups), numbers(20));
    let middle = groups[groups.len() / 2].end;
    let mut rest = Vec::new();
    take(&mut log.follow("g", middle).unwrap(), &mut rest).unwrap();
    assert_eq!(times(&rest), times(&groups[groups.len() / 2 + 1..]));
}

#[test]
fn a_follower_from_another_history_is_refused_at_once() {
    let disk = written(12);
    let (_, end) = read(&disk).unwrap();
    let log = open(&disk, end).unwrap();
    (13..=20).for_each(|number| commit(&log, number).unwrap());
    let point = log.point().unwrap();
    let refused = |from: LogPoint| {
        assert!(!log.has(from).unwrap());
        let error = log.follow("f", from).unwrap_err();
        if from.lsn > point.lsn {
            // It may be of this history once the log has grown.
            assert_eq!(error.state(), SqlState::CANNOT_CONNECT_NOW, "{error:?}");
            return;
        }
        assert_eq!(error.state(), SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, "{error:?}");
        assert!(error.message().contains("history") && error.hint().is_some(), "{error:?}");
    };
    for known in [LogPoint::START, end, point] {
        log.follow("f", known).unwrap();
        assert!(log.has(known).unwrap());
        refused(LogPoint { checksum: known.checksum ^ 1, ..known });
        refused(LogPoint { epoch: Epoch(9), ..known });
        refused(LogPoint { wall_time: i64::MAX, ..known });
        for off in [1, 8, 16] {
            // Inside a group, or not written yet.
            refused(LogPoint { lsn: Lsn(known.lsn.0 + off), ..known });
        }
    }
    refused(LogPoint { lsn: Lsn(1 << 40), ..point });
    assert!(log.pinned().is_empty());
}

#[test]
fn a_wait_ends_at_its_limit_and_when_the_log_is_closed() {
    let disk = SimulatedDisk::new();
    let log = open(&disk, LogPoint::START).unwrap();
    commit(&log, 1).unwrap();
    let (first, forever) = (log.point().unwrap().lsn, Duration::MAX);
    let mut follower = log.follow("f", LogPoint::START).unwrap();
    assert_eq!(follower.wait(Lsn(0), forever).unwrap(), Waited::Limit);
    assert_eq!(follower.wait(Lsn(first.0 - 1), forever).unwrap(), Waited::Limit);
    assert!(follower.next_group(Lsn(first.0 - 1)).unwrap().is_none());
    assert_eq!(follower.wait(first, forever).unwrap(), Waited::Group);
    assert_eq!(follower.next_group(first).unwrap().unwrap().end.lsn, first);
    assert_eq!(follower.wait(first, forever).unwrap(), Waited::Limit);
    assert_eq!(follower.wait(Lsn(first.0 + 8), Duration::ZERO).unwrap(), Waited::TimedOut);
    log.close().unwrap();
    for _ in 0..2 {
        assert_eq!(follower.wait(Lsn(u64::MAX), forever).unwrap(), Waited::Closed);
    }
}

#[test]
fn a_follower_is_woken_by_a_commit_by_the_end_and_by_a_failure() {
    for ending in [None, Some(Fault::Broken)] {
        let disk = SimulatedDisk::new();
        let log = open(&disk, LogPoint::START).unwrap();
        let seen = Arc::new(AtomicU64::new(0));
        let mut follower = log.follow("f", LogPoint::START).unwrap();
        let thread = thread::spawn("follower", {
            let seen = seen.clone();
            move || {
                while follower.wait(Lsn(u64::MAX), Duration::MAX)? == Waited::Group {
                    let mut groups = Vec::new();
                    take(&mut follower, &mut groups)?;
                    seen.fetch_add(times(&groups).len() as u64, Ordering::SeqCst);
                }
                Ok::<(), firn_base::Error>(())
            }
        });
        for number in 1..=20 {
            commit(&log, number).unwrap();
            let begun = clock::now();
            while seen.load(Ordering::SeqCst) < number {
                assert!(begun.elapsed() < Duration::from_secs(100), "not woken");
                clock::sleep(Duration::from_micros(100));
            }
        }
        if let Some(fault) = ending {
            disk.fail_after_operations(0, fault);
            commit(&log, 21).unwrap_err();
            assert_eq!(thread.join().unwrap().unwrap_err().state(), SqlState::IO_ERROR);
        } else {
            log.close().unwrap();
            thread.join().unwrap().unwrap();
        }
        assert_eq!(seen.load(Ordering::SeqCst), 20);
    }
}

/// The clock of the next test.
static CLOCK: AtomicI64 = AtomicI64::new(0);

#[test]
fn the_time_of_groups_never_goes_back() {
    let disk = SimulatedDisk::new();
    let set = LogOptions { wall_clock: || CLOCK.load(Ordering::SeqCst), ..options() };
    let mut at = LogPoint::START;
    let (mut number, mut expected) = (0, Vec::new());
    for times in [[1000, 500, 2000], [10, 1999, 1500], [3000, -5, 3000]] {
        let log = Log::open(disk.clone(), directory(), DATABASE, at, set).unwrap();
        for time in times {
            CLOCK.store(time, Ordering::SeqCst);
            number += 1;
            commit(&log, number).unwrap();
            expected.push(time.max(expected.last().copied().unwrap_or(0)));
        }
        log.close().unwrap();
        at = read(&disk).unwrap().1;
    }
    let mut reader = Reader::open(&*disk, directory(), DATABASE, LogPoint::START).unwrap();
    let found = std::iter::from_fn(|| reader.next_group().unwrap()).map(|group| group.end.wall_time);
    assert_eq!(found.collect::<Vec<i64>>(), expected);
    assert_eq!(expected, [1000, 1000, 2000, 2000, 2000, 2000, 3000, 3000, 3000]);
}

#[test]
fn the_points_of_a_log_are_those_of_its_groups() {
    let disk = written(12);
    let (_, end) = read(&disk).unwrap();
    let log = open(&disk, end).unwrap();
    (13..=20).for_each(|number| commit(&log, number).unwrap());
    let mut reader = Reader::open(&*disk, directory(), DATABASE, LogPoint::START).unwrap();
    let mut before = LogPoint::START;
    while let Some(group) = reader.next_group().unwrap() {
        let point = log.point_at(group.begin).unwrap();
        assert_eq!((point.lsn, point.checksum), (before.lsn, before.checksum));
        assert!(before.wall_time <= point.wall_time && point.wall_time <= group.end.wall_time);
        before = group.end;
    }
    assert_eq!(log.point_at(before.lsn).unwrap(), before);
}

/// A log of 60 commits, each in a group of its own, with these options, and the points between them.
fn log_of_60(options: LogOptions) -> (Arc<SimulatedDisk>, Log, Vec<LogPoint>) {
    let disk = SimulatedDisk::new();
    let log = Log::open(disk.clone(), directory(), DATABASE, LogPoint::START, options).unwrap();
    let mut points = vec![log.point().unwrap()];
    for number in 1..=60 {
        commit(&log, number).unwrap();
        points.push(log.point().unwrap());
    }
    (disk, log, points)
}

#[test]
fn a_pin_retains_the_log_and_its_end_gives_it_back() {
    let (disk, log, points) = log_of_60(options());
    let pin = log.pin("holder", points[10].lsn, vec!["a file".into()]).unwrap();
    let later = log.pin("later", points[40].lsn, Vec::new()).unwrap();
    assert!(log.is_pinned("a file") && !log.is_pinned("another"));
    // A checkpoint at the end.
    assert_eq!(truncate(&log, points[60].lsn), points[10].lsn);
    assert!(log.begin() <= points[10].lsn && log.begin() > Lsn(0));
    assert_eq!(read_from(&disk, points[10]).unwrap().0, (11..=60).collect::<Vec<u64>>());
    let early = log.pin("early", points[9].lsn, Vec::new()).unwrap_err();
    assert_eq!(early.state(), SqlState::UNDEFINED_FILE);
    assert!(early.hint().is_some());
    let holders: Vec<String> = log.pinned().into_iter().map(|pinned| pinned.holder).collect();
    assert_eq!(holders, ["holder", "later"]);

    assert_eq!(log.take_released(), None);
    // The end of the other one releases nothing.
    drop(log.pin("third", points[50].lsn, Vec::new()).unwrap());
    assert_eq!(log.take_released(), None);
    pin.advance(points[30].lsn).unwrap();
    assert_eq!((log.take_released(), log.take_released()), (Some(Released::Log), None));
    assert_eq!(log.recycle().unwrap(), points[30].lsn);
    assert_eq!(read_from(&disk, points[30]).unwrap().0.len(), 30);
    assert!(log.begin() > points[10].lsn);
    // It never moves back.
    pin.advance(points[20].lsn).unwrap();
    assert_eq!(pin.position().unwrap(), points[30].lsn);
    pin.release_file("a file");
    assert!(!log.is_pinned("a file"));
    assert_eq!(log.take_released(), Some(Released::Files));
    drop(pin);
    assert_eq!(log.recycle().unwrap(), points[40].lsn);
    drop(later);
    assert_eq!(log.take_released(), Some(Released::Log));
    assert_eq!(log.recycle().unwrap(), points[60].lsn);
    // What no checkpoint has replaced is needed anyway.
    commit(&log, 61).unwrap();
    let pin = log.pin("at the end", points[60].lsn, Vec::new()).unwrap();
    pin.advance(log.point().unwrap().lsn).unwrap();
    drop(pin);
    assert_eq!(log.take_released(), None);
    assert!(log_files(&disk).len() < 10);
    commit(&log, 62).unwrap();
}

#[test]
fn a_pin_that_retains_too_much_is_broken() {
    let most_pinned_bytes = Some(2000);
    let (disk, log, points) = log_of_60(LogOptions { most_pinned_bytes, ..options() });
    let mut follower = log.follow("slow", LogPoint::START).unwrap();
    let first = follower.next_group(Lsn(u64::MAX)).unwrap().unwrap();
    assert_eq!(first.end, points[1]);
    let quick = log.pin("quick", points[57].lsn, Vec::new()).unwrap();
    let files = log.pin("files", points[20].lsn, vec!["a file".into()]).unwrap();
    // What a checkpoint needs anyway is not counted: nothing is retained for the pins yet.
    assert_eq!(truncate(&log, points[1].lsn), Lsn(0));
    assert_eq!(follower.pin().position().unwrap(), Lsn(0));
    assert_eq!(truncate(&log, points[60].lsn), points[57].lsn);
    assert!(log.begin() > points[20].lsn);
    assert!(log.pinned().iter().filter(|pinned| pinned.is_broken).count() == 2 && !log.is_pinned("a file"));
    let is_broken = |error: firn_base::Error| {
        assert_eq!(error.state(), SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, "{error:?}");
        assert!(error.hint().is_some() && error.detail().unwrap().contains("max_slot_wal_keep_size"));
    };
    is_broken(follower.next_group(Lsn(u64::MAX)).unwrap_err());
    is_broken(follower.wait(Lsn(u64::MAX), Duration::from_secs(100)).unwrap_err());
    is_broken(files.advance(points[30].lsn).unwrap_err());
    is_broken(files.position().unwrap_err());
    assert_eq!(quick.position().unwrap(), points[57].lsn);
    // The segments are used again while the follower has them open.
    for number in 61..=200 {
        commit(&log, number).unwrap();
        quick.advance(log.point().unwrap().lsn).unwrap();
        truncate(&log, log.point().unwrap().lsn);
        is_broken(follower.next_group(Lsn(u64::MAX)).unwrap_err());
    }
    assert!(log_files(&disk).len() < 10);
}

#[test]
fn what_is_beside_the_log_counts_for_the_bound() {
    let most_pinned_bytes = Some(1 << 20);
    let (_, log, points) = log_of_60(LogOptions { most_pinned_bytes, ..options() });
    let pin = log.pin("holder", points[10].lsn, Vec::new()).unwrap();
    let beside = |bytes| {
        move |from: Lsn, to: Lsn| {
            assert!(from < to);
            bytes
        }
    };
    log.truncate_before(points[30].lsn, beside(1 << 19)).unwrap();
    pin.position().unwrap();
    log.truncate_before(points[40].lsn, beside(1 << 20)).unwrap();
    pin.position().unwrap_err();
}

#[test]
fn a_pin_retains_the_spill_files_that_the_log_names() {
    let (disk, log, points) = log_of_60(options());
    let spills =
        || log_files(&disk).iter().filter(|path| path.extension().is_some_and(|end| end == "spill")).count();
    let mut redo = RedoBuffer::new();
    redo.delete(TableId(1), RowId::from_bits(7));
    redo.spill(log.spills()).unwrap();
    redo.seal(log.spills()).unwrap();
    let lsn = append(&log, 61, redo.as_bytes()).unwrap();
    redo.logged(lsn);
    log.wait_durable(lsn).unwrap();
    assert_eq!(spills(), 1);
    let mut follower = log.follow("f", points[60]).unwrap();
    truncate(&log, lsn);
    assert_eq!(spills(), 1);
    let group = follower.next_group(Lsn(u64::MAX)).unwrap().unwrap();
    let entry = commits(&group).next().unwrap();
    let mut found = Vec::new();
    for record in entry.records() {
        let Record::Spilled { number, chunks } = record.unwrap() else { panic!("it was spilled") };
        let mut note = |records: &[u8]| {
            found.extend_from_slice(records);
            Ok(())
        };
        follower.read_spill(number, entry.epoch, chunks, &mut note).unwrap();
    }
    let mut expected = RedoBuffer::new();
    expected.delete(TableId(1), RowId::from_bits(7));
    assert_eq!(found, expected.as_bytes());
    follower.pin().advance(follower.point().lsn).unwrap();
    log.recycle().unwrap();
    assert_eq!(spills(), 0);
}

#[test]
fn a_spill_file_that_is_gone_with_its_pin_is_no_damage() {
    let (_, log, points) = log_of_60(LogOptions { most_pinned_bytes: Some(0), ..options() });
    let mut redo = RedoBuffer::new();
    redo.delete(TableId(1), RowId::from_bits(7));
    redo.spill(log.spills()).unwrap();
    redo.seal(log.spills()).unwrap();
    let lsn = append(&log, 61, redo.as_bytes()).unwrap();
    redo.logged(lsn);
    log.wait_durable(lsn).unwrap();
    let mut follower = log.follow("f", points[60]).unwrap();
    let group = follower.next_group(Lsn(u64::MAX)).unwrap().unwrap();
    truncate(&log, lsn);
    let entry = commits(&group).next().unwrap();
    let Record::Spilled { number, chunks } = entry.records().next().unwrap().unwrap() else {
        panic!("it was spilled")
    };
    let error = follower.read_spill(number, entry.epoch, chunks, |_| Ok(())).unwrap_err();
    assert_eq!(error.state(), SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, "{error:?}");
}
