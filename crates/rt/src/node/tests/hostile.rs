//! Hostile peers: replayed sessions, and sessions that never end.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread::{self, JoinHandle};

use super::*;

/// Forwards a connection to `to`; returns the client's bytes when it has ended.
fn recorded(to: SocketAddr) -> (SocketAddr, JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let work = move || {
        let (mut client, _) = listener.accept().unwrap();
        let mut server = TcpStream::connect(to).unwrap();
        let (mut answers, mut back) = (server.try_clone().unwrap(), client.try_clone().unwrap());
        thread::spawn(move || io::copy(&mut answers, &mut back));
        let (mut recording, mut piece) = (Vec::new(), vec![0; 65_536]);
        loop {
            let len = client.read(&mut piece).unwrap_or(0);
            if len == 0 || server.write_all(&piece[..len]).is_err() {
                return recording;
            }
            recording.extend_from_slice(&piece[..len]);
        }
    };
    (address, thread::spawn(work))
}

/// Records the session of a node that sends three bundles to another.
fn session(second: &Place) -> Vec<u8> {
    let (address, recording) = recorded(second.address());
    let first = place(1, Some(address), None);
    let mut expected: Vec<_> = (0..3).map(|n| first.send(2, bytes(50_000, n))).collect();
    for _ in 0..3 {
        let (id, _) = second.delivered.recv_timeout(Duration::from_secs(10)).unwrap();
        expected.retain(|other| *other != id);
    }
    assert!(expected.is_empty());
    first.node.stop(Duration::from_secs(5));
    recording.join().unwrap()
}

fn duplicates(place: &Place) -> u64 {
    let (answer, answered) = bounded(1);
    place.node.handle().ask(move |_, agent| answer.send(agent.statistics().duplicates).unwrap());
    answered.recv().unwrap()
}

#[test]
fn a_replayed_session_delivers_nothing_twice() {
    let folder = tempfile::tempdir().unwrap();
    for store in [None, Some(folder.path())] {
        let second = place(2, None, store);
        let recording = session(&second);
        assert!(recording.len() > 150_000, "all of it was received");
        for _ in 0..3 {
            let mut stream = TcpStream::connect(second.address()).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            // The session may be refused before all is written.
            let _ = stream.write_all(&recording);
            let mut answers = Vec::new();
            let _ = stream.read_to_end(&mut answers);
        }
        let limit = Instant::now() + Duration::from_secs(10);
        while duplicates(&second) < 9 {
            assert!(Instant::now() < limit, "{} came again", duplicates(&second));
            thread::sleep(Duration::from_millis(5));
        }
        assert!(second.delivered.is_empty(), "nothing is handed over twice");
        second.node.stop(Duration::from_secs(5));
    }
}

#[test]
fn slow_peers_do_not_delay_others() {
    let second = place(2, None, None);
    let recording = session(&second);
    // Each stops in the middle of a bundle, the rest of which arrives byte by byte.
    let mut slow = Vec::new();
    for number in 0..40 {
        let mut stream = TcpStream::connect(second.address()).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.write_all(&recording[..1000 + 500 * number]).unwrap();
        slow.push((stream, 1000 + 500 * number));
    }
    let first = place(1, Some(second.address()), None);
    // Without a clock its first bundles get the IDs of those in the session, and are duplicates.
    let known = [0, 1, 2].map(|n| first.send(2, bytes(50_000, n)));
    for round in 0..10 {
        for (stream, at) in &mut slow {
            // A peer that the node has left notices when it writes.
            let _ = stream.write_all(&recording[*at..=*at]);
            *at += 1;
        }
        let id = first.send(2, bytes(200_000, round));
        let got = second.delivered.recv_timeout(Duration::from_secs(10)).unwrap();
        assert!(got.0 == id && !known.contains(&id));
    }
    drop(slow);
    let started = Instant::now();
    first.node.stop(Duration::from_secs(5));
    second.node.stop(Duration::from_secs(5));
    assert!(started.elapsed() < Duration::from_secs(8), "{:?}", started.elapsed());
}
