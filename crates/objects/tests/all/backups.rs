//! Backups and archives in an object store, restored to a disk. What the formats can do is tested on disks, in `firn-replica`; here is
//! what may differ.

use crate::faults::Faults;
use crate::support::*;
use firn_base::disk::{Disk, SimulatedDisk};
use firn_base::random::Random;
use firn_base::sync::Arc;
use firn_base::{SqlState, clock};
use firn_objects::ObjectDisk;
use firn_replica::archive::Archiver;
use firn_replica::backup::{self, Kind, Repository, Restored, Target, Wanted};
use firn_session::Database;
use object_store::ObjectStoreExt;
use std::path::Path;
use std::time::Duration;

/// Restores to a new disk.
fn try_restore_from(
    backups: &Arc<ObjectDisk>,
    wanted: &Wanted,
) -> firn_base::Result<(Arc<SimulatedDisk>, Restored)> {
    let disk = SimulatedDisk::new();
    let target: Arc<dyn Disk> = disk.clone();
    let restored = backup::restore(&repository(backups), &target, Path::new("/restored"), wanted)?;
    Ok((disk, restored))
}

fn restore_from(backups: &Arc<ObjectDisk>, wanted: &Wanted) -> Database {
    open_at(&try_restore_from(backups, wanted).unwrap().0, "/restored").unwrap()
}

fn verify_all(backups: &Arc<ObjectDisk>) {
    let repository = repository(backups);
    for chain in repository.chains().unwrap() {
        for backup in &chain.backups {
            repository.verify(&chain.name, backup, &config(Path::new("/"))).unwrap();
        }
    }
    for archived in repository.archived().unwrap() {
        repository.verify_archived(&archived).unwrap();
    }
    assert!(repository.damaged().unwrap().is_empty());
}

fn start(backups: &Arc<ObjectDisk>, ledger: &Ledger) -> Archiver {
    Archiver::start(ledger.database.engine().clone(), backups.clone(), Path::new(BACKUPS), |_| {}).unwrap()
}

fn wait_until(what: &str, mut is: impl FnMut() -> bool) {
    let begun = clock::now();
    while !is() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        clock::sleep(Duration::from_millis(2));
    }
}

#[test]
fn backups_are_made_verified_restored_and_pruned() {
    let (disk, store) = (SimulatedDisk::new(), Faults::default());
    let mut ledger = Ledger::new(&disk);
    let mut expected = Vec::new();
    for (number, incremental) in [false, true, true, false, true].into_iter().enumerate() {
        ledger.commit(20);
        if number % 2 == 0 {
            ledger.load();
            ledger.database.checkpoint().unwrap();
        }
        let created = create(&store.disk(), &ledger.database, incremental);
        let kind = if incremental { Kind::Incremental } else { Kind::Full };
        assert_eq!((created.description.kind, created.why_full), (kind, None));
        expected.push((created.description.label, contents(&ledger.database)));
    }
    let backups = store.disk();
    verify_all(&backups);
    let ends = |label: &String| {
        let chains = repository(&backups).chains().unwrap();
        chains.into_iter().flat_map(|chain| chain.backups).find(|backup| backup.label == *label).unwrap().end
    };
    for (label, contents_then) in &expected {
        let wanted = Wanted { backup: Some(label.clone()), ..to(Target::Lsn(ends(label).lsn)) };
        assert_eq!(contents(&restore_from(&backups, &wanted)), *contents_then, "{label}");
    }
    assert_eq!(contents(&restore_from(&backups, &to(Target::Latest))), expected[4].1);
    assert_eq!(repository(&backups).prune(1, None).unwrap().len(), 3);
    let names = store.names();
    let is_removed = |name: &String| name.split('/').all(|part| part != expected[0].0);
    assert!(names.iter().all(is_removed), "{names:?}");
    assert!(repository(&store.disk()).prune(1, None).unwrap().is_empty());
    assert_eq!(contents(&restore_from(&backups, &to(Target::Latest))), expected[4].1);
    verify_all(&backups);
}

