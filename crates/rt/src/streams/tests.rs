use std::collections::{BTreeMap, VecDeque};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use engine::{
    Completion, Deadline, Effect, EffectError, Engine, Input, PathEffect, PathEvent, PathId,
    PathInfo, StreamEffect, Ticket, Time, Transmit, TxBuf,
};

use super::*;
use crate::{Control, Waker};

/// Records its input and runs scripted actions. With `echo` it returns received bytes, ends with
/// the peer, and pauses the peer while it has something to send.
#[derive(Default)]
struct Toy {
    echo: bool,
    up: BTreeMap<PathId, PathInfo>,
    got: BTreeMap<PathId, Vec<u8>>,
    ended: Vec<PathId>,
    down: Vec<PathId>,
    done: Vec<(Ticket, Result<Completion, EffectError>)>,
    to_send: BTreeMap<PathId, VecDeque<u8>>,
    blocked: BTreeMap<PathId, bool>,
    held_back: BTreeMap<PathId, bool>,
    effects: VecDeque<Effect>,
    to_end: Vec<PathId>,
    blocks: usize,
    most: usize,
}

impl Engine for Toy {
    type Indication = ();

    fn handle_input(&mut self, _now: Time, input: Input<'_>) {
        match input {
            Input::Done(ticket, answer) => self.done.push((ticket, answer)),
            Input::Receive(receive) => {
                let path = receive.path;
                assert!(self.up.contains_key(&path) && !self.ended.contains(&path));
                assert!(!self.held_back.get(&path).copied().unwrap_or(false), "it is paused");
                if self.echo {
                    self.to_send.entry(path).or_default().extend(receive.bytes);
                    self.held_back.insert(path, true);
                    self.effects.push_back(PathEffect::PauseRead { path }.into());
                } else {
                    self.got.entry(path).or_default().extend(receive.bytes);
                }
            }
            Input::Path(path, event) => match event {
                PathEvent::Up(info) => _ = self.up.insert(path, info),
                PathEvent::Down => self.down.push(path),
                PathEvent::Blocked => {
                    self.blocks += 1;
                    self.blocked.insert(path, true);
                }
                PathEvent::Writable => _ = self.blocked.insert(path, false),
                PathEvent::ReadClosed => {
                    self.ended.push(path);
                    if self.echo {
                        self.to_end.push(path);
                        self.end_if_sent(path);
                    }
                }
                PathEvent::Missing { .. }
                | PathEvent::Unsent
                | PathEvent::Secured(_)
                | PathEvent::ReturnDown
                | PathEvent::ReturnUp => panic!("nobody asked for it"),
            },
        }
    }

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_transmit(&mut self, now: Time, tx: &mut TxBuf) -> Option<Transmit> {
        let blocked = &self.blocked;
        let open = |path: &PathId| !blocked.get(path).copied().unwrap_or(false);
        let mut all = self.to_send.iter_mut();
        let (path, bytes) = all.find(|(path, bytes)| open(path) && !bytes.is_empty())?;
        let (path, len) = (*path, bytes.len().min(tx.longest()));
        self.most = self.most.max(bytes.len());
        for (place, byte) in tx.push(len)?.iter_mut().zip(bytes.drain(..len)) {
            *place = byte;
        }
        if bytes.is_empty() && self.held_back.insert(path, false) == Some(true) {
            self.effects.push_back(PathEffect::ResumeRead { path }.into());
        }
        self.end_if_sent(path);
        tx.transmit(path, now)
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    fn poll_indication(&mut self) -> Option<()> {
        None
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        None
    }
}

impl Toy {
    fn end_if_sent(&mut self, path: PathId) {
        let empty = self.to_send.get(&path).is_none_or(VecDeque::is_empty);
        if empty && self.to_end.contains(&path) {
            self.to_end.retain(|other| *other != path);
            self.effects.push_back(StreamEffect::ShutdownWrite { path }.into());
        }
    }

    fn send(&mut self, path: PathId, bytes: &[u8]) {
        self.to_send.entry(path).or_default().extend(bytes);
    }

