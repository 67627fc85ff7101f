//! A convergence layer with one bundle per datagram, configured by TOML.

use std::net::SocketAddr;

use bp::codec::bp7::Eid;
use bp::udpcl::{self, Fragmentation, Udpcl};
use engine::PathId;
use serde::{Deserialize, Serialize};
use transport::quantity::{Rate, Size};
use transport::text::SpecError;

use super::layer_spec::{Built, Host, LayerSpec};
use super::{check_datagrams, datagram, datagrams, window};

/// A layer over UDP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OverUdp {
    /// Name by which neighbours refer to it.
    #[serde(default = "udp")]
    pub name: String,
    /// Address to listen on and to send from.
    pub listen: SocketAddr,
    /// Maximum length of a datagram.
    #[serde(default = "datagram")]
    pub datagram: Size,
    /// Maximum rate to all neighbours together; UDP has no congestion control.
    pub rate: Rate,
    /// Whether the layer itself cuts longer bundles, in a format of slowlight's own; otherwise the
    /// agent makes fragments.
    #[serde(default)]
    pub cut: bool,
    /// Maximum bundles in progress to a neighbour.
    #[serde(default = "window")]
    pub window: usize,
}

fn udp() -> String {
    "udp".to_owned()
}

impl LayerSpec for &OverUdp {
    fn name(&self) -> &str {
        &self.name
    }

    fn check(&self, _node: &Eid) -> Result<(), SpecError> {
        check_datagrams(&self.name, self.datagram, self.rate, self.window)
    }

    fn build(&self, host: Host<'_>) -> Result<Built, SpecError> {
        let links = &host.addresses();
        let most = udpcl::Limits::default();
        let strangers = host.strangers(most.strangers);
        let limits = udpcl::Limits { window: self.window, strangers, ..most };
        let layer = udpcl::Config {
            peers: links.keys().map(|link| (*link, PathId(link.0))).collect(),
            fragmentation: if self.cut { Fragmentation::OfLayer } else { Fragmentation::Never },
            limits,
            ..udpcl::Config::default()
        };
        let carrier = datagrams(self.listen, self.datagram, self.rate, links);
        Ok((Box::new(Udpcl::new(layer)), carrier))
    }
}
