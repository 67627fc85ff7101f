//! NORM streams: bytes from a pipe to a pipe, as they arrive.

use std::fs::File;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use engine::{PathId, PathInfo, Time};
use indicatif::ProgressBar;
use norm::Piece;
use transport::quantity::Span;
use transport::{Configuration, Ended, Event, Role, StreamEvent, Streams, TransferId, Transport};

use super::client::connect;
use super::closing::Closing;
use super::job::Ends;
use super::server::{self, Service, join_group};
use super::strangers::Strangers;
use super::{Driver, configured, leave};
use crate::exit::Exit;
use crate::show;
use crate::sockets::contacts;
use crate::sockets::outcome::{Measures, Outcome};
use crate::sockets::screen::Screen;
use crate::sockets::transfer::{self, Options};
use crate::stop::stop_flag;

/// Time between polls of the source.
const TICK: Duration = Duration::from_millis(2);

/// Bytes per read, and reads ahead of the sender.
const PIECE: usize = 64 << 10;
const PIECES: usize = 16;

/// Name of standard input or output.
const STANDARD: &str = "-";

/// Source of a stream.
pub(crate) struct Source {
    /// The file, or `-`.
    pub(crate) from: PathBuf,
    /// Name of the stream at the receiver.
    pub(crate) name: String,
    /// Whether new data overwrites unacknowledged data.
    pub(crate) push: bool,
}

/// Sends all bytes of a file or pipe; returns after delivery.
pub(crate) fn send(
    options: Options,
    ends: &Ends,
    source: Source,
    timeout: Option<Span>,
) -> Result<ExitCode> {
    let (mut driver, _state) = sender(&options, ends).map_err(transfer::usage)?;
    let input = open_input(&source.from).map_err(transfer::usage)?;
    let screen = Screen::new(options.json);
    let mut writer = Writer {
        input: pump(input)?,
        waiting: Vec::new(),
        is_flushed: true,
        has_ended: false,
        id: None,
        timeout: timeout.map(|timeout| driver.now() + timeout.duration()),
        source: source.name.clone(),
        push: source.push,
        view: View::new(options, screen, source.from, &source.name, driver.now()),
    };
    writer.view.peer = Some(ends.to);
    let stop = stop_flag()?;
    driver.run(&stop, |now, transport, event| writer.on(now, transport.as_mut(), event))?;
    let left = writer.id.filter(|_| writer.view.end.is_none());
    leave(&mut driver, left.as_slice(), writer.view.options.light_time())?;
    let why = if writer.timeout.is_some() { "timeout" } else { "stopped" };
    writer.view.end(Some(why))
}

fn sender(options: &Options, ends: &Ends) -> Result<(Driver, tempfile::TempDir)> {
    ensure!(ends.to.port() != 0, "port 0 is not a port to send to");
    let role = Role::Client { keeps: false };
    let (mut configuration, path) = configured(options, ends.to, ends.entity, 1, None, role)?;
    if ends.group.is_some() {
        super::join_group(configuration.as_mut(), PathId(0));
    }
    let settings = rt::Config::new(ends.listen, path);
    let (mut driver, state) = open(configuration.as_ref(), settings)?;
    options.contacts.follow(
        &mut driver,
        configuration.number().or(ends.entity).unwrap_or(1),
        Some(ends.next()),
        options.light_time(),
    )?;
    connect(&mut driver, ends, true)?;
    Ok((driver, state))
}

/// A driver whose transport keeps no files.
fn open(
    configuration: &dyn Configuration,
    settings: rt::Config,
) -> Result<(Driver, tempfile::TempDir)> {
    let waker = rt::Waker::new().context("cannot start")?;
    let state = tempfile::tempdir().context("cannot make a directory for working files")?;
    let store = rt::FileStore::open(rt::StoreConfig::new(state.path()), &waker)?;
    let transport = configuration.build(rt::entropy().context("no entropy")?);
    let settings = rt::Config { tick: TICK, ..settings };
    Ok((super::open(settings, transport, store, waker)?, state))
}

