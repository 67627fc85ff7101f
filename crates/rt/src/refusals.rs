//! Errors of datagram sockets: one rule for all drivers about which of them end a process.
//!
//! A peer, a router, a packet filter or a cable can cause nearly every error of a send or receive
//! call. Such an error costs one datagram. Only errors that show a defect of this program end it.

use std::fmt;
use std::io;
use std::time::{Duration, Instant};

use rustix::io::Errno;

/// Minimum time between two lines of the log.
const INTERVAL: Duration = Duration::from_secs(60);

/// Meaning of an error of a send or receive call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// No datagram waits, or there is no room for one.
    NotNow,
    /// A queue of the device is full, or the system lacks memory: a later attempt may succeed.
    Congested,
    /// The system reports that no program listens at the destination of an earlier datagram.
    PortClosed,
    /// The datagram is longer than the network interface or the path takes.
    TooLong,
    /// There is no route to the destination, or a router reports that an earlier datagram did not
    /// arrive.
    Unreachable,
    /// The datagram is lost: a packet filter refuses it, or its address cannot be sent to.
    Lost,
    /// The call itself is wrong: the process ends.
    Defect,
}

impl Meaning {
    /// Meaning of an error of the system.
    pub(crate) fn from_errno(error: Errno) -> Self {
        match error {
            // Also EWOULDBLOCK, which has the same number. The call may have been interrupted.
            Errno::AGAIN | Errno::INTR => Self::NotNow,
            Errno::NOBUFS | Errno::NOMEM => Self::Congested,
            Errno::CONNREFUSED => Self::PortClosed,
            Errno::MSGSIZE => Self::TooLong,
            // Numbers that Linux gives to messages of ICMP and ICMPv6, and to routes.
            Errno::NETUNREACH
            | Errno::HOSTUNREACH
            | Errno::NETDOWN
            | Errno::HOSTDOWN
            | Errno::NONET
            | Errno::NOPROTOOPT
            | Errno::OPNOTSUPP
            | Errno::PROTO
            | Errno::ACCESS => Self::Unreachable,
            Errno::BADF | Errno::NOTSOCK | Errno::FAULT => Self::Defect,
            _ => Self::Lost,
        }
    }
}

/// Error of the system behind `error`.
///
/// # Errors
///
/// The error ends the process: it is no error of the system, or shows a defect.
pub(crate) fn forgivable(error: io::Error) -> io::Result<(Errno, Meaning)> {
    match Errno::from_io_error(&error).map(|errno| (errno, Meaning::from_errno(errno))) {
        None | Some((_, Meaning::Defect)) => Err(error),
        Some(known) => Ok(known),
    }
}

/// Log of datagrams that were lost in this way: a line for the first, then at most one a minute.
#[derive(Debug, Default)]
pub(crate) struct LossLog {
    reported: Option<Instant>,
    /// Losses since the last line.
    count: u64,
}

impl LossLog {
    /// Counts `datagrams` lost datagrams, and logs them if a line is due.
    pub(crate) fn add(&mut self, datagrams: u64, what: impl fmt::Display) {
        self.count += datagrams;
        if self.reported.is_some_and(|at| at.elapsed() < INTERVAL) {
            return;
        }
        self.reported = Some(Instant::now());
        tracing::warn!("{what} ({} datagrams since the last report)", self.count);
        self.count = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Errors that end a process, by number: EBADF, EFAULT, ENOTSOCK.
    const DEFECTS: [i32; 3] = [9, 14, 88];

    #[test]
    fn only_defects_end_a_process() {
        for number in 1..134 {
            let ends = forgivable(io::Error::from_raw_os_error(number)).is_err();
            assert_eq!(ends, DEFECTS.contains(&number), "errno {number}");
        }
        assert!(forgivable(io::Error::other("no error of the system")).is_err());
    }

    #[test]
    fn losses_are_logged_once_a_minute() {
        let mut log = LossLog::default();
        log.add(3, "lost");
        assert_eq!(log.count, 0);
        log.add(4, "lost");
        log.add(5, "lost");
        assert_eq!(log.count, 9, "they wait for the next line");
    }
}
