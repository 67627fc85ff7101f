//! A convergence layer over streams, configured by TOML.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use bp::codec::bp7::Eid;
use bp::layer::LinkId;
use bp::tcpcl::{self, Peer, Protocol, Tcpcl, WholeSeconds};
use engine::PathId;
use rt::node::Carrier;
use rt::streams::{Listening, StreamConfig, StreamOptions};
use serde::{Deserialize, Deserializer, Serialize, de};
use session::settings::form::{self, Off};
use transport::quantity::{Size, Span};
use transport::settings::{check_interval, read_as, write_as};
use transport::text::SpecError;

use super::layer_spec::{Built, Host, LayerSpec, NamesFiles};
use super::tls::Tls;
use super::{Way, window};

/// A layer over streams.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OverStreams {
    /// Name by which neighbours refer to it.
    #[serde(default = "tcp")]
    pub name: String,
    /// Addresses to listen on.
    #[serde(default)]
    pub listen: Vec<SocketAddr>,
    /// Seconds between keepalives; 0 sends none.
    #[serde(
        default = "keepalive",
        deserialize_with = "read_keepalive",
        serialize_with = "write_as::<WholeSeconds, _, _>"
    )]
    pub keepalive: u16,
    /// Maximum data of a sent segment.
    #[serde(default = "segment")]
    pub segment: Size,
    /// Maximum bundles in progress to a neighbour.
    #[serde(default = "window")]
    pub window: usize,
    /// Bytes of bundles in progress to a neighbour up to which more are started.
    #[serde(default = "window_bytes")]
    pub window_bytes: Size,
    /// Maximum number of sessions. Neighbours have places among them that strangers do not get.
    #[serde(default = "sessions")]
    pub sessions: usize,
    /// Maximum number of sessions that the peers at one address open.
    #[serde(default = "per_address")]
    pub per_address: usize,
    /// Maximum time for a connection to be established.
    #[serde(default = "connecting")]
    pub connecting: Span,
    /// Maximum time until a peer that connects has sent its contact header.
    #[serde(default = "greeting")]
    pub greeting: Span,
    /// Silence after which the session of a stranger without keepalives ends, or `off`.
    #[serde(
        default = "idle",
        deserialize_with = "read_as::<Off<form::Span>, _, _>",
        serialize_with = "write_as::<Off<form::Span>, _, _>"
    )]
    pub idle: Option<Duration>,
    /// Silence within a bundle after which the session of its sender ends, or `off`.
    #[serde(
        default = "stall",
        deserialize_with = "read_as::<Off<form::Span>, _, _>",
        serialize_with = "write_as::<Off<form::Span>, _, _>"
    )]
    pub stall: Option<Duration>,
    /// Time after which a failed connection is retried; it doubles with each further failure.
    #[serde(default = "reconnect")]
    pub reconnect: Span,
    /// Maximum of this time.
    #[serde(default = "reconnect_max")]
    pub reconnect_max: Span,
    /// TLS of the streams, supported by TCPCL version 4 only; without it they are plain text.
    pub tls: Option<Tls>,
}

fn tcp() -> String {
    "tcp".to_owned()
}

const fn keepalive() -> u16 {
    30
}

const fn segment() -> Size {
    Size(64 << 10)
}

const fn window_bytes() -> Size {
    Size(1 << 20)
}

const fn sessions() -> usize {
    1024
}

const fn per_address() -> usize {
    64
}

const fn connecting() -> Span {
    Span(Duration::from_secs(20))
}

const fn greeting() -> Span {
    Span(Duration::from_secs(10))
}

const fn idle() -> Option<Duration> {
    Some(Duration::from_secs(600))
}

const fn stall() -> Option<Duration> {
    Some(Duration::from_secs(300))
}

/// Reads seconds between keepalives; errors point to the layer.
fn read_keepalive<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u16, D::Error> {
    let seconds = read_as::<WholeSeconds, _, _>(deserializer);
    seconds.map_err(|error| de::Error::custom(format!("keepalive{error}")))
}

const fn reconnect() -> Span {
    Span(Duration::from_secs(1))
}

