//! A CFDP entity's management information base as TOML.
//!
//! ```toml
//! entity = 1
//! [default]                 # what holds for every remote entity
//! nak_mode = "deferred"
//! [remotes.2]               # and what differs for entity 2
//! ack_timer = "50 s"
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use proto::cfdp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use wire::cfdp::{ChecksumType, ConditionCode, FaultHandler, TransmissionMode, Version, Width};

use crate::quantity::{QuantityError, Rate, Size, Span};
use crate::text::SpecError;

/// What a user says about an entity; what is left out stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Mib {
    /// The entity's own number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entity: Option<u64>,
    /// Octets of the sequence numbers it gives, 1 to 8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sequence_octets: Option<u8>,
    /// The first sequence number it gives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_sequence: Option<u64>,
    /// Whether an incomplete file is delivered when its transaction ends early.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_incomplete: Option<bool>,
    /// When the progress of a reception is saved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub journal: Option<Journal>,
    /// Bounds on what the entity holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
    /// What to do about each fault, by its condition.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub faults: BTreeMap<Condition, Handler>,
    /// What holds for every remote entity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<Remote>,
    /// What differs for some, by their numbers.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub remotes: BTreeMap<String, Remote>,
}

/// When the progress of a reception is saved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Journal {
    /// Whether anything is saved at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// After this many new bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<Size>,
    /// After this time, if there are new bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<Span>,
}

/// Bounds on what an entity holds (see [`cfdp::Limits`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Transactions under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transactions: Option<usize>,
    /// Finished transactions remembered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished: Option<usize>,
    /// Gaps tracked in a reception.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gaps: Option<usize>,
    /// Received data that waits to be written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_buffer: Option<Size>,
    /// Data collected into one write.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_piece: Option<Size>,
    /// Data read ahead of what is sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_ahead: Option<Size>,
    /// Data asked for in one read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_piece: Option<Size>,
    /// Options of one Metadata PDU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub options: Option<usize>,
    /// Answers that wait to be sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replies: Option<usize>,
}

/// What holds for a remote entity (see [`cfdp::Remote`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Remote {
    /// Transmission class: 1 unacknowledged, 2 acknowledged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<Class>,
    /// Issue of the book: 0 for issues 1 to 4, 1 for issue 5.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<BookVersion>,
    /// Whether unacknowledged puts ask for closure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closure: Option<bool>,
    /// Checksum type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checksum: Option<Checksum>,
    /// Whether each PDU carries a CRC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crc: Option<bool>,
    /// Octets of entity numbers, 1 to 8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entity_octets: Option<u8>,
    /// Most file data in a PDU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub segment_max: Option<Size>,
    /// Largest PDU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub datagram_max: Option<Size>,
    /// When missing data is asked for: `immediate`, `deferred`, `prompted`, or a time for
    /// asynchronous NAKs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nak_mode: Option<NakMode>,
    /// Most gaps in one NAK.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nak_gaps_max: Option<usize>,
    /// Most copies of a repair; 1 sends none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repair_copies: Option<u32>,
    /// Time to wait for an ACK, or `auto`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ack_timer: Option<Timer>,
    /// EOF or Finished PDUs sent without an ACK before it is a fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ack_limit: Option<u32>,
    /// Time to wait for what a NAK asked for, or `auto`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nak_timer: Option<Timer>,
    /// NAK rounds without progress before it is a fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nak_limit: Option<u32>,
    /// Silence after which a transaction is faulty, or `auto`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inactivity: Option<Timer>,
    /// Time between checks of an unacknowledged file, or `auto`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check_timer: Option<Timer>,
    /// Checks before it is a fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check_limit: Option<u32>,
    /// Time between Keep Alive PDUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_alive: Option<Span>,
    /// How far the receiver may be behind before it is a fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_alive_discrepancy: Option<Size>,
    /// Time between prompts for a NAK.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt: Option<Span>,
    /// Time after which a silent sender repeats its EOF, or `auto`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probe: Option<Timer>,
    /// Rate to pace at; `"0"` does not pace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// The round trip assumed before it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initial_rtt: Option<Span>,
}

