//! What the study of one hop concluded, and whether it is so here.

use crate::one_hop::{Cell, LTP, LTTS, SIZES, Who, found};
use crate::page::{Claim, Verdict, check, prints};
use crate::two_hops_claims;

/// The largest file, in KiB.
const LARGE: u64 = 4096;

/// Seconds until the file is there, if it comes.
fn time(who: Who, ltt_ms: u64, kib: u64) -> Option<f64> {
    found(Cell { who, ltt_ms, kib }).delivered
}

/// How many times as long LTP takes as sftp.
fn gain(ltt_ms: u64, kib: u64) -> f64 {
    time(Who::Red, ltt_ms, kib).unwrap() / time(Who::Sftp, ltt_ms, kib).unwrap()
}

/// The smallest file that sftp has there sooner than LTP, as all that are larger.
fn sooner_from(ltt_ms: u64) -> Option<u64> {
    let mut sooner = SIZES.into_iter().rev().take_while(|kib| gain(ltt_ms, *kib) > 1.0);
    sooner.by_ref().last()
}

fn failures() -> Vec<Claim> {
    let crosses = |ltt: &u64| SIZES.iter().all(|kib| time(Who::Sftp, *ltt, *kib).is_some());
    let fails = |ltt: &u64| SIZES.iter().all(|kib| time(Who::Sftp, *ltt, *kib).is_none());
    let last = LTTS.iter().rev().find(|ltt| crosses(ltt)).unwrap();
    let first = LTTS.iter().find(|ltt| fails(ltt)).unwrap();
    let late = Cell { who: Who::Sftp, ltt_ms: 10_000, kib: 1 };
    let why = found(late).failure.clone().unwrap();
    let packets = late.packets();
    // The third packet of the handshake, and the end that the server makes.
    let accepted = packets.iter().find(|packet| packet.to == "earth" && packet.kind == "ACK");
    let ended = packets.iter().find(|packet| packet.from == "earth" && packet.kind == "FIN");
    let grace = ended.unwrap().sent_s - accepted.unwrap().at_s;
    let ready = found(Cell { who: Who::Sftp, ltt_ms: 1000, kib: 1 }).ready.unwrap();
    vec![
        Claim {
            id: "S1-02a",
            what: "the longest light trip time with sftp, and the shortest without, s",
            study: "1 and 10",
            here: format!("{} and {}", last / 1000, first / 1000),
            verdict: Verdict::holds((*last, *first) == (1_000, 10_000)),
        },
        Claim {
            id: "S1-02b",
            what: "what ends it at 10 s, and when after the connection is there, s",
            study: "LoginGraceTime, 120",
            here: format!("the server, {grace:.1}"),
            verdict: Verdict::holds(why.contains("LoginGraceTime") && (grace - 120.0).abs() < 0.1),
        },
        Claim {
            id: "S1-02c",
            what: "round trips before the file",
            study: "7",
            here: format!("{:.1}", ready / 2.0),
            verdict: Verdict::holds((ready / 14.0 - 1.0).abs() < 1.0 / 3.0),
        },
    ]
}

