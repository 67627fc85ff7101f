//! A CFDP entity over UDP, built on the crate cfdp-rs: sends or receives one file, then ends.
//!
//! ```text
//! cfdp-rs-peer send|recv BIND PEER ENTITY REMOTE CLASS DATAGRAM RATE TIMEOUT PATH NAME
//! ```
//!
//! `PATH` is the file to send or the directory to receive into, `NAME` the file's name there,
//! `RATE` the sender's rate in bit/s (0 = unlimited), `TIMEOUT` in seconds. Exit code 0: the
//! entity reports that the transfer is complete; 1: it is not; 127: not supported.

use std::cell::Cell;
use std::error::Error;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::atomic::AtomicU16;
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use cfdp::dest::DestinationHandler;
use cfdp::filestore::NativeFilestore;
use cfdp::lost_segments::LostSegmentsList;
use cfdp::request::PutRequestOwned;
use cfdp::source::SourceHandler;
use cfdp::user::{
    CfdpUser, FileSegmentRecvdParams, MetadataReceivedParams, TransactionFinishedParams,
};
use cfdp::{
    DummyFaultHook, GenericSendError, IndicationConfig, LocalEntityConfig, PduOwnedWithInfo,
    PduSender, RemoteEntityConfig, State, StdTimerCreator, TransactionId,
};
use spacepackets::cfdp::pdu::FileDirectiveType;
use spacepackets::cfdp::pdu::finished::DeliveryCode;
use spacepackets::cfdp::{ChecksumType, ConditionCode, PduType, TransmissionMode};
use spacepackets::util::UnsignedByteFieldU16;

const UNSUPPORTED: u8 = 127;
/// Bytes of the socket's receive buffer; the kernel may give less.
const BUFFER: usize = 4 << 20;
/// Time that an idle entity waits for a datagram.
const WAIT: Duration = Duration::from_millis(1);

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    match run(&args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("cfdp-rs-peer: {error}");
            ExitCode::from(UNSUPPORTED)
        }
    }
}

struct Settings {
    socket: Rc<UdpSocket>,
    entity: UnsignedByteFieldU16,
    remote: RemoteEntityConfig,
    mode: TransmissionMode,
    rate_bps: u64,
    timeout: Duration,
    path: String,
    name: String,
}

fn run(args: &[String]) -> Result<bool, Box<dyn Error>> {
    let [role, bind, peer, entity, remote, class, datagram, rate, timeout, path, name] = args
    else {
        return Err("eleven arguments, see the source".into());
    };
    let socket = UdpSocket::bind(bind)?;
    socket2::SockRef::from(&socket).set_recv_buffer_size(BUFFER)?;
    socket.connect(peer)?;
    let mode = match class.as_str() {
        "1" => TransmissionMode::Unacknowledged,
        "2" => TransmissionMode::Acknowledged,
        _ => return Err("CLASS is 1 or 2".into()),
    };
    let remote = UnsignedByteFieldU16::new(remote.parse()?);
    let mut remote = RemoteEntityConfig::new_with_default_values(
        remote.into(),
        datagram.parse()?,
        false,
        false,
        mode,
        ChecksumType::Crc32,
    );
    // On loopback a second is long. The limits allow for many lost acknowledgments.
    remote.positive_ack_timer_interval = Duration::from_secs(1);
    remote.positive_ack_timer_expiration_limit = 10;
    remote.nak_timer_interval = Duration::from_secs(1);
    remote.nak_timer_expiration_limit = 20;
    let settings = Settings {
        socket: Rc::new(socket),
        entity: UnsignedByteFieldU16::new(entity.parse()?),
        remote,
        mode,
        rate_bps: rate.parse()?,
        timeout: Duration::from_secs_f64(timeout.parse()?),
        path: path.clone(),
        name: name.clone(),
    };
    match role.as_str() {
        "send" => send(settings),
        "recv" => recv(settings),
        _ => Err("the first argument is send or recv".into()),
    }
}

fn send(settings: Settings) -> Result<bool, Box<dyn Error>> {
    let Settings { socket, entity, remote, mode, rate_bps, timeout, path, name } = settings;
    let request = PutRequestOwned::new_regular_request(
        remote.entity_id,
        &path,
        &name,
        Some(mode),
        Some(false),
    )
    .map_err(|_| "a path is longer than 255 bytes")?;
    let (wire, mut user) = (Wire::new(&socket), User::default());
    let pace = Pace::new(rate_bps, Rc::clone(&wire.bytes));
    let mut handler = SourceHandler::new(
        LocalEntityConfig::new(entity.into(), quiet(), DummyFaultHook::default()),
        wire,
        NativeFilestore::default(),
        remote,
        StdTimerCreator::default(),
        AtomicU16::default(),
    );
    handler.put_request(&request).map_err(|error| format!("put request: {error}"))?;
    let start = Instant::now();
    let end = start + timeout;
    let mut buffer = vec![0; 65_536];
    let mut sent = 1;
    while user.finished.is_none() && Instant::now() < end {
        let pdu = receive(&socket, &mut buffer, sent == 0)?;
        sent = match handler.state_machine(&mut user, pdu.as_ref()) {
            Ok(sent) => sent,
            Err(error) => {
                eprintln!("cfdp-rs-peer: source: {error}");
                0
            }
        };
        pace.wait();
    }
    println!("{{\"elapsed_s\":{}}}", start.elapsed().as_secs_f64());
    Ok(user.finished == Some(true))
}

