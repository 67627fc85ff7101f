//! Transfers of files over sockets: what their commands have in common.

mod batch;
mod choice;
mod client;
mod closing;
mod errand;
mod job;
mod listing;
mod losses;
mod output;
mod place;
mod put;
mod remembered;
mod routes;
mod server;
mod strangers;
mod stream;
mod watch;

use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, anyhow, ensure};
use engine::{PathId, PathInfo, Time};
use saratoga::lite;
use service::api::{ApplicationDriver, DriverError};
use transport::contract::Spool;
use transport::quantity::Rate;
use transport::settings::check_interval;
use transport::{CfdpOverService, Configuration, Event, Process, Role, TransferId, Transport};

pub(crate) use self::batch::{
    BatchOptions, Journal, PACK, SendBatch, WatchOptions, label, print_skipped, run as run_batch,
};
pub(crate) use self::choice::{Choice, choose};
pub(crate) use self::client::run;
pub(crate) use self::job::{Ends, Job, SendFile, Wish};
pub(crate) use self::place::{BUNDLES, State, TRANSFER, hash};
pub(crate) use self::put::{CfdpOptions, mode};
pub(crate) use self::routes::Routes;
pub(crate) use self::server::{Service, serve};
pub(crate) use self::stream::{Source, receive as receive_stream, send as send_stream};
use crate::sockets::transfer::{self, CATCH_UP, Options, UNPACED_WINDOW, bind_error};

/// Time for which an end stays to reply to peers that missed its last message.
const LINGER: Duration = Duration::from_millis(500);

/// Driver of a transport's socket.
pub(crate) type Driver = rt::Driver<Box<dyn Transport>>;

/// Observer of a transport that runs.
type Observer<'a> = dyn FnMut(Time, &mut dyn Transport, rt::Event<Event>) -> rt::Control + 'a;

/// Driver of a transport in the calling thread.
enum Runner {
    /// Over UDP.
    Socket(Box<Driver>),
    /// At a bundle node.
    Node(Box<ApplicationDriver<CfdpOverService>>),
}

impl Runner {
    fn now(&self) -> Time {
        match self {
            Self::Socket(driver) => driver.now(),
            Self::Node(driver) => driver.now(),
        }
    }

    /// Runs until `stop` is set or `on` returns [`rt::Control::Stop`].
    fn run(&mut self, stop: &AtomicBool, on: &mut Observer<'_>) -> Result<()> {
        match self {
            Self::Socket(driver) => {
                Ok(driver.run(stop, |now, transport, event| on(now, transport.as_mut(), event))?)
            }
            Self::Node(driver) => driver
                .run(stop, &mut |now, entity, event| on(now, entity, event))
                .map_err(|error| match error {
                    DriverError::Refused { is_taken: true, .. } => anyhow!(
                        "{error}; another entity runs beside it. End that one first; files of \
                             class 1 without closure can be sent all the same"
                    ),
                    error => error.into(),
                }),
        }
    }
}

/// Time for which an end stays after the end of a transfer.
#[derive(Clone, Copy, Debug)]
struct Linger {
    time: Duration,
    /// Whether to leave earlier when no transfer is active.
    until_idle: bool,
}

impl Linger {
    const NONE: Self = Self { time: Duration::ZERO, until_idle: false };

    /// Whether to stay on after a transfer that ended at `since`.
    fn lasts(self, since: Time, now: Time, transport: &dyn Transport) -> bool {
        now < since + self.time && !(self.until_idle && transport.transfers().is_empty())
    }
}

/// Configuration of a transport, and properties of its paths, which lead to or begin at `address`.
/// Options override the file, and the file overrides `default`, the default number of this end.
/// Most paths lead to `remote`.
pub(crate) fn configured(
    options: &Options,
    address: SocketAddr,
    given: Option<u64>,
    default: u64,
    remote: Option<u64>,
    role: Role,
) -> Result<(Box<dyn Configuration>, PathInfo)> {
    let protocol = options.full_protocol()?;
    let process = Process {
        role,
        catch_up: CATCH_UP,
        unpaced_window: UNPACED_WINDOW,
        clock_ms: rt::node::dtn_ms(SystemTime::now()),
        rate_bps: options.rate.map(Rate::bps),
        remote,
        udp_lite: options.udp_lite,
        reply_interval: options.reply_interval(),
        is_group: address.ip().is_multicast(),
    };
    let mut configuration = transport::configure(&protocol, default, None)?;
    configuration.prepare(&process).map_err(|error| anyhow!("{protocol} {error}"))?;
    if let Some(path) = &options.mib {
        configuration.apply_file(path)?;
    }
    if let Some(given) = given {
        configuration.set_entity(given);
    }
    let inactivity = options.contacts.inactivity;
    check_interval("--inactivity", inactivity)?;
    if let Some(silence) = inactivity {
        configuration.set_inactivity(silence.duration());
    }
    let rate_bps = configuration.finish(&process)?;
    let checked = configuration.check(&protocol);
    checked.map_err(|error| within(options, error.into()))?;
    Ok((configuration, options.path(rate_bps, address)))
}

