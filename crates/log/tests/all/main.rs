//! The log as its users see it: what was acknowledged is read back, whatever happens to the disk.
//!
//! Segments and the queue's chunks are tiny, so that groups cross them all the time.

mod following;
mod formats;
mod receiving;

use firn_base::disk::{Disk, Fault, RealDisk, SimulatedDisk};
use firn_base::random::Random;
use firn_base::sync::{Arc, AtomicBool, AtomicU64, Mutex, Ordering};
use firn_base::{Cell, Error, Lsn, Result, RowId, SqlState, TableId, Time, clock};
use firn_log::format::SegmentName;
use firn_log::{
    DatabaseId, Entry, Group, Log, LogOptions, LogPoint, Reader, Record, RedoBuffer, SegmentHeader, Waited,
};
use std::path::{Path, PathBuf};
use std::time::Duration;

const DATABASE: DatabaseId = DatabaseId([0xdb; 16]);

fn directory() -> &'static Path {
    Path::new("/data/log")
}

fn options() -> LogOptions {
    LogOptions { segment_bytes: 4096 + 1024, chunk_bytes: 512, ..LogOptions::default() }
}

fn open(disk: &Arc<SimulatedDisk>, at: LogPoint) -> Result<Log> {
    Log::open(disk.clone(), directory(), DATABASE, at, options())
}

/// The redo of commit `number`: some inserts with the number, of varying length.
fn redo(number: u64) -> Vec<u8> {
    let mut redo = RedoBuffer::new();
    for row in 0..number % 5 {
        let text = "x".repeat((number * 37 % 150) as usize);
        redo.insert(TableId(1), RowId::from_bits(row), &[Cell::Word(number), Cell::text(&text)]);
    }
    redo.as_bytes().to_vec()
}

/// The times of the commits from `from` on, in order, and where the log ends. Checks their redo.
fn read_from(disk: &SimulatedDisk, from: LogPoint) -> Result<(Vec<u64>, LogPoint)> {
    let mut reader = Reader::open(disk, directory(), DATABASE, from)?;
    let mut times = Vec::new();
    while let Some(group) = reader.next_group()? {
        for entry in commits(&group) {
            assert_eq!(entry.bytes, redo(entry.time.0), "commit {}", entry.time.0);
            for record in entry.records() {
                let Record::Insert { cells, .. } = record? else { panic!("only inserts were written") };
                assert_eq!(cells.map(|cell| cell.unwrap()).next().unwrap().word(), entry.time.0);
            }
            times.push(entry.time.0);
        }
    }
    Ok((times, reader.point()))
}

fn read(disk: &SimulatedDisk) -> Result<(Vec<u64>, LogPoint)> {
    read_from(disk, LogPoint::START)
}

/// The commits of a group: its entries but for the one that begins an epoch.
fn commits(group: &Group) -> impl Iterator<Item = Entry<'_>> {
    group.entries().filter(|entry| match entry.records().next() {
        Some(Ok(Record::Epoch(epoch))) => {
            assert_eq!((epoch, entry.time), (group.end.epoch, Time(0)));
            false
        }
        _ => true,
    })
}

/// Queues a commit, for which it makes room if there is none.
fn append(log: &Log, time: u64, redo: &[u8]) -> Result<Lsn> {
    loop {
        if let Some(lsn) = log.append(Time(time), redo)? {
            return Ok(lsn);
        }
        log.make_room(redo.len())?;
    }
}

fn commit(log: &Log, number: u64) -> Result<()> {
    log.wait_durable(append(log, number, &redo(number))?)
}

/// Removes the log before a position, as after a checkpoint.
fn truncate(log: &Log, lsn: Lsn) -> Lsn {
    log.truncate_before(lsn, |_, _| 0).unwrap()
}

fn numbers(count: u64) -> Vec<u64> {
    (1..=count).collect()
}

/// A disk with a log of these commits, some in a group of their own, some sharing one.
fn written(count: u64) -> Arc<SimulatedDisk> {
    let disk = SimulatedDisk::new();
    let log = open(&disk, LogPoint::START).unwrap();
    for number in 1..=count {
        let lsn = append(&log, number, &redo(number)).unwrap();
        if number % 3 != 0 {
            log.wait_durable(lsn).unwrap();
        }
    }
    log.close().unwrap();
    disk
}

fn log_files(disk: &SimulatedDisk) -> Vec<PathBuf> {
    disk.list(directory()).unwrap().iter().map(|name| directory().join(name)).collect()
}

