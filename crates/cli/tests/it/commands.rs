//! The commands that need no socket, as a user types them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::guard::guarded;

fn slowlight(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_slowlight"));
    command.args(args).env_remove("RUST_LOG");
    command
}

fn run(args: &[&str]) -> Output {
    slowlight(args).output().unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Output of a command that must succeed.
fn done(args: &[&str]) -> String {
    let output = run(args);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", err(&output));
    out(&output)
}

/// Version as `--version` prints it.
fn version() -> String {
    done(&["--version"]).trim_end().strip_prefix("slowlight ").unwrap().to_owned()
}

/// Hash and day of the last commit, if the source is a checkout: an archive may be in a folder of
/// another repository.
fn head() -> Option<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let git = |args: &[&str]| {
        let output = Command::new("git").current_dir(&root).args(args).output().ok()?;
        output.status.success().then(|| out(&output).trim_end().to_owned())
    };
    let top = Path::new(&git(&["rev-parse", "--show-toplevel"])?).canonicalize().ok()?;
    (top == root).then(|| git(&["log", "-1", "--abbrev=9", "--format=%h %cs"]))?
}

#[test]
fn the_version_names_the_commit() {
    let version = version();
    let number = env!("CARGO_PKG_VERSION");
    let Some(head) = head() else {
        assert_eq!(version, number);
        return;
    };
    let (hash, day) = head.split_once(' ').unwrap();
    let known = [format!("{number} ({hash} {day})"), format!("{number} ({hash}-dirty {day})")];
    assert!(known.contains(&version), "{version}: {known:?}");
    let csv = done(&["compare", "--link", "geo", "--size", "1 kB", "--protocol", "ltp", "--csv"]);
    assert!(csv.contains(&format!("slowlight {version}")), "{csv}");
}

#[test]
fn links_are_listed_as_json() {
    let all: serde_json::Value = serde_json::from_str(&done(&["links", "--json"])).unwrap();
    let names: Vec<_> = all.as_array().unwrap().iter().map(|link| &link["name"]).collect();
    assert_eq!(names, lab::preset::ALL.iter().map(|(name, _)| name).collect::<Vec<_>>());
    let one: serde_json::Value = serde_json::from_str(&done(&["links", "geo", "--json"])).unwrap();
    let geo = all.as_array().unwrap().iter().find(|link| link["name"] == "geo").unwrap();
    assert_eq!((&one["hops"], &one["about"]), (&geo["hops"], &geo["about"]));
}

fn scenario(name: &str) -> String {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "../../scenarios", name].iter().collect();
    path.to_str().unwrap().to_owned()
}

#[test]
fn three_protocols_are_ranked_over_every_named_link() {
    for (link, _) in lab::preset::ALL {
        let args = ["compare", "--link", link, "--size", "100 kB", "--per", "1e-2", "--runs", "2"];
        let args = [&args[..], &["--inactivity", "1 d"]].concat();
        let table = done(&args);
        let ranking: serde_json::Value =
            serde_json::from_str(&done(&[&args[..], &["--json"]].concat())).unwrap();
        let rows = ranking["protocols"].as_array().unwrap();
        for protocol in ["cfdp", "ltp", "saratoga"] {
            assert!(table.contains(protocol), "{link}: {table}");
            let row = rows.iter().find(|row| row["protocol"] == protocol).unwrap();
            assert_eq!((&row["runs"], &row["completed"]), (&2.into(), &2.into()), "{link}: {row}");
            let efficiency = row["efficiency"].as_f64().unwrap();
            // At most two round trips with few losses: no bound is beaten, and none is far away.
            assert!((0.1..=1.0).contains(&efficiency), "{link}: {row}");
        }
        // Most completed runs first, then the fastest.
        let key = |row: &serde_json::Value| {
            let time = row["delivered_s"]["mean"].as_f64().unwrap_or(f64::INFINITY);
            (-row["completed"].as_i64().unwrap(), time)
        };
        let keys: Vec<(i64, f64)> = rows.iter().map(key).collect();
        assert!(keys.is_sorted(), "{link}: {keys:?}");
    }
}

