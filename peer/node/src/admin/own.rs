//! Requests of this peer's own users: each goes to the leader of its group, or waits for a while until there is one.

use core::time::Duration;

use group::Group;
use group::transaction::member::BeginRefusal;
use overlay::time::Time;
use overlay::{GroupId, PeerKey, RingId};

use super::{
    AdminOutcome, AdminRequest, AdminRequests, Asker, ForwardedRequest, PATIENCE, REQUESTS_MAX, TRIED_FOR, TRY_AGAIN,
    Taken, WORDS_MAX, accept_loss, answer_request, report_outcome,
};
use crate::context::Context;
use crate::wire::Frame;

/// Time for which a request waits for a leader, and is sent again if a peer no longer leads. An election takes less.
const LED_WITHIN: Duration = Duration::from_secs(5);

/// A request of a user of this peer that another peer is to carry out, or that waits for a leader.
#[derive(Debug)]
pub(super) struct Own {
    number: u64,
    group: GroupId,
    request: AdminRequest,
    /// The peer that was asked, and the time; `None` while no leader is known and connected.
    asked: Option<(PeerKey, Time)>,
    /// Answer if no leader takes the request in time: the reason why it is not done yet.
    why: AdminOutcome,
    patience: OwnPatience,
}

/// Time until which a user's request is tried, and time of the answer at the latest.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnPatience {
    try_until: Time,
    pub(super) until: Time,
}

impl AdminRequests {
    /// Takes a user's request. The user gets exactly one [`Output::AdminOutcome`]. Returns whether the request is to be followed.
    ///
    /// [`Output::AdminOutcome`]: crate::api::Output::AdminOutcome
    pub(crate) fn on_admin_request(
        &mut self,
        cx: &mut Context<'_>,
        number: u64,
        group: GroupId,
        request: AdminRequest,
    ) -> bool {
        if cx.ring.is_none() || cx.replicas.find_mut(group).is_none() {
            report_outcome(cx, number, AdminOutcome::NotHere);
            return false;
        }
        if self.own.len() >= REQUESTS_MAX {
            report_outcome(
                cx,
                number,
                AdminOutcome::NotNow("this peer has too many administrators' requests open; try again".into()),
            );
            return false;
        }
        if request == AdminRequest::AcceptLoss {
            accept_loss(cx, number, group);
            return false;
        }
        let now = cx.now.time;
        let patience = OwnPatience { try_until: now + LED_WITHIN, until: now + request.patience() };
        let why = BeginRefusal::NotLeader(None).into();
        self.own.push(Own { number, group, request, asked: None, why, patience });
        true
    }

    /// Passes the waiting requests on to their leaders, where there is one by now.
    pub(super) fn forward_requests(&mut self, cx: &mut Context<'_>) {
        let mut index = 0;
        while index < self.own.len() {
            let is_waiting = self.own[index].asked.is_none();
            index += usize::from(!is_waiting || !self.forward_request(cx, index));
        }
    }

    /// Passes on a waiting request. Returns whether it is no longer among this peer's own: this node leads, or left the group.
    fn forward_request(&mut self, cx: &mut Context<'_>, index: usize) -> bool {
        let Some(replica) = cx.replicas.find_mut(self.own[index].group) else {
            let own = self.own.remove(index);
            report_outcome(cx, own.number, AdminOutcome::NotHere);
            return true;
        };
        if replica.log().leads() {
            let Own { number, group, request, patience, .. } = self.own.remove(index);
            self.take_request(cx, Asker::User(patience), number, group, request);
            return true;
        }
        let heard = |group: &Group| group.log().leader().filter(|leader| group.hears().contains(leader));
        let leader = heard(replica).map(|leader| leader.peer).filter(|peer| cx.is_connected_to(*peer));
        let (Some(leader), Some(ring)) = (leader, cx.ring) else { return false };
        let own = &mut self.own[index];
        own.asked = Some((leader, cx.now.time));
        let forwarded = ForwardedRequest { ring, group: own.group, number: own.number, request: own.request.clone() };
        cx.say_to(leader, &Frame::AdminRequest(forwarded.into()));
        false
    }

