//! `slowlight emu compare`: other programs and slowlight's own protocols over the same links, in
//! real time.

mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use bytes::Bytes;
use emu::{Bounds, Isolation, World};
use lab::adapter::{Adapter, Adapters, Verdict};
use lab::preset::Preset;
use lab::{compare, content};
use serde::{Deserialize, Serialize};
use testbed::emulation::transfers;
use testbed::scratch::Scratch;
use testbed::tool::{Job, Outcome};
use testbed::{emulation, tool};
use transport::protocol::Protocol;
use transport::quantity::{Probability, Size, Span};
use transport::settings::tcp::TcpBuffers;

use super::{ended, limit_tcp_buffers};
use crate::compute::link_options::LinkOptions;
use crate::compute::table::Page;
use crate::compute::{conditions, show};
use crate::exit::Exit;
use crate::{Usage, switch};

/// Programs that are compared unless others are named.
const TOOLS: [&str; 6] = ["scp", "sftp", "rsync", "rsync-daemon", "ftp", "http-wget"];
/// The sum of the rates of worlds that run at the same time, in bit/s, and their number.
const BUSY: u64 = 200_000_000;
const JOBS_MAX: usize = 8;
/// The file of results in the folder of them, and what they are results of.
const RESULTS: &str = "results.jsonl";
const PLAN: &str = "plan.json";

/// Options of `emu compare`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Programs of `slowlight emu tools`, separated by commas [default: those for files, unless
    /// --protocol is given]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    tool: Vec<String>,

    /// Protocols of slowlight, separated by commas, as in `slowlight compare`
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = crate::known::emulated_protocol(), hide_possible_values = true)]
    protocol: Vec<Protocol>,

    /// Folder with your own adapters, NAME.toml
    #[arg(long, value_name = "DIR")]
    adapters: Option<PathBuf>,

    /// File to transfer
    #[arg(long, value_name = "PATH", conflicts_with = "size")]
    file: Option<PathBuf>,

    /// Size of a generated file, e.g. "10 MB"
    #[arg(long, value_name = "SIZE", default_value = "10 MB", allow_hyphen_values = true)]
    size: Size,

    /// One-way delays to compare at, separated by commas [default: the link's]
    #[arg(long, value_name = "LIST", value_delimiter = ',', conflicts_with = "delay")]
    delays: Vec<Span>,

    /// Packet error rates to compare at, separated by commas [default: the link's]
    #[arg(long, value_name = "LIST", value_delimiter = ',', conflicts_with = "per")]
    pers: Vec<Probability>,

    /// Runs of each, each with its own seed
    #[arg(long, value_name = "N", default_value = "1", allow_hyphen_values = true, value_parser = crate::whole::within(1_u32..=1_000))]
    runs: u32,

    /// First seed
    #[arg(long, default_value = "1", allow_hyphen_values = true, value_parser = crate::compute::seed)]
    seed: u64,

    /// Timeout of each transfer
    #[arg(long, value_name = "DURATION", default_value = "10 min", allow_hyphen_values = true)]
    timeout: Span,

    /// Number of worlds in parallel [default: by their rates, 8 at most]
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = crate::whole::within(1_u16..=64))]
    jobs: Option<u16>,

    /// Limit of TCP's autotuned buffers on the hosts
    #[arg(long, value_name = "SIZE", default_value = "unlimited", value_parser = switch::buffers())]
    tcp_buffers: TcpBuffers,

    /// Folder for results; runs that succeeded earlier are not repeated
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// Print the results as JSON
    #[arg(long)]
    json: bool,

    // Flattened groups come last: their headings hold for every option after them.
    #[command(flatten)]
    link: LinkOptions,
}

/// Changes to the link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Condition {
    /// One-way delay.
    delay: Option<Span>,
    /// Probability of losing a packet.
    per: Option<Probability>,
}

/// One transfer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Case {
    /// The tool or protocol.
    what: String,
    #[serde(flatten)]
    condition: Condition,
    seed: u64,
}

/// Case with its result.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Done {
    #[serde(flatten)]
    case: Case,
    #[serde(flatten)]
    outcome: Outcome,
    /// Why the emulator did not keep time, if it did not.
    doubts: Vec<String>,
}

/// Conditions that all results of a folder share.
#[derive(Debug, PartialEq, Serialize)]
struct Common<'a> {
    link: &'a Preset,
    bytes: u64,
    sha256: String,
    /// Growth limit of TCP's buffers, unless it is the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    tcp_buffers: Option<&'static str>,
}

