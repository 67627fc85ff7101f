//! LTP below an entity: a PDU is a block.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use ::ltp::segment::{CancelReason, End, SessionId};
use ::ltp::{self, BlockContent, Finished, Indication, Red};
use bp::layer::Content;
use bytes::Bytes;
use engine::{
    Deadline, Effect, Engine, Input, PathEvent, PathId, PathInfo, PathKind, Rng, Time, Transmit,
    TxBuf,
};
use session::settings;
use session::words;

use super::below::{Arrival, Below, Event, Note, Refused, Unit};
use super::{Config, LayeredEntity};

/// Client service of CFDP (IANA registry of LTP client service identifiers, RFC 7116).
pub const CFDP_SERVICE: u64 = 3;

/// Longest accepted block in bytes: several of the longest PDUs, 65,535 and a header.
const BLOCK_MAX: usize = 1 << 20;

/// Minimum window: PDUs in transit to an entity at any distance.
const WINDOW_MIN: usize = 16;

/// Overhead of a segment in bytes, with numbers of ten bytes and a cookie, and some reserve.
const SEGMENT_HEAD: usize = 64;

/// File data flag in the first byte of a PDU.
const FILE_DATA: u8 = 0x10;

/// Red part of an entity's PDUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Color {
    /// All: LTP retransmits losses.
    #[default]
    Red,
    /// All but file data, which is green: only class 2 requests lost parts.
    GreenData,
    /// None.
    Green,
}

words!(Color { "red" = Self::Red, "green-data" = Self::GreenData, "green" = Self::Green });

settings! {
    /// Settings of [`OverLtp`].
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct LtpConfig {
        /// Settings of the LTP engine. Engine numbers are entity numbers, as in CCSDS networks; the
        /// client service is always [`CFDP_SERVICE`] and the format always blocks.
        pub ltp: ltp::Config as Table = ltp::Config::default(),
        /// Red part of the entity's PDUs: all, all but file data, or nothing.
        pub color: Color as Word = Color::Red,
    }
}

/// Path of another engine.
#[derive(Clone, Copy, Debug)]
struct EntityPath {
    /// The path, if known.
    path: Option<PathId>,
    /// Whether it is configured, rather than learned.
    is_set: bool,
}

/// LTP below an entity.
#[derive(Debug)]
pub struct LtpLayer {
    ltp: ltp::Node,
    color: Color,
    pdu_max: usize,
    /// PDUs in transit to an entity.
    window: usize,
    ways: BTreeMap<u64, EntityPath>,
    /// Paths that are up.
    up: BTreeMap<PathId, PathInfo>,
    /// Paths whose return is down.
    return_down: BTreeSet<PathId>,
    units: BTreeMap<SessionId, Unit>,
    arrivals: BTreeMap<Arrival, SessionId>,
    next: u64,
    /// Whether a PDU was refused because of too many sessions. Sessions being cancelled count, and
    /// are closed without a report.
    is_refused: bool,
    events: VecDeque<Event>,
}

/// Entity over LTP.
pub type OverLtp = LayeredEntity<LtpLayer>;

impl LayeredEntity<LtpLayer> {
    /// Builds an entity over LTP; both have the same number. Timers without configuration are
    /// derived from LTP's.
    #[must_use]
    pub fn over_ltp(
        mut entity: cfdp::Config,
        config: Config,
        below: &LtpConfig,
        mut rng: Rng,
    ) -> Self {
        for number in below.ltp.remotes.keys() {
            let remote = entity.remote(*number).clone();
            entity.remotes.entry(*number).or_insert(remote);
        }
        for (number, remote) in &mut entity.remotes {
            fit(remote, below.ltp.remote(*number), below.color);
        }
        fit(&mut entity.default_remote, &below.ltp.default_remote, below.color);
        let mut of = |name: &str| Rng::new(rng.next_u64(), name);
        let layer = LtpLayer::new(entity.entity, &config, below, of("ltp"));
        Self::new(entity, config, layer, of("cfdp"))
    }

    /// The LTP engine.
    #[must_use]
    pub fn ltp(&self) -> &ltp::Node {
        &self.below().ltp
    }
}

