//! Named congestion controls.

use session::settings::form::Words;

use super::{Algorithm, Bic, Counting, Cubic, Vegas};

/// Named congestion control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// Jacobson's of 1988.
    Tahoe,
    /// Jacobson's algorithm of 1990: the first new acknowledgment ends a recovery (RFC 2001).
    Reno,
    /// RFC 5681 with RFC 6582: Linux's reno.
    Newreno,
    /// Vegas, as in Linux.
    Vegas,
    /// Vegas, by its authors.
    VegasPaper,
    /// Vegas, as in the SCPS reference implementation.
    VegasScps,
    /// BIC.
    Bic,
    /// CUBIC, as in Linux.
    Cubic,
    /// CUBIC, by RFC 9438.
    CubicRfc9438,
    /// BBR, version 1.
    Bbr,
    /// No congestion control: limited by the peer's window.
    None,
}

impl Named {
    /// All, in listing order.
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

    /// Name.
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
            Self::Tahoe => "Tahoe: slow start after each loss (1988)",
            Self::Reno => "Reno: fast recovery ends with the first new acknowledgment (1990)",
            Self::Newreno => {
                "NewReno: fast recovery of all losses of a window (RFC 6582); `reno` in Linux"
            }
            Self::Vegas => "Vegas as in Linux: the window follows the round-trip time",
            Self::VegasPaper => "Vegas as in its authors' paper (1995)",
            Self::VegasScps => "Vegas as in the SCPS reference implementation",
            Self::Bic => "BIC as in Linux 2.6.18",
            Self::Cubic => "CUBIC as in Linux",
            Self::CubicRfc9438 => "CUBIC by RFC 9438, with HyStart++",
            Self::Bbr => "BBR version 1 as in Linux",
            Self::None => "No congestion control: only the peer's window limits",
        }
    }

    /// Congestion control of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|congestion| congestion.name() == name)
    }

    /// Algorithm of TCP.
    #[must_use]
    pub fn algorithm(self) -> Algorithm {
        // Linux counts all acknowledged bytes, RFC 5681 at most two segments.
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

/// Controls with custom parameters have no name.
impl Words for Algorithm {
    fn words() -> Vec<(&'static str, Self)> {
        Named::ALL.iter().map(|control| (control.name(), control.algorithm())).collect()
    }
}
