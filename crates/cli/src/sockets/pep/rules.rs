//! Kernel rules that divert packets to the gateway: its own nftables table, routing rules and
//! routing table.

use std::io::{self, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use service::gateway::{Gateway, OwnTcp};

use super::device;

/// Rules of a gateway, as commands.
pub(super) struct Rules {
    /// Name of the table.
    table: String,
    /// Whether one side uses slowlight's own TCP.
    has_own: bool,
    /// Input of `nft -f -`.
    pub(super) nft: String,
    /// Arguments of `ip`.
    ip: Vec<String>,
    /// Shell commands that remove all rules; no-ops if there are none.
    remove: String,
    /// Commands of nftables that stop intercepting new connections.
    pass: String,
}

impl Rules {
    pub(super) fn for_gateway(gateway: &Gateway) -> Self {
        let table = format!("slowlight_{}", gateway.name);
        let nft = nft(gateway, &table);
        let rules = &gateway.rules;
        let (mark, number, priority) = (rules.mark, rules.table, rules.priority);
        let families: &[&str] =
            if gateway.intercept.takes_ipv6() { &["-4", "-6"] } else { &["-4"] };
        let mut ip = Vec::new();
        let own = gateway.wan.own.as_ref();
        for family in families {
            let any = if *family == "-4" { "0.0.0.0/0" } else { "::/0" };
            // Marked packets are delivered locally, whatever their destination.
            ip.push(format!("{family} route replace local {any} dev lo table {number}"));
            ip.push(format!(
                "{family} rule add priority {priority} fwmark {mark:#x} lookup {number}"
            ));
            if let Some(own) = own {
                // Packets from the long link go to slowlight's own TCP, whatever their destination.
                let (mark, number, device) = (mark + 1, number + 1, &own.device);
                ip.push(format!("{family} route replace {any} dev {device} table {number}"));
                ip.push(format!(
                    "{family} rule add priority {priority} fwmark {mark:#x} lookup {number}"
                ));
            }
        }
        let mut remove = format!("nft delete table inet {table} 2>/dev/null\n");
        for (family, next) in [("-4", 0), ("-4", 1), ("-6", 0), ("-6", 1)] {
            let (mark, number) = (mark + next, number + next);
            let rule = format!("priority {priority} fwmark {mark:#x} lookup {number}");
            remove += &format!("while ip {family} rule del {rule} 2>/dev/null; do :; done\n");
            remove += &format!("ip {family} route flush table {number} 2>/dev/null\n");
        }
        remove += "true\n";
        let mut pass = format!("flush chain inet {table} new");
        if own.is_some() {
            // Connections of slowlight's own TCP end with it, so their senders get a reset.
            pass += &format!("; flush chain inet {table} own; add rule inet {table} own goto gone");
        }
        Self { table, has_own: own.is_some(), nft, ip, remove, pass }
    }

    /// The commands, with comments for people.
    pub(super) fn shell(&self, gateway: &Gateway) -> String {
        let ip: String = self.ip.iter().map(|line| format!("ip {line}\n")).collect();
        let (nft, remove) = (&self.nft, &self.remove);
        let (mut before, mut after) = (String::new(), String::new());
        if let Some(own) = &gateway.wan.own {
            before = device::shell(own, gateway);
            before += &format!("echo 0 > {EARLY_DEMUX}\n");
            // The device is removed with its process, or manually by a command.
            after = format!(
                "ip link del {}\n# if it was 1 before\necho 1 > {EARLY_DEMUX}\n",
                own.device
            );
        }
        format!("# set\n{before}{ip}nft -f - <<'END'\n{nft}END\n\n# remove\n{remove}{after}")
    }

    fn has_changed_demux(&self) -> bool {
        let mut list = Command::new("nft");
        run(list.args(["list", "chain", "inet", &self.table, CHANGED_DEMUX]), None).is_ok()
    }

    /// Removes rules that a gateway of this name left, and installs these. They are removed when
    /// the returned value is dropped, or when this process ends.
    pub(super) fn set(mut self, linger: Duration) -> Result<Installed> {
        let mut changed = self.has_changed_demux();
        shell(&self.remove).context("removing rules that were left behind")?;
        if self.has_own {
            // Where the kernel looks for a packet's stream before it looks where it goes, it drops
            // those of our own TCP: their addresses are those of a stream.
            changed |= std::fs::read_to_string(EARLY_DEMUX)?.trim() != "0";
        }
        if changed {
            let value = if self.has_own { "0" } else { "1" };
            std::fs::write(EARLY_DEMUX, value).context(EARLY_DEMUX)?;
        }
        if changed && self.has_own {
            self.remove += &format!("echo 1 > {EARLY_DEMUX}\n");
            self.nft += &format!("add chain inet {} {CHANGED_DEMUX}\n", self.table);
        }
        let keeper = Keeper::start(&self, linger)?;
        let installed =
            Installed { table: self.table, has_own: self.has_own, pass: self.pass, keeper };
        for line in &self.ip {
            let mut command = Command::new("ip");
            run(command.args(line.split(' ')), None).with_context(|| format!("ip {line}"))?;
        }
        let own = format!("add chain inet {} of_{}\n", installed.table, installed.keeper.number());
        run(Command::new("nft").args(["-f", "-"]), Some(&(self.nft + &own))).context(
            "the rules of nftables cannot be set; the kernel needs nf_tables with nft_tproxy and \
             nft_socket",
        )?;
        Ok(installed)
    }
}

/// Name of a chain that marks [`EARLY_DEMUX`] for restoration to 1, also by the next gateway if
/// this one did not.
const CHANGED_DEMUX: &str = "changed_early_demux";

/// Statement that marks a packet as this gateway's own (`next` 0), or as its own TCP's (1).
fn mark(gateway: &Gateway, next: u32) -> String {
    format!("meta mark set {:#x}", gateway.rules.mark + next)
}

/// nftables rules that match packets of connections.
#[derive(Default)]
struct Picks {
    /// First packets of new connections.
    new: String,
    /// Packets for slowlight's own TCP.
    own: String,
    /// Packets of the rules above after the gateway has ended.
    gone: String,
}

fn picks(gateway: &Gateway) -> Picks {
    let taken = gateway.intercept.taken();
    let [lan, wan] = gateway.rules.ports();
    let families: &[_] = if gateway.intercept.takes_ipv6() {
        &[("ipv4", "ip", "127.0.0.1"), ("ipv6", "ip6", "[::1]")]
    } else {
        &[("ipv4", "ip", "127.0.0.1")]
    };
    let Picks { mut new, mut own, mut gone } = Picks::default();
    for (protocol, family, address) in families {
        let mut take = |interfaces: &[String], port| {
            let from = format!("meta nfproto {protocol} iifname {}", set(interfaces));
            let to = format!("tproxy {family} to {address}:{port} {}", mark(gateway, 0));
            new += &format!("    {from} tcp dport {taken} {to} accept\n");
        };
        take(&gateway.lan.interfaces, lan);
        if gateway.wan.own.is_none() {
            take(&gateway.wan.interfaces, wan);
            continue;
        }
        // Either end may be the server with one of these ports.
        for end in ["dport", "sport"] {
            let from = format!("meta nfproto {protocol} iifname {}", set(&gateway.wan.interfaces));
            let theirs = format!("{from} tcp {end} {taken} fib daddr type != local");
            own += &format!("    {theirs} {} accept\n", mark(gateway, 1));
            gone += &format!("    {theirs} reject with tcp reset\n");
        }
    }
    Picks { new, own, gone }
}

fn nft(gateway: &Gateway, table: &str) -> String {
    let Picks { new, own, gone } = picks(gateway);
    // Packets of slowlight's own TCP have the addresses of a kernel stream to which they do not
    // belong.
    let (mut chains, mut jumps) = (String::new(), String::new());
    let (mut reports, mut own_reports) = (String::new(), String::new());
    if let Some(OwnTcp { device, .. }) = &gateway.wan.own {
        chains = format!("  chain gone {{\n{gone}  }}\n  chain own {{\n{own}  }}\n");
        jumps = format!("    iifname \"{device}\" accept\n    jump own\n");
        let to_own = reports_to_own(gateway, &mark(gateway, 1));
        let wan = set(&gateway.wan.interfaces);
        reports = to_own.iter().map(|rule| format!("    iifname {wan} {rule}\n")).collect();
        // The kernel itself reports packets that do not fit the interface it forwards them to.
        let from_here: String = to_own.iter().map(|rule| format!("    {rule}\n")).collect();
        own_reports = format!(
            "  chain reports_from_here {{\n\
             \x20   type route hook output priority mangle; policy accept;\n\
             {from_here}  }}\n"
        );
    }
    // A first SYN is nobody's yet; what belongs to a connection that the gateway has is found by its
    // socket, and so does what routers report of its packets. All else, as connections that were there
    // before, goes on as if there were no gateway.
    format!(
        "table inet {table} {{\n\
         {chains}\
         \x20 chain new {{\n\
         \x20   fib daddr type local return\n\
         {new}\
         \x20 }}\n\
         \x20 chain reports {{\n\
         {reports}\
         \x20   socket transparent 1 {0} accept\n\
         \x20 }}\n\
         {own_reports}\
         \x20 chain packets {{\n\
         \x20   type filter hook prerouting priority mangle; policy accept;\n\
         \x20   meta l4proto {{ icmp, ipv6-icmp }} goto reports\n\
         \x20   meta l4proto != tcp return\n\
         {jumps}\
         \x20   tcp flags & (fin | syn | rst | ack) == syn goto new\n\
         \x20   socket transparent 1 {0} accept\n\
         \x20 }}\n\
         }}\n",
        mark(gateway, 0)
    )
}

/// Matches for reports of routers that a packet of our own TCP was too long. The packet is quoted
/// behind 8 bytes of ICMP: its protocol is byte 9 of a header of IPv4, or 6 of one of IPv6, and
/// its ports follow that header of 20 or 40 bytes.
fn reports_to_own(gateway: &Gateway, mark: &str) -> Vec<String> {
    let taken = gateway.intercept.taken();
    let v4 = ("meta nfproto ipv4 icmp type destination-unreachable icmp code frag-needed", 17, 28);
    let v6 = ("meta nfproto ipv6 icmpv6 type packet-too-big", 14, 48);
    let families = if gateway.intercept.takes_ipv6() { vec![v4, v6] } else { vec![v4] };
    let mut rules = Vec::new();
    for (message, protocol, ports) in families {
        for port in [ports, ports + 2] {
            rules.push(format!(
                "{message} @th,{},8 6 @th,{},16 {taken} fib daddr type != local {mark} accept",
                8 * protocol,
                8 * port
            ));
        }
    }
    rules
}

/// nftables set of interface names.
fn set(interfaces: &[String]) -> String {
    let quoted: Vec<_> = interfaces.iter().map(|name| format!("\"{name}\"")).collect();
    format!("{{ {} }}", quoted.join(", "))
}

/// Installed rules.
pub(super) struct Installed {
    table: String,
    has_own: bool,
    pass: String,
    keeper: Keeper,
}

impl Installed {
    /// Stops intercepting new connections; established ones continue. Returns `false` with
    /// slowlight's own TCP, whose packets are matched by port only.
    pub(super) fn pass_new(&self) -> Result<bool> {
        if self.has_own {
            return Ok(false);
        }
        let table = &self.table;
        run(Command::new("nft").args(["flush", "chain", "inet", table, "new"]), None)?;
        Ok(true)
    }

    /// Takes them away, after a time: what the kernel still has to send for connections that are over
    /// needs them. Meanwhile another of its name may come, whose rules serve as well.
    pub(super) fn remove(
        self,
        gateway: &Gateway,
        held: UnixListener,
        after: Duration,
    ) -> Result<()> {
        if after.is_zero() {
            return self.keeper.end(after);
        }
        let pass = self.keeper.only_own(&self.table, &self.pass);
        run(Command::new("nft").arg(pass), None).context("letting new connections pass")?;
        drop(held);
        std::thread::sleep(after);
        // Nobody may set rules while these are taken away. Who has come and is about to is given
        // time for it, after which there are none of ours any more.
        let held = lock(gateway);
        self.keeper.end(if held.is_ok() { Duration::ZERO } else { TO_START })
    }
}

/// Longest time from the start of a gateway until its rules are installed.
const TO_START: Duration = Duration::from_secs(10);

/// Process that removes the rules after this one has ended for any reason.
struct Keeper(Option<Child>);

impl Keeper {
    fn start(rules: &Rules, linger: Duration) -> Result<Self> {
        // What a terminal says to all of its processes is not for this one: it waits until nobody
        // has the other end of its input. A gateway of the same name that comes meanwhile removes the
        // rules itself, and sets its own, which are not this one's to change: nftables does all of
        // a line or nothing.
        let Rules { remove, pass, table, .. } = rules;
        let linger = linger.as_secs_f64();
        let script = format!(
            "trap '' HUP INT QUIT TERM\nread -r after || after={linger}\n\
             nft \"flush chain inet {table} of_$$; {pass}\" 2>/dev/null\n\
             [ \"$after\" = 0 ] || sleep \"$after\"\n\
             nft list chain inet {table} of_$$ >/dev/null 2>&1 || exit 0\n{remove}"
        );
        let mut command = Command::new("sh");
        command.args(["-c", &script]).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self(Some(command.spawn().context("sh, which removes the rules at the end")?)))
    }

    /// Process number, which names the rules that it has to remove.
    fn number(&self) -> u32 {
        self.0.as_ref().map_or(0, Child::id)
    }

    /// Line for nftables that has no effect on the rules of another gateway.
    fn only_own(&self, table: &str, line: &str) -> String {
        format!("flush chain inet {table} of_{}; {line}", self.number())
    }

    fn end(mut self, after: Duration) -> Result<()> {
        self.wait(after).context("removing the rules")
    }

    fn wait(&mut self, after: Duration) -> Result<()> {
        let Some(mut child) = self.0.take() else { return Ok(()) };
        if let Some(mut stdin) = child.stdin.take() {
            writeln!(stdin, "{}", after.as_secs_f64())?;
        }
        let status = child.wait()?;
        ensure!(status.success(), "sh: {status}");
        Ok(())
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if let Err(error) = self.wait(Duration::ZERO) {
            tracing::warn!(%error, "rules may be left behind");
        }
    }
}