/// Sets timers and limits not configured.
///
/// LTP retransmits red data, so checks of class 1 have no limit there: only silence longer than
/// LTP's sessions may last is a fault.
fn fit(remote: &mut cfdp::Remote, ltp: &ltp::Remote, color: Color) {
    let silence = match ltp.inactivity {
        cfdp::Timer::Fixed(silence) => silence,
        cfdp::Timer::Auto => Duration::from_secs(3600),
    };
    if remote.check_timer == cfdp::Timer::Auto {
        match color {
            Color::Red => remote.check_limit = None,
            // Lost green data never arrives. With a limit of three, the fourth check is after 48
            // min.
            Color::GreenData | Color::Green => {
                let checks = remote.check_limit.unwrap_or_default().saturating_add(2);
                remote.check_timer = cfdp::Timer::Fixed(silence / checks);
            }
        }
    }
    if remote.inactivity == cfdp::Timer::Auto {
        remote.inactivity = ltp.inactivity;
    }
}

impl LtpLayer {
    fn new(entity: u64, config: &Config, below: &LtpConfig, rng: Rng) -> Self {
        let mut ltp = below.ltp.clone();
        ltp.engine = entity;
        ltp.service = CFDP_SERVICE;
        ltp.aggregation = None;
        ltp.transport = None;
        ltp.limits.units = ltp.limits.units.max(2 * config.pdu_max).min(BLOCK_MAX);
        ltp.limits.block = BLOCK_MAX as u64;
        let way = |path: Option<PathId>| EntityPath { path, is_set: path.is_some() };
        let ways = ltp.remotes.iter().map(|(number, remote)| (*number, way(remote.path)));
        Self {
            ways: ways.collect(),
            ltp: ltp::Node::of_blocks(ltp, rng),
            color: below.color,
            pdu_max: config.pdu_max,
            window: config.limits.window,
            up: BTreeMap::new(),
            return_down: BTreeSet::new(),
            units: BTreeMap::new(),
            arrivals: BTreeMap::new(),
            next: 0,
            is_refused: false,
            events: VecDeque::new(),
        }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// PDUs that fill the path to an entity: the data sent during a response and a repair, at least
    /// [`WINDOW_MIN`] PDUs.
    fn fills(&self, entity: u64, info: &PathInfo) -> Option<usize> {
        let rate = self.ltp.config().remote(entity).rate_bps.or(info.rate_bps)?;
        // 10 Mbit/s and 1.25 s: 5 s are 6.25 MB, which are 96 PDUs of 65,535 bytes.
        let bytes = 4 * u128::from(rate) * info.owlt?.as_nanos() / 8_000_000_000;
        let pdus = bytes.div_ceil(self.pdu_max.max(1) as u128);
        Some(usize::try_from(pdus).unwrap_or(usize::MAX).max(WINDOW_MIN).min(self.window))
    }

    /// Properties of the path to an entity, if it is up.
    fn info(&self, entity: u64) -> Option<&PathInfo> {
        match self.ways.get(&entity)?.path {
            Some(path) => self.up.get(&path),
            None => self.up.values().next(),
        }
    }

    /// Path properties reported to the entity. A response may take a repair round each way, and
    /// waits for the data in transit before it.
    fn shown(&self, entity: u64, info: &PathInfo) -> PathInfo {
        let rate = self.ltp.config().remote(entity).rate_bps;
        let paced = PathInfo { rate_bps: rate.or(info.rate_bps), ..info.clone() };
        // 1.25 s of light time, and 96 blocks of 65,535 bytes at 10 Mbit/s: 3.75 s + 5.03 s.
        let window = self.fills(entity, info).unwrap_or(self.window).saturating_mul(self.pdu_max);
        let owlt = info.owlt.map(|owlt| owlt * 3 + paced.transmission_time(window));
        // A lost segment loses a green block: one PDU is one segment then.
        let segment = match (self.color, info.kind) {
            (Color::GreenData | Color::Green, PathKind::Datagram { mtu }) => {
                let most = self.ltp.config().remote(entity).datagram_max.unwrap_or(mtu).min(mtu);
                most.saturating_sub(SEGMENT_HEAD)
            }
            (
                Color::Red | Color::GreenData | Color::Green,
                PathKind::Datagram { .. } | PathKind::Message { .. } | PathKind::Stream,
            ) => usize::MAX,
        };
        let max = self.pdu_max.min(segment);
        PathInfo { kind: PathKind::Message { max }, owlt, ends: info.ends, ..PathInfo::datagram(0) }
    }

    fn path_event(&mut self, path: PathId, event: &PathEvent) {
        match event {
            PathEvent::Up(info) => self.up.insert(path, info.clone()),
            PathEvent::Down => self.up.remove(&path),
            PathEvent::ReturnDown | PathEvent::ReturnUp => {
                let is_up = *event == PathEvent::ReturnUp;
                let changed = if is_up {
                    self.return_down.remove(&path)
                } else {
                    self.return_down.insert(path)
                };
                for entity in self.entities_by(path).filter(|_| changed).collect::<Vec<_>>() {
                    self.events.push_back(if is_up {
                        Event::ReturnUp { entity }
                    } else {
                        Event::ReturnDown { entity }
                    });
                }
                return;
            }
            PathEvent::Blocked
            | PathEvent::Writable
            | PathEvent::Unsent
            | PathEvent::ReadClosed
            | PathEvent::Missing { .. }
            | PathEvent::Secured(_) => return,
        };
        for entity in self.entities_by(path).collect::<Vec<_>>() {
            self.report_path(entity);
        }
    }

    /// Entities reached over a path.
    fn entities_by(&self, path: PathId) -> impl Iterator<Item = u64> + '_ {
        let leads = move |way: &EntityPath| way.path.is_none_or(|of| of == path);
        self.ways.iter().filter(move |(_, way)| leads(way)).map(|(entity, _)| *entity)
    }

