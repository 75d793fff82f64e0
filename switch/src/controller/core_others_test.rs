//! Effects of other groups, other controllers, and peers whose reports do not count.

use super::*;

/// Decides with a second group beside [`GROUP`], whose state is `other`.
fn with_another(world: &mut World, other: &Known) -> Vec<Ask> {
    world.now += Duration::from_millis(500);
    for peer in 0..3 {
        let mut report = world.report(peer);
        report.groups.insert(Group(8), other.clone());
        world.core.heard(peer, Ok(report), world.now);
    }
    world.report_switch();
    world.core.decide(world.now, world.unix).asks
}

#[test]
fn one_groups_ids_cost_no_other_one_its_own() {
    let mut world = World::new();
    let other = Known { id: u32::MAX - 1, on: true, parts: [(21, part(1))].into(), ..world.known.clone() };
    let asks = with_another(&mut world, &other);
    assert_eq!(asks, [Ask { mastership: 1, group: GROUP, id: UNIX + 3, source: 0 }]);
    // Groups that ask at one time may have the same id.
    let mut world = World::new();
    let asks = with_another(&mut world, &Known { id: 0, on: false, ..other });
    assert_eq!(asks.iter().map(|ask| (ask.group, ask.id)).collect::<Vec<_>>(), [(GROUP, 1003), (Group(8), 1003)]);
}

#[test]
fn whoever_is_no_member_is_not_believed() {
    let (mut world, id) = World::running();
    let elsewhere = Known {
        id: id + 7,
        slot: 1000,
        epoch: 9,
        members: [name(0), name(1)].into(),
        parts: [(21, part(9))].into(),
        ..world.known.clone()
    };
    // A report about the peer's own group, and about one that no other peer knows.
    let groups = [(GROUP, elsewhere.clone()), (Group(9), elsewhere)].into();
    let report = PeerReport { groups, ..world.report(2) };
    world.core.heard(2, Ok(report), world.now);
    let decision = world.core.decide(world.now, world.unix);
    let tables = decision.wanted.map(|wanted| wanted.2.partitions).unwrap_or_default();
    assert_eq!((tables.keys().copied().collect::<Vec<_>>(), decision.asks), (vec![11, 12], vec![]));
    assert!(tables.values().all(|setting| setting.switch == id && setting.replicas.len() == 2), "{tables:?}");
    assert!(decision.news.iter().any(|line| line.contains("about 2 groups")), "{:?}", decision.news);
}

#[test]
fn whoever_has_left_speaks_of_the_past() {
    let (mut world, id) = World::running();
    let before = Known { slot: 1000, parts: [(21, part(9))].into(), ..world.known.clone() };
    world.known.members.remove(&name(2));
    (world.known.epoch, world.known.slot) = (2, world.known.slot + 1);
    world.rounds(1);
    let report = PeerReport { groups: [(GROUP, before)].into(), ..world.report(2) };
    world.core.heard(2, Ok(report), world.now);
    assert_eq!(world.core.decide(world.now, world.unix).wanted, None);
    assert_eq!(world.placed()[&11], (1, id, true, 2));
}

/// Another controller has the group name an id.
fn elsewhere(world: &mut World) -> u32 {
    (world.known.id, world.known.on, world.known.slot) = (world.known.id + 5, true, world.known.slot + 1);
    world.known.id
}

/// Returns the time without a request; then the group takes the id of the request.
fn until_asked(world: &mut World) -> Duration {
    let since = world.now;
    while world.asks.is_empty() {
        assert!(world.now - since < Duration::from_secs(500));
        world.round();
    }
    let waited = world.now - since;
    world.take();
    world.rounds(2);
    assert_eq!(world.placed(), world.all(world.known.id));
    waited
}

#[test]
fn a_group_that_somebody_else_names_ids_for_is_left_alone_for_longer_each_time() {
    let (mut world, _) = World::running();
    let mut waits = Vec::new();
    for _ in 0..9 {
        elsewhere(&mut world);
        waits.push(until_asked(&mut world).as_secs());
    }
    for (wait, least) in waits.iter().zip([5, 10, 20, 40, 80, 160, 300, 300, 300]) {
        assert!((least..=least * 5 / 4 + 1).contains(wait), "{waits:?}");
    }
    let said = |line: &&String| line.contains("another controller names ids for it");
    assert_eq!(world.news.iter().filter(said).count(), 9, "{:?}", world.news);
    // An id that has stood for long enough is not contested any more.
    world.rounds(1300);
    elsewhere(&mut world);
    assert!((5..=7).contains(&until_asked(&mut world).as_secs()));
}

