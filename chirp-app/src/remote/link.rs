//! A shared connection to one of several peers, made anew after it broke.
//!
//! A task of its own makes it: a caller that waits for it may be dropped, or not be polled for a while, and no other
//! caller waits for that one then.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ErrorKind, RedisError};
use tokio::sync::watch;

use super::Limits;

/// Least age of a connection before it may be exchanged because its peer cannot do an operation.
const CHANGE_AFTER: Duration = Duration::from_secs(1);

/// The reason why there is no connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NoLink {
    /// The peer wants another password.
    Refused(String),
    /// No address answers.
    Unreachable(String),
}

/// A connection, with the number of answers that have come through it.
#[derive(Clone)]
pub(super) struct Connection {
    pub(super) inner: MultiplexedConnection,
    /// Number of the connection, different for each.
    number: u64,
    since: Instant,
    answers: Arc<AtomicU64>,
}

impl Connection {
    pub(super) fn answers(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }

    pub(super) fn has_answered(&self) {
        self.answers.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns whether both are the same connection.
    pub(super) fn is(&self, other: &Connection) -> bool {
        self.number == other.number
    }
}

type Outcome = Result<Connection, NoLink>;

/// State of the link.
enum Now {
    Nothing,
    /// A task makes a connection.
    Dialling(watch::Receiver<Option<Outcome>>),
    There(Connection),
}

struct LinkState {
    now: Now,
    /// Error of the last attempt to connect.
    trouble: Option<String>,
    /// Number of attempts to connect.
    number: u64,
    /// Index of the address in use, or of the next one to try.
    at: usize,
}

struct Shared {
    clients: Arc<[(String, Client)]>,
    limits: Limits,
    state: Mutex<LinkState>,
}

/// A link to one of several peers.
pub(super) struct Link(Arc<Shared>);

impl Shared {
    fn state(&self) -> MutexGuard<'_, LinkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connects to the first of the addresses that answers, from this one on.
    async fn dial(&self, first: usize) -> (usize, Result<MultiplexedConnection, NoLink>) {
        let mut why = String::from("no address was given");
        for at in (0..self.clients.len()).map(|more| (first + more) % self.clients.len()) {
            let config = AsyncConnectionConfig::new()
                .set_connection_timeout(Some(self.limits.connect))
                .set_response_timeout(Some(self.limits.answer));
            match self.clients[at].1.get_multiplexed_async_connection_with_config(&config).await {
                Ok(connection) => return (at, Ok(connection)),
                Err(error) if is_about_the_password(&error) => return (at, Err(NoLink::Refused(error.to_string()))),
                Err(error) => why = error.to_string(),
            }
        }
        (first, Err(NoLink::Unreachable(why)))
    }
}

/// Makes a connection, and tells all callers that wait.
async fn make(shared: Arc<Shared>, first: usize, number: u64, tell: watch::Sender<Option<Outcome>>) {
    let (at, dialled) = shared.dial(first).await;
    let outcome = dialled.map(|inner| Connection { inner, number, since: Instant::now(), answers: Arc::default() });
    let mut state = shared.state();
    state.at = at;
    (state.now, state.trouble) = match &outcome {
        Ok(connection) => (Now::There(connection.clone()), None),
        Err(NoLink::Refused(why) | NoLink::Unreachable(why)) => (Now::Nothing, Some(why.clone())),
    };
    drop(state);
    tell.send_replace(Some(outcome));
}

impl Link {
    pub(super) fn new(clients: Arc<[(String, Client)]>, limits: Limits) -> Link {
        let state = Mutex::new(LinkState { now: Now::Nothing, trouble: None, number: 0, at: 0 });
        Link(Arc::new(Shared { clients, limits, state }))
    }

    /// Returns the address in use, or the one to be tried next.
    pub(super) fn address(&self) -> String {
        let at = self.0.state().at;
        self.0.clients.get(at).map_or_else(String::new, |(address, _)| address.clone())
    }

    /// Returns why there is no connection, where an attempt failed and none has succeeded since.
    pub(super) fn trouble(&self) -> Option<String> {
        self.0.state().trouble.clone()
    }

    /// Returns the connection in use, or a new one.
    pub(super) async fn connection(&self) -> Outcome {
        let (mut told, number) = {
            let mut state = self.0.state();
            match &state.now {
                Now::There(connection) => return Ok(connection.clone()),
                Now::Dialling(told) => (told.clone(), state.number),
                Now::Nothing => {
                    state.number += 1;
                    let (tell, told) = watch::channel(None);
                    state.now = Now::Dialling(told.clone());
                    tokio::spawn(make(self.0.clone(), state.at, state.number, tell));
                    (told, state.number)
                }
            }
        };
        let outcome = match told.wait_for(Option::is_some).await {
            Ok(outcome) => outcome.clone(),
            Err(_) => None,
        };
        outcome.unwrap_or_else(|| {
            // The task has gone with its runtime.
            let mut state = self.0.state();
            if state.number == number && matches!(state.now, Now::Dialling(_)) {
                state.now = Now::Nothing;
            }
            Err(NoLink::Unreachable("interrupted".into()))
        })
    }

    /// Gives a connection up that broke, or with a peer that does not answer: the next one is with another peer, if
    /// there is one.
    pub(super) fn give_up(&self, connection: &Connection) {
        let mut state = self.0.state();
        if matches!(&state.now, Now::There(current) if current.is(connection)) {
            state.now = Now::Nothing;
            state.at = (state.at + 1) % self.0.clients.len().max(1);
        }
    }

    /// Gives a connection up whose peer cannot do an operation: another peer may, if there is one.
    pub(super) fn try_another(&self, connection: &Connection) {
        if self.0.clients.len() > 1 && connection.since.elapsed() >= CHANGE_AFTER {
            self.give_up(connection);
        }
    }
}

fn is_about_the_password(error: &RedisError) -> bool {
    error.kind() == ErrorKind::AuthenticationFailed || matches!(error.code(), Some("NOAUTH" | "WRONGPASS"))
}
