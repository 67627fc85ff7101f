//! What Wang, Wu, Wang and Taleb concluded, and whether it is so here.

use crate::cislunar::{
    Cell, DELAYS, ERRORS, FILE, Found, OUTAGES, SOME_DELAYS, Who, is_data, leaves, mean, ridden_out,
};
use crate::page::{Claim, check, claim};
use crate::trace::Packet;

fn delivered(who: Who, delay_ms: u64, errors: u64, outage_s: u64) -> f64 {
    mean(Cell::of(who, delay_ms, errors, outage_s), |found| found.delivered).mean
}

/// Octets a second at 2,000 ms, for each error rate.
fn goodput(who: Who, of: fn(&Found) -> f64) -> [f64; 3] {
    ERRORS.map(|errors| FILE / mean(Cell::of(who, 2000, errors, 0), of).mean)
}

fn joined(numbers: &[f64]) -> String {
    numbers.iter().map(|number| format!("{number:.0}")).collect::<Vec<_>>().join("; ")
}

/// Whether each is what the study says, to so many percent.
fn are_near(numbers: &[f64], said: &[f64], percent: f64) -> bool {
    numbers.iter().zip(said).all(|(here, said)| (here - said).abs() <= said * percent / 100.0)
}

/// By how many percent the longest delay takes longer than the shortest.
fn growth(who: Who, errors: u64) -> f64 {
    100.0 * (delivered(who, 5000, errors, 0) / delivered(who, 1280, errors, 0) - 1.0)
}

fn delays() -> Vec<Claim> {
    let grows = |id, what, study, said: f64, errors| {
        let (kernel, window) = (growth(Who::Kernel, errors), growth(Who::Window, errors));
        let here = format!("+{kernel:.0} %; with 21.6 kB +{window:.0} %");
        claim(id, what, study, here, (kernel - said).abs() <= said / 3.0)
    };
    let times = ERRORS.map(|errors| DELAYS.map(|ms| delivered(Who::Kernel, ms, errors, 0)));
    let gaps = |errors: usize| times[errors][8] - times[0][8] > times[errors][0] - times[0][0];
    let straight = |times: &[f64]| {
        // What a line through both ends leaves unexplained, against the growth.
        let at = |ms: u64| {
            times[0] + (times[8] - times[0]) * (ms - DELAYS[0]) as f64 / (5000 - DELAYS[0]) as f64
        };
        let off = times.iter().zip(DELAYS).map(|(time, ms)| (time - at(ms)).abs());
        off.fold(0.0, f64::max) / (times[8] - times[0])
    };
    let off = straight(&times[2]);
    vec![
        grows("S4-01", "time of 1 MB from 1,280 to 5,000 ms, without errors", "+8 %", 8.0, 0),
        grows("S4-02", "the same at 1e-6", "+20 %", 20.0, 10),
        grows("S4-03a", "the same at 1e-5", "+60 %", 60.0, 100),
        claim(
            "S4-03b",
            "at 1e-5: farthest from a straight line, of the growth",
            "almost linear",
            format!("{:.0} %", 100.0 * off),
            off < 0.25,
        ),
        claim(
            "S4-03c",
            "the gap between error rates widens with the delay",
            "it does",
            format!(
                "1e-6: {:.0} to {:.0} s; 1e-5: {:.0} to {:.0} s",
                times[1][0] - times[0][0],
                times[1][8] - times[0][8],
                times[2][0] - times[0][0],
                times[2][8] - times[0][8]
            ),
            gaps(1) && gaps(2),
        ),
    ]
}

fn goodputs() -> Vec<Claim> {
    let lost = ERRORS.map(|errors| mean(Cell::of(Who::Kernel, 2000, errors, 0), |f| f.lost).mean);
    let with = goodput(Who::Kernel, |found| found.connected);
    let without = goodput(Who::Kernel, |found| found.sending);
    let window = goodput(Who::Window, |found| found.sending);
    let (said, said_with) = ([5400.0, 2550.0, 776.0], [3000.0, 2260.0, 700.0]);
    vec![
        claim(
            "S4-04",
            "packets lost of one transfer at 2,000 ms: 0; 1e-6; 1e-5",
            "0; 8; 80",
            joined(&lost),
            lost[0] == 0.0 && (5.0..13.0).contains(&lost[1]) && (60.0..110.0).contains(&lost[2]),
        ),
        claim(
            "S4-05",
            "octets a second at 2,000 ms, from the connection's beginning to its end",
            "3,000; 2,260; 700",
            joined(&with),
            are_near(&with, &said_with, 10.0),
        ),
        claim(
            "S4-06a",
            "from the first data to the last",
            "5,400; 2,550; 776",
            joined(&without),
            are_near(&without, &said, 10.0),
        ),
        claim(
            "S4-06b",
            "the same with 21.6 kB in flight at most",
            "5,400; 2,550; 776",
            joined(&window),
            are_near(&window, &said, 10.0),
        ),
    ]
}

