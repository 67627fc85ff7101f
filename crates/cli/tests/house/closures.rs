//! Dependencies that a program or a library must not add.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use crate::dependency_directions::root;
use crate::modules::{code, rust_files};

/// Crates that need an operating system, or that only the laboratory needs.
const OF_MACHINES: [&str; 12] = [
    "libc",
    "parquet",
    "rayon",
    "rustix",
    "slowlight-control",
    "slowlight-emu",
    "slowlight-rt",
    "slowlight-service",
    "slowlight-testbed",
    "socket2",
    "tempfile",
    "tokio",
];
const OF_THE_LABORATORY: [&str; 7] = [
    "parquet",
    "rayon",
    "slowlight-control",
    "slowlight-emu",
    "slowlight-lab",
    "slowlight-sim",
    "slowlight-testbed",
];
/// Crates of sockets, databases and tables, which simulations and comparisons do not need.
const OF_TRANSPORTS: [&str; 14] = [
    "axum",
    "hyper",
    "libsqlite3-sys",
    "parquet",
    "ring",
    "rusqlite",
    "rustls",
    "slowlight-control",
    "slowlight-emu",
    "slowlight-rt",
    "slowlight-service",
    "slowlight-testbed",
    "tokio",
    "utoipa",
];
/// Names of the standard library that need files, processes, threads, clocks or sockets.
const NEEDS_A_MACHINE: [&str; 13] = [
    "std::fs",
    "std::process",
    "std::thread",
    "std::env",
    "Instant",
    "SystemTime",
    "TcpListener",
    "TcpStream",
    "UdpSocket",
    "UnixStream",
    "read_dir(",
    "rayon::",
    "rt::",
];

/// Names of the packages that a package links.
fn linked(arguments: &[&str]) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--edges", "normal", "--prefix", "none", "--format", "{p}"])
        .args(arguments)
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

fn assert_without(linked: &BTreeSet<String>, excluded: &[&str]) {
    let found: Vec<_> = excluded.iter().filter(|name| linked.contains(**name)).collect();
    assert!(found.is_empty(), "{found:?} are linked");
}

#[test]
fn transport_programs_do_not_link_the_lab() {
    let linked = linked(&["--package", "slowlight", "--no-default-features", "-F", "sockets"]);
    assert!(linked.contains("slowlight-service"), "{linked:?}");
    assert_without(&linked, &OF_THE_LABORATORY);
}

#[test]
fn compute_programs_do_not_link_transport() {
    let linked = linked(&["--package", "slowlight", "--no-default-features", "-F", "compute"]);
    assert!(linked.contains("slowlight-lab"), "{linked:?}");
    assert_without(&linked, &OF_TRANSPORTS);
}

#[test]
fn services_do_not_link_the_lab() {
    assert_without(&linked(&["--package", "slowlight-service"]), &OF_THE_LABORATORY);
}

#[test]
fn lab_links_no_system_crates() {
    let linked = linked(&["--package", "slowlight-lab", "--target", "wasm32-unknown-unknown"]);
    assert!(linked.contains("slowlight-sim"), "{linked:?}");
    assert_without(&linked, &OF_MACHINES);
}

#[test]
fn lab_uses_no_system_names() {
    let source = root().join("crates/lab/src");
    for path in rust_files(&source) {
        // Threads where there are any.
        if path.ends_with("parallel.rs") || path.ends_with("tests.rs") {
            continue;
        }
        let code = code(&fs::read_to_string(&path).unwrap());
        for name in NEEDS_A_MACHINE {
            let is_named = code.match_indices(name).any(|(at, _)| {
                let before = code[..at].chars().next_back();
                before.is_none_or(|c| !c.is_alphanumeric() && c != '_')
            });
            assert!(!is_named, "{} names {name}", path.display());
        }
    }
}
