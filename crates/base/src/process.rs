//! Other processes of this machine.

use std::io;

/// Whether there is no process of this id, also none of another user, as far as the caller's namespace of ids reaches.
pub fn is_missing(id: u32) -> bool {
    let Some(id) = libc::pid_t::try_from(id).ok().filter(|id| *id > 0) else { return false };
    // SAFETY: the call takes no memory. Signal 0 is not sent.
    let sent = unsafe { libc::kill(id, 0) };
    sent != 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_missing_once_it_was_waited_for() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert!(!is_missing(child.id()) && !is_missing(std::process::id()) && !is_missing(1));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(is_missing(child.id()));
        assert!(!is_missing(0) && !is_missing(u32::MAX));
    }
}
