//! The firn binary.
fn main() {}
