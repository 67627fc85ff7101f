//! Serving clients of a listener, within bounds.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::serve::Listener;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

use super::Refusal;
use super::pace::{Paced, Pause, Reply};
use super::places::{Place, Places};

/// Bounds on the clients of a listener. If all places are taken, clients for which the server
/// waits give way.
#[derive(Clone, Copy, Debug)]
pub struct Clients {
    /// Maximum concurrent clients.
    pub most: usize,
    /// Further clients, which may request `paths` only.
    pub spare: usize,
    /// Paths that are served however many clients there are.
    pub paths: &'static [&'static str],
    /// Time limits.
    pub times: Times,
}

/// Time limits for clients of a listener.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Head of a request.
    pub head: Duration,
    /// All of a connection in a spare place.
    pub spare: Duration,
    /// Body of a request without progress.
    pub stall: Duration,
    /// Client for which the server waits, while others need its place.
    pub grace: Duration,
}

impl Times {
    /// Defaults.
    pub const DEFAULT: Self = Self {
        head: Duration::from_secs(10),
        spare: Duration::from_secs(5),
        stall: Duration::from_secs(300),
        grace: Duration::from_millis(250),
    };
}

/// Serves clients of one listener.
pub async fn accept<L: Listener>(mut listener: L, router: Router, clients: Clients) {
    let places = Places::new(clients.most, clients.times.grace);
    let spare = Places::new(clients.spare, clients.times.grace);
    let limited = router
        .clone()
        .layer(middleware::from_fn(move |request, next| only(clients, request, next)));
    // Whether the last client found no place: then others do not wait for one.
    let mut is_full = false;
    loop {
        // `accept` itself pauses when the system has no descriptor left.
        let (stream, _) = listener.accept().await;
        let patience = if is_full { Duration::ZERO } else { clients.times.grace };
        let place = places.take(Some(Instant::now() + patience)).await;
        is_full = place.is_none();
        if let Some(place) = place {
            tokio::spawn(serve(stream, router.clone(), place, clients.times));
        } else if let Some(place) = spare.take(None).await {
            let served = serve(stream, limited.clone(), place, clients.times);
            tokio::spawn(tokio::time::timeout(clients.times.spare, served));
        }
    }
}

/// Refuses all paths but those with spare places. The connection ends, so that its place is free
/// again.
async fn only(clients: Clients, request: Request, next: Next) -> Response {
    let mut response = if clients.paths.contains(&request.uri().path()) {
        next.run(request).await
    } else {
        let most = clients.most;
        let error = format!("{most} clients are connected already; retry when some have left");
        Refusal::new(StatusCode::SERVICE_UNAVAILABLE, error).into_response()
    };
    response.headers_mut().insert(header::CONNECTION, header::HeaderValue::from_static("close"));
    response
}

