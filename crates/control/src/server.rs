//! Sockets of the interface, and access to them.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use lab::scenario::Scenario;
use service::http::{Access, Clients, Refusal, ServeError, Times, accept, bind_unix, runtime};
use tokio::net::{TcpListener, UnixListener};
use tokio::signal::unix::{SignalKind, signal};

use crate::model::CaptureRequest;
use crate::state::State;
use crate::{routes, transfers, watch};

/// Bytes of a token, before it is encoded in hexadecimal digits.
const TOKEN_BYTES: usize = 32;

/// Bounds on the clients of the socket and of the address, each, so that clients of the address do
/// not block the socket. `slowlight emu down` always gets through.
const CLIENTS: Clients =
    Clients { most: 64, spare: 8, paths: &["/world", "/metrics"], times: Times::DEFAULT };

/// Addresses of the interface.
#[derive(Clone, Debug)]
pub struct Places {
    /// Unix socket.
    pub socket: PathBuf,
    /// TCP address, if it listens on one.
    pub listen: Option<SocketAddr>,
}

fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> ServeError {
    let what = what.into();
    move |error| ServeError::System { what, error }
}

/// Open sockets, which are served when the server runs.
#[derive(Debug)]
pub struct Server {
    runtime: tokio::runtime::Runtime,
    unix: UnixListener,
    tcp: Option<(TcpListener, SocketAddr)>,
    token: Option<String>,
}

impl Server {
    /// Opens the sockets before there is a world, so that a port in use is reported at once.
    ///
    /// # Errors
    ///
    /// [`ServeError`] names the failed listener, and the remedy.
    pub fn bind(places: &Places) -> Result<Self, ServeError> {
        let runtime = runtime()?;
        let inside = runtime.enter();
        let socket = &places.socket;
        let unix =
            bind_unix(socket, Access::default()).map_err(system(socket.display().to_string()))?;
        let tcp = places.listen.map(bind_tcp).transpose()?;
        let token = tcp.as_ref().map(|_| token()).transpose();
        let token = token.map_err(system("drawing a token"))?;
        drop(inside);
        Ok(Self { runtime, unix, tcp, token })
    }

    /// Returns the address it listens on, and the token that it requires there.
    #[must_use]
    pub fn address(&self) -> Option<(SocketAddr, &str)> {
        let (_, address) = self.tcp.as_ref()?;
        Some((*address, self.token.as_deref()?))
    }

    /// Serves requests until a request or a signal ends the world. Calls `ready` when it can be
    /// used. `bounds` are the bounds of lateness for doubts, `capture` is a capture that already
    /// runs.
    ///
    /// # Errors
    ///
    /// The system refused signals, or `ready` failed.
    pub fn run(
        self,
        name: &str,
        scenario: &Scenario,
        bounds: emu::Bounds,
        capture: Option<CaptureRequest>,
        world: &Arc<emu::World>,
        ready: impl FnOnce() -> io::Result<()>,
    ) -> Result<(), ServeError> {
        let Self { runtime, unix, tcp, token } = self;
        let listen = tcp.as_ref().map(|(_, address)| *address);
        let state =
            Arc::new(State::new(name, listen, scenario, bounds, capture, Arc::clone(world)));
        let done = runtime.block_on(async {
            let mut terminated = signal(SignalKind::terminate())?;
            let mut hung_up = signal(SignalKind::hangup())?;
            let mut interrupted = signal(SignalKind::interrupt())?;
            tokio::spawn(watch::outages(Arc::clone(&state)));
            tokio::spawn(watch::doubts(Arc::clone(&state)));
            let router = routes::router(Arc::clone(&state));
            if let (Some((tcp, _)), Some(token)) = (tcp, token) {
                let router = guarded(router.clone(), token);
                tokio::spawn(accept(tcp, router, CLIENTS));
            }
            tokio::spawn(accept(unix, router, CLIENTS));
            ready()?;
            tokio::select! {
                () = state.end.notified() => {}
                _ = terminated.recv() => {}
                _ = hung_up.recv() => {}
                _ = interrupted.recv() => {}
            }
            // The requester of the end gets its response first.
            tokio::task::yield_now().await;
            tokio::time::sleep(Duration::from_millis(20)).await;
            Ok(())
        });
        transfers::end(&state);
        runtime.shutdown_timeout(Duration::from_secs(1));
        done.map_err(system("running the interface"))
    }
}

