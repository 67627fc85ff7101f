//! Requests to stop, by signals.

use std::fs;
use std::io::{self, IsTerminal as _, Write as _};
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::exit::Exit;

/// A signal that comes again within this time is the same request: whoever signals all processes
/// of a group signals each by itself, and those that wait for others pass it on.
const ECHO: Duration = Duration::from_millis(500);

/// Flags that signals set.
#[cfg(feature = "sockets")]
pub(crate) struct Flags {
    /// SIGINT or SIGTERM: a second one ends the process at once.
    pub(crate) stop: Arc<AtomicBool>,
    /// SIGHUP.
    pub(crate) reload: Arc<AtomicBool>,
}

/// Flags of a process that reads its settings again on SIGHUP.
#[cfg(feature = "sockets")]
pub(crate) fn stop_and_reload_flags() -> Result<Flags> {
    let reload = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGHUP, Arc::clone(&reload))
        .context("cannot listen for signals")?;
    Ok(Flags { stop: flag_of(&[SIGINT, SIGTERM])?, reload })
}

/// A flag that SIGINT, SIGTERM or SIGHUP set. A second request ends the process at once.
pub(crate) fn stop_flag() -> Result<Arc<AtomicBool>> {
    // `nohup` has a process ignore SIGHUP, to survive its terminal.
    flag_of(if ignores_hangup() { &[SIGINT, SIGTERM] } else { &[SIGHUP, SIGINT, SIGTERM] })
}

/// A flag that these signals set.
fn flag_of(requests: &[i32]) -> Result<Arc<AtomicBool>> {
    let mut signals = Signals::new(requests).context("cannot listen for signals")?;
    let stop = Arc::new(AtomicBool::new(false));
    let is_stopping = Arc::clone(&stop);
    let listen = move || {
        let mut last = None;
        for signal in signals.forever() {
            if !record_signal(&mut last, signal, Instant::now()) {
                continue;
            }
            if is_stopping.swap(true, Ordering::Relaxed) {
                process::exit(Exit::Failed.code().into());
            }
            if io::stderr().is_terminal() {
                // Nothing can be done about a standard error that is closed.
                let _ = writeln!(io::stderr(), "stopping; ctrl-C again exits at once");
            }
        }
    };
    thread::Builder::new().name("signals".to_owned()).spawn(listen)?;
    Ok(stop)
}

/// Whether a signal is no echo of the `last` request, which it becomes then.
fn record_signal(last: &mut Option<(i32, Instant)>, signal: i32, now: Instant) -> bool {
    let is_echo = last.is_some_and(|(before, at)| before == signal && now - at < ECHO);
    // An echo does not prolong the time: repeated requests count.
    if !is_echo {
        *last = Some((signal, now));
    }
    !is_echo
}

/// Whether this process ignores SIGHUP; not where the kernel does not report it.
fn ignores_hangup() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    ignored(&status).is_some_and(|mask| mask >> (SIGHUP - 1) & 1 == 1)
}

/// Mask of the signals that a process ignores, from its status (proc_pid_status(5)).
fn ignored(status: &str) -> Option<u64> {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn echoes_are_no_requests_and_repetitions_are() {
        let now = Instant::now();
        let mut last = None;
        assert!(record_signal(&mut last, SIGINT, now));
        assert!(!record_signal(&mut last, SIGINT, now + ECHO / 2));
        assert!(record_signal(&mut last, SIGTERM, now + ECHO / 2));
        assert!(!record_signal(&mut last, SIGTERM, now + ECHO));
        assert!(record_signal(&mut last, SIGTERM, now + ECHO * 2));
    }

    #[test]
    fn ignored_signals_are_read_from_the_status() {
        assert_eq!(ignored("Name:\tx\nSigIgn:\t0000000000001001\nSigCgt:\t0\n"), Some(0x1001));
        assert_eq!(ignored(""), None);
        let own = fs::read_to_string("/proc/self/status").unwrap();
        assert!(ignored(&own).is_some(), "{own}");
    }
}
