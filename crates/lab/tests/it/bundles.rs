//! Files as bundles, over one hop and via relays.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;
use std::sync::atomic::AtomicBool;

use crate::chains::{self, chain, play};
use lab::compare::{Plan, compare};
use lab::content;
use lab::preset::Preset;
use lab::run::{self, Recorders};
use lab::scenario::Scenario;
use slowlight_lab as lab;

fn transfer(way: &str, more: &str) -> String {
    chains::transfer(way, "bp-tcpcl", more)
}

#[test]
fn a_file_is_a_bundle_or_several() {
    let mut times = Vec::new();
    for (size, settings) in [
        ("300 kB", ""),
        ("300 kB", "nodes.a.mib.bundle_size = \"10 kB\""),
        ("300 kB", "nodes.a.mib.bundle_size = \"301 B\""),
        ("0 B", ""),
        ("1 B", "nodes.a.mib.bundle_size = \"1 B\""),
    ] {
        let text = chain("ab", "", settings) + &transfer("ab", &format!("size = \"{size}\""));
        let run = play(&text);
        assert!(run.succeeded(), "{size} {settings}: {run:#?}");
        let it = &run.transfers[0];
        assert!(it.verified && !it.wrong_success);
        // The report takes at least the one-way light time.
        assert!(it.confirmed_s.unwrap() > it.delivered_s.unwrap() + 0.1);
        times.push(it.delivered_s.unwrap());
    }
    // 300 kB at 1 Mbit/s are 2.4 s; handshakes of TCP and TCPCL take 2.5 round trips before.
    assert!((2.9..5.0).contains(&times[0]), "{times:?}");
    assert!((2.9..5.0).contains(&times[1]), "{times:?}");
    assert!(times[3] < 1.5, "{times:?}");
}

/// Mean time of four runs until 1 MB of the 2009 study is on Earth, in seconds, at 2,000 ms and
/// with this number of bit errors in ten million.
fn from_the_moon(protocol: &str, errors: u32) -> f64 {
    let of_study = "bp-tcpcl3/dtn2-2.5";
    let mut text = include_str!("../../../../scenarios/cislunar-bp.toml").to_owned();
    assert!(text.contains(of_study));
    if protocol != of_study {
        // These run end to end; the orbiter routes packets.
        text = text.replace(of_study, protocol).replace("via = [\"orbiter\"]\n", "");
    }
    let mut scenario = Scenario::parse(&text, "cislunar-bp.toml").unwrap();
    for link in scenario.links.iter_mut().filter(|link| link.framing.is_some()) {
        link.delay = Some("2000 ms".parse().unwrap());
        link.datagram = Some("1472 B".parse().unwrap());
        // Two of ten bits on the line are start and stop bits, which the testbed could not damage.
        link.errors.ber = (errors > 0).then(|| format!("{}e-8", 8 * errors).parse().unwrap());
    }
    let time = |seed| {
        scenario.seed = seed;
        let scenario = scenario.clone().resolved().unwrap();
        let contents = run::contents(&scenario).unwrap();
        let run = run::run(&scenario, &contents, Recorders::default()).unwrap();
        run.transfers[0].delivered_s.unwrap_or(f64::INFINITY)
    };
    (1..=4).map(time).sum::<f64>() / 4.0
}

#[test]
fn protocols_at_the_link_s_rate_are_faster_than_bundles_over_tcp_of_2009() {
    let times = |protocol| [0, 10, 100].map(|errors| from_the_moon(protocol, errors));
    let kernel = times("bp-tcpcl3/dtn2-2.5");
    for protocol in ["cfdp", "ltp", "saratoga"] {
        let times = times(protocol);
        // 1 MB at 11,520 bytes per second are 87 s, plus the light time in both directions.
        assert!((87.0..100.0).contains(&times[0]), "{protocol}: {times:?}");
        let pairs = kernel.iter().zip(&times);
        assert!(
            pairs.clone().all(|(kernel, time)| kernel > time),
            "{protocol}: {kernel:?} {times:?}"
        );
    }
}

#[test]
fn relays_store_and_forward() {
    let text = chain("abcd", "per = \"1e-2\"", "") + &transfer("abcd", "size = \"300 kB\"");
    let run = play(&text);
    assert!(run.succeeded(), "{run:#?}");
    let delivered = run.transfers[0].delivered_s.unwrap();
    // Each relay has the whole bundle before it sends any of it.
    assert!((3.0 * 2.4..30.0).contains(&delivered), "{delivered}");
    assert!(run.under_way.is_empty());
    let again = play(&text);
    assert_eq!(serde_json::to_string(&run).unwrap(), serde_json::to_string(&again).unwrap());
}

