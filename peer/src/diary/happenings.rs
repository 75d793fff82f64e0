//! What happened between two pictures of a peer's groups: a pure function of both.
//!
//! A peer is a member of one group in each lane, which becomes another where it splits, merges, moves its boundary or trades
//! members. Which of these it was, ranges and neighbours tell: names may stay or not.

use std::collections::{BTreeMap, BTreeSet};

use overlay::KeyRange;

use crate::names::Names;
use crate::status::{GroupStatus, MemberStatus, QuorumStatus, RangeStatus, part_of_ring, short_group};

/// What can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Somebody became a member.
    Joined,
    /// Somebody was let in and copies what there is, to become a member.
    Learning,
    /// Somebody is no member any more, and was heard of before.
    Left,
    /// Somebody is no member any more, and was not heard of before.
    Excluded,
    /// A member is not heard of.
    Suspected,
    /// It is again.
    HeardAgain,
    /// Somebody leads.
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
    /// A group, this peer's own or one beside it, hears no majority of its members.
    QuorumLost,
    /// It does again.
    QuorumBack,
    /// This peer serves clients.
    Ready,
    /// It does not.
    NotReady,
    /// This peer is leaving for good: a step.
    Leaving,
}

impl Kind {
    /// As it is told outside.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Joined => "joined",
            Kind::Learning => "learning",
            Kind::Left => "left",
            Kind::Excluded => "excluded",
            Kind::Suspected => "suspected",
            Kind::HeardAgain => "heard_again",
            Kind::Led => "led",
            Kind::Split => "split",
            Kind::Merged => "merged",
            Kind::Repartitioned => "repartitioned",
            Kind::Migrated => "migrated",
            Kind::Repaired => "repaired",
            Kind::Moved => "moved",
            Kind::QuorumLost => "quorum_lost",
            Kind::QuorumBack => "quorum_back",
            Kind::Ready => "ready",
            Kind::NotReady => "not_ready",
            Kind::Leaving => "leaving",
        }
    }

    /// Of two that follow each other, the one that counts.
    pub fn is_first_of_its_family(self) -> bool {
        !matches!(self, Kind::HeardAgain | Kind::Joined | Kind::Ready | Kind::QuorumBack)
    }
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Happening {
    /// What.
    pub kind: Kind,
    /// To which group, by id.
    pub group: Option<String>,
    /// To whom, or by whom.
    pub peer: Option<String>,
    /// For a person.
    pub text: String,
}

/// Happenings of which each ends the one before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Family {
    /// Whether a peer is heard.
    Hearing(Option<String>),
    /// Whether a peer copies, or is a member.
    Entering(Option<String>, Option<String>),
    /// Who leads a group.
    Leading(Option<String>),
    /// Whether a group hears a majority of its members.
    Quorum(Option<String>),
    /// Whether this peer serves.
    Serving,
    /// Only itself.
    Single(Kind, Option<String>, Option<String>, String),
}

impl Family {
    /// Holds until another of it happens, and is not told again before.
    pub fn is_state(&self) -> bool {
        matches!(self, Family::Leading(_) | Family::Quorum(_) | Family::Serving)
    }

    /// One follows the other. It may end without that: who was suspected may be put out.
    pub fn is_pair(&self) -> bool {
        matches!(self, Family::Hearing(_) | Family::Entering(..))
    }
}

impl Happening {
    /// Of these parts.
    pub fn of(kind: Kind, group: Option<&str>, peer: Option<&str>, text: String) -> Happening {
        Happening { kind, group: group.map(str::to_owned), peer: peer.map(str::to_owned), text }
    }

    /// This peer serves clients, or does not.
    pub fn serves(yes: bool) -> Happening {
        let (kind, text) = match yes {
            true => (Kind::Ready, "this peer serves clients"),
            false => (Kind::NotReady, "this peer does not serve clients"),
        };
        Happening::of(kind, None, None, text.into())
    }

    /// This peer leaves, and has come to this step. `label` is how people are shown it.
    pub fn leaving(peer: &str, label: &str, step: &str) -> Happening {
        Happening::of(Kind::Leaving, None, Some(peer), format!("{label} is leaving: {step}"))
    }

    /// With what it is compared.
    pub(super) fn family(&self) -> Family {
        match self.kind {
            Kind::Suspected | Kind::HeardAgain => Family::Hearing(self.peer.clone()),
            Kind::Learning | Kind::Joined => Family::Entering(self.group.clone(), self.peer.clone()),
            Kind::Led => Family::Leading(self.group.clone()),
            Kind::QuorumLost | Kind::QuorumBack => Family::Quorum(self.group.clone()),
            Kind::Ready | Kind::NotReady => Family::Serving,
            kind => Family::Single(kind, self.group.clone(), self.peer.clone(), self.text.clone()),
        }
    }
}

