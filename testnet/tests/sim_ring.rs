//! Groups split, merge and move their boundaries, under clients and faults: it stays one store, and the ring closes again.

use node::Node;
use testnet::sim::Scenario;
use testnet::sim::harness::{expect_well, for_each_seed};

#[test]
fn whatever_becomes_of_groups_it_is_one_store() {
    let mut begun = 0;
    for_each_seed("--test sim_ring", 60, |seed| {
        expect_well::<Node>(&Scenario::ring(seed));
    });
    for seed in 0..5 {
        begun += expect_well::<Node>(&Scenario::ring(seed)).marks.count("fault: a group becomes another");
    }
    assert!(begun > 10, "hardly anything happens: {begun}");
}

/// Members of a group copied a part that came from another group, and had told each other what they lacked, when a majority of
/// them held everything and the other group was asked no more: one took what it had been told before for all there is.
#[test]
fn what_others_lacked_before_is_not_taken_for_all_there_is() {
    expect_well::<Node>(&Scenario::ring(1_018));
}