#[test]
fn a_reader_closes_the_segments_that_it_has_passed() {
    let disk = written(200);
    let mut reader = Reader::open(&*disk, directory(), DATABASE, LogPoint::START).unwrap();
    let mut passed: Vec<Group> = Vec::new();
    while let Some(group) = reader.next_group().unwrap() {
        let of_group = reader.segments_of(&group).count();
        assert!((1..=2).contains(&of_group), "{of_group}");
        assert!(reader.segment().is_some());
        passed.push(group);
    }
    let open = passed.iter().flat_map(|group| reader.segments_of(group)).map(SegmentHeader::name);
    let open: std::collections::BTreeSet<SegmentName> = open.collect();
    assert!(log_files(&disk).len() > 5 && open.len() <= 1, "{open:?}");
}

#[test]
fn commits_are_read_in_order_and_the_log_continues_where_it_ended() {
    let disk = SimulatedDisk::new();
    let (mut at, mut count) = (LogPoint::START, 0);
    for _ in 0..5 {
        let log = open(&disk, at).unwrap();
        for _ in 0..50 {
            count += 1;
            commit(&log, count).unwrap();
        }
        let end = log.appended_lsn();
        assert_eq!(log.point().unwrap().lsn, end);
        let last = log.point().unwrap();
        log.close().unwrap();
        let (times, point) = read(&disk).unwrap();
        assert_eq!(times, numbers(count));
        assert_eq!((point.lsn, point), (end, last));
        at = point;
    }
    assert!(log_files(&disk).len() > 5);
}

#[test]
fn a_commit_may_be_larger_than_many_segments() {
    let disk = SimulatedDisk::new();
    let log = open(&disk, LogPoint::START).unwrap();
    let large: Vec<u8> = (0..50_000u32).map(|byte| byte as u8).collect();
    log.wait_durable(append(&log, 1, &large).unwrap()).unwrap();
    log.wait_durable(append(&log, 2, b"small").unwrap()).unwrap();
    log.close().unwrap();
    let mut reader = Reader::open(&*disk, directory(), DATABASE, LogPoint::START).unwrap();
    let first = reader.next_group().unwrap().unwrap();
    assert!(commits(&first).next().unwrap().bytes == large);
    let second = reader.next_group().unwrap().unwrap();
    assert_eq!(second.entries().next().unwrap().bytes, b"small");
    assert!(reader.next_group().unwrap().is_none());
}

/// Copies the disk, cuts the log's file number `file` at every byte and removes the later ones.
#[test]
fn a_log_cut_at_any_byte_is_a_prefix_and_can_be_continued() {
    let disk = written(12);
    let files = log_files(&disk);
    assert!(files.len() >= 3);
    let mut prefixes = std::collections::BTreeSet::new();
    for (number, path) in files.iter().enumerate() {
        let length = disk.open(path).unwrap().len().unwrap();
        // Within the header page only the header itself matters.
        for cut in (0..length).filter(|cut| *cut <= 72 || *cut > 4090) {
            let copy = disk.after_kill();
            for later in &files[number + 1..] {
                copy.remove(later).unwrap();
            }
            copy.open(path).unwrap().set_len(cut).unwrap();
            let (times, end) = read(&copy).unwrap();
            assert_eq!(times, numbers(times.len() as u64));
            prefixes.insert(times.len());
            let log = open(&copy, end).unwrap();
            let next = times.len() as u64 + 1;
            commit(&log, next).unwrap();
            log.close().unwrap();
            assert_eq!(read(&copy).unwrap().0, numbers(next), "file {number} cut at {cut}");
        }
    }
    assert!(prefixes.len() > 8, "{prefixes:?}");
}

#[test]
fn a_flipped_byte_costs_the_last_group_or_is_reported_with_its_place() {
    let disk = written(12);
    let whole = read(&disk).unwrap().0;
    let (mut reported, mut cut, mut harmless) = (0, 0, 0);
    for path in log_files(&disk) {
        let length = disk.open(&path).unwrap().len().unwrap();
        for at in (0..length).filter(|at| *at < 72 || *at >= 4096) {
            let copy = disk.after_kill();
            let file = copy.open(&path).unwrap();
            let mut byte = [0];
            file.read_at(&mut byte, at).unwrap();
            file.write_at(&[byte[0] ^ 0x10], at).unwrap();
            match read(&copy) {
                Ok((times, _)) if times == whole => harmless += 1,
                Ok((times, _)) => {
                    assert_eq!(times, numbers(times.len() as u64));
                    // The last flush held one commit or two.
                    assert!(times.len() + 2 >= whole.len(), "byte {at} of {path:?}: {times:?}");
                    cut += 1;
                }
                Err(error) => {
                    assert_eq!(error.state(), SqlState::DATA_CORRUPTED, "{error:?}");
                    assert!(error.message().contains(".redo") && error.hint().is_some(), "{error:?}");
                    reported += 1;
                }
            }
        }
    }
    assert!(reported > 1000 && cut > 50 && harmless > 100, "{reported} {cut} {harmless}");
}

