//! Processes of a test that run to their end, within a limit.

use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use super::guard::guarded_for;

/// Time limit of a process: many times the slowest one on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// Runs a command to its end. Panics with its output so far if it takes longer than [`LIMIT`].
pub(crate) fn output(command: &mut Command) -> Output {
    output_within(LIMIT, command)
}

fn output_within(limit: Duration, command: &mut Command) -> Output {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let start = Instant::now();
    let guarded = guarded_for(limit, command);
    let output = guarded.child.wait_with_output().expect("its pipes can be read");
    assert!(
        start.elapsed() < limit,
        "{command:?} had not ended after {limit:?}:\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

#[test]
#[should_panic(expected = "had not ended after 200ms:\nready")]
fn commands_over_the_time_limit_are_killed_and_printed() {
    let script = "echo ready; sleep 600 & wait";
    output_within(Duration::from_millis(200), Command::new("sh").args(["-c", script]));
}
