//! State of this machine's network interfaces, and changes of it.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use bp::admission::Network;
use bp::discovery::Own;
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, send, socket_with, sockopt,
};

/// Multicast group of routing sockets for interface changes (`RTMGRP_LINK`).
const LINKS: u32 = 1;
const HEADER: usize = 16;
const BODY: usize = 16;
const NEW_LINK: u16 = 16;
const GET_LINK: u16 = 18;
const REQUEST: u16 = 1;
const UP: u32 = 1;
const MTU: u16 = 4;
const NAME: u16 = 3;
/// Messages about addresses, the end of a list, and their attributes.
const NEW_ADDRESS: u16 = 20;
const GET_ADDRESS: u16 = 22;
const DONE: u16 = 3;
const FAILED: u16 = 2;
const DUMP: u16 = 0x300;
const ADDRESS_BODY: usize = 8;
const FAR: u16 = 1;
const NEAR: u16 = 2;
/// Flags of an address that is not used (yet): another machine may have it.
const TENTATIVE: u8 = 0x48;
/// Maximum messages in the list of all addresses.
const LIST_MAX: usize = 10_000;

/// State of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Whether it carries packets.
    pub up: bool,
    /// MTU in bytes.
    pub mtu: usize,
}

/// Returns the MTU of the route to an address, if known to this machine. Sends nothing.
///
/// # Errors
///
/// There is no route to the address.
pub fn route_mtu(to: SocketAddr) -> io::Result<usize> {
    let any = match to {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(to)?;
    let mtu = match to {
        SocketAddr::V4(_) => sockopt::ip_mtu(&socket)?,
        SocketAddr::V6(_) => sockopt::ipv6_mtu(&socket)?,
    };
    Ok(mtu as usize)
}

/// Returns the addresses of the interface with this index.
pub(crate) fn addresses(index: u32) -> io::Result<Vec<Own>> {
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    let mut request = [0; HEADER + ADDRESS_BODY];
    request[..4].copy_from_slice(&((HEADER + ADDRESS_BODY) as u32).to_ne_bytes());
    request[4..6].copy_from_slice(&GET_ADDRESS.to_ne_bytes());
    request[6..8].copy_from_slice(&(REQUEST | DUMP).to_ne_bytes());
    send(&socket, &request, rustix::net::SendFlags::empty())?;
    let (mut all, mut buffer) = (Vec::new(), [0; 32_768]);
    for _ in 0..LIST_MAX {
        let (len, _) = recv(&socket, &mut buffer[..], RecvFlags::empty())?;
        let mut rest = &buffer[..len.min(32_768)];
        while let Some(len) = word(rest, 0) {
            let Some(message) = item(&mut rest, len as usize, HEADER) else { break };
            match half(message, 4) {
                Some(DONE | FAILED) => return Ok(all),
                Some(NEW_ADDRESS) => all.extend(own_address(message, index)),
                _ => {}
            }
        }
    }
    Ok(all)
}

/// Address in a message, if it belongs to the interface.
fn own_address(message: &[u8], index: u32) -> Option<Own> {
    let &[_, bits, flags, _] = message.get(HEADER..HEADER + 4)?.first_chunk()?;
    if word(message, HEADER + 4)? != index || flags & TENTATIVE != 0 {
        return None;
    }
    let mut rest = message.get(HEADER + ADDRESS_BODY..)?;
    let (mut near, mut far) = (None, None);
    while let Some(len) = half(rest, 0) {
        let Some(attribute) = item(&mut rest, len.into(), 4) else { break };
        match half(attribute, 2)? {
            FAR => far = address(&attribute[4..]),
            NEAR => near = address(&attribute[4..]),
            _ => {}
        }
    }
    // On a line with two ends the network is that of the other end.
    let far = far.or(near)?;
    Some(Own { address: near.unwrap_or(far), network: Network::new(far, bits) })
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let of_four = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    of_four.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

/// Watches one interface.
#[derive(Debug)]
pub(crate) struct Monitor {
    socket: OwnedFd,
    name: String,
}

impl Monitor {
    /// Watches the interface of this name in the calling thread's network namespace.
    pub(crate) fn open(name: &str) -> io::Result<Self> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        // Protocol 0 of the family is the routing socket (`NETLINK_ROUTE`).
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        bind(&socket, &SocketAddrNetlink::new(0, LINKS))?;
        let monitor = Self { socket, name: name.to_owned() };
        monitor.request()?;
        Ok(monitor)
    }

    /// Requests the interface's state; the reply arrives as a change.
    fn request(&self) -> io::Result<()> {
        let name = self.name.as_bytes();
        let attribute = 4 + name.len() + 1;
        let len = HEADER + BODY + attribute.next_multiple_of(4);
        let mut message = vec![0; len];
        message[..4].copy_from_slice(&(len as u32).to_ne_bytes());
        message[4..6].copy_from_slice(&GET_LINK.to_ne_bytes());
        message[6..8].copy_from_slice(&REQUEST.to_ne_bytes());
        let at = HEADER + BODY;
        message[at..at + 2].copy_from_slice(&(attribute as u16).to_ne_bytes());
        message[at + 2..at + 4].copy_from_slice(&NAME.to_ne_bytes());
        message[at + 4..at + 4 + name.len()].copy_from_slice(name);
        send(&self.socket, &message, rustix::net::SendFlags::empty())?;
        Ok(())
    }

    /// Returns the newest state reported since the last call; `None` if nothing changed.
    pub(crate) fn news(&self) -> io::Result<Option<Condition>> {
        let mut newest = None;
        let mut buffer = [0; 16_384];
        loop {
            let message = match recv(&self.socket, &mut buffer[..], RecvFlags::empty()) {
                Ok((len, _)) => &buffer[..len],
                Err(Errno::AGAIN) => return Ok(newest),
                Err(Errno::INTR) => continue,
                Err(Errno::NOBUFS) => {
                    // A message was lost: request the current state.
                    self.request()?;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            newest = conditions(message, &self.name).last().or(newest);
        }
    }
}

impl AsFd for Monitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..)?.first_chunk().copied()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..)?.first_chunk().copied()?))
}

