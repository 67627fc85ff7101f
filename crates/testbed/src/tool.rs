//! External programs, run by their [adapters](lab::adapter) between hosts of the emulator.

use std::env;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use emu::Host;
use lab::adapter::{Adapter, Need, Ready, Verdict};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use transport::text::SpecError;

use crate::scratch::Scratch;

/// Timeout until a server is ready.
const READY_MAX: Duration = Duration::from_secs(10);
/// Polling interval.
const LOOK: Duration = Duration::from_millis(2);
/// Maximum bytes of a program's output in an error.
const OUTPUT_MAX: usize = 600;
/// Name of the file where a tool accepts one; needs no quotes.
const NAME: &str = "file";
/// Environment variables that would lead tools to a proxy.
const PROXIES: [&str; 4] = ["http_proxy", "https_proxy", "ftp_proxy", "all_proxy"];
/// Rate for tools that need one where links have none, in bit/s.
const RATE: u64 = 1_000_000_000;
/// Inverse of the share of the links' rate that tools leave free.
const SPARED: u64 = 20;

/// A file to be transferred by a tool.
#[derive(Debug)]
pub struct Job<'a> {
    /// Tool.
    pub adapter: &'a Adapter,
    /// File.
    pub file: &'a Path,
    /// Size in bytes.
    pub bytes: u64,
    /// SHA-256 of the file.
    pub sha256: [u8; 32],
    /// Sending host.
    pub from: &'a Host,
    /// Receiving host.
    pub to: &'a Host,
    /// Port of its server: the adapter's, unless that is in use.
    pub port: u16,
    /// Second port if the adapter has one, chosen likewise.
    pub port2: Option<u16>,
    /// Rate of the slowest link on the route, in bit/s; tools that need a rate get a little less.
    pub rate: Option<u64>,
    /// Time limit.
    pub limit: Duration,
}

/// Outcome of a transfer by a tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Verdict.
    pub verdict: Verdict,
    /// Time from the client's start to its end, in seconds; `None` if it failed.
    pub seconds: Option<f64>,
    /// Goodput in bit/s: bytes of the file over that time, or as the tool measures it.
    pub goodput_bps: Option<f64>,
    /// Reason for its failure.
    pub why: Option<String>,
}

/// Checks that this machine has everything that a tool needs.
///
/// # Errors
///
/// Names the first missing program, and how to install it.
pub fn check(adapter: &Adapter) -> Result<(), SpecError> {
    let missing = missing(adapter);
    let error = |need: &&Need| SpecError::invalid(format!("{}: {need}", adapter.name));
    missing.first().map(error).map_or(Ok(()), Err)
}

/// Returns the programs that a tool needs and this machine lacks.
#[must_use]
pub fn missing(adapter: &Adapter) -> Vec<&Need> {
    adapter.needs.iter().filter(|need| !is_met(need)).collect()
}

fn is_met(need: &Need) -> bool {
    match need {
        Need::Program { name, .. } => {
            let path = env::var_os("PATH").unwrap_or_default();
            let of_system = ["/usr/sbin", "/sbin"].map(PathBuf::from);
            let mut folders = env::split_paths(&path).chain(of_system);
            folders.any(|folder| folder.join(name).is_file())
        }
        Need::CongestionControl(name) => {
            let available = "/proc/sys/net/ipv4/tcp_available_congestion_control";
            let available = fs::read_to_string(available).unwrap_or_default();
            available.split_whitespace().any(|known| known == name)
        }
    }
}

/// Returns the SHA-256 of a file.
///
/// # Errors
///
/// The file cannot be read.
pub fn sha256(path: &Path) -> io::Result<[u8; 32]> {
    let mut file = File::open(path)?;
    let (mut hash, mut room) = (Sha256::new(), vec![0; 1 << 16]);
    loop {
        match file.read(&mut room)? {
            0 => return Ok(hash.finalize().into()),
            len => hash.update(&room[..len]),
        }
    }
}

