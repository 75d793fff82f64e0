//! Asks one peer for everything, once.

use std::fmt;
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::model::Model;
use crate::cli::web;
use crate::status::{Budgets, Events, Groups, Load, Peers, Ring, Status};

/// How long one answer may take: there may be other peers to ask.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// The ring's owners are asked for it, one after the other.
const RING_MAX: Duration = Duration::from_secs(5);

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Nobody answers there.
    Unreachable(String),
    /// Whoever answers is no peer, or refuses.
    Refused(String),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::Unreachable(why) | Trouble::Refused(why) => f.write_str(why),
        }
    }
}

/// Asks for everything but the ring. `model` is what this endpoint said before, or nothing; it is not changed where there is
/// trouble.
pub fn gather(endpoint: &str, model: &Model) -> Result<Model, Trouble> {
    let (code, body) = ask(endpoint, "/v1/status", ANSWER_MAX)?;
    let status: Status = read(code, &body)?;
    let mut next = model.clone();
    if next.me() != status.peer_id {
        // Another one is there now: what was said before is not about it.
        next = Model { notice: next.notice, ..Model::default() };
    }
    next.endpoint = endpoint.to_owned();
    next.status = Some(status);
    next.ready = Some(ask(endpoint, "/readyz", ANSWER_MAX)?.0 == 200);
    next.groups = optional::<Groups>(endpoint, "/v1/groups")?.map(|groups| groups.groups);
    next.peers = optional::<Peers>(endpoint, "/v1/peers")?.map(|peers| peers.peers);
    next.budgets = optional::<Budgets>(endpoint, "/v1/budgets")?;
    events(endpoint, &mut next)?;
    let after = next.load.iter().flatten().next_back().map_or(0, |sample| sample.unix_s);
    if let Some(load) = optional::<Load>(endpoint, &format!("/v1/load?after={after}"))? {
        next.add_load(load.samples);
    }
    next.troubles.clear();
    Ok(next)
}

/// Asks for the ring of a lane.
pub fn gather_ring(endpoint: &str, lane: u8) -> Result<Ring, Trouble> {
    let (code, body) = ask(endpoint, &format!("/v1/ring?lane={lane}"), RING_MAX)?;
    read(code, &body)
}

fn events(endpoint: &str, model: &mut Model) -> Result<(), Trouble> {
    let seen = model.events.iter().flatten().map(|told| told.seq).max().unwrap_or(0);
    let Some(mut events) = optional::<Events>(endpoint, &format!("/v1/events?after={seen}"))? else { return Ok(()) };
    if events.last < seen {
        // It was started anew, and counts anew.
        model.events = None;
        match optional::<Events>(endpoint, "/v1/events")? {
            Some(all) => events = all,
            None => return Ok(()),
        }
    }
    model.add_events(events.events);
    Ok(())
}

/// What a peer of an earlier version does not have is nothing.
fn optional<T: DeserializeOwned>(endpoint: &str, path: &str) -> Result<Option<T>, Trouble> {
    match ask(endpoint, path, ANSWER_MAX)? {
        (200, body) => read(200, &body).map(Some),
        _ => Ok(None),
    }
}

fn ask(endpoint: &str, path: &str, timeout: Duration) -> Result<(u16, Vec<u8>), Trouble> {
    web::get_within(endpoint, path, timeout).map_err(|error| match error.kind() {
        std::io::ErrorKind::InvalidData => Trouble::Refused(format!("no peer that this program knows: {error}")),
        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => {
            Trouble::Unreachable(format!("no answer within {} s", timeout.as_secs()))
        }
        _ => Trouble::Unreachable(error.to_string()),
    })
}

fn read<T: DeserializeOwned>(code: u16, body: &[u8]) -> Result<T, Trouble> {
    if code != 200 {
        let said: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
        let why = said["error"].as_str().map_or_else(|| format!("answered {code}"), str::to_owned);
        return Err(Trouble::Refused(why));
    }
    let no_peer = |error| Trouble::Refused(format!("no peer that this program knows: {error}"));
    serde_json::from_slice(body).map_err(no_peer)
}
