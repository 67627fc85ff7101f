//! Changes of TCP's connections.

use proto::tcp;
pub use proto::tcp::BufferLimit as TcpBuffers;
pub use proto::tcp::cc::Named as Congestion;

use super::Changes;
use crate::quantity::Size;

/// Changes of TCP's connections.
pub type TcpSettings = Changes<tcp::Options>;

const SEND_BUFFER: &[&str] = &["send_buffer"];
const RECEIVE_BUFFER: &[&str] = &["receive_buffer"];

impl TcpSettings {
    /// Limits the growth of the buffers, in place of sizes given before.
    pub fn limit_buffers(&mut self, buffers: TcpBuffers) {
        self.set(&["buffers"], buffers.name());
        for size in [SEND_BUFFER, RECEIVE_BUFFER] {
            self.remove(size);
        }
        for initial in ["send_buffer_initial", "receive_buffer_initial"] {
            self.remove(&[initial]);
        }
    }

    /// Most bytes of the send buffer and of the receive buffer, if either is given.
    #[must_use]
    pub fn most_buffers(&self) -> Option<(u64, u64)> {
        let size = |path| self.get(path)?.as_str()?.parse().map(Size::bytes).ok();
        let (send, receive) = (size(SEND_BUFFER), size(RECEIVE_BUFFER));
        let limit = self.get(&["buffers"]).and_then(|limit| {
            TcpBuffers::ALL.iter().find(|known| limit.as_str() == Some(known.name()))
        });
        if send.is_none() && receive.is_none() && limit.is_none() {
            return None;
        }
        let most = limit.copied().unwrap_or_default().most();
        Some((send.unwrap_or(most.0), receive.unwrap_or(most.1)))
    }
}
