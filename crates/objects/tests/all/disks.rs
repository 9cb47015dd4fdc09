//! Files and directories.

use crate::faults::Faults;
use firn_base::SqlState;
use firn_base::disk::{Disk, DiskFile, Medium};
use firn_base::random::Random;
use firn_base::sync::Arc;
use firn_base::thread;
use firn_objects::ObjectDisk;
use object_store::ObjectStoreExt;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[test]
fn it_behaves_as_other_disks_do_as_far_as_objects_can() {
    let store = Faults::default();
    let disk = store.disk();
    let disk = &*disk as &dyn Disk;
    assert_eq!(disk.medium(), Medium::Objects);
    let inner = Path::new("/a/b");
    disk.create_directory(inner).unwrap();
    let path = inner.join("file");
    for missing in [disk.open(&path).map(drop), disk.open_to_read(&path).map(drop), disk.remove(&path)]
        .map(Result::unwrap_err)
    {
        assert_eq!(missing.state(), SqlState::UNDEFINED_FILE);
        assert!(missing.message().contains("/a/b/file"), "{missing:?}");
    }
    let file = disk.create(&path).unwrap();
    file.write_at(b"hello world", 0).unwrap();
    file.write_at(b"W", 6).unwrap();
    file.write_at(b"brave", 20).unwrap();
    assert!(!disk.exists(&path).unwrap(), "it is not complete");
    file.set_len(11).unwrap();
    file.set_len(16).unwrap();
    file.allocate(12).unwrap();
    file.sync().unwrap();
    for file in [file, disk.open(&path).unwrap(), disk.open_to_read(&path).unwrap()] {
        let mut buffer = [9; 20];
        assert_eq!(file.read_at(&mut buffer, 4).unwrap(), 12);
        assert_eq!(&buffer[..12], b"o World\0\0\0\0\0");
        assert_eq!(file.read_at(&mut buffer, 100).unwrap(), 0);
        assert_eq!(file.len().unwrap(), 16);
    }
    let other = inner.join("other");
    assert_eq!(disk.rename(&path, &other).unwrap_err().state(), SqlState::FEATURE_NOT_SUPPORTED);
    disk.remove(&path).unwrap();
    let file = disk.create(&other).unwrap();
    file.sync().unwrap();
    assert!(!disk.exists(&path).unwrap() && disk.exists(&other).unwrap() && disk.exists(inner).unwrap());
    assert_eq!(disk.list(inner).unwrap(), ["other"]);
    disk.replace(&other, &inner.join("temporary"), b"new").unwrap();
    assert_eq!(disk.read(&other).unwrap(), b"new");
    assert_eq!(disk.list(inner).unwrap(), ["other"]);
    assert_eq!(disk.list(Path::new("/a")).unwrap(), ["b"]);
    assert_eq!(disk.list(Path::new("/")).unwrap(), ["a"]);
    assert!(disk.remove_directory(inner).is_err(), "it is not empty");
    disk.remove(&other).unwrap();
    disk.remove_directory(inner).unwrap();
    assert!(disk.list(inner).unwrap().is_empty() && !disk.exists(inner).unwrap());
    let empty = disk.create(&path).unwrap();
    empty.sync().unwrap();
    assert_eq!(disk.read(&path).unwrap(), b"");
    assert!(disk.create_temporary(inner).unwrap_err().hint().is_some());
    assert!(disk.open_write_through(&path).is_err());
    assert!(disk.open_to_read(&path).unwrap().write_at(b"x", 0).is_err());
}

/// A file of the model: what is there now, what was synced, and the least length since then.
#[derive(Clone, Default)]
struct Modelled {
    content: Vec<u8>,
    synced: Option<Vec<u8>>,
    least: usize,
}

