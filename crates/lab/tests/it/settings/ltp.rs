//! LTP.

use std::time::Duration;

use engine::{Engine as _, PathId, Rng, Time};
use ltp::Node;
use ltp::segment::{Body, Data, End, Extension, Segment};
use transport::Configuration as _;
use transport::adapter::ltp::ltp_config;
use transport::protocol::Protocol;
use transport::settings::Settings;

use super::{DEAF, Observations, World, evenly};

const LTP: World = World::of("ltp");

fn segments(observed: &Observations, by_a: bool) -> impl Iterator<Item = (f64, Segment<'_>)> {
    let sent = observed.sent.iter().filter(move |sent| sent.by_a == by_a);
    sent.map(|sent| (sent.at, Segment::decode(&sent.data).unwrap()))
}

fn data(observed: &Observations) -> Vec<(f64, Data<'_>)> {
    let data = segments(observed, true).filter_map(|(at, segment)| match segment.body {
        Body::Data(data) => Some((at, data)),
        Body::Report(_) | Body::ReportAck { .. } | Body::Cancel { .. } | Body::CancelAck { .. } => {
            None
        }
    });
    data.collect()
}

fn checkpoints(observed: &Observations) -> Vec<f64> {
    data(observed).iter().filter(|(_, data)| data.kind.is_checkpoint()).map(|(at, _)| *at).collect()
}

/// Times of reports, with the serial numbers of the checkpoints.
fn reports(observed: &Observations) -> Vec<(f64, u64)> {
    let reports = segments(observed, false).filter_map(|(at, segment)| match segment.body {
        Body::Report(report) => Some((at, report.checkpoint)),
        Body::Data(_) | Body::ReportAck { .. } | Body::Cancel { .. } | Body::CancelAck { .. } => {
            None
        }
    });
    reports.collect()
}

fn cancellations(observed: &Observations, who: End) -> Vec<f64> {
    let ends = segments(observed, who == End::Sender);
    let ends = ends.filter(|(_, s)| matches!(s.body, Body::Cancel { by, .. } if by == who));
    ends.map(|(at, _)| at).collect()
}

#[test]
fn a_service_must_be_the_same_on_both_sides() {
    let observed = LTP.play("service = 77", "service = 77").whole();
    assert!(data(&observed).iter().all(|(_, data)| data.service == 77));
    let observed = LTP.play("service = 77", "").failed();
    assert_eq!(cancellations(&observed, End::Receiver).len(), 1);
}

#[test]
fn a_raw_block_is_the_file_and_no_more() {
    let end = |observed: &Observations| {
        data(observed).iter().map(|(_, data)| data.offset + data.data.len() as u64).max().unwrap()
    };
    let raw = "format = { raw = \"x\" }";
    assert_eq!(end(&LTP.play(raw, raw).whole()), 20_000);
    assert!(end(&LTP.play("", "").whole()) > 20_000);
}

#[test]
fn a_receiver_with_cookies_puts_them_into_reports() {
    let cookies = |observed: &Observations| {
        let has = |e: Extension<'_>| e.tag == 1;
        segments(observed, false).filter(|(_, segment)| segment.header.iter().any(has)).count()
    };
    assert_eq!(cookies(&LTP.play("", "").whole()), 0);
    assert!(cookies(&LTP.play("", "cookies = true").whole()) > 0);
}

#[test]
fn a_session_ends_at_its_bounds() {
    let observed = LTP.play("", "limits = { block = \"15 kB\" }").failed();
    assert!(data(&observed).len() > 20, "what is beyond it is dropped, and sent again");
    let two = World {
        more: "[[transfers]]\nfrom = \"a\"\nto = \"b\"\nprotocol = \"ltp\"\nsize = \"1 kB\"\nname = \"two\"",
        ..LTP
    };
    two.play("", "").whole();
    let observed = two.play("limits = { sessions = 1 }", "").failed();
    assert_eq!(observed.run.transfers.iter().filter(|transfer| transfer.completed).count(), 1);
}

