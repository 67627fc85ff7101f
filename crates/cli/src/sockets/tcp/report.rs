//! Statistics of a connection, for people and for programs.

use std::fmt::Write as _;
use std::time::Duration;

use rt::TunStatistics;
use serde_json::{Value, json};
use tcp::scps::SnackForm;
use tcp::{CloseReason, Info, Statistics};

use super::relay::Outcome;
use crate::sockets::object::object;
use crate::sockets::punctuality::Account;

fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}

fn milliseconds(duration: Duration) -> f64 {
    seconds(duration) * 1e3
}

/// Goodput of the busier direction in bit/s; `None` without a connection.
fn goodput_bps(outcome: &Outcome) -> Option<f64> {
    let (sent, received) = outcome.bytes;
    let seconds = seconds(outcome.lasted);
    let some = outcome.connected && seconds > 0.0;
    some.then(|| sent.max(received) as f64 * 8.0 / seconds)
}

/// Reason of a connection's end, for people.
pub(super) fn reason(reason: Option<CloseReason>) -> &'static str {
    match reason {
        Some(CloseReason::Graceful) => "closed by both sides",
        Some(CloseReason::Refused) => "refused: no program listens on that port",
        Some(CloseReason::Reset) => "reset by the peer",
        Some(CloseReason::TimedOut) => "timed out: the peer does not reply",
        Some(CloseReason::Aborted) => "aborted",
        None => "interrupted",
    }
}

/// Reason of a connection's end, in JSON.
fn name(reason: Option<CloseReason>) -> &'static str {
    match reason {
        Some(CloseReason::Graceful) => "graceful",
        Some(CloseReason::Refused) => "refused",
        Some(CloseReason::Reset) => "reset",
        Some(CloseReason::TimedOut) => "timed-out",
        Some(CloseReason::Aborted) => "aborted",
        None => "interrupted",
    }
}

/// Paragraph similar to the output of `ss -ti`.
pub(super) fn text(outcome: &Outcome, packets: &TunStatistics) -> String {
    let (sent, received) = outcome.bytes;
    let mut text = format!(
        "{}; {sent} bytes sent and acknowledged, {received} received in {:.3} s",
        reason(outcome.reason),
        seconds(outcome.lasted),
    );
    // Writing to a string cannot fail.
    if let Some(most) = goodput_bps(outcome) {
        let _ = write!(text, ", {:.3} Mbit/s", most / 1e6);
    }
    if let Some(info) = &outcome.info {
        let _ = write!(text, "\n  {}", line(info));
    }
    let _ = write!(
        text,
        "\n  packets: {} sent in {} writes, {} received in {} reads",
        packets.packets_sent, packets.writes, packets.packets_received, packets.reads,
    );
    if packets.refused > 0 {
        let _ = write!(text, ", {} refused", packets.refused);
    }
    text
}

fn line(info: &Info) -> String {
    let mut line = String::new();
    let snack = info.scps.is_some_and(|scps| scps.snack.is_some());
    let scps = [("scps", info.scps.is_some()), ("snack", snack)];
    let agreed = [("ts", info.timestamps), ("sack", info.sack), ("ecn", info.ecn)]
        .into_iter()
        .chain(scps)
        .filter(|o| o.1);
    agreed.for_each(|(name, _)| line += &format!("{name} "));
    let (peers, ours) = info.window_scale;
    let _ =
        write!(line, "wscale:{peers},{ours} mss:{} cwnd:{}", info.mss, info.cwnd / info.mss.max(1));
    if info.ssthresh != u64::MAX {
        let _ = write!(line, " ssthresh:{}", info.ssthresh / info.mss.max(1));
    }
    if let Some(srtt) = info.srtt {
        let (srtt, var) = (milliseconds(srtt), milliseconds(info.rttvar));
        let _ = write!(line, " rtt:{srtt:.3}/{var:.3} rto:{:.0}", milliseconds(info.rto));
    }
    if let Some(least) = info.min_rtt {
        let _ = write!(line, " minrtt:{:.3}", milliseconds(least));
    }
    let counts = &info.counts;
    let _ = write!(
        line,
        " segs_out:{} segs_in:{} retrans:{} recoveries:{} timeouts:{} spurious:{} dupacks:{}",
        counts.segments_sent,
        counts.segments_received,
        counts.retransmissions,
        counts.recoveries,
        counts.timeouts,
        counts.spurious,
        counts.duplicate_acks,
    );
    let limits = [
        ("rwnd_limited", counts.peer_window_limited),
        ("sndbuf_limited", counts.send_buffer_limited),
    ];
    for (name, limited) in limits.into_iter().filter(|(_, limited)| !limited.is_zero()) {
        let _ = write!(line, " {name}:{:.0}ms", milliseconds(limited));
    }
    line
}

/// Statistics as JSON; times are in seconds, windows and buffers in bytes.
pub(super) fn value(
    outcome: &Outcome,
    packets: &TunStatistics,
    stack: &Statistics,
    account: &Account,
) -> Value {
    let (sent, received) = outcome.bytes;
    json!({
        "end": name(outcome.reason),
        "fault": outcome.fault,
        "bytes_sent": sent,
        "bytes_received": received,
        "seconds": seconds(outcome.lasted),
        "goodput_bps": goodput_bps(outcome),
        "connection": outcome.info.as_ref().map(connection),
        "interface": object! {
            packets => [packets_sent, writes, packets_received, reads, refused, unreadable];
        },
        "exactness": account.value(),
        "stack": object! {
            stack => [
                packets, not_tcp, fragments, bad_checksums, malformed, misdirected, strangers,
                refused_syns, cookies_sent, cookies_accepted, dropped_replies, reports_taken,
                reports_ignored, plain_tcp,
            ];
        },
    })
}

fn snack_name(form: SnackForm) -> &'static str {
    match form {
        SnackForm::Short => "short",
        SnackForm::Bits => "bits",
    }
}

fn connection(info: &Info) -> Value {
    let counts = &info.counts;
    object! {
        info => [local, remote, mss, timestamps, sack, ecn, cwnd, pacing_rate_bps],
        counts => [
            segments_sent, segments_received, bytes_sent, retransmissions, recoveries, timeouts,
            spurious, ecn_reductions, duplicate_acks, window_probes, path_mtu_reports, black_holes,
            tail_loss_probes, corruptions,
        ];
        "scps": info.scps.map(|scps| json!({
            "snack": scps.snack.map(snack_name),
            "compression": scps.compression.is_some(),
            "bets": scps.bets,
        })),
        "window_scale": { "peer": info.window_scale.0, "own": info.window_scale.1 },
        "ssthresh": (info.ssthresh != u64::MAX).then_some(info.ssthresh),
        "srtt": info.srtt.map(seconds),
        "rttvar": seconds(info.rttvar),
        "min_rtt": info.min_rtt.map(seconds),
        "rto": seconds(info.rto),
        "send_buffer": info.buffers.0,
        "receive_buffer": info.buffers.1,
        "snacks_sent": counts.snacks.0,
        "snacks_received": counts.snacks.1,
        "peer_window_limited": seconds(counts.peer_window_limited),
        "send_buffer_limited": seconds(counts.send_buffer_limited),
    }
}
