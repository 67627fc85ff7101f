//! Emulated worlds, and studies, whose results are tables in Parquet.

mod baseline;
mod compare;
mod control;
mod demands;
mod outside;
mod servers;
mod study;
mod tools;
mod transfer;
mod transfers;
mod user;
mod which;

use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::{self, ExitCode};

use anyhow::{Context as _, anyhow};
use emu::{CaptureLimits, Requests, User, World};
use lab::run::RunError;
use lab::scenario::Scenario;
use testbed::emulation::{self, TransfersError};
use testbed::study::StudyError;
use transport::quantity::Size;
use transport::settings::tcp::TcpBuffers;

use crate::compute::link_options::LinkOptions;
use crate::compute::simulate;
use crate::exit::Exit;
use crate::{EPOCH, Usage, switch};

use self::demands::Demands;
use self::outside::{Entered, Outside};
use self::servers::{Servers, Started};
use self::user::AsUser;

/// Environment variable with the address of the peer's host.
const PEER: &str = "SLOWLIGHT_PEER";
/// Exit code of a program that signal 0 would end, as shells report it.
const SIGNALLED: i32 = 128;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Run a parameter study and report its results
    Study(study::Args),
    /// Run a program over an emulated link
    Link(Box<LinkArgs>),
    /// Emulate networks of links in real time
    Emu(Args),
}

/// Options of `emu`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Emulate a scenario and run its transfers, or a program on one host
    Run(RunArgs),
    /// Open a shell at one end of an emulated link
    Shell(Box<ShellArgs>),
    /// Measure the packet rate and exactness that this machine sustains
    Baseline(baseline::Args),
    /// List third-party programs for comparisons, and those missing on this machine
    Tools(tools::Args),
    /// Compare third-party programs and slowlight's protocols in real time
    Compare(Box<compare::Args>),
    #[command(flatten)]
    Control(control::Action),
}

/// Options of captures.
#[derive(Clone, Debug, clap::Args)]
struct Recording {
    /// Folder for captures, one pcapng per host
    #[arg(long, value_name = "DIR")]
    pcap: Option<PathBuf>,

    /// Size at which a capture continues in a new file
    #[arg(long, value_name = "SIZE", default_value = "256 MiB", requires = "pcap")]
    pcap_size: Size,

    /// Number of capture files to keep per host, newest first
    #[arg(long, value_name = "N", default_value = "8", requires = "pcap", value_parser = crate::whole::within(1_u16..=u16::MAX))]
    pcap_files: u16,
}

/// Options of worlds that run programs.
#[derive(Clone, Debug, clap::Args)]
struct WorldOptions {
    #[command(flatten)]
    recording: Recording,

    #[command(flatten)]
    demands: Demands,

    #[command(flatten)]
    outside: Outside,

    #[command(flatten)]
    user: AsUser,
}

#[derive(Debug, clap::Args)]
struct RunArgs {
    /// Scenario
    #[arg(value_name = "SCENARIO.toml")]
    scenario: PathBuf,

    /// Seed [default: the scenario's]
    #[arg(long, allow_hyphen_values = true, value_parser = crate::compute::seed)]
    seed: Option<u64>,

    /// Host of the program [default: sender of the first transfer, or of the first link]
    #[arg(long, value_name = "HOST", requires = "program")]
    on: Option<String>,

    #[command(flatten)]
    options: WorldOptions,

    /// Limit of TCP's autotuned buffers on the hosts [default: the scenario's, or unlimited]
    #[arg(long, value_name = "SIZE", value_parser = switch::buffers())]
    tcp_buffers: Option<TcpBuffers>,

    /// Folder for the scenario, a manifest and the metrics of its transfers
    #[arg(long, value_name = "DIR", conflicts_with = "program")]
    out: Option<PathBuf>,

    /// Print the metrics of the transfers as JSON
    #[arg(long, conflicts_with = "program")]
    json: bool,

    /// Program and arguments [default: run the scenario's transfers]
    #[arg(last = true, value_name = "CMD")]
    program: Vec<OsString>,
}

#[derive(Debug, clap::Args)]
struct ShellArgs {
    /// Seed of the link's random errors
    #[arg(long, default_value = "1", allow_hyphen_values = true, value_parser = crate::compute::seed)]
    seed: u64,

    /// Limit of TCP's autotuned buffers on the hosts
    #[arg(long, value_name = "SIZE", default_value = "unlimited", value_parser = switch::buffers())]
    tcp_buffers: TcpBuffers,

    #[command(flatten)]
    options: WorldOptions,

    #[command(flatten)]
    link: LinkOptions,
}

/// Options of `link`.
#[derive(Debug, clap::Args)]
pub(crate) struct LinkArgs {
    /// Seed of the link's random errors
    #[arg(long, default_value = "1", allow_hyphen_values = true, value_parser = crate::compute::seed)]
    seed: u64,

