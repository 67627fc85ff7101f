//! `slowlight bp recv`: receives payloads of an endpoint.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, anyhow, bail};
use bytes::{Bytes, BytesMut};
use service::api::model::Delivery;
use service::api::{Coming, NodeClient};
use service::http::ClientError;

use super::join::{Joins, Outcome};
use super::{Place, names, print};
use crate::exit::Exit;
use crate::sockets::screen::Screen;

/// Bytes per read of a file.
const PIECE: u64 = 256 << 10;

/// Bundles set aside after a fault: the node delivers 1,024 at most that are not confirmed.
const ASIDE_MAX: u64 = 512;

#[derive(Debug, clap::Args)]
pub(super) struct RecvArgs {
    /// Endpoint, e.g. ipn:2.1, or its service number or name
    endpoint: String,

    /// Folder for payloads, one file each; - writes them to standard output
    into: PathBuf,

    /// Exit after this many payloads; a file in parts counts once
    #[arg(long, short, value_name = "N")]
    count: Option<u64>,

    /// Permit other receivers at the endpoint; all of them need the same word
    #[arg(long, value_name = "HOW")]
    share: Option<Share>,

    /// Print errors only
    #[arg(long, short)]
    quiet: bool,

    #[command(flatten)]
    place: Place,
}

/// Use of an endpoint by several receivers: each bundle goes to one of them, or to all.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Share {
    Turns,
    Copies,
}

impl Share {
    /// Value of the node's parameter.
    const fn word(self) -> &'static str {
        match self {
            Self::Turns => "turns",
            Self::Copies => "copies",
        }
    }
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
    // The first connection carries the stream of deliveries.
    let mut confirming = args.place.connect()?;
    let share = args.share.map(|share| ("share", share.word()));
    let query: Vec<_> = [("endpoint", args.endpoint.as_str())].into_iter().chain(share).collect();
    let mut coming = client.take(&query)?;
    let screen = Screen::new(args.quiet || to_output);
    let mut joins = Joins::new(&args.into, &screen);
    let (mut done, mut aside) = (0, 0);
    while args.count.is_none_or(|count| done < count) {
        let Some(delivery) = client.next(&mut coming)? else {
            return Err(anyhow!(
                "the node has ended; what was not confirmed comes again when it runs"
            ));
        };
        let mut payload = Payload::new(&mut client, &mut coming, delivery.bytes);
        if to_output {
            payload.copy_to(&mut io::stdout())?;
            done += 1;
        } else {
            match take(args, &delivery, &mut payload, &mut joins) {
                Ok(Some((place, bytes))) => {
                    done += 1;
                    let text =
                        format!("{} from {}: {bytes} bytes", place.display(), delivery.source);
                    if !args.quiet {
                        screen.above(|| print(&text))?;
                    }
                }
                Ok(None) => {}
                // Without the node no other bundle comes either.
                Err(error) if error.is::<ClientError>() => return Err(error),
                Err(error) => {
                    payload.discard()?;
                    aside += 1;
                    set_aside(&delivery, &error, aside)?;
                    continue;
                }
            }
        }
        confirm(&mut confirming, &delivery)?;
    }
    Ok(Exit::of(aside == 0).into())
}

/// Logs the fault of a bundle, which is not confirmed: the node keeps it and delivers it to the
/// next application.
fn set_aside(delivery: &Delivery, error: &anyhow::Error, aside: u64) -> Result<()> {
    let id = &delivery.id;
    tracing::warn!(
        id,
        "{error:#}; the bundle is set aside, and delivered again to the next `bp recv`"
    );
    if aside >= ASIDE_MAX {
        bail!("{aside} bundles are set aside; fix the cause, and run the command again");
    }
    Ok(())
}

/// Confirms a delivery.
fn confirm(client: &mut NodeClient, delivery: &Delivery) -> Result<()> {
    match client.confirm(delivery) {
        Err(ClientError::Refused { status: 404, .. }) => {
            tracing::info!(id = delivery.id, "the bundle expired while it was received");
            Ok(())
        }
        confirmed => confirmed.map_err(Into::into),
    }
}

