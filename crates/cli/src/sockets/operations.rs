//! `slowlight cfdp`: requests to a CFDP entity (CCSDS 727.0-B-5 §6).
//!
//! Each command runs as an entity: it sends the request, receives the response, and stays until
//! the peer has received its acknowledgment.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use cfdp::pdu::{
    ConditionCode, DeliveryCode, EntityId, FilestoreAction, TransactionId, TransactionStatus,
    TransmissionMode,
};
use cfdp::{
    Entity, FilestoreRequest, Indication, OperationIndication, ProxyPutRequest, PutRequest,
    RequestError, Role, TransactionFinished,
};
use engine::{FileName, PathId, Time};
use serde_json::{Value, json};
use transport::protocol::Protocol;
use transport::quantity::Span;
use transport::{Event, Transport};

use crate::sockets::contacts;
use crate::sockets::screen::Screen;
use crate::sockets::session::{self, Driver};
use crate::sockets::transfer::{self, Options, resolve_peer};
use crate::stop::stop_flag;

/// Send a request to a CFDP entity
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    operation: Operation,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Operation {
    /// List a directory of the entity at ADDR
    Ls(LsArgs),
    /// Delete a file of the entity at ADDR
    Rm(RmArgs),
    /// Request the status of a transaction from the entity at ADDR
    Status(TransactionArgs),
    /// Have the entity at ADDR suspend a transaction
    Suspend(TransactionArgs),
    /// Have the entity at ADDR resume a transaction
    Resume(TransactionArgs),
    /// Have the entity at ADDR send a file, here or to a third entity
    PutFrom(PutFromArgs),
}

/// Options of `ls`.
#[derive(Debug, clap::Args)]
pub(crate) struct LsArgs {
    #[command(flatten)]
    pub(crate) common: Common,

    /// Directory below the peer's root
    #[arg(default_value = "")]
    pub(crate) directory: String,
}

/// Options of `rm`.
#[derive(Debug, clap::Args)]
pub(crate) struct RmArgs {
    #[command(flatten)]
    pub(crate) common: Common,

    /// File at the peer, below its root
    pub(crate) file: String,
}

/// Options of operations on a transaction.
#[derive(Debug, clap::Args)]
pub(crate) struct TransactionArgs {
    #[command(flatten)]
    common: Common,

    /// Transaction: source entity and sequence number, e.g. 1_4711
    transaction: Id,
}

/// Options of `cfdp put-from`.
#[derive(Debug, clap::Args)]
pub(crate) struct PutFromArgs {
    #[command(flatten)]
    pub(crate) common: Common,

    /// File at the peer, below its root
    pub(crate) file: String,

    /// Name of the file at its destination [default: the same]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,

    /// Local folder for the file
    #[arg(long, value_name = "DIR", default_value = ".", conflicts_with = "to_entity")]
    pub(crate) root: PathBuf,

    /// Destination entity [default: this end]; the entity at ADDR needs a route to it
    #[arg(long, value_name = "ID")]
    pub(crate) to_entity: Option<u64>,
}

/// Options of all operations.
#[derive(Debug, clap::Args)]
pub(crate) struct Common {
    /// Peer's address, e.g. 192.0.2.1:7542 or host:7542
    #[arg(value_name = "ADDR")]
    address: String,

    /// Protocol, with or without a profile, e.g. cfdp-ltp
    #[arg(long, default_value = "cfdp", value_name = "NAME", value_parser = crate::known::socket_protocol(), hide_possible_values = true)]
    pub(crate) protocol: Protocol,

    #[command(flatten)]
    options: Options,

    /// Local address [default: any]
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,

    /// Entity number of this end [default: the MIB's, or 1]
    #[arg(long, value_name = "ID")]
    entity: Option<u64>,

    /// Entity number of the peer
    #[arg(long, value_name = "ID", default_value_t = 2)]
    remote_entity: u64,

    /// Give up after this time
    #[arg(long, value_name = "DURATION")]
    pub(crate) timeout: Option<Span>,
}

impl Common {
    /// Options with the protocol.
    pub(crate) fn options(&self) -> Options {
        Options { protocol: self.protocol.clone(), ..self.options.clone() }
    }

    /// Error if the address and the name of a command are swapped.
    pub(crate) fn check_order(&self, command: &str, name: &str) -> Result<()> {
        transfer::check_order(command, &self.address, name).map_err(transfer::usage)
    }

