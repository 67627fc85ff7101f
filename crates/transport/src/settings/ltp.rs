//! The settings of an LTP engine (see [`ltp::Config`]).

use std::collections::BTreeMap;
use std::path::Path;

use proto::{ltp, ltpt};
use serde::{Deserialize, Serialize};

use super::form::{Form, Switch, table};
use super::{at_least, file_name, not_at_once, not_often, some};
use crate::mib::{Timer, entity};
use crate::quantity::{Rate, Size, Span};
use crate::settings::keys::Authentication;
use crate::text::SpecError;

table! {
    /// What a user says about an LTP engine; what is left out stays as it is.
    LtpSettings: ltp::Config {
        /// The engine's own number.
        engine: u64,
        /// The client service of files.
        service: u64,
        /// How a file is a block.
        format: Format,
        /// Whether a receiver puts a cookie into what it says.
        cookies: bool,
        /// Whether it is written down that a sender was told of a part.
        journal: bool,
        /// Octets of the numbers of own sessions.
        session_octets: u32,
        /// How much of a rate may be made up for when the driver comes late.
        catch_up: Span,
    }
    also {
        /// How small units of client data share a block.
        #[serde(skip_serializing_if = "Option::is_none")]
        aggregation: Option<Switch<Aggregation>>,
        /// Bounds on what the engine holds.
        #[serde(skip_serializing_if = "Option::is_none")]
        limits: Option<Limits>,
        /// How blocks are passed on, by LTP-T.
        #[serde(skip_serializing_if = "Option::is_none")]
        transport: Option<Transport>,
        /// What holds for every remote engine.
        #[serde(skip_serializing_if = "Option::is_none")]
        default: Option<Remote>,
        /// What differs for some, by their numbers.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        remotes: BTreeMap<String, Remote>,
    }
}

/// From where segments of an engine are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pin {
    /// From anywhere.
    Off,
    /// From any port of its host.
    Host,
    /// From its address and port alone.
    Address,
}

impl Form<ltp::Pin> for Pin {
    fn of(value: &ltp::Pin) -> Option<Self> {
        Some(match value {
            ltp::Pin::Off => Self::Off,
            ltp::Pin::Host => Self::Host,
            ltp::Pin::Address => Self::Address,
        })
    }

    fn value(&self) -> ltp::Pin {
        match self {
            Self::Off => ltp::Pin::Off,
            Self::Host => ltp::Pin::Host,
            Self::Address => ltp::Pin::Address,
        }
    }
}

/// Least octets of a segment: what describes a file, with a short name, must fit one.
const SEGMENT_MIN: u64 = 64;

/// How a file is a block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// Its end describes the file.
    Described,
    /// It is the file, which gets this name.
    Raw(String),
}

impl Form<ltp::Format> for Format {
    fn of(value: &ltp::Format) -> Option<Self> {
        Some(match value {
            ltp::Format::Described => Self::Described,
            ltp::Format::Raw { name } => Self::Raw(name.clone()),
        })
    }

    fn value(&self) -> ltp::Format {
        match self {
            Self::Described => ltp::Format::Described,
            Self::Raw(name) => ltp::Format::Raw { name: name.clone() },
        }
    }
}

table! {
    /// When a block of gathered units is sent (see [`ltp::Aggregation`]).
    Aggregation: ltp::Aggregation {
        /// Before the block is larger.
        size: Size,
        /// When its first unit has waited so long.
        age: Span,
    }
}

table! {
    /// Bounds on what an engine holds (see [`ltp::Limits`]).
    Limits: ltp::Limits {
        /// Sessions under way.
        sessions: usize,
        /// Sessions of one path.
        sessions_per_path: usize,
        /// Sessions that are over and remembered.
        closed: usize,
        /// Gaps tracked in a session.
        gaps: usize,
        /// The same for all receptions together.
        gaps_total: usize,
        /// A block.
        block: Size,
        /// A block of units.
        units: Size,
        /// All such blocks together.
        units_total: Size,
        /// Received data that waits to be written.
        write_buffer: Size => buffers,
        /// Data collected into one write.
        write_piece: Size => buffers,
        /// Data read ahead of what is sent, for each session.
        read_ahead: Size => buffers,
        /// The same for all sessions together.
        read_ahead_total: Size => buffers,
        /// Data asked for in one read.
        read_piece: Size => buffers,
        /// Answers that wait to be sent.
        replies: usize => buffers,
    }
}

