//! Sending of bundles by users (RFC 9171 §5.2).

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use engine::Time;

use super::super::layer::Content;
use super::head::Head;
use super::intake::{Body, Fed, Giver, Intake, There};
use super::record::Record;
use super::shares::Account;
use super::store::Job;
use super::{Agent, Limit, Priority, RequestError, Version};
use crate::codec::bp6;
use crate::codec::bp7::{
    self, Block, BlockFlags, BundleFlags, BundleId, CrcType, CreationTimestamp, Eid, Extension,
    HopCount, Payload, Primary,
};

/// Sequence numbers per millisecond, in version 6: its times are seconds, so the milliseconds go
/// into the sequence number.
const SEQUENCES: u64 = 1_000_000;

/// Request to send a bundle.
#[derive(Clone, Debug)]
pub struct SendRequest {
    /// Source endpoint; `None` is the node's administrative one.
    pub source: Option<Eid>,
    /// Destination endpoint.
    pub destination: Eid,
    /// Report-to endpoint; `None` is the node's administrative one.
    pub report_to: Option<Eid>,
    /// Lifetime.
    pub lifetime: Duration,
    /// Requested reports, and whether fragmentation is forbidden.
    pub flags: BundleFlags,
    /// Priority: the class of service in version 6, local to this node's queues in version 7.
    pub priority: Priority,
    /// Version of the bundle.
    pub version: Version,
    /// Whether custody is requested, in version 6.
    pub custody: bool,
    /// Hop limit, in version 7; `None` is the node's.
    pub hop_limit: Option<u8>,
    /// Key of the request: while its bundle is held or remembered, [`Agent::sent_for`] finds it.
    pub key: Option<u128>,
    /// Payload. A file must stay unchanged until the bundle is discarded; bytes may stay in the
    /// caller's buffer.
    pub payload: Content,
    /// Whether the file is deleted with the bundle.
    pub owns_file: bool,
}

impl SendRequest {
    /// Request with a lifetime of one day.
    #[must_use]
    pub fn new(destination: Eid, payload: impl Into<Bytes>) -> Self {
        Self {
            source: None,
            destination,
            report_to: None,
            lifetime: Duration::from_secs(86_400),
            flags: BundleFlags::default(),
            priority: Priority::Normal,
            version: Version::Seven,
            custody: false,
            hop_limit: None,
            key: None,
            payload: Content::Bytes(payload.into()),
            owns_file: false,
        }
    }
}

/// Whether an endpoint is a number of an allocator other than the default one.
const fn has_allocator(eid: &Eid) -> bool {
    matches!(eid, Eid::Ipn { node, .. } if *node >> 32 != 0)
}

fn lifetime_ms(request: &SendRequest) -> u64 {
    u64::try_from(request.lifetime.as_millis()).unwrap_or(u64::MAX)
}

impl Agent {
    /// Sends a bundle. [`Indication::Stored`](super::Indication::Stored) reports that it is safe.
    ///
    /// # Errors
    ///
    /// There is no room, or the request contradicts itself; nothing was sent.
    pub fn send(&mut self, now: Time, request: SendRequest) -> Result<BundleId, RequestError> {
        if request.destination.is_none() {
            return Err(RequestError::NoDestination);
        }
        let source = request.source.clone().unwrap_or_else(|| self.core.config.node.clone());
        if !source.is_none() && !self.core.is_ours(&source) {
            return Err(RequestError::NotOurs);
        }
        let local = [&source, request.report_to.as_ref().unwrap_or(&Eid::None)];
        if local.into_iter().any(Eid::is_local) && !request.destination.is_local() {
            let why = "ipn:!.N is an endpoint of any node, and leaves none";
            return Err(RequestError::Conflict(why));
        }
        if !self.core.config.versions.contains(&request.version) {
            return Err(RequestError::Conflict("this node has no bundles of this version"));
        }
        if !self.core.stock.is_ready {
            return Err(RequestError::NotReady);
        }
        if self.intakes.len() >= self.core.config.limits.incoming {
            self.core.user.limit_reached(Limit::Incoming);
            return Err(RequestError::Full);
        }
        let head = self.head(now, source, &request)?;
        if self.fault_of_six(&head, true).is_some() {
            let why = "a security rule applies, and version 6 has no such security";
            return Err(RequestError::Conflict(why));
        }
        self.check_length(&head, &request)?;
        if !self.core.check_room(request.payload.len()) {
            return Err(RequestError::Full);
        }
        let id = head.key().id();
        let giver = Giver::User { priority: request.priority, key: request.key };
        self.core.statistics.sourced += 1;
        self.begin(now, giver, head, request.payload, request.owns_file);
        Ok(id)
    }

