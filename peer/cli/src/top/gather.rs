//! Asks one peer for all its data, once.

use std::fmt;
use std::time::Duration;

use peer::status::{Budgets, Events, GroupStatus, Groups, Load, Peers, Ring, Status};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::model::Model;
use crate::http_client::{self, Bounds};

/// Time limit of one answer: there may be other peers to ask.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// Time limit of the ring: its owners are asked one after the other.
const RING_MAX: Duration = Duration::from_secs(5);
/// Upper limit of an answer in bytes. The longest one is a ring of 4096 groups with twelve members each: half of this.
const ANSWER_BYTES_MAX: usize = 8 << 20;
/// Upper limit of a peer's groups: one in each of its few lanes, and former ones as long as other groups need their data.
const OWN_GROUPS_MAX: usize = 512;
/// Upper limit of the entries of a group's lists (members, parts and so on): more than any group has.
const PARTS_MAX: usize = 4096;
/// Upper limit of groups of a ring: a walk along the ring ends there.
const RING_GROUPS_MAX: usize = 4096;
/// Upper limit of peers: more than any peer is connected with.
const PEERS_MAX: usize = 10_000;
/// Upper limit of an error's characters; the rest is of no use to a reader.
const WHY_CHARS_MAX: usize = 300;

/// Reason for a missing answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// No process answers there.
    Unreachable(String),
    /// The answer is not from a peer, or is a refusal.
    Refused(String),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::Unreachable(why) | Trouble::Refused(why) => f.write_str(why),
        }
    }
}

/// Asks for all data but the ring. `model` is the former data of this endpoint, or empty; it is not changed where there is
/// trouble.
///
/// # Errors
///
/// [`Trouble`] where the endpoint does not answer, refuses, or is no peer.
pub fn gather(endpoint: &str, model: &Model) -> Result<Model, Trouble> {
    let (code, body) = ask(endpoint, "/v1/status", ANSWER_MAX)?;
    let status: Status = read(code, &body)?;
    bounded(&status.groups)?;
    let mut next = model.clone();
    if next.me() != status.peer_id {
        // Another peer is there now: the former data is not about it.
        next = Model { notice: next.notice, ..Model::default() };
    }
    if next.status.as_ref().is_some_and(|last| status.uptime_s < last.uptime_s) {
        // The peer was restarted, and counts anew: its count may already be higher than before.
        next.events = None;
    }
    next.endpoint = endpoint.to_owned();
    next.status = Some(status);
    next.ready = Some(ask(endpoint, "/readyz", ANSWER_MAX)?.0 == 200);
    next.groups = optional::<Groups>(endpoint, "/v1/groups")?.map(|groups| groups.groups);
    bounded(next.groups.as_deref().unwrap_or_default())?;
    next.peers = optional::<Peers>(endpoint, "/v1/peers")?.map(|peers| peers.peers);
    within(next.peers.iter().flatten().count(), PEERS_MAX, "peers")?;
    next.budgets = optional::<Budgets>(endpoint, "/v1/budgets")?;
    events(endpoint, &mut next)?;
    load(endpoint, &mut next)?;
    next.troubles.clear();
    Ok(next)
}

/// Asks for the ring of a lane.
///
/// # Errors
///
/// [`Trouble`], as for [`gather`].
pub fn gather_ring(endpoint: &str, lane: u8) -> Result<Ring, Trouble> {
    let (code, body) = ask(endpoint, &format!("/v1/ring?lane={lane}"), RING_MAX)?;
    let ring: Ring = read(code, &body)?;
    within(ring.groups.len(), RING_GROUPS_MAX, "groups on the ring")?;
    Ok(ring)
}

/// Checks that a peer reports no more than a peer can have: the more data, the longer drawing takes.
fn bounded(groups: &[GroupStatus]) -> Result<(), Trouble> {
    within(groups.len(), OWN_GROUPS_MAX, "groups of its own")?;
    groups.iter().try_for_each(|group| {
        let lists = [group.members.len(), group.primaries.len(), group.transfers.len(), group.transactions.len()];
        within(lists.into_iter().sum(), PARTS_MAX, "members and parts of a group")
    })
}

