//! Throughput between two hosts.

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
/// Datagrams per batch: the kernel accepts 64.
const BATCH: usize = 60;
/// Maximum bytes in flight: 20 Gbit/s times 20 ms, and few enough that queues do not hide an
/// overload.
const IN_FLIGHT: u64 = 48 << 20;
/// Length of the pattern sent repeatedly over a connection; not a power of 2, so that missing or
/// duplicated pieces are detected.
const PATTERN: usize = (1 << 20) + 61;
/// Bytes per read or write of a program.
const PIECE: usize = 256 << 10;
/// Silence after the last send at which the receiver gives up.
const QUIET: Duration = Duration::from_millis(300);

/// Datagram load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Bytes per datagram, at least 8.
    pub datagram: usize,
    /// Whether batches are passed to the kernel, or one datagram at a time.
    pub batches: bool,
    /// Duration.
    pub time: Duration,
}

/// Result of sending datagrams as fast as they are carried.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Flood {
    /// Bytes per datagram.
    pub datagram: usize,
    /// Datagrams sent.
    pub sent: u64,
    /// Datagrams received.
    pub received: u64,
    /// Datagrams received after one that was sent later.
    pub reordered: u64,
    /// Datagrams received after the first read that found any.
    pub behind_first: u64,
    /// Time from that read to the last.
    pub elapsed: Duration,
}

impl Flood {
    /// Returns the datagrams received per second.
    #[must_use]
    pub fn per_second(&self) -> f64 {
        per_second(self.behind_first, self.elapsed)
    }
}

/// Result of sending over a connection of the kernel's TCP.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stream {
    /// Bytes received.
    pub bytes: u64,
    /// Whether all bytes arrived unchanged.
    pub intact: bool,
    /// Time from the first byte to the last.
    pub elapsed: Duration,
    /// Bytes received in the second half of the time.
    pub steady_bytes: u64,
    /// Length of that half.
    pub steady_time: Duration,
}

impl Stream {
    /// Returns the bits per second in the second half of the time, when the connection has found
    /// its rate.
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
///
/// The system refused.
pub fn flood(near: &Host, far: &Host, load: &Load) -> io::Result<Flood> {
    let bind = |host: &Host, port| {
        let address = (host.plan().address, port).into();
        host.within(|| Socket::bind(address, Buffers::default()))?
    };
    let (sender, receiver) = (bind(near, 0)?, bind(far, PORT)?);
    // Numbers of datagrams sent and received: the receiver's progress.
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
    let started = Instant::now();
    let mut sent = 0;
    while started.elapsed() < load.time {
        // An overrun receiver stays behind permanently, so the wait for lost datagrams is short.
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
                Sent::Refused(refusal) => return Err(refusal.error.into()),
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

/// Sends over a connection for this time, and compares every byte received. `congestion` is the
/// kernel's name of a congestion control; `None` is the system's default.
///
/// # Errors
///
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
    // Repeats the start, so that a piece may begin anywhere in the pattern.
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
    let started = Instant::now();
    let mut sent = 0;
    while started.elapsed() < time {
        let at = (sent % PATTERN as u64) as usize;
        sent += socket.write(&pattern[at..at + PIECE])? as u64;
    }
    socket.shutdown(std::net::Shutdown::Write)?;
    Ok(sent)
}

fn compare(mut socket: TcpStream, pattern: &[u8], time: Duration) -> io::Result<Stream> {
    let mut stream = Stream { intact: true, ..Stream::default() };
    let mut piece = vec![0; PIECE];
    let mut started: Option<Instant> = None;
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
        stream.elapsed = now - *started.get_or_insert(now);
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

/// Bytes that the kernel has received and the time, whether or not the program has read them.
fn count(socket: &TcpStream) -> io::Result<(Instant, u64)> {
    let mut best: Option<(Duration, Instant, u64)> = None;
    // Another program may run between the two calls.
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
