//! Dispatch of received messages to senders and receivers.

use engine::{PathId, Receive, Time};
use session::Base;
use session::path::Handle;

use super::indication::{Failure, Limit};
use super::receiver::{Receiver, SenderId};
use super::report::Report;
use super::{Node, Session};
use crate::message::{Body, Command, Message};

impl Node {
    /// Processes a received datagram.
    pub(super) fn receive(&mut self, now: Time, receive: &Receive<'_>, datagram: &[u8]) {
        let Ok(message) = Message::decode(datagram) else {
            self.core.stats.decode_errors += 1;
            return;
        };
        self.core.stats.received.count(&message.body);
        // A group may loop back own messages.
        if message.source == self.core.node {
            return;
        }
        match &message.body {
            Body::Nack(_) | Body::Ack(_) => self.on_feedback(now, receive, &message),
            Body::Info(_) | Body::Data(_) | Body::Command(_) => {
                self.on_sender(now, receive, &message, datagram.len());
            }
            Body::Report(_) => {}
        }
    }

    /// Processes a message of a receiver, addressed to this node or overheard.
    fn on_feedback(&mut self, now: Time, receive: &Receive<'_>, message: &Message<'_>) {
        let node = message.source;
        let (server, instance) = match &message.body {
            Body::Nack(nack) => (nack.server, nack.instance),
            Body::Ack(ack) => (ack.server, ack.instance),
            Body::Info(_) | Body::Data(_) | Body::Command(_) | Body::Report(_) => return,
        };
        if server != self.core.node {
            let key = SenderId { path: receive.path, node: server };
            let Some(handle) = self.receivers.get(&key).copied() else { return };
            let Some(Session::Receiver(receiver)) = self.slots.get_mut(handle) else { return };
            match &message.body {
                Body::Nack(nack) => {
                    receiver.on_other_requests(&nack.requests);
                    let report = Report::find(&nack.others);
                    receiver.on_other_feedback(&mut self.core, now, nack.cc, report);
                }
                Body::Ack(ack) => {
                    let report = Report::find(&ack.others);
                    receiver.on_other_feedback(&mut self.core, now, ack.cc, report);
                }
                Body::Info(_) | Body::Data(_) | Body::Command(_) | Body::Report(_) => {}
            }
            return;
        }
        let is_private = receive.path == receive.from;
        let mut found = false;
        for handle in self.senders.values().copied() {
            let Some(Session::Sender(sender)) = self.slots.get_mut(handle) else { continue };
            if !sender.is(instance) {
                continue;
            }
            found = true;
            match &message.body {
                Body::Nack(nack) => {
                    sender.on_nack(&mut self.core, now, node, nack, is_private);
                }
                Body::Ack(ack) => {
                    sender.on_ack(&mut self.core, now, node, ack, is_private);
                }
                Body::Info(_) | Body::Data(_) | Body::Command(_) | Body::Report(_) => {}
            }
            break;
        }
        self.core.stats.stray += u64::from(!found);
        self.free_places();
    }

    /// Processes a message of a sender.
    fn on_sender(&mut self, now: Time, receive: &Receive<'_>, message: &Message<'_>, len: usize) {
        let Some(header) = message.body.sender() else { return };
        if !self.core.config.receiver.enabled {
            self.core.stats.stray += 1;
            return;
        }
        let key = SenderId { path: receive.path, node: message.source };
        // A repeated end of session starts nothing.
        let is_end = matches!(message.body, Body::Command(Command::Eot { .. }));
        if is_end && !self.receivers.contains_key(&key) {
            return;
        }
        let Some(handle) = self.receiver(now, key, receive.from, header) else {
            self.core.stats.stray += 1;
            return;
        };
        let session = self.slots.get(handle);
        let may_begin = matches!(session, Some(Session::Receiver(receiver)) if receiver.may_begin(&self.core, &message.body));
        let number = match &message.body {
            _ if !may_begin => None,
            Body::Info(info) => self.reach_object(handle, info.object),
            Body::Data(data) => self.reach_object(handle, data.object),
            Body::Command(Command::Flush { object, .. }) => self.reach_object(handle, *object),
            Body::Command(_) | Body::Nack(_) | Body::Ack(_) | Body::Report(_) => None,
        };
        if matches!(message.body, Body::Command(Command::Cc { .. })) {
            self.take_over(now, handle);
        }
        let Some(Session::Receiver(receiver)) = self.slots.get_mut(handle) else { return };
        let core = &mut self.core;
        let is_data = matches!(message.body, Body::Data(_));
        receiver.arrived(core, now, message.sequence, (len, is_data));
        match &message.body {
            Body::Info(info) => match number {
                Some(number) => receiver.on_info(core, now, number, info),
                None => core.stats.stray += 1,
            },
            Body::Data(data) => match number {
                Some(number) => receiver.on_data(core, now, number, data),
                None => core.stats.duplicate_data += 1,
            },
            Body::Command(command) => receiver.on_command(core, now, message.sequence, command),
            Body::Nack(_) | Body::Ack(_) | Body::Report(_) => {}
        }
        receiver.greeted(core, now);
        receiver.reseat(core);
        if matches!(message.body, Body::Info(_)) {
            self.take_over(now, handle);
        }
        self.free_places();
    }

