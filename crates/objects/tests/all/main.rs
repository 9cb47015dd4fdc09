//! Files in an object store in memory, which fails when it is told to; backups and archives there.

mod backups;
mod disks;
mod faults;
mod locks;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../../../replica/tests/all/support.rs"]
mod support;
