mod mib;

use std::time::Duration;

use ltp as l;
use proptest::prelude::*;
use saratoga as s;

use super::*;
use crate::adapter::saratoga::{Remotes, SaratogaConfig, SaratogaSettings};
use crate::contract::Configuration;
use crate::pep::{PepConfig, PepSettings};
use crate::protocol::Protocol;

const ANY: Duration = Duration::from_millis(1_234);

/// Configuration with every field changed: a new field must be given here.
fn strange_ltp(keys: Option<l::Authentication>) -> l::Config {
    let remote = l::Remote {
        path: None,
        pin: l::Pin::Off,
        segment_max: Some(901),
        datagram_max: Some(902),
        checkpoint_every: Some(903),
        checkpoint_interval: Some(Duration::from_secs(904)),
        report_gaps: true,
        authentication: keys,
        checkpoint_timer: l::Timer::Fixed(Duration::from_secs(905)),
        report_timer: l::Timer::Fixed(Duration::from_secs(906)),
        cancel_timer: l::Timer::Fixed(Duration::from_secs(907)),
        retransmission_limit: Some(908),
        cycle_limit: 909,
        repair_copies: 910,
        inactivity: l::Timer::Fixed(Duration::from_secs(911)),
        initial_rtt: Duration::from_secs(912),
        rate_bps: Some(913),
        unpaced_window: Some(914),
        interval: ANY,
        host_delay: ANY,
    };
    l::Config {
        transport: None,
        journal: false,
        session_bytes: 5,
        engine: 915,
        remotes: [(7, l::Remote { rate_bps: Some(0), ..remote.clone() })].into(),
        default_remote: remote,
        service: 916,
        format: l::Format::Raw { name: "strange".to_owned() },
        cookies: true,
        aggregation: Some(l::Aggregation { size: 917, age: ANY }),
        limits: l::Limits {
            sessions: 918,
            sessions_per_path: 919,
            closed: 920,
            gaps: 921,
            gaps_total: 931,
            block: 922,
            units: 923,
            units_total: 924,
            buffers: session::Buffers {
                write_buffer: 92_500,
                write_piece: 926,
                read_ahead: 927,
                read_ahead_total: 928,
                read_piece: 929,
                replies: 930,
            },
        },
        catch_up: ANY,
    }
}

/// Settings of Saratoga, changed in the same way.
fn strange_saratoga() -> SaratogaConfig {
    let remote = s::Remote {
        payload_max: Some(901),
        datagram_max: Some(902),
        descriptor_min: s::packet::Width::W32,
        status_interval: None,
        voluntary_interval: Some(ANY),
        request_timer: s::Timer::Fixed(Duration::from_secs(923)),
        answer_timer: s::Timer::Fixed(Duration::from_secs(903)),
        inactivity: s::Timer::Fixed(Duration::from_secs(904)),
        repair_copies: 905,
        initial_rtt: Duration::from_secs(906),
        rate_bps: Some(907),
        unpaced_window: Some(908),
        interval: ANY,
        pace_as: Some(924),
        congestion: s::Congestion::Tfrc,
    };
    let config = s::Config {
        version: s::Version::V0,
        eid: "dtn://strange".to_owned(),
        remotes: std::collections::BTreeMap::new(),
        known: std::collections::BTreeSet::new(),
        proof_from_all: false,
        default_remote: remote.clone(),
        descriptor: s::packet::Width::W128,
        checksum: s::ChecksumKind::None,
        permissions: s::Permissions { put: false, get: true, delete: true },
        beacons: Some(s::Beacons { paths: Vec::new(), interval: ANY }),
        // Only supported by some sockets, and without a setting.
        udp_lite: false,
        journal: s::JournalPolicy { enabled: false, bytes: 909, interval: ANY },
        limits: s::Limits {
            sessions: 910,
            sessions_per_path: 911,
            closed: 912,
            partials: 913,
            partial_bytes: 9130,
            partial_age: ANY,
            gaps: 914,
            file: 915,
            directory: 916,
            buffers: session::Buffers {
                write_buffer: 91_700,
                write_piece: 918,
                read_ahead: 919,
                read_ahead_total: 920,
                read_piece: 921,
                replies: 922,
            },
        },
        catch_up: ANY,
    };
    let remotes = [("7".to_owned(), s::Remote { rate_bps: Some(0), ..remote })].into();
    SaratogaConfig { config, remotes, ..SaratogaConfig::default() }
}

