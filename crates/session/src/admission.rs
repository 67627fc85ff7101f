//! Admission of sessions that peers begin.
//!
//! A flood on one path leaves places for other paths, and peers leave some for sessions of this
//! engine. Shares of all places of an engine:
//!
//! | share | of the places |
//! |---|---|
//! | reserved for sessions of this engine | an eighth |
//! | active before the share of a path counts | a half |
//! | of one path, unless configured | three quarters |
//! | half-open sessions, where an engine counts them apart | a quarter, at least one |
//! | of strangers, where peers are configured | seven eighths of what peers may use |
//!
//! A session without a free place replaces another: the weakest of [`Places`](super::Places), or
//! in Saratoga a half-open one.

use engine::PathId;

/// Shares of the places for sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    /// Number of active sessions at which peers are refused.
    pub all: usize,
    /// Number of peers' sessions at which peers are refused.
    pub of_peers: usize,
    /// Number of strangers' sessions at which strangers are refused.
    pub of_strangers: usize,
    /// Number of active sessions below which every peer is admitted.
    pub unshared: usize,
    /// Number of peers' sessions on one path at which that path is refused.
    pub of_path: usize,
    /// Number of half-open sessions at which the oldest is replaced.
    pub half_open: usize,
}

/// Place for one more session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Free.
    Free,
    /// Taken from a half-open session of any path.
    OfAny,
    /// Taken from a half-open session of the same path, whose share is used up.
    OfPath,
}

impl Admission {
    /// Shares of `places` places.
    pub fn with_places(places: usize) -> Self {
        Self {
            all: places,
            of_peers: places - places / 8,
            of_strangers: places - places / 8,
            unshared: places / 2,
            of_path: places - places / 4,
            half_open: (places / 4).max(1),
        }
    }

    /// Reserves places for configured peers, if there are any.
    pub fn reserving_for_known(self, are_any: bool) -> Self {
        if are_any {
            Self { of_strangers: self.of_peers - self.of_peers / 8, ..self }
        } else {
            self
        }
    }

    /// Sets the share of one path.
    pub fn with_path_share(self, of_path: usize) -> Self {
        Self { of_path, ..self }
    }

    /// Counts sessions of this engine against the share of the peers.
    pub fn counting_own(self) -> Self {
        Self { all: self.of_peers, ..self }
    }

    /// Place for a session that a peer begins on the path `from`. `theirs` are the paths of the
    /// active sessions started by peers.
    pub fn place(
        self,
        under_way: usize,
        theirs: impl Iterator<Item = Option<PathId>>,
        from: PathId,
    ) -> Place {
        if under_way < self.unshared {
            return Place::Free;
        }
        let (mut of_path, mut of_peers) = (0, 0);
        for path in theirs {
            of_path += usize::from(path == Some(from));
            of_peers += 1;
        }
        if of_path >= self.of_path {
            return Place::OfPath;
        }
        if under_way < self.all && of_peers < self.of_peers { Place::Free } else { Place::OfAny }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: PathId = PathId(1);
    const THERE: PathId = PathId(2);

    /// Place for a session over [`HERE`], given the sessions of both paths and of this node.
    fn place(admission: Admission, here: usize, there: usize, own: usize) -> Place {
        let theirs = std::iter::repeat_n(Some(HERE), here);
        let theirs = theirs.chain(std::iter::repeat_n(Some(THERE), there));
        admission.place(here + there + own, theirs, HERE)
    }

    #[test]
    fn peers_leave_an_eighth_of_the_places() {
        let admission = Admission::with_places(80);
        assert_eq!(place(admission, 20, 49, 0), Place::Free);
        assert_eq!(place(admission, 20, 50, 0), Place::OfAny);
        assert_eq!(place(admission, 20, 40, 19), Place::Free, "own sessions have other places");
        assert_eq!(place(admission, 20, 40, 20), Place::OfAny, "none is left at all");
        assert_eq!(place(admission.counting_own(), 20, 40, 9), Place::Free);
        assert_eq!(place(admission.counting_own(), 20, 40, 10), Place::OfAny);
    }

    #[test]
    fn paths_are_limited_to_a_share_once_half_the_slots_are_used() {
        let admission = Admission::with_places(80);
        assert_eq!(place(admission, 59, 0, 0), Place::Free);
        assert_eq!(place(admission, 60, 0, 0), Place::OfPath);
        let narrow = admission.with_path_share(10);
        assert_eq!(place(narrow, 39, 0, 0), Place::Free, "others have room enough");
        assert_eq!(place(narrow, 40, 0, 0), Place::OfPath);
        assert_eq!(place(narrow, 9, 31, 0), Place::Free);
        assert_eq!(place(narrow, 10, 60, 0), Place::OfPath, "it makes room by itself");
    }
}
