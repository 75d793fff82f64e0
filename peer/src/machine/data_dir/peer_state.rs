//! The file `peer.json`: the state of a peer beside its store. It holds the ring that the peer belongs to, that network's
//! name, key and settings, the last incarnation, and known peers. It also holds whether the peer is leaving, or has left.
//!
//! The file is separate from the store. So a peer whose store is lost, or that never had one, still enters its own network
//! again. Such a peer never founds a second network (hazard 41), and never uses an incarnation twice. A peer that was leaving
//! when its process died goes on leaving; a peer that has left enters no network by itself.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use environment::version::PROGRAM;
use node::LeaveMode;
use overlay::{Incarnation, PeerKey, PeerName, RingId};
use serde::{Deserialize, Serialize};

use super::remembered::{Agreed, Network};
use super::sealed;

/// Version of this file's format. Raise it with every change of the format; the golden file finds an unintended change.
/// Files of version 1 do not name their version.
pub(in super::super) const PEER_STATE_VERSION: u32 = 3;
/// Upper limit of remembered peers.
const PEERS_MAX: usize = 64;

#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in super::super) struct Content {
    pub(in super::super) ring: Option<String>,
    /// The rings of its other lanes, if the peer has more than one lane.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(in super::super) lanes: Vec<String>,
    pub(in super::super) incarnation: u64,
    pub(in super::super) peers: BTreeMap<String, Vec<String>>,
    /// The network that the peer belongs to, with its ring.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in super::super) network: Option<Network>,
    /// Mode of the peer's leave, if it leaves the ring; `true` in the file is a forced leave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in super::super) leaving: Option<LeaveMode>,
    /// The ring that the peer has left, while it belongs to no other ring.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in super::super) left: Option<String>,
    /// The peer's name for administrators, in any network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in super::super) name: Option<PeerName>,
}

fn ring(text: &str) -> Option<RingId> {
    u128::from_str_radix(text, 16).ok().map(RingId)
}

/// The file `peer.json` of a data directory.
#[derive(Debug, PartialEq, Eq)]
pub struct PeerState {
    path: PathBuf,
    content: Content,
    changed: bool,
}

impl PeerState {
    /// Refuses the file of another version of the program. Changes nothing; a broken file passes here, and fails in
    /// [`PeerState::load`].
    ///
    /// # Errors
    /// A text for the operator of this process: both versions, and the remedy.
    pub fn check_format(data_dir: &Path) -> Result<(), String> {
        let path = data_dir.join("peer.json");
        match fs::read(&path) {
            Ok(text) => sealed::check_format(&path, &text, PEER_STATE_VERSION),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(broken(&path, &error)),
        }
    }

    /// Reads the file. A missing file is empty; a broken file is an error, because the file determines the network.
    ///
    /// # Errors
    /// The file cannot be read, is broken, or is of another version. The text is for the administrator.
    pub fn load(data_dir: &Path) -> Result<PeerState, String> {
        let path = data_dir.join("peer.json");
        match fs::read(&path) {
            Ok(text) => PeerState::parse(path, &text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Ok(PeerState { path, content: Content::default(), changed: false })
            }
            Err(error) => Err(broken(&path, &error)),
        }
    }

    /// Parses the bytes that were read from `path`.
    pub(in super::super) fn parse(path: PathBuf, text: &[u8]) -> Result<PeerState, String> {
        sealed::check_format(&path, text, PEER_STATE_VERSION)?;
        let content = sealed::parse(PEER_STATE_VERSION, text).map_err(|why| broken(&path, &why))?;
        PeerState::of(path, content)
    }

    /// Parses the content of the file without its checksum, which no random change of bytes gets right.
    pub(in super::super) fn parse_unsealed(path: PathBuf, text: &[u8]) -> Result<PeerState, String> {
        let content = serde_json::from_slice::<Content>(text).map_err(|error| broken(&path, &error))?;
        PeerState::of(path, content)
    }

