//! UDP hosts that listen on one port and send from another, as some LTP engines do.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Most bytes of a datagram.
const DATAGRAM_MAX: usize = 65_536;

/// A relay between two hosts. Each sees the other listen on one port and send from another.
#[derive(Debug)]
pub(crate) struct OtherPorts {
    /// Apparent listening addresses of the first and the second host.
    pub(crate) listens: [SocketAddr; 2],
    inlets: [UdpSocket; 2],
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl OtherPorts {
    pub(crate) fn new() -> Self {
        let inlets = [open(), open()];
        let listens = [0, 1].map(|side: usize| inlets[side].local_addr().unwrap());
        Self { listens, inlets, stop: Arc::default(), threads: Vec::new() }
    }

    /// Relays between hosts at these addresses; an unknown host becomes known when it sends. One
    /// datagram in `lose_one_in` is lost, none if that is 0.
    pub(crate) fn start(&mut self, hosts: [Option<SocketAddr>; 2], lose_one_in: u64) {
        let hosts = Arc::new(Mutex::new(hosts));
        for (side, inlet) in self.inlets.iter().enumerate() {
            let (inlet, outlet) = (inlet.try_clone().unwrap(), open());
            let (stop, hosts) = (self.stop.clone(), hosts.clone());
            self.threads.push(std::thread::spawn(move || {
                let mut datagram = vec![0; DATAGRAM_MAX];
                let mut count = 0;
                while !stop.load(Ordering::Relaxed) {
                    let Ok((len, from)) = inlet.recv_from(&mut datagram) else { continue };
                    let to = {
                        let mut hosts = hosts.lock().unwrap();
                        hosts[1 - side].get_or_insert(from);
                        hosts[side]
                    };
                    count += 1;
                    // Neither the first nor all of a kind.
                    let is_lost = lose_one_in > 0 && count % lose_one_in == 7 % lose_one_in;
                    if let Some(to) = to.filter(|_| !is_lost) {
                        let _is_gone = outlet.send_to(&datagram[..len], to);
                    }
                }
            }));
        }
    }
}

impl Drop for OtherPorts {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ended = thread.join();
        }
    }
}

fn open() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    // A thread that waits for a datagram checks at intervals whether it should end.
    socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    socket
}
