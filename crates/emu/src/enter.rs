//! Running further programs in a running world.

use std::env;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitStatus};

use rt::signals::{Requests, carry_out};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::parent::die_with_parent;

/// Reason why a command did not run in a world.
#[derive(Debug, thiserror::Error)]
pub enum EnterError {
    /// The world belongs to another user, or has ended.
    #[error("entering the world: {0}")]
    World(io::Error),
    /// The command cannot be started.
    #[error("{0}")]
    Program(io::Error),
}

/// Runs a command in a running world and waits for it. `pid` is the emulator's process, whose
/// namespaces are entered; `network` is its descriptor of the host's network namespace. Forwards
/// termination signals. The command ends with the world, or when this process is killed.
///
/// Must be called while the process has one thread, which stays in those namespaces.
///
/// # Errors
///
/// [`EnterError`] distinguishes failures of the world from failures of the command.
#[expect(unsafe_code, reason = "what is done between fork and exec is for us to judge")]
pub fn run_inside(pid: i32, network: i32, command: &mut Command) -> Result<ExitStatus, EnterError> {
    enter(pid, network).map_err(EnterError::World)?;
    // SAFETY: one system call; allocates and locks nothing.
    unsafe {
        command.pre_exec(die_with_parent);
    }
    let ran = Requests::of_others().and_then(|mut requests| carry_out(command, &mut requests));
    ran.map_err(EnterError::Program)
}

fn enter(pid: i32, network: i32) -> io::Result<()> {
    let process = Path::new("/proc").join(pid.to_string());
    let open = |name: &str| File::open(process.join(name));
    // Opens all of them before entering the first: afterwards /proc belongs to the world.
    let user = open("ns/user")?;
    let others = [
        (LinkNameSpaceType::InterProcessCommunication, open("ns/ipc")?),
        (LinkNameSpaceType::ProcessID, open("ns/pid")?),
        (LinkNameSpaceType::Network, open(&format!("fd/{network}"))?),
        (LinkNameSpaceType::Mount, open("ns/mnt")?),
    ];
    let folder = env::current_dir();
    // A process in a user namespace cannot enter it again.
    if identity(&user.metadata()?) != identity(&fs::metadata("/proc/self/ns/user")?) {
        move_into_link_name_space(user.as_fd(), Some(LinkNameSpaceType::User))?;
    }
    for (kind, namespace) in &others {
        move_into_link_name_space(namespace.as_fd(), Some(*kind))?;
    }
    // The mounts have changed, so the working directory is reset to their root.
    if folder.and_then(env::set_current_dir).is_err() {
        env::set_current_dir("/")?;
    }
    Ok(())
}

fn identity(namespace: &fs::Metadata) -> (u64, u64) {
    (namespace.dev(), namespace.ino())
}
