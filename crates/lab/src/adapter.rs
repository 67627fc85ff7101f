//! Tool adapters: commands of external programs, as TOML.
//!
//! Shell commands describe a program that transfers a file between hosts. `docs/emulator.md` lists
//! their variables.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use transport::files;
use transport::text::{self, SpecError};

/// An external program that transfers files or measures a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adapter {
    /// Name.
    pub name: String,
    /// Description.
    pub about: String,
    /// Port of its server.
    pub port: u16,
    /// Second port of its server, if it uses one for data.
    pub port2: Option<u16>,
    /// Whether the client runs at the receiver and fetches the file from the server.
    pub pulls: bool,
    /// Command run once before, outside the hosts.
    pub prepare: Option<String>,
    /// Command that runs at one end while the client works.
    pub server: Option<String>,
    /// Sign that the server is ready: a socket listens on its port.
    pub ready: Option<Ready>,
    /// Command that ends when the file has been transferred.
    pub client: String,
    /// JSON pointer (RFC 6901) to the goodput in bit/s in its output. Without it a file is
    /// transferred, and compared with the one sent.
    pub goodput: Option<String>,
    /// Requirements.
    pub needs: Vec<Need>,
}

/// Type of socket that listens on a server's port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ready {
    /// A TCP socket.
    Tcp,
    /// A UDP socket.
    Udp,
}

/// End of a transfer by a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The file has arrived, with the same SHA-256.
    Identical,
    /// A different file has arrived, although the tool reports success.
    Different,
    /// The tool only measures, and leaves no file.
    Measured,
    /// The tool has reported an error, or took too long.
    Failed,
}

/// A requirement of a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Need {
    /// A program by name or path, and how to install it.
    Program {
        /// Path, or name, looked up as a shell does and in the system's server folders.
        name: String,
        /// Remedy if it is missing.
        remedy: String,
    },
    /// A congestion control of the kernel's TCP.
    CongestionControl(String),
}

/// Text of an adapter's file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    like: Option<String>,
    about: Option<String>,
    port: Option<u16>,
    port2: Option<u16>,
    pulls: Option<bool>,
    prepare: Option<String>,
    server: Option<String>,
    ready: Option<Ready>,
    client: Option<String>,
    goodput: Option<String>,
    needs: Option<Vec<NeedText>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NeedText {
    program: Option<String>,
    package: Option<String>,
    remedy: Option<String>,
    congestion_control: Option<String>,
}

macro_rules! adapters {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../../adapters/", $name, ".toml")))),*]
    };
}

/// Built-in adapters.
const ALL: &[(&str, &str)] = adapters![
    "scp",
    "sftp",
    "rsync",
    "rsync-daemon",
    "ftp",
    "http-wget",
    "http-curl",
    "iperf3-cubic",
    "iperf3-reno",
    "iperf3-bbr",
    "nuttcp",
    "uftp",
    "libnorm",
];

/// Built-in adapters, and a folder's adapters, which take precedence.
#[derive(Clone, Debug, Default)]
pub struct Adapters {
    folder: Option<PathBuf>,
    /// Names and texts of the folder's adapters.
    own: Vec<(String, String)>,
}

/// Whether a scenario's tool is the path of an adapter.
#[must_use]
pub fn is_path(tool: &str) -> bool {
    tool.ends_with(".toml")
}

/// Returns the adapter of a scenario's tool: a built-in one, or a path that ends in `.toml`.
///
/// # Errors
///
/// The adapter does not exist (names the existing ones), or is invalid.
pub fn named(tool: &str) -> Result<Adapter, SpecError> {
    if !is_path(tool) {
        return Adapters::default().find(tool);
    }
    let path = Path::new(tool);
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let own = vec![(name.clone().into_owned(), text::read_text(path)?)];
    Adapters { folder: path.parent().map(Path::to_owned), own }.find(&name)
}

impl Adapters {
    /// Returns the adapters including a folder's: each file `NAME.toml`.
    ///
    /// # Errors
    ///
    /// The folder or a file in it cannot be read.
    pub fn with(folder: Option<&Path>) -> Result<Self, SpecError> {
        let Some(folder) = folder else { return Ok(Self::default()) };
        Ok(Self { folder: Some(folder.to_owned()), own: files::toml_files(folder)? })
    }

