//! Turns among many paths.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::{PathEffect, PathInfo};

use super::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Never {}

impl Alarm for Never {
    fn why(self) -> &'static str {
        match self {}
    }

    fn awaits_peer(self) -> bool {
        match self {}
    }
}

/// Sessions with a number of datagrams left for each path.
struct Toy {
    shared: Shared<Never>,
    sessions: BTreeMap<u32, (Seat, usize)>,
}

impl Toy {
    fn new(paths: u32) -> Self {
        let buffers = Buffers {
            write_buffer: 1000,
            write_piece: 100,
            read_ahead: 100,
            read_ahead_total: 100,
            read_piece: 100,
            replies: 100,
        };
        let mut shared = Shared::new(buffers);
        for id in 1..=paths {
            let up = PathEvent::Up(PathInfo::datagram(10));
            shared.path_event(PathId(id), up, Pacing::default());
        }
        Self { shared, sessions: BTreeMap::new() }
    }

    fn wants(&mut self, index: u32, path: u32, count: usize) {
        let handle = Handle { index, generation: 0 };
        let mut seat = Seat::new(handle, Some(PathId(path)));
        seat.want(&mut self.shared.paths, Class::Bulk);
        self.sessions.insert(index, (seat, count));
    }

    /// Path of the next datagram.
    fn next(&mut self) -> Option<u32> {
        let mut tx = TxBuf::new(1);
        self.take_turns(Time::ZERO, &mut tx).map(|transmit| transmit.path.0)
    }

    fn rest(&mut self) -> Vec<u32> {
        std::iter::from_fn(|| self.next()).collect()
    }
}

impl Turns for Toy {
    type Alarm = Never;
    type Job = Infallible;

    fn shared(&mut self) -> &mut Shared<Never> {
        &mut self.shared
    }

    fn seat(&mut self, handle: Handle) -> Option<&mut Seat> {
        self.sessions.get_mut(&handle.index).map(|(seat, _)| seat)
    }

    fn emit_replies(&mut self, id: PathId, burst: &mut Burst<'_>) {
        self.shared.replies.emit(id, burst, |_| {});
    }

    fn emit(&mut self, handle: Handle, _class: Class, burst: &mut Burst<'_>) -> Turn {
        let Some((_, left)) = self.sessions.get_mut(&handle.index) else { return Turn::Over };
        while *left > 0 {
            let Some(place) = burst.push(10) else { return Turn::More };
            place.fill(0);
            *left -= 1;
        }
        Turn::Over
    }

    fn settle(&mut self, _handle: Handle) {}
}

#[test]
fn paths_with_work_take_turns() {
    let mut toy = Toy::new(100);
    toy.wants(0, 7, 3);
    toy.wants(1, 70, 2);
    toy.wants(2, 93, 3);
    assert_eq!([toy.next(), toy.next()], [Some(7), Some(70)]);
    // A path that becomes ready later takes its turn in the order of the paths.
    toy.wants(3, 80, 2);
    assert_eq!(toy.rest(), [80, 93, 7, 70, 80, 93, 7, 93]);
    assert!(toy.shared.paths.ready.is_empty(), "{:?}", toy.shared.paths.ready);
    assert_eq!(toy.next(), None);
}

#[test]
fn replies_without_sessions_take_turns() {
    let mut toy = Toy::new(10);
    assert!(toy.shared.replies.push(PathId(9), vec![0; 10]));
    assert!(toy.shared.replies.push(PathId(2), vec![0; 10]));
    assert!(toy.shared.replies.push(PathId(9), vec![0; 10]));
    toy.wants(0, 5, 2);
    assert_eq!(toy.rest(), [2, 5, 9, 5, 9]);
}

#[test]
fn data_for_a_down_path_wait() {
    let mut toy = Toy::new(3);
    toy.wants(0, 1, 2);
    toy.wants(1, 2, 2);
    toy.shared.path_event(PathId(1), PathEvent::Down, Pacing::default());
    toy.shared.path_event(PathId(2), PathEvent::Blocked, Pacing::default());
    assert_eq!(toy.next(), None);
    toy.shared.path_event(PathId(2), PathEvent::Writable, Pacing::default());
    assert_eq!(toy.rest(), [2, 2]);
    let up = PathEvent::Up(PathInfo::datagram(10));
    toy.shared.path_event(PathId(1), up, Pacing::default());
    assert_eq!(toy.rest(), [1, 1]);
}

#[test]
fn a_forgotten_paused_path_is_paused_again() {
    let mut toy = Toy::new(2);
    toy.shared.pause(PathId(1));
    toy.shared.pause(PathId(1));
    toy.shared.paths.remove(PathId(1));
    toy.shared.written(0);
    let up = PathEvent::Up(PathInfo::datagram(10));
    toy.shared.path_event(PathId(1), up, Pacing::default());
    toy.shared.pause(PathId(1));
    toy.shared.written(0);
    let path = PathId(1);
    let effects: Vec<_> = toy.shared.effects.drain(..).collect();
    let expected = [
        Effect::Path(PathEffect::PauseRead { path }),
        Effect::Path(PathEffect::PauseRead { path }),
        Effect::Path(PathEffect::ResumeRead { path }),
    ];
    assert_eq!(effects, expected);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Both {
    Reply,
    Pace,
}

impl Alarm for Both {
    fn why(self) -> &'static str {
        "test"
    }

    fn awaits_peer(self) -> bool {
        self == Self::Reply
    }
}

