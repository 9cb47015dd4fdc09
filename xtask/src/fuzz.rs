//! Fuzzing with the stable compiler: what cargo-fuzz does, without the address sanitizer, which needs
//! a nightly one. LLVM's coverage counters guide libfuzzer all the same.

use std::path::Path;
use std::process::{Command, Stdio};

/// Counts edges and shows libfuzzer the operands of comparisons.
const FLAGS: &str = "-Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares \
    -Cdebug-assertions -Ccodegen-units=1";

/// Runs one target for some seconds; false if it fails.
pub fn run(root: &Path, target: &str, seconds: &str) -> bool {
    let folder = |kind: &str| root.join("fuzz").join(kind).join(target);
    let (corpus, artifacts) = (folder("corpus"), folder("artifacts"));
    for folder in [&corpus, &artifacts] {
        if let Err(error) = std::fs::create_dir_all(folder) {
            println!("{}: {error}", folder.display());
            return false;
        }
    }
    // Named so that build scripts, which are not instrumented, do not get the flags.
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    // Apart from other builds, which cargo would otherwise discard because of the flags.
    let build =
        std::env::var("CARGO_TARGET_DIR").map_or_else(|_| root.join("target"), Into::into).join("fuzz");
    let mut command = Command::new("cargo");
    command
        .args(["run", "--release", "--locked", "--manifest-path", "fuzz/Cargo.toml"])
        .args(["--target", &platform, "--bin", target, "--"])
        .arg(&corpus)
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .args(["-timeout=10", "-print_final_stats=1"])
        .env("RUSTFLAGS", FLAGS)
        .env("CARGO_TARGET_DIR", build)
        .current_dir(root)
        .stdin(Stdio::null());
    println!("$ {command:?}");
    command.status().is_ok_and(|status| status.success())
}
