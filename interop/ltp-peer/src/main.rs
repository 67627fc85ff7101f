//! An LTP engine of the crate licklider over UDP, engine 2, with client service 1.
//!
//! `ltp-peer LISTEN PEER send red|green FILE...` sends each file as a block to engine 1. It ends
//! when all are confirmed (red) or sent (green).
//!
//! `ltp-peer LISTEN PEER recv FOLDER` writes blocks to files 0, 1, 2 and so on in the folder until
//! it is stopped. Exit code 1 if a session was cancelled.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;

use licklider_core::{Config, EngineId, Notice, PeerConfig, SessionId, TransmissionRequest};
use licklider_udp::{Driver, DriverConfig, Handle, PeerAddr};
use tokio::sync::mpsc::UnboundedReceiver;

type Failure = Box<dyn std::error::Error>;

/// Client service of bundles.
const BUNDLES: u64 = 1;
const OURS: EngineId = EngineId(1);

fn configured(listen: SocketAddr, peer: SocketAddr) -> DriverConfig {
    let mut engine = Config::new(EngineId(2), u64::from(std::process::id()));
    engine.max_block_size = 1 << 28;
    DriverConfig {
        bind: listen,
        engine,
        peers: vec![PeerAddr { peer: PeerConfig::new(OURS), addr: peer }],
        client_services: vec![BUNDLES],
        impairment: None,
    }
}

async fn send(
    handle: &Handle,
    notices: &mut UnboundedReceiver<Notice>,
    is_red: bool,
    paths: &[String],
) -> Result<(), Failure> {
    for path in paths {
        let data = std::fs::read(path)?;
        let red_len = if is_red { data.len() as u64 } else { 0 };
        let request = TransmissionRequest {
            destination: OURS,
            client_service: BUNDLES,
            data: data.into(),
            red_len,
        };
        handle.request_transmission(request).await?;
    }
    let mut left = paths.len();
    while left > 0 {
        match notices.recv().await.ok_or("the engine has ended")? {
            Notice::TransmissionSessionCompleted { .. } if is_red => left -= 1,
            Notice::InitialTransmissionCompleted { .. } if !is_red => left -= 1,
            Notice::TransmissionSessionCancelled { reason, .. } => {
                return Err(format!("the session was cancelled: {reason}").into());
            }
            _ => {}
        }
    }
    Ok(())
}

async fn receive(notices: &mut UnboundedReceiver<Notice>, folder: &Path) -> Result<(), Failure> {
    let mut green: BTreeMap<SessionId, Vec<u8>> = BTreeMap::new();
    let mut done = 0;
    loop {
        let block = match notices.recv().await.ok_or("the engine has ended")? {
            Notice::RedPartReceived { data, eob: true, .. } => data,
            Notice::GreenSegmentArrived { session, offset, data, eob, .. } => {
                let block = green.entry(session).or_default();
                if block.len() as u64 != offset {
                    return Err("green segments are missing, or out of order".into());
                }
                block.extend(data);
                if !eob {
                    continue;
                }
                green.remove(&session).unwrap_or_default()
            }
            Notice::ReceptionSessionCancelled { reason, .. } => {
                return Err(format!("the session was cancelled: {reason}").into());
            }
            _ => continue,
        };
        let part = folder.join("part");
        std::fs::write(&part, block)?;
        std::fs::rename(part, folder.join(done.to_string()))?;
        done += 1;
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let usage = "usage: ltp-peer LISTEN PEER send red|green FILE… | recv FOLDER";
    let [listen, peer, rest @ ..] = &given[..] else {
        return Err(usage.into());
    };
    let (handle, driver) = Driver::bind(configured(listen.parse()?, peer.parse()?)).await?;
    let mut notices = handle.take_notices().ok_or("no notices")?;
    let running = tokio::spawn(driver.run());
    match rest {
        [what, color, paths @ ..] if what == "send" => {
            send(&handle, &mut notices, color == "red", paths).await?;
        }
        [what, folder] if what == "recv" => receive(&mut notices, Path::new(folder)).await?,
        _ => return Err(usage.into()),
    }
    drop(handle);
    running.await??;
    Ok(())
}
