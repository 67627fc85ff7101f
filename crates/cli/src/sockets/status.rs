//! `slowlight status`: senders and receivers that run, and what they do.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use serde::Serialize;
use service::monitor::Status;

use crate::exit::Exit;
use crate::{show, state};

/// Folders that systemd gives to services.
const SERVICES: &str = "/run";

/// Options of `status`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print as JSON
    #[arg(long)]
    json: bool,

    /// Directory of the state, as of `send --state` [default: $XDG_STATE_HOME/slowlight or
    /// ~/.local/state/slowlight, and those of services below /run]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
}

impl Args {
    /// Folders with reports.
    fn folders(&self) -> Vec<PathBuf> {
        if let Some(state) = &self.state {
            return state::reports(Some(state)).into_iter().collect();
        }
        let services = std::fs::read_dir(SERVICES).into_iter().flatten().flatten();
        let is_own = |name: &std::ffi::OsStr| name.to_string_lossy().starts_with("slowlight");
        let services = services.filter(|entry| is_own(&entry.file_name()));
        let user = state::reports(None);
        user.into_iter().chain(services.map(|entry| entry.path().join("running"))).collect()
    }
}

/// A process, as `--json` prints it.
#[derive(Debug, Serialize)]
struct Process {
    /// Whether it still reports.
    running: bool,
    #[serde(flatten)]
    status: Status,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let mut all = Vec::new();
    for folder in args.folders() {
        match Status::read_all(&folder) {
            Ok(found) => all.extend(found),
            // Services of others keep theirs to themselves.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                tracing::warn!("{}: {error}", folder.display());
            }
            Err(error) => return Err(error).with_context(|| folder.display().to_string()),
        }
    }
    let all: Vec<Process> =
        all.into_iter().map(|status| Process { running: !status.is_stale(), status }).collect();
    let mut out = io::stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&all)?)?;
    } else if all.is_empty() {
        writeln!(out, "no sender of a watched folder and no receiver runs")?;
    }
    if !args.json {
        for process in &all {
            write(&mut out, process)?;
        }
    }
    Ok(Exit::if_succeeded(all.iter().all(|process| process.running)).into())
}

fn write(out: &mut impl Write, process: &Process) -> io::Result<()> {
    let Process { running, status } = process;
    let Status { role, pid, protocol, folder, address, .. } = status;
    let preposition = if role == "sender" { "to" } else { "at" };
    let folder = folder.display().to_string();
    let folder = folder.escape_debug();
    writeln!(out, "{role} {pid}: {folder} {preposition} {address} by {protocol}")?;
    let row = |out: &mut dyn Write, name: &str, value: &str| writeln!(out, "  {name:<10} {value}");
    if !running {
        let when = ago(status.reported);
        row(out, "state", &format!("does not run; its last report was {when}"))?;
    } else if let Some(pause) = &status.pause {
        row(out, "state", pause)?;
    } else if status.is_answered == Some(false) {
        row(out, "state", "the receiver does not reply")?;
    }
    let counted = |files: u64, bytes: u64| {
        let noun = if files == 1 { "file" } else { "files" };
        format!("{files} {noun}, {}", show::bytes(bytes as f64))
    };
    row(out, "since", &ago(status.began))?;
    let failed = match status.tally.failed {
        0 => String::new(),
        1 => "; 1 failure".to_owned(),
        failed => format!("; {failed} failures"),
    };
    let done = counted(status.tally.delivered_files, status.tally.delivered_bytes);
    row(out, if role == "sender" { "delivered" } else { "received" }, &format!("{done}{failed}"))?;
    for waiting in &status.waiting {
        let name = if status.waiting.len() == 1 { "" } else { &*waiting.class };
        let gap = if name.is_empty() { "" } else { ": " };
        let count = counted(waiting.files, waiting.bytes);
        row(out, "waiting", &format!("{name}{gap}{count}"))?;
    }
    for transfer in &status.transfers {
        let bytes = show::bytes(transfer.bytes as f64);
        let of = transfer.size.map(|size| format!(" of {}", show::bytes(size as f64)));
        let name = transfer.name.escape_debug();
        row(out, "transfer", &format!("{name}: {bytes}{}", of.unwrap_or_default()))?;
    }
    row(out, "rate", &show::rate(status.rate_bps))?;
    if let Some(error) = &status.tally.last_error {
        row(out, "last error", &format!("{}: {}", ago(error.time), error.text.escape_debug()))?;
    }
    Ok(())
}

/// Time since a date in seconds since 1970, with the date.
fn ago(date: u64) -> String {
    let date = UNIX_EPOCH + Duration::from_secs(date);
    let since = SystemTime::now().duration_since(date).unwrap_or_default();
    let date = humantime::format_rfc3339_seconds(date);
    format!("{} ago, {date}", show::duration(since.as_secs() as f64))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use service::monitor::{Note, Tally, Transfer, Waiting};

    use super::*;

    fn text(status: Status) -> String {
        let mut out = Vec::new();
        write(&mut out, &Process { running: !status.is_stale(), status }).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_status_names_what_waits_what_moves_and_what_failed() {
        let status = Status::begin("sender", "cfdp", Path::new("/out"), "192.0.2.7:7542");
        let waiting = |class: &str| Waiting { class: class.into(), files: 1, bytes: 1000 };
        let transfer =
            Transfer { name: "pack".into(), bytes: 5, size: Some(10), ..Default::default() };
        let status = Status {
            reported: status.began,
            is_answered: Some(false),
            waiting: vec![waiting("urgent"), waiting("others")],
            transfers: vec![transfer],
            tally: Tally {
                failed: 2,
                last_error: Some(Note::new("disk full")),
                ..Tally::default()
            },
            ..status
        };
        let shown = text(status.clone());
        for part in [
            ": /out to 192.0.2.7:7542 by cfdp\n",
            "the receiver does not reply",
            "0 files, 0 B; 2 failures",
            "urgent: 1 file, 1.00 kB",
            "pack: 5 B of 10 B",
            ": disk full",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        let paused = Status { pause: Some("no contact".into()), ..status.clone() };
        assert!(text(paused).contains("no contact"));
        let killed = Status { reported: 1_000_000_000, ..status };
        let shown = text(killed);
        assert!(
            shown.contains("does not run") && shown.contains("2001-09-09T01:46:40Z"),
            "{shown}"
        );
    }
}