/// Setting: look up a packet's socket before its route.
const EARLY_DEMUX: &str = "/proc/sys/net/ipv4/tcp_early_demux";

/// Excludes other gateways with the same rules while the socket exists: abstract names belong to a
/// network namespace.
pub(super) fn lock(gateway: &Gateway) -> Result<UnixListener> {
    let name = format!("slowlight/pep/{}", gateway.name);
    let address = SocketAddr::from_abstract_name(name.as_bytes())?;
    UnixListener::bind_addr(&address).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => anyhow!(
            "a gateway of the name {:?} runs in this network namespace, or waits for its connections \
             to end (limits.drain); stop it, or give this one another `name`, and other `rules`",
            gateway.name
        ),
        _ => anyhow!(error).context("the gateway's lock"),
    })
}

/// Checks that the programs are installed and that this user may set rules.
pub(super) fn check_programs() -> Result<()> {
    run(Command::new("ip").arg("-V"), None)?;
    run(Command::new("nft").args(["list", "tables"]), None).map_err(|error| {
        if error.to_string().contains("Operation not permitted") {
            anyhow!("a gateway sets rules in the kernel, which only root may do: {error}")
        } else {
            error
        }
    })
}

fn shell(script: &str) -> Result<()> {
    run(Command::new("sh").args(["-c", script]), None)
}

fn run(command: &mut Command, input: Option<&str>) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| match (error.kind(), program.as_str()) {
        (io::ErrorKind::NotFound, "nft") => {
            anyhow!("there is no program nft; install nftables")
        }
        (io::ErrorKind::NotFound, "ip") => anyhow!("there is no program ip; install iproute2"),
        _ => anyhow!(error).context(program.clone()),
    })?;
    if let (Some(mut stdin), Some(input)) = (child.stdin.take(), input) {
        stdin.write_all(input.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    let message = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program}: {}", message.trim().replace('\n', "; "));
    Ok(())
}
