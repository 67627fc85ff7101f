//! Random worlds: link, errors, sizes, settings, faults, crashes. `SLOWLIGHT_SCENARIOS` sets their
//! number (300); `SLOWLIGHT_SCENARIO_SEED` runs a single one and prints its scenario.
//!
//! Every run comes to rest, its memory is bounded by its files, and no end reports success without
//! the file. If only the link interferes, the file arrives.
//!
//! A separate binary, because it measures the memory of its process.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::print_stdout, reason = "faults are printed with their seed")]

use engine::Rng;
use rayon::prelude::*;
use slowlight_lab as lab;

use lab::groups::Group;
use lab::link_spec::{Bucket, Burst, LinkSpec, OnError, Queue, WhileDown};
use lab::run::{self, Recorders, Run};
use lab::scenario::{Capture, Crash, Limits, Node, Scenario, StoreFaults, Transfer};
use transport::adapter::bundles::config::BundlesConfig;
use transport::adapter::over_tcp::config::OverTcpSettings;
use transport::adapter::saratoga::SaratogaSettings;
use transport::quantity::Window;
use transport::quantity::{Probability, Rate, Size, Span};
use transport::settings::{Changes, LtpSettings, Mib, NormSettings, Settings};

fn millis(rng: &mut Rng, max: u64) -> Span {
    Span(std::time::Duration::from_millis(rng.below(max + 1)))
}

/// A number between `low` and `high`, uniform in its logarithm.
fn spread(rng: &mut Rng, low: f64, high: f64) -> f64 {
    low * (high / low).powf(rng.unit())
}

fn link(rng: &mut Rng) -> LinkSpec {
    let rate = Rate(spread(rng, 9_600.0, 100e6) as u64);
    let mut link = LinkSpec {
        rate: Some(rate),
        delay: Some(match rng.below(4) {
            0 => millis(rng, 10),
            1 => millis(rng, 300),
            2 => millis(rng, 2_000),
            _ => millis(rng, 60_000),
        }),
        datagram: Some(Size(128 + rng.below(1_345))),
        ..LinkSpec::default()
    };
    if rng.chance(0.5) {
        link.errors.per = Some(Probability(spread(rng, 1e-5, 0.3)));
    }
    if rng.chance(0.2) {
        link.errors.ber = Some(Probability(spread(rng, 1e-9, 2e-5)));
    }
    if rng.chance(0.15) {
        link.errors.burst = Some(Burst {
            to_bad: Probability(spread(rng, 1e-3, 0.1)),
            to_good: Probability(spread(rng, 0.05, 0.9)),
            good_per: Probability(0.0),
            good_ber: Probability(0.0),
            bad_per: Probability(0.5 + 0.4 * rng.unit()),
            bad_ber: Probability(0.0),
        });
    }
    if rng.chance(0.1) {
        link.errors.drop = Some((0..rng.below(12)).collect());
    }
    if rng.chance(0.15) {
        let lasts = Span(std::time::Duration::from_millis(1 + rng.below(30_000)));
        link.outages = Some(vec![Window { at: millis(rng, 5_000), lasts }]);
        link.while_down = Some(if rng.chance(0.5) { WhileDown::Hold } else { WhileDown::Drop });
    }
    if rng.chance(0.1) {
        let burst = Size(3_000 + rng.below(100_000));
        link.bucket = Some(Bucket { rate, ceil: None, burst, cburst: None });
    }
    if rng.chance(0.15) {
        link.queue = Some(Queue::Packets(2 + rng.below(60)));
    }
    link
}

/// Whether some of every few packets cross a link. After five lost replies in a row an entity may
/// consider its peer dead: that is the purpose of its inactivity timer.
fn passable(link: &LinkSpec, family: &str) -> bool {
    link.errors.burst.is_none_or(|burst| burst.to_good.value() >= 0.3)
        && link.errors.drop.as_ref().is_none_or(|drop| drop.len() <= 4)
        && (!matches!(family, "ftp" | "bp-tcpcl") || passable_for_tcp(link))
}

