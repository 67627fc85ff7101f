//! Namespaces around the emulator itself, so that nothing of it outlives its process.
//!
//! [`isolate`] re-executes the program twice:
//!
//! 1. The *outer* process, which the user started, waits and forwards signals.
//! 2. The *first* process of a PID namespace reaps all processes in it.
//! 3. The *inner* process is the emulator; its children are the programs it starts.
//!
//! When the outer process dies, the kernel kills the first and with it everything in its PID
//! namespace, including all network namespaces and devices. A user other than root also gets a
//! user namespace in which he is root.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::OnceLock;

use rt::signals::{self, Requests, until_over};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::process::Pid;
use rustix::thread::UnshareFlags;

use crate::parent::die_with_parent;
use crate::uplink::Uplink;

/// Environment variable with the descriptor that identifies the process among the three.
const VARIABLE: &str = "SLOWLIGHT_EMU_STAGE";
/// Prefix of the name of the memory file behind the descriptor; the process's name follows.
const NAME: &str = "slowlight-emu-";
/// Exit code offset of a command killed by a signal, as in shells.
const SIGNALLED: i32 = 128;

/// Process in which [`isolate`] returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// The emulator: continue.
    Inside,
    /// The emulator has ended: exit with this code.
    Over(i32),
}

/// Reason why there can be no emulator here.
#[derive(Debug, thiserror::Error)]
pub enum IsolateError {
    /// User namespaces are forbidden.
    #[error(
        "this needs root, or a user namespace, and the system forbids that: {error}\n{}",
        remedy(.setting)
    )]
    Forbidden {
        /// Error of the system.
        error: io::Error,
        /// Setting that forbids user namespaces, if a known setting does, and the value that would
        /// allow them.
        setting: Option<(&'static str, &'static str)>,
    },
    /// Something else failed.
    #[error("{what}: {error}")]
    System {
        /// Operation that failed.
        what: &'static str,
        /// Error of the system.
        error: io::Error,
    },
}

fn remedy(setting: &Option<(&'static str, &'static str)>) -> String {
    match setting {
        Some((name, value)) => format!("allow it: sysctl -w {name}={value} (as root)"),
        None => "run it as root".to_owned(),
    }
}

fn system(what: &'static str) -> impl FnOnce(io::Error) -> IsolateError {
    move |error| IsolateError::System { what, error }
}

/// Re-executes the program with the same arguments in its own namespaces. Must be called while the
/// process has one thread, and before it opens anything.
///
/// # Errors
///
/// [`IsolateError`] names the missing permission and how to grant it.
pub fn isolate() -> Result<Isolation, IsolateError> {
    isolate_with(None)
}

/// Re-executes the program in its own namespaces, like [`isolate`], for a world with an uplink.
///
/// # Errors
///
/// See [`isolate`].
pub fn isolate_with(uplink: Option<&Uplink>) -> Result<Isolation, IsolateError> {
    match of_this_process() {
        Process::First => first().map(Isolation::Over),
        Process::Inner => {
            die_with_parent().map_err(system("binding the emulator to its first process"))?;
            Ok(Isolation::Inside)
        }
        Process::Outer => outer(uplink).map(Isolation::Over),
    }
}

/// One of the three processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Process {
    Outer,
    First,
    Inner,
}

impl Process {
    fn name(self) -> &'static str {
        match self {
            Self::Outer => "outer",
            Self::First => "first",
            Self::Inner => "inner",
        }
    }
}

/// Role of this process.
fn of_this_process() -> Process {
    static KNOWN: OnceLock<Process> = OnceLock::new();
    *KNOWN.get_or_init(|| handed_down().unwrap_or(Process::Outer))
}

/// Role passed by the parent process. The variable alone proves nothing: anyone may set it, and
/// acting on a forged one would change the machine's mounts.
#[expect(unsafe_code, reason = "a descriptor that is known by its number")]
fn handed_down() -> Option<Process> {
    let number: RawFd = std::env::var(VARIABLE).ok()?.parse().ok()?;
    let file = fs::read_link(format!("/proc/self/fd/{number}")).ok()?;
    let is = |process: &Process| {
        file.as_os_str() == format!("/memfd:{NAME}{} (deleted)", process.name()).as_str()
    };
    let process = [Process::First, Process::Inner].into_iter().find(is)?;
    // SAFETY: it is open, was made for this process, and has no other owner here. Child programs do
    // not inherit it.
    drop(unsafe { OwnedFd::from_raw_fd(number) });
    Some(process)
}

/// Whether this process was started by a user and not by [`isolate`].
#[must_use]
pub fn is_outer() -> bool {
    of_this_process() == Process::Outer
}

/// Removes the variable of [`isolate`] from a command, which may be this program again.
pub fn unmarked(command: &mut Command) -> &mut Command {
    Uplink::export(None, command);
    command.env_remove(VARIABLE)
}

