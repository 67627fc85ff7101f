//! Payloads between applications and the store.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::body::BodyDataStream;
use bp::layer::Content;
use bytes::{Bytes, BytesMut};
use engine::FileName;
use futures_util::{Stream, StreamExt as _};

/// Bytes of a file read at a time.
const PIECE: u64 = 256 << 10;

/// Time during which the body of a refused request is read and dropped.
const SKIPPED: Duration = Duration::from_secs(10);

/// Reason why a payload cannot be accepted.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    #[error("the payload is longer than {0} bytes; send it in parts, as `slowlight bp send` does")]
    TooLong(u64),
    #[error("the payload ended early: {0}")]
    Cut(axum::Error),
    #[error(
        "the payload cannot be kept: {0}; make room on the disk, or wait until bundles have gone"
    )]
    Store(#[from] io::Error),
}

/// File for a long payload.
pub(super) struct Place {
    pub(super) path: PathBuf,
    pub(super) name: FileName,
}

/// Reads a payload: up to `inline` bytes into memory, a longer one into the file that `place`
/// returns.
pub(super) async fn take<S, F>(
    stream: &mut S,
    inline: usize,
    most: u64,
    place: impl FnOnce() -> F,
) -> Result<Content, Fault>
where
    S: Stream<Item = Result<Bytes, axum::Error>> + Unpin,
    F: Future<Output = Option<Place>>,
{
    let mut beginning = BytesMut::new();
    while beginning.len() <= inline {
        match stream.next().await {
            None => return Ok(Content::Bytes(beginning.freeze())),
            Some(piece) => beginning.extend_from_slice(&piece.map_err(Fault::Cut)?),
        }
        if beginning.len() as u64 > most {
            return Err(Fault::TooLong(most));
        }
    }
    let Some(Place { path, name }) = place().await else {
        return Err(Fault::TooLong(inline as u64));
    };
    let mut file = Unfinished { path, is_complete: false };
    let len = write(&file.path, beginning.freeze(), stream, most).await?;
    file.is_complete = true;
    Ok(Content::File { name, offset: 0, len })
}

/// File of a payload, removed when this is dropped before it is complete: at a fault, or when the
/// client has disconnected.
struct Unfinished {
    path: PathBuf,
    is_complete: bool,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.is_complete {
            // If that fails, too, it is removed at the node's next start.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Reads and drops a body: a client that still sends when the connection ends never reads the
/// response.
pub(super) async fn skip(stream: &mut BodyDataStream) {
    let rest = async { while let Some(Ok(_)) = stream.next().await {} };
    // A client that sends longer than that gets no response.
    let _ = tokio::time::timeout(SKIPPED, rest).await;
}

async fn write(
    path: &Path,
    first: Bytes,
    stream: &mut (impl Stream<Item = Result<Bytes, axum::Error>> + Unpin),
    most: u64,
) -> Result<u64, Fault> {
    let made = path.to_owned();
    let file = Arc::new(blocking(move || File::create(made)).await?);
    let mut len = 0;
    let mut next = Some(first);
    while let Some(piece) = next {
        len += piece.len() as u64;
        if len > most {
            return Err(Fault::TooLong(most));
        }
        let to = Arc::clone(&file);
        blocking(move || (&*to).write_all(&piece)).await?;
        next = stream.next().await.transpose().map_err(Fault::Cut)?;
    }
    // The agent treats a file passed to it as durable.
    let folder = path.parent().map(Path::to_owned);
    let synced = move || {
        file.sync_all()?;
        folder.map_or(Ok(()), |folder| File::open(folder)?.sync_all())
    };
    blocking(synced).await?;
    Ok(len)
}

/// Runs a blocking function in a thread.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(io::Error::other(error)))
}

/// Reader of a payload in pieces.
pub(super) struct Pieces {
    from: From,
}

enum From {
    Bytes(Option<Bytes>),
    File { file: Arc<File>, at: u64, end: u64 },
}

impl Pieces {
    /// Opens a payload; `spool` is the folder of its file.
    pub(super) fn open(payload: Content, spool: Option<&Path>) -> io::Result<Self> {
        let from = match payload {
            Content::Bytes(bytes) => From::Bytes(Some(bytes)),
            Content::File { name, offset, len } => {
                let spool = spool.ok_or(io::ErrorKind::NotFound)?;
                let file = Arc::new(File::open(spool.join(name.path()))?);
                From::File { file, at: offset, end: offset.saturating_add(len) }
            }
        };
        Ok(Self { from })
    }

    /// Returns the next bytes.
    pub(super) async fn next(&mut self) -> Option<io::Result<Bytes>> {
        match &mut self.from {
            From::Bytes(bytes) => bytes.take().map(Ok),
            From::File { at, end, .. } if *at >= *end => None,
            From::File { file, at, end } => {
                let len = (*end - *at).min(PIECE);
                let (from, offset) = (Arc::clone(file), *at);
                *at += len;
                let read = move || {
                    let mut bytes = vec![0; len as usize];
                    from.read_exact_at(&mut bytes, offset)?;
                    Ok(Bytes::from(bytes))
                };
                Some(blocking(read).await)
            }
        }
    }
}
