//! Backups, and restoring from them.

use crate::support::*;
use firn_base::disk::{Disk, Fault, SimulatedDisk};
use firn_base::random::Random;
use firn_base::sync::{Arc, AtomicBool, Ordering};
use firn_base::{Lsn, SqlState, clock, thread};
use firn_replica::backup::{Kind, Target};
use firn_session::Database;
use std::path::{Path, PathBuf};

#[test]
fn a_restored_backup_is_the_database() {
    let (disk, backups) = (SimulatedDisk::new(), SimulatedDisk::new());
    let mut ledger = Ledger::new(&disk);
    ledger.commit(20);
    ledger.database.checkpoint().unwrap();
    ledger.commit(20);
    ledger.load();
    let created = create(&backups, &ledger.database, false);
    assert_eq!((created.description.kind, &created.why_full), (Kind::Full, &None));
    let expected = contents(&ledger.database);
    ledger.commit(5);

    let repository = repository(&backups);
    let chains = repository.chains().unwrap();
    let rows = repository.verify(&chains[0].name, &chains[0].backups[0], &config(Path::new("/"))).unwrap();
    assert_eq!(rows, 40 + 1500 + 1500);
    let restored = restore(&backups, "/restored", &to(Target::Latest));
    assert_eq!(contents(&restored), expected);
    // It is another cluster, and goes its own way.
    let (original, copy) = (ledger.database.engine().identity(), restored.engine().identity());
    assert_eq!(original.unwrap().0, copy.unwrap().0);
    assert_ne!(original.unwrap().1, copy.unwrap().1);
    let mut connection = restored.connect();
    connection.execute("INSERT INTO ledger VALUES (1000, 'after'); SELECT nextval('numbers')").unwrap();
    drop(connection);
    restored.close().unwrap();
    assert_eq!(
        open_at(&backups, "/restored")
            .unwrap()
            .connect()
            .query_row_as::<i64>("SELECT max(id) FROM ledger", ())
            .unwrap(),
        Some(1000)
    );
}

#[test]
fn a_database_without_any_commit_can_be_copied() {
    let (disk, backups) = (SimulatedDisk::new(), SimulatedDisk::new());
    let database = open(&disk);
    create(&backups, &database, false);
    drop(restore(&backups, "/restored", &to(Target::Latest)));
    // Also right after a restart.
    database.close().unwrap();
    let database = open(&disk);
    create(&backups, &database, true);
    drop(restore(&backups, "/again", &to(Target::Latest)));
    drop(database);
    let error = try_create(&backups, &Database::memory().unwrap(), false).unwrap_err();
    assert_eq!(error.state(), SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE);
    assert!(error.hint().is_some());
}

#[test]
fn an_incremental_backup_adds_what_the_chain_lacks() {
    let (disk, backups) = (SimulatedDisk::new(), SimulatedDisk::new());
    let mut ledger = Ledger::new(&disk);
    ledger.load();
    ledger.commit(10);
    ledger.database.checkpoint().unwrap();
    // Somebody retains the log.
    let _pinned = ledger.database.engine().pin_checkpoint("test").unwrap();
    let first = create(&backups, &ledger.database, true);
    assert_eq!(first.description.kind, Kind::Full);
    assert!(first.why_full.is_some(), "there was no earlier one");
    ledger.commit(10);
    let second = create(&backups, &ledger.database, true);
    assert_eq!((second.description.kind, second.why_full), (Kind::Incremental, None));
    assert!(second.description.copied_bytes < first.description.copied_bytes / 4);
    ledger.commit(10);
    ledger.load();
    ledger.database.checkpoint().unwrap();
    ledger.commit(10);
    let third = create(&backups, &ledger.database, true);
    assert_eq!(third.description.kind, Kind::Incremental);
    let expected = contents(&ledger.database);

    let chains = repository(&backups).chains().unwrap();
    assert_eq!((chains.len(), chains[0].backups.len()), (1, 3));
    for backup in &chains[0].backups {
        repository(&backups).verify(&chains[0].name, backup, &config(Path::new("/"))).unwrap();
    }
    assert_eq!(contents(&restore(&backups, "/latest", &to(Target::Latest))), expected);
    // From the first backup, with all of the chain's log.
    let mut wanted = to(Target::Latest);
    wanted.backup = Some(chains[0].name.clone());
    assert_eq!(contents(&restore(&backups, "/replayed", &wanted)), expected);
    wanted.backup = Some("20200101T000000Z".to_owned());
    assert!(try_restore(&backups, "/none", &wanted).unwrap_err().hint().is_some());
}

