//! Turns at the processor for who has no priority.

/// The shortest that the kernel grants: 100 us.
const SHORTEST_NS: u64 = 100_000;

/// `struct sched_attr` as Linux has had it from the beginning.
#[repr(C)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Asks for short turns at the processor for the calling thread: who asks for little at a time gets
/// it soon. It takes no privilege, and kernels before Linux 6.12 ignore it. Returns whether it was
/// understood.
#[expect(unsafe_code, reason = "a system call that no crate of ours wraps")]
pub(crate) fn shorten() -> bool {
    // SAFETY: it takes a process number and returns a number.
    let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    let attributes = Attributes {
        size: size_of::<Attributes>() as u32,
        policy: libc::SCHED_OTHER.cast_unsigned(),
        flags: 0,
        nice,
        priority: 0,
        runtime: SHORTEST_NS,
        deadline: 0,
        period: 0,
    };
    // SAFETY: it reads one structure of the size that stands in it, which lives until it returns.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) == 0 }
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_thread_may_ask_for_short_turns() {
        assert!(super::shorten());
    }
}