impl Job<'_> {
    /// Runs the tool. Afterwards its folder is removed and its remaining processes are killed.
    ///
    /// # Errors
    ///
    /// The system refused a folder or a process. Failures of the tool itself are in the outcome.
    pub fn run(&self, cancelled: &AtomicBool) -> io::Result<Outcome> {
        match self.prepare(cancelled)? {
            Ok(prepared) => prepared.run(cancelled),
            Err(outcome) => Ok(outcome),
        }
    }

    /// Prepares everything before the client, which may then start at any time; or returns the
    /// failure.
    ///
    /// # Errors
    ///
    /// The system refused a folder or a process.
    pub fn prepare(&self, cancelled: &AtomicBool) -> io::Result<Result<Prepared<'_>, Outcome>> {
        let folder = Scratch::new()?;
        let place = Place::new(folder.path())?;
        let (at, peer) =
            if self.adapter.pulls { (self.to, self.from) } else { (self.from, self.to) };
        if let Some(prepare) = &self.adapter.prepare {
            let mut command = self.shell(&place, at, peer)?;
            let status = Running::start(command.arg("-e"), &place, "prepare", prepare)?
                .end(READY_MAX, cancelled)?;
            if !status.is_some_and(|status| status.success()) {
                let stopped = cancelled.load(Ordering::Relaxed);
                let why = if stopped { "stopped" } else { "preparing it failed" };
                return Ok(Err(failed(why, &place, "prepare")));
            }
        }
        let mut server = match &self.adapter.server {
            Some(text) => {
                let mut command = self.shell(&place, peer, at)?;
                Some(Running::start(peer.command(&mut command), &place, "server", text)?)
            }
            None => None,
        };
        if let (Some(server), Some(ready)) = (&mut server, self.adapter.ready)
            && let Some(why) = self.await_ready(server, peer, ready, cancelled)?
        {
            return Ok(Err(failed(&why, &place, "server")));
        }
        Ok(Ok(Prepared { job: self, at, peer, _server: server, place, _folder: folder }))
    }

    /// Judges the outcome of a client that exited successfully.
    fn judge(&self, place: &Place, seconds: f64) -> io::Result<Outcome> {
        if let Some(pointer) = &self.adapter.goodput {
            let result = fs::read(place.folder.join("client.out"))?;
            let result = serde_json::from_slice::<serde_json::Value>(&result).ok();
            let goodput = result.as_ref().and_then(|result| result.pointer(pointer)?.as_f64());
            let Some(goodput) = goodput else {
                let why = format!("its output is not JSON with a number at {pointer}");
                return Ok(failed(&why, place, "client"));
            };
            let (verdict, why) = (Verdict::Measured, None);
            let (seconds, goodput_bps) = (Some(seconds), Some(goodput));
            return Ok(Outcome { verdict, seconds, goodput_bps, why });
        }
        let Some(arrived) = place.arrived()? else {
            return Ok(failed("no file has arrived", place, "client"));
        };
        if sha256(&arrived)? != self.sha256 {
            let why = Some("a different file has arrived".to_owned());
            let (verdict, seconds, goodput_bps) = (Verdict::Different, None, None);
            return Ok(Outcome { verdict, seconds, goodput_bps, why });
        }
        let goodput_bps = Some(self.bytes as f64 * 8.0 / seconds);
        let seconds = Some(seconds);
        Ok(Outcome { verdict: Verdict::Identical, seconds, goodput_bps, why: None })
    }

    /// Returns a shell with the variables of an adapter's commands, in its own PID namespace, so
    /// that all its processes end with it.
    fn shell(&self, place: &Place, at: &Host, peer: &Host) -> io::Result<Command> {
        let mut command = Command::new("unshare");
        command.args(["--fork", "--pid", "--kill-child=KILL", "--", "/bin/sh"]);
        // The world has no proxy.
        for name in PROXIES {
            command.env_remove(name).env_remove(name.to_uppercase());
        }
        let rate = self.rate.map_or(RATE, offered_rate);
        command
            .env("DIR", &place.folder)
            .env("IN", &place.input)
            .env("OUT", &place.out)
            .env("FILE", fs::canonicalize(self.file)?)
            .env("NAME", NAME)
            .env("PEER", peer.plan().address.to_string())
            .env("HERE", at.plan().address.to_string())
            .env("PORT", self.port.to_string())
            .env("BYTES", self.bytes.to_string())
            .env("RATE", rate.to_string())
            .env("RATE_KBPS", (rate / 1_000).max(1).to_string())
            .env("SECONDS", self.limit.as_secs().to_string())
            .env("LC_ALL", "C");
        if let Some(port) = self.port2 {
            command.env("PORT2", port.to_string());
        }
        Ok(command)
    }

    /// Waits for the server. Returns the reason if it does not become ready.
    fn await_ready(
        &self,
        server: &mut Running,
        at: &Host,
        ready: Ready,
        cancelled: &AtomicBool,
    ) -> io::Result<Option<String>> {
        let started = Instant::now();
        while !listens(at, ready, self.port)? {
            if let Some(status) = server.child.try_wait()? {
                return Ok(Some(format!("its server ended with {status}")));
            }
            if cancelled.load(Ordering::Relaxed) {
                return Ok(Some("stopped".to_owned()));
            }
            if started.elapsed() > READY_MAX {
                let port = self.port;
                return Ok(Some(format!("its server does not listen on port {port}")));
            }
            std::thread::sleep(LOOK);
        }
        Ok(None)
    }
}

