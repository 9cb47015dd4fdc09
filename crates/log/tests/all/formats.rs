//! Epochs, the history of groups, and logs of version 1.

use crate::*;
use firn_base::Epoch;
use firn_log::format::{
    DATA_START, FORMAT_VERSION, GROUP_HEADER_LEN, Seal, SegmentHeader, SegmentName, encode_entry_header,
    seal_group,
};

/// The names of the segments of a log.
fn segments(disk: &SimulatedDisk) -> Vec<SegmentName> {
    disk.list(directory()).unwrap().iter().filter_map(|name| SegmentName::parse(name)).collect()
}

fn groups(disk: &SimulatedDisk) -> Vec<Group> {
    let mut reader = Reader::open(disk, directory(), DATABASE, LogPoint::START).unwrap();
    std::iter::from_fn(|| reader.next_group().unwrap()).collect()
}

#[test]
fn every_opening_begins_an_epoch_and_a_segment_of_its_own() {
    let disk = SimulatedDisk::new();
    let mut at = LogPoint::START;
    for epoch in 1..=4 {
        let log = open(&disk, at).unwrap();
        assert_eq!(log.epoch(), Epoch(epoch));
        // Nothing is written yet.
        assert_eq!((log.appended_lsn(), log.point().unwrap()), (at.lsn, at));
        commit(&log, epoch).unwrap();
        at = log.point().unwrap();
        assert_eq!(at.epoch, Epoch(epoch));
        log.close().unwrap();
    }
    let groups = groups(&disk);
    assert_eq!(groups.iter().map(|group| group.end.epoch.0).collect::<Vec<u64>>(), numbers(4));
    // Each begins with a record of its epoch, which `commits` checks.
    assert!(groups.iter().all(|group| group.entries().count() == 2 && commits(group).count() == 1));
    assert_eq!(groups.last().unwrap().end, at);
    let epochs: Vec<(u64, u64)> = segments(&disk).iter().map(|name| (name.number, name.epoch.0)).collect();
    assert_eq!(epochs[..4], [(0, 1), (1, 2), (2, 3), (3, 4)]);
}

#[test]
fn an_opening_that_writes_nothing_leaves_no_segment_behind() {
    let disk = written(5);
    let end = read(&disk).unwrap().1;
    // The first one of the epoch, and one ahead if there was time to prepare it.
    let most = segments(&disk).len() + 2;
    for _ in 0..5 {
        let log = open(&disk, end).unwrap();
        log.close().unwrap();
        assert_eq!(read(&disk).unwrap(), (numbers(5), end));
        assert!(segments(&disk).len() <= most, "{:?}", segments(&disk));
    }
    commit(&open(&disk, end).unwrap(), 6).unwrap();
    assert_eq!(read(&disk).unwrap().0, numbers(6));
}

/// Opening the log fails at each operation of the disk, and then the power is cut.
#[test]
fn an_opening_that_is_cut_short_loses_nothing() {
    let (before, mut opened, mut failed) = (written(12), 0, 0);
    let end = read(&before).unwrap().1;
    for operations in 0.. {
        let disk = before.after_kill();
        disk.fail_after_operations(operations, Fault::Broken);
        let outcome = open(&disk, end).and_then(|log| commit(&log, 13));
        disk.heal();
        match &outcome {
            Ok(()) => opened += 1,
            Err(error) => {
                assert_eq!(error.state(), SqlState::IO_ERROR, "{error:?}");
                failed += 1;
            }
        }
        for seed in 0..6 {
            let cut = disk.after_power_cut(&mut Random::seeded(seed));
            let (times, point) = read(&cut).unwrap_or_else(|error| panic!("{operations} {seed}: {error:?}"));
            assert!(times == numbers(13) || outcome.is_err() && times == numbers(12), "{operations} {seed}");
            let next = times.len() as u64 + 1;
            commit(&open(&cut, point).unwrap(), next).unwrap();
            assert_eq!(read(&cut).unwrap().0, numbers(next), "{operations} {seed}");
        }
        if opened == 3 {
            break;
        }
    }
    assert!(failed > 6, "{failed}");
}

#[test]
fn a_log_opens_on_a_full_disk_and_its_epoch_begins_once_there_is_space() {
    let disk = written(5);
    let end = read(&disk).unwrap().1;
    // The rest of the last segment, and the one after it, are given back, but are too short.
    let wide = LogOptions { segment_bytes: 8 << 20, ..options() };
    disk.leave_room(0);
    let log = Log::open(disk.clone(), directory(), DATABASE, end, wide).unwrap();
    for _ in 0..2 {
        assert_eq!(append(&log, 6, &redo(6)).unwrap_err().state(), SqlState::DISK_FULL);
        assert_eq!(log.begin_epoch().unwrap_err().state(), SqlState::DISK_FULL);
        let mut long = RedoBuffer::new();
        long.delete(TableId(1), RowId::from_bits(1));
        assert_eq!(long.spill(log.spills()).unwrap_err().state(), SqlState::DISK_FULL);
        assert!(log_files(&disk).iter().all(|path| path.extension().is_some_and(|end| end != "spill")));
        assert_eq!(read(&disk).unwrap(), (numbers(5), end));
    }
    disk.heal();
    commit(&log, 6).unwrap();
    log.close().unwrap();
    assert_eq!(read(&disk).unwrap().0, numbers(6));
}

