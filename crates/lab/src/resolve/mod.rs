//! Reading of scenarios, and filling in their defaults.

mod groups;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::path::Path;

use engine::Rng;
use transport::Configuration;
use transport::contract::Feature;
use transport::overlay::Overlay;
use transport::protocol::Protocol;
use transport::quantity::Span;
use transport::records;
use transport::settings::tcp::{TcpBuffers, TcpSettings};
use transport::settings::{Settings, check_interval};
use transport::text::{self, SpecError};

use crate::adapter;
use crate::link_spec::LinkSpec;
use crate::overlay;
use crate::pep;
use crate::preset::Preset;
use crate::scenario::{SIZE, Scenario, Transfer};

/// Maximum nodes of a scenario.
const NODES_MAX: u16 = 10_000;

impl Scenario {
    /// Reads a scenario. Files it names are relative to it.
    ///
    /// # Errors
    ///
    /// Line, key and remedy of the first fault.
    pub fn read(path: &Path) -> Result<Self, SpecError> {
        let mut scenario = Self::parse(&text::read_text(path)?, &path.display().to_string())?;
        scenario.place(path.parent().unwrap_or(Path::new("")));
        Ok(scenario)
    }

    /// Parses a scenario from `text`, which came from `origin`.
    ///
    /// # Errors
    ///
    /// Line, key and remedy of the first fault.
    pub fn parse(text: &str, origin: &str) -> Result<Self, SpecError> {
        let mut scenario: Self =
            text::parse(text, origin).map_err(|error| match Preset::parse(text, origin) {
                Ok(_) => SpecError::invalid(format!(
                    "{origin} is a link, and a scenario has [[links]] with ends and [[transfers]]: \
                     take it as `slowlight compare --link {origin}`"
                )),
                Err(_) => error,
            })?;
        // Faults of its transfers are reported when it is resolved.
        let Ok(known) = scenario.clone().with_protocols() else { return Ok(scenario) };
        for (name, node) in &mut scenario.nodes {
            let member = known.groups.get(name).and_then(|group| group.members.first());
            let speaker = known.nodes.get(member.unwrap_or(name));
            let protocol = speaker.and_then(|node| node.protocol.as_ref());
            if let (Some(mib), Some(protocol)) = (&mut node.mib, protocol) {
                let keys = ["nodes", name, "mib"];
                *mib = Settings::parse(text, origin, &keys, protocol.kind.adapter())?;
            }
        }
        Ok(scenario)
    }

    /// Draws stored errors, for each link its own.
    fn draw_errors(&mut self) -> Result<(), SpecError> {
        for link in &mut self.links {
            let (from, to) = link.ends();
            let rng = || Rng::new(self.seed, &format!("error vector {from} {to}"));
            let drawn = link.errors.draw(rng);
            drawn.map_err(|error| error.below(&format!("link {from} -> {to}")))?;
        }
        Ok(())
    }

    /// Returns the scenario with each node's protocol.
    fn with_protocols(mut self) -> Result<Self, SpecError> {
        let Self { groups, nodes, links, transfers, .. } = &mut self;
        groups::expand(groups, nodes, links, transfers)?;
        self.add_nodes();
        for index in 0..self.transfers.len() {
            self.resolve_transfer(index)?;
        }
        Ok(self)
    }

    /// Returns the scenario with all defaults, checked.
    ///
    /// # Errors
    ///
    /// First contradiction.
    pub fn resolved(self) -> Result<Self, SpecError> {
        self.resolved_with(None)
    }

