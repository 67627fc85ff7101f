//! Layers over engines that send files (see [`filecl::Config`]): Saratoga and NORM.

use std::net::SocketAddr;
use std::time::Duration;

use bp::codec::bp7::Eid;
use bp::filecl;
use bp::normcl::NormCl;
use bp::saratogacl::SaratogaCl;
use engine::PathId;
use rt::node::Carrier;
use serde::{Deserialize, Serialize};
use transport::adapter::bundles::config::check_saratoga;
use transport::adapter::norm::norm_config;
use transport::adapter::saratoga::{SaratogaConfig, SaratogaSettings, saratoga_config};
use transport::protocol::Protocol;
use transport::quantity::{Rate, Size, Span};
use transport::settings::NormSettings;
use transport::text::SpecError;

use super::layer_spec::{Built, Host, LayerSpec};
use super::{CATCH_UP, datagram, patience};

/// A layer over an engine that sends files, and UDP.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OverFiles<S> {
    /// Name by which neighbours refer to it; default: its type.
    pub name: Option<String>,
    /// Address to listen on and to send from.
    pub listen: SocketAddr,
    /// Maximum length of a datagram.
    #[serde(default = "datagram")]
    pub datagram: Size,
    /// Maximum rate to each neighbour.
    pub rate: Rate,
    /// Time that a neighbour may be unreachable before transfers to it are given up.
    #[serde(default = "patience")]
    pub patience: Span,
    /// Maximum bundles in progress to a neighbour.
    #[serde(default = "window")]
    pub window: usize,
    /// Profile of the engine, whose settings apply first.
    pub profile: Option<String>,
    /// Other settings of the engine.
    pub settings: Option<S>,
}

fn window() -> usize {
    filecl::Limits::default().window
}

impl<S> OverFiles<S> {
    /// Returns the protocol of this engine in the profile.
    fn protocol(&self, engine: &str, name: &str) -> Result<Protocol, SpecError> {
        let profile = self.profile.as_deref().unwrap_or("default");
        let parsed = format!("{engine}/{profile}").parse::<Protocol>();
        parsed.map_err(|error| SpecError::invalid(format!("layer {name}: {error}")))
    }

    fn check_paths(&self, name: &str) -> Result<(), SpecError> {
        super::check_datagrams(name, self.datagram, self.rate, self.window)
    }

    /// Returns the configuration of the layer over an engine, and its socket. With a store in
    /// memory no files are used.
    fn over<C: Default>(&self, engine: C, host: &Host<'_>) -> (filecl::Config<C>, Carrier) {
        let most = filecl::Limits::default();
        let strangers = host.strangers(most.strangers);
        let mut limits = filecl::Limits { window: self.window, strangers, ..most };
        if host.memory.is_some() {
            // Without files all bundles are passed in memory.
            limits.inline = u64::MAX;
        }
        let links = &host.addresses();
        let peers = links.keys().map(|link| (*link, PathId(link.0))).collect();
        let patience = self.patience.duration();
        let config =
            filecl::Config { engine, peers, patience, limits, ..filecl::Config::default() };
        (config, super::datagrams(self.listen, self.datagram, self.rate, links))
    }
}

impl LayerSpec for &OverFiles<SaratogaSettings> {
    fn name(&self) -> &str {
        self.name.as_deref().unwrap_or("saratoga")
    }

    fn check(&self, _node: &Eid) -> Result<(), SpecError> {
        self.check_paths(LayerSpec::name(self))?;
        if self.settings.as_ref().is_some_and(|settings| settings.get(&["remotes"]).is_some()) {
            return Err(SpecError::invalid(format!(
                "layer {}: settings.remotes is not for nodes; write settings.default",
                self.name()
            )));
        }
        self.saratoga(self.datagram, self.datagram).map(drop)
    }

    fn build(&self, host: Host<'_>) -> Result<Built, SpecError> {
        let mut engine = self.saratoga(host.longest, host.store)?;
        // A store in memory is empty after a restart.
        engine.journal.enabled &= host.memory.is_none();
        let (config, carrier) = self.over(engine, &host);
        Ok((Box::new(SaratogaCl::new(config, host.rng).named(LayerSpec::name(self))), carrier))
    }
}

impl OverFiles<SaratogaSettings> {
    fn saratoga(&self, longest: Size, store: Size) -> Result<saratoga::Config, SpecError> {
        let protocol = self.protocol("saratoga", LayerSpec::name(&self))?;
        let mut config = saratoga::Config { catch_up: CATCH_UP, ..saratoga_config(&protocol)? };
        config.limits.file = longest.bytes();
        // Bundles that nobody continues are outside the store's own limit.
        config.limits.partial_bytes = store.bytes() / 8;
        config.limits.partial_age = Duration::from_secs(24 * 3600);
        if let Some(settings) = &self.settings {
            let mut peer = SaratogaConfig { config, ..SaratogaConfig::default() };
            let applied = settings.apply(&mut peer).and_then(|()| check_saratoga(&peer.config));
            applied.map_err(|error| {
                error.below(&format!("layer {}: settings", LayerSpec::name(&self)))
            })?;
            config = peer.config;
        }
        Ok(config)
    }
}

impl LayerSpec for &OverFiles<NormSettings> {
    fn name(&self) -> &str {
        self.name.as_deref().unwrap_or("norm")
    }

    fn check(&self, _node: &Eid) -> Result<(), SpecError> {
        self.check_paths(LayerSpec::name(self))?;
        self.norm(self.datagram).map(drop)
    }

    fn build(&self, host: Host<'_>) -> Result<Built, SpecError> {
        let engine = self.norm(host.longest)?;
        let (config, carrier) = self.over(engine, &host);
        Ok((Box::new(NormCl::new(config, host.rng).named(LayerSpec::name(self))), carrier))
    }
}

impl OverFiles<NormSettings> {
    fn norm(&self, longest: Size) -> Result<norm::Config, SpecError> {
        let protocol = self.protocol("norm", LayerSpec::name(&self))?;
        let mut config = norm::Config { catch_up: CATCH_UP, ..norm_config(&protocol)? };
        config.limits.object = longest.bytes();
        if let Some(settings) = &self.settings {
            settings.apply(&mut config).map_err(|error| {
                error.below(&format!("layer {}: settings", LayerSpec::name(&self)))
            })?;
        }
        Ok(config)
    }
}
