//! A candidate with its runs.

use transport::contract::Feature;
use transport::protocol::Protocol;
use transport::settings::Settings;

use super::Candidate;
use super::one_way::OneWay;
use crate::compare::{Measured, Task};

/// Events that count as a packet where a run has more of them: outages, timers. Data has one to
/// two events per packet.
pub(super) const EVENTS_PER_PACKET: f64 = 3.0;

/// A candidate with its runs.
pub(super) struct Tried {
    pub(super) protocol: Protocol,
    pub(super) one_way: Option<OneWay>,
    /// Settings of that mode.
    pub(super) settings: Option<Settings>,
    pub(super) runs: Vec<Measured>,
    /// Runs with shorter files, shortest first.
    pub(super) short: [Vec<Measured>; 3],
}

impl Tried {
    pub(super) fn new(protocol: Protocol) -> Self {
        let (runs, short) = (Vec::new(), Default::default());
        Self { protocol, one_way: None, settings: None, runs, short }
    }

    pub(super) fn task(&self, run: u32) -> Task<'_> {
        Task { protocol: &self.protocol, settings: self.settings.as_ref(), run }
    }

    pub(super) fn is(&self, found: &Candidate) -> bool {
        self.protocol == found.protocol && self.one_way == found.one_way
    }

    /// Whether another run would be the same: it would end early, or losses are not random and the
    /// first runs were equal.
    pub(super) fn is_settled(&self) -> bool {
        if self.runs.iter().any(|run| run.is_cut) {
            return true;
        }
        let times = || self.runs.iter().map(|run| run.metrics.delivered_s.unwrap_or(f64::INFINITY));
        let slowest = times().fold(0.0, f64::max);
        self.runs.len() > 1
            && self.runs.iter().all(|run| !run.metrics.least.bound_is_mean)
            && times()
                .all(|time| time.total_cmp(&slowest).is_eq() || slowest - time < 1e-3 * slowest)
    }

    /// Packets of some runs in both directions, or the events that count as more of them. Multicast
    /// packets count for each receiver.
    pub(super) fn packets(&self, runs: &[Measured], receivers: u32) -> f64 {
        let copies = if self.protocol.kind.has(Feature::Multicast) { receivers.max(1) } else { 1 };
        let packets = |run: &Measured| {
            let traffic = &run.metrics.traffic;
            let both =
                [traffic.packets_str, traffic.packets_rts].into_iter().flatten().sum::<u64>();
            (both as f64 * f64::from(copies)).max(run.events as f64 / EVENTS_PER_PACKET)
        };
        runs.iter().map(packets).sum()
    }
}