#[test]
fn options_need_one_matching_protocol() {
    for option in [["--congestion", "vegas"], ["--timestamps", "off"]] {
        let args = ["compare", "--protocol", "cfdp,ftp", "--size", "10 kB", "--runs", "1"];
        done(&[&args[..], &option].concat());
    }
}

#[test]
fn the_fastest_that_slowlight_has_leads_a_comparison_without_names() {
    for per in ["0", "1e-3", "1e-1"] {
        let args = ["compare", "--link", "geo", "--size", "1 MB", "--runs", "2", "--per", per];
        let table = done(&args);
        let coded = table.lines().find(|line| line.contains("norm/coded")).unwrap_or_default();
        let share = coded.split_once(" %").and_then(|(before, _)| before.split(' ').next_back());
        let share: f64 = share.and_then(|share| share.parse().ok()).unwrap_or_default();
        assert!(share >= 97.0, "{table}");
        for part in ["coded: needs slowlight at both ends", "shared: has", "--all prints"] {
            assert!(table.contains(part), "{part}: {table}");
        }
    }
}

#[test]
fn compare_prints_a_table_or_json() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), vec![7; 50_000]).unwrap();
    let path = file.path().to_str().unwrap();
    let args = ["compare", "--link", "geo", "--per", "1e-2", "--runs", "3", "--file", path];
    let table = done(&args);
    for part in
        ["50 kB over geo, 3 runs per protocol from seed 1", "both ways", "bound: ", "of bound"]
    {
        assert!(table.contains(part), "{part}: {table}");
    }
    assert_eq!(table.matches("norm/coded").count(), 1, "one line a family: {table}");
    let every = done(&[&args[..], &["--all"]].concat());
    assert_eq!(every.matches(" cfdp ").count(), 1, "one line a protocol: {every}");
    // No terminal: 100 columns, no colours.
    assert!(table.lines().all(|line| line.chars().count() <= 100), "{table}");
    assert!(!table.contains('\u{1b}') && !table.contains("packets sent"), "{table}");
    let wide = done(&[&args[..], &["--wide", "--protocol", "cfdp/extended-b3"]].concat());
    for column in ["packets sent", "packets back", "bytes back", "goodput", "std dev"] {
        assert!(wide.contains(column), "{column}: {wide}");
    }
    let mut more = args.to_vec();
    more.extend(["--json", "--jobs", "1", "--protocol", "cfdp,cfdp/gsfc-2007"]);
    let json: serde_json::Value = serde_json::from_str(&done(&more)).unwrap();
    assert_eq!((&json["slowlight"], &json["seed"]), (&version().into(), &1.into()));
    assert_eq!(json["link"]["hops"][0]["per"], "0.01", "{json}");
    let rows = json["protocols"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    for row in rows {
        assert_eq!((row["runs"].as_u64(), row["completed"].as_u64()), (Some(3), Some(3)));
        assert_eq!(row["file_bytes"].as_u64(), Some(50_000));
        assert!(row["goodput_bps"]["mean"].as_f64() > Some(0.0));
    }
    let first = rows[0]["delivered_s"]["mean"].as_f64();
    assert!(first <= rows[1]["delivered_s"]["mean"].as_f64(), "ranked by time");
    let one = more.iter().map(|arg| if *arg == "1" { "2" } else { arg }).collect::<Vec<_>>();
    assert_eq!(serde_json::from_str::<serde_json::Value>(&done(&one)).unwrap(), json);
}

