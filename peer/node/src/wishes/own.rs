//! What this peer's own users wish for: passed on to whoever leads the group, for a while again where nobody does.

use core::time::Duration;

use group::dealing::BeginRefusal;
use group::time::Time;
use overlay::{GroupId, PeerKey, RingId};

use super::{Granted, PATIENCE, TRY_AGAIN, WISHES_MAX, WORDS_MAX, Wish, Wished};
use crate::node::Node;
use crate::wire::Frame;

/// So long it is tried again where nobody leads the group, or whoever was thought to lead it does not take the wish. An election
/// is over by then.
const LED_WITHIN: Duration = Duration::from_secs(5);

/// Of a user of this peer.
#[derive(Debug)]
pub(super) struct Own {
    number: u64,
    group: GroupId,
    wish: Wish,
    /// Who was asked to do it; `None` while nobody is known to lead.
    asked: Option<PeerKey>,
    /// Why it is not done yet.
    why: Granted,
    try_until: Time,
    until: Time,
}

impl Node {
    /// Somebody asks this peer; answered by exactly one [`Output::Granted`].
    ///
    /// [`Output::Granted`]: crate::api::Output::Granted
    pub(crate) fn on_wish(&mut self, number: u64, group: GroupId, wish: Wish) {
        if self.ring.is_none() || self.hosts.find_mut(group).is_none() {
            return self.granted(number, Granted::NotHere);
        }
        if self.wishes.own.len() >= WISHES_MAX {
            return self.granted(number, Granted::NotNow("too much is asked at once; try again".into()));
        }
        if wish == Wish::AcceptLoss {
            return self.accept_loss(number, group);
        }
        let now = self.now.time;
        let (until, why) = (now + wish.patience(), BeginRefusal::NotLeader(None).into());
        self.wishes.own.push(Own { number, group, wish, asked: None, why, try_until: now + LED_WITHIN, until });
        self.pass_on_wishes();
    }

    /// Has those who lead now do what nobody was found for so far.
    pub(super) fn pass_on_wishes(&mut self) {
        let mut index = 0;
        while index < self.wishes.own.len() {
            index += usize::from(!self.pass_on_wish(index));
        }
    }

    /// Passes one on, if somebody leads its group. Returns whether it is none of those that wait any more.
    fn pass_on_wish(&mut self, index: usize) -> bool {
        let own = &self.wishes.own[index];
        if own.asked.is_some() {
            return false;
        }
        let Some(hosted) = self.hosts.find_mut(own.group) else {
            let own = self.wishes.own.remove(index);
            self.granted(own.number, Granted::NotHere);
            return true;
        };
        if hosted.log().leads() {
            let Own { number, group, wish, .. } = self.wishes.own.remove(index);
            self.take_wish(None, number, group, wish);
            return true;
        }
        let leader = hosted.log().leader().filter(|leader| *leader != self.me);
        let (Some(leader), Some(ring)) = (leader, self.ring) else { return false };
        let own = &mut self.wishes.own[index];
        own.asked = Some(leader.peer);
        let wished = Wished { ring, group: own.group, number: own.number, wish: own.wish.clone() };
        self.say_to(leader.peer, &Frame::Wished(wished.into()));
        false
    }

    /// What came of a wish that was passed on.
    pub(crate) fn on_granted(&mut self, from: PeerKey, ring: RingId, number: u64, granted: Granted) {
        let is_short = match &granted {
            Granted::Refused(why) | Granted::NotNow(why) => why.len() <= WORDS_MAX,
            Granted::Done(groups) => groups.len() <= 2,
            _ => true,
        };
        let known = self.wishes.own.iter().position(|own| own.is(number, from));
        let Some(index) = known.filter(|_| self.ring == Some(ring) && is_short) else {
            self.frames_dropped += 1;
            return;
        };
        let own = &mut self.wishes.own[index];
        if matches!(granted, Granted::NotNow(_)) && self.now.time < own.try_until {
            // Nothing was done: it may lead no more, and is asked again in a moment, or another is.
            (own.asked, own.why) = (None, granted);
            return;
        }
        self.wishes.own.remove(index);
        self.granted(number, granted);
    }