#[test]
fn relays_keep_waiting_bundles_across_a_crash() {
    // The second hop is down for an hour, and the relay crashes while it holds the bundles.
    let outage = "outages = [{ at = \"0 s\", for = \"1 h\" }]";
    let text = chain("abc", "", "[nodes.b]\ncrashes = [{ at = \"600 s\", restart = \"700 s\" }]");
    let text = text.replace(
        "from = \"b\"\nto = \"c\"\nrate = \"1 Mbit/s\"",
        &format!("from = \"b\"\nto = \"c\"\n{outage}\nrate = \"1 Mbit/s\""),
    );
    let text = text + &transfer("abc", "size = \"100 kB\"");
    let text = text.replace("seed = 3", "seed = 3\nnodes.a.mib.bundle_size = \"20 kB\"");
    let run = play(&text);
    assert!(run.succeeded(), "{run:#?}");
    let delivered = run.transfers[0].delivered_s.unwrap();
    assert!((3600.0..5000.0).contains(&delivered), "{delivered}");
}

#[test]
fn expired_bundles_are_not_delivered() {
    let outage = "outages = [{ at = \"0 s\", for = \"1 h\" }]";
    let text = chain("ab", outage, "nodes.a.mib.lifetime = \"10 min\"");
    let run = play(&(text + &transfer("ab", "size = \"1 kB\"")));
    let it = &run.transfers[0];
    assert!(!it.completed && !it.wrong_success && it.delivered_s.is_none(), "{it:?}");
    assert!(it.failure.as_ref().unwrap().contains("deleted"), "{it:?}");
    assert_eq!(run.ended, "idle");
}

#[test]
fn two_files_cross_at_once_in_both_directions() {
    let text = chain("abc", "", "nodes.a.mib.bundle_size = \"20 kB\"")
        + &transfer("abc", "size = \"100 kB\"\nname = \"one\"")
        + &transfer("cba", "size = \"150 kB\"\nname = \"other\"")
        + &transfer("ab", "size = \"50 kB\"\nname = \"third\"");
    let run = play(&text);
    assert!(run.succeeded(), "{run:#?}");
}

#[test]
fn other_layers_and_versions_carry_bundles() {
    for (protocol, settings, most) in [
        ("bp-tcpcl3", "", 6.0),
        ("bp-tcpcl3", "nodes.a.mib = { version = 6, request_custody = true }", 6.0),
        ("bp-tcpcl3/dtn2-2.5", "", 6.0),
        ("bp-tcpcl", "nodes.a.mib = { version = 6, bundle_size = \"50 kB\" }", 6.0),
        ("bp-mtcp", "", 6.0),
        ("bp-stcp/linux-2.6.18", "nodes.a.mib = { version = 6, bundle_size = \"20 kB\" }", 6.0),
        ("bp-udp", "", 6.0),
        ("bp-udp", "nodes.a.mib.bundle_size = \"1 kB\"", 7.0),
        ("bp-ltp", "", 6.0),
        ("bp-ltp", "nodes.a.mib = { bundle_size = \"20 kB\", ltpcl.window = 2 }", 8.0),
        ("bp-norm", "", 6.0),
        ("file+bp+norm/coded", "", 6.0),
        ("file+bp+norm/coded", "nodes.a.mib.bundle_size = \"20 kB\"", 7.0),
        ("bp-saratoga", "", 6.0),
        ("bp-saratoga", "nodes.a.mib = { bundle_size = \"20 kB\", saratogacl.window = 2 }", 12.0),
        ("bp-saratoga/deferred", "nodes.a.mib.version = 6", 6.0),
        // 303 segments of 992 bytes per hop, one each 20.25 ms, twice.
        ("bp-ltp/ltplib-2011", "nodes.b.mib.ltp.limits.units = \"1 MB\"", 12.5),
        // 300 packets of 1,024 bytes per hop, one each 20 ms, twice.
        ("bp-udp/dtn2-2007", "", 12.0),
    ] {
        let text = chain("abc", "", settings) + &transfer("abc", "size = \"300 kB\"");
        let run = play(&text.replace("bp-tcpcl\"", &format!("{protocol}\"")));
        assert!(run.succeeded(), "{protocol} {settings}: {run:#?}");
        let it = &run.transfers[0];
        assert!(it.verified && !it.wrong_success);
        let delivered = it.delivered_s.unwrap();
        assert!((2.6..most + 1.0).contains(&delivered), "{protocol} {settings}: {delivered}");
        assert_eq!(it.confirmed_s.is_some(), !protocol.starts_with("bp-udp"), "{it:?}");
    }
}

