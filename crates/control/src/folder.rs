//! Folder of a running world: its lock, its socket, and its metadata.
//!
//! `/run/slowlight/emu/<name>` for root; for others `$XDG_RUNTIME_DIR/slowlight/emu/<name>`, or a
//! private folder among the temporary files. The process on which a world depends holds the lock.
//! Without a holder the world is dead, and the next process removes its folder.

use std::env;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hyper::Method;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use service::http::Client;

/// Maximum length of a world's name.
const NAME_MAX: usize = 40;
/// Maximum length of a socket's path: `sockaddr_un` has 108 bytes including the terminator.
const SOCKET_MAX: usize = 107;

/// Time limit for the end of a world.
const PATIENCE: Duration = Duration::from_secs(10);

/// Environment variable that passes the folder to a world's process.
pub const VARIABLE: &str = "SLOWLIGHT_EMU_FOLDER";

/// Reason why a world does not exist, or cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// The name is invalid.
    #[error(
        "invalid name of a world {0:?}: expected up to 40 letters, digits, `-`, `_` and `.`, the first a letter \
         or digit"
    )]
    Name(String),
    /// A world of this name exists.
    #[error(
        "a world called {0:?} runs already; end it (slowlight emu down --name {0}) or take another --name"
    )]
    Taken(String),
    /// No world of this name exists.
    #[error("no world called {name:?} runs ({running})")]
    Unknown {
        /// Requested name.
        name: String,
        /// Names of the running worlds.
        running: String,
    },
    /// No world runs.
    #[error("no world runs; start one with slowlight emu up")]
    None,
    /// Several worlds run and none was named.
    #[error("several worlds run; choose one with --name ({0})")]
    Several(String),
    /// Another user could change the folder's content.
    #[error("{}: is not a folder of this user's alone; remove it or set XDG_RUNTIME_DIR", .0.display())]
    Foreign(PathBuf),
    /// The system refused.
    #[error("{}: {error}", path.display())]
    System {
        /// Path.
        path: PathBuf,
        /// Error of the system.
        error: io::Error,
    },
}

/// A claimed folder, removed when this is dropped.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    base: PathBuf,
    /// Lock, not inherited by programs.
    _lock: File,
}

/// A running world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    /// Name.
    pub name: String,
    /// Folder.
    pub path: PathBuf,
    /// Process that it ends with.
    pub pid: Option<i32>,
}

/// Slowlight's folder of runtime state.
fn runtime_folder() -> PathBuf {
    let user = rustix::process::geteuid();
    if user.is_root() {
        PathBuf::from("/run/slowlight")
    } else {
        let runtime = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let runtime = runtime.filter(|folder| folder.is_absolute() && folder.is_dir());
        runtime.map_or_else(
            || env::temp_dir().join(format!("slowlight-{}", user.as_raw())),
            |folder| folder.join("slowlight"),
        )
    }
}

/// Folder of the worlds' folders, created if missing.
fn base() -> Result<PathBuf, FolderError> {
    let own = runtime_folder();
    make_own(&own)?;
    let base = own.join("emu");
    make_own(&base)?;
    Ok(base)
}

fn error_at(path: &Path) -> impl FnOnce(io::Error) -> FolderError {
    let path = path.to_owned();
    move |error| FolderError::System { path, error }
}

/// Creates a private folder, or checks that it is private.
fn make_own(path: &Path) -> Result<(), FolderError> {
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error_at(path)(error)),
    }
    // Checks the link itself, not its target: anybody could have made the link.
    let found = fs::symlink_metadata(path).map_err(error_at(path))?;
    let own = found.is_dir() && found.uid() == rustix::process::geteuid().as_raw();
    if own && found.mode() & 0o022 == 0 {
        return Ok(());
    }
    Err(FolderError::Foreign(path.to_owned()))
}

/// Locks the creation and removal of folders.
fn alone(base: &Path) -> Result<File, FolderError> {
    let path = base.join(".lock");
    let file = File::options().create(true).truncate(false).write(true).open(&path);
    let file = file.map_err(error_at(&path))?;
    flock(&file, FlockOperation::LockExclusive).map_err(|errno| error_at(&path)(errno.into()))?;
    Ok(file)
}

