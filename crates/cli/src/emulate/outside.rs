//! Connection of a world to the network around it: uplink and published servers.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::str::FromStr;

use anyhow::{Context as _, anyhow, bail};
use emu::{HostPlan, Isolation, Name, Plan, Range, Uplink, World};
use lab::scenario::Scenario;
use testbed::emulation::{self, ENDS};
use transport::text;

use crate::Usage;

/// Options of commands that make a world.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct Outside {
    /// Connect a host to the machine's network and name servers [default host: far]
    ///
    /// IPv4 only; users other than root need slirp4netns. In the world, the machine's name is
    /// `outside`.
    #[arg(
        long,
        help_heading = "Network outside",
        value_name = "HOST",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = ENDS.1
    )]
    uplink: Option<String>,

    /// Forward a TCP port of the machine over the link to the same port of a host; repeatable
    ///
    /// [default: address 127.0.0.1, to the host of the programs]
    #[arg(long, help_heading = "Network outside", value_name = "[ADDRESS:]PORT[=HOST]")]
    publish: Vec<Published>,
}

/// Port of the machine whose connections are forwarded into the world.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Published {
    address: SocketAddr,
    host: Option<String>,
}

impl FromStr for Published {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (address, host) = match text.split_once('=') {
            Some((address, host)) => (address, Some(host.to_owned())),
            None => (text, None),
        };
        let port = address.parse::<u16>().map(|port| (Ipv4Addr::LOCALHOST, port).into());
        let address: SocketAddr = port.or_else(|_| address.parse()).map_err(|_| {
            "write a port, or an address and a port: 8080, 192.0.2.1:8080 or 8080=HOST".to_owned()
        })?;
        if address.port() == 0 {
            return Err("invalid port 0: expected the one that the server listens on".to_owned());
        }
        Ok(Self { address, host })
    }
}

impl Published {
    /// Whether both cannot listen at the same time.
    fn collides(&self, other: &Self) -> bool {
        let [a, b] = [self.address, other.address];
        let is_any = a.ip().is_unspecified() || b.ip().is_unspecified();
        a.port() == b.port() && (a.ip() == b.ip() || is_any)
    }

    fn listen(&self) -> anyhow::Result<TcpListener> {
        let address = self.address;
        TcpListener::bind(address).map_err(|error| {
            let remedy = match error.kind() {
                ErrorKind::AddrInUse => "another program listens there; take another port",
                ErrorKind::PermissionDenied => "without root, take a port above 1023",
                ErrorKind::AddrNotAvailable => "the machine does not have this address",
                _ => return anyhow!("--publish {address}: {error}"),
            };
            anyhow!("--publish {address}: {error}; {remedy}")
        })
    }
}

/// The process after [`Outside::isolate`].
pub(super) enum Entered {
    /// Everything is over: exit with this code.
    Over(i32),
    /// The process is that of the world.
    Inside(Joined),
}

/// Networks that a world is joined to.
pub(super) struct Joined {
    /// Names of the enclosing world, if there is one.
    around: Option<Vec<Name>>,
    /// The uplink, and the number of the host that has it.
    uplink: Option<(Uplink, usize)>,
    /// Listeners, each with the name of the server's host.
    published: Vec<(TcpListener, String)>,
}

impl Outside {
    /// Whether an option was given.
    pub(super) fn is_some(&self) -> bool {
        self.uplink.is_some() || !self.publish.is_empty()
    }

    /// Checks the options against the world, before anything is made. `host` is the default of
    /// `--publish`.
    pub(super) fn check(&self, scenario: &Scenario, host: &str) -> anyhow::Result<()> {
        let known = |option: &str, name: &str| {
            if scenario.nodes.contains_key(name) {
                return Ok(());
            }
            let names = || scenario.nodes.keys().map(String::as_str);
            let near = text::did_you_mean(name, names());
            let hosts = names().collect::<Vec<_>>().join(", ");
            Err(Usage(format!("{option}={name}: no such host{near} (hosts: {hosts})")))
        };
        if let Some(name) = &self.uplink {
            known("--uplink", name)?;
        }
        for (index, published) in self.publish.iter().enumerate() {
            let name = published.host.as_deref().unwrap_or(host);
            let address = published.address;
            known(&format!("--publish {address}"), name)?;
            if self.publish[..index].iter().any(|other| other.collides(published)) {
                let message = format!("--publish {address}: the port is given twice");
                return Err(Usage(message).into());
            }
        }
        Ok(())
    }

    /// Continues in namespaces of its own, with an uplink if the options or an enclosing world
    /// require one. `host` is the default of `--publish`.
    pub(super) fn isolate(&self, scenario: &Scenario, host: &str) -> anyhow::Result<Entered> {
        let around = emu::enclosing_world();
        let at = self.uplink.as_deref().unwrap_or(ENDS.1);
        let at = scenario.nodes.keys().position(|known| known == at);
        // The keeper removes what is left outside when this is over.
        let (uplink, _keeper) = match (&self.uplink, &around, at) {
            (Some(_), ..) | (None, Some(_), Some(_)) if emu::is_outer() => {
                match Uplink::choose(around.is_some()) {
                    Ok((uplink, keeper)) => (Some(uplink), keeper),
                    Err(error) if self.uplink.is_some() => return Err(error.into()),
                    Err(error) => {
                        let what = "the enclosing world cannot be reached from this one";
                        writeln!(io::stderr(), "warning: {what}: {error}")?;
                        (None, None)
                    }
                }
            }
            _ => (None, None),
        };
        match emu::isolate_with(uplink.as_ref())? {
            Isolation::Over(code) => Ok(Entered::Over(code)),
            Isolation::Inside => {
                let uplink = Uplink::from_environment().zip(at);
                let listen = |published: &Published| {
                    let host = published.host.as_deref().unwrap_or(host);
                    Ok((published.listen()?, host.to_owned()))
                };
                let published = self.publish.iter().map(listen).collect::<anyhow::Result<_>>()?;
                Ok(Entered::Inside(Joined { around, uplink, published }))
            }
        }
    }
}

