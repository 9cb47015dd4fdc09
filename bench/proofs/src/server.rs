//! A server as a process of its own, to be killed.

use crate::Outcome;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A running server.
pub struct Server {
    process: Child,
    /// The address on which it listens.
    pub address: String,
}

impl Server {
    /// Starts a server and waits until it listens.
    pub fn start(firn: &Path, directory: &Path) -> std::io::Result<Server> {
        Server::start_with(firn, directory, &[])
    }

    /// The same with more arguments.
    pub fn start_with(firn: &Path, directory: &Path, more: &[&Path]) -> std::io::Result<Server> {
        let mut process = Command::new(firn)
            .arg("serve")
            .arg("--data")
            .arg(directory)
            .args(["--listen", "127.0.0.1:0"])
            .args(more)
            .stdout(Stdio::piped())
            .spawn()?;
        let output = process.stdout.take().expect("the output is piped");
        let mut lines = BufReader::new(output).lines();
        let address = loop {
            let Some(line) = lines.next() else {
                let status = process.wait()?;
                return Err(std::io::Error::other(format!("the server ended with {status}")));
            };
            if let Some(address) = line?.strip_prefix("listening on ") {
                break address.to_owned();
            }
        };
        // The rest must be read, or the server would find a closed pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Ok(Server { process, address })
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        self.process.kill().expect("the server is a child of ours");
        self.process.wait().expect("the server is a child of ours");
    }

    /// SIGSTOP: it does nothing, and nobody notices at once; or SIGCONT.
    pub fn pause(&self, pause: bool) {
        let signal = if pause { libc::SIGSTOP } else { libc::SIGCONT };
        // SAFETY: as in `stop`.
        unsafe { libc::kill(self.process.id() as i32, signal) };
    }

    /// SIGTERM, and a clean end.
    pub fn stop(&mut self) -> Outcome {
        // SAFETY: the call has no memory effects; the process is a child that has not been waited
        // for, so its number is still its own.
        unsafe { libc::kill(self.process.id() as i32, libc::SIGTERM) };
        let status = self.process.wait()?;
        if status.success() { Ok(()) } else { Err(format!("the server ended with {status}").into()) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