    /// Ends a stream after the data sent so far.
    fn end(&mut self, path: PathId) {
        self.to_end.push(path);
        self.end_if_sent(path);
    }
}

fn local() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

fn listening() -> Listening {
    Listening { address: local(), options: StreamOptions::default(), onward: None }
}

fn config() -> StreamConfig {
    StreamConfig { listen: vec![listening()], streams_max: 4096, ..StreamConfig::default() }
}

fn driver(config: StreamConfig, toy: Toy) -> (StreamDriver<Toy>, SocketAddr) {
    let driver = StreamDriver::new(config, toy, Waker::new().unwrap()).unwrap();
    let address = driver.listening().unwrap().first().copied().unwrap_or_else(local);
    (driver, address)
}

/// Runs until a condition holds, for 20 s at most.
fn run_until(driver: &mut StreamDriver<Toy>, what: &str, mut holds: impl FnMut(&mut Toy) -> bool) {
    let started = Instant::now();
    let turn = |_now, toy: &mut Toy, event| match event {
        StreamEvent::Indication(()) => Control::Continue,
        StreamEvent::Turn => {
            assert!(started.elapsed() < Duration::from_secs(20), "{what}");
            if holds(toy) { Control::Stop } else { Control::Continue }
        }
    };
    driver.run(turn).unwrap();
}

fn run_for(driver: &mut StreamDriver<Toy>, time: Duration) {
    let until = Instant::now() + time;
    run_until(driver, "a while", |_| Instant::now() >= until);
}

/// Runs until a thread is done; returns its result.
fn run_beside<T>(driver: &mut StreamDriver<Toy>, what: &str, thread: JoinHandle<T>) -> T {
    run_until(driver, what, |_| thread.is_finished());
    thread.join().unwrap()
}

fn first(toy: &Toy) -> PathId {
    *toy.up.first_key_value().unwrap().0
}

/// A stream between a peer and the engine.
fn pair(config: StreamConfig) -> (StreamDriver<Toy>, TcpStream, PathId) {
    let (mut driver, address) = driver(config, Toy::default());
    let peer = TcpStream::connect(address).unwrap();
    peer.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    run_until(&mut driver, "it comes up", |toy| !toy.up.is_empty());
    let path = first(driver.engine_mut());
    (driver, peer, path)
}

fn content(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 7 + n / 251 + n / 65_536) as u8).collect()
}

#[test]
fn both_directions_arrive_whole_and_a_slow_reader_holds_the_sender_back() {
    let (mut driver, address) = driver(config(), Toy { echo: true, ..Toy::default() });
    let bytes = content(20_000_000);
    let sent = bytes.clone();
    let peer = std::thread::spawn(move || {
        let mut peer = TcpStream::connect(address).unwrap();
        let mut writer = peer.try_clone().unwrap();
        let writing = std::thread::spawn(move || {
            writer.write_all(&sent).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        });
        // Wait until all buffers between are full, also on a busy machine.
        std::thread::sleep(Duration::from_secs(3));
        let stuck = !writing.is_finished();
        let mut back = Vec::new();
        peer.read_to_end(&mut back).unwrap();
        writing.join().unwrap();
        (stuck, back)
    });
    let (stuck, back) = run_beside(&mut driver, "the echo is complete", peer);
    assert!(stuck, "20 MB found room though nobody read");
    assert!(back == bytes, "{} bytes of {}", back.len(), bytes.len());
    run_until(&mut driver, "it goes down", |toy| toy.down.len() == 1);
    let toy = driver.engine_mut();
    assert_eq!(toy.ended.len(), 1);
    assert!(toy.blocks > 0);
    assert!(toy.most <= engine::Receive::PIECE_MAX, "{}", toy.most);
    let statistics = driver.statistics();
    assert_eq!((statistics.bytes_received, statistics.bytes_sent), (20_000_000, 20_000_000));
    assert_eq!((statistics.streams, statistics.kept), (0, 0));
}

#[test]
fn hundreds_of_streams_at_once() {
    const STREAMS: usize = 800;
    let allowed = allow_descriptors(4 * STREAMS as u64).unwrap();
    let streams = STREAMS.min(allowed as usize / 4);
    let (mut driver, address) = driver(config(), Toy { echo: true, ..Toy::default() });
    let peers = std::thread::spawn(move || {
        let peers: Vec<_> = (0..streams).map(|_| TcpStream::connect(address).unwrap()).collect();
        for (number, mut peer) in peers.iter().enumerate() {
            peer.write_all(&content(2000 + number)).unwrap();
            peer.shutdown(Shutdown::Write).unwrap();
        }
        for (number, mut peer) in peers.iter().enumerate() {
            let mut back = Vec::new();
            peer.read_to_end(&mut back).unwrap();
            assert!(back == content(2000 + number), "stream {number}: {} bytes", back.len());
        }
    });
    run_beside(&mut driver, "all echoes are complete", peers);
    run_until(&mut driver, "all go down", |toy| toy.down.len() == streams);
    let statistics = driver.statistics();
    assert_eq!((statistics.accepted, statistics.streams), (streams as u64, 0));
    assert!(statistics.streams_peak > streams / 2, "{statistics:?}");
}

