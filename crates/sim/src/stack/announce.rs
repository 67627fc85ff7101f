//! Reports to a host's engine: paths that go up or down in either direction, queues that fill up.

use engine::{PathEvent, Time};

use super::{Path, Stack};
use crate::net::{Network, Pipe};

impl Stack {
    /// Handles the engine's start: forgets unknown peers and brings up all other paths.
    pub(crate) fn start(&mut self, now: Time, net: &mut Network) {
        self.by_peer.clear();
        for path in std::mem::take(&mut self.paths).into_iter().filter(|path| !path.unknown) {
            self.push_path(path);
        }
        for path in &mut self.paths {
            path.open = true;
            path.paused = false;
            path.return_down = false;
        }
        self.stop(net);
        for index in 0..self.paths.len() {
            self.announce(now, index, net);
        }
    }

    /// Handles the engine's end: discards everything that waits for it.
    pub(crate) fn stop(&mut self, net: &mut Network) {
        self.events.clear();
        let kept = std::mem::take(&mut self.kept).into_iter().map(|(_, packet)| packet);
        let resumed = std::mem::take(&mut self.resumed).into_iter().map(|(_, packet)| packet);
        for packet in kept.chain(resumed) {
            net.pool.recycle(packet);
        }
        self.kept_bytes = 0;
    }

    /// Reports the state of a path to the engine.
    pub(super) fn announce(&mut self, now: Time, path: usize, net: &mut Network) {
        self.announce_forward(now, path, net);
        let changed = self.announce_return(path, net);
        // The engine may have forgotten the path while it was down.
        if self.paths[path].return_down && !changed {
            self.events.push_back((self.paths[path].id, PathEvent::ReturnDown));
        }
    }

    /// Reports whether anything can arrive from the peer of a path, if that changed; returns
    /// whether it did.
    fn announce_return(&mut self, path: usize, net: &mut Network) -> bool {
        if !self.config.cues {
            return false;
        }
        let links = self.links_from(&self.paths[path], net);
        for link in &links {
            net.pipes[*link].exit.cues = true;
        }
        let is_down = !links.is_empty() && links.iter().all(|link| !net.pipes[*link].exit.up);
        let path = &mut self.paths[path];
        let changed = path.return_down != is_down;
        path.return_down = is_down;
        if changed {
            let event = if is_down { PathEvent::ReturnDown } else { PathEvent::ReturnUp };
            self.events.push_back((path.id, event));
        }
        changed
    }

    /// Reports that packets can, or cannot, arrive over a link to this host.
    pub(crate) fn return_changed(&mut self, link: usize, net: &mut Network) {
        for index in 0..self.paths.len() {
            if self.paths[index].open && self.links_from(&self.paths[index], net).contains(&link) {
                self.announce_return(index, net);
            }
        }
    }

    /// Reports whether the path accepts packets.
    fn announce_forward(&mut self, now: Time, path: usize, net: &Network) {
        let Path { id, links, info, .. } = &self.paths[path];
        let (id, mut info) = (*id, info.clone());
        let pipes = || links.iter().map(|link| &net.pipes[*link]);
        if self.config.cues && !links.is_empty() {
            // Sending to a group is useful as long as some of its links are up.
            let mut up = pipes().filter(|pipe| pipe.link.is_up(now)).peekable();
            if up.peek().is_none() {
                self.events.push_back((id, PathEvent::Down));
                return;
            }
            info.until = info.until.or(up.filter_map(|pipe| pipe.change).min());
        }
        let interface = self.paths[path].interface;
        let waits = |pipe: &&Pipe| !interface || pipe.link.config().backpressure;
        let blocked = pipes().filter(waits).any(|pipe| pipe.blocked.is_some());
        self.events.push_back((id, PathEvent::Up(info)));
        if blocked {
            self.events.push_back((id, PathEvent::Blocked));
        }
    }

    /// Reports a path that was just added.
    pub(crate) fn announce_last(&mut self, now: Time, net: &mut Network) {
        if let Some(last) = self.paths.len().checked_sub(1) {
            self.attach(last, net);
            self.announce(now, last, net);
        }
    }

    /// Handles a link that went up or down.
    pub(crate) fn link_changed(&mut self, now: Time, link: usize, net: &mut Network) {
        for index in 0..self.paths.len() {
            if self.paths[index].links.contains(&link) && self.paths[index].open {
                self.announce(now, index, net);
            }
        }
    }

    /// Handles a link's queue that filled up or has room again. A path to a group has room while
    /// all of its links have.
    pub(crate) fn queue_changed(&mut self, link: usize, event: &PathEvent, net: &Network) {
        let others_full = |path: &Path| {
            path.links.iter().any(|other| *other != link && net.pipes[*other].blocked.is_some())
        };
        let reached = self.paths.iter().filter(|path| path.open && path.links.contains(&link));
        // A host's TCP loses the packets that the queue rejects, as in Linux.
        let waits = |path: &&Path| !path.interface || net.pipes[link].link.config().backpressure;
        for path in reached.filter(|path| !others_full(path)).filter(waits) {
            self.events.push_back((path.id, event.clone()));
        }
    }
}
