//! A log that stores the groups of another one as they are.

use crate::*;
use firn_base::disk::DiskFile;
use firn_log::format::{DATA_START, SEGMENT_HEADER_LEN};
use firn_log::{Follower, LogCopy, Pin, SegmentHeader, Waited};

/// A log that is written, in epochs, and what it has reported as durable.
struct Origin {
    disk: Arc<SimulatedDisk>,
    log: Log,
    groups: Vec<Group>,
    next: u64,
}

/// A log that is received.
struct Copy {
    disk: Arc<SimulatedDisk>,
    log: Log,
    follower: Option<(Follower, Option<SegmentHeader>)>,
}

impl Origin {
    fn new() -> Origin {
        let disk = SimulatedDisk::new();
        let log = open(&disk, LogPoint::START).unwrap();
        Origin { disk, log, groups: Vec::new(), next: 1 }
    }

    fn append(&mut self, random: &mut Random) {
        for _ in 0..random.uniform(1, 4) {
            let lsn = append(&self.log, self.next, &redo(self.next)).unwrap();
            self.next += 1;
            if random.uniform(0, 2) > 0 {
                self.log.wait_durable(lsn).unwrap();
            }
        }
        self.note();
    }

    /// Appends something, and makes everything durable.
    fn finish(&mut self, random: &mut Random) {
        self.append(random);
        self.log.wait_durable(self.log.appended_lsn()).unwrap();
        self.note();
    }

    /// Notes the groups that are durable.
    fn note(&mut self) {
        let from = self.groups.last().map_or(LogPoint::START, |last| last.end);
        let mut follower = self.log.follow("a test", from).unwrap();
        while let Some(group) = follower.next_group(Lsn(u64::MAX)).unwrap() {
            self.groups.push(group);
        }
    }

    fn restart(&mut self, random: &mut Random) {
        let disk = match random.uniform(0, 1) {
            0 => self.disk.after_kill(),
            _ => self.disk.after_power_cut(random),
        };
        let (times, end) = read(&disk).unwrap();
        self.next = times.last().map_or(1, |last| last + 1);
        (self.log, self.disk) = (open(&disk, end).unwrap(), disk);
        self.note();
    }

    /// What has been noted up to a point.
    fn up_to(&self, point: LogPoint) -> &[Group] {
        let count = self.groups.iter().take_while(|group| group.end.lsn <= point.lsn).count();
        let reached = self.groups[..count].last().map_or(LogPoint::START, |last| last.end);
        assert!(reached == point, "{reached:?} {point:?}");
        &self.groups[..count]
    }
}

fn open_copy(disk: &Arc<SimulatedDisk>, at: LogPoint) -> Result<Log> {
    Log::open_to_receive(disk.clone(), directory(), DATABASE, at, options())
}

/// All groups in a directory from a point on.
fn groups_in(disk: &SimulatedDisk, from: LogPoint) -> Vec<Group> {
    let mut reader = Reader::open(disk, directory(), DATABASE, from).unwrap();
    std::iter::from_fn(|| reader.next_group().unwrap()).collect()
}

/// Where a received log ends: a power cut may have lost any of the groups since the last sync.
fn end_in(disk: &SimulatedDisk, from: LogPoint) -> LogPoint {
    let mut reader = Reader::open(disk, directory(), DATABASE, from).unwrap();
    reader.end_at_first_gap();
    while reader.next_group().unwrap().is_some() {}
    reader.point()
}

fn assert_same(found: &[Group], expected: &[Group]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!((found.begin, found.end) == (expected.begin, expected.end));
        assert!(found.bytes() == expected.bytes());
    }
}

impl Copy {
    fn new() -> Copy {
        let disk = SimulatedDisk::new();
        let log = open_copy(&disk, LogPoint::START).unwrap();
        Copy { disk, log, follower: None }
    }

