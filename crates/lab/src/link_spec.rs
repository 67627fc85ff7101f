//! Settings of one direction of a link, and their conversion to the link model.

#[macro_use]
mod keys;
mod erasure;
mod errors;
mod words;

use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;
use std::time::Duration;

use engine::Time;
use serde::de::value::StrDeserializer;
use serde::de::{Error as _, IntoDeserializer as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
pub use transport::quantity::Periodic;
use transport::quantity::{Probability, QuantityError, Rate, Size, Span, Text, Window};
use transport::text::SpecError;

pub use self::erasure::{Code, Erasure};
pub use self::errors::{Burst, Errors, OnError, Trace, Vector};
use self::keys::Keys as _;

keys! {
    /// One direction of a link, as a table of TOML or options of the command line. Defaults: no
    /// delay, no errors, no rate limit, Ethernet frames without FCS, an MTU of 1,500 bytes, the
    /// largest datagrams that fit the MTU.
    pub struct LinkSpec {
        /// In a scenario: the sending node.
        from: String,
        /// In a scenario: the receiving node.
        to: String,
        /// In a scenario: the preset to start from, by name.
        link: String,
        /// Line rate, of frames.
        rate: Rate,
        /// Line rate over time, in place of `rate`: each step holds until the next.
        rate_steps: Vec<RateStep>,
        /// One-way delay.
        delay: Span,
        /// One-way delay over time, in place of `delay`.
        delay_points: Vec<DelayPoint>,
        /// Interpolation between two of `delay_points`.
        delay_between: Between,
        /// Reordering of packets.
        reorder: Reorder,
        /// A token bucket in front of the line.
        bucket: Bucket,
        /// The frame around each IP packet.
        framing: Framing,
        /// Whether TCP headers are compressed over PPP (RFC 1144), and escapes are counted by the
        /// actual bytes.
        header_compression: bool,
        /// Additional time per packet for which the line is busy.
        per_packet: Span,
        /// Release of a packet.
        release: Release,
        /// Limit of the queue.
        queue: Queue,
        /// Whether a sending TCP host waits while the queue is full, as for a network card.
        /// Otherwise the queue drops packets.
        backpressure: bool,
        /// MTU.
        mtu: Size,
        /// Maximum bytes of protocol data in a datagram; default: what fits the MTU.
        datagram: Size,
        /// Outages.
        outages: Vec<Window>,
        /// Periodic outages.
        outage_every: Periodic,
        /// Contacts, in place of outages.
        contacts: Vec<Window>,
        /// Policy for packets while the link is down.
        while_down: WhileDown,
        ..
        /// Error models, each by its key.
        errors: Errors,
        ..
        /// Erasure code over frames.
        erasure: Erasure,
        /// In a preset: settings of the return path that differ.
        back = "return": Box<Self>,
    }
}

impl Serialize for LinkSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        keys::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for LinkSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        static NAMES: LazyLock<Vec<&str>> = LazyLock::new(LinkSpec::names);
        let spec: Self = keys::deserialize("LinkSpec", &NAMES, deserializer)?;
        spec.check_exclusive().map_err(D::Error::custom)?;
        Ok(spec)
    }
}

/// A rate from a point in time on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateStep {
    /// Start.
    pub at: Span,
    /// Rate.
    pub rate: Rate,
}

/// The delay at a point in time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DelayPoint {
    /// Time.
    pub at: Span,
    /// One-way delay of packets sent then.
    pub delay: Span,
}

/// Reordering: packets that take longer than others (see [`link::Reorder`]).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reorder {
    /// Probability of a packet to be delayed.
    pub probability: Probability,
    /// Additional delay.
    pub by: Span,
}

/// Interpolation between two points of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Between {
    /// The value of the earlier point.
    #[default]
    Step,
    /// Linear interpolation.
    Linear,
}

/// A token bucket (see [`link::TokenBucket`]).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bucket {
    /// Sustained rate.
    pub rate: Rate,
    /// Peak rate; default: the sustained rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ceil: Option<Rate>,
    /// Burst above the sustained rate.
    pub burst: Size,
    /// Burst above the peak rate; default: `burst`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cburst: Option<Size>,
}

