//! One transfer or request with one peer: a file that is sent or fetched, a directory that is
//! listed, a file that is deleted.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use cfdp::PutRequest;
use cfdp::pdu::FileStatus;
use engine::{FileName, PathId, Time};
use indicatif::ProgressBar;
use ltp::ltpt::{Otherwise, Routing};
use transport::contract::{Directories, Feature};
use transport::quantity::Span;
use transport::{Configuration, Ended, Event, Reception, Role, SendRequest, TransferId, Transport};
use ut::Receives;

use super::errand::Errand;
use super::job::{Ends, Job, Wish};
use super::place::Place;
use super::watch::{NO_CONTACT, Watch, expects_replies, is_acknowledged, replies_below};
use super::{
    Driver, LINGER, Linger, Runner, choice, configured, leave, listing, losses, put, routes,
};
use crate::exit::Exit;
use crate::show;
use crate::sockets::outcome::{Measures, Outcome};
use crate::sockets::screen::{Bar, Reach, Screen, Shown};
use crate::sockets::transfer::{self, Options};
use crate::stop::stop_flag;

/// Time between looks at progress, and before a sender that has read its records begins.
const TICK: Duration = Duration::from_millis(10);

/// Time for which a CFDP sender stays to reply, if three round trips fit: longer than the
/// acknowledgement timer of most receivers. Before a receiver sends Finished, it has stored the
/// file and its outcome, and it closes the transaction by itself if the ACK is lost (§4.7).
const CFDP_LINGER: Duration = Duration::from_millis(1500);

/// Time of lingering that is announced.
const ANNOUNCED: Duration = Duration::from_secs(5);

/// Runs the job until it is done or given up.
pub(crate) fn run(mut job: Job) -> Result<ExitCode> {
    let Opened { mut runner, place, resumes, keeps_records, is_resumed, is_one_way } =
        open(&mut job).map_err(transfer::usage)?;
    let mut client = Client::new(job, runner.now(), matches!(runner, Runner::Socket(_)));
    client.resumes |= resumes;
    client.keeps_records = keeps_records;
    client.watch.is_one_way = is_one_way && client.wish.is_send();
    client.resumed = is_resumed;
    let stop = stop_flag()?;
    runner.run(&stop, &mut |now, transport, event| client.on(now, transport, event))?;
    if let Runner::Socket(driver) = &mut runner {
        leave(driver, client.to_cancel().as_slice(), client.options.light_time())?;
    }
    drop(runner);
    if matches!(client.phase, Phase::Over(..)) {
        place.forget();
    }
    if let Some((loss, segments)) = client.loss {
        losses::remember(&client.ends.to.to_string(), loss, segments);
    }
    if client.is_proven {
        choice::remember(client.ends.to, &client.options.full_protocol()?);
    }
    client.end()
}

/// Driver and working files of a job.
pub(super) struct Opened {
    pub(super) runner: Runner,
    pub(super) place: Place,
    /// Whether the same command resumes the transfer, because the protocol's settings say so.
    pub(super) resumes: bool,
    /// Whether that needs no new session: this end has records of the interrupted one.
    pub(super) keeps_records: bool,
    /// Whether it resumes one of an earlier process.
    pub(super) is_resumed: bool,
    /// Whether receivers never reply.
    pub(super) is_one_way: bool,
}

/// Validates a job, and opens its socket or its application at a node.
pub(super) fn open<W: Errand>(job: &mut Job<W>) -> Result<Opened> {
    let waker = rt::Waker::new().context("cannot start")?;
    if let Some(mut node) = job.node.take() {
        let socket = node.socket().display().to_string();
        plan_put(job, node.cfdp())?;
        let receives = receives(job, node.cfdp());
        let (store, place) = job.open_store(&socket, false, &waker)?;
        let runner = Runner::Node(Box::new(node.run_with(store, waker, TICK, receives)?));
        return Ok(Opened {
            runner,
            place,
            resumes: false,
            keeps_records: job.wish.put().is_some(),
            is_resumed: false,
            is_one_way: false,
        });
    }
    let (mut configuration, path) = configuration(job)?;
    if let Some(config) = configuration.cfdp() {
        plan_put(job, config)?;
    }
    let resumes = configuration.resumes();
    let is_one_way = configuration.membership().is_some_and(|group| group.is_one_way());
    let (store, place) = job.open_store(&job.ends.to.to_string(), resumes, &waker)?;
    let transport = configuration.build(rt::entropy().context("no entropy")?);
    let settings = rt::Config {
        peers_max: configuration.peer_ports(),
        tick: TICK,
        udp_lite: super::udp_lite(&job.options, true),
        ..rt::Config::new(job.ends.listen, path)
    };
    let mut driver = super::open(settings, transport, store, waker)?;
    job.options.contacts.follow(
        &mut driver,
        configuration.number().or(job.ends.entity).unwrap_or(1),
        Some(job.ends.next()),
        job.options.light_time(),
    )?;
    connect(&mut driver, &job.ends, configuration.peer_ports() > 0)?;
    let runner = Runner::Socket(Box::new(driver));
    let is_resumed = resumes && place.is_resumed();
    let keeps_records = resumes || job.wish.put().is_some();
    Ok(Opened { runner, place, resumes, keeps_records, is_resumed, is_one_way })
}

