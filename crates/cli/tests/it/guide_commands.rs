//! The commands of guides, run as they are printed: in a network namespace that has the addresses
//! of the guides, with the files that they name.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::guard::guarded_for;
use crate::guides::blocks;
use crate::world::{possible, text};

const SLOWLIGHT: &str = env!("CARGO_BIN_EXE_slowlight");
/// Maximum duration of a script.
const LIMIT: Duration = Duration::from_secs(120);
/// Waits until a receiver listens on UDP port 7542.
const LISTENS: &str = "until ss -uln | grep -q :7542; do sleep 0.05; done";

/// Pages whose commands run here, or are listed in [`ELSEWHERE`].
const PAGES: [&str; 5] =
    ["send-a-file.md", "run-a-node.md", "gateways.md", "program-over-the-moon.md", "advise.md"];

/// Beginnings of blocks that do not run here, with the reason.
const ELSEWHERE: &[(&str, &str)] = &[
    ("sudo install", "it changes the machine"),
    ("sudo mkdir", "it changes the machine"),
    ("slowlight recv --once --stdout", "tests of `sockets::folders` run it"),
    ("slowlight recv --serve --root inbox", "tests of `sockets::folders` run it"),
    ("nft add rule inet filter input", "it changes the machine's packet filter"),
    ("slowlight link --link cislunar --uplink", "it needs the Internet"),
    ("slowlight link --rate \"8 Mbit/s\" --delay \"300 ms\"", "its pings have no end"),
    ("slowlight emu up scenarios/lander.toml", "tests of `control` run these commands, as root"),
    ("slowlight advise --link my.toml", "tests of `guides` compare its output"),
];

/// Beginnings of blocks that run here.
const HERE: &[&str] = &[
    "mkdir inbox\nslowlight recv --root inbox",
    "slowlight send image.raw 192.0.2.7 --rate \"40 Mbit/s\"\n",
    "slowlight send --protocol cfdp image.raw 127.0.0.1:7542",
    "head -c 2000000",
    "slowlight send --protocol cfdp photos notes.txt",
    "tar cz photos",
    "slowlight send --watch outbox",
    "# The first line",
    "until slowlight send",
    "slowlight recv --protocol cfdp --listen :7542 --root inbox --contacts",
    "slowlight recv --protocol cfdp --listen :7542 --root inbox --inactivity",
    "slowlight node one.toml --check",
    "head -c 1000000",
    "slowlight node two.toml &",
    "slowlight bp ping",
    "slowlight link --link cislunar -- ping",
    "mkdir www; head -c 200000",
    "slowlight link --link cislunar --server",
    "slowlight emu run scenarios/lander.toml",
    "slowlight compare --link geo-ku",
    "mkdir www; head -c 10000000",
    "slowlight pep gateway.toml --print-rules",
];

/// Shell commands of a page.
fn shell(page: &str) -> Vec<String> {
    let blocks = blocks(page).into_iter();
    blocks.filter(|(name, _)| name == "sh").map(|(_, text)| text).collect()
}

/// The only block of a page with a beginning.
fn block(page: &str, begin: &str) -> String {
    let all = shell(page).into_iter();
    let mut found: Vec<_> = all.filter(|block| block.starts_with(begin)).collect();
    assert_eq!(found.len(), 1, "{page}: {begin}");
    found.remove(0)
}

#[test]
fn every_command_of_the_guides_runs_or_has_a_reason() {
    let mut begins: BTreeSet<_> = HERE.iter().copied().collect();
    begins.extend(ELSEWHERE.iter().map(|(begin, _)| *begin));
    let mut used = BTreeSet::new();
    for page in PAGES {
        for block in shell(page) {
            let found = begins.iter().find(|begin| block.starts_with(**begin));
            used.insert(*found.unwrap_or_else(|| panic!("{page}: nothing runs {block}")));
        }
    }
    assert_eq!(used, begins, "blocks that no page has");
}

/// Folder with the files of a page, and the program.
fn folder(page: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (_, text) in blocks(page) {
        let name = text.strip_prefix("# ").and_then(|text| text.split(['\n', ':']).next());
        if let Some(name) = name.filter(|name| name.ends_with(".toml") || name.ends_with(".py")) {
            fs::write(folder.path().join(name), &text).unwrap();
        }
    }
    fs::create_dir(folder.path().join("bin")).unwrap();
    symlink(SLOWLIGHT, folder.path().join("bin/slowlight")).unwrap();
    let scenarios: PathBuf = [env!("CARGO_MANIFEST_DIR"), "../../scenarios"].iter().collect();
    symlink(scenarios.canonicalize().unwrap(), folder.path().join("scenarios")).unwrap();
    folder
}

/// Output of a script in the folder; it must succeed.
fn run(folder: &TempDir, script: &str, in_world: bool) -> String {
    let root = folder.path().to_str().unwrap();
    let path = folder.path().join("script.sh");
    let begin = format!(
        "cd {root}\nexport PATH={root}/bin:$PATH XDG_STATE_HOME={root}/state\nset -eu\n\
         trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n"
    );
    fs::write(&path, format!("{begin}{script}")).unwrap();
    let mut command = Command::new(if in_world { SLOWLIGHT } else { "bash" });
    if in_world {
        command.args(["link", "--link", "leo", "--", "bash"]);
    }
    command.arg(path).env_remove("RUST_LOG");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = guarded_for(LIMIT, &mut command).child.wait_with_output().unwrap();
    let printed = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{script}\n{printed}");
    printed
}