/// Committers note what was acknowledged; the plug is pulled again and again while they run.
#[test]
fn no_acknowledged_commit_is_lost_when_power_fails() {
    for seed in 0..4 {
        let disk = SimulatedDisk::new();
        disk.set_sync_time(Duration::from_micros(100));
        let log = Arc::new(open(&disk, LogPoint::START).unwrap());
        let next = Arc::new(Mutex::new(0));
        let acknowledged = Arc::new(AtomicU64::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let committers: Vec<_> = (0..4)
            .map(|number| {
                let (log, next) = (log.clone(), next.clone());
                let (acknowledged, stop) = (acknowledged.clone(), stop.clone());
                firn_base::thread::spawn("committer", move || {
                    while !stop.load(Ordering::Relaxed) {
                        let (time, lsn) = {
                            let mut next = next.lock();
                            *next += 1;
                            (*next, append(&log, *next, &redo(*next)).unwrap())
                        };
                        // One of them never waits.
                        if number != 0 {
                            log.wait_durable(lsn).unwrap();
                            acknowledged.fetch_max(time, Ordering::SeqCst);
                        } else {
                            clock::sleep(Duration::from_micros(200));
                        }
                    }
                })
            })
            .collect();
        let mut random = Random::seeded(seed);
        for _ in 0..15 {
            clock::sleep(Duration::from_millis(1));
            // Commits are in log order, so all up to the newest acknowledged one are.
            let safe = acknowledged.load(Ordering::SeqCst);
            let copy = disk.after_power_cut(&mut random);
            let (times, end) = read(&copy).unwrap_or_else(|error| panic!("seed {seed}: {error:?}"));
            assert_eq!(times, numbers(times.len() as u64));
            assert!(times.len() as u64 >= safe, "seed {seed}: {} of {safe}", times.len());
            let log = open(&copy, end).unwrap();
            commit(&log, times.len() as u64 + 1).unwrap();
            drop(log);
            assert_eq!(read(&copy).unwrap().0, numbers(times.len() as u64 + 1), "seed {seed}");
        }
        stop.store(true, Ordering::Relaxed);
        for committer in committers {
            committer.join().unwrap();
        }
    }
}

/// A write that fails ends the log, also if it fails although the space was allocated: it is unknown what is on disk. A
/// segment that cannot be prepared because the disk is full ends nothing.
#[test]
fn a_failed_write_fails_the_log_for_good_and_loses_nothing_acknowledged() {
    let (mut failed, mut refused) = (0, 0);
    for (budget, fault) in (0..60).flat_map(|step| [(step * 400, Fault::Full), (step, Fault::Broken)]) {
        let disk = SimulatedDisk::new();
        match fault {
            Fault::Full => disk.fail_after_bytes(8000 + budget, fault),
            Fault::Broken => disk.fail_after_operations(12 + budget, fault),
        }
        let expected = if fault == Fault::Full { SqlState::DISK_FULL } else { SqlState::IO_ERROR };
        let log = match open(&disk, LogPoint::START) {
            Ok(log) => log,
            Err(error) => {
                assert_eq!(error.state(), expected);
                continue;
            }
        };
        let mut acknowledged = 0;
        let error = loop {
            match commit(&log, acknowledged + 1) {
                Ok(()) => acknowledged += 1,
                Err(error) => break error,
            }
        };
        assert!(error.hint().is_some());
        disk.heal();
        if error.state() == SqlState::DISK_FULL {
            assert_eq!(fault, Fault::Full);
            log.check().unwrap();
            commit(&log, acknowledged + 1).unwrap();
            log.close().unwrap();
            assert_eq!(read(&disk).unwrap().0, numbers(acknowledged + 1));
            refused += 1;
            continue;
        }
        failed += 1;
        assert_eq!(error.state(), SqlState::IO_ERROR, "{error:?}");
        assert_eq!(log.check().unwrap_err().state(), SqlState::IO_ERROR);
        assert_eq!(commit(&log, 1000).unwrap_err().state(), SqlState::IO_ERROR);
        let appended = log.appended_lsn();
        let closed = log.close();
        assert!(closed.is_ok() || closed.unwrap_err().state() == SqlState::IO_ERROR, "{appended:?}");
        for seed in 0..3 {
            let copy = disk.after_power_cut(&mut Random::seeded(seed));
            let (times, _) = read(&copy).unwrap();
            assert_eq!(times, numbers(times.len() as u64));
            assert!(times.len() as u64 >= acknowledged);
        }
    }
    // Which of the two it is depends on whether the next segment was prepared in time.
    assert!(failed > 30 && refused > 0, "{failed} {refused}");
}

#[test]
fn what_a_full_disk_has_no_space_for_is_refused_and_the_log_goes_on() {
    for room in (0..20_000).step_by(500) {
        let disk = SimulatedDisk::new();
        let log = open(&disk, LogPoint::START).unwrap();
        disk.leave_room(room);
        let mut count = 0;
        let refused = |number, longer: &[u8]| {
            let before = log.appended_lsn();
            let error = append(&log, number, longer).unwrap_err();
            assert_eq!(error.state(), SqlState::DISK_FULL, "{error:?}");
            assert!(error.hint().is_some() && error.message().contains("allocate space"), "{error:?}");
            assert_eq!(log.appended_lsn(), before);
            log.check().unwrap();
        };
        // Of those that do not fit, not even part of one is there; shorter ones may still fit.
        loop {
            let next = redo(count + 1);
            match append(&log, count + 1, &next) {
                Ok(lsn) => log.wait_durable(lsn).unwrap(),
                Err(_) if next.is_empty() => break,
                Err(_) => {
                    refused(count + 1, &next);
                    refused(count + 1, &[1; 100_000]);
                    let Ok(lsn) = append(&log, count + 1, b"") else { break };
                    log.wait_durable(lsn).unwrap();
                    break;
                }
            }
            count += 1;
        }
        let written = log.point().unwrap();
        assert_eq!((log.durable_lsn(), log.appended_lsn()), (written.lsn, written.lsn));
        let copy = disk.after_power_cut(&mut Random::seeded(room));
        let mut reader = Reader::open(&*copy, directory(), DATABASE, LogPoint::START).unwrap();
        while reader.next_group().unwrap().is_some() {}
        assert_eq!(reader.point(), written);
        disk.heal();
        let lsn = append(&log, 1000, &[1; 10_000]).unwrap();
        log.wait_durable(lsn).unwrap();
        log.close().unwrap();
        let mut reader = Reader::open(&*disk, directory(), DATABASE, written).unwrap();
        assert_eq!(commits(&reader.next_group().unwrap().unwrap()).count(), 1);
        assert!(reader.next_group().unwrap().is_none());
    }
}

/// Committers queue up behind a slow disk, so that groups hold many of them and reach into later segments.
#[test]
fn the_commits_of_a_group_are_given_their_space_together() {
    for room in [0, 3_000, 12_000, 40_000] {
        let disk = SimulatedDisk::new();
        disk.set_sync_time(Duration::from_micros(500));
        let log = Arc::new(open(&disk, LogPoint::START).unwrap());
        disk.leave_room(room);
        let next = Arc::new(Mutex::new(0));
        let committers: Vec<_> = (0..8)
            .map(|_| {
                let (log, next) = (log.clone(), next.clone());
                firn_base::thread::spawn("committer", move || {
                    loop {
                        let appended = {
                            let mut next = next.lock();
                            append(&log, *next + 1, &redo(*next + 1)).inspect(|_| *next += 1)
                        };
                        match appended {
                            Ok(lsn) => log.wait_durable(lsn).unwrap(),
                            Err(error) => return assert_eq!(error.state(), SqlState::DISK_FULL),
                        }
                    }
                })
            })
            .collect();
        committers.into_iter().for_each(|committer| committer.join().unwrap());
        let last = *next.lock();
        let copy = disk.after_power_cut(&mut Random::seeded(room));
        assert_eq!(read(&copy).unwrap().0, numbers(last));
        disk.heal();
        commit(&log, last + 1).unwrap();
        drop(log);
        assert_eq!(read(&disk).unwrap().0, numbers(last + 1));
    }
}

#[test]
fn a_nearly_full_disk_gets_shorter_segments() {
    let disk = SimulatedDisk::new();
    let wide = LogOptions { segment_bytes: 32 << 20, ..LogOptions::default() };
    disk.leave_room((4 + 8 + 6) << 20);
    let log = Log::open(disk.clone(), directory(), DATABASE, LogPoint::START, wide).unwrap();
    let megabyte = vec![7; 1 << 20];
    let mut count = 0;
    while let Ok(lsn) = append(&log, count + 1, &megabyte) {
        log.wait_durable(lsn).unwrap();
        count += 1;
    }
    // None takes more than half of what is free, and commits leave a MiB to a checkpoint.
    let free = disk.free_bytes(directory()).unwrap();
    assert!((1 << 20..3 << 20).contains(&free), "{free}");
    assert!(count > 10, "{count}");
    assert!(log.take_lack_of_space() && !log.take_lack_of_space());
    truncate(&log, log.reader_start());
    append(&log, count + 1, &megabyte).unwrap();
}

#[test]
fn a_commit_that_the_disk_has_no_space_for_takes_nothing_of_it() {
    let disk = SimulatedDisk::new();
    let wide = LogOptions { segment_bytes: 32 << 20, ..LogOptions::default() };
    let log = Log::open(disk.clone(), directory(), DATABASE, LogPoint::START, wide).unwrap();
    disk.leave_room(40 << 20);
    while append(&log, 1, &vec![7; 1 << 20]).is_ok() && disk.free_bytes(directory()).unwrap() > 20 << 20 {}
    let before = disk.free_bytes(directory()).unwrap();
    assert_eq!(append(&log, 2, &vec![7; 60 << 20]).unwrap_err().state(), SqlState::DISK_FULL);
    // The preparer may have got one ahead.
    assert!(disk.free_bytes(directory()).unwrap() >= before / 2);
}

/// What a start gives back of the last segment is enough for it, though others have taken everything else.
#[test]
fn a_restart_on_a_full_disk_accepts_what_was_accepted_before() {
    let wide = LogOptions { segment_bytes: 32 << 20, ..LogOptions::default() };
    let (mut disk, mut at, mut count) = (SimulatedDisk::new(), LogPoint::START, 0);
    for _ in 0..10 {
        let log = Log::open(disk.clone(), directory(), DATABASE, at, wide).unwrap();
        disk.leave_room(0);
        for _ in 0..10 {
            count += 1;
            commit(&log, count).unwrap();
        }
        at = log.point().unwrap();
        disk = disk.after_kill();
        disk.leave_room(0);
        assert_eq!(read(&disk).unwrap(), (numbers(count), at));
    }
}

/// The log is one segment of an earlier epoch, and too little is left of it for the present epoch.
#[test]
fn a_checkpoint_frees_the_last_segment_of_an_epoch_for_the_next_one() {
    let disk = SimulatedDisk::new();
    let wide = LogOptions { segment_bytes: 1 << 20, ..LogOptions::default() };
    let log = Log::open(disk.clone(), directory(), DATABASE, LogPoint::START, wide).unwrap();
    let mut count = 0;
    while log.reader_start().0 < (1 << 20) - (50 << 10) {
        count += 1;
        log.wait_durable(append(&log, count, &[7; 4000]).unwrap()).unwrap();
    }
    let end = log.point().unwrap();
    let killed = disk.after_kill();
    drop(log);
    // Not the segment that was ready, or was being prepared.
    for name in killed.list(directory()).unwrap() {
        if !name.starts_with("0000000000000000-") {
            killed.remove(&directory().join(name)).unwrap();
        }
    }
    killed.leave_room(0);
    let log = Log::open(killed.clone(), directory(), DATABASE, end, wide).unwrap();
    assert_eq!(append(&log, count + 1, b"x").unwrap_err().state(), SqlState::DISK_FULL);
    assert!(log.take_lack_of_space());
    truncate(&log, end.lsn);
    // That is all that a checkpoint can do.
    let freed = killed.free_bytes(directory()).unwrap();
    assert!(freed > 900 << 10, "{freed}");
    let copy = killed.after_power_cut(&mut Random::seeded(1));
    let mut reader = Reader::open(&*copy, directory(), DATABASE, end).unwrap();
    assert!(reader.next_group().unwrap().is_none());
    log.wait_durable(append(&log, count + 1, b"x").unwrap()).unwrap();
    truncate(&log, end.lsn);
    let mut reader = Reader::open(&*killed, directory(), DATABASE, end).unwrap();
    assert_eq!(commits(&reader.next_group().unwrap().unwrap()).count(), 1);
}

#[test]
fn a_stub_does_not_hide_segments() {
    let disk = written(12);
    let stub = disk.create(&directory().join("0000000000000001-00000009.redo")).unwrap();
    stub.write_at(b"FIRN", 0).unwrap();
    let error = read(&disk).unwrap_err();
    assert_eq!(error.state(), SqlState::DATA_CORRUPTED, "{error:?}");
    // An epoch beyond all others is no panic.
    let disk = written(3);
    let end = read(&disk).unwrap().1;
    disk.create(&directory().join("00000000000000ff-ffffffffffffffff.redo")).unwrap();
    assert_eq!(open(&disk, end).unwrap_err().state(), SqlState::DATA_CORRUPTED);
}

#[test]
fn committers_share_their_syncs() {
    const THREADS: u64 = 16;
    const COMMITS: u64 = 50;
    let disk = SimulatedDisk::new();
    disk.set_sync_time(Duration::from_micros(500));
    let wide = LogOptions { segment_bytes: 1 << 20, ..LogOptions::default() };
    let log = Arc::new(Log::open(disk.clone(), directory(), DATABASE, LogPoint::START, wide).unwrap());
    let next = Arc::new(Mutex::new(0));
    let before = disk.syncs();
    let committers: Vec<_> = (0..THREADS)
        .map(|_| {
            let (log, next) = (log.clone(), next.clone());
            firn_base::thread::spawn("committer", move || {
                for _ in 0..COMMITS {
                    let lsn = {
                        let mut next = next.lock();
                        *next += 1;
                        append(&log, *next, &redo(*next)).unwrap()
                    };
                    log.wait_durable(lsn).unwrap();
                    assert!(log.durable_lsn() >= lsn);
                }
            })
        })
        .collect();
    for committer in committers {
        committer.join().unwrap();
    }
    let syncs = disk.syncs() - before;
    assert!(syncs <= THREADS * COMMITS / 4, "{syncs} syncs for {} commits", THREADS * COMMITS);
    drop(log);
    assert_eq!(read(&disk).unwrap().0, numbers(THREADS * COMMITS));
}

#[test]
fn commits_without_a_waiting_thread_become_durable_soon_also_after_an_idle_time() {
    let disk = SimulatedDisk::new();
    let quick = LogOptions { flush_interval: Duration::from_millis(1), ..options() };
    let log = Log::open(disk.clone(), directory(), DATABASE, LogPoint::START, quick).unwrap();
    for number in 1..=3 {
        let lsn = append(&log, number, &redo(number)).unwrap();
        let begin = clock::now();
        while log.durable_lsn() < lsn {
            assert!(begin.elapsed() < Duration::from_secs(10), "never flushed");
            clock::sleep(Duration::from_millis(1));
        }
        // Long enough for the flusher to stop ticking.
        clock::sleep(Duration::from_millis(60));
    }
    let lsn = append(&log, 4, &redo(4)).unwrap();
    log.request_flush();
    log.wait_durable(lsn).unwrap();
    assert_eq!(read(&disk.after_power_cut(&mut Random::seeded(1))).unwrap().0, numbers(4));
}

#[test]
fn a_full_queue_makes_committers_wait_for_the_disk() {
    let disk = SimulatedDisk::new();
    let narrow = LogOptions { queue_bytes: 2048, flush_bytes: 1024, ..options() };
    let log = Log::open(disk.clone(), directory(), DATABASE, LogPoint::START, narrow).unwrap();
    disk.set_sync_time(Duration::from_millis(1));
    for number in 1..=300 {
        append(&log, number, &redo(number)).unwrap();
        let backlog = log.appended_lsn().0 - log.durable_lsn().0;
        assert!(backlog < 8192, "{backlog}");
    }
    log.close().unwrap();
    assert_eq!(read(&disk).unwrap().0, numbers(300));
}

/// A log, not one byte of which has been written, in which commits have queued up; and the position behind the last one. Every
/// 40th is long: longer than a chunk, and than a segment.
fn queued_up(disk: &Arc<SimulatedDisk>, commits: u64, redo: &dyn Fn(u64) -> Vec<u8>) -> (Log, Lsn) {
    let patient = LogOptions { flush_interval: Duration::from_secs(3600), ..options() };
    let log = Log::open(disk.clone(), directory(), DATABASE, LogPoint::START, patient).unwrap();
    let last = (1..=commits).map(|number| append(&log, number, &redo(number)).unwrap()).last().unwrap();
    (log, last)
}

#[test]
fn what_has_queued_up_behind_a_slow_disk_is_one_group_and_is_lost_or_kept_as_one() {
    const COMMITS: u64 = 200;
    let long = |number: u64| match number % 40 {
        1 => vec![number as u8; 7000 + number as usize],
        _ => redo(number),
    };
    let groups = |disk: &SimulatedDisk| {
        let mut reader = Reader::open(disk, directory(), DATABASE, LogPoint::START).unwrap();
        let mut groups = Vec::new();
        while let Some(group) = reader.next_group().unwrap() {
            let entries = commits(&group).inspect(|entry| assert_eq!(entry.bytes, long(entry.time.0)));
            groups.push(entries.map(|entry| entry.time.0).collect::<Vec<u64>>());
        }
        (groups, reader.position())
    };
    let disk = SimulatedDisk::new();
    let (log, last) = queued_up(&disk, COMMITS, &long);
    log.wait_durable(last).unwrap();
    let end = log.durable_lsn();
    assert!(end.0 > 20 * options().chunk_bytes as u64 && end.0 > 5 * options().segment_bytes);
    drop(log);
    assert_eq!(groups(&disk), (vec![numbers(COMMITS)], end));

    let mut lost = 0;
    for written in 0..=40 {
        let disk = SimulatedDisk::new();
        let (log, last) = queued_up(&disk, COMMITS, &long);
        disk.fail_after_bytes(written * end.0 / 40, Fault::Full);
        let is_kept = log.wait_durable(last).is_ok();
        assert_eq!(log.durable_lsn(), if is_kept { end } else { Lsn(0) });
        drop(log);
        let kept = groups(&disk.after_power_cut(&mut Random::seeded(written)));
        assert_eq!(
            kept,
            if is_kept { (vec![numbers(COMMITS)], end) } else { (Vec::new(), Lsn(0)) },
            "{written}"
        );
        lost += u64::from(!is_kept);
    }
    assert!(lost > 20, "{lost}");
}

#[test]
fn truncated_segments_are_used_again_and_their_old_bytes_are_never_read() {
    let disk = SimulatedDisk::new();
    let mut random = Random::seeded(5);
    let log = open(&disk, LogPoint::START).unwrap();
    let mut kept = (LogPoint::START, 1);
    for number in 1..=1000 {
        let begin = log.point().unwrap();
        assert_eq!(begin.lsn, log.reader_start());
        commit(&log, number).unwrap();
        if number % 50 == 0 {
            kept = (begin, number);
            truncate(&log, begin.lsn);
            assert!(log.begin() <= begin.lsn);
            assert!(log_files(&disk).len() < 12, "{:?}", log_files(&disk));
        }
        if number % 7 == 0 {
            let copy = disk.after_power_cut(&mut random);
            let (times, end) = read_from(&copy, kept.0).unwrap();
            assert_eq!(times, (kept.1..=number).collect::<Vec<u64>>());
            let log = open(&copy, end).unwrap();
            commit(&log, number + 1).unwrap();
            drop(log);
            assert_eq!(read_from(&copy, kept.0).unwrap().0, (kept.1..=number + 1).collect::<Vec<u64>>());
        }
    }
    let gone = read(&disk).unwrap_err();
    assert_eq!(gone.state(), SqlState::DATA_CORRUPTED);
    assert!(gone.message().contains("lacks the part"), "{gone:?}");
}

#[test]
fn foreign_missing_and_other_versions_files_are_distinguished() {
    let disk = written(30);
    let files = log_files(&disk);
    let state = |disk: &SimulatedDisk, what: &str| {
        let error = read(disk).unwrap_err();
        assert!(format!("{error}").contains(what), "{error:?}");
        assert!(error.hint().is_some());
        error.state()
    };
    let foreign = Reader::open(&*disk, directory(), DatabaseId([0; 16]), LogPoint::START).err().unwrap();
    assert!(foreign.message().contains("another database"), "{foreign:?}");

    let gap = disk.after_kill();
    gap.remove(&files[1]).unwrap();
    assert_eq!(state(&gap, "lacks the part"), SqlState::DATA_CORRUPTED);

    let headless = disk.after_kill();
    headless.remove(&files[0]).unwrap();
    assert_eq!(state(&headless, "lacks the part"), SqlState::DATA_CORRUPTED);

    let newer = disk.after_kill();
    let file = newer.open(&files[0]).unwrap();
    let mut header = [0; 72];
    file.read_at(&mut header, 0).unwrap();
    header[8] = 3;
    let crc = crc32c::crc32c_append(crc32c::crc32c(&header[..12]), &header[16..]);
    header[12..16].copy_from_slice(&crc.to_le_bytes());
    file.write_at(&header, 0).unwrap();
    assert_eq!(state(&newer, "format version 3"), SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE);

    let none = Reader::open(
        &*SimulatedDisk::new(),
        directory(),
        DATABASE,
        LogPoint { lsn: Lsn(8), ..LogPoint::START },
    )
    .err()
    .unwrap();
    assert_eq!(none.state(), SqlState::DATA_CORRUPTED);
}

#[test]
fn the_log_works_on_real_files() {
    let root = std::env::temp_dir().join(format!("firn-log-{}", std::process::id()));
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let mut at = LogPoint::START;
    for round in 0..3 {
        let log = Log::open(disk.clone(), &root, DATABASE, at, options()).unwrap();
        for number in 1..=40 {
            commit(&log, round * 40 + number).unwrap();
        }
        log.close().unwrap();
        let mut reader = Reader::open(&*disk, &root, DATABASE, LogPoint::START).unwrap();
        let mut count = 0;
        while let Some(group) = reader.next_group().unwrap() {
            count += commits(&group).count() as u64;
        }
        assert_eq!(count, (round + 1) * 40);
        at = reader.point();
    }
    std::fs::remove_dir_all(&root).unwrap();
}

#[test]
fn a_voter_gets_a_group_while_it_is_written() {
    const NO_LIMIT: Lsn = Lsn(u64::MAX);
    let disk = SimulatedDisk::new();
    let wide = LogOptions { segment_bytes: 4 << 20, ..LogOptions::default() };
    let log = Log::open(disk.clone(), directory(), DATABASE, LogPoint::START, wide).unwrap();
    commit(&log, 1).unwrap();
    let first = log.point().unwrap();
    let mut reader = log.follow("r", first).unwrap().read_durable();
    let mut voter = log.follow("v", first).unwrap().read_sealed();
    disk.set_sync_time(Duration::from_secs(2));
    let second = std::thread::scope(|scope| {
        let committing = scope.spawn(|| commit(&log, 2));
        assert_eq!(voter.wait(NO_LIMIT, Duration::from_secs(60)).unwrap(), Waited::Group);
        let group = voter.next_group(NO_LIMIT).unwrap().unwrap();
        assert!(log.durable_lsn() == first.lsn && reader.next_group(NO_LIMIT).unwrap().is_none());
        assert_eq!(voter.segments_of(&group).count(), 1);
        assert!(voter.next_group(NO_LIMIT).unwrap().is_none());
        // The log confirms that it has the group only once the group is on disk.
        assert!(log.has(group.end).unwrap());
        assert_eq!(log.durable_lsn(), group.end.lsn);
        committing.join().unwrap().unwrap();
        group
    });
    assert_eq!(reader.next_group(NO_LIMIT).unwrap().unwrap().bytes(), second.bytes());
    disk.set_sync_time(Duration::ZERO);
    // A long one is read from the file; then those after it are passed on early again.
    log.wait_durable(append(&log, 3, &vec![7; 1 << 20]).unwrap()).unwrap();
    commit(&log, 4).unwrap();
    for number in [3, 4] {
        let group = voter.next_group(NO_LIMIT).unwrap().unwrap();
        assert_eq!(commits(&group).next().unwrap().time, Time(number));
        assert_eq!(group.bytes(), reader.next_group(NO_LIMIT).unwrap().unwrap().bytes());
    }
    // What the disk does not take is nevertheless with the voter, and not of this history.
    disk.fail_after_bytes(0, Fault::Broken);
    commit(&log, 5).unwrap_err();
    let lost = voter.next_group(NO_LIMIT).unwrap().unwrap();
    assert!(reader.next_group(NO_LIMIT).unwrap().is_none());
    assert_eq!(log.has(lost.end).unwrap_err().state(), SqlState::IO_ERROR);
}

#[test]
fn what_is_not_confirmed_is_durable_and_not_committed() {
    let disk = SimulatedDisk::new();
    let log = open(&disk, LogPoint::START).unwrap();
    commit(&log, 1).unwrap();
    assert_eq!(log.committed_lsn(), log.durable_lsn());
    log.require_confirmation();
    let first = log.committed_point();
    commit(&log, 2).unwrap();
    let second = log.durable_lsn();
    commit(&log, 3).unwrap();
    assert_eq!((log.committed_point(), log.committed_time()), (first, Time(1)));
    // Followers see what is committed, but for one.
    let mut follower = log.follow("f", first).unwrap();
    let mut voter = log.follow("v", first).unwrap().read_durable();
    assert!(follower.next_group(Lsn(u64::MAX)).unwrap().is_none());
    assert_eq!(voter.next_group(Lsn(u64::MAX)).unwrap().unwrap().end.lsn, second);
    // A position between two groups confirms the first one.
    log.confirm(Lsn(second.0 + 1));
    assert_eq!((log.committed_lsn(), log.committed_time()), (second, Time(2)));
    assert_eq!(log.point_at(second).unwrap(), follower.next_group(Lsn(u64::MAX)).unwrap().unwrap().end);
    // Waits end when others confirm, by an error of the one that waits, and when they are abandoned.
    let end = log.durable_lsn();
    let refused = || Err(Error::new(SqlState::QUERY_CANCELED, "enough"));
    assert_eq!(log.wait_committed(end, &refused).unwrap_err().message(), "enough");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| log.wait_committed(end, &|| Ok(())));
        log.confirm(end);
        waiting.join().unwrap().unwrap();
    });
    let lsn = append(&log, 4, b"four").unwrap();
    log.abandon(Error::new(SqlState::TRANSACTION_RESOLUTION_UNKNOWN, "who knows"));
    assert_eq!(log.wait_committed(lsn, &|| Ok(())).unwrap_err().message(), "who knows");
    assert!(log.durable_lsn() >= lsn && log.committed_lsn() == end);
    log.require_no_confirmation();
    log.wait_committed(lsn, &|| Ok(())).unwrap();
}
