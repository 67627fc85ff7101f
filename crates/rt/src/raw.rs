//! Datagram throughput of this machine with bare sockets.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use engine::Ecn;

use crate::socket::SEGMENTS_MAX;
use crate::{Buffers, Ready, ReceiveBuffers, Sent, Socket, Waker};

/// Result of a transfer between a pair of bare sockets over loopback.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RawReport {
    /// Bytes per datagram.
    pub datagram: usize,
    /// Bytes sent.
    pub bytes_sent: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// Time from the first datagram received to the last.
    pub elapsed: Duration,
}

impl RawReport {
    /// Returns the bits received per second.
    #[must_use]
    pub fn goodput_bps(&self) -> f64 {
        let seconds = self.elapsed.as_secs_f64();
        if seconds > 0.0 { self.bytes_received as f64 * 8.0 / seconds } else { 0.0 }
    }

    /// Returns the share of the bytes sent that did not arrive, 0 to 1.
    #[must_use]
    pub fn loss(&self) -> f64 {
        if self.bytes_sent == 0 {
            return 0.0;
        }
        1.0 - self.bytes_received as f64 / self.bytes_sent as f64
    }
}

/// Sends `bytes` in datagrams of `datagram` bytes over loopback as fast as possible in one thread,
/// and receives them in another, with the code of [`Driver`].
///
/// [`Driver`]: crate::Driver
///
/// # Errors
/// A socket failed.
pub fn measure(bytes: u64, datagram: usize) -> io::Result<RawReport> {
    let any = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    let receiver = Socket::bind(any, Buffers::default())?;
    let sender = Socket::bind(any, Buffers::default())?;
    let (to, sent) = (receiver.local(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let receiving = scope.spawn(|| receive(&receiver, bytes, &sent));
        let result = send(&sender, to, bytes, datagram);
        sent.store(true, Ordering::Release);
        let received = receiving.join();
        let (bytes_received, elapsed) =
            received.map_err(|_| io::Error::other("the receiving thread failed"))??;
        Ok(RawReport { datagram, bytes_sent: result?, bytes_received, elapsed })
    })
}

fn send(socket: &Socket, to: std::net::SocketAddr, bytes: u64, datagram: usize) -> io::Result<u64> {
    let waker = Waker::new()?;
    let batch = (datagram * SEGMENTS_MAX).min(engine::DATAGRAM_MAX / datagram.max(1) * datagram);
    let content = vec![0x5a; batch.max(1)];
    let mut sent = 0;
    while sent < bytes {
        let len = (bytes - sent).min(content.len() as u64) as usize;
        match socket.send(to, None, Ecn::NotEct, &content[..len], datagram)? {
            Sent::All => sent += len as u64,
            Sent::Refused(refusal) => return Err(refusal.error.into()),
            Sent::Blocked(done) | Sent::Congested(done) => {
                sent += done as u64;
                let interest = Ready { readable: false, writable: true };
                waker.wait(socket, interest, Some(Duration::from_millis(1)))?;
            }
        }
    }
    Ok(sent)
}

/// Receives until everything arrived, or nothing did for a while after the last was sent.
fn receive(socket: &Socket, bytes: u64, sent: &AtomicBool) -> io::Result<(u64, Duration)> {
    let waker = Waker::new()?;
    let mut buffers = ReceiveBuffers::new();
    let mut first = None;
    let mut last = Instant::now();
    let mut received = 0;
    while received < bytes {
        let all_sent = sent.load(Ordering::Acquire);
        let count = socket.receive(&mut buffers, |arrival| {
            received += arrival.bytes.len() as u64;
        })?;
        if count > 0 {
            last = Instant::now();
            first.get_or_insert(last);
        } else if all_sent && last.elapsed() > Duration::from_millis(100) {
            break;
        } else {
            let interest = Ready { readable: true, writable: false };
            waker.wait(socket, interest, Some(Duration::from_millis(20)))?;
        }
    }
    let first = first.unwrap_or(last);
    Ok((received, last.duration_since(first)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_measurement_adds_up() {
        let report = measure(20_000_000, 1472).unwrap();
        assert_eq!(report.bytes_sent, 20_000_000);
        assert!(report.bytes_received > 0 && report.bytes_received <= report.bytes_sent);
        assert!(report.goodput_bps() > 0.0 && (0.0..1.0).contains(&report.loss()));
    }
}
