//! One engine on streams of the kernel's TCP.

mod attempts;
mod config;
mod driver;
mod kernel_stream;
mod listeners;
mod options;
mod poll;
mod table;
#[cfg(test)]
mod tests;
mod timer;
mod tls;

pub use self::config::{Listening, StreamConfig, StreamEvent, StreamStatistics};
pub use self::driver::StreamDriver;
pub use self::options::StreamOptions;
pub use self::tls::{Tls, TlsError, TlsFiles};

/// Result of reading.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Got {
    /// TLS is established; the node IDs in the peer's certificate.
    Secured(Vec<String>),
    /// This many bytes.
    Bytes(usize),
    /// Nothing for now.
    Nothing,
    /// The peer has ended its direction, with a TLS close alert where TLS is used.
    End,
    /// The connection has ended: reset, or timed out by the system.
    Lost,
}

/// Raises the limit of open descriptors to `wanted`, as far as possible. Returns the limit.
///
/// # Errors
///
/// The system refuses although its hard limit would allow it.
pub fn allow_descriptors(wanted: u64) -> std::io::Result<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let limit = getrlimit(Resource::Nofile);
    let now = limit.current.unwrap_or(u64::MAX);
    if now >= wanted {
        return Ok(now);
    }
    let raised = |maximum| setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum });
    if limit.maximum.is_some_and(|maximum| maximum < wanted) {
        // Only a privileged process can raise the hard limit.
        if raised(Some(wanted)).is_ok() {
            return Ok(wanted);
        }
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
        return Ok(limit.maximum.unwrap_or(u64::MAX));
    }
    raised(limit.maximum)?;
    Ok(wanted)
}
