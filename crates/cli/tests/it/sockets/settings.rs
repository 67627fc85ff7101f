//! Settings of LTP and Saratoga in a file: their effect over sockets, and their precedence.

use std::path::PathBuf;

use super::process::{Ended, Running, program, silent};

/// A directory with a root and a file.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        std::fs::create_dir(place.path("root")).unwrap();
        std::fs::write(place.path("file"), vec![7; 100_000]).unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Path of a settings file with this text.
    fn mib(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// Runs a command to its end.
    fn run(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let Ended { code, out, message } = self.start(arguments).end();
        (code, out + &message)
    }

    /// Sends the file.
    fn send(&self, to: &str, more: &[&str]) -> (Option<i32>, String) {
        self.run(&[&["send", "file", to][..], more].concat())
    }

    fn start(&self, arguments: &[&str]) -> Running {
        let mut command = program(arguments);
        command.current_dir(self.0.path());
        Running::of(command)
    }

    fn serve(&self, protocol: &str, more: &[&str]) -> Server {
        let listen = ["recv", "--listen", "127.0.0.1:0", "--root", "root", "--protocol", protocol];
        let mut process = self.start(&[&listen[..], more].concat());
        let address = process.address();
        Server { address, process }
    }
}

/// Receiver that lives as long as this value.
struct Server {
    address: String,
    process: Running,
}

#[test]
fn command_line_overrides_the_engine_number_of_the_file() {
    let place = Place::new();
    let mib = place.mib("mib.toml", "engine = 9");
    let cases: [(&[&str], u64); 4] = [
        (&[], 2),
        (&["--mib", &mib], 9),
        (&["--entity", "7"], 7),
        (&["--mib", &mib, "--entity", "7"], 7),
    ];
    for (more, number) in cases {
        let server = place.serve("ltp", more);
        let message = &server.process.message;
        assert!(message.contains(&format!("as engine {number}\n")), "{message}");
    }
}

/// The largest of the first three datagrams that `send` sends.
fn largest(place: &Place, more: &[&str]) -> usize {
    let (socket, address) = silent();
    let (code, message) = place.send(&address, &[more, &["--timeout", "500 ms"]].concat());
    assert_eq!(code, Some(1), "{message}");
    let mut buffer = [0; 2_000];
    (0..3).map(|_| socket.recv(&mut buffer).unwrap()).max().unwrap()
}

#[test]
fn file_settings_override_the_profile() {
    let place = Place::new();
    let mib = place.mib("mib.toml", "[default]\nsegment_max = \"100 B\"\ninterval = \"0\"");
    let profile = ["--protocol", "ltp", "--profile", "ltplib-2011"];
    let usual = largest(&place, &profile);
    assert!((993..1_020).contains(&usual), "{usual}");
    let less = largest(&place, &[&profile[..], &["--mib", &mib]].concat());
    assert!((101..130).contains(&less), "{less}");
    // Settings of one remote engine do not apply to another.
    let other = place.mib("other.toml", "[remotes.3]\nsegment_max = \"100 B\"");
    let more = ["--protocol", "ltp", "--mib", &other];
    assert!(largest(&place, &more) > 1_000);
    let third = largest(&place, &[&more[..], &["--remote-entity", "3"]].concat());
    assert!(third < 130, "{third}");
}

#[test]
fn command_line_overrides_the_rate_of_the_file() {
    let place = Place::new();
    // At this rate the file takes 100 s.
    let mib = place.mib("mib.toml", "[default]\nrate = \"8 kbit/s\"");
    for protocol in ["ltp-green", "saratoga-blind"] {
        let (_socket, address) = silent();
        let more = ["--protocol", protocol, "--mib", &mib];
        let (code, message) = place.send(&address, &[&more[..], &["--timeout", "500 ms"]].concat());
        assert_eq!(code, Some(1), "{message}");
        let fast = [&more[..], &["--rate", "100 Mbit/s", "--timeout", "20 s"]].concat();
        let (code, message) = place.send(&address, &fast);
        assert_eq!(code, Some(0), "{message}");
    }
}

#[test]
fn timers_and_limits_of_a_remote_engine_apply() {
    let place = Place::new();
    let text = "[default]\ncheckpoint_timer = \"50 ms\"\ncancel_timer = \"50 ms\"\nretransmission_limit = 2";
    let mib = place.mib("mib.toml", text);
    let (_socket, address) = silent();
    // It gives up by itself.
    let more = ["--protocol", "ltp", "--mib", &mib, "--timeout", "20 s"];
    let (code, message) = place.send(&address, &more);
    assert_eq!(code, Some(1), "{message}");
    assert!(!message.contains("20 s"), "{message}");
}

