//! What becomes of the first segment of a session, by what it says of the transfer it belongs to.

use engine::Time;
use wire::ltp::{CancelReason, Data, Segment, SessionId};
use wire::ltpt::{Address, Congestion, CongestionReason, End, Lifetime, Transport};

use super::Node;
use super::core::Core;
use super::indication::{Indication, Limit};
use super::transport::flow::{Flow, Flows, Origin, Relay, Seq};
use super::transport::{Config, FlowId, Indication as Notice, Otherwise, Routing};
use crate::routing::routes::{Priority, Wanted};

/// What becomes of a session that begins.
#[derive(Debug)]
pub(crate) enum Intake {
    /// It is of LTP alone.
    Plain,
    /// It brings a block for this engine.
    Last(Seq),
    /// It brings one for another.
    Onward(Seq, Box<Relay>),
    /// Nothing can be said before a segment comes that says what it belongs to.
    Unknown,
    /// All of the block is here by another session, or was.
    Known,
    /// It is refused.
    Refused(CancelReason, Option<Congestion>),
}

const UNREACHABLE: Intake = Intake::Refused(CancelReason::Unreachable, None);

impl Node {
    /// What becomes of a session that begins with this segment.
    pub(crate) fn admit(&mut self, now: Time, segment: &Segment<'_>, data: &Data<'_>) -> Intake {
        if self.core.config.transport.is_none() {
            return Intake::Plain;
        }
        let Ok(transport) = Transport::from_extensions(segment.header) else {
            self.core.stats.decode_errors += 1;
            return Intake::Unknown;
        };
        let Some(destination) = transport.destination else {
            // These two kinds of segments say it, if there is anything to say.
            let says = data.offset == 0 || data.checkpoint.is_some();
            return if says { Intake::Plain } else { Intake::Unknown };
        };
        let (Some(source), Some(number)) = (transport.source, transport.flow) else {
            return UNREACHABLE;
        };
        let id = FlowId { source, number };
        match self.known(id, destination, segment.session) {
            Some(admission) => admission,
            None => {
                self.admit_new(now, id, (destination, data.service), segment.session, transport)
            }
        }
    }

    /// What becomes of a session of a transfer that is known, if that is decided by it.
    fn known(&mut self, id: FlowId, to: End, session: SessionId) -> Option<Intake> {
        let before = Some(session.originator);
        let is_last = to.address == Address::Engine(self.core.config.engine);
        if let Some(finished) = self.flows.finished.get(&id) {
            // Another way round means that it went in a circle.
            let is_same = is_last && finished.is_last || finished.before == before;
            return Some(if is_same { Intake::Known } else { UNREACHABLE });
        }
        let known: Vec<_> = self.flows.of(id).map(|(seq, flow)| (seq, flow.before())).collect();
        for (seq, from) in known {
            if from == before {
                let flow = self.flows.get(seq)?;
                if flow.kept.is_some() {
                    return Some(Intake::Known);
                }
                // The engine before this one begins anew: what it sent until now is of no use to it.
                self.supersede(seq);
            } else if !is_last {
                return Some(UNREACHABLE);
            }
        }
        None
    }

    fn admit_new(
        &mut self,
        now: Time,
        id: FlowId,
        (to, service): (End, u64),
        session: SessionId,
        transport: Transport,
    ) -> Intake {
        let Self { core, flows, .. } = self;
        let Some(config) = core.config.transport.as_ref() else { return Intake::Plain };
        let Address::Engine(destination) = to.address else { return UNREACHABLE };
        let is_last = destination == core.config.engine;
        let lifetime = transport.lifetime.unwrap_or_else(|| lifetime(config, now));
        // What is for this engine is welcome, however late it is.
        if !is_last && (time_of(config, lifetime) <= now || lifetime.hops == 0) {
            return UNREACHABLE;
        }
        let size = transport.size.unwrap_or_default();
        let hops = lifetime.hops.saturating_sub(1);
        let onward = Transport {
            lifetime: Some(Lifetime { hops, ..lifetime }),
            congestion: None,
            ..transport
        };
        let mut flow = Flow::new(id, destination, onward, Origin::Before(session));
        (flow.is_last, flow.service) = (is_last, service);
        flow.reserved = if is_last { 0 } else { size };
        if is_last {
            // Only what passes through takes storage for others; this is what it is for.
            return match flows.len() < config.limits.transfers {
                true => Intake::Last(flows.insert(flow)),
                false => no_room(core, &flow),
            };
        }
        // What never fits is refused for good.
        if size > config.limits.storage || next_hop(config, flows, now, destination, size).is_none()
        {
            return UNREACHABLE;
        }
        if flows.keeps(session) {
            // Its working file has the name of the session; by another one the block can come.
            return Intake::Refused(CancelReason::System, None);
        }
        let is_full = flows.len() >= config.limits.transfers
            || size > config.limits.storage.saturating_sub(flows.stored);
        if is_full {
            return no_room(core, &flow);
        }
        core.user.indicate(Indication::Transport(Notice::Relaying(flow.transfer())));
        let seq = flows.insert(flow);
        Intake::Onward(seq, Box::new(Relay::new(service, onward)))
    }
}

fn no_room(core: &mut Core, flow: &Flow) -> Intake {
    core.user.limit_reached(Limit::Storage);
    let notice = Notice::Refused { transfer: flow.transfer() };
    core.user.indicate(Indication::Transport(notice));
    Intake::Refused(CancelReason::System, core.config.transport.as_ref().map(congestion))
}

/// What one hears for whose block there is no room.
pub(crate) fn congestion(config: &Config) -> Congestion {
    let retry_after_s = config.retry_after.as_secs().max(1);
    Congestion { reason: CongestionReason::Storage, retry_after_s }
}

/// The lifetime of a block that is sent now.
pub(crate) fn lifetime(config: &Config, now: Time) -> Lifetime {
    let end = now + config.lifetime;
    let expiry_s = (config.clock / 1000).saturating_add(end.as_nanos().div_ceil(1_000_000_000));
    Lifetime { hops: config.hops, expiry_s }
}

/// When a lifetime is over.
pub(crate) fn time_of(config: &Config, lifetime: Lifetime) -> Time {
    let seconds = lifetime.expiry_s.saturating_sub(config.clock / 1000);
    Time::from_nanos(seconds.saturating_mul(1_000_000_000))
}

/// The next engine on the way to another, and when it can be reached.
pub(crate) fn next_hop(
    config: &Config,
    flows: &Flows,
    now: Time,
    destination: u64,
    bytes: u64,
) -> Option<(u64, Time)> {
    match &config.routing {
        Routing::Static { to, otherwise } => {
            let next = match (to.get(&destination), otherwise) {
                (Some(next), _) | (None, Otherwise::By(next)) => *next,
                (None, Otherwise::Itself) => destination,
                (None, Otherwise::Nowhere) => return None,
            };
            Some((next, now))
        }
        Routing::Contacts(_) => {
            let wanted = Wanted {
                destination,
                bytes,
                priority: Priority::Normal,
                expires: now + config.lifetime,
                excluded: &std::collections::BTreeSet::new(),
            };
            let route = flows.router.as_ref()?.best(now, &wanted)?;
            Some((route.next_hop, route.leaves))
        }
    }
}
