//! What holds for a remote entity.

use std::num::NonZeroU32;
use std::time::Duration;

use proto::cfdp;
use serde::{Deserialize, Serialize};
use wire::cfdp::{ChecksumType, TransmissionMode, Version};

use super::names::{Access, BookVersion, Checksum, Class, NakMode, Timer};
use super::{bytes, len, octets, set, width};
use crate::quantity::{Rate, Size, Span};
use crate::settings::{not_at_once, not_often};
use crate::text::SpecError;

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
    /// Most NAK PDUs sent at once; the next follow when those are answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nak_pdus_per_round_max: Option<NonZeroU32>,
    /// Most copies of a repair; 1 sends none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repair_copies: Option<u32>,
    /// Time to wait for an ACK, or `auto`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ack_timer: Option<Timer>,
    /// EOF or Finished PDUs sent without an ACK before it is a fault [default: no limit but
    /// `inactivity`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ack_limit: Option<u32>,
    /// Time to wait for what a NAK asked for, or `auto`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nak_timer: Option<Timer>,
    /// NAK rounds without progress before it is a fault [default: no limit but `inactivity`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nak_limit: Option<u32>,
    /// Silence after which a transaction is faulty, or `auto`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inactivity: Option<Timer>,
    /// Time between checks of an unacknowledged file, or `auto`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check_timer: Option<Timer>,
    /// Checks in a row without new data before it is a fault.
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
    /// Time the host takes before it answers, to reproduce a machine that was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_delays: Option<HostDelays>,
    /// What it may ask this entity for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permissions: Option<Permissions>,
}

/// Extra time between a cause and the PDU it brings about (see [`cfdp::HostDelays`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HostDelays {
    /// From the Metadata PDU to the first data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata_to_data: Option<Span>,
    /// From an EOF to its ACK.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eof_to_ack: Option<Span>,
    /// From the ACK of an EOF to the first NAK.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ack_to_nak: Option<Span>,
    /// From a NAK to the first repair.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nak_to_repair: Option<Span>,
    /// From the last byte to Finished, for any file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub complete_to_finished: Option<Span>,
    /// The same, for each 10^6 bytes of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub complete_to_finished_per_mb: Option<Span>,
    /// From Finished to its ACK.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_to_ack: Option<Span>,
}

/// What a remote entity may ask this one for (see [`cfdp::Permissions`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Permissions {
    /// Have files of this entity sent to any entity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy_put: Option<bool>,
    /// Have filestore requests carried out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filestore: Option<bool>,
    /// List directories below the root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory_listing: Option<bool>,
    /// Ask for the state of transactions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status_report: Option<Access>,
    /// Suspend and resume transactions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspend: Option<Access>,
    /// Have files stored here and handed on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store_and_forward: Option<bool>,
    /// Have PDUs of classes 3 and 4 handed on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub relay: Option<bool>,
}