/// Each hop codes for its own loss: a node stores the bundle and sends it again.
#[test]
fn coded_bundles_cross_hops_with_different_losses() {
    let text = chain("abc", "per = 0.01", "") + &transfer("abc", "size = \"300 kB\"");
    let text = text.replace("bp-tcpcl", "file+bp+norm/coded");
    let run = play(&text.replacen("per = 0.01", "per = 0.2", 2));
    assert!(run.succeeded(), "{run:#?}");
    let it = &run.transfers[0];
    assert!((2.6..9.0).contains(&it.delivered_s.unwrap()), "{it:?}");
}

#[test]
fn red_parts_of_blocks_arrive() {
    let run = |color: &str| {
        let settings = format!("nodes.a.mib = {{ lifetime = \"1 h\", ltpcl.color = {color} }}");
        let text = chain("ab", "per = \"5e-2\"", &settings) + &transfer("ab", "size = \"100 kB\"");
        play(&text.replace("bp-tcpcl", "bp-ltp")).transfers[0].clone()
    };
    for red in ["\"as-asked\"", "\"red\"", "{ mixed = \"1 MB\" }"] {
        let it = run(red);
        assert!(it.completed && it.confirmed_s.unwrap() < 20.0, "{red}: {it:?}");
    }
    // A few of some 70 segments are lost, and are not retransmitted.
    for green in ["\"green\"", "{ mixed = \"1 kB\" }"] {
        let it = run(green);
        assert!(!it.completed && !it.wrong_success && it.delivered_s.is_none(), "{green}: {it:?}");
    }
}

#[test]
fn neighbours_unreachable_for_too_long_are_given_up() {
    let outage = "outages = [{ at = \"1 s\", for = \"1 h\" }]";
    let failed = |layer: &str, patience: &str| {
        let settings = format!("nodes.a.mib.{layer}cl.patience = \"{patience}\"");
        let text = chain("ab", outage, &settings) + &transfer("ab", "size = \"300 kB\"");
        let run = play(&text.replace("bp-tcpcl", &format!("bp-{layer}")));
        assert!(run.succeeded(), "{run:#?}");
        run.bundle_nodes["a"].failed
    };
    for layer in ["ltp", "saratoga"] {
        assert_eq!(failed(layer, "2 h"), 0, "{layer}");
        assert!(failed(layer, "10 min") > 0, "{layer}");
    }
}

#[test]
fn a_comparison_has_relays_between_its_hops() {
    let plan = |relay: bool, link: &str| Plan {
        relay,
        ..Plan::new(
            Preset::find(link).unwrap(),
            ["bp-tcpcl", "cfdp"].map(|name| name.parse().unwrap()).into(),
            content::made_up(1, 0, 200_000).unwrap(),
        )
    };
    let delivered = |relay: bool| {
        let rows = compare(&plan(relay, "moon-farside"), &AtomicBool::new(false), &|| ());
        let rows = rows.unwrap().unwrap();
        let of = |name: &str| {
            let row = rows.iter().find(|row| row.protocol.to_string() == name).unwrap();
            assert_eq!(row.completed, 1, "{row:?}");
            row.delivered_s.unwrap().mean
        };
        ["bp-tcpcl", "cfdp"].map(of)
    };
    let ([bp, cfdp], [bp_by_relay, cfdp_by_relay]) = (delivered(false), delivered(true));
    // 200 kB take 3.1 s at 512 kbit/s, which a relay waits for, and 0.8 s at 2 Mbit/s; the light
    // time is 1.73 s. TCP has a round trip of 3.46 s end to end, and of 0.46 s and 3 s with the
    // relay.
    assert!(cfdp_by_relay > cfdp + 0.5, "{cfdp_by_relay} {cfdp}");
    assert!(bp > cfdp && bp_by_relay > 8.0, "{bp_by_relay} {bp}");
    let one_hop = compare(&plan(true, "geo"), &AtomicBool::new(false), &|| ());
    assert!(one_hop.unwrap_err().to_string().contains("no relay"));
}