    /// Whether there is room for a bundle with a payload of `len` bytes now.
    pub fn takes(&self, len: u64) -> bool {
        let limits = self.core.config.limits;
        self.core.stock.is_ready
            && self.intakes.len() < limits.incoming
            && self.core.stock.kept() < limits.bundles
            && self
                .core
                .stock
                .bytes
                .saturating_add(self.core.stock.shares.reserved())
                .saturating_add(len)
                <= limits.bytes
    }

    /// Whether such a bundle could ever be held, including in memory for its security.
    fn check_length(&self, head: &Head, request: &SendRequest) -> Result<(), RequestError> {
        let is_read = self.is_to_be_secured(head);
        let secured = if is_read { self.core.config.security.payload_max } else { u64::MAX };
        let held = self.core.config.limits.bytes.saturating_sub(head.encoded_len() as u64);
        let most = secured.min(held);
        if request.payload.len() > most {
            return Err(RequestError::TooLong { most });
        }
        Ok(())
    }

    /// Head of a bundle created here.
    pub(super) fn head(
        &mut self,
        now: Time,
        source: Eid,
        request: &SendRequest,
    ) -> Result<Head, RequestError> {
        match request.version {
            Version::Six => self.head_of_six(now, source, request),
            Version::Seven => self.head_of_seven(now, source, request),
        }
    }

    fn report_to(&self, request: &SendRequest) -> Eid {
        request.report_to.clone().unwrap_or_else(|| self.core.config.node.clone())
    }

    fn head_of_seven(
        &mut self,
        now: Time,
        source: Eid,
        request: &SendRequest,
    ) -> Result<Head, RequestError> {
        if request.custody {
            return Err(RequestError::Conflict("custody requires version 6"));
        }
        let creation = self.creation(now);
        let primary = Primary {
            flags: request.flags,
            crc: self.core.config.crc.primary,
            destination: request.destination.clone(),
            source,
            report_to: self.report_to(request),
            creation,
            lifetime_ms: lifetime_ms(request),
            fragment: None,
        };
        if let Some(conflict) = primary.conflict() {
            return Err(RequestError::Conflict(conflict));
        }
        let blocks = self.first_blocks(creation.time_ms == 0, request.hop_limit);
        let crc = self.core.config.crc.payload;
        let payload = Payload { flags: BlockFlags::default(), crc, len: request.payload.len() };
        bp7::Head::new(primary, blocks, payload)
            .map(Into::into)
            .map_err(|_| RequestError::Conflict("an endpoint cannot be encoded in version 7"))
    }

