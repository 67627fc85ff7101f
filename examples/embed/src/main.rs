//! Sends a file by CFDP, or receives one: an engine of slowlight in an event loop of its own.
//!
//! embed 127.0.0.1:7001                              receives a file into the current folder
//! embed 127.0.0.1:0 127.0.0.1:7001 picture.raw      sends one

use std::error::Error;
use std::io::Write as _;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{env, fs, io};

use slowlight_cfdp::engine::{
    Engine as _, FileName, Input, MemoryStore, PathEvent, PathId, PathInfo, Receive, Rng, Time,
    drain,
};
use slowlight_cfdp::pdu::ConditionCode;
use slowlight_cfdp::{Config, Entity, Indication, PutRequest, TransactionFinished};

/// Time to answer the peer after the end: a few round trips.
const LINGER: Duration = Duration::from_millis(500);

/// The engine knows peers by the numbers of their paths. This program has one peer.
const PEER: PathId = PathId(1);

/// A CFDP entity with what it needs: files, a socket, and the address of its peer.
struct Program {
    entity: Entity,
    files: MemoryStore,
    socket: UdpSocket,
    peer: Option<SocketAddr>,
}

impl Program {
    /// Reports that the peer can be reached, with datagrams of at most 1,400 bytes.
    fn meet(&mut self, now: Time, peer: SocketAddr) {
        self.peer = Some(peer);
        let up = PathEvent::Up(PathInfo::datagram(1_400));
        self.entity.handle_input(now, Input::Path(PEER, up));
    }

    /// Executes effects and sends datagrams until none is left; returns the end of a transaction.
    fn drive(&mut self, now: Time) -> io::Result<Option<TransactionFinished>> {
        let drained = drain(now, &mut self.entity, &mut self.files);
        for (datagram, peer) in drained.datagrams.iter().zip(self.peer.iter().cycle()) {
            self.socket.send_to(&datagram.bytes, peer)?;
        }
        Ok(drained.indications.into_iter().find_map(|indication| match indication {
            Indication::TransactionFinished(finished) => Some(finished),
            _ => None,
        }))
    }

    /// Writes a received file to the current folder, unless there is one of this name.
    fn save(&self, finished: &TransactionFinished) -> io::Result<()> {
        let name = FileName::file(&finished.destination_name).map_err(io::Error::other)?;
        let place = Path::new(name.path()).file_name().unwrap_or_default();
        let mut file = fs::File::create_new(place)?;
        file.write_all(self.files.get(&name).unwrap_or_default())
    }

    /// Waits for a datagram, at most until the entity's next deadline.
    fn wait(&mut self, now: Time, start: Instant) -> io::Result<()> {
        let deadline = self.entity.poll_timeout().map(|deadline| deadline.at.since(now));
        let wait = deadline
            .unwrap_or(Duration::MAX)
            .clamp(Duration::from_millis(1), Duration::from_secs(1));
        self.socket.set_read_timeout(Some(wait))?;
        let mut buffer = [0; 65_536];
        let Ok((len, from)) = self.socket.recv_from(&mut buffer) else { return Ok(()) };
        let now = Time::ZERO + start.elapsed();
        if self.peer.is_none() {
            self.meet(now, from);
        }
        if self.peer == Some(from) {
            self.entity.handle_input(now, Input::Receive(Receive::datagram(PEER, &buffer[..len])));
        }
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let [local, rest @ ..] = arguments.as_slice() else {
        return Err("embed ADDRESS [PEER FILE]".into());
    };
    let (start, seed) =
        (Instant::now(), SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos() as u64);
    let config = Config { entity: if rest.is_empty() { 2 } else { 1 }, ..Config::default() };
    let entity = Entity::new(config, Rng::new(seed, "embed"));
    let socket = UdpSocket::bind(local)?;
    println!("{}", socket.local_addr()?);
    let mut program = Program { entity, files: MemoryStore::new(), socket, peer: None };
    if let [peer, file] = rest {
        let name =
            Path::new(file).file_name().and_then(|name| name.to_str()).ok_or("no file name")?;
        let source = FileName::file(name)?;
        program.files.insert(source.clone(), fs::read(file)?);
        program.meet(Time::ZERO, peer.parse()?);
        // The entity reads the records of an earlier run before it accepts requests.
        program.drive(Time::ZERO)?;
        let destination_name = name.to_owned();
        let request = PutRequest {
            destination: 2,
            source: Some(source),
            destination_name,
            ..PutRequest::default()
        };
        program.entity.put(Time::ZERO, request)?;
    }
    // The peer may still need an acknowledgment after the end.
    let mut until = None;
    while until.is_none_or(|until| start.elapsed() < until) {
        let now = Time::ZERO + start.elapsed();
        program.entity.handle_timeout(now);
        if let Some(finished) = program.drive(now)? {
            println!("{finished:?}");
            if finished.condition != ConditionCode::NoError {
                return Err(finished.condition.to_string().into());
            }
            if rest.is_empty() {
                program.save(&finished)?;
            }
            until = Some(start.elapsed() + LINGER);
        }
        program.wait(now, start)?;
    }
    Ok(())
}