fn written<T: Serialize>(settings: &T) -> String {
    toml::to_string(settings).unwrap()
}

/// Configuration written out, read and applied to `base`.
fn again<C: settings::Settings + Default + Clone>(config: &C, base: &C) -> C {
    let settings = Changes::from_config(config);
    let text = written(&settings);
    let read: Changes<C> = text::parse(&text, "again").unwrap();
    assert_eq!(read, settings, "{text}");
    let mut again = base.clone();
    read.apply(&mut again).unwrap();
    again
}

fn saratoga_again(peer: &SaratogaConfig, base: &s::Config) -> (s::Config, Remotes) {
    let base = SaratogaConfig { config: base.clone(), ..SaratogaConfig::default() };
    let SaratogaConfig { config, remotes, .. } = again(peer, &base);
    (config, remotes)
}

#[test]
fn every_setting_is_written_and_reaches_the_engine() {
    let strange = strange_ltp(None);
    assert_eq!(again(&strange, &l::Config::default()), strange);
    let usual = l::Config { remotes: strange.remotes.clone(), ..l::Config::default() };
    let base = l::Config {
        default_remote: l::Remote { rate_bps: None, ..strange.default_remote.clone() },
        remotes: std::collections::BTreeMap::new(),
        ..strange
    };
    assert_eq!(again(&usual, &base), usual);

    let strange = strange_saratoga();
    let SaratogaConfig { config, remotes, .. } = strange.clone();
    assert_eq!(saratoga_again(&strange, &s::Config::default()), (config.clone(), remotes.clone()));
    let usual = SaratogaConfig { config: s::Config::default(), ..strange };
    let default_remote = s::Remote { rate_bps: None, ..config.default_remote.clone() };
    let base = s::Config { default_remote, ..config };
    assert_eq!(saratoga_again(&usual, &base), (usual.config, remotes));
}

#[test]
fn profiles_are_written_out_whole() {
    for name in crate::adapter::ltp::LTP_PROFILES {
        let config = l::profile(name).unwrap();
        assert_eq!(again(&config, &l::Config::default()), config, "{name}");
        assert_eq!(again(&config, &config), config, "{name}");
    }
    for name in crate::adapter::saratoga::SARATOGA_PROFILES {
        let config = s::profile(name).unwrap();
        let peer = SaratogaConfig { config: config.clone(), ..SaratogaConfig::default() };
        let again = saratoga_again(&peer, &s::Config::default());
        assert_eq!(again, (config, Remotes::new()), "{name}");
    }
}

fn timers() -> impl Strategy<Value = l::Timer> {
    let fixed =
        (1_000_000..u64::MAX).prop_map(|nanos| l::Timer::Fixed(Duration::from_nanos(nanos)));
    prop_oneof![Just(l::Timer::Auto), fixed]
}

fn spans() -> impl Strategy<Value = Duration> {
    any::<u64>().prop_map(Duration::from_nanos)
}