    /// Addresses of the peer and of this end.
    pub(crate) fn addresses(&self) -> Result<(SocketAddr, SocketAddr)> {
        let to = resolve_peer(&self.address)?;
        Ok((to, transfer::from_address(self.listen.as_deref(), to)?))
    }
}

/// A transaction as people write it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Id(TransactionId);

impl FromStr for Id {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text
            .split_once('_')
            .and_then(|(source, sequence)| Some((source.parse().ok()?, sequence.parse().ok()?)));
        let (source, sequence) = parsed.ok_or_else(|| {
            format!("invalid transaction {text:?}: expected SOURCE_SEQUENCE, such as 1_4711")
        })?;
        Ok(Self(TransactionId { source: EntityId(source), sequence }))
    }
}

impl Operation {
    fn name(&self) -> &'static str {
        match self {
            Self::Ls(_) => "ls",
            Self::Rm(_) => "rm",
            Self::Status(_) => "status",
            Self::Suspend(_) => "suspend",
            Self::Resume(_) => "resume",
            Self::PutFrom(_) => "put-from",
        }
    }

    /// File or directory at the peer, if the operation has one.
    fn file(&self) -> &str {
        match self {
            Self::Ls(LsArgs { directory: file, .. })
            | Self::Rm(RmArgs { file, .. })
            | Self::PutFrom(PutFromArgs { file, .. }) => file,
            Self::Status(_) | Self::Suspend(_) | Self::Resume(_) => "",
        }
    }

    fn common(&self) -> &Common {
        match self {
            Self::Ls(LsArgs { common, .. })
            | Self::Rm(RmArgs { common, .. })
            | Self::Status(TransactionArgs { common, .. })
            | Self::Suspend(TransactionArgs { common, .. })
            | Self::Resume(TransactionArgs { common, .. })
            | Self::PutFrom(PutFromArgs { common, .. }) => common,
        }
    }

    /// Folder of the response: `place`, unless it is a file to keep.
    fn root<'a>(&'a self, place: &'a Path) -> &'a Path {
        match self {
            Self::PutFrom(PutFromArgs { root, to_entity: None, .. }) => root,
            Self::PutFrom(_)
            | Self::Ls(_)
            | Self::Rm(_)
            | Self::Status(_)
            | Self::Suspend(_)
            | Self::Resume(_) => place,
        }
    }

    /// Sends the request.
    fn request(&self, now: Time, entity: &mut Entity) -> Result<TransactionId, RequestError> {
        let remote = self.common().remote_entity;
        match self {
            Self::Ls(args) => entity.list_directory(now, remote, &args.directory, ANSWER),
            Self::Rm(args) => {
                let request = FilestoreRequest {
                    action: FilestoreAction::DeleteFile,
                    first: args.file.clone(),
                    second: String::new(),
                };
                let put = PutRequest {
                    destination: remote,
                    mode: Some(TransmissionMode::Acknowledged),
                    filestore_requests: vec![request],
                    ..PutRequest::default()
                };
                entity.put(now, put)
            }
            Self::Status(args) => {
                entity.remote_status_report(now, remote, args.transaction.0, ANSWER)
            }
            Self::Suspend(args) => entity.remote_suspend(now, remote, args.transaction.0),
            Self::Resume(args) => entity.remote_resume(now, remote, args.transaction.0),
            Self::PutFrom(PutFromArgs { common, file, name, to_entity, .. }) => {
                let request = ProxyPutRequest {
                    destination: to_entity.unwrap_or(entity.config().entity),
                    source_name: file.clone(),
                    destination_name: name.clone().unwrap_or_else(|| file.clone()),
                    mode: Some(session::mode(common.protocol.kind, entity.config(), remote)),
                    ..ProxyPutRequest::default()
                };
                entity.proxy_put(now, remote, &request)
            }
        }
    }
}

/// Name of the file of a listing or report.
const ANSWER: &str = "answer";

/// Time limit of an operation without --timeout, at a light time of zero. An entity's timers would
/// retry for hours.
const PATIENCE: Duration = Duration::from_secs(60);

/// Time for the peer to receive the acknowledgment of its response.
const CLOSING: Duration = Duration::from_secs(5);

/// Sends a request, waits for the response and prints it.
pub(crate) fn run(args: Args) -> Result<ExitCode> {
    let operation = args.operation;
    let command = format!("cfdp {}", operation.name());
    operation.common().check_order(&command, operation.file())?;
    carry_out(operation)
}

