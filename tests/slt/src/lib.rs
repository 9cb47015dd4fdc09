//! The SQL corpus and its runner.
