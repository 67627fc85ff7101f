//! Files that users write in TOML.

use lab::mib::Mib;
use lab::preset::Preset;
use lab::scenario::Scenario;
use lab::text;
use proto::cfdp;

/// A scenario, with every default filled in.
///
/// # Panics
/// If a resolved scenario does not survive being written.
pub fn scenario(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(scenario) = text::parse::<Scenario>(text, "fuzz") else { return };
    let Ok(resolved) = scenario.resolved() else { return };
    let written = resolved.to_toml().expect("what was read can be written");
    let again: Scenario = text::parse(&written, "fuzz").expect("what was written can be read");
    assert_eq!(again.resolved().expect("it was right before"), resolved);
}

/// A link preset.
pub fn link_preset(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let _ = Preset::parse(text, "fuzz");
}

/// A management information base.
pub fn mib(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(mib) = text::parse::<Mib>(text, "fuzz") else { return };
    let mut config = cfdp::Config::default();
    let _ = mib.apply(&mut config);
}
