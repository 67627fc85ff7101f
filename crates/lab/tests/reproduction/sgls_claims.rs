//! What Horan and Wang concluded, and whether it is so here.

use crate::page::{Claim, Estimate, check, claim};
use crate::sgls::{BASE, Cell, ERRORS, Who, time};
use crate::trace::Packet;

const LARGE: [u64; 2] = [100, 1000];
const VJ: Cell = Cell { who: Who::FpVj, ..BASE };
const VEGAS: Cell = Cell { who: Who::FpVegas, ..BASE };

/// By how much what `change` makes of a cell is slower, in percent.
fn change(cell: Cell, change: impl Fn(Cell) -> Cell) -> Estimate {
    time(change(cell)).more_than(time(cell))
}

/// The mean of that over both large files and the error rates.
fn mean_change(cell: Cell, errors: &[u64], with: impl Fn(Cell) -> Cell + Copy) -> Estimate {
    let cells = LARGE
        .iter()
        .flat_map(|size| errors.iter().map(|errors| Cell { size: *size, errors: *errors, ..cell }));
    Estimate::mean_of(&cells.map(|cell| change(cell, with)).collect::<Vec<_>>())
}

fn asymmetric(cell: Cell) -> Cell {
    Cell { asymmetric: true, ..cell }
}

fn without_timestamps(cell: Cell) -> Cell {
    Cell { timestamps: false, ..cell }
}

fn compressed(cell: Cell) -> Cell {
    Cell { compressed: true, ..cell }
}

fn by_vegas(cell: Cell) -> Cell {
    Cell { who: Who::FpVegas, ..cell }
}

fn joined(estimates: &[Estimate]) -> String {
    estimates.iter().map(|estimate| estimate.percent()).collect::<Vec<_>>().join("; ")
}

fn asymmetry() -> Vec<Claim> {
    let of_size = |size| {
        let each = ERRORS.map(|errors| change(Cell { size, errors, ..BASE }, asymmetric));
        Estimate::mean_of(&each)
    };
    let (small, large) = (of_size(100), of_size(1000));
    let segments = Cell { size: 1, ..BASE }.packets(1);
    let segments = segments.iter().filter(|packet| packet.octets > 1000).count();
    vec![
        claim(
            "S3-01a",
            "FTP, 100 kB, all rates: asymmetric against symmetric",
            "74 % slower",
            small.percent(),
            small.is_near(74.0),
        ),
        claim("S3-01b", "the same, 1 MB", "74 % slower", large.percent(), large.is_near(74.0)),
        claim("S3-01c", "segments of 1 kB", "1", segments.to_string(), segments == 1),
    ]
}

fn baseline() -> Vec<Claim> {
    let sharp = LARGE.map(|size| {
        let at = |errors| time(Cell { size, errors, ..BASE }).mean;
        (at(1) / at(0), at(10) / at(1))
    });
    let is_sharp = sharp.iter().all(|(few, many)| *few < 1.1 && *many > 1.3);
    let times = |(few, many): (f64, f64)| format!("{few:.2} and {many:.2} times");
    let against_ftp = |who| {
        ERRORS.map(|errors| {
            let cell = Cell { size: 1000, errors, ..BASE };
            time(Cell { who, ..cell }).more_than(time(cell))
        })
    };
    let (fp, snack) = (against_ftp(Who::FpVj), against_ftp(Who::FpVjSnack));
    let is_alike = |changes: [Estimate; 3]| {
        changes.iter().all(|change| change.mean.abs() <= 2.0 + 2.0 * change.sem)
    };
    let vegas = change(Cell { size: 1000, errors: 10, ..BASE }, by_vegas);
    vec![
        claim(
            "S3-02",
            "FTP, 100 kB; 1 MB: from 0 to 1e-6, and from there to 1e-5",
            "a sharp turn upward",
            format!("{}; {}", times(sharp[0]), times(sharp[1])),
            is_sharp,
        ),
        claim(
            "S3-03a",
            "fp with VJ against FTP, 1 MB at 0; 1e-6; 1e-5",
            "within 2 %",
            joined(&fp),
            is_alike(fp),
        ),
        claim("S3-03b", "the same with SNACK", "within 2 %", joined(&snack), is_alike(snack)),
        claim(
            "S3-04",
            "fp with Vegas against FTP, 1 MB at 1e-5",
            "twice the time",
            vegas.percent(),
            vegas.is_near(100.0),
        ),
    ]
}