    /// Receives up to `most` groups, some of them together. Returns false if there is none.
    fn receive(&mut self, origin: &Origin, most: usize, random: &mut Random) -> Result<bool> {
        let (mut follower, mut sent) = match self.follower.take() {
            Some(connected) => connected,
            None => {
                let follower = origin.log.follow("a copy", self.log.received().unwrap())?;
                self.until_it_succeeds(random, Log::restart_receiving);
                (follower, None)
            }
        };
        assert!(follower.point() == self.log.received().unwrap());
        let mut headers: Vec<SegmentHeader> = Vec::new();
        let mut bytes = Vec::new();
        headers.extend(follower.segment());
        for _ in 0..most {
            let Some(group) = follower.next_group(Lsn(u64::MAX))? else { break };
            headers.extend(follower.segments_of(&group));
            // The header of a segment that begins behind a group is accepted only after it.
            bytes.push((headers.len(), group.bytes().to_vec()));
        }
        let is_some = !bytes.is_empty();
        let mut known = 0;
        for (upto, group) in bytes.into_iter().chain([(headers.len(), Vec::new())]) {
            for header in &headers[known..upto] {
                if sent.is_none_or(|sent| sent != *header) || random.uniform(0, 1) == 0 {
                    self.until_it_succeeds(random, |log| log.receive_segment(&header.encode()));
                    sent = Some(*header);
                }
            }
            known = upto;
            if !group.is_empty() {
                self.until_it_succeeds(random, |log| log.receive(&group).map(drop));
            }
        }
        assert!(follower.point() == self.log.received().unwrap());
        self.follower = Some((follower, sent));
        Ok(is_some)
    }

    /// Tries it on a disk that becomes full, and again later.
    fn until_it_succeeds(&self, random: &mut Random, work: impl Fn(&Log) -> Result<()>) {
        for attempt in 0.. {
            if attempt < 3 && random.uniform(0, 2) == 0 {
                match random.uniform(0, 1) {
                    0 => self.disk.fail_after_bytes(random.uniform(0, 300) as u64, Fault::Full),
                    _ => self.disk.fail_after_operations(random.uniform(0, 4) as u64, Fault::Full),
                }
            }
            let before = self.log.received().unwrap();
            let outcome = work(&self.log);
            self.disk.heal();
            match outcome {
                Ok(()) => return,
                Err(error) => {
                    assert_eq!(error.state(), SqlState::DISK_FULL, "{error}");
                    assert!(self.log.received().unwrap() == before);
                }
            }
        }
    }

    fn flush(&self) {
        self.log.wait_durable(self.log.appended_lsn()).unwrap();
        assert!(self.log.point().unwrap() == self.log.received().unwrap());
        assert_eq!(self.log.durable_lsn(), self.log.received().unwrap().lsn);
    }

    fn restart(&mut self, from: LogPoint, random: &mut Random) {
        let (durable, received) = (self.log.durable_lsn(), self.log.received().unwrap());
        let is_cut = random.uniform(0, 1) == 0;
        let disk = if is_cut { self.disk.after_power_cut(random) } else { self.disk.after_kill() };
        let end = end_in(&disk, from);
        assert!(end.lsn >= durable && end.lsn <= received.lsn, "{end:?} {durable:?} {received:?}");
        assert!(is_cut || end == received);
        (self.log, self.disk, self.follower) = (open_copy(&disk, end).unwrap(), disk, None);
        assert!(self.log.received().unwrap() == end && self.log.point().unwrap() == end);
        // Opening has made it durable.
        assert_eq!(self.log.durable_lsn(), end.lsn);
        let again = self.disk.after_power_cut(random);
        assert!(read_from(&again, from).unwrap().1 == end);
    }
}

fn bytes_of(file: &dyn DiskFile, from: u64, to: u64) -> Vec<u8> {
    let mut bytes = vec![0; (to - from) as usize];
    let read = file.read_at(&mut bytes, from).unwrap();
    bytes.truncate(read);
    bytes
}