/// Whether TCP's timers and FTP's timeouts survive a link: they expire at a long light time, or
/// after minutes without a packet.
fn passable_for_tcp(link: &LinkSpec) -> bool {
    let short = |delay: Span| delay.duration() < std::time::Duration::from_secs(5);
    link.delay.is_none_or(short)
        && link.errors.burst.is_none()
        && link.errors.per.is_none_or(|per| per.value() < 0.1)
}

/// A size from 0 B to 20 MB, small ones more often, that takes a few hours at most.
fn size(rng: &mut Rng, rate: Rate) -> Size {
    let most = (rate.bps() as f64 / 8.0 * 7_200.0).min(20e6);
    let bytes = match rng.below(10) {
        0 => rng.below(3),
        1..7 => spread(rng, 1.0, 300e3) as u64,
        7 | 8 => spread(rng, 1e3, 2e6) as u64,
        _ => spread(rng, 1e5, 20e6) as u64,
    };
    Size(bytes.min(most as u64))
}

fn cfdp_settings(rng: &mut Rng) -> Mib {
    let mut mib = Mib::default();
    let seconds = |rng: &mut Rng| Span(std::time::Duration::from_millis(1_000 + rng.below(20_000)));
    if rng.chance(0.5) {
        let mode = match rng.below(4) {
            0 => "immediate".to_owned(),
            1 => "prompted".to_owned(),
            2 => Span(std::time::Duration::from_millis(500 + rng.below(20_000))).to_string(),
            _ => "deferred".to_owned(),
        };
        maybe(&mut mib, &["default", "nak_mode"], Some(mode));
    }
    maybe(&mut mib, &["default", "nak_gaps_max"], rng.chance(0.3).then(|| 1 + rng.below(30)));
    let checksums = ["modular", "proximity1", "crc32", "null", "crc32c"];
    let checksum = rng.chance(0.5).then(|| checksums[rng.below(5) as usize]);
    maybe(&mut mib, &["default", "checksum"], checksum);
    maybe(&mut mib, &["default", "version"], rng.chance(0.3).then_some(0_u64));
    maybe(&mut mib, &["default", "crc"], rng.chance(0.3).then_some(true));
    maybe(&mut mib, &["default", "closure"], rng.chance(0.3).then_some(true));
    maybe(&mut mib, &["default", "prompt"], rng.chance(0.2).then(|| seconds(rng)));
    maybe(&mut mib, &["default", "keep_alive"], rng.chance(0.2).then(|| seconds(rng)));
    mib
}