fn ltp_remotes() -> impl Strategy<Value = l::Remote> {
    let sizes = (
        proptest::option::of(64..usize::MAX),
        proptest::option::of(64..usize::MAX),
        proptest::option::of(1..u64::MAX),
        proptest::option::of(any::<u64>()),
        proptest::option::of(any::<u64>()),
    );
    let times = (proptest::option::of(spans()), spans(), spans(), spans());
    let timers = (timers(), timers(), timers(), timers());
    (sizes, times, timers, any::<(bool, Option<u32>, u32, u32)>()).prop_map(
        |(sizes, times, timers, (report_gaps, retransmissions, cycles, copies))| l::Remote {
            path: None,
            pin: if report_gaps { l::Pin::Address } else { l::Pin::Host },
            segment_max: sizes.0,
            datagram_max: sizes.1,
            checkpoint_every: sizes.2,
            checkpoint_interval: times.0,
            report_gaps,
            authentication: None,
            checkpoint_timer: timers.0,
            report_timer: timers.1,
            cancel_timer: timers.2,
            retransmission_limit: retransmissions,
            cycle_limit: cycles,
            repair_copies: copies,
            inactivity: timers.3,
            initial_rtt: times.2,
            rate_bps: sizes.3,
            unpaced_window: sizes.4,
            interval: times.3,
            host_delay: times.2,
        },
    )
}

fn saratoga_remotes() -> impl Strategy<Value = s::Remote> {
    let sizes = (
        proptest::option::of(1..usize::MAX),
        proptest::option::of(64..usize::MAX),
        proptest::option::of(any::<u64>()),
        proptest::option::of(any::<u64>()),
        proptest::option::of(any::<usize>()),
    );
    let often = (1_000_000..u64::MAX).prop_map(Duration::from_nanos);
    let times = (proptest::option::of(often), spans(), spans());
    let timers = (proptest::option::of(timers()), timers(), timers(), timers());
    use s::packet::Width;
    let width =
        prop_oneof![Just(Width::W16), Just(Width::W32), Just(Width::W64), Just(Width::W128)];
    (sizes, times, timers, width, any::<(u32, bool)>()).prop_map(
        |(sizes, times, timers, width, other)| {
            let (copies, heeds) = other;
            s::Remote {
                payload_max: sizes.0,
                datagram_max: sizes.1,
                descriptor_min: width,
                status_interval: timers.0,
                voluntary_interval: times.0,
                request_timer: timers.1,
                answer_timer: timers.2,
                inactivity: timers.3,
                repair_copies: copies,
                initial_rtt: times.1,
                rate_bps: sizes.2,
                unpaced_window: sizes.3,
                interval: times.2,
                pace_as: sizes.4,
                congestion: if heeds { s::Congestion::Tfrc } else { s::Congestion::Off },
            }
        },
    )
}

proptest! {
    #[test]
    fn written_ltp_settings_round_trip(
        default_remote in ltp_remotes(),
        others in proptest::collection::btree_map(any::<u64>(), ltp_remotes(), 0..3),
        age in proptest::option::of(spans()),
        cookies: bool,
        engine: u32,
    ) {
        // Without a rate, a remote has the rate of all others.
        let rate = default_remote.rate_bps;
        let remotes = others
            .into_iter()
            .map(|(id, one)| (id, l::Remote { rate_bps: one.rate_bps.or(rate), ..one }))
            .collect();
        let aggregation = age.map(|age| l::Aggregation { size: 5, age });
        let engine = u64::from(engine);
        let config =
            l::Config { engine, cookies, default_remote, remotes, aggregation, ..Default::default() };
        prop_assert_eq!(again(&config, &l::Config::default()), config);
    }

    #[test]
    fn written_saratoga_settings_round_trip(
        default_remote in saratoga_remotes(),
        others in proptest::collection::btree_map("[ -~]{0,20}", saratoga_remotes(), 0..3),
        eid in "\\PC*",
    ) {
        let rate = default_remote.rate_bps;
        let remotes: Remotes = others
            .into_iter()
            .map(|(name, one)| (name, s::Remote { rate_bps: one.rate_bps.or(rate), ..one }))
            .collect();
        let config = s::Config { eid, default_remote, ..s::Config::default() };
        let peer = SaratogaConfig { config, remotes, ..SaratogaConfig::default() };
        let again = saratoga_again(&peer, &s::Config::default());
        prop_assert_eq!(again, (peer.config, peer.remotes));
    }
}

