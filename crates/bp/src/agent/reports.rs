//! Status reports (RFC 9171 §6.1.1, RFC 5050 §6.1.1), and indications of bundles that end here. A
//! report is of the version of the bundle that it is about.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::Time;

use super::head::Head;
use super::source::SendRequest;
use super::stock::Core;
use super::{Held, Version};
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
            let time = core.clock().time_six(now);
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
    };
    Some(record_request(head.version(), head.report_to(), head.lifetime_ms(), report.ok()?))
}

/// Administrative record to send.
pub(super) fn record_request(
    version: Version,
    to: &Eid,
    lifetime_ms: u64,
    bytes: Vec<u8>,
) -> SendRequest {
    // In version 6 a neighbour may keep and lose a fragment, and records have no custodian.
    let uncut = match version {
        Version::Six => BundleFlags::MUST_NOT_FRAGMENT,
        Version::Seven => BundleFlags::default(),
    };
    SendRequest {
        version,
        flags: BundleFlags::ADMINISTRATIVE.with(uncut),
        report_to: Some(Eid::None),
        lifetime: Duration::from_millis(lifetime_ms),
        ..SendRequest::new(to.clone(), bytes)
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
