//! A node of Hardy (hardy-bpa) with TCPCL 4 (hardy-tcpclv4) and one application.
//!
//! `hardy-node LISTEN PEER TLS send TO FILE` sends the file as one bundle, and ends when its
//! standard input ends. `hardy-node LISTEN PEER TLS recv FILE` writes the first payload for
//! `dtn://theirs/in` to the file, and ends.
//!
//! LISTEN and PEER are addresses, or `-`; a node with a PEER connects to it. TLS is a folder with
//! `theirs.pem`, `theirs.key` and a folder `trusted` of authorities, or `-`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hardy_bpa::bpa::{Bpa, BpaRegistration};
use hardy_bpa::node_ids::NodeIds;
use hardy_bpa::services::{self, Application, ApplicationSink, StatusNotify};
use hardy_bpa::{Bytes, async_trait};
use hardy_bpv7::bundle::Id;
use hardy_bpv7::eid::{Eid, NodeId, Service};
use hardy_bpv7::status_report::ReasonCode;
use hardy_tcpclv4::Cla;
use hardy_tcpclv4::config::{Config, TlsConfig};
use tokio::io::AsyncReadExt;
use tokio::sync::mpsc;

type Failure = Box<dyn std::error::Error + Send + Sync>;

const NODE: &str = "dtn://theirs/";

/// The application: passes payloads on.
struct Passing {
    sink: OnceLock<Box<dyn ApplicationSink>>,
    received: mpsc::UnboundedSender<Bytes>,
}

#[async_trait]
impl Application for Passing {
    async fn on_register(&self, _source: &Eid, sink: Box<dyn ApplicationSink>) {
        let _ = self.sink.set(sink);
    }

    async fn on_unregister(&self) {}

    async fn on_receive(
        &self,
        _source: Eid,
        _expiry: time::OffsetDateTime,
        _ack_requested: bool,
        payload: Bytes,
    ) -> services::Result<()> {
        self.received.send(payload).map_err(|error| services::Error::Internal(error.into()))
    }

    async fn on_status_notify(
        &self,
        _bundle_id: &Id,
        _from: &Eid,
        _kind: StatusNotify,
        _reason: ReasonCode,
        _timestamp: Option<time::OffsetDateTime>,
    ) {
    }
}

enum Task {
    Send { to: Eid, path: PathBuf },
    Receive { path: PathBuf },
}

fn address(text: &str) -> Result<Option<SocketAddr>, Failure> {
    match text {
        "-" => Ok(None),
        text => Ok(Some(text.parse()?)),
    }
}

fn task(given: &[String]) -> Result<Task, Failure> {
    let words: Vec<&str> = given.iter().map(String::as_str).collect();
    match words[..] {
        ["send", to, path] => Ok(Task::Send { to: to.parse()?, path: path.into() }),
        ["recv", path] => Ok(Task::Receive { path: path.into() }),
        _ => Err("usage: hardy-node LISTEN|- PEER|- TLS|- send TO FILE | recv FILE".into()),
    }
}

/// Hardy has no certificate as a client, and compares the server's with a DNS name.
fn secured(folder: &Path) -> TlsConfig {
    TlsConfig {
        cert_file: Some(folder.join("theirs.pem")),
        private_key_file: Some(folder.join("theirs.key")),
        ca_certs: Some(folder.join("trusted")),
        server_name: Some("ours.test".to_owned()),
        ..TlsConfig::default()
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let [listen, peer, tls, rest @ ..] = &given[..] else {
        return task(&[]).map(|_| ());
    };
    let (listen, peer, task) = (address(listen)?, address(peer)?, task(rest)?);
    let tls = (tls != "-").then(|| secured(Path::new(tls)));
    let id: NodeId = NODE.parse()?;
    let ids = NodeIds::try_from(&[id][..])?;
    let bpa = Bpa::builder().node_ids(ids).build().await?;
    bpa.start(false);
    let (sender, mut received) = mpsc::unbounded_channel();
    let passing = Arc::new(Passing { sink: OnceLock::new(), received: sender });
    bpa.register_application(Service::Dtn("in".into()), passing.clone()).await?;
    let mut config = Config { address: listen, tls, ..Config::default() };
    config.session_defaults.require_tls = config.tls.is_some();
    let cla = Arc::new(Cla::new(&config)?);
    bpa.register_cla("tcpcl".to_owned(), cla.clone(), None).await?;
    if let Some(peer) = peer {
        cla.connect(&peer).await?;
    }
    match task {
        Task::Receive { path } => {
            let payload = received.recv().await.ok_or("the application has ended")?;
            let part = path.with_extension("part");
            std::fs::write(&part, &payload)?;
            std::fs::rename(part, path)?;
        }
        Task::Send { to, path } => {
            let payload = Bytes::from(std::fs::read(path)?);
            let sink = passing.sink.get().ok_or("the application is not registered")?;
            sink.send(to, payload, Duration::from_secs(3600), None).await?;
            let mut rest = Vec::new();
            tokio::io::stdin().read_to_end(&mut rest).await?;
        }
    }
    bpa.shutdown().await;
    Ok(())
}
