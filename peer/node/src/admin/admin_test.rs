//! Requests of administrators, between nodes in memory.

use alloc::vec;

use group::harmonia::switch::SwitchUnfit;
use overlay::KeyRange;

use super::*;
use crate::api::Input;
use crate::config::{NodeConfig, SwitchConfig};
use crate::tests::small_net::{Net, SWITCH, key};

fn group_of(net: &Net, index: usize) -> GroupId {
    net.nodes[index].group().expect("it is in one").state().id
}

fn follower(net: &Net) -> usize {
    net.nodes.iter().position(|node| node.group().is_some_and(|group| !group.log().leads())).expect("one leads")
}

fn whole(net: &mut Net, index: usize) -> Vec<KeyRange> {
    let walk = net.walk_ring(index, None, 100);
    assert!(walk.whole, "{walk:?}");
    walk.groups.iter().map(|located| located.group.range).collect()
}

/// Waits until each node is settled in one group, and all nodes know the owners.
fn settle(net: &mut Net) {
    net.run_until(|net| {
        net.nodes.iter().all(|node| {
            let calm = |group: &Group| group.state().is_settled() && group.state().transactions.decided().is_empty();
            node.is_settled() && node.groups().count() == 1 && node.groups().all(calm)
        })
    });
}

#[test]
fn a_group_is_split_moved_and_merged_by_hand() {
    let mut net = Net::of(4);
    let (asked, id) = (follower(&net), group_of(&net, 0));
    let AdminOutcome::Done(born) =
        net.request(asked, id, AdminRequest::Split { at: None, first: vec![key(0), key(1)] })
    else {
        panic!("nothing stands against it");
    };
    settle(&mut net);
    assert_eq!(born, [group_of(&net, 0), group_of(&net, 2)]);
    for index in 0..4 {
        assert_eq!(whole(&mut net, index).len(), 2);
    }
    let at = Point(1 << 126);
    let found = net.walk_ring(3, Some(at), 1);
    assert_eq!((found.whole, found.groups[0].group.id, found.groups[0].point), (true, born[0], at));
    assert!(matches!(net.request(0, born[0], AdminRequest::Repartition { at }), AdminOutcome::Done(_)));
    settle(&mut net);
    assert!(whole(&mut net, 2).contains(&KeyRange::new(Point(0), at)));
    let swap = AdminRequest::Migrate { to: vec![key(1)], from: vec![key(2)] };
    assert!(matches!(net.request(1, born[0], swap), AdminOutcome::Done(_)));
    settle(&mut net);
    assert_eq!((group_of(&net, 2), group_of(&net, 1)), (born[0], born[1]));
    assert!(matches!(net.request(3, born[1], AdminRequest::Merge), AdminOutcome::Done(_)));
    settle(&mut net);
    assert_eq!(whole(&mut net, 1), [KeyRange::FULL.start()].map(|_| whole(&mut net, 0)[0]));
    assert_eq!(group_of(&net, 0), group_of(&net, 3));
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let mut net = Net::with(3, |config| NodeConfig { members_min: 1, members_max: 3, ..config });
    let id = group_of(&net, 0);
    let before = net.nodes[0].group().unwrap().state().clone();
    let refused = |outcome: AdminOutcome, words: &str| match outcome {
        AdminOutcome::Refused(why) => assert!(why.contains(words), "{why}"),
        other => panic!("{other:?}"),
    };
    for index in [0, 1, 2] {
        refused(net.request(index, id, AdminRequest::Merge), "only one group");
        refused(
            net.request(index, id, AdminRequest::Split { at: Some(Point(0)), first: Vec::new() }),
            "strictly inside",
        );
        let stranger = AdminRequest::Split { at: None, first: vec![key(9)] };
        refused(net.request(index, id, stranger), "is not a member");
        refused(
            net.request(index, id, AdminRequest::Split { at: None, first: (0..3).map(key).collect() }),
            "no members",
        );
        assert_eq!(net.request(index, GroupId(7), AdminRequest::Merge), AdminOutcome::NotHere);
    }
    assert_eq!(*net.nodes[0].group().unwrap().state(), before);
    // Two groups that are too large together stay apart.
    assert!(matches!(net.request(0, id, AdminRequest::Split { at: None, first: vec![key(0)] }), AdminOutcome::Done(_)));
    settle(&mut net);
    net.add(|config| NodeConfig { members_min: 1, members_max: 3, ..config });
    net.run_until(|net| net.nodes[3].group().is_some_and(|group| group.state().is_member(net.nodes[3].id())));
    settle(&mut net);
    assert_eq!(group_of(&net, 3), group_of(&net, 0), "where there are fewest");
    refused(net.request(0, group_of(&net, 0), AdminRequest::Merge), "--max-group");
}

