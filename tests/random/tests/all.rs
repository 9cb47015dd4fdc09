//! The program as `cargo xtask` starts it.

use std::process::Command;

/// A comparison without its oracle would prove nothing: no server listens on port 1.
#[test]
fn without_postgresql_it_fails() {
    let random = || {
        let mut random = Command::new(env!("CARGO_BIN_EXE_firn-random"));
        random.env_remove("FIRN_POSTGRES");
        random
    };
    let unreachable = random().args(["--postgres", "127.0.0.1:1", "--count", "1"]).output().unwrap();
    assert_eq!(unreachable.status.code(), Some(1), "{unreachable:?}");
    assert!(String::from_utf8_lossy(&unreachable.stderr).contains("127.0.0.1:1"), "{unreachable:?}");
    let unnamed = random().output().unwrap();
    assert_eq!(unnamed.status.code(), Some(2), "{unnamed:?}");
}
