//! Admission of new sessions, by the LTP-T transfer that their first segment names.

use engine::Time;
use routing::routes::{Priority, Wanted};

use super::Node;
use super::core::Core;
use super::indication::{Indication, Limit};
use super::transport::flow::{Flow, Flows, Origin, Relay, Seq};
use crate::config::transport::{Config, Otherwise, Routing};
use crate::indication::transport::{FlowId, Indication as Notice};
use crate::segment::ltpt::{Address, Congestion, CongestionReason, End, Lifetime, Transport};
use crate::segment::{CancelReason, Data, Segment, SessionId};

/// Outcome of the admission of a new session.
#[derive(Debug)]
pub(crate) enum Intake {
    /// Accepted without LTP-T.
    Plain,
    /// Accepted: brings a block for this engine.
    Last(Seq),
    /// Accepted: brings a block for another engine.
    Onward(Seq, Box<Relay>),
    /// Ignored until a segment arrives that names the transfer.
    Unknown,
    /// Not needed: another session has brought or brings the whole block.
    Known,
    /// Refused.
    Refused(CancelReason, Option<Congestion>),
}

const UNREACHABLE: Intake = Intake::Refused(CancelReason::Unreachable, None);

impl Node {
    /// Decides about a session that starts with this segment.
    pub(crate) fn admit(&mut self, now: Time, segment: &Segment<'_>, data: &Data<'_>) -> Intake {
        if self.core.config.transport.is_none() {
            return Intake::Plain;
        }
        let Ok(transport) = Transport::from_extensions(segment.header) else {
            self.core.stats.decode_errors += 1;
            return Intake::Unknown;
        };
        let Some(destination) = transport.destination else {
            // These two kinds of segments carry the extension, if there is one.
            let says = data.offset == 0 || data.checkpoint.is_some();
            return if says { Intake::Plain } else { Intake::Unknown };
        };
        let (Some(source), Some(number)) = (transport.source, transport.flow) else {
            return UNREACHABLE;
        };
        let id = FlowId { source, number };
        match self.known(id, destination, segment.session) {
            Some(admission) => admission,
            None => self.admit_new(now, id, destination, data.service, segment.session, transport),
        }
    }

    /// Decides about a session of a known transfer, if the state of the transfer settles it.
    fn known(&mut self, id: FlowId, to: End, session: SessionId) -> Option<Intake> {
        let before = Some(session.originator);
        let is_last = to.address == Address::Engine(self.core.config.engine);
        if let Some(finished) = self.flows.finished.get(&id) {
            // Another path indicates a routing loop.
            let is_same = is_last && finished.is_last || finished.before == before;
            return Some(if is_same { Intake::Known } else { UNREACHABLE });
        }
        let known: Vec<_> =
            self.flows.with_id(id).map(|(seq, flow)| (seq, flow.before())).collect();
        for (seq, from) in known {
            if from == before {
                let flow = self.flows.get(seq)?;
                if flow.kept.is_some() {
                    return Some(Intake::Known);
                }
                // The previous engine restarted the transfer: data that was sent to it so far is
                // useless.
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
        to: End,
        service: u64,
        session: SessionId,
        transport: Transport,
    ) -> Intake {
        let Self { core, flows, .. } = self;
        let Some(config) = core.config.transport.as_ref() else { return Intake::Plain };
        let Address::Engine(destination) = to.address else { return UNREACHABLE };
        let is_last = destination == core.config.engine;
        let lifetime = transport.lifetime.unwrap_or_else(|| lifetime(config, now));
        // Blocks for this engine are welcome however late they arrive.
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
            // Only relayed blocks take storage meant for others.
            return if flows.len() < config.limits.transfers {
                Intake::Last(flows.insert(flow))
            } else {
                no_room(core, &flow)
            };
        }
        // A block that never fits is refused permanently.
        if size > config.limits.storage || next_hop(config, flows, now, destination, size).is_none()
        {
            return UNREACHABLE;
        }
        if flows.keeps(session) {
            // The working file is named after the session; the block can arrive by another session.
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

/// Congestion reported to a peer whose block has no room.
pub(crate) fn congestion(config: &Config) -> Congestion {
    let retry_after_s = config.retry_after.as_secs().max(1);
    Congestion { reason: CongestionReason::Storage, retry_after_s }
}

/// Lifetime of a block sent now.
pub(crate) fn lifetime(config: &Config, now: Time) -> Lifetime {
    let end = now + config.lifetime;
    let expiry_s = (config.clock / 1000).saturating_add(end.as_nanos().div_ceil(1_000_000_000));
    Lifetime { hops: config.hops, expiry_s }
}

/// Time at which a lifetime ends.
pub(crate) fn time_of(config: &Config, lifetime: Lifetime) -> Time {
    let seconds = lifetime.expiry_s.saturating_sub(config.clock / 1000);
    Time::from_nanos(seconds.saturating_mul(1_000_000_000))
}

/// Next engine on the route, and when it can be reached.
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
            let route = flows.router.as_ref()?.routes(now, &wanted, 1).pop()?;
            Some((route.next_hop, route.leaves))
        }
    }
}