#[test]
fn compare_writes_values_for_papers() {
    let args = ["compare", "--link", "geo", "--per", "1e-2", "--runs", "3", "--size", "50 kB"];
    let args = [&args[..], &["--protocol", "cfdp,ftp"]].concat();
    let csv = done(&[&args[..], &["--csv"]].concat());
    let (comments, rows): (Vec<_>, Vec<_>) = csv.lines().partition(|line| line.starts_with('#'));
    assert_eq!(comments[0], "# 50 kB over geo, 3 runs per protocol from seed 1");
    assert!(comments.iter().any(|line| line.contains("packet errors 0.01")), "{csv}");
    let fields: Vec<Vec<_>> = rows.iter().map(|row| row.split(',').collect()).collect();
    assert_eq!(fields.len(), 3);
    assert!(fields.iter().all(|row| row.len() == fields[0].len()), "{csv}");
    let json: serde_json::Value =
        serde_json::from_str(&done(&[&args[..], &["--json"]].concat())).unwrap();
    let value = |row: &[&str], name: &str| {
        let column = fields[0].iter().position(|field| *field == name).unwrap();
        row[column].parse::<f64>().unwrap()
    };
    for row in &fields[1..] {
        let protocols = json["protocols"].as_array().unwrap();
        let of = protocols.iter().find(|of| of["protocol"] == row[0]).unwrap();
        assert_eq!(value(row, "delivered_mean_s"), of["delivered_s"]["mean"].as_f64().unwrap());
        assert_eq!(value(row, "goodput_max_bps"), of["goodput_bps"]["max"].as_f64().unwrap());
    }
}

