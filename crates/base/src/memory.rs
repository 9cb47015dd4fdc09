//! How much memory the process may have.

use crate::sync::OnceLock;

/// Bytes that the machine has, or the least that a control group around the process allows; `None` where neither can be told.
/// Asked once.
pub fn of_process() -> Option<u64> {
    static BYTES: OnceLock<Option<u64>> = OnceLock::new();
    *BYTES.get_or_init(find)
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
}
