//! Units of systemd that the documentation prints: systemd reads them, and they shut the service
//! off from what it does not need.

use std::fs;
use std::process::Command;

use crate::guides::blocks;

/// Greatest exposure of a service, in tenths, of ten points.
const EXPOSURE: &str = "20";

#[test]
fn printed_units_are_valid_and_hardened() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        testing::skipped!("systemd-analyze is not installed");
        return;
    }
    for (page, service) in
        [("send-a-file.md", "slowlight-recv.service"), ("../node.md", "slowlight-node.service")]
    {
        let units = blocks(page).into_iter().filter(|(name, _)| name == "ini");
        let [(_, unit)] = units.collect::<Vec<_>>().try_into().unwrap();
        let unit = unit.replace("/usr/local/bin/slowlight", env!("CARGO_BIN_EXE_slowlight"));
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(service);
        fs::write(&file, unit).unwrap();
        for arguments in
            [&["verify"][..], &["security", "--offline=yes", "--threshold", EXPOSURE][..]]
        {
            let output = Command::new("systemd-analyze").args(arguments).arg(&file).output();
            let output = output.unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{page}: {arguments:?}: {text}{errors}");
        }
    }
}