/// Without a request, groups of a wrong size split or merge.
#[test]
fn groups_of_the_wrong_size_become_others() {
    let sizes = |config| NodeConfig { members_min: 2, members_max: 3, ..config };
    let mut net = Net::with(4, sizes);
    net.run_until(|net| {
        net.nodes.iter().all(|node| node.group().is_some_and(|group| group.state().members.len() == 2))
    });
    settle(&mut net);
    assert_eq!(whole(&mut net, 0).len(), 2);
    // One member leaves: the remaining one joins the other group.
    net.leave(0, true);
    net.run_until(|net| net.has_left(0));
    net.cut[0] = true;
    net.run_until(|net| (1..4).all(|index| net.nodes[index].group().is_some_and(|g| g.state().members.len() == 3)));
    assert_eq!(whole(&mut net, 1), whole(&mut net, 2));
    assert_eq!(whole(&mut net, 3).len(), 1);
}

/// The former leader does not answer any more.
#[test]
fn a_silent_leader_is_told_of() {
    let mut net = Net::of(3);
    let (asked, id) = (follower(&net), group_of(&net, 0));
    let leader = net.leader();
    net.cut[leader] = true;
    assert_eq!(net.request(asked, id, AdminRequest::Merge), AdminOutcome::Unknown);
}

#[test]
fn a_switch_is_named_by_hand() {
    let mut net = Net::with(3, |config| {
        let here = Net::address(usize::from(config.me.0[0]) - 1);
        let switch = Some(SwitchConfig { at: SWITCH, here });
        NodeConfig { coarse: true, leases: true, cluster: "hall".into(), switch, ..config }
    });
    let (asked, id) = (follower(&net), group_of(&net, 0));
    let refused = |outcome: AdminOutcome, words: &str| match outcome {
        AdminOutcome::Refused(why) => assert!(why.contains(words), "{why}"),
        other => panic!("{other:?}"),
    };
    for nonsense in [0, u32::MAX] {
        refused(net.request(asked, id, AdminRequest::Switch { id: nonsense }), "from 1");
    }
    assert_eq!(net.request(asked, id, AdminRequest::Switch { id: 7 }), AdminOutcome::Done(vec![id]));
    refused(net.request(asked, id, AdminRequest::Switch { id: 7 }), "used 7 already");
    refused(net.request(asked, id, AdminRequest::Switch { id: 6 }), "used 7 already");
    assert_eq!(net.request(asked, id, AdminRequest::Switch { id: 9 }), AdminOutcome::Done(vec![id]));
    let known =
        |net: &Net| net.nodes.iter().map(|node| node.group().unwrap().state().switch.wanted()).collect::<Vec<_>>();
    net.run_until(|net| known(net) == [Some(9); 3]);
    // A new group does not know which switch is near: the switch has to be named anew.
    let AdminOutcome::Done(born) =
        net.request(asked, id, AdminRequest::Split { at: None, first: vec![key(0), key(1)] })
    else {
        panic!("nothing stands against it");
    };
    settle(&mut net);
    assert_eq!(known(&net), [None; 3]);
    refused(net.request(0, born[0], AdminRequest::Switch { id: 9 }), "used 9 already");
    assert_eq!(net.request(0, born[0], AdminRequest::Switch { id: 10 }), AdminOutcome::Done(vec![born[0]]));
}

/// Returns three members that may have a switch.
fn hall() -> Net {
    Net::with(3, |config| {
        let here = Net::address(usize::from(config.me.0[0]) - 1);
        let switch = Some(SwitchConfig { at: SWITCH, here });
        NodeConfig { coarse: true, leases: true, cluster: "hall".into(), switch, ..config }
    })
}

/// A switch that an administrator turned off stays off: no controller turns it on again, and no split does.
#[test]
fn a_switch_is_turned_off_by_hand() {
    let mut net = hall();
    let id = group_of(&net, 0);
    let known = |net: &Net| net.nodes[0].group().unwrap().state().switch;
    let refused =
        |outcome: AdminOutcome| matches!(outcome, AdminOutcome::Refused(why) if why.contains("switch was turned off"));
    for before in [0, 7] {
        if before > 0 {
            assert_eq!(net.request(0, id, AdminRequest::Switch { id: before }), AdminOutcome::Done(vec![id]));
        }
        assert_eq!(net.request(0, id, AdminRequest::UseSwitch { on: false }), AdminOutcome::Done(vec![id]));
        assert_eq!(
            net.request(1, id, AdminRequest::UseSwitch { on: false }),
            AdminOutcome::Done(vec![id]),
            "it is so already"
        );
        assert!(refused(net.request(1, id, AdminRequest::Switch { id: 9 })));
        net.run_until(|net| known(net) == Switch::barred(before.max(1)));
        assert_eq!(net.request(1, id, AdminRequest::UseSwitch { on: true }), AdminOutcome::Done(vec![id]));
        net.run_until(|net| known(net) == Switch::off(before.max(1)));
    }
    // A request for an id that comes while the switch is being turned off is refused.
    let leader = net.leader();
    net.begin(leader, id, AdminRequest::UseSwitch { on: false });
    assert!(refused(net.request(leader, id, AdminRequest::Switch { id: 9 })));
    net.run_until(|net| known(net) == Switch::barred(7));
    let AdminOutcome::Done(born) = net.request(0, id, AdminRequest::Split { at: None, first: vec![key(0), key(1)] })
    else {
        panic!("nothing stands against it");
    };
    settle(&mut net);
    assert_eq!(known(&net), Switch::barred(7));
    assert!(refused(net.request(0, born[0], AdminRequest::Switch { id: 10 })));
}

