//! Readiness of devices, and sleep until one is ready.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;

/// Epoll data of the event by which other threads wake this.
const EVENT: u64 = u64::MAX;
/// Maximum devices per poll; the other devices are first in the next poll.
const AT_ONCE: usize = 64;

/// Devices and an event. One call returns the ready ones: a call per device would be too many in
/// every turn.
pub(crate) struct Watch {
    epoll: OwnedFd,
    event: Arc<OwnedFd>,
}

impl Watch {
    pub(crate) fn new<'a>(
        event: Arc<OwnedFd>,
        devices: impl IntoIterator<Item = BorrowedFd<'a>>,
    ) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let add = |of: BorrowedFd<'_>, data| {
            epoll::add(&epoll, of, epoll::EventData::new_u64(data), epoll::EventFlags::IN)
        };
        add(event.as_fd(), EVENT)?;
        for (number, device) in devices.into_iter().enumerate() {
            add(device, number as u64)?;
        }
        Ok(Self { epoll, event })
    }

    /// Fills `ready` with the numbers of ready devices without waiting. Returns whether all ready
    /// devices are among them. Clears the event: orders must be read after this call, never only
    /// before it.
    pub(crate) fn look(&self, ready: &mut Vec<usize>) -> io::Result<bool> {
        ready.clear();
        let mut events = [MaybeUninit::uninit(); AT_ONCE];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let found = match epoll::wait(&self.epoll, &mut events[..], Some(&now)) {
            Ok((found, _)) => found,
            Err(Errno::INTR) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        for found in &*found {
            match found.data.u64() {
                // The caller reads the orders afterwards.
                EVENT => {
                    let _ = rustix::io::read(&self.event, &mut [0u8; 8]);
                }
                number => ready.push(number as usize),
            }
        }
        Ok(found.len() < AT_ONCE)
    }

    /// Waits until one is ready or the timeout expires. Returns whether one is ready.
    pub(crate) fn sleep(&self, timeout: Option<Duration>) -> io::Result<bool> {
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        // The timeout of `epoll` itself would be rounded up to milliseconds.
        match poll(&mut [PollFd::new(&self.epoll, PollFlags::IN)], timeout.as_ref()) {
            Ok(0) => Ok(false),
            Ok(_) | Err(Errno::INTR) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("epoll", &self.epoll).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use rustix::event::{EventfdFlags, eventfd};

    use super::*;

    fn event() -> OwnedFd {
        eventfd(0, EventfdFlags::NONBLOCK).unwrap()
    }

    fn raise(event: impl AsFd) {
        rustix::io::write(event, &1u64.to_ne_bytes()).unwrap();
    }

    #[test]
    fn ready_devices_are_reported_until_they_are_read() {
        let (wake, devices) = (Arc::new(event()), [(); 100].map(|()| event()));
        let of = devices.iter().map(AsFd::as_fd);
        let watch = Watch::new(Arc::clone(&wake), of).unwrap();
        let mut ready = vec![7];
        assert!(watch.look(&mut ready).unwrap());
        assert_eq!(ready, [] as [usize; 0]);
        let time = Duration::from_micros(1_300);
        let started = Instant::now();
        assert!(!watch.sleep(Some(time)).unwrap());
        assert!(started.elapsed() >= time);
        raise(&wake);
        assert!(watch.sleep(None).unwrap());
        watch.look(&mut ready).unwrap();
        assert_eq!(ready, [] as [usize; 0], "it is for no device");
        assert!(!watch.sleep(Some(Duration::ZERO)).unwrap(), "and reported once");
        devices.iter().for_each(raise);
        for _ in 0..2 {
            let mut reported = std::collections::BTreeSet::new();
            for _ in 0..2 {
                assert!(watch.sleep(None).unwrap());
                assert!(!watch.look(&mut ready).unwrap());
                reported.extend(ready.iter().copied());
            }
            assert_eq!(reported.len(), 100, "those that were left out come next");
        }
    }
}
