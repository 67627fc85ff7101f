//! Multicast groups: datagrams sent to one path reach all receivers.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::thread;
use std::time::Duration;

use engine::PathId;
use rustix::event::epoll;

use crate::{Buffers, Socket};

/// Number of attempts to bind a group's port, and the pause between them: another driver that is
/// starting does not share the port until it has joined.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(10);

/// A multicast group and its interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// Address and port.
    pub address: SocketAddr,
    /// Index of the interface to join and to send on; 0 leaves it to the routing table.
    pub interface: u32,
    /// Multicast TTL (hop limit); 1 stays on the link.
    pub ttl: u32,
}

impl Group {
    /// Returns a group on this link, on the interface of the routing table.
    #[must_use]
    pub fn new(address: SocketAddr) -> Self {
        Self { address, interface: 0, ttl: 1 }
    }

    /// Returns the address to send to; an IPv6 group gets its scope.
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

/// Returns the index of the network interface `name`.
///
/// # Errors
///
/// There is no interface of this name.
pub fn interface(name: &str) -> io::Result<u32> {
    let socket = std::net::UdpSocket::bind((std::net::Ipv4Addr::UNSPECIFIED, 0))?;
    Ok(rustix::net::netdevice::name_to_index(&socket, name)?)
}

/// The groups of one driver. Each has its own receive socket; datagrams leave by the driver's
/// socket, so that replies arrive there.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    by_path: BTreeMap<PathId, Member>,
    /// Group that the driver's socket is set up to send to.
    aimed: Option<PathId>,
    /// Epoll descriptor over the groups' sockets and any other watched socket.
    any: Option<OwnedFd>,
}

/// A known group.
#[derive(Debug)]
struct Member {
    group: Group,
    /// Receive socket, while the group is joined.
    socket: Option<Socket>,
    /// Source address of this driver's own datagrams to the group.
    echo: Option<SocketAddr>,
}

/// A joined group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Joined<'a> {
    pub(crate) path: PathId,
    pub(crate) socket: &'a Socket,
    pub(crate) echo: Option<SocketAddr>,
}

impl Groups {
    /// Joins a group under the number `path`. `sender` is the socket to send from.
    pub(crate) fn join(&mut self, path: PathId, group: Group, sender: &Socket) -> io::Result<()> {
        let address = group.address;
        if !address.ip().is_multicast() || address.port() == 0 {
            let why = format!(
                "invalid multicast group {address}: expected a multicast address and a port"
            );
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

    /// Rejoins a known group.
    pub(crate) fn open(&mut self, path: PathId) -> io::Result<()> {
        let Some(member) = self.by_path.get_mut(&path).filter(|it| it.socket.is_none()) else {
            return Ok(());
        };
        let socket = Socket::join(&member.group, Buffers { receive: 1 << 20, send: 1 << 16 })?;
        watch(&mut self.any, &socket)?;
        member.socket = Some(socket);
        Ok(())
    }

    /// Watches another socket of the driver.
    pub(crate) fn watch(&mut self, socket: &Socket) -> io::Result<()> {
        watch(&mut self.any, socket)
    }

    /// Leaves a group.
    pub(crate) fn close(&mut self, path: PathId) {
        if let Some(member) = self.by_path.get_mut(&path) {
            member.socket = None;
        }
    }

    /// Whether a path represents a group.
    pub(crate) fn knows(&self, path: PathId) -> bool {
        self.by_path.contains_key(&path)
    }

    /// Whether a path represents a group that was left.
    pub(crate) fn is_left(&self, path: PathId) -> bool {
        self.by_path.get(&path).is_some_and(|member| member.socket.is_none())
    }

    /// Sets `sender` up for a group and returns the address to send to; `None` if the group is
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

    /// Returns the joined groups.
    pub(crate) fn joined(&self) -> impl Iterator<Item = Joined<'_>> {
        self.by_path.iter().filter_map(|(&path, member)| {
            let socket = member.socket.as_ref()?;
            Some(Joined { path, socket, echo: member.echo })
        })
    }

    /// Returns a descriptor that is readable while any watched socket has datagrams.
    pub(crate) fn any(&self) -> Option<BorrowedFd<'_>> {
        self.any.as_ref().map(|any| any.as_fd())
    }
}

pub(crate) fn watch(any: &mut Option<OwnedFd>, socket: &Socket) -> io::Result<()> {
    let all = match any.take() {
        Some(all) => all,
        None => epoll::create(epoll::CreateFlags::CLOEXEC)?,
    };
    let all = any.insert(all);
    // Reading shows which socket has something.
    epoll::add(all.as_fd(), socket, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
    Ok(())
}

/// Returns the source address of datagrams to a group that leave by a socket on `local`.
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