fn within(count: usize, most: usize, what: &str) -> Result<(), Trouble> {
    match count <= most {
        true => Ok(()),
        false => Err(Trouble::Refused(format!("no peer that this program knows: it tells of {count} {what}"))),
    }
}

/// Adds the load since the last known sample; all of it where the peer's clock was set back behind that.
fn load(endpoint: &str, model: &mut Model) -> Result<(), Trouble> {
    let seen = model.load.iter().flatten().next_back().map_or(0, |sample| sample.unix_s);
    let Some(mut load) = optional::<Load>(endpoint, &format!("/v1/load?after={seen}"))? else { return Ok(()) };
    if load.last.is_some_and(|last| last < seen) {
        match optional::<Load>(endpoint, "/v1/load")? {
            Some(all) => load = all,
            None => return Ok(()),
        }
    }
    model.add_load(load.samples);
    Ok(())
}

fn events(endpoint: &str, model: &mut Model) -> Result<(), Trouble> {
    let seen = model.events.iter().flatten().map(|told| told.seq).max().unwrap_or(0);
    let Some(mut events) = optional::<Events>(endpoint, &format!("/v1/events?after={seen}"))? else { return Ok(()) };
    if events.last < seen {
        // The peer was restarted, and counts anew.
        model.events = None;
        match optional::<Events>(endpoint, "/v1/events")? {
            Some(all) => events = all,
            None => return Ok(()),
        }
    }
    model.add_events(events.events);
    Ok(())
}

/// Returns `None` for an answer that a peer of an earlier version does not have.
fn optional<T: DeserializeOwned>(endpoint: &str, path: &str) -> Result<Option<T>, Trouble> {
    match ask(endpoint, path, ANSWER_MAX)? {
        (200, body) => read(200, &body).map(Some),
        _ => Ok(None),
    }
}

fn ask(endpoint: &str, path: &str, time: Duration) -> Result<(u16, Vec<u8>), Trouble> {
    let bounds = Bounds { time, bytes: ANSWER_BYTES_MAX };
    http_client::get_within(endpoint, path, bounds).map_err(|error| match error.kind() {
        std::io::ErrorKind::InvalidData => Trouble::Refused(format!("no peer that this program knows: {error}")),
        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => {
            Trouble::Unreachable(format!("no answer within {} s", time.as_secs()))
        }
        _ => Trouble::Unreachable(error.to_string()),
    })
}

/// Error body of an endpoint.
#[derive(Default, Deserialize)]
struct Problem {
    error: Option<String>,
}

