//! Place of a client at the endpoint: among those that owe the password, then among the clients.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::places::Place;

/// Place of a connection.
#[derive(Debug)]
pub(crate) enum Admission {
    /// The client owes the password; other connections may take its place.
    Stranger {
        /// Place among such clients.
        place: Place,
        /// Source of a place for the time after the password.
        clients: Arc<Semaphore>,
    },
    /// The client has a place of its own.
    Client {
        /// Held until it is dropped.
        _place: OwnedSemaphorePermit,
    },
}

impl Admission {
    /// Gives a client that has given the password a place of its own. Returns whether there was one.
    pub(crate) fn admit(&mut self) -> bool {
        let Admission::Stranger { clients, .. } = self else { return true };
        let Ok(place) = clients.clone().try_acquire_owned() else { return false };
        *self = Admission::Client { _place: place };
        true
    }

    /// Returns once another connection has this place.
    pub async fn lost(&mut self) {
        match self {
            Admission::Stranger { place, .. } => place.lost().await,
            Admission::Client { .. } => std::future::pending().await,
        }
    }
}
