//! Threads that are tasks of a model if they are started in one.

use crate::sync::in_model;

/// Like the standard library's.
#[derive(Debug)]
pub enum JoinHandle<T> {
    /// A thread of the operating system, outside models.
    Thread(std::thread::JoinHandle<T>),
    /// A task.
    Task(shuttle::thread::JoinHandle<T>),
}

impl<T> From<std::thread::JoinHandle<T>> for JoinHandle<T> {
    fn from(thread: std::thread::JoinHandle<T>) -> JoinHandle<T> {
        JoinHandle::Thread(thread)
    }
}

impl<T: Send + 'static> JoinHandle<T> {
    pub(super) fn task(name: &str, body: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        let task = shuttle::thread::Builder::new().name(name.to_owned()).spawn(body);
        JoinHandle::Task(task.expect("there is room for tasks"))
    }
}

impl<T> JoinHandle<T> {
    /// Waits for its end.
    pub fn join(self) -> std::thread::Result<T> {
        match self {
            JoinHandle::Thread(thread) => thread.join(),
            JoinHandle::Task(task) => task.join(),
        }
    }

    /// Whether it has ended.
    pub fn is_finished(&self) -> bool {
        match self {
            JoinHandle::Thread(thread) => thread.is_finished(),
            JoinHandle::Task(_) => unreachable!("tasks are joined"),
        }
    }

    pub(super) fn is_current(&self) -> bool {
        match self {
            JoinHandle::Thread(thread) => thread.thread().id() == std::thread::current().id(),
            JoinHandle::Task(task) => in_model() && task.thread().id() == shuttle::thread::current().id(),
        }
    }
}

/// Lets other tasks continue.
pub fn yield_now() {
    if in_model() {
        shuttle::thread::yield_now();
    } else {
        std::thread::yield_now();
    }
}
