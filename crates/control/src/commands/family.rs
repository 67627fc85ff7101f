//! What a program of the interface has started, wherever it went: it is in a process namespace with
//! the program, and ends with that.

use std::env;
use std::fs;
use std::io::{self, PipeReader};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// The first process of the namespace. It writes the program's exit code to where it reads from, lets
/// go of the program's output, and stays as long as something else does, of which it takes notice
/// when it ends. What shells say of programs that were killed is not the program's.
const FIRST: &str = r#"
exec 3>&2 2>/dev/null
(exec env -- "$@" </dev/null 2>&3 3>&-)
echo $? >&0
exec >/dev/null 3>&-
trap '' CHLD
kill -s 0 -- -1 && exec sleep infinity
"#;

/// A command that runs a program in a namespace of its own: whoever kills it kills the program and
/// all that this has started. Its exit code can be read from what comes with it, if nobody does.
pub(super) fn of(argv: &[String]) -> io::Result<(Command, PipeReader)> {
    let (code, status) = io::pipe()?;
    let mut command = Command::new("unshare");
    // Who asks for processes gets those of the namespace, by the numbers that they have there.
    command.args(["--fork", "--pid", "--kill-child=KILL", "--mount-proc", "--", "/bin/sh", "-c"]);
    command.args([FIRST, "sh"]).args(argv).stdin(status).process_group(0);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    Ok((command, code))
}

/// Whether there is such a program.
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
    fn a_program_is_a_file_that_may_be_run() {
        assert!(exists("sh") && exists("/bin/sh"));
        for none in ["", "/", "/bin", "none-such", "/etc/passwd", "cd"] {
            assert!(!exists(none), "{none}");
        }
    }
}