    /// Reports the state of the path to an entity.
    fn report_path(&mut self, entity: u64) {
        let event = match self.info(entity) {
            Some(info) => Event::Up { entity, info: self.shown(entity, info) },
            None => Event::Down { entity },
        };
        self.events.push_back(event);
        let path = self.ways.get(&entity).and_then(|way| way.path);
        let path = path.or_else(|| self.up.keys().next().copied());
        if path.is_some_and(|path| self.return_down.contains(&path)) {
            self.events.push_back(Event::ReturnDown { entity });
        }
    }

    /// Handles the engine's indications and effects.
    fn listen(&mut self) {
        loop {
            let mut some = false;
            while let Some(block) = self.ltp.poll_block() {
                some = true;
                self.block(block);
            }
            while let Some(indication) = self.ltp.poll_indication() {
                some = true;
                self.indicated(indication);
            }
            if !some {
                break;
            }
        }
        if self.is_refused && self.ltp.has_room() {
            self.is_refused = false;
            self.events.push_back(Event::Room);
        }
    }

    fn indicated(&mut self, indication: Indication) {
        match indication {
            Indication::Finished(finished) => self.finished(&finished),
            Indication::Elsewhere { engine: entity, address, is_taken } => {
                let note = Note::Elsewhere { entity, address, is_taken };
                self.events.push_back(Event::Noted(note));
            }
            Indication::LimitReached(limit) => {
                self.events.push_back(Event::Noted(Note::LimitReached(limit)));
            }
            Indication::Started(_)
            | Indication::Displaced(_)
            | Indication::Receiving { .. }
            | Indication::Data { .. }
            | Indication::Interrupted { .. }
            | Indication::Transport(_)
            | Indication::PeerError { .. } => {}
        }
    }

    fn block(&mut self, block: ltp::Block) {
        let ltp::Block { id, content, path, .. } = block;
        let from = id.originator;
        match path {
            // The entity above has room for it, or refuses the block.
            Some(path) if !self.ways.contains_key(&from) => {
                self.ways.insert(from, EntityPath { path: Some(path), is_set: false });
                self.ltp.set_way(from, path);
            }
            path => self.learn_path(from, path),
        }
        let arrival = Arrival(self.number());
        self.arrivals.insert(arrival, id);
        let (content, leaves_file) = match content {
            BlockContent::Bytes(bytes) => (Content::Bytes(bytes), false),
            BlockContent::File(name, len) => (Content::File { name, offset: 0, len }, true),
        };
        self.events.push_back(Event::Came { arrival, from, content, leaves_file });
    }

    /// Learns the path of an unconfigured engine from its segments.
    fn learn_path(&mut self, entity: u64, path: Option<PathId>) {
        let Some(way) = self.ways.get_mut(&entity).filter(|way| !way.is_set) else { return };
        let Some(received) = path.filter(|path| way.path != Some(*path)) else { return };
        way.path = Some(received);
        self.ltp.set_way(entity, received);
        self.report_path(entity);
    }

