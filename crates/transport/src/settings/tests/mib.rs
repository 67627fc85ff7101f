use std::time::Duration;

use cfdp::pdu::{ChecksumType, ConditionCode, FaultHandler, TransmissionMode, Version, Width};

use super::super::Mib;

#[test]
fn mibs_change_only_the_keys_they_name() {
    let mib: Mib = crate::text::parse(
        r#"
        entity = 101
        sequence_octets = 4
        faults = { nak-limit = "suspend" }
        [default]
        nak_mode = "immediate"
        checksum = "modular"
        rate = "0"
        [remotes.102]
        class = 1
        version = 0
        ack_timer = "50 s"
        nak_mode = "10 s"
        nak_timer = "auto"
        segment_max = "997 B"
        [limits]
        read_ahead = "2 MiB"
        "#,
        "test",
    )
    .unwrap();
    let mut config = cfdp::Config::default();
    mib.apply(&mut config).unwrap();
    assert_eq!((config.entity, config.sequence_width), (101, Width::FOUR));
    assert_eq!(config.limits.buffers.read_ahead, 2 << 20);
    assert_eq!(config.faults.get(ConditionCode::NakLimitReached), FaultHandler::Suspend);
    let other = config.remote(7);
    assert_eq!((other.naks.mode, other.rate_bps), (cfdp::NakMode::Immediate, Some(0)));
    let remote = config.remote(102);
    assert_eq!(remote.mode, TransmissionMode::Unacknowledged);
    assert_eq!((remote.version, remote.checksum), (Version::V0, ChecksumType::Modular));
    assert_eq!(remote.ack_timer, cfdp::Timer::Fixed(Duration::from_secs(50)));
    assert_eq!(remote.naks.mode, cfdp::NakMode::Asynchronous(Duration::from_secs(10)));
    assert_eq!(remote.segment_max, Some(997));
    let text = toml::to_string(&mib).unwrap();
    assert_eq!(crate::text::parse::<Mib>(&text, "again").unwrap(), mib);
}

#[test]
fn written_mibs_round_trip() {
    for name in crate::adapter::cfdp::CFDP_PROFILES {
        let config = cfdp::profile(name).unwrap();
        let mib = Mib::from_config(&config);
        let text = toml::to_string(&mib).unwrap();
        assert_eq!(crate::text::parse::<Mib>(&text, name).unwrap(), mib, "{text}");
        let mut again = cfdp::profile(name).unwrap();
        mib.apply(&mut again).unwrap();
        assert_eq!(again, cfdp::Config { faults: again.faults.clone(), ..config });
        let mut other = cfdp::Config::default();
        mib.apply(&mut other).unwrap();
        assert_eq!(Mib::from_config(&other), mib);
    }
}

#[test]
fn mistakes_are_reported() {
    let refused = |text: &str| match crate::text::parse::<Mib>(text, "mib.toml") {
        Err(error) => error.to_string(),
        Ok(mib) => mib.apply(&mut cfdp::Config::default()).unwrap_err().to_string(),
    };
    testing::snapshot!("refusals/mib.txt", refused);
}

const COMPLETE: &str = r#"
entity = 7
sequence_octets = 4
first_sequence = 1
keep_incomplete = true
[journal]
enabled = true
bytes = "8 MiB"
interval = "5 s"
[limits]
transactions = 10
file_size = "1 GB"
[faults]
nak-limit = "suspend"
[indications]
file_segment_received = true
suspended = false
[user_operations]
routes = { 3 = 2, 4 = 2 }
waypoints_max = 3
stored_files = 5
stored_bytes = "100 MB"
pending = 6
listing_bytes = "10 kB"
flows = 9
[default]
permissions = { directory_listing = false, filestore = false, status_report = "own" }
[remotes.2]
nak_gaps_max = 20
nak_pdus_per_round_max = 1
[remotes.2.permissions]
proxy_put = true
suspend = "all"
store_and_forward = true
relay = true
[remotes.2.host_delays]
nak_to_repair = "3.9 ms"
"#;

