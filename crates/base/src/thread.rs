//! The door to threads: every one has a name, and whoever starts it joins it.

pub use std::thread::{JoinHandle, available_parallelism, yield_now};

/// Starts a named thread. Panics if the operating system refuses.
pub fn spawn<T: Send + 'static>(name: &str, body: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(body)
        .expect("the operating system starts a thread")
}