#[test]
fn short_replies_are_not_delayed() {
    let (mut driver, address) = driver(config(), Toy { echo: true, ..Toy::default() });
    let peer = std::thread::spawn(move || {
        let mut peer = TcpStream::connect(address).unwrap();
        peer.set_nodelay(true).unwrap();
        let started = Instant::now();
        let mut byte = [0];
        for _ in 0..100 {
            // Two short writes and a reply: Nagle's algorithm would take 40 ms.
            peer.write_all(&[1]).unwrap();
            peer.write_all(&[2]).unwrap();
            peer.read_exact(&mut byte).unwrap();
            peer.read_exact(&mut byte).unwrap();
        }
        started.elapsed()
    });
    let took = run_beside(&mut driver, "a hundred answers", peer);
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[test]
fn streams_are_connected_from_the_engines_address() {
    let far = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = far.local_addr().unwrap();
    let (mut driver, _) = driver(StreamConfig::default(), Toy::default());
    let from: SocketAddr = "127.0.0.9:0".parse().unwrap();
    let ticket = Ticket(7);
    driver.engine_mut().effects.push_back(
        StreamEffect::Connect { ticket, from: Some(from), to, best_effort: false }.into(),
    );
    run_until(&mut driver, "it comes up", |toy| !toy.up.is_empty());
    let (mut peer, near) = far.accept().unwrap();
    let toy = driver.engine_mut();
    let path = first(toy);
    assert_eq!(toy.up[&path].ticket, Some(ticket));
    assert_eq!(toy.up[&path].ends, Some((near, to)));
    assert_eq!(near.ip(), from.ip());
    toy.send(path, b"hello");
    toy.end(path);
    let mut got = Vec::new();
    run_for(&mut driver, Duration::from_millis(50));
    peer.read_to_end(&mut got).unwrap();
    assert_eq!(got, b"hello");
    drop(peer);
    run_until(&mut driver, "it goes down", |toy| toy.down == [path]);
    assert_eq!(driver.engine_mut().ended, [path], "its end is reported first");
}

#[test]
fn failed_connects_are_reported_unless_cancelled() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (mut driver, _) = driver(StreamConfig::default(), Toy::default());
    let elsewhere: SocketAddr = "192.0.2.1:9".parse().unwrap();
    let tickets = [Ticket(1), Ticket(2)];
    let toy = driver.engine_mut();
    toy.effects.push_back(
        StreamEffect::Connect { ticket: tickets[0], from: None, to: closed, best_effort: false }
            .into(),
    );
    // The address is not this host's, and the option that would allow it is not set.
    let from = Some(elsewhere);
    toy.effects.push_back(
        StreamEffect::Connect { ticket: tickets[1], from, to: closed, best_effort: false }.into(),
    );
    run_until(&mut driver, "both are answered", |toy| toy.done.len() == 2);
    let done = &driver.engine_mut().done;
    assert!(done.iter().all(|(_, answer)| answer.is_err()), "{done:?}");
    assert!(tickets.iter().all(|ticket| done.iter().any(|(done, _)| done == ticket)));
    let statistics = driver.statistics();
    assert_eq!((statistics.failed, statistics.streams), (2, 0));

    let far = TcpListener::bind("127.0.0.1:0").unwrap();
    let (ticket, to) = (Ticket(3), far.local_addr().unwrap());
    let toy = driver.engine_mut();
    toy.effects
        .push_back(StreamEffect::Connect { ticket, from: None, to, best_effort: false }.into());
    toy.effects.push_back(StreamEffect::StopConnecting { ticket }.into());
    run_for(&mut driver, Duration::from_millis(50));
    assert_eq!(driver.engine_mut().done.len(), 2, "it is not reported");
    assert!(driver.engine_mut().up.is_empty());
    assert_eq!(driver.statistics().streams, 0);
}