fn open_input(from: &Path) -> Result<Box<dyn Read + Send>> {
    if from == Path::new(STANDARD) {
        return Ok(Box::new(std::io::stdin()));
    }
    let file = File::open(from).with_context(|| format!("cannot read {}", from.display()))?;
    Ok(Box::new(file))
}

/// Reads ahead on a separate thread, since a pipe may block.
fn pump(mut input: Box<dyn Read + Send>) -> Result<Receiver<std::io::Result<Vec<u8>>>> {
    let (sender, receiver) = sync_channel(PIECES);
    let read = move || loop {
        let mut piece = vec![0; PIECE];
        let got = input.read(&mut piece);
        let is_end = !matches!(&got, Ok(1..));
        if let Ok(len) = got {
            piece.truncate(len);
        }
        // The end of the channel is the end of the stream.
        let is_gone = match got {
            Ok(0) => true,
            got => sender.send(got.map(|_| piece)).is_err(),
        };
        if is_end || is_gone {
            return;
        }
    };
    std::thread::Builder::new().name("input".to_owned()).spawn(read).context("no thread")?;
    Ok(receiver)
}

/// Progress of a command's stream.
struct View {
    options: Options,
    screen: Screen,
    /// The file here, or `-`.
    file: PathBuf,
    /// Address of the other side, if it is known.
    peer: Option<SocketAddr>,
    bar: ProgressBar,
    began: Time,
    end: Option<Result<bool>>,
}

impl View {
    fn new(options: Options, screen: Screen, file: PathBuf, name: &str, now: Time) -> Self {
        let bar = screen.bar(name, None);
        Self { options, screen, file, peer: None, bar, began: now, end: None }
    }

    fn on_contact(&self, now: Time, contact: rt::Contact) {
        if let Some(text) = contacts::described(now, contact) {
            self.screen.print(text);
        }
    }

    /// Prints texts and messages of a transport.
    fn event(&mut self, event: Event) -> Result<()> {
        match event {
            Event::Notice(text) => self.screen.print(text),
            Event::Warning(text) => tracing::warn!("{text}"),
            Event::Log(text) => tracing::debug!("{text}"),
            Event::Message { sender, content } => {
                server::message(sender, &content, &self.options, &self.screen)?;
            }
            Event::Receiving(reception) => self.peer = reception.from.or(self.peer),
            Event::Ended(_)
            | Event::Abandoned { .. }
            | Event::Repeated { .. }
            | Event::NoRoom { .. }
            | Event::Continued(_)
            | Event::Restored(_)
            | Event::Begins(_)
            | Event::Latency(..)
            | Event::Listing(_)
            | Event::Relay(_)
            | Event::Entity(_)
            | Event::Lost(_)
            | Event::Stream(_)
            | Event::Left
            | Event::Update => {}
        }
        Ok(())
    }

    /// Prints the end of the stream.
    fn ended(&mut self, now: Time, transport: &dyn Transport, ended: &Ended) {
        self.bar.finish_and_clear();
        let measures = Measures {
            peer: self.peer,
            elapsed: Some(now.since(self.began)),
            moved: ended.size,
            datagrams: transport.counters().datagrams,
            resumed: false,
        };
        let outcome =
            Outcome::from_ended(&self.options.protocol, ended, self.file.clone(), measures);
        self.screen.print(outcome.line(ended));
        let printed = if self.options.json { outcome.print() } else { Ok(()) };
        // A receiver may have received the end, but not every part.
        let is_whole = ended.is_success() && (ended.at_sender || ended.is_confirmed);
        self.end = Some(printed.map(|()| is_whole));
    }

    /// Exit code; prints the reason if the stream did not end.
    fn end(self, why: Option<&str>) -> Result<ExitCode> {
        self.bar.finish_and_clear();
        if let Some(end) = self.end {
            return end.map(|good| Exit::if_succeeded(good).into());
        }
        if let Some(why) = why {
            self.screen.print(format_args!("not finished: {why}"));
        }
        Ok(Exit::Failed.into())
    }
}

fn streams(transport: &mut dyn Transport) -> Result<&mut dyn Streams> {
    transport.streams().context("it has no streams")
}