table! {
    /// How blocks are passed on (see [`ltpt::Config`]).
    Transport: ltpt::Config {
        /// Engines that may pass a block on that is sent here.
        hops: u8,
        /// How long a block that is sent here is of use.
        lifetime: Span,
        /// Whether a block goes on while it arrives.
        cut_through: bool,
        /// Time after which a hop that failed is tried again.
        retry: Span,
        /// The same, at most: each time it is twice as long.
        retry_max: Span,
        /// Time after which one that is refused for want of room is to try again, in whole seconds.
        retry_after: Span,
    }
    also {
        /// Bounds on what is kept for others.
        #[serde(skip_serializing_if = "Option::is_none")]
        limits: Option<TransportLimits>,
    }
}

table! {
    /// Bounds on what an engine keeps for others (see [`ltpt::Limits`]).
    TransportLimits: ltpt::Limits {
        /// Transfers under way.
        transfers: usize,
        /// Octets of blocks for others.
        storage: Size,
        /// Transfers that are over and remembered.
        finished: usize,
    }
}

table! {
    /// What holds for a remote engine (see [`ltp::Remote`]).
    Remote: ltp::Remote {
        /// From where its segments are taken.
        pin: Pin,
        /// Most of the block in a segment, or `off`.
        segment_max: Switch<Size>,
        /// Largest segment, or `off`: what the path takes.
        datagram_max: Switch<Size>,
        /// Red data after which a checkpoint is set, or `off`.
        checkpoint_every: Switch<Size>,
        /// Time after which a checkpoint is set, or `off`.
        checkpoint_interval: Switch<Span>,
        /// Whether gaps are reported before a checkpoint asks.
        report_gaps: bool,
        /// Time to wait for the report on a checkpoint, or `auto`.
        checkpoint_timer: Timer,
        /// Time to wait for the acknowledgement of a report, or `auto`.
        report_timer: Timer,
        /// Time to wait for the acknowledgement of a cancellation, or `auto`.
        cancel_timer: Timer,
        /// Retransmissions before something is given up, or `off`.
        retransmission_limit: Switch<u32>,
        /// Reports in a row that bring nothing new.
        cycle_limit: u32,
        /// Most copies of a repair.
        repair_copies: u32,
        /// Silence after which a session is given up, or `auto`.
        inactivity: Timer,
        /// The round trip assumed before it is known.
        initial_rtt: Span,
        /// Without a rate, new data that is sent beyond what reports told of, or `off`.
        unpaced_window: Switch<Size>,
        /// Least time between two segments.
        interval: Span,
        /// Time this host takes to answer.
        host_delay: Span,
    }
    also {
        /// Rate to pace at; `"0"` does not pace.
        #[serde(skip_serializing_if = "Option::is_none")]
        rate: Option<Rate>,
        /// The keys shared with it, or `off`.
        #[serde(skip_serializing_if = "Option::is_none")]
        authentication: Option<Switch<Authentication>>,
    }
}

impl LtpSettings {
    /// Changes `config` to what is said here.
    ///
    /// # Errors
    ///
    /// When a value is out of its range, or a key cannot be read.
    pub fn apply(&self, config: &mut ltp::Config) -> Result<(), SpecError> {
        if let Some(Format::Raw(name)) = &self.format {
            file_name("format.raw", name)?;
        }
        self.apply_fields(config);
        match &self.aggregation {
            None => {}
            Some(Switch::Off) => config.aggregation = None,
            Some(Switch::On(table)) => {
                table.apply_fields(config.aggregation.get_or_insert_default());
            }
        }
        if let Some(limits) = &self.limits {
            limits.apply(&mut config.limits)?;
        }
        match (&self.transport, config.transport.as_mut()) {
            (Some(settings), Some(transport)) => settings.apply(transport)?,
            (Some(_), None) => {
                let message = "transport is of LTP-T; the protocol with it is called ltp-t";
                return Err(SpecError::invalid(message));
            }
            (None, _) => {}
        }
        if let Some(default) = &self.default {
            default.apply(&mut config.default_remote, "default")?;
            for remote in config.remotes.values_mut() {
                default.apply(remote, "default")?;
            }
        }
        for (number, remote) in &self.remotes {
            let table = format!("remotes.{number}");
            let id = entity(number, "remotes")?;
            let known = config.remote(id).clone();
            remote.apply(config.remotes.entry(id).or_insert(known), &table)?;
        }
        Ok(())
    }

