//! Error models: loss and damage of packets.

use engine::{Rng, Time};

use crate::config::{ascending, probability};
use crate::{ConfigError, Damage, Fate, Window};

/// One source of errors and its effect on the packets it strikes.
#[derive(Clone, Debug, PartialEq)]
pub struct ErrorModel {
    /// Condition under which it strikes.
    pub kind: ErrorKind,
    /// Effect on a struck packet.
    pub on_error: OnError,
}

impl ErrorModel {
    /// Creates a source of errors under a link layer with a checksum: struck packets are lost.
    #[must_use]
    pub fn dropping(kind: ErrorKind) -> Self {
        Self { kind, on_error: OnError::Drop }
    }

    /// Creates a source of errors under a link layer without a checksum: struck packets arrive
    /// damaged.
    #[must_use]
    pub fn damaging(kind: ErrorKind) -> Self {
        Self { kind, on_error: OnError::Damage }
    }
}

/// Effect on a packet that an error strikes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// Loss, wherever in the frame the error is.
    #[default]
    Drop,
    /// Arrival with the bits flipped. Errors in the frame around the packet flip nothing and lose
    /// nothing. Models that strike packets and not bits flip one random bit of the packet.
    Damage,
}

/// Condition under which errors strike. Packets are judged in the order of transmission.
#[derive(Clone, Debug, PartialEq)]
pub enum ErrorKind {
    /// Strikes each packet with this probability, at any length. This is not a bit error rate,
    /// although some emulators call it one.
    PerPacket(f64),
    /// Strikes each bit of the frame with this probability, so a frame of n bits is struck with 1 −
    /// (1 − b)^n. The distance to the next bit in error is drawn and counted down over the packets,
    /// so error-free packets cost one subtraction.
    BitErrorRate(f64),
    /// A stored pattern, repeated over the stream of frame bits.
    Vector(ErrorVector),
    /// Two states, left with the given probability after each packet. The first state is drawn from
    /// the stationary distribution: bad with `p_gb / (p_gb + p_bg)`, good if both are 0.
    GilbertElliott {
        /// Probability of a transition from good to bad.
        p_gb: f64,
        /// Probability of a transition from bad to good; bad runs last `1 / p_bg` packets on
        /// average.
        p_bg: f64,
        /// Errors in the good state.
        good: StateErrors,
        /// Errors in the bad state.
        bad: StateErrors,
    },
    /// Strikes exactly the packets with these ascending numbers, counted from 0 in the order in
    /// which transmissions start.
    DropList(Vec<u64>),
    /// Fates of successive packets, `true` for struck.
    Trace {
        /// One entry per packet.
        struck: Vec<bool>,
        /// Whether to repeat the trace; otherwise nothing is struck after its end.
        repeat: bool,
    },
    /// Strikes every packet that leaves the near end within one of these windows.
    LossTimes(Vec<Window>),
}

impl ErrorKind {
    /// Whether the model can never strike: a probability of 0, or an empty list of packets.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        match self {
            Self::PerPacket(p) | Self::BitErrorRate(p) => *p == 0.0,
            Self::DropList(list) => list.is_empty(),
            Self::Vector(_)
            | Self::GilbertElliott { .. }
            | Self::Trace { .. }
            | Self::LossTimes(_) => false,
        }
    }

    /// Whether the model is drawn at random; the other models strike the same packets with every
    /// seed.
    #[must_use]
    pub fn is_drawn(&self) -> bool {
        !self.is_positional()
    }

    /// Whether the model lists positions (packets, bits or times) of this direction, which have no
    /// meaning in another one.
    #[must_use]
    pub fn is_positional(&self) -> bool {
        match self {
            Self::PerPacket(_) | Self::BitErrorRate(_) | Self::GilbertElliott { .. } => false,
            Self::Vector(_) | Self::DropList(_) | Self::Trace { .. } | Self::LossTimes(_) => true,
        }
    }

    /// Whether the model is drawn and strikes short packets less often than long ones.
    #[must_use]
    pub fn depends_on_length(&self) -> bool {
        match self {
            Self::BitErrorRate(_) => true,
            Self::GilbertElliott { good, bad, .. } => good.ber > 0.0 || bad.ber > 0.0,
            Self::PerPacket(_)
            | Self::Vector(_)
            | Self::DropList(_)
            | Self::Trace { .. }
            | Self::LossTimes(_) => false,
        }
    }

    /// Returns the probabilities of independent random errors, 0 for a model without random errors;
    /// `None` if errors depend on earlier ones.
    #[must_use]
    pub fn independent(&self) -> Option<StateErrors> {
        match *self {
            Self::PerPacket(loss) => Some(StateErrors { loss, ber: 0.0 }),
            Self::BitErrorRate(ber) => Some(StateErrors { loss: 0.0, ber }),
            Self::GilbertElliott { .. } => None,
            Self::Vector(_) | Self::DropList(_) | Self::Trace { .. } | Self::LossTimes(_) => {
                Some(StateErrors::default())
            }
        }
    }
}

