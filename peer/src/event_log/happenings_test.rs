use super::*;

/// Returns a group of this name with an arc in sixteenths of the ring; members with roles, as `a:leader
/// b:suspect`.
fn group(id: &str, start: u8, end: u8, members: &str) -> GroupStatus {
    let members: Vec<MemberStatus> = members
        .split_whitespace()
        .map(|word| {
            let (peer, role) = word.split_once(':').unwrap_or((word, "member"));
            MemberStatus { peer_id: peer.into(), role: role.into(), ..MemberStatus::default() }
        })
        .collect();
    let leader = members.iter().find(|member| member.role == "leader").map(|member| member.peer_id.clone());
    GroupStatus {
        id: id.into(),
        range: range(start, end),
        members,
        leader,
        part: "member".into(),
        ..GroupStatus::default()
    }
}

fn range(start: u8, end: u8) -> RangeStatus {
    let point = |sixteenth: u8| format!("{:x}{}", sixteenth % 16, "0".repeat(31));
    RangeStatus { start: point(start), end: point(end) }
}

fn beside(mut group: GroupStatus, before: (u8, u8), behind: (u8, u8)) -> GroupStatus {
    group.predecessor_range = Some(range(before.0, before.1));
    group.successor_range = Some(range(behind.0, behind.1));
    group
}

fn told(last: &[GroupStatus], now: &[GroupStatus]) -> Vec<String> {
    happenings("me", last, now)
        .iter()
        .map(|happening| format!("{}: {}", happening.kind.name(), happening.text))
        .collect()
}

#[test]
fn a_name_stands_beside_the_id() {
    let last = [group("g", 0, 0, "me:leader b c")];
    let mut now = [group("g", 0, 0, "me b:leader c:suspect")];
    for (member, name) in now[0].members.iter_mut().zip(["", "oak", "elm"]) {
        member.name = name.parse().ok();
    }
    assert_eq!(told(&last, &now), ["suspected: elm (c) is not heard of", "led: oak (b) leads group g"]);
}

#[test]
fn members_come_and_go() {
    let last = [group("g", 0, 0, "me:leader b c:suspect d e:suspect f:learner")];
    let now = [group("g", 0, 0, "me:leader b:suspect d e f g:learner h")];
    assert_eq!(
        told(&last, &now),
        [
            "suspected: b is not heard of",
            "heard_again: e is heard of again",
            "joined: f is a member of group g",
            "learning: g copies, to be a member of group g",
            "joined: h is a member of group g",
            "excluded: c was put out of group g: it was silent",
        ]
    );
    assert_eq!(told(&now, &now), Vec::<String>::new());
    assert_eq!(
        told(&now, &[group("g", 0, 0, "me:leader b:suspect e f g:learner h")]),
        ["left: d is in group g no more"]
    );
}

#[test]
fn leaders_change() {
    let last = [group("g", 0, 0, "a:leader b me")];
    assert_eq!(told(&last, &[group("g", 0, 0, "a b:leader me")]), ["led: b leads group g"]);
    let mut silent = [group("g", 0, 0, "a b me")];
    assert_eq!(told(&last, &silent), Vec::<String>::new());
    remember_leaders(&last, &mut silent);
    assert_eq!(told(&silent, &last), Vec::<String>::new(), "it is still the one that was");
}

#[test]
fn this_peer_enters_and_leaves() {
    let copies = GroupStatus { part: "learner".into(), ..group("g", 0, 0, "a:leader me:learner") };
    assert_eq!(told(&[], std::slice::from_ref(&copies)), ["learning: me copies from group g"]);
    assert_eq!(told(&[copies], &[group("g", 0, 0, "a:leader me")]), ["joined: me is a member of group g"]);
    let former = GroupStatus { part: "former".into(), ..group("g", 0, 0, "a:leader b") };
    assert_eq!(
        told(&[group("g", 0, 0, "a:leader me")], std::slice::from_ref(&former)),
        ["left: me is in group g no more"]
    );
    assert_eq!(told(&[], &[former]), Vec::<String>::new());
}

