//! Sends files that are too long for one bundle, in parts with offsets. The same command resumes
//! an interrupted transfer.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, anyhow};
use bp::codec::file_part::{FilePart, crc_append};
use indicatif::ProgressBar;
use serde::{Deserialize, Serialize};
use service::api::NodeClient;
use service::api::model::Node;
use service::http::ClientError;

use super::kept;
use super::send::SendArgs;
use crate::sockets::screen::Screen;
use crate::sockets::session::hash;
use crate::state::state_home;

/// Bytes per read.
const PIECE: usize = 256 << 10;
/// Wait for room in the node's store: first and longest.
const WAIT: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(10)];
/// HTTP status of a node whose store has no room.
const NO_ROOM: u16 = 507;

/// State of a file that is being sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Transfer {
    what: What,
    /// Transfer number in all parts.
    number: u64,
    /// Creation time of its first part, in seconds since 1970.
    #[serde(alias = "begun")]
    created: u64,
    /// Process of a node whose store is in memory.
    memory_of: Option<u32>,
    /// Bytes that the node has accepted.
    kept: u64,
}

/// Properties by which a transfer resumes an earlier one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct What {
    file: PathBuf,
    #[serde(alias = "octets")]
    bytes: u64,
    modified_ns: u128,
    to: String,
    from: Option<String>,
    part: u64,
    lifetime_ms: u128,
}

/// Sends a file in parts; returns their number.
pub(super) fn send(
    args: &SendArgs,
    client: &mut NodeClient,
    path: &Path,
    file: File,
    screen: &Screen,
) -> Result<u64> {
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| anyhow!("the file's name is not UTF-8; give it another"))?;
    let found = file.metadata()?;
    let what = What {
        file: path.canonicalize()?,
        bytes: found.len(),
        modified_ns: found.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos(),
        to: args.to.clone(),
        from: args.from.clone(),
        part: args.part.bytes(),
        lifetime_ms: args.lifetime.duration().as_millis(),
    };
    let base = match &args.state {
        Some(base) => base.clone(),
        None => state_home()?,
    };
    std::fs::create_dir_all(&base).with_context(|| base.display().to_string())?;
    let key = format!("{}\n{}\n{}", what.file.display(), what.to, args.place.node.display());
    let record = base.join(format!("bp-send-{:016x}.json", hash(key.as_bytes())));
    let mut transfer = begin(&record, what, client)?;
    let bar = screen.bar(name, Some(transfer.what.bytes));
    bar.set_position(transfer.kept);
    let file = Arc::new(file);
    // An empty file is one part of no bytes.
    loop {
        let len = transfer.what.part.min(transfer.what.bytes - transfer.kept);
        let part = FilePart {
            transfer: transfer.number,
            total: transfer.what.bytes,
            offset: transfer.kept,
            name,
        };
        let (head, crc) = check(&file, &part, len)?;
        let header = part.encode(crc)?;
        // If the reply is lost, the part is not sent twice.
        let key = format!("{:016x}-{}", transfer.number, transfer.kept);
        hand_in(args, client, (&bar, &key), || Part {
            header: io::Cursor::new(header.clone()),
            file: Arc::clone(&file),
            at: transfer.kept,
            left: len,
            crc: (head, crc),
            bar: bar.clone(),
        })?;
        transfer.kept += len;
        if transfer.kept == transfer.what.bytes {
            break;
        }
        kept::write(&record, &transfer)?;
    }
    bar.finish_and_clear();
    std::fs::remove_file(&record).with_context(|| record.display().to_string())?;
    Ok(transfer.what.bytes.div_ceil(transfer.what.part).max(1))
}

/// Transfer that an earlier command recorded, or a new one.
fn begin(record: &Path, what: What, client: &mut NodeClient) -> Result<Transfer> {
    let node: Node = client.get("/node", &[])?;
    let memory_of = (!node.is_persistent).then_some(node.pid);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let earlier: Option<Transfer> = kept::read(record)?;
    // The first parts of one that began too long ago have expired.
    let is_alive = |earlier: &Transfer| {
        let age_ms = u128::from(now.saturating_sub(earlier.created)) * 1000;
        earlier.what == what && age_ms < what.lifetime_ms && earlier.created <= now
    };
    if let Some(mut earlier) = earlier.filter(is_alive) {
        if earlier.memory_of != memory_of {
            // A receiver with earlier parts takes these for the same transfer.
            earlier.kept = 0;
            earlier.memory_of = memory_of;
        }
        return Ok(earlier);
    }
    let number = rt::entropy()?.next_u64();
    let transfer = Transfer { what, number, created: now, memory_of, kept: 0 };
    kept::write(record, &transfer)?;
    Ok(transfer)
}

/// Checksums of a part: of its header, and of header and bytes.
fn check(file: &File, part: &FilePart<'_>, len: u64) -> Result<(u32, u32)> {
    let head = part.crc()?;
    let mut crc = head;
    let mut piece = vec![0; PIECE];
    let (mut at, end) = (part.offset, part.offset + len);
    while at < end {
        let most = usize::try_from(end - at).unwrap_or(PIECE).min(PIECE);
        match file.read_at(&mut piece[..most], at) {
            Ok(0) => return Err(changed().into()),
            Ok(read) => {
                crc = crc_append(crc, &piece[..read]);
                at += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok((head, crc))
}

fn changed() -> io::Error {
    io::Error::other("the file was changed while it was sent; send it again when it is complete")
}

/// Submits a part to the node; waits while the node has no room.
fn hand_in(
    args: &SendArgs,
    client: &mut NodeClient,
    (bar, key): (&ProgressBar, &str),
    part: impl Fn() -> Part,
) -> Result<()> {
    let [mut wait, most] = WAIT;
    let start = Instant::now();
    let before = bar.position();
    loop {
        match args.hand_in(client, part(), Some(key)) {
            Ok(_) => {
                bar.set_message("");
                return Ok(());
            }
            Err(ClientError::Refused { status: NO_ROOM, error })
                if start.elapsed() < args.lifetime.duration() =>
            {
                bar.set_position(before);
                bar.set_message(format!("the node has no room, waiting: {error}"));
                std::thread::sleep(wait);
                wait = (wait * 2).min(most);
            }
            // A retry cannot fix a wrong command.
            Err(error @ ClientError::Refused { status: 400..=499, .. }) => return Err(error.into()),
            Err(error) => {
                return Err(anyhow!(error).context("the same command resumes the transfer"));
            }
        }
    }
}

/// Payload of a bundle with a part.
struct Part {
    header: io::Cursor<Vec<u8>>,
    file: Arc<File>,
    at: u64,
    left: u64,
    /// Checksum of the bytes read, and the one in the header.
    crc: (u32, u32),
    bar: ProgressBar,
}

impl Read for Part {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.header.read(into)?;
        if read > 0 || self.left == 0 {
            return Ok(read);
        }
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(into.len());
        let read = self.file.read_at(&mut into[..most], self.at)?;
        self.at += read as u64;
        self.left -= read as u64;
        self.crc.0 = crc_append(self.crc.0, &into[..read]);
        // After an error here the node rejects the bundle.
        if read == 0 || self.left == 0 && self.crc.0 != self.crc.1 {
            return Err(changed());
        }
        self.bar.inc(read as u64);
        Ok(read)
    }
}
