//! How much goes from one host to another.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use engine::{Ecn, Rng};
use rt::{Buffers, Ready, ReceiveBuffers, Sent, Socket, Waker};

use super::stamp::received;
use crate::world::Host;

const PORT: u16 = 4001;
/// Datagrams of one batch: the kernel takes 64.
const BATCH: usize = 60;
/// Bytes that may be on their way: what 20 Gbit/s take at 20 ms, and not so much that queues hide
/// what cannot be carried.
const IN_FLIGHT: u64 = 48 << 20;
/// What is sent over a connection, again and again; no power of 2, so that a piece that is missing
/// or twice there is found.
const PATTERN: usize = (1 << 20) + 61;
/// What a program reads or writes at once.
const PIECE: usize = 256 << 10;
/// How long a receiver waits for more when all was sent.
const QUIET: Duration = Duration::from_millis(300);

/// What is sent as datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Bytes of each datagram, 8 at the least.
    pub datagram: usize,
    /// Whether batches are handed to the kernel, or one datagram a time.
    pub batches: bool,
    /// For how long.
    pub time: Duration,
}

/// What became of datagrams that were sent as fast as they were carried.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Flood {
    /// Bytes of each.
    pub datagram: usize,
    /// How many were sent.
    pub sent: u64,
    /// How many came.
    pub received: u64,
    /// How many came behind one that was sent later.
    pub reordered: u64,
    /// How many came after the first look at the socket that found some.
    pub behind_first: u64,
    /// From that look to the last.
    pub elapsed: Duration,
}

impl Flood {
    /// Datagrams that came, a second.
    #[must_use]
    pub fn per_second(&self) -> f64 {
        per_second(self.behind_first, self.elapsed)
    }
}

/// What became of bytes that were sent over a connection of the kernel's TCP.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stream {
    /// How many came.
    pub bytes: u64,
    /// Whether they are those that were sent, all of them.
    pub intact: bool,
    /// From the first to the last.
    pub elapsed: Duration,
    /// How many came in the second half of the time.
    pub steady_bytes: u64,
    /// How long that was.
    pub steady_time: Duration,
}

impl Stream {
    /// Bits a second, in the second half of the time: when the connection has found its rate.
    #[must_use]
    pub fn bps(&self) -> f64 {
        per_second(self.steady_bytes, self.steady_time) * 8.0
    }
}

fn per_second(count: u64, time: Duration) -> f64 {
    let seconds = time.as_secs_f64();
    if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
}

/// Sends datagrams from one host to another as fast as they are carried.
///
/// # Errors
/// The system refused.
pub fn flood(near: &Host, far: &Host, load: &Load) -> io::Result<Flood> {
    let bind = |host: &Host, port| {
        let address = (host.plan().address, port).into();
        host.within(|| Socket::bind(address, Buffers::default()))?
    };
    let (sender, receiver) = (bind(near, 0)?, bind(far, PORT)?);
    // Numbers of the datagrams that were sent and came: how far the receiver got.
    let (came, over) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let receiving = scope.spawn(|| take(&receiver, &came, &over));
        let sent = fill(&sender, receiver.local(), load, &came);
        over.store(true, Ordering::Release);
        let mut flood = receiving.join().map_err(|_| io::Error::other("the receiver failed"))??;
        flood.sent = sent?;
        flood.datagram = load.datagram;
        Ok(flood)
    })
}

fn fill(
    socket: &Socket,
    to: std::net::SocketAddr,
    load: &Load,
    came: &AtomicU64,
) -> io::Result<u64> {
    let waker = Waker::new()?;
    let batch = if load.batches { BATCH } else { 1 };
    let mut content = vec![0x5a; load.datagram * batch];
    let most = IN_FLIGHT / load.datagram as u64;
    let begun = Instant::now();
    let mut sent = 0;
    while begun.elapsed() < load.time {
        // A receiver that was overrun lags behind for good: what is lost is not waited for long.
        let mut waited = Duration::ZERO;
        while sent - came.load(Ordering::Acquire) > most && waited < QUIET {
            let nap = Duration::from_micros(50);
            thread::sleep(nap);
            waited += nap;
        }
        for (number, datagram) in (sent..).zip(content.chunks_exact_mut(load.datagram)) {
            datagram[..8].copy_from_slice(&number.to_be_bytes());
        }
        let mut done = 0;
        while done < content.len() {
            match socket.send(to, None, Ecn::NotEct, &content[done..], load.datagram)? {
                Sent::All => break,
                Sent::Blocked(part) | Sent::Congested(part) => {
                    done += part;
                    let interest = Ready { readable: false, writable: true };
                    waker.wait(socket, interest, Some(Duration::from_millis(1)))?;
                }
            }
        }
        sent += batch as u64;
    }
    Ok(sent)
}

