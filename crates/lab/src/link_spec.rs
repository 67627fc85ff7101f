//! One direction of a link as a user writes it, and what it means.

mod words;

use std::fmt;
use std::str::FromStr;

use engine::Time;
use serde::de::IntoDeserializer as _;
use serde::de::value::StrDeserializer;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use transport::quantity::{Probability, QuantityError, Rate, Size, Span, Text, Window};
use transport::text::SpecError;

/// One direction of a link, as a table of TOML or as options of the command line. What is left out
/// has its default: no delay, no errors, no limit of the rate, Ethernet frames without FCS, an MTU
/// of 1,500 bytes, the largest datagrams that fit the MTU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkSpec {
    /// In a scenario: the node that sends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// In a scenario: the node that receives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// In a scenario: the preset to start from, by name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// Line rate, of frames.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// Line rate over time, in place of `rate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_steps: Option<Vec<RateStep>>,
    /// One-way delay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<Span>,
    /// One-way delay over time, in place of `delay`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_points: Option<Vec<DelayPoint>>,
    /// What holds between two delay points.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_between: Option<Between>,
    /// Packets that others overtake.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reorder: Option<Reorder>,
    /// A token bucket in front of the line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bucket: Option<Bucket>,
    /// The frame around each IP packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub framing: Option<Framing>,
    /// TCP's headers go compressed over PPP (RFC 1144), and escapes are counted as the bytes need them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header_compression: Option<bool>,
    /// Time the line is busy with each packet besides its bits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_packet: Option<Span>,
    /// When a packet is let go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release: Option<Release>,
    /// How much may wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<Queue>,
    /// Whether a TCP host that sends waits while the queue is full, as for a network card. Otherwise
    /// the queue drops what it has no room for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backpressure: Option<bool>,
    /// Largest IP packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<Size>,
    /// Most bytes of protocol data in a datagram; what fits the MTU if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub datagram: Option<Size>,
    /// When the link is down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outages: Option<Vec<Window>>,
    /// Outages that come again and again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outage_every: Option<Periodic>,
    /// When the link is up, in place of outages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contacts: Option<Vec<Window>>,
    /// What happens to packets while the link is down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub while_down: Option<WhileDown>,
    /// Probability to lose a packet, whatever its length.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per: Option<Probability>,
    /// Bit error rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ber: Option<Probability>,
    /// Errors in bursts (Gilbert-Elliott).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<Burst>,
    /// Exactly these packets are lost, counted from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drop: Option<Vec<u64>>,
    /// Every packet sent within these windows is lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_times: Option<Vec<Window>>,
    /// A stored pattern of bit errors, laid over the bits round and round.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_vector: Option<Vector>,
    /// The fates of successive packets, as they were recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<Trace>,
    /// What becomes of a packet that an error strikes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_error: Option<OnError>,
    /// In a preset: what the way back does differently.
    #[serde(rename = "return", skip_serializing_if = "Option::is_none")]
    pub back: Option<Box<Self>>,
}

/// From when on which rate holds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateStep {
    /// The first moment.
    pub at: Span,
    /// The rate.
    pub rate: Rate,
}

/// The delay at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DelayPoint {
    /// The moment.
    pub at: Span,
    /// The one-way delay of what leaves then.
    pub delay: Span,
}

/// Packets that take longer than others (see [`link::Reorder`]).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reorder {
    /// Probability of a packet to be held up.
    pub probability: Probability,
    /// For how long.
    pub by: Span,
}

/// What holds between two points of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Between {
    /// The earlier point's value.
    #[default]
    Step,
    /// The straight line.
    Linear,
}

/// A token bucket (see [`link::TokenBucket`]).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bucket {
    /// Sustained rate.
    pub rate: Rate,
    /// Peak rate; the sustained rate if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ceil: Option<Rate>,
    /// What may be sent above the sustained rate.
    pub burst: Size,
    /// What may be sent above the peak rate; `burst` if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cburst: Option<Size>,
}

