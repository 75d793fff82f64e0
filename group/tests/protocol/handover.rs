//! The first primary of a sub-range in a new group asks no member for promises where all of its sub-range is handed over to it. It asks as
//! usual where any part is missing.

use group::Group;
use group::ballot::{LogSlot, Term, TermBallot};
use group::control::state::{Assignment, EpochConfig, GroupState};
use group::message::{Base, CommitteeMessage, Message};
use group::outbox::GroupOutput;
use group::transaction::TransactionId;
use group::transaction::successor::handover::{Handover, Inheritance};
use overlay::{Epoch, GroupId, KeyRange, Point};

use crate::bench::{Bench, key, node, write};

const MIDDLE: Point = Point(1 << 127);
const LEFT: KeyRange = KeyRange::new(Point(0), MIDDLE);
const RIGHT: KeyRange = KeyRange::new(MIDDLE, Point(0));
const OLDER: Term = Term(77);

/// Returns a group of three that has ended: node 1 was primary of the left half, node 2 of the right one.
fn last() -> GroupState {
    let slot = LogSlot(30);
    let part = |index: usize, start, peer| Assignment { start, node: node(peer), term: Term::new(slot, index) };
    GroupState {
        applied: LogSlot(40),
        epoch: Epoch(4),
        division: vec![part(0, LEFT.start(), 1), part(1, RIGHT.start(), 2)],
        ended: Some(TransactionId { group: GroupId(1), epoch: Epoch(4), slot: LogSlot(35) }),
        ..Bench::new(node(1), 3).state
    }
}

/// Returns the group that is born of it: node 1 is primary of all.
fn born() -> GroupState {
    let slot = LogSlot(41);
    let all = Assignment { start: LEFT.start(), node: node(1), term: Term::new(slot, 0) };
    let born = GroupState { id: GroupId(2), applied: slot, epoch: Epoch(5), born: Epoch(5), born_at: slot, ..last() };
    let before = EpochConfig { epoch: Epoch(4), members: last().nodes(), open: vec![KeyRange::FULL] };
    GroupState { division: vec![all], recovery: vec![before], ended: None, ..born }
}

fn ballots() -> [TermBallot; 2] {
    let ballots: Vec<TermBallot> = last().parts().map(|(_, ballot)| ballot).collect();
    [ballots[0], ballots[1]]
}

/// Returns the handover of the primary of a half: five writes are chosen, and a sixth, of a key there, may be.
fn handover(half: KeyRange, ballot: TermBallot) -> Handover {
    let name = (0..).map(|n| format!("k{n}")).find(|name| half.contains(key(name).point())).expect("one of them is");
    let base = Base { range: half, pieces: vec![(half, vec![(OLDER, 9)])], reproposed: 0 };
    Handover { ballot, base: base.into(), chosen: 5, unsettled: vec![write(ballot, 6, &name, "late")] }
}

/// Returns a member of both groups, which gets these handovers, and its first messages; or its messages after a late handover.
fn inherits(state: GroupState, handed: &[Handover], late: Option<Handover>) -> (Vec<CommitteeMessage>, Group) {
    let Bench { config, now, .. } = Bench::new(node(1), 3);
    let config = group::config::GroupConfig { durable: false, ..config };
    let mut parent = Group::join(config, node(1), GroupState { ended: None, ..last() }, now, 1);
    let mut inheritance = Inheritance::of(&[&last()]);
    handed.iter().for_each(|handover| assert!(inheritance.take(GroupId(1), handover)));
    let mut born = Group::succeed(&mut parent, state, &[], Vec::new(), inheritance, now, 2);
    let mut said = said(&mut born);
    if let Some(late) = late {
        born.on_handover(GroupId(1), &late);
        said = self::said(&mut born);
    }
    (said, born)
}

fn said(group: &mut Group) -> Vec<CommitteeMessage> {
    let outputs = core::iter::from_fn(|| group.poll_output());
    let committee = outputs.filter_map(|output| match output {
        GroupOutput::Send(_, Message::Committee(message), _) => Some(message),
        _ => None,
    });
    committee.collect()
}

