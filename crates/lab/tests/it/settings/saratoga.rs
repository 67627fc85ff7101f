//! Saratoga.

use saratoga::packet::{FileChecksum, Packet, Width};

use super::{DEAF, Observations, World, evenly};

const PUT: World = World::of("saratoga");
const GET: World = World::of("saratoga-get");

fn packets(observed: &Observations, by_a: bool) -> impl Iterator<Item = (f64, Packet<'_>)> {
    let sent = observed.sent.iter().filter(move |sent| sent.by_a == by_a);
    sent.map(|sent| (sent.at, Packet::decode(&sent.data).unwrap()))
}

/// Times of packets with data, their bytes of the file, and whether they request a STATUS.
fn data(observed: &Observations) -> Vec<(f64, usize, bool)> {
    let data = packets(observed, true).filter_map(|(at, packet)| match packet {
        Packet::Data(data) => Some((at, data.data.len(), data.wants_status)),
        Packet::Beacon(_) | Packet::Request(_) | Packet::Metadata(_) | Packet::Status(_) => None,
    });
    data.collect()
}

fn is_status(packet: &Packet<'_>) -> bool {
    matches!(packet, Packet::Status(_))
}

fn statuses(observed: &Observations) -> Vec<f64> {
    packets(observed, false).filter(|(_, packet)| is_status(packet)).map(|(at, _)| at).collect()
}

fn requests(observed: &Observations) -> Vec<f64> {
    let requests = packets(observed, false).filter(|(_, p)| matches!(p, Packet::Request(_)));
    requests.map(|(at, _)| at).collect()
}

#[test]
fn version_0_is_spoken_if_it_is_set() {
    let both = "version = 0, checksum = \"none\"";
    let observed = GET.play(both, both).whole();
    assert!(observed.sent.iter().all(|sent| Packet::decode(&sent.data).is_err()));
    GET.play("", both).failed();
}

#[test]
fn a_long_file_does_not_fit_a_narrow_descriptor() {
    let long = World { size: "100 kB", ..PUT };
    long.play("descriptor = 32", "").whole();
    long.play("descriptor = 16", "").failed();
    // A receiver that requests a file announces its limits.
    let long = World { size: "100 kB", ..GET };
    long.play("", "descriptor = 32").whole();
    long.play("", "descriptor = 16").failed();
    let width = |settings: &str| {
        let observed = PUT.play(settings, "").whole();
        let widths = packets(&observed, true).filter_map(|(_, packet)| match packet {
            Packet::Data(data) => Some(data.descriptor),
            Packet::Beacon(_) | Packet::Request(_) | Packet::Metadata(_) | Packet::Status(_) => {
                None
            }
        });
        widths.max().unwrap()
    };
    assert_eq!(width(""), Width::W16);
    assert_eq!(width("default = { descriptor_min = 64 }"), Width::W64);
}

#[test]
fn files_use_the_configured_checksum() {
    for (name, expected) in [("none", 0), ("crc32", 1), ("md5", 2), ("sha1", 3)] {
        let observed = PUT.play(&format!("checksum = \"{name}\""), "").whole();
        let found = packets(&observed, true).find_map(|(_, packet)| match packet {
            Packet::Metadata(metadata) => Some(match metadata.checksum {
                FileChecksum::None => 0,
                FileChecksum::Crc32(_) => 1,
                FileChecksum::Md5(_) => 2,
                FileChecksum::Sha1(_) => 3,
                FileChecksum::Other { kind, .. } => kind,
            }),
            Packet::Beacon(_) | Packet::Request(_) | Packet::Data(_) | Packet::Status(_) => None,
        });
        assert_eq!(found, Some(expected), "{name}");
    }
}

#[test]
fn only_permitted_requests_succeed() {
    PUT.play("", "permissions = { put = true }").whole();
    PUT.play("", "permissions = { put = false }").failed();
    GET.play("permissions = { put = false }", "").whole();
    GET.play("permissions = { get = false }", "").failed();
}

#[test]
fn journaled_data_is_not_sent_again() {
    let crash = "nodes.b.crashes = [{ at = \"6 s\", restart = \"7 s\" }]";
    let restarted = World { size: "1 MB", more: crash, ..PUT };
    let sent = |journal: &str| data(&restarted.play("", journal).whole()).len();
    let often = sent("journal = { bytes = \"50 kB\", interval = \"100 ms\" }");
    let seldom = sent("journal = { bytes = \"1 TB\", interval = \"1 h\" }");
    let never = sent("journal = { enabled = false }");
    assert!(often + 100 < seldom && often + 100 < never, "{often}, {seldom}, {never}");
}

#[test]
fn a_session_ends_at_its_bounds() {
    PUT.play("", "limits = { file = \"20 kB\" }").whole();
    PUT.play("", "limits = { file = \"19 kB\" }").failed();
    let two = World {
        more: "[[transfers]]\nfrom = \"a\"\nto = \"b\"\nprotocol = \"saratoga\"\nsize = \"20 kB\"\nname = \"two\"",
        ..PUT
    };
    two.play("", "").whole();
    let observed = two.play("", "limits = { sessions = 1 }").failed();
    assert_eq!(observed.run.transfers.iter().filter(|transfer| transfer.completed).count(), 1);
}