/// Takes an item off a list of items that start with their length and are aligned to four bytes.
fn item<'a>(rest: &mut &'a [u8], len: usize, least: usize) -> Option<&'a [u8]> {
    let whole = rest.get(..len).filter(|_| len >= least)?;
    *rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
    Some(whole)
}

/// States of an interface in these messages.
fn conditions<'a>(mut messages: &'a [u8], name: &'a str) -> impl Iterator<Item = Condition> + 'a {
    let next = move || {
        let len = word(messages, 0)? as usize;
        item(&mut messages, len, HEADER)
    };
    std::iter::from_fn(next).filter_map(move |message| condition(message, name))
}

fn condition(message: &[u8], name: &str) -> Option<Condition> {
    if half(message, 4)? != NEW_LINK {
        return None;
    }
    let flags = word(message, HEADER + 8)?;
    let mut rest = message.get(HEADER + BODY..)?;
    let (mut mtu, mut is_it) = (None, false);
    while let Some(len) = half(rest, 0) {
        let attribute = item(&mut rest, len.into(), 4)?;
        match half(attribute, 2)? {
            NAME => is_it = attribute[4..].strip_suffix(&[0]) == Some(name.as_bytes()),
            MTU => mtu = word(attribute, 4),
            _ => {}
        }
    }
    is_it.then_some(Condition { up: flags & UP != 0, mtu: mtu? as usize })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_route_to_this_machine_has_an_mtu() {
        let mtu = route_mtu(([127, 0, 0, 1], 9).into()).unwrap();
        assert!((1280..=65_536).contains(&mtu), "{mtu}");
    }

    #[test]
    fn loopback_is_reported() {
        let monitor = Monitor::open("lo").unwrap();
        let condition = monitor.news().unwrap().unwrap();
        assert!(condition.mtu >= 1280, "{condition:?}");
        assert_eq!(monitor.news().unwrap(), None, "reported once");
    }

    #[test]
    fn loopback_has_its_addresses() {
        let all = addresses(crate::interface("lo").unwrap()).unwrap();
        let local: IpAddr = [127, 0, 0, 1].into();
        let own = all.iter().find(|own| own.address == local).unwrap();
        assert!(own.network.contains([127, 9, 9, 9].into()), "{own:?}");
        assert!(!own.network.contains([128, 0, 0, 1].into()), "{own:?}");
        assert_eq!(addresses(u32::MAX).unwrap(), []);
    }

    proptest! {
        #[test]
        fn random_messages_cause_no_panic(bytes in prop::collection::vec(prop_oneof![any::<u8>(), 0..32u8], 0..200)) {
            let mut message = vec![0; 4];
            message.extend(&bytes);
            let len = message.len() as u32;
            message[..4].copy_from_slice(&len.to_ne_bytes());
            if message.len() > 6 {
                message[4..6].copy_from_slice(&NEW_LINK.to_ne_bytes());
            }
            let _ = conditions(&message, "lo").count();
            let _ = conditions(&bytes, "lo").count();
            let _ = own_address(&message, 0).or_else(|| own_address(&bytes, 0));
        }
    }
}
