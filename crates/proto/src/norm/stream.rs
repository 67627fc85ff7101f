//! Streams, as their users see them.

use engine::Time;

use super::indication::{Content, ObjectId, Piece, RequestError};
use super::{Config, Node, Session};

/// Whether a stream may be sent.
pub(super) fn check(config: &Config, content: &Content) -> Result<(), RequestError> {
    let most = config.limits.stream;
    match content {
        Content::Stream(options) if options.buffer > most => Err(RequestError::Settings(format!(
            "the stream's buffer of {} bytes is larger than allowed, {most}",
            options.buffer
        ))),
        Content::Stream(_) | Content::File(_) | Content::Data(_) => Ok(()),
    }
}

impl Node {
    /// Hands in bytes of a stream that this node sends; how many of them were taken. Where these are
    /// less than all, [`Indication::Writable`](super::Indication::Writable) tells when there is room.
    /// Less than a segment is sent only with more, or after [`Node::flush`].
    ///
    /// # Errors
    /// There is no such stream, or it was closed.
    pub fn write(&mut self, now: Time, id: ObjectId, bytes: &[u8]) -> Result<usize, RequestError> {
        self.on_stream(now, id, |stream| stream.write(bytes))
    }

    /// The byte written next begins a message: a reader that joins late, or lost something, finds it.
    /// The stream's first byte always does.
    ///
    /// # Errors
    /// There is no such stream, or it was closed.
    pub fn begin_message(&mut self, now: Time, id: ObjectId) -> Result<(), RequestError> {
        self.on_stream(now, id, super::outgoing::Outgoing::begin_message)
    }

    /// Sends what was written, though it is less than a segment.
    ///
    /// # Errors
    /// There is no such stream, or it was closed.
    pub fn flush(&mut self, now: Time, id: ObjectId) -> Result<(), RequestError> {
        self.on_stream(now, id, super::outgoing::Outgoing::flush)
    }

    /// Ends a stream that this node sends: what was written is sent, and that it was all. When it
    /// arrived, the object is [`Finished`](super::Finished).
    ///
    /// # Errors
    /// There is no such stream, or it was closed.
    pub fn close(&mut self, now: Time, id: ObjectId) -> Result<(), RequestError> {
        self.on_stream(now, id, super::outgoing::Outgoing::end_stream)
    }

    /// Does something with a stream that this node sends.
    fn on_stream<T>(
        &mut self,
        now: Time,
        id: ObjectId,
        act: impl FnOnce(&mut super::outgoing::Outgoing) -> T,
    ) -> Result<T, RequestError> {
        let unknown = RequestError::NotWritable(id);
        let ours = id.sender == self.core.node.0;
        let handle = self.senders.get(&id.peer).copied().filter(|_| ours);
        let session = handle.and_then(|handle| self.slots.get_mut(handle));
        let Some(Session::Sender(sender)) = session else { return Err(unknown) };
        let stream = sender.writable(id.number).ok_or(unknown)?;
        let result = act(stream);
        sender.written(&mut self.core, now);
        self.free_places();
        Ok(result)
    }

    /// The next piece of a stream that is received; `None` if there is none now. What is not fetched
    /// takes room: where too much waits, nothing more is received.
    pub fn read(&mut self, now: Time, id: ObjectId) -> Option<Piece> {
        let Self { slots, core, .. } = self;
        let piece = slots.iter_mut().find_map(|session| match session {
            Session::Receiver(receiver) if receiver.sender.node.0 == id.sender => {
                let object = receiver.object(id.number).filter(|object| object.id == id)?;
                let piece = object.read(core);
                receiver.settle(core, now);
                piece
            }
            Session::Sender(_) | Session::Receiver(_) | Session::Object { .. } => None,
        });
        self.free_places();
        piece
    }
}