    fn head_of_six(
        &mut self,
        now: Time,
        source: Eid,
        request: &SendRequest,
    ) -> Result<Head, RequestError> {
        if request.hop_limit.is_some() {
            return Err(RequestError::Conflict("bundles of version 6 have no hop limit"));
        }
        let report_to = self.report_to(request);
        let named = [&request.destination, &source, &report_to, &self.core.config.node];
        if named.iter().any(|eid| has_allocator(eid)) {
            let why = "endpoints with an allocator are not for version 6 (RFC 9758 §7.4)";
            return Err(RequestError::Conflict(why));
        }
        // If all endpoints are numbers, no dictionary is needed (RFC 6260 §2.2).
        let has_numbers = |eid: &&Eid| matches!(eid, Eid::None | Eid::Ipn { .. });
        let dictionary = (!named.iter().all(has_numbers)).then(Box::default);
        if self.core.config.clock.is_none() {
            let why = "bundles of version 6 carry their creation time, and this node has no clock";
            return Err(RequestError::Conflict(why));
        }
        let CreationTimestamp { time_ms, sequence } = self.creation(now);
        let sequence = (time_ms % 1000).saturating_mul(SEQUENCES).saturating_add(sequence);
        let mut flags = request.flags.without(BundleFlags::STATUS_TIME);
        flags = flags.with_priority(match request.priority {
            Priority::Bulk => bp6::Priority::Bulk,
            Priority::Normal => bp6::Priority::Normal,
            Priority::Expedited => bp6::Priority::Expedited,
        });
        if request.custody {
            flags = flags.with(BundleFlags::CUSTODY);
        }
        if request.destination.is_singleton() {
            flags = flags.with(BundleFlags::SINGLETON);
        }
        let primary = bp6::Primary {
            flags,
            destination: request.destination.clone(),
            source,
            report_to,
            custodian: Eid::None,
            creation: bp6::CreationTimestamp { time_s: time_ms / 1000, sequence },
            lifetime_s: lifetime_ms(request).div_ceil(1000),
            dictionary,
            fragment: None,
        };
        if let Some(conflict) = primary.conflict() {
            return Err(RequestError::Conflict(conflict));
        }
        let payload = bp6::Payload {
            flags: BlockFlags::LAST,
            len: request.payload.len(),
            ..bp6::Payload::default()
        };
        bp6::Head::new(primary, Vec::new(), payload)
            .map(Into::into)
            .map_err(|_| RequestError::Conflict("an endpoint cannot be encoded in version 6"))
    }

    /// Extension blocks of a bundle created here.
    fn first_blocks(&self, without_time: bool, hop_limit: Option<u8>) -> Vec<Block> {
        let age = without_time.then_some(Extension::BundleAge { age_ms: 0 });
        let hops = hop_limit.or(self.core.config.hop_limit).map(|limit| {
            Extension::HopCount(HopCount { limit: u64::from(limit.max(1)), count: 0 })
        });
        let extensions = age.into_iter().chain(hops).zip(2..);
        extensions
            .filter_map(|(extension, number)| {
                extension.to_block(number, BlockFlags::REPLICATE, CrcType::Crc16).ok()
            })
            .collect()
    }

    /// Creation timestamp of a new bundle (RFC 9171 §4.2.7).
    fn creation(&mut self, now: Time) -> CreationTimestamp {
        let time_ms = self.core.clock().dtn_time(now).unwrap_or(0);
        let (creation, used) = self.core.stock.numbers.create(time_ms);
        if let Some(used) = used.filter(|_| self.core.config.persistent) {
            // Bundles have numbers from 1 on.
            self.core.stock.store.put(Job::Used, 0, Record::Used(used).encode());
        }
        creation
    }

    /// Starts the intake of a bundle created here.
    pub(super) fn begin(
        &mut self,
        now: Time,
        giver: Giver,
        head: Head,
        payload: Content,
        owns: bool,
    ) {
        match payload {
            Content::Bytes(bytes) => {
                let body = Body::Memory(BytesMut::new());
                let number = self.core.number();
                self.begin_under(now, number, Intake::with_head(giver, body, head), &bytes);
            }
            Content::File { name, offset, len } => {
                let there = There { name: name.clone(), payload_at: Some(offset), owns };
                let mut intake = Intake::with_head(giver, Body::There(there), head);
                intake.is_whole = true;
                intake.parts = Some(Content::File { name, offset, len }.into());
                let number = self.core.number();
                self.core.stock.shares.begin(number, Account::new(giver, None), len);
                self.intakes.insert(number, intake);
                self.read_parts(now, number);
            }
        }
    }

    /// Starts the intake of a bundle under this number.
    pub(super) fn begin_under(
        &mut self,
        now: Time,
        number: u64,
        mut intake: Intake,
        payload: &Bytes,
    ) {
        let bounds = self.core.config.limits.head;
        let fed = intake.feed(payload, &bounds);
        intake.is_whole = true;
        let account = Account::new(intake.giver, intake.by.clone());
        self.core.stock.shares.begin(number, account, payload.len() as u64);
        self.intakes.insert(number, intake);
        self.place(number);
        if let Fed::Payload(Some((offset, piece))) = fed {
            self.keep(number, offset, piece);
        }
        self.finish_if_written(now, number);
    }
}
