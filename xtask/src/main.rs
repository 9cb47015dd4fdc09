//! Everything cargo cannot do.
fn main() {}