/// Settings of the other protocols, from a random stream of their own.
fn other_settings(seed: u64, family: &str) -> Option<Settings> {
    let rng = &mut Rng::new(seed, "random settings");
    // Long enough for most worlds; a timer that is too short for its world reaches its limit.
    let timer = |rng: &mut Rng| {
        let seconds = spread(rng, 300.0, 3_000.0) as u64;
        rng.chance(0.3).then(|| Span(std::time::Duration::from_secs(seconds)))
    };
    // A peer with such a long timer must be waited for.
    let inactivity = Some(Span(std::time::Duration::from_secs(86_400)));
    let every = |rng: &mut Rng| Span(std::time::Duration::from_millis(500 + rng.below(20_000)));
    match family {
        "cfdp" | "cfdp-ltp" => None,
        "ltp" => {
            let mut ltp = LtpSettings::default();
            let size = |rng: &mut Rng| Size(spread(rng, 1e3, 1e6) as u64);
            maybe(&mut ltp, &["default", "checkpoint_every"], rng.chance(0.3).then(|| size(rng)));
            maybe(
                &mut ltp,
                &["default", "checkpoint_interval"],
                rng.chance(0.3).then(|| every(rng)),
            );
            maybe(&mut ltp, &["default", "report_gaps"], rng.chance(0.4).then_some(true));
            maybe(&mut ltp, &["default", "checkpoint_timer"], timer(rng));
            maybe(&mut ltp, &["default", "report_timer"], timer(rng));
            maybe(&mut ltp, &["default", "inactivity"], inactivity);
            let segment = rng.chance(0.2).then(|| Size(64 + rng.below(1_000)));
            maybe(&mut ltp, &["default", "segment_max"], segment);
            let copies = rng.chance(0.3).then(|| 1 + rng.below(4));
            maybe(&mut ltp, &["default", "repair_copies"], copies);
            maybe(&mut ltp, &["cookies"], rng.chance(0.3).then_some(true));
            Some(ltp.into())
        }
        "saratoga" => {
            let mut peer = SaratogaSettings::default();
            let status = rng.chance(0.5).then(|| match rng.below(3) {
                0 => "off".to_owned(),
                1 => "auto".to_owned(),
                _ => every(rng).to_string(),
            });
            maybe(&mut peer, &["default", "status_interval"], status);
            maybe(
                &mut peer,
                &["default", "voluntary_interval"],
                rng.chance(0.3).then(|| every(rng)),
            );
            maybe(&mut peer, &["default", "answer_timer"], timer(rng));
            maybe(&mut peer, &["default", "inactivity"], inactivity);
            let payload = rng.chance(0.2).then(|| Size(40 + rng.below(1_000)));
            maybe(&mut peer, &["default", "payload_max"], payload);
            let copies = rng.chance(0.3).then(|| 1 + rng.below(4));
            maybe(&mut peer, &["default", "repair_copies"], copies);
            let checksums = ["none", "crc32", "md5", "sha1"];
            let checksum = rng.chance(0.5).then(|| checksums[rng.below(4) as usize]);
            maybe(&mut peer, &["checksum"], checksum);
            Some(peer.into())
        }
        "norm" => Some(norm_settings(rng).into()),
        "coded" => Some(coded_settings(rng).into()),
        "ftp" => Some(ftp_settings(rng).into()),
        "bp-tcpcl" => {
            let mut node = Changes::<BundlesConfig>::default();
            let part = rng.chance(0.6).then(|| Size(spread(rng, 2e3, 1e6) as u64));
            maybe(&mut node, &["bundle_size"], part);
            maybe(&mut node, &["request_reports"], rng.chance(0.2).then_some(false));
            Some(node.into())
        }
        _ => None,
    }
}

fn ftp_settings(rng: &mut Rng) -> OverTcpSettings {
    let mut ftp = OverTcpSettings::default();
    maybe(&mut ftp, &["tcp", "timestamps"], Some(rng.chance(0.7)));
    maybe(&mut ftp, &["tcp", "sack"], Some(rng.chance(0.7)));
    maybe(&mut ftp, &["tcp", "window_scale"], Some(rng.chance(0.7)));
    let buffer = |rng: &mut Rng| rng.chance(0.3).then(|| Size(4_000 + rng.below(100_000)));
    maybe(&mut ftp, &["tcp", "receive_buffer"], buffer(rng));
    maybe(&mut ftp, &["tcp", "send_buffer"], buffer(rng));
    let data = ["pasv", "epsv", "port"][rng.below(3) as usize];
    ftp.with(&["data"], data)
}

fn norm_settings(rng: &mut Rng) -> NormSettings {
    // Four codes, each with block lengths that it supports.
    let code = ["none", "rs8", "rs8-129", "rs16"][rng.below(4) as usize];
    let most = if code == "rs16" { 500 } else { 150 };
    let parity = rng.below(most / 2);
    let mut norm = NormSettings::default();
    let segment = rng.chance(0.3).then(|| 40 + 2 * rng.below(450));
    maybe(&mut norm, &["sender", "segment_size"], segment);
    maybe(&mut norm, &["sender", "fec"], Some(code));
    maybe(&mut norm, &["sender", "block_len"], Some(1 + rng.below(most)));
    maybe(&mut norm, &["sender", "parity"], Some(parity));
    maybe(&mut norm, &["sender", "auto_parity"], Some(rng.below(parity + 1)));
    maybe(&mut norm, &["sender", "info_every"], Some(rng.below(10)));
    maybe(&mut norm, &["sender", "fti_in_data"], rng.chance(0.3).then_some(false));
    maybe(&mut norm, &["sender", "backoff"], rng.chance(0.3).then(|| rng.below(7)));
    maybe(&mut norm, &["sender", "end"], rng.chance(0.3).then_some("flush"));
    maybe(&mut norm, &["limits", "assembly"], rng.chance(0.2).then_some(Size(4 << 20)));
    norm
}

