//! Properties by which a later session, or a later process, knows a received file again.

use bytes::Bytes;
use session::record::{Reader, Writer};

use crate::digest::digest_of;
use crate::message::{Flags, Fti, NodeId, Scheme};

/// Version of records with these properties.
pub(super) const VERSION: u8 = 2;

/// Properties by which a file resumes an earlier one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) name: Bytes,
    pub(crate) size: u64,
    pub(crate) segment_size: u16,
    pub(crate) block_len: u16,
    /// Version of the content, or 0.
    pub(crate) version: u64,
}

impl Identity {
    fn encode(&self, out: &mut Writer) {
        out.bytes(&self.name);
        out.u64(self.size);
        out.u16(self.segment_size);
        out.u16(self.block_len);
        out.u64(self.version);
    }

    fn read(fields: &mut Reader) -> Option<Self> {
        Some(Self {
            name: Bytes::copy_from_slice(&fields.bytes()?),
            size: fields.u64()?,
            segment_size: fields.u16()?,
            block_len: fields.u16()?,
            version: fields.u64()?,
        })
    }

    /// Key of this file among stored ones.
    pub(super) fn key(&self) -> u64 {
        self.hashed(Writer::new(VERSION))
    }

    /// Key of the record of this file as one sent on a path.
    pub(crate) fn sent_key(&self, path: u32) -> u64 {
        let mut out = Writer::new(VERSION);
        out.u32(path);
        // After a collision a sender waits for reports that do not come.
        self.hashed(out)
    }

    fn hashed(&self, mut out: Writer) -> u64 {
        self.encode(&mut out);
        let [a, b, c, d, e, f, g, h, ..] = digest_of(&out.finish());
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    }
}

/// Session of a sender, and the number of an object in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) node: NodeId,
    pub(crate) instance: u16,
    pub(crate) number: u16,
}

impl Origin {
    pub(super) fn encode(self, out: &mut Writer) {
        out.u32(self.node.0);
        out.u16(self.instance);
        out.u16(self.number);
    }

    pub(super) fn read(fields: &mut Reader) -> Option<Self> {
        let (node, instance, number) = (fields.u32()?, fields.u16()?, fields.u16()?);
        Some(Self { node: NodeId(node), instance, number })
    }

    /// Number of objects from this one to a later one of its session.
    pub(super) fn ahead(self, later: Self) -> Option<u16> {
        let is_same = (self.node, self.instance) == (later.node, later.instance);
        is_same.then(|| later.number.wrapping_sub(self.number))
    }
}

/// Received file as its sender announced it.
#[derive(Clone, Debug)]
pub(super) struct Description {
    pub(super) identity: Identity,
    pub(super) origin: Origin,
    pub(super) flags: Flags,
    pub(super) scheme: Scheme,
    pub(super) fti: Fti,
}

impl Description {
    pub(super) fn encode(&self, out: &mut Writer) {
        self.identity.encode(out);
        self.origin.encode(out);
        out.u8(self.flags.0);
        out.u8(self.scheme.code());
        out.u16(self.fti.parity);
        out.u8(self.fti.field_bits);
        out.u16(self.fti.instance);
        out.u8(self.fti.blocks);
        out.u16(self.fti.sub_blocks);
        out.u8(self.fti.alignment);
    }

    pub(super) fn read(fields: &mut Reader) -> Option<Self> {
        let identity = Identity::read(fields)?;
        let origin = Origin::read(fields)?;
        let (flags, scheme) = (Flags(fields.u8()?), Scheme::from_code(fields.u8()?));
        let fti = Fti {
            object_size: identity.size,
            segment_size: identity.segment_size,
            block_len: identity.block_len,
            parity: fields.u16()?,
            field_bits: fields.u8()?,
            instance: fields.u16()?,
            blocks: fields.u8()?,
            sub_blocks: fields.u16()?,
            alignment: fields.u8()?,
        };
        Some(Self { identity, origin, flags, scheme, fti })
    }
}
