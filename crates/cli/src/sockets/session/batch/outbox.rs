//! A watched folder: what is put into it is sent, and moved to its folder `sent` after delivery.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Error, Result, bail};
use crossbeam_channel::{Receiver, Sender, TryRecvError};
use engine::{FileName, Time};
use service::monitor::Waiting;
use transport::quantity::Span;
use tree::{Entry, Kind, Modified, Patterns, Plan, Scan, ScanOptions, Settling, Skipped};

use crate::sockets::scope;

/// Folder below the watched one that gets what was delivered.
pub(super) const SENT: &str = "sent";

/// File that the sender of a folder locks.
const LOCK: &str = ".lock";

/// Minimum interval of looks at the folder.
const INTERVAL: Duration = Duration::from_secs(1);
/// Part of the time that a thread spends on looks at a large folder, as a divisor.
const SHARE: u32 = 10;

/// Bounds of the time after which something that failed is sent again.
const RETRY_MIN: Duration = Duration::from_secs(5);
const RETRY_MAX: Duration = Duration::from_secs(600);

/// Interval of attempts to move delivered files.
const MOVES_INTERVAL: Duration = Duration::from_secs(60);

/// Default of --settle.
const SETTLE: Duration = Duration::from_secs(2);

/// Options of a watched folder.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = scope::WATCHED)]
pub(crate) struct WatchOptions {
    /// Watch the folder PATH: send what is put into it, and then move it to PATH/sent, until a
    /// signal stops it
    #[arg(long, conflicts_with_all = ["dry_run", "timeout"])]
    pub(crate) watch: bool,

    /// Send what matches before everything else, e.g. urgent or "*.cmd"; repeatable, in the order
    /// of their urgency
    #[arg(long, value_name = "PATTERN", requires = "watch")]
    pub(crate) first: Vec<String>,

    /// Send a file when it has not changed for this time [default: 2 s]
    #[arg(long, value_name = "DURATION", requires = "watch")]
    pub(crate) settle: Option<Span>,

    /// Serve state and metrics by HTTP at this Unix socket: /status and /metrics
    #[arg(long, value_name = "PATH", requires = "watch")]
    pub(crate) socket: Option<PathBuf>,
}

impl WatchOptions {
    fn settle(&self) -> Duration {
        self.settle.map_or(SETTLE, |settle| settle.duration())
    }
}

/// Options that leave out names that begin with a dot, delivered files, and these patterns.
fn scan_options(exclude: &[String]) -> ScanOptions {
    let own = [".*".to_owned(), format!("{{{SENT},{SENT}/**}}")];
    ScanOptions { exclude: own.into_iter().chain(exclude.iter().cloned()).collect() }
}

/// Looks at the content of a watched folder.
fn scan(folder: &Path, options: &ScanOptions) -> Result<Scan> {
    Ok(tree::scan(&[folder.join(".")], options)?)
}

/// Content of the folder that has settled.
struct Listing {
    /// Time at which the look began.
    began: Instant,
    entries: Vec<Entry>,
    /// Lines about files that cannot be sent, the first time that they were seen.
    messages: Vec<String>,
}

/// Looks at a folder again and again, in a thread of its own.
struct Watcher {
    folder: PathBuf,
    options: ScanOptions,
    settle: Duration,
    settling: Settling,
    /// Lines of the last look.
    reported: Vec<String>,
}

impl Watcher {
    /// Runs until nobody receives its listings.
    fn run(mut self, listings: &Sender<Listing>) {
        loop {
            let began = Instant::now();
            if listings.send(self.look(began)).is_err() {
                return;
            }
            let pause = INTERVAL.min(self.settle.max(INTERVAL / 10));
            thread::sleep(pause.max(began.elapsed() * SHARE));
        }
    }

    fn look(&mut self, began: Instant) -> Listing {
        let (entries, reports) = match scan(&self.folder, &self.options) {
            Ok(Scan { entries, skipped }) => {
                // One that was moved away while the folder was listed is nothing to report.
                let is_left = |it: &&Skipped| it.path.symlink_metadata().is_ok();
                let left = skipped.iter().filter(is_left).map(ToString::to_string);
                (entries, left.collect())
            }
            Err(error) => (Vec::new(), vec![format!("the folder cannot be read: {error:#}")]),
        };
        let is_new = |text: &&String| !self.reported.contains(text);
        let messages = reports.iter().filter(is_new).cloned().collect();
        self.reported = reports;
        let entries = self.settling.settled(entries, Instant::now(), self.settle);
        Listing { began, entries, messages }
    }
}

