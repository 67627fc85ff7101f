//! Lines, commands, replies and addresses, including examples from the specifications.

use std::net::SocketAddr;

use proptest::prelude::*;

use super::*;

/// Returns all lines of some bytes, fed in pieces.
fn lines(bytes: &[u8], piece: usize) -> Vec<Result<String, LineError>> {
    let mut reader = Lines::default();
    let mut found = Vec::new();
    for mut piece in bytes.chunks(piece.max(1)) {
        while !piece.is_empty() {
            let (taken, line) = reader.next(piece);
            piece = &piece[taken..];
            found.extend(line);
        }
    }
    found
}

#[test]
fn lines_may_be_split_across_pieces() {
    let bytes = b"USER anna\r\nPASS  x \r\nNOOP\n\r\nrest";
    for piece in 1..bytes.len() {
        let found: Vec<_> = lines(bytes, piece).into_iter().map(Result::unwrap).collect();
        assert_eq!(found, ["USER anna", "PASS  x ", "NOOP", ""]);
    }
}

#[test]
fn telnet_commands_are_dropped() {
    // IAC IP, IAC DM before ABOR (RFC 959 §4.1.3), IAC DO 6, and a doubled 255 in text, which is
    // then not UTF-8.
    let bytes = b"\xff\xf4\xff\xf2ABOR\r\n\xff\xfd\x06NOOP\r\na\xff\xffb\r\n";
    for piece in 1..bytes.len() {
        let found = lines(bytes, piece);
        let abor_and_noop = [Ok("ABOR".to_owned()), Ok("NOOP".to_owned())];
        assert_eq!(found[..2], abor_and_noop);
        assert_eq!(found[2..], [Err(LineError::NotText)]);
    }
}

#[test]
fn a_long_line_is_refused_and_the_next_one_read() {
    let mut bytes = vec![b'x'; LINE_MAX];
    bytes.extend(b"\r\n");
    bytes.extend(vec![b'y'; 3 * LINE_MAX]);
    bytes.extend(b"\r\nNOOP\r\n");
    let found = lines(&bytes, 1000);
    assert_eq!(found[0].as_ref().unwrap().len(), LINE_MAX);
    assert_eq!(found[1..], [Err(LineError::TooLong), Ok("NOOP".to_owned())]);
}

#[test]
fn commands_are_read_in_any_case_and_written_in_capitals() {
    let cases = [
        ("user anonymous", "USER anonymous"),
        ("PASS a b", "PASS a b"),
        ("type l 8", "TYPE I"),
        ("TYPE A N", "TYPE A"),
        ("xpwd", "PWD"),
        ("Stor with blanks .txt", "STOR with blanks .txt"),
        ("PORT 132,235,1,2,24,131", "PORT 132,235,1,2,24,131"),
        ("EPRT |1|132.235.1.2|6275|", "EPRT |1|132.235.1.2|6275|"),
        ("EPRT |2|1080::8:800:200c:417a|5282|", "EPRT |2|1080::8:800:200c:417a|5282|"),
        ("EPSV ALL", "EPSV ALL"),
        ("REST 1234567890123", "REST 1234567890123"),
        ("IDLE 60", "IDLE 60"),
        ("COPY a b c", "COPY a b c"),
        ("XYZ what ever", "XYZ what ever"),
        ("LIST", "LIST"),
    ];
    for (given, written) in cases {
        let command = Command::decode(given).unwrap();
        assert_eq!(command.to_string(), written);
        assert_eq!(Command::decode(written).unwrap(), command, "{written}");
    }
}

#[test]
fn invalid_arguments_are_reported_with_their_offset() {
    for (line, offset) in [
        ("USER", 4),
        ("RETR ", 5),
        ("PORT 1,2,3,4,5", 5),
        ("PORT 1,2,3,4,5,256", 5),
        ("EPRT |3|x|1|", 5),
        ("EPRT |1|::1|1|", 5),
        ("TYPE E", 5),
        ("MODE SB", 5),
        ("REST -1", 5),
        ("COPY a", 5),
    ] {
        assert_eq!(Command::decode(line).unwrap_err().offset, offset, "{line}");
    }
}

#[test]
fn replies_have_one_line_or_several() {
    use ReplyLine::{Between, First, Last};
    let cases = [
        ("220 ready", Last { code: 220, text: "ready" }),
        ("226", Last { code: 226, text: "" }),
        ("211-Extensions:", First { code: 211, text: "Extensions:" }),
        (" SIZE", Between(" SIZE")),
        ("12", Between("12")),
        ("220text", Between("220text")),
    ];
    for (line, expected) in cases {
        let reply = ReplyLine::decode(line).unwrap();
        assert_eq!(reply, expected);
        assert_eq!(reply.to_string(), line);
    }
    assert!(ReplyLine::decode("099 no").is_err());
    assert_eq!(Reply { code: 150, text: "ok".into() }.class(), 1);
}

#[test]
fn passive_replies_are_read_in_all_their_forms() {
    let here: SocketAddr = "10.0.0.2:1025".parse().unwrap();
    for text in [
        "Entering Passive Mode (10,0,0,2,4,1).",
        "Entering Passive Mode 10,0,0,2,4,1",
        "=10,0,0,2,4,1",
        "Passive, 10,0,0,2,4,1!",
    ] {
        assert_eq!(passive_reply(text).map(SocketAddr::V4), Some(here), "{text}");
    }
    assert_eq!(passive_reply("10,0,0,2"), None);
    assert_eq!(passive_port("Entering Extended Passive Mode (|||6446|)"), Some(6446));
    assert_eq!(passive_port("(|1|10.0.0.2|6446|)"), None);
}

proptest! {
    #[test]
    fn any_line_is_a_command_or_an_error(line in "\\PC{0,60}") {
        if let Ok(command) = Command::decode(&line) {
            let written = command.to_string();
            let again = Command::decode(&written).unwrap();
            prop_assert_eq!(again.to_string(), written);
        }
        if let Ok(reply) = ReplyLine::decode(&line) {
            let written = reply.to_string();
            prop_assert_eq!(ReplyLine::decode(&written).unwrap(), reply);
        }
    }

    #[test]
    fn lines_do_not_depend_on_the_pieces(bytes in proptest::collection::vec(any::<u8>(), 0..200),
                                         piece in 1..20usize) {
        prop_assert_eq!(lines(&bytes, piece), lines(&bytes, 1000));
    }
}