#[test]
fn engines_with_the_same_key_interoperate() {
    let place = Place::new();
    std::fs::write(place.path("one.key"), "0b".repeat(32)).unwrap();
    std::fs::write(place.path("two.key"), "0c".repeat(32)).unwrap();
    let with = |file: &str| {
        let key = format!("{{ suite = \"hmac-sha256\", id = \"01\", file = \"{file}\" }}");
        place.mib(&format!("{file}.toml"), &format!("[default.authentication]\nkey = {key}"))
    };
    let (one, two) = (with("one.key"), with("two.key"));
    let server = place.serve("ltp", &["--mib", &one]);
    let send = |mib: &str, timeout: &str| {
        place.send(&server.address, &["--protocol", "ltp", "--mib", mib, "--timeout", timeout])
    };
    let (code, message) = send(&two, "500 ms");
    assert_eq!(code, Some(1), "{message}");
    assert!(!place.path("root/file").exists());
    let (code, message) = send(&one, "20 s");
    assert_eq!(code, Some(0), "{message}");
    assert!(place.path("root/file").exists());
    // The key itself is never shown.
    assert!(!message.contains("0b0b"), "{message}");
}

#[test]
fn saratoga_permissions_and_descriptors_come_from_the_file() {
    let place = Place::new();
    std::fs::copy(place.path("file"), place.path("root/there")).unwrap();
    let ask = |server: &Server, what: &[&str], more: &[&str]| {
        let address = server.address.as_str();
        let [command, name @ ..] = what else { panic!("{what:?}") };
        let common = ["--protocol", "saratoga", "--timeout", "20 s"];
        let all = [&[*command, address][..], name, more, &common].concat();
        place.run(&all)
    };
    {
        let server = place.serve("saratoga", &[]);
        assert_eq!(ask(&server, &["ls"], &[]).0, Some(1));
    }
    let mib = place.mib("open.toml", "[permissions]\nget = true\ndelete = true\nput = false");
    let server = place.serve("saratoga", &["--mib", &mib]);
    let (code, message) = ask(&server, &["ls"], &[]);
    assert!(code == Some(0) && message.contains("there"), "{message}");
    let more = ["--protocol", "saratoga", "--timeout", "20 s"];
    assert_eq!(place.send(&server.address, &more).0, Some(1));
    // The requester announces the matching descriptor.
    let narrow = place.mib("narrow.toml", "descriptor = 16");
    let (code, message) = ask(&server, &["get", "there"], &["--mib", &narrow, "--root", "."]);
    assert_eq!(code, Some(1), "{message}");
    let (code, message) = ask(&server, &["get", "there"], &["--root", "."]);
    assert_eq!(code, Some(0), "{message}");
    let (code, message) = ask(&server, &["rm", "there"], &[]);
    assert!(code == Some(0) && !place.path("root/there").exists(), "{message}");
}

#[test]
fn beacons_are_sent_to_the_named_peers() {
    let place = Place::new();
    let (socket, address) = silent();
    let text = format!(
        "eid = \"dtn://here\"\nbeacons = \"50 ms\"\n[remotes.\"{address}\"]\nrepair_copies = 1"
    );
    let mib = place.mib("mib.toml", &text);
    let _server = place.serve("saratoga", &["--mib", &mib]);
    let mut buffer = [0; 2_000];
    for _ in 0..3 {
        let len = socket.recv(&mut buffer).unwrap();
        let text = String::from_utf8_lossy(&buffer[..len]);
        assert!(text.contains("dtn://here"), "{text:?}");
    }
}

#[test]
fn scenario_settings_use_the_keys_of_its_protocol() {
    let place = Place::new();
    let text = "seed = 1\nnodes.a.mib = { default = { segment_max = \"99 B\" } }
        links = [{ from = \"a\", to = \"b\" }, { from = \"b\", to = \"a\" }]
        transfers = [{ from = \"a\", to = \"b\", protocol = \"ltp\", size = \"1 kB\" }]";
    let path = place.mib("world.toml", text);
    let (code, message) = place.run(&["sim", &path, "--out", "out"]);
    assert_eq!(code, Some(0), "{message}");
    let resolved = std::fs::read_to_string(place.path("out/resolved.toml")).unwrap();
    assert!(resolved.contains("segment_max = \"99 B\""), "{resolved}");
    let (code, message) = place.run(&["sim", "out/resolved.toml"]);
    assert_eq!(code, Some(0), "{message}");
}
