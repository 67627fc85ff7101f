//! Replacement of groups by their members.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use transport::text::{self, SpecError};

use crate::groups::{Group, PORT, twice};
use crate::link_spec::LinkSpec;
use crate::scenario::{Node, Transfer};

/// Replaces groups by their members in links, nodes and transfers. Resolved scenarios stay
/// unchanged.
///
/// # Errors
///
/// First contradiction.
pub(super) fn expand(
    groups: &mut BTreeMap<String, Group>,
    nodes: &mut BTreeMap<String, Node>,
    links: &mut Vec<LinkSpec>,
    transfers: &mut [Transfer],
) -> Result<(), SpecError> {
    for (name, group) in groups.iter_mut() {
        *group = std::mem::take(group).resolved(name)?;
    }
    if let Some((name, group)) =
        groups.iter().find(|(_, group)| group.members.iter().any(|m| groups.contains_key(m)))
    {
        let inner = group.members.iter().find(|member| groups.contains_key(*member));
        return Err(SpecError::invalid(format!(
            "groups.{name}.members: {} is a group; members are nodes",
            inner.map_or("one", String::as_str)
        )));
    }
    for (name, group) in groups.iter() {
        if let Some(like) = nodes.remove(name) {
            for member in &group.members {
                nodes.entry(member.clone()).or_insert_with(|| like.clone());
            }
        }
    }
    let written = std::mem::take(links);
    for link in written {
        links.extend(links_of(groups, link)?);
    }
    for (index, transfer) in transfers.iter_mut().enumerate() {
        gather(groups, index, transfer)?;
    }
    for (index, group) in groups.values_mut().enumerate() {
        let [.., high, low] = u32::try_from(index + 1).unwrap_or(u32::MAX).to_be_bytes();
        group.address.get_or_insert(Ipv4Addr::new(239, 0, high, low));
        group.port.get_or_insert(PORT);
    }
    Ok(())
}

/// Returns the links of a link from or to a group: one for each member.
fn links_of(groups: &BTreeMap<String, Group>, link: LinkSpec) -> Result<Vec<LinkSpec>, SpecError> {
    let members =
        |end: &Option<String>| groups.get(end.as_deref()?).map(|group| group.members.clone());
    match (members(&link.from), members(&link.to)) {
        (None, None) => Ok(vec![link]),
        (Some(_), Some(_)) => Err(SpecError::invalid(format!(
            "link {} -> {}: a link leads from or to a group, not both",
            link.from.unwrap_or_default(),
            link.to.unwrap_or_default()
        ))),
        (Some(from), None) => {
            Ok(from.into_iter().map(|from| LinkSpec { from: Some(from), ..link.clone() }).collect())
        }
        (None, Some(to)) => {
            Ok(to.into_iter().map(|to| LinkSpec { to: Some(to), ..link.clone() }).collect())
        }
    }
}

/// Replaces a transfer's receivers by nodes, and sets their group.
fn gather(
    groups: &mut BTreeMap<String, Group>,
    index: usize,
    transfer: &mut Transfer,
) -> Result<(), SpecError> {
    let key = format!("transfers[{index}]");
    if groups.contains_key(&transfer.from) {
        return Err(SpecError::invalid(format!("{key}.from: a group cannot send")));
    }
    if let [name] = transfer.to.0.as_slice()
        && groups.contains_key(name)
    {
        transfer.group.get_or_insert_with(|| name.clone());
    }
    let named = transfer.to.names().flat_map(|name| match groups.get(name) {
        Some(group) => group.members.clone(),
        None => vec![name.to_owned()],
    });
    let members: Vec<_> = named.collect();
    if members.is_empty() {
        return Err(SpecError::invalid(format!("{key}.to: it has no receiver")));
    }
    if let Some(twice) = twice(&members) {
        return Err(SpecError::invalid(format!("{key}.to: {twice} is named twice")));
    }
    let same = |group: &Group| {
        group.members.len() == members.len() && members.iter().all(|m| group.members.contains(m))
    };
    if let Some(name) = &transfer.group {
        let Some(group) = groups.get(name) else {
            let near = text::did_you_mean(name, groups.keys().map(String::as_str));
            let name = wire::excerpt(name);
            return Err(SpecError::invalid(format!("{key}.group: no group {name:?}{near}")));
        };
        if !same(group) {
            return Err(SpecError::invalid(format!(
                "{key}.group: the members of {name} are not its receivers"
            )));
        }
    } else if members.len() > 1 {
        let known = groups.iter().find(|(_, group)| same(group)).map(|(name, _)| name.clone());
        let name = known.unwrap_or_else(|| format!("receivers-{}", index + 1));
        let made = Group { members: members.clone(), ..Group::default() }.resolved(&name)?;
        groups.entry(name.clone()).or_insert(made);
        transfer.group = Some(name);
    }
    if members.len() > 1 && !transfer.via.is_empty() {
        return Err(SpecError::invalid(format!(
            "{key}: waypoints hand a file on to one receiver; write a transfer for each"
        )));
    }
    transfer.to = members.into();
    Ok(())
}

