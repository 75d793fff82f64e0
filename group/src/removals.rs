//! Limits how many members a leader may remove without replacing them (PITFALLS 50).
//!
//! A member that is silent to a majority is probably dead, and a group must remove its dead members before more of them die. But all
//! the silences of one minute may have a cause that kills no member: a bad link of the leader, or an overloaded machine. So each removal
//! is *open* at first. It is *confirmed* when no later incarnation of the peer is heard of for [`Timing::confirm_after`], and
//! *refuted* when one is. Open removals are limited; confirmed removals raise that limit, and refuted removals lower it.
//!
//! Every member notes the removals that it sees chosen, since any member may become leader. A newcomer has seen none, and begins with
//! the limit of a calm group.
//!
//! [`Timing::confirm_after`]: crate::config::Timing::confirm_after

use alloc::collections::VecDeque;
use core::time::Duration;

use overlay::{NodeId, PeerKey};

use crate::time::Time;

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
    /// A later incarnation of the peer was heard of in time.
    is_refuted: bool,
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
            is_refuted: false,
        });
        self.all.extend(noted);
        let excess = self.all.len().saturating_sub(REMEMBERED_MAX);
        self.all.drain(..excess);
    }

    /// Refutes the removals of this peer that are still open: the peer was heard of.
    pub(crate) fn refute(&mut self, peer: PeerKey, now: Time) {
        let confirm_after = self.confirm_after;
        let of_peer = |removal: &&mut Removal| removal.node.peer == peer && !removal.is_over(now, confirm_after);
        self.all.iter_mut().filter(of_peer).for_each(|removal| removal.is_refuted = true);
    }

    /// Returns how many of `members` members the leader may remove now without replacing them.
    pub(crate) fn allowance(&self, members: usize, now: Time) -> usize {
        let remembered = self.confirm_after * REMEMBERED;
        let of_late = self.all.iter().filter(|removal| now.since(removal.at) < remembered);
        let (mut refuted, mut confirmed, mut open) = (0, 0, 0);
        for removal in of_late {
            let is_over = removal.is_over(now, self.confirm_after);
            refuted += usize::from(removal.is_refuted);
            confirmed += usize::from(is_over && !removal.is_refuted);
            // A refuted removal counts as open until it would have been confirmed.
            open += usize::from(!is_over && removal.is_loss);
        }
        let limit = (OPEN_MAX.max(members / 3) + confirmed).saturating_sub(2 * refuted).max(1);
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
        assert_eq!(removals.allowance(6, at(30)), 5, "three are dead for sure: here peers die");
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
        removals.refute(PeerKey([1; 32]), at(5));
        assert_eq!(removals.allowance(9, at(5)), 1);
        removals.refute(PeerKey([2; 32]), at(6));
        assert_eq!(removals.allowance(9, at(6)), 1, "one at a time always");
        removals.note(&[node(3)], 0, at(7));
        assert_eq!(removals.allowance(9, at(7)), 0);
        removals.refute(PeerKey([3; 32]), at(40));
        assert_eq!(removals.allowance(9, at(40)), 1, "a peer that returns that late was away");
    }

    #[test]
    fn the_history_is_bounded() {
        let mut removals = Removals::new(Duration::from_secs(30));
        (0..10_000).for_each(|second| removals.note(&[node(1)], 0, Time(0) + Duration::from_millis(second)));
        assert_eq!(removals.all.len(), REMEMBERED_MAX);
    }
}
