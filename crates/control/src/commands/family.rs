//! PID namespace of a program of the interface, so that all its children end with it.

use std::env;
use std::fs;
use std::io::{self, PipeReader};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Script of the namespace's first process. It writes the program's exit code to its input
/// descriptor, closes the program's output, and stays as long as other processes, which it reaps.
/// Messages of the shell about killed programs are not part of the program's output.
const FIRST: &str = r#"
exec 3>&2 2>/dev/null
(exec env -- "$@" </dev/null 2>&3 3>&-)
echo $? >&0
exec >/dev/null 3>&-
trap '' CHLD
kill -s 0 -- -1 && exec sleep infinity
"#;

/// Returns a command that runs a program in its own namespace, where killing it kills all
/// children, and the pipe with its exit code.
pub(super) fn in_own_namespace(argv: &[String]) -> io::Result<(Command, PipeReader)> {
    let (code, status) = io::pipe()?;
    let mut command = Command::new("unshare");
    // `/proc` shows the processes of the namespace with their PIDs there.
    command.args(["--fork", "--pid", "--kill-child=KILL", "--mount-proc", "--", "/bin/sh", "-c"]);
    command.args([FIRST, "sh"]).args(argv).stdin(status).process_group(0);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    Ok((command, code))
}

/// Whether a program exists.
pub(super) fn exists(program: &str) -> bool {
    let runs = |path: &Path| {
        fs::metadata(path).is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
    };
    if program.contains('/') {
        return runs(Path::new(program));
    }
    let folders = env::var_os("PATH").unwrap_or_default();
    !program.is_empty() && env::split_paths(&folders).any(|folder| runs(&folder.join(program)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_executable_files() {
        assert!(exists("sh") && exists("/bin/sh"));
        for none in ["", "/", "/bin", "none-such", "/etc/passwd", "cd"] {
            assert!(!exists(none), "{none}");
        }
    }
}
