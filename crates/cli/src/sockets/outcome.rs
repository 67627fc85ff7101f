//! Outcome of a transfer: as `--json` prints it, and as a line for people.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use anyhow::Result;
use cfdp::TransactionFinished;
use cfdp::pdu::{DeliveryCode, FileStatus};
use serde::Serialize;
use transport::protocol::Protocol;
use transport::{Ended, TransferId};

use crate::show;

/// The outcome of a transfer, as `--json` prints it.
#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    /// Date of its end, in UTC.
    time: String,
    /// The protocol's name.
    protocol: String,
    /// `sender` or `receiver`.
    role: &'static str,
    /// Number of the transfer.
    transaction: String,
    /// Address of the other side, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    peer: Option<SocketAddr>,
    /// The entity or engine at the other side, where these have numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    peer_entity: Option<u64>,
    /// Local file.
    file: PathBuf,
    /// Its name at the other side.
    remote: String,
    /// Its size.
    file_bytes: u64,
    /// Whether it is at the receiver, whole; of an unacknowledged sender: whether it was sent.
    completed: bool,
    /// Reason of its end.
    condition: String,
    /// `complete`, `incomplete`, or `unreported` where the receiver does not report delivery.
    delivery: &'static str,
    /// State of the file, as the receiver reports it.
    file_status: String,
    /// Whether an earlier process started it.
    resumed: bool,
    /// Seconds since the transfer began or was resumed; unknown if its beginning was not received.
    elapsed_s: Option<f64>,
    /// File bytes that moved since this process began.
    moved_bytes: u64,
    /// File bits a second; of a resumed transfer counting only what moved since. A transfer that
    /// failed has none.
    goodput_bps: Option<f64>,
    /// Datagrams this process sent, if this was its only transfer.
    #[serde(skip_serializing_if = "Option::is_none")]
    datagrams_sent: Option<u64>,
    /// Datagrams this process received, if this was its only transfer.
    #[serde(skip_serializing_if = "Option::is_none")]
    datagrams_received: Option<u64>,
}

/// Measures of a transfer that its outcome needs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Measures {
    /// Address of the other side, if it is known.
    pub(crate) peer: Option<SocketAddr>,
    /// Time since its beginning, if that is known.
    pub(crate) elapsed: Option<Duration>,
    /// File bytes that moved since this process began.
    pub(crate) moved: u64,
    /// Datagrams sent and received, if this was the only transfer.
    pub(crate) datagrams: Option<(u64, u64)>,
    /// Whether an earlier process began it.
    pub(crate) resumed: bool,
}

impl Outcome {
    /// The outcome that a transport reports; `file` is the file here.
    pub(crate) fn from_ended(
        protocol: &Protocol,
        ended: &Ended,
        file: PathBuf,
        measures: Measures,
    ) -> Self {
        let finished = ended.transaction.as_deref();
        let completed = ended.is_success();
        let is_delivered = finished.map_or(completed, |it| it.delivery == DeliveryCode::Complete);
        let kept = if ended.is_confirmed { FileStatus::Retained } else { FileStatus::Unreported };
        let elapsed_s = measures.elapsed.map(|elapsed| elapsed.as_secs_f64());
        let bits = measures.moved as f64 * 8.0;
        let why = ended.result.as_ref().err().map_or("no error", String::as_str);
        Self {
            peer: measures.peer,
            peer_entity: ended.peer,
            file_bytes: ended.size,
            completed,
            delivery: match (is_delivered, ended.is_confirmed) {
                (true, true) => "complete",
                (true, false) => "unreported",
                (false, _) => "incomplete",
            },
            file_status: finished.map_or(kept, |it| it.file_status).to_string(),
            resumed: measures.resumed || ended.resumed > 0,
            elapsed_s,
            moved_bytes: measures.moved,
            goodput_bps: elapsed_s
                .filter(|elapsed| completed && *elapsed > 0.0)
                .map(|elapsed| bits / elapsed),
            datagrams_sent: measures.datagrams.map(|(sent, _)| sent),
            datagrams_received: measures.datagrams.map(|(_, received)| received),
            ..Self::given_up(
                protocol,
                ended.at_sender,
                Some(&ended.id),
                file,
                ended.name.clone(),
                why,
            )
        }
    }

