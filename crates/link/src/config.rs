//! Configuration of one direction of a link.

use std::time::Duration;

use engine::Time;

use crate::{Erasure, ErrorModel, Framing, HeaderCompression, OnError, Outages, Rate, TokenBucket};

/// One direction of a link. The default is a perfect wire: infinite rate, no delay, no errors.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// Line rate, in bits of frames as `framing` counts them.
    pub rate: Rate,
    /// A token bucket in front of the line; `None` leaves the line rate as the only limit.
    pub shaper: Option<TokenBucket>,
    /// Bytes added to each IP packet before `rate` and `shaper` count it.
    pub framing: Framing,
    /// Compression of TCP headers; `None` leaves packets as they are. Needs PPP.
    pub header_compression: Option<HeaderCompression>,
    /// Service time added to the serialisation of every packet, during which the line is busy.
    pub per_packet: Duration,
    /// Point of service at which a packet leaves the near end.
    pub release: Release,
    /// Bounds on packets waiting for the line.
    pub queue: Queue,
    /// Whether a TCP host at this end waits while the queue is full, as for a network card, instead
    /// of losing packets.
    pub backpressure: bool,
    /// Propagation time to the far end.
    pub delay: Delay,
    /// Packets delayed so that others overtake them; `None` keeps all in order.
    pub reorder: Option<Reorder>,
    /// Times at which the link is down.
    pub outages: Outages,
    /// Treatment of packets while the link is down.
    pub while_down: WhileDown,
    /// Sources of errors, evaluated in order and independently of each other.
    pub errors: Vec<ErrorModel>,
    /// Code that recovers lost frames; `None` for none.
    pub erasure: Option<Erasure>,
}

impl Config {
    /// Returns the sustainable rate at `at`, in bit/s of frames: the line's or the token bucket's,
    /// whichever is lower, without the share of an erasure code's parity. `None` if unlimited.
    #[must_use]
    pub fn rate_at(&self, at: Time) -> Option<u64> {
        let shaped = self.shaper.as_ref().map(|shaper| shaper.rate);
        let rate = self.rate.bps_at(at).into_iter().chain(shaped).min();
        rate.map(|bps| self.erasure.as_ref().map_or(bps, |code| code.share(bps)))
    }

    /// Checks all constraints that the types do not enforce.
    ///
    /// # Errors
    /// The first [`ConfigError`] found.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.rate.validate()?;
        if let Some(shaper) = &self.shaper {
            shaper.validate()?;
        }
        let is_ppp = matches!(self.framing, Framing::Ppp { .. } | Framing::Hdlc { .. });
        if self.header_compression.is_some() && !is_ppp {
            return Err(ConfigError::NoProtocolField);
        }
        self.delay.validate()?;
        if let Some(reorder) = &self.reorder {
            probability("reorder", reorder.probability)?;
            if self.header_compression.is_some() {
                return Err(ConfigError::Order);
            }
        }
        self.outages.validate()?;
        if let Some(erasure) = &self.erasure {
            erasure.validate()?;
            if self.reorder.is_some() || self.header_compression.is_some() {
                return Err(ConfigError::Coded);
            }
            if self.errors.iter().any(|model| model.on_error == OnError::Damage) {
                return Err(ConfigError::Undetected);
            }
        }
        self.errors.iter().try_for_each(ErrorModel::validate)
    }
}

/// Point of service at which a packet leaves the near end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Release {
    /// The end of the packet's service (serialisation and `per_packet`), as on a real line.
    #[default]
    LastBit,
    /// The start of its service; the next packet waits for the end of that service. Emulators that
    /// send a frame and then sleep behave like this: the gap *after* a frame depends on its own
    /// length. Such a packet is past the near end at once, so an outage does not cut it.
    FirstBit,
}

/// Bounds on the packets that wait for the line, drop-tail. The packet in service and those that
/// propagate do not count. A packet that finds the line idle does not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Maximum packets; `None` for no bound.
    pub packets: Option<usize>,
    /// Maximum bytes of IP packets; `None` for no bound.
    pub bytes: Option<u64>,
}

