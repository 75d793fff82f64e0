//! Events between two states of a peer's groups: a pure function of both.
//!
//! A peer is a member of one group in each lane. That group becomes another one where it splits, merges, moves its boundary
//! or trades members. Ranges and neighbours tell these cases apart: group ids may stay or change.

use std::collections::{BTreeMap, BTreeSet};

use overlay::KeyRange;

use crate::names::Names;
use crate::status::{GroupStatus, MemberStatus, QuorumStatus, RangeStatus, part_of_ring, short_group};

/// Kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventKind {
    /// A peer became a member.
    Joined,
    /// A peer was admitted and copies the data, to become a member.
    Learning,
    /// A peer is no member any more, and was heard before.
    Left,
    /// A peer is no member any more, and was not heard before.
    Excluded,
    /// A member is not heard.
    Suspected,
    /// A suspected member is heard again.
    HeardAgain,
    /// A member became the leader.
    Led,
    /// A group became two.
    Split,
    /// Two groups became one.
    Merged,
    /// A boundary moved.
    Repartitioned,
    /// Groups traded members.
    Migrated,
    /// A range was declared lost.
    Repaired,
    /// This peer came into another group, in a way that is none of these.
    Moved,
    /// A group, this peer's own or a neighbour, hears no majority of its members.
    QuorumLost,
    /// A group hears a majority of its members again.
    QuorumBack,
    /// This peer serves clients.
    Ready,
    /// This peer does not serve clients.
    NotReady,
    /// This peer reached a step of its permanent leave.
    Leaving,
}

impl EventKind {
    /// Returns the kind's name in `GET /v1/events`.
    pub fn name(self) -> &'static str {
        match self {
            EventKind::Joined => "joined",
            EventKind::Learning => "learning",
            EventKind::Left => "left",
            EventKind::Excluded => "excluded",
            EventKind::Suspected => "suspected",
            EventKind::HeardAgain => "heard_again",
            EventKind::Led => "led",
            EventKind::Split => "split",
            EventKind::Merged => "merged",
            EventKind::Repartitioned => "repartitioned",
            EventKind::Migrated => "migrated",
            EventKind::Repaired => "repaired",
            EventKind::Moved => "moved",
            EventKind::QuorumLost => "quorum_lost",
            EventKind::QuorumBack => "quorum_back",
            EventKind::Ready => "ready",
            EventKind::NotReady => "not_ready",
            EventKind::Leaving => "leaving",
        }
    }

    /// Returns whether the kind is the one that counts, of two kinds that follow each other.
    pub(crate) fn is_first_of_its_family(self) -> bool {
        !matches!(self, EventKind::HeardAgain | EventKind::Joined | EventKind::Ready | EventKind::QuorumBack)
    }
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Happening {
    /// Kind of the event.
    pub kind: EventKind,
    /// Group that the event happened to, by id.
    pub group: Option<String>,
    /// Peer that the event happened to, or that caused it.
    pub peer: Option<String>,
    /// Text for display.
    pub text: String,
}

/// Family of events, of which each ends the one before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// Whether a peer is heard.
    Hearing(Option<String>),
    /// Whether a peer copies, or is a member.
    Entering(Option<String>, Option<String>),
    /// Leader of a group.
    Leading(Option<String>),
    /// Whether a group hears a majority of its members.
    Quorum(Option<String>),
    /// Whether this peer serves.
    Serving,
    /// Family of a single event.
    Single(EventKind, Option<String>, Option<String>, String),
}

impl Family {
    /// Returns whether an event holds until the next one of its family, and is not told again before.
    pub(crate) fn is_state(&self) -> bool {
        matches!(self, Family::Leading(_) | Family::Quorum(_) | Family::Serving)
    }

    /// Returns whether one event follows the other. A pair may stay open: a suspected member may be excluded.
    pub(crate) fn is_pair(&self) -> bool {
        matches!(self, Family::Hearing(_) | Family::Entering(..))
    }
}

impl Happening {
    /// Returns an event of these parts.
    pub fn of(kind: EventKind, group: Option<&str>, peer: Option<&str>, text: String) -> Happening {
        Happening { kind, group: group.map(str::to_owned), peer: peer.map(str::to_owned), text }
    }

    /// Returns the event that this peer serves clients, or does not.
    pub fn serves(yes: bool) -> Happening {
        let (kind, text) = match yes {
            true => (EventKind::Ready, "this peer serves clients"),
            false => (EventKind::NotReady, "this peer does not serve clients"),
        };
        Happening::of(kind, None, None, text.into())
    }

    /// Returns the event that this peer leaves and has reached this step. `label` is its displayed name.
    pub fn leaving(peer: &str, label: &str, step: &str) -> Happening {
        Happening::of(EventKind::Leaving, None, Some(peer), format!("{label} is leaving: {step}"))
    }