/// Declares an enumeration of names that stand for values of another type.
macro_rules! named {
    ($(#[$about:meta])* $name:ident, $target:ty { $($(#[$doc:meta])* $variant:ident => $value:expr,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum $name {
            $($(#[$doc])* $variant,)+
        }

        impl $name {
            /// Every one there is.
            pub const ALL: &[Self] = &[$(Self::$variant,)+];
        }

        impl From<$name> for $target {
            fn from(name: $name) -> Self {
                match name {
                    $($name::$variant => $value,)+
                }
            }
        }
    };
}

named! {
    /// A fault (CCSDS 727.0-B-5 table 5-5).
    Condition, ConditionCode {
        /// Nobody acknowledged in time.
        AckLimit => ConditionCode::PositiveAckLimitReached,
        /// The receiver is too far behind.
        KeepAliveLimit => ConditionCode::KeepAliveLimitReached,
        /// The transmission mode cannot be used.
        InvalidMode => ConditionCode::InvalidTransmissionMode,
        /// The filestore refused.
        FilestoreRejection => ConditionCode::FilestoreRejection,
        /// The file does not match its checksum.
        ChecksumFailure => ConditionCode::FileChecksumFailure,
        /// Data beyond the end of the file.
        FileSizeError => ConditionCode::FileSizeError,
        /// Retransmission was asked for too often.
        NakLimit => ConditionCode::NakLimitReached,
        /// Nothing came for too long.
        Inactivity => ConditionCode::InactivityDetected,
        /// The file stayed incomplete.
        CheckLimit => ConditionCode::CheckLimitReached,
        /// The checksum type is not supported.
        UnsupportedChecksum => ConditionCode::UnsupportedChecksumType,
    }
}

named! {
    /// What to do about a fault.
    Handler, FaultHandler {
        /// Cancel the transaction.
        Cancel => FaultHandler::Cancel,
        /// Suspend it.
        Suspend => FaultHandler::Suspend,
        /// Go on.
        Ignore => FaultHandler::Ignore,
        /// Forget it at once.
        Abandon => FaultHandler::Abandon,
    }
}

named! {
    /// How a file's checksum is computed.
    Checksum, ChecksumType {
        /// Sum of 32-bit words.
        Modular => ChecksumType::Modular,
        /// CRC-32 of Proximity-1.
        Proximity1 => ChecksumType::Proximity1Crc32,
        /// CRC-32C.
        Crc32c => ChecksumType::Crc32c,
        /// CRC-32 of IEEE 802.3.
        Crc32 => ChecksumType::Crc32,
        /// None.
        Null => ChecksumType::Null,
    }
}

/// A transmission class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Class 1.
    Unacknowledged,
    /// Class 2.
    Acknowledged,
}

impl From<Class> for TransmissionMode {
    fn from(class: Class) -> Self {
        match class {
            Class::Unacknowledged => Self::Unacknowledged,
            Class::Acknowledged => Self::Acknowledged,
        }
    }
}

/// The version bits of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BookVersion {
    /// Issues 1 to 4.
    Old,
    /// Issue 5.
    Current,
}

/// Reads and writes a two-valued setting as one of two numbers.
macro_rules! numbered {
    ($name:ident, $what:literal, $low:literal $low_variant:ident, $high:literal $high_variant:ident) => {
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_u8(match self {
                    Self::$low_variant => $low,
                    Self::$high_variant => $high,
                })
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                match u8::deserialize(deserializer)? {
                    $low => Ok(Self::$low_variant),
                    $high => Ok(Self::$high_variant),
                    other => Err(serde::de::Error::custom(format!(
                        concat!($what, " is ", $low, " or ", $high, ", not {}"),
                        other
                    ))),
                }
            }
        }
    };
}

numbered!(Class, "class", 1 Unacknowledged, 2 Acknowledged);
numbered!(BookVersion, "version", 0 Old, 1 Current);

/// A time, or `auto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timer {
    /// From light time and measurements.
    Auto,
    /// Always this long.
    Fixed(Span),
}

impl From<Timer> for cfdp::Timer {
    fn from(timer: Timer) -> Self {
        match timer {
            Timer::Auto => Self::Auto,
            Timer::Fixed(span) => Self::Fixed(span.duration()),
        }
    }
}

impl From<cfdp::Timer> for Timer {
    fn from(timer: cfdp::Timer) -> Self {
        match timer {
            cfdp::Timer::Auto => Self::Auto,
            cfdp::Timer::Fixed(duration) => Self::Fixed(Span(duration)),
        }
    }
}

impl Serialize for Timer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str("auto"),
            Self::Fixed(span) => span.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Timer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match String::deserialize(deserializer)?.as_str() {
            "auto" => Ok(Self::Auto),
            text => text.parse().map(Self::Fixed).map_err(serde::de::Error::custom),
        }
    }
}

