//! State of running senders and receivers of files: a file for `slowlight status`, an interface by
//! HTTP on a Unix socket, and notes to systemd.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::routing::get;
use axum::{Json, Router};
use sd_notify::NotifyState;
use serde::{Deserialize, Serialize};

use crate::http::{
    Access, Clients, Kind, Metrics, ServeError, Times, accept, not_started, remove_socket,
    replace_unix, runtime, with_fallbacks,
};

/// Bounds on clients of the socket.
const CLIENTS: Clients =
    Clients { most: 64, spare: 8, paths: &["/status", "/metrics"], times: Times::DEFAULT };

/// Time between two reports.
const INTERVAL: Duration = Duration::from_secs(1);
/// Age from which on the process of a report has ended, or hangs.
pub const STALE: Duration = Duration::from_secs(5);

/// Age from which on a report is removed.
const FORGOTTEN: Duration = Duration::from_secs(7 * 86_400);

/// State of a sender or a receiver.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// `sender` or `receiver`.
    pub role: String,
    /// Number of the process.
    pub pid: u32,
    /// The protocol, or several.
    pub protocol: String,
    /// Folder that is sent from, or received into.
    pub folder: PathBuf,
    /// Address of the receiver, or the one that is listened on.
    pub address: String,
    /// Seconds since 1970 of the start.
    pub began: u64,
    /// Seconds since 1970 of the report.
    pub reported: u64,
    /// Whether the receiver has replied; receivers have no value.
    pub is_answered: Option<bool>,
    /// Why nothing can be sent now, e.g. an outage.
    pub pause: Option<String>,
    /// Files that wait, by class.
    pub waiting: Vec<Waiting>,
    /// Transfers under way.
    pub transfers: Vec<Transfer>,
    /// Bits per second of the last seconds.
    pub rate_bps: f64,
    /// Deliveries and failures.
    #[serde(flatten)]
    pub tally: Tally,
}

/// Deliveries and failures since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tally {
    /// Files delivered.
    pub delivered_files: u64,
    /// Bytes delivered.
    pub delivered_bytes: u64,
    /// Failed transfers.
    pub failed: u64,
    /// The last failure.
    pub last_error: Option<Note>,
}

impl Tally {
    /// Notes a failure.
    pub fn fail(&mut self, text: impl Into<String>) {
        self.failed += 1;
        self.last_error = Some(Note::new(text));
    }
}

/// Files of a class that wait.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// Name of the class.
    pub class: String,
    /// Number of files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// A transfer under way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transfer {
    /// Its number.
    pub id: String,
    /// Name of the file, or the names of files.
    pub name: String,
    /// Bytes sent or received.
    pub bytes: u64,
    /// Bytes that the receiver confirmed, if known.
    pub confirmed: Option<u64>,
    /// All bytes, if known.
    pub size: Option<u64>,
}

/// Message and its time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// Seconds since 1970.
    pub time: u64,
    /// Text.
    pub text: String,
}

impl Note {
    /// A message of now.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self { time: now(), text: text.into() }
    }
}

impl Status {
    /// State of a process that begins.
    #[must_use]
    pub fn begin(role: &str, protocol: &str, folder: &Path, address: &str) -> Self {
        let (began, pid) = (now(), std::process::id());
        let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
        let [role, protocol, address] = [role, protocol, address].map(str::to_owned);
        Self { role, pid, protocol, folder, address, began, ..Self::default() }
    }

