//! Settings that change while a node runs.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::process::Command;

use super::row::{Row, text, wait_for};

/// Sends a request to a node; returns status and body of the response.
fn request(row: &Row, n: usize, target: &str, body: &str) -> (u16, String) {
    let mut stream = UnixStream::connect(row.place(n).join("node.sock")).unwrap();
    let len = body.len();
    let head = format!(
        "{target} HTTP/1.1\r\nHost: node\r\nConnection: close\r\nContent-Length: {len}\r\n\r\n"
    );
    stream.write_all((head + body).as_bytes()).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    let status = reply.split(' ').nth(1).unwrap().parse().unwrap();
    (status, reply.split("\r\n\r\n").nth(1).unwrap().to_owned())
}

fn send(row: &Row, to: &str) {
    let file = row.folder.path().join("file");
    fs::write(&file, "content").unwrap();
    let sent = row.bp(1, &["send", to, file.to_str().unwrap()]);
    assert!(sent.status.success(), "{}", text(&sent));
}

fn held(row: &Row) -> u64 {
    row.query(1).unwrap()["counts"]["bundles"].as_u64().unwrap()
}

#[test]
fn a_node_reads_its_settings_again_and_keeps_running() {
    let mut row = Row::new(2);
    let toml = row.place(1).join("node.toml");
    let before = fs::read_to_string(&toml).unwrap();
    let pid = row.nodes[0].as_ref().unwrap().id().to_string();
    let hang_up = || assert!(Command::new("kill").args(["-HUP", &pid]).status().unwrap().success());
    send(&row, "ipn:8.1");
    send(&row, "ipn:9.1");
    assert_eq!(held(&row), 2);
    // A faulty file changes nothing.
    fs::write(&toml, "nonsense").unwrap();
    hang_up();
    let log = row.place(1).join("log");
    let has = |what: &str| fs::read_to_string(&log).unwrap().contains(what);
    wait_for("the fault is logged", || has("the settings are not applied"));
    assert_eq!(held(&row), 2);
    let (status, body) = request(&row, 1, "POST /reload", "");
    assert!(status == 422 && body.contains("nonsense"), "{status} {body}");
    // A new route is used by stored bundles.
    let route = |to: &str| format!("[[route]]\nto = \"{to}\"\nvia = [\"ipn:2.0\"]\n");
    fs::write(&toml, format!("{before}\n{}", route("ipn:9.0"))).unwrap();
    hang_up();
    wait_for("one bundle leaves", || held(&row) == 1);
    wait_for("it is logged", || has("read the settings again, and applied them"));
    let (status, body) =
        request(&row, 1, "PUT /routes", "[[route]]\nto = \"*\"\nvia = \"ipn:7.0\"");
    assert!(status == 422 && body.contains("unknown neighbour ipn:7.0"), "{status} {body}");
    assert_eq!(request(&row, 1, "PUT /routes", &route("ipn:8.*")).0, 200);
    wait_for("the other leaves", || held(&row) == 0);
    // Settings that only a restart applies.
    fs::write(&toml, before.replace("drain = \"2 s\"", "drain = \"3 s\"")).unwrap();
    let (status, body) = request(&row, 1, "POST /reload", "");
    assert_eq!((status, body.as_str()), (200, "{\"restart\":[\"drain\"]}"));
    assert!(has("drain"));
    let (status, body) = request(&row, 1, "PUT /plan?format=ion", "");
    assert!(status == 422 && body.contains("has no contact plan"), "{status} {body}");
    let (status, body) = request(&row, 1, "GET /plan", "");
    assert!(status == 404 && body.contains("has no contact plan"), "{status} {body}");
    // A plan in place of the routes, and another one.
    let plan = row.place(1).join("plan.ionrc");
    fs::write(&plan, "a contact +0 +86400 2 6 100000\n").unwrap();
    let planned = format!("contact_plan = \"plan.ionrc\"\n{before}");
    fs::write(&toml, planned.replace("drain = \"2 s\"", "drain = \"3 s\"")).unwrap();
    assert_eq!(request(&row, 1, "POST /reload", "").0, 200);
    send(&row, "ipn:6.1");
    assert_eq!(held(&row), 1);
    let plan = "a contact +0 +86400 1 2 100000\na contact +0 +86400 2 6 100000\n";
    assert_eq!(request(&row, 1, "PUT /plan?format=ion", plan).0, 200);
    wait_for("it leaves by the plan", || held(&row) == 0);
    // A contact with a further node, by a command.
    send(&row, "ipn:4.1");
    assert_eq!(held(&row), 1);
    let commands = "m production 1000\na contact +0 +86400 2 4 100000\n";
    let (status, body) = request(&row, 1, "POST /plan", commands);
    let changed = r#"{"applied":1,"skipped":[{"line":1,"why":"\"m production\" does not change a plan; skipped"}],"more":0}"#;
    assert_eq!((status, body.as_str()), (200, changed));
    wait_for("it leaves by the new contact", || held(&row) == 0);
    let (status, body) = request(&row, 1, "POST /plan", "d contact +1 1 2");
    assert!(status == 409 && body.contains("line 1: no contact of 1 with 2"), "{status} {body}");
    assert_eq!(request(&row, 1, "POST /plan", "nonsense").0, 422);
    // What is in force is a plan itself.
    let (status, plan) = request(&row, 1, "GET /plan", "");
    assert_eq!((status, plan.matches("[[contact]]").count()), (200, 3), "{plan}");
    assert!(plan.starts_with("epoch = \"") && plan.contains("rate = \"800 kbit/s\""), "{plan}");
    assert_eq!(request(&row, 1, "PUT /plan?format=toml", &plan).0, 200);
    assert_eq!(request(&row, 1, "GET /plan", "").1.matches("[[contact]]").count(), 3);
    assert!(row.nodes[0].as_mut().unwrap().try_wait().unwrap().is_none());
}