impl Default for Queue {
    /// 1,000 packets: the length of Linux's default transmit queue.
    fn default() -> Self {
        Self { packets: Some(1_000), bytes: None }
    }
}

impl Queue {
    /// Whether a packet of `len` bytes may join `packets` packets of `bytes` bytes.
    pub(crate) fn admits(&self, packets: usize, bytes: u64, len: usize) -> bool {
        self.packets.is_none_or(|limit| packets < limit)
            && self.bytes.is_none_or(|limit| bytes + len as u64 <= limit)
    }
}

/// Packets that take longer than others, as with several paths or a path that changes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reorder {
    /// Probability that a packet is delayed.
    pub probability: f64,
    /// Extra delay. Packets sent within this time overtake it.
    pub by: Duration,
}

/// Propagation time, from 0 to hours.
///
/// It is read at the moment a packet leaves the near end. Only [`Reorder`] lets packets overtake:
/// where the delay shrinks faster than time passes, a later packet arrives together with the one
/// before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delay {
    /// Constant delay.
    Constant(Duration),
    /// Delay given at some moments. Holds the first value before the first, and the last after the
    /// last.
    Table {
        /// `(when, delay)`, ascending in time, at least one.
        points: Vec<(Time, Duration)>,
        /// Value between two points.
        interpolation: Interpolation,
    },
}

impl Default for Delay {
    fn default() -> Self {
        Self::Constant(Duration::ZERO)
    }
}

/// Value between two points of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Interpolation {
    /// The earlier point's value.
    #[default]
    Step,
    /// The straight line, rounded down to a nanosecond.
    Linear,
}

impl Delay {
    /// Returns the propagation time of a packet that leaves the near end at `at`.
    #[must_use]
    pub fn propagation_at(&self, at: Time) -> Duration {
        let (points, interpolation) = match self {
            Self::Constant(delay) => return *delay,
            Self::Table { points, interpolation } => (points, interpolation),
        };
        let after = points.partition_point(|(when, _)| *when <= at);
        let Some(before) = after.checked_sub(1) else {
            return points.first().map_or(Duration::ZERO, |(_, delay)| *delay);
        };
        let (t0, d0) = points[before];
        match (interpolation, points.get(after)) {
            (Interpolation::Linear, Some(&(t1, d1))) => interpolate(t0, d0, t1, d1, at),
            (Interpolation::Linear, None) | (Interpolation::Step, _) => d0,
        }
    }

    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        match self {
            Self::Constant(_) => Ok(()),
            Self::Table { points, .. } => {
                ascending("delay", points.iter().map(|(when, _)| when.as_nanos()))
            }
        }
    }
}

fn interpolate(t0: Time, d0: Duration, t1: Time, d1: Duration, at: Time) -> Duration {
    let nanos = |d: Duration| i128::try_from(d.as_nanos()).unwrap_or(i128::from(u64::MAX));
    let (span, passed) = (nanos(t1.since(t0)), nanos(at.since(t0)));
    let delay = nanos(d0) + ((nanos(d1) - nanos(d0)) * passed).div_euclid(span);
    Duration::from_nanos(u64::try_from(delay).unwrap_or(u64::MAX))
}

/// Treatment, while the link is down, of packets whose transmission has not started. A packet in
/// transmission when an outage starts is cut and lost under either policy; one that has left the
/// near end arrives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhileDown {
    /// Packets wait in the queue, as in a modem that has lost its carrier.
    #[default]
    Hold,
    /// New packets are rejected, and the queue is emptied when the outage starts.
    Drop,
}