/// Payload of a bundle while it is received.
pub(super) struct Payload<'a> {
    client: &'a mut NodeClient,
    coming: &'a mut Coming,
    /// Bytes that the node has not sent yet.
    left: u64,
    /// Bytes to return first.
    ahead: Bytes,
    /// Bytes to return next: a file and their range in it.
    lying: Option<(File, u64, u64)>,
}

impl<'a> Payload<'a> {
    fn new(client: &'a mut NodeClient, coming: &'a mut Coming, left: u64) -> Self {
        Self { client, coming, left, ahead: Bytes::new(), lying: None }
    }

    /// Next bytes, or `None` at the end.
    pub(super) fn piece(&mut self) -> Result<Option<Bytes>> {
        if !self.ahead.is_empty() {
            return Ok(Some(std::mem::take(&mut self.ahead)));
        }
        if let Some((file, at, end)) = &mut self.lying
            && at < end
        {
            let mut piece = vec![0; usize::try_from(PIECE.min(*end - *at))?];
            file.read_exact_at(&mut piece, *at)?;
            *at += piece.len() as u64;
            return Ok(Some(piece.into()));
        }
        if self.left == 0 {
            return Ok(None);
        }
        let piece = self.client.piece(self.coming, self.left)?;
        self.left -= piece.len() as u64;
        Ok(Some(piece))
    }

    /// First `most` bytes at most; they stay in the payload.
    pub(super) fn peek(&mut self, most: usize) -> Result<Bytes> {
        let mut beginning = BytesMut::new();
        while beginning.len() < most {
            let Some(piece) = self.piece()? else { break };
            beginning.extend_from_slice(&piece);
        }
        self.ahead = beginning.freeze();
        Ok(self.ahead.slice(..most.min(self.ahead.len())))
    }

    /// Takes the first `len` bytes, which were peeked at.
    pub(super) fn take(&mut self, len: usize) -> Bytes {
        self.ahead.split_to(len.min(self.ahead.len()))
    }

    /// Discards the rest.
    pub(super) fn skip(&mut self) -> Result<()> {
        while self.piece()?.is_some() {}
        Ok(())
    }

    /// Discards all that the node sends of it.
    fn discard(&mut self) -> Result<()> {
        (self.ahead, self.lying) = (Bytes::new(), None);
        self.skip()
    }

    /// Puts bytes back: a beginning, then a range of a file.
    pub(super) fn put_back(&mut self, beginning: Bytes, file: File, (from, to): (u64, u64)) {
        self.ahead = beginning;
        self.lying = Some((file, from, to));
    }

    fn copy_to(&mut self, to: &mut impl io::Write) -> Result<()> {
        while let Some(piece) = self.piece()? {
            to.write_all(&piece)?;
        }
        to.flush().map_err(Into::into)
    }
}

/// Stores a payload durably; returns the path and size of a file that it completes, or is itself.
fn take(
    args: &RecvArgs,
    delivery: &Delivery,
    payload: &mut Payload<'_>,
    joins: &mut Joins<'_>,
) -> Result<Option<(PathBuf, u64)>> {
    Ok(match joins.take(delivery, payload)? {
        Outcome::Part => None,
        Outcome::Whole(place, bytes) => Some((place, bytes)),
        Outcome::Other => Some((write(args, delivery, payload)?, delivery.bytes)),
    })
}

/// Writes a payload into its own file.
fn write(args: &RecvArgs, delivery: &Delivery, payload: &mut Payload<'_>) -> Result<PathBuf> {
    let new = args.into.join(format!(".{}.new", names::of_bundle(&delivery.id)));
    let mut written = || -> Result<PathBuf> {
        let mut file = File::create(&new)?;
        payload.copy_to(&mut file)?;
        file.sync_all()?;
        Ok(names::publish(&new, &args.into, &delivery.id)?)
    };
    let place = written();
    if place.is_err() {
        // It is written again when the bundle is delivered again.
        let _ = std::fs::remove_file(&new);
    }
    place.with_context(|| new.display().to_string())
}
