//! Text and progress bars for people, on standard error.

use std::fmt::Display;
use std::io::{IsTerminal as _, Write as _};

use engine::Time;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
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
            Some(len) => ProgressBar::new(len).with_style(style(WITH_LENGTH)),
            None => ProgressBar::no_length().with_style(style(WITHOUT_LENGTH)),
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

const WITH_LENGTH: &str =
    "{prefix} {wide_bar} {decimal_bytes}/{decimal_total_bytes} {msg} ETA {eta}";
/// Before anything is received from a peer that replies: the time to send, not to deliver.
const WITHOUT_REPLY: &str = "{prefix} {wide_bar} {decimal_bytes}/{decimal_total_bytes} {msg} {eta} \
                             to send, no reply yet";
/// After a resume: the peer requests what it misses, so the remaining size is unknown here.
const RESUMED: &str = "{prefix} {spinner} {decimal_total_bytes}, resumed: {msg}";
const WITHOUT_LENGTH: &str = "{prefix} {spinner} {decimal_bytes} {msg}";

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the template is well formed")
}

/// Bar of one transfer, from when it began or was resumed.
pub(crate) struct Bar {
    bar: ProgressBar,
    pub(crate) began: Time,
    has_estimate: bool,
}

impl Bar {
    /// A bar on a screen.
    pub(crate) fn new(bar: ProgressBar, now: Time) -> Self {
        Self { has_estimate: bar.length().is_some(), bar, began: now }
    }

    /// Shows progress, of which this process moved `moved` bytes. A time of arrival is estimated
    /// when the peer has replied, or will not.
    pub(crate) fn show(&mut self, now: Time, progress: &Progress, moved: u64, is_answered: bool) {
        if let (None, Some(size)) = (self.bar.length(), progress.size) {
            self.bar.set_length(size);
            self.bar.set_style(style(WITHOUT_REPLY));
            self.bar.set_prefix(progress.name.clone());
        }
        if is_answered && !self.has_estimate && self.bar.length().is_some() {
            self.has_estimate = true;
            self.bar.set_style(style(WITH_LENGTH));
        }
        self.bar.set_position(progress.bytes);
        let elapsed = now.since(self.began).as_secs_f64();
        let rate = || show::rate(moved as f64 * 8.0 / elapsed.max(1e-3));
        self.bar.set_message(progress.wait.map_or_else(rate, str::to_owned));
    }

    /// Shows a batch, of which `sent` bytes were sent and `confirmed` bytes delivered.
    pub(crate) fn show_batch(&mut self, now: Time, sent: u64, confirmed: u64, is_answered: bool) {
        let style_now = if is_answered { WITH_LENGTH } else { WITHOUT_REPLY };
        if std::mem::replace(&mut self.has_estimate, is_answered) != is_answered || sent == 0 {
            self.bar.set_style(style(style_now));
        }
        self.bar.set_position(sent);
        let elapsed = now.since(self.began).as_secs_f64().max(1e-3);
        let rate = show::rate(sent as f64 * 8.0 / elapsed);
        self.bar.set_message(format!("{rate}, {} confirmed", show::bytes(confirmed as f64)));
    }

    /// Sets the number of bytes.
    pub(crate) fn set_size(&self, bytes: u64) {
        self.bar.set_length(bytes);
    }

    /// Shows a resumed transfer, of which this process has sent `moved` bytes.
    pub(crate) fn show_resumed(&self, now: Time, progress: &Progress, moved: u64) {
        if let (None, Some(size)) = (self.bar.length(), progress.size) {
            self.bar.set_length(size);
            self.bar.set_style(style(RESUMED));
        }
        self.bar.set_position(progress.bytes);
        let elapsed = now.since(self.began).as_secs_f64().max(1e-3);
        let rate = show::rate(moved as f64 * 8.0 / elapsed);
        self.bar.set_message(format!("{} sent, {rate}", show::bytes(moved as f64)));
    }

    /// Bytes that it shows.
    pub(crate) fn position(&self) -> u64 {
        self.bar.position()
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
