//! Tests of copies of a database, on simulated disks and over a channel in memory.

mod archives;
mod backups;
mod one_history;
mod replicas;
mod sim;
mod support;
mod voters;
