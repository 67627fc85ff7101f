//! Processes that end with their parent.

use std::io;

use rustix::process::Signal;

/// Makes the kernel kill this process when its parent dies.
pub(crate) fn die_with_parent() -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    Ok(())
}
