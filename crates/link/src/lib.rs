//! The channel model: one direction of a link.
//!
//! `queue → serialiser (rate, token bucket, framing) → propagation (delay over time) → errors`,
//! gated by a plan of outages, and optionally with an erasure code over frames. A [`Link`] is a
//! pure state machine without clock, thread or hidden randomness, so the same code serves a
//! discrete-event simulator and a real-time emulator. Every time it reports is *logical*: computed
//! from the configuration and the times of the pushes, never from the time of a call. A driver
//! that calls late delays only that call.
//!
//! ```
//! use std::time::Duration;
//!
//! use engine::{Rng, Time};
//! use link::{Config, Delay, Fate, Link, Rate};
//!
//! let config = Config {
//!     rate: Rate::Constant(8_000_000),
//!     delay: Delay::Constant(Duration::from_millis(250)),
//!     ..Config::default()
//! };
//! let mut link = Link::new(config, Rng::new(1, "uplink")).expect("a valid configuration");
//! link.push(Time::ZERO, 1_000, "packet").expect("the queue is empty");
//! // 1,000 bytes at 1 byte a microsecond are 1 ms, then 250 ms of propagation.
//! assert_eq!(link.next(), Some(Time::from_nanos(251_000_000)));
//! let departure = link.pop(Time::from_nanos(251_000_000)).expect("it is due");
//! assert_eq!((departure.item, departure.fate), ("packet", Fate::Delivered));
//! ```

mod config;
mod damage;
mod erasure;
mod errors;
mod flight;
mod framing;
mod line;
mod link;
mod near;
mod outages;
mod path_outages;
mod rate;
mod room;
mod serialiser;
mod stats;

pub use config::{Config, ConfigError, Delay, Interpolation, Queue, Release, Reorder, WhileDown};
pub use damage::Damage;
pub use erasure::Erasure;
pub use errors::{ErrorKind, ErrorModel, ErrorVector, LossCause, OnError, StateErrors};
pub use flight::{Departure, Fate};
pub use framing::{Fcs, Framing, Stuffing};
pub use line::{HeaderCompression, Left, Line, LineStats};
pub use link::{Link, Rejected};
pub use outages::{Outages, Window};
pub use path_outages::{Back, PathOutages};
pub use rate::{Rate, RateStep, TokenBucket};
pub use stats::{Count, Stats};

/// Returns the name of the random stream (`engine::Rng`) of a link's errors, the same in every
/// world: with the same seed, the same errors. `number` counts links between the same two hosts.
#[must_use]
pub fn stream(from: &str, to: &str, number: usize) -> String {
    format!("link {from} {to} {number}")
}
