//! Watch over a peer that may not reply.

use std::net::SocketAddr;
use std::time::Duration;

use cfdp::PutRequest;
use cfdp::pdu::TransmissionMode;
use engine::Time;
use transport::contract::Feature;
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
    protocol: Protocol,
    /// Time without a reply after which a warning is due.
    patience: Duration,
    /// Whether a peer that does not reply for a while is worth a warning.
    pub(super) is_quick: bool,
    /// Whether the peer has replied, or will not.
    pub(super) is_answered: bool,
    /// Whether the user was warned that nobody listens or replies.
    is_warned: bool,
    /// Time of the last progress, or the begin of a contact.
    since: Time,
    /// Whether progress counts as a sign of life: a sender without a rate may be slow at first.
    ignores_progress: bool,
    contact: rt::Contact,
}

impl Watch {
    pub(super) fn new(
        now: Time,
        to: SocketAddr,
        options: &transfer::Options,
        is_quick: bool,
    ) -> Self {
        let protocol = options.protocol.clone();
        Self {
            to,
            patience: transfer::patience(options.light_time()),
            is_quick,
            is_answered: false,
            is_warned: false,
            since: now,
            // Without --rate a sender may be slow until receivers report their rate.
            ignores_progress: options.rate.is_none() && protocol.kind.has(Feature::Multicast),
            protocol,
            contact: rt::Contact::Open,
        }
    }

    /// Restarts with a transfer.
    pub(super) fn begin(&mut self, now: Time) {
        self.since = now;
    }

    /// Notes progress.
    pub(super) fn advance(&mut self, now: Time) {
        if !self.ignores_progress {
            self.since = now;
        }
    }

    /// Reports the end of a contact. Returns whether it was the last one, after which nothing more
    /// can happen.
    pub(super) fn on_contact(&mut self, now: Time, contact: rt::Contact, screen: &Screen) -> bool {
        self.contact = contact;
        match contact {
            rt::Contact::Open => self.since = now,
            rt::Contact::Closed(Some(_)) => {
                screen.print(contacts::described(now, contact).unwrap_or_default());
            }
            rt::Contact::Closed(None) => return true,
        }
        false
    }

    /// Why nothing can be sent now.
    pub(super) fn pause(&self, now: Time) -> Option<String> {
        contacts::described(now, self.contact)
    }

    /// Reports once that nobody listens. Continues, since the peer may start later.
    pub(super) fn on_refused(&mut self, address: SocketAddr, screen: &Screen) {
        if !self.is_warned {
            self.is_warned = true;
            screen.print(format_args!("no program listens on {address}; still trying"));
        }
    }

    /// Reports once that a peer does not reply, when nothing was sent for a while either. `serve`
    /// is what the command of the peer needs besides its protocol.
    pub(super) fn check(
        &mut self,
        now: Time,
        put: Option<&PutRequest>,
        serve: &str,
        screen: &Screen,
    ) {
        let is_late = now.since(self.since) >= self.patience;
        let is_due = is_late && self.is_quick && self.contact == rt::Contact::Open;
        if self.is_warned || self.is_answered || !is_due {
            return;
        }
        self.is_warned = true;
        let number = put.map(|put| format!(" as entity {}", put.destination)).unwrap_or_default();
        let or_any = if door::takes(self.protocol.kind) && serve.is_empty() {
            " (or `recv` without --protocol)"
        } else {
            ""
        };
        let server =
            format!("recv --protocol {}{serve}`{or_any} running there{number}", self.protocol);
        screen.print(transfer::silence(self.to, self.patience, &server));
    }
}

/// Whether the peer has replied to what was sent, or never will. `put` is the request to a CFDP
/// entity, if there is one.
pub(super) fn has_answered(
    transport: &dyn Transport,
    protocol: &Protocol,
    put: Option<&PutRequest>,
    is_group: bool,
) -> bool {
    let expects = match put {
        Some(put) => is_acknowledged(put) || replies_below(transport),
        // Members of a group only request retransmissions.
        None => protocol.kind.is_reliable() && !is_group,
    };
    !expects || transport.counters().datagrams.is_none_or(|(_, received)| received > 0)
}

pub(super) fn is_acknowledged(put: &PutRequest) -> bool {
    put.mode != Some(TransmissionMode::Unacknowledged)
}

pub(super) fn replies_below(transport: &dyn Transport) -> bool {
    transport.cfdp().is_some_and(CfdpUser::replies_below)
}
