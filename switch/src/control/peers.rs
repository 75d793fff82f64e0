//! What peers said last, and what of that counts.
//!
//! A picture of a group counts only if it names whoever paints it as a member: of groups that it is not in, nobody is asked, and
//! what it says all the same is worth nothing. Members are believed as their group believes them. Of several pictures the one counts
//! that is furthest, by the epoch first: whoever has left still speaks of the time before.

use std::collections::BTreeMap;
use std::net::{SocketAddr, SocketAddrV4};
use std::time::Duration;

use super::word::{Group, Known, Peer, Word};

/// Who has said nothing for so long answers no reads.
pub const SILENT: Duration = Duration::from_secs(3);
/// Nor does whoever has not applied so much of its group's log as another member has. What it really may answer it knows itself.
const LAG: u64 = 1000;

/// Where words come from.
#[derive(Debug, Default)]
pub struct Source {
    /// What it said last, of groups that it is a member of, and when.
    pub word: Option<(Word, Duration)>,
    /// How it stands with it, for people.
    pub state: Option<String>,
}

/// The best picture of a group.
#[derive(Debug)]
pub struct Best {
    /// It.
    pub known: Known,
    /// When somebody last spoke of the group.
    pub listed: Duration,
}

/// What became of the best picture of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// It is as it was, as far as tables go.
    Same,
    /// There is something in it that tables must follow.
    Changed,
}

impl Source {
    /// It said this. What it may not say is left out: says of how many groups that is so.
    pub fn hear(&mut self, mut word: Word, now: Duration) -> usize {
        let all = word.groups.len();
        word.groups.retain(|_, known| known.members.contains(&word.peer));
        let refused = all - word.groups.len();
        let refusal = match refused {
            0 => String::new(),
            some => format!(", and is not believed about {some} groups that it is no member of"),
        };
        self.state = Some(format!("answers as {}{refusal}", word.peer));
        self.word = Some((word, now));
        refused
    }

    /// It is a member of this group, as it says itself.
    pub fn speaks_of(&self, group: Group) -> bool {
        self.word.as_ref().is_some_and(|(word, _)| word.groups.contains_key(&group))
    }
}

/// Takes what a member says of its group.
pub fn see(groups: &mut BTreeMap<Group, Best>, group: Group, known: &Known, now: Duration) -> Seen {
    let Some(best) = groups.get_mut(&group) else {
        groups.insert(group, Best { known: known.clone(), listed: now });
        return Seen::Same;
    };
    best.listed = now;
    if (known.epoch, known.slot) < (best.known.epoch, best.known.slot) {
        return Seen::Same;
    }
    let is_same = (&best.known.parts, best.known.id) == (&known.parts, known.id);
    if best.known != *known {
        best.known = known.clone();
    }
    if is_same { Seen::Same } else { Seen::Changed }
}

/// All peers, as they were heard last.
pub struct Peers<'a> {
    /// By sources.
    pub sources: &'a [Source],
    /// The time.
    pub now: Duration,
}

impl Peers<'_> {
    fn said(&self, peer: &Peer) -> Option<&(Word, Duration)> {
        let words = self.sources.iter().filter_map(|source| source.word.as_ref());
        words.filter(|(word, _)| word.peer == *peer).max_by_key(|(_, at)| *at)
    }

    /// Where it takes a lane's packets, as far as a switch can send them.
    pub fn endpoint(&self, peer: &Peer, lane: u32) -> Option<SocketAddrV4> {
        match self.said(peer)?.0.endpoints.get(&lane)? {
            SocketAddr::V4(address) => Some(*address),
            SocketAddr::V6(_) => None,
        }
    }

    /// It speaks, and is where its group is.
    pub fn keeps_up(&self, peer: &Peer, group: Group, best: &Known) -> bool {
        let Some((word, at)) = self.said(peer) else { return false };
        let is_near = |own: &Known| own.epoch == best.epoch && own.slot.saturating_add(LAG) >= best.slot;
        self.now < *at + SILENT && word.groups.get(&group).is_some_and(is_near)
    }
}
