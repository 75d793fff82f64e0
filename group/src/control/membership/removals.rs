//! Limits how many members a leader may remove without replacing them (hazard 50).
//!
//! A member that is silent to a majority is probably dead, and a group must remove its dead members before more of them die. But all
//! the silences of one minute may have a cause that kills no member: a bad link of the leader, or an overloaded machine. So each removal
//! is *open* for [`Timing::confirm_after`]. It is *refuted* when the removed incarnation itself speaks within that time: that member was
//! alive. It is *confirmed* when nothing is heard of the peer within that time. A later incarnation of the peer does neither: the removed
//! process died, and another one took its place. Open removals are limited; confirmed removals raise that limit up to its double, and
//! refuted removals lower it.
//!
//! Every member notes the removals that it sees chosen, since any member may become leader. A newcomer has seen none, and begins with
//! the limit of a calm group.
//!
//! [`Timing::confirm_after`]: crate::config::Timing::confirm_after

use alloc::collections::{BTreeSet, VecDeque};
use core::time::Duration;

use overlay::{NodeId, PeerKey};

use overlay::time::Time;

/// Removals count for this multiple of the confirmation time.
const REMEMBERED: u32 = 10;
/// Removals remembered at most; the oldest go first.
const REMEMBERED_MAX: usize = 256;
/// Open removals of a calm group: at most so many, or a third of its members if that is more.
const OPEN_MAX: usize = 2;

/// One member that was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Removal {
    node: NodeId,
    at: Time,
    /// No newcomer replaced it in the same step.
    is_loss: bool,
    fate: RemovalFate,
}

/// Sign of life of the peer within [`Timing::confirm_after`] after its removal.
///
/// [`Timing::confirm_after`]: crate::config::Timing::confirm_after
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RemovalFate {
    /// None.
    Silent,
    /// From a later incarnation.
    Returned,
    /// From the removed incarnation itself.
    Refuted,
}

impl Removal {
    fn is_over(&self, now: Time, confirm_after: Duration) -> bool {
        now.since(self.at) >= confirm_after
    }
}

/// The removals of the last ten [`Timing::confirm_after`], the oldest first.
///
/// [`Timing::confirm_after`]: crate::config::Timing::confirm_after
#[derive(Clone, Debug)]
pub struct Removals {
    all: VecDeque<Removal>,
    confirm_after: Duration,
}

impl Removals {
    /// Creates an empty history. `confirm_after`: [`crate::config::Timing::confirm_after`].
    pub(crate) fn new(confirm_after: Duration) -> Removals {
        Removals { all: VecDeque::new(), confirm_after }
    }

    /// Notes the removal of `nodes` in one step, of which newcomers replaced the first `replaced`.
    pub(crate) fn note(&mut self, nodes: &[NodeId], replaced: usize, now: Time) {
        let remembered = self.confirm_after * REMEMBERED;
        self.all.retain(|removal| now.since(removal.at) < remembered);
        let noted = nodes.iter().enumerate().map(|(index, node)| Removal {
            node: *node,
            at: now,
            is_loss: index >= replaced,
            fate: RemovalFate::Silent,
        });
        self.all.extend(noted);
        let excess = self.all.len().saturating_sub(REMEMBERED_MAX);
        self.all.drain(..excess);
    }

    /// Returns whether no removal is remembered.
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Refutes the removal of exactly this node if it is still open: the node has sent a message.
    pub(crate) fn refute(&mut self, node: NodeId, now: Time) {
        let open = self.open(now).filter(|removal| removal.node == node);
        open.for_each(|removal| removal.fate = RemovalFate::Refuted);
    }

    /// Notes that a later incarnation of this peer was heard of.
    pub(crate) fn note_return(&mut self, peer: PeerKey, now: Time) {
        let open = self.open(now).filter(|removal| removal.node.peer == peer && removal.fate == RemovalFate::Silent);
        open.for_each(|removal| removal.fate = RemovalFate::Returned);
    }

    fn open(&mut self, now: Time) -> impl Iterator<Item = &mut Removal> {
        let confirm_after = self.confirm_after;
        self.all.iter_mut().filter(move |removal| !removal.is_over(now, confirm_after))
    }

    /// Returns whether a removal of this peer was refuted recently: its return replaces no dead member.
    pub(crate) fn is_refuted(&self, peer: PeerKey, now: Time) -> bool {
        self.refuted(now).any(|refuted| refuted == peer)
    }

    /// Returns whether a removal was refuted recently.
    pub(crate) fn has_refuted(&self, now: Time) -> bool {
        self.refuted(now).next().is_some()
    }

    /// Returns the peers of the removals that were refuted recently.
    fn refuted(&self, now: Time) -> impl Iterator<Item = PeerKey> {
        let remembered = self.confirm_after * REMEMBERED;
        let of_late = self.all.iter().filter(move |removal| now.since(removal.at) < remembered);
        of_late.filter(|removal| removal.fate == RemovalFate::Refuted).map(|removal| removal.node.peer)
    }

