//! Settings with a name.

use std::time::Duration;

use super::config::{Config, Format, Remote, Timer};

/// The settings of a profile; `None` if there is none of this name.
///
/// * `default`: slowlight's own.
/// * `checkpoints`: a checkpoint each megabyte, so that repairs begin before the end: for delays that
///   are long against the time a block takes.
/// * `async-reports`: gaps are reported as soon as they show, for the same reason.
/// * `ltplib-2011`: the library of Trinity College Dublin as a study of 2011 measured it: 992 bytes
///   of the block a segment, one segment each 20.25 ms, a checkpoint repeated after 10 s and twice, sessions
///   whose numbers take 10 bytes, and 19 ms for each answer.
/// * `ltplib-2007`: the same as a study of 2007 describes it: segments as large as the path takes, which
///   was an Ethernet frame, one each 20 ms.
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
    // Between the last segment and what answers the report were two answers, and 38 ms more than the
    // light took.
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
