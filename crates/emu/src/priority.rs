//! Priorities above those of programs.

/// That of the links, which come first, and that of hosts that must be in time.
const LINKS: i32 = 2;
const HOSTS: i32 = 1;

/// Asks for a priority for the calling thread that is above all programs', and with which nothing
/// holds up the links. Returns whether it was given: it takes a privilege. For threads that mostly
/// wait; one that never does leaves nothing for programs.
#[must_use]
pub fn hurry() -> bool {
    raise_to(HOSTS)
}

/// Asks for the links' priority for the calling thread. Returns whether it was given.
pub(crate) fn raise() -> bool {
    raise_to(LINKS)
}

/// Threads and processes that it starts have the usual priority.
#[expect(unsafe_code, reason = "a system call that no crate of ours wraps")]
fn raise_to(sched_priority: i32) -> bool {
    let parameter = libc::sched_param { sched_priority };
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: it reads one structure, which lives until the call returns.
    unsafe { libc::sched_setscheduler(0, policy, &raw const parameter) == 0 }
}
