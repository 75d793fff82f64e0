//! Requests of this peer's own users: each goes to the leader of its group, or waits for a while until there is one.

use core::time::Duration;

use group::Group;
use group::time::Time;
use group::transactions::BeginRefusal;
use overlay::{GroupId, PeerKey, RingId};

use super::{Asker, Granted, PATIENCE, TRIED_FOR, TRY_AGAIN, Taken, WISHES_MAX, WORDS_MAX, Wish, Wished};
use crate::node::Node;
use crate::wire::Frame;

/// Time for which a request waits for a leader, and is sent again if a peer no longer leads. An election takes less.
const LED_WITHIN: Duration = Duration::from_secs(5);

/// A request of a user of this peer that another peer is to carry out, or that waits for a leader.
#[derive(Debug)]
pub(super) struct Own {
    number: u64,
    group: GroupId,
    wish: Wish,
    /// The peer that was asked, and the time; `None` while no leader is known and connected.
    asked: Option<(PeerKey, Time)>,
    /// Answer if no leader takes the request in time: the reason why it is not done yet.
    why: Granted,
    patience: OwnPatience,
}

/// Time until which a user's request is tried, and time of the answer at the latest.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnPatience {
    try_until: Time,
    pub(super) until: Time,
}

impl Node {
    /// Takes a user's request. The user gets exactly one [`Output::Granted`].
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
        let patience = OwnPatience { try_until: now + LED_WITHIN, until: now + wish.patience() };
        let why = BeginRefusal::NotLeader(None).into();
        self.wishes.own.push(Own { number, group, wish, asked: None, why, patience });
        self.follow_wishes();
    }

    /// Passes the waiting requests on to their leaders, where there is one by now.
    pub(super) fn pass_on_wishes(&mut self) {
        let mut index = 0;
        while index < self.wishes.own.len() {
            let is_waiting = self.wishes.own[index].asked.is_none();
            index += usize::from(!is_waiting || !self.pass_on_wish(index));
        }
    }

    /// Passes on a waiting request. Returns whether it is no longer among this peer's own: this node leads, or left the group.
    fn pass_on_wish(&mut self, index: usize) -> bool {
        let Some(hosted) = self.hosts.find_mut(self.wishes.own[index].group) else {
            let own = self.wishes.own.remove(index);
            self.granted(own.number, Granted::NotHere);
            return true;
        };
        if hosted.log().leads() {
            let Own { number, group, wish, patience, .. } = self.wishes.own.remove(index);
            self.take_wish(Asker::User(patience), number, group, wish);
            return true;
        }
        let heard = |group: &Group| group.log().leader().filter(|leader| group.hears().contains(leader));
        let leader = heard(hosted).map(|leader| leader.peer).filter(|peer| self.is_connected_to(*peer));
        let (Some(leader), Some(ring)) = (leader, self.ring) else { return false };
        let own = &mut self.wishes.own[index];
        own.asked = Some((leader, self.now.time));
        let wished = Wished { ring, group: own.group, number: own.number, wish: own.wish.clone() };
        self.say_to(leader, &Frame::Wished(wished.into()));
        false
    }

    /// Ends a request that this node took as the leader. If nothing was done, and the request came from this node's own user, the next
    /// leader is asked.
    pub(super) fn answer_taken(&mut self, taken: Taken, granted: Granted) {
        match taken.asker {
            Asker::User(patience) if patience.has_another_try(&granted, taken.since, self.now.time) => {
                let Taken { number, group, wish, .. } = taken;
                self.wishes.own.push(Own { number, group, wish, asked: None, why: granted, patience });
            }
            asker => self.answer_wish(asker, taken.number, granted),
        }
    }

    /// Handles another peer's answer to a request that was passed on to it.
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
        let asked = own.asked.map_or(self.now.time, |(_, at)| at);
        if own.patience.has_another_try(&granted, asked, self.now.time) {
            (own.asked, own.why) = (None, granted);
            return;
        }
        self.wishes.own.remove(index);
        self.granted(number, granted);
    }

    /// Extends the time for a request, for the peer that it was passed on to.
    pub(crate) fn on_patience(&mut self, from: PeerKey, ring: RingId, number: u64) {
        let known = self.wishes.own.iter_mut().find(|own| own.is(number, from));
        match known.filter(|_| self.ring == Some(ring)) {
            None => self.frames_dropped += 1,
            Some(own) => own.patience.until = own.patience.until.max(self.now.time + PATIENCE),
        }
    }

    /// Answers the users whose requests have waited for too long. The outcome of a request that was passed on is unknown.
    pub(crate) fn end_own_wishes(&mut self, by: Time) {
        while let Some(index) = self.wishes.own.iter().position(|own| own.ends() <= by) {
            let Own { number, asked, why, .. } = self.wishes.own.remove(index);
            self.granted(number, if asked.is_some() { Granted::Unknown } else { why });
        }
    }

    /// Answers all users: this node follows no requests any more.
    pub(crate) fn end_wishes(&mut self) {
        self.end_own_wishes(Time::NEVER);
        for taken in core::mem::take(&mut self.wishes.taken) {
            if let Asker::User(_) = taken.asker {
                let is_begun = taken.operation.is_some() || taken.proposed.is_some();
                let nothing = Granted::NotNow("this peer stops, or starts anew: nothing was done".into());
                self.granted(taken.number, if is_begun { Granted::Unknown } else { nothing });
            }
        }
    }

    /// Returns the time at which the next of these requests is due.
    pub(super) fn own_wishes_due(&self) -> Time {
        let soon = self.now.time + TRY_AGAIN;
        let due = self.wishes.own.iter().map(|own| if own.asked.is_some() { own.ends() } else { own.ends().min(soon) });
        due.min().unwrap_or(Time::NEVER)
    }
}

