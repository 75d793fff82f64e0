//! Names of peers: each peer learns those of the others.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec;

use overlay::{GroupRef, PeerKey};

use crate::admin::{AdminOutcome, AdminRequest};
use crate::config::NodeConfig;
use crate::tests::small_net::{Net, key};

/// The first two peers have the same name, the third one has none.
fn named(config: NodeConfig) -> NodeConfig {
    let name = if config.me == key(2) { None } else { "oak".parse().ok() };
    NodeConfig { name, members_min: 1, ..config }
}

fn names(group: &GroupRef) -> BTreeMap<PeerKey, Option<String>> {
    let name = |contact: &overlay::Contact| contact.name.as_ref().map(ToString::to_string);
    group.members.iter().map(|contact| (contact.node.peer, name(contact))).collect()
}

#[test]
fn members_learn_names_as_they_join() {
    let net = Net::with(3, named);
    for node in &net.nodes {
        let members = node.status().group.expect("it is in one").members;
        let told = members.iter().map(|member| (member.node.peer, member.name.as_ref().map(ToString::to_string)));
        let oak = || Some("oak".to_string());
        assert_eq!(told.collect::<BTreeMap<_, _>>(), [(key(0), oak()), (key(1), oak()), (key(2), None)].into());
    }
}

/// An operator that asks one peer for the ring sees the names of members of all groups.
#[test]
fn names_are_told_across_groups() {
    let mut net = Net::with(3, named);
    let id = net.nodes[0].group().expect("it is in one").state().id;
    assert!(matches!(net.request(0, id, AdminRequest::Split { at: None, first: vec![key(0)] }), AdminOutcome::Done(_)));
    net.run_until(|net| net.nodes.iter().all(|node| node.is_settled() && node.groups().count() == 1));
    let walk = net.walk_ring(2, None, 8);
    assert!(walk.whole && walk.groups.len() == 2, "{walk:?}");
    let all: BTreeMap<_, _> = walk.groups.iter().flat_map(|located| names(&located.group)).collect();
    let oak = || Some("oak".to_string());
    assert_eq!(all, [(key(0), oak()), (key(1), oak()), (key(2), None)].into());
    // Each member knows the names in the neighbouring groups without asking.
    let state = net.nodes[2].group().expect("it is in one").state();
    assert_eq!(names(&state.view().predecessor), [(key(0), oak())].into());
}
