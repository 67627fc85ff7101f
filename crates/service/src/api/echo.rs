//! Echo service: sends payloads back to their source, within bounds.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use bp::agent::{Agent, DeliveryId, SendRequest};
use bp::codec::bp7::{BundleId, Eid};
use bp::layer::Content;
use engine::Time;

use super::receivers::Delivered;

/// Maximum echoes in the store.
const HELD_MAX: usize = 1000;
/// Maximum echoes of payloads in files, whose pings are kept until the echo has left.
const FILES_MAX: usize = 16;
/// Echoes per second, and echoes that may be sent at once.
const RATE: f64 = 10_000.0;
/// Echoes of the same payload to the same source within [`SAME_FOR`]: two echoes that reply to
/// each other would never end.
const SAME_MAX: u32 = 8;
const SAME_FOR: Duration = Duration::from_secs(3600);
/// Payloads that are remembered.
const SAME_KEPT: usize = 4096;
/// Interval of counting the echoes in a full store.
const COUNT_EVERY: Duration = Duration::from_millis(100);

/// Echo service of a node.
#[derive(Debug)]
pub(super) struct Echo {
    endpoint: Eid,
    /// Echoes that may be in the store; with a payload in a file, the delivery of its ping.
    sent: BTreeMap<BundleId, Option<DeliveryId>>,
    /// Time of the last count of the echoes in the store.
    counted: Option<Time>,
    /// Echoes that may be sent now, and the time of the last change.
    allowance: (f64, Time),
    /// Recent payloads, with the time of the first and their number.
    recent: BTreeMap<u64, (Time, u32)>,
    order: VecDeque<u64>,
}

/// Reason why a ping gets no echo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refused {
    /// The source is null, or an echo.
    Source,
    /// Too many echoes of the same payload.
    Same,
    /// There are too many echoes.
    Bound,
}

impl Echo {
    pub(super) fn new(endpoint: Eid) -> Self {
        Self {
            endpoint,
            sent: BTreeMap::new(),
            counted: None,
            allowance: (RATE, Time::ZERO),
            recent: BTreeMap::new(),
            order: VecDeque::new(),
        }
    }

    /// Sends a delivered bundle back; deletes it if that is refused.
    pub(super) fn send_back(&mut self, now: Time, agent: &mut Agent, ping: Delivered) {
        let Delivered { delivery, id, facts, payload, .. } = ping;
        let left = facts.map(|facts| facts.left);
        let is_file = matches!(payload, Content::File { .. });
        if is_file {
            self.sweep(now, agent);
        }
        let result = self.admit(now, agent, &id, &payload);
        if result.is_ok() {
            let request = SendRequest {
                source: Some(self.endpoint.clone()),
                lifetime: left.unwrap_or_default(),
                payload,
                ..SendRequest::new(id.source.clone(), &b""[..])
            };
            match agent.send(now, request) {
                Ok(echo) => {
                    self.sent.insert(echo, is_file.then_some(delivery));
                    if is_file {
                        // The file belongs to the ping.
                        return;
                    }
                }
                Err(error) => tracing::debug!(%error, "an echo is not sent"),
            }
        } else {
            tracing::debug!(%id, why = ?result, "a bundle gets no echo");
            if is_file || result == Err(Refused::Bound) {
                // Its source may have requested a report of this.
                let _ = agent.cancel(now, &id);
                return;
            }
        }
        confirm(now, agent, delivery);
    }

    /// Whether a bundle gets an echo.
    fn admit(
        &mut self,
        now: Time,
        agent: &Agent,
        id: &BundleId,
        payload: &Content,
    ) -> Result<(), Refused> {
        let service = id.source.service();
        if id.source.is_none() || service.is_some() && service == self.endpoint.service() {
            return Err(Refused::Source);
        }
        if !self.note_payload(now, id, payload) {
            return Err(Refused::Same);
        }
        let is_file = matches!(payload, Content::File { .. });
        let files = || self.sent.values().flatten().count();
        if is_file && files() >= FILES_MAX
            || !self.make_room(now, agent)
            || !self.take_allowance(now)
        {
            return Err(Refused::Bound);
        }
        Ok(())
    }

