//! Programs of a world run as an ordinary user.

use std::env;
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use rustix::fs::{Mode, OFlags};
use rustix::process::{Gid, Uid};
use rustix::thread::UnshareFlags;

/// User that programs run as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    uid: u32,
    gid: u32,
    means: Means,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Means {
    /// The user who started the emulator without root, in a user namespace with his own UID.
    Caller,
    /// A user other than root, chosen by root.
    Other { groups: Vec<u32>, name: String, home: String },
}

/// Reason why programs cannot run as a user.
#[derive(Debug, thiserror::Error)]
pub enum UserError {
    /// Root must name one.
    #[error("--user: root has to name the user, as in --user=NAME")]
    Nobody,
    /// There is no such user.
    #[error("--user={0}: there is no such user")]
    Unknown(String),
    /// Only root may run programs as others.
    #[error("--user={0}: only root may run programs as another user; leave out the name")]
    Other(String),
    /// The system refused something.
    #[error("--user: {what}: {error}")]
    System {
        /// Operation that failed.
        what: &'static str,
        /// Error of the system.
        error: io::Error,
    },
}

impl User {
    /// Finds the user of this name or number, by default the one who started the emulator (with
    /// `sudo`: `$SUDO_UID`).
    ///
    /// # Errors
    ///
    /// [`UserError`] gives the reason.
    pub fn find(name: Option<&str>) -> Result<Self, UserError> {
        let own = without_root();
        match (own, name) {
            (Some((uid, gid)), None) => Ok(Self { uid, gid, means: Means::Caller }),
            (Some((uid, gid)), Some(name)) => match looked_up(name)? {
                Some(entry) if entry.uid == uid => Ok(Self { uid, gid, means: Means::Caller }),
                Some(_) => Err(UserError::Other(name.to_owned())),
                None => Err(UserError::Unknown(name.to_owned())),
            },
            (None, Some(name)) => other(name),
            (None, None) => match env::var("SUDO_UID") {
                Ok(uid) if uid != "0" => other(&uid),
                Ok(_) | Err(_) => Err(UserError::Nobody),
            },
        }
    }

    /// Makes the command run as this user. Must be called after everything that needs privileges.
    #[expect(unsafe_code, reason = "what is done between fork and exec is for us to judge")]
    pub fn command<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        let Self { uid, gid, .. } = *self;
        match &self.means {
            Means::Caller => {
                let map = |id: u32| CString::new(format!("{id} 0 1\n"));
                let (Ok(users), Ok(groups)) = (map(uid), map(gid)) else { return command };
                // SAFETY: system calls; allocates and locks nothing.
                unsafe { command.pre_exec(move || become_oneself(&users, &groups)) }
            }
            Means::Other { groups, name, home } => {
                command.env("USER", name).env("LOGNAME", name).env("HOME", home);
                // Root's folder is closed to others.
                command.env_remove("XDG_RUNTIME_DIR");
                let groups: Vec<Gid> = groups.iter().map(|group| Gid::from_raw(*group)).collect();
                let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
                // SAFETY: system calls; allocates and locks nothing. The process has one thread.
                unsafe {
                    command.pre_exec(move || {
                        rustix::thread::set_thread_groups(&groups)?;
                        rustix::thread::set_thread_res_gid(gid, gid, gid)?;
                        rustix::thread::set_thread_res_uid(uid, uid, uid)?;
                        Ok(())
                    })
                }
            }
        }
    }
}

/// Creates a user namespace in which root of the enclosing one has the user's UID again.
#[expect(unsafe_code, reason = "a namespace of a process with one thread")]
fn become_oneself(users: &CString, groups: &CString) -> io::Result<()> {
    // SAFETY: the descriptor table stays shared.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWUSER) }?;
    let write = |path, text: &[u8]| {
        let file = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
        rustix::io::write(&file, text).map(|_| ())
    };
    write(c"/proc/self/setgroups", b"deny")?;
    write(c"/proc/self/uid_map", users.as_bytes())?;
    write(c"/proc/self/gid_map", groups.as_bytes())?;
    Ok(())
}

/// User and group of the caller, unless that is root.
fn without_root() -> Option<(u32, u32)> {
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    if !uid.is_root() {
        return Some((uid.as_raw(), gid.as_raw()));
    }
    let outside = |map: &str| {
        let text = fs::read_to_string(map).ok()?;
        let [0, outside, 1] = numbers(&text)[..] else { return None };
        Some(outside)
    };
    Some((outside("/proc/self/uid_map")?, outside("/proc/self/gid_map")?))
}

fn numbers(text: &str) -> Vec<u32> {
    text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

/// Entry of the user database.
#[derive(Debug)]
struct Entry {
    name: String,
    uid: u32,
    gid: u32,
    home: String,
}

fn output(program: &str, arguments: &[&str]) -> io::Result<Option<String>> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output()?;
    Ok(output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned()))
}

fn looked_up(name: &str) -> Result<Option<Entry>, UserError> {
    let found = output("getent", &["passwd", "--", name]);
    let found = found.map_err(|error| UserError::System { what: "getent", error })?;
    Ok(found.and_then(|line| entry(&line)))
}

/// Line of `/etc/passwd`.
fn entry(line: &str) -> Option<Entry> {
    let [name, _, uid, gid, _, home, ..] = line.trim().split(':').collect::<Vec<_>>()[..] else {
        return None;
    };
    let (name, home) = (name.to_owned(), home.to_owned());
    Some(Entry { name, uid: uid.parse().ok()?, gid: gid.parse().ok()?, home })
}

fn other(name: &str) -> Result<User, UserError> {
    let Some(Entry { name, uid, gid, home }) = looked_up(name)? else {
        return Err(UserError::Unknown(name.to_owned()));
    };
    let groups = output("id", &["-G", "--", &name]);
    let groups = groups.map_err(|error| UserError::System { what: "id", error })?;
    let groups = groups.map_or_else(|| vec![gid], |text| numbers(&text));
    Ok(User { uid, gid, means: Means::Other { groups, name, home } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_of_the_user_database_is_read() {
        let found = entry("nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n");
        let found = found.expect("a line of the usual form");
        assert_eq!((found.uid, found.gid), (65534, 65534));
        assert_eq!((found.name.as_str(), found.home.as_str()), ("nobody", "/nonexistent"));
        assert!(entry("nobody:x:65534").is_none());
    }
}
