//! `slowlight pep`: a gateway that splits connections, between real networks.

mod device;
mod ipv6;
mod proxy;
mod report;
mod rules;
#[cfg(test)]
mod tests;

use std::io::{self, IsTerminal as _, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use engine::Time;
use pep::{Indication, Pep};
use rt::streams::{
    Listening, StreamConfig, StreamDriver, StreamEvent, StreamOptions, allow_descriptors,
};
use rt::{Bounds, Control, Waker};
use service::gateway::{Gateway, KernelTcp};
use transport::quantity::{Rate, Size, Span};

use self::proxy::Proxy;
use self::rules::{Installed, Rules};
use crate::Usage;
use crate::exit::Exit;
use crate::sockets::punctuality::Punctuality;
use crate::stop::stop_flag;

/// Options of `pep`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Settings of the gateway (TOML)
    config: PathBuf,

    /// Print the commands that set and remove the kernel's rules, and exit
    #[arg(long)]
    print_rules: bool,

    /// File for statistics as JSON, rewritten every interval
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Interval of the statistics, in the file and on a terminal
    #[arg(long, value_name = "DURATION", default_value = "10 s")]
    interval: Span,

    /// Log each connection
    #[arg(long, short)]
    verbose: bool,

    /// Print errors only
    #[arg(long, short, conflicts_with = "verbose")]
    quiet: bool,
}

/// File descriptors other than those of connections: standard streams, listeners, and those of
/// system libraries.
const DESCRIPTORS: u64 = 64;

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let mut gateway = Gateway::read(&args.config)?;
    let notice = ipv6::settle(&mut gateway);
    let rules = Rules::for_gateway(&gateway);
    if args.print_rules {
        return crate::exit_code(
            io::stdout().write_all(rules.shell(&gateway).as_bytes()).map_err(Into::into),
            true,
        );
    }
    if let Some(path) = &args.json {
        report::check(path)?;
    }
    rules::check_programs()?;
    check_network(&gateway)?;
    let lock = rules::lock(&gateway)?;
    let stop = stop_flag()?;
    let dump = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGUSR1, Arc::clone(&dump))?;
    prepare(&gateway)?;
    if let Some(notice) = notice.filter(|_| !args.quiet) {
        writeln!(io::stderr(), "{notice}")?;
    }
    let pep = Pep::new(gateway.proxy());
    match gateway.own_options()? {
        None => Running::start(args, &gateway, pep)?.carry_out(rules, lock, &stop, &dump),
        Some(options) => {
            let own = gateway.wan.own.as_ref().expect("there are options for it");
            // First of all, since routes lead to the device.
            let tun = device::open(own, &gateway)?;
            let engine = proxy::over_own_tcp(&gateway, options, pep)?;
            let mut running = Running::start(args, &gateway, engine)?;
            running.driver.add_interface(tun, &own.device)?;
            running.measure();
            running.carry_out(rules, lock, &stop, &dump)
        }
    }
}

/// Raises the limits of the process and checks that the kernel accepts all settings.
fn prepare(gateway: &Gateway) -> Result<()> {
    let connections = gateway.limits.connections;
    let wanted = 2 * connections as u64 + DESCRIPTORS;
    let allowed = allow_descriptors(wanted).context("raising the limit on open files")?;
    if allowed < wanted {
        return Err(anyhow!(
            "{connections} connections take {wanted} open files, and {allowed} are allowed; raise \
             the limit (ulimit -n, LimitNOFILE=), or lower limits.connections"
        ));
    }
    for Listening { address, options, .. } in &listening(gateway) {
        options.check(*address)?;
    }
    Ok(())
}

/// Checks that this host is a router with these interfaces.
fn check_network(gateway: &Gateway) -> Result<()> {
    for name in gateway.lan.interfaces.iter().chain(&gateway.wan.interfaces) {
        rt::interface(name).map_err(|error| match error.raw_os_error() {
            Some(ENODEV) => {
                Usage(format!("there is no network interface {name:?}; `ip link` lists them"))
                    .into()
            }
            Some(_) | None => anyhow!(error).context(name.clone()),
        })?;
    }
    ipv6::check(gateway)?;
    let mut names = vec!["net.ipv4.ip_forward"];
    if gateway.intercept.takes_ipv6() {
        names.push("net.ipv6.conf.all.forwarding");
    }
    for name in names {
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        let value = std::fs::read_to_string(&path).with_context(|| path.clone())?;
        if value.trim() == "0" {
            return Err(anyhow!(
                "this host is not a router, so packets other than TCP would not pass it; \
                 sysctl -w {name}=1"
            ));
        }
    }
    Ok(())
}

