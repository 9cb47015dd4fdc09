//! Plans that are run: one binary.

mod cases;
mod changes;
mod groups;
mod locks;
mod oracle;
mod registry;
mod spill;
mod sql;
mod support;
mod tables;
mod wide;