impl Remote {
    pub(super) fn of(remote: &cfdp::Remote) -> Self {
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
            nak_pdus_per_round_max: remote.nak_pdus_per_round_max.and_then(NonZeroU32::new),
            ack_timer: Some(remote.ack_timer.into()),
            ack_limit: remote.ack_limit,
            nak_timer: Some(remote.nak_timer.into()),
            nak_limit: remote.nak_limit,
            inactivity: Some(remote.inactivity.into()),
            check_timer: Some(remote.check_timer.into()),
            check_limit: remote.check_limit,
            keep_alive: remote.keep_alive.map(Span),
            keep_alive_discrepancy: remote.keep_alive_discrepancy.map(Size),
            prompt: remote.prompt.map(Span),
            probe: Some(remote.probe.into()),
            repair_copies: Some(remote.repair_copies),
            rate: remote.rate_bps.map(Rate),
            initial_rtt: Some(Span(remote.initial_rtt)),
            host_delays: Some(HostDelays::of(remote.host_delays)),
            permissions: Some(Permissions::of(remote.permissions)),
        }
    }

    /// Refuses timers and intervals that would fill a link; `table` is where they stand.
    fn check(&self, table: &str) -> Result<(), SpecError> {
        let every = match self.nak_mode {
            Some(NakMode::Asynchronous(every)) => Some(every),
            Some(NakMode::Immediate | NakMode::Deferred | NakMode::Prompted) | None => None,
        };
        let intervals = [
            ("nak_mode", every),
            ("keep_alive", self.keep_alive),
            ("prompt", self.prompt),
            ("initial_rtt", self.initial_rtt),
        ];
        for (key, interval) in intervals {
            not_often(&format!("{table}.{key}"), interval)?;
        }
        let timers = [
            ("ack_timer", self.ack_timer),
            ("nak_timer", self.nak_timer),
            ("inactivity", self.inactivity),
            ("check_timer", self.check_timer),
            ("probe", self.probe),
        ];
        for (key, timer) in timers {
            not_at_once(&format!("{table}.{key}"), timer)?;
        }
        Ok(())
    }

    /// Changes the settings of the remote entity that `table` names.
    pub(super) fn apply(self, table: &str, remote: &mut cfdp::Remote) -> Result<(), SpecError> {
        self.check(table)?;
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
        let pdus_max = self.nak_pdus_per_round_max.map(|max| Some(max.get()));
        set(&mut remote.nak_pdus_per_round_max, pdus_max);
        set(&mut remote.repair_copies, self.repair_copies);
        set(&mut remote.ack_timer, self.ack_timer);
        set(&mut remote.ack_limit, self.ack_limit.map(Some));
        set(&mut remote.nak_timer, self.nak_timer);
        set(&mut remote.nak_limit, self.nak_limit.map(Some));
        set(&mut remote.inactivity, self.inactivity);
        set(&mut remote.check_timer, self.check_timer);
        set(&mut remote.check_limit, self.check_limit.map(Some));
        let span = |span: Option<Span>| span.map(|span| -> Option<Duration> { Some(span.0) });
        set(&mut remote.keep_alive, span(self.keep_alive));
        let discrepancy = self.keep_alive_discrepancy.map(|size| Some(size.bytes()));
        set(&mut remote.keep_alive_discrepancy, discrepancy);
        set(&mut remote.prompt, span(self.prompt));
        set(&mut remote.probe, self.probe);
        set(&mut remote.rate_bps, self.rate.map(|rate| Some(rate.bps())));
        set(&mut remote.initial_rtt, self.initial_rtt.map(Span::duration));
        if let Some(delays) = self.host_delays {
            delays.apply(&mut remote.host_delays);
        }
        if let Some(permissions) = self.permissions {
            permissions.apply(&mut remote.permissions);
        }
        Ok(())
    }
}

impl HostDelays {
    fn of(delays: cfdp::HostDelays) -> Self {
        Self {
            metadata_to_data: Some(Span(delays.metadata_to_data)),
            eof_to_ack: Some(Span(delays.eof_to_ack)),
            ack_to_nak: Some(Span(delays.ack_to_nak)),
            nak_to_repair: Some(Span(delays.nak_to_repair)),
            complete_to_finished: Some(Span(delays.complete_to_finished)),
            complete_to_finished_per_mb: Some(Span(delays.complete_to_finished_per_mb)),
            finished_to_ack: Some(Span(delays.finished_to_ack)),
        }
    }

    fn apply(self, delays: &mut cfdp::HostDelays) {
        let span = |span: Option<Span>| span.map(Span::duration);
        set(&mut delays.metadata_to_data, span(self.metadata_to_data));
        set(&mut delays.eof_to_ack, span(self.eof_to_ack));
        set(&mut delays.ack_to_nak, span(self.ack_to_nak));
        set(&mut delays.nak_to_repair, span(self.nak_to_repair));
        set(&mut delays.complete_to_finished, span(self.complete_to_finished));
        set(&mut delays.complete_to_finished_per_mb, span(self.complete_to_finished_per_mb));
        set(&mut delays.finished_to_ack, span(self.finished_to_ack));
    }
}

impl Permissions {
    fn of(permissions: cfdp::Permissions) -> Self {
        Self {
            proxy_put: Some(permissions.proxy_put),
            filestore: Some(permissions.filestore),
            directory_listing: Some(permissions.directory_listing),
            status_report: Some(permissions.status_report.into()),
            suspend: Some(permissions.suspend.into()),
            store_and_forward: Some(permissions.store_and_forward),
            relay: Some(permissions.relay),
        }
    }

    fn apply(self, permissions: &mut cfdp::Permissions) {
        set(&mut permissions.proxy_put, self.proxy_put);
        set(&mut permissions.filestore, self.filestore);
        set(&mut permissions.directory_listing, self.directory_listing);
        set(&mut permissions.status_report, self.status_report);
        set(&mut permissions.suspend, self.suspend);
        set(&mut permissions.store_and_forward, self.store_and_forward);
        set(&mut permissions.relay, self.relay);
    }
}