/// Error in a link's configuration.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// A rate of 0; use an outage instead.
    #[error("{what}: a rate must not be zero")]
    ZeroRate {
        /// Name of the rate.
        what: &'static str,
    },
    /// The peak rate is below the sustained rate.
    #[error("token bucket: ceil {ceil} bit/s is below rate {rate} bit/s")]
    CeilBelowRate {
        /// Sustained rate, bit/s.
        rate: u64,
        /// Peak rate, bit/s.
        ceil: u64,
    },
    /// The value is not between 0 and 1.
    #[error("{what}: {value} is not a probability")]
    NotAProbability {
        /// Name of the setting.
        what: &'static str,
        /// Value of the setting.
        value: f64,
    },
    /// A table or vector without an entry.
    #[error("{what}: needs at least one entry")]
    Empty {
        /// Name of the table.
        what: &'static str,
    },
    /// A table whose entries do not ascend.
    #[error("{what}: entry {index} is not later than the one before it")]
    NotAscending {
        /// Name of the table.
        what: &'static str,
        /// The first entry out of order, counted from 0.
        index: usize,
    },
    /// A window that ends at or before its start.
    #[error("{what}: window {number} is empty")]
    EmptyWindow {
        /// Name of the list.
        what: &'static str,
        /// The window's number, counted from 1.
        number: usize,
    },
    /// A window that starts before the previous one ends.
    #[error("{what}: window {number} starts before the end of the previous one")]
    Overlap {
        /// Name of the list.
        what: &'static str,
        /// The later window's number, counted from 1.
        number: usize,
    },
    /// A periodic outage that leaves no time up, or no period.
    #[error("outage_every: down {down:?} must be shorter than the period {period:?}")]
    NeverUp {
        /// Time from the start of one outage to the next.
        period: Duration,
        /// Duration of each outage.
        down: Duration,
    },
    /// Compressed headers in a framing without protocol field, which cannot distinguish them from
    /// whole headers.
    #[error("header compression needs the framing of PPP")]
    NoProtocolField,
    /// Compressed headers on a link that reorders: they hold changes relative to the previous
    /// packet.
    #[error("header compression needs packets that keep their order, without `reorder`")]
    Order,
    /// An erasure code whose matrices cannot be filled, or are too large.
    #[error("erasure code: {k} data frames of {n} frames; needs 1 <= k < n <= 65,536")]
    Matrix {
        /// Data frames of a matrix.
        k: u32,
        /// All frames of a matrix.
        n: u32,
    },
    /// An erasure code whose matrices close at once.
    #[error("erasure code: `close` must not be zero")]
    NeverOpen,
    /// An erasure code, which recovers packets late, on a link that must keep their order or changes
    /// it.
    #[error("an erasure code cannot be combined with `reorder` or header compression")]
    Coded,
    /// An erasure code over damaged frames: it recovers only frames that are known to be lost.
    #[error(
        "an erasure code needs a link layer that drops damaged packets (`on_error = \"drop\"`)"
    )]
    Undetected,
    /// A change of header compression, or of the framing it needs, on a link in use.
    #[error("header compression and exact framing cannot change while a link is in use")]
    Agreed,
    /// A bit of an error vector beyond its end.
    #[error("error vector: bit {bit} is not within its {period} bits")]
    OutsideVector {
        /// Number of the bit.
        bit: u64,
        /// The vector's length in bits.
        period: u64,
    },
}

/// Checks that a value is between 0 and 1.
pub(crate) fn probability(what: &'static str, value: f64) -> Result<(), ConfigError> {
    if (0.0..=1.0).contains(&value) {
        Ok(())
    } else {
        Err(ConfigError::NotAProbability { what, value })
    }
}

/// Checks that a table has entries and that they strictly ascend.
pub(crate) fn ascending(
    what: &'static str,
    values: impl Iterator<Item = u64>,
) -> Result<(), ConfigError> {
    let mut before = None;
    for (index, value) in values.enumerate() {
        if before.is_some_and(|before| value <= before) {
            return Err(ConfigError::NotAscending { what, index });
        }
        before = Some(value);
    }
    before.map(|_| ()).ok_or(ConfigError::Empty { what })
}
