//! Coded transfers: share of the bound and capacity over long links with losses, and erasure codes
//! of links below other transports. More seeds with `SLOWLIGHT_SEEDS`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::AtomicBool;

use slowlight_lab as lab;

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
    Plan { runs, ..Plan::of(link, vec![protocol.parse().unwrap()], random_content(1, bytes)) }
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

#[test]
fn losses_in_bursts() {
    // Bursts of 50 packets on average, which lose 5 %.
    let link = "rate = \"10 Mbit/s\"\ndelay = \"1.25 s\"\n\
                burst = { to_bad = \"0.00105263\", to_good = \"0.02\", bad_per = \"1\" }";
    reaches(0.9, &row(link, "norm/coded", 10_000_000, seeds(4)));
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