/// Frame around each IP packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Framing {
    /// None: the IP packet alone.
    Raw,
    /// Ethernet header without frame check sequence: as in a capture.
    #[default]
    Ethernet,
    /// Ethernet with its frame check sequence.
    EthernetFcs,
    /// Ethernet with frame check sequence, preamble and gap.
    EthernetWire,
    /// PPP in byte-oriented HDLC-like framing, 16-bit FCS.
    Ppp,
    /// `Ppp` with address, control and protocol field compression.
    PppCompressed,
    /// PPP over an asynchronous serial line: ten bits per byte, escapes counted by the actual
    /// bytes.
    PppAsync,
    /// `PppAsync` with address, control and protocol field compression.
    PppAsyncCompressed,
    /// PPP in bit-oriented HDLC framing, 16-bit FCS.
    Hdlc,
}

/// Release of a packet (see [`link::Release`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Release {
    /// When its last bit is sent.
    #[default]
    LastBit,
    /// When its first bit is sent.
    FirstBit,
}

/// Limit of the queue: `"1000 packets"`, `"64 KiB"` or `"unlimited"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// Packets.
    Packets(u64),
    /// Bytes of IP packets.
    Bytes(Size),
    /// No bound.
    Unlimited,
}

/// Policy for packets while the link is down (see [`link::WhileDown`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WhileDown {
    /// Packets wait in the queue.
    #[default]
    Hold,
    /// Packets are lost.
    Drop,
}

/// Upper bound of the default of an erasure code's `close`, in seconds.
const SILENCE_MAX: f64 = 3600.0;
/// Default MTU.
pub const MTU: Size = Size(1500);
/// Minimum capacity of a datagram for protocol data: below that no protocol's headers fit.
pub const DATAGRAM_MIN: Size = Size(32);

impl FromStr for Queue {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let text = text.trim();
        if text == "unlimited" {
            return Ok(Self::Unlimited);
        }
        let packets = text.strip_suffix("packets").or_else(|| text.strip_suffix("packet"));
        match packets.map(|number| number.trim_end().parse()) {
            Some(Ok(packets)) => Ok(Self::Packets(packets)),
            Some(Err(_)) => Err(QuantityError::NotANumber {
                text: text.to_owned(),
                kind: "a queue length",
                example: "1000 packets",
            }),
            // A bare 0 is a valid size, but here it could mean packets, or no limit.
            None if text.bytes().all(|byte| byte.is_ascii_digit()) => {
                Err(QuantityError::NotANumber {
                    text: text.to_owned(),
                    kind: "a queue length",
                    example: "1000 packets",
                })
            }
            None => text.parse().map(Self::Bytes),
        }
    }
}

impl fmt::Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Packets(packets) => write!(f, "{packets} packets"),
            Self::Bytes(size) => size.fmt(f),
            Self::Unlimited => f.write_str("unlimited"),
        }
    }
}

impl Serialize for Queue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Queue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Text::queue())
    }
}

impl fmt::Display for Bucket {
    /// The form of the option, and the peak that it cannot give.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rate, burst, ceil, cburst } = self;
        write!(f, "{rate}+{burst}")?;
        ceil.map_or(Ok(()), |ceil| write!(f, " ceil {ceil}"))?;
        cburst.map_or(Ok(()), |burst| write!(f, " cburst {burst}"))
    }
}

impl FromStr for Reorder {
    type Err = QuantityError;

    /// Parses `0.01+20 ms`: a probability, and the additional delay of such a packet.
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let (probability, by) = text.split_once('+').ok_or_else(|| QuantityError::NotANumber {
            text: text.to_owned(),
            kind: "a probability and a time",
            example: "0.01+20 ms",
        })?;
        Ok(Self { probability: probability.trim().parse()?, by: by.parse()? })
    }
}

impl LinkSpec {
    /// Returns the names of the sending and the receiving node; empty where not given.
    #[must_use]
    pub fn ends(&self) -> (String, String) {
        (self.from.clone().unwrap_or_default(), self.to.clone().unwrap_or_default())
    }