/// When missing data is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NakMode {
    /// As soon as a gap shows.
    Immediate,
    /// When the end of the file was announced.
    Deferred,
    /// When the sender prompts for it.
    Prompted,
    /// At regular intervals.
    Asynchronous(Span),
}

impl From<NakMode> for cfdp::NakMode {
    fn from(mode: NakMode) -> Self {
        match mode {
            NakMode::Immediate => Self::Immediate,
            NakMode::Deferred => Self::Deferred,
            NakMode::Prompted => Self::Prompted,
            NakMode::Asynchronous(span) => Self::Asynchronous(span.duration()),
        }
    }
}

impl std::str::FromStr for NakMode {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        match text {
            "immediate" => Ok(Self::Immediate),
            "deferred" => Ok(Self::Deferred),
            "prompted" => Ok(Self::Prompted),
            _ => text.parse().map(Self::Asynchronous).map_err(|_| QuantityError::NotANumber {
                text: text.to_owned(),
                kind: "a NAK mode (immediate, deferred, prompted, or a time)",
                example: "deferred",
            }),
        }
    }
}

impl Serialize for NakMode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Immediate => serializer.serialize_str("immediate"),
            Self::Deferred => serializer.serialize_str("deferred"),
            Self::Prompted => serializer.serialize_str("prompted"),
            Self::Asynchronous(span) => span.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for NakMode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

fn width(octets: u8, key: &str) -> Result<Width, SpecError> {
    Width::new(octets)
        .ok_or_else(|| SpecError::invalid(format!("{key} is {octets}; it must be from 1 to 8")))
}

fn len(size: Size) -> usize {
    usize::try_from(size.bytes()).unwrap_or(usize::MAX)
}

/// Sets a field to a value that was given.
fn set<T, U: Into<T>>(field: &mut T, value: Option<U>) {
    if let Some(value) = value {
        *field = value.into();
    }
}

impl Mib {
    /// Reads the file at `path`.
    ///
    /// # Errors
    ///
    /// What is wrong with the file.
    pub fn read(path: &std::path::Path) -> Result<Self, SpecError> {
        crate::text::read(path)
    }

    /// Changes `config` to what is said here.
    ///
    /// # Errors
    ///
    /// When a value is out of its range.
    pub fn apply(&self, config: &mut cfdp::Config) -> Result<(), SpecError> {
        set(&mut config.entity, self.entity);
        if let Some(octets) = self.sequence_octets {
            config.sequence_width = width(octets, "sequence_octets")?;
        }
        if self.first_sequence.is_some() {
            config.first_sequence = self.first_sequence;
        }
        set(&mut config.keep_incomplete, self.keep_incomplete);
        if let Some(journal) = self.journal {
            set(&mut config.journal.enabled, journal.enabled);
            set(&mut config.journal.bytes, journal.bytes.map(Size::bytes));
            set(&mut config.journal.interval, journal.interval.map(Span::duration));
        }
        if let Some(limits) = self.limits {
            limits.apply(&mut config.limits);
        }
        for (condition, handler) in &self.faults {
            config.faults.set((*condition).into(), (*handler).into());
        }
        if let Some(default) = self.default {
            default.apply(&mut config.default_remote)?;
            for remote in config.remotes.values_mut() {
                default.apply(remote)?;
            }
        }
        for (number, remote) in &self.remotes {
            let id: u64 = number.parse().map_err(|_| {
                SpecError::invalid(format!("remotes.{number}: a remote entity has a number"))
            })?;
            let known = config.remotes.get(&id).unwrap_or(&config.default_remote).clone();
            remote.apply(config.remotes.entry(id).or_insert(known))?;
        }
        Ok(())
    }
}

impl Mib {
    /// Everything that `config` says of the entity and of remote entities in general. What is not
    /// set there, like a limit that does not exist, is left out.
    #[must_use]
    pub fn of(config: &cfdp::Config) -> Self {
        let handler = |condition: &Condition| {
            let handler = config.faults.get((*condition).into());
            Handler::ALL.iter().copied().find(|known| FaultHandler::from(*known) == handler)
        };
        let faults = Condition::ALL.iter().filter_map(|c| Some((*c, handler(c)?)));
        Self {
            entity: Some(config.entity),
            sequence_octets: Some(octets(config.sequence_width)),
            first_sequence: config.first_sequence,
            keep_incomplete: Some(config.keep_incomplete),
            journal: Some(Journal {
                enabled: Some(config.journal.enabled),
                bytes: Some(Size(config.journal.bytes)),
                interval: Some(Span(config.journal.interval)),
            }),
            limits: Some(Limits::of(&config.limits)),
            faults: faults.collect(),
            default: Some(Remote::of(&config.default_remote)),
            remotes: config
                .remotes
                .iter()
                .map(|(id, remote)| (id.to_string(), Remote::of(remote)))
                .collect(),
        }
    }
}