    /// Returns the scenario with all defaults and, if given, with this growth limit of TCP's
    /// buffers on all nodes in place of their settings and profiles.
    ///
    /// # Errors
    ///
    /// First contradiction.
    pub fn resolved_with(mut self, buffers: Option<TcpBuffers>) -> Result<Self, SpecError> {
        self.links = std::mem::take(&mut self.links)
            .into_iter()
            .map(resolve_link)
            .collect::<Result<_, _>>()?;
        self = self.with_protocols()?;
        self.draw_errors()?;
        self.check_transfers()?;
        for (index, node) in self.nodes.values_mut().enumerate() {
            let number = u16::try_from(index + 1).ok().filter(|number| *number <= NODES_MAX);
            let number = number.ok_or_else(|| {
                SpecError::invalid(format!("a scenario has at most {NODES_MAX} nodes"))
            })?;
            let [high, low] = number.to_be_bytes();
            node.address.get_or_insert(Ipv4Addr::new(10, 0, high, low));
            let known = node.protocol.as_ref().and_then(|protocol| protocol.kind.port());
            node.port.get_or_insert(known.unwrap_or(2500 + number));
            node.entity.get_or_insert(u64::from(number));
        }
        self.interpret_settings()?;
        if let Some(buffers) = buffers {
            self.limit_tcp_buffers(buffers);
        }
        overlay::settle(&self.transfers, &mut self.nodes)?;
        self.fill_in_settings()?;
        pep::settle(&mut self)?;
        self.check_nodes()?;
        self.limits.time.get_or_insert(Span(std::time::Duration::from_secs(3653 * 86_400)));
        let bytes =
            |transfer: &Transfer| transfer.bytes().saturating_mul(transfer.to.0.len() as u64);
        let bytes = self.transfers.iter().map(bytes).fold(0, u64::saturating_add);
        self.limits.events.get_or_insert(bytes.saturating_mul(10).saturating_add(100_000_000));
        if self.capture.at.is_none() {
            let receivers = self.transfers.first().map(|transfer| &transfer.to);
            self.capture.at = receivers.and_then(|to| to.names().next().map(str::to_owned));
        }
        match &self.capture.at {
            Some(at) if !self.nodes.contains_key(at) => Err(self.no_node("capture.at", at)),
            Some(_) | None => Ok(self),
        }
    }

    /// Adds tables for nodes that only links name.
    fn add_nodes(&mut self) {
        let ends = self.links.iter().flat_map(|link| [&link.from, &link.to]).flatten();
        for name in ends.cloned().collect::<BTreeSet<_>>() {
            self.nodes.entry(name).or_default();
        }
    }

    /// Interprets each node's settings for its protocol.
    fn interpret_settings(&mut self) -> Result<(), SpecError> {
        for (name, node) in &mut self.nodes {
            let Some(mib) = node.mib.take() else { continue };
            let Some(protocol) = &node.protocol else {
                return Err(SpecError::invalid(format!(
                    "nodes.{name}.mib: {name} speaks no protocol, so it needs no settings"
                )));
            };
            let read = mib.interpreted(protocol.kind.adapter());
            node.mib = Some(read.map_err(|error| of_node(name, &error))?);
        }
        Ok(())
    }

    /// Limits the growth of TCP's buffers on all nodes.
    fn limit_tcp_buffers(&mut self, buffers: TcpBuffers) {
        for node in self.nodes.values_mut() {
            if let Some(pep) = &mut node.pep {
                pep.limit_tcp_buffers(buffers);
            }
            let Some(protocol) = &node.protocol else { continue };
            match &mut node.mib {
                Some(mib) => mib.limit_tcp_buffers(buffers),
                None => {
                    let tcp = TcpSettings::default().with(&["buffers"], buffers.name());
                    node.mib = Settings::of_tcp(protocol.kind.adapter(), tcp);
                }
            }
        }
    }

    /// Writes all settings into the nodes.
    fn fill_in_settings(&mut self) -> Result<(), SpecError> {
        for (name, node) in &mut self.nodes {
            let entity = node.entity.unwrap_or_default();
            let Some(protocol) = &node.protocol else { continue };
            let config = transport::configure(protocol, entity, node.mib.as_ref());
            let mut config = config.map_err(|error| of_node(name, &error))?;
            if let Some(silence) = node.inactivity {
                config.set_inactivity(silence.duration());
            }
            let to_group = |t: &&Transfer| t.from == *name && t.is_multicast();
            let receivers = self.transfers.iter().filter(to_group).map(|t| t.to.0.len()).max();
            let receivers = receivers.and_then(|count| u32::try_from(count).ok());
            if let (Some(count), Some(membership)) = (receivers, config.membership()) {
                membership.set_receivers(count, node.mib.as_ref());
            }
            let below = |error: SpecError| error.below(&format!("nodes.{name}.mib"));
            check_simulated(config.as_mut()).map_err(below)?;
            let mut all = config.settings();
            if let Some(given) = &node.mib {
                all.add_keys_of(given);
            }
            node.mib = Some(all);
        }
        Ok(())
    }

