//! `slowlight bp send`: sends files as payloads of bundles.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use bp::codec::eid::Eid;
use service::api::NodeClient;
use service::http::ClientError;
use transport::quantity::{Size, Span};

use super::{Place, parts, print};
use crate::exit::Exit;
use crate::sockets::screen::Screen;

/// Minimum part size in bytes: the header takes at most a third of it.
const PART_MIN: u64 = 4096;

#[derive(Debug, clap::Args)]
pub(super) struct SendArgs {
    /// Destination endpoint, e.g. ipn:2.1
    pub(super) to: String,

    /// Files; - sends standard input as the payload of one bundle
    #[arg(required = true)]
    files: Vec<PathBuf>,

    /// Source endpoint, or its service number or name [default: the node's endpoint]
    #[arg(long, value_name = "ENDPOINT")]
    pub(super) from: Option<String>,

    /// Lifetime of the bundles
    #[arg(long, value_name = "DURATION", default_value = "1 d")]
    pub(super) lifetime: Span,

    /// Size of the parts of a longer file; `slowlight bp recv` joins them
    #[arg(long, value_name = "SIZE", default_value_t = Size(bp::files::PART))]
    pub(super) part: Size,

    /// Send short files like long ones, with their names, for `slowlight bp recv`
    ///
    /// Other receivers get a header before the content.
    #[arg(long)]
    keep_names: bool,

    /// Priority in this node's queues: bulk, normal or expedited
    #[arg(long, default_value = "normal", value_parser = ["bulk", "normal", "expedited"], hide_possible_values = true)]
    pub(super) priority: String,

    /// Bundle protocol version: 6 or 7
    #[arg(long, value_name = "VERSION", default_value_t = 7, value_parser = clap::value_parser!(u8).range(6..=7))]
    pub(super) bundle_version: u8,

    /// Request custody transfer; needs --bundle-version 6
    #[arg(long)]
    pub(super) custody: bool,

    /// Requested status reports, separated by commas: received, forwarded, delivered, deleted
    #[arg(long, value_name = "EVENTS")]
    pub(super) reports: Option<String>,

    /// Endpoint that gets the status reports [default: the node's endpoint]
    #[arg(long, value_name = "ENDPOINT")]
    pub(super) report_to: Option<String>,

    /// Hop limit [default: the node's]
    #[arg(long, value_name = "N")]
    pub(super) hop_limit: Option<u8>,

    /// Forbid fragmentation
    #[arg(long)]
    pub(super) must_not_fragment: bool,

    /// Folder for the state of files in parts, to resume by the same command [default: the state
    /// folder]
    #[arg(long, value_name = "DIR")]
    pub(super) state: Option<PathBuf>,

    /// Print errors only
    #[arg(long, short)]
    quiet: bool,

    #[command(flatten)]
    pub(super) place: Place,
}

pub(super) fn run(args: &SendArgs) -> Result<ExitCode> {
    if args.part.bytes() < PART_MIN {
        return Err(crate::Usage(format!("--part: a part has {PART_MIN} B at least")).into());
    }
    args.check()?;
    let mut client = args.place.connect()?;
    let screen = Screen::new(args.quiet);
    for file in &args.files {
        let line = if file == Path::new("-") {
            args.hand_in(&mut client, io::stdin())?
        } else {
            let in_file = || file.display().to_string();
            let opened = File::open(file).with_context(in_file)?;
            let found = opened.metadata().with_context(in_file)?;
            let has_parts = found.len() > args.part.bytes() || args.keep_names;
            if found.is_file() && has_parts {
                let count = parts::send(args, &mut client, file, &screen).with_context(in_file)?;
                format!("{}: {} bytes in {count} bundles", file.display(), found.len())
            } else {
                args.hand_in(&mut client, opened)?
            }
        };
        if !args.quiet {
            screen.above(|| print(&line))?;
        }
    }
    Ok(Exit::Done.into())
}

impl SendArgs {
    /// Error if options exclude each other.
    fn check(&self) -> Result<()> {
        let is_endpoint = |text: &str| text.starts_with("ipn:") || text.starts_with("dtn:");
        if let [file] = self.files.as_slice()
            && let Some(file) = file.to_str().filter(|file| is_endpoint(file))
            && !is_endpoint(&self.to)
        {
            let to = &self.to;
            let message =
                format!("{to} is no endpoint; did you mean: slowlight bp send {file} {to}");
            return Err(crate::Usage(message).into());
        }
        if let Err(error) = self.to.parse::<Eid>() {
            return Err(crate::Usage(error.to_string()).into());
        }
        let wrong = match (self.bundle_version, self.custody, self.hop_limit) {
            (7, true, _) => "--custody needs --bundle-version 6: version 7 has no custody",
            (6, _, Some(_)) => "--hop-limit needs --bundle-version 7: version 6 has no hop limit",
            _ if self.keep_names && self.files.iter().any(|file| file == Path::new("-")) => {
                "--keep-names needs files: the standard input has no name"
            }
            _ => return Ok(()),
        };
        Err(crate::Usage(wrong.to_owned()).into())
    }

    /// Submits a bundle; returns its identifier.
    fn hand_in(
        &self,
        client: &mut NodeClient,
        payload: impl Read + Send + 'static,
    ) -> Result<String, ClientError> {
        let lifetime = self.lifetime.duration().as_millis().to_string();
        let version = self.bundle_version.to_string();
        let mut query = vec![
            ("to", self.to.as_str()),
            ("lifetime_ms", lifetime.as_str()),
            ("priority", self.priority.as_str()),
            ("version", version.as_str()),
        ];
        if self.custody {
            query.push(("custody", "true"));
        }
        if self.must_not_fragment {
            query.push(("must_not_fragment", "true"));
        }
        let hop_limit = self.hop_limit.map(|limit| limit.to_string());
        let optional = [
            ("from", self.from.as_deref()),
            ("reports", self.reports.as_deref()),
            ("report_to", self.report_to.as_deref()),
            ("hop_limit", hop_limit.as_deref()),
        ];
        query.extend(optional.into_iter().filter_map(|(name, value)| Some((name, value?))));
        Ok(client.send(&query, payload)?.id)
    }
}