    /// What was passed on takes a while.
    pub(crate) fn on_patience(&mut self, from: PeerKey, ring: RingId, number: u64) {
        let known = self.wishes.own.iter_mut().find(|own| own.is(number, from));
        match known.filter(|_| self.ring == Some(ring)) {
            None => self.frames_dropped += 1,
            Some(own) => own.until = own.until.max(self.now.time + PATIENCE),
        }
    }

    /// What has waited for too long is answered: of what was passed on it is not known what became of it.
    pub(crate) fn end_own_wishes(&mut self, by: Time) {
        while let Some(index) = self.wishes.own.iter().position(|own| own.ends() <= by) {
            let Own { number, asked, why, .. } = self.wishes.own.remove(index);
            self.granted(number, if asked.is_some() { Granted::Unknown } else { why });
        }
    }

    /// When something is due with these.
    pub(super) fn own_wishes_due(&self) -> Time {
        let soon = self.now.time + TRY_AGAIN;
        let due =
            self.wishes.own.iter().map(|own| if own.asked.is_some() { own.until } else { soon.min(own.try_until) });
        due.min().unwrap_or(Time::NEVER)
    }
}

impl Own {
    fn is(&self, number: u64, asked: PeerKey) -> bool {
        (self.number, self.asked) == (number, Some(asked))
    }

    fn ends(&self) -> Time {
        if self.asked.is_some() { self.until } else { self.try_until.min(self.until) }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::api::Input;
    use crate::small_net::{Net, key};
    use crate::wishes::PolicyChange;

    fn change() -> Wish {
        Wish::SetPolicies(PolicyChange { names: vec![("lead".into(), "oldest".into())], ..PolicyChange::default() })
    }

    /// Three nodes, of which none hears another: for a while, and until the first knows nobody who leads.
    fn leaderless() -> (Net, GroupId) {
        let mut net = Net::of(3);
        let id = net.nodes[0].group().expect("it is in one").state().id;
        net.side = vec![0, 1, 2];
        net.run_until(|net| net.nodes[0].group().is_some_and(|group| group.log().leader().is_none()));
        (net, id)
    }

    /// Between two leaders nobody has to ask again by hand.
    #[test]
    fn who_leads_is_waited_for() {
        let (mut net, id) = leaderless();
        net.nodes[0].handle(net.now, Input::Wish { number: 0, group: id, wish: change() });
        net.run_for(Duration::from_secs(1));
        assert_eq!(net.granted, []);
        net.side = vec![0; 3];
        net.run_until(|net| !net.granted.is_empty());
        assert_eq!(net.granted, [(0, Granted::Done(vec![id]))]);
    }

    #[test]
    fn without_a_leader_it_is_told_that_nothing_was_done() {
        let (mut net, id) = leaderless();
        let asked = net.now.time;
        assert_eq!(net.wish(0, id, change()), BeginRefusal::NotLeader(None).into());
        assert!((LED_WITHIN..PATIENCE).contains(&net.now.time.since(asked)), "{:?}", net.now.time.since(asked));
    }

    /// Who led until now says so, and whoever leads then does it.
    #[test]
    fn who_leads_no_more_has_another_asked() {
        let mut net = Net::of(3);
        let id = net.nodes[0].group().expect("it is in one").state().id;
        let leads = |net: &Net, index: usize| net.nodes[index].group().is_some_and(|group| group.log().leads());
        let leader = (0..3).find(|index| leads(&net, *index)).expect("one leads");
        let (asked, other) = ((leader + 1) % 3, (leader + 2) % 3);
        net.nodes[asked].handle(net.now, Input::Wish { number: 0, group: id, wish: change() });
        assert_eq!(net.nodes[asked].wishes.own[0].asked, Some(key(leader)));
        let ring = net.nodes[asked].ring.expect("it is in one");
        let refused = BeginRefusal::NotLeader(None).into();
        net.nodes[asked].on_granted(key(leader), ring, 0, refused);
        assert!(net.nodes[asked].wishes.own[0].asked.is_none());
        let stray = net.nodes[asked].frames_dropped;
        net.nodes[asked].on_granted(key(other), ring, 0, Granted::Aborted);
        assert_eq!(net.nodes[asked].frames_dropped, stray + 1, "it was asked nothing");
        net.run_until(|net| !net.granted.is_empty());
        assert_eq!(net.granted[0], (0, Granted::Done(vec![id])));
    }
}
