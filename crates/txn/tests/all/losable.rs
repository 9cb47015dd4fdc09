//! What transactions that only read wait for: commits that may still be lost, if they have read what these
//! changed.

use crate::durable::config;
use crate::support::Bank;
use firn_base::disk::SimulatedDisk;
use firn_log::LogOptions;
use firn_txn::{Config, Engine, Isolation, Ticket, Transaction};
use std::time::Duration;

/// A bank whose log is flushed only by threads that wait for it, with accounts 1 to 40 on disk.
fn open() -> Bank {
    let log = LogOptions { flush_interval: Duration::from_secs(3600), ..LogOptions::default() };
    let disk = SimulatedDisk::new();
    let bank = Bank::on(Engine::open_on(disk, Config { log, ..config() }).unwrap());
    let ticket = write(&bank, |tx| {
        for key in 1..=40 {
            bank.insert(tx, key, 0).unwrap();
        }
    });
    bank.engine.wait(ticket).unwrap();
    bank
}

/// Commits without waiting.
fn write(bank: &Bank, work: impl FnOnce(&mut Transaction)) -> Ticket {
    let mut tx = bank.engine.begin();
    work(&mut tx);
    tx.commit().unwrap()
}

/// Whether a reader must wait that checks which of its reads may be lost.
fn waits(bank: &Bank, read: impl FnOnce(&Transaction)) -> bool {
    let mut tx = bank.engine.try_begin(Isolation::Snapshot).unwrap();
    tx.track_read_durability();
    read(&tx);
    tx.commit().unwrap().lsn.is_some()
}

fn waits_for(bank: &Bank, key: i32, expected: Option<i64>) -> bool {
    waits(bank, |tx| assert_eq!(bank.balance(tx, key), expected))
}

#[test]
fn a_reader_waits_for_commits_whose_rows_it_has_read_and_for_no_others() {
    let bank = open();
    assert!(!waits_for(&bank, 3, Some(0)), "all is on disk");

    let ticket = write(&bank, |tx| {
        bank.set_balance(tx, 3, 1).unwrap();
        bank.set_balance(tx, 4, 1).unwrap();
        bank.delete(tx, 5).unwrap();
        bank.insert(tx, 50, 1).unwrap();
    });
    assert!(!waits_for(&bank, 7, Some(0)) && !waits_for(&bank, 8, Some(0)), "these have not changed");
    assert!(waits_for(&bank, 3, Some(1)) && waits_for(&bank, 4, Some(1)), "changed");
    assert!(waits_for(&bank, 5, None), "gone");
    assert!(waits_for(&bank, 50, Some(1)), "come");
    assert!(waits_for(&bank, 60, None), "it might have been deleted");
    assert!(waits(&bank, |tx| drop(bank.scan(tx))), "all of them");
    let both = |tx: &Transaction| assert_eq!((bank.balance(tx, 7), bank.balance(tx, 3)), (Some(0), Some(1)));
    assert!(waits(&bank, both), "one of two");

    // A reader that does not check waits for everything that was visible.
    let tx = bank.engine.begin();
    assert_eq!(bank.balance(&tx, 7), Some(0));
    assert!(tx.commit().unwrap().lsn.is_some());

    bank.engine.wait(ticket).unwrap();
    assert!(!waits_for(&bank, 3, Some(1)) && !waits_for(&bank, 5, None) && !waits_for(&bank, 60, None));
}

/// In a snapshot that others have overtaken, what they changed reads as before.
#[test]
fn a_reader_in_an_older_snapshot_does_not_wait_for_what_it_does_not_see() {
    let bank = open();
    let _ = write(&bank, |tx| bank.set_balance(tx, 1, 1).unwrap());
    let mut older = bank.engine.try_begin(Isolation::Snapshot).unwrap();
    older.track_read_durability();
    let _ = write(&bank, |tx| bank.set_balance(tx, 3, 1).unwrap());
    assert_eq!(bank.balance(&older, 3), Some(0));
    assert_eq!(older.commit().unwrap().lsn, None);
}

#[test]
fn a_reader_waits_if_it_is_unknown_what_may_be_lost() {
    let bank = open();
    let mut last = None;
    for balance in 0..200 {
        last = Some(write(&bank, |tx| bank.set_balance(tx, 3, balance).unwrap()));
    }
    assert!(waits_for(&bank, 7, Some(0)), "too many commits, some of which have been collected");
    bank.engine.wait(last.unwrap()).unwrap();
    assert!(!waits_for(&bank, 7, Some(0)));
}