/// A file of 5 MB over contacts of 10 s, which are 2.5 MB, and outages that a layer does not wait
/// for.
fn over_contacts(protocol: &str, lifetime: &str, settings: &str) -> run::Run {
    let links = "rate = \"2 Mbit/s\"\noutage_every = { period = \"2 h\", down = \"7190 s\" }";
    let text = format!(
        "seed = 1\nnodes.a.inactivity = \"{lifetime}\"\nnodes.b.inactivity = \"{lifetime}\"\n\
         {settings}\n\
         [[links]]\nfrom = \"a\"\nto = \"b\"\n{links}\n\
         [[links]]\nfrom = \"b\"\nto = \"a\"\n{links}\n\
         [[transfers]]\nfrom = \"a\"\nto = \"b\"\nprotocol = \"{protocol}\"\nsize = \"5 MB\"\n"
    );
    play(&text)
}

#[test]
fn a_bundle_has_to_fit_into_a_contact() {
    let long = over_contacts("bp-norm", "14 h", "");
    let failure = long.transfers[0].failure.clone().unwrap();
    let why = "a bundle of 5 MB does not fit into a contact of 2.5 MB: set a smaller `bundle_size`";
    assert!(failure.contains(why), "{failure}");
    for protocol in ["bp-norm", "bp-tcpcl"] {
        let parts = over_contacts(protocol, "14 h", "nodes.a.mib.bundle_size = \"1 MB\"");
        assert!(parts.succeeded(), "{protocol}: {parts:#?}");
    }
}

#[test]
fn bundles_that_do_not_arrive_have_a_reason() {
    let cases = [
        ("bp-norm", "1 h", "bundles expired before they arrived: raise `inactivity`"),
        // What a connection held when it broke is lost.
        ("bp-stcp", "14 h", "bundles were sent and did not arrive, which bp-stcp does not notice"),
    ];
    let parts = "nodes.a.mib.bundle_size = \"100 kB\"";
    for (protocol, lifetime, why) in cases {
        let run = over_contacts(protocol, lifetime, parts);
        let failure = run.transfers[0].failure.clone().unwrap();
        assert!(failure.contains(why) && !failure.contains("do not fit"), "{failure}");
    }
}

#[test]
fn mistakes_are_reported() {
    let error = |text: &str| {
        Scenario::parse(text, "world.toml").unwrap().resolved().unwrap_err().to_string()
    };
    let text = chain("abc", "", "") + &transfer("abc", "overlay = \"sfo\"");
    assert!(error(&text).contains("bundles need none"), "{}", error(&text));
    let text = chain("abc", "", "") + &transfer("ab", "") + &transfer("bc", "");
    let text = text.replacen("bp-tcpcl\"", "bp-udp\"", 1);
    assert!(error(&text).contains("speaks another protocol"), "{}", error(&text));
    let text = chain("abc", "", "") + &transfer("abc", "").replace("bp-tcpcl", "ltp");
    assert!(error(&text).contains("and bundles, not ltp"), "{}", error(&text));
}

#[test]
fn tshark_reads_the_traffic() {
    let text = chain(
        "abc",
        "",
        "capture = { at = \"b\", pcap = true }\nnodes.a.mib.bundle_size = \"30 kB\"",
    ) + &transfer("abc", "size = \"100 kB\"");
    let capture = crate::runs::Shared::default();
    let run = crate::runs::run_once(&text, capture.recorders());
    assert!(run.succeeded(), "{run:#?}");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), capture.bytes()).unwrap();
    let fields = ["-T", "fields", "-e", "_ws.malformed", "-e", "_ws.expert.message"];
    let fields = fields.into_iter().chain(["-e", "tcpcl.v4.mhdr.type", "-e", "bpv7.crc_status"]);
    let output = Command::new("tshark").arg("-r").arg(file.path()).args(fields).output();
    let Ok(output) = output else { return };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).unwrap();
    assert!(!lines.to_lowercase().contains("malformed"), "{lines}");
    // The capture contains segments of transfers, and no block's CRC is bad: 0 is bad, 1 good, 2
    // none.
    let column = |n: usize| lines.lines().filter_map(move |line| line.split('\t').nth(n));
    assert!(column(2).any(|types| types.split(',').any(|kind| kind == "1" || kind == "0x01")));
    let checks: Vec<&str> =
        column(3).flat_map(|all| all.split(',')).filter(|c| !c.is_empty()).collect();
    assert!(checks.len() >= 8, "{lines}");
    assert!(checks.iter().all(|check| *check != "0"), "{checks:?}");
}
