//! Termination signals, and forwarding them to a child process.

use std::io;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithRawSiginfo;

/// Time within which a repeated signal is the same request. A signal to a process group reaches
/// each process, and those that wait for a child forward it as well.
const ECHO: Duration = Duration::from_millis(500);

/// Receiver of termination signals, and of children's signals, from its creation on.
pub struct Requests {
    signals: SignalsInfo<WithRawSiginfo>,
    /// Last signal and its time: repetitions within [`ECHO`] do not count.
    last: Option<(Signal, Instant)>,
}

impl Requests {
    /// Starts receiving, on behalf of a parent that waits for another process. Interrupts from a
    /// terminal reach the whole group and are left to that process.
    ///
    /// # Errors
    ///
    /// The system refused.
    pub fn of_others() -> io::Result<Self> {
        let signals = SignalsInfo::new([SIGHUP, SIGINT, SIGTERM, SIGCHLD])?;
        Ok(Self { signals, last: None })
    }

    /// Waits for signals and returns the requests. May be empty: a child has ended, or the request
    /// was a repetition.
    pub fn wait(&mut self) -> Vec<Signal> {
        let received: Vec<_> = self.signals.wait().collect();
        self.requests_of(&received, Instant::now())
    }

    /// Returns the requests since the last call.
    pub fn look(&mut self) -> Vec<Signal> {
        let received: Vec<_> = self.signals.pending().collect();
        self.requests_of(&received, Instant::now())
    }

    fn requests_of(&mut self, received: &[libc::siginfo_t], now: Instant) -> Vec<Signal> {
        let mut requests = Vec::new();
        for info in received {
            // Codes above zero are the kernel's own (sigaction(2)).
            let from_terminal = info.si_code > 0;
            let signal = match info.si_signo {
                SIGHUP => Signal::HUP,
                SIGTERM => Signal::TERM,
                SIGINT if !from_terminal => Signal::INT,
                _ => continue,
            };
            let echo = |(last, at): (Signal, Instant)| last == signal && now - at < ECHO;
            if self.last.is_some_and(echo) {
                continue;
            }
            // The time of the first one: repeated requests count again after [`ECHO`].
            self.last = Some((signal, now));
            requests.push(signal);
        }
        requests
    }
}

impl std::fmt::Debug for Requests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Requests").field("last", &self.last).finish_non_exhaustive()
    }
}

/// Waits until `is_over` returns the child's status, and forwards signals meanwhile. Uses no
/// thread, because a process with children in another PID namespace can have none.
///
/// # Errors
///
/// Errors of `is_over`.
pub fn until_over(
    requests: &mut Requests,
    child: Option<Pid>,
    mut is_over: impl FnMut() -> io::Result<Option<ExitStatus>>,
) -> io::Result<ExitStatus> {
    loop {
        // The child may have ended before the handler was installed.
        if let Some(status) = is_over()? {
            return Ok(status);
        }
        for signal in requests.wait() {
            if let Some(child) = child {
                // The child may have ended.
                let _ = kill_process(child, signal);
            }
        }
    }
}

/// Runs a command to its end and forwards signals to it.
///
/// # Errors
///
/// The command did not start.
pub fn carry_out(command: &mut Command, requests: &mut Requests) -> io::Result<ExitStatus> {
    let mut child = command.spawn()?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    until_over(requests, pid, || child.try_wait())
}

/// Blocks termination signals of the calling process until [`release`]. May be called between fork
/// and exec.
///
/// # Errors
///
/// The system refused.
pub fn hold() -> io::Result<()> {
    mask(libc::SIG_BLOCK)
}

/// Unblocks them.
///
/// # Errors
///
/// The system refused.
pub fn release() -> io::Result<()> {
    mask(libc::SIG_UNBLOCK)
}

#[expect(unsafe_code, reason = "system calls that no crate of ours wraps")]
fn mask(how: libc::c_int) -> io::Result<()> {
    // SAFETY: a signal set is plain data that is written before it is read, and lives until the
    // last of the calls returns.
    let result = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in [SIGHUP, SIGINT, SIGTERM] {
            libc::sigaddset(&raw mut set, signal);
        }
        libc::sigprocmask(how, &raw const set, std::ptr::null_mut())
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
#[expect(unsafe_code, reason = "fabricates siginfo for the test")]
mod tests {
    use super::*;

    fn info(signal: libc::c_int, code: libc::c_int) -> libc::siginfo_t {
        // SAFETY: plain data, for which all zeros is a value.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        (info.si_signo, info.si_code) = (signal, code);
        info
    }

    #[test]
    fn only_new_signals_are_forwarded() {
        /// Code of signals sent by `kill`, as opposed to signals of a terminal.
        const SENT: libc::c_int = 0;
        const KERNEL: libc::c_int = 0x80;
        let mut requests = Requests::of_others().unwrap();
        let now = Instant::now();
        let mut requests_of = |received: &[_]| requests.requests_of(received, now);
        assert_eq!(requests_of(&[info(SIGINT, KERNEL), info(SIGCHLD, 1)]), []);
        let twice = [info(SIGINT, SENT), info(SIGINT, SENT)];
        assert_eq!(requests_of(&twice), [Signal::INT]);
        assert_eq!(requests_of(&twice), []);
        assert_eq!(requests_of(&[info(SIGTERM, SENT)]), [Signal::TERM]);
        assert_eq!(requests_of(&[info(SIGHUP, KERNEL)]), [Signal::HUP]);
    }

    #[test]
    fn repeated_signals_count_again_after_a_while() {
        let mut requests = Requests::of_others().unwrap();
        let started = Instant::now();
        let mut requests = |after: u64| {
            let now = started + Duration::from_millis(after);
            requests.requests_of(&[info(SIGINT, 0)], now).len()
        };
        let received = [0, 200, 400, 600, 800, 1_000, 1_200].map(&mut requests);
        assert_eq!(received, [1, 0, 0, 1, 0, 0, 1]);
    }
}
