//! The progress of a COPY, drawn while it runs: a second connection queries `firn_stat_progress_copy`.

use std::io::IsTerminal;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::client::{Client, Target};

/// The delay before the bar is shown.
const PATIENCE: Duration = Duration::from_millis(500);

const PERIOD: Duration = Duration::from_millis(100);

/// A bar that is shown until this is dropped.
pub(super) struct Watch {
    stop: mpsc::Sender<()>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Watches the statements of a client from now on. `bytes_in_all` is given if the server cannot know it. `None` without a terminal.
    pub fn start(client: &Client, bytes_in_all: Option<u64>) -> Option<Watch> {
        if !std::io::stderr().is_terminal() {
            return None;
        }
        let (target, session) = (client.target().clone(), client.session());
        let (stop, stopped) = mpsc::channel();
        // If the second connection fails, no bar is shown.
        let watching = move || {
            let _ = draw(&target, session, bytes_in_all, &stopped);
        };
        let thread = std::thread::Builder::new().spawn(watching).ok()?;
        Some(Watch { stop, thread: Some(thread) })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.stop.send(()); // It may have given up.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Draws until it is stopped, or the COPY is not visible any more.
fn draw(target: &Target, session: i32, known: Option<u64>, stopped: &mpsc::Receiver<()>) -> Option<()> {
    let is_running = |time| stopped.recv_timeout(time) == Err(RecvTimeoutError::Timeout);
    if !is_running(PATIENCE) {
        return None;
    }
    let mut client = Client::connect(target).ok()?;
    let sql = format!(
        "SELECT bytes, bytes_in_all, rows FROM pg_catalog.firn_stat_progress_copy WHERE pid = {session}"
    );
    // Shown when there is progress to show.
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
    while is_running(PERIOD) {
        let (_, rows) = client.rows(&sql).ok()?;
        let Some(row) = rows.first() else { continue };
        let number = |column: usize| row.get(column)?.as_ref()?.parse::<u64>().ok();
        let in_all = known.or(number(1));
        if in_all != bar.length() || bar.position() == 0 {
            bar.set_style(style(in_all.is_some()));
            in_all.inspect(|bytes| bar.set_length(*bytes));
        }
        bar.set_message(format!("{} rows", number(2)?));
        bar.set_position(number(0)?);
        if bar.is_hidden() {
            bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    }
    bar.finish_and_clear();
    Some(())
}

fn style(is_bounded: bool) -> ProgressStyle {
    let template = match is_bounded {
        true => "{bar:30} {percent}% {bytes} of {total_bytes}, {binary_bytes_per_sec}, {msg}, {eta} left",
        false => "{spinner} {bytes}, {binary_bytes_per_sec}, {msg}",
    };
    ProgressStyle::with_template(template).expect("the template is well formed")
}

/// Whether a statement is a COPY with a file of the server, whose data does not pass through the client.
pub(super) fn is_copy_of_file(sql: &str) -> bool {
    let lower = sql.trim_start().to_ascii_lowercase();
    lower.starts_with("copy") && !lower.contains("stdin") && !lower.contains("stdout")
}
