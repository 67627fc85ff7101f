//! Worlds that are connected to other networks: uplinks, enclosing worlds, published servers.
//!
//! Each test runs in its own network namespace, in place of the machine.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::{Command, Output, Stdio};

use crate::guard::guarded;
use crate::world::{possible, text};

const SLOWLIGHT: &str = env!("CARGO_BIN_EXE_slowlight");
/// Python script that fetches the URL of its argument as soon as the server listens, and prints
/// the text and the time in s.
const FETCH: &str = "import sys, time, urllib.request
for attempt in range(100):
    start = time.monotonic()
    try:
        print(urllib.request.urlopen(sys.argv[1], timeout=20).read().decode().strip())
        print(time.monotonic() - start)
        break
    except OSError as error:
        if attempt == 99: raise
        time.sleep(0.2)
";
/// Shell functions of the scripts: the program, a server that says `hello`, a client.
const TOOLS: &str = r#"
ip link set lo up
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
echo hello >"$folder/index.html"
serve() { exec python3 -m http.server --directory "$folder" "$@" >/dev/null 2>&1; }
fetch() { python3 -c "$FETCH" "$@"; }
within() { for i in $(seq 200); do if "$@"; then return; fi; sleep 0.1; done; echo "never: $*"; false; }
"#;

/// Whether root can start worlds here, with nft and the programs of the scripts.
fn connectable() -> bool {
    let missing = |program: &&str| {
        Command::new(program)
            .arg("-V")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_err()
    };
    if let Some(program) = ["nft", "python3", "ip"].into_iter().find(missing) {
        testing::skipped!("there is no program {program}");
        return false;
    }
    possible(true)
}

/// Runs a bash script in its own network namespace.
fn alone(script: &str) -> Output {
    let mut command = Command::new("unshare");
    command.args(["--net", "bash", "-e", "-c", &format!("{TOOLS}{script}")]);
    command.env("FETCH", FETCH).env("slowlight", SLOWLIGHT).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    guarded(&mut command).child.wait_with_output().unwrap()
}

/// Output of a script that succeeds.
fn printed(script: &str) -> String {
    let output = alone(script);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    out
}

/// Text and time of a [`FETCH`].
fn fetched(out: &str) -> (&str, f64) {
    let lines: Vec<_> = out.lines().collect();
    let [text, seconds] = lines[..] else { panic!("{out}") };
    (text, seconds.parse().unwrap())
}

/// Minimum round trip of a `ping`, in ms, from "rtt min/avg/max/mdev = 60.3/60.4/60.5/0.1 ms".
fn round_trip(out: &str) -> f64 {
    let (_, times) = out.split_once("mdev = ").unwrap_or_else(|| panic!("{out}"));
    times.split('/').next().unwrap().parse().unwrap()
}

#[test]
fn a_program_reaches_the_machine_by_name_over_the_link() {
    if !connectable() {
        return;
    }
    let out = printed(
        r#"serve 8000 &
        "$slowlight" link --uplink --delay 100ms -- python3 -c "$FETCH" http://outside:8000/"#,
    );
    let (text, seconds) = fetched(&out);
    assert_eq!(text, "hello");
    assert!(seconds >= 0.4, "two round trips of 200 ms: {seconds}");
}

#[test]
fn an_uplink_leaves_nothing_behind() {
    if !connectable() {
        return;
    }
    let clean = r#"
        gone() { ! ip link show | grep -q slowlight && [ -z "$(nft list tables)" ] &&
                 [ "$(cat /proc/sys/net/ipv4/ip_forward)" = 0 ]; }
        there() { [ "$(ip link show | grep -c slowlight)" = "$1" ] &&
                  [ "$(cat /proc/sys/net/ipv4/ip_forward)" = 1 ]; }
        echo 0 >/proc/sys/net/ipv4/ip_forward; gone
        "$slowlight" link --uplink -- true; gone
        "$slowlight" link --uplink -- sleep 1000 & first=$!
        "$slowlight" link --uplink -- sleep 1000 & second=$!
        within there 2
        kill -KILL $first; wait $first || true; within there 1
        kill -TERM $second; wait $second || true; within gone
        echo "nothing is left""#;
    assert_eq!(printed(clean).trim(), "nothing is left");
}