fn is_base(message: &CommitteeMessage) -> bool {
    matches!(message, CommitteeMessage::Base { .. })
}

#[test]
fn who_is_handed_everything_asks_nobody() {
    let [left, right] = ballots();
    let handed = [handover(LEFT, left), handover(RIGHT, right)];
    let (said, born) = inherits(born(), &handed, None);
    let proposed: Vec<u64> = said
        .iter()
        .filter_map(|message| if let CommitteeMessage::Accept { writes, .. } = message { Some(writes) } else { None })
        .flatten()
        .map(|write| write.record.number.n)
        .collect();
    assert_eq!(proposed, [1, 2], "what may have been chosen is proposed again");
    let base = said.iter().find_map(|message| match message {
        CommitteeMessage::Base { base, .. } => Some(base.clone()),
        _ => None,
    });
    let pieces = [(left, LEFT), (right, RIGHT)].map(|(of, half)| (half, vec![(of.term, 5), (OLDER, 9)]));
    assert_eq!(base, Some(Base { range: KeyRange::FULL, pieces: pieces.to_vec(), reproposed: 2 }.into()));
    let primary = born.primaries().next().expect("it is primary");
    assert!(primary.takes_operations() && !primary.is_serving(), "a quorum must have the base first");
}

#[test]
fn where_something_is_missing_all_are_asked() {
    let [left, right] = ballots();
    let (said, _) = inherits(born(), &[handover(RIGHT, right)], None);
    assert!(matches!(said[..], [CommitteeMessage::Prepare { .. }]), "{said:?}");
    // It comes late, but before all have promised.
    let (said, _) = inherits(born(), &[handover(RIGHT, right)], Some(handover(LEFT, left)));
    assert!(said.iter().any(is_base), "{said:?}");
    // Another division was drawn since: another node may have been primary of some of it.
    let redrawn = Assignment { start: LEFT.start(), node: node(1), term: Term::new(LogSlot(42), 0) };
    let later = GroupState { applied: LogSlot(42), division: vec![redrawn], ..born() };
    let (said, _) = inherits(later, &[handover(LEFT, left), handover(RIGHT, right)], None);
    assert!(matches!(said[..], [CommitteeMessage::Prepare { .. }]), "{said:?}");
}

#[test]
fn only_who_was_primary_last_hands_over() {
    let [left, right] = ballots();
    let mut inheritance = Inheritance::of(&[&last()]);
    let older = TermBallot { term: Term::new(LogSlot(29), 0), ..left };
    let epoch = TermBallot { epoch: Epoch(3), ..left };
    for (group, handover) in [
        (GroupId(1), handover(LEFT, older)),
        (GroupId(1), handover(LEFT, epoch)),
        (GroupId(1), handover(LEFT, right)),
        (GroupId(1), handover(KeyRange::FULL, left)),
        (GroupId(3), handover(LEFT, left)),
    ] {
        assert!(!inheritance.take(group, &handover), "{handover:?}");
    }
    assert!(inheritance.take(GroupId(1), &handover(LEFT, left)));
    assert!(!inheritance.take(GroupId(1), &handover(LEFT, left)), "once");
    // A group that continues has not come to its last division.
    let mut goes_on = Inheritance::of(&[&GroupState { ended: None, ..last() }]);
    assert!(!goes_on.take(GroupId(1), &handover(LEFT, left)));
}

#[test]
fn nonsense_is_not_handed_over() {
    let [left, _] = ballots();
    let sound = handover(LEFT, left);
    assert_eq!(sound.check(node(1)), Ok(()));
    assert!(sound.check(node(2)).is_err(), "that ballot is another's");
    assert!(Handover { chosen: 6, ..sound.clone() }.check(node(1)).is_err(), "it is said to be chosen, and not to be");
    let twice = [&sound.unsettled[..], &sound.unsettled[..]].concat();
    assert!(Handover { unsettled: twice, ..sound.clone() }.check(node(1)).is_err());
    let elsewhere = handover(RIGHT, left).unsettled;
    assert!(Handover { unsettled: elsewhere, ..sound }.check(node(1)).is_err());
}
