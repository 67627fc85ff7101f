//! Data connections, each with its file.

use bytes::Bytes;
use engine::{Completion, Effect, EffectError, PathId, StreamEffect, Ticket};

use super::{Core, Use};
use crate::flow::{Inflow, Job, Outflow};

/// A data connection, numbered within its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::ftp) struct DataId(pub(in crate::ftp) u64);

/// State of a data connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ftp) enum DataState {
    /// Connecting to the peer.
    Connecting(Ticket),
    /// Listening for the peer.
    Listening(Ticket),
    Up {
        path: PathId,
        blocked: bool,
        paused: bool,
    },
    /// Ended properly.
    Ended,
}

#[derive(Debug)]
pub(in crate::ftp) enum Flow {
    /// Nothing was requested yet.
    None,
    Out(Outflow),
    In(Inflow),
}

/// Event of a data connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::ftp) enum DataEvent {
    /// It is up.
    Up,
    /// The file was sent, or received and stored.
    Complete {
        /// Bytes transferred.
        bytes: u64,
        /// CRC of the transferred bytes, if requested.
        crc: Option<u32>,
        /// Number of missing bytes among them.
        missing: u64,
    },
    /// Bytes are missing, and replaced by zeros in the file.
    Missing {
        /// Offset in the file.
        offset: u64,
        /// Number of bytes.
        bytes: u64,
    },
    /// The data connection could not be made.
    NotMade(EffectError),
    /// The data connection broke before its end.
    Broken,
    /// Storage error.
    Store(EffectError),
}

#[derive(Debug)]
pub(in crate::ftp) struct Data {
    /// Its control connection.
    pub(in crate::ftp) control: PathId,
    pub(in crate::ftp) state: DataState,
    pub(in crate::ftp) flow: Flow,
    /// Number of missing bytes.
    pub(in crate::ftp) missing: u64,
}

impl Core {
    /// Notes that the data connection requested by `ticket` is up.
    pub(in crate::ftp) fn data_up(&mut self, id: DataId, path: PathId) {
        let Some(data) = self.data.get_mut(&id) else {
            return self.close_path(path);
        };
        // Data waits until its destination is known.
        let waits = matches!(data.flow, Flow::None);
        data.state = DataState::Up { path, blocked: false, paused: waits };
        self.data_paths.insert(path, id);
        if waits {
            self.pause(path, true);
        }
        self.data_events.push_back((id, DataEvent::Up));
        self.end_when_sent(id);
    }

    /// Notes that the data connection could not be made.
    pub(in crate::ftp) fn data_not_made(&mut self, id: DataId, why: EffectError) {
        if let Some(data) = self.data.get_mut(&id) {
            data.state = DataState::Ended;
            self.data_events.push_back((id, DataEvent::NotMade(why)));
        }
    }

    /// Assigns a file to a data connection, before or after it is up.
    pub(in crate::ftp) fn begin(&mut self, id: DataId, flow: Flow) {
        let Some(data) = self.data.get_mut(&id) else { return };
        data.flow = flow;
        if let DataState::Up { path, paused, .. } = &mut data.state
            && std::mem::take(paused)
        {
            let path = *path;
            self.pause(path, false);
        }
        self.read_ahead(id);
        self.end_when_sent(id);
    }

    fn read_ahead(&mut self, id: DataId) {
        let ticket = self.next_ticket();
        let bounds = self.read_bounds();
        let Some(Data { flow: Flow::Out(out), .. }) = self.data.get_mut(&id) else { return };
        if let Some(read) = out.read(ticket, bounds) {
            self.submit(read, Use::Flow(id, Job::Read));
        }
    }

    pub(in crate::ftp) fn data_received(&mut self, id: DataId, bytes: &[u8]) {
        let ticket = self.next_ticket();
        let Some(data) = self.data.get_mut(&id) else { return };
        let Flow::In(inflow) = &mut data.flow else { return };
        if let Some((write, job)) = inflow.write(ticket, bytes) {
            let DataState::Up { path, paused, .. } = &mut data.state else { return };
            let is_full = inflow.writing >= self.limits.write_buffer;
            let pauses = is_full && !std::mem::replace(paused, *paused || is_full);
            let path = *path;
            self.submit(write, Use::Flow(id, job));
            if pauses {
                self.pause(path, true);
            }
        }
    }

    /// Notes missing bytes on a best-effort data connection.
    pub(in crate::ftp) fn data_missing(&mut self, id: DataId, offset: u64, bytes: u64) {
        let Some(data) = self.data.get_mut(&id) else { return };
        data.missing += bytes;
        let begin = if let Flow::In(inflow) = &data.flow { inflow.origin } else { 0 };
        let event = DataEvent::Missing { offset: begin + offset, bytes };
        self.data_events.push_back((id, event));
    }

    /// Bytes transferred on a data connection.
    pub(in crate::ftp) fn crossed(&self, id: DataId) -> Option<u64> {
        match &self.data.get(&id)?.flow {
            Flow::None => None,
            Flow::Out(out) => Some(out.sent),
            Flow::In(inflow) => Some(inflow.received),
        }
    }

