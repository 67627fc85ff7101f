//! A TUN device with segmentation offload.

use std::ffi::c_ulong;
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

use crate::frame::vnet::{self, Vnet};

/// Maximum bytes of one packet.
pub const PACKET_MAX: usize = 65_536;

/// Maximum parts after the headers of a packet.
pub const PARTS_MAX: usize = 64;

const DEVICE: &str = "/dev/net/tun";
/// Maximum length of a network device's name (`IFNAMSIZ` without its zero).
const NAME_MAX: usize = 15;

/// One end of a link: it reads the packets that its host sends, and its host receives the packets
/// it writes. The device vanishes with its last descriptor.
#[derive(Debug)]
pub struct Tun {
    file: File,
    joins_datagrams: bool,
}

/// Result of reading a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet {
    /// A packet of this many bytes.
    Whole(Vnet, usize),
    /// A packet with an offload that was not requested.
    Unreadable,
}

/// Remedy for an error when opening `/dev/net/tun`.
fn remedy(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::PermissionDenied => "; allow it: chmod 0666 /dev/net/tun (as root)",
        io::ErrorKind::NotFound => "; have it made: modprobe tun (as root)",
        _ => "",
    }
}

impl Tun {
    /// Creates a device of this name in the calling thread's network namespace.
    ///
    /// # Errors
    ///
    /// The caller may not create devices, or the name is in use or invalid.
    pub fn create(name: &str) -> io::Result<Self> {
        let mut open = OpenOptions::new();
        open.read(true).write(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC);
        let file = open.open(DEVICE).map_err(|error| {
            let kind = error.kind();
            io::Error::new(kind, format!("{DEVICE}: {error}{}", remedy(kind)))
        })?;
        attach(&file, name)?;
        // UDP segmentation offload needs Linux 6.2; TCP segmentation offload is always available.
        let tcp = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
        let udp = libc::TUN_F_USO4 | libc::TUN_F_USO6;
        let joins_datagrams = offload(&file, tcp | udp).is_ok();
        if !joins_datagrams {
            offload(&file, tcp)?;
        }
        Ok(Self { file, joins_datagrams })
    }

    /// Whether several datagrams can be written as one packet.
    #[must_use]
    pub fn joins_datagrams(&self) -> bool {
        self.joins_datagrams
    }

    /// Returns the next packet that the host sends, without waiting for one.
    ///
    /// # Errors
    ///
    /// Errors of the system, except for an empty queue.
    pub fn read(&self, packet: &mut [u8]) -> io::Result<Option<Packet>> {
        let mut header = [0; vnet::LEN];
        let mut parts = [IoSliceMut::new(&mut header), IoSliceMut::new(packet)];
        let read = match rustix::io::readv(&self.file, &mut parts) {
            Ok(read) => read,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let Some(len) = read.checked_sub(vnet::LEN) else { return Ok(Some(Packet::Unreadable)) };
        let decoded = Vnet::decode(&header);
        Ok(Some(decoded.map_or(Packet::Unreadable, |vnet| Packet::Whole(vnet, len))))
    }

    /// Writes a packet to the host: headers, followed by parts. It passes through the host's whole
    /// receive path before this returns.
    ///
    /// # Errors
    ///
    /// The packet is invalid for the host, or the device is down.
    pub fn write<'a>(
        &self,
        vnet: &Vnet,
        front: &[u8],
        rest: impl IntoIterator<Item = &'a [u8]>,
    ) -> io::Result<()> {
        let header = vnet.encode();
        let mut parts = [IoSlice::new(&[]); PARTS_MAX + 2];
        parts[0] = IoSlice::new(&header);
        parts[1] = IoSlice::new(front);
        let mut used = 2;
        for (slot, part) in parts[2..].iter_mut().zip(rest) {
            *slot = IoSlice::new(part);
            used += 1;
        }
        rustix::io::writev(&self.file, &parts[..used])?;
        Ok(())
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Attaches the descriptor to a device of this name.
#[expect(unsafe_code, reason = "an ioctl that no crate wraps")]
fn attach(file: &File, name: &str) -> io::Result<()> {
    if name.is_empty() || name.len() > NAME_MAX || name.bytes().any(|byte| byte == 0) {
        let why = format!("invalid name of a device {name:?}: expected 1 to {NAME_MAX} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    // SAFETY: `ifreq` is plain data, for which all zeros is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = std::ffi::c_char::from_ne_bytes([from]);
    }
    let flags = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    // SAFETY: TUNSETIFF reads and writes one `ifreq`, which lives until the call returns.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[expect(unsafe_code, reason = "an ioctl that no crate wraps")]
fn offload(file: &File, flags: libc::c_uint) -> io::Result<()> {
    // SAFETY: TUNSETOFFLOAD takes its argument by value.
    let result =
        unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETOFFLOAD, c_ulong::from(flags)) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
