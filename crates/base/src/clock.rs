//! Access to the clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A point in time that only moves forward, for measuring and waiting.
pub type Instant = std::time::Instant;

/// The current time, for measuring and waiting.
#[inline]
pub fn now() -> Instant {
    Instant::now()
}

/// Microseconds since 1970-01-01 UTC, the value of SQL's `now()`.
pub fn wall_clock_micros() -> i64 {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => since.as_micros() as i64,
        Err(before) => -(before.duration().as_micros() as i64),
    }
}

/// Microseconds of a clock that is never set, and goes on while the machine sleeps.
pub fn boot_micros() -> u64 {
    #[cfg(target_os = "linux")]
    const CLOCK: libc::clockid_t = libc::CLOCK_BOOTTIME;
    #[cfg(not(target_os = "linux"))]
    const CLOCK: libc::clockid_t = libc::CLOCK_MONOTONIC;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills in the `timespec` that it is given.
    let result = unsafe { libc::clock_gettime(CLOCK, &raw mut time) };
    assert_eq!(result, 0, "the system has this clock");
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1000
}

/// As [`wall_clock_micros`], but some milliseconds behind, at a fifth of the cost.
#[inline]
pub fn coarse_wall_clock_micros() -> i64 {
    #[cfg(target_os = "linux")]
    {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the call fills in the `timespec` that it is given.
        let result = unsafe { libc::clock_gettime(libc::CLOCK_REALTIME_COARSE, &raw mut time) };
        assert_eq!(result, 0, "every Linux has this clock");
        time.tv_sec * 1_000_000 + time.tv_nsec / 1000
    }
    #[cfg(not(target_os = "linux"))]
    wall_clock_micros()
}

/// Waits for `duration`. In a model, time passes only by the steps of other tasks.
pub fn sleep(duration: Duration) {
    #[cfg(feature = "models")]
    if crate::sync::in_model() {
        return shuttle::thread::yield_now();
    }
    std::thread::sleep(duration);
}

/// The processor time of the calling thread.
pub fn thread_cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills in the `timespec` that it is given.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(result, 0, "every thread has a processor clock");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
