//! Streams by NORM: octets from a pipe to a pipe, as they come.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use engine::{PathId, Time};
use indicatif::ProgressBar;
use proto::norm;
use transport::engines::{AnyEngine, AnyIndication, EngineConfig};
use transport::quantity::Span;

use super::client::Ends;
use super::leave::leave;
use super::{Ended, LINGER, Notice, Rights, Service, counts, notice, random};
use crate::show;
use crate::transfer::{self, Measures, Options, Outcome, Screen, bind_error};

/// How often it is looked whether there is something to send.
const TICK: Duration = Duration::from_millis(2);

/// Octets read at once, and how often ahead of what is sent.
const PIECE: usize = 64 << 10;
const PIECES: usize = 16;

/// What stands for standard input or output.
const STANDARD: &str = "-";

/// What is sent as a stream.
pub(crate) struct Source {
    /// The file, or `-`.
    pub(crate) from: PathBuf,
    /// What the receiver is told of it.
    pub(crate) name: String,
    /// Whether what is new matters more than what is whole.
    pub(crate) push: bool,
}

type Driver = rt::Driver<AnyEngine>;

/// Sends all that comes from a file or pipe; returns when receivers have it.
pub(crate) fn send(
    options: Options,
    ends: Ends,
    source: Source,
    timeout: Option<Span>,
) -> Result<ExitCode> {
    let (mut driver, buffer, _state) = sender(&options, &ends).map_err(transfer::usage)?;
    let input = open_input(&source.from).map_err(transfer::usage)?;
    let screen = Screen::new(options.json);
    let bar = screen.bar(&source.name, None);
    let mut writer = Writer {
        input: pump(input)?,
        waiting: Vec::new(),
        is_flushed: true,
        has_ended: false,
        id: None,
        began: driver.now(),
        timeout: timeout.map(|timeout| driver.now() + timeout.duration()),
        end: None,
        options,
        source,
        buffer,
        screen,
        bar,
    };
    let stop = transfer::stop_flag()?;
    driver.run(&stop, |now, engine, event| writer.on(now, engine, event))?;
    let left = writer.id.filter(|_| writer.end.is_none()).map(super::Id::Norm);
    leave(&mut driver, left, writer.options.light_time())?;
    writer.end()
}

fn sender(options: &Options, ends: &Ends) -> Result<(Driver, usize, tempfile::TempDir)> {
    ensure!(ends.to.port() != 0, "nobody can listen on port 0");
    let rights = Rights::Client { keeps: false };
    let (mut config, path) = super::settings((options, ends.to), ends.entity, 1, None, rights)?;
    let EngineConfig::Norm(node) = &mut config else {
        anyhow::bail!("--stream is for NORM, not for {}", options.protocol);
    };
    let peer = PathId(0);
    node.config.groups.extend(ends.group.map(|_| peer));
    let buffer = node.config.limits.stream;
    let (mut driver, state) = driver(&config, rt::Config::new(ends.listen, path))?;
    let path = match ends.group {
        Some(group) => crate::peers::join(&mut driver, group)?,
        None => driver.add_peer(ends.to),
    };
    ensure!(path == peer, "the only peer has another number than the first");
    Ok((driver, buffer, state))
}

/// A driver whose engine keeps no files.
fn driver(config: &EngineConfig, settings: rt::Config) -> Result<(Driver, tempfile::TempDir)> {
    let waker = rt::Waker::new().context("cannot start")?;
    let state = tempfile::tempdir().context("cannot make a directory for working files")?;
    let store = rt::FileStore::open(rt::StoreConfig::new(state.path()), &waker)?;
    let listen = settings.listen;
    let settings = rt::Config { tick: TICK, ..settings };
    let driver = rt::Driver::new(settings, config.build(random()?), store, waker)
        .map_err(|error| bind_error(listen, error))?;
    Ok((driver, state))
}

fn open_input(from: &Path) -> Result<Box<dyn Read + Send>> {
    if from == Path::new(STANDARD) {
        return Ok(Box::new(std::io::stdin()));
    }
    let file = File::open(from).with_context(|| format!("cannot read {}", from.display()))?;
    Ok(Box::new(file))
}

/// Reads ahead, on a thread of its own: a pipe may have nothing for long.
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

/// The stream that is sent.
struct Writer {
    input: Receiver<std::io::Result<Vec<u8>>>,
    /// Octets for which there was no room.
    waiting: Vec<u8>,
    is_flushed: bool,
    /// Whether all was written.
    has_ended: bool,
    id: Option<norm::ObjectId>,
    began: Time,
    timeout: Option<Time>,
    end: Option<Result<bool>>,
    options: Options,
    source: Source,
    buffer: usize,
    screen: Screen,
    bar: ProgressBar,
}

