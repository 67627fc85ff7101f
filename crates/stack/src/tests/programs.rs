//! Modelled programs over TCP.

use engine::{PathId, PathInfo, Rng, Time, conformance};
use models::programs::{Config, Costs, Indication, Node, Tool, Version};
use testing::memory::Counted;

use super::super::OverTcp;
use super::transfer;
use super::world::SERVICE;

/// A transfer by a program, for the conformance suite.
struct Transfer {
    tool: Tool,
    version: Version,
}

impl conformance::Subject for Transfer {
    type Engine = Counted<OverTcp<Node>>;

    fn engine(&self, role: conformance::Role, seed: u64) -> Self::Engine {
        let mut program = Config::new(self.tool, self.version);
        program.costs = Costs::none();
        program.key_interval = std::time::Duration::from_millis(20);
        program.timeout = std::time::Duration::from_secs(600);
        let node = Node::new(program, Rng::new(seed, "program"));
        Counted::new(|| OverTcp::new(transfer::host(role), node, Rng::new(seed, "host")))
    }

    fn size(&self) -> usize {
        // Keystrokes, or bytes.
        if self.tool == Tool::Telnet { 40 } else { 12_000 }
    }

    fn start(&self, engine: &mut Self::Engine, now: Time) -> bool {
        engine.charge(|host| {
            host.call(now, |node| node.put(SERVICE, conformance::source(), "copy").unwrap());
        });
        true
    }

    fn verdict(
        &self,
        _role: conformance::Role,
        indication: &Indication,
    ) -> Option<conformance::Verdict> {
        match indication {
            Indication::Finished { .. } | Indication::Received { .. } => {
                Some(conformance::Verdict::Delivered)
            }
            Indication::Failed { .. } | Indication::Aborted { .. } => {
                Some(conformance::Verdict::Failed)
            }
            Indication::Begun { .. } | Indication::Echoed { .. } | Indication::Refused { .. } => {
                None
            }
        }
    }

    fn is_busy(&self, engine: &Self::Engine) -> bool {
        engine.above().under_way() > 0
    }

    fn memory(&self, engine: &Self::Engine) -> usize {
        engine.memory()
    }

    fn memory_max(&self) -> usize {
        transfer::HOST_MAX
    }

    fn path(&self) -> PathInfo {
        PathInfo::datagram(1500)
    }

    fn detects_damage(&self) -> bool {
        // The Internet checksum misses two exchanged bits.
        false
    }
}

fn check(tool: Tool, version: Version) {
    assert_eq!(conformance::PATH, PathId(1));
    let options =
        conformance::Options { runs: 4, positions: 12, ..conformance::Options::default() };
    conformance::check_all(&Transfer { tool, version }, &options);
}

#[test]
fn scp_keeps_the_contract() {
    check(Tool::Scp, Version::OpenSsh92Legacy);
}

#[test]
fn sftp_keeps_the_contract() {
    check(Tool::Sftp, Version::OpenSsh92);
}

#[test]
fn an_old_sftp_keeps_the_contract() {
    check(Tool::Sftp, Version::OpenSsh42);
}

#[test]
fn rsync_keeps_the_contract() {
    check(Tool::Rsync, Version::OpenSsh92);
    check(Tool::RsyncDaemon, Version::OpenSsh92);
}

#[test]
fn telnet_keeps_the_contract() {
    check(Tool::Telnet, Version::OpenSsh92);
}
