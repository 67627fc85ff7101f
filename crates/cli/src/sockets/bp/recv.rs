//! `slowlight bp recv`: receives payloads of an endpoint.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use bp::codec::bp7::Eid;
use bp::files::{self, Files, Indication, Joined};
use indicatif::ProgressBar;
use service::api::{ApplicationDriver, DriverConfig, DriverError, NodeClient, model};
use service::http::ClientError;
use tree::Existing;

use super::{Place, print};
use crate::exit::Exit;
use crate::sockets::outcome::unpacked_line;
use crate::sockets::screen::Screen;
use crate::sockets::session::hash;

/// Bundles set aside after a fault: the node delivers 1,024 at most that are not confirmed.
const ASIDE_MAX: u64 = 512;

/// Time between two updates of the bars.
const TICK: Duration = Duration::from_millis(100);

#[derive(Debug, clap::Args)]
pub(super) struct RecvArgs {
    /// Endpoint, e.g. ipn:2.1, or its service number or name
    endpoint: String,

    /// Folder for payloads, one file each; - writes them to standard output
    into: PathBuf,

    /// Exit after this many payloads; a file in parts counts once
    #[arg(long, short, value_name = "N")]
    count: Option<u64>,

    /// Permit other receivers at the endpoint; all of them need the same word
    #[arg(long, value_name = "HOW")]
    share: Option<Share>,

    /// Treatment of files of a folder that exist: skip, newer, replace, rename (the old one to
    /// NAME.~1~) or fail. Other files never replace any
    #[arg(long, value_name = "POLICY", default_value_t = Existing::Rename)]
    existing: Existing,

    /// Print errors only
    #[arg(long, short)]
    quiet: bool,

    #[command(flatten)]
    place: Place,
}

/// Use of an endpoint by several receivers: each bundle goes to one of them, or to all.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Share {
    Turns,
    Copies,
}

impl Share {
    /// Value of the node's parameter.
    const fn word(self) -> &'static str {
        match self {
            Self::Turns => "turns",
            Self::Copies => "copies",
        }
    }
}

pub(super) fn run(args: &RecvArgs) -> Result<ExitCode> {
    let to_output = args.into == Path::new("-");
    if !to_output && !args.into.is_dir() {
        return Err(crate::Usage(format!(
            "{} is not a folder; create it first, or write - for the standard output",
            args.into.display()
        ))
        .into());
    }
    let client = args.place.connect()?;
    if to_output { copy(args, client) } else { store(args, client) }
}

/// Writes payloads to the standard output, one after the other.
fn copy(args: &RecvArgs, mut client: NodeClient) -> Result<ExitCode> {
    // The first connection carries the stream of deliveries.
    let mut confirming = args.place.connect()?;
    let share = args.share.map(|share| ("share", share.word()));
    let query: Vec<_> = [("endpoint", args.endpoint.as_str())].into_iter().chain(share).collect();
    let mut coming = client.take(&query)?;
    let mut done = 0;
    while args.count.is_none_or(|count| done < count) {
        let delivery = client.next(&mut coming)?.ok_or_else(gone)?;
        let mut left = delivery.bytes;
        let mut output = io::stdout();
        while left > 0 {
            let piece = client.piece(&mut coming, left)?;
            left -= piece.len() as u64;
            output.write_all(&piece)?;
        }
        output.flush()?;
        done += 1;
        match confirming.confirm(&delivery) {
            Err(ClientError::Refused { status: 404, .. }) => {
                tracing::info!(id = delivery.id, "the bundle expired while it was received");
            }
            confirmed => confirmed?,
        }
    }
    Ok(Exit::Done.into())
}

fn gone() -> anyhow::Error {
    anyhow!("the node has ended; what was not confirmed comes again when it runs")
}

