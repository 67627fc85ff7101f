//! The settings of a Saratoga peer (see [`saratoga::Config`]).

use std::collections::BTreeMap;

use proto::saratoga;
use serde::{Deserialize, Serialize};

use super::form::{Bits, FileSum, Form, Heed, Switch, Version, table};
use super::{at_least, not_at_once, not_often, some};
use crate::mib::{Journal, Timer};
use crate::quantity::{Rate, Size, Span};
use crate::text::SpecError;

table! {
    /// What a user says about a Saratoga peer; what is left out stays as it is.
    SaratogaSettings: saratoga::Config {
        /// The version it speaks: 0 or 1.
        version: Version,
        /// Its name, as beacons tell it.
        eid: String,
        /// Bits of the widest descriptor it takes: 16, 32, 64 or 128.
        descriptor: Bits,
        /// The checksum that goes with files.
        checksum: FileSum,
        /// How much of a rate may be made up for when the driver comes late.
        catch_up: Span,
    }
    also {
        /// What others may ask for here.
        #[serde(skip_serializing_if = "Option::is_none")]
        permissions: Option<Permissions>,
        /// How often it says that it is there, or `off`.
        #[serde(skip_serializing_if = "Option::is_none")]
        beacons: Option<Switch<Span>>,
        /// When the progress of a reception is saved.
        #[serde(skip_serializing_if = "Option::is_none")]
        journal: Option<Journal>,
        /// Bounds on what the peer holds.
        #[serde(skip_serializing_if = "Option::is_none")]
        limits: Option<Limits>,
        /// What holds for every other peer.
        #[serde(skip_serializing_if = "Option::is_none")]
        default: Option<Remote>,
        /// What differs for some: by their numbers in a scenario, else by their addresses.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        remotes: BTreeMap<String, Remote>,
    }
}

table! {
    /// What others may ask for (see [`saratoga::Permissions`]).
    Permissions: saratoga::Permissions {
        /// Put files here.
        put: bool,
        /// Get files and list directories.
        get: bool,
        /// Delete files.
        delete: bool,
    }
}

