//! Orders to a running pump from other threads, and its reports.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender};
use engine::Time;
use link::{Config, ConfigError};
use rt::{Clock, Lateness, Timings};
use rustix::event::{EventfdFlags, eventfd};

use crate::capture::{CaptureLimits, CaptureReport, Finished};

/// Counters of one link.
#[derive(Clone, Debug)]
pub struct LinkReport {
    /// Packets pushed, delivered and lost.
    pub stats: link::Stats,
    /// Lateness of packets: delay of delivery after their logical times.
    pub lateness: Lateness,
    /// Packets that a host refused, for example because their IP version was damaged.
    pub refused: u64,
    /// Refused packets that were intact at a device that was up: the machine is overloaded.
    pub refused_intact: u64,
    /// Packets that wait for the line.
    pub waiting: usize,
    /// Statistics of PPP, if the link looks at packets' bytes.
    pub line: Option<link::LineStats>,
}

/// Counters of all links and hosts.
#[derive(Clone, Debug)]
pub struct Report {
    /// One for each link, in their order.
    pub links: Vec<LinkReport>,
    /// Lateness of each host, where it is counted, in their order.
    pub hosts: Vec<Lateness>,
    /// Packets refused by all links because the memory for packets was full.
    pub no_memory: u64,
    /// Packets of devices that were not IP or had no route.
    pub unreadable: u64,
    /// Longest time that packets may have waited to be read, because of other work or a host that
    /// sent more than could be read. Their transmission may have started that much late.
    pub unattended: Duration,
}

/// Lateness of the engine on a host, if there is one.
pub(crate) type HostTimings = Arc<OnceLock<Arc<Timings>>>;

pub(super) enum Order {
    Change(usize, Box<dyn FnOnce(&Config) -> Config + Send>, Sender<Result<(), ConfigError>>),
    Count(Sender<Counts>),
    CountOnTheWay(Sender<u64>),
    Begin(Sender<Clock>),
    Capture(CapturePlan, Sender<Result<(), CaptureError>>),
    EndCapture(Sender<Option<Finished>>),
    Stop,
}

/// Part of a [`Report`] that only the pump's thread knows. It is small: each request delays
/// packets.
pub(crate) struct Counts {
    pub(super) links: Vec<LinkCounts>,
    pub(super) no_memory: u64,
    pub(super) unreadable: u64,
    pub(super) unattended: Duration,
}

/// Counters of a link, without its lateness.
pub(super) struct LinkCounts {
    pub(super) stats: link::Stats,
    pub(super) refused: u64,
    pub(super) refused_intact: u64,
    pub(super) waiting: usize,
    pub(super) line: Option<link::LineStats>,
}

/// Hosts, folder and limits of a capture.
pub(super) struct CapturePlan {
    pub(super) hosts: Option<Vec<String>>,
    pub(super) folder: PathBuf,
    pub(super) limits: CaptureLimits,
}

/// Reason why a capture did not start, or was not written.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// A capture is running.
    #[error("a capture is running already; stop it first")]
    Running,
    /// No capture is running.
    #[error("no capture is running")]
    None,
    /// There is no such host.
    #[error("there is no host {0:?} with a link to capture")]
    Host(String),
    /// The folder or a file cannot be written.
    #[error("the capture: {0}")]
    Files(#[from] io::Error),
    /// The emulator has stopped.
    #[error("the emulator has stopped")]
    Stopped,
}

/// Orders for a running pump, given from any thread.
#[derive(Clone, Debug)]
pub(crate) struct Handle {
    orders: Sender<Order>,
    event: Arc<OwnedFd>,
    clock: Shared,
    /// Lateness of each link, and of each host where it is counted.
    lateness: Arc<[Arc<Timings>]>,
    hosts: Arc<[HostTimings]>,
}

/// Clock of the pump, readable by other threads.
#[derive(Clone, Debug)]
pub(super) struct Shared(Arc<Mutex<Clock>>);

impl Shared {
    fn get(&self) -> Clock {
        // A thread that panicked cannot have left the clock half-written.
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set(&self, clock: Clock) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = clock;
    }
}

/// The pump's end of a [`Handle`].
pub(super) struct Ordered {
    pub(super) orders: Receiver<Order>,
    /// Raised with each order.
    pub(super) event: Arc<OwnedFd>,
    pub(super) clock: Shared,
}

