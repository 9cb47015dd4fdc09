//! The allocator of the `firn` binary, and how long it retains freed memory.
//!
//! Loads and queries allocate and free the same few hundred megabytes many times a second. Memory that the allocator returns to
//! the operating system meanwhile, a virtual machine may return to its host. Touching it again then costs ten times what clearing it
//! costs: a load that lasted longer than the second after which mimalloc returns memory took 2.7 s instead of 1.0.

use firn_base::memory::{self, Release};
use libmimalloc_sys::{mi_collect, mi_option_set, mi_option_t, mi_option_use_numa_nodes};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The option `purge_delay`, for which the crate has no name: the one before `use_numa_nodes` in `mimalloc.h`, versions 2 and 3.
const PURGE_DELAY: mi_option_t = mi_option_use_numa_nodes - 1;

/// How long freed memory is retained for reuse before it is returned to the operating system.
const KEPT_MS: i64 = 10_000;

/// The environment variable by which a user sets it, in milliseconds.
const VARIABLE: &str = "MIMALLOC_PURGE_DELAY";

/// Sets the delay. To be called first.
pub fn keep_what_is_freed() {
    if std::env::var_os(VARIABLE).is_some() {
        return;
    }
    release(Release::Later);
    memory::set_release(release);
}

/// When little memory is left, nothing is retained: memory freed by worker threads belongs to them, and others cannot use it.
fn release(when: Release) {
    // SAFETY: options are words of the allocator that may be set at any time, and any thread may call its collection.
    unsafe {
        match when {
            Release::Later => mi_option_set(PURGE_DELAY, KEPT_MS),
            Release::AtOnce => {
                mi_option_set(PURGE_DELAY, 0);
                mi_collect(true);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use libmimalloc_sys::mi_option_get;

    fn purge_delay() -> i64 {
        // SAFETY: as above.
        unsafe { mi_option_get(PURGE_DELAY) }
    }

    #[test]
    fn the_option_is_the_purge_delay() {
        if std::env::var_os(VARIABLE).is_some() {
            return;
        }
        assert_eq!(purge_delay(), 1000, "what it is by itself");
        keep_what_is_freed();
        assert_eq!(purge_delay(), KEPT_MS);
    }
}
