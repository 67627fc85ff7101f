//! Files replaced for programs in a world: `/etc/hosts` and `/etc/resolv.conf`.

use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::io;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};

use crate::world::HostPlan;

const HOSTS: &str = "/etc/hosts";
/// First line of a world's `/etc/hosts`.
const HEADER: &str = "# hosts of a slowlight world";

/// Address and name of an entry in `/etc/hosts`.
pub type Name = (IpAddr, String);

/// Replaces `/etc/hosts` for programs of this mount namespace. A host's name resolves to its IPv4
/// address, so that packets are as long as in the simulator; with `-6` appended, to its IPv6
/// address. `others` are added, except names of hosts.
///
/// # Errors
///
/// The system refused.
pub fn name_hosts(hosts: &[HostPlan], others: &[Name]) -> io::Result<()> {
    cover(Path::new(HOSTS), &hosts_text(hosts, others))
}

fn hosts_text(hosts: &[HostPlan], others: &[Name]) -> String {
    let mut names = vec![
        (IpAddr::V4(Ipv4Addr::LOCALHOST), "localhost".to_owned()),
        (IpAddr::V6(std::net::Ipv6Addr::LOCALHOST), "localhost".to_owned()),
    ];
    for HostPlan { name, address, address6, .. } in hosts {
        names.push((IpAddr::V4(*address), name.clone()));
        names.push((IpAddr::V6(*address6), format!("{name}-6")));
    }
    let own: Vec<String> = names.iter().map(|(_, name)| name.clone()).collect();
    names.extend(others.iter().filter(|(_, name)| !own.contains(name)).cloned());
    names.iter().fold(format!("{HEADER}\n"), |mut text, (address, name)| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{address} {name}");
        text
    })
}

/// Names in `/etc/hosts`, except names of loopback addresses.
pub(crate) fn names_of_machine() -> Vec<Name> {
    let text = fs::read_to_string(HOSTS).unwrap_or_default();
    parsed(&text)
}

fn parsed(text: &str) -> Vec<Name> {
    let mut names = Vec::new();
    for line in text.lines() {
        let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
        let address = words.next().and_then(|word| word.parse::<IpAddr>().ok());
        let Some(address) = address.filter(|address| !address.is_loopback()) else { continue };
        names.extend(words.map(|name| (address, name.to_owned())));
    }
    names
}

/// Names of the enclosing world, if this process runs on a host of one.
#[must_use]
pub fn enclosing_world() -> Option<Vec<Name>> {
    let text = fs::read_to_string(HOSTS).ok()?;
    let names = text.starts_with(HEADER).then(|| parsed(&text))?;
    // The file alone proves nothing, because it may be a copy: this network namespace must have one
    // of the addresses.
    let is_here = |(address, _): &Name| UdpSocket::bind((*address, 0)).is_ok();
    names.iter().any(is_here).then_some(names)
}

/// Covers the file at `path` with this text for programs in this mount namespace. Further files
/// can be bound over it.
pub(crate) fn cover(path: &Path, text: &str) -> io::Result<()> {
    let failed = |error: io::Error| {
        io::Error::new(error.kind(), format!("{} cannot be replaced: {error}", path.display()))
    };
    if !path.exists() {
        make_room(path).map_err(failed)?;
    }
    let covered = with_memory(|folder| {
        let file = folder.join("file");
        fs::write(&file, text)?;
        // Programs of other users must be able to read it, with any umask.
        fs::set_permissions(&file, Permissions::from_mode(0o644))?;
        Ok(mount_bind(&file, path)?)
    });
    covered.map_err(failed)
}

/// Creates an empty file where the system has none (or a dangling link), in an overlay over its
/// folder that is invisible outside.
fn make_room(path: &Path) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    with_memory(|memory| {
        let [upper, work] = ["upper", "work"].map(|name| memory.join(name));
        fs::create_dir(&upper)?;
        fs::set_permissions(&upper, Permissions::from_mode(0o755))?;
        fs::create_dir(&work)?;
        let [lower, upper, work] = [folder, &upper, &work].map(|path| path.display().to_string());
        let options = format!("lowerdir={lower},upperdir={upper},workdir={work}");
        let options = std::ffi::CString::new(options).map_err(io::Error::other)?;
        Ok(mount("overlay", folder, "overlay", MountFlags::empty(), options.as_c_str())?)
    })?;
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    fs::write(path, "")
}

/// Runs a function with a folder in memory. Mounts from it stay when the folder is unmounted: a
/// deleted file could not be covered again.
fn with_memory<T>(run: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    // Every system has this folder, and `run` needs nothing in it.
    let folder = Path::new("/proc");
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("tmpfs", folder, "tmpfs", flags, c"mode=0755,size=1m")?;
    let result = run(folder);
    unmount(folder, UnmountFlags::DETACH)?;
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_names_are_unique_and_loopback_stays_local() {
        let outer = "# hosts of a slowlight world\n127.0.0.1 localhost\n10.0.0.1 far # the end\n\
                     fd73::1 far-6 other\n10.0.0.2 near\nnonsense\n";
        let others = parsed(outer);
        let names: Vec<_> = others.iter().map(|(_, name)| name.as_str()).collect();
        assert_eq!(names, ["far", "far-6", "other", "near"]);
        let address: Ipv4Addr = "10.1.0.2".parse().expect("an address");
        let near = HostPlan {
            name: "near".to_owned(),
            address,
            address6: address.to_ipv6_mapped(),
            forwards: false,
        };
        let text = hosts_text(&[near], &others);
        assert!(text.starts_with(HEADER), "{text}");
        assert!(text.contains("10.1.0.2 near\n") && !text.contains("10.0.0.2 near"), "{text}");
        assert!(text.contains("10.0.0.1 far\n") && text.contains("fd73::1 other\n"), "{text}");
    }
}
