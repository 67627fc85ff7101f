//! Two processes of the program on this machine.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

#[test]
fn a_file_arrives() {
    let folder = std::env::temp_dir().join(format!("embed-{}", std::process::id()));
    fs::create_dir_all(folder.join("inbox")).expect("a folder");
    let content: Vec<u8> = (0..300_000_u32).map(|i| ((i * 7) >> 3) as u8).collect();
    fs::write(folder.join("picture.raw"), &content).expect("a file");
    let program = env!("CARGO_BIN_EXE_embed");
    let mut receiver = Command::new(program)
        .arg("127.0.0.1:0")
        .current_dir(folder.join("inbox"))
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut lines = BufReader::new(receiver.stdout.take().expect("its output")).lines();
    let address = lines.next().expect("a line").expect("text");
    let sender = Command::new(program)
        .args(["127.0.0.1:0", &address, "picture.raw"])
        .current_dir(&folder)
        .output()
        .expect("it runs");
    assert!(sender.status.success(), "{sender:?}");
    assert!(receiver.wait().expect("it ends").success());
    let copy = fs::read(folder.join("inbox/picture.raw")).expect("the copy");
    assert!(copy == content, "the copy differs");
    fs::remove_dir_all(folder).expect("it can be removed");
}
