//! Options of `slowlight bp send`.

use std::path::{Path, PathBuf};

use anyhow::Result;
use bp::codec::eid::Eid;
use transport::quantity::{Size, Span};

use super::Place;

/// Minimum part size in bytes: the header takes at most a third of it.
const PART_MIN: u64 = 4096;

#[derive(Debug, clap::Args)]
pub(super) struct SendArgs {
    /// Destination endpoint, e.g. ipn:2.1
    pub(super) to: String,

    /// Files and folders; - sends standard input as the payload of one bundle
    ///
    /// A folder is sent as tar archives, which `slowlight bp recv` unpacks.
    #[arg(required = true)]
    pub(super) files: Vec<PathBuf>,

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
    pub(super) keep_names: bool,

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
    pub(super) quiet: bool,

    #[command(flatten)]
    pub(super) place: Place,
}

impl SendArgs {
    /// Error if options exclude each other.
    pub(super) fn check(&self) -> Result<()> {
        if self.part.bytes() < PART_MIN {
            let message = format!("--part is {}; it must be at least {PART_MIN} B", self.part);
            return Err(crate::Usage(message).into());
        }
        let is_endpoint = |text: &str| text.starts_with("ipn:") || text.starts_with("dtn:");
        if let [file] = self.files.as_slice()
            && let Some(file) = file.to_str().filter(|file| is_endpoint(file))
            && !is_endpoint(&self.to)
        {
            let to = &self.to;
            let message =
                format!("invalid endpoint {to:?}; did you mean: slowlight bp send {file} {to}");
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
}