#[test]
fn groups_become_others() {
    let of = |last: GroupStatus, now: GroupStatus| told(&[last], &[now]);
    // The whole ring halves, and is one again.
    let (whole, half) = (group("w", 0, 0, "a b me"), beside(group("h", 0, 8, "a me"), (8, 0), (8, 0)));
    assert_eq!(of(whole.clone(), half.clone()), ["split: group w split: now group h, 50 % of the ring"]);
    assert_eq!(of(half.clone(), whole), ["merged: group h merged into group w, all of the ring"]);
    // A quarter of four.
    let eighth = beside(group("e", 0, 2, "a me"), (8, 0), (2, 4));
    let quarter = beside(group("q", 0, 4, "a b me"), (8, 0), (4, 8));
    assert_eq!(of(quarter.clone(), eighth.clone())[0], "split: group q split: now group e, 12 % of the ring");
    assert_eq!(of(eighth.clone(), quarter.clone())[0].split(':').next(), Some("merged"));
    // The lost part went to a neighbour that had a range before.
    let less = beside(group("q2", 0, 3, "a b me"), (8, 0), (3, 8));
    assert_eq!(of(quarter.clone(), less.clone())[0].split(':').next(), Some("repartitioned"));
    assert_eq!(of(less, quarter.clone())[0].split(':').next(), Some("repartitioned"));
    // The same arc with other members.
    let traded = beside(group("t", 0, 4, "a c me"), (8, 0), (4, 8));
    assert_eq!(of(quarter.clone(), traded), ["migrated: group q traded members, 1 for 1: now group t"]);
    let elsewhere = group("x", 9, 12, "y z me");
    assert_eq!(of(quarter, elsewhere)[0].split(':').next(), Some("moved"));
}

#[test]
fn a_range_is_declared_lost() {
    let last = group("g", 0, 8, "a me");
    let mut now = group("g", 8, 8, "a me");
    now.losses.push(crate::status::LossStatus::default());
    let kinds: Vec<EventKind> = happenings("me", &[last], &[now]).iter().map(|happening| happening.kind).collect();
    assert!(kinds.contains(&EventKind::Repaired), "{kinds:?}");
}

#[test]
fn lanes_are_told_apart_and_nonsense_is_borne() {
    let lane = |lane, group| GroupStatus { lane: Some(lane), ..group };
    let last = [lane(0, group("g", 0, 0, "a me")), lane(1, group("h", 0, 0, "a me"))];
    let now = [lane(0, group("g", 0, 0, "a me")), lane(1, group("h", 0, 0, "a b me"))];
    assert_eq!(told(&last, &now), ["joined: b is a member of group h"]);
    let nonsense = GroupStatus { id: "é".repeat(9), range: RangeStatus::default(), ..group("g", 0, 0, "ü\u{1b}") };
    told(&[group("g", 0, 0, "a me")], std::slice::from_ref(&nonsense));
    told(&[nonsense], &[]);
}

#[test]
fn a_majority_that_is_lost_is_told_of_own_groups_and_of_those_beside() {
    let quorum = |heard| Some(QuorumStatus { held: heard >= 2, heard, needed: 2, members: 3, former_epoch: None });
    let with = |own, behind| {
        let group = beside(group("g", 0, 8, "me b c"), (8, 0), (8, 0));
        let (predecessor, successor) = (Some("n".to_owned()), Some("n".to_owned()));
        let (predecessor_quorum, successor_quorum) = (quorum(behind), quorum(behind));
        [GroupStatus { quorum: quorum(own), predecessor, predecessor_quorum, successor, successor_quorum, ..group }]
    };
    assert_eq!(told(&with(3, 3), &with(2, 2)), Vec::<String>::new());
    assert_eq!(
        told(&with(2, 3), &with(1, 3)),
        ["quorum_lost: group g has no majority: 1 of 3 members heard; no operation on 50 % of the ring is answered"]
    );
    assert_eq!(
        told(&with(2, 3), &with(2, 0)),
        ["quorum_lost: group n has no majority: no member of it answers; no operation on 50 % of the ring is answered"]
    );
    assert_eq!(told(&with(1, 1), &with(2, 1)), ["quorum_back: group g has a majority again: 2 of 3 members heard"]);
}
