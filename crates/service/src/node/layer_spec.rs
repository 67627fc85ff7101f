//! Settings of a convergence layer of any kind, and the node that a layer is built for.

use std::collections::BTreeMap;
use std::path::Path;

use bp::admission::{Admission, Strangers};
use bp::codec::bp7::Eid;
use bp::layer::{self, LinkId};
use engine::Rng;
use rt::Destination;
use rt::node::Carrier;
use transport::quantity::Size;
use transport::text::SpecError;

use super::Way;

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
    /// Size of its store.
    pub(super) store: Size,
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