    /// Returns the family that the event is compared with.
    pub(super) fn family(&self) -> Family {
        match self.kind {
            EventKind::Suspected | EventKind::HeardAgain => Family::Hearing(self.peer.clone()),
            EventKind::Learning | EventKind::Joined => Family::Entering(self.group.clone(), self.peer.clone()),
            EventKind::Led => Family::Leading(self.group.clone()),
            EventKind::QuorumLost | EventKind::QuorumBack => Family::Quorum(self.group.clone()),
            EventKind::Ready | EventKind::NotReady => Family::Serving,
            kind => Family::Single(kind, self.group.clone(), self.peer.clone(), self.text.clone()),
        }
    }
}

/// Returns the events in the groups of the peer `me` from `last` to `now`. Groups that only need data that the peer holds do
/// not count.
pub fn happenings(me: &str, last: &[GroupStatus], now: &[GroupStatus]) -> Vec<Happening> {
    let names = &Names::of_groups(last.iter().chain(now));
    let lanes: BTreeSet<Option<u8>> = last.iter().chain(now).map(|group| group.lane).collect();
    let mut all = Vec::new();
    for lane in lanes {
        match (own(last, lane), own(now, lane)) {
            (None, Some(now)) => all.push(entered(me, now, names)),
            (Some(last), None) => {
                let text = format!("{} is in group {} no more", names.label(me), short_group(&last.id));
                all.push(Happening::of(EventKind::Left, Some(&last.id), Some(me), text));
            }
            (Some(last), Some(now)) => between(last, now, names, &mut all),
            (None, None) => {}
        }
    }
    all
}

/// Keeps the last known leader while the leader is unknown: otherwise the same leader would be told again.
pub(crate) fn remember_leaders(last: &[GroupStatus], now: &mut [GroupStatus]) {
    for group in now.iter_mut().filter(|group| group.leader.is_none()) {
        group.leader = last.iter().find(|known| known.id == group.id).and_then(|known| known.leader.clone());
    }
}

/// Returns the group of a lane that the peer belongs to.
fn own(groups: &[GroupStatus], lane: Option<u8>) -> Option<&GroupStatus> {
    groups.iter().find(|group| group.lane == lane && group.part != "former")
}

fn entered(me: &str, group: &GroupStatus, names: &Names<'_>) -> Happening {
    let (kind, what) = match group.part == "learner" {
        true => (EventKind::Learning, "copies from"),
        false => (EventKind::Joined, "is a member of"),
    };
    let text = format!("{} {what} group {}", names.label(me), short_group(&group.id));
    Happening::of(kind, Some(&group.id), Some(me), text)
}

fn between(last: &GroupStatus, now: &GroupStatus, names: &Names<'_>, all: &mut Vec<Happening>) {
    let became = became(last, now);
    all.extend(became.clone());
    if now.losses.len() > last.losses.len() {
        let text = format!("group {} took over a range that was declared lost", short_group(&now.id));
        all.push(Happening::of(EventKind::Repaired, Some(&now.id), None, text));
    }
    // Members of another group did not come or go one by one.
    if became.is_none_or(|became| became.kind == EventKind::Repartitioned) {
        members(last, now, names, all);
    }
    quorums(last, now, all);
    if let Some(leader) = &now.leader
        && (last.leader.as_ref() != Some(leader) && last.id == now.id)
    {
        let text = format!("{} leads group {}", names.label(leader), short_group(&now.id));
        all.push(Happening::of(EventKind::Led, Some(&now.id), Some(leader), text));
    }
}

/// Adds groups that lost their majority, or have one again: the peer's own and its neighbours.
fn quorums(last: &GroupStatus, now: &GroupStatus, all: &mut Vec<Happening>) {
    let before: BTreeMap<&String, bool> = told_quorums(last).map(|told| (told.group, told.quorum.held)).collect();
    let mut seen = BTreeSet::new();
    for QuorumView { group, range, quorum } in told_quorums(now).filter(|told| seen.insert(told.group)) {
        let (id, words) = (short_group(group), quorum.words());
        let (kind, text) = match (before.get(group), quorum.held) {
            (Some(true) | None, false) => {
                let of = range.and_then(RangeStatus::arc).map_or("its part".into(), share);
                let text = format!("group {id} has no majority: {words}; no operation on {of} of the ring is answered");
                (EventKind::QuorumLost, text)
            }
            (Some(false), true) => (EventKind::QuorumBack, format!("group {id} has a majority again: {words}")),
            _ => continue,
        };
        all.push(Happening::of(kind, Some(group), None, text));
    }
}

/// Quorum of one group, as a member tells it.
struct QuorumView<'a> {
    group: &'a String,
    range: Option<&'a RangeStatus>,
    quorum: &'a QuorumStatus,
}

fn told_quorums(group: &GroupStatus) -> impl Iterator<Item = QuorumView<'_>> {
    let own = (Some(&group.id), Some(&group.range), &group.quorum);
    let before = (group.predecessor.as_ref(), group.predecessor_range.as_ref(), &group.predecessor_quorum);
    let behind = (group.successor.as_ref(), group.successor_range.as_ref(), &group.successor_quorum);
    [own, before, behind]
        .into_iter()
        .filter_map(|(id, range, quorum)| Some(QuorumView { group: id?, range, quorum: quorum.as_ref()? }))
}