impl Writer {
    fn on(
        &mut self,
        now: Time,
        engine: &mut AnyEngine,
        event: rt::Event<AnyIndication>,
    ) -> rt::Control {
        match event {
            rt::Event::Tick | rt::Event::Refused(_) => {}
            rt::Event::Indication(indication) => self.told(now, engine, indication),
        }
        let AnyEngine::Norm(node, _) = engine else { return rt::Control::Stop };
        if self.end.is_none()
            && let Err(error) = self.feed(now, node)
        {
            self.end = Some(Err(error));
        }
        if let Some(report) = node.objects().find(|report| Some(report.id) == self.id) {
            self.bar.set_position(report.progress);
        }
        let is_late = self.timeout.is_some_and(|timeout| now >= timeout);
        if self.end.is_some() || is_late { rt::Control::Stop } else { rt::Control::Continue }
    }

    /// Hands in what there is, as far as there is room.
    fn feed(&mut self, now: Time, node: &mut norm::Node) -> Result<()> {
        let id = match self.id {
            Some(id) => id,
            None => self.begin(now, node)?,
        };
        while !self.has_ended {
            if self.waiting.is_empty() {
                match self.input.try_recv() {
                    Ok(piece) => self.waiting = piece.context("cannot read what is to be sent")?,
                    Err(TryRecvError::Empty) => {
                        if !std::mem::replace(&mut self.is_flushed, true) {
                            node.flush(now, id)?;
                        }
                        return Ok(());
                    }
                    Err(TryRecvError::Disconnected) => {
                        node.close(now, id)?;
                        self.has_ended = true;
                        return Ok(());
                    }
                }
            }
            let taken = node.write(now, id, &self.waiting)?;
            self.is_flushed &= taken == 0;
            self.waiting.drain(..taken);
            if !self.waiting.is_empty() {
                return Ok(());
            }
        }
        Ok(())
    }

    fn begin(&mut self, now: Time, node: &mut norm::Node) -> Result<norm::ObjectId> {
        let options = norm::StreamOptions { buffer: self.buffer, push: self.source.push };
        let request = norm::SendRequest {
            peer: PathId(0),
            content: norm::Content::Stream(options),
            info: self.source.name.clone().into(),
        };
        let id = node.send(now, request)?;
        self.id = Some(id);
        self.began = now;
        self.screen.say(format_args!("{id}: sending the stream {}", self.source.name));
        Ok(id)
    }

    fn told(&mut self, now: Time, engine: &AnyEngine, indication: AnyIndication) {
        match notice(indication) {
            Notice::Ended(ended) => {
                self.bar.finish_and_clear();
                let elapsed = Some(now.since(self.began));
                let measures = Measures { elapsed, moved: ended.size, pdus: counts(engine) };
                let file = self.source.from.clone();
                let told = tell(&self.options, &self.screen, &ended, file, measures);
                self.end = Some(told);
            }
            Notice::Said(text) => self.screen.say(text),
            Notice::Noted(text) => tracing::debug!("{text}"),
            Notice::Receiving { .. }
            | Notice::Listing(_)
            | Notice::Onward(_)
            | Notice::Command(_)
            | Notice::Nothing => {}
        }
    }

    fn end(self) -> Result<ExitCode> {
        self.bar.finish_and_clear();
        match self.end {
            Some(told) => told.map(|good| ExitCode::from(u8::from(!good))),
            None => {
                let why = if self.timeout.is_some() { "the time given is over" } else { "stopped" };
                self.screen.say(format_args!("not finished: {why}"));
                Ok(ExitCode::from(1))
            }
        }
    }
}

/// Tells how a stream ended; whether it was well.
fn tell(
    options: &Options,
    screen: &Screen,
    ended: &Ended,
    file: PathBuf,
    measures: Measures,
) -> Result<bool> {
    let outcome = Outcome::session(&options.protocol, ended, file, measures);
    let id = ended.id();
    match &ended.result {
        Ok(()) if ended.at_sender && !ended.is_confirmed => {
            let summary = outcome.summary();
            screen.say(format_args!("{id}: sent, nobody says whether it came: {summary}"));
        }
        Ok(()) if ended.at_sender => {
            screen.say(format_args!("{id}: sent: {}", outcome.summary()));
        }
        Ok(()) => screen.say(format_args!("{id}: received: {}", outcome.summary())),
        Err(why) => {
            let moved = show::bytes(ended.size as f64);
            screen.say(format_args!("{id}: failed after {moved}: {why}"));
        }
    }
    if options.json {
        outcome.print()?;
    }
    // A receiver that lost something has not all, though it heard the end.
    Ok(ended.result.is_ok() && (ended.at_sender || ended.is_confirmed))
}

/// Receives the first stream that is heard of into a file or pipe; returns when it has ended.
pub(crate) fn receive(options: Options, service: &Service, to: &Path) -> Result<ExitCode> {
    let (mut driver, mut reader, _state) =
        receiver(options, service, to).map_err(transfer::usage)?;
    let stop = transfer::stop_flag()?;
    driver.run(&stop, |now, engine, event| reader.on(now, engine, event))?;
    reader.bar.finish_and_clear();
    match reader.end {
        Some(told) => told.map(|good| ExitCode::from(u8::from(!good))),
        None => Ok(ExitCode::from(1)),
    }
}

