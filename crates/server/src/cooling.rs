//! The options of the server and of the benchmarks for when rows become cold.

use firn_session::Config;
use firn_session::server::parse_cooling_time;
use std::time::Duration;

/// The times after which blocks are frozen and encoded.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct Cooling {
    /// Freeze blocks whose rows were not written for this time, so that scans and clients get them without a copy: a
    /// time such as 500ms, 10s or 1min, or never. A number without a unit is in seconds, and 0 is never; 0ms is at once. (In
    /// ALTER TABLE … SET (freeze_after = …), a number without a unit is in milliseconds, and 0 is at once.)
    #[arg(long, value_name = "TIME", default_value = "5", value_parser = after)]
    freeze_after: After,
    /// Encode blocks that have been frozen for this time, so that they take less memory; a time like that of --freeze-after.
    #[arg(long, value_name = "TIME", default_value = "60", value_parser = after)]
    compact_after: After,
}

/// A time, or never.
#[derive(Clone, Copy, PartialEq, Debug)]
struct After(Option<Duration>);

impl Cooling {
    /// The configuration with these times.
    pub fn apply(self, config: Config) -> Config {
        Config { freeze_after: self.freeze_after.0, compact_after: self.compact_after.0, ..config }
    }
}

/// The syntax of `ALTER TABLE … SET (freeze_after = …)`, but a number without a unit is in seconds, and 0 is never, for compatibility.
fn after(text: &str) -> Result<After, String> {
    if let Ok(seconds) = text.parse::<u32>() {
        return Ok(After((seconds > 0).then(|| Duration::from_secs(seconds.into()))));
    }
    let has_unit = text.contains(char::is_alphabetic);
    let time = if has_unit { parse_cooling_time(text) } else { parse_cooling_time(&format!("{text}s")) };
    time.map(After)
        .ok_or_else(|| "this is a number of seconds, a time such as 500ms, 10s or 1h, or never".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_or_have_a_unit() {
        let ms = |text: &str| after(text).unwrap().0.map(|time| time.as_millis());
        assert_eq!([ms("0"), ms("never"), ms("NEVER")], [None; 3]);
        assert_eq!([ms("0ms"), ms("0s"), ms("5")], [Some(0), Some(0), Some(5000)]);
        assert_eq!([ms("500ms"), ms("1.5s"), ms("1 min")], [Some(500), Some(1500), Some(60_000)]);
        assert_eq!([ms("1.5"), ms("4000000")], [Some(1500), Some(4_000_000_000)]);
        for wrong in ["", "soon", "-1", "-1s", "1 week", "99999999999"] {
            assert!(after(wrong).is_err(), "{wrong}");
        }
    }
}