#[test]
fn commands_of_send_a_file_deliver() {
    if !possible(false) {
        return;
    }
    let page = "send-a-file.md";
    let block = |begin| block(page, begin);
    let background = |block: String| format!("{} &\n{LISTENS}\n", block.trim_end());
    let folder = folder(page);
    fs::write(folder.path().join("passes.txt"), "0 s, 1 h\n").unwrap();
    let stop = "kill %1; wait %1 || true\n";
    let compare = "cmp image.raw inbox/image.raw; rm inbox/image.raw\n";
    let mut script = "ip address add 192.0.2.7/32 dev lo\n\
                      head -c 8000000 /dev/urandom > image.raw\n"
        .to_owned();
    script += &background(block(HERE[0]));
    for begin in &HERE[1..3] {
        script += &format!("{}\n{compare}", block(begin));
    }
    script += &format!("{}\n{compare}", block("until slowlight send"));
    // The receiver of the stream in a third place runs until it is stopped.
    script += "mkdir photos third; for n in 1 2; do head -c 50000 /dev/urandom > photos/$n; done\n\
               echo notes > notes.txt\n";
    script += &block("slowlight send --protocol cfdp photos notes.txt");
    script +=
        "\nuntil diff -r photos inbox/photos; do sleep 0.1; done; cmp notes.txt inbox/notes.txt\n";
    script += &block("tar cz photos");
    script +=
        "\ntar xzf inbox/photos.tgz -C third; diff -r photos third/photos; rm -r third/photos\n";
    script += "mkdir -p outbox/urgent; cp notes.txt outbox/a.log; cp notes.txt outbox/urgent\n";
    script += &format!("{} &\n", block("slowlight send --watch outbox").trim_end());
    script += "until cmp outbox/sent/a.log inbox/a.log; do sleep 0.1; done\n\
               until cmp outbox/sent/urgent/notes.txt inbox/urgent/notes.txt; do sleep 0.1; done\n\
               slowlight status; kill %2; wait %2\n";
    script += &block("# The first line").replace("--listen :6003 | tar x\n", STREAM);
    script += "\nuntil diff -r photos third/photos; do sleep 0.1; done\n";
    script += stop;
    for begin in [
        "slowlight recv --protocol cfdp --listen :7542 --root inbox --contacts",
        "slowlight recv --protocol cfdp --listen :7542 --root inbox --inactivity",
    ] {
        let both =
            block(begin).replacen("\nslowlight send", &format!(" &\n{LISTENS}\nslowlight send"), 1);
        script += &format!("{both}\n{compare}kill $!; wait $! || true\n");
    }
    run(&folder, &script, true);
    run(&folder, &block("head -c 2000000"), false);
}

/// The receiver of a stream, in the background.
const STREAM: &str = "--listen :6003 | tar x -C third &\n\
                      until ss -uln | grep -q :6003; do sleep 0.05; done\n";

#[test]
fn commands_of_run_a_node_exchange_bundles() {
    if !possible(false) {
        return;
    }
    let page = "run-a-node.md";
    let ready = |name: &str| format!("until [ -S {name}.sock ]; do sleep 0.05; done\n");
    let script = [
        block(page, "slowlight node one.toml --check"),
        ready("one"),
        block(page, "head -c 1000000"),
        // The second node needs a moment, which a reader takes.
        block(page, "slowlight node two.toml &").replacen(
            "&\n",
            &format!("&\n{}", ready("two")),
            1,
        ),
        block(page, "slowlight bp ping"),
    ]
    .join("\n");
    let printed = run(&folder(page), &script, true);
    assert!(printed.contains("1 bundles with 1000064 bytes on disk"), "{printed}");
    assert!(printed.contains("3 sent, 3 received"), "{printed}");
}

#[test]
fn commands_of_program_over_the_moon_run() {
    let has = |program: &str| Command::new(program).arg("--version").output().is_ok();
    if !possible(false) || !["python3", "wget", "ping"].into_iter().all(has) {
        return;
    }
    let page = "program-over-the-moon.md";
    let folder = folder(page);
    let printed = run(&folder, &block(page, "slowlight link --link cislunar -- ping"), false);
    assert!(printed.contains("3 of 3 packets arrived"), "{printed}");
    let printed = run(&folder, &block(page, "slowlight emu run scenarios/lander.toml"), false);
    assert!(printed.contains("2 received"), "{printed}");
    run(&folder, &block(page, "mkdir www; head -c 200000"), false);
    // The guide's program has a timeout that is too short.
    let slow = block(page, "slowlight link --link cislunar --server");
    let failed = format!("if {}; then exit 1; fi", slow.trim_end());
    let printed = run(&folder, &failed, false);
    assert!(printed.contains("timed out"), "{printed}");
}

