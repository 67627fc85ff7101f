//! A bundle node on real sockets. The agent runs in one thread, each convergence layer in another
//! with its driver, files in the threads of the [`FileStore`]; channels connect them.

#[cfg(test)]
mod tests;
mod turns;
mod wired;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use bp::agent::{self, Agent, Indication, LinkRef};
use bp::layer::{Command, Configured, Layer, LinkId};
use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use engine::{PathId, Rng, Time};
use thiserror::Error;

use self::turns::{Port, Turns};
use self::wired::{Contacts, ForLayer, Wired};
use crate::pump::Pump;
use crate::streams::{StreamConfig, StreamDriver};
use crate::wall::Wall;
pub use crate::wall::{WallClock, dtn_ms};
use crate::{Clock, Config, Control, Destination, Driver, FileStore, Waker};

/// Maximum batches of events that wait for the agent; beyond that, layers wait, and their peers
/// with them.
const EVENTS: usize = 64;

/// Configuration of a node.
pub struct NodeConfig {
    /// Configuration of the agent.
    pub agent: agent::Config,
    /// Seed of its random numbers.
    pub seed: u64,
    /// Convergence layers, numbered in this order.
    pub layers: Vec<LayerConfig>,
    /// Use of the machine's wall clock.
    pub wall: WallClock,
    /// Called in the agent's thread after the agent's clock changed, with the wall-clock time at
    /// [`Time::ZERO`]; not at the start.
    pub on_step: Option<OnStep>,
}

/// Called when the agent's clock changes.
pub type OnStep = Box<dyn FnMut(Time, &mut Agent, SystemTime) + Send>;

/// A convergence layer and its sockets.
pub struct LayerConfig {
    /// Name of the layer.
    pub name: String,
    /// The layer.
    pub layer: Box<dyn Layer>,
    /// Sockets of the layer.
    pub carrier: Carrier,
    /// Links that are open from the start, regardless of the plan.
    pub open: BTreeSet<LinkId>,
}

/// Sockets of a layer.
#[derive(Debug)]
pub enum Carrier {
    /// Streams of the kernel's TCP.
    Streams(StreamConfig),
    /// One UDP socket.
    Datagrams {
        /// Configuration of the driver.
        config: Config,
        /// Known neighbours. A host name is resolved again every minute.
        peers: BTreeMap<PathId, Destination>,
    },
}

/// Reason why a node does not start.
#[derive(Debug, Error)]
pub enum NodeError {
    /// A layer's socket cannot be opened.
    #[error("layer {layer}: {error}")]
    Socket {
        /// Name of the layer.
        layer: String,
        /// Error of the system.
        error: io::Error,
    },
    /// The system refuses a thread or its waker.
    #[error("a thread cannot be started: {0}")]
    Thread(#[from] io::Error),
}

type Request = Box<dyn FnOnce(Time, &mut Agent) + Send>;

/// An order for the agent's thread.
enum Order {
    Ask(Request),
    Configure(Vec<LayerUpdate>),
    Close(BTreeSet<LinkRef>, Sender<()>),
    Stop,
}

/// Configured neighbours of a layer, in place of the former ones.
#[derive(Debug)]
pub struct LayerUpdate {
    /// Number of the layer.
    pub layer: usize,
    /// Its neighbours.
    pub configured: Configured,
    /// Destinations of the paths to them.
    pub destinations: BTreeMap<PathId, Destination>,
}

/// Access to the agent of a running node.
#[derive(Clone)]
pub struct Handle {
    orders: Sender<Order>,
    waker: Waker,
    clock: Clock,
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").finish_non_exhaustive()
    }
}

impl Handle {
    /// Runs `request` on the agent, in its thread. Does nothing if the node has ended.
    pub fn ask(&self, request: impl FnOnce(Time, &mut Agent) + Send + 'static) {
        self.order(Order::Ask(Box::new(request)));
    }

    /// Replaces the neighbours of layers, before any later request reaches the agent.
    pub fn configure(&self, updates: Vec<LayerUpdate>) {
        self.order(Order::Configure(updates));
    }

    /// Returns the wall-clock time at [`Time::ZERO`] of the node, by the present wall clock.
    #[must_use]
    pub fn zero(&self) -> SystemTime {
        self.clock.zero().0
    }

    fn order(&self, order: Order) {
        let _ = self.orders.send(order);
        self.waker.wake();
    }
}

/// Handles of a layer's thread.
struct Running {
    name: String,
    waker: Waker,
    thread: JoinHandle<()>,
    listening: Vec<SocketAddr>,
    links: BTreeSet<LinkId>,
}

/// A running node.
pub struct Node {
    handle: Handle,
    agent: JoinHandle<()>,
    layers: Vec<Running>,
    stop: Arc<AtomicBool>,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.layers.iter().map(|layer| &layer.name).collect();
        f.debug_struct("Node").field("layers", &names).finish_non_exhaustive()
    }
}

/// Channels between the agent and the layers.
struct Channels {
    ports: Vec<Port>,
    commands: Vec<Receiver<ForLayer>>,
}