/// Runs one operation.
pub(crate) fn carry_out(operation: Operation) -> Result<ExitCode> {
    // Listings and reports arrive as files, which are temporary.
    let place = tempfile::tempdir().context("cannot make a working directory")?;
    let spool = operation.root(place.path()).join(FileName::SPOOL_DIRECTORY);
    let is_ours = !spool.exists();
    let (mut driver, mut pending) = prepare(operation, place.path()).map_err(transfer::usage)?;
    let stop = stop_flag()?;
    driver.run(&stop, |now, transport, event| pending.on(now, transport.as_mut(), event))?;
    drop(driver);
    if is_ours && let Err(error) = std::fs::remove_dir_all(&spool) {
        tracing::warn!(directory = %spool.display(), %error, "cannot be removed");
    }
    pending.end(place.path())
}

/// Validates the command.
fn prepare(operation: Operation, place: &Path) -> Result<(Driver, Pending)> {
    let common = operation.common();
    let (to, listen) = common.addresses()?;
    // The default number of this end.
    let (remote, default) = (common.remote_entity, 1);
    let options = common.options();
    let role = transport::Role::Client { keeps: false };
    let (mut configuration, path) =
        session::configured(&options, to, common.entity, default, Some(remote), role)?;
    configuration.set_path(remote, PathId(0));
    let config = configuration.cfdp();
    let config = config.with_context(|| format!("{} is not CFDP", common.protocol))?;
    // After an interruption, the command makes a new request instead of resuming the old one.
    config.journal.enabled = false;
    let waker = rt::Waker::new().context("cannot start")?;
    let store = rt::FileStore::open(rt::StoreConfig::new(operation.root(place)), &waker)?;
    let settings = rt::Config {
        peers_max: configuration.peer_ports(),
        tick: Duration::from_millis(10),
        ..rt::Config::new(listen, path)
    };
    let transport = configuration.build(rt::entropy().context("no entropy")?);
    let mut driver = session::open(settings, transport, store, waker)?;
    let own = configuration.number().unwrap_or(default);
    options.contacts.follow(&mut driver, own, Some(remote), options.light_time())?;
    driver.add_peer(to);
    let pending = Pending::new(operation, to, driver.now());
    Ok((driver, pending))
}

/// One request and its response.
struct Pending {
    operation: Operation,
    screen: Screen,
    phase: Phase,
    /// Deadline of the response.
    until: Time,
    /// Address of the peer.
    to: SocketAddr,
    /// When the command began, or the last contact.
    began: Time,
    contact: rt::Contact,
    /// Whether the user was warned that the peer does not reply.
    is_warned: bool,
}

/// Phase of the command.
enum Phase {
    Beginning,
    Requested(TransactionId),
    Answered(Answer, Time),
    Failed(String),
}

/// Response to a request.
enum Answer {
    Listing { success: bool },
    Status { status: TransactionStatus, report: bool },
    Suspended { suspended: bool, status: TransactionStatus },
    Put { condition: ConditionCode, delivery: DeliveryCode },
    Deleted { status: u8, message: String },
}

impl Pending {
    fn new(operation: Operation, to: SocketAddr, now: Time) -> Self {
        let common = operation.common();
        let patience = common.timeout.map_or(PATIENCE + 20 * common.options.light_time(), |t| t.0);
        Self {
            screen: Screen::new(common.options.json),
            until: now + patience,
            operation,
            phase: Phase::Beginning,
            to,
            began: now,
            contact: rt::Contact::Open,
            is_warned: false,
        }
    }

    fn on(
        &mut self,
        now: Time,
        transport: &mut dyn Transport,
        event: rt::Event<Event>,
    ) -> rt::Control {
        if matches!(self.phase, Phase::Beginning)
            && let Some(user) = transport.cfdp_mut()
        {
            user.operate(now, &mut |entity| {
                self.phase = match self.operation.request(now, entity) {
                    Ok(id) => Phase::Requested(id),
                    Err(error) => Phase::Failed(error.to_string()),
                };
            });
        }
        match event {
            rt::Event::Indication(Event::Entity(indication)) => self.indication(now, *indication),
            rt::Event::Contact(contact) => self.on_contact(now, contact),
            rt::Event::Tick => self.warn_of_silence(now, transport),
            rt::Event::Indication(_) | rt::Event::Refused(_) | rt::Event::NewPeer { .. } => {}
        }
        match &self.phase {
            Phase::Beginning | Phase::Requested(_) if now >= self.until => {
                self.phase = Phase::Failed("no answer within the time given".to_owned());
                rt::Control::Stop
            }
            Phase::Beginning | Phase::Requested(_) => rt::Control::Continue,
            Phase::Answered(_, until) if now < *until && !transport.transfers().is_empty() => {
                rt::Control::Continue
            }
            Phase::Answered(..) | Phase::Failed(_) => rt::Control::Stop,
        }
    }

