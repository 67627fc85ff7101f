//! Addresses of data connections: PASV, EPSV and PORT (RFC 959 §3.2, RFC 2428).

use std::net::SocketAddr;

use crate::message::{self, Command, Reply};

use super::request::{Request, What};
use super::{Awaited, Session};
use crate::ftp::config::{ClientConfig, DataConnection};
use crate::ftp::core::Core;
use crate::ftp::indication::{Failure, RequestId};
use crate::ftp::relay::{Half, Relayed};

impl Session {
    /// Connects this server to the address where the other one listens.
    pub(in crate::ftp) fn relay_to(&mut self, address: SocketAddr) {
        if self.awaited == Awaited::Peer {
            self.ask(&Command::Port(address), Awaited::Address);
        }
    }

    /// Notes that the other server has started to send.
    pub(in crate::ftp) fn relay_begins(&mut self) {
        if self.awaited == Awaited::Peer {
            self.transfer();
        }
    }

    pub(super) fn request_address(&mut self, core: &mut Core) {
        match self.data {
            DataConnection::Pasv => self.ask(&Command::Pasv, Awaited::Address),
            DataConnection::Epsv => self.ask(&Command::Epsv(""), Awaited::Address),
            DataConnection::Port => {
                let data = core.listen(self.control.path, self.best_effort);
                if let Some(current) = &mut self.current {
                    current.data = Some(data);
                }
                self.awaited = Awaited::Listening;
            }
        }
    }

    /// Notes the address where the driver listens for the server's data connection.
    pub(in crate::ftp) fn listening(&mut self, address: SocketAddr) {
        if self.awaited == Awaited::Listening {
            self.ask(&Command::Port(address), Awaited::Address);
        }
    }

    /// Processes the server's reply about the data connection.
    pub(super) fn address(&mut self, reply: Reply, config: &ClientConfig, core: &mut Core) {
        if let Some(Request { id, what: What::Relay { half, .. }, .. }) = self.request() {
            let (id, half) = (*id, *half);
            return self.relay_address(id, half, reply, config, core);
        }
        let address = match config.data {
            DataConnection::Port => None,
            DataConnection::Pasv => match message::passive_reply(&reply.text) {
                Some(address) => Some(self.passive(SocketAddr::V4(address), config)),
                None => return self.no_address(reply, core),
            },
            DataConnection::Epsv => {
                let peer = self.control.ends.map(|(_, peer)| peer.ip());
                match (peer, message::passive_port(&reply.text)) {
                    (Some(ip), Some(port)) => Some(SocketAddr::new(ip, port)),
                    (Some(_) | None, _) => return self.no_address(reply, core),
                }
            }
        };
        let (path, best_effort) = (self.control.path, self.best_effort);
        let Some(current) = &mut self.current else { return };
        if let Some(address) = address {
            current.data = Some(core.connect(path, address, best_effort));
        }
        match current.offset {
            0 => self.transfer(),
            offset => self.ask(&Command::Rest(offset), Awaited::Offset),
        }
    }

    /// Processes the address where one server listens, or its acceptance of the other's address.
    fn relay_address(
        &mut self,
        id: RequestId,
        half: Half,
        reply: Reply,
        config: &ClientConfig,
        core: &mut Core,
    ) {
        match (half, message::passive_reply(&reply.text)) {
            (Half::Gives, _) => self.transfer(),
            (Half::Takes, Some(address)) => {
                let address = self.passive(SocketAddr::V4(address), config);
                core.relayed.push_back((id, Relayed::Listens(address)));
                self.awaited = Awaited::Peer;
            }
            (Half::Takes, None) => self.no_address(reply, core),
        }
    }

    /// Address of a data connection from the reply to PASV.
    fn passive(&self, named: SocketAddr, config: &ClientConfig) -> SocketAddr {
        match self.control.ends {
            Some((_, server)) if !config.third_party => SocketAddr::new(server.ip(), named.port()),
            Some(_) | None => named,
        }
    }

    fn no_address(&mut self, reply: Reply, core: &mut Core) {
        self.fail(Failure::Nonsense(reply.text), core);
        self.next(core);
    }
}
