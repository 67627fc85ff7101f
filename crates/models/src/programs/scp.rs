//! scp's own protocol, used until OpenSSH 9.0: a line that announces the file, the file, and a
//! zero byte for success.

use super::app::{Io, named};
use super::indication::Failure;

/// Sending side.
#[derive(Debug)]
pub(super) struct Source {
    name: String,
    state: SourceState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SourceState {
    /// Waits for the peer's zero byte: ready, accepts the file, has the file.
    Ready,
    Accepted,
    Sending(u64),
    Confirmed(u64),
    Over,
}

impl Source {
    pub(super) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), state: SourceState::Ready }
    }

    pub(super) fn pump(&mut self, io: &mut Io<'_>) -> Result<bool, Failure> {
        match self.state {
            SourceState::Ready | SourceState::Accepted | SourceState::Confirmed(_) => {
                let Some(answer) = io.read(1) else { return Ok(false) };
                if answer != [0] {
                    return Err(Failure::Server("it does not take the file".to_owned()));
                }
            }
            SourceState::Sending(_) | SourceState::Over => {}
        }
        self.state = match self.state {
            SourceState::Ready => {
                io.write(format!("C0644 {} {}\n", io.files.len, self.name).into_bytes());
                SourceState::Accepted
            }
            SourceState::Accepted => {
                io.progress.started = true;
                SourceState::Sending(0)
            }
            SourceState::Sending(mut sent) => {
                let (ready, all) = io.files.ready();
                if ready > 0 && io.has_room() {
                    let bytes = io.files.take(16 << 10, io.core);
                    sent += bytes.len() as u64;
                    io.write(bytes);
                    SourceState::Sending(sent)
                } else if ready == 0 && all {
                    io.write(vec![0]);
                    SourceState::Confirmed(sent)
                } else {
                    return Ok(false);
                }
            }
            SourceState::Confirmed(sent) => {
                io.conn.end();
                io.progress.done = Some(sent);
                SourceState::Over
            }
            SourceState::Over => return Ok(false),
        };
        Ok(true)
    }
}

/// Receiving side.
#[derive(Debug, Default)]
pub(super) struct Sink {
    name: String,
    state: SinkState,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum SinkState {
    #[default]
    Start,
    Line,
    Opening(u64),
    /// Remaining bytes.
    Data(u64),
    /// Sender's end marker.
    Last,
    Syncing,
    Over,
}

impl Sink {
    pub(super) fn pump(&mut self, io: &mut Io<'_>) -> Result<bool, Failure> {
        if io.conn.has_ended() && !matches!(self.state, SinkState::Syncing) {
            io.conn.exit();
        }
        self.state = match self.state {
            SinkState::Start => {
                io.write(vec![0]);
                SinkState::Line
            }
            SinkState::Line => {
                let Some(line) = io.read_line()? else { return Ok(false) };
                let (size, name) = announced(&line).ok_or(Failure::Nonsense("no C line"))?;
                self.name = name.to_owned();
                io.files.open_to_write(&named(name)?, false, io.core);
                io.progress.receiving = Some(self.name.clone());
                SinkState::Opening(size)
            }
            SinkState::Opening(size) if io.files.is_open() => {
                io.write(vec![0]);
                SinkState::Data(size)
            }
            SinkState::Opening(_) => return Ok(false),
            SinkState::Data(0) => SinkState::Last,
            SinkState::Data(left) => match io.keep(left) {
                0 => return Ok(false),
                taken => SinkState::Data(left - taken as u64),
            },
            SinkState::Last => {
                if io.read(1).is_none() {
                    return Ok(false);
                }
                io.files.end(io.core);
                SinkState::Syncing
            }
            SinkState::Syncing if io.files.is_synced() => {
                io.progress.received = Some((self.name.clone(), io.files.received()));
                io.write(vec![0]);
                SinkState::Over
            }
            SinkState::Syncing | SinkState::Over => return Ok(false),
        };
        Ok(true)
    }
}

/// Size and name in a line like `C0644 299 name`.
fn announced(line: &str) -> Option<(u64, &str)> {
    let mut parts = line.strip_prefix('C')?.splitn(3, ' ');
    let (_, size, name) = (parts.next()?, parts.next()?, parts.next()?);
    Some((size.parse().ok()?, name))
}