#[test]
fn packets_respect_the_configured_size() {
    let longest =
        |observed: &Observations| data(observed).iter().map(|(_, len, _)| *len).max().unwrap();
    assert!(longest(&PUT.play("", "").whole()) > 1_000);
    assert_eq!(longest(&PUT.play("default = { payload_max = \"99 B\" }", "").whole()), 99);
    // Only towards the named peer.
    assert_eq!(longest(&PUT.play("remotes.2 = { payload_max = \"98 B\" }", "").whole()), 98);
    assert!(longest(&PUT.play("remotes.3 = { payload_max = \"98 B\" }", "").whole()) > 1_000);
    assert_eq!(PUT.play("default = { datagram_max = \"200 B\" }", "").whole().largest(), 200);
}

#[test]
fn statuses_follow_the_configured_interval() {
    let long = World { size: "1 MB", ..PUT };
    let request_count = |settings: &str| {
        data(&long.play(settings, "").whole()).iter().filter(|(_, _, asks)| *asks).count()
    };
    // The file takes 8 s.
    let (never, often) =
        (request_count("default = { status_interval = \"off\" }"), request_count(""));
    let seldom = request_count("default = { status_interval = \"2 s\" }");
    assert!(never <= 1 && (4..=6).contains(&seldom) && often > 10, "{never}, {seldom}, {often}");
    let quiet = "default = { status_interval = \"off\" }";
    let status_count = |settings: &str| statuses(&long.play(quiet, settings).whole()).len();
    let (few, many) =
        (status_count(""), status_count("default = { voluntary_interval = \"500 ms\" }"));
    assert!(few < 5 && many > 12, "{few}, {many}");
}

#[test]
fn timers_are_configurable() {
    let deaf = World { there: DEAF, ..GET };
    let settings = "default = { request_timer = \"7 s\", inactivity = \"60 s\" }";
    let observed = deaf.play("default = { inactivity = \"1 s\" }", settings).failed();
    let request_count = requests(&observed);
    // Nine requests in a minute; then it gives up.
    assert!(
        evenly(&request_count, 7.0) && (7..=9).contains(&request_count.len()),
        "{request_count:?}"
    );
    assert!(observed.lasted() < 62.0, "{}", observed.lasted());
    // All STATUS messages after the first are lost.
    let lossy = World { back: "loss_times = [{ at = \"150 ms\", for = \"30 s\" }]", ..PUT };
    let observed = lossy.play("default = { answer_timer = \"8 s\" }", "").whole();
    let all = data(&observed);
    let empty: Vec<f64> = all.iter().filter(|(_, len, _)| *len == 0).map(|(at, ..)| *at).collect();
    assert!(empty.len() >= 3 && evenly(&empty, 8.0), "{empty:?}");
}

#[test]
fn repair_copies_are_bounded() {
    // With a request only at the end, losses are known at once, and everything is sent.
    let sent = |copies: &str| -> usize {
        let settings = format!("default = {{ status_interval = \"off\"{copies} }}");
        let sizes = ["100 kB", "200 kB", "300 kB", "500 kB", "1 MB"];
        let far = sizes.map(|size| World { there: "per = 0.2", size, ..PUT });
        far.iter().map(|far| data(&far.play(&settings, "").whole()).len()).sum()
    };
    let (one, four) = (sent(", repair_copies = 1"), sent(""));
    assert!(one < four, "{one} and {four}");
}

#[test]
fn rate_interval_and_window_limit_the_sender() {
    let plain = PUT.play("", "").whole().lasted();
    let slow = PUT.play("default = { rate = \"10 kbit/s\" }", "").whole().lasted();
    assert!(plain < 1.0 && (16.0..18.0).contains(&slow), "{plain} and {slow}");
    let full = |observed: &Observations| {
        let all = data(observed);
        all.iter().filter(|(_, len, _)| *len > 0).map(|(at, ..)| *at).collect::<Vec<_>>()
    };
    let observed = PUT.play("default = { interval = \"2 s\" }", "").whole();
    let times: Vec<f64> = packets(&observed, true).map(|(at, _)| at).collect();
    assert!(evenly(&times, 2.0), "{times:?}");
    // Without a rate and a bound, everything is sent before the first reply.
    let most = |settings: &str| {
        let observed = PUT.play(settings, "").whole();
        let times = full(&observed);
        times.iter().filter(|at| **at < times[0] + 0.15).count()
    };
    let (open, held) = (
        most("default = { rate = \"0\" }"),
        most("default = { rate = \"0\", unpaced_window = \"5 kB\" }"),
    );
    assert!(open >= 12 && held <= 6, "{open} and {held}");
    // Small packets at the interval of large ones.
    let small = "payload_max = \"100 B\"";
    let observed = PUT.play(&format!("default = {{ {small} }}"), "").whole().lasted();
    let paced = format!("default = {{ {small}, pace_as = \"1000 B\" }}");
    let paced = PUT.play(&paced, "").whole().lasted();
    assert!(paced > 3.0 * observed, "{paced} and {observed}");
}

#[test]
fn congestion_is_heeded_if_that_is_set() {
    let left = |settings: &str| {
        let packets = data(&PUT.play(settings, "").whole());
        (packets[1].0 - packets[0].0, packets.iter().filter(|(_, _, asks)| *asks).count())
    };
    let ((gap, request_count), (other_gap, other_asked)) =
        (left(""), left("default = { congestion = \"tfrc\" }"));
    // The first reply takes at least 200 ms. Until then, one packet per second.
    assert!(gap < 0.1 && (0.2..0.3).contains(&other_gap), "{gap} and {other_gap}");
    assert!(other_asked > request_count, "{request_count} and {other_asked}");
}
