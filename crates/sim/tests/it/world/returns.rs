//! Reports of return link outages to engines, one light time after they start.

use std::time::Duration;

use engine::Time;
use link::{Outages, Window};
use slowlight_sim::{Action, HostConfig, Limit, Outcome, World};

use super::toy::*;

const DELAY: Duration = Duration::from_secs(7);

fn with_outage(mut config: link::Config) -> link::Config {
    let window = Window { start: Time::from_secs(1), end: Time::from_secs(3) };
    config.outages = Outages::List(vec![window]);
    config
}

/// Returns the events about their return links that Earth, then Moon, received.
fn returns(forward: &link::Config, back: &link::Config, cues: bool) -> [Vec<(Time, bool)>; 2] {
    let host = |host| HostConfig { cues, ..host };
    let Pair { mut world, earth, moon, .. } = pair_of(host, forward, back);
    // Keeps the world running until everything has happened.
    world.schedule(Time::from_secs(60), Action::Call(earth, Box::new(|_, _| {})));
    assert_eq!(world.run(Limit::default()), Outcome::Idle);
    let of = |world: &World<Toy>, host| world.engine(host).unwrap().returns.clone();
    [of(&world, earth), of(&world, moon)]
}

#[test]
fn an_outage_of_the_return_link_reaches_the_far_end_a_light_time_later() {
    let events = vec![(Time::from_secs(8), false), (Time::from_secs(10), true)];
    let clear = line(DELAY);
    let outage = with_outage(line(DELAY));
    assert_eq!(returns(&clear, &outage, true), [events.clone(), vec![]]);
    assert_eq!(returns(&outage, &clear, true), [vec![], events.clone()]);
    assert_eq!(returns(&outage, &outage, true), [events.clone(), events]);
    assert_eq!(returns(&outage, &outage, false), [vec![], vec![]], "without cues");
}