/// The frame around each IP packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Framing {
    /// None: the IP packet alone.
    Raw,
    /// Ethernet's header, without its frame check sequence: what a capture shows.
    #[default]
    Ethernet,
    /// Ethernet with its frame check sequence.
    EthernetFcs,
    /// Ethernet as it occupies the wire: with check sequence, preamble and gap.
    EthernetWire,
    /// PPP in octet-oriented HDLC-like framing, 16-bit FCS.
    Ppp,
    /// The same with address, control and protocol compressed.
    PppCompressed,
    /// PPP over an asynchronous serial line, ten bits an octet, escapes counted as the bytes need them.
    PppAsync,
    /// The same with address, control and protocol compressed.
    PppAsyncCompressed,
    /// PPP in bit-oriented HDLC framing, 16-bit FCS.
    Hdlc,
}

/// When a packet is let go (see [`link::Release`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Release {
    /// When its last bit is sent.
    #[default]
    LastBit,
    /// When its first bit is sent.
    FirstBit,
}

/// How much may wait for the line: `"1000 packets"`, `"64 KiB"` or `"unlimited"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// Packets.
    Packets(u64),
    /// Bytes of IP packets.
    Bytes(Size),
    /// No bound.
    Unlimited,
}

/// Outages that come again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Periodic {
    /// From the begin of one to the next one's.
    pub period: Span,
    /// How long each lasts.
    pub down: Span,
    /// When the first begins; at once if left out.
    #[serde(default)]
    pub first: Span,
}

/// What happens to packets while the link is down (see [`link::WhileDown`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WhileDown {
    /// They wait in the queue.
    #[default]
    Hold,
    /// They are lost.
    Drop,
}

/// Errors in bursts: two states, left with the given probabilities after each packet.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Burst {
    /// From the good to the bad state.
    pub to_bad: Probability,
    /// From the bad to the good state.
    pub to_good: Probability,
    /// Probability to lose a packet in the good state.
    #[serde(default)]
    pub good_per: Probability,
    /// Bit error rate in the good state.
    #[serde(default)]
    pub good_ber: Probability,
    /// Probability to lose a packet in the bad state.
    #[serde(default)]
    pub bad_per: Probability,
    /// Bit error rate in the bad state.
    #[serde(default)]
    pub bad_ber: Probability,
}

/// A stored pattern of bit errors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vector {
    /// Its length in bits.
    pub bits: u64,
    /// The bits in error, counted from 0, ascending.
    #[serde(default)]
    pub errors: Vec<u64>,
    /// How many errors to draw with the scenario's seed, in place of `errors`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drawn: Option<u64>,
}

/// Most errors that are drawn.
const DRAWN_MAX: u64 = 1_000_000;

impl Vector {
    /// Draws the errors that are to be drawn, anywhere; where in the pattern a run begins is as good
    /// as random then.
    pub(crate) fn draw(&mut self, mut rng: engine::Rng) -> Result<(), SpecError> {
        let Some(count) = self.drawn.take() else { return Ok(()) };
        if !self.errors.is_empty() {
            let message = "error_vector: give `errors` or `drawn`, not both";
            return Err(SpecError::invalid(message));
        }
        // Half of the bits at most: more are drawn in vain too often.
        let most = DRAWN_MAX.min(self.bits / 2);
        if count > most {
            let message = format!("error_vector.drawn: {count}; at most {most} here");
            return Err(SpecError::invalid(message));
        }
        let mut bits = std::collections::BTreeSet::new();
        while (bits.len() as u64) < count {
            bits.insert(rng.below(self.bits));
        }
        self.errors = bits.into_iter().collect();
        Ok(())
    }
}

/// The fates of successive packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trace {
    /// One character a packet: `x` for one that is struck, `.` for one that is not. White space
    /// is left out.
    pub fates: String,
    /// Whether it begins again at its end; otherwise nothing is struck after it.
    #[serde(default)]
    pub repeat: bool,
}

/// What becomes of a packet that an error strikes (see [`link::OnError`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnError {
    /// It is lost: the link layer has a checksum.
    #[default]
    Drop,
    /// It arrives damaged: the link layer has none.
    Damage,
}

/// A path's largest IP packet, unless said otherwise.
pub const MTU: Size = Size(1500);
/// The fewest bytes of protocol data a datagram must be able to hold: below that no protocol's
/// headers fit.
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
            // A bare 0 is a fine size, but here it could mean packets, or no limit.
            None if text == "0" => Err(QuantityError::NotANumber {
                text: text.to_owned(),
                kind: "a queue length",
                example: "1000 packets",
            }),
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