fn refused(protocol: &str, text: &str) -> String {
    let protocol: Protocol = protocol.parse().unwrap();
    let read = Settings::parse(text, "node.toml", &[], protocol.kind.adapter());
    let applied = read.and_then(|settings| crate::configure(&protocol, 1, Some(&settings)));
    applied.unwrap_err().to_string()
}

#[test]
fn mistakes_are_reported() {
    let cases = [
        ("ltp", "[default]\nreport_gap = true", "line 2"),
        ("ltp", "[default]\nreport_gap = true", "did you mean `report_gaps`?"),
        ("ltp", "[limits]\nsesions = 5", "did you mean `sessions`?"),
        ("ltp", "cookie = true", "node.toml: "),
        ("ltp", "format = \"rav\"", "did you mean `raw`?"),
        ("ltp", "format = { raw = \"../x\" }", "format.raw"),
        ("ltp", "[default]\ncheckpoint_timer = 50", "50 has no unit"),
        ("ltp", "[default]\ncheckpoint_every = 50", "50 has no unit"),
        ("ltp", "[default]\ncheckpoint_every = \"0 B\"", "default.checkpoint_every is 0 B"),
        ("ltp", "[default]\ncheckpoint_interval = \"soon\"", "\"soon\" is not a time"),
        ("ltp", "[remotes.2]\ndatagram_max = \"10 B\"", "remotes.2.datagram_max is 10 B"),
        ("ltp", "[remotes.moon]\nreport_gaps = true", "has a number"),
        ("ltp", "[limits]\nread_piece = \"0 B\"", "limits.read_piece"),
        ("ltp", "[aggregation]\nsiz = \"1 kB\"", "did you mean `size`?"),
        ("ltp", "[default]\nack_timer = \"1 s\"", "unknown field `ack_timer`"),
        ("ltp", "[remotes.02]\nreport_gaps = true", "remotes.02: write it as 2"),
        ("ltp", "[default]\nreport_timer = \"0 s\"", "default.report_timer is 0 s"),
        ("ltp", "[limits]\nsessions = 0", "limits.sessions is 0"),
        ("ltp", "[limits]\nwrite_buffer = \"1 kB\"", "limits.write_buffer is 1 kB"),
        ("saratoga", "version = 2", "version is 0 or 1, not 2"),
        ("saratoga", "version = 0\nchecksum = \"none\"", "\"saratoga-get\""),
        ("saratoga", "version = 0", "write checksum = \"none\""),
        ("saratoga", "[default]\nanswer_timer = \"1 us\"", "answer_timer is 1 us"),
        ("saratoga", "[default]\nstatus_intervall = \"1 s\"", "`status_interval`?"),
        ("saratoga", "[default]\nstatus_interval = 1.5", "1.5 has no unit"),
        ("saratoga", "[default]\nstatus_interval = true", "a setting, or \"off\""),
        ("saratoga", "[default]\nvoluntary_interval = \"0\"", "at least 1 ms"),
        ("saratoga", "beacons = \"1 us\"", "beacons is 1 us"),
        ("saratoga", "descriptor = 8", "16, 32, 64 or 128 bits, not 8"),
        ("saratoga", "checksum = \"mdd5\"", "did you mean `md5`?"),
        ("saratoga", "[permissions]\nputs = true", "did you mean `put`?"),
        ("saratoga", "[journal]\nbyte = \"1 MB\"", "did you mean `bytes`?"),
        ("norm", "[receiver]\ninactivity = \"0 s\"", "0 s; it must be at least 1 ms"),
        ("norm", "[sender]\npatience = \"1 us\"", "sender.patience is 1 us"),
        ("bp-tcpcl", "bundle_sizes = \"1 kB\"", "did you mean `bundle_size`?"),
        ("bp-tcpcl", "bundle_size = \"0 B\"", "bundle_size is 0 B"),
        ("bp-tcpcl", "hop_limit = 0", "hop_limit is 0"),
        ("bp-tcpcl", "version = 5", "version 6 or 7"),
        ("bp-tcpcl", "request_custody = true", "version = 6"),
        ("bp-tcpcl", "[routes]\nmoon = 2", "a node is called by its number"),
        ("bp-tcpcl", "contact_plan = \"plan.txt\"", "ends in .toml, .json or .ionrc"),
        ("bp-tcpcl", "contact_plan = \"/nowhere/plan.toml\"", "cannot read"),
        ("bp-tcpcl", "tcpcl = { keepalive = \"500 ms\" }", "whole seconds up to 65535"),
        ("bp-tcpcl", "limits = { bundles = 0 }", "limits.bundles is 0"),
        ("bp-tcpcl", "limits = { share = 101 }", "limits.share is 101; it must be at most 100"),
        ("bp-tcpcl", "custody = { believe = \"all\" }", "unknown variant `all`"),
        ("bp-tcpcl", "reports = { receptions = true }", "did you mean `reception`?"),
        ("bp-tcpcl", "ltpcl = { color = \"blue\" }", "unknown variant `blue`"),
        ("bp-tcpcl", "ltpcl = { window = 0 }", "ltpcl.window is 0"),
        ("bp-tcpcl", "ltpcl = { patience = \"0 s\" }", "ltpcl.patience is 0 s"),
        ("bp-tcpcl", "normcl = { window = 0 }", "normcl.window is 0"),
        ("bp-tcpcl", "saratogacl = { window = 0 }", "saratogacl.window is 0"),
        ("bp-tcpcl", "[saratoga]\nversion = 0\nchecksum = \"none\"", "saratoga.version is 0"),
        ("bp-tcpcl", "[ltp.limits]\nsessions = 0", "ltp.limits.sessions is 0"),
        ("bp-tcpcl", "[ltp.default]\nreport_gap = true", "did you mean `report_gaps`?"),
        ("cfdp-ltp", "[ut]\npdu = \"100 B\"", "ut.pdu is 100 B"),
        ("cfdp-ltp", "[ut]\npdu = \"66 kB\"", "256 to 65535 bytes"),
        ("cfdp-ltp", "[ut]\nwindow = 0", "ut.window is 0"),
        ("cfdp-ltp", "[ut]\nattempts = 0", "ut.attempts is 0"),
        ("cfdp-ltp", "[ut]\nservice = 65", "ut.service is of bundles"),
        ("cfdp-ltp", "color = \"blue\"", "unknown variant `blue`"),
        ("cfdp-ltp", "[cfdp]\nsequence_octets = 9", "cfdp.sequence_octets is 9"),
        ("cfdp-ltp", "[ltp.limits]\nsessions = 0", "ltp.limits.sessions is 0"),
        ("bp-tcpcl", "[ut]\nwindow = 3", "of protocols cfdp-bp-"),
        ("cfdp", "[default]\nack_timr = \"1 s\"", "did you mean `ack_timer`?"),
    ];
    assert_refused(&cases);
}

