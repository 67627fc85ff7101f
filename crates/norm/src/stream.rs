//! User interface of streams.

use engine::Time;

use super::indication::{Content, ObjectId, Piece, RequestError};
use super::{Config, Node};

/// Checks whether a stream may be sent.
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
    /// Writes bytes to a stream sent by this node. Returns how many were accepted. If not all were,
    /// [`Indication::Writable`](super::Indication::Writable) reports when there is room. An
    /// incomplete segment is sent only when filled, or after [`Node::flush`].
    ///
    /// # Errors
    /// There is no such stream, or it was closed.
    pub fn write(&mut self, now: Time, id: ObjectId, bytes: &[u8]) -> Result<usize, RequestError> {
        self.on_stream(now, id, |stream| stream.write(bytes))
    }

    /// Marks the next byte written as the beginning of a message, where readers that join late or
    /// lost data can start. The stream's first byte always is one.
    ///
    /// # Errors
    /// There is no such stream, or it was closed.
    pub fn begin_message(&mut self, now: Time, id: ObjectId) -> Result<(), RequestError> {
        self.on_stream(now, id, super::outgoing::Outgoing::begin_message)
    }

    /// Sends everything written so far, even an incomplete segment.
    ///
    /// # Errors
    /// There is no such stream, or it was closed.
    pub fn flush(&mut self, now: Time, id: ObjectId) -> Result<(), RequestError> {
        self.on_stream(now, id, super::outgoing::Outgoing::flush)
    }

    /// Closes a stream sent by this node: written data is sent, with an end mark. Once it has
    /// arrived, the object is [`Finished`](super::Finished).
    ///
    /// # Errors
    /// There is no such stream, or it was closed.
    pub fn close(&mut self, now: Time, id: ObjectId) -> Result<(), RequestError> {
        self.on_stream(now, id, super::outgoing::Outgoing::end_stream)
    }

    /// Applies `act` to a stream sent by this node.
    fn on_stream<T>(
        &mut self,
        now: Time,
        id: ObjectId,
        act: impl FnOnce(&mut super::outgoing::Outgoing) -> T,
    ) -> Result<T, RequestError> {
        let unknown = RequestError::NotWritable(id);
        let ours = id.sender == self.core.node.0;
        let sender = self.senders.get_mut(&id.peer).filter(|_| ours);
        let Some(sender) = sender else { return Err(unknown) };
        let stream = sender.writable(id.number).ok_or(unknown)?;
        let result = act(stream);
        sender.written(&mut self.core, now);
        self.free_places();
        Ok(result)
    }

    /// Next piece of a received stream; `None` if nothing is readable. Unread pieces use memory;
    /// when too many wait, nothing more is received.
    pub fn read(&mut self, now: Time, id: ObjectId) -> Option<Piece> {
        let Self { receivers, core, .. } = self;
        core.now = now;
        let mut of_sender = receivers.values_mut().filter(|it| it.sender.node.0 == id.sender);
        let piece = of_sender.find_map(|receiver| {
            let object = receiver.object(id.number).filter(|object| object.id == id)?;
            let piece = object.read(core);
            receiver.settle(core);
            piece
        });
        self.free_places();
        piece
    }
}