/// Random operations on a few files, compared with vectors of bytes. After a crash a file has what was synced; if it was cut
/// since, perhaps only a part of that, but not less than what was left then.
#[test]
fn a_history_of_operations_is_that_of_a_simple_model() {
    for seed in 1..=40 {
        let mut random = Random::seeded(seed);
        let store = Faults::default();
        let mut disk = store.disk();
        let mut model: BTreeMap<PathBuf, Modelled> = BTreeMap::new();
        let mut open: BTreeMap<PathBuf, Arc<dyn DiskFile>> = BTreeMap::new();
        for step in 0..120 {
            let path = Path::new("/d").join(["one", "two", "three"][random.uniform(0, 2) as usize]);
            let context = format!("seed {seed}, step {step}, {path:?}");
            if !open.contains_key(&path) {
                match model.get(&path).filter(|file| file.synced.is_some()) {
                    Some(_) if random.uniform(0, 4) > 0 => {
                        open.insert(path.clone(), disk.open(&path).expect(&context));
                    }
                    _ => {
                        let synced = model.remove(&path).and_then(|file| file.synced);
                        open.insert(path.clone(), disk.create(&path).unwrap());
                        model.insert(path.clone(), Modelled { synced, ..Modelled::default() });
                    }
                }
            }
            let (file, modelled) = (open[&path].clone(), model.get_mut(&path).unwrap());
            let length = modelled.content.len();
            match random.uniform(0, 11) {
                0..=4 => {
                    let most = [10, 800, 3000, 90_000][random.uniform(0, 3) as usize];
                    let bytes: Vec<u8> =
                        (0..random.uniform(1, most)).map(|_| random.next_u64() as u8).collect();
                    let at = (length as i64 + random.uniform(-50, 200)).max(0) as usize;
                    match file.write_at(&bytes, at as u64) {
                        Ok(()) => {
                            modelled.content.resize(length.max(at + bytes.len()), 0);
                            modelled.content[at..at + bytes.len()].copy_from_slice(&bytes);
                        }
                        Err(error) => {
                            assert_eq!(error.state(), SqlState::FEATURE_NOT_SUPPORTED);
                            assert!(at < length, "{context}");
                        }
                    }
                }
                5 => {
                    let to = random.uniform(0, length as i64) as usize;
                    match file.set_len(to as u64) {
                        Ok(()) => {
                            modelled.content.truncate(to);
                            modelled.least = modelled.least.min(to);
                        }
                        Err(error) => assert_eq!(error.state(), SqlState::FEATURE_NOT_SUPPORTED),
                    }
                }
                6..=8 => {
                    file.sync().expect(&context);
                    modelled.synced = Some(modelled.content.clone());
                    modelled.least = length;
                }
                9 => {
                    // What was not synced is lost: here only files without that are closed.
                    if modelled.synced.as_ref() == Some(&modelled.content) {
                        open.remove(&path);
                        if random.uniform(0, 3) == 0 {
                            disk.remove(&path).expect(&context);
                            model.remove(&path);
                        }
                    }
                }
                10 => {
                    drop(file);
                    open.clear();
                    disk = store.disk();
                    model.retain(|_, file| file.synced.is_some());
                    for (path, file) in &mut model {
                        let found = (&*disk as &dyn Disk).read(path).expect(&context);
                        let synced = file.synced.take().unwrap();
                        assert!(synced.starts_with(&found), "{context}");
                        assert!(found.len() >= file.least.min(synced.len()), "{context}");
                        let least = found.len();
                        *file = Modelled { content: found.clone(), synced: Some(found), least };
                    }
                }
                _ => {
                    let names: Vec<String> = model
                        .iter()
                        .filter(|(_, file)| file.synced.is_some())
                        .map(|(path, _)| path.file_name().unwrap().to_str().unwrap().to_owned())
                        .collect();
                    let mut listed = disk.list(Path::new("/d")).unwrap();
                    listed.sort();
                    let mut names = names;
                    names.sort();
                    assert_eq!(listed, names, "{context}");
                }
            }
            check(&disk, &open, &model, &mut random, &context);
        }
    }
}

fn check(
    disk: &Arc<ObjectDisk>,
    open: &BTreeMap<PathBuf, Arc<dyn DiskFile>>,
    model: &BTreeMap<PathBuf, Modelled>,
    random: &mut Random,
    context: &str,
) {
    for (path, file) in model {
        if let Some(open) = open.get(path) {
            assert_eq!(open.len().unwrap(), file.content.len() as u64, "{context}");
            let at = random.uniform(0, file.content.len() as i64) as usize;
            let mut buffer = vec![0; random.uniform(0, 3000) as usize];
            match open.read_at(&mut buffer, at as u64) {
                Ok(read) => {
                    let rest = &file.content[at..];
                    assert_eq!(buffer[..read], rest[..buffer.len().min(rest.len())], "{context}");
                }
                // It is being uploaded.
                Err(error) => assert_eq!(error.state(), SqlState::FEATURE_NOT_SUPPORTED),
            }
        }
        // Another handle sees what was synced.
        let Some(synced) = &file.synced else { continue };
        if file.least < synced.len() {
            continue;
        }
        let reading = disk.open_to_read(path).unwrap();
        assert_eq!(reading.len().unwrap(), synced.len() as u64, "{context}");
        for _ in 0..3 {
            let mut buffer = vec![0; random.uniform(0, 9000) as usize];
            let at = random.uniform(0, synced.len() as i64 + 10) as usize;
            let read = reading.read_at(&mut buffer, at as u64).unwrap();
            let rest = &synced[at.min(synced.len())..];
            assert_eq!(buffer[..read], rest[..buffer.len().min(rest.len())], "{context}");
        }
        assert_eq!((&**disk as &dyn Disk).read(path).unwrap(), *synced, "{context}");
    }
}

