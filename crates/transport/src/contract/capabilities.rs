//! Capabilities: operations of some protocols, which their transports and configurations return as
//! trait objects.

use std::net::Ipv4Addr;
use std::time::Duration;

use engine::{PathId, Time};
use norm::Piece;

use super::{RequestError, SendRequest};
use crate::event::{Event, TransferId};
use crate::settings::Settings;

/// Operations of a CFDP entity's user.
pub trait CfdpUser {
    /// The entity.
    fn entity(&self) -> &cfdp::Entity;

    /// Sends a file or messages.
    ///
    /// # Errors
    ///
    /// The entity refuses.
    fn put(
        &mut self,
        now: Time,
        request: cfdp::PutRequest,
    ) -> Result<cfdp::pdu::TransactionId, cfdp::RequestError>;

    /// Event that other protocols report in place of an indication of the entity.
    fn report(&self, indication: cfdp::Indication) -> Event;

    /// Whether the layer below needs time to reply to its peer after a transfer.
    fn replies_below(&self) -> bool;

    /// Carries out another request of the entity.
    fn operate(&mut self, now: Time, operation: &mut dyn FnMut(&mut cfdp::Entity));
}

/// Streams of bytes without a length.
pub trait Streams {
    /// Begins a stream of this name on a path. With `push`, new data overwrites data that
    /// receivers lack; without it, the writer waits for them.
    ///
    /// # Errors
    ///
    /// The transport refuses.
    fn open(
        &mut self,
        now: Time,
        path: PathId,
        name: &str,
        push: bool,
    ) -> Result<TransferId, RequestError>;

    /// Writes as many bytes as fit, and returns their number.
    ///
    /// # Errors
    ///
    /// The stream has ended.
    fn write(&mut self, now: Time, id: &TransferId, bytes: &[u8]) -> Result<usize, RequestError>;

    /// Sends all written data, however little.
    ///
    /// # Errors
    ///
    /// The stream has ended.
    fn flush(&mut self, now: Time, id: &TransferId) -> Result<(), RequestError>;

    /// Ends a stream after its last data is sent.
    ///
    /// # Errors
    ///
    /// The stream has ended.
    fn close(&mut self, now: Time, id: &TransferId) -> Result<(), RequestError>;

    /// Next bytes of a stream, or a gap in it; `None` if no more have arrived yet.
    fn read(&mut self, now: Time, id: &TransferId) -> Option<Piece>;
}

/// Directories of peers.
pub trait Directories {
    /// Fetches a file of a peer.
    ///
    /// # Errors
    ///
    /// The transport refuses.
    fn fetch(&mut self, now: Time, request: &SendRequest) -> Result<TransferId, RequestError>;

    /// Requests the contents of a peer's directory.
    ///
    /// # Errors
    ///
    /// The transport refuses.
    fn list(
        &mut self,
        now: Time,
        peer: PathId,
        directory: &str,
    ) -> Result<TransferId, RequestError>;

    /// Requests that a peer delete a file.
    ///
    /// # Errors
    ///
    /// The transport refuses.
    fn delete(&mut self, now: Time, peer: PathId, name: &str) -> Result<TransferId, RequestError>;

    /// Sets the announced free space for files, in KiB.
    fn set_free_space(&mut self, kib: Option<u64>);
}

/// Groups to which a transport sends.
pub trait Groups {
    /// Loss of segments to the receiver that lost most, and the number of segments that it was
    /// measured with.
    fn loss(&self) -> Option<(f64, f64)>;

    /// Starts to notify the peer of the end of this process; `true` if [`Event::Left`] follows.
    fn leave(&mut self, now: Time, peer: PathId) -> bool;
}

/// Membership of groups, in a configuration.
pub trait Membership {
    /// Joins the group of a path.
    fn join(&mut self, path: PathId);

    /// Sets the number of receivers of its group, unless `settings` do: the receivers to wait for,
    /// and the assumed size of the group.
    fn set_receivers(&mut self, count: u32, settings: Option<&Settings>);

    /// Uses the loss of an earlier transfer to the same peer, measured with this number of
    /// segments.
    fn set_earlier_loss(&mut self, loss: f64, segments: f64);

    /// Receives a stream instead of files.
    fn receive_stream(&mut self);

    /// Whether files are sent without acknowledgements.
    fn is_one_way(&self) -> bool;
}

/// Code over whole files, which needs no acknowledgements, in a configuration.
pub trait FileCode {
    /// Sends files without acknowledgements: so that each is delivered with a probability, and
    /// repeatedly for a time. `None` leaves what the settings have.
    fn send_one_way(&mut self, confidence: Option<f64>, carousel: Option<Duration>);
}

/// Peers that the settings of a configuration name, by their addresses or numbers.
pub trait NamedPeers {
    /// Their names.
    fn names(&self) -> Vec<String>;

    /// Applies the settings of a peer, if it is named, to its path; returns its rate, if they
    /// contain one.
    fn apply_to(&mut self, path: PathId, name: &str) -> Option<u64>;
}

/// Beacons, in a configuration.
pub trait Beacons {
    /// Whether it sends beacons.
    fn is_on(&self) -> bool;

    /// Sends beacons on one more path, at this interval if one is given, otherwise if it has
    /// beacons.
    fn add(&mut self, path: PathId, interval: Option<Duration>);

    /// Identifier that they announce.
    fn identifier(&self) -> &str;

    /// Sets the identifier that they announce.
    fn set_identifier(&mut self, identifier: &str);
}

/// IP interfaces as the paths of a configuration.
pub trait Interfaces {
    /// Sets its own address and port, and its interfaces.
    fn set_own(&mut self, address: Ipv4Addr, port: u16, interfaces: &[PathId]);

    /// Sets the address of the peer of a path, and the interface to it.
    fn set_peer(&mut self, path: PathId, address: Ipv4Addr, port: u16, by: PathId);
}
