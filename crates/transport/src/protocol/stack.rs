//! Stacks of layers: the valid ones, their names, and the grammar of composed ones.

use std::sync::LazyLock;

use wire::excerpt;

use super::layers::{self, SHORT};
use crate::adapter;
use crate::contract::{Kind, Layer, Protocol, SEPARATOR, Service, Stack, compose};
use crate::text::{self, SpecError};

/// Every stack: those with a short name first, in the order of their table.
pub(super) static STACKS: LazyLock<Vec<Stack>> = LazyLock::new(|| {
    let mut all = Vec::new();
    let tops = layers::all().filter(|top| top.offers.contains(&Service::Files));
    tops.for_each(|top| extend(&[top], &mut all));
    // Until this sort, all stacks that are not in the table of names have the same index.
    all.sort_by_key(|stack| (!stack.is_short, stack.place));
    all.iter_mut().enumerate().for_each(|(place, stack)| stack.place = place);
    all
});

/// Adds the stacks that begin with these layers.
fn extend(layers: &[&'static Layer], all: &mut Vec<Stack>) {
    let Some(last) = layers.last().copied() else { return };
    if last.needs.iter().any(|service| service.is_of_hosts()) {
        let composed = compose(layers);
        let place = SHORT.iter().position(|(_, layers)| *layers == composed);
        let name = place.map_or(composed, |place| SHORT[place].0.to_owned());
        let is_short = place.is_some() || layers.len() == 1;
        let place = place.unwrap_or(SHORT.len());
        all.push(Stack { name, layers: layers.to_vec(), place, is_short });
    }
    for below in layers::all().filter(|below| last.fits(below)) {
        let longer: Vec<_> = layers.iter().copied().chain([below]).collect();
        extend(&longer, all);
    }
}

/// Layer with its profile, as a user writes it.
type Written<'a> = (&'static Layer, Option<String>);

/// The stack that a text composes; `None` if it is a short name with a profile, or no name at all.
pub(super) fn parse(text: &str) -> Result<Option<Protocol>, SpecError> {
    let parts = split(text);
    if parts.len() < 2 {
        return Ok(None);
    }
    let mut written = Vec::new();
    for (name, profile) in parts {
        written.push((named(&name)?, profile));
    }
    check(&written)?;
    complete(&mut written)?;
    let layers: Vec<_> = written.iter().map(|(layer, _)| *layer).collect();
    let composed = compose(&layers);
    let known = STACKS.iter().find(|stack| compose(&stack.layers) == composed);
    let known = known.ok_or_else(|| SpecError::invalid(format!("no stack is {composed}")))?;
    with_profiles(Kind(known), written).map(Some)
}

/// Names of layers, each with its profile. Text after a profile belongs to the profile if it is
/// not a layer: the profile `openssh-4.2+linux-2.6.18` is of a program and of TCP.
fn split(text: &str) -> Vec<(String, Option<String>)> {
    let mut parts: Vec<(String, Option<String>)> = Vec::new();
    for part in text.split(SEPARATOR) {
        let (name, profile) = match part.split_once('/') {
            Some((name, profile)) => (name, Some(profile.to_owned())),
            None => (part, None),
        };
        match parts.last_mut() {
            Some((_, Some(before))) if profile.is_none() && find(name).is_none() => {
                before.push_str(SEPARATOR);
                before.push_str(name);
            }
            _ => parts.push((name.to_owned(), profile)),
        }
    }
    parts
}

fn find(name: &str) -> Option<&'static Layer> {
    layers::all().find(|layer| layer.name == name)
}

fn named(name: &str) -> Result<&'static Layer, SpecError> {
    find(name).ok_or_else(|| {
        let names = || layers::all().map(|layer| layer.name);
        let near = text::did_you_mean(name, names());
        let known = names().collect::<Vec<_>>().join(", ");
        SpecError::invalid(format!("there is no layer {:?}{near} (layers: {known})", excerpt(name)))
    })
}

fn list(services: &[Service], word: &str) -> String {
    let names: Vec<_> = services.iter().map(|service| service.name()).collect();
    names.join(word)
}