/// The configuration of this end, and facts of its only path.
fn configuration(job: &Job<impl Errand>) -> Result<(Box<dyn Configuration>, engine::PathInfo)> {
    let Job { options, ends, wish, .. } = job;
    ensure!(ends.to.port() != 0, "address {}: port 0 is not a port to send to", ends.to);
    // A file is deleted at its sender only if it arrived undamaged.
    ensure!(!wish.moves() || !options.udp_lite, "--give and --take cannot be used with --udp-lite");
    ensure!(
        !wish.moves() || options.protocol.kind.is_reliable(),
        "--give needs replies, and {} has none; use --protocol saratoga",
        options.protocol
    );
    let role = Role::Client { keeps: wish.keeps() };
    let (mut configuration, mut path) =
        configured(options, ends.to, ends.entity, 1, Some(ends.next()), role)?;
    ensure!(
        ends.via.is_none() || configuration.number() != ends.via,
        "this end and --via are both {}; give this end another number with --entity",
        ends.next()
    );
    let peer = PathId(0);
    configuration.set_path(ends.next(), peer);
    if let Some(routing) = configuration.relaying() {
        let to = [(ends.remote_entity, ends.next())].into();
        *routing = Routing::Static { to, otherwise: Otherwise::Nowhere };
    }
    if let Some(membership) = configuration.membership() {
        if ends.group.is_some() {
            membership.join(peer);
        }
        let is_send = wish.groups().is_some();
        let loss = is_send.then(|| losses::remembered(&ends.to.to_string())).flatten();
        if let Some((loss, segments)) = loss {
            membership.set_earlier_loss(loss, segments);
        }
    }
    if let Some(groups) = wish.groups() {
        groups.send_one_way(configuration.as_mut(), &options.protocol)?;
        let checked = configuration.check(&options.protocol);
        checked.map_err(|error| super::within(options, error.into()))?;
    }
    let named = super::named_peers(configuration.as_mut(), options)?;
    if let Some((_, name)) = named.into_iter().find(|(address, _)| *address == ends.to) {
        let rate = configuration.named_peers().and_then(|peers| peers.apply_to(peer, &name));
        path.rate_bps = rate.or(path.rate_bps).filter(|rate| *rate > 0);
    }
    Ok((configuration, path))
}

/// Plans the request to a CFDP entity.
fn plan_put(job: &mut Job<impl Errand>, config: &mut cfdp::Config) -> Result<()> {
    let remote = job.ends.remote_entity;
    ensure!(
        config.entity != remote,
        "this end and --remote-entity are both {remote}; the two ends need numbers of their own"
    );
    job.wish.plan_put(job.options.protocol.kind, remote, config)
}

/// Which bundles the entity at a node needs.
fn receives(job: &Job<impl Errand>, config: &cfdp::Config) -> Receives {
    let is_answered = job.wish.put().is_some_and(|put| {
        put.closure.unwrap_or(config.remote(put.destination).closure) || is_acknowledged(put)
    });
    // Without replies, another entity may have the endpoint.
    if is_answered { Receives::Answers } else { Receives::Nothing }
}

/// Makes the peer the first path of a driver.
pub(super) fn connect(driver: &mut Driver, ends: &Ends, has_ports: bool) -> Result<()> {
    let no_way = || format!("there is no way to {}", ends.to);
    let path = match ends.group {
        Some(group) => crate::sockets::peers::join(driver, group)?,
        // The peer may send from other ports than the one it listens on.
        None if has_ports => {
            rt::route_mtu(ends.to).with_context(no_way)?;
            driver.add_peer(ends.to)
        }
        None => driver.connect_peer(ends.to).with_context(no_way)?,
    };
    ensure!(path == PathId(0), "the only peer has another number than the first");
    Ok(())
}

