//! Processes that end with the one that started them.

use std::io;

use rustix::process::Signal;

/// Has the kernel kill this process when the one that started it dies.
pub(crate) fn die_with_parent() -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    Ok(())
}
