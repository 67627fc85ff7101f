//! Tests in a network namespace of their own, which ends with their process.

use std::process::Command;

/// Environment variable set in the namespace.
const INSIDE: &str = "SLOWLIGHT_TEST_NAMESPACE";

/// Runs the test `name` again in a new network namespace, for at most `seconds`, after the shell
/// commands `setup`; returns `true` in that run. `name` has the modules of the test.
pub fn is_inside(name: &str, setup: &str, seconds: u32) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let unshare = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--net", "--map-root-user", "timeout", &seconds.to_string()]);
        command.args(["sh", "-c", script, "sh"]);
        command.arg(std::env::current_exe().expect("a test has a program")).arg(name);
        command
    };
    if !unshare(setup).output().is_ok_and(|output| output.status.success()) {
        crate::skipped!("no network namespace can be made here");
        return false;
    }
    let run = format!("{setup} && exec \"$1\" --exact \"$2\" --nocapture");
    let status = unshare(&run).env(INSIDE, "1").status().expect("it was just run");
    assert!(status.success());
    false
}