/// Returns the event by which a group changed its id or its range.
fn became(last: &GroupStatus, now: &GroupStatus) -> Option<Happening> {
    if last.id == now.id && last.range == now.range {
        return None;
    }
    let (before, after) = (last.range.arc()?, now.range.arc()?);
    let (old, new) = (short_group(&last.id), short_group(&now.id));
    let share = share(after);
    let (kind, text) = if before == after {
        let (come, gone) = (others(last, now), others(now, last));
        (EventKind::Migrated, format!("group {old} traded members, {come} for {gone}: now group {new}"))
    } else if before.contains_range(after) && !before.is_full() && is_whole(before, after, now)
        || before.is_full() && before.contains_range(after)
    {
        (EventKind::Split, format!("group {old} split: now group {new}, {share} of the ring"))
    } else if after.contains_range(before) && (after.is_full() || was_neighbour(before, after, last)) {
        (EventKind::Merged, format!("group {old} merged into group {new}, {share} of the ring"))
    } else if before.overlaps(after) {
        (EventKind::Repartitioned, format!("group {old} moved a boundary: now group {new}, {share} of the ring"))
    } else {
        (EventKind::Moved, format!("this peer went from group {old} to group {new}, {share} of the ring"))
    };
    Some(Happening::of(kind, Some(&now.id), None, text))
}

/// Returns whether the rest of `before` without `after` is exactly one neighbour's range: the other half of a split.
fn is_whole(before: KeyRange, after: KeyRange, now: &GroupStatus) -> bool {
    let neighbours = [&now.predecessor_range, &now.successor_range];
    neighbours.into_iter().flatten().filter_map(RangeStatus::arc).any(|other| joined(after, other) == Some(before))
}

/// Returns whether `after` is `before` and the whole range of one of its neighbours.
fn was_neighbour(before: KeyRange, after: KeyRange, last: &GroupStatus) -> bool {
    let neighbours = [&last.predecessor_range, &last.successor_range];
    neighbours.into_iter().flatten().filter_map(RangeStatus::arc).any(|other| joined(before, other) == Some(after))
}

/// Joins two arcs of which one begins where the other ends.
fn joined(one: KeyRange, other: KeyRange) -> Option<KeyRange> {
    if one.is_full() || other.is_full() {
        return None;
    }
    let behind = |first: KeyRange, second: KeyRange| {
        (first.end() == second.start()).then(|| KeyRange::new(first.start(), second.end()))
    };
    behind(one, other).or_else(|| behind(other, one))
}

/// Formats a range's share of the ring for display.
fn share(range: KeyRange) -> String {
    if range.is_full() { "all".into() } else { format!("{:.0} %", part_of_ring(range) * 100.0) }
}

/// Returns how many members of `now` were not in `last`.
fn others(last: &GroupStatus, now: &GroupStatus) -> usize {
    now.members.iter().filter(|member| find(last, &member.peer_id).is_none()).count()
}

fn find<'a>(group: &'a GroupStatus, peer: &str) -> Option<&'a MemberStatus> {
    group.members.iter().find(|member| member.peer_id == peer)
}

/// Adds members that came, went, fell silent or were heard again.
fn members(last: &GroupStatus, now: &GroupStatus, names: &Names<'_>, all: &mut Vec<Happening>) {
    let group = short_group(&now.id);
    let mut tell = |kind, peer: &str, what: &str| {
        let text = format!("{} {what}", names.label(peer));
        all.push(Happening::of(kind, Some(&now.id), Some(peer), text));
    };
    for member in &now.members {
        let (peer, before) = (&member.peer_id, find(last, &member.peer_id).map(|member| member.role.as_str()));
        match (before, member.role.as_str()) {
            (None, "learner") => tell(EventKind::Learning, peer, &format!("copies, to be a member of group {group}")),
            (None | Some("learner"), "member" | "leader") => {
                tell(EventKind::Joined, peer, &format!("is a member of group {group}"));
            }
            (Some("member" | "leader" | "learner"), "suspect") => tell(EventKind::Suspected, peer, "is not heard of"),
            (Some("suspect"), "member" | "leader" | "learner") => {
                tell(EventKind::HeardAgain, peer, "is heard of again")
            }
            _ => {}
        }
    }
    for member in last.members.iter().filter(|member| find(now, &member.peer_id).is_none()) {
        match member.role.as_str() {
            "suspect" => {
                tell(EventKind::Excluded, &member.peer_id, &format!("was put out of group {group}: it was silent"))
            }
            _ => tell(EventKind::Left, &member.peer_id, &format!("is in group {group} no more")),
        }
    }
}

#[cfg(test)]
#[path = "happenings_test.rs"]
mod tests;
