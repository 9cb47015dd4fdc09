//! The door to threads: every one has a name, and whoever starts it joins it.

pub use std::thread::{JoinHandle, available_parallelism, yield_now};

/// Starts a named thread. Panics if the operating system refuses.
pub fn spawn<T: Send + 'static>(name: &str, body: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(body)
        .expect("the operating system starts a thread")
}

/// Keeps the calling thread, and those that it starts from now on, on one core. Does nothing if
/// the machine has no such core: pinning steadies measurements, nothing else depends on it.
pub fn pin_to_core(core: usize) {
    // SAFETY: an all-zero `cpu_set_t` is the empty set, and `CPU_SET` stays inside it for cores
    // below `CPU_SETSIZE`; the call reads the set and changes nothing else.
    unsafe {
        let mut cores: libc::cpu_set_t = std::mem::zeroed();
        if core < libc::CPU_SETSIZE as usize {
            libc::CPU_SET(core, &mut cores);
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const cores);
        }
    }
}

/// Starts a named thread with a stack of that size; an error if the operating system refuses.
pub fn try_spawn<T: Send + 'static>(
    name: &str,
    stack_bytes: usize,
    body: impl FnOnce() -> T + Send + 'static,
) -> std::io::Result<JoinHandle<T>> {
    std::thread::Builder::new().name(name.to_owned()).stack_size(stack_bytes).spawn(body)
}