/// Cause of a packet's loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LossCause {
    /// The queue was full.
    QueueFull,
    /// The link was down, or went down during the packet's transmission.
    Outage,
    /// [`ErrorKind::PerPacket`].
    PerPacket,
    /// [`ErrorKind::BitErrorRate`].
    BitErrors,
    /// [`ErrorKind::Vector`].
    ErrorVector,
    /// [`ErrorKind::GilbertElliott`].
    Burst,
    /// [`ErrorKind::DropList`].
    DropList,
    /// [`ErrorKind::Trace`] or [`ErrorKind::LossTimes`].
    Trace,
}

impl LossCause {
    /// Every cause, in the order of declaration.
    pub const ALL: [Self; 8] = [
        Self::QueueFull,
        Self::Outage,
        Self::PerPacket,
        Self::BitErrors,
        Self::ErrorVector,
        Self::Burst,
        Self::DropList,
        Self::Trace,
    ];

    /// Returns a short name for traces and tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::QueueFull => "queue full",
            Self::Outage => "outage",
            Self::PerPacket => "per packet",
            Self::BitErrors => "bit errors",
            Self::ErrorVector => "error vector",
            Self::Burst => "burst",
            Self::DropList => "drop list",
            Self::Trace => "trace",
        }
    }

    /// Whether the cause is an error of the link: neither a full queue nor an outage.
    #[must_use]
    pub fn is_error(self) -> bool {
        !matches!(self, Self::QueueFull | Self::Outage)
    }

    /// Whether the cause is an error drawn independently for each packet
    /// ([`ErrorKind::independent`]).
    #[must_use]
    pub fn is_independent(self) -> bool {
        matches!(self, Self::PerPacket | Self::BitErrors)
    }
}

/// Random errors in one state of a channel: its only state, or one of two
/// ([`ErrorKind::GilbertElliott`]). Both fields may be set.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StateErrors {
    /// Probability that a packet is struck.
    pub loss: f64,
    /// Probability that a bit of the frame is struck.
    pub ber: f64,
}

/// A pattern of bit errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorVector {
    /// Length in bits, not 0.
    pub period: u64,
    /// Bits in error, ascending, each below `period`.
    pub errors: Vec<u64>,
}

impl ErrorVector {
    /// Creates a pattern from bytes; ones are errors, the most significant bit first.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let bits = (0..bytes.len() as u64 * 8)
            .filter(|bit| bytes[(bit / 8) as usize] & (0x80 >> (bit % 8)) != 0);
        Self { period: bytes.len() as u64 * 8, errors: bits.collect() }
    }
}

impl ErrorModel {
    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        match &self.kind {
            ErrorKind::PerPacket(p) => probability("per-packet error", *p),
            ErrorKind::BitErrorRate(b) => probability("bit error rate", *b),
            ErrorKind::Vector(vector) => vector.validate(),
            ErrorKind::GilbertElliott { p_gb, p_bg, good, bad } => {
                probability("p_gb", *p_gb)?;
                probability("p_bg", *p_bg)?;
                for state in [good, bad] {
                    probability("loss", state.loss)?;
                    probability("ber", state.ber)?;
                }
                Ok(())
            }
            ErrorKind::DropList(list) if list.is_empty() => Ok(()),
            ErrorKind::DropList(list) => ascending("drop list", list.iter().copied()),
            ErrorKind::Trace { struck, .. } if struck.is_empty() => {
                Err(ConfigError::Empty { what: "trace" })
            }
            ErrorKind::Trace { .. } => Ok(()),
            ErrorKind::LossTimes(windows) => crate::outages::ascending("loss times", windows),
        }
    }
}