fn octets(width: Width) -> u8 {
    u8::try_from(width.octets()).unwrap_or(u8::MAX)
}

fn bytes(len: usize) -> Option<Size> {
    Some(Size(len as u64))
}

impl Limits {
    fn of(limits: &cfdp::Limits) -> Self {
        Self {
            transactions: Some(limits.transactions),
            finished: Some(limits.finished),
            gaps: Some(limits.gaps),
            write_buffer: bytes(limits.write_buffer),
            write_piece: bytes(limits.write_piece),
            read_ahead: bytes(limits.read_ahead),
            read_piece: bytes(limits.read_piece),
            options: Some(limits.options),
            replies: Some(limits.replies),
        }
    }

    fn apply(self, limits: &mut cfdp::Limits) {
        set(&mut limits.transactions, self.transactions);
        set(&mut limits.finished, self.finished);
        set(&mut limits.gaps, self.gaps);
        set(&mut limits.write_buffer, self.write_buffer.map(len));
        set(&mut limits.write_piece, self.write_piece.map(len));
        set(&mut limits.read_ahead, self.read_ahead.map(len));
        set(&mut limits.read_piece, self.read_piece.map(len));
        set(&mut limits.options, self.options);
        set(&mut limits.replies, self.replies);
    }
}

impl Remote {
    fn of(remote: &cfdp::Remote) -> Self {
        let checksums = Checksum::ALL.iter().copied();
        Self {
            class: Some(match remote.mode {
                TransmissionMode::Unacknowledged => Class::Unacknowledged,
                TransmissionMode::Acknowledged => Class::Acknowledged,
            }),
            version: Some(match remote.version {
                Version::V0 => BookVersion::Old,
                Version::V1 => BookVersion::Current,
            }),
            closure: Some(remote.closure),
            checksum: checksums.clone().find(|name| ChecksumType::from(*name) == remote.checksum),
            crc: Some(remote.crc),
            entity_octets: remote.entity_width.map(octets),
            segment_max: remote.segment_max.and_then(bytes),
            datagram_max: remote.datagram_max.and_then(bytes),
            nak_mode: Some(match remote.nak_mode {
                cfdp::NakMode::Immediate => NakMode::Immediate,
                cfdp::NakMode::Deferred => NakMode::Deferred,
                cfdp::NakMode::Prompted => NakMode::Prompted,
                cfdp::NakMode::Asynchronous(every) => NakMode::Asynchronous(Span(every)),
            }),
            nak_gaps_max: remote.nak_gaps_max,
            ack_timer: Some(remote.ack_timer.into()),
            ack_limit: Some(remote.ack_limit),
            nak_timer: Some(remote.nak_timer.into()),
            nak_limit: Some(remote.nak_limit),
            inactivity: Some(remote.inactivity.into()),
            check_timer: Some(remote.check_timer.into()),
            check_limit: Some(remote.check_limit),
            keep_alive: remote.keep_alive.map(Span),
            keep_alive_discrepancy: remote.keep_alive_discrepancy.map(Size),
            prompt: remote.prompt.map(Span),
            probe: Some(remote.probe.into()),
            repair_copies: Some(remote.repair_copies),
            rate: remote.rate_bps.map(Rate),
            initial_rtt: Some(Span(remote.initial_rtt)),
        }
    }

