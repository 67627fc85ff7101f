//! The call paths in `ARCHITECTURE.md` name files that exist.

use std::fs;
use std::path::Path;

use super::dependency_directions::root;

/// Paths in backticks that name a file: `rt/src/driver.rs`, or `worker.rs` beside the one before.
fn files(text: &str) -> Vec<&str> {
    let code = text.split('`').skip(1).step_by(2);
    let is_file = |code: &&str| {
        let extension = Path::new(code).extension().and_then(|extension| extension.to_str());
        matches!(extension, Some("rs" | "py")) && !code.contains(char::is_whitespace)
    };
    code.filter(is_file).collect()
}

#[test]
fn architecture_names_existing_files() {
    let root = root();
    let text = fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap();
    let (_, paths) = text.split_once("## Three call paths").unwrap();
    let (paths, _) = paths.split_once("## On disk").unwrap();
    let mut folder = root.clone();
    let mut count = 0;
    for name in files(paths) {
        let places = [root.join("crates").join(name), root.join(name), folder.join(name)];
        let place = places.iter().find(|place| place.is_file());
        let place = place.unwrap_or_else(|| panic!("ARCHITECTURE.md: there is no {name}"));
        if name.contains('/') {
            place.parent().unwrap().clone_into(&mut folder);
        }
        count += 1;
    }
    assert!(count > 40, "three call paths of a dozen files each, found {count}");
}
