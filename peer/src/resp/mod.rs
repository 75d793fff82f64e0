//! Endpoint for clients: the Redis protocol on every peer.
//!
//! [`decoder`] turns bytes into requests; [`table`] names the handler of each command (`commands`). The operations on
//! keys go to the node through `backend` and come back in any order. Their answers wait for their turn in `pending`,
//! are combined by `join` and written as `reply`. `connection` is the only place that waits.

mod admission;
mod arguments;
mod arrival;
mod backend;
mod call;
mod commands;
mod connection;
pub mod decoder;
mod errors;
mod execute;
pub mod inline;
mod join;
pub(crate) mod latencies;
mod metrics;
mod pending;
mod reply;
mod session;
mod shared;
mod socket;
pub mod table;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, watch};

use admission::Admission;
pub use backend::{Backend, Rejected, Replies, RequestOutcome, Router};
use connection::Connection;
pub use metrics::Metrics;
pub use shared::{Password, Settings, Shared};

use crate::accept::Accept;
use crate::places::Places;
use socket::Socket as _;

/// Upper limit of refused clients that are still being told so; further ones are closed without an error.
const REFUSALS_MAX: usize = 16;
/// Upper limit of clients that the kernel holds until they are accepted: as tokio sets it.
const BACKLOG_MAX: usize = 1024;
/// Divisor of the places of clients that owe the password: one part is kept for clients on this machine.
const STRANGERS_KEPT: usize = 4;

/// Accepts clients until `stop` becomes true. Then it returns once all commands are answered and all connections are
/// closed. Commands that arrive meanwhile are refused with `-TRYAGAIN`, also those of clients that are not yet accepted.
pub async fn serve(listener: TcpListener, shared: Arc<Shared>, mut stop: watch::Receiver<bool>) {
    // Never sent on: it closes when the last connection has dropped its end.
    let (alive, mut all_gone) = mpsc::channel::<()>(1);
    let settings = &shared.settings;
    let door = Door {
        clients: Arc::new(Semaphore::new(settings.clients_max)),
        strangers: Places::new(settings.strangers_max, settings.strangers_max / STRANGERS_KEPT),
        refusals: Arc::new(Semaphore::new(REFUSALS_MAX)),
        stop: stop.clone(),
        alive,
        shared,
    };
    let mut accept = Accept::new(listener, "--resp");
    loop {
        tokio::select! {
            (stream, address) = accept.next() => door.let_in(stream, address),
            changed = stop.changed() => {
                if changed.is_err() || *stop.borrow() {
                    break;
                }
            }
        }
    }
    for (stream, address) in accept.rest(BACKLOG_MAX) {
        door.let_in(stream, address);
    }
    drop(door);
    let _ = all_gone.recv().await;
}

/// Admission of new clients.
struct Door {
    clients: Arc<Semaphore>,
    strangers: Arc<Places>,
    refusals: Arc<Semaphore>,
    shared: Arc<Shared>,
    stop: watch::Receiver<bool>,
    alive: mpsc::Sender<()>,
}

impl Door {
    /// Serves a client, or refuses it.
    fn let_in(&self, stream: TcpStream, address: SocketAddr) {
        self.shared.metrics.clients_total.inc();
        let place = if self.shared.settings.password.is_some() {
            let place = self.strangers.take(address.ip().to_canonical().is_loopback());
            Admission::Stranger { place, clients: self.clients.clone() }
        } else if let Ok(place) = self.clients.clone().try_acquire_owned() {
            Admission::Client { _place: place }
        } else {
            self.refuse(stream);
            return;
        };
        let (shared, stop, alive) = (self.shared.clone(), self.stop.clone(), self.alive.clone());
        tokio::spawn(async move {
            shared.metrics.clients.inc();
            let gauge = shared.metrics.clients.clone();
            Connection::new(stream, shared, place).run(stop).await;
            gauge.dec();
            drop(alive);
        });
    }

    /// Tells a client that there is no place for it.
    fn refuse(&self, stream: TcpStream) {
        self.shared.metrics.clients_refused.inc();
        let Ok(told) = self.refusals.clone().try_acquire_owned() else { return };
        tokio::spawn(async move {
            let _ = stream.writable().await;
            let _ = stream.try_write(format!("-{}\r\n", errors::TOO_MANY_CLIENTS).as_bytes());
            stream.close(Duration::from_millis(200)).await;
            drop(told);
        });
    }
}
