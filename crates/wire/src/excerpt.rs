//! Excerpts of input for error messages.

/// Maximum number of characters of input that an error message quotes.
pub const EXCERPT_MAX: usize = 200;

/// Beginning of a text that an error message quotes: up to [`EXCERPT_MAX`] characters, with `…`
/// for the rest.
#[must_use]
pub fn excerpt(text: &str) -> String {
    match text.char_indices().nth(EXCERPT_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_of_a_long_text_is_left_out() {
        let long = "ä".repeat(EXCERPT_MAX);
        assert_eq!(excerpt(&long), long);
        assert_eq!(excerpt(&format!("{long}b")), format!("{long}…"));
        assert_eq!(excerpt(""), "");
    }
}