/// What happened to the groups of the peer `me` from `last` to `now`. Groups that only need what it holds do not count.
pub fn happenings(me: &str, last: &[GroupStatus], now: &[GroupStatus]) -> Vec<Happening> {
    let names = &Names::of_groups(last.iter().chain(now));
    let lanes: BTreeSet<Option<u8>> = last.iter().chain(now).map(|group| group.lane).collect();
    let mut all = Vec::new();
    for lane in lanes {
        match (own(last, lane), own(now, lane)) {
            (None, Some(now)) => all.push(entered(me, now, names)),
            (Some(last), None) => {
                let text = format!("{} is in group {} no more", names.label(me), short_group(&last.id));
                all.push(Happening::of(Kind::Left, Some(&last.id), Some(me), text));
            }
            (Some(last), Some(now)) => between(last, now, names, &mut all),
            (None, None) => {}
        }
    }
    all
}

/// A leader that is not known for a moment is still the one that was: else it would be told again.
pub fn remember_leaders(last: &[GroupStatus], now: &mut [GroupStatus]) {
    for group in now.iter_mut().filter(|group| group.leader.is_none()) {
        group.leader = last.iter().find(|known| known.id == group.id).and_then(|known| known.leader.clone());
    }
}

/// The group of a lane that the peer belongs to.
fn own(groups: &[GroupStatus], lane: Option<u8>) -> Option<&GroupStatus> {
    groups.iter().find(|group| group.lane == lane && group.part != "former")
}

fn entered(me: &str, group: &GroupStatus, names: &Names<'_>) -> Happening {
    let (kind, what) = match group.part == "learner" {
        true => (Kind::Learning, "copies from"),
        false => (Kind::Joined, "is a member of"),
    };
    let text = format!("{} {what} group {}", names.label(me), short_group(&group.id));
    Happening::of(kind, Some(&group.id), Some(me), text)
}

fn between(last: &GroupStatus, now: &GroupStatus, names: &Names<'_>, all: &mut Vec<Happening>) {
    let became = became(last, now);
    all.extend(became.clone());
    if now.losses.len() > last.losses.len() {
        let text = format!("group {} took over a range that was declared lost", short_group(&now.id));
        all.push(Happening::of(Kind::Repaired, Some(&now.id), None, text));
    }
    // Those of another group did not come or go one by one.
    if became.is_none_or(|became| became.kind == Kind::Repartitioned) {
        members(last, now, names, all);
    }
    quorums(last, now, all);
    if let Some(leader) = &now.leader
        && (last.leader.as_ref() != Some(leader) && last.id == now.id)
    {
        let text = format!("{} leads group {}", names.label(leader), short_group(&now.id));
        all.push(Happening::of(Kind::Led, Some(&now.id), Some(leader), text));
    }
}

/// Groups that lost their majority, or have one again: the peer's own and those beside it.
fn quorums(last: &GroupStatus, now: &GroupStatus, all: &mut Vec<Happening>) {
    let before: BTreeMap<&String, bool> = told_quorums(last).map(|told| (told.group, told.quorum.held)).collect();
    let mut seen = BTreeSet::new();
    for Told { group, range, quorum } in told_quorums(now).filter(|told| seen.insert(told.group)) {
        let (id, words) = (short_group(group), quorum.words());
        let (kind, text) = match (before.get(group), quorum.held) {
            (Some(true) | None, false) => {
                let of = range.and_then(RangeStatus::arc).map_or("its part".into(), share);
                let text = format!("group {id} has no majority: {words}; no operation on {of} of the ring is answered");
                (Kind::QuorumLost, text)
            }
            (Some(false), true) => (Kind::QuorumBack, format!("group {id} has a majority again: {words}")),
            _ => continue,
        };
        all.push(Happening::of(kind, Some(group), None, text));
    }
}

/// What is told of one group's quorum.
struct Told<'a> {
    group: &'a String,
    range: Option<&'a RangeStatus>,
    quorum: &'a QuorumStatus,
}

fn told_quorums(group: &GroupStatus) -> impl Iterator<Item = Told<'_>> {
    let own = (Some(&group.id), Some(&group.range), &group.quorum);
    let before = (group.predecessor.as_ref(), group.predecessor_range.as_ref(), &group.predecessor_quorum);
    let behind = (group.successor.as_ref(), group.successor_range.as_ref(), &group.successor_quorum);
    [own, before, behind]
        .into_iter()
        .filter_map(|(id, range, quorum)| Some(Told { group: id?, range, quorum: quorum.as_ref()? }))
}

