//! Changes of TCP's connections.
pub use tcp::BufferLimit as TcpBuffers;
pub use tcp::cc::Named as Congestion;

use super::Changes;
use crate::quantity::Size;

/// Changes of TCP's connections.
pub type TcpSettings = Changes<tcp::Options>;

impl TcpSettings {
    /// Maximum bytes of the send buffer and of the receive buffer in Linux, if either is given. The
    /// setting `receive_buffer` is a window, which needs more memory.
    #[must_use]
    pub fn most_buffers(&self) -> Option<(u64, u64)> {
        let size = |key| self.get(&[key])?.as_str()?.parse().map(Size::bytes).ok();
        let send = size("send_buffer");
        let receive = size("receive_buffer").map(TcpBuffers::memory_of_window);
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