    fn of(path: PathBuf, content: Content) -> Result<PeerState, String> {
        if content.ring.iter().chain(&content.left).chain(&content.lanes).any(|text| ring(text).is_none()) {
            return Err(broken(&path, &"its ring is missing"));
        }
        if content.network.as_ref().is_some_and(|network| !matches!(&*network.durability, "sync" | "memory")) {
            return Err(broken(&path, &"its durability is missing"));
        }
        if content.ring.is_some() != content.network.is_some() {
            return Err(broken(&path, &"it names a ring without its network, or a network without its ring"));
        }
        Ok(PeerState { path, content, changed: false })
    }

    /// Returns the rings of all its lanes; none where the peer belongs to no network.
    pub(crate) fn rings(&self) -> Vec<RingId> {
        self.ring().into_iter().chain(self.content.lanes.iter().filter_map(|text| ring(text))).collect()
    }

    /// Returns the ring that this peer belongs to, which names its network: with several lanes, the ring of the first lane.
    pub fn ring(&self) -> Option<RingId> {
        self.content.ring.as_deref().and_then(ring)
    }

    /// Sets the rings that the peer belongs to from now on, with one lane or several, and their network. Where the peer is in
    /// these rings already, the remembered network stays.
    pub(crate) fn set_rings(&mut self, network: &Network, first: RingId, others: impl IntoIterator<Item = RingId>) {
        let text = first.to_string();
        let lanes: Vec<String> = others.into_iter().map(|ring| ring.to_string()).collect();
        if self.content.ring.as_ref() != Some(&text) || self.content.lanes != lanes {
            self.content.ring = Some(text);
            self.content.lanes = lanes;
            self.content.network = Some(network.clone());
            self.content.left = None;
            self.changed = true;
        }
    }

    /// Returns the network that the peer belongs to.
    pub fn network(&self) -> Option<&Network> {
        self.content.network.as_ref()
    }

    /// Changes the remembered values of the network that the peer belongs to.
    pub fn change_network(&mut self, change: impl FnOnce(&mut Network)) {
        if let Some(network) = &mut self.content.network {
            let before = network.clone();
            change(network);
            self.changed |= *network != before;
        }
    }

    /// Returns the peer's name, as it was last set.
    pub fn name(&self) -> Option<&PeerName> {
        self.content.name.as_ref()
    }

    /// Sets the peer's name; `None` changes nothing.
    pub(crate) fn set_name(&mut self, name: Option<&PeerName>) {
        if let Some(name) = name.filter(|name| self.name() != Some(name)) {
            self.content.name = Some(name.clone());
            self.changed = true;
        }
    }

    /// Returns the mode in which the peer leaves its ring; `None` if it does not leave.
    pub fn leaving(&self) -> Option<LeaveMode> {
        self.content.leaving
    }

    /// Sets the mode in which the peer leaves its ring; `None` where it does not leave any more.
    pub(crate) fn set_leaving(&mut self, leaving: Option<LeaveMode>) {
        self.changed |= self.content.leaving != leaving;
        self.content.leaving = leaving;
    }

    /// Returns the ring that the peer has left, while it belongs to no other ring.
    pub fn left(&self) -> Option<RingId> {
        self.content.left.as_deref().and_then(ring)
    }

    /// Records that the peer has left its ring: from now on it belongs to none, and knows no peer there.
    pub(crate) fn set_left(&mut self) {
        self.content.left = self.content.ring.take();
        self.content.network = None;
        self.content.lanes.clear();
        self.content.leaving = None;
        self.content.peers.clear();
        self.changed = true;
    }

    /// Returns an incarnation that this peer has never had; it is written to the file before it is used.
    ///
    /// # Errors
    /// The last possible incarnation was used, or the file cannot be written.
    pub(crate) fn fresh_incarnation(&mut self, proposed: u64) -> Result<Incarnation, String> {
        self.take_incarnation(proposed)?;
        self.save()?;
        Ok(Incarnation(self.content.incarnation))
    }