    /// Returns these settings, with missing ones from `base`.
    #[must_use]
    pub fn over(self, base: &Self) -> Self {
        let (has_mtu, has_datagram) = (self.mtu.is_some(), self.datagram.is_some());
        let own = self.clone();
        let mut layered = self.laid_over(base);
        // A constant replaces a table of the base, and a table a constant.
        if own.rate.is_some() || own.rate_steps.is_some() {
            (layered.rate, layered.rate_steps) = (own.rate, own.rate_steps.clone());
        }
        if own.delay.is_some() {
            layered.delay_between = own.delay_between;
        }
        if own.delay.is_some() || own.delay_points.is_some() {
            (layered.delay, layered.delay_points) = (own.delay, own.delay_points.clone());
        }
        // A smaller MTU lowers the datagrams of the base.
        if has_mtu && !has_datagram {
            let largest = Size(layered.datagram_max());
            layered.datagram = layered.datagram.map(|datagram| datagram.min(largest));
        }
        // Times of one type replace times of another.
        if own.is_gated() {
            let Self { outages, outage_every, contacts, .. } = own;
            layered = Self { outages, outage_every, contacts, ..layered };
        }
        layered
    }

    /// Whether it has outages or contacts.
    #[must_use]
    pub fn is_gated(&self) -> bool {
        self.outages.is_some() || self.outage_every.is_some() || self.contacts.is_some()
    }

    /// Whether either direction has outages or contacts.
    #[must_use]
    pub fn has_outages(&self) -> bool {
        self.is_gated() || self.way_back().is_gated()
    }

    /// Fills in every default that has a value.
    #[must_use]
    pub fn resolved(self) -> Self {
        let datagram = Size(self.datagram_max());
        self.over(&Self {
            delay: Some(Span::default()),
            framing: Some(Framing::default()),
            per_packet: Some(Span::default()),
            release: Some(Release::default()),
            queue: Some(Queue::Packets(1000)),
            mtu: Some(MTU),
            datagram: Some(datagram),
            while_down: Some(WhileDown::default()),
            errors: Errors { on_error: Some(OnError::default()), ..Errors::default() },
            ..Self::default()
        })
    }

    /// Returns the return path: this direction with the settings of `return`. Losses by position
    /// stay in this direction, because they name its packets.
    #[must_use]
    pub fn way_back(&self) -> Self {
        let forward = Self { errors: self.errors.without_positional(), back: None, ..self.clone() };
        self.back.as_deref().cloned().unwrap_or_default().over(&forward)
    }

    /// Returns the MTU in bytes.
    #[must_use]
    pub fn mtu_bytes(&self) -> u64 {
        self.mtu.unwrap_or(MTU).bytes()
    }

    /// Returns the bytes that the MTU leaves for UDP payload.
    #[must_use]
    pub fn datagram_max(&self) -> u64 {
        self.mtu_bytes().saturating_sub(crate::theory::IP_UDP_BYTES).max(1)
    }

    /// Returns the largest UDP payload: what the MTU leaves, or the limit of datagrams.
    #[must_use]
    pub fn payload_max(&self) -> u64 {
        let largest = self.datagram_max();
        self.datagram.map_or(largest, |cap| cap.bytes().clamp(1, largest))
    }

    /// Returns the configuration of the link model.
    ///
    /// # Errors
    ///
    /// [`SpecError::Invalid`] if settings contradict each other.
    pub fn config(&self) -> Result<link::Config, SpecError> {
        self.check_exclusive().map_err(|error| SpecError::invalid(format!("link: {error}")))?;
        self.check_steps()?;
        self.check_sizes()?;
        let compresses = self.header_compression.unwrap_or_default();
        let config = link::Config {
            rate: self.line_rate(),
            shaper: self.bucket.map(Bucket::shaper),
            framing: self.framing.unwrap_or_default().model(compresses),
            header_compression: compresses.then(link::HeaderCompression::default),
            per_packet: self.per_packet.unwrap_or_default().duration(),
            release: match self.release.unwrap_or_default() {
                Release::LastBit => link::Release::LastBit,
                Release::FirstBit => link::Release::FirstBit,
            },
            queue: self.queue.map_or_else(link::Queue::default, Queue::model),
            backpressure: self.backpressure.unwrap_or_default(),
            delay: self.propagation(),
            reorder: self.reorder.filter(|reorder| reorder.probability.value() > 0.0).map(
                |reorder| {
                    let (probability, by) = (reorder.probability.value(), reorder.by.duration());
                    link::Reorder { probability, by }
                },
            ),
            outages: self.outage_plan(),
            while_down: match self.while_down.unwrap_or_default() {
                WhileDown::Hold => link::WhileDown::Hold,
                WhileDown::Drop => link::WhileDown::Drop,
            },
            errors: self.errors.models()?,
            erasure: self.erasure_code(),
        };
        config.validate().map_err(|error| SpecError::invalid(format!("link: {error}")))?;
        Ok(config)
    }

