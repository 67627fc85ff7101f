//! Serving clients of a listener, within bounds.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::serve::Listener;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Refusal;

/// Time that a client may take for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// Bounds on the clients of a listener.
#[derive(Clone, Copy, Debug)]
pub struct Clients {
    /// Maximum concurrent clients.
    pub most: usize,
    /// Further clients, which may request `paths` only.
    pub spare: usize,
    /// Paths that are served however many clients there are.
    pub paths: &'static [&'static str],
}

impl Clients {
    /// Bounds without spare places: further clients wait.
    #[must_use]
    pub const fn of(most: usize) -> Self {
        Self { most, spare: 0, paths: &[] }
    }
}

/// Serves clients of one listener.
pub async fn accept<L: Listener>(mut listener: L, router: Router, clients: Clients) {
    let places = Arc::new(Semaphore::new(clients.most));
    let spare = Arc::new(Semaphore::new(clients.spare));
    let limited = router
        .clone()
        .layer(middleware::from_fn(move |request, next| only(clients, request, next)));
    loop {
        if clients.spare == 0 {
            let Ok(permit) = Arc::clone(&places).acquire_owned().await else { return };
            serve(listener.accept().await.0, router.clone(), permit);
            continue;
        }
        // `accept` itself pauses when the system has no descriptor left.
        let (stream, _) = listener.accept().await;
        match Arc::clone(&places).try_acquire_owned() {
            Ok(permit) => serve(stream, router.clone(), permit),
            Err(_) => {
                let Ok(permit) = Arc::clone(&spare).acquire_owned().await else { return };
                serve(stream, limited.clone(), permit);
            }
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

/// Serves one client in a task until it disconnects.
fn serve<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    router: Router,
    permit: OwnedSemaphorePermit,
) {
    tokio::spawn(async move {
        let mut server = http1::Builder::new();
        server.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
        let service = TowerToHyperService::new(router);
        if let Err(error) = server.serve_connection(TokioIo::new(stream), service).await {
            tracing::debug!("a client: {error}");
        }
        drop(permit);
    });
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;

    use axum::routing::get;

    use super::*;

    #[test]
    fn some_paths_are_served_however_many_clients_there_are() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let inside = runtime.enter();
        let listener = tokio::net::UnixListener::bind(&socket).unwrap();
        drop(inside);
        let router = Router::new()
            .route("/node", get(async || "state"))
            .route("/other", get(async || "other"));
        let clients = Clients { most: 2, spare: 1, paths: &["/node"] };
        let client = std::thread::spawn(move || {
            let ask = |path: &str| {
                let mut stream = UnixStream::connect(&socket).unwrap();
                let head = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
                stream.write_all(head.as_bytes()).unwrap();
                let mut response = String::new();
                stream.read_to_string(&mut response).unwrap();
                response
            };
            assert!(ask("/other").ends_with("other"));
            let _idle = [(); 2].map(|()| UnixStream::connect(&socket).unwrap());
            for _ in 0..3 {
                assert!(ask("/node").ends_with("state"));
                let refused = ask("/other");
                assert!(refused.contains("503") && refused.contains("2 clients"), "{refused}");
            }
        });
        runtime.block_on(async {
            tokio::spawn(accept(listener, router, clients));
            while !client.is_finished() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        client.join().unwrap();
    }
}
