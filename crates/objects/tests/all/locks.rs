//! Locks, which are leases.

use crate::faults::Faults;
use firn_base::disk::Disk;
use firn_base::{SqlState, clock};
use std::path::Path;
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(3);
const LOCK: &str = "/backups/LOCK";

#[test]
fn one_holder_has_a_lock_until_it_is_dropped() {
    let store = Faults::default();
    let (one, other) = (store.disk_with(LEASE), store.disk_with(LEASE));
    let held = one.lock(Path::new(LOCK)).unwrap();
    // It is renewed.
    for _ in 0..5 {
        let error = other.lock(Path::new(LOCK)).unwrap_err();
        assert_eq!(error.state(), SqlState::OBJECT_IN_USE);
        assert!(error.detail().is_some_and(|who| who.contains(&std::process::id().to_string())), "{error:?}");
        clock::sleep(LEASE / 2);
    }
    drop(held);
    let held = other.lock(Path::new(LOCK)).unwrap();
    assert!(one.lock(Path::new(LOCK)).is_err());
    drop(held);
    drop(one.lock(Path::new(LOCK)).unwrap());
    assert_eq!(other.list(Path::new("/backups")).unwrap(), ["LOCK"]);
    assert_eq!(store.names(), ["backups/LOCK"]);
}

/// The store cannot be reached for so long that another process takes the lock.
#[test]
fn a_holder_that_was_cut_off_writes_nothing_more() {
    let store = Faults::default();
    let cut_off = store.beside();
    let (one, other) = (cut_off.disk_with(LEASE), store.disk_with(LEASE));
    let held = one.lock(Path::new(LOCK)).unwrap();
    let write = |path: &str| {
        let file = one.create(Path::new(path)).unwrap();
        file.write_at(b"x", 0).unwrap();
        file.sync()
    };
    write("/backups/first").unwrap();
    cut_off.fail(0, u64::MAX);
    clock::sleep(LEASE / 2);
    cut_off.heal();
    // It does not know whether it has the lock.
    let doubtful = write("/backups/second");
    assert!(doubtful.is_ok() || doubtful.unwrap_err().state() == SqlState::IO_ERROR);
    clock::sleep(LEASE / 2);
    write("/backups/third").unwrap();
    cut_off.fail(0, u64::MAX);
    let begun = clock::now();
    let taken = loop {
        match other.lock(Path::new(LOCK)) {
            Ok(taken) => break taken,
            Err(error) => assert_eq!(error.state(), SqlState::OBJECT_IN_USE),
        }
        assert!(begun.elapsed() < 5 * LEASE);
        clock::sleep(LEASE / 10);
    };
    cut_off.heal();
    let begun = clock::now();
    let error = loop {
        let error = write("/backups/fourth").unwrap_err();
        if error.state() == SqlState::OBJECT_IN_USE || begun.elapsed() > 5 * LEASE {
            break error;
        }
        clock::sleep(LEASE / 10);
    };
    assert_eq!(error.state(), SqlState::OBJECT_IN_USE);
    // Elsewhere it may.
    write("/elsewhere/fifth").unwrap();
    drop(held);
    assert!(one.lock(Path::new(LOCK)).is_err(), "the other one still has it");
    drop(taken);
    assert!(!other.exists(Path::new("/backups/fourth")).unwrap());
}

#[test]
fn a_store_without_conditions_has_no_locks() {
    let store = Faults::default();
    store.forget_conditions();
    let error = store.disk().lock(Path::new(LOCK)).unwrap_err();
    assert_eq!(error.state(), SqlState::FEATURE_NOT_SUPPORTED);
    assert!(error.hint().is_some());
}

/// The tag of an object is a hash of its content. One process sees that the lock has expired; the holder renews it before the other one
/// takes it over.
#[test]
fn a_lock_that_is_renewed_meanwhile_is_not_taken_over() {
    let store = Faults::default();
    let (cut_off, slow) = (store.beside(), store.beside());
    for way in [&cut_off, &slow] {
        way.use_content_tags();
    }
    let held = cut_off.disk_with(LEASE).lock(Path::new(LOCK)).unwrap();
    cut_off.fail(0, u64::MAX);
    clock::sleep(LEASE + LEASE / 4);
    // It reads the lock, writes an object to learn the time, and is held up there.
    let renewed = cut_off.clone();
    slow.at_request(1, move || {
        renewed.heal();
        clock::sleep(LEASE / 2);
    });
    let error = slow.disk_with(LEASE).lock(Path::new(LOCK)).unwrap_err();
    assert_eq!(error.state(), SqlState::OBJECT_IN_USE);
    drop(held);
    drop(slow.disk_with(LEASE).lock(Path::new(LOCK)).unwrap());
}

/// The store writes what the holder has sent, and the holder does not learn that.
#[test]
fn a_renewal_that_has_arrived_unseen_is_not_taken_for_that_of_another_process() {
    let store = Faults::default();
    store.use_content_tags();
    let disk = store.disk_with(LEASE);
    let held = disk.lock(Path::new(LOCK)).unwrap();
    for number in 0..3 {
        store.lose_replies(1);
        while store.replies_to_lose() > 0 {
            clock::sleep(LEASE / 20);
        }
        clock::sleep(LEASE / 2);
        let file = disk.create(Path::new(&format!("/backups/{number}"))).unwrap();
        file.sync().unwrap();
    }
    assert!(store.disk_with(LEASE).lock(Path::new(LOCK)).is_err());
    drop(held);
    drop(store.disk_with(LEASE).lock(Path::new(LOCK)).unwrap());
}
