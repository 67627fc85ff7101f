//! Names and targets that are accepted from an archive.

use super::Refusal;
use crate::names::{PART_MAX, is_reserved};

/// Longest name or target.
const NAME_MAX: usize = 4096;

/// Name below the root, without empty parts and `.`; empty for the root itself.
pub(super) fn checked(name: &[u8]) -> Result<Vec<u8>, Refusal> {
    if name.starts_with(b"/") {
        return Err(Refusal::Absolute);
    }
    if name.contains(&0) {
        return Err(Refusal::Nul);
    }
    let parts: Vec<_> = parts(name).collect();
    if parts.contains(&b"..".as_slice()) {
        return Err(Refusal::Parent);
    }
    if name.len() > NAME_MAX || parts.iter().any(|part| part.len() > PART_MAX) {
        return Err(Refusal::TooLong);
    }
    let name = parts.join(b"/".as_slice());
    if is_reserved(&name) { Err(Refusal::Reserved) } else { Ok(name) }
}

/// Checks that a link at a checked name leads to a place below the root.
///
/// All folders of the name are real folders, so a target may begin with a `..` for each. One after
/// any other part could be relative to another link. The root itself is no target, because names
/// through such a link would reach the working files.
pub(crate) fn check_target(name: &[u8], target: &[u8]) -> Result<(), Refusal> {
    if target.contains(&0) {
        return Err(Refusal::Nul);
    }
    if target.len() >= NAME_MAX {
        return Err(Refusal::TooLong);
    }
    let depth = parts(name).count().saturating_sub(1);
    let up = parts(target).take_while(|part| *part == b"..").count();
    let mut down = parts(target).skip(up).peekable();
    let leaves = target.is_empty() || target.starts_with(b"/") || up > depth;
    let is_root = up == depth && down.peek().is_none();
    if leaves || is_root || down.clone().any(|part| part == b"..") {
        return Err(Refusal::Target);
    }
    if down.any(is_reserved) { Err(Refusal::Reserved) } else { Ok(()) }
}

/// Last part of a checked name.
pub(super) fn last(name: &[u8]) -> &[u8] {
    name.rsplit(|byte| *byte == b'/').next().unwrap_or(name)
}

fn parts(name: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    name.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b"."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_below_the_root() {
        assert_eq!(checked(b"a/./b//c/"), Ok(b"a/b/c".to_vec()));
        assert_eq!(checked(b"./"), Ok(Vec::new()));
        assert_eq!(checked(b"a\n\xff/..b"), Ok(b"a\n\xff/..b".to_vec()));
        assert_eq!(checked(b"/etc/passwd"), Err(Refusal::Absolute));
        assert_eq!(checked(b"a/../b"), Err(Refusal::Parent));
        assert_eq!(checked(b"a\0b"), Err(Refusal::Nul));
        assert_eq!(checked(b"./.slowlight/lock"), Err(Refusal::Reserved));
        assert_eq!(checked(b".SlowLight"), Err(Refusal::Reserved));
        assert_eq!(checked(b"a/.slowlight"), Ok(b"a/.slowlight".to_vec()));
        assert_eq!(checked(&[b'a'; 256]), Err(Refusal::TooLong));
        assert_eq!(checked(&b"ab/".repeat(1366)), Err(Refusal::TooLong));
    }

    #[test]
    fn targets_stay_below_the_root() {
        let check = |target: &str| check_target(b"a/b/link", target.as_bytes());
        for target in ["c", "./c", "../c", "../../c", "..", ".", "c/d", "c//./d"] {
            assert_eq!(check(target), Ok(()), "{target}");
        }
        // The last of them leaves if `c` is a link to a folder nearer to the root.
        for target in ["", "/c", "../../../c", "../..", "../../.", "c/../d", "c/../../.."] {
            assert_eq!(check(target), Err(Refusal::Target), "{target}");
        }
        for target in ["../../.slowlight", "../../.SLOWLIGHT/spool", "c/.slowlight"] {
            assert_eq!(check(target), Err(Refusal::Reserved), "{target}");
        }
        assert_eq!(check("c\0d"), Err(Refusal::Nul));
        assert_eq!(check(&"c/".repeat(2048)), Err(Refusal::TooLong));
        assert_eq!(check_target(b"link", b"."), Err(Refusal::Target));
        assert_eq!(check_target(b"link", b"file"), Ok(()));
    }
}
