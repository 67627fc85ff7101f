//! How exactly the links' thread is woken.

use std::num::NonZeroU64;

/// Asks for exact wake-ups, and for a priority above all programs'. Returns whether the latter was
/// given: it takes a privilege.
#[expect(unsafe_code, reason = "a system call that no crate of ours wraps")]
pub(crate) fn raise() -> bool {
    if let Err(error) = rustix::thread::set_current_timer_slack(Some(NonZeroU64::MIN)) {
        tracing::debug!(%error, "timer slack stays at the kernel's default");
    }
    let parameter = libc::sched_param { sched_priority: 1 };
    // SAFETY: it reads one structure, which lives until the call returns.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameter) == 0 }
}
