//! Bundles that users hand in (RFC 9171 §5.2).

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use engine::{OpenMode, Time};
use wire::bp7::{
    Block, BlockFlags, BundleFlags, BundleId, CrcType, CreationTimestamp, Eid, Extension, Head,
    HopCount, Payload, Primary,
};

use super::super::layer::Content;
use super::config::dtn_time;
use super::intake::{Body, Giver, Intake, Reading};
use super::{Agent, Limit, Priority, RequestError};

/// What a user wants sent.
#[derive(Clone, Debug)]
pub struct SendRequest {
    /// The endpoint from which it comes; `None`: the node's own, administrative one.
    pub source: Option<Eid>,
    /// The endpoint for which it is.
    pub destination: Eid,
    /// Where reports go; `None`: to the node's administrative endpoint.
    pub report_to: Option<Eid>,
    /// How long it is of use.
    pub lifetime: Duration,
    /// Which reports are asked for, and whether it may be fragmented.
    pub flags: BundleFlags,
    /// In this node's own queues.
    pub priority: Priority,
    /// What it carries. A file must stay as it is until the bundle has gone.
    pub payload: Content,
    /// Whether the file goes with the bundle.
    pub owns_file: bool,
}

impl SendRequest {
    /// A bundle with a day to get there.
    #[must_use]
    pub fn new(destination: Eid, payload: impl Into<Bytes>) -> Self {
        Self {
            source: None,
            destination,
            report_to: None,
            lifetime: Duration::from_secs(86_400),
            flags: BundleFlags::default(),
            priority: Priority::Normal,
            payload: Content::Octets(payload.into()),
            owns_file: false,
        }
    }
}

impl Agent {
    /// Sends a bundle. It is safe when [`Indication::Stored`](super::Indication::Stored) says so.
    ///
    /// # Errors
    /// There is no room, or the request contradicts itself; nothing was begun.
    pub fn send(&mut self, now: Time, request: SendRequest) -> Result<BundleId, RequestError> {
        if request.destination.is_none() {
            return Err(RequestError::NoDestination);
        }
        let source = request.source.clone().unwrap_or_else(|| self.config.node.clone());
        if !source.is_none() && !self.is_ours(&source) {
            return Err(RequestError::NotOurs);
        }
        if !self.is_ready {
            return Err(RequestError::NotReady);
        }
        if !self.has_room(request.payload.len()) {
            return Err(RequestError::Full);
        }
        if self.intakes.len() >= self.config.limits.incoming {
            self.user.limit_reached(Limit::Incoming);
            return Err(RequestError::Full);
        }
        let head = self.head(now, source, &request)?;
        let id = head.primary().id();
        let giver = Giver::User { priority: request.priority };
        self.statistics.sourced += 1;
        self.begin(now, giver, head, request.payload, request.owns_file);
        Ok(id)
    }

    /// The head of a bundle that is made here.
    fn head(
        &mut self,
        now: Time,
        source: Eid,
        request: &SendRequest,
    ) -> Result<Head, RequestError> {
        let creation = self.creation(now);
        let report_to = request.report_to.clone().unwrap_or_else(|| self.config.node.clone());
        let primary = Primary {
            flags: request.flags,
            crc: self.config.crc.primary,
            destination: request.destination.clone(),
            source,
            report_to,
            creation,
            lifetime_ms: u64::try_from(request.lifetime.as_millis()).unwrap_or(u64::MAX),
            fragment: None,
        };
        if let Some(conflict) = primary.conflict() {
            return Err(RequestError::Conflict(conflict));
        }
        let blocks = self.first_blocks(creation.time_ms == 0);
        let payload = Payload {
            flags: BlockFlags::default(),
            crc: self.config.crc.payload,
            len: request.payload.len(),
        };
        Head::new(primary, blocks, payload)
            .map_err(|_| RequestError::Conflict("an endpoint has no form in version 7"))
    }

    /// The extension blocks of a bundle that is made here.
    pub(super) fn first_blocks(&self, without_time: bool) -> Vec<Block> {
        let age = without_time.then_some(Extension::BundleAge { age_ms: 0 });
        let hops = self.config.hop_limit.map(|limit| {
            Extension::HopCount(HopCount { limit: u64::from(limit.max(1)), count: 0 })
        });
        let extensions = age.into_iter().chain(hops).zip(2..);
        extensions
            .filter_map(|(extension, number)| {
                extension.to_block(number, BlockFlags::REPLICATE, CrcType::Crc16).ok()
            })
            .collect()
    }

    /// When a bundle is made, and its number among those made then (RFC 9171 §4.2.7).
    pub(super) fn creation(&mut self, now: Time) -> CreationTimestamp {
        let time_ms = dtn_time(self.config.clock, now).unwrap_or(0);
        let (last, sequence) = self.made;
        let sequence = if time_ms > last { 0 } else { sequence.wrapping_add(1) };
        self.made = (time_ms.max(last), sequence);
        CreationTimestamp { time_ms: time_ms.max(last), sequence }
    }

    /// Begins with a bundle that is made here.
    pub(super) fn begin(
        &mut self,
        now: Time,
        giver: Giver,
        head: Head,
        payload: Content,
        owns: bool,
    ) {
        let number = self.number();
        match payload {
            Content::Octets(octets) => {
                let body = Body::Memory(BytesMut::new());
                let mut intake = Intake::with_head(giver, body, head);
                let bounds = self.config.limits.head;
                let fed = intake.feed(&octets, &bounds);
                intake.is_whole = true;
                self.intakes.insert(number, intake);
                self.place(number);
                if let super::intake::Fed::Payload(pieces) = fed {
                    self.keep(number, pieces);
                }
                self.finish_if_written(now, number);
            }
            Content::File { name, offset, len } => {
                let reading = Reading {
                    name: name.clone(),
                    file: None,
                    at: offset,
                    end: offset.saturating_add(len),
                    payload_only: true,
                    owns,
                };
                let mut intake = Intake::with_head(giver, Body::There(reading), head);
                intake.is_whole = true;
                self.intakes.insert(number, intake);
                self.store.open(number, name, OpenMode::Read);
            }
        }
    }
}
