//! FTP over TCP through modelled links: traffic, times, captures and traces.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod small_satellite;

use std::io::{self, Write};
use std::process::Command;
use std::sync::{Arc, Mutex};

use lab::compare::Plan;
use lab::content;
use lab::preset::Preset;
use lab::run::{self, Recorders, Run};
use lab::scenario::Scenario;
use slowlight_lab as lab;
use transport::settings::tcp::{Congestion, TcpSettings};

/// A file in memory that outlives its writer.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Kept {
    /// Recorders that capture into it.
    fn recorders(&self) -> Recorders {
        Recorders { pcap: Some(Box::new(self.clone())), trace: None }
    }

    fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().clone()
    }
}

/// A file from a to b, with settings of either.
fn world(protocol: &str, size: &str, link: &str, settings: &str) -> String {
    let node = |name: &str| match settings {
        "" => String::new(),
        settings => format!("[nodes.{name}.mib]\n{settings}\n"),
    };
    format!(
        "seed = 1
        capture.at = \"a\"
        {}{}
        [[links]]\nfrom = \"a\"\nto = \"b\"\n{link}
        [[links]]\nfrom = \"b\"\nto = \"a\"\n{link}
        [[transfers]]\nfrom = \"a\"\nto = \"b\"\nsize = \"{size}\"\nname = \"testfile\"
        protocol = \"{protocol}\"",
        node("a"),
        node("b"),
    )
}

fn run_once(toml: &str, recorders: Recorders) -> Run {
    let scenario = Scenario::parse(toml, "world").unwrap().resolved().unwrap();
    let contents = run::contents(&scenario).unwrap();
    run::run(&scenario, &contents, recorders).unwrap()
}

fn completed(text: &str) -> Run {
    let run = run_once(text, Recorders::default());
    assert!(run.succeeded(), "{run:?}");
    run
}

const GEO: &str = "rate = \"2 Mbit/s\"\ndelay = \"300 ms\"";

#[test]
fn window_bounds_bytes_per_round_trip() {
    // 54,750 bytes each 600 ms plus the time for a segment and its acknowledgment: the window of
    // the study, 730 kbit/s.
    let window = "tcp.receive_buffer = \"54750 B\"\ntcp.window_scale = false";
    let run = completed(&world("ftp", "5 MB", GEO, window));
    let transfer = &run.transfers[0];
    let seconds = transfer.transfer_s.unwrap();
    let rate = 8.0 * 5e6 / seconds;
    // A few round trips pass before the window is full, and one until the confirmation.
    assert!((675e3..731e3).contains(&rate), "{rate}");
    // The dialogue before it takes round trips: SYN, greeting, USER, PASS, TYPE, PASV, and the data
    // connection's.
    let login = transfer.confirmed_s.unwrap() - seconds;
    assert!((6.0 * 0.6..9.0 * 0.6).contains(&login), "{login}");
    let delivered = transfer.delivered_s.unwrap();
    assert!(delivered < transfer.confirmed_s.unwrap() && delivered > login);
    assert_eq!(transfer.traffic.repairs_str, Some(0), "nothing is sent again");
}

#[test]
fn a_fetched_file_is_timed_by_the_client() {
    for settings in ["", "data = \"port\"", "data = \"epsv\""] {
        let run = completed(&world("ftp-get", "2 MB", GEO, settings));
        let transfer = &run.transfers[0];
        // SYN, greeting, USER, PASS, TYPE, PASV, RETR, and possibly the data connection's.
        let ready = transfer.ready_s.unwrap();
        assert!((7.0 * 0.6..9.0 * 0.6).contains(&ready), "{ready}");
        let (delivered, crossing) = (transfer.delivered_s.unwrap(), transfer.transfer_s.unwrap());
        assert!((ready + crossing - delivered).abs() < 1e-6);
        assert_eq!(transfer.confirmed_s, None, "a server hears nothing of what it sent");
        assert!(transfer.traffic.packets_str.unwrap() > transfer.traffic.packets_rts.unwrap());
    }
}

#[test]
fn interrupted_fetches_are_no_success() {
    let crash = "[[nodes.a.crashes]]\nat = \"8 s\"\n";
    let text = world("ftp-get", "5 MB", GEO, "timeout = \"60 s\"");
    let run = run_once(
        &text.replacen("[[links]]", &format!("{crash}[[links]]"), 1),
        Recorders::default(),
    );
    assert_eq!(run.ended, "idle");
    let transfer = &run.transfers[0];
    assert!(!transfer.completed && !transfer.wrong_success, "{transfer:?}");
}