fn coded_settings(rng: &mut Rng) -> NormSettings {
    let mut norm = NormSettings::default();
    maybe(&mut norm, &["sender", "segment_size"], rng.chance(0.3).then(|| 40 + rng.below(900)));
    // Shorter blocks than the default, so that short files have several.
    let block_len = rng.chance(0.5).then(|| spread(rng, 64.0, 24_576.0) as u64);
    maybe(&mut norm, &["sender", "block_len"], block_len);
    maybe(&mut norm, &["sender", "parity"], rng.chance(0.3).then(|| rng.below(100)));
    let waste = ["0", "0.1 %", "10 %", "round-trip"][rng.below(4) as usize];
    maybe(&mut norm, &["sender", "waste"], rng.chance(0.5).then_some(waste));
    let loss = rng.chance(0.3).then(|| ["0", "0.01", "0.3", "0.9"][rng.below(4) as usize]);
    maybe(&mut norm, &["sender", "loss"], loss);
    maybe(&mut norm, &["sender", "backoff"], rng.chance(0.3).then(|| rng.below(7)));
    norm
}

/// A value in its written form.
trait Written {
    fn written(self) -> toml::Value;
}

macro_rules! written {
    ($($type:ty, |$value:ident| $written:expr;)+) => {$(
        impl Written for $type {
            fn written(self) -> toml::Value {
                let $value = self;
                $written.into()
            }
        }
    )+};
}

written! {
    Size, |size| size.to_string();
    Span, |span| span.to_string();
    bool, |flag| flag;
    u64, |number| number as i64;
    &str, |word| word;
    String, |word| word;
}

/// Sets a value, if there is one.
fn maybe<C>(changes: &mut Changes<C>, path: &[&str], value: Option<impl Written>) {
    if let Some(value) = value {
        changes.set(path, value.written());
    }
}

fn faults(rng: &mut Rng) -> StoreFaults {
    StoreFaults {
        latency: rng.chance(0.5).then(|| millis(rng, 50)),
        fail_write_probability: rng.chance(0.3).then(|| Probability(spread(rng, 1e-3, 0.3))),
        capacity: rng.chance(0.2).then(|| Size(rng.below(1_000_000))),
        lose_unsynced: rng.chance(0.5).then(|| Probability(rng.unit())),
        ..StoreFaults::default()
    }
}

fn crashes(rng: &mut Rng) -> Vec<Crash> {
    let mut at = 0;
    (0..1 + rng.below(3))
        .map(|_| {
            at += 1 + rng.below(20_000);
            let crash = Span(std::time::Duration::from_millis(at));
            at += 1 + rng.below(5_000);
            Crash { at: crash, restart: Some(Span(std::time::Duration::from_millis(at))) }
        })
        .collect()
}

fn transfer(rng: &mut Rng, rate: Rate, family: &str, profile: &str) -> Transfer {
    let (from, to) = if rng.chance(0.8) { ("a", "b") } else { ("b", "a") };
    let (once, reliable): (_, &[_]) = match family {
        "cfdp" => ("cfdp-1", &["cfdp"]),
        "ltp" => ("ltp-1k-red", &["ltp"]),
        "cfdp-ltp" => ("cfdp-ltp", &["cfdp-ltp"]),
        "saratoga" => ("saratoga-blind", &["saratoga", "saratoga-get"]),
        "norm" => ("norm-fec", &["norm", "norm-fec"]),
        "coded" => ("norm/coded", &["norm/coded"]),
        "ftp" => ("ftp", &["ftp"]),
        _ => ("bp-tcpcl", &["bp-tcpcl"]),
    };
    let class =
        if rng.chance(0.15) { once } else { reliable[rng.below(reliable.len() as u64) as usize] };
    Transfer {
        from: from.to_owned(),
        to: to.into(),
        group: None,
        via: Vec::new(),
        overlay: None,
        protocol: Some(format!("{class}{profile}").parse().unwrap()),
        tool: None,
        file: None,
        size: Some(size(rng, rate)),
        content: None,
        records: None,
        name: None,
        start: rng.chance(0.3).then(|| millis(rng, 10_000)),
    }
}

