//! Transfers via waypoints that store and forward files.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;

use slowlight_lab as lab;

use lab::link_spec::LinkSpec;
use lab::run::{self, Recorders, Run};
use lab::scenario::Scenario;

fn moon() -> Scenario {
    let path: PathBuf =
        [env!("CARGO_MANIFEST_DIR"), "../../scenarios/moon-sfo.toml"].iter().collect();
    Scenario::read(&path).unwrap()
}

fn play(scenario: &Scenario) -> Run {
    let run = run::run(scenario, &run::contents(scenario).unwrap(), Recorders::default()).unwrap();
    assert!(run.succeeded(), "{run:#?}");
    run
}

#[test]
fn an_orbiter_keeps_the_file_until_earth_is_in_sight() {
    let scenario = moon().resolved().unwrap();
    let run = play(&scenario);
    let transfer = &run.transfers[0];
    assert!(transfer.verified && !transfer.wrong_success);
    let (delivered, confirmed) = (transfer.delivered_s.unwrap(), transfer.confirmed_s.unwrap());
    // Earth is out of sight until 2,710 s; 5 MB at 10 Mbit/s take 4 s, and the one-way light time
    // is 1.28 s.
    let in_sight = 2710.0;
    assert!((in_sight + 5.0..in_sight + 1000.0).contains(&delivered), "{delivered}");
    // The report comes from Earth, not from the orbiter, which had the file within 30 s.
    assert!(confirmed > delivered + 1.28, "{confirmed} after {delivered}");
    assert!(transfer.bound_s.unwrap() <= delivered, "{transfer:?}");
    let again = run::contents(&scenario).unwrap();
    let written = Scenario::parse(&scenario.to_toml().unwrap(), "written").unwrap();
    assert_eq!(written.clone().resolved().unwrap(), scenario);
    let second = run::run(&written, &again, Recorders::default()).unwrap();
    assert_eq!(second.transfers[0].delivered_s, transfer.delivered_s);
}

#[test]
fn two_waypoints_by_every_overlay_and_class() {
    // 300 kB take 2.4 s on each of three hops. Class 3 forwards PDUs at once; the others store the
    // whole file. The engine of 2007 waits 50 s for lost data.
    for (overlay, protocol, least, most) in [
        ("sfo", "cfdp", 7.5, 12.0),
        ("extended", "cfdp", 7.5, 12.0),
        ("extended", "cfdp-1", 2.7, 3.0),
        ("sfo", "cfdp-1", 7.5, 8.5),
        ("sfo", "cfdp/gsfc-2007", 7.5, 160.0),
    ] {
        let per = if protocol == "cfdp-1" { "0" } else { "1e-2" };
        let mut text = format!(
            r#"
            seed = 3
            [[transfers]]
            from = "a"
            to = "d"
            via = ["b", "c"]
            overlay = "{overlay}"
            protocol = "{protocol}"
            size = "300 kB"
            "#
        );
        for (from, to) in [("a", "b"), ("b", "c"), ("c", "d")] {
            for (from, to) in [(from, to), (to, from)] {
                text += &format!(
                    "[[links]]\nfrom = \"{from}\"\nto = \"{to}\"\nrate = \"1 Mbit/s\"\n\
                     delay = \"100 ms\"\nper = \"{per}\"\n"
                );
            }
        }
        let scenario = Scenario::parse(&text, overlay).unwrap();
        let transfer = play(&scenario.resolved().unwrap()).transfers.remove(0);
        let delivered = transfer.delivered_s.unwrap();
        assert!((least..most).contains(&delivered), "{overlay} {protocol}: {transfer:?}");
    }
}

#[test]
fn nodes_behind_a_waypoint_have_no_other_route() {
    let mut scenario = moon();
    let mut direct = scenario.transfers[0].clone();
    direct.via.clear();
    direct.overlay = None;
    direct.name = Some("direct".to_owned());
    scenario.transfers.push(direct);
    let scenario = scenario.resolved().unwrap();
    let contents = run::contents(&scenario).unwrap();
    let refused = run::run(&scenario, &contents, Recorders::default()).unwrap_err();
    assert_eq!(refused.to_string(), "no links lead from lander to earth");
}

#[test]
fn mistakes_are_reported() {
    let refused = |change: &dyn Fn(&mut Scenario)| {
        let mut scenario = moon();
        change(&mut scenario);
        scenario.resolved().unwrap_err().to_string()
    };
    let text = refused(&|scenario| scenario.transfers[0].via = vec!["orbitr".to_owned()]);
    assert!(text.contains("transfers[0].via") && text.contains("\"orbiter\""), "{text}");
    let text = refused(&|scenario| scenario.transfers[0].via = vec!["earth".to_owned()]);
    assert!(text.contains("earth is passed twice"), "{text}");
    let text = refused(&|scenario| scenario.transfers[0].via.clear());
    assert!(text.contains("needs waypoints"), "{text}");
    let text = refused(&|scenario| {
        for (from, to) in [("lander", "tower"), ("tower", "earth")] {
            let base = scenario.links[0].clone();
            let ends = (Some(from.to_owned()), Some(to.to_owned()));
            scenario.links.push(LinkSpec { from: ends.0, to: ends.1, ..base });
        }
        let mut other = scenario.transfers[0].clone();
        other.via = vec!["tower".to_owned()];
        other.name = Some("other".to_owned());
        scenario.transfers.push(other);
    });
    assert!(text.contains("two ways lead from lander to earth"), "{text}");
}