fn take(socket: &Socket, came: &AtomicU64, over: &AtomicBool) -> io::Result<Flood> {
    let waker = Waker::new()?;
    let mut buffers = ReceiveBuffers::new();
    let mut flood = Flood::default();
    let mut next = 0;
    let (mut first, mut last, mut before) = (None, Instant::now(), 0);
    loop {
        let count = socket.receive(&mut buffers, |arrival| {
            for datagram in arrival.bytes.chunks(arrival.stride.max(8)) {
                let Some(word) = datagram.first_chunk() else { continue };
                let number = u64::from_be_bytes(*word);
                flood.received += 1;
                flood.reordered += u64::from(number < next);
                next = next.max(number + 1);
            }
        })?;
        came.store(next, Ordering::Release);
        if count > 0 {
            last = Instant::now();
            if first.is_none() {
                first = Some(last);
                before = flood.received;
            }
        } else if over.load(Ordering::Acquire) && last.elapsed() > QUIET {
            break;
        } else {
            let interest = Ready { readable: true, writable: false };
            waker.wait(socket, interest, Some(Duration::from_millis(20)))?;
        }
    }
    flood.behind_first = flood.received - before;
    flood.elapsed = last.duration_since(first.unwrap_or(last));
    Ok(flood)
}

/// Sends over a connection for so long, and compares every byte that comes. `congestion` is the
/// kernel's name of a congestion control, in place of the system's default.
///
/// # Errors
/// The system refused.
pub fn stream(
    near: &Host,
    far: &Host,
    time: Duration,
    congestion: Option<&str>,
) -> io::Result<Stream> {
    let address = (far.plan().address, PORT);
    let listener = far.within(|| TcpListener::bind(address))??;
    let sender = near.within(|| TcpStream::connect(address))??;
    if let Some(name) = congestion {
        rustix::net::sockopt::set_tcp_congestion(&sender, name)?;
    }
    let (receiver, _) = listener.accept()?;
    let mut pattern = vec![0; PATTERN];
    Rng::new(1, "pattern").fill(&mut pattern);
    // A piece from anywhere in the pattern, without looking where it ends.
    pattern.extend_from_within(..PIECE);
    let pattern = &pattern;
    thread::scope(|scope| {
        let receiving = scope.spawn(move || compare(receiver, pattern, time));
        let sent = write(sender, pattern, time);
        let mut stream =
            receiving.join().map_err(|_| io::Error::other("the receiver failed"))??;
        stream.intact &= stream.bytes == sent?;
        Ok(stream)
    })
}

fn write(mut socket: TcpStream, pattern: &[u8], time: Duration) -> io::Result<u64> {
    let begun = Instant::now();
    let mut sent = 0;
    while begun.elapsed() < time {
        let at = (sent % PATTERN as u64) as usize;
        sent += socket.write(&pattern[at..at + PIECE])? as u64;
    }
    socket.shutdown(std::net::Shutdown::Write)?;
    Ok(sent)
}

fn compare(mut socket: TcpStream, pattern: &[u8], time: Duration) -> io::Result<Stream> {
    let mut stream = Stream { intact: true, ..Stream::default() };
    let mut piece = vec![0; PIECE];
    let mut begun: Option<Instant> = None;
    let mut steady: Option<(Instant, u64)> = None;
    loop {
        let len = socket.read(&mut piece)?;
        if len == 0 {
            break;
        }
        let now = Instant::now();
        let at = (stream.bytes % PATTERN as u64) as usize;
        stream.intact &= piece[..len] == pattern[at..at + len];
        stream.bytes += len as u64;
        stream.elapsed = now - *begun.get_or_insert(now);
        match steady {
            None if stream.elapsed > time / 2 => steady = Some(count(&socket)?),
            Some((since, before)) if stream.elapsed <= time => {
                let (at, bytes) = count(&socket)?;
                stream.steady_time = at - since;
                stream.steady_bytes = bytes - before;
            }
            None | Some(_) => {}
        }
    }
    Ok(stream)
}

/// What the kernel has received, and when that was: not when this program got to read it.
fn count(socket: &TcpStream) -> io::Result<(Instant, u64)> {
    let mut best: Option<(Duration, Instant, u64)> = None;
    // Another program may get its turn between the two.
    for _ in 0..3 {
        let before = Instant::now();
        let bytes = received(socket)?;
        let at = Instant::now();
        if best.is_none_or(|(span, ..)| at - before < span) {
            best = Some((at - before, at, bytes));
        }
    }
    best.map(|(_, at, bytes)| (at, bytes)).ok_or_else(|| io::Error::other("nothing was counted"))
}
