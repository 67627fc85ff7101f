//! Servers at the far end, and their readiness.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use emu::{Host, Listening, Requests, User, listening};

use crate::{BACKGROUND, EPOCH};

/// Interval of checks of sockets.
const LOOK: Duration = Duration::from_millis(5);
/// Longest wait for a program that may never listen.
const PATIENCE: Duration = Duration::from_secs(3);
/// Longest wait for a program that listens on a known port.
const LONG_PATIENCE: Duration = Duration::from_secs(60);
/// Programs at the far end, which end when this is dropped.
#[derive(Debug, Default)]
pub(super) struct Servers {
    children: Vec<Child>,
}

/// Result of starting servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Started {
    /// The servers listen, as far as their sockets show.
    Ready,
    /// A signal of this number requested the end.
    Over(i32),
}

impl Servers {
    /// Starts shells with these commands on a host, each once the previous one listens. With
    /// `port`, starts all at once and waits for a listener on that port.
    pub(super) fn start(
        &mut self,
        host: &Host,
        user: Option<&User>,
        epoch: &str,
        commands: &[OsString],
        port: Option<u16>,
        requests: &mut Requests,
    ) -> anyhow::Result<Started> {
        for text in commands {
            let before = listening(host)?;
            let mut command = Command::new("/bin/sh");
            host.command(command.arg("-c").arg(text)).env(EPOCH, epoch).env(BACKGROUND, "1");
            if let Some(user) = user {
                user.command(&mut command);
            }
            let child = emu::unmarked(&mut command).process_group(0).spawn();
            self.children.push(child.context("starting the server")?);
            if port.is_some() {
                continue;
            }
            let is_ready = |now: &BTreeSet<Listening>| !now.is_subset(&before);
            match self.wait(host, requests, PATIENCE, is_ready)? {
                Some(Waited::Signalled(signal)) => return Ok(Started::Over(signal)),
                Some(Waited::Listens | Waited::Ended) => {}
                None => {
                    let text = text.to_string_lossy();
                    writeln!(
                        io::stderr(),
                        "the server listens on no port after {PATIENCE:?}; starting the program anyway \
                         (see --wait-for): {text}"
                    )?;
                }
            }
        }
        let Some(port) = port else { return Ok(Started::Ready) };
        let is_ready = |now: &BTreeSet<Listening>| {
            now.iter().any(|it| [it.tcp_port(), it.udp_port()].contains(&Some(port)))
        };
        let started = Instant::now();
        while let Some(left) = LONG_PATIENCE.checked_sub(started.elapsed()) {
            match self.wait(host, requests, left, is_ready)? {
                Some(Waited::Signalled(signal)) => return Ok(Started::Over(signal)),
                Some(Waited::Listens) => return Ok(Started::Ready),
                // Some daemonize, and their child listens.
                Some(Waited::Ended) => thread::sleep(LOOK),
                None => break,
            }
        }
        bail!("nothing listens on port {port} of the far end after {LONG_PATIENCE:?} (--wait-for)")
    }

    /// Waits until the sockets listen, the last server has ended successfully, or a signal requests
    /// the end; `None` after a timeout.
    fn wait(
        &mut self,
        host: &Host,
        requests: &mut Requests,
        patience: Duration,
        is_ready: impl Fn(&BTreeSet<Listening>) -> bool,
    ) -> anyhow::Result<Option<Waited>> {
        let started = Instant::now();
        loop {
            if is_ready(&listening(host)?) {
                return Ok(Some(Waited::Listens));
            }
            if let Some(signal) = requests.look().first() {
                return Ok(Some(Waited::Signalled(signal.as_raw())));
            }
            for child in &mut self.children {
                if let Some(status) = child.try_wait()?.filter(|status| !status.success()) {
                    let code = emu::exit_code(status);
                    bail!("the server ended with exit code {code} before it listened");
                }
            }
            let last = self.children.last_mut();
            if last.map_or(Ok(None), Child::try_wait)?.is_some() {
                return Ok(Some(Waited::Ended));
            }
            if started.elapsed() > patience {
                return Ok(None);
            }
            thread::sleep(LOOK);
        }
    }
}

/// Result of waiting for a server.
enum Waited {
    Listens,
    Ended,
    Signalled(i32),
}

impl Drop for Servers {
    fn drop(&mut self) {
        for server in &mut self.children {
            // It may have ended already.
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}
