//! Watch over a peer that may not reply.

use std::net::SocketAddr;
use std::time::Duration;

use cfdp::PutRequest;
use cfdp::pdu::TransmissionMode;
use engine::Time;
use transport::door;
use transport::protocol::Protocol;
use transport::{CfdpUser, Transport};

use crate::sockets::contacts;
use crate::sockets::screen::Screen;
use crate::sockets::transfer;

/// Reason to give up after the last contact.
pub(super) const NO_CONTACT: &str = "no contact is left in the plan";

/// Watch over a peer that may not reply.
#[derive(Debug)]
pub(super) struct Watch {
    /// Address of the peer.
    to: SocketAddr,
    /// The command that has to run there, for messages.
    server: String,
    /// Time without a reply after which a warning is due; doubled by each warning.
    patience: Duration,
    patience_max: Duration,
    /// Whether a peer that does not reply for a while is worth a warning.
    pub(super) is_quick: bool,
    /// Whether receivers never reply.
    pub(super) is_one_way: bool,
    /// Whether the peer has replied, or will not.
    pub(super) is_answered: bool,
    /// Whether the last message was that nobody replies.
    is_warned: bool,
    /// Datagrams sent and received at the last look.
    counted: (u64, u64),
    /// Time of the first datagram sent since the last reply.
    unanswered_since: Option<Time>,
    contact: rt::Contact,
}

impl Watch {
    /// Watch over the peer at `to`, which needs the options `serve` besides the protocol. `put` is
    /// the request to a CFDP entity, if there is one.
    pub(super) fn new(
        to: SocketAddr,
        options: &transfer::Options,
        put: Option<&PutRequest>,
        serve: &str,
        is_quick: bool,
    ) -> Self {
        Self {
            to,
            server: server(&options.protocol, put, serve),
            patience: options.patience(),
            patience_max: 8 * options.patience(),
            is_quick,
            is_one_way: false,
            is_answered: false,
            is_warned: false,
            counted: (0, 0),
            unanswered_since: None,
            contact: rt::Contact::Open,
        }
    }

    /// Reports the end of a contact. Returns whether it was the last one, after which nothing more
    /// can happen.
    pub(super) fn on_contact(&mut self, now: Time, contact: rt::Contact, screen: &Screen) -> bool {
        self.contact = contact;
        self.unanswered_since = None;
        match contact {
            rt::Contact::Open => {}
            rt::Contact::Closed(Some(_)) => {
                screen.print(contacts::described(now, contact).unwrap_or_default());
            }
            rt::Contact::Closed(None) => return true,
        }
        false
    }

    /// Whether the peer has replied, and did so lately.
    pub(super) fn is_answering(&self) -> bool {
        self.is_answered && !self.is_warned
    }

    /// Why nothing can be sent now.
    pub(super) fn pause(&self, now: Time) -> Option<String> {
        contacts::described(now, self.contact)
    }

    /// Reports that nobody listens. Continues, since the peer may start later.
    pub(super) fn on_refused(&mut self, address: SocketAddr, screen: &Screen) {
        if !self.is_warned {
            self.is_warned = true;
            screen.print(format_args!(
                "no program listens on {address}; still trying. Is `slowlight {}?",
                self.server
            ));
        }
    }

    /// Looks at the replies, if the peer is expected to send any, and reports the first one after
    /// a warning.
    pub(super) fn observe(
        &mut self,
        now: Time,
        transport: &dyn Transport,
        expects: bool,
        screen: &Screen,
    ) {
        let counted = transport.counters().datagrams.filter(|_| expects && !self.is_one_way);
        let Some((sent, received)) = counted else {
            self.is_answered = true;
            return;
        };
        let before = std::mem::replace(&mut self.counted, (sent, received));
        if received > before.1 {
            self.is_answered = true;
            self.unanswered_since = None;
            if std::mem::take(&mut self.is_warned) {
                screen.print(format_args!("{} answers now", self.to));
            }
        } else if sent > before.0 {
            self.unanswered_since.get_or_insert(now);
        }
    }

    /// Reports that a peer does not reply. Every protocol requests replies while it sends.
    pub(super) fn check(&mut self, now: Time, screen: &Screen) {
        let since = self.unanswered_since.filter(|since| now.since(*since) >= self.patience);
        let is_due = since.is_some() && self.is_quick && self.contact == rt::Contact::Open;
        if is_due && !self.is_warned {
            self.is_warned = true;
            screen.print(transfer::silence(self.to, self.patience, &self.server));
            self.patience = self.patience_max.min(2 * self.patience);
        }
    }
}

/// Command that has to run at the peer, and where, after its opening backtick.
fn server(protocol: &Protocol, put: Option<&PutRequest>, serve: &str) -> String {
    let number = put.map(|put| format!(" as entity {}", put.destination)).unwrap_or_default();
    let or_any = if door::takes(protocol.kind) {
        format!(" (or `recv{serve}` without --protocol)")
    } else {
        String::new()
    };
    format!("recv --protocol {protocol}{serve}`{or_any} running there{number}")
}

/// Whether the peer replies to what is sent. `put` is the request to a CFDP entity, if there is
/// one.
pub(super) fn expects_replies(
    transport: &dyn Transport,
    protocol: &Protocol,
    put: Option<&PutRequest>,
    is_group: bool,
) -> bool {
    match put {
        Some(put) => is_acknowledged(put) || replies_below(transport),
        // Members of a group only request retransmissions.
        None => protocol.kind.is_reliable() && !is_group,
    }
}

pub(super) fn is_acknowledged(put: &PutRequest) -> bool {
    put.mode != Some(TransmissionMode::Unacknowledged)
}

pub(super) fn replies_below(transport: &dyn Transport) -> bool {
    transport.cfdp().is_some_and(CfdpUser::replies_below)
}
