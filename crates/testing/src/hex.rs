//! Hexadecimal test vectors.

/// Returns the bytes of a vector: two digits each, without lines that start with `#`.
pub fn vector(text: &str) -> Vec<u8> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let digits: String = lines.collect::<String>().chars().filter(|c| !c.is_whitespace()).collect();
    let pair = |i: usize| u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).expect("two digits");
    (0..digits.len() / 2).map(pair).collect()
}
