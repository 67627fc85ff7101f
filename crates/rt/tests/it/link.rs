//! Links between nodes that are cut and restored.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Interval in which bytes are carried.
const TICK: Duration = Duration::from_millis(2);
/// Longest time without a turn whose bytes are made up for.
const BEHIND: Duration = Duration::from_millis(20);

#[derive(Debug, Default)]
struct State {
    /// Bytes per second in each direction; 0 while the link is down.
    rate: AtomicU64,
    is_over: AtomicBool,
}

/// A relay of TCP streams in a thread. While it is down it ends streams at once.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

impl Link {
    /// A link to a node that listens at `to`; it is down.
    pub(crate) fn new(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        let thread = Some(std::thread::spawn(move || run(&listener, to, &shared)));
        Self { address, state, thread }
    }

    /// Sets the rate in bytes per second; 0 cuts the link.
    pub(crate) fn set_rate(&self, rate: u64) {
        self.state.rate.store(rate, Ordering::Relaxed);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.state.is_over.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn run(listener: &TcpListener, to: SocketAddr, state: &State) {
    let mut streams: Vec<[Way; 2]> = Vec::new();
    let mut last = Instant::now();
    while !state.is_over.load(Ordering::Relaxed) {
        let rate = state.rate.load(Ordering::Relaxed);
        if rate == 0 {
            streams.clear();
        }
        while let Ok((near, _)) = listener.accept() {
            if rate > 0
                && let Ok(far) = TcpStream::connect(to)
            {
                streams.push(Way::pair(&near, &far));
            }
        }
        let passed = last.elapsed();
        last += passed;
        let bytes = rate as f64 * passed.min(BEHIND).as_secs_f64();
        streams.retain_mut(|ways| ways.iter_mut().all(|way| way.carry(bytes).is_ok()));
        std::thread::sleep(TICK);
    }
}

/// One direction of a stream.
struct Way {
    from: TcpStream,
    to: TcpStream,
    /// Bytes that `to` does not take yet.
    waiting: Vec<u8>,
    /// Bytes that may be read.
    credit: f64,
}

impl Way {
    fn pair(near: &TcpStream, far: &TcpStream) -> [Self; 2] {
        [(near, far), (far, near)].map(|(from, to)| {
            from.set_nonblocking(true).unwrap();
            let [from, to] = [from, to].map(|stream| stream.try_clone().unwrap());
            Self { from, to, waiting: Vec::new(), credit: 0.0 }
        })
    }

    /// Carries at most `bytes` more bytes. Fails when the stream has ended.
    fn carry(&mut self, bytes: f64) -> Result<(), ()> {
        self.credit = (self.credit + bytes).min(bytes.max(1.0) * 2.0);
        if self.waiting.is_empty() {
            let mut buffer = vec![0; self.credit as usize];
            match self.from.read(&mut buffer) {
                Ok(0) if buffer.is_empty() => {}
                Ok(0) => return Err(()),
                Ok(len) => {
                    self.credit -= len as f64;
                    self.waiting.extend_from_slice(&buffer[..len]);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return Err(()),
            }
        }
        match self.to.write(&self.waiting) {
            Ok(len) => {
                self.waiting.drain(..len);
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            Err(_) => Err(()),
        }
    }
}