    /// Notes a payload. Returns whether it has not come from the same source too often.
    fn note_payload(&mut self, now: Time, id: &BundleId, payload: &Content) -> bool {
        // Echoes of files end by their small number, and with the lifetime of the first ping.
        let Content::Bytes(bytes) = payload else { return true };
        let mut hash = DefaultHasher::new();
        id.source.hash(&mut hash);
        bytes.hash(&mut hash);
        let payload = hash.finish();
        if let Some((since, count)) = self.recent.get_mut(&payload)
            && now.since(*since) < SAME_FOR
        {
            *count = count.saturating_add(1);
            return *count <= SAME_MAX;
        }
        if self.recent.insert(payload, (now, 1)).is_none() {
            self.order.push_back(payload);
        }
        if self.order.len() > SAME_KEPT
            && let Some(oldest) = self.order.pop_front()
        {
            self.recent.remove(&oldest);
        }
        true
    }

    /// Forgets echoes that have left. Returns whether the store has fewer than allowed.
    fn make_room(&mut self, now: Time, agent: &Agent) -> bool {
        if self.sent.len() >= HELD_MAX
            && self.counted.is_none_or(|counted| now.since(counted) >= COUNT_EVERY)
        {
            self.counted = Some(now);
            self.sent.retain(|echo, ping| ping.is_some() || agent.holds(echo));
        }
        self.sent.len() < HELD_MAX
    }

    /// Takes one echo from the allowance. Returns whether the rate allows it.
    fn take_allowance(&mut self, now: Time) -> bool {
        let (allowance, since) = self.allowance;
        let allowance = (allowance + now.since(since).as_secs_f64() * RATE).min(RATE);
        let is_allowed = allowance >= 1.0;
        self.allowance = (allowance - f64::from(u8::from(is_allowed)), now);
        is_allowed
    }

    /// Forgets echoes that have left, and confirms their pings.
    pub(super) fn sweep(&mut self, now: Time, agent: &mut Agent) {
        let mut pings = Vec::new();
        self.sent.retain(|echo, ping| {
            let is_held = agent.holds(echo);
            pings.extend(ping.filter(|_| !is_held));
            is_held
        });
        for ping in pings {
            confirm(now, agent, ping);
        }
    }
}

fn confirm(now: Time, agent: &mut Agent, delivery: DeliveryId) {
    // It may have expired meanwhile.
    let _ = agent.confirm(now, delivery);
}

#[cfg(test)]
mod tests {
    use bp::codec::bp7::CreationTimestamp;

    use super::*;

    fn seconds(n: u64) -> Time {
        Time::ZERO + Duration::from_secs(n)
    }

    fn id(service: u64) -> BundleId {
        let creation = CreationTimestamp { time_ms: 1, sequence: 0 };
        BundleId { source: Eid::ipn(2, service), creation, offset: None }
    }

    #[test]
    fn replies_to_the_same_payload_end() {
        let mut echo = Echo::new(Eid::ipn(1, 7));
        let payload = Content::Bytes((&b"ping"[..]).into());
        let new =
            |echo: &mut Echo, at, service| echo.note_payload(seconds(at), &id(service), &payload);
        let sent = (0..100).filter(|at| new(&mut echo, *at, 12_161)).count();
        assert_eq!(sent, 8);
        assert!(new(&mut echo, 100, 9), "another source");
        assert!(new(&mut echo, 3600, 12_161), "an hour later");
        for n in 0..10_000_u32 {
            let payload = Content::Bytes(n.to_be_bytes().to_vec().into());
            assert!(echo.note_payload(seconds(3600), &id(9), &payload));
        }
        assert_eq!((echo.recent.len(), echo.order.len()), (SAME_KEPT, SAME_KEPT));
    }

    #[test]
    fn echoes_are_sent_at_a_bounded_rate() {
        let mut echo = Echo::new(Eid::ipn(1, 7));
        let allowed = (0..20_000).filter(|_| echo.take_allowance(seconds(5))).count();
        assert_eq!(allowed, 10_000);
        let allowed = (0..20_000).filter(|_| echo.take_allowance(seconds(6))).count();
        assert_eq!(allowed, 10_000);
    }
}
