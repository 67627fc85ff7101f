//! What comes for an endpoint.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, anyhow};
use control::node::model::Delivery;
use control::node::{Coming, NodeClient};

use super::{Place, print};

#[derive(Debug, clap::Args)]
pub(super) struct RecvArgs {
    /// The endpoint: whole, as ipn:2.1, or the number or name of its service
    endpoint: String,

    /// The folder in which payloads are put, a file each; - writes payloads one after the other to the standard output
    into: PathBuf,

    /// End after so many payloads
    #[arg(long, short, value_name = "NUMBER")]
    count: Option<u64>,

    /// Say nothing but errors
    #[arg(long, short)]
    quiet: bool,

    #[command(flatten)]
    place: Place,
}

pub(super) fn run(args: &RecvArgs) -> Result<ExitCode> {
    let to_output = args.into == Path::new("-");
    if !to_output && !args.into.is_dir() {
        return Err(crate::Usage(format!(
            "{} is no folder; make it first, or write - for the standard output",
            args.into.display()
        ))
        .into());
    }
    let mut client = args.place.connect()?;
    // The first connection is the stream's.
    let mut confirming = args.place.connect()?;
    let mut coming = client.take(&[("endpoint", &args.endpoint)])?;
    let mut done = 0;
    while args.count.is_none_or(|count| done < count) {
        let Some(delivery) = client.next(&mut coming)? else {
            return Err(anyhow!(
                "the node has ended; what was not confirmed comes again when it runs"
            ));
        };
        let mut payload =
            Payload { client: &mut client, coming: &mut coming, left: delivery.octets };
        if to_output {
            payload.copy_to(&mut io::stdout())?;
        } else {
            take(args, &delivery, &mut payload)?;
        }
        confirming.confirm(delivery.delivery)?;
        done += 1;
    }
    Ok(ExitCode::SUCCESS)
}

/// The payload of a bundle, as it comes.
struct Payload<'a> {
    client: &'a mut NodeClient,
    coming: &'a mut Coming,
    left: u64,
}

impl Payload<'_> {
    fn piece(&mut self) -> Result<Option<bytes::Bytes>> {
        if self.left == 0 {
            return Ok(None);
        }
        let piece = self.client.piece(self.coming, self.left)?;
        self.left -= piece.len() as u64;
        Ok(Some(piece))
    }

    fn copy_to(&mut self, to: &mut impl io::Write) -> Result<()> {
        while let Some(piece) = self.piece()? {
            to.write_all(&piece)?;
        }
        to.flush().map_err(Into::into)
    }
}

/// Writes a payload into a file, which survives a crash when this returns.
fn take(args: &RecvArgs, delivery: &Delivery, payload: &mut Payload<'_>) -> Result<()> {
    let name: String = delivery
        .id
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' })
        .collect();
    let place = args.into.join(format!("bundle-{name}"));
    let new = args.into.join(format!(".bundle-{name}.new"));
    let mut written = || -> Result<()> {
        let mut file = File::create(&new)?;
        payload.copy_to(&mut file)?;
        file.sync_all()?;
        std::fs::rename(&new, &place)?;
        File::open(&args.into)?.sync_all().map_err(Into::into)
    };
    written().with_context(|| place.display().to_string())?;
    if !args.quiet {
        print(&format!(
            "{} from {}: {} octets",
            place.display(),
            delivery.source,
            delivery.octets
        ))?;
    }
    Ok(())
}