#[test]
fn the_end_of_an_epoch_that_is_damaged_is_not_the_end_of_the_log() {
    let disk = written(5);
    let end = read(&disk).unwrap().1;
    let log = open(&disk, end).unwrap();
    let copy = disk.after_kill();
    drop(log);
    // The last group of the first epoch; the second one has begun, but written nothing.
    let last = segments(&copy).into_iter().rfind(|name| name.epoch == Epoch(1)).unwrap();
    let file = copy.open(&directory().join(last.to_string())).unwrap();
    let length = file.len().unwrap();
    let mut byte = [0];
    file.read_at(&mut byte, length - 9).unwrap();
    file.write_at(&[byte[0] ^ 1], length - 9).unwrap();
    let error = read(&copy).unwrap_err();
    assert_eq!(error.state(), SqlState::DATA_CORRUPTED);
    assert!(
        error.detail().is_some_and(|detail| detail.contains("a later start begins behind it")),
        "{error:?}"
    );
}

/// A segment with these groups, each of one commit, sealed by the caller.
fn forged(seals: &[Seal], bytes: &[&[u8]]) -> Arc<SimulatedDisk> {
    let disk = SimulatedDisk::new();
    disk.create_directory(directory()).unwrap();
    let header = SegmentHeader {
        version: FORMAT_VERSION,
        number: 0,
        epoch: Epoch(1),
        first: Lsn(0),
        file_bytes: DATA_START + 4096,
        database: DATABASE,
        salt: 7,
    };
    let file = disk.create(&directory().join(header.name().to_string())).unwrap();
    file.set_len(header.file_bytes).unwrap();
    file.write_at(&header.encode(), 0).unwrap();
    let (mut at, mut previous) = (0, 0);
    for (seal, bytes) in seals.iter().zip(bytes) {
        let mut group = vec![0; GROUP_HEADER_LEN];
        group.extend(encode_entry_header(Time(1), bytes.len()));
        group.extend_from_slice(bytes);
        group.resize(group.len().next_multiple_of(8), 0);
        let seal = Seal { lsn: Lsn(at), previous: previous ^ seal.previous, ..*seal };
        previous = seal_group(std::slice::from_mut(&mut group), &seal);
        file.write_at(&group, DATA_START + at).unwrap();
        at += group.len() as u64;
    }
    disk
}

#[test]
fn a_whole_group_of_another_history_is_damage_and_not_the_end() {
    // `previous` is what is wrong with the checksum.
    let good = Seal { entries: 1, lsn: Lsn(0), salt: 7, epoch: Epoch(1), wall_time: 5, previous: 0 };
    let bytes: [&[u8]; 3] = [b"one", b"two", b"three"];
    assert_eq!(groups(&forged(&[good, good, good], &bytes)).len(), 3);
    let wrong = Seal { previous: 1, ..good };
    let earlier = Seal { wall_time: 4, ..good };
    for (seals, whole, detail) in [
        ([wrong, good, good], 0, "does not follow"),
        ([good, wrong, good], 1, "does not follow"),
        ([good, good, earlier], 2, "is older"),
    ] {
        let disk = forged(&seals, &bytes);
        let mut reader = Reader::open(&*disk, directory(), DATABASE, LogPoint::START).unwrap();
        (0..whole).for_each(|_| assert!(reader.next_group().unwrap().is_some()));
        let error = reader.next_group().unwrap_err();
        assert_eq!(error.state(), SqlState::DATA_CORRUPTED);
        assert!(error.detail().is_some_and(|text| text.contains(detail)), "{error:?}");
    }
    // The same history, from a point that is not in it.
    let disk = forged(&[good, good], &bytes);
    let point = groups(&disk)[0].end;
    let from = |point| Reader::open(&*disk, directory(), DATABASE, point).unwrap().next_group();
    assert!(from(point).unwrap().is_some());
    assert!(from(LogPoint { checksum: point.checksum ^ 1, ..point }).is_err());
    assert!(from(LogPoint { epoch: Epoch(2), ..point }).is_err());
}