#[test]
fn compare_sends_to_several_receivers() {
    let args = ["compare", "--link", "geo", "--size", "50 kB", "--runs", "2", "--receivers", "3"];
    let list = ["--protocol", "cfdp/extended-b3,saratoga-blind"];
    let output = run(&[&args[..], &list[..]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let table = out(&output);
    assert!(table.contains("over geo to 3 receivers"), "{table}");
    for text in ["to all", "to each", "3 transfers", "to the group"] {
        assert!(table.contains(text), "{text}: {table}");
    }
    assert!(table.lines().all(|line| line.chars().count() <= 100), "{table}");
    let json = done(&[&args[..], &list[..], &["--json"]].concat());
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["receivers"], 3);
    let rows = json["protocols"].as_array().unwrap();
    assert_eq!(
        (&rows[0]["protocol"], &rows[0]["multicast"]),
        (&"saratoga-blind".into(), &true.into())
    );
    assert_eq!(rows[1]["multicast"], false);
    let mean = |row: &serde_json::Value, key: &str| row[key]["mean"].as_f64().unwrap();
    for row in rows {
        assert!(mean(row, "each_delivered_s") <= mean(row, "delivered_s"), "{row}");
    }
    let one = done(&["compare", "--size", "1 kB", "--runs", "1", "--json", "--receivers", "1"]);
    assert_eq!(one, done(&["compare", "--size", "1 kB", "--runs", "1", "--json"]));
    assert!(!one.contains("multicast") && !one.contains("each_delivered_s"), "{one}");
}

#[test]
fn compare_accepts_unusual_but_valid_input() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(".slowlight");
    std::fs::write(&path, b"not a receiver's working folder").unwrap();
    let link = ["compare", "--rate", "0 bit/s", "--delay", "0 s", "--runs", "2"];
    let more = ["--jobs", "60000", "--protocol", "cfdp,cfdp", "--file", path.to_str().unwrap()];
    let output = run(&[&link[..], &more[..]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let table = out(&output);
    assert!(table.contains("any rate, 0 s"), "{table}");
    assert_eq!(table.matches("cfdp").count(), 1, "one row: {table}");
    assert!(!table.contains("NaN"), "{table}");
}

/// The first row of `compare` over a GEO link.
fn geo(args: &[&str]) -> serde_json::Value {
    let link = ["compare", "--link", "geo", "--size", "100 kB", "--runs", "1", "--json"];
    let json: serde_json::Value = serde_json::from_str(&done(&[&link[..], args].concat())).unwrap();
    json["protocols"][0].clone()
}

#[test]
fn an_outage_at_the_start_counts() {
    let row = geo(&["--protocol", "cfdp", "--outage", "0 s+30 s"]);
    let delivered = row["delivered_s"]["mean"].as_f64().unwrap();
    assert!((30.0..31.0).contains(&delivered), "{row}");
    assert!((0.9..1.0).contains(&row["efficiency"].as_f64().unwrap()), "{row}");
}

#[test]
fn outages_of_hours_are_survived() {
    // Packets in flight at the start of the outage arrive during it.
    let outage = ["--outage", "200 ms+5 h", "--protocol"];
    assert_eq!(geo(&[&outage[..], &["cfdp"]].concat())["completed"], 1);
    // Ends behind the relay are not informed of the outage, so their timeouts have to be long.
    let far = ["compare", "--link", "moon-farside", "--size", "100 kB", "--runs", "1"];
    let args = [&far[..], &["--outage", "1 s+5 h", "--protocol", "cfdp,ltp,saratoga"]].concat();
    done(&[&args[..], &["--inactivity", "1 d"]].concat());
}

#[test]
fn compare_reports_its_parameters() {
    let args = ["compare", "--size", "1 kB", "--runs", "1", "--protocol", "cfdp"];
    let outages = ["--outage", "1 min+2 s", "--outage", "10 s+30 s"];
    let output = run(&[&args[..], &outages, &["--mtu", "500 B", "--queue", "9 packets"]].concat());
    let header = out(&output).split_whitespace().collect::<Vec<_>>().join(" ");
    for part in ["down 10 s+30 s, 1 min+2 s", "queue 9 packets", "MTU 500 B", "datagram 472 B"] {
        assert!(header.contains(part), "{part}: {header}");
    }
    assert!(header.contains("both ways"), "{header}");
}

#[test]
fn compare_options_are_grouped_under_their_headings() {
    let help = done(&["compare", "--help"]);
    let at = |text: &str| help.find(text).unwrap_or_else(|| panic!("{text}: {help}"));
    assert!(at("--json") < at("Link:") && at("--runs") < at("Link:"), "{help}");
    assert!(
        at("Link:") < at("--while-down <") && at("--while-down <") < at("Return link:"),
        "{help}"
    );
    assert!(at("Contacts and outages:") < at("--outage <"), "{help}");
}

/// Signals of a process, one bit each, from the field of `/proc/PID/status` with this name.
fn signals(process: &str, kind: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let bits = status.lines().find_map(|line| line.strip_prefix(kind)).unwrap();
    u64::from_str_radix(bits.trim().trim_start_matches(':').trim(), 16).unwrap()
}

const HUP: u64 = 1;
const INT: u64 = 1 << 1;
const TERM: u64 = 1 << 14;

/// Starts a long command, waits until it handles these signals, and sends one; returns its output.
fn stopped(mut command: Command, received: u64, signal: &str) -> Output {
    command.args(["compare", "--size", "100 MB", "--per", "0.5", "--runs", "1"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut running = guarded(command.env_remove("RUST_LOG"));
    let id = running.child.id().to_string();
    while signals(&id, "SigCgt") & received != received {
        assert!(running.child.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::yield_now();
    }
    // It would be the first one.
    assert_eq!(signals(&id, "SigCgt") & HUP, received & HUP);
    assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    running.child.wait_with_output().unwrap()
}

#[test]
fn signals_stop_compare() {
    let hangs_up = HUP & !signals("self", "SigIgn");
    for (bit, signal) in [(INT, "-INT"), (TERM, "-TERM"), (hangs_up, "-HUP")] {
        if bit == 0 {
            continue;
        }
        let output = stopped(slowlight(&[]), INT | TERM | hangs_up, signal);
        assert_eq!(
            (output.status.code(), err(&output)),
            (Some(130), "stopped by a signal; no result\n".to_owned())
        );
    }
    // With `nohup` it continues without a terminal.
    let mut command = Command::new("nohup");
    command.arg(env!("CARGO_BIN_EXE_slowlight"));
    let output = stopped(command, INT | TERM, "-INT");
    assert_eq!(output.status.code(), Some(130), "{}", err(&output));
    assert!(err(&output).ends_with("stopped by a signal; no result\n"), "{}", err(&output));
}

#[test]
fn lost_traces_are_reported() {
    for option in ["--trace", "--pcap"] {
        let output = run(&["sim", &scenario("grc-10mb.toml"), option, "/dev/full"]);
        assert_eq!(output.status.code(), Some(1), "{option}");
        assert_eq!(err(&output).matches("No space left").count(), 1, "{}", err(&output));
    }
}

#[test]
fn return_path_has_its_own_settings() {
    let args =
        ["compare", "--rate", "1 Mbit/s", "--delay", "1 s", "--size", "20 kB", "--runs", "1"];
    let back = ["--return-rate", "9600 bit/s", "--return-delay", "3 s", "--json"];
    let json = done(&[&args[..], &back[..]].concat());
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    let mean = |key: &str| report["protocols"][0][key]["mean"].as_f64().unwrap();
    assert!((1.0..1.5).contains(&mean("delivered_s")), "{json}");
    assert!((4.0..4.6).contains(&mean("confirmed_s")), "{json}");
}

#[test]
fn advice_for_a_link_on_which_nothing_arrives_simulates_nothing() {
    for shared in ["--shared", "--dedicated"] {
        let output = run(&["advise", "--per", "1", shared]);
        let (code, text) = (output.status.code(), out(&output));
        assert!(code == Some(1) && text.contains("No transport can deliver"), "{text}");
    }
}

#[test]
fn a_run_folder_keeps_everything() {
    let folder = tempfile::tempdir().unwrap();
    let out_dir = folder.path().join("run");
    let dir = out_dir.to_str().unwrap();
    let json = done(&["sim", &scenario("far-side.toml"), "--out", dir, "--json", "--seed", "5"]);
    let read = |name: &str| std::fs::read_to_string(out_dir.join(name)).unwrap();
    assert_eq!(json.trim_end(), read("metrics.json"));
    let metrics: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(metrics["seed"], 5);
    assert_eq!(metrics["transfers"][0]["verified"], true);
    let manifest: serde_json::Value = serde_json::from_str(&read("manifest.json")).unwrap();
    assert_eq!((&manifest["seed"], &manifest["slowlight"]), (&5.into(), &version().into()));
    assert_eq!(read("scenario.toml"), std::fs::read_to_string(scenario("far-side.toml")).unwrap());
    assert!(read("trace.tsv").starts_with("sent_s\t"));
    // The resolved scenario is a valid scenario with the same metrics.
    let resolved = out_dir.join("resolved.toml");
    assert_eq!(done(&["sim", resolved.to_str().unwrap(), "--json"]), json);
    let lines = done(&["decode", out_dir.join("capture.pcapng").to_str().unwrap()]);
    assert!(lines.lines().count() > 1000 && lines.contains("File Data"), "{}", lines.len());
}

#[test]
fn a_transfer_that_fails_exits_with_1() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("world.toml");
    let link = |from, to| format!("[[links]]\nfrom = \"{from}\"\nto = \"{to}\"\nper = 1\n");
    let transfer = "[[transfers]]\nfrom = \"a\"\nto = \"b\"\nsize = \"1 kB\"\n";
    let text = format!("seed = 1\n{}{}{transfer}", link("a", "b"), link("b", "a"));
    std::fs::write(&path, text).unwrap();
    let output = run(&["sim", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1), "{}", err(&output));
    assert!(out(&output).contains("file-1 failed: sender:"), "{}", out(&output));
}

#[test]
fn sim_marks_bounds_that_are_means() {
    let output = run(&["sim", &scenario("geo.toml")]);
    let text = out(&output);
    let shown = text.split('~').skip(1).map(|cell| cell.contains('%')).collect::<Vec<_>>();
    assert_eq!(shown, [false, true, false], "{text}");
    assert!(text.contains("~: mean of many runs"), "{text}");
    let output = run(&["sim", &scenario("grc-10kb.toml")]);
    assert!(!out(&output).contains('~') && out(&output).contains(" %"), "{}", out(&output));
}

#[test]
fn an_unacknowledged_transfer_needs_no_return_link() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("world.toml");
    let text = "seed = 1
        links = [{ from = \"ground\", to = \"remote\" }, { from = \"remot\", to = \"ground\" }]
        transfers = [{ from = \"ground\", to = \"remote\", protocol = \"cfdp-1\", size = \"1 kB\" }]";
    std::fs::write(&path, text).unwrap();
    done(&["sim", path.to_str().unwrap()]);
}

#[test]
fn decode_shows_one_line_a_pdu() {
    let ack = "2800031100650001006606 4001";
    assert!(done(&["decode", ack]).contains("ACK"));
}

#[test]
fn decode_reads_files_of_any_kind() {
    let vectors = concat!(env!("CARGO_MANIFEST_DIR"), "/../cfdp/testdata/");
    let (ack, nak) = (format!("{vectors}/ack_eof.hex"), format!("{vectors}/nak.hex"));
    let line = done(&["decode", &ack]);
    assert!(line.contains("ACK") && line.lines().count() == 1, "{line}");
    let folder = tempfile::tempdir().unwrap();
    let pcap = folder.path().join("run.pcapng");
    let pcap = pcap.to_str().unwrap();
    done(&["sim", &scenario("grc-10kb.toml"), "--pcap", pcap]);
    let alone = done(&["decode", pcap]);
    let all = done(&["decode", pcap, &ack, &nak]);
    assert!(all.starts_with(&format!("{pcap}:\n{alone}{ack}:\n")), "{all}");
    assert!(all.lines().last().is_some_and(|line| line.contains("NAK")), "{all}");
    for (given, message) in [(pcap, &alone), (&ack, &line)] {
        let stdin = std::fs::File::open(given).unwrap();
        let output = slowlight(&["decode", "-"]).stdin(stdin).output().unwrap();
        assert_eq!((output.status.code(), &out(&output)), (Some(0), message), "{}", err(&output));
    }
    let output = run(&["decode", pcap, "no-such-file"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).contains("cannot read no-such-file"), "{}", err(&output));
    // One invalid PDU among valid ones.
    let several = folder.path().join("several.hex");
    let bad = "# two\n2800031100650001006606 4001\n\n28000311006500\n";
    std::fs::write(&several, bad).unwrap();
    let output = run(&["decode", several.to_str().unwrap()]);
    assert_eq!((output.status.code(), out(&output).lines().count()), (Some(1), 2));
    let long = format!("{line}7 bytes, not CFDP");
    assert!(out(&output).starts_with(&long), "{}", out(&output));
}

#[test]
fn decode_distinguishes_norm_from_other_protocols() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../norm/testdata/");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        // PDUs whose decoding the file states.
        let Some(reads) = text.lines().find_map(|line| line.strip_prefix("# reads: ")) else {
            continue;
        };
        let path = path.to_str().unwrap();
        assert_eq!(done(&["decode", path]), done(&["decode", "--protocol", "norm", path]));
        assert_eq!(done(&["decode", path]), format!("{reads}\n"), "{path}");
        count += 1;
    }
    assert!(count >= 25, "{count} messages");
}

#[test]
fn closed_output_pipes_are_not_errors() {
    let folder = tempfile::tempdir().unwrap();
    let pcap = folder.path().join("run.pcapng");
    done(&["sim", &scenario("grc-10mb.toml"), "--pcap", pcap.to_str().unwrap()]);
    let mut child = slowlight(&["decode", pcap.to_str().unwrap()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("Metadata"), "{line}");
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), err(&output)), (Some(0), String::new()));
}

#[test]
fn closed_output_pipes_keep_the_failure_code() {
    let folder = tempfile::tempdir().unwrap();
    let world = folder.path().join("world.toml");
    let text = "seed = 1
        links = [{ from = \"a\", to = \"b\", per = \"1\" }, { from = \"b\", to = \"a\" }]
        transfers = [{ from = \"a\", to = \"b\", size = \"1 kB\" }]";
    std::fs::write(&world, text).unwrap();
    let compare = |per| ["compare", "--size", "1 kB", "--runs", "1", "--per", per];
    let (failing, good) = (compare("1"), compare("0"));
    let sim = ["sim", world.to_str().unwrap()];
    for (args, code) in [(&failing[..], 1), (&good, 0), (&sim, 1)] {
        // The pipe has no reader from the start.
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = slowlight(args).stdout(writer).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", err(&output));
    }
}

#[test]
fn lists_completions_and_pages() {
    let links = done(&["links"]);
    for name in ["terrestrial", "moon-farside", "grc-10m"] {
        assert!(links.lines().any(|line| line.starts_with(name)), "{links}");
    }
    assert!(done(&["links", "cislunar"]).contains("1.28 s"));
    assert!(done(&["completions", "bash"]).contains("compare"));
    let folder = tempfile::tempdir().unwrap();
    done(&["man", folder.path().to_str().unwrap()]);
    for page in ["slowlight.1", "slowlight-compare.1", "slowlight-send.1", "slowlight-bp-ping.1"] {
        let text = std::fs::read_to_string(folder.path().join(page)).unwrap();
        for section in ["SYNOPSIS", "\"EXIT STATUS\"", "\"ENVIRONMENT\""] {
            assert!(text.contains(&format!("\n.SH {section}\n")), "{page}: {text}");
        }
    }
    let compare = std::fs::read_to_string(folder.path().join("slowlight-compare.1")).unwrap();
    assert!(compare.contains("\n[\\-\\-size <SIZE>]\n"), "{compare}");
    assert!(compare.contains("\n.SH EXAMPLES\n"), "{compare}");
}

/// Completions that bash proposes for the last of these words.
fn completed(words: &[&str]) -> Vec<String> {
    let script = done(&["completions", "bash"]);
    let (current, before) = (words[words.len() - 1], words[words.len() - 2]);
    let line = format!(
        "{script}\nCOMP_WORDS=({}); COMP_CWORD={}; _slowlight slowlight '{current}' '{before}'\n\
         printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        words.join(" "),
        words.len() - 1
    );
    // The script exceeds the maximum length of an argument.
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("complete.bash");
    std::fs::write(&script, line).unwrap();
    let output = Command::new("bash").arg(&script).output().unwrap();
    assert!(output.status.success(), "{}", err(&output));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn shells_complete_names_of_links_protocols_and_studies() {
    for (words, expected) in [
        (&["slowlight", "compare", "--link", "cis"][..], "cislunar"),
        (&["slowlight", "link", "--link", "moon"], "moon-farside"),
        (&["slowlight", "compare", "--protocol", "sara"], "saratoga"),
        (&["slowlight", "send", "--protocol", "nor"], "norm"),
        (&["slowlight", "study", "run", "grc"], "grc-2012"),
        (&["slowlight", "links", "mars-f"], "mars-far"),
    ] {
        let proposed = completed(words);
        assert!(proposed.iter().any(|name| name == expected), "{words:?}: {proposed:?}");
    }
    // The names do not exclude files and stacks.
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("my.toml");
    std::fs::write(&link, done(&["links", "geo"])).unwrap();
    let (link, stack) = (link.to_str().unwrap(), "cfdp/gsfc-2007+bp+ltp/checkpoints");
    done(&["compare", "--link", link, "--protocol", stack, "--size", "10 kB", "--runs", "1"]);
}