fn timestamps() -> Vec<Claim> {
    let off = |cell| change(cell, without_timestamps);
    let vj = mean_change(VJ, &[10], without_timestamps);
    let small = [1, 10].map(|size| off(Cell { size, errors: 10, ..VJ }));
    let is_small = small.iter().all(|change| change.mean.abs() <= 2.0 * change.sem + 2.0);
    let mixed = ERRORS.map(|errors| off(asymmetric(Cell { size: 1000, errors, ..VJ })));
    let vegas = LARGE.map(|size| off(Cell { size, errors: 10, ..VEGAS }));
    let narrow = mean_change(asymmetric(VEGAS), &ERRORS, without_timestamps);
    let best = off(asymmetric(Cell { size: 1000, errors: 10, ..VEGAS }));
    vec![
        claim(
            "S3-05a",
            "fp with VJ, symmetric, 1e-5, 100 kB and 1 MB: time stamps off",
            "22 % faster",
            vj.percent(),
            vj.is_near(-22.0),
        ),
        claim("S3-05b", "the same, 1 kB and 10 kB", "no difference", joined(&small), is_small),
        claim(
            "S3-06",
            "fp with VJ, asymmetric, 1 MB at 0, 1e-6, 1e-5: time stamps off",
            "faster, slower, faster",
            joined(&mixed),
            mixed[0].mean < 0.0 && mixed[1].mean > 0.0 && mixed[2].mean < 0.0,
        ),
        claim(
            "S3-07a",
            "fp with Vegas, symmetric, 1e-5, 100 kB: time stamps off",
            "20 % less",
            vegas[0].percent(),
            vegas[0].is_near(-20.0),
        ),
        claim("S3-07b", "the same, 1 MB", "59 % less", vegas[1].percent(), vegas[1].is_near(-59.0)),
        claim(
            "S3-08a",
            "fp with Vegas, asymmetric, 100 kB and 1 MB, all rates: time stamps off",
            "20 % less",
            narrow.percent(),
            narrow.is_near(-20.0),
        ),
        claim("S3-08b", "the same, 1 MB at 1e-5", "47 % less", best.percent(), best.is_near(-47.0)),
    ]
}

fn vegas() -> Vec<Claim> {
    let wide = mean_change(VJ, &ERRORS, by_vegas);
    let narrow = mean_change(asymmetric(VJ), &ERRORS, by_vegas);
    vec![
        claim(
            "S3-09a",
            "Vegas against VJ, symmetric, 100 kB and 1 MB, all rates",
            "47 % slower",
            wide.percent(),
            wide.is_near(47.0),
        ),
        claim(
            "S3-09b",
            "Vegas against VJ, asymmetric, 100 kB and 1 MB, all rates",
            "20 % slower",
            narrow.percent(),
            narrow.is_near(20.0),
        ),
    ]
}

fn delays() -> Vec<Claim> {
    let at = |cell: Cell, delay_ms| time(Cell { delay_ms, ..cell });
    let far = |cell: Cell| at(cell, 120).more_than(at(cell, 3));
    let geo: Vec<_> = [VJ, asymmetric(VJ), VEGAS]
        .into_iter()
        .flat_map(|cell| LARGE.map(|size| far(Cell { size, ..cell })))
        .collect();
    let most = geo.iter().map(|change| change.mean).fold(f64::MIN, f64::max);
    let narrow = LARGE.map(|size| far(asymmetric(Cell { size, ..VEGAS })));
    let slope = |from, to| {
        let time = |size| at(Cell { size, ..VJ }, 3).mean;
        (time(to) / time(from)).log10()
    };
    let slopes = [slope(1, 10), slope(10, 100), slope(100, 1000)];
    let slower =
        LARGE.map(|size| at(Cell { size, ..VEGAS }, 3).more_than(at(Cell { size, ..VJ }, 3)));
    let on = LARGE.map(|size| {
        let cell = Cell { size, ..VEGAS };
        at(cell, 3).more_than(at(without_timestamps(cell), 3))
    });
    vec![
        claim(
            "S3-10a",
            "fp with VJ, and with Vegas symmetric, 100 kB and 1 MB: 120 ms against 3 ms",
            "no significant difference",
            format!("at most {most:+.1} %"),
            most < 15.0,
        ),
        claim(
            "S3-10b",
            "the same with Vegas, asymmetric",
            "no significant difference",
            joined(&narrow),
            narrow.iter().all(|change| change.mean < 15.0),
        ),
        claim(
            "S3-10c",
            "slope of time over size, both logarithmic: 1 to 10 kB, to 100 kB, to 1 MB",
            "changes at 10 kB",
            slopes.map(|slope| format!("{slope:.2}")).join(", "),
            slopes[1] - slopes[0] > 0.1 && slopes[2] - slopes[1] < 0.15,
        ),
        claim(
            "S3-10d",
            "Vegas against VJ at 3 ms without errors, 100 kB and 1 MB",
            "higher",
            joined(&slower),
            slower.iter().all(|change| change.mean > 0.5),
        ),
        claim(
            "S3-10e",
            "Vegas, symmetric, 3 ms, 100 kB and 1 MB: time stamps on against off",
            "faster",
            joined(&on),
            on.iter().all(|change| change.mean < 0.0),
        ),
    ]
}