#[test]
fn zero_timers_and_intervals_are_reported() {
    assert_refused(&[
        ("ltp", "[remotes.2]\ninactivity = \"0 s\"", "remotes.2.inactivity is 0 s; it must"),
        ("ltp", "[default]\ninitial_rtt = \"0 s\"", "initial_rtt is 0 s; it must be at least"),
        ("ltp", "[default]\ncheckpoint_interval = \"0 s\"", "checkpoint_interval is 0 s"),
        ("saratoga", "[default]\ninactivity = \"0 s\"", "default.inactivity is 0 s; it must"),
        ("saratoga", "[remotes.2]\ninitial_rtt = \"1 us\"", "remotes.2.initial_rtt is 1 us"),
        ("norm", "[receiver]\nstream_silence = \"0 s\"", "stream_silence is 0 s; it must be"),
        ("norm", "[sender]\nprobe_interval_max = \"0 s\"", "probe_interval_max is 0 s"),
    ]);
}

#[test]
fn required_tables_refuse_off_with_their_line() {
    let remedy = "cannot be \"off\"; leave it out, or write a table";
    for (protocol, key) in [("ltp", "limits"), ("ltp", "transport"), ("ltp-t", "transport")]
        .into_iter()
        .chain([("ftp", "program"), ("scp", "program"), ("ftp", "host"), ("scps-fp", "tcp")])
    {
        let message = refused(protocol, &format!("# one\n{key} = \"off\""));
        assert!(message.contains("line 2"), "{protocol}: {message}");
        assert!(message.contains(&format!("{key} {remedy}")), "{protocol}: {message}");
    }
    let message = refused("ltp", "[remotes]\n2 = \"off\"");
    assert!(message.contains(&format!("remotes.2 {remedy}")), "{message}");
    // For another protocol it may be off; here it has no effect.
    assert!(refused("ftp", "bets = \"off\"").contains("bets is for scps-fp"));
}