/// The one transfer of this command.
struct Client {
    options: Options,
    ends: Ends,
    wish: Wish,
    screen: Screen,
    bar: Bar,
    timeout: Option<Time>,
    phase: Phase,
    /// File bytes that this process moved.
    moved: u64,
    /// Whether the same command resumes an interrupted transfer.
    resumes: bool,
    /// Whether that needs no new session: this end has records of the interrupted one.
    keeps_records: bool,
    resumed: bool,
    /// Bytes that the receiver of a resumed file had by its first report.
    had: Option<u64>,
    watch: Watch,
    /// Reason why a PDU was not carried, if one was not.
    lost: Option<&'static str>,
    /// Loss of segments to the peer, and the number of segments that it was measured with.
    loss: Option<(f64, f64)>,
    /// Whether the peer confirmed the delivery of a file.
    is_proven: bool,
}

/// Phase of the command.
enum Phase {
    /// The records of an earlier process are being read.
    Loading,
    /// The transfer is under way.
    Active(TransferId),
    /// It is over; requests of the peer are replied to meanwhile.
    Over(Result<bool>, Linger, Time),
    /// It was given up here, for this reason; the peer is informed until then.
    Stopped(Option<TransferId>, String, Time),
    /// The request is invalid.
    Refused(String),
}

impl Client {
    fn new(job: Job, now: Time, is_quick: bool) -> Self {
        let Job { options, ends, wish, timeout, node: _ } = job;
        let screen = Screen::new(options.json);
        let serve = if wish.is_send() { "" } else { " --serve" };
        let watch = Watch::new(ends.to, &options, wish.put(), serve, is_quick);
        let resumes = options.protocol.kind.adapter().resumes(options.protocol.kind);
        let bar = match &wish {
            Wish::Send(_) | Wish::Get { .. } => screen.bar(wish.remote(), None),
            Wish::List(_) | Wish::Delete(_) => ProgressBar::hidden(),
        };
        Self {
            options,
            ends,
            wish,
            screen,
            bar: Bar::new(bar, now),
            timeout: timeout.map(|timeout| now + timeout.duration()),
            phase: Phase::Loading,
            moved: 0,
            resumes,
            keeps_records: false,
            resumed: false,
            had: None,
            watch,
            lost: None,
            loss: None,
            is_proven: false,
        }
    }

    fn on(
        &mut self,
        now: Time,
        transport: &mut dyn Transport,
        event: rt::Event<Event>,
    ) -> rt::Control {
        match event {
            rt::Event::Tick => {
                let expects = self.expects_replies(transport);
                self.watch.observe(now, transport, expects, &self.screen);
                let loss = transport.groups().and_then(|groups| groups.loss());
                self.loss = loss.or(self.loss);
                self.progress(now, transport);
                if self.active().is_some() {
                    self.watch.check(now, &self.screen);
                }
            }
            rt::Event::Refused(address) => {
                if self.active().is_some() {
                    self.watch.on_refused(address, &self.screen);
                }
            }
            // Another port of the only peer.
            rt::Event::NewPeer { .. } => {}
            rt::Event::Contact(contact) => {
                let is_last = self.watch.on_contact(now, contact, &self.screen);
                if is_last && matches!(self.phase, Phase::Loading | Phase::Active(_)) {
                    self.phase = Phase::Stopped(self.active().cloned(), NO_CONTACT.to_owned(), now);
                }
            }
            rt::Event::Indication(event) => self.event(now, transport, event),
        }
        if matches!(self.phase, Phase::Loading) && transport.is_ready() {
            self.begin(now, transport);
        }
        if self.timeout.is_some_and(|timeout| now >= timeout) {
            self.give_up(now, transport);
        }
        let stays = match &self.phase {
            Phase::Loading | Phase::Active(_) => true,
            Phase::Over(_, linger, since) => linger.lasts(*since, now, transport),
            Phase::Stopped(_, _, until) => now < *until && !transport.transfers().is_empty(),
            Phase::Refused(_) => false,
        };
        if stays { rt::Control::Continue } else { rt::Control::Stop }
    }

    /// Begins the transfer, or resumes an interrupted one.
    fn begin(&mut self, now: Time, transport: &mut dyn Transport) {
        match self.request(now, transport) {
            Ok(id) => {
                self.bar.began = now;
                let verb = if self.resumed { "resuming" } else { self.wish.verb() };
                let local = self.wish.put().map(|_| self.wish.local().display().to_string());
                let title = local.as_deref().unwrap_or(self.wish.remote());
                self.screen.print(format_args!("{id}: {verb} {title}"));
                self.phase = Phase::Active(id);
            }
            Err(error) => self.phase = Phase::Refused(format!("{error:#}")),
        }
    }

