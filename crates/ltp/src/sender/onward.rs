//! Session that sends a block of another engine (LTP-T), which is stored here or still arriving.

use engine::{FileId, OpenMode};
use session::Base;
use session::path::{Class, Path};
use session::ranges::Ranges;
use session::storage::Storage as _;

use super::super::core::{Alarm, Core, Peer};
use super::super::supply::Supply;
use super::super::transport::flow::{Last, Seq, Stored};
use super::super::transport::passage::{News, Passage};
use super::{Phase, Sender};
use crate::segment::Checkpoint;

impl Sender {
    /// Starts a session that sends another engine's block. A working file holds everything of the
    /// block that ever arrives.
    pub(crate) fn of_stored(
        base: Base<Alarm>,
        peer: Peer,
        destination: u64,
        stored: &Stored,
        core: &mut Core,
    ) -> Self {
        let mut sender = Self::new(base, peer, destination, core);
        sender.service = stored.service;
        sender.layout.set_bare();
        let shape = &stored.shape;
        sender.source = Some(Supply::Passage(Passage::new(shape.parts.clone())));
        sender.layout.set_open(shape.red);
        if let Some(end) = shape.end {
            sender.ends_at(core, end, shape.last.clone());
        }
        core.shared.open(sender.base.seat.handle, stored.file.clone(), OpenMode::Read);
        sender
    }

    /// Starts a session that sends a block still arriving; these parts of it have arrived.
    pub(crate) fn of_passage(
        base: Base<Alarm>,
        peer: Peer,
        destination: u64,
        service: u64,
        arrived: Ranges,
        core: &mut Core,
    ) -> Self {
        let mut sender = Self::new(base, peer, destination, core);
        sender.service = service;
        sender.layout.set_bare();
        sender.source = Some(Supply::Passage(Passage::new(arrived)));
        sender.layout.set_open(u64::MAX);
        (sender.layout.is_red_known, sender.layout.is_end_known) = (false, false);
        sender.phase = Phase::Sending;
        sender
    }

    /// Makes this session a hop of a transfer, which receives its result.
    pub(crate) fn set_flow(&mut self, flow: Seq) {
        self.flow = Some(flow);
    }

    /// Forwards more data of the block; `red` is the end of its red part, or the known start of
    /// green data.
    pub(crate) fn pass_on(&mut self, core: &mut Core, red: u64, is_known: bool, news: News) {
        if self.phase != Phase::Sending {
            return;
        }
        self.layout.red = red;
        if let Some(total) = news.total.filter(|_| !self.layout.is_end_known) {
            self.ends_at(core, total, news.last.clone());
        }
        let Some(Supply::Passage(passage)) = self.source.as_mut() else { return };
        passage.take(news, core.shared.read_ahead());
        if is_known && !std::mem::replace(&mut self.layout.is_red_known, true) && red > 0 {
            // The last byte of the red part was sent as an ordinary one: it is sent again as the
            // end.
            if !passage.sent_of(red - 1, red).is_empty()
                && passage.request(red - 1, red, usize::MAX)
            {
                self.checkpoints.set(red, 0, None);
            }
        }
        self.read_on(core);
    }

    /// Notes the end of the block and its last segment.
    fn ends_at(&mut self, core: &Core, total: u64, last: Option<Last>) {
        let last = last.filter(|last| self.fits(core, last));
        self.layout.end_at(total, last);
        let (content, is_green) = (self.layout.content, self.layout.red < total);
        if let Some(Supply::Passage(passage)) = self.source.as_mut() {
            passage.end_at(content, is_green);
        }
    }

    /// Whether the last segment of the block fits, so that it remains a single segment.
    fn fits(&self, core: &Core, last: &Last) -> bool {
        let path = self.base.seat.path.and_then(|id| core.shared.paths.get(&id));
        let serial = self.checkpoints.next();
        let checkpoint = Some(Checkpoint { serial, report: serial });
        let room = self.room(path.map_or(1024, Path::mtu), last.offset, checkpoint);
        !last.bytes.is_empty() && room.is_some_and(|room| last.bytes.len() <= room)
    }

    /// Takes over the working file after the reception has ended.
    pub(crate) fn take_over(&mut self, core: &mut Core, file: FileId) {
        match self.source.as_mut() {
            Some(Supply::Passage(passage)) if self.phase == Phase::Sending => {
                passage.take_over(file);
            }
            Some(Supply::Passage(_) | Supply::Source(_)) | None => {
                core.shared.close(file);
                return;
            }
        }
        self.read_on(core);
    }

    /// Continues with data that can be read now.
    fn read_on(&mut self, core: &mut Core) {
        self.read_ahead(core);
        let handle = self.base.seat.handle;
        if let Some(source) = self.source.as_mut() {
            source.read_repairs(core, handle);
        }
        self.base.want(&mut core.shared, Class::Repair);
        self.base.want(&mut core.shared, Class::Bulk);
    }
}
