//! `slowlight node`: a bundle node that runs until it is stopped.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, anyhow};
use engine::FileName;
use rt::node::{Node, NodeError};
use rt::{FileStore, RecordsIn, StoreConfig, Waker};
use service::api::{Hub, NodeServer, Shared, model};
use service::node::{NodeSpec, PlanInForce, Reload, Store};
use transport::protocol::Kind;

use crate::exit::Exit;
use crate::sockets::session;
use crate::stop::{Flags, stop_and_reload_flags};

/// Options of `node`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Settings of the node (TOML)
    config: PathBuf,

    /// Check the settings and exit
    #[arg(long)]
    check: bool,

    /// Print errors only
    #[arg(long, short)]
    quiet: bool,
}

/// Bytes in flight to the disk at which the store counts as full: a few pieces of each incoming
/// bundle.
const UNDER_WAY: usize = 64 << 20;

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let spec = NodeSpec::read(&args.config)?;
    let seed = rt::entropy()?.next_u64();
    let started = SystemTime::now();
    let plan = PlanInForce::default();
    let config = spec.config(started, seed, &plan)?;
    if args.check {
        let printed = writeln!(io::stdout(), "{} is a node's configuration", args.config.display());
        return crate::exit_code(printed.map_err(Into::into), true);
    }
    let Flags { stop, reload: rereads } = stop_and_reload_flags()?;
    let waker = Waker::new()?;
    let mut store = open(&spec.store, &waker)?;
    session::sweep(&mut store, Kind::node_spools())?;
    // Before the node starts, so that a socket in use is reported at once.
    let server = NodeServer::bind(&spec.socket.path, spec.socket.access()?)?;
    let hub = Arc::new(Hub::new(spec.echo_endpoint()?));
    if args.quiet {
        hub.set_quiet();
    }
    let hears = Arc::clone(&hub);
    let node = Node::start(config, store, waker, move |now, agent, indication| {
        hears.hear(now, agent, indication);
    })
    .map_err(|error| not_started(&error))?;
    let begins = Arc::clone(&hub);
    node.handle().ask(move |_, agent| begins.begin(agent));
    let layers: Vec<model::Layer> = node
        .listening()
        .map(|(name, at)| model::Layer { name: name.to_owned(), listening: at.to_vec() })
        .collect();
    if !args.quiet {
        print_start(&spec, &layers);
    }
    let directory = spec.store.directory.as_ref();
    let spool = directory.map(|path| path.join(FileName::SPOOL_DIRECTORY).join("spool"));
    let (name, handle) = (spec.node()?, node.handle());
    let drain = spec.drain.duration();
    let listening = layers.iter().map(|layer| layer.listening.clone()).collect();
    let reload = Reload::new(args.config.clone(), spec, plan, handle.clone());
    reload.discover(listening)?;
    let reload = Arc::new(reload);
    let rereading = Arc::clone(&reload);
    let shared = Shared { node: name, handle, hub, spool, layers, reload };
    let ends = || {
        if rereads.swap(false, Ordering::Relaxed) {
            match rereading.read() {
                // Settings that need a restart are warned of.
                Ok(_) => {
                    tracing::info!(target: "node", "read the settings again, and applied them");
                }
                Err(error) => tracing::error!(%error, "the settings are not applied"),
            }
        }
        stop.load(Ordering::Relaxed) || node.has_failed()
    };
    server.run(shared, ends);
    let has_failed = node.has_failed();
    node.stop(if has_failed { Duration::ZERO } else { drain });
    Ok(Exit::if_succeeded(!has_failed).into())
}

fn open(store: &Store, waker: &Waker) -> Result<FileStore> {
    match (&store.directory, store.memory) {
        (Some(directory), _) => {
            std::fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
            let index = RecordsIn::Log;
            let config = StoreConfig { bytes_max: UNDER_WAY, index, ..StoreConfig::new(directory) };
            Ok(FileStore::open(config, waker)?)
        }
        (None, memory) => Ok(FileStore::in_memory(memory.map_or(0, |size| size.bytes()), waker)),
    }
}

fn not_started(error: &NodeError) -> anyhow::Error {
    let hint = match error {
        NodeError::Socket { error, .. } => match error.kind() {
            io::ErrorKind::AddrInUse => {
                "; another program has the port: choose another by `listen`"
            }
            io::ErrorKind::AddrNotAvailable => "; this machine does not have that address",
            io::ErrorKind::PermissionDenied => "; ports below 1024 need privileges",
            _ => "",
        },
        NodeError::Thread(_) => "",
    };
    anyhow!("{error}{hint}")
}

fn print_start(spec: &NodeSpec, layers: &[model::Layer]) {
    let mut text = format!(
        "node {} is ready; applications connect to {}
",
        spec.id,
        spec.socket.path.display()
    );
    for layer in layers {
        let at: Vec<String> = layer.listening.iter().map(ToString::to_string).collect();
        let at = if at.is_empty() { "no address".to_owned() } else { at.join(", ") };
        text += &format!("layer {}: listens on {at}\n", layer.name);
    }
    // Nothing can be done about a standard error that is closed.
    let _ = io::stderr().write_all(text.as_bytes());
}
