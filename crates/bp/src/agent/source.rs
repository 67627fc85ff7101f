//! Bundles created here: those of users (RFC 9171 §5.2), and administrative records (RFC 9171
//! §6.1.1, RFC 5050 §6.1.1). A status report is of the version of the bundle that it is about.

use std::time::Duration;

use bytes::Bytes;
use engine::Time;

use super::super::layer::Content;
use super::head::Head;
use super::stock::Core;
use super::store::{Job, Record};
use super::{Held, Priority, RequestError, Version};
use crate::codec::bp6::{self, AdministrativeRecord as RecordSix, DtnTime, Subject};
use crate::codec::bp7::{
    self, AdministrativeRecord, Block, BlockFlags, BundleFlags, CrcType, CreationTimestamp, Eid,
    Extension, HopCount, Payload, Primary, Reason, Status, StatusReport,
};

/// Sequence numbers per millisecond, in version 6: its times are seconds, so the milliseconds go
/// into the sequence number.
const SEQUENCES: u64 = 1_000_000;

/// Request to send a bundle.
#[derive(Clone, Debug)]
pub struct SendRequest {
    /// Source endpoint; `None` is the node's administrative one.
    pub source: Option<Eid>,
    /// Destination endpoint.
    pub destination: Eid,
    /// Report-to endpoint; `None` is the node's administrative one.
    pub report_to: Option<Eid>,
    /// Lifetime.
    pub lifetime: Duration,
    /// Requested reports, and whether fragmentation is forbidden.
    pub flags: BundleFlags,
    /// Priority: the class of service in version 6, local to this node's queues in version 7.
    pub priority: Priority,
    /// Version of the bundle.
    pub version: Version,
    /// Whether custody is requested, in version 6.
    pub custody: bool,
    /// Hop limit, in version 7; `None` is the node's.
    pub hop_limit: Option<u8>,
    /// Key of the request: while its bundle is held or remembered,
    /// [`Agent::sent_for`](super::Agent::sent_for) finds it.
    pub key: Option<u128>,
    /// Payload. A file must stay unchanged until the bundle is discarded; bytes may stay in the
    /// caller's buffer.
    pub payload: Content,
    /// Whether the file is deleted with the bundle.
    pub owns_file: bool,
}

impl SendRequest {
    /// Request with a lifetime of one day.
    #[must_use]
    pub fn new(destination: Eid, payload: impl Into<Bytes>) -> Self {
        Self {
            source: None,
            destination,
            report_to: None,
            lifetime: Duration::from_secs(86_400),
            flags: BundleFlags::default(),
            priority: Priority::Normal,
            version: Version::Seven,
            custody: false,
            hop_limit: None,
            key: None,
            payload: Content::Bytes(payload.into()),
            owns_file: false,
        }
    }

    /// Administrative record to send.
    pub(super) fn record(version: Version, to: &Eid, lifetime_ms: u64, bytes: Vec<u8>) -> Self {
        // In version 6 a neighbour may keep and lose a fragment, and records have no custodian.
        let uncut = match version {
            Version::Six => BundleFlags::MUST_NOT_FRAGMENT,
            Version::Seven => BundleFlags::default(),
        };
        Self {
            version,
            flags: BundleFlags::ADMINISTRATIVE.with(uncut),
            report_to: Some(Eid::None),
            lifetime: Duration::from_millis(lifetime_ms),
            ..Self::new(to.clone(), bytes)
        }
    }

    /// Request to send an administrative record of version 6, if it can be encoded.
    pub(super) fn version_six_record(
        to: &Eid,
        lifetime_ms: u64,
        record: &RecordSix,
    ) -> Option<Self> {
        Some(Self::record(Version::Six, to, lifetime_ms, record.to_vec().ok()?))
    }

    /// Source endpoint.
    pub(super) fn source(&self, core: &Core) -> Eid {
        self.source.clone().unwrap_or_else(|| core.config.node.clone())
    }

    fn report_to(&self, core: &Core) -> Eid {
        self.report_to.clone().unwrap_or_else(|| core.config.node.clone())
    }

    fn lifetime_ms(&self) -> u64 {
        u64::try_from(self.lifetime.as_millis()).unwrap_or(u64::MAX)
    }

    /// Head of the bundle.
    pub(super) fn head(&self, core: &mut Core, now: Time) -> Result<Head, RequestError> {
        match self.version {
            Version::Six => self.head_of_six(core, now),
            Version::Seven => self.head_of_seven(core, now),
        }
    }

