//! Status reports (RFC 9171 §6.1.1, RFC 5050 §6.1.1). A report is of the version of the bundle
//! that it is about.

use std::time::Duration;

use engine::Time;

use super::head::Head;
use super::intake::Giver;
use super::source::SendRequest;
use super::{Agent, Held, Version};
use crate::codec::bp6::{self, DtnTime, Subject};
use crate::codec::bp7::{
    AdministrativeRecord, BundleFlags, CreationTimestamp, Eid, Reason, Status, StatusReport,
};

impl Agent {
    /// Reports a deletion, if requested or if this node has custody (RFC 5050 §5.13).
    pub(super) fn report_deletion(&mut self, now: Time, number: u64, reason: Reason) {
        let Some(held) = self.bundles.get(&number) else { return };
        let flag = BundleFlags::REPORT_DELETION;
        if held.custody.is_some() || held.requests(flag) {
            let held = held.clone();
            self.report_unasked(now, &held, flag, reason);
        }
    }

    /// Sends a status report on a held bundle, if requested.
    pub(super) fn report(&mut self, now: Time, number: u64, flag: BundleFlags, reason: Reason) {
        let Some(held) = self.bundles.get(&number) else { return };
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
        let policy = self.config.reports;
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
        let bytes = match head {
            Head::Six(head) => {
                let len = held.payload.len();
                let report = self.report_of_six(now, head.primary(), len, flag, reason);
                bp6::AdministrativeRecord::StatusReport(report).to_vec()
            }
            Head::Seven(_) => {
                let report = self.report_of_seven(now, held, flag, reason);
                AdministrativeRecord::StatusReport(report).to_vec()
            }
        };
        if let Ok(bytes) = bytes {
            self.send_record(now, head.version(), head.report_to(), head.lifetime_ms(), bytes);
        }
    }

    fn report_of_seven(
        &self,
        now: Time,
        held: &Held,
        flag: BundleFlags,
        reason: Reason,
    ) -> StatusReport {
        let head = &held.head;
        let time = self.clock().dtn_time(now);
        let time = time.filter(|_| head.flags().contains(BundleFlags::STATUS_TIME));
        let status = |of| match (of == flag, time) {
            (false, _) => Status::NotAsserted,
            (true, None) => Status::Asserted,
            (true, Some(time)) => Status::At(time),
        };
        StatusReport {
            received: status(BundleFlags::REPORT_RECEPTION),
            forwarded: status(BundleFlags::REPORT_FORWARDING),
            delivered: status(BundleFlags::REPORT_DELIVERY),
            deleted: status(BundleFlags::REPORT_DELETION),
            reason,
            source: head.source().clone(),
            creation: head.creation(),
            fragment: head.key().fragment,
        }
    }

    fn report_of_six(
        &self,
        now: Time,
        primary: &bp6::Primary,
        len: u64,
        flag: BundleFlags,
        reason: Reason,
    ) -> bp6::StatusReport {
        let time = self.dtn_time_six(now);
        let status = |of| (of == flag).then_some(time);
        bp6::StatusReport {
            subject: Subject {
                source: primary.source.clone(),
                creation: primary.creation,
                fragment: primary.fragment.map(|fragment| (fragment.offset, len)),
            },
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
        }
    }

    /// The time in the format of version 6; 0 from a node without a clock.
    pub(super) fn dtn_time_six(&self, now: Time) -> DtnTime {
        let ms = self.clock().dtn_time(now).unwrap_or(0);
        DtnTime { seconds: ms / 1000, nanoseconds: ms % 1000 * 1_000_000 }
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
        if !self.check_room(bytes.len() as u64 + 256) {
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
        if let Ok(head) = self.head(now, self.config.node.clone(), &request)
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
    let bp6::CreationTimestamp { time_s, sequence } = report.subject.creation;
    StatusReport {
        received: status(report.received),
        forwarded: status(report.forwarded),
        delivered: status(report.delivered),
        deleted: status(report.deleted),
        reason: Reason::from_code(u64::from(report.reason.code())),
        source: report.subject.source.clone(),
        creation: CreationTimestamp { time_ms: time_s.saturating_mul(1000), sequence },
        fragment: report.subject.fragment,
    }
}
