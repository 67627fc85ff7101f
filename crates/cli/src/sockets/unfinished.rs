//! `slowlight unfinished`: kept state of transfers that a command would resume.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::{Context as _, Result};
use serde::Serialize;
use serde_json::Value;
use transport::quantity::{Size, Span};

use crate::Usage;
use crate::exit::Exit;
use crate::show;
use crate::sockets::session::{BUNDLES, TRANSFER};
use crate::state::state_home;

/// Options of `unfinished`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Transfers to list, by the name of their state [default: all]
    #[arg(value_name = "NAME")]
    names: Vec<String>,

    /// Only transfers without progress for this time, e.g. "7 d"
    #[arg(long, value_name = "DURATION")]
    older_than: Option<Span>,

    /// Remove the state of the listed transfers; the same commands then send the whole files
    #[arg(long)]
    remove: bool,

    /// Print as JSON
    #[arg(long)]
    json: bool,

    /// Directory of the state [default: $XDG_STATE_HOME/slowlight or ~/.local/state/slowlight]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
}

/// State of one transfer.
#[derive(Debug, Serialize)]
struct Kept {
    /// Name of its folder.
    name: String,
    /// Command that resumes it.
    command: &'static str,
    /// File that is sent; empty if the state is torn.
    file: String,
    to: String,
    /// Seconds since the last progress.
    age_s: u64,
    /// Bytes of the state.
    bytes: u64,
}

/// Prefix of the folders.
const SEND: &str = "send-";

impl Kept {
    /// Reads an entry of the state folder; `None` for other files.
    fn read(path: &Path, now: SystemTime) -> Result<Option<Self>> {
        let name = path.file_name().and_then(|name| name.to_str());
        let Some(name) = name.filter(|name| name.starts_with(SEND) && path.is_dir()) else {
            return Ok(None);
        };
        let text = fs::read(path.join(TRANSFER)).ok();
        let value: Value =
            text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
        let field = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
        let command = if field("request").starts_with(BUNDLES) { "bp send" } else { "send" };
        let (bytes, changed) = extent(path)?;
        let age = now.duration_since(changed).unwrap_or_default();
        let (file, to) = (field("file"), field("to"));
        Ok(Some(Self { name: name.to_owned(), command, file, to, age_s: age.as_secs(), bytes }))
    }

    /// Removes the state, unless a process uses it.
    fn remove(&self, base: &Path) -> Result<()> {
        let path = base.join(&self.name);
        let waker = rt::Waker::new()?;
        let config = rt::StoreConfig { state: path.clone(), ..rt::StoreConfig::new(&path) };
        // Holds the lock until the folder is gone.
        let _store = rt::FileStore::open(config, &waker)?;
        fs::remove_dir_all(&path).with_context(|| path.display().to_string())
    }
}

/// Bytes of a file or folder, and the time of its last change.
fn extent(path: &Path) -> Result<(u64, SystemTime)> {
    let found = path.symlink_metadata().with_context(|| path.display().to_string())?;
    let (mut bytes, mut changed) = (found.len(), found.modified()?);
    if found.is_dir() {
        bytes = 0;
        for entry in fs::read_dir(path)? {
            let (more, at) = extent(&entry?.path())?;
            bytes += more;
            changed = changed.max(at);
        }
    }
    Ok((bytes, changed))
}

/// Entries of the state folder, the latest first.
fn all(base: &Path) -> Result<Vec<Kept>> {
    let now = SystemTime::now();
    let entries = match fs::read_dir(base) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| base.display().to_string()),
    };
    let mut all = Vec::new();
    for entry in entries {
        all.extend(Kept::read(&entry?.path(), now)?);
    }
    all.sort_by(|a, b| (a.age_s, &a.name).cmp(&(b.age_s, &b.name)));
    Ok(all)
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let base = args.state.clone().map_or_else(state_home, Ok)?;
    let mut found = all(&base)?;
    if let Some(name) = args.names.iter().find(|name| found.iter().all(|kept| kept.name != **name))
    {
        return Err(Usage(format!("{} has no state of a transfer {name:?}", base.display())).into());
    }
    found.retain(|kept| {
        let is_old = args.older_than.is_none_or(|age| kept.age_s >= age.duration().as_secs());
        is_old && (args.names.is_empty() || args.names.contains(&kept.name))
    });
    let mut out = io::stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&found)?)?;
    }
    let verb = if args.remove { "removed " } else { "" };
    for kept in &found {
        if args.remove {
            kept.remove(&base)?;
        }
        if args.json {
            continue;
        }
        let Kept { name, command, file, to, age_s, bytes } = kept;
        let age = show::duration(*age_s as f64);
        let what = if file.is_empty() {
            "the next command sends the whole file".to_owned()
        } else {
            format!("{command} {file} to {to}")
        };
        writeln!(out, "{verb}{name}: {what}; unchanged for {age}, {} of state", Size(*bytes))?;
    }
    Ok(Exit::Done.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(base: &Path) -> Vec<String> {
        let mut names: Vec<_> = all(base).unwrap().into_iter().map(|kept| kept.name).collect();
        names.sort();
        names
    }

    #[test]
    fn unfinished_transfers_are_listed_and_removed() {
        let place = tempfile::tempdir().unwrap();
        let base = place.path();
        fs::write(base.join("loss.json"), "{}").unwrap();
        for folder in ["send-1", "send-2", "send-3"] {
            fs::create_dir(base.join(folder)).unwrap();
        }
        let transfer = r#"{"file":"/g","to":"far:7542","bytes":3}"#;
        fs::write(base.join("send-2/transfer.json"), transfer).unwrap();
        let bundles = r#"{"file":"/f","to":"ipn:2.1","request":"bundles None"}"#;
        fs::write(base.join("send-1/transfer.json"), bundles).unwrap();
        let found = all(base).unwrap();
        let of = |name: &str| found.iter().find(|kept| kept.name == name).unwrap();
        let (bundles, file) = (of("send-1"), of("send-2"));
        assert_eq!((bundles.command, &*bundles.file, &*bundles.to), ("bp send", "/f", "ipn:2.1"));
        assert_eq!((file.command, &*file.file, &*file.to), ("send", "/g", "far:7542"));
        assert_eq!((file.bytes, &*of("send-3").file), (transfer.len() as u64, ""));
        let args = |names: &[&str], older_than: &str| Args {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            older_than: Some(older_than.parse().unwrap()),
            remove: true,
            json: true,
            state: Some(base.to_owned()),
        };
        run(&args(&[], "1 d")).unwrap();
        assert_eq!(names(base), ["send-1", "send-2", "send-3"], "all are young");
        run(&args(&["send-2"], "0 s")).unwrap();
        assert_eq!(names(base), ["send-1", "send-3"]);
        let error = run(&args(&["send-2"], "0 s")).unwrap_err();
        assert!(error.is::<Usage>(), "{error}");
        // Of a transfer that runs, nothing is removed.
        let (waker, state) = (rt::Waker::new().unwrap(), base.join("send-3"));
        let config = rt::StoreConfig { state: state.clone(), ..rt::StoreConfig::new(&state) };
        let store = rt::FileStore::open(config, &waker).unwrap();
        let error = run(&args(&["send-3"], "0 s")).unwrap_err();
        assert!(error.to_string().contains("in use"), "{error}");
        drop(store);
        run(&args(&[], "0 s")).unwrap();
        assert!(names(base).is_empty() && base.join("loss.json").exists());
    }
}