/// The server has removed the log since the newest backup: then only commits after the next backup's checkpoint can be restored.
#[test]
fn an_incremental_backup_need_not_continue_the_log() {
    let (disk, backups) = (SimulatedDisk::new(), SimulatedDisk::new());
    let mut ledger = Ledger::new(&disk);
    ledger.load();
    ledger.commit(10);
    ledger.database.checkpoint().unwrap();
    let first = create(&backups, &ledger.database, false);
    ledger.commit(400);
    ledger.database.checkpoint().unwrap();
    ledger.commit(400);
    ledger.database.checkpoint().unwrap();
    let second = create(&backups, &ledger.database, true);
    assert_eq!((second.description.kind, second.why_full), (Kind::Incremental, None));
    assert_ne!(first.description.log, second.description.log);
    assert!(second.description.copied_bytes < first.description.copied_bytes);
    ledger.commit(10);
    let third = create(&backups, &ledger.database, true);
    assert_eq!(second.description.log, third.description.log);
    let chains = repository(&backups).chains().unwrap();
    assert_eq!((chains.len(), chains[0].backups.len()), (1, 3));
    assert_eq!(last_id(&restore(&backups, "/restored", &to(Target::Latest))), 819);
    assert_eq!(last_id(&restore(&backups, "/position", &to(Target::Lsn(ledger.entries[815].lsn)))), 815);
    let between = try_restore(&backups, "/between", &to(Target::Lsn(ledger.entries[300].lsn))).unwrap_err();
    assert_eq!(between.state(), SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE);
    let mut wanted = to(Target::Latest);
    wanted.backup = Some(first.description.label);
    assert_eq!(last_id(&restore(&backups, "/first", &wanted)), 9);
    // Another cluster begins a chain of its own, and each is restored and pruned by itself.
    let copy = open_at(&backups, "/restored").unwrap();
    copy.connect().execute("DELETE FROM ledger WHERE id > 5").unwrap();
    let created = create(&backups, &copy, true);
    assert!(created.why_full.unwrap().contains("cluster"));
    assert_eq!(create(&backups, &ledger.database, true).description.kind, Kind::Incremental);
    assert_eq!(create(&backups, &copy, true).description.kind, Kind::Incremental);
    let error = try_restore(&backups, "/which", &to(Target::Latest)).unwrap_err();
    assert_eq!(error.state(), SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE);
    assert!(error.hint().is_some_and(|hint| hint.contains("--cluster")));
    assert!(repository(&backups).prune(1, None).unwrap().is_empty());
    for (database, last) in [(&ledger.database, 819), (&copy, 5)] {
        let mut wanted = to(Target::Latest);
        wanted.cluster = Some(database.engine().identity().unwrap().1);
        assert_eq!(last_id(&restore(&backups, "/one", &wanted)), last);
        remove(&backups, "/one");
    }
}

/// The directory was set back, as by a snapshot of its file system: file names come again with other content.
#[test]
fn files_of_an_earlier_backup_are_never_replaced() {
    let (disk, backups) = (SimulatedDisk::new(), SimulatedDisk::new());
    let mut ledger = Ledger::new(&disk);
    ledger.commit(10);
    let before = disk.after_kill();
    ledger.commit(10);
    ledger.database.checkpoint().unwrap();
    create(&backups, &ledger.database, false);
    let expected = contents(&ledger.database);
    drop(ledger);
    let database = open(&before);
    database
        .connect()
        .execute("INSERT INTO ledger SELECT g, 'other' FROM generate_series(100, 130) g")
        .unwrap();
    database.checkpoint().unwrap();
    let error = try_create(&backups, &database, true).unwrap_err();
    assert_eq!(error.state(), SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE);
    assert!(error.hint().is_some_and(|hint| hint.contains("full")));
    assert_eq!(contents(&restore(&backups, "/restored", &to(Target::Latest))), expected);
    create(&backups, &database, false);
    create(&backups, &database, true);
}

/// The commits that a restored database must and may have.
fn check_time(database: &Database, ledger: &Ledger, time: i64) {
    let last = last_id(database);
    let must = ledger.entries.iter().filter(|entry| entry.acknowledged < time).map(|entry| entry.id).max();
    let may = ledger.entries.iter().filter(|entry| entry.begun <= time).map(|entry| entry.id).max();
    assert!(must.unwrap_or(-1) <= last, "{last} at {time}: an acknowledged commit is missing");
    assert!(last <= may.unwrap_or(-1), "{last} at {time}: a later commit is there");
}