/// Rows of a Markdown table that begin with a word.
fn rows(page: &str, begin: &str) -> Vec<Vec<String>> {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "../../docs/guides", page].iter().collect();
    let text = fs::read_to_string(path).unwrap();
    let lines = text.lines().filter(|line| line.starts_with(&format!("| {begin}")));
    let cells = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect();
    lines.map(cells).collect()
}

#[test]
fn comparison_of_gateways_is_current() {
    let page = "gateways.md";
    let commands = block(page, "slowlight compare --link geo-ku");
    let ftp = rows(page, "FTP, ");
    let lines = [&ftp[0], &ftp[1], &ftp[2], &ftp[3], &ftp[4]];
    let with_losses = |line: &str| format!("{line} --per 1e-3");
    let [none, tcp, scps] = commands.lines().collect::<Vec<_>>()[..] else { panic!("{commands}") };
    let commands = [none, tcp, scps].map(str::to_owned).into_iter();
    let commands = commands.chain([none, scps].map(with_losses));
    let folder = folder(page);
    for (command, row) in commands.zip(lines) {
        let printed = run(&folder, &command, false);
        let line = printed.lines().find(|line| line.contains(" ftp ")).unwrap();
        let [_, setup, _, delivered, of_bound, ..] = &row[..] else { panic!("{row:?}") };
        let is_same = line.contains(&**delivered) && line.contains(&**of_bound);
        assert!(is_same, "{setup}: {delivered}, {of_bound}, not {line}");
        let Some(saratoga) = printed.lines().find(|line| line.contains(" saratoga ")) else {
            continue;
        };
        if command == none {
            let row = &rows(page, "Saratoga")[0];
            assert!(saratoga.contains(&row[3]) && saratoga.contains(&row[4]), "{saratoga}");
        }
    }
}

/// World of this test process; other tests have some, too.
fn named(script: &str) -> String {
    let name = format!("guide-{}", std::process::id());
    let named =
        script.replace("--name sat", "").replace("emu up ", &format!("emu up --name {name} "));
    named
        .replace("emu exec ", &format!("emu exec --name {name} "))
        .replace("emu down", &format!("emu down --name {name}"))
}

#[test]
fn commands_of_gateways_download_through_them() {
    let has = |program: &str| Command::new(program).arg("--version").output().is_ok();
    if !crate::pep::possible() || !has("wget") {
        return;
    }
    let page = "gateways.md";
    let folder = folder(page);
    // The guide names the three lines that differ.
    let first = fs::read_to_string(folder.path().join("gate-a.toml")).unwrap();
    let second = first
        .replace("name = \"a\"", "name = \"b\"")
        .replace("[\"client\"]", "[\"server\"]")
        .replace("[\"gate-b\"]", "[\"gate-a\"]");
    fs::write(folder.path().join("gate-b.toml"), second).unwrap();
    let served = "until slowlight emu exec server -- ss -tln | grep -q :8000; do sleep 0.05; done";
    let ready = "for gate in a b; do until slowlight emu exec gate-$gate -- \
                 nft list table inet slowlight_$gate > rules 2>&1; do sleep 0.05; done; done";
    let compared = "cmp got www/file; rm got";
    let script = block(page, "mkdir www; head -c 10000000")
        .replace("-d www 8000 &\n", &format!("-d www 8000 &\n{served}\n"))
        .replace("pep gate-b.toml &\n", &format!("pep gate-b.toml &\n{ready}\n"))
        .replace("# without gateways\n", &format!("\n{compared}\n"))
        .replace("# with gateways\n", &format!("\n{compared}\n"));
    let end = "trap 'slowlight emu down 2>/dev/null || true' EXIT\n";
    let printed = run(&folder, &named(&format!("{end}{script}")), false);
    assert_eq!(printed.matches("the gateway is ready").count(), 2, "{printed}");
    assert_eq!(printed.matches("-> \"got\"").count(), 2, "{printed}");
}

#[test]
fn commands_on_a_router_set_the_printed_rules() {
    if !crate::pep::possible() {
        return;
    }
    let page = "gateways.md";
    let ready = "until nft list table inet slowlight_pep > rules 2>&1; do sleep 0.05; done\n";
    let commands = block(page, "slowlight pep gateway.toml --print-rules");
    let background = "\nslowlight pep gateway.toml &\n";
    let script = commands.replace("\nslowlight pep gateway.toml\n", background);
    assert!(script.contains(background), "{commands}");
    let devices = "ip link add eth0 type veth peer name sat0\nip link set eth0 up\n\
                   ip link set sat0 up\n";
    let printed = run(&folder(page), &format!("{devices}{script}{ready}cat rules\n"), true);
    let all = blocks(page);
    let rules = all.iter().find(|(_, text)| text.starts_with("# set\n")).unwrap();
    let shown = rules.1.split_once("...").unwrap().0;
    assert!(printed.contains(shown), "{printed}");
    for interface in ["eth0", "sat0"] {
        let set = format!("iifname \"{interface}\" tcp");
        assert!(printed.contains(&set), "{set}: {printed}");
    }
}