#[test]
fn addresses_that_are_in_use_outside_stay_reachable() {
    if !connectable() {
        return;
    }
    // The machine uses the default addresses of hosts of a scenario.
    let out = printed(
        r#"ip link add lan type veth peer name lan2; ip addr add 10.0.0.1/24 dev lan
        ip link set lan up; ip link set lan2 up
        serve --bind 10.0.0.1 8000 &
        "$slowlight" link --uplink -- python3 -c "$FETCH" http://10.0.0.1:8000/
        "$slowlight" emu run --uplink=ground "$SCENARIO" -- ping -c 1 -W 5 ground >&2"#
            .replace(
                "$SCENARIO",
                concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/lander.toml"),
            )
            .as_str(),
    );
    assert_eq!(fetched(&out).0, "hello");
}

#[test]
fn delays_of_worlds_in_worlds_add_up() {
    if !connectable() {
        return;
    }
    let out = printed(
        r#""$slowlight" link --delay 25ms -- "$slowlight" link --delay 50ms -- ping -c 3 -i 0.2 far"#,
    );
    assert!((150.0..200.0).contains(&round_trip(&out)), "{out}");
    // A server at the inner far end is the inner world's.
    let out = printed(
        r#""$slowlight" link --delay 500ms -- "$slowlight" link --delay 50ms \
             --server "exec python3 -m http.server --directory $folder 80 >/dev/null" -- \
             python3 -c "$FETCH" http://far/"#,
    );
    let (text, seconds) = fetched(&out);
    assert!(text == "hello" && (0.2..1.0).contains(&seconds), "{out}");
}

#[test]
fn others_reach_a_published_server_over_the_link() {
    if !connectable() {
        return;
    }
    let link = printed(
        r#""$slowlight" link --delay 100ms --publish 8000 -- \
             python3 -m http.server --directory "$folder" 8000 >/dev/null 2>&1 & world=$!
        fetch http://127.0.0.1:8000/; kill $world; wait $world || true"#,
    );
    let (text, seconds) = fetched(&link);
    assert!(text == "hello" && seconds >= 0.2, "{link}");
    let up = printed(
        r#"name=published-$$; trap '"$slowlight" emu down --name $name; rm -rf "$folder"' EXIT
        "$slowlight" emu up --name $name --delay 100ms --publish 8000=far --uplink
        serve 8001 &
        "$slowlight" emu exec --name $name far -- python3 -m http.server --directory "$folder" 8000 \
          >/dev/null 2>&1 &
        fetch http://127.0.0.1:8000/
        "$slowlight" emu exec --name $name near -- python3 -c "$FETCH" http://outside:8001/"#,
    );
    let lines: Vec<_> = up.lines().collect();
    let (published, outside) = up.split_at(lines[..2].iter().map(|line| line.len() + 1).sum());
    for out in [published, outside] {
        let (text, seconds) = fetched(out);
        assert!(text == "hello" && seconds >= 0.2, "{up}");
    }
}

#[test]
fn a_browser_runs_as_an_ordinary_user() {
    if !connectable() {
        return;
    }
    let version = Command::new("chromium").arg("--version").output();
    if !version.is_ok_and(|output| output.status.success()) {
        testing::skipped!("there is no program chromium");
        return;
    }
    let page = printed(
        r#"chmod 755 "$folder"
        "$slowlight" link --delay 100ms --user=nobody \
          --server "python3 -m http.server --directory $folder 8000" -- sh -c '
            export HOME=$(mktemp -d); trap "rm -rf $HOME" EXIT
            for attempt in $(seq 30); do
              timeout 60 chromium --headless --disable-gpu --no-first-run \
                --user-data-dir="$HOME/profile" --dump-dom http://far:8000/ 2>"$HOME/log" |
                grep hello && exit
              sleep 1
            done
            cat "$HOME/log"; exit 1'"#,
    );
    assert!(page.contains("hello"), "{page}");
}