    /// Notes the peer's last byte on a data connection.
    pub(in crate::ftp) fn data_ended(&mut self, id: DataId) {
        let ticket = self.next_ticket();
        let Some(data) = self.data.get_mut(&id) else { return };
        let Flow::In(inflow) = &mut data.flow else { return };
        let last = inflow.end(ticket);
        if let DataState::Up { path, .. } = data.state {
            data.state = DataState::Ended;
            self.data_paths.remove(&path);
            self.close_path(path);
        }
        if let Some((write, job)) = last {
            self.submit(write, Use::Flow(id, job));
        }
        self.sync_when_written(id);
    }

    fn sync_when_written(&mut self, id: DataId) {
        let ticket = self.next_ticket();
        let Some(Data { flow: Flow::In(inflow), .. }) = self.data.get_mut(&id) else { return };
        if let Some((sync, job)) = inflow.sync(ticket) {
            self.submit(sync, Use::Flow(id, job));
        }
    }

    /// Notes that a data connection broke. A connection that ended properly is unknown here.
    pub(in crate::ftp) fn data_down(&mut self, id: DataId) {
        let Some(data) = self.data.get_mut(&id) else { return };
        let DataState::Up { path, .. } = data.state else { return };
        data.state = DataState::Ended;
        self.data_paths.remove(&path);
        self.data_events.push_back((id, DataEvent::Broken));
    }

    pub(in crate::ftp) fn flow_done(
        &mut self,
        id: DataId,
        job: Job,
        answer: Result<Completion, EffectError>,
    ) {
        let Some(data) = self.data.get_mut(&id) else { return };
        let completion = match answer {
            Ok(completion) => completion,
            Err(error) => return self.data_events.push_back((id, DataEvent::Store(error))),
        };
        match (&mut data.flow, job, completion) {
            (Flow::Out(out), Job::Read, Completion::Read(bytes)) => {
                out.read_done(bytes);
                self.read_ahead(id);
                self.end_when_sent(id);
            }
            (Flow::In(inflow), Job::Write { len }, _) => {
                inflow.written(len);
                let has_room = inflow.writing <= self.limits.write_buffer / 2;
                if let DataState::Up { path, paused, .. } = &mut data.state
                    && has_room
                    && std::mem::take(paused)
                {
                    let path = *path;
                    self.pause(path, false);
                }
                self.sync_when_written(id);
            }
            (Flow::In(inflow), Job::Sync, _) => {
                inflow.synced = true;
                let (bytes, crc) = (inflow.received, inflow.crc());
                let event = DataEvent::Complete { bytes, crc, missing: data.missing };
                self.data_events.push_back((id, event));
            }
            // No request of this flow has such a result.
            (Flow::None | Flow::Out(_) | Flow::In(_), _, _) => {}
        }
    }

    /// Next bytes to send on a data connection with data and room.
    pub(in crate::ftp) fn data_to_send(&mut self, len: usize) -> Option<(DataId, PathId, Bytes)> {
        let after = self.last_sender;
        let ready = |data: &Data| {
            let is_up = matches!(data.state, DataState::Up { blocked: false, .. });
            is_up && matches!(&data.flow, Flow::Out(out) if out.is_ready())
        };
        let later = self.data.range(after..).skip_while(|(id, _)| Some(**id) == Some(after));
        let all = later.chain(self.data.range(..=after));
        let id = all.filter(|(_, data)| ready(data)).map(|(id, _)| *id).next()?;
        self.last_sender = id;
        let Data { state: DataState::Up { path, .. }, flow: Flow::Out(out), .. } =
            self.data.get_mut(&id)?
        else {
            return None;
        };
        let (path, bytes) = (*path, out.take(len));
        self.read_ahead(id);
        self.end_when_sent(id);
        Some((id, path, bytes))
    }

    /// Closes the data connection at the end of the file (RFC 959 §3.4.1).
    fn end_when_sent(&mut self, id: DataId) {
        let Some(data) = self.data.get_mut(&id) else { return };
        let (DataState::Up { path, .. }, Flow::Out(out)) = (data.state, &data.flow) else { return };
        if !out.is_over() {
            return;
        }
        let event = DataEvent::Complete { bytes: out.sent, crc: out.crc(), missing: 0 };
        data.state = DataState::Ended;
        self.data_paths.remove(&path);
        self.close_path(path);
        self.data_events.push_back((id, event));
    }

    /// Forgets a data connection and its file. An open connection is reset: a proper end would be
    /// taken for the end of the file.
    pub(in crate::ftp) fn drop_data(&mut self, id: DataId) {
        let Some(data) = self.data.remove(&id) else { return };
        match data.state {
            DataState::Connecting(ticket) => {
                self.give_up(ticket, Effect::Stream(StreamEffect::StopConnecting { ticket }));
            }
            DataState::Listening(ticket) => {
                self.give_up(ticket, Effect::Stream(StreamEffect::StopListening { ticket }));
            }
            DataState::Up { path, .. } => {
                self.data_paths.remove(&path);
                self.reset_path(path);
            }
            DataState::Ended => {}
        }
        let close = match data.flow {
            Flow::None => None,
            Flow::Out(out) => out.close(),
            Flow::In(inflow) => Some(inflow.close()),
        };
        if let Some(close) = close {
            self.effects.push_back(close.into());
        }
    }
}
