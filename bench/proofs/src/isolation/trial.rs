//! Clients that run transactions against one database until there have been enough, and reconnect when
//! their connection breaks.

use super::history::{Ended, Recorder};
use super::workload::Step;
use firn_base::sync::Mutex;
use firn_base::{Result, clock, thread};
use std::time::Duration;

/// Tries to connect while a server starts, 10 ms apart.
const ATTEMPTS: u32 = 3000;

/// One client.
pub trait Transactions {
    /// Runs a transaction. It calls `between` before its steps as long as it has written nothing.
    fn run(&mut self, steps: &[Step], between: &dyn Fn()) -> Ended;
}

/// Runs clients on threads of their own, and `beside` on this one. The first error that is not part of
/// the trial ends it.
pub fn run<T: Transactions>(
    recorder: &Recorder,
    clients: i64,
    connect: &(impl Fn() -> Result<T> + Sync),
    beside: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let wrong = Mutex::new(None);
    thread::scope(|scope| {
        for client in 0..clients {
            let wrong = &wrong;
            thread::spawn_scoped(scope, "client", move || {
                if let Err(error) = run_client(recorder, client, clients, connect) {
                    recorder.stop();
                    wrong.lock().get_or_insert(error);
                }
            });
        }
        if let Err(error) = beside() {
            recorder.stop();
            wrong.lock().get_or_insert(error);
        }
    });
    wrong.into_inner().map_or(Ok(()), Err)
}

fn run_client<T: Transactions>(
    recorder: &Recorder,
    client: i64,
    clients: i64,
    connect: &impl Fn() -> Result<T>,
) -> Result<()> {
    let mut process = client;
    let mut connection = patiently(connect)?;
    while let Some(steps) = recorder.begin(process) {
        let ended = connection.run(&steps, &|| recorder.pause_reader());
        recorder.end(process, &steps, &ended);
        match ended {
            Ended::Committed(_) | Ended::Failed => {}
            Ended::Lost { .. } => {
                // A transaction without a result may still be running: the client
                // continues as another process.
                process += clients;
                connection = patiently(connect)?;
            }
            Ended::Wrong(error) => return Err(error),
        }
    }
    Ok(())
}

/// Connects while the server may be starting.
pub fn patiently<T>(connect: impl Fn() -> Result<T>) -> Result<T> {
    for _ in 1..ATTEMPTS {
        if let Ok(connection) = connect() {
            return Ok(connection);
        }
        clock::sleep(Duration::from_millis(10));
    }
    connect()
}
