//! `slowlight bp recv`: receives payloads of an endpoint.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, anyhow};
use bytes::{Bytes, BytesMut};
use service::api::model::Delivery;
use service::api::{Coming, NodeClient};

use super::join::{Joins, Outcome};
use super::{Place, kept, print};
use crate::exit::Exit;
use crate::sockets::screen::Screen;

/// Bytes per read of a file.
const PIECE: u64 = 256 << 10;

#[derive(Debug, clap::Args)]
pub(super) struct RecvArgs {
    /// Endpoint, e.g. ipn:2.1, or its service number or name
    endpoint: String,

    /// Folder for payloads, one file each; - writes them to standard output
    into: PathBuf,

    /// Exit after this many payloads; a file in parts counts once
    #[arg(long, short, value_name = "N")]
    count: Option<u64>,

    /// Print errors only
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
    // The first connection carries the stream of deliveries.
    let mut confirming = args.place.connect()?;
    let mut coming = client.take(&[("endpoint", &args.endpoint)])?;
    let screen = Screen::new(args.quiet || to_output);
    let mut joins = Joins::new(&args.into, &screen);
    let mut done = 0;
    while args.count.is_none_or(|count| done < count) {
        let Some(delivery) = client.next(&mut coming)? else {
            return Err(anyhow!(
                "the node has ended; what was not confirmed comes again when it runs"
            ));
        };
        let mut payload = Payload::new(&mut client, &mut coming, delivery.bytes);
        let is_done = if to_output {
            payload.copy_to(&mut io::stdout())?;
            true
        } else {
            take(args, &delivery, &mut payload, (&mut joins, &screen))?
        };
        confirming.confirm(&delivery)?;
        done += u64::from(is_done);
    }
    Ok(Exit::Done.into())
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

/// Stores a payload durably; returns whether it completes a file or is one by itself.
fn take(
    args: &RecvArgs,
    delivery: &Delivery,
    payload: &mut Payload<'_>,
    (joins, screen): (&mut Joins<'_>, &Screen),
) -> Result<bool> {
    let (place, bytes) = match joins.take(delivery, payload)? {
        Outcome::Part => return Ok(false),
        Outcome::Whole(place, bytes) => (place, bytes),
        Outcome::Other => (write(args, delivery, payload)?, delivery.bytes),
    };
    if !args.quiet {
        let text = format!("{} from {}: {bytes} bytes", place.display(), delivery.source);
        screen.above(|| print(&text))?;
    }
    Ok(true)
}

/// Writes a payload into its own file.
fn write(args: &RecvArgs, delivery: &Delivery, payload: &mut Payload<'_>) -> Result<PathBuf> {
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
        kept::sync_folder_of(&place).map_err(Into::into)
    };
    written().with_context(|| place.display().to_string())?;
    Ok(place)
}
