//! Namespaces around the emulator itself: whatever happens to it, nothing of it is left.
//!
//! [`isolate`] starts the program again inside, and again inside of that:
//!
//! 1. the *outer* process, which the user started, waits and hands signals on;
//! 2. the *first* process of a process namespace waits for whatever ends in there;
//! 3. the *inner* process is the emulator, and what it starts are its children.
//!
//! When the outer process dies the kernel kills the first, and with it everything in its process
//! namespace, and with that go all network namespaces and devices. Who is not root gets a user
//! namespace, too, in which he is.

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

/// The variable in which a process finds the descriptor that says which one it is.
const VARIABLE: &str = "SLOWLIGHT_EMU_STAGE";
/// The descriptor is that of a file in memory, which has this name and that of the process.
const NAME: &str = "slowlight-emu-";
/// What a command reports that was ended by signal 9, as shells do.
const SIGNALLED: i32 = 128;

/// Process in which [`isolate`] returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// The emulator: go on.
    Inside,
    /// Everything is over: exit with this code.
    Over(i32),
}

/// Why there can be no emulator here.
#[derive(Debug, thiserror::Error)]
pub enum IsolateError {
    /// A user namespace is forbidden.
    #[error(
        "this needs root, or a user namespace, and the system forbids that: {error}\n{}",
        remedy(.setting)
    )]
    Forbidden {
        /// What the system said.
        error: io::Error,
        /// The setting that forbids it, as far as one is known to, and the value that would not.
        setting: Option<(&'static str, &'static str)>,
    },
    /// Something else failed.
    #[error("{what}: {error}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
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

/// Goes on in namespaces of its own. To be called while the process has one thread, before anything
/// is opened that matters: the program runs anew inside, with the same arguments.
///
/// # Errors
/// [`IsolateError`] says what is forbidden, and how it is allowed.
pub fn isolate() -> Result<Isolation, IsolateError> {
    isolate_with(None)
}

/// Continues in namespaces of its own, as [`isolate`], for a world with an uplink.
///
/// # Errors
/// As [`isolate`].
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

/// One of the three.
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

/// Which of the three this is.
fn of_this_process() -> Process {
    static KNOWN: OnceLock<Process> = OnceLock::new();
    *KNOWN.get_or_init(|| handed_down().unwrap_or(Process::Outer))
}

/// What the process before this one handed down. A variable alone says nothing: it may come from
/// anywhere, and who believed it would change the mounts of the whole machine.
#[expect(unsafe_code, reason = "a descriptor that is known by its number")]
fn handed_down() -> Option<Process> {
    let number: RawFd = std::env::var(VARIABLE).ok()?.parse().ok()?;
    let file = fs::read_link(format!("/proc/self/fd/{number}")).ok()?;
    let is = |process: &Process| {
        file.as_os_str() == format!("/memfd:{NAME}{} (deleted)", process.name()).as_str()
    };
    let process = [Process::First, Process::Inner].into_iter().find(is)?;
    // SAFETY: it is open, was made for this process, and has no other owner here. Programs that this
    // one starts do not inherit it.
    drop(unsafe { OwnedFd::from_raw_fd(number) });
    Some(process)
}

/// Whether this process was started by a user, and not by [`isolate`].
#[must_use]
pub fn is_outer() -> bool {
    of_this_process() == Process::Outer
}

/// Takes the mark of [`isolate`] away from a command, which may be this program again.
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
    // SAFETY: system calls; nothing is allocated or locked.
    unsafe {
        command.pre_exec(|| {
            // What is handed on before it listens would be lost: the first process of a namespace
            // ignores what it does not listen for.
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

/// The settings that are known to forbid user namespaces, and what allows them.
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

/// Waits for all that has ended. What was left behind by programs that ended is forgotten.
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

/// Nothing that is mounted in here is seen outside; processes are those of in here.
fn prepare_mounts() -> io::Result<()> {
    use rustix::mount::{mount, mount_change};
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "/proc", "proc", flags, None)?;
    Ok(())
}

/// This program, with its arguments, as another of the three; and what tells it so, which has to be
/// open when it starts.
fn again(process: Process) -> io::Result<(Command, OwnedFd)> {
    // It is the one descriptor that the program shall inherit.
    let which = memfd_create(format!("{NAME}{}", process.name()), MemfdFlags::empty())?;
    // Where the program's file was replaced meanwhile, this is still the one that runs.
    let mut command = Command::new("/proc/self/exe");
    let mut arguments = std::env::args_os();
    command.arg0(arguments.next().unwrap_or_else(|| OsString::from("slowlight")));
    command.args(arguments).env(VARIABLE, which.as_raw_fd().to_string());
    Ok((command, which))
}

/// The exit code that a shell would report.
#[must_use]
pub fn exit_code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| SIGNALLED + signal)).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_forbidden_says_how_it_is_allowed() {
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