fn compression() -> Vec<Claim> {
    let mean = |cell| mean_change(cell, &ERRORS, compressed);
    let plain = without_timestamps(BASE);
    let [wide, narrow] = [BASE, asymmetric(BASE)].map(mean);
    let [wide_plain, narrow_plain] = [plain, asymmetric(plain)].map(mean);
    let clean = mean_change(plain, &[0], compressed);
    vec![
        claim(
            "S3-11a",
            "compression, symmetric, all rates, time stamps as the kernel has them",
            "10 % better",
            wide.percent(),
            wide.is_near(-10.0),
        ),
        claim(
            "S3-11b",
            "the same without time stamps",
            "10 % better",
            format!("{}; {} without errors", wide_plain.percent(), clean.percent()),
            wide_plain.is_near(-10.0),
        ),
        claim(
            "S3-11c",
            "compression, asymmetric, all rates, time stamps as the kernel has them",
            "1 % better",
            narrow.percent(),
            narrow.mean.abs() < 3.0,
        ),
        claim(
            "S3-11d",
            "the same without time stamps",
            "1 % better",
            narrow_plain.percent(),
            narrow_plain.mean.abs() < 3.0,
        ),
    ]
}

fn compression_with_delay() -> Vec<Claim> {
    let plain = without_timestamps(BASE);
    let delayed: Vec<_> = [3, 120, 1280]
        .into_iter()
        .map(|delay_ms| mean_change(Cell { delay_ms, ..plain }, &[0], compressed))
        .collect();
    let geo = LARGE.map(|size| {
        let cell = compressed(Cell { size, ..plain });
        let at = |delay_ms| time(Cell { delay_ms, ..cell });
        at(120).more_than(at(3))
    });
    let large = Cell { size: 1000, ..plain };
    let saved = on_the_line(&large.packets(1)) - on_the_line(&compressed(large).packets(1));
    vec![
        claim(
            "S3-12a",
            "compression at 3, 120, 1,280 ms without errors, 100 kB and 1 MB",
            "no significant advantage",
            joined(&delayed),
            delayed.iter().all(|change| change.mean.abs() < 5.0),
        ),
        claim(
            "S3-12b",
            "with compression, 100 kB and 1 MB: 120 ms against 3 ms",
            "no penalty",
            joined(&geo),
            geo.iter().all(|change| change.mean < 10.0),
        ),
        // Of the header's 40 octets one is always escaped, in a window of 32,120 = 0x7d78 octets.
        claim(
            "S3-13",
            "headers of 40 octets become 3 to 5: octets less a segment, escapes included",
            "36 to 38",
            format!("{saved:.1}"),
            (35.5..38.5).contains(&saved),
        ),
    ]
}

fn verdicts() -> Vec<Claim> {
    let fp = Estimate::mean_of(&LARGE.map(|size| {
        let each = ERRORS.map(|errors| {
            let cell = Cell { size, errors, ..BASE };
            time(Cell { who: Who::FpVj, ..cell }).more_than(time(cell))
        });
        Estimate::mean_of(&each)
    }));
    let lossy = mean_change(VJ, &[1, 10], by_vegas);
    let far = LARGE.map(|size| {
        let at = |delay_ms| time(Cell { size, delay_ms, ..VJ });
        at(120).more_than(at(0))
    });
    let clean = mean_change(VJ, &[0], without_timestamps);
    let both = mean_change(BASE, &[0], |cell| compressed(without_timestamps(cell)));
    vec![
        claim(
            "S3-14a",
            "fp with VJ against FTP, 100 kB and 1 MB, all rates",
            "similar",
            fp.percent(),
            fp.mean.abs() < 10.0,
        ),
        claim(
            "S3-14b",
            "Vegas against VJ where packets are lost",
            "worse",
            lossy.percent(),
            lossy.mean > 2.0 * lossy.sem,
        ),
        claim(
            "S3-14c",
            "100 kB and 1 MB, 120 ms against none",
            "no penalty",
            joined(&far),
            far.iter().all(|change| change.mean < 10.0),
        ),
        claim(
            "S3-14d",
            "without errors: time stamps off; compression besides",
            "small advantages",
            joined(&[clean, both]),
            clean.mean < 0.0 && both.mean < clean.mean && both.mean > -10.0,
        ),
    ]
}