    /// Resumes objects of senders that fell silent, if this one offers the same.
    fn take_over(&mut self, now: Time, handle: Handle) {
        let Some(Session::Receiver(receiver)) = self.slots.get(handle) else { return };
        let Some((number, identity)) = receiver.fresh(&self.core) else { return };
        let mut waits = false;
        let others: Vec<_> = self.receivers.values().copied().collect();
        for other in others.into_iter().filter(|other| *other != handle) {
            if let Some(Session::Receiver(receiver)) = self.slots.get_mut(other) {
                waits |= receiver.yield_to(&mut self.core, now, &identity) == Some(false);
            }
        }
        let Some(Session::Receiver(receiver)) = self.slots.get_mut(handle) else { return };
        if let Some(object) = receiver.object(number) {
            object.wait_for_other(waits);
            object.resume_late(&mut self.core);
        }
        receiver.greeted(&mut self.core, now);
    }

    /// Session of a sender; one that restarted gets a new session.
    fn receiver(
        &mut self,
        now: Time,
        key: SenderId,
        from: PathId,
        header: crate::message::Sender,
    ) -> Option<Handle> {
        let mut former = None;
        if let Some(handle) = self.receivers.get(&key).copied() {
            if let Some(Session::Receiver(receiver)) = self.slots.get_mut(handle) {
                if receiver.greet(&mut self.core, now, from, header) {
                    return Some(handle);
                }
                if receiver.is_former(now, header.instance) {
                    return None;
                }
                former = Some(receiver.former(now));
                receiver.drop_all(&mut self.core, now, &Failure::Abandoned);
            }
            self.forget(key);
        }
        if self.receivers.len() >= self.core.config.limits.senders && !self.make_room(now) {
            self.core.user.limit_reached(Limit::Senders);
            return None;
        }
        let handle = self.slots.reserve();
        let config = &self.core.config.receiver;
        // Replies go to the group, where others receive them, or to the sender alone.
        let to = if config.unicast_nack { from } else { key.path };
        let base = Base::new(&mut self.core.shared.paths, handle, Some(to), now);
        let receiver = Receiver::new(base, key, from, header, former);
        self.slots.fill(handle, Session::Receiver(Box::new(receiver)));
        self.receivers.insert(key, handle);
        Some(handle)
    }

    /// Forgets a sender to make room for another, if one gives way.
    fn make_room(&mut self, now: Time) -> bool {
        let ranks = self.receivers.iter().filter_map(|(key, handle)| {
            let Some(Session::Receiver(receiver)) = self.slots.get(*handle) else { return None };
            Some((receiver.gives_way(now)?, *key, *handle))
        });
        let Some((_, key, handle)) = ranks.min() else { return false };
        if let Some(Session::Receiver(receiver)) = self.slots.get_mut(handle) {
            receiver.drop_all(&mut self.core, now, &Failure::Abandoned);
        }
        self.forget(key);
        true
    }

    fn forget(&mut self, key: SenderId) {
        let Some(handle) = self.receivers.remove(&key) else { return };
        if let Some(Session::Receiver(mut receiver)) = self.slots.take(handle) {
            receiver.base.disarm_all(&mut self.core.shared);
        }
        self.core.user.limit_left(Limit::Senders);
        self.free_places();
    }

    fn reach_object(&mut self, handle: Handle, number: u16) -> Option<u64> {
        // Slots are created first: the receiver has no access to them.
        let Some(Session::Receiver(receiver)) = self.slots.get(handle) else { return None };
        let range = receiver.to_begin(&self.core, number);
        let mut places: Vec<_> = Vec::new();
        for number in range {
            let place = self.slots.reserve();
            self.slots.fill(place, Session::Object { of: handle, number });
            places.push(place);
        }
        let Some(Session::Receiver(receiver)) = self.slots.get_mut(handle) else { return None };
        receiver.begin(&mut self.core, number, &places)
    }
}
