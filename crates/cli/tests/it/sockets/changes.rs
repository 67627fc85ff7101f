//! Files that change while they are sent.

use std::fs;
use std::os::unix::fs::FileExt as _;

use super::process::{Place, Running, await_that, content, make, program, working_files};

const FILE_BYTES: usize = 4_000_000;

/// Nothing is delivered that is neither the old nor the new file.
#[test]
fn files_that_change_while_they_are_sent_are_not_delivered() {
    for (protocol, more) in [
        ("cfdp", &["--class", "1"][..]),
        ("cfdp", &["--class", "2"]),
        ("ltp", &[]),
        ("ltp-t", &[]),
        ("cfdp-ltp", &[]),
        ("norm", &[]),
        ("norm/coded", &[]),
        ("saratoga", &[]),
    ] {
        let place = Place::new();
        make(&place.here("file"), FILE_BYTES);
        let root = place.root("");
        let (receiver, address) = place.recv(protocol, "127.0.0.1:0", &[]);
        let mut command = program(&["send", "--protocol", protocol, "--rate", "16 Mbit/s"]);
        command.arg(place.here("file")).arg(&address).args(more);
        command.env("XDG_STATE_HOME", place.here("state"));
        let sender = Running::of(command);
        let label = format!("{protocol} {more:?}");
        await_that(&format!("{label}: some of it is here"), || {
            working_files(&root, "spool").iter().any(|(_, bytes)| *bytes >= 100_000)
        });
        let file = fs::File::options().write(true).open(place.here("file")).unwrap();
        file.write_all_at(&[0], FILE_BYTES as u64 - 10).unwrap();
        file.write_all_at(&[0], 10).unwrap();
        let sender = sender.end();
        if sender.code == Some(0) {
            // The whole of it had been read before the change.
            assert_eq!(protocol, "cfdp-ltp");
            let delivered = || fs::read(place.root("file")).ok();
            await_that(&format!("{label}: it is delivered"), || delivered().is_some());
            assert!(delivered() == Some(content(FILE_BYTES)), "{label}: a mixture was delivered");
        } else {
            sender.failed("changed while it was sent");
            assert!(!place.root("file").exists(), "{label}: it was delivered");
        }
        drop(receiver);
    }
}
