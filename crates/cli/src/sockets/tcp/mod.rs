//! `slowlight tcp`: slowlight's own TCP on a TUN device, with the kernel's as its peer.

mod device;
mod options;
mod relay;
mod report;
mod scps;
mod streams;

use std::fs::File;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use anyhow::{Context as _, Result, anyhow};
use engine::Time;
use rt::{Control, TunDriver, TunEvent, Waker};
use tcp::{CloseReason, Config, Stack};
use transport::quantity::Span;

use self::device::Device;
use self::options::TcpOptions;
use self::relay::{Outcome, Relay, Role};
use self::streams::{Sink, Source};
use crate::Usage;
use crate::exit::Exit;
use crate::sockets::punctuality::{Exactness, Punctuality};
use crate::sockets::transfer;
use crate::stop::stop_flag;
use crate::switch::Switch;

/// Options of `tcp`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Connect and send a file
    Send(SendArgs),
    /// Accept a connection and receive a file
    Recv(RecvArgs),
    /// Connect standard input and output to a port, as netcat does
    Connect(ConnectArgs),
    /// Accept a connection for standard input and output, as netcat does
    Listen(ListenArgs),
}

#[derive(Debug, clap::Args)]
struct SendArgs {
    /// File to send, or - for standard input
    file: PathBuf,

    /// Address and port of the peer
    to: SocketAddr,

    /// Local port [default: a free one]
    #[arg(long, value_name = "PORT", value_parser = crate::whole::within(1_u16..=u16::MAX))]
    from_port: Option<u16>,

    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
struct RecvArgs {
    /// Port to listen on
    #[arg(value_parser = crate::whole::within(1_u16..=u16::MAX))]
    port: u16,

    /// File to write, or - for standard output
    file: PathBuf,

    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
struct ConnectArgs {
    /// Address and port of the peer
    to: SocketAddr,

    /// Local port [default: a free one]
    #[arg(long, value_name = "PORT", value_parser = crate::whole::within(1_u16..=u16::MAX))]
    from_port: Option<u16>,

    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
struct ListenArgs {
    /// Port to listen on
    #[arg(value_parser = crate::whole::within(1_u16..=u16::MAX))]
    port: u16,

    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
struct Common {
    #[command(flatten)]
    device: Device,

    #[command(flatten)]
    tcp: TcpOptions,

    /// Checks of RFC 5961 on resets and SYNs within a connection
    #[arg(long, value_name = "ON|OFF", default_value = "on", help_heading = "TCP")]
    robust: Switch,

    #[command(flatten)]
    exactness: Exactness,

    /// Reset the connection after this time
    #[arg(long, value_name = "DURATION", help_heading = None::<&str>)]
    timeout: Option<Span>,

    /// File for statistics as JSON
    #[arg(long, value_name = "FILE", help_heading = None::<&str>)]
    json: Option<PathBuf>,

