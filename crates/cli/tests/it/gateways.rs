//! Requirements of tests of gateways.

use std::process::Command;

/// Servers and clients: `python3 programs.py NAME ...`.
pub(crate) const PROGRAMS: &str = include_str!("pep/programs.py");

/// Whether worlds with gateways are possible here; prints the reason if not.
pub(crate) fn possible() -> bool {
    if !crate::world::possible(true) {
        return false;
    }
    for (program, argument) in [("python3", "--version"), ("nft", "--version"), ("ip", "-V")] {
        if !Command::new(program).arg(argument).output().is_ok_and(|run| run.status.success()) {
            testing::skipped!("there is no {program}");
            return false;
        }
    }
    true
}
