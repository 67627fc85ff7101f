//! Text and progress bars for people, on standard error.

use std::fmt::Display;
use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use engine::Time;
use indicatif::{HumanDuration, MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use transport::Progress;

use crate::{BACKGROUND, show};

/// Text for people on stderr, above progress bars where there are any.
pub(crate) struct Screen {
    bars: MultiProgress,
}

impl Screen {
    /// Bars only when stderr is a terminal, which another job does not use, and no one reads JSON.
    pub(crate) fn new(json: bool) -> Self {
        let target = if json || !std::io::stderr().is_terminal() || is_in_background() {
            ProgressDrawTarget::hidden()
        } else {
            ProgressDrawTarget::stderr()
        };
        Self { bars: MultiProgress::with_draw_target(target) }
    }

    /// Prints one line.
    pub(crate) fn print(&self, text: impl Display) {
        self.bars.suspend(|| {
            // A standard error that is closed has no reader.
            let _ = writeln!(std::io::stderr(), "{text}");
        });
    }

    /// Runs `write`, which writes to the terminal, above the bars.
    pub(crate) fn above<T>(&self, write: impl FnOnce() -> T) -> T {
        self.bars.suspend(write)
    }

    /// A bar for a file of `len` bytes, or of unknown length.
    pub(crate) fn bar(&self, name: &str, len: Option<u64>) -> ProgressBar {
        let bar = match len {
            Some(len) => ProgressBar::new(len).with_style(style(COUNTED)),
            None => ProgressBar::no_length().with_style(style(COUNTED_WITHOUT_LENGTH)),
        };
        self.bars.add(bar.with_prefix(name.to_owned()))
    }
}

/// Whether the foreground job of the terminal is another one, whose lines a bar would mix with.
fn is_in_background() -> bool {
    std::env::var_os(BACKGROUND).is_some()
        || std::fs::read_to_string("/proc/self/stat").is_ok_and(|stat| is_background(&stat))
}

/// Whether a process with this `/proc/PID/stat` is in the background: its process group is the
/// third field after the name, that of the foreground job the sixth.
fn is_background(stat: &str) -> bool {
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let number = |at: usize| fields.split_whitespace().nth(at)?.parse::<i32>().ok();
    // Without a foreground job that this process sees, its number is not positive.
    number(2).zip(number(5)).is_some_and(|(own, foreground)| foreground > 0 && own != foreground)
}

/// Bars that are not a [`Bar`].
const COUNTED: &str = "{prefix} {wide_bar} {decimal_bytes}/{decimal_total_bytes} {msg} ETA {eta}";
const COUNTED_WITHOUT_LENGTH: &str = "{prefix} {spinner} {decimal_bytes} {msg}";

const WITH_LENGTH: &str = "{prefix} {wide_bar} {msg}";
const WITHOUT_LENGTH: &str = "{prefix} {spinner} {msg}";

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the template is well formed")
}

/// Longest time that is shown, in seconds: a century.
const LEFT_MAX: f64 = 3.2e9;

/// Knowledge of what is left of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// The peer that should reply has not replied.
    NoReply,
    /// Everything that is not shown as done is left.
    Known,
    /// The peer has an unknown part already.
    Unknown,
}

/// Progress of a file or of several.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown {
    /// Bytes sent or received.
    pub(crate) moved: u64,
    /// Bytes that the receiver confirmed, if it does so before the end.
    pub(crate) confirmed: Option<u64>,
    /// Bytes that this process moved.
    pub(crate) here: u64,
    /// Reason for a wait, if any.
    pub(crate) wait: Option<&'static str>,
    pub(crate) reach: Reach,
}

impl Shown {
    /// Progress of a receiver.
    pub(crate) fn received(moved: u64, here: u64, wait: Option<&'static str>) -> Self {
        Self { moved, confirmed: None, here, wait, reach: Reach::Known }
    }

    /// Bytes that are done, from which the time of arrival is estimated.
    fn done(&self) -> u64 {
        self.confirmed.unwrap_or(self.moved)
    }

    /// Text beside the bar, after `elapsed` seconds; `size` is that of the file, if it is known,
    /// and `since` the number of seconds at which the bytes that are done last changed.
    fn text(&self, size: Option<u64>, elapsed: f64, since: f64) -> String {
        let bytes = |count: u64| show::bytes(count as f64);
        let left = size.and_then(|size| self.left(size, since)).map(|left| {
            // Confirmations come in steps.
            let left = Duration::from_secs_f64((left - (elapsed - since)).clamp(0.0, LEFT_MAX));
            format!("{:#}", HumanDuration(left))
        });
        let arrival = match (self.reach, left) {
            (Reach::Unknown, _) | (Reach::Known, None) => String::new(),
            (Reach::NoReply, None) => ", no reply yet".to_owned(),
            // The time to send, not to deliver.
            (Reach::NoReply, Some(left)) => format!(", {left} to send, no reply yet"),
            (Reach::Known, Some(left)) => format!(", ETA {left}"),
        };
        let size = size.map(bytes);
        let of_size = size.as_ref().map(|size| format!("/{size}")).unwrap_or_default();
        let done = match (self.reach, self.confirmed) {
            (Reach::Unknown, _) => {
                let sent = bytes(self.here);
                format!("{}, resumed: {sent} sent", size.as_deref().unwrap_or("a file"))
            }
            (Reach::NoReply | Reach::Known, Some(confirmed)) => {
                format!("{}{of_size} confirmed, {} sent", bytes(confirmed), bytes(self.moved))
            }
            (Reach::NoReply | Reach::Known, None) => format!("{}{of_size}", bytes(self.moved)),
        };
        let rate = || show::rate(self.here as f64 * 8.0 / elapsed.max(1e-3));
        format!("{done}, {}{arrival}", self.wait.map_or_else(rate, str::to_owned))
    }