#[test]
fn user_operations_permissions_and_host_delays() {
    let mib: Mib = crate::text::parse(COMPLETE, "test").unwrap();
    let mut config = cfdp::Config::default();
    mib.apply(&mut config).unwrap();
    let indications = config.indications;
    assert!(indications.file_segment_received && !indications.suspended && indications.resumed);
    let operations = &config.user_operations;
    assert_eq!((operations.next_hop(3), operations.next_hop(5)), (2, 5));
    assert_eq!((operations.waypoints_max, operations.stored_files), (3, 5));
    assert_eq!((operations.stored_bytes, operations.listing_bytes), (100_000_000, 10_000));
    assert_eq!((operations.pending, operations.flows), (6, 9));
    assert_eq!(config.limits.file_size, 1_000_000_000);
    let other = config.remote(9).permissions;
    assert_eq!((other.status_report, other.suspend), (cfdp::Access::Own, cfdp::Access::Own));
    assert!(!other.directory_listing && !other.proxy_put);
    let remote = config.remote(2);
    assert_eq!((remote.naks.gaps_max, remote.naks.pdus_per_round_max), (Some(20), Some(1)));
    let expected = cfdp::Permissions {
        proxy_put: true,
        filestore: false,
        directory_listing: false,
        status_report: cfdp::Access::Own,
        suspend: cfdp::Access::All,
        store_and_forward: true,
        relay: true,
    };
    assert_eq!(remote.permissions, expected);
    let expected =
        cfdp::HostDelays { nak_to_repair: Duration::from_micros(3900), ..Default::default() };
    assert_eq!(remote.host_delays, expected);
    let written = Mib::from_config(&config);
    let text = toml::to_string(&written).unwrap();
    let mut again = cfdp::Config::default();
    crate::text::parse::<Mib>(&text, "again").unwrap().apply(&mut again).unwrap();
    assert_eq!(Mib::from_config(&again), written);
    assert_eq!(again.remotes, config.remotes);
    assert_eq!(again.user_operations, config.user_operations);
}

/// The manual's example contains exactly the existing keys.
#[test]
fn the_manual_is_complete() {
    let manual = include_str!("../../../../../docs/cfdp.md");
    let example = manual.split("```toml\n").find(|text| text.starts_with("entity = 7\n")).unwrap();
    let example = example.split("```").next().unwrap();
    let mib: Mib = crate::text::parse(example, "docs/cfdp.md").unwrap();
    let mut config = cfdp::Config::default();
    mib.apply(&mut config).unwrap();
    let keys = |text: &str| -> Vec<String> {
        let names = text.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '-');
        names.map(str::to_owned).collect()
    };
    let named = keys(example);
    let all = toml::to_string(&Mib::from_config(&config)).unwrap();
    for line in all.lines() {
        let key = line.split(" = ").next().unwrap_or_default();
        let last = keys(key).into_iter().rfind(|key| !key.is_empty());
        // One fault, delay and indication represent the others.
        let group = ["-limit", "_to_", "eof_", "suspended", "resumed", "transaction_finished"];
        let Some(last) = last.filter(|key| !group.iter().any(|part| key.contains(part))) else {
            continue;
        };
        let fault = session::settings::form::value_of::<ConditionCode>(&last).is_some();
        assert!(fault || named.contains(&last), "{last} is not in docs/cfdp.md");
    }
}

#[test]
fn too_short_intervals_and_timers_are_refused() {
    let keys =
        ["keep_alive", "prompt", "nak_mode", "ack_timer", "nak_timer", "check_timer", "probe"];
    for key in keys.into_iter().chain(["inactivity", "initial_rtt"]) {
        for (table, interval) in [("default", "0 s"), ("remotes.2", "1 ns")] {
            let text = format!("[{table}]\n{key} = \"{interval}\"");
            let mib: Mib = crate::text::parse(&text, "mib.toml").unwrap();
            let error = mib.apply(&mut cfdp::Config::default()).unwrap_err().to_string();
            let expected = format!("{table}.{key} is {interval}; it must be at least 1 ms");
            assert!(error.contains(&expected), "{error}");
        }
        let mib: Mib = crate::text::parse(&format!("[default]\n{key} = \"1 ms\""), "m").unwrap();
        mib.apply(&mut cfdp::Config::default()).unwrap();
    }
}
