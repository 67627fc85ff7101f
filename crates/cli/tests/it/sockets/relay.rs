//! A relay that loses chosen datagrams.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A datagram at the relay.
pub(super) struct Passing {
    /// Its number, from 1.
    pub(super) number: u64,
    /// Whether the receiver sent it.
    pub(super) is_reply: bool,
    /// Time since the first datagram.
    pub(super) since: Duration,
}

/// Relay of datagrams between its client and a receiver, except for those that are to be lost.
pub(super) struct Relay {
    pub(super) address: String,
    pub(super) lost: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Relay {
    /// Starts a relay to the receiver at `to`.
    pub(super) fn new(to: &str, loses: fn(&Passing) -> bool) -> Self {
        let to: SocketAddr = to.parse().unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let address = socket.local_addr().unwrap().to_string();
        let (lost, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (counted, stop) = (Arc::clone(&lost), Arc::clone(&is_over));
        let pass = move || {
            let (mut datagram, mut number, mut near) = ([0; 65_536], 0, None);
            let mut began = None;
            while !stop.load(Ordering::Relaxed) {
                let Ok((len, from)) = socket.recv_from(&mut datagram) else { continue };
                let is_reply = from == to;
                let target = if is_reply { near } else { Some(to) };
                if !is_reply {
                    near = Some(from);
                }
                number += 1;
                let since = began.get_or_insert_with(Instant::now).elapsed();
                if loses(&Passing { number, is_reply, since }) {
                    counted.fetch_add(1, Ordering::Relaxed);
                } else if let Some(target) = target {
                    let _ = socket.send_to(&datagram[..len], target);
                }
            }
        };
        Self { address, lost, is_over, thread: Some(thread::spawn(pass)) }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
