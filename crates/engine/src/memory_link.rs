//! A link in memory that delays datagrams, and loses some.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::{Datagram, Rng, Time};

/// Link between engines that are driven by hand.
///
/// Examples and tests use it. The link model of the simulator and the emulator, with rates, queues
/// and errors, is `slowlight-link`.
#[derive(Clone, Debug)]
pub struct MemoryLink {
    light: Duration,
    loss: f64,
    losses: Rng,
    /// Datagrams in transit, by arrival and number: the receiver, and the datagram.
    transit: BTreeMap<(Time, u64), (usize, Vec<u8>)>,
    sent: u64,
}

impl MemoryLink {
    /// Link with a delay of `light`, on which a datagram is lost with probability `loss`.
    #[must_use]
    pub fn new(light: Duration, loss: f64, losses: Rng) -> Self {
        Self { light, loss, losses, transit: BTreeMap::new(), sent: 0 }
    }

    /// Sends datagrams to the engine with this number.
    pub fn send(&mut self, now: Time, to: usize, datagrams: Vec<Datagram>) {
        for datagram in datagrams {
            self.sent += 1;
            if !self.losses.chance(self.loss) {
                self.transit.insert((now + self.light, self.sent), (to, datagram.bytes));
            }
        }
    }

    /// Arrival of the next datagram.
    #[must_use]
    pub fn next(&self) -> Option<Time> {
        self.transit.keys().next().map(|(at, _)| *at)
    }

    /// Takes a datagram that has arrived: the number of its receiver, and its bytes.
    pub fn receive(&mut self, now: Time) -> Option<(usize, Vec<u8>)> {
        self.transit.first_entry().filter(|it| it.key().0 <= now).map(|it| it.remove())
    }

    /// Number of datagrams sent, with those that were lost.
    #[must_use]
    pub const fn sent(&self) -> u64 {
        self.sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PathId;

    const LIGHT: Duration = Duration::from_secs(2);

    fn datagrams(count: u8) -> Vec<Datagram> {
        let datagram =
            |number| Datagram { path: PathId(1), not_before: Time::ZERO, bytes: vec![number] };
        (0..count).map(datagram).collect()
    }

    #[test]
    fn datagrams_arrive_in_order_after_the_delay() {
        let mut link = MemoryLink::new(LIGHT, 0.0, Rng::new(1, "losses"));
        link.send(Time::from_secs(1), 1, datagrams(2));
        assert_eq!(link.next(), Some(Time::from_secs(3)));
        assert_eq!(link.receive(Time::from_secs(2)), None);
        assert_eq!(link.receive(Time::from_secs(3)), Some((1, vec![0])));
        assert_eq!(link.receive(Time::from_secs(3)), Some((1, vec![1])));
        assert_eq!((link.receive(Time::from_secs(3)), link.next()), (None, None));
    }

    #[test]
    fn a_share_of_the_datagrams_is_lost() {
        let mut link = MemoryLink::new(LIGHT, 0.1, Rng::new(1, "losses"));
        for _ in 0..10 {
            link.send(Time::ZERO, 0, datagrams(100));
        }
        let mut arrived = 0;
        while link.receive(Time::from_secs(2)).is_some() {
            arrived += 1;
        }
        assert_eq!(link.sent(), 1_000);
        assert!((850..950).contains(&arrived), "{arrived}");
    }
}