#[test]
fn segments_respect_their_maximum() {
    let longest = |observed: &Observations| {
        data(observed).iter().map(|(_, data)| data.data.len()).max().unwrap()
    };
    assert!(longest(&LTP.play("", "").whole()) > 1_000);
    let observed = LTP.play("default = { segment_max = \"99 B\" }", "").whole();
    assert_eq!(longest(&observed), 99);
    // Only towards the named engine.
    let observed = LTP.play("remotes.2 = { segment_max = \"98 B\" }", "").whole();
    assert_eq!(longest(&observed), 98);
    let observed = LTP.play("remotes.3 = { segment_max = \"98 B\" }", "").whole();
    assert!(longest(&observed) > 1_000);
    assert_eq!(LTP.play("default = { datagram_max = \"200 B\" }", "").whole().largest(), 200);
}

#[test]
fn checkpoints_follow_the_configured_interval() {
    assert_eq!(checkpoints(&LTP.play("", "").whole()).len(), 1);
    let observed = LTP.play("default = { checkpoint_every = \"5 kB\" }", "").whole();
    assert!((4..=5).contains(&checkpoints(&observed).len()), "{:?}", checkpoints(&observed));
    // The block takes 0.17 s.
    let observed = LTP.play("default = { checkpoint_interval = \"50 ms\" }", "").whole();
    assert!((3..=4).contains(&checkpoints(&observed).len()), "{:?}", checkpoints(&observed));
}

#[test]
fn gaps_are_reported_before_a_checkpoint() {
    let lossy = World { there: "drop = [2]", size: "100 kB", ..LTP };
    let unasked = |observed: &Observations| {
        reports(observed).iter().filter(|(_, checkpoint_times)| *checkpoint_times == 0).count()
    };
    assert_eq!(unasked(&lossy.play("", "").whole()), 0);
    assert!(unasked(&lossy.play("", "default = { report_gaps = true }").whole()) > 0);
}

#[test]
fn timers_and_limits_are_configurable() {
    let deaf = World { back: DEAF, ..LTP };
    let fixed = "default = { checkpoint_timer = \"7 s\", cancel_timer = \"3 s\", retransmission_limit = 2 }";
    let observed = deaf.play(fixed, "").failed();
    let checkpoint_times = checkpoints(&observed);
    assert!(checkpoint_times.len() == 3 && evenly(&checkpoint_times, 7.0), "{checkpoint_times:?}");
    let ends = cancellations(&observed, End::Sender);
    assert!(ends.len() == 3 && evenly(&ends, 3.0), "{ends:?}");
    // The first three acknowledgments of the report are lost; they follow the block.
    let block = data(&LTP.play("", "").whole()).len();
    let drop = format!("drop = [{block}, {}, {}]", block + 1, block + 2);
    let lossy = World { there: drop.leak(), ..LTP };
    let observed = lossy.play("", "default = { report_timer = \"9 s\" }").whole();
    let times: Vec<f64> = reports(&observed).iter().map(|(at, _)| *at).collect();
    assert!(times.len() == 4 && evenly(&times, 9.0), "{times:?}");
}

#[test]
fn silence_ends_a_reception_after_the_time_that_is_set() {
    // Only the start arrives.
    let cut = World { there: "loss_times = [{ at = \"50 ms\", for = \"1000 h\" }]", ..LTP };
    let lasted = |settings: &str| {
        let observed = cut.play("default = { retransmission_limit = 0 }", settings).failed();
        cancellations(&observed, End::Receiver)[0]
    };
    let short = lasted("default = { inactivity = \"20 s\" }");
    assert!((20.0..21.0).contains(&short), "{short}");
    let long = lasted("");
    // An hour, and eight reports of 217 ms.
    assert!((3601.5..3602.5).contains(&long), "{long}");
}