/// Links from `a` to `b` and back, some via a relay.
fn links(rng: &mut Rng) -> Vec<LinkSpec> {
    let relayed = rng.chance(0.2);
    let mut links = Vec::new();
    let hops: &[(&str, &str)] = if relayed { &[("a", "r"), ("r", "b")] } else { &[("a", "b")] };
    for (from, to) in hops {
        let there = link(rng);
        let back = if rng.chance(0.7) { there.clone() } else { link(rng) };
        links.extend(both_ways((there, back), from, to));
    }
    links
}

/// A link and its return link, which has no positional losses.
fn both_ways((there, mut back): (LinkSpec, LinkSpec), from: &str, to: &str) -> [LinkSpec; 2] {
    back.errors.drop = None;
    let (from, to) = (Some(from.to_owned()), Some(to.to_owned()));
    let ends = (from.clone(), to.clone());
    [LinkSpec { from, to, ..there }, LinkSpec { from: ends.1, to: ends.0, ..back }]
}

/// A world, and whether only the link interferes with its transfers.
fn world(seed: u64, family: &str) -> (Scenario, bool) {
    let mut rng = Rng::new(seed, "random scenario");
    let rng = &mut rng;
    let mut links = links(rng);
    let damage = rng.chance(0.1);
    let mib = cfdp_settings(rng);
    let mut nodes = std::collections::BTreeMap::new();
    let mut gentle = true;
    for name in ["a", "b"] {
        let mut node = Node { mib: Some(mib.clone().into()), ..Node::default() };
        if rng.chance(0.15) {
            node.store = Some(faults(rng));
            gentle = false;
        }
        if rng.chance(0.2) {
            node.crashes = crashes(rng);
            gentle = false;
        }
        nodes.insert(name.to_owned(), node);
    }
    if damage {
        // Without its own CRC CFDP trusts UDP's checksum, which misses some damage.
        for node in nodes.values_mut() {
            let mib = node.mib.as_mut().unwrap();
            mib.set(&["default", "crc"], true);
            mib.set(&["default", "checksum"], "crc32c");
        }
        links.iter_mut().for_each(|link| link.errors.on_error = Some(OnError::Damage));
    }
    if family != "cfdp" {
        // These rely on UDP's checksum.
        let other = other_settings(seed, family);
        // Flushes without acknowledgments end when they were sent, received or not.
        let norm = other.as_ref().filter(|_| family == "norm");
        let ends = |norm: &Settings| norm.get(&["sender", "end"]).is_some();
        gentle &= !norm.is_some_and(ends);
        nodes.values_mut().for_each(|node| node.mib.clone_from(&other));
        links.iter_mut().for_each(|link| link.errors.on_error = None);
    }
    gentle &= links.iter().all(|link| passable(link, family));
    let rate = links.iter().filter_map(|link| link.rate).min().unwrap();
    let count = if rng.chance(0.2) { 1 + rng.below(4) } else { 1 };
    let profile = match family {
        "cfdp" | "ltp" | "cfdp-ltp" => "",
        "coded" => ["", "-eager", "-cc"][rng.below(3) as usize],
        "norm" => ["", "/cc", "/nrl-2011"][rng.below(3) as usize],
        "saratoga" => ["", "/deferred", "/sha1", "/tfrc"][rng.below(4) as usize],
        _ => ["", "/reno", "/vegas", "/bbr", "/linux-2.2"][rng.below(5) as usize],
    };
    gentle &= profile != "/nrl-2011";
    let transfers = (0..count).map(|_| transfer(rng, rate, family, profile)).collect();
    let scenario = Scenario {
        seed,
        about: format!("random scenario {seed}"),
        limits: Limits { events: Some(300_000_000), ..Limits::default() },
        capture: Capture::default(),
        nodes,
        groups: std::collections::BTreeMap::new(),
        links,
        transfers,
    };
    (scenario.resolved().unwrap(), gentle)
}

