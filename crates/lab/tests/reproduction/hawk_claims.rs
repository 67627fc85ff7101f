//! What the study of the Global Hawk's links concluded, and whether it is so here.

use std::sync::OnceLock;

use crate::global_hawk::{
    Cell, Errors, NCFTP_WINDOW, PER_BIT, PER_PACKET, Pep, RTTS, SCPS, Seen, TCP, Throughputs, Who,
    throughputs, usual_mb,
};
use crate::hawk_gateways::with_gateways;
use crate::page::{Claim, Estimate, check, claim, prints};

pub(crate) const FTP: Who = Who::Ftp(NCFTP_WINDOW);
/// The port of the control connection.
const CONTROL: u16 = 21;

fn mbits(estimate: Estimate) -> String {
    format!("{:.3} ± {:.3}", estimate.mean, estimate.sem)
}

fn all_mbits(estimates: &[Estimate]) -> String {
    estimates.iter().map(|estimate| mbits(*estimate)).collect::<Vec<_>>().join("; ")
}

/// All rates of errors, in either reading.
fn all_errors() -> impl Iterator<Item = Errors> + Clone {
    PER_PACKET.into_iter().chain(PER_BIT.into_iter().skip(1))
}

/// Without a gateway, and the file of most cells.
fn alone(who: Who, rtt_ms: u32, errors: Errors) -> Cell {
    Cell { who, pep: Pep::None, rtt_ms, errors, mb: usual_mb() }
}

/// The throughput without gateways.
fn throughput(who: Who, rtt_ms: u32, errors: Errors) -> Estimate {
    static FOUND: OnceLock<Throughputs> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let each = all_errors().flat_map(|errors| RTTS.map(|rtt| (rtt, errors)));
        let tcp = each.clone().filter(|(rtt, _)| *rtt > 0);
        let tcp =
            tcp.flat_map(|(rtt, errors)| [FTP, Who::Tuned].map(|who| alone(who, rtt, errors)));
        let saratoga = each.map(|(rtt, errors)| alone(Who::Saratoga, rtt, errors));
        let small = alone(Who::Ftp(12_000), 600, Errors::None);
        throughputs(tcp.chain(saratoga).chain([small]))
    });
    found.of(alone(who, rtt_ms, errors))
}

fn ftp() -> Vec<Claim> {
    let by_packet = PER_PACKET.map(|errors| throughput(FTP, 600, errors));
    let by_bit = PER_BIT.map(|errors| throughput(FTP, 600, errors));
    let is_near = |found: &Estimate| (found.mean / 0.73 - 1.0).abs() < 0.1;
    let small = throughput(Who::Ftp(12_000), 600, Errors::None);
    // nuttcp sends the largest power of two that fits into a packet.
    let udp = alone(Who::Saratoga, 0, Errors::None).udp_mbits(1024);
    vec![
        claim(
            "S2-01",
            "most of UDP, Mbit/s",
            "8.0069",
            format!("{udp:.3}"),
            (udp / 8.0069 - 1.0).abs() < 0.03,
        ),
        claim(
            "S2-05a",
            "FTP at 600 ms, errors by packet 0, 1e-7, 1e-5, Mbit/s",
            "0.730, whatever the errors",
            all_mbits(&by_packet),
            by_packet.iter().all(is_near),
        ),
        claim(
            "S2-05b",
            "the same, errors by bit",
            "0.730, whatever the errors",
            all_mbits(&by_bit),
            by_bit.iter().all(is_near),
        ),
        claim(
            "S2-06",
            "FTP at 600 ms with the window of 12,000 octets, Mbit/s",
            "0.730",
            mbits(small),
            is_near(&small),
        ),
    ]
}

/// Data of the file, and what the ground says of it.
fn of_the_file(segments: &[Seen]) -> (Vec<&Seen>, Vec<&Seen>) {
    let data = segments.iter().filter(|seen| seen.ports.0 != CONTROL && seen.ports.1 != CONTROL);
    let aircraft = segments[0].from;
    data.partition(|seen| seen.from == aircraft)
}

