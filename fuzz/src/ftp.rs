//! The control connection of FTP, and the control files of SCPS-FP.

use models::message::{
    Command, ExtendedPort, HostPort, LINE_MAX, Lines, ReadControl, ReplyLine, UpdateControl,
    passive_port, passive_reply,
};

/// Decodes bytes of a control connection, in two pieces, into lines, each as a command and a
/// reply; and the whole as a control file.
///
/// # Panics
/// If a decoded value does not survive encoding.
pub fn ftp(data: &[u8]) {
    control_files(data);
    let Some((&cut, bytes)) = data.split_first() else { return };
    let (first, second) = bytes.split_at(usize::from(cut).min(bytes.len()));
    let whole = lines(&[bytes]);
    assert_eq!(whole, lines(&[first, second]), "wherever a piece ends");
    for line in whole.into_iter().flatten() {
        assert!(line.len() <= LINE_MAX);
        command(&line);
        reply(&line);
        if let Some(address) = passive_reply(&line) {
            assert_eq!(passive_reply(&HostPort(address).to_string()), Some(address));
        }
        let _ = passive_port(&line);
        if let Ok(HostPort(address)) = line.parse::<HostPort>() {
            let again: HostPort = HostPort(address).to_string().parse().expect("it is one");
            assert_eq!(again.0, address);
        }
        if let Ok(ExtendedPort(address)) = line.parse::<ExtendedPort>() {
            let again: ExtendedPort = ExtendedPort(address).to_string().parse().expect("it is one");
            assert_eq!(again.0, address);
        }
    }
}

/// Returns the lines of the input, including invalid ones.
fn lines(pieces: &[&[u8]]) -> Vec<Option<String>> {
    let mut reader = Lines::default();
    let mut found = Vec::new();
    for mut piece in pieces.iter().copied() {
        while !piece.is_empty() {
            let (taken, line) = reader.next(piece);
            assert!(taken > 0);
            piece = &piece[taken..];
            found.extend(line.map(Result::ok));
        }
    }
    found
}

fn command(line: &str) {
    let Ok(command) = Command::decode(line) else { return };
    let text = command.to_string();
    let again = Command::decode(&text).expect("a decoded command can be written");
    // Another round trip does not change it.
    assert_eq!(again.to_string(), text);
}

fn reply(line: &str) {
    let Ok(reply) = ReplyLine::decode(line) else { return };
    let text = reply.to_string();
    assert_eq!(ReplyLine::decode(&text).map(|reply| reply.to_string()), Ok(text));
}

fn control_files(bytes: &[u8]) {
    if let Ok(control) = ReadControl::decode(bytes) {
        let file = control.encode().expect("it was decoded");
        assert_eq!(ReadControl::decode(&file), Ok(control.clone()));
        let (read, has_all) = control.read(bytes);
        assert!(has_all || read.len() <= bytes.len() * control.ranges.len());
    }
    if let Ok(control) = UpdateControl::decode(bytes) {
        let file = control.encode().expect("it was decoded");
        assert_eq!(UpdateControl::decode(&file), Ok(control.clone()));
        let fits = UpdateControl { crc: models::message::Crc::compute(bytes), ..control };
        if let Ok(new) = fits.apply(bytes) {
            assert!(new.len() <= 2 * bytes.len());
        }
    }
}
