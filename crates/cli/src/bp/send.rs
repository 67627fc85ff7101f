//! Payloads on their way out.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use control::node::NodeClient;
use lab::quantity::Span;

use super::{Place, print};

#[derive(Debug, clap::Args)]
pub(super) struct SendArgs {
    /// The endpoint for which it is, as ipn:2.1
    to: String,

    /// Files, each the payload of one bundle; - is the standard input
    #[arg(required = true)]
    files: Vec<PathBuf>,

    /// The endpoint from which it comes: whole, or its service; the node itself if it is not said
    #[arg(long, value_name = "ENDPOINT")]
    from: Option<String>,

    /// How long it is of use
    #[arg(long, value_name = "TIME", default_value = "1 d")]
    lifetime: Span,

    /// bulk, normal or expedited, in this node's own queues
    #[arg(long, default_value = "normal")]
    priority: String,

    /// Say nothing but errors
    #[arg(long, short)]
    quiet: bool,

    #[command(flatten)]
    place: Place,
}

pub(super) fn run(args: &SendArgs) -> Result<ExitCode> {
    let mut client = args.place.connect()?;
    for file in &args.files {
        let id = if file == Path::new("-") {
            args.send(&mut client, io::stdin())?
        } else {
            let opened = File::open(file).with_context(|| file.display().to_string())?;
            args.send(&mut client, opened)?
        };
        if !args.quiet {
            print(&id)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

impl SendArgs {
    fn send(&self, client: &mut NodeClient, payload: impl Read + Send + 'static) -> Result<String> {
        let lifetime = self.lifetime.duration().as_millis().to_string();
        let mut asked = vec![
            ("to", self.to.as_str()),
            ("lifetime_ms", lifetime.as_str()),
            ("priority", self.priority.as_str()),
        ];
        asked.extend(self.from.as_deref().map(|from| ("from", from)));
        Ok(client.send(&asked, payload)?.id)
    }
}
