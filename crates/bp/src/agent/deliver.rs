//! Delivery of bundles to the users of this node (RFC 9171 §5.7).

use engine::Time;

use super::super::layer::Content;
use super::custody::Signaller;
use super::head::{Head, Key};
use super::join::Whole;
use super::source::report_from_version_six;
use super::stock::Core;
use super::{Agent, DeliveryId, Indication};
use crate::codec::bp6::AdministrativeRecord as RecordSix;
use crate::codec::bp7::{AdministrativeRecord, BundleFlags, Eid};

impl Agent {
    /// Delivers a bundle to its user, or keeps it until there is one.
    pub(super) fn deliver(&mut self, now: Time, number: u64) {
        let Some(held) = self.core.stock.get(number) else { return };
        if held.head.fragment().is_some() {
            return self.collect(now, number);
        }
        let is_record = held.requests(BundleFlags::ADMINISTRATIVE);
        let key = held.key();
        self.joined(now, &key);
        if is_record {
            self.administrative(now, number);
        } else {
            deliver(&mut self.core, number);
        }
    }

    /// Adds a fragment for this node, and reassembles the bundle if it is complete.
    fn collect(&mut self, now: Time, number: u64) {
        match self.admission.joins.collect(&mut self.core, number) {
            Some(whole) => self.join(now, &whole),
            None => {
                // Another giver's fragment with the same bounds is no duplicate of it.
                self.drop_unremembered(number);
                self.core.arm_expiry();
            }
        }
    }

    fn join(&mut self, now: Time, whole: &Whole) {
        let core = &mut self.core;
        let has_place = self.reception.has_place(core);
        if let Some((number, intake)) = self.admission.joins.join(core, whole, has_place) {
            let received = self.reception.join(core, number, intake);
            self.receive(now, received);
        }
    }

    /// Deletes the fragments of a bundle that is whole here, and safe.
    fn joined(&mut self, now: Time, key: &Key) {
        let (fragments, receptions) = self.admission.joins.joined(key);
        if fragments.is_empty() {
            return;
        }
        receptions.into_iter().for_each(|number| self.reception.discard(&mut self.core, number));
        fragments.into_iter().for_each(|number| self.discard(number));
        self.join_others(now);
    }

    /// Drops fragments of a reassembled bundle that fails its security.
    pub(super) fn join_refused(&mut self, now: Time, number: u64) {
        let Some((whole, suspects)) = self.admission.joins.refused(number) else { return };
        suspects.into_iter().for_each(|number| self.drop_unremembered(number));
        self.admission.joins.recount(&whole);
        self.core.arm_expiry();
        self.join(now, &whole);
        self.join_others(now);
    }

    /// Retries postponed reassemblies, until one is postponed again.
    pub(super) fn join_others(&mut self, now: Time) {
        while let Some(whole) = self.admission.joins.later.pop_first() {
            self.join(now, &whole);
            if self.admission.joins.later.contains(&whole) {
                return;
            }
        }
    }

    /// Removes a bundle, its record and its file, as if it had never arrived.
    fn drop_unremembered(&mut self, number: u64) {
        let Some(held) = self.forget(number) else { return };
        if self.core.config.persistent {
            self.core.stock.store.drop(number, held.apart());
        } else {
            self.core.delete_own_file(&held);
        }
    }

    /// Handles an administrative record for this node.
    fn administrative(&mut self, now: Time, number: u64) {
        let core = &mut self.core;
        let Some(held) = core.stock.get(number) else { return };
        let bounds = &core.config.limits.head;
        let from = held.head.source().clone();
        let signaller = Signaller { source: from.clone(), by: held.arrival.by.clone() };
        let taken = match (&held.payload, &held.head) {
            // No record is that long.
            (Content::File { .. }, _) => None,
            (Content::Bytes(bytes), Head::Seven(_)) => {
                match AdministrativeRecord::decode(bytes, bounds) {
                    Ok(AdministrativeRecord::StatusReport(report)) => {
                        core.user.indicate(Indication::Report { from, report });
                        Some(Vec::new())
                    }
                    Ok(AdministrativeRecord::Other { .. }) | Err(_) => None,
                }
            }
            (Content::Bytes(bytes), Head::Six(_)) => match RecordSix::decode(bytes, bounds) {
                Ok(RecordSix::StatusReport(report)) => {
                    let report = report_from_version_six(&report);
                    core.user.indicate(Indication::Report { from, report });
                    Some(Vec::new())
                }
                Ok(RecordSix::CustodySignal(signal)) => {
                    Some(self.custodian.on_signal(core, &signaller, &signal))
                }
                Ok(RecordSix::AggregateCustodySignal(signal)) => {
                    Some(self.custodian.on_aggregate_signal(core, &signaller, &signal))
                }
                Ok(RecordSix::Other { .. }) | Err(_) => None,
            },
        };
        let Some(taken) = taken else {
            core.statistics.malformed += 1;
            return self.discard_if_done(number);
        };
        taken.into_iter().for_each(|number| self.discard(number));
        self.discard_if_done(number);
        self.forwarder.pump_freed(&mut self.core, now);
    }
}

/// Delivers a bundle to its user, after those that wait, or keeps it until there is one.
fn deliver(core: &mut Core, number: u64) {
    let Some(held) = core.stock.get_mut(number) else { return };
    let endpoint = held.destination().clone();
    held.waits = true;
    core.users.wait(&endpoint, number);
    deliver_waiting(core, &endpoint);
}

/// Delivers the bundles waiting for an endpoint in order of arrival, as long as its user takes
/// more.
pub(super) fn deliver_waiting(core: &mut Core, endpoint: &Eid) {
    let most = core.config.limits.delivering;
    while let Some(number) = core.users.take_next(endpoint, most) {
        let Some(held) = core.stock.get_mut(number) else { continue };
        (held.waits, held.delivering) = (false, true);
        core.user.indicate(Indication::Delivered {
            delivery: DeliveryId(number),
            endpoint: endpoint.clone(),
            id: held.id(),
            version: held.head.version(),
            verified: held.arrival.verified.clone(),
            payload: held.payload.clone(),
        });
    }
}