/// Serves one client until it disconnects or has to give way.
async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    router: Router,
    place: Place,
    times: Times,
) {
    let router = TowerToHyperService::new(router);
    let client = place.client();
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        client.begin_serving();
        let (client, router) = (client.clone(), router.clone());
        let pause = Pause::default();
        let body = |body| Body::new(Paced::new(body, client.clone(), pause.clone(), times.stall));
        let mut request = request.map(body);
        request.extensions_mut().insert(pause);
        async move {
            let response = router.call(request).await?;
            Ok::<_, std::convert::Infallible>(response.map(|body| Reply { body, client }))
        }
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(times.head);
    tokio::select! {
        () = place.gives_way() => tracing::debug!("a client gives way to another"),
        served = server.serve_connection(TokioIo::new(stream), service) => {
            if let Err(error) = served {
                tracing::debug!("a client: {error}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read as _, Write as _};
    use std::os::unix::net::UnixStream;
    use std::path::Path;

    use axum::routing::{get, post};
    use futures_util::stream;

    use super::*;

    const TIMES: Times = Times {
        head: Duration::from_secs(60),
        stall: Duration::from_millis(400),
        grace: Duration::from_millis(50),
        ..Times::DEFAULT
    };
    const CLIENTS: Clients = Clients { most: 4, spare: 2, paths: &["/node"], times: TIMES };

    /// Runs a test beside a server of `/node`, `/other`, `/events` (which never end) and `/length`
    /// (of the body).
    fn with_server(clients: Clients, test: impl FnOnce(&Path) + Send + 'static) {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let inside = runtime.enter();
        let listener = tokio::net::UnixListener::bind(&socket).unwrap();
        drop(inside);
        let events = async || {
            let begin = stream::iter([Ok::<_, std::io::Error>("begin")]);
            Body::from_stream(futures_util::StreamExt::chain(begin, stream::pending()))
        };
        let router = Router::new()
            .route("/node", get(async || "state"))
            .route("/other", get(async || "other"))
            .route("/events", get(events))
            .route("/length", post(async |body: bytes::Bytes| body.len().to_string()));
        let client = std::thread::spawn(move || test(&socket));
        runtime.block_on(async {
            tokio::spawn(accept(listener, router, clients));
            while !client.is_finished() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        client.join().unwrap();
    }

    /// Sends the beginning of a request.
    fn begin(socket: &Path, text: &str) -> UnixStream {
        let mut stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        stream
    }

    fn ask(socket: &Path, path: &str) -> String {
        let head = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        let mut response = String::new();
        begin(socket, &head).read_to_string(&mut response).unwrap();
        response
    }

    /// Whether the server has closed the connection, with or without a response.
    fn ends(stream: &mut UnixStream) -> bool {
        match stream.read_to_end(&mut Vec::new()) {
            Ok(_) => true,
            Err(error) => error.kind() == ErrorKind::ConnectionReset,
        }
    }

    #[test]
    fn idle_clients_and_unfinished_requests_give_way() {
        let posted = "POST /length HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n1";
        let served = "GET /other HTTP/1.1\r\nhost: x\r\n\r\n";
        for beginning in ["", "GET /node HTTP/1.1\r\nho", posted, served] {
            let times = Times { stall: Duration::from_secs(300), ..TIMES };
            with_server(Clients { times, ..CLIENTS }, move |socket| {
                let mut idle: Vec<_> = (0..40).map(|_| begin(socket, beginning)).collect();
                for _ in 0..3 {
                    let start = std::time::Instant::now();
                    assert!(ask(socket, "/node").ends_with("state"));
                    // Refused while the server works for the clients in all places.
                    while !ask(socket, "/other").ends_with("other") {
                        assert!(start.elapsed() < TIMES.head / 2);
                    }
                    assert!(start.elapsed() < TIMES.head / 2, "{:?}", start.elapsed());
                }
                assert!(ends(&mut idle[0]), "the first has given way");
            });
        }
    }

    /// Streams that the server feeds keep their places.
    #[test]
    fn some_paths_are_served_however_many_clients_there_are() {
        with_server(CLIENTS, |socket| {
            let head = "GET /events HTTP/1.1\r\nhost: x\r\n\r\n";
            let mut streams: Vec<_> = (0..4).map(|_| begin(socket, head)).collect();
            for stream in &mut streams {
                let mut head = [0; 12];
                stream.read_exact(&mut head).unwrap();
                assert_eq!(&head, b"HTTP/1.1 200");
            }
            let _idle: Vec<_> = (0..40).map(|_| begin(socket, "GET /no")).collect();
            for _ in 0..3 {
                assert!(ask(socket, "/node").ends_with("state"));
                let refused = ask(socket, "/other");
                assert!(refused.contains("503") && refused.contains("4 clients"), "{refused}");
            }
            drop(streams);
            // The server may not have noticed yet.
            let limit = std::time::Instant::now() + Duration::from_secs(30);
            while !ask(socket, "/other").ends_with("other") {
                assert!(std::time::Instant::now() < limit);
            }
        });
    }

    #[test]
    fn bodies_must_make_progress() {
        with_server(CLIENTS, |socket| {
            let head = "POST /length HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n";
            let start = std::time::Instant::now();
            assert!(ends(&mut begin(socket, head)));
            let mut trickle = begin(socket, head);
            while trickle.write_all(b"1").is_ok() {
                assert!(start.elapsed() < Duration::from_secs(10), "a byte every 20 ms holds it");
                std::thread::sleep(Duration::from_millis(20));
            }
            // 1,000 B/s for longer than the limit without progress.
            let mut slow = begin(socket, head);
            for _ in 0..20 {
                slow.write_all(&[b'1'; 50]).unwrap();
                std::thread::sleep(Duration::from_millis(50));
            }
            let mut response = vec![0; 4096];
            let read = slow.read(&mut response).unwrap();
            assert!(response[..read].ends_with(b"1000"));
        });
    }
}
