//! What a user says about one direction of a link.

use std::time::Duration;

use engine::Time;

use crate::{ErrorModel, Framing, HeaderCompression, Outages, Rate, TokenBucket};

/// One direction of a link. The default is a perfect wire: infinite rate, no delay, no errors.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// The line rate, of frames as `framing` counts them.
    pub rate: Rate,
    /// A token bucket in front of the line; `None` leaves the line rate as the only limit.
    pub shaper: Option<TokenBucket>,
    /// What is added to each IP packet before `rate` and `shaper` count it.
    pub framing: Framing,
    /// TCP's headers go compressed; `None` leaves packets as they are. Needs PPP.
    pub header_compression: Option<HeaderCompression>,
    /// Service time added to the serialisation of every packet, during which the line is busy.
    pub per_packet: Duration,
    /// When a packet is let go.
    pub release: Release,
    /// How many packets may wait for the line.
    pub queue: Queue,
    /// Whether a TCP host at this end waits while the queue is full, as for a network card, instead of
    /// losing what it sends.
    pub backpressure: bool,
    /// Propagation time from this end to the other.
    pub delay: Delay,
    /// Which packets are overtaken by others; `None` where all keep their order.
    pub reorder: Option<Reorder>,
    /// When the link is down.
    pub outages: Outages,
    /// What happens to packets while it is.
    pub while_down: WhileDown,
    /// What goes wrong with packets, evaluated in order and independently of each other.
    pub errors: Vec<ErrorModel>,
}

impl Config {
    /// Checks everything that the types do not rule out.
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
        self.errors.iter().try_for_each(ErrorModel::validate)
    }
}

/// When a packet leaves the near end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Release {
    /// When its service (serialisation and `per_packet`) is over, as on a real line.
    #[default]
    LastBit,
    /// When its service begins; the next packet waits until it is over. Emulators that let a frame
    /// go and then sleep behave like this: the gap *after* a frame depends on its own length.
    /// Such a packet is past the near end at once, so an outage does not cut it.
    FirstBit,
}

/// Bounds on the packets that wait for the line, drop-tail. The packet in service and those that
/// propagate do not count, and a packet that finds the line idle does not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Packets; `None` for no bound.
    pub packets: Option<usize>,
    /// Bytes of IP packets; `None` for no bound.
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

/// Packets that take longer than others, as where there are several ways, or where the way changes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reorder {
    /// Of each packet, to be held up.
    pub probability: f64,
    /// For how long, on top of the delay. Those that are sent within this time overtake it.
    pub by: Duration,
}

/// Propagation time, from 0 to hours.
///
/// It is read at the moment a packet leaves the near end. Packets do not overtake but by [`Reorder`]:
/// where the delay shrinks faster than time passes, a later packet arrives together with the one
/// before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delay {
    /// Always the same.
    Constant(Duration),
    /// Given at some moments. Before the first its value holds, after the last the last one's.
    Table {
        /// `(when, delay)`, ascending in time, at least one.
        points: Vec<(Time, Duration)>,
        /// What holds between two points.
        interpolation: Interpolation,
    },
}

impl Default for Delay {
    fn default() -> Self {
        Self::Constant(Duration::ZERO)
    }
}

/// What holds between two points of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Interpolation {
    /// The earlier point's value.
    #[default]
    Step,
    /// The straight line, rounded down to a nanosecond.
    Linear,
}

impl Delay {
    /// The propagation time of what leaves the near end at `at`.
    #[must_use]
    pub fn at(&self, at: Time) -> Duration {
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
            (Interpolation::Linear, Some(&(t1, d1))) => interpolate((t0, d0), (t1, d1), at),
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

fn interpolate((t0, d0): (Time, Duration), (t1, d1): (Time, Duration), at: Time) -> Duration {
    let nanos = |d: Duration| i128::try_from(d.as_nanos()).unwrap_or(i128::from(u64::MAX));
    let (span, passed) = (nanos(t1.since(t0)), nanos(at.since(t0)));
    let delay = nanos(d0) + ((nanos(d1) - nanos(d0)) * passed).div_euclid(span);
    Duration::from_nanos(u64::try_from(delay).unwrap_or(u64::MAX))
}

/// What happens while the link is down to packets that the transmitter has not begun to send.
/// A packet that is being sent when an outage begins is cut and lost under either policy; one
/// that has left the near end is on its way and arrives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhileDown {
    /// They wait in the queue, as in a modem that has lost its carrier.
    #[default]
    Hold,
    /// New ones are rejected, and the queue is emptied when the outage begins.
    Drop,
}

/// A configuration that describes no link.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// A rate of nothing; an outage says that better.
    #[error("{what}: a rate must not be zero")]
    ZeroRate {
        /// Which rate.
        what: &'static str,
    },
    /// A ceiling that is lower than what it caps.
    #[error("token bucket: ceil {ceil} bit/s is below rate {rate} bit/s")]
    CeilBelowRate {
        /// Sustained rate, bit/s.
        rate: u64,
        /// Peak rate, bit/s.
        ceil: u64,
    },
    /// Not within 0 and 1.
    #[error("{what}: {value} is not a probability")]
    NotAProbability {
        /// Which one.
        what: &'static str,
        /// Its value.
        value: f64,
    },
    /// A table or vector without an entry.
    #[error("{what}: needs at least one entry")]
    Empty {
        /// Which table.
        what: &'static str,
    },
    /// A table whose entries do not ascend.
    #[error("{what}: entry {index} is not later than the one before it")]
    NotAscending {
        /// Which table.
        what: &'static str,
        /// The first entry out of order, counted from 0.
        index: usize,
    },
    /// A window that ends before it starts, or then.
    #[error("{what}: window {number} lasts no time")]
    EmptyWindow {
        /// Of which list.
        what: &'static str,
        /// The window's number, counted from 1.
        number: usize,
    },
    /// A window that begins before the one before it is over.
    #[error("{what}: window {number} begins before the end of the one before it")]
    Overlap {
        /// Of which list.
        what: &'static str,
        /// The later window's number, counted from 1.
        number: usize,
    },
    /// A periodic outage that leaves no time up, or no period.
    #[error("outages: down {down:?} must be shorter than the period {period:?}")]
    NeverUp {
        /// From one outage's begin to the next one's.
        period: Duration,
        /// How long each lasts.
        down: Duration,
    },
    /// Compressed headers in frames that do not tell them from whole ones.
    #[error("header compression needs the framing of PPP")]
    NoProtocolField,
    /// Compressed headers, which hold changes since the packet before, of packets that overtake.
    #[error("header compression needs packets that keep their order, without `reorder`")]
    Order,
    /// Another header compression, or another framing of the bytes, of a link that is in use.
    #[error("header compression and exact framing cannot change while a link is in use")]
    Agreed,
    /// A bit of an error vector that lies behind its end.
    #[error("error vector: bit {bit} is not within its {period} bits")]
    OutsideVector {
        /// The bit.
        bit: u64,
        /// The vector's length in bits.
        period: u64,
    },
}

/// Checks that a value is within 0 and 1.
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