/// The first request that fails is any one; nothing succeeds after it. Then another process goes on.
#[test]
fn an_interrupted_backup_harms_no_earlier_one() {
    let (disk, first) = (SimulatedDisk::new(), Faults::default());
    let mut ledger = Ledger::new(&disk);
    ledger.load();
    ledger.commit(5);
    create(&first.disk(), &ledger.database, false);
    let (expected, chains) = (contents(&ledger.database), repository(&first.disk()).chains().unwrap());
    ledger.commit(30);
    ledger.load();
    ledger.database.checkpoint().unwrap();
    ledger.commit(3);
    let (label, end) = (chains[0].backups[0].label.clone(), chains[0].backups[0].end);
    for incremental in [true, false] {
        let (mut interrupted, mut requests) = (0, 0);
        loop {
            let store = first.copy();
            let backups = store.disk();
            store.fail(requests, u64::MAX);
            let created = try_create(&backups, &ledger.database, incremental);
            drop(backups);
            let after = store.copy();
            verify_all(&after.disk());
            let wanted = Wanted { backup: Some(label.clone()), ..to(Target::Lsn(end.lsn)) };
            let restored = restore_from(&after.disk(), &wanted);
            assert_eq!(contents(&restored), expected, "after {requests} requests");
            if created.is_ok() {
                break;
            }
            // The next one succeeds, and pruning removes what is left.
            create(&after.disk(), &ledger.database, incremental);
            assert!(after.names().iter().all(|name| !name.ends_with(".tmp")), "{:?}", after.names());
            let latest = restore_from(&after.disk(), &to(Target::Latest));
            assert_eq!(contents(&latest), contents(&ledger.database));
            repository(&after.disk()).prune(1, None).unwrap();
            verify_all(&after.disk());
            interrupted += 1;
            requests += 1 + requests / 8;
        }
        assert!(interrupted > 12, "{interrupted}");
    }
}

/// Pruning ends at any request.
#[test]
fn an_interrupted_pruning_leaves_what_it_keeps() {
    let (disk, full) = (SimulatedDisk::new(), Faults::default());
    let mut ledger = Ledger::new(&disk);
    let archiver = start(&full.disk(), &ledger);
    for incremental in [false, true, false] {
        ledger.commit(60);
        ledger.load();
        create(&full.disk(), &ledger.database, incremental);
        ledger.database.checkpoint().unwrap();
    }
    archiver.stop();
    for requests in (0..).step_by(3) {
        let store = full.copy();
        let backups = repository(&store.disk());
        store.fail(requests, u64::MAX);
        let pruned = backups.prune(1, None);
        let after = store.copy();
        verify_all(&after.disk());
        assert_eq!(
            contents(&restore_from(&after.disk(), &to(Target::Latest))),
            contents(&ledger.database),
            "after {requests} requests"
        );
        repository(&after.disk()).prune(1, None).unwrap();
        verify_all(&after.disk());
        if pruned.is_ok() {
            return;
        }
    }
}

#[test]
fn an_archive_goes_on_after_restarts_and_kills() {
    let (mut disk, mut store) = (SimulatedDisk::new(), Faults::default());
    let mut ledger = Ledger::new(&disk);
    let mut archiver = Some(start(&store.disk(), &ledger));
    ledger.commit(10);
    create(&store.disk(), &ledger.database, false);
    for round in 0..4 {
        ledger.commit(30);
        let Ledger { database, connection, entries } = ledger;
        if round % 2 == 0 {
            archiver.take().unwrap().stop();
            drop(connection);
            database.close().unwrap();
        } else {
            let target = database.engine().durable_lsn();
            wait_until("all is archived", || archiver.as_ref().unwrap().status().position >= Some(target));
            (disk, store) = (disk.after_kill(), store.copy());
            drop(archiver.take());
        }
        let database = open(&disk);
        let connection = database.connect();
        ledger = Ledger { database, connection, entries };
        archiver = Some(start(&store.disk(), &ledger));
    }
    ledger.commit(40);
    ledger.load();
    let first = ledger.entries[20].acknowledged;
    let status = archiver.as_ref().unwrap().status();
    assert_eq!((status.gaps, status.failures), (0, 0), "{status:?}");
    archiver.take().unwrap().stop();
    let backups = store.disk();
    let archived = repository(&backups).archived().unwrap();
    assert_eq!(archived.len(), 1);
    verify_all(&backups);
    assert_eq!(contents(&restore_from(&backups, &to(Target::Latest))), contents(&ledger.database));
    let mut random = Random::seeded(5);
    for _ in 0..5 {
        let time = random.uniform(first, archived[0].run.complete_until);
        let last = last_id(&restore_from(&backups, &to(Target::Time(time))));
        let must =
            ledger.entries.iter().filter(|entry| entry.acknowledged < time).map(|entry| entry.id).max();
        let may = ledger.entries.iter().filter(|entry| entry.begun <= time).map(|entry| entry.id).max();
        assert!((must.unwrap_or(-1)..=may.unwrap_or(-1)).contains(&last), "{last} at {time}");
    }
}