#[expect(unsafe_code, reason = "namespaces, and what is done between fork and exec")]
fn outer(uplink: Option<&Uplink>) -> Result<i32, IsolateError> {
    if !rustix::process::geteuid().is_root() {
        become_root()?;
    }
    let namespaces = UnshareFlags::NEWNS | UnshareFlags::NEWPID | UnshareFlags::NEWIPC;
    // SAFETY: the descriptor table stays shared, and the process has one thread.
    let unshared = unsafe { rustix::thread::unshare_unsafe(namespaces) };
    unshared.map_err(|errno| system("making namespaces")(errno.into()))?;
    let (mut command, _which) = again(Process::First).map_err(system("finding this program"))?;
    Uplink::export(uplink, &mut command);
    // SAFETY: system calls; allocates and locks nothing.
    unsafe {
        command.pre_exec(|| {
            // Signals forwarded before this process installs a handler would be lost: the first
            // process of a namespace ignores signals without one.
            signals::hold()?;
            die_with_parent()
        });
    }
    let mut requests = Requests::of_others().map_err(system("taking signals"))?;
    let mut child = command.spawn().map_err(system("starting the first process"))?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let waited = until_over(&mut requests, pid, || child.try_wait());
    Ok(exit_code(waited.map_err(system("waiting for the first process"))?))
}

/// Makes a user namespace in which this user is root.
#[expect(unsafe_code, reason = "namespaces")]
fn become_root() -> Result<(), IsolateError> {
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    // SAFETY: the descriptor table stays shared, and the process has one thread.
    let unshared = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWUSER) };
    unshared.map_err(|errno| forbidden(errno.into()))?;
    let write = |name: &str, text: String| {
        fs::write(Path::new("/proc/self").join(name), text).map_err(forbidden)
    };
    write("setgroups", "deny".to_owned())?;
    write("uid_map", format!("0 {} 1\n", uid.as_raw()))?;
    write("gid_map", format!("0 {} 1\n", gid.as_raw()))
}

/// Settings known to forbid user namespaces, and the values that allow them.
const SETTINGS: [(&str, &str); 3] = [
    ("kernel.apparmor_restrict_unprivileged_userns", "0"),
    ("kernel.unprivileged_userns_clone", "1"),
    ("user.max_user_namespaces", "10000"),
];

fn forbidden(error: io::Error) -> IsolateError {
    let forbids = |(name, allows): &&(&str, &str)| {
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        let Ok(value) = fs::read_to_string(path) else { return false };
        match *name {
            "user.max_user_namespaces" => value.trim() == "0",
            _ => value.trim() != *allows,
        }
    };
    let setting = SETTINGS.iter().find(forbids).copied();
    IsolateError::Forbidden { error, setting }
}

fn first() -> Result<i32, IsolateError> {
    prepare_mounts().map_err(system("preparing file systems"))?;
    let (mut command, _which) = again(Process::Inner).map_err(system("finding this program"))?;
    let mut requests = Requests::of_others().map_err(system("taking signals"))?;
    signals::release().map_err(system("taking signals"))?;
    let child = command.spawn().map_err(system("starting the emulator"))?;
    let inner = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let waited = until_over(&mut requests, inner, || collect(inner));
    Ok(exit_code(waited.map_err(system("waiting for the emulator"))?))
}

/// Reaps all ended processes, including orphans.
fn collect(inner: Option<Pid>) -> io::Result<Option<ExitStatus>> {
    use rustix::process::{WaitOptions, waitpid};
    loop {
        match waitpid(None, WaitOptions::NOHANG) {
            Ok(Some((pid, status))) if Some(pid) == inner => {
                return Ok(Some(ExitStatus::from_raw(status.as_raw())));
            }
            Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
            Ok(None) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Hides mounts made here from outside, and mounts `/proc` of this PID namespace.
fn prepare_mounts() -> io::Result<()> {
    use rustix::mount::{mount, mount_change};
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "/proc", "proc", flags, None)?;
    Ok(())
}

/// Returns a command that runs this program with its arguments as another of the three processes,
/// and the descriptor that identifies that process. The descriptor must be open when the command
/// starts.
fn again(process: Process) -> io::Result<(Command, OwnedFd)> {
    // The only descriptor that the program inherits.
    let which = memfd_create(format!("{NAME}{}", process.name()), MemfdFlags::empty())?;
    // This path names the running program even if its file was replaced meanwhile.
    let mut command = Command::new("/proc/self/exe");
    let mut arguments = std::env::args_os();
    command.arg0(arguments.next().unwrap_or_else(|| OsString::from("slowlight")));
    command.args(arguments).env(VARIABLE, which.as_raw_fd().to_string());
    Ok((command, which))
}

/// Returns the exit code that a shell would report.
#[must_use]
pub fn exit_code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| SIGNALLED + signal)).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forbidden_namespaces_are_reported_with_a_remedy() {
        let message = |setting| {
            let error = io::Error::from_raw_os_error(libc::EPERM);
            IsolateError::Forbidden { error, setting }.to_string()
        };
        let remedies = [
            "kernel.apparmor_restrict_unprivileged_userns=0",
            "kernel.unprivileged_userns_clone=1",
            "user.max_user_namespaces=10000",
        ];
        for (setting, remedy) in SETTINGS.into_iter().zip(remedies) {
            let message = message(Some(setting));
            let remedy = format!("\nallow it: sysctl -w {remedy} (as root)");
            assert!(message.contains("not permitted") && message.ends_with(&remedy), "{message}");
        }
        assert!(message(None).ends_with("run it as root"));
    }
}
