//! Efficiency of CFDP with default settings, relative to the bound. More seeds with
//! `SLOWLIGHT_SEEDS`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::atomic::AtomicBool;

use slowlight_lab as lab;

use lab::compare::{Plan, Row, compare};
use lab::content::random_content;
use lab::link_spec::{Errors, LinkSpec};
use lab::preset::Preset;
use transport::quantity::Probability;

fn seeds(default: u32) -> u32 {
    std::env::var("SLOWLIGHT_SEEDS").map_or(default, |text| text.parse().unwrap())
}

fn plan(link: &str, per: f64, runs: u32) -> Plan {
    let mut link = Preset::find(link).unwrap();
    for hop in &mut link.hops {
        let lossy = LinkSpec {
            errors: Errors { per: Some(Probability(per)), ..Errors::default() },
            ..LinkSpec::default()
        };
        *hop = lossy.over(hop);
    }
    Plan { runs, ..Plan::new(link, vec!["cfdp".parse().unwrap()], random_content(1, 10_000_000)) }
}

fn rows(plan: &Plan) -> Vec<Row> {
    compare(plan, &AtomicBool::new(false), &|| ()).unwrap().expect("nobody cancels")
}

#[test]
fn ten_megabytes_at_six_error_rates() {
    for (per, least) in
        [(0.0, 0.97), (1e-5, 0.97), (1e-4, 0.97), (1e-3, 0.97), (1e-2, 0.96), (1e-1, 0.94)]
    {
        let plan = plan("terrestrial", per, seeds(10));
        let row = &rows(&plan)[0];
        assert_eq!(row.completed, row.runs, "{per}: {:?}", row.failures);
        let efficiency = row.efficiency.unwrap();
        println!(
            "packet errors {per}: efficiency {efficiency:.4}, {} STR, {} RTS",
            row.traffic.packets_str, row.traffic.packets_rts
        );
        assert!((least..1.0).contains(&efficiency), "{per}: {efficiency}");
    }
}

#[test]
fn twenty_gaps_at_a_time_need_few_packets_back() {
    let mut plan = plan("terrestrial", 1e-2, seeds(10));
    plan.protocols = vec!["cfdp/gsfc-2007".parse().unwrap()];
    let row = &rows(&plan)[0];
    assert_eq!(row.completed, row.runs, "{:?}", row.failures);
    println!("GSFC profile: {} STR, {} RTS", row.traffic.packets_str, row.traffic.packets_rts);
    assert!(row.traffic.packets_rts < 10.0, "{} packets back", row.traffic.packets_rts);
}

#[test]
fn the_result_does_not_depend_on_the_threads() {
    let mut plan = plan("geo", 1e-2, 3);
    plan.protocols.push("cfdp/gsfc-2007".parse().unwrap());
    plan.content = random_content(1, 300_000);
    plan.jobs = Some(1);
    let one = rows(&plan);
    plan.jobs = Some(3);
    let three = rows(&plan);
    assert_eq!(serde_json::to_string(&one).unwrap(), serde_json::to_string(&three).unwrap());
    assert_eq!(one.len(), 2);
    let cancelled = compare(&plan, &AtomicBool::new(true), &|| ()).unwrap();
    assert!(cancelled.is_none());
}

#[test]
fn rows_have_the_documented_keys() {
    let mut plan = plan("cislunar", 0.0, 1);
    plan.content = random_content(1, 10_000);
    let json = serde_json::to_value(&rows(&plan)[0]).unwrap();
    let keys: Vec<_> = json.as_object().unwrap().keys().map(String::as_str).collect();
    let mut expected = vec![
        "protocol",
        "runs",
        "completed",
        "file_bytes",
        "goodput_bps",
        "goodput_grc_bps",
        "delivered_s",
        "confirmed_s",
        "quiet_s",
        "wire_s",
        "bound_s",
        "efficiency",
        "spent",
        "bound_spent",
        "throughput_bps",
        "packets_str",
        "packets_rts",
        "bytes_str",
        "bytes_rts",
        "link_bytes",
    ];
    // serde_json keeps objects in order of their keys.
    expected.sort_unstable();
    assert_eq!(keys, expected);
    for summary in ["goodput_bps", "delivered_s", "confirmed_s", "quiet_s", "wire_s"] {
        for key in ["mean", "median", "sem", "min", "max"] {
            assert!(json[summary][key].is_number(), "{summary}.{key}");
        }
    }
}