/// Compared program or protocol.
enum Contender {
    Tool(Adapter),
    Protocol(Protocol),
}

/// Cases to run, with their programs.
struct Plan<'a> {
    args: &'a Args,
    contenders: BTreeMap<String, Contender>,
    /// In the order of the command line.
    order: Vec<String>,
    link: Preset,
    file: PathBuf,
    content: Bytes,
    sha256: [u8; 32],
}

/// Runs the command.
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (order, contenders) = args.contenders()?;
    let link = args.link.preset()?;
    match emu::isolate()? {
        Isolation::Over(code) => return Ok(ended(code)),
        Isolation::Inside => {}
    }
    let cancelled = crate::stop::stop_flag()?;
    let folder = Scratch::new().context("making a folder for the file")?;
    let (file, content) = args.content(folder.path())?;
    let sha256 = tool::sha256(&file)?;
    let plan = Plan { args, contenders, order, link, file, content, sha256 };
    let name_hosts = emulation::plan(&emulation::between_two(&plan.link, args.seed)?)?.hosts;
    emu::name_hosts(&name_hosts, &[]).context("naming the hosts in /etc/hosts")?;
    let mut kept = Kept::open(&plan)?;
    plan.run(&mut kept, &cancelled)?;
    if cancelled.load(Ordering::Relaxed) {
        let go_on = args.out.as_ref().map_or("", |_| "; the same command resumes");
        writeln!(io::stderr(), "stopped by a signal{go_on}")?;
        return Ok(Exit::Interrupted.into());
    }
    let succeeded = kept.done.iter().all(|done| done.outcome.why.is_none());
    crate::exit_code(print_results(&plan, &kept.done), succeeded)
}

impl Args {
    /// The names in their order, and what they stand for.
    fn contenders(&self) -> anyhow::Result<(Vec<String>, BTreeMap<String, Contender>)> {
        let adapters = Adapters::with(self.adapters.as_deref())?;
        let usual = TOOLS.map(str::to_owned);
        let tools = match self.tool.as_slice() {
            [] if self.protocol.is_empty() => usual.as_slice(),
            some => some,
        };
        let mut order = Vec::new();
        let mut contenders = BTreeMap::new();
        for name in tools {
            let adapter = adapters.find(name)?;
            tool::check(&adapter)?;
            order.push(name.clone());
            contenders.insert(name.clone(), Contender::Tool(adapter));
        }
        for protocol in &self.protocol {
            let name = protocol.to_string();
            if !protocol.kind.has_sockets() {
                let kind = protocol.kind.name();
                let instead = match adapters.find(kind) {
                    Ok(_) => format!("; here, use --tool {kind}"),
                    Err(_) => String::new(),
                };
                let message =
                    format!("{name} runs in the simulator only: slowlight compare{instead}");
                return Err(Usage(message).into());
            }
            if let Some(Contender::Tool(_)) = contenders.get(&name) {
                let message = format!("{name}: an adapter has the name of a protocol; rename it");
                return Err(Usage(message).into());
            }
            order.push(name.clone());
            contenders.insert(name, Contender::Protocol(protocol.clone()));
        }
        let mut listed = BTreeSet::new();
        order.retain(|name| listed.insert(name.clone()));
        Ok((order, contenders))
    }

    /// The file, and what is in it; it is made below `folder` if it is to be made up.
    fn content(&self, folder: &Path) -> anyhow::Result<(PathBuf, Bytes)> {
        if let Some(path) = &self.file {
            let content = fs::read(path).with_context(|| path.display().to_string())?;
            return Ok((path.clone(), content.into()));
        }
        let content = content::made_up(self.seed, 0, self.size.bytes())?;
        let path = folder.join("file");
        fs::write(&path, &content).with_context(|| path.display().to_string())?;
        Ok((path, content))
    }

    /// Every delay with every error.
    fn conditions(&self) -> Vec<Condition> {
        let (delays, pers) = (listed(&self.delays), listed(&self.pers));
        let of_delay = |delay| pers.iter().map(move |per| Condition { delay, per: *per });
        delays.into_iter().flat_map(of_delay).collect()
    }
}

