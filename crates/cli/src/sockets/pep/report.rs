//! Statistics of a running gateway.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use engine::Time;
use pep::{End, Indication, Pep, Refusal, Report};
use rt::TunStatistics;
use rt::streams::StreamStatistics;
use serde_json::Value;
use tcp::Stack;

use super::proxy::Proxy;
use crate::Usage;
use crate::sockets::object::object;
use crate::sockets::punctuality::Account;

/// Statistics as JSON: times in seconds, buffers in bytes.
pub(super) fn value(
    now: Time,
    engine: &impl Proxy,
    streams: &StreamStatistics,
    interface: Option<(&TunStatistics, &Account)>,
) -> Value {
    let pep = engine.pep();
    let all = pep.statistics();
    let connections: Vec<_> = pep.connections().map(|report| connection(now, &report)).collect();
    object! {
        all => [
            open, open_peak, accepted, connected, completed, reset, not_connected, idle, aborted,
            buffered, buffered_peak,
        ];
        "seconds": seconds(now.since(Time::ZERO)),
        "turned_away": all.turned_away + streams.turned_away,
        "bytes_to_servers": all.bytes[0],
        "bytes_to_clients": all.bytes[1],
        "memory": pep.memory(),
        "sockets": {
            "open": streams.streams,
            "open_peak": streams.streams_peak,
            "waiting": streams.kept,
            "rests": streams.rests,
        },
        "own_tcp": interface.zip(engine.own_tcp()).map(|((interface, account), stack)| {
            own_tcp_value(interface, account, stack)
        }),
        "connections": connections,
    }
}

/// Statistics of slowlight's own TCP.
fn own_tcp_value(interface: &TunStatistics, account: &Account, stack: &Stack) -> Value {
    let (counts, lost) = (stack.totals(), stack.statistics());
    object! {
        interface => [packets_sent, packets_received, refused],
        counts => [
            segments_sent, segments_received, retransmissions, recoveries, timeouts,
            path_mtu_reports, black_holes,
        ],
        lost => [bad_checksums, malformed, strangers];
        "memory": stack.memory(),
        "exactness": account.value(),
    }
}

fn connection(now: Time, report: &Report) -> Value {
    object! {
        report => [client, server];
        "seconds": seconds(report.closed.unwrap_or(now).since(report.opened)),
        "connected_after": report.connected.map(|at| seconds(at.since(report.opened))),
        "bytes_to_server": report.bytes[0],
        "bytes_to_client": report.bytes[1],
        "buffered_to_server": report.buffered[0],
        "buffered_to_client": report.buffered[1],
        "buffer_peak_to_server": report.buffer_peak[0],
        "buffer_peak_to_client": report.buffer_peak[1],
    }
}

/// Line of statistics.
pub(super) fn line(now: Time, pep: &Pep) -> String {
    let all = pep.statistics();
    format!(
        "{:.0} s: {} open, {} accepted, {} complete, {} reset, {} not connected, {} refused; \
         {} bytes to servers, {} to clients; {} held",
        seconds(now.since(Time::ZERO)),
        all.open,
        all.accepted,
        all.completed,
        all.reset,
        all.not_connected,
        all.turned_away,
        all.bytes[0],
        all.bytes[1],
        all.buffered,
    )
}

/// Line about an event of a connection.
pub(super) fn news(indication: &Indication) -> String {
    let whose = |ends: Option<(SocketAddr, SocketAddr)>| match ends {
        Some((client, server)) => format!("{client} -> {server}"),
        None => "a connection".to_owned(),
    };
    match indication {
        Indication::Opened { client, server, .. } => format!("{client} -> {server}: accepted"),
        Indication::Connected { id, took } => {
            format!("connection {}: the server accepted after {:.3} s", id.0, seconds(*took))
        }
        Indication::Closed { report, end } => format!(
            "{} -> {}: {}; {} bytes to the server, {} to the client",
            report.client,
            report.server,
            how(*end),
            report.bytes[0],
            report.bytes[1]
        ),
        Indication::TurnedAway { ends, why } => {
            let why = match why {
                Refusal::Full => "the limit of connections is reached",
                Refusal::NoDestination => "its destination is unknown",
                Refusal::Loop => "its destination is the gateway itself",
                Refusal::Stopping => "the gateway is being stopped",
            };
            format!("{}: refused, {why}", whose(*ends))
        }
    }
}

fn how(end: End) -> &'static str {
    match end {
        End::Complete => "complete",
        End::ClientReset => "reset by the client",
        End::ServerReset => "reset by the server",
        End::NotConnected => "the server cannot be reached",
        End::ConnectTimeout => "the server does not reply",
        End::Idle => "reset, because the peer was silent for too long",
        End::Aborted => "reset, because the gateway was stopped",
    }
}

fn seconds(time: Duration) -> f64 {
    time.as_secs_f64()
}

/// Checks that a file can be written, as later writes do it: under a temporary name.
pub(super) fn check(path: &Path) -> Result<()> {
    let tried = || -> io::Result<()> {
        if path.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let new = temporary(path);
        std::fs::write(&new, "")?;
        std::fs::remove_file(&new)
    };
    tried().map_err(|error| {
        let path = path.display();
        Usage(format!(
            "--json: {path} cannot be written: {error}; name a file in an existing folder that \
             this user may write to"
        ))
        .into()
    })
}

fn temporary(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    path.with_file_name(name)
}

/// Writes a value into a file atomically.
pub(super) fn write(path: &Path, value: &Value) -> Result<()> {
    let written = || -> io::Result<()> {
        let new = temporary(path);
        // In one write, since connections wait meanwhile.
        std::fs::write(&new, format!("{value:#}\n"))?;
        std::fs::rename(&new, path)
    };
    written().with_context(|| path.display().to_string())
}