/// Asserts that each segment of the copy has the bytes of the origin's, up to the copy's end.
fn assert_same_files(origin: &SimulatedDisk, copy: &SimulatedDisk, end: LogPoint) {
    let mut segments: Vec<(u64, PathBuf)> = Vec::new();
    for path in log_files(copy) {
        assert!(path.to_string_lossy().ends_with(".redo"), "{path:?}");
        let header = bytes_of(&*copy.open(&path).unwrap(), 0, SEGMENT_HEADER_LEN as u64);
        let header: [u8; SEGMENT_HEADER_LEN] = header.try_into().unwrap();
        let name = SegmentHeader::name_in(&header);
        let header = SegmentHeader::decode(&header, &path, name, DATABASE).unwrap();
        segments.push((header.first.0, path));
    }
    segments.sort();
    for (at, (first, path)) in segments.iter().enumerate() {
        let next = segments.get(at + 1).map_or(end.lsn.0, |next| next.0);
        let length = DATA_START + next.min(end.lsn.0).saturating_sub(*first);
        let [copied, original] = [copy, origin].map(|disk| {
            let file = disk.open(path).unwrap();
            (
                bytes_of(&*file, 0, SEGMENT_HEADER_LEN as u64),
                bytes_of(&*file, DATA_START, length.max(DATA_START)),
            )
        });
        assert!(copied == original, "{path:?}");
        assert_eq!(copied.1.len() as u64, length - DATA_START, "{path:?}");
    }
}

/// The origin is restarted, so that its segments end early and epochs begin, some in the place of a segment without a group. The
/// copy is restarted too, and its disk is full from time to time.
#[test]
fn a_received_log_is_the_origin_byte_for_byte_whatever_happens() {
    for seed in 0..if cfg!(miri) { 1 } else { 60 } {
        println!("seed {seed}");
        let random = &mut Random::seeded(seed);
        let (mut origin, mut copy) = (Origin::new(), Copy::new());
        for _ in 0..80 {
            match random.uniform(0, 11) {
                0..4 => origin.append(random),
                4 if random.uniform(0, 1) == 0 => {
                    copy.follower = None;
                    origin.restart(random);
                }
                5 if random.uniform(0, 1) == 0 => copy.restart(LogPoint::START, random),
                6 => copy.follower = None,
                7 | 8 => copy.flush(),
                _ => {
                    let most = random.uniform(1, 5) as usize;
                    copy.receive(&origin, most, random).unwrap();
                }
            }
            let mut follower = copy.log.follow("a follower", LogPoint::START).unwrap();
            let seen: Vec<Group> =
                std::iter::from_fn(|| follower.next_group(Lsn(u64::MAX)).unwrap()).collect();
            assert_same(&seen, origin.up_to(copy.log.point().unwrap()));
            assert_eq!(follower.wait(Lsn(u64::MAX), Duration::ZERO).unwrap(), Waited::TimedOut);
            for group in seen.iter().take(3) {
                assert!(copy.log.point_at(group.end.lsn).unwrap().is_same_place(&group.end));
            }
        }
        origin.finish(random);
        while copy.receive(&origin, 3, random).unwrap() {}
        copy.flush();
        assert!(copy.log.received().unwrap() == origin.log.point().unwrap());
        assert_same(&groups_in(&copy.disk.after_kill(), LogPoint::START), &origin.groups);
        assert_same_files(&origin.disk, &copy.disk, copy.log.received().unwrap());

        // The copy continues as a log of its own.
        let end = copy.log.received().unwrap();
        let disk = copy.disk.after_power_cut(random);
        let log = open(&disk, end).unwrap();
        assert!(log.epoch().0 > end.epoch.0);
        commit(&log, origin.next).unwrap();
        log.close().unwrap();
        assert_eq!(read(&disk).unwrap().0, numbers(origin.next));
    }
}

