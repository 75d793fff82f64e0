//! A network changes its policies, between nodes in memory.

use alloc::vec;
use alloc::vec::Vec;

use group::config::{Defect, Defects};
use group::control::agreed::AgreedPolicies;
use overlay::GroupId;

use crate::admin::{AdminOutcome, AdminRequest, PolicyChange};
use crate::config::NodeConfig;
use crate::tests::small_net::{Net, key};

fn of(net: &Net, index: usize) -> AgreedPolicies {
    net.nodes[index].group().expect("it is in one").state().settings.policies.clone()
}

fn group(net: &Net, index: usize) -> GroupId {
    net.nodes[index].group().expect("it is in one").state().id
}

fn change(names: &[(&str, &str)], members_max: Option<u32>) -> AdminRequest {
    let names = names.iter().map(|(decision, name)| ((*decision).into(), (*name).into())).collect();
    AdminRequest::SetPolicies(PolicyChange { names, members_min: None, members_max })
}

/// Returns a network of eight nodes in four groups of two, all of which neither split nor merge.
fn four_groups(defects: Defects) -> Net {
    let mut net = Net::with(8, |config| {
        let mut config = NodeConfig { members_min: 1, members_max: 100, defects, ..config };
        config.policies.choose("size", "off").expect("known");
        config
    });
    for (asked, first) in [(0, 0..4), (0, 0..2), (4, 4..6)] {
        let split = AdminRequest::Split { at: None, first: first.map(key).collect() };
        assert!(matches!(net.request(asked, group(&net, asked), split), AdminOutcome::Done(_)));
        net.run_until(|net| {
            net.nodes.iter().all(|node| {
                let calm = |group: &group::Group| group.state().is_settled() && group.state().transactions.is_calm();
                node.is_settled() && node.groups().count() == 1 && node.groups().all(calm)
            })
        });
    }
    net
}

/// A change is chosen in the group that gets the request, and each group's neighbours take it over until all of the ring
/// has it.
#[test]
fn a_change_spreads_over_the_ring() {
    let mut net = four_groups(Defects::NONE);
    assert_eq!((of(&net, 0).version, of(&net, 0).name_of("lead")), (0, Some("agreement")));
    assert_eq!(
        net.request(1, group(&net, 1), change(&[("lead", "oldest")], Some(50))),
        AdminOutcome::Done(vec![group(&net, 1)])
    );
    let changed = of(&net, 0);
    assert_eq!((changed.version, changed.name_of("lead"), changed.members_max), (1, Some("oldest"), 50));
    net.run_until(|net| (0..8).all(|index| of(net, index) == changed));
    assert_eq!(
        net.request(5, group(&net, 5), change(&[("lead", "oldest")], None)),
        AdminOutcome::Done(vec![group(&net, 5)])
    );
    assert_eq!(of(&net, 5), changed, "it is so already");
    // A group that two groups merged into has the policies, too, and so does a newcomer.
    assert!(matches!(net.request(0, group(&net, 0), AdminRequest::Merge), AdminOutcome::Done(_)));
    net.add(|config| NodeConfig { members_min: 1, members_max: 100, ..config });
    net.run_until(|net| net.nodes[8].group().is_some());
    assert_eq!(of(&net, 8), changed);
}

/// Two administrators change the same decision at different ends of the ring: one of them wins everywhere.
#[test]
fn of_two_changes_one_wins() {
    let mut net = four_groups(Defects::NONE);
    net.begin(0, group(&net, 0), change(&[("split", "random")], None));
    net.begin(6, group(&net, 6), change(&[("split", "p2p")], None));
    net.run_until(|net| (1..8).all(|index| of(net, index) == of(net, 0) && of(net, 0).version > 0));
    let split = of(&net, 3).name_of("split").map(alloc::string::String::from);
    assert!(["random", "p2p"].map(Some).contains(&split.as_deref()), "{split:?}");
    let done = net.outcomes.iter().filter(|(_, outcome)| matches!(outcome, AdminOutcome::Done(_))).count();
    assert!(done >= 2, "both were chosen in their groups: {:?}", net.outcomes);
}

#[test]
fn a_change_that_makes_no_sense_is_refused() {
    let mut net = Net::of(3);
    let (id, before) = (group(&net, 0), of(&net, 0));
    for (bad, words) in [(change(&[("lead", "nobody")], None), "agreement"), (change(&[], Some(6)), "max-group 6")] {
        for asked in 0..3 {
            match net.request(asked, id, bad.clone()) {
                AdminOutcome::Refused(why) => assert!(why.contains(words), "{why}"),
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(of(&net, 0), before);
}

/// Greater sizes keep a group whole that would have split.
#[test]
fn sizes_of_groups_can_change() {
    let mut net = Net::with(4, |config| NodeConfig { members_min: 2, members_max: 4, ..config });
    let id = group(&net, 0);
    assert_eq!(net.request(2, id, change(&[], Some(9))), AdminOutcome::Done(vec![id]));
    net.add(|config| NodeConfig { members_min: 2, members_max: 4, ..config });
    net.run_until(|net| net.nodes[4].group().is_some_and(|group| group.state().members.len() == 5));
    net.run_for(core::time::Duration::from_secs(30));
    let groups: Vec<GroupId> = (0..5).map(|index| group(&net, index)).collect();
    assert_eq!(groups, vec![id; 5]);
}

/// The mutant: leaders do not take over the policies that neighbours report.
#[test]
fn without_the_rule_a_change_stays_in_its_group() {
    let mut net = four_groups(Defects::NONE.with(Defect::PoliciesNotTold));
    assert!(matches!(net.request(1, group(&net, 1), change(&[("lead", "oldest")], None)), AdminOutcome::Done(_)));
    net.run_for(core::time::Duration::from_secs(30));
    assert_eq!((of(&net, 1).version, of(&net, 4).version), (1, 0));
}
