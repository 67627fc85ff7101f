//! TLS of a layer's streams.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bp::codec::bp7::Eid;
use bp::layer::LinkId;
use bp::tcpcl;
use rt::streams::TlsFiles;
use serde::{Deserialize, Serialize};
use transport::text::SpecError;

/// TLS of streams (RFC 9174 §4.4).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// This node's certificate in PEM, and the chain to an authority.
    pub certificate: PathBuf,
    /// Private key.
    pub key: PathBuf,
    /// Certificates of the trusted authorities.
    pub trusted: PathBuf,
    /// When TLS is used.
    #[serde(default, rename = "use")]
    pub when: Use,
    /// Whether a peer's certificate must contain the node ID that the peer announces.
    #[serde(default = "super::yes")]
    pub node_id: bool,
    /// Whether peers that connect may have no certificate. They prove no node ID then, so `node_id`
    /// must be false.
    #[serde(default)]
    pub anonymous: bool,
}

/// When TLS is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Use {
    /// Required: peers without TLS are refused.
    #[default]
    Always,
    /// Opportunistic: used where both sides support it. An attacker on the path can prevent it.
    IfBothCan,
}

impl Tls {
    /// Makes relative paths relative to this folder.
    pub(super) fn lie_in(&mut self, folder: &Path) {
        for file in [&mut self.certificate, &mut self.key, &mut self.trusted] {
            *file = folder.join(&*file);
        }
    }

    pub(super) fn when(&self) -> tcpcl::Tls {
        match self.when {
            Use::Always => tcpcl::Tls::Always,
            Use::IfBothCan => tcpcl::Tls::IfBothCan,
        }
    }

    /// Returns the proof required of the nodes on these links.
    pub(super) fn proof(&self, nodes: BTreeMap<LinkId, Eid>) -> tcpcl::Proof {
        if self.node_id { tcpcl::Proof::Node(nodes) } else { tcpcl::Proof::Authority }
    }

    pub(super) fn read(&self) -> Result<rt::streams::Tls, SpecError> {
        let Self { certificate, key, trusted, anonymous, .. } = self.clone();
        rt::streams::Tls::read(&TlsFiles { certificate, key, trusted, anonymous })
            .map_err(|error| SpecError::invalid(format!("tls: {error}")))
    }
}
