//! The archive of the log, and restoring from a backup with it.

use crate::support::*;
use firn_base::disk::{Disk, Fault, SimulatedDisk};
use firn_base::random::Random;
use firn_base::sync::Arc;
use firn_base::{SqlState, clock};
use firn_replica::archive::Archiver;
use firn_replica::backup::{Repository, Target, Wanted};
use std::path::Path;
use std::time::Duration;

fn start(disk: &Arc<SimulatedDisk>, ledger: &Ledger) -> Archiver {
    Archiver::start(ledger.database.engine().clone(), disk.clone(), Path::new(BACKUPS), |_| {}).unwrap()
}

fn wait_until(what: &str, mut is: impl FnMut() -> bool) {
    let begun = clock::now();
    while !is() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        clock::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_backup_is_restored_to_any_time_in_the_archive() {
    let (disk, backups) = (SimulatedDisk::new(), SimulatedDisk::new());
    let mut ledger = Ledger::new(&disk);
    let archiver = start(&backups, &ledger);
    ledger.commit(10);
    create(&backups, &ledger.database, false);
    let first = ledger.entries.len();
    for _ in 0..4 {
        ledger.commit(20);
        ledger.load();
        ledger.database.checkpoint().unwrap();
    }
    ledger.commit(20);
    ledger.connection.execute("SELECT pg_create_restore_point('here')").unwrap();
    ledger.commit(3);
    let expected = contents(&ledger.database);
    assert_eq!(archiver.status().failures, 0);
    archiver.stop();
    let archived = repository(&backups).archived().unwrap();
    assert_eq!(archived.len(), 1);
    assert!(ledger.database.engine().pinned().is_empty());
    assert_eq!(contents(&restore(&backups, "/latest", &to(Target::Latest))), expected);
    assert_eq!(last_id(&restore(&backups, "/named", &to(Target::Name("here".into())))), 109);
    let mut random = Random::seeded(11);
    for _ in 0..10 {
        let time = random.uniform(ledger.entries[first].acknowledged, archived[0].run.complete_until);
        let last = last_id(&restore(&backups, "/restored", &to(Target::Time(time))));
        let must =
            ledger.entries.iter().filter(|entry| entry.acknowledged < time).map(|entry| entry.id).max();
        let may = ledger.entries.iter().filter(|entry| entry.begun <= time).map(|entry| entry.id).max();
        assert!((must.unwrap_or(-1)..=may.unwrap_or(-1)).contains(&last), "{last} at {time}");
        remove(&backups, "/restored");
    }
}

#[test]
fn an_archive_goes_on_after_restarts_and_kills() {
    let (mut disk, backups) = (SimulatedDisk::new(), SimulatedDisk::new());
    let mut ledger = Ledger::new(&disk);
    let archiver = start(&backups, &ledger);
    ledger.commit(10);
    create(&backups, &ledger.database, false);
    let mut archiver = Some(archiver);
    for round in 0..6 {
        ledger.commit(30);
        let Ledger { database, connection, entries } = ledger;
        if round % 2 == 0 {
            // As a server does it: the archive ends after the last commit.
            archiver.take().unwrap().stop();
            drop(connection);
            database.close().unwrap();
        } else {
            let target = database.engine().durable_lsn();
            wait_until("all is archived", || archiver.as_ref().unwrap().status().position >= Some(target));
            disk = disk.after_kill();
            drop(archiver.take());
        }
        let database = open(&disk);
        let connection = database.connect();
        ledger = Ledger { database, connection, entries };
        archiver = Some(start(&backups, &ledger));
    }
    ledger.commit(7);
    let status = archiver.as_ref().unwrap().status();
    assert_eq!((status.gaps, status.failures), (0, 0));
    let expected = contents(&ledger.database);
    archiver.take().unwrap().stop();
    assert_eq!(repository(&backups).archived().unwrap().len(), 1);
    assert_eq!(contents(&restore(&backups, "/restored", &to(Target::Latest))), expected);
}

/// While the archive's disk is full, the log is retained; then the archive goes on.
#[test]
fn an_archive_that_fails_is_tried_again() {
    let (disk, backups) = (SimulatedDisk::new(), SimulatedDisk::new());
    let mut ledger = Ledger::new(&disk);
    let archiver = start(&backups, &ledger);
    create(&backups, &ledger.database, false);
    ledger.commit(5);
    let target = ledger.database.engine().durable_lsn();
    wait_until("all is archived", || archiver.status().position >= Some(target));
    backups.fail_after_bytes(3000, Fault::Full);
    ledger.commit(200);
    ledger.database.checkpoint().unwrap();
    wait_until("it fails", || archiver.status().failures > 0);
    let status = archiver.status();
    assert!(status.last_failure.unwrap().2.contains("space"));
    ledger.commit(200);
    ledger.database.checkpoint().unwrap();
    backups.fail_after_bytes(u64::MAX, Fault::Full);
    let target = ledger.database.engine().durable_lsn();
    wait_until("it goes on", || archiver.status().position >= Some(target));
    assert_eq!(archiver.status().gaps, 0);
    assert!(archiver.status().archived > 0);
    let expected = contents(&ledger.database);
    archiver.stop();
    assert_eq!(contents(&restore(&backups, "/restored", &to(Target::Latest))), expected);
}

/// The archive's directory cannot be reached for a while: nothing of the log may be removed meanwhile.
#[test]
fn an_archive_that_cannot_be_opened_retains_the_log() {
    let (disk, backups) = (SimulatedDisk::new(), SimulatedDisk::new());
    let mut ledger = Ledger::new(&disk);
    let archiver = start(&backups, &ledger);
    create(&backups, &ledger.database, false);
    backups.fail_after_operations(0, Fault::Broken);
    ledger.commit(5);
    wait_until("it fails", || archiver.status().failures > 0);
    wait_until("it fails again", || archiver.status().failures > 1);
    ledger.commit(400);
    ledger.database.checkpoint().unwrap();
    ledger.commit(400);
    ledger.database.checkpoint().unwrap();
    backups.fail_after_operations(u64::MAX, Fault::Broken);
    let target = ledger.database.engine().durable_lsn();
    wait_until("it goes on", || archiver.status().position >= Some(target));
    assert_eq!(archiver.status().gaps, 0);
    archiver.stop();
    assert_eq!(last_id(&restore(&backups, "/restored", &to(Target::Latest))), 804);
}

/// What a killed server has archived counts, also what is not in the description yet.
#[test]
fn a_run_has_more_than_its_description_says() {
    let (disk, backups) = (SimulatedDisk::new(), SimulatedDisk::new());
    let mut ledger = Ledger::new(&disk);
    create(&backups, &ledger.database, false);
    let archiver = start(&backups, &ledger);
    ledger.commit(20);
    let target = ledger.database.engine().durable_lsn();
    wait_until("all is archived", || archiver.status().position >= Some(target));
    let killed = backups.after_kill();
    assert_eq!(last_id(&restore(&killed, "/restored", &to(Target::Latest))), 19);
    // A backup that ends after the description.
    let later = create(&killed, &ledger.database, false);
    ledger.commit(5);
    let target = ledger.database.engine().durable_lsn();
    wait_until("all is archived", || archiver.status().position >= Some(target));
    let mut wanted = to(Target::Latest);
    wanted.backup = Some(later.description.label);
    wanted.archive = Some(repository(&killed));
    assert_eq!(last_id(&restore(&killed, "/later", &wanted)), 19);
    archiver.stop();
    for archived in repository(&backups).archived().unwrap() {
        let end = repository(&backups).verify_archived(&archived).unwrap();
        assert!(end.is_same_place(&archived.run.end));
    }
    let empty = Repository::open_or_create(backups.clone(), Path::new("/nothing")).unwrap();
    let nowhere = Wanted { archive: Some(empty), ..to(Target::Latest) };
    assert!(try_restore(&backups, "/none", &nowhere).is_err());
}

/// The server was without an archive for a while, and has removed that part of the log.
#[test]
fn a_gap_begins_a_new_run_and_needs_a_new_backup() {
    let (disk, backups) = (SimulatedDisk::new(), SimulatedDisk::new());
    let mut ledger = Ledger::new(&disk);
    let archiver = start(&backups, &ledger);
    create(&backups, &ledger.database, false);
    ledger.commit(10);
    archiver.stop();
    ledger.commit(400);
    ledger.database.checkpoint().unwrap();
    ledger.commit(400);
    ledger.database.checkpoint().unwrap();
    let archiver = start(&backups, &ledger);
    assert_eq!(archiver.status().gaps, 1);
    ledger.commit(10);
    archiver.stop();
    assert_eq!(repository(&backups).archived().unwrap().len(), 2);
    // Up to the gap.
    let restored = try_restore(&backups, "/before", &to(Target::Latest)).unwrap();
    assert!(restored.gap.is_some());
    assert_eq!(last_id(&open_at(&backups, "/before").unwrap()), 9);
    let time = ledger.entries[815].acknowledged;
    let error = try_restore(&backups, "/beyond", &to(Target::Time(time))).unwrap_err();
    assert_eq!(error.state(), SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE);
    let archiver = start(&backups, &ledger);
    create(&backups, &ledger.database, false);
    ledger.commit(10);
    archiver.stop();
    assert_eq!(last_id(&restore(&backups, "/after", &to(Target::Latest))), 829);
}

#[test]
fn pruning_removes_the_archive_before_the_oldest_backup() {
    let (disk, backups) = (SimulatedDisk::new(), SimulatedDisk::new());
    let mut ledger = Ledger::new(&disk);
    let archiver = start(&backups, &ledger);
    let log = Path::new(BACKUPS)
        .join("archive")
        .join(ledger.database.engine().identity().unwrap().1.to_string())
        .join("1/log");
    for _ in 0..3 {
        create(&backups, &ledger.database, false);
        ledger.commit(200);
        ledger.load();
        ledger.database.checkpoint().unwrap();
    }
    let target = ledger.database.engine().durable_lsn();
    wait_until("all is archived", || archiver.status().position >= Some(target));
    let before = backups.list(&log).unwrap().len();
    assert_eq!(repository(&backups).prune(1, None).unwrap().len(), 2);
    assert!(backups.list(&log).unwrap().len() < before);
    ledger.commit(5);
    let expected = contents(&ledger.database);
    archiver.stop();
    assert_eq!(contents(&restore(&backups, "/restored", &to(Target::Latest))), expected);
    // It goes on where it was, and twice pruned is pruned.
    let archiver = start(&backups, &ledger);
    assert!(repository(&backups).prune(1, None).unwrap().is_empty());
    ledger.commit(5);
    archiver.stop();
    assert_eq!(contents(&restore(&backups, "/again", &to(Target::Latest))), contents(&ledger.database));
}

#[test]
fn one_server_archives_a_cluster() {
    let (disk, backups) = (SimulatedDisk::new(), SimulatedDisk::new());
    let ledger = Ledger::new(&disk);
    let archiver = start(&backups, &ledger);
    let second =
        Archiver::start(ledger.database.engine().clone(), backups.clone(), Path::new(BACKUPS), |_| {})
            .unwrap_err();
    assert_eq!(second.state(), SqlState::OBJECT_IN_USE);
    assert!(second.hint().is_some());
    drop(archiver);
    drop(start(&backups, &ledger));
    let memory = firn_session::Database::memory().unwrap();
    let error =
        Archiver::start(memory.engine().clone(), backups.clone(), Path::new(BACKUPS), |_| {}).unwrap_err();
    assert_eq!(error.state(), SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE);
}
