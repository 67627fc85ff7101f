//! Multicast forwarding of hosts: the kernel's multicast routing with static routes.

use std::io;
use std::mem::size_of_val;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketType, ipproto};

/// Maximum devices of a multicast router (`MAXVIFS` of `linux/mroute.h`).
pub(crate) const DEVICES_MAX: usize = 32;
/// Options of a raw socket, from `linux/mroute.h`.
const MRT_INIT: i32 = 200;
const MRT_ADD_VIF: i32 = 202;
const MRT_ADD_MFC: i32 = 204;
/// `VIFF_USE_IFINDEX`: the device is named by its number.
const BY_NUMBER: u8 = 0x8;
/// Minimum TTL: a packet is forwarded if its TTL is greater.
const THRESHOLD: u8 = 1;

/// A multicast route of a host: input and output devices for a source and a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) source: Ipv4Addr,
    pub(crate) group: Ipv4Addr,
    /// Numbers of devices, in the order given to the router.
    pub(crate) from: usize,
    pub(crate) to: Vec<usize>,
}

/// Multicast router of a host, active as long as it lives.
#[derive(Debug)]
pub(crate) struct Router {
    socket: OwnedFd,
}

/// `struct vifctl`.
#[repr(C)]
struct Device {
    number: u16,
    flags: u8,
    threshold: u8,
    rate_limit: u32,
    index: i32,
    remote: u32,
}

/// `struct mfcctl`.
#[repr(C)]
struct CacheEntry {
    /// In network byte order.
    source: [u8; 4],
    group: [u8; 4],
    from: u16,
    thresholds: [u8; DEVICES_MAX],
    counters: [u32; 3],
    expire: i32,
}

impl Router {
    /// Starts the router of the host whose network namespace the thread is in, between the devices
    /// of these names.
    pub(crate) fn start(devices: &[&str], entries: &[Entry]) -> io::Result<Self> {
        let igmp = Some(ipproto::IGMP);
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::RAW, igmp)?;
        let router = Self { socket };
        router.set(MRT_INIT, &1_i32)?;
        for (number, name) in (0..).zip(devices) {
            let index = rustix::net::netdevice::name_to_index(&router.socket, name)?;
            router.set(
                MRT_ADD_VIF,
                &Device {
                    number,
                    flags: BY_NUMBER,
                    threshold: THRESHOLD,
                    rate_limit: 0,
                    index: index.cast_signed(),
                    remote: 0,
                },
            )?;
        }
        entries.iter().try_for_each(|entry| router.add(entry))?;
        Ok(router)
    }

    fn add(&self, entry: &Entry) -> io::Result<()> {
        let mut thresholds = [0; DEVICES_MAX];
        for &device in &entry.to {
            thresholds[device] = THRESHOLD;
        }
        let from = u16::try_from(entry.from).map_err(io::Error::other)?;
        let (source, group) = (entry.source.octets(), entry.group.octets());
        self.set(
            MRT_ADD_MFC,
            &CacheEntry { source, group, from, thresholds, counters: [0; 3], expire: 0 },
        )
    }

    #[expect(unsafe_code, reason = "options of a socket that no crate wraps")]
    fn set<T>(&self, option: i32, value: &T) -> io::Result<()> {
        let len = size_of_val(value) as libc::socklen_t;
        // SAFETY: the kernel reads `len` bytes of a value of plain data that outlives the call.
        let result = unsafe {
            let value = std::ptr::from_ref(value).cast();
            libc::setsockopt(self.socket.as_raw_fd(), libc::IPPROTO_IP, option, value, len)
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}
