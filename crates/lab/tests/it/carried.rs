//! CFDP over LTP and in bundles, over one hop and via relays.

use std::sync::atomic::AtomicBool;

use crate::chains::{chain, play, transfer};
use lab::compare::{Plan, compare};
use lab::content;
use lab::preset::Preset;
use lab::run;
use slowlight_lab as lab;

/// 300 kB by `protocol` over one hop with these settings; the data takes 2.4 s.
fn one_hop(protocol: &str, link: &str, settings: &str) -> run::Run {
    let text = chain("ab", link, settings) + &transfer("ab", protocol, "size = \"300 kB\"");
    let run = play(&text);
    assert!(run.succeeded(), "{protocol} {settings}: {run:#?}");
    assert!(run.transfers[0].verified && !run.transfers[0].wrong_success);
    run
}

#[test]
fn every_layer_carries_both_classes() {
    for (protocol, most) in [
        ("cfdp-ltp", 3.2),
        ("cfdp-bp-tcpcl", 4.5),
        ("cfdp-bp-tcpcl3", 4.5),
        ("cfdp-bp-mtcp", 4.5),
        ("cfdp-bp-stcp", 4.5),
        ("cfdp-bp-udp", 3.2),
        ("cfdp-bp-ltp", 3.2),
        ("cfdp-bp-saratoga", 4.5),
        ("cfdp-bp-norm", 5.0),
        ("cfdp+bp+norm/coded", 5.0),
    ] {
        let run = one_hop(protocol, "", "");
        let delivered = run.transfers[0].delivered_s.unwrap();
        assert!((2.5..most).contains(&delivered), "{protocol}: {delivered}");
        // In class 1 the sender is not informed of the delivery.
        assert_eq!(run.transfers[0].confirmed_s, None, "{protocol}");
        let run = one_hop(protocol, "", "nodes.a.mib.cfdp.default.class = 2");
        let it = &run.transfers[0];
        let (delivered, confirmed) = (it.delivered_s.unwrap(), it.confirmed_s.unwrap());
        assert!((2.5..most).contains(&delivered), "{protocol}: {delivered}");
        // The report takes the one-way light time.
        assert!((0.1..1.5).contains(&(confirmed - delivered)), "{protocol}: {it:?}");
    }
}

#[test]
fn profiles_and_settings_of_the_layer_below_count() {
    // 303 segments of 992 bytes, one each 20.25 ms.
    let run = one_hop("cfdp-ltp/ltplib-2011", "", "");
    let delivered = run.transfers[0].delivered_s.unwrap();
    assert!((6.0..7.5).contains(&delivered), "{delivered}");
    // One PDU at a time: each waits for the report of the previous one, at least 0.2 s.
    let run = one_hop("cfdp-ltp", "", "nodes.a.mib.ut = { window = 1, pdu = \"10 kB\" }");
    let delivered = run.transfers[0].delivered_s.unwrap();
    assert!((2.4 + 31.0 * 0.2..15.0).contains(&delivered), "{delivered}");
    // As many bundles as PDUs: 300 kB in PDUs of 10 kB, and two more.
    let run = one_hop("cfdp-bp-tcpcl", "", "nodes.a.mib.ut.pdu = \"10 kB\"");
    assert_eq!(run.bundle_nodes["a"].sourced, 33);
    assert_eq!(run.bundle_nodes["b"].delivered, 33);
}

#[test]
fn lower_layers_retransmit_lost_data() {
    for protocol in ["cfdp-ltp", "cfdp-bp-ltp", "cfdp-bp-tcpcl"] {
        let run = one_hop(protocol, "per = \"0.05\"", "");
        assert!(run.transfers[0].delivered_s.unwrap() < 30.0, "{protocol}: {run:#?}");
    }
    // CFDP itself requests lost green file data.
    let settings = "nodes.a.mib = { color = \"green-data\", cfdp.default.class = 2 }";
    let run = one_hop("cfdp-ltp", "per = \"0.05\"", settings);
    assert!(run.transfers[0].confirmed_s.unwrap() < 30.0, "{run:#?}");
}

