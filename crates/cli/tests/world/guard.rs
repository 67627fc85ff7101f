//! Processes that never outlive the test that started them.

use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

/// Maximum duration of a test process.
const LIMIT: Duration = Duration::from_secs(240);

/// Child in its own process group, which is killed when this value is dropped: also in a panic,
/// and when the child exceeds its time limit.
#[derive(Debug)]
pub(crate) struct Guarded {
    pub(crate) child: Child,
    _group: Group,
}

/// Starts a command whose processes end with the test.
pub(crate) fn guarded(command: &mut Command) -> Guarded {
    guarded_for(LIMIT, command)
}

/// Starts a command whose processes end with the test, and after `limit` at the latest.
pub(crate) fn guarded_for(limit: Duration, command: &mut Command) -> Guarded {
    let child = command.process_group(0).spawn();
    let child = child.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let _group = Group::of(child.id(), limit);
    Guarded { child, _group }
}

#[derive(Debug)]
struct Group {
    id: u32,
    /// Closed with the group, which ends its watchdog.
    _is_alive: Sender<()>,
}

impl Group {
    fn of(id: u32, limit: Duration) -> Self {
        let (is_alive, watched) = channel();
        thread::spawn(move || {
            if watched.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                kill(id);
            }
        });
        Self { id, _is_alive: is_alive }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        kill(self.id);
    }
}

/// Kills a process group, which may have ended.
fn kill(group: u32) {
    let mut command = Command::new("kill");
    command.args(["-KILL", "--", &format!("-{group}")]).stdout(Stdio::null());
    let _ = command.stderr(Stdio::null()).status();
}