/// Checks that each layer fits the one below it, and that the top moves files.
fn check(written: &[Written<'_>]) -> Result<(), SpecError> {
    for pair in written.windows(2) {
        let (above, below) = (pair[0].0, pair[1].0);
        if !above.fits(below) {
            return Err(SpecError::invalid(format!(
                "{} needs {}; {} offers {}",
                above.name,
                list(above.needs, " or "),
                below.name,
                list(below.offers, " and ")
            )));
        }
    }
    match written.first() {
        Some((top, _)) if !top.offers.contains(&Service::Files) => {
            Err(SpecError::invalid(format!(
                "{} moves no files; put a layer on it that does, such as file or cfdp",
                top.name
            )))
        }
        Some(_) | None => Ok(()),
    }
}

/// Adds the layers below the last one, as long as only one fits.
fn complete(written: &mut Vec<Written<'_>>) -> Result<(), SpecError> {
    while let Some((last, _)) = written.last()
        && !last.needs.iter().any(|service| service.is_of_hosts())
    {
        let fitting: Vec<_> = layers::all().filter(|below| last.fits(below)).collect();
        let [only] = fitting.as_slice() else {
            let names: Vec<_> = fitting.iter().map(|layer| layer.name).collect();
            return Err(SpecError::invalid(format!(
                "{} needs {} below it: put one of {} there",
                last.name,
                list(last.needs, " or "),
                names.join(", ")
            )));
        };
        written.push((only, None));
    }
    Ok(())
}

/// Stack with the profiles of its layers: the profile of the lowest layer with one is the stack's,
/// as after a short name.
fn with_profiles(kind: Kind, written: Vec<Written<'_>>) -> Result<Protocol, SpecError> {
    let home = written.iter().rposition(|(layer, _)| !(layer.profiles)().is_empty());
    let mut protocol = Protocol::plain(kind);
    for (place, (layer, profile)) in written.into_iter().enumerate() {
        let Some(profile) = profile else { continue };
        let known = (layer.profiles)();
        if Some(place) == home || known.is_empty() && protocol.layers.is_empty() && place == 0 {
            // The protocol's name before a profile of TCP applies to both.
            protocol.profile = Some(profile);
        } else if known.contains(&profile.as_str()) {
            protocol.layers.insert(layer.name, profile);
        } else {
            return Err(adapter::no_profile(layer.name, &profile, &known));
        }
    }
    Ok(joined(protocol))
}

/// Protocol with one profile, whose short name is the whole text.
fn joined(mut protocol: Protocol) -> Protocol {
    let mut layers = protocol.layers.iter();
    let (Some((_, first)), None) = (layers.next(), layers.next()) else { return protocol };
    let whole = match &protocol.profile {
        Some(profile) if protocol.kind.top().program.is_some() => {
            format!("{first}{SEPARATOR}{profile}")
        }
        Some(_) => return protocol,
        None => first.clone(),
    };
    let short = Protocol::with_profile(protocol.kind, &whole);
    let is_of_top = protocol.layers.contains_key(protocol.kind.layers()[0].name)
        && protocol.kind.top().program.is_none();
    if !is_of_top && adapter::check_profile(&short).is_ok() {
        protocol = short;
    }
    protocol
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Protocol {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn refused(text: &str) -> String {
        text.parse::<Protocol>().unwrap_err().to_string()
    }

    #[test]
    fn every_short_name_denotes_a_stack() {
        for (place, (name, layers)) in SHORT.iter().enumerate() {
            assert_eq!((STACKS[place].name.as_str(), STACKS[place].place), (*name, place));
            assert_eq!(parsed(layers).to_string(), *name, "{layers}");
        }
        assert!(STACKS.len() > SHORT.len(), "some stacks have no short name");
        for stack in STACKS.iter() {
            assert_eq!(parsed(&stack.name).to_string(), stack.name);
        }
    }

    #[test]
    fn layers_have_their_profiles() {
        for (text, shown) in [
            ("cfdp+bp+ltp/checkpoints", "cfdp-bp-ltp/checkpoints"),
            ("cfdp/gsfc-2007+bp+ltp/checkpoints", "cfdp/gsfc-2007+bp+ltp/checkpoints"),
            ("cfdp/gsfc-2007+ltp", "cfdp/gsfc-2007+ltp"),
            ("ftp+tcp/cubic", "ftp/cubic"),
            ("file+bp+tcpcl", "bp-tcpcl"),
            ("file+bp+tcpcl3/dtn2-2.5", "bp-tcpcl3/dtn2-2.5"),
            ("file+bp+tcpcl3/dtn2-2.5+tcp/cubic", "file+bp+tcpcl3/dtn2-2.5+tcp/cubic"),
            ("scp/openssh-4.2+tcp/linux-2.6.18", "scp/openssh-4.2+linux-2.6.18"),
            ("scp/openssh-4.2+linux-2.6.18", "scp/openssh-4.2+linux-2.6.18"),
            ("file+bp+ltp-green", "file+bp+ltp-green"),
            ("file+bp+norm-fec/cc", "file+bp+norm-fec/cc"),
        ] {
            assert_eq!(parsed(text).to_string(), shown, "{text}");
            assert_eq!(parsed(shown), parsed(text));
        }
    }

    #[test]
    fn incompatible_layers_are_refused_with_the_reason() {
        for (text, why) in [
            ("ftp+ltp", "ftp needs streams; ltp offers files and blocks and a convergence layer"),
            ("file+ltp", "file needs bundles; ltp offers"),
            ("bp+ltp", "bp moves no files"),
            ("file+bp", "bp needs a convergence layer below it: put one of ltp,"),
            ("cfdp+bp+ltpp", "did you mean \"ltp\"?"),
            ("cfdp+bp/x+ltp", "bp has no profile"),
            ("cfdp+bp+ltp/checkpoint", "did you mean \"checkpoints\"?"),
            ("cfdp/gsfc-207+bp+ltp", "did you mean \"gsfc-2007\"?"),
        ] {
            assert!(refused(text).contains(why), "{text}: {}", refused(text));
        }
    }
}