/// A file that grows by little things: its last piece is written again, so that there are few objects.
#[test]
fn a_file_that_grows_is_a_few_objects_at_any_crash() {
    let store = Faults::default();
    let disk = store.disk();
    let path = Path::new("/log/segment");
    let file = disk.create(path).unwrap();
    let mut content = Vec::new();
    for number in 0..300_u64 {
        let bytes = number.to_le_bytes();
        file.write_at(&bytes, content.len() as u64).unwrap();
        content.extend(bytes);
        file.sync().unwrap();
        assert_eq!((&*store.disk() as &dyn Disk).read(path).unwrap(), content);
    }
    // 2400 bytes in pieces of 1000 and a little.
    assert_eq!(
        store.names(),
        ["log/segment", "log/segment@/00000000000000001000", "log/segment@/00000000000000002000"]
    );
    assert_eq!(disk.list(Path::new("/log")).unwrap(), ["segment"]);
    // Cut at every place, it is what was left.
    for length in (0..content.len()).rev().step_by(97) {
        let file = disk.open(path).unwrap();
        file.set_len(length as u64).unwrap();
        file.sync().unwrap();
        content.truncate(length);
        assert_eq!((&*store.disk() as &dyn Disk).read(path).unwrap(), content);
    }
    disk.remove(path).unwrap();
    assert!(store.names().is_empty());
}

/// Every request of a change fails once: the file is what it was, or what it was to be, or a part that a crash may leave.
#[test]
fn a_failure_at_any_request_leaves_a_prefix() {
    let path = Path::new("/log/segment");
    let pattern: Vec<u8> = (0..200_000_u32).map(|number| (number / 7) as u8).collect();
    let content = |disk: &ObjectDisk| match (disk as &dyn Disk).read(path) {
        Ok(content) => Some(content),
        Err(error) => {
            assert_eq!(error.state(), SqlState::UNDEFINED_FILE);
            None
        }
    };
    let grow = |disk: &ObjectDisk, to: usize| -> firn_base::Result<()> {
        let file = disk.open(path)?;
        file.write_at(&pattern[file.len()? as usize..to], file.len()?)?;
        file.sync()
    };
    let cut = |disk: &ObjectDisk, to: usize| -> firn_base::Result<()> {
        let file = disk.open(path)?;
        file.set_len(to as u64)?;
        file.sync()
    };
    type Change<'a> = &'a dyn Fn(&ObjectDisk) -> firn_base::Result<()>;
    let changes: [Change<'_>; 7] = [
        &|disk| grow(disk, 5500),
        &|disk| grow(disk, 130_000),
        &|disk| cut(disk, 4700),
        &|disk| cut(disk, 1200),
        &|disk| cut(disk, 0),
        &|disk| disk.remove(path),
        &|disk| {
            let file = disk.create(path)?;
            file.write_at(&pattern[..100_000], 0)?;
            file.sync()
        },
    ];
    let mut failures = 0;
    for change in changes {
        for after in 0.. {
            let store = Faults::default();
            let disk = store.disk();
            let file = disk.create(path).unwrap();
            for to in [700, 1500, 3300, 5000] {
                file.write_at(&pattern[file.len().unwrap() as usize..to], file.len().unwrap()).unwrap();
                file.sync().unwrap();
            }
            drop(file);
            store.fail(after, 1);
            let changed = change(&disk);
            store.heal();
            let found = content(&store.disk());
            assert!(found.as_ref().is_none_or(|found| pattern.starts_with(found)), "after {after} requests");
            // What was interrupted can be done again.
            change(&store.disk())
                .or_else(|error| match error.state() {
                    SqlState::UNDEFINED_FILE if found.is_none() => Ok(()),
                    _ => Err(error),
                })
                .unwrap();
            if changed.is_ok() {
                break;
            }
            failures += 1;
        }
    }
    assert!(failures > 30, "{failures}");
}

