//! Capture of hosts' packets in pcapng files, with the fate of each packet.
//!
//! The thread of the links sends copies to a thread that writes, without waiting for it. Packets
//! for which there is no room are counted and dropped.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use crossbeam_channel::{Receiver, Sender};
use engine::Time;
use pcap::{Direction, LinkType, Writer};

/// Maximum bytes of events that wait for the writing thread.
const EVENTS_MAX: usize = 64 << 20;
/// Maximum bytes of packets that wait for the fate of an earlier one; further packets are written
/// without it.
const WAITING_MAX: usize = 64 << 20;

/// Limits of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaptureLimits {
    /// Bytes per file, after which a new one is started.
    pub file: u64,
    /// Files per host; the oldest is removed for a new one.
    pub files: usize,
}

impl Default for CaptureLimits {
    /// Returns 8 files of 256 MiB.
    fn default() -> Self {
        Self { file: 256 << 20, files: 8 }
    }
}

/// Result of a capture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CaptureReport {
    /// Remaining files, oldest first.
    pub files: Vec<PathBuf>,
    /// Packets written.
    pub packets: u64,
    /// Packets dropped because the disk was too slow and 64 MiB were queued.
    pub missed: u64,
}

/// A captured device.
#[derive(Clone, Debug)]
pub(crate) struct Device {
    pub(crate) host: String,
    pub(crate) name: String,
}

/// Event at a device.
#[derive(Debug)]
enum Event {
    /// A packet was sent over this many links, whose decisions are open.
    Sent {
        device: usize,
        at: Time,
        bytes: Vec<u8>,
        open: Vec<(usize, u64)>,
        refused: Vec<String>,
    },
    /// The fate of a link's packet is decided.
    Decided {
        link: usize,
        number: u64,
        says: Option<String>,
    },
    Received {
        device: usize,
        at: Time,
        bytes: Vec<u8>,
        says: Option<&'static str>,
    },
    /// The wall clock at [`Time::ZERO`] changes.
    Epoch(Time),
}

impl Event {
    /// Memory used by the event.
    fn bytes(&self) -> usize {
        let more = match self {
            Self::Sent { bytes, open, refused, .. } => {
                let says: usize = refused.iter().map(String::capacity).sum();
                bytes.capacity() + open.capacity() * size_of::<(usize, u64)>() + says
            }
            Self::Decided { says, .. } => says.as_ref().map_or(0, String::capacity),
            Self::Received { bytes, .. } => bytes.capacity(),
            Self::Epoch(_) => 0,
        };
        size_of::<Self>() + more
    }
}

/// The links' side of a capture.
#[derive(Debug)]
pub(crate) struct Tap {
    events: Sender<Event>,
    /// Bytes of the waiting events.
    waiting: Arc<AtomicUsize>,
    /// Whether each device is captured.
    devices: Vec<bool>,
    missed: u64,
    thread: JoinHandle<io::Result<CaptureReport>>,
}

