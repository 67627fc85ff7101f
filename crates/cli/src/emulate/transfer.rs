//! `slowlight emu transfer`: a file between hosts of a world that stays.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use control::model::{Transfer, TransferRequest, TransferState};
use lab::adapter;
use service::http::{Client, Method};
use testbed::emulation;
use transport::quantity::{Size, Span};

use super::control::{Which, client_error};
use crate::Usage;
use crate::compute::simulate;
use crate::compute::table::Page;
use crate::stop::stop_flag;

/// How often the world is asked how the transfer stands.
const LOOK: Duration = Duration::from_millis(50);
/// What a command reports that ctrl-C or another signal has stopped, as shells do.
const STOPPED: u8 = 130;

/// Options of `emu transfer`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    which: Which,

    /// The host that has the file
    #[arg(long, value_name = "HOST", default_value = emulation::ENDS.0)]
    from: String,

    /// The host that shall have it
    #[arg(long, value_name = "HOST", default_value = emulation::ENDS.1)]
    to: String,

    /// The protocol; that of the hosts in the world's scenario, or cfdp, if left out
    #[arg(long, value_name = "PROTOCOL")]
    protocol: Option<String>,

    /// A program of others, in place of a protocol: a name (see `slowlight emu tools`), or the path of
    /// an adapter, which ends in .toml
    #[arg(long, value_name = "TOOL", conflicts_with = "protocol")]
    tool: Option<String>,

    /// File to carry
    #[arg(long, value_name = "PATH", conflicts_with = "size")]
    file: Option<PathBuf>,

    /// Size of a made-up file, like "1MB"
    #[arg(long, value_name = "SIZE", default_value = "10MB", allow_hyphen_values = true)]
    size: Size,

    /// How long it may take
    #[arg(long, value_name = "TIME", default_value = "10 min", allow_hyphen_values = true)]
    timeout: Span,

    /// Print what is known of the transfer as JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Runs the command.
    pub(super) fn run(&self) -> anyhow::Result<ExitCode> {
        let client = self.which.client()?;
        let request = serde_json::to_value(self.request()?)?;
        let stop = stop_flag()?;
        let reply = client.ask(Method::POST, "/transfers", Some(&request)).map_err(client_error)?;
        let Transfer { id, .. } = serde_json::from_value(reply)?;
        let path = format!("/transfers/{id}");
        let done = follow(&client, &path, &stop)?;
        if self.json {
            writeln!(io::stdout(), "{}", serde_json::to_string_pretty(&done)?)?;
        } else {
            print_end(&done)?;
        }
        Ok(match done.state {
            TransferState::Completed => ExitCode::SUCCESS,
            _ if stop.load(Ordering::Relaxed) => ExitCode::from(STOPPED),
            TransferState::Running | TransferState::Failed | TransferState::Stopped => {
                ExitCode::FAILURE
            }
        })
    }

    fn request(&self) -> anyhow::Result<TransferRequest> {
        let absolute = |path: &PathBuf| {
            let path = std::path::absolute(path).context("finding the file")?;
            path.into_os_string().into_string().map_err(|path| {
                Usage(format!("{}: a path is text here", path.to_string_lossy())).into()
            })
        };
        let tool = self.tool.clone().map(|tool| match adapter::is_path(&tool) {
            true => absolute(&tool.into()),
            false => Ok(tool),
        });
        let file: Option<anyhow::Result<String>> = self.file.as_ref().map(absolute);
        Ok(TransferRequest {
            from: self.from.clone(),
            to: self.to.clone(),
            protocol: self.protocol.clone(),
            tool: tool.transpose()?,
            size: file.is_none().then(|| self.size.to_string()),
            file: file.transpose()?,
            timeout: Some(self.timeout.to_string()),
        })
    }
}

/// Waits until a transfer has ended, or stops it when this program is asked to end.
fn follow(
    client: &Client,
    path: &str,
    stop: &std::sync::atomic::AtomicBool,
) -> anyhow::Result<Transfer> {
    let mut is_cancelled = false;
    loop {
        let now: Transfer = client.get(path).map_err(client_error)?;
        match now.state {
            TransferState::Running => {}
            TransferState::Completed | TransferState::Failed | TransferState::Stopped => {
                return Ok(now);
            }
        }
        if stop.load(Ordering::Relaxed) && !is_cancelled {
            client.ask(Method::DELETE, path, None).map_err(client_error)?;
            is_cancelled = true;
        }
        thread::sleep(LOOK);
    }
}

fn print_end(done: &Transfer) -> anyhow::Result<()> {
    if let Some(result) = &done.result {
        writeln!(
            io::stdout(),
            "{}",
            simulate::table(std::slice::from_ref(result)).drawn(Page::stdout())
        )?;
    }
    for doubt in &done.doubts {
        writeln!(io::stderr(), "not trustworthy: {doubt}")?;
    }
    if let Some(why) = &done.why {
        let Transfer { id, protocol, .. } = done;
        writeln!(io::stderr(), "transfer {id} by {protocol}: {why}")?;
    }
    Ok(())
}