    /// Everything that `config` says, but keys: an engine does not give them away.
    #[must_use]
    pub fn of(config: &ltp::Config) -> Self {
        let remotes = config.remotes.iter();
        Self {
            aggregation: Some(match &config.aggregation {
                None => Switch::Off,
                Some(aggregation) => Switch::On(Aggregation::of_fields(aggregation)),
            }),
            limits: Some(Limits::of_fields(&config.limits)),
            transport: config.transport.as_ref().map(Transport::of),
            default: Some(Remote::of(&config.default_remote)),
            remotes: remotes.map(|(id, remote)| (id.to_string(), Remote::of(remote))).collect(),
            ..Self::of_fields(config)
        }
    }

    /// With the keys that `given` has, and where it has them.
    #[must_use]
    pub fn with_keys_of(mut self, given: &Self) -> Self {
        let keys = |remote: &Remote| remote.authentication.clone();
        if let Some(default) = &given.default {
            self.default.get_or_insert_default().authentication = keys(default);
        }
        for (id, remote) in &given.remotes {
            self.remotes.entry(id.clone()).or_default().authentication = keys(remote);
        }
        self
    }

    pub(super) fn place(&mut self, folder: &Path) {
        for remote in self.default.iter_mut().chain(self.remotes.values_mut()) {
            if let Some(Switch::On(authentication)) = &mut remote.authentication {
                authentication.place(folder);
            }
        }
    }
}

impl Transport {
    fn of(config: &ltpt::Config) -> Self {
        let limits = Some(TransportLimits::of_fields(&config.limits));
        Self { limits, ..Self::of_fields(config) }
    }

    fn apply(&self, config: &mut ltpt::Config) -> Result<(), SpecError> {
        for (key, span) in [
            ("transport.lifetime", self.lifetime),
            ("transport.retry", self.retry),
            ("transport.retry_max", self.retry_max),
        ] {
            not_often(key, span)?;
        }
        let whole =
            |span: Span| span.duration().as_secs() > 0 && span.duration().subsec_nanos() == 0;
        if self.retry_after.is_some_and(|span| !whole(span)) {
            return Err(SpecError::invalid("transport.retry_after is whole seconds, 1 at least"));
        }
        self.apply_fields(config);
        config.retry_max = config.retry_max.max(config.retry);
        if let Some(limits) = &self.limits {
            some("transport.limits.transfers", limits.transfers)?;
            limits.apply_fields(&mut config.limits);
        }
        Ok(())
    }
}

impl Limits {
    fn apply(&self, limits: &mut ltp::Limits) -> Result<(), SpecError> {
        for (key, size) in
            [("limits.write_piece", self.write_piece), ("limits.read_piece", self.read_piece)]
        {
            at_least(key, size, 1)?;
        }
        at_least("limits.write_buffer", self.write_buffer, super::BUFFER_MIN)?;
        some("limits.sessions", self.sessions)?;
        some("limits.sessions_per_path", self.sessions_per_path)?;
        self.apply_fields(limits);
        Ok(())
    }
}

impl Remote {
    fn of(remote: &ltp::Remote) -> Self {
        Self { rate: Form::of(&remote.rate_bps), ..Self::of_fields(remote) }
    }

    fn apply(&self, remote: &mut ltp::Remote, table: &str) -> Result<(), SpecError> {
        for (key, switch, least) in [
            ("segment_max", self.segment_max, SEGMENT_MIN),
            ("datagram_max", self.datagram_max, super::DATAGRAM_MIN),
            ("checkpoint_every", self.checkpoint_every, 1),
        ] {
            at_least(&format!("{table}.{key}"), switch.and_then(Switch::on), least)?;
        }
        for (key, timer) in [
            ("checkpoint_timer", self.checkpoint_timer),
            ("report_timer", self.report_timer),
            ("cancel_timer", self.cancel_timer),
            ("inactivity", self.inactivity),
        ] {
            not_at_once(&format!("{table}.{key}"), timer)?;
        }
        for (key, span) in [
            ("checkpoint_interval", self.checkpoint_interval.and_then(Switch::on)),
            ("initial_rtt", self.initial_rtt),
        ] {
            not_often(&format!("{table}.{key}"), span)?;
        }
        self.apply_fields(remote);
        if let Some(rate) = &self.rate {
            remote.rate_bps = rate.value();
        }
        match &self.authentication {
            None => {}
            Some(Switch::Off) => remote.authentication = None,
            Some(Switch::On(keys)) => remote.authentication = Some(keys.value(table)?),
        }
        Ok(())
    }
}