    /// Ends a request that this node took as the leader. If nothing was done, and the request came from this node's own user, the next
    /// leader is asked.
    pub(super) fn answer_taken(&mut self, cx: &mut Context<'_>, taken: Taken, outcome: AdminOutcome) {
        match taken.asker {
            Asker::User(patience) if patience.has_another_try(&outcome, taken.since, cx.now.time) => {
                let Taken { number, group, request, .. } = taken;
                self.own.push(Own { number, group, request, asked: None, why: outcome, patience });
            }
            asker => answer_request(cx, asker, taken.number, outcome),
        }
    }

    /// Handles another peer's answer to a request that was passed on to it.
    pub(crate) fn on_granted(
        &mut self,
        cx: &mut Context<'_>,
        from: PeerKey,
        ring: RingId,
        number: u64,
        outcome: AdminOutcome,
    ) {
        let is_short = match &outcome {
            AdminOutcome::Refused(why) | AdminOutcome::NotNow(why) => why.len() <= WORDS_MAX,
            AdminOutcome::Done(groups) => groups.len() <= 2,
            _ => true,
        };
        let known = self.own.iter().position(|own| own.is(number, from));
        let Some(index) = known.filter(|_| cx.ring == Some(ring) && is_short) else {
            cx.drop_frame();
            return;
        };
        let own = &mut self.own[index];
        let asked = own.asked.map_or(cx.now.time, |(_, at)| at);
        if own.patience.has_another_try(&outcome, asked, cx.now.time) {
            (own.asked, own.why) = (None, outcome);
            return;
        }
        self.own.remove(index);
        report_outcome(cx, number, outcome);
    }

    /// Extends the time for a request, for the peer that it was passed on to.
    pub(crate) fn on_patience(&mut self, cx: &mut Context<'_>, from: PeerKey, ring: RingId, number: u64) {
        let known = self.own.iter_mut().find(|own| own.is(number, from));
        match known.filter(|_| cx.ring == Some(ring)) {
            None => cx.drop_frame(),
            Some(own) => own.patience.until = own.patience.until.max(cx.now.time + PATIENCE),
        }
    }

    /// Answers the users whose requests have waited for too long. The outcome of a request that was passed on is unknown.
    pub(crate) fn end_own_requests(&mut self, cx: &mut Context<'_>, by: Time) {
        while let Some(index) = self.own.iter().position(|own| own.ends() <= by) {
            let Own { number, asked, why, .. } = self.own.remove(index);
            report_outcome(cx, number, if asked.is_some() { AdminOutcome::Unknown } else { why });
        }
    }

    /// Answers all users: this node follows no requests any more.
    pub(crate) fn end_all(&mut self, cx: &mut Context<'_>) {
        self.end_own_requests(cx, Time::NEVER);
        for taken in core::mem::take(&mut self.taken) {
            if let Asker::User(_) = taken.asker {
                let is_begun = taken.operation.is_some() || taken.proposed.is_some();
                let nothing = AdminOutcome::NotNow("this peer is stopping or restarting: nothing was done".into());
                report_outcome(cx, taken.number, if is_begun { AdminOutcome::Unknown } else { nothing });
            }
        }
    }

    /// Returns the time at which the next of these requests is due.
    pub(super) fn own_requests_due(&self, now: Time) -> Time {
        let soon = now + TRY_AGAIN;
        let due = self.own.iter().map(|own| if own.asked.is_some() { own.ends() } else { own.ends().min(soon) });
        due.min().unwrap_or(Time::NEVER)
    }
}