    fn head_of_seven(&self, core: &mut Core, now: Time) -> Result<Head, RequestError> {
        if self.custody {
            return Err(RequestError::Conflict("custody requires version 6"));
        }
        let creation = creation(core, now);
        let primary = Primary {
            flags: self.flags,
            crc: core.config.crc.primary,
            destination: self.destination.clone(),
            source: self.source(core),
            report_to: self.report_to(core),
            creation,
            lifetime_ms: self.lifetime_ms(),
            fragment: None,
        };
        if let Some(conflict) = primary.conflict() {
            return Err(RequestError::Conflict(conflict));
        }
        let blocks = first_blocks(core, creation.time_ms == 0, self.hop_limit);
        let crc = core.config.crc.payload;
        let payload = Payload { flags: BlockFlags::default(), crc, len: self.payload.len() };
        bp7::Head::new(primary, blocks, payload)
            .map(Into::into)
            .map_err(|_| RequestError::Conflict("an endpoint cannot be encoded in version 7"))
    }

    fn head_of_six(&self, core: &mut Core, now: Time) -> Result<Head, RequestError> {
        if self.hop_limit.is_some() {
            return Err(RequestError::Conflict("bundles of version 6 have no hop limit"));
        }
        let (source, report_to) = (self.source(core), self.report_to(core));
        let named = [&self.destination, &source, &report_to, &core.config.node];
        if named.iter().any(|eid| has_allocator(eid)) {
            let why = "endpoints with an allocator are not for version 6 (RFC 9758 §7.4)";
            return Err(RequestError::Conflict(why));
        }
        // If all endpoints are numbers, no dictionary is needed (RFC 6260 §2.2).
        let has_numbers = |eid: &&Eid| matches!(eid, Eid::None | Eid::Ipn { .. });
        let dictionary = (!named.iter().all(has_numbers)).then(Box::default);
        if core.config.clock.is_none() {
            let why = "bundles of version 6 carry their creation time, and this node has no clock";
            return Err(RequestError::Conflict(why));
        }
        let CreationTimestamp { time_ms, sequence } = creation(core, now);
        let sequence = (time_ms % 1000).saturating_mul(SEQUENCES).saturating_add(sequence);
        let mut flags = self.flags.without(BundleFlags::STATUS_TIME);
        flags = flags.with_priority(match self.priority {
            Priority::Bulk => bp6::Priority::Bulk,
            Priority::Normal => bp6::Priority::Normal,
            Priority::Expedited => bp6::Priority::Expedited,
        });
        if self.custody {
            flags = flags.with(BundleFlags::CUSTODY);
        }
        if self.destination.is_singleton() {
            flags = flags.with(BundleFlags::SINGLETON);
        }
        let primary = bp6::Primary {
            flags,
            destination: self.destination.clone(),
            source,
            report_to,
            custodian: Eid::None,
            creation: bp6::CreationTimestamp { time_s: time_ms / 1000, sequence },
            lifetime_s: self.lifetime_ms().div_ceil(1000),
            dictionary,
            fragment: None,
        };
        if let Some(conflict) = primary.conflict() {
            return Err(RequestError::Conflict(conflict));
        }
        let payload = bp6::Payload {
            flags: BlockFlags::LAST,
            len: self.payload.len(),
            ..bp6::Payload::default()
        };
        bp6::Head::new(primary, Vec::new(), payload)
            .map(Into::into)
            .map_err(|_| RequestError::Conflict("an endpoint cannot be encoded in version 6"))
    }
}

/// Whether an endpoint is a number of an allocator other than the default one.
const fn has_allocator(eid: &Eid) -> bool {
    matches!(eid, Eid::Ipn { node, .. } if *node >> 32 != 0)
}

/// Extension blocks of a bundle created here.
fn first_blocks(core: &Core, without_time: bool, hop_limit: Option<u8>) -> Vec<Block> {
    let age = without_time.then_some(Extension::BundleAge { age_ms: 0 });
    let hops = hop_limit
        .or(core.config.hop_limit)
        .map(|limit| Extension::HopCount(HopCount { limit: u64::from(limit.max(1)), count: 0 }));
    let extensions = age.into_iter().chain(hops).zip(2..);
    extensions
        .filter_map(|(extension, number)| {
            extension.to_block(number, BlockFlags::REPLICATE, CrcType::Crc16).ok()
        })
        .collect()
}