fn check_name(name: &str) -> Result<(), FolderError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let begins = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    if begins && name.len() <= NAME_MAX && name.chars().all(allowed) {
        return Ok(());
    }
    Err(FolderError::Name(name.to_owned()))
}

/// Whether the folder's world is running: a process holds its lock.
fn lives(folder: &Path) -> bool {
    let Ok(file) = File::open(lock_of(folder)) else { return false };
    matches!(flock(&file, FlockOperation::NonBlockingLockShared), Err(Errno::WOULDBLOCK))
}

fn lock_of(folder: &Path) -> PathBuf {
    folder.join("lock")
}

/// Returns the socket of the world in a folder.
#[must_use]
pub fn socket(folder: &Path) -> PathBuf {
    folder.join("api.sock")
}

/// Removes the folders of dead worlds. The caller must hold the lock of [`alone`].
fn sweep(base: &Path) -> Result<(), FolderError> {
    for entry in fs::read_dir(base).map_err(error_at(base))? {
        let path = entry.map_err(error_at(base))?.path();
        if path.is_dir() && !lives(&path) {
            fs::remove_dir_all(&path).map_err(error_at(&path))?;
        }
    }
    Ok(())
}

/// Removes the folders of dead worlds, if there are any.
///
/// # Errors
///
/// The system refused.
pub fn remove_dead() -> Result<(), FolderError> {
    if !runtime_folder().join("emu").is_dir() {
        return Ok(());
    }
    let base = base()?;
    let _alone = alone(&base)?;
    sweep(&base)
}

impl Folder {
    /// Returns the path of a new world's folder, after checking that the name is valid and free.
    ///
    /// # Errors
    ///
    /// A world of this name runs, or the name is invalid.
    pub fn free(name: &str) -> Result<PathBuf, FolderError> {
        check_name(name)?;
        let base = base()?;
        let _alone = alone(&base)?;
        sweep(&base)?;
        let path = base.join(name);
        if path.exists() {
            return Err(FolderError::Taken(name.to_owned()));
        }
        if socket(&path).as_os_str().len() > SOCKET_MAX {
            let error = io::Error::other("the path is too long for a socket; take a shorter name");
            return Err(error_at(&path)(error));
        }
        Ok(path)
    }

    /// Claims a folder that [`Folder::free`] returned: the world ends with this process.
    ///
    /// # Errors
    ///
    /// Another process was faster, or the system refused.
    pub fn claim(path: &Path) -> Result<Self, FolderError> {
        let base = base()?;
        // Only a folder of this user may be removed.
        if path.parent() != Some(&base) {
            let error = io::Error::other("a world cannot have its folder there");
            return Err(error_at(path)(error));
        }
        Self::claim_in(base, path)
    }