#[test]
fn relays_keep_the_bundles_through_outages_and_crashes() {
    let outage = "outages = [{ at = \"0 s\", for = \"1 h\" }]";
    for class in [1, 2] {
        let crash = format!(
            "nodes.a.mib = {{ ut.pdu = \"20 kB\", cfdp.default.class = {class} }}\n\
             [nodes.b]\ncrashes = [{{ at = \"600 s\", restart = \"700 s\" }}]"
        );
        let text = chain("abc", "", &crash).replace(
            "from = \"b\"\nto = \"c\"\nrate = \"1 Mbit/s\"",
            &format!("from = \"b\"\nto = \"c\"\n{outage}\nrate = \"1 Mbit/s\""),
        );
        let run = play(&(text + &transfer("abc", "cfdp-bp-tcpcl", "size = \"100 kB\"")));
        assert!(run.succeeded(), "{run:#?}");
        let it = &run.transfers[0];
        assert!((3600.0..5000.0).contains(&it.delivered_s.unwrap()), "{it:?}");
        assert_eq!(it.confirmed_s.is_some(), class == 2, "{it:?}");
    }
}

#[test]
fn crashed_receivers_hold_every_confirmed_file() {
    for protocol in ["cfdp-ltp", "cfdp-bp-tcpcl", "cfdp-bp-ltp"] {
        for at in ["1500 ms", "2 s", "2500 ms"] {
            let crash = format!(
                "nodes.a.mib.ut.pdu = \"10 kB\"\n[nodes.b]\n\
                 crashes = [{{ at = \"{at}\", restart = \"20 s\" }}]"
            );
            let text = chain("ab", "", &crash) + &transfer("ab", protocol, "size = \"300 kB\"");
            let run = play(&text);
            assert!(run.succeeded(), "{protocol} {at}: {run:#?}");
            assert!(run.transfers[0].delivered_s.unwrap() > 20.0);
        }
    }
}

#[test]
fn bundles_that_expire_fail_the_transfer() {
    let outage = "outages = [{ at = \"0 s\", for = \"1 h\" }]";
    let text = chain("ab", outage, "nodes.a.mib.lifetime = \"10 min\"");
    let run = play(&(text + &transfer("ab", "cfdp-bp-tcpcl", "size = \"1 kB\"")));
    let it = &run.transfers[0];
    assert!(!it.completed && !it.wrong_success && it.delivered_s.is_none(), "{it:?}");
    assert_eq!(run.ended, "idle");
}

#[test]
fn relays_forward_in_comparisons_and_the_same_seed_gives_the_same() {
    let link = Preset::find("moon-farside").unwrap();
    let protocols = ["cfdp-bp-tcpcl", "cfdp-bp-ltp", "bp-tcpcl", "cfdp"];
    let plan = Plan {
        relay: true,
        runs: 1,
        ..Plan::new(
            link,
            protocols.map(|name| name.parse().unwrap()).to_vec(),
            content::made_up(1, 0, 1_000_000).unwrap(),
        )
    };
    let again = || {
        let rows = compare(&plan, &AtomicBool::new(false), &|| ()).unwrap().unwrap();
        rows.into_iter().map(|row| (row.completed, row.delivered_s.map(|s| s.mean))).collect()
    };
    let rows: Vec<(usize, Option<f64>)> = again();
    assert!(rows.iter().all(|(completed, _)| *completed == 1), "{rows:?}");
    let seconds = |row: usize| rows[row].1.unwrap();
    // A relay forwards a PDU when it has it, and a file in one bundle when it has all of it.
    assert!(seconds(0) < seconds(2), "{rows:?}");
    assert_eq!(rows, again());
}

#[test]
fn waypoints_of_cfdp_are_not_of_ltp() {
    let text = chain("abc", "", "") + &transfer("abc", "cfdp-ltp", "size = \"1 kB\"");
    let scenario = lab::scenario::Scenario::parse(&text, "world.toml").unwrap();
    let error = scenario.resolved().unwrap_err().to_string();
    assert!(error.contains("not cfdp-ltp"), "{error}");
}
