//! Settings of a node that runs.

use std::sync::mpsc;

use bp::agent::Agent;
use bp::routes::{Priority, Wanted};
use engine::Time;
use rt::node::{Node, OnStep};
use rt::{FileStore, Waker};

use super::*;
use crate::node::plan::Changed;

const SETTINGS: &str = r#"
id = "ipn:1.0"
[store]
memory = "1 MB"
[[layer]]
kind = "tcpcl4"
[[neighbour]]
node = "ipn:2.0"
from = ["127.0.0.1"]
"#;

/// A node whose settings are changed, and its reaction to a clock that was set.
struct Place {
    folder: tempfile::TempDir,
    node: Node,
    on_step: Option<OnStep>,
    reload: Reload,
}

impl Place {
    fn new(settings: &str, plan: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("node.toml");
        std::fs::write(folder.path().join("plan.ionrc"), plan).unwrap();
        std::fs::write(&file, settings).unwrap();
        let spec = NodeSpec::read(&file).unwrap();
        let plan = PlanInForce::default();
        let mut config = spec.config(SystemTime::now(), 1, &plan).unwrap();
        let on_step = config.on_step.take();
        let waker = Waker::new().unwrap();
        let store = FileStore::in_memory(1_000_000, &waker);
        let node = Node::start(config, store, waker, |_, _, _| {}).unwrap();
        let reload = Reload::new(file, spec, plan, node.handle());
        Self { folder, node, on_step, reload }
    }

    fn reload(&self, settings: &str) -> Result<Vec<&'static str>, SpecError> {
        std::fs::write(self.folder.path().join("node.toml"), settings).unwrap();
        self.reload.read()
    }

    fn ask<T: Send + 'static>(
        &self,
        request: impl FnOnce(Time, &mut Agent) -> T + Send + 'static,
    ) -> T {
        let (answer, answered) = mpsc::channel();
        self.node.handle().ask(move |now, agent| answer.send(request(now, agent)).unwrap());
        answered.recv().unwrap()
    }

    /// Has the clock set forward by `seconds`.
    fn step(&mut self, seconds: u64) {
        let zero = self.node.handle().zero() + Duration::from_secs(seconds);
        let mut on_step = self.on_step.take().unwrap();
        let on_step = self.ask(move |now, agent| {
            on_step(now, agent, zero);
            on_step
        });
        self.on_step = Some(on_step);
    }

    /// Changes the plan by commands of ION.
    fn change(&self, commands: &str, epoch: Option<&str>) -> Result<Changed, String> {
        let epoch = epoch.map(str::to_owned);
        let changes = self.reload.plan_changes(commands.into(), epoch);
        let changed = self.ask(changes.map_err(|error| error.to_string())?)?;
        Ok(changed.expect("the clock is not set meanwhile"))
    }

    /// Receiving nodes of the contacts in force, with the seconds of their ends from the start.
    fn contacts(&self) -> Vec<(u64, u64)> {
        self.ask(|_, agent| {
            let Routing::ContactGraph(router, _) = &agent.config().routing else { return vec![] };
            let contacts = router.plan().contacts().iter();
            contacts.map(|contact| (contact.to, contact.end.as_nanos() / 1_000_000_000)).collect()
        })
    }
}

#[test]
fn a_clock_that_was_set_moves_the_plan_in_force() {
    let settings = format!(
        "contact_plan = {{ file = \"plan.ionrc\", epoch = \"2100-01-01T00:00:00Z\" }}{SETTINGS}"
    );
    let mut place = Place::new(&settings, "a contact +0 +100 1 2 1000\n");
    let start = place.contacts()[0].1;
    // The file plays no part, neither for a plan of an application nor for that of the file.
    std::fs::remove_file(place.folder.path().join("plan.ionrc")).unwrap();
    place.step(1000);
    let near = |(to, end): (u64, u64), node, at: u64| to == node && end.abs_diff(at) <= 10;
    assert!(near(place.contacts()[0], 2, start - 1000), "{:?}", place.contacts());
    let other = "a contact +0 +200 1 3 1000\n";
    place.reload.set_plan(other, None, None).unwrap();
    assert!(near(place.contacts()[0], 3, start + 100), "{:?}", place.contacts());
    place.step(5000);
    let [contact] = place.contacts()[..] else { panic!("{:?}", place.contacts()) };
    assert!(near(contact, 3, start + 100 - 5000), "{contact:?}");
    // A plan from the file, in place of that of the application.
    std::fs::write(place.folder.path().join("plan.ionrc"), "a contact +0 +300 1 4 1000\n").unwrap();
    assert!(place.reload(&settings).unwrap().is_empty());
    place.step(7000);
    let [contact] = place.contacts()[..] else { panic!("{:?}", place.contacts()) };
    assert!(near(contact, 4, start + 200 - 7000), "{contact:?}");
}

