//! Files in an object store in memory, whose requests fail when a test chooses; backups and archives there.

mod backups;
mod disks;
mod faults;
mod locks;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../../../replica/tests/all/support.rs"]
mod support;