fn assert_refused(cases: &[(&str, &str, &str)]) {
    for &(protocol, text, expected) in cases {
        let message = refused(protocol, text);
        assert!(message.contains(expected), "{text}: {message}");
    }
}

#[test]
fn gateways_have_the_buffers_of_hosts() {
    let unlimited = TcpBuffers::Unlimited.most();
    let of = |options: &::tcp::Options| (options.send_buffer.max(), options.receive_buffer.max());
    let mut settings = PepSettings::default();
    let both = |settings: &PepSettings| {
        let mut pep = PepConfig::default();
        settings.apply(&mut pep).unwrap();
        [of(&pep.wan.connections.options), of(&pep.lan.options)]
    };
    assert_eq!(both(&settings), [unlimited; 2]);
    settings.limit_tcp_buffers(TcpBuffers::Linux);
    let linux = TcpBuffers::Linux;
    assert_eq!(both(&settings), [(linux.most().0, linux.window()); 2]);
}

const SECRET: &str = "0b0b0b0b0b0b0b0b";

fn key(suite: l::Ciphersuite, id: &[u8]) -> l::Key {
    l::Key::new(suite, id, &[0x0b; 8])
}

#[test]
fn keys_are_read_and_never_written() {
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("moon.key"), format!("{SECRET}\n")).unwrap();
    let text = format!(
        "[default.authentication]
        key = {{ suite = \"hmac-sha256\", id = \"01ff\", file = \"moon.key\" }}
        accepted = [{{ suite = \"hmac-sha1\", secret = \"{SECRET}\" }}, {{ suite = \"null\" }}]
        [remotes.3]
        authentication = \"off\""
    );
    let mut settings =
        Settings::parse(&text, "node.toml", &[], "ltp".parse::<Protocol>().unwrap().kind.adapter())
            .unwrap();
    settings.place(place.path());
    let mut config = l::Config::default();
    Configuration::apply(&mut config, &settings).unwrap();
    let expected = l::Authentication {
        key: key(l::Ciphersuite::HmacSha256, &[1, 255]),
        accepted: vec![
            key(l::Ciphersuite::HmacSha1, &[]),
            l::Key::new(l::Ciphersuite::Null, &[], &[]),
        ],
    };
    assert_eq!(config.default_remote.authentication, Some(expected));
    assert_eq!(config.remote(3).authentication, None);
    let mut all = config.settings();
    all.add_keys_of(&settings);
    for shown in [written(&all), written(&settings)] {
        assert!(!shown.contains(SECRET), "{shown}");
        assert!(shown.contains("moon.key"), "{shown}");
    }
    // The file is found again, and unwritten keys are missed.
    let again: LtpSettings = text::parse(&written(&all), "again").unwrap();
    let text = again.apply(&mut config).unwrap_err().to_string();
    assert!(text.contains("default.authentication.accepted: give `secret` or `file`"), "{text}");
    assert!(!format!("{settings:?}").contains(SECRET));
}

#[test]
fn errors_do_not_show_secrets() {
    let authentication = |key: &str| format!("[default.authentication]\nkey = {{ {key} }}");
    let cases = [
        (format!("suite = \"hmac-sha1\", secret = \"{SECRET}0\""), "pairs of hexadecimal digits"),
        (
            format!("suite = \"hmac-sha1\", idd = \"00\", secret = \"{SECRET}\""),
            "did you mean `id`?",
        ),
        (format!("suite = \"hmac-sha2\", secret = \"{SECRET}\""), "did you mean `hmac-sha1`?"),
        (format!("suite = \"null\", secret = \"{SECRET}\""), "everybody knows"),
        (format!("suite = \"hmac-sha1\", secret = \"{SECRET}\", file = \"x\""), "not both"),
        (
            format!(
                "suite = \"hmac-sha1\", secret = \"{SECRET}\" }}\naccepted = [{{ suite = \"hmac-sha1\", secret = \"01\" }}]\n#{{"
            ),
            "each an id of its own",
        ),
        ("suite = \"hmac-sha1\"".to_owned(), "give `secret` or `file`"),
        ("suite = \"hmac-sha1\", secret = \"\"".to_owned(), "the key is empty"),
        ("suite = \"hmac-sha1\", id = \"0\", file = \"x\"".to_owned(), "invalid id of a key"),
        ("suite = \"hmac-sha1\", file = \"/nowhere/x\"".to_owned(), "cannot read /nowhere/x"),
        ("suite = \"hmac-sha1\", file = \"/dev/zero\"".to_owned(), "not a file"),
    ];
    for (given, expected) in cases {
        let text = refused("ltp", &authentication(&given));
        assert!(text.contains(expected), "{given}: {text}");
        assert!(!text.contains(SECRET), "{text}");
    }
}

/// The settings table of a manual as TOML: keys with their defaults, where those can be written.
fn manual(text: &str) -> String {
    let section = text.split("\n## Settings\n").nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let mut toml = String::new();
    for line in section.lines() {
        let between =
            |cell: &str| cell.trim().strip_prefix('`')?.strip_suffix('`').map(str::to_owned);
        if let Some(table) = line.strip_prefix("### ").and_then(between) {
            toml += &format!("{table}\n");
        } else if let Some(key) = line.split('|').nth(1).and_then(between)
            && let Some(value) = line.split('|').nth(3).and_then(between)
        {
            toml += &format!("{key} = {value}\n");
        }
    }
    toml
}

fn example(manual: &'static str, begin: &str) -> &'static str {
    let found = manual.split("```toml\n").find(|text| text.starts_with(begin)).unwrap();
    found.split("```").next().unwrap()
}

#[test]
fn the_manuals_have_every_key_with_its_default() {
    let text = include_str!("../../../../docs/ltp.md");
    let given: LtpSettings = text::parse(&manual(text), "docs/ltp.md").unwrap();
    let aggregation = Some(l::Aggregation::default());
    let usual = LtpSettings::from_config(&l::Config { aggregation, ..l::Config::default() });
    assert_eq!(written(&given), written(&usual));
    // These have no default that can be written.
    assert!(["| `rate` |", "| `authentication` |"].iter().all(|key| text.contains(key)));
    let mut shown: LtpSettings = text::parse(example(text, "engine = 7\n"), "docs").unwrap();
    // The key file of the example does not exist.
    shown.set(&["remotes", "2", "authentication"], "off");
    shown.apply(&mut l::Config::default()).unwrap();

    let text = include_str!("../../../../docs/saratoga.md");
    let given: SaratogaSettings = text::parse(&manual(text), "docs/saratoga.md").unwrap();
    assert_eq!(
        written(&given),
        written(&SaratogaSettings::from_config(&SaratogaConfig::default()))
    );
    assert!(text.contains("| `rate` |"));
    let shown: SaratogaSettings = text::parse(example(text, "eid = "), "docs").unwrap();
    shown.apply(&mut SaratogaConfig::default()).unwrap();
}
