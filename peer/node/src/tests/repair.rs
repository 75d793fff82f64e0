//! Repair: an administrator has a neighbour take over a range of which all owners are gone for good (hazard 40).

use alloc::vec;
use alloc::vec::Vec;

use core::time::Duration;

use group::Group;
use overlay::{Epoch, GroupId, KeyRange, Point};

use crate::admin::{AdminOutcome, AdminRequest};
use crate::api::Event;
use crate::config::NodeConfig;
use crate::tests::small_net::{Net, key};

/// Returns three groups of two nodes each, in order: the second owns the third quarter of the ring, the last one the fourth.
fn three_groups() -> (Net, [GroupId; 3]) {
    let mut net = Net::with(6, |config| NodeConfig { members_min: 1, members_max: 6, ..config });
    for (asked, first) in [(0, [0, 1]), (2, [2, 3])] {
        let id = group_of(&net, asked);
        let split = AdminRequest::Split { at: None, first: first.map(key).to_vec() };
        assert!(matches!(net.request(asked, id, split), AdminOutcome::Done(_)));
        settle(&mut net);
    }
    let ids = [0, 2, 4].map(|index| group_of(&net, index));
    (net, ids)
}

fn group_of(net: &Net, index: usize) -> GroupId {
    net.nodes[index].group().expect("it is in one").state().id
}

fn settle(net: &mut Net) {
    net.run_until(|net| {
        net.nodes.iter().enumerate().all(|(index, node)| {
            let calm = |group: &Group| group.state().is_settled() && group.state().transactions.decided().is_empty();
            net.cut[index] || node.is_settled() && node.groups().count() == 1 && node.groups().all(calm)
        })
    });
}

fn cut(net: &mut Net, indices: &[usize], cut: bool) {
    indices.iter().for_each(|index| net.cut[*index] = cut);
}

fn repair(lost: GroupId) -> AdminRequest {
    AdminRequest::Repair { from: None, lost: vec![lost] }
}

fn is_quarantined(net: &Net, index: usize) -> bool {
    net.events[index].iter().any(|event| matches!(event, Event::Quarantine(_)))
}

fn ranges(net: &mut Net, index: usize) -> Vec<KeyRange> {
    let walk = net.walk_ring(index, None, 100);
    assert!(walk.whole, "{walk:?}");
    walk.groups.iter().map(|located| located.group.range).collect()
}

#[test]
fn a_lost_range_is_taken_over_and_whoever_had_it_is_quarantined() {
    let (mut net, [first, second, third]) = three_groups();
    let refused = |granted: AdminOutcome, words: &str| match granted {
        AdminOutcome::Refused(why) => assert!(why.contains(words), "{why}"),
        other => panic!("{other:?}"),
    };
    let before = net.nodes[4].group().unwrap().state().clone();
    refused(net.request(4, third, repair(second)), "answers: nothing is lost");
    cut(&mut net, &[2, 3], true);
    refused(net.request(0, first, repair(second)), "answers: nothing is lost");
    refused(net.request(4, third, repair(first)), "not among the groups declared lost");
    let elsewhere = AdminRequest::Repair { from: Some(Point(1 << 125)), lost: vec![second] };
    refused(net.request(4, third, elsewhere), "states of the participating groups do not match");
    assert_eq!(net.nodes[4].group().unwrap().state().transactions, before.transactions, "nothing has changed");

    assert_eq!(net.request(5, third, repair(second)), AdminOutcome::Done(vec![third]));
    settle(&mut net);
    let half = net.nodes[0].group().unwrap().state().range.end();
    assert_eq!(ranges(&mut net, 0), [KeyRange::new(Point(0), half), KeyRange::new(half, Point(0))]);
    let state = net.nodes[4].group().unwrap().state().clone();
    assert_eq!((state.losses.len(), &state.losses[0].groups), (1, &vec![second]));
    assert!(state.epoch > Epoch(1 << 32) && state.transactions.is_heir_of(second));

    cut(&mut net, &[2, 3], false);
    net.run_until(|net| is_quarantined(net, 2) && is_quarantined(net, 3));
    assert!(![0, 1, 4, 5].iter().any(|index| is_quarantined(&net, *index)));
}

