//! The README's table of protocols is generated: `UPDATE_README=1 cargo test --test house readme`
//! writes it. The numbers before its picture are those of the picture.

use std::fs;

use transport::protocol::Kind;

use crate::dependency_directions::root;

const BEGIN: &str = "<!-- protocols, generated -->\n";
const END: &str = "<!-- end -->\n";

/// Line of the table.
struct Line {
    name: &'static str,
    page: &'static str,
    specification: &'static str,
    /// Layer in the table of layers.
    layer: &'static str,
    /// Command that uses it on sockets.
    command: Option<&'static str>,
    conformance: Option<&'static str>,
    /// Other implementations, each with the file that runs it.
    peers: &'static [(&'static str, &'static str)],
}

const PLAIN: Line = Line {
    name: "",
    page: "",
    specification: "",
    layer: "",
    command: None,
    conformance: None,
    peers: &[],
};

const LINES: &[Line] = &[
    Line {
        name: "CFDP",
        page: "cfdp.md",
        specification: "CCSDS 727.0-B-5",
        layer: "cfdp",
        command: Some("send"),
        conformance: Some("cfdp.md#conformance"),
        peers: &[
            ("cfdp-py", "interop/run.py"),
            ("LibreCube", "interop/librecube/peer.py"),
            ("cfdp-rs", "interop/run.py"),
        ],
    },
    Line {
        name: "LTP",
        page: "ltp.md",
        specification: "RFC 5326, CCSDS 734.1-B",
        layer: "ltp",
        command: Some("send"),
        conformance: Some("ltp.md#conformance"),
        peers: &[("licklider", "interop/run_bundles.py")],
    },
    Line {
        name: "LTP-T",
        page: "ltp-t.md",
        specification: "Farrell and Cahill, 2005",
        layer: "ltp-t",
        command: Some("send"),
        ..PLAIN
    },
    Line {
        name: "Saratoga",
        page: "saratoga.md",
        specification: "draft-wood-tsvwg-saratoga-22",
        layer: "saratoga",
        command: Some("send"),
        conformance: Some("conformance/saratoga.md"),
        peers: &[],
    },
    Line {
        name: "NORM",
        page: "norm.md",
        specification: "RFC 5740",
        layer: "norm",
        command: Some("send"),
        conformance: Some("conformance/norm.md"),
        peers: &[("libnorm", "interop/run_norm.py")],
    },
    Line {
        name: "Bundles",
        page: "node.md",
        specification: "RFC 9171, RFC 5050, BPSec",
        layer: "bp",
        command: Some("node"),
        conformance: Some("conformance/bundles.md"),
        peers: &[
            ("dtn7", "interop/run_bundles.py"),
            ("pyD3TN", "interop/run_bundles.py"),
            ("Hardy", "interop/run_bundles.py"),
            ("bp7", "interop/run_bundles.py"),
        ],
    },
    Line {
        name: "TCP, SCPS-TP",
        page: "tcp.md",
        specification: "RFC 9293, CCSDS 714.0-B-2",
        layer: "tcp",
        command: Some("tcp"),
        conformance: Some("conformance/tcp.md"),
        peers: &[("Linux", "docs/conformance/tcp-agreement.md")],
    },
    Line {
        name: "FTP, SCPS-FP",
        page: "file-tools.md",
        specification: "RFC 959, CCSDS 717.0-B-1",
        layer: "ftp",
        ..PLAIN
    },
    Line {
        name: "scp, sftp, rsync",
        page: "file-tools.md",
        specification: "models of programs",
        layer: "sftp",
        ..PLAIN
    },
];

/// Table of these lines.
fn table() -> String {
    let mut table = String::from(
        "| protocol | specification | simulator | sockets | conformance | tested against |\n\
         |---|---|---|---|---|---|\n",
    );
    for line in LINES {
        let mut kinds =
            Kind::all().filter(|kind| kind.layers().iter().any(|layer| layer.name == line.layer));
        assert!(kinds.clone().next().is_some(), "no stack has the layer {}", line.layer);
        let has_sockets = kinds.any(Kind::has_sockets) || line.layer == "tcp";
        let node = line.layer == "bp";
        assert_eq!(has_sockets || node, line.command.is_some(), "{}: sockets", line.name);
        let sockets = line.command.map_or("—".into(), |name| format!("`slowlight {name}`"));
        let conformance =
            line.conformance.map_or("—".into(), |page| format!("[table](docs/{page})"));
        for (peer, file) in line.peers {
            let text =
                fs::read_to_string(root().join(file)).expect("the file of a peer").to_lowercase();
            assert!(text.contains(&peer.to_lowercase()), "{file} does not run {peer}");
        }
        let peers: Vec<_> = line.peers.iter().map(|(peer, _)| *peer).collect();
        let peers = if peers.is_empty() { "—".into() } else { peers.join(", ") };
        let Line { name, page, specification, .. } = line;
        table += &format!(
            "| [{name}](docs/{page}) | {specification} | yes | {sockets} | {conformance} | {peers} |\n"
        );
    }
    table
}

#[test]
fn readme_protocol_table_matches_the_code() {
    let path = root().join("README.md");
    let text = fs::read_to_string(&path).unwrap();
    let (head, rest) = text.split_once(BEGIN).expect("README.md has the mark of the table");
    let (found, tail) = rest.split_once(END).expect("README.md has the end of the table");
    let table = table();
    if std::env::var_os("UPDATE_README").is_some() {
        fs::write(&path, format!("{head}{BEGIN}{table}{END}{tail}")).unwrap();
        return;
    }
    assert_eq!(found, table, "write it by UPDATE_README=1 cargo test --test house readme");
}

#[test]
fn readme_opens_with_numbers_of_its_picture() {
    let text = fs::read_to_string(root().join("README.md")).unwrap();
    let picture = fs::read_to_string(root().join("docs/images/compare.svg")).unwrap();
    let picture = picture.replace("&#160;", " ");
    let (opening, _) = text.split_once("![").expect("README.md has the picture");
    let words: Vec<_> = opening.split_whitespace().collect();
    let mut count = 0;
    for (number, unit) in words.iter().zip(&words[1..]) {
        let unit = unit.trim_end_matches([',', '.']);
        if matches!(unit, "s" | "%") {
            assert!(picture.contains(&format!(" {number} {unit}")), "{number} {unit}");
            count += 1;
        }
    }
    assert!(count >= 3, "only {count} numbers were found");
}