    /// Shell command to run at the far end; repeatable
    ///
    /// The program starts once the server listens.
    #[arg(long, value_name = "CMD")]
    server: Vec<OsString>,

    /// TCP or UDP port of the server to wait for, up to 1 min [default: any port, up to 3 s]
    #[arg(long, value_name = "PORT", requires = "server", value_parser = crate::whole::within(1_u16..=u16::MAX))]
    wait_for: Option<u16>,

    /// Limit of TCP's autotuned buffers on the hosts
    #[arg(long, value_name = "SIZE", default_value = "unlimited", value_parser = switch::buffers())]
    tcp_buffers: TcpBuffers,

    #[command(flatten)]
    options: WorldOptions,

    /// Program and arguments; the peer's host is `far`, its address is in $SLOWLIGHT_PEER
    #[arg(last = true, required = true, value_name = "CMD")]
    program: Vec<OsString>,

    #[command(flatten)]
    link: LinkOptions,
}

/// Programs to run in a world.
struct Work {
    scenario: Scenario,
    host: String,
    peer: Option<String>,
    servers: Vec<OsString>,
    /// Port of the servers to wait for.
    wait_for: Option<u16>,
    program: Vec<OsString>,
    /// Limit of TCP's autotuned buffers, in place of the scenario's.
    tcp_buffers: Option<TcpBuffers>,
    options: WorldOptions,
}

/// Runs the command.
pub(crate) fn run(command: &Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Study(args) => study::run(args),
        Command::Link(args) => link(args),
        Command::Emu(args) => emu(args),
    }
}

