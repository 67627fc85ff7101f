//! Published servers of a world: connections from outside are forwarded from a host of the world.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::world::Host;

/// Maximum concurrent connections; further ones are closed at once.
const CONNECTIONS_MAX: usize = 256;
/// Pause after a connection that could not be accepted.
const PAUSE: Duration = Duration::from_millis(50);

/// Forwards connections accepted by a listener outside to a server in the world, from `host`,
/// until the process ends.
///
/// # Errors
///
/// The system refused.
pub fn publish(listener: TcpListener, host: &Host, server: SocketAddr) -> io::Result<()> {
    let (entered, result) = crossbeam_channel::bounded(1);
    let host = host.entrance()?;
    thread::Builder::new().name("publish".to_owned()).spawn(move || {
        // Sockets of this thread and its children are the host's.
        let ready = host.enter();
        let is_ready = ready.is_ok();
        let _ = entered.send(ready);
        if is_ready {
            accept(&listener, server);
        }
    })?;
    result.recv().map_err(io::Error::other)?
}

fn accept(listener: &TcpListener, server: SocketAddr) {
    let open = Arc::new(AtomicUsize::new(0));
    loop {
        let client = match listener.accept() {
            Ok((client, _)) => client,
            Err(error) => {
                tracing::warn!(%error, "a connection from outside was not accepted");
                thread::sleep(PAUSE);
                continue;
            }
        };
        if open.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS_MAX {
            open.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let counted = Arc::clone(&open);
        let forwarded = thread::Builder::new().name("publish".to_owned()).spawn(move || {
            if let Err(error) = forward(&client, server) {
                tracing::debug!(%error, %server, "a connection from outside ended");
            }
            counted.fetch_sub(1, Ordering::Relaxed);
        });
        if let Err(error) = forwarded {
            open.fetch_sub(1, Ordering::Relaxed);
            tracing::warn!(%error, "a connection from outside was not forwarded");
        }
    }
}

/// Copies in both directions, until both have ended.
fn forward(client: &TcpStream, server: SocketAddr) -> io::Result<()> {
    let server = TcpStream::connect(server)?;
    // Only the link should add delay.
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    thread::scope(|scope| {
        let back = scope.spawn(|| copy(&server, client));
        copy(client, &server);
        let _ = back.join();
    });
    Ok(())
}

/// Copies until one end fails or ends, and ends the other.
fn copy(mut from: &TcpStream, mut to: &TcpStream) {
    let both = match io::copy(&mut from, &mut to) {
        Ok(_) => Shutdown::Write,
        Err(_) => Shutdown::Both,
    };
    // The connection may be closed.
    let _ = to.shutdown(both);
    if both == Shutdown::Both {
        let _ = from.shutdown(Shutdown::Both);
    }
}
