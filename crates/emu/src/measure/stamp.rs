//! A socket that says when the kernel received what it receives.

use std::io;
use std::mem::{size_of, zeroed};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

/// Octets of datagrams that may wait to be read.
const BUFFER: usize = 64 << 20;

/// A UDP socket whose datagrams carry the time of day at which the kernel had them: when the
/// receiving program gets to run does not matter.
#[derive(Debug)]
pub struct Stamped(UdpSocket);

impl Stamped {
    /// Opens it in the network of the calling thread.
    ///
    /// # Errors
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

    /// How long to wait for a datagram.
    ///
    /// # Errors
    /// The system refused.
    pub fn set_patience(&self, patience: Duration) -> io::Result<()> {
        self.0.set_read_timeout(Some(patience))
    }

    /// The next datagram: its length, and when the kernel had it, since 1970. `None` if none came
    /// in time.
    ///
    /// # Errors
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

#[expect(unsafe_code, reason = "an option that no crate of ours knows")]
fn stamp(socket: &UdpSocket) -> io::Result<()> {
    let on: libc::c_int = 1;
    let len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the option reads one integer, which lives until the call returns.
    let result = unsafe {
        let option = (&raw const on).cast();
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, option, len)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Room for one control message, aligned as such a message has to be.
#[repr(C, align(8))]
struct Control([u8; 64]);

#[expect(unsafe_code, reason = "control messages that no crate of ours reads")]
fn receive(socket: &UdpSocket, datagram: &mut [u8]) -> io::Result<(usize, Duration)> {
    let mut part = libc::iovec { iov_base: datagram.as_mut_ptr().cast(), iov_len: datagram.len() };
    let mut control = Control([0; 64]);
    // SAFETY: `msghdr` is plain data, for which all zeros is a value.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len();
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
    let stamp = stamp.ok_or_else(|| io::Error::other("the kernel says no times of packets"))?;
    Ok((len, Duration::new(stamp.tv_sec.cast_unsigned(), stamp.tv_nsec as u32)))
}
