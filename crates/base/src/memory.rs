//! The memory limit of the process, and how much of it is left.

use crate::clock;
use crate::sync::Ordering;
use crate::sync::unmodelled::{AtomicBool, Mutex, OnceLock};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// One byte in this many of the process's memory limit, and some more, is reserved for memory that grows
/// without a check: between two checks, for stacks, and for buffers of the kernel.
const MARGIN: u64 = 16;
const LEAST_MARGIN: u64 = 128 << 20;

/// If less than one byte in this many is left in addition, no freed memory is kept.
const AMPLE: u64 = 8;

/// The interval at which the allocator is requested to return what it has kept.
const RELEASED_EVERY: Duration = Duration::from_millis(100);

/// The memory of the machine in bytes, or the smallest limit of a control group of the process; `None` if
/// both are unknown. Determined once.
pub fn of_process() -> Option<u64> {
    static BYTES: OnceLock<Option<u64>> = OnceLock::new();
    *BYTES.get_or_init(find)
}

/// The part of it that must not be used: see [`left`].
pub fn margin() -> u64 {
    of_process().map_or(0, |bytes| (bytes / MARGIN + LEAST_MARGIN).min(bytes / 4))
}

/// Bytes that the process may still allocate until only the [`margin`] is left; negative if it has used part
/// of that already, and the largest number if the limit is unknown. Asks the operating system, which takes a
/// microsecond.
pub fn left() -> i64 {
    let Some(most) = of_process() else { return i64::MAX };
    held().map_or(i64::MAX, |held| (most - margin()) as i64 - held as i64)
}

/// As [`left`]. If little is left, the allocator also returns freed memory to the system: from then on at
/// once, and if less than `wanted` is left, what it has kept so far as well.
pub fn left_for(wanted: u64) -> i64 {
    let left = left();
    let Some(release) = RELEASE.get() else { return left };
    let ample = wanted.saturating_add(of_process().map_or(0, |bytes| bytes / AMPLE)) as i64;
    // Relaxed: a thread that sees it later keeps freed memory for a while.
    if left >= ample {
        if IS_SHORT.load(Ordering::Relaxed) && left >= 2 * ample && IS_SHORT.swap(false, Ordering::Relaxed) {
            release(Release::Later);
        }
        return left;
    }
    if !IS_SHORT.swap(true, Ordering::Relaxed) {
        release(Release::AtOnce);
    }
    if left < wanted as i64 && may_ask_again() {
        release(Release::AtOnce);
        return self::left();
    }
    left
}

/// When freed memory is returned to the operating system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Release {
    /// Now, as far as the caller's thread can, and from now on when it is freed.
    AtOnce,
    /// When it has not been used for a while.
    Later,
}

/// The function that passes this to the allocator.
static RELEASE: OnceLock<fn(Release)> = OnceLock::new();
static IS_SHORT: AtomicBool = AtomicBool::new(false);

/// Sets the function that controls when the allocator of this program returns memory. Only the first call
/// counts.
pub fn set_release(release: fn(Release)) {
    let _ = RELEASE.set(release);
}

/// Whether the last request was long enough ago.
fn may_ask_again() -> bool {
    static LAST: Mutex<Option<clock::Instant>> = Mutex::new(None);
    let Some(mut last) = LAST.try_lock() else { return false };
    if last.is_some_and(|last| last.elapsed() < RELEASED_EVERY) {
        return false;
    }
    *last = Some(clock::now());
    true
}

/// Bytes of pages that only the process has: not pages of files, which can be read again.
fn held() -> Option<u64> {
    static COUNTS: OnceLock<Option<(File, u64)>> = OnceLock::new();
    if cfg!(miri) {
        // It would be Miri's own.
        return None;
    }
    let open = || {
        // SAFETY: the call only reads.
        let page_bytes = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).ok()?;
        Some((File::open("/proc/self/statm").ok()?, page_bytes))
    };
    let (counts, page_bytes) = COUNTS.get_or_init(open).as_ref()?;
    let mut text = [0; 128];
    let length = counts.read_at(&mut text, 0).ok()?;
    let mut pages = std::str::from_utf8(&text[..length]).ok()?.split(' ').skip(1);
    let mut next = || pages.next()?.parse::<u64>().ok();
    let (resident, of_files) = (next()?, next()?);
    Some(resident.saturating_sub(of_files) * page_bytes)
}

fn find() -> Option<u64> {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let machine = read("/proc/meminfo").and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
        Some(1024 * line.split_whitespace().nth(1)?.parse::<u64>().ok()?)
    });
    let groups = read("/proc/self/cgroup").unwrap_or_default();
    limits_of_groups(&groups).filter_map(|path| read(&path)?.trim().parse().ok()).chain(machine).min()
}

/// The files with the limits of a process's control groups and of their parents, from its
/// `/proc/self/cgroup`: of the second version's hierarchy, and of the first one's for memory. A file that
/// contains `max` sets no limit.
fn limits_of_groups(groups: &str) -> impl Iterator<Item = String> + '_ {
    groups.lines().flat_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let found = match controllers {
            "" => Some(("/sys/fs/cgroup", "memory.max")),
            _ if controllers.split(',').any(|name| name == "memory") => {
                Some(("/sys/fs/cgroup/memory", "memory.limit_in_bytes"))
            }
            _ => None,
        };
        let groups = std::path::Path::new(path).ancestors();
        groups.filter_map(move |group| {
            let (root, file) = found?;
            let group = group.to_str()?.trim_end_matches('/');
            Some(format!("{root}{group}/{file}"))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_looked_for_in_all_groups_around_a_process() {
        let second: Vec<_> = limits_of_groups("0::/a/b").collect();
        assert_eq!(
            second,
            ["/sys/fs/cgroup/a/b/memory.max", "/sys/fs/cgroup/a/memory.max", "/sys/fs/cgroup/memory.max"]
        );
        let first: Vec<_> = limits_of_groups("5:cpu,cpuacct:/x\n4:memory:/x\n").collect();
        let root = "/sys/fs/cgroup/memory";
        assert_eq!(
            first,
            [format!("{root}/x/memory.limit_in_bytes"), format!("{root}/memory.limit_in_bytes")]
        );
        assert!(of_process().is_some_and(|bytes| bytes > 1 << 20));
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the operating system")]
    fn what_the_process_takes_is_no_longer_left() {
        const BYTES: usize = 64 << 20;
        let before = held().unwrap();
        let taken = std::hint::black_box(vec![1_u8; BYTES]);
        let after = held().unwrap();
        // Other tests allocate and free some.
        assert!(after > before + BYTES as u64 / 2, "{before} {after}");
        assert!(left() < (of_process().unwrap() - margin()) as i64);
        drop(taken);
        assert!(margin() >= 1 << 20);
    }
}
