//! Doubts about results that the machine may have changed.

/// Remedy for a late emulator.
#[cfg(feature = "emulate")]
pub(crate) const EMULATOR: &str = "stop other programs, lower the rates, or run it as root for \
                                   real-time priority; --late and --late-most set the bounds";

/// Lines that state what was late or lost, what that means for the results, and the remedy; `None`
/// without doubts.
pub(crate) fn lines(doubts: &[String], remedy: &str) -> Option<String> {
    let measured: Vec<_> = doubts.iter().map(|doubt| format!("not trustworthy: {doubt}")).collect();
    (!measured.is_empty()).then(|| {
        format!(
            "{}\n  The machine, not the path, delayed or lost packets: times may be too long by as \
             much, and rates too low.\n  Remedy: {remedy}",
            measured.join("\n")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubts_come_with_their_meaning_and_a_remedy() {
        assert_eq!(lines(&[], "none"), None);
        let late = ["a -> b: a packet was 12.0ms late (bound 10ms)", "b: …"].map(str::to_owned);
        let text = lines(&late, "stop other programs").expect("two doubts");
        let [first, second, meaning, remedy] = text.lines().collect::<Vec<_>>()[..] else {
            panic!("{text}")
        };
        assert_eq!(first, format!("not trustworthy: {}", late[0]));
        assert!(second.starts_with("not trustworthy: b"), "{second}");
        assert!(meaning.contains("times may be too long"), "{meaning}");
        assert_eq!(remedy, "  Remedy: stop other programs");
    }
}