/// A link of a group's world: with the longest delays everywhere, round trips would take weeks.
fn near_link(rng: &mut Rng) -> LinkSpec {
    let link = link(rng);
    let delay = link.delay.map(|delay| Span(delay.duration().min(MOST_DELAY)));
    LinkSpec { delay, ..link }
}

/// A receiver in a group, and whether it has no restrictions.
fn member_node(rng: &mut Rng, shared: &NormSettings) -> (Node, bool) {
    let mut mib = shared.clone();
    maybe(&mut mib, &["receiver", "silent"], rng.chance(0.03).then_some(true));
    maybe(&mut mib, &["receiver", "unicast_nack"], rng.chance(0.3).then_some(true));
    let mut is_well = mib.get(&["receiver", "silent"]).is_none();
    let mut node = Node { mib: Some(mib.into()), ..Node::default() };
    if rng.chance(0.03) {
        node.store = Some(faults(rng));
        is_well = false;
    }
    if rng.chance(0.03) {
        node.crashes = crashes(rng);
        is_well = false;
    } else if rng.chance(0.03) {
        let restart = Some(millis(rng, 20_000));
        node.crashes = vec![Crash { at: Span(std::time::Duration::ZERO), restart }];
        is_well = false;
    }
    (node, is_well)
}

/// Settings of a sender to a group. It does not wait for unknown receivers, and would report
/// success without them, so their number is set.
fn set_group(shared: &mut NormSettings, rng: &mut Rng, receivers: u64) {
    maybe(shared, &["sender", "receivers"], Some(receivers));
    let group = rng.chance(0.3).then(|| 1 + rng.below(1_000));
    maybe(shared, &["sender", "group_size"], group);
    maybe(shared, &["sender", "collect"], rng.chance(0.3).then_some(true));
    maybe(shared, &["sender", "tail_parity"], rng.chance(0.3).then_some(false));
}

/// A world in which one or two nodes send to a group by NORM. Receivers have their own links,
/// errors, faults and crashes; some start late, are silent, or reply to the sender only.
fn group_world(seed: u64, family: &str) -> (Scenario, bool) {
    let mut rng = Rng::new(seed, "random group");
    let rng = &mut rng;
    let mut shared = if family == "coded" { coded_settings(rng) } else { norm_settings(rng) };
    let count = 2 + rng.below(7);
    let senders: &[&str] = if rng.chance(0.3) { &["s1", "s2"] } else { &["s1"] };
    // Senders are in the group, too, and receive from each other.
    set_group(&mut shared, rng, count + senders.len() as u64 - 1);
    let mut gentle = shared.get(&["sender", "end"]).is_none();
    let mut links = Vec::new();
    let mut both = |spec: LinkSpec, from: &str, to: &str, back: LinkSpec| {
        links.extend(both_ways((spec, back), from, to));
    };
    let datagram = Some(Size(128 + rng.below(1_345)));
    let one = |rng: &mut Rng| LinkSpec { datagram, ..near_link(rng) };
    let mut rates = Vec::new();
    for sender in senders {
        let up = one(rng);
        rates.extend(up.rate);
        both(up.clone(), sender, "hub", up);
    }
    let members: Vec<_> = (1..=count).map(|number| format!("r{number}")).collect();
    let mut nodes = std::collections::BTreeMap::new();
    for member in &members {
        // Branches without a rate lose nothing in their queues.
        let branch = LinkSpec { rate: None, bucket: None, queue: None, ..one(rng) };
        let back = if rng.chance(0.5) { branch.clone() } else { one(rng) };
        both(branch, "hub", member, back);
        let (node, is_well) = member_node(rng, &shared);
        gentle &= is_well;
        nodes.insert(member.clone(), node);
    }
    for sender in senders {
        let mut node = Node { mib: Some(shared.clone().into()), ..Node::default() };
        if rng.chance(0.05) {
            node.crashes = crashes(rng);
            gentle = false;
        }
        nodes.insert((*sender).to_owned(), node);
    }
    gentle &= links.iter().all(|link| passable(link, "norm"));
    let rate = rates.iter().copied().min().unwrap();
    let profile = ["", "", "", "/nrl-2011"][rng.below(4) as usize];
    gentle &= profile.is_empty();
    let profile = if family == "coded" { "" } else { profile };
    let more = if rng.chance(0.5) { rng.below(3) as usize } else { 0 };
    // A receiver starts with the first object it receives, and may miss an earlier one.
    gentle &= more == 0;
    let transfers = (0..senders.len() + more).map(|number| {
        let one = transfer(rng, rate, family, profile);
        let from = senders[number % senders.len()].to_owned();
        Transfer { from, to: "fleet".into(), size: one.size.min(Some(Size(2_000_000))), ..one }
    });
    let group = Group { members, ..Group::default() };
    let scenario = Scenario {
        seed,
        about: format!("random group {seed}"),
        limits: Limits { events: Some(300_000_000), ..Limits::default() },
        capture: Capture::default(),
        nodes,
        groups: [("fleet".to_owned(), group)].into(),
        links,
        transfers: transfers.collect(),
    };
    (scenario.resolved().unwrap(), gentle)
}