/// The stream that is sent.
struct Writer {
    input: Receiver<std::io::Result<Vec<u8>>>,
    /// Bytes that the transport had no room for.
    waiting: Vec<u8>,
    is_flushed: bool,
    /// Whether all was written.
    has_ended: bool,
    id: Option<TransferId>,
    timeout: Option<Time>,
    /// Name of the stream.
    source: String,
    push: bool,
    view: View,
}

impl Writer {
    fn on(
        &mut self,
        now: Time,
        transport: &mut dyn Transport,
        event: rt::Event<Event>,
    ) -> rt::Control {
        match event {
            rt::Event::Tick | rt::Event::Refused(_) | rt::Event::NewPeer { .. } => {}
            rt::Event::Contact(contact) => self.view.on_contact(now, contact),
            rt::Event::Indication(Event::Ended(ended)) => self.view.ended(now, transport, &ended),
            rt::Event::Indication(event) => {
                if let Err(error) = self.view.event(event) {
                    self.view.end = Some(Err(error));
                }
            }
        }
        if self.view.end.is_none()
            && let Err(error) = self.feed(now, transport)
        {
            self.view.end = Some(Err(error));
        }
        let transfers = transport.transfers();
        if let Some(report) = transfers.iter().find(|report| Some(&report.id) == self.id.as_ref()) {
            self.view.bar.set_position(report.bytes);
        }
        let is_late = self.timeout.is_some_and(|timeout| now >= timeout);
        if self.view.end.is_some() || is_late { rt::Control::Stop } else { rt::Control::Continue }
    }

    /// Writes the bytes read, as far as the transport has room.
    fn feed(&mut self, now: Time, transport: &mut dyn Transport) -> Result<()> {
        let streams = streams(transport)?;
        let id = match &self.id {
            Some(id) => id.clone(),
            None => self.begin(now, streams)?,
        };
        while !self.has_ended {
            if self.waiting.is_empty() {
                match self.input.try_recv() {
                    Ok(piece) => self.waiting = piece.context("cannot read what is to be sent")?,
                    Err(TryRecvError::Empty) => {
                        if !std::mem::replace(&mut self.is_flushed, true) {
                            streams.flush(now, &id)?;
                        }
                        return Ok(());
                    }
                    Err(TryRecvError::Disconnected) => {
                        streams.close(now, &id)?;
                        self.has_ended = true;
                        return Ok(());
                    }
                }
            }
            let taken = streams.write(now, &id, &self.waiting)?;
            self.is_flushed &= taken == 0;
            self.waiting.drain(..taken);
            if !self.waiting.is_empty() {
                return Ok(());
            }
        }
        Ok(())
    }

    fn begin(&mut self, now: Time, streams: &mut dyn Streams) -> Result<TransferId> {
        let id = streams.open(now, PathId(0), &self.source, self.push)?;
        self.id = Some(id.clone());
        self.view.began = now;
        self.view.screen.print(format_args!("{id}: sending the stream {}", self.source));
        Ok(id)
    }
}

/// Receives the first stream into a file or pipe until it ends.
pub(crate) fn receive(options: Options, service: &Service, to: &Path) -> Result<ExitCode> {
    let (mut driver, mut reader, _state) =
        receiver(options, service, to).map_err(transfer::usage)?;
    let stop = stop_flag()?;
    driver.run(&stop, |now, transport, event| reader.on(now, transport.as_mut(), event))?;
    reader.view.end(None)
}

