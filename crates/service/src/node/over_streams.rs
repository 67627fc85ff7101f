//! A convergence layer over streams, as TOML describes it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use engine::PathId;
use proto::bp::layer::LinkId;
use proto::bp::tcpcl::{self, Peer, Protocol, Tcpcl};
use rt::node::Carrier;
use rt::streams::{Listening, StreamConfig, StreamOptions};
use serde::{Deserialize, Serialize};
use transport::quantity::{Size, Span};
use transport::text::SpecError;
use wire::bp7::Eid;

use super::layers::{Built, Host, LayerSpec, NamesFiles};
use super::tls::Tls;
use super::{Way, window};

/// A layer over streams.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OverStreams {
    /// What neighbours call it.
    #[serde(default = "tcp")]
    pub name: String,
    /// Where it listens.
    #[serde(default)]
    pub listen: Vec<SocketAddr>,
    /// Between signs of life; 0 for none.
    #[serde(default = "keepalive")]
    pub keepalive: Span,
    /// Data of a segment that is sent.
    #[serde(default = "segment")]
    pub segment: Size,
    /// Bundles under way to a neighbour at one time.
    #[serde(default = "window")]
    pub window: usize,
    /// Octets of bundles under way to a neighbour, up to which there may be more of them.
    #[serde(default = "window_octets")]
    pub window_octets: Size,
    /// Sessions.
    #[serde(default = "sessions")]
    pub sessions: usize,
    /// How long to wait until a connection is tried again, at first and at most.
    #[serde(default = "reconnect")]
    pub reconnect: [Span; 2],
    /// How streams are secured; not at all if it is not said. Only version 4 of TCPCL can that.
    pub tls: Option<Tls>,
}

fn tcp() -> String {
    "tcp".to_owned()
}

const fn keepalive() -> Span {
    Span(Duration::from_secs(30))
}

const fn segment() -> Size {
    Size(64 << 10)
}

const fn window_octets() -> Size {
    Size(1 << 20)
}

const fn sessions() -> usize {
    1024
}

const fn reconnect() -> [Span; 2] {
    [Span(Duration::from_secs(1)), Span(Duration::from_secs(600))]
}

impl NamesFiles for OverStreams {
    fn place(&mut self, folder: &Path) {
        if let Some(tls) = &mut self.tls {
            tls.lie_in(folder);
        }
    }
}

/// A layer over streams, of one protocol.
pub(super) struct Streams<'a> {
    pub(super) layer: &'a OverStreams,
    pub(super) protocol: Protocol,
    /// Whether the protocol can secure streams.
    pub(super) secures: bool,
}

impl LayerSpec for Streams<'_> {
    fn name(&self) -> &str {
        &self.layer.name
    }

    fn check(&self, _node: &Eid) -> Result<(), SpecError> {
        let name = self.name();
        if self.layer.tls.is_some() && !self.secures {
            return Err(SpecError::invalid(format!(
                "layer {name}: only kind \"tcpcl4\" can `tls`; leave it out, or take that kind"
            )));
        }
        self.layer.check()
    }

    fn build(&self, host: Host<'_>) -> Result<Built, SpecError> {
        self.layer.build((self.protocol, host.node), host.links, host.longest)
    }
}

impl OverStreams {
    fn check(&self) -> Result<(), SpecError> {
        let invalid = |message: String| Err(SpecError::invalid(message));
        let name = &self.name;
        if self.tls.as_ref().is_some_and(|tls| tls.anonymous && tls.node_id) {
            return invalid(format!(
                "layer {name}: peers without a certificate (tls.anonymous) prove no node; add \
                 `node_id = false`, or leave out `anonymous`"
            ));
        }
        let keepalive = self.keepalive.duration();
        if keepalive.subsec_nanos() != 0 || keepalive.as_secs() > u64::from(u16::MAX) {
            return invalid(format!(
                "layer {name}: keepalive is whole seconds up to 65535; 0 is none"
            ));
        }
        if !(1..=1 << 30).contains(&self.segment.bytes()) {
            return invalid(format!("layer {name}: segment is not between 1 B and 1 GiB"));
        }
        if self.window == 0 {
            return invalid(format!("layer {name}: window is 0: no bundle could leave"));
        }
        let [first, most] = self.reconnect.map(|span| span.duration());
        if first.is_zero() || first > most {
            return invalid(format!(
                "layer {name}: reconnect is the first and the longest wait, as [\"1 s\", \"10 min\"]"
            ));
        }
        Ok(())
    }

    fn build(
        &self,
        (protocol, node): (Protocol, &Eid),
        links: &BTreeMap<LinkId, Way>,
        longest: Size,
    ) -> Result<Built, SpecError> {
        // Paths and links of a layer have the same numbers.
        let peer =
            |link: &LinkId, way: &Way| Peer { path: PathId(link.0), server_name: way.name.clone() };
        let nodes = links.iter().map(|(link, way)| (*link, way.node.clone())).collect();
        let layer = tcpcl::Config {
            node: node.clone(),
            protocol,
            peers: links.iter().map(|(link, way)| (*link, peer(link, way))).collect(),
            tls: self.tls.as_ref().map_or(tcpcl::Tls::Never, Tls::when),
            proof: self.tls.as_ref().map_or(tcpcl::Proof::Authority, |tls| tls.proof(nodes)),
            keepalive_s: u16::try_from(self.keepalive.duration().as_secs()).unwrap_or(u16::MAX),
            segment: usize::try_from(self.segment.bytes()).unwrap_or(usize::MAX),
            transfer_mru: longest.bytes(),
            reconnect: self.reconnect[0].duration(),
            reconnect_max: self.reconnect[1].duration(),
            limits: tcpcl::Limits {
                sessions: self.sessions,
                window: self.window,
                window_octets: self.window_octets.bytes(),
                ..tcpcl::Limits::default()
            },
            ..tcpcl::Config::default()
        };
        let listening = |address: &SocketAddr| Listening {
            address: *address,
            options: StreamOptions::default(),
            onward: None,
        };
        let carrier = Carrier::Streams(StreamConfig {
            listen: self.listen.iter().map(listening).collect(),
            peers: links.iter().map(|(link, way)| (PathId(link.0), way.address)).collect(),
            streams_max: self.sessions.saturating_add(16),
            tls: self.tls.as_ref().map(Tls::read).transpose()?,
            ..StreamConfig::default()
        });
        Ok((Box::new(Tcpcl::new(layer)), carrier))
    }
}
