//! Congestion controls by name.

use super::{Algorithm, Bic, Counting, Cubic, Vegas};
use crate::settings::form::Words;

/// Congestion control with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// Jacobson's of 1988.
    Tahoe,
    /// Jacobson's of 1990: the first new acknowledgment ends a recovery (RFC 2001).
    Reno,
    /// RFC 5681 with RFC 6582: what Linux calls reno.
    Newreno,
    /// Vegas, as Linux has it.
    Vegas,
    /// Vegas, as its authors had it.
    VegasPaper,
    /// Vegas, as the SCPS reference implementation has it.
    VegasScps,
    /// BIC.
    Bic,
    /// CUBIC, as Linux has it.
    Cubic,
    /// CUBIC, as RFC 9438 has it.
    CubicRfc9438,
    /// BBR, version 1.
    Bbr,
    /// None: what the peer's window takes.
    None,
}

impl Named {
    /// All, in the order in which they are listed.
    pub const ALL: &[Self] = &[
        Self::Tahoe,
        Self::Reno,
        Self::Newreno,
        Self::Vegas,
        Self::VegasPaper,
        Self::VegasScps,
        Self::Bic,
        Self::Cubic,
        Self::CubicRfc9438,
        Self::Bbr,
        Self::None,
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Tahoe => "tahoe",
            Self::Reno => "reno",
            Self::Newreno => "newreno",
            Self::Vegas => "vegas",
            Self::VegasPaper => "vegas-paper",
            Self::VegasScps => "vegas-scps",
            Self::Bic => "bic",
            Self::Cubic => "cubic",
            Self::CubicRfc9438 => "cubic-rfc9438",
            Self::Bbr => "bbr",
            Self::None => "none",
        }
    }

    /// Summary in a few words.
    #[must_use]
    pub fn summary(self) -> &'static str {
        match self {
            Self::Tahoe => "Slow start again after each loss (1988)",
            Self::Reno => "Fast recovery that the first new acknowledgment ends (1990)",
            Self::Newreno => "Fast recovery for a window (RFC 6582); Linux calls it reno",
            Self::Vegas => "By the round trip, as Linux has it",
            Self::VegasPaper => "The same by the paper's parameters",
            Self::VegasScps => "The same as SCPS's reference implementation has it",
            Self::Bic => "As Linux 2.6.18 had it",
            Self::Cubic => "As Linux has it",
            Self::CubicRfc9438 => "By RFC 9438, with HyStart++",
            Self::Bbr => "Version 1, as Linux has it",
            Self::None => "Whatever the peer's window takes",
        }
    }

    /// The control of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|congestion| congestion.name() == name)
    }

    /// Algorithm of TCP.
    #[must_use]
    pub fn algorithm(self) -> Algorithm {
        // Linux counts all that an acknowledgment covers, RFC 5681 no more than two segments.
        let counting = Counting::Bytes { limit: u64::MAX };
        match self {
            Self::Tahoe => Algorithm::Tahoe(counting),
            Self::Reno => Algorithm::Reno(counting),
            Self::Newreno => Algorithm::NewReno(counting),
            Self::Vegas => Algorithm::Vegas(Vegas::LINUX),
            Self::VegasPaper => Algorithm::Vegas(Vegas::PAPER),
            Self::VegasScps => Algorithm::Vegas(Vegas::SCPS),
            Self::Bic => Algorithm::Bic(Bic::default()),
            Self::Cubic => Algorithm::Cubic(Cubic::LINUX),
            Self::CubicRfc9438 => Algorithm::Cubic(Cubic::RFC9438),
            Self::Bbr => Algorithm::Bbr,
            Self::None => Algorithm::None { window: None },
        }
    }
}

/// Controls with parameters of their own have no name.
impl Words for Algorithm {
    fn words() -> Vec<(&'static str, Self)> {
        Named::ALL.iter().map(|control| (control.name(), control.algorithm())).collect()
    }
}
