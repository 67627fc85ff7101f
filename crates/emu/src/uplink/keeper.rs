//! Rules and settings of an uplink in the network outside, and their removal.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::{Range, UplinkError, system};

/// Folder for state that outlives a process.
const FOLDER: &str = "/run/slowlight";
const FORWARDING: &str = "/proc/sys/net/ipv4/ip_forward";
/// Prefix of the names by which ranges of addresses are reserved in a network namespace.
const RESERVED: &str = "slowlight/uplink/";

/// Process that removes rules and settings outside when the world has ended, even if the emulator
/// was killed. Ends when this is dropped.
#[derive(Debug)]
pub struct Keeper {
    child: Child,
}

/// Name of the device outside, and of the table of rules.
pub(super) fn name(range: Range) -> String {
    format!("slowlight{}", range.0)
}

impl Keeper {
    /// Reserves the first of these ranges that no other world has, and enables forwarding in the
    /// network namespace.
    pub(super) fn start(
        ranges: impl Iterator<Item = Range>,
        is_nested: bool,
    ) -> Result<(Self, Range), UplinkError> {
        let reserve = |range: Range| {
            let name = SocketAddr::from_abstract_name(format!("{RESERVED}{}", range.0)).ok()?;
            Some((range, UnixListener::bind_addr(&name).ok()?))
        };
        let (range, reserved) = { ranges }.find_map(reserve).ok_or_else(|| {
            UplinkError::Missing("all of 10.0.0.0/8 is in use outside".to_owned())
        })?;
        let child = spawn(range, reserved.into(), is_nested).map_err(system("sh"))?;
        let keeper = Self { child };
        forward(is_nested).map_err(system(FORWARDING))?;
        Ok((keeper, range))
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // The process waits for the end of its input.
        drop(self.child.stdin.take());
        if let Err(error) = self.child.wait() {
            tracing::warn!(%error, "rules may be left outside the world");
        }
    }
}

/// Starts the process. It holds the socket that reserves the range until everything is removed.
fn spawn(range: Range, reserved: OwnedFd, is_nested: bool) -> io::Result<Child> {
    // The settings of a host of a world end with the host.
    let restore = if is_nested { String::new() } else { restore(&note()?, Some(range)) };
    let name = name(range);
    let script = format!(
        "exec 8>&1 >/dev/null\ntrap '' HUP INT QUIT TERM\nread -r end\n\
         PATH=$PATH:/usr/sbin:/sbin\n\
         nft delete table ip {name}\nip link delete {name}\n{restore}"
    );
    let mut command = Command::new("sh");
    command.args(["-c", &script]).process_group(0).stdin(Stdio::piped());
    command.stdout(reserved).stderr(Stdio::null()).spawn()
}

/// File that records that this network namespace did not forward packets before an uplink.
fn note() -> io::Result<String> {
    let namespace = fs::metadata("/proc/self/ns/net")?.ino();
    Ok(format!("{FOLDER}/uplink-forward-{namespace}"))
}

/// Shell lines that disable forwarding if an uplink enabled it and none but `own` is open.
fn restore(note: &str, own: Option<Range>) -> String {
    let own = own.map_or_else(|| "none".to_owned(), |range| range.0.to_string());
    format!(
        "exec 9<{FOLDER}; flock 9\n[ -e {note} ] || exit 0\n\
         grep -o '@{RESERVED}[0-9]*$' /proc/net/unix | grep -v '/{own}$' || \
         {{ echo 0 >{FORWARDING}; rm -f {note}; }}"
    )
}

/// Enables forwarding between devices of this network namespace, and records whether it was off.
fn forward(is_nested: bool) -> io::Result<()> {
    let notes = if is_nested {
        None
    } else {
        fs::create_dir_all(FOLDER)?;
        let folder = fs::File::open(FOLDER)?;
        rustix::fs::flock(&folder, rustix::fs::FlockOperation::LockExclusive)?;
        Some(folder)
    };
    if fs::read_to_string(FORWARDING)?.trim() == "0" {
        if notes.is_some() {
            fs::write(note()?, "0\n")?;
        }
        fs::write(FORWARDING, "1")?;
    }
    Ok(())
}

/// Disables forwarding in this network namespace if an uplink enabled it
/// and the uplink's keeper was killed.
///
/// # Errors
///
/// The system refused.
pub fn restore_forwarding() -> io::Result<()> {
    let note = note()?;
    if !Path::new(&note).exists() {
        return Ok(());
    }
    Command::new("sh")
        .args(["-c", &restore(&note, None)])
        .stdout(Stdio::null())
        .status()
        .map(|_| ())
}