    fn resolve_transfer(&mut self, index: usize) -> Result<(), SpecError> {
        let transfer = &self.transfers[index];
        let via = transfer.via.iter().map(|name| ("via", name));
        let to = transfer.to.0.iter().map(|name| ("to", name));
        for (key, name) in [("from", &transfer.from)].into_iter().chain(to).chain(via) {
            if !self.nodes.contains_key(name) {
                return Err(self.no_node(&format!("transfers[{index}].{key}"), name));
            }
        }
        if transfer.tool.is_none() {
            self.settle_protocol(index)?;
        }
        let transfer = &mut self.transfers[index];
        transfer.start.get_or_insert_default();
        if transfer.file.is_none() {
            transfer.size.get_or_insert(SIZE);
            transfer.content.get_or_insert_default();
        } else if transfer.size.is_some() || transfer.content.is_some() {
            return Err(SpecError::invalid(format!(
                "transfers[{index}]: give `file`, or `size` and `content`, not both"
            )));
        }
        let name = match &transfer.file {
            Some(file) => file.file_name().map(|name| name.to_string_lossy().into_owned()),
            None => None,
        };
        transfer.name.get_or_insert(name.unwrap_or_else(|| format!("file-{}", index + 1)));
        Ok(())
    }

    /// Sets the protocol of a transfer, which its waypoints use, too.
    fn settle_protocol(&mut self, index: usize) -> Result<(), SpecError> {
        let transfer = &self.transfers[index];
        let protocol = transfer
            .protocol
            .clone()
            .or_else(|| self.nodes[&transfer.from].protocol.clone())
            .or_else(|| transfer.to.names().find_map(|to| self.nodes[to].protocol.clone()))
            .unwrap_or_default();
        let waypoints: Vec<_> = transfer.everybody().map(str::to_owned).collect();
        let transfer = &mut self.transfers[index];
        if transfer.via.is_empty() {
            if transfer.overlay.is_some() {
                return Err(SpecError::invalid(format!(
                    "transfers[{index}]: an `overlay` needs waypoints; name them with `via`"
                )));
            }
        } else if protocol.kind.has_overlay() {
            transfer.overlay.get_or_insert(Overlay::Sfo);
        } else if transfer.overlay.is_some() {
            return Err(SpecError::invalid(format!(
                "transfers[{index}]: an `overlay` is of CFDP; ltp-t and bundles need none"
            )));
        }
        let profile = transfer.overlay.and_then(Overlay::profile).map(str::to_owned);
        let protocol = Protocol { profile: protocol.profile.or(profile), ..protocol };
        transfer.protocol = Some(protocol.clone());
        for waypoint in waypoints {
            if let Some(node) = self.nodes.get_mut(&waypoint) {
                node.protocol.get_or_insert_with(|| protocol.clone());
            }
        }
        Ok(())
    }

    /// Checks the keys of a transfer by a tool, and that the tool exists.
    fn check_tool(index: usize, transfer: &Transfer) -> Result<(), SpecError> {
        let Some(tool) = &transfer.tool else { return Ok(()) };
        let key = format!("transfers[{index}]");
        for (other, given) in [
            ("protocol", transfer.protocol.is_some()),
            ("via", !transfer.via.is_empty()),
            ("overlay", transfer.overlay.is_some()),
        ] {
            if given {
                let message = format!("{key}: give `tool` or `{other}`, not both");
                return Err(SpecError::invalid(message));
            }
        }
        if transfer.to.0.len() > 1 {
            return Err(SpecError::invalid(format!(
                "{key}.to: a tool carries a file to one receiver; write a table for each"
            )));
        }
        let invalid = |error| SpecError::invalid(format!("{key}.tool: {error}"));
        adapter::named(tool).map(|_| ()).map_err(invalid)
    }

