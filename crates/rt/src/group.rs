//! Multicast groups: what is sent to one path reaches all that listen.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::thread;
use std::time::Duration;

use engine::PathId;
use rustix::event::epoll;

use crate::{Buffers, Socket};

/// Another driver that is just being set up on the port of a group does not share it until it has
/// joined, too: how often to try again, and after which time.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(10);

/// A multicast group, and how to reach it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its address and port.
    pub address: SocketAddr,
    /// The interface to join and to send on, by its number; 0 leaves it to the routing table.
    pub interface: u32,
    /// Routers on the way, and one more; 1 stays on the link.
    pub ttl: u32,
}

impl Group {
    /// A group on this link, on the interface that the routing table says.
    #[must_use]
    pub fn new(address: SocketAddr) -> Self {
        Self { address, interface: 0, ttl: 1 }
    }

    /// The address to send to: that of a group of IPv6 says which link it means.
    pub(crate) fn destination(&self) -> SocketAddr {
        match self.address {
            SocketAddr::V6(mut address) if address.scope_id() == 0 => {
                address.set_scope_id(self.interface);
                address.into()
            }
            address => address,
        }
    }
}

/// The number of the network interface `name`.
///
/// # Errors
/// There is none of this name.
pub fn interface(name: &str) -> io::Result<u32> {
    let socket = std::net::UdpSocket::bind((std::net::Ipv4Addr::UNSPECIFIED, 0))?;
    Ok(rustix::net::netdevice::name_to_index(&socket, name)?)
}

/// The groups of one driver. Each has a socket to receive on, which gets nothing else; what is sent
/// leaves by the driver's own, so that answers come to that.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    by_path: BTreeMap<PathId, Member>,
    /// The group that the driver's socket is set up to send to.
    aimed: Option<PathId>,
    /// Tells whether any of the groups' sockets, or another that is watched, has datagrams.
    any: Option<OwnedFd>,
}

/// A group that is known.
#[derive(Debug)]
struct Member {
    group: Group,
    /// What it is received on, while it is joined.
    socket: Option<Socket>,
    /// Where datagrams come from that this driver itself has sent to it.
    echo: Option<SocketAddr>,
}

/// A group that is joined.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Joined<'a> {
    pub(crate) path: PathId,
    pub(crate) socket: &'a Socket,
    pub(crate) echo: Option<SocketAddr>,
}

impl Groups {
    /// Joins a group that shall be known by `path`. `sender` is the socket to send from.
    pub(crate) fn join(&mut self, path: PathId, group: Group, sender: &Socket) -> io::Result<()> {
        let address = group.address;
        if !address.ip().is_multicast() || address.port() == 0 {
            let why = format!("{address} is no multicast group with a port");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        if address.is_ipv4() != sender.local().is_ipv4() {
            let why = format!("{address} cannot be reached from {}", sender.local());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let is_vague = match group.destination() {
            SocketAddr::V6(address) => {
                address.scope_id() == 0 && address.ip().segments()[0] & 0xf == 2
            }
            SocketAddr::V4(_) => false,
        };
        if is_vague {
            let why = format!("{address} is on every link: name an interface");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        sender.share_port()?;
        sender.aim(&group)?;
        self.aimed = Some(path);
        let echo = source(&group, sender.local()).ok();
        self.by_path.insert(path, Member { group, socket: None, echo });
        for _ in 0..TRIES {
            match self.open(path) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => thread::sleep(PAUSE),
                joined => return joined,
            }
        }
        self.open(path)
    }

    /// Joins a group again that is known.
    pub(crate) fn open(&mut self, path: PathId) -> io::Result<()> {
        let Some(member) = self.by_path.get_mut(&path).filter(|it| it.socket.is_none()) else {
            return Ok(());
        };
        let socket = Socket::join(&member.group, Buffers { receive: 1 << 20, send: 1 << 16 })?;
        watch(&mut self.any, &socket)?;
        member.socket = Some(socket);
        Ok(())
    }

    /// Watches another socket of the driver, too.
    pub(crate) fn watch(&mut self, socket: &Socket) -> io::Result<()> {
        watch(&mut self.any, socket)
    }

    /// Leaves a group.
    pub(crate) fn close(&mut self, path: PathId) {
        if let Some(member) = self.by_path.get_mut(&path) {
            member.socket = None;
        }
    }

    /// Whether a path stands for a group.
    pub(crate) fn knows(&self, path: PathId) -> bool {
        self.by_path.contains_key(&path)
    }

    /// Where to send what is for a group, after `sender` was set up for that; `None` while it is
    /// left.
    pub(crate) fn aim(&mut self, path: PathId, sender: &Socket) -> io::Result<Option<SocketAddr>> {
        let Some(member) = self.by_path.get(&path).filter(|it| it.socket.is_some()) else {
            return Ok(None);
        };
        if self.aimed != Some(path) {
            sender.aim(&member.group)?;
            self.aimed = Some(path);
        }
        Ok(Some(member.group.destination()))
    }

    /// The groups that are joined.
    pub(crate) fn joined(&self) -> impl Iterator<Item = Joined<'_>> {
        self.by_path.iter().filter_map(|(&path, member)| {
            let socket = member.socket.as_ref()?;
            Some(Joined { path, socket, echo: member.echo })
        })
    }

    /// Readable while any group or other socket that is watched has datagrams.
    pub(crate) fn any(&self) -> Option<BorrowedFd<'_>> {
        self.any.as_ref().map(|any| any.as_fd())
    }
}

fn watch(any: &mut Option<OwnedFd>, socket: &Socket) -> io::Result<()> {
    let all = match any.take() {
        Some(all) => all,
        None => epoll::create(epoll::CreateFlags::CLOEXEC)?,
    };
    let all = any.insert(all);
    // Who has something is found by reading.
    epoll::add(all.as_fd(), socket, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
    Ok(())
}

/// Where datagrams to a group come from that leave by a socket on `local`.
fn source(group: &Group, local: SocketAddr) -> io::Result<SocketAddr> {
    if !local.ip().is_unspecified() {
        return Ok(local);
    }
    let any: IpAddr = local.ip();
    let probe = Socket::bind((any, 0).into(), Buffers { receive: 1 << 12, send: 1 << 12 })?;
    probe.aim(group)?;
    probe.connect(group.destination())?;
    let mut source = probe.connected_from()?;
    source.set_port(local.port());
    Ok(source)
}