    /// Returns all names, the folder's first.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        let own = self.own.iter().map(|(name, _)| name.as_str());
        let mut names = BTreeSet::new();
        own.chain(ALL.iter().map(|(name, _)| *name)).filter(|name| names.insert(*name)).collect()
    }

    /// Returns the adapter of this name.
    ///
    /// # Errors
    ///
    /// The adapter does not exist (names the existing ones), or is invalid.
    pub fn find(&self, name: &str) -> Result<Adapter, SpecError> {
        let text = self.text(name)?;
        let mut text = match &text.like {
            Some(like) => {
                let base = self.text(like)?;
                if base.like.is_some() {
                    return Err(self.invalid(name, "like: names one that is like another"));
                }
                text.over(base)
            }
            None => text,
        };
        let needs = text.needs.take().unwrap_or_default();
        let needs = needs.into_iter().map(NeedText::checked).collect::<Option<_>>();
        let needs = needs.ok_or_else(|| {
            let wanted = "needs: give each `program` with its `package` or a `remedy`, \
                          or `congestion_control`";
            self.invalid(name, wanted)
        })?;
        let Some(client) = text.client else {
            return Err(self.invalid(name, "client is missing: the command that carries the file"));
        };
        if text.ready.is_some() && text.server.is_none() {
            return Err(self.invalid(name, "ready: there is no `server` to wait for"));
        }
        let port = text.port.ok_or_else(|| self.invalid(name, "port is missing"))?;
        Ok(Adapter {
            name: name.to_owned(),
            about: text.about.unwrap_or_default(),
            port,
            port2: text.port2,
            pulls: text.pulls.unwrap_or_default(),
            prepare: text.prepare,
            server: text.server,
            ready: text.ready,
            client,
            goodput: text.goodput,
            needs,
        })
    }

    fn text(&self, name: &str) -> Result<Text, SpecError> {
        let own = self.own.iter().map(|(name, text)| (name.as_str(), text.as_str()));
        let found = own.chain(ALL.iter().copied()).find(|(known, _)| *known == name);
        if let Some((_, text)) = found {
            return text::parse(text, &self.origin(name));
        }
        let names = self.names();
        let near = text::did_you_mean(name, names.iter().copied());
        let name = wire::excerpt(name);
        Err(SpecError::invalid(format!(
            "there is no tool {name:?}{near} (tools: {})",
            names.join(", ")
        )))
    }

    fn origin(&self, name: &str) -> String {
        let own = self.own.iter().any(|(own, _)| own == name);
        let folder = self.folder.as_ref().filter(|_| own);
        let file = format!("{name}.toml");
        folder.map_or(format!("adapters/{file}"), |folder| folder.join(file).display().to_string())
    }

    fn invalid(&self, name: &str, message: &str) -> SpecError {
        SpecError::Malformed { origin: self.origin(name), message: message.to_owned() }
    }
}

impl Text {
    /// Returns these keys, with missing ones from `base`.
    fn over(self, base: Self) -> Self {
        Self {
            like: None,
            about: self.about.or(base.about),
            port: self.port.or(base.port),
            port2: self.port2.or(base.port2),
            pulls: self.pulls.or(base.pulls),
            prepare: self.prepare.or(base.prepare),
            server: self.server.or(base.server),
            ready: self.ready.or(base.ready),
            client: self.client.or(base.client),
            goodput: self.goodput.or(base.goodput),
            needs: self.needs.or(base.needs),
        }
    }
}

impl NeedText {
    fn checked(self) -> Option<Need> {
        match self {
            Self { program: Some(name), package, remedy, congestion_control: None } => {
                let package = package.map(|package| {
                    format!("it is in the package {package}: apt-get install {package}")
                });
                Some(Need::Program { name, remedy: remedy.or(package)? })
            }
            Self {
                program: None,
                package: None,
                remedy: None,
                congestion_control: Some(algorithm),
            } => Some(Need::CongestionControl(algorithm)),
            Self { .. } => None,
        }
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Program { name, remedy } => write!(f, "there is no program {name}; {remedy}"),
            Self::CongestionControl(name) => {
                write!(f, "the kernel has no congestion control {name}; modprobe tcp_{name}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        folder
    }

    /// Error of an adapter with this text.
    fn refused(text: &str) -> String {
        let folder = folder(&[("x.toml", text)]);
        let adapters = Adapters::with(Some(folder.path())).unwrap();
        let error = adapters.find("x").unwrap_err().to_string();
        error.replace(folder.path().to_str().unwrap(), "FOLDER")
    }

    #[test]
    fn bundled_adapters_are_valid() {
        let adapters = Adapters::default();
        for name in adapters.names() {
            let adapter = adapters.find(name).unwrap();
            assert!(!adapter.about.is_empty() && !adapter.needs.is_empty(), "{name}");
        }
        let sftp = adapters.find("sftp").unwrap();
        assert_eq!(sftp.server, adapters.find("scp").unwrap().server);
        assert!(sftp.client.contains("sftp"), "{}", sftp.client);
    }

    #[test]
    fn folder_adapters_come_first_and_may_inherit() {
        let mine = "like = \"scp\"\nabout = \"mine\"\nclient = \"exec mine\"\n";
        let folder = folder(&[("scp-2.toml", mine), ("sftp.toml", mine), ("README", "")]);
        let adapters = Adapters::with(Some(folder.path())).unwrap();
        assert_eq!(adapters.names()[..3], ["scp-2", "sftp", "scp"]);
        assert_eq!(adapters.find("sftp").unwrap().about, "mine");
        assert_eq!(adapters.find("scp-2").unwrap().port, 2222);
    }

    #[test]
    fn paths_name_adapters_that_may_inherit() {
        let folder = folder(&[("mine.toml", "like = \"scp\"\nclient = \"exec mine\"\n")]);
        let mine = named(folder.path().join("mine.toml").to_str().unwrap()).unwrap();
        assert_eq!((mine.name.as_str(), mine.port), ("mine", 2222));
        assert_eq!(named("scp").unwrap().name, "scp");
        let error = named("/nowhere/x.toml").unwrap_err().to_string();
        assert!(error.contains("/nowhere/x.toml"), "{error}");
    }

    #[test]
    fn errors_name_the_file_and_key() {
        let error = Adapters::default().find("spc").unwrap_err().to_string();
        assert!(error.contains("did you mean \"scp\"?"), "{error}");
        testing::snapshot!("refusals/adapter.txt", refused);
        let missing = Adapters::with(Some(Path::new("/nowhere"))).unwrap_err().to_string();
        assert!(missing.contains("/nowhere"), "{missing}");
    }
}
