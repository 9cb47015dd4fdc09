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