    /// Checks that no two keys of one table exclude each other.
    fn check_exclusive(&self) -> Result<(), String> {
        let groups = [
            &[("rate", self.rate.is_some()), ("rate_steps", self.rate_steps.is_some())][..],
            &[("delay", self.delay.is_some()), ("delay_points", self.delay_points.is_some())],
            &[
                ("outages", self.outages.is_some()),
                ("outage_every", self.outage_every.is_some()),
                ("contacts", self.contacts.is_some()),
            ],
        ];
        for group in groups {
            let given: Vec<_> = group.iter().filter(|(_, is_given)| *is_given).collect();
            if let [(one, _), (other, _), ..] = given[..] {
                return Err(format!("`{one}` and `{other}` exclude each other; give one of them"));
            }
        }
        if self.delay.is_some() && self.delay_between.is_some() {
            let remedy = "give `delay_points` in place of `delay`, or leave it out";
            return Err(format!("`delay_between` is for `delay_points`; {remedy}"));
        }
        Ok(())
    }

    fn check_steps(&self) -> Result<(), SpecError> {
        let is_stop = |step: &RateStep| step.rate.bps() == 0;
        match self.rate_steps.iter().flatten().position(is_stop) {
            None => Ok(()),
            Some(number) => Err(SpecError::invalid(format!(
                "link: step {} of `rate_steps` has a rate of 0; times without transmission are \
                 `outages`, `outage_every` or `contacts`",
                number + 1
            ))),
        }
    }

    fn check_sizes(&self) -> Result<(), SpecError> {
        let datagram = DATAGRAM_MIN;
        let mtu = Size(datagram.bytes() + crate::theory::IP_UDP_BYTES);
        for (key, given, least) in [("mtu", self.mtu, mtu), ("datagram", self.datagram, datagram)] {
            if let Some(given) = given.filter(|given| *given < least) {
                return Err(SpecError::invalid(format!(
                    "link: `{key}` is {given}; no protocol works with less than {least}"
                )));
            }
        }
        let largest = Size(self.datagram_max());
        match self.datagram.filter(|given| *given > largest) {
            Some(given) => Err(SpecError::invalid(format!(
                "link: `datagram` is {given}, but packets of {} (`mtu`) hold at most {largest} \
                 after their IP and UDP headers; give a smaller datagram or a larger MTU",
                Size(self.mtu_bytes())
            ))),
            None => Ok(()),
        }
    }

    /// Returns the erasure code. The default of `close` is four frames with their parity, at least 10
    /// ms: a sender at the rate that the code leaves does not close matrices.
    fn erasure_code(&self) -> Option<link::Erasure> {
        let code = self.erasure.and_then(Erasure::code)?;
        let mut link = code.model();
        if code.close.is_none()
            && let Some(bps) = self.line_rate().bps_at(Time::ZERO)
        {
            let framed = self
                .framing
                .unwrap_or_default()
                .model(false)
                .framed_len(usize::try_from(self.mtu_bytes()).unwrap_or(usize::MAX));
            let frame = framed as f64 * 8.0 / bps as f64;
            let frames = 4.0 * f64::from(link.n) / f64::from(link.k.max(1));
            let gap = Duration::from_secs_f64((frames * frame).min(SILENCE_MAX));
            link.close = link.close.max(gap);
        }
        Some(link)
    }