impl ErrorVector {
    fn validate(&self) -> Result<(), ConfigError> {
        if self.period == 0 {
            return Err(ConfigError::Empty { what: "error vector" });
        }
        if let Some(&bit) = self.errors.iter().find(|bit| **bit >= self.period) {
            return Err(ConfigError::OutsideVector { bit, period: self.period });
        }
        if self.errors.is_empty() {
            return Ok(());
        }
        ascending("error vector", self.errors.iter().copied())
    }
}

/// Bits of one frame that can be in error: header, packet, trailer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameBits {
    pub(crate) total: u64,
    pub(crate) header: u64,
    pub(crate) packet: u64,
}

/// All models of one link, with their state.
#[derive(Debug)]
pub(crate) struct Errors {
    models: Vec<Model>,
    /// Transmissions started.
    index: u64,
    spare: Vec<Vec<u32>>,
}

impl Errors {
    /// Creates the models, each with its own generator, so adding a model changes no other.
    pub(crate) fn new(models: &[ErrorModel], rng: &mut Rng, index: u64) -> Self {
        let model = |model: &ErrorModel| Model::new(model, Rng::new(rng.next_u64(), "errors"));
        Self { models: models.iter().map(model).collect(), index, spare: Vec::new() }
    }

    /// Number of transmissions judged so far.
    pub(crate) fn index(&self) -> u64 {
        self.index
    }

    /// Takes back the memory of applied damage.
    pub(crate) fn recycle(&mut self, damage: Damage) {
        self.spare.extend(damage.into_room());
    }

    /// Returns the fate of the next frame, which leaves the near end at `released`.
    pub(crate) fn judge(&mut self, released: Time, frame: FrameBits) -> Fate {
        let mut verdict = Verdict { lost: None, damage: Damage::default(), spare: &mut self.spare };
        for model in &mut self.models {
            model.judge(self.index, released, frame, &mut verdict);
        }
        self.index += 1;
        let Verdict { lost, damage, .. } = verdict;
        match lost {
            Some(cause) => {
                self.recycle(damage);
                Fate::Lost(cause)
            }
            None if damage.is_empty() => Fate::Delivered,
            None => Fate::Damaged(damage),
        }
    }
}

/// Errors found for one frame so far.
struct Verdict<'a> {
    lost: Option<LossCause>,
    damage: Damage,
    spare: &'a mut Vec<Vec<u32>>,
}

#[derive(Debug)]
struct Model {
    state: State,
    on_error: OnError,
    rng: Rng,
}

#[derive(Debug)]
enum State {
    /// `clean` packets pass before the next one is struck.
    PerPacket {
        p: f64,
        clean: u64,
    },
    /// `clean` bits pass before the next one is in error.
    Bits {
        ber: f64,
        clean: u64,
    },
    Vector {
        vector: ErrorVector,
        next: usize,
        clean: u64,
    },
    /// `left` packets, at least one, remain in this state.
    Burst {
        bad: bool,
        left: u64,
        exit: [f64; 2],
        errors: [StateErrors; 2],
        clean: [u64; 2],
    },
    List {
        list: Vec<u64>,
        next: usize,
    },
    Trace {
        struck: Vec<bool>,
        repeat: bool,
        next: usize,
    },
    Times(Vec<Window>),
}

impl Model {
    fn new(model: &ErrorModel, mut rng: Rng) -> Self {
        let state = match &model.kind {
            ErrorKind::PerPacket(p) => State::PerPacket { p: *p, clean: rng.geometric(*p) },
            ErrorKind::BitErrorRate(b) => State::Bits { ber: *b, clean: rng.geometric(*b) },
            ErrorKind::Vector(vector) => State::Vector {
                clean: vector.errors.first().copied().unwrap_or(u64::MAX),
                vector: vector.clone(),
                next: 0,
            },
            ErrorKind::GilbertElliott { p_gb, p_bg, good, bad } => {
                let exit = [*p_gb, *p_bg];
                // Without transitions the share is 0 / 0, which is NaN, and no draw is below NaN.
                let start_bad = rng.unit() < p_gb / (p_gb + p_bg);
                State::Burst {
                    bad: start_bad,
                    left: rng.geometric(exit[usize::from(start_bad)]).saturating_add(1),
                    exit,
                    errors: [*good, *bad],
                    clean: [rng.geometric(good.ber), rng.geometric(bad.ber)],
                }
            }
            ErrorKind::DropList(list) => State::List { list: list.clone(), next: 0 },
            ErrorKind::Trace { struck, repeat } => {
                State::Trace { struck: struck.clone(), repeat: *repeat, next: 0 }
            }
            ErrorKind::LossTimes(windows) => State::Times(windows.clone()),
        };
        Self { state, on_error: model.on_error, rng }
    }

