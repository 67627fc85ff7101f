//! Units of systemd in the packages and in the documentation: they are the same, systemd reads
//! them, and they deny the service what it does not need. The package of Debian that has them.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::guides::blocks;

/// Units, and the pages that print them.
const UNITS: [(&str, &str); 4] = [
    ("slowlight-node.service", "../node.md"),
    ("slowlight-pep.service", "../gateway.md"),
    ("slowlight-recv.service", "send-a-file.md"),
    ("slowlight-send@.service", "send-a-file.md"),
];

/// Greatest exposure of a service, in tenths, of ten points.
const EXPOSURE: &str = "20";

/// File of the packages.
fn packaging(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "../../packaging", name].iter().collect()
}

#[test]
fn printed_units_are_those_of_the_packages() {
    for (name, page) in UNITS {
        let head = format!("# /etc/systemd/system/{name}\n");
        let units = blocks(page).into_iter().filter(|(language, _)| language == "ini");
        let printed = units.filter_map(|(_, unit)| Some(unit.strip_prefix(&head)?.to_owned()));
        let [printed] = printed.collect::<Vec<_>>().try_into().unwrap();
        // Without a package the administrator installs the program below /usr/local.
        let printed = printed.replace("/usr/local/bin/", "/usr/bin/");
        let unit = packaging("systemd").join(name);
        assert_eq!(printed, fs::read_to_string(&unit).unwrap(), "{page}, {}", unit.display());
    }
}

#[test]
fn units_are_valid_and_hardened() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        testing::skipped!("systemd-analyze is not installed");
        return;
    }
    for (name, _) in UNITS {
        let unit = fs::read_to_string(packaging("systemd").join(name)).unwrap();
        let unit = unit.replace("/usr/bin/slowlight", env!("CARGO_BIN_EXE_slowlight"));
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(name);
        fs::write(&file, unit).unwrap();
        let verify = &["verify"][..];
        let security = &["security", "--offline=yes", "--threshold", EXPOSURE][..];
        // A gateway configures the network, so it has rights that the others lack.
        let checks = match name {
            "slowlight-pep.service" => vec![verify],
            _ => vec![verify, security],
        };
        for arguments in checks {
            let output = Command::new("systemd-analyze").args(arguments).arg(&file).output();
            let output = output.unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{name}: {arguments:?}: {text}{errors}");
        }
    }
}

#[test]
fn the_package_of_debian_has_what_a_system_needs() {
    if Command::new("dpkg-deb").arg("--version").output().is_err() {
        testing::skipped!("dpkg-deb is not installed");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("slowlight.deb");
    let make = Command::new(packaging("deb"))
        .args([env!("CARGO_BIN_EXE_slowlight"), "amd64", env!("CARGO_PKG_VERSION")])
        .arg(&file)
        // The program of a test is large and not for installation.
        .env("COMPRESSION", "none")
        .output()
        .unwrap();
    assert!(make.status.success(), "{}", String::from_utf8_lossy(&make.stderr));
    let list = |option| {
        let output = Command::new("dpkg-deb").arg(option).arg(&file).output().unwrap();
        assert!(output.status.success(), "{option}");
        String::from_utf8(output.stdout).unwrap()
    };
    let contents = list("--contents");
    let units = UNITS.map(|(name, _)| format!("/usr/lib/systemd/system/{name}"));
    let others = [
        "/usr/bin/slowlight",
        "/usr/lib/sysusers.d/slowlight.conf",
        "/usr/share/bash-completion/completions/slowlight",
        "/usr/share/doc/slowlight/copyright",
        "/usr/share/man/man1/slowlight-bp-send.1.gz",
        "/usr/share/man/man1/slowlight.1.gz",
        "/usr/share/zsh/vendor-completions/_slowlight",
    ];
    for path in units.iter().map(String::as_str).chain(others) {
        let [line] = contents
            .lines()
            .filter(|line| line.ends_with(&format!(" .{path}")))
            .collect::<Vec<_>>()
            .try_into()
            .unwrap_or_else(|found| panic!("{path}: {found:?}"));
        assert!(line.contains(" root/root "), "{line}");
    }
    let fields = list("--field");
    let version = format!("Version: {}", env!("CARGO_PKG_VERSION"));
    assert!(fields.lines().any(|line| line == version), "{fields}");
    // A static program depends on no package.
    assert!(!fields.contains("Depends:"), "{fields}");
}