    fn check_transfers(&self) -> Result<(), SpecError> {
        let mut names = BTreeSet::new();
        for (index, transfer) in self.transfers.iter().enumerate() {
            Self::check_tool(index, transfer)?;
            if transfer.to.0.contains(&transfer.from) {
                return Err(SpecError::invalid(format!(
                    "transfers[{index}]: {} cannot send to itself",
                    transfer.from
                )));
            }
            let waypoints: Vec<_> = transfer.everybody().collect();
            if let Some(twice) = (1..waypoints.len())
                .filter(|_| !transfer.via.is_empty())
                .find(|i| waypoints[..*i].contains(&waypoints[*i]))
            {
                return Err(SpecError::invalid(format!(
                    "transfers[{index}].via: {} is passed twice",
                    waypoints[twice]
                )));
            }
            let name = transfer.name.as_deref().unwrap_or_default();
            engine::FileName::file(name).map_err(|error| {
                SpecError::invalid(format!("transfers[{index}].name {name:?}: {error}"))
            })?;
            records::check(transfer.carries(), name, transfer.records.as_deref())
                .map_err(|error| SpecError::invalid(format!("transfers[{index}]: {error}")))?;
            if let Some(to) = transfer.to.names().find(|to| !names.insert((*to, name))) {
                return Err(SpecError::invalid(format!(
                    "transfers[{index}]: {to} gets two files called {name:?}"
                )));
            }
            for waypoint in waypoints.into_iter().filter(|_| transfer.tool.is_none()) {
                let settings = |protocol: &Protocol| {
                    let Protocol { kind, profile, layers } = protocol.clone();
                    // A bundle node has one layer.
                    let layer = Some(kind).filter(|kind| kind.has(Feature::Nodes));
                    let engine =
                        (kind.adapter().title(), kind.top().program, kind.has(Feature::Scps));
                    (engine, layer, profile, layers)
                };
                let spoken = self.nodes[waypoint].protocol.as_ref().map(settings);
                let requested = transfer.protocol.as_ref().map(settings);
                if spoken != requested {
                    return Err(SpecError::invalid(format!(
                        "transfers[{index}]: node {waypoint:?} speaks another protocol or profile; a node has one"
                    )));
                }
            }
        }
        Ok(())
    }

    fn check_nodes(&self) -> Result<(), SpecError> {
        let mut addresses = BTreeMap::new();
        let mut entities = BTreeMap::new();
        for (name, node) in &self.nodes {
            if let Some(other) = addresses.insert(node.address, name) {
                return Err(SpecError::invalid(format!("{name} and {other} have one address")));
            }
            if let Some(other) = entities.insert(node.entity, name) {
                return Err(SpecError::invalid(format!("{name} and {other} are one entity")));
            }
            check_interval(&format!("nodes.{name}.inactivity"), node.inactivity)?;
            for crash in &node.crashes {
                if crash.restart.is_some_and(|restart| restart < crash.at) {
                    return Err(SpecError::invalid(format!(
                        "nodes.{name}.crashes: a restart comes after its crash"
                    )));
                }
            }
        }
        let mut addresses = BTreeMap::new();
        for (name, group) in &self.groups {
            if let Some(member) = group.members.iter().find(|m| !self.nodes.contains_key(*m)) {
                return Err(self.no_node(&format!("groups.{name}.members"), member));
            }
            if let Some(other) = addresses.insert(group.address, name) {
                return Err(SpecError::invalid(format!("{other} and {name} have one address")));
            }
        }
        Ok(())
    }

    fn no_node(&self, key: &str, name: &str) -> SpecError {
        let near = text::did_you_mean(name, self.nodes.keys().map(String::as_str));
        let name = wire::excerpt(name);
        SpecError::invalid(format!("{key}: no link begins or ends at {name:?}{near}"))
    }
}

fn of_node(name: &str, error: &SpecError) -> SpecError {
    SpecError::invalid(format!("nodes.{name}.mib: {error}"))
}

/// Checks that an engine with these settings can exist in a world of a scenario.
fn check_simulated(config: &mut dyn Configuration) -> Result<(), SpecError> {
    let names = config.named_peers().map_or(Vec::new(), |peers| peers.names());
    if let Some(name) = names.iter().find(|name| name.parse::<u64>().is_err()) {
        return Err(SpecError::invalid(format!(
            "remotes.{name}: in a scenario, a peer is called by its number"
        )));
    }
    if config.beacons().is_some_and(|beacons| beacons.is_on()) {
        return Err(SpecError::invalid("beacons: a world with beacons never comes to rest"));
    }
    Ok(())
}