#[test]
fn a_large_window_fills_the_link() {
    let run = completed(&world("ftp", "20 MB", GEO, ""));
    let rate = 8.0 * 20e6 / run.transfers[0].transfer_s.unwrap();
    assert!(rate > 1.7e6, "{rate}");
}

#[test]
fn every_profile_carries_a_file_through_losses() {
    let link = "rate = \"5 Mbit/s\"\ndelay = \"20 ms\"\nper = 0.01";
    for profile in transport::adapter::over_tcp::config::OverTcpConfig::profiles() {
        let run = completed(&world(&format!("ftp/{profile}"), "500 kB", link, ""));
        let transfer = &run.transfers[0];
        assert_eq!(transfer.protocol, format!("ftp/{profile}"));
        assert!(transfer.traffic.repairs_str.unwrap() > 0, "{profile}: what is lost is sent again");
    }
}

#[test]
fn every_kind_of_data_connection_and_every_switch() {
    let link = "rate = \"5 Mbit/s\"\ndelay = \"20 ms\"\nper = 0.02";
    for settings in [
        "data = \"pasv\"",
        "data = \"epsv\"",
        "data = \"port\"",
        "tcp = { timestamps = false, sack = false, window_scale = false }",
        "tcp = { recovery = \"newreno\", rack = false, nagle = false }",
        "tcp = { recovery = \"rate-halving\", ecn = true, pacing = true }",
        "tcp = { initial_window = \"off\", idle = \"off\", mss = 536 }",
        "tcp = { ack = { every = 1 }, rto = { min = \"1 s\" }, tail_loss_probe = true }",
        "tcp = { scps = {}, ack = { every = \"off\", max_delay = \"100 ms\" } }",
        "tcp = { scps = { snack = \"bits\", snack_delay = \"50 ms\", snack_repeats = 2, \
         assume = \"corruption\", rate = \"interface\", rate_tick = \"1 ms\" } }",
        "tcp = { scps = { snack = \"off\", rate = \"4 Mbit/s\" }, sack = false }",
        "tcp = { scps = { header_compression = true, protocol = \"scps\", suspends = false, \
         dwell = \"2 s\", records = 7, bets = { receive_timeout = \"1 h\", transmissions = 99 } } }",
        "tcp = { scps = \"off\" }",
        "tcp = { send_buffer = \"30 kB\", receive_buffer = \"1 MB\", \
         receive_buffer_initial = \"20 kB\" }",
    ] {
        let text = world("ftp", "300 kB", link, settings);
        completed(&text);
        // The resolved scenario has the same meaning.
        let resolved = Scenario::parse(&text, "world").unwrap().resolved().unwrap();
        let again = Scenario::parse(&resolved.to_toml().unwrap(), "again").unwrap();
        assert_eq!(again.resolved().unwrap().to_toml().unwrap(), resolved.to_toml().unwrap());
    }
}

#[test]
fn misspelled_profiles_are_found() {
    let profile = "ftp/cubik".parse::<transport::protocol::Protocol>().unwrap_err().to_string();
    assert!(profile.contains("did you mean \"cubic\"?"), "{profile}");
}