    fn request(&self, now: Time, transport: &mut dyn Transport) -> Result<TransferId> {
        let peer = PathId(0);
        let request = |name: &str, remote: &str| -> Result<SendRequest> {
            let (kind, source) = (self.options.protocol.kind, FileName::file(name)?);
            let group = self.ends.group.map(|_| peer);
            let request = SendRequest::new(source, remote, self.ends.remote_entity, kind);
            Ok(SendRequest { group, ..request })
        };
        let id = match &self.wish {
            Wish::Send(file) => {
                if let Some(put) = &file.put {
                    let entity = transport.cfdp_mut().context("it has no entity")?;
                    return Ok(entity.put(now, put.clone())?.into());
                }
                let messages = file.groups.command.iter().map(|text| text.clone().into()).collect();
                let request = request(&file.name, &file.remote)?;
                let request = SendRequest { asks_first: file.directories.ask, messages, ..request };
                transport.send(now, &request)
            }
            Wish::Get { remote, name, takes, .. } => {
                let request = SendRequest { takes: *takes, ..request(name, remote)? };
                directories(transport)?.fetch(now, &request)
            }
            Wish::List(directory) => directories(transport)?.list(now, peer, directory),
            Wish::Delete(file) => directories(transport)?.delete(now, peer, file),
        };
        Ok(id?)
    }

    /// Ends the transfer when its time is over.
    fn give_up(&mut self, now: Time, transport: &mut dyn Transport) {
        if !matches!(self.phase, Phase::Loading | Phase::Active(_)) {
            return;
        }
        let (id, mut until) = (self.active().cloned(), now);
        if let Some(id) = self.to_cancel() {
            transport.cancel(now, &id);
            until = now + LINGER;
        }
        self.phase = Phase::Stopped(id, "timeout".to_owned(), until);
    }

    fn event(&mut self, now: Time, transport: &dyn Transport, event: Event) {
        match transport.reported(event) {
            Event::Ended(mut ended) if self.active() == Some(&ended.id) => {
                // The next hop confirms the file; its delivery beyond is not reported.
                ended.is_confirmed &= self.ends.via.is_none();
                let is_alone = self.watch.is_quick && self.ends.group.is_none();
                self.is_proven |=
                    self.wish.is_send() && is_alone && ended.is_success() && ended.is_confirmed;
                let linger = self.linger(transport);
                let printed = self.print_end(now, transport, &ended);
                if ended.is_success() && !linger.until_idle && linger.time >= ANNOUNCED {
                    self.screen.print(format_args!(
                        "delivered; repeating the last acknowledgement for {} if asked (ctrl-C is \
                         safe)",
                        Span(linger.time)
                    ));
                }
                self.phase = Phase::Over(printed, linger, now);
            }
            Event::Abandoned { why, .. } => {
                self.phase = Phase::Stopped(self.active().cloned(), why, now);
            }
            Event::Restored(transfers) => self.resumed = transfers > 0,
            Event::Receiving(Reception { resumed, size, .. }) => {
                self.moved = 0;
                if resumed > 0 {
                    let (have, size) = (show::bytes(resumed as f64), size.unwrap_or_default());
                    let size = show::bytes(size as f64);
                    self.screen.print(format_args!("going on: {have} of {size} are here"));
                }
            }
            Event::Listing(entries) => {
                if let Err(error) = listing::print(&entries, self.options.json) {
                    self.phase = Phase::Over(Err(error), Linger::NONE, now);
                }
            }
            Event::Lost(why) => self.lost = Some(why),
            Event::Notice(text) => self.screen.print(text),
            Event::Warning(text) => tracing::warn!("{text}"),
            Event::Log(text) => tracing::debug!("{text}"),
            Event::Relay(indication) => self.screen.print(routes::words(&indication)),
            // Only receivers get these.
            Event::Ended(_)
            | Event::Message { .. }
            | Event::Repeated { .. }
            | Event::NoRoom { .. }
            | Event::Continued(_)
            | Event::Begins(_)
            | Event::Latency(..)
            | Event::Entity(_)
            | Event::Stream(_)
            | Event::Left
            | Event::Update => {}
        }
    }