#[test]
fn the_driver_keeps_peers_with_sessions() {
    let mut shared: Shared<Both> = Shared::new(Toy::new(0).shared.buffers);
    let [here, there] = [PathId(1), PathId(2)];
    let handle = |index| Handle { index, generation: 0 };
    let effects = |shared: &mut Shared<Both>| -> Vec<PathEffect> {
        std::iter::from_fn(|| shared.next_effect())
            .map(|effect| match effect {
                Effect::Path(effect) => effect,
                Effect::Store(_) | Effect::Stream(_) => panic!("{effect:?}"),
            })
            .collect()
    };
    let (retain, release) =
        (|path| PathEffect::Retain { path }, |path| PathEffect::Release { path });
    let mut all: Vec<_> = [Some(here), Some(here), None]
        .into_iter()
        .zip(0..)
        .map(|(path, index)| Base::new(&mut shared.paths, handle(index), path, Time::ZERO))
        .collect();
    assert_eq!(effects(&mut shared), [retain(here)]);
    all[0].move_to(&mut shared, Time::ZERO, there);
    all[0].move_to(&mut shared, Time::ZERO, there);
    assert_eq!(effects(&mut shared), [retain(there)], "another session is here");
    all[2].move_to(&mut shared, Time::ZERO, there);
    all[1].disarm_all(&mut shared);
    all[1].disarm_all(&mut shared);
    assert_eq!(effects(&mut shared), [release(here)]);
    all[0].disarm_all(&mut shared);
    assert_eq!(effects(&mut shared), []);
    all[2].disarm_all(&mut shared);
    assert_eq!(effects(&mut shared), [release(there)]);
    assert!(shared.paths.seats.is_empty() && shared.paths.sessions.is_empty());
}

#[test]
fn timers_for_the_peer_stop_while_its_link_is_down() {
    let buffers = Toy::new(0).shared.buffers;
    let mut shared: Shared<Both> = Shared::new(buffers);
    let (path, secs) = (PathId(1), Duration::from_secs);
    let up = PathEvent::Up(PathInfo::datagram(10));
    let event =
        |shared: &mut Shared<Both>, event| shared.path_event(path, event, Pacing::default());
    assert_eq!(event(&mut shared, up.clone()), Some(Change::Resumed));
    let handle = Handle { index: 0, generation: 0 };
    let mut base = Base::new(&mut shared.paths, handle, Some(path), Time::ZERO);
    base.alarm(&mut shared, Both::Reply, Time::ZERO, secs(10));
    base.alarm(&mut shared, Both::Pace, Time::ZERO, secs(20));
    let armed = |shared: &Shared<Both>| {
        [Both::Reply, Both::Pace].map(|it| shared.timers.get((handle, it)).map(|at| at.at))
    };
    let change = |shared: &mut Shared<Both>, base: &mut Base<Both>, now, what, expected| {
        assert_eq!(event(shared, what), expected);
        base.follow(shared, Time::from_secs(now));
    };
    change(&mut shared, &mut base, 4, PathEvent::ReturnDown, Some(Change::Stopped));
    assert_eq!(armed(&shared), [None, Some(Time::from_secs(20))]);
    change(&mut shared, &mut base, 5, PathEvent::Down, Some(Change::Stopped));
    assert_eq!(armed(&shared), [None, None]);
    change(&mut shared, &mut base, 6, PathEvent::ReturnUp, None);
    assert_eq!(armed(&shared), [None, None], "the path itself is down");
    change(&mut shared, &mut base, 7, PathEvent::ReturnDown, None);
    change(&mut shared, &mut base, 9, up, Some(Change::Resumed));
    assert_eq!(armed(&shared), [None, Some(Time::from_secs(24))], "it may send");
    change(&mut shared, &mut base, 100, PathEvent::ReturnUp, Some(Change::Resumed));
    assert_eq!(armed(&shared), [Some(Time::from_secs(106)), Some(Time::from_secs(24))]);
    assert_eq!(base.last_received, Time::from_secs(96), "silence did not count");
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Reply,
    /// Local timer.
    Save,
}

impl Alarm for Kind {
    fn why(self) -> &'static str {
        "test"
    }

    fn awaits_peer(self) -> bool {
        self == Self::Reply
    }

    fn is_local(self) -> bool {
        self == Self::Save
    }
}

#[test]
fn timers_keep_their_time_for_a_path_but_not_for_a_user() {
    let mut shared: Shared<Kind> = Shared::new(Toy::new(0).shared.buffers);
    let (path, at) = (PathId(1), Time::from_secs);
    let up = PathEvent::Up(PathInfo::datagram(10));
    shared.path_event(path, up, Pacing::default());
    let handle = Handle { index: 0, generation: 0 };
    let mut base = Base::unfrozen(Seat::new(handle, Some(path)), Time::ZERO);
    let armed = |shared: &Shared<Kind>| {
        [Kind::Reply, Kind::Save].map(|it| shared.timers.get((handle, it)).map(|at| at.at))
    };
    base.arm(&mut shared, Kind::Reply, at(10));
    base.arm(&mut shared, Kind::Save, at(20));
    shared.path_event(path, PathEvent::Down, Pacing::default());
    base.freeze(&mut shared, at(4), Reason::Path);
    assert_eq!(armed(&shared), [None, Some(at(20))], "this host still saves");
    assert!(base.is_frozen() && !base.is_suspended());
    assert_eq!(base.thaw(at(9), Reason::Path), [(Kind::Reply, Duration::from_secs(6))]);
    assert_eq!(base.last_received, at(5), "silence did not count");
    base.arm(&mut shared, Kind::Reply, at(15));
    base.freeze(&mut shared, at(10), Reason::User);
    assert_eq!(armed(&shared), [None, Some(at(20))]);
    assert!(base.is_suspended() && !base.is_frozen());
    assert_eq!(base.thaw(at(11), Reason::User), [], "its protocol arms them");
    assert_eq!((base.is_suspended(), base.last_received), (false, at(5)));
}