    pub(in super::super) fn take_incarnation(&mut self, proposed: u64) -> Result<(), String> {
        let next = self.content.incarnation.checked_add(1);
        let next = next.ok_or_else(|| broken(&self.path, &"its incarnation number is the highest possible"))?;
        self.content.incarnation = proposed.max(next);
        self.changed = true;
        Ok(())
    }

    /// Returns the known peers of the ring, with their last known addresses.
    pub fn peers(&self) -> impl Iterator<Item = (PeerKey, &[String])> {
        self.content.peers.iter().filter_map(|(name, addresses)| Some((peer(name)?, addresses.as_slice())))
    }

    /// Records the addresses of a peer, while fewer than `PEERS_MAX` peers are known or the peer is known already.
    pub fn learn(&mut self, peer: PeerKey, addresses: &[String]) {
        let name = name(&peer);
        if self.content.peers.get(&name).is_some_and(|known| known == addresses) {
            return;
        }
        if self.content.peers.len() < PEERS_MAX || self.content.peers.contains_key(&name) {
            self.content.peers.insert(name, addresses.to_vec());
            self.changed = true;
        }
    }

    /// Returns the bytes to write.
    pub(in super::super) fn text(&self) -> Vec<u8> {
        self.text_by(PROGRAM)
    }

    /// Returns the bytes as `program` would write them.
    pub(in super::super) fn text_by(&self, program: &str) -> Vec<u8> {
        sealed::text(PEER_STATE_VERSION, program, &self.content)
    }

    /// Writes the file, if anything changed.
    ///
    /// # Errors
    /// The file cannot be written. The change is kept, and the next call tries again.
    pub fn save(&mut self) -> Result<(), String> {
        if !std::mem::take(&mut self.changed) {
            return Ok(());
        }
        let text = self.text();
        sealed::write(&self.path, &text).map_err(|error| {
            self.changed = true;
            format!("{} cannot be written: {error}", self.path.display())
        })
    }
}

/// The [`PeerState`] that the lanes of a peer share.
#[derive(Debug)]
pub(crate) struct SharedPeerState(Mutex<SharedContent>);

#[derive(Debug)]
struct SharedContent {
    peer_state: PeerState,
    /// The network to remember once this peer is in a network.
    network: Network,
    entered: Vec<Option<RingId>>,
}

impl SharedPeerState {
    /// Creates the shared state, for as many lanes as the peer's network has.
    pub fn new(peer_state: PeerState, network: Network) -> SharedPeerState {
        let entered = vec![None; usize::from(network.lanes)];
        SharedPeerState(Mutex::new(SharedContent { peer_state, network, entered }))
    }

    /// Reads or changes the state under its lock.
    pub fn with<T>(&self, act: impl FnOnce(&mut PeerState) -> T) -> T {
        act(&mut self.lock().peer_state)
    }

    /// Records the network's agreed settings and policies, and returns whether they are new. The next [`PeerState::save`] writes
    /// them.
    pub fn agree(&self, agreed: Agreed, policies: &[String]) -> bool {
        let mut is_news = false;
        self.with(|peer_state| {
            peer_state.change_network(|network| {
                is_news = network.agreed.replace(agreed) != Some(agreed) || network.policies != policies;
                if is_news {
                    network.policies = policies.to_vec();
                }
            });
        });
        is_news
    }

    /// Records the ring of a lane. Once all lanes are in a ring, writes the rings to the file and returns the network's name,
    /// which is the first lane's ring.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn enter(&self, lane: u8, ring: RingId) -> Result<Option<RingId>, String> {
        let SharedContent { peer_state, network, entered } = &mut *self.lock();
        entered[usize::from(lane)] = Some(ring);
        let Some(rings) = entered.iter().copied().collect::<Option<Vec<RingId>>>() else { return Ok(None) };
        peer_state.set_rings(network, rings[0], rings[1..].iter().copied());
        peer_state.save().map(|()| Some(rings[0]))
    }

    fn lock(&self) -> MutexGuard<'_, SharedContent> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn broken(path: &Path, error: &dyn std::fmt::Display) -> String {
    format!(
        "{} cannot be read ({error}); this file records the network that this peer belongs to: restore it, or move it \
        and the store beside it away and rejoin with --join",
        path.display()
    )
}

