//! Ends tests that hang. A test that waits for ever would use up the time of the whole run, of which then nothing is known: not even
//! its name.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

/// How long a test program may print nothing. Some tests run for minutes on a machine that does much else.
pub const LONGEST_SILENCE: Duration = Duration::from_secs(600);

/// What is known of a test program by what it prints.
#[derive(Default)]
pub struct Watch {
    /// Whether it runs tests: compilers may be silent for longer.
    runs_tests: bool,
    /// Tests of which libtest has said that they take long, and which have not ended.
    slow: Vec<String>,
}

impl Watch {
    pub fn note(&mut self, line: &str) {
        if line.starts_with("running ") && (line.ends_with(" tests") || line.ends_with(" test")) {
            self.runs_tests = true;
        } else if line.starts_with("test result: ") {
            *self = Watch::default();
        } else if let Some((name, rest)) = line.strip_prefix("test ").and_then(|line| line.split_once(' ')) {
            match rest.starts_with("has been running") {
                true => self.slow.push(name.to_owned()),
                false => self.slow.retain(|slow| slow != name),
            }
        }
    }

    /// Ends what a process has started, if that is a test program, which has been silent for too long. Returns what to say of it.
    pub fn end(&mut self, process: u32) -> Option<String> {
        if !self.runs_tests {
            return None;
        }
        let started = descendants(process);
        for started in started.iter().take(1) {
            // It may not be there.
            let _ = Command::new("gdb")
                .args(["-p", &started.to_string(), "-batch", "-ex", "thread apply all backtrace 30"])
                .stdin(Stdio::null())
                .stderr(Stdio::null())
                .status();
        }
        for started in started {
            // It may have ended meanwhile.
            let _ = Command::new("kill").args(["-KILL", &started.to_string()]).status();
        }
        let hanging = match self.slow.is_empty() {
            true => "a test".to_owned(),
            false => self.slow.join(", "),
        };
        *self = Watch::default();
        Some(format!("FAILED {hanging}: nothing was printed for {} s", LONGEST_SILENCE.as_secs()))
    }
}

/// The processes that a process has started, and those that they have, each after the one that has started it.
fn descendants(process: u32) -> Vec<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    for entry in entries {
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        if let Some(parent) = parent_of(&stat) {
            children.entry(parent).or_default().push(number);
        }
    }
    let mut found = vec![process];
    let mut at = 0;
    while at < found.len() {
        found.extend(children.remove(&found[at]).unwrap_or_default());
        at += 1;
    }
    found.split_off(1)
}

/// The parent, of what `/proc/PID/stat` says of a process. Its name, in parentheses, may contain anything.
fn parent_of(stat: &str) -> Option<u32> {
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split(' ').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_that_are_slow_and_have_not_ended_are_known() {
        let mut watch = Watch::default();
        for line in [
            "running 3 tests",
            "test a::b has been running for over 60 seconds",
            "test c has been running for over 60 seconds",
            "test c ... ok",
        ] {
            watch.note(line);
        }
        assert!(watch.runs_tests);
        assert_eq!(watch.slow, ["a::b"]);
        watch.note("test result: ok. 3 passed; 0 failed; 0 ignored");
        assert!(!watch.runs_tests && watch.slow.is_empty());
    }

    #[test]
    fn what_a_process_has_started_is_ended_and_compilers_are_not() {
        let mut child =
            Command::new("sh").args(["-c", "sleep 600; exit 3"]).stdin(Stdio::null()).spawn().unwrap();
        let mut watch = Watch::default();
        assert_eq!(watch.end(child.id()), None);
        while descendants(child.id()).is_empty() {
            std::thread::yield_now();
        }
        watch.note("running 1 test");
        watch.note("test waits has been running for over 60 seconds");
        assert_eq!(watch.end(child.id()).unwrap(), "FAILED waits: nothing was printed for 600 s");
        assert_eq!(child.wait().unwrap().code(), Some(3));
        assert_eq!(parent_of("7 (a) b) S 4 7 7"), Some(4));
    }
}
