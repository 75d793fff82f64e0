//! Schedules that once broke an invariant, fed to one acceptor, message by message.

use std::sync::Arc;

use group::ballot::{Ballot, Number, Slot, Term, TermBallot};
use group::committee::Acceptor;
use group::config::{Defects, GroupConfig, Timing};
use group::message::{Base, CommitteeMessage, LogMessage, Message, Sender, Write};
use group::op::Version;
use group::outbox::{Durable, GroupOutput, Outbox};
use group::record::Record;
use group::rng::Rng;
use group::state::{GroupState, Member, Settings};
use group::table::Table;
use group::time::{Now, Time, WallMillis};
use group::{Context, Group};
use overlay::{Epoch, GroupId, Incarnation, Key, KeyRange, NodeId, PeerKey, Point, RingId};

fn node(peer: u8) -> NodeId {
    NodeId { peer: PeerKey([peer; 32]), incarnation: Incarnation(1) }
}

/// One acceptor, and what it said and did.
struct Bench {
    me: NodeId,
    now: Now,
    state: GroupState,
    config: GroupConfig,
    out: Outbox,
    rng: Rng,
    acceptor: Acceptor,
    table: Table,
    said: Vec<(Vec<NodeId>, CommitteeMessage)>,
    stored: Vec<Durable>,
}

impl Bench {
    fn new(me: NodeId, nodes: u8) -> Bench {
        let settings =
            Settings { leases: false, lease_ms: 1000, drift_per_mille: 10, value_bytes_max: 1000, horizon_ms: 60_000 };
        let member =
            |peer| Member { node: node(peer), addresses: Vec::new(), cluster: String::new(), joined: WallMillis(0) };
        let mut state = GroupState::founded(RingId(1), GroupId(1), member(1), settings);
        state.members = (1..=nodes).map(member).collect();
        let config = GroupConfig {
            timing: Timing::default(),
            durable: true,
            memory_bytes_max: 1 << 20,
            window_bytes_max: 1 << 20,
            in_flight_max: 100,
            waiting_max: 100,
            message_bytes_max: 1 << 10,
            cluster: String::new(),
            divide: |_| None,
            defects: Defects::NONE,
        };
        Bench {
            me,
            now: Now { time: Time(1_000_000_000), awake: Time(1_000_000_000), wall: WallMillis(1) },
            state,
            config,
            out: Outbox::new(me, true),
            rng: Rng::new(1),
            acceptor: Acceptor::new(Time(0)),
            table: Table::new(1 << 20, true, false),
            said: Vec::new(),
            stored: Vec::new(),
        }
    }