fn bind_tcp(address: SocketAddr) -> Result<(TcpListener, SocketAddr), ServeError> {
    let bound = std::net::TcpListener::bind(address).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => ServeError::InUse(address),
        _ => ServeError::Address(address, error),
    })?;
    let prepare = || {
        bound.set_nonblocking(true)?;
        let address = bound.local_addr()?;
        Ok((TcpListener::from_std(bound)?, address))
    };
    prepare().map_err(system(address.to_string()))
}

fn token() -> io::Result<String> {
    let mut bytes = [0; TOKEN_BYTES];
    let mut filled = 0;
    while filled < bytes.len() {
        let flags = rustix::rand::GetRandomFlags::empty();
        filled += rustix::rand::getrandom(&mut bytes[filled..], flags)?;
    }
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Requires the token for all requests.
fn guarded(router: Router, token: String) -> Router {
    let token: Arc<str> = token.into();
    router.layer(middleware::from_fn(move |request: Request, next: Next| {
        let token = Arc::clone(&token);
        async move {
            if has_token(&request, &token) { next.run(request).await } else { unauthorized() }
        }
    }))
}

fn has_token(request: &Request, token: &str) -> bool {
    let given = request.headers().get(header::AUTHORIZATION).map(|value| value.as_bytes());
    let Some(given) = given.and_then(|value| value.strip_prefix(b"Bearer ")) else { return false };
    // Compares all bytes, so that the time does not reveal the position of a wrong one.
    let differs = |(a, b): (&u8, &u8)| a ^ b;
    let differences = given.iter().zip(token.as_bytes()).map(differs).fold(0, |all, one| all | one);
    given.len() == token.len() && differences == 0
}

fn unauthorized() -> Response {
    let error = "this needs the header `Authorization: Bearer TOKEN`; the token is in the file \
                 `token` of the world's folder";
    let refusal = Refusal::new(StatusCode::UNAUTHORIZED, error).into_response();
    ([(header::WWW_AUTHENTICATE, "Bearer")], refusal).into_response()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;
    use std::time::Instant;

    use hyper::Method;
    use service::http::Client;

    use super::*;
    use crate::model;
    use crate::routes::tests::nothing;

    #[test]
    fn a_world_ends_however_many_clients_there_are() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("api.sock");
        let server = Server::bind(&Places { socket: socket.clone(), listen: None }).unwrap();
        let (scenario, world) = nothing();
        let bounds = emu::Bounds::default();
        let (told, ready) = std::sync::mpsc::channel();
        let tell = move || told.send(()).map_err(io::Error::other);
        let client = Client::new(&socket);
        std::thread::scope(|scope| {
            let served = scope.spawn(|| server.run("test", &scenario, bounds, None, &world, tell));
            ready.recv().unwrap();
            assert_eq!(u32::try_from(client.pid().unwrap()).unwrap(), std::process::id());
            let begin = |head: &str| {
                let mut stream = UnixStream::connect(&socket).unwrap();
                stream.write_all(head.as_bytes()).unwrap();
                stream
            };
            let events = "GET /events HTTP/1.1\r\nhost: x\r\n\r\n";
            let body = "POST /commands HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
                        content-length: 1000\r\n\r\n{";
            let mut held = Vec::new();
            for head in ["GET /wor", body, events] {
                held.extend((0..CLIENTS.most + 20).map(|_| begin(head)));
                let start = Instant::now();
                assert_eq!(client.get::<model::World>("/world").unwrap().name, "test");
                assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
            }
            client.ask(Method::DELETE, "/world", None).unwrap();
            served.join().unwrap().unwrap();
        });
        assert!(Arc::into_inner(world).is_some(), "nothing of the interface is left");
    }
}