    /// Whether the process has ended, or hangs.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        now().saturating_sub(self.reported) >= STALE.as_secs()
    }

    /// Whether the process was killed so long ago that its report is worth nothing.
    fn is_forgotten(&self) -> bool {
        now().saturating_sub(self.reported) >= FORGOTTEN.as_secs()
    }

    /// Reports in a folder, of which a file is one. The files of processes that were killed are
    /// left there.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn read_all(folder: &Path) -> io::Result<Vec<Self>> {
        let entries = match fs::read_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut all: Vec<Self> = Vec::new();
        for entry in entries {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "json") {
                // It may end meanwhile.
                let text = fs::read(&path).unwrap_or_default();
                let found = serde_json::from_slice::<Self>(&text).ok();
                if found.as_ref().is_some_and(Self::is_forgotten) {
                    // Another user's stays, and is left out all the same.
                    let _ = fs::remove_file(path);
                } else {
                    all.extend(found);
                }
            }
        }
        all.sort_by(|a, b| (&a.role, &a.folder).cmp(&(&b.role, &b.folder)));
        Ok(all)
    }

    /// Name of its file. Processes that do the same have the same.
    fn file_name(&self) -> String {
        let is_plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        let plain = |text: &str| -> String {
            text.chars().map(|c| if is_plain(&c) { c } else { '_' }).collect()
        };
        let folder = plain(&self.folder.to_string_lossy());
        let end: String =
            folder.chars().rev().take(100).collect::<Vec<_>>().into_iter().rev().collect();
        format!("{}-{}-{end}.json", self.role, plain(&self.address))
    }

    fn metrics(&self) -> Metrics {
        let mut metrics = Metrics::new("slowlight");
        for (name, help, value) in [
            ("delivered_files", "Files delivered since the start", self.tally.delivered_files),
            ("delivered_bytes", "Bytes delivered since the start", self.tally.delivered_bytes),
            ("failed_transfers", "Transfers that failed since the start", self.tally.failed),
        ] {
            metrics.add(Kind::Counter, name, help, value);
        }
        for (name, help, value) in [
            ("transfers", "Transfers under way", self.transfers.len() as u64),
            ("rate_bits_per_second", "Rate of the last seconds", self.rate_bps as u64),
            (
                "paused",
                "1 while nothing can be sent, e.g. in an outage",
                self.pause.is_some().into(),
            ),
            ("start_time", "Start of the process, in seconds since 1970", self.began),
        ] {
            metrics.add(Kind::Gauge, name, help, value);
        }
        if let Some(is_answered) = self.is_answered {
            let help = "1 if the receiver has replied";
            metrics.add(Kind::Gauge, "answered", help, is_answered.into());
        }
        let mut by_class = |name: &str, help: &str, value: fn(&Waiting) -> u64| {
            let labelled = |it: &Waiting| (vec![("class", it.class.clone())], value(it));
            metrics.family(Kind::Gauge, name, help, self.waiting.iter().map(labelled));
        };
        by_class("waiting_files", "Files that wait", |waiting| waiting.files);
        by_class("waiting_bytes", "Bytes of the files that wait", |waiting| waiting.bytes);
        metrics
    }
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Reports of this process.
#[derive(Debug)]
pub struct Monitor {
    shared: Arc<Mutex<Status>>,
    file: Option<PathBuf>,
    socket: Option<PathBuf>,
    /// Time of the next report.
    due: Instant,
    /// Bytes moved by the reports of the last seconds.
    moved: Vec<(Instant, u64)>,
}

impl Monitor {
    /// Begins to report into the folder `reports`, if there is one, and at a Unix socket, if one is
    /// wanted. Informs systemd that the service is ready.
    ///
    /// # Errors
    /// The socket cannot be opened.
    pub fn begin(
        status: Status,
        reports: Option<&Path>,
        socket: Option<&Path>,
    ) -> Result<Self, ServeError> {
        let file = reports.map(|folder| folder.join(status.file_name()));
        if let Some(folder) = reports {
            // A report that cannot be written only costs the report.
            let _ = fs::create_dir_all(folder);
        }
        let shared = Arc::new(Mutex::new(status));
        if let Some(path) = socket {
            serve(path, Arc::clone(&shared))?;
        }
        tell_systemd(&[NotifyState::Ready]);
        let socket = socket.map(Path::to_owned);
        Ok(Self { shared, file, socket, due: Instant::now(), moved: Vec::new() })
    }

    /// Whether the next report is due.
    #[must_use]
    pub fn is_due(&self) -> bool {
        Instant::now() >= self.due
    }

    /// Reports the state, which `change` brings up to date; `moved` is the number of bytes that
    /// were sent or received since the start.
    pub fn report(&mut self, moved: u64, change: impl FnOnce(&mut Status)) {
        let at = Instant::now();
        self.due = at + INTERVAL;
        self.moved.push((at, moved));
        let first = self.moved.len().saturating_sub(WINDOW);
        self.moved.drain(..first);
        let text = {
            let mut status = lock(&self.shared);
            status.reported = now();
            change(&mut status);
            status.rate_bps = self.rate_bps();
            serde_json::to_vec(&*status).unwrap_or_default()
        };
        if let Some(file) = &self.file {
            let new = file.with_extension("new");
            if let Err(error) = fs::write(&new, text).and_then(|()| fs::rename(&new, file)) {
                tracing::debug!(%error, file = %file.display(), "the report cannot be written");
            }
        }
        tell_systemd(&[NotifyState::Watchdog]);
    }

