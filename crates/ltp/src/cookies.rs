//! Cookies (RFC 5327 §2.2): numbers known only to those who see a session's segments.
//!
//! The receiving engine adds the first cookie. RFC 5327 grants its peer a delay, which ends here
//! when a segment shows that the peer has the cookie. A peer without cookie support is not
//! affected.

use engine::Rng;

use crate::segment::{Extension, Segment};

/// Extension tag of cookies.
const TAG: u8 = 1;

/// Bytes of a cookie created here.
const LEN: usize = 8;

/// Maximum bytes of a cookie accepted from a peer and echoed.
const LEN_MAX: usize = 64;

/// Number of cookies in a segment: one from each side.
pub(crate) const COUNT: usize = 2;

/// Cookies of one session.
#[derive(Debug, Default)]
pub(crate) struct Cookies {
    /// Cookie created here, with the peer's suffix.
    ours: Vec<u8>,
    /// Whether a segment showed that the peer received it.
    agreed: bool,
    /// Cookie created by the peer.
    theirs: Vec<u8>,
}

impl Cookies {
    /// Cookies of a session that starts with one created here.
    pub(crate) fn random(rng: &mut Rng) -> Self {
        let mut ours = vec![0; LEN];
        rng.fill(&mut ours);
        Self { ours, ..Self::default() }
    }

    /// Cookies of a segment without a session, to be echoed.
    pub(crate) fn echo(segment: &Segment<'_>) -> Self {
        let mut given = given(segment).filter(|value| value.len() <= LEN_MAX);
        let mut next = || given.next().map(<[u8]>::to_vec).unwrap_or_default();
        Self { ours: next(), agreed: false, theirs: next() }
    }

    /// Whether a segment carries the required cookies. If so, new ones are learnt from it.
    pub(crate) fn admit(&mut self, segment: &Segment<'_>) -> bool {
        let has = |cookie: &[u8]| given(segment).any(|value| value.starts_with(cookie));
        if self.agreed && !has(&self.ours) || !self.theirs.is_empty() && !has(&self.theirs) {
            return false;
        }
        // The peer's first cookie may cross this one on the way, but must not arrive later.
        let mut is_open = !self.agreed && self.theirs.is_empty();
        for value in given(segment).filter(|value| value.len() <= LEN_MAX) {
            // The longer value replaces the shorter.
            if !self.ours.is_empty() && value.starts_with(&self.ours) {
                self.ours = value.to_vec();
                self.agreed = true;
            } else if !self.theirs.is_empty() && value.starts_with(&self.theirs) {
                self.theirs = value.to_vec();
            } else if is_open && !value.is_empty() {
                self.theirs = value.to_vec();
                is_open = false;
            }
        }
        true
    }

    /// Extensions to send.
    pub(crate) fn extensions(&self) -> impl Iterator<Item = Extension<'_>> {
        let values = [&self.ours, &self.theirs].into_iter().filter(|value| !value.is_empty());
        values.map(|value| Extension { tag: TAG, value })
    }

    /// Bytes added to a segment.
    pub(crate) fn len(&self) -> usize {
        self.extensions().map(Extension::encoded_len).sum()
    }
}

/// Cookies in a segment.
fn given<'a>(segment: &'a Segment<'_>) -> impl Iterator<Item = &'a [u8]> {
    segment.header.iter().filter(|one| one.tag == TAG).map(|one| one.value)
}

#[cfg(test)]
mod tests {
    use crate::segment::{Body, Extensions, SessionId};

    use super::*;

    fn admit(cookies: &mut Cookies, values: &[&[u8]]) -> bool {
        let list: Vec<_> = values.iter().map(|value| Extension { tag: TAG, value }).collect();
        let mut segment = Segment::new(SessionId::default(), Body::ReportAck { serial: 1 });
        segment.header = Extensions::new(&list);
        cookies.admit(&segment)
    }

    fn sent(cookies: &Cookies) -> Vec<Vec<u8>> {
        cookies.extensions().map(|one| one.value.to_vec()).collect()
    }

    #[test]
    fn our_cookie_is_required_once_the_peer_received_it() {
        let mut cookies = Cookies::random(&mut Rng::new(1, "test"));
        let ours = sent(&cookies).concat();
        assert_eq!((ours.len(), cookies.len()), (LEN, LEN + 2));
        assert!(admit(&mut cookies, &[]), "it is on its way");
        assert!(admit(&mut cookies, &[&ours]));
        assert!(!admit(&mut cookies, &[]));
        assert!(!admit(&mut cookies, &[&ours[..7]]));
        assert!(!admit(&mut cookies, &[b"another"]));
        assert!(admit(&mut cookies, &[b"another", &ours]), "too late for a second one");
        assert_eq!(sent(&cookies), std::slice::from_ref(&ours));
        let longer = [&ours[..], b"more"].concat();
        assert!(admit(&mut cookies, &[&longer]));
        assert_eq!(sent(&cookies), [longer]);
        assert!(!admit(&mut cookies, &[&ours]), "the longer one holds");
    }

    #[test]
    fn peer_cookies_are_returned() {
        let mut cookies = Cookies::default();
        assert!(admit(&mut cookies, &[]) && admit(&mut cookies, &[b""]));
        assert!(sent(&cookies).is_empty());
        assert!(admit(&mut cookies, &[b"first"]));
        assert_eq!(sent(&cookies), [b"first"]);
        assert!(!admit(&mut cookies, &[]) && !admit(&mut cookies, &[b"fir"]));
        assert!(admit(&mut cookies, &[b"first and more"]));
        assert!(!admit(&mut cookies, &[b"first"]));
        assert_eq!(sent(&cookies), [b"first and more"]);
    }

    #[test]
    fn crossing_cookies_are_both_required() {
        let mut cookies = Cookies::random(&mut Rng::new(1, "test"));
        let ours = sent(&cookies).concat();
        assert!(admit(&mut cookies, &[b"theirs"]));
        assert_eq!(sent(&cookies), [&ours[..], b"theirs"]);
        assert!(admit(&mut cookies, &[b"theirs"]), "the peer has not seen ours yet");
        assert!(admit(&mut cookies, &[b"theirs", &ours]));
        assert!(!admit(&mut cookies, &[b"theirs"]) && !admit(&mut cookies, &[&ours]));
    }

    #[test]
    fn oversized_cookies_are_not_kept() {
        let mut cookies = Cookies::default();
        assert!(admit(&mut cookies, &[&[7; LEN_MAX + 1]]));
        assert!(sent(&cookies).is_empty());
    }
}
