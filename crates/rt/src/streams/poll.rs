//! Readiness of a driver's streams, listeners and interface.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use engine::PathId;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;

use crate::port::Port;

/// Maximum events per call.
const NEWS: usize = 256;
/// Bits that distinguish other events from events of streams, whose numbers have 32 bits.
const LISTENER: u64 = 1 << 32;
const INTERFACE: u64 = 2 << 32;
const INTERFACE_STATE: u64 = 3 << 32;

/// Epoll descriptor of a driver.
#[derive(Debug)]
pub(super) struct Poll(OwnedFd);

/// A descriptor that became ready.
#[derive(Clone, Copy, Debug)]
pub(super) enum News {
    /// A stream is readable, writable or ended.
    Stream(PathId, EventFlags),
    /// Streams wait at the listener of this number.
    Listener(u32),
    /// Packets wait at the interface.
    Packets,
    /// The interface came up or went down.
    Interface,
}

impl Poll {
    /// Creates an empty set.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(epoll::create(CreateFlags::CLOEXEC)?))
    }

    pub(super) fn add_stream(&self, path: PathId, socket: &impl AsFd) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        Ok(epoll::add(&self.0, socket, EventData::new_u64(u64::from(path.0)), flags)?)
    }

    pub(super) fn add_listener(&self, number: u32, socket: &impl AsFd) -> io::Result<()> {
        Ok(epoll::add(&self.0, socket, listener(number), EventFlags::IN)?)
    }

    /// Starts or stops watching a listener.
    pub(super) fn watch_listener(&self, number: u32, socket: &impl AsFd, is_watched: bool) {
        self.watch(socket, listener(number), is_watched);
    }

    pub(super) fn add_interface(&self, port: &Port) -> io::Result<()> {
        epoll::add(&self.0, port, EventData::new_u64(INTERFACE), EventFlags::IN)?;
        let state = EventData::new_u64(INTERFACE_STATE);
        Ok(epoll::add(&self.0, port.monitor(), state, EventFlags::IN)?)
    }

    /// Starts or stops watching the interface's packets.
    pub(super) fn watch_packets(&self, port: &Port, is_watched: bool) {
        self.watch(port, EventData::new_u64(INTERFACE), is_watched);
    }

    fn watch(&self, of: &impl AsFd, data: EventData, is_watched: bool) {
        let flags = if is_watched { EventFlags::IN } else { EventFlags::empty() };
        let changed = epoll::modify(&self.0, of, data, flags);
        debug_assert!(changed.is_ok(), "it is in the set: {changed:?}");
    }

    /// Returns the current events; none after a signal.
    pub(super) fn news<'a>(
        &self,
        space: &'a mut Space,
    ) -> io::Result<impl Iterator<Item = News> + use<'a>> {
        let at_once = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        let events: &[epoll::Event] = match epoll::wait(&self.0, &mut space.0[..], Some(&at_once)) {
            Ok((events, _)) => events,
            Err(Errno::INTR) => &[],
            Err(error) => return Err(error.into()),
        };
        Ok(events.iter().map(|&epoll::Event { flags, data, .. }| {
            let data = data.u64();
            match (u32::try_from(data), data) {
                (Ok(path), _) => News::Stream(PathId(path), flags),
                (Err(_), INTERFACE) => News::Packets,
                (Err(_), INTERFACE_STATE) => News::Interface,
                (Err(_), _) => News::Listener((data & !LISTENER) as u32),
            }
        }))
    }
}

impl AsFd for Poll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Buffer for events.
pub(super) struct Space([MaybeUninit<epoll::Event>; NEWS]);

impl Space {
    pub(super) fn new() -> Self {
        Self([const { MaybeUninit::uninit() }; NEWS])
    }
}

fn listener(number: u32) -> EventData {
    EventData::new_u64(LISTENER | u64::from(number))
}