    fn rate_bps(&self) -> f64 {
        let (Some((begin, before)), Some((end, after))) = (self.moved.first(), self.moved.last())
        else {
            return 0.0;
        };
        let elapsed = end.duration_since(*begin).as_secs_f64();
        if elapsed > 0.0 { after.saturating_sub(*before) as f64 * 8.0 / elapsed } else { 0.0 }
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        tell_systemd(&[NotifyState::Stopping]);
        // What cannot be removed is stale.
        let _ = self.file.as_ref().map(fs::remove_file);
        let _ = self.socket.as_ref().map(|path| remove_socket(path));
    }
}

/// Number of reports over which the rate is measured.
const WINDOW: usize = 10;

/// Informs systemd, if it started this process.
pub fn tell_systemd(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!(%error, "systemd cannot be informed");
    }
}

/// Each change leaves the state whole, so a panic elsewhere does too.
fn lock(shared: &Mutex<Status>) -> MutexGuard<'_, Status> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Serves the state in a thread of its own, until the process ends.
fn serve(path: &Path, shared: Arc<Mutex<Status>>) -> Result<(), ServeError> {
    let runtime = runtime()?;
    let inside = runtime.enter();
    let listener = replace_unix(path, Access { mode: 0o660, group: None })?;
    drop(inside);
    let router = router(shared);
    let run = move || runtime.block_on(accept(listener, router, CLIENTS));
    thread::Builder::new().name("monitor".to_owned()).spawn(run).map_err(not_started)?;
    Ok(())
}

fn router(shared: Arc<Mutex<Status>>) -> Router {
    let counted = Arc::clone(&shared);
    let router = Router::new()
        .route("/status", get(async move || Json(lock(&shared).clone())))
        .route("/metrics", get(async move || lock(&counted).metrics()));
    with_fallbacks(router, "there are /status and /metrics", "the state can only be read; use GET")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::{Client, Method};

    fn status() -> Status {
        let status = Status::begin("sender", "cfdp", Path::new("/out"), "[::1]:7542");
        let waiting = vec![
            Waiting { class: "urgent".into(), files: 1, bytes: 10 },
            Waiting { class: "others".into(), files: 2, bytes: 20 },
        ];
        let tally = Tally { delivered_files: 3, ..Tally::default() };
        Status { waiting, tally, is_answered: Some(true), ..status }
    }

    #[test]
    fn reports_are_read_until_the_process_ends() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("running");
        assert_eq!(Status::read_all(&folder).unwrap(), []);
        let mut monitor = Monitor::begin(status(), Some(&folder), None).unwrap();
        monitor.report(0, |status| status.tally.failed = 7);
        let [read] = Status::read_all(&folder).unwrap().try_into().unwrap();
        assert_eq!((read.tally.failed, read.is_stale(), &*read.role), (7, false, "sender"));
        fs::write(folder.join("torn.json"), "{").unwrap();
        assert_eq!(Status::read_all(&folder).unwrap(), [read]);
        drop(monitor);
        assert_eq!(Status::read_all(&folder).unwrap(), []);
        assert!(status().is_stale(), "it was never reported");
    }

    #[test]
    fn a_report_that_cannot_be_written_is_left_out() {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("running"), "").unwrap();
        let mut monitor =
            Monitor::begin(status(), Some(&place.path().join("running")), None).unwrap();
        monitor.report(0, |_| {});
    }

    #[test]
    fn the_socket_serves_state_and_metrics() {
        let place = tempfile::tempdir().unwrap();
        let socket = place.path().join("run/status.sock");
        let mut monitor = Monitor::begin(status(), None, Some(&socket)).unwrap();
        monitor.report(0, |_| {});
        let again = Monitor::begin(status(), None, Some(&socket)).unwrap_err().to_string();
        assert!(again.contains("another process answers there"), "{again}");
        let client = Client::new(&socket);
        let read: Status = client.get("/status").unwrap();
        assert_eq!(read.waiting, status().waiting);
        let refused = client.ask(Method::POST, "/status", None).unwrap_err().to_string();
        assert_eq!(refused, "the state can only be read; use GET");
        let text = status().metrics().text();
        for line in [
            "slowlight_delivered_files_total 3",
            r#"slowlight_waiting_files{class="others"} 2"#,
            r#"slowlight_waiting_bytes{class="urgent"} 10"#,
            "slowlight_answered 1",
            "slowlight_paused 0",
        ] {
            assert!(text.contains(&format!("\n{line}\n")), "{line}: {text}");
        }
        drop(monitor);
        assert!(!socket.exists());
    }

    #[test]
    fn names_of_reports_are_names_of_files() {
        let name = status().file_name();
        assert_eq!(name, "sender-___1__7542-_out.json");
        let folder = PathBuf::from("/x".repeat(3000));
        let long = Status { folder, ..status() }.file_name();
        assert!(long.len() < 200 && !long.contains('/'), "{long}");
    }
}
