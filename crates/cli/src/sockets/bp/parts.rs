//! Sends files that are too long for one bundle, in parts. The same command resumes an interrupted
//! transfer.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, anyhow, bail};
use bp::agent::Version;
use bp::codec::bp7::{BundleFlags, Eid};
use bp::files::{self, Failure, FileId, Files, Indication};
use bp::routes::Priority;
use engine::{EffectError, FileName, Time};
use indicatif::ProgressBar;
use service::api::model::{self, report_flags};
use service::api::{ApplicationDriver, DriverConfig, DriverError, NodeClient};

use super::options::SendArgs;
use crate::sockets::screen::Screen;
use crate::sockets::send::source;
use crate::sockets::session::{BUNDLES, Journal, PACK, State, label, print_skipped};

/// Time between two updates of the bar.
const TICK: Duration = Duration::from_millis(100);

/// Sends a file in parts; returns their number.
pub(super) fn send(
    args: &SendArgs,
    client: &mut NodeClient,
    path: &Path,
    screen: &Screen,
) -> Result<u64> {
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| anyhow!("the file's name is not UTF-8; give it another"))?;
    let waker = rt::Waker::new().context("cannot start")?;
    let (root, source) = source(path)?;
    let state =
        State::of_file(args.state.as_deref(), &root.join(&source), &to(args), request(args))?;
    let (store, place) = state.open_store(&waker)?;
    let bytes = path.metadata()?.len();
    let item = Item { source: FileName::file(&source)?, name: name.to_owned(), bytes };
    let bar = screen.bar(name, Some(bytes));
    let sending = Sending::new(args, vec![item], bar, |_| Ok(()))?;
    match sending.run(args, client, store, waker) {
        Ok(bundles) => {
            place.forget();
            Ok(bundles)
        }
        Err(error) => {
            if error.downcast_ref() == Some(&Failure::Store(EffectError::Changed)) {
                place.forget();
                bail!("{}", bp::app::CHANGED);
            }
            Err(error)
        }
    }
}

/// Sends a folder as packs, each of which is a file in parts; returns the number of bundles. What
/// an earlier run of the command sent, and has not changed since, is left out.
pub(super) fn send_folder(
    args: &SendArgs,
    client: &mut NodeClient,
    path: &Path,
    screen: &Screen,
) -> Result<u64> {
    let paths = [path.to_owned()];
    let scan = tree::scan(&paths, &tree::ScanOptions::default())?;
    print_skipped(&scan, screen);
    let waker = rt::Waker::new().context("cannot start")?;
    let packs = Arc::default();
    let state = State::of_paths(args.state.as_deref(), &paths, &to(args), &request(args))?;
    let (store, place) = state.open_packs(&packs, &waker)?;
    let folder = place.folder().context("a folder keeps its state")?;
    let set = rt::entropy()?.next_u64();
    let mut journal = Journal::open(folder, scan.entries, PACK.max(args.part.bytes()), set)?;
    let mut items = Vec::new();
    for number in journal.waiting() {
        let Some(plan) = journal.plan(*number) else { continue };
        let name = tree::pack_name(&label(&paths), journal.batch_number(), *number);
        let (source, pack) = (FileName::file(&name)?, tree::Pack::new(plan.clone()));
        items.push(Item { source: source.clone(), name, bytes: pack.len() });
        packs.add(source, pack);
    }
    let numbers = journal.waiting().to_vec();
    let total = items.iter().map(|item| item.bytes).sum();
    let bar = screen.bar(&label(&paths), Some(total));
    let sending = Sending::new(args, items, bar, |index| journal.deliver(numbers[index]))?;
    let bundles = sending.run(args, client, store, waker)?;
    place.forget();
    Ok(bundles)
}

/// Settings of the application, as the options give them.
fn config(args: &SendArgs, node: &Eid) -> Result<files::Config> {
    let mut flags = match &args.reports {
        Some(names) => report_flags(names).map_err(crate::Usage)?,
        None => BundleFlags::default(),
    };
    if args.must_not_fragment {
        flags = flags.with(BundleFlags::MUST_NOT_FRAGMENT);
    }
    Ok(files::Config {
        endpoint: args.from.as_deref().map(|text| node.endpoint(text)).transpose()?,
        receives: false,
        part: Some(args.part.bytes()),
        lifetime: args.lifetime.duration(),
        reports: false,
        version: if args.bundle_version == 6 { Version::Six } else { Version::Seven },
        custody: args.custody,
        flags,
        priority: match args.priority.as_str() {
            "bulk" => Priority::Bulk,
            "expedited" => Priority::Expedited,
            _ => Priority::Normal,
        },
        report_to: args.report_to.as_deref().map(str::parse).transpose()?,
        hop_limit: args.hop_limit,
        clock_ms: Some(rt::node::dtn_ms(SystemTime::now())),
        ..files::Config::default()
    })
}