impl Tap {
    /// Starts a capture of the devices in `files`, in files below `folder`. `epoch` is the wall
    /// clock at [`Time::ZERO`].
    pub(crate) fn start(
        devices: Vec<Option<Device>>,
        folder: &Path,
        limits: CaptureLimits,
        epoch: SystemTime,
    ) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let wanted = devices.iter().map(Option::is_some).collect();
        // The queue is bounded by the memory of its events, not by their number.
        let (sender, receiver) = crossbeam_channel::unbounded();
        let recorder = Recorder::new(devices, folder, limits, time_of_day(epoch))?;
        let waiting = Arc::new(AtomicUsize::new(0));
        let taken = Arc::clone(&waiting);
        let thread = std::thread::Builder::new().name("capture".to_owned());
        let thread = thread.spawn(move || recorder.run(&receiver, &taken))?;
        Ok(Self { events: sender, waiting, devices: wanted, missed: 0, thread })
    }

    pub(crate) fn wants(&self, device: usize) -> bool {
        self.devices[device]
    }

    /// Records a packet that a device sent at `at`, with its number on each link that accepted it.
    pub(crate) fn sent(
        &mut self,
        device: usize,
        at: Time,
        bytes: Vec<u8>,
        open: Vec<(usize, u64)>,
        refused: Vec<String>,
    ) {
        self.tell_of_packet(Event::Sent { device, at, bytes, open, refused });
    }

    /// Records the fate of a link's packet; `None` if it will arrive unchanged.
    pub(crate) fn decided(&mut self, link: usize, number: u64, says: Option<String>) {
        // If there is no room, the next decision implies that this one is missing.
        let _ = self.queue(Event::Decided { link, number, says }, EVENTS_MAX);
    }

    /// Records a packet that a device received at `at`; `says` describes anything unusual.
    pub(crate) fn received(
        &mut self,
        device: usize,
        at: Time,
        bytes: Vec<u8>,
        says: Option<&'static str>,
    ) {
        self.tell_of_packet(Event::Received { device, at, bytes, says });
    }

    /// Restarts the world's time at this time of the wall clock.
    pub(crate) fn begin(&mut self, epoch: SystemTime) {
        // A single event, on which all later ones depend.
        let _ = self.queue(Event::Epoch(time_of_day(epoch)), usize::MAX);
    }

    fn tell_of_packet(&mut self, event: Event) {
        if !self.queue(event, EVENTS_MAX) {
            self.missed += 1;
        }
    }

    /// Queues an event, unless more than `most` bytes would wait. Returns whether it was queued.
    fn queue(&self, event: Event, most: usize) -> bool {
        let bytes = event.bytes();
        if self.waiting.load(Ordering::Relaxed) > most.saturating_sub(bytes) {
            return false;
        }
        self.waiting.fetch_add(bytes, Ordering::Relaxed);
        self.events.send(event).is_ok()
    }

    /// Ends the capture; the result is available when everything is written.
    pub(crate) fn finish(self) -> Finished {
        Finished { thread: self.thread, missed: self.missed }
    }
}