#[cfg(test)]
mod tests {
    use testing::snapshot::changed;

    use super::*;
    use crate::scenario::Scenario;

    const WORLD: &str = r#"
        seed = 1
        [groups.fleet]
        count = 12
        [nodes.fleet]
        inactivity = "10 min"
        [nodes.fleet-03]
        inactivity = "20 min"
        [[links]]
        from = "earth"
        to = "relay"
        rate = "1 Mbit/s"
        [[links]]
        from = "relay"
        to = "fleet"
        delay = "20 ms"
        [[links]]
        from = "fleet"
        to = "relay"
        [[links]]
        from = "relay"
        to = "earth"
        [[transfers]]
        from = "earth"
        to = "fleet"
    "#;

    fn scenario(text: &str) -> Result<Scenario, SpecError> {
        Scenario::parse(text, "world.toml")?.resolved()
    }

    #[test]
    fn group_names_expand_to_their_members() {
        let resolved = scenario(WORLD).unwrap();
        assert_eq!((resolved.nodes.len(), resolved.links.len()), (14, 26));
        let fleet = &resolved.groups["fleet"];
        assert_eq!(
            (fleet.members[0].as_str(), fleet.members[11].as_str()),
            ("fleet-01", "fleet-12")
        );
        assert_eq!((fleet.address, fleet.port), (Some(Ipv4Addr::new(239, 0, 0, 1)), Some(2500)));
        let transfer = &resolved.transfers[0];
        assert_eq!((transfer.group.as_deref(), &transfer.to.0), (Some("fleet"), &fleet.members));
        assert_eq!(resolved.capture.at.as_deref(), Some("fleet-01"));
        let silence = |name: &str| resolved.nodes[name].inactivity.unwrap().to_string();
        assert_eq!((silence("fleet-02"), silence("fleet-03")), ("10 min".into(), "20 min".into()));
        let text = resolved.to_toml().unwrap();
        assert_eq!(scenario(&text).unwrap(), resolved, "{text}");
    }

    #[test]
    fn several_receivers_become_a_group() {
        let links = "
            [[links]]\nfrom = \"a\"\nto = \"b\"\n[[links]]\nfrom = \"b\"\nto = \"a\"
            [[links]]\nfrom = \"a\"\nto = \"c\"\n[[links]]\nfrom = \"c\"\nto = \"a\"";
        let world = |to: &str| {
            scenario(&format!("seed = 1\n{links}\n[[transfers]]\nfrom = \"a\"\nto = {to}"))
        };
        let two = world(r#"["b", "c"]"#).unwrap();
        assert_eq!(two.groups["receivers-1"].members, ["b", "c"]);
        assert_eq!(two.transfers[0].to.to_string(), "b, c");
        let one = world(r#"["b"]"#).unwrap();
        assert!(one.groups.is_empty() && one.transfers[0].group.is_none());
        let error = |to| world(to).unwrap_err().to_string();
        assert!(error("[]").contains("no receiver"));
        assert!(error(r#"["b", "b"]"#).contains("b is named twice"));
        assert!(error(r#"["b", "a"]"#).contains("cannot send to itself"));
        assert!(error(r#"["b", "d"]"#).contains("\"d\""));
        assert!(error("7").contains("a list of such names"), "{}", error("7"));
    }

    #[test]
    fn mistakes_are_reported() {
        testing::snapshot!("refusals/groups.txt", |change| {
            scenario(&changed(WORLD, change)).unwrap_err().to_string()
        });
    }
}
