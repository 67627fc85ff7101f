//! Adapter of toy.

use std::time::Duration;

use engine::{PathId, Rng, Time};
use session::settings::{self, Visited, Visitor};
use transport::adapter::no_profile;
use transport::contract::{Adapter, Layer, Service};
use transport::protocol::Protocol;
use transport::settings::{Schema, Settings};
use transport::{Configuration, RequestError, SendRequest, SpecError, TransferId, Transport};

use crate::node::{Config, Node};
use crate::packet::DISSECTOR;

/// The row of the protocol.
pub(crate) const LAYER: Layer = Layer {
    dissector: Some(&DISSECTOR),
    adapter: Some(&Toy),
    ..Layer::new("toy", &[Service::Datagrams], &[Service::Files])
};

/// No settings of users.
impl settings::Settings for Config {
    fn visit(&mut self, _: &mut dyn Visitor) -> Visited {
        Ok(())
    }
}

struct Toy;

impl Schema for Toy {
    fn title(&self) -> &'static str {
        "toy"
    }

    fn settings(&self) -> Box<dyn settings::Settings> {
        Box::new(Config::default())
    }
}

impl Adapter for Toy {
    fn configuration(
        &self,
        protocol: &Protocol,
        _entity: u64,
    ) -> Result<Box<dyn Configuration>, SpecError> {
        match &protocol.profile {
            Some(name) => Err(no_profile("toy", name, &[])),
            None => Ok(Box::new(Config::default())),
        }
    }
}

impl Configuration for Config {
    fn build(&self, _rng: Rng) -> Box<dyn Transport> {
        Box::new(Node::new(self.clone()))
    }

    fn adapter(&self) -> &'static dyn Adapter {
        &Toy
    }

    fn apply(&mut self, settings: &Settings) -> Result<(), SpecError> {
        settings.apply(self)
    }

    fn settings(&self) -> Settings {
        Settings::from_config(self)
    }

    fn set_path(&mut self, entity: u64, path: PathId) {
        self.paths.insert(entity, path);
    }

    fn set_inactivity(&mut self, silence: Duration) {
        self.inactivity = silence;
    }
}

impl Transport for Node {
    fn send(&mut self, now: Time, request: &SendRequest) -> Result<TransferId, RequestError> {
        let path = self.path(request.destination);
        let path = path.ok_or_else(|| RequestError::no_path(request.destination))?;
        let id = self.send(now, path, request.source.clone(), &request.name);
        Ok(TransferId::new(id))
    }

    fn under_way(&self) -> usize {
        self.under_way()
    }
}
