//! Anonymous network namespaces: each ends with its last handle.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use rustix::thread::{LinkNameSpaceType, UnshareFlags};

/// A network namespace.
#[derive(Debug)]
pub(crate) struct Namespace {
    file: File,
}

impl Namespace {
    /// Creates a namespace with only a loopback device that is down.
    pub(crate) fn create() -> io::Result<Self> {
        let thread = std::thread::Builder::new().name("namespace".to_owned());
        // Namespaces belong to threads: this one only creates it.
        let made = thread.spawn(|| {
            unshare_network()?;
            File::open("/proc/thread-self/ns/net")
        })?;
        let file = made.join().map_err(|_| io::Error::other("making a namespace failed"))??;
        Ok(Self { file })
    }

    /// Runs a function in the namespace, in a separate thread.
    pub(crate) fn within<T: Send>(&self, run: impl FnOnce() -> T + Send) -> io::Result<T> {
        std::thread::scope(|scope| {
            let inside = scope.spawn(|| {
                enter(self.file.as_fd())?;
                Ok(run())
            });
            inside.join().map_err(|_| io::Error::other("work in a namespace failed"))?
        })
    }

    /// Returns another handle of the namespace.
    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { file: self.file.try_clone()? })
    }

    /// Moves the calling thread into the namespace.
    pub(crate) fn enter(&self) -> io::Result<()> {
        enter(self.file.as_fd())
    }

    /// Makes the command run in the namespace.
    #[expect(unsafe_code, reason = "what is done between fork and exec is for us to judge")]
    pub(crate) fn command<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        let raw = self.file.as_raw_fd();
        // SAFETY: one system call on a descriptor that lives as long as the emulator; allocates and
        // locks nothing.
        unsafe {
            command.pre_exec(move || enter(BorrowedFd::borrow_raw(raw)));
        }
        command
    }

    /// Configures its devices, addresses and routes: one line each, in the syntax of `ip`.
    pub(crate) fn ip(&self, lines: &[String]) -> io::Result<()> {
        ip(self.command(&mut Command::new("ip")), lines)
    }

    /// Sets one of its kernel parameters, for example `net.ipv4.ip_forward`.
    pub(crate) fn sysctl(&self, name: &str, value: &str) -> io::Result<()> {
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        let written = self.within(|| std::fs::write(&path, value))?;
        written.map_err(|error| io::Error::new(error.kind(), format!("{name}={value}: {error}")))
    }
}

/// Runs `ip` with a line for each operation.
pub(crate) fn ip(command: &mut Command, lines: &[String]) -> io::Result<()> {
    command.args(["-batch", "-"]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| {
        let remedy = "the emulator needs iproute2's `ip`";
        io::Error::new(error.kind(), format!("ip: {error}; {remedy}"))
    })?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(lines.join("\n").as_bytes())?;
    }
    let output = child.wait_with_output()?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("ip: {}", message.trim().replace('\n', "; "))))
}

#[expect(unsafe_code, reason = "namespaces of a thread")]
fn unshare_network() -> io::Result<()> {
    // SAFETY: unsharing is only unsound for the descriptor table; this thread does not rely on its
    // network namespace.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?;
    Ok(())
}

impl AsRawFd for Namespace {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

fn enter(namespace: BorrowedFd<'_>) -> io::Result<()> {
    rustix::thread::move_into_link_name_space(namespace, Some(LinkNameSpaceType::Network))?;
    Ok(())
}