/// A prepared tool, whose client has yet to start. Dropping it cleans up.
#[derive(Debug)]
pub struct Prepared<'a> {
    job: &'a Job<'a>,
    /// Hosts of the client and of the server.
    at: &'a Host,
    peer: &'a Host,
    // Processes end before their folder is removed.
    _server: Option<Running>,
    place: Place,
    _folder: Scratch,
}

impl Prepared<'_> {
    /// Runs the client.
    ///
    /// # Errors
    ///
    /// See [`Job::run`].
    pub fn run(self, cancelled: &AtomicBool) -> io::Result<Outcome> {
        let Self { job, at, peer, ref place, .. } = self;
        let mut command = job.shell(place, at, peer)?;
        let started = Instant::now();
        let text = &job.adapter.client;
        let client = Running::start(at.command(&mut command), place, "client", text)?;
        let status = client.end(job.limit, cancelled)?;
        let seconds = started.elapsed().as_secs_f64();
        match status {
            None if cancelled.load(Ordering::Relaxed) => Ok(failed("stopped", place, "client")),
            None => {
                let limit = job.limit.as_secs_f64();
                Ok(failed(&format!("not over after {limit} s"), place, "client"))
            }
            Some(status) if !status.success() => {
                Ok(failed(&format!("it ended with {status}"), place, "client"))
            }
            Some(_) => job.judge(place, seconds),
        }
    }
}

/// Working folder of a tool.
#[derive(Debug)]
struct Place {
    folder: PathBuf,
    input: PathBuf,
    out: PathBuf,
}

impl Place {
    fn new(folder: &Path) -> io::Result<Self> {
        let input = folder.join("in");
        fs::create_dir(&input)?;
        let out = input.join(NAME);
        Ok(Self { folder: folder.to_owned(), input, out })
    }

    /// Returns the received file: under its new name, or alone under its old one.
    fn arrived(&self) -> io::Result<Option<PathBuf>> {
        if self.out.is_file() {
            return Ok(Some(self.out.clone()));
        }
        let entries = self.input.read_dir()?.collect::<Result<Vec<_>, _>>()?;
        let mut files = entries.iter().map(fs::DirEntry::path).filter(|path| path.is_file());
        Ok(files.next().filter(|_| files.next().is_none()))
    }