#[test]
fn a_large_file_is_read_by_few_requests() {
    let store = Faults::default();
    let disk = ObjectDisk::new("", Arc::new(store.clone())).unwrap();
    let path = Path::new("/large");
    let content: Vec<u8> = (0..40_u32 << 20).map(|number| (number >> 8) as u8).collect();
    let file = disk.create_direct(path).unwrap();
    for (number, chunk) in content.chunks(1 << 20).enumerate() {
        file.write_at(chunk, (number << 20) as u64).unwrap();
    }
    let (_, before) = store.requests();
    file.sync().unwrap();
    let (_, written) = store.requests();
    // The beginning, five parts, the end. Most are sent while it is written.
    assert!(written <= 7 && before >= 5, "{before}, {written}");
    let (before, _) = store.requests();
    let file = disk.open_to_read(path).unwrap();
    let (mut chunk, mut at) = (vec![0; 64 << 10], 0);
    while at < content.len() {
        let read = file.read_at(&mut chunk, at as u64).unwrap();
        assert!(chunk[..read] == content[at..at + read]);
        at += read;
    }
    let (after, _) = store.requests();
    assert!(after - before <= 16, "{}", after - before);
}

/// So that a slow network is shared among few, and each part arrives in time.
#[test]
fn few_parts_are_sent_at_once_of_however_many_files() {
    let store = Faults::default();
    let disk = store.disk();
    let names: Vec<String> = (0..6).map(|number| format!("/d/{number}")).collect();
    thread::for_each("test", names.len(), &names, |name| {
        let file = disk.create(Path::new(name))?;
        for at in 0..20 {
            file.write_at(&[7; 10_000], at * 10_000)?;
        }
        file.sync()
    })
    .unwrap();
    assert!((2..=4).contains(&store.most_sending()), "{}", store.most_sending());
    for name in &names {
        assert_eq!((&*disk as &dyn Disk).read(Path::new(name)).unwrap(), [7; 200_000]);
    }
}

/// A request to write is given up and arrives after the file has grown.
#[test]
fn a_late_request_does_not_put_less_in_the_place_of_more() {
    for begin in [0, 2000] {
        let store = Faults::default();
        let disk = store.disk();
        let path = Path::new("/log/segment");
        let mut content: Vec<u8> = (0..begin).map(|number| number as u8).collect();
        let file = disk.create(path).unwrap();
        file.write_at(&content, 0).unwrap();
        file.sync().unwrap();
        for round in 0..4_u8 {
            // As an archive does after an error: it opens the file again.
            let file = disk.open(path).unwrap();
            file.write_at(&[round; 100], content.len() as u64).unwrap();
            store.hold_back(1);
            assert_eq!(file.sync().unwrap_err().state(), SqlState::IO_ERROR);
            let file = disk.open(path).unwrap();
            assert_eq!(file.len().unwrap(), content.len() as u64);
            content.extend([round; 150]);
            file.write_at(&[round; 150], file.len().unwrap()).unwrap();
            file.sync().unwrap();
            store.write_late();
            assert_eq!((&*disk as &dyn Disk).read(path).unwrap(), content, "{begin}, {round}");
        }
    }
}

/// The store has written what it reports as failed: the library sends it again, which is refused.
#[test]
fn a_request_that_has_arrived_unseen_can_be_repeated() {
    let store = Faults::default();
    let disk = store.disk();
    let path = Path::new("/log/segment");
    let file = disk.create(path).unwrap();
    for round in 0..30_u64 {
        file.write_at(&[round as u8; 100], round * 100).unwrap();
        store.lose_replies(1);
        assert!(file.sync().is_err());
        file.sync().unwrap();
        assert_eq!((&*disk as &dyn Disk).read(path).unwrap().len() as u64, (round + 1) * 100);
    }
}

/// Between the two requests that open it.
#[test]
fn a_file_that_grows_while_it_is_opened_is_not_damaged() {
    let path = Path::new("/log/segment");
    for after in 0..3 {
        let store = Faults::default();
        let disk = store.disk();
        let content: Vec<u8> = (0..2000_u32).map(|number| number as u8).collect();
        let file = disk.create(path).unwrap();
        file.write_at(&content[..500], 0).unwrap();
        file.sync().unwrap();
        let (inner, grown) = (store.inner.clone(), content.clone());
        store.at_request(after, move || {
            let put = |name: &str, bytes: &[u8]| {
                let (name, bytes) = (name.into(), bytes.to_vec().into());
                futures::executor::block_on(inner.put(&name, bytes)).unwrap();
            };
            put("log/segment", &grown[..1200]);
            put("log/segment@/00000000000000001200", &grown[1200..]);
        });
        let found = (&*disk as &dyn Disk).read(path).unwrap();
        assert!(found.len() >= 500 && content.starts_with(&found), "{after}: {}", found.len());
        assert_eq!((&*disk as &dyn Disk).read(path).unwrap(), content);
    }
}