#[test]
fn a_chain_can_be_restored_to_any_time_position_and_restore_point() {
    let (disk, backups) = (SimulatedDisk::new(), SimulatedDisk::new());
    let mut ledger = Ledger::new(&disk);
    let mut random = Random::seeded(7);
    ledger.commit(10);
    ledger.database.checkpoint().unwrap();
    // The log is retained, so that it has no gap between backups.
    let _pinned = ledger.database.engine().pin_checkpoint("test").unwrap();
    create(&backups, &ledger.database, false);
    let first = ledger.entries.len();
    for number in 0..4 {
        ledger.commit(15);
        if number == 1 {
            ledger.database.checkpoint().unwrap();
        }
        if number == 2 {
            ledger.load();
        }
        ledger.connection.execute(&format!("SELECT pg_create_restore_point('point {number}')")).unwrap();
        ledger.commit(15);
        create(&backups, &ledger.database, number != 2);
    }
    let of = ledger.database.engine().identity().unwrap();
    let until = repository(&backups).newest_chain(of).unwrap().unwrap().newest().complete_until;
    for _ in 0..12 {
        let time = random.uniform(ledger.entries[first].acknowledged, until);
        check_time(&restore(&backups, "/restored", &to(Target::Time(time))), &ledger, time);
        remove(&backups, "/restored");
    }
    for _ in 0..12 {
        let entry = ledger.entries[random.uniform(first as i64, ledger.entries.len() as i64 - 1) as usize];
        let mut wanted = to(Target::Lsn(entry.lsn));
        assert_eq!(last_id(&restore(&backups, "/restored", &wanted)), entry.id);
        remove(&backups, "/restored");
        wanted.inclusive = false;
        assert_eq!(last_id(&restore(&backups, "/restored", &wanted)), entry.id - 1);
        remove(&backups, "/restored");
    }
    for number in 0..4 {
        let expected = 10 + 30 * number + 15 - 1;
        for inclusive in [true, false] {
            let mut wanted = to(Target::Name(format!("point {number}")));
            wanted.inclusive = inclusive;
            let restored = restore(&backups, "/restored", &wanted);
            assert_eq!(last_id(&restored), expected);
            // What follows the cut is not there after it has been opened again, either.
            restored.close().unwrap();
            assert_eq!(last_id(&open_at(&backups, "/restored").unwrap()), expected);
            remove(&backups, "/restored");
        }
    }
    let refused = |target: Target| {
        let error = try_restore(&backups, "/refused", &to(target)).unwrap_err();
        assert_eq!(error.state(), SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE);
        assert!(error.hint().is_some() && error.detail().is_some(), "{error:?}");
        assert!(!backups.exists(Path::new("/refused/MANIFEST")).unwrap());
        error
    };
    refused(Target::Time(ledger.entries[2].acknowledged));
    refused(Target::Lsn(ledger.entries[2].lsn));
    refused(Target::Time(clock::wall_clock_micros()));
    refused(Target::Lsn(Lsn(1 << 40)));
    refused(Target::Name("nowhere".to_owned()));
}

/// Several commits share a group: only some of them belong to a position.
#[test]
fn a_group_is_cut_between_its_commits() {
    let (disk, backups) = (SimulatedDisk::new(), SimulatedDisk::new());
    let ledger = Ledger::new(&disk);
    create(&backups, &ledger.database, false);
    disk.set_sync_time(std::time::Duration::from_millis(20));
    let mut ends = Vec::new();
    let mut waiting = Vec::new();
    for id in 0..30 {
        let database = ledger.database.clone();
        waiting.push(thread::spawn("commit", move || {
            database.connect().execute(&format!("INSERT INTO ledger VALUES ({id}, 'x')")).unwrap();
        }));
    }
    waiting.into_iter().for_each(|thread| thread.join().unwrap());
    disk.set_sync_time(std::time::Duration::ZERO);
    create(&backups, &ledger.database, true);
    let mut follower = ledger
        .database
        .engine()
        .follow("test", repository(&backups).chains().unwrap()[0].backups[0].end)
        .unwrap();
    let mut shared = 0;
    while let Some(group) = follower.next_group(Lsn(u64::MAX)).unwrap() {
        shared = shared.max(group.entries().count());
        ends.extend(group.entry_ends());
    }
    assert!(shared > 1, "commits have shared groups");
    for (count, end) in ends.iter().enumerate() {
        let restored = restore(&backups, "/restored", &to(Target::Lsn(*end)));
        let rows =
            restored.connect().query_row_as::<i64>("SELECT count(*) FROM ledger", ()).unwrap().unwrap();
        assert_eq!(rows, count as i64 + 1);
        restored.connect().execute("INSERT INTO ledger VALUES (100, 'x')").unwrap();
        drop(restored);
        remove(&backups, "/restored");
    }
}

