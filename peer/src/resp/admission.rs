//! A client's place at the endpoint: among those that owe the password, then among the clients.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::places::Place;

/// The place of a connection.
#[derive(Debug)]
pub enum Admission {
    /// It owes the password; other connections may take its place.
    Stranger {
        /// Its place among those.
        place: Place,
        /// Where a place is to be had once it has given the password.
        clients: Arc<Semaphore>,
    },
    /// It has a place of its own.
    Client {
        /// Until it is dropped.
        _place: OwnedSemaphorePermit,
    },
}

impl Admission {
    /// Gives a client that has given the password a place of its own: whether there is one.
    pub fn admit(&mut self) -> bool {
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