impl Plan<'_> {
    /// All that is to be done, in the order of the table.
    fn cases(&self) -> Vec<Case> {
        let conditions = self.args.conditions();
        let mut cases = Vec::new();
        for seed in (self.args.seed..).take(self.args.runs as usize) {
            for condition in &conditions {
                let case = |what: &String| Case { what: what.clone(), condition: *condition, seed };
                cases.extend(self.order.iter().map(case));
            }
        }
        cases
    }

    /// Does what is not done yet, several at the same time.
    fn run(&self, kept: &mut Kept, cancelled: &AtomicBool) -> anyhow::Result<()> {
        let mut cases = self.cases();
        kept.done.retain(|done| done.outcome.why.is_none() && cases.contains(&done.case));
        cases.retain(|case| kept.done.iter().all(|done| done.case != *case));
        let bar = show::progress(cases.len() as u64, "transfers");
        if !bar.is_hidden() {
            bar.enable_steady_tick(Duration::from_secs(1));
        }
        let next = AtomicUsize::new(0);
        let (sender, results) = mpsc::channel();
        let work = &|sender: mpsc::Sender<_>| {
            while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                if cancelled.load(Ordering::Relaxed)
                    || sender.send(self.run_case(case, cancelled)).is_err()
                {
                    return;
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..self.jobs().min(cases.len()) {
                let sender = sender.clone();
                scope.spawn(move || work(sender));
            }
            drop(sender);
            for result in results {
                // What was stopped in the middle is no result.
                let done = result.inspect_err(|_| cancelled.store(true, Ordering::Relaxed))?;
                if cancelled.load(Ordering::Relaxed) {
                    continue;
                }
                kept.add(done)?;
                bar.inc(1);
            }
            bar.finish_and_clear();
            Ok(())
        })
    }

    /// Conditions of the comparison, one a line.
    fn conditions(&self) -> Vec<String> {
        let Args { link, runs, seed, delays, pers, .. } = self.args;
        let runs = if *runs == 1 { "1 run".to_owned() } else { format!("{runs} runs") };
        let (size, link) = (Size(self.content.len() as u64), link.name());
        let mut lines =
            vec![format!("{size} over {link}, {runs} each from seed {seed}, in real time")];
        lines.extend(conditions::of_link(&self.link));
        if delays.len() + pers.len() > 0 {
            lines.push(
                "  median goodput in Mbit/s, for each delay and packet error probability"
                    .to_owned(),
            );
        }
        lines
    }

    fn jobs(&self) -> usize {
        let rate = self.rate();
        let jobs = rate.map_or(1, |rate| usize::try_from(BUSY / rate.max(1)).unwrap_or(JOBS_MAX));
        self.args.jobs.map_or(jobs.clamp(1, JOBS_MAX), usize::from)
    }

    /// The rate of the slowest hop, if one has a rate.
    fn rate(&self) -> Option<u64> {
        let rates = self.link.hops.iter().filter_map(|hop| hop.rate);
        rates.map(|rate| rate.0).filter(|rate| *rate > 0).min()
    }

    /// The link of a case.
    fn link(&self, case: &Case) -> Preset {
        let Condition { delay, per } = case.condition;
        let mut link = self.link.clone();
        for hop in &mut link.hops {
            hop.delay = delay.or(hop.delay);
            hop.errors.per = per.or(hop.errors.per);
            if let Some(back) = &mut hop.back {
                back.delay = delay.or(back.delay);
                back.errors.per = per.or(back.errors.per);
            }
        }
        link
    }

    /// One transfer in a world of its own.
    fn run_case(&self, case: &Case, cancelled: &AtomicBool) -> anyhow::Result<Done> {
        let link = self.link(case);
        let contender = self.contenders.get(&case.what);
        let (outcome, report) = match contender
            .ok_or_else(|| anyhow!("{} is neither a tool nor a protocol", case.what))?
        {
            Contender::Tool(adapter) => self.by_tool(adapter, &link, case.seed, cancelled)?,
            Contender::Protocol(protocol) => {
                self.by_protocol(protocol, &link, case.seed, cancelled)?
            }
        };
        let doubts = report.doubts(&Bounds::default()).iter().map(ToString::to_string).collect();
        Ok(Done { case: case.clone(), outcome, doubts })
    }

    fn by_tool(
        &self,
        adapter: &Adapter,
        link: &Preset,
        seed: u64,
        cancelled: &AtomicBool,
    ) -> anyhow::Result<(Outcome, emu::Report)> {
        let scenario = emulation::between_two(link, seed)?;
        let world = World::start(&emulation::plan(&scenario)?)?;
        limit_tcp_buffers(&world, &scenario, Some(self.args.tcp_buffers))?;
        let host = |name: &str| world.host(name).ok_or_else(|| anyhow!("there is no host {name}"));
        let outcome = Job {
            adapter,
            file: &self.file,
            bytes: self.content.len() as u64,
            sha256: self.sha256,
            from: host(emulation::ENDS.0)?,
            to: host(emulation::ENDS.1)?,
            port: adapter.port,
            port2: adapter.port2,
            rate: self.rate(),
            limit: self.args.timeout.duration(),
        }
        .run(cancelled)
        .with_context(|| adapter.name.clone())?;
        Ok((outcome, world.stop()?))
    }

    fn by_protocol(
        &self,
        protocol: &Protocol,
        link: &Preset,
        seed: u64,
        cancelled: &AtomicBool,
    ) -> anyhow::Result<(Outcome, emu::Report)> {
        let plan = compare::Plan {
            seed,
            ..compare::Plan::new(link.clone(), vec![protocol.clone()], self.content.clone())
        };
        let mut scenario = plan.scenario(protocol, seed)?;
        scenario.limits.time = Some(self.args.timeout);
        let world = World::start(&emulation::plan(&scenario)?)?;
        let contents = std::slice::from_ref(&self.content);
        let ran = transfers::run(&world, &scenario, contents, cancelled, |_| {})?;
        let transfer = ran.transfers.first();
        let transfer = transfer.ok_or_else(|| anyhow!("{protocol}: no transfer"))?;
        let outcome = if transfer.completed && transfer.verified {
            let (seconds, goodput_bps) = (transfer.delivered_s, transfer.goodput_bps);
            Outcome { verdict: Verdict::Identical, seconds, goodput_bps, why: None }
        } else {
            let verdict = if transfer.wrong_success { Verdict::Different } else { Verdict::Failed };
            let why = transfer.failure.clone().unwrap_or(ran.ended);
            Outcome { verdict, seconds: None, goodput_bps: None, why: Some(why) }
        };
        Ok((outcome, world.stop()?))
    }
}