#[test]
fn paths_that_are_configured_are_opened() {
    let far = TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (good, bad, unknown) = (PathId(3), PathId(4), PathId(9));
    let peers = BTreeMap::from([(good, far.local_addr().unwrap().into()), (bad, closed.into())]);
    let (mut driver, _) = driver(StreamConfig { peers, ..StreamConfig::default() }, Toy::default());
    for path in [good, bad, unknown, good] {
        driver.engine_mut().effects.push_back(PathEffect::Open { path }.into());
    }
    run_until(&mut driver, "one is up, others are not", |toy| {
        toy.up.len() == 1 && toy.down.len() == 2
    });
    assert!(driver.engine_mut().up.contains_key(&good));
    assert_eq!(driver.statistics().connected, 1);
}

#[test]
fn half_closed_streams_continue() {
    let (mut driver, mut peer, path) = pair(config());
    peer.write_all(b"question").unwrap();
    peer.shutdown(Shutdown::Write).unwrap();
    run_until(&mut driver, "the end is reported", |toy| toy.ended == [path]);
    let bytes = content(300_000);
    let toy = driver.engine_mut();
    assert_eq!(toy.got[&path], b"question");
    toy.send(path, &bytes);
    toy.end(path);
    let reading = std::thread::spawn(move || {
        let mut back = Vec::new();
        peer.read_to_end(&mut back).unwrap();
        back
    });
    assert!(run_beside(&mut driver, "the answer arrives", reading) == bytes);
    run_until(&mut driver, "it goes down", |toy| toy.down == [path]);
}

#[test]
fn a_reset_is_reported_at_once_even_when_paused() {
    for paused in [false, true] {
        let (mut driver, peer, path) = pair(config());
        if paused {
            driver.engine_mut().effects.push_back(PathEffect::PauseRead { path }.into());
            run_for(&mut driver, Duration::from_millis(20));
        }
        options::reset_at_close(&peer);
        drop(peer);
        run_until(&mut driver, "it goes down", |toy| toy.down == [path]);
        assert!(driver.engine_mut().ended.is_empty(), "that was no end");
        assert_eq!(driver.statistics().streams, 0);
    }
}

#[test]
fn requested_resets_are_sent() {
    let (mut driver, mut peer, path) = pair(config());
    driver.engine_mut().effects.push_back(StreamEffect::Reset { path }.into());
    run_for(&mut driver, Duration::from_millis(20));
    let error = peer.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert!(driver.engine_mut().down.is_empty(), "the requester is not notified");
    assert_eq!(driver.statistics().streams, 0);
}

#[test]
fn killed_processes_reset_open_streams_and_deliver_ended_ones() {
    for (resets, ends) in [(false, false), (true, false), (true, true)] {
        let options = StreamOptions { reset_on_death: resets, ..StreamOptions::default() };
        let config = StreamConfig {
            listen: vec![Listening { options, ..listening() }],
            ..StreamConfig::default()
        };
        let (mut driver, mut peer, path) = pair(config);
        let bytes = content(100_000);
        driver.engine_mut().send(path, &bytes);
        if ends {
            driver.engine_mut().end(path);
        }
        let mut got = vec![0; 1000];
        run_for(&mut driver, Duration::from_millis(50));
        peer.read_exact(&mut got).unwrap();
        // As the kernel does for a process that has died.
        drop(driver);
        let end = peer.read_to_end(&mut got).map_err(|error| error.kind());
        if resets && !ends {
            assert_eq!(end, Err(ErrorKind::ConnectionReset));
        } else {
            assert_eq!(end, Ok(bytes.len() - 1000));
            assert!(got == bytes);
        }
    }
}

#[test]
fn peers_that_reset_after_their_end_are_dropped() {
    let (mut driver, peer, path) = pair(config());
    // The peer's end arrives first; data sent after it triggers a reset.
    drop(peer);
    run_until(&mut driver, "the end is reported", |toy| toy.ended == [path]);
    let started = Instant::now();
    while driver.engine_mut().down.is_empty() && started.elapsed() < Duration::from_secs(10) {
        driver.engine_mut().send(path, &content(10_000));
        run_for(&mut driver, Duration::from_millis(5));
    }
    assert_eq!(driver.engine_mut().down, [path]);
    assert_eq!(driver.statistics().streams, 0);
}