fn outages() -> Vec<Claim> {
    let time = |ms, errors, outage| delivered(Who::Kernel, ms, errors, outage);
    // Without errors nothing is drawn.
    let each = SOME_DELAYS.map(|ms| OUTAGES.map(|outage| time(ms, 0, outage)));
    let rises = each.iter().all(|times| times.windows(2).all(|pair| pair[0] < pair[1]));
    // Seconds that breaks of 120 s cost with errors.
    let costs = SOME_DELAYS.map(|ms| [10, 100].map(|e| time(ms, e, 120) - time(ms, e, 0)));
    let costs = costs.as_flattened().iter().sum::<f64>() / 6.0;
    vec![
        claim(
            "S4-07a",
            "2,000 ms, without errors, breaks of 0, 30, 60, 90 and 120 s: seconds",
            "longer with the break",
            joined(&OUTAGES.map(|outage| time(2000, 0, outage))),
            rises,
        ),
        claim(
            "S4-07b",
            "seconds that a break of 120 s costs with errors, in the mean",
            "longer with the break",
            format!("{costs:.0}"),
            costs > 40.0,
        ),
    ]
}

/// What errors and breaks cost where light is slow, and whether anything was lost.
fn at_long_delays() -> Vec<Claim> {
    let time = |ms, errors, outage| delivered(Who::Kernel, ms, errors, outage);
    // By how much less is carried a second, in percent, with 120 s of outage.
    let less = |ms, errors| 100.0 * (1.0 - time(ms, errors, 0) / time(ms, errors, 120));
    let (near, far) = (less(1280, 0), less(5000, 100));
    // Octets a second that errors cost.
    let cost = |ms| FILE / time(ms, 0, 0) - FILE / time(ms, 100, 0);
    let (whole, broken) = ridden_out();
    vec![
        claim(
            "S4-09",
            "less goodput by 120 s of break: 1,280 ms without errors; 5,000 ms at 1e-5",
            "they merge",
            format!("{near:.0} %; {far:.0} %"),
            far < near / 3.0,
        ),
        claim(
            "S4-10a",
            "octets a second that errors of 1e-5 cost: 1,280 ms; 5,000 ms",
            "less at long delays",
            format!("{:.0}; {:.0}", cost(1280), cost(5000)),
            cost(5000) < cost(1280),
        ),
        claim(
            "S4-10b",
            "transfers that ride out breaks of 30 to 120 s",
            "all",
            format!("{whole} of {broken}"),
            whole == broken,
        ),
    ]
}

/// The break of 120 s at 2,000 ms as packets show it.
fn break_seen() -> Vec<Claim> {
    let packets = Cell::of(Who::Kernel, 2000, 0, 120).packets(1);
    let during = |packet: &&Packet| (60.0..180.0).contains(&packet.sent_s);
    let there: Vec<_> = packets.iter().filter(|packet| leaves(packet)).collect();
    let data: Vec<_> = there.iter().copied().filter(during).filter(|p| is_data(p)).collect();
    // What is sent again after the last new data.
    let last = data.iter().map(|packet| packet.sent_s).fold(0.0, f64::max);
    let is_late = |packet: &&&Packet| packet.sent_s > 75.0;
    let again = data.iter().filter(is_late).count();
    let syns: Vec<f64> =
        there.iter().filter(|packet| packet.kind == "SYN").map(|packet| packet.sent_s).collect();
    let of_break: Vec<f64> = syns.iter().copied().filter(|at| *at > 60.0).collect();
    let gaps: Vec<f64> = of_break.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let doubles = gaps.windows(2).filter(|pair| (pair[1] / pair[0] - 2.0).abs() < 0.1).count();
    let signs = there.iter().filter(|packet| packet.kind == "data" && packet.octets < 60).count();
    let after = there.iter().filter(|packet| is_data(packet) && packet.sent_s > 180.0).count();
    vec![
        claim(
            "S4-08a",
            "segments sent again in the break, and when the last",
            "about 5, exponentially",
            format!("{again}, the last at {last:.0} s"),
            (4..=6).contains(&again),
        ),
        claim(
            "S4-08b",
            "SYNs in and after the break; how often the pause between two doubles",
            "clusters of 1 + 5",
            format!("{}; {doubles}", of_break.len()),
            of_break.len() >= 3 && doubles >= 1,
        ),
        claim(
            "S4-08c",
            "signs of life of one octet; data packets after the break",
            "some; the rest",
            format!("{signs}; {after}"),
            signs > 0 && after > 0,
        ),
    ]
}

