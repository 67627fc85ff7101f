//! Settings of historic implementations.

use std::time::Duration;

use super::cc::{Algorithm, Bic, Counting, Cubic, IdleRule, Vegas};
use super::config::{AckPolicy, Buffer, InitialWindow, LossRecovery, Options, Timeouts};
use super::scps::{LossCause, RateControl, Scps};

/// Named settings of a connection: kernels with their defaults on a machine with ample memory, and
/// the SCPS-TP reference implementation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Profile {
    /// Linux 2.2 (1999): Reno, buffers of 64 KiB.
    Linux22,
    /// Linux 2.4.18 (2002): Reno, rate halving, buffers up to 128 and 170 KiB.
    Linux2418,
    /// Linux 2.6.18 (2006): BIC, buffers up to 4 MiB.
    Linux2618,
    /// Linux 2.6.32 (2009): CUBIC with HyStart, buffers up to 4 MiB.
    Linux2632,
    /// Linux 6 (2023): CUBIC, proportional rate reduction, RACK, an initial window of ten segments.
    Modern,
    /// SCPS-TP with the reference implementation's defaults: Vegas, SNACK, and the rate of the
    /// route.
    Scps,
    /// SCPS-TP with Van Jacobson's congestion control, without a rate.
    ScpsVj,
    /// SCPS-TP with Vegas, without a rate.
    ScpsVegas,
    /// SCPS-TP without congestion control: losses are corruption, and only the rate limits it.
    ScpsRate,
}

impl Profile {
    /// All: kernels, oldest first, then SCPS-TP.
    pub const ALL: [Self; 9] = [
        Self::Linux22,
        Self::Linux2418,
        Self::Linux2618,
        Self::Linux2632,
        Self::Modern,
        Self::Scps,
        Self::ScpsVj,
        Self::ScpsVegas,
        Self::ScpsRate,
    ];

    /// Name in files and on command lines.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Linux22 => "linux-2.2",
            Self::Linux2418 => "linux-2.4.18",
            Self::Linux2618 => "linux-2.6.18",
            Self::Linux2632 => "linux-2.6.32",
            Self::Modern => "modern",
            Self::Scps => "scps",
            Self::ScpsVj => "scps-vj",
            Self::ScpsVegas => "scps-vegas",
            Self::ScpsRate => "scps-rate",
        }
    }

    /// Profile of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|profile| profile.name() == name)
    }

    /// Settings of a connection.
    #[must_use]
    pub fn options(self) -> Options {
        // Before 2.6.39: an initial window of three segments, and an initial timeout of three
        // seconds.
        let old = Options {
            initial_window: InitialWindow::Rfc3390,
            timeouts: Timeouts { initial: Duration::from_secs(3), ..Options::default().timeouts },
            syn_retries: 5,
            recovery: LossRecovery::RateHalving,
            rack: false,
            tail_loss_probe: false,
            congestion: Algorithm::NewReno(Counting::Acks),
            ..Options::default()
        };
        let auto = |initial, max| Buffer::Auto { initial, max };
        match self {
            Self::Linux22 => Options {
                minshall: false,
                recovery: LossRecovery::Sack6675,
                initial_window: InitialWindow::Segments(2),
                limited_transmit: false,
                duplicate_sack: false,
                undo: false,
                idle: Some(IdleRule::Restart),
                // The first segment is acknowledged at once, which speeds up slow start.
                acks: AckPolicy { max_delay: Duration::from_millis(200), quick: 1, ..old.acks },
                send_buffer: Buffer::Fixed(65_535),
                // Half of the 64 KiB is reserved for the kernel.
                receive_buffer: Buffer::Fixed(32_767),
                ..old
            },
            Self::Linux2418 => Options {
                send_buffer: auto(16 << 10, 128 << 10),
                // Three quarters of the buffer are announced.
                receive_buffer: auto(65_535, 131_070),
                ..old
            },
            Self::Linux2618 => Options {
                congestion: Algorithm::Bic(Bic::default()),
                send_buffer: auto(16 << 10, 4 << 20),
                receive_buffer: auto(65_535, 3 << 20),
                ..old
            },
            Self::Linux2632 => Options {
                congestion: Algorithm::Cubic(Cubic::LINUX_2_6_32),
                send_buffer: auto(16 << 10, 4 << 20),
                receive_buffer: auto(65_535, 3 << 20),
                ..old
            },
            Self::Modern => Options { tail_loss_probe: true, ..Options::default() },
            Self::Scps => scps(Algorithm::Vegas(Vegas::SCPS), LossCause::Congestion, true),
            Self::ScpsVj => scps(Algorithm::NewReno(Counting::Acks), LossCause::Congestion, false),
            Self::ScpsVegas => scps(Algorithm::Vegas(Vegas::SCPS), LossCause::Congestion, false),
            Self::ScpsRate => Options {
                // A rate alone needs windows of twice the bandwidth-delay product.
                send_buffer: auto(32_768, 16 << 20),
                receive_buffer: auto(65_535, 16 << 20),
                ..scps(Algorithm::None { window: None }, LossCause::Corruption, true)
            },
        }
    }
}

/// Defaults of the reference implementation: windows of 32 KiB, an acknowledgment per second
/// segment or after 200 ms, timeouts of 250 ms to 64 s.
fn scps(congestion: Algorithm, assume: LossCause, with_rate: bool) -> Options {
    let rate = with_rate.then(RateControl::default);
    Options {
        mss: None,
        window_scale: true,
        timestamps: true,
        sack: false,
        duplicate_sack: false,
        recovery: LossRecovery::NewReno,
        rack: false,
        tail_loss_probe: false,
        limited_transmit: false,
        undo: false,
        ecn: false,
        nagle: true,
        minshall: false,
        acks: AckPolicy { every: 2, max_delay: Duration::from_millis(200), quick: 0 },
        timeouts: Timeouts {
            initial: Duration::from_secs(3),
            min: Duration::from_millis(250),
            max: Duration::from_secs(64),
            // The reference implementation's clock ticks every 100 ms.
            margin: Duration::from_millis(100),
        },
        syn_retries: 5,
        retries: 32,
        keep_alive: None,
        mtu_probing: false,
        initial_window: InitialWindow::Rfc3390,
        idle: None,
        send_buffer: Buffer::Fixed(32_768),
        any_room: false,
        receive_buffer: Buffer::Fixed(32_768),
        congestion,
        pacing: false,
        hop_limit: 64,
        dscp: 0,
        scps: Some(Scps { assume, rate, ..Scps::default() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_select_their_profiles() {
        for profile in Profile::ALL {
            assert_eq!(Profile::from_name(profile.name()), Some(profile));
        }
        assert_eq!(Profile::from_name("linux-1.0"), None);
    }
}
