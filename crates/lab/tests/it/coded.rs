//! Coded transfers: share of the bound and capacity over long links with losses, and erasure codes
//! of links below other transports. More seeds with `SLOWLIGHT_SEEDS`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::print_stdout, reason = "what it measured, for who runs more")]

use std::sync::atomic::AtomicBool;

use slowlight_lab as lab;

use engine::Rng;
use lab::compare::{Plan, Row, compare};
use lab::content::random_content;
use lab::link_spec::LinkSpec;
use lab::preset::Preset;

fn seeds(default: u32) -> u32 {
    std::env::var("SLOWLIGHT_SEEDS").map_or(default, |text| text.parse().unwrap())
}

fn plan(link: &str, protocol: &str, bytes: u64, runs: u32) -> Plan {
    let hop: LinkSpec = transport::text::parse(link, "link").unwrap();
    let link = Preset { about: String::new(), sharing: None, hops: vec![hop] };
    Plan { runs, ..Plan::new(link, vec![protocol.parse().unwrap()], random_content(1, bytes)) }
}

/// Results over a link, in TOML; every run is complete.
fn row(link: &str, protocol: &str, bytes: u64, runs: u32) -> Row {
    of(&plan(link, protocol, bytes, runs))
}

fn of(plan: &Plan) -> Row {
    let rows = compare(plan, &AtomicBool::new(false), &|| ()).unwrap().expect("nobody cancels");
    let row = rows.into_iter().next().unwrap();
    assert_eq!(row.completed, row.runs, "{}: {:?}", row.protocol, row.failures);
    let (efficiency, spent) = (row.efficiency.unwrap_or(f64::NAN), row.spent.unwrap_or(f64::NAN));
    println!("{}: efficiency {efficiency:.4}, spent {spent:.4}", row.protocol);
    row
}

/// Asserts the share of the bound.
fn reaches(least: f64, row: &Row) {
    let efficiency = row.efficiency.unwrap();
    assert!(efficiency >= least, "{}: {efficiency}", row.protocol);
}

#[test]
fn a_megabyte_over_a_geostationary_satellite() {
    for per in ["1e-3", "1e-2", "0.1"] {
        let link = format!("rate = \"10 Mbit/s\"\ndelay = \"250 ms\"\nper = {per}");
        reaches(0.95, &row(&link, "norm/coded", 1_000_000, seeds(10)));
    }
}

#[test]
fn a_fifth_is_lost() {
    let link = "rate = \"20 Mbit/s\"\ndelay = \"270 ms\"\nper = 0.2";
    reaches(0.93, &row(link, "norm/coded", 2_500_000, seeds(10)));
}

#[test]
fn ten_megabytes_from_the_moon_with_a_tenth_lost() {
    let link = "rate = \"10 Mbit/s\"\ndelay = \"1.25 s\"\nper = 0.1";
    let row = row(link, "norm/coded", 10_000_000, seeds(4));
    reaches(0.97, &row);
    // A round trip at 10 Mbit/s are 3.1 MB.
    let most = 1.05 * row.bound_spent.unwrap() + 0.31;
    assert!(row.spent.unwrap() <= most, "{:?} of {most}", row.spent);
}

/// Outages that are more frequent than flushes, whose timer they restart.
#[test]
fn frequent_outages_of_a_path_end_no_later() {
    let link = "rate = \"400 kbit/s\"\ndelay = \"182 s\"\n\
                outage_every = { period = \"30 s\", down = \"2 s\", first = \"10 s\" }";
    // Parity crosses the acknowledgement.
    let row = row(link, "norm/coded", 10_000_000, 1);
    let (delivered, confirmed) = (row.delivered_s.unwrap().mean, row.confirmed_s.unwrap().mean);
    println!("{delivered} s, confirmed after {confirmed} s");
    assert!(confirmed - delivered < 190.0, "{delivered} s, confirmed after {confirmed} s");
    // A receiver that is never heard.
    let link = format!("{link}\nreturn = {{ per = 1 }}");
    let plan = plan(&link, "norm", 100_000, 1);
    let rows = compare(&plan, &AtomicBool::new(false), &|| ()).unwrap().expect("nobody cancels");
    let (_, failure) = rows[0].failures.first().expect("nothing is acknowledged");
    assert!(!failure.contains("still waiting"), "{failure}");
}

#[test]
fn losses_in_bursts() {
    // Bursts of 50 packets on average, which lose 5 %.
    let link = "rate = \"10 Mbit/s\"\ndelay = \"1.25 s\"\n\
                burst = { to_bad = \"0.00105263\", to_good = \"0.02\", bad_per = \"1\" }";
    reaches(0.9, &row(link, "norm/coded", 10_000_000, seeds(4)));
}

/// Before, blocks of more than 4,096 segments had parity for a quarter of them: a hundredth.
#[test]
fn two_fifths_are_lost() {
    let link = "rate = \"80 Mbit/s\"\ndelay = \"127 ms\"\nqueue = \"unlimited\"\nper = 0.4";
    for size in [8_500_000, 30_000_000] {
        reaches(0.93, &row(link, "norm/coded", size, 1));
    }
}