/// Place in the queue: by class, then by age.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    class: usize,
    modified: Modified,
    name: Vec<u8>,
}

/// Earlier attempts to send a file.
#[derive(Clone, Copy, Debug)]
struct Failures {
    count: u32,
    /// Time of the next attempt.
    until: Time,
}

impl Failures {
    fn pause(self) -> Duration {
        RETRY_MIN.saturating_mul(1 << self.count.saturating_sub(1).min(10)).min(RETRY_MAX)
    }

    /// Number of files in the next pack: one that is refused must not hold up others for ever.
    fn files_max(self) -> usize {
        64 >> (2 * self.count).min(6)
    }
}

/// A watched folder, and the queue of its files.
pub(crate) struct Outbox {
    path: PathBuf,
    options: ScanOptions,
    /// Folder at the receiver.
    below: Option<Vec<u8>>,
    /// Keeps other senders from the folder.
    _lock: Option<File>,
    listings: Receiver<Listing>,
    classes: Vec<(String, Patterns)>,
    queue: BTreeMap<Rank, Entry>,
    queue_bytes: u64,
    /// Folders of the files, by name.
    folders: BTreeMap<Vec<u8>, Entry>,
    /// Files that are being sent, as they were when that began.
    under_way: BTreeMap<Vec<u8>, Entry>,
    /// Files that were delivered and could not be moved.
    unmoved: BTreeMap<Vec<u8>, Entry>,
    /// Time of the next attempt to move them.
    moves_at: Instant,
    /// Files that were moved, and when: an older listing may have them.
    moved: BTreeMap<Vec<u8>, Instant>,
    failures: BTreeMap<Vec<u8>, Failures>,
    /// Time before which nothing in the queue is due.
    idle_until: Time,
    /// Whether the last attempt failed: one pack at a time tells when the path is up again.
    pub(super) is_probing: bool,
}