    /// Time to stay and reply to a peer that may have missed the last message.
    fn linger(&self, transport: &dyn Transport) -> Linger {
        let given = match &self.wish {
            Wish::Send(file) => file.cfdp.linger,
            _ => None,
        };
        let light = self.options.light_time();
        linger(transport, self.wish.put(), given, light, self.watch.is_quick)
    }

    /// Prints the outcome; returns whether the request succeeded.
    fn print_end(&self, now: Time, transport: &dyn Transport, ended: &Ended) -> Result<bool> {
        self.bar.clear();
        let id = &ended.id;
        let whole = ended.size.saturating_sub(ended.resumed.max(self.had.unwrap_or(0)));
        let resent = self.resent(transport).map(|resent| resent.min(ended.size));
        let moved = self.moved_by_entity(transport).or(resent);
        let moved = moved.unwrap_or(if ended.is_success() { whole } else { self.moved });
        let measures = Measures {
            peer: self.ends.peer_address(),
            elapsed: Some(now.since(self.bar.began)),
            moved,
            datagrams: transport.counters().datagrams,
            resumed: self.resumed,
        };
        let outcome =
            Outcome::from_ended(&self.options.protocol, ended, self.wish.local(), measures);
        match (&ended.result, &self.wish, self.ends.via) {
            (Ok(()), Wish::Send(_), Some(via)) => {
                let summary = outcome.summary();
                self.screen
                    .print(format_args!("{id}: engine {via} has it, to pass it on: {summary}"));
            }
            (Ok(()), Wish::Delete(name), _) => {
                let name = name.escape_debug();
                self.screen.print(format_args!("{id}: {name} is not there any more"));
            }
            (Ok(()), Wish::List(_), _) => return Ok(true),
            (Ok(()), Wish::Send(_) | Wish::Get { .. }, _) | (Err(_), ..) => {
                if let Some(why) = self.lost.filter(|_| !ended.is_success()) {
                    self.screen.print(why);
                }
                let next = if ended.is_success() { "" } else { self.next(true) };
                self.screen.print(outcome.line(ended) + next);
            }
        }
        self.print_details(ended);
        let is_there = ended.is_success() && ended.is_confirmed;
        if is_there && matches!(&self.wish, Wish::Send(file) if file.directories.give) {
            let path = self.wish.local();
            std::fs::remove_file(&path)
                .with_context(|| format!("cannot delete {}", path.display()))?;
        }
        if self.options.json {
            outcome.print()?;
        }
        Ok(ended.is_success())
    }

    /// Prints what a CFDP entity reports along with the end.
    fn print_details(&self, ended: &Ended) {
        let Some(finished) = &ended.transaction else { return };
        let refusal = finished.store_refusal();
        if finished.file_status == FileStatus::FilestoreRejection && refusal.is_none() {
            // Other implementations do not send the reason.
            self.screen.print(
                "the receiver could not store the file: no space left, a folder that does not \
                 exist there, or a name it refuses; its output has the reason",
            );
        }
        let requested = usize::from(refusal.is_some());
        for response in finished.filestore_responses.iter().skip(requested) {
            self.screen.print(put::described(response));
        }
    }

    fn progress(&mut self, now: Time, transport: &dyn Transport) {
        if self.active().is_none() {
            return;
        }
        // Another session than the first may send a block, for instance through other engines.
        let transfers = transport.transfers();
        let known = transfers.iter().find(|report| self.active() == Some(&report.id));
        let Some(report) = known.or(transfers.first()) else { return };
        let resent = self.resent(transport);
        let sent = resent.unwrap_or(report.bytes);
        self.moved = self.moved_by_entity(transport).unwrap_or(sent);
        if self.resumed && resent.is_none() && self.had.is_none() && report.bytes > 0 {
            self.had = Some(report.bytes);
        }
        let is_whole = self.wish.is_send() && report.size == Some(report.bytes);
        let wait = report.wait.or(is_whole.then_some("waiting for the receiver"));
        self.bar.learn(report);
        self.bar.show(
            now,
            &Shown {
                moved: sent,
                confirmed: report.confirmed,
                here: self.moved,
                wait: wait.filter(|_| !self.resumed),
                reach: match self.watch.is_answered {
                    // The peer requests what it misses, so the remaining size is unknown here.
                    _ if is_whole && self.resumed => Reach::Unknown,
                    true => Reach::Known,
                    false => Reach::NoReply,
                },
            },
        );
    }