impl OwnPatience {
    /// Returns whether a request that was sent at `asked` is to be sent again after this answer: nothing was done, and the answer came too
    /// soon to be that of a leader that tried.
    fn has_another_try(&self, outcome: &AdminOutcome, asked: Time, now: Time) -> bool {
        matches!(outcome, AdminOutcome::NotNow(_)) && now.since(asked) < TRIED_FOR && now < self.try_until
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
    use crate::admin::PolicyChange;
    use crate::api::Input;
    use crate::context::context;
    use crate::tests::small_net::{Net, key};

    fn change() -> AdminRequest {
        AdminRequest::SetPolicies(PolicyChange {
            names: vec![("lead".into(), "oldest".into())],
            ..PolicyChange::default()
        })
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
        net.nodes[0].handle(net.now, Input::AdminRequest { number: 0, group: id, request: change() });
        net.run_for(Duration::from_secs(1));
        assert_eq!(net.outcomes, []);
        net.side = vec![0; 3];
        net.run_until(|net| !net.outcomes.is_empty());
        assert_eq!(net.outcomes, [(0, AdminOutcome::Done(vec![id]))]);
    }

    #[test]
    fn without_a_leader_it_is_told_that_nothing_was_done() {
        let (mut net, id) = leaderless();
        let asked = net.now.time;
        assert_eq!(net.request(0, id, change()), BeginRefusal::NotLeader(None).into());
        assert!((LED_WITHIN..PATIENCE).contains(&net.now.time.since(asked)), "{:?}", net.now.time.since(asked));
    }

    /// The former leader refuses the request, and the next leader carries it out.
    #[test]
    fn who_leads_no_more_has_another_asked() {
        let mut net = Net::of(3);
        let id = net.nodes[0].group().expect("it is in one").state().id;
        let leader = net.leader();
        let (asked, other) = ((leader + 1) % 3, (leader + 2) % 3);
        net.nodes[asked].handle(net.now, Input::AdminRequest { number: 0, group: id, request: change() });
        assert_eq!(net.nodes[asked].requests.own[0].asked.map(|(peer, _)| peer), Some(key(leader)));
        let ring = net.nodes[asked].ring.expect("it is in one");
        let answer = |outcome| Frame::AdminOutcome { ring, number: 0, outcome };
        net.nodes[asked].on_admitted(key(leader), answer(BeginRefusal::NotLeader(None).into()));
        assert!(net.nodes[asked].requests.own[0].asked.is_none());
        let stray = net.nodes[asked].frames_dropped;
        net.nodes[asked].on_admitted(key(other), answer(AdminOutcome::Aborted));
        assert_eq!(net.nodes[asked].frames_dropped, stray + 1, "it was asked nothing");
        net.run_until(|net| !net.outcomes.is_empty());
        assert_eq!(net.outcomes[0], (0, AdminOutcome::Done(vec![id])));
    }

    /// A leader that takes a request of its own user, and loses the lead before anything is done, has the next leader asked.
    #[test]
    fn a_leader_that_can_do_nothing_has_the_next_one_asked() {
        let mut net = Net::of(4);
        let id = net.nodes[0].group().expect("it is in one").state().id;
        let leader = net.leader();
        let (node, now) = (&mut net.nodes[leader], net.now.time);
        let patience = OwnPatience { try_until: now + LED_WITHIN, until: now + PATIENCE };
        node.requests.take_request(&mut context!(node), Asker::User(patience), 0, id, change());
        let taken = node.requests.taken.remove(0);
        node.requests.answer_taken(&mut context!(node), taken, BeginRefusal::NotLeader(None).into());
        assert!(node.requests.own[0].asked.is_none());
        net.run_until(|net| !net.outcomes.is_empty());
        assert_eq!(net.outcomes, [(0, AdminOutcome::Done(vec![id]))]);
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
        assert_eq!(net.request(asked, id, change()), AdminOutcome::Done(vec![id]));
    }

    /// A node that stops answers all of its users.
    #[test]
    fn a_node_that_stops_answers_its_users() {
        let (mut net, id) = leaderless();
        net.nodes[0].handle(net.now, Input::AdminRequest { number: 0, group: id, request: change() });
        net.nodes[0].handle(net.now, Input::Stop);
        net.run_for(Duration::from_secs(20));
        assert!(matches!(net.outcomes[..], [(0, AdminOutcome::NotNow(_))]), "{:?}", net.outcomes);
    }
}
