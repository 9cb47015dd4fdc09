//! Plans that are run: one binary.

mod cases;
mod oracle;
mod registry;
mod support;
mod tables;
