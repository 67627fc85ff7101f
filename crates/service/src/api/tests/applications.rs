//! Requests of applications: flags and facts of bundles, keys, filters, streams, many at a time.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;

use super::*;
use crate::api::model::{Purged, Sent, StatusLine, StreamSent};

/// Sends a request by itself; returns the status line and the lines of JSON of the response.
fn exchange(place: &Place, head: &str, body: &[u8]) -> (String, Vec<String>) {
    let mut stream = UnixStream::connect(place.socket()).unwrap();
    let len = body.len();
    let head =
        format!("{head} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {len}\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let (mut writer, body) = (stream.try_clone().unwrap(), body.to_vec());
    // The node replies while it reads, and does not read to the end of a malformed stream.
    let sending = std::thread::spawn(move || writer.write_all(&body));
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    let _ = sending.join().unwrap();
    let mut lines = response.lines().map(str::to_owned);
    (lines.next().unwrap(), lines.filter(|line| line.starts_with(['{', '['])).collect())
}

fn send(place: &Place, query: &[(&str, &str)], len: usize) -> Result<String, ClientError> {
    place.client().send(query, io::Cursor::new(bytes(len))).map(|sent| sent.id)
}

#[test]
fn many_waiting_applications_leave_room_for_requests() {
    let place = Place::new(false);
    let mut waiting = Vec::new();
    for service in 100..200 {
        let mut client = place.client();
        let coming = client.take(&[("endpoint", &service.to_string())]).unwrap();
        waiting.push((client, coming));
    }
    let node: model::Node = place.client().get("/node", &[]).unwrap();
    assert_eq!(node.endpoints.len(), 100);
    send(&place, &[("to", "ipn:1.150")], 5).unwrap();
    let (client, coming) = &mut waiting[50];
    assert_eq!(client.next(coming).unwrap().unwrap().bytes, 5);
}

#[test]
fn flags_are_requested_and_facts_delivered() {
    let place = Place::new(false);
    let query = [
        ("to", "ipn:1.5"),
        ("from", "9"),
        ("reports", "received,delivered"),
        ("report_times", "true"),
        ("must_not_fragment", "true"),
        ("hop_limit", "3"),
        ("lifetime_ms", "5000"),
    ];
    let id = send(&place, &query, 10).unwrap();
    let unnamed = send(&place, &[("to", "ipn:1.5"), ("from", "dtn:none")], 0).unwrap();
    assert!(unnamed.starts_with("dtn:none "), "{unnamed}");
    let mut client = place.client();
    let mut coming = client.take(&[("endpoint", "5"), ("confirm", "true")]).unwrap();
    let first = client.next(&mut coming).unwrap().unwrap();
    assert_eq!((&*first.id, &*first.destination, first.lifetime_ms), (&*id, "ipn:1.5", 5000));
    assert!(first.age_ms < 5000, "{first:?}");
    assert_eq!(first.hops, Some(model::Hops { limit: 3, count: 0 }));
    whole(&mut client, &mut coming, 10);
    let second = client.next(&mut coming).unwrap().unwrap();
    assert_eq!((&*second.id, &*second.source), (&*unnamed, "dtn:none"));
    // The application learns that its bundle was delivered.
    let report = await_some("a report", || {
        let (_, lines) = exchange(&place, "GET /reports?source=9", b"");
        lines.first().map(|line| serde_json::from_str::<StatusLine>(line).unwrap())
    });
    assert_eq!((report.id, &*report.from, report.what), (id, "ipn:1.0", vec!["delivered".into()]));
    let (_, lines) = exchange(&place, "GET /reports?source=8", b"");
    assert!(lines.is_empty(), "{lines:?}");
    for (query, message) in [
        (&[("to", "ipn:2.1"), ("reports", "sent")][..], "is none of received"),
        (&[("to", "ipn:2.1"), ("hop_limit", "0")], "hop_limit: it is 0"),
        (&[("to", "ipn:2.1"), ("version", "6"), ("hop_limit", "9")], "no hop limit"),
        (&[("to", "ipn:2.1"), ("from", "dtn:none"), ("reports", "deleted")], "without source"),
        (&[("to", "ipn:2.1"), ("bytes", "7")], "bytes: the payload has 10"),
    ] {
        let error = send(&place, query, 10).unwrap_err();
        assert!(error.to_string().contains(message), "{query:?}: {error}");
    }
}

#[test]
fn a_repeated_request_sends_one_bundle() {
    for on_disk in [false, true] {
        let mut place = Place::new(on_disk);
        let query = [("to", "ipn:2.1"), ("key", "order 7")];
        let id = send(&place, &query, 100_000).unwrap();
        if on_disk {
            place.stop();
            place.start(true);
        }
        assert_eq!(send(&place, &query, 100_000).unwrap(), id);
        let mut stream = UnixStream::connect(place.socket()).unwrap();
        let request = "POST /bundles?to=ipn:2.1 HTTP/1.1\r\nhost: x\r\nidempotency-key: order 7\r\n\
                       connection: close\r\ncontent-length: 1\r\n\r\nx";
        stream.write_all(request.as_bytes()).unwrap();
        let response: Vec<String> = BufReader::new(stream).lines().map(Result::unwrap).collect();
        assert!(response[0].contains("200"), "{response:?}");
        let sent: Sent = serde_json::from_str(response.last().unwrap()).unwrap();
        assert_eq!(sent.id, id);
        let other = [("to", "ipn:2.2"), ("key", "order 7")];
        assert_ne!(send(&place, &other, 10).unwrap(), id, "another destination");
        let held: Vec<Bundle> = place.client().get("/bundles", &[]).unwrap();
        assert_eq!(held.len(), 2, "{held:?}");
        // A bundle that has left is remembered, until it expires.
        place.client().delete("/bundles", &[("id", &id)]).unwrap();
        assert_eq!(send(&place, &query, 10).unwrap(), id);
        let spool = place.folder.path().join("store/.slowlight/spool/bp");
        if on_disk {
            await_some("no file is left over", || {
                (std::fs::read_dir(&spool).unwrap().count() == 0).then_some(())
            });
        }
        let short = [("to", "ipn:2.3"), ("key", "order 8"), ("lifetime_ms", "50")];
        let first = send(&place, &short, 10).unwrap();
        await_some("keys end with their bundles", || {
            (send(&place, &short, 10).unwrap() != first).then_some(())
        });
    }
}

#[test]
fn bundles_are_filtered_paged_and_purged() {
    let place = Place::new(false);
    for n in 0..30 {
        let to = format!("ipn:{}.{}", 2 + n % 2, n % 3);
        send(&place, &[("to", &to), ("from", "9")], 10).unwrap();
    }
    let mut client = place.client();
    let mut list = |query: &[(&str, &str)]| client.get::<Vec<Bundle>>("/bundles", query).unwrap();
    let queued = list(&[("state", "queued")]);
    assert_eq!(queued.len(), 15, "there is no route to node 3");
    assert!(queued.iter().all(|bundle| bundle.next_hops == ["ipn:2.0"]), "{queued:?}");
    assert_eq!(list(&[("destination", "ipn:3.0")]).len(), 15);
    assert_eq!(list(&[("destination", "ipn:2.1"), ("source", "ipn:1.9")]).len(), 5);
    assert_eq!(list(&[("source", "ipn:1.8")]).len(), 0);
    let (mut after, mut pages) = (0, 0);
    loop {
        let page = list(&[("limit", "7"), ("after", &after.to_string())]);
        let Some(last) = page.last() else { break };
        (after, pages) = (last.number, pages + 1);
    }
    assert_eq!(pages, 5);
    let (_, lines) = exchange(&place, "DELETE /bundles?destination=ipn:3.0&state=waiting", b"");
    assert_eq!(serde_json::from_str::<Purged>(&lines[0]).unwrap(), Purged { deleted: 15 });
    assert_eq!(place.client().get::<Vec<Bundle>>("/bundles", &[]).unwrap().len(), 15);
    let (status, _) = exchange(&place, "DELETE /bundles", b"");
    assert!(status.contains("422"), "{status}");
    let (status, _) = exchange(&place, "DELETE /bundles?state=lost", b"");
    assert!(status.contains("422"), "{status}");
    let (_, lines) = exchange(&place, "GET /node", b"");
    let node: model::Node = serde_json::from_str(&lines[0]).unwrap();
    assert_eq!((node.traffic[0].node.as_str(), node.traffic[0].queued), ("ipn:2.0", 15));
    let mut metrics = String::new();
    let mut stream = UnixStream::connect(place.socket()).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    stream.read_to_string(&mut metrics).unwrap();
    let line = "slowlight_node_neighbour_bundles_queued{neighbour=\"ipn:2.0\"} 15";
    assert!(metrics.contains(line), "{metrics}");
    // Only those behind a number, and no more than the limit.
    let held = place.client().get::<Vec<Bundle>>("/bundles", &[]).unwrap();
    let head = format!("DELETE /bundles?destination=*&after={}", held[9].number);
    for (limit, deleted) in [("&limit=2", 2), ("", 3), ("", 0)] {
        let (_, lines) = exchange(&place, &format!("{head}{limit}"), b"");
        assert_eq!(serde_json::from_str::<Purged>(&lines[0]).unwrap(), Purged { deleted });
    }
    let left = place.client().get::<Vec<Bundle>>("/bundles", &[]).unwrap();
    let number = |bundle: &Bundle| bundle.number;
    assert!(left.iter().map(number).eq(held[..10].iter().map(number)), "{left:?}");
}

#[test]
fn a_trouble_ends_with_its_cause() {
    let mut place = Place::new(false);
    place.stop();
    place.more = "limits.bundles = 2\n".to_owned();
    place.start(false);
    let far = [("to", "ipn:2.1")];
    let id = send(&place, &far, 10).unwrap();
    send(&place, &far, 10).unwrap();
    let error = send(&place, &far, 10).unwrap_err();
    assert!(matches!(error, ClientError::Refused { status: 507, .. }), "{error}");
    let trouble = || place.client().get::<model::Node>("/node", &[]).unwrap().trouble;
    await_some("the bound is reported", trouble);
    place.client().delete("/bundles", &[("id", &id)]).unwrap();
    assert_eq!(trouble(), None);
    send(&place, &far, 10).unwrap();
}

/// A stream of bundles: lines of JSON, each with its payload.
fn stream_of(bundles: &[(&str, usize)]) -> Vec<u8> {
    let mut stream = Vec::new();
    for (line, len) in bundles {
        stream.extend_from_slice(line.as_bytes());
        stream.push(b'\n');
        stream.extend_from_slice(&bytes(*len));
    }
    stream
}

fn replies(lines: &[String]) -> Vec<StreamSent> {
    lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_stream_of_bundles_has_a_reply_for_each() {
    for on_disk in [false, true] {
        let place = Place::new(on_disk);
        let mut bundles = Vec::new();
        let lengths = [0, 1, 4096, 4097, 300_000, 9, 10];
        let texts: Vec<String> = lengths
            .iter()
            .map(|len| format!("{{\"to\": \"ipn:1.5\", \"bytes\": {len}, \"lifetime_ms\": 60000}}"))
            .collect();
        bundles.extend(texts.iter().map(String::as_str).zip(lengths));
        bundles.insert(2, ("{\"to\": \"nowhere\", \"bytes\": 20}", 20));
        bundles.insert(4, ("{\"to\": \"ipn:1.5\", \"bytes\": 60000000}", 60_000_000));
        let (status, lines) = exchange(&place, "POST /bundles/stream", &stream_of(&bundles));
        assert!(status.contains("200"), "{status}");
        let replies = replies(&lines);
        let numbers = replies.iter().map(|reply| reply.number);
        assert!(numbers.eq(0..replies.len() as u64), "{replies:?}");
        let statuses: Vec<_> = replies.iter().map(|reply| reply.status).collect();
        let ok = None;
        assert_eq!(statuses, [ok, ok, Some(422), ok, Some(413), ok, ok, ok, ok]);
        let mut client = place.client();
        let mut coming = client.take(&[("endpoint", "5"), ("confirm", "true")]).unwrap();
        let mut arrived = Vec::new();
        for _ in lengths {
            let delivery = client.next(&mut coming).unwrap().unwrap();
            let payload = whole(&mut client, &mut coming, delivery.bytes);
            assert!(payload == bytes(payload.len()), "{delivery:?}");
            arrived.push(delivery.id);
        }
        let mut ids: Vec<_> = replies.into_iter().filter_map(|reply| reply.id).collect();
        ids.sort();
        arrived.sort();
        assert_eq!(ids, arrived);
    }
}

#[test]
fn a_malformed_stream_ends_with_the_reason() {
    let place = Place::new(false);
    for (text, message) in [
        ("{\"to\": \"ipn:1.5\", \"bytes\": 3}\nab", "ends within a payload"),
        ("{\"to\": \"ipn:1.5\"}\n", "no `bytes`"),
        ("hello\n", "a bundle's line"),
        ("{\"to\": \"ipn:1.5\", ", "the last line is cut"),
        (&"x".repeat(100_000), "more than 65536 bytes"),
    ] {
        let text = format!("{{\"to\": \"ipn:1.5\", \"bytes\": 1}}\n1{text}");
        let (_, lines) = exchange(&place, "POST /bundles/stream", text.as_bytes());
        let replies = replies(&lines);
        assert!(replies.len() == 2 && replies[0].id.is_some(), "{text}: {replies:?}");
        let error = replies[1].error.as_ref().unwrap();
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn an_ordered_stream_stops_where_there_is_no_room() {
    let line = |len: usize| format!("{{\"to\": \"ipn:2.1\", \"bytes\": {len}}}");
    for (path, last) in [("", None), ("?ordered=true", Some(503))] {
        let place = Place::new(false);
        // A MB is more than what is left of 100 MB for applications; 10 bytes are not.
        let lengths = [40_000_000, 40_000_000, 30_000_000, 10];
        let lines = lengths.map(line);
        let bundles: Vec<_> = lines.iter().map(String::as_str).zip(lengths).collect();
        let (_, lines) =
            exchange(&place, &format!("POST /bundles/stream{path}"), &stream_of(&bundles));
        let statuses: Vec<_> = replies(&lines).into_iter().map(|reply| reply.status).collect();
        assert_eq!(statuses, [None, None, Some(507), last]);
    }
}

/// The courier of a CFDP entity: creation numbers follow the order in which it got the bundles.
#[test]
fn a_courier_keeps_the_order_of_bundles() {
    for on_disk in [false, true] {
        let place = Place::new(on_disk);
        let mut courier = courier(&place, "ipn:1.9", false);
        // Payloads of both kinds: in the records, and as files.
        let len = |number: u64| if number.is_multiple_of(7) { 5000 } else { 8 };
        for number in 0..500_u64 {
            let mut payload = number.to_be_bytes().to_vec();
            payload.resize(len(number), 0);
            super::send(&courier, number, "ipn:1.5", payload, None);
        }
        await_some("all are stored", || courier.is_idle().then_some(()));
        let outcomes: Vec<_> = std::iter::from_fn(|| courier.outcome()).collect();
        let stored = (0..500).map(|number| Outcome::Stored(OutgoingId(number)));
        assert!(outcomes.into_iter().eq(stored));
        let mut client = place.client();
        let mut coming = client.take(&[("endpoint", "5"), ("confirm", "true")]).unwrap();
        let mut numbers = Vec::new();
        for _ in 0..500 {
            let delivery = client.next(&mut coming).unwrap().unwrap();
            let payload = whole(&mut client, &mut coming, delivery.bytes);
            let number = u64::from_be_bytes(payload[..8].try_into().unwrap());
            // `ipn:1.9 MILLISECONDS-NUMBER`
            let (_, creation) = delivery.id.split_once(' ').unwrap();
            let parts = creation.split(|c: char| !c.is_ascii_digit());
            let creation: Vec<u64> = parts.map(|part| part.parse().unwrap()).collect();
            numbers.push((creation, number));
        }
        numbers.sort();
        assert!(numbers.iter().map(|(_, number)| *number).eq(0..500), "{numbers:?}");
    }
}

/// Prints bundles per second over one stream; `SLOWLIGHT_STREAM` is their number.
#[test]
fn streams_are_fast() {
    let count = std::env::var("SLOWLIGHT_STREAM").ok().and_then(|text| text.parse().ok());
    let count = count.unwrap_or(2000);
    for on_disk in [false, true] {
        let place = Place::new(on_disk);
        let line = "{\"to\":\"ipn:2.1\",\"bytes\":100}";
        let stream = stream_of(&vec![(line, 100); count]);
        let start = Instant::now();
        let (_, lines) = exchange(&place, "POST /bundles/stream", &stream);
        let seconds = start.elapsed().as_secs_f64();
        assert_eq!(lines.iter().filter(|line| line.contains("\"id\"")).count(), count);
        let rate = count as f64 / seconds;
        println!("{count} bundles of 100 B, on disk: {on_disk}: {rate:.0}/s");
    }
}

#[test]
fn long_pings_are_echoed_while_their_file_lasts() {
    for on_disk in [false, true] {
        let place = Place::new(on_disk);
        let mut pongs = Vec::new();
        let query = [("to", "ipn:1.7"), ("count", "20"), ("bytes", "100000")];
        let on = |pong: Pong| {
            pongs.push(pong);
            true
        };
        place.client().lines("/ping", &query, on).unwrap();
        assert!(pongs.len() == 20 && pongs.iter().all(|pong| pong.rtt_us.is_some()), "{pongs:?}");
        await_some("nothing is left", || {
            let node: model::Node = place.client().get("/node", &[]).unwrap();
            (node.counts.bundles == 0).then_some(())
        });
    }
}

#[test]
fn an_echo_lives_no_longer_than_its_ping() {
    let place = Place::new(false);
    for n in 0..5 {
        let query = [("to", "ipn:1.7"), ("from", "9"), ("lifetime_ms", "20000")];
        send(&place, &query, 10 + n).unwrap();
    }
    let held: Vec<Bundle> = place.client().get("/bundles", &[("destination", "ipn:1.9")]).unwrap();
    assert!(held.len() == 5 && held.iter().all(|echo| echo.left <= 20.0), "{held:?}");
}

/// A node with a contact plan.
fn planned() -> Place {
    let mut place = Place::new(false);
    place.stop();
    let plan = place.folder.path().join("plan.ionrc");
    std::fs::write(&plan, "a contact +0 +100 1 2 1000\n").unwrap();
    place.more = format!("contact_plan = {plan:?}\n");
    place.start(false);
    place
}

/// Sends a request with a body; returns the response.
fn request(place: &Place, line: &str, body: &[u8]) -> String {
    let mut stream = UnixStream::connect(place.socket()).unwrap();
    let len = body.len();
    let head =
        format!("{line} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {len}\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    // The node may refuse it before its end.
    let _ = stream.write_all(body);
    let mut response = Vec::new();
    let _ = stream.read_to_end(&mut response);
    String::from_utf8(response).unwrap()
}

#[test]
fn long_changes_of_a_plan_do_not_hold_up_other_requests() {
    let place = planned();
    // Each line is read and changes nothing.
    let lines = b"m horizon +0\n".repeat(1_000_000);
    let is_over = AtomicBool::new(false);
    let served = std::thread::scope(|scope| {
        let changing = scope.spawn(|| {
            let response = request(&place, "POST /plan", &lines);
            is_over.store(true, Ordering::Relaxed);
            response
        });
        let mut client = place.client();
        let mut served = Vec::new();
        while !is_over.load(Ordering::Relaxed) {
            let started = Instant::now();
            client.get::<model::Node>("/node", &[]).unwrap();
            served.push(started.elapsed());
        }
        let response = changing.join().unwrap();
        assert!(response.contains("\"more\":999000"), "{}", &response[..200]);
        served
    });
    let (longest, all) = (served.iter().max().unwrap(), served.iter().sum::<Duration>());
    assert!(*longest < all / 2, "{longest:?} of {all:?}, {} requests", served.len());
}

#[test]
fn requests_that_change_settings_have_a_bounded_length() {
    let place = planned();
    for (line, len) in [("POST /plan", 17), ("PUT /plan", 65), ("PUT /routes", 65)] {
        let response = request(&place, line, &vec![b'#'; len << 20]);
        assert!(response.starts_with("HTTP/1.1 413"), "{line}: {response}");
        assert!(response.contains("{\"error\":"), "{line}: {response}");
    }
    assert_eq!(place.client().get::<Vec<Bundle>>("/bundles", &[]).unwrap(), []);
}
