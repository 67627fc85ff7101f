//! How a layer's streams are secured.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use proto::bp::layer::LinkId;
use proto::bp::tcpcl;
use rt::streams::TlsFiles;
use serde::{Deserialize, Serialize};
use transport::text::SpecError;
use wire::bp7::Eid;

/// How streams are secured (RFC 9174 §4.4).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// This node's certificate in PEM, and those between it and an authority.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The certificates of the authorities that are trusted.
    pub trusted: PathBuf,
    /// When it is used.
    #[serde(default, rename = "use")]
    pub when: Use,
    /// Whether the certificate of a peer must name the node that the peer says it is.
    #[serde(default = "super::yes")]
    pub node_id: bool,
    /// Whether peers that connect may show no certificate; they prove no node then, so `node_id` has
    /// to be false.
    #[serde(default)]
    pub anonymous: bool,
}

/// When TLS is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Use {
    /// A peer that cannot is not spoken with.
    #[default]
    Always,
    /// Where both sides can. Who stands between them may see to it that they do not.
    IfBothCan,
}

impl Tls {
    /// Its files lie in this folder, if it does not say where.
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

    /// What is to be proved, of links to these nodes.
    pub(super) fn proof(&self, nodes: BTreeMap<LinkId, Eid>) -> tcpcl::Proof {
        if self.node_id { tcpcl::Proof::Node(nodes) } else { tcpcl::Proof::Authority }
    }

    pub(super) fn read(&self) -> Result<rt::streams::Tls, SpecError> {
        let Self { certificate, key, trusted, anonymous, .. } = self.clone();
        rt::streams::Tls::read(&TlsFiles { certificate, key, trusted, anonymous })
            .map_err(|error| SpecError::invalid(format!("tls: {error}")))
    }
}