fn against_ltp() -> Vec<Claim> {
    let near = [0, 1, 10];
    let from = near.map(sooner_from);
    let gains = near.map(|ltt| gain(ltt, LARGE));
    let grows = near.iter().all(|ltt| {
        let each: Vec<_> = SIZES.iter().map(|kib| gain(*ltt, *kib)).collect();
        each.windows(2).all(|pair| pair[0] < pair[1])
    });
    let minute = time(Who::Red, 0, LARGE).unwrap();
    let [small, middle, large] = [1, 512, LARGE].map(|kib| 1.0 / gain(100, kib));
    let all_later = |ltt: u64| SIZES.iter().all(|kib| gain(ltt, *kib) < 1.0);
    vec![
        Claim {
            id: "S1-04a",
            what: "sftp is sooner than LTP at 0, 1, 10 ms, from files of, KiB",
            study: "best, the more so the larger",
            here: from.map(|kib| kib.map_or("none".to_owned(), |kib| kib.to_string())).join(", "),
            verdict: Verdict::holds(grows && from.iter().all(Option::is_some)),
        },
        Claim {
            id: "S1-04b",
            what: "4 MiB at 0, 1, 10 ms: times as long by LTP",
            study: "less at 10 ms",
            here: gains.map(|gain| format!("{gain:.0}")).join(", "),
            verdict: Verdict::holds(gains[2] < gains[1] && gains[1] < gains[0]),
        },
        Claim {
            id: "S1-04c",
            what: "4 MiB by LTP without delay, s",
            study: "almost an entire minute",
            here: format!("{minute:.1}"),
            verdict: Verdict::holds((50.0..60.0).contains(&minute)),
        },
        Claim {
            id: "S1-05a",
            what: "at 100 ms: sftp's time over LTP's, 1 KiB; 512 KiB; 4 MiB",
            study: "effectively unusable",
            here: format!("{small:.1}; {middle:.2}; {large:.2}"),
            verdict: Verdict::holds(all_later(100)),
        },
        Claim {
            id: "S1-05b",
            what: "at 1 s: sizes of which LTP is sooner than sftp",
            study: "LTP outperforms TCP",
            here: (if all_later(1000) { "all" } else { "not all" }).to_owned(),
            verdict: Verdict::holds(all_later(1000)),
        },
    ]
}

/// The two ends of the times that bundles and the variants of LTP took.
fn spread(ltt_ms: u64, kib: u64) -> (f64, f64) {
    let all = LTP.into_iter().chain([Who::Bundles]);
    let times = all.map(|who| time(who, ltt_ms, kib).unwrap());
    times.fold((f64::MAX, 0.0), |(least, most), time| (time.min(least), time.max(most)))
}

fn delay_tolerance() -> Vec<Claim> {
    let cells = LTTS.iter().flat_map(|ltt| SIZES.map(|kib| spread(*ltt, kib)));
    let alike = cells.filter(|(least, most)| most / least < 1.05).count();
    let all = LTTS.len() * SIZES.len();
    let far = |who| Cell { who, ltt_ms: 1_200_000, kib: 1 };
    let packets = far(Who::Red).packets();
    let asked = packets.iter().find(|packet| packet.from == "lander").unwrap();
    let answered = packets.iter().find(|packet| packet.to == "lander").unwrap();
    let minutes = (answered.at_s - asked.sent_s) / 60.0;
    let of_tcp = far(Who::Sftp).packets();
    let has_connected = of_tcp.iter().any(|packet| packet.kind == "data");
    vec![
        Claim {
            id: "S1-03",
            what: "bundles, and LTP red, green, and red at first: cells in which they are within 5 %",
            study: "almost identical over most of the range",
            here: format!("{alike} of {all}"),
            verdict: Verdict::holds(2 * alike > all),
        },
        Claim {
            id: "S1-07a",
            what: "20 minutes away: a packet and its answer, minutes",
            study: "40",
            here: format!("{minutes:.1}"),
            verdict: Verdict::holds((minutes - 40.0).abs() < 0.1),
        },
        Claim {
            id: "S1-07b",
            what: "and TCP",
            study: "not delay tolerant",
            here: (if has_connected { "a connection" } else { "no connection" }).to_owned(),
            verdict: Verdict::holds(!has_connected),
        },
    ]
}

#[test]
fn the_page_states_the_verdicts() {
    if prints() {
        table();
        two_hops_claims::print();
    }
    let claims = [failures(), against_ltp(), delay_tolerance(), two_hops_claims::claims()];
    check("001-ltpt-bp-sftp.md", &claims.concat());
}

/// The times, as the page has them.
fn table() {
    let sizes = [1, 64, 512, LARGE];
    println!(
        "| light | sftp, 1 KiB | 64 KiB | 512 KiB | 4 MiB | LTP, 1 KiB | 64 KiB | 512 KiB | 4 MiB |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for ltt in LTTS {
        let of = |who| {
            let told =
                |time: Option<f64>| time.map_or("—".to_owned(), |time| format!("{time:.2}"));
            sizes.map(|kib| told(time(who, ltt, kib))).join(" | ")
        };
        let light = if ltt < 1000 { format!("{ltt} ms") } else { format!("{} s", ltt / 1000) };
        println!("| {light} | {} | {} |", of(Who::Sftp), of(Who::Red));
    }
}