    /// Seconds for the rest of `size` bytes, at the rate of what this process did within `since`
    /// seconds; `None` before it did anything.
    fn left(&self, size: u64, since: f64) -> Option<f64> {
        let before = self.moved.saturating_sub(self.here);
        let done = self.done().saturating_sub(before);
        (done > 0).then(|| size.saturating_sub(self.done()) as f64 * since / done as f64)
    }
}

/// Bar of one transfer, or of several, from when it began or was resumed.
pub(crate) struct Bar {
    bar: ProgressBar,
    pub(crate) began: Time,
    /// Bytes sent or received.
    moved: u64,
    /// Bytes that are done, and since when.
    done: (u64, Time),
    template: &'static str,
}

impl Bar {
    /// A bar on a screen.
    pub(crate) fn new(bar: ProgressBar, now: Time) -> Self {
        let template = if bar.length().is_some() { WITH_LENGTH } else { WITHOUT_LENGTH };
        bar.set_style(style(template));
        Self { bar, began: now, moved: 0, done: (0, now), template }
    }

    /// Takes over size and name, once they are known.
    pub(crate) fn learn(&self, progress: &Progress) {
        if let (None, Some(size)) = (self.bar.length(), progress.size) {
            self.bar.set_length(size);
            self.bar.set_prefix(progress.name.clone());
        }
    }

    /// Shows progress.
    pub(crate) fn show(&mut self, now: Time, shown: &Shown) {
        self.moved = shown.moved;
        let template = match (self.size(), shown.reach) {
            (None, _) | (Some(_), Reach::Unknown) => WITHOUT_LENGTH,
            (Some(_), Reach::NoReply | Reach::Known) => WITH_LENGTH,
        };
        if std::mem::replace(&mut self.template, template) != template {
            self.bar.set_style(style(template));
        }
        self.bar.set_position(shown.done());
        if self.done.0 != shown.done() {
            self.done = (shown.done(), now);
        }
        let seconds = |at: Time| at.since(self.began).as_secs_f64();
        self.bar.set_message(shown.text(self.size(), seconds(now), seconds(self.done.1)));
    }

    /// Sets the number of bytes.
    pub(crate) fn set_size(&self, bytes: u64) {
        self.bar.set_length(bytes);
    }

    /// Bytes sent or received.
    pub(crate) fn moved(&self) -> u64 {
        self.moved
    }

    /// Size of the file, if it is known.
    pub(crate) fn size(&self) -> Option<u64> {
        self.bar.length()
    }

    /// Removes it from the screen.
    pub(crate) fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_has_what_was_sent_and_what_was_confirmed() {
        let sent = Shown {
            moved: 5_000_000,
            confirmed: None,
            here: 5_000_000,
            wait: None,
            reach: Reach::NoReply,
        };
        let text = |shown: Shown| shown.text(Some(8_000_000), 4.0, 4.0);
        let only_sent = "5.00 MB/8.00 MB, 10.00 Mbit/s, 2s to send, no reply yet";
        assert_eq!((text(sent).as_str(), sent.done()), (only_sent, 5_000_000));
        let confirmed = Shown { confirmed: Some(2_000_000), reach: Reach::Known, ..sent };
        let both = "2.00 MB/8.00 MB confirmed, 5.00 MB sent, 10.00 Mbit/s, ETA 12s";
        assert_eq!((text(confirmed).as_str(), confirmed.done()), (both, 2_000_000));
        let later = confirmed.text(Some(8_000_000), 7.0, 4.0);
        assert!(later.ends_with("ETA 9s"), "{later}");
        let waits = Shown { wait: Some("waiting for the receiver"), ..confirmed };
        assert!(text(waits).contains("MB sent, waiting for the receiver, ETA"), "{}", text(waits));
        let resumed = Shown { reach: Reach::Unknown, here: 1_000_000, ..sent };
        assert_eq!(text(resumed), "8.00 MB, resumed: 1.00 MB sent, 2.000 Mbit/s");
        // What an earlier process received has no part in the rate.
        let received = Shown::received(6_000_000, 1_000_000, None);
        assert!(text(received).ends_with("2.000 Mbit/s, ETA 8s"), "{}", text(received));
        assert_eq!(Shown::received(10, 10, None).text(None, 1.0, 1.0), "10 B, 80.00 bit/s");
    }

    #[test]
    fn jobs_in_the_background_are_recognised() {
        let stat = |group: i32, foreground: i32| {
            format!("42 (a (b) c) S 7 {group} 7 34816 {foreground} 4194304 0")
        };
        assert!(is_background(&stat(42, 41)));
        assert!(!is_background(&stat(42, 42)));
        // No terminal, or one whose foreground job is in another namespace.
        assert!(!is_background(&stat(42, -1)));
        assert!(!is_background(&stat(42, 0)));
        assert!(!is_background("42 (cut"));
    }
}
