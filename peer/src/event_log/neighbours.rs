//! Quorums of the groups beside a peer's own, as a member of each reports: asked for every few seconds.
//!
//! A group that has lost its majority cannot record that in any log; its neighbours can report it. [`Neighbours`] wraps a
//! [`StatusSource`] and fills in their answers, so that status, metrics and events agree.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use environment::lock;
use node::RingWalk;
use overlay::{Key, Point};
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use crate::admin::Admin;
use crate::offload::Offload;
use crate::status::{
    Budgets, GroupStatus, Located, Location, PeerTraffic, QuorumStatus, Readiness, Status, StatusSource,
};

/// Interval between two rounds of questions.
const ASK_EVERY: Duration = Duration::from_secs(5);
/// Number of unanswered questions in a row after which a neighbour is reported as silent: a single one may have met a group
/// that was changing.
const MISSES_MAX: u8 = 2;

/// Status of a peer, completed with the reports of its groups' neighbours.
pub struct Neighbours {
    inner: Arc<dyn StatusSource>,
    known: Mutex<BTreeMap<String, KnownNeighbour>>,
}

/// Knowledge about one neighbour.
#[derive(Clone, Debug, Default)]
struct KnownNeighbour {
    quorum: Option<QuorumStatus>,
    misses: u8,
}

/// Neighbour to ask, and its place on the ring.
struct Question {
    lane: u8,
    group: String,
    point: Point,
}

impl Neighbours {
    /// Returns a status source without knowledge of neighbours yet.
    pub fn new(inner: Arc<dyn StatusSource>) -> Neighbours {
        Neighbours { inner, known: Mutex::default() }
    }

    /// Asks until `stop` becomes true.
    pub async fn keep(self: Arc<Neighbours>, admin: Arc<dyn Admin>, mut stop: watch::Receiver<bool>) {
        let rounds = async {
            let mut ticks = tokio::time::interval(ASK_EVERY);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                let mut answers = Vec::new();
                for question in questions(&self.inner.status().groups) {
                    // Without an answer the peer is stopping.
                    let Ok(walk) = admin.walk_ring(question.lane, Some(question.point), 1).await else { return };
                    answers.push((question.group, walk));
                }
                self.learn(answers);
            }
        };
        tokio::select! {
            () = rounds => {}
            // An error means that the sender is gone, so no stop can follow.
            _ = stop.wait_for(|stop| *stop) => {}
        }
    }

    /// Takes the answers of a round; neighbours that were not asked for are forgotten.
    fn learn(&self, answers: Vec<(String, RingWalk)>) {
        let mut known = lock(&self.known);
        let mut next = BTreeMap::new();
        for (group, walk) in answers {
            let before = known.remove(&group).unwrap_or_default();
            match walk.groups.first().map(Located::of) {
                Some(located) => {
                    next.insert(located.group, KnownNeighbour { quorum: located.quorum, misses: 0 });
                }
                None => {
                    next.insert(group, before.missed());
                }
            }
        }
        *known = next;
    }

    fn fill_in(&self, groups: &mut [GroupStatus]) {
        let known = lock(&self.known);
        let of = |id: &Option<String>| known.get(id.as_ref()?)?.quorum.clone();
        for group in groups {
            group.predecessor_quorum = of(&group.predecessor);
            group.successor_quorum = of(&group.successor);
        }
    }
}

impl KnownNeighbour {
    /// Records that no member answered.
    fn missed(self) -> KnownNeighbour {
        let misses = self.misses.saturating_add(1);
        let quorum = match misses >= MISSES_MAX {
            true => Some(QuorumStatus { held: false, heard: 0, ..self.quorum.unwrap_or_default() }),
            false => self.quorum,
        };
        KnownNeighbour { quorum, misses }
    }
}

/// Returns each neighbour of these groups once.
fn questions(groups: &[GroupStatus]) -> Vec<Question> {
    let mut questions: Vec<Question> = Vec::new();
    for group in groups {
        for (id, range) in [(&group.predecessor, &group.predecessor_range), (&group.successor, &group.successor_range)]
        {
            let point = range.as_ref().and_then(|range| range.arc()).map(|arc| arc.start());
            let (Some(id), Some(point)) = (id, point) else { continue };
            if *id != group.id && questions.iter().all(|question| question.group != *id) {
                questions.push(Question { lane: group.lane.unwrap_or(0), group: id.clone(), point });
            }
        }
    }
    questions
}

impl StatusSource for Neighbours {
    fn status(&self) -> Status {
        let mut status = self.inner.status();
        self.fill_in(&mut status.groups);
        status
    }

    fn peer_id(&self) -> String {
        self.inner.peer_id()
    }

    fn groups(&self) -> Vec<GroupStatus> {
        let mut groups = self.inner.groups();
        self.fill_in(&mut groups);
        groups
    }

    fn readiness(&self) -> Readiness {
        self.inner.readiness()
    }

    fn peers(&self) -> Vec<PeerTraffic> {
        self.inner.peers()
    }

    fn budgets(&self) -> Budgets {
        self.inner.budgets()
    }

    fn offload(&self) -> Offload {
        self.inner.offload()
    }

    fn locate(&self, key: &Key) -> Location {
        self.inner.locate(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::RangeStatus;

    /// Member of a group whose neighbour on both sides is the group `n`.
    struct Member;

    impl StatusSource for Member {
        fn status(&self) -> Status {
            let range = |start: &str, end: &str| RangeStatus { start: start.repeat(32), end: end.repeat(32) };
            let group = GroupStatus {
                id: "g".into(),
                range: range("0", "8"),
                predecessor: Some("n".into()),
                predecessor_range: Some(range("8", "0")),
                successor: Some("n".into()),
                successor_range: Some(range("8", "0")),
                ..GroupStatus::default()
            };
            Status { groups: vec![group], ..Status::default() }
        }

        fn readiness(&self) -> Readiness {
            Readiness::default()
        }
    }

    #[test]
    fn a_neighbour_without_a_majority_is_told() {
        let neighbours = Neighbours::new(Arc::new(Member));
        let asked: Vec<String> =
            questions(&neighbours.status().groups).into_iter().map(|question| question.group).collect();
        assert_eq!(asked, ["n"], "one that is on both sides is asked once");
        let quorum = || {
            let status = neighbours.status();
            assert_eq!(status.groups[0].predecessor_quorum, status.groups[0].successor_quorum);
            status.groups[0].successor_quorum.clone().map(|quorum| quorum.held)
        };
        assert_eq!(quorum(), None);
        for told in [None, Some(false), Some(false)] {
            neighbours.learn(vec![("n".into(), RingWalk::default())]);
            assert_eq!(quorum(), told, "once may be chance");
        }
        neighbours.learn(Vec::new());
        assert_eq!(quorum(), None, "it is no neighbour any more");
    }
}