/// What a group became, where it is another or has another range.
fn became(last: &GroupStatus, now: &GroupStatus) -> Option<Happening> {
    if last.id == now.id && last.range == now.range {
        return None;
    }
    let (before, after) = (last.range.arc()?, now.range.arc()?);
    let (old, new) = (short_group(&last.id), short_group(&now.id));
    let share = share(after);
    let (kind, text) = if before == after {
        let (come, gone) = (others(last, now), others(now, last));
        (Kind::Migrated, format!("group {old} traded members, {come} for {gone}: now group {new}"))
    } else if before.contains_range(after) && !before.is_full() && is_whole(before, after, now)
        || before.is_full() && before.contains_range(after)
    {
        (Kind::Split, format!("group {old} split: now group {new}, {share} of the ring"))
    } else if after.contains_range(before) && (after.is_full() || was_neighbour(before, after, last)) {
        (Kind::Merged, format!("group {old} merged into group {new}, {share} of the ring"))
    } else if before.overlaps(after) {
        (Kind::Repartitioned, format!("group {old} moved a boundary: now group {new}, {share} of the ring"))
    } else {
        (Kind::Moved, format!("this peer went from group {old} to group {new}, {share} of the ring"))
    };
    Some(Happening::of(kind, Some(&now.id), None, text))
}

/// What is left of `before` without `after` belongs to one neighbour, which has nothing else: it is the other half.
fn is_whole(before: KeyRange, after: KeyRange, now: &GroupStatus) -> bool {
    let neighbours = [&now.predecessor_range, &now.successor_range];
    neighbours.into_iter().flatten().filter_map(RangeStatus::arc).any(|other| joined(after, other) == Some(before))
}

/// `after` is `before` and all of one neighbour that it had.
fn was_neighbour(before: KeyRange, after: KeyRange, last: &GroupStatus) -> bool {
    let neighbours = [&last.predecessor_range, &last.successor_range];
    neighbours.into_iter().flatten().filter_map(RangeStatus::arc).any(|other| joined(before, other) == Some(after))
}

/// Two arcs of which one begins where the other ends.
fn joined(one: KeyRange, other: KeyRange) -> Option<KeyRange> {
    if one.is_full() || other.is_full() {
        return None;
    }
    let behind = |first: KeyRange, second: KeyRange| {
        (first.end() == second.start()).then(|| KeyRange::new(first.start(), second.end()))
    };
    behind(one, other).or_else(|| behind(other, one))
}

/// Of the ring, for a person.
fn share(range: KeyRange) -> String {
    if range.is_full() { "all".into() } else { format!("{:.0} %", part_of_ring(range) * 100.0) }
}

/// How many of `now` were not in `last`.
fn others(last: &GroupStatus, now: &GroupStatus) -> usize {
    now.members.iter().filter(|member| find(last, &member.peer_id).is_none()).count()
}

fn find<'a>(group: &'a GroupStatus, peer: &str) -> Option<&'a MemberStatus> {
    group.members.iter().find(|member| member.peer_id == peer)
}

/// Who came, went, fell silent or was heard again.
fn members(last: &GroupStatus, now: &GroupStatus, names: &Names<'_>, all: &mut Vec<Happening>) {
    let group = short_group(&now.id);
    let mut tell = |kind, peer: &str, what: &str| {
        let text = format!("{} {what}", names.label(peer));
        all.push(Happening::of(kind, Some(&now.id), Some(peer), text));
    };
    for member in &now.members {
        let (peer, before) = (&member.peer_id, find(last, &member.peer_id).map(|member| member.role.as_str()));
        match (before, member.role.as_str()) {
            (None, "learner") => tell(Kind::Learning, peer, &format!("copies, to be a member of group {group}")),
            (None | Some("learner"), "member" | "leader") => {
                tell(Kind::Joined, peer, &format!("is a member of group {group}"));
            }
            (Some("member" | "leader" | "learner"), "suspect") => tell(Kind::Suspected, peer, "is not heard of"),
            (Some("suspect"), "member" | "leader" | "learner") => tell(Kind::HeardAgain, peer, "is heard of again"),
            _ => {}
        }
    }
    for member in last.members.iter().filter(|member| find(now, &member.peer_id).is_none()) {
        match member.role.as_str() {
            "suspect" => tell(Kind::Excluded, &member.peer_id, &format!("was put out of group {group}: it was silent")),
            _ => tell(Kind::Left, &member.peer_id, &format!("is in group {group} no more")),
        }
    }
}

#[cfg(test)]
#[path = "happenings_test.rs"]
mod tests;