#[test]
fn changes_of_a_plan_stay_when_the_clock_was_set() {
    let settings = format!(
        "contact_plan = {{ file = \"plan.ionrc\", epoch = \"2100-01-01T00:00:00Z\" }}{SETTINGS}"
    );
    let plan = "a contact +0 +100 1 2 1000\na contact +0 +100 1 3 1000\n";
    let mut place = Place::new(&settings, plan);
    let start = place.contacts()[0].1 - 100;
    let commands = "m horizon +0\nd contact +0 1 2\na contact +200 +300 1 4 1000\n";
    let changed = place.change(commands, None).unwrap();
    let skipped = vec![(1, "\"m horizon\" does not change a plan; skipped".to_owned())];
    assert_eq!(changed, Changed { applied: 2, skipped, more: 0 });
    assert_eq!(place.contacts(), [(3, start + 100), (4, start + 300)]);
    // All changes are made, or none.
    let error = place.change("d contact * 1 3\na contact +250 +400 1 4 1000", None).unwrap_err();
    assert!(error.starts_with("line 2: contact 1 to 4 overlaps"), "{error}");
    let error = place.change("d contact 1 3", None).unwrap_err();
    assert!(error.contains("line 1"), "{error}");
    assert_eq!(place.contacts(), [(3, start + 100), (4, start + 300)]);
    // With another epoch.
    place.change("a contact +0 +10 1 2 1000", Some("2101-01-01T00:00:00Z")).unwrap();
    let year = 365 * 86_400;
    let expected = [(3, start + 100), (4, start + 300), (2, start + year + 10)];
    assert_eq!(place.contacts(), expected);
    place.step(1000);
    let moved = place.contacts();
    let is_near = |(one, other): (&(u64, u64), &(u64, u64))| {
        one.0 == other.0 && (other.1 - 1000).abs_diff(one.1) <= 10
    };
    assert_eq!(moved.len(), 3);
    assert!(moved.iter().zip(&expected).all(is_near), "{moved:?}");
    // The plan of the file, or a whole new one, replaces the changes.
    place.reload.set_plan("a contact +0 +50 1 5 1000", None, None).unwrap();
    place.step(0);
    assert_eq!(place.contacts().iter().map(|contact| contact.0).collect::<Vec<_>>(), [5]);
}

#[test]
fn changes_of_a_plan_are_bounded() {
    let settings = format!("contact_plan = \"plan.ionrc\"{SETTINGS}");
    let place = Place::new(&settings, "");
    let many: String =
        (0..100_000).map(|n| format!("a contact +{} +{} 1 2 9\n", 2 * n, 2 * n + 1)).collect();
    assert_eq!(place.change(&many, None).unwrap().applied, 100_000);
    assert_eq!(place.contacts().len(), 100_000);
    let long = format!("#{}\na contact +0 +1 1 3 9", " ".repeat(16 << 20));
    // They are not even read.
    for long in [long.clone(), long.replace("contact", "kontact")] {
        let error = place.change(&long, None).unwrap_err();
        assert!(error.contains("replace the plan with PUT"), "{error}");
    }
    let none = Place::new(SETTINGS, "");
    let error = none.change("d contact * 1 2", None).unwrap_err();
    assert!(error.contains("has no contact plan"), "{error}");
}

#[test]
fn a_plan_that_was_added_moves_with_the_clock() {
    let mut place = Place::new(SETTINGS, "a contact +0 +100 1 2 1000\n");
    place.step(10);
    assert!(place.contacts().is_empty());
    let settings = format!(
        "contact_plan = {{ file = \"plan.ionrc\", epoch = \"2100-01-01T00:00:00Z\" }}{SETTINGS}"
    );
    assert!(place.reload(&settings).unwrap().is_empty());
    let before = place.contacts()[0].1;
    place.step(1000);
    let [(2, after)] = place.contacts()[..] else { panic!("{:?}", place.contacts()) };
    assert!((before - 1000).abs_diff(after) <= 10, "{before} {after}");
    // And none after it was removed.
    assert!(place.reload(SETTINGS).unwrap().is_empty());
    place.step(2000);
    assert!(place.contacts().is_empty());
}