/// Creation timestamp of a new bundle (RFC 9171 §4.2.7).
fn creation(core: &mut Core, now: Time) -> CreationTimestamp {
    let time_ms = core.clock().dtn_time(now).unwrap_or(0);
    let (creation, used) = core.stock.assigned.create(time_ms);
    if let Some(used) = used.filter(|_| core.config.persistent) {
        // Bundles have numbers from 1 on.
        core.stock.store.put(Job::Used, 0, Record::Used(used).encode());
    }
    creation
}

/// Status report on a bundle, if reports of this kind are sent.
pub(super) fn status_report(
    core: &Core,
    now: Time,
    held: &Held,
    flag: BundleFlags,
    reason: Reason,
) -> Option<SendRequest> {
    let head = &held.head;
    let policy = core.config.reports;
    let wanted = match flag {
        BundleFlags::REPORT_RECEPTION => policy.reception,
        BundleFlags::REPORT_FORWARDING => policy.forwarding,
        BundleFlags::REPORT_DELIVERY => policy.delivery,
        BundleFlags::REPORT_DELETION => policy.deletion,
        BundleFlags::REPORT_CUSTODY => policy.custody,
        _ => false,
    };
    // No reports on administrative records: reports must not cause reports. A bundle without a
    // source cannot be named (RFC 9171 §4.2.3).
    let is_record = head.flags().contains(BundleFlags::ADMINISTRATIVE);
    let nowhere = head.report_to().is_none() || head.report_to().is_local();
    if !wanted || is_record || head.is_anonymous() || nowhere {
        return None;
    }
    let (source, fragment) = (held.head.source().clone(), held.key().fragment);
    let report = match &held.head {
        Head::Seven(_) => {
            let time =
                core.clock().dtn_time(now).filter(|_| held.requests(BundleFlags::STATUS_TIME));
            let asserted = time.map_or(Status::Asserted, Status::At);
            let status = |of| if of == flag { asserted } else { Status::NotAsserted };
            let report = StatusReport {
                received: status(BundleFlags::REPORT_RECEPTION),
                forwarded: status(BundleFlags::REPORT_FORWARDING),
                delivered: status(BundleFlags::REPORT_DELIVERY),
                deleted: status(BundleFlags::REPORT_DELETION),
                reason,
                source,
                creation: held.head.creation(),
                fragment,
            };
            AdministrativeRecord::StatusReport(report).to_vec()
        }
        Head::Six(six) => {
            let time = core.clock().version_six_time(now);
            let status = |of| (of == flag).then_some(time);
            let report = bp6::StatusReport {
                subject: Subject { source, creation: six.primary().creation, fragment },
                received: status(BundleFlags::REPORT_RECEPTION),
                custody: status(BundleFlags::REPORT_CUSTODY),
                forwarded: status(BundleFlags::REPORT_FORWARDING),
                delivered: status(BundleFlags::REPORT_DELIVERY),
                deleted: status(BundleFlags::REPORT_DELETION),
                reason: match u8::try_from(reason.code()) {
                    Ok(code @ 0..=8) => bp6::Reason::from_code(code),
                    _ if reason == Reason::BlockUnsupported => bp6::Reason::BlockUnintelligible,
                    // Reasons that version 6 lacks.
                    Ok(_) | Err(_) => bp6::Reason::NoInformation,
                },
            };
            RecordSix::StatusReport(report).to_vec()
        }
    };
    Some(SendRequest::record(head.version(), head.report_to(), head.lifetime_ms(), report.ok()?))
}

/// A version 6 report as one of version 7.
pub(super) fn report_from_version_six(report: &bp6::StatusReport) -> StatusReport {
    let status = |time: Option<DtnTime>| {
        time.map_or(Status::NotAsserted, |time| {
            let ms = time.seconds.saturating_mul(1000);
            Status::At(ms.saturating_add(time.nanoseconds / 1_000_000))
        })
    };
    StatusReport {
        received: status(report.received),
        forwarded: status(report.forwarded),
        delivered: status(report.delivered),
        deleted: status(report.deleted),
        reason: Reason::from_code(u64::from(report.reason.code())),
        source: report.subject.source.clone(),
        creation: report.subject.creation.into(),
        fragment: report.subject.fragment,
    }
}