/// Maximum delay of a link in a group's world.
const MOST_DELAY: std::time::Duration = std::time::Duration::from_secs(5);

/// Resident memory of this process, in bytes.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split_whitespace().nth(1).and_then(|field| field.parse::<u64>().ok());
    pages.unwrap_or(0) * 4096
}

/// Peak memory of this process since `forget_peak`.
fn peak() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    1024 * kibibytes.unwrap_or(0)
}

fn forget_peak() {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
}

/// Memory limit of the worlds of `seeds`, as many at a time as there are threads: each holds its
/// files at both ends and in transit between the stores, and some state.
fn memory_max(seeds: &[u64], world: World) -> u64 {
    let bytes = |seed: &u64| -> u64 {
        let transfers = world(*seed).0.transfers;
        let copies = |transfer: &Transfer| COPIES + 2 * transfer.to.names().count() as u64;
        let sizes = transfers.iter().filter_map(|t| Some(t.size?.bytes() * copies(t)));
        sizes.sum()
    };
    let mut worlds: Vec<u64> = seeds.iter().map(|seed| bytes(seed) + STATE).collect();
    worlds.sort_unstable_by(|a, b| b.cmp(a));
    worlds.iter().take(rayon::current_num_threads()).sum()
}

/// Maximum copies of a file in memory, in addition to two at each receiver.
const COPIES: u64 = 4;

/// Memory of a world without files: engines, queues of links, records, the stripes of long codes.
const STATE: u64 = 80 << 20;

fn check(run: &Run, gentle: bool, scenario: &Scenario) -> Result<(), String> {
    if run.ended != "idle" {
        return Err(format!("it did not come to rest: {} at {} s", run.ended, run.time_s));
    }
    // All outages have ended, so no path is down at rest.
    if !run.under_way.is_empty() {
        return Err(format!("it came to rest with something to do: {:?}", run.under_way));
    }
    for (transfer, spec) in run.transfers.iter().zip(&scenario.transfers) {
        if transfer.wrong_success {
            return Err(format!("wrong success: {transfer:?}"));
        }
        let reliable = scenario.is_reliable(spec);
        if gentle && reliable && !transfer.completed {
            return Err(format!("only the link was in its way: {transfer:?}"));
        }
    }
    for link in &run.links {
        let lost: u64 = link.lost.values().sum();
        if link.pushed != link.delivered + link.queued + lost {
            return Err(format!("packets are missing: {link:?}"));
        }
    }
    Ok(())
}

