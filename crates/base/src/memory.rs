//! How much memory the process may have, and how much of that is left.

use crate::clock;
use crate::sync::Ordering;
use crate::sync::unmodelled::{AtomicBool, Mutex, OnceLock};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// One in so many bytes of what the process may have, and some more, is left for what grows without asking: what is
/// between two looks, stacks, buffers of the kernel.
const MARGIN: u64 = 16;
const LEAST_MARGIN: u64 = 128 << 20;

/// With one in so many bytes left beside that, nobody keeps what is freed.
const AMPLE: u64 = 8;

/// How often the allocator is asked to give back what it has kept.
const RELEASED_EVERY: Duration = Duration::from_millis(100);

/// Bytes that the machine has, or the least that a control group around the process allows; `None` where neither can be told.
/// Asked once.
pub fn of_process() -> Option<u64> {
    static BYTES: OnceLock<Option<u64>> = OnceLock::new();
    *BYTES.get_or_init(find)
}

/// How much of that is not to be used: see [`left`].
pub fn margin() -> u64 {
    of_process().map_or(0, |bytes| (bytes / MARGIN + LEAST_MARGIN).min(bytes / 4))
}

/// Bytes of its own that the process may still take until only the [`margin`] is left; less than none if it has taken of that
/// already, and no end of them where nobody can tell. Asks the operating system, which takes a microsecond.
pub fn left() -> i64 {
    let Some(most) = of_process() else { return i64::MAX };
    held().map_or(i64::MAX, |held| (most - margin()) as i64 - held as i64)
}

/// As [`left`], and sees to it that the allocator gives back what is freed when little is left: from then on at once, and if it is
/// less than `wanted` what it has kept so far as well.
pub fn left_for(wanted: u64) -> i64 {
    let left = left();
    let Some(release) = RELEASE.get() else { return left };
    let ample = wanted.saturating_add(of_process().map_or(0, |bytes| bytes / AMPLE)) as i64;
    // Relaxed: who comes late keeps what is freed for a while.
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

/// When memory that was freed goes back to the operating system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Release {
    /// Now, what the caller's thread can, and from now on as soon as it is freed.
    AtOnce,
    /// When nobody has wanted it for a while.
    Later,
}

/// What tells the allocator so.
static RELEASE: OnceLock<fn(Release)> = OnceLock::new();
static IS_SHORT: AtomicBool = AtomicBool::new(false);

/// Says how the allocator of this program is told when to give memory back. Only the first word counts.
pub fn set_release(release: fn(Release)) {
    let _ = RELEASE.set(release);
}

/// Whether that has not been done just now.
fn may_ask_again() -> bool {
    static LAST: Mutex<Option<clock::Instant>> = Mutex::new(None);
    let Some(mut last) = LAST.try_lock() else { return false };
    if last.is_some_and(|last| last.elapsed() < RELEASED_EVERY) {
        return false;
    }
    *last = Some(clock::now());
    true
}

/// Bytes of pages that the process has to itself: not those of files, which can be read again.
fn held() -> Option<u64> {
    static COUNTS: OnceLock<Option<(File, u64)>> = OnceLock::new();
    if cfg!(miri) {
        // It would tell Miri's own.
        return None;
    }
    let open = || {
        // SAFETY: it only asks.
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

/// Where the limits of a process's control groups and of those around them stand, by its `/proc/self/cgroup`: of the second
/// version's hierarchy, and of the first one's for memory. A file that says `max` limits nothing.
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
        // Other tests take and give back some.
        assert!(after > before + BYTES as u64 / 2, "{before} {after}");
        assert!(left() < (of_process().unwrap() - margin()) as i64);
        drop(taken);
        assert!(margin() >= 1 << 20);
    }
}
