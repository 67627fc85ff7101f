//! `slowlight get`, `ls` and `rm`: files and directories of a peer, by CFDP or Saratoga.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, ensure};
use transport::contract::Feature;

use crate::sockets::directories::FetchOptions;
use crate::sockets::operations::{self, Common, LsArgs, Operation, PutFromArgs, RmArgs};
use crate::sockets::session::{self, Ends, Job, Wish};
use crate::sockets::transfer;

/// Fetch a file from a peer by CFDP or Saratoga
#[derive(Debug, clap::Args)]
pub(crate) struct GetArgs {
    #[command(flatten)]
    common: Common,

    /// File at the peer, below its root
    file: String,

    /// Local name [default: last part of FILE]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Local folder for the file
    #[arg(long, value_name = "DIR", default_value = ".")]
    root: PathBuf,

    #[command(flatten)]
    directories: FetchOptions,
}

/// Fetches a file.
pub(crate) fn get(args: GetArgs) -> Result<ExitCode> {
    let GetArgs { common, file, name, root, directories } = args;
    common.check_order("get", &file)?;
    let last = Path::new(&file).file_name().and_then(|name| name.to_str());
    let name = name.or(last.map(str::to_owned));
    let name = name.ok_or_else(|| crate::Usage(format!("{file:?} has no name")))?;
    if common.protocol.kind.is_entity() {
        let (name, to_entity) = (Some(name), None);
        let args = PutFromArgs { common, file, name, root, to_entity };
        return operations::carry_out(Operation::PutFrom(args));
    }
    request(&common, Wish::Get { remote: file, root, name, takes: directories.take })
}

/// Lists a directory.
pub(crate) fn ls(args: LsArgs) -> Result<ExitCode> {
    args.common.check_order("ls", &args.directory)?;
    if args.common.protocol.kind.is_entity() {
        return operations::carry_out(Operation::Ls(args));
    }
    request(&args.common, Wish::List(args.directory))
}

/// Deletes a file.
pub(crate) fn rm(args: RmArgs) -> Result<ExitCode> {
    args.common.check_order("rm", &args.file)?;
    if args.common.protocol.kind.is_entity() {
        return operations::carry_out(Operation::Rm(args));
    }
    request(&args.common, Wish::Delete(args.file))
}

/// Sends a request to a peer that serves its directory.
fn request(common: &Common, wish: Wish) -> Result<ExitCode> {
    let ends = ends(common).map_err(transfer::usage)?;
    let (options, timeout) = (common.options(), common.timeout);
    session::run(Job { options, ends, wish, timeout, node: None })
}

fn ends(common: &Common) -> Result<Ends> {
    let protocol = &common.protocol;
    ensure!(
        protocol.kind.has(Feature::Directories),
        "{protocol} cannot fetch, list or delete; use --protocol saratoga or cfdp"
    );
    let (to, listen) = common.addresses()?;
    Ok(Ends { to, group: None, listen, entity: None, remote_entity: 2, via: None })
}
