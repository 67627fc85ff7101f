//! Bodies of requests that must make progress, and responses that keep a place.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};

use super::places::Client;

/// Time that each received byte adds to the limit: 100 B/s are always enough.
const TIME_PER_BYTE: Duration = Duration::from_millis(10);

/// A pause of the client that is no lack of progress, for example between two bundles of a stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pause(Arc<AtomicBool>);

impl Pause {
    /// Sets whether the client may pause now.
    pub(crate) fn set(&self, may_pause: bool) {
        self.0.store(may_pause, Ordering::Relaxed);
    }

    fn is_on(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Reason why a body ends early.
#[derive(Debug, thiserror::Error)]
pub(super) enum BodyError {
    #[error("the body made no progress for {}; send it again", humantime::format_duration(*.0))]
    Stalled(Duration),
    #[error(transparent)]
    Http(#[from] hyper::Error),
}

/// Body of a request, with a limit on the time for which the server waits for the client. Only
/// this time counts, and each byte extends it by [`TIME_PER_BYTE`].
pub(super) struct Paced {
    body: Incoming,
    client: Client,
    pause: Pause,
    stall: Duration,
    /// Time since when the client has made no progress.
    since: Instant,
    /// Time since when the server has not waited.
    served: Option<Instant>,
    timer: Pin<Box<Sleep>>,
}

impl Paced {
    pub(super) fn new(body: Incoming, client: Client, pause: Pause, stall: Duration) -> Self {
        let since = Instant::now();
        let timer = Box::pin(sleep_until(since + stall));
        Self { body, client, pause, stall, since, served: None, timer }
    }

    fn on_frame(&mut self, frame: &Frame<Bytes>, now: Instant) {
        let bytes = frame.data_ref().map_or(0, Bytes::len);
        let gained = TIME_PER_BYTE.saturating_mul(u32::try_from(bytes).unwrap_or(u32::MAX));
        self.since = now.min(self.since + gained);
    }
}

impl Body for Paced {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        let now = Instant::now();
        if let Some(served) = this.served.take() {
            this.since += now - served;
        }
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(context) {
            this.client.begin_serving();
            this.served = Some(now);
            if let Some(Ok(frame)) = &frame {
                this.on_frame(frame, now);
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(BodyError::from)));
        }
        if this.pause.is_on() {
            this.client.begin_serving();
            this.served = Some(now);
            return Poll::Pending;
        }
        this.client.waits(this.since);
        this.timer.as_mut().reset(this.since + this.stall);
        std::task::ready!(this.timer.as_mut().poll(context));
        Poll::Ready(Some(Err(BodyError::Stalled(this.stall))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Body of a response. When it has been sent, the server waits for the client again.
pub(super) struct Reply {
    pub(super) body: axum::body::Body,
    pub(super) client: Client,
}

impl Body for Reply {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        self.client.waits(Instant::now());
    }
}
