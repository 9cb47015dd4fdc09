//! What commands print. `println!` panics where whoever was to read it has gone, as `head` does after ten lines; a line by
//! [`say!`] is then an error, by which the command ends without a word and still clears up behind itself.
//!
//! A signal would end the process at the first such line: the databases of benchmarks would stay in the directory of
//! temporary files, and servers must not die of a client that has gone.

use std::fmt::Arguments;
use std::io::{self, Write};

use crate::Failure;

/// Prints a line as `println!` does; what it returns is to end the command.
macro_rules! say {
    () => {
        $crate::output::print_line(format_args!(""))
    };
    ($($text:tt)+) => {
        $crate::output::print_line(format_args!($($text)+))
    };
}
pub(crate) use say;

/// Prints a line. Who has gone is not told that he has.
pub(crate) fn print_line(text: Arguments<'_>) -> Result<(), Failure> {
    writeln!(io::stdout(), "{text}").map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::silent(),
        _ => Failure::new(format!("could not write to standard output: {error}")),
    })
}