/// A switch that was stored before there were bars keeps its meaning.
#[test]
fn a_switch_is_stored_in_two_numbers() {
    for (switch, bytes) in [(Switch::off(5), [5, 0]), (Switch::on(5), [5, 1]), (Switch::barred(5), [5, 2])] {
        assert_eq!(postcard::to_allocvec(&switch).unwrap(), bytes);
    }
}

fn ask_for(net: &mut Net, index: usize, group: GroupId, id: u32) {
    let input = Input::AdminRequest { number: index as u64, group, request: AdminRequest::Switch { id } };
    net.nodes[index].handle(net.now, input);
}

/// Two switches under one id would number one primary's writes each for itself (hazard 55).
#[test]
fn of_all_who_ask_for_an_id_one_is_told_that_it_has_it() {
    for ids in [[7, 7, 7], [7, 7, 6], [9, 8, 9]] {
        let mut net = hall();
        let id = group_of(&net, 0);
        ids.iter().enumerate().for_each(|(index, switch)| ask_for(&mut net, index, id, *switch));
        net.settle();
        net.run_until(|net| net.outcomes.len() == 3);
        let told: Vec<&AdminOutcome> = net.outcomes.iter().map(|(_, outcome)| outcome).collect();
        let done = told.iter().filter(|outcome| ***outcome == AdminOutcome::Done(vec![id])).count();
        let refused = told.iter().filter(|outcome| matches!(outcome, AdminOutcome::Refused(_))).count();
        // A higher id may be taken as well, and be the only one that is confirmed.
        assert!(done >= 1 && refused >= 1 && done + refused == 3, "{ids:?}: {told:?}");
        let highest = net.nodes[0].group().unwrap().state().switch.id;
        assert!(ids.contains(&highest), "{highest}");
        if ids[0] == ids[1] && ids[1] == ids[2] {
            assert_eq!(done, 1, "{told:?}");
        }
    }
}

/// An entry chosen under another ballot need not be this leader's proposal.
#[test]
fn a_leader_that_was_none_meanwhile_does_not_know_whose_an_id_is() {
    let mut net = hall();
    let id = group_of(&net, 0);
    let leader = net.leader();
    ask_for(&mut net, leader, id, 7);
    let proposed = net.nodes[leader].requests.taken[0].proposed.as_mut().expect("it leads");
    proposed.1.round -= 1;
    net.settle();
    net.run_until(|net| !net.outcomes.is_empty());
    assert_eq!(net.outcomes[0].1, AdminOutcome::Unknown);
    net.run_until(|net| net.nodes[leader].group().unwrap().state().switch.id == 7);
}

#[test]
fn a_switch_is_refused_where_it_is_of_no_use() {
    type Change = fn(NodeConfig) -> NodeConfig;
    let changes: [(Change, &str); 4] = [
        (|config| NodeConfig { coarse: false, ..config }, "--coarse"),
        (|config| NodeConfig { leases: false, ..config }, "--leases"),
        (|config| NodeConfig { cluster: String::new(), ..config }, "--cluster"),
        (|config| NodeConfig { switch: None, ..config }, "--switch"),
    ];
    for (change, words) in changes {
        let mut net = Net::with(2, |config| {
            let switch = Some(SwitchConfig { at: SWITCH, here: Net::address(0) });
            change(NodeConfig { coarse: true, leases: true, cluster: "hall".into(), switch, ..config })
        });
        let id = group_of(&net, 0);
        let before = net.nodes[0].group().unwrap().state().clone();
        match net.request(0, id, AdminRequest::Switch { id: 1 }) {
            AdminOutcome::Refused(why) => assert!(why.contains(words), "{why}"),
            other => panic!("{other:?}"),
        }
        assert_eq!(*net.nodes[0].group().unwrap().state(), before);
    }
}

/// A member of another cluster joins, and the switch rests until it is gone.
#[test]
fn a_group_in_two_places_does_without() {
    let net = Net::with(3, |config| {
        let here = Net::address(usize::from(config.me.0[0]) - 1);
        let cluster = if config.me == key(2) { "attic" } else { "hall" };
        let switch = Some(SwitchConfig { at: SWITCH, here });
        NodeConfig { coarse: true, leases: true, cluster: cluster.into(), switch, ..config }
    });
    let state = net.nodes[0].group().unwrap().state();
    assert_eq!(state.fits_switch(), Err(SwitchUnfit::Scattered));
    assert!(!state.may_offload());
}