#[test]
fn a_backup_is_taken_while_transactions_and_checkpoints_go_on() {
    let (disk, backups) = (SimulatedDisk::new(), SimulatedDisk::new());
    let mut ledger = Ledger::new(&disk);
    ledger.load();
    let database = ledger.database.clone();
    let stop = Arc::new(AtomicBool::new(false));
    let writer = thread::spawn("writer", {
        let stop = stop.clone();
        move || {
            while !stop.load(Ordering::Relaxed) {
                ledger.commit(5);
                ledger.load();
            }
            ledger
        }
    });
    let checkpoints = thread::spawn("checkpoints", {
        let (stop, database) = (stop.clone(), database.clone());
        move || {
            while !stop.load(Ordering::Relaxed) {
                database.checkpoint().unwrap();
            }
        }
    });
    let ends: Vec<i64> = (0..4)
        .map(|number| create(&backups, &database, number % 2 == 1).description.complete_until)
        .collect();
    stop.store(true, Ordering::Relaxed);
    checkpoints.join().unwrap();
    let ledger = writer.join().unwrap();
    assert!(database.engine().pinned().is_empty());
    for chain in repository(&backups).chains().unwrap() {
        for backup in &chain.backups {
            repository(&backups).verify(&chain.name, backup, &config(Path::new("/"))).unwrap();
            let mut wanted = to(Target::Lsn(backup.end.lsn));
            wanted.backup = Some(backup.label.clone());
            let restored = restore(&backups, "/restored", &wanted);
            let last = last_id(&restored);
            let must = ledger.entries.iter().filter(|entry| entry.acknowledged < backup.complete_until);
            assert!(must.map(|entry| entry.id).max().unwrap_or(-1) <= last);
            remove(&backups, "/restored");
        }
    }
    assert!(ends.is_sorted());
}

/// The files of backups.
fn files(disk: &SimulatedDisk, directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for name in disk.list(directory).unwrap() {
        let path = directory.join(name);
        match disk.list(&path) {
            Ok(_) => found.extend(files(disk, &path)),
            Err(_) => found.push(path),
        }
    }
    found
}

#[test]
fn an_interrupted_backup_harms_no_earlier_one() {
    let disk = SimulatedDisk::new();
    let mut ledger = Ledger::new(&disk);
    ledger.load();
    ledger.commit(5);
    let (mut interrupted, mut completed) = (0, false);
    let mut operations = 0;
    while !completed {
        for incremental in [true, false] {
            let backups = SimulatedDisk::new();
            create(&backups, &ledger.database, false);
            let expected = contents(&ledger.database);
            ledger.commit(1);
            if operations % 7 == 0 {
                ledger.load();
            }
            backups.fail_after_operations(operations, Fault::Broken);
            let created = try_create(&backups, &ledger.database, incremental);
            let after = backups.after_power_cut(&mut Random::seeded(operations));
            let chains = repository(&after).chains().unwrap();
            let first = &chains[0].backups[0];
            repository(&after).verify(&chains[0].name, first, &config(Path::new("/"))).unwrap();
            let mut wanted = to(Target::Lsn(first.end.lsn));
            wanted.backup = Some(first.label.clone());
            assert_eq!(
                contents(&restore(&after, "/restored", &wanted)),
                expected,
                "after {operations} operations"
            );
            // The next one succeeds.
            create(&after, &ledger.database, incremental);
            assert_eq!(contents(&restore(&after, "/next", &to(Target::Latest))), contents(&ledger.database));
            completed = created.is_ok();
            interrupted += usize::from(!completed);
        }
        operations += 1 + operations / 4;
    }
    assert!(interrupted > 8, "{interrupted}");
}