#[test]
fn a_received_log_is_truncated_up_to_its_pins() {
    for seed in 0..if cfg!(miri) { 1 } else { 30 } {
        println!("seed {seed}");
        let random = &mut Random::seeded(seed);
        let (mut origin, mut copy) = (Origin::new(), Copy::new());
        let mut pins: Vec<(Pin, LogPoint)> = Vec::new();
        let mut kept = LogPoint::START;
        for _ in 0..60 {
            match random.uniform(0, 9) {
                0..3 => origin.append(random),
                3..5 => drop(copy.receive(&origin, 4, random).unwrap()),
                5 => copy.flush(),
                6 => {
                    let groups = origin.up_to(copy.log.point().unwrap());
                    let retained = groups.iter().filter(|group| group.end.lsn >= kept.lsn);
                    let ends: Vec<LogPoint> = retained.map(|group| group.end).collect();
                    if !ends.is_empty() {
                        let point = ends[random.uniform(0, ends.len() as i64 - 1) as usize];
                        pins.push((copy.log.pin("a pin", point.lsn, Vec::new()).unwrap(), point));
                    }
                }
                7 if !pins.is_empty() => drop(pins.swap_remove(0)),
                8 => {
                    copy.flush();
                    kept = copy.log.point().unwrap();
                    truncate(&copy.log, kept.lsn);
                }
                9 if random.uniform(0, 2) == 0 => {
                    pins.clear();
                    copy.restart(kept, random);
                }
                _ => drop(copy.log.recycle().unwrap()),
            }
            for (_, point) in &pins {
                let mut follower = copy.log.follow("a follower", *point).unwrap();
                let seen: Vec<Group> =
                    std::iter::from_fn(|| follower.next_group(Lsn(u64::MAX)).unwrap()).collect();
                let all = origin.up_to(copy.log.point().unwrap());
                let expected = all.iter().position(|group| group.begin >= point.lsn).unwrap_or(all.len());
                assert_same(&seen, &all[expected..]);
            }
        }
        pins.clear();
        while copy.receive(&origin, 3, random).unwrap() {}
        copy.flush();
        let end = copy.log.received().unwrap();
        truncate(&copy.log, end.lsn);
        let left = log_files(&copy.disk);
        assert!(left.len() <= 2, "{left:?}");
        assert!(read_from(&copy.disk.after_kill(), end).unwrap().1 == end);
        origin.finish(random);
        while copy.receive(&origin, 3, random).unwrap() {}
        copy.flush();
        let rest = groups_in(&copy.disk.after_power_cut(random), end);
        let from = origin.groups.iter().position(|group| group.begin == end.lsn).unwrap();
        assert_same(&rest, &origin.groups[from..]);
        assert_same_files(&origin.disk, &copy.disk, copy.log.received().unwrap());
    }
}

#[test]
fn groups_that_do_not_follow_are_refused_and_change_nothing() {
    let random = &mut Random::seeded(3);
    let (mut origin, mut copy) = (Origin::new(), Copy::new());
    (0..10).for_each(|_| origin.append(random));
    let point = LogPoint::START;
    let mut follower = origin.log.follow("f", point).unwrap();
    copy.log.receive_segment(&follower.segment().unwrap().encode()).unwrap();
    let groups: Vec<Vec<u8>> = origin.groups.iter().map(|group| group.bytes().to_vec()).collect();
    let refused = |log: &Log, bytes: &[u8]| {
        let before = log.received().unwrap();
        assert_eq!(log.receive(bytes).unwrap_err().state(), SqlState::DATA_CORRUPTED);
        assert!(log.received().unwrap() == before);
    };
    refused(&copy.log, &groups[1]);
    for at in 0..groups[0].len() {
        let mut damaged = groups[0].clone();
        damaged[at] ^= 4;
        refused(&copy.log, &damaged);
        if at > 0 {
            refused(&copy.log, &groups[0][..at]);
        }
    }
    // The first of two groups is not stored either.
    refused(&copy.log, &[&groups[0][..], &groups[0][..]].concat());
    copy.log.receive(&groups[0]).unwrap();
    refused(&copy.log, &groups[0]);
    // A segment of another log, or one that is not the next.
    let other = Origin::new();
    commit(&other.log, 1).unwrap();
    let foreign = other.log.follow("f", LogPoint::START).unwrap().segment().unwrap();
    assert!(copy.log.receive_segment(&foreign.encode()).is_err());
    while let Some(group) = follower.next_group(Lsn(u64::MAX)).unwrap() {
        if group.begin >= copy.log.received().unwrap().lsn {
            for header in follower.segments_of(&group) {
                copy.log.receive_segment(&header.encode()).unwrap();
            }
            copy.log.receive(group.bytes()).unwrap();
        }
    }
    copy.follower = None;
    copy.flush();
    assert_same(&groups_in(&copy.disk, LogPoint::START), &origin.groups);
}

