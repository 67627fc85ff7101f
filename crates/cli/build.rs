//! Sets `SLOWLIGHT_VERSION`: the version of the package and, in a checkout, its commit.
//!
//! The Python module has the same build script. No other crate depends on the commit, so that a
//! commit rebuilds these two only.

use std::path::Path;
use std::process::Command;

fn main() {
    let version = env!("CARGO_PKG_VERSION");
    let version = match commit() {
        Some(commit) => format!("{version} ({commit})"),
        None => version.to_owned(),
    };
    println!("cargo::rustc-env=SLOWLIGHT_VERSION={version}");
    // The file has another path in the package of the Python module.
    watch(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/build.rs"));
}

/// Abbreviated hash and day of the commit, as `abcdef123 2026-11-28`; `-dirty` behind the hash if
/// sources differ from it. `None` without git, or if the source is no checkout.
fn commit() -> Option<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().ok()?;
    // Sources from an archive may be in a folder of another repository.
    if Path::new(&git(&root, &["rev-parse", "--show-toplevel"])?).canonicalize().ok()? != root {
        return None;
    }
    // Git appends to the second file with each commit.
    for file in ["HEAD", "logs/HEAD"] {
        watch(&root.join(git(&root, &["rev-parse", "--git-path", file])?));
    }
    let common = ["Cargo.toml", "Cargo.lock", "adapters", "scenarios", "studies"];
    for path in common {
        watch(&root.join(path));
    }
    for folder in std::fs::read_dir(root.join("crates")).ok()?.flatten() {
        watch(&folder.path().join("src"));
        watch(&folder.path().join("Cargo.toml"));
    }
    let crates = [":(glob)crates/*/src/**", ":(glob)crates/*/Cargo.toml"];
    let head = git(&root, &["log", "-1", "--abbrev=9", "--format=%h %cs"])?;
    let (hash, day) = head.split_once(' ')?;
    let state =
        [&["status", "--porcelain", "--untracked-files=no", "--"][..], &common, &crates].concat();
    let dirty = if git(&root, &state)?.is_empty() { "" } else { "-dirty" };
    Some(format!("{hash}{dirty} {day}"))
}

/// Runs this script again when a file or folder changes.
fn watch(path: &Path) {
    // A path that does not exist would run it with each build.
    if path.exists() {
        println!("cargo::rerun-if-changed={}", path.display());
    }
}

/// Standard output of git in this folder, if git succeeds.
fn git(folder: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .arg("-C")
        .arg(folder)
        .args(arguments)
        // Reads only: another git may hold the lock of the index.
        .env("GIT_OPTIONAL_LOCKS", "0")
        .stdin(std::process::Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