    fn claim_in(base: PathBuf, path: &Path) -> Result<Self, FolderError> {
        let _alone = alone(&base)?;
        sweep(&base)?;
        match DirBuilder::new().mode(0o700).create(path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                return Err(FolderError::Taken(name.into_owned()));
            }
            Err(error) => return Err(error_at(path)(error)),
        }
        let lock = lock_of(path);
        let mut file = File::create_new(&lock).map_err(error_at(&lock))?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|errno| error_at(&lock)(errno.into()))?;
        writeln!(file, "{}", std::process::id()).map_err(error_at(&lock))?;
        Ok(Self { path: path.to_owned(), base, _lock: file })
    }

    /// Returns its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // The next process removes remaining entries.
        let _alone = alone(&self.base);
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Returns all running worlds of this user, by name. Removes the folders of dead ones.
///
/// # Errors
///
/// The system refused.
pub fn running() -> Result<Vec<Running>, FolderError> {
    let base = base()?;
    let _alone = alone(&base)?;
    sweep(&base)?;
    let mut found = Vec::new();
    for entry in fs::read_dir(&base).map_err(error_at(&base))? {
        let entry = entry.map_err(error_at(&base))?;
        let path = entry.path();
        if !path.is_dir() {
            continue;
        }
        let name = entry.file_name().to_string_lossy().into_owned();
        let mut text = String::new();
        let read = File::open(lock_of(&path)).and_then(|mut file| file.read_to_string(&mut text));
        let pid = read.ok().and_then(|_| text.trim().parse().ok());
        found.push(Running { name, path, pid });
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// Returns the world of this name, or the only one.
///
/// # Errors
///
/// There is none, or several.
pub fn find(name: Option<&str>) -> Result<Running, FolderError> {
    let mut running = running()?;
    let names = running.iter().map(|world| world.name.as_str()).collect::<Vec<_>>().join(", ");
    let Some(name) = name else {
        let only = running.pop().ok_or(FolderError::None)?;
        return if running.is_empty() { Ok(only) } else { Err(FolderError::Several(names)) };
    };
    check_name(name)?;
    let found = running.into_iter().find(|world| world.name == name);
    let running =
        if names.is_empty() { "none runs".to_owned() } else { format!("there are: {names}") };
    found.ok_or_else(|| FolderError::Unknown { name: name.to_owned(), running })
}

/// Ends a world by a request or, if it does not reply, by killing it. Returns once it is removed.
///
/// # Errors
///
/// The world still runs.
pub fn end(world: &Running) -> Result<(), FolderError> {
    let ended = Client::new(&socket(&world.path)).ask(Method::DELETE, "/world", None);
    if ended.is_ok() && is_gone(world, PATIENCE) {
        return Ok(());
    }
    // It holds the lock, so the PID is still its own.
    if let Some(pid) = world.pid.filter(|_| lives(&world.path)).and_then(Pid::from_raw) {
        kill_process(pid, Signal::KILL).map_err(|errno| error_at(&world.path)(errno.into()))?;
    }
    if is_gone(world, PATIENCE) {
        running()?;
        return Ok(());
    }
    Err(error_at(&world.path)(io::Error::other("the world does not end")))
}

fn is_gone(world: &Running, within: Duration) -> bool {
    let started = Instant::now();
    while started.elapsed() < within {
        if !lives(&world.path) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

/// Leaves the terminal and the session of the parent process.
///
/// # Errors
///
/// The system refused.
pub fn leave_session() -> io::Result<()> {
    rustix::process::setsid()?;
    Ok(())
}

/// Redirects this process's output to the file `log` of a folder.
///
/// # Errors
///
/// The system refused.
pub fn log_into(folder: &Path) -> io::Result<()> {
    rustix::stdio::dup2_stderr(
        File::options().create(true).append(true).open(folder.join("log"))?,
    )?;
    rustix::stdio::dup2_stdout(File::options().write(true).open("/dev/null")?)?;
    Ok(())
}

/// Writes a file that only this user may read.
///
/// # Errors
///
/// The system refused.
pub fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    file.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_dead_processes_are_removed() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("alpha");
        let claim = || Folder::claim_in(base.path().to_owned(), &path);
        let claimed = claim().unwrap();
        assert!(lives(&path));
        assert!(matches!(claim(), Err(FolderError::Taken(name)) if name == "alpha"));
        let elsewhere = Folder::claim(&path).unwrap_err().to_string();
        assert!(elsewhere.contains("a world cannot have its folder there"), "{elsewhere}");
        let dead = base.path().join("beta");
        fs::create_dir(&dead).unwrap();
        File::create(lock_of(&dead)).unwrap();
        sweep(base.path()).unwrap();
        assert!(path.exists() && !dead.exists());
        drop(claimed);
        assert!(!path.exists());
    }

    #[test]
    fn world_names_are_valid_folder_names() {
        for name in ["geo", "mars-2", "a.b_c"] {
            check_name(name).unwrap();
        }
        for name in ["", ".", "..", ".lock", "a/b", "a b", &"x".repeat(41)] {
            assert!(matches!(check_name(name), Err(FolderError::Name(_))), "{name}");
        }
    }

    #[test]
    fn folders_of_other_users_are_not_used() {
        let base = tempfile::tempdir().unwrap();
        let open = base.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(make_own(&open), Err(FolderError::Foreign(_))));
        let link = base.path().join("link");
        std::os::unix::fs::symlink(base.path(), &link).unwrap();
        assert!(matches!(make_own(&link), Err(FolderError::Foreign(_))));
        make_own(&base.path().join("own")).unwrap();
    }
}
