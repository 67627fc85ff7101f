//! Scheduler time slices for threads without a priority.

/// Shortest slice that the kernel grants: 100 us.
const SHORTEST_NS: u64 = 100_000;

/// `struct sched_attr` in its first version.
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

/// Requests short time slices for the calling thread, which then runs soon after waking. Takes no
/// privilege; kernels before Linux 6.12 ignore it. Returns whether the call succeeded.
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
    // SAFETY: it reads one structure of the size in its first field, which outlives the call.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) == 0 }
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_thread_may_request_short_time_slices() {
        assert!(super::shorten());
    }
}
