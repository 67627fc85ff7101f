//! What the study of the Global Hawk's links concluded of gateways, and whether it is so here.

use crate::global_hawk::{
    Cell, Errors, Pep, RTTS, SCPS, Seen, Throughputs, Who, median_echo_s, throughputs,
};
use crate::hawk_claims::FTP;
use crate::page::{Claim, claim};

/// The file of the study: in 10 MB, gateways have not filled the queue before it is over.
const MB: u64 = 100;
/// The highest of its rates of errors.
const HIGHEST: Errors = Errors::PerPacket(-5);
/// The programs of the charts.
const PROGRAMS: [Who; 4] = [FTP, Who::Scp, Who::Sftp, Who::Rsync];
/// What SSH carries.
const SSH: [Who; 3] = [Who::Scp, Who::Sftp, Who::Rsync];
/// Gateways that were told of a round trip of 100 ms: twice 10 Mbit/s times that.
const FOR_100_MS: Pep = Pep::Scps(250_000, 10);

fn cell(who: Who, pep: Pep, rtt_ms: u32, errors: Errors) -> Cell {
    Cell { who, pep, rtt_ms, errors, mb: MB }
}

/// What is compared.
fn grid() -> Throughputs {
    let mut grid = Vec::new();
    for errors in [Errors::None, HIGHEST] {
        for pep in [Pep::None, SCPS] {
            for rtt in [0, 600] {
                grid.extend(PROGRAMS.map(|who| cell(who, pep, rtt, errors)));
            }
            grid.extend([100, 300].map(|rtt| cell(Who::Scp, pep, rtt, errors)));
            grid.push(cell(Who::Tuned, pep, 600, errors));
        }
        for rtt in &RTTS[1..] {
            grid.extend([Who::Saratoga, Who::Tuned].map(|who| cell(who, Pep::None, *rtt, errors)));
        }
        grid.push(cell(Who::Tuned, FOR_100_MS, 600, errors));
    }
    throughputs(grid)
}

/// By how many percent gateways change a throughput.
fn change(found: &Throughputs, who: Who, rtt_ms: u32, errors: Errors) -> f64 {
    let of = |pep| found.of(cell(who, pep, rtt_ms, errors));
    of(SCPS).more_than(of(Pep::None)).mean
}

fn percents(changes: &[f64]) -> String {
    changes.iter().map(|change| format!("{change:+.1}")).collect::<Vec<_>>().join(", ") + " %"
}

fn interactive() -> Claim {
    let echo = |pep| RTTS.map(|rtt| median_echo_s(pep, rtt));
    let (without, with) = (echo(Pep::None), echo(SCPS));
    let told = |echo: [f64; 4]| echo.map(|echo| format!("{echo:.3}")).join(", ");
    claim(
        "S2-02",
        "telnet: until a key is seen, without and with gateways at 0, 100, 300, 600 ms, s",
        "no improvement",
        format!("{}; {}", told(without), told(with)),
        without.iter().zip(&with).all(|(without, with)| with > &(0.99 * without)),
    )
}

fn of_files(found: &Throughputs) -> Vec<Claim> {
    let none = |errors| PROGRAMS.map(|who| change(found, who, 0, errors));
    let (clean, lossy) = (none(Errors::None), none(HIGHEST));
    let far = |errors| SSH.map(|who| change(found, who, 600, errors));
    let (far_clean, far_lossy) = (far(Errors::None), far(HIGHEST));
    let ftp = change(found, FTP, 600, HIGHEST);
    let scp = RTTS.map(|rtt| change(found, Who::Scp, rtt, HIGHEST));
    vec![
        claim(
            "S2-03",
            "gateways at 0 ms, FTP, SCP, SFTP, rsync: no errors; 1e-5 a packet",
            "worse, with all",
            format!("{}; {}", percents(&clean), percents(&lossy)),
            clean.iter().chain(&lossy).all(|change| *change < 0.0),
        ),
        claim(
            "S2-04a",
            "gateways at 600 ms, SCP, SFTP, rsync, 1e-5 a packet",
            "ever so slightly better",
            percents(&far_lossy),
            far_lossy.iter().all(|change| (0.0..10.0).contains(change)),
        ),
        claim(
            "S2-04b",
            "the same without errors",
            "no improvement",
            percents(&far_clean),
            far_clean.iter().all(|change| *change < 3.0),
        ),
        claim(
            "S2-14c",
            "gateways at 600 ms, FTP, 1e-5 a packet",
            "better",
            percents(&[ftp]),
            ftp > 10.0,
        ),
        claim(
            "S2-04c",
            "the same",
            "ever so slightly better",
            percents(&[ftp]),
            (0.0..10.0).contains(&ftp),
        ),
        claim(
            "S2-14d",
            "gateways at 0, 100, 300, 600 ms, SCP, 1e-5 a packet",
            "slightly worse",
            percents(&scp),
            scp.iter().all(|change| *change < 0.0),
        ),
    ]
}