const fn reconnect_max() -> Span {
    Span(Duration::from_secs(60))
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
    /// Its name in beacons, as dtn7 has it for TCPCL 4 and MTCP.
    pub(super) announced: &'static str,
}

impl LayerSpec for Streams<'_> {
    fn name(&self) -> &str {
        &self.layer.name
    }

    fn listens_for_names(&self) -> bool {
        !self.layer.listen.is_empty() && !matches!(self.protocol, Protocol::Framed(_))
    }

    fn proves_names(&self) -> bool {
        self.layer.tls.is_some()
    }

    fn announced(&self) -> Option<&'static str> {
        Some(self.announced)
    }

    fn check(&self, _node: &Eid) -> Result<(), SpecError> {
        let name = self.name();
        if self.layer.tls.is_some() && !self.secures {
            return Err(SpecError::invalid(format!(
                "layer {name}: only kind \"tcpcl4\" has `tls`; leave it out, or use that kind"
            )));
        }
        self.layer.check()
    }

    fn build(&self, host: Host<'_>) -> Result<Built, SpecError> {
        self.layer.build(self.protocol, &host)
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
        if !(1..=1 << 30).contains(&self.segment.bytes()) {
            return invalid(format!("layer {name}: segment is not between 1 B and 1 GiB"));
        }
        if self.window == 0 {
            return invalid(format!("layer {name}: window is 0: no bundle could leave"));
        }
        if self.reconnect_max < self.reconnect && self.reconnect_max != reconnect_max() {
            return invalid(format!("layer {name}: reconnect_max is less than reconnect"));
        }
        for (key, count) in [("sessions", self.sessions), ("per_address", self.per_address)] {
            if count == 0 {
                return invalid(format!("layer {name}: {key} is 0: no peer could connect"));
            }
        }
        for (key, wait) in [
            ("reconnect", self.reconnect),
            ("reconnect_max", self.reconnect_max),
            ("connecting", self.connecting),
            ("greeting", self.greeting),
        ] {
            check_interval(&format!("layer {name}: {key}"), Some(wait))?;
        }
        for (key, wait) in [("idle", self.idle), ("stall", self.stall)] {
            check_interval(&format!("layer {name}: {key}"), wait.map(Span))?;
        }
        Ok(())
    }

    fn build(&self, protocol: Protocol, host: &Host<'_>) -> Result<Built, SpecError> {
        let links = host.links;
        // Paths and links of a layer have the same numbers.
        let peer = |link: &LinkId, way: &Way| Peer {
            path: PathId(link.0),
            server_name: way.name.clone(),
            node: Some(way.node.clone()),
        };
        let nodes = links.iter().map(|(link, way)| (*link, way.node.clone())).collect();
        let layer = tcpcl::Config {
            node: host.node.clone(),
            protocol,
            peers: links.iter().map(|(link, way)| (*link, peer(link, way))).collect(),
            tls: self.tls.as_ref().map_or(tcpcl::Tls::Never, Tls::when),
            proof: self.tls.as_ref().map_or(tcpcl::Proof::Authority, |tls| tls.proof(nodes)),
            keepalive_s: self.keepalive,
            segment: usize::try_from(self.segment.bytes()).unwrap_or(usize::MAX),
            transfer_mru: host.longest.bytes(),
            greeting: self.greeting.duration(),
            idle: self.idle,
            stall: self.stall,
            admission: host.admission.clone(),
            reconnect: self.reconnect.duration(),
            reconnect_max: self.reconnect_max.max(self.reconnect).duration(),
            limits: tcpcl::Limits {
                sessions: self.sessions,
                per_address: self.per_address,
                window: self.window,
                window_bytes: self.window_bytes.bytes(),
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
            peers: links.iter().map(|(link, way)| (PathId(link.0), way.address.clone())).collect(),
            options: StreamOptions {
                connecting: Some(self.connecting.duration()),
                ..StreamOptions::default()
            },
            // Streams to neighbours have places of their own.
            streams_max: self.sessions.saturating_add(links.len() + host.found + 16),
            forgets_left: true,
            tls: self.tls.as_ref().map(Tls::read).transpose()?,
            ..StreamConfig::default()
        });
        Ok((Box::new(Tcpcl::new(layer)), carrier))
    }
}