/// An engine with these settings.
fn engine(settings: &str) -> Node {
    let settings =
        Settings::parse(settings, "test", &[], "ltp".parse::<Protocol>().unwrap().kind.adapter())
            .unwrap();
    let mut config = ltp_config(&"ltp".parse().unwrap()).unwrap();
    config.apply(&settings).unwrap();
    config.set_entity(1);
    config.set_path(2, PathId(0));
    Node::new(config, Rng::new(1, "test"))
}

#[test]
fn units_share_a_block_within_configured_bounds() {
    let send = |node: &mut Node| node.send_data(Time::ZERO, 2, 9, &[7; 60]);
    assert!(send(&mut engine("aggregation = \"off\"")).is_err());
    assert!(send(&mut engine("[aggregation]\n[limits]\nunits = \"50 B\"")).is_err());
    let mut node = engine("aggregation = { size = \"100 B\", age = \"5 s\" }");
    send(&mut node).unwrap();
    assert_eq!(node.sessions().count(), 0);
    assert_eq!(node.poll_timeout().unwrap().at, Time::ZERO + Duration::from_secs(5));
    send(&mut node).unwrap();
    assert_eq!(node.sessions().count(), 1);
}

#[test]
fn repair_copies_are_bounded() {
    let far = World { there: "per = 0.2", size: "1 MB", ..LTP };
    let sent = |settings: &str| data(&far.play(settings, "").whole()).len();
    let (one, four) = (sent("default = { repair_copies = 1 }"), sent(""));
    assert!(one < four, "{one} and {four}");
}

#[test]
fn rate_interval_and_window_limit_the_sender() {
    let times =
        |observed: &Observations| data(observed).iter().map(|(at, _)| *at).collect::<Vec<_>>();
    let plain = LTP.play("", "").whole().lasted();
    let slow = LTP.play("default = { rate = \"10 kbit/s\" }", "").whole().lasted();
    // 20 kB at 10 kbit/s.
    assert!(plain < 1.0 && (16.0..18.0).contains(&slow), "{plain} and {slow}");
    let observed = LTP.play("default = { interval = \"2 s\" }", "").whole();
    assert!(evenly(&times(&observed), 2.0), "{:?}", times(&observed));
    // Without a rate and a bound, everything is sent at once.
    let before = |observed: &Observations| {
        let first = reports(observed)[0].0;
        times(observed).iter().filter(|at| **at < first).count()
    };
    let open = LTP.play("default = { rate = \"0\" }", "").whole();
    let held = "default = { rate = \"0\", unpaced_window = \"5 kB\" }";
    let held = LTP.play(held, "").whole();
    assert!(before(&open) >= 14 && before(&held) <= 6, "{} {}", before(&open), before(&held));
}

#[test]
fn keys_must_be_the_same_on_both_sides() {
    let with = |id: &str, secret: &str| {
        format!(
            "default = {{ authentication = {{ key = {{ suite = \"hmac-sha256\", id = \"{id}\", secret = \"{secret}\" }} }} }}"
        )
    };
    let (one, two) = (with("01", "0b0b"), with("01", "0c0c"));
    let observed = LTP.play(&one, &one).whole();
    let signed = |(_, segment): (f64, Segment<'_>)| segment.header.iter().any(|e| e.tag == 0);
    assert!(segments(&observed, true).all(signed) && segments(&observed, false).all(signed));
    LTP.play(&one, &two).failed();
    LTP.play("", &one).failed();
    // A second key is accepted, too.
    let both = "default = { authentication = { key = { suite = \"hmac-sha1\", id = \"02\", secret = \"0d\" },
        accepted = [{ suite = \"hmac-sha256\", id = \"01\", secret = \"0b0b\" }] } }";
    let back = "default = { authentication = { key = { suite = \"hmac-sha256\", id = \"01\", secret = \"0b0b\" },
        accepted = [{ suite = \"hmac-sha1\", id = \"02\", secret = \"0d\" }] } }";
    LTP.play(both, back).whole();
    // The keys of one engine do not apply to another.
    let other = "remotes.9 = { authentication = \"off\" }";
    LTP.play(&format!("{one}, {other}"), &one).whole();
}
