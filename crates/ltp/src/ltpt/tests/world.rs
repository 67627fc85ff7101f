//! Several engines, and hops between them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use engine::{
    Area, FilestoreRequest, MemoryStore, PathId, PathInfo, Rng, StoreEffect, Ticket, Time,
};

pub(super) use crate::test_world::{content, name};

use crate::ltpt::{Config, Otherwise, Routing};
use crate::segment::ltpt::Transport;
use crate::segment::{Body, DataKind, End, Segment, SessionId};
use crate::test_world::{self, Hop, once_unless};
use crate::tests::world::reason_name;
use crate::{Finished, Indication, Node, Red, Remote, SendRequest};

pub(super) type World = test_world::World<Node>;

type Settings = crate::Config;

/// Settings of host `index` of a chain of `count`, numbered from 1: blocks for higher numbers go
/// up.
pub(super) fn chain_settings(
    index: usize,
    count: usize,
    transport: &Config,
    remote: &Remote,
) -> Settings {
    let own = index as u64 + 1;
    let mut to = BTreeMap::new();
    let mut remotes = BTreeMap::new();
    for other in (1..=count as u64).filter(|other| *other != own) {
        let next = if other > own { own + 1 } else { own - 1 };
        to.insert(other, next);
        // Hop n is between hosts n and n + 1, counted from 0.
        let path = PathId(if next > own { index as u32 } else { index as u32 - 1 });
        remotes.insert(next, Remote { path: Some(path), ..remote.clone() });
    }
    let routing = Routing::Static { to, otherwise: Otherwise::Itself };
    let transport = Some(Config { routing, ..transport.clone() });
    Settings {
        engine: own,
        remotes,
        default_remote: remote.clone(),
        transport,
        ..Settings::default()
    }
}

pub(super) fn small() -> Remote {
    Remote { segment_max: Some(1000), repair_copies: 1, ..Remote::default() }
}

/// Hop from host `index` to the next. Its path has the hop's number at both.
pub(super) fn hop(index: usize, delay: Duration, rate_bps: u64) -> Hop {
    let path = PathId(index as u32);
    let ends = [index, index + 1].map(|host| test_world::End { host, path });
    let rate_bps = Some(rate_bps);
    let owlt = Some(delay);
    Hop::new(ends, PathInfo { rate_bps, overhead: 42, owlt, ..PathInfo::datagram(1400) })
}

/// Hops of a chain: 25 ms at 10 Mbit/s.
pub(super) fn hops(count: usize) -> Vec<Hop> {
    (0..count).map(|index| hop(index, Duration::from_millis(25), 10_000_000)).collect()
}

impl World {
    /// Engines 1, 2, 3 in a row, 25 ms from each other at 10 Mbit/s.
    pub(super) fn chain(count: usize, transport: &Config, remote: &Remote) -> Self {
        let settings = (0..count).map(|i| chain_settings(i, count, transport, remote)).collect();
        Self::relays(settings, hops(count - 1))
    }

    /// Engines with these settings; a crash of a host loses unsynced writes.
    pub(super) fn relays(settings: Vec<Settings>, hops: Vec<Hop>) -> Self {
        let node = |settings: &Settings, run: u64| {
            Node::new(settings.clone(), Rng::new(settings.engine + 1000 * run, "ltpt"))
        };
        let nodes: Vec<_> = settings.iter().map(|settings| node(settings, 0)).collect();
        let mut world = Self::network(Time::ZERO, nodes, hops);
        for host in &mut world.hosts {
            host.unsynced = Some(BTreeMap::new());
        }
        world.next_run = Some(Box::new(move |index, host| {
            remove_strays(&mut host.store);
            node(&settings[index], host.restarts + 1)
        }));
        world.start();
        world
    }

    /// Loses datagrams, given their hop, the sending end, and their number there.
    pub(super) fn lose_on(&mut self, mut lose: impl FnMut(usize, usize, usize) -> bool + 'static) {
        self.fate = Box::new(move |it| once_unless(lose(it.hop, it.from, it.number)));
    }

    /// Sends a file of these bytes from the first host to another.
    pub(super) fn send_to(&mut self, to: u64, content: &[u8], red: Red) -> SessionId {
        self.hosts[0].store.insert(name("source"), content.to_vec());
        let (source, copy) = (name("source"), "copy".to_owned());
        let request = SendRequest { destination: to, source, name: copy, red };
        let now = self.now;
        let id = self.hosts[0]
            .engine
            .charge(|node| node.send(now, request))
            .expect("the request is sound");
        self.drain(0);
        id
    }

    pub(super) fn copy(&self, host: usize) -> Option<&[u8]> {
        self.hosts[host].store.get(&name("copy"))
    }

    /// Results of the sessions reported to a host's user.
    pub(super) fn results(&self, host: usize) -> Vec<&Finished> {
        let all = self.hosts[host].indications.iter();
        let ended = all.filter_map(|indication| match indication {
            Indication::Finished(finished) => Some(finished),
            _ => None,
        });
        ended.collect()
    }

