//! Named settings.

use std::time::Duration;

use super::config::{Config, Format, Remote, Timer};

/// Settings of a profile; `None` if the name is unknown.
///
/// * `default`: slowlight's own.
/// * `checkpoints`: a checkpoint per megabyte, so that repairs begin before the end: for delays
///   that are long compared to a block's transmission time.
/// * `async-reports`: gaps are reported as soon as they appear, for the same reason.
/// * `ltplib-2011`: the library of Trinity College Dublin as measured by a study of 2011:
///   992 bytes of block data per segment, one segment every 20.25 ms, checkpoints retransmitted
///   after 10 s and twice, session numbers of 10 bytes, and a processing delay of 19 ms per reply.
/// * `ltplib-2007`: the same library as described by a study of 2007: segments as large as the
///   path's MTU, which was an Ethernet frame, one every 20 ms.
#[must_use]
pub fn profile(name: &str) -> Option<Config> {
    let (segment_max, interval) = match name {
        "default" => return Some(Config::default()),
        "checkpoints" => {
            let default_remote = Remote { checkpoint_every: Some(1_000_000), ..Remote::default() };
            return Some(Config { default_remote, ..Config::default() });
        }
        "async-reports" => {
            let default_remote = Remote { report_gaps: true, ..Remote::default() };
            return Some(Config { default_remote, ..Config::default() });
        }
        "ltplib-2011" => (Some(992), Duration::from_micros(20_250)),
        "ltplib-2007" => (None, Duration::from_millis(20)),
        _ => return None,
    };
    // Between the last segment and the acknowledgement of the report were two replies, and 38 ms
    // beyond the light time.
    let measured = name == "ltplib-2011";
    let host_delay = if measured { Duration::from_millis(19) } else { Duration::ZERO };
    let session_bytes = if measured { 10 } else { Config::default().session_bytes };
    let ten_seconds = Timer::Fixed(Duration::from_secs(10));
    let default_remote = Remote {
        segment_max,
        interval,
        host_delay,
        checkpoint_timer: ten_seconds,
        report_timer: ten_seconds,
        cancel_timer: ten_seconds,
        retransmission_limit: Some(2),
        repair_copies: 1,
        ..Remote::default()
    };
    let format = Format::Raw { name: "block".to_owned() };
    Some(Config { default_remote, format, session_bytes, ..Config::default() })
}
