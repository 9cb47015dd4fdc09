//! Everything cargo cannot do: `cargo xtask help` lists it.

mod cycles;
mod faults;
mod fuzz;
mod layers;
mod licences;
mod metadata;
mod postgres;
mod python;
mod replication_faults;
mod steps;
mod tidy;
mod watch;

use std::path::Path;
use std::process::ExitCode;

const HELP: &str = "\
cargo xtask COMMAND

  test   all that a change must pass: tidy, clippy, every test, the models, what compares with
         PostgreSQL 15, PostgreSQL's clients, the Python package, and fuzz targets compiling. What is
         missing is installed from the package registries; what cannot be installed fails
  ci     the same
  tidy   the rules of STYLE.md and docs/decisions that a program can check; quick
  soak [MINUTES]
         every model for so many minutes (2), Miri and ThreadSanitizer where a nightly toolchain has
         what they need, 20,000 random statements, the planted faults, and the long tests, which `test` leaves out (#[ignore]),
         one of them with a snapshot that is held for as many minutes; takes hours
  miri, tsan
         these two steps of `soak` alone
  faults [replication]
         the planted faults of the planner and the executor: random plans and random statements must find each; and those of
         replication, or these alone: the simulations must find each
  python the Python package's step of `test` alone
  wheel  the Python package's wheel, built for release; its path is the last line
  beside the steps of `test` that compare with PostgreSQL 15: the SQL corpus, the benchmarks (TPC-H,
         CH-benCHmark, TPC-DS), random statements, and texts with mistakes for the parser. PostgreSQL is the server that FIRN_POSTGRES names
         (HOST:PORT), or one started for them from FIRN_POSTGRES_BIN, Debian's package, the search path,
         or npm's package, which is kept in the target directory
  fuzz-sql [OPTION...]
         random statements alone; --count N --seed N, and what --help lists
  fuzz TARGET [SECONDS]
         feeds random bytes to a target of fuzz/ for a minute or so; keeps what it learns in
         fuzz/corpus and what breaks the target in fuzz/artifacts
";

fn main() -> ExitCode {
    // The directory of this package; everything else is below its parent. It is read now, not when
    // this was compiled: clones that share a target directory share this binary, too.
    let package = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo runs this: cargo xtask");
    let root = Path::new(&package).parent().expect("xtask is in the workspace");
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let passed = match arguments[..] {
        ["test" | "ci"] => steps::test(root),
        ["tidy"] => tidy::run(root),
        ["miri"] => steps::miri(root),
        ["tsan"] => steps::thread_sanitizer(root),
        ["faults"] => steps::faults(root),
        ["faults", "replication"] => steps::replication_faults(root),
        ["python"] => steps::python(root),
        ["wheel"] => python::wheel(root),
        ["soak"] => steps::soak(root, 2),
        ["soak", minutes] => match minutes.parse() {
            Ok(minutes) => steps::soak(root, minutes),
            Err(_) => return usage(),
        },
        ["beside"] => steps::beside_postgres(root),
        ["fuzz-sql", ref options @ ..] => steps::random_statements(root, options),
        ["fuzz", target] => fuzz::run(root, target, "60"),
        ["fuzz", target, seconds] => fuzz::run(root, target, seconds),
        ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            true
        }
        _ => return usage(),
    };
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn usage() -> ExitCode {
    eprint!("{HELP}");
    ExitCode::from(2)
}