    /// Print errors only
    #[arg(long, short, help_heading = None::<&str>)]
    quiet: bool,
}

/// Runs the command.
pub(crate) fn run(args: Args) -> Result<ExitCode> {
    let waker = Waker::new()?;
    let (common, relay) = match args.action {
        Action::Send(SendArgs { file, to, from_port, common }) => {
            let source = Source::open(&file, waker.clone()).map_err(transfer::usage)?;
            (common, Relay::new(Role::Connect { to, from_port }, Some(source), None))
        }
        Action::Recv(RecvArgs { port, file, common }) => {
            let sink = Sink::open(&file, waker.clone()).map_err(transfer::usage)?;
            (common, Relay::new(Role::Listen(port), None, Some(sink)))
        }
        Action::Connect(ConnectArgs { to, from_port, common }) => {
            let (source, sink) = both(&waker)?;
            (common, Relay::new(Role::Connect { to, from_port }, Some(source), Some(sink)))
        }
        Action::Listen(ListenArgs { port, common }) => {
            let (source, sink) = both(&waker)?;
            (common, Relay::new(Role::Listen(port), Some(source), Some(sink)))
        }
    };
    if let Some(to) = relay.peer().filter(|to| to.ip().is_loopback()) {
        let message = format!(
            "{to} cannot be reached from a TUN device; connect to {}:{}, the address of this machine \
             there (--kernel), where the program must listen",
            common.device.kernel,
            to.port()
        );
        return Err(Usage(message).into());
    }
    if let Some(to) =
        relay.peer().filter(|to| to.is_ipv4() != common.device.address.address.is_ipv4())
    {
        let address = common.device.address;
        let message = format!(
            "{to} and --address {address} are not of the same family; for IPv6 give, for example, \
             --address fd00:9::2/64 --kernel fd00:9::1"
        );
        return Err(Usage(message).into());
    }
    common.carry_out(relay, waker)
}

fn both(waker: &Waker) -> Result<(Source, Sink)> {
    let name = streams::standard();
    Ok((Source::open(&name, waker.clone())?, Sink::open(&name, waker.clone())?))
}

impl Common {
    fn carry_out(&self, mut relay: Relay, waker: Waker) -> Result<ExitCode> {
        let options = self.tcp.options()?;
        let bounds = self.exactness.bounds()?;
        let json = self.json.as_deref().map(Report::open).transpose().map_err(transfer::usage)?;
        let stop = stop_flag()?;
        let tun = self.device.open()?;
        let own = self.device.address.address;
        let config =
            Config { addresses: vec![own], robust: self.robust.into(), ..Config::default() };
        let stack = Stack::new(config, rt::entropy()?);
        let mut driver = TunDriver::new(tun, &self.device.device, stack, waker)?;
        let punctuality = Punctuality::hurry(bounds);
        driver.set_timings(punctuality.timings());
        let local = SocketAddr::new(own, 0);
        let mut refused = None;
        let (mut started, mut stopped) = (false, false);
        let limit = self.timeout.map(Span::duration);
        driver.run(|now, stack, event| match event {
            TunEvent::Interface(condition) => {
                if condition.up && !std::mem::replace(&mut started, true) {
                    refused = relay.begin(now, stack, local, &options).err();
                }
                Control::Continue
            }
            TunEvent::Indication(indication) => {
                if let Some(line) = relay.on(now, stack, indication) {
                    self.print(&line);
                }
                Control::Continue
            }
            TunEvent::Turn => {
                let late = limit.is_some_and(|limit| now >= Time::ZERO + limit);
                if stopped || refused.is_some() {
                    return Control::Stop;
                }
                relay.turn(now, stack);
                if relay.try_finish(now) {
                    return Control::Stop;
                }
                if stop.load(Ordering::Relaxed) || late {
                    relay.stop(now, stack);
                    stopped = true;
                }
                Control::Continue
            }
        })?;
        if let Some(error) = refused {
            return Err(Usage(format!("the connection cannot be made: {error}")).into());
        }
        let packets = driver.statistics();
        let statistics = driver.engine_mut().statistics();
        let mut outcome = relay.outcome(driver.now());
        if stopped {
            outcome.reason = None;
        }
        let account = punctuality.account();
        self.print(&format!("{}\n  {}", report::text(&outcome, &packets), account.text()));
        if let Some(json) = json {
            json.write(&report::value(&outcome, &packets, &statistics, &account))?;
        }
        let code = finish(&outcome)?;
        if self.exactness.strict && !account.doubts.is_empty() {
            return Err(anyhow!("the run was not exact (--strict): {}", account.doubts.join("; ")));
        }
        Ok(code)
    }

    fn print(&self, text: &str) {
        if !self.quiet {
            // Nothing can be done about a standard error that is closed.
            let _ = writeln!(io::stderr(), "{text}");
        }
    }
}

/// File for statistics, opened before the connection.
struct Report<'a> {
    path: &'a Path,
    file: File,
}

impl<'a> Report<'a> {
    fn open(path: &'a Path) -> Result<Self> {
        Ok(Self { path, file: streams::kept(path)? })
    }

    fn write(mut self, value: &serde_json::Value) -> Result<()> {
        let mut written = || -> io::Result<()> {
            streams::emptied(&self.file)?;
            serde_json::to_writer_pretty(&mut self.file, value)?;
            self.file.write_all(b"\n")
        };
        written().with_context(|| self.path.display().to_string())
    }
}

fn finish(outcome: &Outcome) -> Result<ExitCode> {
    if let Some(fault) = &outcome.fault {
        return Err(anyhow!(fault.clone()));
    }
    match outcome.reason {
        Some(CloseReason::Graceful) => Ok(Exit::Done.into()),
        Some(
            CloseReason::Refused
            | CloseReason::Reset
            | CloseReason::TimedOut
            | CloseReason::Aborted,
        )
        | None => Err(anyhow!("the connection was {}", report::reason(outcome.reason))),
    }
}

#[cfg(test)]
mod tests;
