//! Worlds in the background: `slowlight emu up` and the commands that use them.

use std::ffi::OsString;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context as _, anyhow};
use control::folder::{self, Folder};
use control::model;
use control::{Places, Server};
use emu::{EnterError, World};
use lab::scenario::Scenario;
use serde_json::{Map, Value, json};
use service::http::{Client, Method, segment};
use testbed::emulation;
use transport::settings::tcp::TcpBuffers;
use transport::text;

use super::demands::Demands;
use super::outside::{Entered, Joined, Outside};
use super::user::AsUser;
use super::which::{Which, client_error, folder_error};
use super::{PEER, Recording, ended, first_host, limit_tcp_buffers, not_started, transfer};
use crate::compute::link_options::LinkOptions;
use crate::compute::simulate;
use crate::compute::table::{Cell, Column, Page, Table, Tone};
use crate::exit::Exit;
use crate::{EPOCH, Usage, doubts, switch};

/// Default name of a world.
const NAME: &str = "default";
/// Line that a world in the background prints when it is ready.
const READY: &str = "ready";
/// Running program, even if its file was replaced.
const SELF: &str = "/proc/self/exe";

#[derive(Debug, clap::Subcommand)]
pub(super) enum Action {
    /// Start a world in the background
    Up(Box<UpArgs>),
    /// Run a program on a host of a world in the background
    Exec(ExecArgs),
    /// Transfer a file between hosts of a world by a protocol or a program
    Transfer(transfer::Args),
    /// Change links of a world
    Set(SetArgs),
    /// Show the hosts, links and counters of a world
    Status(StatusArgs),
    /// List worlds in the background
    List,
    /// End a world and all programs in it
    Down(DownArgs),
}

#[derive(Debug, clap::Args)]
pub(super) struct UpArgs {
    /// Scenario [default: two hosts and the link of --link]
    #[arg(value_name = "SCENARIO.toml", conflicts_with_all = ["LinkOptions", "Forward", "Back", "Contacts"])]
    scenario: Option<PathBuf>,

    /// Name of the world
    #[arg(long, value_name = "NAME", default_value = NAME)]
    name: String,

    /// Seed of the links' random errors [default: the scenario's]
    #[arg(long, allow_hyphen_values = true, value_parser = crate::compute::seed)]
    seed: Option<u64>,

    /// Stay in the foreground until ctrl-C
    #[arg(long)]
    foreground: bool,

    /// Address for the control interface over TCP; clients need the token
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,

    /// Allow --listen on a non-loopback address; whoever has the token can run programs here
    #[arg(long, requires = "listen")]
    listen_anywhere: bool,

    #[command(flatten)]
    recording: Recording,

    #[command(flatten)]
    demands: Demands,

    /// Limit of TCP's autotuned buffers on the hosts [default: the scenario's, or unlimited]
    #[arg(long, value_name = "SIZE", value_parser = switch::buffers())]
    tcp_buffers: Option<TcpBuffers>,

    #[command(flatten)]
    outside: Outside,

    #[command(flatten)]
    link: LinkOptions,
}

#[derive(Debug, clap::Args)]
pub(super) struct ExecArgs {
    #[command(flatten)]
    which: Which,

    /// Host of the program
    #[arg(value_name = "HOST")]
    host: String,

    #[command(flatten)]
    user: AsUser,

    /// Program and arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    program: Vec<OsString>,
}

#[derive(Debug, clap::Args)]
pub(super) struct SetArgs {
    #[command(flatten)]
    which: Which,

    /// Change both directions of each link
    #[arg(long)]
    both: bool,

    /// Links as FROM:TO and changes as KEY=VALUE, e.g. delay=2s or per=1e-4
    ///
    /// Keys are those of a link in a scenario; KEY=null removes a key. outage="10 s+30 s" adds an
    /// outage of 30 s that begins 10 s from now.
    #[arg(required = true, value_name = "FROM:TO|KEY=VALUE")]
    what: Vec<String>,
}

/// Arguments of `set`.
#[derive(Debug, Default)]
struct Parts {
    links: Vec<String>,
    keys: Map<String, Value>,
    outages: Vec<Value>,
}