fn receiver(
    options: Options,
    service: &Service,
    to: &Path,
) -> Result<(Driver, Reader, tempfile::TempDir)> {
    let is_standard = to == Path::new(STANDARD);
    ensure!(!is_standard || !options.json, "--json and the stream both want standard output");
    let rights = Rights::Server { gets: false, deletes: false };
    let (mut config, path) =
        super::settings((&options, service.listen), service.entity, 2, None, rights)?;
    let EngineConfig::Norm(node) = &mut config else {
        anyhow::bail!("--stream is for NORM, not for {}", options.protocol);
    };
    let group = PathId(0);
    node.config.groups.extend(service.group.map(|_| group));
    node.config.receiver.streams.get_or_insert(norm::Join::Beginning);
    // There is no place for files.
    node.config.limits.object = 0;
    let settings =
        rt::Config { peers_max: service.peers_max, ..rt::Config::new(service.listen, path) };
    let (mut driver, state) = driver(&config, settings)?;
    let screen = Screen::new(options.json);
    if let Some(heard) = service.group {
        crate::peers::join(&mut driver, heard)?;
        screen.say(format_args!("hearing the group {}", heard.address));
    }
    let output: Box<dyn Write> = if is_standard {
        Box::new(std::io::stdout())
    } else {
        let file = File::create(to).with_context(|| format!("cannot write {}", to.display()))?;
        Box::new(file)
    };
    screen.say(format_args!("receiving a stream on {} by {}", driver.local(), options.protocol));
    let reader = Reader {
        to: to.to_owned(),
        output,
        id: None,
        began: Time::ZERO,
        is_begun: false,
        end: None,
        until: Time::MAX,
        bar: screen.bar("stream", None),
        screen,
        options,
    };
    Ok((driver, reader, state))
}

/// The stream that is received.
struct Reader {
    to: PathBuf,
    output: Box<dyn Write>,
    id: Option<norm::ObjectId>,
    began: Time,
    /// Whether anything came.
    is_begun: bool,
    end: Option<Result<bool>>,
    /// How long it stays, because its sender may ask again.
    until: Time,
    screen: Screen,
    bar: ProgressBar,
    options: Options,
}

impl Reader {
    fn on(
        &mut self,
        now: Time,
        engine: &mut AnyEngine,
        event: rt::Event<AnyIndication>,
    ) -> rt::Control {
        if let rt::Event::Indication(AnyIndication::Norm(indication)) = event
            && let Err(error) = self.told(now, engine, indication)
        {
            self.end = Some(Err(error));
            return rt::Control::Stop;
        }
        if now >= self.until { rt::Control::Stop } else { rt::Control::Continue }
    }

    fn told(
        &mut self,
        now: Time,
        engine: &mut AnyEngine,
        indication: norm::Indication,
    ) -> Result<()> {
        let AnyEngine::Norm(node, _) = engine else { return Ok(()) };
        match indication {
            norm::Indication::Stream { id, .. } if self.id.is_none() && self.end.is_none() => {
                (self.id, self.began) = (Some(id), now);
                self.screen.say(format_args!("{id}: receiving a stream"));
            }
            norm::Indication::Stream { id, .. } => {
                self.screen.say(format_args!("{id}: another stream is not received"));
                node.cancel(now, id)?;
            }
            norm::Indication::Readable { id } if Some(id) == self.id => {
                while let Some(piece) = node.read(now, id) {
                    self.write(id, &piece)?;
                }
                self.output.flush().context("cannot write the stream")?;
            }
            norm::Indication::Finished(finished) if Some(finished.id) == self.id => {
                self.bar.finish_and_clear();
                let moved = finished.size;
                let elapsed = Some(now.since(self.began));
                let measures = Measures { elapsed, moved, pdus: counts(engine) };
                let told = norm::Indication::Finished(finished);
                if let Notice::Ended(ended) = notice(AnyIndication::Norm(told)) {
                    let file = self.to.clone();
                    self.end = Some(tell(&self.options, &self.screen, &ended, file, measures));
                }
                self.until = now + 8 * LINGER + 4 * self.options.light_time();
            }
            other => match notice(AnyIndication::Norm(other)) {
                Notice::Said(text) => self.screen.say(text),
                Notice::Noted(text) => tracing::debug!("{text}"),
                Notice::Command(said) => said.tell(&self.options, &self.screen)?,
                Notice::Receiving { .. }
                | Notice::Ended(_)
                | Notice::Listing(_)
                | Notice::Onward(_)
                | Notice::Nothing => {}
            },
        }
        Ok(())
    }

    fn write(&mut self, id: norm::ObjectId, piece: &norm::Piece) -> Result<()> {
        match piece {
            norm::Piece::Octets { offset, octets, .. } => {
                if !std::mem::replace(&mut self.is_begun, true) && *offset > 0 {
                    let before = show::bytes(*offset as f64);
                    self.screen.say(format_args!("{id}: begins after {before} of it"));
                }
                self.bar.inc(octets.len() as u64);
                self.output.write_all(octets).context("cannot write the stream")?;
            }
            norm::Piece::Gap { from, to } => {
                let lost = show::bytes((to - from) as f64);
                self.screen.say(format_args!("{id}: {lost} are missing, from octet {from} on"));
            }
        }
        Ok(())
    }
}