fn receiver(
    options: Options,
    service: &Service,
    to: &Path,
) -> Result<(Driver, Reader, tempfile::TempDir)> {
    let is_standard = to == Path::new(STANDARD);
    ensure!(!is_standard || !options.json, "--json and the stream both want standard output");
    let (mut configuration, path): (Box<dyn Configuration>, PathInfo) =
        configured(&options, service.listen, service.entity, 2, None, service.role)?;
    let no_streams = || format!("{} has no streams", options.protocol);
    let membership = configuration.membership().with_context(no_streams)?;
    if service.group.is_some() {
        membership.join(PathId(0));
    }
    membership.receive_stream();
    let settings =
        rt::Config { peers_max: service.peers_max, ..rt::Config::new(service.listen, path) };
    let (mut driver, state) = open(configuration.as_ref(), settings)?;
    let own = configuration.number().or(service.entity).unwrap_or(2);
    options.contacts.follow(&mut driver, own, None, options.light_time())?;
    let screen = Screen::new(options.json);
    join_group(&mut driver, service, &screen)?;
    let output: Box<dyn Write> = if is_standard {
        Box::new(std::io::stdout())
    } else {
        let file = File::create(to).with_context(|| format!("cannot write {}", to.display()))?;
        Box::new(file)
    };
    screen.print(format_args!("receiving a stream on {} by {}", driver.local(), options.protocol));
    let strangers = Strangers::new(Some(&options.protocol));
    let view = View::new(options, screen, to.to_owned(), "stream", Time::ZERO);
    let closing = Closing::default();
    let reader = Reader { output, id: None, is_begun: false, closing, strangers, view };
    Ok((driver, reader, state))
}

/// The stream that is received.
struct Reader {
    output: Box<dyn Write>,
    id: Option<TransferId>,
    /// Whether any bytes were received.
    is_begun: bool,
    closing: Closing,
    strangers: Strangers,
    view: View,
}

impl Reader {
    fn on(
        &mut self,
        now: Time,
        transport: &mut dyn Transport,
        event: rt::Event<Event>,
    ) -> rt::Control {
        let handled = match event {
            rt::Event::Indication(event) => self.event(now, transport, event),
            rt::Event::Contact(contact) => {
                self.view.on_contact(now, contact);
                Ok(())
            }
            rt::Event::NewPeer { from, datagram } => {
                if let Some(text) = self.strangers.described(now, from, &datagram) {
                    self.view.screen.print(text);
                }
                Ok(())
            }
            rt::Event::Tick | rt::Event::Refused(_) => Ok(()),
        };
        if let Err(error) = handled {
            self.view.end = Some(Err(error));
            return rt::Control::Stop;
        }
        let is_over =
            self.closing.check(now, transport, Duration::ZERO, self.view.options.light_time());
        if is_over { rt::Control::Stop } else { rt::Control::Continue }
    }

    fn event(&mut self, now: Time, transport: &mut dyn Transport, event: Event) -> Result<()> {
        match event {
            Event::Stream(StreamEvent::Opened(id)) => {
                if self.id.is_some() || self.view.end.is_some() {
                    self.view.screen.print(format_args!("{id}: another stream is not received"));
                    transport.cancel(now, &id);
                    return Ok(());
                }
                self.view.screen.print(format_args!("{id}: receiving a stream"));
                (self.id, self.view.began) = (Some(id), now);
            }
            Event::Stream(StreamEvent::Readable(id)) if Some(&id) == self.id.as_ref() => {
                let streams = streams(transport)?;
                while let Some(piece) = streams.read(now, &id) {
                    self.write(&id, &piece)?;
                }
                self.output.flush().context("cannot write the stream")?;
            }
            Event::Ended(ended) if Some(&ended.id) == self.id.as_ref() => {
                self.view.ended(now, transport, &ended);
                self.closing.begin(now);
            }
            event => self.view.event(event)?,
        }
        Ok(())
    }

    fn write(&mut self, id: &TransferId, piece: &Piece) -> Result<()> {
        match piece {
            Piece::Bytes { offset, bytes, .. } => {
                if !std::mem::replace(&mut self.is_begun, true) && *offset > 0 {
                    let before = show::bytes(*offset as f64);
                    self.view.screen.print(format_args!("{id}: begins after {before} of it"));
                }
                self.view.bar.inc(bytes.len() as u64);
                self.output.write_all(bytes).context("cannot write the stream")?;
            }
            Piece::Gap { from, to } => {
                let lost = show::bytes((to - from) as f64);
                self.view
                    .screen
                    .print(format_args!("{id}: {lost} are missing, from byte {from} on"));
            }
        }
        Ok(())
    }
}
