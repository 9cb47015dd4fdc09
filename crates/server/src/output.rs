//! Printing the output of commands. `println!` panics if the reader of the output has gone, as `head` does after ten lines. With
//! [`say!`] such a line is an error, with which the command ends silently and still cleans up.
//!
//! A signal would end the process at the first such line. The databases of benchmarks would remain in the directory of
//! temporary files. A server must not end because a client has gone.

use std::fmt::Arguments;
use std::io::{self, Write};

use crate::Failure;

/// Prints a line like `println!`; an error that it returns must end the command.
macro_rules! say {
    () => {
        $crate::output::print_line(format_args!(""))
    };
    ($($text:tt)+) => {
        $crate::output::print_line(format_args!($($text)+))
    };
}
pub(crate) use say;

/// Prints a line. If the reader has gone, the error has no message.
pub(crate) fn print_line(text: Arguments<'_>) -> Result<(), Failure> {
    writeln!(io::stdout(), "{text}").map_err(|error| failed(&error))
}

/// Prints a text of whole lines.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    io::stdout().write_all(text.as_bytes()).map_err(|error| failed(&error))
}

fn failed(error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::silent(),
        _ => Failure::new(format!("could not write to standard output: {error}")),
    }
}