#[test]
fn a_clock_that_is_set_while_a_plan_is_read_moves_it() {
    let settings = format!(
        "contact_plan = {{ file = \"plan.ionrc\", epoch = \"2100-01-01T00:00:00Z\" }}{SETTINGS}"
    );
    let mut place = Place::new(&settings, "a contact +0 +100 1 2 1000\n");
    let start = place.contacts()[0].1;
    let request = place.reload.new_plan("a contact +0 +100 1 3 1000", None, None).unwrap();
    place.step(1000);
    place.ask(request);
    let [(3, moved)] = place.contacts()[..] else { panic!("{:?}", place.contacts()) };
    assert!((start - 1000).abs_diff(moved) <= 10, "{start} {moved}");
}

#[test]
fn a_contact_that_has_started_is_named_by_its_start() {
    let settings = format!(
        "contact_plan = {{ file = \"plan.ionrc\", epoch = \"2020-01-01T00:00:00Z\" }}{SETTINGS}"
    );
    let plan = "a contact +0 2100/01/01-00:00:00 1 2 1000\n\
                a contact +5 2100/01/01-00:00:00 1 3 1000\n";
    let mut place = Place::new(&settings, plan);
    let receivers =
        |place: &Place| place.contacts().iter().map(|contact| contact.0).collect::<Vec<_>>();
    let error = place.change("d contact +1 1 2", None).unwrap_err();
    assert!(error.contains("no contact of 1 with 2"), "{error}");
    assert_eq!(place.change("d contact +0 1 2", None).unwrap().applied, 1);
    assert_eq!(receivers(&place), [3]);
    place.step(1000);
    assert_eq!(receivers(&place), [3]);
    // One that was added, and has started.
    place.change("a contact +7 2100/01/01-00:00:00 1 4 1000", None).unwrap();
    place.change("d contact +0 1 4", None).unwrap_err();
    place.change("d contact +7 1 4", None).unwrap();
    assert_eq!(receivers(&place), [3]);
}

#[test]
fn contacts_of_a_new_plan_keep_their_bookings() {
    let settings = format!("contact_plan = \"plan.ionrc\"{SETTINGS}");
    let place = Place::new(&settings, "a contact +0 +100 1 3 1000\n");
    // The bookings go with the number of the contact.
    let number = |place: &Place| {
        place.ask(|now, agent| {
            let Routing::ContactGraph(router, _) = &agent.config().routing else { panic!() };
            let wanted = Wanted {
                destination: 3,
                bytes: 0,
                priority: Priority::Normal,
                expires: now + Duration::from_secs(1000),
                excluded: &BTreeSet::new(),
            };
            router.clone().best(now, &wanted).unwrap().legs[0].contact
        })
    };
    let before = number(&place);
    let more = "a contact +0 +100 1 2 1000\na contact +0 +100 1 3 1000\n";
    place.reload.set_plan(more, None, None).unwrap();
    assert_eq!(place.contacts(), [(2, 100), (3, 100)]);
    assert_eq!(number(&place), before);
}

#[test]
fn settings_that_need_a_restart_are_reported_and_keep_their_values() {
    let place = Place::new(SETTINGS, "");
    let limits = |place: &Place| place.ask(|_, agent| agent.config().limits.bytes);
    for (from, to, key) in [
        ("memory = \"1 MB\"", "memory = \"2 MB\"", "store"),
        ("memory = \"1 MB\"", "directory = \"/nowhere\"", "store"),
        ("id =", "limits.bundle = \"1 kB\"\nid =", "limits.bundle"),
        ("id =", "limits.strangers = \"refuse\"\nid =", "limits.strangers"),
        ("id =", "aliases = [\"dtn://one/\"]\nid =", "aliases"),
        ("id = \"ipn:1.0\"", "id = \"ipn:5.0\"", "id"),
        ("kind = \"tcpcl4\"", "kind = \"tcpcl4\"\nkeepalive = \"off\"", "layer"),
    ] {
        let settings = SETTINGS.replace(from, to);
        assert_ne!(settings, SETTINGS);
        // They wait for it, however often the file is read.
        assert_eq!(place.reload(&settings).unwrap(), [key]);
        assert_eq!(place.reload(&settings).unwrap(), [key]);
        let in_force = place.reload.limits();
        assert_eq!((limits(&place), in_force.payload), (1_000_000, 1_000_000), "{key}");
        assert!(place.ask(|_, agent| agent.config().aliases.is_empty()), "{key}");
        assert!(place.reload(SETTINGS).unwrap().is_empty());
    }
}

