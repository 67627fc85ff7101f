//! `slowlight emu transfer`: transfers a file between hosts of a world in the background.

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

use super::which::{Which, client_error};
use crate::compute::simulate;
use crate::compute::table::Page;
use crate::exit::Exit;
use crate::stop::stop_flag;
use crate::{Usage, doubts};

/// Interval of requests for the transfer's state.
const LOOK: Duration = Duration::from_millis(50);

/// Options of `emu transfer`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    which: Which,

    /// Sending host
    #[arg(long, value_name = "HOST", default_value = emulation::ENDS.0)]
    from: String,

    /// Receiving host
    #[arg(long, value_name = "HOST", default_value = emulation::ENDS.1)]
    to: String,

    /// Protocol [default: the hosts' in the scenario, or cfdp]
    #[arg(long, value_name = "PROTOCOL", value_parser = crate::known::protocol_name(), hide_possible_values = true)]
    protocol: Option<String>,

    /// Third-party program: a name of `slowlight emu tools`, or the path of an adapter (.toml)
    #[arg(long, value_name = "TOOL", conflicts_with = "protocol")]
    tool: Option<String>,

    /// File to transfer
    #[arg(long, value_name = "PATH", conflicts_with = "size")]
    file: Option<PathBuf>,

    /// Size of a generated file, e.g. "1 MB"
    #[arg(long, value_name = "SIZE", default_value = "10 MB", allow_hyphen_values = true)]
    size: Size,

    /// Timeout of the transfer
    #[arg(long, value_name = "DURATION", default_value = "10 min", allow_hyphen_values = true)]
    timeout: Span,

    /// Print the result as JSON
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
            TransferState::Completed => Exit::Done.into(),
            _ if stop.load(Ordering::Relaxed) => Exit::Interrupted.into(),
            TransferState::Running | TransferState::Failed | TransferState::Stopped => {
                Exit::Failed.into()
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
        let tool = self
            .tool
            .clone()
            .map(|tool| if adapter::is_path(&tool) { absolute(&tool.into()) } else { Ok(tool) });
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

/// Waits for the end of a transfer, or stops it when a signal requests that.
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
    if let Some(lines) = doubts::lines(&done.doubts, doubts::EMULATOR) {
        writeln!(io::stderr(), "{lines}")?;
    }
    if let Some(why) = &done.why {
        let Transfer { id, protocol, .. } = done;
        writeln!(io::stderr(), "transfer {id} by {protocol}: {why}")?;
    }
    Ok(())
}