    /// Returns the end of a program's output.
    fn output(&self, who: &str) -> String {
        let read = |tail: &str| fs::read(self.folder.join(format!("{who}.{tail}")));
        let output = ["err", "out"].map(|tail| read(tail).unwrap_or_default());
        let output = output.iter().find(|output| !output.trim_ascii().is_empty());
        let output = String::from_utf8_lossy(output.map_or(&[], Vec::as_slice));
        let output = output.trim();
        let start = output.len().saturating_sub(OUTPUT_MAX);
        let start = (start..=output.len()).find(|start| output.is_char_boundary(*start));
        output[start.unwrap_or_default()..].to_owned()
    }
}

/// Rate for a tool, 95 % of the links'; never 0, which many interpret as unlimited.
fn offered_rate(rate: u64) -> u64 {
    (rate - rate.div_ceil(SPARED)).max(1)
}

fn failed(why: &str, place: &Place, who: &str) -> Outcome {
    let output = place.output(who);
    let why = if output.is_empty() { why.to_owned() } else { format!("{why}: {output}") };
    Outcome { verdict: Verdict::Failed, seconds: None, goodput_bps: None, why: Some(why) }
}

/// A process that is killed when this is dropped.
#[derive(Debug)]
struct Running {
    child: Child,
}

impl Running {
    /// Starts the shell `command` with the script `text`; its output goes into files named after
    /// `who`.
    fn start(command: &mut Command, place: &Place, who: &str, text: &str) -> io::Result<Self> {
        let file = |tail: &str| File::create(place.folder.join(format!("{who}.{tail}")));
        command.arg("-c").arg(text).current_dir(&place.folder);
        command.stdin(Stdio::null()).stdout(file("out")?).stderr(file("err")?);
        // A terminal's interrupt is handled by this process, which ends the others.
        let child = emu::unmarked(command).process_group(0).spawn().map_err(|error| {
            let remedy = "tools need `unshare` of util-linux";
            io::Error::new(error.kind(), format!("unshare: {error}; {remedy}"))
        })?;
        Ok(Self { child })
    }

    /// Waits for its end; `None` if it takes longer than `limit`, or is cancelled.
    fn end(mut self, limit: Duration, cancelled: &AtomicBool) -> io::Result<Option<ExitStatus>> {
        let started = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(Some(status));
            }
            if started.elapsed() > limit || cancelled.load(Ordering::Relaxed) {
                return Ok(None);
            }
            std::thread::sleep(LOOK);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether a socket listens on a port of a host.
pub(crate) fn listens(host: &Host, ready: Ready, port: u16) -> io::Result<bool> {
    let of = |it: &emu::Listening| match ready {
        Ready::Tcp => it.tcp_port(),
        Ready::Udp => it.udp_port(),
    };
    Ok(emu::listening(host)?.iter().any(|it| of(it) == Some(port)))
}

#[cfg(test)]
mod tests {
    use lab::adapter::Adapters;

    use super::*;

    #[test]
    fn tools_get_less_than_the_rate_of_links_but_never_zero() {
        let result = [8_000_000, 100, 99, 20, 1, u64::MAX].map(offered_rate);
        assert_eq!(result, [7_600_000, 95, 94, 19, 1, 17_524_406_870_024_074_034]);
    }

    #[test]
    fn missing_programs_are_named_with_a_remedy() {
        let text = "client = \"x\"\nport = 1\nneeds = [{ program = \"no-such-tool\", package = \
                    \"none-such\" }, { program = \"sh\", package = \"dash\" }, \
                    { congestion_control = \"psychic\" }]";
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("x.toml"), text).unwrap();
        let adapter = Adapters::with(Some(folder.path())).unwrap().find("x").unwrap();
        let missing: Vec<_> = missing(&adapter).into_iter().map(Need::to_string).collect();
        assert_eq!(missing.len(), 2);
        assert!(missing[0].contains("apt-get install none-such"), "{missing:?}");
        let error = check(&adapter).unwrap_err().to_string();
        assert!(error.starts_with("x: ") && error.contains("none-such"), "{error}");
        assert!(missing[1].contains("modprobe tcp_psychic"), "{missing:?}");
    }
}
