//! Whether worlds are possible on this machine.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::process::Command;

/// Namespaces of a world.
const NAMESPACES: [&str; 6] = ["--fork", "--pid", "--mount", "--net", "--ipc", "true"];

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Whether the machine meets the needs of a world, and this user the needs of the test; prints
/// what is missing. The check does not ask the program itself, which must work if nothing is
/// missing.
pub(crate) fn possible(as_root: bool) -> bool {
    let missing = missing(as_root);
    if let Some(missing) = &missing {
        testing::skipped!("{missing}");
    }
    missing.is_none()
}

fn missing(as_root: bool) -> Option<String> {
    let is_root = fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    if as_root && !is_root {
        return Some("this needs root".to_owned());
    }
    if let Err(error) = fs::File::options().read(true).write(true).open("/dev/net/tun") {
        return Some(format!("/dev/net/tun: {error}"));
    }
    let user: &[&str] = if is_root { &[] } else { &["--user", "--map-root-user"] };
    match Command::new("unshare").args(user).args(NAMESPACES).output() {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(format!("no namespaces here: {}", text(&output.stderr).trim())),
        Err(error) => Some(format!("unshare: {error}")),
    }
}
