//! Timers of a driver of streams.

use engine::PathId;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// The linger time of a closed stream has expired.
    Left(PathId),
    /// The pause of a listener has expired.
    Rested(u32),
    /// The resolver has not replied in time.
    Lookup(PathId),
}

impl Timer {
    /// Names of the timers.
    pub(super) const LEFT: &str = "a stream that was left";
    pub(super) const RESTS: &str = "no descriptor was left";
    pub(super) const LOOKUP: &str = "a host name is being resolved";
}