impl Joined {
    /// Plan of the scenario, whose hosts move to addresses that are not in use outside.
    pub(super) fn plan(&self, scenario: &mut Scenario) -> anyhow::Result<Plan> {
        match &self.uplink {
            Some((uplink, _)) => emulation::shift(scenario, uplink.range()),
            None if self.around.is_some() => emulation::shift(scenario, Range::unused()),
            None => {}
        }
        let uplink = self.uplink.as_ref().map(|(_, host)| *host);
        Ok(Plan { uplink, ..emulation::plan(scenario)? })
    }

    /// Names the hosts. If the world `leads_on`, `far` is the far end of the enclosing world, which
    /// packets reach over both links.
    pub(super) fn name(&self, plan: &Plan, leads_on: bool) -> anyhow::Result<()> {
        let others = match (&self.around, &self.uplink) {
            (Some(around), _) => around.clone(),
            (None, Some((uplink, _))) => uplink.names(),
            (None, None) => Vec::new(),
        };
        let own = |host: &&HostPlan| !leads_on || host.name != ENDS.1;
        let hosts: Vec<_> = plan.hosts.iter().filter(own).cloned().collect();
        emu::name_hosts(&hosts, &others).context("naming the hosts in /etc/hosts")
    }

    /// Whether packets reach an enclosing world through this one.
    pub(super) fn is_nested(&self) -> bool {
        self.around.is_some() && self.uplink.is_some()
    }

    /// Opens the uplink, and forwards connections to published servers.
    pub(super) fn open(self, world: &World, plan: &Plan) -> anyhow::Result<()> {
        if let Some((uplink, host)) = &self.uplink {
            uplink.open(&world.hosts()[*host])?;
        }
        for (listener, name) in self.published {
            let port = listener.local_addr()?.port();
            let server = plan.hosts.iter().position(|host| host.name == name);
            let Some(server) = server else { bail!("--publish: there is no host {name}") };
            let uplink = self.uplink.as_ref().map(|(_, host)| *host);
            let via = uplink.filter(|host| *host != server).or_else(|| farthest(plan, server));
            let via = via.with_context(|| format!("--publish {port}: no link leads to {name}"))?;
            let address = (plan.hosts[server].address, port).into();
            emu::publish(listener, &world.hosts()[via], address).context("--publish")?;
        }
        Ok(())
    }
}

/// Number of the host that is the most links away from `from`; the first of several.
fn farthest(plan: &Plan, from: usize) -> Option<usize> {
    let next = |at: usize| {
        let route = plan.routes.iter().find(|route| route.at == at && route.to == from);
        route.map(|route| plan.links[route.over].to)
    };
    let mut distances = BTreeMap::new();
    for host in (0..plan.hosts.len()).filter(|host| *host != from) {
        let mut way = std::iter::successors(Some(host), |at| next(*at)).take(plan.hosts.len());
        if let Some(links) = way.position(|at| at == from) {
            distances.entry(links).or_insert(host);
        }
    }
    distances.pop_last().map(|(_, host)| host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_published_of_loopback_unless_an_address_is_given() {
        let published: Published = "8080".parse().expect("a port");
        assert_eq!(
            (published.address.to_string(), published.host),
            ("127.0.0.1:8080".into(), None)
        );
        let published: Published = "192.0.2.1:80=ground".parse().expect("all of it");
        assert_eq!(published.address.to_string(), "192.0.2.1:80");
        assert_eq!(published.host.as_deref(), Some("ground"));
        for wrong in ["", "0", "127.0.0.1", "http", "80:80", "65536"] {
            let error = wrong.parse::<Published>().expect_err(wrong);
            assert!(error.contains("port"), "{error}");
        }
    }

    #[test]
    fn one_port_is_not_published_twice() {
        let collide = |a: &str, b: &str| {
            let [a, b]: [Published; 2] = [a, b].map(|text| text.parse().expect("it is right"));
            a.collides(&b)
        };
        assert!(collide("80", "127.0.0.1:80=far") && collide("0.0.0.0:80", "80"));
        assert!(!collide("80", "81") && !collide("127.0.0.1:80", "127.0.0.2:80"));
    }

    #[test]
    fn connections_enter_a_chain_at_its_other_end() {
        let text = "seed = 1\ntransfers = []\nlinks = [{ from = \"b\", to = \"a\" }, \
                    { from = \"a\", to = \"b\" }, { from = \"a\", to = \"c\" }, \
                    { from = \"c\", to = \"a\" }]";
        let scenario = Scenario::parse(text, "test").expect("it is right");
        let plan = emulation::plan(&scenario.resolved().expect("it is right")).expect("a plan");
        // a is in the middle: b - a - c.
        assert_eq!([0, 1, 2].map(|from| farthest(&plan, from)), [Some(1), Some(2), Some(1)]);
    }
}