impl Outbox {
    /// Opens a folder, and begins to watch it. `below` is the folder at the receiver.
    pub(super) fn open(
        path: &Path,
        options: &WatchOptions,
        exclude: &[String],
        below: Option<&FileName>,
    ) -> Result<Self> {
        let path = std::path::absolute(path)?;
        let context = || path.display().to_string();
        std::fs::create_dir_all(path.join(SENT)).with_context(context)?;
        let lock = File::create(path.join(SENT).join(LOCK)).with_context(context)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => bail!("another sender watches {}", path.display()),
            Err(TryLockError::Error(error)) => return Err(error).with_context(context),
        }
        let classes = classes(&options.first)?;
        let scan_options = scan_options(exclude);
        let watcher = Watcher {
            folder: path.clone(),
            options: scan_options.clone(),
            settle: options.settle(),
            settling: Settling::default(),
            reported: Vec::new(),
        };
        let (sender, listings) = crossbeam_channel::bounded(1);
        thread::Builder::new()
            .name("watch".to_owned())
            .spawn(move || watcher.run(&sender))
            .context("cannot start")?;
        let below = below.map(|name| name.path().as_bytes().to_vec());
        let outbox = Self::new(path, classes, scan_options, listings);
        Ok(Self { below, _lock: Some(lock), ..outbox })
    }

    fn new(
        path: PathBuf,
        classes: Vec<(String, Patterns)>,
        options: ScanOptions,
        listings: Receiver<Listing>,
    ) -> Self {
        Self {
            path,
            options,
            below: None,
            _lock: None,
            listings,
            classes,
            queue: BTreeMap::new(),
            queue_bytes: 0,
            folders: BTreeMap::new(),
            under_way: BTreeMap::new(),
            unmoved: BTreeMap::new(),
            moves_at: Instant::now(),
            moved: BTreeMap::new(),
            failures: BTreeMap::new(),
            idle_until: Time::ZERO,
            is_probing: false,
        }
    }

    /// Everything in the folder, with the names at the receiver.
    pub(super) fn scan(&self) -> Result<Scan> {
        let Scan { entries, skipped } = scan(&self.path, &self.options)?;
        Ok(Scan { entries: entries.into_iter().map(|it| self.addressed(it)).collect(), skipped })
    }

    /// Name of an entry in the folder.
    fn local_name<'a>(&self, entry: &'a Entry) -> &'a [u8] {
        let name = entry.source.strip_prefix(&self.path).unwrap_or(&entry.source);
        name.as_os_str().as_encoded_bytes()
    }

    /// Adds the name of the folder at the receiver.
    fn addressed(&self, mut entry: Entry) -> Entry {
        if let Some(below) = &self.below {
            entry.name = [below, b"/".as_slice(), &entry.name].concat();
        }
        entry
    }

    /// Class of a file: the number of the first pattern that it matches.
    fn class(&self, name: &[u8]) -> usize {
        let mut patterns = self.classes.iter().map(|(_, patterns)| patterns);
        patterns.position(|patterns| patterns.covers(name)).unwrap_or(self.classes.len())
    }

    /// Class of a pack.
    pub(super) fn class_of(&self, plan: &Plan) -> usize {
        files(plan).map(|file| self.class(self.local_name(file))).min().unwrap_or_default()
    }

    /// Handles the latest look at the folder, if there is one; returns messages about it.
    ///
    /// # Errors
    ///
    /// Nothing looks at the folder any more.
    pub(super) fn poll(&mut self) -> Result<Option<Vec<String>>> {
        let Listing { began, entries, messages } = match self.listings.try_recv() {
            Ok(listing) => listing,
            Err(TryRecvError::Empty) => return Ok(None),
            Err(TryRecvError::Disconnected) => bail!("the folder is no longer watched"),
        };
        self.moved.retain(|_, at| *at >= began);
        if began >= self.moves_at {
            self.moves_at = began + MOVES_INTERVAL;
            let delivered: Vec<Entry> = self.unmoved.values().cloned().collect();
            for file in delivered {
                // The user was informed the first time.
                let _ = self.put_away(&file);
            }
        }
        self.folders.clear();
        let mut queue = BTreeMap::new();
        for entry in entries {
            let name = self.local_name(&entry).to_vec();
            if entry.kind == Kind::Directory {
                self.folders.insert(name, entry);
                continue;
            }
            let is_taken = self.under_way.contains_key(&name) || self.moved.contains_key(&name);
            if !is_taken && self.unmoved.get(&name) != Some(&self.addressed(entry.clone())) {
                let rank = Rank { class: self.class(&name), modified: entry.modified, name };
                queue.insert(rank, entry);
            }
        }
        let known: BTreeSet<&Vec<u8>> = queue.keys().map(|rank| &rank.name).collect();
        self.failures.retain(|name, _| known.contains(name) || self.under_way.contains_key(name));
        self.queue_bytes = queue.values().map(len).sum();
        self.queue = queue;
        self.idle_until = Time::ZERO;
        Ok(Some(messages))
    }

    /// Most urgent class that has a file to send now.
    pub(super) fn due(&mut self, now: Time) -> Option<usize> {
        if now < self.idle_until {
            return None;
        }
        let is_due = |rank: &&Rank| self.failures.get(&rank.name).is_none_or(|it| it.until <= now);
        let class = self.queue.keys().find(is_due).map(|rank| rank.class);
        if class.is_none() {
            let times = self.failures.values().map(|failures| failures.until);
            self.idle_until = times.min().unwrap_or(Time::MAX);
        }
        class
    }

    /// Fewest failures of a file of this class that is due; `None` if one has not failed yet.
    fn fewest_failures(&self, now: Time, class: usize) -> Option<Failures> {
        if self.failures.is_empty() {
            return None;
        }
        let of_class = self.queue.keys().filter(|rank| rank.class == class);
        let failures = of_class.map(|rank| self.failures.get(&rank.name).copied());
        let due = failures.filter(|it| it.is_none_or(|it| it.until <= now));
        due.min_by_key(|it| it.map(|it| it.count)).flatten()
    }

    /// Takes files of one class for a pack of about `bytes_max` bytes out of the queue, with their
    /// folders.
    pub(super) fn take(&mut self, now: Time, bytes_max: u64) -> Vec<Entry> {
        let Some(class) = self.due(now) else { return Vec::new() };
        let fewest = self.fewest_failures(now, class);
        let files_max = fewest.map_or(usize::MAX, Failures::files_max);
        let (mut ranks, mut bytes) = (Vec::new(), 0_u64);
        let of_class = self.queue.iter().skip_while(|(rank, _)| rank.class < class);
        for (rank, entry) in of_class.take_while(|(rank, _)| rank.class == class) {
            let failures = self.failures.get(&rank.name);
            let is_due = failures.is_none_or(|it| it.until <= now);
            if !is_due || failures.map(|it| it.count) != fewest.map(|it| it.count) {
                continue;
            }
            bytes = bytes.saturating_add(len(entry)).saturating_add(HEADER);
            if !ranks.is_empty() && (bytes > bytes_max || ranks.len() >= files_max) {
                break;
            }
            ranks.push(rank.clone());
        }
        let mut taken = BTreeMap::new();
        for rank in ranks {
            let Some(entry) = self.queue.remove(&rank) else { continue };
            self.queue_bytes -= len(&entry);
            for above in tree::folders_above(&rank.name) {
                if let Some(folder) = self.folders.get(above) {
                    taken.entry(above.to_vec()).or_insert_with(|| self.addressed(folder.clone()));
                }
            }
            let entry = self.addressed(entry);
            self.under_way.insert(rank.name.clone(), entry.clone());
            taken.insert(rank.name, entry);
        }
        taken.into_values().collect()
    }

    /// Notes that a pack of an earlier process is being sent.
    pub(super) fn adopt(&mut self, plan: &Plan) {
        for file in files(plan) {
            self.under_way.insert(self.local_name(file).to_vec(), file.clone());
        }
    }

    /// Moves the files of a delivered pack.
    ///
    /// # Errors
    ///
    /// A file could not be moved. It is not sent again.
    pub(super) fn deliver(&mut self, plan: &Plan) -> Result<()> {
        self.is_probing = false;
        let mut first = Ok(());
        for file in files(plan) {
            let name = self.local_name(file).to_vec();
            self.under_way.remove(&name);
            self.failures.remove(&name);
            self.unmoved.insert(name, file.clone());
            first = first.and(self.put_away(file));
        }
        first
    }

    /// Whether files of a delivered pack have not been moved yet.
    pub(super) fn has_unmoved(&self, plan: &Plan) -> bool {
        files(plan).any(|file| self.unmoved.get(self.local_name(file)) == Some(file))
    }

    /// Moves a delivered file, unless it has changed and is to be sent again.
    fn put_away(&mut self, file: &Entry) -> Result<()> {
        let name = self.local_name(file).to_vec();
        if file.refreshed().as_ref() == Some(file) {
            match tree::move_to(&self.path, &name, SENT) {
                Ok(()) => {
                    self.moved.insert(name.clone(), Instant::now());
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => {
                    let name = String::from_utf8_lossy(&name).escape_debug().to_string();
                    let text = format!("{name} was delivered and cannot be moved to {SENT}");
                    return Err(Error::new(error).context(text));
                }
            }
        }
        self.unmoved.remove(&name);
        Ok(())
    }

    /// Notes that a pack failed; returns the time until the next attempt.
    pub(super) fn fail(&mut self, now: Time, plan: &Plan) -> Duration {
        self.is_probing = true;
        let mut longest = Duration::ZERO;
        for file in files(plan) {
            let name = self.local_name(file).to_vec();
            self.under_way.remove(&name);
            let earlier = self.failures.get(&name).map_or(0, |failures| failures.count);
            let failures = Failures { count: earlier + 1, until: now };
            let pause = failures.pause();
            longest = longest.max(pause);
            self.failures.insert(name, Failures { until: now + pause, ..failures });
        }
        longest
    }

    /// Files that wait, by class.
    pub(crate) fn waiting(&self) -> Vec<Waiting> {
        let names = self.classes.iter().map(|(pattern, _)| pattern.clone());
        let names = names.chain([OTHERS.to_owned()]);
        let mut waiting: Vec<Waiting> =
            names.map(|class| Waiting { class, files: 0, bytes: 0 }).collect();
        for (rank, entry) in &self.queue {
            if let Some(class) = waiting.get_mut(rank.class) {
                class.files += 1;
                class.bytes += len(entry);
            }
        }
        waiting
    }

    /// Bytes of the files that wait.
    pub(super) fn bytes(&self) -> u64 {
        self.queue_bytes
    }

    /// Number of files that wait or are being sent, and their bytes.
    pub(super) fn left(&self) -> (usize, u64) {
        let under_way = self.under_way.values().map(len).sum::<u64>();
        (self.queue.len() + self.under_way.len(), self.queue_bytes + under_way)
    }

    /// The folder.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Name of the class of files that match no pattern.
const OTHERS: &str = "others";

/// Classes of files, by the patterns of --first.
fn classes(patterns: &[String]) -> Result<Vec<(String, Patterns)>> {
    let compiled = |text: &String| -> Result<(String, Patterns)> {
        let patterns = Patterns::new(std::slice::from_ref(text));
        Ok((text.clone(), patterns.with_context(|| format!("--first {text:?}"))?))
    };
    patterns.iter().map(compiled).collect()
}

/// Bytes of the headers of a file in an archive, about.
const HEADER: u64 = 1536;

/// Files and links of a pack.
pub(super) fn files(plan: &Plan) -> impl Iterator<Item = &Entry> {
    plan.entries.iter().filter(|entry| entry.kind != Kind::Directory)
}

/// Bytes of a file.
fn len(entry: &Entry) -> u64 {
    match entry.kind {
        Kind::File { len, .. } => len,
        Kind::Directory | Kind::Link { .. } => 0,
    }
}

/// The folder to watch.
///
/// # Errors
///
/// The command line has no folder, or more.
pub(super) fn check(paths: &[PathBuf]) -> Result<&Path> {
    match paths {
        [path] if path.is_dir() => Ok(path),
        [path] if !path.exists() => bail!("{} does not exist", path.display()),
        _ => bail!("--watch takes one folder and the receiver's address"),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Outbox of a folder, and a look at it.
    struct Case {
        place: tempfile::TempDir,
        outbox: Outbox,
        listings: Sender<Listing>,
    }

    impl Case {
        fn new(first: &[&str]) -> Self {
            let place = tempfile::tempdir().unwrap();
            let first: Vec<String> = first.iter().map(|&pattern| pattern.to_owned()).collect();
            let (sender, receiver) = crossbeam_channel::bounded(1);
            let options = scan_options(&["*.part".to_owned()]);
            let path = place.path().to_owned();
            let outbox = Outbox::new(path, classes(&first).unwrap(), options, receiver);
            Self { place, outbox, listings: sender }
        }

        fn write(&self, name: &str, content: &str) {
            let path = self.place.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }

        /// Gives the outbox a look at the folder that began at `began`.
        fn look_since(&mut self, began: Instant) {
            let entries = scan(self.place.path(), &self.outbox.options).unwrap().entries;
            self.listings.send(Listing { began, entries, messages: Vec::new() }).unwrap();
            self.outbox.poll().unwrap();
        }

        fn look(&mut self) {
            self.look_since(Instant::now());
        }

        fn take(&mut self, now: Time, bytes: u64) -> Plan {
            Plan { entries: self.outbox.take(now, bytes) }
        }
    }

    fn names(plan: &Plan) -> Vec<String> {
        files(plan).map(|file| String::from_utf8(file.name.clone()).unwrap()).collect()
    }

    const NOW: Time = Time::ZERO;

    #[test]
    fn files_are_taken_by_class_and_up_to_the_size_of_a_pack() {
        let mut case = Case::new(&["urgent", "*.cmd"]);
        let all = ["a", "b/c", "x.cmd", "urgent/d/e", "b/f.cmd", ".hidden", "g.part", "sent/old"];
        for name in all {
            case.write(name, name);
        }
        case.look();
        assert_eq!(case.outbox.left(), (5, 26));
        let waiting = case.outbox.waiting();
        let waiting: Vec<_> = waiting.iter().map(|it| (&*it.class, it.files)).collect();
        assert_eq!(waiting, [("urgent", 1), ("*.cmd", 2), ("others", 2)]);
        let plan = case.take(NOW, u64::MAX);
        let folders: Vec<_> = plan.entries.iter().map(|entry| entry.name.as_slice()).collect();
        assert_eq!(folders, [b"urgent".as_slice(), b"urgent/d", b"urgent/d/e"]);
        assert_eq!(case.outbox.class_of(&plan), 0);
        let first = names(&case.take(NOW, 1));
        let second = names(&case.take(NOW, 1));
        assert_eq!((first.len(), second.len()), (1, 1), "a pack has at least one file");
        let mut both = [first, second].concat();
        both.sort();
        assert_eq!(both, ["b/f.cmd", "x.cmd"]);
        assert_eq!(case.outbox.due(NOW), Some(2));
        case.outbox.below = Some(b"from/here".to_vec());
        assert_eq!(names(&case.take(NOW, u64::MAX)), ["from/here/a", "from/here/b/c"]);
        assert!(case.take(NOW, u64::MAX).entries.is_empty());
        // What is being sent is not in the queue again.
        case.look();
        assert_eq!((case.outbox.due(NOW), case.outbox.left()), (None, (5, 26)));
    }

    #[test]
    fn what_fails_waits_longer_and_in_ever_smaller_packs() {
        let mut case = Case::new(&[]);
        (0..100).for_each(|number| case.write(&format!("{number}"), "x"));
        let mut now = NOW;
        let mut sizes = Vec::new();
        for _ in 0..5 {
            case.look();
            let plan = case.take(now, u64::MAX);
            sizes.push(files(&plan).count());
            let pause = case.outbox.fail(now, &plan);
            assert!(case.outbox.is_probing);
            if sizes.len() == 1 {
                // What is new does not wait.
                case.write("new", "x");
                case.look();
                let new = case.take(now, u64::MAX);
                assert_eq!(names(&new), ["new"]);
                case.outbox.deliver(&new).unwrap();
                assert_eq!(case.outbox.due(now), None);
                assert_eq!(case.outbox.due(now + pause - Duration::from_millis(1)), None);
                assert_eq!(case.outbox.due(now + pause), Some(0));
            }
            now += RETRY_MAX;
        }
        // Of those that failed once: others of the first pack are as often refused.
        assert_eq!(sizes, [100, 16, 16, 16, 16]);
        let counts: Vec<_> = case.outbox.failures.values().map(|it| it.count).collect();
        assert_eq!((counts.iter().min(), counts.iter().max()), (Some(&1), Some(&2)));
        let pauses = (1..=9).map(|count| Failures { count, until: NOW }.pause().as_secs());
        assert_eq!(pauses.collect::<Vec<_>>(), [5, 10, 20, 40, 80, 160, 320, 600, 600]);
        let sizes = (1..=5).map(|count| Failures { count, until: NOW }.files_max());
        assert_eq!(sizes.collect::<Vec<_>>(), [16, 4, 1, 1, 1]);
    }

    #[test]
    fn what_is_delivered_moves_and_is_not_sent_again() {
        let mut case = Case::new(&[]);
        for name in ["a", "b", "c/d"] {
            case.write(name, "1");
        }
        let before = Instant::now();
        case.look();
        let plan = case.take(NOW, u64::MAX);
        // One changes, one goes while they are on their way.
        case.write("b", "22");
        case.outbox.deliver(&plan).unwrap();
        let read = |name: &str| fs::read_to_string(case.place.path().join(name)).ok();
        assert_eq!(read("sent/a").as_deref(), Some("1"));
        assert_eq!((read("sent/c/d").as_deref(), read("sent/b")), (Some("1"), None));
        // A look that began before may still have seen what was moved.
        case.write("a", "1");
        case.look_since(before);
        assert_eq!(names(&case.take(NOW, u64::MAX)), ["b"]);
        case.look();
        assert_eq!(names(&case.take(NOW, u64::MAX)), ["a"], "it came again");
    }

    #[test]
    fn only_the_delivered_link_moves() {
        let mut case = Case::new(&[]);
        let root = case.place.path().to_owned();
        for name in ["same", "other", "file", "gone"] {
            std::os::unix::fs::symlink("v1", root.join(name)).unwrap();
        }
        case.look();
        let plan = case.take(NOW, u64::MAX);
        for name in ["other", "file", "gone"] {
            fs::remove_file(root.join(name)).unwrap();
        }
        std::os::unix::fs::symlink("v2", root.join("other")).unwrap();
        case.write("file", "new");
        case.outbox.deliver(&plan).unwrap();
        assert!(!case.outbox.has_unmoved(&plan));
        let sent = fs::read_dir(root.join(SENT)).unwrap();
        let sent: Vec<_> = sent.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(sent, ["same"]);
        case.write("gone", "new");
        case.look();
        let mut next = names(&case.take(NOW, u64::MAX));
        next.sort();
        assert_eq!(next, ["file", "gone", "other"]);
    }

    #[test]
    fn what_cannot_be_moved_is_not_sent_again_unless_it_changes() {
        let mut case = Case::new(&[]);
        case.write("a", "1");
        case.look();
        case.write(SENT, "a file is in the way");
        let plan = case.take(NOW, u64::MAX);
        let error = case.outbox.deliver(&plan).unwrap_err();
        assert!(error.to_string().contains("was delivered and cannot be moved to sent"), "{error}");
        case.look();
        assert_eq!(case.outbox.due(NOW), None);
        fs::remove_file(case.place.path().join(SENT)).unwrap();
        assert!(case.outbox.has_unmoved(&plan));
        case.look_since(Instant::now() + MOVES_INTERVAL);
        assert!(!case.outbox.has_unmoved(&plan));
        assert!(case.place.path().join("sent/a").exists(), "it is moved later");
        case.write("a", "22");
        case.look();
        assert_eq!(names(&case.take(NOW, u64::MAX)), ["a"]);
    }
}