#[test]
fn the_page_states_the_verdicts() {
    let claims = [
        asymmetry(),
        baseline(),
        timestamps(),
        vegas(),
        delays(),
        compression(),
        compression_with_delay(),
        verdicts(),
    ];
    check("003-scps-tcp-sgls.md", &claims.concat());
}

/// Octets that a segment takes of the line to the ground, on average of those that waited for it.
fn on_the_line(packets: &[Packet]) -> f64 {
    let data: Vec<_> = packets.iter().filter(|packet| packet.octets == 1500).collect();
    let waited = data.windows(2).filter(|pair| pair[1].sent_s < pair[0].at_s - 0.016);
    // 11,520 octets a second.
    let octets: Vec<_> = waited.map(|pair| 11_520.0 * (pair[1].at_s - pair[0].at_s)).collect();
    octets.iter().sum::<f64>() / octets.len() as f64
}

/// Seconds in which the line to the ground was idle for more than 250 ms each time.
fn silence(packets: &[Packet]) -> f64 {
    let data: Vec<_> = packets.iter().filter(|packet| packet.octets > 1000).collect();
    let gap = |pair: &[&Packet]| pair[1].sent_s - pair[0].at_s;
    data.windows(2).map(gap).filter(|gap| *gap > 0.25).sum()
}

#[test]
fn an_acknowledgment_for_two_segments_is_faster_than_they_are() {
    let large = asymmetric(Cell { size: 1000, ..BASE });
    let packets = large.packets(1);
    let segments = packets.iter().filter(|packet| packet.octets == 1500).count() as f64;
    let acks: Vec<_> =
        packets.iter().filter(|packet| packet.from == "ground" && packet.octets == 52).collect();
    assert!((0.45..0.6).contains(&(acks.len() as f64 / segments)), "{} ACKs", acks.len());
    // With one for each segment the line back is what holds the transfer up.
    let each = Cell { who: Who::FtpAckingEach, ..large };
    let slower = time(each).more_than(time(Cell { asymmetric: false, ..each }));
    assert!(slower.is_near(74.0), "{slower:?}");
}

#[test]
fn at_1e_5_vegas_waits_no_longer_for_time_outs_than_vj() {
    let silence_of = |who| {
        let cell = Cell { who, size: 1000, errors: 10, ..BASE };
        let each = (1..=5).map(|seed| silence(&cell.packets(seed)));
        Estimate::of(&each.collect::<Vec<_>>())
    };
    let [ftp, vj, vegas] = [Who::Ftp, Who::FpVj, Who::FpVegas].map(silence_of);
    println!("seconds of an idle line: FTP {ftp:?}, VJ {vj:?}, Vegas {vegas:?}");
    assert!(vj.mean > 5.0 && vegas.mean < 1.3 * vj.mean, "{vj:?} {vegas:?}");
    // Twice the time is what a sender needs that never has more than one segment in flight.
    let stuck = Cell { who: Who::FtpOneSegment, size: 1000, errors: 10, ..BASE };
    let slower = time(stuck).more_than(time(Cell { who: Who::Ftp, ..stuck }));
    assert!(slower.is_near(100.0), "{slower:?}");
}

#[test]
fn time_stamps_leave_less_to_compress_and_without_them_a_loss_costs_more() {
    let fates = |cell: Cell| {
        let packets = compressed(Cell { size: 1000, errors: 10, ..cell }).packets(1);
        let having =
            |fate: &str| packets.iter().filter(|packet| packet.fate.contains(fate)).count();
        (having("error vector"), having("header not restored"))
    };
    let (with, without) = (fates(BASE), fates(without_timestamps(BASE)));
    println!("lost, and not restored: {with:?} with time stamps, {without:?} without");
    assert!(with.1 < without.1, "{with:?} {without:?}");
    assert!(without.1 > without.0 / 2, "{without:?}");
}
