//! A CFDP entity at a bundle node: an application whose PDUs are payloads of bundles.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use bp::codec::bp7::Eid;
use service::api::model;
use service::api::{ApplicationDriver, DriverConfig, NodeClient};
use transport::CfdpOverService;
use transport::adapter::bundles::config::{CfdpUser, CfdpUserSettings};
use transport::quantity::Span;
use ut::{OverService, Receives};

use crate::sockets::scope;
use crate::sockets::transfer::Options;

/// Default lifetime of bundles: a day.
const LIFETIME: Duration = Duration::from_secs(86_400);

/// Options of an entity at a node.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = scope::CFDP_IN_BUNDLES)]
pub(crate) struct NodeOptions {
    /// Socket of the local bundle node
    ///
    /// PDUs are payloads of its bundles; the entity has the node's number.
    #[arg(long, value_name = "SOCKET")]
    pub(crate) node: Option<PathBuf>,

    /// Lifetime of the bundles [default: 1 d]
    #[arg(long, value_name = "DURATION", requires = "node")]
    lifetime: Option<Span>,
}

/// A node that runs, and the entity that it gets.
#[derive(Debug)]
pub(crate) struct Node {
    /// The number of both.
    pub(crate) entity: u64,
    user: CfdpUser,
    socket: PathBuf,
    lifetime: Duration,
}

impl NodeOptions {
    /// Connects to the node, if one is given.
    ///
    /// # Errors
    /// An option does not go with it, or the node does not reply.
    pub(crate) fn open(&self, options: &Options, entity: Option<u64>) -> Result<Option<Node>> {
        let Some(socket) = &self.node else { return Ok(None) };
        let protocol = options.full_protocol()?;
        ensure!(
            protocol.profile.is_none(),
            "--node is for CFDP without a profile, not for {protocol}"
        );
        for (is_given, option) in [
            (options.rate.is_some(), "--rate"),
            (options.return_rate.is_some(), "--return-rate"),
            (options.delay.is_some(), "--delay"),
            (options.datagram.is_some(), "--datagram"),
        ] {
            ensure!(
                !is_given,
                "{option} is for datagrams; the layers of the node at --node have theirs"
            );
        }
        if let Some(option) = options.contacts.given() {
            bail!("{option} does not go with --node; the node's contact plan and --lifetime hold");
        }
        let mut client = NodeClient::connect(socket).map_err(|error| {
            anyhow!("{error}; is the node running? `slowlight node CONFIG.toml` starts it")
        })?;
        let node: model::Node = client.get("/node", &[])?;
        let number = match node.id.parse() {
            Ok(Eid::Ipn { node, .. }) => node,
            Ok(_) | Err(_) => bail!(
                "the node at --node is {}; entities have the number of their node, so it has to be one like ipn:1.0",
                node.id
            ),
        };
        let given = entity.unwrap_or(number);
        ensure!(
            given == number,
            "--entity is {given}, and the node at --node is {}; an entity has the number of its node",
            node.id
        );
        let mut user = CfdpUser::default();
        user.cfdp.sequence_width = cfdp::pdu::Width::FOUR;
        if let Some(path) = &options.mib {
            CfdpUserSettings::apply_file(path, &mut user)?;
        }
        user.cfdp.entity = number;
        let lifetime = self.lifetime.map_or(LIFETIME, Span::duration);
        ensure!(!lifetime.is_zero(), "--lifetime is 0: bundles would expire at once");
        // Different paths of one socket mean the same node.
        let socket = socket.canonicalize().with_context(|| socket.display().to_string())?;
        Ok(Some(Node { entity: number, user, socket, lifetime }))
    }
}

impl Node {
    /// Socket of the node.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Configuration of the entity.
    pub(crate) fn cfdp(&mut self) -> &mut cfdp::Config {
        &mut self.user.cfdp
    }

    /// Sets the number of entities it receives from, in addition to those of the settings.
    pub(crate) fn set_strangers(&mut self, most: usize) {
        self.user.ut.limits.strangers = most;
    }

    /// The driver of an entity with a store.
    pub(crate) fn run_with(
        self,
        store: rt::FileStore,
        waker: rt::Waker,
        tick: Duration,
        receives: Receives,
    ) -> Result<ApplicationDriver<CfdpOverService>> {
        let Self { entity: _, user: CfdpUser { cfdp, ut, service }, socket, lifetime } = self;
        let rng = rt::entropy().context("no entropy")?;
        let below = ut::BundlesConfig { service, lifetime, receives, ..Default::default() };
        let entity = CfdpOverService::new(OverService::over_service(cfdp, ut, below, rng));
        let config = DriverConfig { socket, share: None, persists: true, tick };
        ApplicationDriver::start(entity, config, store, waker).context("cannot start")
    }
}
