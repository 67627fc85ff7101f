//! TOML files written by users.

use lab::preset::Preset;
use lab::scenario::Scenario;
use transport::protocol::Protocol;
use transport::settings::Settings;
use transport::text;

/// Parses a scenario, with every default filled in.
///
/// # Panics
/// If a resolved scenario does not survive writing.
pub fn scenario(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(scenario) = Scenario::parse(text, "fuzz") else { return };
    let Ok(resolved) = scenario.resolved() else { return };
    let written = resolved.to_toml().expect("parsed values can be written");
    let again: Scenario = text::parse(&written, "fuzz").expect("written values parse");
    assert_eq!(again.resolved().expect("it was right before"), resolved);
}

/// Parses a link preset.
pub fn link_preset(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let _ = Preset::parse(text, "fuzz");
}

/// Parses the settings of an engine, for each protocol.
///
/// # Panics
/// If applied settings do not survive writing.
pub fn mib(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for name in ["cfdp", "ltp", "saratoga"] {
        let protocol: Protocol = name.parse().expect("it is a protocol");
        let adapter = protocol.kind.adapter();
        let Ok(settings) = Settings::parse(text, "fuzz", &[], adapter) else { continue };
        let Ok(config) = transport::configure(&protocol, 1, Some(&settings)) else { continue };
        let all = config.settings();
        let written = all.to_toml().expect("parsed values can be written");
        let again = Settings::parse(&written, "fuzz", &[], adapter).expect("it was written");
        assert_eq!(again, all);
    }
}
