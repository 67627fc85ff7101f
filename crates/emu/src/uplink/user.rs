//! Uplink without privileges: `slirp4netns`, which opens connections as an ordinary program.

use std::io::{self, Read as _};
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use super::{DEVICE, Range, UplinkError, system};
use crate::parent::die_with_parent;
use crate::world::Host;

const PROGRAM: &str = "slirp4netns";

/// Addresses of the program in its network.
#[derive(Clone, Copy, Debug)]
pub(super) struct Addresses {
    /// Address of the machine, including its loopback addresses.
    pub(super) gateway: Ipv4Addr,
    /// Resolver that forwards to the machine's name servers.
    pub(super) resolver: Ipv4Addr,
    network: Ipv4Addr,
}

impl Addresses {
    pub(super) fn from_range(range: Range) -> Self {
        let [network, gateway, resolver] =
            [0, 2, 3].map(|last| Ipv4Addr::new(10, range.0, 254, last));
        Self { gateway, resolver, network }
    }
}

/// Checks that the program is installed.
pub(super) fn check() -> Result<(), UplinkError> {
    let tried = Command::new(PROGRAM).arg("--version").stdin(Stdio::null()).output();
    match tried {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let remedy = "without root it takes the program slirp4netns, of the package of that \
                          name; or run it as root";
            Err(UplinkError::Missing(remedy.to_owned()))
        }
        Err(error) => Err(system(PROGRAM)(error)),
    }
}

/// Starts the program for a host, and waits until it is ready.
#[expect(unsafe_code, reason = "what is done between fork and exec is for us to judge")]
pub(super) fn start(range: Range, host: &Host) -> Result<(), UplinkError> {
    let namespace = format!("/proc/{}/fd/{}", std::process::id(), host.descriptor());
    let network = format!("--cidr={}/24", Addresses::from_range(range).network);
    let mut command = Command::new(PROGRAM);
    command.args(["--configure", "--mtu=1500", &network, "--netns-type=path", "--ready-fd=1"]);
    command.args([&namespace, DEVICE]).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    // SAFETY: one system call; allocates and locks nothing.
    unsafe {
        command.pre_exec(die_with_parent);
    }
    let mut child = command.spawn().map_err(system(PROGRAM))?;
    let mut ready = [0];
    let read = child.stdout.take().map(|mut stdout| stdout.read(&mut ready));
    if let Some(Ok(1)) = read {
        // A full pipe would block it; later messages are not needed.
        if let Some(mut stderr) = child.stderr.take() {
            std::thread::spawn(move || io::copy(&mut stderr, &mut io::sink()));
        }
        return Ok(());
    }
    let output = child.wait_with_output().map_err(system(PROGRAM))?;
    let message = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
    Err(system(PROGRAM)(io::Error::other(message)))
}