    /// File bytes that a CFDP entity moved. After a resume, this process sends only
    /// retransmissions.
    fn moved_by_entity(&self, transport: &dyn Transport) -> Option<u64> {
        self.wish.put()?;
        let stats = transport.cfdp()?.entity().stats();
        Some(stats.data_bytes + if self.resumed { stats.repair_bytes } else { 0 })
    }

    /// Bytes that this process has sent of a file that an earlier one began to send.
    fn resent(&self, transport: &dyn Transport) -> Option<u64> {
        transport.counters().repair_bytes.filter(|_| self.resumed)
    }

    /// Whether the peer replies to what is sent.
    fn expects_replies(&self, transport: &dyn Transport) -> bool {
        let (protocol, is_group) = (&self.options.protocol, self.ends.group.is_some());
        !self.wish.is_send() || expects_replies(transport, protocol, self.wish.put(), is_group)
    }

    /// The transfer that is under way.
    fn active(&self) -> Option<&TransferId> {
        match &self.phase {
            Phase::Active(id) => Some(id),
            Phase::Loading | Phase::Over(..) | Phase::Stopped(..) | Phase::Refused(_) => None,
        }
    }

    /// Transfer to cancel at the peer if this process ends now; `None` if the same command resumes
    /// it.
    fn to_cancel(&self) -> Option<TransferId> {
        self.active().filter(|_| !self.keeps_records).cloned()
    }

    /// Clause about running the same command again. A CFDP transaction or LTP session that has
    /// ended (`is_over`) cannot be resumed.
    fn next(&self, is_over: bool) -> &'static str {
        // Receivers of groups keep what they have, so their senders do.
        let is_forgotten = self.keeps_records && !self.options.protocol.kind.has(Feature::Groups);
        let resumes = self.resumes && !(is_over && is_forgotten);
        match self.wish {
            Wish::Send(_) | Wish::Get { .. } if resumes => "; the same command resumes",
            Wish::Send(_) | Wish::Get { .. } => "; the same command sends all of it again",
            Wish::List(_) | Wish::Delete(_) => "",
        }
    }

    /// Exit code; reports a transfer that did not end.
    fn end(self) -> Result<ExitCode> {
        self.bar.clear();
        let next = self.next(false);
        let (id, why) = match self.phase {
            Phase::Over(printed, ..) => return printed.map(|good| Exit::if_succeeded(good).into()),
            Phase::Refused(why) => return Err(crate::Usage(why).into()),
            Phase::Stopped(id, why, _) => (id, why),
            Phase::Loading => (None, "stopped".to_owned()),
            Phase::Active(id) => (Some(id), "stopped".to_owned()),
        };
        self.screen.print(format_args!("not finished: {why}{next}"));
        if self.options.json {
            let (file, remote) = (self.wish.local(), self.wish.remote().to_owned());
            let (protocol, is_send) = (&self.options.protocol, self.wish.is_send());
            let file_bytes = size(&file);
            let outcome = Outcome::given_up(protocol, is_send, id.as_ref(), file, remote, &why);
            outcome
                .after(Some(self.ends.remote_entity), file_bytes, self.moved)
                .at_address(self.ends.peer_address())
                .print()?;
        }
        Ok(Exit::Failed.into())
    }
}

/// Time to stay and reply to a peer that may have missed the last message. `put` is the request to
/// a CFDP entity, if there is one, `given` the user's choice, `light` the one-way light time.
pub(super) fn linger(
    transport: &dyn Transport,
    put: Option<&PutRequest>,
    given: Option<Span>,
    light: Duration,
    is_quick: bool,
) -> Linger {
    let usual = Linger { time: LINGER.max(6 * light), until_idle: true };
    let Some(put) = put else { return usual };
    let given = given.map(Span::duration);
    let time = match (is_acknowledged(put), replies_below(transport)) {
        // A node sends what it holds without this process.
        _ if !is_quick => given.unwrap_or_default(),
        // Until the ACK of the Finished PDU is sent.
        (true, _) if given.is_none() && 6 * light > CFDP_LINGER => {
            return Linger { time: LINGER, until_idle: true };
        }
        (true, _) => given.unwrap_or(CFDP_LINGER),
        // The layer below has to send its last message, which may be requested again.
        (false, true) => given.unwrap_or(LINGER.max(6 * light)),
        (false, false) => Duration::ZERO,
    };
    Linger { time, until_idle: false }
}

fn directories(transport: &mut dyn Transport) -> Result<&mut dyn Directories> {
    transport.directories().context("it has no directories")
}

fn size(path: &Path) -> u64 {
    path.metadata().map_or(0, |metadata| metadata.len())
}