fn resolve_link(link: LinkSpec) -> Result<LinkSpec, SpecError> {
    let ends = match (&link.from, &link.to) {
        (Some(from), Some(to)) if from != to => format!("{from} -> {to}"),
        (Some(from), Some(_)) => {
            return Err(SpecError::invalid(format!(
                "links: `from` and `to` are both {:?}; a link joins two different nodes",
                wire::excerpt(from)
            )));
        }
        _ => return Err(SpecError::invalid("links: each link needs `from` and `to`")),
    };
    if link.back.is_some() {
        return Err(SpecError::invalid(format!(
            "link {ends}: `return` belongs into presets; write a table for each direction"
        )));
    }
    let mut link = link;
    if let Some(name) = link.link.take() {
        let preset = Preset::find(&name)?;
        let [hop] = preset.hops.as_slice() else {
            return Err(SpecError::invalid(format!(
                "link {ends}: {name:?} has {} hops, and a link is one; give the relays between \
                 them names, and write a table for each direction of each hop, with the values \
                 that `slowlight links {name}` shows",
                preset.hops.len()
            )));
        };
        let base = LinkSpec { back: None, ..hop.clone() };
        link = link.over(&base);
    }
    let link = link.resolved();
    link.config().map_err(|error| SpecError::invalid(format!("link {ends}: {error}")))?;
    Ok(link)
}

#[cfg(test)]
mod tests {
    use testing::snapshot::changed;
    use transport::quantity::{Probability, Rate};

    use super::*;

    const SMALL: &str = r#"
        seed = 1
        [[links]]
        from = "lander"
        to = "earth"
        link = "geo"
        per = "1e-3"
        [[links]]
        from = "earth"
        to = "lander"
        rate = "64 kbit/s"
        delay = "250 ms"
        [[transfers]]
        from = "lander"
        to = "earth"
        size = "100 kB"
    "#;

    fn scenario(text: &str) -> Result<Scenario, SpecError> {
        Scenario::parse(text, "world.toml")?.resolved()
    }

    #[test]
    fn defaults_are_filled_in_and_read_back() {
        let resolved = scenario(SMALL).unwrap();
        assert_eq!(resolved.nodes["earth"].address, Some(Ipv4Addr::new(10, 0, 0, 1)));
        assert_eq!(resolved.nodes["lander"].entity, Some(2));
        assert_eq!(resolved.links[0].rate, Some(Rate(10_000_000)));
        assert_eq!(resolved.links[0].errors.per, Some(Probability(1e-3)));
        assert_eq!(resolved.transfers[0].name.as_deref(), Some("file-1"));
        let text = resolved.to_toml().unwrap();
        let again = scenario(&text).unwrap();
        assert_eq!(again, resolved, "{text}");
    }

    #[test]
    fn stored_errors_are_drawn_by_seed_and_link() {
        let drawn = "error_vector = { bits = 1000, drawn = 10 }\n        link = \"geo\"";
        let text = SMALL.replace("per = \"1e-3\"", "").replace("link = \"geo\"", drawn);
        let errors =
            |text: &str| scenario(text).unwrap().links[0].errors.error_vector.clone().unwrap();
        let first = errors(&text);
        assert!(first.errors.len() == 10 && first.errors.is_sorted() && first.drawn.is_none());
        assert_eq!(first, errors(&text));
        assert_ne!(first, errors(&text.replace("seed = 1", "seed = 2")));
    }

    #[test]
    fn mistakes_are_reported() {
        let hop = "[[hops]]\nrate = \"1 Mbit/s\"";
        let link = Scenario::parse(hop, "my.toml").unwrap_err();
        assert!(link.to_string().contains("compare --link my.toml"), "{link}");
        testing::snapshot!("refusals/scenario.txt", |change| {
            scenario(&changed(SMALL, change)).unwrap_err().to_string()
        });
    }
}
