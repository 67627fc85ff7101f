//! Convergence layers of a node: one row each, with the name of its type in TOML and its settings.

use std::collections::BTreeMap;
use std::path::Path;

use bp::admission::{Admission, Strangers};
use bp::codec::bp7::Eid;
use bp::codec::mtcp::Framing;
use bp::layer::{self, LinkId};
use bp::tcpcl::{Protocol, Version3};
use engine::Rng;
use rt::Destination;
use rt::node::Carrier;
use serde::{Deserialize, Serialize};
use transport::adapter::saratoga::SaratogaSettings;
use transport::quantity::Size;
use transport::settings::NormSettings;
use transport::text::SpecError;

use super::over_streams::Streams;
use super::{OverFiles, OverLtp, OverStreams, OverUdp, Way};

/// A layer with its socket.
pub(super) type Built = (Box<dyn layer::Layer>, Carrier);

/// Node that a layer is built for.
pub(super) struct Host<'a> {
    /// Its administrative endpoint.
    pub(super) node: &'a Eid,
    /// Source of the layer's random numbers.
    pub(super) rng: Rng,
    /// Neighbours over the layer.
    pub(super) links: &'a BTreeMap<LinkId, Way>,
    /// Maximum number of further neighbours that announce themselves.
    pub(super) found: usize,
    /// Peers that may connect, and their names.
    pub(super) admission: &'a Admission,
    /// Maximum size of a bundle.
    pub(super) longest: Size,
    /// Size of its store, if that is in memory.
    pub(super) memory: Option<Size>,
}

impl Host<'_> {
    /// Addresses of the neighbours.
    pub(super) fn addresses(&self) -> BTreeMap<LinkId, Destination> {
        self.links.iter().map(|(link, way)| (*link, way.address.clone())).collect()
    }

    /// Strangers that a layer over datagrams remembers, of at most `most`.
    pub(super) fn strangers(&self, most: usize) -> usize {
        match self.admission.strangers {
            Strangers::Refuse => 0,
            Strangers::Receive | Strangers::Both => most,
        }
    }
}

/// Settings of a layer of one kind.
pub(super) trait LayerSpec {
    /// Name by which neighbours are reached over it.
    fn name(&self) -> &str;

    /// Checks the settings, for a layer of a node.
    ///
    /// # Errors
    ///
    /// A value is out of range.
    fn check(&self, node: &Eid) -> Result<(), SpecError>;

    /// Whether neighbours have LTP engine numbers.
    fn has_engines(&self) -> bool {
        false
    }

    /// Whether peers connect to it that announce a name.
    fn listens_for_names(&self) -> bool {
        false
    }

    /// Whether peers may prove their names.
    fn proves_names(&self) -> bool {
        false
    }

    /// Its name in beacons, if nodes that announce themselves are reached over it.
    fn announced(&self) -> Option<&'static str> {
        None
    }

    /// Builds the layer.
    ///
    /// # Errors
    ///
    /// A certificate or a key cannot be read.
    fn build(&self, host: Host<'_>) -> Result<Built, SpecError>;
}

/// Settings that may name files.
pub(super) trait NamesFiles {
    /// Makes paths of files relative to `folder`.
    fn place(&mut self, _folder: &Path) {}
}

impl NamesFiles for OverUdp {}

impl NamesFiles for OverLtp {
    fn place(&mut self, folder: &Path) {
        self.settings.place(folder);
    }
}

impl<S> NamesFiles for OverFiles<S> {}

macro_rules! layers {
    ($($(#[$doc:meta])* $kind:ident($settings:ty) => |$layer:ident| $spec:expr;)*) => {
        /// A convergence layer.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "kind", rename_all = "lowercase")]
        pub enum Layer {
            $($(#[$doc])* $kind($settings),)*
        }

        impl Layer {
            /// Settings of its kind.
            pub(super) fn spec(&self) -> Box<dyn LayerSpec + '_> {
                match self {
                    $(Self::$kind($layer) => Box::new($spec),)*
                }
            }

            /// Makes paths of files relative to `folder`.
            pub(super) fn place(&mut self, folder: &Path) {
                match self {
                    $(Self::$kind($layer) => $layer.place(folder),)*
                }
            }
        }
    };
}

layers! {
    /// TCPCL, version 4 (RFC 9174).
    Tcpcl4(OverStreams) => |layer| Streams {
        layer, protocol: Protocol::Tcpcl4, secures: true, announced: "tcp",
    };
    /// TCPCL, version 3 (RFC 7242).
    Tcpcl3(OverStreams) => |layer| streams(layer, Protocol::Tcpcl3(Version3::default()), "tcpcl3");
    /// MTCP, from the connecting node to the listening one.
    Mtcp(OverStreams) => |layer| streams(layer, Protocol::Framed(Framing::Mtcp), "mtcp");
    /// STCP, likewise.
    Stcp(OverStreams) => |layer| streams(layer, Protocol::Framed(Framing::Stcp), "stcp");
    /// UDPCL, one bundle per datagram (RFC 7122).
    Udpcl(OverUdp) => |layer| layer;
    /// LTPCL, one bundle per LTP block (CCSDS 734.2-B-1).
    Ltpcl(Box<OverLtp>) => |layer| &**layer;
    /// Saratoga, one bundle per file.
    Saratoga(Box<OverFiles<SaratogaSettings>>) => |layer| &**layer;
    /// NORM, one bundle per object.
    Norm(Box<OverFiles<NormSettings>>) => |layer| &**layer;
}

fn streams<'a>(layer: &'a OverStreams, protocol: Protocol, announced: &'static str) -> Streams<'a> {
    Streams { layer, protocol, secures: false, announced }
}