fn read<T: DeserializeOwned>(code: u16, body: &[u8]) -> Result<T, Trouble> {
    let short = |why: String| why.chars().take(WHY_CHARS_MAX).collect::<String>();
    if code != 200 {
        let said: Problem = serde_json::from_slice(body).unwrap_or_default();
        return Err(Trouble::Refused(said.error.map_or_else(|| format!("answered {code}"), short)));
    }
    // The error quotes part of the body.
    let no_peer = |error| Trouble::Refused(short(format!("no peer that this program knows: {error}")));
    serde_json::from_slice(body).map_err(no_peer)
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::sync::{Arc, Mutex};

    use environment::lock;
    use peer::status::{LoadSample, MemberStatus, PeerTraffic, Told};

    use super::*;

    /// Data of a peer.
    #[derive(Clone, Default)]
    struct Tells {
        status: Status,
        told: Vec<Told>,
        samples: Vec<LoadSample>,
        peers: usize,
        /// Answer in place of the ring, with this code.
        problem: Option<(u16, String)>,
    }

    impl Tells {
        fn answer(&self, path: &str) -> (u16, String) {
            let (path, query) = path.split_once('?').unwrap_or((path, ""));
            let after: u64 = query.strip_prefix("after=").map_or(0, |after| after.parse().unwrap());
            let json = |value: serde_json::Value| (200, value.to_string());
            match path {
                "/v1/status" => json(serde_json::to_value(&self.status).unwrap()),
                "/v1/peers" => {
                    let peers = vec![PeerTraffic::default(); self.peers];
                    json(serde_json::to_value(Peers { peers, ..Peers::default() }).unwrap())
                }
                "/v1/events" => {
                    let last = self.told.last().map_or(0, |told| told.seq);
                    let events = self.told.iter().filter(|told| told.seq > after).cloned().collect();
                    json(serde_json::to_value(Events { last, events, ..Events::default() }).unwrap())
                }
                "/v1/load" => {
                    let last = self.samples.last().map(|sample| sample.unix_s);
                    let samples = self.samples.iter().filter(|sample| sample.unix_s > after).copied().collect();
                    json(serde_json::to_value(Load { last, samples, ..Load::default() }).unwrap())
                }
                "/v1/ring" => self.problem.clone().unwrap_or((404, "{}".into())),
                _ => (404, "{}".into()),
            }
        }
    }

    /// Starts a peer that serves the given data.
    fn peer() -> (String, Arc<Mutex<Tells>>) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, tells) = (listener.local_addr().unwrap().to_string(), Arc::new(Mutex::new(Tells::default())));
        let shared = tells.clone();
        std::thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                let mut request = [0; 1024];
                let bytes = stream.read(&mut request).unwrap_or(0);
                let path = String::from_utf8_lossy(&request[..bytes]).split(' ').nth(1).unwrap_or("").to_owned();
                let (code, body) = lock(&shared).answer(&path);
                let _ = stream.write_all(format!("HTTP/1.0 {code} X\r\n\r\n{body}").as_bytes());
            }
        });
        (address, tells)
    }

    fn told(seqs: std::ops::RangeInclusive<u64>, text: &str) -> Vec<Told> {
        seqs.map(|seq| Told { id: seq, seq, text: text.into(), ..Told::default() }).collect()
    }

    #[test]
    fn a_peer_that_was_started_anew_has_another_past() {
        let (address, tells) = peer();
        *lock(&tells) = Tells {
            status: Status { uptime_s: 100, ..Status::default() },
            told: told(1..=3, "before"),
            ..Tells::default()
        };
        let model = gather(&address, &Model::default()).unwrap();
        // By the next request its count is higher than before.
        *lock(&tells) = Tells { told: told(1..=5, "since"), ..Tells::default() };
        let model = gather(&address, &model).unwrap();
        let texts: Vec<&str> = model.events.iter().flatten().map(|told| told.text.as_str()).collect();
        assert_eq!(texts, ["since"; 5]);
    }

    #[test]
    fn a_clock_that_was_set_back_does_not_hold_up_the_load() {
        let (address, tells) = peer();
        let samples = |seconds: std::ops::Range<u64>| {
            seconds.map(|unix_s| LoadSample { unix_s, ..LoadSample::default() }).collect::<Vec<_>>()
        };
        let mut model = Model::default();
        for (samples, seconds) in
            [(samples(5000..5003), 5000..5003), (samples(1400..1402), 1400..1402), (samples(1400..1404), 1400..1404)]
        {
            lock(&tells).samples = samples;
            model = gather(&address, &model).unwrap();
            let known: Vec<u64> = model.load.iter().flatten().map(|sample| sample.unix_s).collect();
            assert_eq!(known, seconds.collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_no_peer_tells_is_refused() {
        let (address, tells) = peer();
        let group = |members| GroupStatus { members: vec![MemberStatus::default(); members], ..GroupStatus::default() };
        for (groups, peers, fine) in [
            (vec![group(3); 60], 900, true),
            (vec![group(1); OWN_GROUPS_MAX + 1], 0, false),
            (vec![group(PARTS_MAX + 1)], 0, false),
            (vec![], PEERS_MAX + 1, false),
        ] {
            *lock(&tells) = Tells { status: Status { groups, ..Status::default() }, peers, ..Tells::default() };
            match gather(&address, &Model::default()) {
                Ok(_) => assert!(fine),
                Err(trouble) => assert!(!fine && matches!(trouble, Trouble::Refused(_)), "{trouble}"),
            }
        }
        lock(&tells).problem = Some((500, format!("{{\"error\":\"{}\"}}", "é".repeat(1_000_000))));
        assert_eq!(gather_ring(&address, 0), Err(Trouble::Refused("é".repeat(WHY_CHARS_MAX))));
        let ring = Ring { whole: true, groups: vec![Default::default(); RING_GROUPS_MAX + 1], ..Ring::default() };
        lock(&tells).problem = Some((200, serde_json::to_string(&ring).unwrap()));
        assert!(matches!(gather_ring(&address, 0), Err(Trouble::Refused(_))));
    }
}