    /// Waits for the next contact if there is none.
    fn on_contact(&mut self, now: Time, contact: rt::Contact) {
        if let Some(text) = contacts::described(now, contact) {
            self.screen.print(text);
        }
        (self.contact, self.began) = (contact, now);
        if let rt::Contact::Closed(Some(next)) = contact {
            self.until += next.since(now);
        }
    }

    /// Reports once that the peer does not reply.
    fn warn_of_silence(&mut self, now: Time, transport: &dyn Transport) {
        let Common { options, remote_entity, .. } = self.operation.common();
        let patience = options.patience();
        let is_waiting = matches!(self.phase, Phase::Requested(_))
            && self.contact == rt::Contact::Open
            && transport.counters().datagrams.is_none_or(|(_, received)| received == 0);
        if self.is_warned || !is_waiting || now.since(self.began) < patience {
            return;
        }
        self.is_warned = true;
        let protocol = &options.protocol;
        let server = format!(
            "recv --protocol {protocol}` running there as entity {remote_entity} (another \
             protocol needs --protocol here, too)"
        );
        self.screen.print(transfer::silence(self.to, patience, &server));
    }

    fn indication(&mut self, now: Time, indication: Indication) {
        let Phase::Requested(request) = self.phase else { return };
        match indication {
            Indication::UserOperation(indication) => {
                if let Some(answer) = answer(request, &self.operation, &indication) {
                    let light = self.operation.common().options.light_time();
                    self.phase = Phase::Answered(answer, now + CLOSING + 4 * light);
                }
            }
            Indication::TransactionFinished(finished) => self.finished(now, request, &finished),
            Indication::Abandoned { id, condition, .. } if id == request => {
                self.phase = Phase::Failed(condition.to_string());
            }
            Indication::Fault { id, condition, .. } => {
                self.screen.print(format_args!("{id}: {condition}"));
            }
            Indication::PeerError { id, error, .. } => {
                self.screen.print(format_args!("{id}: {error}"));
            }
            Indication::Abandoned { .. }
            | Indication::Displaced(_)
            | Indication::NoRoom(_)
            | Indication::Transaction(_)
            | Indication::EofSent(_)
            | Indication::MetadataReceived(_)
            | Indication::FileSegmentReceived { .. }
            | Indication::EofReceived(_)
            | Indication::Suspended { .. }
            | Indication::Misdirected { .. }
            | Indication::Resumed { .. }
            | Indication::Report(_)
            | Indication::LimitReached(_)
            | Indication::RecordRefused { .. }
            | Indication::FinishedRepeated { .. }
            | Indication::Restored { .. } => {}
        }
    }

    /// Handles the end of a transaction. The request must be delivered; a file that responds to it
    /// is reported with the response.
    fn finished(&mut self, now: Time, request: TransactionId, finished: &TransactionFinished) {
        let response = finished.filestore_responses.first();
        if let Some(response) = response.filter(|_| finished.id == request) {
            let (status, message) = (response.status.0, response.message.clone());
            self.phase = Phase::Answered(Answer::Deleted { status, message }, now + CLOSING);
            return;
        }
        let failed = finished.condition != ConditionCode::NoError;
        if failed && finished.role == Role::Sender && finished.id == request {
            self.phase = Phase::Failed(format!("the request failed: {}", finished.condition));
        } else if !failed && finished.role == Role::Receiver {
            let name = &finished.destination_name;
            if matches!(self.operation, Operation::PutFrom(_)) && !name.is_empty() {
                self.screen.print(format_args!(
                    "{}: received {name}: {}",
                    finished.id,
                    crate::show::bytes(finished.size as f64)
                ));
            }
        }
    }