const ENODEV: i32 = 19;

/// Options of the kernel's TCP on one side.
fn options(kernel: &KernelTcp) -> StreamOptions {
    let bytes = |size: Size| usize::try_from(size.bytes()).unwrap_or(usize::MAX);
    StreamOptions {
        transparent: true,
        congestion: kernel.congestion.clone(),
        send_buffer: kernel.send_buffer.map(bytes),
        receive_buffer: kernel.receive_buffer.map(bytes),
        unsent_max: kernel.unsent.map(|size| u32::try_from(size.bytes()).unwrap_or(u32::MAX)),
        rate_bps: kernel.rate.map(Rate::bps),
        mss: kernel.mss,
        keep_alive: kernel.keep_alive,
        timeout: kernel.timeout.map(Span::duration),
        connecting: None,
        // Without a reset, a peer of a gateway that died could take a partial stream for a complete
        // one.
        reset_on_death: true,
    }
}

/// Listeners of both sides, each with the options of the other side, where its connections
/// continue.
fn listening(gateway: &Gateway) -> Vec<Listening> {
    let wan = gateway.wan.kernel.clone().unwrap_or_default();
    let [lan, wan] = [options(&gateway.lan.kernel), options(&wan)];
    let [at_lan, at_wan] = gateway.rules.ports();
    let mut all = Vec::new();
    let mut sides = vec![(at_lan, &lan, &wan)];
    if gateway.wan.own.is_none() {
        sides.push((at_wan, &wan, &lan));
    }
    for (port, near, far) in sides {
        let mut add = |address| {
            let (options, onward) = (near.clone(), Some(far.clone()));
            all.push(Listening { address, options, onward });
        };
        add(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        if gateway.intercept.takes_ipv6() {
            add(SocketAddr::from((Ipv6Addr::LOCALHOST, port)));
        }
    }
    all
}

/// A gateway that runs.
struct Running<'a, E: Proxy> {
    args: &'a Args,
    gateway: &'a Gateway,
    driver: StreamDriver<E>,
    installed: Option<Installed>,
    shows: bool,
    /// End of the last connection.
    last_end: Option<Time>,
    /// Whether the last write of the statistics failed, which the user was warned of.
    unwritten: bool,
    /// Lateness of slowlight's own TCP, if it is in use.
    punctuality: Option<Punctuality>,
    /// Whether the user was warned that slowlight's own TCP is late.
    doubted: bool,
}

impl<'a, E: Proxy> Running<'a, E> {
    fn start(args: &'a Args, gateway: &'a Gateway, engine: E) -> Result<Self> {
        let listen = listening(gateway);
        // A few more than the proxy's: closed streams that still send.
        let streams_max = 2 * gateway.limits.connections + DESCRIPTORS as usize / 2;
        let options = options(&gateway.lan.kernel);
        let config = StreamConfig { listen, options, streams_max, ..StreamConfig::default() };
        let driver = StreamDriver::new(config, engine, Waker::new()?).map_err(|error| {
            let [first, second] = gateway.rules.ports();
            anyhow!(error).context(format!(
                "the gateway cannot listen on ports {first} and {second} of the loopback address; \
                 another program may have one of them: choose others by rules.port"
            ))
        })?;
        let shows = !args.quiet && io::stderr().is_terminal();
        Ok(Self {
            args,
            gateway,
            driver,
            installed: None,
            shows,
            last_end: None,
            unwritten: false,
            punctuality: None,
            doubted: false,
        })
    }

    /// Requests real-time priority, and measures the lateness of slowlight's own TCP.
    fn measure(&mut self) {
        let punctuality = Punctuality::hurry(Bounds::default());
        self.driver.set_timings(punctuality.timings());
        self.punctuality = Some(punctuality);
    }

    /// Runs the gateway while its rules are installed.
    fn carry_out(
        mut self,
        rules: Rules,
        lock: UnixListener,
        stop: &AtomicBool,
        dump: &AtomicBool,
    ) -> Result<ExitCode> {
        let linger = self.gateway.limits.linger.duration();
        self.installed = Some(rules.set(linger)?);
        self.print("the gateway is ready");
        let ended = self.run(stop, dump);
        let now = self.driver.now();
        let over = self.last_end.map_or(Duration::ZERO, |at| (at + linger).since(now));
        let installed = self.installed.take();
        let gateway = self.gateway;
        // Frees the ports and the device for the next gateway.
        drop(self);
        if let Some(installed) = installed {
            installed.remove(gateway, lock, over)?;
        }
        ended.map(|()| Exit::Done.into())
    }

