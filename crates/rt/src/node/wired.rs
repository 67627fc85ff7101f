//! A layer in its driver's thread, connected to the agent's by channels.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;

use bp::layer::{Command, Configured, Event, Layer, LinkId};
use crossbeam_channel::{Receiver, Sender, TrySendError};
use engine::{
    Deadline, Effect, Engine, Input, PathEvent, PathId, PathInfo, PathKind, Time, Transmit, TxBuf,
};

use crate::{Destination, Waker};

/// Events of a layer, with its number.
pub(super) type Events = (usize, Vec<Event>);

/// Number of events, and of bytes of bundles, at which a batch is passed to the agent while the
/// layer continues.
const BATCH: usize = 64;
const BATCH_BYTES: usize = 128 << 10;

/// Message of the agent's thread to a layer.
pub(super) enum ForLayer {
    Commands(Vec<Command>),
    /// The node ends: the link is closed after its bundles in transit.
    Ending(LinkId),
    /// Neighbours in place of the former, and the destinations of their paths.
    Configured(Box<Configured>, BTreeMap<PathId, Destination>),
}

/// A layer as an engine of its driver: commands and events pass through channels.
pub(super) struct Wired {
    pub(super) layer: Box<dyn Layer>,
    pub(super) number: usize,
    pub(super) commands: Receiver<ForLayer>,
    /// Destinations for the driver.
    pub(super) peers: Sender<BTreeMap<PathId, Destination>>,
    pub(super) events: Sender<Events>,
    /// Events not yet sent to the agent, and their bytes.
    pub(super) pending_events: Vec<Event>,
    pub(super) pending_bytes: usize,
    /// Wakes the agent.
    pub(super) agent: Waker,
    pub(super) now: Time,
    pub(super) contacts: Contacts,
}

/// Paths of datagrams, which are down between the contacts of a plan.
#[derive(Debug, Default)]
pub(super) struct Contacts {
    /// Paths as the driver reported them.
    known: BTreeMap<PathId, PathInfo>,
    /// Paths whose contact has ended.
    ended: BTreeSet<PathId>,
}

impl Wired {
    fn process_commands(&mut self, now: Time) {
        self.now = now;
        while let Ok(next) = self.commands.try_recv() {
            match next {
                ForLayer::Commands(commands) => {
                    for command in commands {
                        self.command(now, command);
                    }
                }
                ForLayer::Ending(link) => self.layer.command(now, Command::Close { link }),
                ForLayer::Configured(configured, destinations) => {
                    // The driver is in this thread, and takes them before it opens a path.
                    self.layer.configure(now, *configured);
                    let _ = self.peers.send(destinations);
                }
            }
        }
    }

    /// Passes a command of the agent to the layer. Between contacts the path is down: the driver
    /// does not notice that nothing arrives, and sessions in transit would retransmit until the next
    /// contact.
    fn command(&mut self, now: Time, command: Command) {
        if let Command::Open { link } = command
            && self.contacts.ended.remove(&PathId(link.0))
            && let Some(info) = self.contacts.known.get(&PathId(link.0))
        {
            let up = PathEvent::Up(info.clone());
            self.layer.handle_input(now, Input::Path(PathId(link.0), up));
        }
        let closed = if let Command::Close { link } = command { Some(link) } else { None };
        self.layer.command(now, command);
        let path = closed.map(|link| PathId(link.0));
        if let Some(path) = path.filter(|path| self.contacts.known.contains_key(path)) {
            self.contacts.ended.insert(path);
            self.layer.handle_input(now, Input::Path(path, PathEvent::Down));
        }
    }

    /// Collects the layer's events and sends a full batch to the agent.
    fn gather(&mut self) {
        while let Some(event) = self.layer.poll_indication() {
            if let Event::Piece { bytes, .. } = &event {
                self.pending_bytes += bytes.len();
            }
            self.pending_events.push(event);
            if self.pending_events.len() >= BATCH || self.pending_bytes >= BATCH_BYTES {
                self.flush_events();
            }
        }
    }

    /// Sends the events to the agent. Blocks if it is behind; meanwhile data of the peers waits in
    /// the kernel.
    fn flush_events(&mut self) {
        if self.pending_events.is_empty() {
            return;
        }
        self.pending_bytes = 0;
        let events = std::mem::replace(&mut self.pending_events, Vec::with_capacity(BATCH));
        match self.events.try_send((self.number, events)) {
            Ok(()) => self.agent.wake(),
            Err(TrySendError::Full(events)) => {
                self.agent.wake();
                // An agent that has ended receives nothing.
                let _ = self.events.send(events);
                self.agent.wake();
            }
            Err(TrySendError::Disconnected(_)) => {}
        }
    }
}

impl Engine for Wired {
    type Indication = Infallible;

    fn handle_input(&mut self, now: Time, input: Input<'_>) {
        self.now = now;
        if let Input::Path(path, PathEvent::Up(info)) = &input
            && matches!(info.kind, PathKind::Datagram { .. })
        {
            self.contacts.known.insert(*path, info.clone());
            if self.contacts.ended.contains(path) {
                return;
            }
        }
        // The driver forgets paths of strangers.
        if let Input::Path(path, PathEvent::Down) = &input {
            self.contacts.known.remove(path);
        }
        self.layer.handle_input(now, input);
        self.gather();
    }

