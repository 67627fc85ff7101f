//! Waiting for a socket, a timer or another thread, with microsecond precision.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

/// Ends a wait from another thread. Cheap when the waiter is awake or was woken already.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    event: OwnedFd,
    /// Whether a wake-up is pending, so that another would be redundant.
    signalled: AtomicBool,
}

/// Result of a wait; all false after a timeout or a signal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// Whether the socket has datagrams.
    pub readable: bool,
    /// Whether the socket has room for datagrams.
    pub writable: bool,
}

impl Waker {
    /// Creates a waker.
    ///
    /// # Errors
    ///
    /// The process has no file descriptor left.
    pub fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self(Arc::new(Inner { event, signalled: AtomicBool::new(false) })))
    }

    /// Ends the current wait, or the next one.
    pub fn wake(&self) {
        if !self.0.signalled.swap(true, Ordering::AcqRel) {
            // The write can only fail when 2^64 - 2 wake-ups are unread: then the waiter wakes
            // anyway.
            let _ = rustix::io::write(&self.0.event, &1u64.to_ne_bytes());
        }
    }

    /// Waits until `socket` is ready as requested, a wake-up comes, or `timeout` has passed.
    /// Without a timeout it waits for ever.
    ///
    /// Writes of a thread before [`Waker::wake`] are visible after this returns.
    ///
    /// # Errors
    ///
    /// Errors of the system call, except interruption by a signal, which ends the wait.
    pub fn wait(
        &self,
        socket: &impl AsFd,
        interest: Ready,
        timeout: Option<Duration>,
    ) -> io::Result<Ready> {
        self.wait_also(socket, None, interest, timeout)
    }

    /// Waits for a wake-up only, or until `timeout` has passed.
    ///
    /// # Errors
    ///
    /// See [`Waker::wait`].
    pub fn wait_alone(&self, timeout: Option<Duration>) -> io::Result<()> {
        let interest = Ready { readable: true, writable: false };
        self.wait(&self.0.event, interest, timeout).map(|_| ())
    }

    /// Waits like [`Waker::wait`]. If reading is requested of the socket, also waits for `also` to
    /// be readable.
    pub(crate) fn wait_also(
        &self,
        socket: &impl AsFd,
        also: Option<BorrowedFd<'_>>,
        interest: Ready,
        timeout: Option<Duration>,
    ) -> io::Result<Ready> {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, interest.readable);
        flags.set(PollFlags::OUT, interest.writable);
        let other = also.filter(|_| interest.readable).unwrap_or(self.0.event.as_fd());
        let mut fds = [
            PollFd::new(socket, flags),
            PollFd::new(&self.0.event, PollFlags::IN),
            PollFd::from_borrowed_fd(other, PollFlags::IN),
        ];
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(Ready::default()),
            Err(error) => return Err(error.into()),
        }
        let [socket, event, other] = fds.map(|fd| fd.revents());
        if event.contains(PollFlags::IN) {
            let mut count = [0u8; 8];
            let _ = rustix::io::read(&self.0.event, &mut count);
            // A swap, not a store: it acquires the writes of threads that found the flag set.
            self.0.signalled.swap(false, Ordering::AcqRel);
        }
        let is_other = also.is_some() && interest.readable;
        let failed = socket.intersects(PollFlags::ERR | PollFlags::HUP);
        Ok(Ready {
            readable: socket.contains(PollFlags::IN)
                || is_other && other.contains(PollFlags::IN)
                || failed,
            writable: socket.contains(PollFlags::OUT) || failed,
        })
    }
}

/// Requests exact timer wake-ups for the calling thread, in place of the default of up to 50
/// microseconds late.
pub fn wake_exactly() {
    let slack = std::num::NonZeroU64::MIN;
    if let Err(error) = rustix::thread::set_current_timer_slack(Some(slack)) {
        tracing::debug!(%error, "timer slack stays at the kernel's default");
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::Instant;

    use super::*;

    #[test]
    fn waits_end_on_wake_up_or_timeout() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let waker = Waker::new().unwrap();
        let other = waker.clone();
        let interest = Ready { readable: true, writable: false };
        let thread = std::thread::spawn(move || other.wake());
        waker.wait(&socket, interest, Some(Duration::from_secs(5))).unwrap();
        thread.join().unwrap();
        let start = Instant::now();
        waker.wait(&socket, interest, Some(Duration::from_micros(300))).unwrap();
        let waited = start.elapsed();
        assert!(waited >= Duration::from_micros(300) && waited < Duration::from_secs(1));
        waker.wake();
        waker.wake();
        let start = Instant::now();
        waker.wait(&socket, interest, Some(Duration::from_secs(5))).unwrap();
        assert!(start.elapsed() < Duration::from_secs(1));
    }

    #[test]
    fn wait_reports_socket_readiness() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let waker = Waker::new().unwrap();
        let both = Ready { readable: true, writable: true };
        let ready = waker.wait(&socket, both, None).unwrap();
        assert_eq!(ready, Ready { readable: false, writable: true });
        socket.send_to(b"x", socket.local_addr().unwrap()).unwrap();
        let ready = waker.wait(&socket, Ready { readable: true, writable: false }, None).unwrap();
        assert!(ready.readable);
    }
}