/// It is unknown what is on disk after it, as in any log.
#[test]
fn a_sync_that_fails_ends_receiving_until_the_log_is_opened_again() {
    let random = &mut Random::seeded(5);
    let (mut origin, mut copy) = (Origin::new(), Copy::new());
    origin.append(random);
    copy.receive(&origin, 9, random).unwrap();
    copy.flush();
    let durable = copy.log.point().unwrap();
    origin.finish(random);
    copy.receive(&origin, 9, random).unwrap();
    copy.disk.fail_after_operations(0, Fault::Broken);
    let error = copy.log.wait_durable(copy.log.appended_lsn()).unwrap_err();
    assert_eq!(error.state(), SqlState::IO_ERROR);
    copy.disk.heal();
    assert!(copy.log.check().is_err() && copy.log.receive(&[]).is_err() && copy.log.point().is_err());
    assert_eq!(copy.log.durable_lsn(), durable.lsn);
    copy.follower = None;
    copy.restart(LogPoint::START, random);
    while copy.receive(&origin, 9, random).unwrap() {}
    copy.flush();
    assert_same(&groups_in(&copy.disk, LogPoint::START), &origin.groups);
}

/// Cuts the log of a server that is closed, whatever interrupts that.
fn cut(disk: &Arc<SimulatedDisk>, at: LogPoint, random: &mut Random) -> Arc<SimulatedDisk> {
    let mut disk = disk.after_kill();
    for operations in 0.. {
        disk.fail_after_operations(operations, Fault::Broken);
        let dynamic: Arc<dyn Disk> = disk.clone();
        let done = LogCopy::cut(&dynamic, directory(), DATABASE, at);
        disk = if random.uniform(0, 1) == 0 { disk.after_kill() } else { disk.after_power_cut(random) };
        match done {
            Ok(true) => break,
            Ok(false) => unreachable!("there are groups before the place"),
            // Nothing before the place is gone.
            Err(_) => assert!(end_in(&disk, LogPoint::START).lsn >= at.lsn),
        }
    }
    assert!(end_in(&disk, LogPoint::START) == at);
    disk
}