impl Handle {
    /// Creates both ends. Lateness is counted for each link in `lateness` and each host in `hosts`.
    pub(super) fn new(
        clock: Clock,
        lateness: Arc<[Arc<Timings>]>,
        hosts: Arc<[HostTimings]>,
    ) -> io::Result<(Self, Ordered)> {
        let event = Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?);
        let (sender, orders) = crossbeam_channel::unbounded();
        let shared = Shared(Arc::new(Mutex::new(clock)));
        let (own, clock) = (Arc::clone(&event), shared.clone());
        let ordered = Ordered { orders, event, clock: shared };
        Ok((Self { orders: sender, event: own, clock, lateness, hosts }, ordered))
    }

    /// Returns the time of the links' schedules.
    pub(crate) fn now(&self) -> Time {
        self.clock().now()
    }

    /// Returns the clock of the links' schedules.
    pub(crate) fn clock(&self) -> Clock {
        self.clock.get()
    }

    /// Changes a link from now on.
    pub(crate) fn change(
        &self,
        link: usize,
        change: impl FnOnce(&Config) -> Config + Send + 'static,
    ) -> Result<(), ChangeError> {
        let (answer, result) = crossbeam_channel::bounded(1);
        self.order(Order::Change(link, Box::new(change), answer));
        result.recv().map_err(|_| ChangeError::Stopped)?.map_err(ChangeError::Config)
    }

    /// Returns the counters of all links and hosts; `None` if the pump has stopped.
    pub(crate) fn report(&self) -> Option<Report> {
        let (answer, result) = crossbeam_channel::bounded(1);
        self.order(Order::Count(answer));
        Some(self.complete(result.recv().ok()?))
    }

    /// Adds the lateness of packets to the counters.
    pub(crate) fn complete(&self, counts: Counts) -> Report {
        let of = |(counts, lateness): (LinkCounts, &Arc<Timings>)| {
            let lateness = lateness.so_far();
            let LinkCounts { stats, refused, refused_intact, waiting, line } = counts;
            LinkReport { stats, lateness, refused, refused_intact, waiting, line }
        };
        let of_host = |host: &HostTimings| host.get().map(|it| it.so_far()).unwrap_or_default();
        let hosts = self.hosts.iter().map(of_host).collect();
        let links = counts.links.into_iter().zip(&*self.lateness).map(of).collect();
        let Counts { no_memory, unreadable, unattended, .. } = counts;
        Report { links, hosts, no_memory, unreadable, unattended }
    }

    /// Returns the packets that wait for a line or are in flight; `None` if the pump has stopped.
    pub(crate) fn on_the_way(&self) -> Option<u64> {
        let (answer, result) = crossbeam_channel::bounded(1);
        self.order(Order::CountOnTheWay(answer));
        result.recv().ok()
    }

    /// Starts the world's time now; `None` if the pump has stopped.
    pub(crate) fn begin(&self) -> Option<Clock> {
        let (answer, result) = crossbeam_channel::bounded(1);
        self.order(Order::Begin(answer));
        result.recv().ok()
    }

    /// Starts a capture of these hosts, or all.
    pub(crate) fn capture(
        &self,
        hosts: Option<Vec<String>>,
        folder: PathBuf,
        limits: CaptureLimits,
    ) -> Result<(), CaptureError> {
        let (answer, result) = crossbeam_channel::bounded(1);
        self.order(Order::Capture(CapturePlan { hosts, folder, limits }, answer));
        result.recv().map_err(|_| CaptureError::Stopped)?
    }

    /// Ends the capture, and waits until it is written.
    pub(crate) fn end_capture(&self) -> Result<CaptureReport, CaptureError> {
        let (answer, result) = crossbeam_channel::bounded(1);
        self.order(Order::EndCapture(answer));
        let finished = result.recv().map_err(|_| CaptureError::Stopped)?;
        Ok(finished.ok_or(CaptureError::None)?.wait()?)
    }

    pub(crate) fn stop(&self) {
        self.order(Order::Stop);
    }

    pub(super) fn order(&self, order: Order) {
        // A pump that has stopped drops the order together with its reply channel.
        let _ = self.orders.send(order);
        // The write can only fail when 2^64 - 2 wake-ups are unread: then the pump wakes anyway.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }
}

/// Reason why a link was not changed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ChangeError {
    /// The configuration is invalid.
    #[error(transparent)]
    Config(ConfigError),
    /// The emulator has stopped.
    #[error("the emulator has stopped")]
    Stopped,
}
