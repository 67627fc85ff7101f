//! Names of received files: short, the same for a bundle that is delivered again, and never those
//! of other files.

use engine::FileName;
use sha2::{Digest as _, Sha256};

/// Name for the payload of a bundle: creation time, sequence number and a hash of its identifier;
/// the hash alone if the identifier has another form.
pub(super) fn of_bundle(id: &str) -> String {
    let hash = short_hash(id);
    let stamp = id.rsplit(' ').next().and_then(|stamp| stamp.split_once('.'));
    let is_number = |text: &str| text.len() <= 20 && text.bytes().all(|b| b.is_ascii_digit());
    match stamp {
        Some((time, sequence)) if is_number(time) && is_number(sequence) => {
            format!("bundle-{time}-{sequence}-{hash}")
        }
        Some(_) | None => format!("bundle-{hash}"),
    }
}

/// Hash of an identifier, for a name.
pub(super) fn short_hash(id: &str) -> String {
    hex(&Sha256::digest(id)[..8])
}

/// Names for a file of parts, in order of preference. The last one contains what identifies it.
pub(super) fn of_file(name: &str, source: &str, transfer: u64) -> [String; 3] {
    let last = name.rsplit('/').next().unwrap_or_default();
    let wanted = match FileName::file(last) {
        Ok(name) if !last.starts_with(".bundle-") => name.path().to_owned(),
        Ok(_) | Err(_) => format!("file-{transfer:016x}"),
    };
    let numbered = format!("{wanted}.{transfer:016x}");
    let mut hash = Sha256::new();
    for part in [name.as_bytes(), source.as_bytes(), &transfer.to_be_bytes()] {
        add(&mut hash, part);
    }
    [wanted, numbered, of_hash(hash)]
}

/// Hash of a bundle's identifier, to be continued with its payload.
pub(super) fn hash_of_bundle(id: &str) -> Sha256 {
    let mut hash = Sha256::new();
    add(&mut hash, id.as_bytes());
    hash
}

/// Name for a payload whose name another file has: a hash of the identifier and the content.
pub(super) fn of_hash(hash: Sha256) -> String {
    format!("bundle-{}", &hex(hash.finalize())[..32])
}

fn add(hash: &mut Sha256, part: &[u8]) {
    hash.update((part.len() as u64).to_be_bytes());
    hash.update(part);
}

fn hex(bytes: impl AsRef<[u8]>) -> String {
    bytes.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_differ_where_ids_do() {
        let long = format!("dtn://{}/9 849045256264.7", "n".repeat(300));
        let name = of_bundle(&long);
        assert!(name.starts_with("bundle-849045256264-7-") && name.len() <= 200, "{name}");
        let pair = ["dtn://a/b 849045256264.0", "dtn://a-b 849045256264.0"];
        assert_ne!(of_bundle(pair[0]), of_bundle(pair[1]));
        assert_eq!(of_bundle(pair[0]), of_bundle(pair[0]));
        for odd in ["", "ipn:1.1", "x ../a.b", "x 1.1 from 7", "x 123456789012345678901.0"] {
            let name = of_bundle(odd);
            assert!(name.len() == 23 && !name.contains('/'), "{odd:?}: {name}");
        }
        assert_ne!(of_file("ab", "c", 1)[2], of_file("a", "bc", 1)[2]);
    }

    #[test]
    fn files_have_the_last_part_of_their_name() {
        for (name, wanted) in [
            ("log.txt", "log.txt"),
            ("a/b/log.txt", "log.txt"),
            ("a/..", "file-0000000000000007"),
            ("", "file-0000000000000007"),
            (".slowlight", "file-0000000000000007"),
            (".bundle-1.new", "file-0000000000000007"),
        ] {
            assert_eq!(
                of_file(name, "ipn:1.1", 7)[..2],
                [wanted.to_owned(), format!("{wanted}.0000000000000007")]
            );
        }
    }
}