    fn act<T>(&mut self, act: impl FnOnce(&mut Acceptor, &mut Context<'_>, &mut Table) -> T) -> T {
        let mut ctx = Context {
            me: self.me,
            now: self.now,
            state: &self.state,
            config: &self.config,
            out: &mut self.out,
            rng: &mut self.rng,
        };
        let result = act(&mut self.acceptor, &mut ctx, &mut self.table);
        self.acceptor.flush(&mut Context {
            me: self.me,
            now: self.now,
            state: &self.state,
            config: &self.config,
            out: &mut self.out,
            rng: &mut self.rng,
        });
        self.out.flush();
        while let Some(output) = self.out.poll_ready() {
            match output {
                GroupOutput::Send(to, Message::Committee(message), _) => self.said.push((to, message)),
                GroupOutput::Persist(token, changes) => {
                    self.stored.extend(changes);
                    self.out.persisted(token);
                }
                _ => {}
            }
        }
        result
    }

    fn hear(&mut self, from: u8, message: CommitteeMessage) {
        self.act(|acceptor, ctx, table| acceptor.on_message(ctx, table, node(from), message));
    }

    fn tick(&mut self) {
        self.now.time = self.now.time + std::time::Duration::from_millis(400);
        self.act(|acceptor, ctx, table| acceptor.drive_catch_up(ctx, table));
    }

    /// What the store would have as a key's record.
    fn on_disk(&self, key: &Key) -> Option<Number> {
        let (mut unsettled, mut record) = (Vec::<Write>::new(), None);
        for change in &self.stored {
            match change {
                Durable::Accepted(write) => unsettled.push(write.clone()),
                Durable::Void(write) => unsettled.retain(|known| known.record.number != write.record.number),
                Durable::Record(write) if write.key == *key => record = Some(write.record.number),
                Durable::Settle(term, first, last) => {
                    unsettled.sort_by_key(|write| write.record.number);
                    let of_it = |number: Number| number.term == *term && (*first..=*last).contains(&number.n);
                    for write in unsettled.iter().filter(|write| of_it(write.record.number) && write.key == *key) {
                        record = Some(write.record.number);
                    }
                    unsettled.retain(|write| !of_it(write.record.number));
                }
                _ => {}
            }
        }
        record
    }

    fn knows(&mut self, key: &Key) -> Option<Arc<Record>> {
        self.table.peek(key).flatten()
    }

    /// Begins a committee: prepare and a base that is chosen.
    fn serve(&mut self, ballot: TermBallot, chain: &[(Term, u64)]) {
        let from = ballot.node.peer.0[0];
        self.hear(from, CommitteeMessage::Prepare { ballot, range: KeyRange::FULL });
        self.hear(from, CommitteeMessage::Base { ballot, base: base(chain, 0), chosen: Some(0) });
    }

    fn accept(&mut self, ballot: TermBallot, chosen: Option<u64>, writes: Vec<Write>) {
        self.hear(ballot.node.peer.0[0], CommitteeMessage::Accept { ballot, chosen, writes });
    }
}

fn ballot(slot: u64, peer: u8) -> TermBallot {
    TermBallot { epoch: Epoch(1), term: Term::new(Slot(slot), 0), node: node(peer) }
}

fn base(chain: &[(Term, u64)], reproposed: u64) -> Base {
    Base { range: KeyRange::FULL, pieces: vec![(KeyRange::FULL, chain.to_vec())], reproposed }
}

fn key(name: &str) -> Key {
    Key::new(name.as_bytes()).unwrap()
}

fn write(ballot: TermBallot, n: u64, name: &str, value: &'static str) -> Write {
    let record = Record {
        number: Number { term: ballot.term, n },
        version: Version { generation: 1, timestamp: n },
        value: Some(value.into()),
        deadline: None,
        horizon: 0,
        done: Vec::new(),
    };
    Write { key: key(name), record: Arc::new(record) }
}

/// A write is accepted here, voided by the base of a takeover that proposes it again and dies, and found to be chosen by
/// the next takeover, whose quorum knew more (I5).
#[test]
fn what_a_failed_takeover_voided_is_missed_when_it_was_chosen_after_all() {
    let mut bench = Bench::new(node(2), 3);
    let (old, failed, new) = (ballot(5, 1), ballot(7, 2), ballot(9, 3));
    bench.serve(old, &[]);
    bench.accept(old, Some(0), vec![write(old, 1, "k", "v")]);
    // The takeover's quorum knows the mark 0: the write is proposed again.
    bench.hear(2, CommitteeMessage::Prepare { ballot: failed, range: KeyRange::FULL });
    bench.accept(failed, None, vec![write(failed, 1, "k", "v")]);
    bench.hear(2, CommitteeMessage::Base { ballot: failed, base: base(&[(old.term, 0)], 1), chosen: None });
    // Nobody else hears of it. The old primary gets its vote and knows the mark 1; the next quorum has that.
    bench.serve(new, &[(old.term, 1)]);
    let complete = bench.acceptor.committee(new).unwrap().is_complete();
    let held = bench.knows(&key("k")).is_some();
    assert!(held || !complete, "it takes itself for complete without the write");
}

/// A member whose recent writes have a hole does not pass them on as all there are (I5).
#[test]
fn a_window_with_a_hole_is_no_window() {
    let mut bench = Bench::new(node(2), 5);
    let term = ballot(5, 1);
    bench.serve(term, &[]);
    bench.accept(term, Some(0), vec![write(term, 1, "a", "1")]);
    bench.accept(term, Some(3), vec![write(term, 3, "c", "3"), write(term, 4, "d", "4")]);
    bench.tick();
    // It makes up for number 2.
    let since = Number { term: term.term, n: 1 };
    let up_to = Some(Number { term: term.term, n: 3 });
    let writes = vec![write(term, 2, "b", "2")];
    bench.hear(1, CommitteeMessage::Since { ballot: term, piece: KeyRange::FULL, since, writes, up_to, done: true });
    assert!(bench.knows(&key("b")).is_some());
    assert_eq!(bench.acceptor.committee(term).unwrap().received().mark(), 4);
    bench.said.clear();
    let since = Number { term: term.term, n: 0 };
    bench.hear(4, CommitteeMessage::AskSince { ballot: term, piece: KeyRange::FULL, since });
    let [(_, CommitteeMessage::Since { writes, up_to, .. })] = &bench.said[..] else { panic!("{:?}", bench.said) };
    assert!(up_to.is_none() || writes.iter().any(|write| write.key == key("b")), "number 2 was left out");
}

/// The same for a term before the current one: what came by comparison is not in the window.
#[test]
fn a_window_that_ends_early_is_no_window() {
    let mut bench = Bench::new(node(2), 5);
    let (old, new) = (ballot(5, 1), ballot(7, 3));
    bench.serve(old, &[]);
    bench.accept(old, Some(0), vec![write(old, 1, "a", "1")]);
    bench.serve(new, &[(old.term, 2)]);
    bench.tick();
    bench.tick();
    // Whatever it asks, it is told to compare, and gets the write that it lacks.
    let Some((to, CommitteeMessage::AskSince { piece, since, .. })) = bench.said.last().cloned() else { panic!() };
    let from = to[0].peer.0[0];
    let nothing = |ballot, up_to, done| CommitteeMessage::Since { ballot, piece, since, writes: vec![], up_to, done };
    bench.hear(from, nothing(new, None, false));
    let compared = CommitteeMessage::Compared {
        ballot: new,
        piece,
        after: None,
        writes: vec![write(old, 2, "b", "2")],
        up_to: None,
        mark: 0,
        complete: true,
    };
    bench.hear(from, compared);
    assert!(bench.acceptor.committee(new).unwrap().is_complete());
    bench.said.clear();
    let since = Number { term: old.term, n: 1 };
    bench.hear(4, CommitteeMessage::AskSince { ballot: new, piece: KeyRange::FULL, since });
    let [(_, CommitteeMessage::Since { writes, up_to, .. })] = &bench.said[..] else { panic!("{:?}", bench.said) };
    assert!(up_to.is_none() || writes.iter().any(|write| write.key == key("b")), "number 2 was left out");
}

/// A comparison that began with one source and ended with another is one with neither (I5).
#[test]
fn half_a_comparison_with_an_incomplete_source_is_none() {
    let mut bench = Bench::new(node(2), 5);
    let (old, new) = (ballot(5, 1), ballot(7, 3));
    bench.serve(new, &[(old.term, 9)]);
    bench.tick();
    let (to, CommitteeMessage::AskCompare { piece, after: None, .. }) = bench.said.last().cloned().unwrap() else {
        panic!("{:?}", bench.said)
    };
    let page = |after: Option<Key>, up_to: Option<Key>, complete| CommitteeMessage::Compared {
        ballot: new,
        piece,
        after,
        writes: vec![],
        up_to,
        mark: 0,
        complete,
    };
    // The first half from who lacks things itself, then silence, then the other half from who does not.
    let half = key("a");
    let first = to[0];
    bench.hear(first.peer.0[0], page(None, Some(half.clone()), false));
    for _ in 0..12 {
        bench.tick();
        let (to, asked) = bench.said.last().cloned().unwrap();
        let CommitteeMessage::AskCompare { after, .. } = asked else { panic!("{asked:?}") };
        if to[0] != first && after == Some(half.clone()) {
            bench.hear(to[0].peer.0[0], page(after, None, true));
            break;
        }
    }
    let complete = bench.acceptor.committee(new).unwrap().is_complete();
    assert!(!complete, "the first half was compared with who lacks something alone");
}

/// Catching up is faster than the network: the older write that comes late does not replace the newer record (I12).
#[test]
fn a_late_write_does_not_replace_what_catching_up_brought() {
    let mut bench = Bench::new(node(2), 3);
    let (old, new) = (ballot(5, 1), ballot(7, 3));
    bench.serve(new, &[(old.term, 9)]);
    bench.tick();
    let (to, CommitteeMessage::AskCompare { piece, .. }) = bench.said.last().cloned().unwrap() else { panic!() };
    let compared = CommitteeMessage::Compared {
        ballot: new,
        piece,
        after: None,
        writes: vec![write(new, 2, "k", "newer")],
        up_to: None,
        mark: 2,
        complete: true,
    };
    // Before the comparison is over a page more is awaited: nothing is made up for yet.
    let CommitteeMessage::Compared { writes, .. } = &compared else { unreachable!() };
    let half = CommitteeMessage::Compared {
        ballot: new,
        piece,
        after: None,
        writes: writes.clone(),
        up_to: Some(key("k")),
        mark: 2,
        complete: true,
    };
    let from = to[0].peer.0[0];
    bench.hear(from, half);
    bench.accept(new, Some(0), vec![write(new, 1, "k", "older")]);
    let rest = CommitteeMessage::Compared {
        ballot: new,
        piece,
        after: Some(key("k")),
        writes: vec![],
        up_to: None,
        mark: 2,
        complete: true,
    };
    bench.hear(from, rest);
    bench.accept(new, Some(2), vec![]);
    assert_eq!(bench.acceptor.committee(new).unwrap().received().mark(), 2);
    assert_eq!(bench.on_disk(&key("k")), Some(Number { term: new.term, n: 2 }), "the store went back");
}

/// Of a base's pieces one is caught up with by comparison, at a higher mark than the other, which came from the window.
#[test]
fn what_is_made_up_for_is_what_every_piece_reached() {
    let mut bench = Bench::new(node(2), 3);
    let half = Point(1 << 127);
    let (left, right) = (KeyRange::new(Point(0), half), KeyRange::new(half, Point(0)));
    let (old, new) = (ballot(5, 1), ballot(7, 3));
    let (other, _) = (ballot(6, 1), ());
    // It knows the old term on the right side, up to number 0, and nothing on the left.
    bench.hear(1, CommitteeMessage::Prepare { ballot: old, range: right });
    let nothing = Base { range: right, pieces: vec![(right, vec![])], reproposed: 0 };
    bench.hear(1, CommitteeMessage::Base { ballot: old, base: nothing, chosen: Some(0) });
    bench.hear(3, CommitteeMessage::Prepare { ballot: new, range: KeyRange::FULL });
    let pieces = vec![(left, vec![(other.term, 3)]), (right, vec![(old.term, 1)])];
    let base = Base { range: KeyRange::FULL, pieces, reproposed: 0 };
    bench.hear(3, CommitteeMessage::Base { ballot: new, base, chosen: Some(0) });
    bench.tick();
    let (to, CommitteeMessage::AskSince { piece, since, .. }) = bench.said.last().cloned().unwrap() else {
        panic!("{:?}", bench.said)
    };
    assert_eq!(piece, right);
    let up_to = Some(Number { term: new.term, n: 0 });
    let writes = vec![write(old, 1, "x", "1")];
    bench.hear(to[0].peer.0[0], CommitteeMessage::Since { ballot: new, piece, since, writes, up_to, done: true });
    // Meanwhile the new term wrote something on the right, whose accept is lost.
    let (to, CommitteeMessage::AskCompare { piece, .. }) = bench.said.last().cloned().unwrap() else {
        panic!("{:?}", bench.said)
    };
    assert_eq!(piece, left);
    let compared = CommitteeMessage::Compared {
        ballot: new,
        piece,
        after: None,
        writes: vec![],
        up_to: None,
        mark: 1,
        complete: true,
    };
    bench.hear(to[0].peer.0[0], compared);
    assert_eq!(bench.acceptor.committee(new).unwrap().received().mark(), 0, "number 1 never came");
}

/// Nobody leads under a ballot that a crash might make it forget (PITFALLS 5): it would use it again for something else.
#[test]
fn nobody_leads_before_its_own_promise_is_durable() {
    let bench = Bench::new(node(1), 3);
    let mut group = Group::join(bench.config.clone(), node(1), bench.state.clone(), bench.now, 1);
    let mut now = bench.now;
    let (mut tokens, mut last, mut led, mut persisted_all) = (Vec::new(), 0, false, false);
    for step in 0..90 {
        now.time = now.time + std::time::Duration::from_millis(20);
        group.set_now(now);
        if step == 50 {
            assert!(!led, "it leads, and a crash would make it forget that it ever promised");
            persisted_all = true;
            tokens.push(last);
        }
        for token in std::mem::take(&mut tokens) {
            group.on_persisted(token);
        }
        group.tick();
        while let Some(output) = group.poll_output() {
            let message = match output {
                GroupOutput::Persist(token, _) => {
                    last = token;
                    if persisted_all {
                        tokens.push(token);
                    }
                    continue;
                }
                GroupOutput::Send(_, Message::Log(message), _) => message,
                _ => continue,
            };
            let answer = match message {
                LogMessage::AskPromise { round } => LogMessage::WouldPromise { round },
                LogMessage::Prepare { ballot, .. } => LogMessage::Promise { ballot, state: None, accepted: vec![] },
                LogMessage::Accept { .. } => {
                    led = true;
                    continue;
                }
                _ => continue,
            };
            for peer in [2, 3] {
                let from = Sender { node: node(peer), epoch: Epoch(1) };
                group.on_message(from, Message::Log(answer.clone()));
            }
        }
    }
    assert!(led, "then it leads");
}

/// What a peer may say, by mistake or on purpose, does not stop this node.
#[test]
fn nonsense_is_dropped() {
    let bench = Bench::new(node(1), 3);
    let mut group = Group::join(bench.config.clone(), node(1), bench.state.clone(), bench.now, 1);
    let term = TermBallot { epoch: Epoch(1), ..bench.state.parts().next().unwrap().1 };
    let other = ballot(5, 2);
    let from = Sender { node: node(2), epoch: Epoch(1) };
    let far = write(other, u64::MAX, "k", "v");
    let high = Ballot { round: u64::MAX, node: node(2) };
    let wrong_term = Write { key: key("k"), record: write(ballot(6, 2), 1, "k", "v").record };
    let mut state = bench.state.clone();
    (state.applied, state.division) = (Slot(u64::MAX), Vec::new());
    let messages = [
        Message::Committee(CommitteeMessage::Prepare { ballot: other, range: KeyRange::FULL }),
        Message::Committee(CommitteeMessage::Base { ballot: other, base: base(&[], 0), chosen: Some(0) }),
        Message::Committee(CommitteeMessage::Accept { ballot: other, chosen: Some(u64::MAX), writes: vec![far] }),
        Message::Committee(CommitteeMessage::Accept { ballot: other, chosen: Some(0), writes: vec![wrong_term] }),
        Message::Committee(CommitteeMessage::Accepted { ballot: term, numbers: vec![(1, u64::MAX), (1, 1), (1, 1)] }),
        Message::Committee(CommitteeMessage::AskSince {
            ballot: other,
            piece: KeyRange::FULL,
            since: Number { term: other.term, n: u64::MAX },
        }),
        Message::Log(LogMessage::Prepare { ballot: high, applied: Slot(u64::MAX) }),
        Message::Log(LogMessage::Refused { ballot: high, promised: high }),
        Message::State(Box::new(state)),
    ];
    let mut now = bench.now;
    for message in messages {
        group.on_message(from, message);
        now.time = now.time + std::time::Duration::from_millis(300);
        group.set_now(now);
        group.tick();
        while let Some(output) = group.poll_output() {
            if let GroupOutput::Persist(token, _) = output {
                group.on_persisted(token);
            }
        }
    }
    assert!(group.state().applied < Slot::MAX);
}