    fn finished(&mut self, finished: &Finished) {
        if finished.id.originator != self.ltp.config().engine {
            // The unaccepted block of the session cannot be accepted any more.
            let gone = self.arrivals.iter().find(|(_, id)| **id == finished.id);
            if let Some(arrival) = gone.map(|(arrival, _)| *arrival) {
                self.arrivals.remove(&arrival);
                self.events.push_back(Event::Gone { arrival });
            }
            return;
        }
        let Some(unit) = self.units.remove(&finished.id) else { return };
        self.events.push_back(match finished.result {
            Ok(()) => Event::Delivered { unit },
            Err(failure) => {
                // A timeout that used up LTP's retries is not retried.
                let is_final = failure.cause == Some(ltp::Cause::Silence)
                    || failure.by == End::Receiver && failure.reason == CancelReason::Unreachable;
                let why = match failure.by {
                    End::Receiver if failure.is_of_other_service() => {
                        "the program there speaks LTP, but receives no CFDP over it: files by LTP \
                         have another client service"
                    }
                    End::Receiver => "the receiving LTP engine cancelled a session",
                    End::Sender => "an LTP session failed",
                };
                Event::Failed { unit, is_final, why }
            }
        });
    }
}

impl Below for LtpLayer {
    const REPEATS: bool = true;

    fn carry(&mut self, now: Time, to: u64, pdu: Bytes) -> Result<Unit, Refused> {
        let is_data = pdu.first().is_some_and(|first| first & FILE_DATA != 0);
        let red = match self.color {
            Color::Red => Red::All,
            Color::GreenData if !is_data => Red::All,
            Color::GreenData | Color::Green => Red::None,
        };
        let started = self.ltp.send_bytes(now, to, CFDP_SERVICE, pdu, red);
        let id = started.map_err(|error| match error {
            ltp::RequestError::TooManySessions | ltp::RequestError::TooManyUnits => {
                self.is_refused = true;
                Refused::Later
            }
            ltp::RequestError::NoSession(_)
            | ltp::RequestError::Name
            | ltp::RequestError::NoPath(_)
            | ltp::RequestError::NoRoute(_)
            | ltp::RequestError::NoAggregation
            | ltp::RequestError::LargeUnit(_)
            | ltp::RequestError::Oneself => Refused::Never("LTP knows no path to the entity"),
        })?;
        let unit = Unit(self.number());
        self.units.insert(id, unit);
        self.listen();
        Ok(unit)
    }

    fn accept(&mut self, now: Time, arrival: Arrival) {
        if let Some(id) = self.arrivals.remove(&arrival) {
            // The session may have ended in the meantime.
            let _over = self.ltp.accept_block(now, id);
            self.listen();
        }
    }

    fn refuse(&mut self, now: Time, arrival: Arrival) {
        if let Some(id) = self.arrivals.remove(&arrival) {
            // The session may have ended in the meantime.
            let _over = self.ltp.cancel_for(now, id, CancelReason::System);
            self.listen();
        }
    }

    fn meet(&mut self, entity: u64) {
        self.ways.entry(entity).or_insert(EntityPath { path: None, is_set: false });
        self.report_path(entity);
    }

    fn part(&mut self, entity: u64) {
        if self.ways.get(&entity).is_some_and(|way| !way.is_set) {
            self.ways.remove(&entity);
            self.ltp.forget_way(entity);
        }
    }

    fn window(&self, to: u64) -> Option<usize> {
        self.fills(to, self.info(to)?)
    }
}

impl Engine for LtpLayer {
    type Indication = Event;

    fn handle_input(&mut self, now: Time, input: Input<'_>) {
        if let Input::Path(path, event) = &input {
            self.path_event(*path, event);
        }
        self.ltp.handle_input(now, input);
        self.listen();
    }

    fn handle_timeout(&mut self, now: Time) {
        self.ltp.handle_timeout(now);
        self.listen();
    }

    fn poll_transmit(&mut self, now: Time, tx: &mut TxBuf) -> Option<Transmit> {
        let transmit = self.ltp.poll_transmit(now, tx);
        self.listen();
        transmit
    }

    fn poll_effect(&mut self) -> Option<Effect> {
        self.ltp.poll_effect()
    }

    fn poll_indication(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Deadline> {
        self.ltp.poll_timeout()
    }
}
