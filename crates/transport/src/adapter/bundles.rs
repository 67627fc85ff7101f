//! Files, or CFDP, in bundles: a bundle node with one convergence layer.

pub mod config;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::time::Duration;

use bp::agent::{Agent, LinkRef};
use bp::codec::bp7::Eid;
use bp::files::{self, Files};
use bp::hosted::{self, Hosted};
use bp::layer::Command;
use bp::node::{Node, Paths};
use engine::{Deadline, Effect, Engine, Input, PathId, Rng, Time, Transmit, TxBuf};
use ut::{self, OverBundles, OverService};

use self::config::{BundlesConfig, Carrier, CfdpUser, LAYER, SERVICE, node};
use super::cfdp::{carried_under_way, put_request, sent, tell_of_ends};
use super::engine_of;
use super::over_tcp::config as streams;
use crate::contract::{
    Adapter, BundleMetrics, Configuration, Counters, Interfaces, Protocol, RequestError,
    SendRequest, Transport,
};
use crate::event::{Ended, Event, TransferId};
use crate::mib::Class;
use crate::settings::{Schema, Settings};
use crate::text::SpecError;

/// Adapter of a bundle node's protocol.
pub(crate) struct Bundles;

impl Schema for Bundles {
    fn title(&self) -> &'static str {
        "bundle nodes"
    }

    fn settings(&self) -> Box<dyn session::settings::Settings> {
        Box::new(BundlesConfig::default())
    }

    fn has_tcp(&self) -> bool {
        true
    }
}

impl Adapter for Bundles {
    fn configuration(
        &self,
        protocol: &Protocol,
        _entity: u64,
    ) -> Result<Box<dyn Configuration>, SpecError> {
        Ok(Box::new(config::config(protocol)?))
    }

    fn class(&self, settings: &Settings, remote: Option<u64>) -> Option<Class> {
        Class::towards(&settings.below("cfdp")?, remote)
    }

    fn add_route(
        &self,
        settings: &mut Settings,
        to: u64,
        next: u64,
    ) -> Result<Option<u64>, SpecError> {
        let too_large = |_| SpecError::invalid(format!("{next} is too large for a number"));
        let next = i64::try_from(next).map_err(too_large)?;
        let known = settings.set(&["routes", &to.to_string()], next);
        Ok(known.and_then(|known| u64::try_from(known.as_integer()?).ok()))
    }
}

impl Configuration for BundlesConfig {
    fn build(&self, mut rng: Rng) -> Box<dyn Transport> {
        let mut of = |name: &str| Rng::new(rng.next_u64(), name);
        let me = node(self.entity);
        let mut agent = self.agent.clone();
        agent.node = me.clone();
        agent.routing = self.routing();
        for number in self.paths.keys() {
            let link = Self::link(*number);
            agent.links.insert(LinkRef { layer: LAYER, link }, node(*number));
        }
        let agent = Agent::new(agent, of("agent"));
        let is_streams = self.carrier == Carrier::Tcp;
        let own = if is_streams {
            self.interfaces.clone()
        } else {
            self.paths.values().copied().collect()
        };
        let known = own.into_iter().map(|path| (path, LAYER)).collect();
        let datagrams = (!is_streams).then_some(LAYER);
        let paths = Paths { known, datagrams, ..Paths::default() };
        let layer = self.layer(me, &mut of);
        let node = Node::new(agent, vec![layer], paths);
        Box::new(BundleTransport {
            user: user(self, node, of("files")),
            is_planned: self.plan.is_some(),
            idle: self.idle,
            links: self.paths.keys().map(|number| (*number, Link::Closed)).collect(),
            neighbours: self.paths.keys().copied().collect(),
            routes: self.routes.keys().copied().collect(),
        })
    }

