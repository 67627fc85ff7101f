use std::sync::Arc;
use std::thread::JoinHandle;

use bytes::Bytes;
use engine::{Completion, Deadline, Effect, EffectError, FileName, OpenMode, StoreEffect, Ticket};
use rustix::io::Errno;
use rustix::thread::UnshareFlags;

use super::*;
use crate::refusals::Meaning;
use crate::socket::REPORTS_MAX;
use crate::{Buffers, StoreConfig};

/// Sends numbered datagrams to the first path that comes up, paced at its rate, and counts
/// arrivals on all paths.
#[derive(Debug, Default)]
struct Toy {
    to_send: u64,
    len: usize,
    info: Option<(PathId, PathInfo)>,
    next_at: Time,
    sent: u64,
    /// Numbers received, and the times of the first and the last.
    received: Vec<u64>,
    first: Option<Time>,
    last: Time,
    batches: usize,
    paths: usize,
    /// Whether the peers of paths that come up have transfers.
    retains: bool,
    down: Vec<PathId>,
    effects: Vec<Effect>,
    done: Vec<(Ticket, Result<Completion, EffectError>)>,
    /// Number of effects done before the first datagram.
    done_first: Option<usize>,
    alarm: Option<Time>,
    woken: Option<Time>,
}

impl Engine for Toy {
    type Indication = u64;