    fn judge(&mut self, index: u64, released: Time, frame: FrameBits, verdict: &mut Verdict<'_>) {
        let Self { state, on_error, rng } = self;
        let mut strike = Strike { on_error: *on_error, frame, verdict };
        match state {
            State::PerPacket { p, clean } => match clean.checked_sub(1) {
                Some(rest) => *clean = rest,
                None => {
                    *clean = rng.geometric(*p);
                    strike.packet(LossCause::PerPacket, rng);
                }
            },
            State::Bits { ber, clean } => {
                strike.random_bits(LossCause::BitErrors, *ber, clean, rng);
            }
            State::Vector { vector, next, clean } => {
                strike.bits(LossCause::ErrorVector, clean, || vector_gap(vector, next));
            }
            State::Burst { bad, left, exit, errors, clean } => {
                let now = usize::from(*bad);
                let StateErrors { loss, ber } = errors[now];
                if loss > 0.0 && rng.chance(loss) {
                    strike.packet(LossCause::Burst, rng);
                }
                strike.random_bits(LossCause::Burst, ber, &mut clean[now], rng);
                *left -= 1;
                if *left == 0 {
                    *bad = !*bad;
                    *left = rng.geometric(exit[usize::from(*bad)]).saturating_add(1);
                }
            }
            State::List { list, next } => {
                while list.get(*next).is_some_and(|listed| *listed < index) {
                    *next += 1;
                }
                if list.get(*next) == Some(&index) {
                    strike.packet(LossCause::DropList, rng);
                }
            }
            State::Trace { struck, repeat, next } => {
                if struck.get(*next) == Some(&true) {
                    strike.packet(LossCause::Trace, rng);
                }
                *next = (*next + 1).min(struck.len());
                if *repeat && *next == struck.len() {
                    *next = 0;
                }
            }
            State::Times(windows) => {
                let open = windows.partition_point(|window| window.end <= released);
                if windows.get(open).is_some_and(|window| window.start <= released) {
                    strike.packet(LossCause::Trace, rng);
                }
            }
        }
    }
}

/// Returns the clean bits between the error at index `next` and the one after it, and advances
/// `next` to the latter.
fn vector_gap(vector: &ErrorVector, next: &mut usize) -> u64 {
    let here = vector.errors[*next];
    *next += 1;
    if let Some(following) = vector.errors.get(*next) {
        return following - here - 1;
    }
    *next = 0;
    vector.period - here - 1 + vector.errors[0]
}

/// One model striking one frame.
struct Strike<'a, 'b> {
    on_error: OnError,
    frame: FrameBits,
    verdict: &'a mut Verdict<'b>,
}

impl Strike<'_, '_> {
    /// Strikes the packet as a whole.
    fn packet(&mut self, cause: LossCause, rng: &mut Rng) {
        let bit = self.frame.header + rng.below(self.frame.packet);
        self.bit(cause, bit);
    }

    fn bit(&mut self, cause: LossCause, bit: u64) {
        match self.on_error {
            OnError::Drop => {
                self.verdict.lost.get_or_insert(cause);
            }
            OnError::Damage => {
                if let Some(bit) = bit.checked_sub(self.frame.header)
                    && bit < self.frame.packet
                {
                    self.verdict.damage.flip(bit, self.verdict.spare);
                }
            }
        }
    }

    fn random_bits(&mut self, cause: LossCause, ber: f64, clean: &mut u64, rng: &mut Rng) {
        if *clean >= self.frame.total {
            *clean -= self.frame.total;
            return;
        }
        match self.on_error {
            // Further errors in a lost frame do not matter, and the wait for the next error is
            // memoryless: it may as well start after the frame.
            OnError::Drop => {
                self.bit(cause, *clean);
                *clean = rng.geometric(ber);
            }
            OnError::Damage => self.bits(cause, clean, || rng.geometric(ber)),
        }
    }

    /// Strikes every bit in error of this frame: the first after `clean` bits, each further one
    /// after `gap()` bits.
    fn bits(&mut self, cause: LossCause, clean: &mut u64, mut gap: impl FnMut() -> u64) {
        let mut position = *clean;
        while position < self.frame.total {
            self.bit(cause, position);
            position = gap().saturating_add(position + 1);
        }
        *clean = position - self.frame.total;
    }
}