/// Whether an error of studies or emulated worlds is wrong usage.
pub(crate) fn is_usage(error: &(dyn Error + 'static)) -> bool {
    matches!(error.downcast_ref(), Some(StudyError::Run(RunError::Spec(_))))
        || matches!(error.downcast_ref(), Some(TransfersError::Spec(_)))
}

/// Runs `emu`.
fn emu(args: &Args) -> anyhow::Result<ExitCode> {
    control::remove_dead();
    match &args.command {
        Action::Run(args) if args.program.is_empty() => transfers::run(args),
        Action::Run(args) => args.work()?.run(),
        Action::Shell(args) => args.work()?.run(),
        Action::Control(action) => control::run(action),
        Action::Baseline(args) => baseline::run(args),
        Action::Tools(args) => tools::run(args),
        Action::Compare(args) => compare::run(args),
    }
}

/// Runs `link`.
fn link(args: &LinkArgs) -> anyhow::Result<ExitCode> {
    control::remove_dead();
    let LinkArgs { link, seed, tcp_buffers, options, program, .. } = args;
    let work = Work::between_two(link, *seed, *tcp_buffers, options, program.clone())?;
    Work { servers: args.server.clone(), wait_for: args.wait_for, ..work }.run()
}

impl Recording {
    fn limits(&self) -> CaptureLimits {
        CaptureLimits { file: self.pcap_size.bytes(), files: usize::from(self.pcap_files) }
    }
}

impl RunArgs {
    /// The scenario, resolved.
    fn scenario(&self) -> anyhow::Result<Scenario> {
        simulate::scenario(&self.scenario, self.seed, self.tcp_buffers)
    }

    fn work(&self) -> anyhow::Result<Work> {
        let scenario = self.scenario()?;
        let host = self.on.clone().map_or_else(|| first_host(&scenario), Ok)?;
        let transfer = scenario.transfers.first();
        if !scenario.nodes.contains_key(&host) {
            let known: Vec<_> = scenario.nodes.keys().map(String::as_str).collect();
            let message = format!("--on {host}: no such host (hosts: {})", known.join(", "));
            return Err(Usage(message).into());
        }
        let peer = transfer.filter(|transfer| transfer.from == host);
        let peer = peer.and_then(|transfer| transfer.to.names().next()).map(str::to_owned);
        Ok(Work {
            host,
            peer,
            servers: Vec::new(),
            wait_for: None,
            program: self.program.clone(),
            tcp_buffers: self.tcp_buffers,
            options: self.options.clone(),
            scenario,
        })
    }
}

impl ShellArgs {
    fn work(&self) -> anyhow::Result<Work> {
        let shell = std::env::var_os("SHELL").unwrap_or_else(|| OsString::from("/bin/sh"));
        Work::between_two(&self.link, self.seed, self.tcp_buffers, &self.options, vec![shell])
    }
}

impl Work {
    /// A program at the near end of a link.
    fn between_two(
        link: &LinkOptions,
        seed: u64,
        tcp_buffers: TcpBuffers,
        options: &WorldOptions,
        program: Vec<OsString>,
    ) -> anyhow::Result<Self> {
        let (near, far) = emulation::ENDS;
        Ok(Self {
            scenario: emulation::between_two(&link.preset()?, seed)?,
            host: near.to_owned(),
            peer: Some(far.to_owned()),
            servers: Vec::new(),
            wait_for: None,
            program,
            tcp_buffers: Some(tcp_buffers),
            options: options.clone(),
        })
    }

    fn run(mut self) -> anyhow::Result<ExitCode> {
        emulation::plan(&self.scenario)?;
        self.options.demands.check()?;
        self.options.outside.check(&self.scenario, &self.host)?;
        let user = self.options.user.find()?;
        let joined = match self.options.outside.isolate(&self.scenario, &self.host)? {
            Entered::Over(code) => return Ok(ended(code)),
            Entered::Inside(joined) => joined,
        };
        let mut plan = joined.plan(&mut self.scenario)?;
        self.options.demands.settle(&self.scenario, &mut plan)?;
        // In an enclosing world the peer is that world's far end, unless servers run at this
        // world's.
        let leads_on = joined.is_nested() && self.servers.is_empty();
        joined.name(&plan, leads_on)?;
        let world = World::start(&plan)?;
        limit_tcp_buffers(&world, &self.scenario, self.tcp_buffers)?;
        joined.open(&world, &plan)?;
        if let Some(folder) = &self.options.recording.pcap {
            world.links().capture(None, folder, self.options.recording.limits())?;
        }
        let status = self.carry_out(&world, user.as_ref(), leads_on);
        let captured =
            if self.options.recording.pcap.is_some() { end_capture(&world) } else { Ok(()) };
        let report = world.stop()?;
        // Nothing ran, so there is nothing to report.
        let Some(status) = status? else { return Ok(Exit::NotFound.into()) };
        let account = self.options.demands.account(&self.scenario, &report)?;
        captured?;
        Ok(if self.options.demands.accept(&account) { status } else { Exit::Failed.into() })
    }

    /// Runs the servers and the program; `None` if there is no such program. If this world leads
    /// into an enclosing one, the peer is the latter's.
    fn carry_out(
        &self,
        world: &World,
        user: Option<&User>,
        leads_on: bool,
    ) -> anyhow::Result<Option<ExitCode>> {
        let peer = self.peer.as_deref().and_then(|name| world.host(name));
        let mut requests = Requests::of_others().context("taking signals")?;
        let epoch = epoch(world);
        let mut servers = Servers::default();
        if let Some(peer) = peer
            && let Started::Over(signal) =
                servers.start(peer, user, &epoch, &self.servers, self.wait_for, &mut requests)?
        {
            return Ok(Some(ended(SIGNALLED + signal)));
        }
        let near =
            world.host(&self.host).ok_or_else(|| anyhow!("there is no host {}", self.host))?;
        let [program, arguments @ ..] = self.program.as_slice() else {
            return Err(Usage("no program to run: name it after `--`".to_owned()).into());
        };
        let mut command = process::Command::new(program);
        near.command(command.args(arguments)).env(EPOCH, epoch);
        if let Some(user) = user {
            user.command(&mut command);
        }
        if let Some(peer) = peer.filter(|_| !leads_on) {
            command.env(PEER, peer.plan().address.to_string());
        }
        // Signals are forwarded to the program; reports follow after its end.
        match emu::carry_out(emu::unmarked(&mut command), &mut requests) {
            Ok(status) => Ok(Some(ended(emu::exit_code(status)))),
            Err(error) => not_started(program, error).map(|()| None),
        }
    }
}

/// Date from which the outages of a world count.
fn epoch(world: &World) -> String {
    let (zero, _) = world.clock().zero();
    humantime::format_rfc3339_nanos(zero).to_string()
}

/// Host that programs run on by default: the first transfer's sender, or the first link's.
fn first_host(scenario: &Scenario) -> Result<String, Usage> {
    let sender = scenario.transfers.first().map(|transfer| transfer.from.clone());
    let first = || scenario.links.first().and_then(|link| link.from.clone());
    sender.or_else(first).ok_or_else(|| Usage("the scenario has no link".to_owned()))
}

/// Limits the buffers of TCP on the hosts of a world.
fn limit_tcp_buffers(
    world: &World,
    scenario: &Scenario,
    limit: Option<TcpBuffers>,
) -> anyhow::Result<()> {
    emulation::limit_tcp_buffers(world, scenario, limit).context("limiting TCP's buffers")
}

/// Ends the capture, and reports missed packets.
fn end_capture(world: &World) -> anyhow::Result<()> {
    let missed = world.links().end_capture()?.missed;
    if missed > 0 {
        writeln!(io::stderr(), "{missed} packets are not in the capture: the disk is too slow")?;
    }
    Ok(())
}

/// Reports a program that was not found; other errors are returned.
fn not_started(program: &OsStr, error: io::Error) -> anyhow::Result<()> {
    let program = program.to_string_lossy();
    if error.kind() != io::ErrorKind::NotFound {
        return Err(error).context(program.into_owned());
    }
    writeln!(io::stderr(), "error: {program}: no such program")?;
    Ok(())
}

/// Exit code of a process, limited to a byte.
pub(crate) fn ended(code: i32) -> ExitCode {
    ExitCode::from(code.clamp(0, 255) as u8)
}
