//! Thread priorities above ordinary programs.

/// Priority of emulated links, which come first, and of hosts that must be in time.
const LINKS: i32 = 2;
const HOSTS: i32 = 1;

/// Requests a priority for the calling thread above all programs, but below the links. Returns
/// whether it was granted: it takes a privilege. For threads that mostly wait; a busy one leaves
/// no time for programs.
#[must_use]
pub fn hurry() -> bool {
    raise_to(HOSTS)
}

/// Requests the priority of emulated links for the calling thread. Returns whether it was granted.
#[must_use]
pub fn hurry_links() -> bool {
    raise_to(LINKS)
}

/// Parameter of the kernel's policies.
#[repr(C)]
struct Parameter {
    priority: libc::c_int,
}

/// Threads and processes started by this thread have the usual priority.
#[expect(unsafe_code, reason = "a system call that no crate of ours wraps")]
fn raise_to(priority: i32) -> bool {
    let parameter = Parameter { priority };
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // Not by the C library: musl's refuses, and its structure has other fields.
    // SAFETY: it reads one structure, which lives until the call returns.
    unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const parameter) == 0 }
}