/// Requests fail for a while, each at another place; the log is retained, and the archive goes on without a gap.
#[test]
fn an_archive_that_fails_is_tried_again() {
    let (disk, store) = (SimulatedDisk::new(), Faults::default());
    let mut ledger = Ledger::new(&disk);
    let archiver = start(&store.disk(), &ledger);
    create(&store.disk(), &ledger.database, false);
    for failures in 1..4 {
        store.fail(failures, 2);
        ledger.commit(100);
        ledger.load();
        wait_until("it fails", || archiver.status().failures >= failures);
        ledger.database.checkpoint().unwrap();
    }
    store.heal();
    let target = ledger.database.engine().durable_lsn();
    wait_until("it goes on", || archiver.status().position >= Some(target));
    assert_eq!(archiver.status().gaps, 0);
    let expected = contents(&ledger.database);
    archiver.stop();
    verify_all(&store.disk());
    assert_eq!(contents(&restore_from(&store.disk(), &to(Target::Latest))), expected);
}

/// The store cannot be reached when a server starts: the server starts, and retains the log.
#[test]
fn a_server_starts_without_the_store_of_its_archive() {
    let (disk, store) = (SimulatedDisk::new(), Faults::default());
    let mut ledger = Ledger::new(&disk);
    create(&store.disk(), &ledger.database, false);
    for is_first in [true, false] {
        store.fail(0, u64::MAX);
        let archiver = start(&store.disk(), &ledger);
        assert!(archiver.status().failures > 0 && archiver.status().position.is_none());
        for _ in 0..2 {
            ledger.commit(300);
            ledger.database.checkpoint().unwrap();
        }
        store.heal();
        let target = ledger.database.engine().durable_lsn();
        wait_until("it goes on", || archiver.status().position >= Some(target));
        assert_eq!(archiver.status().gaps, 0, "{is_first}");
        archiver.stop();
    }
    assert!(ledger.database.engine().pinned().is_empty());
    assert_eq!(last_id(&restore_from(&store.disk(), &to(Target::Latest))), 1199);
}

/// The store cannot be reached, the server is killed and started again before the store is back: what the archive lacks is retained.
#[test]
fn a_server_that_is_killed_without_the_store_of_its_archive_goes_on_archiving() {
    let (mut disk, store) = (SimulatedDisk::new(), Faults::default());
    let mut ledger = Ledger::new(&disk);
    let archiver = start(&store.disk(), &ledger);
    create(&store.disk(), &ledger.database, false);
    ledger.commit(50);
    let target = ledger.database.engine().durable_lsn();
    wait_until("all is archived", || archiver.status().position >= Some(target));
    store.fail(0, u64::MAX);
    ledger.commit(300);
    ledger.load();
    disk = disk.after_kill();
    drop(archiver);
    let store = store.copy();
    store.fail(0, u64::MAX);
    let database = open(&disk);
    let connection = database.connect();
    let mut ledger = Ledger { database, connection, entries: ledger.entries };
    let archiver = start(&store.disk(), &ledger);
    for _ in 0..2 {
        ledger.commit(300);
        ledger.load();
        ledger.database.checkpoint().unwrap();
    }
    store.heal();
    let target = ledger.database.engine().durable_lsn();
    wait_until("it goes on", || archiver.status().position >= Some(target));
    assert_eq!(archiver.status().gaps, 0);
    archiver.stop();
    assert!(ledger.database.engine().pinned().is_empty());
    verify_all(&store.disk());
    let restored = restore_from(&store.disk(), &to(Target::Latest));
    assert_eq!(contents(&restored), contents(&ledger.database));
}