#[test]
fn bounds_of_a_store_on_disk_apply_at_once() {
    let on_disk = SETTINGS.replace("memory = \"1 MB\"", "directory = \"/nowhere\"");
    let spec = |limits: &str| NodeSpec::parse(&format!("{limits}{on_disk}"), "node.toml").unwrap();
    let running = spec("limits.bundle = \"1 MB\"");
    let (new, later) = running.reloaded(spec(
        "limits.bundle = \"1 MB\"\nlimits.bytes = \"2 MB\"\nlimits.inline = \"7 B\"",
    ));
    assert!(later.is_empty(), "{later:?}");
    let limits = new.application_limits();
    assert_eq!(
        (new.settings.limits.bytes, limits.inline, limits.payload),
        (2_000_000, 7, 1_000_000)
    );
    // The layers accept bundles up to the lesser of both bounds.
    let less = spec("limits.bundle = \"1 MB\"\nlimits.bytes = \"500 kB\"");
    let (new, later) = running.reloaded(less);
    assert_eq!(
        (new.settings.limits.bytes, later),
        (running.settings.limits.bytes, vec!["limits.bytes"])
    );
}

#[test]
fn routes_to_a_new_neighbour_apply_at_once() {
    let place = Place::new(SETTINGS, "");
    let more = "[[layer]]\nkind = \"mtcp\"\nname = \"mtcp\"\n[[neighbour]]\nnode = \"ipn:3.0\"\nlayer = \"mtcp\"\n\
                address = \"127.0.0.1:9\"\n";
    let route = "[[route]]\nto = \"*\"\nvia = \"ipn:3.0\"\n";
    let later = place.reload(&format!("{SETTINGS}{more}{route}")).unwrap();
    assert_eq!(later, ["layer"]);
    let routes = |place: &Place| {
        place.ask(|_, agent| match &agent.config().routing {
            Routing::Static(entries) => entries.iter().map(|entry| entry.via.clone()).collect(),
            _ => Vec::new(),
        })
    };
    let [two, three] = [2, 3].map(|node| vec![Eid::ipn(node, 0)]);
    assert_eq!(routes(&place), [three.clone(), two.clone(), three.clone()]);
    place.reload.set_routes(&route.replace("ipn:3.0", "ipn:2.0")).unwrap();
    assert_eq!(routes(&place), [two.clone(), two, three]);
}