    fn adapter(&self) -> &'static dyn Adapter {
        &Bundles
    }

    fn apply(&mut self, settings: &Settings) -> Result<(), SpecError> {
        settings.apply(self)
    }

    fn settings(&self) -> Settings {
        Settings::from_config(self)
    }

    fn number(&self) -> Option<u64> {
        Some(self.entity)
    }

    fn set_entity(&mut self, entity: u64) {
        self.entity = entity;
        if let Some(user) = &mut self.cfdp {
            user.cfdp.entity = entity;
            tell_of_ends(&mut user.cfdp);
        }
    }

    fn set_path(&mut self, entity: u64, path: PathId) {
        self.paths.insert(entity, path);
    }

    fn set_inactivity(&mut self, silence: Duration) {
        // Neighbours may be silent for long, so the limit applies to the bundle's lifetime.
        self.files.lifetime = silence;
    }

    fn interfaces(&mut self) -> Option<&mut dyn Interfaces> {
        (self.carrier == Carrier::Tcp).then_some(self)
    }
}

impl Interfaces for BundlesConfig {
    fn set_own(&mut self, address: Ipv4Addr, port: u16, interfaces: &[PathId]) {
        streams::take_place(&mut self.streams, address, port);
        self.interfaces = interfaces.iter().copied().collect();
    }

    fn set_peer(&mut self, path: PathId, address: Ipv4Addr, port: u16, by: PathId) {
        streams::meet(&mut self.streams, path, address, port, by);
    }
}

/// User of a node that sends and receives files.
fn user(config: &BundlesConfig, node: Node, rng: Rng) -> User {
    let Some(CfdpUser { cfdp, ut, service }) = &config.cfdp else {
        let endpoint = Eid::Ipn { node: config.entity, service: SERVICE };
        let files = files::Config { endpoint: Some(endpoint), ..config.files.clone() };
        return User::Files(Box::new(Hosted::new(Files::new(files, rng), node)));
    };
    let cfdp = cfdp::Config { entity: config.entity, ..cfdp.clone() };
    let peers = config.paths.keys().chain(config.routes.keys()).copied().collect();
    let ut = ut::Config { peers, ..ut.clone() };
    let files::Config { lifetime, version, custody, .. } = config.files;
    let receives = ut::Receives::All;
    let below = ut::BundlesConfig { service: *service, lifetime, version, custody, receives };
    let entity = OverService::over_service(cfdp, ut, below, rng);
    User::Cfdp(Box::new(Hosted::new(entity, node)))
}

/// User of a node that sends and receives files.
#[derive(Debug)]
enum User {
    Files(Box<Hosted<Files>>),
    Cfdp(Box<OverBundles>),
}

impl User {
    fn node(&self) -> &Node {
        match self {
            Self::Files(files) => files.node(),
            Self::Cfdp(entity) => entity.node(),
        }
    }

    fn command(&mut self, now: Time, command: Command) {
        match self {
            Self::Files(files) => files.with_node(now, |node| node.command(now, LAYER, command)),
            Self::Cfdp(entity) => entity.with_node(now, |node| node.command(now, LAYER, command)),
        }
    }

    fn under_way(&self) -> usize {
        match self {
            Self::Files(files) => files.application().under_way(),
            Self::Cfdp(entity) => carried_under_way(entity.application()),
        }
    }
}

engine_of!(User, Event, {
    Files: |indication| of_application(indication, of_files),
    Cfdp: |indication| of_application(indication, Event::from),
});

/// A link to a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Closed,
    Open,
    /// No bundle has waited for this link since the given time.
    Idle(Time),
}

/// A bundle node.
#[derive(Debug)]
struct BundleTransport {
    user: User,
    /// The agent opens and closes links itself, by its contact plan.
    is_planned: bool,
    idle: Option<Duration>,
    links: BTreeMap<u64, Link>,
    neighbours: BTreeSet<u64>,
    routes: BTreeSet<u64>,
}

impl BundleTransport {
    fn agent(&self) -> &Agent {
        self.user.node().agent()
    }