/// However many segments there are, the last ones are opened. Pruning removes the first ones meanwhile.
#[test]
fn an_archive_is_opened_by_few_requests_and_without_a_gap_beside_pruning() {
    let (disk, store) = (SimulatedDisk::new(), Faults::default());
    let mut ledger = Ledger::new(&disk);
    let mut archiver = start(&store.disk(), &ledger);
    let segments = || {
        let names = store.names().into_iter();
        names.filter(|name| name.contains("/log/") && !name.contains('@')).collect::<Vec<_>>()
    };
    let mut counts = Vec::new();
    for _ in 0..6 {
        ledger.commit(300);
        archiver.stop();
        let (before, _) = store.requests();
        archiver = start(&store.disk(), &ledger);
        counts.push(store.requests().0 - before);
    }
    assert!(segments().len() > 10, "{}", segments().len());
    assert!(counts[5] <= counts[0] + 4, "{counts:?}");
    for requests in 0..counts[5] {
        archiver.stop();
        let (oldest, inner) = (segments()[0].clone().into(), store.inner.clone());
        store.at_request(requests, move || {
            futures::executor::block_on(inner.delete(&oldest)).unwrap();
        });
        archiver = start(&store.disk(), &ledger);
        assert_eq!(archiver.status().gaps, 0, "at request {requests}");
    }
}

/// A commit now and then: the archive makes a request or two per second.
#[test]
fn a_trickle_of_commits_is_archived_by_few_requests() {
    let (disk, store) = (SimulatedDisk::new(), Faults::default());
    let mut ledger = Ledger::new(&disk);
    let archiver = start(&store.disk(), &ledger);
    ledger.commit(1);
    clock::sleep(Duration::from_secs(2));
    let (_, before) = store.requests();
    let begun = clock::now();
    while begun.elapsed() < Duration::from_secs(5) {
        ledger.commit(1);
        clock::sleep(Duration::from_millis(20));
    }
    let (_, after) = store.requests();
    assert!((3..=11).contains(&(after - before)), "{} requests", after - before);
    archiver.stop();
}

#[test]
fn one_server_archives_a_cluster_and_one_process_writes_backups() {
    let (disk, store) = (SimulatedDisk::new(), Faults::default());
    let ledger = Ledger::new(&disk);
    let archiver = start(&store.disk(), &ledger);
    // The second one waits for the lock, since its holder may have been lost.
    let second = start(&store.disk(), &ledger);
    let failure = second.status().last_failure.unwrap().2;
    assert!(failure.contains("another server archives its log"), "{failure}");
    archiver.stop();
    wait_until("it has the lock", || second.status().position.is_some());
    second.stop();
    create(&store.disk(), &ledger.database, false);
    let held = store.disk().lock(&Path::new(BACKUPS).join("LOCK")).unwrap();
    for error in [
        try_create(&store.disk(), &ledger.database, false).unwrap_err(),
        repository(&store.disk()).prune(1, None).unwrap_err(),
    ] {
        assert_eq!(error.state(), SqlState::OBJECT_IN_USE);
    }
    drop(held);
    // The archive may be elsewhere.
    let elsewhere = Faults::default();
    let archiver = start(&elsewhere.disk(), &ledger);
    ledger.database.connect().execute("INSERT INTO ledger VALUES (0, 'archived')").unwrap();
    archiver.stop();
    let archive = Repository::open(elsewhere.disk(), Path::new(BACKUPS)).unwrap();
    let wanted = Wanted { archive: Some(archive.clone()), ..to(Target::Latest) };
    assert_eq!(last_id(&restore_from(&store.disk(), &wanted)), 0);
    assert_eq!(last_id(&restore_from(&store.disk(), &to(Target::Latest))), -1);
    create(&store.disk(), &ledger.database, false);
    assert_eq!(repository(&store.disk()).prune(1, Some(&archive)).unwrap().len(), 1);
}
