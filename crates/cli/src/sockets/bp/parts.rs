//! Sends files that are too long for one bundle, in parts. The same command resumes an interrupted
//! transfer.

use std::path::Path;
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
use crate::sockets::session::{BUNDLES, Place, State};

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
    let node: model::Node = client.get("/node", &[])?;
    let config = config(args, &node.id.parse()?)?;
    let waker = rt::Waker::new().context("cannot start")?;
    let (root, source) = source(path)?;
    let (store, place) = open(args, &root.join(&source), &waker)?;
    let files = Files::new(config, rt::entropy()?);
    let socket = args.place.socket();
    let driver = DriverConfig { socket, share: None, persists: false, tick: TICK };
    let mut driver = ApplicationDriver::start(files, driver, store, waker)?;
    let mut sending = Sending {
        source: FileName::file(&source)?,
        name,
        to: args.to.parse()?,
        bar: screen.bar(name, Some(path.metadata()?.len())),
        id: None,
        result: None,
    };
    let ran = driver.run(&AtomicBool::new(false), &mut |now, files, event| {
        sending.on(now, files, event);
        if sending.result.is_some() { rt::Control::Stop } else { rt::Control::Continue }
    });
    sending.bar.finish_and_clear();
    match ran {
        Ok(()) => {}
        Err(DriverError::Gone(why)) => return Err(anyhow!("{why}").context(RESUMES)),
        Err(error) => return Err(error.into()),
    }
    drop(driver);
    match sending.result {
        Some(Ok(bundles)) => {
            place.forget();
            Ok(bundles)
        }
        Some(Err(Failure::Store(EffectError::Changed))) => {
            place.forget();
            bail!("{}", bp::app::CHANGED)
        }
        Some(Err(Failure::Refused(why))) => bail!(why),
        Some(Err(failure)) => Err(anyhow!(failure).context(RESUMES)),
        None => bail!("the transfer ended without a result"),
    }
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

/// Store that reads the file, with the state from which the same command resumes.
fn open(args: &SendArgs, path: &Path, waker: &rt::Waker) -> Result<(rt::FileStore, Place)> {
    let request = format!("{BUNDLES} {:?} {} {}", args.from, args.part, args.lifetime);
    let to = format!("{} at {}", args.to, args.place.socket().display());
    State::of_file(args.state.as_deref(), path, &to, request)?.open_store(waker)
}

/// The file that is being sent.
struct Sending<'a> {
    source: FileName,
    name: &'a str,
    to: Eid,
    bar: ProgressBar,
    id: Option<FileId>,
    /// Number of bundles.
    result: Option<Result<u64, Failure>>,
}

impl Sending<'_> {
    fn on(&mut self, now: Time, files: &mut Files, event: rt::Event<Indication>) {
        match event {
            rt::Event::Indication(Indication::Sent { result, bundles, .. }) => {
                self.result = Some(result.map(|()| bundles));
            }
            rt::Event::Indication(Indication::Waiting { why, .. }) => {
                self.bar.set_message(format!("the node has no room, waiting: {why}"));
            }
            _ => {}
        }
        if self.id.is_none() && files.is_ready() {
            match files.send(now, self.source.clone(), self.name, &self.to) {
                Ok(id) => self.id = Some(id),
                Err(error) => self.result = Some(Err(Failure::Refused(error.to_string()))),
            }
        }
        if let Some((bytes, _)) = self.id.and_then(|id| files.progress(id)) {
            if bytes > self.bar.position() {
                self.bar.set_message("");
            }
            self.bar.set_position(bytes);
        }
    }
}