#[test]
fn a_range_without_a_majority_or_an_answer_is_told() {
    let (mut net, [first, second, third]) = three_groups();
    cut(&mut net, &[3], true);
    net.run_for(Duration::from_secs(3));
    let walk = net.walk_ring(0, None, 100);
    assert!(walk.whole && walk.silent.is_empty());
    for located in &walk.groups {
        assert_eq!(located.heard.is_quorum(), located.group.id != second, "{located:?}");
    }
    let status = net.nodes[2].status().group.expect("it is a member");
    let heard = status.heard.expect("it listens");
    assert_eq!((heard.members, heard.needed), (1, 2));
    assert_eq!((status.leader, status.established), (None, false));

    let range = net.nodes[2].group().unwrap().state().range;
    cut(&mut net, &[2], true);
    for index in [0, 4] {
        let walk = net.walk_ring(index, None, 100);
        assert!(!walk.whole);
        let [silent] = &walk.silent[..] else { panic!("{walk:?}") };
        assert_eq!((silent.range, silent.group.as_ref().map(|group| group.id)), (range, Some(second)));
        let mut groups: Vec<GroupId> = walk.groups.iter().map(|located| located.group.id).collect();
        groups.sort_unstable();
        let mut others = vec![first, third];
        others.sort_unstable();
        assert_eq!(groups, others, "it goes on behind what is silent");
    }
}

/// A group of two that a newcomer joins loses one of the two before the new epoch is established. The other one has all data, since both
/// accepted each chosen write.
#[test]
fn half_of_the_former_members_are_enough() {
    let settings = |config| NodeConfig { members_min: 1, members_max: 6, ..config };
    let mut net = Net::with(2, settings);
    net.add(settings);
    let state = |net: &Net| net.nodes[0].group().expect("it is a member").state().clone();
    net.cut_when(&[1], |net| !state(net).recovery.is_empty());
    net.run_until(|net| state(net).recovery.is_empty());
    assert!(net.cut[1] && state(&net).members.len() == 3);
}

/// One member of the lost group is enough to learn of the loss, though it hears no other member.
#[test]
fn who_comes_back_alone_learns_it_too() {
    let (mut net, [_, second, third]) = three_groups();
    cut(&mut net, &[2, 3], true);
    assert_eq!(net.request(4, third, repair(second)), AdminOutcome::Done(vec![third]));
    settle(&mut net);
    cut(&mut net, &[3], false);
    net.run_until(|net| is_quarantined(net, 3));
}

/// The group was never down: the other groups did not hear it.
#[test]
fn a_group_that_was_cut_off_learns_it_when_it_is_heard_again() {
    let (mut net, [_, second, third]) = three_groups();
    [2, 3].iter().for_each(|index| net.side[*index] = 1);
    assert_eq!(net.request(4, third, repair(second)), AdminOutcome::Done(vec![third]));
    net.run_for(Duration::from_secs(8));
    assert!(!is_quarantined(&net, 2) && net.nodes[2].group().is_some_and(|group| group.state().id == second));
    net.side.fill(0);
    net.run_for(Duration::from_secs(3));
    assert!(is_quarantined(&net, 2) && is_quarantined(&net, 3));
    assert!(![0, 1, 4, 5].iter().any(|index| is_quarantined(&net, *index)));
}

/// The group on one side does not hear it, the other one does.
#[test]
fn what_either_neighbour_hears_is_not_lost() {
    let (mut net, [_, second, third]) = three_groups();
    net.deaf = vec![(2, 4), (2, 5), (3, 4), (3, 5)];
    assert_eq!(net.request(4, third, repair(second)), AdminOutcome::Aborted);
    assert!(net.nodes[4].group().unwrap().state().losses.is_empty());
}

/// Two neighbours are lost, and the one group that remains takes over both ranges.
#[test]
fn more_than_one_may_be_gone() {
    let (mut net, [first, second, third]) = three_groups();
    cut(&mut net, &[0, 1, 2, 3], true);
    let far = AdminRequest::Repair { from: Some(Point(0)), lost: vec![first, second] };
    assert_eq!(net.request(4, third, far), AdminOutcome::Done(vec![third]));
    settle(&mut net);
    assert_eq!(ranges(&mut net, 4), [KeyRange::new(Point(0), Point(0))]);
    cut(&mut net, &[0, 1, 2, 3], false);
    net.run_until(|net| (0..4).all(|index| is_quarantined(net, index)));
}

/// A transaction of a lost group that other groups voted for holds no locks any more.
#[test]
fn locks_of_a_lost_group_go_with_its_repair() {
    let (mut net, [_, second, third]) = three_groups();
    // The group begins to merge, and is gone when all have voted.
    let leader = (2..4).find(|index| net.nodes[*index].group().unwrap().log().leads()).expect("one leads");
    net.begin(leader, second, AdminRequest::Merge);
    net.cut_when(&[2, 3], |net| {
        [0, 4]
            .iter()
            .any(|index| net.nodes[*index].groups().any(|group| group.state().transactions.voted().next().is_some()))
    });
    assert_eq!(net.request(4, third, repair(second)), AdminOutcome::Done(vec![third]));
    settle(&mut net);
    net.run_until(|net| {
        [0, 1, 4, 5].iter().all(|index| net.nodes[*index].groups().all(|group| group.state().transactions.is_calm()))
    });
    // Further transactions are possible.
    assert!(matches!(net.request(4, third, AdminRequest::Merge), AdminOutcome::Done(_)));
}
