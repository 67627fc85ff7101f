//! Folder of what is kept between runs.

use std::path::PathBuf;

use anyhow::{Result, anyhow};

/// The directory of the user for state of this program.
pub(crate) fn state_home() -> Result<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = || set("HOME").map(|home| home.join(".local/state"));
    set("XDG_STATE_HOME")
        .or_else(home)
        .map(|base| base.join("slowlight"))
        .ok_or_else(|| anyhow!("there is no home directory for the state; give one with --state"))
}
