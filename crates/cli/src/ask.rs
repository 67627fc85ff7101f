//! `slowlight get`, `ls` and `rm`: what another end has, by CFDP or Saratoga.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, anyhow, ensure};
use transport::protocol::Family;

use crate::operations::{self, Common, Operation};
use crate::scope;
use crate::session::{self, Ends, Wish};
use crate::transfer;

/// Fetch a file
#[derive(Debug, clap::Args)]
pub(crate) struct GetArgs {
    #[command(flatten)]
    common: Common,

    /// The file there, below its root
    file: String,

    /// Name the file shall have here [default: the last part of its own]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Directory here that receives the file
    #[arg(long, value_name = "DIR", default_value = ".")]
    root: PathBuf,

    /// Delete it there once it is here
    #[arg(long, help_heading = scope::SARATOGA)]
    take: bool,
}

/// List a directory of another end
#[derive(Debug, clap::Args)]
pub(crate) struct LsArgs {
    #[command(flatten)]
    common: Common,

    /// Directory below its root
    #[arg(default_value = "")]
    directory: String,
}

/// Delete a file at another end
#[derive(Debug, clap::Args)]
pub(crate) struct RmArgs {
    #[command(flatten)]
    common: Common,

    /// The file there, below its root
    file: String,
}

/// Fetches a file.
pub(crate) fn get(args: GetArgs) -> Result<ExitCode> {
    let last = Path::new(&args.file).file_name().and_then(|name| name.to_str());
    let name = args.name.clone().or(last.map(str::to_owned));
    let name = name.ok_or_else(|| crate::Usage(format!("{:?} has no name", args.file)))?;
    if args.common.options.protocol.kind.family() == Family::Cfdp {
        let (common, file, root) = (args.common, args.file, args.root);
        let (name, to_entity) = (Some(name), None);
        return operations::carry_out(Operation::PutFrom { common, file, name, root, to_entity });
    }
    let wish = Wish::Get { remote: args.file, root: args.root, name, takes: args.take };
    ask(args.common, wish)
}

/// Lists a directory.
pub(crate) fn ls(args: LsArgs) -> Result<ExitCode> {
    let LsArgs { common, directory } = args;
    match common.options.protocol.kind.family() {
        Family::Cfdp => operations::carry_out(Operation::Ls { common, directory }),
        Family::Ltp
        | Family::CfdpLtp
        | Family::Saratoga
        | Family::Norm
        | Family::OverTcp
        | Family::Bundles => ask(common, Wish::List(directory)),
    }
}

/// Deletes a file.
pub(crate) fn rm(args: RmArgs) -> Result<ExitCode> {
    let RmArgs { common, file } = args;
    match common.options.protocol.kind.family() {
        Family::Cfdp => operations::carry_out(Operation::Rm { common, file }),
        Family::Ltp
        | Family::CfdpLtp
        | Family::Saratoga
        | Family::Norm
        | Family::OverTcp
        | Family::Bundles => ask(common, Wish::Delete(file)),
    }
}

/// Asks by Saratoga.
fn ask(common: Common, wish: Wish) -> Result<ExitCode> {
    let ends = ends(&common).map_err(transfer::usage)?;
    session::run(common.options, ends, wish, common.timeout)
}

fn ends(common: &Common) -> Result<Ends> {
    ensure!(
        common.options.protocol.kind.family() == Family::Saratoga,
        anyhow!("{} can only send; ask by --protocol saratoga or cfdp", common.options.protocol)
    );
    let (to, listen): (SocketAddr, SocketAddr) = common.addresses()?;
    Ok(Ends { to, group: None, listen, entity: None, remote_entity: 2, via: None })
}
