//! A UDP socket with the kernel's receive timestamps.

use std::io;
use std::mem::{size_of, zeroed};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

/// Bytes of datagrams that may wait to be read.
const BUFFER: usize = 64 << 20;

/// A UDP socket whose datagrams carry the time at which the kernel received them, independent of
/// when the program runs.
#[derive(Debug)]
pub struct Stamped(UdpSocket);

impl Stamped {
    /// Opens the socket in the network namespace of the calling thread.
    ///
    /// # Errors
    ///
    /// The system refused.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let socket = UdpSocket::bind(address)?;
        stamp(&socket)?;
        let forced =
            rustix::net::sockopt::set_socket_recv_buffer_size_force(socket.as_fd(), BUFFER);
        if forced.is_err() {
            rustix::net::sockopt::set_socket_recv_buffer_size(socket.as_fd(), BUFFER)?;
        }
        Ok(Self(socket))
    }

    /// Sets the receive timeout.
    ///
    /// # Errors
    ///
    /// The system refused.
    pub fn set_patience(&self, patience: Duration) -> io::Result<()> {
        self.0.set_read_timeout(Some(patience))
    }

    /// Returns the length of the next datagram, and when the kernel received it, since 1970. `None`
    /// if none arrived in time.
    ///
    /// # Errors
    ///
    /// The system refused, or gave no time.
    pub fn receive(&self, datagram: &mut [u8]) -> io::Result<Option<(usize, Duration)>> {
        match receive(&self.0, datagram) {
            Ok(received) => Ok(Some(received)),
            Err(error)
                if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

fn stamp(socket: &UdpSocket) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)
}

/// Sets the size of the datagrams into which the kernel cuts a write.
pub(super) fn cut(socket: &UdpSocket, datagram: usize) -> io::Result<()> {
    set(socket, libc::SOL_UDP, libc::UDP_SEGMENT, datagram as libc::c_int)
}

#[expect(unsafe_code, reason = "options that no crate of ours knows")]
fn set(
    socket: &UdpSocket,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    let len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the options read one integer, which lives until the call returns.
    let result = unsafe {
        let value = (&raw const value).cast();
        libc::setsockopt(socket.as_raw_fd(), level, name, value, len)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Offset in `struct tcp_info` (since Linux 4.1) of the bytes received.
const RECEIVED: std::ops::Range<usize> = 128..136;

/// Bytes that the kernel has received on a connection, read by the program or not.
#[expect(unsafe_code, reason = "a field that no crate of ours reads")]
pub(super) fn received(socket: &TcpStream) -> io::Result<u64> {
    let mut info = [0_u8; 256];
    let mut len = info.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, all of which are ours.
    let result = unsafe {
        let to = info.as_mut_ptr().cast();
        let (level, name) = (libc::IPPROTO_TCP, libc::TCP_INFO);
        libc::getsockopt(socket.as_raw_fd(), level, name, to, &raw mut len)
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    let word = info[RECEIVED].first_chunk().filter(|_| len as usize >= RECEIVED.end);
    let word = word.ok_or_else(|| io::Error::other("the kernel does not count what came"))?;
    Ok(u64::from_ne_bytes(*word))
}

/// Buffer for one control message, with its alignment.
#[repr(C, align(8))]
struct Control([u8; CONTROL as usize]);
/// C libraries differ in the type of such a length, and all take this one.
const CONTROL: u8 = 64;

#[expect(unsafe_code, reason = "control messages that no crate of ours reads")]
fn receive(socket: &UdpSocket, datagram: &mut [u8]) -> io::Result<(usize, Duration)> {
    let mut part = libc::iovec { iov_base: datagram.as_mut_ptr().cast(), iov_len: datagram.len() };
    let mut control = Control([0; CONTROL as usize]);
    // SAFETY: `msghdr` is plain data, for which all zeros is a value.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = CONTROL.into();
    // SAFETY: the message points to memory that is ours and lives until the call returns.
    let len = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0) };
    let len = usize::try_from(len).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: the kernel filled in the control messages and their length; those that are read lie
    // within, and a time is plain data.
    let stamp = unsafe {
        let first = libc::CMSG_FIRSTHDR(&raw const message);
        let is_stamp = !first.is_null()
            && (*first).cmsg_level == libc::SOL_SOCKET
            && (*first).cmsg_type == libc::SCM_TIMESTAMPNS;
        is_stamp.then(|| libc::CMSG_DATA(first).cast::<libc::timespec>().read_unaligned())
    };
    let stamp =
        stamp.ok_or_else(|| io::Error::other("the kernel does not report times of packets"))?;
    Ok((len, Duration::new(stamp.tv_sec.cast_unsigned(), stamp.tv_nsec as u32)))
}
