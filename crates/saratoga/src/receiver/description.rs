//! Description of a file by its METADATA (§4.3).

use bytes::Bytes;
use engine::FileName;
use session::StoreRefusal;
use session::sum::{Sum, Value};
use wire::checksum::{Checksum, ChecksumType};

use super::Wish;
use super::extent::Extent;
use crate::config::Version;
use crate::core::Core;
use crate::indication::Failure;
use crate::packet::{Content, FileChecksum, Metadata, Packet, RequestKind, StatusCode};

/// Description of a file by its METADATA.
#[derive(Debug)]
pub(super) struct Description {
    pub(super) content: Content,
    pub(super) name: String,
    pub(super) destination: Option<FileName>,
    /// Checksum; `None` if there is none, or none that is supported.
    pub(super) checksum: Option<Value>,
    /// METADATA packet without the session number.
    pub(super) identity: Bytes,
    /// Whether a later session may resume: only a checksum verifies that both were about the same
    /// bytes.
    pub(super) can_go_on: bool,
}

impl Description {
    /// Takes a description; the error is the reason for refusing the file.
    pub(super) fn from_metadata(
        core: &Core,
        metadata: &Metadata<'_>,
        wish: Option<&Wish>,
        extent: &Extent,
    ) -> Result<Self, Failure> {
        if let Some(code) = objection(core, metadata, wish, extent) {
            return Err(Failure::here(code));
        }
        let name = std::str::from_utf8(metadata.entry.path)
            .map_err(|_| Failure::of_store(StoreRefusal::NameRefused))?;
        let destination = match wish {
            Some(wish) => wish.destination.clone(),
            None => Some(FileName::file(name).map_err(|error| Failure::of_store((&error).into()))?),
        };
        let checksum = match metadata.checksum {
            FileChecksum::Crc32(crc) => Some(Value::Check(crc)),
            FileChecksum::Md5(md5) => Some(Value::Md5(md5)),
            FileChecksum::Sha1(sha1) => Some(Value::Sha1(sha1)),
            FileChecksum::None | FileChecksum::Other { .. } => None,
        };
        let (content, name) = (metadata.content, name.to_owned());
        let has_sum = checksum.is_some() && core.config.version == Version::V1;
        let can_go_on = matches!(content, Content::File | Content::Bundle) && has_sum;
        let identity = identity(metadata);
        Ok(Self { content, name, destination, checksum, identity, can_go_on })
    }

    /// Returns the checksum to compute over the file.
    pub(super) fn sum(&self) -> Option<Sum> {
        match self.checksum? {
            Value::Check(_) => Checksum::new(ChecksumType::Crc32c).map(Sum::Check),
            Value::Md5(_) => Some(Sum::md5()),
            Value::Sha1(_) => Some(Sum::sha1()),
        }
    }
}

/// Reason for refusing a described file, if any.
fn objection(
    core: &Core,
    metadata: &Metadata<'_>,
    wish: Option<&Wish>,
    extent: &Extent,
) -> Option<StatusCode> {
    let is_stream = metadata.content == Content::Stream;
    let is_directory = metadata.content == Content::Directory;
    let limits = &core.config.limits;
    let most = if is_directory { limits.directory } else { limits.file };
    let requested = wish.map(|wish| wish.kind == RequestKind::GetDir);
    // The width was part of the request for requested files.
    let is_too_wide = requested.is_none() && metadata.descriptor > core.config.descriptor;
    // A peer below a bundle agent accepts only bundles, and other peers accept none.
    let is_unknown = (metadata.content == Content::Bundle) != core.takes_bundles;
    if is_unknown || is_directory && requested.is_none() {
        Some(StatusCode::UnsupportedPacket)
    } else if is_too_wide {
        Some(StatusCode::DescriptorMismatch)
    } else if requested.is_some_and(|directory| directory != is_directory) {
        Some(StatusCode::FlagsChanged)
    } else if metadata.entry.size > most {
        Some(StatusCode::TooLong)
    } else if is_stream && extent.is_contradictory() {
        Some(StatusCode::Unspecified)
    } else {
        None
    }
}

/// METADATA packet without the session number, as the identity of a file.
pub(crate) fn identity(metadata: &Metadata<'_>) -> Bytes {
    let packet = Packet::Metadata(Metadata { session: 0, is_over: false, ..*metadata });
    packet.to_vec().unwrap_or_default().into()
}