    /// Prints the response.
    fn end(&self, place: &Path) -> Result<ExitCode> {
        let answer = match &self.phase {
            Phase::Answered(answer, _) => answer,
            Phase::Failed(why) => return self.failed(why),
            Phase::Beginning | Phase::Requested(_) => return self.failed("stopped"),
        };
        let text = || {
            let path = place.join(ANSWER);
            std::fs::read_to_string(&path).context("the answer cannot be read")
        };
        match answer {
            Answer::Listing { success: false } => self.failed("refused, or no such directory"),
            Answer::Listing { success: true } => {
                let text = text()?;
                self.print(true, &json!({ "entries": text.lines().collect::<Vec<_>>() }), &text)
            }
            Answer::Status { status, report } => {
                let text = if *report { text()? } else { format!("state: {}\n", word(*status)) };
                let fields = text.lines().filter_map(|line| line.split_once(": "));
                let fields: serde_json::Map<_, _> =
                    fields.map(|(key, value)| (key.to_owned(), Value::from(value))).collect();
                let known = match status {
                    TransactionStatus::Active | TransactionStatus::Terminated => true,
                    TransactionStatus::Undefined
                    | TransactionStatus::Unrecognized
                    | TransactionStatus::Other(_) => false,
                };
                self.print(known, &json!({ "status": word(*status), "report": fields }), &text)
            }
            Answer::Suspended { suspended, status } => {
                let wanted = matches!(self.operation, Operation::Suspend(_));
                let active = *status == TransactionStatus::Active;
                let state = match (active, suspended) {
                    (true, true) => "suspended",
                    (true, false) => "going on",
                    (false, _) => word(*status),
                };
                let fields = json!({ "status": word(*status), "suspended": suspended });
                self.print(active && *suspended == wanted, &fields, &format!("{state}\n"))
            }
            Answer::Deleted { status: 0, .. } => self.print(true, &json!({}), "deleted\n"),
            Answer::Deleted { status, message } => {
                let why = format!("refused, status {status} {message}");
                self.failed(why.trim_end())
            }
            Answer::Put { condition, delivery } => {
                let complete = *delivery == DeliveryCode::Complete;
                let sent = *condition == ConditionCode::NoError && complete;
                let text =
                    if sent { "sent\n".to_owned() } else { format!("failed: {condition}\n") };
                self.print(sent, &json!({ "condition": condition.to_string() }), &text)
            }
        }
    }

    fn failed(&self, why: &str) -> Result<ExitCode> {
        self.screen.print(format_args!("failed: {why}"));
        self.print(false, &json!({ "failure": why }), "")
    }

    /// Prints the response as an object or as text.
    fn print(&self, completed: bool, fields: &Value, text: &str) -> Result<ExitCode> {
        let common = self.operation.common();
        let text = if common.options.json {
            let mut object = json!({
                "operation": self.operation.name(),
                "entity": common.remote_entity,
                "completed": completed,
            });
            if let (Some(object), Some(fields)) = (object.as_object_mut(), fields.as_object()) {
                object.extend(fields.clone());
            }
            format!("{object}\n")
        } else {
            text.to_owned()
        };
        let printed = std::io::stdout().lock().write_all(text.as_bytes());
        crate::exit_code(printed.map_err(Into::into), completed)
    }
}

/// Response to the request, if it is one.
fn answer(
    request: TransactionId,
    operation: &Operation,
    indication: &OperationIndication,
) -> Option<Answer> {
    match (operation, indication) {
        (Operation::Ls(_), OperationIndication::DirectoryListing { id, success, .. }) => {
            (*id == request).then_some(Answer::Listing { success: *success })
        }
        (
            Operation::Status(_),
            OperationIndication::RemoteStatusReport { id, status, success, .. },
        ) => (*id == request).then_some(Answer::Status { status: *status, report: *success }),
        (
            Operation::Suspend(TransactionArgs { transaction: wanted, .. }),
            OperationIndication::RemoteSuspend { transaction, suspended, status, .. },
        )
        | (
            Operation::Resume(TransactionArgs { transaction: wanted, .. }),
            OperationIndication::RemoteResume { transaction, suspended, status, .. },
        ) => (*transaction == wanted.0)
            .then_some(Answer::Suspended { suspended: *suspended, status: *status }),
        (
            Operation::PutFrom(_),
            OperationIndication::ProxyPutResponse { id, condition, delivery, .. },
        ) => (*id == request).then_some(Answer::Put { condition: *condition, delivery: *delivery }),
        (
            Operation::Ls(_)
            | Operation::Rm(_)
            | Operation::Status(_)
            | Operation::Suspend(_)
            | Operation::Resume(_)
            | Operation::PutFrom(_),
            _,
        ) => None,
    }
}

fn word(status: TransactionStatus) -> &'static str {
    match status {
        // The peer does not know the transaction, or does not disclose it.
        TransactionStatus::Undefined => "refused",
        TransactionStatus::Active => "active",
        TransactionStatus::Terminated => "terminated",
        TransactionStatus::Unrecognized => "unrecognized",
        TransactionStatus::Other(_) => "unknown",
    }
}
