//! Everything cargo cannot do: `cargo xtask help` lists it.

mod layers;
mod licences;
mod metadata;
mod steps;
mod tidy;

use std::path::Path;
use std::process::ExitCode;

const HELP: &str = "\
cargo xtask COMMAND

  test   all that a change must pass: tidy, clippy, every test, fuzz targets building,
         and Miri and ThreadSanitizer where their toolchain is installed
  ci     the same
  tidy   the rules of STYLE.md and docs/decisions that a program can check; quick
  soak   the long tests, which `test` leaves out (#[ignore])
";

fn main() -> ExitCode {
    // Cargo says where this package is; everything else is below its parent.
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is in the workspace");
    let mut arguments = std::env::args().skip(1);
    let passed = match (arguments.next().as_deref(), arguments.next()) {
        (Some("test" | "ci"), None) => steps::test(root),
        (Some("tidy"), None) => tidy::run(root),
        (Some("soak"), None) => steps::soak(root),
        (Some("help" | "--help" | "-h"), None) => {
            print!("{HELP}");
            true
        }
        _ => {
            eprint!("{HELP}");
            return ExitCode::from(2);
        }
    };
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