#[derive(Debug, clap::Args)]
pub(super) struct StatusArgs {
    #[command(flatten)]
    which: Which,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct DownArgs {
    #[command(flatten)]
    which: Which,
}

/// Runs the command.
pub(super) fn run(action: &Action) -> anyhow::Result<ExitCode> {
    match action {
        Action::Up(args) => args.run(),
        Action::Exec(args) => args.run(),
        Action::Transfer(args) => args.run(),
        Action::Set(args) => args.run(),
        Action::Status(args) => args.run(),
        Action::List => list(),
        Action::Down(args) => {
            let world = args.which.world()?;
            folder::end(&world)?;
            writeln!(io::stderr(), "world {:?} has ended", world.name)?;
            Ok(Exit::Done.into())
        }
    }
}

/// Removes remains of killed worlds and runs. Remains that cannot be removed do no harm.
pub(super) fn remove_dead() {
    // Inside a world, the remains outside belong to others.
    if !emu::is_outer() || emu::enclosing_world().is_some() {
        return;
    }
    if let Err(error) = folder::remove_dead() {
        tracing::warn!("{error}");
    }
    if let Err(error) = emu::restore_forwarding() {
        tracing::warn!("the machine still forwards packets: {error}");
    }
    if let Err(error) = testbed::scratch::remove_dead() {
        tracing::warn!("temporary files of a run that was killed: {error}");
    }
}

impl UpArgs {
    fn scenario(&self) -> anyhow::Result<Scenario> {
        let Some(path) = &self.scenario else {
            return Ok(emulation::between_two(&self.link.preset()?, self.seed.unwrap_or(1))?);
        };
        simulate::scenario(path, self.seed, self.tcp_buffers)
    }

    fn run(&self) -> anyhow::Result<ExitCode> {
        let mut scenario = self.scenario()?;
        let mut plan = emulation::plan(&scenario)?;
        let host = first_host(&scenario)?;
        self.demands.check()?;
        self.outside.check(&scenario, &host)?;
        if let Some(address) = self.listen.filter(|address| !address.ip().is_loopback())
            && !self.listen_anywhere
        {
            let message = format!(
                "--listen {address}: others can reach that address; take 127.0.0.1, or allow it with \
                 --listen-anywhere"
            );
            return Err(Usage(message).into());
        }
        let Some(folder) = std::env::var_os(folder::VARIABLE) else {
            if !self.foreground {
                // Later output has no reader.
                self.demands.settle(&scenario, &mut plan)?;
            }
            return self.launch();
        };
        let folder = PathBuf::from(folder);
        let _claimed = if emu::is_outer() {
            if !self.foreground {
                folder::leave_session()?;
            }
            Some(Folder::claim(&folder).map_err(folder_error)?)
        } else {
            None
        };
        match self.outside.isolate(&scenario, &host)? {
            Entered::Over(code) => Ok(ended(code)),
            Entered::Inside(joined) => {
                let mut plan = joined.plan(&mut scenario)?;
                self.demands.settle(&scenario, &mut plan)?;
                self.stay(&folder, &scenario, &plan, joined)
            }
        }
    }

    /// Starts this program again as the world's process.
    fn launch(&self) -> anyhow::Result<ExitCode> {
        let folder = Folder::free(&self.name).map_err(folder_error)?;
        let mut arguments = std::env::args_os();
        let mut command = Command::new(SELF);
        command.arg0(arguments.next().unwrap_or_else(|| OsString::from("slowlight")));
        command.args(arguments).env(folder::VARIABLE, &folder);
        if self.foreground {
            return Err(command.exec()).context("starting the world");
        }
        // Output of the world until it is ready; an unnamed file leaves nothing behind.
        let mut messages = tempfile::tempfile()?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(messages.try_clone()?);
        let mut child = command.spawn().context("starting the world")?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        if line.trim_end() == READY {
            let world: model::World =
                Client::new(&folder::socket(&folder)).get("/world").map_err(client_error)?;
            let token = || fs::read_to_string(folder.join("token"));
            let listen = world.listen.map(|listen| token().map(|token| (listen, token)));
            self.print_start(&folder, listen.transpose()?)?;
            return Ok(Exit::Done.into());
        }
        let status = child.wait()?;
        let mut text = String::new();
        messages.rewind()?;
        messages.read_to_string(&mut text)?;
        io::stderr().write_all(text.as_bytes())?;
        Ok(ended(emu::exit_code(status).max(1)))
    }