/// Remedy for most failures.
const RESUMES: &str = "the same command resumes the transfer";

/// Terms on which a transfer is resumed.
fn request(args: &SendArgs) -> String {
    format!("{BUNDLES} {:?} {} {}", args.from, args.part, args.lifetime)
}

/// Destination, and the node that sends.
fn to(args: &SendArgs) -> String {
    format!("{} at {}", args.to, args.place.socket().display())
}

/// A file to send.
struct Item {
    source: FileName,
    /// Name at the receiver.
    name: String,
    bytes: u64,
}

/// Files that are sent one after the other.
struct Sending<F> {
    items: Vec<Item>,
    /// Number of files that were sent.
    sent: usize,
    /// Called with the index of a file that was sent.
    on_sent: F,
    to: Eid,
    bar: ProgressBar,
    /// The file that is being sent.
    id: Option<FileId>,
    /// Bytes of the files that were sent.
    bytes: u64,
    bundles: u64,
    result: Option<Result<()>>,
}

impl<F: FnMut(usize) -> Result<()>> Sending<F> {
    fn new(args: &SendArgs, items: Vec<Item>, bar: ProgressBar, on_sent: F) -> Result<Self> {
        let to = args.to.parse()?;
        let result = items.is_empty().then_some(Ok(()));
        Ok(Self { items, sent: 0, on_sent, to, bar, id: None, bytes: 0, bundles: 0, result })
    }

    /// Sends all files; returns the number of bundles.
    fn run(
        mut self,
        args: &SendArgs,
        client: &mut NodeClient,
        store: rt::FileStore,
        waker: rt::Waker,
    ) -> Result<u64> {
        let node: model::Node = client.get("/node", &[])?;
        let files = Files::new(config(args, &node.id.parse()?)?, rt::entropy()?);
        let socket = args.place.socket();
        let driver = DriverConfig { socket, share: None, persists: false, tick: TICK };
        let mut driver = ApplicationDriver::start(files, driver, store, waker)?;
        let ran = driver.run(&AtomicBool::new(false), &mut |now, files, event| {
            self.on(now, files, event);
            if self.result.is_some() { rt::Control::Stop } else { rt::Control::Continue }
        });
        self.bar.finish_and_clear();
        match ran {
            Ok(()) => {}
            Err(DriverError::Gone(why)) => return Err(anyhow!("{why}").context(RESUMES)),
            Err(error) => return Err(error.into()),
        }
        self.result.context("the transfer ended without a result")??;
        Ok(self.bundles)
    }

    fn on(&mut self, now: Time, files: &mut Files, event: rt::Event<Indication>) {
        match event {
            // A file of an earlier run may have changed, and is not sent by this one.
            rt::Event::Indication(Indication::Sent { name, result, bundles, .. })
                if self.items.get(self.sent).is_some_and(|item| item.name == name) =>
            {
                if let Err(error) = self.on_end(result, bundles) {
                    self.result = Some(Err(error));
                }
            }
            rt::Event::Indication(Indication::Waiting { why, .. }) => {
                self.bar.set_message(format!("the node has no room, waiting: {why}"));
            }
            _ => {}
        }
        if self.id.is_none()
            && files.is_ready()
            && let Some(item) = self.items.get(self.sent)
        {
            match files.send(now, item.source.clone(), &item.name, &self.to) {
                Ok(id) => self.id = Some(id),
                Err(error) => self.result = Some(Err(error.into())),
            }
        }
        if let Some((bytes, _)) = self.id.and_then(|id| files.progress(id)) {
            let bytes = self.bytes + bytes;
            if bytes > self.bar.position() {
                self.bar.set_message("");
            }
            self.bar.set_position(bytes);
        }
    }

    fn on_end(&mut self, result: Result<(), Failure>, bundles: u64) -> Result<()> {
        match result {
            Ok(()) => {}
            Err(Failure::Refused(why)) => bail!(why),
            Err(failure @ Failure::Store(EffectError::Changed)) => return Err(anyhow!(failure)),
            Err(failure) => return Err(anyhow!(failure).context(RESUMES)),
        }
        (self.on_sent)(self.sent)?;
        self.bundles += bundles;
        self.bytes += self.items.get(self.sent).map_or(0, |item| item.bytes);
        self.sent += 1;
        self.id = None;
        if self.sent == self.items.len() {
            self.result = Some(Ok(()));
        }
        Ok(())
    }
}