fn name(peer: &PeerKey) -> String {
    peer.0.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn peer(name: &str) -> Option<PeerKey> {
    let mut key = [0; 32];
    if name.len() != 64 || !name.is_ascii() {
        return None;
    }
    for (byte, digits) in key.iter_mut().zip(name.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(PeerKey(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network() -> Network {
        Network {
            name: "mine".into(),
            key: None,
            founded: true,
            durability: "sync".into(),
            lanes: 1,
            agreed: None,
            policies: vec!["join=random".into()],
        }
    }

    #[test]
    fn what_is_remembered_is_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let mut peer_state = PeerState::load(dir.path()).unwrap();
        assert_eq!(peer_state.ring(), None);
        let first = peer_state.fresh_incarnation(1000).unwrap();
        peer_state.set_rings(&network(), RingId(7), []);
        peer_state.learn(PeerKey([3; 32]), &["/ip4/127.0.0.1/tcp/1".to_owned()]);
        peer_state.save().unwrap();
        let mut again = PeerState::load(dir.path()).unwrap();
        assert_eq!((again.ring(), again.rings()), (Some(RingId(7)), vec![RingId(7)]));
        assert_eq!(again.peers().map(|(peer, _)| peer).collect::<Vec<_>>(), [PeerKey([3; 32])]);
        // A wall clock that was set back does not bring back an old incarnation.
        assert!(again.fresh_incarnation(10).unwrap() > first);
        assert_eq!((again.leaving(), again.left()), (None, None));
        again.content.incarnation = u64::MAX;
        assert!(again.fresh_incarnation(10).is_err(), "there is no later one");
    }

    #[test]
    fn a_leave_is_remembered_until_it_is_in_a_ring_again() {
        let dir = tempfile::tempdir().unwrap();
        let mut peer_state = PeerState::load(dir.path()).unwrap();
        peer_state.set_rings(&network(), RingId(7), []);
        peer_state.learn(PeerKey([3; 32]), &["/ip4/127.0.0.1/tcp/1".to_owned()]);
        let first = peer_state.fresh_incarnation(1000).unwrap();
        peer_state.set_leaving(Some(LeaveMode::Forced));
        peer_state.save().unwrap();
        let mut leaving = PeerState::load(dir.path()).unwrap();
        assert_eq!(
            (leaving.ring(), leaving.leaving(), leaving.left()),
            (Some(RingId(7)), Some(LeaveMode::Forced), None)
        );
        leaving.set_left();
        leaving.save().unwrap();
        let mut left = PeerState::load(dir.path()).unwrap();
        assert_eq!((left.ring(), left.leaving(), left.left()), (None, None, Some(RingId(7))));
        assert_eq!(left.peers().count(), 0, "it dials nobody there any more");
        assert!(left.fresh_incarnation(10).unwrap() > first, "a life that has left is not lived again");
        left.set_rings(&network(), RingId(7), []);
        left.save().unwrap();
        let again = PeerState::load(dir.path()).unwrap();
        assert_eq!((again.ring(), again.left()), (Some(RingId(7)), None));
    }

    #[test]
    fn a_name_is_remembered_until_there_is_another() {
        let dir = tempfile::tempdir().unwrap();
        let load = || PeerState::load(dir.path()).unwrap();
        let name = |name: &str| name.parse::<PeerName>().ok();
        for (said, known) in [("", None), ("oak", Some("oak")), ("", Some("oak")), ("elm-2", Some("elm-2"))] {
            let mut peer_state = load();
            peer_state.set_name(name(said).as_ref());
            peer_state.save().unwrap();
            assert_eq!(load().name().map(PeerName::as_str), known);
        }
        let mut peer_state = load();
        peer_state.set_rings(&network(), RingId(7), []);
        peer_state.set_left();
        peer_state.save().unwrap();
        assert_eq!(load().name(), name("elm-2").as_ref(), "it is the peer's, whichever network it is in");
    }

    #[test]
    fn another_version_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("peer.json");
        let later = PEER_STATE_VERSION + 1;
        for (text, names) in [
            (r#"{"ring":"7","incarnation":5,"peers":{},"crc32":7}"#.to_owned(), "format 1"),
            (format!(r#"{{"format":{later},"program":"scatter 9","new":[1]}}"#), "scatter 9"),
        ] {
            fs::write(&path, &text).unwrap();
            let ours = format!("format {PEER_STATE_VERSION}");
            for refused in [PeerState::load(dir.path()).unwrap_err(), PeerState::check_format(dir.path()).unwrap_err()]
            {
                assert!(refused.contains(names) && refused.contains(&ours) && refused.contains(PROGRAM), "{refused}");
            }
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        // A broken file is not a file of another version.
        fs::write(&path, "{").unwrap();
        assert_eq!(PeerState::check_format(dir.path()), Ok(()));
        assert!(PeerState::load(dir.path()).unwrap_err().contains("cannot be read"));
    }

    #[test]
    fn a_network_is_remembered_with_its_ring_and_forgotten_with_it() {
        let dir = tempfile::tempdir().unwrap();
        let peer_state = SharedPeerState::new(PeerState::load(dir.path()).unwrap(), network());
        assert!(peer_state.with(|peer_state| peer_state.network().is_none()), "it has entered none yet");
        peer_state.enter(0, RingId(7)).unwrap();
        let agreed = Agreed { leases: true, coarse: false, min_group: 1, max_group: 9, max_value: 4096 };
        let policies = ["size=nines".to_owned()];
        assert!(peer_state.agree(agreed, &policies));
        assert!(!peer_state.agree(agreed, &policies), "told once");
        peer_state.with(PeerState::save).unwrap();
        // Another start was given other settings: the remembered settings stay.
        let other = Network { name: "other".into(), ..network() };
        let again = SharedPeerState::new(PeerState::load(dir.path()).unwrap(), other);
        again.enter(0, RingId(7)).unwrap();
        let expected = Network { agreed: Some(agreed), policies: policies.to_vec(), ..network() };
        assert_eq!(again.with(|peer_state| peer_state.network().cloned()), Some(expected));
        again.with(PeerState::set_left);
        again.with(PeerState::save).unwrap();
        assert_eq!(PeerState::load(dir.path()).unwrap().network(), None);
    }

    #[test]
    fn any_damage_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let mut peer_state = PeerState::load(dir.path()).unwrap();
        peer_state.set_rings(&network(), RingId(0x1234_5678), [RingId(0xfeed)]);
        peer_state.learn(PeerKey([3; 32]), &["/ip4/127.0.0.1/tcp/1".to_owned()]);
        peer_state.set_leaving(Some(LeaveMode::Graceful));
        peer_state.content.left = Some(RingId(0x9abc).to_string());
        peer_state.set_name("oak".parse().ok().as_ref());
        let key = super::super::key_hash::KeyHash::new(b"a key", super::super::key_hash::CHEAP).unwrap();
        peer_state.change_network(|network| network.key = Some(key));
        peer_state.fresh_incarnation(1000).unwrap();
        let path = dir.path().join("peer.json");
        let whole = fs::read(&path).unwrap();
        let understood = |bytes: &[u8]| PeerState::parse(path.clone(), bytes).is_ok();
        assert!(understood(&whole));
        let content = |bytes: &[u8]| serde_json::from_slice::<serde_json::Value>(bytes).ok();
        for place in 0..whole.len() {
            for bit in 0..8 {
                let mut damaged = whole.clone();
                damaged[place] ^= 1 << bit;
                // Except for whitespace between words, which has no meaning.
                if content(&damaged) != content(&whole) {
                    assert!(!understood(&damaged), "bit {bit} of byte {place}");
                }
            }
            assert!(!understood(&whole[..place]), "cut at {place}");
        }
    }
}