#[test]
fn random_worlds_end_well_by_cfdp() {
    random_worlds_end_well(&|seed| world(seed, "cfdp"));
}

#[test]
fn random_worlds_end_well_by_ltp() {
    random_worlds_end_well(&|seed| world(seed, "ltp"));
}

#[test]
fn random_worlds_end_well_by_cfdp_over_ltp() {
    random_worlds_end_well(&|seed| world(seed, "cfdp-ltp"));
}

#[test]
fn random_worlds_end_well_by_saratoga() {
    random_worlds_end_well(&|seed| world(seed, "saratoga"));
}

#[test]
fn random_worlds_end_well_by_ftp() {
    random_worlds_end_well(&|seed| world(seed, "ftp"));
}

#[test]
fn random_worlds_end_well_by_bundles() {
    random_worlds_end_well(&|seed| world(seed, "bp-tcpcl"));
}

#[test]
fn random_worlds_end_well_by_norm() {
    random_worlds_end_well(&|seed| world(seed, "norm"));
}

#[test]
fn random_groups_end_well_by_norm() {
    random_worlds_end_well(&|seed| group_world(seed, "norm"));
}

#[test]
fn random_worlds_end_well_by_coded_norm() {
    random_worlds_end_well(&|seed| world(seed, "coded"));
}

#[test]
fn random_groups_end_well_by_coded_norm() {
    random_worlds_end_well(&|seed| group_world(seed, "coded"));
}

/// Function that creates the world of a seed.
type World<'a> = &'a (dyn Fn(u64) -> (Scenario, bool) + Sync);

fn random_worlds_end_well(world: World) {
    let one = std::env::var("SLOWLIGHT_SCENARIO_SEED").ok().map(|text| text.parse().unwrap());
    let count = std::env::var("SLOWLIGHT_SCENARIOS").map_or(300, |text| text.parse().unwrap());
    let seeds = one.map_or(0..count, |seed: u64| seed..seed + 1);
    let seeds: Vec<u64> = seeds.collect();
    // Worlds of the other test would be counted, too.
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let (mut bad, mut failed) = (Vec::new(), 0);
    for batch in seeds.chunks(4 * rayon::current_num_threads()) {
        let before = resident();
        forget_peak();
        let results: Vec<_> =
            batch.par_iter().map(|seed| play(*seed, world, one.is_some())).collect();
        failed += results.iter().map(|(_, incomplete)| incomplete).sum::<usize>();
        bad.extend(batch.iter().zip(results).filter_map(|(seed, (why, _))| Some((*seed, why?))));
        let grown = peak().saturating_sub(before);
        if grown > memory_max(batch, world) {
            bad.push((greediest(batch, world), format!("{grown} bytes with its batch {batch:?}")));
        }
    }
    for (seed, why) in &bad {
        println!("SLOWLIGHT_SCENARIO_SEED={seed}: {why}");
    }
    println!("{} worlds, {failed} transfers failed", seeds.len());
    assert!(bad.is_empty(), "{} worlds went wrong", bad.len());
}

/// Held by the test that measures.
static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// Runs one world. Returns its fault, if any, and the number of failed transfers.
fn play(seed: u64, world: World, tell: bool) -> (Option<String>, usize) {
    let (scenario, gentle) = world(seed);
    if tell {
        println!("{}", scenario.to_toml().unwrap());
    }
    let contents = run::contents(&scenario).unwrap();
    let run = run::run(&scenario, &contents, Recorders::default()).unwrap();
    if tell {
        println!("{}", serde_json::to_string_pretty(&run).unwrap());
    }
    let incomplete = run.transfers.iter().filter(|transfer| !transfer.completed).count();
    (check(&run, gentle, &scenario).err(), incomplete)
}

/// Seed whose world takes the most memory by itself.
fn greediest(seeds: &[u64], world: World) -> u64 {
    let taken = |seed: &u64| {
        let before = resident();
        forget_peak();
        play(*seed, world, false);
        peak().saturating_sub(before)
    };
    seeds.iter().copied().max_by_key(taken).unwrap()
}
