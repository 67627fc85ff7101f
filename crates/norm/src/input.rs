//! Dispatch of received messages to senders and receivers.

use engine::{PathId, Receive, Time};
use session::Base;
use session::path::Handle;

use super::core::Core;
use super::indication::{Failure, Limit};
use super::receiver::{Receiver, SenderId};
use super::report::Report;
use super::sender::Sender;
use super::{Node, Session};
use crate::message::{Ack, Body, Command, Message, Nack, NodeId};

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
            Body::Nack(nack) => self.on_nack(now, receive, message.source, nack),
            Body::Ack(ack) => self.on_ack(now, receive, message.source, ack),
            Body::Info(_) | Body::Data(_) | Body::Command(_) => {
                self.on_sender(now, receive, &message, datagram.len());
            }
            Body::Report(_) => {}
        }
    }

    /// Processes a reply to the sender with this instance of the node.
    fn on_reply(&mut self, instance: u16, process: impl FnOnce(&mut Sender, &mut Core)) {
        let mut senders = self.senders.values();
        let is_its = |handle: &&Handle| matches!(self.slots.get(**handle), Some(Session::Sender(it)) if it.is(instance));
        let handle = senders.find(is_its).copied();
        match handle.and_then(|handle| self.slots.get_mut(handle)) {
            Some(Session::Sender(sender)) => process(sender, &mut self.core),
            Some(Session::Receiver(_) | Session::Object { .. }) | None => {
                self.core.stats.stray += 1;
            }
        }
        self.free_places();
    }

    /// Processes a reply to another node.
    fn on_overheard(&mut self, server: SenderId, process: impl FnOnce(&mut Receiver, &mut Core)) {
        let handle = self.receivers.get(&server).copied();
        let session = handle.and_then(|handle| self.slots.get_mut(handle));
        if let Some(Session::Receiver(receiver)) = session {
            process(receiver, &mut self.core);
        }
    }

    fn on_nack(&mut self, now: Time, receive: &Receive<'_>, node: NodeId, nack: &Nack<'_>) {
        if nack.server == self.core.node {
            let is_private = receive.path == receive.from;
            return self.on_reply(nack.instance, |sender, core| {
                sender.on_nack(core, now, node, nack, is_private);
            });
        }
        self.on_overheard(SenderId { path: receive.path, node: nack.server }, |receiver, core| {
            receiver.on_other_requests(&nack.requests);
            receiver.on_other_feedback(core, now, nack.cc, Report::find(&nack.others));
        });
    }

    fn on_ack(&mut self, now: Time, receive: &Receive<'_>, node: NodeId, ack: &Ack<'_>) {
        if ack.server == self.core.node {
            let is_private = receive.path == receive.from;
            return self.on_reply(ack.instance, |sender, core| {
                sender.on_ack(core, now, node, ack, is_private);
            });
        }
        self.on_overheard(SenderId { path: receive.path, node: ack.server }, |receiver, core| {
            receiver.on_other_feedback(core, now, ack.cc, Report::find(&ack.others));
        });
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
            object.resume_late(&mut self.core, waits);
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