    /// Indications of a host about relayed blocks.
    pub(super) fn transport_indications(&self, host: usize) -> Vec<crate::ltpt::Indication> {
        let transport = |indication: &Indication| match indication {
            Indication::Transport(indication) => Some(*indication),
            _ => None,
        };
        self.hosts[host].indications.iter().filter_map(transport).collect()
    }

    /// Checks that nothing is left of any transfer: no session, working file, record or byte of
    /// storage.
    pub(super) fn assert_clean(&self) {
        for (index, host) in self.hosts.iter().enumerate() {
            assert_eq!(host.engine.sessions().count(), 0, "host {index} has sessions");
            assert_eq!((host.engine.transfers(), host.engine.stored()), (0, 0), "host {index}");
            let spool: Vec<_> = host.store.names(Area::Spool).collect();
            assert!(spool.is_empty(), "host {index} keeps {spool:?}");
            let mut records: Vec<_> = host.store.records().collect();
            // The mark of an earlier run stays until its sender is received again, if ever.
            records.retain(|(key, _)| host.restarts == 0 || !key.starts_with("ltp-"));
            // Received files are remembered.
            records.retain(|(key, _)| !key.starts_with("ltpd-"));
            assert!(records.is_empty(), "host {index} keeps {records:?}");
        }
    }

    /// Asserts that the file arrived at the last host, that both ends are informed, and that
    /// nothing is left.
    pub(super) fn assert_relayed(&self, content: &[u8]) {
        let last = self.hosts.len() - 1;
        assert!(self.copy(last) == Some(content), "{:#?}", self.hop_lines());
        for host in [0, last] {
            let results: Vec<_> =
                self.results(host).iter().map(|finished| finished.result).collect();
            assert_eq!(results, [Ok(())], "host {host}: {:#?}", self.hop_lines());
        }
        self.assert_clean();
    }

    /// Checks that a relay only forwards data it received: bytes on a hop arrived on the one
    /// before.
    pub(super) fn assert_nothing_is_invented(&self) {
        let mut came = BTreeMap::new();
        for sent in &self.log {
            let segment = Segment::decode(&sent.bytes).expect("what an engine sends can be read");
            let Body::Data(data) = segment.body else { continue };
            for (at, byte) in (data.offset..).zip(data.data) {
                let before = sent.hop.checked_sub(1).map(|hop| came.get(&(hop, at)));
                assert!(before.is_none_or(|b| b == Some(byte)), "hop {}, byte {at}", sent.hop);
                if !sent.lost {
                    came.insert((sent.hop, at), *byte);
                }
            }
        }
    }

    /// Transcript with the numbers of the hops.
    pub(super) fn hop_lines(&self) -> Vec<String> {
        let line =
            |sent: &test_world::Sent| format!("{} {}", sent.hop, sent.line(&describe(&sent.bytes)));
        self.log.iter().map(line).collect()
    }
}

/// Removes working files without a record, as drivers do at the start.
fn remove_strays(store: &mut MemoryStore) {
    let kept: BTreeSet<String> = store.records().map(|(key, _)| key.to_owned()).collect();
    let spool: Vec<_> = store.names(Area::Spool).cloned().collect();
    for name in spool.into_iter().filter(|name| !kept.contains(name.path())) {
        let request = FilestoreRequest::DenyFile(name);
        store.execute(StoreEffect::Filestore { ticket: Ticket(u64::MAX), request });
    }
}

/// One segment, without random numbers.
pub(super) fn describe(datagram: &[u8]) -> String {
    let segment = Segment::decode(datagram).expect("what an engine sends can be read");
    let transport = Transport::from_extensions(segment.header).expect("and its extensions");
    match segment.body {
        Body::Data(data) => {
            let color = match data.kind {
                DataKind::Red => "red",
                DataKind::Checkpoint => "red CP",
                DataKind::EndOfRedPart => "red EORP",
                DataKind::EndOfRedBlock => "red EOB",
                DataKind::Green => "green",
                DataKind::EndOfGreenBlock => "green EOB",
            };
            format!("{color} {}-{}", data.offset, data.offset + data.data.len() as u64)
        }
        Body::Report(report) => {
            let claims: Vec<_> =
                report.received().map(|(start, end)| format!("{start}-{end}")).collect();
            format!("RS {}-{}: {}", report.lower, report.upper, claims.join(" "))
        }
        Body::ReportAck { .. } => "RA".to_owned(),
        Body::Cancel { by, reason } => {
            let kind = if by == End::Sender { "CS" } else { "CR" };
            let short = transport.congestion.map(|c| format!(", wait {} s", c.retry_after_s));
            format!("{kind} {}{}", reason_name(reason), short.unwrap_or_default())
        }
        Body::CancelAck { by: End::Sender } => "CAS".to_owned(),
        Body::CancelAck { by: End::Receiver } => "CAR".to_owned(),
    }
}