fn time_of_day(at: SystemTime) -> Time {
    Time::ZERO + at.duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Capture whose remaining data is being written.
#[derive(Debug)]
pub(crate) struct Finished {
    thread: JoinHandle<io::Result<CaptureReport>>,
    missed: u64,
}

impl Finished {
    pub(crate) fn wait(self) -> io::Result<CaptureReport> {
        let report = self.thread.join().map_err(|_| io::Error::other("the capture failed"))??;
        Ok(CaptureReport { missed: self.missed, ..report })
    }
}

/// The writing side.
struct Recorder {
    hosts: Vec<HostFile>,
    /// For each device, its host's file and its interface number there.
    devices: Vec<Option<(usize, u32)>>,
    /// For each link, the undecided packets: number, host's file, position in its queue.
    open: Vec<VecDeque<(u64, usize, u64)>>,
    epoch: Time,
}

/// Files of one host.
struct HostFile {
    folder: PathBuf,
    name: String,
    interfaces: Vec<String>,
    limits: CaptureLimits,
    writer: Writer<BufWriter<File>>,
    written: u64,
    number: u32,
    files: VecDeque<PathBuf>,
    packets: u64,
    waiting: VecDeque<Waiting>,
    waiting_bytes: usize,
    /// Number of records already removed from the front of `waiting`.
    gone: u64,
}

struct Waiting {
    interface: u32,
    at: Time,
    direction: Direction,
    bytes: Vec<u8>,
    /// Links whose decision is open.
    open: usize,
    says: Vec<String>,
}

impl Waiting {
    /// Memory of a waiting packet.
    fn bytes(bytes: &[u8]) -> usize {
        size_of::<Self>() + bytes.len()
    }
}

impl Recorder {
    fn new(
        devices: Vec<Option<Device>>,
        folder: &Path,
        limits: CaptureLimits,
        epoch: Time,
    ) -> io::Result<Self> {
        let mut names: Vec<(String, Vec<String>)> = Vec::new();
        let mut places = Vec::new();
        for device in devices {
            places.push(device.map(|device| {
                let known = names.iter().position(|(host, _)| *host == device.host);
                let host = known.unwrap_or_else(|| {
                    names.push((device.host.clone(), Vec::new()));
                    names.len() - 1
                });
                let interfaces = &mut names[host].1;
                interfaces.push(device.name);
                (host, interfaces.len() as u32 - 1)
            }));
        }
        let file = |(name, interfaces)| HostFile::create(folder, name, interfaces, limits);
        let hosts = names.into_iter().map(file).collect::<io::Result<_>>()?;
        Ok(Self { hosts, devices: places, open: Vec::new(), epoch })
    }

    /// Handles events, and subtracts their size from `waiting`.
    fn run(mut self, events: &Receiver<Event>, waiting: &AtomicUsize) -> io::Result<CaptureReport> {
        for event in events {
            let bytes = event.bytes();
            self.take(event)?;
            waiting.fetch_sub(bytes, Ordering::Relaxed);
        }
        let mut report = CaptureReport::default();
        for mut host in self.hosts {
            host.write_waiting(0)?;
            host.writer.flush()?;
            report.packets += host.packets;
            report.files.extend(host.files);
        }
        Ok(report)
    }

    fn take(&mut self, event: Event) -> io::Result<()> {
        let (device, at, direction, bytes, open, says) = match event {
            Event::Sent { device, at, bytes, open, refused } => {
                (device, at, Direction::Out, bytes, open, refused)
            }
            Event::Received { device, at, bytes, says } => {
                let says = says.iter().map(|says| (*says).to_owned()).collect();
                (device, at, Direction::In, bytes, Vec::new(), says)
            }
            Event::Epoch(epoch) => {
                self.epoch = epoch;
                return Ok(());
            }
            Event::Decided { link, number, says } => {
                return self.decide(link, number, says.as_deref());
            }
        };
        let Some((host, interface)) = self.devices[device] else { return Ok(()) };
        let file = &mut self.hosts[host];
        let place = file.gone + file.waiting.len() as u64;
        for &(link, number) in &open {
            if self.open.len() <= link {
                self.open.resize_with(link + 1, VecDeque::new);
            }
            self.open[link].push_back((number, host, place));
        }
        let at = self.epoch + at.since(Time::ZERO);
        file.waiting_bytes += Waiting::bytes(&bytes);
        let open = open.len();
        file.waiting.push_back(Waiting { interface, at, direction, bytes, open, says });
        file.write_waiting(WAITING_MAX)
    }

    /// Records a decision. Dropped packets and packets sent before the capture have no record;
    /// missing decisions precede this one.
    fn decide(&mut self, link: usize, number: u64, says: Option<&str>) -> io::Result<()> {
        let Some(open) = self.open.get_mut(link) else { return Ok(()) };
        while let Some(&(decided, host, place)) =
            open.front().filter(|(first, ..)| *first <= number)
        {
            open.pop_front();
            let file = &mut self.hosts[host];
            let index = place.checked_sub(file.gone).and_then(|index| usize::try_from(index).ok());
            if let Some(record) = index.and_then(|index| file.waiting.get_mut(index)) {
                record.open = record.open.saturating_sub(1);
                if decided == number {
                    record.says.extend(says.map(str::to_owned));
                } else {
                    record.says.push("what became of it was not recorded".to_owned());
                }
            }
            file.write_waiting(WAITING_MAX)?;
        }
        Ok(())
    }
}

impl HostFile {
    fn create(
        folder: &Path,
        name: String,
        interfaces: Vec<String>,
        limits: CaptureLimits,
    ) -> io::Result<Self> {
        let path = folder.join(format!("{name}.pcapng"));
        let writer = begin(&path, &interfaces)?;
        Ok(Self {
            folder: folder.to_owned(),
            name,
            interfaces,
            limits,
            writer,
            written: 0,
            number: 1,
            files: VecDeque::from([path]),
            packets: 0,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            gone: 0,
        })
    }

    /// Writes complete records in order of time, and incomplete ones until at most `keep` bytes
    /// wait.
    fn write_waiting(&mut self, keep: usize) -> io::Result<()> {
        while let Some(record) = self.waiting.front()
            && (record.open == 0 || self.waiting_bytes > keep)
        {
            let Some(record) = self.waiting.pop_front() else { break };
            self.gone += 1;
            self.waiting_bytes -= Waiting::bytes(&record.bytes);
            self.write(record)?;
        }
        Ok(())
    }

    fn write(&mut self, mut record: Waiting) -> io::Result<()> {
        if record.open > 0 {
            record.says.push("its fate was open when this was written".to_owned());
        }
        // A block has 32 bytes around the packet, and options.
        let says = record.says.join("; ");
        let len = record.bytes.len() as u64 + says.len() as u64 + 64;
        if self.written > 0 && self.written + len > self.limits.file {
            self.rotate()?;
        }
        self.written += len;
        self.packets += 1;
        let comment = (!says.is_empty()).then_some(says.as_str());
        self.writer.packet(
            record.at,
            record.interface,
            record.direction,
            &[],
            &record.bytes,
            comment,
        )
    }

    fn rotate(&mut self) -> io::Result<()> {
        self.writer.flush()?;
        while self.files.len() >= self.limits.files.max(1) {
            let Some(oldest) = self.files.pop_front() else { break };
            match fs::remove_file(oldest) {
                // Another process may have removed it.
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        self.number += 1;
        let path = self.folder.join(format!("{}.{}.pcapng", self.name, self.number));
        self.writer = begin(&path, &self.interfaces)?;
        self.files.push_back(path);
        self.written = 0;
        Ok(())
    }
}

fn begin(path: &Path, interfaces: &[String]) -> io::Result<Writer<BufWriter<File>>> {
    let file = File::create(path)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
    let mut writer = Writer::new(BufWriter::new(file))?;
    for name in interfaces {
        writer.interface(name, LinkType::Raw)?;
    }
    Ok(writer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_decisions_do_not_block_the_capture() {
        let folder = tempfile::tempdir().unwrap();
        let device = Device { host: "near".to_owned(), name: "far".to_owned() };
        let (limits, epoch) = (CaptureLimits::default(), Time::ZERO);
        let mut recorder = Recorder::new(vec![Some(device)], folder.path(), limits, epoch).unwrap();
        for number in 0..3 {
            let (bytes, open, refused) = (vec![0x45; 20], vec![(0, number)], Vec::new());
            let at = Time::from_secs(number);
            recorder.take(Event::Sent { device: 0, at, bytes, open, refused }).unwrap();
        }
        // Fate of the first packet for which there was no room.
        let says = Some("lost on the way".to_owned());
        recorder.take(Event::Decided { link: 0, number: 1, says }).unwrap();
        assert_eq!((recorder.hosts[0].packets, recorder.hosts[0].waiting.len()), (2, 1));
        recorder.take(Event::Decided { link: 0, number: 2, says: None }).unwrap();
        recorder.hosts[0].writer.flush().unwrap();
        let file = File::open(folder.path().join("near.pcapng")).unwrap();
        let records = pcap::Reader::new(file).unwrap().map(Result::unwrap);
        let says: Vec<_> = records.map(|record| record.comment).collect();
        let says: Vec<_> = says.iter().map(Option::as_deref).collect();
        let expected = [Some("what became of it was not recorded"), Some("lost on the way"), None];
        assert_eq!(says, expected);
    }

    #[test]
    fn packets_waiting_for_the_disk_are_bounded_by_bytes() {
        let (events, receiver) = crossbeam_channel::unbounded();
        let thread = std::thread::spawn(|| Ok(CaptureReport::default()));
        let waiting = Arc::new(AtomicUsize::new(0));
        let mut tap = Tap { events, waiting, devices: vec![true], missed: 0, thread };
        let len = 60_000;
        for number in 0..2_000 {
            tap.sent(0, Time::ZERO, vec![0; len], vec![(0, number)], Vec::new());
        }
        let (kept, missed) = (receiver.len(), tap.missed as usize);
        assert_eq!(kept + missed, 2_000);
        assert!((EVENTS_MAX - 4 * len..=EVENTS_MAX).contains(&(kept * len)), "{kept} packets");
        // A small event may still fit, and so may an event required by all later events.
        tap.received(0, Time::ZERO, vec![0; 40], None);
        assert_eq!((receiver.len(), tap.missed as usize), (kept + 1, missed));
        while tap.queue(Event::Decided { link: 0, number: 0, says: None }, EVENTS_MAX) {}
        let kept = receiver.len();
        tap.begin(UNIX_EPOCH);
        assert_eq!(receiver.len(), kept + 1);
        // Taking an event makes room.
        let bytes = receiver.recv().unwrap().bytes();
        tap.waiting.fetch_sub(bytes, Ordering::Relaxed);
        tap.received(0, Time::ZERO, vec![0; 40], None);
        assert_eq!(tap.missed as usize, missed);
        tap.finish().wait().unwrap();
    }
}