impl FromStr for Reorder {
    type Err = QuantityError;

    /// `0.01+20 ms`: a probability, and how much longer such a packet takes.
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
    /// The names of the nodes where it begins and ends; empty where it does not say.
    #[must_use]
    pub fn ends(&self) -> (String, String) {
        (self.from.clone().unwrap_or_default(), self.to.clone().unwrap_or_default())
    }

    /// What `self` says, and `base` where it says nothing.
    #[must_use]
    pub fn over(self, base: &Self) -> Self {
        macro_rules! layered {
            ($($field:ident)*) => {
                Self { $($field: self.$field.or_else(|| base.$field.clone()),)* }
            };
        }
        let (rate_said, delay_said) = (self.rate.is_some(), self.delay.is_some());
        let (mtu_said, datagram_said) = (self.mtu.is_some(), self.datagram.is_some());
        let outages = self
            .is_gated()
            .then(|| (self.outages.clone(), self.outage_every, self.contacts.clone()));
        let mut layered = layered!(from to link rate rate_steps delay delay_points delay_between
            reorder bucket framing header_compression per_packet release queue backpressure mtu datagram outages outage_every contacts
            while_down per ber burst drop loss_times error_vector trace on_error back);
        // A constant replaces a table.
        if rate_said {
            layered.rate_steps = None;
        }
        if delay_said {
            layered.delay_points = None;
        }
        // A smaller MTU lowers the datagrams of what it replaces.
        if mtu_said && !datagram_said {
            let largest = Size(layered.datagram_max());
            layered.datagram = layered.datagram.map(|datagram| datagram.min(largest));
        }
        // Times of one kind replace those of another.
        if let Some((outages, outage_every, contacts)) = outages {
            layered = Self { outages, outage_every, contacts, ..layered };
        }
        layered
    }

    /// Whether it says when the link is down or up.
    fn is_gated(&self) -> bool {
        self.outages.is_some() || self.outage_every.is_some() || self.contacts.is_some()
    }

