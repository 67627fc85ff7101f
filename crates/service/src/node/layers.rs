//! Convergence layers of a node: one row each, with the name of its type in TOML and its settings.

use std::path::Path;

use bp::codec::mtcp::Framing;
use bp::tcpcl::{Protocol, Version3};
use serde::{Deserialize, Serialize};
use transport::adapter::saratoga::SaratogaSettings;
use transport::settings::NormSettings;

use super::layer_spec::{LayerSpec, NamesFiles};
use super::over_streams::Streams;
use super::{OverFiles, OverLtp, OverStreams, OverUdp};

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