fn recv(settings: Settings) -> Result<bool, Box<dyn Error>> {
    let Settings { socket, entity, remote, timeout, path, .. } = settings;
    fs::create_dir_all(&path)?;
    // The crate writes to the path in the metadata, below the working directory.
    env::set_current_dir(&path)?;
    let mut user = User::default();
    let mut handler = DestinationHandler::new(
        LocalEntityConfig::new(entity.into(), quiet(), DummyFaultHook::default()),
        Wire::new(&socket),
        NativeFilestore::default(),
        remote,
        StdTimerCreator::default(),
        LostSegmentsList::default(),
    );
    println!("ready");
    let start = Instant::now();
    let end = start + timeout;
    let mut buffer = vec![0; 65_536];
    let mut sent = 0;
    // In class 2 the entity is idle again when its Finished PDU is acknowledged.
    while (user.finished.is_none() || handler.state() != State::Idle) && Instant::now() < end {
        let pdu = receive(&socket, &mut buffer, sent == 0)?;
        sent = match handler.state_machine(&mut user, pdu.as_ref()) {
            Ok(sent) => sent,
            Err(error) => {
                eprintln!("cfdp-rs-peer: destination: {error}");
                0
            }
        };
    }
    println!("{{\"elapsed_s\":{}}}", start.elapsed().as_secs_f64());
    Ok(user.finished == Some(true))
}

/// Returns the next PDU; waits for it briefly if `wait` is set.
fn receive(
    socket: &UdpSocket,
    buffer: &mut [u8],
    wait: bool,
) -> Result<Option<PduOwnedWithInfo>, Box<dyn Error>> {
    if wait {
        socket.set_nonblocking(false)?;
        socket.set_read_timeout(Some(WAIT))?;
    } else {
        socket.set_nonblocking(true)?;
    }
    match socket.recv(buffer) {
        Ok(len) => match PduOwnedWithInfo::new_from_raw_packet(&buffer[..len]) {
            Ok(pdu) => Ok(Some(pdu)),
            Err(error) => {
                eprintln!("cfdp-rs-peer: {error}");
                Ok(None)
            }
        },
        Err(error) => match error.kind() {
            // Refused: the peer has not started yet, or has ended.
            ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::ConnectionRefused => Ok(None),
            _ => Err(error.into()),
        },
    }
}

fn quiet() -> IndicationConfig {
    IndicationConfig { file_segment_recv: false, ..IndicationConfig::default() }
}

/// Sends PDUs as datagrams and counts their bytes.
struct Wire {
    socket: Rc<UdpSocket>,
    bytes: Rc<Cell<u64>>,
}

impl Wire {
    fn new(socket: &Rc<UdpSocket>) -> Self {
        Self { socket: Rc::clone(socket), bytes: Rc::default() }
    }
}

impl PduSender for Wire {
    fn send_pdu(
        &self,
        _pdu_type: PduType,
        _directive: Option<FileDirectiveType>,
        raw_pdu: &[u8],
    ) -> Result<(), GenericSendError> {
        self.bytes.set(self.bytes.get() + raw_pdu.len() as u64);
        // Refused: as above. The PDU counts as lost.
        let _ = self.socket.send(raw_pdu);
        Ok(())
    }
}

/// Paces the sender; the crate itself does not.
struct Pace {
    rate_bps: u64,
    start: Instant,
    bytes: Rc<Cell<u64>>,
}

impl Pace {
    fn new(rate_bps: u64, bytes: Rc<Cell<u64>>) -> Self {
        Self { rate_bps, start: Instant::now(), bytes }
    }

    fn wait(&self) {
        if self.rate_bps == 0 {
            return;
        }
        let due = Duration::from_secs_f64(self.bytes.get() as f64 * 8.0 / self.rate_bps as f64);
        let ahead = due.saturating_sub(self.start.elapsed());
        // Sleeping costs about 60 µs, so short waits are accumulated.
        if ahead > Duration::from_micros(500) {
            thread::sleep(ahead);
        }
    }
}

/// Records the end of the transfer.
#[derive(Default)]
struct User {
    finished: Option<bool>,
}

impl CfdpUser for User {
    fn transaction_finished_indication(&mut self, params: &TransactionFinishedParams) {
        let complete = params.condition_code == ConditionCode::NoError
            && params.delivery_code == DeliveryCode::Complete;
        eprintln!("cfdp-rs-peer: {params:?}");
        self.finished = Some(complete);
    }

    fn abandoned_indication(&mut self, _id: &TransactionId, code: ConditionCode, _progress: u64) {
        eprintln!("cfdp-rs-peer: abandoned: {code:?}");
        self.finished = Some(false);
    }

    fn transaction_indication(&mut self, _id: &TransactionId) {}
    fn eof_sent_indication(&mut self, _id: &TransactionId) {}
    fn metadata_recvd_indication(&mut self, _params: &MetadataReceivedParams) {}
    fn file_segment_recvd_indication(&mut self, _params: &FileSegmentRecvdParams) {}
    fn report_indication(&mut self, _id: &TransactionId) {}
    fn suspended_indication(&mut self, _id: &TransactionId, _code: ConditionCode) {}
    fn resumed_indication(&mut self, _id: &TransactionId, _progress: u64) {}
    fn fault_indication(&mut self, _id: &TransactionId, _code: ConditionCode, _progress: u64) {}
    fn eof_recvd_indication(&mut self, _id: &TransactionId) {}
}