/// A copy is written on where receiving has ended, beside followers. The origin goes on for a while, is cut there, and receives what the
/// copy has written.
#[test]
fn a_received_log_is_written_on_and_its_origin_is_cut_and_receives_that() {
    for seed in 0..if cfg!(miri) { 1 } else { 60 } {
        println!("seed {seed}");
        let random = &mut Random::seeded(seed);
        let (mut origin, mut copy) = (Origin::new(), Copy::new());
        origin.append(random);
        for _ in 0..random.uniform(1, 25) {
            match random.uniform(0, 5) {
                0 => {
                    copy.follower = None;
                    origin.restart(random);
                }
                1 => copy.restart(LogPoint::START, random),
                2 => origin.finish(random),
                3 => origin.append(random),
                _ => drop(copy.receive(&origin, 5, random).unwrap()),
            }
        }
        origin.finish(random);
        // So that there is something of which the origin is not cut.
        while !copy.receive(&origin, 2, random).unwrap() {}
        copy.flush();
        let mut follower = copy.log.follow("f", LogPoint::START).unwrap();
        let mut followed = Vec::new();
        if random.uniform(0, 1) == 0 {
            followed.extend(follower.next_group(Lsn(u64::MAX)).unwrap());
        }
        copy.receive(&origin, 2, random).unwrap();

        let end = copy.log.end_receiving().unwrap();
        assert!(copy.log.durable_lsn() == end.lsn && copy.log.received() == Some(end));
        let next = end.epoch.0 + 1 + random.uniform(0, 1) as u64 * 100;
        copy.log.begin_to_write(firn_base::Epoch(next));
        assert!(copy.log.received().is_none() && copy.log.point().unwrap() == end);
        assert!(copy.log.epoch() > end.epoch);
        let mut expected: Vec<u64> = origin
            .up_to(end)
            .iter()
            .flat_map(|group| commits(group).map(|entry| entry.time.0).collect::<Vec<_>>())
            .collect();
        let mut next = expected.last().map_or(1, |last| last + 1);
        copy.follower = None;
        for round in 0..3 {
            for _ in 0..random.uniform(1, 6) {
                commit(&copy.log, next).unwrap();
                expected.push(next);
                next += 1;
            }
            while let Some(group) = follower.next_group(Lsn(u64::MAX)).unwrap() {
                followed.push(group);
            }
            assert_same(&followed, &groups_in(&copy.disk, LogPoint::START));
            if round == 1 {
                let disk = if random.uniform(0, 1) == 0 {
                    copy.disk.after_kill()
                } else {
                    copy.disk.after_power_cut(random)
                };
                let (times, at) = read(&disk).unwrap();
                assert_eq!(times, expected);
                drop(follower);
                (copy.log, copy.disk) = (open(&disk, at).unwrap(), disk);
                follower = copy.log.follow("f", at).unwrap();
            }
        }
        assert_eq!(read(&copy.disk.after_kill()).unwrap().0, expected);
        drop(follower);

        // The origin does not know, and goes on.
        (0..random.uniform(0, 3)).for_each(|_| origin.append(random));
        if random.uniform(0, 1) == 0 {
            origin.restart(random);
        }
        drop(origin.log);
        let disk = cut(&origin.disk, end, random);
        let mut former = Copy { log: open_copy(&disk, end).unwrap(), disk, follower: None };
        let groups = groups_in(&copy.disk.after_kill(), LogPoint::START);
        let present = Origin { disk: copy.disk, log: copy.log, groups, next };
        while former.receive(&present, 3, random).unwrap() {}
        former.flush();
        assert_same(&groups_in(&former.disk, LogPoint::START), &present.groups);
    }
}

#[test]
fn what_was_appended_before_appends_are_refused_is_written() {
    let disk = SimulatedDisk::new();
    let log = open(&disk, LogPoint::START).unwrap();
    append(&log, 1, &redo(1)).unwrap();
    log.refuse_appends(firn_base::Error::new(SqlState::ADMIN_SHUTDOWN, "no more"));
    for _ in 0..2 {
        let error = log.append(Time(2), &redo(2)).unwrap_err();
        assert_eq!((error.state(), error.message()), (SqlState::ADMIN_SHUTDOWN, "no more"));
    }
    log.wait_durable(log.appended_lsn()).unwrap();
    assert!(log.check().is_ok());
    assert_eq!(read(&disk.after_power_cut(&mut Random::seeded(1))).unwrap().0, [1]);
}

/// Only who takes the ends of groups keeps them: an archive writes for months.
#[test]
fn a_copy_keeps_the_ends_of_groups_only_if_it_is_told_to() {
    let random = &mut Random::seeded(1);
    let mut origin = Origin::new();
    origin.finish(random);
    for is_kept in [false, true] {
        let disk: Arc<dyn Disk> = SimulatedDisk::new();
        let copy = LogCopy::create(disk, directory(), DATABASE, LogPoint::START).unwrap();
        let mut copy = if is_kept { copy.keep_ends() } else { copy };
        let mut follower = origin.log.follow("a copy", LogPoint::START).unwrap();
        let mut ends = Vec::new();
        while let Some(group) = follower.next_group(Lsn(u64::MAX)).unwrap() {
            for header in follower.segments_of(&group) {
                copy.begin_segment(&header.encode()).unwrap();
            }
            copy.append(group.bytes()).unwrap();
            ends.push(group.end);
        }
        assert_eq!(copy.take_ends(), if is_kept { ends } else { Vec::new() });
        assert!(copy.take_ends().is_empty());
    }
}