fn verdicts(found: &Throughputs) -> Vec<Claim> {
    let at = |who, pep, errors| found.of(cell(who, pep, 600, errors)).mean;
    let told = |errors| (at(Who::Saratoga, Pep::None, errors), at(Who::Tuned, SCPS, errors));
    let (clean, lossy) = (told(Errors::None), told(HIGHEST));
    let tuned = [Errors::None, HIGHEST].map(|errors| change(found, Who::Tuned, 600, errors));
    let gains = [Errors::None, HIGHEST].map(|errors| {
        [100, 300, 600].map(|rtt| {
            let of = |who| found.of(cell(who, Pep::None, rtt, errors));
            of(Who::Saratoga).more_than(of(Who::Tuned)).mean
        })
    });
    let wrong = 100.0 * (at(Who::Tuned, FOR_100_MS, Errors::None) / clean.1 - 1.0);
    vec![
        claim(
            "S2-15a",
            "Saratoga against TCP at 100, 300, 600 ms: no errors; 1e-5 a packet",
            "better",
            gains.map(|gains| percents(&gains)).join("; "),
            gains.iter().flatten().all(|gain| *gain > 0.0),
        ),
        claim(
            "S2-15b",
            "Saratoga; TCP over gateways at 600 ms without errors, with 1e-5 a packet, Mbit/s",
            "Saratoga is better",
            format!("{:.2}; {:.2}, {:.2}; {:.2}", clean.0, clean.1, lossy.0, lossy.1),
            clean.0 > clean.1 && lossy.0 > lossy.1,
        ),
        claim(
            "S2-15c",
            "gateways at 600 ms, TCP: no errors, 1e-5 a packet",
            "nearly identical",
            percents(&tuned),
            tuned.iter().all(|change| change.abs() < 3.0),
        ),
        claim(
            "S2-15d",
            "gateways at 600 ms that were told of 100 ms, against those that were told of 800",
            "must be told of the link",
            percents(&[wrong]),
            wrong < -10.0,
        ),
    ]
}

/// One side of a gateway.
#[derive(Debug, Default)]
struct Side {
    /// The largest window that the data's receiver announced.
    window: u64,
    /// Segments of data that had been there before.
    again: usize,
    /// Acknowledgments that say the same as the one before.
    duplicates: usize,
}

impl Side {
    fn of(segments: &[&Seen]) -> Self {
        let mut side = Self::default();
        let Some(first) = segments.first() else { return side };
        let (mut end, mut last) = (first.sequence, None);
        for seen in segments {
            if seen.from == first.from {
                // What begins before the end of what was there, in numbers that go around.
                side.again +=
                    usize::from(seen.data > 0 && end.wrapping_sub(seen.sequence) as i32 > 0);
                let this = seen.sequence.wrapping_add(seen.data);
                end = if this.wrapping_sub(end) as i32 > 0 { this } else { end };
            } else {
                side.window = side.window.max(seen.window);
                let says = Some((seen.acknowledgment, seen.window));
                side.duplicates += usize::from(seen.data == 0 && says == last);
                last = says;
            }
        }
        side
    }
}

/// Both sides of the aircraft's gateway: the aircraft's, and the emulator's.
fn sides(who: Who) -> [Side; 2] {
    let cell = Cell { mb: 10, ..cell(who, SCPS, 600, Errors::PerBit(-7)) };
    let all = cell.segments(1, "aircraft-gateway");
    // The connection that carries most, and the interface that its first segment came over.
    let large = all.iter().find(|seen| seen.data > 1000).unwrap();
    let of_it = all
        .iter()
        .filter(|seen| seen.ports == large.ports || seen.ports == (large.ports.1, large.ports.0));
    let (lan, wan) = of_it.partition::<Vec<_>, _>(|seen| seen.interface == large.interface);
    [Side::of(&lan), Side::of(&wan)]
}

fn traces() -> Vec<Claim> {
    let told = |[lan, wan]: &[Side; 2]| {
        format!("{} and {}; {} and {}", lan.window, wan.window, lan.again, wan.again)
    };
    let is_so = |[lan, wan]: &[Side; 2]| {
        lan.window < 65_536 && wan.window > 600_000 && lan.again < wan.again
    };
    let (ftp, scp) = (sides(FTP), sides(Who::Scp));
    let duplicates = scp[1].duplicates;
    vec![
        claim(
            "S2-09",
            "FTP at 600 ms, 1e-7 a bit, client's side and link: windows, octets; sent again",
            "small and large; on the link alone",
            told(&ftp),
            is_so(&ftp) && ftp[0].again == 0,
        ),
        claim(
            "S2-11",
            "the same of SCP; duplicate acknowledgments on the link",
            "small and large; seen on the link; seen",
            format!("{}; {duplicates}", told(&scp)),
            is_so(&scp) && duplicates > 0,
        ),
    ]
}

/// All claims about gateways.
pub(crate) fn with_gateways() -> Vec<Claim> {
    let found = grid();
    let mut claims = vec![interactive()];
    claims.extend(of_files(&found));
    claims.extend(verdicts(&found));
    claims.extend(traces());
    claims
}