    fn handle_input(&mut self, now: Time, input: Input<'_>) {
        match input {
            Input::Path(path, PathEvent::Up(info)) => {
                self.paths += 1;
                if self.retains {
                    self.effects.push(PathEffect::Retain { path }.into());
                }
                self.info.get_or_insert((path, info));
            }
            Input::Path(path, PathEvent::Down) => self.down.push(path),
            Input::Path(..) => {}
            Input::Receive(receive) => {
                self.batches += 1;
                self.first.get_or_insert(now);
                self.done_first.get_or_insert(self.done.len());
                self.last = now;
                for datagram in receive.datagrams() {
                    let number = datagram.first_chunk::<8>().expect("eight bytes at least");
                    assert!(datagram[8..].iter().all(|&byte| byte == number[7]));
                    self.received.push(u64::from_be_bytes(*number));
                }
            }
            Input::Done(ticket, answer) => self.done.push((ticket, answer)),
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.alarm.is_some_and(|at| at <= now) {
            self.alarm = None;
            self.woken = Some(now);
        }
    }

    fn poll_transmit(&mut self, now: Time, tx: &mut TxBuf) -> Option<Transmit> {
        let (path, info) = self.info.clone()?;
        // On a busy machine the thread may wake tens of milliseconds late.
        let at = self.next_at.max(now - Duration::from_millis(100));
        self.next_at = at;
        while self.sent < self.to_send {
            let Some(place) = tx.push(self.len) else { break };
            place.fill(self.sent as u8);
            place[..8].copy_from_slice(&self.sent.to_be_bytes());
            self.sent += 1;
            self.next_at += info.transmission_time(self.len);
        }
        tx.transmit(path, at)
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        (!self.effects.is_empty()).then(|| self.effects.remove(0))
    }

    fn poll_indication(&mut self) -> Option<u64> {
        None
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        self.alarm.map(|at| Deadline { at, why: "alarm" })
    }
}

struct Place {
    directory: tempfile::TempDir,
    driver: Driver<Toy>,
}

fn driver(toy: Toy, path: PathInfo) -> Place {
    driver_on("127.0.0.1:0", toy, path)
}

fn driver_on(listen: &str, toy: Toy, path: PathInfo) -> Place {
    let directory = tempfile::tempdir().unwrap();
    let waker = Waker::new().unwrap();
    let store = FileStore::open(StoreConfig::new(directory.path()), &waker).unwrap();
    let config = Config {
        buffers: Buffers { receive: 4 << 20, send: 1 << 20 },
        tick: Duration::from_millis(5),
        ..Config::new(listen.parse().unwrap(), path)
    };
    Place { directory, driver: Driver::new(config, toy, store, waker).unwrap() }
}

fn run_until(
    mut place: Place,
    limit: Duration,
    done: impl Fn(&Toy) -> bool + Send + 'static,
) -> JoinHandle<Place> {
    std::thread::spawn(move || {
        let end = place.driver.now() + limit;
        let run = place.driver.run(&AtomicBool::new(false), |now, toy, _| {
            if done(toy) || now > end { Control::Stop } else { Control::Continue }
        });
        run.unwrap();
        place
    })
}

const LIMIT: Duration = Duration::from_secs(10);

#[test]
fn numbered_datagrams_cross_in_batches() {
    // 20 Mbyte at 2 Gbit/s, so that a receiver on a busy machine keeps up.
    let info = PathInfo { rate_bps: Some(2_000_000_000), ..PathInfo::datagram(1000) };
    let receiver = driver(Toy::default(), PathInfo::datagram(1000));
    let to = receiver.driver.local();
    let mut sender = driver(Toy { to_send: 20_000, len: 1000, ..Toy::default() }, info);
    sender.driver.add_peer(to);
    let receiver = run_until(receiver, LIMIT, |toy| toy.received.contains(&19_999));
    let sender = run_until(sender, LIMIT, |toy| toy.sent == 20_000).join().unwrap();
    let receiver = receiver.join().unwrap();
    let toy = receiver.driver.engine();
    assert!(toy.received.is_sorted(), "loopback keeps the order");
    // The kernel may drop some when the machine is busy.
    assert!(toy.received.len() > 15_000, "{} of 20000", toy.received.len());
    assert_eq!(sender.driver.statistics().datagrams_sent, 20_000);
    assert_eq!(receiver.driver.statistics().datagrams_received, toy.received.len() as u64);
    if sender.driver.socket.sends_batches() {
        assert!(toy.batches * 4 < toy.received.len(), "{} batches", toy.batches);
    }
}

#[test]
fn datagrams_wait_until_the_first_effects_are_done() {
    let (ticket, name) = (Ticket(1), FileName::file("records").unwrap());
    let open = StoreEffect::Open { ticket, name, mode: OpenMode::Truncate };
    let receiver = Toy { effects: vec![open.into()], ..Toy::default() };
    let receiver = driver(receiver, PathInfo::datagram(1000));
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.send_to(&[0; 8], receiver.driver.local()).unwrap();
    let receiver = run_until(receiver, LIMIT, |toy| !toy.received.is_empty()).join().unwrap();
    assert_eq!(receiver.driver.engine().done_first, Some(1));
}

/// Relative excess of the time that half a second of datagrams takes.
fn rate_error() -> f64 {
    // 1,000 + 42 bytes at 100 Mbit/s: 83.36 us each, half a second for 6,000.
    let info = PathInfo { rate_bps: Some(100_000_000), overhead: 42, ..PathInfo::datagram(1000) };
    let receiver = driver(Toy::default(), PathInfo::datagram(1000));
    let to = receiver.driver.local();
    let mut sender = driver(Toy { to_send: 6_000, len: 1000, ..Toy::default() }, info);
    sender.driver.add_peer(to);
    sender.driver.engine_mut().next_at = sender.driver.now();
    let receiver = run_until(receiver, LIMIT, |toy| toy.received.contains(&5_999));
    run_until(sender, LIMIT, |toy| toy.sent == 6_000).join().unwrap();
    let receiver = receiver.join().unwrap();
    let toy = receiver.driver.engine();
    assert_eq!(toy.received.len(), 6_000);
    let took = toy.last.since(toy.first.unwrap()).as_secs_f64();
    took / (6_000.0 * 83.36e-6) - 1.0
}

#[test]
fn the_rate_is_kept() {
    // Other programs can delay a thread, so one good run of five is enough; a wrong rate is wrong
    // in all of them.
    let errors: Vec<f64> = (0..5).map(|_| rate_error()).take_while(|e| e.abs() >= 0.02).collect();
    assert!(errors.len() < 5, "{errors:?}");
}

#[test]
fn pulled_packets_are_sent_before_the_end() {
    // 1,000 bytes at 100 kbit/s: 80 ms each.
    let info = PathInfo { rate_bps: Some(100_000), ..PathInfo::datagram(1000) };
    let to = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    to.set_read_timeout(Some(LIMIT)).unwrap();
    let mut sender = driver(Toy { to_send: 3, len: 1000, ..Toy::default() }, info);
    sender.driver.add_peer(to.local_addr().unwrap());
    let sender = run_until(sender, LIMIT, |toy| toy.sent == 3).join().unwrap();
    assert_eq!(sender.driver.statistics().datagrams_sent, 3);
    let mut datagram = [0; 1000];
    for number in 0..3_u64 {
        to.recv(&mut datagram).unwrap();
        assert_eq!(datagram[..8], number.to_be_bytes());
    }
}

/// Lateness of a timeout of 20.3 ms.
fn lateness() -> Duration {
    let mut place = driver(Toy::default(), PathInfo::datagram(1000));
    let at = place.driver.now() + Duration::from_micros(20_300);
    place.driver.engine_mut().alarm = Some(at);
    let place = run_until(place, LIMIT, |toy| toy.woken.is_some()).join().unwrap();
    let woken = place.driver.engine().woken.unwrap();
    assert!(woken >= at);
    woken.since(at)
}

#[test]
fn timeouts_fire_when_due_and_not_earlier() {
    // A busy machine can wake a thread late, but hardly five times in a row.
    let bound = Duration::from_millis(20);
    let late: Vec<_> = (0..5).map(|_| lateness()).take_while(|late| *late >= bound).collect();
    assert!(late.len() < 5, "{late:?} late");
}

#[test]
fn store_effects_complete_before_the_end() {
    let name = FileName::file("a").unwrap();
    let open = StoreEffect::Open { ticket: Ticket(1), name, mode: OpenMode::Write };
    let mut place = driver(Toy::default(), PathInfo::datagram(1000));
    place.driver.engine_mut().effects.push(open.into());
    let mut place = run_until(place, LIMIT, |toy| !toy.done.is_empty()).join().unwrap();
    let (_, answer) = place.driver.engine_mut().done.remove(0);
    let Ok(Completion::Opened { file, .. }) = answer else { panic!("{answer:?}") };
    let bytes = Bytes::from(vec![7; 1 << 20]);
    let writes = (0..8).map(|i| StoreEffect::Write {
        ticket: Ticket(2 + i),
        file,
        offset: i << 20,
        bytes: bytes.clone(),
    });
    place.driver.engine_mut().effects.extend(writes.map(Effect::from));
    // Stopped before it starts.
    let stop = AtomicBool::new(true);
    place.driver.run(&stop, |_, _, _| Control::Continue).unwrap();
    assert_eq!(place.driver.engine().done.len(), 8);
    let path = place.directory.path().join("a");
    assert_eq!(std::fs::metadata(path).unwrap().len(), 8 << 20);
}

#[test]
fn engines_may_use_another_clock_and_number_their_paths() {
    let other = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    other.set_read_timeout(Some(LIMIT)).unwrap();
    let waker = Waker::new().unwrap();
    let name = FileName::file("a").unwrap();
    let open = StoreEffect::Open { ticket: Ticket(1), name, mode: OpenMode::Write };
    let toy = Toy { to_send: 1, len: 8, effects: vec![open.into()], ..Toy::default() };
    let config = Config::new("127.0.0.1:0".parse().unwrap(), PathInfo::datagram(1000));
    let mut driver = Driver::without_store(config, toy, waker).unwrap();
    let clock = Clock::start();
    std::thread::sleep(Duration::from_millis(5));
    driver.set_clock(clock);
    assert!(driver.now() >= Time::ZERO + Duration::from_millis(5));
    driver.add_peer_at(PathId(7), other.local_addr().unwrap());
    assert_eq!(driver.peer(PathId(7)), Some(other.local_addr().unwrap()));
    driver.run(&AtomicBool::new(false), |_, _, _| Control::Stop).unwrap();
    assert_eq!(other.recv(&mut [0; 16]).unwrap(), 8);
    let toy = driver.into_engine();
    assert_eq!(toy.info.unwrap().0, PathId(7));
    assert_eq!(toy.done, [(Ticket(1), Err(EffectError::NotAllowed))], "there is no store");
}

/// Last byte of the address of a name, or 0 for none.
static HOST: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(0);

#[test]
fn peers_with_host_names_follow_their_addresses() {
    let socket = |last, port| {
        std::net::UdpSocket::bind(SocketAddr::from(([127, 0, 0, last], port))).unwrap()
    };
    let (one, path) = (socket(1, 0), PathId(7));
    let port = one.local_addr().unwrap().port();
    let two = socket(2, port);
    for socket in [&one, &two] {
        socket.set_read_timeout(Some(LIMIT)).unwrap();
    }
    let mut place = driver(Toy { len: 8, ..Toy::default() }, PathInfo::datagram(1000));
    let driver = &mut place.driver;
    driver.names.set_resolver(|host| {
        let port = host.to_string().rsplit_once(':').unwrap().1.parse().unwrap();
        // An address of another family is of no use here.
        let six = SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], port));
        match HOST.load(Ordering::Relaxed) {
            0 => Err(io::ErrorKind::NotFound.into()),
            last => Ok(vec![six, SocketAddr::from(([127, 0, 0, last], port))]),
        }
    });
    let run = |driver: &mut Driver<Toy>, until: &dyn Fn(&Driver<Toy>) -> bool| {
        let limit = std::time::Instant::now() + LIMIT;
        while !until(driver) {
            assert!(std::time::Instant::now() < limit);
            driver.run(&AtomicBool::new(true), |_, _, _| Control::Continue).unwrap();
            driver.look_for_peers();
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    // It starts without an address.
    driver.set_peers([(path, format!("earth.example:{port}").parse().unwrap())].into());
    std::thread::sleep(Duration::from_millis(50));
    driver.look_for_peers();
    assert_eq!(driver.engine().paths, 0);
    for (last, socket) in [(1, &one), (2, &two)] {
        HOST.store(last, Ordering::Relaxed);
        driver.names.look_again(Time::ZERO);
        run(driver, &|driver| driver.peer(path) == Some(socket.local_addr().unwrap()));
        driver.engine_mut().to_send += 1;
        let sent = u64::from(last);
        run(driver, &|driver| driver.statistics().datagrams_sent == sent);
        assert_eq!(socket.recv(&mut [0; 16]).unwrap(), 8);
    }
    // An address stays in use while the name is not resolved.
    HOST.store(0, Ordering::Relaxed);
    driver.names.look_again(Time::ZERO);
    driver.look_for_peers();
    std::thread::sleep(Duration::from_millis(50));
    driver.look_for_peers();
    assert_eq!(driver.peer(path), Some(two.local_addr().unwrap()));
    assert_eq!((driver.engine().paths, driver.engine().down.len()), (1, 0));
    // Peers that are replaced.
    driver.set_peers([(PathId(8), one.local_addr().unwrap().into())].into());
    assert_eq!((driver.engine().down.clone(), driver.peer(path)), (vec![path], None));
    assert_eq!(driver.peer(PathId(8)), Some(one.local_addr().unwrap()));
}

#[test]
fn peers_are_bounded_and_replies_use_the_local_address() {
    let stop = Arc::new(AtomicBool::new(false));
    let mut place = driver_on("0.0.0.0:0", Toy::default(), PathInfo::datagram(1000));
    place.driver.peers = Peers::new(1, LIMIT);
    *place.driver.engine_mut() = Toy { to_send: 1, len: 8, retains: true, ..Toy::default() };
    let port = place.driver.local().port();
    let flag = Arc::clone(&stop);
    let thread = std::thread::spawn(move || {
        place.driver.run(&flag, |_, _, _| Control::Continue).unwrap();
        place
    });
    let [a, b] = [0, 1].map(|_| std::net::UdpSocket::bind("127.0.0.1:0").unwrap());
    a.set_read_timeout(Some(LIMIT)).unwrap();
    a.send_to(&[0; 8], ("127.0.0.9", port)).unwrap();
    let mut answer = [0; 16];
    let (len, from) = a.recv_from(&mut answer).unwrap();
    assert_eq!((len, from), (8, SocketAddr::from(([127, 0, 0, 9], port))));
    b.send_to(&[0; 8], ("127.0.0.9", port)).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    stop.store(true, Ordering::Relaxed);
    let place = thread.join().unwrap();
    assert_eq!(place.driver.engine().paths, 1);
    assert_eq!(place.driver.statistics().datagrams_refused, 1);
}

/// Errors of the system that end no process: all but EBADF, EFAULT and ENOTSOCK.
fn errors() -> impl Iterator<Item = Errno> {
    (1..134).filter(|number| ![9, 14, 88].contains(number)).map(Errno::from_raw_os_error)
}

/// Runs a driver until a condition holds.
fn run(driver: &mut Driver<Toy>, done: impl Fn(&Driver<Toy>) -> bool) {
    let end = driver.now() + LIMIT;
    while !done(driver) {
        assert!(driver.now() < end, "{:?}", driver.engine());
        driver.round(&mut |_, _, _| {}).unwrap();
        std::thread::sleep(Duration::from_micros(50));
    }
}

#[test]
fn datagrams_that_the_system_refuses_are_lost_datagrams() {
    for listen in ["127.0.0.1:0", "[::1]:0"] {
        let mut receiver = driver_on(listen, Toy::default(), PathInfo::datagram(1000)).driver;
        let mut sender = driver_on(listen, Toy::default(), PathInfo::datagram(1000)).driver;
        let path = sender.add_peer(receiver.local());
        let (mut arrived, mut lost) = (0, 0);
        for error in errors() {
            // Twice: the first one may concern an earlier datagram.
            sender.socket.faults.send.lock().unwrap().extend([error; 2]);
            match Meaning::from_errno(error) {
                Meaning::Lost => lost += 1,
                _ => arrived += 1,
            }
            let info = sender.engine().info.clone();
            *sender.engine_mut() = Toy { to_send: 1, len: 8, info, ..Toy::default() };
            run(&mut sender, |sender| {
                let statistics = sender.statistics();
                (statistics.datagrams_sent, statistics.datagrams_unsent) == (arrived, lost)
            });
            sender.socket.faults.send.lock().unwrap().clear();
            assert_eq!(sender.engine().down, [], "{error}: there is a route");
        }
        assert!(arrived > 10 && lost > 100, "{arrived}, {lost}");
        run(&mut receiver, |receiver| receiver.engine().received.len() as u64 == arrived);
        assert!(sender.peer(path).is_some());
    }
}

#[test]
fn errors_of_receive_calls_cost_no_datagram() {
    for listen in ["127.0.0.1:0", "[::1]:0"] {
        let mut receiver = driver_on(listen, Toy::default(), PathInfo::datagram(1000)).driver;
        let mut sender = driver_on(listen, Toy::default(), PathInfo::datagram(1000)).driver;
        sender.add_peer(receiver.local());
        for (number, error) in errors().enumerate() {
            receiver.socket.faults.receive.lock().unwrap().extend([error; 2]);
            let info = sender.engine().info.clone();
            *sender.engine_mut() = Toy { to_send: 1, len: 8, info, ..Toy::default() };
            run(&mut sender, |sender| sender.statistics().datagrams_sent == number as u64 + 1);
            run(&mut receiver, |receiver| receiver.engine().received.len() == number + 1);
        }
    }
}

#[test]
fn defects_end_a_driver() {
    for error in [Errno::BADF, Errno::FAULT, Errno::NOTSOCK] {
        let mut sender = driver(Toy::default(), PathInfo::datagram(1000)).driver;
        sender.socket.faults.receive.lock().unwrap().push_back(error);
        assert!(sender.round(&mut |_, _, _| {}).is_err(), "{error}");
    }
}

#[test]
fn datagrams_too_long_for_the_interface_lower_the_mtu() {
    let toy = Toy { to_send: 1, len: 1000, ..Toy::default() };
    let mut sender = driver(toy, PathInfo::datagram(1000)).driver;
    let path = sender.add_peer("127.0.0.1:9".parse().unwrap());
    let too_long = || vec![Errno::MSGSIZE; REPORTS_MAX as usize + 1];
    sender.socket.faults.send.lock().unwrap().extend(too_long());
    run(&mut sender, |sender| sender.engine().paths == 2);
    // The route of loopback takes more, so the next datagram is an eighth shorter.
    let shorter = PathKind::Datagram { mtu: 875 };
    assert_eq!(sender.peers.kind(path, sender.config.path.kind), shorter);
    assert_eq!(sender.statistics().datagrams_unsent, 1);
    // An engine that cannot send shorter ones: IP fragments them from now on.
    sender.socket.faults.send.lock().unwrap().extend(too_long());
    sender.engine_mut().to_send = 2;
    run(&mut sender, |sender| sender.socket.allows_fragments());
    assert!(!sender.socket.sends_batches());
    assert_eq!(sender.engine().paths, 2);
}

#[test]
fn paths_without_a_route_are_down_until_there_is_one() {
    // In a network namespace of this thread, which has no route at all.
    let work = || {
        #[expect(unsafe_code, reason = "flags exist that would be unsound")]
        // SAFETY: the flag concerns only the network of this thread, which has no socket yet.
        let moved = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) };
        if moved.is_err() {
            testing::skipped!("a network namespace needs root");
            return;
        }
        let toy = Toy { to_send: 1, len: 8, ..Toy::default() };
        let mut sender = driver_on("0.0.0.0:0", toy, PathInfo::datagram(1000)).driver;
        let path = sender.add_peer("127.0.0.1:9".parse().unwrap());
        run(&mut sender, |sender| sender.engine().down == [path]);
        let second = Duration::from_secs(1);
        let later = sender.now() + 2 * second;
        sender.look_for_routes(later);
        assert_eq!(sender.engine().paths, 1, "there still is none");
        let ip = std::process::Command::new("ip").args(["link", "set", "lo", "up"]).status();
        assert!(ip.unwrap().success());
        sender.look_for_routes(later + 2 * second);
        assert_eq!(sender.engine().paths, 2);
        sender.engine_mut().to_send = 2;
        run(&mut sender, |sender| sender.statistics().datagrams_sent == 1);
    };
    std::thread::spawn(work).join().unwrap();
}