#[test]
fn two_controllers_with_a_switch_each_come_to_rest() {
    let (mut one, mut other) = (World::new(), World::new());
    other.core = ControllerCore::new(CoreConfig { step: 8, ..other.core.config.clone() });
    let mut named = 0;
    for _ in 0..7200 {
        for at in 0..2 {
            let (mine, theirs) = if at == 0 { (&mut one, &mut other) } else { (&mut other, &mut one) };
            mine.round();
            if !mine.asks.is_empty() {
                mine.take();
                theirs.known = mine.known.clone();
                named += 1;
            }
        }
    }
    assert!((10..40).contains(&named), "{named} ids in an hour");
}

#[test]
fn who_had_no_id_there_does_not_wait() {
    let (mut world, _) = World::running();
    // The switch begins anew under its own id. Or the controller does, and another one has named an id meanwhile.
    (world.life, world.mastership, world.mark) = (6, 2, None);
    world.tables.clear();
    world.history.clear();
    assert!(until_asked(&mut world) <= Duration::from_secs(1));
    elsewhere(&mut world);
    restarted(&mut world);
    assert!(until_asked(&mut world) <= Duration::from_secs(1));
    // A group born of one that another controller has does not wait either.
    elsewhere(&mut world);
    world.rounds(1);
    (world.known.on, world.known.slot) = (false, world.known.slot + 1);
    assert!(until_asked(&mut world) <= Duration::from_secs(1));
}

#[test]
fn what_was_turned_off_by_hand_stays_off() {
    let (mut world, _) = World::running();
    (world.known.on, world.known.barred, world.known.slot) = (false, true, world.known.slot + 1);
    world.rounds(40);
    assert_eq!((world.placed(), world.asks.len()), (world.all(0), 0));
    assert!(world.news.iter().any(|line| line.contains("turned off by hand")), "{:?}", world.news);
    restarted(&mut world);
    world.rounds(10);
    assert!(world.asks.is_empty());
    (world.known.barred, world.known.slot) = (false, world.known.slot + 1);
    world.rounds(2);
    let id = world.take();
    world.rounds(1);
    assert_eq!(world.placed(), world.all(id));
}

#[test]
fn all_of_it_is_counted() {
    let (mut world, _) = World::running();
    let tally = world.core.tally(world.now);
    assert_eq!((tally.peers, tally.answering, tally.groups, tally.placed, tally.named), (3, 3, 1, 2, 2));
    assert_eq!((tally.asks, tally.ids_named, tally.asks_refused, tally.without_room), (1, 1, 0, 0));
    assert_eq!((tally.connected, tally.primary, tally.synced_unix_s), (true, true, u64::from(UNIX)));
    world.known.parts.extend((20..26).map(|number| (number, part(1))));
    world.known.slot += 1;
    world.silent.insert(1);
    let report = PeerReport { peer: "elsewhere".to_owned(), ..world.report(2) };
    world.core.heard(2, Ok(report), world.now);
    elsewhere(&mut world);
    world.rounds(8);
    let tally = world.core.tally(world.now);
    assert_eq!((tally.answering, tally.placed, tally.named, tally.without_room), (2, 4, 0, 4));
    assert_eq!((tally.reports_failed, tally.reports_refused, tally.contested), (8, 1, 1));
    world.rounds(12);
    let ask = world.asks.pop().unwrap();
    world.core.answered(&ask, Answer::Not("no".to_owned()), world.now);
    world.core.switch_changed(&SyncState::Backup, world.now, world.unix);
    let tally = world.core.tally(world.now);
    assert_eq!((tally.asks, tally.ids_named, tally.asks_refused), (2, 1, 1));
    assert_eq!((tally.placed, tally.without_room, tally.connected, tally.primary), (0, 0, false, false));
}