table! {
    /// Bounds on what a peer holds (see [`saratoga::Limits`]).
    Limits: saratoga::Limits {
        /// Sessions under way.
        sessions: usize,
        /// Sessions of one path.
        sessions_per_path: usize,
        /// Sessions that are over and remembered.
        closed: usize,
        /// Files that came in part.
        partials: usize,
        /// Gaps tracked in a session.
        gaps: usize,
        /// A file.
        file: Size,
        /// A directory's listing.
        directory: Size,
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
    /// What holds for another peer (see [`saratoga::Remote`]).
    Remote: saratoga::Remote {
        /// Most of a file in a packet, or `off`.
        payload_max: Switch<Size>,
        /// Largest packet, or `off`: what the path takes.
        datagram_max: Switch<Size>,
        /// Bits of the narrowest descriptor to use.
        descriptor_min: Bits,
        /// Time between requests for a STATUS: `auto`, `off` or a time.
        status_interval: Switch<Timer>,
        /// Time between STATUS that nobody asked for, or `off`.
        voluntary_interval: Switch<Span>,
        /// Time to wait for the answer to a request, or `auto`.
        request_timer: Timer,
        /// Time to wait for a STATUS, or `auto`.
        answer_timer: Timer,
        /// Silence after which a session is given up, or `auto`.
        inactivity: Timer,
        /// Most copies of a repair.
        repair_copies: u32,
        /// The round trip assumed before it is known.
        initial_rtt: Span,
        /// Without a rate, new data that is sent beyond what the receiver told of, or `off`.
        unpaced_window: Switch<Size>,
        /// Least time between two packets.
        interval: Span,
        /// At a rate, each packet takes the time of one so large, or `off`.
        pace_as: Switch<Size>,
        /// Whether the rate follows the losses on the way: `off` or `tfrc`.
        congestion: Heed,
    }
    also {
        /// Rate to pace at; `"0"` does not pace.
        #[serde(skip_serializing_if = "Option::is_none")]
        rate: Option<Rate>,
    }
}

/// Settings for other peers, by what they are called.
pub type Remotes = BTreeMap<String, saratoga::Remote>;

impl SaratogaSettings {
    /// Changes `config` to what is said here, and `remotes` to what is said of some. Where beacons
    /// go is for the caller to say.
    ///
    /// # Errors
    ///
    /// When a value is out of its range.
    pub fn apply(
        &self,
        config: &mut saratoga::Config,
        remotes: &mut Remotes,
    ) -> Result<(), SpecError> {
        not_often("beacons", self.beacons.and_then(Switch::on))?;
        self.apply_fields(config);
        if config.version == saratoga::Version::V0
            && config.checksum != saratoga::ChecksumKind::None
        {
            return Err(SpecError::invalid(
                "version 0 sends no checksum: write checksum = \"none\" beside it",
            ));
        }
        if let Some(permissions) = &self.permissions {
            permissions.apply_fields(&mut config.permissions);
        }
        match self.beacons {
            None => {}
            Some(Switch::Off) => config.beacons = None,
            Some(Switch::On(interval)) => {
                let paths = config.beacons.take().map_or(Vec::new(), |beacons| beacons.paths);
                config.beacons = Some(saratoga::Beacons { paths, interval: interval.duration() });
            }
        }
        if let Some(journal) = &self.journal {
            journal.apply(&mut config.journal);
        }
        if let Some(limits) = &self.limits {
            limits.apply(&mut config.limits)?;
        }
        if let Some(default) = &self.default {
            default.apply(&mut config.default_remote, "default")?;
            for remote in config.remotes.values_mut().chain(remotes.values_mut()) {
                default.apply(remote, "default")?;
            }
        }
        for (name, remote) in &self.remotes {
            let known = config.default_remote.clone();
            let entry = remotes.entry(name.clone()).or_insert(known);
            remote.apply(entry, &format!("remotes.{name}"))?;
        }
        Ok(())
    }

    /// Everything that `config` and `remotes` say.
    #[must_use]
    pub fn of(config: &saratoga::Config, remotes: &Remotes) -> Self {
        let remote = |(name, remote): (&String, _)| (name.clone(), Remote::of(remote));
        Self {
            permissions: Some(Permissions::of_fields(&config.permissions)),
            beacons: Some(match &config.beacons {
                None => Switch::Off,
                Some(beacons) => Switch::On(Span(beacons.interval)),
            }),
            journal: Some(Journal::of(config.journal)),
            limits: Some(Limits::of_fields(&config.limits)),
            default: Some(Remote::of(&config.default_remote)),
            remotes: remotes.iter().map(remote).collect(),
            ..Self::of_fields(config)
        }
    }
}

impl Limits {
    fn apply(&self, limits: &mut saratoga::Limits) -> Result<(), SpecError> {
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
    fn of(remote: &saratoga::Remote) -> Self {
        Self { rate: Form::of(&remote.rate_bps), ..Self::of_fields(remote) }
    }

    fn apply(&self, remote: &mut saratoga::Remote, table: &str) -> Result<(), SpecError> {
        for (key, switch, least) in [
            ("payload_max", self.payload_max, 1),
            ("datagram_max", self.datagram_max, super::DATAGRAM_MIN),
        ] {
            at_least(&format!("{table}.{key}"), switch.and_then(Switch::on), least)?;
        }
        for (key, timer) in [
            ("status_interval", self.status_interval.and_then(Switch::on)),
            ("request_timer", self.request_timer),
            ("answer_timer", self.answer_timer),
            ("inactivity", self.inactivity),
        ] {
            not_at_once(&format!("{table}.{key}"), timer)?;
        }
        for (key, span) in [
            ("voluntary_interval", self.voluntary_interval.and_then(Switch::on)),
            ("initial_rtt", self.initial_rtt),
        ] {
            not_often(&format!("{table}.{key}"), span)?;
        }
        self.apply_fields(remote);
        if let Some(rate) = &self.rate {
            remote.rate_bps = rate.value();
        }
        Ok(())
    }
}