    /// Fills in every default that has a value of its own.
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
            on_error: Some(OnError::default()),
            ..Self::default()
        })
    }

    /// The way back: this direction with what `return` says. Losses that are listed are this
    /// direction's own: they name packets of the way there.
    #[must_use]
    pub fn way_back(&self) -> Self {
        let forward = Self {
            drop: None,
            loss_times: None,
            error_vector: None,
            trace: None,
            back: None,
            ..self.clone()
        };
        self.back.as_deref().cloned().unwrap_or_default().over(&forward)
    }

    /// Bytes of the largest IP packet.
    #[must_use]
    pub fn mtu_bytes(&self) -> u64 {
        self.mtu.unwrap_or(MTU).bytes()
    }

    /// Bytes that the MTU leaves of a packet after IP and UDP headers.
    #[must_use]
    pub fn datagram_max(&self) -> u64 {
        self.mtu_bytes().saturating_sub(crate::theory::IP_UDP_BYTES).max(1)
    }

    /// Largest UDP payload: what the MTU leaves after IP and UDP headers, or the datagram cap.
    #[must_use]
    pub fn payload_max(&self) -> u64 {
        let largest = self.datagram_max();
        self.datagram.map_or(largest, |cap| cap.bytes().clamp(1, largest))
    }

    /// The link model's configuration.
    ///
    /// # Errors
    ///
    /// [`SpecError::Invalid`] when the parts contradict each other.
    pub fn config(&self) -> Result<link::Config, SpecError> {
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
            outages: self.outage_plan()?,
            while_down: match self.while_down.unwrap_or_default() {
                WhileDown::Hold => link::WhileDown::Hold,
                WhileDown::Drop => link::WhileDown::Drop,
            },
            errors: self.errors()?,
        };
        config.validate().map_err(|error| SpecError::invalid(format!("link: {error}")))?;
        Ok(config)
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

    fn line_rate(&self) -> link::Rate {
        match (&self.rate_steps, self.rate) {
            (Some(steps), _) => link::Rate::Steps(
                steps
                    .iter()
                    .map(|step| link::RateStep { from: time(step.at), bps: step.rate.bps() })
                    .collect(),
            ),
            // A rate of 0 stands for no limit, as it does for senders.
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

    fn outage_plan(&self) -> Result<link::Outages, SpecError> {
        let windows = |windows: &Vec<Window>| windows.iter().map(window).collect();
        match (&self.outages, self.outage_every, &self.contacts) {
            (None, None, None) => Ok(link::Outages::Never),
            (Some(list), None, None) if list.is_empty() => Ok(link::Outages::Never),
            (Some(list), None, None) => Ok(link::Outages::List(windows(list))),
            (None, Some(periodic), None) => Ok(link::Outages::Periodic {
                period: periodic.period.duration(),
                down: periodic.down.duration(),
                offset: time(periodic.first),
            }),
            (None, None, Some(contacts)) => Ok(link::Outages::Contacts(windows(contacts))),
            _ => Err(SpecError::invalid(
                "link: give one of `outages`, `outage_every` and `contacts`, not several",
            )),
        }
    }

    fn errors(&self) -> Result<Vec<link::ErrorModel>, SpecError> {
        use link::ErrorKind;
        let positive = |p: Option<Probability>| p.map(Probability::value).filter(|p| *p > 0.0);
        let kinds = [
            positive(self.per).map(ErrorKind::PerPacket),
            positive(self.ber).map(ErrorKind::BitErrorRate),
            self.burst.map(Burst::model),
            self.drop.clone().filter(|drop| !drop.is_empty()).map(ErrorKind::DropList),
            self.loss_times
                .as_ref()
                .map(|times| ErrorKind::LossTimes(times.iter().map(window).collect())),
            self.error_vector.clone().map(|vector| {
                ErrorKind::Vector(link::ErrorVector { period: vector.bits, errors: vector.errors })
            }),
            self.trace.as_ref().map(Trace::model).transpose()?,
        ];
        let on_error = match self.on_error.unwrap_or_default() {
            OnError::Drop => link::OnError::Drop,
            OnError::Damage => link::OnError::Damage,
        };
        let model = |kind| link::ErrorModel { kind, on_error };
        Ok(kinds.into_iter().flatten().map(model).collect())
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
        // Where somebody looks at the bytes, an estimate is not needed.
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

impl Trace {
    fn model(&self) -> Result<link::ErrorKind, SpecError> {
        let fate = |fate: char| match fate {
            'x' => Ok(true),
            '.' => Ok(false),
            other => Err(SpecError::invalid(format!(
                "link: {other:?} in `trace`; a fate is `x` (struck) or `.`"
            ))),
        };
        let fates = self.fates.chars().filter(|fate| !fate.is_whitespace());
        let struck = fates.map(fate).collect::<Result<_, _>>()?;
        Ok(link::ErrorKind::Trace { struck, repeat: self.repeat })
    }
}

impl Burst {
    fn model(self) -> link::ErrorKind {
        let state = |loss: Probability, ber: Probability| link::StateErrors {
            loss: loss.value(),
            ber: ber.value(),
        };
        link::ErrorKind::GilbertElliott {
            p_gb: self.to_bad.value(),
            p_bg: self.to_good.value(),
            good: state(self.good_per, self.good_ber),
            bad: state(self.bad_per, self.bad_ber),
        }
    }
}

/// A moment of the scenario's clock.
pub fn time(at: Span) -> Time {
    Time::ZERO + at.duration()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_becomes_a_link() {
        let spec: LinkSpec = transport::text::parse(
            r#"
            rate = "1.024 Mbit/s"
            delay = "1250 ms"
            framing = "ethernet"
            per_packet = "60 us"
            release = "first-bit"
            queue = "64 KiB"
            outages = [{ at = "10 s", for = "30 s" }]
            per = "1e-4"
            drop = [3, 17]
            on_error = "damage"
            "#,
            "test",
        )
        .unwrap();
        let config = spec.config().unwrap();
        assert_eq!(config.rate, link::Rate::Constant(1_024_000));
        assert_eq!(config.release, link::Release::FirstBit);
        assert_eq!(config.queue, link::Queue { packets: None, bytes: Some(65_536) });
        assert_eq!(config.errors.len(), 2);
        assert!(config.errors.iter().all(|e| e.on_error == link::OnError::Damage));
        assert!(!config.outages.is_up(Time::from_secs(39)));
        assert!(config.outages.is_up(Time::from_secs(40)));
        assert_eq!(spec.payload_max(), 1472);
    }

    #[test]
    fn a_datagram_that_does_not_fit_the_mtu_is_refused_with_the_limit() {
        let spec = |mtu, datagram| LinkSpec {
            mtu: Some(Size(mtu)),
            datagram: Some(Size(datagram)),
            ..LinkSpec::default()
        };
        assert!(spec(1280, 1252).config().is_ok());
        let error = spec(1280, 1253).config().unwrap_err().to_string();
        assert!(error.contains("`datagram` is 1253 B"), "{error}");
        assert!(error.contains("hold at most 1252 B"), "{error}");
        assert!(error.contains("a smaller datagram or a larger MTU"), "{error}");
    }

    #[test]
    fn resolved_tables_read_back() {
        let spec = LinkSpec {
            rate: Some(Rate(8_000_000)),
            burst: Some(Burst {
                to_bad: Probability(0.01),
                to_good: Probability(0.3),
                good_per: Probability(0.0),
                good_ber: Probability(1e-9),
                bad_per: Probability(0.5),
                bad_ber: Probability(0.0),
            }),
            ..LinkSpec::default()
        }
        .resolved();
        let text = toml::to_string(&spec).unwrap();
        assert!(text.contains("mtu = \"1500 B\""), "{text}");
        assert_eq!(transport::text::parse::<LinkSpec>(&text, "resolved").unwrap(), spec);
    }

    #[test]
    fn the_way_back_differs_where_it_says_so() {
        let spec: LinkSpec = transport::text::parse(
            "rate = \"4 Mbit/s\"\ndelay = \"182 s\"\nreturn = { rate = \"64 kbit/s\" }",
            "test",
        )
        .unwrap();
        let back = spec.way_back();
        assert_eq!((back.rate, back.delay), (Some(Rate(64_000)), spec.delay));
        assert_eq!(back.back, None);
    }

    #[test]
    fn times_of_one_kind_replace_those_of_another() {
        let [list, contacts]: [LinkSpec; 2] = ["outages", "contacts"].map(|key| {
            let text = format!("{key} = [{{ at = \"10 s\", for = \"30 s\" }}]");
            transport::text::parse(&text, "test").unwrap()
        });
        let layered = list.clone().over(&contacts);
        assert_eq!((&layered.outages, &layered.contacts), (&list.outages, &None));
        layered.config().unwrap();
        let kept = LinkSpec { per: Some(Probability(0.1)), ..LinkSpec::default() }.over(&contacts);
        assert_eq!(kept.contacts, contacts.contacts);
    }

    #[test]
    fn listed_losses_are_of_one_direction() {
        let spec: LinkSpec = transport::text::parse(
            r#"
            drop = [3]
            loss_times = [{ at = "0 s", for = "2 s" }]
            error_vector = { bits = 100, errors = [5] }
            trace = { fates = "..x" }
            per = "1e-4"
            return = { drop = [7] }
            "#,
            "test",
        )
        .unwrap();
        assert_eq!(spec.config().unwrap().errors.len(), 5);
        let back = spec.way_back();
        assert_eq!((back.per, &back.drop), (spec.per, &Some(vec![7])));
        assert_eq!(back.config().unwrap().errors.len(), 2);
    }

    #[test]
    fn ppp_compresses_headers_where_it_is_told_to() {
        let config = |text: &str| {
            let spec: LinkSpec = transport::text::parse(text, "test").unwrap();
            let again = toml::to_string(&spec).unwrap();
            assert_eq!(transport::text::parse::<LinkSpec>(&again, "again").unwrap(), spec);
            spec.config().map_err(|error| error.to_string())
        };
        let ppp = |stuffing, serial| link::Framing::Ppp {
            fcs: link::Fcs::Bits16,
            compressed: false,
            stuffing,
            serial,
        };
        let plain = config("framing = \"ppp\"").unwrap();
        assert_eq!(plain.framing, ppp(link::Stuffing::Random, false));
        assert_eq!(plain.header_compression, None);
        let compressed = config("framing = \"ppp\"\nheader_compression = true").unwrap();
        assert_eq!(compressed.framing, ppp(link::Stuffing::Exact, false));
        let slots = link::HeaderCompression { max: 15, may_omit: true };
        assert_eq!(compressed.header_compression, Some(slots));
        let serial = config("framing = \"ppp-async\"\nheader_compression = false").unwrap();
        assert_eq!(serial.framing, ppp(link::Stuffing::Exact, true));
        assert_eq!(serial.header_compression, None);
        let short = config("framing = \"ppp-async-compressed\"").unwrap();
        // Two flags, one octet of protocol, two of check sequence; ten bits for eight: 105 * 10 / 8.
        assert_eq!(short.framing.framed_len(100), 132);
        let refused = config("header_compression = true").unwrap_err();
        assert!(refused.contains("header compression needs the framing of PPP"), "{refused}");
    }

    #[test]
    fn packets_that_are_overtaken_are_said_in_a_table_or_in_a_word() {
        let spec: LinkSpec =
            transport::text::parse("reorder = { probability = \"0.02\", by = \"20 ms\" }", "test")
                .unwrap();
        let by = std::time::Duration::from_millis(20);
        assert_eq!(spec.config().unwrap().reorder, Some(link::Reorder { probability: 0.02, by }));
        assert_eq!("0.02+20 ms".parse().ok(), spec.reorder);
        let never = LinkSpec { reorder: "0+20 ms".parse().ok(), ..LinkSpec::default() };
        assert_eq!(never.config().unwrap().reorder, None);
        for wrong in ["0.02", "0.02+", "2+20 ms", "+20 ms", "0.02+20"] {
            assert!(wrong.parse::<Reorder>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_trace_is_replayed() {
        let spec: LinkSpec =
            transport::text::parse("trace = { fates = \"..x\\n .x\", repeat = true }", "test")
                .unwrap();
        let struck = vec![false, false, true, false, true];
        let kind = link::ErrorKind::Trace { struck, repeat: true };
        assert_eq!(spec.config().unwrap().errors, [link::ErrorModel::dropping(kind)]);
        let text = toml::to_string(&spec).unwrap();
        assert_eq!(transport::text::parse::<LinkSpec>(&text, "again").unwrap(), spec);
    }

    #[test]
    fn contradictions_are_refused() {
        let refused = |text: &str| {
            let spec: LinkSpec = transport::text::parse(text, "test").unwrap();
            spec.config().unwrap_err().to_string()
        };
        assert!(
            refused("outages = [{at = \"1 s\", for = \"1 s\"}]\ncontacts = []")
                .contains("not several")
        );
        assert!(refused("outage_every = {period = \"1 s\", down = \"2 s\"}").contains("shorter"));
        let empty = "outages = [{at = \"1 s\", for = \"0 s\"}]";
        assert!(refused(empty).contains("outages: window 1 lasts no time"));
        let overlap = "[{at = \"1 s\", for = \"2 s\"}, {at = \"2 s\", for = \"2 s\"}]";
        for key in ["outages", "contacts", "loss_times"] {
            let text = refused(&format!("{key} = {overlap}"));
            assert!(text.contains("window 2 begins before the end of"), "{text}");
            assert!(text.contains(&key.replace('_', " ")), "{text}");
        }
        assert!(refused("mtu = \"59 B\"").contains("less than 60 B"));
        assert!(refused("datagram = \"0 B\"").contains("less than 32 B"));
        assert!(refused("trace = { fates = \"01\" }").contains("`x` (struck) or `.`"));
        assert!("0".parse::<Queue>().unwrap_err().to_string().contains("1000 packets"));
        assert!("10 s".parse::<Window>().is_err());
        let empty = "1 min+0 s".parse::<Window>().unwrap_err().to_string();
        assert!(empty.contains("\"1 min+0 s\" lasts no time"), "{empty}");
        let error =
            transport::text::parse::<LinkSpec>("queue = 5", "test").unwrap_err().to_string();
        assert!(error.contains("5 has no unit") && error.contains("\"5 packets\""), "{error}");
        assert!("many packets".parse::<Queue>().unwrap_err().to_string().contains("1000 packets"));
    }
}
