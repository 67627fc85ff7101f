//! Status reports (RFC 9171 §6.1.1).

use engine::Time;
use wire::bp7::{
    AdministrativeRecord, BlockFlags, BundleFlags, Head, Payload, Primary, Reason, Status,
    StatusReport,
};

use super::super::layer::Content;
use super::config::dtn_time;
use super::intake::Giver;
use super::{Agent, Held};

impl Agent {
    pub(super) fn report_reception(&mut self, now: Time, number: u64) {
        self.report(now, number, BundleFlags::REPORT_RECEPTION, Reason::NoInformation);
    }

    /// Tells who asked for it what became of a bundle that is held.
    pub(super) fn report(&mut self, now: Time, number: u64, flag: BundleFlags, reason: Reason) {
        let Some(held) = self.bundles.get(&number) else { return };
        if held.asks(flag) {
            let held = held.clone();
            self.report_of(now, &held, flag, reason);
        }
    }

    /// The same, of one that is not.
    pub(super) fn report_of(&mut self, now: Time, held: &Held, flag: BundleFlags, reason: Reason) {
        let primary = held.head.primary();
        let policy = self.config.reports;
        let wanted = match flag {
            BundleFlags::REPORT_RECEPTION => policy.reception,
            BundleFlags::REPORT_FORWARDING => policy.forwarding,
            BundleFlags::REPORT_DELIVERY => policy.delivery,
            BundleFlags::REPORT_DELETION => policy.deletion,
            _ => false,
        };
        // Nobody is told of records, so that reports beget no reports.
        let is_record = primary.flags.contains(BundleFlags::ADMINISTRATIVE);
        let nowhere = primary.report_to.is_none();
        if !wanted || !primary.flags.contains(flag) || is_record || nowhere || !self.has_room(256) {
            return;
        }
        let time = dtn_time(self.config.clock, now)
            .filter(|_| primary.flags.contains(BundleFlags::STATUS_TIME));
        let status = |of| match (of == flag, time) {
            (false, _) => Status::NotAsserted,
            (true, None) => Status::Asserted,
            (true, Some(time)) => Status::At(time),
        };
        let report = StatusReport {
            received: status(BundleFlags::REPORT_RECEPTION),
            forwarded: status(BundleFlags::REPORT_FORWARDING),
            delivered: status(BundleFlags::REPORT_DELIVERY),
            deleted: status(BundleFlags::REPORT_DELETION),
            reason,
            source: primary.source.clone(),
            creation: primary.creation,
            fragment: primary.fragment.map(|fragment| (fragment.offset, held.payload.len())),
        };
        let Ok(record) = AdministrativeRecord::StatusReport(report).to_vec() else { return };
        let about = Primary {
            flags: BundleFlags::ADMINISTRATIVE,
            crc: self.config.crc.primary,
            destination: primary.report_to.clone(),
            source: self.config.node.clone(),
            report_to: wire::bp7::Eid::None,
            creation: self.creation(now),
            lifetime_ms: primary.lifetime_ms,
            fragment: None,
        };
        let payload = Payload {
            flags: BlockFlags::default(),
            crc: self.config.crc.payload,
            len: record.len() as u64,
        };
        let blocks = self.first_blocks(about.creation.time_ms == 0);
        if let Ok(head) = Head::new(about, blocks, payload) {
            self.begin(now, Giver::Agent, head, Content::Octets(record.into()), false);
        }
    }
}