#[test]
fn damage_is_found_by_verifying_and_restoring() {
    let (disk, backups) = (SimulatedDisk::new(), SimulatedDisk::new());
    let mut ledger = Ledger::new(&disk);
    ledger.load();
    ledger.database.checkpoint().unwrap();
    ledger.load();
    ledger.commit(5);
    create(&backups, &ledger.database, false);
    let expected = contents(&ledger.database);
    let mut random = Random::seeded(3);
    let chain = repository(&backups).chains().unwrap().remove(0);
    for path in files(&backups, &repository(&backups).folder(&chain.name)) {
        for _ in 0..3 {
            let file = backups.open(&path).unwrap();
            let length = file.len().unwrap();
            if length == 0 {
                continue;
            }
            let at = random.uniform(0, length as i64 - 1) as u64;
            let mut byte = [0];
            file.read_at(&mut byte, at).unwrap();
            file.write_at(&[byte[0] ^ 4], at).unwrap();
            let damaged = repository(&backups).damaged().unwrap();
            let verified = match damaged.into_iter().next() {
                Some(error) => Err(error),
                None => repository(&backups).verify(&chain.name, &chain.backups[0], &config(Path::new("/"))),
            };
            let restored = try_restore(&backups, "/restored", &to(Target::Latest));
            match verified {
                // Bytes that nothing needs, such as padding, may differ.
                Ok(_) => {
                    restored.unwrap();
                    assert_eq!(
                        contents(&open_at(&backups, "/restored").unwrap()),
                        expected,
                        "{path:?} at {at}"
                    );
                }
                Err(error) => {
                    assert_eq!(error.state(), SqlState::DATA_CORRUPTED);
                    if restored.is_ok() {
                        assert!(open_at(&backups, "/restored").is_err(), "{path:?} at {at}");
                    }
                }
            }
            remove(&backups, "/restored");
            file.write_at(&byte, at).unwrap();
        }
        let bytes = (&*backups as &dyn Disk).read(&path).unwrap();
        backups.remove(&path).unwrap();
        let label = &chain.backups[0].label;
        if !path.ends_with(format!("{label}.backup")) {
            let verified =
                repository(&backups).verify(&chain.name, &chain.backups[0], &config(Path::new("/")));
            assert!(verified.is_err(), "{path:?} is missing");
        }
        backups.create(&path).unwrap().write_at(&bytes, 0).unwrap();
    }
}

#[test]
fn pruning_removes_whole_chains_and_what_was_interrupted() {
    let (disk, backups) = (SimulatedDisk::new(), SimulatedDisk::new());
    let mut ledger = Ledger::new(&disk);
    for incremental in [false, true, false, true, true, false] {
        ledger.commit(3);
        create(&backups, &ledger.database, incremental);
    }
    let labels = |disk: &Arc<SimulatedDisk>| {
        let chains = repository(disk).chains().unwrap();
        chains.into_iter().flat_map(|chain| chain.backups).map(|backup| backup.label).collect::<Vec<_>>()
    };
    let all = labels(&backups);
    assert_eq!(all.len(), 6);
    // A backup that was interrupted.
    let unfinished = Path::new(BACKUPS).join("20300101T000000Z");
    backups.create_directory(&unfinished.join("log-20300101T000000Z")).unwrap();
    backups.create(&unfinished.join("log-20300101T000000Z/rest")).unwrap();
    // At any interruption, what is left can be restored.
    for operations in (0..200).step_by(3) {
        let copy = backups.after_kill();
        copy.fail_after_operations(operations, Fault::Broken);
        let pruned = repository(&copy).prune(2, None);
        let after = copy.after_power_cut(&mut Random::seeded(operations));
        let left = labels(&after);
        assert!(all.ends_with(&left[left.len() - 4..]) && left.len() >= 4, "{left:?}");
        for chain in repository(&after).chains().unwrap() {
            for backup in &chain.backups {
                repository(&after).verify(&chain.name, backup, &config(Path::new("/"))).unwrap();
            }
        }
        if pruned.is_ok() {
            break;
        }
    }
    assert_eq!(repository(&backups).prune(2, None).unwrap(), all[..2]);
    assert_eq!(labels(&backups), all[2..]);
    assert!(!backups.list(Path::new(BACKUPS)).unwrap().contains(&"20300101T000000Z".to_owned()));
    assert!(repository(&backups).prune(2, None).unwrap().is_empty());
    assert_eq!(last_id(&restore(&backups, "/restored", &to(Target::Latest))), 17);
}

#[test]
fn only_one_process_writes_backups() {
    let (disk, backups) = (SimulatedDisk::new(), SimulatedDisk::new());
    let ledger = Ledger::new(&disk);
    create(&backups, &ledger.database, false);
    let held = backups.lock(&Path::new(BACKUPS).join("LOCK")).unwrap();
    for error in [
        try_create(&backups, &ledger.database, false).unwrap_err(),
        repository(&backups).prune(1, None).unwrap_err(),
    ] {
        assert_eq!(error.state(), SqlState::OBJECT_IN_USE);
        assert!(error.message().contains("backups") && error.hint().is_some());
    }
    drop(held);
    let backups_there = try_restore(&backups, BACKUPS, &to(Target::Latest)).unwrap_err();
    assert_eq!(backups_there.state(), SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE);
}