    fn print(&self, text: &str) {
        if !self.args.quiet {
            // Nothing can be done about a standard error that is closed.
            let _ = writeln!(io::stderr(), "{text}");
        }
    }

    /// Runs until a request to stop, and until all connections have ended or timed out.
    fn run(&mut self, stop: &AtomicBool, dump: &AtomicBool) -> Result<()> {
        let interval = self.args.interval.duration().max(Duration::from_millis(100));
        let mut next = self.driver.now() + interval;
        let verbose = self.args.verbose;
        let mut draining: Option<Time> = None;
        loop {
            let mut due = false;
            let last_end = &mut self.last_end;
            self.driver.run(|now, engine, event| {
                if let StreamEvent::Indication(indication) = event {
                    if matches!(indication, Indication::Closed { .. }) {
                        *last_end = Some(now);
                    }
                    say_news(verbose, &indication);
                    return Control::Continue;
                }
                let over = draining.is_some_and(|until| now >= until || engine.is_idle());
                let is_requested = draining.is_none() && stop.load(Ordering::Relaxed);
                due = now >= next || dump.load(Ordering::Relaxed);
                if over || is_requested || due { Control::Stop } else { Control::Continue }
            })?;
            let now = self.driver.now();
            if due {
                self.report(dump.swap(false, Ordering::Relaxed));
                next = self.driver.now() + interval;
            }
            match draining {
                None if stop.load(Ordering::Relaxed) => {
                    self.pass_new();
                    draining = Some(now + self.gateway.limits.drain.duration());
                }
                Some(until) if now >= until || self.is_idle() => return self.end(),
                Some(_) | None => {}
            }
        }
    }

    fn is_idle(&self) -> bool {
        self.driver.engine().is_idle()
    }

    /// Stops intercepting new connections, or resets them if that is impossible.
    fn pass_new(&mut self) {
        let now = self.driver.now();
        self.driver.engine_mut().ask(now, Pep::stop_accepting);
        match self.installed.as_ref().map(Installed::pass_new) {
            Some(Ok(true)) => self.driver.stop_accepting(),
            Some(Ok(false)) | None => {}
            Some(Err(error)) => self.print(&format!("new connections are reset: {error:#}")),
        }
        let open = self.driver.engine_mut().pep().statistics().open;
        if open > 0 {
            self.print(&format!("{open} connections are waited for"));
        }
    }

    /// Resets the remaining connections, and prints the statistics.
    fn end(&mut self) -> Result<()> {
        let verbose = self.args.verbose;
        let now = self.driver.now();
        self.driver.engine_mut().ask(now, |pep| pep.reset_all(now));
        self.driver.run(|_, _, event| match event {
            StreamEvent::Indication(indication) => {
                say_news(verbose, &indication);
                Control::Continue
            }
            StreamEvent::Turn => Control::Stop,
        })?;
        self.report(false);
        let now = self.driver.now();
        let line = report::line(now, self.driver.engine_mut().pep());
        self.print(&line);
        Ok(())
    }

    /// Prints statistics, at intervals or on request by a signal.
    fn report(&mut self, is_requested: bool) {
        let (now, streams) = (self.driver.now(), self.driver.statistics());
        let interface = self.driver.interface();
        let account = self.punctuality.as_ref().map(Punctuality::account);
        if let Some(account) = account.as_ref().filter(|account| !account.doubts.is_empty())
            && !std::mem::replace(&mut self.doubted, true)
        {
            self.print(&format!("slowlight's own TCP: {}", account.text()));
        }
        let engine = self.driver.engine_mut();
        if self.args.json.is_some() || is_requested {
            let value =
                report::value(now, engine, &streams, interface.as_ref().zip(account.as_ref()));
            match &self.args.json {
                Some(path) => {
                    let failed = report::write(path, &value).err();
                    if let Some(error) = failed.as_ref().filter(|_| !self.unwritten) {
                        tracing::warn!("the statistics cannot be written: {error:#}");
                    }
                    self.unwritten = failed.is_some();
                }
                // The gateway continues although nobody reads its output.
                None => _ = writeln!(io::stdout(), "{value}"),
            }
        }
        if self.shows {
            let line = report::line(now, engine.pep());
            self.print(&line);
        }
    }
}

fn say_news(verbose: bool, indication: &Indication) {
    if verbose {
        let _ = writeln!(io::stderr(), "{}", report::news(indication));
    }
}
