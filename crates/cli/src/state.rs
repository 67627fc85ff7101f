//! Folder of what is kept between runs.

#[cfg(feature = "sockets")]
use std::path::Path;
use std::path::PathBuf;

use anyhow::{Result, anyhow};

/// Folder with the reports of running senders and receivers: below --state, the folder that
/// systemd gives a service, or the user's state folder.
#[cfg(feature = "sockets")]
pub(crate) fn reports(state: Option<&Path>) -> Option<PathBuf> {
    let service = std::env::var_os("RUNTIME_DIRECTORY").map(PathBuf::from);
    let base = service.or(state.map(Path::to_owned)).or_else(|| state_home().ok())?;
    Some(base.join("running"))
}

/// The directory of the user for state of this program.
pub(crate) fn state_home() -> Result<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = || set("HOME").map(|home| home.join(".local/state"));
    set("XDG_STATE_HOME")
        .or_else(home)
        .map(|base| base.join("slowlight"))
        .ok_or_else(|| anyhow!("there is no home directory for the state; give one with --state"))
}