    /// The outcome of a transfer that was given up here, of which the peer may know nothing.
    pub(crate) fn given_up(
        protocol: &Protocol,
        at_sender: bool,
        id: Option<&TransferId>,
        file: PathBuf,
        remote: String,
        why: &str,
    ) -> Self {
        Self {
            time: humantime::format_rfc3339_millis(SystemTime::now()).to_string(),
            protocol: protocol.to_string(),
            role: if at_sender { "sender" } else { "receiver" },
            transaction: id.map(|id| id.number().to_owned()).unwrap_or_default(),
            peer: None,
            peer_entity: None,
            file,
            remote,
            file_bytes: 0,
            completed: false,
            condition: why.to_owned(),
            delivery: "incomplete",
            file_status: FileStatus::Unreported.to_string(),
            resumed: false,
            elapsed_s: None,
            moved_bytes: 0,
            goodput_bps: None,
            datagrams_sent: None,
            datagrams_received: None,
        }
    }

    /// Adds the peer's number, the size of the file, and the bytes that moved.
    pub(crate) fn after(self, peer: Option<u64>, file_bytes: u64, moved_bytes: u64) -> Self {
        Self { peer_entity: peer, file_bytes, moved_bytes, ..self }
    }

    /// Adds the peer's address.
    pub(crate) fn at_address(self, peer: Option<SocketAddr>) -> Self {
        Self { peer, ..self }
    }

    /// Prints the object on stdout.
    pub(crate) fn print(&self) -> Result<()> {
        print_json(self)
    }

    /// Size, time and rate, for people.
    pub(crate) fn summary(&self) -> String {
        let mut size = show::bytes(self.file_bytes as f64);
        if self.resumed && self.moved_bytes < self.file_bytes {
            size = format!("{size}, of which {} now", show::bytes(self.moved_bytes as f64));
        }
        match (self.elapsed_s, self.goodput_bps) {
            (Some(elapsed), Some(rate)) => {
                format!("{size} in {}, {}", show::seconds(elapsed), show::rate(rate))
            }
            _ => size,
        }
    }

    /// Line about the end of the only transfer of a command.
    pub(crate) fn line(&self, ended: &Ended) -> String {
        let (id, summary) = (&ended.id, self.summary());
        match (&ended.result, ended.at_sender) {
            (Ok(()), true) if ended.is_confirmed => format!("{id}: sent: {summary}"),
            (Ok(()), true) => format!("{id}: sent, delivery not confirmed: {summary}"),
            (Ok(()), false) => format!("{id}: received: {summary}"),
            (Err(why), _) => {
                let moved = show::bytes(self.moved_bytes as f64);
                let status = status(ended, "file at the receiver");
                format!("{id}: failed after {moved}: {why}{status}")
            }
        }
    }
}

/// Line about a pack that was unpacked.
pub(crate) fn unpacked_line(unpacked: &tree::Unpacked) -> String {
    let tree::Unpacked { files, links, unchanged, skipped, renamed, refused, bytes, .. } = unpacked;
    let count = files + links;
    let noun = if count == 1 { "file" } else { "files" };
    let mut line = format!("unpacked {count} {noun}, {}", show::bytes(*bytes as f64));
    for (count, what) in [
        (*unchanged, "there already"),
        (*skipped, "kept as they were"),
        (renamed.len() as u64, "renamed, as another came"),
    ] {
        if count > 0 {
            line += &format!("; {count} {what}");
        }
    }
    for refused in refused {
        let name = String::from_utf8_lossy(&refused.name).escape_debug().to_string();
        line += &format!("\n  {name} was refused: {}", refused.reason);
    }
    line
}

/// State of the file at the receiver, in brackets, where a CFDP entity reports it.
pub(crate) fn status(ended: &Ended, file: &str) -> String {
    let status = |it: &TransactionFinished| format!(" ({file}: {})", it.file_status);
    // The reason of a refusal is in the result.
    let finished = ended.transaction.as_deref().filter(|it| it.store_refusal().is_none());
    finished.map(status).unwrap_or_default()
}

/// Prints an object as one line on stdout. Whoever closes that still wants the transfer and its
/// exit code.
pub(crate) fn print_json(object: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string(object)?;
    match writeln!(std::io::stdout().lock(), "{text}") {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        Ok(()) | Err(_) => Ok(()),
    }
}
