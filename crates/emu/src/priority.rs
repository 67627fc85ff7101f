//! A priority above all programs'.

/// Asks for such a priority for the calling thread. Returns whether it was given: it takes a
/// privilege.
#[expect(unsafe_code, reason = "a system call that no crate of ours wraps")]
pub(crate) fn raise() -> bool {
    let parameter = libc::sched_param { sched_priority: 1 };
    // SAFETY: it reads one structure, which lives until the call returns.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameter) == 0 }
}