impl OwnPatience {
    /// Returns whether a request that was sent at `asked` is to be sent again after this answer: nothing was done, and the answer came too
    /// soon to be that of a leader that tried.
    fn has_another_try(&self, granted: &Granted, asked: Time, now: Time) -> bool {
        matches!(granted, Granted::NotNow(_)) && now.since(asked) < TRIED_FOR && now < self.try_until
    }
}

impl Own {
    fn is(&self, number: u64, asked: PeerKey) -> bool {
        self.number == number && self.asked.is_some_and(|(peer, _)| peer == asked)
    }

    /// Returns the time of the user's answer at the latest.
    fn ends(&self) -> Time {
        let OwnPatience { try_until, until } = self.patience;
        if self.asked.is_some() { until } else { try_until.min(until) }
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

    /// Returns three nodes that cannot hear each other, after the first has lost its leader.
    fn leaderless() -> (Net, GroupId) {
        let mut net = Net::of(3);
        let id = net.nodes[0].group().expect("it is in one").state().id;
        net.side = vec![0, 1, 2];
        net.run_until(|net| net.nodes[0].group().is_some_and(|group| group.log().leader().is_none()));
        (net, id)
    }

    /// Between two leaders no user has to repeat a request.
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

    /// The former leader refuses the request, and the next leader carries it out.
    #[test]
    fn who_leads_no_more_has_another_asked() {
        let mut net = Net::of(3);
        let id = net.nodes[0].group().expect("it is in one").state().id;
        let leader = net.leader();
        let (asked, other) = ((leader + 1) % 3, (leader + 2) % 3);
        net.nodes[asked].handle(net.now, Input::Wish { number: 0, group: id, wish: change() });
        assert_eq!(net.nodes[asked].wishes.own[0].asked.map(|(peer, _)| peer), Some(key(leader)));
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

    /// A leader that takes a request of its own user, and loses the lead before anything is done, has the next leader asked.
    #[test]
    fn a_leader_that_can_do_nothing_has_the_next_one_asked() {
        let mut net = Net::of(4);
        let id = net.nodes[0].group().expect("it is in one").state().id;
        let leader = net.leader();
        let (node, now) = (&mut net.nodes[leader], net.now.time);
        let patience = OwnPatience { try_until: now + LED_WITHIN, until: now + PATIENCE };
        node.take_wish(Asker::User(patience), 0, id, change());
        let taken = node.wishes.taken.remove(0);
        node.answer_taken(taken, BeginRefusal::NotLeader(None).into());
        assert!(node.wishes.own[0].asked.is_none());
        net.run_until(|net| !net.granted.is_empty());
        assert_eq!(net.granted, [(0, Granted::Done(vec![id]))]);
    }

    /// A leader that is known to be gone is not asked: no outcome is open then, and the next leader is asked.
    #[test]
    fn a_leader_without_a_connection_is_not_asked() {
        let mut net = Net::of(3);
        let id = net.nodes[0].group().expect("it is in one").state().id;
        let leader = net.leader();
        let asked = (leader + 1) % 3;
        net.cut[leader] = true;
        net.nodes[asked].handle(net.now, Input::PeerDown(key(leader)));
        net.nodes[(leader + 2) % 3].handle(net.now, Input::PeerDown(key(leader)));
        assert_eq!(net.wish(asked, id, change()), Granted::Done(vec![id]));
    }

    /// A node that stops answers all of its users.
    #[test]
    fn a_node_that_stops_answers_its_users() {
        let (mut net, id) = leaderless();
        net.nodes[0].handle(net.now, Input::Wish { number: 0, group: id, wish: change() });
        net.nodes[0].handle(net.now, Input::Stop);
        net.run_for(Duration::from_secs(20));
        assert!(matches!(net.granted[..], [(0, Granted::NotNow(_))]), "{:?}", net.granted);
    }
}