fn windows() -> Vec<Claim> {
    let cell = |who, errors| Cell { mb: 10, ..alone(who, 600, errors) };
    let ftp = cell(FTP, Errors::None).segments(1, "aircraft");
    let (data, answers) = of_the_file(&ftp);
    // The first of what is sent after each pause.
    let bursts: Vec<f64> = data
        .windows(2)
        .filter(|pair| pair[1].at_s - pair[0].at_s > 0.3)
        .map(|pair| pair[1].at_s)
        .collect();
    let mut periods: Vec<f64> = bursts.windows(2).map(|pair| pair[1] - pair[0]).collect();
    periods.sort_by(f64::total_cmp);
    let period = periods[periods.len() / 2];
    let most = |answers: &[&Seen]| answers.iter().map(|seen| seen.window).max().unwrap();
    let fixed = most(&answers);
    let lossy = cell(Who::Scp, Errors::PerBit(-7)).segments(1, "aircraft");
    let (_, answers) = of_the_file(&lossy);
    let (first, tuned) = (answers[1].window, most(&answers));
    let sack = answers.iter().filter(|seen| seen.has_sack).count();
    vec![
        claim(
            "S2-07",
            "a window goes out, then nothing until it is acknowledged, s",
            "0.600",
            format!("{period:.3}"),
            (period / 0.6 - 1.0).abs() < 0.1,
        ),
        claim(
            "S2-08",
            "8 Mbit/s times 600 ms, octets",
            "600,000",
            format!("{}", 8_000_000 / 8 * 600 / 1000),
            true,
        ),
        claim(
            "S2-10",
            "windows of SCP and of FTP, octets",
            "much larger",
            format!("{tuned} and {fixed}"),
            tuned > 4 * fixed,
        ),
        claim(
            "S2-12",
            "the window of SCP grows, octets",
            "220,000 to 1,000,000",
            format!("{first} to {tuned}"),
            first <= 220_000 && tuned >= 1_000_000,
        ),
        claim("S2-13", "segments with SACK blocks", "seen", sack.to_string(), sack > 0),
    ]
}

fn saratoga() -> Vec<Claim> {
    let of = |errors: [Errors; 3]| {
        let cells = errors
            .into_iter()
            .flat_map(|errors| RTTS.map(|rtt| throughput(Who::Saratoga, rtt, errors).mean));
        let (least, most) = cells
            .fold((f64::MAX, f64::MIN), |(least, most), mean| (least.min(mean), most.max(mean)));
        (least, most)
    };
    let (packets, bits) = (of(PER_PACKET), of(PER_BIT));
    let told = |(least, most): (f64, f64)| format!("{least:.2} to {most:.2}");
    let is_best = PER_BIT[1..].iter().all(|errors| {
        RTTS[1..].iter().all(|rtt| {
            let saratoga = throughput(Who::Saratoga, *rtt, *errors).mean;
            [FTP, Who::Tuned].iter().all(|who| saratoga > throughput(*who, *rtt, *errors).mean)
        })
    });
    vec![
        claim(
            "S2-14a",
            "Saratoga over all delays, errors by packet, Mbit/s",
            "consistent",
            told(packets),
            packets.0 / packets.1 > 0.9,
        ),
        claim(
            "S2-14b",
            "the same, errors by bit",
            "little fall-off",
            told(bits),
            bits.0 / bits.1 > 0.8,
        ),
        claim(
            "S2-15",
            "Saratoga against TCP at 100 ms and more, errors by bit",
            "better",
            (if is_best { "always" } else { "not always" }).to_owned(),
            is_best,
        ),
    ]
}

#[test]
fn the_page_states_the_verdicts() {
    if prints() {
        table();
    }
    let claims = [ftp(), windows(), saratoga(), with_gateways()];
    check("002-global-hawk-pep.md", &claims.concat());
}

/// The throughputs, as the page has them: without gateways, and with them.
fn table() {
    let cells = |pep: Pep| {
        let all = TCP.into_iter().chain((pep == Pep::None).then_some(Who::Saratoga));
        let of = move |rtt, errors| {
            all.clone().map(move |who| Cell { pep, ..alone(who, rtt, errors) }).collect::<Vec<_>>()
        };
        all_errors().flat_map(move |errors| RTTS.map(|rtt| (rtt, errors, of(rtt, errors))))
    };
    for pep in [Pep::None, SCPS] {
        let found = throughputs(cells(pep).flat_map(|(_, _, cells)| cells));
        let saratoga = if pep == Pep::None { " Saratoga |" } else { "" };
        println!("| errors | round trip | FTP | TCP | SCP | SFTP | rsync |{saratoga}");
        println!("|---|---|---|---|---|---|---|{}", if pep == Pep::None { "---|" } else { "" });
        for (rtt, errors, cells) in cells(pep) {
            let row: Vec<_> = cells.into_iter().map(|cell| mbits(found.of(cell))).collect();
            println!("| {errors:?} | {rtt} ms | {} |", row.join(" | "));
        }
    }
}
