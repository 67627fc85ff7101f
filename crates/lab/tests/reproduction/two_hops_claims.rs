//! What the study of one hop concluded of two, with bundles and LTP-T, and whether it is so here.

use crate::page::{Claim, claim};
use crate::two_hops::{Cell, LTTS, OF_STUDY, TODAY, Who, goodput, mean_goodput, time};

/// The files of the study's table, in KiB.
const FILES: [u64; 4] = [4096, 2048, 1024, 512];

/// What the study has for each of them, and the standard deviation: bundles, then LTP-T, in KB/s.
const STUDY: [[(&str, f64); 2]; 4] = [
    [("36.15", 0.05), ("64.00", 3.09)],
    [("36.51", 0.34), ("54.03", 16.25)],
    [("36.23", 0.35), ("45.25", 22.34)],
    [("36.61", 0.35), ("43.13", 28.57)],
];

fn number(said: &str) -> f64 {
    said.parse().unwrap()
}

fn halves() -> Claim {
    let ratio = |ltt_ms, kib| time(Who::LtpT, ltt_ms, kib) / time(Who::Bundles, ltt_ms, kib);
    let ratios = LTTS.map(|ltt_ms| ratio(ltt_ms, FILES[0]));
    claim(
        "S1-08",
        "LTP-T's time over that of bundles, 4 MiB at 10, 100 ms, 1, 10 s",
        "about half, for larger files",
        ratios.map(|ratio| format!("{ratio:.2}")).join(", "),
        ratios.iter().all(|ratio| (ratio - 0.5).abs() < 0.5 / 3.0),
    )
}

/// The rows of the study's table.
fn table() -> Vec<Claim> {
    let of = |row: usize, column: usize| mean_goodput(OF_STUDY[column], FILES[row]);
    let row = |id, what, row: usize, column: usize, bound| {
        let (here, (said, _)) = (of(row, column), STUDY[row][column]);
        claim(id, what, said, format!("{here:.2}"), (here / number(said) - 1.0).abs() < bound)
    };
    let bundles = |id, what, at| row(id, what, at, 0, 0.05);
    let blocks = |id, what, at| row(id, what, at, 1, 1.0 / 3.0);
    let (large, gain) = (of(0, 1), of(0, 1) / of(0, 0));
    let is_near = (61.0..73.0).contains(&large);
    vec![
        bundles("S1-09a", "bundles, 4 MiB: KiB/s", 0),
        claim("S1-09b", "LTP-T, 4 MiB", STUDY[0][1].0, format!("{large:.2}"), is_near),
        claim(
            "S1-09c",
            "LTP-T over bundles, 4 MiB",
            "1.77",
            format!("{gain:.2}"),
            (1.7..2.1).contains(&gain),
        ),
        bundles("S1-10a", "bundles, 2 MiB", 1),
        blocks("S1-10b", "LTP-T, 2 MiB", 1),
        bundles("S1-11a", "bundles, 1 MiB", 2),
        blocks("S1-11b", "LTP-T, 1 MiB", 2),
        bundles("S1-12a", "bundles, 512 KiB", 3),
        blocks("S1-12b", "LTP-T, 512 KiB", 3),
    ]
}

/// Which cost before the first packet, the same for all sizes, would bring LTP-T's goodput to within a
/// standard deviation of the study's.
fn beginnings() -> Claim {
    let costs = FILES.iter().zip(STUDY).map(|(kib, [_, (said, deviation)])| {
        let alone = *kib as f64 / mean_goodput(Who::LtpT, *kib);
        let with = |goodput: f64| *kib as f64 / goodput - alone;
        (with(number(said) + deviation), with(number(said) - deviation))
    });
    let (least, most) = costs
        .fold((0.0, f64::MAX), |(least, most), (low, high)| (f64::max(least, low), most.min(high)));
    claim(
        "S1-14",
        "a start-up of LTP-T that brings all four sizes to within a standard deviation, s",
        "loading ltpd takes varying time",
        if least < most { format!("{least:.1} to {most:.1}") } else { "none".to_owned() },
        least < most,
    )
}

/// How much of a file's packets the orbiter had when it sent the first of its own, in percent.
fn had(who: Who) -> f64 {
    let packets = Cell { who, ltt_ms: 1000, kib: 512 }.packets();
    let to_orbiter: Vec<_> =
        packets.iter().filter(|it| it.from == "lander" && it.octets > 500).collect();
    let on = packets.iter().filter(|it| it.from == "orbiter" && it.to == "router");
    let first = on.filter(|it| it.octets > 500).map(|it| it.sent_s).fold(f64::MAX, f64::min);
    let before = to_orbiter.iter().filter(|it| it.at_s <= first).count();
    100.0 * before as f64 / to_orbiter.len() as f64
}

fn causes() -> Claim {
    let [bundles, blocks] = OF_STUDY.map(had);
    claim(
        "S1-15",
        "packets that the orbiter has when it sends its first: bundles; LTP-T",
        "all; the first",
        format!("{bundles:.0} %; {blocks:.1} %"),
        bundles >= 99.9 && blocks < 1.0,
    )
}

pub(crate) fn claims() -> Vec<Claim> {
    let mut claims = vec![halves()];
    claims.extend(table());
    claims.extend([beginnings(), causes()]);
    claims
}

/// The tables of the page.
pub(crate) fn print() {
    println!(
        "| light | bundles, 512 KiB | 1 MiB | 2 MiB | 4 MiB | LTP-T, 512 KiB | 1 MiB | 2 MiB | 4 MiB |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let light = |ltt_ms: u64| match ltt_ms {
        0..1000 => format!("{ltt_ms} ms"),
        _ => format!("{} s", ltt_ms / 1000),
    };
    for ltt_ms in LTTS {
        let of = |who| {
            let sizes = FILES.iter().rev().map(|kib| format!("{:.2}", goodput(who, ltt_ms, *kib)));
            sizes.collect::<Vec<_>>().join(" | ")
        };
        println!("| {} | {} | {} |", light(ltt_ms), of(Who::Bundles), of(Who::LtpT));
    }
    println!("\n| light | bundles over UDP | over TCPCL 4 | LTP-T |\n|---|---|---|---|");
    for ltt_ms in LTTS {
        let times = TODAY.map(|who| format!("{:.2}", time(who, ltt_ms, FILES[0])));
        println!("| {} | {} |", light(ltt_ms), times.join(" | "));
    }
}

/// Without a pace of 2007 the link's rate counts: 4 MiB at 100 Mbit/s are 0.34 s a hop. Bundles over UDP cross as
/// fragments of a datagram each, which go on one by one; one whole bundle takes the time of both hops.
#[test]
fn the_defaults_take_the_link_s_rate() {
    for ltt_ms in LTTS {
        let light = ltt_ms as f64 / 1000.0;
        let [udp, tcpcl, blocks] = TODAY.map(|who| time(who, ltt_ms, FILES[0]) - light);
        assert!((0.34..0.45).contains(&blocks), "{ltt_ms} ms: {blocks}");
        assert!((0.34..0.45).contains(&udp), "{ltt_ms} ms: {udp}");
        assert!(tcpcl > 0.68, "{ltt_ms} ms: {tcpcl}");
    }
}
