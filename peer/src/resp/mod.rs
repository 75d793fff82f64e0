//! The endpoint for clients: the Redis protocol on every peer.
//!
//! Bytes become requests in [`decoder`]; [`table`] says what carries each command out ([`commands`]); what that asks of
//! keys goes to the node through [`backend`], comes back in any order, waits for its turn in [`pending`], is put together
//! by [`join`] and written as [`reply`]. `connection` is the one place that waits.

pub mod arguments;
mod arrival;
pub mod backend;
pub mod call;
pub mod commands;
mod connection;
pub mod decoder;
mod errors;
mod execute;
pub mod inline;
pub mod join;
pub mod latencies;
pub mod metrics;
pub mod pending;
pub mod reply;
pub mod session;
pub mod shared;
mod socket;
pub mod table;

use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, watch};

pub use backend::{Backend, Outcome, Rejected, Replies, Router};
use connection::Connection;
pub use metrics::Metrics;
pub use shared::{Password, Settings, Shared};
use socket::Socket as _;

/// Takes clients until `stop` becomes true, then returns once all that were asked are answered.
pub async fn serve(listener: TcpListener, shared: Arc<Shared>, mut stop: watch::Receiver<bool>) {
    let places = Arc::new(Semaphore::new(shared.settings.clients_max));
    // Never sent on: it closes when the last connection has dropped its end.
    let (alive, mut all_gone) = mpsc::channel::<()>(1);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            changed = stop.changed() => {
                if changed.is_err() || *stop.borrow() {
                    break;
                }
                continue;
            }
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of file descriptors, mostly: others will be closed.
                tracing::warn!(%error, "cannot accept a client");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        shared.metrics.clients_total.inc();
        match places.clone().try_acquire_owned() {
            Ok(place) => {
                // The latency of small answers matters, and answers are written in batches anyway.
                let _ = stream.set_nodelay(true);
                let (shared, stop, alive) = (shared.clone(), stop.clone(), alive.clone());
                tokio::spawn(async move {
                    shared.metrics.clients.inc();
                    let gauge = shared.metrics.clients.clone();
                    Connection::new(stream, shared).run(stop).await;
                    gauge.dec();
                    drop((place, alive));
                });
            }
            Err(_) => {
                shared.metrics.clients_refused.inc();
                refuse(stream);
            }
        }
    }
    drop((listener, alive));
    let _ = all_gone.recv().await;
}

/// Tells a client that there is no place for it.
fn refuse(stream: TcpStream) {
    tokio::spawn(async move {
        let _ = stream.writable().await;
        let _ = stream.try_write(b"-ERR max number of clients reached\r\n");
        stream.close(Duration::from_millis(200)).await;
    });
}