/// Seconds until the file is there, as the page has them.
fn table() {
    println!(
        "| errors | light | no break | 30 s | 60 s | 90 s | 120 s |\n|---|---|---|---|---|---|---|"
    );
    for errors in ERRORS {
        for ms in SOME_DELAYS {
            let times = OUTAGES.map(|outage| delivered(Who::Kernel, ms, errors, outage));
            let times = times.map(|time| format!("{time:.0}")).join(" | ");
            println!("| {errors}e-7 | {ms} ms | {times} |");
        }
    }
}

/// Octets of TCP's data, in kB, that the orbiter sends in each round trip of 4 s without errors.
fn round_trips(who: Who) -> Vec<f64> {
    let packets = Cell::of(who, 2000, 0, 0).packets(1);
    let data: Vec<_> = packets.iter().filter(|it| leaves(it) && is_data(it)).collect();
    let first = data.first().map_or(0.0, |packet| packet.sent_s);
    let mut sent = vec![0.0; 12];
    for packet in data {
        let trip = ((packet.sent_s - first) / 4.0) as usize;
        if let Some(sent) = sent.get_mut(trip) {
            // 20 octets of IP, and 32 of TCP with its time stamp.
            *sent += packet.octets.saturating_sub(52) as f64 / 1000.0;
        }
    }
    sent
}

/// The packets of the orbiter around a break of 120 s.
fn print_break() {
    let packets = Cell::of(Who::Kernel, 2000, 0, 120).packets(1);
    let near = |packet: &&Packet| leaves(packet) && (55.0..230.0).contains(&packet.sent_s);
    let mut before: Option<(String, u64)> = None;
    for packet in packets.iter().filter(near) {
        let kind = (packet.kind.clone(), packet.octets);
        if before.as_ref() != Some(&kind) || packet.sent_s > 62.0 && packet.sent_s < 182.0 {
            println!("{:.2} {} {} {}", packet.sent_s, kind.0, kind.1, packet.fate);
        }
        before = Some(kind);
    }
}

#[test]
fn the_page_says_what_comes_out() {
    if crate::page::prints() {
        table();
        for who in [Who::Kernel, Who::Window] {
            let sent = round_trips(who).into_iter().map(|kb| format!("{kb:.1}"));
            println!("{who:?}: {}", sent.collect::<Vec<_>>().join(", "));
        }
        print_break();
    }
    let mut claims = delays();
    claims.extend(goodputs());
    claims.extend(outages());
    let seen = break_seen();
    claims.extend(seen);
    claims.extend(at_long_delays());
    check("004-bp-tcpcl-cislunar.md", &claims);
}

#[test]
fn rates_and_questions_are_faster_on_the_same_links() {
    let mut lines =
        String::from("| who | 0 | 1e-6 | 1e-5 | 0, break of 120 s |\n|---|---|---|---|---|\n");
    for who in [Who::Kernel, Who::Today, Who::Cfdp, Who::Ltp, Who::Saratoga] {
        let times = ERRORS.map(|errors| delivered(who, 2000, errors, 0));
        let broken = delivered(who, 2000, 0, 120);
        let row = times.iter().chain([&broken]).map(|time| format!("{time:.0} s"));
        lines += &format!("| {who:?} | {} |\n", row.collect::<Vec<_>>().join(" | "));
        if matches!(who, Who::Cfdp | Who::Ltp | Who::Saratoga) {
            // 1 MB at 11,520 octets a second are 87 s, and the light back and forth.
            assert!((87.0..100.0).contains(&times[0]), "{who:?}: {times:?}");
            let kernel = ERRORS.map(|errors| delivered(Who::Kernel, 2000, errors, 0));
            assert!(kernel.iter().zip(times).all(|(kernel, time)| *kernel > time), "{who:?}");
        }
    }
    if crate::page::prints() {
        println!("{lines}");
    }
}
