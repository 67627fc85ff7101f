//! Layers over engines that send files (see [`filecl::Config`]): Saratoga and NORM.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use engine::{PathId, Rng};
use proto::bp::filecl;
use proto::bp::layer::LinkId;
use proto::bp::normcl::NormCl;
use proto::bp::saratogacl::SaratogaCl;
use proto::{norm, saratoga};
use rt::node::Carrier;
use serde::{Deserialize, Serialize};
use transport::adapter::saratoga::Remotes;
use transport::quantity::{Rate, Size, Span};
use transport::settings::bundles::over_saratoga;
use transport::settings::{NormSettings, SaratogaSettings};
use transport::text::SpecError;

use super::{CATCH_UP, datagram, patience};

/// A layer over an engine that sends files, and UDP.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OverFiles<S> {
    /// What neighbours call it, if not as its kind.
    pub name: Option<String>,
    /// Where it listens, and from where it sends.
    pub listen: SocketAddr,
    /// The longest datagram.
    #[serde(default = "datagram")]
    pub datagram: Size,
    /// What it sends at most to each neighbour.
    pub rate: Rate,
    /// How long a neighbour may be away before what is under way to it is given up.
    #[serde(default = "patience")]
    pub patience: Span,
    /// Bundles under way to a neighbour at one time.
    #[serde(default = "window")]
    pub window: usize,
    /// All else that the engine can be told.
    pub settings: Option<S>,
}

fn window() -> usize {
    filecl::Limits::default().window
}

impl<S> OverFiles<S> {
    fn check(&self, name: &str) -> Result<(), SpecError> {
        super::check_datagrams(name, (self.datagram, self.rate), self.window)
    }

    /// The settings of the layer over an engine, and its socket. With a store in `memory` all is there.
    fn over<C: Default>(
        &self,
        engine: C,
        links: &BTreeMap<LinkId, SocketAddr>,
        memory: Option<Size>,
    ) -> (filecl::Config<C>, Carrier) {
        let mut limits = filecl::Limits { window: self.window, ..filecl::Limits::default() };
        if memory.is_some() {
            // There are no files to hand on.
            limits.inline = u64::MAX;
        }
        let peers = links.keys().map(|link| (*link, PathId(link.0))).collect();
        let patience = self.patience.duration();
        let config =
            filecl::Config { engine, peers, patience, limits, ..filecl::Config::default() };
        (config, super::datagrams(self.listen, (self.datagram, self.rate), links))
    }
}

impl OverFiles<SaratogaSettings> {
    pub(super) fn name(&self) -> &str {
        self.name.as_deref().unwrap_or("saratoga")
    }

    pub(super) fn check_saratoga(&self) -> Result<(), SpecError> {
        self.check(self.name())?;
        if self.settings.as_ref().is_some_and(|settings| settings.get(&["remotes"]).is_some()) {
            return Err(SpecError::invalid(format!(
                "layer {}: settings.remotes is not for nodes; write settings.default",
                self.name()
            )));
        }
        self.saratoga(self.datagram).map(drop)
    }

    fn saratoga(&self, longest: Size) -> Result<saratoga::Config, SpecError> {
        let mut config = saratoga::Config { catch_up: CATCH_UP, ..saratoga::Config::default() };
        config.limits.file = longest.bytes();
        if let Some(settings) = &self.settings {
            over_saratoga(settings, &mut config, &mut Remotes::new())
                .map_err(|error| error.below(&format!("layer {}: settings", self.name())))?;
        }
        Ok(config)
    }

    /// The layer, with the addresses of its neighbours. Bundles have `longest` octets at most.
    pub(super) fn over_saratoga(
        &self,
        rng: Rng,
        links: &BTreeMap<LinkId, SocketAddr>,
        (longest, memory): (Size, Option<Size>),
    ) -> Result<(SaratogaCl, Carrier), SpecError> {
        let (config, carrier) = self.over(self.saratoga(longest)?, links, memory);
        Ok((SaratogaCl::new(config, rng), carrier))
    }
}

impl OverFiles<NormSettings> {
    pub(super) fn name(&self) -> &str {
        self.name.as_deref().unwrap_or("norm")
    }

    pub(super) fn check_norm(&self) -> Result<(), SpecError> {
        self.check(self.name())?;
        self.norm(self.datagram).map(drop)
    }

    fn norm(&self, longest: Size) -> Result<norm::Config, SpecError> {
        let mut config = norm::Config { catch_up: CATCH_UP, ..norm::Config::default() };
        config.limits.object = longest.bytes();
        if let Some(settings) = &self.settings {
            settings
                .apply(&mut config)
                .map_err(|error| error.below(&format!("layer {}: settings", self.name())))?;
        }
        Ok(config)
    }

    /// The layer, with the addresses of its neighbours. Bundles have `longest` octets at most.
    pub(super) fn over_norm(
        &self,
        rng: Rng,
        links: &BTreeMap<LinkId, SocketAddr>,
        (longest, memory): (Size, Option<Size>),
    ) -> Result<(NormCl, Carrier), SpecError> {
        let (config, carrier) = self.over(self.norm(longest)?, links, memory);
        Ok((NormCl::new(config, rng), carrier))
    }
}