#[test]
fn sent_data_arrives_after_leaving_a_busy_stream() {
    let (mut driver, mut peer, path) = pair(config());
    let bytes = content(6_000_000);
    let toy = driver.engine_mut();
    toy.send(path, &bytes);
    run_until(&mut driver, "all is pulled", |toy| {
        let left = toy.to_send[&path].len();
        left == 0 || toy.blocked.get(&path) == Some(&true)
    });
    // The rest of a transmit waits in the driver, and bytes of the peer are in flight.
    peer.write_all(&[0; 1000]).unwrap();
    let pulled = bytes.len() - driver.engine_mut().to_send.remove(&path).unwrap().len();
    driver.engine_mut().effects.push_back(PathEffect::Close { path }.into());
    let reading = std::thread::spawn(move || {
        let mut back = Vec::new();
        peer.read_to_end(&mut back).unwrap();
        back
    });
    let back = run_beside(&mut driver, "it arrives", reading);
    assert!(back == bytes[..pulled], "{} bytes of {pulled}", back.len());
    let toy = driver.engine_mut();
    assert!(!toy.got.contains_key(&path) && toy.down.is_empty(), "who left hears nothing");
    let started = Instant::now();
    while driver.statistics().streams > 0 && started.elapsed() < Duration::from_secs(5) {
        run_for(&mut driver, Duration::from_millis(10));
    }
    assert_eq!(driver.statistics().streams, 0);
}

#[test]
fn peers_that_never_end_are_given_up() {
    let linger = Duration::from_millis(700);
    let (mut driver, _peer, path) = pair(StreamConfig { linger, ..config() });
    driver.engine_mut().effects.push_back(PathEffect::Close { path }.into());
    run_for(&mut driver, Duration::from_millis(20));
    assert_eq!(driver.statistics().streams, 1);
    run_for(&mut driver, Duration::from_millis(900));
    assert_eq!(driver.statistics().streams, 0);
}

#[test]
fn streams_beyond_the_limit_are_reset() {
    let (mut driver, address) = driver(StreamConfig { streams_max: 2, ..config() }, Toy::default());
    let mut peers: Vec<_> = (0..3).map(|_| TcpStream::connect(address).unwrap()).collect();
    run_for(&mut driver, Duration::from_millis(50));
    let statistics = driver.statistics();
    assert_eq!((statistics.accepted, statistics.turned_away, statistics.streams), (2, 1, 2));
    let error = peers[2].read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    // No stream is made.
    let (ticket, to) = (Ticket(1), address);
    driver
        .engine_mut()
        .effects
        .push_back(StreamEffect::Connect { ticket, from: None, to, best_effort: false }.into());
    run_until(&mut driver, "it is answered", |toy| toy.done.len() == 1);
    assert_eq!(driver.engine_mut().done[0], (ticket, Err(EffectError::NotAllowed)));
    drop(peers.remove(0));
    run_until(&mut driver, "an end", |toy| toy.ended.len() == 1);
    let path = driver.engine_mut().ended[0];
    driver.engine_mut().effects.push_back(PathEffect::Close { path }.into());
    run_for(&mut driver, Duration::from_millis(20));
    let _peer = TcpStream::connect(address).unwrap();
    run_until(&mut driver, "there is room again", |toy| toy.up.len() == 3);
}

#[test]
fn listeners_accept_one_stream_on_request() {
    let (mut driver, _peer, near) = pair(config());
    let ticket = Ticket(5);
    driver
        .engine_mut()
        .effects
        .push_back(StreamEffect::Listen { ticket, near, best_effort: false }.into());
    run_until(&mut driver, "it is answered", |toy| toy.done.len() == 1);
    let Ok(Completion::Listening(address)) = driver.engine_mut().done[0].1.clone() else {
        panic!("{:?}", driver.engine_mut().done);
    };
    let _other = TcpStream::connect(address).unwrap();
    run_until(&mut driver, "it comes up", |toy| toy.up.len() == 2);
    let requests =
        driver.engine_mut().up.values().filter(|info| info.ticket == Some(ticket)).count();
    assert_eq!(requests, 1);
    assert!(TcpStream::connect(address).is_err(), "only one was awaited");
    let again = Ticket(6);
    driver
        .engine_mut()
        .effects
        .push_back(StreamEffect::Listen { ticket: again, near, best_effort: false }.into());
    run_until(&mut driver, "it is answered", |toy| toy.done.len() == 2);
    let Ok(Completion::Listening(address)) = driver.engine_mut().done[1].1.clone() else {
        panic!("{:?}", driver.engine_mut().done);
    };
    driver.engine_mut().effects.push_back(StreamEffect::StopListening { ticket: again }.into());
    run_for(&mut driver, Duration::from_millis(20));
    assert!(TcpStream::connect(address).is_err(), "nobody waits any more");
}

