//! A FirnDB server as a process of its own, in memory, for the duration of the run.

use std::io::{BufRead, BufReader, Error, Result};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A running server.
pub struct OwnServer {
    process: Child,
    /// The address on which it listens.
    pub address: String,
}

impl OwnServer {
    /// Starts the program and waits until it listens.
    pub fn start(firn: &Path) -> Result<OwnServer> {
        let mut process = Command::new(firn)
            .args(["serve", "--listen", "127.0.0.1:0"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            // Its panics are returned as errors.
            .stderr(Stdio::null())
            .spawn()?;
        let output = process.stdout.take().expect("the output is piped");
        let mut lines = BufReader::new(output).lines();
        let address = loop {
            let Some(line) = lines.next() else {
                let status = process.wait()?;
                return Err(Error::other(format!("the server ended with {status}")));
            };
            if let Some(address) = line?.strip_prefix("listening on ") {
                break address.to_owned();
            }
        };
        // The rest must be read, or the server would find a closed pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Ok(OwnServer { process, address })
    }
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
