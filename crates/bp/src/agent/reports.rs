//! Status reports (RFC 9171 §6.1.1, RFC 5050 §6.1.1), and indications of bundles that end here. A
//! report is of the version of the bundle that it is about.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::Time;
use wire::EncodeError;

use super::head::Head;
use super::intake::Giver;
use super::source::SendRequest;
use super::{Agent, Held, Indication, Version};
use crate::codec::bp6::{self, DtnTime, Subject};
use crate::codec::bp7::{AdministrativeRecord, BundleFlags, Eid, Reason, Status, StatusReport};

/// Time between two indications of a kind.
const PERIOD: Duration = Duration::from_secs(60);

/// Bundles that ended, by kind.
#[derive(Debug, Default)]
pub(super) struct Discards {
    /// Time of the last indication, and bundles since, by security rule and reason.
    by_kind: BTreeMap<(Option<u32>, Reason), (Time, u64)>,
}

impl Discards {
    /// Counts a bundle; returns the number to indicate, if one is due.
    pub(super) fn count(&mut self, now: Time, rule: Option<u32>, reason: Reason) -> Option<u64> {
        let kind = (rule, reason);
        let Some((last, count)) = self.by_kind.get_mut(&kind) else {
            self.by_kind.insert(kind, (now, 0));
            return Some(1);
        };
        *count += 1;
        (now.since(*last) >= PERIOD).then(|| {
            *last = now;
            std::mem::take(count)
        })
    }
}

impl Agent {
    /// Indicates that a bundle ended, at most once a minute for each rule and reason.
    pub(super) fn note_discard(
        &mut self,
        now: Time,
        held: &Held,
        rule: Option<u32>,
        reason: Reason,
    ) {
        if let Some(count) = self.discards.count(now, rule, reason) {
            let (id, by) = (held.id(), held.arrival.by.clone());
            self.core.user.indicate(Indication::Discarded { id, by, rule, reason, count });
        }
    }

    /// Reports a deletion, if requested or if this node has custody (RFC 5050 §5.13).
    pub(super) fn report_deletion(&mut self, now: Time, number: u64, reason: Reason) {
        let Some(held) = self.core.stock.get(number) else { return };
        let flag = BundleFlags::REPORT_DELETION;
        if held.custody.is_some() || held.requests(flag) {
            let held = held.clone();
            self.report_unasked(now, &held, flag, reason);
        }
    }

    /// Sends a status report on a held bundle, if requested.
    pub(super) fn report(&mut self, now: Time, number: u64, flag: BundleFlags, reason: Reason) {
        let Some(held) = self.core.stock.get(number) else { return };
        if held.requests(flag) {
            let held = held.clone();
            self.report_of(now, &held, flag, reason);
        }
    }

    /// Sends a status report on a bundle, if requested.
    pub(super) fn report_of(&mut self, now: Time, held: &Held, flag: BundleFlags, reason: Reason) {
        if held.requests(flag) {
            self.report_unasked(now, held, flag, reason);
        }
    }

    /// Reports the reception of a bundle that is not kept, if requested: this precedes all that ends
    /// a bundle (RFC 9171 §5.6 step 2).
    pub(super) fn report_arrival(&mut self, now: Time, held: &Held) {
        self.report_of(now, held, BundleFlags::REPORT_RECEPTION, Reason::NoInformation);
    }

    /// Reports the reception of a block that is not supported, which the block requests, not the
    /// bundle (RFC 9171 §5.6 step 4).
    pub(super) fn report_block(&mut self, now: Time, held: &Held) {
        let flag = BundleFlags::REPORT_RECEPTION;
        self.report_unasked(now, held, flag, Reason::BlockUnsupported);
    }

    fn report_unasked(&mut self, now: Time, held: &Held, flag: BundleFlags, reason: Reason) {
        let head = &held.head;
        let policy = self.core.config.reports;
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
            return;
        }
        let bytes = self.status_report(now, held, flag, reason);
        if let Ok(bytes) = bytes {
            self.send_record(now, head.version(), head.report_to(), head.lifetime_ms(), bytes);
        }
    }

    /// Status report on a bundle, in the version of the bundle.
    fn status_report(
        &self,
        now: Time,
        held: &Held,
        flag: BundleFlags,
        reason: Reason,
    ) -> Result<Vec<u8>, EncodeError> {
        let (source, fragment) = (held.head.source().clone(), held.key().fragment);
        let Head::Six(six) = &held.head else {
            let time =
                self.core.clock().dtn_time(now).filter(|_| held.requests(BundleFlags::STATUS_TIME));
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
            return AdministrativeRecord::StatusReport(report).to_vec();
        };
        let time = self.core.clock().time_six(now);
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
        bp6::AdministrativeRecord::StatusReport(report).to_vec()
    }

    pub(super) fn send_record_six(
        &mut self,
        now: Time,
        to: &Eid,
        lifetime_ms: u64,
        record: &bp6::AdministrativeRecord,
    ) {
        if let Ok(bytes) = record.to_vec() {
            self.send_record(now, Version::Six, to, lifetime_ms, bytes);
        }
    }

    /// Sends an administrative record, if there is room.
    fn send_record(
        &mut self,
        now: Time,
        version: Version,
        to: &Eid,
        lifetime_ms: u64,
        bytes: Vec<u8>,
    ) {
        if !self.core.check_room(bytes.len() as u64 + 256) {
            return;
        }
        // In version 6 a neighbour may keep and lose a fragment, and records have no custodian.
        let uncut = match version {
            Version::Six => BundleFlags::MUST_NOT_FRAGMENT,
            Version::Seven => BundleFlags::default(),
        };
        let request = SendRequest {
            version,
            flags: BundleFlags::ADMINISTRATIVE.with(uncut),
            report_to: Some(Eid::None),
            lifetime: Duration::from_millis(lifetime_ms),
            ..SendRequest::new(to.clone(), bytes)
        };
        if let Ok(head) = self.head(now, self.core.config.node.clone(), &request)
            && self.fault_of_six(&head, true).is_none()
        {
            self.begin(now, Giver::Agent, head, request.payload, false);
        }
    }
}

/// A version 6 report as one of version 7.
pub(super) fn of_six(report: &bp6::StatusReport) -> StatusReport {
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
