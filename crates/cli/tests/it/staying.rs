//! World in the background for the programs of a test.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::world::text;

const SLOWLIGHT: &str = env!("CARGO_BIN_EXE_slowlight");

/// Number of worlds so far.
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// World of a built-in scenario, or of a file; it ends with the test.
pub(crate) struct World {
    name: String,
}

impl World {
    /// Starts the world of a scenario, or of a file given by its absolute path without `.toml`.
    pub(crate) fn up(scenario: &str) -> Self {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let stem = Path::new(scenario).file_stem().expect("a name").display();
        let name = format!("test-{stem}-{number}-{}", std::process::id());
        let scenarios = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
        let mut command = Command::new(SLOWLIGHT);
        command
            .args(["emu", "up", "--name", &name])
            .arg(scenarios.join(scenario.to_owned() + ".toml"));
        let output = command.stdin(Stdio::null()).output().expect("slowlight can be run");
        let world = Self { name };
        assert!(output.status.success(), "{}", text(&output.stderr));
        world
    }

    pub(crate) fn command(&self, command: &str, rest: &[&str]) -> Command {
        let mut run = Command::new(SLOWLIGHT);
        run.args(["emu", command, "--name", &self.name]).args(rest).stdin(Stdio::null());
        run
    }

    /// Starts a program on a host.
    pub(crate) fn start(&self, host: &str, program: &[&str]) -> Child {
        let mut command = self.command("exec", &[&[host, "--"], program].concat());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("slowlight can be run")
    }

    /// Runs a program that may fail; returns its output.
    pub(crate) fn reply(&self, host: &str, program: &[&str]) -> String {
        let output = self.start(host, program).wait_with_output().expect("it ends");
        text(&output.stdout) + &text(&output.stderr)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.command("down", &[]).output();
    }
}