    /// Returns how many of `members` members the leader may remove now without replacing them.
    pub(crate) fn allowance(&self, members: usize, now: Time) -> usize {
        let remembered = self.confirm_after * REMEMBERED;
        let of_late = self.all.iter().filter(|removal| now.since(removal.at) < remembered);
        let mut refuted = BTreeSet::new();
        let (mut confirmed, mut open) = (0, 0);
        for removal in of_late {
            let is_over = removal.is_over(now, self.confirm_after);
            if removal.fate == RemovalFate::Refuted {
                refuted.insert(removal.node.peer);
            }
            confirmed += usize::from(is_over && removal.fate == RemovalFate::Silent);
            // With or without a sign of life of the peer, the removal counts as open for as long.
            open += usize::from(!is_over && removal.is_loss);
        }
        let base = OPEN_MAX.max(members / 3);
        let limit = (base + confirmed.min(base)).saturating_sub(2 * refuted.len()).max(1);
        limit.saturating_sub(open)
    }

    /// Returns when the allowance rises next, if nothing else happens; [`Time::NEVER`] if no removal is open.
    pub(crate) fn next_change(&self, now: Time) -> Time {
        let ends = self.all.iter().map(|removal| removal.at + self.confirm_after);
        ends.filter(|end| *end > now).min().unwrap_or(Time::NEVER)
    }
}

#[cfg(test)]
mod tests {
    use overlay::Incarnation;

    use super::*;

    fn node(peer: u8) -> NodeId {
        NodeId { peer: PeerKey([peer; 32]), incarnation: Incarnation(1) }
    }

    fn at(second: u64) -> Time {
        Time(0) + Duration::from_secs(1_000 + second)
    }

    #[test]
    fn a_third_goes_at_once_and_no_more_until_it_is_confirmed() {
        let mut removals = Removals::new(Duration::from_secs(30));
        assert_eq!([3, 4, 6, 9, 12].map(|members| removals.allowance(members, at(0))), [2, 2, 2, 3, 4]);
        removals.note(&[node(1), node(2), node(3)], 0, at(0));
        assert_eq!((removals.allowance(6, at(0)), removals.allowance(6, at(29))), (0, 0));
        assert_eq!(removals.next_change(at(0)), at(30));
        assert_eq!(removals.allowance(6, at(30)), 4, "three deaths are confirmed: twice as many may go");
        assert_eq!(removals.allowance(12, at(30)), 7);
        assert_eq!(removals.next_change(at(30)), Time::NEVER);
        assert_eq!(removals.allowance(6, at(301)), 2);
    }

    #[test]
    fn a_replaced_member_costs_nothing() {
        let mut removals = Removals::new(Duration::from_secs(30));
        removals.note(&[node(1), node(2), node(3)], 2, at(0));
        assert_eq!(removals.allowance(9, at(0)), 2);
    }

    #[test]
    fn false_suspicions_make_a_group_careful() {
        let mut removals = Removals::new(Duration::from_secs(30));
        removals.note(&[node(1), node(2)], 2, at(0));
        removals.refute(node(1), at(5));
        assert_eq!(removals.allowance(9, at(5)), 1);
        assert!(removals.is_refuted(node(1).peer, at(5)) && !removals.is_refuted(node(2).peer, at(5)));
        removals.refute(node(2), at(6));
        assert_eq!(removals.allowance(9, at(6)), 1, "one at a time always");
        removals.note(&[node(3)], 0, at(7));
        assert_eq!(removals.allowance(9, at(7)), 0);
        removals.refute(node(3), at(40));
        assert_eq!(removals.allowance(9, at(40)), 1, "a peer that returns that late was away");
    }

    /// A peer with a process that dies and starts again, time after time, makes the group neither careful nor bold.
    #[test]
    fn a_peer_that_returns_counts_neither_way() {
        let mut removals = Removals::new(Duration::from_secs(30));
        for second in (0..200).step_by(20) {
            removals.note(&[node(1)], 0, at(second));
            removals.note_return(node(1).peer, at(second + 1));
        }
        assert_eq!(removals.allowance(9, at(240)), 3);
        removals.note(&[node(1)], 0, at(241));
        removals.refute(node(1), at(242));
        removals.note(&[node(1)], 0, at(243));
        removals.refute(node(1), at(244));
        assert_eq!(removals.allowance(9, at(280)), 1, "one peer lowers the limit once");
    }

    #[test]
    fn the_history_is_bounded() {
        let mut removals = Removals::new(Duration::from_secs(30));
        (0..10_000).for_each(|second| removals.note(&[node(1)], 0, Time(0) + Duration::from_millis(second)));
        assert_eq!(removals.all.len(), REMEMBERED_MAX);
    }
}