/// Stores payloads in a folder.
fn store(args: &RecvArgs, mut client: NodeClient) -> Result<ExitCode> {
    let node: model::Node = client.get("/node", &[])?;
    let endpoint = node.id.parse::<Eid>()?.endpoint(&args.endpoint)?;
    let waker = rt::Waker::new().context("cannot start")?;
    let mut config = rt::StoreConfig::new(&args.into);
    // Other receivers may use the same folder.
    let own = format!("bundles-{:016x}", hash(endpoint.to_string().as_bytes()));
    config.state = config.state.join(own);
    let (reports, unpacked) = crossbeam_channel::unbounded();
    config.unpack = Some(rt::Unpack { existing: args.existing, keeps_packs: false, reports });
    let mut store = rt::FileStore::open(config, &waker)?;
    for (prefix, record_prefix) in files::SPOOLS {
        store.sweep(prefix, record_prefix).context("cannot look through the working files")?;
    }
    let config =
        files::Config { endpoint: Some(endpoint), most: args.count, ..files::Config::default() };
    let files = Files::new(config, rt::entropy()?);
    let driver = DriverConfig {
        socket: args.place.socket(),
        share: args.share.map(Share::word),
        persists: false,
        tick: TICK,
    };
    let mut driver = ApplicationDriver::start(files, driver, store, waker)?;
    let mut receiving = Receiving::new(args);
    let ran = driver.run(&AtomicBool::new(false), &mut |_, files, event| {
        match event {
            rt::Event::Indication(indication) => receiving.on(indication),
            _ => receiving.show(files),
        }
        for report in unpacked.try_iter() {
            receiving.screen.print(unpacked_line(&report));
        }
        if receiving.is_over() { rt::Control::Stop } else { rt::Control::Continue }
    });
    match ran {
        Ok(()) => {}
        Err(DriverError::Gone(_)) => return Err(gone()),
        Err(error) => return Err(error.into()),
    }
    receiving.fault.map_or(Ok(()), Err)?;
    if receiving.aside >= ASIDE_MAX {
        bail!(
            "{} bundles are set aside; fix the cause, and run the command again",
            receiving.aside
        );
    }
    Ok(Exit::if_succeeded(receiving.aside == 0).into())
}

/// Progress of the command.
struct Receiving<'a> {
    args: &'a RecvArgs,
    screen: Screen,
    /// Bars of incomplete files, by transfer and source.
    bars: BTreeMap<(u64, String), ProgressBar>,
    done: u64,
    aside: u64,
    fault: Option<anyhow::Error>,
}

impl<'a> Receiving<'a> {
    fn new(args: &'a RecvArgs) -> Self {
        let screen = Screen::new(args.quiet);
        Self { args, screen, bars: BTreeMap::new(), done: 0, aside: 0, fault: None }
    }

    fn is_over(&self) -> bool {
        self.args.count.is_some_and(|count| self.done >= count)
            || self.aside >= ASIDE_MAX
            || self.fault.is_some()
    }

    fn on(&mut self, indication: Indication) {
        match indication {
            Indication::Received { from, place, bytes, .. } => {
                self.done += 1;
                if tree::is_pack(place.path()) {
                    // It was unpacked, which has a report of its own.
                    return;
                }
                let place = self.args.into.join(place.path());
                let text = format!("{} from {from}: {bytes} bytes", place.display());
                if !self.args.quiet
                    && let Err(error) = self.screen.above(|| print(&text))
                {
                    self.fault = Some(error);
                }
            }
            Indication::SetAside { bundle, error } => {
                self.aside += 1;
                tracing::warn!(
                    id = bundle,
                    "{error}; the bundle is set aside, and delivered again to the next `bp recv`"
                );
            }
            Indication::Damaged { part, .. } => {
                tracing::warn!(
                    part,
                    "what looks like a part of a file is damaged, or something else"
                );
            }
            Indication::Sent { .. } | Indication::Waiting { .. } => {}
        }
    }

    fn show(&mut self, files: &Files) {
        let arriving = files.arriving();
        let bytes_of = |file: &Joined| {
            let more = arriving
                .filter(|(other, _)| std::ptr::eq(*other, file))
                .map_or(0, |(_, bytes)| bytes);
            file.there.covered() + more
        };
        let mut before = std::mem::take(&mut self.bars);
        for file in files.joined() {
            let key = (file.transfer, file.source.clone());
            let bar = before.remove(&key);
            let bar = bar.unwrap_or_else(|| self.screen.bar(&file.name, Some(file.total)));
            bar.set_position(bytes_of(file));
            self.bars.insert(key, bar);
        }
        before.into_values().for_each(|bar| bar.finish_and_clear());
    }
}