    fn apply(self, remote: &mut cfdp::Remote) -> Result<(), SpecError> {
        set(&mut remote.mode, self.class);
        set(
            &mut remote.version,
            self.version.map(|version| match version {
                BookVersion::Old => Version::V0,
                BookVersion::Current => Version::V1,
            }),
        );
        set(&mut remote.closure, self.closure);
        set(&mut remote.checksum, self.checksum);
        set(&mut remote.crc, self.crc);
        if let Some(octets) = self.entity_octets {
            remote.entity_width = Some(width(octets, "entity_octets")?);
        }
        set(&mut remote.segment_max, self.segment_max.map(|size| Some(len(size))));
        set(&mut remote.datagram_max, self.datagram_max.map(|size| Some(len(size))));
        set(&mut remote.nak_mode, self.nak_mode);
        set(&mut remote.nak_gaps_max, self.nak_gaps_max.map(Some));
        set(&mut remote.repair_copies, self.repair_copies);
        set(&mut remote.ack_timer, self.ack_timer);
        set(&mut remote.ack_limit, self.ack_limit);
        set(&mut remote.nak_timer, self.nak_timer);
        set(&mut remote.nak_limit, self.nak_limit);
        set(&mut remote.inactivity, self.inactivity);
        set(&mut remote.check_timer, self.check_timer);
        set(&mut remote.check_limit, self.check_limit);
        let span = |span: Option<Span>| span.map(|span| -> Option<Duration> { Some(span.0) });
        set(&mut remote.keep_alive, span(self.keep_alive));
        let discrepancy = self.keep_alive_discrepancy.map(|size| Some(size.bytes()));
        set(&mut remote.keep_alive_discrepancy, discrepancy);
        set(&mut remote.prompt, span(self.prompt));
        set(&mut remote.probe, self.probe);
        set(&mut remote.rate_bps, self.rate.map(|rate| Some(rate.bps())));
        set(&mut remote.initial_rtt, self.initial_rtt.map(Span::duration));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mib_changes_what_it_names() {
        let mib: Mib = crate::text::parse(
            r#"
            entity = 101
            sequence_octets = 4
            faults = { nak-limit = "suspend" }
            [default]
            nak_mode = "immediate"
            checksum = "modular"
            rate = "0"
            [remotes.102]
            class = 1
            version = 0
            ack_timer = "50 s"
            nak_mode = "10 s"
            nak_timer = "auto"
            segment_max = "997 B"
            [limits]
            read_ahead = "2 MiB"
            "#,
            "test",
        )
        .unwrap();
        let mut config = cfdp::Config::default();
        mib.apply(&mut config).unwrap();
        assert_eq!((config.entity, config.sequence_width), (101, Width::FOUR));
        assert_eq!(config.limits.read_ahead, 2 << 20);
        assert_eq!(config.faults.get(ConditionCode::NakLimitReached), FaultHandler::Suspend);
        let other = config.remote(7);
        assert_eq!((other.nak_mode, other.rate_bps), (cfdp::NakMode::Immediate, Some(0)));
        let remote = config.remote(102);
        assert_eq!(remote.mode, TransmissionMode::Unacknowledged);
        assert_eq!((remote.version, remote.checksum), (Version::V0, ChecksumType::Modular));
        assert_eq!(remote.ack_timer, cfdp::Timer::Fixed(Duration::from_secs(50)));
        assert_eq!(remote.nak_mode, cfdp::NakMode::Asynchronous(Duration::from_secs(10)));
        assert_eq!(remote.segment_max, Some(997));
        let text = toml::to_string(&mib).unwrap();
        assert_eq!(crate::text::parse::<Mib>(&text, "again").unwrap(), mib);
    }

    #[test]
    fn what_is_written_out_is_what_was() {
        for name in crate::engines::CFDP_PROFILES {
            let config = cfdp::profile(name).unwrap();
            let mib = Mib::of(&config);
            let text = toml::to_string(&mib).unwrap();
            assert_eq!(crate::text::parse::<Mib>(&text, name).unwrap(), mib, "{text}");
            let mut again = cfdp::profile(name).unwrap();
            mib.apply(&mut again).unwrap();
            assert_eq!(again, cfdp::Config { faults: again.faults.clone(), ..config });
            let mut other = cfdp::Config::default();
            mib.apply(&mut other).unwrap();
            assert_eq!(Mib::of(&other), mib);
        }
    }

    #[test]
    fn mistakes_are_named() {
        let refused = |text: &str| -> String {
            match crate::text::parse::<Mib>(text, "mib.toml") {
                Err(error) => error.to_string(),
                Ok(mib) => mib.apply(&mut cfdp::Config::default()).unwrap_err().to_string(),
            }
        };
        assert!(refused("[default]\nack_timr = \"1 s\"").contains("did you mean `ack_timer`?"));
        assert!(refused("[default]\nack_timer = 50").contains("line 2"));
        assert!(refused("[default]\nclass = 3").contains("class is 1 or 2"));
        assert!(refused("sequence_octets = 9").contains("from 1 to 8"));
        assert!(refused("[remotes.moon]\ncrc = true").contains("has a number"));
        assert!(refused("[default]\nnak_mode = \"often\"").contains("immediate"));
    }
}