/// Results, in a folder if one is named.
struct Kept {
    done: Vec<Done>,
    file: Option<File>,
}

impl Kept {
    /// Results of an earlier run in the folder.
    fn open(plan: &Plan<'_>) -> anyhow::Result<Self> {
        let Some(folder) = &plan.args.out else { return Ok(Self { done: Vec::new(), file: None }) };
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        let sha256 = plan.sha256.iter().map(|byte| format!("{byte:02x}")).collect();
        let bytes = plan.content.len() as u64;
        let tcp_buffers =
            Some(plan.args.tcp_buffers).filter(|buffers| *buffers != TcpBuffers::default());
        let tcp_buffers = tcp_buffers.map(TcpBuffers::name);
        let common = Common { link: &plan.link, bytes, sha256, tcp_buffers };
        let common = serde_json::to_string_pretty(&common)?;
        let path = folder.join(PLAN);
        match fs::read_to_string(&path) {
            Ok(before) if before == common => {}
            Ok(_) => {
                let message = format!(
                    "--out {}: has results of another link or file; choose another folder",
                    folder.display()
                );
                return Err(Usage(message).into());
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::write(&path, common).with_context(|| path.display().to_string())?;
            }
            Err(error) => return Err(error).context(path.display().to_string()),
        }
        let path = folder.join(RESULTS);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error).context(path.display().to_string()),
        };
        // A line that a kill cut off is done again.
        let done = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let mut file = File::options().create(true).append(true).open(&path)?;
        if !text.is_empty() && !text.ends_with('\n') {
            writeln!(file)?;
        }
        Ok(Self { done, file: Some(file) })
    }

    fn add(&mut self, done: Done) -> anyhow::Result<()> {
        if let Some(file) = &mut self.file {
            let mut line = serde_json::to_string(&done)?;
            line.push('\n');
            file.write_all(line.as_bytes()).context(RESULTS)?;
        }
        self.done.push(done);
        Ok(())
    }
}

/// Each in turn, or none.
fn listed<T: Copy>(list: &[T]) -> Vec<Option<T>> {
    if list.is_empty() { vec![None] } else { list.iter().copied().map(Some).collect() }
}

fn print_results(plan: &Plan<'_>, done: &[Done]) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    let notes = table::notes(done);
    if plan.args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(done)?)?;
        let mut err = io::stderr().lock();
        return Ok(notes.iter().try_for_each(|note| writeln!(err, "{note}"))?);
    }
    let page = Page::stdout();
    for line in plan.conditions() {
        writeln!(out, "{}", page.wrapped(&line))?;
    }
    let table = table::table(&plan.order, &plan.args.conditions(), done, plan.rate());
    writeln!(out, "\n{}", table.drawn(page))?;
    for note in notes {
        writeln!(out, "{}", page.wrapped(&note))?;
    }
    Ok(())
}
