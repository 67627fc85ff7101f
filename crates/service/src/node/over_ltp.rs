//! A layer over LTP (see [`ltpcl::Config`]).

use std::net::SocketAddr;

use bp::codec::bp7::Eid;
use bp::layer::LinkId;
use bp::ltpcl::{self, Color, ColorForm, Ltpcl, Sharing};
use engine::PathId;
use serde::{Deserialize, Serialize};
use transport::quantity::{Rate, Size, Span};
use transport::settings::{LtpSettings, read_as, write_as};
use transport::text::SpecError;

use super::layer_spec::{Built, Host, LayerSpec};
use super::{CATCH_UP, NO_ENGINE, Way, check_datagrams, datagram, datagrams, patience, window};

/// A layer over LTP and UDP.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OverLtp {
    /// Name by which neighbours refer to it.
    #[serde(default = "ltp")]
    pub name: String,
    /// Address to listen on and to send from.
    pub listen: SocketAddr,
    /// LTP engine number, if it differs from the node's number.
    pub engine: Option<u64>,
    /// Maximum length of a datagram.
    #[serde(default = "datagram")]
    pub datagram: Size,
    /// Maximum rate to each neighbour; LTP has no congestion control.
    pub rate: Rate,
    /// Part of a bundle that is retransmitted when it is lost.
    #[serde(
        default,
        deserialize_with = "read_as::<ColorForm, _, _>",
        serialize_with = "write_as::<ColorForm, _, _>"
    )]
    pub color: Color,
    /// Several short bundles in a block of client service 1, as ION makes them.
    pub aggregation: Option<Aggregation>,
    /// Time that bundles of a few hundred bytes wait for others in the same block of client service
    /// 2, in which each is preceded by its length.
    pub share: Option<Span>,
    /// Time that a neighbour may be unreachable before transfers to it are given up.
    #[serde(default = "patience")]
    pub patience: Span,
    /// Maximum bundles in progress to a neighbour.
    #[serde(default = "window")]
    pub window: usize,
    /// Other settings of LTP.
    #[serde(default)]
    pub settings: LtpSettings,
}

/// Several short bundles in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Aggregation {
    /// Maximum size of such a block.
    pub bytes: Size,
    /// Maximum time that the first bundle waits for others.
    pub delay: Span,
}

impl Default for Aggregation {
    fn default() -> Self {
        let ltpcl::Aggregation { bytes, delay, .. } = ltpcl::Aggregation::default();
        Self { bytes: Size(bytes as u64), delay: Span(delay) }
    }
}

fn ltp() -> String {
    "ltp".to_owned()
}

/// Returns the number of an engine: the given one, or its node's.
pub(super) fn engine(given: Option<u64>, node: &Eid) -> Option<u64> {
    given.or(match node {
        Eid::Ipn { node, .. } => Some(*node),
        Eid::Dtn(_) | Eid::None | Eid::Uri(_) | Eid::Unknown { .. } => None,
    })
}

impl LayerSpec for &OverLtp {
    fn name(&self) -> &str {
        &self.name
    }

    fn check(&self, node: &Eid) -> Result<(), SpecError> {
        let invalid = |message: String| Err(SpecError::invalid(message));
        let name = &self.name;
        if engine(self.engine, node).is_none() {
            return invalid(format!("layer {name}: {NO_ENGINE}"));
        }
        check_datagrams(name, self.datagram, self.rate, self.window)?;
        if self.aggregation.is_some() && self.share.is_some() {
            return invalid(format!(
                "layer {name}: `aggregation` and `share` are two forms of the same; keep `aggregation` for ION"
            ));
        }
        if self.settings.get(&["engine"]).is_some() {
            return invalid(format!("layer {name}: write `engine` beside `settings`, not in it"));
        }
        self.ltp(node, self.datagram, None).map(drop)
    }

    fn has_engines(&self) -> bool {
        true
    }

    fn build(&self, host: Host<'_>) -> Result<Built, SpecError> {
        let ltp = self.ltp(host.node, host.longest, host.memory)?;
        // Paths and links of a layer have the same numbers.
        let peer = |(link, way): (&LinkId, &Way)| {
            (*link, ltpcl::Peer { engine: way.engine, path: PathId(link.0) })
        };
        let most = ltpcl::Limits::default();
        let strangers = host.strangers(most.strangers);
        let layer = ltpcl::Config {
            ltp,
            peers: host.links.iter().map(peer).collect(),
            color: self.color,
            aggregation: self.sharing(),
            patience: self.patience.duration(),
            limits: ltpcl::Limits { window: self.window, strangers, ..most },
            ..ltpcl::Config::default()
        };
        let carrier = datagrams(self.listen, self.datagram, self.rate, &host.addresses());
        Ok((Box::new(Ltpcl::new(layer, host.rng).named(&self.name)), carrier))
    }
}

impl OverLtp {
    /// Several short bundles in a block, in one of the two forms.
    fn sharing(&self) -> Option<ltpcl::Aggregation> {
        let concatenated = self.aggregation.map(|aggregation| ltpcl::Aggregation {
            bytes: usize::try_from(aggregation.bytes.bytes()).unwrap_or(usize::MAX),
            delay: aggregation.delay.duration(),
            form: Sharing::Bundles,
        });
        concatenated.or(self.share.map(|delay| ltpcl::Aggregation {
            bytes: ltp::Aggregation::default().size,
            delay: delay.duration(),
            form: Sharing::Units,
        }))
    }

    pub(super) fn ltp(
        &self,
        node: &Eid,
        longest: Size,
        memory: Option<Size>,
    ) -> Result<ltp::Config, SpecError> {
        let mut config = ltp::Config { catch_up: CATCH_UP, ..ltp::Config::default() };
        config.limits.block = longest.bytes();
        if let Some(memory) = memory {
            // There are no files.
            let bytes = |size: Size| usize::try_from(size.bytes()).unwrap_or(usize::MAX);
            (config.limits.units, config.limits.units_total) = (bytes(longest), bytes(memory));
        }
        // Aggregated blocks of others are always accepted.
        config.aggregation = Some(ltp::Aggregation::default());
        let applied = self.settings.apply(&mut config);
        applied.map_err(|error| error.below(&format!("layer {}: settings", self.name)))?;
        config.engine = engine(self.engine, node).unwrap_or_default();
        Ok(config)
    }
}
