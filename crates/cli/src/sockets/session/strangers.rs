//! Messages about peers that use another protocol than this end.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use engine::Time;
use transport::dissect::{self, Dissector};
use transport::protocol::Protocol;

/// Number of peers that are reported without a pause.
const BURST: u32 = 8;
/// Pause after which one more is reported.
const PAUSE: Duration = Duration::from_secs(10);
/// Maximum number of peers that are not reported again.
const PEERS_MAX: usize = 256;

/// Peers that were reported.
pub(super) struct Strangers {
    /// Protocol of this end, if its datagrams can be read.
    own: Option<&'static Dissector>,
    reported: BTreeSet<SocketAddr>,
    /// Reports that are left at a time.
    left: (u32, Time),
}

impl Strangers {
    /// Without a protocol of this end, nobody is a stranger.
    pub(super) fn new(own: Option<&Protocol>) -> Self {
        let own = own.and_then(|own| own.kind.dissector());
        Self { own, reported: BTreeSet::new(), left: (BURST, Time::ZERO) }
    }

    /// Message about a peer, if its datagram is one of another protocol.
    pub(super) fn described(
        &mut self,
        now: Time,
        from: SocketAddr,
        datagram: &[u8],
    ) -> Option<String> {
        let own = self.own?;
        // A flood costs no more than this once no report is left.
        if !self.takes(now) || self.reported.contains(&from) {
            return None;
        }
        let other = dissect::title_of_other(own, datagram)?;
        if self.reported.len() >= PEERS_MAX {
            self.reported.clear();
        }
        self.reported.insert(from);
        self.left.0 -= 1;
        Some(format!(
            "the program at {from} speaks {other}, not {own}; give both ends the same --protocol"
        ))
    }

    /// Whether one more report is due.
    fn takes(&mut self, now: Time) -> bool {
        let (left, since) = self.left;
        let more = now.since(since).as_secs() / PAUSE.as_secs();
        if more > 0 {
            self.left = (BURST.min(left.saturating_add(more as u32)), now);
        }
        self.left.0 > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_peer_is_reported_once_and_floods_are_not() {
        let mut strangers = Strangers::new(Some(&"cfdp".parse().expect("a protocol")));
        let ltp = [0, 1, 2, 0, 1, 0, 4, 1, 2, 3, 4];
        let mut reports = |at: u64, ports: std::ops::Range<u16>| {
            let now = Time::ZERO + Duration::from_secs(at);
            let from = |port| SocketAddr::from(([127, 0, 0, 1], port));
            ports.filter_map(|port| strangers.described(now, from(port), &ltp)).collect::<Vec<_>>()
        };
        let text = "the program at 127.0.0.1:7 speaks LTP, not CFDP; give both ends the same \
                    --protocol";
        assert_eq!(reports(0, 7..8), [text]);
        assert!(reports(0, 7..8).is_empty());
        assert_eq!(reports(1, 100..1000).len(), 7);
        assert_eq!(reports(21, 1000..2000).len(), 2);
        assert!(reports(22, 2000..3000).is_empty());
    }
}