#[test]
fn batches_last_a_millisecond() {
    let at = |rate_bps| {
        let info = PathInfo { rate_bps, overhead: 42, ..PathInfo::datagram(1472) };
        segments_a_batch(&info)
    };
    assert_eq!(at(None), 64);
    assert_eq!(at(Some(0)), 64);
    assert_eq!(at(Some(1_000_000)), 1);
    assert_eq!(at(Some(100_000_000)), 8);
    assert_eq!(at(Some(1_000_000_000)), 64);
    assert_eq!(at(Some(100_000_000_000)), 64);
}

#[test]
fn paths_follow_a_schedule() {
    let ms = Duration::from_millis;
    let window = |start, end| link::Window { start: Time::ZERO + start, end: Time::ZERO + end };
    // Not open at the start, then open for ever; the peer is 30 ms away.
    let outages = link::Outages::List(vec![window(ms(0), ms(50))]);
    let back = Some(link::Back { outages: outages.clone(), delay: ms(30) });
    let outages = link::PathOutages { first: vec![outages], back };
    let mut place = driver(Toy::default(), PathInfo::datagram(1000));
    place.driver.follow(Schedule::new(outages, crate::Zero::Start));
    let peer = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let path = place.driver.add_peer(peer.local_addr().unwrap());
    assert_eq!((place.driver.engine().paths, &*place.driver.engine().down), (0, &[path][..]));
    // The datagram of a stranger proves a contact before it is handled.
    let stranger = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    stranger.send_to(&[0; 8], place.driver.local()).unwrap();
    let mut contacts = Vec::new();
    let run = place.driver.run(&AtomicBool::new(false), |now, toy, event| {
        if let Event::Contact(contact) = event {
            contacts.push((contact, now));
        }
        let is_over = contacts.len() == 2 && toy.received.len() == 1 || now > Time::from_secs(10);
        if is_over { Control::Stop } else { Control::Continue }
    });
    run.unwrap();
    let toy = place.driver.engine();
    let [(Contact::Closed(next), _), (Contact::Open, opened)] = contacts[..] else {
        panic!("{contacts:?}")
    };
    let at = Time::ZERO + ms(80);
    assert!(next == Some(at) && opened >= at, "{contacts:?}");
    assert!(toy.paths >= 2, "both paths are up");
}