/// Peers whose streams were left and who never end must not shut out others.
#[test]
fn streams_that_were_left_make_room_if_so_configured() {
    let config = StreamConfig { streams_max: 2, forgets_left: true, ..config() };
    let (mut driver, address) = driver(config, Toy::default());
    let _idle: Vec<_> = (0..2).map(|_| TcpStream::connect(address).unwrap()).collect();
    run_until(&mut driver, "both come up", |toy| toy.up.len() == 2);
    let paths: Vec<PathId> = driver.engine_mut().up.keys().copied().collect();
    for path in paths {
        driver.engine_mut().effects.push_back(PathEffect::Close { path }.into());
    }
    run_for(&mut driver, Duration::from_millis(20));
    assert_eq!(driver.statistics().streams, 2);
    let _third = TcpStream::connect(address).unwrap();
    run_until(&mut driver, "the third comes up", |toy| toy.up.len() == 3);
    let elsewhere = TcpListener::bind(local()).unwrap();
    let (ticket, to) = (Ticket(1), elsewhere.local_addr().unwrap());
    let connect = StreamEffect::Connect { ticket, from: None, to, best_effort: false };
    driver.engine_mut().effects.push_back(connect.into());
    run_until(&mut driver, "so does one of the engine", |toy| toy.up.len() == 4);
}

/// A listener whose queue is full ignores further connections, as a host that is down does.
#[test]
fn an_attempt_to_connect_ends_in_time() {
    let deaf = StreamOptions::default().listen(local(), 0).unwrap();
    let address = deaf.local_addr().unwrap().as_socket().unwrap();
    let _queued = TcpStream::connect(address).unwrap();
    let options =
        StreamOptions { connecting: Some(Duration::from_millis(500)), ..StreamOptions::default() };
    let path = PathId(1);
    let config = StreamConfig { options, peers: [(path, address.into())].into(), ..config() };
    let (mut driver, _) = driver(config, Toy::default());
    driver.engine_mut().effects.push_back(PathEffect::Open { path }.into());
    let started = Instant::now();
    run_until(&mut driver, "it fails", |toy| toy.down == [path]);
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
}

#[test]
fn options_reach_the_kernel_and_wrong_ones_are_reported() {
    let options = StreamOptions {
        congestion: Some("reno".to_owned()),
        send_buffer: Some(100_000),
        receive_buffer: Some(50_000),
        unsent_max: Some(20_000),
        rate_bps: Some(8_000_000),
        mss: Some(1000),
        keep_alive: Some(Duration::from_secs(60)),
        timeout: Some(Duration::from_secs(30)),
        connecting: None,
        transparent: false,
        reset_on_death: true,
    };
    options.check(local()).unwrap();
    let socket = options.listen(local(), 1).unwrap();
    assert_eq!(
        socket.tcp_congestion().unwrap().split(|byte| *byte == 0).next(),
        Some(&b"reno"[..])
    );
    // The kernel reports twice the size; the other half is for its own use.
    assert_eq!(socket.send_buffer_size().unwrap(), 200_000);
    assert_eq!(socket.recv_buffer_size().unwrap(), 100_000);
    assert_eq!(socket.tcp_notsent_lowat().unwrap(), 20_000);
    assert_eq!(socket.tcp_user_timeout().unwrap(), Some(Duration::from_secs(30)));
    assert!(socket.keepalive().unwrap() && socket.tcp_nodelay().unwrap());
    assert_eq!(socket.tcp_keepalive_time().unwrap(), Duration::from_secs(60));
    let wrong =
        StreamOptions { congestion: Some("gravity".to_owned()), ..StreamOptions::default() };
    let text = wrong.check(local()).unwrap_err().to_string();
    assert!(text.contains("gravity") && text.contains("tcp_available"), "{text}");
}