/// Addresses of the peers in the settings, each with its name.
fn named_peers(
    configuration: &mut dyn Configuration,
    options: &Options,
) -> Result<Vec<(SocketAddr, String)>> {
    let mut named: Vec<(SocketAddr, String)> = Vec::new();
    let mut add = |name: String| {
        let address = transfer::resolve(&name)
            .with_context(|| format!("[remotes.{name:?}]: peers are called by their addresses"))?;
        ensure!(named.iter().all(|(known, _)| *known != address), "[remotes] has {address} twice");
        named.push((address, name));
        Ok(())
    };
    let names = configuration.named_peers().map_or(Vec::new(), |peers| peers.names());
    let added = names.into_iter().try_for_each(&mut add);
    added.map_err(|error| within(options, error))?;
    Ok(named)
}

/// Joins the group of a path.
fn join_group(configuration: &mut dyn Configuration, group: PathId) {
    if let Some(membership) = configuration.membership() {
        membership.join(group);
    }
}

/// `error` with the path of the settings file.
fn within(options: &Options, error: anyhow::Error) -> anyhow::Error {
    match &options.mib {
        Some(path) => error.context(path.display().to_string()),
        None => error,
    }
}

/// Opens the socket of a transport.
pub(crate) fn open(
    settings: rt::Config,
    transport: Box<dyn Transport>,
    store: rt::FileStore,
    waker: rt::Waker,
) -> Result<Driver> {
    let listen = settings.listen;
    rt::Driver::new(settings, transport, store, waker).map_err(|error| bind_error(listen, error))
}

/// Removes files of receptions that a killed process left and that cannot be resumed.
pub(crate) fn sweep(
    store: &mut rt::FileStore,
    spools: impl IntoIterator<Item = &'static Spool>,
) -> Result<()> {
    let mut swept = 0;
    for spool in spools {
        let files = store.sweep(spool.prefix, spool.record_prefix);
        swept += files.context("cannot look through the working files")?;
    }
    if swept > 0 {
        tracing::info!(swept, "working files of an earlier process were removed");
    }
    Ok(())
}

/// Use of UDP-Lite; `assumed`: the peer is known to support it.
fn udp_lite(options: &Options, assumed: bool) -> Option<rt::UdpLite> {
    options.udp_lite.then_some(rt::UdpLite {
        coverage: lite::coverage,
        coverage_min: lite::COVERAGE_MIN,
        offer: lite::offer,
        assumed,
    })
}

/// Informs the only peer that nothing more comes; `ids` are transfers that are still under way.
/// Returns once that is sent, or as much of it as fits the time that is sensible to wait: with a
/// transfer under way three round trips, with one-way light time `light`. A peer that has all of
/// the transfer forgets the sender by itself if the message is lost.
fn leave(driver: &mut Driver, ids: &[TransferId], light: Duration) -> Result<()> {
    let now = driver.now();
    let transport = driver.engine_mut();
    for id in ids {
        transport.cancel(now, id);
    }
    let leaves = transport.groups().is_some_and(|groups| groups.leave(now, PathId(0)));
    if ids.is_empty() && !leaves {
        return Ok(());
    }
    let until = now + LINGER.max(if ids.is_empty() { Duration::ZERO } else { 6 * light });
    let mut is_over = false;
    driver.run(&AtomicBool::new(false), |now, transport, event| {
        is_over |= matches!(event, rt::Event::Indication(Event::Left))
            || !leaves && transport.transfers().is_empty();
        if is_over || now >= until { rt::Control::Stop } else { rt::Control::Continue }
    })?;
    Ok(())
}