    /// Opens links for which bundles wait, and closes the others.
    fn keep_links(&mut self, now: Time) {
        if self.is_planned {
            return;
        }
        let wanted = self.agent().wanted();
        for number in self.neighbours.clone() {
            let (neighbour, link) = (node(number), BundlesConfig::link(number));
            let is_up = self.agent().reaches(&neighbour);
            let state = self.links.get(&number).copied().unwrap_or(Link::Closed);
            let over = |since: Time| self.idle.is_some_and(|idle| since + idle <= now);
            let (state, command) = match (state, wanted.contains(&neighbour)) {
                // A link that the neighbour opened serves as well.
                (Link::Closed, true) if !is_up => (Link::Open, Some(Command::Open { link })),
                (Link::Closed, _) => (Link::Closed, None),
                (Link::Open | Link::Idle(_), true) => (Link::Open, None),
                // A link that is not up is not retried while no bundle waits.
                (Link::Open | Link::Idle(_), false) if !is_up => {
                    (Link::Closed, Some(Command::Close { link }))
                }
                (Link::Open, false) => (Link::Idle(now), None),
                (Link::Idle(since), false) if over(since) => {
                    (Link::Closed, Some(Command::Close { link }))
                }
                (Link::Idle(since), false) => (Link::Idle(since), None),
            };
            self.links.insert(number, state);
            if let Some(command) = command {
                self.user.command(now, command);
            }
        }
    }
}

impl Engine for BundleTransport {
    type Indication = Event;

    fn handle_input(&mut self, now: Time, input: Input<'_>) {
        self.user.handle_input(now, input);
        self.keep_links(now);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.user.handle_timeout(now);
        self.keep_links(now);
    }

    fn poll_transmit(&mut self, now: Time, tx: &mut TxBuf) -> Option<Transmit> {
        self.user.poll_transmit(now, tx)
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.user.poll_effect()
    }

    fn poll_indication(&mut self) -> Option<Event> {
        self.user.poll_indication()
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        let idle = self.links.values().filter_map(|link| match link {
            Link::Idle(since) => Some(*since + self.idle?),
            Link::Closed | Link::Open => None,
        });
        let idle = idle.map(|at| Deadline { at, why: "a link that is not used" });
        idle.chain(self.user.poll_timeout()).min_by_key(|deadline| deadline.at)
    }
}

impl Transport for BundleTransport {
    fn send(&mut self, now: Time, request: &SendRequest) -> Result<TransferId, RequestError> {
        let number = request.destination;
        let knows = self.neighbours.contains(&number) || self.routes.contains(&number);
        if !knows && !self.is_planned {
            return Err(RequestError::no_path(number));
        }
        let sent = match &mut self.user {
            User::Files(files) => {
                let to = Eid::Ipn { node: number, service: SERVICE };
                let source = request.source.clone();
                let send = |files: &mut Files| files.send(now, source, &request.name, &to);
                let sent = files.with_application(now, send);
                sent.map(|file| TransferId::new(file.0)).map_err(RequestError::new)
            }
            User::Cfdp(entity) => {
                let put = |entity: &mut OverService| entity.put(now, put_request(request));
                sent(entity.with_application(now, put))
            }
        };
        self.keep_links(now);
        sent
    }

    /// Files, or bundles of a node that only forwards them.
    fn under_way(&self) -> usize {
        self.user.under_way().max(self.agent().statistics().bundles)
    }

    fn is_ready(&self) -> bool {
        let user = match &self.user {
            User::Files(files) => files.application().is_ready(),
            User::Cfdp(entity) => entity.application().entity().is_restored(),
        };
        user && self.agent().is_ready()
    }

    fn counters(&self) -> Counters {
        let bundles = Some(BundleMetrics::new(&self.agent().statistics()));
        Counters { bundles, ..Counters::default() }
    }
}

fn of_application<I>(indication: hosted::Indication<I>, event: impl Fn(I) -> Event) -> Event {
    match indication {
        hosted::Indication::Application(indication) => event(indication),
        hosted::Indication::Node(_) => Event::Update,
    }
}

fn of_files(indication: files::Indication) -> Event {
    match indication {
        files::Indication::Sent { file, name, result, is_reported, .. } => {
            let end = Ended::new(TransferId::new(file.0), true, name, &result);
            Ended { is_confirmed: is_reported, ..end }.into()
        }
        files::Indication::Received { place, .. } => {
            let result: Result<(), files::Failure> = Ok(());
            Ended::new(TransferId::default(), false, place.path().to_owned(), &result).into()
        }
        files::Indication::SetAside { bundle, error } => {
            Event::Warning(format!("bundle {bundle} is set aside: {error}"))
        }
        files::Indication::Damaged { part, .. } => {
            Event::Warning(format!("{part}: its checksum is wrong"))
        }
        files::Indication::Waiting { .. } => Event::Update,
    }
}