/// Waits until a node has links to just these neighbours.
fn await_up(place: &Place, expected: &[u32]) {
    let expected: BTreeSet<Eid> = expected.iter().map(|node| Eid::ipn(*node, 0)).collect();
    let limit = std::time::Instant::now() + Duration::from_secs(20);
    loop {
        let up = place.ask(|_, agent| agent.nodes_up());
        if up == expected {
            return;
        }
        assert!(std::time::Instant::now() < limit, "{up:?}, not {expected:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn neighbours_of_streams_change_at_once() {
    let two = SETTINGS.replace("ipn:2.0", "ipn:3.0").replace("ipn:1.0", "ipn:2.0");
    let two = two.replace("\"tcpcl4\"", "\"tcpcl4\"\nlisten = [\"127.0.0.1:0\"]");
    let base = SETTINGS.split("[[neighbour]]").next().unwrap();
    let base = base.replace("\"tcpcl4\"", "\"tcpcl4\"\nreconnect = \"20 ms\"");
    let there = Place::new(&two, "");
    let port = there.node.listening().next().unwrap().1[0].port();
    let here = Place::new(&base, "");
    await_up(&here, &[]);
    let with = |address: &str| {
        format!("{base}[[neighbour]]\nnode = \"ipn:2.0\"\naddress = \"{address}\"\n")
    };
    // A new one, by its name.
    assert!(here.reload(&with(&format!("localhost:{port}"))).unwrap().is_empty());
    await_up(&here, &[2]);
    // Settings that stay keep the session.
    let came = there.ask(|_, agent| agent.links_up().collect::<Vec<_>>());
    let count = came.len();
    assert_eq!(count, 1);
    assert!(here.reload(&with(&format!("localhost:{port}"))).unwrap().is_empty());
    await_up(&here, &[2]);
    assert_eq!(there.ask(|_, agent| agent.links_up().collect::<Vec<_>>()), came);
    // Nobody listens there.
    assert!(here.reload(&with("127.0.0.1:1")).unwrap().is_empty());
    await_up(&here, &[]);
    assert!(here.reload(&with(&format!("127.0.0.1:{port}"))).unwrap().is_empty());
    await_up(&here, &[2]);
    // The other one admits it under its name from now on, and then no more.
    await_up(&there, &[]);
    let known = two.replace("ipn:3.0", "ipn:1.0");
    assert!(there.reload(&known).unwrap().is_empty());
    await_up(&there, &[1]);
    let far = known.replace("from = [\"127.0.0.1\"]", "from = [\"192.0.2.1\"]");
    assert!(there.reload(&far).unwrap().is_empty());
    await_up(&there, &[]);
    assert!(here.reload(&base).unwrap().is_empty());
    await_up(&here, &[]);
    let links = here.ask(|_, agent| agent.config().links.len());
    assert_eq!(links, 0);
}

#[test]
fn neighbours_of_every_layer_change_at_once() {
    let kinds = ["udpcl", "ltpcl", "saratoga", "norm"];
    let layers: String = kinds
        .iter()
        .map(|kind| {
            format!(
                "[[layer]]\nkind = \"{kind}\"\nname = \"{kind}\"\nlisten = \"127.0.0.1:0\"\n\
                 rate = \"1 Mbit/s\"\n"
            )
        })
        .collect();
    let neighbour = |node: usize, kind: &str| {
        format!(
            "[[neighbour]]\nnode = \"ipn:{node}.0\"\nlayer = \"{kind}\"\n\
             address = \"localhost:{node}\"\n"
        )
    };
    let base = format!("id = \"ipn:1.0\"\nstore.memory = \"1 MB\"\n{layers}");
    let some = format!("{base}{}", neighbour(2, "udpcl"));
    let place = Place::new(&some, "");
    await_up(&place, &[2]);
    let all: String = (3..).zip(kinds).map(|(node, kind)| neighbour(node, kind)).collect();
    assert!(place.reload(&format!("{some}{all}")).unwrap().is_empty());
    await_up(&place, &[2, 3, 4, 5, 6]);
    // Another address, and another engine.
    let other = all.replace("localhost:3", "localhost:33").replace("ipn:4.0", "ipn:44.0");
    assert!(place.reload(&format!("{base}{other}")).unwrap().is_empty());
    await_up(&place, &[3, 5, 6, 44]);
    assert!(place.reload(&base).unwrap().is_empty());
    await_up(&place, &[]);
    let most = place.ask(|_, agent| agent.config().links.keys().map(|at| at.link.0).max());
    assert_eq!(most, None);
}

#[test]
fn thousands_of_neighbours_are_added_at_once() {
    let base = "id = \"ipn:1.0\"\nstore.memory = \"1 MB\"\n[[layer]]\nkind = \"udpcl\"\n\
                listen = \"127.0.0.1:0\"\nrate = \"1 Mbit/s\"\n";
    let place = Place::new(base, "");
    let many: String = (1..=2000)
        .map(|n| format!("[[neighbour]]\nnode = \"ipn:1{n}.0\"\naddress = \"127.0.0.1:{n}\"\n"))
        .collect();
    let counts =
        |place: &Place| place.ask(|_, agent| (agent.config().links.len(), agent.nodes_up().len()));
    for (settings, count) in [(format!("{base}{many}"), 2000), (base.to_owned(), 0)] {
        for _ in 0..2 {
            assert!(place.reload(&settings).unwrap().is_empty());
        }
        let limit = std::time::Instant::now() + Duration::from_secs(60);
        while counts(&place) != (count, count) {
            assert!(std::time::Instant::now() < limit, "{:?}", counts(&place));
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn contacts_that_are_over_leave_with_the_next_change() {
    let settings = format!("contact_plan = \"plan.ionrc\"{SETTINGS}");
    let plan = "a contact +0 +100 1 2 1000\na contact +0 +5000 1 3 1000\na range +0 +100 1 2 1\n";
    let place = Place::new(&settings, plan);
    let ranges = |place: &Place| {
        place.ask(|_, agent| match &agent.config().routing {
            Routing::ContactGraph(router, _) => router.plan().ranges().count(),
            _ => 0,
        })
    };
    assert_eq!((place.contacts().len(), ranges(&place)), (2, 1));
    for n in 1..=20 {
        let now = Time::from_secs(1000 * n);
        let (start, end) = (1000 * n + 1, 1000 * n + 500);
        let commands = format!("a contact +{start} +{end} 1 4 9\na range +{start} +{end} 1 4 1");
        let changes = place.reload.plan_changes(commands.into(), None).unwrap();
        place.ask(move |_, agent| changes(now, agent)).unwrap();
        assert!(place.contacts().len() <= 3 && ranges(&place) <= 2, "{:?}", place.contacts());
    }
    assert_eq!((place.contacts(), ranges(&place)), (vec![(4, 20_500)], 1));
    let request = place.reload.new_plan(plan, None, None).unwrap();
    place.ask(move |_, agent| request(Time::from_secs(1000), agent));
    assert_eq!((place.contacts(), ranges(&place)), (vec![(3, 5000)], 0));
}