    fn line_rate(&self) -> link::Rate {
        match (&self.rate_steps, self.rate) {
            (Some(steps), _) => link::Rate::Steps(
                steps
                    .iter()
                    .map(|step| link::RateStep { from: time(step.at), bps: step.rate.bps() })
                    .collect(),
            ),
            // A rate of 0 means unlimited, as for senders.
            (None, Some(rate)) if rate.bps() > 0 => link::Rate::Constant(rate.bps()),
            (None, _) => link::Rate::Infinite,
        }
    }

    fn propagation(&self) -> link::Delay {
        match &self.delay_points {
            Some(points) => link::Delay::Table {
                points: points.iter().map(|p| (time(p.at), p.delay.duration())).collect(),
                interpolation: match self.delay_between.unwrap_or_default() {
                    Between::Step => link::Interpolation::Step,
                    Between::Linear => link::Interpolation::Linear,
                },
            },
            None => link::Delay::Constant(self.delay.unwrap_or_default().duration()),
        }
    }

    fn outage_plan(&self) -> link::Outages {
        let windows = |windows: &Vec<Window>| windows.iter().map(window).collect();
        match (&self.contacts, self.outage_every, &self.outages) {
            (Some(contacts), _, _) => link::Outages::Contacts(windows(contacts)),
            (None, Some(periodic), _) => link::Outages::Periodic {
                period: periodic.period.duration(),
                down: periodic.down.duration(),
                offset: time(periodic.first),
            },
            (None, None, Some(list)) if !list.is_empty() => link::Outages::List(windows(list)),
            (None, None, _) => link::Outages::Never,
        }
    }
}

impl Bucket {
    fn shaper(self) -> link::TokenBucket {
        link::TokenBucket {
            rate: self.rate.bps(),
            ceil: self.ceil.unwrap_or(self.rate).bps(),
            burst: self.burst.bytes(),
            cburst: self.cburst.unwrap_or(self.burst).bytes(),
        }
    }
}

impl FromStr for Framing {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let name: StrDeserializer<'_, serde::de::value::Error> = text.into_deserializer();
        Self::deserialize(name).map_err(|error| SpecError::invalid(error.to_string()))
    }
}

impl fmt::Display for Framing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl Framing {
    fn model(self, compresses: bool) -> link::Framing {
        let ethernet = |fcs, wire| link::Framing::Ethernet { fcs, preamble: wire, ifg: wire };
        let serial = matches!(self, Self::PppAsync | Self::PppAsyncCompressed);
        // With actual bytes an estimate is not needed.
        let is_exact = compresses || serial;
        let stuffing = if is_exact { link::Stuffing::Exact } else { link::Stuffing::Random };
        let fcs = link::Fcs::Bits16;
        let ppp = |compressed| link::Framing::Ppp { fcs, compressed, stuffing, serial };
        match self {
            Self::Raw => link::Framing::Raw,
            Self::Ethernet => ethernet(false, false),
            Self::EthernetFcs => ethernet(true, false),
            Self::EthernetWire => ethernet(true, true),
            Self::Ppp | Self::PppAsync => ppp(false),
            Self::PppCompressed | Self::PppAsyncCompressed => ppp(true),
            Self::Hdlc => {
                // Stuffed bits are not counted one by one.
                link::Framing::Hdlc { fcs, stuffing: link::Stuffing::Random }
            }
        }
    }
}

impl Queue {
    fn model(self) -> link::Queue {
        match self {
            Self::Packets(packets) => {
                let packets = Some(usize::try_from(packets).unwrap_or(usize::MAX));
                link::Queue { packets, bytes: None }
            }
            Self::Bytes(size) => link::Queue { packets: None, bytes: Some(size.bytes()) },
            Self::Unlimited => link::Queue { packets: None, bytes: None },
        }
    }
}

fn window(window: &Window) -> link::Window {
    let start = time(window.at);
    link::Window { start, end: start + window.lasts.duration() }
}

/// Converts to a time of the scenario's clock.
pub fn time(at: Span) -> Time {
    Time::ZERO + at.duration()
}

#[cfg(test)]
mod tests;
