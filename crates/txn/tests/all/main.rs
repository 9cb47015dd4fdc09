//! Integration tests of the transaction engine: one binary.

mod changing;
mod cold_files;
mod compacting;
mod durability;
mod durable;
mod fixtures;
mod freezing;
mod full_disk;
mod histories;
mod history;
mod images;
mod isolation;
mod killed;
mod loads;
mod locks;
mod losable;
mod memory;
mod native;
mod pins;
mod recovery;
mod serializable;
mod spilled;
mod support;
mod transfers;
mod valueless;
