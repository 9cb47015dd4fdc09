//! Workloads and benchmarks of our own engine: TPC-C, TATP, TPC-H and CH-benCHmark, each with its
//! tables, a generator that is reproducible from a seed, and code that runs and checks it.
//!
//! Modules in reading order: shared parts of all workloads, then one module per workload.

pub mod columns;
pub mod driver;
pub mod histogram;
pub mod memory;
pub mod queries;
pub mod schema;
pub mod sql_client;

pub mod ch;
pub mod compact;
pub mod freeze;
pub mod merge;
pub mod planning;
pub mod rows;
pub mod tatp;
pub mod temperature;
pub mod tpcc;
pub mod tpch;

use std::time::Duration;

/// A duration in three digits and a fitting unit, for reports.
pub fn short_duration(duration: Duration) -> String {
    let micros = duration.as_secs_f64() * 1e6;
    let (number, unit) = match micros {
        micros if micros < 1e3 => (micros, "µs"),
        micros if micros < 1e6 => (micros / 1e3, "ms"),
        micros => (micros / 1e6, "s"),
    };
    let decimals = match number {
        number if number < 10.0 => 2,
        number if number < 100.0 => 1,
        _ => 0,
    };
    format!("{number:.decimals$} {unit}")
}

/// Bytes of memory of this process.
pub fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|text| text.split_whitespace().nth(1)?.parse::<u64>().ok());
    pages.unwrap_or(0) * 4096
}

/// A number of bytes in three digits and a fitting unit, for reports.
pub fn short_bytes(bytes: u64) -> String {
    let mebibytes = bytes as f64 / f64::from(1 << 20);
    if mebibytes < 1024.0 { format!("{mebibytes:.0} MiB") } else { format!("{:.2} GiB", mebibytes / 1024.0) }
}

/// The median; 0 if there are none.
pub fn median(durations: &mut [Duration]) -> Duration {
    durations.sort_unstable();
    durations.get(durations.len() / 2).copied().unwrap_or_default()
}

/// The geometric mean; 0 if there are none.
pub fn geometric_mean(numbers: &[f64]) -> f64 {
    if numbers.is_empty() {
        return 0.0;
    }
    (numbers.iter().map(|number| number.ln()).sum::<f64>() / numbers.len() as f64).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_three_digits_and_a_unit() {
        for (nanos, text) in [(1_234, "1.23 µs"), (45_600_000, "45.6 ms"), (123_000_000_000, "123 s")] {
            assert_eq!(short_duration(Duration::from_nanos(nanos)), text);
        }
    }
}
