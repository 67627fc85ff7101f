//! File or listing sent by a session, and its METADATA (§4.3).

use engine::FileName;
use session::sum::Value;

use crate::config::{Remote, Version};
use crate::indication::Put;
use crate::packet::{
    Content, Data, Entry, EntryKind, FileChecksum, Metadata, Packet, Request, RequestKind, Width,
    v0,
};
use crate::times;

/// Order to send a file or a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    /// Local file, or directory to list.
    pub(crate) source: FileName,
    /// Name at the peer.
    pub(crate) name: String,
    pub(crate) content: Content,
    pub(crate) put: Put,
    /// Whether the peer requested it.
    pub(crate) is_requested: bool,
    /// Whether an earlier session may have sent a part of it.
    pub(crate) resumes: bool,
    /// Whether to delete the file after delivery.
    pub(crate) delete: bool,
    /// Widest descriptor that the peer accepts.
    pub(crate) descriptor: Width,
    /// Whether the content of the file may be damaged, so that it may use UDP-Lite (§3.3).
    pub(crate) udp_lite: bool,
}

/// Order, and the known properties of its file.
#[derive(Debug)]
pub(super) struct Offer {
    pub(super) order: Order,
    version: Version,
    width: Width,
    /// Size in bytes, if known.
    pub(super) size: Option<u64>,
    /// Time of the file's last change.
    pub(super) modified: Option<u64>,
    pub(super) checksum: Option<Value>,
}

impl Offer {
    pub(super) const fn new(order: Order, version: Version) -> Self {
        Self { order, version, width: Width::W16, size: None, modified: None, checksum: None }
    }

    pub(super) fn is_stream(&self) -> bool {
        self.order.content == Content::Stream
    }

    /// Whether no replies are expected.
    pub(super) fn is_blind(&self) -> bool {
        self.order.put == Put::Blind
    }

    pub(super) fn version(&self) -> Version {
        self.version
    }

    /// Whether each STATUS lists missing data: in version 0 it does not name its request.
    pub(super) fn is_reported(&self) -> bool {
        !self.is_blind() && self.version == Version::V1
    }

    /// Bytes of the file; 0 if unknown.
    pub(super) fn len(&self) -> u64 {
        self.size.unwrap_or_default()
    }

    /// Sets the length. Returns `false` if it exceeds `most`, or the widest descriptor that the
    /// peer accepts.
    pub(super) fn measure(&mut self, len: u64, remote: &Remote, most: u64) -> bool {
        let is_stream = self.is_stream();
        self.size = (!is_stream).then_some(len);
        let least = if is_stream { Width::W64 } else { Width::fitting(len) };
        self.width = least.max(remote.descriptor_min).min(self.order.descriptor);
        (self.width >= least || is_stream) && len <= most
    }

    /// Whether the descriptor is wide enough for data that ends at `end`: a stream may become too
    /// long for the peer.
    pub(super) fn reaches(&self, end: u64) -> bool {
        self.width >= Width::W64 || Width::fitting(end) <= self.width
    }

    /// Maximum bytes of file data in a DATA packet; `None` if not even one fits.
    pub(super) fn room(&self, remote: &Remote, mtu: usize, stamped: bool) -> Option<usize> {
        let max = remote.datagram_max.map_or(mtu, |max| max.min(mtu));
        let head = match self.version {
            Version::V0 => v0::DATA_OVERHEAD,
            Version::V1 => Data::overhead(self.width, stamped),
        };
        let room = max.saturating_sub(head);
        let most = remote.payload_max.map_or(room, |most| most.min(room));
        (most > 0).then_some(most)
    }

    /// Request for permission to send the file.
    pub(super) fn request(&self, session: u32, udp_lite: bool) -> Packet<'_> {
        Packet::Request(Request {
            kind: if self.order.delete { RequestKind::Give } else { RequestKind::Put },
            descriptor: self.width,
            bundles: false,
            streams: self.is_stream(),
            udp_lite,
            session,
            path: self.order.name.as_bytes(),
            authentication: &[],
        })
    }

    /// METADATA of a session, which may be over.
    pub(super) fn metadata(&self, session: u32, is_over: bool) -> Packet<'_> {
        Packet::Metadata(Metadata {
            descriptor: self.width,
            content: self.order.content,
            is_over,
            udp_lite: self.order.udp_lite,
            session,
            checksum: match self.checksum {
                None => FileChecksum::None,
                Some(Value::Check(crc)) => FileChecksum::Crc32(crc),
                Some(Value::Md5(md5)) => FileChecksum::Md5(md5),
                Some(Value::Sha1(sha1)) => FileChecksum::Sha1(sha1),
            },
            entry: Entry {
                kind: match self.order.content {
                    Content::Directory => EntryKind::Directory,
                    Content::File | Content::Bundle | Content::Stream => EntryKind::File,
                },
                udp_lite: self.order.udp_lite,
                width: self.width,
                size: if self.is_stream() { 0 } else { self.len() },
                modified: times::to_wire(self.modified),
                created: 0,
                path: self.order.name.as_bytes(),
            },
        })
    }

    /// DATA packet without a request for a STATUS.
    pub(super) fn data<'a>(&self, session: u32, offset: u64, data: &'a [u8]) -> Data<'a> {
        Data {
            descriptor: self.width,
            content: self.order.content,
            timestamp: None,
            wants_status: false,
            is_end: false,
            session,
            offset,
            data,
        }
    }
}
