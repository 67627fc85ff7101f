//! Dispatch of received messages to senders and receivers.

use engine::{PathId, Receive, Time};
use session::Base;

use super::core::Core;
use super::incoming::identity::Identity;
use super::indication::{Failure, Limit};
use super::receiver::{Receiver, SenderId, Yield};
use super::report::Report;
use super::sender::Sender;
use super::{Node, Slot};
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
        match self.senders.values_mut().find(|sender| sender.is(instance)) {
            Some(sender) => process(sender, &mut self.core),
            None => self.core.stats.stray += 1,
        }
        self.free_places();
    }

    /// Processes a reply to another node.
    fn on_overheard(&mut self, server: SenderId, process: impl FnOnce(&mut Receiver, &mut Core)) {
        if let Some(receiver) = self.receivers.get_mut(&server) {
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
            receiver.on_other_feedback(core, nack.cc, Report::find(&nack.others));
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
            receiver.on_other_feedback(core, ack.cc, Report::find(&ack.others));
        });
    }

    /// Processes a message of a sender.
    fn on_sender(&mut self, now: Time, receive: &Receive<'_>, message: &Message<'_>, len: usize) {
        let Some(header) = message.body.sender() else { return };
        // Before the records of an earlier process are read, it is not known what to resume.
        if !self.core.config.receiver.enabled || !self.core.partials.is_restored {
            self.core.stats.stray += 1;
            return;
        }
        let key = SenderId { path: receive.path, node: message.source };
        // A repeated end of session starts nothing.
        let is_end = matches!(message.body, Body::Command(Command::Eot { .. }));
        if is_end && !self.receivers.contains_key(&key) {
            return;
        }
        if !self.begin_receiver(now, key, receive.from, header) {
            self.core.stats.stray += 1;
            return;
        }
        let receiver = self.receivers.get(&key);
        let may_begin = receiver.is_some_and(|it| it.may_begin(&self.core, &message.body));
        let number = match &message.body {
            _ if !may_begin => None,
            Body::Info(info) => self.reach_object(key, info.object),
            Body::Data(data) => self.reach_object(key, data.object),
            Body::Command(Command::Flush { object, .. }) => self.reach_object(key, *object),
            Body::Command(_) | Body::Nack(_) | Body::Ack(_) | Body::Report(_) => None,
        };
        if matches!(message.body, Body::Command(Command::Cc { .. } | Command::Flush { .. })) {
            self.take_over(key, None);
        }
        let Some(receiver) = self.receivers.get_mut(&key) else { return };
        let core = &mut self.core;
        let is_data = matches!(message.body, Body::Data(_));
        receiver.arrived(core, message.sequence, len, is_data);
        match &message.body {
            Body::Info(info) => match number {
                Some(number) => receiver.on_info(core, number, info),
                None => {
                    core.stats.stray += 1;
                    receiver.confirm_stored(core, info);
                }
            },
            Body::Data(data) => match number {
                Some(number) => receiver.on_data(core, number, data),
                None => core.stats.duplicate_data += 1,
            },
            Body::Command(command) => receiver.on_command(core, message.sequence, command),
            Body::Nack(_) | Body::Ack(_) | Body::Report(_) => {}
        }
        receiver.greeted(core);
        receiver.reseat(core);
        if let (Body::Info(_), Some(number)) = (&message.body, number) {
            self.take_over(key, Some(number));
        }
        self.free_places();
    }

    /// Resumes objects of senders that are gone, if this one offers the same: the object of this
    /// number, or some of those that wait, in turn.
    fn take_over(&mut self, key: SenderId, number: Option<u64>) {
        let Some(receiver) = self.receivers.get_mut(&key) else { return };
        let fresh = receiver.fresh(&self.core, number);
        if fresh.is_empty() {
            return;
        }
        for (number, identity, former) in fresh {
            self.take_object_over(key, number, &identity, former);
        }
        if let Some(receiver) = self.receivers.get_mut(&key) {
            receiver.settle(&mut self.core);
            receiver.greeted(&mut self.core);
        }
    }

    /// Resumes an object of a sender that is gone, if one has the same.
    fn take_object_over(
        &mut self,
        key: SenderId,
        number: u64,
        identity: &Identity,
        former: Option<u16>,
    ) {
        let core = &mut self.core;
        let (mut waits, mut found) = (false, None);
        for (id, other) in self.receivers.iter_mut().filter(|(other, _)| **other != key) {
            let paths = &core.shared.paths;
            // Anyone can name a node and its instance.
            let is_same_host = paths.host(id.path) == paths.host(key.path);
            match other.yield_to(core, identity, former.filter(|_| is_same_host)) {
                Yield::Nothing => {}
                Yield::Waits => waits = true,
                Yield::Object(object) => {
                    found = Some(object);
                    break;
                }
            }
        }
        let Some(receiver) = self.receivers.get_mut(&key) else { return };
        match (receiver.object(number), found) {
            (Some(object), Some(found)) => {
                let left = object.adopt(core, *found);
                self.slots.fill(object.handle, Slot::Received(key, number));
                core.free.push(left.handle);
            }
            (Some(object), None) => object.resume_late(core, waits),
            (None, _) => {}
        }
    }

    /// Begins the session of a sender, if there is none; one that restarted gets a new session.
    /// Returns `false` if there is no room, or the message is a late one.
    fn begin_receiver(
        &mut self,
        now: Time,
        key: SenderId,
        from: PathId,
        header: crate::message::Sender,
    ) -> bool {
        let mut former = None;
        if let Some(receiver) = self.receivers.get_mut(&key) {
            if receiver.greet(&mut self.core, from, header) {
                return true;
            }
            if receiver.is_former(now, header.instance) {
                return false;
            }
            former = Some(receiver.former(now));
            self.forget(key);
        }
        if self.receivers.len() >= self.core.config.limits.senders && !self.make_room(now) {
            self.core.user.limit_reached(Limit::Senders);
            return false;
        }
        let handle = self.slots.reserve();
        self.slots.fill(handle, Slot::Receiver(key));
        // Replies go to the group, where others receive them, or to the sender alone.
        let to = if self.core.config.receiver.unicast_nack { from } else { key.path };
        let base = Base::new(&mut self.core.shared.paths, handle, Some(to), now);
        let receiver = Receiver::new(base, key, from, header, former);
        self.receivers.insert(key, Box::new(receiver));
        true
    }

    /// Forgets a sender to make room for another, if one gives way.
    fn make_room(&mut self, now: Time) -> bool {
        let ranks = self.receivers.iter();
        let ranks = ranks.filter_map(|(key, it)| Some((it.gives_way(now)?, *key)));
        let Some((_, key)) = ranks.min() else { return false };
        self.forget(key);
        true
    }

    fn forget(&mut self, key: SenderId) {
        let Some(mut receiver) = self.receivers.remove(&key) else { return };
        receiver.drop_all(&mut self.core, &Failure::Abandoned);
        receiver.base.disarm_all(&mut self.core.shared);
        self.slots.take(receiver.base.seat.handle);
        self.core.user.limit_left(Limit::Senders);
        self.free_places();
    }

    fn reach_object(&mut self, key: SenderId, number: u16) -> Option<u64> {
        let receiver = self.receivers.get_mut(&key)?;
        let mut places: Vec<_> = Vec::new();
        for number in receiver.to_begin(&self.core, number) {
            let place = self.slots.reserve();
            self.slots.fill(place, Slot::Received(key, number));
            places.push(place);
        }
        let others = self.receivers.iter().filter(|(other, _)| **other != key);
        let may_resume = !places.is_empty() && others.into_iter().any(|(_, it)| it.is_resumable());
        let receiver = self.receivers.get_mut(&key)?;
        receiver.begin(&mut self.core, number, &places, may_resume)
    }
}