    fn handle_timeout(&mut self, now: Time) {
        self.now = now;
        self.layer.handle_timeout(now);
    }

    fn poll_transmit(&mut self, now: Time, tx: &mut TxBuf) -> Option<Transmit> {
        self.process_commands(now);
        self.layer.poll_transmit(now, tx)
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.layer.poll_effect()
    }

    /// Sends all events to the agent; the driver gets no indication.
    fn poll_indication(&mut self) -> Option<Infallible> {
        // A driver that holds a batch which is not due does not pull another.
        self.process_commands(self.now);
        self.gather();
        self.flush_events();
        None
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        self.layer.poll_timeout()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    const LINK: LinkId = LinkId(1);

    /// Layer that records what it is given.
    #[derive(Clone, Default)]
    struct Recorder(Arc<Mutex<Vec<String>>>);

    impl Recorder {
        fn note(&self, what: impl Into<String>) {
            self.0.lock().expect("no test has panicked").push(what.into());
        }

        fn taken(&self) -> Vec<String> {
            std::mem::take(&mut *self.0.lock().expect("no test has panicked"))
        }
    }

    impl Engine for Recorder {
        type Indication = Event;

        fn handle_input(&mut self, _: Time, input: Input<'_>) {
            match input {
                Input::Path(_, PathEvent::Up(_)) => self.note("up"),
                Input::Path(_, PathEvent::Down) => self.note("down"),
                Input::Receive(_) | Input::Path(..) | Input::Done(..) => self.note("other"),
            }
        }

        fn handle_timeout(&mut self, _: Time) {}

        fn poll_transmit(&mut self, _: Time, _: &mut TxBuf) -> Option<Transmit> {
            None
        }

        fn poll_effect(&mut self) -> Option<Effect> {
            None
        }

        fn poll_indication(&mut self) -> Option<Event> {
            None
        }

        fn poll_timeout(&self) -> Option<Deadline> {
            None
        }
    }

    impl Layer for Recorder {
        fn command(&mut self, _: Time, command: Command) {
            self.note(format!("{command:?}"));
        }

        fn configure(&mut self, _: Time, _: Configured) {}
    }

    #[test]
    fn paths_of_datagrams_are_down_between_contacts() {
        let recorder = Recorder::default();
        let (commands, received) = crossbeam_channel::unbounded();
        let mut wired = Wired {
            layer: Box::new(recorder.clone()),
            number: 0,
            commands: received,
            peers: crossbeam_channel::unbounded().0,
            events: crossbeam_channel::unbounded().0,
            pending_events: Vec::new(),
            pending_bytes: 0,
            agent: Waker::new().expect("a pipe"),
            now: Time::ZERO,
            contacts: Contacts::default(),
        };
        let contact = |wired: &mut Wired, next: ForLayer| {
            commands.send(next).expect("it is received");
            wired.process_commands(Time::ZERO);
            recorder.taken()
        };
        let comes_up = |wired: &mut Wired, path: PathId, kind: PathKind| {
            let info = PathInfo { kind, ..PathInfo::datagram(100) };
            wired.handle_input(Time::ZERO, Input::Path(path, PathEvent::Up(info)));
            recorder.taken()
        };
        let begins = |link| ForLayer::Commands(vec![Command::Open { link }]);
        let ends = |link| ForLayer::Commands(vec![Command::Close { link }]);
        let [opened, closed] = [Command::Open { link: LINK }, Command::Close { link: LINK }]
            .map(|command| format!("{command:?}"));
        let (path, datagrams) = (PathId(LINK.0), PathKind::Datagram { mtu: 100 });

        assert_eq!(contact(&mut wired, ends(LINK)), [&*closed], "the path is not known");
        assert_eq!(comes_up(&mut wired, path, datagrams), ["up"]);
        assert_eq!(contact(&mut wired, ends(LINK)), [&*closed, "down"]);
        assert!(comes_up(&mut wired, path, datagrams).is_empty(), "it waits for the contact");
        assert_eq!(contact(&mut wired, begins(LINK)), ["up", &*opened]);
        let sessions_end = contact(&mut wired, ForLayer::Ending(LINK));
        assert_eq!(sessions_end, [&*closed], "bundles in transit complete");
        assert_eq!(contact(&mut wired, begins(LINK)), [&*opened]);
        wired.handle_input(Time::ZERO, Input::Path(path, PathEvent::Down));
        assert_eq!(recorder.taken(), ["down"]);
        assert_eq!(contact(&mut wired, ends(LINK)), [&*closed], "the path is forgotten");

        let stream = LinkId(2);
        assert_eq!(comes_up(&mut wired, PathId(stream.0), PathKind::Stream), ["up"]);
        assert_eq!(contact(&mut wired, ends(stream)).len(), 1, "its driver notices");
    }
}