    /// Runs the world until a request to end.
    fn stay(
        &self,
        folder: &Path,
        scenario: &Scenario,
        plan: &emu::Plan,
        joined: Joined,
    ) -> anyhow::Result<ExitCode> {
        // First, so that a port in use is reported before anything is created.
        let server = Server::bind(&Places { socket: folder::socket(folder), listen: self.listen })?;
        if let Some((_, token)) = server.address() {
            folder::write_private(&folder.join("token"), &format!("{token}\n"))?;
        }
        joined.name(plan, false)?;
        let world = Arc::new(World::start(plan)?);
        limit_tcp_buffers(&world, scenario, self.tcp_buffers)?;
        joined.open(&world, plan)?;
        let capture = self.capture(&world)?;
        let listen =
            server.address().map(|(address, token)| (address.to_string(), token.to_owned()));
        let bounds = self.demands.bounds(scenario);
        server.run(&self.name, scenario, bounds, capture, &world, || {
            if self.foreground {
                // The world runs on although nobody reads.
                let _ = self.print_start(folder, listen);
                return Ok(());
            }
            writeln!(io::stdout(), "{READY}")?;
            folder::log_into(folder)
        })?;
        let world = Arc::into_inner(world).ok_or_else(|| anyhow!("the interface has not ended"))?;
        // This ends a capture too.
        let account = self.demands.account(scenario, &world.stop()?)?;
        Ok(Exit::if_succeeded(self.demands.accept(&account)).into())
    }

    /// Starts the capture, if requested, as a request of the control interface does.
    fn capture(&self, world: &World) -> anyhow::Result<Option<model::CaptureRequest>> {
        let Some(folder) = &self.recording.pcap else { return Ok(None) };
        world.links().capture(None, folder, self.recording.limits())?;
        let folder = std::path::absolute(folder)?.to_string_lossy().into_owned();
        let file_size = Some(self.recording.pcap_size.to_string());
        let files = Some(self.recording.pcap_files);
        Ok(Some(model::CaptureRequest { folder, hosts: None, file_size, files }))
    }

    /// Prints the commands that use the world.
    fn print_start(&self, folder: &Path, listen: Option<(String, String)>) -> io::Result<()> {
        let socket = folder::socket(folder);
        let name = &self.name;
        let option = if name == NAME { String::new() } else { format!(" --name {name}") };
        let mut err = io::stderr().lock();
        writeln!(err, "world {name:?} is up")?;
        writeln!(err, "  slowlight emu exec{option} HOST -- CMD    a program on a host")?;
        writeln!(
            err,
            "  slowlight emu transfer{option} --from HOST --to HOST    a file between hosts"
        )?;
        writeln!(err, "  slowlight emu set{option} FROM:TO delay=2s   another delay from now on")?;
        writeln!(err, "  slowlight emu status{option}, slowlight emu down{option}")?;
        writeln!(err, "interface: {}", socket.display())?;
        if let Some((address, token)) = listen {
            let token = token.trim_end();
            writeln!(err, "interface: http://{address}, Authorization: Bearer {token}")?;
        }
        Ok(())
    }
}

impl ExecArgs {
    fn run(&self) -> anyhow::Result<ExitCode> {
        let user = self.user.find()?;
        let client = self.which.client()?;
        let model::World { hosts, began, .. } = client.get("/world").map_err(client_error)?;
        let names = || hosts.iter().map(|host| host.name.as_str());
        let host = hosts.iter().find(|host| host.name == self.host).ok_or_else(|| {
            let near = text::did_you_mean(&self.host, names());
            let known = names().collect::<Vec<_>>().join(", ");
            Usage(format!("there is no host {:?}{near} (hosts: {known})", self.host))
        })?;
        let pid = client.pid().map_err(client_error)?;
        let [program, arguments @ ..] = self.program.as_slice() else {
            return Err(Usage("no program to run: name it after `--`".to_owned()).into());
        };
        let mut command = Command::new(program);
        let epoch = UNIX_EPOCH + Duration::from_secs_f64(began);
        command.args(arguments).env(EPOCH, humantime::format_rfc3339_nanos(epoch).to_string());
        if let Some(user) = &user {
            user.command(&mut command);
        }
        let ends = [emulation::ENDS.0, emulation::ENDS.1];
        let peer = hosts.iter().find(|other| other.name != host.name);
        if let Some(peer) = peer.filter(|_| ends.iter().all(|end| names().any(|name| name == *end)))
        {
            command.env(PEER, &peer.address);
        }
        match emu::run_inside(pid, host.descriptor, &mut command) {
            Ok(status) => Ok(ended(emu::exit_code(status))),
            Err(EnterError::Program(error)) => {
                not_started(program, error).map(|()| Exit::NotFound.into())
            }
            Err(error @ EnterError::World(_)) => Err(error.into()),
        }
    }
}

impl SetArgs {
    fn run(&self) -> anyhow::Result<ExitCode> {
        let Parts { links, keys, outages } = self.parts()?;
        let client = self.which.client()?;
        for link in links {
            let path = format!("/links/{}", segment(&link));
            if !keys.is_empty() {
                let keys = Value::from(keys.clone());
                client.ask(Method::PATCH, &path, Some(&keys)).map_err(client_error)?;
            }
            for outage in &outages {
                let path = format!("{path}/outages");
                client.ask(Method::POST, &path, Some(outage)).map_err(client_error)?;
            }
        }
        Ok(Exit::Done.into())
    }