#[test]
fn bundles_cross_to_neighbours_that_a_reload_adds() {
    for kind in ["tcpcl4", "udpcl", "ltpcl", "saratoga", "norm"] {
        let row = Row::of(2, |n, ports| {
            let listen = format!("127.0.0.1:{}", ports[n - 1]);
            let rest = match kind {
                "tcpcl4" => format!("listen = [\"{listen}\"]\nreconnect = \"20 ms\""),
                _ => format!("listen = \"{listen}\"\nrate = \"10 Mbit/s\""),
            };
            format!("[[layer]]\nkind = \"{kind}\"\n{rest}\n")
        });
        send(&row, "ipn:2.1");
        assert_eq!(held(&row), 1, "{kind}: there is no neighbour");
        for n in 1..=2 {
            let toml = row.place(n).join("node.toml");
            let before = fs::read_to_string(&toml).unwrap();
            let (other, port) = (3 - n, row.port(3 - n));
            // The name is resolved; the address admits the other's session.
            let more = format!(
                "[[neighbour]]\nnode = \"ipn:{other}.0\"\naddress = \"localhost:{port}\"\n\
                 from = [\"127.0.0.1\", \"::1\"]\n"
            );
            fs::write(&toml, before + &more).unwrap();
            let (status, body) = request(&row, n, "POST /reload", "");
            assert_eq!((status, body.as_str()), (200, "{\"restart\":[]}"), "{kind}");
        }
        wait_for("the bundle leaves", || held(&row) == 0);
        let inbox = row.folder.path().join("inbox");
        fs::create_dir(&inbox).unwrap();
        let received = row.bp(2, &["recv", "1", inbox.to_str().unwrap(), "--count", "1"]);
        assert!(received.status.success(), "{kind}: {}", text(&received));
    }
}

#[test]
fn pings_and_traces_live_longer_than_the_wait_for_replies() {
    let row = Row::new(2);
    let toml = row.place(1).join("node.toml");
    let before = fs::read_to_string(&toml).unwrap();
    let plan = "a contact +3600 +86400 1 2 100000\na range +0 +86400 1 2 20\n";
    fs::write(row.place(1).join("plan.ionrc"), plan).unwrap();
    fs::write(&toml, format!("contact_plan = \"plan.ionrc\"\n{before}")).unwrap();
    assert_eq!(request(&row, 1, "POST /reload", "").0, 200);
    let waited = row.bp(1, &["trace", "ipn:2.1", "--timeout", "200 ms"]);
    let message = "no node reported the delivery within";
    assert!(text(&waited).contains(message), "{}", text(&waited));
    let (_, listed) = request(&row, 1, "GET /bundles", "");
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    let seconds = |key: &str| listed[0][key].as_f64().unwrap();
    assert!(seconds("left") > 3000.0, "{listed}");
    assert!((3000.0..=3600.0).contains(&seconds("next_contact")), "{listed}");
    assert_eq!(listed[0]["priority"], "normal", "{listed}");
    // A ping that has not left is deleted: its echo would be for nobody.
    let waited = row.bp(1, &["ping", "ipn:2.1", "--count", "1", "--timeout", "200 ms"]);
    assert!(text(&waited).contains("no reply within 200 ms"), "{}", text(&waited));
    wait_for("the ping is deleted", || held(&row) == 1);
    let listed = row.bp(1, &["query", "--bundles"]);
    assert!(text(&listed).contains("queued for ipn:2.0, next contact in"), "{}", text(&listed));
}
