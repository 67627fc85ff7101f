//! `slowlight bp send`: sends files as payloads of bundles.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use service::api::NodeClient;
use service::http::ClientError;

use super::options::SendArgs;
use super::{parts, print};
use crate::exit::Exit;
use crate::sockets::screen::Screen;

pub(super) fn run(args: &SendArgs) -> Result<ExitCode> {
    args.check()?;
    let mut client = args.place.connect()?;
    let screen = Screen::new(args.quiet);
    for file in &args.files {
        let line = if file == Path::new("-") {
            hand_in(args, &mut client, io::stdin())?
        } else {
            let in_file = || file.display().to_string();
            let opened = File::open(file).with_context(in_file)?;
            let found = opened.metadata().with_context(in_file)?;
            if found.is_dir() {
                let count = parts::send_folder(args, &mut client, file, &screen);
                let count = count.with_context(in_file)?;
                if !args.quiet {
                    let line = format!("{}: a folder in {count} bundles", file.display());
                    screen.above(|| print(&line))?;
                }
                continue;
            }
            let has_parts = found.len() > args.part.bytes() || args.keep_names;
            if found.is_file() && has_parts {
                let count = parts::send(args, &mut client, file, &screen).with_context(in_file)?;
                format!("{}: {} bytes in {count} bundles", file.display(), found.len())
            } else {
                hand_in(args, &mut client, opened)?
            }
        };
        if !args.quiet {
            screen.above(|| print(&line))?;
        }
    }
    Ok(Exit::Done.into())
}

/// Submits a bundle; returns its identifier.
fn hand_in(
    args: &SendArgs,
    client: &mut NodeClient,
    payload: impl Read + Send + 'static,
) -> Result<String, ClientError> {
    let lifetime = args.lifetime.duration().as_millis().to_string();
    let version = args.bundle_version.to_string();
    let mut query = vec![
        ("to", args.to.as_str()),
        ("lifetime_ms", lifetime.as_str()),
        ("priority", args.priority.as_str()),
        ("version", version.as_str()),
    ];
    if args.custody {
        query.push(("custody", "true"));
    }
    if args.must_not_fragment {
        query.push(("must_not_fragment", "true"));
    }
    let hop_limit = args.hop_limit.map(|limit| limit.to_string());
    let optional = [
        ("from", args.from.as_deref()),
        ("reports", args.reports.as_deref()),
        ("report_to", args.report_to.as_deref()),
        ("hop_limit", hop_limit.as_deref()),
    ];
    query.extend(optional.into_iter().filter_map(|(name, value)| Some((name, value?))));
    Ok(client.send(&query, payload)?.id)
}