    /// Links, changes of keys, and outages to add.
    fn parts(&self) -> anyhow::Result<Parts> {
        let Parts { mut links, mut keys, mut outages } = Parts::default();
        for part in &self.what {
            match part.split_once('=') {
                Some(("outage", window)) => {
                    let (at, lasts) = window.split_once('+').ok_or_else(|| {
                        let example = "outage=\"10 s+30 s\", 10 s from now for 30 s";
                        Usage(format!("invalid outage {window:?}: expected one like {example}"))
                    })?;
                    outages.push(json!({ "at": at, "for": lasts }));
                }
                Some((key, text)) => {
                    keys.insert(key.to_owned(), value(key, text)?);
                }
                None => {
                    let (from, to) = part.split_once(':').ok_or_else(|| {
                        let expected = "expected a link, FROM:TO, or a change, KEY=VALUE";
                        Usage(format!("invalid argument {part:?}: {expected}"))
                    })?;
                    links.push(part.clone());
                    if self.both {
                        links.push(format!("{to}:{from}"));
                    }
                }
            }
        }
        if links.is_empty() {
            let message = "no link is named; write FROM:TO (`slowlight emu status` lists links)";
            return Err(Usage(message.to_owned()).into());
        }
        if keys.is_empty() && outages.is_empty() {
            let message = "no change is given; write KEY=VALUE, like delay=2s";
            return Err(Usage(message.to_owned()).into());
        }
        Ok(Parts { links, keys, outages })
    }
}

/// Value from text: a string, or a TOML table or array.
fn value(key: &str, text: &str) -> anyhow::Result<Value> {
    if text == "null" {
        return Ok(Value::Null);
    }
    if !text.starts_with(['[', '{', '"']) {
        return Ok(Value::from(text));
    }
    let line = format!("{key} = {text}");
    let mut table: toml::Table = text::parse(&line, key)?;
    let value = table.remove(key).ok_or_else(|| Usage(format!("{key}: unknown key")))?;
    Ok(serde_json::to_value(value)?)
}

impl StatusArgs {
    fn run(&self) -> anyhow::Result<ExitCode> {
        let world = self.which.client()?.ask(Method::GET, "/world", None).map_err(client_error)?;
        let mut out = io::stdout().lock();
        if self.json {
            writeln!(out, "{}", serde_json::to_string_pretty(&world)?)?;
        } else {
            write!(out, "{}", shown(&serde_json::from_value(world)?))?;
        }
        Ok(Exit::Done.into())
    }
}

/// World as text.
fn shown(world: &model::World) -> String {
    let mut hosts = Table::new(["host", "address", ""].map(Column::left));
    for host in &world.hosts {
        hosts
            .row([&host.name, &host.address, &host.address6].map(|cell| Cell::from(cell.as_str())));
    }
    let names = ["link", ""].map(Column::left);
    let heads = ["rate", "delay", "delivered", "lost", "on its way", "late (99 %)"];
    let mut links = Table::new(names.into_iter().chain(heads.map(Column::right)));
    for link in &world.links {
        let setting = |key: &str| {
            let value = link.settings.get(key).and_then(Value::as_str);
            Cell::optional(value.map(str::to_owned))
        };
        let lost: u64 = link.counters.lost.values().map(|count| count.packets).sum();
        let (state, tone) = if link.up { ("up", Tone::Plain) } else { ("down", Tone::Bad) };
        links.row([
            Cell::from(link.name.as_str()),
            Cell::from(state).tone(tone),
            setting("rate"),
            setting("delay"),
            link.counters.delivered.packets.to_string().into(),
            lost.to_string().into(),
            link.counters.queued.packets.to_string().into(),
            format!("{:.0} us", link.lateness.p99_us).into(),
        ]);
    }
    let page = Page::stdout();
    let (hosts, links) = (hosts.drawn(page), links.drawn(page));
    let mut text =
        format!("world {:?}, up for {:.0} s\n\n{hosts}\n\n{links}\n", world.name, world.now);
    if let Some(listen) = &world.listen {
        text += &format!("\ninterface: http://{listen}\n");
    }
    if let Some(lines) = doubts::lines(&world.doubts, doubts::EMULATOR) {
        text += &format!("\n{lines}");
    }
    text.trim_end().to_owned() + "\n"
}

fn list() -> anyhow::Result<ExitCode> {
    let mut out = io::stdout().lock();
    for world in folder::running().map_err(folder_error)? {
        let pid = world.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string());
        writeln!(out, "{:<16}{pid:<10}{}", world.name, world.path.display())?;
    }
    Ok(Exit::Done.into())
}