#[test]
fn parity_until_receivers_report_serves_files_shorter_than_a_round_trip() {
    let link = "rate = \"20 Mbit/s\"\ndelay = \"10 s\"\nper = 0.2\n\
                return = { rate = \"40 kbit/s\" }";
    reaches(0.9, &row(link, "norm/coded-eager", 20_000_000, seeds(2)));
}

#[test]
fn parity_is_the_same_for_all_receivers() {
    let link = "rate = \"10 Mbit/s\"\ndelay = \"250 ms\"\nper = 0.05";
    let many = Plan { receivers: 20, ..plan(link, "norm/coded", 2_000_000, 2) };
    reaches(0.9, &of(&many));
}

/// A code of the link that outdoes the losses leaves nothing to retransmit, at its price.
#[test]
fn a_code_below_takes_its_share_and_saves_round_trips() {
    let link = "rate = \"10 Mbit/s\"\ndelay = \"5 s\"\nper = 0.1";
    let coded = format!("{link}\nerasure = {{ k = 512, n = 768 }}");
    for protocol in ["ltp", "cfdp", "saratoga"] {
        let plain = row(link, protocol, 5_000_000, 2);
        let coded = row(&coded, protocol, 5_000_000, 2);
        let seconds = |row: &Row| row.delivered_s.unwrap().mean;
        // Half of the frames are parity more, and a round trip are 10 s.
        let share = 4.0 * 1.5 + 5.0;
        assert!((share..share + 1.5).contains(&seconds(&coded)), "{protocol}: {}", seconds(&coded));
        assert!(seconds(&plain) > seconds(&coded) + 5.0, "{protocol}: {}", seconds(&plain));
        let spent = coded.spent.unwrap();
        assert!((1.5..1.65).contains(&spent), "{protocol}: {spent}");
    }
}

#[test]
fn capacity_is_what_an_ideal_sender_takes_or_more() {
    let link = "rate = \"10 Mbit/s\"\ndelay = \"100 ms\"\nper = 0.1";
    let row = row(link, "saratoga", 1_000_000, 4);
    // 680 packets of 1,514 bytes on the line, each sent 1 / 0.9 times.
    let least = row.bound_spent.unwrap();
    assert!((1.14..1.15).contains(&least), "{least}");
    let spent = row.spent.unwrap();
    assert!((least * 0.99..least * 1.1).contains(&spent), "{spent}");
    assert!(row.traffic.link_bytes > row.traffic.bytes_str, "{:?}", row.traffic);
}

/// Share of the bound that the best transport must reach on a random link, and the share of links.
const OF_BOUND: f64 = 0.93;
const OF_LINKS: f64 = 0.95;

/// Transports that random links are tried with.
const ALL: [&str; 5] = ["norm/coded", "norm/coded-eager", "norm-fec", "saratoga", "ltp"];

/// A link between a few kilometres and the outer planets, and the size of a file that crosses it
/// in at most 10,000 packets.
fn random_link(seed: u64) -> (String, u64) {
    let mut rng = Rng::new(seed, "random link");
    let mut spread = |least: f64, most: f64| least * (most / least).powf(rng.unit());
    let rate = spread(64e3, 100e6);
    let back = (rate / spread(1.0, 1_000.0)).max(100.0);
    let delay = spread(1.0, 1_200e3);
    let (per, burst) = (spread(1e-6, 0.3), spread(2.0, 50.0));
    let bytes = spread(1e3, 14e6);
    let errors = match rng.below(4) {
        0 => String::new(),
        // Runs of `burst` lost packets on average.
        1 => format!(
            "burst = {{ to_bad = {}, to_good = {}, bad_per = 1 }}",
            per / burst,
            1.0 / burst
        ),
        _ => format!("per = {per}"),
    };
    let back = if rng.chance(0.5) { rate } else { back };
    let link = format!(
        "rate = \"{rate:.0} bit/s\"\ndelay = \"{delay:.1} ms\"\nqueue = \"unlimited\"\n{errors}\n\
         return = {{ rate = \"{back:.0} bit/s\" }}"
    );
    (link, bytes as u64)
}

/// More links with `SLOWLIGHT_LINKS`.
#[test]
fn the_best_transport_is_near_the_bound_on_random_links() {
    let count = std::env::var("SLOWLIGHT_LINKS").map_or(10, |text| text.parse().unwrap());
    let mut far = 0;
    for seed in 0..count {
        let (link, bytes) = random_link(seed);
        let mut plan = plan(&link, ALL[0], bytes, 3);
        plan.protocols = ALL.iter().map(|name| name.parse().unwrap()).collect();
        let rows =
            compare(&plan, &AtomicBool::new(false), &|| ()).unwrap().expect("nobody cancels");
        let efficiency =
            |row: &Row| if row.completed == row.runs { row.efficiency.unwrap_or(0.0) } else { 0.0 };
        let best = rows.iter().map(efficiency).fold(0.0, f64::max);
        if best < OF_BOUND {
            far += 1;
            let of: Vec<_> =
                rows.iter().map(|row| (row.protocol.to_string(), efficiency(row))).collect();
            println!("link {seed}: {bytes} bytes, {}: {of:.3?}", link.replace('\n', ", "));
        }
    }
    println!("{far} of {count} links below {OF_BOUND}");
    assert!(far as f64 <= (1.0 - OF_LINKS) * count as f64, "{far} of {count} links");
}
