//! Programs at the far end, and when they can be asked for something.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use emu::{Host, Requests};

/// How often sockets are looked at.
const LOOK: Duration = Duration::from_millis(5);
/// How long a program may take to listen somewhere: not all do.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long it may take to listen where it was said that it will.
const LONG_PATIENCE: Duration = Duration::from_secs(60);
/// What the kernel tells of sockets by which a host waits for others: those of TCP that listen, and
/// those of UDP and raw ones that have no peer.
const TABLES: [(&str, &str); 6] =
    [("tcp", "0A"), ("tcp6", "0A"), ("udp", "07"), ("udp6", "07"), ("raw", "07"), ("raw6", "07")];

/// A socket by which a host waits for others.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Listening {
    table: &'static str,
    /// Address and port, as the kernel writes them.
    local: String,
}

impl Listening {
    fn port(&self) -> Option<u16> {
        let (_, port) = self.local.rsplit_once(':')?;
        u16::from_str_radix(port, 16).ok().filter(|_| !self.table.starts_with("raw"))
    }
}

/// Programs that run at the far end until this goes.
#[derive(Debug, Default)]
pub(super) struct Servers {
    children: Vec<Child>,
}

/// Whether it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Started {
    /// The servers can be asked for something, as far as one can see.
    Ready,
    /// The end was asked for by a signal of this number.
    Over(i32),
}

impl Servers {
    /// Starts shells with these commands on a host, each of them when the one before it listens, or
    /// all at once and then waits until something listens on `port`.
    pub(super) fn start(
        &mut self,
        host: &Host,
        commands: &[OsString],
        port: Option<u16>,
        requests: &mut Requests,
    ) -> anyhow::Result<Started> {
        for text in commands {
            let before = listening(host)?;
            let mut command = Command::new("/bin/sh");
            host.command(command.arg("-c").arg(text));
            let child = emu::unmarked(&mut command).process_group(0).spawn();
            self.children.push(child.context("starting the server")?);
            if port.is_some() {
                continue;
            }
            let is_ready = |now: &BTreeSet<Listening>| !now.is_subset(&before);
            match self.wait(host, requests, PATIENCE, is_ready)? {
                Some(Waited::Asked(signal)) => return Ok(Started::Over(signal)),
                Some(Waited::Listens | Waited::Ended) => {}
                None => {
                    let text = text.to_string_lossy();
                    writeln!(
                        io::stderr(),
                        "the server listens nowhere after {PATIENCE:?}, and is not waited for any \
                         longer (see --wait-for): {text}"
                    )?;
                }
            }
        }
        let Some(port) = port else { return Ok(Started::Ready) };
        let is_ready = |now: &BTreeSet<Listening>| now.iter().any(|it| it.port() == Some(port));
        let begun = Instant::now();
        while let Some(left) = LONG_PATIENCE.checked_sub(begun.elapsed()) {
            match self.wait(host, requests, left, is_ready)? {
                Some(Waited::Asked(signal)) => return Ok(Started::Over(signal)),
                Some(Waited::Listens) => return Ok(Started::Ready),
                // Some leave another process behind, which will.
                Some(Waited::Ended) => thread::sleep(LOOK),
                None => break,
            }
        }
        bail!("nothing listens on port {port} of the far end after {LONG_PATIENCE:?} (--wait-for)")
    }

    /// Waits until sockets are as they shall be, the last server has ended well, or the end is asked
    /// for; `None` if nothing of it comes in time.
    fn wait(
        &mut self,
        host: &Host,
        requests: &mut Requests,
        patience: Duration,
        is_ready: impl Fn(&BTreeSet<Listening>) -> bool,
    ) -> anyhow::Result<Option<Waited>> {
        let begun = Instant::now();
        loop {
            if is_ready(&listening(host)?) {
                return Ok(Some(Waited::Listens));
            }
            if let Some(signal) = requests.look().first() {
                return Ok(Some(Waited::Asked(signal.as_raw())));
            }
            for child in &mut self.children {
                if let Some(status) = child.try_wait()?.filter(|status| !status.success()) {
                    let code = emu::exit_code(status);
                    bail!("the server has ended, with exit code {code}, before it listened");
                }
            }
            let last = self.children.last_mut();
            if last.map_or(Ok(None), Child::try_wait)?.is_some() {
                return Ok(Some(Waited::Ended));
            }
            if begun.elapsed() > patience {
                return Ok(None);
            }
            thread::sleep(LOOK);
        }
    }
}

/// What a server was waited for.
enum Waited {
    Listens,
    Ended,
    Asked(i32),
}

impl Drop for Servers {
    fn drop(&mut self) {
        for server in &mut self.children {
            // It may be over.
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

/// The sockets by which a host waits for others.
fn listening(host: &Host) -> io::Result<BTreeSet<Listening>> {
    let read = |table| {
        // A kernel without IPv6 has not all of them.
        fs::read_to_string(format!("/proc/thread-self/net/{table}")).unwrap_or_default()
    };
    let texts = host.within(|| TABLES.map(|(table, state)| (table, state, read(table))))?;
    Ok(texts.iter().flat_map(|(table, state, text)| of_table(table, state, text)).collect())
}

/// Those of one of the kernel's tables that are in this state.
fn of_table<'a>(
    table: &'static str,
    state: &'a str,
    text: &'a str,
) -> impl Iterator<Item = Listening> + 'a {
    // Number, local address, remote address, state.
    let fields = move |line: &'a str| {
        let mut fields = line.split_whitespace().skip(1);
        let local = fields.next()?;
        fields.nth(1).filter(|of| *of == state)?;
        Some(Listening { table, local: local.to_owned() })
    };
    text.lines().skip(1).filter_map(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_for_others_is_told_from_what_has_a_peer() {
        let text = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt
   0: 0100000A:0FA0 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1
   1: 0100000A:A2C4 0200000A:0016 01 00000000:00000000 00:00000000 00000000     0        0 2 1\n";
        let found: Vec<_> = of_table("tcp", "0A", text).collect();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].port(), Some(4000));
        let raw = Listening { table: "raw", local: "00000000:0001".to_owned() };
        assert_eq!(raw.port(), None, "a protocol");
    }
}