fn host(text: &str) -> crate::Destination {
    text.parse().unwrap()
}

/// Addresses of a name: the first has no listener.
fn two_addresses(host: &crate::HostPort) -> std::io::Result<Vec<SocketAddr>> {
    let port = host.to_string().rsplit_once(':').unwrap().1.parse().unwrap();
    Ok(vec![SocketAddr::from(([127, 0, 0, 2], port)), SocketAddr::from(([127, 0, 0, 1], port))])
}

#[test]
fn addresses_of_a_name_are_tried_in_order() {
    let listener = TcpListener::bind(local()).unwrap();
    let port = listener.local_addr().unwrap().port();
    let name = || host(&format!("earth.example:{port}"));
    let peers = (1..=3).map(|n| (PathId(n), name())).collect();
    let (mut driver, _) = driver(StreamConfig { peers, ..config() }, Toy::default());
    driver.set_resolver(two_addresses);
    for n in 1..=2 {
        let path = PathId(n);
        driver.engine_mut().effects.push_back(PathEffect::Open { path }.into());
        run_until(&mut driver, "the second is open", |toy| toy.up.contains_key(&path));
        assert_eq!(driver.statistics().failed, u64::from(n), "the first was tried");
        assert_eq!(driver.engine_mut().up[&path].ends.unwrap().1, listener.local_addr().unwrap());
    }
    // Without a listener all of them fail, once each. The streams that it had not accepted end.
    drop(listener);
    driver.engine_mut().effects.push_back(PathEffect::Open { path: PathId(3) }.into());
    run_until(&mut driver, "it fails", |toy| toy.down.contains(&PathId(3)));
    assert_eq!(driver.statistics().failed, 2 + 2);
}

#[test]
fn a_slow_resolver_delays_nothing_else() {
    let listener = TcpListener::bind(local()).unwrap();
    let [slow, other, gone] = [1, 2, 3].map(PathId);
    let peers = [
        (slow, host("slow.example:1")),
        (other, listener.local_addr().unwrap().into()),
        (gone, host("gone.example:1")),
    ];
    let (mut driver, _) = driver(StreamConfig { peers: peers.into(), ..config() }, Toy::default());
    driver.set_resolver(|_| {
        std::thread::sleep(Duration::from_millis(500));
        Err(ErrorKind::NotFound.into())
    });
    let effects = &mut driver.engine_mut().effects;
    for path in [slow, gone, other] {
        effects.push_back(PathEffect::Open { path }.into());
        // Once is enough.
        effects.push_back(PathEffect::Open { path }.into());
    }
    effects.push_back(PathEffect::Close { path: gone }.into());
    run_until(&mut driver, "the other is open", |toy| toy.up.contains_key(&other));
    assert!(driver.engine_mut().down.is_empty(), "the resolver still works");
    run_until(&mut driver, "the name fails", |toy| toy.down == [slow]);
    std::thread::sleep(Duration::from_millis(600));
    // The result for a path that was closed is dropped.
    driver.engine_mut().effects.push_back(PathEffect::Open { path: PathId(9) }.into());
    run_until(&mut driver, "one without a peer", |toy| toy.down.contains(&PathId(9)));
    assert_eq!(driver.engine_mut().down, [slow, PathId(9)]);
}

#[test]
fn configured_peers_change_while_the_driver_runs() {
    let listener = TcpListener::bind(local()).unwrap();
    let (mut driver, address) = driver(config(), Toy::default());
    let (peers, updates) = crossbeam_channel::unbounded();
    driver.follow_peers(updates);
    let _peer = TcpStream::connect(address).unwrap();
    run_until(&mut driver, "an accepted stream", |toy| toy.up.len() == 1);
    assert!(driver.engine_mut().up.keys().all(|path| path.0 >= 1 << 30));
    let path = PathId(7);
    driver.engine_mut().effects.push_back(PathEffect::Open { path }.into());
    run_until(&mut driver, "it has no address", |toy| toy.down == [path]);
    peers.send([(path, listener.local_addr().unwrap().into())].into()).unwrap();
    driver.engine_mut().effects.push_back(PathEffect::Open { path }.into());
    run_until(&mut driver, "it has one", |toy| toy.up.contains_key(&path));
}
