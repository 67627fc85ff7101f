//! Programs that are modelled, over TCP.

use engine::{FileName, MemoryStore, PathId, PathInfo, Rng, Time, conformance};

use super::super::OverTcp;
use super::octets;
use super::world::{SERVICE, address, config};
use crate::programs::{Config, Costs, Indication, Node, Tool, Version};

/// A transfer by a program, for the suite that every engine passes.
struct Transfer {
    tool: Tool,
    version: Version,
}

impl Transfer {
    /// Octets, or keys.
    fn size(&self) -> usize {
        if self.tool == Tool::Telnet { 40 } else { 12_000 }
    }
}

fn file(name: &str) -> FileName {
    FileName::file(name).unwrap()
}

impl conformance::Subject for Transfer {
    type Engine = OverTcp<Node>;

    fn engine(&self, role: conformance::Role, seed: u64) -> Self::Engine {
        let host = match role {
            conformance::Role::Sender => 0,
            conformance::Role::Receiver => 1,
        };
        let mut config = config(host);
        config.tcp.addresses = vec![address(host).ip()];
        config.tcp.limits.connections = 64;
        config.tcp.limits.time_wait = 256;
        config.options.send_buffer = crate::tcp::Buffer::Fixed(16 << 10);
        config.options.receive_buffer = crate::tcp::Buffer::Fixed(16 << 10);
        config.limits.streams = 32;
        let mut program = Config::new(self.tool, self.version);
        program.costs = Costs::none();
        program.key_interval = std::time::Duration::from_millis(20);
        program.timeout = std::time::Duration::from_secs(600);
        let node = Node::new(program, Rng::new(seed, "program"));
        OverTcp::new(config, node, Rng::new(seed, "host"))
    }

    fn prepare(&self, role: conformance::Role, store: &mut MemoryStore) {
        if role == conformance::Role::Sender {
            store.insert(file("here"), octets(self.size()));
        }
    }

    fn start(&self, engine: &mut Self::Engine, now: Time) -> bool {
        engine.call(now, |node| node.put(SERVICE, file("here"), "there").unwrap());
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

    fn check(&self, receiver: &MemoryStore) -> Result<(), String> {
        match receiver.get(&file("there")) {
            Some(content) if content == octets(self.size()) => Ok(()),
            Some(content) => Err(format!("another content, of {} octets", content.len())),
            None => Err("no file".to_owned()),
        }
    }

    fn is_busy(&self, engine: &Self::Engine) -> bool {
        engine.above().under_way() > 0
    }

    fn memory(&self, engine: &Self::Engine) -> usize {
        engine.memory()
    }

    fn memory_max(&self) -> usize {
        6 << 20
    }

    fn path(&self) -> PathInfo {
        PathInfo::datagram(1500)
    }

    fn detects_damage(&self) -> bool {
        // The Internet checksum does not see two bits that change places.
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
