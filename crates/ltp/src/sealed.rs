//! Segments with their extensions, ready to send.

use session::authentication::Authentication;
use wire::EncodeError;

use super::cookies::{self, Cookies};
use crate::authentication::{self, TAG, VALUE_MAX};
use crate::segment::{Body, Extension, Extensions, Segment, SessionId};

/// Maximum number of LTP-T extensions in a segment.
const TRANSPORT_MAX: usize = 7;

/// Segment to be sent with its extensions.
pub(crate) struct Sealed<'a> {
    pub(crate) session: SessionId,
    pub(crate) body: Body<'a>,
    pub(crate) authentication: Option<&'a Authentication>,
    pub(crate) cookies: &'a Cookies,
    /// Tags and values of LTP-T extensions, at most seven.
    pub(crate) transport: &'a [(u8, Vec<u8>)],
}

impl Sealed<'_> {
    /// Bytes on the wire.
    pub(crate) fn encoded_len(&self) -> usize {
        let bare = Segment::new(self.session, self.body).encoded_len();
        let transport: usize = extensions(self.transport).map(Extension::encoded_len).sum();
        bare + self.authentication.map_or(0, authentication::len) + self.cookies.len() + transport
    }

    /// Writes the segment to exactly `out`.
    pub(crate) fn encode(&self, out: &mut [u8]) -> Result<(), EncodeError> {
        let key = self.authentication.map(|authentication| &authentication.key);
        let value_len = key.map_or(0, |key| key.suite().value_len());
        let label = key.map(|key| Extension { tag: TAG, value: &key.label });
        let mut header = [Extension { tag: TAG, value: &[] }; 1 + cookies::COUNT + TRANSPORT_MAX];
        let mut count = 0;
        let transport = extensions(self.transport);
        for extension in label.into_iter().chain(self.cookies.extensions()).chain(transport) {
            header[count] = extension;
            count += 1;
        }
        let blank = [0; VALUE_MAX];
        let trailer = [Extension { tag: TAG, value: &blank[..value_len] }];
        let segment = Segment {
            session: self.session,
            header: Extensions::new(&header[..count]),
            body: self.body,
            trailer: Extensions::new(&trailer[..usize::from(key.is_some())]),
        };
        segment.encode(out)?;
        if let Some(key) = key {
            let (covered, value) = out.split_at_mut(out.len() - value_len);
            key.sign(covered, value);
        }
        Ok(())
    }

    /// Bytes of the segment.
    pub(crate) fn to_vec(&self) -> Result<Vec<u8>, EncodeError> {
        let mut out = vec![0; self.encoded_len()];
        self.encode(&mut out)?;
        Ok(out)
    }
}

/// LTP-T extensions from tags and values.
pub(crate) fn extensions(values: &[(u8, Vec<u8>)]) -> impl Iterator<Item = Extension<'_>> {
    values.iter().map(|(tag, value)| Extension { tag: *tag, value })
}