/// A log as version 1 wrote it: groups of one commit, which cross the ends of segments.
fn first_version(count: u64) -> Arc<SimulatedDisk> {
    const FILE_BYTES: u64 = 4096 + 512;
    let disk = SimulatedDisk::new();
    disk.create_directory(directory()).unwrap();
    let mut log = Vec::new();
    for number in 1..=count {
        let at = log.len();
        // The salt is that of the segment.
        let salt = at as u64 / 512;
        let redo = redo(number);
        let mut group = vec![0; 32];
        group.extend(encode_entry_header(Time(number), redo.len()));
        group.extend(redo);
        group.resize(group.len().next_multiple_of(8), 0);
        let length = (group.len() - 32) as u64;
        for (from, word) in [(8, at as u64), (16, length), (24, salt)] {
            group[from..from + 8].copy_from_slice(&word.to_le_bytes());
        }
        group[4] = 1;
        let crc = crc32c::crc32c(&group[4..]);
        group[..4].copy_from_slice(&crc.to_le_bytes());
        log.extend(group);
    }
    for (number, data) in log.chunks(512).chain([&[][..]]).enumerate() {
        let number = number as u64;
        let mut header = b"FIRNREDO\x01\0\0\0\0\0\0\0".to_vec();
        for word in [number, 512 * number, FILE_BYTES] {
            header.extend(word.to_le_bytes());
        }
        header.extend(DATABASE.0);
        header.extend(number.to_le_bytes());
        let crc = crc32c::crc32c_append(crc32c::crc32c(&header[..12]), &header[16..]);
        header[12..16].copy_from_slice(&crc.to_le_bytes());
        let file = disk.create(&directory().join(format!("{number:016x}.redo"))).unwrap();
        file.allocate(FILE_BYTES).unwrap();
        file.write_at(&header, 0).unwrap();
        file.write_at(data, 4096).unwrap();
        file.sync().unwrap();
    }
    disk.sync_directory(directory()).unwrap();
    disk
}

#[test]
fn a_log_of_version_1_is_read_and_continued_whatever_happens_meanwhile() {
    for count in [0, 1, 3, 14] {
        let disk = first_version(count);
        let (times, end) = read(&disk).unwrap();
        assert_eq!(times, numbers(count));
        assert_eq!((end.epoch, end.wall_time), (Epoch(0), 0));
        let mut opened = 0;
        for operations in 0.. {
            let copy = disk.after_kill();
            copy.fail_after_operations(operations, Fault::Broken);
            let continued = open(&copy, end)
                .and_then(|log| (count + 1..count + 4).try_for_each(|next| commit(&log, next)));
            opened += u64::from(continued.is_ok());
            copy.heal();
            for seed in 0..4 {
                let cut = copy.after_power_cut(&mut Random::seeded(seed));
                let (times, point) =
                    read(&cut).unwrap_or_else(|error| panic!("{operations} {seed}: {error:?}"));
                assert_eq!(times, numbers(times.len() as u64));
                assert!(times.len() as u64 >= if continued.is_ok() { count + 3 } else { count });
                let log = open(&cut, point).unwrap();
                commit(&log, times.len() as u64 + 1).unwrap();
                drop(log);
                assert_eq!(read(&cut).unwrap().0, numbers(times.len() as u64 + 1));
            }
            if opened == 2 {
                break;
            }
        }
        // The first group after those of version 1 follows the last one of them.
        let log = open(&disk, end).unwrap();
        commit(&log, count + 1).unwrap();
        let groups = groups(&disk);
        assert_eq!((groups.len() as u64, groups.last().unwrap().end.epoch), (count + 1, Epoch(1)));
        // With the log, its segments go, too.
        truncate(&log, log.reader_start());
        assert!(segments(&disk).iter().all(|name| name.epoch == Epoch(1)), "{:?}", segments(&disk));
        commit(&log, count + 2).unwrap();
    }
}

#[test]
fn a_byte_of_version_1_that_is_flipped_is_found() {
    let disk = first_version(14);
    let (mut reported, mut cut) = (0, 0);
    for path in log_files(&disk) {
        let length = disk.open(&path).unwrap().len().unwrap();
        for at in (0..length).filter(|at| *at < 64 || *at >= 4096) {
            let copy = disk.after_kill();
            let file = copy.open(&path).unwrap();
            let mut byte = [0];
            file.read_at(&mut byte, at).unwrap();
            file.write_at(&[byte[0] ^ 0x10], at).unwrap();
            match read(&copy) {
                Ok((times, _)) => {
                    assert_eq!(times, numbers(times.len() as u64));
                    assert!(times.len() >= 13, "byte {at} of {path:?}: {times:?}");
                    cut += usize::from(times.len() == 13);
                }
                Err(error) => {
                    assert_eq!(error.state(), SqlState::DATA_CORRUPTED, "{error:?}");
                    reported += 1;
                }
            }
        }
    }
    assert!(reported > 500 && cut > 50, "{reported} {cut}");
}