#[test]
fn nodes_cannot_be_two_programs() {
    for other in ["scp", "scps-fp", "ftp/bbr"] {
        let text = format!(
            "seed = 1\nlinks = [{{ from = \"a\", to = \"b\" }}, {{ from = \"b\", to = \"a\" }}]
            transfers = [{{ from = \"a\", to = \"b\", protocol = \"ftp\", size = \"1 kB\" }},
            {{ from = \"a\", to = \"b\", protocol = \"{other}\", size = \"1 kB\" }}]"
        );
        let error = Scenario::parse(&text, "world").and_then(Scenario::resolved).unwrap_err();
        assert!(error.to_string().contains("another protocol"), "{other}: {error}");
    }
}

#[test]
fn ftp_crosses_relays_outages_and_cross_traffic() {
    let text = "seed = 1
        [[links]]\nfrom = \"a\"\nto = \"r\"\nrate = \"2 Mbit/s\"\ndelay = \"10 ms\"
        outages = [{ at = \"2 s\", for = \"5 s\" }]
        [[links]]\nfrom = \"r\"\nto = \"a\"\nrate = \"2 Mbit/s\"\ndelay = \"10 ms\"
        [[links]]\nfrom = \"r\"\nto = \"b\"\nrate = \"1 Mbit/s\"\ndelay = \"100 ms\"
        queue = \"20 packets\"
        [[links]]\nfrom = \"b\"\nto = \"r\"\nrate = \"1 Mbit/s\"\ndelay = \"100 ms\"
        [[transfers]]\nfrom = \"a\"\nto = \"b\"\nsize = \"800 kB\"\nprotocol = \"ftp\"
        [[transfers]]\nfrom = \"b\"\nto = \"a\"\nsize = \"300 kB\"\nprotocol = \"ftp\"
        [[transfers]]\nfrom = \"a\"\nto = \"b\"\nsize = \"100 kB\"\nprotocol = \"ftp\"\nstart = \"1 s\"";
    let run = completed(text);
    assert_eq!(run.transfers.len(), 3);
    assert!(
        run.links[2].lost.contains_key("queue full"),
        "the relay's queue is full: {:?}",
        run.links
    );
}

#[test]
fn a_server_that_crashes_is_noticed() {
    let crash = "[[nodes.b.crashes]]\nat = \"8 s\"\n";
    let text = world("ftp", "5 MB", GEO, "timeout = \"60 s\"");
    let text = text.replacen("[[links]]", &format!("{crash}[[links]]"), 1);
    let run = run_once(&text, Recorders::default());
    assert_eq!(run.ended, "idle");
    let transfer = &run.transfers[0];
    assert!(!transfer.completed && !transfer.wrong_success, "{transfer:?}");
    assert!(run.time_s < 3600.0, "{}", run.time_s);
}

#[test]
fn the_same_seed_gives_the_same_packets() {
    let lossy = format!("{GEO}\nper = 0.01");
    let text = world("ftp/bbr", "300 kB", &lossy, "");
    let captures = [0, 1].map(|_| {
        let sink = Kept::default();
        assert!(run_once(&text, sink.recorders()).succeeded());
        sink.bytes()
    });
    assert!(captures[0].len() > 300_000);
    assert!(captures[0] == captures[1]);
}

#[test]
fn other_programs_read_its_captures() {
    let lossy = format!("{GEO}\nper = 0.03");
    let sink = Kept::default();
    let run = run_once(&world("ftp", "300 kB", &lossy, ""), sink.recorders());
    assert!(run.succeeded() && run.transfers[0].traffic.repairs_str.unwrap() > 0);
    let path = std::env::temp_dir().join(format!("slowlight-ftp-{}.pcapng", std::process::id()));
    std::fs::write(&path, sink.bytes()).unwrap();
    let tshark = |filter: &str, fields: &[&str]| {
        let mut command = Command::new("tshark");
        command.args(["-n", "-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE"]);
        command.args(["-r", path.to_str().unwrap(), "-Y", filter]);
        if !fields.is_empty() {
            command.args(["-T", "fields"]);
            fields.iter().for_each(|field| _ = command.args(["-e", field]));
        }
        Some(String::from_utf8_lossy(&command.output().ok()?.stdout).into_owned())
    };
    let Some(bad) =
        tshark("_ws.malformed || tcp.checksum.status == 0 || ip.checksum.status == 0", &[])
    else {
        // Without the program the test is skipped.
        let _ = std::fs::remove_file(&path);
        return;
    };
    assert_eq!(bad, "");
    let replies = tshark("ftp.response.code", &["ftp.response.code"]).unwrap();
    let again = tshark(
        "tcp.analysis.retransmission || tcp.analysis.fast_retransmission",
        &["frame.number"],
    )
    .unwrap();
    std::fs::remove_file(&path).unwrap();
    let replies: Vec<_> = replies.split_whitespace().collect();
    assert!(["220", "331", "230", "200", "227", "150", "226"].iter().all(|r| replies.contains(r)));
    assert!(!again.is_empty());
}

#[test]
fn the_senders_own_queue_drops_without_backpressure() {
    let link = "rate = \"10 Mbit/s\"\ndelay = \"300 ms\"\nqueue = \"5 packets\"";
    let dropped = |link: &str| {
        let run = completed(&world("ftp/cubic", "1 MB", link, ""));
        let there = run.links.iter().find(|link| link.from == "a").unwrap();
        there.lost.get("queue full").copied().unwrap_or_default()
    };
    let lost = dropped(link);
    assert!(lost > 5, "{lost} packets did not find room");
    assert_eq!(dropped(&format!("{link}\nbackpressure = true")), 0);
}

#[test]
fn results_show_how_long_buffers_blocked_the_sender() {
    // 100 Mbit/s and a round trip of 300 ms hold 7.5 MB, Linux's default window holds less.
    let link = "rate = \"100 Mbit/s\"\ndelay = \"300 ms\"\nqueue = \"15 MB\"";
    let run = |settings: &str| {
        let run = completed(&world("ftp/cubic", "30 MB", link, settings));
        (run.transfers[0].traffic.buffers.unwrap(), run.transfers[0].transfer_s.unwrap())
    };
    let (unlimited, took) = run("");
    assert!(unlimited.seconds() < 0.01 * took, "{unlimited:?} of {took} s");
    let (linux, slower) = run("tcp.buffers = \"linux\"");
    assert!(slower > took + 1.0 && linux.seconds() > 0.2 * slower, "{linux:?} of {slower} s");
    let (window, _) = run("tcp.receive_buffer = \"1 MB\"");
    let (peer, own) = (window.peer_window_limited_s, window.send_buffer_limited_s);
    assert!(peer > 10.0 && own < 1.0, "{window:?}");
    let (buffer, _) = run("tcp.send_buffer = \"1 MB\"");
    let (peer, own) = (buffer.peer_window_limited_s, buffer.send_buffer_limited_s);
    assert!(own > 10.0 && peer < 1.0, "{buffer:?}");
}

#[test]
fn traces_label_packets() {
    let trace = Kept::default();
    let recorders = Recorders { trace: Some(Box::new(trace.clone())), pcap: None };
    assert!(run_once(&world("ftp", "20 kB", GEO, ""), recorders).succeeded());
    let text = String::from_utf8(trace.bytes()).unwrap();
    for kind in ["SYN", "SYN ACK", "data", "FIN", "ACK"] {
        assert!(text.contains(&format!("\t{kind}\t")), "{kind} is missing:\n{text}");
    }
    assert!(!text.contains("not TCP"));
}

#[test]
fn a_comparison_overrides_tcp_settings_only() {
    let tcp = TcpSettings::default()
        .with(&["congestion"], Congestion::Vegas.name())
        .with(&["timestamps"], false);
    let plan = Plan {
        tcp: Some(tcp),
        ..Plan::new(
            Preset::find("geo").unwrap(),
            vec!["ftp".parse().unwrap(), "cfdp".parse().unwrap()],
            content::made_up(1, 0, 100_000).unwrap(),
        )
    };
    for protocol in &plan.protocols {
        let scenario = plan.scenario(protocol, 1).unwrap().to_toml().unwrap();
        let is_ftp = protocol.to_string() == "ftp";
        assert_eq!(scenario.contains("congestion = \"vegas\""), is_ftp);
        assert_eq!(scenario.contains("timestamps = false"), is_ftp);
    }
    let rows = lab::compare::compare(&plan, &false.into(), &|| ()).unwrap().unwrap();
    assert!(rows.iter().all(|row| row.completed == 1));
    let timed = |row: &&lab::compare::Row| row.transfer_s.is_some();
    assert_eq!(rows.iter().find(timed).unwrap().protocol.to_string(), "ftp");
}

#[test]
fn real_hosts_refuse_ftp_with_a_remedy() {
    let scenario = Scenario::parse(&world("ftp/reno", "1 kB", GEO, ""), "world").unwrap();
    let refused = run::refuse_streams(&scenario.resolved().unwrap()).unwrap_err().to_string();
    assert!(refused.contains("ftp/reno runs in the simulator"), "{refused}");
    assert!(refused.contains("tool = \"ftp\""), "{refused}");
    let other = Scenario::parse(&world("cfdp", "1 kB", GEO, ""), "world").unwrap();
    run::refuse_streams(&other.resolved().unwrap()).unwrap();
}

#[test]
fn long_delays_need_a_longer_connection_timeout() {
    let far = "rate = \"2 Mbit/s\"\ndelay = \"80 s\"";
    let run = run_once(&world("ftp", "20 kB", far, ""), Recorders::default());
    assert!(run.ended == "idle" && !run.transfers[0].completed);
    // Two minutes of SYNs are longer than a round trip of 80 seconds.
    completed(&world("ftp", "20 kB", &far.replace("80", "40"), ""));
    completed(&world("ftp", "20 kB", far, "tcp.rto.initial = \"200 s\""));
}