impl Node {
    /// Opens the sockets and starts the threads. `store` must have been opened with `waker`. `on`
    /// receives the agent's indications in the agent's thread.
    ///
    /// # Errors
    ///
    /// A socket or a thread is not available.
    pub fn start(
        config: NodeConfig,
        store: FileStore,
        waker: Waker,
        on: impl FnMut(Time, &mut Agent, Indication) + Send + 'static,
    ) -> Result<Self, NodeError> {
        let (orders, ordered) = unbounded();
        let (events, from_layers) = bounded(EVENTS);
        let stop = Arc::new(AtomicBool::new(false));
        let clock = Clock::start();
        let Channels { ports, commands } = channels(config.layers.len())?;
        let mut wall = Wall::new(config.wall);
        let mut settings = config.agent;
        settings.boot = clock.boot();
        if config.wall != WallClock::Unused {
            let now = wall.follow(Time::ZERO, || clock.zero(), crate::clock::is_synchronised);
            settings.clock = now.map(|(zero, _)| dtn_ms(zero));
        }
        let agent = Agent::new(settings, Rng::new(config.seed, "agent"));
        let handle = Handle { orders, waker: waker.clone(), clock };
        let mut layers: Vec<Running> = Vec::new();
        for (number, (layer, commands)) in config.layers.into_iter().zip(commands).enumerate() {
            let own = ports[number].waker.clone();
            let (peers, updates) = unbounded();
            let wired = Wired {
                layer: layer.layer,
                number,
                commands,
                peers,
                events: events.clone(),
                pending_events: Vec::new(),
                pending_bytes: 0,
                agent: waker.clone(),
                now: Time::ZERO,
                contacts: Contacts::default(),
            };
            let sources = Sources { store: store.share(&own), waker: own, updates };
            let started = start(layer.name, layer.carrier, wired, sources, Arc::clone(&stop));
            let mut running = match started {
                Ok(running) => running,
                Err(error) => {
                    stop.store(true, Ordering::Relaxed);
                    layers.into_iter().for_each(Running::join);
                    return Err(error);
                }
            };
            running.links.extend(&layer.open);
            for link in layer.open {
                // The layer has not started yet, so the command is queued.
                ports[number].send(ForLayer::Commands(vec![Command::Open { link }]));
            }
            layers.push(running);
        }
        drop(events);
        let mut pump = Pump::new(agent, Some(store));
        pump.clock = clock;
        let turns = Turns {
            pump,
            wall,
            on_step: config.on_step,
            waker,
            orders: ordered,
            events: from_layers,
            ports,
            on,
            closing: None,
        };
        let thread = std::thread::Builder::new().name("agent".to_owned());
        let agent = thread.spawn(move || turns.run())?;
        Ok(Self { handle, agent, layers, stop })
    }

    /// Returns access to the agent.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Returns each layer's name and listening addresses.
    pub fn listening(&self) -> impl Iterator<Item = (&str, &[SocketAddr])> {
        self.layers.iter().map(|layer| (layer.name.as_str(), layer.listening.as_slice()))
    }

    /// Whether a thread has failed.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.agent.is_finished() || self.layers.iter().any(|layer| layer.thread.is_finished())
    }

    /// Closes all sessions in order, waiting up to `patience`, then ends the node. Its bundles stay
    /// in its store.
    pub fn stop(self, patience: Duration) {
        let (closed, all_closed) = bounded(1);
        let mut links = BTreeSet::new();
        for (layer, running) in self.layers.iter().enumerate() {
            links.extend(running.links.iter().map(|link| LinkRef { layer, link: *link }));
        }
        self.handle.order(Order::Close(links, closed));
        // Sessions that are still open are reset.
        let _ = all_closed.recv_timeout(patience);
        self.handle.order(Order::Stop);
        if self.agent.join().is_err() {
            tracing::error!("the agent's thread has panicked");
        }
        self.stop.store(true, Ordering::Relaxed);
        self.layers.into_iter().for_each(Running::join);
    }
}

impl Running {
    fn join(self) {
        self.waker.wake();
        if self.thread.join().is_err() {
            tracing::error!(layer = self.name, "the layer's thread has panicked");
        }
    }
}

fn channels(layers: usize) -> io::Result<Channels> {
    let mut channels = Channels { ports: Vec::new(), commands: Vec::new() };
    for _ in 0..layers {
        let (sender, receiver) = unbounded();
        channels.ports.push(Port { commands: sender, waker: Waker::new()? });
        channels.commands.push(receiver);
    }
    Ok(channels)
}

/// Sources of a layer's driver, beside its sockets.
struct Sources {
    store: FileStore,
    waker: Waker,
    updates: Receiver<BTreeMap<PathId, Destination>>,
}

/// Starts the thread of a layer.
fn start(
    name: String,
    carrier: Carrier,
    wired: Wired,
    Sources { store, waker, updates }: Sources,
    stop: Arc<AtomicBool>,
) -> Result<Running, NodeError> {
    let socket = |error| NodeError::Socket { layer: name.clone(), error };
    let thread = std::thread::Builder::new().name(name.clone());
    let layer_name = name.clone();
    let (listening, thread) = match carrier {
        Carrier::Streams(config) => {
            let mut driver = StreamDriver::new(config, wired, waker.clone()).map_err(socket)?;
            driver.set_store(store);
            driver.follow_peers(updates);
            let listening = driver.listening().map_err(socket)?;
            let work = move || {
                let on =
                    || if stop.load(Ordering::Relaxed) { Control::Stop } else { Control::Continue };
                if let Err(error) = driver.run(|_, _, _| on()) {
                    tracing::error!(layer = layer_name, %error, "a layer has ended");
                }
            };
            (listening, thread.spawn(work)?)
        }
        Carrier::Datagrams { config, peers } => {
            let mut driver = Driver::new(config, wired, store, waker.clone()).map_err(socket)?;
            driver.set_peers(peers);
            driver.follow_peers(updates);
            let listening = vec![driver.local()];
            let work = move || {
                if let Err(error) = driver.run(&stop, |_, _, _| Control::Continue) {
                    tracing::error!(layer = layer_name, %error, "a layer has ended");
                }
            };
            (listening, thread.spawn(work)?)
        }
    };
    Ok(Running { name, waker, thread, listening, links: BTreeSet::new() })
}
